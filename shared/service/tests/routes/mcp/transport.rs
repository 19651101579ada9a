use axum::body::Body;
use axum::http::{Method, Request, header};
use serde_json::{Value, json};
use vault_service::model::user::Scopes;

use super::{Sent, World, request, rpc, world};
use crate::common::{OWNER, OWNER_PASSWORD, Reply, get, send, sign_in};

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
    let body = &reply.body;
    assert!(word.is_empty() || problem["data"]["code"] == word, "{body}");
    let media = reply.header("content-type");
    assert!(media.starts_with("application/json"), "{media} {body}");
    (reply.status, error.as_i64().unwrap_or_default())
}

/// A ping of this token's owner.
fn ping(token: &str) -> Sent {
    request(token, rpc("ping", &json!({})).to_string())
}

/// A line each: a method, and behind it its parameters.
fn messages(table: &'static str) -> impl Iterator<Item = (&'static str, Value)> {
    table.trim().lines().map(|line| {
        let (method, params) = line.split_once(' ').unwrap();
        (method, serde_json::from_str(params).unwrap())
    })
}

const CHALLENGE: &str = "resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"";

#[tokio::test]
async fn a_tool_answers_over_http() {
    let world = world().await;
    let arguments = json!({ "name": "release-notes" });
    let reply = world.call(&world.owner, "get_skill", arguments).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let result = &reply.json()["result"];
    assert_eq!(result["isError"], false);
    let id = &result["structuredContent"]["skill"]["id"];
    assert_eq!(*id, "default/release-notes");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("---\nname: release-notes"), "{text}");
    assert_eq!(reply.header("cache-control"), "private, no-store");
    assert_eq!(reply.header("mcp-session-id"), "");
    assert_eq!(reply.header("access-control-allow-origin"), "");
}

#[tokio::test]
async fn without_a_good_token_there_is_a_challenge_and_a_json_rpc_error() {
    let world = world().await;
    let invalid = "error=\"invalid_token\", ";
    let basic = ping("").with("authorization", "Basic eDp5");
    for (sent, code, error) in [
        (ping(""), "token_required", ""),
        (ping("vat_x"), "token_invalid", invalid),
        (request("", "nonsense".to_owned()), "token_required", ""),
        (basic, "token_required", ""),
    ] {
        let reply = ask(&world, sent).await;
        assert_eq!(told(&reply), (401, -32000));
        assert_eq!(reply.json()["error"]["data"]["code"], code);
        assert_eq!(reply.json()["id"], Value::Null);
        let challenge = reply.header("www-authenticate");
        assert_eq!(challenge, format!("Bearer {error}{CHALLENGE}"));
    }
    // A token in the query is none.
    let mut sent = ping("");
    let uri = format!("/mcp?access_token={}", world.owner);
    *sent.body.uri_mut() = uri.parse().unwrap();
    assert_eq!(ask(&world, sent).await.status, 401);
}

#[tokio::test]
async fn a_token_for_elsewhere_is_none() {
    let world = world().await;
    let mut elsewhere = world.app.clone();
    let mut config = (*elsewhere.config).clone();
    config.public_url = "https://other.example".parse().unwrap();
    elsewhere.config = std::sync::Arc::new(config);
    let foreign = sign_in(&elsewhere, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    let reply = ask(&world, ping(&foreign)).await;
    assert_eq!(told(&reply), (401, -32000));
}

#[tokio::test]
async fn other_methods_are_not_taken() {
    let world = world().await;
    let (get, delete, put) = (Method::GET, Method::DELETE, Method::PUT);
    for method in [get, delete, put, Method::OPTIONS, Method::HEAD] {
        for token in [world.owner.as_str(), ""] {
            let mut sent = request(token, String::new());
            *sent.body.method_mut() = method.clone();
            let reply = ask(&world, sent).await;
            assert_eq!(reply.status, 405, "{method}");
            assert_eq!(reply.header("allow"), "POST", "{method}");
        }
    }
}

#[tokio::test]
async fn origins_and_hosts_are_judged_before_the_token() {
    let world = world().await;
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
        let tokenless = if status == 200 { 401 } else { 403 };
        for (token, good) in [(world.owner.as_str(), status), ("", tokenless)] {
            let mut sent = ping(token);
            if let Some(origin) = origin {
                sent = sent.with("origin", origin);
            }
            let reply = ask(&world, sent).await;
            assert_eq!(reply.status, good, "{origin:?}");
            let told = reply.header("access-control-allow-origin");
            assert_eq!(told, allowed, "{origin:?}");
            if status == 403 {
                assert_eq!(reply.json()["error"]["data"]["code"], "origin_forbidden");
                assert_eq!(reply.header("www-authenticate"), "");
            } else if !allowed.is_empty() {
                let exposed = reply.header("access-control-expose-headers");
                let readable = "WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy";
                assert_eq!(exposed, readable);
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
        let reply = ask(&world, ping(&world.owner).with("host", host)).await;
        assert_eq!(told(&reply), (403, -32000), "{host}");
        assert_eq!(reply.json()["error"]["data"]["code"], "host_forbidden");
    }
    let reply = ask(&world, ping(&world.owner).with("host", "")).await;
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
    assert_eq!(reply.status, 403);
    assert_eq!(reply.header("access-control-allow-origin"), "");
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
        let sent = ping(&world.owner).with("content-type", media);
        let reply = ask(&world, sent).await;
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
        let sent = match accept {
            Some(accept) => ping(&world.owner).with("accept", accept),
            None => ping(&world.owner).without("accept"),
        };
        let reply = ask(&world, sent).await;
        assert_eq!(reply.status, status, "{accept:?}: {}", reply.body);
        assert_eq!(told(&reply).1, if status == 200 { 0 } else { -32600 });
    }
}

/// What each older revision has.
const OLDER: &str = r#"
tools/list {}
tools/call {"name": "skill.list", "arguments": {}}
resources/list {}
resources/read {"uri": "skill://default/payroll/SKILL.md"}
skills/list {}
ping {}
"#;

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

        for (method, params) in messages(OLDER) {
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

/// What the revision without sessions has.
const MODERN: &str = r#"
server/discover {}
tools/list {}
tools/call {"name": "get_skill", "arguments": {"name": "payroll"}}
tools/call {"name": "skill.fetch", "arguments": {"id": "default/payroll"}}
resources/list {}
resources/read {"uri": "skill://default/payroll/SKILL.md"}
resources/directory/read {"uri": "skill://default/payroll"}
skills/list {}
skills/get {"uri": "skill://default/payroll/SKILL.md"}
"#;

#[tokio::test]
async fn the_revision_without_sessions_is_spoken() {
    let world = world().await;
    for (method, params) in messages(MODERN) {
        let reply = ask(&world, modern(&world.owner, method, params)).await;
        assert_eq!(reply.status, 200, "{method}: {}", reply.body);
        let result = &reply.json()["result"];
        assert_eq!(result["resultType"], "complete", "{method}: {}", reply.body);
        if method != "tools/call" {
            assert_eq!(result["cacheScope"], "private", "{method}");
            assert!(result["ttlMs"].is_u64(), "{method}");
        }
        if method == "server/discover" {
            let versions = "2024-11-05 2025-03-26 2025-06-18 2025-11-25 2026-07-28";
            let versions: Vec<_> = versions.split(' ').collect();
            assert_eq!(result["supportedVersions"], json!(versions));
        }
    }
    let owner = &world.owner;
    let modern = |method, params: Value| modern(owner, method, params);
    let list = || modern("tools/list", json!({}));
    let call = || {
        modern(
            "tools/call",
            json!({ "name": "skill_list", "arguments": {} }),
        )
    };
    let listen = modern("subscriptions/listen", json!({ "notifications": {} }));
    for (sent, status, code) in [
        (list().without("mcp-method"), 400, -32020),
        (list().with("mcp-method", "tools/call"), 400, -32020),
        (call().without("mcp-name"), 400, -32020),
        (call().with("mcp-name", "skill.list"), 400, -32020),
        (
            list().with("mcp-protocol-version", "2025-11-25"),
            400,
            -32020,
        ),
        (
            versioned(owner, "tools/list", json!({}), "1900-01-01"),
            400,
            -32022,
        ),
        (listen, 404, -32601),
        (modern("no/method", json!({})), 404, -32601),
        (modern("prompts/list", json!({})), 404, -32601),
        (modern("ping", json!({})), 404, -32601),
        (modern("initialize", json!({})), 404, -32601),
    ] {
        let reply = ask(&world, sent).await;
        assert_eq!(told(&reply), (status, code), "{}", reply.body);
        if code == -32022 {
            let supported = &reply.json()["error"]["data"]["supported"];
            assert!(supported.is_array(), "{}", reply.body);
        }
    }
    let old = ping(owner).with("mcp-protocol-version", "1900-01-01");
    assert_eq!(told(&ask(&world, old).await), (400, -32600));
    let uri = "skill://default/none/SKILL.md";
    let missing = modern("resources/read", json!({ "uri": uri }));
    let reply = ask(&world, missing).await;
    assert_eq!(told(&reply), (200, -32602));
    assert_eq!(reply.json()["error"]["data"]["uri"], uri);
}

#[tokio::test]
async fn a_cursor_that_is_no_text_is_not_the_first_page() {
    let world = world().await;
    for method in ["resources/list", "skills/list", "tools/list"] {
        let message = rpc(method, &json!({ "cursor": 1 })).to_string();
        let reply = ask(&world, request(&world.owner, message)).await;
        assert_eq!(told(&reply), (200, -32602), "{method} {}", reply.body);
        let error = &reply.json()["error"];
        assert_eq!(error["data"]["member"], "params.cursor", "{method}");
    }
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
        let tools = body["result"]["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names.len(), 10, "{query}: {names:?}");
        assert!(names.contains(&&json!(shown)), "{query}: {names:?}");
    }
    let dotted = super::world_with(vault_shelf::Writes::Signed, |config| {
        config.tool_names = vault_mcp::Names::Dotted;
    })
    .await;
    let list = rpc("tools/list", &json!({}));
    let body = dotted.post(&dotted.owner, &list).await.body;
    assert!(body.contains("\"skill.publish\"") && !body.contains("\"skill_publish\""));
}

#[tokio::test]
async fn below_a_prefix_everything_is_there_too() {
    let place = crate::oauth::world_at("https://vault.example/base", |_| {});
    let mut sent = ping("");
    *sent.body.uri_mut() = "/base/mcp".parse().unwrap();
    assert_eq!(send(&place.app, sent.body).await.status, 401);
    assert_eq!(get(&place.app, "/mcp").await.status, 404);
}
