//! Challenges that wait for the answer of a passkey.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `session/<sha256 of the cookie>` | `passkey/<purpose>` | [`Challenge`], 5 minutes, removed by its use |
//!
//! A challenge belongs to one browser and one purpose: another browser has another partition.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};
use webauthn_rs::prelude::{DiscoverableAuthentication, PasskeyRegistration, Uuid};

use super::account_id::AccountId;
use super::limits::Networks;
use super::passkey::PasskeyName;
use super::session::session_partition;

/// Time for which a challenge can be answered, in seconds: 5 minutes.
pub const CHALLENGE_SECONDS: i64 = 300;

/// Purpose of a challenge. An answer for one purpose does not count for another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChallengePurpose {
    /// Signing in without a password.
    SignIn,
    /// Completing a sign-in.
    SecondFactor,
    /// Adding a passkey.
    Add,
}

impl ChallengePurpose {
    /// Returns its word in forms and keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::SecondFactor => "second-factor",
            Self::Add => "add",
        }
    }
}

/// A challenge that waits for the answer of an authenticator.
#[derive(Deserialize, Serialize)]
pub struct Challenge<T> {
    /// What the answer is checked against.
    pub state: T,
    /// Time at which it ends.
    pub ends_at: Timestamp,
}

/// State of a challenge that signs in, or completes a sign-in.
#[derive(Deserialize, Serialize)]
pub struct AssertionState {
    /// Networks against whose limits the challenge counts until somebody signs in with it.
    #[serde(alias = "source")]
    pub networks: Networks,
    /// What the answer is checked against.
    pub authentication: DiscoverableAuthentication,
}

/// State of a challenge that adds a passkey.
#[derive(Deserialize, Serialize)]
pub struct AdditionState {
    /// Account that gets the passkey.
    pub account: AccountId,
    /// Name of the account in the authenticator.
    pub user: Uuid,
    /// Name of the passkey.
    pub name: PasskeyName,
    /// What the answer is checked against.
    pub registration: PasskeyRegistration,
}

impl<T: Serialize> Challenge<T> {
    /// Returns a challenge that begins now.
    pub fn begin_now(state: T, now: Timestamp) -> Self {
        Self {
            state,
            ends_at: now.plus_seconds(CHALLENGE_SECONDS),
        }
    }

    /// Returns the time at which it began.
    pub fn begun_at(&self) -> Timestamp {
        self.ends_at.plus_seconds(-CHALLENGE_SECONDS)
    }

    /// Returns the write that stores it for a browser, in place of an earlier one.
    pub fn creation_write(
        &self,
        browser: &Digest,
        purpose: ChallengePurpose,
    ) -> Result<Write, StoreError> {
        Ok(Write::put_until(
            challenge_key(browser, purpose),
            Document::from_value(self)?,
            // One challenge of a purpose at a time, so that a browser stores no more than three.
            When::Any,
            self.ends_at,
        ))
    }
}

/// Returns the key of the challenge of a browser for this purpose.
pub fn challenge_key(browser: &Digest, purpose: ChallengePurpose) -> RecordKey {
    RecordKey::new(
        session_partition(browser),
        format!("passkey/{}", purpose.as_str()),
    )
}
