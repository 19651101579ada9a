//! `vault` with sources on loopback: sites, registries, policies, tools for agents, and hostile
//! sources.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

#[path = "../../shared/sources/tests/support/mod.rs"]
mod support;

#[path = "sources/signer.rs"]
mod signer;
#[path = "sources/tools.rs"]
mod tools;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{Answer, Repository, SiteServer, skill_md};
use tempfile::TempDir;
use vault_skill::hash::Digest;

struct Machine {
    home: TempDir,
    site: Option<String>,
}

struct Ended {
    code: i32,
    json: Value,
    out: String,
}

impl Machine {
    fn new() -> Self {
        Self {
            home: TempDir::new().unwrap(),
            site: None,
        }
    }

    fn with_registry(site: &SiteServer) -> Self {
        Self {
            site: Some(site.base.clone()),
            ..Self::new()
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let project = self.home.path().join("project");
        std::fs::create_dir_all(&project).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vault"));
        command
            .args(arguments)
            .current_dir(project)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env!("PATH"))
            .env("VAULT_SOURCES_ALLOW_LOOPBACK", "true");
        if let Some(site) = &self.site {
            command.env("VAULT_CLAWHUB_URL", site);
            command.env("VAULT_REGISTRY_URL", format!("{site}/older"));
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let ended = self.command(&all).stdin(Stdio::null()).output().unwrap();
        let out = String::from_utf8_lossy(&ended.stdout).into_owned();
        Ended {
            code: ended.status.code().unwrap(),
            json: serde_json::from_str(&out).unwrap_or(Value::Null),
            out,
        }
    }

    fn policy(&self, toml: &str) {
        let vault = self.home.path().join(".vault");
        std::fs::create_dir_all(&vault).unwrap();
        std::fs::write(vault.join("policy.toml"), toml).unwrap();
    }

    fn skill(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(".vault/skills").join(name)
    }
}

fn index(entries: &str) -> String {
    format!(
        r#"{{"$schema":"{}","skills":[{entries}]}}"#,
        vault_sources::site::SCHEMA
    )
}

fn listed(name: &str, text: &str) -> String {
    let digest = Digest::of(text.as_bytes());
    format!(
        r#"{{"name":"{name}","type":"skill-md","description":"x","url":"/{name}/SKILL.md","digest":"sha256:{digest}"}}"#
    )
}

#[test]
fn a_site_is_added_from_updated_and_never_believed_against_its_digests() {
    let site = SiteServer::new();
    let (pdf, csv) = (skill_md("pdf"), skill_md("csv"));
    site.json(
        "/.well-known/agent-skills/index.json",
        index(&format!("{},{}", listed("pdf", &pdf), listed("csv", &csv))),
    )
    .text("/pdf/SKILL.md", &pdf)
    .text(
        "/csv/SKILL.md",
        "---\nname: csv\ndescription: Something else altogether.\n---\n",
    );
    let machine = Machine::new();
    let asked = machine.run(&["add", &site.base]);
    assert_eq!(
        (asked.code, asked.json["error"]["code"].as_str()),
        (2, Some("no_tty")),
        "{}",
        asked.out
    );
    assert_eq!(asked.json["data"]["skills"], json!(["pdf", "csv"]));
    let lied = machine.run(&["add", &site.base, "--skill", "csv"]);
    assert_eq!(
        (lied.code, lied.json["error"]["code"].as_str()),
        (6, Some("source_digest")),
        "{}",
        lied.out
    );
    assert!(
        !machine.home.path().join(".vault").exists(),
        "a refusal makes no vault"
    );
    let added = machine.run(&["add", &site.base, "--skill", "pdf"]);
    assert_eq!(added.code, 0, "{}", added.out);
    assert_eq!(
        std::fs::read_to_string(machine.skill("pdf").join("SKILL.md")).unwrap(),
        pdf
    );
    assert_eq!(machine.run(&["outdated"]).code, 0);
    let newer = pdf.replace("Do it.", "Do it well.");
    site.json(
        "/.well-known/agent-skills/index.json",
        index(&listed("pdf", &newer)),
    )
    .text("/pdf/SKILL.md", &newer);
    let drifted = machine.run(&["outdated"]);
    assert_eq!(drifted.code, 3, "{}", drifted.out);
    assert_eq!(drifted.json["data"]["drifted"][0]["name"], "pdf");
    let generation = std::fs::read(machine.home.path().join(".vault/generation")).unwrap();
    let shown = machine.run(&["update", "--diff"]);
    assert_eq!(shown.code, 3, "{}", shown.out);
    assert_eq!(
        std::fs::read(machine.home.path().join(".vault/generation")).unwrap(),
        generation,
        "looking writes nothing"
    );
    let updated = machine.run(&["update"]);
    assert_eq!(
        (
            updated.code,
            updated.json["data"]["updated"][0]["version"].as_u64()
        ),
        (0, Some(2)),
        "{}",
        updated.out
    );
    assert_eq!(
        std::fs::read_to_string(machine.skill("pdf").join("SKILL.md")).unwrap(),
        newer
    );
}

#[test]
fn a_policy_keeps_places_out_before_they_are_asked() {
    let site = SiteServer::new();
    site.json(
        "/.well-known/agent-skills/index.json",
        index(&listed("pdf", &skill_md("pdf"))),
    )
    .text("/pdf/SKILL.md", skill_md("pdf"));
    let machine = Machine::with_registry(&site);
    machine.policy("[sources]\nallow = [\"github.com/acme/*\"]\n");
    for source in [
        site.base.as_str(),
        &format!("{}/pdf/SKILL.md", site.base),
        "clawhub:pdf",
        "registry:pdf",
    ] {
        let refused = machine.run(&["add", source]);
        assert_eq!(
            (refused.code, refused.json["error"]["code"].as_str()),
            (5, Some("source_refused")),
            "{source}: {}",
            refused.out
        );
    }
    machine.policy("[sources]\nallow = \"everything\"\n");
    let refused = machine.run(&["add", &site.base, "--all"]);
    assert_eq!(
        (refused.code, refused.json["error"]["code"].as_str()),
        (5, Some("policy_invalid")),
        "{}",
        refused.out
    );
    assert!(site.asked().is_empty(), "{:?}", site.asked());
    machine.policy("[sources]\nsigned_only = true\n");
    assert_eq!(machine.run(&["add", &site.base, "--all"]).code, 0);
}

#[test]
fn a_word_that_is_no_file_asks_no_registry() {
    let site = SiteServer::new();
    let machine = Machine::with_registry(&site);
    for (source, hint) in [
        ("greet", "clawhub:greet"),
        ("greet@1.0.0", "clawhub:greet@1.0.0"),
        ("@acme/greet", "clawhub:@acme/greet"),
        ("two words", ""),
        ("./greet", ""),
        ("greet.zip", ""),
    ] {
        for arguments in [&["--yes", "add", source][..], &["add", "--dry-run", source]] {
            let refused = machine.run(arguments);
            assert_eq!(
                (refused.code, refused.json["error"]["code"].as_str()),
                (2, Some("source_unreadable")),
                "{source}: {}",
                refused.out
            );
            let error = &refused.json["error"];
            assert_eq!(
                error["message"],
                format!("no such file or folder: {source}")
            );
            let said = error["hint"].as_str().unwrap_or_default();
            assert!(
                said.contains(hint) && said.is_empty() == hint.is_empty(),
                "{source}: {said}"
            );
        }
    }
    let shorthand = machine.run(&["add", "acme/skills/pdf#v1"]);
    assert_eq!(
        (shorthand.code, shorthand.json["error"]["code"].as_str()),
        (2, Some("no_tty")),
        "{}",
        shorthand.out
    );
    let hint = shorthand.json["error"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("github:acme/skills/pdf#v1") && hint.contains("--yes"),
        "{hint}"
    );
    let accepted = machine.run(&["--offline", "--yes", "add", "acme/skills/pdf#v1"]);
    assert_eq!(
        accepted.json["error"]["code"], "offline",
        "{}",
        accepted.out
    );
    assert!(site.asked().is_empty(), "{:?}", site.asked());
    assert!(!machine.home.path().join(".vault").exists());
}

#[test]
fn a_name_stays_with_its_source_and_offline_asks_nobody() {
    let site = SiteServer::new();
    site.text("/a/SKILL.md", skill_md("pdf"))
        .text("/b/SKILL.md", skill_md("pdf"));
    let machine = Machine::new();
    let (a, b) = (
        format!("{}/a/SKILL.md", site.base),
        format!("{}/b/SKILL.md", site.base),
    );
    assert_eq!(machine.run(&["add", &a]).code, 0);
    let taken = machine.run(&["add", &b]);
    assert_eq!(
        (taken.code, taken.json["error"]["code"].as_str()),
        (1, Some("name_taken")),
        "{}",
        taken.out
    );
    assert_eq!(machine.run(&["add", &b, "--replace"]).code, 0);
    let before = site.asked().len();
    for arguments in [
        &["--offline", "add", &a][..],
        &["--offline", "outdated"],
        &["--offline", "update"],
    ] {
        let refused = machine.run(arguments);
        assert_eq!(
            (refused.code, refused.json["error"]["code"].as_str()),
            (7, Some("offline")),
            "{}",
            refused.out
        );
    }
    assert_eq!(site.asked().len(), before);
}

#[test]
fn servers_that_misbehave_change_nothing() {
    let site = SiteServer::new();
    site.put(
        "/private/SKILL.md",
        Answer::To("https://169.254.169.254/latest".to_owned()),
    )
    .put("/endless/SKILL.md", Answer::Endless)
    .put("/secret/SKILL.md", Answer::Status(401))
    .put("/broken/SKILL.md", Answer::Status(500))
    .put(
        "/page/SKILL.md",
        Answer::Body("text/html", b"<html>".to_vec()),
    );
    let machine = Machine::new();
    for (at, code, word) in [
        ("private", 5, "source_not_public"),
        ("endless", 1, "source_too_large"),
        ("secret", 4, "source_not_allowed"),
        ("broken", 7, "source_unreachable"),
        ("page", 1, "source_malformed"),
        ("none", 1, "source_not_found"),
    ] {
        let refused = machine.run(&["add", &format!("{}/{at}/SKILL.md", site.base)]);
        assert_eq!(
            (refused.code, refused.json["error"]["code"].as_str()),
            (code, Some(word)),
            "{at}: {}",
            refused.out
        );
    }
    assert!(!machine.home.path().join(".vault").exists());
}

#[test]
fn folders_of_the_own_machine_that_are_no_skills_end_soon() {
    let machine = Machine::new();
    let folder = machine.home.path().join("many");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("SKILL.md"), skill_md("many")).unwrap();
    for at in 0..10_000 {
        std::fs::write(folder.join(format!("f{at}")), "").unwrap();
    }
    let refused = machine.run(&["add", folder.to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    let pipe = machine.home.path().join("pipe.zip");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let refused = machine.run(&["add", pipe.to_str().unwrap()]);
    assert_eq!(
        (refused.code, refused.json["error"]["code"].as_str()),
        (1, Some("source_malformed")),
        "{}",
        refused.out
    );
    let link = machine.home.path().join("link.zip");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    assert_eq!(machine.run(&["add", link.to_str().unwrap()]).code, 1);
    let piped = machine.home.path().join("piped");
    std::fs::create_dir(&piped).unwrap();
    std::fs::write(piped.join("SKILL.md"), skill_md("piped")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(piped.join("data"))
            .status()
            .unwrap()
            .success()
    );
    let refused = machine.run(&["add", piped.to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{}", refused.out);
}

#[test]
fn a_locked_project_is_the_same_on_another_machine() {
    let repository = Repository::new();
    repository.write("pdf/SKILL.md", skill_md("pdf"));
    repository.commit();
    let address = repository.address();
    let one = Machine::new();
    let added = one.run(&["add", &address, "--lock"]);
    assert_eq!(added.code, 0, "{}", added.out);
    let lock = std::fs::read_to_string(one.home.path().join("project/vault.lock")).unwrap();
    repository.write("pdf/later.md", "later");
    repository.commit();
    let two = Machine::new();
    two.run(&["version"]);
    std::fs::write(two.home.path().join("project/vault.lock"), &lock).unwrap();
    let installed = two.run(&["install", "--frozen"]);
    assert_eq!(installed.code, 0, "{}", installed.out);
    assert!(
        !two.skill("pdf").join("later.md").exists(),
        "the locked commit, not the branch"
    );
    assert_eq!(
        two.run(&["outdated"]).code,
        3,
        "it goes on following the branch"
    );
    // A rewritten history no longer contains the locked commit. Nothing else may be installed
    // instead.
    let gone = lock.replace(
        lock.lines()
            .find(|line| line.starts_with("revision"))
            .unwrap(),
        &format!("revision = \"{}\"", "0".repeat(40)),
    );
    let three = Machine::new();
    three.run(&["version"]);
    std::fs::write(three.home.path().join("project/vault.lock"), gone).unwrap();
    let refused = three.run(&["install"]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert!(!three.skill("pdf").exists());
    std::fs::write(
        three.home.path().join("project/vault.lock"),
        "schema = 1\n[[skill]]\nname = 5\n",
    )
    .unwrap();
    let broken = three.run(&["install"]);
    assert_eq!(broken.json["error"]["at"]["line"], 3, "{}", broken.out);
}

/// Publishes a skill as an archive on a site and as a repository.
fn published(path: &Path) -> (SiteServer, Repository) {
    let site = SiteServer::new();
    let repository = Repository::new();
    assert!(
        Command::new("cp")
            .arg("-R")
            .arg(path.join("."))
            .arg(repository.path())
            .status()
            .unwrap()
            .success()
    );
    repository.commit();
    let packed = Command::new("tar")
        .args(["-czf", "-", "-C"])
        .arg(path)
        .arg(".")
        .output()
        .unwrap()
        .stdout;
    let digest = Digest::of(&packed);
    site.put("/skill.tar.gz", Answer::Body("application/gzip", packed)).json(
        "/.well-known/agent-skills/index.json",
        index(&format!(r#"{{"name":"one","type":"archive","url":"/skill.tar.gz","digest":"sha256:{digest}"}}"#)),
    );
    (site, repository)
}

/// Installs public skills from a repository, an archive and a site. All three give the same bytes.
/// Skipped if the collection of skills is not next to the project.
#[test]
fn real_skills_come_the_same_from_repositories_archives_and_sites() {
    let corpora = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/corpora/dev.tar.zst"
    ));
    if !corpora.exists() {
        println!("the collection of skills is not beside the project: nothing to compare");
        return;
    }
    let folder = TempDir::new().unwrap();
    let unpacked = Command::new("tar")
        .args(["--zstd", "-xf"])
        .arg(corpora)
        .arg("-C")
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(unpacked.success());
    let mut skills: Vec<_> = vault_sources::find::local_skills(folder.path());
    skills.sort();
    let machine = Machine::new();
    let mut compared = 0;
    for skill in skills.iter().step_by(61) {
        let path = folder.path().join(skill);
        // Skip skills that the gate rejects.
        if machine
            .run(&["add", path.to_str().unwrap(), "--dry-run"])
            .code
            != 0
        {
            continue;
        }
        let (site, repository) = published(&path);
        let digests: Vec<Vec<(String, String)>> = [
            repository.address(),
            format!("{}/skill.tar.gz", site.base),
            site.base.clone(),
        ]
        .iter()
        .map(|source| {
            let machine = Machine::new();
            let added = machine.run(&["add", source, "--all"]);
            // A repository may contain further skills below the one at its root.
            let name = match &added.json["data"]["added"] {
                Value::Array(all) => all[0]["name"].clone(),
                _ => added.json["data"]["name"].clone(),
            };
            let name = name
                .as_str()
                .unwrap_or_else(|| panic!("{skill} from {source}: {}", added.out))
                .to_owned();
            contents(&machine.skill(&name))
        })
        .collect();
        assert_eq!(digests[0], digests[1], "{skill}");
        assert_eq!(digests[1], digests[2], "{skill}");
        compared += 1;
    }
    assert!(
        compared > 8,
        "{compared} of {} skills were compared",
        skills.len()
    );
}

fn contents(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let shown = path.strip_prefix(folder).unwrap().display().to_string();
                files.push((
                    shown,
                    Digest::of(&std::fs::read(&path).unwrap()).to_string(),
                ));
            }
        }
    }
    files.sort();
    files
}
