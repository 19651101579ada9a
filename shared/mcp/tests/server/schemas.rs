use serde_json::{Value, json};
use vault_mcp::Names;
use vault_shelf::Writes;

use super::support::{owner, stocked};

#[tokio::test]
async fn the_tools_are_these() {
    let world = stocked(Writes::Signed);
    let listed = world.owner_asks("tools/list", json!({})).await;
    let tools = listed.body["result"]["tools"].as_array().unwrap();
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        insta::assert_json_snapshot!(format!("tool-{name}"), tool);
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{name}");
            // What an optional member looks like must be plain for clients that know no unions with
            // null.
            let text = tool[schema].to_string();
            assert!(
                !text.contains("\"null\"") && !text.contains("null,"),
                "{name}: {text}"
            );
        }
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{name}");
        assert!(tool["description"].as_str().unwrap().contains("since"));
        assert!(tool["annotations"]["readOnlyHint"].is_boolean());
    }
}

#[tokio::test]
async fn a_list_shows_one_spelling_and_a_call_takes_both() {
    let world = stocked(Writes::Signed);
    for (names, shown, hidden) in [
        (Names::Plain, "skill_list", "skill.list"),
        (Names::Dotted, "skill.list", "skill_list"),
    ] {
        let listed = world
            .ask_with(&owner(), names, "tools/list", json!({}))
            .await;
        let tools = listed.body["result"]["tools"].as_array().unwrap().clone();
        let names_shown: Vec<&str> = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names_shown.len(), 10);
        assert!(
            names_shown.contains(&shown) && !names_shown.contains(&hidden),
            "{names_shown:?}"
        );
        let dots = names_shown.iter().filter(|name| name.contains('.')).count();
        assert_eq!(dots, if names == Names::Dotted { 3 } else { 0 });
        let mut answers: Vec<Value> = Vec::new();
        for spelling in ["skill_list", "skill.list"] {
            let params = json!({ "name": spelling, "arguments": {} });
            let answer = world.ask_with(&owner(), names, "tools/call", params).await;
            answers.push(answer.structured().clone());
        }
        assert_eq!(answers[0], answers[1]);
    }
    for (plain, dotted) in vault_mcp::tool_names() {
        let good = |name: &str, more: &str| {
            (1..=64).contains(&name.len())
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || more.contains(c))
        };
        assert!(good(plain, "_"), "{plain}");
        assert!(dotted.is_none_or(|dotted| good(dotted, ".")), "{dotted:?}");
    }
}

#[tokio::test]
async fn what_is_not_declared_is_not_there() {
    let world = stocked(Writes::Signed);
    for method in [
        "prompts/list",
        "completion/complete",
        "resources/subscribe",
        "logging/setLevel",
        "tasks/list",
        "nonsense",
    ] {
        let params = match method {
            "completion/complete" => {
                json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "b" } })
            }
            "logging/setLevel" => json!({ "level": "debug" }),
            _ => json!({ "uri": "skill://acme/x/SKILL.md" }),
        };
        let answer = world.owner_asks(method, params).await;
        let error = &answer.body["error"];
        assert_eq!(error["code"], -32601, "{method}: {}", answer.text);
        let refused = matches!(method, "prompts/list" | "completion/complete");
        let message = error["message"].as_str().unwrap();
        assert_eq!(
            refused,
            message.starts_with("this server has no"),
            "{message}"
        );
    }
}

#[test]
fn the_page_has_every_code() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains(&vault_mcp::codes_page()),
        "docs/mcp.md lacks:\n{}",
        vault_mcp::codes_page()
    );
    for (name, dotted) in vault_mcp::tool_names() {
        assert!(page.contains(&format!("`{name}`")), "{name}");
        assert!(dotted.is_none_or(|dotted| page.contains(&format!("`{dotted}`"))));
    }
}
