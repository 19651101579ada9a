//! The port that fetches client documents, and the addresses that identify such clients. A client
//! document is an OAuth client's metadata at an https URL, which is also the client's id.
//!
//! The address comes from an unauthenticated caller, as in no other request of the service. The
//! restrictions of the request are in `outbound`.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use url::Url;
use vault_format::hash::Digest;

use crate::model::client::{BadClientId, Client, ClientId};

/// Maximum size of a document, in bytes: the same as of a registration, so that a client can use
/// either.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024;
/// Maximum length of a document's address, in bytes.
pub const MAX_CLIENT_ADDRESS_BYTES: usize = 1024;

/// Maximum length of the host in a document's address, in bytes (RFC 1035 section 2.3.4). Bounded
/// because hosts are part of the keys of counters.
const MAX_HOST_BYTES: usize = 253;

/// The address of a client's document, as the client writes it: compared byte for byte, never
/// normalized.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientUrl {
    text: String,
    host: String,
}

/// Reason why a text cannot be the address of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadClientUrl {
    /// Not https, or not in the form that a browser would write: dot segments, upper case in the
    /// host, a default port.
    #[error("client address must be an https URL in its normal form")]
    Form,
    /// Longer than [`MAX_CLIENT_ADDRESS_BYTES`].
    #[error("client address must have at most 1024 bytes")]
    Length,
    /// A host longer than a DNS name can be.
    #[error("the host of a client address must have at most 253 bytes")]
    Host,
    /// A fragment, user name or password.
    #[error("client address must not contain a fragment or a user name")]
    Parts,
    /// The address has no path after the host.
    #[error("client address must have a path")]
    NoPath,
}

impl FromStr for ClientUrl {
    type Err = BadClientUrl;

    fn from_str(text: &str) -> Result<Self, BadClientUrl> {
        if text.len() > MAX_CLIENT_ADDRESS_BYTES {
            return Err(BadClientUrl::Length);
        }
        let plain = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\\\"'<>^`{|}".contains(&byte));
        if !plain || !text.starts_with("https://") {
            return Err(BadClientUrl::Form);
        }
        let url = Url::parse(text).map_err(|_| BadClientUrl::Form)?;
        // Searched in the text, since the parser drops an empty user name: `https://@app.example/`
        // then gets the error that names its fault.
        let authority = text["https://".len()..].split(['/', '?', '#']).next();
        if text.contains('#') || authority.is_some_and(|authority| authority.contains('@')) {
            return Err(BadClientUrl::Parts);
        }
        if url.path() == "/" {
            return Err(BadClientUrl::NoPath);
        }
        let host = url.host_str().ok_or(BadClientUrl::Form)?.to_owned();
        if host.len() > MAX_HOST_BYTES {
            return Err(BadClientUrl::Host);
        }
        // Checked last, since the other errors tell more: a text in any other spelling would be a
        // second name for the same document.
        if url.as_str() != text {
            return Err(BadClientUrl::Form);
        }
        Ok(Self {
            text: text.to_owned(),
            host,
        })
    }
}

impl ClientUrl {
    /// Returns the address as the client wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the host, which consent pages show.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the client id that records, owners and logs use: derived from a hash of the address.
    pub fn id(&self) -> ClientId {
        ClientId::of_document(&Digest::of(self.text.as_bytes()))
    }
}

impl fmt::Display for ClientUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// The `client_id` that a client sends to the OAuth endpoints.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientName {
    /// The id that a client got when it registered.
    Registered(ClientId),
    /// The address of the client's document.
    Document(ClientUrl),
}

impl FromStr for ClientName {
    type Err = BadClientId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(url) => Ok(Self::Document(url)),
            Err(_) => text.parse().map(Self::Registered),
        }
    }
}

impl ClientName {
    /// Returns the id of the client's record.
    pub fn id(&self) -> ClientId {
        match self {
            Self::Registered(id) => id.clone(),
            Self::Document(url) => url.id(),
        }
    }

    /// Whether this name identifies `client`. A client with a document is named by its address
    /// only, not by the id of its record.
    pub fn is_name_of(&self, client: &Client) -> bool {
        match (self, &client.document) {
            (Self::Registered(id), None) => *id == client.id,
            (Self::Document(url), Some(document)) => url.text == document.url,
            _ => false,
        }
    }
}

/// The response to the request for a client's document.
#[derive(Clone, Debug, Default)]
pub struct FetchedDocument {
    /// Status of the response. The document counts only with 200.
    pub status: u16,
    /// Value of `Content-Type`; `None` if it is missing or occurs twice.
    pub content_type: Option<String>,
    /// All values of `Cache-Control`, joined with commas; `None` without any.
    pub cache_control: Option<String>,
    /// Value of the header `Age`, in seconds; 0 without one.
    pub age: i64,
    /// Body, of at most [`MAX_DOCUMENT_BYTES`]; empty unless the status is 200.
    pub body: Bytes,
}

/// Reason why a client's document could not be fetched. Only logged: the caller could use the
/// reason to probe the internal network.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The host resolves to an address that is not public.
    #[error("client address is not public")]
    NotPublic,
    /// Larger than [`MAX_DOCUMENT_BYTES`], or in an encoding that hides its size.
    #[error("client document is too large or compressed")]
    TooLarge,
    /// No connection, no valid certificate, or no complete answer in time.
    #[error("client address does not answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// This service cannot make requests, for example because TLS could not be set up.
    #[error("cannot make outbound requests")]
    Ours(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Port that fetches client documents. `outbound` implements it for a running service.
#[async_trait]
pub trait Documents: Send + Sync {
    /// Fetches the document at `url` with one request that follows no redirect, connects to public
    /// addresses only, reads at most [`MAX_DOCUMENT_BYTES`] and takes a few seconds at most. Fails
    /// if any of this is not possible.
    async fn fetch(&self, url: &ClientUrl) -> Result<FetchedDocument, FetchError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirement_13_what_may_be_a_client_s_address() {
        for good in [
            "https://app.example/client.json",
            "https://app.example:8443/a/b",
            "https://app.example/a?x=1",
            "https://xn--bcher-kva.example/c",
            "https://192.0.2.1/c",
        ] {
            let url: ClientUrl = good.parse().unwrap_or_else(|e| panic!("{good}: {e}"));
            assert_eq!(url.as_str(), good);
            assert_eq!(url.id().as_str().parse(), Ok(url.id()));
        }
        let long = format!(
            "https://app.example/{}",
            "a".repeat(MAX_CLIENT_ADDRESS_BYTES)
        );
        let host = |length: usize| format!("https://{:a>length$}/c", ".example");
        assert!(host(253).parse::<ClientUrl>().is_ok());
        for (text, why) in [
            (host(254).as_str(), BadClientUrl::Host),
            ("", BadClientUrl::Form),
            (long.as_str(), BadClientUrl::Length),
            ("http://app.example/c", BadClientUrl::Form),
            ("HTTPS://app.example/c", BadClientUrl::Form),
            ("https:app.example/c", BadClientUrl::Form),
            ("https://App.example/c", BadClientUrl::Form),
            ("https://app.example:443/c", BadClientUrl::Form),
            ("https://app.example/a/../c", BadClientUrl::Form),
            ("https://app.example/./c", BadClientUrl::Form),
            ("https://app.example/a/%2e%2e/c", BadClientUrl::Form),
            ("https://app.example\\c", BadClientUrl::Form),
            ("https://app.example/\u{e4}", BadClientUrl::Form),
            ("https://127.1/c", BadClientUrl::Form),
            ("https://0x7f.1/c", BadClientUrl::Form),
            ("https://app.example/c#x", BadClientUrl::Parts),
            ("https://app.example/c#", BadClientUrl::Parts),
            ("https://user@app.example/c", BadClientUrl::Parts),
            ("https://:word@app.example/c", BadClientUrl::Parts),
            ("https://@app.example/c", BadClientUrl::Parts),
            ("https://app.example", BadClientUrl::NoPath),
            ("https://app.example/", BadClientUrl::NoPath),
            ("https://app.example?x", BadClientUrl::NoPath),
            ("https:///c", BadClientUrl::NoPath),
        ] {
            assert_eq!(text.parse::<ClientUrl>(), Err(why), "{text}");
        }
    }
}
