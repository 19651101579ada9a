//! The clauses (rules, one test each) for [`Objects`](vault_store::objects::Objects).

use crate::assert_matches;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;

use super::ObjectsFixture;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_ASKED, MAX_OBJECT_BYTES, MAX_PAGE, ObjectKey, Stored};

impl ObjectsFixture {
    async fn put(&self, key: &ObjectKey, bytes: &Bytes) -> Stored {
        self.objects
            .put_object(key, bytes.clone())
            .await
            .expect("the store answers")
    }

    async fn get(&self, key: &ObjectKey) -> Option<Bytes> {
        self.objects
            .read_object(key)
            .await
            .expect("the store answers")
    }

    async fn fill(&self, namespace: &NamespaceId, class: Class, count: u32) -> Vec<Digest> {
        let mut objects = Vec::new();
        for n in 0..count {
            let bytes = Bytes::from(format!("object {n}"));
            objects.push((ObjectKey::for_bytes(*namespace, class, &bytes), bytes));
        }
        let mut digests: Vec<Digest> = objects.iter().map(|(key, _)| key.digest).collect();
        self.objects
            .put_many(objects)
            .await
            .expect("the store answers");
        digests.sort();
        digests
    }
}

fn namespace(n: u128) -> NamespaceId {
    NamespaceId::from_parts(1_795_219_200_000, n)
}

fn object(text: impl Into<Bytes>) -> (ObjectKey, Bytes) {
    let bytes = text.into();
    (
        ObjectKey::for_bytes(namespace(1), Class::Bundles, &bytes),
        bytes,
    )
}

/// An object is read back byte for byte: with every byte value, empty, and of the largest size.
pub async fn bytes_read_back_exactly(store: &ObjectsFixture) {
    let every_byte: Vec<u8> = (0..=255).cycle().take(1000).collect();
    // These bytes do not compress and have no period that divides a page size.
    let largest: Vec<u8> = (0..MAX_OBJECT_BYTES as u64)
        .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[4])
        .collect();
    for bytes in [every_byte, Vec::new(), b"\0".to_vec(), largest] {
        let (key, bytes) = object(bytes);
        assert_eq!(store.put(&key, &bytes).await, Stored::New);
        assert!(
            store.get(&key).await.expect("it was put") == bytes,
            "{} bytes came back changed",
            bytes.len()
        );
    }
}

/// A key that was never written reads as `None`, not as an error.
pub async fn what_was_never_written_is_none(store: &ObjectsFixture) {
    let (key, _) = object("never");
    assert_eq!(store.get(&key).await, None);
}

/// Bytes that do not hash to their key are rejected, and the key stays absent.
pub async fn wrong_bytes_are_refused(store: &ObjectsFixture) {
    let (key, _) = object("right");
    for wrong in ["", "wrong", "righ", "right "] {
        let answer = store.objects.put_object(&key, Bytes::from(wrong)).await;
        assert_matches!(answer, Err(StoreError::Invalid(_)), "{wrong:?}");
        assert_eq!(store.get(&key).await, None, "{wrong:?}");
    }
    store.put(&key, &Bytes::from("right")).await;
    let answer = store.objects.put_object(&key, Bytes::from("wrong")).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    assert_eq!(
        store.get(&key).await,
        Some(Bytes::from("right")),
        "what is there is not touched"
    );
}

/// An object of one byte more than 4 MiB is rejected.
pub async fn bytes_over_the_limit_are_refused(store: &ObjectsFixture) {
    let (key, bytes) = object(vec![7; MAX_OBJECT_BYTES + 1]);
    let answer = store.objects.put_object(&key, bytes).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    assert_eq!(store.get(&key).await, None);
}

/// The first put of a key returns `New`, each later one `Present`.
pub async fn a_second_put_finds_the_first(store: &ObjectsFixture) {
    let (key, bytes) = object("twice");
    assert_eq!(store.put(&key, &bytes).await, Stored::New);
    assert_eq!(store.put(&key, &bytes).await, Stored::Present);
    assert_eq!(store.get(&key).await, Some(bytes));
}

/// A put of many objects returns one result for each, in order. Of two equal objects only the first
/// is new.
pub async fn many_puts_answer_one_by_one(store: &ObjectsFixture) {
    let (old, new, empty) = (object("old"), object("new"), object(""));
    store.put(&old.0, &old.1).await;
    let put = vec![new.clone(), old.clone(), empty.clone(), new.clone()];
    let stored = store
        .objects
        .put_many(put)
        .await
        .expect("the store answers");
    assert_eq!(
        stored,
        [Stored::New, Stored::Present, Stored::New, Stored::Present]
    );
    for (key, bytes) in [old, new, empty] {
        assert_eq!(store.get(&key).await, Some(bytes));
    }
    assert_eq!(
        store
            .objects
            .put_many(Vec::new())
            .await
            .expect("the store answers"),
        []
    );
}

/// One wrong object among many makes the whole call fail, and none is stored.
pub async fn many_puts_are_refused_together(store: &ObjectsFixture) {
    let (good, wrong) = (object("good"), (object("right").0, Bytes::from("wrong")));
    let answer = store.objects.put_many(vec![good.clone(), wrong]).await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    assert_eq!(store.get(&good.0).await, None);
}

/// Absent keys are returned in the order of the question, present ones are not returned.
pub async fn missing_keys_are_named_in_the_order_asked(store: &ObjectsFixture) {
    let objects: Vec<_> = (0..10).map(|n| object(format!("object {n}"))).collect();
    for (key, bytes) in objects.iter().step_by(2) {
        store.put(key, bytes).await;
    }
    let wanted: Vec<_> = objects
        .iter()
        .rev()
        .map(|(key, bytes)| (*key, bytes.len() as u64))
        .collect();
    let missing = store
        .objects
        .find_missing(&wanted)
        .await
        .expect("the store answers");
    let absent: Vec<_> = objects
        .iter()
        .skip(1)
        .step_by(2)
        .rev()
        .map(|(key, _)| *key)
        .collect();
    assert_eq!(missing, absent);
    assert_eq!(
        store
            .objects
            .find_missing(&[])
            .await
            .expect("the store answers"),
        []
    );
}

/// An object of another size is reported as missing: it cannot be the one that the caller means.
pub async fn another_size_counts_as_missing(store: &ObjectsFixture) {
    for text in ["four", ""] {
        let (key, bytes) = object(text);
        store.put(&key, &bytes).await;
        let size = bytes.len() as u64;
        for (asked, absent) in [(size, false), (size + 1, true), (u64::MAX, true)] {
            let missing = store
                .objects
                .find_missing(&[(key, asked)])
                .await
                .expect("the store answers");
            assert_eq!(missing, if absent { vec![key] } else { vec![] }, "{asked}");
        }
    }
}

/// One question may name 10,000 objects of several classes, and no more.
pub async fn missing_answers_for_ten_thousand(store: &ObjectsFixture) {
    let held = store.fill(&namespace(1), Class::Bundles, 100).await;
    let mut wanted: Vec<_> = held
        .iter()
        .map(|digest| (ObjectKey::new(namespace(1), Class::Bundles, *digest), 8 + 1))
        .collect();
    for n in 100..MAX_ASKED {
        let class = if n % 2 == 0 {
            Class::Bundles
        } else {
            Class::Policies
        };
        wanted.push((
            ObjectKey::for_bytes(namespace(1), class, n.to_string().as_bytes()),
            4,
        ));
    }
    // "object 0" to "object 9" have 8 bytes, the other ninety have 9.
    let missing = store
        .objects
        .find_missing(&wanted)
        .await
        .expect("the store answers");
    assert_eq!(missing.len(), MAX_ASKED - 90);
    wanted.push((object("one too many").0, 1));
    let answer = store.objects.find_missing(&wanted).await;
    assert!(
        matches!(answer, Err(StoreError::Invalid(_))),
        "{:?}",
        answer.map(|missing| missing.len())
    );
}

/// A list is sorted by hash, and its pages join without gap or repetition.
pub async fn a_list_is_ordered_and_paged(store: &ObjectsFixture) {
    let place = namespace(1);
    let digests = store.fill(&place, Class::Drafts, 25).await;
    for limit in [1, 7, 25, 26, MAX_PAGE] {
        let mut seen: Vec<Digest> = Vec::new();
        loop {
            let page = store
                .objects
                .list_objects(&place, Class::Drafts, seen.last(), limit)
                .await
                .expect("the store answers");
            assert!(page.len() <= limit);
            seen.extend(page.iter().map(|(digest, _)| *digest));
            if page.len() < limit {
                break;
            }
        }
        assert_eq!(seen, digests, "pages of {limit}");
    }
    // A page may begin behind a hash that does not exist.
    for (from, rest) in [([0; 32], 25), ([255; 32], 0)] {
        let page = store
            .objects
            .list_objects(
                &place,
                Class::Drafts,
                Some(&Digest::from_bytes(from)),
                MAX_PAGE,
            )
            .await;
        assert_eq!(page.expect("the store answers").len(), rest);
    }
}

/// A list contains the size of each object in bytes.
pub async fn a_list_knows_sizes(store: &ObjectsFixture) {
    for size in [0, 1, 70_000] {
        let (key, bytes) = object(vec![b'x'; size]);
        store.put(&key, &bytes).await;
    }
    let page = store
        .objects
        .list_objects(&namespace(1), Class::Bundles, None, 10)
        .await
        .expect("the store answers");
    let mut sizes: Vec<u64> = page.into_iter().map(|(_, size)| size).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 1, 70_000]);
}

/// The same bytes in another namespace or class are another object, for every operation.
pub async fn namespaces_and_classes_do_not_mix(store: &ObjectsFixture) {
    let bytes = Bytes::from("the same everywhere");
    let key = ObjectKey::for_bytes(namespace(2), Class::Policies, &bytes);
    store.put(&key, &bytes).await;
    let mut others: Vec<ObjectKey> = Class::ALL
        .into_iter()
        .map(|class| ObjectKey { class, ..key })
        .filter(|other| *other != key)
        .collect();
    others.extend([1, 3].map(|n| ObjectKey {
        namespace: namespace(n),
        ..key
    }));
    for other in &others {
        assert_eq!(store.get(other).await, None, "{other}");
        let page = store
            .objects
            .list_objects(&other.namespace, other.class, None, 10)
            .await
            .expect("the store answers");
        assert_eq!(page, [], "{other}");
        store
            .objects
            .delete_object(other)
            .await
            .expect("the store answers");
    }
    let wanted: Vec<_> = others
        .iter()
        .chain([&key])
        .map(|key| (*key, bytes.len() as u64))
        .collect();
    assert_eq!(
        store
            .objects
            .find_missing(&wanted)
            .await
            .expect("the store answers"),
        others
    );
    assert_eq!(store.get(&key).await, Some(bytes));
}

/// A page with a limit of 0 or of more than 1,000 is rejected.
pub async fn a_page_has_limits(store: &ObjectsFixture) {
    for limit in [0, MAX_PAGE + 1] {
        let answer = store
            .objects
            .list_objects(&namespace(1), Class::Bundles, None, limit)
            .await;
        assert_matches!(answer, Err(StoreError::Invalid(_)), "{limit}");
    }
}

/// Deleting an absent object, or one object twice, is not an error. No other object is deleted.
pub async fn deleting_is_idempotent(store: &ObjectsFixture) {
    let (gone, stays) = (object("gone"), object("stays"));
    store
        .objects
        .delete_object(&gone.0)
        .await
        .expect("nothing to delete is no error");
    store.put(&gone.0, &gone.1).await;
    store.put(&stays.0, &stays.1).await;
    for _ in 0..2 {
        store
            .objects
            .delete_object(&gone.0)
            .await
            .expect("the store answers");
        assert_eq!(store.get(&gone.0).await, None);
        assert_eq!(store.get(&stays.0).await, Some(stays.1.clone()));
    }
}

/// A deletion of many objects removes exactly those; absent ones among them are not an error.
pub async fn many_are_deleted_at_once(store: &ObjectsFixture) {
    let digests = store.fill(&namespace(1), Class::Bundles, 230).await;
    let other = store.fill(&namespace(2), Class::Bundles, 3).await;
    let key = |digest: &Digest| ObjectKey::new(namespace(1), Class::Bundles, *digest);
    let mut gone: Vec<_> = digests.iter().take(220).map(key).collect();
    gone.push(object("never there").0);
    for _ in 0..2 {
        let deleted = store.objects.delete_many(&gone).await;
        deleted.expect("the store answers");
        for (place, rest) in [(1, &digests[220..]), (2, &other[..])] {
            let page = store
                .objects
                .list_objects(&namespace(place), Class::Bundles, None, MAX_PAGE)
                .await
                .expect("the store answers");
            let held: Vec<_> = page.into_iter().map(|(digest, _)| digest).collect();
            assert_eq!(held, rest);
        }
    }
    let deleted = store.objects.delete_many(&[]).await;
    deleted.expect("the store answers");
}

/// A deleted object can be put again, and is then new.
pub async fn a_deleted_object_can_come_back(store: &ObjectsFixture) {
    let (key, bytes) = object("phoenix");
    for _ in 0..3 {
        assert_eq!(store.put(&key, &bytes).await, Stored::New);
        assert_eq!(store.get(&key).await.as_ref(), Some(&bytes));
        store
            .objects
            .delete_object(&key)
            .await
            .expect("the store answers");
    }
}

/// Of twenty concurrent writers of one object, exactly one finds it new, and all succeed.
pub async fn twenty_writers_of_one_object_agree(store: &ObjectsFixture) {
    let (key, bytes) = object(vec![b'r'; 50_000]);
    let start = Arc::new(Barrier::new(20));
    let mut writers = JoinSet::new();
    for _ in 0..20 {
        let (objects, start) = (Arc::clone(&store.objects), Arc::clone(&start));
        let bytes = bytes.clone();
        writers.spawn(async move {
            start.wait().await;
            objects
                .put_object(&key, bytes)
                .await
                .expect("the store answers")
        });
    }
    let stored = writers.join_all().await;
    assert_eq!(
        stored
            .iter()
            .filter(|stored| **stored == Stored::New)
            .count(),
        1,
        "{stored:?}"
    );
    assert_eq!(store.get(&key).await, Some(bytes));
}

/// A reader beside a concurrent writer sees either no object or the whole object.
pub async fn readers_see_whole_objects_only(store: &ObjectsFixture) {
    for round in 0..5_u8 {
        let (key, bytes) = object(vec![round; 1_000_000]);
        let mut readers = JoinSet::new();
        for _ in 0..4 {
            let (objects, bytes) = (Arc::clone(&store.objects), bytes.clone());
            readers.spawn(async move {
                loop {
                    if let Some(read) = objects.read_object(&key).await.expect("the store answers")
                    {
                        assert!(read == bytes, "half an object was visible");
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        store.put(&key, &bytes).await;
        readers.join_all().await;
    }
}
