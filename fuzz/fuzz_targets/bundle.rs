//! Bundles and the manifests in them, from a host that may send anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_fuzz::{chain, known, listed, secret};
use vault_format::bundle::{Bundle, encode};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::manifest;
use vault_format::manifest::{ManifestExpectation, SignedManifest};

fuzz_target!(|data: &[u8]| {
    let state = known(chain());
    let trust = listed(&state);
    // As a bundle, with a manifest that may be truly signed: what opens, encodes to a bundle that opens to the same.
    if let Ok(bundle) = Bundle::parse(data, &Digest::of(data), data.len() as u64) {
        for name in ["code-review", "release-notes", "commit-log", "big-table"] {
            let name = name.parse().expect("a name");
            let expected = ManifestExpectation {
                name: &name,
                version: None,
                stored_version: None,
            };
            let Ok(opened) = bundle.clone().open(&|_| None, &trust, &expected) else {
                continue;
            };
            let encoded = encode(&opened.signed, &opened.manifest, &opened.files)
                .expect("what opened can be encoded");
            let bundle = Bundle::parse(&encoded.bytes, &encoded.hash, encoded.bytes.len() as u64)
                .expect("what was encoded parses");
            let again = bundle
                .open(&|_| None, &trust, &expected)
                .expect("what was encoded opens");
            assert_eq!(
                (again.manifest, again.files),
                (opened.manifest, opened.files)
            );
        }
    }
    // As the payload of a manifest, truly signed.
    let envelope = Envelope::sign(manifest::PAYLOAD_TYPE, data, &[&secret("release 0")]);
    let signed = SignedManifest::parse(&envelope.to_bytes()).expect("an envelope");
    if let Ok(manifest) = signed.verify_signature(&trust) {
        let again = SignedManifest::sign(&manifest, &secret("release 0"))
            .expect("what was read can be signed");
        assert_eq!(
            again
                .verify_signature(&trust)
                .expect("what was signed verifies"),
            manifest
        );
    }
    // As an envelope.
    if let Ok(envelope) = Envelope::parse(data) {
        assert_eq!(
            Envelope::parse(&envelope.to_bytes()).expect("what was written parses"),
            envelope
        );
    }
});
