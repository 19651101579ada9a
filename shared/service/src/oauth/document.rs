//! Clients that are known by an address: the client id is an https URL, and the document there says who the client is
//! (OAuth client ID metadata documents). Nothing that it says is believed beyond that whoever holds the address wrote it.
//!
//! Pure, but for the port [`Documents`], by which the document is fetched: the only request that the service ever makes to an address that
//! a stranger chose. What the fetch must never do is in `outbound`.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use url::Url;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;

use super::register::{self, Metadata, RegisterError};
use crate::model::client::{Client, ClientId, Described};

/// Most bytes of a document.
pub const MAX_DOCUMENT_BYTES: usize = 5 * 1024;
/// Longest address of a document, in bytes.
pub const LONGEST: usize = 1024;
/// How long a document counts at least, in seconds: one walk through the pages sees one document.
pub const LEAST_FRESH: i64 = 5 * 60;
/// How long a document counts at most, in seconds: a day.
pub const MOST_FRESH: i64 = 24 * 3600;
/// How long a document counts whose sender says nothing about it, in seconds: an hour.
const USUAL_FRESH: i64 = 3600;

/// The address of a client's document, as the client writes it: compared byte for byte, never rewritten.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientUrl {
    text: String,
    host: String,
}

/// Why a text is no address of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadClientUrl {
    /// Not https, or not written as a browser would write it: dot segments, upper case in the host, a port that goes without saying.
    #[error("client address must be an https URL in its normal form")]
    Form,
    /// Longer than [`LONGEST`].
    #[error("client address must have at most 1024 bytes")]
    Length,
    /// It has a fragment, a user or a password.
    #[error("client address must not contain a fragment or a user name")]
    Parts,
    /// It names a host alone.
    #[error("client address must have a path")]
    NoPath,
}

impl FromStr for ClientUrl {
    type Err = BadClientUrl;

    fn from_str(text: &str) -> Result<Self, BadClientUrl> {
        if text.len() > LONGEST {
            return Err(BadClientUrl::Length);
        }
        let plain = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\\\"'<>^`{|}".contains(&byte));
        if !plain || !text.starts_with("https://") {
            return Err(BadClientUrl::Form);
        }
        let url = Url::parse(text).map_err(|_| BadClientUrl::Form)?;
        let authority = text["https://".len()..].split(['/', '?', '#']).next();
        if text.contains('#') || authority.is_some_and(|authority| authority.contains('@')) {
            return Err(BadClientUrl::Parts);
        }
        if url.path() == "/" {
            return Err(BadClientUrl::NoPath);
        }
        let host = url.host_str().ok_or(BadClientUrl::Form)?.to_owned();
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
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host: what a person is shown.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The id by which records, owners and logs name the client.
    pub fn id(&self) -> ClientId {
        ClientId::of_document(&Digest::of(self.text.as_bytes()))
    }
}

impl fmt::Display for ClientUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// What a client calls itself at the endpoints: the id it was given, or its address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientName {
    /// It registered.
    Registered(ClientId),
    /// It has a document.
    Document(ClientUrl),
}

impl FromStr for ClientName {
    type Err = crate::model::client::BadClientId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(url) => Ok(Self::Document(url)),
            Err(_) => text.parse().map(Self::Registered),
        }
    }
}

impl ClientName {
    /// The id of the client's record.
    pub fn id(&self) -> ClientId {
        match self {
            Self::Registered(id) => id.clone(),
            Self::Document(url) => url.id(),
        }
    }

    /// Whether `client` is the one of this name. A client with a document has one name only, its address.
    pub fn names(&self, client: &Client) -> bool {
        match (self, &client.document) {
            (Self::Registered(id), None) => *id == client.id,
            (Self::Document(url), Some(document)) => url.text == document.url,
            _ => false,
        }
    }
}

/// What came from a client's address.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// The status.
    pub status: u16,
    /// `Content-Type`, when there is one.
    pub content_type: Option<String>,
    /// All of `Cache-Control`, joined.
    pub cache_control: Option<String>,
    /// `Age`, in seconds.
    pub age: i64,
    /// The body, at most [`MAX_DOCUMENT_BYTES`].
    pub body: Bytes,
}

/// Why nothing came from a client's address. For the log; a stranger who is told which, could look around inside with our eyes.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The name points to an address that is not public.
    #[error("client address is not public")]
    NotPublic,
    /// More than [`MAX_DOCUMENT_BYTES`], or an encoding that hides how much.
    #[error("client document is too large or compressed")]
    TooLarge,
    /// No connection, no certificate, no whole answer in time.
    #[error("client address does not answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// This service cannot ask anybody.
    #[error("cannot make outbound requests")]
    Ours(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The port by which documents are fetched.
#[async_trait]
pub trait Documents: Send + Sync {
    /// What stands at `url`, by one request that follows no redirect, reaches no address that is not public, reads at most
    /// [`MAX_DOCUMENT_BYTES`] and takes a few seconds at most. Fails when it would have to do otherwise.
    async fn fetch(&self, url: &ClientUrl) -> Result<Fetched, FetchError>;
}

/// Why what came is no document of the client.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadDocument {
    /// Anything but 200: a redirect leads to somebody else's words.
    #[error("client address answers with status {0} instead of 200")]
    Status(u16),
    /// Not JSON by its type.
    #[error("media type of the client document must be JSON")]
    MediaType,
    /// Not a JSON object, or one with a member twice.
    #[error("client document must be a JSON object")]
    NotJson,
    /// It speaks of another client.
    #[error("client_id of the client document must be its address")]
    OtherClient,
    /// It has a secret, which everybody can read there.
    #[error("client document must not contain or request a secret")]
    Secret,
    /// It has no name for people.
    #[error("client document must contain client_name")]
    NoName,
    /// It breaks a rule that holds for every client.
    #[error("{0}")]
    Metadata(#[from] RegisterError),
}

/// The members that a registration does not have.
#[derive(Deserialize)]
struct Own {
    client_id: Option<Value>,
    client_secret: Option<Value>,
    client_secret_expires_at: Option<Value>,
    token_endpoint_auth_method: Option<Value>,
}

/// The client that the document at `url` describes, with how long it counts. Fails with the first rule that the document breaks.
pub fn read(url: &ClientUrl, fetched: &Fetched, now: Timestamp) -> Result<Client, BadDocument> {
    if fetched.status != 200 {
        return Err(BadDocument::Status(fetched.status));
    }
    if !fetched.content_type.as_deref().is_some_and(is_json) {
        return Err(BadDocument::MediaType);
    }
    let own: Own = parse(&fetched.body)?;
    if own.client_id.as_ref().and_then(Value::as_str) != Some(url.as_str()) {
        return Err(BadDocument::OtherClient);
    }
    let shared = match own.token_endpoint_auth_method.as_ref() {
        None | Some(Value::Null) => false,
        // Every client is public here, so one that could prove itself by a key is served as if it could not.
        Some(Value::String(method)) => method.starts_with("client_secret"),
        Some(_) => true,
    };
    if shared || own.client_secret.is_some() || own.client_secret_expires_at.is_some() {
        return Err(BadDocument::Secret);
    }
    let metadata: Metadata = parse(&fetched.body)?;
    let mut client = register::client(&metadata, url.id(), now)?;
    if client.name.is_none() {
        return Err(BadDocument::NoName);
    }
    client.document = Some(Described {
        url: url.as_str().to_owned(),
        host: url.host().to_owned(),
        fresh_until: now.plus_seconds(fresh_seconds(fetched)),
    });
    Ok(client)
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, BadDocument> {
    crate::http::parse_json(body).map_err(|_| BadDocument::NotJson)
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// How long a document counts by its headers, within our bounds: `no-store` cannot make a walk fetch it at each step, nor `max-age` keep
/// it for a year.
fn fresh_seconds(fetched: &Fetched) -> i64 {
    let Some(control) = &fetched.cache_control else {
        return USUAL_FRESH;
    };
    let directives = control.split(',').map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim().trim_matches('"').to_owned();
        (name.trim().to_ascii_lowercase(), value)
    });
    let mut seconds = USUAL_FRESH;
    for (name, value) in directives {
        match name.as_str() {
            "no-store" | "no-cache" => return LEAST_FRESH,
            "max-age" => {
                let most = value.parse::<i64>().unwrap_or(0);
                seconds = most.saturating_sub(fetched.age.max(0));
            }
            _ => {}
        }
    }
    seconds.clamp(LEAST_FRESH, MOST_FRESH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const URL: &str = "https://app.example/client.json";

    fn fetched(document: &Value) -> Fetched {
        Fetched {
            status: 200,
            content_type: Some("application/json".into()),
            body: document.to_string().into(),
            ..Fetched::default()
        }
    }

    fn good() -> Value {
        json!({
            "client_id": URL,
            "client_name": "An app",
            "redirect_uris": ["https://app.example/cb", "http://127.0.0.1/cb"],
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": "none",
            "logo_uri": "https://app.example/logo.png",
        })
    }

    fn client(fetched: &Fetched) -> Result<Client, BadDocument> {
        read(&URL.parse().unwrap(), fetched, Timestamp::from_unix(1000))
    }

    #[test]
    fn requirement_13_what_may_be_a_client_s_address() {
        for good in [
            URL,
            "https://app.example:8443/a/b",
            "https://app.example/a?x=1",
            "https://xn--bcher-kva.example/c",
            "https://192.0.2.1/c",
        ] {
            let url: ClientUrl = good.parse().unwrap_or_else(|e| panic!("{good}: {e}"));
            assert_eq!(url.as_str(), good);
            assert_eq!(url.id().as_str().parse(), Ok(url.id()));
        }
        let long = format!("https://app.example/{}", "a".repeat(LONGEST));
        for (text, why) in [
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

    #[test]
    fn requirement_13_a_client_has_one_name() {
        let document: ClientName = URL.parse().unwrap();
        let read = client(&fetched(&good())).unwrap();
        assert!(document.names(&read));
        let by_id = ClientName::Registered(read.id.clone());
        assert_eq!(by_id.id(), document.id());
        assert!(!by_id.names(&read), "its id is no second name");
        let other: ClientName = "https://app.example/client.jsoN".parse().unwrap();
        assert!(!other.names(&read) && other.id() != document.id());
        let registered = Client {
            document: None,
            ..read
        };
        assert!(!document.names(&registered) && by_id.names(&registered));
    }

    #[test]
    fn requirement_13_what_a_document_must_say() {
        let read = client(&fetched(&good())).unwrap();
        assert_eq!(read.name.as_deref(), Some("An app"));
        assert_eq!(read.redirect_uris.len(), 2);
        let without = |name: &str| {
            let mut document = good();
            document.as_object_mut().unwrap().remove(name);
            document
        };
        let with = |name: &str, value: Value| {
            let mut document = good();
            document[name] = value;
            document
        };
        for method in [json!("none"), json!("private_key_jwt"), Value::Null] {
            assert!(client(&fetched(&with("token_endpoint_auth_method", method))).is_ok());
        }
        for (document, why) in [
            (without("client_id"), BadDocument::OtherClient),
            (
                with("client_id", json!("https://app.example/client.json/")),
                BadDocument::OtherClient,
            ),
            (
                with("client_id", json!("https://evil.example/client.json")),
                BadDocument::OtherClient,
            ),
            (with("client_id", json!([URL])), BadDocument::OtherClient),
            (without("client_name"), BadDocument::NoName),
            (with("client_name", json!("\u{200b}")), BadDocument::NoName),
            (with("client_secret", json!("x")), BadDocument::Secret),
            (
                with("client_secret_expires_at", json!(0)),
                BadDocument::Secret,
            ),
            (
                with("token_endpoint_auth_method", json!("client_secret_basic")),
                BadDocument::Secret,
            ),
            (
                with("token_endpoint_auth_method", json!("client_secret_post")),
                BadDocument::Secret,
            ),
            (
                with("token_endpoint_auth_method", json!("client_secret_jwt")),
                BadDocument::Secret,
            ),
            (
                with("token_endpoint_auth_method", json!(["none"])),
                BadDocument::Secret,
            ),
            (
                without("redirect_uris"),
                BadDocument::Metadata(RegisterError::RedirectCount),
            ),
            (
                with("redirect_uris", json!([])),
                BadDocument::Metadata(RegisterError::RedirectCount),
            ),
            (json!([good()]), BadDocument::NotJson),
        ] {
            assert_eq!(client(&fetched(&document)).unwrap_err(), why, "{document}");
        }
        for redirect in [
            "javascript:x",
            "http://app.example/cb",
            "https://a@app.example/cb",
        ] {
            let document = with("redirect_uris", json!([redirect]));
            let refused = client(&fetched(&document)).unwrap_err();
            assert!(
                matches!(refused, BadDocument::Metadata(RegisterError::Redirect(_))),
                "{redirect}"
            );
        }
        let twice = format!("{{\"client_id\":\"{URL}\",\"client_id\":\"{URL}\"}}");
        let body = Fetched {
            body: twice.into(),
            ..fetched(&good())
        };
        assert_eq!(client(&body).unwrap_err(), BadDocument::NotJson);
    }

    #[test]
    fn requirement_13_only_a_plain_200_of_json_counts() {
        for status in [201, 204, 301, 302, 303, 304, 307, 308, 400, 404, 500] {
            let answer = Fetched {
                status,
                ..fetched(&good())
            };
            assert_eq!(client(&answer).unwrap_err(), BadDocument::Status(status));
        }
        for (media_type, fine) in [
            (Some("application/json"), true),
            (Some("Application/JSON; charset=utf-8"), true),
            (Some("application/cimd+json"), true),
            (Some("text/html"), false),
            (Some("text/json"), false),
            (Some("application/jsonp"), false),
            (None, false),
        ] {
            let content_type = media_type.map(str::to_owned);
            let answer = Fetched {
                content_type,
                ..fetched(&good())
            };
            assert_eq!(client(&answer).is_ok(), fine, "{media_type:?}");
        }
    }

    #[test]
    fn requirement_13_headers_say_how_long_within_bounds() {
        for (control, age, seconds) in [
            (None, 0, USUAL_FRESH),
            (Some("max-age=7200"), 0, 7200),
            (Some("public, max-age=7200, immutable"), 1200, 6000),
            (Some("max-age=\"7200\""), 0, 7200),
            (Some("max-age=60"), 0, LEAST_FRESH),
            (Some("max-age=0"), 0, LEAST_FRESH),
            (Some("max-age=31536000"), 0, MOST_FRESH),
            (Some("max-age=99999999999999999999"), 0, LEAST_FRESH),
            (Some("max-age=7200"), i64::MAX, LEAST_FRESH),
            (Some("max-age=7200"), i64::MIN, 7200),
            (Some("no-store, max-age=7200"), 0, LEAST_FRESH),
            (Some("No-Cache"), 0, LEAST_FRESH),
            (Some("private"), 0, USUAL_FRESH),
            (Some("=,;="), 0, USUAL_FRESH),
        ] {
            let answer = Fetched {
                cache_control: control.map(str::to_owned),
                age,
                ..fetched(&good())
            };
            let document = client(&answer).unwrap().document.unwrap();
            assert_eq!(document.fresh_until.unix() - 1000, seconds, "{control:?}");
        }
    }
}
