//! The baseline of the integrity check: a loop that reads, hashes and verifies the same files and
//! signatures, no more.
//!
//! It knows every path beforehand, compares nothing and looks at no mode; the same number of
//! threads.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// A stored skill: its manifest, and the files below `files/`.
pub struct Stored {
    manifest: PathBuf,
    files: Vec<PathBuf>,
}

/// The paths of every bundle in a store.
pub fn paths(store: &Path) -> Vec<Stored> {
    let mut found = Vec::new();
    for bundle in std::fs::read_dir(store).expect("a store") {
        let bundle = bundle.expect("an entry").path();
        let mut files = Vec::new();
        let mut open = vec![bundle.join("files")];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let entry = entry.expect("an entry");
                if entry.file_type().expect("a kind").is_dir() {
                    open.push(entry.path());
                } else {
                    files.push(entry.path());
                }
            }
        }
        found.push(Stored {
            manifest: bundle.join("manifest.json"),
            files,
        });
    }
    found
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'b> {
    payload_type: &'b str,
    payload: &'b str,
    #[serde(borrow)]
    signatures: Vec<Entry<'b>>,
}

#[derive(Deserialize)]
struct Entry<'b> {
    sig: &'b str,
}

/// Reads, hashes and verifies all of them on this many threads; the number of good signatures.
pub fn bare_loop(skills: &[Stored], key: &VerifyingKey, threads: usize) -> usize {
    std::thread::scope(|scope| {
        let running: Vec<_> = skills
            .chunks(skills.len().div_ceil(threads))
            .map(|some| scope.spawn(|| some.iter().filter(|one| good(one, key)).count()))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the loop"))
            .sum()
    })
}

fn good(skill: &Stored, key: &VerifyingKey) -> bool {
    thread_local! {
        static ROOM: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    ROOM.with_borrow_mut(|room| {
        read(&skill.manifest, room);
        let envelope: Envelope<'_> = serde_json::from_slice(room).expect("an envelope");
        let payload = STANDARD.decode(envelope.payload).expect("base64");
        let mut signed = format!(
            "DSSEv1 {} {} {} ",
            envelope.payload_type.len(),
            envelope.payload_type,
            payload.len()
        )
        .into_bytes();
        signed.extend_from_slice(&payload);
        let signature = STANDARD.decode(envelope.signatures[0].sig).expect("base64");
        let signature = Signature::from_slice(&signature).expect("a signature");
        let good = key.verify_strict(&signed, &signature).is_ok();
        for file in &skill.files {
            read(file, room);
            std::hint::black_box(Sha256::digest(&*room));
        }
        good
    })
}

fn read(path: &Path, room: &mut Vec<u8>) {
    room.clear();
    File::open(path)
        .and_then(|mut file| file.read_to_end(room))
        .expect("a file of the store");
}
