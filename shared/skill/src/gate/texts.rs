//! Texts of the frontmatter: the length of the description, and characters that nobody can see.

use crate::document::{Document, SKILL_MD};
use crate::finding::{Finding, Level};

/// A description shorter than this, in characters, does not tell an agent when to use the skill.
const SHORT: usize = 20;
/// The standard's own limit, in characters.
const LONG: usize = 1024;

pub(super) fn check(document: &Document, findings: &mut Vec<Finding>) {
    let length = document.frontmatter().description.chars().count();
    let about = |rule, message: String, hint: &str| {
        let finding = Finding::new(rule, Level::Warning, message).at(SKILL_MD);
        finding.on(document.places().description).hint(hint)
    };
    if length < SHORT {
        let message =
            format!("the description has {length} characters; agents choose a skill by it");
        findings.push(about(
            "description-short",
            message,
            "say what the skill does and when to use it",
        ));
    } else if length > LONG {
        let message =
            format!("the description has {length} characters; the standard allows {LONG}");
        findings.push(about(
            "description-long",
            message,
            "some agents cut it or leave the skill out: shorten it",
        ));
    }
    for (at, character) in document.hidden() {
        let message = format!(
            "the frontmatter holds the hidden character U+{:04X}",
            u32::from(*character)
        );
        let hint = "what is hidden from people can still steer an agent: remove it";
        findings.push(
            Finding::new("hidden-text", Level::Flag, message)
                .at(SKILL_MD)
                .on(*at)
                .hint(hint),
        );
    }
}
