//! Tests of `/mcp` by events, as the gateway passes on the requests of an agent's client.

use super::*;

const OWNER: &str = "ann@acme.example";
/// Protocol revision of the older messages in these tests.
const OLDER: &str = "2025-11-25";
const NEWER: &str = "2026-07-28";

/// Returns a token with these scopes of the owner of the namespace `acme`, which has release 42.
async fn signed_in(world: &World, scopes: Scopes) -> String {
    let namespace = world.acme().await;
    let app = &world.app;
    let home = NamespaceRef {
        slug: namespace.slug,
        id: namespace.id,
    };
    common::member(app, OWNER, &home, Role::Owner, Scopes::ALL).await;
    let held = common::tokens(app, (OWNER, common::PASSWORD), "acme", scopes);
    held.await.access
}

/// Returns the event of a message with this token and further headers.
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

/// Returns the body of an answer, which must be text.
fn body(answer: &Value) -> Value {
    assert_eq!(answer["isBase64Encoded"], false, "{answer}");
    serde_json::from_str(answer["body"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn golden_mcp_without_a_token() {
    let headers = [("content-type", "application/json")];
    let call = event("POST", "/mcp", &headers, Some("{}"));
    let answer = world().call(Group::Mcp, &call).await;
    insta::assert_snapshot!("no-token", pretty(&answer));
}

#[tokio::test]
async fn golden_mcp_from_initialize_to_a_skill() {
    let world = world();
    let token = signed_in(&world, Scopes::ALL).await;
    let client = json!({ "name": "test", "version": "1" });
    let hello =
        json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": client.clone() });
    let hello = message(&token, &[], &rpc("initialize", &hello));
    let answer = world.call(Group::Mcp, &hello).await;
    insta::assert_snapshot!("initialize", pretty(&answer));

    let spoken = [("mcp-protocol-version", OLDER)];
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let answer = world
        .call(Group::Mcp, &message(&token, &spoken, told))
        .await;
    insta::assert_snapshot!("notification", pretty(&answer));

    // `world.call` starts a new function each time, which knows nothing of the request
    // `initialize`.
    let listed = message(&token, &spoken, &rpc("tools/list", &json!({})));
    let mut answer = world.call(Group::Mcp, &listed).await;
    let tools = body(&answer);
    let names = tools["result"]["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|tool| tool["name"].as_str().unwrap()).collect();
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
    let answer = world.call(Group::Mcp, &call("skill_list", json!({}))).await;
    insta::assert_snapshot!("tools-call", pretty(&answer));
    // The fetched manifest has the signature of the owner's key.
    let first = body(&answer)["result"]["structuredContent"]["skills"][0]["id"].clone();
    let fetched = world
        .call(Group::Mcp, &call("skill.fetch", json!({ "id": first })))
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
    assert_eq!(body(&world.call(Group::Mcp, &encoded).await), tools);
}

#[tokio::test]
async fn golden_mcp_of_the_revision_without_sessions() {
    let world = world();
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
        .call(Group::Mcp, &message(&token, &headers, &discover))
        .await;
    insta::assert_snapshot!("discover", pretty(&answer));
    // The header names another method than the message.
    let lie = [headers[0], ("mcp-method", "tools/call")];
    let lie = message(&token, &lie, &discover);
    let answer = world.call(Group::Mcp, &lie).await;
    insta::assert_snapshot!("wrong-header", pretty(&answer));
    // The gateway joins repeated headers with commas.
    let joined = ("mcp-method", "server/discover,server/discover");
    let twice = message(&token, &[headers[0], joined], &discover);
    let answer = world.call(Group::Mcp, &twice).await;
    assert_eq!(answer["statusCode"], 400, "{answer}");
}
