//! What the repository says of itself: its dependencies, its map and its notices are true.

mod citations;
mod dependencies;
mod formats;
mod live_functions;
mod map;
mod notices;
mod programs;
mod shape;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folder of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("the workspace above")
        .to_owned()
}

/// What cargo prints for these words, in the workspace.
fn cargo(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(words)
        .current_dir(root())
        .output()
        .expect("cargo");
    assert!(
        output.status.success(),
        "cargo {}: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The packages of `cargo metadata`, with these words added.
fn packages(words: &[&str]) -> Vec<Value> {
    let words = [&["metadata", "--format-version", "1", "--locked"], words].concat();
    let mut metadata: Value = serde_json::from_str(&cargo(&words)).expect("JSON");
    let Value::Array(packages) = metadata["packages"].take() else {
        panic!("no packages");
    };
    packages
}

/// A member that is a text.
fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}
