//! The largest vault under the longest chain of root versions, from the push to the pull.

use vault_format::bundle;
use vault_format::bundle::{EncodedBundle, File};
use vault_format::catalog::{
    Catalog, CatalogOutcome, CatalogReader, MAX_OBJECT_BYTES, NewRoots, Schema, Side,
    SignedCatalog, SkillEntry, judge_catalog,
};
use vault_format::hash::Digest;
use vault_format::manifest::{FileEntry, Gate, Manifest, Mode, SignedManifest};
use vault_format::name::Slug;
use vault_format::provenance::Provenance;
use vault_format::root::{MAX_CHAIN_BYTES, RootChain, RootEdit};
use vault_service::model::device::DeviceStatus;
use vault_store::objects::Class;
use vault_testing::memory::shelf::Owner;

use super::empty_desk;

const SKILLS: usize = 10_000;

/// The chain, continued until not even the smallest version fits any more.
fn filled(owner: &Owner) -> RootChain {
    let issued_at = owner.chain().document().issued_at();
    let mut full = owner.chain().clone();
    loop {
        let mut edit = RootEdit::after(&full, issued_at);
        match edit.use_reserve().sign(&[owner.key()]) {
            Ok(longer) => full = longer,
            Err(_) => return full,
        }
    }
}

/// A signed skill of one file, as small as skills are.
fn skill(owner: &Owner, name: &str) -> EncodedBundle {
    let now = owner.chain().document().issued_at();
    let bytes = format!("---\nname: {name}\ndescription: One of many.\n---\n").into_bytes();
    let manifest = Manifest {
        vault_id: owner.vault_id(),
        name: name.parse().unwrap(),
        frontmatter_name: None,
        version: 1,
        signed_at: now,
        files: vec![FileEntry {
            path: "SKILL.md".parse().unwrap(),
            size: bytes.len() as u64,
            sha256: Digest::of(&bytes),
            mode: Mode::Plain,
        }],
        actions: std::collections::BTreeMap::new(),
        agents: Vec::new(),
        rendered_from: None,
        provenance: Provenance {
            identifier: "local:made".parse().unwrap(),
            revision: None,
            fetched_at: now,
        },
        gate: Gate {
            strict: true,
            rules: "structure/1".to_owned(),
            flags: Vec::new(),
            waivers: Vec::new(),
        },
    };
    let signed = SignedManifest::sign(&manifest, owner.key()).unwrap();
    let files = [File {
        path: "SKILL.md".parse().unwrap(),
        mode: Mode::Plain,
        bytes,
    }];
    bundle::encode(&signed, &manifest, &files).unwrap()
}

#[tokio::test]
async fn ten_thousand_skills_under_the_longest_chain_are_published_and_pulled() {
    let desk = empty_desk().await;
    let first = Owner::new(1);
    let owner = first.with_chain(filled(&first));
    let chain = owner.chain();
    assert!(chain.byte_length() > MAX_CHAIN_BYTES - 1_024);
    let mut skills = Vec::new();
    for n in 0..SKILLS {
        let name = format!("skill-{n:05}");
        let encoded = skill(&owner, &name);
        skills.push(SkillEntry {
            name: name.parse().unwrap(),
            version: 1,
            bundle_hash: encoded.hash,
            size: encoded.bytes.len() as u64,
        });
        let world = &desk.world;
        world
            .put_object(&desk.acme, Class::Bundles, encoded.bytes)
            .await;
    }
    let now = desk.world.now();
    let catalog = Catalog {
        schema: Schema,
        vault_id: owner.vault_id(),
        slug: "acme".parse().unwrap(),
        audience: vec!["https://vault.example/v/acme/".to_owned()],
        release: 1,
        issued_at: now,
        expires_at: now.plus_days(90),
        public_key: owner.key().public(),
        root_version: chain.version(),
        root_sha256: *chain.newest().payload_sha256(),
        previous: None,
        skills,
        index: Vec::new(),
        policy: None,
        profiles: Vec::new(),
        withdrawn: Vec::new(),
    };
    let file = SignedCatalog::sign(&catalog, chain, &[owner.key()]).unwrap();
    let bytes = file.to_bytes();
    assert!(bytes.len() < MAX_OBJECT_BYTES, "{}", bytes.len());
    let answer = desk.push_next(bytes.clone()).await;
    assert_eq!(answer.short(), "201", "{:?}", answer.json());
    assert_eq!(answer.json()["added"], SKILLS);

    // A machine that knows version 1 alone takes all of it.
    let machine = desk.world.device("acme", 1, DeviceStatus::Active).await;
    let path = "/v/acme/catalog.json";
    let served = desk.world.ask(&machine, "GET", path).await;
    assert_eq!(
        (served.status.as_u16(), &served.body[..]),
        (200, &bytes[..])
    );
    let (slug, own): (Slug, _) = ("acme".parse().unwrap(), first.state());
    let reader = CatalogReader {
        side: Side::Device,
        base: "https://vault.example",
        slug: &slug,
        now,
        latest_seen_at: None,
        own: Some(&own),
        expected: None,
        last: None,
        accept_fork: false,
    };
    let judged = judge_catalog(&served.body, &reader);
    assert!(matches!(&judged.roots, NewRoots::Now(state) if state.chain() == chain));
    let Ok(CatalogOutcome::Release(release)) = judged.outcome else {
        panic!("{:?}", judged.outcome)
    };
    assert_eq!(release.settle(|_| true).unwrap().catalog, catalog);
    let last = &catalog.skills[SKILLS - 1].bundle_hash;
    let path = format!("/v/acme/bundles/{last}.json");
    let bundle = desk.world.ask(&machine, "GET", &path).await;
    assert_eq!(bundle.status, 200);
}
