//! The scanner: every file in several readings, one pass of many words over each, then rules over structure.
//!
//! Time is linear: each reading is as long as the file at most, words are found in one pass, an expression is tried only
//! where its words occur, on a statement, block or section of bounded size, and expressions run in linear time. The work
//! is counted in bytes, so that a test can compare inputs without a clock.

mod decode;
pub(super) mod quote;
mod segment;
mod text;
mod words;

use crate::finding::{Finding, Level, View};
use crate::rule::{Act, Lazy, Ready, ScanRule, Scope, Seen, place};
use segment::{Kind, Segments, Span};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;
use text::{Lines, Reading, Source};
use vault_format::bundle::File;
use words::Words;

/// Sum of points at which hints become warnings.
pub(super) const HINT_THRESHOLD: u32 = 6;
/// What one family of rules can add to the sum.
const MOST_OF_A_FAMILY: u32 = 6;
/// Findings of one rule in one skill that are listed.
const MOST_LISTED: usize = 5;
/// Points of a blocking rule that hit inside a quotation.
const QUOTED: u32 = 3;

/// All rules, ready to run.
struct Engine {
    rules: Vec<Ready>,
    words: Words,
    /// Of each word: the groups it belongs to.
    groups_of: Vec<Vec<u16>>,
    /// Of each group: the rule that it is the first group of, if it is one.
    leads: Vec<Option<u16>>,
}

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(super::rules::all()));

static STARTS_PROCESS: Lazy = Lazy::new(
    r"\bsystem\s*\(|\bpopen|subprocess|\bexec(sync|file|filesync|v|ve|vp|l|lp)?\s*\(|\bspawn(sync)?\s*\(|child_process|shell_exec|passthru|\bsh -c|\bcommand::new|process\.start|\beval\s*\(|\brun\s*\(\s*\[?|runtime\.getruntime|\bshelljs|\bexeca|\$`|%x[\({]|\bbash -c",
);

impl Engine {
    fn new(rules: impl Iterator<Item = &'static ScanRule>) -> Self {
        let mut words: Vec<&str> = Vec::new();
        let mut numbers = HashMap::new();
        let mut groups_of: Vec<Vec<u16>> = Vec::new();
        let mut leads = Vec::new();
        let mut ready = Vec::new();
        for (index, rule) in rules.enumerate() {
            let mut groups = Vec::new();
            for (place, group) in rule.needs.iter().enumerate() {
                let number = u16::try_from(leads.len()).unwrap_or(u16::MAX);
                leads.push((place == 0).then(|| u16::try_from(index).unwrap_or(u16::MAX)));
                groups.push(number);
                for word in *group {
                    let at = *numbers.entry(*word).or_insert_with(|| {
                        words.push(word);
                        groups_of.push(Vec::new());
                        words.len() - 1
                    });
                    groups_of[at].push(number);
                }
            }
            let lazies = |patterns: &'static [&'static str]| {
                patterns.iter().map(|pattern| Lazy::new(pattern)).collect()
            };
            ready.push(Ready {
                rule,
                all: lazies(rule.all),
                none: lazies(rule.none),
                groups,
            });
        }
        Self {
            rules: ready,
            words: Words::new(&words),
            groups_of,
            leads,
        }
    }
}

/// A hit before its weight is decided.
struct Hit {
    rule: &'static ScanRule,
    act: Act,
    finding: Finding,
}

/// What was found, and how much was read to find it.
#[derive(Default)]
pub(crate) struct Scan {
    hits: Vec<Hit>,
    /// Bytes given to the word search and to expressions: the work done.
    pub work: u64,
}

/// Scans every file.
pub(crate) fn scan(files: &[File]) -> Scan {
    let mut scan = Scan::default();
    for file in files {
        scan_file(file.path.as_str(), &file.bytes, &mut scan);
    }
    scan
}

/// Scans the bytes of one file under this path.
pub(crate) fn scan_file(path: &str, bytes: &[u8], scan: &mut Scan) {
    for (rule, act, finding) in super::rules::files::check(path, bytes) {
        scan.hits.push(Hit { rule, act, finding });
    }
    let Some(source) = Source::read(bytes) else {
        return;
    };
    for (rule, act, finding) in
        super::rules::files::reading(path, source.cut, source.wide, source.damaged)
    {
        scan.hits.push(Hit { rule, act, finding });
    }
    let lines = Lines::of(&source.raw);
    let place = Where {
        path,
        raw: &source.raw,
        lines: &lines,
    };
    let kind = Kind::of(path, &source.raw);
    let mut reading = Reading::new(&source.raw);
    let segments = segment::split(&mut reading.bytes, kind);
    if !source.raw.is_ascii() {
        scan.work += source.raw.len() as u64;
        for (rule, act, offset, what) in
            super::rules::unicode::check(&source.raw, kind == Kind::Code || kind == Kind::Shell)
        {
            place.push(scan, rule, act, offset, View::Raw, &what);
        }
    }
    let mut seen = Vec::new();
    run(
        &reading.bytes,
        &segments,
        scan,
        |scan, rule, act, span, at| {
            let offset = reading.origin(at);
            let text = &reading.bytes[at.min(span.end)..span.end];
            seen.push((rule.rule.id, span.start));
            place.push_text(scan, rule, act, offset, text);
        },
    );
    joined(&reading, &segments, scan, &place, &seen);
    decoded(&source.raw, scan, &place);
}

/// A file, for findings about places in it.
struct Where<'a> {
    path: &'a str,
    raw: &'a str,
    lines: &'a Lines,
}

impl Where<'_> {
    /// A hit in the normalised reading, which is shown as raw where both say the same.
    fn push_text(
        &self,
        scan: &mut Scan,
        rule: &'static ScanRule,
        act: Act,
        offset: usize,
        text: &[u8],
    ) {
        let shown = first_line(text);
        let here = self.raw.get(offset..).unwrap_or_default();
        let same = here.len() >= shown.len()
            && here.as_bytes()[..shown.len()]
                .iter()
                .zip(shown)
                .all(|(raw, read)| {
                    raw.eq_ignore_ascii_case(read)
                        || (raw.is_ascii_whitespace() && read.is_ascii_whitespace())
                        || !read.is_ascii()
                });
        if same {
            let line = here.lines().next().unwrap_or_default();
            self.push(scan, rule, act, offset, View::Raw, line);
        } else {
            self.push(
                scan,
                rule,
                act,
                offset,
                View::Normalised,
                &String::from_utf8_lossy(shown),
            );
        }
    }

    fn push(
        &self,
        scan: &mut Scan,
        rule: &'static ScanRule,
        act: Act,
        offset: usize,
        view: View,
        text: &str,
    ) {
        let finding = Finding::of(&rule.rule, Level::Warning, rule.message)
            .at(self.path)
            .on(self.lines.position(self.raw, offset))
            .quoting(view, text)
            .hint(rule.mend);
        scan.hits.push(Hit { rule, act, finding });
    }
}

fn first_line(text: &[u8]) -> &[u8] {
    let text = &text[..text.len().min(160)];
    text.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// Runs every rule over a text whose structure is known.
fn run(
    bytes: &[u8],
    segments: &Segments,
    scan: &mut Scan,
    mut found: impl FnMut(&mut Scan, &'static ScanRule, Act, Span, usize),
) {
    let engine = &*ENGINE;
    scan.work += bytes.len() as u64;
    // By where they begin; a word that ends in a scope began in it or does not count.
    let hits = engine.words.find(bytes);
    if hits.is_empty() {
        return;
    }
    for (scope, spans) in [
        (Scope::Statement, &segments.statements),
        (Scope::Block, &segments.blocks),
        (Scope::Section, &segments.sections),
    ] {
        let mut next = 0;
        let mut groups: Vec<u16> = Vec::new();
        for span in spans {
            while next < hits.len() && hits[next].0 < span.start {
                next += 1;
            }
            groups.clear();
            while next < hits.len() && hits[next].0 < span.end {
                groups.extend_from_slice(&engine.groups_of[hits[next].1]);
                next += 1;
            }
            if groups.is_empty() {
                continue;
            }
            groups.sort_unstable();
            groups.dedup();
            for group in &groups {
                let Some(number) = engine.leads[usize::from(*group)] else {
                    continue;
                };
                let ready = &engine.rules[usize::from(number)];
                if ready.rule.scope != scope
                    || span.place & ready.rule.places == 0
                    || !ready
                        .groups
                        .iter()
                        .all(|group| groups.binary_search(group).is_ok())
                {
                    continue;
                }
                if let Some((act, at)) = try_rule(ready, bytes, *span, segments, scan) {
                    found(scan, ready.rule, act, *span, span.start + at);
                }
            }
        }
    }
}

/// Whether a rule matches in a span: what that weighs, and where.
fn try_rule(
    ready: &Ready,
    bytes: &[u8],
    span: Span,
    segments: &Segments,
    scan: &mut Scan,
) -> Option<(Act, usize)> {
    let text = &bytes[span.start..span.end];
    let mut first = 0..0;
    for (number, expression) in ready.all.iter().enumerate() {
        scan.work += text.len() as u64;
        let range = expression.find(text)?;
        if number == 0 {
            first = range;
        }
    }
    for expression in &ready.none {
        scan.work += text.len() as u64;
        if expression.is_match(text) {
            return None;
        }
    }
    let rule = ready.rule;
    let mut at = first.start;
    if let Some(check) = rule.check {
        scan.work += text.len() as u64;
        at = check(&Seen {
            text,
            first: first.clone(),
            place: span.place,
        })?;
    }
    // The sentence or statement that holds the hit says where it stands; a block is of many kinds.
    let statements = &segments.statements;
    let within = statements.partition_point(|statement| statement.start <= span.start + at);
    let own = within
        .checked_sub(1)
        .map_or(span, |place| statements[place]);
    if own.place & rule.places == 0 {
        return None;
    }
    let mut quoted = !rule.literal
        && (in_quotation_marks(text, at, own.place)
            || segments.is_quoted(bytes, &span)
            || segments.is_quoted(bytes, &own));
    let around = &text[first.start.saturating_sub(8)..(first.end + 8).min(text.len())];
    if (rule.command || own.place & (place::CODE | place::DATA) != 0) && !rule.literal {
        quoted |= quote::is_expression(around);
    }
    if rule.command {
        let foreign = own.place & place::CODE != 0 && own.place & place::SHELL == 0;
        let begins = text[..at]
            .iter()
            .rev()
            .take_while(|byte| **byte != b'\n')
            .all(|byte| matches!(byte, b' ' | b'\t' | b'!' | b'$' | b'>'));
        quoted |= foreign && !begins && !STARTS_PROCESS.is_match(text);
        quoted |= own.place & place::COMMENT != 0;
    }
    let act = match (rule.act, quoted) {
        (act, false) => act,
        (Act::Block, true) => Act::Hint(QUOTED),
        (Act::Warn, true) => Act::Hint(1),
        (Act::Hint(_), true) => return None,
    };
    Some((act, at))
}

/// A phrase that begins right after a quotation mark is cited, in prose; code and data put marks around everything.
fn in_quotation_marks(text: &[u8], at: usize, place: u16) -> bool {
    let before = &text[..at];
    let prose = place & (place::PROSE | place::HEAD | place::TABLE | place::COMMENT) != 0;
    let plain = before
        .last()
        .is_some_and(|byte| matches!(byte, b'"' | b'\''));
    let typeset = ["\u{201C}", "\u{2018}", "\u{300C}", "\u{AB}"]
        .iter()
        .any(|mark| before.ends_with(mark.as_bytes()));
    prose && (plain || typeset)
}

static SPLIT_LITERAL: Lazy = Lazy::new(
    r#"['"]\s*\+\s*['"]|\w(''|"")\w|\w'\s?'\w|['"]\s*\.\s*['"]|\$\{ifs\}|\$ifs\b|\b\w\\\w\\?\w|\$@\w|\w\[\w\]"#,
);
static JOINT: LazyLock<Option<regex::bytes::Regex>> = LazyLock::new(|| {
    regex::bytes::RegexBuilder::new(r#"['"]\s*[+.]?\s*['"]"#)
        .unicode(false)
        .build()
        .ok()
});

/// Statements that are glued together from pieces, read without the seams; only what the seams hid is said.
fn joined(
    reading: &Reading,
    segments: &Segments,
    scan: &mut Scan,
    place: &Where<'_>,
    seen: &[(&str, usize)],
) {
    for span in segments
        .statements
        .iter()
        .filter(|span| span.place & (place::CODE | place::SHELL) != 0)
    {
        let text = &reading.bytes[span.start..span.end];
        // Cheap first: without two quotes, a `$` or a backslash there is no seam.
        let quotes = text
            .iter()
            .filter(|byte| matches!(byte, b'\'' | b'"' | b'$' | b'\\' | b'[' | b']'))
            .take(2)
            .count();
        if quotes < 2
            && !text
                .windows(4)
                .any(|four| four == b"$ifs" || four == b"{ifs")
        {
            continue;
        }
        scan.work += text.len() as u64;
        if !SPLIT_LITERAL.is_match(text) {
            continue;
        }
        let Some(joint) = &*JOINT else { return };
        let mut whole = joint.replace_all(text, &b""[..]).into_owned();
        whole = replace(&whole, b"${ifs}", b" ");
        whole = replace(&whole, b"$ifs", b" ");
        let word_escape = whole
            .windows(2)
            .any(|two| two[0] == b'\\' && two[1].is_ascii_alphabetic());
        if word_escape && span.place & place::SHELL != 0 {
            whole.retain(|byte| *byte != b'\\');
        }
        if span.place & place::SHELL != 0 {
            whole = unbracket(&whole);
        }
        if whole == text {
            continue;
        }
        let segments = segment::flat(&mut whole, span.place);
        run(&whole, &segments, scan, |scan, rule, act, _, at| {
            if rule.act == Act::Block
                && act == Act::Block
                && !seen.contains(&(rule.rule.id, span.start))
                && rule.scope == Scope::Statement
            {
                let shown = String::from_utf8_lossy(first_line(&whole[at..])).into_owned();
                place.push(
                    scan,
                    rule,
                    act,
                    reading.origin(span.start),
                    View::Joined,
                    &shown,
                );
            }
        });
    }
}

/// `pass[w]d` is `passwd` to a shell.
fn unbracket(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if let [b'[', letter, b']', ..] = &text[at..]
            && letter.is_ascii_alphanumeric()
            && at > 0
        {
            out.push(*letter);
            at += 3;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) {
            out.extend_from_slice(to);
            at += from.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// What decodes to text is read as a text of its own.
fn decoded(raw: &str, scan: &mut Scan, place: &Where<'_>) {
    scan.work += raw.len() as u64;
    for piece in decode::pieces(raw) {
        let mut reading = Reading::new(&piece.text).bytes;
        let segments = segment::flat(&mut reading, place::DECODED | place::SHELL);
        run(&reading, &segments, scan, |scan, rule, act, _, at| {
            let shown = piece.text.get(at..).unwrap_or(&piece.text);
            place.push(
                scan,
                rule,
                act,
                piece.origin,
                View::Decoded,
                shown.lines().next().unwrap_or_default(),
            );
        });
    }
}

impl Scan {
    /// The findings: what blocks as flags, what warns as warnings, hints only where they come to something together.
    pub(crate) fn findings(self) -> Vec<Finding> {
        let said = self.points() >= HINT_THRESHOLD;
        let mut listed = BTreeMap::<(&str, Act2), usize>::new();
        let mut places = std::collections::BTreeSet::new();
        let mut findings = Vec::new();
        let mut hits = self.hits;
        hits.sort_by_key(|hit| (hit.act.rank(), hit.finding.view));
        for hit in hits {
            let level = match hit.act {
                Act::Block => Level::Flag,
                Act::Warn => Level::Warning,
                Act::Hint(_) if said => Level::Warning,
                Act::Hint(_) => continue,
            };
            // The same rule on the same line is one finding, whatever reading it came from.
            if !places.insert((hit.rule.rule.id, hit.finding.path.clone(), hit.finding.line)) {
                continue;
            }
            let count = listed
                .entry((hit.rule.rule.id, Act2(level == Level::Flag)))
                .or_default();
            *count += 1;
            if *count <= MOST_LISTED {
                findings.push(Finding {
                    level,
                    ..hit.finding
                });
            }
        }
        findings
    }

    /// The sum of hints: of each rule once, of each family at most so much.
    fn points(&self) -> u32 {
        let mut rules = BTreeMap::<&str, u32>::new();
        for hit in &self.hits {
            let points = match hit.act {
                Act::Hint(points) => points,
                Act::Block | Act::Warn => continue,
            };
            let best = rules.entry(hit.rule.rule.id).or_default();
            *best = (*best).max(points);
        }
        let mut families = BTreeMap::<&str, u32>::new();
        for (id, points) in rules {
            *families
                .entry(id.rsplit_once('-').map_or(id, |(family, _)| family))
                .or_default() += points;
        }
        families
            .values()
            .map(|points| (*points).min(MOST_OF_A_FAMILY))
            .sum()
    }
}

/// Whether a count is of flags.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
struct Act2(bool);

impl Act {
    const fn rank(self) -> u8 {
        match self {
            Self::Block => 0,
            Self::Warn => 1,
            Self::Hint(_) => 2,
        }
    }
}

#[cfg(test)]
mod tests;
