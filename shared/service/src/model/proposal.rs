//! Proposed releases: what the record of one keeps, and how it stands by what its namespace has become.
//!
//! A proposal is judged against the namespace as it was when it came in. It waits as long as that is still so. Then it is accepted, if
//! its own payload was published, and outdated otherwise: a release follows one release under one root version, so what another one or
//! another root version has overtaken can never be published. This is derived whenever a proposal is read. Publishing writes nothing to
//! proposals; background work writes the outcome down later, so that their records end.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vault_format::catalog::Catalog;
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::draft::{DraftRecord, Ending, State};
use super::namespace::Namespace;
use super::release::{self, Release};

/// How long a proposal waits for signatures, in seconds: 14 days.
pub const PROPOSAL_SECONDS: i64 = 14 * 24 * 3600;

/// A release that lacks signatures.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Proposed {
    /// Its number.
    #[serde(rename = "proposed_release")]
    pub number: u64,
    /// The root version that it names.
    pub root_version: u64,
    /// SHA-256 of the payload of that version.
    pub root_sha256: Digest,
    /// SHA-256 of its own payload.
    pub payload_sha256: Digest,
    /// The keys of the release role whose signatures are good.
    pub signers: Vec<PublicKey>,
    /// What it was judged against.
    pub base: Base,
    /// The object of the class `closures` that lists what it names beyond the release that it follows.
    pub added: Digest,
    /// When it ends.
    pub ends_at: Timestamp,
}

/// What a namespace has, as far as a proposal builds on it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Base {
    /// SHA-256 of the payload of the current release.
    pub payload_sha256: Option<Digest>,
    /// SHA-256 of the payload of the pinned root version.
    pub root_sha256: Option<Digest>,
}

impl Base {
    /// What the namespace has now.
    pub fn of(namespace: &Namespace) -> Self {
        let current = namespace.current.as_ref();
        let pin = namespace.pin.vault();
        Self {
            payload_sha256: current.map(|current| current.payload_sha256),
            root_sha256: pin.map(|pin| pin.root_sha256),
        }
    }
}

impl Proposed {
    /// The proposal of this catalog in a namespace, which comes in now.
    pub fn new(
        catalog: &Catalog,
        payload_sha256: Digest,
        signers: Vec<PublicKey>,
        namespace: &Namespace,
        added: Digest,
        now: Timestamp,
    ) -> Self {
        Self {
            number: catalog.release,
            root_version: catalog.root_version,
            root_sha256: catalog.root_sha256,
            payload_sha256,
            signers,
            base: Base::of(namespace),
            added,
            ends_at: now.plus_seconds(PROPOSAL_SECONDS),
        }
    }

    /// Where the record of the release stands, if it was published.
    pub fn release_key(&self, namespace: &NamespaceId) -> RecordKey {
        release::key(namespace, self.root_version, self.number)
    }

    /// Whether the same signatures stand under the same payload.
    pub fn is_same(&self, other: &Self) -> bool {
        let keys = |proposed: &Self| BTreeSet::from_iter(proposed.signers.clone());
        self.payload_sha256 == other.payload_sha256 && keys(self) == keys(other)
    }

    /// How the proposal has ended, `None` while it waits. `published` is the release under its own number and root version, if there is
    /// one.
    fn outcome(
        &self,
        namespace: &Namespace,
        published: Option<&Release>,
        now: Timestamp,
    ) -> Option<Ending> {
        let ending = |state, at, release| Ending {
            state,
            at,
            release,
            reason: None,
        };
        let is_it = |release: &&Release| release.payload_sha256 == self.payload_sha256;
        if let Some(release) = published.filter(is_it) {
            return Some(ending(
                State::Accepted,
                release.published_at,
                Some(release.release),
            ));
        }
        let has = Base::of(namespace);
        // The file may bring root versions of its own: they are no other ones when they are pinned first.
        let same_root =
            has.root_sha256 == self.base.root_sha256 || has.root_sha256 == Some(self.root_sha256);
        if has.payload_sha256 != self.base.payload_sha256 || !same_root {
            let current = namespace.current.as_ref();
            let at = current.map_or(now, |current| current.published_at);
            return Some(ending(State::Outdated, at, None));
        }
        (now >= self.ends_at).then(|| ending(State::Outdated, self.ends_at, None))
    }
}

impl DraftRecord {
    /// The draft as it stands now: a proposal that waits by its record may have ended. `published` is as in [`Proposed`].
    #[must_use]
    pub fn standing(
        self,
        namespace: &Namespace,
        published: Option<&Release>,
        now: Timestamp,
    ) -> Self {
        let waits = self.state == State::Pending;
        let outcome = self
            .proposed()
            .filter(|_| waits)
            .and_then(|proposed| proposed.outcome(namespace, published, now));
        match outcome {
            // Never before it came in.
            Some(mut ending) => {
                ending.at = ending.at.max(self.submitted_at);
                self.ended(&ending)
            }
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use vault_format::draft::Submitter;
    use vault_format::name::DraftId;
    use vault_format::root::VaultId;
    use vault_testing::{SeededRandom, TestClock};

    use super::*;
    use crate::model::draft::Subject;
    use crate::model::namespace::{Current, Kind, Pin, Pinned};

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix(seconds)
    }

    /// A namespace with this payload current since second 50, under this root.
    fn namespace(payload: Option<&str>, root: Option<&str>) -> Namespace {
        let slug = "acme".parse().unwrap();
        let owner = "ada@example.org".to_owned();
        let (clock, random) = (TestClock::new(at(0)), SeededRandom::new(1));
        let mut namespace = Namespace::new(slug, Kind::Hosted, owner, &clock, &random);
        namespace.current = payload.map(|payload| Current {
            release: 1,
            sha256: digest(payload),
            size: 1,
            payload_sha256: digest(payload),
            fingerprint: None,
            closure: digest("closure"),
            skills: 0,
            published_at: at(50),
        });
        namespace.pin = root.map_or(Pinned::Nothing, |root| {
            Pinned::Vault(Pin {
                vault_id: VaultId::derive(&digest("root 1")),
                root1_sha256: digest("root 1"),
                root_version: 1,
                root_sha256: digest(root),
                revoked: BTreeSet::new(),
                signers: Vec::new(),
            })
        });
        namespace
    }

    fn release(payload: &str) -> Release {
        Release {
            release: 2,
            root_version: 1,
            sha256: digest(payload),
            payload_sha256: digest(payload),
            published_at: at(40),
            by: "usr_1".to_owned(),
            added: 0,
            changed: 0,
            removed: 0,
        }
    }

    /// The proposal of `new`, whose root is `own`, on top of `old` under `root 1`, from second 20 on.
    fn record() -> DraftRecord {
        let proposed = Proposed {
            number: 2,
            root_version: 1,
            root_sha256: digest("own"),
            payload_sha256: digest("new"),
            signers: Vec::new(),
            base: Base::of(&namespace(Some("old"), Some("root 1"))),
            added: digest("added"),
            ends_at: at(20 + PROPOSAL_SECONDS),
        };
        let by = Submitter {
            user_id: "usr_1".to_owned(),
            client_id: None,
        };
        let id = DraftId::from_parts(1, 1);
        DraftRecord::new(id, Subject::Release(proposed), b"file", at(20), by)
    }

    #[test]
    fn a_proposal_waits_while_its_namespace_is_as_it_was_judged() {
        let waits = |payload, root, published: Option<&str>, now| {
            let published = published.map(release);
            let has = namespace(payload, root);
            let standing = record().standing(&has, published.as_ref(), at(now));
            (standing.state, standing.changed_at.unix(), standing.release)
        };
        let end = 20 + PROPOSAL_SECONDS;
        let (old, root) = (Some("old"), Some("root 1"));
        let pending = (State::Pending, 20, None);
        let outdated = (State::Outdated, 50, None);
        assert_eq!(waits(old, root, None, 21), pending);
        assert_eq!(waits(old, root, None, end - 1), pending);
        assert_eq!(waits(old, root, None, end), (State::Outdated, end, None));
        // The root versions that it brings itself.
        assert_eq!(waits(old, Some("own"), None, 60), pending);
        // The same payload, now or before another one.
        let accepted = (State::Accepted, 40, Some(2));
        assert_eq!(waits(Some("new"), Some("own"), Some("new"), 60), accepted);
        assert_eq!(waits(Some("newer"), root, Some("new"), 60), accepted);
        assert_eq!(waits(Some("newer"), root, Some("new"), end), accepted);
        // Another release, under its own number or not; another root version; a reset of the pin.
        assert_eq!(waits(Some("other"), root, Some("other"), 60), outdated);
        assert_eq!(waits(Some("other"), root, None, 60), outdated);
        assert_eq!(waits(old, Some("root 2"), None, 60), outdated);
        assert_eq!(waits(old, None, None, 60), outdated);
        assert_eq!(waits(None, root, None, 60), (State::Outdated, 60, None));
    }

    #[test]
    fn what_a_person_decided_about_a_proposal_stays() {
        let declined = record().ended(&Ending {
            state: State::Declined,
            at: at(30),
            release: None,
            reason: Some("no".to_owned()),
        });
        let has = namespace(Some("new"), Some("own"));
        let later = declined
            .clone()
            .standing(&has, Some(&release("new")), at(99));
        assert_eq!(later, declined);
    }
}
