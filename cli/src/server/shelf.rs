//! The shelves of a server: a *shelf* is the store through which MCP tools read the skills of one
//! namespace and submit changes. The namespace `default` has the server's own library as its shelf
//! while this server *holds* the library (has the lease to sign and publish it). All other
//! namespaces are read from their releases.
//!
//! A write returns when it is signed, and wakes the publisher, which creates a release. A lease
//! that is not renewed in time expires by the clock alone, so a server that was suspended for a
//! while signs nothing that another server may sign as well.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use vault_format::hash::Digest;

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::timeout;
use vault_format::{
    draft::Submitter,
    name::{NamespaceId, Slug},
    time::Timestamp,
};
use vault_library::shelf::LibraryShelf;
use vault_service::{
    Accepted, App,
    model::{
        audit::{self, Actor},
        namespace::{self, Kind, Namespace},
    },
    shelf::{Releases, Shelves},
};
use vault_shelf::{Change, Drift, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes};
use vault_store::StoreError;

use crate::errors::message_chain;

/// Time for which a caller waits until its change is published. It is shorter than the 20 s limit
/// of a request, and longer than the interval between releases.
const PUBLISH_WAIT: Duration = Duration::from_secs(12);

/// State that the shelves share with the publisher: until when this server holds the library, a
/// signal that wakes the publisher, and what it has published.
#[derive(Debug)]
pub struct Holding {
    until: AtomicI64,
    wake: Notify,
    /// The newest generation of the library (a number that grows with every change) that is
    /// published.
    published: watch::Sender<Option<u64>>,
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            until: AtomicI64::new(i64::MIN),
            wake: Notify::new(),
            published: watch::Sender::new(None),
        }
    }
}

impl Holding {
    /// Records until when this server holds the library; `None` means not at all.
    pub fn set_until(&self, until: Option<Timestamp>) {
        let until = until.map_or(i64::MIN, Timestamp::unix);
        self.until.store(until, Ordering::SeqCst);
    }

    /// Records that this server always holds the library, because no other server can.
    pub fn set_always(&self) {
        self.until.store(i64::MAX, Ordering::SeqCst);
    }

    fn is_held(&self, now: Timestamp) -> bool {
        now.unix() < self.until.load(Ordering::SeqCst)
    }

    /// Records that everything up to this generation of the library is published.
    pub fn set_published(&self, generation: u64) {
        self.published.send_replace(Some(generation));
    }

    /// Wakes the publisher and waits until it has published this generation. Fails if that takes
    /// longer than `wait`.
    async fn until_published(&self, generation: u64, wait: Duration) -> Result<(), ShelfError> {
        let mut published = self.published.subscribe();
        self.wake.notify_one();
        let reached = published.wait_for(|done| done.is_some_and(|done| done >= generation));
        match timeout(wait, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ShelfError::Busy),
        }
    }

    /// Waits until a shelf asks for a release.
    pub async fn wait_for_wake(&self) {
        self.wake.notified().await;
    }
}

/// Chooses the shelf of a namespace, on a server with its own library.
pub struct OwnShelves {
    slug: Slug,
    library: LibraryShelf,
    holding: Arc<Holding>,
    releases: Releases,
    /// The lock for changes through this server, which makes one change at a time.
    changing: Arc<Mutex<()>>,
}

impl OwnShelves {
    /// Creates the shelves. `library` is the shelf of the namespace `slug`, which the server signs
    /// itself, while this server holds it.
    pub fn new(slug: Slug, library: LibraryShelf, holding: Arc<Holding>) -> Self {
        Self {
            slug,
            library,
            holding,
            releases: Releases::default(),
            changing: Arc::default(),
        }
    }
}

impl OwnShelves {
    /// Returns whether the namespace is the one of the library, and this server holds the library
    /// now.
    fn holds_library(&self, app: &App, namespace: &Namespace) -> bool {
        namespace.slug == self.slug
            && namespace.kind == Kind::SelfSigned
            && self.holding.is_held(app.clock.now())
    }

    fn own_shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> OwnShelf {
        OwnShelf {
            library: self.library.clone(),
            holding: Arc::clone(&self.holding),
            changing: Arc::clone(&self.changing),
            app: app.clone(),
            namespace: namespace.id,
            source,
        }
    }
}

#[async_trait]
impl Shelves for OwnShelves {
    fn shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> Arc<dyn Shelf> {
        if self.holds_library(app, namespace) {
            Arc::new(self.own_shelf(app, namespace, source))
        } else {
            self.releases.shelf(app, namespace, source)
        }
    }

    async fn sign(
        &self,
        app: &App,
        namespace: &Namespace,
        accepted: Accepted<'_>,
    ) -> Result<Submitted, ShelfError> {
        if !self.holds_library(app, namespace) {
            return Err(ShelfError::LibraryElsewhere);
        }
        let Accepted {
            author,
            actor,
            change,
            reviewed,
        } = accepted;
        let shelf = self.own_shelf(app, namespace, actor.source);
        // The log names the person who accepted the change. Its author is part of the skill's
        // provenance.
        shelf.sign_change(author, change, reviewed, actor).await
    }

    async fn publish(&self, app: &App, namespace: &Namespace) -> Result<Option<u64>, ShelfError> {
        if !self.holds_library(app, namespace) {
            return Err(ShelfError::LibraryElsewhere);
        }
        let vault = self.library.vault().clone();
        // Reading the generation waits for the disk, so keep it off the async worker.
        let generation = tokio::task::spawn_blocking(move || vault.generation()).await;
        let generation = generation.map_err(|broken| ShelfError::Failed(broken.to_string()))??;
        self.holding
            .until_published(generation, PUBLISH_WAIT)
            .await?;
        // Read the namespace again: the release was made after the caller's copy was read.
        let namespace_record = namespace::find_namespace(app, &namespace.slug).await?;
        let current = namespace_record.and_then(|(namespace, _)| namespace.current);
        Ok(current.map(|current| current.release))
    }
}

/// The server's library as the shelf (the set of skills that MCP tools show and change) of one
/// request.
#[derive(Clone)]
struct OwnShelf {
    library: LibraryShelf,
    holding: Arc<Holding>,
    changing: Arc<Mutex<()>>,
    app: App,
    namespace: NamespaceId,
    source: Option<IpAddr>,
}

impl OwnShelf {
    /// Writes a change to the audit log. The library is not part of the database, so this happens
    /// after the signature and cannot undo it.
    async fn write_audit(&self, actor: &Actor, submitted: &Submitted) -> Result<(), StoreError> {
        let (action, name, after) = match submitted {
            Submitted::Signed {
                name,
                version,
                bundle_hash,
                ..
            } => {
                let after = json!({ "version": version, "bundle_hash": bundle_hash });
                ("skill.sign", name, Some(after))
            }
            Submitted::Removed { name, .. } => ("skill.remove", name, None),
            _ => return Ok(()),
        };
        let change = audit::Change::about(&name).with_after(after);
        let namespace = Some(&self.namespace);
        let entry = self
            .app
            .audit_entry(namespace, actor, action, change, "done")?;
        let commit = self.app.records.commit_writes(vec![entry]).await?;
        // The key of the entry is new, so only a concurrent writer can cause a conflict.
        commit.is_done().then_some(()).ok_or(StoreError::Conflict)
    }

    /// Signs a change that `author` made, wakes the publisher, and writes the change to the audit
    /// log as an act of `actor`. Fails if `reviewed` is given and the files have another digest.
    async fn sign_change(
        &self,
        author: &Submitter,
        change: Change,
        reviewed: Option<Digest>,
        actor: &Actor,
    ) -> Result<Submitted, ShelfError> {
        if !self.holding.is_held(self.app.clock.now()) {
            return Err(ShelfError::LibraryElsewhere);
        }
        if matches!(change, Change::Folder { .. }) {
            // Remote callers must not read folders of this machine.
            return Err(ShelfError::SourceUnsupported(
                "a folder cannot be read here; propose the skill's files instead".to_owned(),
            ));
        }
        let is_scanned = !matches!(change, Change::Remove(_));
        let prepared = self
            .library
            .prepare_change(change)
            .await?
            .with_reviewed(reviewed);
        // Take the lock of the library first. A change that waits for the library must not occupy a
        // place in the queue for scans, which all vaults of this process share.
        let turn = Arc::clone(&self.changing).lock_owned().await;
        let scan = if is_scanned {
            Some(self.app.enter_scan(&self.namespace).await?)
        } else {
            None
        };
        // Fetching and waiting take time. Another server may hold the lease by now.
        if !self.holding.is_held(self.app.clock.now()) {
            return Err(ShelfError::LibraryElsewhere);
        }
        // Run as a task of its own, which goes on if the client closes the connection: a change
        // that is signed must also be published and logged, and the places stay taken until it
        // ends.
        let (shelf, author, actor) = (self.clone(), author.clone(), actor.clone());
        let changing = tokio::spawn(async move {
            let _turns = (turn, scan);
            let submitted = shelf.library.admit_prepared(&author, prepared).await?;
            if matches!(
                submitted,
                Submitted::Signed { .. } | Submitted::Removed { .. }
            ) {
                // Wake the publisher before any step that may fail.
                shelf.holding.wake.notify_one();
            }
            shelf.log_audit(&actor, &submitted).await;
            Ok(submitted)
        });
        changing
            .await
            .map_err(|broken| ShelfError::Failed(format!("a task ended unexpectedly: {broken}")))?
    }

    /// Writes a change to the audit log. A failure is only logged, because the change is already
    /// done.
    async fn log_audit(&self, actor: &Actor, submitted: &Submitted) {
        if let Err(error) = self.write_audit(actor, submitted).await {
            tracing::error!(error = %message_chain(&error), user = %actor.user, ?submitted, "a change of the library is missing in the audit log");
        }
    }
}

#[async_trait]
impl Shelf for OwnShelf {
    fn owner_name(&self) -> &str {
        self.library.owner_name()
    }

    fn write_mode(&self) -> Writes {
        self.library.write_mode()
    }

    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        self.library.take_snapshot().await
    }

    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        self.library.load_skill(entry).await
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        let actor = Actor {
            user: by.user_id.clone(),
            client: by.client_id.clone(),
            source: self.source,
        };
        self.sign_change(by, change, None, &actor).await
    }

    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError> {
        self.library.drift(entries, named).await
    }
}

#[cfg(test)]
mod tests;
