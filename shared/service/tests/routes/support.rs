//! What the route tests need beside the world that they share with the functions' tests.

use std::sync::Arc;

use async_trait::async_trait;
use vault_service::config::Config;
use vault_service::router;
use vault_store::StoreError;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::common::exchange;

pub use crate::common::world::*;

/// A service at `https://vault.example` without rate limits, whose answers are held to the
/// reference of the routes.
pub fn world() -> World {
    world_with(|_| {})
}

pub fn world_with(change: impl FnOnce(&mut Config)) -> World {
    exchange::CHECK.get_or_init(|| crate::api::check);
    crate::common::world::world_with(change)
}

/// A service whose database does not answer.
pub fn world_without_store() -> World {
    let mut world = world();
    world.app.ports.records = Hooked::new(&world.memory, Arc::new(Down));
    world.router = router(world.app.clone());
    world
}

struct Down;

#[async_trait]
impl Hook for Down {
    async fn before(&self, _: Call<'_>) -> Result<(), StoreError> {
        Err(StoreError::unavailable("connection refused to db.internal"))
    }
}
