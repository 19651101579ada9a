//! An audit as JSON: one object, or one line for each skill.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Audit, Summary, Verdict};
use vault_format::text::is_invisible;

/// An audit of skills.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Audit")]
pub struct AuditView<'a> {
    #[serde(flatten)]
    audit: &'a Audit,
    /// Number of skills by verdict.
    summary: Summary,
}

impl<'a> From<&'a Audit> for AuditView<'a> {
    fn from(audit: &'a Audit) -> Self {
        Self {
            audit,
            summary: audit.summary(),
        }
    }
}

/// Renders one line for each skill, then one for each folder that could not be searched (`name`
/// null, verdict `unreadable`, `reason`), for each excluded skill (verdict `excluded`) and for each
/// folder that is left out (verdict `left_out`). Each ends with `\n`.
pub fn render_lines(audit: &Audit) -> String {
    let mut text = String::new();
    let skills = audit.skills.iter().map(|skill| serde_json::json!(skill));
    // Write skipped folders like skills, so that a reader that only counts verdicts sees that the
    // audit is not complete.
    let skipped = audit.skipped.iter().map(|skipped| {
        serde_json::json!({
            "path": skipped.path, "name": null, "verdict": Verdict::Unreadable, "reason": skipped.reason, "findings": [],
            "microseconds": 0,
        })
    });
    let excluded = audit.excluded.iter().map(|excluded| {
        serde_json::json!({
            "path": excluded.path, "name": null, "verdict": "excluded", "reason": excluded.reason, "findings": [],
            "microseconds": 0,
        })
    });
    let left_out = audit.left_out.iter().map(|left| {
        serde_json::json!({
            "path": left.path, "name": null, "verdict": "left_out", "reason": left.message, "findings": [],
            "microseconds": 0,
        })
    });
    for value in skills.chain(skipped).chain(excluded).chain(left_out) {
        text.push_str(&escape_invisible(&value.to_string()));
        text.push('\n');
    }
    text
}

/// Escapes the invisible characters that JSON allows unescaped. The JSON keeps its value and cannot
/// control a terminal.
pub fn escape_invisible(json: &str) -> String {
    if !json.chars().any(is_invisible) {
        return json.to_owned();
    }
    let mut text = String::with_capacity(json.len() + 64);
    let mut units = [0; 2];
    // Outside of strings, JSON is ASCII, so each of these characters is in a string, where it may
    // be escaped. Line breaks are layout: those in strings are already escaped.
    for character in json.chars() {
        if character != '\n' && is_invisible(character) {
            // JSON escapes UTF-16 units, so a character may take two.
            for unit in character.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::examples::{self, HOSTILE};
    use super::*;

    #[test]
    fn a_line_for_each_skill_with_what_a_program_wants() {
        let text = render_lines(&examples::audit());
        assert!(
            !text.chars().any(|c| c != '\n' && is_invisible(c)),
            "{text}"
        );
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[0]["verdict"], "accepted");
        assert_eq!(lines[1]["path"], HOSTILE);
        assert_eq!(lines[1]["microseconds"], 7);
        assert_eq!(lines[1]["findings"][0]["level"], "flag");
        assert_eq!(lines[3]["hash"], serde_json::Value::Null);
        assert_eq!(lines[4]["reason"], "permission denied");
        assert_eq!(lines[5]["verdict"], "excluded");
        assert_eq!(lines[6]["verdict"], "left_out");
        assert_eq!(
            lines[6]["reason"],
            format!("it is part of the skill in {HOSTILE}")
        );
    }

    #[test]
    fn escaped_json_decodes_to_the_same_value() {
        let data = serde_json::json!({
            "a\u{9b}": ["\u{1b}[2J\u{7f}\u{85}\u{202e}\u{2028}é\n", "\u{61c}\u{e0041}", "plain"]
        });
        for text in [
            data.to_string(),
            serde_json::to_string_pretty(&data).unwrap(),
        ] {
            let shown = escape_invisible(&text);
            assert!(
                !shown.chars().any(|c| c != '\n' && is_invisible(c)),
                "{shown}"
            );
            let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(read, data);
        }
    }

    #[test]
    fn the_whole_says_how_much_was_looked_at() {
        let whole = serde_json::to_value(AuditView::from(&examples::audit())).unwrap();
        assert_eq!(whole["summary"]["blocked"], 1);
        assert_eq!(
            whole["bounds"][0],
            serde_json::json!({ "unit": "folders", "limit": 2000 })
        );
        assert_eq!(whole["skipped"][0]["reason"], "permission denied");
        assert_eq!(whole["left_out"][0]["reason"], "inside_skill");
        assert_eq!(whole["summary"]["left_out"], 1);
        assert_eq!(whole["skills"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn characters_beyond_the_first_plane_are_two_escapes() {
        let text = serde_json::to_string("a\u{E0041}b").unwrap();
        let shown = escape_invisible(&text);
        assert_eq!(shown, "\"a\\udb40\\udc41b\"");
        assert_eq!(
            serde_json::from_str::<String>(&shown).unwrap(),
            "a\u{E0041}b"
        );
    }
}
