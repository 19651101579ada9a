//! People of an identity provider, and the accounts that they sign in to.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `subject/<sha256 of issuer and subject>` | `subject` | [`SubjectEntry`], written with the proof in the account |
//!
//! A person may sign in only if the account's record contains the proof; [`SubjectEntry`] only
//! finds the account.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account_id::AccountId;

/// Returns the digest under which a person is stored: SHA-256 over issuer and subject. The same
/// subject of another issuer is another person.
pub fn subject_digest(issuer: &str, subject: &str) -> Digest {
    // An issuer is an address, so it contains no line feed.
    Digest::of(format!("vault-subject/1\n{issuer}\n{subject}").as_bytes())
}

/// Index entry that leads from a person of an identity provider to the account.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SubjectEntry {
    /// The account in which to look for the proof; only its record shows that it has it.
    pub account: AccountId,
}

/// Returns the key of the [`SubjectEntry`] of the person with this [`subject_digest`].
pub fn subject_key(subject: &Digest) -> RecordKey {
    RecordKey::new(format!("subject/{subject}"), "subject")
}

/// Returns the write of the index entry that leads from a person to `account`, under the condition
/// `when`.
pub fn connection_write(
    subject: &Digest,
    account: &AccountId,
    when: When,
) -> Result<Write, StoreError> {
    let connected = SubjectEntry {
        account: account.clone(),
    };
    let document = Document::from_value(&connected)?;
    Ok(Write::put(subject_key(subject), document, when))
}

/// Returns the write that removes the index entry of a person.
pub fn removal_write(subject: &Digest) -> Write {
    // `Any`, because the account's own proof decides and this entry only finds it.
    Write::delete(subject_key(subject), When::Any)
}
