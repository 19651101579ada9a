//! Releases whose publishers changed, or lost their key.

use std::sync::Arc;

use vault_format::catalog::SignedCatalog;
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit};
use vault_service::model::namespace::Kind;
use vault_service::shelf::Releases;
use vault_shelf::ShelfError;
use vault_testing::contract::shelf::skill;
use vault_testing::memory::shelf::Owner;

use super::{Publisher, by, shelf_of, take, two_skills};
use crate::support::{vector, world};

/// Adds a root version that changes the publishers, with or without a release under it.
fn next_root(owner: &Owner, change: impl FnOnce(&mut RootEdit<'_>)) -> RootChain {
    let mut edit = RootEdit::begin_after(owner.chain(), "2026-11-21T00:00:00Z".parse().unwrap());
    change(&mut edit);
    edit.sign(&[owner.key()]).unwrap()
}

fn entry(owner: &Owner) -> KeyEntry {
    let public_key = owner.key().public();
    KeyEntry {
        public_key,
        name: KeyName::default_for(&public_key),
    }
}

/// Two publishers: what both signed is content; what one signed stops with that key, and the rest
/// goes on.
#[tokio::test]
async fn content_of_a_revoked_publisher_waits_for_the_next_release() {
    let publisher = Publisher::new(Kind::Hosted).await;
    let anna = &publisher.owner;
    let bob = anna.with_key(3);
    let chain = next_root(anna, |edit| {
        edit.add_publisher(entry(&bob)).unwrap();
    });
    let (anna, bob) = (anna.with_chain(chain.clone()), bob.with_chain(chain));
    publisher.hold(
        anna.sign(skill("alpha", "one"), &"local:x".parse().unwrap(), 1)
            .unwrap(),
    );
    publisher.hold(
        bob.sign(skill("beta", "one"), &"local:x".parse().unwrap(), 1)
            .unwrap(),
    );
    publisher.try_publish(&anna, |_| {}).await.unwrap();
    let snapshot = publisher.shelf().await.take_snapshot().await.unwrap();
    for entry in snapshot.entries() {
        publisher.shelf().await.load_skill(entry).await.unwrap();
    }
    // Bob's key is revoked, and nothing was released since.
    let chain = next_root(&anna, |edit| {
        edit.revoke(&bob.key().public());
    });
    let anna = anna.with_chain(chain);
    let file = SignedCatalog::parse(&publisher.current_file().await).unwrap();
    let longer = file.with_roots(anna.chain()).unwrap().to_bytes();
    publisher.world.publish("acme", longer).await.unwrap();
    for app in [publisher.world.app.clone(), publisher.fresh()] {
        let shelf = shelf_of(&app, &publisher.namespace().await);
        let snapshot = shelf.take_snapshot().await.unwrap();
        shelf.load_skill(&snapshot.entries()[0]).await.unwrap();
        let refused = shelf.load_skill(&snapshot.entries()[1]).await;
        assert!(
            matches!(refused, Err(ShelfError::ReleaseAwaited)),
            "{refused:?}"
        );
    }
    // A release that still lists it is refused, although the release before named the same bundle.
    let refused = publisher.try_publish(&anna, |_| {}).await.unwrap_err();
    assert_eq!(refused.code().row().code, "catalog_signer");
    publisher.hold(
        anna.sign(skill("beta", "two"), &"local:x".parse().unwrap(), 2)
            .unwrap(),
    );
    publisher.try_publish(&anna, |_| {}).await.unwrap();
    let shelf = publisher.shelf().await;
    for entry in shelf.take_snapshot().await.unwrap().entries() {
        shelf.load_skill(entry).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_of_a_release_by_a_revoked_key_is_content() {
    let publisher = two_skills().await;
    let old = publisher.shelf().await.take_snapshot().await.unwrap();
    let anna = publisher.owner.clone();
    let new = anna.with_key(4);
    // One key in both roles: it names its successor, which revokes it.
    let chain = next_root(&anna, |edit| {
        edit.add_publisher(entry(&new)).unwrap();
        edit.add_root_key(entry(&new)).unwrap();
    });
    let new = new.with_chain(chain);
    let chain = next_root(&new, |edit| {
        edit.revoke(&anna.key().public());
    });
    let new = new.with_chain(chain);
    let file = SignedCatalog::parse(&publisher.current_file().await).unwrap();
    let longer = file.with_roots(new.chain()).unwrap().to_bytes();
    publisher.world.publish("acme", longer).await.unwrap();
    let shelf = publisher.shelf().await;
    for answer in [
        shelf.take_snapshot().await.map(|_| ()),
        shelf.load_skill(&old.entries()[0]).await.map(|_| ()),
        shelf
            .submit(&by("usr_1"), take("alpha", "two"))
            .await
            .map(|_| ()),
    ] {
        assert!(
            matches!(answer, Err(ShelfError::ReleaseAwaited)),
            "{answer:?}"
        );
    }
}

/// The releases of the vectors one after the other, through rotations: the content of each is read
/// with the keys that published at the time.
#[tokio::test]
async fn releases_after_rotations_are_read_with_the_publishers_of_their_chain() {
    const HOUR: i64 = 3600;
    let mut world = world();
    world.app = world.app.with_shelves(Arc::new(Releases::default()));
    world.acme().await;
    let mut listed = Vec::new();
    let mut signers = std::collections::BTreeSet::new();
    for name in ["", "43-rotated", "44-withdrawn", "45-chain", "46-chain"] {
        if !name.is_empty() {
            world.clock.advance(31 * HOUR);
            let bytes = vector(&format!("catalog-{name}.json"));
            world.publish("acme", bytes).await.unwrap();
        }
        let namespace = world.read_namespace("acme").await;
        let shelf = shelf_of(&world.app, &namespace);
        let snapshot = shelf.take_snapshot().await.unwrap();
        for entry in snapshot.entries() {
            let loaded = shelf.load_skill(entry).await.unwrap();
            signers.insert(loaded.public_key.to_string());
        }
        listed.push(snapshot);
    }
    assert!(signers.len() > 1, "{signers:?}");
    let counts: Vec<_> = listed.iter().map(|list| list.entries().len()).collect();
    assert_eq!(counts[..4], [1, 4, 3, 3]);
    // Withdrawn since.
    let gone = listed[1].find(&"commit-log".parse().unwrap()).unwrap();
    let namespace = world.read_namespace("acme").await;
    let shelf = shelf_of(&world.app, &namespace);
    let refused = shelf.load_skill(gone).await;
    assert!(
        matches!(refused, Err(ShelfError::NotFound(_))),
        "{refused:?}"
    );
}
