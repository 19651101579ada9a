//! The port `Random`: the only source of random bytes.

use std::sync::Arc;

use ulid::Ulid;

use crate::clock::Clock;

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Overwrites the whole buffer with fresh bytes.
    fn fill_random(&self, buffer: &mut [u8]);
}

impl<T: Random + ?Sized> Random for Arc<T> {
    fn fill_random(&self, buffer: &mut [u8]) {
        (**self).fill_random(buffer);
    }
}

/// The operating system's random generator. It is suitable for keys and tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the port's implementation"
    )]
    fn fill_random(&self, buffer: &mut [u8]) {
        // Without randomness, tokens would be guessable, so stop the process. No request, file or
        // peer can cause this.
        getrandom::fill(buffer).expect("the operating system gives random bytes");
    }
}

/// Returns `N` fresh random bytes.
pub fn random_bytes<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut buffer = [0; N];
    random.fill_random(&mut buffer);
    buffer
}

/// Returns the two parts of a new ULID: milliseconds and 80 random bits.
pub fn ulid_parts(clock: &dyn Clock, random: &dyn Random) -> (u64, u128) {
    // The random part of a ULID has 80 bits, so fill only the last 10 of the 16 big-endian bytes.
    let mut wide = [0; 16];
    random.fill_random(&mut wide[6..]);
    (clock.now_millis(), u128::from_be_bytes(wide))
}

/// Creates a new ULID as 26 characters. ULIDs sort by time, and randomly within a millisecond.
pub fn new_ulid(clock: &dyn Clock, random: &dyn Random) -> String {
    let (millis, bits) = ulid_parts(clock, random);
    Ulid::from_parts(millis, bits).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_bytes_differ() {
        assert_ne!(
            random_bytes::<32>(&SystemRandom),
            random_bytes::<32>(&SystemRandom)
        );
    }
}
