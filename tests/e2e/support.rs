//! Homes that are connected, linked and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vault_format::catalog::{Catalog, SignedCatalog};
use vault_testing::postgres;
use vault_testing::servers::or_say_why;
use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER};
use vault_tests::server::{Database, OWNER_EMAIL, Server};
use vault_tests::{place, tree};

/// The files of one skill: by path, whether executable, and the bytes.
pub type Files = BTreeMap<String, (bool, Vec<u8>)>;

/// The namespace that most tests use.
pub const SLUG: &str = "team";

/// The namespace that tests use, and what it is called at this server.
pub fn slug(server: &Server) -> String {
    server.named(SLUG)
}

/// A database of each kind; a PostgreSQL that is not there is said and left out (a failure with
/// `CI=true`).
pub fn on_postgres(test: impl FnOnce(&Database)) {
    if place::leaves_out("", "the same on PostgreSQL; the functions have one table") {
        return;
    }
    if let Some(database) = or_say_why(postgres::database()) {
        test(&Database::Postgres(database.url()));
    }
}

/// `<server>/v/<slug>`, the slug as the server knows it.
pub fn address(server: &Server, slug: &str) -> String {
    format!("{}/v/{}", server.url, server.named(slug))
}

/// Makes a namespace as operator and connects this home to it.
#[track_caller]
pub fn connect(server: &Server, home: &Home, slug: &str) {
    let create = [
        "operator",
        "--url",
        &server.url,
        "namespace",
        "create",
        &server.named(slug),
        "--owner",
        OWNER_EMAIL,
        "--json",
    ];
    home.sign_in(&create, OWNER, Answer::Pasted).data();
    let vault = address(server, slug);
    home.sign_in(
        &format!("cloud connect {vault} --json"),
        OWNER,
        Answer::Pasted,
    )
    .data();
}

/// Links a home, has it admitted, and returns its device id.
#[track_caller]
pub fn link(server: &Server, owner: &Home, machine: &Home, slug: &str) -> String {
    let key = fingerprint(owner);
    let linked = machine.json(&format!(
        "link {} --expect-key {key}",
        address(server, slug)
    ));
    let device = text(&linked["device_id"]);
    owner.json(&format!("devices admit {device}"));
    device
}

/// The fingerprint of a home's own vault.
#[track_caller]
pub fn fingerprint(owner: &Home) -> String {
    text(&owner.json("key show")["fingerprint"])
}

/// A JSON text.
#[track_caller]
pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

/// A JSON array of texts as a set.
#[track_caller]
pub fn names(value: &Value) -> BTreeSet<String> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("no list: {value}"))
        .iter()
        .map(text)
        .collect()
}

/// The skills that a home pulled from the one vault that it is linked to, by name.
#[track_caller]
pub fn pulled(home: &Home) -> BTreeMap<String, Files> {
    let links = home.vault().join("links");
    let mut link: Vec<PathBuf> = fs::read_dir(&links)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(link.len(), 1, "linked to one vault: {link:?}");
    let skills = link.remove(0).join("skills");
    let Ok(listing) = fs::read_dir(&skills) else {
        return BTreeMap::new();
    };
    listing
        .map(|entry| {
            let entry = entry.unwrap();
            assert!(
                entry.file_type().unwrap().is_symlink(),
                "a switch, not a copy"
            );
            is_read_only(&entry.path());
            (
                entry.file_name().into_string().unwrap(),
                tree::files(&entry.path()),
            )
        })
        .collect()
}

/// What is installed can be read by everybody that may read the vault, and changed by nobody
/// without a chmod.
fn is_read_only(skill: &Path) {
    let root = fs::canonicalize(skill).unwrap();
    for (path, entry) in tree::snapshot(&root, &[]) {
        match entry {
            tree::Entry::File(mode, ..) => assert_eq!(mode & 0o222, 0, "{path}: {mode:o}"),
            tree::Entry::Folder(_) => {}
            other => panic!("{path} is {other:?}"),
        }
        let mode = fs::metadata(root.join(&path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7000, 0, "{path}: {mode:o}");
    }
}

/// Everything in a home's vault and trust folder but what is rebuilt or held open, and the time at
/// which a catalog counted last.
pub fn vault_of(home: &Home) -> BTreeMap<String, String> {
    let mut all: BTreeMap<_, _> = tree::snapshot(&home.vault(), &["index.db", "lock", "tmp"])
        .into_iter()
        .map(|(path, entry)| (path, format!("{entry:?}")))
        .collect();
    for (path, entry) in tree::snapshot(&home.config(), &["services/", "vaults/lock"]) {
        // When and how the last pull ended; each pull writes it, a refused one too.
        if path.ends_with("/last-pull.json") {
            continue;
        }
        let mut shown = format!("{entry:?}");
        if path.ends_with("/trust.json") {
            let bytes = fs::read(home.config().join(&path)).unwrap();
            let mut trust: Value = serde_json::from_slice(&bytes).unwrap();
            trust.as_object_mut().unwrap().remove("latest_seen_at");
            shown = trust.to_string();
        }
        all.insert(format!("trust/{path}"), shown);
    }
    all
}

/// The catalogs of all releases, the exact bytes verified, as an owner may read them.
pub async fn history(server: &Server, owner: &Home, slug: &str) -> Vec<(Vec<u8>, Catalog)> {
    let client = vault_tests::browser::client();
    let slug = &server.named(slug);
    let token = owner.access_token(&server.url, slug);
    let mut catalogs = Vec::new();
    for release in 1.. {
        let url = format!(
            "{}/admin/vaults/{slug}/releases/{release}/catalog",
            server.listens_at()
        );
        let answer = client.get(url).bearer_auth(&token).send().await.unwrap();
        if answer.status() == 404 {
            break;
        }
        assert_eq!(answer.status(), 200);
        let bytes = answer.bytes().await.unwrap().to_vec();
        let catalog = vault_tests::signed::read_catalog(&bytes).unwrap();
        catalogs.push((bytes, catalog));
    }
    catalogs
}

/// Every release follows the one before it, and no number was given twice or left out.
#[track_caller]
pub fn is_linear(history: &[(Vec<u8>, Catalog)]) {
    for (at, (_, catalog)) in history.iter().enumerate() {
        assert_eq!(catalog.release, at as u64 + 1);
        let before = at.checked_sub(1).map(|at| {
            let (bytes, catalog) = &history[at];
            (
                catalog.release,
                SignedCatalog::parse(bytes).unwrap().payload_sha256(),
            )
        });
        let previous = catalog
            .previous
            .as_ref()
            .map(|stored| (stored.release, stored.payload_sha256));
        assert_eq!(previous, before, "release {}", catalog.release);
    }
}

/// Runs an async part of a test to its end.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}
