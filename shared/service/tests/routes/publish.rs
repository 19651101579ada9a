//! Publishing: what is refused, in which order, and that a refusal changes nothing.

use std::collections::BTreeSet;

use base64::Engine as _;
use serde_json::{Value, json};
use vault_format::catalog::SignedCatalog;
use vault_format::hash::Digest;
use vault_policy::profile::{Profile, ProfileSkill};
use vault_service::config::Config;
use vault_service::model::namespace::{Kind, Namespace, Subscription};
use vault_service::model::release::{self, Release};
use vault_service::publish::Precondition;
use vault_store::objects::{Class, Objects as _};

use crate::support::{
    World, big_table_parts, file_of, read_file, resigned, vector, vector_json, vector_key, world,
    world_with,
};

/// A service in the state that a case of the vectors describes: the stored file with its root
/// versions, address, clock.
async fn world_of(context: &Value) -> World {
    let base = context["base"].as_str().unwrap().to_owned();
    let world = world_with(|config: &mut Config| config.public_url = base.parse().unwrap());
    world
        .clock
        .set(context["now"].as_str().unwrap().parse().unwrap());
    let slug = context["slug"].as_str().unwrap();
    let namespace = world.namespace(slug, Kind::Hosted).await;
    world.put_vectors(&namespace).await;
    if let Some(stored) = context["stored"].as_str() {
        let bytes = vector(stored);
        let (catalog, chain) = read_file(&bytes);
        let root = chain.find(&catalog.root_sha256).unwrap();
        let signers = SignedCatalog::parse(&bytes)
            .unwrap()
            .valid_signers(root.document().release().keys());
        let revoked = BTreeSet::new();
        world
            .make_current(&namespace, bytes, signers, revoked)
            .await;
    }
    world
}

fn merged(default: &Value, case: &Value) -> Value {
    let mut context = default.clone();
    if let Some(own) = case["context"].as_object() {
        for (name, value) in own {
            context[name] = value.clone();
        }
    }
    context["side"] = "service".into();
    context
}

fn bytes_of(case: &Value) -> Vec<u8> {
    if let Some(text) = case["bytes"].as_str() {
        return text.as_bytes().to_vec();
    }
    match case["bytes_base64"].as_str() {
        Some(text) => base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap(),
        None => vector(case["file"].as_str().unwrap()),
    }
}

/// What the service has, to compare before and after a refusal.
async fn state(world: &World, slug: &str) -> (Namespace, usize) {
    let namespace = world.read_namespace(slug).await;
    let releases = world
        .app
        .records
        .list_page(&release::releases_partition(&namespace.id), "", None, 1000)
        .await
        .unwrap()
        .len();
    (namespace, releases)
}

#[tokio::test]
async fn every_catalog_that_the_vectors_refuse_is_refused_with_its_word_and_changes_nothing() {
    let negative = vector_json("formats/negative.json");
    let mut words = BTreeSet::new();
    for case in negative["cases"].as_array().unwrap() {
        // A service has one clock; only a device remembers a later time than its clock shows.
        if case["kind"] != "catalog" || case["context"]["latest_seen_at"].is_string() {
            continue;
        }
        let context = merged(&negative["context"], case);
        let world = world_of(&context).await;
        let slug = context["slug"].as_str().unwrap();
        let before = state(&world, slug).await;
        let refusal = world
            .publish(slug, bytes_of(case))
            .await
            .expect_err(&case["id"].to_string());
        let word = refusal.code().row().code;
        assert_eq!(word, case["error"].as_str().unwrap(), "{}", case["id"]);
        words.insert(word);
        assert_eq!(state(&world, slug).await, before, "{}", case["id"]);
    }
    assert_eq!(
        Vec::from_iter(words),
        [
            "catalog_audience",
            "catalog_clock",
            "catalog_key",
            "catalog_previous",
            "catalog_release",
            "catalog_schema",
            "catalog_slug",
            "catalog_vault_id",
            "catalog_withdrawn",
            "release_expired",
            "signatures_missing",
        ]
    );
}

#[tokio::test]
async fn every_catalog_that_the_vectors_publish_is_published() {
    let accept = vector_json("formats/accept.json");
    let mut published = 0;
    for case in accept["cases"].as_array().unwrap() {
        if case["kind"] != "catalog" || case["context"]["side"] != "service" {
            continue;
        }
        let context = merged(&accept["context"], case);
        let world = world_of(&context).await;
        let slug = context["slug"].as_str().unwrap();
        world
            .publish(slug, bytes_of(case))
            .await
            .unwrap_or_else(|refusal| panic!("{}: {refusal:?}", case["why"]));
        let namespace = world.read_namespace(slug).await;
        let (pin, current) = (
            namespace.pin.vault_pin().unwrap(),
            namespace.current.as_ref().unwrap(),
        );
        let result = &case["result"];
        assert_eq!(
            json!(pin.signers),
            json!([result["public_key"]]),
            "{}",
            case["why"]
        );
        assert_eq!(json!(pin.root_version), result["root_version"]);
        assert_eq!(
            json!({ "release": current.release, "payload_sha256": current.payload_sha256 }),
            result["stored"]
        );
        published += 1;
    }
    assert_eq!(published, 4);
}

#[tokio::test]
async fn releases_follow_one_another_and_say_what_changed() {
    let world = world();
    world.acme().await;
    world.clock.advance(3600);
    let published = world
        .publish("acme", vector("catalog-43-rotated.json"))
        .await
        .unwrap();
    assert!(!published.is_first);
    insta::assert_json_snapshot!(published.release, @r#"
    {
      "release": 43,
      "root_version": 2,
      "sha256": "4dfb3ff33360646de6d508068158b55320d224d2ebf4973dbfcc161a9a9c0aa5",
      "payload_sha256": "438fa91c6a490f10ab8e1eb06dddee835e6524fb466f2e4409d21fd096d05510",
      "published_at": "2026-11-21T03:00:10Z",
      "by": "usr_test",
      "added": 3,
      "changed": 0,
      "removed": 0,
      "skills": 4,
      "signers": [
        "pub:btr7-mv4p-7tzc-jzqi-dg5i-m6ff-3zv5-6e6v"
      ]
    }
    "#);
    world.clock.advance(23 * 3600);
    let published = world
        .publish("acme", vector("catalog-44-withdrawn.json"))
        .await
        .unwrap();
    assert_eq!(
        (
            published.release.added,
            published.release.changed,
            published.release.removed
        ),
        (0, 0, 1)
    );
    let namespace = world.read_namespace("acme").await;
    let current = namespace.current.unwrap();
    assert_eq!(
        (current.release, current.skills, current.size),
        (44, 3, 4668)
    );
    let records = world
        .app
        .records
        .list_page(&release::releases_partition(&namespace.id), "", None, 10)
        .await
        .unwrap();
    let numbers: Vec<_> = records
        .iter()
        .map(|record| record.read::<Release>().unwrap().release)
        .collect();
    assert_eq!(numbers, [42, 43, 44]);
    let audit = world
        .app
        .records
        .list_page(&format!("audit/{}", namespace.id), "", None, 10)
        .await
        .unwrap();
    let last: Value = audit[2].read().unwrap();
    assert_eq!(
        (&last["action"], &last["actor"], &last["outcome"]),
        (
            &json!("catalog.publish"),
            &json!("usr_test"),
            &json!("done")
        )
    );
    assert_eq!(
        (&last["before"]["release"], &last["after"]["release"]),
        (&json!(43), &json!(44))
    );
}

/// Transitively: a skill, an index, a policy, a profile, a profile's variant, a skill's part.
#[tokio::test]
async fn every_object_that_a_release_names_must_be_there_with_its_size() {
    let part = Digest::of(&big_table_parts()[0]);
    for (class, hash) in [
        (
            Class::Bundles,
            "f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703"
                .parse()
                .unwrap(),
        ),
        (
            Class::Bundles,
            "d5220c4acec69fcb03020aa0f346d1c2a56e55eb68957287ce8b443f827bc35e"
                .parse()
                .unwrap(),
        ),
        (
            Class::Policies,
            "b9225b67c4d0cccafabb0e376e292f0c845c06082e50e23fa584dfbccdb5a462"
                .parse()
                .unwrap(),
        ),
        (
            Class::Bundles,
            "99e6002e884f08d908975cf4cbf43802e3fc2d7a71650e71c7915a0d482d8915"
                .parse()
                .unwrap(),
        ),
        (
            Class::Bundles,
            "92799e0874198a739b8c8b89de79709191cd65e8e2457f99b8414d38a74e2cec"
                .parse()
                .unwrap(),
        ),
        (Class::Bundles, part),
    ] {
        let world = world();
        let namespace = world.namespace("acme", Kind::Hosted).await;
        world.clock.advance(3600);
        world.put_vectors(&namespace).await;
        world
            .memory
            .delete_object(&namespace.object_key(class, hash))
            .await
            .unwrap();
        let before = state(&world, "acme").await;
        let refusal = world
            .publish("acme", vector("catalog-43-rotated.json"))
            .await
            .unwrap_err();
        let problem: Value = serde_json::from_slice(&refusal.problem("id")).unwrap();
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&json!(409), &json!("objects_missing"))
        );
        assert_eq!(problem["missing"], json!([hash]));
        assert_eq!(state(&world, "acme").await, before);
    }
}

#[tokio::test]
async fn another_size_or_another_kind_of_object_is_refused() {
    let world = world();
    let namespace = world.namespace("acme", Kind::Hosted).await;
    world.put_vectors(&namespace).await;
    let other_size = resigned("catalog-42.json", |catalog| catalog.skills[0].size += 1);
    let refusal = world.publish("acme", other_size).await.unwrap_err();
    assert_eq!(refusal.code().row().code, "objects_missing");
    let index_as_skill = resigned("catalog-42.json", |catalog| {
        (catalog.skills[0].bundle_hash, catalog.skills[0].size) =
            (catalog.index[0].bundle_hash, catalog.index[0].size);
    });
    let refusal = world.publish("acme", index_as_skill).await.unwrap_err();
    assert_eq!(refusal.code().row().code, "catalog_schema");
}

/// The service refuses what machines refuse: both run the checks of `vault_policy::published`.
#[tokio::test]
async fn a_profile_that_does_not_fit_the_release_is_refused() {
    const VARIANT: &str = "92799e0874198a739b8c8b89de79709191cd65e8e2457f99b8414d38a74e2cec";
    let variant = ProfileSkill {
        name: "code-review".parse().unwrap(),
        bundle_hash: VARIANT.parse().unwrap(),
        size: 2293,
    };
    let named = |agent: &str, skill: &ProfileSkill| Profile {
        name: "one".to_owned(),
        agent: agent.parse().unwrap(),
        skills: vec![skill.clone()],
    };
    let plain = ProfileSkill {
        bundle_hash: "f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703"
            .parse()
            .unwrap(),
        size: 1797,
        ..variant.clone()
    };
    let unlisted = ProfileSkill {
        name: "commit-log".parse().unwrap(),
        ..variant.clone()
    };
    for (profile, agent, status) in [
        (named("claude-code", &variant), "claude-code", None),
        (named("codex", &plain), "codex", None),
        // The variant was rendered for claude-code.
        (named("codex", &variant), "codex", Some("catalog_schema")),
        (named("codex", &plain), "cursor", Some("catalog_schema")),
        (named("codex", &unlisted), "codex", Some("catalog_schema")),
    ] {
        let world = world();
        let namespace = world.namespace("acme", Kind::Hosted).await;
        world.put_vectors(&namespace).await;
        let bytes = profile.to_object();
        let size = bytes.len() as u64;
        let hash = world.put_object(&namespace, Class::Bundles, bytes).await;
        world.clock.advance(3600);
        let (mut catalog, chain) = read_file(&vector("catalog-43-rotated.json"));
        let entry = &mut catalog.profiles[0];
        (entry.bundle_hash, entry.size) = (hash, size);
        entry.name = "one".to_owned();
        entry.agent = agent.parse().unwrap();
        let bytes = file_of(&catalog, &chain, &vector_key("release 1"));
        let before = state(&world, "acme").await;
        let refused = world.publish("acme", bytes).await.err();
        assert_eq!(refused.as_ref().map(|it| it.code().row().code), status);
        if status.is_some() {
            assert_eq!(state(&world, "acme").await, before);
        }
    }
}

#[tokio::test]
async fn at_most_a_thousand_missing_objects_are_listed() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    let catalog = resigned("catalog-42.json", |catalog| {
        catalog.skills = (0..1500u32)
            .map(|n| {
                let mut skill = catalog.skills[0].clone();
                skill.name = format!("skill-{n:04}").parse().unwrap();
                skill.bundle_hash = Digest::of(&n.to_be_bytes());
                skill
            })
            .collect();
    });
    let refusal = world.publish("acme", catalog).await.unwrap_err();
    let problem: Value = serde_json::from_slice(&refusal.problem("id")).unwrap();
    assert_eq!(problem["missing"].as_array().unwrap().len(), 1000);
}

#[tokio::test]
async fn preconditions_name_the_current_catalog() {
    let world = world();
    world.acme().await;
    let current = world.current("acme").await;
    let next = vector("catalog-43-rotated.json");
    world.clock.advance(3600);
    for precondition in [
        Precondition::NothingYet,
        Precondition::Never,
        Precondition::Current(Digest::of(b"other")),
    ] {
        let refusal = world
            .publish_if("acme", next.clone(), precondition)
            .await
            .unwrap_err();
        let problem: Value = serde_json::from_slice(&refusal.problem("id")).unwrap();
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&json!(412), &json!("release_conflict"))
        );
        assert_eq!(
            problem["current"],
            json!({ "release": 42, "sha256": current.sha256, "payload_sha256": current.payload_sha256 })
        );
    }
    world
        .publish_if("acme", next, Precondition::Current(current.sha256))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_lapsed_subscription_comes_before_the_precondition_and_a_quota_after_all() {
    let world = world();
    let acme = world.acme().await;
    world.clock.advance(3600);
    let next = vector("catalog-43-rotated.json");
    let change = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    world.change("acme", change).await;
    let refusal = world
        .publish_if("acme", next.clone(), Precondition::Never)
        .await
        .unwrap_err();
    assert_eq!(
        (refusal.status().as_u16(), refusal.code().row().code),
        (402, "subscription_lapsed")
    );
    world
        .change("acme", |namespace| {
            namespace.subscription = Subscription::Active;
        })
        .await;
    world.fill_storage(&acme).await;
    let refusal = world.publish("acme", next.clone()).await.unwrap_err();
    assert_eq!(
        (refusal.status().as_u16(), refusal.code().row().code),
        (413, "quota_exceeded")
    );
    let change = |namespace: &mut Namespace| namespace.quota.bytes = Some(2 << 30);
    world.change("acme", change).await;
    world.publish("acme", next).await.unwrap();
}

/// Two pushes at once: one release, one refusal with what is current now, every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_publishes_race_and_one_wins() {
    for _ in 0..50 {
        let world = world();
        world.namespace("acme", Kind::Hosted).await;
        let at = world.now();
        let catalog = |days| {
            resigned("catalog-1-first.json", |catalog| {
                catalog.issued_at = at;
                catalog.expires_at = at.plus_days(days);
            })
        };
        let (one, other) = tokio::join!(
            world.publish_if("acme", catalog(90), Precondition::NothingYet),
            world.publish_if("acme", catalog(91), Precondition::NothingYet),
        );
        let (won, lost) = match (one, other) {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            both => panic!("{both:?}"),
        };
        assert_eq!(lost.code().row().code, "release_conflict");
        let problem: Value = serde_json::from_slice(&lost.problem("id")).unwrap();
        assert_eq!(problem["current"]["sha256"], json!(won.release.sha256));
        assert_eq!(world.current("acme").await.sha256, won.release.sha256);
    }
}

/// A change of the record that is not a release (a subscription, a quota) does not cost the owner
/// the publish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_changes_of_the_namespace_do_not_make_a_publish_fail() {
    for _ in 0..20 {
        let world = world();
        world.acme().await;
        world.clock.advance(3600);
        let (published, ()) = tokio::join!(
            world.publish("acme", vector("catalog-43-rotated.json")),
            async {
                for quota in 0..3 {
                    tokio::task::yield_now().await;
                    world
                        .change("acme", |namespace| {
                            namespace.quota.bytes = Some(10_000_000 + quota);
                        })
                        .await;
                }
            }
        );
        published.unwrap();
        assert_eq!(
            world.read_namespace("acme").await.quota.bytes,
            Some(10_000_002)
        );
    }
}

#[tokio::test]
async fn a_catalog_over_4_mib_is_413() {
    let world = world();
    world.namespace("acme", Kind::Hosted).await;
    let refusal = world
        .publish("acme", vec![b' '; 4 * 1024 * 1024 + 1])
        .await
        .unwrap_err();
    assert_eq!(refusal.code().row().code, "body_too_large");
}

#[tokio::test]
async fn a_slug_that_nobody_has_is_404() {
    let refusal = world()
        .publish_if(
            "nobody",
            vector("catalog-42.json"),
            Precondition::NothingYet,
        )
        .await
        .unwrap_err();
    assert_eq!(refusal.status().as_u16(), 404);
}
