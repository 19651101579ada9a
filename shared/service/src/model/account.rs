//! An account: a person, known by e-mail address, who signs in with a password; and the invitation by which one is set.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `acct/<e-mail>` | `account` | [`Account`] |
//! | `acct/<e-mail>` | `ns/<slug>` | [`super::user::Membership`] |
//! | `invite/<sha256>` | `invite` | [`Invite`], 72 hours, removed by its use |
//! | `service` | `owner` | [`FirstOwner`], there once the first owner was made |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, RecordKey, Records, When, Write};

use super::Seen;
use super::namespace::NamespaceRef;
use super::secret::{Secret, SecretKind};

/// How long an invitation can be used, in seconds: 72 hours.
pub const INVITE_SECONDS: i64 = 72 * 3600;

/// An e-mail address as the name of an account: plain ASCII, lower case, 3 to 254 bytes.
///
/// ASCII alone, because two addresses that look the same must not be two accounts; nothing is ever sent there.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct Email(String);

/// A text that cannot name an account.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is not an e-mail address in plain ASCII")]
pub struct BadEmail;

impl FromStr for Email {
    type Err = BadEmail;

    fn from_str(text: &str) -> Result<Self, BadEmail> {
        let text = text.trim().to_ascii_lowercase();
        let (name, host) = text.split_once('@').ok_or(BadEmail)?;
        let good = text.len() <= 254
            && !name.is_empty()
            && name.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || b".!#$%&'*+-/=?^_`{|}~".contains(&byte)
            })
            && !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
            && !host.starts_with(['.', '-'])
            && !host.ends_with(['.', '-']);
        if good { Ok(Self(text)) } else { Err(BadEmail) }
    }
}

impl Email {
    /// The address in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Email {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<Email> for String {
    fn from(email: Email) -> Self {
        email.0
    }
}

impl TryFrom<String> for Email {
    type Error = BadEmail;

    fn try_from(text: String) -> Result<Self, BadEmail> {
        text.parse()
    }
}

/// A person.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct Account {
    /// The name of the account.
    pub email: Email,
    /// The argon2id hash; absent until an invitation was used.
    pub password: Option<String>,
    /// When the password was set.
    pub password_set_at: Option<Timestamp>,
    /// How many passwords the account has had: a session counts only for the one it began with. A time would not do, since a session of
    /// the same second would stay.
    #[serde(default)]
    pub password_number: u32,
    /// Whether the account may use the operator routes.
    pub operator: bool,
    /// When the account was made.
    pub created_at: Timestamp,
    /// The hash of the one invitation that may set the password; an earlier one is dead.
    pub invite: Option<Digest>,
    /// The namespace whose owner gave that invitation; absent where an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<NamespaceRef>,
}

impl fmt::Debug for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Account")
            .field("email", &self.email)
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// An account that cannot sign in yet.
    pub const fn new(email: Email, now: Timestamp) -> Self {
        Self {
            email,
            password: None,
            password_set_at: None,
            password_number: 0,
            operator: false,
            created_at: now,
            invite: None,
            invited_by: None,
        }
    }

    /// Whether there is a way to sign in: until then nobody has shown to be the person.
    pub const fn can_sign_in(&self) -> bool {
        self.password.is_some()
    }

    /// Whether the owner of this namespace invited the account, and nobody accepted yet.
    pub fn waits_for(&self, namespace: &NamespaceRef) -> bool {
        !self.can_sign_in() && self.invited_by.as_ref() == Some(namespace)
    }
}

impl Account {
    /// Sets the password by its hash: sessions and an invitation from before it end.
    pub fn set_password(&mut self, hash: String, now: Timestamp) {
        self.password = Some(hash);
        self.password_set_at = Some(now);
        self.password_number = self.password_number.wrapping_add(1);
        self.invite = None;
    }
}

/// An invitation to set a password.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Invite {
    /// The account.
    pub email: Email,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// The mark that the first owner was made, which happens once in the life of a store.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FirstOwner {
    /// The account.
    pub email: Email,
    /// When.
    pub created_at: Timestamp,
}

/// The partition of an account.
pub fn partition(email: &Email) -> String {
    format!("acct/{email}")
}

/// Where an account stands.
pub fn account_key(email: &Email) -> RecordKey {
    RecordKey::new(partition(email), "account")
}

/// Where an invitation stands, by the hash of its text.
pub fn invite_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("invite/{hash}"), "invite")
}

/// Where the mark of the first owner stands.
pub fn first_owner_key() -> RecordKey {
    RecordKey::new("service", "owner")
}

/// What it takes to have an account for an address.
pub struct Invited {
    /// Conditional writes for the commit that makes the user; empty when the account can sign in already.
    pub writes: Vec<Write>,
    /// The link that sets the password, to be shown once; `None` when the account has a password already.
    pub url: Option<String>,
}

/// Prepares an account for `email`, as an operator: a new one or one without a password gets a fresh invitation under `issuer`
/// (the public URL), which replaces an earlier one. Fails when the store does.
pub async fn invite(
    records: &dyn Records,
    email: &Email,
    issuer: &str,
    now: Timestamp,
    random: &dyn Random,
) -> Result<Invited, StoreError> {
    let found = Seen::read(records.get(&account_key(email)).await?)?;
    invitation(found, email, None, issuer, now, random)
}

/// The same as the owner of `namespace`. `None` when the account waits for somebody else's invitation: its link sets the password of the
/// account everywhere, so a second owner who got one could enter the vault that invited first.
pub async fn invite_into(
    records: &dyn Records,
    email: &Email,
    namespace: &NamespaceRef,
    issuer: &str,
    now: Timestamp,
    random: &dyn Random,
) -> Result<Option<Invited>, StoreError> {
    let found = Seen::<Account>::read(records.get(&account_key(email)).await?)?;
    let free = found
        .as_ref()
        .is_none_or(|found| found.value.can_sign_in() || found.value.waits_for(namespace));
    if !free {
        return Ok(None);
    }
    let by = Some(namespace.clone());
    invitation(found, email, by, issuer, now, random).map(Some)
}

fn invitation(
    found: Option<Seen<Account>>,
    email: &Email,
    by: Option<NamespaceRef>,
    issuer: &str,
    now: Timestamp,
    random: &dyn Random,
) -> Result<Invited, StoreError> {
    let (mut account, when) = match found {
        Some(found) => (found.value, When::At(found.revision)),
        None => (Account::new(email.clone(), now), When::Absent),
    };
    if account.can_sign_in() {
        return Ok(Invited {
            writes: Vec::new(),
            url: None,
        });
    }
    let secret = Secret::fresh(SecretKind::Invite, random);
    let expires_at = now.plus_seconds(INVITE_SECONDS);
    let mut writes = Vec::new();
    if let Some(earlier) = account.invite.replace(secret.hash()) {
        writes.push(Write::delete(invite_key(&earlier), When::Any));
    }
    account.invited_by = by;
    let invite = Invite {
        email: email.clone(),
        expires_at,
    };
    writes.push(Write::put(
        account_key(email),
        Document::of(&account)?,
        when,
    ));
    writes.push(Write::put_until(
        invite_key(&secret.hash()),
        Document::of(&invite)?,
        When::Absent,
        expires_at,
    ));
    Ok(Invited {
        writes,
        url: Some(format!("{issuer}/oauth/invite/{}", secret.text())),
    })
}

/// The writes that remove an account which nobody can sign in to, read at this revision, with its invitation.
pub fn withdrawal(account: &Seen<Account>) -> Vec<Write> {
    let key = account_key(&account.value.email);
    let mut writes = vec![Write::delete(key, When::At(account.revision))];
    if let Some(invite) = &account.value.invite {
        writes.push(Write::delete(invite_key(invite), When::Any));
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_lower_case_ascii() {
        for (text, kept) in [
            ("ada@example.org", Some("ada@example.org")),
            (" Ada@Example.ORG ", Some("ada@example.org")),
            ("a+b.c/d@localhost", Some("a+b.c/d@localhost")),
            ("ada", None),
            ("@example.org", None),
            ("ada@", None),
            ("ada@.org", None),
            ("ada@org.", None),
            ("a b@example.org", None),
            ("a\n@example.org", None),
            ("ada@exa@mple.org", None),
            ("\u{e4}da@example.org", None),
            ("ada@ex\u{e4}mple.org", None),
            ("a\0@example.org", None),
        ] {
            assert_eq!(
                text.parse::<Email>().ok().as_ref().map(Email::as_str),
                kept,
                "{text:?}"
            );
        }
        assert!(
            format!("{}@example.org", "a".repeat(243))
                .parse::<Email>()
                .is_err()
        );
    }

    #[test]
    fn a_hash_is_never_printed() {
        let mut account = Account::new("ada@example.org".parse().unwrap(), Timestamp::from_unix(0));
        account.password = Some("$argon2id$secret".into());
        assert!(!format!("{account:?}").contains("secret"));
    }
}
