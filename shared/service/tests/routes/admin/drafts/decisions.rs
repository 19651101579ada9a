//! Accepting, declining and withdrawing: each once, by whoever may, and in the log.

use serde_json::json;
use vault_service::model::draft;
use vault_service::model::namespace::Namespace;

use super::{Place, propose_skill};

/// `accepted` names a release that the vault has.
#[tokio::test]
async fn a_draft_is_accepted_with_the_release_that_has_it() {
    let place = Place::new().await;
    let id = place.propose(&place.member, "beta").await;
    let publisher = place.publisher.clone();
    for (body, wanted) in [
        (json!({}), "422 parameter_invalid"),
        (json!({ "release": 2 }), "422 parameter_invalid"),
        (json!({ "release": 0 }), "422 parameter_invalid"),
        (json!({ "release": "1" }), "400 json_invalid"),
        (json!({ "release": 1, "by": "x" }), "400 json_invalid"),
        (
            json!({ "release": 1, "base_bundle_hash": "0".repeat(64) }),
            "422 parameter_invalid",
        ),
        (
            json!({ "release": 1, "reason": "a\u{202e}b" }),
            "422 parameter_invalid",
        ),
    ] {
        let answer = place.accept(&publisher, &id, body.clone()).await;
        assert_eq!(answer.short(), wanted, "{body}");
    }
    assert_eq!(place.state(&id).await, "pending");
    place.desk.world.clock.advance(60);
    let accepted = place.accept(&publisher, &id, json!({ "release": 1 })).await;
    assert_eq!(accepted.short(), "200");
    let item = accepted.json();
    assert_eq!(
        (&item["state"], &item["release"]),
        (&json!("accepted"), &json!(1))
    );
    assert_eq!(item["changed_at"], "2026-11-21T02:01:10Z");
    let again = place.accept(&publisher, &id, json!({ "release": 1 })).await;
    assert_eq!(again.json(), item, "a step that is repeated");
    assert_eq!(place.desk.count("draft.accept done").await, 1);
    // Another release is another step.
    let alpha = place.team.skill("alpha", "one");
    place.team.publish(&place.desk.world, &[alpha]).await;
    let other = place.accept(&publisher, &id, json!({ "release": 2 })).await;
    assert_eq!(other.short(), "409 draft_state");
    assert_eq!(other.json()["state"], "accepted");
    for answer in [
        place.decline(&publisher, &id, "no").await,
        place.withdraw(&place.member, &id).await,
    ] {
        assert_eq!(answer.short(), "409 draft_state");
    }
}

#[tokio::test]
async fn an_author_reads_what_an_acceptance_left_out() {
    let place = Place::new().await;
    let id = place.propose(&place.member, "beta").await;
    let publisher = place.publisher.clone();
    let lacks = json!({ "release": 1, "reason": "without .env: it looks like a secret" });
    let accepted = place.accept(&publisher, &id, lacks.clone()).await;
    assert_eq!(accepted.json()["reason"], lacks["reason"]);
}

#[tokio::test]
async fn an_author_reads_why_a_draft_was_declined() {
    let place = Place::new().await;
    let id = place.propose(&place.member, "beta").await;
    let publisher = place.publisher.clone();
    for reason in ["", " ", "a\u{202e}b", "a\nb", &"x".repeat(501)] {
        let answer = place.decline(&publisher, &id, reason).await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{reason:?}");
    }
    let reason = "We have `alpha".to_owned() + &"x".repeat(486);
    let declined = place.decline(&publisher, &id, &reason).await;
    assert_eq!(declined.json()["state"], "declined");
    let seen = place.list(&place.member, "state=declined").await;
    assert_eq!(seen["items"][0]["reason"], json!(reason));
    // Its bytes are still there for a while.
    assert_eq!(place.read(&place.member, &id).await.status, 200);
    let again = place.decline(&publisher, &id, "another reason").await;
    assert_eq!(again.json(), declined.json());
    let accepted = place.accept(&publisher, &id, json!({ "release": 1 })).await;
    assert_eq!(accepted.short(), "409 draft_state");
    assert_eq!(place.desk.count("draft.decline done").await, 1);
}

#[tokio::test]
async fn a_draft_is_withdrawn_by_its_author_or_an_owner() {
    let place = Place::new().await;
    let mine = place.propose(&place.member, "beta").await;
    let other = place.propose(&place.member, "gamma").await;
    let by_publisher = place.withdraw(&place.publisher, &mine).await;
    assert_eq!(by_publisher.short(), "403 owner_required");
    let withdrawn = place.withdraw(&place.member, &mine).await;
    assert_eq!(withdrawn.json()["state"], "withdrawn");
    assert_eq!(place.withdraw(&place.member, &mine).await.short(), "200");
    assert_eq!(
        place.withdraw(&place.desk.owner, &other).await.short(),
        "200"
    );
    assert_eq!(place.desk.count("draft.withdraw done").await, 2);
    assert!(place.ids(&place.desk.owner, "").await.is_empty());
    // A member decides on nothing, not even on a draft of their own.
    let id = place.propose(&place.member, "beta").await;
    let accepted = place
        .accept(&place.member, &id, json!({ "release": 1 }))
        .await;
    assert_eq!(accepted.short(), "403 publisher_required");
    let declined = place.decline(&place.member, &id, "no").await;
    assert_eq!(declined.short(), "403 publisher_required");
}

#[tokio::test]
async fn every_step_is_in_the_log_with_what_it_was_about() {
    let place = Place::new().await;
    let clock = &place.desk.world.clock;
    clock.advance(1);
    let id = place.propose(&place.member, "beta").await;
    clock.advance(1);
    place.decline(&place.publisher, &id, "no").await;
    clock.advance(1);
    place.decline(&place.member, &id, "no").await;
    let entries = place.desk.entries(&place.desk.acme).await;
    let ours: Vec<_> = entries
        .iter()
        .filter(|entry| entry.action.starts_with("draft."))
        .collect();
    let short: Vec<_> = ours
        .iter()
        .map(|entry| format!("{} {}", entry.action, entry.outcome))
        .collect();
    assert_eq!(
        short,
        [
            "draft.create done",
            "draft.decline done",
            "draft.decline publisher_required"
        ]
    );
    assert_eq!(ours[0].target.as_deref(), Some(id.as_str()));
    assert_eq!(ours[0].after.as_ref().unwrap()["name"], "beta");
    assert_eq!(ours[1].target.as_deref(), Some(id.as_str()));
    assert_eq!(ours[1].after.as_ref().unwrap()["state"], "declined");
    assert!(ours[1].client.is_some() && ours[1].source.is_some());
}

/// What an earlier version of vault kept is listed, decided on and counted out like any other.
#[tokio::test]
async fn a_draft_of_an_earlier_version_is_decided_on() {
    let place = Place::new().await;
    let (app, id) = (&place.desk.world.app, "01JD5W3E7M0S9Q2H6V8X4N5PAT");
    let namespace = place.desk.acme.id;
    let author = place.desk.id_of(super::BOB).await;
    let earlier = json!({
        "id": id, "kind": "remove", "name": "alpha", "base_bundle_hash": null, "sha256": "0".repeat(64),
        "size": 10, "submitted_at": "2026-11-21T04:00:00Z",
        "submitted_by": { "user_id": author, "client_id": null }, "flags": 0, "state": "pending",
        "changed_at": "2026-11-21T04:00:00Z", "release": null, "reason": null,
    });
    let draft_id = id.parse().unwrap();
    crate::common::put(app, draft::draft_key(&namespace, &draft_id), &earlier).await;
    // Then an author had twenty shared places.
    let full = json!({ "pending": 20 });
    for key in [
        draft::draft_queue_key(&namespace),
        draft::author_queue_key(&namespace, &author),
    ] {
        crate::common::put(app, key, &full).await;
    }
    assert_eq!(place.ids(&place.desk.owner, "").await, [id]);
    let declined = place.decline(&place.desk.owner, id, "no").await;
    assert_eq!(declined.json()["state"], "declined", "{declined:?}");
    for key in [
        draft::draft_queue_key(&namespace),
        draft::author_queue_key(&namespace, &author),
    ] {
        let queue: serde_json::Value = crate::common::read(app, &key).await;
        assert_eq!(queue["pending"], 19);
    }
}

#[tokio::test]
async fn drafts_beyond_the_quota_are_refused_and_a_decided_one_frees_its_place() {
    let place = Place::new().await;
    let limit = |drafts| move |namespace: &mut Namespace| namespace.quota.drafts = Some(drafts);
    place.desk.world.change("acme", limit(2)).await;
    let first = place.propose(&place.member, "beta").await;
    let second = place.propose(&place.member, "gamma").await;
    let propose =
        async |name: &str| propose_skill(&place.desk.world, &place.member, "acme", name).await;
    let full = propose("delta").await;
    assert_eq!(full.short(), "409 draft_queue_full");
    let detail = full.json()["detail"].to_string();
    assert!(detail.contains("2 waiting drafts of at most 2"), "{detail}");
    let shown = place.desk.get("/admin/vaults/acme").await.json();
    assert_eq!(
        (&shown["quota"]["drafts"], &shown["usage"]["drafts"]),
        (&json!(2), &json!(2))
    );
    let publisher = place.publisher.clone();
    assert_eq!(place.decline(&publisher, &first, "no").await.short(), "200");
    assert_eq!(propose("delta").await.status, 201);
    assert_eq!(propose("epsilon").await.status, 409);
    // A lower quota leaves what waits, and what waits can be decided.
    place.desk.world.change("acme", limit(1)).await;
    let accepted = place
        .accept(&publisher, &second, json!({ "release": 1 }))
        .await;
    assert_eq!(accepted.short(), "200");
    assert_eq!(propose("epsilon").await.status, 409);
    place.desk.world.change("acme", limit(0)).await;
    assert_eq!(propose("epsilon").await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_drafts_for_the_last_place_one_passes() {
    for _ in 0..20 {
        let place = Place::new().await;
        let limit = |namespace: &mut Namespace| namespace.quota.drafts = Some(1);
        place.desk.world.change("acme", limit).await;
        let propose =
            async |name: &str| propose_skill(&place.desk.world, &place.member, "acme", name).await;
        let (one, other) = tokio::join!(propose("beta"), propose("gamma"));
        let mut answers = [one.short(), other.short()];
        answers.sort();
        assert_eq!(answers, ["201", "409 draft_queue_full"]);
    }
}
