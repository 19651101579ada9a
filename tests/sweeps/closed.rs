//! The commands of sources, agents and the wizard where they cannot write: a read-only vault,
//! another process that holds the lock, a disk that is full or broken. Each says so and changes
//! nothing; what only reads goes on.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use vault_tests::home::{Home, Ran};
use vault_tests::skills::skill_md;
use vault_tests::sweep::{self, Fault, Kept};
use vault_tests::terminal::{DOWN, ENTER, Terminal};
use vault_tests::tree;

use crate::agents::{self, clean_up, files, healthy, linked, no_remains, nothing_is_lost, seen};
use crate::fetched::support::SiteServer;
use crate::fetched::{index, machine};
use crate::full::{Ordinary, error_of};
use crate::state;

/// The settings of the person.
const CONFIG: &str = ".config/vault/config.toml";

/// What the site has of `subject` now.
fn serve(site: &SiteServer, body: &str) {
    let text = skill_md("subject", body);
    site.json(
        "/.well-known/agent-skills/index.json",
        index("subject", &text),
    )
    .text("/subject/SKILL.md", String::from_utf8(text).unwrap());
}

/// A home in which each command of [`writers`] has something to do: `subject` is fetched, in two
/// versions, and the site has a third; a project wishes for another; a skill lies unsigned in the
/// vault, another among an agent's own.
fn busy(site: &SiteServer) -> Home {
    let home = machine();
    for body in ["one", "two"] {
        serve(site, body);
        home.run(&format!("add {}", site.base)).ok();
    }
    serve(site, "three");
    for name in ["wished", "other"] {
        let text = String::from_utf8(skill_md(name, "x")).unwrap();
        site.text(&format!("/{name}/SKILL.md"), text);
    }
    home.plain_skill("local", "x");
    let lock = format!(
        "schema = 1\n\n[[skill]]\nname = \"wished\"\nsource = \"{}/wished/SKILL.md\"\n",
        site.base
    );
    fs::create_dir(home.path().join("shop")).unwrap();
    fs::write(home.path().join("shop/vault.lock"), lock).unwrap();
    fs::write(
        home.path().join("work/team.md"),
        "---\nagents: [codex]\n---\nRun the checks.\n",
    )
    .unwrap();
    for place in [
        home.vault().join("skills/unsigned"),
        home.path().join(".claude/skills/mine"),
    ] {
        fs::create_dir(&place).unwrap();
        let name = place.file_name().unwrap().to_string_lossy().into_owned();
        fs::write(place.join("SKILL.md"), skill_md(&name, "x")).unwrap();
    }
    home
}

/// The commands that change the vault.
fn writers(home: &Home, site: &SiteServer) -> Vec<Vec<String>> {
    let further = format!("claude-code={}/further", home.path().display());
    let other = format!("{}/other/SKILL.md", site.base);
    [
        &["add", &other][..],
        &["add", "work/local"],
        &["update"],
        &["rollback", "subject", "--to", "1"],
        &["install", "--root", "shop"],
        &["sync-profiles", "--link", &further],
        &["doctor", "unsigned", "--repair"],
        &["disable", "subject"],
        &["enable", "witness"],
        &["transform", "add", "subject", "work/team.md"],
        &["remove", "subject"],
    ]
    .into_iter()
    .map(|words| words.iter().map(|word| (*word).to_owned()).collect())
    .collect()
}

/// The code of a command that could not write: a check that could not mend says what it found.
fn code_of(command: &str) -> i32 {
    if command == "doctor" { 3 } else { 1 }
}

/// The commands that only read, with the codes that they may end with here: the vault holds an
/// unsigned skill.
const READERS: &[(&[&str], i32)] = &[
    (&["skill", "list"], 0),
    (&["skill", "which", "subject"], 0),
    (&["skill", "search", "witness"], 0),
    (&["show", "subject"], 0),
    (&["verify", "subject"], 0),
    (&["history", "subject"], 0),
    (&["outdated"], 3),
    (&["audit", "subject"], 0),
    (&["audit-repo", "work"], 0),
    (&["agents"], 0),
    (&["transform", "list"], 0),
    (&["update", "--diff"], 3),
    (&["doctor"], 3),
];

/// Everything that the user and the vault have, but for what only saves readers work.
fn all(home: &Home) -> std::collections::BTreeMap<String, tree::Entry> {
    tree::snapshot(
        home.path(),
        &["tmp/", "vault-binary", ".cache", ".vault/index.db"],
    )
}

/// Nothing but what only saves work has changed.
#[track_caller]
fn unchanged(home: &Home, before: &std::collections::BTreeMap<String, tree::Entry>, what: &str) {
    let now = all(home);
    for path in now.keys().chain(before.keys()) {
        assert_eq!(now.get(path), before.get(path), "{what} changed {path}");
    }
}

/// Takes back the answer that `setup` has kept about the changes of agents. It is a setting of the
/// person and no part of the vault, and is kept first, so that no agent signs unseen meanwhile.
#[track_caller]
fn take_setting_back(home: &Home, before: &[u8]) {
    let file = home.path().join(CONFIG);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("mcp_writes = \"sign\""), "{text}");
    fs::write(&file, before).unwrap();
}

/// Takes the right to write from everything in a folder.
fn close(folder: &Path) {
    let status = Command::new("chmod")
        .args(["-R", "a-w"])
        .arg(folder)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Whether the screen has this sentence: long paths decide where the terminal breaks it.
fn says(screen: &str, sentence: &str) -> bool {
    let words: Vec<_> = screen.split_whitespace().collect();
    words.join(" ").contains(sentence)
}

/// Walks the wizard to its last question and says yes.
fn agree(terminal: &mut Terminal) {
    terminal.answer("space: select, right: all", &[ENTER]);
    terminal.answer("What should vault do with", &[DOWN, ENTER]);
    terminal.answer("Show each imported skill to agents", &["y", ENTER]);
    terminal.answer("What happens when an agent", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
}

#[test]
fn a_read_only_vault_is_said_by_each_command_and_readers_go_on() {
    let site = SiteServer::new();
    let home = busy(&site);
    let Some(user) = Ordinary::of(&home) else {
        return;
    };
    close(&home.vault());
    let config = fs::read(home.path().join(CONFIG)).unwrap();
    let before = all(&home);
    for words in writers(&home, &site) {
        let words: Vec<&str> = std::iter::once("--json")
            .chain(words.iter().map(String::as_str))
            .collect();
        let ran = user.run(&words);
        assert_eq!(
            ran.code,
            code_of(words[1]),
            "{words:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(
            ran.stdout.contains("Permission denied"),
            "{words:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        unchanged(&home, &before, &format!("{words:?}"));
    }
    for (words, code) in READERS {
        let ran = user.run(words).expect_code(*code);
        assert!(
            !ran.stdout.contains("Permission denied"),
            "{words:?}: {ran:?}"
        );
        unchanged(&home, &before, &format!("{words:?}"));
    }
    if let Some(mut terminal) = Terminal::start(home.path(), &user.line("setup")) {
        agree(&mut terminal);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 1, "{screen}");
        assert!(says(&screen, "Permission denied"), "{screen}");
        take_setting_back(&home, &config);
        unchanged(&home, &before, &screen);
    }
}

/// Starts `vault` and keeps both streams.
fn begin(home: &Home, words: &[String]) -> Child {
    let words: Vec<&str> = std::iter::once("--json")
        .chain(words.iter().map(String::as_str))
        .collect();
    home.command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// All commands wait at the same time: the wait has a bound of half a minute.
#[test]
fn a_lock_that_another_process_holds_is_said_by_each_command_and_readers_do_not_wait() {
    let site = SiteServer::new();
    let home = busy(&site);
    let lock = File::options()
        .read(true)
        .write(true)
        .open(home.vault().join("lock"))
        .unwrap();
    lock.lock().unwrap();
    let config = fs::read(home.path().join(CONFIG)).unwrap();
    let before = all(&home);
    let writers = writers(&home, &site);
    let waiting: Vec<Child> = writers.iter().map(|words| begin(&home, words)).collect();
    let mut terminal = Terminal::start(
        home.path(),
        &format!("{} setup", vault_tests::home::vault_binary().display()),
    );
    if let Some(terminal) = &mut terminal {
        agree(terminal);
    }
    for (words, code) in READERS {
        home.run(words).expect_code(*code);
    }
    for (words, child) in writers.iter().zip(waiting) {
        let ran: Ran = child.wait_with_output().unwrap().into();
        assert_eq!(
            ran.code,
            code_of(&words[0]),
            "{words:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(
            ran.stdout.contains("is being changed by another process"),
            "{words:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
    }
    if let Some(terminal) = terminal {
        let (screen, code) = terminal.finish();
        assert_eq!(code, 1, "{screen}");
        assert!(says(&screen, "is being changed by another"), "{screen}");
        take_setting_back(&home, &config);
    }
    unchanged(&home, &before, "a command that waited");
    drop(lock);
    home.run(&["update"]).ok();
    assert_ne!(all(&home), before);
}

/// Lets calls of a command fail, one in each run, spread over all that it does.
fn fail(label: &str, start: Home, arguments: &[&str], most: usize) {
    if !sweep::is_ready() {
        return;
    }
    let start = Kept::new(start);
    let home = start.restored();
    let (before, mine) = (seen(home), files(home));
    let all: Vec<_> = sweep::points(home, arguments)
        .into_iter()
        .filter(|point| point.on_disk)
        .collect();
    let end = seen(home);
    assert_ne!(before, end, "{label} changes nothing");
    let (mut failed, mut went_on) = (0, 0);
    for point in sweep::sample(all, most) {
        let home = start.restored();
        let what = format!("{label}: {point:?} failing");
        let fault = Fault::Error(error_of(&point));
        let ran = sweep::strike(home, arguments, &point, fault).expect("no signal was sent");
        let now = seen(home);
        for name in now.keys().chain(before.keys()).chain(end.keys()) {
            let shown = now.get(name);
            assert!(
                shown == before.get(name) || shown == end.get(name),
                "{what}: {name} is {shown:?}: {ran:?}"
            );
        }
        let told = ["No space left on device", "Input/output error"]
            .iter()
            .any(|reason| ran.stdout.contains(reason));
        match ran.code {
            // What only saves work may fail unsaid; what agents do not see yet is said.
            0 => {
                went_on += 1;
                assert!(now == end || told, "{what}: nobody said so: {ran:?}");
            }
            1 => {
                failed += 1;
                assert!(told, "{what}: {ran:?}");
            }
            _ => panic!("{what}: {ran:?}"),
        }
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        state::whole(home);
        state::private(home);
        nothing_is_lost(home, &mine, &what);
        healthy(home, &what);
        home.run(arguments).ok();
        assert_eq!(seen(home), end, "{what} and done again");
        clean_up(home, &what);
        state::swept(home);
        no_remains(home, &what);
        nothing_is_lost(home, &mine, &what);
    }
    eprintln!("{label} with failing calls: failed {failed}, went on {went_on}");
    assert!(failed > 0);
}

#[test]
fn a_fetched_add_and_an_update_on_a_full_disk_lose_nothing() {
    let site = SiteServer::new();
    serve(&site, "one");
    fail(
        "add from a site",
        machine(),
        &["--json", "add", &site.base],
        14,
    );
    let home = machine();
    home.run(&format!("add {}", site.base)).ok();
    serve(&site, "two");
    fail("update", home, &["--json", "update"], 9);
}

#[test]
fn agents_on_a_full_disk_see_the_old_or_the_new() {
    let arguments = ["--json", "sync-profiles", "--discover"];
    fail("sync-profiles", agents::three_agents(), &arguments, 10);
    fail("disable", linked(), &["--json", "disable", "subject"], 6);
}

#[test]
fn a_wizard_on_a_full_disk_says_so_and_keeps_what_is_mine() {
    if !sweep::is_ready() || Terminal::start(Path::new("/"), "true").is_none() {
        return;
    }
    let home = agents::three_agents();
    let own = home.path().join(".claude/skills/mine");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("SKILL.md"), skill_md("mine", "Mine.")).unwrap();
    let start = Kept::new(home);
    let mine = files(start.restored());
    // Early, in the middle and late: the folder's own calls are struck by the kills.
    for (call, when) in [
        ("mkdirat", 1),
        ("fsync", 1),
        ("fsync", 3),
        ("symlinkat", 1),
        ("symlinkat", 3),
        ("renameat", 2),
    ] {
        let home = start.restored();
        let trace = format!("trace={call}");
        let inject = format!("inject={call}:error=ENOSPC:when={when}");
        let options = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let words = sweep::words(&options, &["setup"]).join(" ");
        let mut terminal = Terminal::start(home.path(), &words).unwrap();
        agree(&mut terminal);
        let (screen, code) = terminal.finish();
        let what = format!("setup, {call} {when} failing: {screen}");
        assert!([0, 1].contains(&code), "{code}: {what}");
        assert!(!screen.contains("panicked"), "{what}");
        // Said, or made up for.
        let mine_is_seen = agents::ROOTS
            .iter()
            .all(|root| home.path().join(root).join("mine/SKILL.md").is_file());
        assert!(
            says(&screen, "No space left") || (code == 0 && mine_is_seen),
            "{code}: {what}"
        );
        state::whole(home);
        nothing_is_lost(home, &mine, &what);
        seen(home);
    }
}

#[test]
fn keys_that_others_may_read_are_not_used_by_any_command_that_signs() {
    let site = SiteServer::new();
    let home = busy(&site);
    for path in home.own_keys() {
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
    let before = state::seen(&home);
    for words in writers(&home, &site) {
        // A project has a key of its own.
        let signs = ["add", "update", "rollback", "transform"];
        if signs.contains(&words[0].as_str()) {
            let words: Vec<&str> = std::iter::once("--json")
                .chain(words.iter().map(String::as_str))
                .collect();
            let ran = home.run(&words).expect_code(4);
            assert!(
                ran.stdout.contains("chmod 600"),
                "{words:?}: {}",
                ran.stdout
            );
            assert_eq!(state::seen(&home), before, "{words:?}");
        }
    }
}
