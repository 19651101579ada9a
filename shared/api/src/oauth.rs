//! The JSON of OAuth: discovery, registration and tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the authorization server can do (RFC 8414).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct AuthorizationServer {
    /// Who it is.
    pub issuer: String,
    /// Where people sign in.
    pub authorization_endpoint: String,
    /// Where codes become tokens.
    pub token_endpoint: String,
    /// Where apps register.
    pub registration_endpoint: String,
    /// Where tokens end.
    pub revocation_endpoint: String,
    /// The scopes that exist.
    pub scopes_supported: Vec<String>,
    /// `code`.
    pub response_types_supported: Vec<String>,
    /// `query`.
    pub response_modes_supported: Vec<String>,
    /// `authorization_code` and `refresh_token`.
    pub grant_types_supported: Vec<String>,
    /// `none`: apps are public clients.
    pub token_endpoint_auth_methods_supported: Vec<String>,
    /// `none`.
    pub revocation_endpoint_auth_methods_supported: Vec<String>,
    /// `S256`.
    pub code_challenge_methods_supported: Vec<String>,
    /// True: answers name the issuer (RFC 9207).
    pub authorization_response_iss_parameter_supported: bool,
    /// What `acr_values` may ask for.
    pub acr_values_supported: Vec<String>,
    /// Whether an app may be known by the address of a document that describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id_metadata_document_supported: Option<bool>,
}

/// A resource that takes tokens (RFC 9728).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ProtectedResource {
    /// Its address.
    pub resource: String,
    /// Who gives the tokens.
    pub authorization_servers: Vec<String>,
    /// The scopes that exist.
    pub scopes_supported: Vec<String>,
    /// `header`.
    pub bearer_methods_supported: Vec<String>,
    /// Its name.
    pub resource_name: String,
}

/// An app that registers (RFC 7591).
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Registration {
    /// Where answers may go: 1 to 20 addresses, of at most 512 bytes.
    #[schemars(length(min = 1, max = 20), inner(length(max = 512)))]
    pub redirect_uris: Vec<String>,
    /// What the app calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// `authorization_code` and `refresh_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_types: Option<Vec<String>>,
    /// `code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_types: Option<Vec<String>>,
    /// The scopes that it may ask for, separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_method: Option<String>,
}

/// An app that has registered.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Registered {
    /// Its id, `cli_…`.
    pub client_id: String,
    /// When, in seconds since 1970.
    #[serde(default)]
    pub client_id_issued_at: i64,
    /// Its name, without characters that could mislead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Where answers may go.
    #[serde(default)]
    pub redirect_uris: Vec<String>,
    /// `authorization_code` and `refresh_token`.
    #[serde(default)]
    pub grant_types: Vec<String>,
    /// `code`.
    #[serde(default)]
    pub response_types: Vec<String>,
    /// `none`.
    #[serde(default)]
    pub token_endpoint_auth_method: String,
    /// The scopes that it may ask for, separated by spaces.
    #[serde(default)]
    pub scope: String,
}

/// Tokens.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct Tokens {
    /// `vat_…`.
    pub access_token: String,
    /// `Bearer`.
    #[serde(default)]
    pub token_type: String,
    /// Seconds.
    pub expires_in: i64,
    /// `vrt_…`; works once. An operator gets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// What the access token carries, separated by spaces.
    #[serde(default)]
    pub scope: String,
}

/// An error of OAuth.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(rename = "OAuthError")]
pub struct OAuthError {
    /// What to match on.
    pub error: String,
    /// One sentence for people; may change.
    pub error_description: String,
}
