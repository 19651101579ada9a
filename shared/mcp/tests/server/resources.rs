use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_shelf::Writes;

use super::support::{World, stocked};

async fn read(world: &World, uri: &str) -> Value {
    let reply = world
        .owner_asks("resources/read", json!({ "uri": uri }))
        .await;
    reply.body["result"]["contents"][0].clone()
}

async fn directory(world: &World, uri: &str) -> Vec<(String, String)> {
    let reply = world
        .owner_asks("resources/directory/read", json!({ "uri": uri }))
        .await;
    let children = reply.body["result"]["resources"].as_array();
    let children = children.unwrap_or_else(|| panic!("{uri}: {}", reply.text));
    let text = |child: &Value, member: &str| child[member].as_str().unwrap_or_default().to_owned();
    children
        .iter()
        .map(|child| (text(child, "uri"), text(child, "mimeType")))
        .collect()
}

#[tokio::test]
async fn skills_are_listed_with_digests_signature_and_key() {
    let world = stocked(Writes::Signed);
    let reply = world.owner_asks("skills/list", json!({})).await;
    let skills = reply.body["result"]["skills"].as_array().unwrap();
    assert_eq!(skills.len(), 3);
    let skill = &skills[2];
    assert_eq!(skill["uri"], "skill://acme/release-notes/SKILL.md");
    assert_eq!(
        skill["frontmatter"],
        json!({ "name": "release-notes", "description": "Writes release notes from merged changes", "tags": ["docs"] })
    );
    let keys = &skill["_meta"];
    assert_eq!(keys["dev.vault/root-version"], 1);
    assert_eq!(
        keys["dev.vault/release-signers"],
        json!([keys["dev.vault/public-key"]])
    );
    for name in [
        "bundle-hash",
        "signature",
        "public-key",
        "manifest",
        "vault-id",
    ] {
        assert!(
            skill["_meta"][format!("dev.vault/{name}")].is_string(),
            "{name}"
        );
    }
    let resources = skill["resources"].as_array().unwrap();
    let uris: Vec<&str> = resources
        .iter()
        .map(|file| file["uri"].as_str().unwrap())
        .collect();
    assert_eq!(uris.len(), 4);
    // A client that writes every listed file writes nothing that the author did not sign.
    let manifest = "skill://acme/release-notes/.vault/manifest.json";
    assert!(!uris.contains(&manifest));
    assert_eq!(skill["_meta"]["dev.vault/manifest"], manifest);
    assert!(read(&world, manifest).await["text"].is_string());
    for file in resources {
        let contents = read(&world, file["uri"].as_str().unwrap()).await;
        let bytes = match contents["text"].as_str() {
            Some(text) => text.as_bytes().to_vec(),
            None => STANDARD.decode(contents["blob"].as_str().unwrap()).unwrap(),
        };
        assert_eq!(
            file["digest"],
            format!("sha256:{}", Digest::of(&bytes)),
            "{file}"
        );
        assert_eq!(file["size"], bytes.len());
    }
    let got = world
        .owner_asks("skills/get", json!({ "uri": skill["uri"] }))
        .await;
    assert_eq!(&got.body["result"]["skill"], skill);
    for uri in [
        "skill://acme/nobody/SKILL.md",
        "skill://acme/release-notes/templates/SKILL.md",
        "skill://other/release-notes/SKILL.md",
        "skill://acme/release%2Dnotes/SKILL.md",
        "nonsense/SKILL.md",
        "skill://acme/release-notes/logo.png",
    ] {
        let reply = world.owner_asks("skills/get", json!({ "uri": uri })).await;
        assert_eq!(reply.body["error"]["code"], -32602, "{uri}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_name_that_does_not_fit_its_address_is_left_out_of_the_extension_alone() {
    let world = stocked(Writes::Signed);
    world
        .shelf
        .put_text("Code Of Conduct", "Says how to behave", &[], &[])
        .unwrap();
    let listed = world.owner_asks("skills/list", json!({})).await;
    assert_eq!(listed.body["result"]["skills"].as_array().unwrap().len(), 3);
    let listed = world.owner_asks("resources/list", json!({})).await;
    assert_eq!(
        listed.body["result"]["resources"].as_array().unwrap().len(),
        4
    );
    let read = read(&world, "skill://acme/code-of-conduct/SKILL.md").await;
    assert!(read["text"].is_string());
}

#[tokio::test]
async fn skills_and_resources_come_page_by_page() {
    let world = stocked(Writes::Signed);
    for at in 0..130 {
        world
            .shelf
            .put_text(&format!("skill-{at:03}"), "One of many", &[], &[])
            .unwrap();
    }
    for (method, list, pages) in [
        ("skills/list", "skills", 6),
        ("resources/list", "resources", 2),
    ] {
        let mut cursor: Option<String> = None;
        let mut uris: Vec<String> = Vec::new();
        let mut seen = 0;
        loop {
            let params = cursor
                .as_ref()
                .map_or(json!({}), |cursor| json!({ "cursor": cursor }));
            let reply = world.owner_asks(method, params).await;
            let items = reply.body["result"][list].as_array().unwrap().clone();
            uris.extend(
                items
                    .iter()
                    .map(|item| item["uri"].as_str().unwrap().to_owned()),
            );
            seen += 1;
            cursor = reply.body["result"]["nextCursor"]
                .as_str()
                .map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((uris.len(), seen), (133, pages), "{method}");
        assert!(uris.is_sorted());
        for cursor in ["No Cursor", "x", "skill-001"] {
            let bad = world.owner_asks(method, json!({ "cursor": cursor })).await;
            let error = &bad.body["error"];
            assert_eq!(error["code"], -32602, "{method} {cursor}");
            assert_eq!(error["data"]["member"], "params.cursor");
        }
    }
}

#[tokio::test]
async fn wrong_parameters_of_a_method_are_invalid_and_name_the_member() {
    let world = stocked(Writes::Signed);
    for (method, params, member) in [
        ("tools/call", json!({}), "params.name"),
        (
            "tools/call",
            json!({ "name": "get_skill", "arguments": [] }),
            "params.arguments",
        ),
        ("tools/call", json!({ "name": "x" }), "params.name"),
        ("tools/list", json!({ "cursor": "x" }), "params.cursor"),
        (
            "resources/templates/list",
            json!({ "cursor": "x" }),
            "params.cursor",
        ),
        ("resources/read", json!({}), "params.uri"),
        ("skills/get", json!({ "name": "pdf" }), "params.uri"),
        ("resources/directory/read", json!({}), "params.uri"),
    ] {
        let reply = world.owner_asks(method, params.clone()).await;
        let error = &reply.body["error"];
        assert_eq!(error["code"], -32602, "{method} {params}: {}", reply.body);
        assert_eq!(error["data"]["member"], member, "{method} {params}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(member), "{message}");
    }
    let unknown = world.owner_asks("no/method", json!({})).await;
    assert_eq!(unknown.body["error"]["code"], -32601);
}

#[tokio::test]
async fn folders_show_what_stands_directly_in_them() {
    let world = stocked(Writes::Signed);
    let folder = "inode/directory";
    let base = "skill://acme/release-notes";
    let pair = |path: &str, kind: &str| (format!("{base}/{path}"), kind.to_owned());
    for root in [base.to_owned(), format!("{base}/")] {
        assert_eq!(
            directory(&world, &root).await,
            [
                pair(".vault", folder),
                pair("templates", folder),
                pair("SKILL.md", "text/markdown"),
                pair("logo.png", "image/png"),
            ]
        );
    }
    assert_eq!(
        directory(&world, &format!("{base}/templates")).await,
        [
            pair("templates/deep", folder),
            pair("templates/notes.md", "text/markdown")
        ]
    );
    assert_eq!(
        directory(&world, &format!("{base}/.vault")).await,
        [pair(".vault/manifest.json", "application/json")]
    );
    let skills = directory(&world, "skill://acme").await;
    assert_eq!(skills.len(), 3);
    assert!(skills.iter().all(|(_, kind)| kind == folder));
    for uri in [
        "skill://acme/nobody",
        "skill://acme/release-notes/SKILL.md",
        "skill://acme/release-notes/temp",
        "skill://other",
        "x",
    ] {
        let reply = world
            .owner_asks("resources/directory/read", json!({ "uri": uri }))
            .await;
        let code = reply.body["error"]["code"].as_i64().unwrap();
        assert!([-32602, -32002].contains(&code), "{uri}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_says_which_address() {
    let world = stocked(Writes::Signed);
    for uri in [
        "skill://acme/release-notes/none.txt",
        "skill://acme/nobody/SKILL.md",
        "file:///etc/passwd",
        "",
    ] {
        let reply = world
            .owner_asks("resources/read", json!({ "uri": uri }))
            .await;
        assert_eq!(reply.body["error"]["code"], -32002, "{}", reply.text);
        assert_eq!(reply.body["error"]["data"]["uri"], uri);
    }
}

#[tokio::test]
async fn a_large_file_is_a_blob_and_fits() {
    let world = stocked(Writes::Signed);
    let large = vec![b'a'; 4 * 1024 * 1024];
    let files: [(&str, &[u8]); 2] = [("edge.txt", &large[..1024 * 1024]), ("large.txt", &large)];
    world
        .shelf
        .put_text("big", "Has large files", &[], &files)
        .unwrap();
    let edge = read(&world, "skill://acme/big/edge.txt").await;
    assert_eq!(edge["text"].as_str().unwrap().len(), 1024 * 1024);
    let blob = read(&world, "skill://acme/big/large.txt").await;
    assert_eq!(
        STANDARD.decode(blob["blob"].as_str().unwrap()).unwrap(),
        large
    );
    assert_eq!(
        blob["_meta"]["dev.vault/sha256"],
        Digest::of(&large).to_string()
    );
}

#[tokio::test]
async fn a_list_of_files_with_digests_is_read_at_its_usual_place() {
    let world = stocked(Writes::Signed);
    let uri = "skill://acme/release-notes/_manifest";
    let text = read(&world, uri).await["text"].clone();
    let list: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(list["skill"], "release-notes");
    let files = list["files"].as_array().unwrap();
    assert_eq!(files.len(), 4);
    assert_eq!(files[0]["path"], "SKILL.md");
    for file in files {
        let path = file["path"].as_str().unwrap();
        let contents = read(&world, &format!("skill://acme/release-notes/{path}")).await;
        let bytes = match contents["text"].as_str() {
            Some(text) => text.as_bytes().to_vec(),
            None => STANDARD.decode(contents["blob"].as_str().unwrap()).unwrap(),
        };
        assert_eq!(file["hash"], format!("sha256:{}", Digest::of(&bytes)));
        assert_eq!(file["size"], bytes.len());
    }
    // A skill's own file of that name comes first, and no list names the generated one.
    world
        .shelf
        .put_text("own", "Has such a file", &[], &[("_manifest", b"mine")])
        .unwrap();
    let own = read(&world, "skill://acme/own/_manifest").await;
    assert_eq!(own["text"], "mine");
    let listed = world.owner_asks("skills/list", json!({})).await;
    assert!(!listed.text.contains("release-notes/_manifest"));
}

#[tokio::test]
async fn one_template_describes_the_addresses_of_files() {
    let world = stocked(Writes::Signed);
    let answer = world
        .owner_asks("resources/templates/list", json!({}))
        .await;
    let templates = answer.body["result"]["resourceTemplates"].as_array();
    assert_eq!(templates.unwrap().len(), 1);
    assert_eq!(
        templates.unwrap()[0]["uriTemplate"],
        "skill://{owner}/{name}/{+path}"
    );
}
