//! The JSON documents of OAuth: discovery, registration and tokens. "Always" in a description means
//! that this service always sends this value; the command line also reads other services.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The capabilities of the authorization server (RFC 8414).
// Every member has a default, since most are optional in the standard and the command line reads
// the document of any service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct AuthorizationServer {
    /// Identifier of the server, which is its base address.
    pub issuer: String,
    /// The address to which an app sends the browser, so that the person signs in and consents.
    pub authorization_endpoint: String,
    /// The address at which an app exchanges a code or a refresh token for tokens.
    pub token_endpoint: String,
    /// The address at which an app registers itself (RFC 7591).
    pub registration_endpoint: String,
    /// The address to which an app posts a token to revoke it (RFC 7009).
    pub revocation_endpoint: String,
    /// The scopes that exist.
    pub scopes_supported: Vec<String>,
    /// Always `code`.
    pub response_types_supported: Vec<String>,
    /// Always `query`: answers are in the query of the redirect.
    pub response_modes_supported: Vec<String>,
    /// Always `authorization_code` and `refresh_token`.
    pub grant_types_supported: Vec<String>,
    /// Always `none`: apps are public clients, which have no secret.
    pub token_endpoint_auth_methods_supported: Vec<String>,
    /// Always `none`: an app needs no secret to revoke a token.
    pub revocation_endpoint_auth_methods_supported: Vec<String>,
    /// Always `S256`. Each authorization request must use it (PKCE, RFC 7636).
    pub code_challenge_methods_supported: Vec<String>,
    /// Always true: answers name the issuer (RFC 9207).
    pub authorization_response_iss_parameter_supported: bool,
    /// Values of `acr_values` with which an app demands a second factor.
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
    /// Address of the resource, which is also the audience of its tokens.
    pub resource: String,
    /// The servers that issue its tokens.
    pub authorization_servers: Vec<String>,
    /// The scopes that exist.
    pub scopes_supported: Vec<String>,
    /// Always `header`: tokens are sent in `Authorization`.
    pub bearer_methods_supported: Vec<String>,
    /// Name of the resource for people, always `vault`.
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
    /// Name that the app gives itself. It is cut after 80 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// `authorization_code`, alone or with `refresh_token`; both if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_types: Option<Vec<String>>,
    /// `code`, the only one that is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_types: Option<Vec<String>>,
    /// Scopes that the app may ask for, separated by spaces; all if it names none that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Ignored: apps get no secret, so the answer is `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_method: Option<String>,
}

/// An app that has registered.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Registered {
    /// Id of the app, `cli_…`.
    pub client_id: String,
    /// Time of the registration, in seconds since 1970.
    #[serde(default)]
    pub client_id_issued_at: i64,
    /// Name of the app, without characters that could mislead; absent if none is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Redirect addresses to which codes may be sent.
    #[serde(default)]
    pub redirect_uris: Vec<String>,
    /// Always `authorization_code` and `refresh_token`.
    #[serde(default)]
    pub grant_types: Vec<String>,
    /// Always `code`.
    #[serde(default)]
    pub response_types: Vec<String>,
    /// Always `none`: the app has no secret.
    #[serde(default)]
    pub token_endpoint_auth_method: String,
    /// Scopes that the app may ask for, separated by spaces.
    #[serde(default)]
    pub scope: String,
}

/// The answer of the token endpoint (RFC 6749 section 5.1).
// No `Debug`: tokens must not come into a log.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct Tokens {
    /// Access token, `vat_…`, to send in the header `Authorization`.
    pub access_token: String,
    /// Always `Bearer`.
    #[serde(default)]
    pub token_type: String,
    /// Lifetime of the access token, in seconds.
    pub expires_in: i64,
    /// Refresh token, `vrt_…`, which can be used once. Absent for the rights of an operator, which
    /// end with the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// The scopes of the access token, separated by spaces.
    #[serde(default)]
    pub scope: String,
}

/// The answer of an OAuth endpoint to a request that it rejects (RFC 6749 section 5.2).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(rename = "OAuthError")]
pub struct OAuthError {
    /// Error code of OAuth, to match on, such as `invalid_grant`.
    pub error: String,
    /// One sentence for people; may change.
    pub error_description: String,
}
