//! Comments and pages cite only what is in the repository.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use regex::Regex;

use crate::root;

/// The text files of the repository with their paths. Vectors hold fixed bytes of other origin.
pub fn files() -> Vec<(String, String)> {
    let listed = Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output()
        .expect("git");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let paths = listed.lines().filter(|path| {
        !path.starts_with("tests/vectors/") && *path != "tests/repository/citations.rs"
    });
    paths
        .filter_map(|path| {
            Some((
                path.to_owned(),
                std::fs::read_to_string(root().join(path)).ok()?,
            ))
        })
        .collect()
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|kind| kind == "md")
}

/// Prose of a file: a page, or the comments of a program.
fn prose<'t>(path: &str, text: &'t str) -> Vec<(usize, &'t str)> {
    let comment = |line: &str| {
        let line = line.trim_start();
        line.starts_with("//") || (line.starts_with('#') && !line.starts_with("#["))
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| is_page(path) || comment(line))
        .map(|(at, line)| (at + 1, line))
        .collect()
}

/// The file that the examples of `docs/audit.md` write.
const WRITTEN_BY_AN_EXAMPLE: &str = "skills-audit.md";

#[test]
fn a_page_that_is_cited_is_in_the_repository() {
    let cited = Regex::new(r"[A-Za-z0-9_./-]*[A-Za-z0-9_-]\.md\b").expect("an expression");
    let files = files();
    let names: BTreeSet<&str> = files
        .iter()
        .filter_map(|(path, _)| path.rsplit('/').next())
        .collect();
    let mut missing = Vec::new();
    for (path, text) in &files {
        for (line, prose) in prose(path, text) {
            for found in cited.find_iter(prose) {
                let name = found.as_str().rsplit('/').next().unwrap_or_default();
                if !names.contains(name) && name != WRITTEN_BY_AN_EXAMPLE {
                    missing.push(format!("{path}:{line}: {}", found.as_str()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no such page:\n{}", missing.join("\n"));
}

#[test]
fn nothing_cites_a_numbered_row_or_section_of_a_page_elsewhere() {
    // The number says nothing to a reader who does not have the page.
    let numbered = Regex::new(
        r"(?i)\brows? [0-9]+[a-z]?\b|\.md`?,? [0-9]+(\.[0-9]|\b)|\breviews?/|\bissue [0-9]+",
    )
    .expect("an expression");
    let outside = Regex::new(r"\.\./(spec|reviews|shared/(spec|reviews|style))").expect("one");
    let mut found = Vec::new();
    for (path, text) in files() {
        for (line, prose) in prose(&path, &text) {
            if numbered.is_match(prose) || outside.is_match(prose) {
                found.push(format!("{path}:{line}: {}", prose.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "say what the row says:\n{}",
        found.join("\n")
    );
}

#[test]
fn links_of_pages_lead_to_files_and_headings() {
    let link = Regex::new(r"\]\(([^)#\s]*)(#[^)\s]*)?\)").expect("an expression");
    let mut dead = Vec::new();
    for (path, text) in files().iter().filter(|(path, _)| is_page(path)) {
        for (line, prose) in prose(path, text) {
            for part in link.captures_iter(prose) {
                let target = &part[1];
                if target.contains(':') {
                    continue;
                }
                let page = match target {
                    "" => root().join(path),
                    _ => root().join(path).with_file_name("").join(target),
                };
                let heading = part.get(2).map(|heading| heading.as_str());
                let there = match (std::fs::read_to_string(&page), heading) {
                    (Ok(text), Some(heading)) => has_heading(&text, &heading[1..]),
                    (Err(_), _) => page.exists(),
                    (Ok(_), None) => true,
                };
                if !there {
                    dead.push(format!("{path}:{line}: {}", &part[0]));
                }
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Whether a page has the heading that GitHub gives this anchor.
fn has_heading(page: &str, anchor: &str) -> bool {
    page.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c })
                .eq(anchor.chars())
        })
}
