//! A service over memory with a clock that stands still, and the shortest ways to ask it something.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use bytes::Bytes;
use serde_json::Value;
use vault_format::bundle::Bundle;
use vault_format::catalog::{Catalog, PAYLOAD_TYPE, SignedCatalog};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::keys::{PublicKey, SecretKey};
use vault_format::name::Slug;
use vault_format::request::{DeviceHeaders, sign_request};
use vault_format::root::{RevokedKey, RootChain, RootState};
use vault_format::time::Timestamp;
use vault_service::config::{Config, Limits};
use vault_service::http::Peer;
use vault_service::model::audit::Actor;
use vault_service::model::device::{self, Device, DeviceStatus};
use vault_service::model::namespace::{self, Current, Kind, Namespace, Pin, Pinned};
use vault_service::model::release::{self, Closure, Node, Release};
use vault_service::publish::{Precondition, PublishedRelease, publish_release};
use vault_service::{App, Ports, error::Refusal, router};
use vault_store::clock::Clock;
use vault_store::objects::{Class, ObjectKey};
use vault_store::records::When;
use vault_testing::SeededRandom;
use vault_testing::TestClock;
use vault_testing::memory::Memory;

use super::exchange::HOST;
use super::samples::short;
use super::{commit, exchange, home, read};

/// When `catalog-42.json` was published.
pub const NOW: &str = "2026-11-21T02:00:10Z";

/// Where requests with a token come from.
pub const SOURCE: &str = "192.0.2.7";

pub struct World {
    pub app: App,
    pub clock: Arc<TestClock>,
    pub memory: Arc<Memory>,
    pub router: Router,
}

/// A service at `https://vault.example` without rate limits, with changed settings.
pub fn world_with(change: impl FnOnce(&mut Config)) -> World {
    let clock = Arc::new(TestClock::new(NOW.parse().unwrap()));
    let memory = Arc::new(Memory::new(clock.clone()));
    let mut config = Config::new("https://vault.example".parse().unwrap());
    config.limits = Limits::disabled();
    change(&mut config);
    // The host that requests of tests name, whatever the public URL of a test is.
    config.allow_host(HOST).unwrap();
    let ports = Ports {
        records: memory.clone(),
        objects: memory.clone(),
        clock: clock.clone(),
        random: Arc::new(SeededRandom::new(1)),
    };
    let app = App::new(ports, config);
    World {
        router: router(app.clone()),
        app,
        clock,
        memory,
    }
}

/// An answer, read to its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Status and code in one text.
    pub fn short(&self) -> String {
        short(self.status.as_u16(), &self.json())
    }

    /// All bytes of the answer, with the request id and the date blotted out.
    pub fn blotted(&self) -> String {
        let mut text = format!("{}\n", self.status);
        for (name, value) in &self.headers {
            if name != header::DATE {
                writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
            }
        }
        let body = String::from_utf8(self.body.to_vec()).unwrap();
        let id = self
            .json()
            .get("request_id")
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_owned();
        text + "\n" + &body.replace(&id, "[id]")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

impl World {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let answer = exchange::send(self.router.clone(), request).await;
        Answer {
            status: answer.status,
            headers: answer.headers,
            body: answer.body,
        }
    }

    /// A request that this key signs now.
    pub fn signed(&self, key: &SecretKey, method: &str, path: &str) -> Request<Body> {
        signed_at(key, method, path, self.now())
    }

    /// Sends a signed request without a body.
    pub async fn ask(&self, key: &SecretKey, method: &str, path: &str) -> Answer {
        self.send(self.signed(key, method, path)).await
    }

    /// Sends a signed enrolment.
    pub async fn enrol(&self, key: &SecretKey, slug: &str, hostname: &str) -> Answer {
        let body = serde_json::json!({ "public_key": key.public(), "hostname": hostname });
        self.post_devices(key, slug, &body.to_string()).await
    }

    pub async fn post_devices(&self, key: &SecretKey, slug: &str, body: &str) -> Answer {
        let mut request = self.signed(key, "POST", &format!("/v/{slug}/devices"));
        request.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        *request.body_mut() = Body::from(body.to_owned());
        self.send(request).await
    }

    /// Allocates a namespace.
    pub async fn namespace(&self, slug: &str, kind: Kind) -> Namespace {
        let slug: Slug = slug.parse().unwrap();
        let namespace = Namespace::new(slug, kind, "owner@example.org".into(), &self.app);
        commit(&self.app, namespace.allocation_writes().unwrap()).await;
        namespace
    }

    pub async fn read_namespace(&self, slug: &str) -> Namespace {
        home(&self.app, slug).await
    }

    /// What is current in a namespace.
    pub async fn current(&self, slug: &str) -> Current {
        self.read_namespace(slug).await.current.unwrap()
    }

    /// The entity tag of the current catalog.
    pub async fn etag(&self, slug: &str) -> String {
        format!("\"{}\"", self.current(slug).await.sha256)
    }

    /// A service that has just started over the same stores: nothing is remembered. It goes on with
    /// the ids, or commits would fail.
    pub fn restarted(&self) -> Self {
        let app = &self.app;
        let app = App::new(app.ports.clone(), (*app.config).clone());
        Self {
            router: router(app.clone()),
            app,
            clock: self.clock.clone(),
            memory: self.memory.clone(),
        }
    }

    /// The ports of the service without what a test put in front of its stores.
    pub fn uncounted(&self) -> Ports {
        Ports {
            records: self.memory.clone(),
            objects: self.memory.clone(),
            ..self.app.ports.clone()
        }
    }

    /// Changes a namespace record.
    pub async fn change(&self, slug: &str, change: impl FnOnce(&mut Namespace)) {
        let key = namespace::namespace_key(&slug.parse().unwrap());
        let record = self.app.records.get_one(&key).await.unwrap().unwrap();
        let mut namespace: Namespace = record.read().unwrap();
        change(&mut namespace);
        commit(
            &self.app,
            vec![namespace.update_write(record.revision).unwrap()],
        )
        .await;
    }

    /// Sets the status of an enrolled device, past all rules.
    pub async fn set_status(&self, slug: &str, key: &SecretKey, status: DeviceStatus) {
        let slug: Slug = slug.parse().unwrap();
        let at = device::device_key(&slug, &key.public().to_string());
        let mut device: Device = read(&self.app, &at).await;
        device.status = status;
        commit(&self.app, vec![device.to_write(&slug, When::Any).unwrap()]).await;
    }

    /// Enrols a device and gives it this status.
    pub async fn device(&self, slug: &str, n: u8, status: DeviceStatus) -> SecretKey {
        let key = key(n);
        let answer = self.enrol(&key, slug, &format!("machine {n}")).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        self.set_status(slug, &key, status).await;
        key
    }

    /// Puts the vectors' objects into a namespace: all bundles, indexes, profiles, the policy.
    pub async fn put_vectors(&self, namespace: &Namespace) {
        for (class, digest, bytes) in vector_objects() {
            let key = namespace.object_key(*class, *digest);
            self.app
                .objects
                .put_object(&key, bytes.clone())
                .await
                .unwrap();
        }
    }

    pub async fn put_object(&self, namespace: &Namespace, class: Class, bytes: Vec<u8>) -> Digest {
        let key = ObjectKey::for_bytes(namespace.id, class, &bytes);
        self.app
            .objects
            .put_object(&key, bytes.into())
            .await
            .unwrap();
        key.digest
    }

    /// Publishes after whatever is current.
    pub async fn publish(&self, slug: &str, bytes: Vec<u8>) -> Result<PublishedRelease, Refusal> {
        let current = self.read_namespace(slug).await.current;
        let precondition = current.map_or(Precondition::NothingYet, |current| {
            Precondition::Current(current.sha256)
        });
        self.publish_if(slug, bytes, precondition).await
    }

    pub async fn publish_if(
        &self,
        slug: &str,
        bytes: Vec<u8>,
        precondition: Precondition,
    ) -> Result<PublishedRelease, Refusal> {
        let slug: Slug = slug.parse().unwrap();
        let actor = Actor {
            user: "usr_test".into(),
            ..Actor::default()
        };
        publish_release(&self.app, &slug, bytes.into(), precondition, &actor).await
    }

    /// Makes this file the current one of a namespace, past all rules: what the vectors say of a
    /// service before a push.
    pub async fn make_current(
        &self,
        namespace: &Namespace,
        bytes: Vec<u8>,
        signers: Vec<PublicKey>,
        revoked: BTreeSet<RevokedKey>,
    ) {
        let (catalog, chain) = read_file(&bytes);
        let payload_sha256 = SignedCatalog::parse(&bytes).unwrap().payload_sha256();
        let state = RootState::new(chain, revoked);
        let mut closure = Closure::default();
        for skill in &catalog.skills {
            let key = namespace.object_key(Class::Bundles, skill.bundle_hash);
            let object = self.app.objects.read_object(&key).await.unwrap().unwrap();
            let bundle = Bundle::parse(&object, &skill.bundle_hash, skill.size).unwrap();
            let node = Node {
                size: skill.size,
                signer: bundle.signed_manifest().signer(&state),
                children: Vec::new(),
            };
            closure.insert(Class::Bundles, skill.bundle_hash, node);
        }
        let closure = closure.to_bytes();
        let closure = self.put_object(namespace, Class::Closures, closure).await;
        let size = bytes.len() as u64;
        let sha256 = self.put_object(namespace, Class::Catalogs, bytes).await;
        let published_at = self.now();
        let release = Release {
            release: catalog.release,
            root_version: catalog.root_version,
            sha256,
            payload_sha256,
            published_at,
            by: "usr_test".to_owned(),
            added: 0,
            changed: 0,
            removed: 0,
            skills: None,
            signers: Vec::new(),
        };
        commit(
            &self.app,
            vec![release::release_write(&release, &namespace.id).unwrap()],
        )
        .await;
        self.change(namespace.slug.as_str(), |namespace| {
            namespace.pin = Pinned::Vault(Pin::new(&state, signers));
            namespace.current = Some(Current {
                release: catalog.release,
                sha256,
                size,
                payload_sha256,
                fingerprint: Some(state.chain().fingerprint()),
                closure,
                skills: catalog.skills.len() as u64,
                published_at,
            });
        })
        .await;
    }

    /// The namespace `acme` with the vectors' objects and release 42.
    pub async fn acme(&self) -> Namespace {
        let namespace = self.namespace("acme", Kind::Hosted).await;
        self.put_vectors(&namespace).await;
        self.publish("acme", vector("catalog-42.json"))
            .await
            .unwrap();
        namespace
    }
}

pub fn signed_at(key: &SecretKey, method: &str, path: &str, at: Timestamp) -> Request<Body> {
    let DeviceHeaders {
        device,
        timestamp,
        signature,
    } = sign_request(key, method, path, at);
    Request::builder()
        .method(method)
        .uri(path)
        .header("X-Vault-Device", device)
        .header("X-Vault-Timestamp", timestamp)
        .header("X-Vault-Signature", signature)
        .body(Body::empty())
        .unwrap()
}

/// A request from [`SOURCE`] with this access token, which may be empty, and a body with its media
/// type, which may be empty too.
pub fn bearer(
    token: &str,
    method: &str,
    path: &str,
    body: Option<(&str, Vec<u8>)>,
    headers: &[(&str, &str)],
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (media, body) = body.unwrap_or_default();
    if !media.is_empty() {
        request = request.header(header::CONTENT_TYPE, media);
    }
    let peer = format!("{SOURCE}:4711").parse().unwrap();
    request.extension(Peer(peer)).body(body.into()).unwrap()
}

pub fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// The n-th device key of the tests.
pub fn key(n: u8) -> SecretKey {
    SecretKey::from_seed([n; 32])
}

/// The folder of the vectors, whichever crate asks.
pub fn vectors() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = here.ancestors().map(|folder| folder.join("tests/vectors"));
    folders.find(|folder| folder.is_dir()).unwrap()
}

pub fn vector(name: &str) -> Vec<u8> {
    std::fs::read(vectors().join("formats").join(name)).unwrap()
}

pub fn vector_json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(vectors().join(name)).unwrap()).unwrap()
}

/// The secret of one of the vectors' keys.
pub fn vector_key(name: &str) -> SecretKey {
    let keys = vector_json("formats/keys.json");
    let hex = keys[name]["seed_hex"].as_str().unwrap();
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    SecretKey::from_seed(std::array::from_fn(|n| byte(2 * n)))
}

/// A catalog of the vectors with other content, signed again by `release 0` under the same root
/// versions.
pub fn resigned(name: &str, change: impl FnOnce(&mut Catalog)) -> Vec<u8> {
    let (mut catalog, chain) = read_file(&vector(name));
    change(&mut catalog);
    let key = vector_key("release 0");
    catalog.public_key = key.public();
    file_of(&catalog, &chain, &key)
}

/// Parses a catalog file into its catalog and the chain of root versions that it carries.
pub fn read_file(bytes: &[u8]) -> (Catalog, RootChain) {
    let file = SignedCatalog::parse(bytes).unwrap();
    let catalog = file.read_counted(&file.payload_sha256()).unwrap();
    (catalog, RootChain::verify(file.roots()).unwrap())
}

/// The file of a catalog that this key has signed, whatever it says: an owner's own tool refuses
/// some.
pub fn file_of(catalog: &Catalog, chain: &RootChain, key: &SecretKey) -> Vec<u8> {
    let payload = vault_format::json::to_bytes(catalog);
    let envelope = Envelope::sign(PAYLOAD_TYPE, &payload, &[key]);
    let mut file: Value = serde_json::from_slice(&envelope.to_bytes()).unwrap();
    file["public_key"] = serde_json::json!(key.public());
    file["roots"] = serde_json::to_value(chain.to_list()).unwrap();
    file.to_string().into_bytes()
}

/// Every object of the vectors.
fn vector_objects() -> &'static [(Class, Digest, Bytes)] {
    static OBJECTS: LazyLock<Vec<(Class, Digest, Bytes)>> = LazyLock::new(|| {
        let mut objects: Vec<_> = big_table_parts()
            .into_iter()
            .map(|part| (Class::Bundles, part))
            .collect();
        for entry in std::fs::read_dir(vectors().join("formats")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let class = match name.split('-').next() {
                Some("bundle" | "index" | "profile") => Class::Bundles,
                Some("policy") => Class::Policies,
                _ => continue,
            };
            objects.push((class, std::fs::read(&path).unwrap()));
        }
        let keyed = |(class, bytes): (Class, Vec<u8>)| (class, Digest::of(&bytes), bytes.into());
        objects.into_iter().map(keyed).collect()
    });
    &OBJECTS
}

/// The part objects of `big-table`: big-endian integers 0, 1, 2, … up to 3,500,000 bytes, cut at
/// 3,000,000.
pub fn big_table_parts() -> Vec<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let table: Vec<u8> = (0..875_000u32).flat_map(u32::to_be_bytes).collect();
    let object = |part| {
        format!(
            "{{\"schema\":\"vault.part/1\",\"content\":\"{}\"}}",
            STANDARD.encode(part)
        )
    };
    table
        .chunks(3_000_000)
        .map(|part| object(part).into_bytes())
        .collect()
}
