//! A stand-in for a [`Shelf`] (store of skills), for tests of code that uses one. Its skills are
//! really scanned, signed and bundled, by a key that is no secret. It can fail on demand, and it
//! does not keep the whole contract of a shelf.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use vault_format::bundle;
use vault_format::bundle::{EncodedBundle, OpenedBundle};
use vault_format::draft::Submitter;
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::keys::SecretKey;
use vault_format::manifest::{FileEntry, Gate, Manifest, Mode, SignedManifest};
use vault_format::name::{DraftId, SkillName};
use vault_format::provenance::{Provenance, ProvenanceId};
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit, RootState, VaultId};
use vault_format::time::Timestamp;
use vault_gate::finding::Finding;
use vault_gate::package::Package;
use vault_gate::{self as gate, GateOptions, RawFile};
use vault_policy::Policy;

use vault_shelf::{
    Change, Drift, DriftState, Entry, Loaded, ReleaseKeys, Shelf, ShelfError, Snapshot, Submitted,
    Writes, drafted_name,
};
use vault_store::StoreError;

/// The time of every signature: 2026-11-21 00:00 UTC.
const NOW: i64 = 1_795_219_200;

/// A publisher of a vault, with the key and the vault's root versions (lists of keys).
#[derive(Clone, Debug)]
pub struct Owner {
    key: SecretKey,
    chain: RootChain,
}

/// A skill that an [`Owner`] has signed.
#[derive(Clone, Debug)]
pub struct Signed {
    /// Name, version, bundle hash and search texts.
    pub entry: Entry,
    /// The skill with its files, as a shelf returns it after verification.
    pub loaded: Arc<Loaded>,
    /// The bundle with its parts.
    pub encoded: EncodedBundle,
}

/// Why [`Owner::sign`] has not signed files.
#[derive(Clone, Debug)]
pub enum NotSigned {
    /// The security scan blocked the files, for these findings.
    Gate(Vec<Finding>),
    /// The files, their name or their source break a rule of the format, for this reason.
    Format(String),
}

impl Owner {
    /// Creates the owner whose key is derived from this number. It is the only key of both roles in
    /// the first root version of a new vault.
    pub fn new(seed: u8) -> Self {
        let key = SecretKey::from_seed([seed; 32]);
        let public_key = key.public();
        let entry = KeyEntry {
            public_key,
            name: KeyName::default_for(&public_key),
        };
        let mut edit = RootEdit::begin_first(Timestamp::from_unix(NOW));
        let chain = edit
            .add_root_key(entry.clone())
            .and_then(|edit| edit.add_publisher(entry))
            .and_then(|edit| edit.sign(&[&key]))
            .expect("a first root version of one key is valid");
        Self { key, chain }
    }

    /// Returns an owner of the same vault with another key, whether or not its root versions name
    /// that key.
    #[must_use]
    pub fn with_key(&self, seed: u8) -> Self {
        Self {
            key: SecretKey::from_seed([seed; 32]),
            chain: self.chain.clone(),
        }
    }

    /// Returns an owner with the same key and another chain of root versions.
    #[must_use]
    pub fn with_chain(&self, chain: RootChain) -> Self {
        Self {
            key: self.key.clone(),
            chain,
        }
    }

    /// The root versions that this owner knows, each with the vault's keys.
    pub fn chain(&self) -> &RootChain {
        &self.chain
    }

    /// Returns the state of a reader who has seen exactly these root versions.
    pub fn state(&self) -> RootState {
        RootState::new(self.chain.clone(), BTreeSet::new())
    }

    /// The secret key with which the owner signs skills and root versions.
    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// The id of the owner's vault.
    pub fn vault_id(&self) -> VaultId {
        self.chain.vault_id()
    }

    /// Scans and signs a skill as this version. `source` is its recorded source.
    pub fn sign(
        &self,
        files: Vec<RawFile>,
        source: &ProvenanceId,
        version: u64,
    ) -> Result<Signed, NotSigned> {
        let verdict = gate::check(files, &GateOptions::default());
        let package = verdict.package.ok_or(NotSigned::Gate(verdict.findings))?;
        self.sign_package(&package, source, version)
            .map_err(NotSigned::Format)
    }

    fn sign_package(
        &self,
        package: &Package,
        source: &ProvenanceId,
        version: u64,
    ) -> Result<Signed, String> {
        let now = Timestamp::from_unix(NOW);
        let mut agents = package.frontmatter.agents.clone();
        agents.sort();
        agents.dedup();
        let file = |file: &bundle::File| FileEntry {
            path: file.path.clone(),
            size: file.bytes.len() as u64,
            sha256: Digest::of(&file.bytes),
            mode: file.mode,
        };
        let manifest = Manifest {
            vault_id: self.vault_id(),
            name: package.name.clone(),
            frontmatter_name: package.frontmatter_name.clone(),
            version,
            signed_at: now,
            files: package.files.iter().map(file).collect(),
            actions: package.actions.clone(),
            agents,
            rendered_from: None,
            provenance: Provenance {
                identifier: source.clone(),
                revision: None,
                fetched_at: now,
            },
            gate: Gate {
                strict: true,
                rules: gate::RULES.to_owned(),
                flags: package.flags.clone(),
                waivers: Vec::new(),
            },
        };
        let signed =
            SignedManifest::sign(&manifest, &self.key).map_err(|error| error.to_string())?;
        let encoded = bundle::encode(&signed, &manifest, &package.files)
            .map_err(|error| error.to_string())?;
        let frontmatter = &package.frontmatter;
        let texts = IndexEntry {
            name: package.name.clone(),
            bundle_hash: encoded.hash,
            description: frontmatter.description.clone(),
            tags: frontmatter.tags.clone(),
            categories: frontmatter.categories.clone(),
            when_to_use: frontmatter.when_to_use.clone().unwrap_or_default(),
            agents: manifest.agents.clone(),
            actions: frontmatter.actions.keys().cloned().collect(),
        };
        Ok(Signed {
            entry: Entry {
                texts,
                version,
                size: encoded.bytes.len() as u64,
                vault: None,
            },
            loaded: Arc::new(Loaded {
                bundle: OpenedBundle {
                    manifest,
                    signed,
                    files: package.files.clone(),
                },
                bundle_hash: encoded.hash,
                public_key: self.key.public(),
            }),
            encoded,
        })
    }
}

/// The failure that a [`MemoryShelf`] imitates, whatever it holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// The store does not answer.
    Down,
    /// The subscription has lapsed, so no content is returned.
    Lapsed,
    /// A key that signed the release is revoked, so nothing is returned.
    Awaited,
    /// The stored bytes of every bundle differ from the signed ones.
    Damaged,
}

/// A shelf in the memory of this process. It fails on demand, and records what it was asked.
#[derive(Debug)]
pub struct MemoryShelf {
    owner: String,
    writes: Writes,
    signer: Owner,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<SkillName, Entry>,
    /// Every bundle that was ever on the shelf.
    bundles: HashMap<Digest, Arc<Loaded>>,
    /// The highest version of each name, also of removed skills.
    versions: BTreeMap<SkillName, u64>,
    policy: Option<Arc<Policy>>,
    trouble: Option<Trouble>,
    submitted: Vec<(Submitter, Change)>,
    loads: usize,
    snapshot: Option<Arc<Snapshot>>,
}

impl MemoryShelf {
    /// Creates an empty shelf whose skills have ids `<owner>/<name>`.
    pub fn new(owner: impl Into<String>, writes: Writes) -> Self {
        Self {
            owner: owner.into(),
            writes,
            signer: Owner::new(7),
            state: Mutex::default(),
        }
    }

    /// Puts a skill on the shelf as its owner does, in place of one with its name. `source` is its
    /// recorded source. Fails if the scan blocks it.
    pub fn put(&self, files: Vec<RawFile>, source: &ProvenanceId) -> Result<Entry, NotSigned> {
        let verdict = gate::check(files, &GateOptions::default());
        let package = verdict.package.ok_or(NotSigned::Gate(verdict.findings))?;
        let mut state = self.lock();
        let version = state.next_version(&package.name);
        let signed = self
            .signer
            .sign_package(&package, source, version)
            .map_err(NotSigned::Format)?;
        let entry = signed.entry.clone();
        state.hold(signed);
        Ok(entry)
    }

    /// Puts a skill with this name, description and tags on the shelf, with these files beside its
    /// SKILL.md and the source `inline:test`. Fails if the scan blocks it.
    pub fn put_text(
        &self,
        name: &str,
        description: &str,
        tags: &[&str],
        files: &[(&str, &[u8])],
    ) -> Result<Entry, NotSigned> {
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
        let source = "inline:test".parse();
        let source = source.map_err(|error| NotSigned::Format(format!("{error}")))?;
        self.put(all, &source)
    }

    /// Sets the owner's policy, which decides who sees what; `None` removes it.
    pub fn set_policy(&self, policy: Option<Policy>) {
        let mut state = self.lock();
        state.snapshot = None;
        state.policy = policy.map(Arc::new);
    }

    /// Sets the failure of all later calls; `None` ends it.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        self.lock().trouble = trouble;
    }

    /// Returns all submitted changes in their order, whatever became of them.
    pub fn submitted(&self) -> Vec<(Submitter, Change)> {
        self.lock().submitted.clone()
    }

    /// Returns how many skills were loaded.
    pub fn loads(&self) -> usize {
        self.lock().loads
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a submitted skill as far as tools can tell a difference. The library and the service
    /// test the complete behaviour with their own shelves.
    fn take(
        &self,
        by: &Submitter,
        files: Vec<RawFile>,
        replace: bool,
        check: bool,
        hidden: bool,
    ) -> Result<Submitted, ShelfError> {
        let verdict = gate::check(files, &GateOptions::default());
        let findings = verdict.findings;
        let Some(package) = verdict.package else {
            return Ok(Submitted::Refused { findings });
        };
        let name = package.name.clone();
        let mut state = self.lock();
        if let Some(entry) = state.entries.get(&name).filter(|_| !hidden) {
            let bundle_hash = entry.texts.bundle_hash;
            let held = &state.bundles[&bundle_hash].bundle.files;
            if *held == package.files {
                return Ok(Submitted::Unchanged {
                    name,
                    version: entry.version,
                    bundle_hash,
                });
            }
            if !replace {
                let why = format!("there is a skill named `{name}` with other content");
                return Err(ShelfError::NameTaken(why));
            }
        }
        if check {
            return Ok(Submitted::WouldPass { name, findings });
        }
        if self.writes == Writes::Drafted {
            return Ok(drafted(name, findings));
        }
        let source = format!("inline:{}", by.user_id);
        let source = source.parse().expect("a user id is good in a source");
        let version = state.next_version(&name);
        let signed = self
            .signer
            .sign_package(&package, &source, version)
            .map_err(ShelfError::TooLarge)?;
        let bundle_hash = signed.encoded.hash;
        state.hold(signed);
        Ok(Submitted::Signed {
            name,
            version,
            bundle_hash,
            findings,
        })
    }

    fn take_out(&self, name: SkillName) -> Result<Submitted, ShelfError> {
        let mut state = self.lock();
        if !state.entries.contains_key(&name) {
            return Err(ShelfError::NotFound(name));
        }
        if self.writes == Writes::Drafted {
            return Ok(drafted(name, Vec::new()));
        }
        state.snapshot = None;
        state.entries.remove(&name);
        Ok(Submitted::Removed {
            name,
            was_linked: false,
        })
    }
}

fn drafted(name: SkillName, findings: Vec<Finding>) -> Submitted {
    Submitted::Drafted {
        draft: DraftId::from_parts(1, 1),
        name,
        findings,
        waiting: 1,
    }
}

impl State {
    fn next_version(&self, name: &SkillName) -> u64 {
        self.versions.get(name).copied().unwrap_or(0) + 1
    }

    fn hold(&mut self, signed: Signed) {
        let name = signed.entry.name().clone();
        self.snapshot = None;
        self.versions.insert(name.clone(), signed.entry.version);
        self.bundles.insert(signed.encoded.hash, signed.loaded);
        self.entries.insert(name, signed.entry);
    }
}

fn damaged(name: SkillName) -> ShelfError {
    ShelfError::Damaged(name, "it has other bytes".to_owned())
}

fn down() -> ShelfError {
    StoreError::unavailable("the store is down").into()
}

fn unsupported() -> ShelfError {
    ShelfError::SourceUnsupported("this shelf fetches nothing".to_owned())
}

#[async_trait]
impl Shelf for MemoryShelf {
    fn owner_name(&self) -> &str {
        &self.owner
    }

    fn write_mode(&self) -> Writes {
        self.writes
    }

    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        let mut state = self.lock();
        match state.trouble {
            Some(Trouble::Down) => return Err(down()),
            Some(Trouble::Awaited) => return Err(ShelfError::ReleaseAwaited),
            Some(Trouble::Lapsed | Trouble::Damaged) | None => {}
        }
        if let Some(snapshot) = &state.snapshot {
            return Ok(Arc::clone(snapshot));
        }
        let entries: Vec<_> = state.entries.values().cloned().collect();
        let mut snapshot = Snapshot::new(entries).with_policy(state.policy.clone());
        snapshot.keys = Some(ReleaseKeys {
            root_version: self.signer.chain.version(),
            signers: vec![self.signer.key.public()],
        });
        let snapshot = Arc::new(snapshot);
        state.snapshot = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        let mut state = self.lock();
        state.loads += 1;
        let name = entry.name().clone();
        match state.trouble {
            None => {}
            Some(Trouble::Down) => return Err(down()),
            Some(Trouble::Lapsed) => return Err(ShelfError::SubscriptionLapsed),
            Some(Trouble::Awaited) => return Err(ShelfError::ReleaseAwaited),
            Some(Trouble::Damaged) => return Err(damaged(name)),
        }
        let loaded = state.bundles.get(&entry.texts.bundle_hash).cloned();
        loaded.ok_or(ShelfError::NotFound(name))
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        self.lock().submitted.push((by.clone(), change.clone()));
        if self.writes == Writes::Elsewhere {
            return Err(ShelfError::LibraryElsewhere);
        }
        match change {
            Change::Take {
                files,
                replace,
                check,
                hidden,
            } => self.take(by, files, replace, check, hidden),
            Change::Update(name) if !self.lock().entries.contains_key(&name) => {
                Err(ShelfError::NotFound(name))
            }
            Change::Fetch { source, skill, .. } if self.writes == Writes::Drafted => {
                let name = drafted_name(&source, skill.as_ref());
                let name = name.ok_or_else(unsupported)?;
                Ok(drafted(name, Vec::new()))
            }
            Change::Folder { .. } | Change::Fetch { .. } | Change::Update(_) => Err(unsupported()),
            Change::Remove(name) => self.take_out(name),
        }
    }

    async fn drift(&self, entries: &[&Entry], _named: bool) -> Result<Vec<Drift>, ShelfError> {
        let drift = |entry: &&Entry| Drift {
            name: entry.name().clone(),
            source: None,
            state: DriftState::Unchecked("this shelf asks nobody".to_owned()),
        };
        Ok(entries.iter().map(drift).collect())
    }
}
