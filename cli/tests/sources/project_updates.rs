//! Projects that change: updates, what differs from the lock, clones, and branches.

use super::projects::{names, personal};
use super::*;

#[test]
fn a_project_is_updated_from_its_sources_and_nothing_personal_is() {
    let repository = Repository::new();
    repository.write("pdf/SKILL.md", skill_md("pdf"));
    repository.commit();
    let address = repository.address();
    let machine = Machine::new();
    machine.home.write("project/own/SKILL.md", skill_md("own"));
    machine.home.write("project/csv/SKILL.md", skill_md("csv"));
    machine.run(&["add", "./own"]).ok();
    machine
        .run(&[
            "add",
            &address,
            "./csv",
            "--project",
            "--agent",
            "claude-code",
        ])
        .ok();
    machine.run(&["list"]).ok();
    let before = personal(&machine);
    let lock = machine.home.read("project/vault.lock");
    let same = machine.run(&["outdated", "--project"]).ok();
    assert_eq!(same["up_to_date"], json!(["csv", "pdf"]), "{same}");
    machine.run(&["update", "--project", "--diff"]).ok();
    machine.run(&["verify", "--project"]).ok();

    let newer = skill_md("csv").replace("Do it.", "Do it well.");
    machine.home.write("project/csv/SKILL.md", &newer);
    repository.write("pdf/later.md", "later");
    repository.commit();
    let outdated = machine.run(&["outdated", "--project"]);
    assert_eq!(outdated.code, 3, "{}", outdated.out);
    let drifted = outdated.json["data"]["drifted"].as_array().unwrap();
    let found: Vec<_> = drifted
        .iter()
        .map(|skill| skill["name"].as_str().unwrap())
        .collect();
    assert_eq!(found, ["csv", "pdf"]);
    assert_eq!(drifted[0]["source"], "./csv");
    machine
        .run(&["outdated", "cvs", "--project"])
        .fails(1, "skill_not_found");
    // `--diff` shows the change and makes none.
    let shown = machine.run(&["update", "csv", "--project", "--diff"]);
    assert_eq!(shown.code, 3, "{}", shown.out);
    let lines = shown.json["data"]["drifted"][0]["diff"].to_string();
    assert!(lines.contains("Do it well."), "{lines}");
    assert_eq!(machine.home.read("project/vault.lock"), lock);
    machine.run(&["verify", "--project"]).fails(3, "lock_stale");

    let updated = machine.run(&["update", "csv", "--project"]).ok();
    assert_eq!(updated["updated"][0]["name"], "csv", "{updated}");
    assert_eq!(
        machine.home.read("project/.vault/skills/csv/SKILL.md"),
        newer
    );
    assert!(
        !machine
            .home
            .path("project/.vault/skills/pdf/later.md")
            .exists()
    );
    let updated = machine.run(&["update", "--project"]).ok();
    assert_eq!(updated["updated"][0]["name"], "pdf", "{updated}");
    assert_eq!(updated["up_to_date"], json!(["csv"]));
    assert!(
        machine
            .home
            .path("project/.vault/skills/pdf/later.md")
            .exists()
    );
    let now = machine.home.read("project/vault.lock");
    assert_eq!(
        now.matches("agents = [\"claude-code\"]").count(),
        2,
        "{now}"
    );
    machine.run(&["install", "--frozen"]).ok();
    assert_eq!(personal(&machine), before);
    // What left its source stays installed.
    std::fs::remove_dir_all(machine.home.path("project/csv")).unwrap();
    let gone = machine.run(&["outdated", "--project"]);
    assert_eq!(gone.code, 3, "{}", gone.out);
    assert_eq!(gone.json["data"]["removed"][0]["name"], "csv");
    machine
        .run(&["update", "--project"])
        .fails(3, "source_removed");
    machine.run(&["verify", "--project"]).fails(3, "lock_stale");
    assert!(
        machine
            .home
            .path("project/.vault/skills/csv/SKILL.md")
            .exists()
    );
}

#[test]
fn what_differs_from_the_lock_is_found() {
    let machine = Machine::new();
    for name in ["csv", "pdf"] {
        machine
            .home
            .write(&format!("project/{name}/SKILL.md"), skill_md(name));
    }
    machine.run(&["verify", "--project"]).fails(1, "no_lock");
    machine.run(&["add", "./csv", "./pdf", "--project"]).ok();
    machine.run(&["doctor", "--project"]).ok();
    let lock = machine.home.read("project/vault.lock");
    // An entry that is not installed, and a skill that has no entry.
    let other = lock.replace("name = \"pdf\"", "name = \"other\"");
    machine.home.write("project/vault.lock", other);
    machine.run(&["verify", "--project"]).fails(3, "lock_stale");
    let examined = machine.run(&["doctor", "--project"]);
    assert_eq!(examined.code, 3, "{}", examined.out);
    let findings = examined.json["data"]["findings"].as_array().unwrap();
    let found: Vec<_> = findings.iter().map(|finding| &finding["message"]).collect();
    assert_eq!(found, ["other: not installed", "pdf: not in vault.lock"]);
    machine.home.write("project/vault.lock", lock);
    // A link that leads elsewhere.
    let link = machine.home.path("project/.vault/skills/pdf");
    std::fs::remove_file(&link).unwrap();
    let examined = machine.run(&["doctor", "--project"]);
    assert_eq!(examined.code, 3, "{}", examined.out);
    assert_eq!(
        examined.json["data"]["findings"][0]["code"],
        "project_links"
    );
    machine.run(&["install", "--frozen"]).ok();
    machine.run(&["doctor", "--project"]).ok();
    // Bytes that were changed.
    let document = link.join("SKILL.md").canonicalize().unwrap();
    let folder = document.parent().unwrap();
    crate::support::set_mode(folder, 0o755);
    std::fs::remove_file(&document).unwrap();
    std::fs::write(&document, "changed").unwrap();
    machine
        .run(&["verify", "--project"])
        .fails(6, "skill_damaged");
    assert_eq!(machine.run(&["doctor", "--project"]).code, 6);
    assert_eq!(machine.run(&["list", "--project"]).code, 6);
    for flags in [["--fix"], ["--clean"], ["--repair"]] {
        machine
            .run(&[&["doctor", "--project"], &flags[..]].concat())
            .fails(2, "usage");
    }
}

#[test]
fn a_second_clone_is_installed_without_the_network() {
    let repository = Repository::new();
    repository.write("pdf/SKILL.md", skill_md("pdf"));
    repository.commit();
    let machine = Machine::new();
    machine.home.write("project/csv/SKILL.md", skill_md("csv"));
    machine
        .run(&["add", &repository.address(), "./csv", "--project"])
        .ok();
    let lock = machine.home.read("project/vault.lock");
    for clone in ["clone", "strict"] {
        machine.home.write(&format!("{clone}/vault.lock"), &lock);
        machine
            .home
            .write(&format!("{clone}/csv/SKILL.md"), skill_md("csv"));
    }
    let install = |clone: &str| {
        let arguments = ["--json", "--offline", "install", "--frozen"];
        Ended::of(
            machine
                .command(&arguments)
                .current_dir(machine.home.path(clone)),
        )
    };
    let installed = install("clone").ok();
    assert_eq!(
        installed["installed"].as_array().unwrap().len(),
        2,
        "{installed}"
    );
    assert_eq!(
        machine.home.read("clone/.vault/skills/pdf/SKILL.md"),
        skill_md("pdf")
    );
    assert_eq!(machine.home.read("clone/vault.lock"), lock);
    // A policy about sources is applied where a source is read, so the bytes are fetched then.
    machine.policy("[sources]\nallow = [\"github.com/acme/*\"]\n");
    let refused = install("strict");
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert!(!machine.home.path("strict/.vault/skills/pdf").exists());
    machine.policy("");
    // Bytes of another revision are not those of the entry, whatever its digest says.
    let other = lock
        .lines()
        .find(|line| line.starts_with("revision"))
        .unwrap();
    let moved = lock.replace(other, &format!("revision = \"{}\"", "1".repeat(40)));
    machine.home.write("strict/vault.lock", moved);
    let refused = install("strict");
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert!(!machine.home.path("strict/.vault/skills/pdf").exists());
}

#[test]
fn a_frozen_install_writes_no_lock() {
    let machine = Machine::new();
    machine.home.write("project/csv/SKILL.md", skill_md("csv"));
    machine.run(&["add", "./csv", "--project"]).ok();
    let lock = machine.home.read("project/vault.lock");
    machine.home.write(
        "project/csv/SKILL.md",
        skill_md("csv").replace("Do it.", "Do more."),
    );
    // Every other clone would fail, so this one does, too, although it has the locked bytes.
    let error = machine
        .run(&["install", "--frozen"])
        .fails(6, "lock_digest");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("1 skill could not be installed"),
        "{error}"
    );
    machine.run(&["verify", "--project"]).fails(3, "lock_stale");
    std::fs::remove_dir_all(machine.home.path(".config/vault/projects")).unwrap();
    machine
        .run(&["install", "--frozen"])
        .fails(6, "lock_digest");
    assert_eq!(machine.home.read("project/vault.lock"), lock);
    let open = "schema = 1\n\n[[skill]]\nname = \"csv\"\nsource = \"./csv\"\n";
    machine.home.write("project/vault.lock", open);
    machine.run(&["install", "--frozen"]).fails(3, "lock_stale");
    assert_eq!(machine.home.read("project/vault.lock"), open);
}

/// A project in a git repository, whose branches change its lock.
struct Branches {
    machine: Machine,
}

impl Branches {
    /// Makes the branch `main` with the skills `beta` and `kappa`, of six that the project has.
    fn new() -> Self {
        let branches = Self {
            machine: Machine::new(),
        };
        for name in ["alpha", "beta", "chi", "gamma", "kappa", "omega"] {
            branches.write(name, "Do it.");
        }
        branches.git(&["init", "-q", "-b", "main"]);
        branches.add(&["beta", "kappa"]);
        branches.git(&["add", "-A"]);
        branches.git(&["commit", "-qm", "main"]);
        branches
    }

    fn write(&self, name: &str, body: &str) {
        let text = skill_md(name).replace("Do it.", body);
        let path = format!("project/skills/{name}/SKILL.md");
        self.machine.home.write(&path, text);
    }

    fn try_git(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("git");
        let identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"];
        command
            .current_dir(self.machine.home.path("project"))
            .args(identity)
            .args(arguments)
            .env("HOME", self.machine.home.root())
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.output().unwrap().status.success()
    }

    fn git(&self, arguments: &[&str]) {
        assert!(self.try_git(arguments), "{arguments:?}");
    }

    fn add(&self, skills: &[&str]) {
        for skill in skills {
            let source = format!("./skills/{skill}");
            self.machine.run(&["add", &source, "--project"]).ok();
        }
    }

    /// Makes a branch of `main` whose lock has these skills, too.
    fn branch(&self, name: &str, skills: &[&str]) {
        self.git(&["checkout", "-q", "-b", name, "main"]);
        self.add(skills);
        self.git(&["commit", "-qam", name]);
    }

    /// Makes a branch of `main` in which `kappa` has another text.
    fn branch_of_kappa(&self, name: &str, body: &str) {
        self.git(&["checkout", "-q", "-b", name, "main"]);
        self.write("kappa", body);
        self.machine.run(&["update", "kappa", "--project"]).ok();
        self.git(&["commit", "-qam", name]);
    }

    #[track_caller]
    fn locks(&self, skills: &[&str]) {
        let list = self.machine.run(&["list", "--project"]).ok();
        assert_eq!(names(&list), skills);
    }
}

#[test]
fn branches_that_changed_the_lock_merge_or_name_the_command_that_does() {
    let branches = Branches::new();
    let machine = &branches.machine;
    branches.branch("first", &["alpha"]);
    branches.branch("last", &["omega"]);
    branches.branch("gamma", &["gamma"]);
    // Entries at different places merge by themselves.
    branches.git(&["checkout", "-q", "-b", "merged", "first"]);
    branches.git(&["merge", "-q", "-m", "m", "last"]);
    branches.git(&["merge", "-q", "-m", "m", "gamma"]);
    machine.run(&["install"]).ok();
    branches.locks(&["alpha", "beta", "gamma", "kappa", "omega"]);
    // The same place is a conflict, which names both sides and the command.
    branches.branch("chi", &["chi"]);
    assert!(!branches.try_git(&["merge", "-q", "-m", "m", "gamma"]));
    let error = machine.run(&["install"]).fails(1, "lock_invalid");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("HEAD") && message.contains("gamma"),
        "{error}"
    );
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("vault install --resolve"), "{error}");
    for command in ["list", "outdated", "update", "verify", "doctor"] {
        let refused = machine.run(&[command, "--project"]);
        refused.fails(1, "lock_invalid");
    }
    machine.run(&["install", "--resolve"]).ok();
    branches.locks(&["beta", "chi", "gamma", "kappa"]);
    // Markers that are broken are never guessed at.
    let broken = "<<<<<<< HEAD\nschema = 1\n";
    machine.home.write("project/vault.lock", broken);
    machine
        .run(&["install", "--resolve"])
        .fails(1, "lock_invalid");
    assert_eq!(machine.home.read("project/vault.lock"), broken);
}

#[test]
fn two_branches_that_changed_one_skill_are_a_question() {
    let branches = Branches::new();
    let machine = &branches.machine;
    branches.branch_of_kappa("a", "Do A.");
    branches.branch_of_kappa("b", "Do B.");
    assert!(!branches.try_git(&["merge", "-q", "-m", "m", "a"]));
    // The files of the folder count, which the user merges: neither digest is theirs.
    let conflict = machine.home.read("project/vault.lock");
    machine
        .run(&["install", "--resolve"])
        .fails(1, "lock_invalid");
    assert_eq!(machine.home.read("project/vault.lock"), conflict);
    branches.write("kappa", "Do A and B.");
    machine.run(&["install", "--resolve"]).ok();
    let installed = machine.home.read("project/.vault/skills/kappa/SKILL.md");
    assert!(installed.contains("Do A and B."), "{installed}");
    branches.locks(&["beta", "kappa"]);
    machine.run(&["install", "--frozen"]).ok();
}

#[test]
fn sides_with_other_sources_for_one_name_are_a_question() {
    let branches = Branches::new();
    let machine = &branches.machine;
    for (branch, folder) in [("a", "skills/chi"), ("b", "skills/gamma")] {
        branches.git(&["checkout", "-q", "-b", branch, "main"]);
        let source = format!("./{folder}");
        machine
            .run(&["add", &source, "--as", "new", "--project"])
            .ok();
        branches.git(&["commit", "-qam", branch]);
    }
    assert!(!branches.try_git(&["merge", "-q", "-m", "m", "a"]));
    let conflict = machine.home.read("project/vault.lock");
    let asked = machine.run(&["install", "--resolve"]).fails(2, "no_tty");
    let hint = asked["hint"].as_str().unwrap();
    assert!(hint.contains("--resolve=theirs"), "{asked}");
    assert_eq!(machine.home.read("project/vault.lock"), conflict);
    machine.run(&["install", "--resolve=theirs"]).ok();
    assert!(
        machine
            .home
            .read("project/vault.lock")
            .contains("./skills/chi")
    );
    branches.locks(&["beta", "kappa", "new"]);
}
