//! Rate limits: enrolment per namespace and source, reads per device.
//!
//! Enrolments are counted in the store, for all processes together, since unauthenticated callers
//! can make them. Reads are counted in this process's memory: a count in the store would cost more
//! than the read. Behind a gateway that throttles they are switched off.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::request::MAX_SKEW_SECONDS;
use vault_format::request::route::Route;
use vault_format::time::Timestamp;

use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::device;
use crate::model::limits::{Source, Window, count_or_refuse};

/// The length of every window of this module, in seconds.
const MINUTE: i64 = 60;

/// Counts an enrolment of a key that is not enrolled yet, per slug and source and per source.
/// Returns the counted windows; fails with 429 and `Retry-After`.
pub(super) async fn count_enrolment(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
    source: Option<IpAddr>,
) -> Result<Vec<Window<'static>>, Refusal> {
    let limits = &app.config.limits;
    if limits.enrol_per_slug == 0 && limits.enrol_per_source == 0 {
        return Ok(Vec::new());
    }
    // A known key gets its state again and creates nothing, so it needs no limit.
    let device_key = device::device_key(slug, signer.key_text());
    if app.records.get_one(&device_key).await?.is_some() {
        return Ok(Vec::new());
    }
    let source = Source::of(source);
    // The first window bounds a flood at one vault. The second also bounds a source that probes one
    // name after another.
    let windows = vec![
        Window {
            name: "enrol-slug",
            who: format!("{slug}/{source}"),
            limit: limits.enrol_per_slug,
            seconds: MINUTE,
        },
        Window {
            name: "enrol-source",
            who: source.to_string(),
            limit: limits.enrol_per_source,
            seconds: MINUTE,
        },
    ];
    count_or_refuse(app, &windows, app.clock.now()).await?;
    Ok(windows)
}

/// Counts a read of a device; fails with 429 and `Retry-After`.
pub(super) fn count_read(
    app: &App,
    reads: &ReadLimits,
    route: &Route,
    signer: &Signer<'_>,
) -> Result<(), Refusal> {
    let limits = &app.config.limits;
    let (class, limit) = match route {
        Route::Bundle { .. } => (1, limits.bundles_per_device),
        _ => (0, limits.catalog_per_device),
    };
    let now = app.clock.now();
    reads.count_request(signer, class, limit, now)
}

/// Reads in the running minute, by key and class of route, and the signatures that were counted.
#[derive(Debug, Default)]
pub(super) struct ReadLimits(Mutex<ReadCounts>);

#[derive(Debug, Default)]
struct ReadCounts {
    start: i64,
    counts: HashMap<(Subject, u32), u32>,
    signatures: CountedSignatures,
}

/// Bytes of a device's public key.
type KeyBytes = [u8; 32];

/// Subject of a count.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Subject {
    /// A device, by its key.
    Key(KeyBytes),
    /// Requests of a device that arrive again after they were counted for it: a caller with copies
    /// of them can send them, and must not use up the device's reads.
    RepeatsOf(KeyBytes),
}

/// Maximum number of subjects that are counted in one minute. Beyond it the counts begin anew: a
/// limit per key does not help against an attacker with that many.
const MAX_SUBJECTS: usize = 65_536;
/// Maximum number of signatures of one key and class of route that are remembered in one period. It
/// is above what the default limit of catalogs lets through. Copies of requests beyond it are
/// counted for the device itself, like all requests of keys that are not admitted.
const MAX_SIGNATURES_PER_KEY: usize = 2048;
/// Maximum number of signatures that are remembered in one period. Beyond it no further ones are,
/// and none is forgotten early: no key makes room at the cost of another.
const MAX_SIGNATURES: usize = 131_072;
/// Length of a period, in seconds: a signature is valid for no longer.
const SIGNATURE_SECONDS: i64 = 2 * MAX_SKEW_SECONDS.cast_signed();

/// Signatures of one period, by key and class of route.
type SignaturesByKey = HashMap<(KeyBytes, u32), HashSet<Digest>>;

/// Signatures of requests that were counted for their devices, in the present period and the one
/// before.
#[derive(Debug, Default)]
struct CountedSignatures {
    start: i64,
    present: SignaturesByKey,
    before: SignaturesByKey,
    /// Number of signatures in `present`.
    remembered: usize,
}

impl CountedSignatures {
    /// Begins a new period if the present one is over.
    fn move_on(&mut self, now: Timestamp) {
        let start = now.unix() - now.unix().rem_euclid(SIGNATURE_SECONDS);
        if self.start != start {
            self.start = start;
            self.before = std::mem::take(&mut self.present);
            self.remembered = 0;
        }
    }

    fn has_signature(&self, key: KeyBytes, class: u32, signature: &Digest) -> bool {
        [&self.present, &self.before]
            .into_iter()
            .filter_map(|period| period.get(&(key, class)))
            .any(|signatures| signatures.contains(signature))
    }

    /// Remembers a signature, unless there are too many of its key, or in all.
    fn insert_signature(&mut self, key: KeyBytes, class: u32, signature: Digest) {
        if self.remembered >= MAX_SIGNATURES {
            return;
        }
        let of_key = self.present.entry((key, class)).or_default();
        if of_key.len() < MAX_SIGNATURES_PER_KEY && of_key.insert(signature) {
            self.remembered += 1;
        }
    }
}

impl ReadLimits {
    fn count_request(
        &self,
        signer: &Signer<'_>,
        class: u32,
        limit: u32,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if limit == 0 {
            return Ok(());
        }
        // Windows begin with the minutes of the clock, so one start serves all keys.
        let start = now.unix() - now.unix().rem_euclid(MINUTE);
        // A panic cannot leave counts that are unusable, so a poisoned lock is used on.
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reads.start != start || reads.counts.len() >= MAX_SUBJECTS {
            reads.start = start;
            reads.counts.clear();
        }
        reads.signatures.move_on(now);
        let key = *signer.key().as_bytes();
        // Remember only signatures of admitted keys, so that other keys take up no room.
        let signature = signer.admitted_signature();
        let is_repeated =
            signature.is_some_and(|it| reads.signatures.has_signature(key, class, &it));
        // Count all repetitions together: with a count for each signature, a device could read as
        // often as it likes with a few of them.
        let subject = if is_repeated {
            Subject::RepeatsOf(key)
        } else {
            Subject::Key(key)
        };
        let count = reads.counts.entry((subject, class)).or_default();
        if *count >= limit {
            let left = u64::try_from(start + MINUTE - now.unix()).unwrap_or(1);
            return Err(Refusal::new(ErrorCode::RateLimited).retry_after(left));
        }
        *count += 1;
        if let Some(signature) = signature.filter(|_| !is_repeated) {
            reads.signatures.insert_signature(key, class, signature);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that sends without end takes up its own room and nobody else's.
    #[test]
    fn one_key_makes_no_other_signature_forgotten() {
        let at = Timestamp::from_unix;
        let signature = |n: usize| Digest::of(&n.to_be_bytes());
        let (quiet, busy) = ([1; 32], [2; 32]);
        let mut counted = CountedSignatures::default();
        counted.move_on(at(0));
        counted.insert_signature(quiet, 0, signature(0));
        for n in 1..=2 * MAX_SIGNATURES {
            counted.insert_signature(busy, 0, signature(n));
            counted.move_on(at(1));
        }
        assert!(counted.has_signature(quiet, 0, &signature(0)));
        assert!(counted.has_signature(busy, 0, &signature(MAX_SIGNATURES_PER_KEY)));
        assert!(!counted.has_signature(busy, 0, &signature(MAX_SIGNATURES_PER_KEY + 1)));
        assert_eq!(counted.remembered, 1 + MAX_SIGNATURES_PER_KEY);
        // Remembered for as long as it can be valid, and not forever.
        counted.move_on(at(SIGNATURE_SECONDS));
        assert!(counted.has_signature(quiet, 0, &signature(0)));
        counted.move_on(at(2 * SIGNATURE_SECONDS));
        assert!(!counted.has_signature(quiet, 0, &signature(0)));
    }

    /// Many keys fill the room. Nothing is forgotten for a new one, which is counted as before.
    #[test]
    fn what_is_remembered_is_bounded_in_all() {
        let mut counted = CountedSignatures::default();
        for n in 0..=MAX_SIGNATURES {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&(n as u64 / 64).to_be_bytes());
            counted.insert_signature(key, 1, Digest::of(&n.to_be_bytes()));
        }
        assert_eq!(counted.remembered, MAX_SIGNATURES);
        assert!(counted.has_signature([0; 32], 1, &Digest::of(&0_usize.to_be_bytes())));
    }
}
