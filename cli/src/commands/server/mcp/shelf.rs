//! The shelf of `vault mcp`. A *shelf* is the set of skills that an MCP server shows and changes;
//! this one is the vault of this machine, which need not exist yet.
//!
//! An agent starts the server in every session, also on a machine where nobody uses vault. So the
//! vault and its keys are created only when a tool submits the first change. Until then the shelf
//! has no skills.

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

/// A function that makes the shelf of a vault that was opened.
type Build = dyn Fn(Vault) -> LibraryShelf + Send + Sync;

/// The shelf of the vault at `paths`. If that vault does not exist, the first change creates it.
pub(super) struct LocalShelf {
    pub(super) owner: &'static str,
    pub(super) paths: VaultPaths,
    pub(super) passphrases: Arc<KeyPassphrases>,
    pub(super) build: Box<Build>,
    /// Whether agents' changes are kept as drafts, for the user to accept, instead of being signed
    /// at once. `build` must set the same for the shelf that it makes.
    pub(super) keeps_drafts: bool,
    pub(super) opened: OnceLock<LibraryShelf>,
}

impl LocalShelf {
    /// Returns the shelf of the vault; `None` while no vault exists. The vault is opened once and
    /// then kept.
    async fn find_shelf(&self) -> Result<Option<&LibraryShelf>, ShelfError> {
        if let Some(shelf) = self.opened.get() {
            return Ok(Some(shelf));
        }
        let paths = self.paths.clone();
        let open = || Vault::open(paths, Arc::new(SystemClock), Arc::new(SystemRandom));
        // While no vault exists it is looked for in every call, because another command may create
        // it.
        match run_blocking(open).await? {
            Ok(vault) => {
                let vault = vault.with_passphrases(self.passphrases.clone());
                Ok(Some(self.opened.get_or_init(|| (self.build)(vault))))
            }
            Err(VaultError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the shelf of the vault. Creates the vault with new keys if none exists, and logs a
    /// warning that it has no recovery key.
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

/// Runs `work`, which reads or writes files, on a thread where it may block. Fails if it panics.
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
        if self.keeps_drafts {
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
        // A check stores nothing, so it must not create the vault. Without one, the gate alone
        // (vault's scanner) gives the answer.
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
