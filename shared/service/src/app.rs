//! What every handler holds: the ports, the settings, the clock and randomness. Nothing in here
//! belongs to one feature; what a group of routes keeps in memory is its own.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use vault_format::draft::Submitter;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_shelf::{Change as ShelfChange, Shelf, ShelfError, Submitted};
use vault_store::StoreError;
use vault_store::objects::ObjectKey;
use vault_store::records::Write;

use crate::cache::{Object, ObjectCache};
use crate::config::{Config, Issuer};
use crate::documents::Documents;
use crate::model::audit::{self, Actor, Change};
use crate::model::namespace::Namespace;
use crate::oidc::{Provider, ProviderHttp, SecretSource};
use crate::ports::Ports;
use crate::senders::Senders;
use crate::transaction::Transaction;

/// The ports and the settings of one process. Clones share them.
#[derive(Clone)]
pub struct App {
    /// What it reads, writes and asks for the time.
    pub ports: Ports,
    cache: Arc<ObjectCache>,
    /// Settings.
    pub config: Arc<Config>,
    /// When this process began to serve.
    pub boot_time: Timestamp,
    /// Fetches the documents of clients whose id is a URL; `None` rejects such clients.
    pub documents: Option<Arc<dyn Documents>>,
    /// The identity provider through which people sign in; `None` offers passwords alone.
    pub provider: Option<Arc<Provider>>,
    /// Which shelf a namespace is read from by tools; without it, its current release.
    pub shelves: Option<Arc<dyn Shelves>>,
    /// Sends notices; without it they wait for a process that has it.
    pub senders: Option<Senders>,
}

/// Which shelf a namespace is read from, and what its own server signs there.
#[async_trait]
pub trait Shelves: Send + Sync {
    /// The shelf of a namespace for one request. `namespace` is its record as it was read for the
    /// request, `source` the address that the request came from, for the audit log. The caller's
    /// rights were checked, and are not asked for here.
    fn shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> Arc<dyn Shelf>;

    /// Signs a change that `author` asked for and `actor` has accepted, in a namespace whose key
    /// this server holds. Fails with [`ShelfError::LibraryElsewhere`] where it does not.
    async fn sign(
        &self,
        _app: &App,
        _namespace: &Namespace,
        _accepted: Accepted<'_>,
    ) -> Result<Submitted, ShelfError> {
        Err(ShelfError::LibraryElsewhere)
    }

    /// Waits until everything that is signed in such a namespace is published. Answers the release
    /// that is current then; `None` where there never was anything to publish. Fails as
    /// [`Shelves::sign`] does, and with [`ShelfError::Busy`] when it takes too long.
    async fn publish(&self, _app: &App, _namespace: &Namespace) -> Result<Option<u64>, ShelfError> {
        Err(ShelfError::LibraryElsewhere)
    }
}

/// A change that one user asked for, and another has accepted.
#[derive(Clone, Debug)]
pub struct Accepted<'a> {
    /// Who asked for it: where the skill comes from.
    pub author: &'a Submitter,
    /// Who accepted it: whom the audit log names.
    pub actor: &'a Actor,
    /// The change.
    pub change: ShelfChange,
    /// SHA-256 over the files that were reviewed; the change must have exactly these. `None` for a
    /// removal.
    pub reviewed: Option<Digest>,
}

/// An actor in a namespace, with what a change there needs: the same for a request with a token as
/// for a form of the console.
#[derive(Clone, Copy)]
pub(crate) struct Acting<'a> {
    pub(crate) app: &'a App,
    pub(crate) namespace: &'a Namespace,
    pub(crate) actor: &'a Actor,
}

impl Acting<'_> {
    /// Adds the audit record of a change in the namespace to the commit that makes it.
    pub(crate) fn audit(
        &self,
        tx: &Transaction<'_>,
        action: &str,
        change: Change,
    ) -> Result<(), StoreError> {
        tx.audit(Some(&self.namespace.id), self.actor, action, change)
    }
}

/// What is over ports can be given to whatever is: `find(app, …)`.
impl Deref for App {
    type Target = Ports;

    fn deref(&self) -> &Ports {
        &self.ports
    }
}

impl App {
    /// An app over these ports.
    pub fn new(ports: Ports, config: Config) -> Self {
        Self {
            boot_time: ports.now(),
            cache: Arc::new(ObjectCache::new(config.cache_bytes)),
            shelves: None,
            documents: None,
            provider: None,
            senders: None,
            ports,
            config: Arc::new(config),
        }
    }

    /// The same app with other shelves: those of a server that holds a library.
    #[must_use]
    pub fn with_shelves(self, shelves: Arc<dyn Shelves>) -> Self {
        Self {
            shelves: Some(shelves),
            ..self
        }
    }

    /// The same app, which also serves clients that are known by the address of a document.
    #[must_use]
    pub fn with_documents(self, documents: Arc<dyn Documents>) -> Self {
        Self {
            documents: Some(documents),
            ..self
        }
    }

    /// The same app, which signs people in through the provider of its settings too. `secret`
    /// proves this service to the provider. Without a provider in the settings nothing changes.
    #[must_use]
    pub fn with_provider(
        self,
        http: impl FnOnce(&Issuer) -> Arc<dyn ProviderHttp>,
        secret: Option<SecretSource>,
    ) -> Self {
        let Some(settings) = self.config.sign_in.provider() else {
            return self;
        };
        let http = http(&settings.issuer);
        let provider = Provider::new(settings.clone(), http, secret);
        Self {
            provider: Some(Arc::new(provider)),
            ..self
        }
    }

    /// The same app, which also sends notices.
    #[must_use]
    pub fn with_senders(self, senders: Senders) -> Self {
        Self {
            senders: Some(senders),
            ..self
        }
    }

    /// The audit record of what `actor` does, for the commit that does it; `outcome` is `done`, or
    /// the code of a refusal.
    pub fn audit(
        &self,
        namespace: Option<&NamespaceId>,
        actor: &Actor,
        action: &str,
        change: Change,
        outcome: &str,
    ) -> Result<Write, StoreError> {
        audit::entry(self, namespace, actor, action, change, outcome)
    }

    /// The object under this key, from memory or from the store; `None` when the store has none.
    pub async fn object(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.cache.get(&*self.objects, key).await
    }
}
