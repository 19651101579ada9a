//! Randomness for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use vault_format::hash::Digest;
use vault_store::random::Random;

/// A generator that returns the same bytes for the same seed, in the order of the calls. For tests
/// only: anybody can predict the bytes.
#[derive(Debug)]
pub struct SeededRandom {
    seed: u64,
    block: AtomicU64,
}

impl SeededRandom {
    /// Creates a generator at the beginning of the sequence for `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            block: AtomicU64::new(0),
        }
    }
}

impl Random for SeededRandom {
    fn fill_random(&self, buffer: &mut [u8]) {
        for part in buffer.chunks_mut(32) {
            let block = self.block.fetch_add(1, Ordering::SeqCst);
            let mut input = [0; 16];
            input[..8].copy_from_slice(&self.seed.to_be_bytes());
            input[8..].copy_from_slice(&block.to_be_bytes());
            part.copy_from_slice(&Digest::of(&input).as_bytes()[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use vault_store::random::{new_ulid, random_bytes};

    use super::*;
    use crate::TestClock;

    #[test]
    fn a_seed_names_one_sequence() {
        let (one, same, other) = (
            SeededRandom::new(1),
            SeededRandom::new(1),
            SeededRandom::new(2),
        );
        let first: [u8; 100] = random_bytes(&one);
        assert_eq!(first, random_bytes::<100>(&same));
        assert_ne!(first, random_bytes::<100>(&other));
        assert_ne!(first, random_bytes::<100>(&one), "a generator goes on");
    }

    #[test]
    fn ulids_sort_by_time_and_repeat_with_the_seed() {
        let clock = TestClock::default();
        let early = new_ulid(&clock, &SeededRandom::new(1));
        clock.advance_millis(1);
        let late = new_ulid(&clock, &SeededRandom::new(1));
        assert_eq!(early.len(), 26);
        assert!(early < late);
        assert_eq!(early[10..], late[10..], "same seed, same random part");
    }
}
