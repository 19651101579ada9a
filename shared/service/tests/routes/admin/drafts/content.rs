//! Drafts about skills: what comes in, who sees it, and what it says of skills that are hidden.

use serde_json::{Value, json};
use vault_format::draft::{Draft, DraftContext, Request};
use vault_format::hash::Digest;
use vault_service::model::user::Role;

use super::{DAN, FAY, Place};
use crate::team::{drafts, id_of};

fn document(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Does the work of {name} well.\n---\n{body}\n")
}

#[tokio::test]
async fn a_member_hands_in_what_the_tools_take() {
    let place = Place::new().await;
    let alpha = place.team.skill("alpha", "one").encoded.hash;
    let rows = [
        (
            "propose",
            json!({ "skill_md": document("beta", "Do it."), "resources": [{ "path": "a.txt", "content": "AAEC", "encoding": "base64" }] }),
            "beta",
        ),
        (
            "propose",
            json!({ "files": [{ "path": "SKILL.md", "content": document("alpha", "Do it.") }] }),
            "alpha",
        ),
        (
            "install",
            json!({ "source": "git", "identifier": "acme/skills/code-review", "ref": "main" }),
            "code-review",
        ),
    ];
    for (kind, body, name) in rows {
        let answer = place.change(&place.member, kind, &body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let item = answer.json();
        assert_eq!((&item["kind"], &item["name"]), (&json!(kind), &json!(name)));
        // A member whom no policy names sees no skill.
        assert_eq!(item["base_bundle_hash"], Value::Null);
        assert_eq!(item["submitted_by"]["email"], Value::Null);
        let read = place.read(&place.desk.owner, &id_of(&answer)).await;
        assert_eq!(read.header("content-type"), "application/json");
        let sha256 = Digest::of(&read.body);
        assert_eq!(item["sha256"], json!(sha256));
        assert_eq!(read.header("etag"), format!("\"{sha256}\""));
        let slug = "acme".parse().unwrap();
        let vault_id = place.team.chain().vault_id();
        let context = DraftContext {
            slug: &slug,
            vault_id: Some(&vault_id),
        };
        let draft = Draft::parse(&read.body, &context).unwrap();
        assert_eq!(draft.name.as_str(), name);
        if let Request::Install { source } = draft.request {
            assert_eq!(source.reference.as_deref(), Some("main"));
        }
    }
    // Its owner sees everything, and what a removal would take out.
    let body = json!({ "name": "alpha" });
    let removal = place.change(&place.desk.owner, "remove", &body).await;
    assert_eq!(removal.json()["base_bundle_hash"], json!(alpha));
    assert_eq!(removal.json()["submitted_by"]["email"], "ada@example.org");
}

/// The author and whoever accepts read which files are not in the draft, before and after.
#[tokio::test]
async fn a_draft_names_the_files_that_were_left_out() {
    let place = Place::new().await;
    let body = json!({
        "skill_md": document("beta", "Do it."),
        "resources": [{ "path": ".env", "content": "TOKEN=1" }],
    });
    let answer = place.change(&place.member, "propose", &body).await;
    let lacks = json!("without .env: it looks like a secret");
    assert_eq!(answer.json()["reason"], lacks);
    let id = id_of(&answer);
    let release = json!({ "release": 1 });
    let accepted = place.accept(&place.publisher, &id, release).await.json();
    assert_eq!(
        (&accepted["state"], &accepted["reason"]),
        (&json!("accepted"), &lacks)
    );
}

#[tokio::test]
async fn what_is_no_change_is_refused_and_leaves_nothing() {
    let place = Place::new().await;
    let owner = place.desk.owner.clone();
    let large = json!({
        "skill_md": document("beta", "Do it."),
        "resources": [{ "path": "a.txt", "content": "x".repeat(1_100_000) }],
    });
    let skill = |body: &str| json!({ "skill_md": document("beta", body) });
    let files = place.team.skill("alpha", "one").loaded.bundle.files.clone();
    let same: Vec<_> = files
        .iter()
        .map(|file| json!({ "path": file.path, "content": String::from_utf8_lossy(&file.bytes) }))
        .collect();
    for (kind, body, wanted) in [
        ("propose", json!({}), "422 parameter_invalid"),
        ("propose", json!([]), "400 json_invalid"),
        ("propose", json!({ "skill_md": 1 }), "422 parameter_invalid"),
        (
            "propose",
            json!({ "skill_md": "x", "files": [] }),
            "422 parameter_invalid",
        ),
        (
            "propose",
            json!({ "resources": [] }),
            "422 parameter_invalid",
        ),
        (
            "propose",
            json!({ "skill_md": "x", "check": true }),
            "422 parameter_invalid",
        ),
        (
            "propose",
            json!({ "files": [{ "path": "a", "content": "!", "encoding": "base64" }] }),
            "422 parameter_invalid",
        ),
        (
            "propose",
            json!({ "skill_md": "no frontmatter" }),
            "422 skill_blocked",
        ),
        (
            "propose",
            json!({ "files": [{ "path": "a", "content": "x" }] }),
            "422 skill_blocked",
        ),
        ("propose", skill("Do\u{202e} it."), "422 skill_blocked"),
        ("propose", large, "413 draft_too_large"),
        ("propose", json!({ "files": same }), "409 skill_unchanged"),
        (
            "install",
            json!({ "source": "ftp", "identifier": "x" }),
            "422 parameter_invalid",
        ),
        (
            "install",
            json!({ "source": "git", "identifier": "https://example.org/SKILL.md" }),
            "422 parameter_invalid",
        ),
        (
            "install",
            json!({ "source": "local", "identifier": "local:x", "skill_dir": "/etc" }),
            "422 source_refused",
        ),
        ("remove", json!({ "name": "nobody" }), "404 skill_not_found"),
        ("remove", json!({ "name": "../x" }), "404 skill_not_found"),
        (
            "remove",
            json!({ "skill": "alpha" }),
            "422 parameter_invalid",
        ),
        (
            "update",
            json!({ "name": "alpha" }),
            "422 parameter_invalid",
        ),
        ("", json!({}), "422 parameter_invalid"),
        ("Propose", json!({}), "422 parameter_invalid"),
    ] {
        let answer = place.change(&owner, kind, &body).await;
        assert_eq!(answer.short(), wanted, "{kind} {}", answer.json());
        if wanted == "422 skill_blocked" {
            assert!(answer.json()["findings"][0]["rule"].is_string());
        }
    }
    let path = format!("{}?kind=propose", drafts("acme"));
    for (media, bytes, wanted) in [
        ("text/plain", b"{}".to_vec(), "415 media_type"),
        ("application/octet-stream", b"{}".to_vec(), "415 media_type"),
        ("application/json", b"{".to_vec(), "400 json_invalid"),
        (
            "application/json",
            vec![b' '; 2 * 1024 * 1024 + 1],
            "413 body_too_large",
        ),
    ] {
        let body = Some((media, bytes));
        let answer = place.desk.send(&owner, "POST", &path, body, &[]).await;
        assert_eq!(answer.short(), wanted, "{media}");
    }
    assert!(place.ids(&owner, "state=all").await.is_empty());
}

/// Owners see all of it, publishers all but the key requests of others, everybody else their own.
#[tokio::test]
async fn a_draft_is_there_for_its_author_owners_and_publishers() {
    let place = Place::new().await;
    let dan = place.add(DAN, Role::Member).await;
    let fay = place.add(FAY, Role::Publisher).await;
    let skill = place.propose(&place.member, "beta").await;
    let key = place
        .team
        .request(&place.desk.world, place.team.key(2), "bob");
    let key = id_of(&place.hand_in(&place.member, "key_request", key).await);
    let release = place.proposed(&fay, "one").await;
    let (owner, publisher) = (&place.desk.owner, &place.publisher);
    for (token, seen) in [
        (owner, vec![&skill, &key, &release]),
        (publisher, vec![&skill, &release]),
        (&place.member, vec![&skill, &key]),
        (&dan, vec![]),
    ] {
        let mut listed = place.ids(token, "").await;
        listed.sort();
        let mut wanted: Vec<_> = seen.iter().map(|id| (*id).clone()).collect();
        wanted.sort();
        assert_eq!(listed, wanted);
        for id in [&skill, &key, &release] {
            let answer = place.read(token, id).await.short();
            let wanted = if seen.contains(&id) {
                "200"
            } else {
                "404 draft_not_found"
            };
            assert_eq!(answer, wanted);
        }
    }
    // For whoever does not see it, nothing tells it from an id that nobody has.
    let nobody = "0".repeat(26);
    for token in [&dan, publisher] {
        let hidden = if *token == dan { &skill } else { &key };
        for (one, other) in [
            (
                place.read(token, hidden).await,
                place.read(token, &nobody).await,
            ),
            (
                place.withdraw(token, hidden).await,
                place.withdraw(token, &nobody).await,
            ),
        ] {
            assert_eq!(one.blotted(), other.blotted());
        }
    }
    let hidden = place.decline(publisher, &key, "no").await;
    assert_eq!(hidden.short(), "404 draft_not_found");
    for bad in ["x", "..", "%00", &"0".repeat(25), &"u".repeat(26)] {
        let answer = place.read(owner, bad).await;
        assert_eq!(answer.status, 404, "{bad}");
    }
    // The addresses of authors are for those who decide.
    let email = |listed: Value| listed["items"][0]["submitted_by"]["email"].clone();
    assert_eq!(
        email(place.list(owner, "kind=propose").await),
        "bob@example.org"
    );
    assert_eq!(
        email(place.list(publisher, "kind=propose").await),
        "bob@example.org"
    );
    assert_eq!(
        email(place.list(&place.member, "kind=propose").await),
        Value::Null
    );
}

/// What a member may not see makes no difference: not in the answer, not in the draft, not in the
/// work.
#[tokio::test]
async fn a_draft_tells_nothing_of_a_hidden_skill() {
    let place = Place::new().await;
    let alpha = place.team.skill("alpha", "one").loaded.bundle.files.clone();
    let given = |name: &str| -> Value {
        let files = alpha.iter().map(|file| {
            let text = String::from_utf8(file.bytes.clone()).unwrap();
            json!({ "path": file.path, "content": text.replace("alpha", name) })
        });
        files.collect()
    };
    let mut seen = Vec::new();
    // The very bytes of the hidden skill, other bytes under its name, and a name that no skill has.
    for (name, files) in [
        ("alpha", given("alpha")),
        (
            "alpha",
            json!([{ "path": "SKILL.md", "content": document("alpha", "Mine.") }]),
        ),
        ("gamma", given("gamma")),
    ] {
        place.desk.commits.clear();
        let before = place.desk.commits.reads();
        let answer = place
            .change(&place.member, "propose", &json!({ "files": files }))
            .await;
        let reads = place.desk.commits.reads() - before;
        let mut item = answer.json();
        for member in ["id", "sha256", "size", "name"] {
            item[member] = Value::Null;
        }
        let bytes = place.read(&place.member, &id_of(&answer)).await;
        let base = bytes.json()["base_bundle_hash"].clone();
        assert_eq!(bytes.json()["name"], name);
        seen.push((answer.status, item, base, reads));
    }
    assert_eq!(seen[0].2, Value::Null);
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
    let removed = |name: &str| json!({ "name": name });
    let hidden = place
        .change(&place.member, "remove", &removed("alpha"))
        .await;
    let absent = place
        .change(&place.member, "remove", &removed("gamma"))
        .await;
    assert_eq!(hidden.blotted(), absent.blotted());
    let source =
        |name: &str| json!({ "source": "git", "identifier": format!("acme/skills/{name}") });
    let hidden = place
        .change(&place.member, "install", &source("alpha"))
        .await
        .json();
    assert_eq!(hidden["base_bundle_hash"], Value::Null);
    let owner = place.desk.owner.clone();
    let seen = place
        .change(&owner, "install", &source("alpha"))
        .await
        .json();
    assert!(seen["base_bundle_hash"].is_string(), "{seen}");
}
