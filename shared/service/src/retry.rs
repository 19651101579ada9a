//! Trying again when another writer was faster, a bounded number of times and never in step with the others.

use std::future::Future;
use std::time::Duration;

use vault_store::StoreError;
use vault_store::random::{Random, bytes};

/// Most tries.
const MAX_TRIES: u32 = 8;
/// The longest single wait, in milliseconds; all waits together stay under two seconds.
const MAX_WAIT_MS: u64 = 400;

/// Runs `attempt` until it has a result; `None` means that another writer was faster. Fails with `Conflict` after enough tries, and at once
/// with any error of an attempt.
pub async fn retry<T, E, F>(random: &dyn Random, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    E: From<StoreError>,
    F: Future<Output = Result<Option<T>, E>>,
{
    for tries in 1..=MAX_TRIES {
        if let Some(result) = attempt().await? {
            return Ok(result);
        }
        if tries < MAX_TRIES {
            let most = (5u64 << tries).min(MAX_WAIT_MS);
            let wait = u64::from_be_bytes(bytes::<8>(random)) % most;
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    }
    Err(StoreError::Conflict.into())
}
