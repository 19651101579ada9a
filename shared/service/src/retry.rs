//! Retries after a lost race: a bounded number of times, with random waits so that the competing
//! writers do not collide again.

use std::future::Future;
use std::time::Duration;

use vault_store::StoreError;
use vault_store::random::{Random, random_bytes};

const MAX_TRIES: u32 = 8;
/// Maximum length of one wait, in milliseconds; all waits together stay under two seconds.
const MAX_WAIT_MS: u64 = 400;

/// Runs `attempt` until it returns a result. An attempt returns `None` if another writer was
/// faster. Fails with `Conflict` after the last try, and immediately with any error of an attempt.
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
            // A random length: after waits of a fixed length, the same writers would collide again.
            let most = (5u64 << tries).min(MAX_WAIT_MS);
            let wait = u64::from_be_bytes(random_bytes::<8>(random)) % most;
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    }
    Err(StoreError::Conflict.into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;

    /// Randomness that makes every wait 0 ms.
    #[derive(Debug)]
    struct NoWaits;

    impl Random for NoWaits {
        fn fill_random(&self, buffer: &mut [u8]) {
            buffer.fill(0);
        }
    }

    /// Runs attempts, the first `losses` of which lose a race. Returns the result and the number of
    /// attempts.
    async fn tries(losses: u32) -> (Result<(), StoreError>, u32) {
        let made = Cell::new(0);
        let attempt = || {
            made.set(made.get() + 1);
            ready(Ok((made.get() > losses).then_some(())))
        };
        let result = retry(&NoWaits, attempt).await;
        (result, made.get())
    }

    #[tokio::test]
    async fn a_faster_writer_is_met_again_a_bounded_number_of_times() {
        assert!(matches!(tries(0).await, (Ok(()), 1)));
        assert!(matches!(tries(MAX_TRIES - 1).await, (Ok(()), MAX_TRIES)));
        let lost = tries(MAX_TRIES).await;
        assert!(
            matches!(lost, (Err(StoreError::Conflict), MAX_TRIES)),
            "{lost:?}"
        );
    }

    #[tokio::test]
    async fn an_error_of_an_attempt_ends_it() {
        let attempt = || ready(Err::<Option<()>, _>(StoreError::invalid("no")));
        let refused = retry(&NoWaits, attempt).await;
        assert!(
            matches!(refused, Err(StoreError::Invalid(_))),
            "{refused:?}"
        );
    }
}
