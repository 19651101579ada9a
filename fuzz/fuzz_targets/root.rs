//! Lists of root versions, key requests and recovery files, from a host that may send anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_fuzz::{NOW, chain, entry, known, secret};
use vault_format::dsse::Envelope;
use vault_format::json;
use vault_format::root::{KeyRequest, PAYLOAD_TYPE, RecoveryFile, RootChain, RootEdit, RootList, RootState, VaultFingerprint, judge_roots};

#[derive(serde::Deserialize)]
struct Outer {
    roots: RootList,
}

fuzz_target!(|data: &[u8]| {
    // As a list, as it comes in a catalog file.
    if let Ok(outer) = json::parse::<Outer>(data) {
        show(&outer.roots);
    }
    // As a payload that the root key has truly signed: as version 1, and after a good version 1.
    let keys = ["recovery", "release 0", "release 1"].map(secret);
    let envelope = Envelope::sign(PAYLOAD_TYPE, data, &keys.each_ref());
    let envelope = String::from_utf8(envelope.to_bytes()).expect("JSON is text");
    let first = String::from_utf8(json::to_bytes(&chain())).expect("JSON is text");
    for list in [format!("[{envelope}]"), format!("{},{envelope}]", &first[..first.len() - 1])] {
        let object = format!(r#"{{"roots":{list}}}"#);
        show(&json::parse::<Outer>(object.as_bytes()).expect("a list").roots);
    }
    let vault_id = chain().vault_id();
    let slug = "acme".parse().expect("a slug");
    if let Ok(request) = KeyRequest::verify(data, vault_id, &slug) {
        assert_eq!((request.vault_id, &request.slug), (vault_id, &slug));
    }
    if let Ok(file) = RecoveryFile::parse(data) {
        let again = RecoveryFile::parse(&file.to_bytes()).expect("what was written parses");
        assert_eq!(again.to_bytes(), file.to_bytes());
        let _ = file.check_chain(&chain(), None);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(fingerprint) = text.parse::<VaultFingerprint>()
    {
        assert_eq!(fingerprint.to_string(), text);
    }
});

/// Three readers: one without a pin, one that knows version 1, one that knows a version 2 that revokes a key.
fn show(list: &RootList) {
    let revoked = secret("release 1").public();
    let longer = {
        let first = chain();
        let mut edit = RootEdit::begin_after(&first, NOW);
        edit.revoke(&revoked).add_publisher(entry("release 2")).expect("a new key");
        edit.sign(&[&secret("recovery")]).expect("a root version")
    };
    for own in [None, Some(known(chain())), Some(known(longer))] {
        let Ok(judged) = judge_roots(own.as_ref(), list, None) else {
            continue;
        };
        let state = judged.state;
        let again = judge_roots(Some(&state), list, None).expect("what counts counts again");
        assert!(!again.taken && again.state == state);
        let stored = json::to_bytes(state.chain());
        let object = [br#"{"roots":"#.as_slice(), &stored, b"}"].concat();
        let read = json::parse::<Outer>(&object).expect("what was written parses");
        assert_eq!(&RootChain::verify(&read.roots).expect("what counted verifies"), state.chain());
        if let Some(own) = own.filter(|own| own.is_revoked(&revoked)) {
            assert!(state.is_revoked(&revoked), "a revocation is never forgotten");
            assert!(own.vault_id() == state.vault_id());
        }
        let _: &RootState = &state;
    }
}
