//! Publishes the server's own library as the namespace `default`. Every change of the library
//! becomes a release automatically.
//!
//! The publisher polls the library's generation number every two seconds, so that it notices
//! `vault add` in another process. A change through the server itself wakes the publisher.
//!
//! If several servers share a database, only the server that holds the lease record publishes. A
//! lease expires if its holder stops renewing it.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, sync::watch};
use vault_format::{hash::Digest, name::Slug, time::Timestamp};
use vault_library::{
    Vault, VaultPaths, keys::Passphrases, pending_files, publish::ReleasePlan, shelf::LibraryShelf,
};
use vault_service::{App, accounts::bootstrap::FIRST_NAMESPACE, model::namespace};
use vault_shelf::fetch::Fetch;
use vault_store::{
    StoreError,
    records::{Document, RecordKey, When, Write},
};

use super::own_namespace::{OwnNamespace, PublishError};
use super::shelf::{Holding, OwnShelves};
use crate::errors::{Failure, message_chain};
use crate::output::doctor::not_approved;

/// Interval at which the library's generation number is read, to notice changes by other processes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum interval between releases, so that changes close together share one.
const MIN_RELEASE_INTERVAL: Duration = Duration::from_secs(5);
/// Lifetime of a lease (the record that lets one of several servers publish), in seconds.
const LEASE_SECONDS: i64 = 30;
/// A lease is renewed when fewer than this many seconds remain. Renewing at every poll would flush
/// a write to disk each time.
const LEASE_LOW_SECONDS: i64 = 20;
/// Interval at which an unchanged library is checked as well, so that its release is renewed before
/// it expires.
const RENEW: Duration = Duration::from_hours(1);
/// Time for which a change that comes through the server waits for the library's writer lock, which
/// another process may hold. It is shorter than the 20 s limit of a request.
const WAIT: Duration = Duration::from_secs(10);

/// The record that names the server that may publish the library. It expires on its own.
#[derive(Debug, Deserialize, Serialize)]
struct Lease {
    holder: String,
}

/// Publishes the library of a server in its own namespace whenever the library changes.
pub struct Publisher {
    app: App,
    vault: Vault,
    slug: Slug,
    /// Whether other servers may use the same database. If so, the lease decides which one
    /// publishes.
    shared: bool,
    holder: String,
    seen_generation: Option<u64>,
    /// The files that were last logged as not approved, each with the logged text and the SHA-256
    /// of its unapproved content (`None` if it was deleted or cannot be read).
    pending: Vec<(String, String, Option<Digest>)>,
    holding: Arc<Holding>,
    fetch: Option<Arc<dyn Fetch>>,
}

impl Publisher {
    /// Opens the server's library. Creates it with its keys if it does not exist.
    pub fn open_library(
        app: &App,
        paths: VaultPaths,
        passphrases: Arc<dyn Passphrases>,
        shared: bool,
    ) -> Result<Self, Failure> {
        let (clock, random) = (app.clock.clone(), app.random.clone());
        let vault = Vault::open_or_create_with(paths, clock, random, passphrases)?;
        let slug = FIRST_NAMESPACE
            .parse()
            .map_err(|_| fail!(Internal, "the first namespace has an invalid name"))?;
        Ok(Self {
            holder: app.fresh_id().to_string(),
            app: app.clone(),
            vault,
            slug,
            shared,
            seen_generation: None,
            pending: Vec::new(),
            holding: Arc::default(),
            fetch: None,
        })
    }

    /// Sets the fetcher with which MCP tools add skills from remote sources.
    #[must_use]
    pub fn with_fetch(self, fetch: Option<Arc<dyn Fetch>>) -> Self {
        Self { fetch, ..self }
    }

    /// Returns the shelves of this server: the stores through which MCP tools read and change
    /// skills. The namespace `default` reads the library while this server holds the lease;
    /// otherwise it reads its releases, as all other namespaces do.
    pub fn shelves(&self) -> Arc<OwnShelves> {
        let vault = self.vault.clone().with_wait(WAIT);
        let mut library = LibraryShelf::new(vault, self.slug.as_str());
        if let Some(fetch) = &self.fetch {
            library = library.with_fetch(Arc::clone(fetch));
        }
        let holding = Arc::clone(&self.holding);
        Arc::new(OwnShelves::new(self.slug.clone(), library, holding))
    }

    /// Waits until a change through this server asks to be published.
    pub async fn wait_for_wake(&self) {
        self.holding.wait_for_wake().await;
    }

    /// Checks the library once and publishes its changes. Errors are only logged, because a server
    /// that cannot publish can still answer requests.
    pub async fn publish_changes(&mut self) {
        match self.publish_if_changed().await {
            Ok(Some(plan)) => tracing::info!(
                namespace = %self.slug,
                release = plan.release,
                skills = plan.skills,
                added = plan.added.len(),
                changed = plan.changed.len(),
                removed = plan.removed.len(),
                "published the library"
            ),
            Ok(None) => {}
            Err(trouble) => {
                // Retry at the next poll.
                self.seen_generation = None;
                tracing::error!(error = %message_chain(&trouble), "the library was not published");
            }
        }
    }

    /// Polls until `stop` becomes true, then releases the lease.
    pub async fn watch_library(mut self, mut stop: watch::Receiver<bool>) {
        let mut since_renewal = Duration::ZERO;
        // Changes that are close together share a release.
        let mut at_once = false;
        loop {
            if !at_once {
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => break,
                    () = tokio::time::sleep(POLL_INTERVAL) => since_renewal += POLL_INTERVAL,
                    () = self.wait_for_wake() => {}
                }
            }
            if since_renewal >= RENEW {
                since_renewal = Duration::ZERO;
                self.seen_generation = None;
            }
            let before = self.seen_generation;
            self.publish_changes().await;
            at_once = before != self.seen_generation || self.seen_generation.is_none();
            if at_once {
                // A release was published, or publishing failed. Wait before the next attempt.
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => break,
                    () = tokio::time::sleep(MIN_RELEASE_INTERVAL) => since_renewal += MIN_RELEASE_INTERVAL,
                }
            }
        }
        // Stop signing before the lease is released, because another server may take the lease at
        // that moment.
        self.holding.set_until(None);
        if let Err(error) = self.release_lease().await {
            tracing::warn!(error = %message_chain(&error), "the lease of the library was not released");
        }
    }

    async fn publish_if_changed(&mut self) -> Result<Option<Box<ReleasePlan>>, PublishError> {
        if !self.hold_lease().await? {
            self.seen_generation = None;
            return Ok(None);
        }
        self.log_pending().await?;
        let generation = self.vault.generation()?;
        // An odd generation means that a writer is active or was killed. The content may have
        // changed already, so it is checked at every poll.
        if generation % 2 == 0 && self.seen_generation == Some(generation) {
            self.holding.set_published(generation);
            return Ok(None);
        }
        // Without the namespace, there is no place to publish to.
        let Some((namespace, _)) = namespace::find_namespace(&self.app, &self.slug).await? else {
            return Ok(None);
        };
        let own = OwnNamespace {
            app: self.app.clone(),
            vault: self.vault.clone(),
            namespace,
        };
        // On a blocking thread, because planning reads and hashes files.
        let runtime = Handle::current();
        let publishing =
            tokio::task::spawn_blocking(move || runtime.block_on(own.publish_library()));
        let published = publishing.await??;
        // Use the generation read before planning. A change during the plan is then found next
        // time.
        self.seen_generation = Some(generation);
        self.holding.set_published(generation);
        Ok(published)
    }

    /// Logs each hand-edited file (such as the policy) that waits for approval, once per edit. Its
    /// approved version stays in force.
    async fn log_pending(&mut self) -> Result<(), PublishError> {
        let vault = self.vault.clone();
        let pending = tokio::task::spawn_blocking(move || pending_files(&vault)).await??;
        let pending: Vec<_> = pending
            .into_iter()
            .map(|pending| {
                let content = pending.found.ok().flatten();
                let text = not_approved(&pending.file, pending.approved.is_none());
                let content = content.map(|bytes| Digest::of(&bytes));
                (pending.file.to_string(), text, content)
            })
            .collect();
        for entry in pending.iter().filter(|entry| !self.pending.contains(entry)) {
            let ((file, text, _), root) = (entry, self.vault.paths().root.display());
            tracing::error!("{text}: vault approve {file} --vault {root}");
        }
        self.pending = pending;
        Ok(())
    }

    /// Takes or renews the lease. Returns false while another server holds it.
    async fn hold_lease(&self) -> Result<bool, StoreError> {
        if !self.shared {
            self.holding.set_always();
            return Ok(true);
        }
        let held_until = self.take_or_renew_lease().await?;
        self.holding.set_until(held_until);
        Ok(held_until.is_some())
    }

    /// Takes the lease, or renews it if it ends soon. Returns its end, or `None` while another server
    /// holds it.
    async fn take_or_renew_lease(&self) -> Result<Option<Timestamp>, StoreError> {
        let key = lease_key();
        let now = self.app.clock.now();
        let lease_record = self.app.records.get_one(&key).await?;
        let when = match &lease_record {
            None => When::Absent,
            // An expired lease reads as absent, so this one is still held by another server.
            Some(record) if record.read::<Lease>()?.holder != self.holder => return Ok(None),
            Some(record) if record.expires_at > Some(now.plus_seconds(LEASE_LOW_SECONDS)) => {
                return Ok(record.expires_at);
            }
            Some(record) => When::At(record.revision),
        };
        let holder = self.holder.clone();
        let lease = Document::from_value(&Lease { holder })?;
        let until = now.plus_seconds(LEASE_SECONDS);
        let write = Write::put_until(key, lease, when, until);
        let done = self.app.records.commit_writes(vec![write]).await?.is_done();
        Ok(done.then_some(until))
    }

    async fn release_lease(&self) -> Result<(), StoreError> {
        if !self.shared {
            return Ok(());
        }
        let key = lease_key();
        if let Some(record) = self.app.records.get_one(&key).await?
            && record.read::<Lease>()?.holder == self.holder
        {
            let write = Write::delete(key, When::At(record.revision));
            // The condition on the revision fails if another server took the lease in the meantime.
            // That server keeps it.
            let _ = self.app.records.commit_writes(vec![write]).await?;
        }
        Ok(())
    }
}

fn lease_key() -> RecordKey {
    RecordKey::new("lease", "library")
}
