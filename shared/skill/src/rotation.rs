//! Statements that replace a vault's key, and the walk from a pinned key to the one that signs now.
//!
//! A statement stands on its own signatures: of both keys for a plain rotation; of the recovery key and the new key
//! after a compromise or loss; of the old recovery key and the release key where the recovery key is replaced.
//! Two different statements with one sequence are a fork, and a fork stops everything but a recovery-signed statement.

use serde::{Deserialize, Serialize};

use crate::dsse::{Envelope, EnvelopeError};
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::keys::{PublicKey, SecretKey};
use crate::name::VaultId;
use crate::text::constant;
use crate::time::Timestamp;

/// The payload type that is signed with every statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.vault.key-rotation.v1+json";
/// The most statements that a catalog carries.
pub const MAX_ROTATIONS: usize = 32;

constant!(
    /// The member `schema` of a statement.
    Schema,
    "vault.key-rotation/1"
);

/// Why a key is replaced.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// In good order: the old key is still in its owner's hands alone.
    Rotation,
    /// The old key is in other hands: what it signs from `effective_release` on is void.
    Compromise,
    /// The old key is gone.
    Loss,
    /// The release key stays, the recovery key is replaced.
    Recovery,
}

impl Reason {
    /// Whether the old key no longer counts, so that the recovery key speaks in its place.
    pub const fn voids_old_key(self) -> bool {
        matches!(self, Self::Compromise | Self::Loss)
    }
}

/// A statement about a vault's keys.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Rotation {
    /// The constant `schema`.
    pub schema: Schema,
    /// The vault whose key it is.
    pub vault_id: VaultId,
    /// 1 for a vault's first statement, then one more each time.
    pub sequence: u64,
    /// The key so far.
    pub from: PublicKey,
    /// The key from now on; equal to `from` where the recovery key is replaced.
    pub to: PublicKey,
    /// Why.
    pub reason: Reason,
    /// The first release that is signed by `to`.
    pub effective_release: u64,
    /// When it was made; information only.
    pub issued_at: Timestamp,
    /// The recovery key that signed; there for every reason but `rotation`.
    #[serde(
        default,
        deserialize_with = "json::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub recovery_key: Option<PublicKey>,
    /// SHA-256 of the recovery key from now on; there for the reason `recovery` alone.
    #[serde(
        default,
        deserialize_with = "json::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub new_recovery_key_sha256: Option<Digest>,
}

/// Why a statement, or a list of them, is refused.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// The bytes are no envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope carries something else.
    #[error("the envelope does not carry a key rotation")]
    PayloadType,
    /// The payload has not the shape of a statement.
    #[error("not a key rotation: {0}")]
    Payload(#[from] JsonError),
    /// Members that do not go together.
    #[error("{0}")]
    Shape(&'static str),
    /// A signature that the reason asks for is missing.
    #[error("the rotation is not signed by both keys that must sign it")]
    Signature,
    /// The statement is about another vault.
    #[error("the rotation belongs to another vault")]
    VaultId,
    /// More than 32 statements.
    #[error("a catalog carries at most {MAX_ROTATIONS} rotations")]
    TooMany,
    /// The statements do not follow each other, or do not begin where the pin stands.
    #[error("the rotations do not follow each other from the pinned key")]
    Broken,
    /// Two statements with one sequence.
    #[error("two rotations with sequence {0} exist: the key was used behind the owner's back")]
    Fork(u64),
    /// The recovery key is not the pinned one, or none is pinned.
    #[error("the recovery key is not the pinned one")]
    RecoveryKey,
    /// The catalog's release is below the release from which the new key counts.
    #[error("the new key counts from release {0} on")]
    NotYetEffective(u64),
    /// The last statement leads to another key than the catalog's.
    #[error("the last rotation does not lead to the catalog's key")]
    WrongEnd,
    /// The catalog names another recovery key than the pin and the statements.
    #[error("the recovery key changed without a statement")]
    RecoveryChanged,
}

impl Rotation {
    /// Signs the statement with every key that must sign it; fails when one is missing or members do not go together.
    pub fn sign(&self, keys: &[&SecretKey]) -> Result<Envelope, RotationError> {
        let envelope = Envelope::sign(PAYLOAD_TYPE, &json::to_bytes(self), keys);
        Self::verify(&envelope)?;
        Ok(envelope)
    }

    /// Reads a statement and checks the signatures it stands on; whether its keys mean anything to us is the walk's question.
    pub fn verify(envelope: &Envelope) -> Result<Self, RotationError> {
        if envelope.payload_type() != PAYLOAD_TYPE {
            return Err(RotationError::PayloadType);
        }
        let statement: Self = json::parse(envelope.payload())?;
        let signers = statement.check()?;
        if signers.iter().all(|key| envelope.verified_by(key)) {
            Ok(statement)
        } else {
            Err(RotationError::Signature)
        }
    }

    /// Checks that the members go together and names the two keys that must have signed.
    fn check(&self) -> Result<[PublicKey; 2], RotationError> {
        if self.sequence == 0 || self.effective_release == 0 {
            return Err(RotationError::Shape(
                "sequence and effective_release begin at 1",
            ));
        }
        if (self.from == self.to) != (self.reason == Reason::Recovery) {
            return Err(RotationError::Shape(
                "from and to are the same key for the reason recovery, and only there",
            ));
        }
        match (self.reason, self.recovery_key, self.new_recovery_key_sha256) {
            (Reason::Rotation, None, None) => Ok([self.from, self.to]),
            (Reason::Compromise | Reason::Loss, Some(recovery), None)
            | (Reason::Recovery, Some(recovery), Some(_)) => Ok([recovery, self.to]),
            _ => Err(RotationError::Shape(
                "the members about the recovery key do not fit the reason",
            )),
        }
    }

    fn recovery_key_id(&self) -> Option<Digest> {
        self.recovery_key.map(|key| key.key_id())
    }
}

/// What is known of a vault's keys: where a walk begins and ends.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Position {
    /// The keys before the current one, oldest first.
    pub former_keys: Vec<PublicKey>,
    /// The current key; `None` before anything is pinned.
    pub public_key: Option<PublicKey>,
    /// The sequence of the last statement that was followed.
    pub sequence: u64,
    /// The recovery key.
    pub recovery: Recovery,
}

/// What is known of a vault's recovery key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Recovery {
    /// Nothing yet.
    #[default]
    Unknown,
    /// The vault has none.
    Absent,
    /// SHA-256 of the key.
    Key(Digest),
}

/// The end of a walk.
#[derive(Debug)]
pub(crate) struct Walk {
    pub position: Position,
    /// The statements that count, one for each sequence.
    pub statements: Vec<Rotation>,
    /// Set where a compromise or loss was news: the release before its `effective_release`.
    pub reset_release: Option<u64>,
}

/// Follows verified statements, oldest first, from what is pinned; fails when they do not lead on from there.
pub(crate) fn walk(pinned: &Position, statements: &[Rotation]) -> Result<Walk, RotationError> {
    if statements.len() > MAX_ROTATIONS {
        return Err(RotationError::TooMany);
    }
    let statements = settle_forks(statements)?;
    let follows =
        |pair: &[Rotation]| pair[1].sequence - pair[0].sequence == 1 && pair[0].to == pair[1].from;
    if !statements.windows(2).all(follows) {
        return Err(RotationError::Broken);
    }
    let (position, news) = starting_point(pinned, &statements)?;
    let mut walk = Walk {
        position,
        statements: Vec::new(),
        reset_release: None,
    };
    for statement in &statements[news..] {
        walk.follow(statement)?;
    }
    walk.statements = statements;
    Ok(walk)
}

/// Leaves one statement for each sequence: where there are several, the only recovery-signed one replaces the others.
fn settle_forks(statements: &[Rotation]) -> Result<Vec<Rotation>, RotationError> {
    if !statements.is_sorted_by_key(|statement| statement.sequence) {
        return Err(RotationError::Broken);
    }
    let mut settled = Vec::with_capacity(statements.len());
    for rivals in statements.chunk_by(|a, b| a.sequence == b.sequence) {
        let winner = match rivals {
            [only] => only,
            [first, ..] => {
                let fork = || RotationError::Fork(first.sequence);
                let mut final_words = rivals.iter().filter(|rival| rival.reason.voids_old_key());
                let winner = final_words.next().ok_or_else(fork)?;
                if final_words.next().is_some()
                    || rivals.iter().any(|rival| rival.from != winner.from)
                {
                    return Err(fork());
                }
                winner
            }
            [] => continue,
        };
        settled.push(winner.clone());
    }
    Ok(settled)
}

/// Where following begins: the position, and the index of the first statement that is news.
fn starting_point(
    pinned: &Position,
    statements: &[Rotation],
) -> Result<(Position, usize), RotationError> {
    let Some(first) = statements.first() else {
        return Ok((pinned.clone(), 0));
    };
    if pinned.public_key.is_none() {
        let start = Position {
            public_key: Some(first.from),
            sequence: first.sequence - 1,
            ..pinned.clone()
        };
        return Ok((start, 0));
    }
    let news = statements.partition_point(|statement| statement.sequence <= pinned.sequence);
    if is_history(pinned, &statements[..news]) {
        return Ok((pinned.clone(), news));
    }
    resolved_fork(pinned, &statements[..news]).ok_or(RotationError::Fork(first.sequence))
}

/// Whether statements that are not news tell the history that led to the pin.
fn is_history(pinned: &Position, statements: &[Rotation]) -> bool {
    let keys: Vec<&PublicKey> = pinned
        .former_keys
        .iter()
        .chain(&pinned.public_key)
        .collect();
    let Some(last) = statements.last() else {
        return true;
    };
    let end = if last.sequence == pinned.sequence {
        keys.len().checked_sub(1)
    } else {
        keys.iter().rposition(|key| **key == last.to)
    };
    let Some(mut at) = end else { return false };
    for statement in statements.iter().rev() {
        if *keys[at] != statement.to {
            return false;
        }
        if statement.from != statement.to {
            let Some(before) = at.checked_sub(1) else {
                return true;
            }; // older than what was pinned first
            at = before;
            if *keys[at] != statement.from {
                return false;
            }
        }
    }
    true
}

/// A fork that was followed into the wrong branch: the first recovery-signed statement that leaves our history from one
/// of its keys takes us back there. `follow` then checks the recovery key.
fn resolved_fork(pinned: &Position, statements: &[Rotation]) -> Option<(Position, usize)> {
    let keys: Vec<PublicKey> = pinned
        .former_keys
        .iter()
        .chain(&pinned.public_key)
        .copied()
        .collect();
    for (index, statement) in statements
        .iter()
        .enumerate()
        .filter(|(_, statement)| statement.reason.voids_old_key())
    {
        let at = keys.iter().rposition(|key| *key == statement.from)?;
        if keys.get(at + 1) == Some(&statement.to) {
            continue; // known
        }
        let back = Position {
            former_keys: keys[..at].to_vec(),
            public_key: Some(statement.from),
            sequence: statement.sequence - 1,
            recovery: pinned.recovery,
        };
        return is_history(&back, &statements[..index]).then_some((back, index));
    }
    None
}

impl Walk {
    fn follow(&mut self, statement: &Rotation) -> Result<(), RotationError> {
        let position = &mut self.position;
        if statement.sequence != position.sequence + 1
            || Some(statement.from) != position.public_key
        {
            return Err(RotationError::Broken);
        }
        if let Some(recovery) = statement.recovery_key_id() {
            match position.recovery {
                Recovery::Unknown => position.recovery = Recovery::Key(recovery),
                Recovery::Key(pinned) if pinned == recovery => {}
                Recovery::Key(_) | Recovery::Absent => return Err(RotationError::RecoveryKey),
            }
        }
        if let Some(new) = statement.new_recovery_key_sha256 {
            position.recovery = Recovery::Key(new);
        }
        if statement.from != statement.to {
            position.former_keys.push(statement.from);
            position.public_key = Some(statement.to);
        }
        position.sequence = statement.sequence;
        if statement.reason.voids_old_key() {
            self.reset_release = Some(statement.effective_release - 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> SecretKey {
        SecretKey::from_seed([number; 32])
    }

    const RECOVERY: u8 = 100;

    fn statement(sequence: u64, from: u8, to: u8, reason: Reason) -> Rotation {
        Rotation {
            schema: Schema,
            vault_id: VaultId::from_parts(1, 1),
            sequence,
            from: key(from).public(),
            to: key(to).public(),
            reason,
            effective_release: sequence + 10,
            issued_at: Timestamp::default(),
            recovery_key: (reason != Reason::Rotation).then(|| key(RECOVERY).public()),
            new_recovery_key_sha256: (reason == Reason::Recovery)
                .then(|| key(RECOVERY + 1).public().key_id()),
        }
    }

    fn pinned(keys: &[u8], sequence: u64) -> Position {
        let mut keys: Vec<_> = keys.iter().map(|number| key(*number).public()).collect();
        Position {
            public_key: keys.pop(),
            former_keys: keys,
            sequence,
            recovery: Recovery::Key(key(RECOVERY).public().key_id()),
        }
    }

    fn end(
        pinned: &Position,
        statements: &[Rotation],
    ) -> Result<(Vec<PublicKey>, PublicKey, u64), &'static str> {
        match walk(pinned, statements) {
            Ok(walk) => Ok((
                walk.position.former_keys,
                walk.position.public_key.unwrap(),
                walk.position.sequence,
            )),
            Err(RotationError::Broken) => Err("broken"),
            Err(RotationError::Fork(_)) => Err("fork"),
            Err(RotationError::RecoveryKey) => Err("recovery"),
            Err(RotationError::TooMany) => Err("many"),
            Err(other) => panic!("{other}"),
        }
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "compared with the result of `end`"
    )]
    fn at(keys: &[u8], sequence: u64) -> Result<(Vec<PublicKey>, PublicKey, u64), &'static str> {
        let position = pinned(keys, sequence);
        Ok((position.former_keys, position.public_key.unwrap(), sequence))
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn walks() {
        use Reason::{Compromise, Loss, Recovery, Rotation};
        let s = statement;
        let plain = [
            s(1, 0, 1, Rotation),
            s(2, 1, 2, Rotation),
            s(3, 2, 3, Rotation),
        ];
        for (name, pin, list, result) in [
            ("nothing to follow", pinned(&[0], 0), vec![], at(&[0], 0)),
            (
                "from the first key",
                pinned(&[0], 0),
                plain.to_vec(),
                at(&[0, 1, 2, 3], 3),
            ),
            (
                "from the middle",
                pinned(&[0, 1], 1),
                plain.to_vec(),
                at(&[0, 1, 2, 3], 3),
            ),
            (
                "history is cut at its old end",
                pinned(&[0, 1], 1),
                plain[1..].to_vec(),
                at(&[0, 1, 2, 3], 3),
            ),
            (
                "linked late, older statements shown",
                pinned(&[1, 2], 2),
                plain.to_vec(),
                at(&[1, 2, 3], 3),
            ),
            (
                "the host shows less than we know",
                pinned(&[0, 1, 2, 3], 3),
                plain[..1].to_vec(),
                at(&[0, 1, 2, 3], 3),
            ),
            (
                "a link is missing",
                pinned(&[0], 0),
                vec![plain[0].clone(), plain[2].clone()],
                Err("broken"),
            ),
            (
                "does not reach the pin",
                pinned(&[0], 0),
                plain[1..].to_vec(),
                Err("broken"),
            ),
            (
                "newest first",
                pinned(&[0], 0),
                plain.iter().rev().cloned().collect(),
                Err("broken"),
            ),
            ("other key", pinned(&[9], 0), plain.to_vec(), Err("broken")),
            (
                "other history",
                pinned(&[9, 1], 1),
                plain.to_vec(),
                Err("fork"),
            ),
            (
                "fork in one list",
                pinned(&[0], 0),
                vec![s(1, 0, 1, Rotation), s(1, 0, 2, Rotation)],
                Err("fork"),
            ),
            (
                "one statement twice",
                pinned(&[0], 0),
                vec![s(1, 0, 1, Rotation), s(1, 0, 1, Rotation)],
                Err("fork"),
            ),
            (
                "fork over time",
                pinned(&[0, 1], 1),
                vec![s(1, 0, 2, Rotation)],
                Err("fork"),
            ),
            (
                "fork over time, with more",
                pinned(&[0, 1], 1),
                vec![s(1, 0, 2, Rotation), s(2, 2, 3, Rotation)],
                Err("fork"),
            ),
            (
                "compromise",
                pinned(&[0], 0),
                vec![s(1, 0, 1, Compromise)],
                at(&[0, 1], 1),
            ),
            (
                "loss",
                pinned(&[0, 1], 1),
                vec![s(1, 0, 1, Rotation), s(2, 1, 2, Loss)],
                at(&[0, 1, 2], 2),
            ),
            (
                "recovery-signed statement settles a fork",
                pinned(&[0], 0),
                vec![
                    s(1, 0, 1, Rotation),
                    s(1, 0, 2, Rotation),
                    s(1, 0, 3, Compromise),
                ],
                at(&[0, 3], 1),
            ),
            (
                "it settles for one that followed a branch",
                pinned(&[0, 1], 1),
                vec![s(1, 0, 3, Compromise)],
                at(&[0, 3], 1),
            ),
            (
                "and far down a branch",
                pinned(&[0, 1, 2, 3], 3),
                vec![s(1, 0, 1, Rotation), s(2, 1, 9, Loss), s(3, 9, 8, Rotation)],
                at(&[0, 1, 9, 8], 3),
            ),
            (
                "two recovery-signed statements",
                pinned(&[0], 0),
                vec![s(1, 0, 1, Loss), s(1, 0, 2, Compromise)],
                Err("fork"),
            ),
            (
                "two recovery-signed statements over time",
                pinned(&[0, 1], 1),
                vec![s(1, 0, 1, Loss), s(1, 0, 2, Compromise)],
                Err("fork"),
            ),
            (
                "a known compromise is not followed again",
                pinned(&[0, 1, 2], 2),
                vec![s(1, 0, 1, Compromise), s(2, 1, 2, Rotation)],
                at(&[0, 1, 2], 2),
            ),
            (
                "the branch of a thief after a known compromise",
                pinned(&[0, 1], 1),
                vec![s(1, 0, 2, Rotation), s(2, 2, 3, Rotation)],
                Err("fork"),
            ),
            (
                "recovery key replaced",
                pinned(&[0], 0),
                vec![s(1, 0, 0, Recovery)],
                at(&[0], 1),
            ),
            (
                "a rotation after it",
                pinned(&[0], 1),
                vec![s(1, 0, 0, Recovery), s(2, 0, 1, Rotation)],
                at(&[0, 1], 2),
            ),
            (
                "the old recovery key after it",
                pinned(&[0], 0),
                vec![s(1, 0, 0, Recovery), s(2, 0, 1, Loss)],
                Err("recovery"),
            ),
        ] {
            assert_eq!(end(&pin, &list), result, "{name}");
        }
    }

    #[test]
    fn a_recovery_key_must_be_pinned() {
        let mut pin = pinned(&[0], 0);
        pin.recovery = Recovery::Absent;
        assert_eq!(
            end(&pin, &[statement(1, 0, 1, Reason::Loss)]),
            Err("recovery")
        );
        pin.recovery = Recovery::Key(key(9).public().key_id());
        assert_eq!(
            end(&pin, &[statement(1, 0, 1, Reason::Loss)]),
            Err("recovery")
        );
        assert_eq!(
            end(&pin, &[statement(1, 0, 0, Reason::Recovery)]),
            Err("recovery")
        );
        // With nothing pinned the statement itself says which it is; the catalog must agree.
        let walk = walk(&Position::default(), &[statement(5, 0, 1, Reason::Loss)]).unwrap();
        assert_eq!(
            walk.position.recovery,
            Recovery::Key(key(RECOVERY).public().key_id())
        );
        assert_eq!((walk.position.sequence, walk.reset_release), (5, Some(14)));
    }

    #[test]
    fn thirty_two_statements_and_no_more() {
        let chain: Vec<_> = (1..=33)
            .map(|n| statement(n.into(), n - 1, n, Reason::Rotation))
            .collect();
        let keys: Vec<u8> = (0..=32).collect();
        assert_eq!(end(&pinned(&[0], 0), &chain[..32]), at(&keys, 32));
        assert_eq!(end(&pinned(&[0], 0), &chain), Err("many"));
        assert_eq!(
            end(&pinned(&[0, 1], 1), &chain[1..]).map(|(.., sequence)| sequence),
            Ok(33)
        );
    }

    #[test]
    fn who_must_sign() {
        use Reason::{Compromise, Loss, Recovery, Rotation};
        for (reason, from, to, good) in [
            (Rotation, 0, 1, vec![vec![0, 1], vec![1, 0], vec![0, 1, 5]]),
            (Compromise, 0, 1, vec![vec![RECOVERY, 1], vec![1, RECOVERY]]),
            (Loss, 0, 1, vec![vec![RECOVERY, 1], vec![1, RECOVERY]]),
            (Recovery, 0, 0, vec![vec![RECOVERY, 0]]),
        ] {
            let statement = statement(1, from, to, reason);
            for signers in [
                vec![0],
                vec![1],
                vec![0, 0],
                vec![0, 1],
                vec![1, 0],
                vec![0, 1, 5],
                vec![5, 1],
                vec![RECOVERY],
                vec![RECOVERY, 1],
                vec![1, RECOVERY],
                vec![RECOVERY, 0],
            ] {
                let keys: Vec<_> = signers.iter().map(|number| key(*number)).collect();
                let signed = statement.sign(&keys.iter().collect::<Vec<_>>());
                assert_eq!(
                    signed.is_ok(),
                    good.contains(&signers),
                    "{reason:?} {signers:?}"
                );
                if let Ok(envelope) = signed {
                    assert_eq!(super::Rotation::verify(&envelope).unwrap(), statement);
                }
            }
        }
    }

    #[test]
    fn members_must_go_together() {
        let all: Vec<_> = [0, 1, RECOVERY].into_iter().map(key).collect();
        let keys: Vec<_> = all.iter().collect();
        let good = statement(1, 0, 1, Reason::Rotation);
        let recovery = statement(1, 0, 0, Reason::Recovery);
        assert!(good.sign(&keys).is_ok() && recovery.sign(&keys).is_ok());
        for bad in [
            Rotation {
                sequence: 0,
                ..good.clone()
            },
            Rotation {
                effective_release: 0,
                ..good.clone()
            },
            Rotation {
                to: good.from,
                ..good.clone()
            },
            Rotation {
                recovery_key: recovery.recovery_key,
                ..good.clone()
            },
            Rotation {
                reason: Reason::Loss,
                ..good.clone()
            },
            Rotation {
                to: good.to,
                ..recovery.clone()
            },
            Rotation {
                new_recovery_key_sha256: None,
                ..recovery.clone()
            },
            Rotation {
                recovery_key: None,
                ..recovery
            },
        ] {
            assert!(
                matches!(bad.sign(&keys), Err(RotationError::Shape(_))),
                "{bad:?}"
            );
        }
    }

    proptest! {
        /// Any list of any statements ends in an error or in a position that the last statement or the pin explains.
        #[test]
        fn walks_never_panic(
            steps in prop::collection::vec((1_u64..5, 0_u8..4, 0_u8..4, 0_u8..4), 0..8),
            keys in prop::collection::vec(0_u8..4, 1..4),
            sequence in 0_u64..5,
        ) {
            let reasons = [Reason::Rotation, Reason::Compromise, Reason::Loss, Reason::Recovery];
            let list: Vec<_> = steps.into_iter().map(|(n, from, to, reason)| statement(n, from, to, reasons[usize::from(reason)])).collect();
            let pin = pinned(&keys, sequence);
            if let Ok(walk) = walk(&pin, &list) {
                let key = walk.position.public_key;
                prop_assert!(key == pin.public_key || key == walk.statements.last().map(|statement| statement.to));
            }
        }
    }
}
