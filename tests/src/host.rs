//! A hostile host: a small HTTP/1.1 server on loopback, whose answers a test chooses down to the
//! bytes on the wire.
//!
//! It has one namespace and answers honestly from it, unless an [`Attack`] (a function of the test)
//! answers a request instead. [`crate::signed`] creates catalogs and bundles that a device or an
//! owner accepts.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use vault_format::bundle::EncodedBundle;
use vault_format::hash::Digest;

/// Slug of the only namespace of a [`Host`].
pub const SLUG: &str = "acme";

/// An HTTP request that the host received.
#[derive(Clone, Debug)]
pub struct Request {
    /// HTTP method, as sent.
    pub method: String,
    /// Path and query, as sent.
    pub path: String,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body, as the client sent it.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns the value of the first header of this lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether this request has this method, and this path below `/v/acme/` or
    /// `/admin/vaults/acme/`.
    pub fn is_for(&self, method: &str, path: &str) -> bool {
        let below = ["/v/acme/", "/admin/vaults/acme/"];
        self.method == method
            && below
                .iter()
                .any(|root| self.path.strip_prefix(root) == Some(path))
    }
}

/// The way in which the host sends a response, for tests of broken and slow hosts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Wire {
    /// A complete response with the true `Content-Length`.
    #[default]
    Honest,
    /// A `Content-Length` of this many bytes, which may be false, then the body. Then the
    /// connection is closed.
    Length(u64),
    /// Chunked encoding, but the connection ends before the last chunk.
    CutChunks,
    /// The body in chunks, again and again, until the client closes the connection.
    Endless,
    /// The body byte by byte, with this many milliseconds between two bytes.
    Trickle(u64),
    /// Only the body, without status line and headers.
    Bare,
}

/// An HTTP response of the host.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Header lines besides the one with the length of the body, which `wire` decides.
    pub headers: Vec<(String, String)>,
    /// The body, which `wire` may send incompletely or again and again.
    pub body: Vec<u8>,
    /// How the response is sent; [`Wire::Honest`] unless [`Answer::over`] changes it.
    pub wire: Wire,
}

impl Answer {
    /// Creates an honestly sent response without further headers.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            body: body.into(),
            ..Self::default()
        }
    }

    /// Creates a response with status 200 and this JSON.
    pub fn json(value: &Value) -> Self {
        Self::new(200, value.to_string()).with("Content-Type", "application/json")
    }

    /// Creates an error response with a problem document (RFC 9457).
    pub fn problem(status: u16, code: &str) -> Self {
        let body = json!({ "type": "about:blank", "status": status, "title": code, "code": code });
        Self::new(status, body.to_string()).with("Content-Type", "application/problem+json")
    }

    /// Adds a header line.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the way in which the response is sent.
    #[must_use]
    pub fn over(self, wire: Wire) -> Self {
        Self { wire, ..self }
    }
}

/// A function that answers a request in place of the honest host. With `None` the honest host
/// answers.
pub type Attack = Arc<dyn Fn(&Request) -> Option<Answer> + Send + Sync>;

/// The catalogs and objects that the host serves for its one namespace.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    /// The current catalog's exact bytes.
    pub catalog: Option<Vec<u8>>,
    /// Objects by their hash in hex.
    pub objects: BTreeMap<String, Vec<u8>>,
    /// The catalogs that clients have published, by release number.
    pub releases: BTreeMap<u64, Vec<u8>>,
    /// Status that the host reports for every device; `None` means `active`.
    pub status: Option<String>,
}

impl Namespace {
    /// Creates a namespace that serves this catalog and these bundles with their parts.
    pub fn new(catalog: Vec<u8>, bundles: &[&EncodedBundle]) -> Self {
        let mut namespace = Self {
            catalog: Some(catalog),
            ..Self::default()
        };
        for bundle in bundles {
            namespace.put(bundle);
        }
        namespace
    }

    /// Adds a bundle and its parts, each under its true hash.
    pub fn put(&mut self, bundle: &EncodedBundle) {
        self.put_as(&bundle.hash, bundle.bytes.clone());
        for part in &bundle.parts {
            self.put_as(&part.hash, part.bytes.clone());
        }
    }

    /// Adds bytes under a hash, which may be the hash of other bytes.
    pub fn put_as(&mut self, hash: &Digest, bytes: Vec<u8>) {
        self.objects.insert(hash.to_string(), bytes);
    }

    fn current(&self) -> Value {
        let Some(catalog) = &self.catalog else {
            return Value::Null;
        };
        let release = crate::signed::read_catalog(catalog).map_or(1, |catalog| catalog.release);
        json!({ "sha256": Digest::of(catalog), "size": catalog.len(), "release": release })
    }

    fn device(&self, request: &Request) -> Value {
        json!({
            "device_id": "dev_aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "status": self.status.as_deref().unwrap_or("active"),
            "public_key": request.header("x-vault-device"),
            "hostname": "test",
            "enrolled_at": "2026-11-21T00:00:00Z",
            "catalog": self.current(),
        })
    }

    fn catalog(&self) -> Answer {
        match &self.catalog {
            Some(bytes) => Answer::new(200, bytes.clone()),
            None => Answer::problem(404, "catalog_not_published"),
        }
    }

    fn object(&self, hash: &str) -> Answer {
        match self.objects.get(hash) {
            Some(bytes) => Answer::new(200, bytes.clone()),
            None => Answer::problem(404, "bundle_not_found"),
        }
    }

    /// Returns the answer of an honest host, and stores what the request publishes.
    fn answer(&mut self, request: &Request) -> Answer {
        let path = request.path.split('?').next().unwrap_or_default();
        let under = |root: &str| path.strip_prefix(root).map(str::to_owned);
        if let Some(rest) = under("/v/acme/") {
            return match (request.method.as_str(), rest.as_str()) {
                ("POST", "devices") => Answer {
                    status: 201,
                    ..Answer::json(&self.device(request))
                },
                ("GET", "devices/current") => Answer::json(&self.device(request)),
                ("GET", "catalog.json") => self.catalog(),
                ("GET", other) => {
                    let hash = other.strip_prefix("bundles/");
                    self.object(
                        hash.and_then(|name| name.strip_suffix(".json"))
                            .unwrap_or_default(),
                    )
                }
                _ => Answer::problem(404, "not_found"),
            };
        }
        if let Some(answer) = oauth(request, path) {
            return answer;
        }
        if path == "/admin/vaults" {
            let one =
                json!({ "slug": SLUG, "role": "role:owner", "kind": "hosted", "release": null });
            return Answer::json(&json!({ "items": [one], "next": null }));
        }
        if path == "/admin/vaults/acme" {
            return Answer::json(&json!({ "slug": SLUG, "release": self.current() }));
        }
        match under("/admin/vaults/acme/") {
            Some(rest) => self.owner(request, &rest),
            None => Answer::problem(404, "not_found"),
        }
    }

    fn owner(&mut self, request: &Request, rest: &str) -> Answer {
        match (request.method.as_str(), rest) {
            ("GET", "catalog") => self.catalog(),
            ("GET", path) if path.starts_with("releases/") => {
                let release = path
                    .split('/')
                    .nth(1)
                    .and_then(|number| number.parse().ok());
                match release.and_then(|release: u64| self.releases.get(&release)) {
                    Some(bytes) => Answer::new(200, bytes.clone()),
                    None => Answer::problem(404, "release_not_found"),
                }
            }
            ("PUT", "catalog") => {
                self.catalog = Some(request.body.clone());
                if let Some(release) = self.current()["release"].as_u64() {
                    self.releases.insert(release, request.body.clone());
                }
                Answer::json(&json!({ "release": self.current() }))
            }
            ("POST", "objects/missing") => {
                let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let missing: Vec<&Value> = asked["objects"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|object| &object["sha256"])
                    .filter(|hash| !self.objects.contains_key(hash.as_str().unwrap_or_default()))
                    .collect();
                Answer::json(&json!({ "missing": missing }))
            }
            ("POST", path) if path.starts_with("objects/") => {
                let mut stored = Vec::new();
                let mut pack = &request.body[..];
                while let Some(at) = pack.iter().position(|byte| *byte == b'\n') {
                    let line = String::from_utf8_lossy(&pack[..at]).into_owned();
                    let (hash, length) = line.split_once(' ').unwrap_or_default();
                    let length: usize = length.parse().unwrap_or_default();
                    let bytes = &pack[at + 1..at + 1 + length];
                    self.objects.insert(hash.to_owned(), bytes.to_vec());
                    stored.push(hash.to_owned());
                    pack = &pack[at + 1 + length..];
                }
                Answer::json(&json!({ "stored": stored }))
            }
            ("PUT", path) if path.starts_with("objects/") => {
                let hash = path.rsplit('/').next().unwrap_or_default();
                self.objects.insert(hash.to_owned(), request.body.clone());
                Answer::new(201, "{}")
            }
            ("GET", path) if path.starts_with("objects/") => {
                self.object(path.rsplit('/').next().unwrap_or_default())
            }
            _ => Answer::problem(404, "not_found"),
        }
    }
}

/// Answers the requests of a sign-in without pages: every app gets tokens.
fn oauth(request: &Request, path: &str) -> Option<Answer> {
    let base = format!("http://{}", request.header("host").unwrap_or_default());
    Some(match path {
        "/.well-known/oauth-authorization-server" => Answer::json(&json!({
            "issuer": base,
            "authorization_endpoint": format!("{base}/oauth/authorize"),
            "token_endpoint": format!("{base}/oauth/token"),
            "registration_endpoint": format!("{base}/oauth/register"),
            "revocation_endpoint": format!("{base}/oauth/revoke"),
            "code_challenge_methods_supported": ["S256"],
        })),
        "/oauth/register" => Answer {
            status: 201,
            ..Answer::json(&json!({ "client_id": "cli_test" }))
        },
        "/oauth/token" => Answer::json(&json!({
            "access_token": "vat_test", "token_type": "Bearer", "expires_in": 600,
            "refresh_token": "vrt_test", "scope": "read write",
        })),
        _ => return None,
    })
}

#[derive(Default)]
struct Kept {
    namespace: Namespace,
    attack: Option<Attack>,
    requests: Vec<Request>,
    /// Number of bytes written to clients, heads included, in complete and aborted responses.
    sent: u64,
    stopped: bool,
}

/// A fake vault service, honest or hostile, which runs until the value is dropped.
pub struct Host {
    /// Base address of the service, without a slash at its end.
    pub url: String,
    kept: Arc<Mutex<Kept>>,
}

impl Default for Host {
    fn default() -> Self {
        Self::start()
    }
}

impl Host {
    /// Starts an honest host with nothing published.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let host = Self {
            url: format!("http://127.0.0.1:{port}"),
            kept: Arc::default(),
        };
        let kept = Arc::clone(&host.kept);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if lock(&kept).stopped {
                    return;
                }
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || converse(&stream, &kept));
            }
        });
        host
    }

    /// Returns the address that a client passes to `vault link`.
    pub fn address(&self) -> String {
        format!("{}/v/{SLUG}", self.url)
    }

    /// Replaces the namespace, ends an attack, and clears the record of requests.
    pub fn serve(&self, namespace: Namespace) {
        let mut kept = lock(&self.kept);
        kept.namespace = namespace;
        kept.attack = None;
        kept.requests.clear();
        kept.sent = 0;
    }

    /// Passes each later request to `attack` first, and clears the record of requests.
    pub fn attack(&self, attack: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) {
        let mut kept = lock(&self.kept);
        kept.attack = Some(Arc::new(attack));
        kept.requests.clear();
        kept.sent = 0;
    }

    /// Sends `answer` to later requests of this method and path below the namespace.
    pub fn answers(&self, method: &'static str, path: &str, answer: Answer) {
        let path = path.to_owned();
        self.attack(move |request| request.is_for(method, &path).then(|| answer.clone()));
    }

    /// Sends `answer` to later requests whose path begins with `path`.
    pub fn answers_below(&self, path: &'static str, answer: Answer) {
        self.attack(move |request| request.path.starts_with(path).then(|| answer.clone()));
    }

    /// Ends an attack. The requests so far stay recorded.
    pub fn relent(&self) {
        lock(&self.kept).attack = None;
    }

    /// Returns a copy of the namespace as it is now, with pushed catalogs.
    pub fn namespace(&self) -> Namespace {
        lock(&self.kept).namespace.clone()
    }

    /// Returns the requests since the last call of [`Self::serve`] or [`Self::attack`].
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.kept).requests.clone()
    }

    /// Returns the number of bytes written to clients, heads included, since the last call of
    /// [`Self::serve`] or [`Self::attack`].
    pub fn sent(&self) -> u64 {
        lock(&self.kept).sent
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        lock(&self.kept).stopped = true;
        // Connect once to wake the listener, whose thread then sees `stopped` and ends.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    // A poisoned lock means that another thread of the test failed. Its message says more than one
    // about the lock.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn converse(stream: &TcpStream, kept: &Mutex<Kept>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(90)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(30)));
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        let attack = {
            let mut kept = lock(kept);
            kept.requests.push(request.clone());
            kept.attack.clone()
        };
        let answer = attack
            .and_then(|attack| attack(&request))
            .unwrap_or_else(|| lock(kept).namespace.answer(&request));
        let goes_on = send(stream, &request, &answer, kept).unwrap_or(false);
        if !goes_on || lock(kept).stopped {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request {
        method,
        path,
        headers,
        body: Vec::new(),
    };
    let length = request.header("content-length").map_or(0, |length| {
        length.parse::<u64>().unwrap_or_default().min(64 << 20)
    });
    reader.take(length).read_to_end(&mut request.body).ok()?;
    Some(request)
}

/// Sends an answer. Returns true if the connection can carry another one.
fn send(
    mut stream: &TcpStream,
    request: &Request,
    answer: &Answer,
    kept: &Mutex<Kept>,
) -> std::io::Result<bool> {
    let mut head = format!("HTTP/1.1 {} Whatever\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let bodiless = request.method == "HEAD" || matches!(answer.status, 204 | 304);
    let body: &[u8] = if bodiless { &[] } else { &answer.body };
    let mut write = |bytes: &[u8]| {
        stream.write_all(bytes)?;
        lock(kept).sent += bytes.len() as u64;
        Ok::<(), std::io::Error>(())
    };
    match answer.wire {
        Wire::Honest => {
            if !bodiless {
                head.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            head.push_str("\r\n");
            let mut bytes = head.into_bytes();
            bytes.extend_from_slice(body);
            write(&bytes)?;
            Ok(true)
        }
        Wire::Length(length) => {
            head.push_str(&format!("Content-Length: {length}\r\n\r\n"));
            write(head.as_bytes())?;
            write(body)?;
            Ok(false)
        }
        Wire::CutChunks => {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
            write(head.as_bytes())?;
            write(format!("{:x}\r\n", body.len()).as_bytes())?;
            write(body)?;
            write(b"\r\n")?;
            Ok(false)
        }
        Wire::Endless => {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
            write(head.as_bytes())?;
            // Bound the endless body, so that a client that never stops reading fails the test
            // instead of blocking it.
            for _ in 0..(64 << 20) / body.len().max(1) {
                let mut chunk = format!("{:x}\r\n", body.len()).into_bytes();
                chunk.extend_from_slice(body);
                chunk.extend_from_slice(b"\r\n");
                write(&chunk)?;
            }
            Ok(false)
        }
        Wire::Trickle(pause) => {
            head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
            write(head.as_bytes())?;
            for byte in body {
                write(&[*byte])?;
                std::thread::sleep(Duration::from_millis(pause));
            }
            Ok(true)
        }
        Wire::Bare => {
            write(body)?;
            Ok(false)
        }
    }
}
