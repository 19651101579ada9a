//! `/console/{slug}/namespace`: the subscription, the storage and the export of a vault, and the
//! two changes that cannot be undone: resetting the pin and deleting the vault. The pin is the
//! record of which vault, by its keys, may publish here.

use askama::Template;
use axum::response::Response;

use super::guard::{ConsoleForm, ConsolePage};
use super::outcome::Outcome;
use super::page::{PageLayout, show_page};
use crate::admin::delete::delete_vault;
use crate::admin::pin::reset_pin;
use crate::admin::principal::Principal;
use crate::error::ErrorCode;
use crate::hosting::home_page::{step_state, step_text};
use crate::hosting::provisioning;
use crate::model::enrolment::Enrolment;
use crate::model::namespace::{Kind, Pinned, Subscription};
use crate::model::permit::Act;
use crate::model::places::{self, PlaceKind};
use crate::model::provisioning::StepState;
use crate::model::usage::Usage;
use crate::units::{format_count, format_size};
use crate::web::error_page::ErrorPage;
use crate::web::layout::{format_day, format_minute};

/// Stored bytes or stored objects, with their quota.
struct StoredPart {
    used: String,
    /// The quota, and the used part of it in percent; `None` without a limit.
    quota: Option<(String, u64)>,
}

#[derive(Template)]
#[template(path = "console/namespace.html")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a condition of the template"
)]
struct NamespacePage {
    shell: PageLayout,
    slug: String,
    id: String,
    created: String,
    owner: String,
    hosted: bool,
    subscription: String,
    /// Label and state of the set-up steps, while one of them is pending.
    steps: Vec<(&'static str, &'static str)>,
    /// CSS class of the subscription's mark.
    mark: &'static str,
    codes_required: bool,
    codes_href: String,
    vault_id: Option<String>,
    fingerprint: Option<String>,
    /// Whether the pin is from an earlier version of vault.
    earlier: bool,
    /// Time of the last reset of the pin, if there was one.
    reset: Option<String>,
    stored: [StoredPart; 2],
    /// What is limited among machines, people and drafts: name, number in use, and limit.
    places: Vec<(&'static str, u64, u64)>,
    export_href: String,
    here: String,
    may_write: bool,
    csrf: String,
}

pub(super) async fn show_namespace(page: ConsolePage) -> Result<Response, ErrorPage> {
    let namespace = &page.namespace;
    let now = page.app().clock.now();
    let (subscription, mark) = match namespace.subscription {
        Subscription::None => ("free of charge on this service".to_owned(), ""),
        Subscription::Active => ("paid".to_owned(), "good"),
        // The grace period ends with time; no write changes the record then.
        Subscription::PastDue { until } if now < until => (
            format!("a payment failed; works until {}", format_day(until)),
            "wait",
        ),
        Subscription::PastDue { .. } | Subscription::Lapsed => {
            ("lapsed: machines get no skills".to_owned(), "stop")
        }
    };
    let steps = provisioning::namespace_steps(page.app(), namespace).await?;
    let is_set_up = steps.iter().all(|step| step.state == StepState::Done);
    let steps = steps.iter().filter(|_| !is_set_up);
    let steps = steps.map(|step| (step_text(step.step), step_state(*step)));
    let pin = namespace.pin.vault_pin();
    let current = namespace.readable_current();
    let template = NamespacePage {
        shell: PageLayout::for_page(&page),
        slug: namespace.slug.to_string(),
        id: namespace.id.to_string(),
        created: format_day(namespace.created_at),
        owner: namespace.owner.clone(),
        hosted: namespace.kind == Kind::Hosted,
        subscription,
        steps: steps.collect(),
        mark,
        codes_required: namespace.enrolment == Enrolment::Codes,
        codes_href: page.address("/machines/codes"),
        vault_id: pin.map(|pin| pin.vault_id.to_string()),
        // Without a pin, the next release decides which vault this is, so no fingerprint is shown
        // as valid.
        fingerprint: pin
            .and(current)
            .and_then(|current| current.fingerprint)
            .map(|fingerprint| fingerprint.to_string()),
        earlier: matches!(namespace.pin, Pinned::Earlier(_)),
        reset: namespace
            .pin_reset
            .as_ref()
            .map(|reset| format_minute(reset.at)),
        stored: read_usage(&page).await?,
        places: count_limited(&page).await?,
        export_href: page.address("/export.jsonl"),
        here: page.address("/namespace"),
        may_write: page.may_write(),
        csrf: page.form_token(),
    };
    Ok(show_page(&template))
}

/// Reads how much the vault stores, in bytes and in objects.
async fn read_usage(page: &ConsolePage) -> Result<[StoredPart; 2], ErrorPage> {
    let (app, namespace) = (page.app(), &page.namespace);
    let (usage, _) = Usage::find(app, &namespace.id).await?;
    let (stored, quota) = (usage.tally.stored, app.quota_of(namespace));
    let objects = |number: u64| format_count(number, "object", "objects");
    let part = |used: u64, limit: u64, text: &dyn Fn(u64) -> String| {
        let percent = used.saturating_mul(100).checked_div(limit);
        StoredPart {
            used: text(used),
            quota: percent.map(|percent| (text(limit), percent)),
        }
    };
    Ok([
        part(stored.bytes, quota.bytes, &format_size),
        part(stored.objects, quota.objects, &objects),
    ])
}

/// Counts the machines, people and drafts of the vault, without the kinds that have no limit.
async fn count_limited(page: &ConsolePage) -> Result<Vec<(&'static str, u64, u64)>, ErrorPage> {
    let (app, home) = (page.app(), page.namespace.to_ref());
    let quota = app.quota_of(&page.namespace);
    let mut limited = Vec::new();
    for kind in PlaceKind::ALL {
        let limit = quota.limit_of(kind.quota());
        if limit > 0 {
            let what = match kind {
                PlaceKind::Machines => "admitted machines",
                PlaceKind::People => "people, with those who are invited",
                PlaceKind::Drafts => "waiting drafts",
            };
            let used = places::count_places(app, &home, kind).await?;
            limited.push((what, used, limit));
        }
    }
    Ok(limited)
}

/// `POST /console/{slug}/namespace`: resets the pin or deletes the vault. Both need the slug, typed
/// by the person, and a confirmation.
pub(super) async fn change_namespace(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let change = form.required_field("change")?;
    if !matches!(change, "reset-pin" | "delete") {
        return Err(ErrorPage::FormMalformed);
    }
    let typed = form.form.value("slug").unwrap_or_default().trim();
    // The person must type the name, so that nobody with several vaults changes the wrong one.
    if typed != form.page.namespace.slug.as_str() {
        return Err(ErrorPage::Refused(ErrorCode::ConfirmationMismatch.into()));
    }
    let by = Principal::from_user(form.page.as_acting_user(), &form.page.user);
    let (act, outcome) = if change == "reset-pin" {
        (Act::ResetPin {}, reset_pin(&by).await)
    } else {
        (Act::DeleteVault {}, delete_vault(&by).await)
    };
    Ok(match form.confirm_outcome(act, outcome).await? {
        Ok(()) if change == "reset-pin" => form.redirect_back(Outcome::PinReset),
        Ok(()) => form.redirect_to_choice(Outcome::VaultDeleted),
        Err(to_confirmation) => to_confirmation,
    })
}
