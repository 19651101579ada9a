//! `POST /admin/confirmations` and `POST /admin/operator/confirmations`: one confirmation for the
//! acts of one command.

use serde_json::{Value, json};
use vault_service::model::permit::permits_partition;
use vault_service::model::user::{Role, Scopes};

use super::permits::{NEEDED, confirm, decide, open};
use super::{ADA, BOB, CY, Desk, EVE, desk, empty_desk, reference, token};
use crate::common::{self, OWNER, OWNER_PASSWORD, PASSWORD};
use crate::support::Answer;

const PATH: &str = "/admin/confirmations";
const OPERATORS_PATH: &str = "/admin/operator/confirmations";

async fn ask_for(desk: &Desk, token: &str, acts: Value) -> Answer {
    let body = json!({ "acts": acts });
    desk.ask_once(token, "POST", PATH, Some(&body)).await
}

/// The path of the page of a confirmation.
fn page_of(asked: &Answer) -> String {
    assert_eq!(asked.status, 201, "{asked:?}");
    let url = asked.json()["url"].as_str().unwrap().to_owned();
    url["https://vault.example".len()..].to_owned()
}

#[tokio::test]
async fn one_confirmation_opens_several_acts_and_each_once() {
    let desk = desk().await;
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    let bob = common::member(app, BOB, &home, Role::Member, Scopes::READ).await;
    let cy = common::member(app, CY, &home, Role::Member, Scopes::READ).await;
    let acts = json!([
        { "act": "remove_user", "user": bob.id },
        { "act": "change_role", "user": cy.id, "role": "role:publisher" },
        { "act": "invite_owner", "email": "new@example.org" },
    ]);
    let asked = ask_for(&desk, &desk.owner, acts.clone()).await;
    assert_eq!(asked.json()["state"], "asked");
    let (mut visitor, page) = open(&desk, &page_of(&asked), (ADA, PASSWORD)).await;
    for text in [
        "Confirm these 3 changes?",
        "I want these 3 changes to happen",
        "Remove bob@example.org from acme.",
        "Make cy@example.org a publisher of acme.",
        "Invite new@example.org as an owner of acme.",
        "exactly these, each once",
    ] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    let remove = async || {
        let path = format!("/admin/users/{}", bob.id);
        desk.ask_once(&desk.owner, "DELETE", &path, None).await
    };
    let publisher = async || {
        let (path, body) = (
            format!("/admin/users/{}/role", cy.id),
            json!({ "role": "role:publisher" }),
        );
        desk.ask_once(&desk.owner, "PUT", &path, Some(&body)).await
    };
    let invite = async || {
        let body = json!({ "email": "new@example.org", "role": "role:owner" });
        desk.ask_once(&desk.owner, "POST", "/admin/users", Some(&body))
            .await
    };
    assert_eq!(remove().await.short(), NEEDED);
    assert_eq!(
        decide(&mut visitor, &page, "confirm").await,
        "200 Confirmed"
    );
    // A command that is run again goes on.
    let again = ask_for(&desk, &desk.owner, acts).await;
    assert_eq!(again.json()["id"], asked.json()["id"]);
    assert_eq!(again.json()["state"], "confirmed");
    assert_eq!(publisher().await.status, 200);
    assert_eq!(publisher().await.short(), NEEDED);
    assert_eq!(remove().await.status, 200);
    assert_eq!(invite().await.status, 201);
    assert_eq!(invite().await.short(), NEEDED);
    // The log says it in the words of the page.
    let entries = desk.entries(&desk.acme).await;
    let is_logged = |action: &str, member: &str, wanted: &Value| {
        let of_action = entries.iter().filter(|entry| entry.action == action);
        let mut changes = of_action.filter_map(|entry| entry.after.as_ref());
        changes.any(|after| after[member] == *wanted)
    };
    let sentences = json!([
        "Remove bob@example.org from acme.",
        "Make cy@example.org a publisher of acme.",
        "Invite new@example.org as an owner of acme.",
    ]);
    assert!(is_logged("confirmation.ask", "acts", &sentences));
    assert!(is_logged("confirmation.confirm", "acts", &sentences));
    assert!(is_logged("confirmation.use", "act", &sentences[0]));
}

/// Each act is judged as by its route before the person is asked, and nothing of it is done.
#[tokio::test]
async fn an_app_asks_for_nothing_that_it_may_not_do() {
    let desk = desk().await;
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    let bob = common::member(app, BOB, &home, Role::Member, Scopes::ALL).await;
    let members = token(&desk.world, BOB, "acme", Scopes::ALL).await;
    let readers = token(&desk.world, ADA, "acme", Scopes::READ).await;
    let users = desk.get("/admin/users").await.json();
    let mut users = users["items"].as_array().unwrap().iter();
    let ada = &users.find(|user| user["email"] == ADA).unwrap()["id"];
    let remove = json!({ "act": "remove_user", "user": bob.id });
    for (token, acts, wanted) in [
        (&members, json!([remove]), "403 owner_required"),
        (&readers, json!([remove]), "403 insufficient_scope"),
        (&desk.owner, json!([]), "422 parameter_invalid"),
        (
            &desk.owner,
            json!([remove, remove]),
            "422 parameter_invalid",
        ),
        (
            &desk.owner,
            json!(vec![&remove; 21]),
            "422 parameter_invalid",
        ),
        (&desk.owner, json!([{ "act": "x" }]), "400 json_invalid"),
        (
            &desk.owner,
            json!([{ "act": "reset_pin", "user": bob.id }]),
            "400 json_invalid",
        ),
        (
            &desk.owner,
            json!([{ "act": "delete_account", "email": BOB }]),
            "400 json_invalid",
        ),
        (
            &desk.owner,
            json!([remove, { "act": "remove_user", "user": "usr_0" }]),
            "404 user_not_found",
        ),
        (
            &desk.owner,
            json!([{ "act": "change_role", "user": ada, "role": "role:member" }]),
            "409 last_owner",
        ),
        (
            &desk.owner,
            json!([{ "act": "change_role", "user": bob.id, "role": "owner" }]),
            "422 role_unknown",
        ),
        (
            &desk.owner,
            json!([{ "act": "create_code", "uses": 10_001 }]),
            "422 parameter_invalid",
        ),
        (
            &desk.owner,
            json!([{ "act": "create_code", "uses": 50, "name": "\u{7}" }]),
            "400 hostname_invalid",
        ),
    ] {
        let refused = ask_for(&desk, token, acts.clone()).await;
        assert_eq!(refused.short(), wanted, "{acts}");
    }
    for email in [ADA, BOB] {
        let partition = permits_partition(&common::account(app, email).await.id);
        let permits = app.records.list_page(&partition, "", None, 2).await;
        assert!(permits.unwrap().is_empty(), "{email}");
    }
}

/// What needs no permit, or has one already, is not done by asking.
#[tokio::test]
async fn judging_an_act_writes_nothing() {
    let desk = desk().await;
    let invited = desk
        .post("/admin/users", &json!({ "email": "waits@example.org" }))
        .await;
    let waits = invited.json()["id"].clone();
    let remove = json!({ "act": "remove_user", "user": waits });
    let code = json!({ "act": "create_code", "uses": 2 });
    let before = desk.get("/admin/users").await.json();
    let asked = ask_for(&desk, &desk.owner, json!([remove, code])).await;
    assert_eq!(asked.status, 201);
    let body = json!({ "uses": 50 });
    let codes = "/admin/vaults/acme/enrolment-codes";
    let many = desk.ask_once(&desk.owner, "POST", codes, Some(&body)).await;
    confirm(&desk, &many, (ADA, PASSWORD)).await;
    let many = json!([{ "act": "create_code", "uses": 50 }]);
    assert_eq!(ask_for(&desk, &desk.owner, many).await.status, 201);
    assert_eq!(desk.get("/admin/users").await.json(), before);
    assert_eq!(desk.get(codes).await.json()["items"], json!([]));
}

#[tokio::test]
async fn an_operator_confirms_several_accounts_at_once() {
    let desk = empty_desk().await;
    desk.stranger().await;
    common::proven(&desk.world.app, BOB).await;
    let operator = desk.operator().await;
    let ask = async |acts: Value| {
        let body = json!({ "acts": acts });
        desk.ask_once(&operator, "POST", OPERATORS_PATH, Some(&body))
            .await
    };
    let of = |act: &str, email: &str| json!({ "act": act, "email": email });
    for (acts, wanted) in [
        (
            json!([of("delete_account", "nobody@example.org")]),
            "404 account_not_found",
        ),
        (json!([of("delete_account", OWNER)]), "409 last_operator"),
        (json!([of("remove_user", BOB)]), "400 json_invalid"),
    ] {
        let refused = ask(acts.clone()).await;
        assert_eq!(refused.short(), wanted, "{acts}");
    }
    let acts = [
        of("reset_account", BOB),
        of("grant_operator", "no@example.org"),
    ];
    let refused = ask(json!(acts)).await.json();
    let says = "Act 2, no@example.org: there is no account with this address.";
    assert_eq!(refused["detail"], says, "{refused}");
    let asked = ask(json!([of("delete_account", EVE), of("reset_account", BOB)])).await;
    let (mut visitor, page) = open(&desk, &page_of(&asked), (OWNER, OWNER_PASSWORD)).await;
    assert!(
        page.body.contains("Confirm these 2 changes?"),
        "{}",
        page.body
    );
    assert_eq!(
        decide(&mut visitor, &page, "confirm").await,
        "200 Confirmed"
    );
    for (method, path) in [
        ("DELETE", format!("/admin/operator/accounts/{EVE}")),
        ("POST", format!("/admin/operator/accounts/{BOB}/reset")),
    ] {
        let done = desk.ask_once(&operator, method, &path, None).await;
        assert_eq!(done.short(), "200", "{path}");
    }
    // An owner's app asks for nothing here.
    let body = json!({ "acts": [of("delete_account", BOB)] });
    let refused = desk
        .ask_once(&desk.owner, "POST", OPERATORS_PATH, Some(&body))
        .await;
    assert_eq!(refused.short(), "403 operator_required");
}
