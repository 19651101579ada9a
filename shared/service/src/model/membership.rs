//! Membership: transitions by which a person joins and leaves a namespace. Pure functions of a
//! [`User`].
//!
//! ```text
//!            POST /admin/users                 accepts
//!   (none) ────────────────────► invited ──────────────► active
//!                                   │ declines, is           │ leaves,
//!                                   │ withdrawn, 7 days      │ is removed
//!                                   ▼                        ▼
//!                                 (none)                   (none)
//! ```
//!
//! An invitation is for an e-mail address, and nothing reveals whether an account has that address.
//! It is bound to an account only when a person who has proven to own the address accepts.
//! Invitations of two namespaces are two independent records.

use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account::{Account, AccountId, Email};
use super::client::ClientId;
use super::fresh_id;
use super::user::{Membership, NamespaceRef, Role, Scopes, User, membership_key};
use crate::ports::Ports;

/// Lifetime of an invitation, in seconds: 7 days.
pub const INVITATION_SECONDS: i64 = 7 * 24 * 3600;

/// Error: an account cannot answer an invitation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotInvited {
    /// The user is a member already, so there is nothing to answer.
    #[error("the membership is active already")]
    Active,
    /// The account has another e-mail address than the one that was invited.
    #[error("the invitation is for another address")]
    OtherAddress,
    /// 7 days have passed since the invitation was sent or last renewed.
    #[error("the invitation has expired")]
    Expired,
}

impl User {
    /// Creates an invitation: a user who is not active yet.
    pub fn new_invited(
        email: Email,
        namespace: NamespaceRef,
        role: Role,
        scopes: Scopes,
        ports: &Ports,
    ) -> Self {
        let now = ports.now();
        Self {
            id: fresh_id("usr_", now, &ports.random),
            email,
            account: None,
            invited_at: Some(now),
            invited_by: None,
            client: None,
            namespace,
            role,
            scopes,
            profile: None,
            created_at: now,
            last_seen_at: None,
        }
    }

    /// Creates an active user of this account without an invitation: for a namespace that an
    /// operator creates for the account, and for the first start of a service.
    pub fn new_active(
        account: &Account,
        namespace: NamespaceRef,
        role: Role,
        scopes: Scopes,
        ports: &Ports,
    ) -> Self {
        let email = account.email.clone();
        Self {
            account: Some(account.id.clone()),
            invited_at: None,
            ..Self::new_invited(email, namespace, role, scopes, ports)
        }
    }

    /// Returns the account of an active user; `None` for an invitation.
    pub fn account(&self) -> Option<AccountId> {
        match (&self.account, self.invited_at) {
            (Some(account), _) => Some(account.clone()),
            (None, Some(_)) => None,
            // An earlier version knew the account by its address alone.
            (None, None) => Some(AccountId::of_earlier_version(&self.email)),
        }
    }

    /// Returns the time at which the invitation ends; `None` for an active user.
    pub fn invitation_ends_at(&self) -> Option<Timestamp> {
        let at = self.invited_at.filter(|_| self.account.is_none())?;
        Some(at.plus_seconds(INVITATION_SECONDS))
    }

    /// Returns the same invitation with its inviter: the address of the owner, and the app that the
    /// owner used.
    #[must_use]
    pub fn with_inviter(self, inviter: &Email, client: Option<&ClientId>) -> Self {
        Self {
            invited_by: Some(inviter.clone()),
            client: client.cloned(),
            ..self
        }
    }

    /// Returns the invitation with another role and other scopes; its seven days begin again.
    #[must_use]
    pub fn invited_anew(self, role: Role, scopes: Scopes, now: Timestamp) -> Self {
        Self {
            role,
            scopes,
            invited_at: Some(now),
            ..self
        }
    }

    /// Returns the active user after `account` has accepted the invitation. Fails if it may not
    /// accept now.
    pub fn accepted_by(&self, account: &Account, now: Timestamp) -> Result<Self, NotInvited> {
        self.answerable_by(account, now)?;
        Ok(Self {
            account: Some(account.id.clone()),
            ..self.clone()
        })
    }

    /// Checks that `account` may accept or decline the invitation now.
    pub fn answerable_by(&self, account: &Account, now: Timestamp) -> Result<(), NotInvited> {
        let ends_at = self.invitation_ends_at().ok_or(NotInvited::Active)?;
        if self.email != account.email {
            Err(NotInvited::OtherAddress)
        } else if now >= ends_at {
            Err(NotInvited::Expired)
        } else {
            Ok(())
        }
    }

    /// Returns the key of the user's index entry: under the account if the user is active,
    /// otherwise under the invited address.
    fn index_key(&self) -> RecordKey {
        match self.account() {
            Some(account) => membership_key(&account, &self.namespace.slug),
            None => invitation_key(&self.email, &self.namespace.slug),
        }
    }

    fn index_write(&self) -> Result<Write, StoreError> {
        let membership = Membership {
            user_id: self.id.clone(),
            namespace: self.namespace.clone(),
        };
        let (key, document) = (self.index_key(), Document::from_value(&membership)?);
        Ok(match self.invitation_ends_at() {
            // An account has one user in a namespace, so a second acceptance fails at this
            // condition.
            None => Write::put(key, document, When::Absent),
            // `Any`, because an expired entry may still exist.
            Some(ends_at) => Write::put_until(key, document, When::Any, ends_at),
        })
    }

    fn to_write(&self, when: When) -> Result<Write, StoreError> {
        let document = Document::from_value(self)?;
        Ok(match self.invitation_ends_at() {
            None => Write::put(self.key(), document, when),
            Some(ends_at) => Write::put_until(self.key(), document, when, ends_at),
        })
    }

    /// Returns the writes that create a user: its record and its index entry.
    pub fn creation_writes(&self) -> Result<Vec<Write>, StoreError> {
        Ok(vec![self.to_write(When::Absent)?, self.index_write()?])
    }

    /// Returns the write that replaces the record as it was read at `revision`.
    pub fn update_write(&self, revision: u64) -> Result<Write, StoreError> {
        self.to_write(When::At(revision))
    }

    /// Returns the writes that renew an invitation, which was read at `revision`: its record and
    /// its index entry expire later.
    pub fn renewal_writes(&self, revision: u64) -> Result<Vec<Write>, StoreError> {
        Ok(vec![self.update_write(revision)?, self.index_write()?])
    }

    /// Returns the writes that replace the invitation, read at `revision`, by the active `user`.
    pub fn acceptance_writes(&self, revision: u64, user: &Self) -> Result<Vec<Write>, StoreError> {
        Ok(vec![
            user.update_write(revision)?,
            user.index_write()?,
            // `Any`, because the entry of the invitation may have expired.
            Write::delete(self.index_key(), When::Any),
        ])
    }

    /// Returns the writes that remove the user, read at `revision`, and the index entry. The user's
    /// tokens are invalid from then on.
    pub fn removal_writes(&self, revision: u64) -> [Write; 2] {
        [
            Write::delete(self.key(), When::At(revision)),
            Write::delete(self.index_key(), When::Any),
        ]
    }
}

/// Returns the partition of the invitations of an address, with one entry for each namespace.
pub fn invitations_partition(email: &Email) -> String {
    format!("invited/{email}")
}

/// Returns the key of the index entry of an address's invitation to the namespace with this slug.
pub fn invitation_key(email: &Email, slug: &Slug) -> RecordKey {
    RecordKey::new(invitations_partition(email), slug.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vault_testing::{SeededRandom, TestClock};

    use super::*;
    use crate::model::user::State;

    fn account(email: &str) -> Account {
        let now = Timestamp::from_unix(0);
        let email: Email = email.parse().unwrap();
        Account::new(AccountId::fresh(now, &SeededRandom::new(7)), email, now)
    }

    fn invitation() -> User {
        let namespace = NamespaceRef {
            slug: "acme".parse().unwrap(),
            id: vault_format::name::NamespaceId::from_parts(1, 1),
        };
        let email = "ada@example.org".parse().unwrap();
        let clock = Arc::new(TestClock::new(Timestamp::from_unix(0)));
        let ports = Ports::in_memory(clock);
        User::new_invited(email, namespace, Role::Owner, Scopes::ALL, &ports)
    }

    #[test]
    fn only_the_invited_address_answers_and_for_seven_days() {
        let (ada, eve) = (account("ada@example.org"), account("eve@example.org"));
        let invited = invitation();
        let joined = invited.accepted_by(&ada, Timestamp::from_unix(0)).unwrap();
        let end = INVITATION_SECONDS;
        for (user, who, at, wanted) in [
            (&invited, &ada, 0, Ok(())),
            (&invited, &ada, end - 1, Ok(())),
            (&invited, &ada, end, Err(NotInvited::Expired)),
            (&invited, &eve, 0, Err(NotInvited::OtherAddress)),
            (&joined, &ada, 0, Err(NotInvited::Active)),
        ] {
            let at = Timestamp::from_unix(at);
            assert_eq!(user.answerable_by(who, at), wanted, "{user:?} {at}");
            assert_eq!(
                user.accepted_by(who, at).map(|_| ()),
                wanted,
                "{user:?} {at}"
            );
        }
    }

    #[test]
    fn accepting_binds_to_the_account_and_changes_nothing_else() {
        let (ada, invited) = (account("ada@example.org"), invitation());
        assert_eq!((invited.state(), invited.account()), (State::Invited, None));
        assert!(!invited.can_administer(), "an invited owner is none yet");
        let joined = invited.accepted_by(&ada, Timestamp::from_unix(1)).unwrap();
        assert_eq!(joined.state(), State::Active);
        assert_eq!(joined.account(), Some(ada.id));
        assert!(joined.can_administer());
        assert_eq!((joined.id, joined.role), (invited.id, invited.role));
    }

    #[test]
    fn an_invitation_given_anew_lasts_seven_days_from_then() {
        let ada = account("ada@example.org");
        let again =
            invitation().invited_anew(Role::Member, Scopes::READ, Timestamp::from_unix(100));
        assert_eq!((again.role, again.scopes), (Role::Member, Scopes::READ));
        let end = Timestamp::from_unix(100 + INVITATION_SECONDS);
        assert_eq!(again.invitation_ends_at(), Some(end));
        assert_eq!(again.answerable_by(&ada, end), Err(NotInvited::Expired));
    }

    #[test]
    fn a_user_of_an_earlier_version_is_active() {
        let mut earlier = serde_json::to_value(invitation()).unwrap();
        let members = earlier.as_object_mut().unwrap();
        assert!(members.remove("account").is_some() && members.remove("invited_at").is_some());
        let read: User = serde_json::from_value(earlier).unwrap();
        assert_eq!(read.state(), State::Active);
        assert_eq!(
            read.account(),
            Some(AccountId::of_earlier_version(&read.email))
        );
        assert_eq!(read.invitation_ends_at(), None);
    }
}
