//! Requests of people who want to publish with a key: proven, one for each key, and for owners
//! alone.

use serde_json::{Value, json};
use vault_format::dsse::Envelope;
use vault_format::keys::SecretKey;
use vault_format::root::{KeyName, KeyRequest, VaultId};
use vault_service::model::draft;
use vault_service::model::namespace::{Kind, Subscription};
use vault_service::model::user::Role;

use super::{DAN, Place};
use crate::admin::desk_of;
use crate::team::{hand_in, id_of};

fn bobs() -> SecretKey {
    SecretKey::from_seed([60; 32])
}

impl Place {
    fn request(&self, key: &SecretKey, name: &str) -> Vec<u8> {
        self.team.request(&self.desk.world, key, name)
    }
}

#[tokio::test]
async fn an_owner_reads_whose_key_asks_to_publish() {
    let place = Place::new().await;
    let bytes = place.request(&bobs(), "bob, laptop");
    let asked = place
        .hand_in(&place.member, "key_request", bytes.clone())
        .await;
    assert_eq!(asked.status, 201, "{asked:?}");
    let id = id_of(&asked);
    let mut item = place.draft(&id).await;
    item["id"] = "[id]".into();
    item["submitted_by"]["user_id"] = "[user]".into();
    item["submitted_by"]["client_id"] = "[client]".into();
    insta::assert_json_snapshot!(item, @r#"
    {
      "base_bundle_hash": null,
      "changed_at": "2026-11-21T02:00:10Z",
      "expires_at": null,
      "flags": 0,
      "id": "[id]",
      "key": {
        "fingerprint": "pub:t6tm-y2vg-6jqq-gtpa-efsf-tqrw-ihqk-dclx",
        "name": "bob, laptop",
        "public_key": "VSb3QpQXEbO8UwukT_b22rDwq3Gvgy9Bp_47n9rtnGA"
      },
      "kind": "key_request",
      "name": null,
      "proposal": null,
      "reason": null,
      "release": null,
      "sha256": "d0898c85f01795c2bfc09b6ac87a19ca08873343d397291f87e2526fd3eb070b",
      "size": 541,
      "state": "pending",
      "submitted_at": "2026-11-21T02:00:10Z",
      "submitted_by": {
        "client_id": "[client]",
        "email": "bob@example.org",
        "user_id": "[user]"
      }
    }
    "#);
    assert_eq!(&place.read(&place.desk.owner, &id).await.body[..], bytes);
    // The same again waits already; the author may withdraw it.
    let again = place.hand_in(&place.member, "key_request", bytes).await;
    assert_eq!((again.status.as_u16(), id_of(&again)), (200, id.clone()));
    assert_eq!(place.desk.count("draft.create done").await, 1);
    assert_eq!(place.withdraw(&place.member, &id).await.short(), "200");
}

#[tokio::test]
async fn what_no_key_of_this_vault_s_applicant_has_signed_is_refused() {
    let place = Place::new().await;
    let good = place.request(&bobs(), "bob");
    let (world, slug) = (&place.desk.world, "acme".parse().unwrap());
    let name: KeyName = "bob".parse().unwrap();
    let now = world.now();
    let other_vault = VaultId::derive(&vault_format::hash::Digest::of(b"other"));
    let for_vault = KeyRequest::sign(other_vault, slug, name.clone(), now, &bobs()).unwrap();
    let own = place.team.chain().vault_id();
    let for_slug = KeyRequest::sign(own, "other".parse().unwrap(), name, now, &bobs()).unwrap();
    let envelope = Envelope::parse(&good).unwrap();
    let stranger = SecretKey::from_seed([61; 32]);
    let forged = Envelope::sign(envelope.payload_type(), envelope.payload(), &[&stranger]);
    let mut changed = String::from_utf8(good.clone()).unwrap();
    changed.insert(1, ' ');
    changed = changed.replacen("\"sig\":\"", "\"sig\":\"A", 1);
    for (bytes, wanted) in [
        (for_vault, "422 key_request_invalid"),
        (for_slug, "422 key_request_invalid"),
        (forged.to_bytes(), "422 key_request_invalid"),
        (changed.into_bytes(), "422 key_request_invalid"),
        (b"{}".to_vec(), "422 key_request_invalid"),
        (Vec::new(), "422 key_request_invalid"),
        (vec![b' '; 4097], "413 body_too_large"),
    ] {
        let answer = place.hand_in(&place.member, "key_request", bytes).await;
        assert_eq!(answer.short(), wanted);
    }
    let path = format!("{}?kind=key_request", crate::team::drafts("acme"));
    let body = Some(("application/json", good));
    let answer = place
        .desk
        .send(&place.member, "POST", &path, body, &[])
        .await;
    assert_eq!(answer.short(), "415 media_type");
    assert!(place.ids(&place.desk.owner, "state=all").await.is_empty());
}

/// Without a release there is no vault to ask into, and a vault that signs for itself has no
/// publishers.
#[tokio::test]
async fn a_vault_without_publishers_takes_no_key_requests() {
    let place = Place::unpublished().await;
    let bytes = place.request(&bobs(), "bob");
    let answer = place
        .hand_in(&place.member, "key_request", bytes.clone())
        .await;
    assert_eq!(answer.short(), "404 catalog_not_published");
    let own = desk_of(Kind::SelfSigned, |_| {}).await;
    let answer = hand_in(&own.world, &own.owner, "acme", "key_request", bytes.clone()).await;
    assert_eq!(answer.short(), "409 namespace_self_signed");
    let answer = hand_in(&own.world, &own.owner, "acme", "release", bytes).await;
    assert_eq!(answer.short(), "409 namespace_self_signed");
}

#[tokio::test]
async fn a_newer_request_of_a_key_takes_the_place_of_the_one_before() {
    let place = Place::new().await;
    let first = place
        .hand_in(&place.member, "key_request", place.request(&bobs(), "bob"))
        .await;
    let newer = place.request(&bobs(), "bob, laptop");
    let second = place
        .hand_in(&place.member, "key_request", newer.clone())
        .await;
    assert_eq!(second.status, 201);
    assert_eq!(place.state(&id_of(&first)).await, "withdrawn");
    assert_eq!(place.ids(&place.desk.owner, "").await, [id_of(&second)]);
    // Somebody else does not take it over, even with the bytes that the key has signed.
    let dan = place.add(DAN, Role::Member).await;
    let copied = place.hand_in(&dan, "key_request", newer).await;
    assert_eq!(copied.short(), "409 key_requested");
    // Once it has ended, the key may ask through anybody.
    place
        .decline(&place.desk.owner, &id_of(&second), "Not you.")
        .await;
    let asked = place
        .hand_in(&dan, "key_request", place.request(&bobs(), "bob"))
        .await;
    assert_eq!(asked.status, 201);
}

#[tokio::test]
async fn only_an_owner_decides_on_a_key() {
    let place = Place::new().await;
    let id = id_of(
        &place
            .hand_in(&place.member, "key_request", place.request(&bobs(), "bob"))
            .await,
    );
    let release = json!({ "release": 1 });
    let answer = place.accept(&place.publisher, &id, release.clone()).await;
    assert_eq!(
        answer.short(),
        "404 draft_not_found",
        "it is not theirs to see"
    );
    let own = place.request(&SecretKey::from_seed([62; 32]), "cy");
    let own = id_of(&place.hand_in(&place.publisher, "key_request", own).await);
    for answer in [
        place.accept(&place.publisher, &own, release.clone()).await,
        place.decline(&place.publisher, &own, "no").await,
    ] {
        assert_eq!(answer.short(), "403 owner_required");
    }
    let owner = place.desk.owner.clone();
    let accepted = place.accept(&owner, &id, release).await;
    assert_eq!(accepted.json()["release"], 1);
    // Root versions alone need no release of their own.
    let accepted = place.accept(&owner, &own, json!({ "release": 0 })).await;
    assert_eq!(
        (&accepted.json()["state"], &accepted.json()["release"]),
        (&json!("accepted"), &Value::Null)
    );
    place
        .desk
        .world
        .change("acme", |namespace| {
            namespace.subscription = Subscription::Lapsed;
        })
        .await;
    let asked = place
        .hand_in(&place.member, "key_request", place.request(&bobs(), "bob"))
        .await;
    assert_eq!(asked.status, 201, "it costs nobody anything");
}

/// One person's keys take four places, so that others still find one.
#[tokio::test]
async fn a_member_with_many_keys_leaves_room_for_others() {
    let place = Place::new().await;
    let key = |n: u8| SecretKey::from_seed([n; 32]);
    for n in 0..5 {
        let bytes = place.request(&key(120 + n), &format!("key {n}"));
        let answer = place.hand_in(&place.member, "key_request", bytes).await;
        let wanted = if n < 4 { "201" } else { "409 draft_queue_full" };
        assert_eq!(answer.short(), wanted);
    }
    let dan = place.add(DAN, Role::Member).await;
    let bytes = place.request(&key(130), "dan");
    let asked = place.hand_in(&dan, "key_request", bytes).await;
    assert_eq!(asked.status, 201);
    // An ended one makes room.
    let first = place.ids(&place.member, "").await.remove(0);
    place.withdraw(&place.member, &first).await;
    let bytes = place.request(&key(131), "one more");
    assert_eq!(
        place
            .hand_in(&place.member, "key_request", bytes)
            .await
            .status,
        201
    );
    // Forty are the most of a vault.
    let count = draft::draft_queue_key(&place.desk.acme.id).partition;
    let all = vault_store::records::RecordKey::new(count, "key_request");
    crate::common::put(&place.desk.world.app, all, &json!({ "open": 40 })).await;
    let bytes = place.request(&key(132), "late");
    assert_eq!(
        place.hand_in(&dan, "key_request", bytes).await.short(),
        "409 draft_queue_full"
    );
}
