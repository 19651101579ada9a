//! Tests of events and their exact answers: each group over memory stores, with a clock that stands
//! still and ids that repeat.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

#[path = "../../shared/service/tests/common/mod.rs"]
#[expect(dead_code, reason = "the route tests of the service need more of it")]
mod common;
#[path = "events/mcp.rs"]
mod mcp;

use std::collections::HashMap;
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
use vault_format::request::{DeviceHeaders, sign_request};
use vault_functions::{Edge, Failed, FirstOwner, Function, Group, Outcome, Part};
use vault_service::model::device::{self, Device, DeviceStatus};
use vault_service::model::namespace::Namespace;
use vault_service::model::user::{NamespaceRef, Role, Scopes};
use vault_service::route::Auth;
use vault_service::{App, Ports};
use vault_store::objects::Class;
use vault_testing::SeededRandom;

use common::samples::samples;
use common::world::{World, vector, world_with};

const GROUPS: [Group; 5] = [
    Group::OAuth,
    Group::Mcp,
    Group::Admin,
    Group::Devices,
    Group::Catalog,
];

/// A service at `https://vault.example` without rate limits.
fn world() -> World {
    world_with(|_| {})
}

/// All functions of a [`World`] share its stores, like those of a deployment.
impl World {
    /// Returns the service as a new process has it: with empty caches, and with the same sequence
    /// of ids.
    fn fresh(&self) -> App {
        let memory = self.memory.clone();
        let random = Arc::new(SeededRandom::new(1));
        let config = (*self.app.config).clone();
        let ports = Ports {
            records: memory.clone(),
            objects: memory,
            clock: self.clock.clone(),
            random,
        };
        App::new(ports, config)
    }

    fn function(&self, group: Group) -> Function {
        Function::new(self.fresh(), Part::for_group(group), None)
    }

    async fn call(&self, group: Group, event: &Value) -> Value {
        let outcome = self.function(group).handle_event(&event.to_string()).await;
        serde_json::to_value(outcome.unwrap()).unwrap()
    }

    /// Returns everything that is stored, as text to compare.
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
            let found = Records::list_page(&*self.memory, &partition, "", None, 1000).await;
            for record in found.unwrap() {
                all.push_str(&format!("{} {}\n", record.key, record.document.as_str()));
            }
        }
        for class in Class::ALL {
            let found =
                vault_store::objects::Objects::list_objects(&*self.memory, &id, class, None, 1000);
            all.push_str(&format!("{class} {}\n", found.await.unwrap().len()));
        }
        all
    }
}

/// Returns an event of an HTTP API, as the gateway sends it, with this request.
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
    let DeviceHeaders {
        device,
        timestamp,
        signature,
    } = sign_request(key, method, path, world.now());
    let headers = [
        ("x-vault-device", device.as_str()),
        ("x-vault-timestamp", &timestamp),
        ("x-vault-signature", &signature),
    ];
    event(method, path, &headers, None)
}

/// Creates the namespace `acme` with release 42 of the test vectors, and admits a device to it.
/// Returns the device's key.
async fn admitted(world: &World) -> SecretKey {
    world.acme().await;
    world.device("acme", 7, DeviceStatus::Active).await
}

fn enrolment(world: &World, key: &SecretKey) -> Value {
    let mut event = signed(world, key, "POST", "/v/acme/devices");
    event["headers"]["content-type"] = "application/json".into();
    let body = json!({"public_key": key.public(), "hostname": "laptop"}).to_string();
    // A gateway encodes some bodies in base64, depending on the content type. A function must read
    // both forms.
    event["body"] = STANDARD.encode(body).into();
    event["isBase64Encoded"] = true.into();
    event
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

/// Returns the status and the error code of an answer.
fn short(answer: &Value) -> String {
    let body = answer["body"].as_str().unwrap_or_default();
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    let status = answer["statusCode"].as_u64().unwrap();
    common::samples::short(status.try_into().unwrap(), &body)
}

#[tokio::test]
async fn golden_catalog() {
    let world = world();
    let key = admitted(&world).await;
    let event = signed(&world, &key, "GET", "/v/acme/catalog.json");
    let answer = world.call(Group::Catalog, &event).await;
    let body = STANDARD.decode(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, vector("catalog-42.json"), "byte for byte");
    let mut rest = answer.clone();
    rest["body"] = "[the catalog]".into();
    insta::assert_snapshot!("catalog", pretty(&rest));

    let head = signed(&world, &key, "HEAD", "/v/acme/catalog.json");
    let head = world.call(Group::Catalog, &head).await;
    assert_eq!(head["body"], "");
    assert_eq!(head["headers"], answer["headers"]);
    let post = signed(&world, &key, "POST", "/v/acme/catalog.json");
    let refused = world.call(Group::Catalog, &post).await;
    insta::assert_snapshot!("catalog-405", pretty(&refused));
}

#[tokio::test]
async fn golden_devices() {
    let world = world();
    let namespace = world.acme().await;
    let new = SecretKey::from_seed([9; 32]);
    let event = enrolment(&world, &new);
    let first = world.call(Group::Devices, &event).await;
    insta::assert_snapshot!("devices-enrol", pretty(&first));
    let state = world.state(&namespace).await;
    // The same event once more: the answer may differ, but the stored state must not.
    let again = world.call(Group::Devices, &event).await;
    assert_eq!(again["statusCode"], 200);
    assert_eq!(again["body"], first["body"]);
    assert_eq!(world.state(&namespace).await, state);
    let current = signed(&world, &new, "GET", "/v/acme/devices/current");
    let current = world.call(Group::Devices, &current).await;
    insta::assert_snapshot!("devices-current", pretty(&current));
    let stored = device::device_key(&namespace.slug, &new.public().to_string());
    let stored: Device = common::read(&world.app, &stored).await;
    assert_eq!(stored.hostname, "laptop");
}

/// The body of a health check without the measured time.
fn mask_latency(body: &str) -> String {
    let member = "\"latency_ms\":";
    let (before, after) = body.split_once(member).expect("a measured time");
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    assert!(rest.len() < after.len(), "{body}");
    format!("{before}{member}\"[measured]\"{rest}")
}

#[tokio::test]
async fn golden_admin() {
    let world = world();
    common::bootstrap(&world.app).await;
    let health = event("GET", "/healthz", &[], None);
    let mut healthy = world.call(Group::Admin, &health).await;
    // The time of the ping, and so the length of the body, differs from run to run.
    let body = healthy["body"].as_str().unwrap();
    assert_eq!(healthy["headers"]["content-length"], body.len().to_string());
    healthy["body"] = mask_latency(body).into();
    healthy["headers"]["content-length"] = "[that of the body]".into();
    insta::assert_snapshot!("admin-health", pretty(&healthy));
    let (email, password) = (common::OWNER, common::OWNER_PASSWORD);
    let token = common::sign_in(&world.app, email, password, Scopes::ALL).await;
    let bearer = format!("Bearer {token}");
    // Upload the largest object, 4 MiB in base64 as the gateway sends it, and read it back.
    let bytes = vec![0xffu8; 4 * 1024 * 1024];
    let hash = Digest::of(&bytes);
    let path = format!("/admin/vaults/default/objects/bundles/{hash}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/octet-stream"),
    ];
    let put = |bytes: &[u8]| {
        let mut put = event("PUT", &path, &headers, Some(&STANDARD.encode(bytes)));
        put["isBase64Encoded"] = true.into();
        put
    };
    assert!(put(&bytes).to_string().len() < 6_000_000);
    // The second event is the same, and finds the object stored.
    for status in [201, 200] {
        let answer = world.call(Group::Admin, &put(&bytes)).await;
        assert_eq!(answer["statusCode"], status);
    }
    let get = event("GET", &path, &headers[..1], None);
    let got = world.call(Group::Admin, &get).await;
    assert_eq!(got["isBase64Encoded"], true);
    let got = STANDARD.decode(got["body"].as_str().unwrap());
    assert_eq!(got.unwrap(), bytes);
    let long = put(&[&bytes[..], b"x"].concat());
    let refused = world.call(Group::Admin, &long).await;
    assert_eq!(short(&refused), "413 body_too_large");
}

/// Each function answers the routes of its group exactly as the service's router does, and no route
/// of another group.
#[tokio::test]
async fn a_function_answers_its_rows_as_the_router_does_and_no_others() {
    let world = world();
    common::bootstrap(&world.app).await;
    let key = admitted(&world).await;
    let namespace = world.read_namespace("acme").await;
    let home = NamespaceRef {
        slug: namespace.slug,
        id: namespace.id,
    };
    let app = &world.app;
    common::member(app, "ada@example.org", &home, Role::Owner, Scopes::ALL).await;
    let who = ("ada@example.org", common::PASSWORD);
    let owner = common::tokens(app, who, "acme", Scopes::ALL).await.access;
    let operator = common::operator_token(app).await;
    for sample in samples() {
        let (method, path) = (sample.route.method, &sample.path);
        let signed = sign_request(&key, method, path, world.now());
        let token = match sample.route.auth {
            Auth::Operator | Auth::OperatorWrite => &operator,
            _ => &owner,
        };
        let bearer = format!("Bearer {token}");
        let mut headers = sample.headers();
        match sample.route.auth {
            Auth::Public | Auth::Session(_) => {}
            Auth::Device => headers.extend([
                ("x-vault-device", signed.device.as_str()),
                ("x-vault-timestamp", &signed.timestamp),
                ("x-vault-signature", &signed.signature),
            ]),
            _ => headers.push(("authorization", &bearer)),
        }
        let event = event(method, path, &headers, Some(sample.body));
        let answer = world.call(sample.route.group, &event).await;
        assert_eq!(short(&answer), sample.answer, "{method} {path}: {answer}");

        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        let request = request.body(sample.body.into()).unwrap();
        let reply = common::send(&world.fresh(), request).await;
        assert_eq!(answer["statusCode"], reply.status, "{method} {path}");
        let mut sent: HashMap<_, _> = reply.headers.iter().collect();
        let cookie = sent.remove(&SET_COOKIE);
        let cookie = Vec::from_iter(cookie.map(|value| value.to_str().unwrap()));
        assert_eq!(answer["cookies"], json!(cookie), "{method} {path}");
        let answered = answer["headers"].as_object().unwrap();
        assert_eq!(answered.len(), sent.len(), "{method} {path}: {sent:?}");
        for (name, value) in sent {
            let value = value.to_str().unwrap();
            assert_eq!(answered[name.as_str()], value, "{method} {path}");
        }
        let body = answer["body"].as_str().unwrap();
        let body = match answer["isBase64Encoded"].as_bool() {
            Some(true) => String::from_utf8(STANDARD.decode(body).unwrap()).unwrap(),
            _ => body.to_owned(),
        };
        // The body of this answer has the time that the store took, so it differs.
        if path == "/healthz" {
            continue;
        }
        assert_eq!(body, reply.body, "{method} {path}");
        for group in GROUPS {
            if group != sample.route.group {
                let elsewhere = world.call(group, &event).await;
                assert_eq!(short(&elsewhere), "404 not_found", "{group:?} {path}");
            }
        }
    }
    let unsigned = event("GET", "/v/acme/catalog.json", &[], None);
    for group in GROUPS {
        let answer = world.call(group, &unsigned).await;
        assert_eq!(short(&answer), "401 signature_required", "{group:?}");
    }
}

/// The gateway sends every path without a route to `devices`. That function must refuse odd paths,
/// also if decoding them would give a route.
#[tokio::test]
async fn odd_paths_at_the_catch_all() {
    const UNSIGNED: &str = "401 signature_required";
    const NOT_FOUND: &str = "404 not_found";
    let world = world();
    let key = admitted(&world).await;
    for (raw, unsigned) in [
        ("/v/acme/catalog.json?x", UNSIGNED),
        ("/v/acme/catalog.json#x", UNSIGNED),
        ("/v/%61cme/devices/current", UNSIGNED),
        ("/v/acme/devices/current/", UNSIGNED),
        ("/v/acme//devices/current", UNSIGNED),
        ("/v/é /devices", UNSIGNED),
        ("/v/", UNSIGNED),
        ("/v", NOT_FOUND),
        ("//v/acme/devices/current", NOT_FOUND),
        ("/", NOT_FOUND),
        ("/prod/v/acme/devices/current", NOT_FOUND),
        ("", NOT_FOUND),
    ] {
        for (mut event, wanted) in [
            (event("GET", "/", &[], None), unsigned),
            (signed(&world, &key, "GET", raw), NOT_FOUND),
        ] {
            event["rawPath"] = raw.into();
            event["rawQueryString"] = "".into();
            let got = world.call(Group::Devices, &event).await;
            assert_eq!(short(&got), wanted, "{raw}");
        }
    }
    // The gateway joins repeated headers with commas.
    let mut twice = signed(&world, &key, "GET", "/v/acme/devices/current");
    let device = &mut twice["headers"]["x-vault-device"];
    let one = device.as_str().unwrap();
    *device = format!("{one},{one}").into();
    let got = world.call(Group::Devices, &twice).await;
    assert_eq!(short(&got), "401 signature_invalid");
}

#[tokio::test]
async fn an_event_that_is_no_request_is_400_and_an_unknown_one_fails() {
    let world = world();
    let unknown = event("G T", "/healthz", &[], None);
    let mut garbled = event("GET", "/healthz", &[], Some("not base64"));
    garbled["isBase64Encoded"] = true.into();
    for odd in [unknown, garbled] {
        let answer = world.call(Group::Admin, &odd).await;
        assert_eq!(short(&answer), "400 request_invalid", "{odd}");
    }
    for text in ["{}", "null", "", "{\"source\":\"aws.s3\"}", "[[["] {
        let failed = world.function(Group::Admin).handle_event(text).await;
        assert!(matches!(failed, Err(Failed::UnknownEvent)), "{text}");
    }
}

#[tokio::test]
async fn the_schedule_does_background_work_in_admin_alone_and_twice_changes_nothing() {
    let world = world();
    let namespace = world.acme().await;
    let schedule: Value = serde_json::from_str(include_str!("events/schedule.json")).unwrap();
    let report = world.call(Group::Admin, &schedule).await;
    assert_eq!(report["namespaces"], 1);
    assert_eq!(report["skipped"], 0);
    let state = world.state(&namespace).await;
    let again = world.call(Group::Admin, &schedule).await;
    assert!(
        again.as_object().unwrap().values().all(|n| n == 0),
        "{again}"
    );
    assert_eq!(world.state(&namespace).await, state);
    for group in [Group::OAuth, Group::Mcp, Group::Devices, Group::Catalog] {
        let failed = world
            .function(group)
            .handle_event(&schedule.to_string())
            .await;
        assert!(matches!(failed, Err(Failed::UnknownEvent)), "{group:?}");
    }
}

/// The first call of `oauth` or `admin` creates the owner, once. The password is read only then,
/// and a failure does not stop the call.
#[tokio::test]
async fn the_first_call_makes_the_owner() {
    let world = world();
    let asked = Arc::new(AtomicUsize::new(0));
    let deleted = Arc::new(AtomicUsize::new(0));
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
        let deleted = Arc::clone(&deleted);
        let deletion: vault_functions::SecretDeletion = Box::new(move || {
            deleted.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Err("the parameter cannot be deleted".into()) })
        });
        let owner = FirstOwner {
            email: common::OWNER.into(),
            password,
            deletion: Some(deletion),
        };
        Function::new(world.fresh(), Part::for_group(group), Some(owner))
    };
    let health = event("GET", "/healthz", &[], None).to_string();
    let first = function(Group::Admin);
    for _ in 0..3 {
        let outcome = first.handle_event(&health).await.unwrap();
        assert_eq!(serde_json::to_value(outcome).unwrap()["statusCode"], 200);
        // Only after the second call there is an account.
        let made = asked.load(Ordering::SeqCst) == 2;
        assert_eq!(deleted.load(Ordering::SeqCst), usize::from(made));
    }
    function(Group::OAuth).handle_event(&health).await.unwrap();
    assert_eq!(
        asked.load(Ordering::SeqCst),
        2,
        "once in vain, once for good"
    );
    assert_eq!(deleted.load(Ordering::SeqCst), 1, "even if it fails");
    // The owner is an operator, and no vault was created.
    common::operator_token(&world.app).await;
    let records = &world.app.records;
    let vaults = records.list_page("namespaces", "", None, 10).await;
    assert_eq!(vaults.unwrap(), []);
}

/// Behind a content delivery network, each function answers only requests that came through the
/// network. Rate limits count clients by the addresses that the network passes on, because the
/// gateway sees only addresses of the network.
#[tokio::test]
async fn behind_an_edge_only_its_requests_are_answered() {
    let world = world_with(|config| config.limits.enrol_per_source = 1);
    world.acme().await;
    let digests = ["new-secret", "old-secret"].map(|text| Digest::of(text.as_bytes()).to_string());
    let edge = Edge::parse(&digests.join(",")).unwrap();
    let call = async |group, event: &Value| {
        let function = world.function(group).with_edge(Some(edge.clone()));
        let outcome = function.handle_event(&event.to_string()).await.unwrap();
        serde_json::to_value(outcome).unwrap()
    };
    let unsigned = event("GET", "/v/acme/catalog.json", &[], None);
    for group in GROUPS {
        for (secret, wanted) in [
            (None, "403 host_forbidden"),
            (Some("guess"), "403 host_forbidden"),
            (Some("new-secret"), "401 signature_required"),
            (Some("old-secret"), "401 signature_required"),
        ] {
            let mut event = unsigned.clone();
            event["headers"]["cloudfront-viewer-address"] = "203.0.113.9:1".into();
            if let Some(secret) = secret {
                event["headers"]["x-vault-origin"] = secret.into();
            }
            let answer = call(group, &event).await;
            assert_eq!(short(&answer), wanted, "{group:?} {secret:?}");
            assert_eq!(
                answer["headers"]["content-type"],
                "application/problem+json"
            );
        }
    }
    // One enrolment is allowed per client. The gateway reports the same address for all of these
    // requests; the network reports different ones.
    for (seed, viewer, status) in [
        (21, "203.0.113.9:1", 201),
        (22, "203.0.113.9:2", 429),
        (23, "[2001:db8::1]:3", 201),
    ] {
        let mut event = enrolment(&world, &SecretKey::from_seed([seed; 32]));
        event["headers"]["x-vault-origin"] = "new-secret".into();
        event["headers"]["cloudfront-viewer-address"] = viewer.into();
        let answer = call(Group::Devices, &event).await;
        assert_eq!(answer["statusCode"], status, "{viewer}: {answer}");
    }
    // A schedule invokes the function directly, so this event needs no secret of the network.
    let schedule = include_str!("events/schedule.json");
    let admin = world.function(Group::Admin).with_edge(Some(edge.clone()));
    assert!(admin.handle_event(schedule).await.is_ok());
}

/// An operator who cannot sign in resets an account by invoking the function. HTTP has no such
/// route.
#[tokio::test]
async fn an_invocation_resets_an_account() {
    let world = world();
    let app = &world.app;
    common::bootstrap(app).await;
    let who = (common::OWNER, common::OWNER_PASSWORD);
    let held = common::tokens(app, who, "default", Scopes::ALL).await;
    let asked = json!({ "reset_account": common::OWNER }).to_string();
    let function = |group| Function::new(world.fresh(), Part::for_group(group), None);
    for group in GROUPS.into_iter().filter(|group| *group != Group::Admin) {
        let refused = function(group).handle_event(&asked).await;
        assert!(matches!(refused, Err(Failed::UnknownEvent)), "{group:?}");
    }
    // An HTTP request with the same member is handled as a request.
    let mut request = event("GET", "/healthz", &[], None);
    request["reset_account"] = json!(common::OWNER);
    let answered = function(Group::Admin)
        .handle_event(&request.to_string())
        .await;
    assert!(matches!(answered, Ok(Outcome::Http(_))));
    for nobody in ["nobody@example.org", "", "\u{0}"] {
        let asked = json!({ "reset_account": nobody }).to_string();
        let refused = function(Group::Admin).handle_event(&asked).await;
        assert!(matches!(refused, Err(Failed::NoAccount)), "{nobody}");
    }
    assert!(
        common::is_good(app, &held.access).await,
        "nothing was reset"
    );

    let reset = function(Group::Admin).handle_event(&asked).await.unwrap();
    assert!(!format!("{reset:?}").contains("vin_"), "never in a log");
    let reset = serde_json::to_value(reset).unwrap();
    assert_eq!(reset["email"], common::OWNER);
    assert!(!common::is_good(app, &held.access).await);
    common::set_password(app, reset["invite_url"].as_str().unwrap()).await;
    common::operator_token_of(app, (common::OWNER, common::PASSWORD), Scopes::ALL).await;
    let log = common::entries_of(app, None).await;
    let by_server = log.iter().find(|entry| entry.action == "account.reset");
    assert_eq!(by_server.unwrap().actor, "server");
}
