//! A user: one account's standing in one namespace, with role and scopes. Read live on every
//! request, so a change acts at once.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `user/<namespace_id>` | `<user_id>` | [`User`] |
//! | `acct/<account_id>` | `ns/<slug>` | [`Membership`], the index from an account to its users; written in the same commit |
//! | `invited/<e-mail>` | `<slug>` | [`Membership`], the index from an invited address to the users that wait for it |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vault_format::name::{NamespaceId, Slug};
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::account::{AccountId, Email};

pub use super::namespace::NamespaceRef;

/// What a token may be used for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See skills and use them.
    Read,
    /// Propose, publish and change.
    Write,
}

impl Scope {
    /// Both, in the order in which they are written.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// The word of the interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The word of the scope that opens the routes of operators. It is not a [`Scope`]: no user of a
/// namespace has it.
pub const OPERATOR: &str = "operator";

/// A set of scopes, possibly empty; JSON is an array of words, `Display` the space-separated form
/// of OAuth.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
pub struct Scopes {
    read: bool,
    write: bool,
}

impl Scopes {
    /// No scope.
    pub const NONE: Self = Self {
        read: false,
        write: false,
    };
    /// `read` alone.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// `read` and `write`.
    pub const ALL: Self = Self {
        read: true,
        write: true,
    };

    /// The known words of a `scope` parameter; unknown ones are dropped.
    pub fn known(text: &str) -> Self {
        text.split(' ')
            .filter_map(|word| Scope::ALL.into_iter().find(|scope| scope.as_str() == word))
            .collect()
    }

    /// Whether `scope` is in the set.
    pub const fn has(self, scope: Scope) -> bool {
        match scope {
            Scope::Read => self.read,
            Scope::Write => self.write,
        }
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            read: self.read && !other.read,
            write: self.write && !other.write,
        }
    }

    /// What both sets have.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            read: self.read && other.read,
            write: self.write && other.write,
        }
    }

    /// What either set has.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            write: self.write || other.write,
        }
    }

    /// Whether every scope of this set is in `other`.
    pub fn within(self, other: Self) -> bool {
        self.and(other) == self
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        !self.read && !self.write
    }

    /// The scopes, `read` first.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes
            .into_iter()
            .fold(Self::NONE, |set, scope| match scope {
                Scope::Read => Self { read: true, ..set },
                Scope::Write => Self { write: true, ..set },
            })
    }
}

impl From<Vec<Scope>> for Scopes {
    fn from(scopes: Vec<Scope>) -> Self {
        scopes.into_iter().collect()
    }
}

impl From<Scopes> for Vec<Scope> {
    fn from(scopes: Scopes) -> Self {
        scopes.iter().collect()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Scope::as_str).collect();
        out.write_str(&words.join(" "))
    }
}

/// What a user is in a namespace.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Role {
    /// Runs the namespace: devices, users, releases.
    #[serde(rename = "role:owner")]
    Owner,
    /// Uses it, and pushes its releases.
    #[serde(rename = "role:publisher")]
    Publisher,
    /// Uses it.
    #[serde(rename = "role:member")]
    Member,
}

impl Role {
    /// The word of the interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "role:owner",
            Self::Publisher => "role:publisher",
            Self::Member => "role:member",
        }
    }

    /// Whether a user of this role pushes releases, and decides on drafts.
    pub const fn publishes(self) -> bool {
        matches!(self, Self::Owner | Self::Publisher)
    }
}

/// A word that names no role.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("role must be role:owner, role:publisher or role:member")]
pub struct BadRole;

impl FromStr for Role {
    type Err = BadRole;

    fn from_str(text: &str) -> Result<Self, BadRole> {
        [Self::Owner, Self::Publisher, Self::Member]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or(BadRole)
    }
}

/// An account's standing in one namespace.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct User {
    /// `usr_…`.
    pub id: String,
    /// The address that was invited, and that the account has proven.
    pub email: Email,
    /// The account that accepted; see [`User::account`].
    #[serde(default)]
    pub account: Option<AccountId>,
    /// When an owner invited the address, the last time.
    #[serde(default)]
    pub invited_at: Option<Timestamp>,
    /// The address of that owner; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<Email>,
    /// The namespace.
    pub namespace: NamespaceRef,
    /// Owner, publisher or member.
    pub role: Role,
    /// The most a token of this user may carry.
    pub scopes: Scopes,
    /// The restricted profile of the policy, when one is set.
    pub profile: Option<String>,
    /// When the user was made.
    pub created_at: Timestamp,
    /// When a token of the user was last seen; to the minute.
    pub last_seen_at: Option<Timestamp>,
}

/// From an account to its user in one namespace.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Membership {
    /// The user's id.
    pub user_id: String,
    /// The namespace.
    pub namespace: NamespaceRef,
}

/// What a user is to its namespace.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// An owner invited the address; the invitation is not accepted yet.
    Invited,
    /// The person accepted.
    Active,
}

impl User {
    /// What the user is.
    pub const fn state(&self) -> State {
        if self.account.is_none() && self.invited_at.is_some() {
            State::Invited
        } else {
            State::Active
        }
    }

    /// Where the user stands.
    pub fn key(&self) -> RecordKey {
        user_key(&self.namespace.id, &self.id)
    }

    /// Whether the user may change who has a part in the namespace: an owner with the scope `write`
    /// who has accepted.
    pub fn administers(&self) -> bool {
        self.role == Role::Owner && self.scopes.has(Scope::Write) && self.state() == State::Active
    }
}

/// Whether `text` has the form of a user's id: `usr_` and 26 lower-case letters or digits.
pub fn is_user_id(text: &str) -> bool {
    text.strip_prefix("usr_").is_some_and(|rest| {
        rest.len() == 26
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

/// Where a user stands.
pub fn user_key(namespace: &NamespaceId, user_id: &str) -> RecordKey {
    RecordKey::new(users_partition(namespace), user_id)
}

/// The partition that lists the users of a namespace.
pub fn users_partition(namespace: &NamespaceId) -> String {
    format!("user/{namespace}")
}

/// Where the index entry of an account for one namespace stands; all of them: partition of the
/// account, prefix `ns/`.
pub fn membership_key(account: &AccountId, slug: &Slug) -> RecordKey {
    RecordKey::new(
        super::account::partition(account),
        format!("{MEMBERSHIPS}{slug}"),
    )
}

/// The prefix of the membership entries in an account's partition.
pub const MEMBERSHIPS: &str = "ns/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_sets_of_known_words() {
        for (text, scopes, back) in [
            ("read write", Scopes::ALL, "read write"),
            ("write read read", Scopes::ALL, "read write"),
            ("read", Scopes::READ, "read"),
            ("admin read openid", Scopes::READ, "read"),
            ("READ", Scopes::NONE, ""),
            ("", Scopes::NONE, ""),
        ] {
            assert_eq!(Scopes::known(text), scopes, "{text}");
            assert_eq!(scopes.to_string(), back);
        }
        assert!(Scopes::READ.within(Scopes::ALL) && !Scopes::ALL.within(Scopes::READ));
        assert_eq!(
            serde_json::to_string(&Scopes::ALL).unwrap(),
            r#"["read","write"]"#
        );
        assert_eq!(
            serde_json::from_str::<Scopes>(r#"["write"]"#)
                .unwrap()
                .to_string(),
            "write"
        );
        assert!(serde_json::from_str::<Scopes>(r#"["admin"]"#).is_err());
    }

    #[test]
    fn roles_are_the_interface_s_words() {
        for role in [Role::Owner, Role::Publisher, Role::Member] {
            assert_eq!(role.as_str().parse(), Ok(role));
            assert_eq!(
                serde_json::to_string(&role).unwrap(),
                format!("\"{}\"", role.as_str())
            );
        }
        assert_eq!("owner".parse::<Role>(), Err(BadRole));
    }
}
