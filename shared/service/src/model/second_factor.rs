//! A second factor: time-based one-time passwords (RFC 6238), with recovery codes for a person who
//! lost the device that makes them.
//!
//! Codes have six digits, are computed with HMAC-SHA-1 and change every 30 seconds (a step): the
//! defaults of every authenticator app. The codes of the steps before and after the present one are
//! valid too, because clocks differ. Each code is valid once.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use subtle::ConstantTimeEq as _;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::random::{Random, random_bytes};

/// Time for which one code of an authenticator app is current, in seconds (RFC 6238, time step).
const STEP_SECONDS: u64 = 30;
/// Time for which a second factor cannot be used as proof if it was set up without fresh
/// credentials, in seconds: a day. Until then each sign-in shows the owner of the account that it
/// exists, and lets the owner remove it.
const UNCONFIRMED_SECONDS: i64 = 24 * 3600;
/// Number of recovery codes of a new second factor.
pub const RECOVERY_CODES: usize = 10;
/// The alphabet of RFC 4648 section 6, in which authenticator apps take the secret.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The secret that an account shares with an authenticator app: 160 bits, as RFC 4226 recommends.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct TotpSecret([u8; 20]);

/// Error: a text is not a secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is not a secret of 32 base32 characters")]
pub struct BadSecret;

impl TotpSecret {
    /// Creates a random secret.
    pub fn fresh(random: &dyn Random) -> Self {
        Self(random_bytes::<20>(random))
    }

    /// Returns the text that a person types into an authenticator app.
    pub fn text(&self) -> String {
        encode_base32(&self.0)
    }

    /// Returns the address from which an authenticator app imports the secret (the key URI format
    /// of such apps).
    pub fn import_address(&self, issuer: &str, account: &str) -> String {
        let escaped = |text: &str| -> String {
            url::form_urlencoded::byte_serialize(text.as_bytes())
                .collect::<String>()
                .replace('+', "%20")
        };
        let (issuer, account) = (escaped(issuer), escaped(account));
        format!(
            "otpauth://totp/{issuer}:{account}?secret={}&issuer={issuer}",
            self.text()
        )
    }

    /// Returns the code of a step (RFC 4226 section 5.3).
    fn code_of_step(&self, step: u64) -> u32 {
        let mut mac =
            Hmac::<Sha1>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(&step.to_be_bytes());
        let hash = mac.finalize().into_bytes();
        // At most 15, so four of the 20 bytes always follow.
        let offset = usize::from(hash[19] & 15);
        let chosen = [0, 1, 2, 3].map(|n| hash[offset + n]);
        (u32::from_be_bytes(chosen) & 0x7fff_ffff) % 1_000_000
    }
}

impl std::str::FromStr for TotpSecret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let mut bits = Vec::new();
        for byte in text.bytes() {
            let value = BASE32.iter().position(|known| *known == byte);
            let value = value.ok_or(BadSecret)?;
            bits.extend((0..5).rev().map(|bit| value >> bit & 1 == 1));
        }
        let byte = |bits: &[bool]| bits.iter().fold(0_u8, |all, bit| all << 1 | u8::from(*bit));
        let raw: Vec<u8> = bits.chunks(8).map(byte).collect();
        // Text of another length can also give 20 bytes, with bits left over.
        let whole = bits.len() == 160;
        raw.try_into()
            .ok()
            .filter(|_| whole)
            .map(Self)
            .ok_or(BadSecret)
    }
}

impl From<TotpSecret> for String {
    fn from(secret: TotpSecret) -> Self {
        secret.text()
    }
}

impl TryFrom<String> for TotpSecret {
    type Error = BadSecret;

    fn try_from(text: String) -> Result<Self, BadSecret> {
        text.parse()
    }
}

impl std::fmt::Debug for TotpSecret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("TotpSecret(…)")
    }
}

fn encode_base32(bytes: &[u8]) -> String {
    let bit = |at: usize| usize::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let value = |group: usize| (0..5).fold(0, |all, n| all << 1 | bit(group * 5 + n));
    (0..bytes.len() * 8 / 5)
        .map(|group| char::from(BASE32[value(group)]))
        .collect()
}

/// The second factor of an account: the shared secret, and hashes of the recovery codes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SecondFactor {
    secret: TotpSecret,
    /// Time of the set-up; from then on, sign-ins require a code.
    pub since: Timestamp,
    /// Step of the newest code that was used: codes of this step and earlier ones are no longer
    /// valid.
    last_step: u64,
    /// Hashes of the recovery codes that were not used.
    recovery: Vec<Digest>,
    /// Time from which its codes count as fresh credentials; absent if they always do. A second
    /// factor that was set up without fresh credentials does not count at first: otherwise a person
    /// who finds a signed-in browser could add a factor of their own and confirm acts with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirms_from: Option<Timestamp>,
}

/// Kind of a valid code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsedCode {
    /// A code of the authenticator app.
    App,
    /// A recovery code, which is used up now.
    Recovery,
}

impl SecondFactor {
    /// Enables a second factor with a secret whose first code the person has typed. Returns it with
    /// its recovery codes, which are stored only as hashes, or `None` if the code is not valid.
    pub fn enable_with(
        secret: TotpSecret,
        typed: &str,
        now: Timestamp,
        random: &dyn Random,
    ) -> Option<(Self, Vec<String>)> {
        let codes: Vec<_> = (0..RECOVERY_CODES).map(|_| recovery_code(random)).collect();
        let mut factor = Self {
            secret,
            since: now,
            last_step: 0,
            recovery: codes.iter().map(|code| recovery_hash(code)).collect(),
            confirms_from: None,
        };
        // Proves that the app holds the secret, before the next sign-in depends on it. A recovery
        // code, which nobody has seen yet, would prove nothing.
        let used = factor.use_code(typed, now)?;
        (used == UsedCode::App).then_some((factor, codes))
    }

    /// Returns the second factor as one whose codes do not count as fresh credentials for a day.
    #[must_use]
    pub fn unconfirmed_at(self, now: Timestamp) -> Self {
        Self {
            confirms_from: Some(now.plus_seconds(UNCONFIRMED_SECONDS)),
            ..self
        }
    }

    /// Whether its codes count as fresh credentials, and as the second factor of a session.
    pub fn confirms(&self, now: Timestamp) -> bool {
        self.unconfirmed_until(now).is_none()
    }

    /// Returns the time from which its codes count, if that is in the future.
    pub fn unconfirmed_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.confirms_from.filter(|from| now < *from)
    }

    /// Returns the number of recovery codes that are left.
    pub fn recovery_left(&self) -> usize {
        self.recovery.len()
    }

    /// Uses up a code. Returns `None` if it is not valid or was used before.
    pub fn use_code(&mut self, typed: &str, now: Timestamp) -> Option<UsedCode> {
        // Apps show codes in groups, such as `123 456`.
        let typed: String = typed.chars().filter(|c| !c.is_whitespace()).collect();
        let present = u64::try_from(now.unix()).unwrap_or(0) / STEP_SECONDS;
        for step in present.saturating_sub(1)..=present + 1 {
            let code = format!("{:06}", self.secret.code_of_step(step));
            // Constant time, so that the answer does not tell how many digits were right.
            let same: bool = code.as_bytes().ct_eq(typed.as_bytes()).into();
            // A code that was watched or intercepted is worthless after its use.
            if same && step > self.last_step {
                self.last_step = step;
                return Some(UsedCode::App);
            }
        }
        let hash = recovery_hash(&typed);
        let at = self.recovery.iter().position(|held| *held == hash)?;
        self.recovery.remove(at);
        Some(UsedCode::Recovery)
    }
}

/// Whether `typed` has the form of a recovery code: 16 base32 characters, in any groups. Such a
/// text is never a code of an authenticator app, and cannot be found by guessing.
pub fn has_recovery_form(typed: &str) -> bool {
    let is_group_mark = |c: char| c.is_whitespace() || c == '-';
    let letters: String = typed.chars().filter(|c| !is_group_mark(*c)).collect();
    let is_base32 = |byte: u8| BASE32.contains(&byte.to_ascii_uppercase());
    letters.len() == 16 && letters.bytes().all(is_base32)
}

/// Creates a recovery code: 80 random bits in groups of four characters.
fn recovery_code(random: &dyn Random) -> String {
    let text = encode_base32(&random_bytes::<10>(random)).to_ascii_lowercase();
    [&text[..4], &text[4..8], &text[8..12], &text[12..]].join("-")
}

/// Returns the hash of a recovery code, independent of the case and grouping of its letters.
fn recovery_hash(code: &str) -> Digest {
    let code = code.replace('-', "").to_ascii_lowercase();
    Digest::of(format!("vault-recovery/1\n{code}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_testing::SeededRandom;

    /// The secret of the test vectors: the ASCII text 12345678901234567890.
    fn secret() -> TotpSecret {
        TotpSecret(*b"12345678901234567890")
    }

    #[test]
    fn rfc_4226_and_rfc_6238_vectors() {
        // RFC 4226 appendix D.
        let codes = [755_224, 287_082, 359_152, 969_429, 338_314];
        for (step, code) in codes.into_iter().enumerate() {
            assert_eq!(secret().code_of_step(step as u64), code);
        }
        // RFC 6238 appendix B, the last six of its eight digits.
        for (time, code) in [
            (59, 287_082),
            (1_111_111_109, 81_804),
            (1_111_111_111, 50_471),
            (1_234_567_890, 5_924),
            (2_000_000_000, 279_037),
            (20_000_000_000, 353_130),
        ] {
            assert_eq!(secret().code_of_step(time / STEP_SECONDS), code, "{time}");
        }
    }

    #[test]
    fn a_secret_survives_its_text() {
        let text = secret().text();
        assert_eq!(text, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(text.parse(), Ok(secret()));
        for bad in [
            "",
            "GEZD",
            "gezdgnbvgy3tqojqgezdgnbvgy3tqojq",
            &format!("{text}A"),
        ] {
            assert_eq!(bad.parse::<TotpSecret>(), Err(BadSecret), "{bad}");
        }
        assert_eq!(
            secret().import_address("vault.example", "ada+x@example.org"),
            format!(
                "otpauth://totp/vault.example:ada%2Bx%40example.org?secret={text}&issuer=vault.example"
            )
        );
        assert!(!format!("{:?}", secret()).contains("GEZD"));
    }

    #[test]
    fn a_code_counts_once_and_one_step_around_now() {
        let random = SeededRandom::new(1);
        let at = |step: i64| Timestamp::from_unix(step * 30 + 7);
        let code = |step: u64| format!("{:06}", secret().code_of_step(step));
        assert!(SecondFactor::enable_with(secret(), "000000", at(1000), &random).is_none());
        let (factor, _) =
            SecondFactor::enable_with(secret(), &code(1000), at(1000), &random).unwrap();
        for (typed, now, good) in [
            (code(1000), 1000, false), // used when it began
            (code(1001), 1000, true),
            (code(1002), 1000, false),
            (code(1002), 1003, true),
            (code(1002), 1004, false),
            ("123".to_owned(), 1003, false),
            (String::new(), 1003, false),
        ] {
            let taken = factor.clone().use_code(&typed, at(now));
            assert_eq!(taken, good.then_some(UsedCode::App), "{typed} at {now}");
        }
        let mut factor = factor;
        let spaced = format!(" {} {}", &code(1002)[..3], &code(1002)[3..]);
        assert_eq!(factor.use_code(&spaced, at(1002)), Some(UsedCode::App));
        assert_eq!(factor.use_code(&code(1002), at(1002)), None);
        assert_eq!(
            factor.use_code(&code(1001), at(1002)),
            None,
            "an earlier one neither"
        );
    }

    #[test]
    fn ten_recovery_codes_count_once_each() {
        let random = SeededRandom::new(1);
        let now = Timestamp::from_unix(30_000);
        let first = format!("{:06}", secret().code_of_step(1000));
        let (mut factor, codes) =
            SecondFactor::enable_with(secret(), &first, now, &random).unwrap();
        assert_eq!((codes.len(), factor.recovery_left()), (10, 10));
        let stored = serde_json::to_string(&factor).unwrap();
        for code in &codes {
            assert!(
                code.len() == 19 && !stored.contains(code.as_str()),
                "{code}"
            );
            assert_eq!(
                factor.use_code(&code.to_uppercase().replace('-', " "), now),
                Some(UsedCode::Recovery)
            );
            assert_eq!(factor.use_code(code, now), None);
        }
        assert_eq!(factor.recovery_left(), 0);
    }
}
