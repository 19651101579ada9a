//! [`App`]: the state that the service hands to every handler. It holds the stores, clock and
//! randomness ([`Ports`]), the settings, the counts and queues that all requests share, and the
//! optional capabilities that a program adds with `with_…`.
//!
//! Each request is served with a clone. Clones share everything but two fields that belong to the
//! request, [`App::charge`] and [`App::body_memory`].
//!
//! The security scanner for skills is called the gate. A [`FairGate`] is something else: a queue
//! with a number of places, which lets namespaces in by turns.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use async_trait::async_trait;
use vault_format::draft::Submitter;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_shelf::{Change as ShelfChange, Shelf, ShelfError, Submitted};
use vault_store::StoreError;
use vault_store::fair::{Lane, LaneBound};
use vault_store::gate::{FairGate, GateSize, Pass};
use vault_store::objects::ObjectKey;

use crate::bodies::{Bodies, SharedBodyMemory};
use crate::budget::charge::Charge;
use crate::budget::{Budgets, RefusedTokens};
use crate::cache::{Object, ObjectCache};
use crate::config::quota::Quota;
use crate::config::{Config, Issuer};
use crate::documents::Documents;
use crate::model::account::AccountId;
use crate::model::audit::{Actor, Change};
use crate::model::client::ClientId;
use crate::model::family::Family;
use crate::model::namespace::{Kind, Namespace};
use crate::model::refusals::RefusalCounts;
use crate::oidc::{Provider, ProviderHttp, SecretSource};
use crate::ports::Ports;
use crate::senders::Senders;
use crate::transaction::Transaction;

/// Returns the size of the queue for scans: one at once for each processor, at least two and at
/// most eight, and at most half of them for one namespace. A scan of the largest skill takes some
/// ten MiB, and may take seconds. A request that waits counts with the bytes of its body if that is
/// above [`crate::bodies::SMALL_BYTES`].
fn scan_gate_size() -> GateSize {
    let places = available_parallelism().map_or(2, usize::from).clamp(2, 8);
    GateSize {
        places,
        places_of_lane: places / 2,
        waiting: LaneBound {
            requests: 32,
            bytes: 8 * 1024 * 1024,
            all_bytes: 32 * 1024 * 1024,
        },
        patience: Duration::from_secs(15),
    }
}

/// Size of the queue for changes of the usage, the count of what a namespace stores: one change at
/// a time for each namespace, so that its uploads do not make each other's commits fail again and
/// again.
const USAGE_GATE: GateSize = GateSize {
    places: 1024,
    places_of_lane: 1,
    waiting: LaneBound::of_requests(256),
    patience: Duration::from_secs(10),
};

/// Size of the queue for checks of skills that vaults have signed again: one at a time, because the
/// parts and files of one skill take about 70 MiB.
const SIGNED_AGAIN_GATE: GateSize = GateSize {
    places: 1,
    places_of_lane: 1,
    waiting: LaneBound::of_requests(32),
    patience: Duration::from_secs(15),
};

/// The state of one process, as one request uses it; see the module.
#[derive(Clone)]
pub struct App {
    /// The stores, the clock and randomness.
    pub ports: Ports,
    cache: Arc<ObjectCache>,
    /// Counts of equal refusals that are not in the audit log yet: it gets one entry for all of a
    /// minute.
    pub refusals: Arc<RefusalCounts>,
    /// Counts of the requests and the work of each namespace in this process, for its budgets.
    pub budgets: Arc<Budgets>,
    /// Tokens over a limit in this minute; their requests are refused before anything is read.
    pub(crate) refused_tokens: Arc<RefusedTokens>,
    /// The budgets that the request of this clone is charged to; `None` if its caller belongs to no
    /// namespace.
    pub(crate) charge: Option<Arc<Charge>>,
    /// Memory that the body of the request of this clone takes, if it has one.
    pub(crate) body_memory: Option<SharedBodyMemory>,
    /// Settings, read once at the start of the process.
    pub config: Arc<Config>,
    /// Time at which this process started, for the health check.
    pub boot_time: Timestamp,
    /// Fetches the metadata documents of OAuth clients whose id is a URL; `None` rejects such
    /// clients.
    pub documents: Option<Arc<dyn Documents>>,
    /// The identity provider through which people sign in; `None` offers passwords alone.
    pub provider: Option<Arc<Provider>>,
    /// Chooses where MCP tools read a namespace and submit changes to it; `None` uses the current
    /// releases, and signs nothing.
    pub shelves: Option<Arc<dyn Shelves>>,
    /// Bounds the memory that the bodies of all requests take.
    pub bodies: Bodies,
    /// The queue in front of the gate: each scan holds one of its places.
    scan_places: Arc<FairGate>,
    /// The queue for changes of the usage of a namespace; see [`USAGE_GATE`].
    usage_turns: Arc<FairGate>,
    /// The queue for checks of skills that vaults have signed again; see [`SIGNED_AGAIN_GATE`].
    signed_again_turns: Arc<FairGate>,
    /// Sends notices to webhooks and by mail; if `None`, they wait in the store for a process that
    /// can send them.
    pub senders: Option<Senders>,
}

/// Chooses the shelf of a namespace, through which MCP tools read its skills and submit changes,
/// and signs changes if this server holds the namespace's key.
#[async_trait]
pub trait Shelves: Send + Sync {
    /// Returns the shelf of a namespace for one request. `namespace` is its record as read for the
    /// request, `source` the address that the request came from, for the audit log. The caller's
    /// rights were checked before.
    fn shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> Arc<dyn Shelf>;

    /// Signs a change that `author` submitted and `actor` accepted, in a namespace whose key this
    /// server holds. Fails with [`ShelfError::LibraryElsewhere`] if it does not hold the key.
    async fn sign(
        &self,
        _app: &App,
        _namespace: &Namespace,
        _accepted: Accepted<'_>,
    ) -> Result<Submitted, ShelfError> {
        // The default is for a service without a library, which holds no keys.
        Err(ShelfError::LibraryElsewhere)
    }

    /// Waits until everything that is signed in a namespace whose key this server holds is
    /// published. Returns the release that is current then; `None` if there never was anything to
    /// publish. Fails like [`Shelves::sign`], and with [`ShelfError::Busy`] if it takes too long.
    async fn publish(&self, _app: &App, _namespace: &Namespace) -> Result<Option<u64>, ShelfError> {
        Err(ShelfError::LibraryElsewhere)
    }
}

/// A change that one user submitted as a draft and another, an owner, accepted.
#[derive(Clone, Debug)]
pub struct Accepted<'a> {
    /// The user who submitted it; recorded as the origin of the skill.
    pub author: &'a Submitter,
    /// The user who accepted it; the actor in the audit log.
    pub actor: &'a Actor,
    /// Skill to add, replace or remove, in the form that a [`Shelf`] takes.
    pub change: ShelfChange,
    /// SHA-256 over the files that were reviewed; the change must have exactly these files. `None`
    /// for a removal.
    pub reviewed: Option<Digest>,
}

/// A user who changes something in a namespace, with everything that the change needs: the same for
/// a request with a token and for a form of the console.
#[derive(Clone, Copy)]
pub(crate) struct ActingUser<'a> {
    pub(crate) app: &'a App,
    pub(crate) namespace: &'a Namespace,
    pub(crate) actor: &'a Actor,
    pub(crate) account: &'a AccountId,
    /// The consent by which the app that sent the request got its token; `None` for the console.
    pub(crate) consent: Option<&'a Family>,
}

impl<'a> ActingUser<'a> {
    /// Returns the app that sent the request; `None` for the console.
    pub(crate) fn client(&self) -> Option<&'a ClientId> {
        self.consent.map(|consent| &consent.client)
    }

    /// Adds the audit record of a change in the namespace to the commit that makes it.
    pub(crate) fn write_audit(
        &self,
        tx: &Transaction<'_>,
        action: &str,
        change: Change,
    ) -> Result<(), StoreError> {
        tx.audit(Some(&self.namespace.id), self.actor, action, change)
    }
}

/// Lets an app be passed where a function takes [`Ports`]: `find(app, …)`.
impl Deref for App {
    type Target = Ports;

    fn deref(&self) -> &Ports {
        &self.ports
    }
}

impl App {
    /// Creates the app of a process. It can neither sign in through a provider, nor send notices,
    /// nor sign releases, until a `with_…` function adds that.
    pub fn new(ports: Ports, config: Config) -> Self {
        Self {
            boot_time: ports.now(),
            cache: Arc::new(ObjectCache::new(config.cache_bytes)),
            refusals: Arc::default(),
            budgets: Arc::default(),
            refused_tokens: Arc::default(),
            charge: None,
            body_memory: None,
            shelves: None,
            documents: None,
            provider: None,
            senders: None,
            bodies: Bodies::default(),
            scan_places: FairGate::new(scan_gate_size()),
            usage_turns: FairGate::new(USAGE_GATE),
            signed_again_turns: FairGate::new(SIGNED_AGAIN_GATE),
            ports,
            config: Arc::new(config),
        }
    }

    /// Returns the same app with other shelves: those of a server that holds a library.
    #[must_use]
    pub fn with_shelves(self, shelves: Arc<dyn Shelves>) -> Self {
        Self {
            shelves: Some(shelves),
            ..self
        }
    }

    /// Returns the same app, which also accepts OAuth clients whose id is the address of their
    /// metadata document.
    #[must_use]
    pub fn with_documents(self, documents: Arc<dyn Documents>) -> Self {
        Self {
            documents: Some(documents),
            ..self
        }
    }

    /// Returns the same app, which also signs people in through the provider in its settings.
    /// `secret` authenticates this service to the provider. Changes nothing if the settings have no
    /// provider.
    #[must_use]
    pub fn with_provider(
        self,
        http: impl FnOnce(&Issuer) -> Arc<dyn ProviderHttp>,
        secret: Option<SecretSource>,
    ) -> Self {
        // Without a provider, `http` is never called, so its client is never set up.
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

    /// Returns the same app, which also sends notices. Without it, notices wait in the store.
    #[must_use]
    pub fn with_senders(self, senders: Senders) -> Self {
        Self {
            senders: Some(senders),
            ..self
        }
    }

    /// Waits until the gate may scan a skill for this namespace. Give the pass to the thread that
    /// scans: the scan goes on when its request is given up, and must keep its place until it ends.
    /// A large body leaves its own place before the wait, so that waiting scans do not stop others
    /// from sending bodies. Fails with `Busy` or `Unavailable` if too much waits.
    pub async fn enter_scan(&self, namespace: &NamespaceId) -> Result<Pass, StoreError> {
        let room = self.body_memory.as_ref();
        let bytes = room.map_or(0, SharedBodyMemory::leave_place);
        let lane = Lane::Namespace(*namespace);
        self.scan_places.enter_with(lane, bytes).await
    }

    /// Returns how many bytes of large bodies wait for a scan.
    pub fn waiting_scan_bytes(&self) -> usize {
        self.scan_places.waiting_bytes()
    }

    /// After the scan, waits for a place in which the request keeps its large body until it is
    /// stored, however slow the store is. Does nothing for a small body. Fails like
    /// [`App::enter_scan`].
    pub async fn wait_to_store(&self) -> Result<(), StoreError> {
        match &self.body_memory {
            Some(room) => room.take_scanned_place(&self.bodies).await,
            None => Ok(()),
        }
    }

    /// Waits for the turn to change the usage of this namespace; hold the pass until the change is
    /// committed. Other processes may change it at the same time, which makes the commit fail.
    pub(crate) async fn enter_usage(&self, namespace: &NamespaceId) -> Result<Pass, StoreError> {
        self.usage_turns.enter(Lane::Namespace(*namespace)).await
    }

    /// Waits for the turn to check skills that this namespace has signed again. Give the pass to the
    /// thread that checks, with the files of the skill. Fails like [`App::enter_scan`].
    pub async fn enter_signed_again(&self, namespace: &NamespaceId) -> Result<Pass, StoreError> {
        let lane = Lane::Namespace(*namespace);
        self.signed_again_turns.enter(lane).await
    }

    /// Returns the quota of a namespace. The vault that a server signs itself has none: it belongs
    /// to the operator of that server.
    pub fn quota_of(&self, namespace: &Namespace) -> Quota {
        match namespace.kind {
            Kind::SelfSigned => Quota::NONE,
            Kind::Hosted => {
                let plan = namespace.plan.as_deref();
                let plan = plan.and_then(|plan| self.config.hosting.plan(plan));
                let of_plan = plan.map(|plan| plan.quota).unwrap_or_default();
                Quota::default().with(&of_plan).with(&namespace.quota)
            }
        }
    }

    /// Returns the object with this key, from the cache or from the store; `None` if the store has
    /// none.
    pub async fn object(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        self.cache.get(&*self.objects, key).await
    }
}
