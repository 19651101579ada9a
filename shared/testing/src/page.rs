//! Files of the repository whose content is written by code.

use std::path::Path;

/// Asserts that a file, named from the root of the repository, has exactly this content. With
/// `PAGES=overwrite` in the environment, writes the file instead; review the change before you
/// commit it.
///
/// # Panics
///
/// If the file differs, or cannot be written.
#[expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "a switch of the tests, which fail by panicking"
)]
pub fn assert_current(file: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(file);
    if std::fs::read_to_string(&path).is_ok_and(|kept| kept == content) {
        return;
    }
    if std::env::var_os("PAGES").is_some_and(|value| value == "overwrite") {
        if let Err(error) = std::fs::write(&path, content) {
            panic!("{file} could not be written: {error}");
        }
        return;
    }
    panic!(
        "{file} is out of date: write it with PAGES=overwrite cargo nextest run --workspace -E 'test(written_pages)'"
    );
}
