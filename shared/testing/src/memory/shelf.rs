//! The memory double of [`Shelf`]: skills that are really gated, signed and bundled, by a key that everybody knows. For tests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use vault_format::bundle;
use vault_format::bundle::{EncodedBundle, OpenedBundle};
use vault_format::draft::{Draft, DraftError, GateHint, Request, Source, Submitter};
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::keys::SecretKey;
use vault_format::manifest::{FileEntry, Gate, Manifest, Mode, SignedManifest};
use vault_format::name::{DraftId, SkillName, Slug};
use vault_format::provenance::{Kind, Provenance, ProvenanceId};
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit, RootState, VaultId};
use vault_format::time::Timestamp;
use vault_gate::finding::Finding;
use vault_gate::package::Package;
use vault_gate::{self as gate, GateOptions, RawFile};
use vault_policy::Policy;

use vault_shelf::{
    Change, Drift, DriftState, Entry, Loaded, ReleaseKeys, Shelf, ShelfError, Snapshot, Submitted,
    Writes,
};
use vault_store::StoreError;

/// Most drafts that wait, in all and of one author.
const MOST_DRAFTS: (usize, usize) = (100, 20);
/// When everything in here happens: 2026-11-21 00:00 UTC.
const NOW: i64 = 1_795_219_200;

/// A publisher of a vault.
#[derive(Clone, Debug)]
pub struct Owner {
    key: SecretKey,
    chain: RootChain,
}

/// A skill as an [`Owner`] signed it.
#[derive(Clone, Debug)]
pub struct Signed {
    /// Name, version, bundle, texts.
    pub entry: Entry,
    /// The verified skill.
    pub loaded: Arc<Loaded>,
    /// The bundle with its parts.
    pub encoded: EncodedBundle,
}

/// Why files were not signed.
#[derive(Clone, Debug)]
pub enum NotSigned {
    /// The gate refused them.
    Gate(Vec<Finding>),
    /// They do not fit into a bundle.
    Format(String),
}

impl Owner {
    /// The owner whose key is made of this number: the only key of both roles in the first root version of a vault.
    pub fn new(seed: u8) -> Self {
        let key = SecretKey::from_seed([seed; 32]);
        let public_key = key.public();
        let entry = KeyEntry {
            public_key,
            name: KeyName::default_for(&public_key),
        };
        let mut edit = RootEdit::first(Timestamp::from_unix(NOW));
        let chain = edit
            .add_root_key(entry.clone())
            .and_then(|edit| edit.add_publisher(entry))
            .and_then(|edit| edit.sign(&[&key]))
            .expect("a first root version of one key is valid");
        Self { key, chain }
    }

    /// The same vault with another key, which its root versions may name or not.
    #[must_use]
    pub fn with_key(&self, seed: u8) -> Self {
        Self {
            key: SecretKey::from_seed([seed; 32]),
            chain: self.chain.clone(),
        }
    }

    /// The same key with another chain.
    #[must_use]
    pub fn with_chain(&self, chain: RootChain) -> Self {
        Self {
            key: self.key.clone(),
            chain,
        }
    }

    /// The vault's root versions.
    pub fn chain(&self) -> &RootChain {
        &self.chain
    }

    /// What a reader knows who was shown these root versions and no others.
    pub fn state(&self) -> RootState {
        RootState::new(self.chain.clone(), BTreeSet::new())
    }

    /// The key.
    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// The id of the owner's vault.
    pub fn vault_id(&self) -> VaultId {
        self.chain.vault_id()
    }

    /// Gates and signs a skill as this version, recorded as coming from `source`.
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

/// What a [`MemoryShelf`] is told to fail with, whatever it holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// The store does not answer.
    Down,
    /// Content is not given out: the subscription has lapsed.
    Lapsed,
    /// Nothing is given out: a key that signed the release is revoked.
    Awaited,
    /// No stored bundle is what was signed.
    Damaged,
}

/// A shelf in this process's memory. It fails on demand, and counts what it was asked for.
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
    /// Every bundle that ever was on the shelf, and whether it is still good.
    bundles: HashMap<Digest, Option<Arc<Loaded>>>,
    /// The highest version of each name, also of those that are gone.
    versions: BTreeMap<SkillName, u64>,
    policy: Option<Arc<Policy>>,
    trouble: Option<Trouble>,
    drafts: Vec<Draft>,
    submitted: Vec<(Submitter, Change)>,
    loads: usize,
    snapshot: Option<Arc<Snapshot>>,
}

impl MemoryShelf {
    /// An empty shelf whose skills are called `<owner>/<name>`.
    pub fn new(owner: impl Into<String>, writes: Writes) -> Self {
        Self {
            owner: owner.into(),
            writes,
            signer: Owner::new(7),
            state: Mutex::default(),
        }
    }

    /// Puts a skill on the shelf as its owner does, in place of what had its name; recorded as coming from `source`. Fails when the gate
    /// refuses it.
    pub fn put(&self, files: Vec<RawFile>, source: &ProvenanceId) -> Result<Entry, NotSigned> {
        self.put_by(&self.signer, files, source, false)
    }

    /// Puts a skill with this name, description and tags on the shelf, and these files beside its SKILL.md; recorded as coming from
    /// `inline:test`. Fails when the gate refuses it.
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

    /// Puts a skill on the shelf as one that came with a linked vault.
    pub fn link(&self, files: Vec<RawFile>, source: &ProvenanceId) -> Result<Entry, NotSigned> {
        self.put_by(&Owner::new(8), files, source, true)
    }

    fn put_by(
        &self,
        owner: &Owner,
        files: Vec<RawFile>,
        source: &ProvenanceId,
        linked: bool,
    ) -> Result<Entry, NotSigned> {
        let verdict = gate::check(files, &GateOptions::default());
        let package = verdict.package.ok_or(NotSigned::Gate(verdict.findings))?;
        let mut state = self.lock();
        let version = state.versions.get(&package.name).copied().unwrap_or(0) + 1;
        let mut signed = owner
            .sign_package(&package, source, version)
            .map_err(NotSigned::Format)?;
        signed.entry.vault = linked.then(|| "linked".parse().ok()).flatten();
        let entry = signed.entry.clone();
        state.hold(signed);
        Ok(entry)
    }

    /// Takes a skill off the shelf; false where there was none.
    pub fn remove(&self, name: &SkillName) -> bool {
        let mut state = self.lock();
        state.snapshot = None;
        state.entries.remove(name).is_some()
    }

    /// Lets a bundle rot: it is still listed, and is no longer what was signed.
    pub fn damage(&self, bundle: &Digest) {
        self.lock().bundles.insert(*bundle, None);
    }

    /// Sets what the owner says about who sees what.
    pub fn set_policy(&self, policy: Option<Policy>) {
        let mut state = self.lock();
        state.snapshot = None;
        state.policy = policy.map(Arc::new);
    }

    /// Fails from now on, or no longer.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        self.lock().trouble = trouble;
    }

    /// What was handed in, in order, whatever became of it.
    pub fn submitted(&self) -> Vec<(Submitter, Change)> {
        self.lock().submitted.clone()
    }

    /// How often content was asked for.
    pub fn loads(&self) -> usize {
        self.lock().loads
    }

    /// The drafts that wait, oldest first.
    pub fn drafts(&self) -> Vec<Draft> {
        self.lock().drafts.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(
        &self,
        by: &Submitter,
        files: Vec<RawFile>,
        replace: bool,
        check: bool,
    ) -> Result<Submitted, ShelfError> {
        let verdict = gate::check(files, &GateOptions::default());
        let Some(package) = verdict.package else {
            return Ok(Submitted::Refused {
                findings: verdict.findings,
            });
        };
        let mut state = self.lock();
        let name = package.name.clone();
        if let Some(entry) = state.entries.get(&name) {
            if entry.is_linked() {
                return Err(taken(&name, "it came with a linked vault"));
            }
            let hash = entry.texts.bundle_hash;
            let loaded = state.bundles.get(&hash).cloned().flatten();
            if loaded
                .as_ref()
                .is_some_and(|loaded| holds(loaded, &package))
            {
                return Ok(Submitted::Unchanged {
                    name,
                    version: entry.version,
                    bundle_hash: hash,
                });
            }
            let fetched = loaded.is_some_and(|loaded| {
                let kind = loaded.bundle.manifest.provenance.kind();
                !matches!(kind, Kind::Local | Kind::Inline)
            });
            if !replace || (fetched && self.writes == Writes::Signed) {
                return Err(taken(&name, "it has other content"));
            }
        }
        if check {
            return Ok(Submitted::WouldPass {
                name,
                findings: verdict.findings,
            });
        }
        if self.writes == Writes::Drafted {
            let files = package.files;
            return self.draft(
                &mut state,
                by,
                name,
                Request::Propose { files },
                verdict.findings,
            );
        }
        let source = format!("inline:{}", by.user_id)
            .parse()
            .map_err(|error| ShelfError::Failed(format!("{error}")))?;
        let version = state.versions.get(&name).copied().unwrap_or(0) + 1;
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
            findings: verdict.findings,
        })
    }

    fn draft(
        &self,
        state: &mut State,
        by: &Submitter,
        name: SkillName,
        request: Request,
        findings: Vec<Finding>,
    ) -> Result<Submitted, ShelfError> {
        let of_author = state
            .drafts
            .iter()
            .filter(|draft| draft.submitted_by.user_id == by.user_id);
        if state.drafts.len() >= MOST_DRAFTS.0 || of_author.count() >= MOST_DRAFTS.1 {
            return Err(ShelfError::DraftsFull("too many drafts wait".to_owned()));
        }
        let slug: Slug = self
            .owner
            .parse()
            .map_err(|error| ShelfError::Failed(format!("{error}")))?;
        let draft = Draft {
            draft_id: DraftId::from_parts(1_795_219_200_000, state.drafts.len() as u128),
            vault_id: Some(self.signer.vault_id()),
            slug,
            base_bundle_hash: state
                .entries
                .get(&name)
                .map(|entry| entry.texts.bundle_hash),
            name: name.clone(),
            submitted_at: Timestamp::from_unix(NOW),
            submitted_by: by.clone(),
            request,
            gate: GateHint {
                rules: gate::RULES.to_owned(),
                flags: Vec::new(),
            },
        };
        draft.to_bytes().map_err(|error| match error {
            DraftError::TooLarge(_) => ShelfError::TooLarge(error.to_string()),
            error => ShelfError::Failed(error.to_string()),
        })?;
        let id = draft.draft_id;
        state.drafts.push(draft);
        Ok(Submitted::Drafted {
            draft: id,
            name,
            findings,
        })
    }

    fn fetch(
        &self,
        by: &Submitter,
        source: Source,
        skill: Option<SkillName>,
    ) -> Result<Submitted, ShelfError> {
        if self.writes == Writes::Signed {
            return Err(unsupported());
        }
        let last = source.identifier.as_str().rsplit(['/', ':']).next();
        let name = skill
            .or_else(|| SkillName::derive(last.unwrap_or_default()))
            .ok_or_else(|| ShelfError::Source("no name".to_owned()))?;
        let request = Request::Install { source };
        self.draft(&mut self.lock(), by, name, request, Vec::new())
    }

    fn take_out(&self, by: &Submitter, name: SkillName) -> Result<Submitted, ShelfError> {
        let mut state = self.lock();
        match state.entries.get(&name) {
            None => Err(ShelfError::NotFound(name)),
            Some(entry) if entry.is_linked() => Err(taken(&name, "it came with a linked vault")),
            Some(_) if self.writes == Writes::Drafted => {
                self.draft(&mut state, by, name, Request::Remove, Vec::new())
            }
            Some(_) => {
                state.snapshot = None;
                state.entries.remove(&name);
                Ok(Submitted::Removed {
                    name,
                    was_linked: false,
                })
            }
        }
    }

    fn update(&self, name: SkillName) -> ShelfError {
        match self.lock().entries.get(&name) {
            None => ShelfError::NotFound(name),
            Some(entry) if entry.is_linked() => taken(&name, "it came with a linked vault"),
            Some(_) => unsupported(),
        }
    }
}

impl State {
    fn hold(&mut self, signed: Signed) {
        let name = signed.entry.name().clone();
        self.snapshot = None;
        self.versions.insert(name.clone(), signed.entry.version);
        self.bundles
            .insert(signed.encoded.hash, Some(signed.loaded));
        self.entries.insert(name, signed.entry);
    }
}

fn holds(loaded: &Loaded, package: &Package) -> bool {
    let held = &loaded.bundle.files;
    held.len() == package.files.len()
        && held
            .iter()
            .zip(&package.files)
            .all(|(held, file)| held.path == file.path && held.bytes == file.bytes)
}

fn taken(name: &SkillName, why: &str) -> ShelfError {
    ShelfError::NameTaken(format!("there is a skill named `{name}`: {why}"))
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
    fn owner(&self) -> &str {
        &self.owner
    }

    fn writes(&self) -> Writes {
        self.writes
    }

    async fn snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
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

    async fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
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
        match state.bundles.get(&entry.texts.bundle_hash) {
            None => Err(ShelfError::NotFound(name)),
            Some(Some(loaded))
                if loaded.bundle.manifest.name == name
                    && loaded.bundle.manifest.version == entry.version =>
            {
                Ok(Arc::clone(loaded))
            }
            Some(_) => Err(damaged(name)),
        }
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
            } => self.take(by, files, replace, check),
            Change::Folder { .. } => Err(unsupported()),
            Change::Fetch { source, skill, .. } => self.fetch(by, source, skill),
            Change::Update(name) => Err(self.update(name)),
            Change::Remove(name) => self.take_out(by, name),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::shelf::{Hand, ShelfFixture, skill};

    struct Behind(Arc<MemoryShelf>);

    #[async_trait]
    impl Hand for Behind {
        async fn put(&self, files: Vec<RawFile>, source: &str) {
            self.0.put(files, &source.parse().unwrap()).unwrap();
        }

        async fn remove(&self, name: &SkillName) {
            self.0.remove(name);
        }

        async fn link(&self, files: Vec<RawFile>) -> bool {
            self.0
                .link(files, &"local:linked".parse().unwrap())
                .unwrap();
            true
        }

        async fn damage(&self, entry: &Entry) {
            self.0.damage(&entry.texts.bundle_hash);
        }

        async fn policy(&self, text: &str) {
            self.0.set_policy(Some(Policy::from_toml(text).unwrap()));
        }

        async fn drafts(&self) -> Vec<Draft> {
            self.0.drafts()
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "other shelves may be absent")]
    fn shelf(writes: Writes) -> Option<ShelfFixture> {
        let shelf = Arc::new(MemoryShelf::new("acme", writes));
        Some(ShelfFixture {
            hand: Arc::new(Behind(Arc::clone(&shelf))),
            shelf,
            keep: Box::new(()),
        })
    }

    mod signed {
        crate::shelf_contract!(std::future::ready(super::shelf(super::Writes::Signed)));
    }

    mod drafted {
        crate::shelf_contract!(std::future::ready(super::shelf(super::Writes::Drafted)));
    }

    #[tokio::test]
    async fn a_shelf_without_its_library_or_a_subscription_says_so() {
        let shelf = MemoryShelf::new("acme", Writes::Elsewhere);
        let entry = shelf
            .put(skill("alpha", "one"), &"local:alpha".parse().unwrap())
            .unwrap();
        let by = Submitter {
            user_id: "usr_1".to_owned(),
            client_id: None,
        };
        let refused = shelf
            .submit(&by, Change::Remove(entry.name().clone()))
            .await;
        assert!(matches!(refused, Err(ShelfError::LibraryElsewhere)));
        shelf.set_trouble(Some(Trouble::Lapsed));
        assert!(matches!(
            shelf.load(&entry).await,
            Err(ShelfError::SubscriptionLapsed)
        ));
        assert_eq!(shelf.snapshot().await.unwrap().entries()[0], entry);
        shelf.set_trouble(None);
        assert!(shelf.load(&entry).await.is_ok());
    }
}
