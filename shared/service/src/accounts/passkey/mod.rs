//! Passkeys (WebAuthn, <https://www.w3.org/TR/webauthn-3/>): as sign-in without a password, and in
//! place of the code of a second factor.
//!
//! Rule: a challenge counts for one browser, one purpose and one answer, within five minutes. The
//! authenticator must verify its user each time, so that a passkey counts as two factors.
//!
//! The service requests no attestation: people choose their authenticators themselves.

mod challenge;
pub mod manage;
pub mod relying_party;
pub mod sign_in;
