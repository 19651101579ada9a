//! `/console/{slug}/releases`, `/drafts`, `/people`, `/apps`, `/audit` and `/namespace`: who sees
//! them, what they show, and what their forms do.

mod audit;
mod drafts;
mod people;
mod releases;
mod vault;

use vault_service::model::user::{Role, Scopes};

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

/// The pages, and the least role that opens them.
const PAGES: &[(&str, Role)] = &[
    ("releases", Role::Publisher),
    ("drafts", Role::Publisher),
    ("people", Role::Owner),
    ("apps", Role::Owner),
    ("audit", Role::Owner),
    ("audit.jsonl", Role::Owner),
    ("audit.csv", Role::Owner),
    ("export.jsonl", Role::Owner),
    ("namespace", Role::Owner),
];

#[tokio::test]
async fn a_page_opens_for_its_role_and_explains_itself_to_others() {
    let desk = crate::admin::desk().await;
    desk.stranger().await;
    let mut owner = signed_in(&desk, crate::admin::ADA).await;
    let mut publisher = person(&desk, crate::admin::CY, Role::Publisher).await;
    let mut member = person(&desk, crate::admin::BOB, Role::Member).await;
    let mut stranger = signed_in(&desk, crate::admin::EVE).await;
    for (page, least) in PAGES {
        let path = format!("/console/acme/{page}");
        assert_eq!(owner.get(&path).await.status, 200, "{path}");
        let publishes = if *least == Role::Publisher { 200 } else { 403 };
        assert_eq!(publisher.get(&path).await.status, publishes, "{path}");
        let refused = member.get(&path).await;
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.body.contains("ask an owner"), "{}", refused.body);
        assert_eq!(stranger.get(&path).await.status, 404, "{path}");
    }
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
