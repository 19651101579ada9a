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
        let made = ensure_first_owner(&app, Some(Kind::SelfSigned), email, Some(&password)).await;
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

/// Scans of the library wait in the same queue as those of all vaults of this process.
#[tokio::test]
async fn a_change_waits_for_its_turn_to_be_scanned() {
    let servers = Servers::new().await;
    let (app, mut holder) = servers.server(1);
    holder.publish_changes().await;
    let own = own_namespace(&app).await.id;
    // Fill all places for running and for waiting scans.
    let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(app.enter_scan(&own))).collect();
    let mut scans = Vec::new();
    for scan in &mut waiting {
        scans.extend(timeout(Duration::ZERO, scan).await);
    }
    let refused = shelf(&app).await.submit(&by(), take("alpha")).await;
    let Err(ShelfError::Store(StoreError::Busy)) = refused else {
        panic!("{refused:?}");
    };
    // A removal needs no scan.
    let removed = Change::Remove("alpha".parse().unwrap());
    let removed = shelf(&app).await.submit(&by(), removed).await;
    assert!(
        matches!(removed, Err(ShelfError::NotFound(_))),
        "{removed:?}"
    );
    drop((waiting, scans));
    let signed = shelf(&app).await.submit(&by(), take("alpha")).await;
    assert!(matches!(signed, Ok(Submitted::Signed { .. })), "{signed:?}");
    // The place of the change itself is free again.
    let again = timeout(Duration::ZERO, app.enter_scan(&own)).await;
    assert!(again.is_ok_and(|scan| scan.is_ok()));
}

/// A client that closes the connection while its change is signed prevents neither the entry in the
/// log nor the publication.
#[tokio::test]
async fn a_change_is_logged_although_its_request_is_given_up() {
    let servers = Servers::new().await;
    let (app, mut holder) = servers.server(1);
    holder.publish_changes().await;
    let signing = shelf(&app).await;
    let by = by();
    let mut submitting = signing.submit(&by, take("alpha"));
    // Poll the request once. It is not done, because the library works on another thread.
    assert!(timeout(Duration::ZERO, &mut submitting).await.is_err());
    drop(submitting);
    holder.wait_for_wake().await;
    let partition = audit::audit_partition(Some(&own_namespace(&app).await.id));
    let logged = async {
        loop {
            let entries = app.records.list_page(&partition, "", None, 100).await;
            let mut entries = entries.unwrap().into_iter();
            if entries.any(|entry| entry.read::<audit::Entry>().unwrap().action == "skill.sign") {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let logged = timeout(Duration::from_mins(1), logged).await;
    logged.expect("the change is in the log");
}

/// A change that waits for another change of the library takes no place in the queue for scans.
#[tokio::test]
async fn a_change_that_waits_for_the_library_leaves_scans_to_others() {
    let servers = Servers::new().await;
    let (app, mut holder) = servers.server(1);
    holder.publish_changes().await;
    let own = own_namespace(&app).await.id;
    let mut scans = Vec::new();
    while let Ok(scan) = timeout(Duration::ZERO, app.enter_scan(&own)).await {
        scans.push(scan.unwrap());
    }
    let (shelf, by) = (shelf(&app).await, by());
    let mut first = shelf.submit(&by, take("alpha"));
    let mut second = shelf.submit(&by, take("beta"));
    assert!(timeout(Duration::ZERO, &mut first).await.is_err());
    assert!(timeout(Duration::ZERO, &mut second).await.is_err());
    // Of the 32 that may wait for a scan, only the first change does.
    let mut waiting = Vec::new();
    loop {
        let mut scan = Box::pin(app.enter_scan(&own));
        if timeout(Duration::ZERO, &mut scan).await.is_ok() {
            break; // refused
        }
        waiting.push(scan);
    }
    assert_eq!(waiting.len(), 31);
    drop((waiting, scans));
    let (first, second) = tokio::join!(first, second);
    for signed in [first, second] {
        assert!(matches!(signed, Ok(Submitted::Signed { .. })), "{signed:?}");
    }
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

/// The log names the person who accepted a change, the skill's provenance names its author, and the
/// answer waits for the release.
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
    // The publisher was woken, but has only published the change before.
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
        skill: None,
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
