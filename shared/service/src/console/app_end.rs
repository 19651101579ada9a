//! The part of `/console/{slug}/apps` that ends the access of an app and what the app made:
//! enrolment codes, machines that it admitted, people that it invited, and webhooks.
//!
//! Each thing that still works has a check box. Members have links to their pages instead, because
//! the person must confirm the end of each membership there.

use axum::http::StatusCode;
use axum::response::Response;
use vault_store::StoreError;

use super::difference::printable_line;
use super::guard::{ConsoleForm, ConsolePage};
use super::outcome::{DONE, Outcome, Unchanged};
use crate::accounts::session::redirect_to;
use crate::admin::clients::FoundApp;
use crate::admin::made::{Choice, Ending, end_app};
use crate::admin::principal::Principal;
use crate::error::ErrorCode;
use crate::model::Versioned;
use crate::model::made::AppResources;
use crate::model::user::User;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::{format_minute, role_name};

/// Maximum number of enrolment codes with a check box.
const MAX_CODES: usize = 20;
/// Maximum number of invitations with a check box.
const MAX_INVITATIONS: usize = 10;
/// Maximum number of machines with a check box. A form can have at most 64 fields.
const MAX_MACHINES: usize = 25;
/// Maximum number of members that are listed.
const MAX_MEMBERS: usize = 50;

pub(super) struct MadeRow {
    /// Value that the row's check box sends, such as the id of a machine.
    pub(super) id: String,
    /// Name of the thing, or its e-mail or web address.
    pub(super) name: String,
    /// Text by which a person tells it from similar things, such as a date.
    pub(super) detail: String,
}

/// Rows of one kind of things that an app made.
#[derive(Default)]
pub(super) struct MadeRows {
    pub(super) rows: Vec<MadeRow>,
    /// Number of further things, which have no row because a form can have only few fields.
    pub(super) more: usize,
}

impl MadeRows {
    fn first<T>(items: &[T], most: usize, row: impl Fn(&T) -> MadeRow) -> Self {
        Self {
            rows: items.iter().take(most).map(row).collect(),
            more: items.len().saturating_sub(most),
        }
    }
}

/// An app that the person is about to end, with what it made.
pub(super) struct EndedApp {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) hosts: Vec<String>,
    pub(super) connected: String,
    /// Whether the form also ends the access of the app; otherwise only what is ticked.
    pub(super) ends_access: bool,
    /// Enrolment codes. Without a tick, they keep working after the end of the access.
    pub(super) codes: MadeRows,
    /// Ids of the codes on the page, separated by blanks, so that the form tells which were shown.
    pub(super) shown_codes: String,
    pub(super) machines: MadeRows,
    pub(super) invitations: MadeRows,
    pub(super) members: MadeRows,
    pub(super) webhooks: MadeRows,
    pub(super) has_boxes: bool,
    /// Whether the vault has more records than were read, so that things of the app may be missing.
    pub(super) more: bool,
}

impl EndedApp {
    /// Reads what the app made. `ends_access` asks to end the app's access too, which has no effect
    /// on an app without access.
    pub(super) async fn read(
        page: &ConsolePage,
        found: FoundApp,
        ends_access: bool,
    ) -> Result<Self, StoreError> {
        let home = page.namespace.to_ref();
        let made = AppResources::read(page.app(), &home, &found.id).await?;
        let ends_access = ends_access && found.is_connected;
        let codes = MadeRows::first(&made.codes, MAX_CODES, |code| {
            let value = &code.code.value;
            MadeRow {
                id: code.id(),
                name: code.id(),
                detail: format!(
                    "for {} machines, until {}",
                    value.uses,
                    format_minute(value.expires_at)
                ),
            }
        });
        let machines = MadeRows::first(&made.machines, MAX_MACHINES, |device| MadeRow {
            id: device.value.device_id.clone(),
            name: device.value.name(),
            detail: device
                .value
                .decided_at
                .map_or_else(String::new, |at| format!("admitted {}", format_minute(at))),
        });
        let person = |user: &Versioned<User>| MadeRow {
            id: user.value.id.clone(),
            name: user.value.email.to_string(),
            detail: role_name(user.value.role).to_owned(),
        };
        let invitations = MadeRows::first(&made.invitations, MAX_INVITATIONS, person);
        let webhooks = MadeRows::first(&made.webhooks, made.webhooks.len(), |webhook| MadeRow {
            id: webhook.id.clone(),
            name: printable_line(webhook.address.as_str()),
            detail: format!("added {}", format_minute(webhook.created_at)),
        });
        let shown: Vec<_> = codes.rows.iter().map(|row| row.id.as_str()).collect();
        let with_boxes = [&machines, &invitations, &webhooks];
        let has_boxes = with_boxes.iter().any(|rows| !rows.rows.is_empty());
        Ok(Self {
            id: found.client.id,
            name: found.client.name.as_deref().map(printable_line),
            hosts: found
                .client
                .redirect_hosts
                .iter()
                .map(|host| printable_line(host))
                .collect(),
            connected: format_minute(found.client.connected_at),
            ends_access,
            shown_codes: shown.join(" "),
            has_boxes: has_boxes || (ends_access && !codes.rows.is_empty()),
            codes,
            machines,
            invitations,
            members: MadeRows::first(&made.members, MAX_MEMBERS, person),
            webhooks,
            more: made.more,
        })
    }
}

/// Ends the access of an app for all users of the vault, and the things that are ticked; or, if the
/// field `change` is `made`, only these things.
pub(super) async fn end_access(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let id = form.required_field("client")?;
    let ticked: Vec<&str> = form.form.all("made").collect();
    let of_kind = |prefix: &str| {
        let ids = ticked.iter().filter(|id| id.starts_with(prefix));
        let ids: Vec<String> = ids.map(|id| (*id).to_owned()).collect();
        if ids.is_empty() {
            Choice::Nothing
        } else {
            Choice::Listed(ids)
        }
    };
    // A code that the page showed without a tick keeps working; one that was made meanwhile ends.
    let shown = form.form.value("shown_codes").unwrap_or_default();
    let kept = shown
        .split(' ')
        .filter(|id| !id.is_empty() && !ticked.contains(id));
    let kept: Vec<String> = kept.map(str::to_owned).collect();
    let ending = Ending {
        access: form.form.value("change") != Some("made"),
        kept_codes: if kept.is_empty() {
            Choice::Nothing
        } else {
            Choice::Listed(kept)
        },
        machines: of_kind("dev_"),
        invitations: of_kind("usr_"),
        webhooks: of_kind("whk_"),
    };
    let by = Principal::from_user(form.page.as_acting_user(), &form.page.user);
    let ended = match end_app(&by, id, &ending).await {
        Ok(ended) => ended,
        // The access may have ended in another tab. The page says so, because a 404 would be about
        // its address.
        Err(refusal) if refusal.code() == ErrorCode::ClientNotFound => {
            return Ok(form.redirect_refused(Unchanged::AppEnded));
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let outcome = if ending.access {
        Outcome::AppEnded
    } else {
        Outcome::MadeEnded
    };
    let left = &ended.left;
    if left.machines.is_empty()
        && left.invitations.is_empty()
        && left.users.is_empty()
        && left.webhooks.is_empty()
    {
        return Ok(form.redirect_back(outcome));
    }
    // The page then shows what keeps working, so that nobody takes it for ended.
    let page = form.page.address("/apps");
    let page = with_query(&page, &[("made", id), (DONE, outcome.word())]);
    Ok(redirect_to(StatusCode::SEE_OTHER, &page))
}
