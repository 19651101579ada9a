//! The standing of a family of tokens. A family is all tokens of one consent; its standing is the
//! set of records on which their validity depends, read at one moment.
//!
//! A request with a token and a request for a token need the same answer: does the account still
//! have the rights of the family, and has nobody raised an epoch since the consent?

use std::collections::{BTreeMap, BTreeSet};

use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, Record, RecordKey, When, Write};

use super::Versioned;
use super::account::{Account, Epochs, ServiceEpoch, account_key, service_epoch_key};
use super::client::{Connection, connection_key};
use super::family::{Family, Reach};
use super::grant::{Grant, grant_key};
use super::namespace::{self, Namespace, Status};
use super::user::{Scopes, State, User, user_key};

use crate::ports::Ports;

/// The records on which the tokens of a family depend; `None` for records that do not exist.
#[derive(Default)]
pub struct Standing {
    /// The consent that the tokens come from.
    pub grant: Option<Versioned<Grant>>,
    /// Account of the person who consented.
    pub account: Option<Versioned<Account>>,
    /// The account's user in the namespace.
    pub user: Option<Versioned<User>>,
    /// The client's connection to the namespace.
    pub connection: Option<Versioned<Connection>>,
    /// The namespace, unless its slug belongs to another one now.
    pub home: Option<Versioned<Namespace>>,
    service: Option<ServiceEpoch>,
}

/// Reads the standing of a family, in one read.
pub async fn load_standing(ports: &Ports, family: &Family) -> Result<Standing, StoreError> {
    let records = ports.records.get_many(&record_keys(family)).await?;
    Standing::from_records(family, &mut records.into_iter())
}

/// Reads the standing of each of these families, in their order.
pub async fn load_many(ports: &Ports, families: &[Family]) -> Result<Vec<Standing>, StoreError> {
    let keys_of: Vec<_> = families.iter().map(record_keys).collect();
    // Apps of one person share account and namespaces, but one read must not contain a key twice.
    let all: BTreeSet<_> = keys_of.iter().flatten().cloned().collect();
    let all: Vec<_> = all.into_iter().collect();
    let mut records = BTreeMap::new();
    for some in all.chunks(MAX_KEYS) {
        records.extend(some.iter().zip(ports.records.get_many(some).await?));
    }
    let of = |(family, keys): (&Family, Vec<RecordKey>)| {
        let record = |key| records.get(key).cloned().flatten();
        Standing::from_records(family, &mut keys.iter().map(record))
    };
    families.iter().zip(keys_of).map(of).collect()
}

/// Returns the keys of the records of a standing, in the order in which they are read.
fn record_keys(family: &Family) -> Vec<RecordKey> {
    let mut keys = vec![
        grant_key(family.namespace_id(), &family.client, &family.grant),
        account_key(&family.account),
        service_epoch_key(),
    ];
    if let Reach::Namespace {
        namespace, user, ..
    } = &family.reach
    {
        keys.extend([
            user_key(&namespace.id, user),
            connection_key(&namespace.id, &family.client),
            namespace::namespace_key(&namespace.slug),
        ]);
    }
    keys
}

impl Standing {
    fn from_records(
        family: &Family,
        records: &mut dyn Iterator<Item = Option<Record>>,
    ) -> Result<Self, StoreError> {
        let mut next = || records.next().flatten();
        // In the order of `record_keys`. A family without a namespace has only the first three.
        let (grant, account, service) = (next(), next(), next());
        let (user, connection, home) = (next(), next(), next());
        let home = Versioned::<Namespace>::read(home)?;
        Ok(Self {
            grant: Versioned::read(grant)?,
            account: Versioned::read(account)?,
            user: Versioned::read(user)?,
            connection: Versioned::read(connection)?,
            // A namespace with the same slug and another id is another namespace.
            home: home.filter(|home| Some(&home.value.id) == family.namespace_id()),
            service: Versioned::<ServiceEpoch>::read(service)?.map(|service| service.value),
        })
    }

    /// Returns the scopes to which tokens of the family are limited now: those of the user in the
    /// namespace, or all of them for an operator. `None` if the tokens are invalid because of the
    /// account, the user, the namespace or an epoch. The caller must also check the grant and the
    /// connection.
    pub fn present_rights(&self, family: &Family) -> Option<Scopes> {
        let account = &self.account.as_ref()?.value;
        let home = self.home.as_ref().map(|home| &home.value);
        let scopes = match family.reach {
            Reach::Namespace { .. } => {
                let user = &self.user.as_ref()?.value;
                let serves = home?.status != Status::Deleted;
                // The user's present scopes, so that a change of the role acts on tokens that were
                // issued before.
                (serves && user.state() == State::Active).then_some(user.scopes)?
            }
            Reach::Service => account.operator.then_some(Scopes::ALL)?,
        };
        let present = family.epochs == Epochs::now(account, home, self.service);
        (present && !account.disabled).then_some(scopes)
    }

    /// Whether the app of the consent may still administer the namespace: the consent has not ended
    /// in any way, and its person is still an owner with the scope `write`.
    pub fn administers(&self, family: &Family, now: Timestamp) -> bool {
        let grant = self.grant.as_ref().map(|grant| &grant.value);
        let user = self.user.as_ref().map(|user| &user.value);
        grant.is_some_and(|grant| grant.is_alive(now))
            && user.is_some_and(User::can_administer)
            && self.is_connected(family)
            && self.present_rights(family).is_some()
    }

    /// Returns writes that make a commit fail if the consent or the connection has changed since
    /// they were read.
    pub fn consent_checks(&self, family: &Family) -> Vec<Write> {
        let grant = self
            .grant
            .as_ref()
            .map(|grant| (grant.value.key(), grant.revision));
        let connection = family.namespace_id().zip(self.connection.as_ref());
        let connection = connection.map(|(namespace, connection)| {
            let key = connection_key(namespace, &family.client);
            (key, connection.revision)
        });
        let conditions = [grant, connection].into_iter().flatten();
        conditions
            .map(|(key, revision)| Write::check(key, When::At(revision)))
            .collect()
    }

    /// Whether the client's connection on which the tokens depend still exists. An operator's
    /// tokens depend on none, since no owner of a vault decides about them.
    pub fn is_connected(&self, family: &Family) -> bool {
        let Reach::Namespace { connection, .. } = &family.reach else {
            return true;
        };
        let stored = self.connection.as_ref().map(|stored| &stored.value);
        stored.is_some_and(|stored| stored.revoked_at.is_none() && stored.id == *connection)
    }
}
