//! A [`Shelf`] in memory: the double for tests of what stands on one. It signs with a key of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use vault_skill::bundle::{Bundle, encode};
use vault_skill::draft::Submitter;
use vault_skill::gate::{GateOptions, RULES, RawFile, check};
use vault_skill::hash::Digest;
use vault_skill::index::IndexEntry;
use vault_skill::keys::SecretKey;
use vault_skill::manifest::{FileEntry, Gate, Manifest, ManifestExpectation, Mode, SignedManifest};
use vault_skill::name::{DraftId, SkillName, VaultId};
use vault_skill::package::Package;
use vault_skill::policy::Policy;
use vault_skill::provenance::Provenance;
use vault_skill::time::Timestamp;

use crate::StoreError;
use crate::shelf::{
    Change, Drift, DriftState, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes,
};

/// What a [`MemoryShelf`] is told to fail with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// The store does not answer.
    Down,
    /// Content is not given out.
    Lapsed,
    /// The stored bytes are not what was signed.
    Damaged,
}

/// A shelf in memory.
pub struct MemoryShelf {
    owner: String,
    writes: Writes,
    key: SecretKey,
    vault_id: VaultId,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    skills: BTreeMap<SkillName, (Entry, Arc<Loaded>)>,
    policy: Option<Arc<Policy>>,
    snapshot: Option<Arc<Snapshot>>,
    trouble: Option<Trouble>,
    submitted: Vec<(Submitter, Change)>,
    loads: usize,
}

impl MemoryShelf {
    /// An empty shelf of this owner.
    pub fn new(owner: &str, writes: Writes) -> Self {
        Self {
            owner: owner.to_owned(),
            writes,
            key: SecretKey::from_seed([0x5e; 32]),
            vault_id: VaultId::from_parts(1, 1),
            held: Mutex::default(),
        }
    }

    /// Signs these files and puts them on the shelf; the findings of the gate where it refuses them.
    pub fn put(&self, files: Vec<RawFile>) -> Result<Entry, Vec<vault_skill::finding::Finding>> {
        let verdict = check(files, &GateOptions::default());
        match verdict.package {
            Some(package) => self.sign(&package).ok_or(verdict.findings),
            None => Err(verdict.findings),
        }
    }

    /// A skill with this name, description and tags, and these files beside SKILL.md.
    pub fn put_text(
        &self,
        name: &str,
        description: &str,
        tags: &[&str],
        files: &[(&str, &[u8])],
    ) -> Result<Entry, Vec<vault_skill::finding::Finding>> {
        let tags = if tags.is_empty() {
            String::new()
        } else {
            format!("tags: [{}]\n", tags.join(", "))
        };
        let document =
            format!("---\nname: {name}\ndescription: {description}\n{tags}---\n\n# {name}\n");
        let raw = |path: &str, bytes: &[u8]| RawFile {
            path: path.to_owned(),
            mode: Mode::Plain,
            bytes: bytes.to_vec(),
        };
        let mut all = vec![raw("SKILL.md", document.as_bytes())];
        all.extend(files.iter().map(|(path, bytes)| raw(path, bytes)));
        self.put(all)
    }

    /// Says who sees what from now on.
    pub fn set_policy(&self, policy: Option<Policy>) {
        let mut held = self.held();
        held.policy = policy.map(Arc::new);
        held.snapshot = None;
    }

    /// Fails from now on, or no longer.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        self.held().trouble = trouble;
    }

    /// What was handed in, in order.
    pub fn submitted(&self) -> Vec<(Submitter, Change)> {
        self.held().submitted.clone()
    }

    /// How often content was asked for.
    pub fn loads(&self) -> usize {
        self.held().loads
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sign(&self, package: &Package) -> Option<Entry> {
        let mut held = self.held();
        let name = package.name.clone();
        let version = held
            .skills
            .get(&name)
            .map_or(1, |(entry, _)| entry.version + 1);
        let entry = |file: &vault_skill::bundle::File| FileEntry {
            path: file.path.clone(),
            size: file.bytes.len() as u64,
            sha256: Digest::of(&file.bytes),
            mode: file.mode,
        };
        let manifest = Manifest {
            vault_id: self.vault_id,
            name: name.clone(),
            frontmatter_name: package.frontmatter_name.clone(),
            version,
            signed_at: Timestamp::from_unix(1_700_000_000),
            files: package.files.iter().map(entry).collect(),
            actions: package.actions.clone(),
            agents: package.frontmatter.agents.clone(),
            rendered_from: None,
            provenance: Provenance {
                identifier: "inline:test".parse().ok()?,
                revision: None,
                fetched_at: Timestamp::from_unix(1_700_000_000),
            },
            gate: Gate {
                strict: true,
                rules: RULES.to_owned(),
                flags: package.flags.clone(),
                waivers: Vec::new(),
            },
        };
        let signed = SignedManifest::sign(&manifest, &self.key).ok()?;
        let encoded = encode(&signed, &manifest, &package.files).ok()?;
        let size = encoded.bytes.len() as u64;
        let bundle = Bundle::parse(&encoded.bytes, &encoded.hash, size).ok()?;
        let expected = ManifestExpectation {
            vault_id: self.vault_id,
            name: &name,
            version: Some(version),
            stored_version: None,
        };
        let part = |digest: &Digest| {
            let part = encoded.parts.iter().find(|part| part.hash == *digest)?;
            Some(part.bytes.clone())
        };
        let public_key = self.key.public();
        let opened = bundle.open(&part, &[public_key], &expected).ok()?;
        let entry = Entry {
            texts: IndexEntry::new(
                name.clone(),
                encoded.hash,
                &package.frontmatter,
                &manifest.agents,
            ),
            version,
            size,
            linked: false,
        };
        let loaded = Loaded {
            bundle: opened,
            bundle_hash: encoded.hash,
            public_key,
        };
        held.skills.insert(name, (entry.clone(), Arc::new(loaded)));
        held.snapshot = None;
        Some(entry)
    }

    fn take(
        &self,
        files: Vec<RawFile>,
        replace: bool,
        only_check: bool,
    ) -> Result<Submitted, ShelfError> {
        let verdict = check(files, &GateOptions::default());
        let Some(package) = verdict.package else {
            return Ok(Submitted::Refused {
                findings: verdict.findings,
            });
        };
        let name = package.name.clone();
        let there = self.held().skills.get(&name).cloned();
        if let Some((entry, loaded)) = there {
            if loaded.bundle.files == package.files {
                return Ok(Submitted::Unchanged {
                    name,
                    version: entry.version,
                    bundle_hash: entry.texts.bundle_hash,
                });
            }
            if !replace {
                return Err(ShelfError::NameTaken(format!(
                    "there is another skill named `{name}`"
                )));
            }
        }
        let findings = verdict.findings;
        if only_check {
            return Ok(Submitted::WouldPass { name, findings });
        }
        if self.writes == Writes::Drafted {
            return Ok(self.drafted(name));
        }
        let entry = self
            .sign(&package)
            .ok_or_else(|| ShelfError::Failed("it cannot be signed".to_owned()))?;
        Ok(Submitted::Signed {
            name,
            version: entry.version,
            bundle_hash: entry.texts.bundle_hash,
            findings,
        })
    }

    fn drafted(&self, name: SkillName) -> Submitted {
        let number = self.held().submitted.len() as u128;
        Submitted::Drafted {
            draft: DraftId::from_parts(1, number),
            name,
            findings: Vec::new(),
        }
    }
}

#[async_trait]
impl Shelf for MemoryShelf {
    fn owner(&self) -> &str {
        &self.owner
    }

    fn writes(&self) -> Writes {
        self.writes
    }

    async fn snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        let mut held = self.held();
        if held.trouble == Some(Trouble::Down) {
            return Err(StoreError::unavailable("the store is down").into());
        }
        if let Some(snapshot) = &held.snapshot {
            return Ok(Arc::clone(snapshot));
        }
        let entries: Vec<Entry> = held
            .skills
            .values()
            .map(|(entry, _)| entry.clone())
            .collect();
        let snapshot = Arc::new(Snapshot::new(entries).with_policy(held.policy.clone()));
        held.snapshot = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    async fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        let mut held = self.held();
        held.loads += 1;
        match held.trouble {
            Some(Trouble::Down) => return Err(StoreError::unavailable("the store is down").into()),
            Some(Trouble::Lapsed) => return Err(ShelfError::SubscriptionLapsed),
            Some(Trouble::Damaged) => {
                return Err(ShelfError::Damaged(
                    entry.name().clone(),
                    "a byte is another".to_owned(),
                ));
            }
            None => {}
        }
        let found = held.skills.get(entry.name());
        found
            .map(|(_, loaded)| Arc::clone(loaded))
            .ok_or_else(|| ShelfError::NotFound(entry.name().clone()))
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        self.held().submitted.push((by.clone(), change.clone()));
        match change {
            Change::Take {
                files,
                replace,
                check,
            } => self.take(files, replace, check),
            Change::Remove(name) if self.writes == Writes::Drafted => Ok(self.drafted(name)),
            Change::Remove(name) => {
                let mut held = self.held();
                held.snapshot = None;
                match held.skills.remove(&name) {
                    Some(_) => Ok(Submitted::Removed(name)),
                    None => Err(ShelfError::NotFound(name)),
                }
            }
            Change::Folder { .. } | Change::Fetch { .. } | Change::Update(_) => Err(
                ShelfError::SourceUnsupported("a shelf in memory fetches nothing".to_owned()),
            ),
        }
    }

    async fn drift(&self, entries: &[&Entry]) -> Result<Vec<Drift>, ShelfError> {
        let drift = |entry: &&Entry| Drift {
            name: entry.name().clone(),
            source: Some("inline:test".to_owned()),
            state: DriftState::Unchecked("it was handed in as text".to_owned()),
        };
        Ok(entries.iter().map(drift).collect())
    }
}
