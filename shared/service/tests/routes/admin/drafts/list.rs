//! `GET …/drafts`: filters, pages, counts, and how long ended drafts are listed.

use serde_json::json;
use vault_service::model::user::Scopes;

use super::{BOB, Place};
use crate::admin::{ADA, token};
use crate::team::drafts;

const DAY: i64 = 24 * 3600;

#[tokio::test]
async fn drafts_are_listed_by_state_and_kind_oldest_first() {
    let place = Place::new().await;
    let (owner, member) = (place.desk.owner.clone(), place.member.clone());
    let mut ids = Vec::new();
    for name in ["one", "two", "three", "four", "five"] {
        place.desk.world.clock.advance(1);
        ids.push(place.propose(&member, name).await);
    }
    place.desk.world.clock.advance(1);
    let body = json!({ "source": "git", "identifier": "acme/skills/notes" });
    let install = place.change(&member, "install", &body).await;
    ids.push(crate::team::id_of(&install));
    place.decline(&owner, &ids[1], "no").await;
    place.withdraw(&member, &ids[3]).await;
    place.accept(&owner, &ids[4], json!({ "release": 1 })).await;
    let of =
        |wanted: &[usize]| -> Vec<String> { wanted.iter().map(|at| ids[*at].clone()).collect() };
    for (query, wanted) in [
        ("", &[0, 2, 5][..]),
        ("state=pending", &[0, 2, 5]),
        ("state=pending&kind=propose", &[0, 2]),
        ("state=all", &[0, 1, 2, 3, 4, 5]),
        ("state=all&kind=install", &[5]),
        ("state=declined", &[1]),
        ("state=withdrawn", &[3]),
        ("state=accepted", &[4]),
        ("state=outdated", &[]),
        ("kind=release", &[]),
    ] {
        assert_eq!(place.ids(&owner, query).await, of(wanted), "{query}");
        assert_eq!(place.ids(&member, query).await, of(wanted), "{query}");
        // Page by page it is the same list.
        for token in [&owner, &member] {
            let (mut paged, mut after) = (Vec::new(), String::new());
            loop {
                let page = place
                    .list(token, &format!("{query}&limit=2&after={after}"))
                    .await;
                let items = page["items"].as_array().unwrap();
                assert!(items.len() <= 2);
                paged.extend(
                    items
                        .iter()
                        .map(|item| item["id"].as_str().unwrap().to_owned()),
                );
                match page["next"].as_str() {
                    Some(next) => next.clone_into(&mut after),
                    None => break,
                }
            }
            assert_eq!(paged, of(wanted), "{query}");
        }
    }
    for bad in [
        "state=open",
        "kind=skill",
        "limit=0",
        "limit=101",
        "after=%00",
        "state=",
    ] {
        let path = format!("{}?{bad}", drafts("acme"));
        let answer = place.desk.get(&path).await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{bad}");
    }
}

/// A page reads a bounded number of records; there is more until `next` is null.
#[tokio::test]
async fn a_long_list_goes_on_behind_what_one_request_reads() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let (mut member, mut last) = (place.member.clone(), String::new());
    for at in 0..300 {
        world.clock.advance(1);
        // An author hands in 200 a day, and a token lasts as long.
        if at == 150 {
            world.clock.advance(DAY);
            member = token(world, BOB, "acme", Scopes::ALL).await;
        }
        last = place.propose(&member, &format!("skill-{at}")).await;
        if at < 299 {
            assert_eq!(place.withdraw(&member, &last).await.status, 200);
        }
    }
    let owner = token(world, ADA, "acme", Scopes::ALL).await;
    for token in [&owner, &member] {
        let (mut after, mut found, mut pages) = (String::new(), Vec::new(), 0);
        loop {
            let page = place
                .list(token, &format!("state=all&kind=propose&after={after}"))
                .await;
            let items = page["items"].as_array().unwrap().clone();
            found.extend(items.iter().map(|item| item["id"].clone()));
            pages += 1;
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => break,
            }
        }
        assert_eq!((found.len(), found.last()), (300, Some(&json!(last))));
        assert!(pages >= 3);
        let mut after = String::new();
        let waiting = loop {
            let page = place.list(token, &format!("after={after}")).await;
            if page["items"] != json!([]) {
                break page;
            }
            after = page["next"].as_str().unwrap().to_owned();
        };
        assert_eq!(waiting["items"][0]["id"], json!(last));
    }
}

#[tokio::test]
async fn a_vault_says_how_many_drafts_wait() {
    let place = Place::new().await;
    let member = place.member.clone();
    for name in ["beta", "gamma"] {
        place.propose(&member, name).await;
    }
    let key = place
        .team
        .request(&place.desk.world, place.team.key(2), "bob");
    place.hand_in(&member, "key_request", key).await;
    place.proposed(&place.publisher, "one").await;
    for token in [&place.desk.owner, &place.publisher] {
        let shown = place
            .desk
            .ask(token, "GET", "/admin/vaults/acme", None)
            .await;
        let wanted = json!({ "pending": 2, "proposals": 1, "key_requests": 1 });
        assert_eq!(shown.json()["drafts"], wanted);
    }
    // A release ends the proposal, and nothing else.
    let alpha = place.team.skill("alpha", "one");
    place.team.publish(&place.desk.world, &[alpha]).await;
    let shown = place.desk.get("/admin/vaults/acme").await.json();
    assert_eq!(
        shown["drafts"],
        json!({ "pending": 2, "proposals": 0, "key_requests": 1 })
    );
}

#[tokio::test]
async fn an_ended_draft_is_listed_for_ninety_days() {
    let place = Place::new().await;
    let id = place.propose(&place.member, "beta").await;
    place.withdraw(&place.member, &id).await;
    let (app, clock) = (&place.desk.world.app, &place.desk.world.clock);
    let namespace = place.desk.acme.id;
    let listed = async || {
        use vault_service::model::draft;
        let mut found = 0;
        for partition in [
            draft::ended_partition(&namespace),
            draft::authored_partition(&namespace),
        ] {
            found += app
                .records
                .list_page(&partition, "", None, 10)
                .await
                .unwrap()
                .len();
        }
        found
    };
    clock.advance(90 * DAY - 1);
    assert_eq!(listed().await, 2);
    clock.advance(1);
    assert_eq!(listed().await, 0);
}
