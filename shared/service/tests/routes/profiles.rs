//! Profiles of releases: what a publish reads of them, and that nothing goes unchecked for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use vault_format::catalog::{Catalog, ObjectEntry, ReleaseRef, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::keys::SecretKey;
use vault_format::root::{KeyEntry, RootEdit};
use vault_policy::profile::{Profile, ProfileSkill};
use vault_service::model::namespace::{Kind, Namespace, Pinned};
use vault_store::StoreError;
use vault_store::objects::{Class, Objects as _};
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::support::{World, file_of, key, read_file, vector, vector_key, world};

/// The bundle of `code-review`, and its variant for `claude-code`.
const PLAIN: &str = "f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703";
const VARIANT: &str = "92799e0874198a739b8c8b89de79709191cd65e8e2457f99b8414d38a74e2cec";

/// Writes down which objects are read.
#[derive(Default)]
struct ReadObjects(Mutex<Vec<Digest>>);

#[async_trait]
impl Hook for ReadObjects {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if let Call::Get(key) = call {
            self.0.lock().unwrap().push(key.digest);
        }
        Ok(())
    }
}

impl ReadObjects {
    fn take(&self) -> Vec<Digest> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A vault whose release 43 has a variant, with the readings of its objects from then on.
async fn published_variant() -> (World, Namespace, Arc<ReadObjects>) {
    let mut world = world();
    let namespace = world.namespace("acme", Kind::Hosted).await;
    world.put_vectors(&namespace).await;
    world.clock.advance(3600);
    world
        .publish("acme", vector("catalog-43-rotated.json"))
        .await
        .unwrap();
    let read = Arc::new(ReadObjects::default());
    let hooked = Hooked::new(&world.memory, Arc::clone(&read));
    world.app.ports.objects = hooked;
    (world, namespace, read)
}

fn skill(bundle: &str, size: u64) -> ProfileSkill {
    ProfileSkill {
        name: "code-review".parse().unwrap(),
        bundle_hash: bundle.parse().unwrap(),
        size,
    }
}

/// Publishes the release after 43 with a changed catalog, and one profile of these skills.
async fn publish_next(
    world: &World,
    namespace: &Namespace,
    agent: &str,
    skills: Vec<ProfileSkill>,
    change: impl FnOnce(&mut Catalog),
) -> Option<&'static str> {
    let profile = Profile {
        name: "next".to_owned(),
        agent: agent.parse().unwrap(),
        skills,
    };
    let bytes = profile.to_object();
    let size = bytes.len() as u64;
    let hash = world.put_object(namespace, Class::Bundles, bytes).await;
    let current = vector("catalog-43-rotated.json");
    let (mut catalog, chain) = read_file(&current);
    catalog.release = 44;
    catalog.previous = Some(ReleaseRef {
        release: 43,
        payload_sha256: SignedCatalog::parse(&current).unwrap().payload_sha256(),
    });
    let entry = &mut catalog.profiles[0];
    (entry.name, entry.agent) = (profile.name, profile.agent);
    (entry.bundle_hash, entry.size) = (hash, size);
    change(&mut catalog);
    let file = file_of(&catalog, &chain, &vector_key("release 1"));
    let refused = world.publish("acme", file).await.err();
    refused.map(|refusal| refusal.code().row().code)
}

#[tokio::test]
async fn a_publish_reads_no_bundle_that_the_last_release_has() {
    let (world, namespace, read) = published_variant().await;
    let skills = vec![skill(VARIANT, 2293)];
    let refused = publish_next(&world, &namespace, "claude-code", skills, |_| {}).await;
    assert_eq!(refused, None);
    let read: BTreeSet<_> = read.take().into_iter().collect();
    // The catalog, the list of its objects, the index and the changed profile.
    assert!(!read.is_empty() && read.len() <= 5, "{read:?}");
    assert!(!read.contains(&VARIANT.parse().unwrap()), "{read:?}");
    let (catalog, _) = read_file(&vector("catalog-43-rotated.json"));
    for skill in &catalog.skills {
        assert!(!read.contains(&skill.bundle_hash), "{}", skill.name);
    }
}

/// What is taken over unread is compared with the new catalog all the same.
#[tokio::test]
async fn a_variant_of_the_last_release_is_refused_where_it_does_not_fit() {
    let (world, namespace, read) = published_variant().await;
    let variant = || vec![skill(VARIANT, 2293)];
    let refused = publish_next(&world, &namespace, "codex", variant(), |_| {}).await;
    assert_eq!(refused, Some("catalog_schema"), "of another agent");
    assert!(!read.take().contains(&VARIANT.parse().unwrap()));
    let refused = publish_next(&world, &namespace, "claude-code", variant(), |catalog| {
        let skills = &mut catalog.skills;
        let plain = skills
            .iter_mut()
            .find(|it| it.name.as_str() == "code-review");
        plain.unwrap().version += 1;
    });
    assert_eq!(refused.await, Some("catalog_schema"), "of another version");
    let refused = publish_next(
        &world,
        &namespace,
        "claude-code",
        vec![skill(VARIANT, 2294)],
        |_| {},
    );
    assert_eq!(refused.await, Some("objects_missing"), "of another size");
    // A plain skill of the last release is no variant.
    let refused = publish_next(
        &world,
        &namespace,
        "claude-code",
        vec![skill(PLAIN, 1797)],
        |catalog| {
            catalog
                .skills
                .retain(|it| it.name.as_str() != "code-review");
        },
    );
    assert_eq!(refused.await, Some("catalog_schema"), "a plain skill");
}

/// A person may publish two vaults with one key. What was checked for the vault that the pin was
/// reset from does not count for the other one.
#[tokio::test]
async fn nothing_of_another_vault_is_taken_over_after_a_reset_of_the_pin() {
    let (world, namespace, _) = published_variant().await;
    let (mut catalog, _) = read_file(&vector("catalog-43-rotated.json"));
    let publisher = vector_key("release 1");
    let entry = |key: &SecretKey, name: &str| KeyEntry {
        public_key: key.public(),
        name: name.parse().unwrap(),
    };
    let mut edit = RootEdit::begin_first(catalog.issued_at);
    edit.add_root_key(entry(&key(9), "root")).unwrap();
    edit.add_publisher(entry(&publisher, "publisher")).unwrap();
    // Both keys signed skills of the former vault.
    edit.add_publisher(entry(&vector_key("release 0"), "former"))
        .unwrap();
    let chain = edit.sign(&[&key(9)]).unwrap();
    let mut entries = Vec::new();
    for part in &catalog.index {
        let at = namespace.object_key(Class::Bundles, part.bundle_hash);
        let bytes = world.memory.read_object(&at).await.unwrap().unwrap();
        entries.extend(index::parse_object(&bytes, &catalog.vault_id).unwrap());
    }
    catalog.vault_id = chain.vault_id();
    (catalog.release, catalog.previous, catalog.root_version) = (1, None, 1);
    catalog.root_sha256 = *chain.newest().payload_sha256();
    catalog.public_key = publisher.public();
    catalog.index.clear();
    for bytes in index::build_objects(&catalog.vault_id, entries) {
        let size = bytes.len() as u64;
        let bundle_hash = world.put_object(&namespace, Class::Bundles, bytes).await;
        catalog.index.push(ObjectEntry { bundle_hash, size });
    }
    world
        .change("acme", |namespace| namespace.pin = Pinned::Nothing)
        .await;
    let file = file_of(&catalog, &chain, &publisher);
    let refused = world.publish("acme", file).await.unwrap_err();
    let code = refused.code().row().code;
    assert!(
        ["catalog_schema", "catalog_signer"].contains(&code),
        "{code}"
    );
}
