//! How much a vault may store beyond its quota after keys were revoked, while it signs the skills
//! of these keys again: for each key, the most bytes and bundles that it signed in one release of
//! the last 30 days. The current release is not enough to tell it: a thief with a stolen key can
//! publish a release that names few skills.
//!
//! A release's list of objects ([`Closure`]) contains these amounts, and the list of the next
//! release takes them over. They are counted from stored bundles whose signatures the service has
//! verified, not from what a caller says. The key `None` stands for all keys together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use vault_format::keys::PublicKey;
use vault_format::time::Timestamp;

use super::Closure;
use crate::model::kept::FORMER_SECONDS;
use crate::model::usage::Amount;

/// Bytes by which a bundle may grow when another key signs it.
const SIGNED_AGAIN_BYTES: u64 = 4096;
/// Bound for the skills that a vault signs again beyond its quota, as a multiple of the quota. The owner
/// has the keys that sign revocations, so without this bound an owner could store any amount by
/// revoking key after key.
const MAX_QUOTAS: u64 = 4;

/// The largest number of bytes or bundles in one release, and the time until which that release
/// counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Peak {
    /// Number of bytes, or of bundles.
    number: u64,
    /// Time until which the number counts: 30 days after the release was replaced.
    until: Timestamp,
}

impl Peak {
    /// Returns the number if it counts at this time, and else 0.
    fn number_at(self, now: Timestamp) -> u64 {
        if now < self.until { self.number } else { 0 }
    }

    /// Records a number that counts for 30 days from now. If the stored number is larger and still
    /// counts, it stays and counts for these 30 days instead: one stored number suffices, and it is
    /// never too small.
    fn raise(&mut self, number: u64, now: Timestamp) {
        let number = number.max(self.number_at(now));
        let until = now.plus_seconds(FORMER_SECONDS);
        *self = Self { number, until };
    }

    /// Parses the two words that its `Display` writes; `None` if they have another form.
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let number = words.next()?.parse().ok()?;
        let until = Timestamp::from_unix(words.next()?.parse().ok()?);
        Some(Self { number, until })
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.until.unix())
    }
}

impl Default for Peak {
    fn default() -> Self {
        let until = Timestamp::from_unix(0);
        Self { number: 0, until }
    }
}

/// The most that a key has signed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct SignerPeak {
    /// Largest number of bytes in one release.
    bytes: Peak,
    /// Largest number of bundles in one release.
    objects: Peak,
}

impl SignerPeak {
    /// Parses the words that its `Display` writes; `None` if they have another form.
    pub(super) fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let bytes = Peak::parse(&mut words)?;
        let objects = Peak::parse(&mut words)?;
        words.next().is_none().then_some(Self { bytes, objects })
    }

    fn amount_at(self, now: Timestamp) -> Amount {
        Amount {
            bytes: self.bytes.number_at(now),
            objects: self.objects.number_at(now),
        }
    }
}

impl fmt::Display for SignerPeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.bytes, self.objects)
    }
}

/// The largest numbers of bytes and bundles that keys signed in former releases. Numbers that the
/// list's own release reaches are left out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SignedPeaks {
    /// The largest amounts by key; the key `None` stands for all keys together.
    pub(super) of_signers: BTreeMap<Option<PublicKey>, SignerPeak>,
}

impl SignedPeaks {
    /// Returns the peaks for the list `newer`, which replaces the list `older` now.
    pub fn carried(older: &Closure, newer: &Closure, now: Timestamp) -> Self {
        let mut peaks = older.signed.clone();
        peaks
            .of_signers
            .retain(|_, peak| peak.amount_at(now) != Amount::default());
        for (signer, amount) in older.signed_amounts() {
            let peak = peaks.of_signers.entry(signer).or_default();
            peak.bytes.raise(amount.bytes, now);
            peak.objects.raise(amount.objects, now);
        }
        // The newer release is measured itself as long as it is current, and then recorded.
        let own = newer.signed_amounts();
        peaks.of_signers.retain(|signer, peak| {
            let own = own.get(signer).copied().unwrap_or_default();
            peak.bytes.number > own.bytes || peak.objects.number > own.objects
        });
        peaks
    }
}

impl Closure {
    /// Returns how much a vault may sign again beyond its quota when `is_revoked` is true for some
    /// keys: the sum of the largest amounts that these keys signed in one release of the last 30 days.
    /// It is at most four times the quota, or the skills of the largest of these releases if they are
    /// more, as in a vault whose quota was lowered.
    pub fn measure_revoked(
        &self,
        is_revoked: impl Fn(&PublicKey) -> bool,
        quota: Amount,
        now: Timestamp,
    ) -> Amount {
        let own = self.signed_amounts();
        let most_of = |signer: &Option<PublicKey>| {
            let own = own.get(signer).copied().unwrap_or_default();
            let peak = self.signed.of_signers.get(signer);
            let peak = peak.map_or_else(Amount::default, |peak| peak.amount_at(now));
            let (bytes, objects) = (own.bytes.max(peak.bytes), own.objects.max(peak.objects));
            Amount {
                bytes: bytes.saturating_add(objects.saturating_mul(SIGNED_AGAIN_BYTES)),
                objects,
            }
        };
        let signers = own.keys().chain(self.signed.of_signers.keys());
        let revoked: BTreeSet<_> = signers
            .filter(|signer| signer.as_ref().is_some_and(&is_revoked))
            .collect();
        let again = revoked.into_iter().map(most_of);
        let again = again.fold(Amount::default(), |all, one| all + one);
        let largest = most_of(&None);
        let bound = |quota: u64, largest: u64| quota.saturating_mul(MAX_QUOTAS).max(largest);
        again.min(Amount {
            bytes: bound(quota.bytes, largest.bytes),
            objects: bound(quota.objects, largest.objects),
        })
    }

    /// Returns how much each key signed of the bundles, and all keys together.
    fn signed_amounts(&self) -> BTreeMap<Option<PublicKey>, Amount> {
        let mut amounts = BTreeMap::new();
        for node in self.nodes.values() {
            if node.signer.is_some() {
                for signer in [node.signer, None] {
                    let amount = amounts.entry(signer).or_insert_with(Amount::default);
                    *amount = *amount + Amount::of_object(node.size);
                }
            }
        }
        amounts
    }
}

#[cfg(test)]
mod tests {
    use vault_format::hash::Digest;
    use vault_format::keys::SecretKey;
    use vault_store::objects::Class;

    use super::super::Node;
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn key(n: u8) -> PublicKey {
        SecretKey::from_seed([n; 32]).public()
    }

    /// A release in which each of these keys has signed so many bundles of 1,000 bytes.
    fn release(signed: &[(u8, u8)]) -> Closure {
        let mut closure = Closure::default();
        for (seed, number) in signed {
            for n in 0..*number {
                let node = Node {
                    size: 1000,
                    signer: Some(key(*seed)),
                    children: Vec::new(),
                };
                closure.insert(Class::Bundles, Digest::of(&[*seed, n]), node);
            }
        }
        closure
    }

    /// Releases that follow one another, each on its day.
    fn releases(all: &[(i64, &[(u8, u8)])]) -> Closure {
        let mut current = Closure::default();
        for (day, signed) in all {
            let mut next = release(signed);
            let now = Timestamp::from_unix(day * DAY);
            next.signed = SignedPeaks::carried(&current, &next, now);
            current = Closure::parse(&next.to_bytes()).unwrap();
            assert_eq!(current, next);
        }
        current
    }

    /// Bundles that may be signed again on a day, after these keys were revoked, with a quota of 10.
    fn again(closure: &Closure, day: i64, revoked: &[u8]) -> u64 {
        again_beyond(10, closure, day, revoked)
    }

    /// The same with a quota of so many bundles.
    fn again_beyond(quota: u64, closure: &Closure, day: i64, revoked: &[u8]) -> u64 {
        let is_revoked = |signer: &PublicKey| revoked.iter().any(|seed| key(*seed) == *signer);
        let quota = Amount {
            bytes: quota * (1000 + SIGNED_AGAIN_BYTES),
            objects: quota,
        };
        let now = Timestamp::from_unix(day * DAY);
        let amount = closure.measure_revoked(is_revoked, quota, now);
        assert_eq!(amount.bytes, amount.objects * (1000 + SIGNED_AGAIN_BYTES));
        amount.objects
    }

    #[test]
    fn a_release_that_names_little_leaves_the_room_of_the_largest_for_30_days() {
        let thief = releases(&[(0, &[(1, 9)]), (1, &[(1, 10)]), (2, &[(1, 1)])]);
        assert_eq!(again(&thief, 2, &[]), 0);
        assert_eq!(again(&thief, 2, &[2]), 0);
        assert_eq!(again(&thief, 2, &[1]), 10);
        assert_eq!(again(&thief, 31, &[1]), 10);
        assert_eq!(again(&thief, 32, &[1]), 1);
        // The amount counts for as long, however many releases follow.
        let mut all: Vec<(i64, &[(u8, u8)])> = vec![(0, &[(1, 10)])];
        all.extend(vec![(1, &[(1, 1)][..]); 500]);
        all.push((2, &[]));
        let current = releases(&all);
        assert_eq!(again(&current, 30, &[1]), 10);
        assert_eq!(again(&current, 31, &[1]), 10);
        assert_eq!(again(&current, 32, &[1]), 0);
        // The last release before the thief's counts for 30 days too.
        let shrunk = releases(&[(0, &[(1, 10)]), (1, &[(1, 9)]), (30, &[(1, 1)])]);
        assert!(again(&shrunk, 32, &[1]) >= 9);
        assert!(again(&shrunk, 59, &[1]) >= 9);
        assert_eq!(again(&shrunk, 60, &[1]), 1);
        assert!(current.to_bytes().len() < 1000);
    }

    #[test]
    fn each_revocation_has_room_of_its_own_up_to_four_times_the_quota() {
        // Key after key is revoked, and the next one signs everything again.
        let mut all: Vec<(i64, &[(u8, u8)])> = Vec::new();
        let signed: [&[(u8, u8)]; 6] = [
            &[(1, 10)],
            &[(2, 10)],
            &[(3, 10)],
            &[(4, 10)],
            &[(5, 10)],
            &[(6, 10)],
        ];
        for (number, most) in [(1, 10), (2, 20), (3, 30), (4, 40), (5, 40), (6, 40)] {
            all.push((i64::from(number), signed[usize::from(number) - 1]));
            let revoked: Vec<u8> = (1..=number).collect();
            assert_eq!(again(&releases(&all), 6, &revoked), most, "{number}");
        }
        // The quota was lowered.
        assert_eq!(again_beyond(1, &releases(&all), 6, &[1, 2, 3]), 10);
        // Those whose 30 days are over make no room any more.
        assert_eq!(again(&releases(&all), 33, &[1, 2, 3]), 10);
        // Many keys that signed a part each count in full.
        let many = releases(&[(0, &[(1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2)])]);
        assert_eq!(again(&many, 0, &[1, 2, 3, 4, 5, 6]), 12);
    }
}
