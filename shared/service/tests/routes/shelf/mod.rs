//! A namespace's release as a shelf: the contract of every shelf, and a publisher whose host may
//! lie.

mod drafts;
mod keys;
mod reading;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::catalog::{
    Catalog, PolicyEntry, ReleaseRef as StoredRelease, Schema, SignedCatalog, SkillEntry, Withdrawn,
};
use vault_format::draft::{Draft, DraftContext, Submitter};
use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_format::name::{NamespaceId, SkillName};
use vault_gate::RawFile;
use vault_policy::Policy;
use vault_service::error::Refusal;
use vault_service::model::draft::{self, DraftRecord};
use vault_service::model::kept;
use vault_service::model::namespace::{Kind, Namespace};
use vault_service::shelf::Releases;
use vault_service::{App, Ports};
use vault_shelf::{Change, Drift, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes};
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey, Objects, Stored};
use vault_testing::contract::shelf::{Hand, ShelfFixture, skill};
use vault_testing::memory::Memory;
use vault_testing::memory::shelf::{Owner, Signed};

use crate::support::{World, world};

const DAY: i64 = 24 * 3600;

/// An object store that answers what it likes.
#[derive(Default)]
struct Host {
    inner: Arc<Memory>,
    /// What it answers in place of what is there; `None`: nothing.
    lies: Mutex<HashMap<ObjectKey, Option<Bytes>>>,
    read: AtomicUsize,
}

#[async_trait]
impl Objects for Host {
    async fn read_object(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        self.read.fetch_add(1, Ordering::SeqCst);
        let lie = self.lies.lock().unwrap().get(key).cloned();
        match lie {
            Some(lie) => Ok(lie),
            None => self.inner.read_object(key).await,
        }
    }

    async fn put_object(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError> {
        self.inner.put_object(key, bytes).await
    }

    async fn find_missing(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<Vec<ObjectKey>, StoreError> {
        self.inner.find_missing(wanted).await
    }

    async fn list_objects(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError> {
        Objects::list_objects(&*self.inner, namespace, class, after, limit).await
    }

    async fn delete_object(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.inner.delete_object(key).await
    }
}

/// What tools of this process read of a namespace.
fn shelf_of(app: &App, namespace: &Namespace) -> Arc<dyn Shelf> {
    let shelves = app.shelves.as_ref().unwrap();
    shelves.shelf(app, namespace, None)
}

/// Somebody who signs releases of the namespace `acme` and publishes them.
struct Publisher {
    world: World,
    host: Arc<Host>,
    owner: Owner,
    signed: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    skills: BTreeMap<SkillName, Signed>,
    versions: BTreeMap<SkillName, u64>,
    policy: Option<Vec<u8>>,
    withdrawn: Vec<Withdrawn>,
    release: u64,
    previous: Option<StoredRelease>,
}

impl Publisher {
    async fn new(kind: Kind) -> Arc<Self> {
        let mut world = world();
        let host = Arc::new(Host {
            inner: Arc::clone(&world.memory),
            ..Host::default()
        });
        world.app.ports.objects = host.clone();
        world.app = world.app.with_shelves(Arc::new(Releases::default()));
        world.namespace("acme", kind).await;
        Arc::new(Self {
            world,
            host,
            owner: Owner::new(1),
            signed: Mutex::default(),
        })
    }

    async fn namespace(&self) -> Namespace {
        self.world.read_namespace("acme").await
    }

    async fn shelf(&self) -> Arc<dyn Shelf> {
        shelf_of(&self.world.app, &self.namespace().await)
    }

    fn sign(&self, files: Vec<RawFile>, source: &str) -> Signed {
        let source = source.parse().unwrap();
        let first = self.owner.sign(files.clone(), &source, 1).unwrap();
        let mut set = self.signed.lock().unwrap();
        let version = set.versions.entry(first.entry.name().clone()).or_default();
        *version += 1;
        self.owner.sign(files, &source, *version).unwrap()
    }

    fn hold(&self, signed: Signed) {
        let mut set = self.signed.lock().unwrap();
        set.skills.insert(signed.entry.name().clone(), signed);
    }

    async fn put_object(&self, class: Class, bytes: Vec<u8>) -> (Digest, u64) {
        let size = bytes.len() as u64;
        let namespace = self.namespace().await;
        let digest = self.world.put_object(&namespace, class, bytes).await;
        (digest, size)
    }

    /// Publishes what is held as the next release by this owner, after `change`.
    async fn try_publish(
        &self,
        owner: &Owner,
        change: impl FnOnce(&mut Catalog),
    ) -> Result<(), Refusal> {
        let (skills, policy, withdrawn, release, previous) = {
            let set = self.signed.lock().unwrap();
            let skills: Vec<_> = set.skills.values().cloned().collect();
            let (policy, withdrawn) = (set.policy.clone(), set.withdrawn.clone());
            (skills, policy, withdrawn, set.release + 1, set.previous)
        };
        for skill in &skills {
            self.put_object(Class::Bundles, skill.encoded.bytes.clone())
                .await;
            for part in &skill.encoded.parts {
                self.put_object(Class::Bundles, part.bytes.clone()).await;
            }
        }
        let texts = skills.iter().map(|skill| skill.entry.texts.clone());
        let namespace = self.namespace().await;
        let vault_id = owner.vault_id();
        let index = self.world.put_index(&namespace, &vault_id, texts).await;
        let policy = match policy {
            Some(bytes) => {
                let (sha256, size) = self.put_object(Class::Policies, bytes).await;
                Some(PolicyEntry { sha256, size })
            }
            None => None,
        };
        let now = self.world.now();
        let mut catalog = Catalog {
            schema: Schema,
            vault_id: owner.vault_id(),
            slug: "acme".parse().unwrap(),
            audience: vec!["https://vault.example/v/acme/".to_owned()],
            release,
            issued_at: now,
            expires_at: now.plus_days(90),
            public_key: owner.key().public(),
            root_version: owner.chain().version(),
            root_sha256: *owner.chain().newest().payload_sha256(),
            previous,
            skills: skills
                .iter()
                .map(|skill| SkillEntry {
                    name: skill.entry.name().clone(),
                    version: skill.entry.version,
                    bundle_hash: skill.encoded.hash,
                    size: skill.entry.size,
                })
                .collect(),
            index,
            policy,
            profiles: Vec::new(),
            withdrawn,
        };
        change(&mut catalog);
        let file = SignedCatalog::sign(&catalog, owner.chain(), &[owner.key()]).unwrap();
        self.world.publish("acme", file.to_bytes()).await?;
        let mut set = self.signed.lock().unwrap();
        set.release = release;
        set.previous = Some(StoredRelease {
            release,
            payload_sha256: file.payload_sha256(),
        });
        Ok(())
    }

    async fn publish_with(&self, change: impl FnOnce(&mut Catalog)) {
        self.try_publish(&self.owner, change).await.unwrap();
    }

    async fn publish(&self) {
        self.publish_with(|_| {}).await;
    }

    /// The file of the current catalog.
    async fn current_file(&self) -> Bytes {
        let namespace = self.namespace().await;
        let current = namespace.current.clone().unwrap();
        let key = namespace.object_key(Class::Catalogs, current.sha256);
        self.host.inner.read_object(&key).await.unwrap().unwrap()
    }

    fn lie(&self, key: ObjectKey, lie: Option<Bytes>) {
        self.host.lies.lock().unwrap().insert(key, lie);
    }

    /// The app as a process that was just started.
    fn fresh(&self) -> App {
        let ports = Ports {
            objects: self.host.clone(),
            ..self.world.app.ports.clone()
        };
        App::new(ports, (*self.world.app.config).clone())
            .with_shelves(Arc::new(Releases::default()))
    }

    async fn records(&self, partition: &str) -> usize {
        kept::all_records(&self.world.uncounted(), partition)
            .await
            .unwrap()
            .len()
    }
}

#[async_trait]
impl Hand for Publisher {
    async fn put(&self, files: Vec<RawFile>, source: &str) {
        self.hold(self.sign(files, source));
        self.publish().await;
    }

    async fn put_all(&self, skills: Vec<Vec<RawFile>>) {
        for files in skills {
            self.hold(self.sign(files, "local:folder"));
        }
        self.publish().await;
    }

    async fn remove(&self, name: &SkillName) {
        self.signed.lock().unwrap().skills.remove(name);
        self.publish().await;
    }

    async fn link(&self, _files: Vec<RawFile>) -> bool {
        false
    }

    async fn damage(&self, entry: &Entry) {
        let key = self
            .namespace()
            .await
            .object_key(Class::Bundles, entry.texts.bundle_hash);
        let mut bytes = self
            .host
            .inner
            .read_object(&key)
            .await
            .unwrap()
            .unwrap()
            .to_vec();
        let last = bytes.len() - 20;
        bytes[last] ^= 1;
        self.lie(key, Some(bytes.into()));
    }

    async fn policy(&self, text: &str) {
        let policy = Policy::from_toml(text).unwrap().to_object();
        self.signed.lock().unwrap().policy = Some(policy);
        self.publish().await;
    }

    async fn drafts(&self) -> Vec<Draft> {
        let namespace = self.namespace().await;
        let records = kept::all_records(
            &self.world.uncounted(),
            &draft::drafts_partition(&namespace.id),
        )
        .await;
        let mut drafts = Vec::new();
        for record in records.unwrap() {
            let record: DraftRecord = record.read().unwrap();
            let key = record.object_name().key(namespace.id);
            let bytes = self.host.inner.read_object(&key).await.unwrap().unwrap();
            assert_eq!(bytes.len() as u64, record.size);
            let read = |vault_id| {
                let slug = &namespace.slug;
                Draft::parse(&bytes, &DraftContext { slug, vault_id })
            };
            let vault_id = self.owner.vault_id();
            let draft = read(Some(&vault_id)).or_else(|_| read(None)).unwrap();
            assert_eq!(
                (record.id, record.sha256, record.submitted_at),
                (draft.draft_id, Digest::of(&bytes), draft.submitted_at)
            );
            let content = record.content().unwrap();
            assert_eq!(
                (&content.name, content.base_bundle_hash),
                (&draft.name, draft.base_bundle_hash)
            );
            assert_eq!(record.submitted_by, draft.submitted_by);
            drafts.push(draft);
        }
        drafts
    }
}

/// What a request does: it reads the namespace, and then has a shelf of its own.
struct PerRequest(Arc<Publisher>);

impl PerRequest {
    async fn now(&self) -> Arc<dyn Shelf> {
        shelf_of(&self.0.world.app, &self.0.namespace().await)
    }
}

#[async_trait]
impl Shelf for PerRequest {
    fn owner_name(&self) -> &'static str {
        "acme"
    }
    fn write_mode(&self) -> Writes {
        Writes::Drafted
    }
    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        self.now().await.take_snapshot().await
    }
    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        self.now().await.load_skill(entry).await
    }
    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        self.now().await.submit(by, change).await
    }
    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError> {
        self.now().await.drift(entries, named).await
    }
}

async fn released() -> Option<ShelfFixture> {
    let publisher = Publisher::new(Kind::Hosted).await;
    Some(ShelfFixture {
        shelf: Arc::new(PerRequest(Arc::clone(&publisher))),
        hand: publisher,
        keep: Box::new(()),
    })
}

mod contract {
    vault_testing::shelf_contract!(super::released());
}

fn by(user: &str) -> Submitter {
    Submitter {
        user_id: user.to_owned(),
        client_id: None,
    }
}

fn take(name: &str, body: &str) -> Change {
    Change::Take {
        files: skill(name, body),
        replace: true,
        check: false,
        hidden: false,
    }
}

fn large(name: &str, bytes: usize) -> Vec<RawFile> {
    let mut files = skill(name, "large");
    files.push(RawFile {
        path: "table.bin".to_owned(),
        mode: Mode::Plain,
        bytes: (0..=250).cycle().take(bytes).collect(),
    });
    files
}

/// Two skills, one of them in parts, and a policy.
async fn two_skills() -> Arc<Publisher> {
    let publisher = Publisher::new(Kind::Hosted).await;
    publisher.hold(publisher.sign(skill("alpha", "one"), "local:folder"));
    publisher.hold(publisher.sign(large("beta", 3_500_000), "local:folder"));
    publisher.policy("[profiles.all]\ngroups = [\"*\"]\n").await;
    publisher
}
