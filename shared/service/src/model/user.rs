//! A user: the membership of one account in one namespace, with role and scopes; or an invitation
//! to it. The record is read on every request, so a change acts at once.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `user/<namespace_id>` | `<user_id>` | [`User`] |
//! | `acct/<account_id>` | `ns/<slug>` | [`Membership`], the index from an account to its users; written in the same commit |
//! | `invited/<e-mail>` | `<slug>` | [`Membership`], the index from an invited address to the users that wait for it |

use serde::{Deserialize, Serialize};
use vault_format::name::{NamespaceId, Slug};
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::account::{AccountId, Email};
use super::client::ClientId;
use super::is_id;

pub use super::namespace::NamespaceRef;
pub use vault_api::{MembershipState as State, Role, Scope, Scopes};

/// The scope of operators in OAuth. It is not a [`Scope`], because no user of a namespace has it.
pub const OPERATOR: &str = "operator";

/// The record of a member of a namespace, or of an invitation to it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct User {
    /// Id of the user, `usr_…`.
    pub id: String,
    /// Address that was invited, and that the account has proven.
    pub email: Email,
    /// Account that accepted the invitation; see [`User::account`].
    #[serde(default)]
    pub account: Option<AccountId>,
    /// Time of the last invitation of the address by an owner.
    #[serde(default)]
    pub invited_at: Option<Timestamp>,
    /// Address of the owner who invited; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<Email>,
    /// The app through which the owner last invited. Absent for the console, and in records of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// Namespace that the user belongs to; a user belongs to one only.
    pub namespace: NamespaceRef,
    /// Role of the user, which limits what the user may do at most.
    pub role: Role,
    /// Scopes of the user; tokens can have no others.
    pub scopes: Scopes,
    /// Name of the profile in the vault's policy that limits the skills which the user sees; `None`
    /// for no limit.
    pub profile: Option<String>,
    /// Time of the first invitation, or of the creation.
    pub created_at: Timestamp,
    /// Time at which a token of the user was last used, accurate to a minute.
    pub last_seen_at: Option<Timestamp>,
}

/// Index entry that leads from an account, or from an invited address, to its user in one
/// namespace.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Membership {
    /// Id of the user, `usr_…`, by which its record is found.
    pub user_id: String,
    /// Namespace that the user belongs to; the key of the entry ends with its slug.
    pub namespace: NamespaceRef,
}

impl User {
    /// Returns whether the user is invited or active.
    pub const fn state(&self) -> State {
        // Records of an earlier version have neither member, and their users are active.
        if self.account.is_none() && self.invited_at.is_some() {
            State::Invited
        } else {
            State::Active
        }
    }

    /// Returns the key of the user's record.
    pub fn key(&self) -> RecordKey {
        user_key(&self.namespace.id, &self.id)
    }

    /// Whether the user may change the members of the namespace: an owner with the scope `write`
    /// who has accepted.
    pub fn can_administer(&self) -> bool {
        self.role == Role::Owner && self.scopes.has(Scope::Write) && self.state() == State::Active
    }
}

/// Returns the role as words for a sentence: `an owner`.
pub const fn role_with_article(role: Role) -> &'static str {
    match role {
        Role::Owner => "an owner",
        Role::Publisher => "a publisher",
        Role::Member => "a member",
    }
}

/// Whether `text` has the form of a user's id: `usr_` and 26 lower-case letters or digits.
pub fn is_user_id(text: &str) -> bool {
    // The id becomes part of record keys, so no other character may pass.
    is_id("usr_", text)
}

/// Returns the key of the [`User`] with this id.
pub fn user_key(namespace: &NamespaceId, user_id: &str) -> RecordKey {
    RecordKey::new(users_partition(namespace), user_id)
}

/// Returns the partition with a namespace's [`User`]s: members and open invitations.
pub fn users_partition(namespace: &NamespaceId) -> String {
    format!("user/{namespace}")
}

/// Returns the key of an account's index entry for one namespace. All of them have the prefix `ns/`
/// in the account's partition.
pub fn membership_key(account: &AccountId, slug: &Slug) -> RecordKey {
    RecordKey::new(
        super::account::account_partition(account),
        format!("{MEMBERSHIPS}{slug}"),
    )
}

/// Prefix of the keys of [`Membership`] entries in an account's partition.
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
            assert_eq!(Scopes::parse_known(text), scopes, "{text}");
            assert_eq!(scopes.to_string(), back);
        }
        assert!(Scopes::READ.is_subset_of(Scopes::ALL) && !Scopes::ALL.is_subset_of(Scopes::READ));
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
}
