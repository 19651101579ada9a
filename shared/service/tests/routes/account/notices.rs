//! What a person is told after signing in, and what the logs keep of sign-ins.

use serde_json::{Value, json};
use vault_service::accounts::bootstrap::{AccountReset, reset_account};
use vault_service::model::audit::Entry;
use vault_service::model::namespace::Kind;
use vault_service::model::session::sign_in_key;
use vault_service::model::user::{Role, Scopes};

use super::{about, account_page, invited, passkeys};
use crate::admin::{ADA, BOB, Desk, EVE, empty_desk, reference, token};
use crate::common::{self, OWNER, OWNER_PASSWORD, PASSWORD, Visitor};

const RESET: &str = "/admin/vaults/acme/pin/reset";

/// The lines of the notice after a sign-in, without the first one.
async fn notice(desk: &Desk, email: &str) -> Vec<String> {
    let password = if email == OWNER {
        OWNER_PASSWORD
    } else {
        PASSWORD
    };
    let (_, page) = account_page(desk, email, password).await;
    let Some(note) = page.body.split("<div class=\"note\" role=\"note\">").nth(1) else {
        return Vec::new();
    };
    let note = note.split("</div>").next().unwrap();
    let lines = note.split("<p>").skip(1);
    let mut lines: Vec<_> = lines.map(|line| line.replace("</p>", "")).collect();
    assert!(
        lines[0].starts_with("Your last sign-in was on"),
        "{lines:?}"
    );
    lines.remove(0);
    lines
}

async fn reset_pin(desk: &Desk, token: &str) {
    let body = json!({ "slug": "acme" });
    let reset = desk.ask(token, "POST", RESET, Some(&body)).await;
    assert_eq!(reset.status, 200);
}

/// The notice names what somebody else with the password would have done, what takes the vault over
/// first.
#[tokio::test]
async fn an_owner_sees_after_signing_in_what_happened_since() {
    let mut desk = empty_desk().await;
    let (app, acme) = (desk.world.app.clone(), reference(&desk.acme));
    account_page(&desk, ADA, PASSWORD).await;
    desk.world.clock.advance(1);
    account_page(&desk, ADA, PASSWORD).await;
    desk.world.clock.advance(59);
    let carol = "carol@example.org";
    common::proven(&app, carol).await;
    let bob = common::member(&app, BOB, &acme, Role::Member, Scopes::ALL).await;
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    invited(&desk, &desk.owner, carol, "role:owner").await;
    common::answer_invitation(&app, carol, "acme", "accept").await;
    let role = json!({ "role": "role:owner" });
    let path = format!("/admin/users/{}/role", bob.id);
    assert_eq!(
        desk.ask(&desk.owner, "PUT", &path, Some(&role))
            .await
            .status,
        200
    );
    reset_pin(&desk, &desk.owner).await;
    let day = "21 Nov 2026, 02:01 UTC";
    let wanted = [
        format!("acme: the pin was reset on {day}"),
        format!("acme: a new owner on {day}"),
        format!("acme: a new owner on {day}"),
        format!("acme: a new app, “An app”, on {day}"),
    ];
    // Of this very second, a sign-in comes before and after.
    let (_, page) = account_page(&desk, carol, PASSWORD).await;
    assert!(page.body.contains(&wanted[0]), "{}", page.body);
    assert_eq!(notice(&desk, ADA).await, wanted);
    desk.world.clock.advance(60);
    assert_eq!(notice(&desk, ADA).await, wanted, "since the sign-in before");
    desk.world.clock.advance(60);
    assert_eq!(notice(&desk, ADA).await, [""; 0]);
    // A member is told nothing about the vault.
    common::member(&app, EVE, &acme, Role::Member, Scopes::ALL).await;
    account_page(&desk, EVE, PASSWORD).await;
    let (_, page) = account_page(&desk, EVE, PASSWORD).await;
    assert!(!page.body.contains("last sign-in"), "{}", page.body);
}

/// The log of a vault has the second factors of all its people, and each is told of their own.
#[tokio::test]
async fn nobody_is_told_of_another_person_s_second_factor() {
    let desk = empty_desk().await;
    let acme = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &acme, Role::Owner, Scopes::ALL).await;
    desk.world.clock.advance(60);
    account_page(&desk, ADA, PASSWORD).await;
    desk.world.clock.advance(60);
    passkeys::with_passkey(&desk, BOB).await;
    assert_eq!(desk.count("account.passkey-added done").await, 1);
    assert_eq!(notice(&desk, ADA).await, [""; 0]);
    passkeys::with_passkey(&desk, ADA).await;
    desk.world.clock.advance(60);
    let told = notice(&desk, ADA).await;
    assert!(
        told[0].contains("a passkey was added to your account"),
        "{told:?}"
    );
}

/// Whoever fills a log, as a member can with refused requests, hides nothing in it.
#[tokio::test]
async fn what_fills_a_log_does_not_hide_what_happened_after_it() {
    let desk = empty_desk().await;
    let acme = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &acme, Role::Owner, Scopes::ALL).await;
    account_page(&desk, ADA, PASSWORD).await;
    desk.world.clock.advance(60);
    desk.happen("usr_a", "device.deny", 1500).await;
    let bobs = token(&desk.world, BOB, "acme", Scopes::ALL).await;
    reset_pin(&desk, &bobs).await;
    let told = notice(&desk, ADA).await;
    assert!(told[0].starts_with("acme: the pin was reset"), "{told:?}");
    // Where there is too much to look at, it says so.
    desk.happen("usr_a", "device.deny", 10_001).await;
    let more = "More happened in acme than is looked at here: read its audit log.";
    assert_eq!(notice(&desk, ADA).await.last().unwrap(), more);
}

/// Many apps have one line, behind what counts more.
#[tokio::test]
async fn new_apps_are_counted_behind_what_takes_a_vault_over() {
    let desk = empty_desk().await;
    desk.world.clock.advance(1);
    account_page(&desk, ADA, PASSWORD).await;
    desk.world.clock.advance(60);
    let home = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::ALL).await;
    let (mut bob, _) = account_page(&desk, BOB, PASSWORD).await;
    let app = &desk.world.app;
    for _ in 0..12 {
        let client = common::register(app, common::CALLBACK).await;
        let scope = [("scope", "read")];
        let address = common::authorize(&client, common::CALLBACK, &scope);
        // An app that is allowed again is the same app.
        for _ in 0..2 {
            let page = bob.get(&address).await;
            bob.allow(&page, "acme", Scopes::READ).await;
            assert!(bob.get(&address).await.returned("code").is_some());
        }
    }
    reset_pin(&desk, &desk.owner).await;
    let day = "21 Nov 2026, 02:01 UTC";
    let wanted = [
        format!("acme: the pin was reset on {day}"),
        format!("acme: 12 new apps, the last “An app” on {day}"),
    ];
    assert_eq!(notice(&desk, ADA).await, wanted);
}

/// A list that is cut says so.
#[tokio::test]
async fn more_events_than_are_listed_are_told_as_more() {
    let desk = empty_desk().await;
    account_page(&desk, ADA, PASSWORD).await;
    desk.world.clock.advance(60);
    for _ in 0..13 {
        reset_pin(&desk, &desk.owner).await;
    }
    let told = notice(&desk, ADA).await;
    assert_eq!(told.len(), 13);
    assert_eq!(told[12], "There is more in the audit log.");
}

#[tokio::test]
async fn an_owner_of_many_vaults_is_told_that_not_all_were_looked_at() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    for n in 1..=5 {
        let more = desk
            .world
            .namespace(&format!("more-{n}"), Kind::Hosted)
            .await;
        common::member(app, ADA, &reference(&more), Role::Owner, Scopes::ALL).await;
    }
    let told = notice(&desk, ADA).await;
    let wanted = "Only 5 of your 6 vaults are looked at here: read the audit logs of the others.";
    assert_eq!(told.last().unwrap(), wanted);
}

#[tokio::test]
async fn an_operator_is_told_of_new_operators_and_their_apps() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    desk.world.clock.advance(60);
    assert_eq!(about(&desk, &operator, ADA, "grant").await.status, 200);
    let ada = (ADA, PASSWORD);
    common::operator_token_of(&desk.world.app, ada, Scopes::READ).await;
    let told = notice(&desk, OWNER).await;
    for (line, what) in told.iter().zip([
        "the service: a new operator on 21 Nov 2026",
        // The operator's own is one of them.
        "the service: 2 new apps, the last “An app” on 21 Nov 2026",
    ]) {
        assert!(line.starts_with(what), "{told:?}");
    }
}

/// The log of the service, by its route.
async fn service_log(desk: &Desk, query: &str) -> Vec<Entry> {
    let operator = desk.operator().await;
    let path = format!("/admin/operator/audit?{query}");
    let log = desk.ask(&operator, "GET", &path, None).await;
    assert_eq!(log.status, 200, "{log:?}");
    let items = log.json()["items"].as_array().unwrap().clone();
    let read = |item: Value| serde_json::from_value(item).unwrap();
    items.into_iter().map(read).collect()
}

/// What operators do, and what accounts do that belong to no vault, has an entry that operators can
/// read.
#[tokio::test]
async fn operators_read_the_log_of_the_service() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let bob = common::proven(app, BOB).await;
    let owner = common::account(app, OWNER).await;
    for (email, password) in [
        (BOB, PASSWORD),
        (BOB, "not the password"),
        (BOB, "nor this one"),
        ("nobody@example.org", PASSWORD),
    ] {
        let mut visitor = Visitor::new(app);
        let page = visitor.get("/account").await;
        visitor.log_in(&page, email, password).await;
    }
    let operator = desk.operator().await;
    assert_eq!(about(&desk, &operator, BOB, "disable").await.status, 200);
    let path = "/admin/operator/namespaces/other/suspend";
    assert_eq!(desk.ask(&operator, "POST", path, None).await.status, 200);
    let path = "/admin/operator/namespaces/nothing/suspend";
    assert_eq!(desk.ask(&operator, "POST", path, None).await.status, 404);
    let issuer = "https://vault.example";
    let reset = reset_account(app, &bob.email, issuer).await;
    assert!(matches!(reset.unwrap(), AccountReset::Link(_)));
    let (bobs, operators) = (bob.id.as_str(), owner.id.as_str());
    for (query, wanted) in [
        (
            "action=account.sign-in",
            vec![(bobs, "done"), (bobs, "wrong_password")],
        ),
        ("action=account.disable", vec![(operators, "done")]),
        ("action=account.reset", vec![("server", "done")]),
        (
            "action=namespace.suspend",
            vec![(operators, "done"), (operators, "not_found")],
        ),
    ] {
        let log = service_log(&desk, query).await;
        let mut found: Vec<_> = log
            .iter()
            .map(|entry| (entry.actor.as_str(), entry.outcome.as_str()))
            .collect();
        found.sort_unstable_by_key(|(_, outcome)| *outcome);
        assert_eq!(found, wanted, "{query}");
    }
    let by_operator = service_log(&desk, &format!("actor={operators}&limit=100")).await;
    assert!(
        by_operator
            .iter()
            .any(|entry| entry.action == "oauth.consent")
    );
    let all = service_log(&desk, "limit=100").await;
    assert!(
        !format!("{all:?}").contains("nobody@example.org"),
        "{all:?}"
    );
    // Owners of a vault read there what an operator did to it.
    let entries = desk.entries(&desk.other).await;
    let suspended = entries
        .iter()
        .find(|entry| entry.action == "namespace.suspend");
    assert_eq!(suspended.unwrap().actor, operators);
}

/// When and from where an account signed in is not kept for ever, and ends with the account.
#[tokio::test]
async fn the_last_sign_in_is_forgotten_with_the_account_and_after_400_days() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let key = sign_in_key(&common::proven(app, BOB).await.id);
    account_page(&desk, BOB, PASSWORD).await;
    let held = app.records.get_one(&key).await.unwrap().unwrap();
    let until = desk.world.now().plus_days(400);
    assert_eq!(held.expires_at, Some(until));
    let operator = desk.operator().await;
    let path = format!("/admin/operator/accounts/{BOB}");
    assert_eq!(desk.ask(&operator, "DELETE", &path, None).await.status, 200);
    assert_eq!(app.records.get_one(&key).await.unwrap(), None);
}
