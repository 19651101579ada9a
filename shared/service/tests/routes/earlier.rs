//! A namespace whose owner has published with the version before signed root versions, and has not
//! come back yet.

use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{self, Pinned};
use vault_service::model::release::{WithdrawnMark, withdrawn_key};
use vault_service::shelf::{Releases, Shelves as _};
use vault_shelf::ShelfError;
use vault_store::objects::Class;
use vault_store::records::{Document, RecordKey, When, Write};
use vault_testing::contract::records::EARLIER_NAMESPACE;

use crate::admin::{Desk, empty_desk};
use crate::common::PASSWORD;
use crate::support::{Answer, vector};

const PAGE: &str = "/admin/vaults/acme";
const CATALOG: &str = r#"{"public_key":"aJHTXAwqoRw74i4F2bIj1L7v9RbGf6uGRWNCuo3bX04",
    "payloadType":"application/vnd.vault.catalog.v1+json","payload":"e30=","signatures":[]}"#;
const BUNDLE: &[u8] = b"a bundle of the earlier release";
const WITHDRAWN: &[u8] = b"a bundle that the earlier release has withdrawn";

struct Earlier {
    desk: Desk,
    /// The tag of the current catalog.
    tag: String,
}

/// `acme` as an earlier version has left it, and nothing but that.
async fn earlier() -> Earlier {
    let desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    let put = async |class, bytes: &[u8]| {
        let bytes = bytes.to_vec();
        desk.world.put_object(&desk.acme, class, bytes).await
    };
    let catalog = put(Class::Catalogs, CATALOG.as_bytes()).await;
    let bundle = put(Class::Bundles, BUNDLE).await;
    let withdrawn = put(Class::Bundles, WITHDRAWN).await;
    let closure = format!("vault.closure/1\nb {bundle} {}\n", BUNDLE.len());
    let closure = put(Class::Closures, closure.as_bytes()).await;
    let mut record: Value = serde_json::from_str(EARLIER_NAMESPACE).unwrap();
    record["id"] = json!(desk.acme.id);
    record["current"]["sha256"] = json!(catalog);
    record["current"]["size"] = json!(CATALOG.len());
    record["current"]["closure"] = json!(closure);
    let payload_sha256 = &record["current"]["payload_sha256"];
    let release = json!({
        "release": 5, "sha256": catalog, "payload_sha256": payload_sha256,
        "published_at": "2026-11-20T09:00:00Z", "by": "usr_ada", "added": 1, "changed": 0, "removed": 0,
    });
    let mark = WithdrawnMark {
        namespace_id: desk.acme.id,
        since_release: 5,
    };
    let releases = RecordKey::new(format!("rel/{}", desk.acme.id), "0000000000000005");
    let write = |key, document| Write::put(key, document, When::Any);
    let writes = vec![
        write(
            namespace::namespace_key(&desk.acme.slug),
            Document::from_value(&record).unwrap(),
        ),
        write(releases, Document::from_value(&release).unwrap()),
        write(
            withdrawn_key(&desk.acme.slug, &withdrawn),
            Document::from_value(&mark).unwrap(),
        ),
    ];
    let done = desk.world.app.records.commit_writes(writes).await.unwrap();
    assert!(done.is_done());
    let tag = format!("\"{catalog}\"");
    Earlier { desk, tag }
}

impl Earlier {
    async fn push(&self) -> Answer {
        let body = Some(("application/octet-stream", vector("catalog-42.json")));
        let path = format!("{PAGE}/catalog");
        let headers = [("if-match", self.tag.as_str())];
        self.desk
            .send(&self.desk.owner, "PUT", &path, body, &headers)
            .await
    }

    async fn reset(&self) -> Answer {
        let body = json!({ "slug": "acme", "password": PASSWORD });
        self.desk.post(&format!("{PAGE}/pin/reset"), &body).await
    }

    /// The pin as it is stored.
    async fn stored_pin(&self) -> Value {
        let key = namespace::namespace_key(&self.desk.acme.slug);
        let record = self.desk.world.app.records.get_one(&key).await;
        let record = record.unwrap().unwrap();
        record.read::<Value>().unwrap()["pin"].clone()
    }

    async fn content(&self) -> Result<(), ShelfError> {
        let namespace = self.desk.world.read_namespace("acme").await;
        let shelf = Releases::default().shelf(&self.desk.world.app, &namespace, None);
        shelf.take_snapshot().await.map(|_| ())
    }
}

#[tokio::test]
async fn it_is_administered_and_served_as_before() {
    let earlier = earlier().await;
    let desk = &earlier.desk;
    let pin = earlier.stored_pin().await;
    let shown = desk.get(PAGE).await.json();
    assert_eq!(shown["pin"], json!({ "earlier": true }));
    assert_eq!(shown["release"]["release"], 5);
    assert_eq!(
        desk.get("/admin/vaults").await.json()["items"][0]["release"],
        5
    );
    let operator = desk.operator().await;
    for action in ["suspend", "resume"] {
        let path = format!("/admin/operator/namespaces/acme/{action}");
        assert_eq!(
            desk.ask(&operator, "POST", &path, None).await.short(),
            "200"
        );
    }
    assert_eq!(
        earlier.stored_pin().await,
        pin,
        "another change keeps the pin"
    );
    let all = desk
        .ask(&operator, "GET", "/admin/operator/namespaces", None)
        .await;
    assert_eq!(all.json()["items"].as_array().unwrap().len(), 3);
    // Devices: enrolment, the exact catalog, bundles but those with a mark.
    let device = desk.world.device("acme", 1, DeviceStatus::Active).await;
    let catalog = desk.world.ask(&device, "GET", "/v/acme/catalog.json").await;
    assert_eq!(catalog.body, CATALOG.as_bytes());
    for (bytes, wanted) in [
        (BUNDLE, "200"),
        (WITHDRAWN, "404 bundle_not_found"),
        (b"another", "404 bundle_not_found"),
    ] {
        let path = format!("/v/acme/bundles/{}.json", Digest::of(bytes));
        let answer = desk.world.ask(&device, "GET", &path).await;
        assert_eq!(answer.short(), wanted);
    }
    // Releases, by page and by number.
    let path = format!("{PAGE}/releases");
    let items = desk.get(&path).await.json()["items"].clone();
    assert_eq!(
        (&items[0]["release"], &items[0]["root_version"]),
        (&json!(5), &json!(0))
    );
    for path in ["releases/5/catalog", "releases/5/catalog?root_version=0"] {
        let answer = desk.get(&format!("{PAGE}/{path}")).await;
        assert_eq!(answer.body, CATALOG.as_bytes());
    }
}

#[tokio::test]
async fn nothing_counts_under_it_and_nothing_of_it_is_collected() {
    let earlier = earlier().await;
    let desk = &earlier.desk;
    let before = desk.world.read_namespace("acme").await;
    let answer = earlier.push().await;
    assert_eq!(answer.short(), "422 catalog_schema");
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    for word in ["vault import --from-vault", "reset the pin"] {
        assert!(detail.contains(word), "{detail}");
    }
    assert_eq!(desk.world.read_namespace("acme").await, before);
    let content = earlier.content().await;
    assert!(
        matches!(content, Err(ShelfError::ReleaseAwaited)),
        "{content:?}"
    );
    for _ in 0..3 {
        desk.world.clock.advance(40 * 24 * 3600);
        let report = desk.world.work().await;
        assert_eq!((report.skipped, report.deleted), (0, 0));
    }
    for bytes in [CATALOG.as_bytes(), BUNDLE] {
        let class = if bytes == BUNDLE {
            Class::Bundles
        } else {
            Class::Catalogs
        };
        let key = desk.acme.object_key(class, Digest::of(bytes));
        assert!(
            desk.world
                .app
                .objects
                .read_object(&key)
                .await
                .unwrap()
                .is_some()
        );
    }
}

#[tokio::test]
async fn a_reset_lets_a_new_vault_follow() {
    let earlier = earlier().await;
    let desk = &earlier.desk;
    let pin = earlier.stored_pin().await;
    assert_eq!(earlier.reset().await.short(), "200");
    assert_eq!(earlier.stored_pin().await, Value::Null);
    let entries = desk.entries(&desk.acme).await;
    let done = entries
        .iter()
        .find(|entry| entry.action == "pin.reset" && entry.outcome == "done");
    let wanted = json!({ "vault_id": pin["vault_id"], "earlier": true });
    assert_eq!(done.unwrap().before, Some(wanted));
    let shown = desk.get(PAGE).await.json();
    assert_eq!(
        (&shown["pin"], &shown["pin_reset"]["vault_id"]),
        (&Value::Null, &Value::Null)
    );
    assert!(shown["pin_reset"]["at"].is_string());
    // Until the first release the earlier one is served, and is no content.
    let content = earlier.content().await;
    assert!(
        matches!(content, Err(ShelfError::ReleaseAwaited)),
        "{content:?}"
    );
    let device = desk.world.device("acme", 1, DeviceStatus::Active).await;
    let catalog = desk.world.ask(&device, "GET", "/v/acme/catalog.json").await;
    assert_eq!(catalog.body, CATALOG.as_bytes());

    assert_eq!(earlier.push().await.short(), "200");
    let after = desk.world.read_namespace("acme").await;
    assert!(after.pin.vault_pin().is_some() && after.readable_current().is_some());
    earlier.content().await.unwrap();
    let path = format!("{PAGE}/releases?limit=1");
    let page = desk.get(&path).await.json();
    assert_eq!(page["items"][0]["release"], 5);
    let next = page["next"].as_str().unwrap();
    let page = desk.get(&format!("{path}&after={next}")).await.json();
    assert_eq!(page["items"][0]["release"], 42);
    desk.world.clock.advance(40 * 24 * 3600);
    assert_eq!(desk.world.work().await.skipped, 0);
}

/// An earlier version wrote a pin into the record of a namespace without a release too.
#[tokio::test]
async fn an_earlier_namespace_without_a_release_takes_its_first() {
    let desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    let key = namespace::namespace_key(&desk.acme.slug);
    let mut record: Value = serde_json::to_value(&desk.acme).unwrap();
    record["pin"] = json!({
        "vault_id": null, "public_key": null, "former_keys": [], "rotation_sequence": 0,
        "recovery_key_sha256": null, "stored": null,
    });
    record.as_object_mut().unwrap().remove("pin_reset");
    let write = Write::put(key, Document::from_value(&record).unwrap(), When::Any);
    let done = desk.world.app.records.commit_writes(vec![write]).await;
    assert!(done.unwrap().is_done());
    let read = desk.world.read_namespace("acme").await;
    assert_eq!(read.pin, Pinned::Nothing);
    let first = vector("catalog-42.json");
    desk.world.publish("acme", first).await.unwrap();
}

/// A pin that is neither is not taken for an earlier one.
#[tokio::test]
async fn a_damaged_pin_is_not_taken_for_an_earlier_one() {
    let desk = empty_desk().await;
    let record = serde_json::to_value(&desk.acme).unwrap();
    for pin in [json!({}), json!({ "vault_id": "x" }), json!([]), json!(1)] {
        let mut record = record.clone();
        record["pin"] = pin.clone();
        let read: Result<namespace::Namespace, _> = serde_json::from_value(record);
        assert!(read.is_err(), "{pin}");
    }
}
