//! A stranger's repository against the machine that installs its `vault.lock`: the project's skills
//! stay the project's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vault_tests::home::{Home, Ran};
use vault_tests::host::Host;
use vault_tests::signed::read_catalog;
use vault_tests::skills::skill_md;
use vault_tests::tree;

use crate::support::{FAILED, GATE, INTEGRITY, USAGE, WRITERS, connect, unchanged_but_for, word};

const INSTALL: &[&str] = &["install", "--frozen", "--json"];

/// A repository that brings along a skill `alpha` in `any/where/alpha` and a lock that names it.
pub fn hostile_repository(machine: &Home) -> PathBuf {
    let author = Home::new();
    let there = author.path().join("repo");
    write_skill(&there, "any/where/alpha", "Text of the project.");
    fs::create_dir(there.join(".git")).unwrap();
    run_in(&author, &there, &["add", "./any/where/alpha", "--project"]).ok();
    let repository = machine.path().join("repo");
    write_skill(&repository, "any/where/alpha", "Text of the project.");
    fs::create_dir(repository.join(".git")).unwrap();
    fs::copy(there.join("vault.lock"), repository.join("vault.lock")).unwrap();
    repository
}

fn write_skill(repository: &Path, folder: &str, body: &str) {
    let folder = repository.join(folder);
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    vault_tests::skills::write(&folder, &[("SKILL.md", &skill_md(&name, body))]);
}

pub fn run_in(machine: &Home, folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = machine.command(arguments);
    let output = command.current_dir(folder).output();
    output.expect("the built binary").into()
}

/// Installing must end so and change nothing in the home but what any writer changes.
#[track_caller]
fn install_refused(machine: &Home, folder: &Path, name: &str, exit: i32, code: &str) {
    let before = tree::snapshot(machine.path(), WRITERS);
    let ran = run_in(machine, folder, &["install", "--json"]);
    let found = (ran.code, word(&ran));
    let text = format!("{name}\n{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(found, (exit, code.to_owned()), "{text}");
    unchanged_but_for(machine, name, &before, WRITERS);
}

/// Replaces the source of the only entry of the repository's lock.
fn set_source(repository: &Path, lines: &str) {
    let path = repository.join("vault.lock");
    let lock = fs::read_to_string(&path).unwrap();
    let line = lock
        .lines()
        .find(|line| line.starts_with("source"))
        .unwrap();
    fs::write(&path, lock.replace(line, lines)).unwrap();
}

fn bundle_of(list: &Value, name: &str) -> String {
    let skills = list["data"]["skills"].as_array().unwrap();
    let skill = skills.iter().find(|skill| skill["name"] == name).unwrap();
    text_of(&skill["bundle_hash"])
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn a_lock_replaces_no_own_skill_and_enters_no_release() {
    let host = Host::start();
    let machine = Home::new();
    machine.add("alpha", "My own text.").ok();
    connect(&machine, &host.address(), Some).ok();
    machine.run("sync --cloud").ok();
    let repository = hostile_repository(&machine);
    let own = machine.vault().join("skills/alpha");
    let before = (
        fs::read_link(&own).unwrap(),
        fs::read(own.join("SKILL.md")).unwrap(),
    );

    let installed = run_in(&machine, &repository, INSTALL).ok().json();
    assert_eq!(installed["data"]["installed"][0]["name"], "alpha");
    let after = (
        fs::read_link(&own).unwrap(),
        fs::read(own.join("SKILL.md")).unwrap(),
    );
    assert_eq!(before, after, "the own skill stays");
    let shown = repository.join(".vault/skills/alpha/SKILL.md");
    assert!(
        fs::read_to_string(shown)
            .unwrap()
            .contains("Text of the project.")
    );
    assert_eq!(
        fs::read_to_string(repository.join(".vault/.gitignore")).unwrap(),
        "# BEGIN vault: links to the skills of vault.lock\n/.gitignore\n/skills\n# END vault\n"
    );

    // No command of the own vault takes the project's skill for one of its own.
    machine.add("beta", "Another one.").ok();
    let synced = machine.run("sync --cloud --json").ok().json();
    assert_eq!(synced["data"]["release"], 2);
    let catalog = host.namespace().catalog.unwrap();
    let catalog = read_catalog(&catalog).unwrap();
    let own = machine.run("list --json").ok().json();
    let released: Vec<_> = catalog
        .skills
        .iter()
        .map(|entry| (entry.name.to_string(), entry.bundle_hash.to_string()))
        .collect();
    let owned = ["alpha", "beta"].map(|name| (name.to_owned(), bundle_of(&own, name)));
    assert_eq!(released, owned);
    let of_project = text_of(&installed["data"]["installed"][0]["bundle_hash"]);
    assert!(released.iter().all(|(_, bundle)| *bundle != of_project));
    machine.run(&["verify"]).ok();
}

#[test]
fn a_project_skill_put_among_the_own_ones_counts_for_nothing() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    let installed = run_in(&machine, &repository, INSTALL).ok().json();
    let bundle = installed["data"]["installed"][0]["bundle_hash"]
        .as_str()
        .unwrap();
    let planted = machine.vault().join("skills/alpha");
    symlink(format!("../store/{bundle}/files"), &planted).unwrap();
    let verified = machine.run("verify --json").expect_code(INTEGRITY);
    assert!(verified.stdout.contains("alpha"), "{}", verified.stdout);
    let list = machine.run("list --json").expect_code(INTEGRITY).json();
    assert_eq!(bundle_of(&list, "mine").len(), 64);
    assert_eq!(list["data"]["skills"].as_array().unwrap().len(), 1);
    // The other way round: an own bundle under a project's name is not what was installed.
    fs::remove_file(&planted).unwrap();
    let own = bundle_of(&machine.run("list --json").ok().json(), "mine");
    let link = repository.join(".vault/skills/alpha");
    fs::remove_file(&link).unwrap();
    symlink(machine.vault().join("store").join(own).join("files"), &link).unwrap();
    let doctor = machine.run("doctor --json").json();
    let findings = doctor["data"]["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| finding["code"] == "project_links"),
        "{doctor}"
    );
    run_in(&machine, &repository, INSTALL).ok();
    let text = fs::read_to_string(link.join("SKILL.md")).unwrap();
    assert!(text.contains("Text of the project."), "{text}");
}

#[test]
fn local_sources_stay_inside_their_project() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    write_skill(machine.path(), "secret/alpha", "Text of the project.");
    let outside = machine.path().join("secret");
    symlink(&outside, repository.join("lnk")).unwrap();
    symlink(outside.join("alpha"), repository.join("alpha")).unwrap();
    symlink("any", repository.join("inner")).unwrap();
    for (source, exit, code) in [
        ("./lnk/alpha", GATE, "symlink"),
        ("./alpha", GATE, "symlink"),
        ("./inner/where/alpha", GATE, "symlink"),
        ("./any/../lnk/alpha", USAGE, "lock_outside"),
        ("./../secret/alpha", USAGE, "lock_outside"),
        (
            &format!("./{}/alpha", outside.display()),
            USAGE,
            "lock_outside",
        ),
    ] {
        set_source(&repository, &format!("source = \"{source}\""));
        install_refused(&machine, &repository, source, exit, code);
    }
    for source in [
        &format!("{}/alpha", outside.display()),
        "~/secret/alpha",
        "local:alpha",
    ] {
        set_source(&repository, &format!("source = \"{source}\""));
        let before = tree::snapshot(machine.path(), WRITERS);
        let ran = run_in(&machine, &repository, &["install", "--offline"]);
        assert_ne!(ran.code, 0, "{source}");
        unchanged_but_for(&machine, source, &before, WRITERS);
    }
}

#[test]
fn a_lock_fetches_nothing_from_another_address_than_its_source() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    for (source, address) in [
        (
            "github:anthropics/skills/alpha",
            "https://github.com/evil/skills.git",
        ),
        (
            "github:anthropics/skills/alpha",
            "git@evil.example:anthropics/skills.git",
        ),
        (
            "git:https://git.example.com/a/b.git//alpha",
            "https://git.example.com/a/c.git",
        ),
        (
            "wellknown:https://docs.example.com/alpha",
            "https://evil.example",
        ),
        (
            "wellknown:https://docs.example.com/alpha",
            "https://docs.example.com/alpha",
        ),
        ("https:https://a.example/x.zip", "https://b.example/x.zip"),
        ("registry:alpha", "https://evil.example/a/b.git"),
        ("./any/where/alpha", "https://evil.example/a/b.git"),
    ] {
        let lines = format!("source = \"{source}\"\naddress = \"{address}\"\npath = \"alpha\"");
        let lock = fs::read_to_string(repository.join("vault.lock")).unwrap();
        set_source(&repository, &lines);
        install_refused(&machine, &repository, address, FAILED, "lock_invalid");
        fs::write(repository.join("vault.lock"), lock).unwrap();
    }
}

#[test]
fn what_a_repository_brings_along_is_neither_followed_nor_replaced_nor_trusted() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    let state = repository.join(".vault");
    let elsewhere = machine.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    // `.vault` is the user's vault, or leads elsewhere.
    for target in [machine.vault(), elsewhere.clone()] {
        symlink(&target, &state).unwrap();
        let name = target.display().to_string();
        install_refused(&machine, &repository, &name, USAGE, "project_invalid");
        fs::remove_file(&state).unwrap();
    }
    fs::create_dir(&state).unwrap();
    symlink(&elsewhere, state.join("skills")).unwrap();
    install_refused(&machine, &repository, "skills", USAGE, "project_invalid");
    fs::remove_file(state.join("skills")).unwrap();
    // A skill of the repository's own making stands in the way; it is neither used nor removed.
    write_skill(&state, "skills/alpha", "Brought along.");
    run_in(&machine, &repository, INSTALL).expect_code(USAGE);
    assert!(state.join("skills/alpha/SKILL.md").exists());
    let list = run_in(&machine, &repository, &["list", "--project", "--json"]).json();
    assert_eq!(list["data"]["skills"].as_array().unwrap().len(), 1);
    fs::remove_dir_all(state.join("skills")).unwrap();
    // Links of the repository's own making are replaced or removed, whatever they lead to.
    fs::create_dir(state.join("skills")).unwrap();
    for name in ["alpha", "other"] {
        symlink(
            machine.vault().join("skills/mine"),
            state.join("skills").join(name),
        )
        .unwrap();
    }
    fs::write(state.join(".gitignore"), "").unwrap();
    run_in(&machine, &repository, INSTALL).ok();
    let text = fs::read_to_string(state.join("skills/alpha/SKILL.md")).unwrap();
    assert!(text.contains("Text of the project."), "{text}");
    assert!(state.join("skills/other").symlink_metadata().is_err());
    // The repository keeps its file, although it was empty.
    assert_eq!(
        fs::read_to_string(state.join(".gitignore")).unwrap(),
        "# BEGIN vault: links to the skills of vault.lock\n/skills\n# END vault\n"
    );
}

#[test]
fn agents_folders_of_a_project_lead_nowhere_else() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    fs::create_dir_all(machine.path().join(".claude/skills")).unwrap();
    let repository = hostile_repository(&machine);
    symlink(machine.path().join(".claude"), repository.join(".claude")).unwrap();
    let installed = run_in(&machine, &repository, INSTALL).ok();
    assert!(
        installed.stdout.contains("project_folder_refused"),
        "{}",
        installed.stdout
    );
    let own = machine.path().join(".claude/skills");
    assert_eq!(
        fs::read_dir(&own).unwrap().count(),
        0,
        "nothing came into the user's folder"
    );
    fs::remove_file(repository.join(".claude")).unwrap();
    // The repository's own skill keeps its place; the project's link is made where nothing stands.
    write_skill(&repository, ".claude/skills/alpha", "Committed.");
    run_in(&machine, &repository, INSTALL).ok();
    let path = repository.join(".claude/skills/alpha");
    assert!(path.symlink_metadata().unwrap().is_dir());
    fs::remove_dir_all(&path).unwrap();
    run_in(&machine, &repository, INSTALL).ok();
    let target = fs::read_link(&path).unwrap();
    assert_eq!(target, Path::new("../../.vault/skills/alpha"));
    // What the lock names no more leaves all folders.
    fs::write(repository.join("vault.lock"), "schema = 1\n").unwrap();
    run_in(&machine, &repository, INSTALL).ok();
    assert!(path.symlink_metadata().is_err());
    assert!(
        repository
            .join(".vault/skills/alpha")
            .symlink_metadata()
            .is_err()
    );
    machine.run(&["verify"]).ok();
}

#[test]
fn the_home_folder_and_the_vault_are_no_projects() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let lock = "schema = 1\n\n[[skill]]\nname = \"mine\"\nsource = \"./work/mine\"\n";
    fs::write(machine.path().join("vault.lock"), lock).unwrap();
    install_refused(&machine, machine.path(), "home", USAGE, "project_invalid");
    let alias = machine.path().join("alias");
    symlink(machine.path(), &alias).unwrap();
    install_refused(&machine, &alias, "home by a link", USAGE, "project_invalid");
    fs::rename(
        machine.path().join("vault.lock"),
        machine.vault().join("vault.lock"),
    )
    .unwrap();
    install_refused(
        &machine,
        &machine.vault(),
        "the vault",
        USAGE,
        "project_invalid",
    );
    let inside = machine.vault().join("skills");
    fs::rename(
        machine.vault().join("vault.lock"),
        inside.join("vault.lock"),
    )
    .unwrap();
    install_refused(
        &machine,
        &inside,
        "inside the vault",
        USAGE,
        "project_invalid",
    );
    // A vault that lies in a project's `.vault`.
    let work = machine.path().join("work");
    fs::rename(inside.join("vault.lock"), work.join("vault.lock")).unwrap();
    let vault = work.join(".vault");
    let arguments = ["--vault", vault.to_str().unwrap(), "add", "./mine"];
    run_in(&machine, &work, &arguments).ok();
    let arguments = ["--vault", vault.to_str().unwrap(), "install", "--json"];
    let ran = run_in(&machine, &work, &arguments).expect_code(USAGE);
    assert_eq!(word(&ran), "project_invalid");
}

#[test]
fn a_lock_that_is_a_link_is_not_read() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    let lock = repository.join("vault.lock");
    fs::rename(&lock, machine.path().join("elsewhere.lock")).unwrap();
    symlink(machine.path().join("elsewhere.lock"), &lock).unwrap();
    install_refused(&machine, &repository, "a link", FAILED, "lock_invalid");
}

#[test]
fn changed_bytes_of_a_project_are_found_and_installed_again() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    let installed = run_in(&machine, &repository, INSTALL).ok().json();
    let bundle = installed["data"]["installed"][0]["bundle_hash"]
        .as_str()
        .unwrap();
    let file = machine
        .vault()
        .join("store")
        .join(bundle)
        .join("files/SKILL.md");
    let folder = file.parent().unwrap();
    chmod(folder, 0o755);
    fs::remove_file(&file).unwrap();
    fs::write(&file, skill_md("alpha", "Something else.")).unwrap();
    chmod(&file, 0o444);
    chmod(folder, 0o555);
    let verified = machine.run("verify --json").expect_code(INTEGRITY);
    assert!(verified.stdout.contains("alpha"), "{}", verified.stdout);
    let listed = run_in(&machine, &repository, &["list", "--project", "--json"]);
    assert_eq!(listed.code, INTEGRITY);
    assert_eq!(listed.json()["data"]["skills"][0]["state"], "damaged");
    run_in(&machine, &repository, INSTALL).ok();
    machine.run(&["verify"]).ok();
    // The record is what counts: without it, nothing says that the bytes are the project's.
    let projects = machine.config().join("projects");
    fs::rename(&projects, machine.path().join("taken-away")).unwrap();
    let listed = run_in(&machine, &repository, &["list", "--project", "--json"]).ok();
    assert_eq!(listed.json()["data"]["skills"][0]["state"], "missing");
}

fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn actions_of_a_project_run_inside_it_and_take_no_name_of_the_users() {
    let machine = Home::new();
    let author = Home::new();
    let (there, repository) = (author.path().join("repo"), machine.path().join("repo"));
    let script = |word: &str| format!("#!/bin/sh\necho {word} \"$OF_THE_USER\"\n");
    let md = |name: &str| {
        let body = String::from_utf8(skill_md(name, "Acts.")).unwrap();
        body.replacen("\n---\n", "\nbin:\n  go: { command: go.sh }\n---\n", 1)
    };
    for root in [&there, &repository] {
        for name in ["alpha", "beta"] {
            let (md, script) = (md(name), script("project"));
            let files = [("SKILL.md", md.as_bytes()), ("go.sh", script.as_bytes())];
            vault_tests::skills::write(&root.join(name), &files);
        }
        fs::create_dir(root.join(".git")).unwrap();
    }
    for name in ["./alpha", "./beta"] {
        run_in(&author, &there, &["add", name, "--project"]).ok();
    }
    fs::copy(there.join("vault.lock"), repository.join("vault.lock")).unwrap();
    let (md, script) = (md("alpha"), script("own"));
    let files = [("SKILL.md", md.as_bytes()), ("go.sh", script.as_bytes())];
    let own = machine.skill("alpha", &files);
    machine.run(&format!("add {}", own.to_str().unwrap())).ok();
    run_in(&machine, &repository, INSTALL).ok();

    let inside = repository.join("alpha");
    let run = |folder: &Path, skill: &str| {
        let mut command = machine.command(&format!("skill go {skill}"));
        command.current_dir(folder).env("OF_THE_USER", "secret");
        Ran::from(command.output().unwrap())
    };
    for folder in [&repository, &inside] {
        // Nothing of the environment but what the skill declares.
        assert_eq!(run(folder, "beta").ok().stdout.trim(), "project");
        assert_eq!(run(folder, "alpha").ok().stdout.trim(), "own secret");
    }
    let which = run_in(&machine, &inside, &["skill", "which", "beta"]).ok();
    assert!(which.stdout.contains("go"), "{}", which.stdout);
    assert_eq!(run(machine.path(), "beta").code, FAILED, "outside");
    fs::write(repository.join(".vault/skills/beta/go.sh"), "#!/bin/sh\n").unwrap();
    assert_eq!(run(&repository, "beta").code, INTEGRITY);
}

#[test]
fn the_users_skills_are_linked_nowhere_outside_of_a_project() {
    let machine = Home::new();
    machine.add("alpha", "Mine.").ok();
    let (repository, outside) = (
        machine.path().join("repository"),
        machine.path().join("out"),
    );
    fs::create_dir_all(repository.join(".claude")).unwrap();
    fs::create_dir_all(repository.join(".cursor")).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, repository.join(".claude/skills")).unwrap();
    symlink(&outside, repository.join(".agents")).unwrap();
    let sync = |arguments: &[&str]| {
        let mut command = machine.command(&[&["sync-profiles"], arguments].concat());
        Ran::from(command.current_dir(&repository).output().unwrap())
    };
    let synced = sync(&["--discover", "--project"]);
    assert!(synced.stderr.contains("through a link"), "{synced:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // The repository may change after its folders were linked.
    fs::remove_file(repository.join(".claude/skills")).unwrap();
    sync(&["--discover", "--project"]);
    let linked = repository.join(".claude/skills");
    assert!(linked.join("alpha/SKILL.md").exists());
    fs::remove_dir_all(&linked).unwrap();
    symlink(&outside, &linked).unwrap();
    machine.add("beta", "Mine.").ok();
    sync(&[]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_lock_requires_nothing_from_a_place_that_only_this_machine_reaches() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    let lock = fs::read_to_string(repository.join("vault.lock")).unwrap();
    let source = lock
        .lines()
        .find(|line| line.starts_with("source"))
        .unwrap();
    let many = vec!["\"github:a/b\""; 10_000].join(", ");
    for requires in [
        "\"file:///etc/passwd\"",
        "\"http://example.com/a/SKILL.md\"",
        "\"https://10.0.0.1/a.zip\"",
        "\"https://[::1]/a.zip\"",
        "\"https://169.254.169.254/latest/SKILL.md\"",
        "\"git@192.168.0.1:a/b.git\"",
        "\"git@printer.local:a/b.git\"",
        "\"ext::sh\"",
        "\"--upload-pack=x\"",
        "\"./../secret\"",
        "\".//etc\"",
        "\"../secret\"",
        "\"/etc/skills\"",
        "\"acme/skills\"",
        "\"github:a/b@v1..v2\"",
        "\"github:a/b\\u001b[2J\"",
        "1",
        many.as_str(),
    ] {
        set_source(&repository, &format!("{source}\nrequires = [{requires}]"));
        let name = requires.get(..40).unwrap_or(requires);
        install_refused(&machine, &repository, name, FAILED, "lock_invalid");
        fs::write(repository.join("vault.lock"), &lock).unwrap();
    }
}

#[test]
fn skills_of_a_lock_that_require_each_other_are_refused_with_their_path() {
    let machine = Home::new();
    machine.add("mine", "My own text.").ok();
    let repository = hostile_repository(&machine);
    for (number, path) in [
        (1, "s0 -> s0"),
        (50, "s0 -> s1 -> s2"),
        // Long enough to end a program that follows them by recursion.
        (10_000, "s0 -> s1 -> s2"),
    ] {
        let mut lock = "schema = 1\n".to_owned();
        for at in 0..number {
            let next = (at + 1) % number;
            lock.push_str(&format!(
                "\n[[skill]]\nname = \"s{at}\"\nsource = \"./s{at}\"\nrequires = [\"./s{next}\"]\n"
            ));
        }
        fs::write(repository.join("vault.lock"), lock).unwrap();
        let name = number.to_string();
        install_refused(&machine, &repository, &name, FAILED, "requirement_conflict");
        let ran = run_in(&machine, &repository, &["install", "--json"]).json();
        let message = text_of(&ran["error"]["message"]);
        assert!(message.contains(path), "{message:.200}");
        assert!(message.len() < 8_000, "{}", message.len());
        let listed = run_in(&machine, &repository, &["list", "--project", "--json"]).ok();
        assert_eq!(
            listed.json()["data"]["skills"].as_array().unwrap().len(),
            number
        );
    }
}
