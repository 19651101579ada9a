use axum::body::Body;
use axum::http::{Method, Request, header};
use serde_json::{Value, json};
use vault_service::model::user::Scopes;

use super::{Sent, World, request, rpc, world};
use crate::common::{OWNER, OWNER_PASSWORD, Reply, get, send, tokens};

async fn ask(world: &World, sent: Sent) -> Reply {
    send(&world.app, sent.body).await
}

/// Status and the JSON-RPC error's code; its word, where these two say which it must be.
fn told(reply: &Reply) -> (u16, i64) {
    let problem = &reply.json()["error"];
    let error = &problem["code"];
    let word = match (reply.status, error.as_i64()) {
        (400, Some(-32700)) => "json_invalid",
        // The library answers some messages itself.
        (400, Some(-32600)) if problem["data"].is_object() => "request_invalid",
        (405, _) => "method_not_allowed",
        (413, _) => "body_too_large",
        (415, _) => "media_type",
        _ => "",
    };
    assert!(
        word.is_empty() || problem["data"]["code"] == word,
        "{}",
        reply.body
    );
    assert!(
        reply.header("content-type").starts_with("application/json"),
        "{}",
        reply.body
    );
    (reply.status, error.as_i64().unwrap_or_default())
}

const CHALLENGE: &str = "resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"";

#[tokio::test]
async fn a_tool_answers_over_http() {
    let world = world().await;
    let reply = world
        .call(
            &world.owner,
            "get_skill",
            json!({ "name": "release-notes" }),
        )
        .await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let result = &reply.json()["result"];
    assert_eq!(result["isError"], false);
    assert_eq!(
        result["structuredContent"]["skill"]["id"],
        "default/release-notes"
    );
    assert!(
        result["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("---\nname: release-notes")
    );
    assert_eq!(reply.header("cache-control"), "private, no-store");
    assert_eq!(reply.header("mcp-session-id"), "");
    assert_eq!(reply.header("access-control-allow-origin"), "");
}

#[tokio::test]
async fn without_a_good_token_there_is_a_challenge_and_a_json_rpc_error() {
    let world = world().await;
    let ping = rpc("ping", &json!({})).to_string();
    for (sent, code, error) in [
        (request("", ping.clone()), "token_required", ""),
        (
            request("vat_x", ping.clone()),
            "token_invalid",
            "error=\"invalid_token\", ",
        ),
        (request("", "nonsense".to_owned()), "token_required", ""),
        (
            request("", ping.clone()).with("authorization", "Basic eDp5"),
            "token_required",
            "",
        ),
    ] {
        let reply = ask(&world, sent).await;
        assert_eq!(told(&reply), (401, -32000));
        assert_eq!(reply.json()["error"]["data"]["code"], code);
        assert_eq!(reply.json()["id"], Value::Null);
        assert_eq!(
            reply.header("www-authenticate"),
            format!("Bearer {error}{CHALLENGE}")
        );
    }
    // A token in the query is none.
    let sent = request("", ping).body;
    let (mut parts, body) = sent.into_parts();
    parts.uri = format!("/mcp?access_token={}", world.owner)
        .parse()
        .unwrap();
    let reply = send(&world.app, Request::from_parts(parts, body)).await;
    assert_eq!(reply.status, 401);
}

#[tokio::test]
async fn a_token_for_elsewhere_is_none() {
    let world = world().await;
    let mut elsewhere = world.app.clone();
    let mut config = (*elsewhere.config).clone();
    config.public_url = "https://other.example".parse().unwrap();
    elsewhere.config = std::sync::Arc::new(config);
    let foreign = tokens(&elsewhere, (OWNER, OWNER_PASSWORD), "default", Scopes::ALL)
        .await
        .access;
    let reply = ask(
        &world,
        request(&foreign, rpc("ping", &json!({})).to_string()),
    )
    .await;
    assert_eq!(told(&reply), (401, -32000));
}

#[tokio::test]
async fn other_methods_are_not_taken() {
    let world = world().await;
    for method in [
        Method::GET,
        Method::DELETE,
        Method::PUT,
        Method::OPTIONS,
        Method::HEAD,
    ] {
        for token in [world.owner.as_str(), ""] {
            let mut sent = request(token, String::new());
            *sent.body.method_mut() = method.clone();
            let reply = ask(&world, sent).await;
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, "POST"),
                "{method}"
            );
        }
    }
}

#[tokio::test]
async fn origins_and_hosts_are_judged_before_the_token() {
    let world = world().await;
    let ping = rpc("ping", &json!({})).to_string();
    for (origin, status, allowed) in [
        (None, 200, ""),
        (Some("https://app.example"), 200, "https://app.example"),
        (Some("https://evil.example"), 403, ""),
        (Some("https://app.example.evil.example"), 403, ""),
        (Some("https://app.example:8443"), 403, ""),
        (Some("http://app.example"), 403, ""),
        (Some("https://APP.example"), 403, ""),
        (Some("null"), 403, ""),
        (Some(""), 403, ""),
        (Some("https://vault.example"), 403, ""),
    ] {
        for (token, good) in [
            (world.owner.as_str(), status),
            ("", if status == 200 { 401 } else { 403 }),
        ] {
            let mut sent = request(token, ping.clone());
            if let Some(origin) = origin {
                sent = sent.with("origin", origin);
            }
            let reply = ask(&world, sent).await;
            assert_eq!(
                (reply.status, reply.header("access-control-allow-origin")),
                (good, allowed),
                "{origin:?}"
            );
            if status == 403 {
                assert_eq!(reply.json()["error"]["data"]["code"], "origin_forbidden");
                assert_eq!(reply.header("www-authenticate"), "");
            } else if !allowed.is_empty() {
                assert_eq!(
                    reply.header("access-control-expose-headers"),
                    "WWW-Authenticate"
                );
                assert_eq!(reply.header("access-control-allow-credentials"), "");
                assert_eq!(reply.header("vary"), "Origin");
            }
        }
    }
    for host in [
        "evil.example",
        "vault.example.evil.example",
        "127.0.0.1",
        "localhost",
    ] {
        let reply = ask(
            &world,
            request(&world.owner, ping.clone()).with("host", host),
        )
        .await;
        assert_eq!(told(&reply), (403, -32000), "{host}");
        assert_eq!(reply.json()["error"]["data"]["code"], "host_forbidden");
    }
    let reply = ask(&world, request(&world.owner, ping).without("host")).await;
    assert_eq!(reply.status, 403);
}

#[tokio::test]
async fn a_preflight_is_answered_before_anything_else() {
    let world = world().await;
    let preflight = |origin: &str| {
        Request::options("/mcp")
            .header(header::HOST, "vault.example")
            .header(header::ORIGIN, origin)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "authorization,content-type,mcp-protocol-version",
            )
            .body(Body::empty())
            .unwrap()
    };
    let reply = send(&world.app, preflight("https://app.example")).await;
    assert_eq!(reply.status, 204);
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-methods", "POST"),
        (
            "access-control-allow-headers",
            "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name",
        ),
        ("access-control-max-age", "600"),
        ("access-control-allow-credentials", ""),
        ("vary", "Origin"),
    ] {
        assert_eq!(reply.header(name), value, "{name}");
    }
    let reply = send(&world.app, preflight("https://evil.example")).await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (403, "")
    );
}

#[tokio::test]
async fn what_is_no_message_is_refused_as_json_rpc() {
    let world = world().await;
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{}1{}}}",
        "{\"a\":".repeat(40),
        "}".repeat(40)
    );
    let large = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"x\":\"{}\"}}}}",
        "a".repeat(4 * 1024 * 1024)
    );
    let fits = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"x\":\"{}\"}}}}",
        "a".repeat(4 * 1024 * 1024 - 64)
    );
    for (body, status, code) in [
        ("", 400, -32700),
        ("{", 400, -32700),
        ("\u{1}", 400, -32700),
        ("[", 400, -32700),
        ("[]", 400, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, -32600),
        ("\"text\"", 400, -32600),
        ("{}", 400, -32600),
        (r#"{"jsonrpc":"2.0"}"#, 400, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, 400, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, 400, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 400, -32600),
        (&deep, 400, -32700),
        (&large, 413, -32000),
        (&fits, 200, 0),
    ] {
        let reply = ask(&world, request(&world.owner, body.to_owned())).await;
        assert_eq!(told(&reply), (status, code), "{body:.80}: {}", reply.body);
    }
    for media in ["text/plain", "", "application/jsonx"] {
        let reply = ask(
            &world,
            request(&world.owner, rpc("ping", &json!({})).to_string()).with("content-type", media),
        )
        .await;
        assert_eq!(told(&reply), (415, -32000), "{media}");
    }
}

#[tokio::test]
async fn any_accept_that_takes_json_is_kind_enough() {
    let world = world().await;
    for (accept, status) in [
        (None, 200),
        (Some("*/*"), 200),
        (Some("application/json"), 200),
        (Some("application/json;q=0.5, text/html"), 200),
        (Some("APPLICATION/*"), 200),
        (Some("application/json, text/event-stream"), 200),
        (Some("text/html"), 406),
        (Some("text/event-stream"), 406),
    ] {
        let sent = request(&world.owner, rpc("ping", &json!({})).to_string());
        let sent = match accept {
            Some(accept) => sent.with("accept", accept),
            None => sent.without("accept"),
        };
        let reply = ask(&world, sent).await;
        assert_eq!(reply.status, status, "{accept:?}: {}", reply.body);
        assert_eq!(told(&reply).1, if status == 200 { 0 } else { -32600 });
    }
}

#[tokio::test]
async fn each_older_revision_is_spoken_without_sessions() {
    let world = world().await;
    for (asked, spoken) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1900-01-01", "2025-11-25"),
    ] {
        let params = json!({ "protocolVersion": asked, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
        let reply = world.post(&world.owner, &rpc("initialize", &params)).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let result = reply.json()["result"].clone();
        assert_eq!(result["protocolVersion"], spoken, "{asked}");
        assert_eq!(result["serverInfo"]["name"], "vault");
        assert_eq!(
            result["capabilities"],
            json!({ "tools": {}, "resources": {}, "extensions": { "io.modelcontextprotocol/skills": { "directoryRead": true } } })
        );
        assert_eq!(reply.header("mcp-session-id"), "");

        let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let sent = request(&world.owner, done.to_string()).with("mcp-protocol-version", spoken);
        let reply = ask(&world, sent).await;
        assert_eq!((reply.status, reply.body.as_str()), (202, ""), "{spoken}");

        for (method, params) in [
            ("tools/list", json!({})),
            (
                "tools/call",
                json!({ "name": "skill.list", "arguments": {} }),
            ),
            ("resources/list", json!({})),
            (
                "resources/read",
                json!({ "uri": "skill://default/payroll/SKILL.md" }),
            ),
            ("skills/list", json!({})),
            ("ping", json!({})),
        ] {
            let sent = request(&world.owner, rpc(method, &params).to_string())
                .with("mcp-protocol-version", spoken);
            // Sessions of other servers mean nothing here.
            let reply = ask(&world, sent.with("mcp-session-id", "s1")).await;
            assert_eq!(reply.status, 200, "{spoken} {method}: {}", reply.body);
            let result = &reply.json()["result"];
            assert!(result.is_object(), "{}", reply.body);
            for newer in ["resultType", "ttlMs", "cacheScope"] {
                assert_eq!(result[newer], Value::Null, "{spoken} {method}");
            }
        }
    }
    let reply = world.call(&world.owner, "skill_list", json!({})).await;
    assert_eq!(reply.status, 200, "no version at all counts as 2025-03-26");
}

/// A message of 2026-07-28 with its headers.
fn modern(token: &str, method: &str, params: Value) -> Sent {
    versioned(token, method, params, "2026-07-28")
}

fn versioned(token: &str, method: &str, mut params: Value, version: &str) -> Sent {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"]
        .as_str()
        .or(params["uri"].as_str())
        .map(str::to_owned);
    let mut sent = request(token, rpc(method, &params).to_string())
        .with("mcp-protocol-version", version)
        .with("mcp-method", method);
    if let Some(name) = name {
        sent = sent.with("mcp-name", &name);
    }
    sent
}

#[tokio::test]
async fn the_revision_without_sessions_is_spoken() {
    let world = world().await;
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        (
            "tools/call",
            json!({ "name": "get_skill", "arguments": { "name": "payroll" } }),
        ),
        (
            "tools/call",
            json!({ "name": "skill.fetch", "arguments": { "id": "default/payroll" } }),
        ),
        ("resources/list", json!({})),
        (
            "resources/read",
            json!({ "uri": "skill://default/payroll/SKILL.md" }),
        ),
        (
            "resources/directory/read",
            json!({ "uri": "skill://default/payroll" }),
        ),
        ("skills/list", json!({})),
        (
            "skills/get",
            json!({ "uri": "skill://default/payroll/SKILL.md" }),
        ),
    ] {
        let reply = ask(&world, modern(&world.owner, method, params)).await;
        assert_eq!(reply.status, 200, "{method}: {}", reply.body);
        let result = &reply.json()["result"];
        assert_eq!(result["resultType"], "complete", "{method}: {}", reply.body);
        if method != "tools/call" {
            assert_eq!(result["cacheScope"], "private", "{method}");
            assert!(result["ttlMs"].is_u64(), "{method}");
        }
        if method == "server/discover" {
            assert_eq!(
                result["supportedVersions"],
                json!([
                    "2024-11-05",
                    "2025-03-26",
                    "2025-06-18",
                    "2025-11-25",
                    "2026-07-28"
                ])
            );
        }
    }
    for (sent, status, code) in [
        (
            modern(&world.owner, "tools/list", json!({})).without("mcp-method"),
            400,
            -32020,
        ),
        (
            modern(&world.owner, "tools/list", json!({})).with("mcp-method", "tools/call"),
            400,
            -32020,
        ),
        (
            modern(
                &world.owner,
                "tools/call",
                json!({ "name": "skill_list", "arguments": {} }),
            )
            .without("mcp-name"),
            400,
            -32020,
        ),
        (
            modern(
                &world.owner,
                "tools/call",
                json!({ "name": "skill_list", "arguments": {} }),
            )
            .with("mcp-name", "skill.list"),
            400,
            -32020,
        ),
        (
            modern(&world.owner, "tools/list", json!({}))
                .with("mcp-protocol-version", "2025-11-25"),
            400,
            -32020,
        ),
        (
            versioned(&world.owner, "tools/list", json!({}), "1900-01-01"),
            400,
            -32022,
        ),
        (
            modern(
                &world.owner,
                "subscriptions/listen",
                json!({ "notifications": {} }),
            ),
            404,
            -32601,
        ),
        (modern(&world.owner, "no/method", json!({})), 404, -32601),
        (modern(&world.owner, "prompts/list", json!({})), 404, -32601),
        (modern(&world.owner, "ping", json!({})), 404, -32601),
    ] {
        let reply = ask(&world, sent).await;
        assert_eq!(told(&reply), (status, code), "{}", reply.body);
        if code == -32022 {
            assert!(
                reply.json()["error"]["data"]["supported"].is_array(),
                "{}",
                reply.body
            );
        }
    }
    let reply = ask(
        &world,
        request(&world.owner, rpc("ping", &json!({})).to_string())
            .with("mcp-protocol-version", "1900-01-01"),
    )
    .await;
    assert_eq!(told(&reply), (400, -32600));
    let missing = modern(
        &world.owner,
        "resources/read",
        json!({ "uri": "skill://default/none/SKILL.md" }),
    );
    let reply = ask(&world, missing).await;
    assert_eq!(told(&reply), (200, -32602));
    assert_eq!(
        reply.json()["error"]["data"]["uri"],
        "skill://default/none/SKILL.md"
    );
}

#[tokio::test]
async fn the_address_chooses_the_spelling_of_names() {
    let world = world().await;
    for (query, shown) in [
        ("", "skill_list"),
        ("?names=dotted", "skill.list"),
        ("?names=plain", "skill_list"),
        ("?names=x", "skill_list"),
    ] {
        let mut sent = request(&world.owner, rpc("tools/list", &json!({})).to_string());
        *sent.body.uri_mut() = format!("/mcp{query}").parse().unwrap();
        let reply = ask(&world, sent).await;
        let body = reply.json();
        let names: Vec<&str> = body["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            (names.len(), names.contains(&shown)),
            (10, true),
            "{query}: {names:?}"
        );
    }
    let dotted = super::world_with(vault_shelf::Writes::Signed, |config| {
        config.tool_names = vault_mcp::Names::Dotted;
    })
    .await;
    let reply = dotted
        .post(&dotted.owner, &rpc("tools/list", &json!({})))
        .await;
    assert!(reply.body.contains("\"skill.publish\"") && !reply.body.contains("\"skill_publish\""));
}

#[tokio::test]
async fn below_a_prefix_everything_is_there_too() {
    let place = crate::oauth::place_at("https://vault.example/base", |_| {});
    let mut sent = request("", rpc("ping", &json!({})).to_string());
    *sent.body.uri_mut() = "/base/mcp".parse().unwrap();
    assert_eq!(send(&place.app, sent.body).await.status, 401);
    assert_eq!(get(&place.app, "/mcp").await.status, 404);
}
