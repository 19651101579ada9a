//! The signer of a vault's site: verified, displayed and pinned.

use super::*;

const INDEX: &str = "/.well-known/agent-skills/index.json";

/// Serves the files that `vault export well-known` wrote.
fn publish(site: &SiteServer, owner: &Machine) {
    let folder = owner.home.path().join("site");
    let exported = owner.run(&["export", "well-known", folder.to_str().unwrap()]);
    assert_eq!(exported.code, 0, "{}", exported.out);
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let at = format!("/{}", path.strip_prefix(&folder).unwrap().display());
            let bytes = std::fs::read(&path).unwrap();
            site.put(&at, Answer::Body("application/octet-stream", bytes));
        }
    }
}

/// Adds a skill with two files, one of them executable, to the owner's vault.
fn write_skill(owner: &Machine, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = owner.home.path().join("pdf");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("SKILL.md"),
        skill_md("pdf").replace("Do it.", text),
    )
    .unwrap();
    let script = folder.join("run.sh");
    std::fs::write(&script, "#!/bin/sh\necho pdf\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let added = owner.run(&["add", "--replace", folder.to_str().unwrap()]);
    assert_eq!(added.code, 0, "{}", added.out);
}

fn public_key(machine: &Machine) -> String {
    let shown = machine.run(&["key", "show"]);
    shown.json["data"]["public_key"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Checks that neither an update nor an add accepts this index, and that the installed skill stays.
fn is_refused(site: &SiteServer, machine: &Machine, index: &str, words: &str) {
    site.json(INDEX, index);
    for command in [&["update"][..], &["add", &site.base, "--all"]] {
        let ended = machine.run(command);
        assert!(
            ended.code == 6 && ended.out.contains("source_signer") && ended.out.contains(words),
            "{words}, {command:?}: {}",
            ended.out
        );
    }
    let text = std::fs::read_to_string(machine.skill("pdf").join("SKILL.md")).unwrap();
    assert!(text.contains("Do it well."), "{words}");
}

#[test]
fn the_signer_of_a_vaults_site_is_verified_shown_and_pinned() {
    let site = SiteServer::new();
    let owner = Machine::new();
    write_skill(&owner, "Do it.");
    let key = public_key(&owner);
    publish(&site, &owner);
    let machine = Machine::new();
    machine.policy("[sources]\nsigners = [\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"]\n");
    let stranger = machine.run(&["add", &site.base, "--all"]);
    assert_eq!(
        (stranger.code, stranger.json["error"]["code"].as_str()),
        (5, Some("source_refused")),
        "{}",
        stranger.out
    );
    machine.policy(&format!("[sources]\nsigners = [\"{key}\"]\n"));
    let plain = machine
        .command(&["add", &site.base, "--all", "--lock"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&plain.stdout);
    assert!(
        plain.status.success() && shown.contains("signed there by ") && shown.contains("(pinned)"),
        "{shown}"
    );
    let lock = machine.home.path().join("project/vault.lock");
    assert!(
        std::fs::read_to_string(&lock)
            .unwrap()
            .contains(&format!("signer = \"{key}\"\nsigned_version = 1\n"))
    );
    // The next version of the same owner is accepted.
    write_skill(&owner, "Do it well.");
    publish(&site, &owner);
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
    // Rejected in turn: another signer, no signature, and a forged signer.
    let other = Machine::new();
    write_skill(&other, "Do it better.");
    let foreign = public_key(&other);
    machine.policy("");
    publish(&site, &other);
    let others = std::fs::read_to_string(other.home.path().join(format!("site{INDEX}"))).unwrap();
    is_refused(&site, &machine, &others, "signed by");
    let bare = others.replace("dev.vault/signed", "dev.example/none");
    is_refused(&site, &machine, &bare, "carries no signature");
    let forged = others.replace(&foreign, &key);
    is_refused(&site, &machine, &forged, "not good");
    // A rollback that the owner signs is a new version, so it is accepted.
    let old = owner.run(&["rollback", "pdf", "--to", "1"]);
    assert_eq!(old.code, 0, "{}", old.out);
    publish(&site, &owner);
    let taken = machine.run(&["update"]);
    assert_eq!(
        taken.code, 0,
        "a rollback that the owner signed: {}",
        taken.out
    );
    // `--replace` accepts another signer.
    publish(&site, &other);
    let replaced = machine.run(&["add", &site.base, "--all", "--replace"]);
    assert_eq!(replaced.code, 0, "{}", replaced.out);
    assert_eq!(machine.run(&["update"]).code, 0);
}
