//! Quotation: text about attacks is not an attack.
//!
//! A scanner's documentation, a list of what to refuse, a table of patterns: rules that read prose keep out of them, and
//! what they would have said weighs little. Only the words of the sentence itself, of its heading and of the list's
//! introduction count; a word elsewhere in the skill excuses nothing.

use regex::bytes::{Regex, RegexBuilder};
use std::sync::LazyLock;

fn expression(pattern: &str) -> Regex {
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(1 << 22)
        .build()
        .unwrap_or_else(|_| {
            // A literal of this file: a test compiles each of them.
            Regex::new("$^").unwrap_or_else(|_| unreachable!("the empty expression compiles"))
        })
}

/// Words by which a sentence speaks of something instead of asking for it.
static SPEAKS: LazyLock<Regex> = LazyLock::new(|| {
    expression(concat!(
        r"\bdetect|\bflag(s|ged|ging)?\b|\bscans? for|\bscanning for|\blook(s|ing)? for|\bcheck(s|ing)? (for|if|whether|that)|\bwatch for|",
        r"\bpatterns?\b|\bred flags?|\bindicators?\b|\bvulnerab|\battack(s|er|ers|ing)?\b|\bthreat|\bexploit|\binjection\b|",
        r"\bprevents?\b|\bprotects?\b|\bguard(s|ed)? against|\bdefen[ds]|\bmitigat|\bsuspicious|\bunsafe\b|\brisky?\b|\bdangerous\b|",
        r"\bnever\b|\bdo(es)? not (run|execute|use|trust|follow|obey|install|pipe|allow|send|share|store|log|expose)|\bdon'?t (run|execute|use|trust|follow|obey|install|pipe|allow|send|share|log|expose)|",
        r"\bavoid(s|ing)?\b|\bblock(s|ed|ing)?\b|\bdeny\b|\bdenied\b|\breject|\brefus(e|es|ed|ing)\b|\bforbid|\bprohibit|\banti-pattern|\bsecurity (issue|risk|review|audit|check|scan)",
        r"|\xe2\x9d\x8c|\xf0\x9f\x9a\xab|\bphishing\b|\bjailbreak|\bexample of (an? )?(bad|attack|unsafe)|\bwould be\b|\btries to\b|\battempt(s|ed|ing)? to\b|\btrying to\b"
    ))
});

/// Headings under which attacks are described.
static ANNOUNCES: LazyLock<Regex> = LazyLock::new(|| {
    expression(concat!(
        r"\bdetect|\bred flags?|\bthreats?\b|\battacks?\b|\bvulnerab|\banti-?patterns?|\binjection\b|\bforbidden|\bprohibit|\bwhat not|\bdon'?ts?\b|\bnever\b|",
        r"\bdangerous|\bunsafe|\bsuspicious|\bblocked|\bblocklist|\bsecurity (rules|checks?|patterns?|scan|risks?|issues?|considerations|concerns)|\brisk(s|y)?\b|\bwarning signs|\bindicators?|",
        r"\bexploit|\bwhat (it|this) (checks|scans|catches)|\bcommon mistakes|\bbad\b|\bwrong\b|\bdefen[sc]e|\bguardrails?"
    ))
});

/// Signs that a stretch of text is itself a search expression.
static EXPRESSION: LazyLock<Regex> = LazyLock::new(|| {
    expression(r"\\[sbwd.|(\[/$]|\w\|\w+\||\.\*|\.\+|\[\^|\(\?[:i]|\[a-z|\|\||\\\\")
});

/// Whether a sentence speaks of an act instead of asking for it.
pub(super) fn speaks_of(statement: &[u8]) -> bool {
    SPEAKS.is_match(statement)
}

/// Whether a heading announces descriptions of attacks.
pub(super) fn announces(heading: &[u8]) -> bool {
    ANNOUNCES.is_match(heading)
}

/// Whether a stretch of text is a search expression.
pub(super) fn is_expression(text: &[u8]) -> bool {
    EXPRESSION
        .find_iter(text)
        .take(3)
        .filter(|found| found.as_bytes() != b"||")
        .count()
        >= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speaking_of_is_not_asking_for() {
        assert!(speaks_of(b"it detects commands such as curl x | sh"));
        assert!(speaks_of(b"never run rm -rf /"));
        assert!(!speaks_of(b"run this command: curl x | sh"));
        assert!(announces(b"## red flags"));
        assert!(!announces(b"## installation"));
        assert!(is_expression(br"curl\s+.*\|\s*sh"));
        assert!(!is_expression(b"curl -s x | sh"));
        assert!(
            !SPEAKS.as_str().starts_with("$^")
                && !ANNOUNCES.as_str().starts_with("$^")
                && !EXPRESSION.as_str().starts_with("$^")
        );
    }
}
