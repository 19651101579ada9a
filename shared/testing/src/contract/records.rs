//! The clauses (rules, one test each) for [`Records`](vault_store::records::Records) with one
//! caller.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::assert_matches;

use super::{RecordsFixture, absent, any, document, key, number};
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::records::{
    Commit, Document, MAX_COUNT, MAX_DOCUMENT_BYTES, MAX_KEY_BYTES, MAX_PAGE, RecordKey, When,
    Write,
};

/// Key, revision, expiry and document are read back as they were written.
pub async fn a_record_reads_back_as_written(store: &RecordsFixture) {
    let end = store.clock.now().plus_seconds(1);
    let content = document(&json!({"name": "ada", "tags": ["x", "y"], "n": 1}));
    let kept = store
        .put(Write::put(key("kept"), content.clone(), When::Absent))
        .await;
    let short = store
        .put(Write::put_until(key("short"), number(2), When::Any, end))
        .await;
    let read = store.get(&key("kept")).await.expect("it was put");
    assert_eq!(
        (read.key, read.revision, read.expires_at, read.document),
        (key("kept"), kept, None, content)
    );
    let read = store.get(&key("short")).await.expect("it was put");
    assert_eq!(
        (read.key, read.revision, read.expires_at, read.document),
        (key("short"), short, Some(end), number(2))
    );
}

/// Every JSON value, and all characters except NUL, are read back equal, up to 256 KiB.
pub async fn odd_content_reads_back_as_written(store: &RecordsFixture) {
    let every_character: String = (1..0x300).filter_map(char::from_u32).collect();
    let padding = "x".repeat(MAX_DOCUMENT_BYTES - r#"{"a":""}"#.len());
    let cases = [
        json!({}),
        json!({"": "empty name", "'; drop table records; --": "$1 ?1 %s \\u0000 \u{2028}"}),
        json!({"text": every_character, "emoji": "🦀 e\u{301} \u{10ffff} \u{fffe}"}),
        json!({"numbers": [0, -1, MAX_COUNT, -MAX_COUNT, u64::MAX, i64::MIN, 0.1, 1e-7, 123_456.789]}),
        json!({"nested": {"a": [[], {}, [null, true, false, {"b": [{"c": "d"}]}]]}}),
        json!({ "a": padding }),
    ];
    for (n, content) in cases.into_iter().enumerate() {
        let name = n.to_string();
        store.set(&name, &content).await;
        let read = store.get(&key(&name)).await.expect("it was put");
        assert!(
            read.read::<Value>().expect("reads") == content,
            "case {n} came back changed"
        );
        // A document that was read can be written again, even if its white space has changed.
        store
            .done([Write::put(
                key(&name),
                read.document,
                When::At(read.revision),
            )])
            .await;
    }
}

/// The record of a namespace as the version before signed root versions wrote it, after its fifth
/// release. A service still has to read it, so the tests of the service use this sample too.
pub const EARLIER_NAMESPACE: &str = r#"{
  "id": "ns_01kaqd8000000000000000000a", "slug": "acme", "kind": "hosted", "status": "active", "subscription": "none",
  "owner": "ada@example.org",
  "pin": {
    "vault_id": "vlt_01kaqd8000000000000000000v",
    "public_key": "aJHTXAwqoRw74i4F2bIj1L7v9RbGf6uGRWNCuo3bX04",
    "former_keys": [], "rotation_sequence": 0, "recovery_key_sha256": null,
    "stored": {
      "release": 5, "payload_sha256": "1db6dc66040e83889fb2b9f0f5a5d757d1bf1fc615ff56a4c791474a18533ed6"
    }
  },
  "current": {
    "release": 5, "sha256": "14b08d829706ecf75d52ed78701f66b319d92bc07b0c670f013836e8f5e1d1e3", "size": 812,
    "payload_sha256": "1db6dc66040e83889fb2b9f0f5a5d757d1bf1fc615ff56a4c791474a18533ed6",
    "closure": "b9225b67c4d0cccafabb0e376e292f0c845c06082e50e23fa584dfbccdb5a462",
    "skills": 1, "published_at": "2026-11-20T09:00:00Z"
  },
  "quota_bytes": null, "created_at": "2026-11-19T09:00:00Z"
}"#;

/// A record of an earlier version is read with every member, and is replaced like any other record.
pub async fn a_record_of_an_earlier_version_is_read_whole_and_replaced(store: &RecordsFixture) {
    let mut earlier: Value = serde_json::from_str(EARLIER_NAMESPACE).expect("it is JSON");
    let name = key("ns");
    let first = store
        .put(Write::put(name.clone(), document(&earlier), When::Absent))
        .await;
    let read = store.get(&name).await.expect("it was put");
    assert_eq!(read.read::<Value>().expect("reads"), earlier);
    earlier["pin"] = Value::Null;
    store
        .put(Write::put(
            name.clone(),
            document(&earlier),
            When::At(first),
        ))
        .await;
    let read = store.get(&name).await.expect("it was put");
    assert_eq!(read.read::<Value>().expect("reads"), earlier);
}

/// A key that was never written is absent in every kind of reading.
pub async fn what_was_never_written_is_absent(store: &RecordsFixture) {
    assert_eq!(store.get(&key("k")).await, None);
    assert_eq!(
        store
            .records
            .get_many(&[key("k"), key("l")])
            .await
            .expect("the store answers"),
        [None, None]
    );
    assert_eq!(store.get_many(&[]).await, []);
    assert_eq!(store.keys("p", "", None, 10).await, Vec::<String>::new());
}

/// Tries every condition in every state of a key, and checks in which cases `write` succeeds.
async fn conditions(store: &RecordsFixture, write: impl Fn(RecordKey, When) -> Write) {
    let end = store.clock.now().plus_seconds(60);
    for name in ["absent", "there", "dead"] {
        for (when, holds) in [
            ("absent", ["absent", "dead"].contains(&name)),
            ("any", true),
            ("at", name == "there"),
            ("older", false),
            ("newer", false),
            ("zero", false),
        ] {
            let key = key(&format!("{name} {when}"));
            let mut revisions = (1, 1);
            if name != "absent" {
                revisions.0 = store
                    .put(Write::put(key.clone(), number(1), When::Any))
                    .await;
                let put = match name {
                    "dead" => {
                        Write::put_until(key.clone(), number(2), When::Any, store.clock.now())
                    }
                    _ => Write::put_until(key.clone(), number(2), When::Any, end),
                };
                revisions.1 = store.put(put).await;
            }
            let before = store.get(&key).await;
            let condition = match when {
                "absent" => When::Absent,
                "any" => When::Any,
                "at" => When::At(revisions.1),
                "older" => When::At(revisions.0.saturating_sub(u64::from(name == "absent"))),
                "newer" => When::At(revisions.1 + 1),
                _ => When::At(0),
            };
            let commit = store.commit([write(key.clone(), condition)]).await;
            if holds {
                assert!(commit.is_done(), "{key}: {commit:?}");
            } else {
                assert_eq!(
                    commit,
                    Commit::Failed {
                        index: 0,
                        found: before.clone()
                    },
                    "{key}"
                );
                assert_eq!(store.get(&key).await, before, "{key}");
            }
        }
    }
}

/// A put succeeds exactly if its condition holds: for an absent record, an expired one, and one at
/// this, an older and a newer revision.
pub async fn a_put_obeys_its_condition(store: &RecordsFixture) {
    conditions(store, |key, when| Write::put(key, number(3), when)).await;
    for there in [
        "absent absent",
        "dead absent",
        "absent any",
        "there any",
        "dead any",
        "there at",
    ] {
        assert_eq!(
            store.get(&key(there)).await.expect("it was put").document,
            number(3),
            "{there}"
        );
    }
}

/// A delete succeeds exactly if its condition holds.
pub async fn a_delete_obeys_its_condition(store: &RecordsFixture) {
    conditions(store, Write::delete).await;
    for gone in ["there any", "there at"] {
        assert_eq!(store.get(&key(gone)).await, None, "{gone}");
    }
    assert!(store.get(&key("there absent")).await.is_some());
}

/// A check lets a commit succeed exactly if its condition holds. It changes nothing, not even the
/// revision.
pub async fn a_check_obeys_its_condition(store: &RecordsFixture) {
    conditions(store, Write::check).await;
    let revision = store.put(any("k", 1)).await;
    store
        .done([Write::check(key("k"), When::At(revision)), any("other", 1)])
        .await;
    store
        .done([
            Write::check(key("k"), When::Any),
            Write::check(key("none"), When::Any),
        ])
        .await;
    assert_eq!(
        store.get(&key("k")).await.expect("it stays").revision,
        revision
    );
    assert_eq!(store.get(&key("none")).await, None);
}

/// A deleted record is absent in every kind of reading. Deleting an absent record is not an error.
pub async fn a_delete_removes_and_may_find_nothing(store: &RecordsFixture) {
    store.done([any("gone", 1), any("stays", 2)]).await;
    for _ in 0..2 {
        store.done([Write::delete(key("gone"), When::Any)]).await;
        assert_eq!(store.get(&key("gone")).await, None);
        assert_eq!(store.keys("p", "", None, 10).await, ["stays"]);
    }
}

/// If one condition fails, wherever it stands, nothing changes: no put, no delete, no counter.
pub async fn one_failed_condition_changes_nothing(store: &RecordsFixture) {
    let revision = store.put(any("there", 1)).await;
    store
        .done([any("gone", 1), Write::count(key("counter"), "n", 5, 9)])
        .await;
    let keys = ["there", "gone", "counter", "new"].map(key);
    let before = store.get_many(&keys).await;
    let good = [
        absent("new", 1),
        Write::put(key("there"), number(2), When::At(revision)),
        Write::delete(key("gone"), When::Any),
        Write::count(key("counter"), "n", 1, 9),
    ];
    let bad = [
        Write::put(key("bad"), number(1), When::At(1)),
        Write::delete(key("bad"), When::At(1)),
        Write::check(key("bad"), When::At(1)),
        Write::count(key("bad"), "n", 1, 0),
    ];
    for bad in bad {
        for place in 0..=good.len() {
            let mut writes = good.to_vec();
            writes.insert(place, bad.clone());
            assert_eq!(store.failed(writes).await, (place, None), "{bad:?}");
            assert_eq!(store.get_many(&keys).await, before, "{bad:?} at {place}");
        }
    }
    store.done(good).await;
}

/// If several conditions fail, the commit names the first in the order of the writes, whatever the
/// order of their keys.
pub async fn the_first_failed_condition_is_named(store: &RecordsFixture) {
    store.done([any("a", 1), any("m", 2), any("z", 3)]).await;
    let taken = |name: &str| absent(name, 9);
    for names in [["z", "m", "a"], ["a", "m", "z"], ["m", "z", "a"]] {
        let mut writes = vec![any("good", 1)];
        writes.extend(names.map(taken));
        let (index, found) = store.failed(writes).await;
        assert_eq!(
            (index, found.map(|record| record.key)),
            (1, Some(key(names[0])))
        );
    }
}

/// A commit without writes succeeds.
pub async fn an_empty_commit_is_done(store: &RecordsFixture) {
    assert_eq!(store.commit([]).await, Commit::Done(vec![]));
}

/// A commit returns the new revision of each put, in order, and `None` for the other writes.
pub async fn a_commit_tells_the_revision_of_each_put(store: &RecordsFixture) {
    let writes = [
        any("z", 1),
        Write::count(key("n"), "n", 1, 9),
        any("a", 1),
        Write::delete(key("d"), When::Any),
        Write::check(key("c"), When::Absent),
        any("m", 1),
    ];
    let Commit::Done(revisions) = store.commit(writes).await else {
        panic!("the commit should succeed")
    };
    assert_eq!(revisions.len(), 6);
    for (index, name) in [
        (0, Some("z")),
        (1, None),
        (2, Some("a")),
        (3, None),
        (4, None),
        (5, Some("m")),
    ] {
        let read = match name {
            Some(name) => store.get(&key(name)).await.map(|record| record.revision),
            None => None,
        };
        assert_eq!(revisions[index], read, "write {index}");
    }
}

/// Each change of a key gets a revision above all earlier ones, across deletion and expiry, even
/// while the clock stands still.
pub async fn revisions_rise_and_never_repeat(store: &RecordsFixture) {
    let mut seen = vec![store.put(absent("k", 1)).await];
    for _ in 0..3 {
        seen.push(store.put(any("k", 2)).await);
        store.done([Write::count(key("k"), "n", 1, 100)]).await;
        seen.push(store.get(&key("k")).await.expect("counted").revision);
        store.done([Write::delete(key("k"), When::Any)]).await;
        seen.push(store.put(absent("k", 3)).await);
        store.done([Write::delete(key("k"), When::Any)]).await;
        store.done([Write::count(key("k"), "n", 1, 100)]).await;
        seen.push(store.get(&key("k")).await.expect("counted").revision);
        // The expired record is swept in one round and overwritten in the others.
        seen.push(
            store
                .put(Write::put_until(
                    key("k"),
                    number(4),
                    When::Any,
                    store.clock.now(),
                ))
                .await,
        );
        if seen.len() < 10 {
            store
                .records
                .sweep_expired(100)
                .await
                .expect("the store answers");
        }
        seen.push(store.put(absent("k", 5)).await);
    }
    assert!(
        seen.is_sorted_by(|before, after| before < after),
        "{seen:?}"
    );
}

/// A condition on a revision that was read before a deletion does not hold for a later record.
pub async fn an_old_revision_never_matches_again(store: &RecordsFixture) {
    let old = store.put(any("k", 1)).await;
    store.done([Write::delete(key("k"), When::At(old))]).await;
    let new = store.put(absent("k", 1)).await;
    assert_ne!(old, new);
    store
        .failed([Write::put(key("k"), number(2), When::At(old))])
        .await;
    store.failed([Write::delete(key("k"), When::At(old))]).await;
    store.failed([Write::check(key("k"), When::At(old))]).await;
    store.done([Write::delete(key("k"), When::At(new))]).await;
}

/// A hundred writes can be one commit.
pub async fn a_hundred_writes_are_one_commit(store: &RecordsFixture) {
    let writes: Vec<Write> = (0..100).map(|n| any(&format!("{n:03}"), n)).collect();
    store.done(writes.clone()).await;
    assert_eq!(store.keys("p", "", None, 1000).await.len(), 100);
    let mut deletes: Vec<Write> = writes
        .iter()
        .map(|w| Write::delete(w.key().clone(), When::Any))
        .collect();
    deletes[99] = Write::delete(key("099"), When::Absent);
    assert_eq!(store.failed(deletes).await.0, 99);
    assert_eq!(store.keys("p", "", None, 1000).await.len(), 100);
}

/// A commit with too many writes, a repeated key, documents over the limits, odd keys or odd
/// counters is rejected and changes nothing.
pub async fn what_breaks_the_rules_of_a_commit_is_refused(store: &RecordsFixture) {
    store
        .refused((0..101).map(|n| any(&n.to_string(), n)).collect())
        .await;
    let check = Write::check(key("k"), When::Any);
    store.refused(vec![any("k", 1), any("l", 1), check]).await;
    let count = |field| Write::count(key("k"), field, 1, 9);
    store.refused(vec![count("n"), count("m")]).await;
    let text = |bytes: usize| json!({ "a": "x".repeat(bytes - 8) }).to_string();
    let big = Document::from_stored(text(MAX_DOCUMENT_BYTES));
    let bigger = Document::from_stored(text(MAX_DOCUMENT_BYTES + 1));
    store
        .refused(vec![any("k", 1), Write::put(key("l"), bigger, When::Any)])
        .await;
    let put = |n: usize| Write::put(key(&n.to_string()), big.clone(), When::Any);
    store.refused((0..13).map(put).collect()).await;
    for odd in ["", "a\0b", "a\nb", "\u{9f}", &"x".repeat(MAX_KEY_BYTES + 1)] {
        let gone = Write::delete(RecordKey::new(odd, "k"), When::Any);
        store.refused(vec![any("k", 1), any(odd, 1)]).await;
        store.refused(vec![any("k", 1), gone]).await;
    }
    for (field, min, max) in [
        ("", 0, 9),
        ("a.b", 0, 9),
        ("a\"b", 0, 9),
        ("n", 9, 0),
        ("n", 0, MAX_COUNT + 1),
    ] {
        let count = Write::Count {
            key: key("l"),
            field: field.to_owned(),
            by: 1,
            min,
            max,
            expires_at: None,
        };
        store.refused(vec![any("k", 1), count]).await;
    }
    assert_eq!(store.keys("p", "", None, 1000).await, Vec::<String>::new());
    store.done((0..12).map(put).collect::<Vec<_>>()).await;
}

/// Too many keys, odd keys, and page limits of 0 or of more than 1,000 are rejected.
pub async fn what_breaks_the_rules_of_reading_is_refused(store: &RecordsFixture) {
    let records = &store.records;
    let keys = vec![key("k"); 101];
    let mut answers = vec![records.get_many(&keys).await.map(drop)];
    assert_eq!(store.get_many(&keys[1..]).await, vec![None; 100]);
    for odd in ["", "a\0b", "\r", &"x".repeat(MAX_KEY_BYTES + 1)] {
        answers.push(records.get_one(&key(odd)).await.map(drop));
        answers.push(records.list_page(odd, "", None, 1).await.map(drop));
        if !odd.is_empty() {
            answers.push(records.list_page("p", odd, None, 1).await.map(drop));
            answers.push(records.list_page("p", "", Some(odd), 1).await.map(drop));
        }
    }
    for limit in [0, MAX_PAGE + 1] {
        answers.push(records.list_page("p", "", None, limit).await.map(drop));
    }
    for (number, answer) in answers.into_iter().enumerate() {
        assert_matches!(answer, Err(StoreError::Invalid(_)), "answer {number}");
    }
}

/// From the second of its expiry, a record is absent for every kind of reading and every condition;
/// before, it is present.
pub async fn an_expired_record_is_absent_at_once(store: &RecordsFixture) {
    let end = store.clock.now().plus_seconds(60);
    let revision = store
        .put(Write::put_until(key("k"), number(1), When::Any, end))
        .await;
    store.done([any("stays", 1)]).await;
    store.clock.advance(59);
    assert_eq!(
        store.get(&key("k")).await.expect("not yet").expires_at,
        Some(end)
    );
    assert_eq!(store.keys("p", "", None, 10).await, ["k", "stays"]);
    store.failed([Write::check(key("k"), When::Absent)]).await;
    store.clock.advance(1);
    assert_eq!(store.get(&key("k")).await, None);
    assert_eq!(
        store.keys("p", "", None, 1).await,
        ["stays"],
        "an expired record takes no place on a page"
    );
    store.done([Write::check(key("k"), When::Absent)]).await;
    let at = When::At(revision);
    for write in [
        Write::check(key("k"), at),
        Write::put(key("k"), number(2), at),
        Write::delete(key("k"), at),
    ] {
        assert_eq!(store.failed([write]).await, (0, None));
    }
    store.done([Write::delete(key("k"), When::Absent)]).await;
}

/// A put-if-absent replaces an expired record. A record that is written already expired is never
/// seen.
pub async fn an_expired_record_lets_a_new_one_in(store: &RecordsFixture) {
    let now = store.clock.now();
    for expires_at in [now, now.plus_seconds(-1000)] {
        store
            .put(Write::put_until(
                key("k"),
                number(1),
                When::Absent,
                expires_at,
            ))
            .await;
        assert_eq!(store.get(&key("k")).await, None);
    }
    store.put(absent("k", 2)).await;
    let read = store.get(&key("k")).await.expect("it was put");
    assert_eq!((read.expires_at, read.document), (None, number(2)));
    store.clock.advance(i64::from(u32::MAX));
    assert!(
        store.get(&key("k")).await.is_some(),
        "without expiry for ever"
    );
}

/// A put sets the expiry together with the content: later, earlier, or none.
pub async fn a_put_sets_the_expiry_anew(store: &RecordsFixture) {
    let now = store.clock.now();
    for end in [
        Some(now.plus_seconds(9)),
        Some(now.plus_seconds(99)),
        None,
        Some(now.plus_seconds(5)),
    ] {
        store
            .done([Write::Put {
                key: key("k"),
                document: number(1),
                expires_at: end,
                when: When::Any,
            }])
            .await;
        assert_eq!(
            store.get(&key("k")).await.expect("it was put").expires_at,
            end
        );
    }
    store.clock.advance(5);
    assert_eq!(store.get(&key("k")).await, None);
}

/// Many records are returned in the order of the question, from several partitions: absent ones as
/// `None`, and one that is named twice, twice.
pub async fn many_records_come_in_the_order_asked(store: &RecordsFixture) {
    let place = |n: u64| RecordKey::new(format!("p{}", n % 3), format!("{n}"));
    store
        .done(
            (0..50)
                .map(|n| Write::put(place(n), number(n), When::Any))
                .collect::<Vec<_>>(),
        )
        .await;
    let asked: Vec<u64> = (0..100).map(|n| (n * 37) % 60).collect();
    let keys: Vec<RecordKey> = asked.iter().map(|&n| place(n)).collect();
    let read = store.get_many(&keys).await;
    assert_eq!(read.len(), 100);
    for (n, record) in asked.into_iter().zip(read) {
        assert_eq!(
            record.map(|r| (r.key, r.document)),
            (n < 50).then(|| (place(n), number(n)))
        );
    }
}

/// Names whose order by bytes differs from their order in other collations.
const NAMES: [&str; 14] = [
    " a",
    "A",
    "B",
    "Z",
    "_",
    "a",
    "a ",
    "a/b",
    "a0",
    "ab",
    "z",
    "é",
    "\u{e000}",
    "\u{10000}",
];

/// A list is sorted by the UTF-8 bytes of the key.
pub async fn a_list_is_ordered_by_bytes(store: &RecordsFixture) {
    assert!(NAMES.is_sorted());
    store
        .done(
            NAMES
                .iter()
                .rev()
                .map(|name| any(name, 1))
                .collect::<Vec<_>>(),
        )
        .await;
    assert_eq!(store.keys("p", "", None, 1000).await, NAMES);
}

/// Pages join without gap or repetition, also behind a key that does not exist.
pub async fn a_list_is_paged(store: &RecordsFixture) {
    store.done(NAMES.map(|name| any(name, 1))).await;
    for limit in [1, 3, NAMES.len(), NAMES.len() + 1] {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let page = store
                .keys("p", "", seen.last().map(String::as_str), limit)
                .await;
            assert!(page.len() <= limit);
            let last = page.len() < limit;
            seen.extend(page);
            if last {
                break;
            }
        }
        assert_eq!(seen, NAMES, "pages of {limit}");
    }
    assert_eq!(store.keys("p", "", Some("a/"), 2).await, ["a/b", "a0"]);
    assert_eq!(
        store.keys("p", "", Some("\u{10ffff}"), 2).await,
        Vec::<String>::new()
    );
}

/// A list with a prefix contains exactly the keys that begin with it, also together with `after`
/// and `limit`. No character in a prefix has a special meaning.
pub async fn a_list_keeps_to_its_prefix(store: &RecordsFixture) {
    let names = [
        "a",
        "a%",
        "a%b",
        "a%c",
        "a*",
        "a?",
        "a[b]",
        "a_b",
        "ab",
        "b%",
        "aé",
        "aée",
        "a\u{10ffff}z",
    ];
    store.done(names.map(|name| any(name, 1))).await;
    let cases: [(&str, Option<&str>, usize, &[&str]); 12] = [
        ("a%", None, 9, &["a%", "a%b", "a%c"]),
        ("a%", None, 2, &["a%", "a%b"]),
        ("a%", Some("a%"), 9, &["a%b", "a%c"]),
        ("a%", Some("a"), 9, &["a%", "a%b", "a%c"]),
        ("a%", Some("a%c"), 9, &[]),
        ("a%", Some("b"), 9, &[]),
        ("a_", None, 9, &["a_b"]),
        ("a[", None, 9, &["a[b]"]),
        ("a?", None, 9, &["a?"]),
        ("aé", None, 9, &["aé", "aée"]),
        ("a\u{10ffff}", None, 9, &["a\u{10ffff}z"]),
        ("c", None, 9, &[]),
    ];
    for (prefix, after, limit, expected) in cases {
        assert_eq!(
            store.keys("p", prefix, after, limit).await,
            expected,
            "{prefix} {after:?} {limit}"
        );
    }
}

/// Records of different partitions do not mix, even if the name of one partition begins with that
/// of another, or partition and key joined are the same text.
pub async fn partitions_do_not_mix(store: &RecordsFixture) {
    let places = [
        ("p", "q/k"),
        ("p/q", "k"),
        ("p/", "k"),
        ("P", "q/k"),
        ("p ", "q/k"),
    ];
    for (n, (partition, name)) in (0..).zip(places) {
        store
            .done([Write::put(
                RecordKey::new(partition, name),
                number(n),
                When::Absent,
            )])
            .await;
    }
    for (n, (partition, name)) in (0..).zip(places) {
        let read = store
            .get(&RecordKey::new(partition, name))
            .await
            .expect("it was put");
        assert_eq!(read.document, number(n), "{partition}");
        assert_eq!(
            store.keys(partition, "", None, 10).await,
            [name],
            "{partition}"
        );
    }
}

/// Keys that look alike are different: letter case, spaces at the end, forms of Unicode. The
/// longest key works.
pub async fn keys_are_compared_byte_by_byte(store: &RecordsFixture) {
    let long = "é".repeat(MAX_KEY_BYTES / 2);
    let names = [
        "k", "K", "k ", " k", "\u{e9}", "e\u{301}", "ß", "ss", "日本", "🦀", &long,
    ];
    for (n, name) in (0..).zip(names) {
        store.done([absent(name, n)]).await;
    }
    for (n, name) in (0..).zip(names) {
        assert_eq!(
            store.get(&key(name)).await.expect("it was put").document,
            number(n),
            "{name}"
        );
    }
    store
        .done([Write::put(
            RecordKey::new(&long, &long),
            number(1),
            When::Absent,
        )])
        .await;
    assert_eq!(store.keys(&long, &long, None, 1).await, [long.as_str()]);
}

/// A sweep removes no live record and changes nothing readable. Repeated sweeps come to an end.
pub async fn a_sweep_removes_only_what_expired(store: &RecordsFixture) {
    let end = store.clock.now().plus_seconds(60);
    let mut alive = BTreeSet::new();
    for n in 0..30_u64 {
        let name = format!("{n:02}");
        let expires_at =
            [None, Some(end), Some(end.plus_seconds(1))][usize::try_from(n % 3).expect("small")];
        store
            .done([Write::Put {
                key: key(&name),
                document: number(n),
                expires_at,
                when: When::Any,
            }])
            .await;
        if expires_at != Some(end) {
            alive.insert(name);
        }
    }
    assert_eq!(
        store
            .records
            .sweep_expired(100)
            .await
            .expect("the store answers"),
        0,
        "nothing is expired yet"
    );
    store.clock.advance(60);
    let before = store.keys("p", "", None, 100).await;
    assert!(before.iter().eq(&alive));
    let mut swept = 0;
    loop {
        let now = store
            .records
            .sweep_expired(4)
            .await
            .expect("the store answers");
        assert!(now <= 4);
        swept += now;
        if now == 0 {
            break;
        }
    }
    assert!(swept <= 10, "{swept}");
    assert_eq!(store.keys("p", "", None, 100).await, before);
}

/// The health check of an open store succeeds.
pub async fn a_store_gives_a_sign_of_life(store: &RecordsFixture) {
    store
        .records
        .check_health()
        .await
        .expect("the store answers");
}
