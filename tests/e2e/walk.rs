//! The main job from beginning to end, as a user does it: add, publish, link, admit, pull, change,
//! remove, go back, shut out, enrol again, rotate the key; with the server stopped, killed and
//! started again in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER};
use vault_tests::server::{Database, OWNER_EMAIL, Server};
use vault_tests::{place, skills, tree};

use crate::support::{
    self, Files, SLUG, address, block_on, fingerprint, names, pulled, text, vault_of,
};

#[test]
fn the_whole_walk_on_sqlite() {
    walk(&Database::Sqlite);
}

#[test]
fn the_whole_walk_on_postgresql() {
    support::on_postgres(walk);
}

/// The skills of this test as they lie in the owner's working folder, by name.
struct Sources(BTreeMap<String, PathBuf>);

impl Sources {
    fn make(home: &Home) -> Self {
        let plain = skills::skill_md("plain", "Nothing but text.");
        let awkward = awkward();
        let awkward: Vec<(&str, &[u8])> = awkward
            .iter()
            .map(|(path, bytes)| (path.as_str(), &bytes[..]))
            .collect();
        let shared: &[u8] = b"the same bytes in two skills\n";
        let crlf = b"---\r\nname: crlf\r\ndescription: Lines that end as on Windows.\r\n---\r\nText.  \r\n\r\n";
        let gone = skills::skill_md("gone", "Will be removed.");
        let leaked = skills::skill_md("leaked", "Will be withdrawn.");
        let mut sources = BTreeMap::new();
        for (name, files) in [
            (
                "plain",
                &[("SKILL.md", &plain[..]), ("shared.txt", shared)][..],
            ),
            ("awkward", &awkward),
            ("crlf", &[("SKILL.md", crlf), ("shared.txt", shared)]),
            ("gone", &[("SKILL.md", &gone)]),
            ("leaked", &[("SKILL.md", &leaked)]),
        ] {
            sources.insert(name.to_owned(), home.skill(name, files));
        }
        Self(sources)
    }

    fn arguments(&self) -> Vec<&str> {
        let folders = self.0.values().map(|folder| folder.to_str().unwrap());
        ["add"].into_iter().chain(folders).collect()
    }

    /// What every other machine must end up with.
    fn files(&self, without: &[&str]) -> BTreeMap<String, Files> {
        self.0
            .iter()
            .filter(|(name, _)| !without.contains(&name.as_str()))
            .map(|(name, folder)| (name.clone(), tree::files(folder)))
            .collect()
    }
}

/// Every kind of file that a careless tool would change, and every kind of path that is allowed and
/// odd.
fn awkward() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = skills::awkward_files()
        .into_iter()
        .map(|(path, bytes)| (path.to_owned(), bytes))
        .collect();
    files.push((
        "SKILL.md".into(),
        b"---\nname: awkward\ndescription: Files that careless tools change.\nbin:\n  run: { command: bin/run.sh }\n---\n\tTabs and blanks at the end   \n\n\nNo newline at the end".to_vec(),
    ));
    // As deep as the format allows: sixteen segments.
    files.push((format!("{}leaf.txt", "d/".repeat(15)), b"deep\n".to_vec()));
    for path in [
        "résumé.md",
        "日本語/説明.txt",
        "emoji 🦀.txt",
        "with space/and (brackets) [too] {these} & 'that'.txt",
        "-starts-with-a-minus",
        "UPPER/Case.TXT",
        ".hidden/.file",
    ] {
        files.push((path.into(), format!("{path}\n").into_bytes()));
    }
    // The largest file there may be: it travels in parts.
    let large: Vec<u8> = (0..4 * 1024 * 1024_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    files.push(("assets/large.bin".into(), large));
    files.push(("bin/binary-tool".into(), b"#!\0\x7fELF\xff\xfe".to_vec()));
    files
}

#[expect(
    clippy::too_many_lines,
    reason = "one story, each step of which stands on the one before"
)]
fn walk(database: &Database) {
    let mut server = Server::start(database);
    let owner = Home::new();
    let laptop = Home::new();
    let vault = address(&server, SLUG);

    // Nothing yet: the commands say how to begin.
    owner.fails("status --cloud", 2, "not_connected");

    let sources = Sources::make(&owner);
    let added = owner.json(&sources.arguments());
    assert_eq!(added["added"].as_array().unwrap().len(), 5, "{added}");
    assert_eq!(added["failed"].as_array().unwrap().len(), 0, "{added}");
    for (name, files) in sources.files(&[]) {
        assert_eq!(
            tree::files(&owner.vault().join("skills").join(&name)),
            files,
            "{name}"
        );
    }

    // A namespace, by an operator who signs in with a pasted answer; then by the loopback address.
    let create = [
        "operator",
        "--url",
        &server.url,
        "namespace",
        "create",
        &support::slug(&server),
        "--owner",
        OWNER_EMAIL,
    ];
    let created = owner.sign_in(&create, OWNER, Answer::Pasted).ok();
    assert!(created.stdout.contains(&vault), "{}", created.stdout);
    let connected = owner
        .sign_in(
            &format!("cloud connect {vault} --json"),
            OWNER,
            Answer::Loopback,
        )
        .data();
    assert_eq!(
        (text(&connected["slug"]), text(&connected["role"])),
        (support::slug(&server), "role:owner".to_owned())
    );
    let status = owner.json("status --cloud");
    assert_eq!(status["connected"]["address"], vault);
    assert_eq!(status["connected"]["own_skills"], 5);
    assert!(status["connected"]["last_push"].is_null());

    // A machine may enrol before anything is published; it pins nothing then.
    let early = Home::new();
    let enrolled = early.run(&format!("link {vault}")).ok();
    assert!(
        enrolled.stdout.contains("enrolled, no catalog yet"),
        "{}",
        enrolled.stdout
    );
    assert!(early.json("status --cloud")["links"][0]["vault_fingerprint"].is_null());

    let first = owner.json("sync --cloud");
    assert_eq!(
        (first["release"].as_u64(), first["skills"].as_u64()),
        (Some(1), Some(5))
    );
    assert_eq!(names(&first["added"]).len(), 5);
    let again = owner.json("sync --cloud");
    assert_eq!(
        (again["changed"].as_bool(), again["release"].as_u64()),
        (Some(false), Some(1))
    );
    let status = owner.json("status --cloud");
    assert_eq!(status["connected"]["last_push"]["release"], 1);
    assert_eq!(status["connected"]["last_push"]["skills"], 5);

    // The early machine sees a catalog for the first time and obeys --expect-key.
    let wrong = wrong_fingerprint(&fingerprint(&owner));
    early.fails(
        &format!("cloud pull --expect-key {wrong}"),
        6,
        "vault_changed",
    );

    // The other machine: a wrong fingerprint pins nothing, the right one does.
    // It is enrolled by then: only an enrolled machine may read the catalog.
    let name = ["--hostname", "laptop"];
    let refused = laptop.fails(
        &[&["link", &vault, "--expect-key", &wrong][..], &name].concat(),
        6,
        "vault_changed",
    );
    assert!(
        refused.message.contains(&fingerprint(&owner)),
        "{}",
        refused.message
    );
    let status = laptop.json("status --cloud");
    assert!(
        status["links"][0]["vault_fingerprint"].is_null(),
        "{status}"
    );
    let key = fingerprint(&owner);
    let linked = laptop.json(&format!("link {vault} --expect-key {key}"));
    let device = text(&linked["device_id"]);
    assert_eq!(
        (text(&linked["status"]), text(&linked["vault_fingerprint"])),
        ("pending".into(), key.clone())
    );

    // Not admitted: the catalog may be read, the skills may not.
    let machine_key = text(&linked["device_fingerprint"]);
    let before = vault_of(&laptop);
    let waits = laptop.run("cloud pull").expect_code(4);
    assert_eq!(waits.stdout, "");
    assert_eq!(
        waits.stderr,
        format!(
            "error: the owner has not admitted this machine yet ({machine_key})\nhint: the owner admits it with: vault devices admit {machine_key}\n"
        )
    );
    laptop.fails("cloud pull", 4, "device_pending");
    assert_eq!(vault_of(&laptop), before);
    assert!(pulled(&laptop).is_empty());

    let devices = owner.json("devices list");
    let waiting = devices.as_array().unwrap();
    assert_eq!(waiting.len(), 2, "{devices}");
    let shown = waiting
        .iter()
        .find(|one| one["device_id"] == *device)
        .unwrap();
    assert_eq!(
        (text(&shown["hostname"]), text(&shown["status"])),
        ("laptop".into(), "pending".into())
    );
    assert_eq!(
        text(&shown["fingerprint"]),
        machine_key,
        "both sides show the same"
    );
    // Named by what the laptop shows, and no other machine can be meant.
    owner.run(&format!("devices admit {machine_key}")).ok();

    // The server stops in good order and comes back: nothing is lost.
    let keeps_running = place::leaves_out(
        "stop, kill and start again in its middle",
        "each call starts a process",
    );
    if !keeps_running {
        let stopped = server.stop();
        assert_eq!(
            (stopped.code, stopped.stdout.as_str()),
            (0, ""),
            "{}",
            stopped.stderr
        );
        assert!(
            server
                .log_text()
                .lines()
                .any(|line| line.contains("\"stopped\""))
        );
        laptop.fails("cloud pull", 7, "unreachable");
        let down = owner.run("status --cloud --json").expect_code(7);
        assert_eq!(down.json()["data"]["connected"]["last_push"]["release"], 1);
        server.resume();
    }

    let pull = laptop.json("cloud pull");
    assert_eq!(names(&pull["installed"]).len(), 5);
    assert_eq!(pull["fetched"], 5);
    assert_eq!(pulled(&laptop), sources.files(&[]));
    let pull = laptop.json("cloud pull");
    assert_eq!(
        (pull["fetched"].as_u64(), pull["unchanged"].as_u64()),
        (Some(0), Some(5))
    );
    let devices = owner.json("devices list");
    let mut devices = devices.as_array().unwrap().iter();
    let shown = devices.find(|one| one["device_id"] == *device).unwrap();
    assert_eq!(shown["release"], 1, "{shown}");
    assert_eq!(text(&shown["last_seen"]).len(), 10, "{shown}");
    let log = owner.json("audit-log --action device.admit");
    assert_eq!(
        (&log[0]["actor_email"], &log[0]["target_name"]),
        (&OWNER_EMAIL.into(), &"laptop".into())
    );
    let ran = laptop.run("skill run awkward").ok();
    assert_eq!(ran.stdout, "ran with \n");

    // One skill changes: what travels is its bundle and the search texts.
    fs::write(sources.0["plain"].join("new.txt"), "one more file\n").unwrap();
    owner.json(&format!("add {}", sources.0["plain"].to_str().unwrap()));
    let second = owner.json("sync --cloud");
    assert_eq!(second["release"], 2);
    assert_eq!(
        names(&second["updated"]),
        BTreeSet::from(["plain".to_owned()])
    );
    let uploaded = second["uploaded"].as_u64().unwrap();
    assert!((1..=2).contains(&uploaded), "{second}");
    assert!(second["bytes"].as_u64().unwrap() < 10_000, "{second}");
    // Killed in between, as by a power cut.
    if !keeps_running {
        server.kill();
        server.resume();
    }
    let pull = laptop.json("cloud pull");
    assert_eq!(
        names(&pull["updated"]),
        BTreeSet::from(["plain".to_owned()])
    );
    assert_eq!(
        (pull["fetched"].as_u64(), pull["unchanged"].as_u64()),
        (Some(1), Some(4))
    );
    assert!(pull["bytes"].as_u64().unwrap() < 10_000, "{pull}");
    assert_eq!(pulled(&laptop), sources.files(&[]));

    // One is removed, one is withdrawn: both leave the other machine, and it is said why.
    owner.json("remove gone");
    owner.json(&["remove", "leaked", "--withdraw", "it held a password"]);
    let third = owner.json("sync --cloud");
    assert_eq!(names(&third["removed"]).len(), 2);
    let pull = laptop.run("cloud pull").ok();
    assert!(
        pull.stdout
            .contains("leaked was withdrawn: it held a password"),
        "{}",
        pull.stdout
    );
    assert_eq!(pulled(&laptop), sources.files(&["gone", "leaked"]));
    let unpacked = tree::files(&laptop.vault().join("store"));
    assert!(
        !unpacked
            .values()
            .any(|(_, bytes)| bytes.windows(18).any(|part| part == b"Will be withdrawn.")),
        "withdrawn bytes are nowhere"
    );

    // Back to the first release, as a new one.
    let asked = owner.refused("cloud rollback 1", 2);
    assert!(asked.hint.unwrap().contains("--yes"));
    let back = owner.json("cloud rollback 1 --yes");
    assert_eq!(back["sync"]["release"], 4, "{back}");
    laptop.json("cloud pull");
    let mut expected = sources.files(&[]);
    expected.get_mut("plain").unwrap().remove("new.txt");
    assert_eq!(pulled(&laptop), expected);

    // Shut out: nothing changes on the machine, and it is told.
    let before = vault_of(&laptop);
    owner.json(&format!("devices revoke {device}"));
    laptop.fails("cloud pull", 4, "device_revoked");
    assert_eq!(vault_of(&laptop), before);
    laptop.fails(&format!("link {vault}"), 4, "device_revoked");
    let status = laptop.run("status --cloud --json").expect_code(4).json();
    assert_eq!(status["data"]["links"][0]["status"], "revoked");

    // Forgotten, the machine enrols as a new one and waits again; the pin stays.
    owner.json(&format!("devices forget {device}"));
    laptop.fails("cloud pull", 4, "device_unknown");
    let linked = laptop.json(&format!("link {vault}"));
    assert_eq!(text(&linked["status"]), "pending");
    laptop.fails("cloud pull", 4, "device_pending");
    owner.json(&format!("devices admit {}", text(&linked["device_id"])));

    // A new key: a root version names it, and the machine follows without being told.
    owner.json("key rotate --yes");
    let new_key = fingerprint(&owner);
    assert_ne!(new_key, key);
    let fifth = owner.json("sync --cloud");
    assert_eq!(fifth["release"], 5);
    laptop.json("cloud pull");
    let status = laptop.json("status --cloud");
    assert_eq!(text(&status["links"][0]["vault_fingerprint"]), new_key);
    assert_eq!(status["links"][0]["release"], 5);
    assert_eq!(pulled(&laptop), expected);
    // And what the new key signs is accepted from now on.
    owner.json(&format!("add {}", sources.0["plain"].to_str().unwrap()));
    owner.json("sync --cloud");
    laptop.json("cloud pull");
    assert_eq!(pulled(&laptop), sources.files(&[]));

    let history = block_on(support::history(&server, &owner, SLUG));
    assert_eq!(history.len(), 6);
    support::is_linear(&history);
    if !keeps_running {
        let stopped = server.stop();
        assert_eq!(stopped.code, 0);
        logs_are_json(&server.log_text());
    }
}

/// The fingerprint of another vault that looks almost like this one's.
fn wrong_fingerprint(right: &str) -> String {
    let (groups, version) = right.rsplit_once('/').unwrap();
    let (start, last) = groups.split_at(groups.len() - 1);
    let other = if last == "a" { 'b' } else { 'a' };
    format!("{start}{other}/{version}")
}

/// The log is one JSON object a line, with neither tokens nor passwords in it.
fn logs_are_json(log: &str) {
    assert!(!log.is_empty());
    for line in log.lines() {
        let value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            value["level"].is_string() && value["timestamp"].is_string(),
            "{line}"
        );
        assert_ne!(value["level"], "ERROR", "{line}");
        for secret in ["vat_", "vrt_", "vac_", vault_tests::server::OWNER_PASSWORD] {
            assert!(!line.contains(secret), "a secret in the log: {line}");
        }
    }
}
