//! Discovery documents, from which clients learn all other addresses: RFC 8414 (served at two
//! well-known paths) and RFC 9728.

use serde_json::{Value, json};

use crate::bearer::SECOND_FACTOR_ACR;
use crate::config::PublicUrl;

/// Scopes that every document names.
const SCOPES: [&str; 2] = ["read", "write"];

/// Returns the metadata of the authorization server. Some clients look for them at the path of
/// OpenID Connect discovery, which serves the same document. `documents` tells whether a client may
/// be identified by the URL of a document.
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
        // Stated although clients do not authenticate: without this member, they would assume
        // `client_secret_basic`.
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        // Clients that follow the MCP specification refuse a server that does not list S256.
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "acr_values_supported": [SECOND_FACTOR_ACR],
        "prompt_values_supported": ["consent", "login", "select_account"],
    });
    if documents {
        metadata["client_id_metadata_document_supported"] = true.into();
    }
    metadata
}

/// Returns the metadata of the resource at `path` below the public URL: empty, or `/mcp`.
pub fn protected_resource(public: &PublicUrl, path: &str) -> Value {
    json!({
        "resource": public.join(path),
        "authorization_servers": [public.as_str()],
        "scopes_supported": SCOPES,
        "bearer_methods_supported": ["header"],
        "resource_name": "vault",
    })
}
