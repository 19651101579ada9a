//! `vault` with sources on loopback: sites, registries, policies, tools for agents, and hostile
//! sources.

mod found;
mod hostile;
mod kinds;
mod project_edges;
mod project_updates;
mod projects;
mod proxy;
mod replacing;
mod reported;
mod requirements;
mod selection;
mod signer;
mod tools;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use vault_format::hash::Digest;

use crate::fetching::{Answer, INDEX, Repository, SiteServer, skill_md};
use crate::support::{Ended, Home, files_below, make_fifo, run_program};

/// A home with a project in it, whose commands may reach this machine.
struct Machine {
    home: Home,
    registry: Option<String>,
}

impl Machine {
    fn new() -> Self {
        let home = Home::new();
        std::fs::create_dir(home.path("project")).unwrap();
        Self {
            home,
            registry: None,
        }
    }

    fn with_registry(site: &SiteServer) -> Self {
        Self {
            registry: Some(site.base.clone()),
            ..Self::new()
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.vault(arguments);
        command
            .current_dir(self.home.path("project"))
            .env("PATH", std::env!("PATH"))
            .env("VAULT_SOURCES_ALLOW_LOOPBACK", "true");
        if let Some(site) = &self.registry {
            command.env("VAULT_CLAWHUB_URL", site);
            command.env("VAULT_REGISTRY_URL", format!("{site}/older"));
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&mut self.command(&[&["--json"], arguments].concat()))
    }

    fn policy(&self, toml: &str) {
        self.home.write(".vault/policy.toml", toml);
    }

    fn skill(&self, name: &str) -> std::path::PathBuf {
        self.home.path(".vault/skills").join(name)
    }

    fn document(&self, name: &str) -> String {
        self.home.read(&format!(".vault/skills/{name}/SKILL.md"))
    }
}

/// An entry of a site's index for the SKILL.md with this text.
pub fn listed(name: &str, text: &str) -> String {
    let digest = Digest::of(text.as_bytes());
    format!(
        r#"{{"name":"{name}","type":"skill-md","description":"x","url":"/{name}/SKILL.md","digest":"sha256:{digest}"}}"#
    )
}

#[test]
fn a_site_is_added_from_updated_and_never_believed_against_its_digests() {
    let site = SiteServer::new();
    let (pdf, csv) = (skill_md("pdf"), skill_md("csv"));
    let other = "---\nname: csv\ndescription: Something else altogether.\n---\n";
    site.index(&format!("{},{}", listed("pdf", &pdf), listed("csv", &csv)))
        .text("/pdf/SKILL.md", &pdf)
        .text("/csv/SKILL.md", other);
    let machine = Machine::new();
    let asked = machine.run(&["add", &site.base]);
    assert_eq!(asked.json["data"]["skills"], json!(["pdf", "csv"]));
    asked.fails(2, "no_tty");
    machine
        .run(&["add", &site.base, "--skill", "csv"])
        .fails(6, "source_digest");
    assert!(
        !machine.home.path(".vault").exists(),
        "a refusal makes no vault"
    );
    machine.run(&["add", &site.base, "--skill", "pdf"]).ok();
    assert_eq!(machine.document("pdf"), pdf);
    machine.run(&["outdated"]).ok();
    let newer = pdf.replace("Do it.", "Do it well.");
    site.index(&listed("pdf", &newer))
        .text("/pdf/SKILL.md", &newer);
    let drifted = machine.run(&["outdated"]);
    assert_eq!(drifted.code, 3, "{}", drifted.out);
    assert_eq!(drifted.json["data"]["drifted"][0]["name"], "pdf");
    let generation = machine.home.read(".vault/generation");
    let shown = machine.run(&["update", "--diff"]);
    assert_eq!(shown.code, 3, "{}", shown.out);
    assert_eq!(
        machine.home.read(".vault/generation"),
        generation,
        "looking writes nothing"
    );
    let updated = machine.run(&["update"]).ok();
    assert_eq!(updated["updated"][0]["version"], 2);
    assert_eq!(machine.document("pdf"), newer);
}

#[test]
fn a_site_that_lists_no_skill_is_refused() {
    let site = SiteServer::new();
    site.index("");
    let machine = Machine::new();
    let added = machine.run(&["add", &site.base]);
    added.fails(1, "source_not_found");
}

#[test]
fn a_site_and_a_registry_on_this_machine_need_no_setting_but_a_lock_does_not_reach_them() {
    let site = SiteServer::new();
    let (pdf, csv) = (skill_md("pdf"), skill_md("csv"));
    site.index(&listed("pdf", &pdf))
        .text("/pdf/SKILL.md", &pdf)
        .text("/older/skills/csv/SKILL.md", &csv);
    let machine = Machine::with_registry(&site);
    let run = |arguments: &[&str]| {
        let arguments = [&["--json"], arguments].concat();
        Ended::of(
            machine
                .command(&arguments)
                .env_remove("VAULT_SOURCES_ALLOW_LOOPBACK"),
        )
    };
    // `vault install` would refuse such an entry.
    let lock = machine.home.path("project/vault.lock");
    run(&["add", &site.base, "--project"]).fails(2, "usage");
    assert!(!machine.home.path(".vault").exists() && !lock.exists());
    run(&["add", &site.base]).ok();
    assert_eq!(machine.document("pdf"), pdf);
    let by_another = ["add", &site.base, "--project"];
    machine.run(&by_another).ok();
    assert!(machine.home.read("project/vault.lock").contains("pdf"));
    run(&["add", "registry:csv"]).ok();
    let newer = pdf.replace("Do it.", "Do it well.");
    site.index(&listed("pdf", &newer))
        .text("/pdf/SKILL.md", &newer);
    run(&["update"]).ok();
    assert_eq!(machine.document("pdf"), newer);
    let asked = site.asked().len();
    let refused = run(&["update", "--project"]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert!(
        refused.out.contains("an address of this machine"),
        "{}",
        refused.out
    );
    assert_eq!(site.asked().len(), asked, "{}", refused.out);
}

#[test]
fn a_policy_keeps_places_out_before_they_are_asked() {
    let site = SiteServer::new();
    site.index(&listed("pdf", &skill_md("pdf")))
        .text("/pdf/SKILL.md", skill_md("pdf"));
    let machine = Machine::with_registry(&site);
    machine.policy("[sources]\nallow = [\"github.com/acme/*\"]\n");
    let document = format!("{}/pdf/SKILL.md", site.base);
    for source in [&site.base, &document, "clawhub:pdf", "registry:pdf"] {
        machine.run(&["add", source]).fails(5, "source_refused");
    }
    let add = ["add", &site.base, "--all"];
    machine.policy("[sources]\nallow = \"everything\"\n");
    machine.run(&add).fails(5, "policy_invalid");
    assert!(site.asked().is_empty(), "{:?}", site.asked());
    machine.policy("[sources]\nsigned_only = true\n");
    machine.run(&add).ok();
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
            let error = machine.run(arguments).fails(2, "source_unreadable");
            let message = format!("no such file or folder: {source}");
            assert_eq!(error["message"], message);
            let said = error["hint"].as_str().unwrap_or_default();
            assert!(said.contains(hint), "{source}: {said}");
            assert_eq!(said.is_empty(), hint.is_empty(), "{source}: {said}");
        }
    }
    let shorthand = machine
        .run(&["add", "acme/skills/pdf#v1"])
        .fails(2, "no_tty");
    for part in ["github:acme/skills/pdf#v1", "--yes"] {
        assert!(
            shorthand["hint"].as_str().unwrap().contains(part),
            "{shorthand}"
        );
    }
    machine
        .run(&["--offline", "--yes", "add", "acme/skills/pdf#v1"])
        .fails(7, "offline");
    // `--yes` asks no host that only looks like one.
    let mistyped = machine.run(&["--offline", "--yes", "add", "notes.md/a/b"]);
    let error = mistyped.fails(2, "source_unreadable");
    assert_eq!(
        error["hint"],
        "for the repository write https://notes.md/a/b"
    );
    assert!(site.asked().is_empty(), "{:?}", site.asked());
    assert!(!machine.home.path(".vault").exists());
}

#[test]
fn a_name_stays_with_its_source_and_offline_asks_nobody() {
    let site = SiteServer::new();
    site.text("/a/SKILL.md", skill_md("pdf"))
        .text("/b/SKILL.md", skill_md("pdf"));
    let machine = Machine::new();
    let [a, b] = ["a", "b"].map(|at| format!("{}/{at}/SKILL.md", site.base));
    machine.run(&["add", &a]).ok();
    machine.run(&["add", &b]).fails(1, "name_taken");
    machine.run(&["add", &b, "--replace"]).ok();
    let before = site.asked().len();
    for arguments in [&["add", &a][..], &["outdated"], &["update"]] {
        let offline = [&["--offline"], arguments].concat();
        machine.run(&offline).fails(7, "offline");
    }
    assert_eq!(site.asked().len(), before);
}

#[test]
fn servers_that_misbehave_change_nothing() {
    let site = SiteServer::new();
    site.redirect("/private/SKILL.md", "https://169.254.169.254/latest")
        .put("/endless/SKILL.md", Answer::Endless)
        .put("/secret/SKILL.md", Answer::Status(401))
        .put("/broken/SKILL.md", Answer::Status(500))
        .body("/page/SKILL.md", "text/html", "<html>");
    let machine = Machine::new();
    for (at, code, word) in [
        ("private", 5, "source_not_public"),
        ("endless", 1, "source_too_large"),
        ("secret", 4, "source_not_allowed"),
        ("broken", 7, "source_unreachable"),
        ("page", 1, "source_malformed"),
        ("none", 1, "source_not_found"),
    ] {
        let source = format!("{}/{at}/SKILL.md", site.base);
        machine.run(&["add", &source]).fails(code, word);
    }
    assert!(!machine.home.path(".vault").exists());
}

#[test]
fn folders_of_the_own_machine_that_are_no_skills_end_soon() {
    let machine = Machine::new();
    let home = &machine.home;
    for name in ["many", "piped"] {
        home.write(&format!("{name}/SKILL.md"), skill_md(name));
    }
    for at in 0..10_000 {
        home.write(&format!("many/f{at}"), "");
    }
    make_fifo(&home.path("piped/data"));
    make_fifo(&home.path("pipe.zip"));
    std::os::unix::fs::symlink("/etc/passwd", home.path("link.zip")).unwrap();
    for source in ["many", "piped", "pipe.zip", "link.zip"] {
        let ended = machine.run(&["add", home.path(source).to_str().unwrap()]);
        match source {
            "piped" => drop(ended.fails(5, "symlink")),
            "pipe.zip" => drop(ended.fails(1, "source_malformed")),
            _ => assert_eq!(ended.code, 1, "{source}: {}", ended.out),
        }
    }
}

#[test]
fn a_locked_project_is_the_same_on_another_machine() {
    let repository = Repository::new();
    repository.write("pdf/SKILL.md", skill_md("pdf"));
    repository.commit();
    let address = repository.address();
    let one = Machine::new();
    one.run(&["add", &address, "--project"]).ok();
    let lock = one.home.read("project/vault.lock");
    repository.write("pdf/later.md", "later");
    repository.commit();
    let two = Machine::new();
    two.home.write("project/vault.lock", &lock);
    two.run(&["install", "--frozen"]).ok();
    let installed = two.home.path("project/.vault/skills/pdf");
    assert!(installed.join("SKILL.md").exists());
    let later = installed.join("later.md");
    assert!(!later.exists(), "the locked commit, not the branch");
    assert!(!two.skill("pdf").exists(), "no own skill");
    two.run(&["update", "--project"]).ok();
    assert!(later.exists(), "it goes on following the branch");
    two.run(&["install", "--frozen"]).ok();
    // A rewritten history no longer contains the locked commit. Nothing else may be installed
    // instead.
    let mut lines = lock.lines();
    let revision = lines.find(|line| line.starts_with("revision")).unwrap();
    let gone = lock.replace(revision, &format!("revision = \"{}\"", "0".repeat(40)));
    let three = Machine::new();
    three.home.write("project/vault.lock", gone);
    let refused = three.run(&["install"]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert!(!three.home.path("project/.vault/skills/pdf").exists());
    let broken = "schema = 1\n[[skill]]\nname = 5\n";
    three.home.write("project/vault.lock", broken);
    let broken = three.run(&["install"]);
    assert_eq!(broken.json["error"]["at"]["line"], 3, "{}", broken.out);
}

#[test]
fn a_lock_file_that_is_too_large_is_called_so() {
    let machine = Machine::new();
    let lock = machine.home.path("project/vault.lock");
    std::fs::create_dir(&lock).unwrap();
    machine.run(&["install"]).fails(1, "lock_invalid");
    std::fs::remove_dir(&lock).unwrap();
    machine
        .home
        .write("project/vault.lock", vec![b'#'; (4 << 20) + 1]);
    machine.run(&["install"]).fails(1, "lock_too_large");
}

/// Publishes the skill `name` as an archive on a site and as a repository.
fn published(path: &Path, name: &str) -> (SiteServer, Repository) {
    let site = SiteServer::new();
    let repository = Repository::new();
    let mut copy = Command::new("cp");
    run_program(copy.arg("-R").arg(path.join(".")).arg(repository.path()));
    repository.commit();
    let mut tar = Command::new("tar");
    let packed = tar.args(["-czf", "-", "-C"]).arg(path).arg(".").output();
    let packed = packed.unwrap().stdout;
    let digest = Digest::of(&packed);
    site.body("/skill.tar.gz", "application/gzip", packed)
        .index(&format!(
            r#"{{"name":"{name}","type":"archive","url":"/skill.tar.gz","digest":"sha256:{digest}"}}"#
        ));
    (site, repository)
}

/// Installs public skills from a repository, an archive and a site. All three give the same bytes.
/// Skipped if the collection of skills is not next to the project.
#[test]
fn real_skills_come_the_same_from_repositories_archives_and_sites() {
    let corpora = "/../../shared/corpora/dev.tar.zst";
    let corpora = format!("{}{corpora}", env!("CARGO_MANIFEST_DIR"));
    if !Path::new(&corpora).exists() {
        println!("the collection of skills is not beside the project: nothing to compare");
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut tar = Command::new("tar");
    run_program(
        tar.args(["--zstd", "-xf", &corpora, "-C"])
            .arg(folder.path()),
    );
    let listing = vault_sources::list_folder(folder.path()).unwrap().unwrap();
    let skills = listing.skills.into_iter().map(|found| found.folder);
    let mut skills: Vec<String> = skills.collect();
    skills.sort();
    let machine = Machine::new();
    let mut compared = 0;
    for skill in skills.iter().step_by(61) {
        let path = folder.path().join(skill);
        // Skip skills that the gate rejects.
        let dry = machine.run(&["add", path.to_str().unwrap(), "--dry-run"]);
        if dry.code != 0 {
            continue;
        }
        let name = dry.json["data"][0]["name"].as_str().unwrap();
        let (site, repository) = published(&path, name);
        let digests: Vec<Vec<(String, Digest)>> = [
            repository.address(),
            format!("{}/skill.tar.gz", site.base),
            site.base.clone(),
        ]
        .iter()
        .map(|source| {
            let machine = Machine::new();
            let added = machine.run(&["add", source, "--all"]);
            // A repository may contain further skills below the one at its root.
            let name = added.json["data"]["added"][0]["name"].clone();
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
    assert!(compared > 8, "{compared} skills were compared");
}

fn contents(folder: &Path) -> Vec<(String, Digest)> {
    let digest = |path: std::path::PathBuf| {
        let shown = path.strip_prefix(folder).unwrap().display().to_string();
        (shown, Digest::of(&std::fs::read(&path).unwrap()))
    };
    files_below(folder).into_iter().map(digest).collect()
}

/// Packs these files as an archive.
fn archive(machine: &Machine, files: &[(&str, &str)]) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let archive = machine.home.path("packed.tar.gz");
    let mut tar = Command::new("tar");
    let tar = tar.arg("-czf").arg(&archive).arg("-C").arg(folder.path());
    // The names without `./`, so that one folder at the top is the only one.
    let entries = std::fs::read_dir(folder.path()).unwrap();
    run_program(tar.args(entries.map(|entry| entry.unwrap().file_name())));
    std::fs::read(archive).unwrap()
}

#[test]
fn a_password_in_an_address_is_shown_nowhere_wherever_it_was_typed() {
    let machine = Machine::new();
    machine.home.write("project/pdf/SKILL.md", skill_md("pdf"));
    machine.run(&["add", "./pdf"]).ok();
    let repeating = [
        "add {}",
        "add github:ann:s3cret@host.example/x",
        "add s3cret@host.example/a/b",
        "add ./pdf --skill {}",
        "add ./pdf --path {}",
        "add --from-lock {}",
        "try {} --agent claude-code",
        "try ./pdf --agent claude-code --path {}",
        "show {}",
        "audit-repo {}",
        "lint {}",
        "fmt {}",
        "verify {}",
        "outdated {}",
        "doctor {}",
        "install --project {}",
        "link {}",
        "cloud connect {}",
        "operator --url {} namespace list",
    ];
    // Not all forms of these repeat what was typed.
    let others = [
        "import {}",
        "nonsense {}",
        "search {}",
        "skill search {}",
        "skill which {}",
        "resolve --caller ann@example.com --platform cli --query {}",
        "remove {}",
        "update {}",
        "history {}",
        "help {}",
        "unlink {}",
    ];
    let addresses = [
        "https://ann:s3cret@host.example/v/x",
        "git@ann:s3cret@host.example:v/x",
        "https://a.example//ann:s3cret@host.example/v/x",
    ];
    for arguments in repeating.iter().chain(&others) {
        let lines = addresses.map(|address| arguments.replace("{}", address));
        let lines = lines.iter().flat_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            [words.clone(), [&["--json"], &words[..]].concat()]
        });
        for words in lines {
            let output = machine.command(&words).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8(text).unwrap();
            assert!(!text.contains("s3cret"), "{words:?}: {text}");
            assert!(
                text.contains("host.example") || others.contains(arguments),
                "{words:?}: {text}"
            );
        }
    }
}
