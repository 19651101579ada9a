//! The shelf of `vault mcp`: the library of this machine, whose vault need not exist yet.
//!
//! An agent starts the server in every session, also on a machine where nobody uses vault. So the
//! vault and its keys are made only when a tool submits the first change; until then the shelf is
//! empty.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use vault_format::draft::Submitter;
use vault_gate::{GateOptions, check};
use vault_library::shelf::LibraryShelf;
use vault_library::vault::{Vault, VaultError, VaultPaths};
use vault_shelf::{
    AgentLinks, Change, Drift, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes,
};
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;

use crate::passphrases::KeyPassphrases;

/// How the shelf of an open vault is made.
type Build = dyn Fn(Vault) -> LibraryShelf + Send + Sync;

/// The shelf of a vault that exists, or is created with the first change.
pub(super) struct LocalShelf {
    pub(super) owner: &'static str,
    pub(super) paths: VaultPaths,
    pub(super) passphrases: Arc<KeyPassphrases>,
    pub(super) build: Box<Build>,
    /// Whether the built shelf keeps changes as drafts.
    pub(super) drafts: bool,
    pub(super) opened: OnceLock<LibraryShelf>,
}

impl LocalShelf {
    /// Returns the shelf of the vault; `None` while there is no vault.
    async fn find_shelf(&self) -> Result<Option<&LibraryShelf>, ShelfError> {
        if let Some(shelf) = self.opened.get() {
            return Ok(Some(shelf));
        }
        let paths = self.paths.clone();
        let open = || Vault::open(paths, Arc::new(SystemClock), Arc::new(SystemRandom));
        // Looked for each time: another command may have created it.
        match run_blocking(open).await? {
            Ok(vault) => {
                let vault = vault.with_passphrases(self.passphrases.clone());
                Ok(Some(self.opened.get_or_init(|| (self.build)(vault))))
            }
            Err(VaultError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the shelf of the vault, and creates the vault if there is none.
    async fn shelf_or_new(&self) -> Result<&LibraryShelf, ShelfError> {
        if let Some(shelf) = self.find_shelf().await? {
            return Ok(shelf);
        }
        let (paths, passphrases) = (self.paths.clone(), self.passphrases.clone());
        let create = || {
            let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
            Vault::open_or_create_with(paths, clock, random, passphrases)
        };
        let vault = run_blocking(create).await??;
        tracing::warn!(
            vault = %self.paths.root.display(),
            "created a new vault without a recovery key: create one with `vault key recovery create <file>`, or the vault is lost with this machine"
        );
        Ok(self.opened.get_or_init(|| (self.build)(vault)))
    }
}

/// Runs file access on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ShelfError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|broken| ShelfError::Failed(format!("a task ended unexpectedly: {broken}")))
}

#[async_trait]
impl Shelf for LocalShelf {
    fn owner_name(&self) -> &str {
        self.owner
    }

    fn write_mode(&self) -> Writes {
        if self.drafts {
            Writes::Drafted
        } else {
            Writes::Signed
        }
    }

    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        match self.find_shelf().await? {
            Some(shelf) => shelf.take_snapshot().await,
            None => Ok(Arc::default()),
        }
    }

    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        match self.find_shelf().await? {
            Some(shelf) => shelf.load_skill(entry).await,
            None => Err(ShelfError::NotFound(entry.name().clone())),
        }
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        // A check changes nothing, so it creates no vault either.
        if let Change::Take {
            files, check: true, ..
        } = &change
            && self.find_shelf().await?.is_none()
        {
            let files = files.clone();
            let verdict = run_blocking(|| check(files, &GateOptions::in_service())).await?;
            return Ok(match verdict.package {
                Some(package) => Submitted::WouldPass {
                    name: package.name,
                    findings: verdict.findings,
                },
                None => Submitted::Refused {
                    findings: verdict.findings,
                },
            });
        }
        self.shelf_or_new().await?.submit(by, change).await
    }

    async fn refresh_agents(&self) -> Option<AgentLinks> {
        self.opened.get()?.refresh_agents().await
    }

    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError> {
        match self.find_shelf().await? {
            Some(shelf) => shelf.drift(entries, named).await,
            None => Ok(Vec::new()),
        }
    }
}
