//! `smoke:remote`: walks a running deployment in the interface's order, one line a step. See
//! `tests/smoke-remote`.
//!
//! It touches only what it made itself: a client, and a member with an account for the policy step;
//! all are removed at the end, after a failure and after an interrupt too. Nothing secret is printed.

mod policy;
mod report;
mod walk;
mod web;

use std::process::ExitCode;
use std::time::Duration;

use report::{Report, say};
use walk::{Service, Settings};

/// How long the walk may take; then what it made is removed all the same.
const WALK: Duration = Duration::from_secs(150);
/// How long the removal may take.
const UNDO: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let base = variable("VAULT_REMOTE_URL").unwrap_or_default();
    let base = base.trim_end_matches('/').to_owned();
    if !base.starts_with("https://") && !base.starts_with("http://") {
        say("vault-smoke: set VAULT_REMOTE_URL to the public address of the service");
        return ExitCode::from(2);
    }
    let account = variable("VAULT_ADMIN_EMAIL").zip(variable("VAULT_ADMIN_PASSWORD"));
    let mut report = Report::default();
    let mut service = match Service::new(Settings { base, account }) {
        Ok(service) => service,
        Err(failure) => {
            say(&format!(
                "vault-smoke: expected {}: {}",
                failure.expected, failure.came
            ));
            return ExitCode::from(2);
        }
    };
    tokio::select! {
        _ = service.walk(&mut report) => {}
        () = tokio::time::sleep(WALK) => report.fail("not done in time"),
        _ = tokio::signal::ctrl_c() => report.fail("interrupted"),
    }
    if tokio::time::timeout(UNDO, service.undo(&mut report))
        .await
        .is_err()
    {
        report.fail("what the walk made could not be removed in time");
    }
    if report.has_failed() {
        say("failed");
        return ExitCode::FAILURE;
    }
    say("all well");
    ExitCode::SUCCESS
}

#[expect(
    clippy::disallowed_methods,
    reason = "the interface's smoke script is told everything by variables"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
