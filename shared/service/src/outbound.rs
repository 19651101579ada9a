//! The one way out: fetching a client's document from an address that a stranger chose.
//!
//! The request must not become the stranger's hand inside: names are looked up here, every address they lead to must be a public one, and
//! the connection goes to just those addresses, so that a second look-up cannot lead elsewhere. No redirect, no proxy, no encoding, few
//! bytes, few seconds, few at once. Who answers is proved by a certificate.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{self, HeaderMap, HeaderName};
use tokio::sync::Semaphore;
use url::{Host, Url};
pub use vault_skill::address::is_public;

use crate::oauth::document::{ClientUrl, Documents, FetchError, Fetched, MAX_DOCUMENT_BYTES};

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// How long the whole may take, from the look-up to the last byte.
const WHOLE_TIME: Duration = Duration::from_secs(5);
/// How many documents one process fetches at once; more wait, within their handlers' time.
const AT_ONCE: usize = 8;
/// Most addresses of a name that are looked at.
const MOST_ADDRESSES: usize = 32;

/// Turns a name into addresses.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// All addresses of `host`. Fails when there are none, or nobody can say.
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system.
struct System;

#[async_trait]
impl Lookup for System {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Which addresses may be reached, over what, and for how long.
#[derive(Clone, Copy)]
struct Rules {
    reachable: fn(IpAddr) -> bool,
    plain: bool,
    whole: Duration,
    /// Authorities that are trusted beside the system's, in PEM: none but in tests.
    roots: &'static [&'static [u8]],
}

const STRICT: Rules = Rules {
    reachable: is_public,
    plain: false,
    whole: WHOLE_TIME,
    roots: &[],
};

/// Documents from the open network.
pub struct Outbound {
    lookup: Arc<dyn Lookup>,
    rules: Rules,
    slots: Semaphore,
    /// Made when it is first wanted: reading the system's certificates takes longer than starting.
    client: OnceLock<reqwest::Client>,
}

impl Outbound {
    /// By the resolver and the certificates of the system.
    pub fn new() -> Self {
        Self::with(Arc::new(System), STRICT)
    }

    fn with(lookup: Arc<dyn Lookup>, rules: Rules) -> Self {
        Self {
            lookup,
            rules,
            slots: Semaphore::new(AT_ONCE),
            client: OnceLock::new(),
        }
    }

    fn client(&self) -> Result<&reqwest::Client, FetchError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        // A second one of the same process finds the provider there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let guard = Guard {
            lookup: Arc::clone(&self.lookup),
            reachable: self.rules.reachable,
        };
        let roots = self.rules.roots.iter();
        let roots: Result<Vec<_>, _> = roots
            .map(|pem| reqwest::Certificate::from_pem(pem))
            .collect();
        let roots = roots.map_err(|error| FetchError::Ours(error.into()))?;
        let client = reqwest::Client::builder()
            .tls_certs_merge(roots)
            .user_agent(concat!("vault/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(guard))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .https_only(!self.rules.plain)
            .connect_timeout(CONNECT_TIME)
            .timeout(self.rules.whole)
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| FetchError::Ours(error.into()))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn get(&self, address: &str) -> Result<Fetched, FetchError> {
        // An address that is written out is never looked up, so the guard does not see it.
        let written = Url::parse(address).ok().and_then(|url| match url.host() {
            Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
            _ => None,
        });
        if written.is_some_and(|ip| !(self.rules.reachable)(ip)) {
            return Err(FetchError::NotPublic);
        }
        let _slot = self
            .slots
            .acquire()
            .await
            .map_err(|error| FetchError::Ours(error.into()))?;
        let mut answer = self
            .client()?
            .get(address)
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity")
            .send()
            .await
            .map_err(unreachable)?;
        let headers = answer.headers();
        let fetched = Fetched {
            status: answer.status().as_u16(),
            content_type: one(headers, &header::CONTENT_TYPE),
            cache_control: all(headers, &header::CACHE_CONTROL),
            age: one(headers, &header::AGE)
                .and_then(|age| age.parse().ok())
                .unwrap_or(0),
            body: bytes::Bytes::new(),
        };
        if fetched.status != 200 {
            return Ok(fetched); // whatever else it says is not for us
        }
        let encoded = headers
            .get(header::CONTENT_ENCODING)
            .is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
        let announced = answer.content_length().unwrap_or(0);
        if encoded || announced > MAX_DOCUMENT_BYTES as u64 {
            return Err(FetchError::TooLarge);
        }
        let mut body = BytesMut::new();
        while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
            if body.len() + piece.len() > MAX_DOCUMENT_BYTES {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&piece);
        }
        Ok(Fetched {
            body: body.freeze(),
            ..fetched
        })
    }
}

impl Default for Outbound {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Documents for Outbound {
    async fn fetch(&self, url: &ClientUrl) -> Result<Fetched, FetchError> {
        self.get(url.as_str()).await
    }
}

fn one(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().map(str::to_owned),
        _ => None,
    }
}

fn all(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// What went wrong on the way; the guard's refusal is told apart, wherever the layers in between have put it.
fn unreachable(error: reqwest::Error) -> FetchError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if error.is::<NotPublic>() {
            return FetchError::NotPublic;
        }
        cause = error.source();
    }
    FetchError::Unreachable(error.without_url().into())
}

/// The look-up that the connection is made by.
struct Guard {
    lookup: Arc<dyn Lookup>,
    reachable: fn(IpAddr) -> bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the name leads to an address that is not public")]
struct NotPublic;

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, reachable) = (Arc::clone(&self.lookup), self.reachable);
        Box::pin(async move {
            let found = lookup.addresses(name.as_str()).await?;
            // One address inside spoils the name: which of them is tried first is not ours to say.
            if found.is_empty()
                || found.len() > MOST_ADDRESSES
                || !found.iter().all(|ip| reachable(*ip))
            {
                return Err(NotPublic.into());
            }
            let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, 0));
            let addresses: Addrs = Box::new(addresses);
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tls;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

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

    /// Answers look-ups from a table, each name with one list after the other, and counts them.
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
        async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let mut names = self.names.lock().unwrap();
            let lists = names.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
            lists.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    /// A server on loopback that gives everybody the same bytes, in pieces, and counts who came.
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

    /// Loopback counts as the open network, over plain http: the only way in which a test differs from what is served.
    fn outbound(lookup: Arc<Table>) -> Outbound {
        Outbound::with(
            lookup,
            Rules {
                reachable: |ip| ip.is_loopback(),
                plain: true,
                whole: Duration::from_secs(2),
                roots: &[],
            },
        )
    }

    #[tokio::test]
    async fn requirement_13_a_document_is_fetched_with_what_its_headers_say() {
        let head = "200 OK\r\nContent-Type: application/json\r\nCache-Control: max-age=60\r\nCache-Control: public\r\nAge: 7";
        let server = server(answer(head, "{\"a\":1}"), false).await;
        let table = Table::of(&[("app.example", &[&["127.0.0.1"]])]);
        let address = format!("http://app.example:{}/client.json", server.port);
        let fetched = outbound(Arc::clone(&table)).get(&address).await.unwrap();
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
        let strict = Outbound::with(
            table,
            Rules {
                plain: true,
                ..STRICT
            },
        );
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
            let refused = strict.get(&format!("http://{host}:{port}/")).await;
            assert!(
                matches!(refused, Err(FetchError::NotPublic)),
                "{host}: {refused:?}"
            );
        }
        assert_eq!(server.came.load(Ordering::Relaxed), 0);
        // And what is served asks nobody without a certificate.
        let https = Outbound::new().get("http://1.1.1.1/").await;
        assert!(
            matches!(https, Err(FetchError::Unreachable(_))),
            "{https:?}"
        );
    }

    #[tokio::test]
    async fn requirement_13_a_second_look_up_leads_nowhere_else() {
        let server = server(answer("200 OK", "{}"), false).await;
        // Were the name asked again for the connection, it would lead inside.
        let table = Table::of(&[("rebind.example", &[&["127.0.0.1"], &["10.0.0.1"]])]);
        let address = format!("http://rebind.example:{}/", server.port);
        let fetched = outbound(Arc::clone(&table)).get(&address).await.unwrap();
        assert_eq!(
            (fetched.status, table.asked.load(Ordering::Relaxed)),
            (200, 1)
        );
        let moved = outbound(table).get(&address).await;
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
        let fetched = outbound(Arc::clone(&table)).get(&address).await.unwrap();
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
            let outcome = match outbound(table).get(&address).await {
                Ok(_) => "fine",
                Err(FetchError::TooLarge) => "too large",
                Err(FetchError::Unreachable(_)) => "no answer",
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(outcome, bound);
        }
        // One that accepts and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let table = Table::of(&[("app.example", &[&["127.0.0.1"]])]);
        let rules = Rules {
            reachable: |ip| ip.is_loopback(),
            plain: true,
            whole: Duration::from_millis(200),
            roots: &[],
        };
        let address = format!("http://app.example:{port}/");
        let outcome = Outbound::with(table, rules).get(&address).await;
        assert!(
            matches!(outcome, Err(FetchError::Unreachable(_))),
            "{outcome:?}"
        );
    }
}
