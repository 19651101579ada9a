//! Catalog files, from a host that may send anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_fuzz::{NOW, chain, known, secret};
use vault_format::catalog;
use vault_format::catalog::{CatalogOutcome, CatalogReader, LastCatalog, NewRoots, ReaderKind, SignedCatalog, judge_catalog, judge_proposal};
use vault_format::dsse::Envelope;
use vault_format::json;

fuzz_target!(|data: &[u8]| {
    show(data);
    // As the payload of a catalog that is truly signed, under a good root.
    let key = secret("release 0");
    let envelope = Envelope::sign(catalog::PAYLOAD_TYPE, data, &[&key]).to_bytes();
    let mut file = format!(r#"{{"public_key":"{}","roots":"#, key.public()).into_bytes();
    file.extend_from_slice(&json::to_bytes(&chain()));
    file.push(b',');
    file.extend_from_slice(&envelope[1..]);
    show(&file);
});

fn show(data: &[u8]) {
    let slug = "acme".parse().expect("a slug");
    let known = known(chain());
    for (side, own) in [(ReaderKind::Device, None), (ReaderKind::Device, Some(&known)), (ReaderKind::Service, Some(&known))] {
        let reader = CatalogReader {
            side,
            base: "https://vault.example",
            slug: &slug,
            now: NOW,
            latest_seen_at: None,
            own,
            expected: None,
            last: None,
            accept_fork: false,
        };
        let _ = judge_proposal(data, &reader, reader.last.map(|last| last.stored), &|_, _| None);
        let judged = judge_catalog(data, &reader);
        let Ok(CatalogOutcome::Release(release)) = judged.outcome else {
            assert!(side == ReaderKind::Device || matches!(judged.roots, NewRoots::None));
            continue;
        };
        let counted = release.settle_versions(|_| true).expect("nothing is stored that could be newer");
        // What counts is the same release when it comes again.
        let hash = counted.stored.payload_sha256;
        let last = LastCatalog::read_stored(data, &hash, counted.signers.clone()).expect("what counted can be read");
        let again = CatalogReader { own: Some(&counted.state), last: Some(&last), ..reader };
        assert!(matches!(judge_catalog(data, &again).outcome, Ok(CatalogOutcome::Equal { .. })));
        let file = SignedCatalog::parse(data).expect("what counted parses");
        assert_eq!(file.read_counted(&hash).expect("what counted can be read"), counted.catalog);
    }
}
