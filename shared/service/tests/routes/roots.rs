//! The vectors of the signed root, as far as they concern a service: each push and each question
//! for content, through the routes' own functions, with every object that the catalogs name.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use vault_format::catalog::{Catalog, ReleaseRef, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::root::{KeyEntry, KeyName, RevokedKey, RootChain, RootEdit};
use vault_service::config::Config;
use vault_service::model::device::DeviceStatus;
use vault_service::model::namespace::{Kind, MAX_REVOKED_ELSEWHERE, Namespace};
use vault_service::model::release::{self, Release, WithdrawnMark};
use vault_service::shelf::{Releases, Shelves as _};
use vault_shelf::ShelfError;
use vault_store::objects::Class;
use vault_store::records::{Document, When, Write};
use vault_testing::memory::shelf::Owner;

use crate::admin::empty_desk;
use crate::mcp::{request, rpc};
use crate::support::{World, file_of, read_file, vector, vectors, world_with};

type Named = HashMap<String, Box<RawValue>>;

fn read<T: DeserializeOwned>(name: &str) -> T {
    let bytes = std::fs::read(vectors().join("roots").join(name)).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// The list of root versions with these names.
fn roots(names: &Value) -> String {
    static ROOTS: LazyLock<Named> = LazyLock::new(|| read("roots.json"));
    let names = names.as_array().unwrap().iter();
    let listed: Vec<_> = names
        .map(|name| ROOTS[name.as_str().unwrap()].get())
        .collect();
    format!("[{}]", listed.join(","))
}

/// The catalog file of a release beside these root versions.
fn file(names: &Value, release: &Value) -> Vec<u8> {
    static RELEASES: LazyLock<Named> = LazyLock::new(|| read("releases.json"));
    let release = RELEASES[release.as_str().unwrap()].get();
    let members = release.trim_start().strip_prefix('{').unwrap();
    format!("{{\"roots\":{},{members}", roots(names)).into_bytes()
}

fn chain(names: &Value) -> RootChain {
    RootChain::verify(&serde_json::from_str(&roots(names)).unwrap()).unwrap()
}

fn catalog_of(bytes: &[u8]) -> (Catalog, Digest) {
    let file = SignedCatalog::parse(bytes).unwrap();
    let payload_sha256 = file.payload_sha256();
    (file.read_counted(&payload_sha256).unwrap(), payload_sha256)
}

/// A service that is in this state, and what it holds of the namespace.
struct Case {
    world: World,
    slug: String,
    state: Value,
}

impl Case {
    async fn new(default: &Value, own: &Value) -> Self {
        let mut state = default.clone();
        for (name, value) in own.as_object().into_iter().flatten() {
            state[name] = value.clone();
        }
        let base = state["base"].as_str().unwrap().to_owned();
        let world = world_with(|config: &mut Config| config.public_url = base.parse().unwrap());
        world
            .clock
            .set(state["now"].as_str().unwrap().parse().unwrap());
        let slug = state["slug"].as_str().unwrap().to_owned();
        let case = Self { world, slug, state };
        case.fill().await;
        case
    }

    /// Puts every object of the vectors, and what the state says is current.
    async fn fill(&self) {
        let namespace = self.world.namespace(&self.slug, Kind::Hosted).await;
        for entry in std::fs::read_dir(vectors().join("roots")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if ["bundle-", "index-", "profile-"]
                .iter()
                .any(|kind| name.starts_with(kind))
            {
                let bytes = std::fs::read(&path).unwrap();
                self.world
                    .put_object(&namespace, Class::Bundles, bytes)
                    .await;
            }
        }
        let stored = &self.state["stored"];
        if stored.is_null() {
            return;
        }
        let bytes = file(&self.state["roots"], &stored["release"]);
        let signers = serde_json::from_value(stored["signers"].clone()).unwrap();
        let revoked = serde_json::from_value(self.state["revoked"].clone()).unwrap();
        self.world
            .make_current(&namespace, bytes, signers, revoked)
            .await;
    }

    /// Pushes what the step says; the word of the answer.
    async fn push(&self, input: &Value) -> String {
        let before = self.world.read_namespace(&self.slug).await;
        let bytes = file(&input["roots"], &input["release"]);
        match self.world.publish(&self.slug, bytes).await {
            Err(refusal) => {
                let after = self.world.read_namespace(&self.slug).await;
                assert_eq!(after, before, "a refusal changes nothing");
                assert_eq!(refusal.status(), 422);
                refusal.code().row().code.to_owned()
            }
            Ok(published) => {
                let same = before.current.as_ref().is_some_and(|current| {
                    current.payload_sha256 == published.release.payload_sha256
                });
                let after = self.world.read_namespace(&self.slug).await;
                let root =
                    |namespace: &Namespace| namespace.pin.vault_pin().map(|pin| pin.root_sha256);
                let longer = root(&before) != root(&after);
                if same && !longer { "equal" } else { "ok" }.to_owned()
            }
        }
    }

    /// Asks for all content as tools do; the word of the answer.
    async fn read(&self) -> String {
        let namespace = self.world.read_namespace(&self.slug).await;
        let shelf = Releases::default().shelf(&self.world.app, &namespace, None);
        match shelf.take_snapshot().await {
            Err(ShelfError::ReleaseAwaited) => "release_awaited".to_owned(),
            Err(error) => error.to_string(),
            Ok(snapshot) => {
                assert!(!snapshot.entries().is_empty());
                "ok".to_owned()
            }
        }
    }

    async fn step(&self, step: &Value) -> String {
        match step["do"].as_str().unwrap() {
            "catalog" => self.push(&step["input"]).await,
            "mcp" => self.read().await,
            other => panic!("a service does not `{other}`"),
        }
    }

    /// Compares what the service holds with what the step says.
    async fn check_after(&self, after: &Value, what: &str) {
        let namespace = self.world.read_namespace(&self.slug).await;
        let pin = namespace.pin.vault_pin().unwrap();
        let current = namespace.current.clone().unwrap();
        if after["roots"].is_array() {
            let wanted = chain(&after["roots"]);
            assert_eq!(pin.root_sha256, *wanted.newest().payload_sha256(), "{what}");
            assert_eq!(pin.root_version, wanted.version(), "{what}");
            assert_eq!(current.fingerprint, Some(wanted.fingerprint()), "{what}");
        }
        if after["stored"].is_string() {
            let names = after.get("roots").unwrap_or(&self.state["roots"]);
            let names = if names.is_array() {
                names.clone()
            } else {
                json!([])
            };
            let (catalog, payload_sha256) = catalog_of(&file(&names, &after["stored"]));
            assert_eq!(current.payload_sha256, payload_sha256, "{what}");
            assert_eq!(current.release, catalog.release, "{what}");
        }
        if after["signers"].is_array() {
            assert_eq!(json!(pin.signers), after["signers"], "{what}");
        }
        if after["revoked"].is_array() {
            assert_eq!(json!(pin.revoked), after["revoked"], "{what}");
        }
        // Whoever links now gets the whole chain from the bytes that are served.
        let key = namespace.object_key(Class::Catalogs, current.sha256);
        let bytes = self
            .world
            .app
            .objects
            .read_object(&key)
            .await
            .unwrap()
            .unwrap();
        let served = RootChain::verify(SignedCatalog::parse(&bytes).unwrap().roots()).unwrap();
        assert_eq!(*served.newest().payload_sha256(), pin.root_sha256, "{what}");
        // And the release is found by its number, with the bytes that are current.
        let found = release::find_release(
            &self.world.app,
            &namespace.id,
            pin.root_version,
            current.release,
        );
        assert_eq!(
            found.await.unwrap().unwrap().sha256,
            current.sha256,
            "{what}"
        );
    }
}

#[tokio::test]
async fn every_vector_of_the_signed_root_ends_as_it_says() {
    let mut count = 0;
    for name in ["accept.json", "negative.json"] {
        let page: Value = read(name);
        for case in page["cases"].as_array().unwrap() {
            if case["state"]["side"] != "service" {
                continue;
            }
            let what = format!("{} {}", case["id"], case["what"]);
            let service = Case::new(&page["state"], &case["state"]).await;
            assert_eq!(
                service.step(case).await,
                case["result"].as_str().unwrap(),
                "{what}"
            );
            if case["after"].is_object() {
                service.check_after(&case["after"], &what).await;
            }
            count += 1;
        }
    }
    assert_eq!(count, 30);
}

/// Vector n294 is about a device. A service does not let such a release become current either.
#[tokio::test]
async fn a_variant_by_a_revoked_key_is_not_published() {
    let page: Value = read("negative.json");
    let mut cases = page["cases"].as_array().unwrap().iter();
    let case = cases.find(|case| case["id"] == "n294").unwrap();
    let service = Case::new(&page["state"], &case["state"]).await;
    assert_eq!(service.push(&case["input"]).await, "catalog_signer");
}

#[tokio::test]
async fn every_story_of_the_signed_root_goes_as_it_says() {
    let page: Value = read("stories.json");
    let mut count = 0;
    for story in page["stories"].as_array().unwrap() {
        let own = &story["actors"]["service"];
        if own.is_null() {
            continue;
        }
        let service = Case::new(&page["state"], own).await;
        let steps = story["steps"].as_array().unwrap().iter();
        for step in steps.filter(|step| step["actor"] == "service") {
            let what = format!("{}: {}", story["id"], step["what"]);
            assert_eq!(
                service.step(step).await,
                step["result"].as_str().unwrap(),
                "{what}"
            );
            if step["after"].is_object() {
                service.check_after(&step["after"], &what).await;
            }
            count += 1;
        }
    }
    assert_eq!(count, 22);
}

/// The stored file is all that people who link later are shown: it carries every root version, with
/// signatures that count.
#[tokio::test]
async fn a_release_beside_a_shortened_chain_is_refused() {
    let page: Value = read("accept.json");
    let state = json!({
        "side": "service", "roots": ["a1", "a2", "a3"], "stored": {"release": "r42", "signers": []},
    });
    let service = Case::new(&page["state"], &state).await;
    let good = json!({ "roots": ["a1", "a2", "a3"], "release": "r43" });
    for names in [json!(["a1"]), json!(["a1", "a2"])] {
        let input = json!({ "roots": names, "release": "r43" });
        assert_eq!(service.push(&input).await, "root_rolled_back", "{names}");
    }
    // The service recognises a version by its payload; who links later has to verify it.
    let text = String::from_utf8(file(&good["roots"], &good["release"])).unwrap();
    let mut unsigned: Value = serde_json::from_str(&text).unwrap();
    for signature in unsigned["roots"][2]["signatures"].as_array_mut().unwrap() {
        signature["sig"] = format!("{}==", "A".repeat(86)).into();
    }
    let refusal = service
        .world
        .publish("acme", unsigned.to_string().into_bytes())
        .await
        .unwrap_err();
    assert_eq!(refusal.code().row().code, "root_invalid");
    assert_eq!(service.push(&good).await, "ok");
}

/// The numbers of a thief's releases are given anew; both stay, each under its root version.
#[tokio::test]
async fn voided_releases_stay_under_their_root_version() {
    let page: Value = read("accept.json");
    let anna = "aJHTXAwqoRw74i4F2bIj1L7v9RbGf6uGRWNCuo3bX04";
    let state = json!({
        "side": "service", "roots": ["a1", "a2", "a3"],
        "stored": {"release": "r44-thief", "signers": [anna]},
    });
    let service = Case::new(&page["state"], &state).await;
    let thief = service.world.read_namespace("acme").await.current.unwrap();
    let input = json!({ "roots": ["a1", "a2", "a3", "a4"], "release": "r44-new" });
    assert_eq!(service.push(&input).await, "ok");
    let namespace = service.world.read_namespace("acme").await;
    let owner = namespace.current.unwrap();
    assert_eq!((owner.release, thief.release), (44, 44));
    let records = &service.world.app.records;
    for (root_version, sha256) in [(3, thief.sha256), (4, owner.sha256)] {
        let key = release::release_key(&namespace.id, root_version, 44);
        let record = records.get_one(&key).await.unwrap().unwrap();
        assert_eq!(record.read::<Release>().unwrap().sha256, sha256);
    }
    let found = release::find_release(&service.world.app, &namespace.id, 4, 44)
        .await
        .unwrap();
    assert_eq!(found.unwrap().sha256, owner.sha256);
}

#[tokio::test]
async fn a_catalog_of_the_earlier_format_is_refused_with_the_way_out() {
    let world = world_with(|_| {});
    world.namespace("acme", Kind::Hosted).await;
    let earlier = json!({
        "public_key": "aJHTXAwqoRw74i4F2bIj1L7v9RbGf6uGRWNCuo3bX04",
        "payloadType": "application/vnd.vault.catalog.v1+json",
        "payload": "e30=",
        "signatures": [{ "keyid": "", "sig": format!("{}==", "A".repeat(86)) }],
    });
    let bytes = earlier.to_string().into_bytes();
    let refusal = world.publish("acme", bytes).await.unwrap_err();
    assert_eq!(refusal.code().row().code, "catalog_schema");
    assert!(refusal.to_string().contains("--from-vault"), "{refusal}");
}

/// A chain whose versions this key has signed, each made by a change of the one before.
fn chain_of(owner: &Owner, changes: &[&dyn Fn(&mut RootEdit<'_>)]) -> RootChain {
    let mut chain = owner.chain().clone();
    for change in changes {
        let mut edit = RootEdit::begin_after(&chain, "2026-11-20T00:00:00Z".parse().unwrap());
        change(&mut edit);
        chain = edit.sign(&[owner.key()]).unwrap();
    }
    chain
}

/// One key in both roles names its successor, which revokes it.
fn succeed(owner: &Owner) -> (Owner, RootChain) {
    let new = owner.with_key(9);
    let public_key = new.key().public();
    let entry = KeyEntry {
        public_key,
        name: KeyName::default_for(&public_key),
    };
    let chain = chain_of(
        owner,
        &[&|edit| {
            edit.add_publisher(entry.clone()).unwrap();
            edit.add_root_key(entry.clone()).unwrap();
        }],
    );
    let new = new.with_chain(chain);
    let chain = chain_of(
        &new,
        &[&|edit| {
            edit.revoke(&owner.key().public());
        }],
    );
    (new, chain)
}

/// The file of an empty release of `acme` under the newest version of a chain.
fn empty_release(owner: &Owner, chain: &RootChain, previous: Option<ReleaseRef>) -> Vec<u8> {
    let (mut catalog, _) = read_file(&vector("catalog-1-first.json"));
    catalog.vault_id = chain.vault_id();
    catalog.public_key = owner.key().public();
    catalog.root_version = chain.version();
    catalog.root_sha256 = *chain.newest().payload_sha256();
    catalog.release = previous.map_or(1, |previous| previous.release + 1);
    catalog.previous = previous;
    catalog.skills.clear();
    catalog.index.clear();
    file_of(&catalog, chain, owner.key())
}

/// Keys that were revoked in chains given up add up without a bound of the format; the record of a
/// namespace has one.
#[tokio::test]
async fn a_fork_that_adds_more_revoked_keys_than_a_record_holds_is_refused() {
    let owner = Owner::new(7);
    let lost = SecretKey::from_seed([8; 32]).public();
    let own = chain_of(
        &owner,
        &[&|edit| {
            edit.revoke(&lost);
        }],
    );
    let settled = chain_of(&owner, &[&|_| {}, &|_| {}]);
    let key = |n: usize| -> RevokedKey {
        let text = URL_SAFE_NO_PAD.encode(Digest::of(&n.to_be_bytes()).as_bytes());
        serde_json::from_value(json!(text)).unwrap()
    };
    for (held, wanted) in [
        (MAX_REVOKED_ELSEWHERE - 1, Ok(())),
        (MAX_REVOKED_ELSEWHERE, Err("root_forked")),
    ] {
        let world = world_with(|_| {});
        let namespace = world.namespace("acme", Kind::Hosted).await;
        let revoked = (0..held).map(key).collect();
        let first = empty_release(&owner, &own, None);
        let signers = vec![owner.key().public()];
        world
            .make_current(&namespace, first, signers, revoked)
            .await;
        let current = world.current("acme").await;
        let previous = ReleaseRef {
            release: current.release,
            payload_sha256: current.payload_sha256,
        };
        let next = empty_release(&owner, &settled, Some(previous));
        let published = world.publish("acme", next).await;
        let word = published.map_err(|refusal| refusal.code().row().code);
        assert_eq!(word.map(|_| ()), wanted, "{held}");
        let pin = world.read_namespace("acme").await.pin;
        let pin = pin.vault_pin().unwrap();
        assert_eq!(pin.revoked.len(), MAX_REVOKED_ELSEWHERE);
        assert_eq!(pin.revoked.contains(&(&lost).into()), wanted.is_ok());
    }
}

/// A thief withdraws what the owner publishes; the first release after the revocation ends that,
/// marks included.
#[tokio::test]
async fn what_a_thief_withdrew_is_served_again_after_the_next_release() {
    let page: Value = read("accept.json");
    let cases = page["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["id"] == "a091").unwrap();
    let service = Case::new(&page["state"], &case["state"]).await;
    let world = &service.world;
    let namespace = world.read_namespace(&service.slug).await;
    let current = namespace.current.as_ref().unwrap();
    let key = namespace.object_key(Class::Catalogs, current.sha256);
    let bytes = world.app.objects.read_object(&key).await.unwrap().unwrap();
    let (thiefs, _) = catalog_of(&bytes);
    let hash = thiefs.withdrawn.first().unwrap().bundle_hash;
    let mark = WithdrawnMark {
        namespace_id: namespace.id,
        since_release: thiefs.release,
    };
    let at = release::withdrawn_key(&namespace.slug, &hash);
    let write = Write::put(at, Document::from_value(&mark).unwrap(), When::Any);
    let done = world.app.records.commit_writes(vec![write]).await.unwrap();
    assert!(done.is_done());
    let device = world.device(&service.slug, 1, DeviceStatus::Active).await;
    let prefix = world.app.config.public_url.prefix();
    let path = format!("{prefix}/v/{}/bundles/{hash}.json", service.slug);
    let answer = world.ask(&device, "GET", &path).await;
    assert_eq!(answer.short(), "404 bundle_not_found");
    assert_eq!(service.step(case).await, "ok");
    assert_eq!(world.ask(&device, "GET", &path).await.short(), "200");
}

/// The same over HTTP, as an app sees it: nothing while a signer of the current release is revoked,
/// all after the next release.
#[tokio::test]
async fn an_app_waits_for_the_release_after_a_revocation() {
    let desk = empty_desk().await;
    let call = async || {
        let message = rpc(
            "tools/call",
            &json!({ "name": "skill_list", "arguments": {} }),
        );
        let sent = request(&desk.owner, message.to_string());
        let answer = desk.world.send(sent.body).await;
        assert_eq!(answer.status, 200);
        let result = answer.json()["result"].clone();
        let code = &result["_meta"]["dev.vault/error"]["code"];
        assert_eq!(result["isError"] == true, code.is_string(), "{result}");
        code.as_str().unwrap_or("ok").to_owned()
    };
    let anna = Owner::new(7);
    let first = empty_release(&anna, anna.chain(), None);
    desk.world.publish("acme", first.clone()).await.unwrap();
    assert_eq!(call().await, "ok");

    let (new, chain) = succeed(&anna);
    let file = SignedCatalog::parse(&first).unwrap();
    let longer = file.with_roots(&chain).unwrap().to_bytes();
    desk.world.publish("acme", longer).await.unwrap();
    assert_eq!(call().await, "release_awaited");
    let previous = ReleaseRef {
        release: 1,
        payload_sha256: file.payload_sha256(),
    };
    let next = empty_release(&new, &chain, Some(previous));
    desk.world.publish("acme", next).await.unwrap();
    assert_eq!(call().await, "ok");
}

/// A thief's releases take the room that releases have beyond the quota. The owner can revoke the
/// key nevertheless, and publish the first release under the new root version.
#[tokio::test]
async fn a_vault_that_a_thief_has_filled_can_revoke_the_key_and_publish() {
    let desk = empty_desk().await;
    let anna = Owner::new(7);
    let first = empty_release(&anna, anna.chain(), None);
    desk.world.publish("acme", first.clone()).await.unwrap();
    let namespace = desk.world.read_namespace("acme").await;
    desk.world.use_allowances(&namespace, 3).await;
    let file = SignedCatalog::parse(&first).unwrap();
    let previous = ReleaseRef {
        release: 1,
        payload_sha256: file.payload_sha256(),
    };
    let ordinary = empty_release(&anna, anna.chain(), Some(previous));
    let refusal = desk.world.publish("acme", ordinary).await.unwrap_err();
    assert_eq!(refusal.code().row().code, "quota_exceeded");

    let (new, chain) = succeed(&anna);
    let longer = file.with_roots(&chain).unwrap().to_bytes();
    desk.world.publish("acme", longer).await.unwrap();
    let next = empty_release(&new, &chain, Some(previous));
    desk.world.publish("acme", next.clone()).await.unwrap();
    // The room for new root versions ends with the release under it.
    let previous = ReleaseRef {
        release: 2,
        payload_sha256: SignedCatalog::parse(&next).unwrap().payload_sha256(),
    };
    let ordinary = empty_release(&new, &chain, Some(previous));
    let refusal = desk.world.publish("acme", ordinary).await.unwrap_err();
    assert_eq!(refusal.code().row().code, "quota_exceeded");
}
