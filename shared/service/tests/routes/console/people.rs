//! The people and apps of a vault in a browser.

use serde_json::json;
use vault_service::model::user::{Role, Scopes};
use vault_store::records::{When, Write};

use super::{open, refused, signed_in, submit, submit_confirmed};
use crate::admin::{ADA, BOB, Desk, desk, reference};
use crate::common::{self, PASSWORD};

const PEOPLE: &str = "/console/acme/people";

/// The user of this address as the routes show it.
async fn user(desk: &Desk, email: &str) -> serde_json::Value {
    let listed = desk.get("/admin/users").await.json();
    let mut items = listed["items"].as_array().unwrap().iter();
    let found = items.rfind(|item| item["email"] == email);
    found.cloned().unwrap_or(serde_json::Value::Null)
}

#[tokio::test]
async fn an_owner_invites_a_person_and_withdraws_the_invitation() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, PEOPLE).await;
    assert!(page.body.contains("<h2>Keys</h2>"), "{}", page.body);
    let new = "new+<b>@example.org";
    let odd = submit(
        &mut owner,
        &page,
        PEOPLE,
        &[("email", new), ("role", "member")],
    )
    .await;
    assert_eq!(
        odd.header("location"),
        format!("{PEOPLE}?refused=email_invalid")
    );
    let new = "new@example.org";
    let fields = [
        ("email", new),
        ("role", "publisher"),
        ("scope", "read"),
        ("scope", "write"),
    ];
    let back = submit(&mut owner, &page, PEOPLE, &fields).await;
    assert_eq!(
        back.header("location"),
        format!("{PEOPLE}?done=person-invited")
    );
    let invited = user(&desk, new).await;
    assert_eq!(
        (&invited["state"], &invited["role"]),
        (&json!("invited"), &json!("role:publisher"))
    );
    assert_eq!(invited["scopes"], json!(["read", "write"]));

    // An invitation needs no fresh sign-in to be withdrawn.
    desk.world.clock.advance(301);
    let path = format!("{PEOPLE}/{}", invited["id"].as_str().unwrap());
    let page = open(&mut owner, &path).await;
    let back = submit(&mut owner, &page, &path, &[("change", "remove")]).await;
    assert_eq!(
        back.header("location"),
        format!("{PEOPLE}?done=invitation-withdrawn")
    );
    let page = open(&mut owner, PEOPLE).await;
    assert!(!page.body.contains(new), "{}", page.body);
}

#[tokio::test]
async fn an_owner_who_ends_their_own_membership_reads_that_it_has_ended() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Owner, Scopes::ALL).await;
    let mut bob_visits = signed_in(&desk, BOB).await;
    let path = format!("{PEOPLE}/{}", bob.id);
    let page = open(&mut bob_visits, &path).await;
    assert!(!page.body.contains("value=\"remove\""), "asks first");
    let step = open(&mut bob_visits, &format!("{path}?confirm=remove")).await;
    assert!(step.heading().starts_with("End the membership of"));
    let back = submit_confirmed(&mut bob_visits, &step, &path, &[("change", "remove")]).await;
    let choice = "/console?done=membership-ended";
    assert_eq!((back.status, back.header("location")), (303, choice));
    let page = open(&mut bob_visits, choice).await;
    assert!(
        page.body.contains("Your membership has ended."),
        "{}",
        page.body
    );
}

/// The person is gone before the owner confirms.
#[tokio::test]
async fn a_confirmed_act_about_a_person_that_is_refused_names_the_person_in_the_log() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Owner, Scopes::ALL).await;
    let mut owner = signed_in(&desk, ADA).await;
    let path = format!("{PEOPLE}/{}", bob.id);
    let step = open(&mut owner, &format!("{path}?confirm=remove")).await;
    let asked = submit(&mut owner, &step, &path, &[("change", "remove")]).await;
    let confirm = asked.header("location").to_owned();
    let page = open(&mut owner, &confirm).await;
    common::commit(&desk.world.app, vec![Write::delete(bob.key(), When::Any)]).await;
    let fields = [("decision", "confirm"), ("sure", "yes")];
    let back = submit(&mut owner, &page, &confirm, &fields).await;
    assert_eq!(
        back.header("location"),
        format!("{path}?refused=user_not_found")
    );
    let entries = desk.entries(&desk.acme).await;
    let entry = entries.last().unwrap();
    assert_eq!(
        (entry.action.as_str(), entry.outcome.as_str()),
        ("user.remove", "user_not_found")
    );
    assert_eq!(entry.target.as_deref(), Some(bob.id.as_str()));
}

#[tokio::test]
async fn people_are_listed_where_the_keys_cannot_be_read() {
    let desk = desk().await;
    desk.lose_catalog().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, PEOPLE).await;
    let note = "The keys cannot be read at the moment.";
    assert!(
        page.body.contains(note) && page.body.contains(ADA),
        "{}",
        page.body
    );
}

#[tokio::test]
async fn a_list_begins_where_the_address_names_no_key() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    for after in ["%01", "a%0A", &"a".repeat(600)] {
        for path in ["people", "apps"] {
            open(&mut owner, &format!("/console/acme/{path}?after={after}")).await;
        }
    }
}

#[tokio::test]
async fn a_person_is_shown_with_the_browsers_in_which_they_are_signed_in() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::READ).await;
    let mut owner = signed_in(&desk, ADA).await;
    let path = format!("{PEOPLE}/{}", bob.id);
    let page = open(&mut owner, &path).await;
    assert!(
        page.body.contains("<dd>in no browser</dd>"),
        "{}",
        page.body
    );
    let _first = signed_in(&desk, BOB).await;
    let _second = signed_in(&desk, BOB).await;
    let page = open(&mut owner, &path).await;
    assert!(
        page.body.contains("in 2 browsers, the newest since"),
        "{}",
        page.body
    );
    // Only the person ends them: the account may belong to other vaults.
    assert!(!page.body.contains("end your sessions"), "{}", page.body);
}

/// As over the API: to invite again with another role is to change the role.
#[tokio::test]
async fn an_invitation_with_another_role_than_an_earlier_one_is_confirmed() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, PEOPLE).await;
    let with = |role| {
        [
            ("email", "new@example.org"),
            ("role", role),
            ("scope", "read"),
        ]
    };
    let invited = format!("{PEOPLE}?done=person-invited");
    let back = submit(&mut owner, &page, PEOPLE, &with("member")).await;
    assert_eq!(back.header("location"), invited);
    let asked = submit(&mut owner, &page, PEOPLE, &with("publisher")).await;
    let confirm = asked.header("location").to_owned();
    assert!(confirm.contains("/confirm/"), "{confirm}");
    let asked = open(&mut owner, &confirm).await;
    let says = "Change the invitation of new@example.org to a publisher of acme.";
    assert!(asked.body.contains(says), "{}", asked.body);
    assert_eq!(user(&desk, "new@example.org").await["role"], "role:member");
    let fields = [("decision", "confirm"), ("sure", "yes")];
    let back = submit(&mut owner, &asked, &confirm, &fields).await;
    assert_eq!(back.header("location"), invited);
    let changed = user(&desk, "new@example.org").await;
    assert_eq!(changed["role"], "role:publisher");
}

#[tokio::test]
async fn what_gives_power_or_takes_it_is_confirmed_with_fresh_credentials() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::READ).await;
    let mut owner = signed_in(&desk, ADA).await;
    let path = format!("{PEOPLE}/{}", bob.id);
    desk.world.clock.advance(301);
    let (page, list) = (
        open(&mut owner, &path).await,
        open(&mut owner, PEOPLE).await,
    );
    for (page, path, fields) in [
        (&page, &*path, &[("change", "role"), ("role", "owner")][..]),
        (&page, &path, &[("change", "remove")]),
        (
            &list,
            PEOPLE,
            &[("email", "x@example.org"), ("role", "owner")],
        ),
    ] {
        let asked = submit(&mut owner, page, path, fields).await;
        let confirm = asked.header("location").to_owned();
        assert_eq!(asked.status, 303, "{fields:?}: {}", asked.body);
        let asked = owner.get(&confirm).await;
        assert_eq!(asked.page(), "200 Sign in", "{fields:?}: {}", asked.body);
        assert_eq!(user(&desk, BOB).await["role"], "role:member");
    }
    let asked = submit(&mut owner, &page, &path, &[("change", "remove")]).await;
    let confirm = asked.header("location").to_owned();
    let asked = owner.get(&confirm).await;
    let back = owner.log_in(&asked, ADA, PASSWORD).await;
    assert_eq!((back.status, back.header("location")), (303, &*confirm));
    // The page for apps would confirm it without doing it.
    let elsewhere = confirm.replace("/console/acme/", "/account/");
    assert_eq!(owner.get(&elsewhere).await.status, 404);
    // Without the box nothing is confirmed.
    let page = open(&mut owner, &confirm).await;
    let again = submit(&mut owner, &page, &confirm, &[("decision", "confirm")]).await;
    assert_eq!(again.page(), "422 Confirm this?", "{}", again.body);
    assert_eq!(user(&desk, BOB).await["role"], "role:member");
    // Declined: nothing happens, and the page of the person says so.
    let page = open(&mut owner, &confirm).await;
    assert!(page.body.contains("Remove bob@example.org from acme."));
    assert!(page.body.contains("you, in the console"));
    let back = submit(&mut owner, &page, &confirm, &[("decision", "decline")]).await;
    assert_eq!(back.header("location"), format!("{path}?refused=declined"));
    assert_eq!(user(&desk, BOB).await["role"], "role:member");
    let page = open(&mut owner, &path).await;
    let role = [("change", "role"), ("role", "publisher")];
    let back = submit_confirmed(&mut owner, &page, &path, &role).await;
    assert_eq!(back.header("location"), format!("{path}?done=role-changed"));
    // The new token binds forms to the new session.
    let page = open(&mut owner, &path).await;
    let fields = [("change", "scopes"), ("scope", "read"), ("scope", "write")];
    submit(&mut owner, &page, &path, &fields).await;
    submit(
        &mut owner,
        &page,
        &path,
        &[("change", "profile"), ("profile", "ci \u{202e}")],
    )
    .await;
    submit(
        &mut owner,
        &page,
        &path,
        &[("change", "profile"), ("profile", "ci")],
    )
    .await;
    let changed = user(&desk, BOB).await;
    assert_eq!(
        (&changed["role"], &changed["scopes"], &changed["profile"]),
        (
            &json!("role:publisher"),
            &json!(["read", "write"]),
            &json!("ci")
        )
    );
    let back = submit_confirmed(&mut owner, &page, &path, &[("change", "remove")]).await;
    assert_eq!(
        back.header("location"),
        format!("{PEOPLE}?done=person-removed")
    );
    assert_eq!(user(&desk, BOB).await, json!(null));
    assert_eq!(owner.get(&path).await.status, 404);
}

#[tokio::test]
async fn the_last_owner_stays_and_reads_why() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let ada = user(&desk, ADA).await;
    let path = format!("{PEOPLE}/{}", ada["id"].as_str().unwrap());
    let page = open(&mut owner, &path).await;
    let back = submit(
        &mut owner,
        &page,
        &path,
        &[("change", "role"), ("role", "member")],
    )
    .await;
    assert_eq!(
        back.header("location"),
        format!("{path}?refused=last_owner")
    );
    assert_eq!(user(&desk, ADA).await["role"], "role:owner");
}

#[tokio::test]
async fn an_owner_who_may_only_read_changes_nothing() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &home, Role::Owner, Scopes::READ).await;
    let mut reader = signed_in(&desk, BOB).await;
    let codes = open(&mut reader, "/console/acme/machines/codes").await;
    let open_to_all = "Any machine that knows the address of this vault may ask";
    assert!(codes.body.contains(open_to_all), "{}", codes.body);
    for path in ["people", "apps", "namespace", "machines/codes"] {
        let page = open(&mut reader, &format!("/console/acme/{path}")).await;
        let why =
            "You do not have the right to write, so you cannot change anything in this vault.";
        assert!(page.body.contains(why), "{path}: {}", page.body);
        let forms = page.body.matches("<form method=\"post\"").count();
        let fields = page
            .body
            .matches("<form class=\"fields\" method=\"post\"")
            .count();
        assert_eq!(
            (forms, fields),
            (1, 0),
            "{path}: the one that signs out: {}",
            page.body
        );
    }
}

#[tokio::test]
async fn an_owner_ends_an_app_for_everybody() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::ALL).await;
    let held = common::tokens(&desk.world.app, (BOB, PASSWORD), "acme", Scopes::ALL).await;
    let mut owner = signed_in(&desk, ADA).await;
    let path = "/console/acme/apps";
    let page = open(&mut owner, path).await;
    assert!(page.body.contains(&held.client), "{}", page.body);
    let step = format!("{path}?confirm={}", held.client);
    assert!(page.body.contains(&step), "{}", page.body);
    let step = open(&mut owner, &step).await;
    assert!(step.heading().starts_with("End the access of"));
    let client = step.hidden(path, "client");
    assert_eq!(client, held.client);
    let back = submit(&mut owner, &step, path, &[("client", &client)]).await;
    assert_eq!(back.header("location"), format!("{path}?done=app-ended"));
    let answer = desk.ask(&held.access, "GET", "/admin/vaults", None).await;
    assert_eq!(answer.short(), "401 token_invalid");
    let page = open(&mut owner, &format!("{path}?done=app-ended")).await;
    assert!(!page.body.contains(&held.client), "{}", page.body);
    // The same form from another tab, which still shows the app.
    let again = submit(&mut owner, &step, path, &[("client", &held.client)]).await;
    let page = owner.get(again.header("location")).await;
    let ended = "The access of this app has already ended.";
    assert_eq!(refused(&page), ended, "{}", page.body);
}
