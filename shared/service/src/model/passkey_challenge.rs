//! Challenges of WebAuthn: random data that a passkey must sign, stored until the browser sends the
//! answer.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `session/<sha256 of the cookie>` | `passkey/<purpose>` | [`Challenge`], 5 minutes, removed by its use |
//!
//! A challenge is valid for one browser and one purpose only: each browser has a partition of its
//! own.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_format::words;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};
use webauthn_rs::prelude::{DiscoverableAuthentication, PasskeyRegistration, Uuid};

use super::account_id::AccountId;
use super::limits::Networks;
use super::passkey::PasskeyName;
use super::session::session_partition;

/// Time for which a challenge can be answered, in seconds: 5 minutes.
pub const CHALLENGE_SECONDS: i64 = 300;

words! {
    /// Purpose of a challenge. An answer for one purpose is rejected for another.
    pub enum ChallengePurpose {
        /// Signing in without a password.
        SignIn = "sign-in",
        /// Completing a sign-in, in place of the code of the second factor.
        SecondFactor = "second-factor",
        /// Adding a passkey to a signed-in account.
        Add = "add",
    }
}

/// A challenge that waits for the answer of an authenticator.
#[derive(Deserialize, Serialize)]
pub struct Challenge<T> {
    /// State that the answer is checked against, by purpose.
    pub state: T,
    /// First second at which an answer to the challenge is refused.
    pub ends_at: Timestamp,
}

/// State of a challenge for a sign-in or its completion.
#[derive(Deserialize, Serialize)]
pub struct AssertionState {
    /// Networks for which the challenge counts as an attempt, until it leads to a sign-in.
    #[serde(alias = "source")]
    pub networks: Networks,
    /// State of the WebAuthn library for the check of the answer.
    pub authentication: DiscoverableAuthentication,
}

/// State of a challenge that adds a passkey.
#[derive(Deserialize, Serialize)]
pub struct AdditionState {
    /// Account that gets the passkey.
    pub account: AccountId,
    /// User handle of the account in the authenticator ([`super::passkey::Passkeys`]).
    pub user: Uuid,
    /// Name that the person gave the passkey.
    pub name: PasskeyName,
    /// State of the WebAuthn library for the check of the answer.
    pub registration: PasskeyRegistration,
}

impl<T: Serialize> Challenge<T> {
    /// Creates a challenge that can be answered for [`CHALLENGE_SECONDS`] from now.
    pub fn begin_now(state: T, now: Timestamp) -> Self {
        Self {
            state,
            ends_at: now.plus_seconds(CHALLENGE_SECONDS),
        }
    }

    /// Returns the time at which the challenge began, computed from its end.
    pub fn begun_at(&self) -> Timestamp {
        self.ends_at.plus_seconds(-CHALLENGE_SECONDS)
    }

    /// Returns the write that stores the challenge for a browser, in place of an earlier one.
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

/// Returns the key of a browser's [`Challenge`] for this purpose, of which it has at most one.
pub fn challenge_key(browser: &Digest, purpose: ChallengePurpose) -> RecordKey {
    RecordKey::new(
        session_partition(browser),
        format!("passkey/{}", purpose.as_str()),
    )
}
