//! `…/objects`: asking what is missing, putting one or many, reading back.

use axum::body::Body;
use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_service::bodies::SMALL_BYTES;
use vault_service::model::namespace::{Kind, Namespace, Subscription};
use vault_store::fair::Lane;
use vault_store::objects::Class;

use super::{Desk, desk_of, empty_desk};

const OCTETS: &str = "application/octet-stream";
const PACK: &str = "application/vnd.vault.pack";
const MIB_4: usize = 4 * 1024 * 1024;

impl Desk {
    async fn put(
        &self,
        class: &str,
        name: &str,
        media: &str,
        bytes: Vec<u8>,
    ) -> crate::support::Answer {
        let path = format!("/admin/vaults/acme/objects/{class}/{name}");
        self.send(&self.owner, "PUT", &path, Some((media, bytes)), &[])
            .await
    }

    async fn pack(&self, class: &str, media: &str, bytes: Vec<u8>) -> crate::support::Answer {
        let path = format!("/admin/vaults/acme/objects/{class}");
        self.send(&self.owner, "POST", &path, Some((media, bytes)), &[])
            .await
    }

    async fn missing(&self, question: &Value) -> crate::support::Answer {
        self.post("/admin/vaults/acme/objects/missing", question)
            .await
    }

    async fn held(&self) -> usize {
        let mut count = 0;
        for class in [
            Class::Bundles,
            Class::Policies,
            Class::Catalogs,
            Class::Drafts,
            Class::Closures,
            Class::Exports,
        ] {
            count += self
                .world
                .app
                .objects
                .list_objects(&self.acme.id, class, None, 1000)
                .await
                .unwrap()
                .len();
        }
        count
    }
}

fn packed(objects: &[&[u8]]) -> Vec<u8> {
    let mut pack = Vec::new();
    for bytes in objects {
        pack.extend_from_slice(format!("{} {}\n", Digest::of(bytes), bytes.len()).as_bytes());
        pack.extend_from_slice(bytes);
    }
    pack
}

#[tokio::test]
async fn an_object_is_stored_once_under_its_hash_and_read_back_to_the_byte() {
    let desk = empty_desk().await;
    for class in ["bundles", "policies"] {
        for bytes in [&b"{}"[..], b"", b"\r\n\t\0 \xff\xfe", &vec![0x80; 70_000]] {
            let hash = Digest::of(bytes);
            let first = desk
                .put(class, &hash.to_string(), OCTETS, bytes.to_vec())
                .await;
            assert_eq!(
                (first.status.as_u16(), first.json()),
                (201, json!({"sha256": hash, "size": bytes.len()}))
            );
            let again = desk
                .put(class, &hash.to_string(), OCTETS, bytes.to_vec())
                .await;
            assert_eq!((again.status.as_u16(), again.json()), (200, first.json()));
            let path = format!("/admin/vaults/acme/objects/{class}/{hash}");
            let read = desk.get(&path).await;
            assert_eq!((read.status.as_u16(), &read.body[..]), (200, bytes));
            assert_eq!(read.header("content-type"), OCTETS);
            assert_eq!(read.header("etag"), format!("\"{hash}\""));
            let head = desk.ask(&desk.owner, "HEAD", &path, None).await;
            assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        }
    }
    assert_eq!(desk.held().await, 8);
}

/// A vault that is not paid for gives its bundles away by no route.
#[tokio::test]
async fn a_lapsed_vault_s_bundles_are_not_read_here_either() {
    let desk = empty_desk().await;
    let hash = Digest::of(b"{}").to_string();
    for class in ["bundles", "policies"] {
        let stored = desk.put(class, &hash, OCTETS, b"{}".to_vec()).await;
        assert_eq!(stored.status, 201);
    }
    let read = async |class| {
        let path = format!("/admin/vaults/acme/objects/{class}/{hash}");
        desk.get(&path).await.short()
    };
    assert_eq!(read("bundles").await, "200");
    let lapse = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    desk.world.change("acme", lapse).await;
    assert_eq!(read("bundles").await, "402 subscription_lapsed");
    assert_eq!(read("policies").await, "200");
}

/// Route, size, media type, hash: each refusal with all later ones wrong too, and nothing is stored
/// by any.
#[tokio::test]
async fn refusals_of_put_in_their_order() {
    let desk = empty_desk().await;
    let hash = Digest::of(b"abc").to_string();
    let upper = hash.to_uppercase();
    for (class, name, media, bytes, wanted) in [
        (
            "catalogs",
            hash.as_str(),
            "text/plain",
            vec![0; MIB_4 + 1],
            "404 not_found",
        ),
        ("closures", &hash, "", vec![], "404 not_found"),
        ("drafts", &hash, OCTETS, b"abc".to_vec(), "404 not_found"),
        ("exports", &hash, OCTETS, b"abc".to_vec(), "404 not_found"),
        ("Bundles", &hash, OCTETS, b"abc".to_vec(), "404 not_found"),
        ("bundles", &upper, OCTETS, b"abc".to_vec(), "404 not_found"),
        (
            "bundles",
            &hash[1..],
            OCTETS,
            b"abc".to_vec(),
            "404 not_found",
        ),
        ("bundles", "..", OCTETS, b"abc".to_vec(), "404 not_found"),
        (
            "bundles",
            &hash,
            "text/plain",
            vec![0; MIB_4 + 1],
            "413 body_too_large",
        ),
        (
            "bundles",
            &hash,
            "text/plain",
            b"xyz".to_vec(),
            "415 media_type",
        ),
        ("bundles", &hash, "", b"abc".to_vec(), "415 media_type"),
        (
            "bundles",
            &hash,
            "application/json",
            b"abc".to_vec(),
            "415 media_type",
        ),
        ("bundles", &hash, OCTETS, b"xyz".to_vec(), "422 object_hash"),
        (
            "bundles",
            &hash,
            OCTETS,
            b"abcd".to_vec(),
            "422 object_hash",
        ),
        ("bundles", &hash, OCTETS, vec![], "422 object_hash"),
    ] {
        let answer = desk.put(class, name, media, bytes).await;
        assert_eq!(answer.short(), wanted, "{class}/{name} {media}");
        assert_eq!(desk.held().await, 0, "{wanted}");
    }
    assert_eq!(
        desk.put(
            "bundles",
            &hash,
            "application/octet-stream; x=y",
            b"abc".to_vec()
        )
        .await
        .status,
        201
    );
}

#[tokio::test]
async fn four_mib_are_taken_and_one_byte_more_is_413() {
    let desk = empty_desk().await;
    let bytes = vec![7; MIB_4];
    let hash = Digest::of(&bytes).to_string();
    assert_eq!(desk.put("bundles", &hash, OCTETS, bytes).await.status, 201);
    let bytes = vec![7; MIB_4 + 1];
    let hash = Digest::of(&bytes).to_string();
    assert_eq!(
        desk.put("bundles", &hash, OCTETS, bytes).await.short(),
        "413 body_too_large"
    );
    let head = 64 + 1 + 7 + 1;
    let full = packed(&[&vec![8; MIB_4 - head]]);
    assert_eq!(full.len(), MIB_4);
    assert_eq!(desk.pack("bundles", PACK, full).await.short(), "200");
    let over = packed(&[&vec![8; MIB_4 - head + 1]]);
    assert_eq!(
        desk.pack("bundles", PACK, over).await.short(),
        "413 body_too_large"
    );
}

#[tokio::test]
async fn a_pack_stores_all_or_nothing() {
    let desk = empty_desk().await;
    let (a, b): (&[u8], &[u8]) = (b"one\nobject", b"");
    let answer = desk.pack("bundles", PACK, packed(&[a, b, a])).await;
    assert_eq!(
        answer.json(),
        json!({"stored": [Digest::of(a), Digest::of(b), Digest::of(a)]})
    );
    assert_eq!(desk.held().await, 2);
    assert_eq!(
        desk.pack("bundles", PACK, packed(&[a, b])).await.short(),
        "200",
        "again is no error"
    );
    assert_eq!(
        desk.pack("bundles", PACK, vec![]).await.json(),
        json!({"stored": []})
    );

    let good = packed(&[b"new"]);
    let mut damaged = [good.clone(), packed(&[b"other"])].concat();
    *damaged.last_mut().unwrap() ^= 1;
    let mut cut = [good.clone(), packed(&[b"other"])].concat();
    cut.pop();
    let tail = [good.clone(), b"\n".to_vec()].concat();
    let many = packed(&[b"x".as_slice(); 1001]);
    for (class, media, bytes, wanted) in [
        (
            "catalogs",
            "text/plain",
            vec![0; MIB_4 + 1],
            "404 not_found",
        ),
        (
            "bundles",
            "text/plain",
            vec![0; MIB_4 + 1],
            "413 body_too_large",
        ),
        ("bundles", OCTETS, good.clone(), "415 media_type"),
        ("bundles", "", good, "415 media_type"),
        ("bundles", PACK, cut, "400 pack_invalid"),
        ("bundles", PACK, tail, "400 pack_invalid"),
        ("bundles", PACK, many, "400 pack_invalid"),
        ("bundles", PACK, b"x".to_vec(), "400 pack_invalid"),
        ("bundles", PACK, damaged, "422 object_hash"),
    ] {
        assert_eq!(
            desk.pack(class, media, bytes).await.short(),
            wanted,
            "{class} {media}"
        );
        assert_eq!(desk.held().await, 2, "{wanted}");
    }
}

/// Bodies of a namespace have a share of the memory, whichever route they are for.
#[tokio::test]
async fn a_namespace_whose_bodies_fill_its_memory_delays_itself_alone() {
    let desk = empty_desk().await;
    let bodies = &desk.world.app.bodies;
    let fill = async |lane: Lane| {
        let mut held = Vec::new();
        loop {
            let body = Body::from(vec![b'x'; SMALL_BYTES]);
            match bodies.read(lane.clone(), body, SMALL_BYTES).await {
                Ok(body) => held.push(body),
                Err(_) => return held,
            }
        }
    };
    // More than what counts for nothing.
    let pack = packed(&[&[b'a'; 10_000]]);
    let of_another = fill(Lane::Namespace(NamespaceId::from_parts(1, 1))).await;
    let of_strangers = fill(Lane::Network("192.0.2.0/24".into())).await;
    let answer = desk.pack("bundles", PACK, pack.clone()).await;
    assert_eq!(answer.short(), "200");
    drop((of_another, of_strangers));
    let own = fill(Lane::Namespace(desk.acme.id)).await;
    let answer = desk.pack("bundles", PACK, pack.clone()).await;
    assert_eq!(answer.short(), "503 unavailable");
    let object = json!({"sha256": Digest::of(b"a"), "size": 1});
    let question = |count| json!({"class": "bundles", "objects": vec![object.clone(); count]});
    assert_eq!(
        desk.missing(&question(200)).await.short(),
        "503 unavailable"
    );
    assert_eq!(desk.missing(&question(1)).await.short(), "200");
    drop(own);
    let answer = desk.pack("bundles", PACK, pack).await;
    assert_eq!(answer.short(), "200");
}

#[tokio::test]
async fn what_is_missing_is_told_in_the_order_of_the_question() {
    let desk = empty_desk().await;
    let bytes = b"abc";
    let (here, gone) = (Digest::of(bytes), Digest::of(b"gone"));
    desk.put("bundles", &here.to_string(), OCTETS, bytes.to_vec())
        .await;
    let ask = |class: &str, objects: Value| json!({"class": class, "objects": objects});
    let entry = |hash: &Digest, size: u64| json!({"sha256": hash, "size": size});
    for (question, missing) in [
        (ask("bundles", json!([])), json!([])),
        (ask("bundles", json!([entry(&here, 3)])), json!([])),
        (
            ask("bundles", json!([entry(&gone, 4), entry(&here, 3)])),
            json!([gone]),
        ),
        (ask("bundles", json!([entry(&here, 4)])), json!([here])),
        (ask("policies", json!([entry(&here, 3)])), json!([here])),
    ] {
        let answer = desk.missing(&question).await;
        assert_eq!(answer.json(), json!({"missing": missing}), "{question}");
    }
    let theirs = desk.stranger().await;
    let question = ask("bundles", json!([entry(&here, 3)]));
    let answer = desk
        .ask(
            &theirs,
            "POST",
            "/admin/vaults/other/objects/missing",
            Some(&question),
        )
        .await;
    assert_eq!(
        answer.json(),
        json!({"missing": [here]}),
        "another tenant's bytes are not there"
    );
    let path = format!("/admin/vaults/other/objects/bundles/{here}");
    assert_eq!(
        desk.ask(&theirs, "GET", &path, None).await.short(),
        "404 not_found"
    );
}

#[tokio::test]
async fn questions_that_are_none() {
    let desk = empty_desk().await;
    let hash = Digest::of(b"x");
    let many = |count: usize| {
        let objects: Vec<_> = (0..count)
            .map(|n| json!({"sha256": Digest::of(&n.to_be_bytes()), "size": 4_194_304}))
            .collect();
        json!({"class": "bundles", "objects": objects})
            .to_string()
            .into_bytes()
    };
    let json = "application/json";
    for (media, body, wanted) in [
        (
            "text/plain",
            vec![b' '; 1024 * 1024 + 1],
            "413 body_too_large",
        ),
        ("text/plain", b"{}".to_vec(), "415 media_type"),
        (json, b"".to_vec(), "400 json_invalid"),
        (json, b"{}".to_vec(), "400 json_invalid"),
        (json, b"[]".to_vec(), "400 json_invalid"),
        (json, b"null".to_vec(), "400 json_invalid"),
        (
            json,
            b"{\"class\":\"bundles\",\"objects\":[]} x".to_vec(),
            "400 json_invalid",
        ),
        (
            json,
            b"{\"class\":\"bundles\",\"class\":\"policies\",\"objects\":[]}".to_vec(),
            "400 json_invalid",
        ),
        (
            json,
            b"\xff{\"class\":\"bundles\",\"objects\":[]}".to_vec(),
            "400 json_invalid",
        ),
        (
            json,
            b"{\"class\":\"bundles\",\"objects\":[{\"sha256\":\"x\",\"size\":1}]}".to_vec(),
            "400 json_invalid",
        ),
        (
            json,
            format!(
                "{{\"class\":\"bundles\",\"objects\":[{{\"sha256\":\"{hash}\",\"size\":-1}}]}}"
            )
            .into_bytes(),
            "400 json_invalid",
        ),
        (
            json,
            format!(
                "{{\"class\":\"bundles\",\"objects\":[{{\"sha256\":\"{hash}\",\"size\":1.5}}]}}"
            )
            .into_bytes(),
            "400 json_invalid",
        ),
        (
            json,
            b"{\"class\":\"catalogs\",\"objects\":[]}".to_vec(),
            "422 parameter_invalid",
        ),
        (
            json,
            b"{\"class\":\"\",\"objects\":[]}".to_vec(),
            "422 parameter_invalid",
        ),
        (json, many(10_001), "422 parameter_invalid"),
        (json, many(10_000), "200"),
        (
            json,
            b"{\"class\":\"bundles\",\"objects\":[],\"more\":1}".to_vec(),
            "200",
        ),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = desk
            .send(
                &desk.owner,
                "POST",
                "/admin/vaults/acme/objects/missing",
                Some((media, body)),
                &[],
            )
            .await;
        assert_eq!(answer.short(), wanted, "{media} {shown}");
    }
}

/// A vault that signs its own releases takes nothing from outside; what it has is readable.
#[tokio::test]
async fn a_self_signed_vault_takes_no_objects() {
    let desk = desk_of(Kind::SelfSigned, |_| {}).await;
    let hash = Digest::of(b"abc");
    let missing = desk
        .missing(&json!({"class": "bundles", "objects": []}))
        .await;
    assert_eq!(missing.short(), "409 namespace_self_signed");
    assert_eq!(
        desk.put("bundles", &hash.to_string(), OCTETS, b"abc".to_vec())
            .await
            .short(),
        "409 namespace_self_signed"
    );
    assert_eq!(
        desk.pack("bundles", PACK, packed(&[b"abc"])).await.short(),
        "409 namespace_self_signed"
    );
    let hash = desk
        .world
        .put_object(&desk.acme, Class::Bundles, b"own".to_vec())
        .await;
    assert_eq!(
        desk.get(&format!("/admin/vaults/acme/objects/bundles/{hash}"))
            .await
            .body,
        "own"
    );
    assert_eq!(desk.count("object.put namespace_self_signed").await, 1);
}
