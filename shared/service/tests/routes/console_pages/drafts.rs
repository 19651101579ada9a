//! The drafts of a vault in a browser.

use serde_json::json;
use vault_format::draft::Submitter;
use vault_format::name::DraftId;
use vault_service::model::draft::{self, Content, DraftRecord, Place, Subject};
use vault_service::model::user::{Role, Scopes};
use vault_store::records::{Document, When, Write};

use super::{open, person, send, signed_in};
use crate::admin::{ADA, BOB, CY, Desk, desk, empty_desk, reference, token};
use crate::common;
use crate::support::bearer;
use crate::team::{Team, drafts, hand_in, id_of, propose_skill};

/// A draft of a member; its id.
async fn proposed(desk: &Desk, name: &str) -> String {
    let home = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::ALL).await;
    let member = token(&desk.world, BOB, "acme", Scopes::ALL).await;
    id_of(&propose_skill(&desk.world, &member, "acme", name).await)
}

async fn state_of(desk: &Desk, id: &str) -> (String, serde_json::Value) {
    let listed = desk.get("/admin/vaults/acme/drafts?state=all").await.json();
    let items = listed["items"].as_array().unwrap();
    let found = items.iter().find(|item| item["id"] == id).unwrap();
    (
        found["state"].as_str().unwrap().to_owned(),
        found["reason"].clone(),
    )
}

#[tokio::test]
async fn a_publisher_reads_a_draft_and_declines_it_with_a_reason() {
    let desk = desk().await;
    let id = proposed(&desk, "summary").await;
    let mut publisher = person(&desk, CY, Role::Publisher).await;
    let list = open(&mut publisher, "/console/acme/drafts").await;
    let path = format!("/console/acme/drafts/{id}");
    assert!(
        list.body.contains(&format!("href=\"{path}\"")),
        "{}",
        list.body
    );
    assert!(list.body.contains(BOB), "{}", list.body);

    let page = open(&mut publisher, &path).await;
    for text in [
        "New content: <bdi>summary</bdi>",
        "The new skill",
        "+ Do it.",
        &format!("vault drafts accept {id}"),
    ] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    let reason = "We have this <b>already</b>.";
    let fields = [("change", "decline"), ("reason", reason)];
    let back = send(&mut publisher, &page, &path, &fields).await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, &*format!("{path}?done=draft-declined"))
    );
    assert_eq!(
        state_of(&desk, &id).await,
        ("declined".to_owned(), json!(reason))
    );
    assert_eq!(desk.count("draft.decline done").await, 1);

    let page = open(&mut publisher, &format!("{path}?done=draft-declined")).await;
    assert!(
        page.body.contains("Its author reads your reason."),
        "{}",
        page.body
    );
    assert!(
        page.body.contains("We have this &#60;b&#62;already"),
        "{}",
        page.body
    );
    assert!(
        !page.body.contains("<button class=\"danger\""),
        "{}",
        page.body
    );
    let list = open(&mut publisher, "/console/acme/drafts").await;
    assert!(list.body.contains("Nothing waits."), "{}", list.body);
}

#[tokio::test]
async fn a_decision_that_came_too_late_says_so_and_changes_nothing() {
    let desk = desk().await;
    let id = proposed(&desk, "summary").await;
    let mut owner = signed_in(&desk, ADA).await;
    let path = format!("/console/acme/drafts/{id}");
    let page = open(&mut owner, &path).await;
    let body = json!({ "release": 42 });
    let accepted = desk
        .post(&format!("{}/{id}/accepted", drafts("acme")), &body)
        .await;
    assert_eq!(accepted.status, 200);
    let fields = [("change", "decline"), ("reason", "too late")];
    let back = send(&mut owner, &page, &path, &fields).await;
    assert_eq!(
        back.header("location"),
        format!("{path}?refused=draft_state")
    );
    assert_eq!(state_of(&desk, &id).await.0, "accepted");
    let empty = send(&mut owner, &page, &path, &[("change", "decline")]).await;
    assert_eq!(empty.page(), "400 This form cannot be read");
    for path in [
        "/console/acme/drafts/x",
        "/console/acme/drafts/00000000000000000000000000",
    ] {
        assert_eq!(owner.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_change_is_compared_with_the_skill_as_it_is() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 1, 1);
    let alpha = team.skill("alpha", "the first line\nthe second line");
    team.publish(&desk.world, &[alpha]).await;
    let text = "---\nname: alpha\ndescription: Does the work of alpha well.\n---\n\nthe first line\n<script>alert(1)</script>\n";
    let body = json!({ "skill_md": text }).to_string();
    let body = Some(("application/json", body.into_bytes()));
    let path = format!("{}?kind=propose", drafts("acme"));
    let made = desk
        .world
        .send(bearer(&desk.owner, "POST", &path, body, &[]))
        .await;
    let mut owner = signed_in(&desk, ADA).await;
    let path = format!("/console/acme/drafts/{}", id_of(&made));
    let page = open(&mut owner, &path).await;
    for line in [
        "<del>- the second line</del>",
        "<ins>+ &#60;script&#62;alert(1)&#60;/script&#62;</ins>",
        "<span>  the first line</span>",
        "What it changes",
    ] {
        assert!(page.body.contains(line), "{line}: {}", page.body);
    }
    assert!(!page.body.contains("has changed since"), "{}", page.body);

    // Another release changes the skill: the draft is about one that is no longer there.
    let newer = team.skill("alpha", "the first line\na third line");
    team.publish(&desk.world, &[newer]).await;
    let page = open(&mut owner, &path).await;
    assert!(
        page.body
            .contains("has changed since the author wrote this draft"),
        "{}",
        page.body
    );
    assert!(
        page.body.contains("<del>- a third line</del>"),
        "{}",
        page.body
    );
}

#[tokio::test]
async fn a_proposal_shows_its_differences_and_its_signatures() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 3, 2);
    let (alpha, beta) = (team.skill("alpha", "one"), team.skill("beta", "one"));
    team.publish(&desk.world, &[alpha]).await;
    let catalog = team.next(&desk.world, 0, &[beta]).await;
    let file = team.file(&catalog, &[0]);
    let made = hand_in(&desk.world, &desk.owner, "acme", "release", file).await;
    let id = id_of(&made);
    let mut owner = signed_in(&desk, ADA).await;
    let list = open(&mut owner, "/console/acme/releases").await;
    assert!(list.body.contains("1 of 2 signatures"), "{}", list.body);
    let page = open(&mut owner, &format!("/console/acme/drafts/{id}")).await;
    for text in [
        "1 of 2 so far",
        "Compared with release 1.",
        "Added (1)",
        "<bdi>beta</bdi>",
        "Removed (1)",
        "<bdi>alpha</bdi>",
        &format!("vault release sign {id}"),
    ] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
}

/// Five hundred drafts, with names as long as names may be and authors who have left.
#[tokio::test]
async fn five_hundred_drafts_are_read_page_by_page() {
    let desk = desk().await;
    let records = &desk.world.app.records;
    let name = |number: usize| format!("{}{number:04}", "x".repeat(60));
    for some in (0..500).collect::<Vec<_>>().chunks(100) {
        let write = |number: &usize| {
            let id = DraftId::from_parts(1_700_000_000_000 + *number as u64, *number as u128);
            let content = Content {
                name: name(*number).parse().unwrap(),
                base_bundle_hash: None,
                flags: 0,
                place: Place::Shared,
            };
            let by = Submitter {
                user_id: format!("usr_{}", "0".repeat(26)),
                client_id: None,
            };
            let now = desk.world.now();
            let record = DraftRecord::new(id, Subject::Remove(content), b"x", now, by);
            let key = draft::key(&desk.acme.id, &record.id);
            Write::put(key, Document::of(&record).unwrap(), When::Absent)
        };
        let writes = some.iter().map(write).collect();
        assert!(records.commit(writes).await.unwrap().is_done());
    }
    let mut owner = signed_in(&desk, ADA).await;
    let (mut path, mut seen) = ("/console/acme/drafts".to_owned(), 0);
    loop {
        let page = open(&mut owner, &path).await;
        let rows = page.body.matches("role=\"rowheader\"").count();
        assert!((1..=50).contains(&rows), "{path}: {rows}");
        for number in seen..seen + rows {
            assert!(page.body.contains(&name(number)), "{path}: {number}");
        }
        seen += rows;
        let Some(next) = page.body.split("rel=\"next\" href=\"").nth(1) else {
            break;
        };
        path = next.split('"').next().unwrap().replace("&#38;", "&");
    }
    assert_eq!(seen, 500);
}
