//! A user: one account's standing in one namespace, with role and scopes. Read live on every
//! request, so a change acts at once.
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

/// The word of the scope that opens the routes of operators. It is not a [`Scope`]: no user of a
/// namespace has it.
pub const OPERATOR: &str = "operator";

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
    /// Time of the last invitation of the address by an owner.
    #[serde(default)]
    pub invited_at: Option<Timestamp>,
    /// The address of that owner; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<Email>,
    /// The app that invited them last. Absent for the console, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// The namespace.
    pub namespace: NamespaceRef,
    /// Owner, publisher or member.
    pub role: Role,
    /// The most a token of this user may carry.
    pub scopes: Scopes,
    /// The restricted profile of the policy, when one is set.
    pub profile: Option<String>,
    /// Time at which the user was made.
    pub created_at: Timestamp,
    /// Time at which a token of the user was last seen, to the minute.
    pub last_seen_at: Option<Timestamp>,
}

/// Index entry from an account to its user in one namespace.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Membership {
    /// The user's id.
    pub user_id: String,
    /// The namespace.
    pub namespace: NamespaceRef,
}

impl User {
    /// Returns the state of the user.
    pub const fn state(&self) -> State {
        // Records of an earlier version have neither member, and their users are active.
        if self.account.is_none() && self.invited_at.is_some() {
            State::Invited
        } else {
            State::Active
        }
    }

    /// Returns the key of the user.
    pub fn key(&self) -> RecordKey {
        user_key(&self.namespace.id, &self.id)
    }

    /// Whether the user may change the members of the namespace: an owner with the scope `write`
    /// who has accepted.
    pub fn can_administer(&self) -> bool {
        self.role == Role::Owner && self.scopes.has(Scope::Write) && self.state() == State::Active
    }
}

/// Returns a person with the role, in words: `an owner`.
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

/// Returns the key of a user.
pub fn user_key(namespace: &NamespaceId, user_id: &str) -> RecordKey {
    RecordKey::new(users_partition(namespace), user_id)
}

/// Returns the partition that lists the users of a namespace.
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
