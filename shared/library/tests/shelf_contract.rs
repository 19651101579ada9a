//! Runs the shelf contract suite on the library.

use std::sync::{Arc, Mutex};

use crate::support::host::{BASE, Host};
use crate::support::{Home, removal, replacing, write};
use async_trait::async_trait;
use vault_format::draft::Draft;
use vault_format::name::SkillName;
use vault_gate::RawFile;
use vault_library::admit::Options;
use vault_library::admit::remove::remove_skills;
use vault_library::shelf::LibraryShelf;
use vault_library::subscribe::{self, Selection};
use vault_shelf::Entry;
use vault_testing::contract::shelf::{Hand, ShelfFixture};

/// Stands in for the command line: another handle on the same library.
struct Beside {
    home: Home,
    linked: Mutex<Option<Home>>,
}

impl Beside {
    fn add(home: &Home, files: Vec<RawFile>, source: &str) {
        let folder = tempfile::tempdir_in(home.folder.path()).unwrap();
        for file in files {
            write(&folder.path().join(&file.path), &file.bytes);
        }
        let options = Options {
            provenance: Some(source.parse().unwrap()),
            ..replacing()
        };
        home.add_with(folder.path(), &options).unwrap();
    }
}

#[async_trait]
impl Hand for Beside {
    async fn put(&self, files: Vec<RawFile>, source: &str) {
        Self::add(&self.home, files, source);
    }

    async fn remove(&self, name: &SkillName) {
        remove_skills(&self.home.vault, &removal(&[name.as_str()])).unwrap();
    }

    async fn link(&self, files: Vec<RawFile>) -> bool {
        let owner = Home::new(2);
        Self::add(&owner, files, "local:linked");
        let mut host = Host::new("linked");
        host.sync(&owner.vault, owner.now()).unwrap();
        let vault = &self.home.vault;
        let link = subscribe::link_vault(vault, BASE, &host.slug).unwrap();
        host.pull(vault, &link, &Selection::default()).unwrap();
        *self.linked.lock().unwrap() = Some(owner);
        true
    }

    async fn damage(&self, entry: &Entry) {
        let path = format!("vault/store/{}/files/notes.txt", entry.texts.bundle_hash);
        let path = self.home.path(&path);
        crate::support::set_mode(&path, 0o644);
        std::fs::write(&path, "others\n").unwrap();
        crate::support::set_mode(&path, 0o444);
    }

    async fn policy(&self, text: &str) {
        std::fs::write(self.home.path("vault/policy.toml"), text).unwrap();
        crate::support::approve_all(&self.home.vault).unwrap();
    }

    async fn drafts(&self) -> Vec<Draft> {
        Vec::new()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "other shelves may be absent")]
fn library() -> Option<ShelfFixture> {
    let home = Home::new(1);
    let shelf = LibraryShelf::new(home.again(), "local");
    Some(ShelfFixture {
        shelf: Arc::new(shelf),
        hand: Arc::new(Beside {
            home,
            linked: Mutex::default(),
        }),
        keep: Box::new(()),
    })
}

vault_testing::shelf_contract!(std::future::ready(library()));
