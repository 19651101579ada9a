//! What recovery does at the service, and what restored backups and every reader notice of changed
//! keys.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use vault_tests::home::{Home, Ran};
use vault_tests::person::{Answer, OWNER};
use vault_tests::place;
use vault_tests::server::{Database, Server};
use vault_tests::sweep::copy_home;

use crate::support::{self, SLUG, address, connect, link, names, text};

/// An owner with one skill and a recovery key, who has published.
fn owner(server: &Server) -> Home {
    let owner = Home::new();
    fs::create_dir(owner.path().join("stick")).unwrap();
    owner.add("tool", "One.").ok();
    owner.run("key recovery create stick/key --yes").ok();
    connect(server, &owner, SLUG);
    owner.run("sync --cloud").ok();
    owner
}

/// Recovers the owner's vault from the service, with the recovery key on a stick.
fn recovers(server: &Server, home: &Home, more: &[&str]) -> Ran {
    let from = address(server, SLUG);
    let used = ["key", "recovery", "use", "stick/key", "--from", &from];
    let used = [&used[..], more, &["--yes", "--json"]].concat();
    home.sign_in(&used, OWNER, Answer::Pasted)
}

/// Signs a home in at the namespace.
fn sign_in(server: &Server, home: &Home) -> Value {
    let address = address(server, SLUG);
    let ran = home.sign_in(
        &format!("cloud connect {address} --json"),
        OWNER,
        Answer::Pasted,
    );
    ran.ok().json()
}

/// The message of a warning, whatever the exit code.
#[track_caller]
fn warning(ran: &Ran, code: &str) -> String {
    let shown = ran.json();
    let warnings = shown["warnings"].as_array().unwrap();
    let found = warnings.iter().find(|warning| warning["code"] == code);
    text(&found.unwrap_or_else(|| panic!("no {code}: {shown} {}", ran.stderr))["message"])
}

#[test]
fn a_recovery_ends_sign_ins_and_lists_what_a_thief_published() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let laptop = Home::new();
    link(&server, &anna, &laptop, SLUG);
    laptop.run("cloud pull").ok();
    let status = laptop.json("status --cloud");
    let good = format!(
        "{}:{}",
        status["links"][0]["release"],
        text(&status["links"][0]["payload_sha256"])
    );
    let stick = anna.path().join("stick/key");
    let new = Home::new();
    fs::create_dir(new.path().join("stick")).unwrap();
    fs::copy(&stick, new.path().join("stick/key")).unwrap();
    // The thief has the whole disk, the sign-in included.
    let thief = copy_home(&anna);
    fs::remove_dir_all(thief.path().join("stick")).unwrap();
    thief.add("tool", "Evil.").ok();
    thief.add("backdoor", "Evil.").ok();
    thief.run("sync --cloud").ok();

    let data = recovers(&server, &new, &["--last-good", &good]).data();
    let suspects = data["shown"]["suspects"].as_array().unwrap();
    let suspects: Vec<_> = suspects.iter().map(|one| text(&one["name"])).collect();
    assert_eq!(suspects, ["backdoor", "tool"], "{data}");
    let releases = data["shown"]["releases"].as_array().unwrap();
    let by_revoked = |place: usize| releases[place]["known"] == json!(false);
    assert_eq!(
        (releases.len(), by_revoked(0), by_revoked(1)),
        (2, false, true)
    );
    assert_eq!(data["sign_ins"][0]["done"], true, "{data}");
    assert!(!data["sign_ins"][0]["ended"].as_array().unwrap().is_empty());
    for lost in [&anna, &thief] {
        lost.fails("sync --cloud", 4, "signed_out");
    }
    // The machine that recovered is still signed in, and the next release arrives.
    let release = status["links"][0]["release"].to_string();
    // Nobody has read that release on this machine, so `--yes` is no answer.
    let rollback = ["cloud", "rollback", &release, "--last-good", &good];
    new.fails(&[&rollback[..], &["--yes"]].concat(), 3, "review_needed");
    new.reviewed(&rollback[..]);
    laptop.run("cloud pull").ok();
    assert_eq!(
        support::pulled(&laptop).keys().collect::<Vec<_>>(),
        ["tool"]
    );
    assert!(text(&json!(fs::read_to_string(skill_file(&laptop)).unwrap())).contains("One."));
}

#[test]
fn a_rollback_on_an_empty_machine_warns_of_the_policy_that_it_lacks() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let policy = anna.vault().join("policy.toml");
    fs::write(policy, "[profiles.all]\ngroups = []\n").unwrap();
    anna.run("approve policy.toml --yes").ok();
    anna.run(&["sync"]).ok();
    let push = anna.json(&["status"])["connected"]["last_push"].clone();
    let release = push["release"].to_string();
    let good = format!("{release}:{}", text(&push["payload_sha256"]));
    let new = Home::new();
    fs::create_dir(new.path().join("stick")).unwrap();
    let stick = anna.path().join("stick/key");
    fs::copy(stick, new.path().join("stick/key")).unwrap();
    recovers(&server, &new, &["--last-good", &good]).ok();
    let rollback = ["cloud", "rollback", &release, "--last-good", &good];
    let payload = text(&push["payload_sha256"]);
    let ran = new.run(&[&rollback[..], &["--payload", &payload, "--json"]].concat());
    let told = warning(&ran, "policy_missing");
    assert!(told.contains("members see no skills"), "{told}");
}

/// The SKILL.md of the skill `tool` that a machine pulled.
fn skill_file(home: &Home) -> std::path::PathBuf {
    let which = home.json("skill which tool");
    Path::new(&text(&which["files"])).join("SKILL.md")
}

/// A thief's sign-in on the machine whose key was copied ends with it, and so does the own one.
#[test]
fn a_stolen_key_ends_the_sign_in_that_lay_beside_it() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    anna.run("key rotate --name anna --root-key stick/key --yes")
        .ok();
    let used = ["key", "recovery", "use", "stick/key", "--lost", "anna"];
    let data = anna.json(&[&used[..], &["--yes"]].concat());
    assert_eq!(data["sign_ins"][0]["done"], true, "{data}");
    anna.fails("sync --cloud", 4, "signed_out");
    // Given again it changes no key, and says what it could not end.
    let again = anna.run(&[&used[..], &["--yes", "--json"]].concat()).ok();
    assert!(warning(&again, "sign_ins_not_ended").contains("may still be signed in"));
    let version = |data: &Value| data["root_version"].as_u64();
    assert_eq!(version(&again.json()["data"]), version(&data));
    sign_in(&server, &anna);
    anna.run("sync --cloud --yes").ok();
}

/// Everything that a stolen key signed is signed again and uploaded, however full the vault is.
#[test]
fn a_full_vault_publishes_again_what_a_stolen_key_signed() {
    if place::leaves_out("", "it changes the server's database file") {
        return;
    }
    let mut server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    // A file that a bundle has no room for, so that it is stored as parts.
    let folder = anna.plain_skill("large", "Reads the table.");
    fs::write(
        folder.join("table.txt"),
        "a line of the table\n".repeat(80_000),
    )
    .unwrap();
    anna.run(&format!("add {}", folder.display())).ok();
    anna.run("sync --cloud").ok();
    server.stop();
    let database = rusqlite::Connection::open(server.home.path().join("vault.db")).unwrap();
    let limit = "update records set document = json_set(document, '$.quota', json(?1)) \
                 where partition = ?2 and key = 'ns'";
    let limited = database.execute(limit, [r#"{"bytes": 1}"#, &format!("ns/{SLUG}")]);
    assert_eq!(limited.unwrap(), 1);
    drop(database);
    server.resume();
    anna.add("more", "Two.").ok();
    anna.fails("sync --cloud", 1, "quota_exceeded");
    anna.run("remove more").ok();

    let keys = anna.json("publishers list");
    let keys = keys.as_array().or_else(|| keys["keys"].as_array()).unwrap();
    let mut names = keys.iter().map(|key| text(&key["name"]));
    let lost = names.find(|name| name != "recovery key").unwrap();
    let used = ["key", "recovery", "use", "stick/key", "--lost", &lost];
    anna.run(&[&used[..], &["--name", "second", "--yes"]].concat())
        .ok();
    sign_in(&server, &anna);
    anna.run("sync --cloud --yes").ok();
    let laptop = Home::new();
    link(&server, &anna, &laptop, SLUG);
    laptop.json("cloud pull");
    let pulled = support::pulled(&laptop);
    let pulled: Vec<_> = pulled.keys().collect();
    assert_eq!(pulled, ["large", "tool"]);
}

/// Each way to look at a vault takes new keys and names who was added, removed or revoked.
#[test]
fn every_pull_sync_and_status_names_who_was_added_removed_or_revoked() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let first = {
        let keys = anna.json("publishers list");
        let keys = keys.as_array().or_else(|| keys["keys"].as_array());
        let mut names = keys.unwrap().iter().map(|key| text(&key["name"]));
        names.find(|name| name != "recovery key").unwrap()
    };
    let laptop = Home::new();
    link(&server, &anna, &laptop, SLUG);
    laptop.run("cloud pull").ok();
    let mut readers = [
        ("pull", copy_home(&laptop), &["cloud", "pull", "--json"][..]),
        (
            "link's status",
            copy_home(&laptop),
            &["status", "--cloud", "--json"],
        ),
        (
            "sync",
            copy_home(&anna),
            &["sync", "--cloud", "--yes", "--json"],
        ),
        (
            "owner's status",
            copy_home(&anna),
            &["status", "--cloud", "--json"],
        ),
    ];
    anna.run("key rotate --name second --root-key stick/key --yes")
        .ok();
    for (name, home, command) in &mut readers {
        let told = warning(&home.run(command), "keys_changed");
        assert!(told.contains("(version 1 to 2)"), "{name}: {told}");
        assert!(told.contains("key added: second (pub:"), "{name}: {told}");
        assert!(
            told.contains(&format!("key removed: {first} (pub:")),
            "{name}: {told}"
        );
        assert!(
            !told.contains('\n') && !told.contains("revoked"),
            "{name}: {told}"
        );
    }
    let used = [
        "key",
        "recovery",
        "use",
        "stick/key",
        "--lost",
        "second",
        "--name",
        "third",
    ];
    anna.run(&[&used[..], &["--yes"]].concat()).ok();
    for (name, home, command) in &mut readers {
        if command.contains(&"sync") || *name == "owner's status" {
            sign_in(&server, home);
        }
        let told = warning(&home.run(command), "keys_changed");
        assert!(told.contains("key added: third (pub:"), "{name}: {told}");
        assert!(told.contains("key revoked: second (pub:"), "{name}: {told}");
        assert!(
            !told.contains('\n') && !told.contains("removed"),
            "{name}: {told}"
        );
        // It is said once.
        let again = home.run(command).json();
        let warnings = again["warnings"].to_string();
        assert!(!warnings.contains("keys_changed"), "{name}: {warnings}");
    }
}

/// Runs a command with the file that holds the passphrase.
fn with_passphrase(home: &Home, arguments: &[&str]) -> Ran {
    let file = home.path().join("passphrase");
    fs::write(&file, "correct horse battery staple\n").unwrap();
    let mut command: Command = home.command(arguments);
    command.env("VAULT_KEY_PASSPHRASE_FILE", file);
    command.output().unwrap().into()
}

/// A machine that is restored from the backup in a folder, and signed in.
fn restored(server: &Server, backup: &Path) -> Home {
    let home = Home::new();
    with_passphrase(&home, &["restore", backup.to_str().unwrap()]).ok();
    sign_in(server, &home);
    home
}

#[test]
fn a_backup_is_restored_where_its_vault_was_linked() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    with_passphrase(&anna, &["backup", backup.to_str().unwrap()]).ok();
    for is_unlinked in [false, true] {
        let laptop = Home::new();
        link(&server, &anna, &laptop, SLUG);
        laptop.run("cloud pull").ok();
        if is_unlinked {
            laptop
                .run(&format!("unlink {} --yes", address(&server, SLUG)))
                .ok();
        }
        fs::rename(laptop.vault(), laptop.path().join("away")).unwrap();
        with_passphrase(&laptop, &["restore", backup.to_str().unwrap()]).ok();
        laptop.add("later", "Made after the restore.").ok();
        laptop.run(&["verify"]).ok();
    }
}

/// A machine of a member holds links and no keys of its own.
#[test]
fn a_machine_that_only_links_recovers_the_vault() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let laptop = Home::new();
    link(&server, &anna, &laptop, SLUG);
    laptop.run("cloud pull").ok();
    fs::create_dir(laptop.path().join("stick")).unwrap();
    fs::copy(
        anna.path().join("stick/key"),
        laptop.path().join("stick/key"),
    )
    .unwrap();
    let data = recovers(&server, &laptop, &[]).data();
    assert_eq!(
        data["changes"]["revoked"].as_array().unwrap().len(),
        1,
        "{data}"
    );
    laptop.add("later", "Made after the recovery.").ok();
    laptop.run("verify later").ok();
}

#[test]
fn a_restored_vault_leaves_the_agents_folders_of_the_old_machine_alone() {
    let (anna, new) = (Home::new(), Home::new());
    for home in [&anna, &new] {
        fs::create_dir(home.path().join(".claude")).unwrap();
    }
    anna.add("notes", "Writes notes.").ok();
    anna.run(&["sync-profiles"]).ok();
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    with_passphrase(&anna, &["backup", backup.to_str().unwrap()]).ok();
    let skills = anna.path().join(".claude/skills");
    fs::remove_dir_all(&skills).unwrap();
    with_passphrase(&new, &["restore", backup.to_str().unwrap()]).ok();
    new.run(&["sync-profiles"]).ok();
    assert!(!skills.exists(), "the old machine's folder was written to");
    assert!(new.path().join(".claude/skills/notes/SKILL.md").exists());
}

#[test]
fn a_restored_older_backup_is_noticed_against_the_service() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    with_passphrase(&anna, &["backup", backup.to_str().unwrap()]).ok();
    anna.add("later", "Made after the backup.").ok();
    anna.run("sync --cloud").ok();
    // Releases that the backup lacks.
    let home = restored(&server, &backup);
    let status = home.run("status --cloud").ok();
    assert!(
        status.stdout.contains("not published from here"),
        "{}",
        status.stdout
    );
    let refused = home.refused("sync --cloud", 3);
    assert_eq!(names(&refused.data["theirs"]).len(), 1, "{refused:?}");
    // Keys that the backup lacks.
    anna.run("key rotate --name anna --root-key stick/key --yes")
        .ok();
    for command in [
        &["status", "--cloud", "--json"][..],
        &["sync", "--cloud", "--json"],
    ] {
        let home = restored(&server, &backup);
        let ran = home.run(command);
        let told = warning(&ran, "keys_changed");
        assert!(told.contains("key added: anna (pub:"), "{told}");
        if command.contains(&"sync") {
            assert_ne!(ran.code, 0, "its key may not publish any more");
        }
    }
    // A rival version is refused where the recovery file knows better, and by the service in any
    // case.
    let home = Home::new();
    with_passphrase(&home, &["restore", backup.to_str().unwrap()]).ok();
    let stick = anna.path().join("stick/key");
    let rotate = [
        "key",
        "rotate",
        "--root-key",
        stick.to_str().unwrap(),
        "--yes",
    ];
    home.fails(&rotate, 6, "root_rolled_back");
}

/// A device that holds another payload under the number before takes only the second one.
#[test]
fn a_release_above_a_number_is_followed_by_one_more() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let laptop = Home::new();
    link(&server, &anna, &laptop, SLUG);
    let synced = anna.json("sync --cloud --above-release 40");
    assert_eq!(synced["release"], 42);
    assert_eq!(laptop.json("cloud pull")["release"], 42);
    // It is above already.
    let synced = anna.json("sync --cloud --above-release 40");
    assert_eq!(
        (&synced["release"], &synced["changed"]),
        (&json!(42), &json!(false))
    );
}

#[test]
fn a_recovery_key_that_nobody_checked_for_a_year_is_asked_for() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let id = text(&anna.json("key show")["vault_id"]);
    let findings = |home: &Home| home.json(&["doctor"])["findings"].to_string();
    assert!(!findings(&anna).contains("recovery_check_due"));
    anna.change_trust(&id, |trust| {
        trust["recovery_checked_at"] = json!("2020-01-01T00:00:00Z");
    });
    assert!(findings(&anna).contains("recovery_check_due"));
    let told = warning(&anna.run("sync --cloud --json"), "recovery_check_due");
    assert_eq!(
        told,
        "the recovery key was last checked at 2020-01-01T00:00:00Z"
    );
    anna.run("key recovery check stick/key").ok();
    assert!(!findings(&anna).contains("recovery_check_due"));
    let synced = anna.run("sync --cloud --json").ok().json();
    assert!(
        !synced["warnings"]
            .to_string()
            .contains("recovery_check_due")
    );
}

#[test]
fn a_reset_pin_is_shown_to_every_owner() {
    let server = Server::start(&Database::Sqlite);
    let anna = owner(&server);
    let slug = support::slug(&server);
    sign_in(&server, &anna);
    support::block_on(async {
        let token = anna.access_token(&server.url, &slug);
        let url = format!("{}/admin/vaults/{slug}/pin/reset", server.listens_at());
        let reset = async || {
            let reset = vault_tests::browser::client()
                .post(&url)
                .bearer_auth(&token);
            reset.json(&json!({ "slug": slug })).send().await.unwrap()
        };
        let asked: serde_json::Value = reset().await.json().await.unwrap();
        let page = asked["confirmation"]["url"].as_str().unwrap();
        let (email, password) = (OWNER.email, OWNER.password);
        vault_tests::browser::Browser::new()
            .confirm(page, email, password)
            .await;
        let answer = reset().await;
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
    });
    for command in [
        &["status", "--cloud", "--json"][..],
        &["sync", "--cloud", "--json"],
    ] {
        let told = warning(&anna.run(command), "pin_reset");
        assert!(
            told.contains("was reset at 20") && !told.contains('\n'),
            "{told}"
        );
    }
    let connected = sign_in(&server, &anna);
    assert_eq!(connected["warnings"][0]["code"], "pin_reset", "{connected}");
    // The remedy that the warning names.
    let is_pinned = || {
        support::block_on(async {
            let token = anna.access_token(&server.url, &slug);
            let url = format!("{}/admin/vaults/{slug}", server.listens_at());
            let shown = vault_tests::browser::client().get(&url);
            let shown = shown.bearer_auth(&token).send().await.unwrap();
            let shown: serde_json::Value = shown.json().await.unwrap();
            !shown["pin"].is_null()
        })
    };
    assert!(!is_pinned());
    let hint = text(&connected["warnings"][0]["hint"]);
    assert!(hint.ends_with("vault sync --renew"), "{hint}");
    anna.run("sync --renew").ok();
    assert!(is_pinned());
}
