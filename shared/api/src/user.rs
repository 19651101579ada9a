//! The people of a vault: `/admin/users`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

use crate::{Email, Given};

words! {
    /// A right of a token.
    #[derive(JsonSchema, Ord, PartialOrd)]
    pub enum Scope {
        /// See skills and use them.
        Read = "read",
        /// Propose, publish and change.
        Write = "write",
    }
}

words! {
    /// What a user may do in a vault. Each role also has the rights of the roles below it.
    #[derive(JsonSchema)]
    pub enum Role {
        /// Runs the vault: its machines, users and settings. Also does what a publisher does.
        Owner = "role:owner",
        /// Pushes releases and decides on drafts. Also does what a member does.
        Publisher = "role:publisher",
        /// Uses the skills of the vault and proposes changes.
        Member = "role:member",
    }
}

words! {
    /// Whether a user has accepted the invitation to a vault.
    #[derive(Default, JsonSchema)]
    pub enum MembershipState {
        /// An owner invited the address; the invitation is not accepted yet.
        Invited = "invited",
        /// The user has the rights of the role.
        #[default]
        Active = "active",
    }
}

impl Role {
    /// Whether a user of this role pushes releases, and decides on drafts.
    pub const fn can_publish(self) -> bool {
        matches!(self, Self::Owner | Self::Publisher)
    }
}

/// A set of scopes, possibly empty; JSON is an array of words, `Display` the space-separated form
/// of OAuth.
// Flags and not a list, so that order and repeated words make no difference between two sets.
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

    /// Parses a `scope` parameter. Unknown words are dropped.
    pub fn parse_known(text: &str) -> Self {
        text.split(' ')
            // OAuth lets a server grant less than an app asks for, so an unknown scope is left out.
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

    /// Returns the scopes of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            read: self.read && !other.read,
            write: self.write && !other.write,
        }
    }

    /// Returns the scopes that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            read: self.read && other.read,
            write: self.write && other.write,
        }
    }

    /// Returns the scopes that are in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            write: self.write || other.write,
        }
    }

    /// Whether every scope of this set is in `other`.
    pub fn is_subset_of(self, other: Self) -> bool {
        self.and(other) == self
    }

    /// Whether the set is empty.
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
    /// Address that was invited, and that an active user has proven to own.
    pub email: Email,
    /// Whether the person accepted the invitation.
    #[serde(default)]
    pub state: MembershipState,
    /// Role, which decides what the user may do in the vault.
    pub role: Role,
    /// The largest set of scopes of the user's tokens.
    pub scopes: Scopes,
    /// Name of the profile in the vault's policy that limits the skills which the user sees; null
    /// for no limit.
    pub profile: Option<String>,
    /// The id of the app that invited the person last. Absent if no app did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Time at which the user was added.
    #[serde(default)]
    pub created_at: Timestamp,
    /// Time of the user's last activity, to the minute.
    pub last_seen_at: Option<Timestamp>,
}

/// A request to invite a person to a vault.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The address to invite.
    pub email: Given<Email>,
    /// The person's future role; `role:member` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Given<Role>>,
    /// The largest set of scopes of the person's tokens; `read` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<Given<Scope>>>,
}

/// A change of the policy profile that restricts a user.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileChange {
    /// Name of the profile, of 1 to 64 printable characters; null removes the restriction.
    // Not an `Option`: a member that was left out must not lift a restriction.
    #[schemars(schema_with = "profile_schema")]
    pub profile: serde_json::Value,
}

fn profile_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "null"], "minLength": 1, "maxLength": 64 })
}

/// A change of a user's role.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoleChange {
    /// Role that the user gets.
    pub role: Given<Role>,
}

/// A change of a user's scopes; none is both granted and revoked.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScopeChange {
    /// Scopes to add to those that the user has.
    #[serde(default)]
    pub grant: Vec<Given<Scope>>,
    /// Scopes that the user loses.
    #[serde(default)]
    pub revoke: Vec<Given<Scope>>,
}
