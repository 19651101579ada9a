//! Passkeys of accounts (WebAuthn): keys in an authenticator, a device or program that lets only
//! its owner use them.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `acct/<account_id>` | `account` | [`Passkeys`], part of the account |
//! | `passkey/<sha256 of the credential id>` | `passkey` | [`PasskeyEntry`], index: the account of a credential |
//!
//! A passkey is valid only if the account's record contains it; the index only finds the account.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::text::is_invisible;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::{Random, random_bytes};
use vault_store::records::{Document, RecordKey, When, Write};
use webauthn_rs::prelude::{AuthenticationResult, Passkey as Credential, Uuid};

use super::account_id::AccountId;

/// Maximum number of passkeys of one account.
pub const MAX_PASSKEYS: usize = 10;
/// Maximum number of characters of a passkey's name.
pub const MAX_NAME_CHARS: usize = 64;

/// Name that a person gives to a passkey: 1 to 64 characters, none of them invisible.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct PasskeyName(String);

/// Error: a name that is empty, has more than [`MAX_NAME_CHARS`] characters, or has an invisible
/// one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("name of a passkey must have 1 to {MAX_NAME_CHARS} visible characters")]
pub struct BadPasskeyName;

impl FromStr for PasskeyName {
    type Err = BadPasskeyName;

    fn from_str(text: &str) -> Result<Self, BadPasskeyName> {
        let text = text.trim();
        let length = text.chars().count();
        if length == 0 || length > MAX_NAME_CHARS || text.chars().any(is_invisible) {
            return Err(BadPasskeyName);
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for PasskeyName {
    type Error = BadPasskeyName;

    fn try_from(text: String) -> Result<Self, BadPasskeyName> {
        text.parse()
    }
}

impl From<PasskeyName> for String {
    fn from(name: PasskeyName) -> Self {
        name.0
    }
}

impl fmt::Display for PasskeyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Id under which a credential is stored: SHA-256 of its credential id, which may be too long for a
/// record key.
pub type PasskeyId = Digest;

/// Returns the stored id of the credential with this credential id.
pub fn passkey_id(credential_id: &[u8]) -> PasskeyId {
    Digest::of(credential_id)
}

/// A passkey, as the record of its account contains it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Passkey {
    /// Name that the person gave the passkey, to tell several apart.
    pub name: PasskeyName,
    /// Time at which the person added the passkey, by the service's clock.
    pub added_at: Timestamp,
    /// Time of the last sign-in with the passkey; `None` before the first.
    #[serde(default)]
    pub last_used_at: Option<Timestamp>,
    /// Public key, signature counter and backup state. Two credentials are equal if their ids are.
    credential: Credential,
}

impl Eq for Passkey {}

impl Passkey {
    /// Returns the id of the credential, under which the index record leads to the account.
    pub fn id(&self) -> PasskeyId {
        passkey_id(self.credential.cred_id())
    }

    /// Returns the credential: the public key, the signature counter and the backup state.
    pub const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Records a use: its time, the signature counter and the backup state.
    pub fn record_use(&mut self, result: &AuthenticationResult, now: Timestamp) {
        self.last_used_at = Some(now);
        self.credential.update_credential(result);
    }
}

/// The passkeys of an account, at most [`MAX_PASSKEYS`].
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Passkeys {
    /// Random user handle of the account, which its authenticators store (WebAuthn `user.id`);
    /// `None` before the first passkey.
    #[serde(default)]
    user: Option<Uuid>,
    #[serde(default)]
    held: Vec<Passkey>,
}

/// Reason why a passkey is not added.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PasskeyNotAdded {
    /// The account has [`MAX_PASSKEYS`] already.
    #[error("the account has {MAX_PASSKEYS} passkeys, the most it may have")]
    TooMany,
    /// The authenticator stored the passkey under another user handle: the first passkey of the
    /// account was added elsewhere meanwhile.
    #[error("the first passkey of the account was added elsewhere meanwhile")]
    OtherUser,
}

impl Passkeys {
    /// Creates the list of a new account: no passkey, and no user handle yet.
    pub const fn new() -> Self {
        Self {
            user: None,
            held: Vec::new(),
        }
    }

    /// Whether the account has no passkey.
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the account has [`MAX_PASSKEYS`] passkeys, so that no other can be added.
    pub const fn is_full(&self) -> bool {
        self.held.len() >= MAX_PASSKEYS
    }

    /// Returns the passkeys, oldest first.
    pub fn as_slice(&self) -> &[Passkey] {
        &self.held
    }

    /// Returns the user handle of the account, or a new random one.
    pub fn user_or_fresh(&self, random: &dyn Random) -> Uuid {
        // Random, and neither the address nor the account's id: an authenticator shows it to anyone
        // who holds the device.
        self.user
            .unwrap_or_else(|| Uuid::from_bytes(random_bytes::<16>(random)))
    }

    /// Finds the passkey with this id, if the authenticator has stored it for this account's user
    /// handle.
    pub fn find_mut(&mut self, id: &PasskeyId, user: Option<Uuid>) -> Option<&mut Passkey> {
        // An authenticator may omit the user handle if the request listed the passkeys to choose
        // from.
        if user.is_some() && user != self.user {
            return None;
        }
        self.held.iter_mut().find(|passkey| passkey.id() == *id)
    }

    /// Adds a credential that an authenticator stored under the user handle `user`.
    pub fn add(
        &mut self,
        credential: Credential,
        user: Uuid,
        name: PasskeyName,
        now: Timestamp,
    ) -> Result<(), PasskeyNotAdded> {
        if self.is_full() {
            return Err(PasskeyNotAdded::TooMany);
        }
        if *self.user.get_or_insert(user) != user {
            return Err(PasskeyNotAdded::OtherUser);
        }
        self.held.push(Passkey {
            name,
            added_at: now,
            last_used_at: None,
            credential,
        });
        Ok(())
    }

    /// Removes the passkey with this id and returns it; `None` if there is none.
    pub fn remove(&mut self, id: &PasskeyId) -> Option<Passkey> {
        let at = self.held.iter().position(|passkey| passkey.id() == *id)?;
        Some(self.held.remove(at))
    }

    /// Removes all passkeys, when a person proves the account anew. Returns the writes that remove
    /// their index entries.
    pub fn clear(&mut self) -> Vec<Write> {
        let removals = self.removal_writes().collect();
        *self = Self::new();
        removals
    }

    /// Returns the writes that remove the index entries of all passkeys.
    pub fn removal_writes(&self) -> impl Iterator<Item = Write> {
        self.held.iter().map(|passkey| removal_write(&passkey.id()))
    }
}

/// Index entry that leads from a credential to its account.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PasskeyEntry {
    /// The account in which to look for the passkey; only its record proves that it has it.
    pub account: AccountId,
}

/// Returns the key of the [`PasskeyEntry`] of a credential.
pub fn passkey_key(id: &PasskeyId) -> RecordKey {
    RecordKey::new(format!("passkey/{id}"), "passkey")
}

/// Returns the write of the index entry that leads from a credential to `account`, under the
/// condition `when`.
pub fn entry_write(id: &PasskeyId, account: &AccountId, when: When) -> Result<Write, StoreError> {
    let entry = PasskeyEntry {
        account: account.clone(),
    };
    Ok(Write::put(
        passkey_key(id),
        Document::from_value(&entry)?,
        when,
    ))
}

/// Returns the write that removes the index entry of a credential.
pub fn removal_write(id: &PasskeyId) -> Write {
    // `Any`, because the account's own list decides and this entry only finds it.
    Write::delete(passkey_key(id), When::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_visible() {
        for (text, name) in [
            ("Phone", Some("Phone")),
            ("  Work laptop ", Some("Work laptop")),
            ("Schl\u{fc}ssel \u{1f511}", Some("Schl\u{fc}ssel \u{1f511}")),
            ("", None),
            ("   ", None),
            ("a\u{202e}b", None),
            ("a\u{200b}b", None),
            ("a\nb", None),
        ] {
            let parsed = text.parse::<PasskeyName>();
            assert_eq!(parsed.ok().map(String::from).as_deref(), name, "{text:?}");
        }
        assert!("x".repeat(64).parse::<PasskeyName>().is_ok());
        assert!("x".repeat(65).parse::<PasskeyName>().is_err());
    }
}
