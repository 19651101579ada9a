//! `/console/{slug}/apps`: ending an app with what it made.

use serde_json::{Value, json};
use vault_service::model::user::{Role, Scopes};

use super::{done, open, send, signed_in};
use crate::account::account_page;
use crate::admin::{ADA, BOB, Desk, desk, reference};
use crate::common::{self, PASSWORD, Reply, Tokens};
use crate::support::key;

const APPS: &str = "/console/acme/apps";

/// An app of a second owner, with a code, a machine that the code admitted, and an invitation.
struct Maker {
    app: Tokens,
    code: Value,
    machine: String,
    invitation: String,
}

async fn maker(desk: &Desk) -> Maker {
    let home = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &home, Role::Owner, Scopes::ALL).await;
    let app = common::tokens(&desk.world.app, (BOB, PASSWORD), "acme", Scopes::ALL).await;
    let post = async |path: &str, body: Value| {
        let answer = desk.ask(&app.access, "POST", path, Some(&body)).await;
        assert_eq!(answer.status, 201, "{path}");
        answer.json()
    };
    let code = post("/admin/vaults/acme/enrolment-codes", json!({ "uses": 5 })).await;
    let invited = post("/admin/users", json!({ "email": "guest@example.org" })).await;
    let machine = enrol(desk, 1, &code).await.1;
    Maker {
        code,
        machine,
        invitation: invited["id"].as_str().unwrap().to_owned(),
        app,
    }
}

/// Short answer and id of a machine that enrols with a code.
async fn enrol(desk: &Desk, n: u8, code: &Value) -> (String, String) {
    let name = format!("ci-{n}");
    let body = json!({ "public_key": key(n).public(), "hostname": name, "code": code["code"] });
    let answer = desk
        .world
        .post_devices(&key(n), "acme", &body.to_string())
        .await;
    let id = answer.json()["device_id"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.short(), id)
}

/// The boxes of a page, with whether they are ticked.
fn boxes(page: &Reply) -> Vec<(String, bool)> {
    let boxes = page.body.split("name=\"made\" value=\"").skip(1);
    let boxes = boxes.map(|rest| {
        let (value, rest) = rest.split_once('"').unwrap();
        (value.to_owned(), rest.starts_with(" checked"))
    });
    boxes.collect()
}

#[tokio::test]
async fn the_page_of_an_app_lists_what_it_made_and_ends_what_is_ticked() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, &format!("{APPS}?confirm={}", made.app.client)).await;
    assert!(
        page.heading().starts_with("End the access of"),
        "{}",
        page.body
    );
    let code = made.code["id"].as_str().unwrap();
    let wanted = [
        (code, true),
        (&*made.machine, false),
        (&*made.invitation, false),
    ];
    assert_eq!(
        boxes(&page),
        wanted.map(|(id, ticked)| (id.to_owned(), ticked))
    );
    let shown = page.hidden(APPS, "shown_codes");
    let fields = [
        ("client", made.app.client.as_str()),
        ("change", "access"),
        ("shown_codes", &shown),
        ("made", code),
        ("made", &made.machine),
    ];
    let page = send(&mut owner, &page, APPS, &fields).await;
    assert!(done(&page).starts_with("The access of the app has ended"));
    // What goes on is shown, and ends by the same page.
    assert!(page.heading().starts_with("What "), "{}", page.body);
    assert_eq!(boxes(&page), [(made.invitation.clone(), false)]);
    assert_eq!(
        enrol(&desk, 2, &made.code).await.0,
        "403 enrolment_code_invalid"
    );
    let path = format!("/admin/vaults/acme/devices/{}/admit", made.machine);
    assert_eq!(
        desk.post(&path, &json!({})).await.short(),
        "409 device_state"
    );
    let fields = [
        ("client", made.app.client.as_str()),
        ("change", "made"),
        ("made", &made.invitation),
    ];
    let page = send(&mut owner, &page, APPS, &fields).await;
    assert_eq!(done(&page), "What was ticked has ended.");
    let users = desk.get("/admin/users").await.json().to_string();
    assert!(!users.contains("guest@example.org"));
}

#[tokio::test]
async fn a_code_that_is_not_ticked_goes_on() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, &format!("{APPS}?confirm={}", made.app.client)).await;
    let shown = page.hidden(APPS, "shown_codes");
    let fields = [
        ("client", made.app.client.as_str()),
        ("change", "access"),
        ("shown_codes", &shown),
    ];
    send(&mut owner, &page, APPS, &fields).await;
    assert_eq!(enrol(&desk, 2, &made.code).await.0, "201");
    // An id of another vault's code or of nothing changes nothing.
    let codes = desk.get("/admin/vaults/acme/enrolment-codes").await.json();
    assert_eq!(codes["items"][0]["client_id"], made.app.client);
}

/// The person's own page ends the app at once, and leads to what it made.
#[tokio::test]
async fn the_account_page_leads_to_what_an_ended_app_made() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let (mut bob, page) = account_page(&desk, BOB, PASSWORD).await;
    let grant = page.hidden("/account/apps", "grant");
    let csrf = page.hidden("/account/apps", "csrf");
    let fields = [("csrf", csrf.as_str()), ("grant", &grant)];
    let back = bob.post("/account/apps", &fields).await;
    let list = format!("{APPS}?made={}", made.app.client);
    assert_eq!((back.status, back.header("location")), (303, &*list));
    let answer = desk
        .ask(&made.app.access, "GET", "/admin/vaults", None)
        .await;
    assert_eq!(answer.short(), "401 token_invalid");
    let page = open(&mut bob, &list).await;
    // The code has ended with the consent of its app.
    let wanted = [&made.machine, &made.invitation].map(|id| (id.clone(), false));
    assert_eq!(boxes(&page), wanted);
}

#[tokio::test]
async fn pages_of_machines_codes_and_people_name_the_app() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let mut owner = signed_in(&desk, ADA).await;
    for path in [
        format!("/console/acme/machines/{}", made.machine),
        "/console/acme/machines/codes".to_owned(),
        format!("/console/acme/people/{}", made.invitation),
    ] {
        let page = open(&mut owner, &path).await;
        let named = format!("the app “An app” ({})", made.app.client);
        assert!(page.body.contains(&named), "{path}: {}", page.body);
    }
}
