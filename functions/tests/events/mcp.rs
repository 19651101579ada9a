//! `/mcp` as events: what an agent's client meets behind a gateway.

use super::*;

const OWNER: &str = "ann@acme.example";
/// Of the revision that the older messages here are in.
const OLDER: &str = "2025-11-25";
const NEWER: &str = "2026-07-28";

/// The namespace `acme` with release 42, its owner's token with these scopes.
async fn signed_in(world: &World, scopes: Scopes) -> String {
    let (namespace, _) = world.acme().await;
    let app = world.app();
    let home = NamespaceRef {
        slug: namespace.slug,
        id: namespace.id,
    };
    common::member(&app, OWNER, &home, Role::Owner, Scopes::ALL).await;
    common::tokens(&app, (OWNER, common::PASSWORD), "acme", scopes)
        .await
        .access
}

/// A message of this token's owner, with more headers, as the gateway hands it on.
fn message(token: &str, more: &[(&str, &str)], body: &str) -> Value {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    headers.extend(more);
    event("POST", "/mcp", &headers, Some(body))
}

fn rpc(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
}

/// The body of an answer, which is text.
fn body(answer: &Value) -> Value {
    assert_eq!(answer["isBase64Encoded"], false, "{answer}");
    serde_json::from_str(answer["body"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn golden_mcp_without_a_token() {
    let call = event(
        "POST",
        "/mcp",
        &[("content-type", "application/json")],
        Some("{}"),
    );
    let answer = World::new().ask(Group::Mcp, &call).await;
    insta::assert_snapshot!("no-token", pretty(&answer));
}

#[tokio::test]
async fn golden_mcp_from_initialize_to_a_skill() {
    let world = World::new();
    let token = signed_in(&world, Scopes::ALL).await;
    let client = json!({ "name": "test", "version": "1" });
    let hello =
        json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": client.clone() });
    let answer = world
        .ask(
            Group::Mcp,
            &message(&token, &[], &rpc("initialize", &hello)),
        )
        .await;
    insta::assert_snapshot!("initialize", pretty(&answer));

    let spoken = [("mcp-protocol-version", OLDER)];
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let answer = world.ask(Group::Mcp, &message(&token, &spoken, told)).await;
    insta::assert_snapshot!("notification", pretty(&answer));

    // Each function is a new process: nothing is remembered from `initialize`.
    let listed = message(&token, &spoken, &rpc("tools/list", &json!({})));
    let mut answer = world.ask(Group::Mcp, &listed).await;
    let tools = body(&answer);
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    insta::assert_snapshot!("tools-list-names", names.join("\n"));
    let length = answer["body"].as_str().unwrap().len().to_string();
    assert_eq!(answer["headers"]["content-length"], length);
    answer["body"] = "[the tools]".into();
    answer["headers"]["content-length"] = "[its length]".into();
    insta::assert_snapshot!("tools-list", pretty(&answer));

    let call = |name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        message(&token, &spoken, &rpc("tools/call", &params))
    };
    let answer = world.ask(Group::Mcp, &call("skill_list", json!({}))).await;
    insta::assert_snapshot!("tools-call", pretty(&answer));
    // The signature of what comes out of a function is the owner's own.
    let first = body(&answer)["result"]["structuredContent"]["skills"][0]["id"].clone();
    let fetched = world
        .ask(Group::Mcp, &call("skill.fetch", json!({ "id": first })))
        .await;
    let fetched = &body(&fetched)["result"]["structuredContent"];
    let key = fetched["public_key"].as_str().unwrap().parse().unwrap();
    let envelope = serde_json::to_vec(&fetched["manifest"]).unwrap();
    let envelope = vault_format::dsse::Envelope::parse(&envelope).unwrap();
    assert_eq!(envelope.valid_signers(&[key]), [key]);
    let manifest: Value = serde_json::from_slice(envelope.payload()).unwrap();
    let name = manifest["name"].as_str().unwrap();
    assert_eq!(json!(format!("acme/{name}")), first);

    // A gateway may carry the same message in base64.
    let mut encoded = listed.clone();
    encoded["body"] = STANDARD.encode(listed["body"].as_str().unwrap()).into();
    encoded["isBase64Encoded"] = true.into();
    assert_eq!(body(&world.ask(Group::Mcp, &encoded).await), tools);
}

#[tokio::test]
async fn golden_mcp_of_the_revision_without_sessions() {
    let world = World::new();
    let token = signed_in(&world, Scopes::ALL).await;
    let about = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let headers = [
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "server/discover"),
    ];
    let discover = rpc("server/discover", &about);
    let answer = world
        .ask(Group::Mcp, &message(&token, &headers, &discover))
        .await;
    insta::assert_snapshot!("discover", pretty(&answer));
    // The header says what the message does not.
    let lie = [headers[0], ("mcp-method", "tools/call")];
    let answer = world
        .ask(Group::Mcp, &message(&token, &lie, &discover))
        .await;
    insta::assert_snapshot!("wrong-header", pretty(&answer));
    // Joined double headers, as the gateway makes them.
    let twice = [
        headers[0],
        ("mcp-method", "server/discover,server/discover"),
    ];
    let answer = world
        .ask(Group::Mcp, &message(&token, &twice, &discover))
        .await;
    assert_eq!(answer["statusCode"], 400, "{answer}");
}

#[tokio::test]
async fn golden_mcp_with_a_token_that_may_not() {
    let world = World::new();
    let token = signed_in(&world, Scopes::READ).await;
    let skill_md = "---\nname: new\ndescription: A new skill.\n---\nText.\n";
    let params = json!({ "name": "skill_publish", "arguments": { "skill_md": skill_md } });
    let call = message(&token, &[], &rpc("tools/call", &params));
    let answer = world.ask(Group::Mcp, &call).await;
    insta::assert_snapshot!("scope", pretty(&answer));
    let entries = common::audited(&world.app(), "acme").await;
    let refused = entries.iter().find(|entry| entry.action == "mcp.call");
    let refused = refused.expect("a refusal of a signed-in person is kept");
    assert_eq!(
        (refused.target.as_deref(), refused.outcome.as_str()),
        (Some("skill_publish"), "insufficient_scope")
    );
}

/// What comes to no tool: status, the JSON-RPC error's code and its word.
#[tokio::test]
async fn what_mcp_refuses_it_refuses_behind_a_gateway_too() {
    let world = World::new();
    let token = signed_in(&world, Scopes::ALL).await;
    let ping = rpc("ping", &json!({}));
    let large = format!("{ping}{}", " ".repeat(4 * 1024 * 1024));
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{}{}}}}}"#,
        "[".repeat(64),
        "]".repeat(64)
    );
    let mut large_encoded = message(&token, &[], &STANDARD.encode(&large));
    large_encoded["isBase64Encoded"] = true.into();
    let mut get = message(&token, &[], "");
    get["requestContext"]["http"]["method"] = "GET".into();
    for (what, event, wanted) in [
        ("ping", message(&token, &[], &ping), "200 null null"),
        (
            "large",
            message(&token, &[], &large),
            "413 -32000 \"body_too_large\"",
        ),
        (
            "large, encoded",
            large_encoded,
            "413 -32000 \"body_too_large\"",
        ),
        (
            "deep",
            message(&token, &[], &deep),
            "400 -32700 \"json_invalid\"",
        ),
        (
            "no JSON",
            message(&token, &[], "nonsense"),
            "400 -32700 \"json_invalid\"",
        ),
        (
            "batch",
            message(&token, &[], &format!("[{ping}]")),
            "400 -32600 \"request_invalid\"",
        ),
        (
            "form",
            message(
                &token,
                &[("content-type", "application/x-www-form-urlencoded")],
                &ping,
            ),
            "415 -32000 \"media_type\"",
        ),
        (
            "no version of ours",
            message(&token, &[("mcp-protocol-version", "1900-01-01")], &ping),
            "400 -32600 \"request_invalid\"",
        ),
        (
            "a browser",
            message(&token, &[("origin", "https://evil.example")], &ping),
            "403 -32000 \"origin_forbidden\"",
        ),
        (
            "another name",
            message(&token, &[("host", "evil.example")], &ping),
            "403 -32000 \"host_forbidden\"",
        ),
        (
            "another token",
            message("vat_x", &[], &ping),
            "401 -32000 \"token_invalid\"",
        ),
        ("no stream", get, "405 -32000 \"method_not_allowed\""),
    ] {
        let answer = world.ask(Group::Mcp, &event).await;
        let error = &body(&answer)["error"];
        let told = format!(
            "{} {} {}",
            answer["statusCode"], error["code"], error["data"]["code"]
        );
        assert_eq!(told, wanted, "{what}: {}", answer["body"]);
    }
}
