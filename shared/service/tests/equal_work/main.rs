//! Requirement 28, measured in work: what a sign-in costs says nothing about whether there is such an account.
//!
//! A test of its own process, since the count is that of the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(
    dead_code,
    reason = "people and apps of the route tests, of whom this needs few"
)]

#[path = "../common/mod.rs"]
mod common;

use std::sync::Arc;

use vault_service::App;
use vault_service::config::{Config, Limits};
use vault_service::model::user::{Role, Scopes, User};
use vault_service::oauth::password::work;
use vault_testing::SeededRandom;
use vault_testing::TestClock;
use vault_testing::memory::Memory;

use common::{CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, authorize, register};

#[tokio::test]
async fn requirement_28_every_attempt_costs_the_same_work() {
    let clock = Arc::new(TestClock::default());
    let memory = Arc::new(Memory::new(clock.clone()));
    let mut config = Config::new("https://vault.example".parse().unwrap());
    config.limits = Limits::off();
    let random = Arc::new(SeededRandom::new(1));
    let app = App::new(memory.clone(), memory, clock, random, config);
    common::bootstrap(&app).await;
    let acme = common::namespace(&app, "acme").await;
    common::member(&app, "ada@example.org", &acme, Role::Member, Scopes::READ).await;
    invited(&app, &acme).await;

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
        let before = work();
        let reply = visitor.log_in(&page, email, password).await;
        assert_eq!(reply.status, status, "{email}");
        assert_eq!(
            work() - before,
            whole,
            "{email} with {} bytes",
            password.len()
        );
    }
}

/// An account that never used its invitation.
async fn invited(app: &App, home: &vault_service::model::user::NamespaceRef) {
    let (email, now) = ("eve@example.org".parse().unwrap(), app.clock.now());
    let invited = vault_service::model::account::invite(
        &*app.records,
        &email,
        app.config.public_url.base(),
        now,
        &*app.random,
    );
    let mut writes = invited.await.unwrap().writes;
    let (role, scopes) = (Role::Member, Scopes::READ);
    let user = User::new(email, home.clone(), role, scopes, now, &*app.random);
    writes.extend(user.creation().unwrap());
    assert!(app.records.commit(writes).await.unwrap().is_done());
}
