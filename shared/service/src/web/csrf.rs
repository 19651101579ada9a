//! Form tokens, in the hidden field `csrf`: proof that a form was made for this browser, this
//! purpose and exactly this request.
//!
//! A token is `nonce.issued.mac`. The MAC is HMAC-SHA-256 with the value of the session cookie as
//! its key, so a site that cannot read the cookie cannot make a token, and a page that is only
//! viewed stores nothing. A form that may be sent only once stores a mark under the nonce.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use vault_format::time::Timestamp;
use vault_format::words;
use vault_store::random::{Random, random_bytes};

use crate::model::token::Secret;

/// Lifetime of a form token, and so the time for which a page may stay open before its form
/// expires, in seconds: an hour.
pub const FORM_SECONDS: i64 = 3600;

words! {
    /// Purpose of a form. A token for one purpose is not valid for another.
    pub enum Purpose {
        /// The sign-in page.
        Login = "login",
        /// The consent page, on which a person allows or refuses an app.
        Consent = "consent",
        /// Signing out of the service, from any page.
        Logout = "logout",
        /// The page of an invitation link, which sets the first password.
        Invite = "invite",
        /// Changing a password that is known.
        Password = "password",
        /// The account pages, except those with a purpose of their own.
        Account = "account",
        /// Signing up for a vault.
        NewVault = "new-vault",
        /// Completing a sign-in with the code of a second factor.
        SecondFactor = "second-factor",
        /// Connecting a person of the identity provider to an account.
        Connect = "connect",
        /// The page that confirms or declines dangerous acts.
        Confirm = "confirm",
        /// Every page of the console.
        Console = "console",
    }
}

/// Creates a token for a form with this `purpose` about `subject` (the request that it answers), in
/// the browser whose cookie value is `session`.
pub fn create_token(
    session: &Secret,
    purpose: Purpose,
    subject: &str,
    now: Timestamp,
    random: &dyn Random,
) -> String {
    // Tokens of the same second must differ, so that each can be marked as used.
    let nonce = URL_SAFE_NO_PAD.encode(random_bytes::<16>(random));
    let mac = compute_mac(session, purpose, subject, &nonce, now.unix())
        .finalize()
        .into_bytes();
    format!("{nonce}.{}.{}", now.unix(), URL_SAFE_NO_PAD.encode(mac))
}

/// Verifies a token and returns its nonce, which the caller may mark as used. Returns `None` if the
/// token is forged or expired, or for another browser, purpose or subject.
pub fn verify_token(
    session: &Secret,
    purpose: Purpose,
    subject: &str,
    token: &str,
    now: Timestamp,
) -> Option<String> {
    let mut parts = token.split('.');
    let (nonce, issued, sent) = (parts.next()?, parts.next()?, parts.next()?);
    // The nonce may become part of a record key, so its length is fixed: 16 bytes in base64.
    if parts.next().is_some() || nonce.len() != 22 {
        return None;
    }
    let issued: i64 = issued.parse().ok()?;
    let sent = URL_SAFE_NO_PAD.decode(sent).ok()?;
    // `verify_slice` compares in constant time.
    compute_mac(session, purpose, subject, nonce, issued)
        .verify_slice(&sent)
        .ok()?;
    // The MAC is valid, so the time was written by this service.
    (now.unix() < issued.saturating_add(FORM_SECONDS)).then(|| nonce.to_owned())
}

fn compute_mac(
    session: &Secret,
    purpose: Purpose,
    subject: &str,
    nonce: &str,
    issued: i64,
) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(session.text().as_bytes())
        .expect("HMAC takes a key of any length");
    // The subject comes last: only it may contain a line feed, so no two inputs give the same text.
    mac.update(
        format!(
            "vault-csrf/1\n{}\n{nonce}\n{issued}\n{subject}",
            purpose.as_str()
        )
        .as_bytes(),
    );
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::token::SecretKind;
    use vault_testing::SeededRandom;

    #[test]
    fn requirement_24_a_form_token_is_for_one_browser_purpose_request_and_hour() {
        let random = SeededRandom::new(1);
        let now = Timestamp::from_unix(1_795_219_200);
        let (mine, other) = (
            Secret::fresh(SecretKind::Session, &random),
            Secret::fresh(SecretKind::Session, &random),
        );
        let made = create_token(&mine, Purpose::Consent, "a=1", now, &random);
        let nonce = made[..22].to_owned();
        let later = now.plus_seconds(FORM_SECONDS - 1);
        assert_eq!(
            verify_token(&mine, Purpose::Consent, "a=1", &made, now),
            Some(nonce.clone())
        );
        assert_eq!(
            verify_token(&mine, Purpose::Consent, "a=1", &made, later),
            Some(nonce)
        );
        assert_eq!(
            verify_token(&mine, Purpose::Consent, "a=1", &made, later.plus_seconds(1)),
            None
        );
        assert_eq!(
            verify_token(&other, Purpose::Consent, "a=1", &made, now),
            None
        );
        assert_eq!(verify_token(&mine, Purpose::Login, "a=1", &made, now), None);
        assert_eq!(
            verify_token(&mine, Purpose::Consent, "a=2", &made, now),
            None
        );
        assert_ne!(
            made,
            create_token(&mine, Purpose::Consent, "a=1", now, &random)
        );
        for bad in [
            "",
            "..",
            "a.b.c",
            &made[1..],
            &format!("{made}."),
            &made.replace('.', ""),
            &made[..made.len() - 1],
        ] {
            assert_eq!(
                verify_token(&mine, Purpose::Consent, "a=1", bad, now),
                None,
                "{bad}"
            );
        }
    }
}
