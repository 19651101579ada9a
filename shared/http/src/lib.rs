//! The HTTP client of the workspace. Every answer has a ceiling in bytes and time, no redirect is followed, and no encoding of a body is
//! accepted. A caller who follows redirects sends one request per hop, so that each hop passes the same checks.
//!
//! [`Reach`] says which addresses a client may connect to: those of a service that the user named, or only those that a
//! [`Guard`] lets through. What an answer means is up to the caller.

mod guard;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use guard::{Guard, Lookup, LookupError, SystemLookup};
use reqwest::header::{self, HeaderMap};
use reqwest::{ClientBuilder, Method, RequestBuilder};
use tokio::time::Instant;

/// How long a request may take, and how slow its answer may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest time until there is a connection.
    pub connect: Duration,
    /// Longest time for a request, from the look-up to the last byte of the answer.
    pub whole: Duration,
    /// In each window of this length at least [`Limits::least`] bytes of a body arrive.
    pub window: Duration,
    /// Fewest bytes in a window; with 0 only the whole time counts.
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

/// Which addresses a client may connect to.
#[derive(Clone)]
pub enum Reach {
    /// Those that the guard lets through, without a proxy: for hosts that another party named.
    Guarded(Guard),
    /// Any, through the system's proxy: for a service that the user named.
    Any,
    /// Any, without a proxy: for a service on this machine.
    Loopback {
        /// A host name that stands for this machine (RFC 6761), because not every resolver knows the names below `localhost`.
        localhost: Option<String>,
        /// No certificates are loaded, so that plain HTTP works on a machine without roots.
        plain: bool,
    },
}

/// How a client connects.
#[derive(Clone)]
pub struct Options {
    /// Bounds in time.
    pub limits: Limits,
    /// Which addresses it may connect to.
    pub reach: Reach,
    /// Requests to anything but `https:` fail.
    pub https_only: bool,
    /// Connections are kept for the next request.
    pub reuse: bool,
    /// Certificate authorities in PEM that are trusted beside the system's: for tests.
    pub roots: &'static [&'static [u8]],
}

/// A client. It reads the system's certificates with the first request, which takes longer than starting a program.
#[derive(Clone)]
pub struct Client {
    options: Options,
    inner: OnceLock<reqwest::Client>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("limits", &self.options.limits)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No client can be made: no certificates, for one.
    #[error("no connection can be made")]
    Setup(#[source] Box<dyn Error + Send + Sync>),
    /// The guard does not let the host's addresses through.
    #[error("the host leads to an address that is not public")]
    NotPublic,
    /// No connection.
    #[error("no connection")]
    Connect(#[source] reqwest::Error),
    /// Not within the time that it may take.
    #[error("no answer in time")]
    Timeout(#[source] reqwest::Error),
    /// The connection was lost, or what came is not HTTP.
    #[error("the connection was lost")]
    Lost(#[source] reqwest::Error),
    /// Fewer bytes than the limits ask for.
    #[error("it sends less than {} bytes in {} s", .0.least, .0.window.as_secs_f32())]
    TooSlow(Limits),
    /// The body is longer than its ceiling, in bytes.
    #[error("it sends more than {0} bytes")]
    TooLarge(u64),
    /// The body is compressed, though that was not asked for.
    #[error("its body is encoded, though that was not asked for")]
    Encoded,
}

impl HttpError {
    /// The last cause, which is what the system reported.
    pub fn reason(&self) -> String {
        let mut error: &dyn Error = self;
        while let Some(source) = error.source() {
            error = source;
        }
        error.to_string()
    }
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        // The guard's refusal is somewhere in the chain, depending on the layers in between.
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(found) = cause {
            if found.is::<guard::NotPublic>() {
                return Self::NotPublic;
            }
            cause = found.source();
        }
        let error = error.without_url();
        if error.is_timeout() {
            Self::Timeout(error)
        } else if error.is_connect() {
            Self::Connect(error)
        } else {
            Self::Lost(error)
        }
    }
}

/// The head of an answer; its body is not read yet.
#[derive(Debug)]
pub struct Response {
    inner: reqwest::Response,
    limits: Limits,
}

impl Client {
    /// A client with these options; it opens no connection yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            inner: OnceLock::new(),
        }
    }

    /// The client below. Fails where the certificates cannot be loaded; call it before the first request to fail early.
    pub fn inner(&self) -> Result<&reqwest::Client, HttpError> {
        if let Some(client) = self.inner.get() {
            return Ok(client);
        }
        let client = self.builder()?.build();
        let client = client.map_err(|error| HttpError::Setup(error.into()))?;
        Ok(self.inner.get_or_init(|| client))
    }

    fn builder(&self) -> Result<ClientBuilder, HttpError> {
        let Options {
            limits,
            reach,
            https_only,
            reuse,
            roots,
        } = &self.options;
        // A second client of the same process finds the provider there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("vault/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .https_only(*https_only)
            .connect_timeout(limits.connect)
            .timeout(limits.whole)
            .pool_idle_timeout(Duration::from_secs(30));
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
            Reach::Guarded(guard) => Ok(builder.no_proxy().dns_resolver(Arc::new(guard.clone()))),
            Reach::Loopback { localhost, plain } => {
                if let Some(name) = localhost {
                    // Port 0 stands for the port of the request.
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

    /// Begins a request that asks for an answer without encoding.
    pub fn request(&self, method: Method, address: &str) -> Result<RequestBuilder, HttpError> {
        let request = self.inner()?.request(method, address);
        Ok(request.header(header::ACCEPT_ENCODING, "identity"))
    }

    /// Sends a request and reads the head of the answer, whatever its status. Fails where the guard does not let the host through.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, HttpError> {
        let request = request.build()?;
        if let Reach::Guarded(guard) = &self.options.reach {
            // An address that is written out is never looked up, so the resolver does not see it.
            guard.check_literal(request.url())?;
        }
        Ok(Response {
            inner: self.inner()?.execute(request).await?,
            limits: self.options.limits,
        })
    }
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
    /// The status.
    pub fn status(&self) -> u16 {
        self.inner.status().as_u16()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// Fails where the body is encoded: nobody asked for that.
    pub fn check_encoding(&self) -> Result<(), HttpError> {
        match self.headers().get(header::CONTENT_ENCODING) {
            Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
                Err(HttpError::Encoded)
            }
            _ => Ok(()),
        }
    }

    /// Reads the body. Fails as soon as it is longer than `ceiling` bytes, slower than the limits, or encoded.
    pub async fn body(mut self, ceiling: u64) -> Result<Vec<u8>, HttpError> {
        self.check_encoding()?;
        // The announced length only ends a request early: the bytes are counted below.
        if self
            .inner
            .content_length()
            .is_some_and(|length| length > ceiling)
        {
            return Err(HttpError::TooLarge(ceiling));
        }
        let Limits { window, least, .. } = self.limits;
        let mut body = Vec::new();
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
