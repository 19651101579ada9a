//! Passwords: argon2id on a blocking thread, and the same work whether or not there is an account.

use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use tokio::sync::Semaphore;
use vault_store::random::{Random, bytes};
use zeroize::Zeroizing;

/// Least characters of a user's password.
pub const LEAST_FOR_USERS: usize = 12;
/// Least characters of the first owner's password.
pub const LEAST_FOR_THE_OWNER: usize = 24;
/// Most bytes of a password.
pub const MOST_BYTES: usize = 1024;

/// Memory in KiB, passes, lanes: OWASP's first choice for argon2id.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// As many hashes at once as fit beside the rest: each takes 19 MiB.
static HASHING: Semaphore = Semaphore::const_new(4);

/// Why a password cannot be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadPassword {
    /// Fewer characters than it must have.
    #[error("a password needs at least {0} characters")]
    Short(usize),
    /// More than 1,024 bytes.
    #[error("a password may have 1024 bytes")]
    Long,
}

/// Hashing did not come to an end; never the password's fault.
#[derive(Debug, thiserror::Error)]
#[error("a password could not be hashed: {0}")]
pub struct HashingFailed(String);

/// Passes when a password has at least `least` characters and no more than 1,024 bytes.
pub fn check_length(password: &str, least: usize) -> Result<(), BadPassword> {
    if password.len() > MOST_BYTES {
        return Err(BadPassword::Long);
    }
    if password.chars().count() < least {
        Err(BadPassword::Short(least))
    } else {
        Ok(())
    }
}

/// The argon2id hash of a password under a fresh salt, as a PHC string.
pub async fn hash(
    password: Zeroizing<String>,
    random: &dyn Random,
) -> Result<String, HashingFailed> {
    let salt = bytes::<16>(random);
    blocking(move || {
        let hash = argon2()?
            .hash_password_with_salt(password.as_bytes(), &salt)
            .map_err(failed)?;
        Ok(hash.to_string())
    })
    .await
}

/// Whether the password is the one that was hashed. Without a hash the same work is done, and the answer is no.
pub async fn verify(
    password: Zeroizing<String>,
    hash: Option<String>,
) -> Result<bool, HashingFailed> {
    blocking(move || {
        let Some(hash) = hash else {
            // No account, or none that can sign in: hashing costs what verifying costs.
            std::hint::black_box(
                argon2()?
                    .hash_password_with_salt(password.as_bytes(), &[0; 16])
                    .map_err(failed)?,
            );
            return Ok(false);
        };
        Ok(password.len() <= MOST_BYTES
            && argon2()?
                .verify_password(password.as_bytes(), hash.as_str())
                .is_ok())
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HashingFailed> + Send + 'static,
) -> Result<T, HashingFailed> {
    let permit = HASHING
        .acquire()
        .await
        .map_err(|error| HashingFailed(error.to_string()))?;
    tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    })
    .await
    .map_err(|error| HashingFailed(error.to_string()))?
}

fn argon2() -> Result<Argon2<'static>, HashingFailed> {
    let (memory, passes, lanes) = COST;
    let params = Params::new(memory, passes, lanes, None)
        .map_err(|error| HashingFailed(error.to_string()))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

fn failed(error: argon2::password_hash::Error) -> HashingFailed {
    HashingFailed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_store::random::SeededRandom;

    fn secret(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_verifies_against_its_hash_alone() {
        let random = SeededRandom::new(1);
        let hash = hash(secret("correct horse battery staple"), &random)
            .await
            .unwrap();
        assert!(
            hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hash}"
        );
        assert!(
            verify(secret("correct horse battery staple"), Some(hash.clone()))
                .await
                .unwrap()
        );
        assert!(
            !verify(secret("correct horse battery stapl"), Some(hash))
                .await
                .unwrap()
        );
        assert!(
            !verify(secret("correct horse battery staple"), None)
                .await
                .unwrap()
        );
        assert!(
            !verify(secret("x"), Some("not a hash".into()))
                .await
                .unwrap()
        );
    }

    #[test]
    fn lengths_are_counted_in_characters() {
        assert_eq!(check_length("\u{e4}\u{e4}\u{e4}", 3), Ok(()));
        assert_eq!(check_length("\u{e4}\u{e4}", 3), Err(BadPassword::Short(3)));
        assert_eq!(check_length(&"x".repeat(1025), 3), Err(BadPassword::Long));
    }
}
