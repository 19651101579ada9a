//! The room beyond the quota after a revocation. Machines run nothing that a revoked key signed, so the
//! vault has to sign it again at once, however full it is.

use serde_json::json;
use vault_format::keys::PublicKey;
use vault_format::root::RevokedKey;
use vault_service::model::namespace::{Namespace, Pinned};
use vault_service::model::release::{Closure, Node, SignedPeaks};
use vault_service::model::usage::Amount;
use vault_service::model::user::Scopes;
use vault_store::objects::Class;
use vault_store::records::RecordKey;

use crate::admin::{ADA, Desk, desk, token};
use crate::common::put;
use crate::maintenance::empty;
use crate::quota::bytes;
use crate::support::{read_file, vector, vector_key};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// A quota that is larger than all releases of a test.
const PLENTY: Amount = Amount {
    bytes: 1 << 30,
    objects: 1000,
};

impl Desk {
    /// The list of objects of the current release.
    async fn closure(&self) -> Closure {
        let namespace = self.world.read_namespace("acme").await;
        let current = namespace.current.as_ref().unwrap();
        let key = namespace.object_key(Class::Closures, current.closure);
        let closure = self.world.uncounted().objects.read_object(&key).await;
        Closure::parse(&closure.unwrap().unwrap()).unwrap()
    }

    /// How much all keys together signed.
    async fn signed(&self) -> Amount {
        self.closure()
            .await
            .measure_revoked(|_| true, PLENTY, self.world.now())
    }

    /// Gives the vault a quota, and lets it use all of it.
    async fn fill(&self, quota: Amount) {
        self.limit(quota.bytes, quota.objects).await;
        let usage = json!({ "tally": { "stored": quota, "unnamed": Amount::default() } });
        let key = RecordKey::new(format!("stored/{}", self.acme.id), "usage");
        put(&self.world.app, key, &usage).await;
    }

    async fn revoke(&self, keys: &[PublicKey]) {
        let revoked = keys.iter().map(RevokedKey::from);
        self.world
            .change("acme", |namespace| {
                let Pinned::Vault(pin) = &mut namespace.pin else {
                    panic!("the vault is pinned");
                };
                pin.revoked.extend(revoked);
            })
            .await;
    }

    /// The status of an upload of a bundle, with different bytes for each `n`.
    async fn put_skill(&self, n: usize, length: u64) -> u16 {
        let bytes = bytes(n, usize::try_from(length).unwrap());
        self.put_bytes("bundles", &bytes).await.status.as_u16()
    }
}

#[tokio::test]
async fn a_full_vault_signs_again_what_a_revoked_key_signed() {
    let desk = desk().await;
    let signed = desk.signed().await;
    desk.limit(1, 1).await;
    assert_eq!(desk.put_skill(1, signed.bytes).await, 413);
    let signers: Vec<_> = desk.closure().await.signers().into_keys().collect();
    desk.revoke(&signers).await;
    // Once, with a little for what each signature adds.
    assert_eq!(desk.put_skill(2, signed.bytes + 1).await, 413);
    assert_eq!(desk.put_skill(1, signed.bytes).await, 201);
    assert_eq!(desk.put_skill(3, 8).await, 413);
    assert_eq!(desk.put_bytes("policies", b"x").await.status, 413);
}

/// A thief publishes with a stolen key before the owner revokes it.
#[tokio::test]
async fn a_release_by_a_thief_that_names_little_leaves_the_owner_room() {
    // As long as the service keeps what the key signed: 30 days.
    for (later, wanted) in [(3 * HOUR, 201), (30 * DAY - 1, 201), (30 * DAY, 413)] {
        let mut desk = desk().await;
        let signed = desk.signed().await;
        let signers: Vec<_> = desk.closure().await.signers().into_keys().collect();
        desk.limit(1, 1).await;
        // However many releases the thief publishes, as one that names nothing hides what is signed.
        for _ in 0..3 {
            let next = desk.world.next(empty).await;
            desk.world.publish("acme", next).await.unwrap();
            desk.world.clock.advance(HOUR);
        }
        let refused = desk.put_skill(1, signed.bytes).await;
        assert_eq!(refused, 413, "nothing is revoked");
        desk.revoke(&signers).await;
        desk.world.clock.advance(later - 3 * HOUR);
        desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
        assert_eq!(desk.put_skill(2, signed.bytes + 1).await, 413);
        assert_eq!(desk.put_skill(1, signed.bytes).await, wanted, "{later}");
    }
}

#[tokio::test]
async fn a_second_revocation_has_room_of_its_own() {
    let desk = desk().await;
    desk.world.clock.advance(HOUR);
    let rotated = vector("catalog-43-rotated.json");
    let (_, chain) = read_file(&rotated);
    desk.world.publish("acme", rotated).await.unwrap();
    let [first, second] = ["release 0", "release 1"].map(|name| vector_key(name).public());
    assert!(chain.ever_released(&first) && chain.ever_released(&second));
    desk.fill(PLENTY).await;
    desk.revoke(&[first]).await;
    let before = desk.closure().await;
    let of_first = before.measure_revoked(|signer| *signer == first, PLENTY, desk.world.now());
    assert_eq!(desk.put_skill(2, of_first.bytes + 1).await, 413);
    assert_eq!(desk.put_skill(1, of_first.bytes).await, 201);
    assert_eq!(desk.put_skill(2, 8).await, 413);
    // A release names the same bundles, all signed by the second key.
    let all = desk.signed().await;
    let mut signed_again = Closure::default();
    for hash in before.bundle_hashes().collect::<Vec<_>>() {
        let node = before.node(Class::Bundles, &hash).unwrap();
        let signer = node.signer.map(|_| second);
        let node = Node {
            signer,
            ..node.clone()
        };
        signed_again.insert(Class::Bundles, hash, node);
    }
    signed_again.signed = SignedPeaks::carried(&before, &signed_again, desk.world.now());
    let stored = signed_again.to_bytes();
    let closure = desk
        .world
        .put_object(&desk.acme, Class::Closures, stored)
        .await;
    let name = |namespace: &mut Namespace| namespace.current.as_mut().unwrap().closure = closure;
    desk.world.change("acme", name).await;
    assert_eq!(desk.put_skill(2, 8).await, 413);
    desk.revoke(&[second]).await;
    assert_eq!(desk.put_skill(3, all.bytes + 1).await, 413);
    assert_eq!(desk.put_skill(3, all.bytes).await, 201);
    assert_eq!(desk.put_skill(2, 8).await, 413);
}
