//! The vectors of the signed root: every case through the functions that readers use.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use vault_format::bundle::{Bundle, BundleError};
use vault_format::catalog::{
    CatalogOutcome, CatalogReader, CountedCatalog, LastCatalog, NewRoots, ReaderKind,
    SignedCatalog, judge_catalog, judge_proposal,
};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::keys::{PublicKey, SecretKey};
use vault_format::manifest::{ManifestExpectation, ManifestTrust, SignedManifest};
use vault_format::name::{SkillName, Slug};
use vault_format::root::{
    JudgedRoots, KeyFingerprint, KeyName, PAYLOAD_TYPE, RecoveryFile, RootChain, RootList,
    RootState, SkillPlace, VaultId, judge_archive, judge_roots,
};

use crate::support::{folder, unhex};

fn bytes(name: &str) -> Vec<u8> {
    let path = folder().join("roots").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

/// The vectors' keys and root envelopes; envelopes are kept as text, since their exact bytes are
/// measured.
struct Vectors {
    keys: Value,
    roots: BTreeMap<String, Box<RawValue>>,
    releases: BTreeMap<String, Box<RawValue>>,
}

impl Vectors {
    fn load() -> Self {
        Self {
            keys: read("keys.json"),
            roots: serde_json::from_slice(&bytes("roots.json")).unwrap(),
            releases: serde_json::from_slice(&bytes("releases.json")).unwrap(),
        }
    }

    fn secret(&self, name: &str) -> SecretKey {
        let seed = unhex(self.keys[name]["seed_hex"].as_str().unwrap());
        SecretKey::from_seed(seed.try_into().unwrap())
    }

    /// The compact list of an input: names, or a rule.
    fn list_text(&self, roots: &Value) -> String {
        let Some(names) = roots.as_array() else {
            return self.by_rule(roots);
        };
        let named = |name: &Value| self.roots[name.as_str().unwrap()].get();
        let envelopes: Vec<&str> = names.iter().map(named).collect();
        format!("[{}]", envelopes.join(","))
    }

    /// The list of an input as readers get it: inside an object.
    fn list(&self, roots: &Value) -> RootList {
        #[derive(serde::Deserialize)]
        struct Outer {
            roots: RootList,
        }
        let object = format!(r#"{{"roots":{}}}"#, self.list_text(roots));
        json::parse::<Outer>(object.as_bytes()).unwrap().roots
    }

    /// A list that is too large to keep.
    fn by_rule(&self, rule: &Value) -> String {
        let number = |name: &str| usize::try_from(rule[name].as_u64().unwrap()).unwrap();
        let signer = self.secret(rule["signer"].as_str().unwrap());
        let raw = self.roots[rule["from"].as_str().unwrap()].get();
        let first = Envelope::parse(raw.as_bytes()).unwrap();
        let vault_id = VaultId::derive(&Digest::of(first.payload()));
        let text = String::from_utf8(first.payload().to_vec()).unwrap();
        let mut previous = Digest::of(first.payload());
        let mut envelopes = vec![raw.to_owned()];
        for version in 2..=number("versions") {
            let mut payload = text
                .replace(r#""vault_id":null"#, &format!(r#""vault_id":"{vault_id}""#))
                .replace(r#""version":1"#, &format!(r#""version":{version}"#))
                .replace(
                    r#""previous_sha256":null"#,
                    &format!(r#""previous_sha256":"{previous}""#),
                );
            if number("pad") > 0 {
                payload.pop();
                payload += &format!(r#","pad":"{}"}}"#, "x".repeat(number("pad")));
            }
            previous = Digest::of(payload.as_bytes());
            let envelope = Envelope::sign(PAYLOAD_TYPE, payload.as_bytes(), &[&signer]);
            let mut envelope = String::from_utf8(envelope.to_bytes()).unwrap();
            if number("unknown") > 0 {
                envelope.pop();
                envelope += &format!(r#","x":"{}"}}"#, "x".repeat(number("unknown")));
            }
            envelopes.push(envelope);
        }
        let list = format!("[{}]", envelopes.join(","));
        assert_eq!(
            Digest::of(list.as_bytes()).to_string(),
            rule["sha256"],
            "{rule}"
        );
        list
    }

    /// A catalog file: a release with roots around it.
    fn file(&self, release: &str, roots: &Value) -> Vec<u8> {
        let release = self.releases[release].get();
        let (key, rest) = release.split_once(r#","payloadType""#).unwrap();
        let roots = self.list_text(roots);
        format!(r#"{key},"roots":{roots},"payloadType"{rest}"#).into_bytes()
    }

    fn input(&self, input: &Value) -> Vec<u8> {
        if let Some(name) = input["file"].as_str() {
            bytes(name)
        } else if let Some(text) = input["bytes"].as_str() {
            text.as_bytes().to_vec()
        } else {
            self.file(input["release"].as_str().unwrap(), &input["roots"])
        }
    }

    fn last(&self, release: &str, signers: Vec<PublicKey>) -> LastCatalog {
        let file = self.file(release, &json!([]));
        let payload_sha256 = SignedCatalog::parse(&file).unwrap().payload_sha256();
        LastCatalog::read_stored(&file, &payload_sha256, signers).unwrap()
    }

    fn reader(&self, state: &Value) -> Reader {
        let own = (!state["roots"].is_null()).then(|| {
            let chain = RootChain::verify(&self.list(&state["roots"])).unwrap();
            RootState::new(chain, parsed(&state["revoked"]).into_iter().collect())
        });
        let stored = &state["stored"];
        Reader {
            side: match state["side"].as_str().unwrap() {
                "service" => ReaderKind::Service,
                _ => ReaderKind::Device,
            },
            own,
            last: stored["release"]
                .as_str()
                .map(|release| self.last(release, parsed(&stored["signers"]))),
            settings: state.clone(),
            signed: BTreeMap::new(),
        }
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(list: &Value) -> Vec<T> {
    let texts = list.as_array().unwrap().iter();
    texts
        .map(|text| text.as_str().unwrap().parse().unwrap())
        .collect()
}

/// A reader with what it keeps from step to step.
struct Reader {
    side: ReaderKind,
    own: Option<RootState>,
    last: Option<LastCatalog>,
    /// The other members of a case's state, which no step changes.
    settings: Value,
    /// What it signed, by root version and release.
    signed: BTreeMap<(u64, u64), Digest>,
}

/// The word of a step and its warnings.
type Step = (String, Vec<&'static str>);

fn warned(judged: &JudgedRoots) -> Vec<&'static str> {
    judged
        .warnings
        .iter()
        .map(|warning| warning.warning_code())
        .collect()
}

impl Reader {
    fn expected(&self) -> Option<vault_format::root::VaultFingerprint> {
        let text = self.settings["expect_key"].as_str();
        text.map(|text| text.parse().unwrap())
    }

    fn step(&mut self, vectors: &Vectors, case: &Value) -> Step {
        let input = &case["input"];
        match case["do"].as_str().unwrap() {
            "chain" => self.chain(&vectors.list(&input["roots"])),
            "catalog" => self.catalog(&vectors.input(input)),
            "sign" => self.sign(&vectors.input(input)),
            "recover" => self.recover(&vectors.list(&input["roots"]), input),
            "archive" => {
                let list = vectors.list(&input["roots"]);
                self.archive(&list, input["bundle"].as_str().unwrap())
            }
            "library" => self.library(input["bundle"].as_str().unwrap()),
            "run" => self.run(&input["skill"].as_str().unwrap().parse().unwrap()),
            "mcp" => self.mcp(),
            other => panic!("unknown step {other}"),
        }
    }

    fn chain(&mut self, list: &RootList) -> Step {
        match judge_roots(self.own.as_ref(), list, self.expected().as_ref()) {
            Err(error) => (error.error_code().to_owned(), Vec::new()),
            Ok(judged) => {
                let changed = self.own.as_ref() != Some(&judged.state);
                assert_eq!(judged.taken, changed);
                let warnings = warned(&judged);
                self.own = Some(judged.state);
                ("ok".to_owned(), warnings)
            }
        }
    }

    fn with_catalog_reader<T>(&self, run: impl FnOnce(&CatalogReader<'_>) -> T) -> T {
        let text = |name: &str| self.settings[name].as_str();
        let slug: Slug = text("slug").unwrap().parse().unwrap();
        let expected = self.expected();
        run(&CatalogReader {
            side: self.side,
            base: text("base").unwrap(),
            slug: &slug,
            now: text("now").unwrap().parse().unwrap(),
            latest_seen_at: text("latest_seen_at").map(|text| text.parse().unwrap()),
            own: self.own.as_ref(),
            expected: expected.as_ref(),
            last: self.last.as_ref(),
            accept_fork: false,
        })
    }

    /// What a device does at a pull, and a service at a push.
    fn catalog(&mut self, file: &[u8]) -> Step {
        let judged = self.with_catalog_reader(|reader| judge_catalog(file, reader));
        let warnings = judged
            .warnings
            .iter()
            .map(|warning| warning.warning_code())
            .collect();
        let mut with_catalog = None;
        match judged.roots {
            NewRoots::None => {}
            NewRoots::Now(state) => self.own = Some(state),
            NewRoots::WithCatalog(state) => with_catalog = Some(state),
        }
        let word = match judged.outcome {
            Err(error) => Err(error.error_code()),
            Ok(CatalogOutcome::RootsOnly) => Ok("ok"),
            Ok(CatalogOutcome::Equal { signers }) => {
                self.last.as_mut().unwrap().signers = signers;
                Ok("equal")
            }
            Ok(CatalogOutcome::Release(release)) => {
                let state = release.state().clone();
                release
                    .settle_versions(|stored| counts(&stored.bundle_hash, &state))
                    .map_err(|error| error.error_code())
                    .and_then(|counted| open_all(&counted).map(|()| counted))
                    .map(|counted| {
                        let hash = &counted.stored.payload_sha256;
                        self.last =
                            Some(LastCatalog::read_stored(file, hash, counted.signers).unwrap());
                        "ok"
                    })
            }
        };
        if word.is_ok() {
            self.own = with_catalog.or(self.own.take());
        }
        (word.unwrap_or_else(|word| word).to_owned(), warnings)
    }

    /// What another publisher does with a proposal.
    fn sign(&mut self, file: &[u8]) -> Step {
        let signed = |root, release| self.signed.get(&(root, release)).copied();
        let judged = self.with_catalog_reader(|reader| {
            judge_proposal(file, reader, reader.last.map(|last| last.stored), &signed)
        });
        if let NewRoots::Now(state) = judged.roots {
            self.own = Some(state);
        }
        let word = match judged.outcome {
            Err(error) => error.error_code(),
            Ok(CatalogOutcome::Release(release)) => {
                let catalog = release.catalog();
                let number = (catalog.root_version, catalog.release);
                self.signed.insert(number, release.payload_sha256());
                "ok"
            }
            Ok(other) => panic!("{other:?}"),
        };
        let warnings = judged.warnings.iter().map(|warning| warning.warning_code());
        (word.to_owned(), warnings.collect())
    }

    fn recover(&mut self, list: &RootList, input: &Value) -> Step {
        let file = &input["file"];
        let text = |name: &str| file[name].as_str().unwrap();
        let recovery = RecoveryFile {
            vault_id: text("vault_id").parse().unwrap(),
            addresses: Vec::new(),
            key: SecretKey::from_seed([0; 32]),
            version: file["version"].as_u64().unwrap(),
            root_sha256: text("sha256").parse().unwrap(),
        };
        let chain = RootChain::verify(list).and_then(|chain| {
            Ok((
                recovery.check_chain(&chain, input["at_least"].as_u64())?,
                chain,
            ))
        });
        match chain {
            Err(error) => (error.error_code().to_owned(), Vec::new()),
            Ok(((), chain)) => {
                self.own = Some(RootState::new(chain, std::collections::BTreeSet::new()));
                ("ok".to_owned(), Vec::new())
            }
        }
    }

    fn archive(&mut self, list: &RootList, bundle: &str) -> Step {
        let judged = match judge_archive(self.own.as_ref(), list, self.expected().as_ref()) {
            Ok(judged) => judged,
            Err(error) => return (error.error_code().to_owned(), Vec::new()),
        };
        let warnings = warned(&judged);
        let hash: Digest = bundle.parse().unwrap();
        let listed = self.last.as_ref().is_some_and(|last| {
            last.catalog
                .skills
                .iter()
                .any(|skill| skill.bundle_hash == hash)
        });
        let word = word(&judged.state, &hash, SkillPlace::Archive { listed });
        self.own = Some(judged.state);
        (word.to_owned(), warnings)
    }

    fn library(&self, bundle: &str) -> Step {
        let hash: Digest = bundle.parse().unwrap();
        let taken_over: Vec<Digest> = parsed(&self.settings["taken_over"]);
        let taken_over = taken_over.contains(&hash);
        let word = word(
            self.own.as_ref().unwrap(),
            &hash,
            SkillPlace::Own { taken_over },
        );
        (word.to_owned(), Vec::new())
    }

    fn run(&self, skill: &SkillName) -> Step {
        let installed = self.last.as_ref().unwrap().catalog.skill(skill).unwrap();
        let own = self.own.as_ref().unwrap();
        let word = word(own, &installed.bundle_hash, SkillPlace::Installed);
        (word.to_owned(), Vec::new())
    }

    fn mcp(&self) -> Step {
        let signers = &self.last.as_ref().unwrap().signers;
        let void = self.own.as_ref().unwrap().voids_release(signers);
        (
            if void { "release_awaited" } else { "ok" }.to_owned(),
            Vec::new(),
        )
    }

    /// Everything that a step may change.
    fn memory(&self) -> (Option<RootState>, Option<(Digest, Vec<PublicKey>)>) {
        let last = self.last.as_ref();
        let last = last.map(|last| (last.stored.payload_sha256, last.signers.clone()));
        (self.own.clone(), last)
    }
}

fn bundle_bytes(hash: &Digest) -> Vec<u8> {
    bytes(&format!("bundle-{hash}.json"))
}

fn manifest_of(hash: &Digest) -> Result<SignedManifest, &'static str> {
    let bundle = bundle_bytes(hash);
    let bundle = Bundle::parse(&bundle, hash, bundle.len() as u64);
    Ok(bundle
        .map_err(|error| error.error_code())?
        .signed_manifest()
        .clone())
}

/// Whether a stored manifest is by a key that counts.
fn counts(hash: &Digest, state: &RootState) -> bool {
    let signed = manifest_of(hash).unwrap();
    signed
        .signer(state)
        .is_some_and(|key| state.was_publisher(&key))
}

fn word(state: &RootState, hash: &Digest, place: SkillPlace) -> &'static str {
    let trust = ManifestTrust { state, place };
    let verified = manifest_of(hash).and_then(|signed| {
        signed
            .verify_signature(&trust)
            .map_err(|error| error.error_code())
    });
    verified.map_or_else(|word| word, |_| "ok")
}

/// Opens every bundle of a release, and every variant that one of its profiles names.
fn open_all(counted: &CountedCatalog) -> Result<(), &'static str> {
    let trust = ManifestTrust {
        state: &counted.state,
        place: SkillPlace::Listed,
    };
    let open = |name: &SkillName, hash: &Digest, version: Option<u64>| {
        let bytes = bundle_bytes(hash);
        let expected = ManifestExpectation {
            name,
            version,
            stored_version: None,
        };
        Bundle::parse(&bytes, hash, bytes.len() as u64)
            .and_then(|bundle| bundle.open(&|_| None, &trust, &expected))
            .map(|_| ())
            .map_err(|error: BundleError| error.error_code())
    };
    for skill in &counted.catalog.skills {
        open(&skill.name, &skill.bundle_hash, Some(skill.version))?;
    }
    for entry in &counted.catalog.profiles {
        let profile = read(&format!("profile-{}.json", entry.bundle_hash));
        for skill in profile["skills"].as_array().unwrap() {
            let member = |name: &str| skill[name].as_str().unwrap();
            let name: SkillName = member("name").parse().unwrap();
            let hash: Digest = member("bundle_hash").parse().unwrap();
            open(&name, &hash, None)?;
        }
    }
    Ok(())
}

fn overlaid(default: &Value, own: &Value) -> Value {
    let mut state = default.clone();
    for (name, value) in own.as_object().unwrap() {
        state[name] = value.clone();
    }
    state
}

/// Does one step and compares word, exit, warnings and everything that the reader keeps.
fn check_step(vectors: &Vectors, reader: &mut Reader, case: &Value, id: &str) {
    let before = reader.memory();
    let (word, warnings) = reader.step(vectors, case);
    assert_eq!(word, case["result"], "{id}");
    assert_eq!(exit_of(&word), case["exit"], "{id}");
    let named = case["warnings"].as_array().cloned().unwrap_or_default();
    assert_eq!(json!(warnings), Value::Array(named), "{id}");
    let (own, last) = reader.memory();
    let after = &case["after"];
    if let Some(count) = after["root_count"].as_u64() {
        assert_eq!(own.as_ref().unwrap().chain().version(), count, "{id}");
    } else {
        let chain = if after["roots"].is_null() {
            before.0.as_ref().map(|own| own.chain().clone())
        } else {
            Some(RootChain::verify(&vectors.list(&after["roots"])).unwrap())
        };
        assert_eq!(own.as_ref().map(RootState::chain), chain.as_ref(), "{id}");
    }
    let revoked =
        |own: Option<&RootState>| own.map_or(json!([]), |own| json!(own.revoked_elsewhere()));
    let expected = match &after["revoked"] {
        Value::Null => revoked(before.0.as_ref()),
        named => named.clone(),
    };
    assert_eq!(revoked(own.as_ref()), expected, "{id}");
    let stored = match after["stored"].as_str() {
        Some(release) => Some(vectors.last(release, Vec::new()).stored.payload_sha256),
        None => before.1.as_ref().map(|(hash, _)| *hash),
    };
    assert_eq!(last.as_ref().map(|(hash, _)| *hash), stored, "{id}");
    let signers = match &after["signers"] {
        Value::Null => before.1.map(|(_, signers)| json!(signers)),
        named => Some(named.clone()),
    };
    assert_eq!(last.map(|(_, signers)| json!(signers)), signers, "{id}");
}

fn exit_of(word: &str) -> u64 {
    match word {
        "ok" | "equal" => 0,
        "newer_vault" => 1,
        "expect_key_needed" => 2,
        "release_awaited" | "release_expired" | "signer_retired" | "proposal_outdated" => 3,
        _ => 6,
    }
}

#[test]
fn every_case_of_the_vectors_has_its_result() {
    let vectors = Vectors::load();
    for (file, count) in [("accept.json", 126), ("negative.json", 319)] {
        let cases = read(file);
        let list = cases["cases"].as_array().unwrap();
        assert_eq!(list.len(), count);
        for case in list {
            let mut reader = vectors.reader(&overlaid(&cases["state"], &case["state"]));
            check_step(&vectors, &mut reader, case, case["id"].as_str().unwrap());
        }
    }
}

#[test]
fn every_story_of_the_vectors_goes_as_it_is_told() {
    let vectors = Vectors::load();
    let stories = read("stories.json");
    let mut steps = 0;
    for story in stories["stories"].as_array().unwrap() {
        let actors = story["actors"].as_object().unwrap().iter();
        let mut actors: BTreeMap<&str, Reader> = actors
            .map(|(name, state)| {
                let state = overlaid(&stories["state"], state);
                (name.as_str(), vectors.reader(&state))
            })
            .collect();
        for step in story["steps"].as_array().unwrap() {
            let actor = step["actor"].as_str().unwrap();
            let id = format!("{}, {actor}: {}", story["id"], step["what"]);
            check_step(&vectors, actors.get_mut(actor).unwrap(), step, &id);
            steps += 1;
        }
    }
    assert_eq!(steps, 126);
}

#[test]
fn ids_and_fingerprints_of_the_vectors() {
    let vectors = Vectors::load();
    let chains: BTreeMap<String, Value> =
        serde_json::from_value(read("chains.json")["chains"].clone()).unwrap();
    for (name, expected) in chains {
        let chain = RootChain::verify(&vectors.list(&expected["roots"])).unwrap();
        assert_eq!(chain.vault_id().to_string(), expected["vault_id"], "{name}");
        assert_eq!(
            chain.fingerprint().to_string(),
            expected["fingerprint"],
            "{name}"
        );
        let file = std::fs::read(
            folder()
                .join("roots")
                .join(expected["file"].as_str().unwrap()),
        );
        assert_eq!(json::to_bytes(&chain), file.unwrap(), "{name}");
    }
    for (name, key) in vectors.keys.as_object().unwrap() {
        if name != "about" && key["fingerprint"].is_string() {
            let public = vectors.secret(name).public();
            assert_eq!(
                KeyFingerprint::publisher(&public).to_string(),
                key["fingerprint"]
            );
        }
    }
}

#[test]
fn names_of_keys_have_a_fixed_list_of_characters() {
    let names = read("names.json");
    for (list, good) in [("accept", true), ("refuse", false)] {
        for name in names[list].as_array().unwrap() {
            let name = name.as_str().unwrap();
            assert_eq!(name.parse::<KeyName>().is_ok(), good, "{name:?}");
        }
    }
    let ranges: Vec<(u32, u32)> = names["refused_code_points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| {
            let end = |index| u32::from_str_radix(range[index].as_str().unwrap(), 16).unwrap();
            (end(0), end(1))
        })
        .collect();
    for c in '\0'..=char::MAX {
        let refused = ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&u32::from(c)));
        assert_eq!(c.to_string().parse::<KeyName>().is_err(), refused, "{c:?}");
    }
}
