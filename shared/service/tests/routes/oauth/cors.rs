use axum::body::Body;
use axum::http::Request;
use vault_service::App;

use super::world_at;
use crate::common::{Reply, send};
use crate::support::World;

const ALLOWED: &str = "https://inspector.example";

fn place() -> World {
    world_at("https://vault.example", |config| {
        config.allowed_origins = vec![ALLOWED.to_owned()];
    })
}

async fn ask(app: &App, method: &str, path: &str, origin: &str) -> Reply {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::empty())
        .unwrap();
    send(app, request).await
}

#[tokio::test]
async fn requirement_8_discovery_is_for_every_page_and_needs_no_credentials() {
    let place = place();
    for path in [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        for (method, status) in [("GET", 200), ("OPTIONS", 204)] {
            let reply = ask(&place.app, method, path, "https://any.example").await;
            assert_eq!(reply.status, status, "{method} {path}");
            assert_eq!(reply.header("access-control-allow-origin"), "*");
            assert_eq!(reply.header("access-control-allow-credentials"), "");
        }
        let preflight = ask(&place.app, "OPTIONS", path, "https://any.example").await;
        assert!(
            preflight
                .header("access-control-allow-headers")
                .contains("mcp-protocol-version"),
            "MCP clients send it to discovery too"
        );
    }
}

#[tokio::test]
async fn requirement_8_endpoints_are_for_the_pages_that_may_call_mcp() {
    let place = place();
    for path in ["/oauth/register", "/oauth/token", "/oauth/revoke"] {
        for method in ["POST", "OPTIONS"] {
            for (origin, told) in [
                (ALLOWED, ALLOWED),
                ("https://evil.example", ""),
                ("https://inspector.example.evil.example", ""),
                ("https://inspector.example:8443", ""),
                ("HTTPS://inspector.example", ""),
                ("null", ""),
            ] {
                let reply = ask(&place.app, method, path, origin).await;
                let headers =
                    ["access-control-allow-origin", "vary"].map(|name| reply.header(name));
                assert_eq!(headers, [told, "Origin"], "{method} {path} {origin}");
                assert_eq!(reply.header("access-control-allow-credentials"), "");
            }
        }
        let answer = ask(&place.app, "POST", path, ALLOWED).await;
        assert_eq!(
            answer.header("access-control-expose-headers"),
            "WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy"
        );
        let preflight = ask(&place.app, "OPTIONS", path, ALLOWED).await;
        assert_eq!(preflight.status, 204);
        for (name, value) in [
            ("methods", "POST"),
            (
                "headers",
                "authorization, content-type, mcp-protocol-version",
            ),
        ] {
            let name = format!("access-control-allow-{name}");
            assert_eq!(preflight.header(&name), value, "{path}");
        }
    }
}

#[tokio::test]
async fn requirement_8_what_people_see_is_for_no_page() {
    let place = place();
    for path in [
        "/oauth/authorize?client_id=x",
        "/oauth/login",
        "/oauth/consent",
        "/oauth/logout",
        "/oauth/password",
        "/oauth/invite/x",
        "/admin/vaults/acme/catalog",
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            let reply = ask(&place.app, method, path, ALLOWED).await;
            for name in [
                "access-control-allow-origin",
                "access-control-allow-methods",
            ] {
                assert_eq!(reply.header(name), "", "{method} {path}");
            }
        }
    }
}
