//! Transcripts of the commands that need a service: `cmd/*.md` in a fixed order, on the machine of
//! the vault's owner, on a laptop and on that of a member, against one `vault serve`.
//!
//! `TRYCMD=overwrite` records the current output; review the difference before committing it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use vault_tests::home::{Home, vault_binary};
use vault_tests::person::{Answer, OWNER};
use vault_tests::place;
use vault_tests::server::{Database, Server};
use vault_tests::team::Team;

use crate::people::join;

/// The commands in the order in which they run: each starts where the one before it ended.
const COMMANDS: [&str; 11] = [
    "sync",
    "link",
    "devices",
    "cloud",
    "status",
    "users",
    "clients",
    "operator",
    "audit-log",
    "notices",
    "unlink",
];

/// What takes the place of texts that differ from run to run, in the syntax of `sed -E`. Each is as
/// long as what it stands for, so that columns stay as people see them.
const STABLE: [&str; 14] = [
    "s/20[0-9]{2}-[0-9]{2}-[0-9]{2}/2026-11-23/g",
    "s/2026-11-23([ T])[0-9]{2}:[0-9]{2}/2026-11-23\\110:00/g",
    "s/10:00:[0-9]{2}Z/10:00:00Z/g",
    "s/(usr|cli|acc)_[0-9a-z]{26}/\\1_xxxxxxxxxxxxxxxxxxxxxxxxxx/g",
    "s/dev_[0-9a-z]{26}/dev_xxxxxxxxxxxxxxxxxxxxxxxxxx/g",
    "s/01[0-9A-HJKMNP-TV-Z]{24}/01XXXXXXXXXXXXXXXXXXXXXXXX/g",
    "s/(vlt|dev|pub):([a-z2-7]{4}-){7}[a-z2-7]{4}/\\1:xxxx-xxxx-xxxx-xxxx-xxxx-xxxx-xxxx-xxxx/g",
    "s/[0-9a-f]{64}/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/g",
    "s/cnf_[0-9a-z]{26}/cnf_xxxxxxxxxxxxxxxxxxxxxxxxxx/g",
    "s/whk_[0-9a-z]{26}/whk_xxxxxxxxxxxxxxxxxxxxxxxxxx/g",
    "s|whsec_[A-Za-z0-9+/]{43}=|whsec_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx=|g",
    "s/enc_[0-9a-f]{26}/enc_xxxxxxxxxxxxxxxxxxxxxxxxxx/g",
    "s/vec_[A-Za-z0-9_-]{22}/vec_xxxxxxxxxxxxxxxxxxxxxx/g",
    "s/vin_[A-Za-z0-9_-]{43}/vin_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/g",
];

/// The service's address in the transcripts.
const ADDRESS: &str = "http://127.0.0.1:8080";

#[test]
fn each_command_that_needs_a_service_has_a_transcript_of_a_success() {
    if place::leaves_out(
        "",
        "transcripts name the addresses and accounts of `vault serve`",
    ) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/cmd");
    let mut found: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut listed = COMMANDS.map(|name| format!("{name}.md"));
    found.sort();
    listed.sort();
    assert_eq!(
        found, listed,
        "list each transcript in COMMANDS of tests/e2e/transcripts.rs"
    );

    let team = Team::new(Server::start(&Database::Sqlite), Home::new());
    let laptop = Home::new();
    // Another sign-in, which the transcript about apps ends.
    let elsewhere = Home::new();
    let connect = ["cloud", "connect", &team.address()];
    elsewhere.sign_in(&connect, OWNER, Answer::Loopback).ok();
    let apps = elsewhere.run("clients list").ok().stdout;
    let mut apps = apps.lines();
    let this = apps.find(|line| line.ends_with("(this sign-in)")).unwrap();
    let app = this
        .split_whitespace()
        .find(|word| word.starts_with("cli_"));
    let app = app.unwrap();

    let skill = "---\nname: pdf-tables\ndescription: Extracts tables from PDF files.\n---\n\nRun pdftotext.\n";
    let skill = team
        .owner
        .skill("pdf-tables", &[("SKILL.md", skill.as_bytes())]);
    let skill = skill.to_str().unwrap();
    team.owner.run(&format!("add {skill}")).ok();

    let bob = join(
        &team.server,
        &team.owner,
        "bob@example.com",
        "member",
        &["read"],
    );
    let url = &team.server.url;
    for name in COMMANDS {
        let cases = trycmd::TestCases::new();
        cases.env("COLUMNS", "100");
        cases.register_bin("vault", machine(&team.owner, "", url, app));
        for (name, home) in [("laptop", &laptop), ("bob", &bob)] {
            cases.register_bin(name, machine(home, "shift", url, app));
        }
        cases.case(folder.join(format!("{name}.md")));
        cases.run();
    }
}

/// Writes a program that runs `vault` in this home, with the transcripts' names for the service and
/// the app in its arguments and its output. `first` runs before: `shift` drops the word `vault`.
fn machine(home: &Home, first: &str, url: &str, app: &str) -> PathBuf {
    let stable = STABLE.map(|rule| format!(" -e '{rule}'")).concat();
    let stable = format!("sed -E -e 's|{url}|{ADDRESS}|g'{stable}");
    let script = format!(
        r#"#!/bin/sh
cd {home}
{first}
for word; do
  set -- "$@" "$(printf %s "$word" | sed -e 's|{ADDRESS}|{url}|g' -e 's|cli_xxxxxxxxxxxxxxxxxxxxxxxxxx|{app}|')"
  shift
done
env -i HOME={home} PATH="$PATH" LC_ALL=C.UTF-8 TZ=UTC NO_COLOR=1 COLUMNS=100 \
  {vault} "$@" > out 2> err
code=$?
{stable} err
{stable} out
exit $code
"#,
        home = home.path().display(),
        vault = vault_binary().display(),
    );
    let path = home.path().join("machine.sh");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}
