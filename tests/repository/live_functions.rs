//! Functions of a debug build, in a fresh clone: those that `localstack/up` deploys run what cargo
//! built, and `tests/zips` packs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::root;

const FUNCTIONS: [&str; 5] = ["oauth", "mcp", "admin", "devices", "catalog"];

/// The command that deploys a change, as docs/localstack.md gives it.
fn deploy_command() -> String {
    let page = fs::read_to_string(root().join("docs/localstack.md")).expect("the page");
    let (_, section) = page.split_once("## After a change").expect("the section");
    let command = section.lines().find_map(|line| line.strip_prefix("$ "));
    command.expect("a command").to_owned()
}

/// A checkout with the scripts of this one, and functions that take a second to build.
fn clone(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&place);
    let clone = place.join("clone");
    for folder in ["tests", "infra", "localstack", "src/bin"] {
        fs::create_dir_all(clone.join(folder)).expect("a folder");
    }
    for script in ["tests/zips", "infra/common.sh", "localstack/emulator.sh"] {
        fs::copy(root().join(script), clone.join(script)).expect("a script");
    }
    let manifest = "[package]\nname = \"vault-functions\"\nedition = \"2024\"\n\n[workspace]\n";
    fs::write(clone.join("Cargo.toml"), manifest).expect("a manifest");
    change(&clone, "before");
    clone
}

/// Lets every function print this word and its name.
fn change(clone: &Path, word: &str) {
    for function in FUNCTIONS {
        let program = clone.join("src/bin").join(function).with_extension("rs");
        let code = format!("fn main() {{ println!(\"{word} {function}\") }}\n");
        fs::write(program, code).expect("a program");
    }
}

/// Runs a command of the page where no folder for builds is chosen, or this one.
fn run(clone: &Path, command: &str, target: Option<&Path>) -> Output {
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).current_dir(clone);
    shell.env_remove("CARGO_TARGET_DIR");
    shell.env_remove("CARGO_BUILD_TARGET_DIR");
    if let Some(target) = target {
        shell.env("CARGO_TARGET_DIR", target);
    }
    shell.output().expect("bash")
}

#[test]
fn a_deployed_function_runs_what_cargo_built_last_wherever_that_is() {
    let clone = clone("live-functions");
    let elsewhere = clone.with_file_name("else where");
    for target in [None, Some(elsewhere.as_path())] {
        let zips = clone.with_file_name("zips");
        let _ = fs::remove_dir_all(&zips);
        let make = format!(
            "root=$PWD; . infra/common.sh; . localstack/emulator.sh; live_zips python3 \"$(cargo_target)/debug\" '{}'",
            zips.display()
        );
        let made = run(&clone, &make, target);
        assert!(made.status.success(), "{made:?}");
        for word in ["before", "after"] {
            change(&clone, word);
            let built = run(&clone, &deploy_command(), target);
            assert!(built.status.success(), "{built:?}");
            for function in FUNCTIONS {
                let unpack = format!(
                    "cd '{}' && python3 -m zipfile -e bootstrap.zip . && sh ./bootstrap",
                    zips.join(function).display()
                );
                // The emulator's environment says nothing about cargo.
                let ran = run(&clone, &unpack, None);
                let said = String::from_utf8_lossy(&ran.stdout);
                assert_eq!(said, format!("{word} {function}\n"), "{ran:?}");
            }
        }
    }
}

#[test]
fn a_debug_build_is_packed_wherever_cargo_put_it() {
    let clone = clone("debug-zips");
    let elsewhere = clone.with_file_name("elsewhere");
    let zips = clone.with_file_name("zips");
    let pack = format!("tests/zips '{}'", zips.display());
    for target in [None, Some(elsewhere.as_path())] {
        let _ = fs::remove_dir_all(&zips);
        let early = run(&clone, &pack, target);
        let said = String::from_utf8_lossy(&early.stderr);
        assert_eq!(early.status.code(), Some(2), "{said}");
        assert!(said.contains("run cargo build --workspace"), "{said}");
        for command in ["cargo build --workspace", &pack] {
            let done = run(&clone, command, target);
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{command}: {said}");
        }
        for function in FUNCTIONS {
            let zip = zips.join(function).join("bootstrap.zip");
            let bytes = fs::metadata(&zip).map_or(0, |found| found.len());
            assert!(bytes > 1000, "{} of {bytes} bytes", zip.display());
        }
    }
}
