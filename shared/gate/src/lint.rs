//! Advice for authors about things that are admitted but confuse agents or readers.
//!
//! Nothing here decides about admission. The rules follow the agent skills standard and the
//! rejections of its reference validator. Any agent finds, loads and shows a skill without advice
//! as its author meant it.

use std::collections::BTreeSet;

use crate::document::{Document, SKILL_MD, flow_style, frontmatter_json};
use crate::finding::{Finding, Level, Rule, Severity};
use crate::package::Package;
use crate::requirements::{read_needs, read_requirements};
use vault_format::text::{Position, quoted};

/// Maximum number of lines that the standard advises for the text of a SKILL.md.
pub const MAX_LINES: usize = 500;
/// Longest `compatibility` that the standard allows, in characters.
const MAX_COMPATIBILITY: usize = 500;
/// Maximum number of links in a text that are checked.
const MAX_LINKS: usize = 1_000;
/// Top-level keys of a frontmatter that the standard defines.
const STANDARD_KEYS: [&str; 6] = [
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
];
/// The first words of the text that `vault new` writes. Advice about them also covers descriptions
/// that were edited only in part.
pub const PLACEHOLDER: &str = "Replace this";
/// The beginning of the description that `vault new` writes. The gate blocks it.
pub const TEMPLATE: &str = "Replace this with one sentence on what the skill does";

const fn lint_rule(id: &'static str, name: &'static str, why: &'static str) -> Rule {
    Rule {
        id,
        name,
        category: "AST04",
        severity: Severity::Low,
        why,
    }
}

const FOLDER: Rule = lint_rule(
    "VL-001",
    "lint-folder-name",
    "the standard requires the folder to have the skill's name, and strict agents ignore other skills",
);
const NAME: Rule = lint_rule(
    "VL-002",
    "lint-name",
    "the standard allows lower-case letters, digits and single hyphens, at most 64",
);
const PLACE: Rule = lint_rule(
    "VL-003",
    "lint-placeholder",
    "agents choose a skill by its description",
);
const WHEN: Rule = lint_rule(
    "VL-004",
    "lint-when",
    "an agent reads the description alone when it decides whether to load the skill",
);
const EMPTY: Rule = lint_rule(
    "VL-005",
    "lint-empty",
    "there is nothing for an agent to follow",
);
const LONG: Rule = lint_rule(
    "VL-006",
    "lint-long",
    "an agent loads the whole text when it uses the skill; files beside it are read only when needed",
);
const LINK: Rule = lint_rule(
    "VL-007",
    "lint-link",
    "an agent that follows the link finds no file",
);
const KEY: Rule = lint_rule(
    "VL-008",
    "lint-key",
    "the standard's own validator refuses keys that it does not know",
);
const COMPATIBILITY: Rule = lint_rule(
    "VL-009",
    "lint-compatibility",
    "the standard allows 500 characters",
);
const SCRIPT: Rule = lint_rule(
    "VL-010",
    "lint-script",
    "the system does not let an agent run it by its path",
);

const FLOW: Rule = lint_rule(
    "VL-011",
    "lint-flow",
    "the standard's own validator refuses lists and maps on one line",
);

const NEEDS: Rule = lint_rule(
    "VL-012",
    "lint-needs",
    "vault reads these keys only as one text, so nothing comes along and nothing is checked",
);

/// All rules, in the order of their ids.
pub const RULES: [Rule; 12] = [
    FOLDER,
    NAME,
    PLACE,
    WHEN,
    EMPTY,
    LONG,
    LINK,
    KEY,
    COMPATIBILITY,
    SCRIPT,
    FLOW,
    NEEDS,
];

fn advice_at(
    rule: &Rule,
    message: impl AsRef<str>,
    at: Position,
    hint: impl AsRef<str>,
) -> Finding {
    Finding::of(rule, Level::Warning, message)
        .at(SKILL_MD)
        .on(at)
        .hint(hint)
}

/// Returns advice about a skill that passed the gate, sorted by place; `folder` is the name of its
/// folder.
pub fn lint(package: &Package, folder: Option<&str>) -> Vec<Finding> {
    let Ok(document) = Document::parse(package.document()) else {
        // The scan admits a document without `name` under the name of its folder. Its warning about
        // that is to be solved before any advice.
        return Vec::new();
    };
    let mut findings = Vec::new();
    check_name(&document, package, folder, &mut findings);
    check_description(&document, &mut findings);
    check_keys(&document, &mut findings);
    check_needs(&document, &mut findings);
    let flow = flow_style(document.bytes()).into_iter();
    findings.extend(flow.map(|at| {
        let message = "a list or map is in brackets";
        advice_at(
            &FLOW,
            message,
            at,
            "write one value a line, indented, lists with `- `",
        )
    }));
    check_body(&document, package, &mut findings);
    check_scripts(package, &mut findings);
    findings.sort_by(|a, b| {
        let key = |f: &Finding| (f.path != SKILL_MD, f.path.clone(), f.line, f.column, f.id);
        key(a).cmp(&key(b))
    });
    findings
}

fn check_name(
    document: &Document,
    package: &Package,
    folder: Option<&str>,
    findings: &mut Vec<Finding>,
) {
    let at = document.places().name;
    let own = &document.frontmatter().name;
    if package.frontmatter_name.is_some() {
        let message = format!(
            "{} does not fit the standard's grammar of names",
            quoted(own)
        );
        let hint = format!("name it `{}`; `vault fmt` does that", package.name);
        findings.push(advice_at(&NAME, message, at, hint));
    }
    if let Some(folder) = folder.filter(|folder| *folder != package.name.as_str()) {
        let message = format!(
            "the folder is named {}, the skill `{}`",
            quoted(folder),
            package.name
        );
        let hint = format!("rename the folder to `{}`", package.name);
        findings.push(advice_at(&FOLDER, message, at, hint));
    }
}

fn check_description(document: &Document, findings: &mut Vec<Finding>) {
    let at = document.places().description;
    let frontmatter = document.frontmatter();
    let text = &frontmatter.description;
    if text.contains(PLACEHOLDER) {
        findings.push(advice_at(
            &PLACE,
            "the description still contains text of the template",
            at,
            "say what the skill does and when to use it",
        ));
    } else if frontmatter.when_to_use.is_none() && !states_when_to_use(text) {
        // Give this advice only once the template's text is gone: advice about a placeholder would
        // be noise.
        findings.push(advice_at(
            &WHEN,
            "neither the description nor `when_to_use` says when to use the skill",
            at,
            "add a sentence that begins with `Use when`",
        ));
    }
    let compatibility = frontmatter.compatibility.as_deref().unwrap_or_default();
    let length = compatibility.chars().count();
    if length > MAX_COMPATIBILITY {
        let message = format!("`compatibility` has {length} characters");
        findings.push(advice_at(
            &COMPATIBILITY,
            message,
            Position::new(1, 1),
            "shorten it",
        ));
    }
}

/// Tells whether a text states when to use the skill, by words of the languages in which most
/// skills are written.
fn states_when_to_use(text: &str) -> bool {
    const WORDS: [&str; 12] = [
        "when", "whenever", "before", "after", "if", "for", "while", "during", "wenn", "cuando",
        "quand", "use",
    ];
    let words = text.split(|c: char| !c.is_alphanumeric());
    let latin = text
        .chars()
        .filter(|c| c.is_alphabetic())
        .all(|c| (c as u32) < 0x250);
    // Texts in other scripts pass, because the list has no words for them.
    !latin
        || words
            .map(str::to_lowercase)
            .any(|word| WORDS.contains(&word.as_str()))
}

fn check_keys(document: &Document, findings: &mut Vec<Finding>) {
    let Some(members) = frontmatter_json(document.bytes()) else {
        return;
    };
    for key in members
        .keys()
        .filter(|key| !STANDARD_KEYS.contains(&key.as_str()))
    {
        let message = format!("{} is not a key of the standard", quoted(key));
        let hint = "indent it below `metadata:`; the vault reads it there too";
        findings.push(advice_at(&KEY, message, key_position(document, key), hint));
    }
}

/// Checks that the requirements and needs of the skill can be read.
fn check_needs(document: &Document, findings: &mut Vec<Finding>) {
    let metadata = &document.frontmatter().metadata;
    let requires = read_requirements(metadata).err();
    for unreadable in requires.into_iter().chain(read_needs(metadata).err()) {
        let hint = match unreadable.key {
            "requires" => "write `requires: github:owner/repository/folder@^1.2, ...`",
            _ => "write `needs: git, jq, $GITHUB_TOKEN`",
        };
        let at = key_position(document, "metadata");
        findings.push(advice_at(&NEEDS, unreadable.to_string(), at, hint));
    }
}

/// Returns the place of an unindented key, or the first line if it is not found.
fn key_position(document: &Document, key: &str) -> Position {
    let text = String::from_utf8_lossy(document.bytes());
    let is_it = |line: &str| {
        let line = line.trim_start_matches(['"', '\'']);
        line.strip_prefix(key).is_some_and(|rest| {
            rest.trim_start_matches(['"', '\''])
                .trim_start()
                .starts_with(':')
        })
    };
    let line = text.lines().position(is_it).unwrap_or_default();
    Position::new(u32::try_from(line + 1).unwrap_or(u32::MAX), 1)
}

fn check_body(document: &Document, package: &Package, findings: &mut Vec<Finding>) {
    let body = document.body();
    let whole = document.bytes().len();
    // Findings count the lines of the file, but `body` begins after the frontmatter.
    let first = String::from_utf8_lossy(&document.bytes()[..whole - body.len()])
        .matches('\n')
        .count();
    let place = |line: usize, column: usize| {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Position::new(number(first + line + 1), number(column + 1))
    };
    if body.trim().is_empty() {
        findings.push(advice_at(
            &EMPTY,
            "there is no text after the frontmatter",
            place(0, 0),
            "write what an agent is to do, step by step",
        ));
    }
    let lines = body.lines().count();
    if lines > MAX_LINES {
        let message =
            format!("the text has {lines} lines; the standard advises at most {MAX_LINES}");
        findings.push(advice_at(
            &LONG,
            message,
            place(MAX_LINES, 0),
            "move details into files below `references/` and link them",
        ));
    }
    let mut reported_targets = BTreeSet::new();
    for (line, column, target) in own_links(body) {
        // Report each target once and at most 20 targets: one renamed folder breaks every link into
        // it.
        if reported_targets.len() >= 20
            || package.file(target).is_some()
            || !reported_targets.insert(target)
        {
            continue;
        }
        if package
            .files
            .iter()
            .any(|file| file.path.is_below(target.trim_end_matches('/')))
        {
            continue; // a folder of the skill
        }
        let message = format!("the link to {} is broken", quoted(target));
        findings.push(advice_at(
            &LINK,
            message,
            place(line, column),
            "add the file, or correct the path: it counts from the folder of SKILL.md",
        ));
    }
}

/// Returns the targets of Markdown links that name a path of the skill, with line and column from
/// 0. Code blocks are skipped.
fn own_links(body: &str) -> Vec<(usize, usize, &str)> {
    let mut targets = Vec::new();
    let mut fenced = false;
    for (number, line) in body.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let mut from = 0;
        while let Some(open) = line[from..].find("](") {
            let begin = from + open + 2;
            let Some(length) = line[begin..].find([')', ' ']) else {
                break;
            };
            let target = line[begin..begin + length]
                .split('#')
                .next()
                .unwrap_or_default();
            let target = target.strip_prefix("./").unwrap_or(target);
            from = begin + length;
            // A link in a code span is an example and leads nowhere: an odd number of back ticks
            // before it means that a span is open.
            let in_code = line[..begin].matches('`').count() % 2 == 1;
            if !in_code && is_own_path(target) && targets.len() < MAX_LINKS {
                targets.push((number, line[..begin].chars().count(), target));
            }
        }
    }
    targets
}

/// Tells whether a link's target is a relative path, and not an address, an anchor or a pattern.
fn is_own_path(target: &str) -> bool {
    !target.is_empty()
        && !target.starts_with(['/', '#', '<', '{', '$', '~'])
        && !target.contains("://")
        && !target.contains(['{', '<', '*', '%', '$', '?'])
        && !target.starts_with("mailto:")
        // A path that leaves the folder names files that are not part of the skill, so it cannot be
        // checked.
        && !target.split('/').any(|part| part == "..")
        && (target.contains('/') || target.contains('.'))
}

fn check_scripts(package: &Package, findings: &mut Vec<Finding>) {
    for file in &package.files {
        let path = file.path.as_str();
        // Compare with the slash, because a Rust file may begin with `#![…]`.
        if file.mode == vault_format::manifest::Mode::Plain && file.bytes.starts_with(b"#!/") {
            findings.push(
                Finding::of(&SCRIPT, Level::Warning, "the script is not executable")
                    .at(path)
                    .on(Position::new(1, 1))
                    .hint(format!("chmod +x {path}")),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GateOptions, RawFile, check};
    use vault_format::manifest::Mode;

    fn findings(
        skill_md: &str,
        others: &[(&str, Mode, &str)],
        folder: &str,
    ) -> Vec<(&'static str, u32)> {
        let mut files = vec![RawFile {
            path: SKILL_MD.to_owned(),
            mode: Mode::Plain,
            bytes: skill_md.as_bytes().to_vec(),
        }];
        files.extend(others.iter().map(|(path, mode, text)| RawFile {
            path: (*path).to_owned(),
            mode: *mode,
            bytes: text.as_bytes().to_vec(),
        }));
        let verdict = check(files, &GateOptions::default());
        let package = verdict.package.expect("passes the gate");
        let found = lint(&package, Some(folder));
        found
            .iter()
            .map(|f| (f.rule, f.line.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn a_good_skill_gets_no_advice() {
        let text = "---\nname: pdf\ndescription: Reads PDF files. Use when a PDF is at hand.\n---\n\
                    Read [the notes](references/a.md#top) and [the web](https://example.com/x.md).\n\
                    ```\n[not](a/link.md)\n```\nSee [scripts](scripts/).\n";
        let others = [
            ("references/a.md", Mode::Plain, "x"),
            ("scripts/run.sh", Mode::Executable, "#!/bin/sh\n"),
        ];
        assert_eq!(findings(text, &others, "pdf"), []);
    }

    #[test]
    fn every_rule_speaks_where_it_should() {
        let base = |extra: &str, body: &str| {
            format!(
                "---\nname: pdf\ndescription: Reads PDF files. Use when a PDF is at hand.\n{extra}---\n{body}"
            )
        };
        let long = "x\n".repeat(MAX_LINES + 1);
        let compatibility = format!("compatibility: {}\n", "x".repeat(501));
        for (text, folder, rule, line) in [
            (base("", "x"), "other", "lint-folder-name", 2),
            (
                base("", "x").replace("name: pdf", "name: P D F"),
                "p-d-f",
                "lint-name",
                2,
            ),
            (
                base("", "x").replace("Reads PDF", "Replace this"),
                "pdf",
                "lint-placeholder",
                3,
            ),
            (
                base("", "x").replace(
                    "Reads PDF files. Use when a PDF is at hand.",
                    "Reads PDF files very well.",
                ),
                "pdf",
                "lint-when",
                3,
            ),
            (base("", "\n"), "pdf", "lint-empty", 5),
            (base("", &long), "pdf", "lint-long", 505),
            (base("", "a\nsee [b](b/c.md)"), "pdf", "lint-link", 6),
            (base("tags: a\n", "x"), "pdf", "lint-key", 4),
            (
                base("metadata:\n  bin:\n    a: { command: git }\n", "x"),
                "pdf",
                "lint-flow",
                6,
            ),
            (
                base("metadata: { tags: [a] }\n", "x"),
                "pdf",
                "lint-flow",
                4,
            ),
            (base(&compatibility, "x"), "pdf", "lint-compatibility", 1),
            (
                base("metadata:\n  requires: github:a/b@^x\n", "x"),
                "pdf",
                "lint-needs",
                4,
            ),
            (
                base("metadata:\n  needs: /bin/sh\n", "x"),
                "pdf",
                "lint-needs",
                4,
            ),
        ] {
            assert_eq!(findings(&text, &[], folder), [(rule, line)], "{text:.200}");
        }
        let script = [("run.sh", Mode::Plain, "#!/bin/sh\n")];
        assert_eq!(
            findings(&base("", "x"), &script, "pdf"),
            [("lint-script", 1)]
        );
    }

    #[test]
    fn ids_are_in_order_and_names_are_kept_apart() {
        let ids: Vec<_> = RULES.iter().map(|rule| rule.id).collect();
        assert!(ids.is_sorted());
        assert_eq!(
            RULES
                .iter()
                .map(|rule| rule.name)
                .collect::<BTreeSet<_>>()
                .len(),
            RULES.len()
        );
    }
}
