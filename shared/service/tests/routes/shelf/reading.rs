//! What a shelf reads of a release, and what it does not believe.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;
use vault_format::catalog::{Catalog, ProfileEntry, SignedCatalog, SkillEntry, Withdrawn};
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::manifest::Manifest;
use vault_service::error::ErrorCode;
use vault_service::model::draft;
use vault_service::model::namespace::{Kind, Namespace, Pinned, Subscription};
use vault_shelf::{Change, ShelfError, Submitted, Writes};
use vault_store::StoreError;
use vault_store::objects::{Class, Objects as _};
use vault_testing::contract::shelf::{Hand as _, skill};
use vault_testing::memory::shelf::Owner;

use crate::skills::{changed_skill, plain_skill};

use super::{Publisher, by, shelf_of, take, two_skills};

#[tokio::test]
async fn a_skill_in_parts_is_put_together() {
    let publisher = two_skills().await;
    let shelf = publisher.shelf().await;
    let snapshot = shelf.take_snapshot().await.unwrap();
    let loaded = shelf.load_skill(&snapshot.entries()[1]).await.unwrap();
    assert_eq!(
        loaded.find_file("table.bin").unwrap().bytes.len(),
        3_500_000
    );
}

#[tokio::test]
async fn a_warm_process_asks_the_object_store_for_nothing() {
    let publisher = two_skills().await;
    let first = publisher.shelf().await.take_snapshot().await.unwrap();
    publisher
        .shelf()
        .await
        .load_skill(&first.entries()[0])
        .await
        .unwrap();
    let before = publisher.host.read.load(Ordering::SeqCst);
    for _ in 0..3 {
        let shelf = publisher.shelf().await;
        let again = shelf.take_snapshot().await.unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        shelf.load_skill(&again.entries()[0]).await.unwrap();
    }
    assert_eq!(publisher.host.read.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn many_who_ask_for_a_cold_release_read_it_once() {
    let publisher = two_skills().await;
    let app = publisher.fresh();
    let namespace = publisher.namespace().await;
    let before = publisher.host.read.load(Ordering::SeqCst);
    let mut readers = JoinSet::new();
    for _ in 0..16 {
        let shelf = shelf_of(&app, &namespace);
        readers.spawn(async move { shelf.take_snapshot().await.unwrap().entries().len() });
    }
    assert!(readers.join_all().await.iter().all(|count| *count == 2));
    // Catalog, index, policy.
    assert_eq!(publisher.host.read.load(Ordering::SeqCst), before + 3);
}

#[tokio::test]
async fn a_host_that_serves_other_bytes_gives_errors_and_never_content() {
    let publisher = two_skills().await;
    let namespace = publisher.namespace().await;
    let current = namespace.current.clone().unwrap();
    let catalog_key = namespace.object_key(Class::Catalogs, current.sha256);
    let catalog = publisher
        .host
        .inner
        .read_object(&catalog_key)
        .await
        .unwrap()
        .unwrap();
    let catalog = SignedCatalog::parse(&catalog)
        .unwrap()
        .read_counted(&current.payload_sha256)
        .unwrap();
    let (alpha, beta) = (&catalog.skills[0], &catalog.skills[1]);
    let bundle = |digest| namespace.object_key(Class::Bundles, digest);
    let part = publisher.signed.lock().unwrap().skills[&beta.name]
        .encoded
        .parts[0]
        .hash;
    let snapshot = publisher.shelf().await.take_snapshot().await.unwrap();
    // Good objects in the wrong places, among them those of a release that another owner signed,
    // and bytes that are nothing.
    let foreign = Publisher::new(Kind::Hosted).await;
    foreign.put(skill("alpha", "evil"), "local:folder").await;
    let theirs = foreign.namespace().await.current.unwrap();
    let theirs = foreign
        .namespace()
        .await
        .object_key(Class::Catalogs, theirs.sha256);
    let mut lies = vec![None, Some(Bytes::new()), Some(Bytes::from_static(b"{}"))];
    lies.push(foreign.host.inner.read_object(&theirs).await.unwrap());
    for digest in [
        alpha.bundle_hash,
        beta.bundle_hash,
        part,
        catalog.index[0].bundle_hash,
    ] {
        lies.push(
            publisher
                .host
                .inner
                .read_object(&bundle(digest))
                .await
                .unwrap(),
        );
    }
    let places = [
        ("catalog", catalog_key),
        ("index", bundle(catalog.index[0].bundle_hash)),
        (
            "policy",
            namespace.object_key(Class::Policies, catalog.policy.unwrap().sha256),
        ),
        ("bundle", bundle(beta.bundle_hash)),
        ("part", bundle(part)),
    ];
    for (what, key) in places {
        let truth = publisher.host.inner.read_object(&key).await.unwrap();
        for lie in lies.iter().filter(|lie| **lie != truth) {
            publisher.lie(key, lie.clone());
            let shelf = shelf_of(&publisher.fresh(), &namespace);
            let listed = shelf.take_snapshot().await;
            let loaded = shelf.load_skill(&snapshot.entries()[1]).await;
            let gone = lie.is_none();
            match what {
                "bundle" | "part" => {
                    assert_eq!(listed.unwrap().entries(), snapshot.entries());
                    match loaded {
                        Err(ShelfError::Unavailable(_)) => assert!(gone, "{what}"),
                        Err(ShelfError::Damaged(..)) => assert!(!gone, "{what}"),
                        other => panic!("{what}: {other:?}"),
                    }
                    // The other skill is not concerned.
                    shelf.load_skill(&snapshot.entries()[0]).await.unwrap();
                }
                _ => {
                    for answer in [listed.map(|_| ()), loaded.map(|_| ())] {
                        match answer {
                            Err(ShelfError::Store(StoreError::Unavailable(_))) => {
                                assert!(gone, "{what}");
                            }
                            Err(
                                ShelfError::Store(StoreError::Corrupt(_)) | ShelfError::Failed(_),
                            ) => assert!(!gone, "{what}"),
                            other => panic!("{what}: {other:?}"),
                        }
                    }
                }
            }
        }
        publisher.host.lies.lock().unwrap().clear();
    }
    let shelf = shelf_of(&publisher.fresh(), &namespace);
    shelf
        .load_skill(&shelf.take_snapshot().await.unwrap().entries()[1])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_catalog_that_the_pin_does_not_allow_is_not_believed() {
    let publisher = two_skills().await;
    let namespace = publisher.namespace().await;
    let refused = async |namespace: &Namespace| {
        let shelf = shelf_of(&publisher.fresh(), namespace);
        let refused = shelf.take_snapshot().await;
        assert!(matches!(refused, Err(ShelfError::Failed(_))), "{refused:?}");
    };
    // The record names the catalog of another vault, with a good hash.
    let foreign = Publisher::new(Kind::Hosted).await;
    foreign.try_publish(&Owner::new(2), |_| {}).await.unwrap();
    let bytes = foreign.current_file().await;
    publisher
        .world
        .put_object(&namespace, Class::Catalogs, bytes.to_vec())
        .await;
    let mut forged = namespace.clone();
    forged.current = foreign.namespace().await.current;
    refused(&forged).await;
    // The current payload beside a signature that is not its publisher's.
    let mut file: serde_json::Value =
        serde_json::from_slice(&publisher.current_file().await).unwrap();
    file["signatures"][0]["sig"] = format!("{}==", "A".repeat(86)).into();
    let bytes = file.to_string().into_bytes();
    let mut unsigned = namespace.clone();
    let current = unsigned.current.as_mut().unwrap();
    current.sha256 = publisher
        .world
        .put_object(&namespace, Class::Catalogs, bytes)
        .await;
    refused(&unsigned).await;
    // Another payload than the one that became current.
    let mut other = namespace.clone();
    other.current.as_mut().unwrap().payload_sha256 = Digest::of(b"another");
    refused(&other).await;
    // Other root versions than those that are pinned.
    let mut pinned = namespace.clone();
    let mut pin = namespace.pin.vault_pin().unwrap().clone();
    pin.root_sha256 = Digest::of(b"another");
    pinned.pin = Pinned::Vault(pin);
    refused(&pinned).await;
    // A catalog that was signed for another place.
    let mut elsewhere = namespace.clone();
    elsewhere.slug = "other".parse().unwrap();
    refused(&elsewhere).await;
}

#[tokio::test]
async fn an_index_of_other_skills_is_not_published() {
    let publisher = two_skills().await;
    for (change, code) in [
        (
            (|catalog| catalog.index.clear()) as fn(&mut Catalog),
            ErrorCode::DerivedMismatch,
        ),
        (
            |catalog| catalog.index.push(catalog.index[0]),
            ErrorCode::DerivedMismatch,
        ),
        (
            |catalog| {
                catalog.skills.pop();
            },
            ErrorCode::DerivedMismatch,
        ),
        (
            |catalog| {
                let [first, second] = catalog.skills.as_mut_slice() else {
                    panic!("two skills");
                };
                first.bundle_hash = second.bundle_hash;
                first.size = second.size;
                first.version += 1;
            },
            ErrorCode::CatalogSchema,
        ),
        (
            |catalog| catalog.skills[0].version += 1,
            ErrorCode::CatalogSchema,
        ),
    ] {
        let refused = publisher.try_publish(&publisher.owner, change).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    publisher.publish().await;
    let snapshot = publisher.shelf().await.take_snapshot().await.unwrap();
    assert_eq!(snapshot.entries().len(), 2);
}

#[tokio::test]
async fn a_bundle_that_another_key_signed_is_not_published() {
    let publisher = Publisher::new(Kind::Hosted).await;
    for stranger in [Owner::new(9), publisher.owner.with_key(9)] {
        let source = "local:x".parse().unwrap();
        let signed = stranger.sign(skill("alpha", "evil"), &source, 1);
        publisher.hold(signed.unwrap());
        let refused = publisher.try_publish(&publisher.owner, |_| {}).await;
        assert_eq!(refused.unwrap_err().code().row().code, "catalog_signer");
    }
}

#[tokio::test]
async fn a_bundle_of_another_version_is_not_published() {
    let publisher = Publisher::new(Kind::Hosted).await;
    let mut other_version = publisher.sign(skill("beta", "one"), "local:x");
    other_version.entry.version = 5;
    publisher.hold(other_version);
    let refused = publisher.try_publish(&publisher.owner, |_| {}).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::CatalogSchema);
}

#[tokio::test]
async fn other_content_of_a_published_version_is_not_published() {
    let publisher = Publisher::new(Kind::Hosted).await;
    let hold = |body: &str, version| {
        let source = "local:x".parse().unwrap();
        let signed = publisher.owner.sign(skill("beta", body), &source, version);
        publisher.hold(signed.unwrap());
    };
    hold("one", 1);
    publisher.publish().await;
    hold("two", 1);
    let refused = publisher.try_publish(&publisher.owner, |_| {}).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::SkillRolledBack);
    hold("two", 2);
    publisher.publish().await;
}

#[tokio::test]
async fn what_a_manifest_says_beside_its_bytes_is_not_published() {
    let publisher = Publisher::new(Kind::Hosted).await;
    let (vault_id, namespace) = (publisher.owner.vault_id(), publisher.namespace().await);
    let with_action = |manifest: &mut Manifest| {
        let action =
            serde_json::from_value(json!({"command": "sh", "args": ["-c", "id"], "cwd": "."}));
        manifest
            .actions
            .insert("check".parse().unwrap(), action.unwrap());
    };
    for (change, refused) in [
        (&with_action as &dyn Fn(&mut Manifest), true),
        (&|_: &mut Manifest| {}, false),
    ] {
        let now = publisher.world.now();
        let skill = changed_skill(&vault_id, publisher.owner.key(), "alpha", now, change);
        publisher.put_object(Class::Bundles, skill.bytes).await;
        let index = publisher
            .world
            .put_index(&namespace, &vault_id, [skill.texts]);
        let index = index.await;
        let published = publisher
            .try_publish(&publisher.owner, |catalog| {
                catalog.skills = vec![skill.entry];
                catalog.index = index;
            })
            .await;
        let code = published.err().map(|refusal| refusal.code());
        assert_eq!(code, refused.then_some(ErrorCode::DerivedMismatch));
    }
}

#[tokio::test]
async fn a_removed_skill_is_published_again_only_above_the_version_that_it_had() {
    let publisher = Publisher::new(Kind::Hosted).await;
    let (vault_id, namespace) = (publisher.owner.vault_id(), publisher.namespace().await);
    let now = publisher.world.now();
    let offer = async |skills: &[(&str, u64)]| {
        let mut entries = Vec::new();
        let mut texts = Vec::new();
        for (name, version) in skills {
            let change = |manifest: &mut Manifest| manifest.version = *version;
            let skill = changed_skill(&vault_id, publisher.owner.key(), name, now, change);
            publisher.put_object(Class::Bundles, skill.bytes).await;
            entries.push(skill.entry);
            texts.push(skill.texts);
        }
        let index = publisher.world.put_index(&namespace, &vault_id, texts);
        let index = index.await;
        let published = publisher.try_publish(&publisher.owner, |catalog| {
            catalog.skills = entries;
            catalog.index = index;
        });
        published.await
    };
    offer(&[("alpha", 3), ("beta", 1)]).await.unwrap();
    offer(&[("beta", 1)]).await.unwrap();
    offer(&[("beta", 2)]).await.unwrap();
    let refused = offer(&[("alpha", 1), ("beta", 2)]).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::SkillRolledBack);
    let body: serde_json::Value = serde_json::from_slice(&refused.problem("request")).unwrap();
    assert_eq!(body["skills"], json!([{"name": "alpha", "reached": 3}]));
    offer(&[("alpha", 4), ("beta", 2)]).await.unwrap();
    let refused = offer(&[("alpha", 3), ("beta", 2)]).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::SkillRolledBack);
}

#[tokio::test]
async fn a_bundle_in_other_bytes_and_an_index_as_a_profile_are_not_published() {
    let publisher = Publisher::new(Kind::Hosted).await;
    let (vault_id, namespace) = (publisher.owner.vault_id(), publisher.namespace().await);
    let now = publisher.world.now();
    let mut skill = plain_skill(&vault_id, publisher.owner.key(), "alpha", now);
    let put = async |bytes: &[u8]| {
        let (hash, size) = publisher.put_object(Class::Bundles, bytes.to_vec()).await;
        (hash, size)
    };
    put(&skill.bytes).await;
    let good = skill.entry.clone();
    let text = String::from_utf8(skill.bytes.clone()).unwrap();
    skill.bytes = text.replacen(':', ": ", 1).into_bytes();
    let (bundle_hash, size) = put(&skill.bytes).await;
    let other = SkillEntry {
        bundle_hash,
        size,
        ..good.clone()
    };
    for (entry, refused) in [(other, true), (good, false)] {
        let texts = IndexEntry {
            bundle_hash: entry.bundle_hash,
            ..skill.texts.clone()
        };
        let index = publisher.world.put_index(&namespace, &vault_id, [texts]);
        let index = index.await;
        let published = publisher
            .try_publish(&publisher.owner, |catalog| {
                catalog.skills = vec![entry];
                catalog.index = index;
            })
            .await;
        let code = published.err().map(|refusal| refusal.code());
        assert_eq!(code, refused.then_some(ErrorCode::CatalogSchema));
    }
    let current = SignedCatalog::parse(&publisher.current_file().await).unwrap();
    let current = current.read_counted(&current.payload_sha256()).unwrap();
    let refused = publisher
        .try_publish(&publisher.owner, |catalog| {
            catalog.skills.clone_from(&current.skills);
            catalog.index.clone_from(&current.index);
            catalog.profiles = vec![ProfileEntry {
                name: "codex".to_owned(),
                agent: "codex".parse().unwrap(),
                bundle_hash: current.index[0].bundle_hash,
                size: current.index[0].size,
            }];
        })
        .await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::CatalogSchema);
}

#[tokio::test]
async fn without_a_subscription_lists_go_on_and_content_stops() {
    let publisher = two_skills().await;
    let shelf = publisher.shelf().await;
    let snapshot = shelf.take_snapshot().await.unwrap();
    let entry = &snapshot.entries()[0];
    shelf.load_skill(entry).await.unwrap();
    let lapse = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    publisher.world.change("acme", lapse).await;
    let shelf = publisher.shelf().await;
    assert!(Arc::ptr_eq(
        &snapshot,
        &shelf.take_snapshot().await.unwrap()
    ));
    assert!(matches!(
        shelf.load_skill(entry).await,
        Err(ShelfError::SubscriptionLapsed)
    ));
    let drafted = shelf.submit(&by("usr_1"), take("alpha", "two")).await;
    assert!(
        matches!(drafted, Ok(Submitted::Drafted { .. })),
        "{drafted:?}"
    );
}

#[tokio::test]
async fn what_was_withdrawn_is_not_loaded_from_an_older_list_either() {
    let publisher = two_skills().await;
    let shelf = publisher.shelf().await;
    let old = shelf.take_snapshot().await.unwrap().entries()[0].clone();
    shelf.load_skill(&old).await.unwrap();
    {
        let mut set = publisher.signed.lock().unwrap();
        set.skills.remove(old.name());
        set.withdrawn.push(Withdrawn {
            name: old.name().clone(),
            bundle_hash: old.texts.bundle_hash,
            reason: "stolen".to_owned(),
            since_release: 2,
        });
    }
    publisher.publish().await;
    let refused = publisher.shelf().await.load_skill(&old).await;
    assert!(
        matches!(refused, Err(ShelfError::NotFound(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_namespace_whose_library_is_elsewhere_is_read_and_not_changed() {
    let publisher = Publisher::new(Kind::SelfSigned).await;
    publisher.put(skill("alpha", "one"), "local:folder").await;
    let shelf = publisher.shelf().await;
    assert_eq!(shelf.write_mode(), Writes::Elsewhere);
    let snapshot = shelf.take_snapshot().await.unwrap();
    shelf.load_skill(&snapshot.entries()[0]).await.unwrap();
    for change in [
        take("alpha", "two"),
        Change::Remove("alpha".parse().unwrap()),
    ] {
        let refused = shelf.submit(&by("usr_1"), change).await;
        assert!(
            matches!(refused, Err(ShelfError::LibraryElsewhere)),
            "{refused:?}"
        );
    }
    let namespace = publisher.namespace().await;
    assert_eq!(
        publisher
            .records(&draft::drafts_partition(&namespace.id))
            .await,
        0
    );
}
