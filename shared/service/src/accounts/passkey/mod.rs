//! Passkeys (WebAuthn, <https://www.w3.org/TR/webauthn-3/>): they sign in without a password, or
//! take the place of the code of a second factor.
//!
//! Rule: a challenge is valid for one browser, one purpose and one answer, for five minutes. The
//! authenticator must verify its user each time, so one use of a passkey counts as two factors.
//!
//! The service requests no attestation: a person may use any authenticator.

mod challenge;
pub mod manage;
pub mod relying_party;
pub mod sign_in;
