//! Files that look like secrets, links out of an earlier vault, and skills that an installer recorded
//! as remote: what is asked for, taken, refused and left out adds up in every command.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Ended, Home};

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n";

/// A home with a skill that has secrets and an example of one.
fn home() -> Home {
    let home = Home::new();
    home.skill(
        "deploy",
        "Deploys a service. Use when one is to be deployed.",
    );
    home.write("deploy/.env", "TOKEN=1\n");
    home.write("deploy/config/.ENV.local", "TOKEN=2\n");
    home.write("deploy/.env.example", "TOKEN=\n");
    home.write("deploy/notes.txt", KEY);
    home
}

fn files(home: &Home) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![fs::canonicalize(home.path(".vault/skills/deploy")).unwrap()];
    let top = folders[0].clone();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(&top).unwrap().display().to_string());
            }
        }
    }
    files.sort();
    files
}

#[test]
fn secrets_are_left_out_and_named_unless_the_owner_includes_them() {
    let home = home();
    let added = home.run(&["add", "deploy"]).ok();
    let added = &added["added"][0];
    let left_out = json!([".env", "config/.ENV.local", "notes.txt"]);
    assert_eq!(added["left_out"], left_out);
    assert_eq!(added["included"], json!([]));
    assert_eq!(files(&home), [".env.example", "SKILL.md"]);

    let unknown = home.run(&["add", "deploy", "--include", ".evn"]);
    assert_eq!(unknown.code, 2, "{}", unknown.out);
    assert_eq!(unknown.json["error"]["code"], "include_unknown");

    let add = ["add", "deploy", "--include", ".env"];
    let previewed = home.run(&[&add[..], &["--dry-run"]].concat()).ok();
    let added = home.run(&add).ok();
    let (previewed, added) = (&previewed[0], &added["added"][0]);
    for data in [previewed, added] {
        assert_eq!(data["included"], json!([".env"]));
        assert_eq!(data["left_out"], json!(["config/.ENV.local", "notes.txt"]));
    }
    assert_eq!(files(&home), [".env", ".env.example", "SKILL.md"]);
    let rules = |data: &Value| {
        let findings = data["findings"].as_array().unwrap().iter();
        let rules = findings.filter(|found| found["rule"].as_str().unwrap().starts_with("secret-"));
        rules.count()
    };
    assert_eq!(rules(added), 3);

    // An update keeps what the installed version has, and takes no new secret.
    let current = home.run(&["outdated"]);
    assert_eq!(current.code, 0, "{}", current.out);
    home.write("deploy/.env", "TOKEN=3\n");
    home.write("deploy/server.key", "x");
    let updated = home.run(&["update", "deploy"]).ok();
    let updated = &updated["updated"][0];
    assert_eq!(updated["included"], json!([".env"]));
    let left_out = json!(["config/.ENV.local", "notes.txt", "server.key"]);
    assert_eq!(updated["left_out"], left_out);
    assert_eq!(files(&home), [".env", ".env.example", "SKILL.md"]);
    assert_eq!(home.run(&["outdated"]).code, 0);

    // A file that becomes a secret is a new one.
    home.write("deploy/.env.example", KEY);
    let updated = home.run(&["update", "deploy"]).ok();
    let updated = &updated["updated"][0];
    assert_eq!(updated["left_out"][0], ".env.example", "{updated}");
    assert_eq!(files(&home), [".env", "SKILL.md"]);

    // What was signed is never changed.
    home.run(&["rollback", "deploy", "--to", "2", "--yes"]).ok();
    assert_eq!(files(&home), [".env", ".env.example", "SKILL.md"]);
    home.run(&["verify"]).ok();

    // A SKILL.md cannot be left out, so the skill is refused.
    let text = home.read("deploy/SKILL.md");
    home.write("deploy/SKILL.md", text + KEY);
    let refused = home.run(&["add", "deploy"]);
    assert_eq!(refused.code, 5, "{}", refused.out);
    for rule in ["skill-md-missing", "secret-left-out"] {
        assert!(refused.out.contains(rule), "{}", refused.out);
    }
}

#[test]
fn a_lock_records_the_secrets_that_a_skill_has() {
    let home = home();
    fs::create_dir_all(home.path("project/.git")).unwrap();
    fs::rename(home.path("deploy"), home.path("project/deploy")).unwrap();
    let run = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = home.vault(&words);
        Ended::of(command.arg("--json").current_dir(home.path("project")))
    };
    let added = run("add ./deploy --include .env --project").ok();
    let added = &added["added"][0];
    assert_eq!(added["included"], json!([".env"]), "{added}");
    let lock = home.read("project/vault.lock");
    assert!(lock.contains("include = [\".env\"]"), "{lock}");
    fs::remove_dir_all(home.path(".config/vault/projects")).unwrap();
    let installed = run("install --frozen").ok();
    let installed = &installed["installed"][0];
    assert_eq!(installed["included"], json!([".env"]), "{installed}");
    // A lock of an earlier version, which took such a file without naming it.
    let earlier = lock.replace("include = [\".env\"]\n", "");
    home.write("project/vault.lock", earlier);
    fs::remove_dir_all(home.path(".config/vault/projects")).unwrap();
    let refused = run("install --frozen");
    assert_eq!(refused.code, 6, "{}", refused.out);
    for part in [".env", "include"] {
        assert!(refused.out.contains(part), "{}", refused.out);
    }
}

#[test]
fn an_import_follows_no_link_out_of_the_earlier_vault() {
    let home = Home::new();
    home.skill("secret", "Knows what nobody else may know.");
    home.skill("before/store/aa/files", "Says hello to whoever asks.");
    let text = home.read("before/store/aa/files/SKILL.md");
    home.write(
        "before/store/aa/files/SKILL.md",
        text.replace("name: files", "name: old"),
    );
    home.write("before/vault.json", "{}");
    fs::create_dir(home.path("before/skills")).unwrap();
    let link = |target: &str, name: &str| {
        symlink(target, home.path("before/skills").join(name)).unwrap();
    };
    link("../store/aa/files", "old");
    link("../../secret", "secret");
    link("nowhere", "gone");
    let imported = home.run(&["import", "--from-vault", "before"]);
    assert_ne!(imported.code, 0);
    let data = &imported.json["data"];
    assert_eq!(data["added"][0]["name"], "old", "{}", imported.out);
    let failed = data["failed"].as_array().unwrap();
    let named: Vec<_> = failed
        .iter()
        .map(|failed| (&failed["source"], &failed["code"]))
        .collect();
    let [gone, secret, symlink] = [
        json!("before/skills/gone"),
        json!("before/skills/secret"),
        json!("symlink"),
    ];
    assert_eq!(named, [(&gone, &symlink), (&secret, &symlink)]);
    assert!(!home.path(".vault/skills/secret").exists());
}

#[test]
fn a_repair_without_a_name_signs_nothing_and_says_what_to_name() {
    let home = Home::new();
    home.skill("greet", "Says hello to whoever asks.");
    home.run(&["add", "greet"]).ok();
    home.skill(".vault/skills/near", "Was put here by hand.");
    let text = "---\nname: far\ndescription: Came from far away.\nmetadata:\n  github-repo: https://github.com/acme/far\n---\nGo.\n";
    home.write(".vault/skills/far/SKILL.md", text);
    let repaired = home.run(&["doctor", "--repair"]);
    assert_eq!(repaired.code, 3, "{}", repaired.out);
    let findings = repaired.json["data"]["findings"].as_array().unwrap();
    let named = |skill: &str| {
        let mut findings = findings.iter();
        let found = findings.find(|found| found["skill"] == skill).unwrap();
        (
            found["code"].as_str().unwrap().to_owned(),
            found["hint"].as_str().unwrap().to_owned(),
        )
    };
    let (code, hint) = named("near");
    assert_eq!(code, "skill_unsigned");
    assert!(hint.contains("vault doctor near --repair"), "{hint}");
    let (code, hint) = named("far");
    assert_eq!(code, "skill_from_elsewhere");
    assert!(hint.contains("vault add ./far"), "{hint}");
    let refused = home.run(&["doctor", "far", "--repair"]);
    assert_eq!(refused.code, 3, "{}", refused.out);
    let skill = &refused.json["data"]["skills"][0];
    assert_eq!(skill["repair_status"], "refused_remote");
    home.run(&["doctor", "near", "--repair"]).ok();
    assert!(home.path(".vault/skills/near").is_symlink());
    assert!(home.path(".vault/skills/far").is_dir());
}
