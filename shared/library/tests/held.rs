//! Somebody who can write to the vault's folder exchanges one of its folders with a link that leads
//! outside, while the library works. Nothing outside is made, changed or removed.

#![cfg(target_os = "linux")] // exchanging two names in one step is a call of its own

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use vault_library::admit::remove::remove_skills;
use vault_library::admit::{Options, history, variants};
use vault_library::agents::{Machine, sync_profiles};
use vault_library::doctor::{self, DoctorInput};
use vault_library::subscribe::{self, Link, Selection};

use crate::support::host::{BASE, Host};
use crate::support::{Home, copy_folder, name, removal, snapshot, write};

/// Without held folders the first round made or removed something outside.
const ROUNDS: u32 = 6;

/// A machine with an own skill, a linked vault and an agent.
struct Machines {
    device: Home,
    owner: Home,
    host: Host,
    link: Link,
}

impl Machines {
    fn new(seed: u64) -> Self {
        let (device, owner, host) = (Home::new(seed), Home::new(seed + 50), Host::new("team"));
        fs::create_dir_all(device.path(".claude/skills")).unwrap();
        let link = subscribe::link_vault(&device.vault, BASE, &host.slug).unwrap();
        let mut machines = Self {
            device,
            owner,
            host,
            link,
        };
        machines.device.add("alpha", "first");
        machines.device.add("beta", "first");
        machines.work(0);
        machines
    }

    /// Everything that writes to the vault's folder. While links are exchanged, any step may fail.
    fn work(&mut self, round: u32) {
        let (home, vault) = (&self.device, &self.device.vault);
        let text = format!("text {round}");
        self.owner.add("linked", &text);
        self.host.sync(&self.owner.vault, self.owner.now());
        let alpha = home.source("alpha", &text, &[("notes.txt", b"notes\n")]);
        let _added = home.add_with(&alpha, &Options::default());
        let _pulled = self.host.pull(vault, &self.link, &Selection::default());
        let (team, transform) = (name("team"), format!("---\n---\n{text}"));
        let _written =
            variants::add_transform(vault, &name("alpha"), team.clone(), transform.as_bytes());
        let _synced = sync_profiles(vault, &home.sync_input());
        let _back = history::roll_back(vault, &name("alpha"), None, true);
        let _removed = remove_skills(vault, &removal(&["beta"]));
        let beta = home.source("beta", &text, &[]);
        let _added = home.add_with(&beta, &Options::default());
        let _removed = variants::remove_transform(vault, &name("alpha"), &team);
        let doctor = DoctorInput {
            machine: Some(Machine::with_home(home.path(""))),
            skill: None,
            clean: true,
            repair: true,
            strict: true,
            is_set: &|_| false,
        };
        let _report = doctor::examine_vault(vault, &doctor);
    }
}

/// Exchanges a folder with a link until it is told to end.
fn exchange(folder: &Path, link: &Path, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        // A command may just have removed the folder, to make it again later.
        let _both_there = renameat_with(CWD, folder, CWD, link, RenameFlags::EXCHANGE);
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Makes a folder outside that looks like one of the vault, with more in it.
fn outside(home: &Home, folder: &Path) -> PathBuf {
    let outside = home.path("outside");
    copy_folder(folder, &outside);
    for path in ["canary", "17/canary", "old.1.dir/canary"] {
        write(&outside.join(path), "theirs");
    }
    outside
}

fn nothing_outside_changes(seed: u64, folder: impl Fn(&Machines) -> String) {
    let mut machines = Machines::new(seed);
    let folder = machines.device.path("vault").join(folder(&machines));
    fs::create_dir_all(&folder).unwrap();
    let (outside, link) = (
        outside(&machines.device, &folder),
        folder.with_file_name("x"),
    );
    symlink(&outside, &link).unwrap();
    let before = snapshot(&outside);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&folder, &link, &end));
        for round in 1..=ROUNDS {
            machines.work(round);
        }
        end.store(true, Ordering::Relaxed);
    });
    assert_eq!(snapshot(&outside), before);
    if folder.is_symlink() {
        fs::remove_file(&folder).unwrap();
        fs::rename(&link, &folder).unwrap();
    } else {
        fs::remove_file(&link).unwrap();
    }
    machines.work(ROUNDS + 1);
    // The vault is as good as before.
    let (vault, selection) = (&machines.device.vault, Selection::default());
    machines.device.add("alpha", "last");
    machines
        .host
        .pull(vault, &machines.link, &selection)
        .unwrap();
    let names: Vec<_> = machines.device.listed().into_keys().collect();
    assert_eq!(names, ["alpha", "beta", "linked"]);
}

#[test]
fn nothing_is_made_or_removed_behind_a_link_in_place_of_tmp() {
    nothing_outside_changes(1, |_| "tmp".to_owned());
}

#[test]
fn nothing_is_made_or_removed_behind_a_link_in_place_of_skills() {
    nothing_outside_changes(2, |_| "skills".to_owned());
}

#[test]
fn nothing_is_made_or_removed_behind_a_link_in_place_of_the_store() {
    nothing_outside_changes(3, |_| "store".to_owned());
}

#[test]
fn nothing_is_made_or_removed_behind_a_link_in_place_of_profiles() {
    nothing_outside_changes(4, |_| "profiles".to_owned());
    nothing_outside_changes(5, |_| "profiles/claude-code".to_owned());
}

#[test]
fn nothing_is_made_or_removed_behind_a_link_in_place_of_transforms() {
    nothing_outside_changes(6, |_| "transforms".to_owned());
    nothing_outside_changes(7, |_| "transforms/alpha".to_owned());
}

#[test]
fn nothing_is_made_or_removed_behind_a_link_in_place_of_links() {
    nothing_outside_changes(8, |_| "links".to_owned());
    nothing_outside_changes(9, |machines| format!("links/{}", machines.link.id()));
    nothing_outside_changes(10, |machines| format!("links/{}/sets", machines.link.id()));
}
