//! Archives and sites of a vault whose releases need two publishers: what one of them alone signed
//! is accepted on no machine, whatever comes with it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use vault_format::bundle::EncodedBundle;
use vault_format::catalog::{self, Catalog};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::json::to_bytes;
use vault_format::root::RootChain;
use vault_tests::home::{Home, Ran};
use vault_tests::host::{Answer, Host, Namespace};
use vault_tests::signed::{
    Owner, RECOVERY, entry, envelopes, file_of, first_root, key, named, next_root, sign_anything,
    skill_by, vault_of,
};

use crate::support::{DIFFERENCES, INTEGRITY};

/// The vault with publishers 0 and 1, who sign releases together.
fn four_eyes() -> RootChain {
    next_root(&first_root(), &[RECOVERY], |edit| {
        edit.add_publisher(named(1)).unwrap();
        edit.set_release_threshold(2);
    })
}

fn by_both(catalog: &Catalog, chain: &RootChain) -> Vec<u8> {
    let envelope = Envelope::sign(
        catalog::PAYLOAD_TYPE,
        &to_bytes(catalog),
        &[&key(0), &key(1)],
    );
    file_of(&envelope, &envelopes(chain), 0)
}

#[track_caller]
fn verify(machine: &Home, path: &str, more: &str) -> Ran {
    machine.run(&format!("verify {path} {more} --json"))
}

/// Puts another skill, by one publisher, into a folder in place of the one that was exported.
fn swap(folder: &Path, evil: &EncodedBundle) {
    let bundle: Value = serde_json::from_slice(&evil.bytes).unwrap();
    let text = bundle["files"][0]["content"].as_str().unwrap();
    let exported = folder.join("alpha.manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&exported).unwrap()).unwrap();
    for member in ["payload", "payloadType", "signatures"] {
        manifest[member] = bundle["manifest"][member].clone();
    }
    fs::create_dir_all(folder.join("evil")).unwrap();
    fs::write(folder.join("evil/SKILL.md"), text).unwrap();
    fs::write(folder.join("evil.manifest.json"), manifest.to_string()).unwrap();
}

#[test]
fn one_publisher_of_two_releases_nothing_by_an_archive() {
    let chain = four_eyes();
    let host = Host::start();
    let owner = Owner::at(&host).under(&chain);
    let alpha = skill_by(0, "alpha", 1, &[("notes.md", b"More.\n")]);
    let listed = owner.catalog(2, 0, &[entry("alpha", 1, &alpha)]);
    host.serve(Namespace::new(by_both(&listed, &chain), &[&alpha]));
    let machine = Home::new();
    machine.run(&format!("link {}", host.address())).ok();
    machine.run("cloud pull").ok();
    let fingerprint = chain.fingerprint().to_string();
    let expect = format!("--expect-key {fingerprint}");

    // What the release lists is good on the linked machine, and on any other by what it carries.
    machine.run("export zip alpha").ok();
    machine.run("export well-known site --skill alpha").ok();
    let stranger = Home::new();
    let from = |name: &str| machine.path().join(name);
    for path in ["alpha.zip", "site"] {
        verify(&machine, path, "").ok();
        let at = from(path);
        verify(&stranger, at.to_str().unwrap(), &expect).ok();
    }
    let carried = from("alpha.catalog.json");
    let good = fs::read(&carried).unwrap();

    // What one of them signed is not, on a machine that knows the vault either.
    let evil = skill_by(1, "evil", 1, &[]);
    swap(machine.path(), &evil);
    for (home, more) in [(&machine, ""), (&stranger, &*expect)] {
        let at = from("evil");
        let ran = verify(home, at.to_str().unwrap(), more);
        ran.fails(DIFFERENCES, "release_awaited");
    }
    let bundle = from("evil.json");
    fs::write(&bundle, &evil.bytes).unwrap();
    verify(&machine, "evil.json", "").fails(DIFFERENCES, "release_awaited");

    // Nor by a release that does not count: one signature, one of them twice, one and the recovery
    // key, another vault's, an older threshold's, or none.
    let skills = [entry("alpha", 1, &alpha), entry("evil", 1, &evil)];
    let forged = owner.catalog(3, 1, &skills);
    let signed = |keys: &[u8], catalog: &Catalog, chain: &RootChain| {
        let keys: Vec<_> = keys.iter().map(|number| key(*number)).collect();
        let signers: Vec<_> = keys.iter().map(|key| key as _).collect();
        let envelope = Envelope::sign(catalog::PAYLOAD_TYPE, &to_bytes(catalog), &signers);
        file_of(&envelope, &envelopes(chain), 1)
    };
    let other = vault_of(RECOVERY - 1, 1);
    let elsewhere = owner.under(&other).catalog(3, 1, &skills);
    let early = owner.under(&first_root()).catalog(3, 0, &skills);
    for (name, file) in [
        ("one", signed(&[1], &forged, &chain)),
        ("recovery", signed(&[1, RECOVERY], &forged, &chain)),
        ("stranger", signed(&[1, 9], &forged, &chain)),
        ("another vault", signed(&[0, 1], &elsewhere, &other)),
        ("an older threshold", signed(&[0], &early, &first_root())),
        ("other payload", sign_anything(b"{}", &envelopes(&chain), 1)),
        ("not json", b"{".to_vec()),
    ] {
        fs::write(&carried, file).unwrap();
        let at = from("evil");
        let ran = verify(&stranger, at.to_str().unwrap(), &expect);
        assert_eq!(
            ran.code, DIFFERENCES,
            "{name}: {}{}",
            ran.stdout, ran.stderr
        );
    }
    fs::write(&carried, signed(&[0, 1], &forged, &chain)).unwrap();
    let at = from("evil");
    verify(&stranger, at.to_str().unwrap(), &expect).ok(); // the control: both signed this one

    // The file that is named lies beside the manifest and nowhere else.
    fs::write(machine.path().join("evil/carried.json"), &good).unwrap();
    for name in [
        "../alpha.catalog.json",
        "evil/carried.json",
        "/etc/passwd",
        "",
    ] {
        let path = from("alpha.manifest.json");
        let bytes = fs::read(&path).unwrap();
        let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
        manifest["catalog"] = json!(name);
        fs::write(&path, manifest.to_string()).unwrap();
        let at = from("alpha.zip");
        let ran = verify(&stranger, at.to_str().unwrap(), &expect);
        ran.fails(DIFFERENCES, "release_awaited");
        fs::write(&path, bytes).unwrap();
    }
    fs::remove_file(&carried).unwrap();
    let at = from("alpha.zip");
    let ran = verify(&stranger, at.to_str().unwrap(), &expect);
    ran.fails(DIFFERENCES, "release_awaited");
    // Changed bytes stay what they are.
    fs::write(from("evil").join("SKILL.md"), "other").unwrap();
    let ran = verify(&machine, "evil", "");
    assert_eq!(ran.code, INTEGRITY, "{}", ran.stderr);
}

/// A site that has the files below a folder, as they are when they are asked for.
fn serve(folder: &Path) -> Host {
    let (host, folder) = (Host::start(), folder.to_owned());
    host.attack(move |request| {
        let file = fs::read(folder.join(request.path.trim_start_matches('/')));
        Some(file.map_or_else(|_| Answer::new(404, ""), |bytes| Answer::new(200, bytes)))
    });
    host
}

/// Lists the skill `evil` in the index of a site, as its first publisher lists `alpha`.
fn list_evil(folder: &Path, signer: u8) {
    let path = folder.join("index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let text = fs::read(folder.join("evil/SKILL.md")).unwrap();
    let signed = json!({ "manifest": "evil.manifest.json", "public_key": key(signer).public() });
    let evil = json!({
        "name": "evil", "type": "skill-md", "description": "Not released.",
        "url": "evil/SKILL.md", "digest": format!("sha256:{}", Digest::of(&text)),
        "_meta": { "dev.vault/signed": signed },
    });
    index["skills"].as_array_mut().unwrap().push(evil);
    fs::write(&path, index.to_string()).unwrap();
}

#[test]
fn one_publisher_of_two_releases_nothing_by_a_site() {
    let chain = four_eyes();
    let host = Host::start();
    let owner = Owner::at(&host).under(&chain);
    let alpha = skill_by(0, "alpha", 1, &[]);
    let listed = owner.catalog(2, 0, &[entry("alpha", 1, &alpha)]);
    host.serve(Namespace::new(by_both(&listed, &chain), &[&alpha]));
    let machine = Home::new();
    machine.run(&format!("link {}", host.address())).ok();
    machine.run("cloud pull").ok();
    machine.run("export well-known site --skill alpha").ok();
    let folder = machine.path().join("site/.well-known/agent-skills");
    let evil = skill_by(1, "evil", 1, &[]);
    swap(&folder, &evil);
    list_evil(&folder, 1);
    let site = serve(&machine.path().join("site"));

    let stranger = Home::new();
    let add = |name: &str| stranger.run(&format!("add {} --skill {name} --json", site.url));
    add("alpha").ok();
    add("evil").fails(DIFFERENCES, "release_awaited");
    let installed = stranger.vault().join("skills/evil");
    assert!(!installed.exists());

    // Nor by a release that one of them signed.
    let skills = [entry("alpha", 1, &alpha), entry("evil", 1, &evil)];
    let manifest = fs::read(folder.join("evil.manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let carried = folder.join(manifest["catalog"].as_str().unwrap());
    let forged = to_bytes(&owner.catalog(3, 1, &skills));
    let alone = Envelope::sign(catalog::PAYLOAD_TYPE, &forged, &[&key(1)]);
    fs::write(&carried, file_of(&alone, &envelopes(&chain), 1)).unwrap();
    let ran = add("evil");
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(!installed.exists());

    // The control: once both have signed a release that lists it, the same site is good.
    fs::write(&carried, by_both(&owner.catalog(3, 0, &skills), &chain)).unwrap();
    add("evil").ok();
    assert!(installed.exists());
}
