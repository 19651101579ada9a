//! Password hashing with argon2id on a blocking thread. A check does the same work whether or not
//! there is an account, so that its time does not reveal accounts.

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use vault_store::random::{Random, random_bytes};
use zeroize::Zeroizing;

use super::hash_queue::{HashQueue, QueueFull};
use crate::error::{ErrorCode, Refusal};
use crate::model::limits::Networks;
use crate::web::error_page::ErrorPage;

/// Minimum length of a user's password, in characters.
pub const MIN_USER_CHARS: usize = 12;
/// Minimum length of the first owner's password, in characters.
pub const MIN_OWNER_CHARS: usize = 24;
/// Maximum length of a password, in bytes.
pub const MAX_PASSWORD_BYTES: usize = 1024;

/// Cost of argon2id: memory in KiB, passes, lanes. These are the parameters that OWASP recommends
/// first.
const ARGON2_COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// Number of hashes computed at the same time. Each takes 19 MiB; one slot computes some 40 a
/// second.
const SLOTS: usize = 2;
/// Maximum number of passwords that wait for a slot. With more, the last would be hashed only after
/// its request timed out.
const MAX_WAITING: usize = 64;
/// The queue of all password hashes of this process.
static HASHING: LazyLock<HashQueue> = LazyLock::new(|| HashQueue::new(SLOTS, MAX_WAITING));
/// Seconds for `Retry-After` of a 503: by then the passwords in a full queue are hashed.
const BUSY_SECONDS: u64 = 5;

/// Work of argon2 in this process so far; see [`argon2_work`].
static WORK: AtomicU64 = AtomicU64::new(0);

/// Returns the work of argon2 in this process so far, in blocks of 1 KiB times passes. Tests use it
/// to compare the cost of answers without a clock.
pub fn argon2_work() -> u64 {
    WORK.load(Ordering::Relaxed)
}

/// Error: a password cannot be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadPassword {
    /// The password has fewer characters than this minimum.
    #[error("the password must have at least {0} characters")]
    Short(usize),
    /// The password has more than 1,024 bytes.
    #[error("the password must have at most 1024 bytes")]
    Long,
}

/// Error: a password could not be hashed, which is never the fault of the password.
#[derive(Debug, thiserror::Error)]
pub enum HashingFailed {
    /// The queue was full, or another network displaced the request.
    #[error(transparent)]
    Busy(#[from] QueueFull),
    /// argon2 or its thread failed.
    #[error("a password could not be hashed: {0}")]
    Failed(String),
}

impl From<HashingFailed> for Refusal {
    fn from(failed: HashingFailed) -> Self {
        match failed {
            HashingFailed::Busy(_) => Self::new(ErrorCode::Unavailable).retry_after(BUSY_SECONDS),
            HashingFailed::Failed(_) => Self::new(ErrorCode::Internal),
        }
        .cause(failed)
    }
}

impl From<HashingFailed> for ErrorPage {
    fn from(failed: HashingFailed) -> Self {
        Self::Refused(failed.into())
    }
}

/// Checks that a password has at least `least` characters and at most 1,024 bytes.
pub fn check_length(password: &str, least: usize) -> Result<(), BadPassword> {
    // The maximum is in bytes because it bounds the work; the minimum is in characters because
    // people count those.
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(BadPassword::Long);
    }
    if password.chars().count() < least {
        Err(BadPassword::Short(least))
    } else {
        Ok(())
    }
}

/// Hashes a password with argon2id and a fresh salt, once a slot is free for a client of
/// `networks`. Returns a PHC string.
pub async fn hash_password(
    password: Zeroizing<String>,
    random: &dyn Random,
    networks: &Networks,
) -> Result<String, HashingFailed> {
    let salt = random_bytes::<16>(random);
    let hash = move || Ok(compute_hash(&argon2_params()?, password.as_bytes(), &salt)?.to_string());
    run_hashing(networks, hash).await
}

/// Verifies a password against a PHC string, once a slot is free for a client of `networks`.
/// Without a hash it does the same work and returns false.
pub async fn verify_password(
    password: Zeroizing<String>,
    hash: Option<String>,
    networks: &Networks,
) -> Result<bool, HashingFailed> {
    // A password that is too long does the same work: a shortcut would reveal which addresses have
    // an account.
    let hash = hash.filter(|_| password.len() <= MAX_PASSWORD_BYTES);
    run_hashing(networks, move || {
        let Some(hash) = hash else {
            // No account, or one that cannot sign in: hashing costs as much as verifying.
            // `black_box` keeps the compiler from leaving out work whose result is unused.
            std::hint::black_box(compute_hash(
                &argon2_params()?,
                password.as_bytes(),
                &[0; 16],
            )?);
            return Ok(false);
        };
        Ok(is_hash_of(&hash, password.as_bytes()))
    })
    .await
}

/// Runs `work` on a blocking thread as soon as a slot is free.
async fn run_hashing<T: Send + 'static>(
    networks: &Networks,
    work: impl FnOnce() -> Result<T, HashingFailed> + Send + 'static,
) -> Result<T, HashingFailed> {
    let slot = HASHING.acquire(networks).await?;
    tokio::task::spawn_blocking(move || {
        let done = work();
        // The thread releases the slot, not the request: if the request is cancelled, its thread
        // still runs and holds 19 MiB.
        drop(slot);
        done
    })
    .await
    .map_err(hashing_failed)?
}

fn argon2_params() -> Result<Params, HashingFailed> {
    let (memory, passes, lanes) = ARGON2_COST;
    Params::new(memory, passes, lanes, None).map_err(hashing_failed)
}

/// Whether `hash` is a PHC string of argon2id, version 0x13, and the hash of this password. The
/// comparison takes constant time.
fn is_hash_of(hash: &str, password: &[u8]) -> bool {
    let Ok(parsed) = PasswordHash::new(hash) else {
        return false;
    };
    // This service only writes this algorithm and version, so a record with another was written by
    // something else and is not trusted.
    let ours = parsed.algorithm == Algorithm::Argon2id.ident()
        && parsed.version == Some(Version::V0x13.into());
    let (true, Ok(params), Some(salt), Some(output)) =
        (ours, Params::try_from(&parsed), &parsed.salt, &parsed.hash)
    else {
        return false;
    };
    compute_hash(&params, password, salt)
        .is_ok_and(|computed| computed.hash.as_ref() == Some(output))
}

/// Capacity of the memory for argon2, in blocks of 1 KiB, even if less is used: 33 MiB. glibc
/// returns a freed allocation to the system at once only if it is larger than 32 MiB. Freeing 19
/// MiB instead raises its threshold, and the process then keeps that much freed memory.
const BLOCK_CAPACITY: usize = 33 * 1024;

fn compute_hash(
    params: &Params,
    password: &[u8],
    salt: &[u8],
) -> Result<PasswordHash, HashingFailed> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    let count = params.block_count();
    let mut blocks = Vec::with_capacity(count.max(BLOCK_CAPACITY));
    blocks.resize(count, Block::default());
    let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
    let output = output
        .get_mut(..params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN))
        .ok_or_else(|| hashing_failed("the hash is too long"))?;
    WORK.fetch_add(count as u64 * u64::from(params.t_cost()), Ordering::Relaxed);
    argon2
        .hash_password_into_with_memory(password, salt, output, &mut blocks[..])
        .map_err(hashing_failed)?;
    Ok(PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: ParamsString::try_from(params).map_err(hashing_failed)?,
        salt: Some(Salt::new(salt).map_err(hashing_failed)?),
        hash: Some(Output::new(output).map_err(hashing_failed)?),
    })
}

fn hashing_failed(error: impl std::fmt::Display) -> HashingFailed {
    HashingFailed::Failed(error.to_string())
}

/// All slots and places of the queue, taken by a test.
#[cfg(test)]
pub(super) struct FullQueue {
    /// Held because two tests of one process cannot fill the queue at once.
    _alone: tokio::sync::MutexGuard<'static, ()>,
    slots: Vec<super::hash_queue::Slot>,
    waiting: tokio::task::JoinSet<Result<bool, HashingFailed>>,
}

#[cfg(test)]
impl FullQueue {
    /// Takes all slots and places for one network.
    pub(super) async fn fill() -> Self {
        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let alone = ALONE.lock().await;
        let anywhere = Networks::of(None);
        let mut slots = Vec::new();
        for _ in 0..SLOTS {
            slots.push(HASHING.acquire(&anywhere).await.expect("a free slot"));
        }
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..MAX_WAITING {
            let anywhere = anywhere.clone();
            waiting
                .spawn(async move { verify_password(Zeroizing::default(), None, &anywhere).await });
        }
        while HASHING.waiting() < MAX_WAITING {
            tokio::task::yield_now().await;
        }
        Self {
            _alone: alone,
            slots,
            waiting,
        }
    }

    /// Gives the places back, then the slots.
    pub(super) async fn empty(self) {
        drop(self.waiting);
        while HASHING.waiting() > 0 {
            tokio::task::yield_now().await;
        }
        drop(self.slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_testing::SeededRandom;

    fn anywhere() -> Networks {
        Networks::of(None)
    }

    fn secret(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_verifies_against_its_hash_alone() {
        let random = SeededRandom::new(1);
        let hash = hash_password(secret("correct horse battery staple"), &random, &anywhere())
            .await
            .unwrap();
        assert!(
            hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hash}"
        );
        assert!(
            verify_password(
                secret("correct horse battery staple"),
                Some(hash.clone()),
                &anywhere()
            )
            .await
            .unwrap()
        );
        assert!(
            !verify_password(
                secret("correct horse battery stapl"),
                Some(hash),
                &anywhere()
            )
            .await
            .unwrap()
        );
        assert!(
            !verify_password(secret("correct horse battery staple"), None, &anywhere())
                .await
                .unwrap()
        );
        assert!(
            !verify_password(secret("x"), Some("not a hash".into()), &anywhere())
                .await
                .unwrap()
        );
    }

    #[tokio::test]
    async fn a_request_without_a_place_is_told_so_at_once() {
        let full = FullQueue::fill().await;
        let busy = verify_password(secret("x"), None, &anywhere()).await;
        let busy = busy.unwrap_err();
        assert!(matches!(busy, HashingFailed::Busy(QueueFull)), "{busy}");
        let refusal = Refusal::from(busy);
        assert_eq!(refusal.code(), ErrorCode::Unavailable);
        full.empty().await;
        let done = verify_password(secret("x"), None, &anywhere()).await;
        assert!(!done.unwrap());
    }

    #[tokio::test]
    async fn a_hash_is_that_of_the_crate_s_own_way() {
        use argon2::{PasswordHasher as _, PasswordVerifier as _};
        let random = SeededRandom::new(2);
        let ours = hash_password(secret("correct horse battery staple"), &random, &anywhere())
            .await
            .unwrap();
        let crates = Argon2::new(
            Algorithm::Argon2id,
            Version::V0x13,
            argon2_params().unwrap(),
        );
        crates
            .verify_password(b"correct horse battery staple", ours.as_str())
            .unwrap();
        let theirs = crates
            .hash_password_with_salt(b"correct horse battery staple", &[7; 16])
            .unwrap()
            .to_string();
        for (password, good) in [("correct horse battery staple", true), ("another", false)] {
            let verified =
                verify_password(secret(password), Some(theirs.clone()), &anywhere()).await;
            assert_eq!(verified.unwrap(), good, "{password}");
        }
        // Each of these differs in algorithm or version, or lacks a part, so it is no hash of this
        // service.
        for other in [
            theirs.replace("argon2id", "argon2i"),
            theirs.replace("v=19", "v=16"),
            theirs.replace("v=19$", ""),
            theirs[..theirs.rfind('$').unwrap()].to_owned(),
            String::new(),
        ] {
            let password = secret("correct horse battery staple");
            let verified = verify_password(password, Some(other.clone()), &anywhere()).await;
            assert!(!verified.unwrap(), "{other}");
        }
    }

    #[test]
    fn lengths_are_counted_in_characters() {
        assert_eq!(check_length("\u{e4}\u{e4}\u{e4}", 3), Ok(()));
        assert_eq!(check_length("\u{e4}\u{e4}", 3), Err(BadPassword::Short(3)));
        assert_eq!(check_length(&"x".repeat(1025), 3), Err(BadPassword::Long));
    }
}
