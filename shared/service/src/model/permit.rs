//! Permits for acts. An act is a change that needs the person's confirmation, such as the deletion
//! of a vault. A permit is first the request for a confirmation of certain acts; once the person
//! has confirmed it on a page of the service, the app may do exactly these acts, each once.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `permit/<account_id>` | `<client_id>`, or `console` | [`Permits`], until the last of them ends |
//!
//! There is one record for each account and app, and each change of it is written under the
//! revision that was read. So the limits hold and a permit is used only once, without an index.

use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_PAGE, RecordKey, When, Write};

use super::Versioned;
use super::account::{AccountId, Email};
use super::audit::Actor;
use super::client::ClientId;
use super::limits::Source;
use super::user::{NamespaceRef, Role, Scopes, role_with_article};
use super::{fresh_id, is_id};
use crate::ports::Ports;

pub use vault_api::ConfirmationState as PermitState;

/// Time for which a permit waits for the person's decision, in seconds: ten minutes.
pub const ASKED_SECONDS: i64 = 600;
/// Time for which a confirmed permit may be used, in seconds: five minutes.
pub const CONFIRMED_SECONDS: i64 = 300;
/// Time for which a declined act cannot be requested again, in seconds: a minute.
pub const DECLINED_SECONDS: i64 = 60;
/// Maximum number of permits of one account and app at a time.
pub const MAX_PERMITS: usize = 20;

/// An act that needs a permit, with all its values: a permit for one value is not valid for
/// another.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "act")]
pub enum Act {
    /// Deletes the vault and everything in it. Its name is not given out again.
    DeleteVault {},
    /// Removes the pin of the vault, so that the next release may be of another vault.
    ResetPin {},
    /// Invites a person as an owner of the vault.
    InviteOwner {
        /// Address to invite.
        email: Email,
        /// Scopes of the new owner.
        scopes: Scopes,
    },
    /// Changes an open invitation to another role.
    ChangeInvitation {
        /// Invited address.
        email: Email,
        /// Role that the invitation gets.
        role: Role,
        /// Scopes that the invitation gets.
        scopes: Scopes,
    },
    /// Changes the role of a user.
    ChangeRole {
        /// Id of the user, `usr_…`.
        user: String,
        /// Role that the user gets.
        role: Role,
    },
    /// Ends the membership of a user, whose tokens for the vault become invalid at once.
    RemoveUser {
        /// Id of the user, `usr_…`.
        user: String,
    },
    /// Creates an enrolment code that admits many machines.
    CreateCode {
        /// Number of machines that the code admits.
        uses: u32,
        /// Lifetime of the code, in seconds.
        seconds: i64,
        /// Pattern for the names of machines; `None` admits any name.
        name: Option<String>,
    },
    /// Admits a machine that waits.
    AdmitMachine {
        /// Id of the machine, `dev_…`.
        machine: String,
    },
    /// Deletes an account and removes its person from every vault.
    DeleteAccount {
        /// Address of the account.
        email: Email,
    },
    /// Removes the credentials of an account and creates a link that sets new ones.
    ResetAccount {
        /// Address of the account.
        email: Email,
    },
    /// Makes an account an operator.
    GrantOperator {
        /// Address of the account.
        email: Email,
    },
    /// Takes the rights of an operator from an account.
    RevokeOperator {
        /// Address of the account.
        email: Email,
    },
}

impl Act {
    /// Returns the action in the audit log: the name of the route that does the act.
    pub const fn action(&self) -> &'static str {
        match self {
            Self::DeleteVault {} => "vault.delete",
            Self::ResetPin {} => "pin.reset",
            Self::InviteOwner { .. } | Self::ChangeInvitation { .. } => "user.create",
            Self::ChangeRole { .. } => "user.role",
            Self::RemoveUser { .. } => "user.remove",
            Self::CreateCode { .. } => "enrolment.invite",
            Self::AdmitMachine { .. } => "device.admit",
            Self::DeleteAccount { .. } => "account.delete",
            Self::ResetAccount { .. } => "account.reset",
            Self::GrantOperator { .. } => "account.grant",
            Self::RevokeOperator { .. } => "account.revoke",
        }
    }

    /// Returns the id of the user whom the act changes; `None` for other acts.
    pub fn user_id(&self) -> Option<&str> {
        match self {
            Self::ChangeRole { user, .. } | Self::RemoveUser { user } => Some(user),
            _ => None,
        }
    }

    /// Returns the id of the machine that the act admits; `None` for other acts.
    pub fn machine_id(&self) -> Option<&str> {
        match self {
            Self::AdmitMachine { machine } => Some(machine),
            _ => None,
        }
    }

    /// Returns the address or id of the person or machine that the act is about; `None` for an act
    /// about the vault.
    pub fn target_text(&self) -> Option<&str> {
        match self {
            Self::InviteOwner { email, .. }
            | Self::ChangeInvitation { email, .. }
            | Self::DeleteAccount { email }
            | Self::ResetAccount { email }
            | Self::GrantOperator { email }
            | Self::RevokeOperator { email } => Some(email.as_str()),
            Self::ChangeRole { .. } | Self::RemoveUser { .. } => self.user_id(),
            Self::AdmitMachine { .. } => self.machine_id(),
            Self::DeleteVault {} | Self::ResetPin {} | Self::CreateCode { .. } => None,
        }
    }

    /// Describes the act in a sentence, for the page of its confirmation and for the audit log.
    /// `slug` is the vault, and `target` the user or machine that the act is about: its address or
    /// name, or its id if these are unknown.
    pub fn describe(&self, slug: &str, target: &str) -> String {
        match self {
            Self::DeleteVault {} => format!("Delete the vault {slug}."),
            Self::ResetPin {} => format!("Reset the pin of the vault {slug}."),
            Self::InviteOwner { email, .. } => format!("Invite {email} as an owner of {slug}."),
            Self::ChangeInvitation { email, role, .. } => format!(
                "Change the invitation of {email} to {} of {slug}.",
                role_with_article(*role)
            ),
            Self::ChangeRole { role, .. } => {
                format!("Make {target} {} of {slug}.", role_with_article(*role))
            }
            Self::RemoveUser { .. } => format!("Remove {target} from {slug}."),
            Self::CreateCode { uses: 1, .. } => {
                format!("Make an enrolment code for one machine of {slug}.")
            }
            Self::CreateCode { uses, .. } => {
                format!("Make an enrolment code for {uses} machines of {slug}.")
            }
            Self::AdmitMachine { .. } => format!("Admit the machine {target} to {slug}."),
            Self::DeleteAccount { email } => format!("Delete the account {email}."),
            Self::ResetAccount { email } => format!("Reset the account {email}."),
            Self::GrantOperator { email } => format!("Make {email} an operator."),
            Self::RevokeOperator { email } => {
                format!("Take the rights of an operator from {email}.")
            }
        }
    }
}

/// An act of a permit, with its state.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PermittedAct {
    /// The act with its values, which the app's request must match exactly.
    pub act: Act,
    /// Sentence for the act in the audit log; empty in records of an earlier version.
    #[serde(default)]
    pub sentence: String,
    /// Whether the act was done with this permit: each act of a permit can be done once.
    #[serde(default)]
    pub used: bool,
}

/// A permit, from the request for the confirmation on.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Permit {
    /// Id, `cnf_…`. It is no secret: only the person of the account can open its page.
    pub id: String,
    /// The vault that the acts change; absent for acts of an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceRef>,
    /// Acts, in the order in which the page lists them.
    pub acts: Vec<PermittedAct>,
    /// Actor for the audit log: id of the user of the vault, or of the operator's account.
    pub actor: String,
    /// Network that the request came from.
    pub from: String,
    /// Whether and how the person has decided.
    pub state: PermitState,
    /// Time at which the app requested the confirmation.
    pub asked_at: Timestamp,
    /// First second at which the permit has ended: ten minutes after the request, or five minutes
    /// after the confirmation.
    pub ends_at: Timestamp,
}

impl Permit {
    /// Creates a permit that waits for the person. `actor` sent the request.
    pub fn ask_for(
        acts: Vec<PermittedAct>,
        namespace: Option<NamespaceRef>,
        actor: &Actor,
        ports: &Ports,
    ) -> Self {
        let now = ports.now();
        Self {
            id: fresh_id(ID_PREFIX, now, &ports.random),
            namespace,
            acts,
            actor: actor.user.clone(),
            from: Source::of(actor.source).to_string(),
            state: PermitState::Asked,
            asked_at: now,
            ends_at: now.plus_seconds(ASKED_SECONDS),
        }
    }

    /// Returns the permit after the person's decision. A confirmed one may be used for
    /// [`CONFIRMED_SECONDS`]; a declined one prevents the same request for [`DECLINED_SECONDS`].
    #[must_use]
    pub fn decided(self, confirmed: bool, now: Timestamp) -> Self {
        let (state, seconds) = if confirmed {
            (PermitState::Confirmed, CONFIRMED_SECONDS)
        } else {
            (PermitState::Declined, DECLINED_SECONDS)
        };
        Self {
            state,
            ends_at: now.plus_seconds(seconds),
            ..self
        }
    }

    /// Returns the sentences that describe its acts, in the order of the page.
    pub fn sentences(&self) -> Vec<&str> {
        let acts = self.acts.iter();
        acts.map(|permitted| permitted.sentence.as_str()).collect()
    }

    /// Finds `act` among the acts of the permit that were not done yet, if the permit is for this
    /// vault.
    pub fn find_unused(
        &mut self,
        namespace: Option<&NamespaceRef>,
        act: &Act,
    ) -> Option<&mut PermittedAct> {
        // The id is compared too: a vault that got the name later is another vault.
        if self.namespace.as_ref() != namespace {
            return None;
        }
        let mut acts = self.acts.iter_mut();
        acts.find(|permitted| !permitted.used && permitted.act == *act)
    }
}

/// The record of the permits of one account and app.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Permits {
    /// Permits, oldest first; expired ones remain until the record is written again.
    pub permits: Vec<Permit>,
}

/// The permits of one account and app as they were read, without those that are no longer valid.
pub struct LoadedPermits {
    /// Valid permits, oldest first.
    pub permits: Vec<Permit>,
    key: RecordKey,
    when: When,
}

impl LoadedPermits {
    /// Reads the permits of an account for an app; `None` stands for the console.
    pub async fn load(
        ports: &Ports,
        account: &AccountId,
        client: Option<&ClientId>,
    ) -> Result<Self, StoreError> {
        let key = permits_key(account, client);
        let found = ports.get::<Permits>(&key).await?;
        Ok(Self::new(key, found, ports.now()))
    }

    fn new(key: RecordKey, found: Option<Versioned<Permits>>, now: Timestamp) -> Self {
        let when = found
            .as_ref()
            .map_or(When::Absent, |found| When::At(found.revision));
        let mut permits = found.map_or_else(Vec::new, |found| found.value.permits);
        permits.retain(|permit| now < permit.ends_at);
        Self { permits, key, when }
    }

    /// Returns the write that stores the permits. It fails if the record has changed since it was
    /// read.
    pub fn into_write(self) -> Result<Write, StoreError> {
        let last = self.permits.iter().map(|permit| permit.ends_at).max();
        let Some(until) = last else {
            return Ok(Write::delete(self.key, self.when));
        };
        let permits = Permits {
            permits: self.permits,
        };
        let document = Document::from_value(&permits)?;
        Ok(Write::put_until(self.key, document, self.when, until))
    }
}

/// Word in the key for the console, in place of an app's id.
const CONSOLE: &str = "console";
const ID_PREFIX: &str = "cnf_";

/// Whether a text has the form of an id of a permit.
pub fn is_permit_id(text: &str) -> bool {
    is_id(ID_PREFIX, text)
}

/// Returns the partition with an account's permits: one [`Permits`] record for each app.
pub fn permits_partition(account: &AccountId) -> String {
    format!("permit/{account}")
}

/// Whether the person of an account was asked for the confirmation with this id, by any app.
pub async fn permit_exists(
    ports: &Ports,
    account: &AccountId,
    id: &str,
) -> Result<bool, StoreError> {
    let partition = permits_partition(account);
    let listed = ports
        .records
        .list_page(&partition, "", None, MAX_PAGE)
        .await?;
    for record in &listed {
        // An unreadable record must not keep other refusals out of the log.
        let Ok(permits) = record.read::<Permits>() else {
            continue;
        };
        if permits.permits.iter().any(|permit| permit.id == id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the key of the permits of an account for an app; `None` stands for the console.
fn permits_key(account: &AccountId, client: Option<&ClientId>) -> RecordKey {
    let client = client.map_or(CONSOLE, ClientId::as_str);
    RecordKey::new(permits_partition(account), client)
}

#[cfg(test)]
mod tests {
    use vault_format::name::NamespaceId;
    use vault_testing::TestClock;

    use super::*;

    /// A permit is bound to the vault's id and not only to its name, which may be given out again;
    /// and an operator's permit is not valid for a vault.
    #[test]
    fn a_permit_for_one_vault_is_none_for_another() {
        let now = Timestamp::from_unix(0);
        let ports = Ports::in_memory(std::sync::Arc::new(TestClock::new(now)));
        let home = |slug: &str, id: u128| NamespaceRef {
            slug: slug.parse().unwrap(),
            id: NamespaceId::from_parts(1, id),
        };
        let (acme, other, acme_again) = (home("acme", 1), home("other", 2), home("acme", 3));
        let act = Act::ResetPin {};
        for (permitted, asking, found) in [
            (Some(&acme), Some(&acme), true),
            (Some(&acme), Some(&other), false),
            (Some(&acme), Some(&acme_again), false),
            (Some(&acme), None, false),
            (None, Some(&acme), false),
            (None, None, true),
        ] {
            let acts = vec![PermittedAct {
                act: act.clone(),
                sentence: String::new(),
                used: false,
            }];
            let mut permit = Permit::ask_for(acts, permitted.cloned(), &Actor::default(), &ports);
            let act = permit.find_unused(asking, &act);
            assert_eq!(act.is_some(), found, "{permitted:?} {asking:?}");
        }
    }
}
