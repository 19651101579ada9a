//! People of an identity provider, and the accounts that they are.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `subject/<sha256 of issuer and subject>` | `subject` | [`Connected`], written with the proof in the account |
//!
//! The account's own proof decides; [`Connected`] only finds the account.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account_id::AccountId;

/// The name of a person: an issuer's subject. The same subject of another issuer is another person.
pub fn name(issuer: &str, subject: &str) -> Digest {
    // An issuer is an address, so it contains no line feed.
    Digest::of(format!("vault-subject/1\n{issuer}\n{subject}").as_bytes())
}

/// Which account a person of an identity provider is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Connected {
    /// The account.
    pub account: AccountId,
}

/// Where the account of a person stands.
pub fn subject_key(subject: &Digest) -> RecordKey {
    RecordKey::new(format!("subject/{subject}"), "subject")
}

/// The write by which a person is found as `account`; `when` is what was read before.
pub fn connection(subject: &Digest, account: &AccountId, when: When) -> Result<Write, StoreError> {
    let connected = Connected {
        account: account.clone(),
    };
    let document = Document::of(&connected)?;
    Ok(Write::put(subject_key(subject), document, when))
}

/// The write by which a person is no longer found.
pub fn removal(subject: &Digest) -> Write {
    Write::delete(subject_key(subject), When::Any)
}
