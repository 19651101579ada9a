//! The port `Random`: the only place from which random bytes come.

#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicU64, Ordering};

use ulid::Ulid;
#[cfg(any(test, feature = "testing"))]
use vault_skill::hash::Digest;

use crate::clock::Clock;

/// Random bytes.
pub trait Random: Send + Sync {
    /// Overwrites the whole buffer with fresh bytes.
    fn fill(&self, buffer: &mut [u8]);
}

/// The operating system's generator: fit for keys and tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the port's implementation"
    )]
    fn fill(&self, buffer: &mut [u8]) {
        // Going on without randomness would make guessable tokens, so there is no other way out; no request, file or
        // peer can bring this about.
        getrandom::fill(buffer).expect("the operating system gives random bytes");
    }
}

/// The same bytes for the same seed, in the order of the calls. For tests only: anybody can predict them.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
pub struct SeededRandom {
    seed: u64,
    block: AtomicU64,
}

#[cfg(any(test, feature = "testing"))]
impl SeededRandom {
    /// A generator that starts at the beginning of the sequence named by `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            block: AtomicU64::new(0),
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        for part in buffer.chunks_mut(32) {
            let block = self.block.fetch_add(1, Ordering::SeqCst);
            let mut input = [0; 16];
            input[..8].copy_from_slice(&self.seed.to_be_bytes());
            input[8..].copy_from_slice(&block.to_be_bytes());
            part.copy_from_slice(&Digest::of(&input).as_bytes()[..part.len()]);
        }
    }
}

/// `N` fresh random bytes.
pub fn bytes<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut buffer = [0; N];
    random.fill(&mut buffer);
    buffer
}

/// The two parts of a new ULID: milliseconds and 80 random bits.
pub fn ulid_parts(clock: &dyn Clock, random: &dyn Random) -> (u64, u128) {
    let mut wide = [0; 16];
    random.fill(&mut wide[6..]);
    (clock.now_millis(), u128::from_be_bytes(wide))
}

/// A new ULID as 26 characters: sorts by time, then by chance.
pub fn ulid(clock: &dyn Clock, random: &dyn Random) -> String {
    let (millis, bits) = ulid_parts(clock, random);
    Ulid::from_parts(millis, bits).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn a_seed_names_one_sequence() {
        let (one, same, other) = (
            SeededRandom::new(1),
            SeededRandom::new(1),
            SeededRandom::new(2),
        );
        let first: [u8; 100] = bytes(&one);
        assert_eq!(first, bytes::<100>(&same));
        assert_ne!(first, bytes::<100>(&other));
        assert_ne!(first, bytes::<100>(&one), "a generator goes on");
    }

    #[test]
    fn the_system_s_bytes_differ() {
        assert_ne!(bytes::<32>(&SystemRandom), bytes::<32>(&SystemRandom));
    }

    #[test]
    fn ulids_sort_by_time_and_repeat_with_the_seed() {
        let clock = TestClock::default();
        let early = ulid(&clock, &SeededRandom::new(1));
        clock.advance_millis(1);
        let late = ulid(&clock, &SeededRandom::new(1));
        assert_eq!(early.len(), 26);
        assert!(early < late);
        assert_eq!(early[10..], late[10..], "same seed, same random part");
    }
}
