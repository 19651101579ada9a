use serde_json::json;

use super::world_at;
use crate::common::get;
use crate::support::world;

#[tokio::test]
async fn requirements_1_to_5_the_metadata_in_full() {
    let place = world();
    let reply = get(&place.app, "/.well-known/oauth-authorization-server").await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, "application/json")
    );
    insta::assert_snapshot!(serde_json::to_string_pretty(&reply.json()).unwrap(), @r#"
    {
      "acr_values_supported": [
        "second_factor"
      ],
      "authorization_endpoint": "https://vault.example/oauth/authorize",
      "authorization_response_iss_parameter_supported": true,
      "code_challenge_methods_supported": [
        "S256"
      ],
      "grant_types_supported": [
        "authorization_code",
        "refresh_token"
      ],
      "issuer": "https://vault.example",
      "prompt_values_supported": [
        "consent",
        "login",
        "select_account"
      ],
      "registration_endpoint": "https://vault.example/oauth/register",
      "response_modes_supported": [
        "query"
      ],
      "response_types_supported": [
        "code"
      ],
      "revocation_endpoint": "https://vault.example/oauth/revoke",
      "revocation_endpoint_auth_methods_supported": [
        "none"
      ],
      "scopes_supported": [
        "read",
        "write"
      ],
      "token_endpoint": "https://vault.example/oauth/token",
      "token_endpoint_auth_methods_supported": [
        "none"
      ]
    }
    "#);
    let openid = get(&place.app, "/.well-known/openid-configuration").await;
    assert_eq!(
        (openid.status, openid.json()),
        (200, reply.json()),
        "2: the same document"
    );
}

#[tokio::test]
async fn requirement_1_the_issuer_is_the_public_url_byte_for_byte() {
    for url in [
        "https://vault.example",
        "https://vault.example/",
        "https://vault.example/a/b",
        "http://127.0.0.1:8080",
    ] {
        let place = world_at(url, |_| {});
        let prefix = place.app.config.public_url.prefix().to_owned();
        for name in ["oauth-authorization-server", "openid-configuration"] {
            // RFC 8414 puts the name between host and path; clients of OpenID habit put it behind
            // the path.
            for path in [
                format!("/.well-known/{name}{prefix}"),
                format!("{prefix}/.well-known/{name}"),
            ] {
                let reply = get(&place.app, &path).await;
                assert_eq!(
                    (reply.status, reply.json()["issuer"].as_str()),
                    (200, Some(url)),
                    "{path}"
                );
                assert_eq!(
                    reply.json()["token_endpoint"],
                    place.app.config.public_url.join("/oauth/token")
                );
            }
        }
    }
}

#[tokio::test]
async fn requirement_6_both_resources_are_described() {
    let place = world_at("https://vault.example/a", |_| {});
    for (path, resource) in [
        ("/.well-known/oauth-protected-resource/a/mcp", "/mcp"),
        ("/a/.well-known/oauth-protected-resource/mcp", "/mcp"),
        ("/.well-known/oauth-protected-resource/a", ""),
        ("/a/.well-known/oauth-protected-resource", ""),
    ] {
        let reply = get(&place.app, path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.header("content-type"), "application/json");
        let wanted = json!({
            "resource": format!("https://vault.example/a{resource}"),
            "resource_name": "vault",
            "authorization_servers": ["https://vault.example/a"],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["read", "write"],
        });
        assert_eq!(reply.json(), wanted, "{path}");
    }
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let place = world();
    for (path, allow) in [
        ("/oauth/token", "POST,OPTIONS"),
        ("/oauth/register", "POST,OPTIONS"),
        ("/oauth/revoke", "POST,OPTIONS"),
        ("/oauth/login", "POST"),
        ("/oauth/consent", "POST"),
        ("/oauth/logout", "POST"),
    ] {
        let reply = get(&place.app, path).await;
        assert_eq!(reply.status, 405, "{path}");
        assert_eq!(reply.header("allow"), allow, "{path}");
        // RFC 6749, section 5.2, for the endpoints that programs call.
        let media = reply.header("content-type");
        let is_endpoint = allow.ends_with("OPTIONS");
        assert_eq!(media == "application/json", is_endpoint, "{path} {media}");
        if is_endpoint {
            assert_eq!(reply.json()["error"], "invalid_request", "{path}");
        }
    }
    for path in [
        "/oauth",
        "/oauth/",
        "/oauth/nothing",
        "/.well-known/nothing",
        "/.well-known/oauth-protected-resource/x",
    ] {
        let reply = get(&place.app, path).await;
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(reply.json()["code"], "not_found", "{path}");
    }
}

#[tokio::test]
async fn requirement_27_answers_over_https_keep_browsers_there() {
    for (url, sent) in [
        ("https://vault.example", "max-age=31536000"),
        ("http://127.0.0.1:8080", ""),
    ] {
        let app = world_at(url, |_| {}).app;
        let reply = get(&app, "/.well-known/oauth-authorization-server").await;
        assert_eq!(reply.header("strict-transport-security"), sent, "{url}");
    }
}
