//! Runs `vault` in a real terminal and compares its screens with the snapshots in this folder.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary that includes it uses its own part"
)]

#[path = "../../../tests/src/terminal.rs"]
pub mod terminal;

use std::fs;
use std::path::Path;

use terminal::Terminal;

/// Starts `vault` with these arguments in a terminal of this width. Returns `None` if no terminal is
/// available.
pub fn start_sized(home: &Path, arguments: &str, columns: usize) -> Option<Terminal> {
    let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_vault"));
    Terminal::start_sized(home, &line, columns)
}

/// Starts `vault` with these arguments in a terminal. Returns `None` if no terminal is available.
pub fn start(home: &Path, arguments: &str) -> Option<Terminal> {
    Terminal::start(
        home,
        &format!("{} {arguments}", env!("CARGO_BIN_EXE_vault")),
    )
}

/// Compares a screen with its snapshot. `SCREENS=overwrite` updates the snapshot; review the change
/// before committing it.
#[expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a switch of the test run, which stops where a file cannot be kept"
)]
pub fn compare(name: &str, screen: &str, home: &Path) {
    // The vault's fingerprint is random: `vlt:`, 39 characters and the number of a version.
    let screen = match screen.split_once("vlt:") {
        Some((before, after)) => format!("{before}[FINGERPRINT]{}", &after[41..]),
        None => screen.to_owned(),
    };
    let shown = screen
        .replace(&home.display().to_string(), "[HOME]")
        .replace(env!("CARGO_BIN_EXE_vault"), "vault");
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/screens")
        .join(name);
    if std::env::var_os("SCREENS").is_some_and(|value| value == "overwrite") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &shown).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(shown, kept, "{}", file.display());
}
