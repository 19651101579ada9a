//! An audit as Markdown that fits into a comment of a code host: a summary, a table of skills, a
//! table of findings.
//!
//! Text from a skill is written in code spans, in which no mark-up, mention or link works. The same
//! holds for messages that quote such text.

use super::{Audit, Audited, Located, Verdict};
use crate::finding::Level;
use vault_format::text::printable;

/// Maximum number of bytes of a comment; code hosts reject longer ones. Rows that do not fit are
/// counted in a last line.
pub const MAX_BYTES: usize = 60_000;

/// Renders the audit as a comment of at most [`MAX_BYTES`].
pub fn render(audit: &Audit) -> String {
    let summary = audit.summary();
    let mut out = format!(
        "### Skill audit: {}\n\n{} {}: {} accepted, {} with warnings, {} blocked, {} unreadable.\n",
        match audit.worst_verdict() {
            // Report an incomplete audit first: otherwise, an audit that read only half of the
            // skills would be called clean.
            _ if !audit.is_complete() => "not everything could be read",
            Verdict::Blocked => "blocked",
            Verdict::Warnings => "warnings",
            _ => "clean",
        },
        summary.skills,
        if summary.skills == 1 {
            "skill"
        } else {
            "skills"
        },
        summary.accepted,
        summary.warnings,
        summary.blocked,
        summary.unreadable,
    );
    for bound in &audit.bounds {
        out.push_str(&format!(
            "\nOnly the first {} {} were scanned; skills beyond them are not in this report.\n",
            bound.limit, bound.unit
        ));
    }
    let skipped = audit.skipped.iter();
    let skipped = skipped.map(|skipped| ("Not scanned", &skipped.path, &skipped.reason));
    let excluded = audit.excluded.iter();
    let excluded = excluded.map(|excluded| ("Excluded", &excluded.path, &excluded.reason));
    let left_out = audit.left_out.iter();
    let left_out = left_out.map(|left| ("Left out", &left.path, &left.message));
    for (what, path, reason) in skipped.chain(excluded).chain(left_out) {
        let line = format!(
            "\n{what}: {} ({})\n",
            code_span(path),
            sentence_or_code(reason)
        );
        // Leave room for the findings, even if there are very many unreadable folders.
        if out.len() + line.len() > MAX_BYTES / 2 {
            break;
        }
        out.push_str(&line);
    }
    let reported: Vec<&Audited> = reported_skills(audit);
    if reported.is_empty() {
        return out;
    }
    append_rows(
        &mut out,
        "\n| Skill | Verdict | Blocking | Warnings |\n| --- | --- | ---: | ---: |\n",
        reported.iter().map(|skill| skill_row(skill)),
        MAX_BYTES / 3,
        "skills",
    );
    let findings = reported.iter().flat_map(|skill| {
        let rows = skill.findings.iter();
        rows.map(|located| finding_row(skill, located))
    });
    append_rows(
        &mut out,
        "\n| Level | Place | Finding | How to fix it |\n| --- | --- | --- | --- |\n",
        findings,
        MAX_BYTES - 200,
        "findings",
    );
    out
}

/// Returns the skills with a warning or worse, the heaviest first.
fn reported_skills(audit: &Audit) -> Vec<&Audited> {
    let is_reported = |skill: &&Audited| skill.verdict > Verdict::Accepted;
    let mut reported: Vec<&Audited> = audit.skills.iter().filter(is_reported).collect();
    reported.sort_by_key(|skill| std::cmp::Reverse(skill.verdict));
    reported
}

/// Appends rows until the whole text has its maximum length, then the number of rows that were left
/// out.
fn append_rows(
    out: &mut String,
    heading: &str,
    rows: impl Iterator<Item = String>,
    most: usize,
    what: &str,
) {
    out.push_str(heading);
    let mut left_out = 0;
    for row in rows {
        // Once a row does not fit, leave out all later ones too. The table is then the beginning of
        // the list and not a selection of short rows.
        if left_out > 0 || out.len() + row.len() > most {
            left_out += 1;
        } else {
            out.push_str(&row);
        }
    }
    if left_out > 0 {
        out.push_str(&format!("\nAnd {left_out} more {what}.\n"));
    }
}

fn skill_row(skill: &Audited) -> String {
    let blocking = skill.blocking_count();
    format!(
        "| {} | {} | {blocking} | {} |\n",
        code_span(&skill.path),
        skill.verdict.as_str(),
        skill.findings.len() - blocking
    )
}

fn finding_row(skill: &Audited, located: &Located) -> String {
    let finding = &located.finding;
    let mut place = skill.path_of(finding);
    if let Some(line) = finding.line {
        place.push_str(&format!(":{line}"));
    }
    let level = match finding.level {
        Level::Note => "note",
        Level::Warning => "warning",
        Level::Flag | Level::Error => "**blocks**",
    };
    let excerpt = if finding.excerpt.is_empty() {
        String::new()
    } else {
        format!("<br>{}", code_span(&finding.excerpt))
    };
    format!(
        "| {level} | {} | {} ({}){excerpt} | {} |\n",
        code_span(&place),
        sentence_or_code(&finding.message),
        finding.rule,
        sentence_or_code(&finding.hint)
    )
}

/// Returns a sentence unchanged if Markdown reads nothing in it as mark-up, else as code.
fn sentence_or_code(sentence: &str) -> String {
    let plain = sentence.chars().all(|character| {
        character.is_alphanumeric()
            || matches!(
                character,
                ' ' | ',' | '.' | ';' | '(' | ')' | '\'' | '-' | '/' | '…'
            )
    });
    // Code hosts make links of bare `www.` addresses.
    if plain && !sentence.contains("www.") {
        sentence.to_owned()
    } else {
        code_span(sentence)
    }
}

/// Maximum number of characters in one code span.
const LONGEST: usize = 200;

/// Returns a text as a code span in a table: the fence is longer than any in the text, and controls
/// and `|` are escaped.
fn code_span(hostile: &str) -> String {
    let mut shown: String = hostile.chars().take(LONGEST).collect();
    if hostile.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    // Markdown readers disagree on a bar after a backslash, so write such a bar as `\u{7c}`.
    let shown = printable(&shown)
        .replace("\\|", "\\\\u{7c}")
        .replace('|', "\\|");
    let (mut longest, mut run) = (0, 0);
    for character in shown.chars() {
        run = if character == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    if shown.is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest + 1);
    // Without a space, a back tick at the edge would lengthen the fence. Markdown removes one space
    // on each side again.
    let pad = if longest > 0 || shown.starts_with(' ') {
        " "
    } else {
        ""
    };
    format!("{fence}{pad}{shown}{pad}{fence}")
}

#[cfg(test)]
mod tests {
    use super::super::examples::{self, HOSTILE};
    use super::*;

    #[test]
    fn a_hostile_text_stays_in_its_code_span() {
        for (hostile, span) in [
            ("plain", "`plain`"),
            ("a`b", "`` a`b ``"),
            ("``", "``` `` ```"),
            ("a|b", "`a\\|b`"),
            ("a\\|b", "`a\\\\u{7c}b`"),
            ("a\nb\u{202e}", "`a\\u{a}b\\u{202e}`"),
            ("", ""),
        ] {
            assert_eq!(code_span(hostile), span);
        }
        assert_eq!(
            sentence_or_code("a plain sentence, really"),
            "a plain sentence, really"
        );
        for marked in [
            "ping @owner",
            "see #1",
            "<b>",
            "[x](y)",
            "a_b_",
            "http://x",
            "www.x.example",
        ] {
            assert!(sentence_or_code(marked).starts_with('`'), "{marked}");
        }
    }

    #[test]
    fn every_row_has_its_cells_and_no_line_steers() {
        let out = render(&examples::audit());
        assert!(
            !out.chars()
                .any(|c| c != '\n' && vault_format::text::is_invisible(c))
        );
        assert!(
            out.starts_with("### Skill audit: not everything could be read\n"),
            "{out}"
        );
        assert!(out.contains("Only the first 2000 folders were scanned"));
        for row in out.lines().filter(|line| line.starts_with('|')) {
            let bars = row.replace("\\|", "").matches('|').count();
            assert_eq!(bars, 5, "{row}");
        }
        let mut outside = String::new();
        for row in out.lines() {
            // Without its code spans, a row contains no text of the skill.
            let mut rest = row;
            while let Some(start) = rest.find('`') {
                outside.push_str(&rest[..start]);
                let fence = rest[start..].chars().take_while(|c| *c == '`').count();
                let inner = &rest[start + fence..];
                let end = inner.find(&"`".repeat(fence)).unwrap();
                rest = &inner[end + fence..];
            }
            outside.push_str(rest);
        }
        for part in ["<img", "@owner", "evil", "[x]"] {
            assert!(
                HOSTILE.contains(part) && !outside.contains(part),
                "{part}: {outside}"
            );
        }
    }

    #[test]
    fn a_comment_ends_somewhere_and_says_what_it_leaves_out() {
        let mut audit = examples::audit();
        let blocked = audit.skills[1].clone();
        audit.skills = vec![blocked; 5_000];
        let out = render(&audit);
        assert!(out.len() <= MAX_BYTES, "{}", out.len());
        assert!(out.contains(" more skills.\n") && out.contains(" more findings.\n"));
    }

    #[test]
    fn a_clean_audit_is_one_sentence() {
        let mut audit = examples::audit();
        audit.skills.truncate(1);
        audit.left_out.clear();
        audit.skipped.clear();
        audit.excluded.clear();
        audit.bounds.clear();
        assert_eq!(
            render(&audit),
            "### Skill audit: clean\n\n1 skill: 1 accepted, 0 with warnings, 0 blocked, 0 unreadable.\n"
        );
    }
}
