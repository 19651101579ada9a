//! `install.sh` in a separate home, with a stub in place of the real binary.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

mod checkout;
mod release;

use crate::screens::terminal::{ENTER, Terminal};
use crate::support::{Ended, Home, run_program};

const PROGRAM: &str = "#!/bin/sh\ncase \"$1\" in\nversion) echo 'vault 9.9.9' ;;\n\
                       setup) [ \"${2:-}\" = --help ] || echo \"ran $*\" >\"$HOME/setup-ran\" ;;\nesac\n";

struct World {
    home: Home,
    program: PathBuf,
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        let program = home.write_executable("download", PROGRAM);
        Self { home, program }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.path(path)
    }

    fn command(&self, program: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = self.home.command(program);
        command.env("VAULT_INSTALL_FROM", &self.program);
        command.envs(variables.iter().copied());
        command
    }

    fn install(&self, variables: &[(&str, &str)]) -> (Option<i32>, String) {
        let mut command = self.command("/bin/sh", variables);
        let output = command.arg(installer()).output().unwrap();
        assert!(output.stdout.is_empty(), "{output:?}");
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// Uninstalls. Returns the exit code and what the installer said.
    fn uninstall(&self) -> (Option<i32>, String) {
        let mut command = self.command("/bin/sh", &[]);
        let output = command
            .arg(installer())
            .arg("--uninstall")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text)
    }

    /// Installs, which must succeed. Returns what the installer said.
    fn installed(&self, variables: &[(&str, &str)]) -> String {
        let (code, text) = self.install(variables);
        assert_eq!(code, Some(0), "{text}");
        text
    }

    fn is_installed(&self) -> bool {
        self.path(".local/bin/vault").exists()
    }
}

fn installer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../install.sh")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn it_installs_the_program_and_the_starter_skills_and_asks_nothing() {
    let world = World::new();
    let text = world.installed(&[]);
    assert!(text.contains("installed vault 9.9.9"), "{text}");
    assert!(text.contains("not in PATH"), "{text}");
    assert_eq!(mode(&world.path(".local/bin/vault")), 0o755);
    let skill = world.path(".local/share/vault/skills/code-review");
    assert!(skill.join("SKILL.md").exists());
    assert!(mode(&skill.join("scripts/changes.sh")) & 0o100 != 0);
    assert!(!world.path("setup-ran").exists(), "there is no terminal");
    // A second run has the same result and leaves no additional files.
    world.installed(&[]);
    assert_eq!(entries(&world.path(".local/bin")), 1);
    assert_eq!(entries(&world.path(".local/share/vault")), 1);
}

#[test]
fn variables_of_the_installer_are_obeyed() {
    let world = World::new();
    let folder = world.path("bin").display().to_string();
    world.installed(&[("VAULT_NO_BOOTSTRAP", "1"), ("VAULT_INSTALL_DIR", &folder)]);
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
    world.home.write_executable("vault-9.9.9/vault", PROGRAM);
    world.home.write("vault-9.9.9/skills/one/SKILL.md", "x");
    let mut tar = world.home.command("tar");
    run_program(tar.args(["-czf", "vault.tar.gz", "vault-9.9.9"]));
    let wrong = "0".repeat(64);
    let digest = vault_format::hash::Digest::of(&fs::read(&archive).unwrap());
    let digest = digest.to_string().to_uppercase();
    let from = ("VAULT_INSTALL_FROM", archive.to_str().unwrap());
    let (code, text) = world.install(&[from, ("VAULT_INSTALL_SHA256", &wrong)]);
    assert_eq!(code, Some(1));
    assert!(text.contains("nothing was installed"), "{text}");
    assert!(!world.is_installed());
    world.installed(&[from, ("VAULT_INSTALL_SHA256", &digest)]);
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
    let broken = world.home.write_executable("broken", "#!/bin/sh\nexit 1\n");
    for (from, code, words) in [
        ("http://example.com/vault.tar.gz", 2, "https"),
        ("ftp://example.com/vault.tar.gz", 2, "https"),
        (
            "https://example.com/vault.tar.gz",
            2,
            "VAULT_INSTALL_SHA256",
        ),
        ("/nowhere/vault", 2, "not a file"),
        (broken.to_str().unwrap(), 1, "does not run"),
    ] {
        let (found, text) = world.install(&[("VAULT_INSTALL_FROM", from)]);
        assert_eq!(found, Some(code), "{from}: {text}");
        assert!(text.contains(words), "{from}: {text}");
        assert!(!world.is_installed());
    }
    assert_eq!(entries(&world.path(".local/bin")), 0);
}

#[test]
fn another_program_of_the_name_is_replaced_only_when_told() {
    let world = World::new();
    let other = "#!/bin/sh\necho 'Vault v1.17 (of somebody else)'\n";
    world.home.write_executable(".local/bin/vault", other);
    let (code, text) = world.install(&[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("VAULT_YES=1"), "{text}");
    assert_eq!(world.home.read(".local/bin/vault"), other);
    world.installed(&[("VAULT_YES", "1")]);
    assert_eq!(world.home.read(".local/bin/vault"), PROGRAM);
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
        let mut script = world.command("/usr/bin/script", variables);
        script.args(["-q", "-e", "-c", &line, "/dev/null"]);
        run_program(script.stdout(std::process::Stdio::null()));
        assert_eq!(world.path("setup-ran").exists(), ran, "{variables:?}");
    }
}

/// Runs the installer with the real binary on a terminal, in a home with one agent.
fn walk_in(home: &Home, variables: &str) -> Option<Terminal> {
    fs::create_dir_all(home.path(".claude")).unwrap();
    let (from, installer) = (env!("CARGO_BIN_EXE_vault"), installer());
    let installer = installer.display();
    let line = format!("env VAULT_INSTALL_FROM={from} {variables} /bin/sh {installer}");
    Terminal::start(home.root(), &line)
}

#[test]
fn the_wizard_offers_what_the_installer_left_and_takes_it_from_there() {
    let home = Home::new();
    let Some(mut terminal) = walk_in(&home, "") else {
        return;
    };
    terminal.wait_for("space: select, right: all");
    // The user has edited a starter skill before the setup. The setup offers the edited version.
    let left = home.path(".local/share/vault/skills/code-review");
    let mut text = fs::read_to_string(left.join("SKILL.md")).unwrap();
    text.push_str("\nOur own rule.\n");
    fs::write(left.join("SKILL.md"), &text).unwrap();
    terminal.press(&[ENTER]);
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    for skill in ["code-review", "safe-migration"] {
        let seen = home.path(".claude/skills").join(skill);
        let given = home.path(".local/share/vault/skills").join(skill);
        for file in ["SKILL.md", "scripts"] {
            assert!(seen.join(file).exists(), "{screen}");
        }
        let [seen, given] = [seen, given].map(|at| fs::read(at.join("SKILL.md")).unwrap());
        assert_eq!(seen, given);
    }
    // The vault contains the skill from the folder, so adding it again changes nothing.
    let program = home.path(".local/bin/vault");
    let mut again = home.command(program.to_str().unwrap());
    let ended = Ended::of(again.args(["add", left.to_str().unwrap(), "--json"]));
    assert!(ended.out.contains("unchanged"), "{}", ended.out);
    ended.ok();
}

#[test]
fn who_wants_no_starter_skills_is_offered_none_and_who_wants_no_wizard_gets_none() {
    let home = Home::new();
    let Some(mut terminal) = walk_in(&home, "VAULT_NO_BOOTSTRAP=1") else {
        return;
    };
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(!screen.contains("starter"), "{screen}");
    assert!(!home.path(".local/share").exists());
    assert!(home.path(".vault/vault.json").exists());

    let home = Home::new();
    let terminal = walk_in(&home, "VAULT_NO_SETUP=1 VAULT_YES=1").unwrap();
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(!home.path(".vault").exists(), "{screen}");
    assert!(
        home.path(".local/share/vault/skills/code-review/SKILL.md")
            .exists()
    );
}

/// The commands of the first block of a README chapter.
fn readme_commands(chapter: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, text) = readme.split_once(&format!("## {chapter}\n")).unwrap();
    let (_, block) = text.split_once("```console").unwrap();
    let lines = block.split("```").next().unwrap().lines();
    let commands = lines.filter_map(|line| line.strip_prefix("$ "));
    commands.map(str::to_owned).collect()
}

/// Runs the chapters "Install" and "You" of the README word for word: from nothing to a skill that
/// three agents read.
#[test]
fn the_readme_leads_from_the_installer_to_a_skill_that_three_agents_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let install = readme_commands("Install");
    assert_eq!(install, ["./install.sh"]);
    let you = readme_commands("You");
    assert!((1..=4).contains(&you.len()), "{you:?}");

    let home = Home::new();
    for agent in [".claude", ".codex", ".cursor"] {
        fs::create_dir(home.path(agent)).unwrap();
    }
    for command in install.iter().chain(&you) {
        let path = home.path(".local/bin").display().to_string();
        let mut shell = home.command("/bin/sh");
        shell.args(["-c", command]).current_dir(&root);
        shell.env("PATH", format!("{path}:/usr/bin:/bin"));
        // The binary that cargo would have built.
        shell.env("VAULT_INSTALL_FROM", env!("CARGO_BIN_EXE_vault"));
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let original = fs::read(root.join("shared/service/starter/code-review/SKILL.md")).unwrap();
    for folder in [".claude/skills", ".agents/skills", ".cursor/skills"] {
        let seen = home.path(folder).join("code-review/SKILL.md");
        assert_eq!(fs::read(&seen).unwrap(), original, "{}", seen.display());
    }
}

#[test]
fn uninstalling_removes_the_program_and_keeps_skills_and_keys() {
    let world = World::new();
    world.installed(&[]);
    let skill = world.home.write(".vault/skills/pdf/SKILL.md", "mine");
    let key = world.home.write(".config/vault/key", "mine");
    for again in [false, true] {
        let (code, text) = world.uninstall();
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(text.contains("removed"), !again, "{text}");
        assert!(text.contains("kept "), "{text}");
        assert!(!world.is_installed());
        assert!(!world.path(".local/share/vault").exists());
        assert!(skill.exists() && key.exists());
    }
}

#[test]
fn uninstalling_leaves_another_program_named_vault() {
    let world = World::new();
    world.installed(&[]);
    let other = "#!/bin/sh\necho another program\n";
    let place = world.home.write_executable(".local/bin/vault", other);
    let (code, text) = world.uninstall();
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("nothing was removed"), "{text}");
    assert!(place.exists() && world.path(".local/share/vault/skills").exists());
}
