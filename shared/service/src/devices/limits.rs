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

use super::VerifiedRequest;
use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::device;
use crate::model::limits::{Network, Source, Window, count_or_refuse, networks_of};

/// The length of every window of this module, in seconds.
const MINUTE: i64 = 60;
/// Number of classes of routes, each with its own count: catalogs, and bundles.
const CLASSES: u32 = 2;

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
    request: &VerifiedRequest<'_>,
) -> Result<(), Refusal> {
    let limits = &app.config.limits;
    let (class, limit) = match request.path {
        Route::Bundle { .. } => (1, limits.bundles_per_device),
        _ => (0, limits.catalog_per_device),
    };
    let now = app.clock.now();
    reads.count_request(request.signer, request.source, (class, limit), now)
}

/// Reads in the running minute, by key and class of route, and the signatures that were counted.
#[derive(Debug, Default)]
pub(super) struct ReadLimits(Mutex<ReadCounts>);

#[derive(Debug, Default)]
struct ReadCounts {
    minute: MinuteCounts,
    signatures: CountedSignatures,
}

/// Bytes of a device's public key.
type KeyBytes = [u8; 32];

/// Subject of a count.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Subject {
    /// A device, by its key.
    Key(KeyBytes),
    /// Requests of a device that arrive again after they were counted for it: a caller with copies
    /// of them can send them, and must not use up the device's reads.
    RepeatsOf(KeyBytes),
    /// All keys of a network that have no count of their own.
    RestOf(String),
    /// All keys of all networks that have no count of their own.
    Rest,
}

/// Maximum number of admitted devices, and of repeats, that are counted on their own in one minute.
const MAX_ADMITTED: usize = 131_072;
/// Maximum number of other keys that are counted on their own in one minute. Anyone can make keys,
/// so these have no part in the room of admitted devices.
const MAX_OTHERS: usize = 65_536;
/// Maximum number of other keys of one IPv4 address, or one /64 of IPv6, that are counted on their
/// own; a wider network has four times as many, as with every limit.
const MAX_OTHERS_PER_SOURCE: u32 = 1024;
/// Maximum number of networks whose remaining keys are counted together.
const MAX_NETWORKS: usize = 65_536;

/// Counts of one minute.
///
/// No count is dropped before its minute ends, and none makes room at the cost of another: a key
/// for which there is no room shares the count of its network. So a caller with any number of keys
/// resets no count, and slows down its own network alone.
#[derive(Debug, Default)]
struct MinuteCounts {
    start: i64,
    counts: HashMap<(Subject, u32), u32>,
    admitted: usize,
    others: usize,
    /// Number of other keys that are counted on their own, by network.
    by_network: HashMap<String, u32>,
    /// Number of networks whose remaining keys are counted together.
    shared: usize,
}

impl MinuteCounts {
    /// Drops the counts if their minute is over.
    fn move_on(&mut self, now: Timestamp) {
        // Windows begin with the minutes of the clock, so one start serves all keys.
        let start = now.unix() - now.unix().rem_euclid(MINUTE);
        if self.start != start {
            *self = Self {
                start,
                ..Self::default()
            };
        }
    }

    /// Counts a request of `subject`. Returns whether its count, or the one that it shares, was
    /// below the limit.
    fn count(
        &mut self,
        subject: Subject,
        is_admitted: bool,
        source: Option<IpAddr>,
        (class, limit): (u32, u32),
    ) -> bool {
        let mut entry = (subject, class);
        // A count that exists is used on, also by a device that was admitted in the meantime.
        // Otherwise it could be left for an empty one.
        if !self.counts.contains_key(&entry)
            && let Some(shared) = self.find_shared(is_admitted, source)
        {
            entry.0 = shared;
        }
        let count = self.counts.entry(entry).or_default();
        let is_below = *count < limit;
        *count += u32::from(is_below);
        is_below
    }

    /// Takes room for a further count. If there is none, returns the subject that is counted
    /// instead.
    fn find_shared(&mut self, is_admitted: bool, source: Option<IpAddr>) -> Option<Subject> {
        if is_admitted && self.admitted < MAX_ADMITTED {
            self.admitted += 1;
            return None;
        }
        let networks = networks_of(source);
        let is_full = |network: &&Network| {
            let counted = self.by_network.get(&network.name);
            counted.is_some_and(|counted| *counted >= MAX_OTHERS_PER_SOURCE * network.share)
        };
        let full = match networks.iter().find(is_full) {
            Some(network) => Some(network),
            // The widest one: its narrower ones may be without number.
            None if self.others >= MAX_OTHERS => networks.last(),
            None => None,
        };
        let Some(full) = full else {
            self.others += 1;
            for network in networks {
                *self.by_network.entry(network.name).or_default() += 1;
            }
            return None;
        };
        let shared = Subject::RestOf(full.name.clone());
        let is_known = (0..CLASSES).any(|class| {
            let entry = (shared.clone(), class);
            self.counts.contains_key(&entry)
        });
        if !is_known && self.shared >= MAX_NETWORKS {
            return Some(Subject::Rest);
        }
        self.shared += usize::from(!is_known);
        Some(shared)
    }
}

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
        source: Option<IpAddr>,
        (class, limit): (u32, u32),
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if limit == 0 {
            return Ok(());
        }
        // A panic cannot leave counts that are unusable, so a poisoned lock is used on.
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reads.minute.move_on(now);
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
        let is_admitted = signature.is_some();
        if !reads
            .minute
            .count(subject, is_admitted, source, (class, limit))
        {
            let left = u64::try_from(reads.minute.start + MINUTE - now.unix()).unwrap_or(1);
            return Err(Refusal::new(ErrorCode::RateLimited).retry_after(left));
        }
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

    const LIMIT: (u32, u32) = (0, 3);

    fn key_number(n: u64) -> Subject {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        Subject::Key(key)
    }

    fn address(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    /// The networks of one /48 have all the keys that they like.
    #[test]
    fn a_caller_with_many_keys_resets_no_count_and_slows_down_its_own_network() {
        let mut counts = MinuteCounts::default();
        counts.move_on(Timestamp::from_unix(0));
        let (device, newcomer) = (key_number(1), key_number(2));
        let home = address("192.0.2.1");
        for _ in 0..3 {
            assert!(counts.count(device.clone(), true, home, LIMIT));
            assert!(counts.count(newcomer.clone(), false, home, LIMIT));
        }
        let mut answered = 0;
        for n in 0..200_000_u64 {
            let source = address(&format!("2001:db8:1:{:x}::1", n % 65_536));
            answered += usize::from(counts.count(key_number(100 + n), false, source, LIMIT));
        }
        // A /48 has 16 times the keys of one source, and then one count for all others.
        assert_eq!(answered, 16 * 1024 + 3);
        assert!(!counts.count(device, true, home, LIMIT), "still full");
        assert!(!counts.count(newcomer, false, home, LIMIT), "still full");
        for source in [home, address("2001:db8:2::1")] {
            assert!(counts.count(key_number(9_000_000), false, source, LIMIT));
        }
        assert!(counts.count(key_number(9_000_001), true, address("2001:db8:1::1"), LIMIT));
        counts.move_on(Timestamp::from_unix(MINUTE));
        assert!(
            counts.count(key_number(1), true, home, LIMIT),
            "a new minute"
        );
        assert_eq!(counts.counts.len(), 1);
    }

    /// Also where all room is taken, a network has a count of its own.
    #[test]
    fn a_caller_with_many_networks_leaves_each_other_network_its_count() {
        let mut counts = MinuteCounts::default();
        for n in 0..100_000_u64 {
            let source = address(&format!("2001:db8:{:x}:{:x}::1", n / 16_384, n % 16_384));
            counts.count(key_number(n), false, source, LIMIT);
        }
        assert_eq!(counts.others, MAX_OTHERS);
        for (n, answered) in [true, true, true, false].into_iter().enumerate() {
            let key = key_number(9_000_000 + n as u64);
            let found = counts.count(key, false, address("192.0.2.1"), LIMIT);
            assert_eq!(found, answered, "{n}");
        }
        assert!(counts.count(key_number(9_100_000), true, address("192.0.2.1"), LIMIT));
        assert!(counts.counts.len() <= MAX_OTHERS + MAX_ADMITTED + counts.shared);
    }

    /// A device that is admitted goes on with the count that it has.
    #[test]
    fn an_admission_gives_no_second_count() {
        let mut counts = MinuteCounts::default();
        let home = address("192.0.2.1");
        for n in 0..4 {
            let is_below = counts.count(key_number(1), n > 0, home, LIMIT);
            assert_eq!(is_below, n < 3, "{n}");
        }
    }
}
