//! The scanner: every file in several readings, one pass of many words over each, then rules over structure.
//!
//! Time is linear: each reading is as long as the file at most, words are found in one pass, an expression is tried only
//! where its words occur, on a statement, block or section of bounded size, and expressions run in linear time. The work
//! is counted in bytes, so that a test can compare inputs without a clock.

mod contain;
mod decode;
mod quote;
#[cfg(test)]
#[path = "../../../../tests/gate-accuracy/src/rewrite.rs"]
mod rewrite;
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
/// Points of a blocking rule that hit a text which no shell runs.
const QUOTED: u32 = 3;
/// The rule about decoded addresses, and its points where nothing decodes them.
const ADDRESS: &str = "VG-DE-006";
const ADDRESS_ALONE: u32 = 4;
/// Bytes that the containers and encoded texts of a skill may come to; what is beyond is reported as unread.
const MOST_UNPACKED: usize = 8 << 20;
/// Characters of the words that matched which a message quotes.
const MOST_QUOTED: usize = 60;

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

/// A call of the language itself, which needs no process to act.
static IS_CALL: Lazy = Lazy::new(r"^[a-z_][\w.]*\(");

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
                second: lazies(rule.second),
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

/// A rule that matched in a text.
struct RuleHit {
    rule: &'static ScanRule,
    act: Act,
    /// The scope in which it matched.
    span: Span,
    /// Offset in the text, and the length of what the first expression matched from there.
    at: usize,
    length: usize,
    /// What the rule says beside the words that matched.
    detail: Option<String>,
}

/// What was found, and how much was read to find it.
#[derive(Default)]
pub(crate) struct Scan {
    hits: Vec<Hit>,
    /// Bytes given to the word search and to expressions: the work done.
    pub work: u64,
    /// Bytes that containers and encoded texts of the skill came to so far.
    unpacked: usize,
    /// Owners and hosts that the skill comes from, lower case.
    publisher: Vec<String>,
}

impl Scan {
    fn hit(&mut self, (rule, act, finding): (&'static ScanRule, Act, Finding)) {
        self.hits.push(Hit { rule, act, finding });
    }

    /// Of a skill that comes from these owners and hosts.
    pub(crate) fn of_publisher(publisher: &[String]) -> Self {
        Self {
            publisher: publisher.to_vec(),
            ..Self::default()
        }
    }
}

/// Scans every file of a skill that comes from these owners and hosts.
pub(crate) fn scan(files: &[File], publisher: &[String]) -> Scan {
    let mut scan = Scan::of_publisher(publisher);
    for file in files {
        let path = file.path.as_str();
        // Asked only of what looks like a signature: most files hold no JSON in base64.
        let may_be_signed = file.bytes.windows(3).any(|three| three == b"eyJ");
        let is_read = may_be_signed && is_read(path, files);
        scan_file(path, &file.bytes, is_read, &mut scan);
    }
    scan
}

/// Whether a command or a script of the skill reads this file: then what it holds is no signature but content.
fn is_read(path: &str, files: &[File]) -> bool {
    static READS: Lazy = Lazy::new(
        r"\b(?:cat|base64|jq|open|read\w*|source|bash|sh|python[\d.]*|node|perl|ruby|eval|xxd|awk|sed|grep|tr|cut|load\w*|require|import|decode)\b",
    );
    let name = path.rsplit('/').next().unwrap_or(path);
    let Ok(name) = regex::bytes::Regex::new(&regex::escape(name)) else {
        return false;
    };
    let others = files.iter().filter(|file| file.path.as_str() != path);
    others
        .flat_map(|file| {
            let line_of = |found: regex::bytes::Match<'_>| {
                let is_end = |byte: &u8| *byte == b'\n';
                let before = &file.bytes[..found.start()];
                let after = &file.bytes[found.end()..];
                let from = before.iter().rposition(is_end).map_or(0, |at| at + 1);
                let to = after.iter().position(is_end).unwrap_or(after.len());
                let from = from.max(found.start().saturating_sub(LONGEST_LINE));
                &file.bytes[from..found.end() + to.min(LONGEST_LINE)]
            };
            name.find_iter(&file.bytes)
                .take(64)
                .map(line_of)
                .collect::<Vec<_>>()
        })
        .any(|line| READS.is_match(&line.to_ascii_lowercase()))
}

/// Scans the bytes of one file under this path. `is_read`: a command of the skill reads it.
pub(crate) fn scan_file(path: &str, bytes: &[u8], is_read: bool, scan: &mut Scan) {
    for found in super::rules::files::check(path, bytes) {
        scan.hit(found);
    }
    let left = MOST_UNPACKED.saturating_sub(scan.unpacked);
    if let Some(contained) = contain::open(path, bytes, left) {
        scan.unpacked += contained.size();
        scan.work += contained.size() as u64;
        if contained.is_cut {
            scan.hit(super::rules::files::unread(path));
        }
        for part in &contained.parts {
            let program = super::rules::files::program_inside(path, &part.name, &part.bytes);
            if let Some(found) = program {
                scan.hit(found);
            }
            scan_text(path, Some(&part.name), &part.bytes, is_read, scan);
        }
    }
    scan_text(path, None, bytes, is_read, scan);
}

/// Scans the bytes of a file, or of a part of it, as text if they are text.
fn scan_text(path: &str, part: Option<&str>, bytes: &[u8], is_read: bool, scan: &mut Scan) {
    let Some(source) = Source::read(bytes) else {
        return;
    };
    if part.is_none() {
        for found in super::rules::files::reading(path, source.cut, source.damaged) {
            scan.hit(found);
        }
    }
    let lines = Lines::of(&source.raw);
    let place = Where {
        path,
        part,
        raw: &source.raw,
        lines: &lines,
    };
    let kind = Kind::of(part.unwrap_or(path), &source.raw);
    let mut reading = Reading::new(&source.raw);
    let segments = segment::split(&mut reading.bytes, kind);
    if !source.raw.is_ascii() {
        scan.work += source.raw.len() as u64;
        for (rule, act, offset, what) in
            super::rules::unicode::check(&source.raw, kind == Kind::Code || kind == Kind::Shell)
        {
            let hit = RuleHit {
                rule,
                act,
                span: Span::default(),
                at: 0,
                length: 0,
                detail: None,
            };
            place.push(scan, &hit, offset, View::Raw, &what);
        }
    }
    let mut seen = Vec::new();
    run(&reading.bytes, &segments, scan, |scan, hit| {
        let offset = reading.origin(hit.at);
        let text = &reading.bytes[hit.at.min(hit.span.end)..hit.span.end];
        seen.push((hit.rule.rule.id, hit.span.start));
        place.push_text(scan, &hit, offset, text);
    });
    joined(&reading, &segments, scan, &place, &seen);
    decoded(&source.raw, is_read, scan, &place);
}

/// A file, for findings about places in it.
struct Where<'a> {
    path: &'a str,
    /// The part of the file, where it is a container.
    part: Option<&'a str>,
    raw: &'a str,
    lines: &'a Lines,
}

impl Where<'_> {
    /// A hit in the normalised reading, which is shown as raw where both say the same.
    fn push_text(&self, scan: &mut Scan, hit: &RuleHit, offset: usize, text: &[u8]) {
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
            self.push(scan, hit, offset, View::Raw, line);
        } else {
            let shown = String::from_utf8_lossy(shown);
            self.push(scan, hit, offset, View::Normalised, &shown);
        }
    }

    /// A hit at an offset of the raw text; `text` is what stands there, from the match to the end of its line.
    fn push(&self, scan: &mut Scan, hit: &RuleHit, offset: usize, view: View, text: &str) {
        let matched: String = text.chars().take(hit.length.min(MOST_QUOTED)).collect();
        let matched = matched.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut message = hit.rule.message.to_owned();
        if !matched.is_empty() {
            message += ": ";
            message += &vault_format::text::quoted(&matched);
        }
        if let Some(detail) = &hit.detail {
            message += "; ";
            message += detail;
        }
        if let Some(part) = self.part {
            message += ", in ";
            message += &vault_format::text::quoted(part);
        }
        let mut finding = Finding::of(&hit.rule.rule, Level::Warning, &message)
            .at(self.path)
            .quoting(view, text)
            .hint(hit.rule.mend);
        // A place in a part is none in the file.
        if self.part.is_none() {
            finding = finding.on(self.lines.position(self.raw, offset));
        }
        scan.hits.push(Hit {
            rule: hit.rule,
            act: hit.act,
            finding,
        });
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
    mut found: impl FnMut(&mut Scan, RuleHit),
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
                    || span.place & ready.rule.reach() == 0
                    || !ready
                        .groups
                        .iter()
                        .all(|group| groups.binary_search(group).is_ok())
                {
                    continue;
                }
                if let Some(hit) = try_rule(ready, bytes, *span, segments, scan) {
                    found(scan, hit);
                }
            }
        }
    }
}

/// Matches of a rule in one scope that are weighed: an example that is quoted first must not cover what follows it.
const MOST_TRIED: usize = 8;

/// The match of a rule in a span that weighs most.
fn try_rule(
    ready: &Ready,
    bytes: &[u8],
    span: Span,
    segments: &Segments,
    scan: &mut Scan,
) -> Option<RuleHit> {
    let text = &bytes[span.start..span.end];
    let Some((first, others)) = ready.all.split_first() else {
        return weigh(ready, bytes, span, 0..0, segments, scan);
    };
    let mut best: Option<RuleHit> = None;
    let mut from = 0;
    for _ in 0..MOST_TRIED {
        let Some(range) = first.find_at(text, from) else {
            scan.work += (text.len() - from) as u64;
            break;
        };
        if from == 0 {
            for expression in others {
                scan.work += text.len() as u64;
                expression.find(text)?;
            }
        }
        scan.work += (range.end - from) as u64;
        from = range.end.max(range.start + 1);
        if let Some(hit) = weigh(ready, bytes, span, range, segments, scan)
            && best
                .as_ref()
                .is_none_or(|best| hit.act.rank() < best.act.rank())
        {
            best = Some(hit);
        }
        let is_settled = |hit: &RuleHit| hit.act.rank() <= hit.rule.act.rank();
        if best.as_ref().is_some_and(is_settled) || from >= text.len() {
            break;
        }
    }
    best
}

/// A match of the first expression of a rule: whether it counts, and what it weighs.
fn weigh(
    ready: &Ready,
    bytes: &[u8],
    span: Span,
    first: std::ops::Range<usize>,
    segments: &Segments,
    scan: &mut Scan,
) -> Option<RuleHit> {
    let text = &bytes[span.start..span.end];
    let rule = ready.rule;
    let holder = |at: usize| segments.statement(span.start + at).unwrap_or(span);
    let mut own = holder(first.start);
    let seen = Seen {
        text,
        first: first.clone(),
        statement: &bytes[own.start..own.end],
        place: span.place,
    };
    let at = match rule.check {
        Some(check) => {
            scan.work += text.len() as u64;
            check(&seen)?
        }
        None => first.start,
    };
    let detail = rule.detail.and_then(|detail| detail(&seen));
    // The sentence or statement that holds the hit says where it stands; a block is of many kinds.
    own = holder(at);
    let offset = span.start + at;
    if own.place & rule.reach() == 0 {
        return None;
    }
    let statement = &bytes[own.start..own.end];
    for expression in &ready.none {
        scan.work += statement.len() as u64;
        if expression.is_match(statement) {
            return None;
        }
    }
    let end = (span.start + first.end).max(offset);
    let context = quote::Context {
        statement,
        at: offset.saturating_sub(own.start),
        matched: &bytes[offset..end],
        place: own.place,
        heading: segments.heading(bytes, &own),
    };
    scan.work += statement.len() as u64;
    let block = segments.block(offset).unwrap_or(own);
    let block = &bytes[block.start.min(own.start)..block.end.max(own.end)];
    let mut act = weight(rule, &context, block);
    if act == Act::Block {
        scan.work += (block.len() * ready.second.len()) as u64;
        let lacks_second =
            !ready.second.is_empty() && !ready.second.iter().any(|second| second.is_match(block));
        if lacks_second || (rule.installer && scan.is_published_by_sender(statement)) {
            act = Act::Warn;
        }
    }
    Some(RuleHit {
        rule,
        act,
        span,
        at: offset,
        length: end - offset,
        detail,
    })
}

/// What a hit weighs where it stands.
fn weight(rule: &ScanRule, context: &quote::Context<'_>, block: &[u8]) -> Act {
    if rule.literal || rule.act != Act::Block {
        return rule.act;
    }
    let is_code = context.place & place::CODE != 0 && context.place & place::SHELL == 0;
    let is_written_down = rule.command || is_code || context.place & place::DATA != 0;
    if is_written_down && context.is_expression() {
        return Act::Hint(QUOTED);
    }
    if rule.command && is_code {
        // A command in another language is a text until something starts a process with it.
        let begins = context.statement[..context.at.min(context.statement.len())]
            .iter()
            .all(|byte| matches!(byte, b' ' | b'\t' | b'!' | b'$' | b'>'));
        if !begins && !IS_CALL.is_match(context.matched) && !STARTS_PROCESS.is_match(block) {
            return Act::Hint(QUOTED);
        }
    }
    // A command in a comment runs only if somebody is told to run it.
    let is_remark = rule.command && context.place & place::COMMENT != 0 && !context.orders();
    if is_remark || context.is_quotation() {
        return Act::Warn;
    }
    Act::Block
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
        run(&whole, &segments, scan, |scan, hit| {
            if hit.act == Act::Block
                && !seen.contains(&(hit.rule.rule.id, span.start))
                && hit.rule.scope == Scope::Statement
            {
                let shown = String::from_utf8_lossy(first_line(&whole[hit.at..])).into_owned();
                place.push(scan, &hit, reading.origin(span.start), View::Joined, &shown);
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

/// Words by which the text around says that it decodes something.
static DECODES: Lazy = Lazy::new(
    r"b64decode|b32decode|\batob\b|fromhex|unhexlify|base64|\bdecode|['\x22](?:base64|hex)['\x22]|xxd|frombase64|from_base64|fromcharcode|\bchr\b|\\x[0-9a-f]{2}\\x",
);
/// Bytes of a line, before and after a file's name, in which a command that reads it is looked for.
const LONGEST_LINE: usize = 2 << 10;
/// Bytes before and after an encoded text in which its decoder is looked for, outside scripts.
const AROUND: usize = 2 << 10;

/// What decodes to text is read as a text of its own.
fn decoded(raw: &str, is_read: bool, scan: &mut Scan, place: &Where<'_>) {
    scan.work += raw.len() as u64;
    for piece in decode::pieces(raw) {
        scan.unpacked += piece.text.len();
        if scan.unpacked > MOST_UNPACKED {
            scan.hit(super::rules::files::unread(place.path));
            return;
        }
        let mut reading = Reading::new(&piece.text).bytes;
        let segments = segment::flat(&mut reading, place::DECODED | place::SHELL);
        run(&reading, &segments, scan, |scan, hit| {
            let mut act = hit.act;
            if hit.rule.rule.id == ADDRESS {
                if piece.is_signed && !is_read {
                    return;
                }
                let around = raw.as_bytes();
                let from = piece.origin.saturating_sub(AROUND);
                let to = (piece.origin + piece.text.len() * 4 + AROUND).min(around.len());
                if !DECODES.is_match(&around[from..to].to_ascii_lowercase()) {
                    act = Act::Hint(ADDRESS_ALONE);
                }
            }
            let shown = piece.text.get(hit.at..).unwrap_or(&piece.text);
            let shown = shown.lines().next().unwrap_or_default();
            let hit = RuleHit { act, ..hit };
            place.push(scan, &hit, piece.origin, View::Decoded, shown);
        });
    }
}

impl Scan {
    /// Whether every address in a statement belongs to whom the skill comes from.
    fn is_published_by_sender(&self, statement: &[u8]) -> bool {
        let mut urls = super::rules::hosts::urls(statement).peekable();
        urls.peek().is_some()
            && urls.all(|url| super::rules::hosts::is_of_publisher(&url, &self.publisher))
    }

    /// The findings: what blocks as flags, what warns as warnings, hints only where they come to something together.
    /// The others are notes, which `with_hints` asks for.
    pub(crate) fn findings(self, with_hints: bool) -> Vec<Finding> {
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
                Act::Hint(_) if with_hints => Level::Note,
                Act::Hint(_) => continue,
            };
            // The same rule on the same line is one finding, whatever reading it came from.
            let part = hit
                .finding
                .line
                .is_none()
                .then(|| hit.finding.message.clone());
            let place = (
                hit.rule.rule.id,
                hit.finding.path.clone(),
                hit.finding.line,
                part,
            );
            if !places.insert(place) {
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
