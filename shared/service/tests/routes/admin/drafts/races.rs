//! Steps at the same moment: one of two that contradict each other is first, and what is left is
//! one of the two orders.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use vault_service::model::draft::{self, DraftRecord, Ending, State};
use vault_store::records::RecordKey;

use super::{BOB, Place};
use crate::support::{Answer, bearer};
use crate::team::{at_once, drafts, id_of};

const ROUNDS: usize = 12;

impl Place {
    /// How many drafts the author's counter holds, own and shared places together.
    async fn counted(&self, email: &str) -> i64 {
        let author = self.desk.id_of(email).await;
        let key = draft::author_queue_key(&self.desk.acme.id, &author);
        let queue: draft::Queue = crate::common::read(&self.desk.world.app, &key).await;
        queue.own + queue.pending
    }

    async fn at_once<const N: usize>(&self, requests: [Request<Body>; N]) -> [Answer; N] {
        let answers = at_once(&self.desk.world, Vec::from(requests)).await;
        answers.try_into().unwrap()
    }
}

fn accepted(token: &str, id: &str) -> Request<Body> {
    let path = format!("{}/{id}/accepted", drafts("acme"));
    let body = ("application/json", br#"{"release":1}"#.to_vec());
    bearer(token, "POST", &path, Some(body), &[])
}

fn withdrawn(token: &str, id: &str) -> Request<Body> {
    let path = format!("{}/{id}", drafts("acme"));
    bearer(token, "DELETE", &path, None, &[])
}

fn proposed(token: &str, file: Vec<u8>) -> Request<Body> {
    let path = format!("{}?kind=release", drafts("acme"));
    let body = ("application/octet-stream", file);
    bearer(token, "POST", &path, Some(body), &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_accept_at_once_accept_once() {
    let place = Place::new().await;
    for round in 0..ROUNDS {
        let name = format!("skill-{round}");
        let id = place.propose(&place.member, &name).await;
        let both = [
            accepted(&place.desk.owner, &id),
            accepted(&place.publisher, &id),
        ];
        let [one, other] = place.at_once(both).await;
        assert_eq!(
            (one.short().as_str(), other.short().as_str()),
            ("200", "200")
        );
        assert_eq!(one.json(), other.json());
        assert_eq!(place.desk.count("draft.accept done").await, round + 1);
    }
    assert_eq!(place.counted(BOB).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_accepting_and_withdrawing_one_is_first() {
    let place = Place::new().await;
    for round in 0..ROUNDS {
        let name = format!("skill-{round}");
        let id = place.propose(&place.member, &name).await;
        let both = [
            accepted(&place.publisher, &id),
            withdrawn(&place.member, &id),
        ];
        let [one, other] = place.at_once(both).await;
        let state = match (one.short().as_str(), other.short().as_str()) {
            ("200", "409 draft_state") => "accepted",
            ("409 draft_state", "200") => "withdrawn",
            both => panic!("{both:?}"),
        };
        assert_eq!(place.state(&id).await, state);
    }
    assert_eq!(place.counted(BOB).await, 0);
}

/// The same, with the other step exactly between reading and writing.
#[tokio::test]
async fn a_step_on_a_draft_that_ended_meanwhile_is_refused() {
    let place = Place::new().await;
    let id = place.propose(&place.member, "beta").await;
    let namespace = place.desk.acme.id;
    let key = draft::draft_key(&namespace, &id.parse().unwrap());
    let records = &place.desk.world.app.records;
    let open = records.get_one(&key).await.unwrap().unwrap();
    let record: DraftRecord = open.read().unwrap();
    let ended = record.into_ended(&Ending {
        state: State::Withdrawn,
        at: place.desk.world.now(),
        release: None,
        reason: None,
    });
    let writes = ended
        .ending_writes(&namespace, open.revision, false)
        .unwrap();
    place.desk.commits.write_before_next(writes);
    let answer = place
        .accept(&place.publisher, &id, json!({ "release": 1 }))
        .await;
    assert_eq!(answer.short(), "409 draft_state");
    assert_eq!(answer.json()["state"], "withdrawn");
    assert_eq!(place.counted(BOB).await, 0);
}

/// A lost commit is tried again on what the faster writer left.
#[tokio::test]
async fn a_step_that_other_writers_get_in_the_way_of_is_tried_again() {
    let place = Place::new().await;
    let id = place.propose(&place.member, "beta").await;
    place.desk.commits.interfere(3);
    let accepted = place
        .accept(&place.publisher, &id, json!({ "release": 1 }))
        .await;
    assert_eq!(accepted.short(), "200");
    let file = place.file("one", &[0]).await;
    place.desk.commits.interfere(3);
    let proposed = place.hand_in(&place.publisher, "release", file).await;
    assert_eq!(proposed.status, 201);
    place.desk.commits.interfere(1000);
    let given_up = place.withdraw(&place.publisher, &id_of(&proposed)).await;
    assert_eq!(given_up.short(), "503 unavailable", "never a refusal");
    place.desk.commits.interfere(0);
    assert_eq!(place.state(&id_of(&proposed)).await, "pending");
}

/// A release and a proposal at once: another payload is refused or outdated, the same one accepted
/// or no longer needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_that_races_a_release_ends_as_what_it_is() {
    let place = Place::new().await;
    let world = &place.desk.world;
    for round in 0..ROUNDS {
        world.clock.advance(1);
        let beta = place.team.skill("beta", &format!("complete {round}"));
        let catalog = place.team.next(world, 1, &[beta]).await;
        let complete = place.team.file(&catalog, &[1, 2]);
        let is_same = round % 2 == 0;
        let file = if is_same {
            place.team.file(&catalog, &[1])
        } else {
            place.file(&format!("other {round}"), &[0]).await
        };
        let tag = world.etag("acme").await;
        let body = ("application/octet-stream", complete);
        let headers = [("if-match", tag.as_str())];
        let path = "/admin/vaults/acme/catalog";
        let publish = bearer(&place.desk.owner, "PUT", path, Some(body), &headers);
        let both = [publish, proposed(&place.publisher, file)];
        let [published, proposed] = place.at_once(both).await;
        assert_eq!(published.status, 200, "{published:?}");
        match proposed.status.as_u16() {
            201 => {
                let wanted = if is_same { "accepted" } else { "outdated" };
                assert_eq!(place.state(&id_of(&proposed)).await, wanted);
            }
            _ => assert_eq!(proposed.short(), "409 proposal_outdated"),
        }
        assert!(place.ids(&place.publisher, "").await.is_empty());
    }
}

/// The release comes between the judgement of a proposal and its commit.
#[tokio::test]
async fn a_proposal_that_a_release_overtakes_is_kept_and_outdated() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let file = place.file("one", &[0]).await;
    let mut namespace = world.read_namespace("acme").await;
    let key = vault_service::model::namespace::namespace_key(&namespace.slug);
    let revision = world
        .app
        .records
        .get_one(&key)
        .await
        .unwrap()
        .unwrap()
        .revision;
    let current = namespace.current.as_mut().unwrap();
    current.payload_sha256 = vault_format::hash::Digest::of(b"another release");
    let writes = vec![namespace.update_write(revision).unwrap()];
    place.desk.commits.write_before_next(writes);
    let answer = place.hand_in(&place.publisher, "release", file).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(place.state(&id_of(&answer)).await, "outdated");
}

/// Two proposals of one publisher at once: one waits, and the place is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_proposals_of_one_publisher_one_waits() {
    let place = Place::new().await;
    for round in 0..ROUNDS {
        let both = [
            proposed(
                &place.publisher,
                place.file(&format!("{round} one"), &[0]).await,
            ),
            proposed(
                &place.publisher,
                place.file(&format!("{round} two"), &[0]).await,
            ),
        ];
        let [one, other] = place.at_once(both).await;
        assert_eq!((one.status.as_u16(), other.status.as_u16()), (201, 201));
        let waiting = place.ids(&place.publisher, "kind=release").await;
        assert_eq!(waiting.len(), 1);
        let counters = draft::draft_queue_key(&place.desk.acme.id).partition;
        let key = RecordKey::new(counters, "release");
        let open: Value = crate::common::read(&place.desk.world.app, &key).await;
        assert_eq!(open["open"], 1);
    }
}
