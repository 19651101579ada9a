//! Tables of projects: each row is one skill, as a lock has it.

use super::*;
use crate::source::ParseOptions;

fn requirement(text: &str) -> SkillRequirement {
    let stated = text.parse().unwrap();
    SkillRequirement::new(stated, true, &ParseOptions::default()).unwrap()
}

/// Reads a row: name, source, pin (`-` for none), `asked` or `along`, and requirements.
fn skill(row: &str) -> ProjectSkill {
    let cells: Vec<&str> = row.splitn(5, ' ').collect();
    let requires = cells.get(4).copied().unwrap_or_default();
    ProjectSkill {
        name: cells[0].parse().unwrap(),
        key: Some(SourceKey::of_recorded(cells[1]).expect("a source")),
        reference: (cells[2] != "-").then(|| cells[2].to_owned()),
        revision: Some("0123456789012345678901234567890123456789".to_owned()),
        requires: requires
            .split(',')
            .filter(|text| !text.is_empty())
            .map(requirement)
            .collect(),
        as_requirement: cells[3] == "along",
    }
}

fn project(rows: &[&str]) -> ProjectSkills {
    let mut skills = ProjectSkills::default();
    for row in rows {
        skills.add_skill(skill(row), false).unwrap();
    }
    skills
}

fn texts<'a>(names: impl IntoIterator<Item = &'a SkillName>) -> Vec<&'a str> {
    names.into_iter().map(SkillName::as_str).collect()
}

#[test]
fn what_is_missing_is_named_once_with_all_that_need_it() {
    let skills = project(&[
        "a github:x/a v1 asked github:x/lib@^1.2,github:x/b",
        "b github:x/b - asked github:X/LIB@<1.5",
        "c github:x/c - asked",
    ]);
    let missing = skills.missing_skills().unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert_eq!(texts(&missing[0].needed_by), ["a", "b"]);
    let Accepted::Range(range) = &missing[0].accepted else {
        panic!("{missing:?}");
    };
    assert_eq!(range.bounds(), ">=1.2.0 <1.5.0");
    skills.check_requirements().unwrap();
}

#[test]
fn requirements_of_what_comes_along_are_reported_and_never_followed() {
    let mut skills = project(&["a github:x/a - asked github:x/b"]);
    let along = skill("b github:x/b - along github:x/c");
    skills.add_skill(along, false).unwrap();
    let missing = skills.missing_skills().unwrap();
    assert_eq!(texts(&missing[0].needed_by), ["b"]);
    assert_eq!(missing[0].requirement.stated().to_string(), "github:x/c");
}

#[test]
fn conflicts_are_refused_with_their_path() {
    let commit = "9999999999999999999999999999999999999999";
    let pinned = format!("a github:x/a - asked github:x/b@{commit}");
    for (rows, message) in [
        (
            vec!["a github:x/a - asked github:x/a"],
            "skills require each other: a -> a",
        ),
        (
            vec!["a github:x/a - asked github:X/A"],
            "skills require each other: a -> a",
        ),
        (
            vec![
                "a github:x/a - asked github:x/b",
                "b github:x/b - along github:x/a",
            ],
            "skills require each other: a -> b -> a",
        ),
        (
            vec![
                "a github:x/a - asked github:x/b",
                "b github:x/b - along github:x/c",
                "c github:x/c - along github:x/b",
            ],
            "skills require each other: b -> c -> b",
        ),
        (
            vec![
                "a github:x/a - asked github:x/b@^2",
                "b github:x/b v1.4.0 asked",
            ],
            "a requires github:x/b@^2, but b is pinned at v1.4.0",
        ),
        (
            vec![&pinned, "b github:x/b - asked"],
            "a requires github:x/b@9999999999999999999999999999999999999999, but b is pinned at \
             0123456789012345678901234567890123456789",
        ),
        (
            vec![
                "a github:x/a - asked github:x/b@^1",
                "c github:x/c - asked github:X/B@^2",
            ],
            "a requires github:x/b@^1, but c requires github:X/B@^2",
        ),
        (
            vec![
                "a github:x/a - asked github:x/b@v1",
                "c github:x/c - asked github:x/b@v2",
            ],
            "a requires github:x/b@v1, but c requires github:x/b@v2",
        ),
        (
            vec![
                "a github:x/a - asked github:x/b@main",
                "c github:x/c - asked github:x/b@^2",
            ],
            "a requires github:x/b@main, but c requires github:x/b@^2",
        ),
        (
            vec!["a github:x/a - asked github:x/b@v1,github:x/b@v2"],
            "a requires github:x/b@v1, but a requires github:x/b@v2",
        ),
    ] {
        let found = project(&rows).check_requirements();
        let text = found.map_err(|conflict| conflict.to_string());
        assert_eq!(text, Err(message.to_owned()), "{rows:?}");
    }
}

#[test]
fn a_name_from_two_sources_is_refused_unless_it_replaces() {
    let mut skills = project(&["pdf github:x/pdf - asked"]);
    let other = skill("pdf github:y/pdf - along");
    let conflict = skills.add_skill(other.clone(), false).unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "pdf would come from two sources: github.com/x/pdf and github.com/y/pdf"
    );
    skills.add_skill(other, true).unwrap();
    // The replaced skill fulfils nothing any more.
    let asks = skill("a github:x/a - asked github:x/pdf");
    skills.add_skill(asks, false).unwrap();
    assert_eq!(skills.missing_skills().unwrap().len(), 1);
}

#[test]
fn removal_names_who_needs_a_skill_and_what_nobody_needs_any_more() {
    let mut skills = project(&[
        "a github:x/a - asked github:x/lib",
        "b github:x/b - asked github:x/lib,github:x/own",
        "deep github:x/deep - along",
        "lib github:x/lib - along github:x/deep",
        "own github:x/own - asked",
    ]);
    let name = |text: &str| text.parse::<SkillName>().unwrap();
    let by = |skills: &ProjectSkills, text: &str| {
        let found = skills.requirers().remove(&name(text)).unwrap_or_default();
        texts(found).join(" ")
    };
    assert_eq!(by(&skills, "lib"), "a b");
    assert_eq!(by(&skills, "own"), "b");
    assert_eq!(texts(skills.unneeded()), Vec::<&str>::new());
    skills.remove_skill(&name("a"));
    assert_eq!(by(&skills, "lib"), "b");
    assert_eq!(texts(skills.unneeded()), Vec::<&str>::new());
    skills.remove_skill(&name("b"));
    // What somebody asked for stays, although a skill also required it.
    assert_eq!(texts(skills.unneeded()), ["deep", "lib"]);
}

#[test]
fn skills_that_only_need_each_other_are_unneeded() {
    let skills = project(&[
        "a github:x/a - along github:x/b",
        "b github:x/b - along github:x/a",
    ]);
    assert_eq!(texts(skills.unneeded()), ["a", "b"]);
}

#[test]
fn a_cycle_of_fifty_is_named_whole() {
    let rows: Vec<String> = (0..50)
        .map(|at| {
            format!(
                "s{at:02} github:x/s{at} - along github:x/s{}",
                (at + 1) % 50
            )
        })
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let Err(RequirementConflict::Cycle(path)) = project(&rows).check_requirements() else {
        panic!("no cycle");
    };
    assert_eq!(path.len(), 51);
    assert_eq!(path.first(), path.last());
    // Without the last, it is a chain: nothing to refuse, and one skill is missing.
    let chain = project(&rows[..49]);
    chain.check_requirements().unwrap();
    assert_eq!(chain.missing_skills().unwrap().len(), 1);
}

#[test]
fn ten_thousand_requirements_end() {
    // The widest project that the bound for one skill allows, and a chain that recursion would not
    // survive.
    let rows: Vec<String> = (0..400)
        .map(|at| {
            let requires: Vec<String> = (1..=25)
                .map(|step| format!("github:x/s{}", at + step))
                .collect();
            format!("s{at} github:x/s{at} - asked {}", requires.join(","))
        })
        .collect();
    let wide: Vec<&str> = rows.iter().map(String::as_str).collect();
    let wide = project(&wide);
    wide.check_requirements().unwrap();
    assert_eq!(wide.missing_skills().unwrap().len(), 25);
    let rows: Vec<String> = (0..10_000)
        .map(|at| format!("s{at} github:x/s{at} - asked github:x/s{}", at + 1))
        .collect();
    let long: Vec<&str> = rows.iter().map(String::as_str).collect();
    let mut long = project(&long);
    long.check_requirements().unwrap();
    let last = skill("s10000 github:x/s10000 - asked github:x/s0");
    long.add_skill(last, false).unwrap();
    let Err(RequirementConflict::Cycle(path)) = long.check_requirements() else {
        panic!("no cycle");
    };
    assert_eq!(path.len(), 10_002);
}
