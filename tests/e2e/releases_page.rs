//! `docs/releases.md`: its numbers are those of the program.

use std::fs;
use std::path::Path;

use vault_library::publish::{DEFAULT_DAYS, RENEW_DAYS};
use vault_service::model::grant::{GRANT_SECONDS, REFRESH_SECONDS};

#[test]
fn the_page_about_releases_states_the_lifetimes_of_the_program() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/releases.md");
    let page = fs::read_to_string(page).unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (idle, signed_in) = (REFRESH_SECONDS / 86_400, GRANT_SECONDS / 86_400);
    for sentence in [
        format!("A release expires {DEFAULT_DAYS} days after it was signed."),
        format!("if the current release ends within {RENEW_DAYS} days"),
        format!("{idle} days after the last sync"),
        format!("{signed_in} days after a person signed in"),
        format!("publishes for up to {signed_in} days without a person."),
        // A daily sync renews a release as soon as fewer than RENEW_DAYS are left.
        format!("lasts another {RENEW_DAYS} to {DEFAULT_DAYS} days"),
    ] {
        assert!(page.contains(&sentence), "{sentence}");
    }
}
