//! Releases that lack signatures: what is taken in, and what becomes of it without anybody's step.

use serde_json::{Value, json};
use vault_format::catalog::ReleaseRef;
use vault_format::hash::Digest;
use vault_service::model::draft;
use vault_service::model::namespace::{Namespace, Pinned, Subscription};
use vault_service::model::user::Role;
use vault_store::records::RecordKey;

use super::{FAY, Place, propose_skill};
use crate::common::partitions::run_work;
use crate::team::id_of;

const DAY: i64 = 24 * 3600;

#[tokio::test]
async fn a_proposal_waits_with_its_signatures() {
    let place = Place::new().await;
    let file = place.file("one", &[0]).await;
    let answer = place
        .hand_in(&place.publisher, "release", file.clone())
        .await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = id_of(&answer);
    let item = place.draft(&id).await;
    assert_eq!(item["proposal"]["release"], 2);
    assert_eq!(item["proposal"]["root_version"], 1);
    assert_eq!(
        item["proposal"]["signers"],
        json!([place.team.key(0).public()])
    );
    assert_eq!(item["expires_at"], "2026-12-05T02:00:10Z");
    assert_eq!(
        (&item["name"], &item["key"], &item["release"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(&place.read(&place.publisher, &id).await.body[..], file);
    // The same again, in the same signatures, is the same draft.
    let again = place
        .hand_in(&place.publisher, "release", file.clone())
        .await;
    assert_eq!((again.status.as_u16(), id_of(&again)), (200, id.clone()));
    // Of another publisher it is another one: each takes back their own.
    let fay = place.add(FAY, Role::Publisher).await;
    let theirs = place.hand_in(&fay, "release", file).await;
    assert_eq!(theirs.status, 201);
    assert_ne!(id_of(&theirs), id);
}

#[tokio::test]
async fn a_file_that_is_no_proposal_is_refused() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let beta = place.team.skill("beta", "one");
    let catalog = place.team.next(world, 0, &[beta]).await;
    let team = &place.team;
    let changed = |change: &dyn Fn(&mut vault_format::catalog::Catalog)| {
        let mut catalog = catalog.clone();
        change(&mut catalog);
        team.file(&catalog, &[0])
    };
    let mut unsigned: Value = serde_json::from_slice(&team.file(&catalog, &[0])).unwrap();
    unsigned["signatures"][0]["sig"] = format!("{}==", "A".repeat(86)).into();
    let stranger = crate::team::Team::new("acme", 4, 2);
    let of_current = {
        let namespace = world.read_namespace("acme").await;
        let current = namespace.current.as_ref().unwrap();
        let key = namespace.object_key(vault_store::objects::Class::Catalogs, current.sha256);
        world
            .app
            .objects
            .read_object(&key)
            .await
            .unwrap()
            .unwrap()
            .to_vec()
    };
    let missing = Digest::of(b"nobody has it");
    for (bytes, wanted) in [
        (team.file(&catalog, &[0, 1]), "422 proposal_complete"),
        (team.file(&catalog, &[0, 1, 2]), "422 proposal_complete"),
        (unsigned.to_string().into_bytes(), "422 signatures_missing"),
        (of_current, "409 proposal_outdated"),
        (
            stranger.file(&stranger.next(world, 3, &[]).await, &[3]),
            "422 vault_changed",
        ),
        (
            changed(&|catalog| catalog.release = 1),
            "409 proposal_outdated",
        ),
        (
            changed(&|catalog| {
                catalog.previous = Some(ReleaseRef {
                    release: 1,
                    payload_sha256: missing,
                });
            }),
            "422 catalog_previous",
        ),
        (
            changed(&|catalog| catalog.slug = "other".parse().unwrap()),
            "422 catalog_slug",
        ),
        (
            changed(&|catalog| catalog.audience = vec!["https://evil.example/v/acme/".to_owned()]),
            "422 catalog_audience",
        ),
        (
            changed(&|catalog| {
                catalog.issued_at = catalog.issued_at.plus_days(-100);
                catalog.expires_at = catalog.issued_at.plus_days(90);
            }),
            "422 release_expired",
        ),
        (
            changed(&|catalog| catalog.skills[0].bundle_hash = missing),
            "409 objects_missing",
        ),
        (b"{}".to_vec(), "422 catalog_schema"),
        (vec![b' '; 4 * 1024 * 1024 + 1], "413 body_too_large"),
    ] {
        let answer = place.hand_in(&place.publisher, "release", bytes).await;
        assert_eq!(answer.short(), wanted, "{answer:?}");
        if wanted == "409 objects_missing" {
            assert_eq!(answer.json()["missing"], json!([missing]));
        }
    }
    let good = team.file(&catalog, &[0]);
    let member = place.hand_in(&place.member, "release", good.clone()).await;
    assert_eq!(member.short(), "403 publisher_required");
    let path = format!("{}?kind=release", crate::team::drafts("acme"));
    let body = Some(("application/json", good.clone()));
    let answer = place
        .desk
        .send(&place.publisher, "POST", &path, body, &[])
        .await;
    assert_eq!(answer.short(), "415 media_type");
    world
        .use_allowances(&world.read_namespace("acme").await, 2)
        .await;
    let answer = place
        .hand_in(&place.publisher, "release", good.clone())
        .await;
    assert_eq!(answer.short(), "413 quota_exceeded");
    world
        .change("acme", |namespace| {
            namespace.subscription = Subscription::Lapsed;
        })
        .await;
    let answer = place.hand_in(&place.publisher, "release", good).await;
    assert_eq!(answer.short(), "402 subscription_lapsed");
    assert!(place.ids(&place.desk.owner, "state=all").await.is_empty());
}

#[tokio::test]
async fn drafts_at_their_quota_keep_no_proposal_out() {
    let place = Place::new().await;
    let limit = |namespace: &mut Namespace| namespace.quota.drafts = Some(1);
    place.desk.world.change("acme", limit).await;
    place.propose(&place.publisher, "beta").await;
    let full = propose_skill(&place.desk.world, &place.publisher, "acme", "gamma").await;
    assert_eq!(full.short(), "409 draft_queue_full");
    place.proposed(&place.publisher, "one").await;
}

#[tokio::test]
async fn a_newer_proposal_of_a_publisher_takes_the_place_of_the_one_before() {
    let place = Place::new().await;
    let first = place.proposed(&place.publisher, "one").await;
    place.desk.world.clock.advance(1);
    let second = place.proposed(&place.publisher, "two").await;
    let ids = place.ids(&place.desk.owner, "kind=release").await;
    assert_eq!(ids, std::slice::from_ref(&second));
    let replaced = place.draft(&first).await;
    assert_eq!(
        (&replaced["state"], &replaced["changed_at"]),
        (&json!("withdrawn"), &json!("2026-11-21T02:00:11Z"))
    );
    let log = place.desk.outcomes().await;
    let steps: Vec<_> = log.iter().filter(|it| it.starts_with("draft.")).collect();
    assert_eq!(
        steps,
        [
            "draft.create done",
            "draft.create done",
            "draft.withdraw done"
        ]
    );
    // The next signature makes another file of the same payload, by somebody else.
    let fay = place.add(FAY, Role::Publisher).await;
    let third = place.file("two", &[0]).await;
    place.hand_in(&fay, "release", third).await;
    assert_eq!(place.ids(&place.desk.owner, "kind=release").await.len(), 2);
}

/// Who reaches the threshold publishes the complete file; every proposal of the same payload is
/// accepted by that, all others are outdated.
#[tokio::test]
async fn a_release_decides_on_all_proposals() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let fay = place.add(FAY, Role::Publisher).await;
    let beta = place.team.skill("beta", "one");
    let catalog = place.team.next(world, 0, &[beta]).await;
    let one = place.team.file(&catalog, &[0]);
    let mine = id_of(
        &place
            .hand_in(&place.publisher, "release", one.clone())
            .await,
    );
    let same = id_of(&place.hand_in(&fay, "release", one).await);
    let other = place.proposed(&place.desk.owner, "other").await;
    world.clock.advance(60);
    // Nobody accepts a proposal by hand.
    let accepted = place
        .accept(&place.desk.owner, &mine, json!({ "release": 1 }))
        .await;
    assert_eq!(accepted.short(), "409 draft_state");
    assert!(accepted.json()["detail"].as_str().unwrap().contains("PUT"));
    world
        .publish("acme", place.team.file(&catalog, &[0, 1]))
        .await
        .unwrap();
    for id in [&mine, &same] {
        let draft = place.draft(id).await;
        assert_eq!(
            (&draft["state"], &draft["release"]),
            (&json!("accepted"), &json!(2))
        );
        assert_eq!(draft["changed_at"], "2026-11-21T02:01:10Z");
    }
    assert_eq!(place.state(&other).await, "outdated");
    assert!(place.ids(&place.publisher, "").await.is_empty());
    assert_eq!(
        place.ids(&place.publisher, "state=outdated").await,
        std::slice::from_ref(&other)
    );
    // Nothing more can be done to them.
    for id in [&mine, &other] {
        let declined = place.decline(&place.desk.owner, id, "no").await;
        assert_eq!(declined.short(), "409 draft_state");
        let withdrawn = place.withdraw(&place.desk.owner, id).await;
        assert_eq!(withdrawn.short(), "409 draft_state");
    }
    let again = place
        .accept(&place.desk.owner, &mine, json!({ "release": 2 }))
        .await;
    assert_eq!(again.short(), "200", "that is what it is");
    // And it stays so when the next release follows.
    place.team.publish(world, &[]).await;
    assert_eq!(place.state(&mine).await, "accepted");
    assert_eq!(place.state(&other).await, "outdated");
}

#[tokio::test]
async fn a_proposal_ends_after_fourteen_days() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let id = place.proposed(&place.publisher, "one").await;
    let state = async || {
        let draft_id = id.parse().unwrap();
        let namespace = world.read_namespace("acme").await;
        let record = world
            .app
            .records
            .get_one(&draft::draft_key(&namespace.id, &draft_id))
            .await;
        let record: draft::DraftRecord = record.unwrap().unwrap().read().unwrap();
        record.with_present_state(&namespace, None, world.now())
    };
    world.clock.advance(14 * DAY - 1);
    assert_eq!(state().await.state, draft::State::Pending);
    world.clock.advance(1);
    assert_eq!(state().await.state, draft::State::Outdated);
}

/// What the namespace has become decides; a proposal that can no longer be published says so.
#[tokio::test]
async fn a_change_of_keys_ends_proposals_of_the_keys_before() {
    for case in ["threshold raised", "publisher removed", "pin reset"] {
        let place = Place::new().await;
        let world = &place.desk.world;
        let id = place.proposed(&place.publisher, "one").await;
        let file = place.file("one", &[0]).await;
        let team = match case {
            "threshold raised" => place.team.changed(|edit| {
                edit.set_release_threshold(3);
            }),
            _ => place.team.changed(|edit| {
                edit.retire(&place.team.key(0).public()).unwrap();
            }),
        };
        if case == "pin reset" {
            world
                .change("acme", |namespace| namespace.pin = Pinned::Nothing)
                .await;
        } else {
            let namespace = world.read_namespace("acme").await;
            let current = namespace.current.unwrap();
            let key = vault_store::objects::ObjectKey::new(
                namespace.id,
                vault_store::objects::Class::Catalogs,
                current.sha256,
            );
            let bytes = world.app.objects.read_object(&key).await.unwrap().unwrap();
            let longer = vault_format::catalog::SignedCatalog::parse(&bytes).unwrap();
            let longer = longer.with_roots(team.chain()).unwrap().to_bytes();
            world.publish("acme", longer).await.unwrap();
            // The same file again is refused, too.
            let answer = place.hand_in(&place.publisher, "release", file).await;
            let wanted = match case {
                "threshold raised" => "409 proposal_outdated",
                _ => "422 signatures_missing",
            };
            assert_eq!(answer.short(), wanted, "{case}");
        }
        assert_eq!(place.state(&id).await, "outdated", "{case}");
        assert!(place.ids(&place.publisher, "").await.is_empty(), "{case}");
    }
}

/// The proposer's file may bring the root version with it that the release needs; it still waits
/// when that version is pinned first.
#[tokio::test]
async fn a_proposal_may_bring_root_versions_of_its_own() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let team = place.team.changed(|edit| {
        edit.set_release_threshold(3);
    });
    let catalog = team.next(world, 0, &[]).await;
    let answer = place
        .hand_in(&place.publisher, "release", team.file(&catalog, &[0, 1]))
        .await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = id_of(&answer);
    assert_eq!(place.draft(&id).await["proposal"]["root_version"], 2);
    let namespace = world.read_namespace("acme").await;
    let current = namespace.current.as_ref().unwrap();
    let key = namespace.object_key(vault_store::objects::Class::Catalogs, current.sha256);
    let bytes = world.app.objects.read_object(&key).await.unwrap().unwrap();
    let longer = vault_format::catalog::SignedCatalog::parse(&bytes).unwrap();
    let longer = longer.with_roots(team.chain()).unwrap().to_bytes();
    world.publish("acme", longer).await.unwrap();
    assert_eq!(place.state(&id).await, "pending");
    world
        .publish("acme", team.file(&catalog, &[0, 1, 2]))
        .await
        .unwrap();
    assert_eq!(place.state(&id).await, "accepted");
}

/// Whoever links anew has only the file: one that leaves root versions out would count for nobody.
#[tokio::test]
async fn a_proposal_carries_the_whole_chain() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let team = place.team.changed(|edit| {
        edit.set_expiry(Some("2028-01-01T00:00:00Z".parse().unwrap()));
    });
    team.publish(world, &[]).await;
    let catalog = team.next(world, 0, &[]).await;
    let whole = team.file(&catalog, &[0]);
    let mut cut: Value = serde_json::from_slice(&whole).unwrap();
    cut["roots"].as_array_mut().unwrap().pop();
    let cut = cut.to_string().into_bytes();
    let answer = place.hand_in(&place.publisher, "release", cut).await;
    assert_eq!(answer.short(), "422 root_rolled_back", "{answer:?}");
    let answer = place.hand_in(&place.publisher, "release", whole).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// The first release of a vault may be proposed, too: there is nothing that it could be compared
/// with.
#[tokio::test]
async fn a_first_release_is_proposed_and_published() {
    let place = Place::unpublished().await;
    let world = &place.desk.world;
    let catalog = place.team.next(world, 0, &[]).await;
    let proposed = place
        .hand_in(&place.publisher, "release", place.team.file(&catalog, &[0]))
        .await;
    assert_eq!(proposed.status, 201, "{proposed:?}");
    world
        .publish("acme", place.team.file(&catalog, &[0, 2]))
        .await
        .unwrap();
    assert_eq!(place.state(&id_of(&proposed)).await, "accepted");
}

#[tokio::test]
async fn publishers_decline_each_other_s_proposals() {
    let place = Place::new().await;
    let id = place.proposed(&place.desk.owner, "one").await;
    let declined = place
        .decline(&place.publisher, &id, "It lacks a test.")
        .await;
    assert_eq!(declined.json()["state"], "declined");
    // The place is free again.
    place.proposed(&place.desk.owner, "two").await;
    let id = place.proposed(&place.publisher, "three").await;
    assert_eq!(place.withdraw(&place.publisher, &id).await.short(), "200");
}

/// Background work writes down what has ended by itself, so that records, slots and places end; a
/// full list does it on the spot.
#[tokio::test]
async fn ended_proposals_make_room() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let namespace = place.desk.acme.id;
    let open = RecordKey::new(draft::draft_queue_key(&namespace).partition, "release");
    let fay = place.add(FAY, Role::Publisher).await;
    let first = place.proposed(&place.publisher, "one").await;
    place.proposed(&fay, "two").await;
    // Thirty more, of other publishers.
    crate::common::put(&world.app, open.clone(), &json!({ "open": 32 })).await;
    let owner = place.desk.owner.clone();
    let file = place.file("three", &[0]).await;
    let full = place.hand_in(&owner, "release", file.clone()).await;
    assert_eq!(full.short(), "409 draft_queue_full");
    // A publisher who has one replaces it all the same.
    place.proposed(&fay, "four").await;
    world.clock.advance(60);
    place.team.publish(world, &[]).await;
    let fourth = place.proposed(&owner, "five").await;
    let left: Value = crate::common::read(&world.app, &open).await;
    assert_eq!(left["open"], 31, "two had ended, and one came in");
    assert_eq!(place.state(&first).await, "outdated");
    place.team.publish(world, &[]).await;
    run_work(&world.app).await;
    let left: Value = crate::common::read(&world.app, &open).await;
    assert_eq!(left["open"], 30);
    let listed = world
        .app
        .records
        .list_page(&draft::drafts_partition(&namespace), "", None, 10)
        .await;
    assert!(listed.unwrap().is_empty());
    assert_eq!(place.state(&fourth).await, "outdated");
    let slot = draft::proposal_slot(&namespace, "x").partition;
    let slots = world
        .app
        .records
        .list_page(&slot, "", None, 10)
        .await
        .unwrap();
    assert!(slots.is_empty());
}
