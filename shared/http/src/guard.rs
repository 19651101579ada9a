//! SSRF guard: keeps requests to untrusted URLs away from addresses that a filter rejects, such as
//! private and loopback addresses.
//!
//! The guard resolves each host name itself and checks every address of the answer. The connection
//! uses exactly the checked addresses, so a second DNS answer cannot send it elsewhere (DNS
//! rebinding).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::HttpError;

/// Maximum number of addresses that a host name may resolve to.
const MAX_ADDRESSES: usize = 32;

/// Resolves host names to addresses; a trait, so that tests need no DNS.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// Returns all addresses of `host`. Fails if the resolver fails or does not know the host.
    async fn lookup_addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The operating system's resolver.
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup_addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let socket_addresses = tokio::net::lookup_host((host, 0)).await?;
        Ok(socket_addresses.map(|address| address.ip()).collect())
    }
}

/// Resolves host names and accepts a host only if all its addresses pass a filter.
#[derive(Clone)]
pub struct Guard {
    lookup: Arc<dyn Lookup>,
    may_reach: fn(IpAddr) -> bool,
}

/// Why [`Guard::checked_addresses`] has no addresses for a host name.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The filter rejects an address of the host, or the host has no address or more than 32.
    #[error(transparent)]
    NotPublic(#[from] NotPublic),
    /// The resolver failed, or does not know the host.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Error: the guard rejects a host because of its addresses. A failed connection contains it, and
/// the client reports [`HttpError::NotPublic`] if it finds it there.
#[derive(Debug, thiserror::Error)]
#[error("the host has an address that is not public")]
pub struct NotPublic;

impl Guard {
    /// Creates a guard that uses the system's resolver. `may_reach` is the address filter.
    pub fn new(may_reach: fn(IpAddr) -> bool) -> Self {
        Self::with_lookup(Arc::new(SystemLookup), may_reach)
    }

    /// Creates a guard that resolves names by `lookup`. `may_reach` is the address filter.
    pub fn with_lookup(lookup: Arc<dyn Lookup>, may_reach: fn(IpAddr) -> bool) -> Self {
        Self { lookup, may_reach }
    }

    /// Returns all addresses of a host name. Fails if the resolver fails, if it returns no address
    /// or more than the maximum, or if the filter rejects any of them.
    pub async fn checked_addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let addresses = self.lookup.lookup_addresses(host).await?;
        // One rejected address rejects the host: the HTTP client chooses which address to try
        // first.
        let all_pass = (1..=MAX_ADDRESSES).contains(&addresses.len())
            && addresses.iter().all(|ip| (self.may_reach)(*ip));
        if all_pass {
            Ok(addresses)
        } else {
            Err(NotPublic.into())
        }
    }

    /// Fails if the URL's host is an IP literal that the filter rejects. Host names pass: the
    /// resolver checks them when the client connects.
    pub(crate) fn check_literal(&self, url: &Url) -> Result<(), HttpError> {
        let address = match url.host() {
            Some(Host::Ipv4(ip)) => IpAddr::V4(ip),
            Some(Host::Ipv6(ip)) => IpAddr::V6(ip),
            _ => return Ok(()),
        };
        if (self.may_reach)(address) {
            Ok(())
        } else {
            Err(HttpError::NotPublic)
        }
    }
}

/// How long the guard waits for the lookup of a name that a proxy will resolve.
const MAX_LOOKUP_TIME: Duration = Duration::from_secs(2);

impl Guard {
    /// Fails if this machine can resolve the URL's host name and the filter rejects one of the
    /// addresses. A name that this machine cannot resolve passes: behind a proxy, many machines
    /// know only names of their own network.
    pub(crate) async fn check_if_resolvable(&self, url: &Url) -> Result<(), HttpError> {
        let Some(Host::Domain(name)) = url.host() else {
            return Ok(());
        };
        match tokio::time::timeout(MAX_LOOKUP_TIME, self.checked_addresses(name)).await {
            Ok(Err(LookupError::NotPublic(_))) => Err(HttpError::NotPublic),
            _ => Ok(()),
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = match guard.checked_addresses(name.as_str()).await {
                Ok(found) => found,
                Err(LookupError::NotPublic(refused)) => return Err(refused.into()),
                Err(LookupError::Failed(error)) => return Err(error.into()),
            };
            // Port 0 makes reqwest use the port of the request's URL.
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}
