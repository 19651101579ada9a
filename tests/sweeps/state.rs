//! What a home holds, as its user sees it, and what must hold after any fault.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use vault_library::{Vault, VaultPaths, integrity, subscribe};
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;
use vault_tests::home::Home;
use vault_tests::tree::{self, Entry};

/// Every listed skill: name to origin, version and a hash over its files, their paths and whether
/// they may be executed.
pub type Seen = BTreeMap<String, String>;

/// What `vault skill list` and `vault skill which` show. Panics where either fails, warns, or shows
/// what is not on disk.
#[track_caller]
pub fn seen(home: &Home) -> Seen {
    let listed = home.run("skill list").ok();
    assert_eq!(listed.stderr, "", "a listing says nothing but the list");
    let listed = listed.json();
    let mut seen = Seen::new();
    for skill in listed.as_array().expect("a list") {
        let text = |field: &str| skill[field].as_str().expect("a text").to_owned();
        let (name, origin) = (text("name"), text("origin"));
        let folder = match origin.strip_prefix("link:") {
            Some(link) => home.vault().join("links").join(link).join("skills"),
            None => home.vault().join("skills"),
        };
        let shown = format!(
            "{} v{} {}",
            origin.split(':').next().unwrap_or_default(),
            skill["version"],
            content(&folder.join(&name))
        );
        assert_eq!(seen.insert(name, shown), None, "a name is listed once");
    }
    seen
}

/// `vault skill which` of one name: its files where it is listed, "not found" where not.
#[track_caller]
pub fn which(home: &Home, name: &str, seen: &Seen) {
    let ran = home.run(&format!("--json skill which {name}"));
    let answer = ran.json();
    match seen.get(name) {
        Some(shown) => {
            assert_eq!(ran.code, 0, "{answer}");
            let files = answer["data"]["files"].as_str().expect("a path");
            assert!(shown.ends_with(&content(Path::new(files))), "{answer}");
        }
        None => {
            assert_eq!(ran.code, 1, "{answer}");
            assert_eq!(answer["error"]["code"], "skill_not_found");
        }
    }
}

/// A hash over all files of a folder.
pub fn content(folder: &Path) -> String {
    let mut hash = Sha256::new();
    for (path, (executable, bytes)) in tree::files(folder) {
        hash.update(format!("{path}\0{executable}\0{}\0", bytes.len()));
        hash.update(bytes);
    }
    vault_format::hash::Digest::of(&hash.finalize()).to_string()
}

/// The home's vault, opened by the library itself.
pub fn open(home: &Home) -> Vault {
    Vault::open(
        VaultPaths::new(home.vault(), home.config()),
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    )
    .expect("a vault")
}

/// The release that the home's one link is pinned to; 0 for none.
pub fn pinned(home: &Home) -> u64 {
    let links = subscribe::list_links(&open(home)).expect("readable links");
    links
        .first()
        .and_then(|link| link.pin().counted.as_ref())
        .map_or(0, |counted| counted.release)
}

/// Every installed skill is verified from its bytes, and nothing foreign lies beside them. Returns
/// how many stored bundles nothing refers to.
#[track_caller]
pub fn whole(home: &Home) -> usize {
    if !home.vault().join("vault.json").exists() {
        return 0;
    }
    let report = integrity::verify_all_installed(&open(home)).expect("a verdict");
    assert!(report.is_clean(), "{report:?}");
    assert!(report.strange.is_empty(), "{:?}", report.strange);
    report.unreferenced.len()
}

/// Nothing of a killed writer is left: no temporary name, no empty or half record, no secret that
/// others can read, no change under way.
#[track_caller]
pub fn swept(home: &Home) {
    let staging = tree::snapshot(&home.vault().join("tmp"), &[]);
    assert!(staging.is_empty(), "left in tmp: {staging:?}");
    for root in [home.vault(), home.config()] {
        for (path, entry) in tree::snapshot(&root, &["store/"]) {
            let name = path.rsplit('/').next().unwrap_or(&path);
            let ending = name.rsplit('.').next();
            assert!(
                !name.starts_with('.')
                    && !["next", "new"].map(Some).contains(&ending)
                    && name != "creating",
                "left in {}: {path}",
                root.display()
            );
            let empty = ending == Some("json") && matches!(entry, Entry::File(_, 0, _));
            assert!(!empty, "{path} is empty");
        }
    }
    private(home);
    let vault = open(home);
    assert_eq!(vault.generation().expect("a number") % 2, 0);
    assert_eq!(
        vault.release_signer().expect("the secret key").public_key(),
        vault.release_key().expect("a publisher's key")
    );
}

/// No file and no folder of keys, device keys and tokens is open to others, at any moment.
#[track_caller]
pub fn private(home: &Home) {
    for (path, entry) in tree::snapshot(&home.config(), &[]) {
        if let Entry::File(mode, ..) | Entry::Folder(mode) = entry {
            assert_eq!(mode & 0o077, 0, "others can read {path}");
        }
    }
}
