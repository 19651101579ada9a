//! Garbage collection: what a proposal names stays while it waits, and goes afterwards like
//! everything else.

use vault_store::objects::{Class, Objects as _};

use super::Place;
use crate::common::partitions::run_work;
use crate::team::id_of;

const DAY: i64 = 24 * 3600;

impl Place {
    /// Lets background work run over the days, a visit each.
    async fn days(&self, days: i64) {
        for _ in 0..days {
            self.desk.world.clock.advance(DAY);
            run_work(&self.desk.world.app).await;
        }
    }

    async fn holds(&self, class: Class, digest: vault_format::hash::Digest) -> bool {
        let namespace = self.desk.world.read_namespace("acme").await;
        let key = namespace.object_key(class, digest);
        self.desk
            .world
            .memory
            .read_object(&key)
            .await
            .unwrap()
            .is_some()
    }
}

#[tokio::test]
async fn what_a_proposal_names_stays_until_it_ends() {
    let place = Place::new().await;
    let beta = place.team.skill("beta", "one");
    let bundle = beta.encoded.hash;
    let catalog = place.team.next(&place.desk.world, 0, &[beta]).await;
    let file = place.team.file(&catalog, &[0]);
    let sha256 = vault_format::hash::Digest::of(&file);
    let answer = place.hand_in(&place.publisher, "release", file).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    // Longer than an upload is kept by itself.
    place.days(13).await;
    assert!(place.holds(Class::Bundles, bundle).await);
    assert!(place.holds(Class::Drafts, sha256).await);
    place.days(1 + 3).await;
    assert!(
        !place.holds(Class::Bundles, bundle).await,
        "14 days have passed"
    );
    assert!(!place.holds(Class::Drafts, sha256).await);
    // What the current release names is another matter.
    let alpha = place.team.skill("alpha", "one").encoded.hash;
    assert!(place.holds(Class::Bundles, alpha).await);
    let objects = place.desk.world.memory.clone();
    let closures = objects
        .list_objects(&place.desk.acme.id, Class::Closures, None, 10)
        .await;
    assert_eq!(
        closures.unwrap().len(),
        1,
        "the list of what it adds goes too"
    );
}

/// Between the two there is no moment at which nothing names the skill.
#[tokio::test]
async fn a_proposal_that_is_published_hands_its_objects_on() {
    let place = Place::new().await;
    let world = &place.desk.world;
    let beta = place.team.skill("beta", "one");
    let bundle = beta.encoded.hash;
    let mut catalog = place.team.next(world, 0, &[beta]).await;
    catalog.expires_at = catalog.issued_at.plus_days(90);
    let proposed = place
        .hand_in(&place.publisher, "release", place.team.file(&catalog, &[0]))
        .await;
    id_of(&proposed);
    place.days(12).await;
    world
        .publish("acme", place.team.file(&catalog, &[0, 1]))
        .await
        .unwrap();
    place.days(40).await;
    assert!(place.holds(Class::Bundles, bundle).await);
}

#[tokio::test]
async fn a_withdrawn_proposal_keeps_nothing() {
    let place = Place::new().await;
    let id = place.proposed(&place.publisher, "one").await;
    let bundle = place.team.skill("beta", "one").encoded.hash;
    assert_eq!(place.withdraw(&place.publisher, &id).await.short(), "200");
    place.days(7 + 3).await;
    assert!(!place.holds(Class::Bundles, bundle).await);
}
