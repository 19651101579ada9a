//! `kill -9` of the commands that change the vault's keys with a recovery key, and of
//! `vault restore`, at each state-changing call: the old state or the new one is left, and the same
//! command given again ends well.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use vault_format::root::RootChain;
use vault_library::keys::NoPassphrases;
use vault_library::recovery::RecoveryKey;
use vault_tests::home::{Home, Ran};
use vault_tests::server::{Database, Server};
use vault_tests::sweep::{self, Fault};
use vault_tests::team::{SLUG, Team};
use vault_tests::tree;

use crate::state;

/// The recovery key, below the home.
const STICK: &str = "stick/key";

/// A home with two skills and a folder for a recovery key.
fn home() -> Home {
    let home = Home::new();
    fs::create_dir(home.path().join("stick")).unwrap();
    for name in ["witness", "subject"] {
        home.add(name, "stays").ok();
    }
    home
}

/// The same with a recovery key, and with the name `anna` for the publisher.
fn recoverable() -> Home {
    let home = home();
    home.run(&format!("key recovery create {STICK} --yes")).ok();
    let rotate = [
        "key",
        "rotate",
        "--name",
        "anna",
        "--root-key",
        STICK,
        "--yes",
    ];
    home.run(&rotate).ok();
    home
}

fn chain(home: &Home) -> RootChain {
    let trust = state::open(home).require_trust().unwrap();
    trust.chain().clone()
}

#[track_caller]
fn fits(home: &Home, file: &str) {
    let key = RecoveryKey::open(&home.path().join(file), &NoPassphrases).unwrap();
    key.check_role(&chain(home), None).unwrap();
    assert_eq!(key.file().version, chain(home).version());
}

/// What a sweep counts.
#[derive(Default)]
struct Count {
    old: usize,
    new: usize,
}

/// Kills a command at a sample of its points in copies of `start`. `is_new` looks at what is left,
/// `after` at what the same command ends with when it is given again.
fn sweep(
    label: &str,
    start: &Home,
    arguments: &[&str],
    is_new: impl Fn(&Home) -> bool,
    after: impl Fn(&Home, &Ran),
) {
    if !sweep::is_ready() {
        return;
    }
    let all = sweep::points(&sweep::copy_home(start), arguments);
    let tried = sweep::sample(all.clone(), 20);
    let mut count = Count::default();
    for point in &tried {
        let home = sweep::copy_home(start);
        if let Some(ran) = sweep::strike(&home, arguments, point, Fault::Kill) {
            ran.ok();
        }
        state::private(&home);
        if is_new(&home) {
            count.new += 1;
        } else {
            count.old += 1;
        }
        let again = home.run(arguments);
        assert_eq!(
            again.code, 0,
            "{label} {point:?}: {} {}",
            again.stdout, again.stderr
        );
        state::whole(&home);
        state::swept(&home);
        after(&home, &again);
    }
    eprintln!(
        "{label}: {} of {} points; old {}, new {}",
        tried.len(),
        all.len(),
        count.old,
        count.new
    );
    assert!(count.old > 0 && count.new > 0);
}

#[test]
fn a_recovery_key_is_made_or_not_and_made_with_the_same_files() {
    for is_shown in [false, true] {
        let start = home();
        if is_shown {
            // A vault that others have seen keeps its id.
            let id = start.json("key show")["vault_id"]
                .as_str()
                .unwrap()
                .to_owned();
            start.change_trust(&id, |trust| trust["shown"] = true.into());
        }
        let (first, seen) = (chain(&start), state::seen(&start));
        let arguments = [
            "key",
            "recovery",
            "create",
            STICK,
            "--second",
            "stick/second",
            "--yes",
        ];
        sweep(
            &format!("recovery create, shown: {is_shown}"),
            &start,
            &arguments,
            |home| {
                let chain = chain(home);
                assert!(chain.version() <= 2);
                chain.newest().payload_sha256() != first.newest().payload_sha256()
            },
            |home, _| {
                let chain = chain(home);
                assert_eq!(chain.version(), if is_shown { 2 } else { 1 });
                assert_eq!(chain.document().root().keys().len(), 1);
                let publishers = chain.document().release().keys();
                assert_eq!(publishers, first.document().release().keys());
                assert!(!chain.document().root().contains(&publishers[0]));
                fits(home, STICK);
                fits(home, "stick/second");
                assert_eq!(
                    state::seen(home).keys().collect::<Vec<_>>(),
                    seen.keys().collect::<Vec<_>>()
                );
                let vaults = fs::read_dir(home.config().join("vaults")).unwrap();
                let vaults = vaults.filter(|entry| entry.as_ref().unwrap().path().is_dir());
                assert_eq!(vaults.count(), 1, "nothing of another vault is left");
                goes_on(home);
            },
        );
    }
}

#[test]
fn a_stolen_key_is_revoked_once() {
    let start = recoverable();
    let stolen = state::open(&start).release_key().unwrap();
    let arguments = ["key", "recovery", "use", STICK, "--lost", "anna", "--yes"];
    sweep(
        "recovery use",
        &start,
        &arguments,
        |home| chain(home).version() == 3,
        |home, _| {
            let chain = chain(home);
            assert_eq!(chain.version(), 3);
            assert!(chain.revokes(&stolen));
            assert_eq!(chain.document().revoked().len(), 1);
            let key = state::open(home).release_key().unwrap();
            assert_eq!(chain.document().release().keys(), [key]);
            fits(home, STICK);
        },
    );
}

#[test]
fn an_empty_machine_recovers_once() {
    let owner = recoverable();
    let team = Team::new(Server::start(&Database::Sqlite), owner);
    team.sync();
    let releases = team.owner.own_trust().join("releases");
    let files = tree::snapshot(&releases, &[]);
    let catalog = format!("/{SLUG}.catalog.json");
    let catalog = files.keys().find(|path| path.ends_with(&catalog)).unwrap();
    let lost = state::open(&team.owner).release_key().unwrap();
    let start = Home::new();
    fs::create_dir(start.path().join("stick")).unwrap();
    fs::copy(team.owner.path().join(STICK), start.path().join(STICK)).unwrap();
    fs::copy(releases.join(catalog), start.path().join("catalog")).unwrap();
    let arguments = [
        "key", "recovery", "use", STICK, "--from", "catalog", "--yes",
    ];
    sweep(
        "recovery use on an empty machine",
        &start,
        &arguments,
        |home| home.vault().join("vault.json").exists(),
        |home, _| {
            let chain = chain(home);
            assert_eq!(chain.version(), 3);
            assert!(chain.revokes(&lost));
            assert_eq!(chain.document().revoked().len(), 1);
            fits(home, STICK);
            goes_on(home);
        },
    );
}

#[test]
fn a_chain_is_healed_or_not() {
    let start = recoverable();
    let arguments = ["key", "heal", "--above", "5", "--root-key", STICK, "--yes"];
    let key = state::open(&start).release_key().unwrap();
    sweep(
        "heal",
        &start,
        &arguments,
        |home| match chain(home).version() {
            2 => false,
            6 => true,
            other => panic!("version {other}"),
        },
        |home, _| {
            assert_eq!(chain(home).version(), 6);
            assert_eq!(state::open(home).release_key().unwrap(), key);
            fits(home, STICK);
            goes_on(home);
        },
    );
}

/// The vault signs and removes as before.
#[track_caller]
fn goes_on(home: &Home) {
    home.add("next", "new").ok();
    home.run(&["verify"]).ok();
}

/// The file with the passphrase, as an option of strace.
fn passphrase(home: &Home) -> String {
    let file = home.path().join("passphrase");
    format!("VAULT_KEY_PASSPHRASE_FILE={}", file.display())
}

fn traced(home: &Home, options: &[&str], arguments: &[&str]) -> Ran {
    let variable = passphrase(home);
    let options = [&["-E", &variable], options].concat();
    let words = sweep::words(&options, arguments);
    let mut command = Command::new(&words[0]);
    home.environment(&mut command);
    command
        .args(&words[1..])
        .current_dir(home.path())
        .stdin(Stdio::null());
    command.output().unwrap().into()
}

fn plain(home: &Home, arguments: &[&str]) -> Ran {
    let (name, value) = passphrase(home)
        .split_once('=')
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .unwrap();
    let mut command = home.command(arguments);
    command.env(name, value).output().unwrap().into()
}

#[test]
fn a_backup_is_restored_whole_or_not_at_all() {
    if !sweep::is_ready() {
        return;
    }
    let owner = recoverable();
    let secret = "correct horse battery staple\n";
    fs::write(owner.path().join("passphrase"), secret).unwrap();
    plain(&owner, &["backup", "stick/backup"]).ok();
    let seen = state::seen(&owner);
    let start = Home::new();
    fs::write(start.path().join("passphrase"), secret).unwrap();
    fs::copy(
        owner.path().join("stick/backup"),
        start.path().join("backup"),
    )
    .unwrap();
    let arguments = ["restore", "backup"];
    let model = sweep::copy_home(&start);
    let trace = model.path().join("trace");
    let options = sweep::trace_options(trace.to_str().unwrap());
    traced(&model, &options.each_ref().map(String::as_str), &arguments).ok();
    let all = sweep::read_points(&trace, "");
    // Each round decrypts the backup, which takes its time by intention.
    let tried = sweep::sample(all.clone(), 12);
    let (mut old, mut new) = (0, 0);
    for point in &tried {
        let home = sweep::copy_home(&start);
        let [trace, inject] = sweep::fault_options(point, Fault::Kill);
        let options = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        traced(&home, &options, &arguments);
        state::private(&home);
        if is_whole(&home.vault()) {
            new += 1;
            // There is a vault now, so nothing is written over it.
            let again = plain(&home, &arguments);
            assert!(
                again.stderr.contains("already exists"),
                "{point:?}: {}",
                again.stderr
            );
        } else {
            old += 1;
            plain(&home, &arguments).ok();
        }
        assert_eq!(state::seen(&home), seen, "{point:?}");
        state::whole(&home);
        state::swept(&home);
        let left = tree::snapshot(home.path(), &[".vault/", ".config/"]);
        let left = left.keys().find(|path| path.contains("restoring"));
        assert!(left.is_none(), "{point:?}: {left:?}");
    }
    eprintln!(
        "restore: {} of {} points; old {old}, new {new}",
        tried.len(),
        all.len()
    );
    assert!(old > 0);
}

fn is_whole(vault: &Path) -> bool {
    vault.join("vault.json").is_file()
}
