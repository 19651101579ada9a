//! The other tenant: something of everything that a tenant has.

use std::collections::BTreeMap;

use serde_json::json;
use vault_format::hash::Digest;
use vault_format::request::device_id;
use vault_service::model::device::{self, DeviceStatus};
use vault_service::model::membership::invitations_partition;
use vault_service::model::namespace::{self, Kind, Namespace};
use vault_service::model::passkey::passkey_id;
use vault_service::model::token::token_key;
use vault_service::model::user::{Role, Scopes};
use vault_service::model::{
    account, audit, client, draft, enrolment, grant, notice, release, session, user,
};
use vault_service::oauth::revoke;
use vault_service::route::Route;
use vault_store::objects::Class;
use vault_store::records::Records;

use crate::account::passkeys;
use crate::admin::{Desk, reference, token};
use crate::common::{self, PASSWORD, Tokens};
use crate::support::{World, key};
use crate::team::{Team, hand_in, id_of, propose_skill};

/// The owner of the other tenant.
pub const FAY: &str = "fay@example.org";
/// A member there.
pub const GUS: &str = "gus@example.org";
/// The name of the other tenant.
pub const THERE: &str = "tenant-b";

/// A skill of its current release.
pub const SKILL: &str = "code-review";

/// Somebody who is invited there.
const HAL: &str = "hal@example.org";

/// Something of everything that a tenant has, as the variables of paths name it.
#[derive(Clone)]
pub struct Named {
    pub slug: String,
    device: String,
    user: String,
    email: &'static str,
    client: String,
    code: String,
    confirmation: String,
    draft: String,
    webhook: String,
    pub release: String,
    object: String,
}

impl Named {
    /// Ids of the same form that nobody has.
    pub fn absent() -> Self {
        Self {
            slug: "tenant-x".to_owned(),
            device: format!("dev_{}", "a".repeat(26)),
            user: format!("usr_{}", "0".repeat(26)),
            email: "nobody@example.org",
            client: format!("cli_{}", "0".repeat(26)),
            code: format!("enc_{}", "0".repeat(26)),
            confirmation: format!("cnf_{}", "0".repeat(26)),
            draft: "0".repeat(26),
            webhook: format!("whk_{}", "0".repeat(26)),
            release: "7777".to_owned(),
            object: "0".repeat(64),
        }
    }

    /// The path of a route, below this slug.
    pub fn path(&self, route: &Route, slug: &str) -> String {
        let segments = route.path.split('/').map(|segment| {
            let variable = segment.strip_prefix('{');
            let Some((name, rest)) = variable.and_then(|name| name.split_once('}')) else {
                return segment.to_owned();
            };
            let value = match name {
                "slug" => slug,
                "class" => "bundles",
                "sha256" | "bundle_hash" => &self.object,
                "release" => &self.release,
                "token" => "x",
                "email" => self.email,
                "id" if route.path.contains("/users/") || route.path.contains("/people/") => {
                    &self.user
                }
                "name" => SKILL,
                "id" if route.path.contains("/clients/") => &self.client,
                "id" if route.path.contains("/enrolment-codes/") => &self.code,
                "id" if route.path.contains("/drafts/") => &self.draft,
                "id" if route.path.contains("/confirm") => &self.confirmation,
                "id" if route.path.contains("/notices/") => &self.webhook,
                "id" if route.path.contains("/devices/") || route.path.contains("/machines/") => {
                    &self.device
                }
                other => panic!("{}: say what {{{other}}} is of another tenant", route.path),
            };
            format!("{value}{rest}")
        });
        segments.collect::<Vec<_>>().join("/")
    }
}

/// The other tenant, with something of everything, and what only it knows.
pub struct Other {
    pub named: Named,
    /// The same with what is not decided yet: an invitation, a waiting machine, a key request.
    pub waiting: Named,
    /// The same with a proposed release as the draft.
    pub proposal: Named,
    /// An app and a browser of its owner, as the fields of forms name them.
    pub grant: String,
    pub session: String,
    /// A sign-in of its owner through an identity provider.
    pub sign_in: String,
    /// A passkey of its owner.
    pub passkey: String,
    /// The tokens of that app.
    pub tokens: Tokens,
    pub namespace: Namespace,
    pub secrets: Vec<String>,
}

pub async fn other(desk: &Desk) -> Other {
    let (world, app) = (&desk.world, &desk.world.app);
    let namespace = world.namespace(THERE, Kind::Hosted).await;
    let home = reference(&namespace);
    common::member(app, FAY, &home, Role::Owner, Scopes::ALL).await;
    let gus = common::member(app, GUS, &home, Role::Member, Scopes::ALL).await;
    let owner = common::tokens(app, (FAY, PASSWORD), THERE, Scopes::ALL).await;
    let admitted = world.device(THERE, 51, DeviceStatus::Active).await;
    world.enrol(&key(52), THERE, "fay's own laptop").await;
    let body = json!({ "email": HAL });
    let invited = desk.ask(&owner.access, "POST", "/admin/users", Some(&body));
    let invited = invited.await.json()["id"].as_str().unwrap().to_owned();
    let sign_in = common::connected(app, FAY, "fay at the provider").await;
    let (_, fob) = passkeys::with_passkey(desk, FAY).await;
    let passkey = passkey_id(&fob.held[0].id).to_string();
    let fays = account::account_partition(&common::account(app, FAY).await.id);
    let listed = app.records.list_page(&fays, "", None, 100).await.unwrap();
    let listed_as = |prefix: &str| {
        let mut ids = listed
            .iter()
            .filter_map(|one| one.key.key.strip_prefix(prefix));
        ids.next().unwrap().to_owned()
    };
    let team = Team::new(THERE, 2, 2);
    // A release of its own, with a number that nobody else has.
    let skill = team.skill(SKILL, "Read what changed.");
    let mut catalog = team.next(world, 0, &[skill]).await;
    catalog.release = 4242;
    let bytes = team.file(&catalog, &[0, 1]);
    let catalog = Digest::of(&bytes);
    world.publish(THERE, bytes).await.unwrap();
    let [draft, request, proposal] = drafts_of(world, &team, &owner.access).await;
    let codes = format!("/admin/vaults/{THERE}/enrolment-codes");
    let body = json!({ "uses": 3, "name": "fay-*" });
    let made = desk.ask(&owner.access, "POST", &codes, Some(&body)).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let body = json!({ "uses": 77 });
    let waits = desk.ask_once(&owner.access, "POST", &codes, Some(&body));
    let waits = waits.await.json()["confirmation"]["id"].clone();
    let webhooks = format!("/admin/vaults/{THERE}/notices");
    let body = json!({ "address": "https://hooks.tenant-b.example/" });
    let webhook = desk
        .ask(&owner.access, "POST", &webhooks, Some(&body))
        .await;
    let webhook = webhook.json();
    let object = b"what only tenant b has".to_vec();
    let sha256 = Digest::of(&object);
    let place = namespace.object_key(Class::Bundles, sha256);
    app.objects.put_object(&place, object.into()).await.unwrap();
    let named = Named {
        slug: THERE.to_owned(),
        device: device_id(&home.slug, &admitted.public()),
        user: gus.id.clone(),
        email: GUS,
        client: owner.client.clone(),
        code: text("id"),
        confirmation: waits.as_str().unwrap().to_owned(),
        draft,
        webhook: webhook["id"].as_str().unwrap().to_owned(),
        release: "4242".to_owned(),
        object: sha256.to_string(),
    };
    Other {
        waiting: Named {
            device: device_id(&home.slug, &key(52).public()),
            user: invited,
            email: HAL,
            draft: request,
            ..named.clone()
        },
        proposal: Named {
            draft: proposal,
            ..named.clone()
        },
        named,
        grant: listed_as(grant::ALLOWED),
        session: listed_as(session::SESSIONS),
        sign_in,
        passkey,
        secrets: vec![
            FAY.to_owned(),
            GUS.to_owned(),
            HAL.to_owned(),
            "what-tenant-b-drafts".to_owned(),
            "the key of gus".to_owned(),
            text("code"),
            "hooks.tenant-b.example".to_owned(),
            webhook["secret"].as_str().unwrap().to_owned(),
            namespace.id.to_string(),
            "fay's own laptop".to_owned(),
            "what only tenant b has".to_owned(),
            catalog.to_string(),
            owner.access.clone(),
            owner.refresh.clone(),
        ],
        tokens: owner,
        namespace: world.read_namespace(THERE).await,
    }
}

/// One of each kind of drafts: a skill and a key request of the member, a proposal of the owner.
async fn drafts_of(world: &World, team: &Team, owner: &str) -> [String; 3] {
    let gus = token(world, GUS, THERE, Scopes::ALL).await;
    let skill = propose_skill(world, &gus, THERE, "what-tenant-b-drafts").await;
    let request = team.request(world, &key(53), "the key of gus");
    let request = hand_in(world, &gus, THERE, "key_request", request).await;
    let catalog = team.next(world, 0, &[]).await;
    let proposal = hand_in(world, owner, THERE, "release", team.file(&catalog, &[0])).await;
    [skill, request, proposal].map(|answer| id_of(&answer))
}

/// Every record of a tenant with its revision.
pub async fn records_of(world: &World, other: &Other) -> BTreeMap<String, u64> {
    let namespace = &other.namespace;
    let (id, slug) = (&namespace.id, &namespace.slug);
    let hash = |token: &str| revoke::hash_token(token).unwrap();
    let [access, refresh] = [&other.tokens.access, &other.tokens.refresh].map(|token| hash(token));
    let records: &dyn Records = &*world.memory;
    let mut found = BTreeMap::new();
    let app = &world.app;
    let [fay, gus] = [
        common::account(app, FAY).await,
        common::account(app, GUS).await,
    ];
    for partition in [
        account::account_partition(&fay.id),
        account::account_partition(&gus.id),
        invitations_partition(&HAL.parse().unwrap()),
        namespace::namespace_key(slug).partition,
        device::devices_partition(slug),
        device::pending_partition(slug),
        device::id_key(slug, "x").partition,
        device::seen_key(slug, "x").partition,
        user::user_key(id, "x").partition,
        client::connections_partition(id),
        grant::grants_partition(Some(id)),
        enrolment::codes_partition(id),
        enrolment::used_key(id, &Digest::of(b"x")).partition,
        token_key(&access).partition,
        token_key(&refresh).partition,
        release::releases_partition(id),
        audit::audit_partition(Some(id)),
        draft::drafts_partition(id),
        draft::ended_partition(id),
        draft::authored_partition(id),
        draft::draft_queue_key(id).partition,
        draft::proposal_slot(id, "x").partition,
        format!("kept/{id}"),
        notice::destinations_key(id).partition,
        notice::outbox_partition(id),
    ] {
        for record in records.list_page(&partition, "", None, 1000).await.unwrap() {
            // A session stands in a partition of its own, under the name that the list of its
            // account has.
            if record.key.key.starts_with(session::SESSIONS) {
                let of_session = records
                    .list_page(&record.key.key, "", None, 10)
                    .await
                    .unwrap();
                found.extend(
                    of_session
                        .iter()
                        .map(|one| (one.key.to_string(), one.revision)),
                );
            }
            found.insert(record.key.to_string(), record.revision);
        }
    }
    found
}
