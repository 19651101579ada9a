//! How many drafts wait: one member's flood leaves the others room.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_service::model::user::{Role, Scopes};
use vault_store::objects::{Class, Objects as _};

use super::{BOB, DAN, FAY, Place};
use crate::admin::token;
use crate::team::propose_skill;

#[tokio::test]
async fn a_flood_by_one_member_ends_at_twenty() {
    let place = Place::new().await;
    let world = &place.desk.world;
    for n in 0..25 {
        let answer = propose_skill(world, &place.member, "acme", &format!("skill-{n}")).await;
        let wanted = if n < 20 {
            "201"
        } else {
            "409 draft_queue_full"
        };
        assert_eq!(answer.short(), wanted, "{n}");
    }
    let dan = place.add(DAN, Role::Member).await;
    place.propose(&dan, "notes").await;
    // Each decision makes room for one more.
    let first = place.ids(&place.member, "").await.remove(0);
    assert_eq!(
        place.decline(&place.desk.owner, &first, "no").await.short(),
        "200"
    );
    place.propose(&place.member, "one-more").await;
    let full = propose_skill(world, &place.member, "acme", "two-more").await;
    assert_eq!(full.short(), "409 draft_queue_full");
}

/// Withdrawing gives a place back, but not the day's count: nobody fills the store by handing in
/// and withdrawing.
#[tokio::test]
async fn an_author_hands_in_two_hundred_drafts_a_day() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let objects = async || {
        let id = place.desk.acme.id;
        let listed = world
            .memory
            .list_objects(&id, Class::Drafts, None, 1000)
            .await;
        listed.unwrap().len()
    };
    for n in 0..200 {
        let id = place.propose(&place.member, &format!("skill-{n}")).await;
        assert_eq!(place.withdraw(&place.member, &id).await.status, 200);
    }
    let before = objects().await;
    let full = propose_skill(world, &place.member, "acme", "one-more").await;
    assert_eq!(full.short(), "409 draft_queue_full");
    assert!(full.json()["detail"].as_str().unwrap().contains("tomorrow"));
    assert_eq!(objects().await, before, "it leaves no bytes");
    let key = place.team.request(world, place.team.key(2), "bob");
    let full = place.hand_in(&place.member, "key_request", key).await;
    assert_eq!(full.short(), "409 draft_queue_full");
    // Another author has a count of their own, and tomorrow everybody has a new one.
    let dan = place.add(DAN, Role::Member).await;
    place.propose(&dan, "notes").await;
    world.clock.advance(24 * 3600);
    let member = token(world, BOB, "acme", Scopes::ALL).await;
    place.propose(&member, "one-more").await;
}

/// A full queue for scans is an answer that a client waits for, over this route and over the tools.
#[tokio::test]
async fn a_draft_that_finds_the_queue_for_scans_full_is_asked_to_come_again() {
    let place = Place::new().await;
    let (world, own) = (&place.desk.world, place.desk.acme.id);
    // All that may be scanned at once, and all that may wait for it.
    let mut waiting: Vec<_> = (0..100)
        .map(|_| Box::pin(world.app.enter_scan(&own)))
        .collect();
    let mut scans = Vec::new();
    for scan in &mut waiting {
        scans.extend(timeout(Duration::ZERO, scan).await);
    }
    let refused = propose_skill(world, &place.member, "acme", "one").await;
    assert_eq!(refused.short(), "503 unavailable");
    assert_eq!(refused.header("retry-after"), "1");
    let skill = "---\nname: one\ndescription: Does the work well.\n---\nDo it.\n";
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "propose_skill", "arguments": { "skill_md": skill } },
    });
    let body = Some(("application/json", call.to_string().into_bytes()));
    let refused = place
        .desk
        .send(&place.member, "POST", "/mcp", body, &[])
        .await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.header("retry-after"), "1");
    drop((waiting, scans));
    place.propose(&place.member, "one").await;
}

/// Requests with large bodies that wait for a scan hold no place for such a body: an owner can upload
/// meanwhile.
#[tokio::test]
async fn a_draft_that_waits_for_a_scan_leaves_the_places_for_bodies() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let mut scans = Vec::new();
    for other in 1..=16 {
        let other = NamespaceId::from_parts(1_795_219_200_000, other);
        // Fails without a wait once all turns are taken.
        scans.extend(timeout(Duration::ZERO, world.app.enter_scan(&other)).await);
    }
    // As many as one namespace has places.
    let bodies = ["one", "two", "three"].map(|name| {
        let text = "Do it.\n".repeat(20_000);
        let skill = format!("---\nname: {name}\ndescription: Does the work well.\n---\n{text}");
        json!({ "skill_md": skill }).to_string().into_bytes()
    });
    let size: usize = bodies.iter().map(Vec::len).sum();
    let [one, two, three] = bodies.map(|body| {
        let body = Some(("application/json", body));
        let path = "/admin/vaults/acme/drafts?kind=propose";
        place.desk.send(&place.member, "POST", path, body, &[])
    });
    let mut drafts = Box::pin(async move { tokio::join!(one, two, three) });
    let wait = async {
        while world.app.waiting_scan_bytes() < size {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answers = &mut drafts => panic!("their bodies do not count among those that wait: {answers:?}"),
        () = wait => {}
    }
    let bytes = vec![b'x'; 100_000];
    let path = format!("/admin/vaults/acme/objects/bundles/{}", Digest::of(&bytes));
    let body = Some(("application/octet-stream", bytes));
    let owner = &place.desk.owner;
    // Without a place it would end with 503 after ten seconds.
    let upload = place.desk.send(owner, "PUT", &path, body, &[]).await;
    assert_eq!(upload.short(), "201");
    drop(scans);
    let (one, two, three) = drafts.await;
    for answer in [one, two, three] {
        assert_eq!(answer.short(), "201");
    }
}

/// The places that all share can be taken up; an author's own four cannot.
#[tokio::test]
async fn an_author_has_four_places_whatever_the_others_have() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let namespace = place.desk.acme.id;
    let shared = vault_service::model::draft::draft_queue_key(&namespace);
    crate::common::put(
        &world.app,
        shared.clone(),
        &serde_json::json!({ "pending": 100 }),
    )
    .await;
    let fay = place.add(FAY, Role::Publisher).await;
    for token in [&place.member, &fay] {
        for n in 0..5 {
            let answer = propose_skill(world, token, "acme", &format!("skill-{n}")).await;
            let wanted = if n < 4 { "201" } else { "409 draft_queue_full" };
            assert_eq!(answer.short(), wanted);
        }
    }
    // An own place is given back as one.
    let id = place.ids(&place.member, "").await.remove(0);
    place.withdraw(&place.member, &id).await;
    place.propose(&place.member, "again").await;
    let left: serde_json::Value = crate::common::read(&world.app, &shared).await;
    assert_eq!(left["pending"], 100);
}
