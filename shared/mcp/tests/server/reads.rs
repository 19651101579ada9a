use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_format::text::error_chain;
use vault_mcp::{Denied, Person, Right};
use vault_shelf::Writes;
use vault_testing::memory::shelf::Trouble;

use super::support::{World, member, owner, policy, stocked};

#[tokio::test]
async fn a_skill_by_name_comes_to_be_read() {
    let world = stocked(Writes::Signed);
    let reply = world
        .owner_calls("get_skill", json!({ "name": "release-notes" }))
        .await;
    let skill = &reply.structured()["skill"];
    assert_eq!(skill["id"], "acme/release-notes");
    assert_eq!(skill["version"], 1);
    let paths: Vec<&str> = skill["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "SKILL.md",
            "logo.png",
            "templates/deep/er.txt",
            "templates/notes.md"
        ]
    );
    let content = reply.body["result"]["content"].as_array().unwrap();
    assert_eq!(content[0]["type"], "text");
    assert!(
        content[0]["text"]
            .as_str()
            .unwrap()
            .starts_with("---\nname: release-notes\n")
    );
    assert_eq!(content.len(), 4);
    for link in &content[1..] {
        assert_eq!(link["type"], "resource_link", "{link}");
        assert!(link["size"].is_u64() && link["_meta"]["dev.vault/sha256"].is_string());
    }

    let with_files = json!({ "name": "acme/release-notes", "include_resources": true });
    let reply = world.owner_calls("get_skill", with_files).await;
    let content = reply.body["result"]["content"].as_array().unwrap();
    assert_eq!(
        content[1]["resource"]["blob"],
        STANDARD.encode(b"\x89PNG\0\xff")
    );
    assert_eq!(content[3]["resource"]["text"], "# Notes\n");
    assert_eq!(
        content[3]["resource"]["uri"],
        "skill://acme/release-notes/templates/notes.md"
    );
    assert_eq!(
        reply.text.matches("# release-notes").count(),
        1,
        "text stands once"
    );
}

#[tokio::test]
async fn a_query_finds_and_an_empty_answer_is_one() {
    let world = stocked(Writes::Signed);
    let reply = world
        .owner_calls("get_skill", json!({ "query": "release notes" }))
        .await;
    assert_eq!(reply.names("hits"), ["release-notes"]);
    assert!(reply.structured()["hits"][0]["score"].as_f64().unwrap() > 0.0);
    let reply = world
        .owner_calls("get_skill", json!({ "query": "zebra", "top_k": 20 }))
        .await;
    assert_eq!(reply.names("hits"), Vec::<&str>::new());
    let reply = world
        .owner_calls("get_skill", json!({ "query": "a change", "top_k": 1 }))
        .await;
    assert_eq!(reply.names("hits").len(), 1);
}

#[tokio::test]
async fn what_cannot_be_asked_is_said() {
    let world = stocked(Writes::Signed);
    for (tool, code, cases) in [
        (
            "get_skill",
            "invalid_arguments",
            vec![
                json!({}),
                json!({ "name": "payroll", "query": "x" }),
                json!({ "query": "x", "top_k": 0 }),
                json!({ "query": "x", "top_k": 21 }),
                json!({ "query": "x", "top_k": "5" }),
                json!({ "name": "payroll", "top_k": 2 }),
                json!({ "query": "x", "include_resources": true }),
                json!({ "nmae": "payroll" }),
                json!({ "name": "payroll", "agent": "no agent" }),
            ],
        ),
        (
            "get_skill",
            "not_found",
            vec![
                json!({ "name": "nobody" }),
                json!({ "name": "other/payroll" }),
                json!({ "name": "../payroll" }),
            ],
        ),
        (
            "skill_list",
            "invalid_arguments",
            vec![json!({ "cursor": "No Name" }), json!({ "cursor": "x" })],
        ),
        ("skill_fetch", "invalid_arguments", vec![json!({})]),
        (
            "skill_fetch",
            "not_found",
            vec![
                json!({ "id": "acme/nobody" }),
                json!({ "id": "payroll/acme" }),
            ],
        ),
        (
            "check_updates",
            "not_found",
            vec![json!({ "skill": "nobody" })],
        ),
        (
            "update_skill",
            "not_found",
            vec![json!({ "name": "nobody" })],
        ),
        (
            "remove_skill",
            "not_found",
            vec![json!({ "name": "nobody" })],
        ),
    ] {
        for arguments in cases {
            let reply = world.owner_calls(tool, arguments.clone()).await;
            assert_eq!(reply.code(), code, "{tool} {arguments}");
            assert_eq!(reply.body["result"]["isError"], true);
            assert!(reply.denied.is_none(), "{:?}", reply.denied);
        }
    }
    let unknown = world.owner_calls("no_tool", json!({})).await;
    assert_eq!(unknown.body["error"]["code"], -32602);
    assert!(world.shelf.submitted().is_empty());
}

#[tokio::test]
async fn lists_go_on_page_by_page() {
    let world = stocked(Writes::Signed);
    for at in 0..230 {
        let tag = if at % 2 == 0 { "Even" } else { "odd" };
        world
            .shelf
            .put_text(&format!("skill-{at:03}"), "One of many", &[tag], &[])
            .unwrap();
    }
    for (tag, expected) in [
        (None, 233),
        (Some("even"), 115),
        (Some(" ODD "), 115),
        (Some("none"), 0),
    ] {
        let mut names: Vec<String> = Vec::new();
        let mut cursor: Option<String> = None;
        let mut pages = 0;
        loop {
            let mut arguments = json!({});
            if let Some(tag) = tag {
                arguments["tag"] = tag.into();
            }
            if let Some(cursor) = &cursor {
                arguments["cursor"] = cursor.as_str().into();
            }
            let reply = world.owner_calls("skill_list", arguments).await;
            names.extend(reply.names("skills").into_iter().map(str::to_owned));
            pages += 1;
            cursor = reply.structured()["next_cursor"]
                .as_str()
                .map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(names.len(), expected, "{tag:?}");
        assert!(
            names.is_sorted() && pages == (expected.div_ceil(100)).max(1),
            "{pages}"
        );
    }
}

#[tokio::test]
async fn a_fetched_skill_counts_its_files_in_words() {
    let world = stocked(Writes::Signed);
    for (name, files) in [("code-review", "1 file"), ("release-notes", "4 files")] {
        let arguments = json!({ "id": format!("acme/{name}") });
        let reply = world.owner_calls("skill_fetch", arguments).await;
        let text = reply.body["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains(&format!("version 1: {files}, signed.")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_fetched_skill_verifies_with_nothing_of_ours() {
    let world = stocked(Writes::Signed);
    for tool in ["skill_fetch", "skill.fetch"] {
        let reply = world
            .owner_calls(tool, json!({ "id": "acme/release-notes" }))
            .await;
        let fetched = reply.structured();
        let manifest = &fetched["manifest"];
        let kind = manifest["payloadType"].as_str().unwrap();
        let payload = STANDARD
            .decode(manifest["payload"].as_str().unwrap())
            .unwrap();
        let mut signed = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
        signed.extend_from_slice(&payload);
        let key = URL_SAFE_NO_PAD
            .decode(fetched["public_key"].as_str().unwrap())
            .unwrap();
        let key = VerifyingKey::from_bytes(&key.try_into().unwrap()).unwrap();
        let signature = STANDARD
            .decode(fetched["signature"].as_str().unwrap())
            .unwrap();
        let signature = Signature::from_slice(&signature).unwrap();
        key.verify_strict(&signed, &signature).unwrap();
        signed[40] ^= 1;
        assert!(key.verify_strict(&signed, &signature).is_err());

        let payload: Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!(payload["name"], "release-notes");
        let files = fetched["files"].as_array().unwrap();
        assert_eq!(files.len(), payload["files"].as_array().unwrap().len());
        for (file, signed) in files.iter().zip(payload["files"].as_array().unwrap()) {
            assert_eq!(
                (&file["path"], &file["sha256"]),
                (&signed["path"], &signed["sha256"])
            );
            let bytes = match (file["path"].as_str(), file["encoding"].as_str()) {
                (Some("SKILL.md"), None) => {
                    fetched["skill_md"].as_str().unwrap().as_bytes().to_vec()
                }
                (_, Some("utf-8")) => file["content"].as_str().unwrap().as_bytes().to_vec(),
                (_, Some("base64")) => STANDARD.decode(file["content"].as_str().unwrap()).unwrap(),
                other => panic!("{other:?}"),
            };
            assert_eq!(
                Digest::of(&bytes).to_string(),
                signed["sha256"].as_str().unwrap()
            );
        }
        assert_eq!(
            reply.text.matches("# release-notes").count(),
            1,
            "text stands once"
        );
    }
}

#[tokio::test]
async fn at_most_one_mebibyte_is_inline_and_the_rest_is_linked() {
    let world = stocked(Writes::Signed);
    let big = vec![b'a'; 700_000];
    let files: [(&str, &[u8]); 3] = [("a.txt", &big), ("b.txt", &big), ("c.txt", b"small")];
    world
        .shelf
        .put_text("big", "Has large files", &[], &files)
        .unwrap();
    let reply = world
        .owner_calls("skill_fetch", json!({ "id": "acme/big" }))
        .await;
    let files = reply.structured()["files"].as_array().unwrap();
    let inline: Vec<(&str, bool)> = files
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["content"].is_string()))
        .collect();
    assert_eq!(
        inline,
        [
            ("SKILL.md", false),
            ("a.txt", true),
            ("b.txt", false),
            ("c.txt", true)
        ]
    );
    let links: Vec<&Value> = reply.body["result"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|block| block["type"] == "resource_link")
        .collect();
    assert_eq!(links.len(), 1);
    assert_eq!(links[0]["uri"], "skill://acme/big/b.txt");
    assert_eq!(links[0]["size"], 700_000);
    assert_eq!(
        links[0]["_meta"]["dev.vault/sha256"],
        Digest::of(&big).to_string()
    );
    assert!(reply.text.len() < 900_000);
    let arguments = json!({ "name": "big", "include_resources": true });
    let reply = world.owner_calls("get_skill", arguments).await;
    let kinds: Vec<&str> = reply.body["result"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["text", "resource", "resource_link", "resource"]);
}

/// The texts of a list are read by models too: where a key that signed the release is revoked,
/// there is no list either.
#[tokio::test]
async fn nothing_of_a_release_by_a_revoked_key_is_given_out() {
    let world = stocked(Writes::Drafted);
    world.shelf.set_trouble(Some(Trouble::Awaited));
    for (tool, arguments) in [
        ("skill_list", json!({})),
        ("get_skill", json!({ "name": "payroll" })),
        ("get_skill", json!({ "query": "payroll" })),
        ("skill_fetch", json!({ "id": "acme/payroll" })),
        ("remove_skill", json!({ "name": "payroll" })),
    ] {
        let reply = world.owner_calls(tool, arguments).await;
        assert_eq!(reply.code(), "release_awaited", "{tool}: {}", reply.text);
        assert!(reply.denied.is_none(), "{tool}: {:?}", reply.denied);
    }
}

#[tokio::test]
async fn trouble_of_ours_is_never_the_callers() {
    let world = stocked(Writes::Signed);
    let by_name = json!({ "name": "payroll" });
    for (trouble, code, ours) in [
        (
            Trouble::Down,
            "unavailable",
            Some("the store does not answer: the store is down"),
        ),
        (Trouble::Lapsed, "subscription_lapsed", None),
        (Trouble::Damaged, "content_damaged", None),
    ] {
        world.shelf.set_trouble(Some(trouble));
        let reply = world.owner_calls("get_skill", by_name.clone()).await;
        assert_eq!(reply.code(), code);
        // The whole cause, down to what the store said, for the log alone.
        let cause = match &reply.denied {
            Some(Denied::Unavailable { cause, .. }) => Some(error_chain(&**cause)),
            _ => None,
        };
        assert_eq!(cause.as_deref(), ours, "{trouble:?}");
        let ours = ours.is_some();
        assert_eq!(
            reply.body["error"]["code"] == -32603,
            ours,
            "{}",
            reply.text
        );
        assert!(
            !reply.text.contains("the store is down"),
            "causes stay in the log"
        );
        let listed = world.owner_calls("skill_list", json!({})).await;
        let found = world
            .owner_calls("get_skill", json!({ "query": "payroll" }))
            .await;
        if ours {
            assert_eq!((listed.code(), found.code()), (code, code));
        } else {
            assert_eq!(
                (listed.names("skills").len(), found.names("hits").len()),
                (3, 1)
            );
        }
    }
}

#[tokio::test]
async fn rights_are_asked_before_anything_is_read() {
    let world = stocked(Writes::Signed);
    for (right, consentable) in [(Right::Consentable, true), (Right::Never, false)] {
        let reader = Person {
            write: right,
            ..owner()
        };
        let reply = world
            .call(&reader, "skill_publish", json!({ "skill_md": "x" }))
            .await;
        let Some(Denied::Scope {
            scope: "write",
            action,
            consentable: offered,
        }) = &reply.denied
        else {
            panic!("{:?}", reply.denied);
        };
        assert_eq!((action.as_str(), *offered), ("skill_publish", consentable));
        assert_eq!(reply.code(), "insufficient_scope");
        let writer = Person {
            read: right,
            ..owner()
        };
        for (method, params) in [
            (
                "tools/call",
                json!({ "name": "get_skill", "arguments": { "name": "payroll" } }),
            ),
            ("resources/list", json!({})),
            (
                "resources/read",
                json!({ "uri": "skill://acme/payroll/SKILL.md" }),
            ),
            ("skills/list", json!({})),
        ] {
            let reply = world.ask(&writer, method, params).await;
            assert!(
                matches!(reply.denied, Some(Denied::Scope { scope: "read", .. })),
                "{method}: {}",
                reply.text
            );
        }
        for method in ["tools/list", "ping"] {
            let denied = world.ask(&writer, method, json!({})).await.denied;
            assert!(denied.is_none(), "{denied:?}");
        }
    }
    assert_eq!(world.shelf.loads(), 0);
}

async fn resolved(world: &World, person: &Person, arguments: Value) -> Value {
    world
        .call(person, "resolve_capabilities", arguments)
        .await
        .structured()
        .clone()
}

#[tokio::test]
async fn members_resolve_for_themselves_and_owners_for_all() {
    let world = stocked(Writes::Signed);
    world.shelf.set_policy(Some(policy()));
    let ana = member("ana@example.org");
    let own = resolved(&world, &ana, json!({ "query": "review" })).await;
    let names: Vec<&str> = own["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| skill["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["code-review", "release-notes"]);
    assert_eq!(
        (&own["profile"], &own["tools"]),
        (&json!("writer"), &json!(["get_skill"]))
    );
    assert!(!own.to_string().contains("payroll"));
    assert_eq!(
        own,
        resolved(
            &world,
            &ana,
            json!({ "caller": "ana@example.org", "platform": "mcp", "query": "review" })
        )
        .await
    );
    for arguments in [
        json!({ "caller": "bob@example.org" }),
        json!({ "platform": "slack" }),
        json!({ "channel": "C1" }),
    ] {
        let reply = world.call(&ana, "resolve_capabilities", arguments).await;
        assert_eq!(reply.code(), "caller_forbidden");
    }
    let all = resolved(&world, &owner(), json!({})).await;
    assert_eq!(all["skills"].as_array().unwrap().len(), 3);
    assert_eq!(all["tools"], json!(["*"]));
    let hers = resolved(
        &world,
        &owner(),
        json!({ "caller": "ana@example.org", "query": "review" }),
    )
    .await;
    assert_eq!(hers["skills"], own["skills"]);
    let nobody = resolved(&world, &owner(), json!({ "caller": "eve@example.org" })).await;
    assert_eq!(nobody["skills"], json!([]));
}

#[tokio::test]
async fn drift_says_what_was_not_compared() {
    let world = stocked(Writes::Drafted);
    let all = world.owner_calls("check_updates", json!({})).await;
    assert_eq!(
        all.names("unchecked"),
        ["code-review", "payroll", "release-notes"]
    );
    let one = world
        .owner_calls("check_updates", json!({ "skill": "payroll" }))
        .await;
    assert_eq!(one.names("unchecked"), ["payroll"]);
    assert_eq!(one.structured()["drifted"], json!([]));
}
