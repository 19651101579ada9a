//! `POST /oauth/register`: an app registers itself as a client (RFC 7591) and gets an id. The
//! service trusts none of its claims.
//!
//! All clients are public: none gets a secret, and the answer for `token_endpoint_auth_method` is
//! always `none`.

use serde::Deserialize;
use serde_json::Value;
use vault_api::Registered;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, When, Write};

use crate::model::client::{Client, ClientId, UNUSED_SECONDS, client_key};
use crate::model::redirect::{BadRedirect, RedirectUri};
use crate::model::user::Scopes;

/// Maximum number of redirect URIs of one client, which bounds the size of its record. Editors
/// register up to six.
pub const MOST_REDIRECTS: usize = 20;
/// Maximum length of a redirect URI of a client, in bytes.
pub const LONGEST_REDIRECT: usize = 512;
/// Maximum length of a client's name, in characters; a longer one is cut.
const MAX_NAME_CHARS: usize = 80;

/// Error: a registration is refused. The codes are those of RFC 7591 section 3.2.2.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RegisterError {
    /// A redirect URI is not allowed; the value says which rule it breaks.
    #[error("{0}")]
    Redirect(#[from] BadRedirect),
    /// The redirect URIs are absent or not a list.
    #[error("redirect_uris must be a list of 1 to {MOST_REDIRECTS} redirect URIs")]
    NoRedirects,
    /// The list `redirect_uris` is empty, or has more than [`MOST_REDIRECTS`] entries.
    #[error("redirect_uris has {0} entries; it must have 1 to {MOST_REDIRECTS}")]
    RedirectCount(usize),
    /// A redirect URI is empty, or has more than [`LONGEST_REDIRECT`] bytes.
    #[error("redirect_uris[{index}] has {bytes} bytes; it must have 1 to {LONGEST_REDIRECT}")]
    RedirectLength {
        /// Index of the entry, from 0.
        index: usize,
        /// Length of the entry, in bytes.
        bytes: usize,
    },
    /// A redirect URI contains a parameter that the service itself adds, such as `code`.
    #[error("redirect URI must not contain the parameter {0}")]
    RedirectParameter(&'static str),
    /// A member other than `redirect_uris` has a value that is not supported.
    #[error("{0}")]
    Metadata(&'static str),
}

impl RegisterError {
    /// Returns the `error` member of the answer.
    pub const fn error_code(&self) -> &'static str {
        match self {
            Self::Redirect(_)
            | Self::NoRedirects
            | Self::RedirectCount(_)
            | Self::RedirectLength { .. }
            | Self::RedirectParameter(_) => "invalid_redirect_uri",
            Self::Metadata(_) => "invalid_client_metadata",
        }
    }
}

/// What an app claims about itself. Unknown members are ignored. The values may have any JSON type
/// until they are checked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClientMetadata {
    redirect_uris: Option<Value>,
    client_name: Option<Value>,
    grant_types: Option<Value>,
    response_types: Option<Value>,
    scope: Option<Value>,
}

/// Checks a registration. Returns the answer, and the client to store.
pub fn decide_registration(
    metadata: &ClientMetadata,
    now: Timestamp,
    random: &dyn Random,
) -> Result<(Registered, Client), RegisterError> {
    let client = build_client(metadata, ClientId::fresh(now, random), now)?;
    let redirect_uris = client.redirect_uris.iter();
    let answer = Registered {
        client_id: client.id.to_string(),
        client_id_issued_at: now.unix(),
        client_name: client.name.clone(),
        redirect_uris: redirect_uris.map(ToString::to_string).collect(),
        grant_types: ["authorization_code", "refresh_token"]
            .map(str::to_owned)
            .into(),
        response_types: vec!["code".to_owned()],
        token_endpoint_auth_method: "none".to_owned(),
        scope: client.scopes.to_string(),
    };
    Ok((answer, client))
}

/// Creates the client `id` from its metadata. Fails with the first rule that it breaks; the rules
/// are the same for a registration and for a document.
pub fn build_client(
    metadata: &ClientMetadata,
    id: ClientId,
    now: Timestamp,
) -> Result<Client, RegisterError> {
    let redirect_uris = redirect_uris(metadata.redirect_uris.as_ref())?;
    let grants = optional_words(
        metadata.grant_types.as_ref(),
        "grant_types must be a list of words",
    )?;
    if !grants
        .iter()
        .all(|grant| matches!(*grant, "authorization_code" | "refresh_token"))
    {
        return Err(RegisterError::Metadata(
            "grant_types may be authorization_code and refresh_token",
        ));
    }
    // Without the member, the client gets both grant types.
    if !grants.is_empty() && !grants.contains(&"authorization_code") {
        return Err(RegisterError::Metadata(
            "grant_types must have authorization_code",
        ));
    }
    let responses = optional_words(
        metadata.response_types.as_ref(),
        "response_types must be a list of words",
    )?;
    if !responses.iter().all(|response| *response == "code") {
        return Err(RegisterError::Metadata("response_types may be code"));
    }
    let asked_scopes = optional_text(metadata.scope.as_ref(), "scope must be text")?
        .map_or(Scopes::NONE, Scopes::parse_known);
    let name = optional_text(metadata.client_name.as_ref(), "client_name must be text")?;
    Ok(Client {
        id,
        name: name.and_then(shown_name),
        redirect_uris,
        // OpenID clients ask for scopes that do not exist here. A request without any known scope
        // gets all.
        scopes: if asked_scopes.is_empty() {
            Scopes::ALL
        } else {
            asked_scopes
        },
        created_at: now,
        document: None,
        unused_of: None,
    })
}

/// Returns the write that stores a registration. It expires soon unless the client is used.
pub fn registration_write(client: &Client) -> Result<Write, StoreError> {
    Ok(Write::put_until(
        client_key(&client.id),
        Document::from_value(client)?,
        When::Absent,
        client.created_at.plus_seconds(UNUSED_SECONDS),
    ))
}

fn redirect_uris(value: Option<&Value>) -> Result<Vec<RedirectUri>, RegisterError> {
    let list = value
        .and_then(Value::as_array)
        .ok_or(RegisterError::NoRedirects)?;
    if list.is_empty() || list.len() > MOST_REDIRECTS {
        return Err(RegisterError::RedirectCount(list.len()));
    }
    list.iter()
        .enumerate()
        .map(|(index, entry)| redirect_uri(index, entry.as_str().ok_or(BadRedirect::NotAbsolute)?))
        .collect()
}

fn redirect_uri(index: usize, text: &str) -> Result<RedirectUri, RegisterError> {
    // Checked before the other rules: an authorize request accepts longer URIs, and its error would
    // name that limit.
    if text.is_empty() || text.len() > LONGEST_REDIRECT {
        let bytes = text.len();
        return Err(RegisterError::RedirectLength { index, bytes });
    }
    let uri = RedirectUri::parse(text)?;
    match uri.reserved_parameter() {
        Some(name) => Err(RegisterError::RedirectParameter(name)),
        None => Ok(uri),
    }
}

fn optional_words<'v>(
    value: Option<&'v Value>,
    problem: &'static str,
) -> Result<Vec<&'v str>, RegisterError> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|entry| entry.as_str().ok_or(RegisterError::Metadata(problem)))
            .collect(),
        Some(_) => Err(RegisterError::Metadata(problem)),
    }
}

fn optional_text<'v>(
    value: Option<&'v Value>,
    problem: &'static str,
) -> Result<Option<&'v str>, RegisterError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(RegisterError::Metadata(problem)),
    }
}

/// Returns a name that is safe to show: without control, direction and invisible characters, with
/// single blanks, at most 80 characters. `None` if nothing is left.
fn shown_name(name: &str) -> Option<String> {
    let visible: String = name
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !is_misleading(*c))
        .collect();
    let joined = visible
        .split(' ')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    let short: String = joined.chars().take(MAX_NAME_CHARS).collect();
    (!short.is_empty()).then_some(short)
}

/// Whether a character is invisible or changes how the text around it reads.
fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use vault_testing::SeededRandom;

    fn register(metadata: Value) -> Result<(Registered, Client), RegisterError> {
        let metadata: ClientMetadata = serde_json::from_value(metadata).unwrap();
        decide_registration(
            &metadata,
            Timestamp::from_unix(1_795_219_200),
            &SeededRandom::new(1),
        )
    }

    #[test]
    fn requirement_9_everything_registered_is_told_back_and_there_is_no_secret() {
        let (answer, client) = register(json!({
            "redirect_uris": ["https://app.example/cb", "http://127.0.0.1/"],
            "client_name": "An  app\u{202e}",
            "token_endpoint_auth_method": "client_secret_basic",
            "scope": "read openid",
            "application_type": "native",
            "software_id": 5,
        }))
        .unwrap();
        let answer = serde_json::to_value(&answer).unwrap();
        assert_eq!(
            answer,
            json!({
                "client_id": client.id.as_str(),
                "client_id_issued_at": 1_795_219_200,
                "client_name": "An app",
                "redirect_uris": ["https://app.example/cb", "http://127.0.0.1/"],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
                "scope": "read",
            })
        );
    }

    #[test]
    fn requirement_10_what_is_refused() {
        let uri = "https://app.example/cb";
        for (metadata, code) in [
            (json!({}), "invalid_redirect_uri"),
            (json!({"redirect_uris": []}), "invalid_redirect_uri"),
            (json!({"redirect_uris": uri}), "invalid_redirect_uri"),
            (json!({"redirect_uris": [1]}), "invalid_redirect_uri"),
            (
                json!({"redirect_uris": vec![uri; 21]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": [uri, "http://app.example/cb"]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": [format!("{uri}?{}", "x".repeat(490))]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": [uri, format!("{uri}?code=EVIL")]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": ["http://127.0.0.1/cb?a=b&st%61te=EVIL"]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": ["app://cb?iss"]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": [format!("{uri}?error=EVIL")]}),
                "invalid_redirect_uri",
            ),
            (
                json!({"redirect_uris": [uri], "grant_types": ["implicit"]}),
                "invalid_client_metadata",
            ),
            (
                json!({"redirect_uris": [uri], "grant_types": ["refresh_token"]}),
                "invalid_client_metadata",
            ),
            (
                json!({"redirect_uris": [uri], "grant_types": "authorization_code"}),
                "invalid_client_metadata",
            ),
            (
                json!({"redirect_uris": [uri], "response_types": ["code", "token"]}),
                "invalid_client_metadata",
            ),
            (
                json!({"redirect_uris": [uri], "client_name": 5}),
                "invalid_client_metadata",
            ),
            (
                json!({"redirect_uris": [uri], "scope": ["read"]}),
                "invalid_client_metadata",
            ),
        ] {
            assert_eq!(
                register(metadata.clone())
                    .map(|_| ())
                    .map_err(|error| error.error_code()),
                Err(code),
                "{metadata}"
            );
        }
        assert!(register(json!({"redirect_uris": vec![uri; 20], "grant_types": null, "response_types": ["code"]})).is_ok());
    }

    #[test]
    fn requirement_10_what_is_too_much_is_counted_and_the_limit_named() {
        let uri = "https://app.example/cb";
        let of_bytes = |bytes| format!("{uri:a<bytes$}");
        for (redirects, why) in [
            (
                json!(uri),
                "redirect_uris must be a list of 1 to 20 redirect URIs",
            ),
            (
                json!([]),
                "redirect_uris has 0 entries; it must have 1 to 20",
            ),
            (
                json!(vec![uri; 21]),
                "redirect_uris has 21 entries; it must have 1 to 20",
            ),
            (
                json!([uri, of_bytes(513)]),
                "redirect_uris[1] has 513 bytes; it must have 1 to 512",
            ),
            (
                json!([of_bytes(2000)]),
                "redirect_uris[0] has 2000 bytes; it must have 1 to 512",
            ),
            (
                json!([uri, uri, ""]),
                "redirect_uris[2] has 0 bytes; it must have 1 to 512",
            ),
        ] {
            let refused = register(json!({ "redirect_uris": redirects })).unwrap_err();
            assert_eq!(refused.error_code(), "invalid_redirect_uri");
            assert_eq!(refused.to_string(), why);
        }
        assert!(register(json!({ "redirect_uris": vec![of_bytes(512); 20] })).is_ok());
    }

    #[test]
    fn requirement_12_names_are_cleaned() {
        for (name, shown) in [
            ("Claude", Some("Claude")),
            ("  a \n\t b  ", Some("a b")),
            ("a\u{200b}\u{feff}b\0", Some("ab")),
            ("\u{2066}evil\u{2069}", Some("evil")),
            ("\u{200b}", None),
            ("", None),
            ("<b>x</b>", Some("<b>x</b>")),
        ] {
            assert_eq!(shown_name(name).as_deref(), shown, "{name:?}");
        }
        assert_eq!(shown_name(&"x".repeat(500)).unwrap().len(), MAX_NAME_CHARS);
    }
}
