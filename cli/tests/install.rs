//! `install.sh` in a separate home, with a stub in place of the real binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "screens/mod.rs"]
mod screens;

use screens::terminal::{ENTER, Terminal};
use tempfile::TempDir;

const PROGRAM: &str = "#!/bin/sh\ncase \"$1\" in\nversion) echo 'vault 9.9.9' ;;\n\
                       setup) [ \"${2:-}\" = --help ] || echo \"ran $*\" >\"$HOME/setup-ran\" ;;\nesac\n";

struct World {
    home: TempDir,
    program: PathBuf,
}

impl World {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let program = home.path().join("download");
        script(&program, PROGRAM);
        Self { home, program }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    fn command(&self, variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .arg(installer())
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/bin:/bin")
            .env("VAULT_INSTALL_FROM", &self.program)
            .envs(variables.iter().copied())
            .stdin(std::process::Stdio::null());
        command
    }

    fn install(&self, variables: &[(&str, &str)]) -> (Option<i32>, String) {
        said(&self.command(variables).output().unwrap())
    }

    fn is_installed(&self) -> bool {
        self.path(".local/bin/vault").exists()
    }
}

fn installer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../install.sh")
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn said(output: &Output) -> (Option<i32>, String) {
    assert!(output.stdout.is_empty(), "{output:?}");
    (
        output.status.code(),
        String::from_utf8(output.stderr.clone()).unwrap(),
    )
}

fn sha256(path: &Path) -> String {
    vault_skill::hash::Digest::of(&fs::read(path).unwrap()).to_string()
}

#[test]
fn it_installs_the_program_and_the_starter_skills_and_asks_nothing() {
    let world = World::new();
    let (code, text) = world.install(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("installed vault 9.9.9"), "{text}");
    assert!(text.contains("to PATH"), "{text}");
    let program = world.path(".local/bin/vault");
    assert_eq!(
        fs::metadata(&program).unwrap().permissions().mode() & 0o777,
        0o755
    );
    let skills = world.path(".local/share/vault/skills");
    assert!(skills.join("code-review/SKILL.md").exists());
    assert!(
        fs::metadata(skills.join("code-review/bin/changes.sh"))
            .unwrap()
            .permissions()
            .mode()
            & 0o100
            != 0
    );
    assert!(!world.path("setup-ran").exists(), "there is no terminal");
    // A second run has the same result and leaves no additional files.
    assert_eq!(world.install(&[]).0, Some(0));
    assert_eq!(fs::read_dir(world.path(".local/bin")).unwrap().count(), 1);
    assert_eq!(
        fs::read_dir(world.path(".local/share/vault"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn variables_of_the_installer_are_obeyed() {
    let world = World::new();
    let (code, text) = world.install(&[
        ("VAULT_NO_BOOTSTRAP", "1"),
        ("VAULT_INSTALL_DIR", world.path("bin").to_str().unwrap()),
    ]);
    assert_eq!(code, Some(0), "{text}");
    assert!(world.path("bin/vault").exists() && !world.is_installed());
    assert!(!world.path(".local/share").exists());
    for (name, value) in [
        ("VAULT_NO_SETUP", "yes"),
        ("VAULT_YES", "true"),
        ("VAULT_NO_BOOTSTRAP", "2"),
    ] {
        let (code, text) = World::new().install(&[(name, value)]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_download_is_compared_before_it_runs() {
    let world = World::new();
    let archive = world.path("vault.tar.gz");
    let inside = world.path("vault-9.9.9");
    script(&inside.join("vault"), PROGRAM);
    fs::create_dir_all(inside.join("skills/one")).unwrap();
    fs::write(inside.join("skills/one/SKILL.md"), "x").unwrap();
    let packed = Command::new("tar")
        .args([
            "-czf",
            archive.to_str().unwrap(),
            "-C",
            world.home.path().to_str().unwrap(),
            "vault-9.9.9",
        ])
        .status()
        .unwrap();
    assert!(packed.success());
    let from = archive.to_str().unwrap();
    let (code, text) = world.install(&[
        ("VAULT_INSTALL_FROM", from),
        ("VAULT_INSTALL_SHA256", &"0".repeat(64)),
    ]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("nothing was installed") && !world.is_installed(),
        "{text}"
    );
    let good = sha256(&archive).to_uppercase();
    let (code, text) = world.install(&[
        ("VAULT_INSTALL_FROM", from),
        ("VAULT_INSTALL_SHA256", &good),
    ]);
    assert_eq!(code, Some(0), "{text}");
    assert!(world.is_installed());
    assert!(
        world
            .path(".local/share/vault/skills/one/SKILL.md")
            .exists()
    );
}

#[test]
fn what_is_not_to_be_trusted_is_refused() {
    let world = World::new();
    let broken = world.path("broken");
    script(&broken, "#!/bin/sh\nexit 1\n");
    for (from, code, words) in [
        ("http://example.com/vault.tar.gz", 2, "https"),
        ("ftp://example.com/vault.tar.gz", 2, "https"),
        (
            "https://example.com/vault.tar.gz",
            2,
            "VAULT_INSTALL_SHA256",
        ),
        ("/nowhere/vault", 2, "no file"),
        (broken.to_str().unwrap(), 1, "does not run"),
    ] {
        let (found, text) = world.install(&[("VAULT_INSTALL_FROM", from)]);
        assert_eq!(found, Some(code), "{from}: {text}");
        assert!(
            text.contains(words) && !world.is_installed(),
            "{from}: {text}"
        );
    }
    assert_eq!(fs::read_dir(world.path(".local/bin")).unwrap().count(), 0);
}

#[test]
fn another_program_of_the_name_is_replaced_only_when_told() {
    let world = World::new();
    let other = world.path(".local/bin/vault");
    script(&other, "#!/bin/sh\necho 'Vault v1.17 (of somebody else)'\n");
    let (code, text) = world.install(&[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("VAULT_YES=1"), "{text}");
    assert!(
        fs::read_to_string(&other)
            .unwrap()
            .contains("somebody else")
    );
    assert_eq!(world.install(&[("VAULT_YES", "1")]).0, Some(0));
    assert_eq!(fs::read_to_string(&other).unwrap(), PROGRAM);
}

#[test]
fn on_a_terminal_it_ends_with_setup_unless_told_not_to() {
    if !Path::new("/usr/bin/script").exists() {
        println!("script is missing: the installer was not tried on a terminal");
        return;
    }
    for (variables, ran) in [(&[][..], true), (&[("VAULT_NO_SETUP", "1")], false)] {
        let world = World::new();
        let line = format!("/bin/sh {}", installer().display());
        let status = Command::new("/usr/bin/script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env_clear()
            .env("HOME", world.home.path())
            .env("PATH", "/usr/bin:/bin")
            .env("VAULT_INSTALL_FROM", &world.program)
            .envs(variables.iter().copied())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(world.path("setup-ran").exists(), ran, "{variables:?}");
    }
}

/// Runs the installer with the real binary on a terminal, in a home with one agent.
fn walk_in(home: &Path, variables: &str) -> Option<Terminal> {
    fs::create_dir_all(home.join(".claude")).unwrap();
    let from = env!("CARGO_BIN_EXE_vault");
    Terminal::start(
        home,
        &format!(
            "env VAULT_INSTALL_FROM={from} {variables} /bin/sh {}",
            installer().display()
        ),
    )
}

#[test]
fn the_wizard_offers_what_the_installer_left_and_takes_it_from_there() {
    let home = TempDir::new().unwrap();
    let Some(mut terminal) = walk_in(home.path(), "") else {
        return;
    };
    terminal.wait_for("space ticks, right ticks all");
    // The user has edited a starter skill before the setup. The setup offers the edited version.
    let left = home.path().join(".local/share/vault/skills/code-review");
    let mut text = fs::read_to_string(left.join("SKILL.md")).unwrap();
    text.push_str("\nOur own rule.\n");
    fs::write(left.join("SKILL.md"), &text).unwrap();
    terminal.press(&[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    for skill in ["code-review", "safe-migration"] {
        let seen = home.path().join(".claude/skills").join(skill);
        let given = home.path().join(".local/share/vault/skills").join(skill);
        for file in ["SKILL.md", "bin"] {
            assert!(seen.join(file).exists(), "{screen}");
        }
        assert_eq!(
            fs::read(seen.join("SKILL.md")).unwrap(),
            fs::read(given.join("SKILL.md")).unwrap()
        );
    }
    // The vault contains the skill from the folder, so adding it again changes nothing.
    let again = Command::new(home.path().join(".local/bin/vault"))
        .args(["add", left.to_str().unwrap(), "--json"])
        .env_clear()
        .env("HOME", home.path())
        .output()
        .unwrap();
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(
        again.status.success() && said.contains("unchanged"),
        "{said}"
    );
}

#[test]
fn who_wants_no_starter_skills_is_offered_none_and_who_wants_no_wizard_gets_none() {
    let home = TempDir::new().unwrap();
    let Some(mut terminal) = walk_in(home.path(), "VAULT_NO_BOOTSTRAP=1") else {
        return;
    };
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(!screen.contains("starter"), "{screen}");
    assert!(!home.path().join(".local/share").exists());
    assert!(home.path().join(".vault/vault.json").exists());

    let home = TempDir::new().unwrap();
    let terminal = walk_in(home.path(), "VAULT_NO_SETUP=1 VAULT_YES=1").unwrap();
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(!home.path().join(".vault").exists(), "{screen}");
    assert!(
        home.path()
            .join(".local/share/vault/skills/code-review/SKILL.md")
            .exists()
    );
}

/// Runs the walkthrough of the README word for word: from nothing to a skill that three agents
/// read.
#[test]
fn the_readme_s_walk_leads_to_a_skill_that_three_agents_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let chapter = readme
        .split("## On your machine")
        .nth(1)
        .expect("the chapter is there");
    let block = chapter
        .split("```console")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let commands: Vec<&str> = block
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    assert!((2..=5).contains(&commands.len()), "{commands:?}");
    assert!(commands[0].starts_with("./install.sh"));

    let home = TempDir::new().unwrap();
    for agent in [".claude", ".codex", ".cursor"] {
        fs::create_dir(home.path().join(agent)).unwrap();
    }
    for command in &commands {
        let output = Command::new("/bin/sh")
            .args(["-c", command])
            .current_dir(&root)
            .env_clear()
            .env("HOME", home.path())
            .env(
                "PATH",
                format!("{}/.local/bin:/usr/bin:/bin", home.path().display()),
            )
            // The binary that cargo would have built.
            .env("VAULT_INSTALL_FROM", env!("CARGO_BIN_EXE_vault"))
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let original = fs::read(root.join("cli/starter/code-review/SKILL.md")).unwrap();
    for folder in [".claude/skills", ".agents/skills", ".cursor/skills"] {
        let seen = home.path().join(folder).join("code-review/SKILL.md");
        assert_eq!(fs::read(&seen).unwrap(), original, "{}", seen.display());
    }
}
