//! The discovery document of a provider (OpenID Connect Discovery 1.0, section 3).

use serde::Deserialize;

use crate::config::Issuer;

/// The members of a discovery document that a sign-in uses.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Discovery {
    issuer: String,
    /// Address to which a browser is sent for the sign-in.
    pub authorization_endpoint: String,
    /// Address that exchanges a code for an ID token.
    pub token_endpoint: String,
    /// Address of the keys that sign ID tokens.
    pub jwks_uri: String,
    /// Address that returns the e-mail address of a person if the ID token does not contain it.
    #[serde(default)]
    pub userinfo_endpoint: Option<String>,
    /// Whether redirects back from the provider name it as `iss` (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// Authentication method of a client with a secret at the token endpoint (OpenID Connect Core,
/// section 9).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientAuth {
    /// `client_secret_basic`: the secret is in the `Authorization` header.
    Basic,
    /// `client_secret_post`: the secret is in the body.
    Post,
}

/// Reason why a discovery document cannot be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadDiscovery {
    /// The document is not JSON, or a required member is missing.
    #[error("the discovery document is not valid")]
    Form,
    /// The `issuer` in the document is not the one in the settings, so every token would be
    /// refused.
    #[error("the discovery document names another issuer than VAULT_OIDC_ISSUER")]
    Issuer,
    /// The document would send browsers or this service to an address that is not https.
    #[error("the discovery document names an address that is not https")]
    Address,
}

impl Discovery {
    /// Parses and checks the document that was found at the address of `issuer`.
    pub fn parse_document(issuer: &Issuer, document: &[u8]) -> Result<Self, BadDiscovery> {
        let read: Self = serde_json::from_slice(document).map_err(|_| BadDiscovery::Form)?;
        // Compared byte for byte, as the tokens are: with another issuer, all of them would be
        // refused.
        if read.issuer != issuer.as_str() {
            return Err(BadDiscovery::Issuer);
        }
        if read
            .named_addresses()
            .all(|address| issuer.may_name(address))
        {
            Ok(read)
        } else {
            Err(BadDiscovery::Address)
        }
    }

    fn named_addresses(&self) -> impl Iterator<Item = &String> {
        let required = [
            &self.authorization_endpoint,
            &self.token_endpoint,
            &self.jwks_uri,
        ];
        required.into_iter().chain(&self.userinfo_endpoint)
    }

    /// Chooses how this service sends its client secret: by Basic, unless the provider supports
    /// only Post.
    pub fn client_auth(&self) -> ClientAuth {
        let methods = self.token_endpoint_auth_methods_supported.as_deref();
        let names = |wanted: &str| {
            methods.is_some_and(|methods| methods.iter().any(|method| method == wanted))
        };
        // Basic is the default of the specification for a provider that lists no methods.
        if names("client_secret_post") && !names("client_secret_basic") {
            ClientAuth::Post
        } else {
            ClientAuth::Basic
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn document(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut document = json!({
            "issuer": "https://id.example",
            "authorization_endpoint": "https://id.example/auth",
            "token_endpoint": "https://id.example/token",
            "jwks_uri": "https://id.example/keys",
        });
        change(&mut document);
        document.to_string().into_bytes()
    }

    #[test]
    fn a_document_is_about_the_provider_that_was_asked() {
        let issuer: Issuer = "https://id.example".parse().unwrap();
        let read = |change: fn(&mut Value)| Discovery::parse_document(&issuer, &document(change));
        assert!(read(|_| {}).is_ok());
        let refused: [(fn(&mut Value), _); 6] = [
            (
                |d| d["issuer"] = json!("https://id.example/"),
                BadDiscovery::Issuer,
            ),
            (
                |d| d["issuer"] = json!("https://evil.example"),
                BadDiscovery::Issuer,
            ),
            (
                |d| d["jwks_uri"] = json!("http://id.example/keys"),
                BadDiscovery::Address,
            ),
            (
                |d| d["userinfo_endpoint"] = json!("file:///etc/passwd"),
                BadDiscovery::Address,
            ),
            (|d| d["token_endpoint"] = json!(null), BadDiscovery::Form),
            (|d| *d = json!([]), BadDiscovery::Form),
        ];
        for (change, why) in refused {
            assert_eq!(read(change), Err(why));
        }
    }

    #[test]
    fn the_secret_goes_into_the_header_unless_only_the_body_is_known() {
        let issuer: Issuer = "https://id.example".parse().unwrap();
        for (methods, wanted) in [
            (json!(null), ClientAuth::Basic),
            (
                json!(["client_secret_post", "client_secret_basic"]),
                ClientAuth::Basic,
            ),
            (json!(["client_secret_post"]), ClientAuth::Post),
            (json!(["private_key_jwt"]), ClientAuth::Basic),
        ] {
            let document = document(|d| d["token_endpoint_auth_methods_supported"] = methods);
            let read = Discovery::parse_document(&issuer, &document).unwrap();
            assert_eq!(read.client_auth(), wanted);
        }
    }
}
