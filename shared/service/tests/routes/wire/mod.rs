//! The service behind a real socket: requests as bytes, answers as bytes. Here is only what the
//! router alone cannot show: heads and framing, limits of size and time, connections, the log, and
//! how the server stops. The limits of time are those of the service, so the two tests about them
//! take as long as these.

mod faults;
mod limits;
mod log;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::request::sign_request;
use vault_service::config::Limits;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::Kind;

use crate::support::{World, key, world, world_with};

const BUNDLE: &str =
    "/v/acme/bundles/f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703.json";
/// Longer than every time limit of the service: after it a test fails instead of hanging.
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
    /// Parses an answer: everything after the head is its body. `None` if the head is not complete.
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
        let signed = sign_request(device, method, path, self.world.now().plus_seconds(skew));
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

/// Request targets that only a socket carries, and bodies that are announced: an unsigned request
/// gets one answer, and the server does not wait for its body.
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
                ..Limits::disabled()
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
    // A host that is not the service's is refused outside `/v/` and `/healthz`; the connection stays.
    assert_eq!(statuses, [200, 200, 403, 200, 200]);
}
