//! Rate limits of the device routes: enrolments by namespace and network, reads by device.
//!
//! Enrolments are counted in the store, for all processes together, because unauthenticated callers
//! can make them. Reads are counted in the memory of this process, because a count in the store
//! would cost more than the read. Behind a gateway that throttles, the limits on reads are switched
//! off.
//!
//! A *copy* is a request that arrives again with the same signature, for example because somebody
//! captured it. Copies must not use up the reads of the device that signed them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::request::MAX_SKEW_SECONDS;
use vault_format::request::route::Route;
use vault_format::time::Timestamp;

use super::VerifiedRequest;
use super::enrolled;
use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::device;
use crate::model::limits::{Network, NetworkLimit, Networks, Window, count_or_refuse};

/// Length of every window of this module, in seconds.
const MINUTE: i64 = 60;
/// Number of classes of routes with a count of their own: catalogs and bundles.
const CLASSES: u32 = 2;

/// Counts an enrolment of a key that is not enrolled yet, by slug and network and by network alone.
/// Returns the windows that counted it. Fails with 429 and `Retry-After`.
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
    // A known key only reads its state and creates nothing, so it needs no limit.
    let device_key = device::device_key(slug, signer.key_text());
    if app.records.get_one(&device_key).await?.is_some() {
        return Ok(Vec::new());
    }
    let networks = Networks::of(source);
    let windows = |name, about, limit| {
        let limit = NetworkLimit {
            name,
            about,
            limit,
            seconds: MINUTE,
        };
        limit.windows(&networks)
    };
    // The first limit bounds a flood at one vault, the second also a network that probes one name
    // after another.
    let at_vault = windows("enrol-slug", Some(slug.to_string()), limits.enrol_per_slug);
    let windows = [
        at_vault,
        windows("enrol-source", None, limits.enrol_per_source),
    ]
    .concat();
    count_or_refuse(app, &windows, app.clock.now()).await?;
    Ok(windows)
}

/// Counts a read of a device. Returns whether the request is a copy of one that was counted before.
/// Fails with 429 and `Retry-After`.
pub(super) async fn count_read(
    app: &App,
    reads: &ReadLimits,
    request: &VerifiedRequest<'_>,
) -> Result<bool, Refusal> {
    let limits = &app.config.limits;
    let (class, limit) = match request.path {
        Route::Bundle { .. } => (1, limits.bundles_per_device),
        _ => (0, limits.catalog_per_device),
    };
    // The budget of the namespace also needs to know which requests are copies.
    if limit == 0 && limits.reads_per_namespace == 0 {
        return Ok(false);
    }
    let (slug, signer, now) = (request.path.slug(), request.signer, app.clock.now());
    let is_admitted = signer.is_admitted_by(slug);
    let read = DeviceRead {
        slug,
        key: *signer.key().as_bytes(),
        signature: signer.signature_hash(),
        networks: Networks::of(request.source),
        class,
        limit,
    };
    let refused = match reads.count_read(&read, is_admitted, now) {
        ReadCount::Below { is_repeated } => return Ok(is_repeated),
        refused => refused,
    };
    // After a restart, this process does not know which keys are admitted. Looking the key up
    // before a refusal keeps a flood of other keys in the same network from blocking an admitted
    // machine.
    if refused == ReadCount::SharedFull
        && !is_admitted
        && enrolled::is_admitted(app, slug, signer).await?
    {
        signer.cache_key(slug);
        if let ReadCount::Below { is_repeated } = reads.count_read(&read, true, now) {
            return Ok(is_repeated);
        }
    }
    let left = u64::try_from(MINUTE - now.unix().rem_euclid(MINUTE)).unwrap_or(1);
    Err(Refusal::new(ErrorCode::RateLimited).retry_after(left))
}

/// A read by a device, as it is counted.
struct DeviceRead<'a> {
    slug: &'a Slug,
    key: KeyBytes,
    /// SHA-256 of the text of the request's signature, by which a copy is recognised.
    signature: Digest,
    networks: Networks,
    /// Class of the route: 0 for catalogs, 1 for bundles.
    class: u32,
    /// Maximum number of reads of the class in a minute; 0 for no limit.
    limit: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ReadCount {
    Below {
        /// Whether the request is a copy of one that was counted before.
        is_repeated: bool,
    },
    /// The device has used up its own reads.
    Full,
    /// The count that the key shares with other keys is used up.
    SharedFull,
}

/// Room for the entries of many vaults. A vault may take at most as many places as are still free:
/// so one vault alone gets at most half of the room, and each further one always finds some.
#[derive(Debug, Default)]
struct SharedCapacity {
    taken: usize,
    by_vault: HashMap<Slug, usize>,
}

impl SharedCapacity {
    /// Takes one of `most` places. Returns false if the vault may take no more.
    fn take_place(&mut self, slug: &Slug, most: usize) -> bool {
        let held = self.by_vault.get(slug).copied().unwrap_or_default();
        if held >= most.saturating_sub(self.taken) {
            return false;
        }
        self.taken += 1;
        *self.by_vault.entry(slug.clone()).or_default() += 1;
        true
    }
}

/// Counts of the reads in the current minute, by key and class of route, and the signatures that
/// were counted.
#[derive(Debug, Default)]
pub(super) struct ReadLimits(Mutex<ReadCounts>);

#[derive(Debug, Default)]
struct ReadCounts {
    minute: MinuteCounts,
    signatures: CountedSignatures,
}

type KeyBytes = [u8; 32];

/// What a count is about.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Subject {
    Key(KeyBytes),
    /// All copies of requests of a device. Anyone who captured requests can send them, and must not
    /// use up the device's own reads.
    RepeatsOf(KeyBytes),
    /// All keys of one network that have no count of their own.
    RestOf(String),
    /// All keys of all networks that have neither a count of their own nor one of their network.
    Rest,
}

/// Maximum number of counts of admitted devices and of their copies, in one minute.
const MAX_ADMITTED: usize = 131_072;
/// Maximum number of counts of keys that are not admitted, in one minute. Anyone can make such
/// keys, so they take no room from admitted devices.
const MAX_OTHERS: usize = 65_536;
/// Maximum number of counts of keys that are not admitted, for one IPv4 address or one /64 of IPv6.
/// A wider network may have four times as many as the one inside it, as with every limit.
const MAX_OTHERS_PER_SOURCE: u32 = 1024;
/// Maximum number of networks with a shared count, for their keys beyond the maximum of own counts.
const MAX_NETWORKS: usize = 65_536;

/// The counts of one minute.
///
/// No count is dropped before its minute ends, and none displaces another: a key for which there is
/// no room shares the count of its network. So a caller with any number of keys cannot reset a
/// count, and slows down only its own network.
#[derive(Debug, Default)]
struct MinuteCounts {
    start: i64,
    /// Reads so far, by subject and class of route.
    counts: HashMap<(Subject, u32), u32>,
    admitted: SharedCapacity,
    /// Number of counts of keys that are not admitted.
    others: usize,
    /// Number of counts of keys that are not admitted, by network.
    by_network: HashMap<String, u32>,
    /// Number of networks with a shared count.
    shared: usize,
}

impl MinuteCounts {
    /// Drops the counts if their minute is over.
    fn roll_over(&mut self, now: Timestamp) {
        // Windows begin with the minutes of the clock, so all keys share one start.
        let start = now.unix() - now.unix().rem_euclid(MINUTE);
        if self.start != start {
            *self = Self {
                start,
                ..Self::default()
            };
        }
    }

    /// Counts a read of `subject`, in its own count or in a shared one. Returns which of them is
    /// full, if the read is over the limit.
    fn count(
        &mut self,
        subject: Subject,
        is_admitted: bool,
        read: &DeviceRead<'_>,
    ) -> Option<ReadCount> {
        let mut entry = (subject, read.class);
        let mut full = ReadCount::Full;
        // An existing count stays in use, even if the device was admitted meanwhile: otherwise it
        // could be exchanged for an empty one.
        if !self.counts.contains_key(&entry)
            && let Some(shared) = self.find_shared_subject(is_admitted, read)
        {
            entry.0 = shared;
            full = ReadCount::SharedFull;
        }
        let count = self.counts.entry(entry).or_default();
        if *count >= read.limit {
            return Some(full);
        }
        *count += 1;
        None
    }

    /// Takes room for a new count. If there is none, returns the subject that is counted instead.
    fn find_shared_subject(&mut self, is_admitted: bool, read: &DeviceRead<'_>) -> Option<Subject> {
        if is_admitted && self.admitted.take_place(read.slug, MAX_ADMITTED) {
            return None;
        }
        let is_full = |network: &Network<'_>| {
            let counted = self.by_network.get(network.name);
            counted.is_some_and(|counted| *counted >= MAX_OTHERS_PER_SOURCE * network.share)
        };
        let full = match read.networks.narrowest_first().find(is_full) {
            Some(network) => Some(network.name),
            // The widest network shares the count, because it may contain any number of narrower
            // ones.
            None if self.others >= MAX_OTHERS => Some(read.networks.widest()),
            None => None,
        };
        let Some(full) = full else {
            self.others += 1;
            for network in read.networks.narrowest_first() {
                *self.by_network.entry(network.name.to_owned()).or_default() += 1;
            }
            return None;
        };
        let shared = Subject::RestOf(full.to_owned());
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

/// Maximum number of signatures of one key and class of route that are stored in one period. It is
/// more than the default limit on catalogs allows. A copy of a request beyond it counts for the
/// device itself, as do all requests of keys that are not admitted.
const MAX_SIGNATURES_PER_KEY: usize = 2048;
/// Maximum number of signatures that are stored in one period. Beyond it, or beyond the share of a
/// vault, new ones are not stored and none is dropped early: no key displaces another's signatures.
const MAX_SIGNATURES: usize = 131_072;
/// Length of a period, in seconds: the longest time for which a signature is valid.
const SIGNATURE_SECONDS: i64 = 2 * MAX_SKEW_SECONDS.cast_signed();

/// Signatures of one period, by key and class of route.
type SignaturesByKey = HashMap<(KeyBytes, u32), HashSet<Digest>>;

/// Signatures of requests that were counted for their devices, in the present period and the
/// previous one.
#[derive(Debug, Default)]
struct CountedSignatures {
    start: i64,
    present: SignaturesByKey,
    before: SignaturesByKey,
    /// The room that the signatures of `present` take.
    remembered: SharedCapacity,
}

impl CountedSignatures {
    /// Begins a new period if the present one is over.
    fn roll_over(&mut self, now: Timestamp) {
        let start = now.unix() - now.unix().rem_euclid(SIGNATURE_SECONDS);
        if self.start != start {
            self.start = start;
            self.before = std::mem::take(&mut self.present);
            self.remembered = SharedCapacity::default();
        }
    }

    fn has_signature(&self, read: &DeviceRead<'_>) -> bool {
        [&self.present, &self.before]
            .into_iter()
            .filter_map(|period| period.get(&(read.key, read.class)))
            .any(|signatures| signatures.contains(&read.signature))
    }

    /// Stores a signature, unless its key or its vault has too many, or all together are too many.
    fn insert_signature(&mut self, read: &DeviceRead<'_>) {
        let entry = (read.key, read.class);
        let held = self.present.get(&entry).map_or(0, HashSet::len);
        if held >= MAX_SIGNATURES_PER_KEY || self.has_signature(read) {
            return;
        }
        if self.remembered.take_place(read.slug, MAX_SIGNATURES) {
            let of_key = self.present.entry(entry).or_default();
            of_key.insert(read.signature);
        }
    }
}

impl ReadLimits {
    fn count_read(&self, read: &DeviceRead<'_>, is_admitted: bool, now: Timestamp) -> ReadCount {
        // A panic cannot leave unusable counts, so a poisoned lock is still used.
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reads.minute.roll_over(now);
        reads.signatures.roll_over(now);
        // Only signatures of admitted keys are stored, so that other keys take up no room.
        let is_repeated = is_admitted && reads.signatures.has_signature(read);
        // All copies of a device's requests share one count: with one for each signature, a device
        // could read without limit by sending a few signatures again and again.
        let subject = if is_repeated {
            Subject::RepeatsOf(read.key)
        } else {
            Subject::Key(read.key)
        };
        if read.limit > 0
            && let Some(full) = reads.minute.count(subject, is_admitted, read)
        {
            return full;
        }
        if is_admitted && !is_repeated {
            reads.signatures.insert_signature(read);
        }
        ReadCount::Below { is_repeated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(name: &str) -> Slug {
        name.parse().unwrap()
    }

    fn key_bytes(n: u64) -> KeyBytes {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    }

    /// A read with the signature of this number.
    fn read(slug: &Slug, key: u64, signature: usize) -> DeviceRead<'_> {
        DeviceRead {
            slug,
            key: key_bytes(key),
            signature: Digest::of(&signature.to_be_bytes()),
            networks: Networks::of("192.0.2.1".parse().ok()),
            class: 0,
            limit: 3,
        }
    }

    /// A device that sends without end fills only its own room.
    #[test]
    fn one_key_makes_no_other_signature_forgotten() {
        let at = Timestamp::from_unix;
        let acme = vault("acme");
        let quiet = read(&acme, 1, 0);
        let busy = |n| read(&acme, 2, n);
        let mut counted = CountedSignatures::default();
        counted.roll_over(at(0));
        counted.insert_signature(&quiet);
        for n in 1..=2 * MAX_SIGNATURES {
            counted.insert_signature(&busy(n));
            counted.roll_over(at(1));
        }
        assert!(counted.has_signature(&quiet));
        assert!(counted.has_signature(&busy(MAX_SIGNATURES_PER_KEY)));
        assert!(!counted.has_signature(&busy(MAX_SIGNATURES_PER_KEY + 1)));
        assert_eq!(counted.remembered.taken, 1 + MAX_SIGNATURES_PER_KEY);
        // A signature is stored for as long as it is valid, and not forever.
        counted.roll_over(at(SIGNATURE_SECONDS));
        assert!(counted.has_signature(&quiet));
        counted.roll_over(at(2 * SIGNATURE_SECONDS));
        assert!(!counted.has_signature(&quiet));
    }

    /// No signature is dropped for a new one, which then counts as before. A vault with many
    /// machines leaves the others their share.
    #[test]
    fn what_is_remembered_is_bounded_for_each_vault_and_in_all() {
        let mut counted = CountedSignatures::default();
        let (acme, bolt) = (vault("acme"), vault("bolt"));
        let mut most = MAX_SIGNATURES;
        for slug in [&acme, &bolt] {
            for n in 0..=MAX_SIGNATURES {
                let key = n as u64 / 64 + u64::from(slug == &bolt) * 1_000_000;
                counted.insert_signature(&read(slug, key, n));
            }
            assert!(counted.has_signature(&read(&acme, 0, 0)));
            most /= 2;
            assert_eq!(counted.remembered.by_vault[slug], most);
        }
        assert!(counted.has_signature(&read(&bolt, 1_000_000, 0)));
        let last = vault("later");
        counted.insert_signature(&read(&last, 9_000_000, 1));
        assert!(counted.has_signature(&read(&last, 9_000_000, 1)));
    }

    /// Counts a read of a key from an address. Returns whether it is answered.
    fn answers(counts: &mut MinuteCounts, key: u64, is_admitted: bool, source: &str) -> bool {
        let acme = vault("acme");
        let read = DeviceRead {
            networks: Networks::of(source.parse().ok()),
            ..read(&acme, key, 0)
        };
        let full = counts.count(Subject::Key(read.key), is_admitted, &read);
        full.is_none()
    }

    const HOME: &str = "192.0.2.1";

    /// A caller with a /48 can use any number of keys, but not get any number of counts.
    #[test]
    fn a_caller_with_many_keys_resets_no_count_and_slows_down_its_own_network() {
        let mut counts = MinuteCounts::default();
        counts.roll_over(Timestamp::from_unix(0));
        let (device, newcomer) = (1, 2);
        for _ in 0..3 {
            assert!(answers(&mut counts, device, true, HOME));
            assert!(answers(&mut counts, newcomer, false, HOME));
        }
        let mut answered = 0;
        for n in 0..200_000_u64 {
            let source = format!("2001:db8:1:{:x}::1", n % 65_536);
            answered += usize::from(answers(&mut counts, 100 + n, false, &source));
        }
        // A /48 has 16 times the counts of one address, and then one shared count.
        assert_eq!(answered, 16 * 1024 + 3);
        assert!(!answers(&mut counts, device, true, HOME), "still full");
        assert!(!answers(&mut counts, newcomer, false, HOME), "still full");
        for source in [HOME, "2001:db8:2::1"] {
            assert!(answers(&mut counts, 9_000_000, false, source));
        }
        assert!(answers(&mut counts, 9_000_001, true, "2001:db8:1::1"));
        counts.roll_over(Timestamp::from_unix(MINUTE));
        assert!(answers(&mut counts, device, true, HOME), "a new minute");
        assert_eq!(counts.counts.len(), 1);
    }

    /// Even if all room is taken, a network has a count of its own.
    #[test]
    fn a_caller_with_many_networks_leaves_each_other_network_its_count() {
        let mut counts = MinuteCounts::default();
        for n in 0..100_000_u64 {
            let source = format!("2001:db8:{:x}:{:x}::1", n / 16_384, n % 16_384);
            answers(&mut counts, n, false, &source);
        }
        assert_eq!(counts.others, MAX_OTHERS);
        for (n, answered) in [true, true, true, false].into_iter().enumerate() {
            let found = answers(&mut counts, 9_000_000 + n as u64, false, HOME);
            assert_eq!(found, answered, "{n}");
        }
        assert!(answers(&mut counts, 9_100_000, true, HOME));
        assert!(counts.counts.len() <= MAX_OTHERS + MAX_ADMITTED + counts.shared);
    }

    /// A device that is admitted keeps the count that it has.
    #[test]
    fn an_admission_gives_no_second_count() {
        let mut counts = MinuteCounts::default();
        for n in 0..4 {
            let is_below = answers(&mut counts, 1, n > 0, HOME);
            assert_eq!(is_below, n < 3, "{n}");
        }
    }
}
