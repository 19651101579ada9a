//! The present state of a proposal, derived from the state of its namespace. A proposal is a draft
//! with a release that lacks signatures.
//!
//! A proposal was checked against the namespace as it was at its submission, and is pending while
//! that is unchanged. Afterwards it is accepted if its own payload was published, and outdated
//! otherwise: a release follows one particular release under one root version, so after another
//! release or root version the proposal can never be published. The state is derived whenever a
//! proposal is read. Publishing writes nothing to proposals; background work records the outcome
//! later, so that their records can expire.

use vault_format::time::Timestamp;

use super::draft::{DraftRecord, Ending, State};
use super::namespace::Namespace;
use super::proposal::{Base, Proposed};
use super::release::Release;

impl DraftRecord {
    /// Returns the draft in its present state: a proposal whose record is pending may have ended.
    /// `published` is the release with the proposal's number and root version, if there is one.
    #[must_use]
    pub fn with_present_state(
        self,
        namespace: &Namespace,
        published: Option<&Release>,
        now: Timestamp,
    ) -> Self {
        let waits = self.state == State::Pending;
        let ending = self
            .proposed()
            .filter(|_| waits)
            .and_then(|proposed| proposal_ending(proposed, namespace, published, now));
        match ending {
            // A draft must not end before its submission.
            Some(mut ending) => {
                ending.at = ending.at.max(self.submitted_at);
                self.into_ended(&ending)
            }
            None => self,
        }
    }
}

/// Returns the ending of the proposal, or `None` while it is pending. `published` is the release
/// with its number and root version, if there is one.
fn proposal_ending(
    proposed: &Proposed,
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
    let is_it = |release: &&Release| release.payload_sha256 == proposed.payload_sha256;
    if let Some(release) = published.filter(is_it) {
        return Some(ending(
            State::Accepted,
            release.published_at,
            Some(release.release),
        ));
    }
    let has = Base::of_namespace(namespace);
    // A proposal may contain new root versions. If exactly these were pinned meanwhile, the
    // proposal can still be published.
    let same_root = has.root_sha256 == proposed.base.root_sha256
        || has.root_sha256 == Some(proposed.root_sha256);
    if has.payload_sha256 != proposed.base.payload_sha256 || !same_root {
        let current = namespace.current.as_ref();
        let at = current.map_or(now, |current| current.published_at);
        return Some(ending(State::Outdated, at, None));
    }
    (now >= proposed.ends_at).then(|| ending(State::Outdated, proposed.ends_at, None))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::ports::Ports;
    use std::sync::Arc;
    use vault_format::draft::Submitter;
    use vault_format::hash::Digest;
    use vault_format::name::DraftId;
    use vault_format::root::VaultId;
    use vault_testing::TestClock;

    use super::*;
    use crate::model::draft::Subject;
    use crate::model::namespace::{Current, Kind, Pin, Pinned};
    use crate::model::proposal::PROPOSAL_SECONDS;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix(seconds)
    }

    /// A namespace in which a release with this payload became current at second 50, under the root
    /// version with this payload.
    fn namespace(payload: Option<&str>, root: Option<&str>) -> Namespace {
        let slug = "acme".parse().unwrap();
        let owner = "ada@example.org".to_owned();
        let ports = Ports::in_memory(Arc::new(TestClock::new(at(0))));
        let mut namespace = Namespace::new(slug, Kind::Hosted, owner, &ports);
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
            skills: None,
            signers: Vec::new(),
        }
    }

    /// A proposal of the release `new` with the root version `own`. It was submitted at second 20
    /// to a namespace with the release `old` and the root version `root 1`.
    fn record() -> DraftRecord {
        let proposed = Proposed {
            number: 2,
            root_version: 1,
            root_sha256: digest("own"),
            payload_sha256: digest("new"),
            signers: Vec::new(),
            base: Base::of_namespace(&namespace(Some("old"), Some("root 1"))),
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
            let standing = record().with_present_state(&has, published.as_ref(), at(now));
            (standing.state, standing.changed_at.unix(), standing.release)
        };
        let end = 20 + PROPOSAL_SECONDS;
        let (old, root) = (Some("old"), Some("root 1"));
        let pending = (State::Pending, 20, None);
        let outdated = (State::Outdated, 50, None);
        assert_eq!(waits(old, root, None, 21), pending);
        assert_eq!(waits(old, root, None, end - 1), pending);
        assert_eq!(waits(old, root, None, end), (State::Outdated, end, None));
        // The root version that the proposal contains was pinned, and the release before is still
        // current.
        assert_eq!(waits(old, Some("own"), None, 60), pending);
        // Its own payload was published, and is current or was followed by another release.
        let accepted = (State::Accepted, 40, Some(2));
        assert_eq!(waits(Some("new"), Some("own"), Some("new"), 60), accepted);
        assert_eq!(waits(Some("newer"), root, Some("new"), 60), accepted);
        assert_eq!(waits(Some("newer"), root, Some("new"), end), accepted);
        // Another release with its number or another one; another root version; a reset of the pin.
        assert_eq!(waits(Some("other"), root, Some("other"), 60), outdated);
        assert_eq!(waits(Some("other"), root, None, 60), outdated);
        assert_eq!(waits(old, Some("root 2"), None, 60), outdated);
        assert_eq!(waits(old, None, None, 60), outdated);
        assert_eq!(waits(None, root, None, 60), (State::Outdated, 60, None));
    }

    #[test]
    fn what_a_person_decided_about_a_proposal_stays() {
        let declined = record().into_ended(&Ending {
            state: State::Declined,
            at: at(30),
            release: None,
            reason: Some("no".to_owned()),
        });
        let has = namespace(Some("new"), Some("own"));
        let later = declined
            .clone()
            .with_present_state(&has, Some(&release("new")), at(99));
        assert_eq!(later, declined);
    }
}
