//! The people of a vault: `/admin/users`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

use crate::{Email, Given};

words! {
    /// What a token may be used for.
    #[derive(JsonSchema, Ord, PartialOrd)]
    pub enum Scope {
        /// See skills and use them.
        Read = "read",
        /// Propose, publish and change.
        Write = "write",
    }
}

words! {
    /// What a user is in a vault.
    #[derive(JsonSchema)]
    pub enum Role {
        /// Runs the vault: machines, users, releases.
        Owner = "role:owner",
        /// Uses it, and pushes its releases.
        Publisher = "role:publisher",
        /// Uses it.
        Member = "role:member",
    }
}

words! {
    /// What a user is to a vault.
    #[derive(Default, JsonSchema)]
    pub enum MembershipState {
        /// An owner invited the address; the invitation is not accepted yet.
        Invited = "invited",
        /// The person accepted.
        #[default]
        Active = "active",
    }
}

impl Role {
    /// Whether a user of this role pushes releases, and decides on drafts.
    pub const fn publishes(self) -> bool {
        matches!(self, Self::Owner | Self::Publisher)
    }
}

/// A set of scopes, possibly empty; JSON is an array of words, `Display` the space-separated form
/// of OAuth.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
#[schemars(with = "Vec<Scope>", inline)]
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
            .filter_map(|word| word.parse().ok())
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
        let all = Scope::ALL.iter().copied();
        all.filter(move |scope| self.has(*scope))
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

/// A user of a vault.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct User {
    /// The user's id, `usr_…`.
    pub id: String,
    /// The user's e-mail address.
    pub email: Email,
    /// Whether the person accepted the invitation.
    #[serde(default)]
    pub state: MembershipState,
    /// What the user is.
    pub role: Role,
    /// The most that a token of the user may carry.
    pub scopes: Scopes,
    /// The profile of the policy that restricts the user.
    pub profile: Option<String>,
    /// When the user was added.
    #[serde(default)]
    pub created_at: Timestamp,
    /// When the user was last active, to the minute.
    pub last_seen_at: Option<Timestamp>,
}

/// An invitation.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The address to invite.
    pub email: Given<Email>,
    /// What the person is to be; `role:member` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Given<Role>>,
    /// The most that the person's tokens may carry; `read` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<Given<Scope>>>,
}

/// Which profile of the policy restricts a user.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileChange {
    /// 1 to 64 printable characters; null: none.
    // Not an `Option`: a member that was left out must not lift a restriction.
    #[schemars(schema_with = "profile_schema")]
    pub profile: serde_json::Value,
}

fn profile_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "null"], "minLength": 1, "maxLength": 64 })
}

/// Which role a user is to have.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoleChange {
    /// The role.
    pub role: Given<Role>,
}

/// Which scopes a user is to get and to lose; none is in both.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScopeChange {
    /// The scopes to grant.
    #[serde(default)]
    pub grant: Vec<Given<Scope>>,
    /// The scopes to revoke.
    #[serde(default)]
    pub revoke: Vec<Given<Scope>>,
}
