//! The largest vault under the longest chain of root versions, from the push to the pull.

use vault_format::catalog::{
    Catalog, CatalogOutcome, CatalogReader, MAX_OBJECT_BYTES, NewRoots, ReaderKind, Schema,
    SignedCatalog, judge_catalog,
};
use vault_format::name::Slug;
use vault_format::root::{MAX_CHAIN_BYTES, RootChain, RootEdit};
use vault_service::model::device::DeviceStatus;
use vault_store::objects::Class;
use vault_testing::memory::shelf::Owner;

use super::empty_desk;
use crate::skills::plain_skill;

const SKILLS: usize = 10_000;

/// The chain, continued until not even the smallest version fits any more.
fn filled(owner: &Owner) -> RootChain {
    let issued_at = owner.chain().document().issued_at();
    let mut full = owner.chain().clone();
    loop {
        let mut edit = RootEdit::begin_after(&full, issued_at);
        match edit.use_reserve().sign(&[owner.key()]) {
            Ok(longer) => full = longer,
            Err(_) => return full,
        }
    }
}

#[tokio::test]
async fn ten_thousand_skills_under_the_longest_chain_are_published_and_pulled() {
    let desk = empty_desk().await;
    let first = Owner::new(1);
    let owner = first.with_chain(filled(&first));
    let chain = owner.chain();
    assert!(chain.byte_length() > MAX_CHAIN_BYTES - 1_024);
    let (mut skills, mut texts) = (Vec::new(), Vec::new());
    let signed_at = owner.chain().document().issued_at();
    for n in 0..SKILLS {
        let name = format!("skill-{n:05}");
        let skill = plain_skill(&owner.vault_id(), owner.key(), &name, signed_at);
        let world = &desk.world;
        world
            .put_object(&desk.acme, Class::Bundles, skill.bytes)
            .await;
        skills.push(skill.entry);
        texts.push(skill.texts);
    }
    let vault_id = owner.vault_id();
    let index = desk.world.put_index(&desk.acme, &vault_id, texts).await;
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
        index,
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
        side: ReaderKind::Device,
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
    assert_eq!(release.settle_versions(|_| true).unwrap().catalog, catalog);
    let last = &catalog.skills[SKILLS - 1].bundle_hash;
    let path = format!("/v/acme/bundles/{last}.json");
    let bundle = desk.world.ask(&machine, "GET", &path).await;
    assert_eq!(bundle.status, 200);
}
