//! `kill -9` of the commands that fetch and go back: from a repository on disk and from a site on
//! loopback, with three agents that see what comes.

#[path = "../../shared/sources/tests/support/mod.rs"]
pub mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use support::{Repository, SiteServer};
use vault_format::hash::Digest;
use vault_tests::home::Home;
use vault_tests::skills::skill_md;

use crate::agents::{sweep_command, three_agents};

/// A repository with `subject` and another skill.
fn repository() -> Repository {
    let repository = Repository::new();
    repository
        .write("skills/subject/SKILL.md", skill_md("subject", "one"))
        .write("skills/subject/bin/run.sh", "#!/bin/sh\necho one\n")
        .write("skills/other/SKILL.md", skill_md("other", "not asked for"));
    let script = repository.path().join("skills/subject/bin/run.sh");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    repository.commit();
    repository
}

/// Three linked agents, and leave to ask this machine.
pub fn machine() -> Home {
    let home = three_agents();
    home.run("sync-profiles --discover").ok();
    let config = home.config().join("config.toml");
    fs::write(&config, "sources_allow_loopback = true\n").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    home
}

#[test]
fn a_skill_from_a_repository_is_there_whole_with_its_origin_or_not_at_all() {
    let repository = repository();
    let address = repository.address();
    let arguments = ["add", &address, "--skill", "subject"];
    sweep_command("add from git", machine(), &arguments, 11, &|home| {
        let asked = home.run("outdated --json").ok().json();
        assert_eq!(asked["data"]["up_to_date"][0], "subject", "{asked}");
        let script = home.vault().join("skills/subject/bin/run.sh");
        let mode = fs::metadata(script).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o555);
    });
}

/// What a site's index says of one skill.
pub fn index(name: &str, text: &[u8]) -> String {
    let digest = Digest::of(text);
    format!(
        r#"{{"$schema":"{}","skills":[{{"name":"{name}","type":"skill-md","description":"x","url":"/{name}/SKILL.md","digest":"sha256:{digest}"}}]}}"#,
        vault_sources::site::SCHEMA
    )
}

#[test]
fn a_skill_from_a_site_is_there_whole_or_not_at_all() {
    let site = SiteServer::new();
    let text = skill_md("subject", "from a site");
    site.text(
        "/subject/SKILL.md",
        String::from_utf8(text.clone()).unwrap(),
    )
    .json(
        "/.well-known/agent-skills/index.json",
        index("subject", &text),
    );
    let arguments = ["add", &site.base];
    sweep_command("add from a site", machine(), &arguments, 8, &|_| {});
}

#[test]
fn an_update_is_the_old_version_or_the_new_one() {
    let repository = repository();
    let home = machine();
    let address = repository.address();
    home.run(&format!("add {address} --skill subject")).ok();
    repository
        .write("skills/subject/SKILL.md", skill_md("subject", "two"))
        .write("skills/subject/more.md", "new\n");
    repository.commit();
    sweep_command("update", home, &["update"], 11, &|home| {
        home.run(&["outdated"]).ok();
    });
}

#[test]
fn a_rollback_is_one_new_version_over_the_old_bytes() {
    let repository = repository();
    let home = machine();
    let address = repository.address();
    home.run(&format!("add {address} --skill subject")).ok();
    repository.write("skills/subject/SKILL.md", skill_md("subject", "two"));
    repository.commit();
    home.run(&["update"]).ok();
    let arguments = ["rollback", "subject", "--to", "1"];
    sweep_command("rollback", home, &arguments, 10, &|home| {
        let history = home.run("history subject --json").ok().json();
        assert_eq!(history["data"]["versions"][0]["version"], 3, "{history}");
    });
}
