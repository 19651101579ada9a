//! The user who administers a vault, whether the request came with an access token at `/admin` or
//! from a form of the console.
//!
//! Each administrative change is one function over a [`Principal`], which both callers share, so
//! that the API and the console cannot differ in rights or in audit records.

use vault_store::StoreError;

use crate::accounts::permits::PermitRequester;
use crate::app::{ActingUser, App};
use crate::error::{ErrorCode, Refusal};
use crate::model::account::{AccountId, Email};
use crate::model::audit::{Actor, Change};
use crate::model::client::ClientId;
use crate::model::family::Family;
use crate::model::namespace::Namespace;
use crate::model::permit::Act;
use crate::model::standing;
use crate::model::user::{NamespaceRef, Role, User};
use crate::transaction::Transaction;

/// A user of a vault whose rights were checked, with the vault as of this request.
#[derive(Clone, Copy)]
pub(crate) struct Principal<'a> {
    pub(crate) app: &'a App,
    pub(crate) namespace: &'a Namespace,
    /// Id in the namespace, such as `usr_…`.
    pub(crate) user_id: &'a str,
    pub(crate) email: &'a Email,
    pub(crate) role: Role,
    pub(crate) actor: &'a Actor,
    /// The account with which the user signs in; one account can have users in several vaults.
    pub(crate) account: &'a AccountId,
    /// The consent by which the app that sent the request got its token; `None` for the console.
    pub(crate) consent: Option<&'a Family>,
    /// Id of the permit (a pending confirmation of acts) that the person confirms by this request;
    /// `None` if the request confirms none.
    pub(crate) confirms: Option<&'a str>,
}

impl<'a> Principal<'a> {
    /// `user` is the caller in the vault of `acting`. The result confirms no permit.
    pub(crate) fn from_user(acting: ActingUser<'a>, user: &'a User) -> Self {
        Self {
            app: acting.app,
            namespace: acting.namespace,
            user_id: &user.id,
            email: &user.email,
            role: user.role,
            actor: acting.actor,
            account: acting.account,
            consent: acting.consent,
            confirms: None,
        }
    }

    /// Returns the user in the form that changes of machines and codes take.
    pub(crate) const fn as_acting_user(&self) -> ActingUser<'a> {
        ActingUser {
            app: self.app,
            namespace: self.namespace,
            actor: self.actor,
            account: self.account,
            consent: self.consent,
        }
    }

    /// Returns the app that sent the request; `None` for the console.
    pub(crate) fn client(&self) -> Option<&'a ClientId> {
        self.consent.map(|consent| &consent.client)
    }

    pub(crate) fn require_owner(&self) -> Result<(), Refusal> {
        // Every role is listed, so that a new one does not become an owner by a wildcard.
        match self.role {
            Role::Owner => Ok(()),
            Role::Publisher | Role::Member => Err(ErrorCode::OwnerRequired.into()),
        }
    }

    /// Returns the user in the form in which acts in the vault `home` are requested and permits are
    /// used.
    pub(crate) fn as_requester<'b>(&'b self, home: &'b NamespaceRef) -> PermitRequester<'b> {
        PermitRequester {
            account: self.account,
            client: self.client(),
            actor: self.actor,
            namespace: Some(home),
            confirms: self.confirms,
        }
    }

    /// Uses the permit for `act` in the commit that does the act. Fails with `ConfirmationNeeded`
    /// if the person has not confirmed exactly this act.
    pub(super) async fn spend_permit(
        &self,
        tx: &Transaction<'_>,
        act: &Act,
    ) -> Result<(), Refusal> {
        let home = self.namespace.to_ref();
        self.as_requester(&home).spend(tx, act).await?;
        Ok(())
    }

    /// Adds the audit record of a change in the vault to the commit that makes it.
    pub(super) fn write_audit(
        &self,
        tx: &Transaction<'_>,
        action: &str,
        change: Change,
    ) -> Result<(), StoreError> {
        tx.audit(Some(&self.namespace.id), self.actor, action, change)
    }
}

/// Makes the commit fail if the consent of the app that sent the request ends before it. The guard
/// checked the token before the body was read. Without this check, an app could make something just
/// after an owner has ended it and has seen the list of what it made. `None` stands for the
/// console.
pub(super) async fn require_consent(
    tx: &Transaction<'_>,
    consent: Option<&Family>,
) -> Result<(), Refusal> {
    let Some(consent) = consent else {
        return Ok(());
    };
    let standing = standing::load_standing(tx, consent).await?;
    if !standing.administers(consent, tx.now()) {
        return Err(ErrorCode::TokenInvalid.into());
    }
    tx.write_all(standing.consent_checks(consent));
    Ok(())
}
