//! Trying a commit again when somebody else was faster, a bounded number of times and never in step with the others.

use std::time::Duration;

use vault_store::random::{Random, bytes};

/// Most tries of one commit.
const MAX_TRIES: u32 = 8;
/// The longest single wait, in milliseconds; all waits together stay under two seconds.
const MAX_WAIT_MS: u64 = 400;

/// The tries of one commit so far.
#[derive(Debug, Default)]
pub struct Retry {
    tries: u32,
}

impl Retry {
    /// Waits a random while and says whether to try again; false once there were enough tries.
    pub async fn again(&mut self, random: &dyn Random) -> bool {
        self.tries += 1;
        if self.tries >= MAX_TRIES {
            return false;
        }
        let most = (5u64 << self.tries).min(MAX_WAIT_MS);
        let wait = u64::from_be_bytes(bytes::<8>(random)) % most;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        true
    }
}
