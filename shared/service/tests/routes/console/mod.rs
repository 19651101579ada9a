//! `/console`: what people of each role see and change in a browser.

mod apps;
mod audit;
mod drafts;
mod machines;
mod people;
mod releases;
mod rights;
mod skills;
mod vault;

use vault_format::hash::Digest;
use vault_service::model::user::{Role, Scopes};
use vault_store::objects::Class;

use crate::admin::{Desk, reference};
use crate::common::{self, PASSWORD, Reply, Visitor};

/// Maximum number of bytes of a page.
pub const MAX_PAGE_BYTES: usize = 100 * 1024;

/// A browser in which this person is signed in, on a page of the console.
async fn at<'a>(desk: &'a Desk, email: &str, path: &str) -> (Visitor<'a>, Reply) {
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get(path).await;
    assert_eq!(page.page(), "200 Sign in", "{}", page.body);
    let signed_in = visitor.log_in(&page, email, PASSWORD).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.body);
    assert_eq!(signed_in.header("location"), path);
    let page = visitor.get(path).await;
    (visitor, page)
}

/// A browser in which a person of `acme` is signed in.
async fn signed_in<'a>(desk: &'a Desk, email: &str) -> Visitor<'a> {
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/console/acme").await;
    let back = visitor.log_in(&page, email, PASSWORD).await;
    assert_eq!(back.status, 303, "{}", back.body);
    visitor
}

/// A new person of `acme`, signed in.
async fn person<'a>(desk: &'a Desk, email: &str, role: Role) -> Visitor<'a> {
    let home = reference(&desk.acme);
    common::member(&desk.world.app, email, &home, role, Scopes::ALL).await;
    signed_in(desk, email).await
}

/// The path and query of a URL of the service.
fn below<'u>(desk: &Desk, url: &'u str) -> &'u str {
    let origin = desk.world.app.config.public_url.origin();
    url.strip_prefix(origin).unwrap()
}

/// Opens a page that must be there, and small.
async fn open(visitor: &mut Visitor<'_>, path: &str) -> Reply {
    let page = visitor.get(path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    assert!(
        page.body.len() < MAX_PAGE_BYTES,
        "{path}: {}",
        page.body.len()
    );
    assert!(!page.body.contains("<script"), "{path}: {}", page.body);
    page
}

/// Removes the catalog of a release from the object store.
async fn lose_catalog(desk: &Desk, release: u64) {
    let address = format!("/admin/vaults/acme/releases/{release}");
    let shown = desk.get(&address).await.json();
    let sha256: Digest = shown["sha256"].as_str().unwrap().parse().unwrap();
    let key = desk.acme.object_key(Class::Catalogs, sha256);
    desk.world.app.objects.delete_object(&key).await.unwrap();
}

/// Sends the form of a page that goes to `path`, with the token of the page and these fields.
pub async fn submit(
    visitor: &mut Visitor<'_>,
    page: &Reply,
    path: &str,
    more: &[(&str, &str)],
) -> Reply {
    let csrf = page.hidden(path, "csrf");
    let fields = [&[("csrf", csrf.as_str())], more].concat();
    visitor.post(path, &fields).await
}

/// Sends a form of a dangerous act, and confirms it on the page that follows.
pub async fn submit_confirmed(
    visitor: &mut Visitor<'_>,
    page: &Reply,
    path: &str,
    more: &[(&str, &str)],
) -> Reply {
    let asked = submit(visitor, page, path, more).await;
    assert_eq!(asked.status, 303, "{}", asked.body);
    let confirm = asked.header("location").to_owned();
    assert!(confirm.contains("/confirm/cnf_"), "{confirm}");
    let page = open(visitor, &confirm).await;
    assert_eq!(page.heading(), "Confirm this?");
    submit(
        visitor,
        &page,
        &confirm,
        &[("decision", "confirm"), ("sure", "yes")],
    )
    .await
}

/// Does the same, and opens the page that it leads to.
async fn send(visitor: &mut Visitor<'_>, page: &Reply, path: &str, more: &[(&str, &str)]) -> Reply {
    let answer = submit(visitor, page, path, more).await;
    assert_eq!(answer.status, 303, "{}", answer.body);
    visitor.get(answer.header("location")).await
}

/// The sentence about what a form has done.
fn done(page: &Reply) -> &str {
    notice(page, "<p class=\"note good\" role=\"status\">")
}

/// The sentence about why a form has done nothing.
pub fn refused(page: &Reply) -> &str {
    notice(page, "<p class=\"note stop\" role=\"alert\">")
}

fn notice<'r>(page: &'r Reply, start: &str) -> &'r str {
    let rest = page.body.split(start).nth(1);
    let rest = rest.unwrap_or_else(|| panic!("no notice: {}", page.body));
    rest.split("</p>").next().unwrap()
}
