//! Signing out: one write ends every token of an account, a namespace or the service that was given
//! before.

use serde_json::{Value, json};
use vault_service::model::user::{Role, Scopes};

use super::about;
use crate::admin::{ADA, BOB, Desk, empty_desk, reference};
use crate::common::{self, PASSWORD, Tokens, Visitor};

/// Whether these tokens still open something, and whether they can be refreshed.
async fn alive(desk: &Desk, held: &Tokens) -> (bool, bool) {
    let asked = desk.ask(&held.access, "GET", "/admin/vaults", None).await;
    let refreshed = common::refresh(&desk.world.app, &held.client, &held.refresh).await;
    (asked.status == 200, refreshed.status == 200)
}

async fn tokens(desk: &Desk, email: &str, slug: &str) -> Tokens {
    common::tokens(&desk.world.app, (email, PASSWORD), slug, Scopes::ALL).await
}

#[tokio::test]
async fn raising_an_epoch_ends_what_was_given_before_and_nothing_else() {
    for (case, path, body, ended) in [
        // What becomes of Bob's tokens for `acme` and `other`, and of Ada's for `acme`.
        (
            "account",
            "/admin/operator/accounts/bob@example.org/sign-out",
            Value::Null,
            [true, true, false],
        ),
        (
            "namespace",
            "/admin/operator/namespaces/acme/sign-out",
            Value::Null,
            [true, false, true],
        ),
        (
            "service",
            "/admin/operator/sign-out",
            json!({"confirm": "everybody"}),
            [true, true, true],
        ),
    ] {
        let desk = empty_desk().await;
        let app = &desk.world.app;
        for home in [&desk.acme, &desk.other] {
            common::member(app, BOB, &reference(home), Role::Member, Scopes::ALL).await;
        }
        let held = [
            tokens(&desk, BOB, "acme").await,
            tokens(&desk, BOB, "other").await,
            tokens(&desk, ADA, "acme").await,
        ];
        let operator = desk.operator().await;
        let body = Some(&body).filter(|body| !body.is_null());
        let done = desk.ask(&operator, "POST", path, body).await;
        assert_eq!(done.status, 200, "{case}: {done:?}");
        for (held, ended) in held.iter().zip(ended) {
            assert_eq!(alive(&desk, held).await, (!ended, !ended), "{case}");
        }
        // What is given from now on is good.
        for (email, slug) in [(BOB, "acme"), (BOB, "other"), (ADA, "acme")] {
            let fresh = tokens(&desk, email, slug).await;
            assert_eq!(alive(&desk, &fresh).await, (true, true), "{case}");
        }
    }
}

/// A code that was given before and is exchanged afterwards gives nothing, and a browser signs in
/// anew.
#[tokio::test]
async fn codes_and_sessions_end_with_the_epoch_of_their_account() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let client = common::register(app, common::CALLBACK).await;
    let address = common::authorize(&client, common::CALLBACK, &[]);
    let mut ada = Visitor::new(app);
    let answer = ada
        .approve(&address, (ADA, PASSWORD), "acme", Scopes::ALL)
        .await;
    let code = answer.returned("code").unwrap();
    let operator = desk.operator().await;
    assert_eq!(about(&desk, &operator, ADA, "sign-out").await.status, 200);
    let exchanged = common::exchange(app, &client, &code).await;
    assert_eq!(exchanged.short(), "400 invalid_grant");
    assert_eq!(ada.get("/account").await.heading(), "Sign in");
}

#[tokio::test]
async fn an_owner_signs_out_the_own_vault_by_its_name() {
    let desk = empty_desk().await;
    let path = "/admin/vaults/acme/sign-out";
    let other = desk.post(path, &json!({"slug": "other"})).await;
    assert_eq!(other.short(), "422 confirmation_mismatch");
    assert_eq!(desk.post(path, &json!({"slug": "acme"})).await.status, 200);
    assert_eq!(desk.get("/admin/vaults").await.short(), "401 token_invalid");
    assert_eq!(desk.count("vault.sign-out done").await, 1);
}
