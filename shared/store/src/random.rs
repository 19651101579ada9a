//! The port `Random`: the only place from which random bytes come.

use std::sync::Arc;

use ulid::Ulid;

use crate::clock::Clock;

/// Random bytes.
pub trait Random: Send + Sync {
    /// Overwrites the whole buffer with fresh bytes.
    fn fill(&self, buffer: &mut [u8]);
}

impl<T: Random + ?Sized> Random for Arc<T> {
    fn fill(&self, buffer: &mut [u8]) {
        (**self).fill(buffer);
    }
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
        // Going on without randomness would make guessable tokens, so there is no other way out; no
        // request, file or peer can bring this about.
        getrandom::fill(buffer).expect("the operating system gives random bytes");
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

    #[test]
    fn the_system_s_bytes_differ() {
        assert_ne!(bytes::<32>(&SystemRandom), bytes::<32>(&SystemRandom));
    }
}
