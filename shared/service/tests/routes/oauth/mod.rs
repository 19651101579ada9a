//! `/oauth/*` and the well-known documents. Numbers in test names are those of the OAuth requirements.

mod authorize;
mod bearer;
mod bootstrap;
mod cors;
mod document;
mod families;
mod invite;
mod pages;
mod password;
mod register;
mod replays;
mod requirements;
mod revoke;
mod secrets;
mod sign_in;
mod token;
mod well_known;

use std::sync::Arc;

use vault_service::App;
use vault_service::config::{Config, Limits};
use vault_testing::SeededRandom;
use vault_testing::TestClock;
use vault_testing::memory::Memory;

/// A service over memory with a clock that stands still.
pub struct Place {
    pub app: App,
    pub clock: Arc<TestClock>,
}

/// A service at `https://vault.example` without rate limits.
pub fn place() -> Place {
    place_at("https://vault.example", |_| {})
}

pub fn place_at(public_url: &str, change: impl FnOnce(&mut Config)) -> Place {
    let clock = Arc::new(TestClock::default());
    let memory = Arc::new(Memory::new(clock.clone()));
    let mut config = Config::new(public_url.parse().unwrap());
    config.limits = Limits::off();
    change(&mut config);
    let app = App::new(
        memory.clone(),
        memory,
        clock.clone(),
        Arc::new(SeededRandom::new(1)),
        config,
    );
    Place { app, clock }
}

/// The same, with the first owner.
pub async fn owned() -> Place {
    let place = place();
    crate::common::bootstrap(&place.app).await;
    place
}
