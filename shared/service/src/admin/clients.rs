//! `/admin/clients`: the apps (OAuth clients) that are connected to the caller's namespace.
//! Revoking an app ends all its tokens there.

use std::collections::{HashMap, HashSet};

use axum::http::StatusCode;
use vault_api::EndedKind;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_PAGE, Record};

use super::call::{Answer, Call, Items, Page, trim_page};
use super::made::{Choice, Ending, end_app};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::Versioned;
use crate::model::client::{
    Client, ClientId, Connection, client_key, connection_key, connections_partition,
};
use crate::model::grant::{Grant, grants_partition};
use crate::model::user::Scope;
use crate::route::Audience;

/// The use of an app, computed from its grants that are still valid: the users, and the time at
/// which tokens were last issued.
#[derive(Default)]
struct ClientUse {
    users: HashSet<String>,
    last: Option<Timestamp>,
}

/// Answers `GET /admin/clients`: a page of the connected apps, in the order of registration.
pub(super) async fn list_clients(call: Call) -> Answer {
    let page = call.page_params()?;
    let apps = read_apps_page(&call.app, &call.caller.namespace.id, &page).await?;
    Ok(json_answer(StatusCode::OK, &apps))
}

/// Reads one page of the apps that are connected to a vault, in the order of registration. A page
/// is short if some apps were revoked, or if the apps on it have very many grants; `next` tells
/// whether there are more.
pub(crate) async fn read_apps_page(
    app: &App,
    namespace: &NamespaceId,
    page: &Page,
) -> Result<Items<vault_api::Client>, StoreError> {
    let records = &app.records;
    let page_records = records
        .list_page(
            &connections_partition(namespace),
            "",
            page.after.as_deref(),
            page.limit + 1,
        )
        .await?;
    let (mut found, mut next) = trim_page(page_records, page.limit);
    let mut used = HashMap::new();
    if let Some(first) = found.first().map(|record| record.key.key.clone()) {
        // Grants are sorted by client, so those of one page of clients are one range.
        let grants = records
            .list_page(
                &grants_partition(Some(namespace)),
                "",
                Some(&first),
                MAX_PAGE,
            )
            .await?;
        // One list has at most MAX_PAGE grants. Apps after the last grant that was read would be
        // shown without their use, so they move to the next page. The first app always stays, or
        // one with more grants than a list would block all others.
        if let Some(reached) = cut_off_client(&grants) {
            let whole = found
                .iter()
                .take_while(|record| *record.key.key < *reached)
                .count()
                .max(1);
            if whole < found.len() {
                found.truncate(whole);
                next = found.last().map(|record| record.key.key.clone());
            }
        }
        used = find_last_uses(&grants, app.clock.now())?;
    }
    let connections = found
        .iter()
        .map(Record::read)
        .filter(|read| {
            !read
                .as_ref()
                .is_ok_and(|connection: &Connection| connection.revoked_at.is_some())
        })
        .collect::<Result<Vec<Connection>, _>>()?;
    let keys: Vec<_> = connections
        .iter()
        .map(|connection| client_key(&connection.client))
        .collect();
    let clients = if keys.is_empty() {
        Vec::new()
    } else {
        records.get_many(&keys).await?
    };
    let mut items = Vec::new();
    for (connection, client) in connections.into_iter().zip(clients) {
        let used = used.remove(&connection.client).unwrap_or_default();
        items.push(to_api_client(connection, Versioned::read(client)?, &used));
    }
    Ok(Items { items, next })
}

/// An app with access to a vault, or that had access before it was revoked.
pub(crate) struct FoundApp {
    /// The app in its API form. Its users and last use are left empty, because they cost further
    /// reads.
    pub(crate) client: vault_api::Client,
    pub(crate) id: ClientId,
    /// False for an app that was revoked.
    pub(crate) is_connected: bool,
}

/// Finds the app of this id that is or was connected to a vault.
pub(crate) async fn find_app(
    app: &App,
    namespace: &NamespaceId,
    id: &str,
) -> Result<Option<FoundApp>, StoreError> {
    let Ok(id) = id.parse::<ClientId>() else {
        return Ok(None);
    };
    let keys = [connection_key(namespace, &id), client_key(&id)];
    let [connection, client] = app.get_all(keys).await?;
    let connection = Versioned::<Connection>::read(connection)?;
    let client = Versioned::read(client)?;
    Ok(connection.map(|connection| FoundApp {
        is_connected: connection.value.revoked_at.is_none(),
        client: to_api_client(connection.value, client, &ClientUse::default()),
        id,
    }))
}

/// Returns the id of the client at which a full list of grants ends, because some of its grants may
/// be missing.
fn cut_off_client(grants: &[Record]) -> Option<&str> {
    let last = grants.last().filter(|_| grants.len() == MAX_PAGE)?;
    last.key.key.split('/').next()
}

/// Returns for each client with living grants the users who use it and when it was last used.
fn find_last_uses(
    grants: &[Record],
    now: Timestamp,
) -> Result<HashMap<ClientId, ClientUse>, StoreError> {
    let mut uses: HashMap<ClientId, ClientUse> = HashMap::new();
    for record in grants {
        let grant: Grant = record.read()?;
        if grant.is_alive(now) {
            let last = grant.last_issued_at();
            let user = grant.family.actor().to_owned();
            let used = uses.entry(grant.family.client).or_default();
            used.users.insert(user);
            used.last = used.last.max(Some(last));
        }
    }
    Ok(uses)
}

fn to_api_client(
    connection: Connection,
    client: Option<Versioned<Client>>,
    used: &ClientUse,
) -> vault_api::Client {
    let mut hosts: Vec<String> = Vec::new();
    // The record of the client may have been deleted. The best known time is then that of the
    // connection.
    let mut created_at = connection.connected_at;
    if let Some(client) = client {
        created_at = client.value.created_at;
        for uri in &client.value.redirect_uris {
            if !hosts.iter().any(|host| host == uri.display_name()) {
                hosts.push(uri.display_name().to_owned());
            }
        }
    }
    vault_api::Client {
        id: connection.client.into(),
        name: connection.name,
        redirect_hosts: hosts,
        created_at,
        connected_at: connection.connected_at,
        last_used_at: used.last,
        users: used.users.len(),
    }
}

/// Revokes an app in this namespace: its tokens become invalid at once, and it gets new ones only
/// by a new consent. `?end=` lists kinds of things that the app made and that end too (`machines`,
/// `invitations`, `webhooks`); `?keep=codes` keeps its enrolment codes valid.
pub(super) async fn revoke_client(call: Call) -> Answer {
    let ending = parse_ending(&call)?;
    // An owner may end an app without the scope `write`. Ending or keeping what it made needs the
    // scope, as on the routes of these things.
    if ending.needs_write() {
        let public = &call.app.config.public_url;
        call.caller
            .require_scope(Scope::Write, Audience::Vault, public)?;
    }
    let ended = end_app(&call.to_principal(), call.param("id"), &ending).await?;
    Ok(json_answer(StatusCode::OK, &ended))
}

/// Parses the query parameters `end` (kinds of things that end) and `keep` (`codes`); fails with
/// 422 for other values.
fn parse_ending(call: &Call) -> Result<Ending, Refusal> {
    let mut ending = Ending::of_access();
    if let Some(words) = call.query_param("end") {
        let kinds = words.split(',').map(str::parse::<EndedKind>);
        let kinds = kinds.collect::<Result<Vec<_>, _>>();
        ending.add_kinds(kinds.map_err(|_| ErrorCode::ParameterInvalid)?);
    }
    match call.query_param("keep").as_deref() {
        None => {}
        Some("codes") => ending.kept_codes = Choice::All,
        Some(_) => return Err(ErrorCode::ParameterInvalid.into()),
    }
    Ok(ending)
}
