//! `/console/{slug}/apps`: lists the apps that are connected to a vault, and ends their access.

use askama::Template;
use axum::response::Response;

use super::app_end::EndedApp;
use super::difference::printable_line;
use super::guard::ConsolePage;
use super::page::{PageLayout, ROWS_SHOWN, show_page};
use crate::admin::call::{Items, Page};
use crate::admin::clients::{find_app, read_apps_page};
use crate::web::browser::ACCOUNT_PATH;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_minute;
use vault_api::Client;
use vault_store::StoreError;

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
    here: String,
    may_write: bool,
    /// The app that the person is about to end, with what it made.
    confirmed: Option<EndedApp>,
    people_href: String,
    /// Address of the account page, which lists the browsers in which a person is signed in.
    account_href: String,
    csrf: String,
}

/// `GET /console/{slug}/apps`: shows the page, with a form for the app in `?confirm=` or `?made=`.
pub(super) async fn show_apps(page: ConsolePage) -> Result<Response, ErrorPage> {
    let home = page.address("/apps");
    let after = page.list_cursor().map(str::to_owned);
    let listed = Page {
        limit: ROWS_SHOWN,
        after: after.clone(),
    };
    let Items { items, next } = read_apps_page(page.app(), &page.namespace.id, &listed).await?;
    // Both parameters lead to a form, which a person without the right to write cannot send.
    let query = |name| page.query.value(name).filter(|_| page.may_write());
    let confirmed = match (query("confirm"), query("made")) {
        (Some(id), _) => read_ended_app(&page, id, true).await?,
        (None, Some(id)) => read_ended_app(&page, id, false).await?,
        (None, None) => None,
    };
    let row = |app: Client| AppRow {
        id: app.id,
        name: app.name.as_deref().map(printable_line),
        hosts: app
            .redirect_hosts
            .iter()
            .map(|host| printable_line(host))
            .collect(),
        connected: format_minute(app.connected_at),
        used: app.last_used_at.map(format_minute),
        users: app.users,
    };
    let template = AppsPage {
        shell: PageLayout::for_page(&page),
        rows: items.into_iter().map(row).collect(),
        next: next.map(|next| with_query(&home, &[("after", &next)])),
        first: after.map(|_| home.clone()),
        may_write: page.may_write(),
        confirmed,
        people_href: page.address("/people"),
        account_href: page.app().config.public_url.prefix().to_owned() + ACCOUNT_PATH,
        here: home,
        csrf: page.form_token(),
    };
    Ok(show_page(&template))
}

/// Reads an app and what it made. Returns `None` for an unknown app, and for one without access if
/// its access is to end.
async fn read_ended_app(
    page: &ConsolePage,
    id: &str,
    ends_access: bool,
) -> Result<Option<EndedApp>, StoreError> {
    match find_app(page.app(), &page.namespace.id, id).await? {
        Some(found) if found.is_connected || !ends_access => {
            EndedApp::read(page, found, ends_access).await.map(Some)
        }
        _ => Ok(None),
    }
}
