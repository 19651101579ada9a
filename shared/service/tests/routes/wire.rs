//! The service behind a real socket: requests as bytes, answers as bytes. Here is only what the
//! router alone cannot show: heads and framing, limits of size and time, connections, the log, and
//! how the server stops. The limits of time are those of the service, so the two tests about them
//! take as long as these.

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
use vault_service::model::namespace::Kind;
use vault_service::model::user::Scopes;
use vault_store::StoreError;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::common;
use crate::support::{World, key, world, world_with};

const BUNDLE: &str =
    "/v/acme/bundles/14b08d829706ecf75d52ed78701f66b319d92bc07b0c670f013836e8f5e1d1e3.json";
/// Longer than every limit of the service: whoever waits this long waits for nothing.
const PATIENCE: Duration = Duration::from_mins(1);

/// The challenge to a request of an owner that has no token.
const TOKEN_REQUIRED: &str = "Bearer resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource\", scope=\"read write\"";

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
    /// Reads one answer from the front of `bytes`; its body is what is left, unless a length is
    /// told. `None` where there is no answer.
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

/// A service with `acme` at release 42, an admitted device and a pending one.
async fn busy() -> Served {
    let world = world();
    world.acme().await;
    for (n, status) in [(1, DeviceStatus::Active), (2, DeviceStatus::Pending)] {
        world.device("acme", n, status).await;
    }
    served(world).await
}

/// One row of each kind through the socket: bytes, a refusal of each status that has headers of its
/// own, and a HEAD.
#[tokio::test]
async fn rows_of_the_router_come_over_the_wire() {
    let served = busy().await;
    let (active, pending) = (key(1), key(2));
    let catalog = "/v/acme/catalog.json";
    let good = served.ask(&active, "GET", BUNDLE).await;
    let digest = Digest::of(good.body.as_bytes()).to_string();
    assert_eq!((good.status, digest.as_str()), (200, &BUNDLE[16..80]));
    assert_eq!(good.header("content-length"), good.body.len().to_string());
    let head = served.ask(&active, "HEAD", BUNDLE).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let dateless = |reply: &Reply| {
        let mut headers = reply.headers.clone();
        headers.retain(|(name, _)| name != "date");
        headers
    };
    assert_eq!(dateless(&head), dateless(&good));
    for (reply, wanted, headers) in [
        (
            served.ask(&key(9), "GET", catalog).await,
            "401 device_unknown",
            ["VaultDevice", ""],
        ),
        (
            served.ask(&pending, "GET", BUNDLE).await,
            "403 device_pending",
            ["", ""],
        ),
        (
            served.ask(&active, "PUT", catalog).await,
            "405 method_not_allowed",
            ["", "GET, HEAD"],
        ),
        (
            served.send("GET", "/admin/vaults", &[], "").await,
            "401 token_required",
            [TOKEN_REQUIRED, ""],
        ),
    ] {
        assert_problem(&reply, wanted, wanted);
        let found = ["www-authenticate", "allow"].map(|name| reply.header(name));
        assert_eq!(found, headers, "{wanted}");
    }
    let late = served.signature(&active, "GET", catalog, -301);
    let reply = served.reply(&bytes_of("GET", catalog, &late, "")).await;
    assert_problem(&reply, "401 timestamp_out_of_range", "late");
    let date = reply.header("date");
    assert_eq!(
        date, "Sat, 21 Nov 2026 02:00:10 GMT",
        "the clock that decided"
    );
}

/// Targets that only a socket carries, and bodies that are announced: an unsigned request gets one
/// answer, and nobody waits for its body.
#[tokio::test]
async fn unsigned_requests_learn_nothing() {
    let served = busy().await;
    let wanted = served.send("GET", "/v/acme/catalog.json", &[], "").await;
    assert_problem(&wanted, "401 signature_required", "reference");
    for target in [
        "/v/%zz",
        "/v/%",
        "/v/acme/catalog.json#part",
        "http://vault.example/v/acme/catalog.json",
        "http://elsewhere.example/v/nobody",
    ] {
        for method in ["GET", "OPTIONS", "TRACE", "get"] {
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
    for (what, headers) in [
        ("not waited for", &[("Content-Length", "1000000000")][..]),
        (
            "no 100 before the check",
            &[("Content-Length", "10"), ("Expect", "100-continue")],
        ),
    ] {
        let announced = bytes_of("POST", "/v/acme/devices", &own(headers), "");
        let reply = served.reply(&announced).await;
        assert_eq!(reply.short(), "401 signature_required", "{what}");
    }
}

/// The path is signed and routed as it was sent; neither a host name nor a fragment nor bytes that
/// are no text make it another.
#[tokio::test]
async fn what_is_signed_is_the_path_of_the_request_line() {
    let served = busy().await;
    let device = key(1);
    // Raw bytes above ASCII.
    let path = "/v/acm\u{e9}/catalog.json";
    let headers = served.signature(&device, "GET", path, 0);
    let reply = served.raw(&bytes_of("GET", path, &headers, "")).await;
    let status = Reply::parse(&reply).map_or(400, |reply| reply.status);
    assert!([400, 401, 404].contains(&status), "{status}");
    // A fragment is no part of a request target; what is left of it was not signed.
    let path = "/v/acme/catalog.json#x";
    let reply = served.ask(&device, "GET", path).await;
    assert_problem(&reply, "401 signature_invalid", path);
    let path = "/v/acme/catalog.json";
    let headers = served.signature(&device, "GET", path, 0);
    let mut odd = headers.clone();
    odd[0].1 = "ZZZ".into();
    let mut bytes = bytes_of("GET", path, &odd, "");
    let at = bytes.windows(3).position(|three| three == b"ZZZ").unwrap();
    bytes[at] = 0xff;
    let reply = served.reply(&bytes).await;
    assert_problem(&reply, "401 signature_invalid", "no text");
    for target in [
        "http://vault.example/v/acme/catalog.json",
        "http://elsewhere.example:1/v/acme/catalog.json",
        "/v/acme/catalog.json?a=b",
    ] {
        let reply = served.reply(&bytes_of("GET", target, &headers, "")).await;
        assert_eq!(reply.status, 200, "{target}");
    }
    for host in [
        "Host: elsewhere.example\r\n",
        "Host: \r\n",
        "Host: a b\r\n",
        "",
    ] {
        let mut text = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{host}");
        for (name, value) in &headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        assert_eq!(served.reply(text.as_bytes()).await.status, 200, "{host:?}");
    }
    let star = served.send("OPTIONS", "*", &[], "").await;
    assert_problem(&star, "404 not_found", "OPTIONS *");
}

/// A limit counts the address of the connection, or the one that a trusted proxy names.
#[tokio::test]
async fn limits_count_the_address_that_a_trusted_proxy_names() {
    for (trusted, wanted) in [(None, "429 rate_limited"), (Some("127.0.0.0/8"), "201")] {
        let world = world_with(|config| {
            config.limits = Limits {
                enrol_per_source: 1,
                ..Limits::off()
            };
            config.trusted_proxies = trusted.iter().map(|net| net.parse().unwrap()).collect();
        });
        world.namespace("acme", Kind::Hosted).await;
        let served = served(world).await;
        for (n, from, wanted) in [
            (1, "192.0.2.1", "201"),
            (2, "192.0.2.1", "429 rate_limited"),
            (3, "192.0.2.2", wanted),
        ] {
            let device = key(n);
            let path = "/v/acme/devices";
            let mut headers = served.signature(&device, "POST", path, 0);
            headers.extend(own(&[
                ("X-Forwarded-For", from),
                ("Content-Type", "application/json"),
            ]));
            let body = json!({"public_key": device.public(), "hostname": "x"}).to_string();
            let request = bytes_of("POST", path, &headers, &body);
            let reply = served.reply(&request).await;
            assert_eq!(reply.short(), wanted, "{trusted:?} {from}");
        }
    }
}

/// 414 and 431 come before the signature; far beyond, the HTTP library refuses with the same
/// status.
#[tokio::test]
async fn heads_that_are_too_large() {
    let served = busy().await;
    let path = format!("/v/{}", "a".repeat(60_000));
    let reply = served.send("GET", &path, &[], "").await;
    assert_problem(&reply, "414 path_too_long", "path");
    // Name, colon, space, value, line end; Host and Connection count too.
    let others = "Host: vault.example\r\nConnection: close\r\n".len();
    for (length, wanted) in [
        (16 * 1024 - others, "401 signature_required"),
        (16 * 1024 - others + 1, "431 headers_too_large"),
        (60_000, "431 headers_too_large"),
    ] {
        let value = "v".repeat(length - "x: \r\n".len());
        let headers = [("x", value.as_str())];
        let reply = served
            .send("GET", "/v/acme/catalog.json", &headers, "")
            .await;
        assert_problem(&reply, wanted, "headers");
    }
    let many = own(&vec![("a", "b"); 250]);
    assert_problem(
        &served.reply(&bytes_of("GET", "/v/", &many, "")).await,
        "401 signature_required",
        "250 fields",
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
        "GET /healthz HTTP/1.1\r\n\r\n".into(),
        "GET /healthz HTTP/1.1\r\nHost: vault.example\r\nHost: evil.example\r\n\r\n".into(),
        "GET /healthz HTTP/1.0\r\nHost: vault.example\r\nHost: evil.example\r\n\r\n".into(),
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
}

/// 408 for a body that stalls, a closed connection for a head that does, 503 for a handler that
/// does.
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
    let stuck = served_by(world(), Odd::NeverAnswers).await;
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

/// A database that behaves badly.
enum Odd {
    NeverAnswers,
    Panics,
    /// Says that a reading has begun, and waits until it may go on. Writes go through at once.
    Waits(Arc<Notify>, Arc<Notify>),
}

#[async_trait]
impl Hook for Odd {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        match (self, call) {
            (Self::NeverAnswers, _) => std::future::pending().await,
            (Self::Panics, _) => panic!("the adapter has a bug, and knows the password hunter2"),
            (Self::Waits(begun, go_on), Call::GetMany(_)) => {
                begun.notify_one();
                go_on.notified().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A service whose database behaves like that.
async fn served_by(mut world: World, odd: Odd) -> Served {
    world.app.records = Hooked::new(&world.memory, Arc::new(odd));
    served(world).await
}

/// One request that hits a bug of ours is 500 with a request id and nothing else; the connection
/// and all others go on.
#[tokio::test]
async fn a_panic_is_500() {
    let served = served_by(world(), Odd::Panics).await;
    let reply = served.ask(&key(1), "GET", "/v/acme/catalog.json").await;
    assert_problem(&reply, "500 internal", "panic");
    assert!(!reply.body.contains("hunter2"));
    assert_eq!(
        served.send("GET", "/v/", &[], "").await.short(),
        "401 signature_required"
    );
}

/// Told to stop: nobody new gets in, who is being answered gets the whole answer, then the server
/// ends.
#[tokio::test]
async fn a_graceful_stop() {
    let world = world();
    world.acme().await;
    world.device("acme", 1, DeviceStatus::Active).await;
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let odd = Odd::Waits(begun.clone(), go_on.clone());
    let served = served_by(world, odd).await;
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
    let (begun, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let odd = Odd::Waits(begun.clone(), never);
    let served = served_by(world(), odd).await;
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

/// Several requests over one connection: answers in their order, a HEAD without a body between
/// them.
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

/// What the log writes: one JSON line a request, under the id that the answer names, and nothing
/// that was secret or sent.
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

/// What a person types, what an app sends along and what an address carries stays out of the log,
/// and no name or path forges a line.
#[tokio::test]
async fn no_secret_of_a_sign_in_stands_in_the_log_and_no_line_is_forged() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = Lines(Arc::clone(&lines));
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _kept = tracing::subscriber::set_default(subscriber);

    let served = busy().await;
    let app = &served.world.app;
    common::bootstrap(app).await;
    let link = common::invite(app, "new@example.org").await.unwrap();
    let invitation = link.rsplit('/').next().unwrap();
    let accepted = common::Visitor::new(app)
        .accept(&link, common::PASSWORD)
        .await;
    assert_eq!(accepted.status, 200);
    let json = [("Content-Type", "application/json")];
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let evil = json!({
        "client_name": "evil\"\n{\"level\":\"ERROR\",\"message\":\"forged\"}\u{1b}[31m",
        "redirect_uris": [common::CALLBACK],
    });
    let registered = served
        .send("POST", "/oauth/register", &json, &evil.to_string())
        .await;
    assert_eq!(registered.status, 201);
    let client = registered.json()["client_id"].as_str().unwrap().to_owned();
    let address = common::authorize(&client, common::CALLBACK, &[("scope", "read")]);
    let mut visitor = common::Visitor::new(app);
    let page = visitor.get(&address).await;
    let wrong = visitor
        .log_in(&page, common::OWNER, "a-typed-password")
        .await;
    assert_eq!(wrong.status, 422);
    let page = visitor.get(&address).await;
    let page = visitor
        .log_in(&page, common::OWNER, common::OWNER_PASSWORD)
        .await;
    assert_eq!(page.status, 303);
    let cookie = visitor.cookie.clone().unwrap();
    for (method, path, headers, body) in [
        (
            "GET",
            format!("/oauth/authorize?client_id={client}&state=state-of-an-app"),
            &[][..],
            "",
        ),
        (
            "GET",
            format!("/oauth/invite/vin_{}", "Q".repeat(43)),
            &[],
            "",
        ),
        ("GET", "/x%0a%7B\"forged\":1%7D%1b[31m".to_owned(), &[], ""),
        (
            "POST",
            "/oauth/login".to_owned(),
            &form,
            "email=ann@example.org&password=a-typed-password",
        ),
    ] {
        served.send(method, &path, headers, body).await;
    }

    let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    for line in text.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("a JSON line: {line}"));
        assert_ne!(line["level"], "ERROR", "{line}");
    }
    for secret in [
        invitation,
        &cookie,
        common::PASSWORD,
        "vin_",
        "QQQQ",
        "state-of-an-app",
        "a-typed-password",
        common::OWNER_PASSWORD,
        common::VERIFIER,
        "forged",
        "\u{1b}",
        "\\u001b",
    ] {
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

/// Whoever sends a whole pack with a token that ran out reads the refusal, not a reset connection:
/// else nobody could tell it to refresh.
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
        // Written to its end, and then read: a server that closed with bytes unread would make the
        // writing fail.
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
