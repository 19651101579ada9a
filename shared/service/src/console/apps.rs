//! `/console/{slug}/apps`: lists the apps that people connected to a vault, and ends their access.

use askama::Template;
use axum::response::Response;

use super::difference::printable_line;
use super::guard::{ConsoleForm, ConsolePage};
use super::outcome::{Outcome, Unchanged};
use super::page::{PageLayout, ROWS_SHOWN, show_page};
use crate::admin::call::{Items, Page};
use crate::admin::clients::{end_app, find_app, read_apps_page};
use crate::admin::principal::Principal;
use crate::error::ErrorCode;
use crate::web::browser::ACCOUNT_PATH;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::{format_day, format_minute};
use vault_api::Client;

/// An app in the list.
struct AppRow {
    id: String,
    name: Option<String>,
    hosts: Vec<String>,
    connected: String,
    used: Option<String>,
    users: usize,
}

#[derive(Template)]
#[template(path = "console/apps.html")]
struct AppsPage {
    shell: PageLayout,
    rows: Vec<AppRow>,
    next: Option<String>,
    first: Option<String>,
    /// Address of the forms.
    here: String,
    may_write: bool,
    /// The app whose access the person is about to end.
    confirmed: Option<AppRow>,
    /// Address of the account page, which lists the browsers in which a person is signed in.
    account_href: String,
    csrf: String,
}

/// Shows the list of apps.
pub(super) async fn show_apps(page: ConsolePage) -> Result<Response, ErrorPage> {
    let home = page.address("/apps");
    let after = page.list_cursor().map(str::to_owned);
    let listed = Page {
        limit: ROWS_SHOWN,
        after: after.clone(),
    };
    let Items { items, next } = read_apps_page(page.app(), &page.namespace.id, &listed).await?;
    let confirmed = match page.query.value("confirm") {
        // The confirmation leads to a form, which a person who may only read cannot send.
        Some(id) if page.may_write() => find_app(page.app(), &page.namespace.id, id).await?,
        _ => None,
    };
    let row = |app: Client| AppRow {
        id: app.id,
        name: app.name.as_deref().map(printable_line),
        hosts: app
            .redirect_hosts
            .iter()
            .map(|host| printable_line(host))
            .collect(),
        connected: format_day(app.connected_at),
        used: app.last_used_at.map(format_minute),
        users: app.users,
    };
    let template = AppsPage {
        shell: PageLayout::for_page(&page),
        rows: items.into_iter().map(row).collect(),
        next: next.map(|next| with_query(&home, &[("after", &next)])),
        first: after.map(|_| home.clone()),
        may_write: page.may_write(),
        confirmed: confirmed.map(row),
        account_href: page.app().config.public_url.prefix().to_owned() + ACCOUNT_PATH,
        here: home,
        csrf: page.form_token(),
    };
    Ok(show_page(&template))
}

/// Ends the access of an app for every user of the vault.
pub(super) async fn end_access(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let by = Principal::from_user(form.page.as_acting_user(), &form.page.user);
    match end_app(&by, form.required_field("client")?).await {
        Ok(_) => Ok(form.redirect_back(Outcome::AppEnded)),
        // It may have ended in another tab. That is told on the page, since "not found" would be
        // about its address.
        Err(refusal) if refusal.code() == ErrorCode::ClientNotFound => {
            Ok(form.redirect_refused(Unchanged::AppEnded))
        }
        Err(refusal) => Err(refusal.into()),
    }
}
