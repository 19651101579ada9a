//! Chains of root versions, judged as a device judges them: a baseline verifies the same signatures
//! and does nothing else.

use std::hint::black_box;

use ed25519_dalek::{Signature, Signer as _, SigningKey};
use vault_format::keys::{SecretKey, Signer};
use vault_format::root::{
    KeyEntry, KeyName, RootChain, RootEdit, RootList, RootState, judge_roots,
};
use vault_format::time::Timestamp;

use crate::meter::{float, median, timed};
use crate::table::{Row, Table, Target, say};

const ROUNDS: usize = 21;
const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

/// A chain of so many versions, each signed by every key of the root role.
fn chain(versions: u64, root_keys: u8) -> RootChain {
    let named = |key: &SecretKey| KeyEntry {
        public_key: key.public(),
        name: KeyName::default_for(&key.public()),
    };
    let roots: Vec<SecretKey> = (1..=root_keys)
        .map(|number| SecretKey::from_seed([number; 32]))
        .collect();
    let signers: Vec<&dyn Signer> = roots.iter().map(|key| key as &dyn Signer).collect();
    let mut edit = RootEdit::begin_first(NOW);
    for key in &roots {
        edit.add_root_key(named(key)).expect("a new key");
    }
    let publisher = SecretKey::from_seed([200; 32]);
    edit.add_publisher(named(&publisher)).expect("a new key");
    edit.set_root_threshold(roots.len());
    let mut chain = edit.sign(&signers).expect("a first version");
    while chain.version() < versions {
        let mut edit = RootEdit::begin_after(&chain, NOW);
        chain = edit.use_reserve().sign(&signers).expect("a next version");
    }
    chain
}

/// Milliseconds of the work, the median of some rounds.
fn milliseconds(mut work: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| timed(&mut work).1.as_secs_f64() * 1e3);
    median(rounds.collect())
}

/// So many `verify_strict` of a text as long as a root version.
fn bare(signatures: usize) -> f64 {
    let key = SigningKey::from_bytes(&[1; 32]);
    let text = [b'x'; 700];
    let signature: Signature = key.sign(&text);
    let public = key.verifying_key();
    milliseconds(|| {
        for _ in 0..signatures {
            black_box(public.verify_strict(black_box(&text), &signature)).expect("a good one");
        }
    })
}

/// Judges each chain from its bytes: at first link, and where it is known.
pub fn measure(table: &mut Table) {
    say("chains of root versions");
    for (versions, root_keys, limit) in [(64, 3, 20.0), (512, 1, 200.0)] {
        let chain = chain(versions, root_keys);
        let text = serde_json::to_string(&chain).expect("JSON");
        let read = || serde_json::from_str::<RootList>(&text).expect("a list");
        let own = RootState::load(chain.root1_sha256(), &read(), std::iter::empty().collect());
        let own = own.expect("a good chain");
        let first = milliseconds(|| {
            black_box(judge_roots(None, &read(), None)).expect("a good chain");
        });
        let known = milliseconds(|| {
            black_box(judge_roots(Some(&own), &read(), None)).expect("the same chain");
        });
        let signatures = usize::try_from(versions).expect("a count") * usize::from(root_keys);
        let what = format!("{versions} root versions with {root_keys} signatures each");
        table.row(
            Row::new(format!("{what}, first link"), first, "ms")
                .beside(bare(signatures), "verify_strict alone")
                .target(Target::Below(limit)),
        );
        table.row(
            Row::new("  the same, known: hashes alone", known, "ms")
                .beside(first, "first link")
                .target(Target::Most(0.25)),
        );
        let size = format!("  the list, {:.0} KiB", float(text.len()) / 1024.0);
        let parse = milliseconds(|| {
            black_box(read());
        });
        table.row(Row::new(
            format!("{size}, to cut it into versions"),
            parse,
            "ms",
        ));
    }
}
