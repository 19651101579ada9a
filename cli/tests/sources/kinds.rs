//! A skill has the same outcome, whether it comes from a folder, a repository or an archive.

use std::os::unix::fs::symlink;

use super::selection::Collection;
use super::*;

/// Adds the skill `pdf` of the collection in each form. Returns the exit code and the code of the
/// error, which are the same for all.
#[track_caller]
fn outcome(collection: &Collection, flags: &[&str]) -> (i32, String) {
    let outcomes = collection.sources().into_iter().map(|source| {
        let arguments = [&["add", &source, "--skill", "pdf", "--dry-run"], flags].concat();
        let ran = collection.machine.run(&arguments);
        // What the gate refuses is an answer of a dry run, and no error.
        let entries = ran.json["data"].as_array().into_iter().flatten();
        let mut blocked = entries.filter(|entry| entry["outcome"] == "blocked");
        let judged = blocked.next().map_or("taken", |_| "gate_blocked");
        let code = ran.json["error"]["code"].as_str().unwrap_or(judged);
        (
            (ran.code, code.to_owned()),
            format!("{source}: {}", ran.out),
        )
    });
    let outcomes: Vec<_> = outcomes.collect();
    for (other, text) in &outcomes[1..] {
        assert_eq!(*other, outcomes[0].0, "{}\n{text}", outcomes[0].1);
    }
    outcomes[0].0.clone()
}

/// Puts something into the skill `pdf`.
type Plant<'a> = &'a dyn Fn(&Collection);

fn two_skills() -> Collection {
    Collection::of_skills(&[("pdf/SKILL.md", "pdf"), ("csv/SKILL.md", "csv")])
}

#[test]
fn a_skill_that_is_refused_is_refused_alike() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let write_many = |collection: &Collection, number: usize| {
        for at in 1..number {
            collection.repository.write(&format!("pdf/{at}"), "x");
        }
    };
    let plants: [(&str, Plant<'_>, (i32, &str)); 7] = [
        ("a good skill", &|_| {}, (0, "taken")),
        (
            "a link inside",
            &|c| symlink("SKILL.md", c.repository.path().join("pdf/x")).unwrap(),
            (5, "symlink"),
        ),
        (
            "a link out",
            &|c| symlink("/etc/passwd", c.repository.path().join("pdf/x")).unwrap(),
            (5, "symlink"),
        ),
        (
            "a pointer of Git LFS",
            &|c| {
                c.repository.write("pdf/big.bin", pointer);
            },
            (5, "gate_blocked"),
        ),
        (
            "as many files as a skill may have",
            &|c| write_many(c, 1_024),
            (0, "taken"),
        ),
        (
            "one file more",
            &|c| write_many(c, 1_025),
            (1, "source_too_large"),
        ),
        (
            "a large file",
            &|c| {
                c.repository.write("pdf/big.bin", vec![7; (4 << 20) + 1]);
            },
            (1, "source_too_large"),
        ),
    ];
    for (what, plant, (exit, code)) in plants {
        let collection = two_skills();
        plant(&collection);
        assert_eq!(outcome(&collection, &[]), (exit, code.to_owned()), "{what}");
        // It stops no other skill.
        for source in collection.sources() {
            let ran = collection
                .machine
                .run(&["add", &source, "--all", "--dry-run"]);
            let taken = ran.json["data"].as_array().unwrap().iter();
            let mut taken = taken.filter(|entry| entry["admission"].is_string());
            assert!(
                taken.any(|entry| entry["name"] == "csv"),
                "{what}: {}",
                ran.out
            );
        }
    }
}

#[test]
fn a_link_to_the_folder_of_a_skill_is_left_out() {
    let collection = two_skills();
    let folder = collection.repository.path();
    std::fs::create_dir(folder.join("plugin")).unwrap();
    for (target, link) in [
        ("csv", "copy"),
        ("../pdf", "plugin/pdf"),
        ("..", "plugin/up"),
    ] {
        symlink(target, folder.join(link)).unwrap();
    }
    // Another program may write it so.
    collection
        .repository
        .write("low/real/skill.md", skill_md("low"));
    symlink("real", folder.join("low/link")).unwrap();
    for flags in [&[][..], &["--copy-links"]] {
        for source in collection.sources() {
            let arguments = [&["add", &source, "--all", "--dry-run"], flags].concat();
            let ran = collection.machine.run(&arguments);
            let entries = ran.json["data"].as_array().unwrap();
            let links = entries.iter().filter(|entry| entry["reason"] == "link");
            let mut links: Vec<_> = links.map(|entry| entry["path"].as_str().unwrap()).collect();
            links.sort_unstable();
            assert_eq!(links, ["copy", "low/link", "plugin/pdf"], "{}", ran.out);
            assert_eq!(entries.len(), 6, "{}", ran.out);
        }
    }
    // One that is named has the reason.
    for source in collection.sources() {
        let named = collection
            .machine
            .run(&["add", &source, "--skill", "./copy"]);
        let error = named.fails(2, "skill_not_in_source");
        assert!(
            error["message"].to_string().contains("symbolic link"),
            "{error}"
        );
    }
}

#[test]
fn a_source_of_which_nothing_can_be_taken_says_what_it_has() {
    let collection = Collection::new(&[
        ("README.md", "x"),
        ("target/pdf/SKILL.md", &skill_md("pdf")),
    ]);
    for source in collection.sources() {
        for flags in [&["--all"][..], &[]] {
            let ran = collection.machine.run(&[&["add", &source], flags].concat());
            let left_out = &ran.json["data"]["left_out"];
            assert_eq!(
                left_out[0]["path"], "target/pdf",
                "{source} {flags:?}: {}",
                ran.out
            );
            ran.fails(1, "source_not_found");
        }
        let named = collection.machine.run(&["add", &source, "--skill", "pdf"]);
        let error = named.fails(2, "skill_not_in_source");
        assert!(
            error["message"].to_string().contains("generated"),
            "{error}"
        );
        let other = collection.machine.run(&["add", &source, "--skill", "csv"]);
        let error = other.fails(2, "skill_not_in_source");
        assert!(error["hint"].to_string().contains("target/pdf"), "{error}");
    }
}

#[test]
fn a_path_names_a_folder_or_its_skill_md() {
    let collection = two_skills();
    for source in collection.sources() {
        let dry = |path: &str| {
            let arguments = ["add", &source, "--path", path, "--dry-run"];
            collection.machine.run(&arguments)
        };
        for path in ["pdf", "./pdf/", "pdf/SKILL.md"] {
            let taken = dry(path).ok();
            assert_eq!(taken[0]["name"], "pdf", "{source} {path}: {taken}");
        }
        dry("/etc").fails(2, "source_invalid");
        dry(".").fails(2, "no_tty");
    }
    // The folder around all files of an archive may be named too.
    let home = &collection.machine.home;
    home.write("around/w/skills/a/SKILL.md", skill_md("a"));
    home.write("around/w/skills/b/SKILL.md", skill_md("b"));
    let mut tar = Command::new("tar");
    let tar = tar.arg("-czf").arg(home.path("w.tar.gz")).arg("-C");
    run_program(tar.arg(home.path("around")).arg("w"));
    let archive = home.path("w.tar.gz").display().to_string();
    for path in ["w/skills/a", "skills/a"] {
        let dry = ["add", &archive, "--path", path, "--dry-run"];
        let taken = collection.machine.run(&dry).ok();
        assert_eq!(taken[0]["name"], "a", "{path}");
    }
}

#[test]
fn a_reference_that_is_a_branch_and_a_tag_is_a_question() {
    let collection = two_skills();
    let repository = &collection.repository;
    repository.commit();
    repository.git(&["tag", "--annotate", "--message=x", "rel"]);
    repository.git(&["tag", "same"]);
    repository.git(&["branch", "same"]);
    repository.write("pdf/more.md", "x").commit();
    repository.git(&["branch", "rel"]);
    let add = |reference: &str| {
        let source = format!("{}#{reference}", repository.address());
        let arguments = ["add", &source, "--skill", "pdf", "--dry-run"];
        collection.machine.run(&arguments)
    };
    let error = add("rel").fails(2, "source_invalid");
    let hint = error["hint"].as_str().unwrap();
    assert!(
        hint.contains("#refs/heads/rel") && hint.contains("#refs/tags/rel"),
        "{hint}"
    );
    for (reference, files) in [("refs/tags/rel", 1), ("refs/heads/rel", 2), ("same", 1)] {
        let taken = add(reference).ok();
        let found = taken[0]["files"].as_array().map(Vec::len);
        assert_eq!(found, Some(files), "{reference}: {taken}");
    }
}

#[test]
fn a_source_that_the_policy_forbids_is_no_fault_of_the_network() {
    let collection = two_skills();
    let repository = collection.sources().remove(0);
    let machine = &collection.machine;
    machine.run(&["add", &repository, "--skill", "pdf"]).ok();
    machine.policy("[sources]\nallow = [\"github.com/acme/*\"]\n");
    collection.repository.write("pdf/more.md", "x").commit();
    let outdated = machine.run(&["outdated"]);
    assert_eq!(outdated.code, 5, "{}", outdated.out);
    assert_eq!(outdated.json["data"]["errors"][0]["name"], "pdf");
    machine.run(&["update"]).fails(5, "source_refused");
}

#[test]
fn flags_that_contradict_each_other_or_have_no_effect_are_said() {
    let machine = Machine::new();
    let rule = "download-pipe-shell";
    for name in ["pdf", "csv"] {
        let folder = format!("project/all/{name}");
        machine
            .home
            .write(&format!("{folder}/SKILL.md"), skill_md(name));
        machine.home.write(&format!("{folder}/.env"), "A=1\n");
    }
    let add = |flags: &[&str]| machine.run(&[&["add", "./all"], flags].concat());
    let both = [
        "--skill",
        "pdf",
        "--allow",
        rule,
        "--reason",
        "x",
        "--end-exception",
        rule,
    ];
    add(&both).fails(2, "usage");
    add(&["--all", "--include", ".env"]).fails(2, "usage");
    for flags in [
        &["--allow", rule, "--reason", "x"][..],
        &["--end-exception", rule],
    ] {
        let added = add(&[&["--skill", "pdf"], flags].concat());
        let warnings = added.json["warnings"].as_array().unwrap().clone();
        let is_idle = |warning: &Value| warning["code"] == "exception_unused";
        assert!(warnings.iter().any(is_idle), "{flags:?}: {}", added.out);
        added.ok();
    }
}

/// macOS puts such a space into the names of its screenshots.
#[test]
fn a_file_name_that_cannot_be_stored_stops_its_own_skill_alone() {
    let collection = two_skills();
    let name = "pdf/Screenshot at 9.41\u{202f}AM.png";
    collection.repository.write(name, "x");
    assert_eq!(outcome(&collection, &[]), (5, "gate_blocked".to_owned()));
    for source in collection.sources() {
        let all = ["add", &source, "--all", "--dry-run"];
        let ran = collection.machine.run(&all);
        let entries = ran.json["data"].as_array().unwrap().iter();
        let taken = entries.filter(|entry| entry["admission"].is_string());
        let taken: Vec<_> = taken.map(|entry| &entry["name"]).collect();
        assert_eq!(taken, ["csv"], "{source}: {}", ran.out);
    }
}
