//! Serves `default` from the server's own library while this server holds it, and all other
//! namespaces from their releases.
//!
//! A write returns when it is signed, and wakes the publisher to create a release. A lease that is
//! not renewed in time expires by the clock alone. A server that was suspended therefore signs
//! nothing that another server may sign as well.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use vault_format::hash::Digest;

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::{Notify, watch};
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

/// The time until which this server holds the library, the notification that wakes its publisher,
/// and the publisher's progress.
#[derive(Debug)]
pub struct Holding {
    until: AtomicI64,
    wake: Notify,
    /// The generation of the library that is published.
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
    /// Records that the library is held until this time; `None` means that it is not held.
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

    /// Waits until there is something to publish.
    pub async fn wait_for_wake(&self) {
        self.wake.notified().await;
    }
}

/// The shelves of a server with its own library.
pub struct OwnShelves {
    slug: Slug,
    library: LibraryShelf,
    holding: Arc<Holding>,
    releases: Releases,
}

impl OwnShelves {
    /// Creates the shelves. `library` serves the self-signed namespace `slug` while it is held.
    pub fn new(slug: Slug, library: LibraryShelf, holding: Arc<Holding>) -> Self {
        Self {
            slug,
            library,
            holding,
            releases: Releases::default(),
        }
    }
}

impl OwnShelves {
    /// Returns whether this server holds the library of this namespace now.
    fn holds_library(&self, app: &App, namespace: &Namespace) -> bool {
        namespace.slug == self.slug
            && namespace.kind == Kind::SelfSigned
            && self.holding.is_held(app.clock.now())
    }

    fn own_shelf(&self, app: &App, namespace: &Namespace, source: Option<IpAddr>) -> OwnShelf {
        OwnShelf {
            library: self.library.clone(),
            holding: Arc::clone(&self.holding),
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
        let submitted = shelf.sign_change(author, change, reviewed).await?;
        // The log names the person who accepted the change. Its author is part of the skill's
        // provenance.
        shelf.log_audit(actor, &submitted).await;
        Ok(submitted)
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

/// The library for one request.
struct OwnShelf {
    library: LibraryShelf,
    holding: Arc<Holding>,
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
        let entry = self.app.audit(namespace, actor, action, change, "done")?;
        let commit = self.app.records.commit_writes(vec![entry]).await?;
        // The key of the entry is new, so only a concurrent writer can cause a conflict.
        commit.is_done().then_some(()).ok_or(StoreError::Conflict)
    }

    /// Signs a change that `author` made, if its files are the reviewed ones, and wakes the
    /// publisher.
    async fn sign_change(
        &self,
        author: &Submitter,
        change: Change,
        reviewed: Option<Digest>,
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
        let prepared = self
            .library
            .prepare_change(change)
            .await?
            .with_reviewed(reviewed);
        // Fetching takes time. Another server may hold the lease by now.
        if !self.holding.is_held(self.app.clock.now()) {
            return Err(ShelfError::LibraryElsewhere);
        }
        let submitted = self.library.admit_prepared(author, prepared).await?;
        if matches!(
            submitted,
            Submitted::Signed { .. } | Submitted::Removed { .. }
        ) {
            // The change is signed and must be published. Notify before any step that may fail.
            self.holding.wake.notify_one();
        }
        Ok(submitted)
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
        let submitted = self.sign_change(by, change, None).await?;
        let actor = Actor {
            user: by.user_id.clone(),
            client: by.client_id.clone(),
            source: self.source,
        };
        self.log_audit(&actor, &submitted).await;
        Ok(submitted)
    }

    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError> {
        self.library.drift(entries, named).await
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use vault_library::{VaultPaths, keys::NoPassphrases};
    use vault_service::{
        Ports,
        accounts::bootstrap::{FIRST_NAMESPACE, ensure_first_owner},
        config::{Config, Limits},
        model::namespace,
    };
    use vault_testing::{SeededRandom, TestClock, contract::shelf::skill, memory::Memory};

    use super::*;
    use crate::server::publisher::Publisher;

    struct Servers {
        clock: Arc<TestClock>,
        memory: Arc<Memory>,
        home: tempfile::TempDir,
    }

    impl Servers {
        async fn new() -> Self {
            let clock = Arc::new(TestClock::default());
            let memory = Arc::new(Memory::new(clock.clone()));
            let home = tempfile::tempdir().unwrap();
            let servers = Self {
                clock,
                memory,
                home,
            };
            let password = SecretString::from("a password of the first owner");
            let email = Some("owner@example.org");
            let app = servers.app(0);
            let made = ensure_first_owner(&app, Kind::SelfSigned, email, Some(&password)).await;
            made.unwrap();
            servers
        }

        fn app(&self, seed: u64) -> App {
            let mut config = Config::new("https://vault.example".parse().unwrap());
            config.limits = Limits::disabled();
            let random = Arc::new(SeededRandom::new(seed));
            let ports = Ports {
                records: self.memory.clone(),
                objects: self.memory.clone(),
                clock: self.clock.clone(),
                random,
            };
            App::new(ports, config)
        }

        /// Creates a server that shares the database and has a library of its own.
        fn server(&self, seed: u64) -> (App, Publisher) {
            let app = self.app(seed);
            let folder = self.home.path().join(seed.to_string());
            let paths = VaultPaths::new(folder.join("vault"), folder.join("config"));
            let publisher =
                Publisher::open_library(&app, paths, Arc::new(NoPassphrases), true).unwrap();
            let app = app.with_shelves(publisher.shelves());
            (app, publisher)
        }
    }

    async fn own_namespace(app: &App) -> Namespace {
        let slug = FIRST_NAMESPACE.parse().unwrap();
        let found = namespace::find_namespace(app, &slug).await.unwrap();
        found.unwrap().0
    }

    async fn shelf(app: &App) -> Arc<dyn Shelf> {
        shelf_of(app, &own_namespace(app).await)
    }

    fn shelf_of(app: &App, namespace: &Namespace) -> Arc<dyn Shelf> {
        let shelves = app.shelves.as_ref().unwrap();
        shelves.shelf(app, namespace, None)
    }

    fn assert_elsewhere(result: &Result<Submitted, ShelfError>) {
        assert!(
            matches!(result, Err(ShelfError::LibraryElsewhere)),
            "{result:?}"
        );
    }

    fn take(name: &str) -> Change {
        Change::Take {
            files: skill(name, "one"),
            replace: false,
            check: false,
            hidden: false,
        }
    }

    fn by() -> Submitter {
        Submitter {
            user_id: "usr_1".to_owned(),
            client_id: None,
        }
    }

    async fn names(app: &App) -> Vec<String> {
        let snapshot = shelf(app).await.take_snapshot().await.unwrap();
        let entries = snapshot.entries().iter();
        entries.map(|entry| entry.name().to_string()).collect()
    }

    #[tokio::test]
    async fn the_holder_signs_and_the_others_read_its_release() {
        let servers = Servers::new().await;
        let (first, mut holder) = servers.server(1);
        let (second, mut waiting) = servers.server(2);
        holder.publish_changes().await;
        waiting.publish_changes().await;
        assert_eq!(shelf(&first).await.write_mode(), Writes::Signed);
        assert_eq!(shelf(&second).await.write_mode(), Writes::Elsewhere);
        assert_eq!(shelf(&first).await.owner_name(), "default");
        assert_eq!(shelf(&second).await.owner_name(), "default");

        let done = shelf(&first).await.submit(&by(), take("alpha")).await;
        assert!(
            matches!(done, Ok(Submitted::Signed { version: 1, .. })),
            "{done:?}"
        );
        assert_eq!(names(&first).await, ["alpha"], "acknowledged when signed");
        assert!(names(&second).await.is_empty(), "not published yet");
        // The publisher was notified before the response was sent.
        holder.wait_for_wake().await;
        holder.publish_changes().await;
        assert_eq!(names(&second).await, ["alpha"]);
        let entry = shelf(&second)
            .await
            .take_snapshot()
            .await
            .unwrap()
            .entries()[0]
            .clone();
        let loaded = shelf(&second).await.load_skill(&entry).await.unwrap();
        assert_eq!(
            loaded.find_file("notes.txt").unwrap().bytes,
            b"notes on one\n"
        );

        assert_elsewhere(&shelf(&second).await.submit(&by(), take("beta")).await);
        servers.clock.advance(1);
        let removed = Change::Remove("alpha".parse().unwrap());
        let removed = shelf(&first).await.submit(&by(), removed).await;
        assert!(
            matches!(removed, Ok(Submitted::Removed { .. })),
            "{removed:?}"
        );
        holder.wait_for_wake().await;
        holder.publish_changes().await;
        assert!(names(&second).await.is_empty());

        let partition = audit::audit_partition(Some(&own_namespace(&first).await.id));
        let entries = first
            .records
            .list_page(&partition, "", None, 100)
            .await
            .unwrap();
        let entries = entries
            .iter()
            .map(|entry| entry.read::<audit::Entry>().unwrap());
        let ours = entries.filter(|entry| entry.actor == "usr_1");
        let actions: Vec<_> = ours.map(|entry| entry.action).collect();
        assert_eq!(actions, ["skill.sign", "skill.remove"]);
    }

    #[tokio::test]
    async fn a_holder_that_stood_still_signs_nothing_until_it_holds_again() {
        let servers = Servers::new().await;
        let (first, mut holder) = servers.server(1);
        let (second, mut other) = servers.server(2);
        holder.publish_changes().await;
        let kept = shelf(&first).await;
        servers.clock.advance(31);
        assert_eq!(shelf(&first).await.write_mode(), Writes::Elsewhere);
        assert_elsewhere(&kept.submit(&by(), take("alpha")).await);
        other.publish_changes().await;
        holder.publish_changes().await;
        assert_eq!(shelf(&second).await.write_mode(), Writes::Signed);
        assert_eq!(shelf(&first).await.write_mode(), Writes::Elsewhere);
        servers.clock.advance(31);
        holder.publish_changes().await;
        assert_eq!(shelf(&first).await.write_mode(), Writes::Signed);
    }

    /// Who accepted is in the log, the author is where the skill comes from, and the answer waits
    /// for the release.
    #[tokio::test]
    async fn an_accepted_change_is_signed_logged_and_published() {
        let servers = Servers::new().await;
        let (app, mut holder) = servers.server(1);
        let (waiting_app, _waiting) = servers.server(2);
        holder.publish_changes().await;
        let own = own_namespace(&app).await;
        let owner = Actor {
            user: "usr_owner".to_owned(),
            ..Actor::default()
        };
        let author = by();
        let accepted = |change| Accepted {
            author: &author,
            actor: &owner,
            change,
            reviewed: None,
        };
        let elsewhere = waiting_app.shelves.clone().unwrap();
        let refused = elsewhere
            .sign(&waiting_app, &own, accepted(take("alpha")))
            .await;
        assert_elsewhere(&refused);
        let refused = elsewhere.publish(&waiting_app, &own).await;
        assert!(
            matches!(refused, Err(ShelfError::LibraryElsewhere)),
            "{refused:?}"
        );

        let shelves = app.shelves.clone().unwrap();
        let signed = shelves.sign(&app, &own, accepted(take("alpha"))).await;
        assert!(
            matches!(signed, Ok(Submitted::Signed { version: 1, .. })),
            "{signed:?}"
        );
        let publishing = async {
            holder.wait_for_wake().await;
            holder.publish_changes().await;
        };
        let (release, ()) = tokio::join!(shelves.publish(&app, &own), publishing);
        assert_eq!(release.unwrap(), Some(1));
        // Nothing is left to publish, so the next caller does not wait.
        let publishing = async {
            holder.wait_for_wake().await;
            holder.publish_changes().await;
        };
        let (release, ()) = tokio::join!(shelves.publish(&app, &own), publishing);
        assert_eq!(release.unwrap(), Some(1));

        let entry = shelf(&app).await.take_snapshot().await.unwrap().entries()[0].clone();
        let loaded = shelf(&app).await.load_skill(&entry).await.unwrap();
        let source = &loaded.bundle.manifest.provenance.identifier;
        assert_eq!(source.as_str(), "inline:usr_1");
        let partition = audit::audit_partition(Some(&own.id));
        let entries = app
            .records
            .list_page(&partition, "", None, 100)
            .await
            .unwrap();
        let signed = entries
            .iter()
            .map(|entry| entry.read::<audit::Entry>().unwrap())
            .find(|entry| entry.action == "skill.sign");
        assert_eq!(signed.unwrap().actor, "usr_owner");
    }

    #[tokio::test]
    async fn who_waits_for_a_release_that_does_not_come_is_told_to_try_again() {
        let holding = Holding::default();
        let waited = holding.until_published(2, Duration::ZERO).await;
        assert!(matches!(waited, Err(ShelfError::Busy)), "{waited:?}");
        // The publisher was woken, and is still at the change before.
        holding.wait_for_wake().await;
        holding.set_published(1);
        let waited = holding.until_published(2, Duration::ZERO).await;
        assert!(matches!(waited, Err(ShelfError::Busy)), "{waited:?}");
        holding.set_published(3);
        holding.until_published(2, Duration::ZERO).await.unwrap();
    }

    #[tokio::test]
    async fn no_folder_of_the_server_is_read_for_who_asks_over_the_network() {
        let servers = Servers::new().await;
        let (app, mut holder) = servers.server(1);
        holder.publish_changes().await;
        let folder = servers.home.path().join("alpha");
        std::fs::create_dir(&folder).unwrap();
        for file in skill("alpha", "one") {
            std::fs::write(folder.join(file.path), file.bytes).unwrap();
        }
        let change = Change::Folder {
            path: folder.to_str().unwrap().to_owned(),
            identifier: "local:alpha".to_owned(),
            agents: Vec::new(),
        };
        let refused = shelf(&app).await.submit(&by(), change).await;
        assert!(
            matches!(refused, Err(ShelfError::SourceUnsupported(_))),
            "{refused:?}"
        );
        assert!(names(&app).await.is_empty());
    }

    #[tokio::test]
    async fn a_hosted_namespace_is_never_the_library() {
        let servers = Servers::new().await;
        let (app, mut holder) = servers.server(1);
        holder.publish_changes().await;
        for slug in ["acme", FIRST_NAMESPACE] {
            let slug = slug.parse().unwrap();
            let owner = "owner@example.org".to_owned();
            let hosted = Namespace::new(slug, Kind::Hosted, owner, &app);
            let shelf = shelf_of(&app, &hosted);
            assert_eq!(shelf.write_mode(), Writes::Drafted);
        }
    }
}
