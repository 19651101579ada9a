//! The signer of a vault's site: verified, displayed and pinned.

use super::*;

/// Serves the files that `vault export well-known` wrote.
pub(super) fn publish(site: &SiteServer, owner: &Machine) {
    let folder = owner.home.path("site");
    owner
        .run(&["export", "well-known", folder.to_str().unwrap()])
        .ok();
    for path in files_below(&folder) {
        let at = format!("/{}", path.strip_prefix(&folder).unwrap().display());
        site.body(
            &at,
            "application/octet-stream",
            std::fs::read(&path).unwrap(),
        );
    }
}

/// Adds a skill with two files, one of them executable, to the owner's vault.
pub(super) fn write_skill(owner: &Machine, text: &str) {
    owner
        .home
        .write("pdf/SKILL.md", skill_md("pdf").replace("Do it.", text));
    owner
        .home
        .write_executable("pdf/run.sh", "#!/bin/sh\necho pdf\n");
    owner.run(&["add", "--replace", "../pdf"]).ok();
}

fn public_key(machine: &Machine) -> String {
    let shown = machine.run(&["key", "show"]).ok();
    shown["public_key"].as_str().unwrap().to_owned()
}

/// Checks that neither an update nor an add accepts this index, and that the installed skill stays.
fn is_refused(site: &SiteServer, machine: &Machine, index: &str, words: &str) {
    site.json(INDEX, index);
    for command in [
        &["update"][..],
        &["add", &site.base, "--all"],
        &["add", &site.base, "--all", "--project"],
    ] {
        let ended = machine.run(command);
        assert!(
            ended.out.contains(words),
            "{words}, {command:?}: {}",
            ended.out
        );
        ended.fails(6, "source_signer");
    }
    assert!(machine.document("pdf").contains("Do it well."), "{words}");
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
    let add = ["add", &site.base, "--all"];
    machine.run(&add).fails(5, "source_refused");
    machine.policy(&format!("[sources]\nsigners = [\"{key}\"]\n"));
    for flags in [&["--all"][..], &["--all", "--project"]] {
        let add = [&["add", &site.base], flags].concat();
        let shown = Ended::of(&mut machine.command(&add));
        assert_eq!(shown.code, 0);
        for part in ["signed there by ", "(pinned)"] {
            assert!(shown.out.contains(part), "{}", shown.out);
        }
    }
    let shown = owner.run(&["key", "show"]).ok();
    let vault = shown["fingerprint"].as_str().unwrap();
    let pinned = format!("signer = \"{vault}\"\nroot_version = 1\nsigned_version = 1\n");
    assert!(machine.home.read("project/vault.lock").contains(&pinned));
    // The next version of the same owner is accepted.
    write_skill(&owner, "Do it well.");
    publish(&site, &owner);
    let updated = machine.run(&["update"]).ok();
    assert_eq!(updated["updated"][0]["version"], 2);
    // Rejected in turn: another signer, no signature, and a forged signer.
    let other = Machine::new();
    write_skill(&other, "Do it better.");
    let foreign = public_key(&other);
    machine.policy("");
    publish(&site, &other);
    let others = other.home.read(&format!("site{INDEX}"));
    is_refused(&site, &machine, &others, "signed by");
    let bare = others.replace("dev.vault/signed", "dev.example/none");
    is_refused(&site, &machine, &bare, "no longer signed");
    let forged = others.replace(&foreign, &key);
    is_refused(&site, &machine, &forged, "not valid");
    // A rollback that the owner signs is a new version, so it is accepted.
    owner.run(&["rollback", "pdf", "--to", "1"]).ok();
    publish(&site, &owner);
    machine.run(&["update"]).ok();
    // `--replace` accepts another signer.
    publish(&site, &other);
    machine.run(&[&add[..], &["--replace"]].concat()).ok();
    machine.run(&["update"]).ok();
}
