//! `/console/{slug}/releases`, `/drafts`, `/people`, `/apps`, `/audit` and `/namespace`: who sees
//! them, what they show, and what their forms do.

mod audit;
mod drafts;
mod people;
mod releases;
mod vault;

use vault_format::hash::Digest;
use vault_service::model::user::{Role, Scopes};
use vault_store::objects::Class;

use crate::admin::{Desk, reference};
use crate::common::{self, PASSWORD, Reply, Visitor};
use crate::console::{MAX_PAGE_BYTES, submit as send};

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
    let key = desk.acme.object(Class::Catalogs, sha256);
    desk.world.app.objects.delete(&key).await.unwrap();
}

/// The form of each page, with a field that changes something.
const FORMS: &[(&str, &[(&str, &str)])] = &[
    (
        "people",
        &[("email", "new@example.org"), ("role", "member")],
    ),
    ("apps", &[("client", "cli_00000000000000000000000000")]),
    ("namespace", &[("change", "delete"), ("slug", "acme")]),
];

#[tokio::test]
async fn a_form_needs_the_token_of_its_own_page() {
    let desk = crate::admin::desk().await;
    let mut owner = signed_in(&desk, crate::admin::ADA).await;
    let people = owner.get("/console/acme/people").await;
    let foreign = people.hidden("/console/acme/people", "csrf");
    for (page, fields) in FORMS {
        let path = format!("/console/acme/{page}");
        for csrf in ["", "x", foreign.as_str()] {
            if *page == "people" && csrf == foreign {
                continue;
            }
            let fields = [&[("csrf", csrf)], *fields].concat();
            let answer = owner.post(&path, &fields).await;
            assert_eq!(answer.page(), "403 This form has expired", "{path} {csrf}");
        }
    }
    assert_eq!(owner.get("/console/acme").await.status, 200);
    assert_eq!(desk.count("user.create done").await, 0);
}
