//! The documents by which clients find everything else: RFC 8414 (served at both well-known names)
//! and RFC 9728.

use serde_json::{Value, json};

use crate::bearer::SECOND_FACTOR_ACR;
use crate::config::PublicUrl;

/// The scopes that exist, as every document names them.
const SCOPES: [&str; 2] = ["read", "write"];

/// The authorization server's metadata. The second well-known name serves this document too, though
/// it is not a provider of identities. `documents` says whether clients may be known by the address
/// of a document.
pub fn authorization_server(public: &PublicUrl, documents: bool) -> Value {
    let mut metadata = json!({
        "issuer": public.as_str(),
        "authorization_endpoint": public.join("/oauth/authorize"),
        "token_endpoint": public.join("/oauth/token"),
        "registration_endpoint": public.join("/oauth/register"),
        "revocation_endpoint": public.join("/oauth/revoke"),
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "acr_values_supported": [SECOND_FACTOR_ACR],
    });
    if documents {
        metadata["client_id_metadata_document_supported"] = true.into();
    }
    metadata
}

/// The metadata of the resource at `path` below the public URL: empty, or `/mcp`.
pub fn protected_resource(public: &PublicUrl, path: &str) -> Value {
    json!({
        "resource": public.join(path),
        "authorization_servers": [public.as_str()],
        "scopes_supported": SCOPES,
        "bearer_methods_supported": ["header"],
        "resource_name": "vault",
    })
}
