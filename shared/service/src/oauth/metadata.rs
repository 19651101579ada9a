//! Discovery documents, from which clients learn all other addresses: RFC 8414 (served at two
//! well-known paths) and RFC 9728.

use vault_api::{AuthorizationServer, ProtectedResource};

use crate::bearer::SECOND_FACTOR_ACR;
use crate::config::PublicUrl;

/// Scopes that every document names.
const SCOPES: [&str; 2] = ["read", "write"];

/// Returns the metadata of the authorization server. Some clients look for them at the path of
/// OpenID Connect discovery, which serves the same document. `documents` tells whether a client may
/// be identified by the URL of a document.
pub fn authorization_server(public: &PublicUrl, documents: bool) -> AuthorizationServer {
    AuthorizationServer {
        issuer: public.as_str().to_owned(),
        authorization_endpoint: public.join("/oauth/authorize"),
        token_endpoint: public.join("/oauth/token"),
        registration_endpoint: public.join("/oauth/register"),
        revocation_endpoint: public.join("/oauth/revoke"),
        scopes_supported: words(&SCOPES),
        response_types_supported: words(&["code"]),
        response_modes_supported: words(&["query"]),
        grant_types_supported: words(&["authorization_code", "refresh_token"]),
        // Stated although clients do not authenticate: without this member, they would assume
        // `client_secret_basic`.
        token_endpoint_auth_methods_supported: words(&["none"]),
        revocation_endpoint_auth_methods_supported: words(&["none"]),
        // Clients that follow the MCP specification refuse a server that does not list S256.
        code_challenge_methods_supported: words(&["S256"]),
        authorization_response_iss_parameter_supported: true,
        acr_values_supported: words(&[SECOND_FACTOR_ACR]),
        prompt_values_supported: words(&["consent", "login", "select_account"]),
        client_id_metadata_document_supported: documents.then_some(true),
    }
}

/// Returns the metadata of the resource at `path` below the public URL: empty, or `/mcp`.
pub fn protected_resource(public: &PublicUrl, path: &str) -> ProtectedResource {
    ProtectedResource {
        resource: public.join(path),
        authorization_servers: words(&[public.as_str()]),
        scopes_supported: words(&SCOPES),
        bearer_methods_supported: words(&["header"]),
        resource_name: "vault".to_owned(),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
