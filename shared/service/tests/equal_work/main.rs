//! Requirement 28, measured in work: what a sign-in costs says nothing about whether there is such
//! an account.
//!
//! A test of its own process, since the count is that of the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(
    dead_code,
    reason = "people and apps of the route tests, of whom this needs few"
)]

#[path = "../common/mod.rs"]
mod common;

use secrecy::SecretString;
use vault_service::accounts::bootstrap::ensure_first_owner;
use vault_service::accounts::password::argon2_work;
use vault_service::model::namespace::Kind;

use common::{CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, authorize, register};

#[tokio::test]
async fn requirement_28_every_attempt_costs_the_same_work() {
    let app = common::world::world_with(|_| {}).app;
    let password = SecretString::from(OWNER_PASSWORD);
    let owner = ensure_first_owner(&app, Some(Kind::Hosted), Some(OWNER), Some(&password)).await;
    owner.unwrap();
    let path = common::invite(&app, "ada@example.org").await.unwrap();
    let done = Visitor::new(&app).accept(&path, PASSWORD).await;
    assert_eq!(done.status, 200, "{}", done.body);
    // An account that never used its invitation.
    common::invite(&app, "eve@example.org").await;

    let client = register(&app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let long = "x".repeat(1025);
    let whole = 19 * 1024 * 2;
    for (email, password, status) in [
        (OWNER, OWNER_PASSWORD, 303),
        ("ada@example.org", PASSWORD, 303),
        (OWNER, "wrong", 422),
        (OWNER, "", 422),
        (OWNER, long.as_str(), 422),
        ("ada@example.org", "wrong", 422),
        ("eve@example.org", "invited, without a password yet", 422),
        ("bob@example.org", "wrong", 422),
        ("bob@example.org", "", 422),
        ("bob@example.org", long.as_str(), 422),
        ("no address", "wrong", 422),
        ("", "", 422),
    ] {
        let mut visitor = Visitor::new(&app);
        let page = visitor.get(&address).await;
        let before = argon2_work();
        let reply = visitor.log_in(&page, email, password).await;
        assert_eq!(reply.status, status, "{email}");
        assert_eq!(
            argon2_work() - before,
            whole,
            "{email} with {} bytes",
            password.len()
        );
    }
}
