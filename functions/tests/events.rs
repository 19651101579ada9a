//! Events in, exact answers out: each group over memory stores, with a clock that stands still and ids that repeat.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

#[path = "../../shared/service/tests/common/mod.rs"]
#[expect(dead_code, reason = "the route tests of the service need more of it")]
mod common;
#[path = "events/mcp.rs"]
mod mcp;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Request;
use axum::http::header::SET_COOKIE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::request::sign;
use vault_functions::{Failed, FirstOwner, Function, Group, Part};
use vault_service::App;
use vault_service::config::{Config, Limits};
use vault_service::model::audit::Actor;
use vault_service::model::device::{self, Device, DeviceStatus};
use vault_service::model::namespace::{Kind, Namespace};
use vault_service::model::user::{NamespaceRef, Role, Scopes};
use vault_service::publish::{Precondition, publish};
use vault_service::route::Auth;
use vault_store::clock::Clock as _;
use vault_store::objects::{Class, ObjectKey, Objects as _};
use vault_store::records::When;
use vault_testing::SeededRandom;
use vault_testing::TestClock;
use vault_testing::memory::Memory;

use common::samples::samples;

const GROUPS: [Group; 5] = [
    Group::OAuth,
    Group::Mcp,
    Group::Admin,
    Group::Devices,
    Group::Catalog,
];

/// Stores that all functions share, as a deployment's do.
struct World {
    memory: Arc<Memory>,
    clock: Arc<TestClock>,
}

impl World {
    fn new() -> Self {
        // When `catalog-42.json` of the vectors was published.
        let clock = Arc::new(TestClock::new("2026-11-21T02:00:10Z".parse().unwrap()));
        Self {
            memory: Arc::new(Memory::new(clock.clone())),
            clock,
        }
    }

    fn app(&self) -> App {
        let mut config = Config::new("https://vault.example".parse().unwrap());
        config.limits = Limits::off();
        App::new(
            self.memory.clone(),
            self.memory.clone(),
            self.clock.clone(),
            Arc::new(SeededRandom::new(1)),
            config,
        )
    }

    /// A function as a new process has it: nothing is remembered from the one before.
    fn function(&self, group: Group) -> Function {
        Function::new(self.app(), Part::of(group), None)
    }

    async fn ask(&self, group: Group, event: &Value) -> Value {
        let outcome = self.function(group).handle(&event.to_string()).await;
        serde_json::to_value(outcome.unwrap()).unwrap()
    }

    /// The namespace `acme` with release 42 of the vectors and an admitted device.
    async fn acme(&self) -> (Namespace, SecretKey) {
        let app = self.app();
        let namespace = Namespace::new(
            "acme".parse().unwrap(),
            Kind::Hosted,
            common::OWNER.into(),
            &*app.clock,
            &*app.random,
        );
        let made = app.records.commit(namespace.allocation().unwrap()).await;
        assert!(made.unwrap().is_done());
        for (class, bytes) in vector_objects() {
            let key = ObjectKey::of(namespace.id, class, &bytes);
            self.memory.put(&key, bytes.into()).await.unwrap();
        }
        let catalog = vector("catalog-42.json").into();
        let actor = Actor::server();
        publish(
            &app,
            &namespace.slug,
            catalog,
            Precondition::NothingYet,
            &actor,
        )
        .await
        .unwrap();
        let key = SecretKey::from_seed([7; 32]);
        let now = self.clock.now();
        let mut device = Device::new(
            &namespace.slug,
            namespace.id,
            key.public(),
            "machine".into(),
            now,
        );
        device.status = DeviceStatus::Active;
        let write = device.write(&namespace.slug, When::Absent).unwrap();
        assert!(app.records.commit(vec![write]).await.unwrap().is_done());
        (namespace, key)
    }

    /// Everything that is stored.
    async fn state(&self, namespace: &Namespace) -> String {
        use vault_store::records::Records;
        let mut all = String::new();
        let id = namespace.id;
        for partition in [
            "ns/acme".to_owned(),
            "dev/acme".to_owned(),
            "devid/acme".to_owned(),
            "pend/acme".to_owned(),
            format!("rel/{id}"),
            format!("doomed/{id}"),
            "work".to_owned(),
        ] {
            let found = Records::list(&*self.memory, &partition, "", None, 1000)
                .await
                .unwrap();
            for record in found {
                all.push_str(&format!("{} {}\n", record.key, record.document.as_str()));
            }
        }
        for class in Class::ALL {
            let found = vault_store::objects::Objects::list(&*self.memory, &id, class, None, 1000);
            all.push_str(&format!("{class} {}\n", found.await.unwrap().len()));
        }
        all
    }
}

fn vectors() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/vectors/formats"
    ))
}

fn vector(name: &str) -> Vec<u8> {
    std::fs::read(vectors().join(name)).unwrap()
}

fn vector_objects() -> Vec<(Class, Vec<u8>)> {
    let mut objects = Vec::new();
    for entry in std::fs::read_dir(vectors()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let class = match name.split('-').next() {
            Some("bundle" | "index" | "profile") => Class::Bundles,
            Some("policy") => Class::Policies,
            _ => continue,
        };
        objects.push((class, std::fs::read(&path).unwrap()));
    }
    // The parts of `big-table`: big-endian integers, cut at 3,000,000 bytes.
    let table: Vec<u8> = (0..875_000u32).flat_map(u32::to_be_bytes).collect();
    for part in table.chunks(3_000_000) {
        let content = STANDARD.encode(part);
        let object = format!("{{\"schema\":\"vault.part/1\",\"content\":\"{content}\"}}");
        objects.push((Class::Bundles, object.into_bytes()));
    }
    objects
}

/// An event of an HTTP API as the gateway sends it, with this request in it.
fn event(method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Value {
    let mut event: Value = serde_json::from_str(include_str!("events/http.json")).unwrap();
    let (raw, query) = path.split_once('?').unwrap_or((path, ""));
    event["rawPath"] = raw.into();
    event["rawQueryString"] = query.into();
    event["requestContext"]["http"]["path"] = raw.into();
    event["requestContext"]["http"]["method"] = method.into();
    for (name, value) in headers {
        event["headers"][name.to_ascii_lowercase()] = (*value).into();
    }
    if let Some(body) = body {
        event["body"] = body.into();
    }
    event
}

fn signed(world: &World, key: &SecretKey, method: &str, path: &str) -> Value {
    let signed = sign(key, method, path, world.clock.now());
    event(
        method,
        path,
        &[
            ("x-vault-device", &signed.device),
            ("x-vault-timestamp", &signed.timestamp),
            ("x-vault-signature", &signed.signature),
        ],
        None,
    )
}

fn enrolment(world: &World, key: &SecretKey) -> Value {
    let mut event = signed(world, key, "POST", "/v/acme/devices");
    event["headers"]["content-type"] = "application/json".into();
    let body = json!({"public_key": key.public(), "hostname": "laptop"}).to_string();
    // A gateway encodes what is not text by its content type; both forms must be read.
    event["body"] = STANDARD.encode(body).into();
    event["isBase64Encoded"] = true.into();
    event
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// Status and code of an answer.
fn short(answer: &Value) -> String {
    let body = answer["body"].as_str().unwrap_or_default();
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    let status = answer["statusCode"].as_u64().unwrap();
    common::samples::short(status.try_into().unwrap(), &body)
}

#[tokio::test]
async fn golden_catalog() {
    let world = World::new();
    let (_, key) = world.acme().await;
    let event = signed(&world, &key, "GET", "/v/acme/catalog.json");
    let answer = world.ask(Group::Catalog, &event).await;
    let body = STANDARD.decode(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, vector("catalog-42.json"), "byte for byte");
    let mut rest = answer.clone();
    rest["body"] = "[the catalog]".into();
    insta::assert_snapshot!("catalog", pretty(&rest));

    let head = signed(&world, &key, "HEAD", "/v/acme/catalog.json");
    let head = world.ask(Group::Catalog, &head).await;
    assert_eq!(
        (&head["body"], &head["headers"]),
        (&json!(""), &answer["headers"])
    );
    let post = signed(&world, &key, "POST", "/v/acme/catalog.json");
    insta::assert_snapshot!(
        "catalog-405",
        pretty(&world.ask(Group::Catalog, &post).await)
    );
    let nobody = Digest::of(b"nobody");
    let path = format!("/v/acme/bundles/{nobody}.json");
    let absent = signed(&world, &key, "GET", &path);
    assert_eq!(
        short(&world.ask(Group::Catalog, &absent).await),
        "404 bundle_not_found"
    );
}

#[tokio::test]
async fn golden_devices() {
    let world = World::new();
    let (namespace, _) = world.acme().await;
    let new = SecretKey::from_seed([9; 32]);
    let event = enrolment(&world, &new);
    let first = world.ask(Group::Devices, &event).await;
    insta::assert_snapshot!("devices-enrol", pretty(&first));
    let state = world.state(&namespace).await;
    // The same event once more: another answer is right, another state is not.
    let again = world.ask(Group::Devices, &event).await;
    assert_eq!(
        (again["statusCode"].as_u64(), &again["body"]),
        (Some(200), &first["body"])
    );
    assert_eq!(world.state(&namespace).await, state);
    let current = signed(&world, &new, "GET", "/v/acme/devices/current");
    insta::assert_snapshot!(
        "devices-current",
        pretty(&world.ask(Group::Devices, &current).await)
    );
    let stored = device::key(&namespace.slug, &new.public().to_string());
    let stored = world.app().records.get(&stored).await.unwrap().unwrap();
    assert_eq!(stored.read::<Device>().unwrap().hostname, "laptop");
}

#[tokio::test]
async fn golden_admin() {
    let world = World::new();
    common::bootstrap(&world.app()).await;
    let health = event("GET", "/healthz", &[], None);
    let mut healthy = world.ask(Group::Admin, &health).await;
    // How long the ping took is the machine's business.
    let told = healthy["body"].as_str().unwrap().rsplit_once(':').unwrap();
    healthy["body"] = told.0.to_owned().into();
    insta::assert_snapshot!("admin-health", pretty(&healthy));
    let app = world.app();
    let token = common::sign_in(&app, common::OWNER, common::OWNER_PASSWORD, Scopes::ALL).await;
    let bearer = format!("Bearer {token}");
    // 4 MiB up, base64 as the gateway sends it, and back.
    let bytes = vec![0xffu8; 4 * 1024 * 1024];
    let path = format!(
        "/admin/vaults/default/objects/bundles/{}",
        Digest::of(&bytes)
    );
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/octet-stream"),
    ];
    let mut put = event("PUT", &path, &headers, Some(&STANDARD.encode(&bytes)));
    put["isBase64Encoded"] = true.into();
    assert!(put.to_string().len() < 6_000_000);
    assert_eq!(world.ask(Group::Admin, &put).await["statusCode"], 201);
    assert_eq!(
        world.ask(Group::Admin, &put).await["statusCode"],
        200,
        "the same event again"
    );
    let get = event("GET", &path, &headers[..1], None);
    let got = world.ask(Group::Admin, &get).await;
    assert_eq!(got["isBase64Encoded"], true);
    assert_eq!(
        STANDARD.decode(got["body"].as_str().unwrap()).unwrap(),
        bytes
    );
    let mut long = event(
        "PUT",
        &path,
        &headers,
        Some(&STANDARD.encode([&bytes[..], b"x"].concat())),
    );
    long["isBase64Encoded"] = true.into();
    assert_eq!(
        short(&world.ask(Group::Admin, &long).await),
        "413 body_too_large"
    );
}

/// Each row of the table, asked of its function and of the router: one answer. Elsewhere the row does not exist.
#[tokio::test]
async fn a_function_answers_its_rows_as_the_router_does_and_no_others() {
    let world = World::new();
    common::bootstrap(&world.app()).await;
    let (namespace, key) = world.acme().await;
    let home = NamespaceRef {
        slug: namespace.slug,
        id: namespace.id,
    };
    let app = world.app();
    common::member(&app, "ada@example.org", &home, Role::Owner, Scopes::ALL).await;
    let who = ("ada@example.org", common::PASSWORD);
    let owner = common::tokens(&app, who, "acme", Scopes::ALL).await.access;
    let who = (common::OWNER, common::OWNER_PASSWORD);
    let operator = common::tokens(&app, who, "default", Scopes::ALL).await;
    for sample in samples() {
        let (method, path) = (sample.route.method, &sample.path);
        let signed = sign(&key, method, path, world.clock.now());
        let token = match sample.route.auth {
            Auth::Operator | Auth::OperatorWrite => &operator.access,
            _ => &owner,
        };
        let bearer = format!("Bearer {token}");
        let mut headers = sample.headers();
        match sample.route.auth {
            Auth::Public | Auth::Session => {}
            Auth::Device => headers.extend([
                ("x-vault-device", signed.device.as_str()),
                ("x-vault-timestamp", &signed.timestamp),
                ("x-vault-signature", &signed.signature),
            ]),
            _ => headers.push(("authorization", &bearer)),
        }
        let event = event(method, path, &headers, Some(sample.body));
        let answer = world.ask(sample.route.group, &event).await;
        assert_eq!(short(&answer), sample.answer, "{method} {path}: {answer}");

        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        let request = request.body(sample.body.into()).unwrap();
        let reply = common::send(&world.app(), request).await;
        assert_eq!(answer["statusCode"], reply.status, "{method} {path}");
        let mut sent: HashMap<_, _> = reply.headers.iter().collect();
        let cookie = sent.remove(&SET_COOKIE);
        let cookie = cookie.map(|value| value.to_str().unwrap());
        assert_eq!(
            answer["cookies"],
            json!(Vec::from_iter(cookie)),
            "{method} {path}"
        );
        let answered = answer["headers"].as_object().unwrap();
        assert_eq!(answered.len(), sent.len(), "{method} {path}: {sent:?}");
        for (name, value) in sent {
            assert_eq!(
                answered[name.as_str()],
                value.to_str().unwrap(),
                "{method} {path}"
            );
        }
        let body = answer["body"].as_str().unwrap();
        let body = match answer["isBase64Encoded"].as_bool() {
            Some(true) => String::from_utf8(STANDARD.decode(body).unwrap()).unwrap(),
            _ => body.to_owned(),
        };
        // Health says how long the store took.
        if path == "/healthz" {
            continue;
        }
        assert_eq!(body, reply.body, "{method} {path}");
        for group in GROUPS {
            if group != sample.route.group {
                let elsewhere = world.ask(group, &event).await;
                assert_eq!(short(&elsewhere), "404 not_found", "{group:?} {path}");
            }
        }
    }
    let unsigned = event("GET", "/v/acme/catalog.json", &[], None);
    for group in GROUPS {
        let answer = world.ask(group, &unsigned).await;
        assert_eq!(short(&answer), "401 signature_required", "{group:?}");
    }
}

/// Everything that no route names comes to `devices`: a decoded path is refused whatever it decodes to.
#[tokio::test]
async fn odd_paths_at_the_catch_all() {
    let world = World::new();
    let (_, key) = world.acme().await;
    for (raw, unsigned, answer) in [
        (
            "/v/acme/catalog.json?x",
            "401 signature_required",
            "404 not_found",
        ),
        (
            "/v/acme/catalog.json#x",
            "401 signature_required",
            "404 not_found",
        ),
        (
            "/v/%61cme/devices/current",
            "401 signature_required",
            "404 not_found",
        ),
        (
            "/v/acme/devices/current/",
            "401 signature_required",
            "404 not_found",
        ),
        (
            "/v/acme//devices/current",
            "401 signature_required",
            "404 not_found",
        ),
        ("/v/é /devices", "401 signature_required", "404 not_found"),
        ("/v/", "401 signature_required", "404 not_found"),
        ("/v", "404 not_found", "404 not_found"),
        ("//v/acme/devices/current", "404 not_found", "404 not_found"),
        ("/", "404 not_found", "404 not_found"),
        (
            "/prod/v/acme/devices/current",
            "404 not_found",
            "404 not_found",
        ),
        ("", "404 not_found", "404 not_found"),
    ] {
        let with_path = |mut event: Value| {
            event["rawPath"] = raw.into();
            event["rawQueryString"] = "".into();
            event
        };
        let got = world
            .ask(Group::Devices, &with_path(event("GET", "/", &[], None)))
            .await;
        assert_eq!(short(&got), unsigned, "{raw}");
        let got = world
            .ask(Group::Devices, &with_path(signed(&world, &key, "GET", raw)))
            .await;
        assert_eq!(short(&got), answer, "{raw}");
    }
    // Joined double headers, as the gateway makes them.
    let mut twice = signed(&world, &key, "GET", "/v/acme/devices/current");
    let one = twice["headers"]["x-vault-device"]
        .as_str()
        .unwrap()
        .to_owned();
    twice["headers"]["x-vault-device"] = format!("{one},{one}").into();
    assert_eq!(
        short(&world.ask(Group::Devices, &twice).await),
        "401 signature_invalid"
    );
}

#[tokio::test]
async fn an_event_that_is_no_request_is_400_and_an_unknown_one_fails() {
    let world = World::new();
    let mut odd = event("G T", "/healthz", &[], None);
    assert_eq!(
        short(&world.ask(Group::Admin, &odd).await),
        "400 request_invalid"
    );
    odd = event("GET", "/healthz", &[], Some("not base64"));
    odd["isBase64Encoded"] = true.into();
    assert_eq!(
        short(&world.ask(Group::Admin, &odd).await),
        "400 request_invalid"
    );
    for text in ["{}", "null", "", "{\"source\":\"aws.s3\"}", "[[["] {
        let failed = world.function(Group::Admin).handle(text).await;
        assert!(matches!(failed, Err(Failed::UnknownEvent)), "{text}");
    }
}

#[tokio::test]
async fn the_schedule_does_background_work_in_admin_alone_and_twice_changes_nothing() {
    let world = World::new();
    let (namespace, _) = world.acme().await;
    let schedule: Value = serde_json::from_str(include_str!("events/schedule.json")).unwrap();
    let report = world.ask(Group::Admin, &schedule).await;
    assert_eq!(
        (&report["namespaces"], &report["skipped"]),
        (&json!(1), &json!(0))
    );
    let state = world.state(&namespace).await;
    let again = world.ask(Group::Admin, &schedule).await;
    assert!(
        again.as_object().unwrap().values().all(|n| n == 0),
        "{again}"
    );
    assert_eq!(world.state(&namespace).await, state);
    for group in [Group::OAuth, Group::Mcp, Group::Devices, Group::Catalog] {
        let failed = world.function(group).handle(&schedule.to_string()).await;
        assert!(matches!(failed, Err(Failed::UnknownEvent)), "{group:?}");
    }
}

/// The first call of `oauth` or `admin` makes the owner, once; its password is asked for only then, and a failure does not stop the call.
#[tokio::test]
async fn the_first_call_makes_the_owner() {
    let world = World::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let function = |group| {
        let asked = Arc::clone(&asked);
        let password: vault_functions::PasswordSource = Box::new(move || {
            let n = asked.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                if n == 0 {
                    return Err("the parameter cannot be read".into());
                }
                Ok(SecretString::from(common::OWNER_PASSWORD))
            })
        });
        let owner = FirstOwner {
            email: common::OWNER.into(),
            password,
        };
        Function::new(world.app(), Part::of(group), Some(owner))
    };
    let health = event("GET", "/healthz", &[], None).to_string();
    let first = function(Group::Admin);
    for _ in 0..3 {
        let outcome = first.handle(&health).await.unwrap();
        assert_eq!(serde_json::to_value(outcome).unwrap()["statusCode"], 200);
    }
    function(Group::OAuth).handle(&health).await.unwrap();
    assert_eq!(
        asked.load(Ordering::SeqCst),
        2,
        "once in vain, once for good"
    );
    common::sign_in(
        &world.app(),
        common::OWNER,
        common::OWNER_PASSWORD,
        Scopes::ALL,
    )
    .await;
}
