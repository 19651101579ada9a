//! A skill of a source never takes the place of another one that is installed from the same source.

use super::*;

fn other(name: &str) -> String {
    skill_md(name).replace("Do it.", "Do another thing.")
}

#[test]
fn a_skill_of_an_archive_is_not_replaced_by_one_of_another_folder() {
    let (site, machine) = (SiteServer::new(), Machine::new());
    let (first, second) = (skill_md("pdf"), other("pdf"));
    let packed = archive(&machine, &[("a/SKILL.md", &first), ("b/SKILL.md", &second)]);
    machine.home.write("project/z.tar.gz", &packed);
    site.body("/z.tar.gz", "application/gzip", packed);
    let address = format!("{}/z.tar.gz", site.base);
    for source in ["./z.tar.gz", &address] {
        machine
            .run(&["add", source, "--skill", "./a", "--replace"])
            .ok();
        for flags in [&[][..], &["--dry-run"]] {
            let refused = machine.run(&[&["add", source, "--skill", "./b"], flags].concat());
            let error = refused.fails(1, "name_taken");
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("from a in ") && message.ends_with("is in b"),
                "{message}"
            );
        }
        assert_eq!(machine.document("pdf"), first);
        machine
            .run(&["add", source, "--skill", "./b", "--replace"])
            .ok();
        assert_eq!(machine.document("pdf"), second);
    }
}

#[test]
fn two_skills_of_one_name_are_not_both_signed_however_many_lie_between_them() {
    let machine = Machine::new();
    let mut files: Vec<(String, String)> = (0..257)
        .map(|at| (format!("s{at:03}/SKILL.md"), skill_md(&format!("s{at:03}"))))
        .collect();
    files.push(("zz/SKILL.md".to_owned(), other("s000")));
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (&path[..], &text[..]))
        .collect();
    machine
        .home
        .write("project/z.tar.gz", archive(&machine, &files));
    let added = machine.run(&["add", "./z.tar.gz", "--all"]);
    assert_eq!(added.code, 1, "{}", added.out);
    let data = &added.json["data"];
    assert_eq!(data["added"].as_array().unwrap().len(), 257);
    let failed = data["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["code"], "name_twice");
    assert_eq!(machine.document("s000"), skill_md("s000"));
}

#[test]
fn an_entry_of_a_foreign_lock_takes_no_other_skill_of_its_source() {
    let repository = Repository::new();
    repository.write("lib/pdf/inner/SKILL.md", skill_md("inner"));
    repository.commit();
    let machine = Machine::new();
    machine
        .home
        .write("project/up/lib/pdf/inner/SKILL.md", skill_md("inner"));
    let git = format!(
        r#""sourceType":"git","source":"x","sourceUrl":"{}""#,
        repository.address()
    );
    let local = r#""sourceType":"local","source":"./up""#.to_owned();
    for source in [git, local] {
        let add = |path: &str| {
            let entry = format!("{{{source}{path}}}");
            let lock = format!(r#"{{"version":1,"skills":{{"pdf":{entry}}}}}"#);
            machine.home.write("project/skills-lock.json", lock);
            machine.run(&["add", "--from-lock", "skills-lock.json"])
        };
        for path in [
            r#","skillPath":"lib/pdf/SKILL.md""#,
            r#","skillPath":"lib/pdf""#,
            r#","skillPath":"SKILL.md""#,
            "",
        ] {
            let refused = add(path);
            assert_ne!(refused.code, 0, "{source} {path}: {}", refused.out);
            assert!(!machine.skill("inner").exists(), "{source} {path}");
        }
        add(r#","skillPath":"lib/pdf/inner/SKILL.md""#).ok();
        machine.run(&["remove", "inner"]).ok();
    }
}

#[test]
fn a_skill_of_a_repository_that_a_registry_names_keeps_its_folder() {
    let (site, repository) = (SiteServer::new(), Repository::new());
    repository.write("a/SKILL.md", skill_md("ra"));
    repository.write("b/SKILL.md", skill_md("rb"));
    let machine = Machine::with_registry(&site);
    machine.home.write(
        ".gitconfig",
        format!(
            "[url \"{}\"]\n\tinsteadOf = https://github.com/acme/skills.git\n",
            repository.address()
        ),
    );
    let publish = |version: &str| {
        let commit = repository.commit();
        let latest = format!(r#"{{"latestVersion":{{"version":"{version}"}}}}"#);
        site.json("/api/v1/skills/repo", latest);
        let answer = format!(r#"{{"repo":"acme/skills","commit":"{commit}"}}"#);
        site.json("/api/v1/download", answer);
    };
    publish("1.0.0");
    machine.run(&["add", "clawhub:repo", "--skill", "rb"]).ok();
    repository.write("SKILL.md", skill_md("root"));
    repository.write("b/SKILL.md", other("rb"));
    publish("1.1.0");
    machine.run(&["update"]).ok();
    assert_eq!(machine.document("rb"), other("rb"));
    // The only skill that is left is another one.
    repository.git(&["rm", "--quiet", "-r", "b", "SKILL.md"]);
    publish("1.2.0");
    let gone = machine.run(&["update"]);
    assert_eq!(gone.code, 3, "{}", gone.out);
    assert_eq!(machine.document("rb"), other("rb"));
}

#[test]
fn the_root_of_an_archive_is_not_taken_for_the_folder_that_was_around_it() {
    let (site, machine) = (SiteServer::new(), Machine::new());
    let put = |files: &[(&str, &str)]| {
        site.body("/p.tar.gz", "application/gzip", archive(&machine, files));
    };
    let pdf = skill_md("pdf");
    put(&[("pdf/SKILL.md", &pdf)]);
    machine
        .run(&["add", &format!("{}/p.tar.gz", site.base)])
        .ok();
    put(&[
        ("SKILL.md", &skill_md("root")),
        ("pdf/SKILL.md", &other("pdf")),
    ]);
    let refused = machine.run(&["update"]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert!(
        refused.out.contains("it has the skill root now"),
        "{}",
        refused.out
    );
    assert_eq!(machine.document("pdf"), pdf);
    put(&[("pdf/SKILL.md", &other("pdf"))]);
    machine.run(&["update"]).ok();
    assert_eq!(machine.document("pdf"), other("pdf"));
}

#[test]
fn a_refused_skill_of_an_archive_or_site_is_named_by_its_folder_or_entry() {
    let (site, machine) = (SiteServer::new(), Machine::new());
    let bad = "no skill".to_owned();
    let files = [("a/SKILL.md", bad.as_str()), ("b/SKILL.md", &bad)];
    machine
        .home
        .write("project/z.tar.gz", archive(&machine, &files));
    site.index(&format!("{},{}", listed("a", &bad), listed("b", &bad)));
    site.text("/a/SKILL.md", &bad).text("/b/SKILL.md", &bad);
    for source in ["./z.tar.gz", &site.base] {
        let ran = machine.run(&["add", source, "--all", "--dry-run"]);
        let entries = ran.json["data"].as_array().unwrap().iter();
        let named: Vec<_> = entries
            .map(|entry| entry["source"].as_str().unwrap())
            .collect();
        assert!(
            named[0].ends_with(" (a)") && named[1].ends_with(" (b)"),
            "{named:?}"
        );
    }
}
