//! `install.sh` in a checkout, with a small program in place of the real one.

use std::fs;
use std::path::Path;

use super::{installer, release::platform};
use crate::support::{Home, run_program};

/// Makes a checkout in `checkout` whose package `vault-cli` needs no other package.
fn write_checkout(home: &Home) {
    let files = [
        (
            "Cargo.toml",
            "[workspace]\nmembers = ['cli']\nresolver = '3'\n",
        ),
        (
            "Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"vault-cli\"\nversion = \"9.9.9\"\n",
        ),
        (
            "cli/Cargo.toml",
            "[package]\nname = 'vault-cli'\nversion = '9.9.9'\nedition = '2024'\n\
             [[bin]]\nname = 'vault'\npath = 'main.rs'\n",
        ),
        ("cli/main.rs", "fn main() { println!(\"vault 9.9.9\"); }\n"),
        ("shared/service/starter/one/SKILL.md", "x"),
    ];
    for (path, text) in files {
        home.write(&format!("checkout/{path}"), text);
    }
    fs::copy(installer(), home.path("checkout/install.sh")).unwrap();
}

#[test]
fn a_checkout_is_built_and_installed_whatever_the_settings_of_cargo_are() {
    let cargo = Path::new(env!("CARGO")).parent().unwrap().display();
    for settings in [
        String::new(),
        "[build]\ntarget-dir = 'elsewhere'\n".to_owned(),
        format!("[build]\ntarget = '{}'\n", platform()),
    ] {
        let home = Home::new();
        write_checkout(&home);
        home.write(".cargo/config.toml", &settings);
        let mut shell = home.command("/bin/sh");
        shell.env("PATH", format!("{cargo}:/usr/bin:/bin"));
        run_program(shell.arg("checkout/install.sh"));
        let mut installed = home.command(home.path(".local/bin/vault").to_str().unwrap());
        let output = installed.output().unwrap();
        assert_eq!(output.stdout, b"vault 9.9.9\n", "{settings}");
        let skill = home.path(".local/share/vault/skills/one/SKILL.md");
        assert!(skill.exists(), "{settings}");
    }
}
