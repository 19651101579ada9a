use serde_json::json;

use super::{rpc, world};

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
    let listed = world
        .post(&world.owner, &rpc("tools/list", &json!({})))
        .await;
    assert_eq!(
        listed.json()["result"]["tools"].as_array().unwrap().len(),
        10
    );
}
