//! `…/catalog`: reading the current catalog, and pushing the next.

use serde_json::{Value, json};
use vault_format::catalog::{Catalog, ReleaseRef};
use vault_format::hash::Digest;
use vault_service::model::namespace::{Kind, Namespace, Subscription};
use vault_store::objects::Class;
use vault_testing::memory::shelf::Owner;

use super::{Desk, desk, desk_of, empty_desk};
use crate::support::{Answer, file_of, read_file, resigned, vector};

const PATH: &str = "/admin/vaults/acme/catalog";
const OCTETS: &str = "application/octet-stream";

impl Desk {
    async fn push(&self, headers: &[(&str, &str)], bytes: Vec<u8>) -> Answer {
        let body = Some((OCTETS, bytes));
        self.send(&self.owner, "PUT", PATH, body, headers).await
    }

    /// Pushes after what is current.
    pub async fn push_next(&self, bytes: Vec<u8>) -> Answer {
        if self.world.read_namespace("acme").await.current.is_none() {
            return self.push(&[("if-none-match", "*")], bytes).await;
        }
        let tag = self.world.etag("acme").await;
        self.push(&[("if-match", &tag)], bytes).await
    }

    /// Deletes the bytes of the current catalog.
    pub async fn lose_catalog(&self) {
        let sha256 = self.world.current("acme").await.sha256;
        let key = self.acme.object_key(Class::Catalogs, sha256);
        self.world.app.objects.delete_object(&key).await.unwrap();
    }

    /// A catalog that follows release 42, with changes.
    async fn next(&self, change: impl FnOnce(&mut Catalog)) -> Vec<u8> {
        let current = self.world.read_namespace("acme").await.current.unwrap();
        let now = self.world.now();
        resigned("catalog-42.json", |catalog| {
            catalog.release = 43;
            catalog.previous = Some(ReleaseRef {
                release: 42,
                payload_sha256: current.payload_sha256,
            });
            catalog.issued_at = now;
            change(catalog);
        })
    }
}

#[tokio::test]
async fn the_first_is_201_the_next_200_and_the_bytes_are_read_back() {
    let desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    assert_eq!(desk.get(PATH).await.short(), "404 catalog_not_published");
    let first = vector("catalog-42.json");
    let answer = desk.push_next(first.clone()).await;
    assert_eq!(answer.status, 201);
    let by = answer.json()["by"].as_str().unwrap().to_owned();
    assert!(by.starts_with("usr_"), "{by}");
    assert_eq!(
        answer.json(),
        json!({
            "release": 42, "root_version": 1, "sha256": Digest::of(&first), "payload_sha256": answer.json()["payload_sha256"],
            "published_at": "2026-11-21T02:00:10Z", "by": by, "added": 1, "changed": 0, "removed": 0,
            "skills": 1, "signers": answer.json()["signers"],
        })
    );
    let read = desk.get(PATH).await;
    assert_eq!(read.body, first);
    assert_eq!(read.header("content-type"), "application/json");
    let tag = format!("\"{}\"", Digest::of(&first));
    assert_eq!(read.header("etag"), tag);

    desk.world.clock.advance(3600);
    desk.commits.clear();
    let next = vector("catalog-43-rotated.json");
    let answer = desk.push(&[("if-match", &tag)], next.clone()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["release"], 43);
    // Release, namespace, audit entry and what the former release keeps in one commit.
    let one_commit = ["audit", "kept", "ns", "rel"].map(str::to_owned).to_vec();
    let commits = desk.commits.partitions();
    assert!(commits.contains(&one_commit), "{commits:?}");
    assert_eq!(desk.get(PATH).await.body, next);
    let entries = desk.entries(&desk.acme).await;
    let last = entries.last().unwrap();
    assert_eq!(
        (last.action.as_str(), &last.actor),
        ("catalog.publish", &by)
    );
    assert_eq!(last.target.as_deref(), Some("release 43"));
}

/// 428, 413, 415, 402, 412, then what the catalog says: each refusal with everything after it wrong
/// too, and nothing is changed.
#[tokio::test]
async fn refusals_in_the_order_of_the_table() {
    let desk = desk().await;
    let before = desk.world.read_namespace("acme").await;
    let tag = desk.world.etag("acme").await;
    let stale = format!("\"{}\"", Digest::of(b"stale"));
    let junk = || b"junk".to_vec();
    let too_large = || vec![b' '; 4 * 1024 * 1024 + 1];
    let lapse = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    desk.world.change("acme", lapse).await;
    let held = desk.world.read_namespace("acme").await;
    let named = [("if-match", stale.as_str())];
    let text = "text/plain";
    for (headers, media, bytes, wanted) in [
        (&[][..], text, too_large(), "428 precondition_required"),
        (&named, text, too_large(), "413 body_too_large"),
        (&named, text, junk(), "415 media_type"),
        (&named, "", junk(), "415 media_type"),
        (&named, OCTETS, junk(), "402 subscription_lapsed"),
    ] {
        let body = Some((media, bytes));
        let answer = desk.send(&desk.owner, "PUT", PATH, body, headers).await;
        assert_eq!(answer.short(), wanted);
        assert_eq!(desk.world.read_namespace("acme").await, held);
    }
    let renew = |namespace: &mut Namespace| namespace.subscription = Subscription::Active;
    desk.world.change("acme", renew).await;
    let weak = format!("W/{tag}");
    let bare = before.current.as_ref().unwrap().sha256.to_string();
    let both = format!("{tag}, {tag}");
    for headers in [
        &[("if-match", stale.as_str())][..],
        &[("if-match", "*")],
        &[("if-match", &weak)],
        &[("if-match", &bare)],
        &[("if-match", &both)],
        &[("if-match", "")],
        &[("if-match", &tag), ("if-match", &tag)],
        &[("if-none-match", "*")],
        &[("if-none-match", &tag)],
        &[("if-match", &tag), ("if-none-match", "*")],
    ] {
        let answer = desk.push(headers, junk()).await;
        assert_eq!(answer.short(), "412 release_conflict", "{headers:?}");
        let current = before.current.as_ref().unwrap();
        let current = json!({"release": 42, "sha256": current.sha256, "payload_sha256": current.payload_sha256});
        assert_eq!(answer.json()["current"], current, "{headers:?}");
    }
    let answer = desk.push(&[("if-match", &tag)], junk()).await;
    assert_eq!(answer.short(), "422 catalog_schema");
    let now = desk.world.read_namespace("acme").await;
    assert_eq!((now.pin, now.current), (before.pin, before.current));
    assert_eq!(desk.count("catalog.publish release_conflict").await, 10);
    assert_eq!(desk.count("catalog.publish done").await, 1);
}

/// Each reason to reject a catalog, by one catalog that is right except for that.
#[tokio::test]
async fn what_a_catalog_may_not_say() {
    let desk = desk().await;
    let at = desk.world.now();
    let other = Digest::of(b"nobody has this");
    let flipped = {
        let mut bytes = desk.next(|_| {}).await;
        let mut envelope: Value = serde_json::from_slice(&bytes).unwrap();
        let signature = envelope["signatures"][0]["sig"]
            .as_str()
            .unwrap()
            .to_owned();
        let swapped = if signature.starts_with('A') { "B" } else { "A" };
        envelope["signatures"][0]["sig"] = json!(format!("{swapped}{}", &signature[1..]));
        bytes.clear();
        serde_json::to_writer(&mut bytes, &envelope).unwrap();
        bytes
    };
    let foreign = {
        let (mut catalog, chain) = read_file(&desk.next(|_| {}).await);
        let key = crate::support::vector_key("stranger");
        catalog.public_key = key.public();
        file_of(&catalog, &chain, &key)
    };
    // Signed by the publisher, and naming another key.
    let misnamed = {
        let mut file: Value = serde_json::from_slice(&desk.next(|_| {}).await).unwrap();
        file["public_key"] = json!(crate::support::vector_key("stranger").public());
        file.to_string().into_bytes()
    };
    let other_vault = Owner::new(9).vault_id();
    let vault = desk.next(|c| c.vault_id = other_vault);
    let root = desk.next(|c| c.root_sha256 = other);
    let slug = desk.next(|c| c.slug = "other".parse().unwrap());
    let audience = desk.next(|c| c.audience = vec!["https://elsewhere.example/v/acme/".into()]);
    let early = desk.next(|c| c.issued_at = at.plus_days(1));
    let first = desk.next(|c| c.previous = None);
    let fork = desk.next(|c| c.previous.as_mut().unwrap().payload_sha256 = other);
    let incomplete = desk.next(|c| c.index[0].bundle_hash = other);
    let cases = [
        (flipped, "422 signatures_missing"),
        (foreign, "422 signatures_missing"),
        (misnamed, "422 catalog_key"),
        (vault.await, "422 catalog_vault_id"),
        (root.await, "422 root_invalid"),
        (slug.await, "422 catalog_slug"),
        (audience.await, "422 catalog_audience"),
        (early.await, "422 catalog_clock"),
        (desk.next(|c| c.release = 42).await, "422 catalog_release"),
        (desk.next(|c| c.release = 41).await, "422 catalog_release"),
        (first.await, "422 catalog_previous"),
        (fork.await, "422 catalog_previous"),
        (incomplete.await, "409 objects_missing"),
    ];
    let before = desk.world.read_namespace("acme").await;
    for (bytes, wanted) in cases {
        let answer = desk.push_next(bytes).await;
        assert_eq!(answer.short(), wanted);
        if answer.status == 409 {
            assert_eq!(answer.json()["missing"], json!([other]));
        }
        assert_eq!(desk.world.read_namespace("acme").await, before, "{wanted}");
    }
    // The same catalog without anything wrong.
    let good = desk.next(|_| {}).await;
    assert_eq!(desk.push_next(good.clone()).await.short(), "200");
}

/// Whoever lost an answer sends again, and is told that its own catalog is current.
#[tokio::test]
async fn a_push_sent_twice_is_one_release() {
    let desk = desk().await;
    let next = desk.next(|_| {}).await;
    let tag = desk.world.etag("acme").await;
    let pushed = desk.push(&[("if-match", &tag)], next.clone()).await;
    assert_eq!(pushed.short(), "200");
    let again = desk.push(&[("if-match", &tag)], next.clone()).await;
    assert_eq!(again.short(), "412 release_conflict");
    assert_eq!(again.json()["current"]["sha256"], json!(Digest::of(&next)));
    assert_eq!(desk.count("catalog.publish done").await, 2, "42 and 43");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_pushes_at_once_one_is_current() {
    let desk = desk().await;
    let at = desk.world.now();
    let tag = desk.world.etag("acme").await;
    let headers = [("if-match", tag.as_str())];
    let push = async |days: i64| {
        let catalog = desk.next(|catalog| catalog.expires_at = at.plus_days(days));
        desk.push(&headers, catalog.await).await.short()
    };
    let (a, b, c, d) = tokio::join!(push(80), push(81), push(82), push(83));
    let mut all = [a, b, c, d];
    all.sort();
    let lost = "412 release_conflict";
    assert_eq!(all, ["200", lost, lost, lost]);
    assert_eq!(desk.count("catalog.publish done").await, 2);
}

#[tokio::test]
async fn a_self_signed_vault_takes_no_catalog() {
    let desk = desk_of(Kind::SelfSigned, |_| {}).await;
    let answer = desk.push(&[], b"junk".to_vec()).await;
    assert_eq!(answer.short(), "409 namespace_self_signed");
}

/// Our loss never reads as "nothing was published".
#[tokio::test]
async fn a_lost_catalog_is_503() {
    let desk = desk().await;
    desk.lose_catalog().await;
    let fresh = Desk {
        world: desk.world.restarted(),
        ..desk
    };
    assert_eq!(fresh.get(PATH).await.short(), "503 unavailable");
}
