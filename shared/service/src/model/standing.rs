//! Standing of a family of tokens: everything that its tokens depend on, read at one moment.
//!
//! A request with a token and a request for a token need the same answer: does the account still
//! have the rights that the family names, under the epochs at which it was given?

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

/// Records that the tokens of a family depend on.
#[derive(Default)]
pub struct Standing {
    /// The consent.
    pub grant: Option<Versioned<Grant>>,
    /// The person's account.
    pub account: Option<Versioned<Account>>,
    /// The account's user in the namespace.
    pub user: Option<Versioned<User>>,
    /// The client's connection to the namespace.
    pub connection: Option<Versioned<Connection>>,
    /// The namespace, if it still is the one that the family names.
    pub home: Option<Versioned<Namespace>>,
    service: Option<ServiceEpoch>,
}

/// Reads the records that a family depends on, in one read.
pub async fn load_standing(ports: &Ports, family: &Family) -> Result<Standing, StoreError> {
    let found = ports.records.get_many(&record_keys(family)).await?;
    Standing::from_records(family, &mut found.into_iter())
}

/// Reads the records that each of these families depends on.
pub async fn load_many(ports: &Ports, families: &[Family]) -> Result<Vec<Standing>, StoreError> {
    let keys_of: Vec<_> = families.iter().map(record_keys).collect();
    // Apps of one person share account and namespaces, and a reading names no key twice.
    let all: BTreeSet<_> = keys_of.iter().flatten().cloned().collect();
    let all: Vec<_> = all.into_iter().collect();
    let mut held = BTreeMap::new();
    for some in all.chunks(MAX_KEYS) {
        held.extend(some.iter().zip(ports.records.get_many(some).await?));
    }
    let of = |(family, keys): (&Family, Vec<RecordKey>)| {
        let record = |key| held.get(key).cloned().flatten();
        Standing::from_records(family, &mut keys.iter().map(record))
    };
    families.iter().zip(keys_of).map(of).collect()
}

/// Returns the keys of these records, in the order in which they are read.
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
        found: &mut dyn Iterator<Item = Option<Record>>,
    ) -> Result<Self, StoreError> {
        let mut next = || found.next().flatten();
        // In the order of `keys`. A family without a namespace ends after these three.
        let (grant, account, service) = (next(), next(), next());
        let (user, connection, home) = (next(), next(), next());
        let home = Versioned::<Namespace>::read(home)?;
        Ok(Self {
            grant: Versioned::read(grant)?,
            account: Versioned::read(account)?,
            user: Versioned::read(user)?,
            connection: Versioned::read(connection)?,
            // Another allocation of the slug is another namespace.
            home: home.filter(|home| Some(&home.value.id) == family.namespace_id()),
            service: Versioned::<ServiceEpoch>::read(service)?.map(|service| service.value),
        })
    }

    /// Returns the scopes to which tokens of the family are limited now: those of the user in the
    /// namespace, or all of them for an operator. Returns `None` if the account, the namespace or
    /// the service has ended the tokens.
    pub fn present_rights(&self, family: &Family) -> Option<Scopes> {
        let account = &self.account.as_ref()?.value;
        let home = self.home.as_ref().map(|home| &home.value);
        let scopes = match family.reach {
            Reach::Namespace { .. } => {
                let user = &self.user.as_ref()?.value;
                let serves = home?.status != Status::Deleted;
                // The user's present scopes: a change of the role acts on tokens that were given
                // before.
                (serves && user.state() == State::Active).then_some(user.scopes)?
            }
            Reach::Service => account.operator.then_some(Scopes::ALL)?,
        };
        let present = family.epochs == Epochs::now(account, home, self.service);
        (present && !account.disabled).then_some(scopes)
    }

    /// Whether the consent still lets its app administer the namespace, as for a token that has
    /// `write`: it was not ended, in whichever way, and its person is still an owner who writes.
    pub fn administers(&self, family: &Family, now: Timestamp) -> bool {
        let grant = self.grant.as_ref().map(|grant| &grant.value);
        let user = self.user.as_ref().map(|user| &user.value);
        grant.is_some_and(|grant| grant.is_alive(now))
            && user.is_some_and(User::can_administer)
            && self.is_connected(family)
            && self.present_rights(family).is_some()
    }

    /// Returns the writes that fail a commit if the consent or the connection has been ended since
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
        let held = [grant, connection].into_iter().flatten();
        held.map(|(key, revision)| Write::check(key, When::At(revision)))
            .collect()
    }

    /// Whether the client's connection that the tokens belong to still exists. An operator's tokens
    /// belong to no connection, since no owner of a vault decides about them.
    pub fn is_connected(&self, family: &Family) -> bool {
        let Reach::Namespace { connection, .. } = &family.reach else {
            return true;
        };
        let held = self.connection.as_ref().map(|held| &held.value);
        held.is_some_and(|held| held.revoked_at.is_none() && held.id == *connection)
    }
}
