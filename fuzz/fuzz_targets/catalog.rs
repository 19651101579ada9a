//! Catalog files and key rotations, from a host that may send anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_fuzz::secret;
use vault_skill::catalog::{self, Expectation, Side, SignedCatalog, Stored, Trust, accept};
use vault_skill::dsse::Envelope;
use vault_skill::hash::Digest;
use vault_skill::rotation::{self, Rotation};
use vault_skill::time::Timestamp;

fuzz_target!(|data: &[u8]| {
    judge(data);
    // As the payload of a catalog that is truly signed.
    let key = secret("release 0");
    let envelope = Envelope::sign(catalog::PAYLOAD_TYPE, data, &[&key]).to_bytes();
    judge(
        &[
            format!(r#"{{"public_key":"{}","#, key.public()).as_bytes(),
            &envelope[1..],
        ]
        .concat(),
    );
    // As the payload of a rotation that every key of the vectors has signed.
    let keys = ["release 0", "release 1", "release 4", "recovery"].map(secret);
    let envelope = Envelope::sign(rotation::PAYLOAD_TYPE, data, &keys.each_ref());
    if let Ok(statement) = Rotation::verify(&envelope) {
        let again = statement
            .sign(&keys.each_ref())
            .expect("what was read can be signed");
        assert_eq!(
            Rotation::verify(&again).expect("what was signed verifies"),
            statement
        );
    }
});

fn judge(data: &[u8]) {
    let slug = "acme".parse().expect("a slug");
    let pinned = Trust {
        vault_id: "01JD5VXQ3N8W2K7R4T6Y9ZB1CM".parse().ok(),
        public_key: Some(secret("release 0").public()),
        recovery_key_sha256: Some(secret("recovery").public().key_id()),
        stored: Some(Stored {
            release: 41,
            payload_sha256: Digest::of(b"41"),
        }),
        ..Trust::default()
    };
    for (side, trust) in [
        (Side::Client, Trust::default()),
        (Side::Client, pinned.clone()),
        (Side::Service, pinned),
    ] {
        let expected = Expectation {
            side,
            base: "https://vault.example",
            slug: &slug,
            now: Timestamp::from_unix(1_795_226_410),
            latest_seen_at: None,
            history: &|_| None,
        };
        let Ok(accepted) = accept(data, &trust, &expected) else {
            continue;
        };
        if side == Side::Client {
            let again = accept(data, &accepted.trust, &expected)
                .expect("what was accepted is accepted again");
            assert!(again.same_release);
            assert_eq!(again.trust, accepted.trust);
        }
        let file = SignedCatalog::parse(data).expect("what was accepted parses");
        assert_eq!(
            file.verify().expect("what was accepted verifies"),
            accepted.catalog
        );
    }
}
