//! What a token may do only while its person entered credentials a moment ago, and what it may do
//! all its life.

use serde_json::{Value, json};
use vault_service::model::user::{Role, Scopes};

use super::{BOB, EVE, empty_desk, reference, token};
use crate::common::{self, OWNER};

const NEW: &str = "new@example.org";
const ACCOUNTS: &str = "/admin/operator/accounts";

/// What changes who decides is refused from the fifth minute on; a plain client invites, lists and
/// ends apps as long as its token lasts.
#[tokio::test]
async fn roles_owners_and_removals_need_credentials_of_the_last_five_minutes() {
    let desk = empty_desk().await;
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    let bob = common::member(app, BOB, &home, Role::Member, Scopes::READ).await;
    let invited = desk
        .post("/admin/users", &json!({ "email": "waits@example.org" }))
        .await
        .json();
    let of = |id: &str, what: &str| format!("/admin/users/{id}{what}");
    let waits = of(invited["id"].as_str().unwrap(), "");
    let (role, scopes) = (of(&bob.id, "/role"), of(&bob.id, "/scopes"));
    let (profile, bobs) = (of(&bob.id, "/profile"), of(&bob.id, ""));
    let owner = json!({ "role": "role:owner" });
    let new_owner = json!({ "email": NEW, "role": "role:owner" });
    let unknown_app = format!("/admin/clients/cli_{}", "0".repeat(26));
    let rows: [(&str, &str, Option<Value>, bool, &str); 9] = [
        ("POST", "/admin/users", Some(new_owner), true, "201"),
        ("PUT", &role, Some(owner), true, "200"),
        ("DELETE", &bobs, None, true, "200"),
        ("GET", "/admin/users", None, false, "200"),
        (
            "POST",
            "/admin/users",
            Some(json!({ "email": "m@example.org" })),
            false,
            "201",
        ),
        (
            "POST",
            &scopes,
            Some(json!({ "grant": ["write"] })),
            false,
            "200",
        ),
        (
            "PUT",
            &profile,
            Some(json!({ "profile": null })),
            false,
            "200",
        ),
        ("DELETE", &waits, None, false, "200"),
        ("DELETE", &unknown_app, None, false, "404 client_not_found"),
    ];
    desk.world.clock.advance(300);
    for (method, path, body, fresh, wanted) in &rows {
        let answer = desk.ask(&desk.owner, method, path, body.as_ref()).await;
        if *fresh {
            assert_eq!(
                answer.short(),
                "403 fresh_sign_in_required",
                "{method} {path}"
            );
            let challenge = answer.header("www-authenticate");
            assert!(challenge.contains("max_age=\"300\""), "{challenge}");
        } else {
            assert_eq!(answer.short(), *wanted, "{method} {path}");
        }
    }
    let mut desk = desk;
    desk.owner = token(&desk.world, super::ADA, "acme", Scopes::ALL).await;
    desk.world.clock.advance(299);
    for (method, path, body, _, wanted) in rows.iter().filter(|row| row.3) {
        let answer = desk.ask(&desk.owner, method, path, body.as_ref()).await;
        assert_eq!(answer.short(), *wanted, "{method} {path}");
    }
}

/// The rights of an operator last a quarter of an hour; those over accounts, owners and other
/// operators a third of that.
#[tokio::test]
async fn who_decides_and_who_signs_in_is_changed_within_five_minutes_of_an_operator_s_sign_in() {
    let desk = empty_desk().await;
    desk.stranger().await;
    let operator = desk.operator().await;
    let eves = format!("{ACCOUNTS}/{EVE}");
    let of_eve = |what: &str| format!("{eves}/{what}");
    let (grant, revoke, reset) = (of_eve("grant"), of_eve("revoke"), of_eve("reset"));
    let (account, namespace) = (
        json!({ "email": NEW }),
        json!({ "slug": "fresh", "owner": NEW }),
    );
    let rows: [(&str, &str, Option<&Value>, u16); 6] = [
        ("POST", &grant, None, 200),
        ("POST", &revoke, None, 200),
        ("POST", ACCOUNTS, Some(&account), 201),
        ("POST", "/admin/operator/namespaces", Some(&namespace), 201),
        ("POST", &reset, None, 200),
        ("DELETE", &eves, None, 200),
    ];
    desk.world.clock.advance(300);
    for (method, path, body, _) in rows {
        let late = desk.ask(&operator, method, path, body).await;
        assert_eq!(
            late.short(),
            "403 fresh_sign_in_required",
            "{method} {path}"
        );
        let challenge = late.header("www-authenticate");
        let scope = "scope=\"read write operator\"";
        assert!(challenge.contains(scope), "{challenge}");
    }
    // What only stops somebody, or lets them go on, needs no more than an operator's sign-in.
    for what in ["sign-out", "disable", "enable"] {
        let done = desk.ask(&operator, "POST", &of_eve(what), None).await;
        assert_eq!(done.status, 200, "{what}");
    }
    let operator = desk.operator().await;
    desk.world.clock.advance(299);
    for (method, path, body, wanted) in rows {
        let done = desk.ask(&operator, method, path, body).await;
        assert_eq!(done.status, wanted, "{method} {path} {done:?}");
    }
    assert!(common::account(&desk.world.app, OWNER).await.operator);
}
