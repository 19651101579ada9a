//! The JSON documents of OAuth: discovery, registration and tokens. A description that is only a
//! value in code marks means that this service always sends that value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The capabilities of the authorization server (RFC 8414).
// Every member has a default, since most are optional in the standard and the command line reads
// the document of any service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct AuthorizationServer {
    /// Its identifier, which is its base address.
    pub issuer: String,
    /// The address at which people sign in.
    pub authorization_endpoint: String,
    /// The address that exchanges codes for tokens.
    pub token_endpoint: String,
    /// The address at which apps register.
    pub registration_endpoint: String,
    /// The address that revokes tokens.
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
    /// The values of `acr_values`.
    pub acr_values_supported: Vec<String>,
    /// The values of `prompt` that an authorization request may have.
    pub prompt_values_supported: Vec<String>,
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
    /// The servers that issue its tokens.
    pub authorization_servers: Vec<String>,
    /// The scopes that exist.
    pub scopes_supported: Vec<String>,
    /// `header`.
    pub bearer_methods_supported: Vec<String>,
    /// Its name.
    pub resource_name: String,
}

/// An app that registers (RFC 7591).
// Unknown members are accepted here: the standard tells servers to ignore metadata that they do not
// know.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Registration {
    /// Allowed redirect addresses: 1 to 20, of at most 512 bytes.
    #[schemars(length(min = 1, max = 20), inner(length(max = 512)))]
    pub redirect_uris: Vec<String>,
    /// The name that the app gives itself.
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
    /// Time of the registration, in seconds since 1970.
    #[serde(default)]
    pub client_id_issued_at: i64,
    /// Its name, without characters that could mislead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Allowed redirect addresses.
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
// No `Debug`: tokens must not come into a log.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct Tokens {
    /// `vat_…`.
    pub access_token: String,
    /// `Bearer`.
    #[serde(default)]
    pub token_type: String,
    /// Lifetime of the access token, in seconds.
    pub expires_in: i64,
    /// `vrt_…`; can be used once. An operator gets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// The scopes of the access token, separated by spaces.
    #[serde(default)]
    pub scope: String,
}

/// An error of OAuth.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(rename = "OAuthError")]
pub struct OAuthError {
    /// The error code, to match on.
    pub error: String,
    /// One sentence for people; may change.
    pub error_description: String,
}
