//! The workspace's HTTP client. It limits the size and duration of each response, follows no
//! redirects, and rejects compressed bodies. A caller that follows redirects sends one request per
//! hop, so that each hop passes the same checks.
//!
//! If the peer closes a kept connection without answering a request, that request is sent once
//! more, provided that its method is idempotent (RFC 9110 section 9.2.2). Any other request opens a
//! connection of its own and is sent once: the peer may have carried it out before it closed.
//!
//! [`Reach`] determines the addresses that a client may connect to: those of a service that the
//! user configured, or only those that a [`Guard`] accepts. The client does not interpret
//! responses.

mod guard;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use guard::{Guard, Lookup, LookupError, SystemLookup};
use reqwest::header::{self, HeaderMap};
use reqwest::{ClientBuilder, Method, RequestBuilder};
use tokio::time::Instant;
use url::Url;

/// Time for which an idle connection is kept open. Servers keep theirs longer (`vault serve`: 75
/// s), so the client usually closes first.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Time limits of a request, and the minimum speed of its response.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum time to establish a connection.
    pub connect: Duration,
    /// Maximum time for the whole request, from the DNS lookup to the last byte of the response.
    pub whole: Duration,
    /// Length of the window in which at least [`Limits::least`] bytes of the body must arrive.
    pub window: Duration,
    /// Minimum number of body bytes per window. 0 disables the check, so that only `whole` applies.
    pub least: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            whole: Duration::from_mins(1),
            window: Duration::from_secs(20),
            least: 20 * 1024,
        }
    }
}

/// The addresses that a client may connect to.
#[derive(Clone)]
pub enum Reach {
    /// Only addresses that the guard accepts, without a proxy. For hosts that an untrusted party
    /// chose.
    Guarded(Guard),
    /// Any host name, through this proxy, which resolves it. The guard checks addresses in a URL,
    /// and the addresses of names that this machine can resolve. For hosts that an untrusted party
    /// chose, where the user has configured a proxy.
    Proxied {
        /// The address of the proxy, with its credentials if it needs any.
        proxy: Url,
        /// Checks addresses written in a URL, and those that this machine resolves.
        guard: Guard,
    },
    /// Any address, through the system's proxy. For a service that the user configured.
    Any,
    /// Any address, without a proxy. For a service on this machine.
    Loopback {
        /// A host name that resolves to this machine (RFC 6761). The client resolves it itself
        /// because not every resolver knows the names below `localhost`.
        localhost: Option<String>,
        /// Load no root certificates, so that plain HTTP works on a machine that has none.
        plain: bool,
    },
}

/// Options of a [`Client`].
#[derive(Clone)]
pub struct Options {
    /// Time and speed limits of each request.
    pub limits: Limits,
    /// The rule for connecting to addresses, and for the use of a proxy.
    pub reach: Reach,
    /// Reject every URL whose scheme is not `https:`.
    pub https_only: bool,
    /// Keep idle connections open for later requests.
    pub reuse: bool,
    /// Additional trusted certificate authorities, in PEM. For tests.
    pub roots: &'static [&'static [u8]],
}

/// An HTTP client. It loads the system's certificates on the first request rather than at creation,
/// because loading them is slow compared with the start of a program.
#[derive(Clone)]
pub struct Client {
    options: Options,
    inner: OnceLock<reqwest::Client>,
    /// A client that reuses no connection, for requests that must not be sent twice.
    once: OnceLock<reqwest::Client>,
    /// Whether a peer has answered before, so that an open connection may exist.
    answered: Arc<AtomicBool>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("limits", &self.options.limits)
            .finish_non_exhaustive()
    }
}

/// The error of a request that failed, or of a response that could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The client cannot be created, for example because the certificates cannot be loaded.
    #[error("no connection can be made")]
    Setup(#[source] Box<dyn Error + Send + Sync>),
    /// The guard rejects the host's addresses.
    #[error("the host has an address that is not public")]
    NotPublic,
    /// The peer's certificate cannot be verified: it is for another host, has expired, or no
    /// trusted authority issued it.
    #[error("its certificate is not trusted")]
    Certificate(#[source] reqwest::Error),
    /// The connection could not be established, so the request was not sent.
    #[error("no connection")]
    Connect(#[source] reqwest::Error),
    /// The request exceeded its time limit.
    #[error("no answer in time")]
    Timeout(#[source] reqwest::Error),
    /// The connection was lost, or the response is not valid HTTP.
    #[error("the connection was lost")]
    Lost(#[source] reqwest::Error),
    /// The body arrives more slowly than the limits require.
    #[error("it sends less than {} bytes in {} s", .0.least, .0.window.as_secs_f32())]
    TooSlow(Limits),
    /// The body exceeds its size limit, in bytes.
    #[error("it sends more than {0} bytes")]
    TooLarge(u64),
    /// The body is compressed although the request asked for no encoding.
    #[error("its body is encoded, though that was not asked for")]
    Encoded,
}

impl HttpError {
    /// Returns the innermost error of the chain, which is what the system reported.
    pub fn system_message(&self) -> String {
        let mut error: &dyn Error = self;
        while let Some(source) = error.source() {
            error = source;
        }
        error.to_string()
    }
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        // reqwest wraps the guard's error in a varying number of layers, so search the whole chain.
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        let mut is_certificate = false;
        while let Some(found) = cause {
            if found.is::<guard::NotPublic>() {
                return Self::NotPublic;
            }
            is_certificate |= is_certificate_error(found);
            cause = found.source();
        }
        // The URL may contain a secret; callers name the address in their own messages.
        let error = error.without_url();
        if is_certificate {
            Self::Certificate(error)
        } else if error.is_timeout() {
            Self::Timeout(error)
        } else if error.is_connect() {
            Self::Connect(error)
        } else {
            Self::Lost(error)
        }
    }
}

/// The status and headers of a response whose body is still unread.
#[derive(Debug)]
pub struct Response {
    inner: reqwest::Response,
    limits: Limits,
}

impl Client {
    /// Creates a client with these options. It opens no connection yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            inner: OnceLock::new(),
            once: OnceLock::new(),
            answered: Arc::default(),
        }
    }

    /// Returns the underlying reqwest client and creates it on the first call. Fails if the
    /// certificates cannot be loaded. Call it before the first request to fail early.
    pub fn reqwest_client(&self) -> Result<&reqwest::Client, HttpError> {
        self.get_or_create(&self.inner, self.options.reuse)
    }

    fn get_or_create<'c>(
        &self,
        cell: &'c OnceLock<reqwest::Client>,
        reuse: bool,
    ) -> Result<&'c reqwest::Client, HttpError> {
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = self.client_builder(reuse)?.build();
        let client = client.map_err(|error| HttpError::Setup(error.into()))?;
        // Another task may have created a client in the meantime. All requests use that one, so
        // that they share its connections.
        Ok(cell.get_or_init(|| client))
    }

    fn client_builder(&self, reuse: bool) -> Result<ClientBuilder, HttpError> {
        let Options {
            limits,
            reach,
            https_only,
            reuse: _,
            roots,
        } = &self.options;
        // Installing fails harmlessly if another client of this process already installed the
        // provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("vault/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .https_only(*https_only)
            .connect_timeout(limits.connect)
            .timeout(limits.whole)
            .pool_idle_timeout(IDLE_TIME);
        if !reuse {
            builder = builder.pool_max_idle_per_host(0);
        }
        if !roots.is_empty() {
            let roots: Result<Vec<_>, _> = roots
                .iter()
                .map(|pem| reqwest::Certificate::from_pem(pem))
                .collect();
            let roots = roots.map_err(|error| HttpError::Setup(error.into()))?;
            builder = builder.tls_certs_merge(roots);
        }
        match reach {
            Reach::Any => Ok(builder),
            Reach::Proxied { proxy, .. } => {
                let proxy = reqwest::Proxy::all(proxy.clone());
                Ok(builder.proxy(proxy.map_err(|error| HttpError::Setup(error.into()))?))
            }
            Reach::Guarded(guard) => Ok(builder.no_proxy().dns_resolver(Arc::new(guard.clone()))),
            Reach::Loopback { localhost, plain } => {
                if let Some(name) = localhost {
                    // Port 0 makes reqwest use the port of the request's URL.
                    let here = [
                        IpAddr::from(Ipv4Addr::LOCALHOST),
                        Ipv6Addr::LOCALHOST.into(),
                    ];
                    let here = here.map(|ip| SocketAddr::new(ip, 0));
                    builder = builder.resolve_to_addrs(name, &here);
                }
                if *plain {
                    builder = builder.tls_backend_preconfigured(tls_without_roots()?);
                }
                Ok(builder.no_proxy())
            }
        }
    }

    /// Starts to build a request that asks for an uncompressed response.
    pub fn new_request(&self, method: Method, address: &str) -> Result<RequestBuilder, HttpError> {
        let request = self.reqwest_client()?.request(method, address);
        Ok(request.header(header::ACCEPT_ENCODING, "identity"))
    }

    /// Sends a request and reads the status and headers of the response. Any status counts as
    /// success. Fails if the guard rejects the host, if no connection can be made, or if no answer
    /// comes in time.
    ///
    /// A peer may close a kept connection at the moment in which the next request is sent. Such a
    /// request is sent once more if its method is idempotent, unless its body is a stream.
    pub async fn send_request(&self, request: RequestBuilder) -> Result<Response, HttpError> {
        let request = request.build()?;
        if let Reach::Guarded(guard) | Reach::Proxied { guard, .. } = &self.options.reach {
            // The client never resolves an IP literal, so the guard's resolver does not see it.
            guard.check_literal(request.url())?;
        }
        if let Reach::Proxied { guard, .. } = &self.options.reach {
            guard.check_if_resolvable(request.url()).await?;
        }
        // A peer may carry out a request and then close the kept connection without an answer. A
        // request that is not idempotent must not be repeated then, so it gets a new connection.
        if !request.method().is_idempotent() {
            let inner = self
                .get_or_create(&self.once, false)?
                .execute(request)
                .await?;
            return Ok(self.wrap_response(inner));
        }
        let client = self.reqwest_client()?;
        // Before the first answer no connection was kept open, so a close is a real failure.
        let again = request
            .try_clone()
            .filter(|_| self.answered.load(Ordering::Relaxed));
        let inner = match (client.execute(request).await, again) {
            (Err(error), Some(again)) if is_closed_unanswered(&error) => {
                client.execute(again).await?
            }
            (outcome, _) => outcome?,
        };
        self.answered.store(self.options.reuse, Ordering::Relaxed);
        Ok(self.wrap_response(inner))
    }

    const fn wrap_response(&self, inner: reqwest::Response) -> Response {
        Response {
            inner,
            limits: self.options.limits,
        }
    }
}

fn is_certificate_error(error: &(dyn Error + 'static)) -> bool {
    let is_invalid = |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(_));
    let mut cause = Some(error);
    while let Some(found) = cause {
        if found.downcast_ref().is_some_and(is_invalid) {
            return true;
        }
        // An I/O error hides the error in it from the chain of sources. Without a proxy, there are
        // two of them, one in the other.
        let inner = found.downcast_ref::<std::io::Error>();
        let inner = inner.and_then(std::io::Error::get_ref);
        cause = inner.map(|inner| -> &(dyn Error + 'static) { inner });
    }
    false
}

/// Tells whether the peer closed the connection before it sent a complete head of a response.
fn is_closed_unanswered(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(found) = cause {
        // Depending on the moment of the close, hyper reports an incomplete message, a cancelled
        // request, or a reset by the system.
        if let Some(error) = found.downcast_ref::<hyper::Error>() {
            return error.is_incomplete_message() || error.is_canceled() || is_reset(error);
        }
        cause = found.source();
    }
    false
}

fn is_reset(error: &hyper::Error) -> bool {
    let system = error.source().and_then(|cause| cause.downcast_ref());
    system.is_some_and(|error: &std::io::Error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
        )
    })
}

fn tls_without_roots() -> Result<rustls::ClientConfig, HttpError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError::Setup(error.into()))?;
    Ok(builder
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth())
}

impl Response {
    /// The HTTP status code. Every status, also of an error or a redirect, is the caller's to
    /// judge.
    pub fn status(&self) -> u16 {
        self.inner.status().as_u16()
    }

    /// The headers of the response, which arrive before its body.
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// Fails if the body is compressed, because the request asked for no encoding.
    pub fn check_encoding(&self) -> Result<(), HttpError> {
        match self.headers().get(header::CONTENT_ENCODING) {
            Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
                Err(HttpError::Encoded)
            }
            _ => Ok(()),
        }
    }

    /// Reads the body. Fails as soon as it exceeds `ceiling` bytes, if it arrives more slowly than
    /// the limits require, or if it is compressed.
    pub async fn read_body(mut self, ceiling: u64) -> Result<Vec<u8>, HttpError> {
        self.check_encoding()?;
        // `Content-Length` serves only to fail early. The loop below counts the received bytes.
        if self
            .inner
            .content_length()
            .is_some_and(|length| length > ceiling)
        {
            return Err(HttpError::TooLarge(ceiling));
        }
        let Limits { window, least, .. } = self.limits;
        let mut body = Vec::new();
        // `counted` is the length of the body at the start of the current window.
        let (mut window_ends, mut counted) = (Instant::now() + window, 0);
        loop {
            match tokio::time::timeout_at(window_ends, self.inner.chunk()).await {
                Err(_) if (body.len() as u64) - counted < least => {
                    return Err(HttpError::TooSlow(self.limits));
                }
                Err(_) => {
                    window_ends += window;
                    counted = body.len() as u64;
                }
                Ok(chunk) => match chunk? {
                    None => return Ok(body),
                    Some(chunk) if (body.len() + chunk.len()) as u64 > ceiling => {
                        return Err(HttpError::TooLarge(ceiling));
                    }
                    Some(chunk) => body.extend_from_slice(&chunk),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn client() -> Client {
        Client::new(Options {
            limits: Limits::default(),
            reach: Reach::Loopback {
                localhost: None,
                plain: true,
            },
            https_only: false,
            reuse: true,
            roots: &[],
        })
    }

    async fn send(client: &Client, method: Method, address: &str) -> Result<u16, HttpError> {
        let request = client.new_request(method, address)?.body("said");
        let response = client.send_request(request).await?;
        let status = response.status();
        response.read_body(1000).await?;
        Ok(status)
    }

    /// Reads one request, head and body.
    async fn read_request(stream: &mut TcpStream) {
        let mut request = Vec::new();
        while !request.ends_with(b"said") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
    }

    async fn answer(stream: &mut TcpStream) {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(answer).await.unwrap();
    }

    #[tokio::test]
    async fn a_request_over_a_kept_connection_that_closes_is_sent_once_more() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let peer = tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            read_request(&mut first).await;
            answer(&mut first).await;
            read_request(&mut first).await;
            drop(first);
            let (mut second, _) = listener.accept().await.unwrap();
            read_request(&mut second).await;
            answer(&mut second).await;
            read_request(&mut second).await;
            drop(second);
            // The request is repeated only once, and the repetition fails in the same way.
            let (mut third, _) = listener.accept().await.unwrap();
            read_request(&mut third).await;
            drop(third);
        });
        let client = client();
        for _ in 0..2 {
            assert_eq!(send(&client, Method::PUT, &address).await.unwrap(), 200);
        }
        let lost = send(&client, Method::PUT, &address).await.unwrap_err();
        assert!(matches!(lost, HttpError::Lost(_)), "{lost:?}");
        peer.await.unwrap();
    }

    #[tokio::test]
    async fn a_post_takes_a_connection_of_its_own_and_is_sent_once() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let peer = tokio::spawn(async move {
            let (mut kept, _) = listener.accept().await.unwrap();
            read_request(&mut kept).await;
            answer(&mut kept).await;
            // The peer carries the request out, but its answer is lost.
            let (mut own, _) = listener.accept().await.unwrap();
            read_request(&mut own).await;
            drop(own);
            listener
        });
        let client = client();
        assert_eq!(send(&client, Method::PUT, &address).await.unwrap(), 200);
        let lost = send(&client, Method::POST, &address).await.unwrap_err();
        assert!(matches!(lost, HttpError::Lost(_)), "{lost:?}");
        let listener = peer.await.unwrap().into_std().unwrap();
        assert!(listener.accept().is_err(), "a third connection came");
    }

    #[tokio::test]
    async fn a_request_over_a_new_connection_is_sent_once() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let peer = tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            read_request(&mut first).await;
            drop(first);
            listener
        });
        let lost = send(&client(), Method::PUT, &address).await.unwrap_err();
        assert!(matches!(lost, HttpError::Lost(_)), "{lost:?}");
        let listener = peer.await.unwrap().into_std().unwrap();
        assert!(listener.accept().is_err(), "a second connection came");
    }
}
