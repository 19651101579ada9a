//! Keys under a passphrase, backups, recovery keys without a service, and vaults of the earlier
//! format.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::screens::{start, terminal::INTERRUPT};
use crate::support::{Ended, Home, files_below};

/// A home with one skill, and a passphrase in a file.
fn home() -> Home {
    let home = Home::new();
    home.skill("tool", "A tool.");
    home.write("passphrase", "correct horse battery staple\n");
    home.write("wrong", "not the passphrase\n");
    home.run(&["add", "tool"]).ok();
    home
}

/// Runs a line with the passphrase of a file.
fn with_passphrase(home: &Home, file: &str, line: &str) -> Ended {
    let mut command: Command = home.vault(&line.split(' ').collect::<Vec<_>>());
    command.env("VAULT_KEY_PASSPHRASE_FILE", home.path(file));
    Ended::of(command.arg("--json"))
}

fn fingerprint(home: &Home) -> String {
    let shown = home.run(&["key", "show"]).ok();
    shown["fingerprint"].as_str().unwrap().to_owned()
}

#[test]
fn a_key_under_a_passphrase_signs_with_it_alone() {
    let home = home();
    with_passphrase(&home, "passphrase", "key rotate --passphrase --yes").ok();
    let keys: Vec<PathBuf> = files_below(&home.path(".config/vault"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "key"))
        .collect();
    assert_eq!(keys.len(), 1);
    let stored = std::fs::read(&keys[0]).unwrap();
    assert!(stored.starts_with(b"age-encryption.org/v1\n"));
    home.skill("other", "Another tool.");
    home.run(&["add", "other"]).fails(4, "key_locked");
    with_passphrase(&home, "wrong", "add other").fails(4, "passphrase_wrong");
    with_passphrase(&home, "passphrase", "add other").ok();
    home.run(&["verify"]).ok();
    // A new key of the same machine is protected like the one that it replaces.
    with_passphrase(&home, "passphrase", "key rotate --yes").ok();
    home.skill("third", "A third tool.");
    home.run(&["add", "third"]).fails(4, "key_locked");
}

#[test]
fn a_backup_brings_vault_and_keys_back_with_its_passphrase_alone() {
    let home = home();
    let before = fingerprint(&home);
    home.run(&["backup", "vault.backup"]).fails(2, "no_tty");
    with_passphrase(&home, "passphrase", "backup vault.backup").ok();
    let mode = std::fs::metadata(home.path("vault.backup")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    with_passphrase(&home, "passphrase", "backup vault.backup").fails(1, "file_exists");
    with_passphrase(&home, "passphrase", "restore vault.backup").fails(1, "folder_exists");

    let other = Home::new();
    let bytes = std::fs::read(home.path("vault.backup")).unwrap();
    other.write("vault.backup", bytes);
    other.write(
        "cut.backup",
        &std::fs::read(home.path("vault.backup")).unwrap()[..2000],
    );
    other.write("no.backup", "not a backup");
    other.write("passphrase", "correct horse battery staple\n");
    other.write("wrong", "not the passphrase\n");
    other
        .run(&["restore", "vault.backup"])
        .fails(4, "key_locked");
    with_passphrase(&other, "wrong", "restore vault.backup").fails(4, "passphrase_wrong");
    with_passphrase(&other, "passphrase", "restore no.backup").fails(2, "backup_wrong");
    with_passphrase(&other, "passphrase", "restore cut.backup").fails(2, "backup_wrong");
    assert!(!other.path(".vault").exists() && !other.path(".vault.restoring").exists());
    with_passphrase(&other, "passphrase", "restore vault.backup").ok();
    assert_eq!(fingerprint(&other), before);
    other.run(&["verify"]).ok();
    other.skill("new", "A new tool.");
    other.run(&["add", "new"]).ok();
}

#[test]
fn a_passphrase_that_cannot_be_read_is_one_failure_everywhere() {
    let home = home();
    with_passphrase(&home, "passphrase", "key rotate --passphrase --yes").ok();
    with_passphrase(&home, "passphrase", "backup vault.backup").ok();
    home.skill("other", "Another tool.");
    for line in [
        "backup other.backup",
        "--vault copy restore vault.backup",
        "add other",
    ] {
        with_passphrase(&home, "nowhere", line).fails(4, "key_locked");
    }
    for line in ["--vault copy restore vault.backup", "add other"] {
        let Some(mut terminal) = start(home.root(), line) else {
            return;
        };
        terminal.wait_for("Passphrase of");
        terminal.press(&[INTERRUPT]);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 130, "{line}: {screen}");
        assert!(screen.contains("interrupted"), "{line}: {screen}");
    }
    assert!(!home.path("copy").exists() && !home.path(".vault/skills/other").exists());
}

#[test]
fn without_its_trust_folder_a_vault_is_neither_run_nor_changed() {
    let home = home();
    std::fs::remove_dir_all(home.path(".config/vault/vaults")).unwrap();
    home.run(&["verify"]).fails(6, "skill_damaged");
    home.skill("other", "Another tool.");
    home.run(&["add", "other"]).fails(4, "vault_untrusted");
    home.run(&["key", "show"]).fails(4, "vault_untrusted");
}

#[test]
fn a_recovery_key_changes_keys_and_nothing_else_does() {
    let home = home();
    let first = fingerprint(&home);
    let made = home
        .run_line("key recovery create stick.recovery --second other.recovery --yes")
        .ok();
    assert_eq!(made["made_anew"], true);
    assert_ne!(fingerprint(&home), first);
    home.run(&["verify"]).ok();
    home.run_line("key rotate --yes")
        .fails(4, "root_key_needed");
    home.run_line("key rotate --yes --root-key stick.recovery --name anna")
        .ok();
    home.run_line("key recovery check other.recovery").ok();
    home.run_line("key recovery check other.recovery --at-least 9")
        .fails(6, "root_rolled_back");
    let inside = "key recovery create .config/vault/x --root-key stick.recovery --yes";
    home.run_line(inside).fails(2, "recovery_place");
    // Where the only publisher's key is here, it must be named.
    home.run_line("key recovery use stick.recovery --yes")
        .fails(2, "key_not_named");
    let used = home
        .run_line("key recovery use stick.recovery --lost anna --yes")
        .ok();
    assert_eq!(used["changes"]["revoked"].as_array().unwrap().len(), 1);
    let listed = home.run_line("publishers list").ok();
    assert_eq!(listed["revoked"].as_array().unwrap().len(), 1);
    let skill_lost = home.run(&["verify"]);
    assert_ne!(skill_lost.code, 2, "{}", skill_lost.out);
    let other = Home::new();
    other.skill("tool", "A tool.");
    other.run(&["add", "tool"]).ok();
    let stick = home.path("stick.recovery");
    let stick = stick.to_str().unwrap();
    other
        .run(&["key", "recovery", "check", stick])
        .fails(6, "vault_changed");
    other
        .run(&["key", "recovery", "use", stick, "--yes"])
        .fails(6, "vault_changed");
}

#[test]
fn a_vault_of_the_earlier_format_is_refused_and_its_skills_are_imported() {
    let home = Home::new();
    home.skill("before/store/1/tool", "A tool.");
    std::fs::create_dir_all(home.path("before/skills")).unwrap();
    std::os::unix::fs::symlink("../store/1/tool", home.path("before/skills/tool")).unwrap();
    let format = r#"{"schema":"vault.library/1","vault_id":"vlt_aaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
    home.write("before/vault.json", format);
    home.run_line("--vault before skill list")
        .fails(1, "vault_earlier");
    home.run_line("import --from-vault nowhere")
        .fails(1, "no_vault");
    home.run_line("import --from-vault before").ok();
    home.run(&["verify", "tool"]).ok();
}
