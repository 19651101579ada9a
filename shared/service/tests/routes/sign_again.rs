//! The room beyond the quota after a revocation. Machines run nothing that a revoked key signed, so the
//! vault has to sign it again at once, however full it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use vault_format::hash::Digest;
use vault_format::keys::{PublicKey, SecretKey};
use vault_format::root::{RevokedKey, VaultId};
use vault_service::model::namespace::{Namespace, Pinned};
use vault_service::model::release::{Closure, Node, SignedPeaks};
use vault_service::model::usage::Amount;
use vault_service::model::user::Scopes;
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey};
use vault_store::records::RecordKey;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::admin::{ADA, Desk, empty_desk, token};
use crate::common::put;
use crate::quota::bytes;
use crate::skills::skill_with_text;
use crate::team::Team;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// A quota that is larger than all releases of a test.
const PLENTY: Amount = Amount {
    bytes: 1 << 30,
    objects: 1000,
};
/// Size of a skill that is as small as some are, in bytes.
const SMALL: u64 = 2000;

/// A vault whose first publisher has signed all skills of its release. The next two publishers have
/// keys that count, and the fourth has left.
struct FullVault {
    desk: Desk,
    team: Team,
}

impl FullVault {
    async fn new() -> Self {
        let desk = empty_desk().await;
        let team = Team::new("acme", 4, 1);
        let left = team.key(3).public();
        let team = team.changed(|edit| {
            edit.retire(&left).unwrap();
        });
        let skills = ["alpha", "beta", "gamma"].map(|name| team.skill(name, "one of three"));
        team.publish(&desk.world, &skills).await;
        Self { desk, team }
    }

    fn vault_id(&self) -> VaultId {
        self.team.chain().vault_id()
    }

    /// The list of objects of the current release.
    async fn closure(&self) -> Closure {
        let namespace = self.desk.world.read_namespace("acme").await;
        let current = namespace.current.as_ref().unwrap();
        let key = namespace.object_key(Class::Closures, current.closure);
        let closure = self.desk.world.uncounted().objects.read_object(&key).await;
        Closure::parse(&closure.unwrap().unwrap()).unwrap()
    }

    /// How much all keys together signed.
    async fn signed(&self) -> Amount {
        let closure = self.closure().await;
        closure.measure_revoked(|_| true, PLENTY, self.desk.world.now())
    }

    /// Gives the vault a quota, and lets it use all of it.
    async fn fill(&self, quota: Amount) {
        self.desk.limit(quota.bytes, quota.objects).await;
        let usage = json!({ "tally": { "stored": quota, "unnamed": Amount::default() } });
        let key = RecordKey::new(format!("stored/{}", self.desk.acme.id), "usage");
        put(&self.desk.world.app, key, &usage).await;
    }

    async fn revoke(&self, keys: &[PublicKey]) {
        let revoked = keys.iter().map(RevokedKey::from);
        self.desk
            .world
            .change("acme", |namespace| {
                let Pinned::Vault(pin) = &mut namespace.pin else {
                    panic!("the vault is pinned");
                };
                pin.revoked.extend(revoked);
            })
            .await;
    }

    /// A skill of the vault that this key signs, and the parts of its file.
    fn skill(&self, key: &SecretKey, name: &str, text: &str) -> (Vec<u8>, Vec<Vec<u8>>) {
        let now = self.desk.world.now();
        let (skill, parts) = skill_with_text(&self.vault_id(), key, (name, text), now);
        let parts = parts.into_iter().map(|part| part.bytes).collect();
        (skill.bytes, parts)
    }

    /// A skill whose bundle has exactly this length, another one for each `n`.
    fn sized_skill(&self, publisher: usize, n: usize, length: u64) -> Vec<u8> {
        let wanted = usize::try_from(length).unwrap();
        let name = format!("skill-{n}");
        let mut filler = 0;
        for _ in 0..8 {
            let text = "x".repeat(filler);
            let (bytes, _) = self.skill(self.team.key(publisher), &name, &text);
            if bytes.len() == wanted {
                return bytes;
            }
            filler = (filler + wanted).checked_sub(bytes.len()).unwrap();
        }
        panic!("no skill has a bundle of {length} bytes");
    }

    /// The status of an upload of a skill of this length that the publisher signed.
    async fn put_skill(&self, publisher: usize, n: usize, length: u64) -> u16 {
        let bytes = self.sized_skill(publisher, n, length);
        self.put_bundle(&bytes).await
    }

    async fn put_bundle(&self, bytes: &[u8]) -> u16 {
        let answer = self.desk.put_bytes("bundles", bytes).await;
        if answer.status == 413 {
            assert_eq!(answer.short(), "413 quota_exceeded");
        }
        answer.status.as_u16()
    }

    async fn store_bundle(&self, bytes: &[u8]) {
        let (world, acme) = (&self.desk.world, &self.desk.acme);
        world.put_object(acme, Class::Bundles, bytes.to_vec()).await;
    }
}

/// The bundle with one text in place of another, which it contains once.
fn replaced(bundle: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = std::str::from_utf8(bundle).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to).into_bytes()
}

#[tokio::test]
async fn a_full_vault_signs_again_what_a_revoked_key_signed() {
    let vault = FullVault::new().await;
    let signed = vault.signed().await;
    vault.desk.limit(1, 1).await;
    assert_eq!(vault.put_skill(1, 1, signed.bytes).await, 413);
    vault.revoke(&[vault.team.key(0).public()]).await;
    // Once, with a little for what each signature adds.
    assert_eq!(vault.put_skill(1, 2, signed.bytes + 1).await, 413);
    assert_eq!(vault.put_skill(1, 1, signed.bytes).await, 201);
    assert_eq!(vault.put_skill(1, 3, SMALL).await, 413);
    assert_eq!(vault.desk.put_bytes("policies", b"x").await.status, 413);
}

/// A token that may write needs no key, and its holder is not always a publisher.
#[tokio::test]
async fn only_what_a_current_publisher_signed_has_the_room_to_sign_again() {
    let vault = FullVault::new().await;
    vault.desk.limit(1, 1).await;
    vault.revoke(&[vault.team.key(0).public()]).await;
    let (good, _) = vault.skill(vault.team.key(1), "good", "text");
    let by = |key: &SecretKey| vault.skill(key, "other", "text").0;
    let padded = [&good[..], b" "].concat();
    let other_vault = VaultId::derive(&Digest::of(b"another"));
    let (of_other_vault, _) = skill_with_text(
        &other_vault,
        vault.team.key(1),
        ("good", "text"),
        vault.desk.world.now(),
    );
    for (what, bytes) in [
        ("plain bytes", b"plain bytes".to_vec()),
        ("a revoked key", by(vault.team.key(0))),
        ("a publisher who has left", by(vault.team.key(3))),
        ("an unknown key", by(&SecretKey::from_seed([9; 32]))),
        ("a skill of another vault", of_other_vault.bytes),
        (
            "other files",
            replaced(&good, "One of many.", "Two of many."),
        ),
        ("a space behind the bundle", padded),
        (
            "a member of the bundle that nothing reads",
            replaced(&good, r#"{"schema":"#, r#"{"more":"bytes","schema":"#),
        ),
        (
            "a space in the envelope",
            replaced(&good, r#"{"payloadType":"#, r#"{ "payloadType":"#),
        ),
        (
            "a member of the envelope that no signature covers",
            replaced(
                &good,
                r#"{"payloadType":"#,
                r#"{"more":"bytes","payloadType":"#,
            ),
        ),
    ] {
        assert_eq!(vault.put_bundle(&bytes).await, 413, "{what}");
    }
    assert_eq!(vault.put_bundle(&good).await, 201);
    // What is there already needs no room, whatever it is.
    let (second, _) = vault.skill(vault.team.key(2), "second", "text");
    let (good, second, plain) = (Bytes::from(good), Bytes::from(second), bytes(1, 8));
    let mixed = vault.desk.put_pack(&[&second, &plain]).await;
    assert_eq!(mixed.short(), "413 quota_exceeded");
    assert_eq!(vault.put_bundle(&plain).await, 413);
    let answer = vault.desk.put_pack(&[&good, &second]).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
}

/// The parts of a large file are the same after the skill is signed again.
#[tokio::test]
async fn a_skill_with_large_files_is_signed_again_over_its_stored_parts() {
    let vault = FullVault::new().await;
    let large = "0123456789abcde\n".repeat(80_000);
    let (bundle, parts) = vault.skill(vault.team.key(1), "large", &large);
    let [part] = parts.as_slice() else {
        panic!("one part");
    };
    let other_text = large.replace('0', "1");
    let (_, others) = vault.skill(vault.team.key(1), "large", &other_text);
    // Parts with other content, of the same size, and parts that are no parts.
    let no_part = bytes(7, part.len());
    for invented in [&others[0][..], &no_part] {
        vault.store_bundle(invented).await;
    }
    vault.desk.limit(1, 1).await;
    vault.revoke(&[vault.team.key(0).public()]).await;
    assert_eq!(vault.put_bundle(&bundle).await, 413, "its part is missing");
    assert_eq!(vault.put_bundle(part).await, 413, "a part has no room");
    let name = Digest::of(part).to_string();
    for invented in [&others[0][..], &no_part] {
        let invented = replaced(&bundle, &name, &Digest::of(invented).to_string());
        assert_eq!(vault.put_bundle(&invented).await, 413, "invented parts");
    }
    vault.store_bundle(part).await;
    assert_eq!(vault.put_bundle(&bundle).await, 201);
}

/// The service reads as many bytes as an upload names, and a token needs no key to repeat one.
#[tokio::test]
async fn checking_what_is_signed_again_uses_the_budget_for_checks() {
    let mut vault = FullVault::new().await;
    let large = "0123456789abcde\n".repeat(80_000);
    let (bundle, parts) = vault.skill(vault.team.key(1), "large", &large);
    let no_part = bytes(7, parts[0].len());
    let name = Digest::of(&parts[0]).to_string();
    let invented = replaced(&bundle, &name, &Digest::of(&no_part).to_string());
    vault.store_bundle(&no_part).await;
    vault.desk.limit(1, 1).await;
    vault.revoke(&[vault.team.key(0).public()]).await;
    let mut config = (*vault.desk.world.app.config).clone();
    config.limits.gate_gib_per_namespace = 1;
    vault.desk.world.app.config = config.into();
    vault.desk.world.router = vault_service::router(vault.desk.world.app.clone());
    assert_eq!(vault.put_bundle(&invented).await, 413);
    // The first check leaves too little of the three quarters of the budget that are for apps.
    let each = (invented.len() + no_part.len()) as u64;
    let (app, rest) = (&vault.desk.world.app, (3 << 30) / 4 - each);
    app.budgets
        .settle_gate_work(vault.desk.acme.id, 0, rest, app.now());
    let answer = vault.desk.put_bytes("bundles", &invented).await;
    assert_eq!(answer.status, 429);
}

/// Counts how often one object is read.
struct Reads {
    key: ObjectKey,
    count: AtomicUsize,
}

#[async_trait]
impl Hook for Reads {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if matches!(call, Call::Get(key) if *key == self.key) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// A skill and its parts take much memory, so another tenant's check comes first.
#[tokio::test]
async fn skills_that_are_signed_again_are_checked_one_at_a_time() {
    let mut vault = FullVault::new().await;
    let large = "0123456789abcde\n".repeat(80_000);
    let (bundle, parts) = vault.skill(vault.team.key(1), "large", &large);
    vault.store_bundle(&parts[0]).await;
    vault.desk.limit(1, 1).await;
    vault.revoke(&[vault.team.key(0).public()]).await;
    let part = ObjectKey::for_bytes(vault.desk.acme.id, Class::Bundles, &parts[0]);
    let reads = Arc::new(Reads {
        key: part,
        count: AtomicUsize::new(0),
    });
    let world = &mut vault.desk.world;
    world.app.ports.objects = Hooked::new(&world.memory, reads.clone());
    world.router = vault_service::router(world.app.clone());
    let other = vault.desk.other.id;
    let turn = vault.desk.world.app.enter_signed_again(&other).await;
    let turn = turn.unwrap();
    let wait = async {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let before = reads.count.load(Ordering::SeqCst);
        drop(turn);
        before
    };
    let (status, before) = tokio::join!(vault.put_bundle(&bundle), wait);
    assert_eq!((status, before), (201, 0));
    assert_eq!(reads.count.load(Ordering::SeqCst), 1);
}

/// A thief publishes with a stolen key before the owner revokes it.
#[tokio::test]
async fn a_release_by_a_thief_that_names_little_leaves_the_owner_room() {
    // As long as the service keeps what the key signed: 30 days.
    for (later, wanted) in [(3 * HOUR, 201), (30 * DAY - 1, 201), (30 * DAY, 413)] {
        let mut vault = FullVault::new().await;
        let signed = vault.signed().await;
        vault.desk.limit(1, 1).await;
        // However many releases the thief publishes, as one that names nothing hides what is signed.
        for _ in 0..3 {
            vault.team.publish(&vault.desk.world, &[]).await;
            vault.desk.world.clock.advance(HOUR);
        }
        let refused = vault.put_skill(1, 1, signed.bytes).await;
        assert_eq!(refused, 413, "nothing is revoked");
        vault.revoke(&[vault.team.key(0).public()]).await;
        vault.desk.world.clock.advance(later - 3 * HOUR);
        vault.desk.owner = token(&vault.desk.world, ADA, "acme", Scopes::ALL).await;
        assert_eq!(vault.put_skill(1, 2, signed.bytes + 1).await, 413);
        let answered = vault.put_skill(1, 1, signed.bytes).await;
        assert_eq!(answered, wanted, "{later}");
    }
}

#[tokio::test]
async fn a_second_revocation_has_room_of_its_own() {
    let vault = FullVault::new().await;
    let [first, second] = [0, 1].map(|publisher| vault.team.key(publisher).public());
    vault.fill(PLENTY).await;
    vault.revoke(&[first]).await;
    let (before, now) = (vault.closure().await, vault.desk.world.now());
    let of_first = before.measure_revoked(|signer| *signer == first, PLENTY, now);
    assert_eq!(vault.put_skill(1, 2, of_first.bytes + 1).await, 413);
    assert_eq!(vault.put_skill(1, 1, of_first.bytes).await, 201);
    assert_eq!(vault.put_skill(1, 2, SMALL).await, 413);
    // A release names the same bundles, all signed by the second key.
    let all = vault.signed().await;
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
    signed_again.signed = SignedPeaks::carried(&before, &signed_again, now);
    let (world, stored) = (&vault.desk.world, signed_again.to_bytes());
    let closure = world
        .put_object(&vault.desk.acme, Class::Closures, stored)
        .await;
    let name = |namespace: &mut Namespace| namespace.current.as_mut().unwrap().closure = closure;
    world.change("acme", name).await;
    assert_eq!(vault.put_skill(2, 2, SMALL).await, 413);
    vault.revoke(&[second]).await;
    assert_eq!(vault.put_skill(2, 3, all.bytes + 1).await, 413);
    assert_eq!(vault.put_skill(2, 3, all.bytes).await, 201);
    assert_eq!(vault.put_skill(2, 2, SMALL).await, 413);
}
