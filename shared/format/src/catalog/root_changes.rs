//! The changes of a vault's keys between two states, and the lines of text that describe them. All
//! places that show changes of keys use this one model.

use schemars::JsonSchema;
use serde::Serialize;

use super::change_line::{ChangeKind, ChangeLine};
use crate::count::count;
use crate::keys::PublicKey;
use crate::root::{KeyFingerprint, RevokedKey, RootChain, RootState};
use crate::text::printable;
use crate::time::Timestamp;

/// The differences between the keys of a vault in two states.
#[derive(Clone, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct RootChanges {
    /// The number of the newest root version before; 0 if the vault was unknown.
    pub from: u64,
    /// The number of the newest root version now.
    pub to: u64,
    /// Keys that are in a role now and were in none.
    pub added: Vec<NamedKey>,
    /// Keys that were in a role, are in none now and are not revoked.
    pub removed: Vec<NamedKey>,
    /// Keys that are revoked now and were not.
    pub revoked: Vec<NamedKey>,
    /// Whether the keys or the threshold of the root role differ.
    pub root_role: bool,
    /// Keys that stay and gain or lose a role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleChange>,
    /// Keys that stay under another name: the name before, and the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<(String, NamedKey)>,
    /// The number of publishers that must sign a release, before and now, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_threshold: Option<(usize, usize)>,
    /// The number of keys that must sign a change of the keys, before and now, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_threshold: Option<(usize, usize)>,
    /// The expiry of the list of keys, before and now, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<(Option<Timestamp>, Option<Timestamp>)>,
}

/// A key that gains or loses a role and stays in the vault.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct RoleChange {
    /// The key, with its current name and fingerprint.
    pub key: NamedKey,
    /// The role that the key gains or loses: `release` (publishes) or `root` (changes the keys).
    pub role: &'static str,
    /// Whether the key has gained the role; false if it has lost the role.
    pub gained: bool,
}

/// A key with its name, for messages.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct NamedKey {
    /// Name of the key in the newest root version (signed list of keys) that names it; `unknown
    /// key` if none does.
    pub name: String,
    /// Fingerprint of the key; `null` for a revoked key that no root version names.
    pub fingerprint: Option<KeyFingerprint>,
}

impl NamedKey {
    /// Looks up the name of a key in a chain.
    pub fn from_chain(chain: &RootChain, key: &PublicKey) -> Self {
        // Search the newest version first: a renamed key gets its current name, and a removed key
        // its last one.
        let mut versions = chain.versions().iter().rev();
        let name = versions.find_map(|version| version.document().shown_name(key));
        Self {
            name: name.map_or_else(|| "unknown key".to_owned(), |name| name.to_string()),
            fingerprint: Some(KeyFingerprint::publisher(key)),
        }
    }

    /// Formats the name, which the key's owner chose, and the fingerprint, which identifies the
    /// key.
    pub fn name_and_fingerprint(&self) -> String {
        // A name is chosen on another machine and could hold terminal controls.
        let name = printable(&self.name);
        match &self.fingerprint {
            Some(fingerprint) => format!("{name} ({fingerprint})"),
            None => name,
        }
    }

    fn from_revoked(chain: &RootChain, revoked: &RevokedKey) -> Self {
        let versions = chain.versions().iter();
        let mut keys = versions.flat_map(|version| version.document().keys());
        match keys.find(|entry| revoked.is_key(&entry.public_key)) {
            Some(entry) => Self::from_chain(chain, &entry.public_key),
            None => Self {
                name: revoked.to_string(),
                fingerprint: None,
            },
        }
    }
}

impl RootChanges {
    /// Returns no difference: the newest root version is unchanged.
    pub fn none_at(version: u64) -> Self {
        Self {
            from: version,
            to: version,
            ..Self::default()
        }
    }

    /// Returns the difference between two states; `None` if the newest root version is the same.
    /// Without a state before, only the new version number is set.
    pub fn between(before: Option<&RootState>, after: &RootState) -> Option<Self> {
        let (chain, document) = (after.chain(), after.document());
        let Some(before) = before else {
            return Some(Self {
                to: chain.version(),
                ..Self::default()
            });
        };
        if before.chain().newest().payload_sha256() == chain.newest().payload_sha256() {
            return None;
        }
        let old = before.document();
        let differ = |old: usize, new: usize| (old != new).then_some((old, new));
        let expires = (old.expires_at(), document.expires_at());
        let stays = document.keys().iter();
        let stays = stays.filter(|entry| old.name_of(&entry.public_key).is_some());
        let renamed = stays.clone().filter_map(|entry| {
            let before = old.name_of(&entry.public_key)?;
            let is_same = document.name_of(&entry.public_key) == Some(before);
            let named = NamedKey::from_chain(chain, &entry.public_key);
            (!is_same).then(|| (before.to_string(), named))
        });
        let roles = stays.flat_map(|entry| {
            let key = &entry.public_key;
            let release = (
                old.release().contains(key),
                document.release().contains(key),
            );
            let root = (old.root().contains(key), document.root().contains(key));
            let change = |role, (had, has): (bool, bool)| {
                (had != has).then(|| RoleChange {
                    key: NamedKey::from_chain(chain, key),
                    role,
                    gained: has,
                })
            };
            [change("release", release), change("root", root)]
        });
        let added = document.keys().iter().map(|entry| &entry.public_key);
        let removed = old.keys().iter().map(|entry| &entry.public_key);
        let revoked = document.revoked().iter();
        Some(Self {
            from: before.chain().version(),
            to: chain.version(),
            added: added
                .filter(|key| old.name_of(key).is_none())
                .map(|key| NamedKey::from_chain(chain, key))
                .collect(),
            removed: removed
                .filter(|key| document.name_of(key).is_none() && !after.is_revoked(key))
                // From the chain before: after a fork the new chain may never have named this key.
                .map(|key| NamedKey::from_chain(before.chain(), key))
                .collect(),
            revoked: revoked
                .filter(|key| !old.revoked().contains(key))
                .map(|key| NamedKey::from_revoked(chain, key))
                .collect(),
            root_role: old.root() != document.root(),
            roles: roles.flatten().collect(),
            renamed: renamed.collect(),
            release_threshold: differ(old.release().threshold(), document.release().threshold()),
            root_threshold: differ(old.root().threshold(), document.root().threshold()),
            expires_at: (expires.0 != expires.1).then_some(expires),
        })
    }

    /// Returns the difference of a chain from its own earlier version. Keys that were revoked in
    /// abandoned versions count as revoked before. `None` if there is no such version, or nothing
    /// differs.
    pub fn since_version(version: u64, state: &RootState) -> Option<Self> {
        let before = state.chain().until_version(version)?;
        let before = RootState::new(before, state.revoked_elsewhere().clone());
        Self::between(Some(&before), state)
    }

    /// Whether owners must be notified at once: a key was revoked, a key that was in a role before
    /// gained another one, or fewer signatures are needed. Added keys do not count.
    pub fn is_warning(&self) -> bool {
        let mut lines = self.describe_lines().into_iter();
        lines.any(|line| line.kind == ChangeKind::Warning)
    }

    /// Returns a line for everything that differs. Revoked keys, roles that a key gains and lower
    /// thresholds are warnings.
    pub fn describe_lines(&self) -> Vec<ChangeLine> {
        // The pattern names every member, so that a new one gets a line here or is left out on
        // purpose.
        let Self {
            from: _,
            to: _,
            added,
            removed,
            revoked,
            root_role: _,
            roles,
            renamed,
            release_threshold,
            root_threshold,
            expires_at,
        } = self;
        let mut lines = Vec::new();
        let mut line = |kind, text| lines.push(ChangeLine::new(kind, text));
        let lists = [
            (ChangeKind::Added, "added", added),
            (ChangeKind::Removed, "removed", removed),
            (ChangeKind::Warning, "revoked", revoked),
        ];
        for (kind, what, keys) in lists {
            for key in keys {
                line(kind, format!("key {what}: {}", key.name_and_fingerprint()));
            }
        }
        for RoleChange { key, role, gained } in roles {
            let text = match (*role, *gained) {
                ("root", true) => "may change the keys now",
                ("root", false) => "may no longer change the keys",
                (_, true) => "may publish now",
                (_, false) => "may no longer publish",
            };
            // A new right lets one more machine publish or change keys; a lost right only limits a
            // key.
            let kind = match gained {
                true => ChangeKind::Warning,
                false => ChangeKind::Changed,
            };
            line(kind, format!("key {}: {text}", key.name_and_fingerprint()));
        }
        for (before, key) in renamed {
            let text = format!(
                "key renamed: {} → {}",
                printable(before),
                key.name_and_fingerprint()
            );
            line(ChangeKind::Changed, text);
        }
        let thresholds = [
            ("a release needs", release_threshold),
            ("a change of the keys needs", root_threshold),
        ];
        for (what, threshold) in thresholds {
            if let Some((old, new)) = threshold {
                let kind = if new < old {
                    ChangeKind::Warning
                } else {
                    ChangeKind::Changed
                };
                let new = count(*new as u64, "signature");
                line(kind, format!("{what} {new} instead of {old}"));
            }
        }
        if let Some((old, new)) = expires_at {
            let shown = |at: &Option<Timestamp>| at.map_or("never".to_owned(), |at| at.to_string());
            let text = format!("the list of keys expires: {} → {}", shown(old), shown(new));
            line(ChangeKind::Changed, text);
        }
        lines
    }
}
