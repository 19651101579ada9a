//! Fetches the metadata documents of OAuth clients, from addresses that an unauthenticated caller
//! chose.
//!
//! A request must not reach hosts inside the service's own network: the SSRF guard resolves names
//! and connects only to public addresses. The client follows no redirect, uses no proxy and accepts
//! no compressed answer; the size, time and number of requests are bounded. TLS proves the host.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::{self, HeaderMap, HeaderName};
use tokio::sync::Semaphore;
pub use vault_format::address::is_public;
use vault_http::{Client, Guard, HttpError, Limits, Options, Reach};

use crate::documents::{ClientUrl, Documents, FetchError, FetchedDocument, MAX_DOCUMENT_BYTES};

/// Limits of one request. `whole` also bounds a slow body, so the window in which a body must make
/// progress is just as long.
const LIMITS: Limits = Limits {
    connect: Duration::from_secs(3),
    whole: Duration::from_secs(5),
    window: Duration::from_secs(5),
    least: 0,
};
/// Maximum number of documents that one process fetches at the same time. Others wait, within the
/// time limit of their handlers.
const MAX_CONCURRENT: usize = 8;

/// HTTP client that fetches documents from public addresses only.
pub struct Outbound {
    client: Client,
    slots: Semaphore,
}

impl Outbound {
    /// Creates a client that uses the name resolver and the root certificates of the system.
    pub fn new() -> Self {
        Self::with_options(request_options(Guard::new(is_public)))
    }

    fn with_options(options: Options) -> Self {
        Self {
            client: Client::new(options),
            slots: Semaphore::new(MAX_CONCURRENT),
        }
    }

    async fn fetch_document(&self, address: &str) -> Result<FetchedDocument, FetchError> {
        let slot = self.slots.acquire().await;
        let _slot = slot.map_err(|error| FetchError::Ours(error.into()))?;
        let request = self.client.new_request(Method::GET, address)?;
        let request = request.header(header::ACCEPT, "application/json");
        let answer = self.client.send_request(request).await?;
        let headers = answer.headers();
        let mut fetched = FetchedDocument {
            status: answer.status(),
            content_type: single_value(headers, &header::CONTENT_TYPE),
            cache_control: joined_values(headers, &header::CACHE_CONTROL),
            // An unreadable age counts as 0. The age only shortens the time for which the document
            // is cached.
            age: single_value(headers, &header::AGE)
                .and_then(|age| age.parse().ok())
                .unwrap_or(0),
            body: bytes::Bytes::new(),
        };
        // With any other status, the body has no meaning and is not read.
        if fetched.status == 200 {
            fetched.body = answer.read_body(MAX_DOCUMENT_BYTES as u64).await?.into();
        }
        Ok(fetched)
    }
}

fn request_options(guard: Guard) -> Options {
    Options {
        limits: LIMITS,
        reach: Reach::Guarded(guard),
        https_only: true,
        // Each document has a new connection, because the guard checks the address when a
        // connection is opened.
        reuse: false,
        roots: &[],
    }
}

impl Default for Outbound {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Documents for Outbound {
    async fn fetch(&self, url: &ClientUrl) -> Result<FetchedDocument, FetchError> {
        self.fetch_document(url.as_str()).await
    }
}

impl From<HttpError> for FetchError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Setup(error) => Self::Ours(error),
            HttpError::NotPublic => Self::NotPublic,
            HttpError::TooLarge(_) | HttpError::Encoded => Self::TooLarge,
            error => Self::Unreachable(error.into()),
        }
    }
}

/// Returns the value of a header that occurs exactly once; `None` otherwise.
fn single_value(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().map(str::to_owned),
        _ => None,
    }
}

/// Joins all values of a header with commas; `None` if there is none.
fn joined_values(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

#[cfg(test)]
mod tls;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io;
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use vault_http::Lookup;

    use super::*;

    #[test]
    fn requirement_13_only_the_open_network_is_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "198.17.255.255",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "3ffe::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    /// A name resolver that answers from a table (for each name, one list of addresses after the
    /// other) and counts the look-ups.
    #[derive(Default)]
    pub(super) struct Table {
        names: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
        asked: AtomicUsize,
    }

    impl Table {
        pub(super) fn of(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
            let lists = |lists: &[&[&str]]| {
                let list = |list: &&[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
                lists.iter().map(list).rev().collect()
            };
            let names = names
                .iter()
                .map(|(name, all)| ((*name).to_owned(), lists(all)));
            Arc::new(Self {
                names: Mutex::new(names.collect()),
                asked: AtomicUsize::new(0),
            })
        }
    }

    #[async_trait]
    impl Lookup for Table {
        async fn lookup_addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let mut names = self.names.lock().unwrap();
            let lists = names.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
            lists.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    /// A server on loopback that answers every request with the same bytes, in pieces, and counts
    /// the connections.
    struct Server {
        port: u16,
        came: Arc<AtomicUsize>,
        heads: Arc<Mutex<Vec<String>>>,
    }

    async fn server(pieces: Vec<Vec<u8>>, endless: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server {
            port,
            came: Arc::default(),
            heads: Arc::default(),
        };
        let (came, heads) = (Arc::clone(&server.came), Arc::clone(&server.heads));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                came.fetch_add(1, Ordering::Relaxed);
                let mut head = vec![0; 4096];
                let length = stream.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                heads.lock().unwrap().push(head);
                for piece in &pieces {
                    if stream.write_all(piece).await.is_err() {
                        break;
                    }
                }
                while endless && stream.write_all(&[b'x'; 1024]).await.is_ok() {}
            }
        });
        server
    }

    fn answer(head: &str, body: &str) -> Vec<Vec<u8>> {
        let text = format!(
            "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        vec![text.into_bytes()]
    }

    /// Longer than any of these requests takes on a busy machine. Requests that must fail end
    /// earlier by themselves.
    const PATIENCE: Duration = Duration::from_mins(1);

    /// A client for which loopback counts as public, over plain HTTP: its only differences from
    /// that of the service.
    fn outbound(lookup: Arc<Table>, whole: Duration) -> Outbound {
        let guard = Guard::with_lookup(lookup, |ip| ip.is_loopback());
        Outbound::with_options(Options {
            https_only: false,
            limits: Limits { whole, ..LIMITS },
            ..request_options(guard)
        })
    }

    #[tokio::test]
    async fn requirement_13_a_document_is_fetched_with_what_its_headers_say() {
        let head = "200 OK\r\nContent-Type: application/json\r\nCache-Control: max-age=60\r\nCache-Control: public\r\nAge: 7";
        let server = server(answer(head, "{\"a\":1}"), false).await;
        let table = Table::of(&[("app.example", &[&["127.0.0.1"]])]);
        let address = format!("http://app.example:{}/client.json", server.port);
        let fetched = outbound(Arc::clone(&table), PATIENCE)
            .fetch_document(&address)
            .await
            .unwrap();
        assert_eq!(
            (fetched.status, fetched.content_type.as_deref()),
            (200, Some("application/json"))
        );
        assert_eq!(
            (
                fetched.cache_control.as_deref(),
                fetched.age,
                &fetched.body[..]
            ),
            (Some("max-age=60,public"), 7, &b"{\"a\":1}"[..])
        );
        assert_eq!(table.asked.load(Ordering::Relaxed), 1, "looked up once");
        let heads = server.heads.lock().unwrap();
        let head = heads[0].to_ascii_lowercase();
        assert!(head.starts_with("get /client.json http/1.1\r\n"), "{head}");
        for header in ["cookie:", "authorization:", "referer:"] {
            assert!(!head.contains(header), "{head}");
        }
    }

    #[tokio::test]
    async fn requirement_13_nothing_inside_is_reached() {
        let server = server(answer("200 OK", "{}"), false).await;
        let table = Table::of(&[
            ("inside.example", &[&["127.0.0.1"]]),
            ("mixed.example", &[&["1.1.1.1", "127.0.0.1"]]),
            ("mapped.example", &[&["::ffff:127.0.0.1"]]),
            ("link.example", &[&["169.254.169.254"]]),
            ("empty.example", &[&[]]),
        ]);
        let strict = Outbound::with_options(Options {
            https_only: false,
            ..request_options(Guard::with_lookup(table, is_public))
        });
        let port = server.port;
        for host in [
            "inside.example",
            "mixed.example",
            "mapped.example",
            "link.example",
            "empty.example",
            "127.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "169.254.169.254",
            "127.1",
            "2130706433",
            "0x7f000001",
        ] {
            let refused = strict
                .fetch_document(&format!("http://{host}:{port}/"))
                .await;
            assert!(
                matches!(refused, Err(FetchError::NotPublic)),
                "{host}: {refused:?}"
            );
        }
        assert_eq!(server.came.load(Ordering::Relaxed), 0);
        // A server without the right certificate gets no request.
        let https = Outbound::new().fetch_document("http://1.1.1.1/").await;
        assert!(
            matches!(https, Err(FetchError::Unreachable(_))),
            "{https:?}"
        );
    }

    #[tokio::test]
    async fn requirement_13_a_second_look_up_leads_nowhere_else() {
        let server = server(answer("200 OK", "{}"), false).await;
        // If the name were resolved again for the connection, it would lead to a private address.
        let table = Table::of(&[("rebind.example", &[&["127.0.0.1"], &["10.0.0.1"]])]);
        let address = format!("http://rebind.example:{}/", server.port);
        let fetched = outbound(Arc::clone(&table), PATIENCE)
            .fetch_document(&address)
            .await
            .unwrap();
        assert_eq!(
            (fetched.status, table.asked.load(Ordering::Relaxed)),
            (200, 1)
        );
        let moved = outbound(table, PATIENCE).fetch_document(&address).await;
        assert!(matches!(moved, Err(FetchError::NotPublic)), "{moved:?}");
    }

    #[tokio::test]
    async fn requirement_13_redirects_are_not_followed() {
        let elsewhere = server(answer("200 OK", "{}"), false).await;
        let table = Table::of(&[
            ("app.example", &[&["127.0.0.1"]]),
            ("elsewhere.example", &[&["127.0.0.1"]]),
        ]);
        let head = format!(
            "302 Found\r\nLocation: http://elsewhere.example:{}/",
            elsewhere.port
        );
        let server = server(answer(&head, "{}"), false).await;
        let address = format!("http://app.example:{}/", server.port);
        let fetched = outbound(Arc::clone(&table), PATIENCE)
            .fetch_document(&address)
            .await
            .unwrap();
        assert_eq!((fetched.status, fetched.body.len()), (302, 0));
        assert_eq!(elsewhere.came.load(Ordering::Relaxed), 0);
        assert_eq!(table.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn requirement_13_bytes_and_time_are_bounded() {
        let large = "x".repeat(MAX_DOCUMENT_BYTES + 1);
        let most = "x".repeat(MAX_DOCUMENT_BYTES);
        let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        for (pieces, endless, bound) in [
            (answer("200 OK", &most), false, "fine"),
            (answer("200 OK", &large), false, "too large"),
            (
                vec![b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec()],
                false,
                "too large",
            ),
            (vec![head], true, "too large"),
            (
                answer("200 OK\r\nContent-Encoding: gzip", "x"),
                false,
                "too large",
            ),
            (
                vec![b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec()],
                false,
                "no answer",
            ),
            (vec![b"nonsense".to_vec()], false, "no answer"),
        ] {
            let server = server(pieces, endless).await;
            let table = Table::of(&[("app.example", &[&["127.0.0.1"]])]);
            let address = format!("http://app.example:{}/", server.port);
            let outcome = match outbound(table, PATIENCE).fetch_document(&address).await {
                Ok(_) => "fine",
                Err(FetchError::TooLarge) => "too large",
                Err(FetchError::Unreachable(_)) => "no answer",
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(outcome, bound);
        }
        // A server that accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let table = Table::of(&[("app.example", &[&["127.0.0.1"]])]);
        let address = format!("http://app.example:{port}/");
        let soon = Duration::from_millis(200);
        let outcome = outbound(table, soon).fetch_document(&address).await;
        assert!(
            matches!(outcome, Err(FetchError::Unreachable(_))),
            "{outcome:?}"
        );
    }
}
