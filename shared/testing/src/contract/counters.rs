//! The clauses (rules, one test each) for `Count`, the bounded counter of
//! [`Records`](vault_store::records::Records).

use serde_json::json;
use vault_format::time::Timestamp;

use super::{RecordsFixture, absent, document, key, number};
use vault_store::clock::Clock;
use vault_store::records::{Commit, MAX_COUNT, RecordKey, When, Write};

fn count(name: &str, by: i64, min: i64, max: i64) -> Write {
    Write::Count {
        key: key(name),
        field: "pending".to_owned(),
        by,
        min,
        max,
        expires_at: None,
    }
}

impl RecordsFixture {
    async fn value(&self, name: &str) -> serde_json::Value {
        self.get(&key(name))
            .await
            .expect("the record is there")
            .read()
            .expect("the document reads")
    }
}

/// A counter in an absent record starts at 0, and the new record holds only the counter. A step may
/// be negative.
pub async fn a_count_starts_at_zero(store: &RecordsFixture) {
    store
        .done([
            count("up", 3, 0, 20),
            count("down", -2, -5, 5),
            count("stays", 0, 0, 0),
        ])
        .await;
    assert_eq!(store.value("up").await, json!({"pending": 3}));
    assert_eq!(store.value("down").await, json!({"pending": -2}));
    assert_eq!(store.value("stays").await, json!({"pending": 0}));
}

/// The expiry of a count is that of a record which it creates. A later count does not change it.
pub async fn a_count_creates_with_the_given_expiry(store: &RecordsFixture) {
    let now = store.clock.now();
    let (minute, hour) = (now.plus_seconds(60), now.plus_seconds(3600));
    for expires_at in [minute, hour] {
        let write = Write::Count {
            key: key("window"),
            field: "hits".to_owned(),
            by: 1,
            min: 0,
            max: 9,
            expires_at: Some(expires_at),
        };
        store.done([write]).await;
        assert_eq!(
            store.get(&key("window")).await.expect("counted").expires_at,
            Some(minute)
        );
    }
    store.done([count("for ever", 1, 0, 9)]).await;
    assert_eq!(
        store
            .get(&key("for ever"))
            .await
            .expect("counted")
            .expires_at,
        None
    );
}

/// A count changes neither the other members nor the expiry of the record.
pub async fn a_count_keeps_everything_else(store: &RecordsFixture) {
    let end = store.clock.now().plus_seconds(60);
    let before = json!({"a": "\"quoted\" \\ ünï", "pending": 4, "z": {"pending": 1, "list": [1, null, true]}});
    store
        .done([Write::put_until(
            key("k"),
            document(&before),
            When::Absent,
            end,
        )])
        .await;
    store.done([count("k", 5, 0, 20)]).await;
    let after = json!({"a": "\"quoted\" \\ ünï", "pending": 9, "z": {"pending": 1, "list": [1, null, true]}});
    assert_eq!(store.value("k").await, after);
    assert_eq!(
        store.get(&key("k")).await.expect("counted").expires_at,
        Some(end)
    );
}

/// In a record without the field, a count adds it, starting at 0.
pub async fn a_count_starts_an_absent_field_at_zero(store: &RecordsFixture) {
    store.set("k", &json!({"other": 7})).await;
    store.done([count("k", 2, 0, 2)]).await;
    assert_eq!(store.value("k").await, json!({"other": 7, "pending": 2}));
}

/// A commit fails, with the record that was found, if a count would leave its bounds. The bounds
/// themselves are allowed.
pub async fn a_count_stays_within_its_bounds(store: &RecordsFixture) {
    assert_eq!(
        store.failed([count("k", 1, 2, 9)]).await,
        (0, None),
        "0 + 1 is below 2"
    );
    assert_eq!(
        store.failed([count("k", 10, 0, 9)]).await,
        (0, None),
        "0 + 10 is above 9"
    );
    assert_eq!(store.get(&key("k")).await, None);
    store.done([count("k", 9, 0, 9)]).await;
    let (index, found) = store.failed([count("k", 1, 0, 9)]).await;
    assert_eq!((index, found), (0, store.get(&key("k")).await));
    store.failed([count("k", -10, 0, 9)]).await;
    assert_eq!(store.value("k").await, json!({"pending": 9}));
    store.done([count("k", -9, 0, 9)]).await;
    assert_eq!(store.value("k").await, json!({"pending": 0}));
}

/// A field that does not hold an integer fails the condition and is not changed.
pub async fn a_count_refuses_what_is_no_integer(store: &RecordsFixture) {
    for odd in [
        json!("4"),
        json!(null),
        json!([4]),
        json!({"n": 4}),
        json!(true),
    ] {
        let before = json!({ "pending": odd });
        store.set("k", &before).await;
        let (index, found) = store.failed([count("k", 1, -9, 9)]).await;
        assert_eq!((index, found), (0, store.get(&key("k")).await), "{before}");
        assert_eq!(store.value("k").await, before);
    }
}

/// In an expired record, the count starts from the beginning; no old member remains.
pub async fn a_count_starts_anew_in_an_expired_record(store: &RecordsFixture) {
    let end = store.clock.now().plus_seconds(60);
    let old = document(&json!({"pending": 20, "old": true}));
    store
        .done([Write::put_until(key("k"), old, When::Absent, end)])
        .await;
    store.failed([count("k", 1, 0, 20)]).await;
    store.clock.advance(60);
    let next: Timestamp = store.clock.now().plus_seconds(60);
    let write = Write::Count {
        key: key("k"),
        field: "pending".to_owned(),
        by: 1,
        min: 0,
        max: 20,
        expires_at: Some(next),
    };
    store.done([write]).await;
    assert_eq!(store.value("k").await, json!({"pending": 1}));
    assert_eq!(
        store.get(&key("k")).await.expect("counted").expires_at,
        Some(next)
    );
}

/// A count changes the revision: a condition on an earlier revision no longer holds.
pub async fn a_count_raises_the_revision(store: &RecordsFixture) {
    let revision = store.put(absent("k", 1)).await;
    assert_eq!(
        store.commit([count("k", 0, 0, 1)]).await,
        Commit::Done(vec![None])
    );
    let counted = store.get(&key("k")).await.expect("counted").revision;
    assert!(counted > revision, "{counted} after {revision}");
    store
        .failed([Write::check(key("k"), When::At(revision))])
        .await;
    store
        .done([Write::check(key("k"), When::At(counted))])
        .await;
}

/// A count and a put-if-absent in one commit happen both or not at all, whichever fails.
pub async fn a_count_and_a_put_are_one_commit(store: &RecordsFixture) {
    let enrol = |name: &str| {
        let device = RecordKey::new("devices", name);
        [
            Write::put(device, number(1), When::Absent),
            count("queue", 1, 0, 2),
        ]
    };
    store.done(enrol("a")).await;
    assert_eq!(store.failed(enrol("a")).await.0, 0, "the device is there");
    assert_eq!(
        store.value("queue").await,
        json!({"pending": 1}),
        "nothing was counted"
    );
    store.done(enrol("b")).await;
    assert_eq!(store.failed(enrol("c")).await.0, 1, "the queue is full");
    assert_eq!(
        store.get(&RecordKey::new("devices", "c")).await,
        None,
        "no device without a place"
    );
    assert_eq!(store.value("queue").await, json!({"pending": 2}));
}

/// A count continues from the value that a put wrote into the field.
pub async fn a_put_can_set_what_a_count_counts(store: &RecordsFixture) {
    store.done([count("k", 5, 0, 9)]).await;
    store.set("k", &json!({"pending": 8})).await;
    store.failed([count("k", 2, 0, 9)]).await;
    store.done([count("k", 1, 0, 9)]).await;
    assert_eq!(store.value("k").await, json!({"pending": 9}));
    store.done([Write::delete(key("k"), When::Any)]).await;
    store.done([count("k", 1, 0, 9)]).await;
    assert_eq!(store.value("k").await, json!({"pending": 1}));
}

/// Numbers up to 2^53 - 1 are exact. A stored value that is too large for any integer fails the
/// condition instead of wrapping.
pub async fn a_count_keeps_large_numbers_exact(store: &RecordsFixture) {
    store.done([count("k", MAX_COUNT - 1, 0, MAX_COUNT)]).await;
    store.done([count("k", 1, 0, MAX_COUNT)]).await;
    assert_eq!(store.value("k").await, json!({"pending": MAX_COUNT}));
    store.failed([count("k", 1, 0, MAX_COUNT)]).await;
    for huge in [json!(i64::MAX), json!(u64::MAX), json!(1e30)] {
        store.set("huge", &json!({"pending": huge})).await;
        store.failed([count("huge", MAX_COUNT, 0, MAX_COUNT)]).await;
        assert_eq!(store.value("huge").await, json!({ "pending": huge }));
    }
}
