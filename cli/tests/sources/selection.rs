//! What `vault add` takes of a source that has several skills. The flags mean the same for a
//! folder, a repository and an archive, and each listed skill is taken, refused or left out.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;

use super::*;

/// A collection in all its forms: folder, repository and archive.
pub(super) struct Collection {
    pub(super) machine: Machine,
    pub(super) repository: Repository,
}

impl Collection {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let repository = Repository::new();
        for (path, text) in files {
            repository.write(path, text);
        }
        Self {
            machine: Machine::new(),
            repository,
        }
    }

    /// A collection of skills at these paths of SKILL.md files, each with its own name.
    pub(super) fn of_skills(skills: &[(&str, &str)]) -> Self {
        let collection = Self::new(&[]);
        for (path, name) in skills {
            collection.repository.write(path, skill_md(name));
        }
        collection
    }

    pub(super) fn sources(&self) -> Vec<String> {
        self.repository.commit();
        let folder = self.repository.path();
        let archive = self.machine.home.path("collection.tar.gz");
        let mut tar = Command::new("tar");
        run_program(
            tar.args(["--exclude=.git", "-czf"])
                .arg(&archive)
                .arg("-C")
                .arg(folder)
                .arg("."),
        );
        vec![
            self.repository.address(),
            folder.display().to_string(),
            archive.display().to_string(),
        ]
    }

    /// Asserts what a dry run with these flags takes, for each form of the source: the names of the
    /// skills, or the code of the error.
    #[track_caller]
    fn takes(&self, flags: &[&str], expected: Result<&[&str], &str>) {
        for source in self.sources() {
            let ran = self
                .machine
                .run(&[&["add", &source, "--dry-run"], flags].concat());
            let found = match ran.json["error"]["code"].as_str() {
                Some(code) => {
                    assert_eq!(ran.code, 2, "{source} {flags:?}: {}", ran.out);
                    Err(code)
                }
                None => Ok(names_of(&ran.json["data"])),
            };
            let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()));
            let expected = expected.map(Iterator::collect::<BTreeSet<String>>);
            assert_eq!(found, expected, "{source} {flags:?}: {}", ran.out);
        }
    }
}

/// The names of the skills that a dry run would add.
fn names_of(data: &Value) -> BTreeSet<String> {
    let all = data.as_array().expect("data is always a list").iter();
    let judged = all.filter(|entry| entry["outcome"].is_string());
    // A skill whose SKILL.md cannot be read has no name.
    let names = judged.map(|entry| {
        let name = entry["name"].as_str().or(entry["source"].as_str());
        name.unwrap().to_owned()
    });
    names.collect()
}

#[test]
fn a_selection_takes_what_it_names_and_nothing_else() {
    let rooted = Collection::of_skills(&[("SKILL.md", "top"), ("skills/inner/SKILL.md", "own")]);
    rooted.takes(&[], Ok(&["top"]));
    rooted.takes(&["--all"], Ok(&["top", "own"]));
    for name in ["own", "inner", "skills/inner", "./skills/inner"] {
        rooted.takes(&["--skill", name], Ok(&["own"]));
    }
    for path in ["skills", "skills/inner/"] {
        rooted.takes(&["--path", path], Ok(&["own"]));
        rooted.takes(&["--path", path, "--skill", "own"], Ok(&["own"]));
    }
    rooted.takes(&["--skill", "."], Ok(&["top"]));
    rooted.takes(&["--skill", "other"], Err("skill_not_in_source"));
    // A SKILL.md is one skill, whatever lies beside it.
    let document = rooted.repository.path().join("SKILL.md");
    let document = document.to_str().unwrap();
    let run = |flags: &[&str]| {
        let all = [&["add", document, "--dry-run"], flags].concat();
        rooted.machine.run(&all)
    };
    run(&["--skill", "own"]).fails(2, "skill_not_in_source");
    assert_eq!(names_of(&run(&["--all"]).ok()), ["top".to_owned()].into());
}

#[test]
fn a_name_that_fits_two_skills_is_refused_with_both_folders() {
    let two = Collection::of_skills(&[
        ("a/cc/SKILL.md", "cc"),
        ("b/dd/SKILL.md", "cc"),
        ("c/ee/SKILL.md", "dd"),
    ]);
    for (name, folders) in [("cc", ["a/cc", "b/dd"]), ("dd", ["b/dd", "c/ee"])] {
        two.takes(&["--skill", name], Err("skill_ambiguous"));
        let source = two.repository.path().to_str().unwrap();
        let ran = two.machine.run(&["add", source, "--skill", name]);
        assert_eq!(ran.json["data"]["skills"], json!(folders));
        for folder in folders {
            assert!(ran.json["error"]["message"].to_string().contains(folder));
        }
    }
    two.takes(&["--skill", "b/dd"], Ok(&["cc"]));
    two.takes(&["--skill", "ee"], Ok(&["dd"]));
}

#[test]
fn a_document_in_any_case_of_letters_is_a_skill() {
    let cases = Collection::of_skills(&[
        ("a/SKILL.md", "a"),
        ("b/skill.md", "b"),
        ("c/Skill.md", "c"),
    ]);
    cases.takes(&["--all"], Ok(&["a", "b", "c"]));
    cases.takes(&["--skill", "b"], Ok(&["b"]));
    let document = cases.repository.path().join("b/skill.md");
    let added = cases.machine.run(&["add", document.to_str().unwrap()]).ok();
    assert_eq!(added["added"][0]["name"], "b");
}

#[test]
fn a_plugin_selects_the_same_skills_in_every_form_of_a_marketplace() {
    let market = r#"{"name":"m","plugins":[
        {"name":"own","source":"./plugins/own"},
        {"name":"file","source":"./","strict":false,"skills":["./skills/bb/SKILL.md"]},
        {"name":"more","source":"./plugins/more"},
        {"name":"plain","source":"./plugins/more","strict":false},
        {"name":"single","source":"./plugins/single"},
        {"name":"empty","source":"./docs"}]}"#;
    // Editors on Windows begin a file with a mark of the encoding.
    let market = format!("\u{feff}{market}");
    let collection = Collection::new(&[
        (".claude-plugin/marketplace.json", &market),
        (
            "plugins/more/.claude-plugin/plugin.json",
            r#"{"name":"more","skills":["./lib/","extra/dd"]}"#,
        ),
        ("docs/a.md", "a"),
    ]);
    for (path, name) in [
        ("plugins/own/skills/aa/SKILL.md", "aa"),
        ("skills/bb/SKILL.md", "bb"),
        ("skills/bb/examples/in/SKILL.md", "in"),
        ("plugins/more/lib/cc/SKILL.md", "cc"),
        ("plugins/more/extra/dd/SKILL.md", "dd"),
        ("plugins/more/extra/not/SKILL.md", "not"),
        ("plugins/more/skills/ee/SKILL.md", "ee"),
        ("plugins/single/SKILL.md", "single"),
    ] {
        collection.repository.write(path, skill_md(name));
    }
    for (plugin, names) in [
        ("own", &["aa"][..]),
        ("file", &["bb"]),
        ("more", &["cc", "dd", "ee"]),
        ("plain", &["ee"]),
        ("single", &["single"]),
    ] {
        collection.takes(&["--plugin", plugin, "--all"], Ok(names));
    }
    collection.takes(&["--plugin", "more", "--skill", "dd"], Ok(&["dd"]));
    // `--path` names the folder of the marketplace, in every form of a source that has paths.
    let inner = r#"{"name":"i","plugins":[{"name":"own","source":"./parts"}]}"#;
    let write = |path: &str, text: &str| collection.repository.write(path, text);
    write("inner/.claude-plugin/marketplace.json", inner);
    write("inner/parts/skills/ff/SKILL.md", &skill_md("ff"));
    let of_inner = ["--path", "inner", "--plugin", "own", "--all"];
    collection.takes(&of_inner, Ok(&["ff"]));
    collection.takes(
        &["--plugin", "own", "--skill", "bb"],
        Err("skill_not_in_source"),
    );
    for source in collection.sources() {
        for plugin in ["empty", "other"] {
            let ran = collection
                .machine
                .run(&["add", &source, "--plugin", plugin, "--all"]);
            ran.fails(1, "source_not_found");
        }
    }
}

#[test]
fn one_bad_skill_stops_no_other_and_is_named() {
    let collection = Collection::of_skills(&[
        ("good/SKILL.md", "good"),
        ("linked/SKILL.md", "linked"),
        ("fine/SKILL.md", "fine"),
    ]);
    symlink(
        "/etc/passwd",
        collection.repository.path().join("linked/out.md"),
    )
    .unwrap();
    for source in collection.sources() {
        let machine = Machine::new();
        let ran = machine.run(&["add", &source, "--all"]);
        assert_eq!(ran.code, 1, "{source}: {}", ran.out);
        let data = &ran.json["data"];
        let added = data["added"].as_array().unwrap().iter();
        let added: BTreeSet<_> = added.map(|skill| skill["name"].as_str().unwrap()).collect();
        assert_eq!(added, ["fine", "good"].into(), "{source}");
        let failed = data["failed"].as_array().unwrap();
        assert_eq!(failed.len(), 1, "{source}: {}", ran.out);
        let text = failed[0].to_string();
        assert!(
            text.contains("linked") && text.contains("symbolic link"),
            "{text}"
        );
    }
}

#[test]
fn a_pointer_of_git_lfs_is_refused_by_the_name_of_its_file() {
    let collection = Collection::of_skills(&[("good/SKILL.md", "good"), ("big/SKILL.md", "big")]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    collection.repository.write("big/model.bin", pointer);
    for source in collection.sources() {
        let machine = Machine::new();
        let ran = machine.run(&["add", &source, "--all"]);
        assert_ne!(ran.code, 0, "{source}: {}", ran.out);
        let data = &ran.json["data"];
        assert_eq!(data["added"][0]["name"], "good", "{source}: {}", ran.out);
        let failed = data["failed"][0].to_string();
        assert!(failed.contains("model.bin"), "{source}: {failed}");
    }
}

#[test]
fn a_link_to_a_file_of_the_same_skill_is_copied_only_if_asked() {
    let collection = Collection::of_skills(&[("docs/SKILL.md", "docs")]);
    collection.repository.write("docs/AGENTS.md", "Read this.");
    let link = collection.repository.path().join("docs/CLAUDE.md");
    symlink("AGENTS.md", link).unwrap();
    for source in collection.sources() {
        let machine = Machine::new();
        let refused = machine.run(&["add", &source, "--all"]);
        assert_ne!(refused.code, 0, "{source}");
        let hint = refused.json["error"]["hint"].to_string();
        assert!(hint.contains("--copy-links"), "{source}: {}", refused.out);
        let added = machine.run(&["add", &source, "--all", "--copy-links"]).ok();
        let findings = added["added"][0]["findings"].to_string();
        assert!(findings.contains("link-copied"), "{source}: {findings}");
        let copy = machine.skill("docs").join("CLAUDE.md");
        assert!(!copy.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(copy).unwrap(), "Read this.");
        if source.ends_with("tar.gz") {
            continue;
        }
        // The source still compares as equal, and an update takes the link as a copy again.
        assert_eq!(machine.run(&["outdated"]).code, 0, "{source}");
        collection.repository.write("docs/AGENTS.md", &source);
        collection.repository.commit();
        machine.run(&["update"]).ok();
        let copy = machine.skill("docs").join("CLAUDE.md");
        assert_eq!(std::fs::read_to_string(copy).unwrap(), source);
        // Another link to the same folder does not make it another place.
        let second = collection.repository.path().join("docs/GEMINI.md");
        symlink("AGENTS.md", &second).unwrap();
        collection.repository.commit();
        machine.run(&["update"]).ok();
        let copy = machine.skill("docs").join("GEMINI.md");
        assert_eq!(std::fs::read_to_string(copy).unwrap(), source);
        std::fs::remove_file(second).unwrap();
        collection.repository.write("docs/AGENTS.md", "Read this.");
        collection.repository.commit();
    }
}

#[test]
fn entries_that_cannot_be_taken_are_failures_of_all() {
    let site = SiteServer::new();
    let pdf = skill_md("pdf");
    let bad = listed("a/b", &pdf);
    let twice = listed("dup", &pdf);
    site.index(
        &[&listed("pdf", &pdf), &bad, &twice, &twice, &twice]
            .map(String::as_str)
            .join(","),
    )
    .text("/pdf/SKILL.md", &pdf);
    let machine = Machine::new();
    let ran = machine.run(&["add", &site.base, "--all"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    let data = &ran.json["data"];
    assert_eq!(data["added"].as_array().unwrap().len(), 1, "{}", ran.out);
    assert_eq!(data["failed"].as_array().unwrap().len(), 4, "{}", ran.out);
    // Naming one skill does not ask for the others.
    let machine = Machine::new();
    machine.run(&["add", &site.base, "--skill", "pdf"]).ok();
}

#[test]
fn a_folder_without_skills_names_what_it_leaves_out() {
    let collection = Collection::of_skills(&[("real/a/SKILL.md", "a"), ("coll/b/SKILL.md", "b")]);
    let folder = collection.repository.path();
    symlink("../real/a", folder.join("coll/linked")).unwrap();
    let source = folder.join("coll").display().to_string();
    let machine = &collection.machine;
    let added = machine.run(&["add", &source, "--all"]).ok();
    let left_out = &added["left_out"];
    assert_eq!(left_out[0]["path"], "linked", "{left_out}");
    assert_eq!(left_out[0]["reason"], "link");
    std::fs::remove_dir_all(folder.join("coll/b")).unwrap();
    let ran = machine.run(&["add", &source, "--all"]);
    let left_out = &ran.json["data"]["left_out"];
    assert_eq!(left_out[0]["reason"], "link", "{}", ran.out);
    ran.fails(1, "source_not_found");
}

#[test]
fn a_lock_names_no_folder_whose_links_were_copied() {
    let machine = Machine::new();
    machine
        .home
        .write("project/docs/SKILL.md", skill_md("docs"));
    machine.home.write("project/docs/AGENTS.md", "Read this.");
    let link = machine.home.path("project/docs/CLAUDE.md");
    symlink("AGENTS.md", link).unwrap();
    let refused = machine.run(&["add", "./docs", "--project", "--copy-links"]);
    refused.fails(2, "usage");
    assert!(!machine.home.path(".vault").exists());
    machine.run(&["add", "./docs", "--copy-links"]).ok();
}

#[test]
fn a_source_that_names_a_skill_takes_no_flag_for_others() {
    let machine = Machine::new();
    for flags in [&["--all"][..], &["--skill", "pdf"]] {
        let run = machine.run(&[&["add", "github:acme/skills@csv"], flags].concat());
        run.fails(2, "usage");
    }
    machine.home.write("project/lock.json", "{}");
    let run = machine.run(&["add", "--from-lock", "lock.json", "--all"]);
    run.fails(2, "usage");
}

/// The path of each skill, with the reason and its words for those that are left out.
type Listed = BTreeMap<String, Option<(String, String)>>;

#[test]
fn what_is_listed_is_taken_refused_or_left_out_as_the_audit_sees_it() {
    let collection = Collection::of_skills(&[
        ("a/one/SKILL.md", "one"),
        ("a/one/examples/in/SKILL.md", "in"),
        ("target/copy/SKILL.md", "copy"),
        (".venv/lib/tool/SKILL.md", "tool"),
        ("__MACOSX/pdf/SKILL.md", "pdf"),
        ("a/b/c/d/e/f/g/h/deep/SKILL.md", "deep"),
        ("node_modules/x/SKILL.md", "x"),
        ("lower/skill.md", "lower"),
        // A folder may have any name that can be recorded, as in a monorepo of JavaScript.
        ("sp ace/SKILL.md", "space"),
        ("@acme/pdf/SKILL.md", "acme"),
        ("ab:c?d#e/100%20/SKILL.md", "marks"),
        ("zero\u{200b}width/SKILL.md", "zero"),
    ]);
    collection.repository.write("broken/SKILL.md", "no skill");
    let folder = collection.repository.path();
    symlink("a/one", folder.join("link")).unwrap();
    // A link named SKILL.md makes its folder a skill that is refused, wherever it leads.
    std::fs::create_dir(folder.join("odd")).unwrap();
    symlink("../a/one", folder.join("odd/SKILL.md")).unwrap();
    let sources = collection.sources();
    let audit = collection.machine.run(&["audit-repo", &sources[1]]);
    let left_out = |entry: &Value| {
        let text = |member: &str| entry[member].as_str().unwrap().to_owned();
        (text("path"), Some((text("reason"), text("message"))))
    };
    let data = &audit.json["data"];
    let judged = data["skills"].as_array().unwrap().iter();
    let judged = judged.chain(data["skipped"].as_array().unwrap());
    let judged = judged.map(|skill| (skill["path"].as_str().unwrap().to_owned(), None));
    let not_judged = data["left_out"].as_array().unwrap().iter().map(left_out);
    let audited: Listed = judged.chain(not_judged).collect();
    assert_eq!(audited.len(), 14, "{}", audit.out);
    assert_eq!(data["summary"]["left_out"], 5, "{}", audit.out);
    for source in sources {
        let ran = collection
            .machine
            .run(&["add", &source, "--all", "--dry-run"]);
        let entries = ran.json["data"].as_array().unwrap().iter();
        let listed = entries.map(|entry| {
            if entry["reason"].is_string() && entry["code"].is_null() {
                return left_out(entry);
            }
            // The path of a failure is its folder, and that of a judged skill its label.
            if entry["code"].is_string() {
                return (entry["path"].as_str().unwrap().to_owned(), None);
            }
            let label = entry["source"].as_str().unwrap();
            let inside = label.strip_prefix(&format!("{source}/")).or_else(|| {
                let (_, inside) = label.rsplit_once(" (")?;
                inside.strip_suffix(')')
            });
            (inside.unwrap_or(label).to_owned(), None)
        });
        let listed: Listed = listed.collect();
        assert_eq!(listed, audited, "{source}: {}", ran.out);
        let taken = names_of(&ran.json["data"]).len();
        assert_eq!(taken, 7, "{source}: {}", ran.out);
    }
}

#[test]
fn a_source_with_more_skills_than_a_command_takes_needs_the_number() {
    let many: Vec<(String, String)> = (0..2_001)
        .map(|at| (format!("s/s{at}/SKILL.md"), format!("s{at}")))
        .collect();
    let many: Vec<_> = many
        .iter()
        .map(|(path, name)| (&path[..], &name[..]))
        .collect();
    let collection = Collection::of_skills(&many);
    let source = collection.repository.path().to_str().unwrap();
    let run = |flags: &[&str]| {
        let all = [&["add", source, "--dry-run"], flags].concat();
        collection.machine.run(&all)
    };
    let refused = run(&["--all"]).fails(2, "too_many_skills");
    assert!(refused["hint"].to_string().contains("--max-skills 2001"));
    assert_eq!(
        run(&["--skill", "s2000"]).code,
        0,
        "one skill is not too many"
    );
    let taken = run(&["--all", "--max-skills", "2001"]).ok();
    assert_eq!(names_of(&taken).len(), 2_001);
    run(&["--all", "--max-skills", "0"]).fails(2, "usage");
}

#[test]
fn an_entry_of_a_lock_installs_no_other_skill_than_it_names() {
    let several = Collection::of_skills(&[("SKILL.md", "top"), ("skills/inner/SKILL.md", "inner")]);
    let below = Collection::of_skills(&[("only/SKILL.md", "evil")]);
    let root = Collection::of_skills(&[("SKILL.md", "top")]);
    for (collection, name, inside, is_installed) in [
        (&several, "inner", "", true),
        (&several, "other", "//skills/inner", true),
        (&several, "other", "", false),
        (&below, "evil", "", true),
        (&below, "other", "", false),
        (&below, "other", "//only", true),
        // The repository itself is the skill, which may have another name here.
        (&root, "other", "", true),
    ] {
        collection.repository.commit();
        let address = collection.repository.address();
        let machine = Machine::new();
        let entry = format!("[[skill]]\nname = \"{name}\"\nsource = \"git:{address}{inside}\"\n");
        let lock = format!("schema = 1\n\n{entry}");
        machine.home.write("project/vault.lock", lock);
        let ran = machine.run(&["install"]);
        assert_eq!(ran.code == 0, is_installed, "{name} {inside}: {}", ran.out);
    }
}

#[test]
fn a_path_follows_no_link_out_of_a_folder() {
    let collection = Collection::of_skills(&[("skills/pdf/SKILL.md", "pdf")]);
    let other = Collection::of_skills(&[("deep/csv/SKILL.md", "csv")]);
    let folder = collection.repository.path();
    symlink(other.repository.path(), folder.join("out")).unwrap();
    let source = folder.to_str().unwrap();
    let add = |path: &str| {
        let machine = &collection.machine;
        machine.run(&["add", source, "--path", path])
    };
    for path in ["out", "out/deep", "out/deep/csv"] {
        let refused = add(path).fails(2, "source_invalid");
        assert!(refused.to_string().contains("symbolic link"), "{path}");
    }
    assert!(!collection.machine.home.path(".vault").exists());
    add("skills").ok();
    assert!(collection.machine.skill("pdf").exists());
}

#[test]
fn an_agent_that_nobody_knows_is_refused() {
    let collection = Collection::of_skills(&[("a/SKILL.md", "a")]);
    let source = collection.repository.path().to_str().unwrap();
    let run = |agent: &str| collection.machine.run(&["add", source, "--agent", agent]);
    run("nosuchagent").fails(2, "usage");
    run("claude-cod").fails(2, "usage");
    run("claude-code").ok();
}

#[test]
fn a_modified_or_removed_skill_is_not_reported_as_one_without_a_source() {
    let collection = Collection::of_skills(&[
        ("a/pdf/SKILL.md", "pdf"),
        ("a/csv/SKILL.md", "csv"),
        ("a/xls/SKILL.md", "xls"),
    ]);
    let source = &collection.sources()[0];
    let machine = &collection.machine;
    machine.run(&["add", source, "--all"]).ok();
    // Moved within the repository, and gone from it.
    let old = collection.repository.path().join("a/csv");
    std::fs::create_dir(collection.repository.path().join("b")).unwrap();
    std::fs::rename(old, collection.repository.path().join("b/csv")).unwrap();
    std::fs::remove_dir_all(collection.repository.path().join("a/xls")).unwrap();
    collection.repository.commit();
    let outdated = machine.run(&["outdated"]);
    assert_eq!(outdated.code, 3, "{}", outdated.out);
    let removed = outdated.json["data"]["removed"].as_array().unwrap();
    let reasons: Vec<String> = removed
        .iter()
        .map(|skill| skill["reason"].to_string())
        .collect();
    assert_eq!(reasons.len(), 2, "{}", outdated.out);
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("is now in b/csv")),
        "{reasons:?}"
    );
    machine.run(&["update", "csv"]).fails(3, "source_removed");
    std::fs::write(machine.skill("pdf").join("mine.txt"), "mine").unwrap();
    let updated = machine.run(&["update", "pdf"]).fails(6, "skill_damaged");
    assert!(!updated.to_string().contains("without a source"));
    assert_eq!(machine.run(&["outdated", "pdf"]).code, 6);
    assert_eq!(machine.run(&["update"]).code, 6, "with the others too");
}

/// `vault show FOLDER` finds the skill that `vault add FOLDER` would take.
#[test]
fn show_of_a_folder_finds_the_skill_that_add_would_take() {
    let shown = |collection: &Collection| {
        let folder = collection.repository.path().to_str().unwrap().to_owned();
        let ran = collection.machine.run(&["show", &folder]);
        (folder, ran)
    };
    let left_out = |data: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = data["left_out"].as_array().unwrap().iter();
        all.map(|left| (text(&left["path"]), text(&left["reason"])))
            .collect()
    };
    let generated = ("target/copy/SKILL.md", "copy");
    let is_generated = ("target/copy".to_owned(), "generated".to_owned());
    let only = Collection::of_skills(&[("skills/pdf/SKILL.md", "pdf"), generated]);
    let (folder, ran) = shown(&only);
    let data = ran.ok();
    assert_eq!(data["name"], "pdf");
    assert_eq!(data["source"], format!("{folder}/skills/pdf"));
    assert_eq!(left_out(&data), std::slice::from_ref(&is_generated));
    let text = only.machine.command(&["show", &folder]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let line = "target/copy  left out: it is below target, which holds generated files";
    assert!(text.contains(line), "{text}");

    let rooted = Collection::of_skills(&[("SKILL.md", "top"), ("inner/SKILL.md", "own")]);
    let (_, ran) = shown(&rooted);
    let data = ran.ok();
    assert_eq!(data["name"], "top");
    let inner = ("inner".to_owned(), "not_chosen".to_owned());
    assert_eq!(left_out(&data), [inner]);

    let several = Collection::of_skills(&[("a/SKILL.md", "a"), ("b/SKILL.md", "b"), generated]);
    let (folder, ran) = shown(&several);
    let data = ran.json["data"].clone();
    let error = ran.fails(2, "skill_ambiguous");
    let hint = error["hint"].as_str().unwrap();
    let skills = ["a", "b"].map(|name| format!("{folder}/{name}"));
    assert!(
        hint.contains(&format!("vault show {}", skills[0])),
        "{hint}"
    );
    assert_eq!(data["skills"], json!(skills));
    assert_eq!(left_out(&data), [is_generated]);
}
