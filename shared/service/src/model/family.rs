//! Families of tokens. A family is the set of all tokens that come from one consent of a person to
//! an app; its properties are stored with each of them.

use serde::{Deserialize, Serialize};
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;

use super::account::{AccountId, Epochs};
use super::client::ClientId;
use super::namespace::NamespaceRef;

/// The properties that all tokens of one consent share.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "StoredFamily", into = "StoredFamily")]
pub struct Family {
    /// Id of the grant, the record of the consent.
    pub grant: String,
    /// Namespace that the tokens act on, or the service as a whole.
    pub reach: Reach,
    /// The OAuth client that holds the tokens.
    pub client: ClientId,
    /// The account of the person who consented.
    pub account: AccountId,
    /// Epochs at the time of the consent: the tokens become invalid when one of the numbers is
    /// raised.
    pub epochs: Epochs,
    /// Audience of the tokens: the public URL, or the public URL with `/mcp`.
    pub resource: String,
    /// Time at which the person entered credentials for just this authorization; `None` if an
    /// existing session of the browser was used.
    pub auth_time: Option<Timestamp>,
    /// Whether the session in which the person consented was opened with a second factor.
    pub second_factor: bool,
}

/// What the tokens of a family give access to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reach {
    /// One namespace, with the rights that the account's user has there.
    Namespace {
        /// The only namespace in which the tokens give rights.
        namespace: NamespaceRef,
        /// Id of the account's user in the namespace.
        user: String,
        /// Id of the client's connection to the namespace, without which the tokens are invalid;
        /// empty in an authorization code that is not exchanged yet.
        connection: String,
    },
    /// The service itself, with the rights of an operator, for a short time. It contains no
    /// namespace: changes of a vault or its members must not affect who operates the service.
    Service,
}

impl Family {
    /// Returns the namespace that the tokens act on, or `None` if they act for an operator.
    pub const fn namespace(&self) -> Option<&NamespaceRef> {
        match &self.reach {
            Reach::Namespace { namespace, .. } => Some(namespace),
            Reach::Service => None,
        }
    }

    /// Returns the id of the namespace that the tokens act on, by which records and the audit log
    /// are partitioned; `None` if they act for an operator.
    pub fn namespace_id(&self) -> Option<&NamespaceId> {
        self.namespace().map(|namespace| &namespace.id)
    }

    /// Returns the actor for the audit log: the user of the namespace, or the account.
    pub fn actor(&self) -> &str {
        match &self.reach {
            Reach::Namespace { user, .. } => user,
            Reach::Service => self.account.as_str(),
        }
    }

    /// Whether the tokens have the rights of an operator.
    pub fn is_operator(&self) -> bool {
        self.reach == Reach::Service
    }
}

/// The form of a family in records.
#[derive(Deserialize, Serialize)]
struct StoredFamily {
    grant: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<NamespaceRef>,
    client: ClientId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connection: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    account: AccountId,
    #[serde(default)]
    epochs: Epochs,
    resource: String,
    #[serde(default)]
    auth_time: Option<Timestamp>,
    #[serde(default)]
    second_factor: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    operator: bool,
}

/// Error: a stored family names neither one namespace with its user, nor the whole service.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a family of tokens acts on one namespace or for an operator")]
struct NoReach;

impl TryFrom<StoredFamily> for Family {
    type Error = NoReach;

    fn try_from(stored: StoredFamily) -> Result<Self, NoReach> {
        let reach = match (stored.namespace, stored.user, stored.operator) {
            // With a namespace the operator flag is ignored: the smaller right counts.
            (Some(namespace), Some(user), _) => Reach::Namespace {
                namespace,
                user,
                connection: stored.connection.unwrap_or_default(),
            },
            (None, None, true) => Reach::Service,
            // Never guessed: a record that lost its namespace must not become an operator's.
            _ => return Err(NoReach),
        };
        Ok(Self {
            grant: stored.grant,
            reach,
            client: stored.client,
            account: stored.account,
            epochs: stored.epochs,
            resource: stored.resource,
            auth_time: stored.auth_time,
            second_factor: stored.second_factor,
        })
    }
}

impl From<Family> for StoredFamily {
    fn from(family: Family) -> Self {
        let operator = family.is_operator();
        let (namespace, user, connection) = match family.reach {
            Reach::Namespace {
                namespace,
                user,
                connection,
            } => (Some(namespace), Some(user), Some(connection)),
            Reach::Service => (None, None, None),
        };
        Self {
            grant: family.grant,
            namespace,
            client: family.client,
            connection,
            user,
            account: family.account,
            epochs: family.epochs,
            resource: family.resource,
            auth_time: family.auth_time,
            second_factor: family.second_factor,
            operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_names_a_namespace_or_an_operator_and_nothing_between() {
        let base = json!({
            "grant": "gra_x", "client": format!("cli_{}", "0".repeat(26)), "account": "acc_x",
            "resource": "https://vault.example",
        });
        let namespace = json!({ "slug": "acme", "id": "01KAQD8000000000000000000A" });
        for (members, namespaced) in [
            (
                json!({ "namespace": namespace, "user": "usr_x" }),
                Some(true),
            ),
            (json!({ "operator": true }), Some(false)),
            (json!({}), None),
            (json!({ "user": "usr_x" }), None),
            (json!({ "namespace": namespace }), None),
            (json!({ "namespace": namespace, "operator": true }), None),
            // With a namespace and the operator flag, the smaller right counts.
            (
                json!({ "namespace": namespace, "user": "usr_x", "operator": true }),
                Some(true),
            ),
            (json!({ "user": "usr_x", "operator": true }), None),
        ] {
            let mut record = base.clone();
            for (name, value) in members.as_object().unwrap() {
                record[name] = value.clone();
            }
            let family = serde_json::from_value::<Family>(record).ok();
            let found = family.as_ref().map(|family| family.namespace().is_some());
            assert_eq!(found, namespaced, "{members}");
            if let Some(family) = family {
                let written = serde_json::to_value(&family).unwrap();
                assert_eq!(serde_json::from_value::<Family>(written).unwrap(), family);
            }
        }
    }
}
