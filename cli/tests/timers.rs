//! `vault cloud pull --every`, with a service manager that writes down what it is asked.
#![cfg(target_os = "linux")]

use crate::support::{Ended, Home};

/// A home with a vault and a `systemctl` that ends with this code.
fn home(code: u8) -> Home {
    let home = Home::new();
    home.skill("good", "Does good. Use when good is to be done.");
    home.run(&["add", "./good"]).ok();
    let calls = home.path("calls");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> '{}'\nexit {code}\n",
        calls.display()
    );
    home.write_executable("bin/systemctl", &script);
    home
}

fn every(home: &Home, interval: &str) -> Ended {
    let mut command = home.vault(&["cloud", "pull", "--every", interval, "--json"]);
    let path = format!("{}:/usr/bin:/bin", home.path("bin").display());
    Ended::of(command.env("PATH", path))
}

const TIMER: &str = ".config/systemd/user/vault-pull.timer";
const SERVICE: &str = ".config/systemd/user/vault-pull.service";

#[test]
fn a_timer_is_written_started_changed_and_removed() {
    let home = home(0);
    let data = every(&home, "1h").ok();
    assert_eq!(data["every_seconds"], 3_600);
    assert!(home.read(TIMER).contains("OnUnitActiveSec=3600s\n"));
    let vault = home.path(".vault");
    assert!(home.read(SERVICE).contains(vault.to_str().unwrap()));
    every(&home, "1d").ok();
    assert!(home.read(TIMER).contains("OnUnitActiveSec=86400s\n"));
    every(&home, "off").ok();
    assert!(!home.path(TIMER).exists() && !home.path(SERVICE).exists());
    let calls = home.read("calls");
    let started =
        "--user daemon-reload\n--user enable vault-pull.timer\n--user restart vault-pull.timer\n";
    let stopped = "--user disable --now vault-pull.timer\n";
    assert_eq!(calls, format!("{started}{started}{stopped}"));
    // Nothing is asked where there is no timer.
    every(&home, "off").ok();
    assert_eq!(home.read("calls"), calls);
}

#[test]
fn a_timer_that_does_not_start_leaves_no_files() {
    let home = home(1);
    every(&home, "1h").fails(1, "timer_not_changed");
    assert!(!home.path(TIMER).exists() && !home.path(SERVICE).exists());
}

#[test]
fn a_timer_is_removed_after_its_vault_is_gone() {
    let home = home(0);
    every(&home, "1h").ok();
    for folder in [".vault", ".config/vault"] {
        std::fs::remove_dir_all(home.path(folder)).unwrap();
    }
    every(&home, "off").ok();
    assert!(!home.path(TIMER).exists() && !home.path(SERVICE).exists());
}
