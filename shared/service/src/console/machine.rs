//! `/console/{slug}/machines/{id}`: one machine, and the owner's decisions about it.

use askama::Template;
use axum::response::Response;

use super::fleet::Machine;
use super::guard::{ConsoleForm, ConsolePage};
use super::machines::{decided_by, held_text, last_seen};
use super::names::Names;
use super::outcome::Outcome;
use super::page::{PageLayout, show_page};
use crate::admin::devices::{Decision, decide_device};
use crate::model::device::{DeviceStatus, LastSeen, find_device, seen_key};
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_minute;

#[derive(Template)]
#[template(path = "console/machine.html")]
struct MachinePage {
    shell: PageLayout,
    csrf: String,
    here: String,
    list_href: String,
    audit_href: String,
    name: String,
    fingerprint: String,
    status: DeviceStatus,
    enrolled: String,
    last_seen: String,
    held: String,
    decided_by: Option<String>,
    decided: Option<String>,
    /// The app that admitted the machine; `None` if a person did in the console.
    admitted_through: Option<String>,
    may_write: bool,
    /// Whether the page asks the person to confirm that the machine loses its access.
    confirms: bool,
    /// Whether the subscription has lapsed, so that no machine can be admitted.
    lapsed: bool,
}

pub(super) async fn show_machine(page: ConsolePage) -> Result<Response, ErrorPage> {
    let (app, namespace) = (page.app(), &page.namespace);
    let found = find_device(app, &namespace.to_ref(), page.param("id")).await?;
    // A machine that was removed from the list ("forgotten") is still found by its id for the log,
    // but has no page.
    let found = found.filter(|found| found.revision.is_some());
    let device = found.ok_or(ErrorPage::NotFound)?.device;
    let key = seen_key(&namespace.slug, &device.public_key.to_string());
    let visit = app.records.get_one(&key).await?;
    let visit = visit.map(|visit| visit.read::<LastSeen>()).transpose()?;
    let machine = Machine {
        // The visit is stored under the slug, which may have had another namespace, so the ids are
        // compared.
        visit: visit.filter(|visit| visit.namespace_id == namespace.id),
        device,
    };
    let device = &machine.device;
    let mut names = Names::read_users(app, namespace, device.decided_by.as_deref()).await?;
    names.add_apps(app, namespace, &device.client).await?;
    let current = namespace.current.as_ref().map(|current| current.release);
    let revokes = page.query.value("confirm") == Some("revoke");
    let template = MachinePage {
        shell: PageLayout::for_page(&page),
        csrf: page.form_token(),
        here: page.address(&format!("/machines/{}", device.device_id)),
        list_href: page.address("/machines"),
        audit_href: with_query(&page.address("/audit"), &[("target", &*device.device_id)]),
        name: device.name(),
        fingerprint: machine.fingerprint().to_string(),
        status: device.status,
        enrolled: format_minute(device.enrolled_at),
        last_seen: last_seen(&machine),
        held: held_text(machine.held_release(current)),
        decided_by: decided_by(&machine, &names),
        decided: device.decided_at.map(format_minute),
        admitted_through: device.client.as_ref().map(|id| names.app_name(id)),
        may_write: page.may_write(),
        // An outdated link asks for nothing: a machine without access has none to revoke.
        confirms: revokes && device.status == DeviceStatus::Active,
        lapsed: !namespace.subscription.is_live(page.app().clock.now()),
    };
    Ok(show_page(&template))
}

/// `POST /console/{slug}/machines/{id}`: admits, denies, revokes or forgets the machine.
pub(super) async fn decide_machine(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let (decision, outcome) = match form.required_field("change")? {
        "admit" => (Decision::Admit, Outcome::MachineAdmitted),
        "deny" => (Decision::Deny, Outcome::MachineDenied),
        "revoke" => (Decision::Revoke, Outcome::MachineRevoked),
        "forget" => (Decision::Forget, Outcome::MachineForgotten),
        _ => return Err(ErrorPage::FormMalformed),
    };
    decide_device(form.page.as_acting_user(), form.page.param("id"), decision).await?;
    // Redirects to the list, because a forgotten machine has no page any more.
    Ok(form.redirect_to("/machines", outcome))
}
