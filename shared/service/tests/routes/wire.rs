//! The service behind a real socket: requests as bytes, answers as bytes. Each row of the Errors table, what HTTP itself refuses, time
//! limits, and how the server stops. The limits of time are those of the service, so the two tests about them take as long as these.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::request::sign;
use vault_service::config::Limits;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{Kind, Status, Subscription};
use vault_service::model::user::{NamespaceRef, Role, Scopes};
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::{Commit, Record, RecordKey, Records, Write};
use vault_testing::memory::Memory;

use crate::common;
use crate::support::{World, key, world, world_with};

const BUNDLE: &str =
    "/v/acme/bundles/14b08d829706ecf75d52ed78701f66b319d92bc07b0c670f013836e8f5e1d1e3.json";
/// Longer than every limit of the service: whoever waits this long waits for nothing.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running service.
struct Served {
    world: World,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

async fn served(world: World) -> Served {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let app = world.app.clone();
    let running = tokio::spawn(async move {
        vault_service::serve::serve(listener, app, async { drop(stopped.await) }).await;
    });
    Served {
        world,
        address,
        stop,
        running,
    }
}

/// An answer as it came over the wire.
#[derive(Clone, Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    /// Reads one answer from the front of `bytes`; its body is what is left, unless a length is told. `None` where there is no answer.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().unwrap();
        let pair = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Some(Self {
            status,
            headers: lines.map(pair).collect(),
            body: String::from_utf8_lossy(&bytes[end + 4..]).into_owned(),
        })
    }

    fn header(&self, name: &str) -> &str {
        let mut found = self.headers.iter().filter(|(held, _)| held == name);
        let value = found.next().map_or("", |(_, value)| value);
        assert_eq!(found.next(), None, "{name} stands once: {self:?}");
        value
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    fn short(&self) -> String {
        match self.json()["code"].as_str() {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        }
    }

    /// Everything but the date and the request id.
    fn blotted(&self) -> String {
        let id = self.json()["request_id"].as_str().unwrap_or("-").to_owned();
        let headers: Vec<_> = self
            .headers
            .iter()
            .filter(|(name, _)| name != "date")
            .collect();
        format!(
            "{} {headers:?} {}",
            self.status,
            self.body.replace(&id, "[id]")
        )
    }
}

/// A request of these parts that asks the server to close afterwards.
fn bytes_of(method: &str, target: &str, headers: &[(String, String)], body: &str) -> Vec<u8> {
    let mut text =
        format!("{method} {target} HTTP/1.1\r\nHost: vault.example\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

fn own(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    headers.iter().map(pair).collect()
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes and reads until the server closes.
    async fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect().await;
        // A server that refuses early may close before everything is sent.
        let _ = stream.write_all(bytes).await;
        read_all(&mut stream).await
    }

    async fn reply(&self, bytes: &[u8]) -> Reply {
        let answer = self.raw(bytes).await;
        Reply::parse(&answer).unwrap_or_else(|| {
            panic!(
                "no answer to {:?}",
                String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
            )
        })
    }

    fn signature(
        &self,
        device: &SecretKey,
        method: &str,
        path: &str,
        skew: i64,
    ) -> Vec<(String, String)> {
        let signed = sign(device, method, path, self.world.now().plus_seconds(skew));
        vec![
            ("X-Vault-Device".into(), signed.device),
            ("X-Vault-Timestamp".into(), signed.timestamp),
            ("X-Vault-Signature".into(), signed.signature),
        ]
    }

    /// A request that a device signs now.
    async fn ask(&self, device: &SecretKey, method: &str, path: &str) -> Reply {
        let headers = self.signature(device, method, path, 0);
        self.reply(&bytes_of(method, path, &headers, "")).await
    }

    async fn enrol(&self, device: &SecretKey, slug: &str, media: &str, body: &str) -> Reply {
        let path = format!("/v/{slug}/devices");
        let mut headers = self.signature(device, "POST", &path, 0);
        if !media.is_empty() {
            headers.push(("Content-Type".into(), media.into()));
        }
        self.reply(&bytes_of("POST", &path, &headers, body)).await
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.reply(&bytes_of(method, path, &own(headers), body))
            .await
    }
}

async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut part = [0; 8192];
    loop {
        let read = timeout(PATIENCE, stream.read(&mut part))
            .await
            .expect("an answer or an end");
        match read {
            Ok(0) | Err(_) => return answer,
            Ok(count) => answer.extend_from_slice(&part[..count]),
        }
    }
}

/// What every problem answer has, whatever its route.
fn assert_problem(reply: &Reply, wanted: &str, row: &str) {
    assert_eq!(reply.short(), wanted, "{row}: {reply:?}");
    let problem = reply.json();
    assert_eq!(
        reply.header("content-type"),
        "application/problem+json",
        "{row}"
    );
    assert_eq!(problem["status"], json!(reply.status), "{row}");
    assert_eq!(problem["type"], "about:blank", "{row}");
    for member in ["title", "detail"] {
        assert!(
            problem[member]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{row}: {member}"
        );
    }
    assert_eq!(
        problem["request_id"].as_str().map(str::len),
        Some(26),
        "{row}"
    );
    assert_eq!(reply.header("cache-control"), "private, no-store", "{row}");
    assert_eq!(reply.header("x-content-type-options"), "nosniff", "{row}");
    assert!(reply.header("date").ends_with(" GMT"), "{row}");
    assert_eq!(
        reply.header("content-length"),
        reply.body.len().to_string(),
        "{row}"
    );
    for absent in [
        "location",
        "etag",
        "last-modified",
        "access-control-allow-origin",
        "content-encoding",
        "set-cookie",
        "server",
    ] {
        assert_eq!(reply.header(absent), "", "{row}: {absent}");
    }
}

/// A service with `acme` at release 42, `empty` without a release, `stopped`, `gone`, and a device in each state.
async fn busy() -> Served {
    let world = world();
    world.acme().await;
    for slug in ["empty", "stopped", "gone"] {
        world.namespace(slug, Kind::Hosted).await;
        world.device(slug, 1, DeviceStatus::Active).await;
    }
    world
        .change("stopped", |namespace| namespace.status = Status::Suspended)
        .await;
    world
        .change("gone", |namespace| namespace.status = Status::Deleted)
        .await;
    for (n, status) in [
        (1, DeviceStatus::Active),
        (2, DeviceStatus::Pending),
        (3, DeviceStatus::Revoked),
    ] {
        world.device("acme", n, status).await;
    }
    served(world).await
}

/// Rows 1 to 11 of the hosted table, and the hosted rows of the Errors table.
#[tokio::test]
async fn hosted_rows() {
    let served = busy().await;
    let (active, pending, revoked, stranger) = (key(1), key(2), key(3), key(9));
    let catalog = "/v/acme/catalog.json";
    let current = "/v/acme/devices/current";
    for (row, reply, wanted) in [
        (
            "1: no header",
            served.send("GET", catalog, &[], "").await,
            "401 signature_required",
        ),
        (
            "8: stranger",
            served.ask(&stranger, "GET", catalog).await,
            "401 device_unknown",
        ),
        (
            "8: unknown slug",
            served.ask(&active, "GET", "/v/nobody/catalog.json").await,
            "401 device_unknown",
        ),
        (
            "8: deleted",
            served.ask(&active, "GET", "/v/gone/catalog.json").await,
            "401 device_unknown",
        ),
        (
            "6: route",
            served.ask(&active, "GET", "/v/acme/nothing").await,
            "404 not_found",
        ),
        (
            "6: method",
            served.ask(&active, "PUT", catalog).await,
            "405 method_not_allowed",
        ),
        (
            "8a: suspended",
            served.ask(&active, "GET", "/v/stopped/catalog.json").await,
            "403 vault_suspended",
        ),
        (
            "8a: suspended, itself",
            served
                .ask(&active, "GET", "/v/stopped/devices/current")
                .await,
            "403 vault_suspended",
        ),
        (
            "9: pending",
            served.ask(&pending, "GET", BUNDLE).await,
            "403 device_pending",
        ),
        (
            "9: revoked",
            served.ask(&revoked, "GET", BUNDLE).await,
            "403 device_revoked",
        ),
        (
            "9: revoked, catalog",
            served.ask(&revoked, "GET", catalog).await,
            "403 device_revoked",
        ),
        (
            "11: no catalog yet",
            served.ask(&active, "GET", "/v/empty/catalog.json").await,
            "404 catalog_not_published",
        ),
        (
            "11: no such bundle",
            served
                .ask(
                    &active,
                    "GET",
                    &format!("/v/acme/bundles/{}.json", "0".repeat(64)),
                )
                .await,
            "404 bundle_not_found",
        ),
    ] {
        assert_problem(&reply, wanted, row);
        let challenge = if reply.status == 401 {
            "VaultDevice"
        } else {
            ""
        };
        assert_eq!(reply.header("www-authenticate"), challenge, "{row}");
        let allow = if reply.status == 405 { "GET, HEAD" } else { "" };
        assert_eq!(reply.header("allow"), allow, "{row}");
    }
    let told = served.ask(&active, "GET", "/v/empty/catalog.json").await;
    assert_eq!(
        told.json()["detail"],
        "This vault has no published catalog yet."
    );

    let good = served.ask(&active, "GET", BUNDLE).await;
    assert_eq!(
        (
            good.status,
            Digest::of(good.body.as_bytes()).to_string().as_str()
        ),
        (200, &BUNDLE[16..80])
    );
    assert!(good.header("repr-digest").starts_with("sha-256=:"));
    for device in [&active, &pending] {
        assert_eq!(
            served.ask(device, "GET", catalog).await.body.as_bytes(),
            crate::support::vector("catalog-42.json")
        );
    }
    for (device, status, seen) in [
        (&active, "active", true),
        (&pending, "pending", true),
        (&revoked, "revoked", false),
    ] {
        let reply = served.ask(device, "GET", current).await;
        assert_eq!(
            (reply.status, &reply.json()["status"]),
            (200, &json!(status))
        );
        assert_eq!(reply.json()["catalog"]["release"].as_u64().is_some(), seen);
        assert_eq!(reply.header("cache-control"), "private, no-store");
    }

    served
        .world
        .change("acme", |namespace| {
            namespace.subscription = Subscription::Lapsed;
        })
        .await;
    assert_problem(
        &served.ask(&active, "GET", BUNDLE).await,
        "402 subscription_lapsed",
        "10",
    );
    assert_eq!(
        served.ask(&active, "GET", catalog).await.status,
        200,
        "the catalog keeps answering"
    );
    assert_problem(
        &served.ask(&pending, "GET", BUNDLE).await,
        "403 device_pending",
        "9 before 10",
    );
    served
        .world
        .change("acme", |namespace| {
            namespace.subscription = Subscription::Active;
        })
        .await;

    let namespace = served.world.read_namespace("acme").await;
    let lost: Digest = BUNDLE[16..80].parse().unwrap();
    let fresh = {
        // A process that remembers no object.
        let app = &served.world.app;
        app.objects
            .delete(&namespace.object(Class::Bundles, lost))
            .await
            .unwrap();
        let mut world = world();
        world.app = vault_service::App::new(
            app.records.clone(),
            app.objects.clone(),
            app.clock.clone(),
            app.random.clone(),
            (*app.config).clone(),
        );
        self::served(world).await
    };
    let reply = fresh.ask(&active, "GET", BUNDLE).await;
    assert_problem(&reply, "503 bundle_unavailable", "named, but missing");
    assert_eq!(reply.header("retry-after"), "1");
}

/// Rows 1 to 4 in their order, and what is signed: the path as sent.
#[tokio::test]
async fn signatures() {
    let served = busy().await;
    let device = key(1);
    let path = "/v/acme/catalog.json";
    let good = served.signature(&device, "GET", path, 0);
    let with = |at: usize, value: &str| {
        let mut headers = good.clone();
        headers[at].1 = value.to_owned();
        headers
    };
    let twice = |at: usize| {
        let mut headers = good.clone();
        headers.push(headers[at].clone());
        headers
    };
    let without = |at: usize| {
        let mut headers = good.clone();
        headers.remove(at);
        headers
    };
    let late = served.signature(&device, "GET", path, -301);
    let mut late_and_wrong = late.clone();
    late_and_wrong[2].1 = good[2].1.clone();
    let joined = format!("{}, {}", good[0].1, good[0].1);
    let mut late_and_odd = late.clone();
    late_and_odd[2].1 = "x".into();
    let head = served.signature(&device, "HEAD", path, 0);
    let query = served.signature(&device, "GET", &format!("{path}?x"), 0);
    for (what, headers, wanted) in [
        ("no device", without(0), "401 signature_required"),
        ("no time", without(1), "401 signature_required"),
        ("no signature", without(2), "401 signature_required"),
        ("two devices", twice(0), "401 signature_required"),
        ("two times", twice(1), "401 signature_required"),
        ("two signatures", twice(2), "401 signature_required"),
        ("joined", with(0, &joined), "401 signature_invalid"),
        (
            "padded",
            with(0, &format!("{}=", good[0].1)),
            "401 signature_invalid",
        ),
        ("empty", with(0, ""), "401 signature_invalid"),
        (
            "small order",
            with(0, &"A".repeat(43)),
            "401 signature_invalid",
        ),
        ("not a number", with(1, "now"), "401 signature_invalid"),
        (
            "a sign",
            with(1, &format!("+{}", good[1].1)),
            "401 signature_invalid",
        ),
        (
            "a fraction",
            with(1, &format!("{}.0", good[1].1)),
            "401 signature_invalid",
        ),
        ("short", with(2, &good[2].1[1..]), "401 signature_invalid"),
        ("row 2 before row 3", late_and_odd, "401 signature_invalid"),
        (
            "row 3 before row 4",
            late_and_wrong,
            "401 timestamp_out_of_range",
        ),
        ("late", late, "401 timestamp_out_of_range"),
        (
            "early",
            served.signature(&device, "GET", path, 301),
            "401 timestamp_out_of_range",
        ),
        (
            "of another time",
            with(1, "1"),
            "401 timestamp_out_of_range",
        ),
        ("of another method", head, "401 signature_invalid"),
        (
            "of another path",
            served.signature(&device, "GET", "/v/acme/devices/current", 0),
            "401 signature_invalid",
        ),
        ("with the query", query, "401 signature_invalid"),
        (
            "by another key",
            with(0, &key(2).public().to_string()),
            "401 signature_invalid",
        ),
        (
            "late within 300 s",
            served.signature(&device, "GET", path, -300),
            "200",
        ),
        (
            "early within 300 s",
            served.signature(&device, "GET", path, 300),
            "200",
        ),
    ] {
        let reply = served.reply(&bytes_of("GET", path, &headers, "")).await;
        if wanted == "200" {
            assert_eq!(reply.status, 200, "{what}");
            continue;
        }
        assert_problem(&reply, wanted, what);
        assert_eq!(reply.header("www-authenticate"), "VaultDevice", "{what}");
        if wanted.ends_with("range") {
            assert_eq!(
                reply.header("date"),
                "Sat, 21 Nov 2026 02:00:10 GMT",
                "the clock that decided"
            );
        }
    }
    // Bytes that are no text.
    let mut bytes = bytes_of("GET", path, &with(0, "ZZZ"), "");
    let at = bytes.windows(3).position(|three| three == b"ZZZ").unwrap();
    bytes[at] = 0xff;
    assert_problem(
        &served.reply(&bytes).await,
        "401 signature_invalid",
        "not text",
    );
    let queried = served
        .reply(&bytes_of("GET", &format!("{path}?a=b"), &good, ""))
        .await;
    assert_eq!(queried.status, 200, "the query is not signed and not read");
}

/// Row 1: unsigned requests get one answer, whatever they ask for; nothing under `/v/` redirects.
#[tokio::test]
async fn unsigned_requests_learn_nothing() {
    let served = busy().await;
    let wanted = served.send("GET", "/v/acme/catalog.json", &[], "").await;
    assert_problem(&wanted, "401 signature_required", "reference");
    let long = format!("/v/{}", "a".repeat(1021));
    for target in [
        "/v/",
        "/v/acme",
        "/v/acme/",
        "/v//",
        "/v/../admin",
        "/v/./acme/catalog.json",
        "/v/acme//catalog.json",
        "/v/acme/catalog.json?x=y&z",
        "/v/acme/catalog.json;x",
        "/v/%61cme/catalog.json",
        "/v/%2e%2e/healthz",
        "/v/%zz",
        "/v/%",
        "/v/%00",
        "/v/ACME/CATALOG.JSON",
        "/v/nobody/devices/current",
        "/v/gone/catalog.json",
        "/v/stopped/catalog.json",
        "/v/acme/catalog.json#part",
        "http://vault.example/v/acme/catalog.json",
        "http://elsewhere.example/v/nobody",
        BUNDLE,
        &long,
    ] {
        for method in [
            "GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "get",
        ] {
            let reply = served.send(method, target, &[], "").await;
            assert_eq!(reply.blotted(), wanted.blotted(), "{method} {target}");
        }
        let head = served.send("HEAD", target, &[], "").await;
        assert_eq!(
            (head.status, &head.body[..], head.header("content-length")),
            (401, "", wanted.header("content-length")),
            "{target}"
        );
    }
    for headers in [
        &[("Origin", "https://evil.example")][..],
        &[("Authorization", "Bearer vat_x"), ("Cookie", "a=b")],
        &[
            ("If-None-Match", "*"),
            ("Range", "bytes=0-0"),
            ("Accept-Encoding", "gzip, br"),
        ],
        &[
            ("Access-Control-Request-Method", "GET"),
            ("Origin", "https://evil.example"),
        ],
        &[
            ("X-Forwarded-For", "10.0.0.1"),
            ("X-Forwarded-Host", "evil.example"),
            ("X-Original-URL", "/admin"),
        ],
        &[
            ("X-HTTP-Method-Override", "POST"),
            ("Upgrade", "h2c"),
            ("Content-Type", "application/json"),
        ],
    ] {
        for method in ["GET", "OPTIONS"] {
            let reply = served
                .send(method, "/v/acme/catalog.json", headers, "")
                .await;
            assert_eq!(reply.blotted(), wanted.blotted(), "{headers:?}");
        }
    }
    // The body of an unsigned request is neither read nor waited for.
    let announced = bytes_of(
        "POST",
        "/v/acme/devices",
        &own(&[("Content-Length", "1000000000")]),
        "",
    );
    assert_eq!(
        served.reply(&announced).await.short(),
        "401 signature_required"
    );
    let expecting = bytes_of(
        "POST",
        "/v/acme/devices",
        &own(&[("Content-Length", "10"), ("Expect", "100-continue")]),
        "",
    );
    assert_eq!(
        served.reply(&expecting).await.short(),
        "401 signature_required",
        "no 100 before the check"
    );
}

/// After a good signature an odd path is 404, or 401 where the HTTP library took something off the path: never a redirect, never data.
#[tokio::test]
async fn odd_paths_with_a_good_signature() {
    let served = busy().await;
    let device = key(1);
    let upper = BUNDLE
        .to_uppercase()
        .replace("/V/ACME/BUNDLES", "/v/acme/bundles")
        .replace(".JSON", ".json");
    let over = format!("/v/acme/bundles/{}.json", "0".repeat(236));
    for path in [
        "/v/",
        "/v/acme",
        "/v/acme/",
        "/v/acme/catalog.json/",
        "/v//acme/catalog.json",
        "/v/acme//catalog.json",
        "/v/acme/./catalog.json",
        "/v/acme/../acme/catalog.json",
        "/v/acme/catalog.json;a",
        "/v/acme/catalog.json%00",
        "/v/acme/catalog.json%3Fx",
        "/v/%61cme/catalog.json",
        "/v/ac%2fme/catalog.json",
        "/v/acme/catalog%2Ejson",
        "/v/acme/Catalog.json",
        "/v/Acme/catalog.json",
        "/v/acme/catalog.json*",
        "/v/acme/catalog.json|",
        "/v/acme/devices/current/",
        &upper,
        &over,
    ] {
        let reply = served.ask(&device, "GET", path).await;
        assert_problem(&reply, "404 not_found", path);
    }
    // Raw bytes above ASCII: signed as they are sent.
    let path = "/v/acm\u{e9}/catalog.json";
    let reply = served
        .raw(&bytes_of(
            "GET",
            path,
            &served.signature(&device, "GET", path, 0),
            "",
        ))
        .await;
    let status = Reply::parse(&reply).map_or(400, |reply| reply.status);
    assert!([400, 401, 404].contains(&status), "{status}");
    // A fragment is no part of a request target; what is left of it was not signed.
    let path = "/v/acme/catalog.json#x";
    assert_problem(
        &served.ask(&device, "GET", path).await,
        "401 signature_invalid",
        path,
    );
    // Absolute form: the path alone is signed and routed, and the host name changes nothing.
    let headers = served.signature(&device, "GET", "/v/acme/catalog.json", 0);
    for target in [
        "http://vault.example/v/acme/catalog.json",
        "http://elsewhere.example:1/v/acme/catalog.json",
    ] {
        assert_eq!(
            served
                .reply(&bytes_of("GET", target, &headers, ""))
                .await
                .status,
            200,
            "{target}"
        );
    }
    for host in [
        "Host: elsewhere.example\r\n",
        "Host: \r\n",
        "Host: a b\r\n",
        "",
    ] {
        let mut text = format!("GET /v/acme/catalog.json HTTP/1.1\r\nConnection: close\r\n{host}");
        for (name, value) in &headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        assert_eq!(served.reply(text.as_bytes()).await.status, 200, "{host:?}");
    }
}

#[tokio::test]
async fn methods() {
    let served = busy().await;
    let device = key(1);
    for (path, allow) in [
        ("/v/acme/devices", "POST"),
        ("/v/acme/devices/current", "GET, HEAD"),
        ("/v/acme/catalog.json", "GET, HEAD"),
        (BUNDLE, "GET, HEAD"),
    ] {
        for method in [
            "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "X",
        ] {
            if allow.split(", ").any(|allowed| allowed == method) {
                continue;
            }
            let reply = served.ask(&device, method, path).await;
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, allow),
                "{method} {path}"
            );
            assert_eq!(reply.header("access-control-allow-methods"), "");
        }
        if allow != "POST" {
            let got = served.ask(&device, "GET", path).await;
            let head = served.ask(&device, "HEAD", path).await;
            let dateless = |reply: &Reply| {
                reply
                    .headers
                    .iter()
                    .filter(|(name, _)| name != "date")
                    .cloned()
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                (head.status, dateless(&head), head.body.len()),
                (200, dateless(&got), 0),
                "{path}"
            );
            assert_eq!(got.header("content-length"), got.body.len().to_string());
        }
    }
    for (method, path, wanted) in [
        ("POST", "/healthz", "405 method_not_allowed"),
        ("OPTIONS", "/healthz", "405 method_not_allowed"),
        ("DELETE", "/oauth/token", "405"),
        ("GET", "/v", "404 not_found"),
        ("GET", "/", "404 not_found"),
        ("GET", "//v/acme/catalog.json", "404 not_found"),
        ("GET", "/%76/acme/catalog.json", "404 not_found"),
        ("GET", "/V/acme/catalog.json", "404 not_found"),
        ("OPTIONS", "*", "404 not_found"),
        ("GET", "/healthz/", "404 not_found"),
        ("GET", "/healthz%2f", "404 not_found"),
    ] {
        let reply = served.send(method, path, &[], "").await;
        assert!(
            reply.short().starts_with(wanted),
            "{method} {path}: {reply:?}"
        );
    }
    // No browser reads owner routes either.
    let preflight = [
        ("Origin", "https://evil.example"),
        ("Access-Control-Request-Method", "PUT"),
    ];
    let reply = served
        .send("OPTIONS", "/admin/vaults/acme/catalog", &preflight, "")
        .await;
    assert_problem(&reply, "405 method_not_allowed", "preflight");
}

/// Row 7: 413, 415, 400 JSON, mismatch, host name; then the look-ups.
#[tokio::test]
async fn enrolment_rows() {
    let served = busy().await;
    let device = key(9);
    let json = "application/json";
    let body = |public: &str, hostname: &str| {
        json!({"public_key": public, "hostname": hostname}).to_string()
    };
    let mine = device.public().to_string();
    let good = body(&mine, "laptop");
    let padded = format!("{good}{}", " ".repeat(4096 - good.len()));
    let too_large = format!("{padded} ");
    let other = body(&key(8).public().to_string(), "\n");
    let mut upper = mine.clone();
    upper.make_ascii_uppercase();
    for (slug, media, body, wanted) in [
        (
            "nobody",
            "text/plain",
            too_large.as_str(),
            "413 body_too_large",
        ),
        ("nobody", "text/plain", "{", "415 media_type"),
        ("nobody", "", "{", "415 media_type"),
        ("nobody", json, "{", "400 json_invalid"),
        ("nobody", json, "", "400 json_invalid"),
        ("nobody", json, "{\"hostname\":\"x\"}", "400 json_invalid"),
        ("nobody", json, &other, "400 public_key_mismatch"),
        (
            "nobody",
            json,
            &body(&upper, "x"),
            "400 public_key_mismatch",
        ),
        (
            "nobody",
            json,
            &body(&format!("{mine}="), "x"),
            "400 public_key_mismatch",
        ),
        ("nobody", json, &body(&mine, ""), "400 hostname_invalid"),
        (
            "nobody",
            json,
            &body(&mine, "a\u{202e}b"),
            "400 hostname_invalid",
        ),
        (
            "nobody",
            json,
            &body(&mine, &"x".repeat(65)),
            "400 hostname_invalid",
        ),
        ("nobody", json, &good, "404 vault_not_found"),
        ("gone", json, &good, "404 vault_not_found"),
        ("stopped", json, &good, "403 vault_suspended"),
    ] {
        let reply = served.enrol(&device, slug, media, body).await;
        assert_problem(&reply, wanted, &body[..body.len().min(90)]);
        for secret in [mine.as_str(), slug, "laptop"] {
            assert!(
                !reply.body.contains(secret),
                "nothing is echoed: {}",
                reply.body
            );
        }
    }
    let first = served
        .enrol(&device, "acme", "application/json; charset=utf-8", &padded)
        .await;
    assert_eq!(
        (first.status, first.header("location")),
        (201, ""),
        "{first:?}"
    );
    let again = served
        .enrol(&device, "acme", json, &body(&mine, "another"))
        .await;
    assert_eq!((again.status, again.json()), (200, first.json()));
    // 20 wait at most, and four were counted above; a machine that is known is never locked out.
    for n in 20..36 {
        let device = key(n);
        let reply = served
            .enrol(
                &device,
                "acme",
                json,
                &body(&device.public().to_string(), "x"),
            )
            .await;
        assert_eq!(reply.status, 201, "{n}");
    }
    let device = key(40);
    let full = served
        .enrol(
            &device,
            "acme",
            json,
            &body(&device.public().to_string(), "x"),
        )
        .await;
    assert_problem(&full, "409 pending_queue_full", "full");
    for known in [&key(1), &key(3), &key(9)] {
        let reply = served
            .enrol(known, "acme", json, &body(&known.public().to_string(), "x"))
            .await;
        assert_eq!(reply.status, 200);
    }
}

/// Fifty machines at once, each over its own connection: exactly twenty wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_enrolments_at_once() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    let served = Arc::new(served(world).await);
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..50 {
        let served = Arc::clone(&served);
        asked.spawn(async move {
            let device = key(100 + n);
            let body = json!({"public_key": device.public(), "hostname": "x"}).to_string();
            served
                .enrol(&device, "acme", "application/json", &body)
                .await
                .short()
        });
    }
    let mut all = asked.join_all().await;
    all.sort();
    assert_eq!(all.iter().filter(|short| *short == "201").count(), 20);
    assert_eq!(
        all.iter()
            .filter(|short| *short == "409 pending_queue_full")
            .count(),
        30
    );
}

/// Row 5, over HTTP: 429 with `Retry-After`, counted by the address that asks or that a trusted proxy names.
#[tokio::test]
async fn rates() {
    let limits = Limits {
        enrol_per_slug: 2,
        enrol_per_source: 3,
        catalog_per_device: 2,
        bundles_per_device: 1,
        ..Limits::off()
    };
    for (trusted, wanted) in [
        (
            None,
            [
                "201",
                "201",
                "429 rate_limited",
                "429 rate_limited",
                "201",
                "429 rate_limited",
            ],
        ),
        (
            Some("127.0.0.0/8"),
            [
                "201",
                "201",
                "429 rate_limited",
                "201",
                "201",
                "429 rate_limited",
            ],
        ),
    ] {
        let world = world_with(|config| {
            config.limits = limits;
            config.trusted_proxies = trusted.iter().map(|net| net.parse().unwrap()).collect();
        });
        world.namespace("acme", Kind::Hosted).await;
        world.namespace("other", Kind::Hosted).await;
        let served = served(world).await;
        let enrol = async |n: u8, slug: &str, from: &str| {
            let device = key(n);
            let path = format!("/v/{slug}/devices");
            let mut headers = served.signature(&device, "POST", &path, 0);
            headers.extend(own(&[
                ("X-Forwarded-For", from),
                ("Content-Type", "application/json"),
            ]));
            let body = json!({"public_key": device.public(), "hostname": "x"}).to_string();
            served
                .reply(&bytes_of("POST", &path, &headers, &body))
                .await
        };
        let mut got = Vec::new();
        for (n, slug, from) in [
            (1, "acme", "192.0.2.1"),
            (2, "acme", "192.0.2.1"),
            (3, "acme", "192.0.2.1"),
            (4, "acme", "192.0.2.2"),
            (5, "other", "192.0.2.1"),
            (6, "other", "192.0.2.1"),
        ] {
            let reply = enrol(n, slug, from).await;
            if reply.status == 429 {
                assert_problem(&reply, "429 rate_limited", "enrolment");
                assert_eq!(
                    reply.header("retry-after"),
                    "50",
                    "ten seconds past the minute"
                );
            }
            got.push(reply.short());
        }
        assert_eq!(got, wanted, "{trusted:?}");
        assert_eq!(
            enrol(1, "acme", "192.0.2.1").await.status,
            200,
            "a known key is not counted"
        );
        for (path, allowed) in [("/v/acme/devices/current", 2), (BUNDLE, 1)] {
            for _ in 0..allowed {
                assert_ne!(served.ask(&key(1), "GET", path).await.status, 429);
            }
            let reply = served.ask(&key(1), "GET", path).await;
            assert_problem(&reply, "429 rate_limited", path);
            assert_eq!(reply.header("retry-after"), "50");
        }
        let late = served
            .reply(&bytes_of(
                "GET",
                BUNDLE,
                &served.signature(&key(1), "GET", BUNDLE, 999),
                "",
            ))
            .await;
        assert_problem(
            &late,
            "401 timestamp_out_of_range",
            "rows 3 and 4 before row 5",
        );
    }
}

/// 414 and 431 come before row 1, at the byte; far beyond, the HTTP library refuses with the same status.
#[tokio::test]
async fn heads_that_are_too_large() {
    let served = busy().await;
    for (length, wanted) in [
        (1024, "401 signature_required"),
        (1025, "414 path_too_long"),
        (60_000, "414 path_too_long"),
    ] {
        let path = format!("/v/{}", "a".repeat(length - 3));
        assert_problem(&served.send("GET", &path, &[], "").await, wanted, "path");
    }
    // name, colon, space, value, line end; Host and Connection count too
    let others = "Host: vault.example\r\nConnection: close\r\n".len();
    for (length, wanted) in [
        (16 * 1024 - others, "401 signature_required"),
        (16 * 1024 - others + 1, "431 headers_too_large"),
        (60_000, "431 headers_too_large"),
    ] {
        let value = "v".repeat(length - "x: \r\n".len());
        assert_problem(
            &served
                .send("GET", "/v/acme/catalog.json", &[("x", &value)], "")
                .await,
            wanted,
            "headers",
        );
    }
    let many = own(&vec![("a", "b"); 250]);
    assert_problem(
        &served.reply(&bytes_of("GET", "/v/", &many, "")).await,
        "401 signature_required",
        "250 fields",
    );
    let query = format!("/healthz?{}", "q".repeat(15_000));
    assert_eq!(
        served.send("GET", &query, &[], "").await.status,
        200,
        "a query is no path"
    );
    for (what, bytes, status) in [
        (
            "a field of 1 MiB",
            bytes_of("GET", "/", &own(&[("x", &"v".repeat(1 << 20))]), ""),
            431,
        ),
        (
            "300 fields",
            bytes_of("GET", "/", &own(&vec![("a", "b"); 300]), ""),
            431,
        ),
        (
            "a target of 65 KiB",
            bytes_of("GET", &format!("/{}", "a".repeat(66_000)), &[], ""),
            414,
        ),
    ] {
        let reply = served.raw(&bytes).await;
        // Sending on while the server refuses may cost the answer, never the refusal.
        if let Some(reply) = Reply::parse(&reply) {
            assert!(
                reply.status == status || reply.status == 431,
                "{what}: {}",
                reply.status
            );
        }
    }
    assert_eq!(
        served.send("GET", "/healthz", &[], "").await.status,
        200,
        "the server goes on"
    );
}

/// What is no HTTP is 400 and closes; nothing is guessed at.
#[tokio::test]
async fn malformed_requests() {
    let served = busy().await;
    let post = "POST /oauth/token HTTP/1.1\r\nHost: vault.example\r\n";
    for text in [
        "\r\n\r\n\r\n\0".to_owned(),
        "GET\r\n\r\n".into(),
        "GET / HTTP/9.9\r\n\r\n".into(),
        "GET /v/a b/catalog.json HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET /v/\u{0}/catalog.json HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "G\u{1}T / HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nbad name: x\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nx : y\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nx: a\r\n folded\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nx: \u{0}\r\n\r\n".into(),
        format!("{post}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        format!("{post}Content-Length: -1\r\n\r\nab"),
        format!("{post}Content-Length: +1\r\n\r\nab"),
        format!("{post}Content-Length: 1, 2\r\n\r\nab"),
        format!("{post}Transfer-Encoding: gzip\r\n\r\nab"),
        format!("{post}Transfer-Encoding: chunked, gzip\r\n\r\nab"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}".into(),
    ] {
        let mut stream = served.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_all(&mut stream).await;
        let status = Reply::parse(&answer).map(|reply| reply.status);
        assert!(matches!(status, Some(400) | None), "{text:?}: {status:?}");
        assert!(
            answer.windows(4).filter(|four| four == b"HTTP").count() <= 1,
            "one answer at most: {text:?}"
        );
    }
    // Both framings at once: whichever counts, the rest is never taken for a second request.
    let smuggled = format!(
        "{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    );
    let mut stream = served.connect().await;
    stream.write_all(smuggled.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = String::from_utf8(read_all(&mut stream).await).unwrap();
    assert!(!answer.contains("boot_time"), "{answer}");
    assert_eq!(served.send("GET", "/healthz", &[], "").await.status, 200);
}

/// Bodies are counted while they are read, however they are framed.
#[tokio::test]
async fn bodies_that_are_too_large_or_cut() {
    let served = busy().await;
    let device = key(9);
    let path = "/v/acme/devices";
    let mut headers = served.signature(&device, "POST", path, 0);
    headers.extend(own(&[
        ("Content-Type", "application/json"),
        ("Transfer-Encoding", "chunked"),
    ]));
    let head = String::from_utf8(bytes_of("POST", path, &headers, "")).unwrap();
    let chunk = format!("800\r\n{}\r\n", "x".repeat(0x800));
    let chunked =
        |count: usize, end: &str| format!("{head}{}{end}", chunk.repeat(count)).into_bytes();
    let end = "0\r\n\r\n";
    assert_problem(
        &served.reply(&chunked(2, end)).await,
        "400 json_invalid",
        "4 KiB",
    );
    assert_problem(
        &served.reply(&chunked(2, "1\r\nx\r\n0\r\n\r\n")).await,
        "413 body_too_large",
        "one byte more",
    );
    assert_problem(
        &served.reply(&chunked(100, end)).await,
        "413 body_too_large",
        "much more, read to its end",
    );
    assert_problem(
        &served.reply(&chunked(2, "z\r\n")).await,
        "400 request_invalid",
        "a chunk of no size",
    );

    let mut announced = served.signature(&device, "POST", path, 0);
    announced.extend(own(&[
        ("Content-Type", "application/json"),
        ("Content-Length", "1000000000"),
        ("Expect", "100-continue"),
    ]));
    let reply = served.reply(&bytes_of("POST", path, &announced, "")).await;
    assert_problem(
        &reply,
        "413 body_too_large",
        "announced, and never asked for",
    );

    // A sender that breaks off changes nothing.
    let mut cut = served.signature(&device, "POST", path, 0);
    cut.extend(own(&[
        ("Content-Type", "application/json"),
        ("Content-Length", "100"),
    ]));
    let mut stream = served.connect().await;
    stream
        .write_all(&bytes_of("POST", path, &cut, ""))
        .await
        .unwrap();
    stream.write_all(b"{\"public_key\"").await.unwrap();
    drop(stream);
    assert_eq!(
        served
            .ask(&device, "GET", "/v/acme/devices/current")
            .await
            .short(),
        "401 device_unknown"
    );

    for (path, limit, wanted) in [
        ("/oauth/register", 16 * 1024, "413"),
        ("/oauth/token", 8 * 1024, "413"),
    ] {
        let body = " ".repeat(limit + 1);
        let media = if path.ends_with("token") {
            "application/x-www-form-urlencoded"
        } else {
            "application/json"
        };
        let reply = served
            .send("POST", path, &[("Content-Type", media)], &body)
            .await;
        assert!(reply.short().starts_with(wanted), "{path}: {reply:?}");
    }
}

/// 408 for a body that stalls, a closed connection for a head that does, 503 for a handler that does.
#[tokio::test]
async fn time_limits() {
    let served = busy().await;
    let device = key(9);
    let path = "/v/acme/devices";
    let mut headers = served.signature(&device, "POST", path, 0);
    headers.extend(own(&[
        ("Content-Type", "application/json"),
        ("Content-Length", "100"),
    ]));
    let mut slow_body = bytes_of("POST", path, &headers, "");
    slow_body.push(b'{');
    let mut world = world();
    world.app.records = Arc::new(Odd(Oddity::NeverAnswers));
    let stuck = self::served(world).await;
    let (body, head, handler, ping) = tokio::join!(
        served.raw(&slow_body),
        served.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nx-slow: "),
        stuck.ask(&device, "GET", "/v/acme/catalog.json"),
        stuck.send("GET", "/healthz", &[], ""),
    );
    let body = Reply::parse(&body).unwrap();
    assert_problem(&body, "408 body_timeout", "a body that stalls");
    assert!(
        Reply::parse(&head).is_none_or(|reply| reply.status == 408),
        "a head that stalls is closed"
    );
    assert_problem(&handler, "503 unavailable", "a handler that stalls");
    assert_eq!(handler.header("retry-after"), "1");
    assert_eq!(
        (ping.status, &ping.json()["database"]["status"]),
        (503, &json!("error")),
        "the ping waits a second"
    );
}

enum Oddity {
    NeverAnswers,
    Panics,
    Waits(Arc<Notify>, Arc<Notify>, Arc<Memory>),
}

/// A database that behaves badly.
struct Odd(Oddity);

impl Odd {
    async fn get(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        match &self.0 {
            Oddity::NeverAnswers => std::future::pending().await,
            Oddity::Panics => panic!("the adapter has a bug, and knows the password hunter2"),
            // Writes go through at once.
            Oddity::Waits(..) if keys.is_empty() => Ok(Vec::new()),
            Oddity::Waits(begun, go_on, memory) => {
                begun.notify_one();
                go_on.notified().await;
                memory.get_many(keys).await
            }
        }
    }
}

#[async_trait]
impl Records for Odd {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        self.get(keys).await
    }
    async fn list(
        &self,
        _: &str,
        _: &str,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.get(&[]).await.map(|_| Vec::new())
    }
    async fn commit(&self, _: Vec<Write>) -> Result<Commit, StoreError> {
        self.get(&[]).await.map(|_| Commit::Done(Vec::new()))
    }
    async fn sweep(&self, _: usize) -> Result<usize, StoreError> {
        self.get(&[]).await.map(|_| 0)
    }
    async fn ping(&self) -> Result<(), StoreError> {
        self.get(&[]).await.map(|_| ())
    }
}

/// One request that hits a bug of ours is 500 with a request id and nothing else; the connection and all others go on.
#[tokio::test]
async fn a_panic_is_500() {
    let mut world = world();
    world.app.records = Arc::new(Odd(Oddity::Panics));
    let served = served(world).await;
    let reply = served.ask(&key(1), "GET", "/v/acme/catalog.json").await;
    assert_problem(&reply, "500 internal", "panic");
    assert!(!reply.body.contains("hunter2"));
    assert_eq!(
        served.send("GET", "/v/", &[], "").await.short(),
        "401 signature_required"
    );
}

/// Told to stop: nobody new gets in, who is being answered gets the whole answer, then the server ends.
#[tokio::test]
async fn a_graceful_stop() {
    let mut world = world();
    world.acme().await;
    world.device("acme", 1, DeviceStatus::Active).await;
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    world.app.records = Arc::new(Odd(Oddity::Waits(
        begun.clone(),
        go_on.clone(),
        world.memory.clone(),
    )));
    let served = served(world).await;
    let mut idle = served.connect().await;
    let mut asking = served.connect().await;
    let headers = served.signature(&key(1), "GET", "/v/acme/catalog.json", 0);
    let request = String::from_utf8(bytes_of("GET", "/v/acme/catalog.json", &headers, ""))
        .unwrap()
        .replace("Connection: close\r\n", "");
    asking.write_all(request.as_bytes()).await.unwrap();
    begun.notified().await;

    served.stop.send(()).unwrap();
    assert_eq!(
        read_all(&mut idle).await,
        b"",
        "an idle connection is closed"
    );
    let refused = TcpStream::connect(served.address).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );
    assert!(
        !served.running.is_finished(),
        "somebody is still being answered"
    );
    go_on.notify_one();
    let answer = Reply::parse(&read_all(&mut asking).await).unwrap();
    assert_eq!(
        (answer.status, answer.body.as_bytes()),
        (200, &crate::support::vector("catalog-42.json")[..])
    );
    timeout(PATIENCE, served.running)
        .await
        .expect("the server ends")
        .unwrap();
}

/// Whoever never ends is left behind after ten seconds.
#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let mut world = world();
    let (begun, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    world.app.records = Arc::new(Odd(Oddity::Waits(
        begun.clone(),
        never,
        world.memory.clone(),
    )));
    let served = served(world).await;
    let mut stream = served.connect().await;
    let headers = served.signature(&key(1), "GET", "/v/acme/catalog.json", 0);
    stream
        .write_all(&bytes_of("GET", "/v/acme/catalog.json", &headers, ""))
        .await
        .unwrap();
    begun.notified().await;
    served.stop.send(()).unwrap();
    timeout(PATIENCE, served.running)
        .await
        .expect("the server ends")
        .unwrap();
}

/// Several requests over one connection: answers in their order, a HEAD without a body between them.
#[tokio::test]
async fn a_connection_is_kept() {
    let served = busy().await;
    let mut text = String::new();
    for (method, path) in [
        ("GET", "/v/acme/catalog.json"),
        ("HEAD", "/v/acme/catalog.json"),
        ("PUT", "/nowhere"),
        ("GET", "/v/acme/devices/current"),
    ] {
        text.push_str(&format!("{method} {path} HTTP/1.1\r\nHost: x\r\n"));
        for (name, value) in served.signature(&key(1), method, path, 0) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
    }
    text.push_str("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = served.raw(text.as_bytes()).await;
    let mut statuses = Vec::new();
    let mut turn = 0;
    while let Some(reply) = Reply::parse(&answer) {
        statuses.push(reply.status);
        let head = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap()
            + 4;
        let body = if turn == 1 {
            0
        } else {
            reply.header("content-length").parse().unwrap()
        };
        answer.drain(..head + body);
        turn += 1;
    }
    assert_eq!(statuses, [200, 200, 404, 200, 200]);
}

/// The OAuth rows, and owner routes for who may not.
#[tokio::test]
async fn oauth_and_owner_rows() {
    let served = busy().await;
    let app = &served.world.app;
    common::bootstrap(app).await;
    let acme = served.world.read_namespace("acme").await;
    let reference = NamespaceRef {
        slug: acme.slug.clone(),
        id: acme.id,
    };
    common::member(
        app,
        "bob@example.org",
        &reference,
        Role::Member,
        Scopes::ALL,
    )
    .await;
    common::member(app, "ada@example.org", &reference, Role::Owner, Scopes::ALL).await;
    let member = common::tokens(
        app,
        ("bob@example.org", common::PASSWORD),
        "acme",
        Scopes::ALL,
    )
    .await;
    let reading = common::tokens(
        app,
        ("ada@example.org", common::PASSWORD),
        "acme",
        Scopes::READ,
    )
    .await;

    for path in [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    ] {
        let reply = served.send("GET", path, &[], "").await;
        assert_eq!(
            (reply.status, &reply.json()["issuer"]),
            (200, &json!("https://vault.example"))
        );
    }
    let authorize = |challenge: &str| {
        format!(
            "/oauth/authorize?response_type=code&client_id={}&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&state=s%26t{challenge}",
            member.client
        )
    };
    for challenge in [
        "",
        "&code_challenge=",
        "&code_challenge=x&code_challenge_method=plain",
        "&code_challenge=short&code_challenge_method=S256",
    ] {
        let reply = served.send("GET", &authorize(challenge), &[], "").await;
        let location = url::Url::parse(reply.header("location")).unwrap();
        let value = |name: &str| {
            location
                .query_pairs()
                .find(|(found, _)| found == name)
                .map(|(_, value)| value.into_owned())
        };
        assert_eq!(
            (reply.status, location.host_str(), location.path()),
            (302, Some("app.example"), "/cb"),
            "{challenge}"
        );
        assert_eq!(
            value("error").as_deref(),
            Some("invalid_request"),
            "{challenge}"
        );
        assert_eq!(
            (value("state").as_deref(), value("iss").as_deref()),
            (Some("s&t"), Some("https://vault.example"))
        );
        assert_eq!(value("code"), None);
    }
    for (client, redirect) in [
        ("cli_nobody", "https%3A%2F%2Fapp.example%2Fcb"),
        (member.client.as_str(), "https%3A%2F%2Fevil.example%2F"),
    ] {
        let target = format!(
            "/oauth/authorize?response_type=code&client_id={client}&redirect_uri={redirect}&state=s"
        );
        let reply = served.send("GET", &target, &[], "").await;
        assert_eq!(
            (reply.status, reply.header("location")),
            (400, ""),
            "a page, never a redirect"
        );
        assert!(reply.header("content-type").starts_with("text/html"));
    }
    let form = "application/x-www-form-urlencoded";
    for (body, wanted) in [
        ("grant_type=password", "unsupported_grant_type"),
        ("", "invalid_request"),
        (
            &format!(
                "grant_type=authorization_code&client_id={}&code=vac_x&code_verifier={}&redirect_uri=https%3A%2F%2Fapp.example%2Fcb",
                member.client,
                common::VERIFIER
            )[..],
            "invalid_grant",
        ),
        (
            &format!(
                "grant_type=refresh_token&client_id={}&refresh_token=vrt_x",
                member.client
            ),
            "invalid_grant",
        ),
    ] {
        let reply = served
            .send("POST", "/oauth/token", &[("Content-Type", form)], body)
            .await;
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (400, &json!(wanted)),
            "{body}"
        );
        assert_eq!(reply.header("cache-control"), "no-store", "{body}");
    }
    let reply = served
        .send(
            "POST",
            "/oauth/revoke",
            &[("Content-Type", form)],
            "token=vat_x",
        )
        .await;
    assert_eq!(reply.status, 401);

    let bearer = |token: &str| format!("Bearer {token}");
    for (token, method, path, wanted) in [
        ("", "GET", "/admin/vaults/acme", "401 token_required"),
        (
            "Basic eDp5",
            "GET",
            "/admin/vaults/acme",
            "401 token_required",
        ),
        (
            "Bearer vat_nothing",
            "GET",
            "/admin/vaults/acme",
            "401 token_invalid",
        ),
        (
            &bearer(&member.refresh),
            "GET",
            "/admin/vaults/acme",
            "401 token_invalid",
        ),
        (
            &bearer(&member.access),
            "GET",
            "/admin/vaults/acme",
            "403 owner_required",
        ),
        (
            &bearer(&reading.access),
            "POST",
            "/admin/vaults/acme/devices/deny-pending",
            "403 insufficient_scope",
        ),
        (
            &bearer(&reading.access),
            "GET",
            "/admin/vaults/default",
            "404 not_found",
        ),
        (
            &bearer(&reading.access),
            "GET",
            "/admin/operator/namespaces",
            "403 operator_required",
        ),
    ] {
        let headers = [("Authorization", token)];
        let reply = served
            .send(
                method,
                path,
                if token.is_empty() { &[] } else { &headers },
                "",
            )
            .await;
        assert_problem(&reply, wanted, &format!("{method} {path}"));
    }
    let twice = own(&[
        ("Authorization", &bearer(&reading.access)),
        ("Authorization", &bearer(&reading.access)),
    ]);
    let reply = served
        .reply(&bytes_of("GET", "/admin/vaults/acme", &twice, ""))
        .await;
    assert_problem(&reply, "401 token_invalid", "two tokens");
    let good = served
        .send(
            "GET",
            "/admin/vaults/acme",
            &[("Authorization", &bearer(&reading.access))],
            "",
        )
        .await;
    assert_eq!(good.status, 200);
}

/// What the log writes: one JSON line a request, under the id that the answer names, and nothing that was secret or sent.
#[tokio::test]
async fn log_lines() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = Lines(Arc::clone(&lines));
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _kept = tracing::subscriber::set_default(subscriber);

    let served = busy().await;
    let app = &served.world.app;
    common::bootstrap(app).await;
    let token = common::sign_in(app, common::OWNER, common::OWNER_PASSWORD, Scopes::ALL).await;
    let device = key(9);
    let public = device.public().to_string();
    let secret = "a-body-that-nobody-may-see";
    let body = json!({"public_key": public, "hostname": secret}).to_string();
    let mut replies = vec![
        served
            .enrol(&device, "acme", "application/json", &body)
            .await,
        served.enrol(&device, "acme", "text/plain", secret).await,
        served.ask(&device, "GET", "/v/acme/catalog.json").await,
        served
            .send("GET", "/v/acme/catalog.json?query-of-somebody", &[], "")
            .await,
        served
            .send(
                "GET",
                "/admin/vaults/default",
                &[("Authorization", &format!("Bearer {token}"))],
                "",
            )
            .await,
        served
            .send(
                "GET",
                "/admin/vaults/default",
                &[
                    ("Authorization", "Bearer vat_guess"),
                    ("Cookie", "session-of-somebody=1"),
                ],
                "",
            )
            .await,
        served
            .send(
                "POST",
                "/oauth/token",
                &[("Content-Type", "application/x-www-form-urlencoded")],
                "grant_type=refresh_token&client_id=x&refresh_token=vrt_guess",
            )
            .await,
    ];
    let signatures = served.signature(&device, "GET", BUNDLE, 0);
    replies.push(
        served
            .reply(&bytes_of("GET", BUNDLE, &signatures, ""))
            .await,
    );

    let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    let mut requests = 0;
    for line in text.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("a JSON line: {line}"));
        if line["message"] == "request" {
            requests += 1;
            assert_eq!(
                line["request_id"].as_str().map(str::len),
                Some(26),
                "{line}"
            );
            assert!(
                line["status"].is_u64() && line["ms"].is_u64() && line["method"].is_string(),
                "{line}"
            );
        }
    }
    assert!(requests >= replies.len(), "{requests}");
    for reply in &replies {
        if let Some(id) = reply.json()["request_id"].as_str() {
            assert!(text.contains(id), "the answer's id stands in the log");
        }
    }
    let secrets = [
        secret,
        &public,
        &signatures[2].1,
        &token,
        "vat_",
        "vrt_",
        "vac_",
        "guess",
        common::OWNER_PASSWORD,
        common::OWNER,
        common::VERIFIER,
        "session-of-somebody",
        "query-of-somebody",
        "$argon2",
        "Bearer",
    ];
    for secret in secrets {
        assert!(
            !text.contains(secret),
            "{secret} stands in the log:\n{text}"
        );
    }
}

#[derive(Clone)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whoever sends a whole pack with a token that ran out reads the refusal, not a reset connection: else nobody could tell it to refresh.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_reaches_who_is_still_sending() {
    let served = busy().await;
    common::bootstrap(&served.world.app).await;
    let token = common::sign_in(
        &served.world.app,
        common::OWNER,
        common::OWNER_PASSWORD,
        Scopes::ALL,
    )
    .await;
    let body = "x".repeat(4 * 1024 * 1024);
    let good = format!("Bearer {token}");
    for (authorization, path, wanted) in [
        (
            "Bearer vat_old",
            "/admin/vaults/default/objects/bundles",
            "401 token_invalid",
        ),
        (
            good.as_str(),
            "/admin/vaults/acme/objects/bundles",
            "404 not_found",
        ),
        (
            good.as_str(),
            "/admin/vaults/default/catalog",
            "428 precondition_required",
        ),
    ] {
        let method = if path.ends_with("catalog") {
            "PUT"
        } else {
            "POST"
        };
        // Written to its end, and then read: a server that closed with bytes unread would make the writing fail.
        for _ in 0..10 {
            let headers = own(&[("Authorization", authorization)]);
            let mut stream = served.connect().await;
            stream
                .write_all(&bytes_of(method, path, &headers, &body))
                .await
                .expect("the server takes it all");
            let reply = Reply::parse(&read_all(&mut stream).await).unwrap();
            assert_problem(&reply, wanted, path);
        }
    }
    // Who asks first is not told to go on.
    let headers = own(&[("Content-Length", "1000"), ("Expect", "100-continue")]);
    let asked = bytes_of("POST", "/admin/vaults/acme/objects/bundles", &headers, "");
    assert_problem(&served.reply(&asked).await, "401 token_required", "expect");
}
