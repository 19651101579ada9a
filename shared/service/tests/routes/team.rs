//! Publishers of one vault who sign releases together, and what they hand in at a service.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tokio::sync::Barrier;
use vault_format::catalog::{Catalog, ObjectEntry, ReleaseRef, Schema, SignedCatalog, SkillEntry};
use vault_format::index;
use vault_format::keys::{SecretKey, Signer};
use vault_format::root::{KeyEntry, KeyName, KeyRequest, RootChain, RootEdit};
use vault_store::objects::Class;
use vault_testing::contract::shelf::skill;
use vault_testing::memory::shelf::{Owner, Signed};

use crate::common::{exchange, home};
use crate::support::{Answer, World, bearer};

/// A vault whose root key is kept apart and whose publishers have keys of their own.
#[derive(Clone)]
pub struct Team {
    slug: String,
    root: SecretKey,
    publishers: Vec<Owner>,
    /// The body of the last version of each skill, and its number.
    versions: Arc<Mutex<BTreeMap<String, (String, u64)>>>,
}

impl Team {
    /// The vault of a namespace whose releases so many of these publishers have to sign.
    pub fn new(slug: &str, publishers: u8, threshold: usize) -> Self {
        let root = SecretKey::from_seed([100; 32]);
        let keys: Vec<_> = (101..101 + publishers)
            .map(|seed| SecretKey::from_seed([seed; 32]))
            .collect();
        let mut edit = RootEdit::begin_first("2026-11-20T00:00:00Z".parse().unwrap());
        edit.add_root_key(entry(&root)).unwrap();
        for key in &keys {
            edit.add_publisher(entry(key)).unwrap();
        }
        edit.set_release_threshold(threshold);
        let chain = edit.sign(&[&root]).unwrap();
        let owner = |seed| Owner::new(1).with_key(seed).with_chain(chain.clone());
        Self {
            slug: slug.to_owned(),
            root,
            publishers: (101..101 + publishers).map(owner).collect(),
            versions: Arc::default(),
        }
    }

    /// The root versions.
    pub fn chain(&self) -> &RootChain {
        self.publishers[0].chain()
    }

    /// A publisher's key.
    pub fn key(&self, publisher: usize) -> &SecretKey {
        self.publishers[publisher].key()
    }

    /// The same team after another root version.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut RootEdit<'_>)) -> Self {
        let mut edit = RootEdit::begin_after(self.chain(), "2026-11-20T01:00:00Z".parse().unwrap());
        change(&mut edit);
        let chain = edit.sign(&[&self.root]).unwrap();
        let publishers = self.publishers.iter();
        Self {
            publishers: publishers
                .map(|publisher| publisher.with_chain(chain.clone()))
                .collect(),
            ..self.clone()
        }
    }

    /// A skill that the first publisher has signed: another body is another version.
    pub fn skill(&self, name: &str, body: &str) -> Signed {
        let mut versions = self.versions.lock().unwrap();
        let last = versions.entry(name.to_owned()).or_default();
        if last.1 == 0 || last.0 != body {
            *last = (body.to_owned(), last.1 + 1);
        }
        let source = "local:folder".parse().unwrap();
        self.publishers[0]
            .sign(skill(name, body), &source, last.1)
            .unwrap()
    }

    /// The catalog of the release after the current one, with these skills and nothing else,
    /// proposed by this publisher. What it names is put first.
    pub async fn next(&self, world: &World, proposer: usize, skills: &[Signed]) -> Catalog {
        let namespace = home(&world.app, &self.slug).await;
        let mut skills: Vec<_> = skills.to_vec();
        skills.sort_by(|one, other| one.entry.name().cmp(other.entry.name()));
        for signed in &skills {
            let bytes = signed.encoded.bytes.clone();
            world.put_object(&namespace, Class::Bundles, bytes).await;
        }
        let texts = skills.iter().map(|signed| signed.entry.texts.clone());
        let mut index = Vec::new();
        for object in index::build_objects(&self.chain().vault_id(), texts) {
            let size = object.len() as u64;
            let bundle_hash = world.put_object(&namespace, Class::Bundles, object).await;
            index.push(ObjectEntry { bundle_hash, size });
        }
        let entry = |signed: &Signed| SkillEntry {
            name: signed.entry.name().clone(),
            version: signed.entry.version,
            bundle_hash: signed.encoded.hash,
            size: signed.entry.size,
        };
        let (current, now) = (namespace.current.as_ref(), world.now());
        Catalog {
            schema: Schema,
            vault_id: self.chain().vault_id(),
            slug: self.slug.parse().unwrap(),
            audience: vec![format!("https://vault.example/v/{}/", self.slug)],
            release: current.map_or(1, |current| current.release + 1),
            issued_at: now,
            expires_at: now.plus_days(90),
            public_key: self.key(proposer).public(),
            root_version: self.chain().version(),
            root_sha256: *self.chain().newest().payload_sha256(),
            previous: current.map(|current| ReleaseRef {
                release: current.release,
                payload_sha256: current.payload_sha256,
            }),
            skills: skills.iter().map(entry).collect(),
            index,
            policy: None,
            profiles: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    /// The file of a catalog that these publishers have signed.
    pub fn file(&self, catalog: &Catalog, signers: &[usize]) -> Vec<u8> {
        let keys: Vec<_> = signers.iter().map(|at| self.key(*at)).collect();
        let signers: Vec<_> = keys.iter().map(|key| *key as &dyn Signer).collect();
        SignedCatalog::sign(catalog, self.chain(), &signers)
            .unwrap()
            .to_bytes()
    }

    /// Publishes a release with these skills, which as many as needed have signed.
    pub async fn publish(&self, world: &World, skills: &[Signed]) -> Catalog {
        let catalog = self.next(world, 0, skills).await;
        let all: Vec<_> = (0..self.chain().document().release().threshold()).collect();
        let file = self.file(&catalog, &all);
        world.publish(&self.slug, file).await.unwrap();
        catalog
    }

    /// The bytes by which the holder of a key asks to become a publisher.
    pub fn request(&self, world: &World, key: &SecretKey, name: &str) -> Vec<u8> {
        let (vault_id, slug) = (self.chain().vault_id(), self.slug.parse().unwrap());
        let name: KeyName = name.parse().unwrap();
        KeyRequest::sign(vault_id, slug, name, world.now(), key).unwrap()
    }
}

pub fn entry(key: &SecretKey) -> KeyEntry {
    KeyEntry {
        public_key: key.public(),
        name: KeyName::default_for(&key.public()),
    }
}

/// Where the drafts of a namespace are.
pub fn drafts(slug: &str) -> String {
    format!("/admin/vaults/{slug}/drafts")
}

/// Hands in exact bytes as a draft of this kind.
pub async fn hand_in(world: &World, token: &str, slug: &str, kind: &str, bytes: Vec<u8>) -> Answer {
    let path = format!("{}?kind={kind}", drafts(slug));
    let body = Some(("application/octet-stream", bytes));
    world.send(bearer(token, "POST", &path, body, &[])).await
}

/// Sends all of these at one moment, each on a task of its own; the answers in the same order.
pub async fn at_once(world: &World, requests: Vec<Request<Body>>) -> Vec<Answer> {
    let barrier = Arc::new(Barrier::new(requests.len()));
    let tasks = requests.into_iter().map(|request| {
        let (router, barrier) = (world.router.clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            let answer = exchange::send(router, request).await;
            Answer {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
            }
        })
    });
    let mut answers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        answers.push(task.await.unwrap());
    }
    answers
}

/// Hands in a skill that the caller wrote.
pub async fn propose_skill(world: &World, token: &str, slug: &str, name: &str) -> Answer {
    let document =
        format!("---\nname: {name}\ndescription: Does the work of {name} well.\n---\nDo it.\n");
    let body = json!({ "skill_md": document }).to_string().into_bytes();
    let path = format!("{}?kind=propose", drafts(slug));
    let body = Some(("application/json", body));
    world.send(bearer(token, "POST", &path, body, &[])).await
}

/// The id of the draft in an answer.
pub fn id_of(answer: &Answer) -> String {
    let id = answer.json()["id"].as_str().map(str::to_owned);
    id.unwrap_or_else(|| panic!("{answer:?}"))
}
