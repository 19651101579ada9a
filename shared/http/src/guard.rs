//! The SSRF guard: a request to an address that another party chose must not reach this machine's own network.
//!
//! Names are looked up here, every address of a name must pass the filter, and the connection goes to just those addresses, so that a
//! second look-up cannot lead elsewhere (DNS rebinding).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::HttpError;

/// Most addresses of a name.
const MAX_ADDRESSES: usize = 32;

/// Turns a name into addresses.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// All addresses of `host`. Fails where there are none, or the resolver does not answer.
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system.
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Lets through hosts whose addresses all pass a filter.
#[derive(Clone)]
pub struct Guard {
    lookup: Arc<dyn Lookup>,
    may_reach: fn(IpAddr) -> bool,
}

/// Why a name leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// One of its addresses does not pass the filter.
    #[error(transparent)]
    NotPublic(#[from] NotPublic),
    /// The look-up failed.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// An address of the host does not pass the filter.
#[derive(Debug, thiserror::Error)]
#[error("the host leads to an address that is not public")]
pub struct NotPublic;

impl Guard {
    /// A guard by the system's resolver.
    pub fn new(may_reach: fn(IpAddr) -> bool) -> Self {
        Self::with_lookup(Arc::new(SystemLookup), may_reach)
    }

    /// A guard by another resolver.
    pub fn with_lookup(lookup: Arc<dyn Lookup>, may_reach: fn(IpAddr) -> bool) -> Self {
        Self { lookup, may_reach }
    }

    /// All addresses of a name. Fails where one of them does not pass: which of them a program tries first is not known here.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let found = self.lookup.addresses(host).await?;
        let all_pass = (1..=MAX_ADDRESSES).contains(&found.len())
            && found.iter().all(|ip| (self.may_reach)(*ip));
        if all_pass {
            Ok(found)
        } else {
            Err(NotPublic.into())
        }
    }

    /// Fails where the host is written as an address that does not pass; names pass here and are looked up later.
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

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = match guard.addresses(name.as_str()).await {
                Ok(found) => found,
                Err(LookupError::NotPublic(refused)) => return Err(refused.into()),
                Err(LookupError::Failed(error)) => return Err(error.into()),
            };
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}
