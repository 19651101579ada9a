//! Checks the texts of the frontmatter: the length of the description, and invisible characters.

use crate::document::{Document, SKILL_MD};
use crate::finding::{Finding, Level};
use crate::lint::TEMPLATE;
use vault_format::count::count;

/// Length in characters below which a description does not tell an agent when to use the skill.
const SHORT: usize = 20;
/// Longest description that the standard allows, in characters.
const LONG: usize = 1024;

/// Checks the description and reports invisible characters in the frontmatter.
pub(super) fn check_texts(document: &Document, findings: &mut Vec<Finding>) {
    let description = &document.frontmatter().description;
    // Count characters and not bytes: a Chinese character has three bytes.
    let length = description.chars().count();
    let about = |rule, level, message: String, hint: &str| {
        let finding = Finding::new(rule, level, message).at(SKILL_MD);
        finding.on(document.places().description).hint(hint)
    };
    // Test this first: the text of the template has a good length and would pass the other checks.
    if description.starts_with(TEMPLATE) {
        findings.push(about(
            "description-template",
            Level::Error,
            "the description is still the text of the template".to_owned(),
            "say what the skill does and when to use it",
        ));
    } else if length < SHORT {
        findings.push(about(
            "description-short",
            Level::Warning,
            format!(
                "the description has {}; agents choose a skill by it",
                count(length, "character")
            ),
            "say what the skill does and when to use it",
        ));
    } else if length > LONG {
        findings.push(about(
            "description-long",
            Level::Warning,
            format!("the description has {length} characters; the standard allows {LONG}"),
            "some agents cut it or leave the skill out: shorten it",
        ));
    }
    for (at, character) in document.hidden_characters() {
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
