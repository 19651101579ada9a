//! The vectors of the signed root: every case through the functions that readers use.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use vault_skill::dsse::Envelope;
use vault_skill::hash::Digest;
use vault_skill::json;
use vault_skill::keys::SecretKey;
use vault_skill::root::{
    KeyFingerprint, KeyName, PAYLOAD_TYPE, RootChain, RootError, RootList, RootState, VaultId,
    judge,
};

use crate::support::{folder, unhex};

fn read(name: &str) -> Value {
    let path = folder().join("roots").join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// The vectors' keys and root envelopes; envelopes are kept as text, since their exact bytes are measured.
struct Vectors {
    keys: Value,
    roots: BTreeMap<String, Box<RawValue>>,
}

impl Vectors {
    fn load() -> Self {
        let path = folder().join("roots/roots.json");
        Self {
            keys: read("keys.json"),
            roots: serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
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

    fn state(&self, state: &Value) -> Option<RootState> {
        if state["roots"].is_null() {
            return None;
        }
        let chain = RootChain::verify(&self.list(&state["roots"])).unwrap();
        let revoked = state["revoked"].as_array().unwrap().iter();
        let revoked = revoked.map(|text| text.as_str().unwrap().parse().unwrap());
        Some(RootState::new(chain, revoked.collect()))
    }
}

fn overlaid(default: &Value, own: &Value) -> Value {
    let mut state = default.clone();
    for (name, value) in own.as_object().unwrap() {
        state[name] = value.clone();
    }
    state
}

fn check_chain_case(vectors: &Vectors, default: &Value, case: &Value) {
    let id = &case["id"];
    let state = overlaid(default, &case["state"]);
    let own = vectors.state(&state);
    let expected = state["expect_key"]
        .as_str()
        .map(|text| text.parse().unwrap());
    let judged = judge(
        own.as_ref(),
        &vectors.list(&case["input"]["roots"]),
        expected.as_ref(),
    );
    let word = judged.as_ref().map_or_else(RootError::word, |_| "ok");
    assert_eq!(word, case["result"], "{id}: {judged:?}");
    let Ok(judged) = judged else { return };
    let warnings: Vec<&str> = judged
        .warnings
        .iter()
        .map(|warning| warning.word())
        .collect();
    let named = case["warnings"].as_array().cloned().unwrap_or_default();
    assert_eq!(json!(warnings), Value::Array(named), "{id}");
    let after = &case["after"];
    let chain = judged.state.chain();
    if let Some(count) = after["root_count"].as_u64() {
        assert_eq!(chain.version(), count, "{id}");
    } else {
        let names = if after["roots"].is_null() {
            &state["roots"]
        } else {
            &after["roots"]
        };
        let known = RootChain::verify(&vectors.list(names)).unwrap();
        assert_eq!(chain, &known, "{id}");
    }
    let revoked = if after["revoked"].is_null() {
        &state["revoked"]
    } else {
        &after["revoked"]
    };
    assert_eq!(&json!(judged.state.revoked_elsewhere()), revoked, "{id}");
    assert_eq!(judged.taken, own.as_ref() != Some(&judged.state), "{id}");
}

#[test]
fn chains_of_the_vectors_count_or_do_not() {
    let vectors = Vectors::load();
    let mut count = 0;
    for file in ["accept.json", "negative.json"] {
        let cases = read(file);
        for case in cases["cases"].as_array().unwrap() {
            if case["do"] == "chain" {
                check_chain_case(&vectors, &cases["state"], case);
                count += 1;
            }
        }
    }
    assert_eq!(count, 57 + 172);
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
