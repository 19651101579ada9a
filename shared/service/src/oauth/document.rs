//! Clients identified by a URL: the client id is an https URL, and the document at this URL
//! describes the client (OAuth client ID metadata documents). The document proves only that its
//! author controls the URL.
//!
//! All functions here are pure. Documents are fetched through [`crate::documents`].

use serde::Deserialize;
use serde_json::Value;
use vault_format::time::Timestamp;

use super::register::{self, ClientMetadata, RegisterError};
use crate::documents::{ClientUrl, FetchedDocument};
use crate::model::client::{Client, ClientDocument};

/// Minimum time for which a document is fresh, in seconds, so that one authorization flow sees one
/// document.
pub const MIN_FRESH_SECONDS: i64 = 5 * 60;
/// Maximum time for which a document is fresh, in seconds: a day.
pub const MAX_FRESH_SECONDS: i64 = 24 * 3600;
/// Time for which a stale document is used while its host fails, in seconds: a day.
pub const STALE_SECONDS: i64 = 24 * 3600;
/// Time for which a document is fresh if its headers do not say, in seconds: an hour.
const DEFAULT_FRESH_SECONDS: i64 = 3600;

/// Error: an answer is not a valid document of the client.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadDocument {
    /// The status is not 200. A redirect is refused too, because another host could be its target.
    #[error("client address answers with status {0} instead of 200")]
    Status(u16),
    /// The media type is neither `application/json` nor one that ends with `+json`.
    #[error("media type of the client document must be JSON")]
    MediaType,
    /// The body is not a JSON object, or repeats a member.
    #[error("client document must be a JSON object")]
    NotJson,
    /// The `client_id` in the document is not exactly the URL at which the document was found.
    #[error("client_id of the client document must be its address")]
    OtherClient,
    /// The document contains or requests a secret, although anyone can read the document.
    #[error("client document must not contain or request a secret")]
    Secret,
    /// The document has no name to show to people.
    #[error("client document must contain client_name")]
    NoName,
    /// The document breaks a rule that also holds for registrations.
    #[error("{0}")]
    Metadata(#[from] RegisterError),
}

/// Members that only a document has, not a registration.
#[derive(Deserialize)]
struct DocumentMembers {
    client_id: Option<Value>,
    client_secret: Option<Value>,
    client_secret_expires_at: Option<Value>,
    token_endpoint_auth_method: Option<Value>,
}

/// Reads the client from the document at `url`, and computes until when it is fresh. Fails with the
/// first rule that the document breaks.
pub fn read_client(
    url: &ClientUrl,
    fetched: &FetchedDocument,
    now: Timestamp,
) -> Result<Client, BadDocument> {
    if fetched.status != 200 {
        return Err(BadDocument::Status(fetched.status));
    }
    if !fetched.content_type.as_deref().is_some_and(is_json) {
        return Err(BadDocument::MediaType);
    }
    let own: DocumentMembers = parse_body(&fetched.body)?;
    // Compared byte for byte: otherwise the document could claim to be a client with another URL.
    if own.client_id.as_ref().and_then(Value::as_str) != Some(url.as_str()) {
        return Err(BadDocument::OtherClient);
    }
    let has_shared_secret = match own.token_endpoint_auth_method.as_ref() {
        None | Some(Value::Null) => false,
        // All clients are public here, so one that could authenticate by a key is accepted without
        // it.
        Some(Value::String(method)) => method.starts_with("client_secret"),
        Some(_) => true,
    };
    if has_shared_secret || own.client_secret.is_some() || own.client_secret_expires_at.is_some() {
        return Err(BadDocument::Secret);
    }
    // The same type and rules as for a registration, so that neither way allows a client more.
    let metadata: ClientMetadata = parse_body(&fetched.body)?;
    let mut client = register::build_client(&metadata, url.id(), now)?;
    if client.name.is_none() {
        return Err(BadDocument::NoName);
    }
    client.document = Some(ClientDocument {
        url: url.as_str().to_owned(),
        host: url.host().to_owned(),
        fresh_until: now.plus_seconds(fresh_seconds(fetched)),
        retry_at: None,
    });
    Ok(client)
}

fn parse_body<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, BadDocument> {
    crate::http::parse_json(body).map_err(|_| BadDocument::NotJson)
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Returns the seconds for which a document is fresh by its headers, within bounds: with
/// `no-store`, not each step of a flow fetches it, and `max-age` cannot keep it for a year.
fn fresh_seconds(fetched: &FetchedDocument) -> i64 {
    let Some(control) = &fetched.cache_control else {
        return DEFAULT_FRESH_SECONDS;
    };
    let directives = control.split(',').map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim().trim_matches('"').to_owned();
        (name.trim().to_ascii_lowercase(), value)
    });
    let mut seconds = DEFAULT_FRESH_SECONDS;
    for (name, value) in directives {
        match name.as_str() {
            "no-store" | "no-cache" => return MIN_FRESH_SECONDS,
            "max-age" => {
                let most = value.parse::<i64>().unwrap_or(0);
                // The time in other caches (`Age`) counts.
                seconds = most.saturating_sub(fetched.age.max(0));
            }
            _ => {}
        }
    }
    seconds.clamp(MIN_FRESH_SECONDS, MAX_FRESH_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{ClientName, MAX_DOCUMENT_BYTES};
    use crate::oauth::register::{LONGEST_REDIRECT, MOST_REDIRECTS};
    use serde_json::json;

    const URL: &str = "https://app.example/client.json";

    fn fetched(document: &Value) -> FetchedDocument {
        FetchedDocument {
            status: 200,
            content_type: Some("application/json".into()),
            body: document.to_string().into(),
            ..FetchedDocument::default()
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

    fn client(fetched: &FetchedDocument) -> Result<Client, BadDocument> {
        read_client(&URL.parse().unwrap(), fetched, Timestamp::from_unix(1000))
    }

    #[test]
    fn requirement_13_a_client_has_one_name() {
        let document: ClientName = URL.parse().unwrap();
        let read = client(&fetched(&good())).unwrap();
        assert!(document.is_name_of(&read));
        let by_id = ClientName::Registered(read.id.clone());
        assert_eq!(by_id.id(), document.id());
        assert!(!by_id.is_name_of(&read), "its id is no second name");
        let other: ClientName = "https://app.example/client.jsoN".parse().unwrap();
        assert!(!other.is_name_of(&read) && other.id() != document.id());
        let registered = Client {
            document: None,
            ..read
        };
        assert!(!document.is_name_of(&registered) && by_id.is_name_of(&registered));
    }

    #[test]
    fn requirement_13_a_document_has_room_for_what_may_be_registered() {
        let mut document = good();
        let longest = format!("{:a<LONGEST_REDIRECT$}", "https://app.example/cb");
        document["redirect_uris"] = json!(vec![longest; MOST_REDIRECTS]);
        let document = fetched(&document);
        // A quarter of the maximum size is left for other members of a document.
        let bytes = document.body.len();
        assert!(bytes < MAX_DOCUMENT_BYTES * 3 / 4, "{bytes}");
        assert_eq!(
            client(&document).unwrap().redirect_uris.len(),
            MOST_REDIRECTS
        );
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
                BadDocument::Metadata(RegisterError::NoRedirects),
            ),
            (
                with("redirect_uris", json!([])),
                BadDocument::Metadata(RegisterError::RedirectCount(0)),
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
        let body = FetchedDocument {
            body: twice.into(),
            ..fetched(&good())
        };
        assert_eq!(client(&body).unwrap_err(), BadDocument::NotJson);
    }

    #[test]
    fn requirement_13_only_a_plain_200_of_json_counts() {
        for status in [201, 204, 301, 302, 303, 304, 307, 308, 400, 404, 500] {
            let answer = FetchedDocument {
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
            let answer = FetchedDocument {
                content_type,
                ..fetched(&good())
            };
            assert_eq!(client(&answer).is_ok(), fine, "{media_type:?}");
        }
    }

    #[test]
    fn requirement_13_headers_say_how_long_within_bounds() {
        for (control, age, seconds) in [
            (None, 0, DEFAULT_FRESH_SECONDS),
            (Some("max-age=7200"), 0, 7200),
            (Some("public, max-age=7200, immutable"), 1200, 6000),
            (Some("max-age=\"7200\""), 0, 7200),
            (Some("max-age=60"), 0, MIN_FRESH_SECONDS),
            (Some("max-age=0"), 0, MIN_FRESH_SECONDS),
            (Some("max-age=31536000"), 0, MAX_FRESH_SECONDS),
            (Some("max-age=99999999999999999999"), 0, MIN_FRESH_SECONDS),
            (Some("max-age=7200"), i64::MAX, MIN_FRESH_SECONDS),
            (Some("max-age=7200"), i64::MIN, 7200),
            (Some("no-store, max-age=7200"), 0, MIN_FRESH_SECONDS),
            (Some("No-Cache"), 0, MIN_FRESH_SECONDS),
            (Some("private"), 0, DEFAULT_FRESH_SECONDS),
            (Some("=,;="), 0, DEFAULT_FRESH_SECONDS),
        ] {
            let answer = FetchedDocument {
                cache_control: control.map(str::to_owned),
                age,
                ..fetched(&good())
            };
            let document = client(&answer).unwrap().document.unwrap();
            assert_eq!(document.fresh_until.unix() - 1000, seconds, "{control:?}");
        }
    }
}
