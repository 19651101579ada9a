//! Every file of the vault's folder, changed in every way by somebody who can write there and
//! nowhere else: each command does what it did before, or fails and names what is wrong. Nothing
//! becomes trusted, nothing disappears unsaid, and nothing is signed that the owner does not see
//! named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use vault_format::catalog::{Catalog, ReleaseRef};
use vault_format::hash::Digest;
use vault_tests::home::{Home, Ran};
use vault_tests::host::{Host, Namespace};
use vault_tests::signed::{Owner, entry, skill_of, vault_of};
use vault_tests::skills::skill_md;
use vault_tests::sweep::Kept;

use crate::support::connect;

/// The commands, in the order in which they run over each change.
const COMMANDS: &[&[&str]] = &[
    &["verify", "--json"],
    &["skill", "list"],
    &["doctor", "--json"],
    &["skill", "hello", "alpha"],
    &["sync", "--cloud", "--json"],
    &["cloud", "pull", "--json"],
    &["sync-profiles", "--json"],
    &["verify", "--json"],
];

/// A change to one entry of the vault's folder.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Change {
    Flip,
    Truncate,
    Delete,
    Older,
    Neighbour,
}

const CHANGES: [Change; 5] = [
    Change::Flip,
    Change::Truncate,
    Change::Delete,
    Change::Older,
    Change::Neighbour,
];

/// What has happened to the keys of the own vault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Keys {
    First,
    /// The first key is retired: its signatures count on what it signed before.
    Rotated,
    /// The first key is revoked.
    Recovered,
}

/// A machine with all that a vault's folder can hold, its hosts, and an older copy of the folder.
struct World {
    kept: Kept,
    older: TempDir,
    own: Host,
    published: Namespace,
    _linked: [Linked; 2],
}

/// An own skill in its second version with an action and a transform, another one, a policy, two
/// linked vaults, and a project; the older copy is of the time before the second versions.
fn world(keys: Keys) -> World {
    let home = Home::new();
    fs::create_dir_all(home.path().join(".codex/skills")).unwrap();
    fs::create_dir_all(home.path().join(".claude/skills")).unwrap();
    let mut linked = [Linked::start(0, "gamma"), Linked::start(2, "delta")];
    add_alpha(&home, "one");
    home.add("beta", "Second.").ok();
    fs::write(
        home.vault().join("policy.toml"),
        "default_profile = \"all\"\n\n[profiles.all]\ngroups = [\"all\"]\n\n[groups.all]\nskills = [\"*\"]\n",
    )
    .unwrap();
    home.run("approve --yes").ok();
    fs::write(
        home.path().join("team.md"),
        "---\nagents: [codex]\n---\nRun the checks.\n",
    )
    .unwrap();
    home.run("transform add beta team.md").ok();
    for host in &linked {
        home.run(&format!("link {}", host.host.address())).ok();
    }
    home.run("cloud pull").ok();
    let project = home.path().join("shop");
    vault_tests::skills::write(
        &project.join("skills/ship"),
        &[("SKILL.md", &skill_md("ship", "Ships."))],
    );
    let lock = "schema = 1\n\n[[skill]]\nname = \"ship\"\nsource = \"./skills/ship\"\n";
    fs::write(project.join("vault.lock"), lock).unwrap();
    home.run("install --root shop").ok();
    home.run("sync-profiles --discover").ok();
    let own = Host::start();
    connect(&home, &own.address(), Some).ok();
    home.run("sync --cloud").ok();
    let older = TempDir::new().unwrap();
    copy(&home.vault(), older.path());
    add_alpha(&home, "two");
    linked[0].publish(2);
    home.run("cloud pull").ok();
    home.run("sync --cloud").ok();
    match keys {
        Keys::First => {}
        Keys::Rotated => {
            home.run("key rotate --yes").ok();
        }
        Keys::Recovered => {
            let file = "recovery.json";
            home.run("key rotate --yes --name anna").ok();
            home.run(&format!("key recovery create {file} --yes")).ok();
            let arguments = ["key", "recovery", "use", file, "--lost", "anna", "--yes"];
            let used = home.run(&arguments);
            assert!([0, 3].contains(&used.code), "{used:?}");
        }
    }
    for command in COMMANDS {
        home.run(command);
    }
    World {
        published: own.namespace(),
        kept: Kept::new(home),
        older,
        own,
        _linked: linked,
    }
}

/// A linked vault with one skill, by a publisher of its own.
struct Linked {
    host: Host,
    owner: Owner,
    publisher: u8,
    name: &'static str,
    last: Option<ReleaseRef>,
}

impl Linked {
    fn start(publisher: u8, name: &'static str) -> Self {
        let host = Host::start();
        let owner = Owner::at(&host).under(&vault_of(publisher + 100, publisher));
        let mut linked = Self {
            host,
            owner,
            publisher,
            name,
            last: None,
        };
        linked.publish(1);
        linked
    }

    /// Publishes a release with this version of the skill.
    fn publish(&mut self, version: u64) {
        let bundle = skill_of(&self.owner.chain, self.publisher, self.name, version);
        let skills = [entry(self.name, version, &bundle)];
        let catalog = Catalog {
            previous: self.last.take(),
            ..self.owner.catalog(version, self.publisher, &skills)
        };
        self.last = Some(ReleaseRef {
            release: version,
            payload_sha256: Digest::of(&vault_format::json::to_bytes(&catalog)),
        });
        let bytes = self.owner.sign(&catalog, self.publisher);
        self.host.serve(Namespace::new(bytes, &[&bundle]));
    }
}

fn add_alpha(home: &Home, body: &str) {
    let text = format!(
        "---\nname: alpha\ndescription: A skill named alpha that does a small thing well.\nbin:\n  hello:\n    command: scripts/hello.sh\n---\n{body}\n"
    );
    let files: &[(&str, &[u8])] = &[
        ("SKILL.md", text.as_bytes()),
        ("scripts/hello.sh", b"#!/bin/sh\necho hello\n"),
    ];
    let folder = home.skill("alpha", files);
    home.run(&format!("add {}", folder.to_str().unwrap())).ok();
}

fn copy(from: &Path, to: &Path) {
    let mut cp = Command::new("cp");
    let status = cp.arg("-a").arg(from.join(".")).arg(to).status();
    assert!(status.unwrap().success());
}

/// The files and links below a folder, by relative path.
fn entries(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

impl World {
    /// Makes a change; `None` if it does not apply to the entry.
    fn change(&self, path: &Path, change: Change) -> Option<()> {
        let root = self.kept_vault();
        let full = root.join(path);
        let is_link = full.is_symlink();
        match change {
            Change::Flip if is_link => {
                let target = fs::read_link(&full).unwrap();
                let other = another_target(&full, &target)?;
                in_folder_of(&full, || put_link(&full, &other));
            }
            Change::Flip | Change::Truncate if !is_link => {
                let mut bytes = fs::read(&full).unwrap();
                if bytes.is_empty() {
                    return None;
                }
                let middle = bytes.len() / 2;
                if change == Change::Flip {
                    bytes[middle] ^= 1;
                } else {
                    bytes.truncate(middle);
                }
                put_file(&full, &bytes);
            }
            Change::Flip | Change::Truncate => return None,
            Change::Delete => in_folder_of(&full, || fs::remove_file(&full).unwrap()),
            Change::Older => {
                let old = self.older.path().join(path);
                old.symlink_metadata().ok()?;
                if is_link {
                    let target = fs::read_link(&old).ok()?;
                    if fs::read_link(&full).unwrap() == target {
                        return None;
                    }
                    in_folder_of(&full, || put_link(&full, &target));
                } else {
                    let bytes = fs::read(&old).ok()?;
                    if bytes == fs::read(&full).unwrap() {
                        return None;
                    }
                    put_file(&full, &bytes);
                }
            }
            Change::Neighbour => {
                let name = full.file_name().unwrap().to_str().unwrap();
                let beside = full.with_file_name(format!("x{name}"));
                in_folder_of(&full, || {
                    let mut cp = Command::new("cp");
                    assert!(
                        cp.arg("-a")
                            .args([&full, &beside])
                            .status()
                            .unwrap()
                            .success()
                    );
                });
            }
        }
        Some(())
    }

    fn kept_vault(&self) -> PathBuf {
        self.kept.home().vault()
    }
}

/// The target of another link in the same folder.
fn another_target(link: &Path, target: &Path) -> Option<PathBuf> {
    let siblings = fs::read_dir(link.parent()?).ok()?;
    let mut others = siblings
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|other| other != target);
    others.next()
}

/// Runs something while the folder of a path can be written to.
fn in_folder_of(path: &Path, run: impl FnOnce()) {
    let folder = path.parent().unwrap();
    let mode = fs::metadata(folder).unwrap().permissions();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    run();
    fs::set_permissions(folder, mode).unwrap();
}

fn put_link(path: &Path, target: &Path) {
    fs::remove_file(path).unwrap();
    symlink(target, path).unwrap();
}

/// Writes a file in place, with the mode that it had.
fn put_file(path: &Path, bytes: &[u8]) {
    let mode = fs::metadata(path).unwrap().permissions();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, mode).unwrap();
}

/// A verified or listed skill: name, origin and bundle.
type Skill = (String, String, String);

/// The intact skills that a command reports, if it reports any.
fn reported(command: &[&str], ran: &Ran) -> Option<BTreeSet<Skill>> {
    let value: Value = serde_json::from_str(&ran.stdout).ok()?;
    let skills = match command {
        ["verify", ..] => {
            let data = [&value["data"], &value["error"]["data"]];
            data.into_iter()
                .find_map(|data| data["skills"].as_array())?
                .clone()
        }
        ["skill", "list"] => value.as_array()?.clone(),
        _ => return None,
    };
    let intact = skills.iter().filter(|skill| skill["ok"] != false);
    let text = |skill: &Value, member: &str| skill[member].as_str().unwrap_or_default().to_owned();
    let named = intact.map(|skill| {
        (
            text(skill, "name"),
            text(skill, "origin"),
            text(skill, "bundle_hash"),
        )
    });
    Some(named.collect())
}

/// The skill of a signed manifest in the store, and its signature.
fn manifest(bundle: &Path) -> Option<(String, String)> {
    let bytes = fs::read(bundle.join("manifest.json")).ok()?;
    let envelope = vault_format::dsse::Envelope::parse(&bytes).ok()?;
    let payload: Value = serde_json::from_slice(envelope.payload()).ok()?;
    let signature = format!("{:?}", envelope.signatures());
    Some((payload["name"].as_str()?.to_owned(), signature))
}

fn stored(vault: &Path) -> impl Iterator<Item = PathBuf> {
    let listed = fs::read_dir(vault.join("store")).into_iter().flatten();
    listed.map(|entry| entry.unwrap().path())
}

/// The names of the skills in the store, by bundle.
fn bundles(vault: &Path) -> BTreeMap<String, String> {
    let named = stored(vault).filter_map(|folder| {
        let bundle = folder.file_name()?.to_str()?.to_owned();
        Some((bundle, manifest(&folder)?.0))
    });
    named.chain(linked(vault)).collect()
}

/// The skill that each linked vault installs, by the link's id.
fn linked(vault: &Path) -> impl Iterator<Item = (String, String)> {
    let links = fs::read_dir(vault.join("links")).into_iter().flatten();
    links.filter_map(|link| {
        let link = link.unwrap();
        let skill = fs::read_dir(link.path().join("current/skills"))
            .ok()?
            .next()?;
        let text = |name: std::ffi::OsString| name.into_string().unwrap();
        Some((text(link.file_name()), text(skill.unwrap().file_name())))
    })
}

/// The names of the skills in the store, by the signatures of their manifests.
fn signed(vault: &Path) -> BTreeMap<String, String> {
    let signed = stored(vault).filter_map(|folder| manifest(&folder));
    signed.map(|(name, signature)| (signature, name)).collect()
}

/// What the commands did with the untouched folder.
struct Before {
    /// The name of the skill in each bundle of the store, and of the one that each linked vault
    /// has.
    bundles: BTreeMap<String, String>,
    ran: Vec<(i32, Option<BTreeSet<Skill>>)>,
    signed: BTreeMap<String, String>,
    skills: BTreeSet<Skill>,
}

fn run_all(world: &World) -> Before {
    let home = world.kept.restored();
    let bundles = bundles(&home.vault());
    let mut ran = Vec::new();
    for command in COMMANDS {
        let result = home.run(command);
        ran.push((result.code, reported(command, &result)));
    }
    let skills = ran[0].1.clone().unwrap();
    Before {
        bundles,
        ran,
        signed: signed(&home.vault()),
        skills,
    }
}

/// Whether a text names an entry: by its path or a part of it, or by the skill that it belongs to.
fn names(text: &str, path: &Path, before: &Before) -> bool {
    const EVERYWHERE: [&str; 7] = [
        "store", "files", "links", "sets", "skills", "profiles", "SKILL.md",
    ];
    if path == Path::new("connection.json") {
        return text.contains("not_connected");
    }
    let parts = path.iter().map(|part| part.to_str().unwrap());
    parts
        .filter(|part| part.len() > 3 && !EVERYWHERE.contains(part))
        .any(|part| {
            let skill = before.bundles.get(part);
            text.contains(part) || skill.is_some_and(|skill| text.contains(skill.as_str()))
        })
}

/// What is wrong with how the commands go on after a change.
fn judge(world: &World, before: &Before, path: &Path) -> Vec<String> {
    let home = world.kept.home();
    let mut wrong = Vec::new();
    for (command, (code, skills)) in COMMANDS.iter().zip(&before.ran) {
        let known = signed(&home.vault());
        let pushed = world.own.namespace().releases.len();
        let ran = home.run(command);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        let now = reported(command, &ran);
        if let Some(now) = &now {
            for new in now.difference(&before.skills) {
                wrong.push(format!("{command:?} trusts {new:?}"));
            }
        }
        let is_same = ran.code == *code && (now == *skills || skills.is_none());
        if !is_same && !names(&text, path, before) {
            wrong.push(format!(
                "{command:?} ended with {} and names nothing: {}",
                ran.code,
                text.trim()
            ));
        }
        if let (Some(now), Some(skills)) = (&now, skills) {
            for gone in skills.difference(now) {
                if !text.contains(&gone.0) {
                    wrong.push(format!(
                        "{command:?} ({}) says nothing of {gone:?}",
                        ran.code
                    ));
                }
            }
        }
        for (signature, name) in signed(&home.vault()) {
            let is_new = !known.contains_key(&signature) && !before.signed.contains_key(&signature);
            if is_new && !text.contains(&name) {
                wrong.push(format!("{command:?} signed {name} unsaid"));
            }
        }
        if world.own.namespace().releases.len() != pushed && !names(&text, path, before) {
            wrong.push(format!("{command:?} published: {}", text.trim()));
        }
    }
    wrong
}

/// Changes every entry that `wanted` accepts, and lists what goes wrong.
fn search(keys: Keys, changes: &[Change], wanted: impl Fn(&Path) -> bool) {
    let world = world(keys);
    let before = run_all(&world);
    assert!(before.skills.len() >= 5, "{:?}", before.skills);
    let mut paths = entries(&world.kept_vault());
    paths.retain(|path| wanted(path));
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for path in &paths {
        for change in changes {
            world.kept.restored();
            world.own.serve(world.published.clone());
            if world.change(path, *change).is_none() {
                continue;
            }
            tried += 1;
            let found = judge(&world, &before, path);
            let shown = path.display();
            wrong.extend(
                found
                    .into_iter()
                    .map(|what| format!("{change:?} {shown}: {what}")),
            );
        }
    }
    assert!(tried > paths.len(), "{tried} changes to {paths:?}");
    assert!(
        wrong.is_empty(),
        "{} of {tried} changes:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Records, links and signed manifests: what decides which skills there are, and whose.
fn decides(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with("skills/") || text.ends_with(".json") || text.starts_with("links/")
}

#[test]
fn no_change_to_a_file_of_the_vault_adds_trust_or_goes_unsaid() {
    search(Keys::First, &CHANGES, |_| true);
}

#[test]
fn nor_does_it_after_the_key_was_rotated() {
    search(Keys::Rotated, &CHANGES, decides);
}

#[test]
fn nor_does_it_after_the_vault_was_recovered() {
    search(Keys::Recovered, &CHANGES, decides);
}
