//! The owner's machine: one vault on disk, whose record of the history is written for each history.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_library::publish;

use super::history::{ANNA, History};
use crate::support::host::{BASE, Host};
use crate::support::{self, Home};

/// The machine as it was before any history, and as the present history leaves it.
pub struct Owner {
    template: Home,
    pub home: Home,
    releases: PathBuf,
    /// Whether a command changed the skills.
    is_changed: bool,
}

/// What refused commands leave as it is: own skills, and what is recorded as signed or published.
#[derive(Debug, Eq, PartialEq)]
pub struct Kept {
    pub skills: BTreeMap<String, Digest>,
    records: Vec<Option<Vec<u8>>>,
}

impl Owner {
    /// A vault with two skills, and the service that has its first release.
    pub fn new() -> (Self, Host) {
        let template = Home::at(memory(), 1);
        let mut host = Host::new("acme");
        for skill in ["alpha", "beta"] {
            template.add_folder(&template.source(skill, "x", &[]));
        }
        host.sync(&template.vault, template.now()).unwrap();
        let home = template.copy_to(memory());
        let id = home.vault.id().to_string();
        let releases = home.path("config/vaults").join(id).join("releases");
        let origin = support::file_names(&releases).remove(0);
        let owner = Self {
            releases: releases.join(origin),
            template,
            home,
            is_changed: false,
        };
        (owner, host)
    }

    /// Makes the machine one that has lived through this history. Without a record, it has
    /// published and taken over nothing yet.
    pub fn live(&mut self, history: &History, has_record: bool) {
        if self.is_changed {
            self.home = self.template.copy_to(memory());
            let id = self.home.vault.id().to_string();
            let releases = self.home.path("config/vaults").join(id).join("releases");
            self.releases = releases.join(self.releases.file_name().unwrap());
            self.is_changed = false;
        }
        let id = self.home.vault.id().to_string();
        let trust = json!({
            "schema": "vault.trust/1", "vault_id": id,
            "root1_sha256": history.known.chain().root1_sha256(), "roots": history.known.chain(),
            "revoked": [], "latest_seen_at": null, "taken_over": [], "sign_again": [],
            "made_from": null, "shown": true, "recovery_checked_at": null,
        });
        let folder = self.home.path("config/vaults").join(id);
        fs::write(folder.join("trust.json"), trust.to_string()).unwrap();
        let _absent = fs::remove_file(self.releases.join("acme.pending.json"));
        let (state, catalog) = ("acme.json", "acme.catalog.json");
        if !has_record {
            for file in [state, catalog] {
                let _absent = fs::remove_file(self.releases.join(file));
            }
            return;
        }
        let last = history.last_counted();
        let recorded = history.recorded.iter().map(|at| &history.releases[*at]);
        let signed = recorded.clone().filter(|it| it.signers.contains(&ANNA));
        let highest = signed.clone().map(|it| it.catalog.release).max();
        let record = json!({
            "base": BASE, "slug": "acme", "pending": null, "highest_signed": highest.unwrap_or(0),
            "published": {
                "release": last.catalog.release, "payload_sha256": last.payload_sha256,
                "file_sha256": Digest::of(&last.bytes), "expires_at": last.catalog.expires_at,
                "skills": last.catalog.skills.len(), "at": last.catalog.issued_at,
                "inputs": null, "follows": null,
            },
            "history": recorded.map(|it| json!(it.stored())).collect::<Vec<_>>(),
            "signed": signed.map(|it| json!({
                "root_version": it.catalog.root_version, "release": it.catalog.release,
                "payload_sha256": it.payload_sha256,
            })).collect::<Vec<_>>(),
        });
        for (file, bytes) in [
            (state, record.to_string().into_bytes()),
            (catalog, last.bytes.clone()),
        ] {
            let path = self.releases.join(file);
            fs::write(&path, bytes).unwrap();
            support::set_mode(&path, 0o600);
        }
    }

    /// The next history begins with the template.
    pub fn note_changed(&mut self) {
        self.is_changed = true;
    }

    /// The bundles of the own skills.
    pub fn skills(&self) -> BTreeMap<String, Digest> {
        let names = support::file_names(&self.home.path("vault/skills"));
        let bundle = |name: &String| {
            let link = fs::read_link(self.home.path("vault/skills").join(name)).unwrap();
            let mut parts = link.components();
            parts
                .find_map(|part| part.as_os_str().to_str()?.parse().ok())
                .unwrap()
        };
        names
            .iter()
            .map(|name| (name.clone(), bundle(name)))
            .collect()
    }

    pub fn kept(&self) -> Kept {
        let records = ["acme.json", "acme.catalog.json", "acme.pending.json"];
        Kept {
            skills: self.skills(),
            records: records
                .map(|it| fs::read(self.releases.join(it)).ok())
                .to_vec(),
        }
    }

    /// The root versions that this machine keeps: how many, and the SHA-256 of the newest payload.
    pub fn roots(&self) -> (usize, Digest) {
        let id = self.home.vault.id().to_string();
        let path = self.home.path("config/vaults").join(id).join("trust.json");
        let trust: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let roots = trust["roots"].as_array().unwrap();
        let newest = Envelope::parse(roots.last().unwrap().to_string().as_bytes()).unwrap();
        (roots.len(), Digest::of(newest.payload()))
    }

    pub fn has_pending(&self) -> bool {
        let slug = "acme".parse().unwrap();
        let state = publish::state::read_state(&self.home.vault, BASE, &slug).unwrap();
        state.is_some_and(|state| state.pending.is_some())
    }
}

/// A new folder in memory, where the system has such a place: thousands of small files are flushed.
fn memory() -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm");
    folder.or_else(|_| tempfile::tempdir()).unwrap()
}
