//! `/console/{slug}/apps`: lists the apps that people connected to a vault, and ends their access.

use askama::Template;
use axum::response::Response;

use super::difference::shown;
use super::guard::{ConsoleForm, ConsolePage};
use super::outcome::{Outcome, Unchanged};
use super::page::{ROWS_SHOWN, Shell, show as show_page};
use crate::admin::call::{Items, Page};
use crate::admin::clients::{apps, end_app, find_app};
use crate::admin::principal::Principal;
use crate::error::ErrorCode;
use crate::web::browser::ACCOUNT_PATH;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::{day, minute};
use vault_api::Client;

/// An app in the list.
struct Row {
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
    shell: Shell,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<String>,
    /// Address of the forms.
    here: String,
    may_write: bool,
    /// The app whose access the person is about to end.
    confirmed: Option<Row>,
    /// Address of the account page, which lists the browsers in which a person is signed in.
    account_href: String,
    csrf: String,
}

/// Shows the list of apps.
pub(super) async fn list(page: ConsolePage) -> Result<Response, ErrorPage> {
    let home = page.address("/apps");
    let after = page.after().map(str::to_owned);
    let listed = Page {
        limit: ROWS_SHOWN,
        after: after.clone(),
    };
    let Items { items, next } = apps(page.app(), &page.namespace.id, &listed).await?;
    let confirmed = match page.query.value("confirm") {
        // The confirmation leads to a form, which a person who may only read cannot send.
        Some(id) if page.may_write() => find_app(page.app(), &page.namespace.id, id).await?,
        _ => None,
    };
    let row = |app: Client| Row {
        id: app.id,
        name: app.name.as_deref().map(shown),
        hosts: app.redirect_hosts.iter().map(|host| shown(host)).collect(),
        connected: day(app.connected_at),
        used: app.last_used_at.map(minute),
        users: app.users,
    };
    let shown = AppsPage {
        shell: Shell::of(&page),
        rows: items.into_iter().map(row).collect(),
        next: next.map(|next| with_query(&home, &[("after", &next)])),
        first: after.map(|_| home.clone()),
        may_write: page.may_write(),
        confirmed: confirmed.map(row),
        account_href: page.app().config.public_url.prefix().to_owned() + ACCOUNT_PATH,
        here: home,
        csrf: page.form_token(),
    };
    Ok(show_page(&shown))
}

/// Ends the access of an app for every user of the vault.
pub(super) async fn end(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let by = Principal::of(form.page.acting(), &form.page.user);
    match end_app(&by, form.field("client")?).await {
        Ok(_) => Ok(form.back(Outcome::AppEnded)),
        // It may have ended in another tab. That is told on the page, since "not found" would be
        // about its address.
        Err(refusal) if refusal.code() == ErrorCode::ClientNotFound => {
            Ok(form.refused(Unchanged::AppEnded))
        }
        Err(refusal) => Err(refusal.into()),
    }
}
