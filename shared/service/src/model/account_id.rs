//! The id of an account, and how records of earlier versions of vault lead to one.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use vault_format::time::Timestamp;
use vault_store::random::Random;

use super::fresh_id;
use vault_api::Email;

/// The id of an account: `acc_` and 26 lower-case letters or digits. It stays the same when the
/// e-mail address changes.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(from = "String", into = "String")]
pub struct AccountId(String);

impl AccountId {
    /// Creates a random id. Ids sort by the time of their creation, which is `now`.
    pub fn fresh(now: Timestamp, random: &dyn Random) -> Self {
        Self(fresh_id("acc_", now, random))
    }

    /// Returns the id for an account that an earlier version of vault knew by its address alone.
    /// The id is computed from the address, so that tokens and sessions of that version still find
    /// their account.
    pub fn of_earlier_version(email: &Email) -> Self {
        Self::of_address(email.as_str())
    }

    fn of_address(address: &str) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        // The prefix keeps this hash apart from other hashes of the same address.
        let hash = Sha256::digest(format!("vault-account/1\n{address}"));
        let letters = hash
            .iter()
            // 26 letters of 5 bits: 130 bits, too many for two addresses to collide.
            .take(26)
            .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]));
        Self(format!("acc_{}", letters.collect::<String>()))
    }

    /// Returns the text of the id, `acc_…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<AccountId> for String {
    fn from(id: AccountId) -> Self {
        id.0
    }
}

impl From<String> for AccountId {
    /// Reads an id from a record. Records of an earlier version have the e-mail address in its
    /// place.
    fn from(text: String) -> Self {
        // Every address contains `@`, and no id does.
        if text.contains('@') {
            Self::of_address(&text)
        } else {
            Self(text)
        }
    }
}
