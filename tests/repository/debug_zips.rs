//! docs/localstack.md: its quick way works as written in a fresh clone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::root;

const FUNCTIONS: [&str; 5] = ["oauth", "mcp", "admin", "devices", "catalog"];

/// The commands of the page's section about debug builds.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/localstack.md")).expect("the page");
    let (_, section) = page
        .split_once("## With a debug build")
        .expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let commands = section.lines().filter_map(|line| line.strip_prefix("$ "));
    commands.map(str::to_owned).collect()
}

/// A checkout with the scripts of this one, and functions that take a second to build.
fn clone() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debug-zips");
    let _ = fs::remove_dir_all(&place);
    let clone = place.join("clone");
    for folder in ["tests", "infra", "src/bin"] {
        fs::create_dir_all(clone.join(folder)).expect("a folder");
    }
    for script in ["tests/zips", "infra/common.sh"] {
        fs::copy(root().join(script), clone.join(script)).expect("a script");
    }
    let manifest = "[package]\nname = \"functions\"\nedition = \"2024\"\n\n[workspace]\n";
    fs::write(clone.join("Cargo.toml"), manifest).expect("a manifest");
    for function in FUNCTIONS {
        let program = clone.join("src/bin").join(function);
        fs::write(program.with_extension("rs"), "fn main() {}\n").expect("a program");
    }
    clone
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
fn the_quick_way_packs_what_cargo_built_wherever_that_is() {
    let commands = commands();
    let [build, pack, up] = commands.as_slice() else {
        panic!("three commands: {commands:?}");
    };
    let folder = pack.rsplit(' ').next().expect("a folder");
    assert_eq!(*up, format!("./localstack/up --zips {folder}"));
    let clone = clone();
    let elsewhere = clone.with_file_name("elsewhere");
    for target in [None, Some(elsewhere.as_path())] {
        let zips = clone.with_file_name("zips");
        let _ = fs::remove_dir_all(&zips);
        let pack = pack.replace(folder, &zips.to_string_lossy());
        let early = run(&clone, &pack, target);
        let said = String::from_utf8_lossy(&early.stderr);
        assert_eq!(early.status.code(), Some(2), "{said}");
        assert!(said.contains("run cargo build --workspace"), "{said}");
        for command in [build, &pack] {
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
