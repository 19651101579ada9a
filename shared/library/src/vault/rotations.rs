//! The signed statements that replaced keys of this vault, and the keys that they make valid:
//! `rotations.json`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use vault_skill::dsse::Envelope;
use vault_skill::json;
use vault_skill::keys::PublicKey;
use vault_skill::rotation::{MAX_ROTATIONS, Reason, Rotation};

use super::{Change, Vault, VaultError};
use crate::disk;

/// The content of `rotations.json`.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// The signed statements, oldest first, at most 32.
    pub(crate) statements: Vec<(Envelope, Rotation)>,
    /// Keys that the chain no longer makes valid: stolen, lost, or dropped from it. Their manifests
    /// stay valid until these are signed again.
    pub(crate) retiring: Vec<PublicKey>,
}

#[derive(Deserialize)]
struct ChainRead<'a> {
    #[serde(borrow)]
    rotations: Vec<&'a RawValue>,
    retiring: Vec<PublicKey>,
}

#[derive(Serialize)]
struct ChainWritten<'a> {
    rotations: Vec<&'a Envelope>,
    retiring: &'a [PublicKey],
}

impl Chain {
    /// Reads the chain; fails if a statement is invalid. The file is public: its statements matter
    /// only to a reader that already trusts a key of the vault.
    pub(crate) fn read(vault: &Vault) -> Result<Self, VaultError> {
        let path = path(vault);
        let Some(bytes) = disk::read(&path, 1 << 20)? else {
            return Ok(Self::default());
        };
        let damaged = |reason: String| VaultError::Damaged {
            path: path.clone(),
            reason,
        };
        let read: ChainRead<'_> =
            json::parse(&bytes).map_err(|reason| damaged(reason.to_string()))?;
        let mut statements = Vec::with_capacity(read.rotations.len());
        for raw in read.rotations {
            let envelope = Envelope::parse(raw.get().as_bytes())
                .map_err(|reason| damaged(reason.to_string()))?;
            let statement =
                Rotation::verify(&envelope).map_err(|reason| damaged(reason.to_string()))?;
            if statement.vault_id != *vault.id() {
                return Err(damaged("a statement is of another vault".to_owned()));
            }
            statements.push((envelope, statement));
        }
        Ok(Self {
            statements,
            retiring: read.retiring,
        })
    }

    pub(crate) fn write(&self, vault: &Vault, change: &mut Change<'_>) -> Result<(), VaultError> {
        let written = ChainWritten {
            rotations: self
                .statements
                .iter()
                .map(|(envelope, _)| envelope)
                .collect(),
            retiring: &self.retiring,
        };
        change.write_record(&path(vault), &written, 0o600)
    }

    /// The keys that may have signed this vault's manifests. The current key comes first.
    pub(crate) fn keys(&self, current: PublicKey) -> Vec<PublicKey> {
        let mut keys = vec![current];
        // A reader may run between the write of a new secret key and that of its public half, so
        // accept the keys that the current one was rotated to.
        let mut at = current;
        for (_, statement) in &self.statements {
            if statement.from == at && statement.reason == Reason::Rotation {
                at = statement.to;
                keys.push(at);
            }
        }
        // Accept earlier keys as well, except those that were stolen or lost.
        let mut at = current;
        for (_, statement) in self.statements.iter().rev() {
            if statement.to != at || statement.from == statement.to {
                continue;
            }
            at = statement.from;
            if !statement.reason.voids_old_key() {
                keys.push(at);
            }
        }
        for key in &self.retiring {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        keys
    }

    /// Adds a statement. Beyond 32, drops the oldest one; its key is then retiring.
    pub(crate) fn push(&mut self, envelope: Envelope, statement: Rotation) {
        self.statements.push((envelope, statement));
        while self.statements.len() > MAX_ROTATIONS {
            let (_, dropped) = self.statements.remove(0);
            if dropped.from != dropped.to {
                self.retiring.push(dropped.from);
            }
        }
    }

    /// The signed statements, in the form that a catalog contains.
    pub(crate) fn envelopes(&self) -> Vec<Envelope> {
        self.statements
            .iter()
            .map(|(envelope, _)| envelope.clone())
            .collect()
    }

    pub(crate) fn last(&self) -> Option<&Rotation> {
        self.statements.last().map(|(_, statement)| statement)
    }

    /// Whether the key was replaced because it was stolen or lost. Someone else may have signed
    /// with it.
    pub(crate) fn is_voided(&self, key: &PublicKey) -> bool {
        self.statements
            .iter()
            .any(|(_, statement)| statement.reason.voids_old_key() && statement.from == *key)
    }

    /// All keys that ever signed releases of this vault, as far back as the chain reaches.
    pub(crate) fn all_keys(&self, current: PublicKey) -> Vec<PublicKey> {
        let mut keys = vec![current];
        keys.extend(
            self.statements
                .iter()
                .rev()
                .map(|(_, statement)| statement.from),
        );
        keys
    }
}

fn path(vault: &Vault) -> std::path::PathBuf {
    vault.paths().root.join("rotations.json")
}

impl Vault {
    /// The statements that this vault's releases contain, oldest first.
    pub fn rotations(&self) -> Result<Vec<Rotation>, VaultError> {
        let chain = Chain::read(self)?;
        Ok(chain
            .statements
            .into_iter()
            .map(|(_, statement)| statement)
            .collect())
    }
}
