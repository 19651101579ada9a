//! The scanner: every file in several readings, one pass of many words over each, then rules over structure.
//!
//! Time is linear: each reading is as long as the file at most, words are found in one pass, an expression is tried only
//! where its words occur, on a statement, block or section of bounded size, and expressions run in linear time. The work
//! is counted in bytes, so that a test can compare inputs without a clock.

mod contain;
mod decode;
mod engine;
mod markdown;
mod quote;
#[cfg(test)]
#[path = "../../../../tests/gate-accuracy/src/rewrite.rs"]
mod rewrite;
mod script;
mod seams;
mod segment;
mod spans;
mod text;
mod total;
mod words;

use crate::finding::{Finding, Level, View};
use crate::rule::{Act, Lazy, ScanRule, Scope, place};
use engine::RuleHit;
use segment::{Kind, Segments, Span};
use text::{Lines, Reading, Source};
use total::Hit;
use vault_format::bundle::File;

/// The rule about decoded addresses, and its points where nothing decodes them.
const ADDRESS: &str = "VG-DE-006";
const ADDRESS_ALONE: u32 = 4;
/// Bytes that the containers and encoded texts of a skill may come to; what is beyond is reported as unread.
const MOST_UNPACKED: usize = 8 << 20;
/// Encoded texts of a skill that are read as texts of their own; what is beyond is reported as unread.
const MOST_DECODED: usize = 4096;
/// Bytes in which commands that read a signature are looked for.
const MOST_SEARCHED: usize = 64 << 20;
/// Characters of the words that matched which a message quotes.
const MOST_QUOTED: usize = 60;

/// What was found, and how much was read to find it.
#[derive(Default)]
pub(crate) struct Scan {
    hits: Vec<Hit>,
    /// Bytes given to the word search and to expressions: the work done.
    pub work: u64,
    /// Bytes that containers and encoded texts of the skill came to so far.
    unpacked: usize,
    /// Encoded texts that were read so far.
    decoded: usize,
    /// Bytes in which commands that read a signature were looked for.
    searched: usize,
    /// Owners and hosts that the skill comes from, lower case.
    publisher: Vec<String>,
}

impl Scan {
    fn hit(&mut self, (rule, act, finding): (&'static ScanRule, Act, Finding)) {
        self.hits.push(Hit { rule, act, finding });
    }

    fn run(&mut self, bytes: &[u8], segments: &Segments) -> Vec<RuleHit> {
        let text = engine::Text {
            bytes,
            segments,
            publisher: &self.publisher,
        };
        engine::run(text, &mut self.work)
    }

    /// What was found; hints that come to no warning together are notes if they are asked for.
    pub(crate) fn findings(self, with_hints: bool) -> Vec<Finding> {
        total::findings(self.hits, with_hints)
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
        let is_read = may_be_signed && is_read(path, files, &mut scan.searched);
        scan_file(path, &file.bytes, is_read, &mut scan);
    }
    scan
}

/// Whether a command or a script of the skill reads this file: then what it holds is no signature but content. After
/// so many bytes, which no skill with a few signatures needs, each file counts as read.
fn is_read(path: &str, files: &[File], searched: &mut usize) -> bool {
    static READS: Lazy = Lazy::new(
        r"\b(?:cat|base64|jq|open|read\w*|source|bash|sh|python[\d.]*|node|perl|ruby|eval|xxd|awk|sed|grep|tr|cut|load\w*|require|import|decode)\b",
    );
    let name = path.rsplit('/').next().unwrap_or(path);
    let Ok(name) = regex::bytes::Regex::new(&regex::escape(name)) else {
        return false;
    };
    let mut others = files.iter().filter(|file| file.path.as_str() != path);
    others.any(|file| {
        *searched += file.bytes.len();
        if *searched > MOST_SEARCHED {
            return true;
        }
        let line_of = |found: regex::bytes::Match<'_>| {
            let is_end = |byte: &u8| *byte == b'\n';
            let first = found.start().saturating_sub(LONGEST_LINE);
            let last = file.bytes.len().min(found.end() + LONGEST_LINE);
            let before = &file.bytes[first..found.start()];
            let after = &file.bytes[found.end()..last];
            let from = before.iter().rposition(is_end).map_or(0, |at| at + 1);
            let to = after.iter().position(is_end).unwrap_or(after.len());
            &file.bytes[first + from..found.end() + to]
        };
        name.find_iter(&file.bytes).take(64).any(|found| {
            let line = line_of(found);
            *searched += line.len();
            READS.is_match(&line.to_ascii_lowercase())
        })
    })
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
                other: None,
            };
            place.push(scan, &hit, offset, View::Raw, &what);
        }
    }
    let mut seen = Vec::new();
    for mut hit in scan.run(&reading.bytes, &segments) {
        let offset = reading.origin(hit.at);
        if let Some(other) = hit.other.take() {
            hit.detail = Some(place.beside(reading.origin(other.start), other.len()));
        }
        let text = &reading.bytes[hit.at.min(hit.span.end)..hit.span.end];
        seen.push((hit.rule.rule.id, hit.span.start));
        place.push_text(scan, &hit, offset, text);
    }
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

    /// The second of two places, in words: what stands there, and its line.
    fn beside(&self, offset: usize, length: usize) -> String {
        let text = self.raw.get(offset..).unwrap_or_default();
        let shown: String = text.chars().take(length.min(MOST_QUOTED)).collect();
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = vault_format::text::quoted(&shown);
        match self.part {
            Some(_) => format!("beside {shown}"),
            None => format!(
                "beside {shown} on line {}",
                self.lines.position(self.raw, offset).line
            ),
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
        let Some(mut whole) = seams::without(text, span.place, &mut scan.work) else {
            continue;
        };
        let segments = segment::flat(&mut whole, span.place);
        for hit in scan.run(&whole, &segments) {
            if hit.act == Act::Block
                && !seen.contains(&(hit.rule.rule.id, span.start))
                && hit.rule.scope == Scope::Statement
            {
                let shown = String::from_utf8_lossy(first_line(&whole[hit.at..])).into_owned();
                place.push(scan, &hit, reading.origin(span.start), View::Joined, &shown);
            }
        }
    }
}

/// Words by which the text around says that it decodes something.
static DECODES: Lazy = Lazy::new(
    r"b64decode|b32decode|\batob\b|fromhex|unhexlify|base64|\bdecode|['\x22](?:base64|hex)['\x22]|xxd|frombase64|from_base64|fromcharcode|\bchr\b|\\x[0-9a-f]{2}\\x",
);
/// Bytes of a line, before and after a file's name, in which a command that reads it is looked for.
const LONGEST_LINE: usize = 2 << 10;
/// Bytes before and after an encoded text in which its decoder is looked for.
const AROUND: usize = 2 << 10;

/// What decodes to text is read as a text of its own.
fn decoded(raw: &str, is_read: bool, scan: &mut Scan, place: &Where<'_>) {
    scan.work += raw.len() as u64;
    for piece in decode::pieces(raw) {
        scan.unpacked += piece.text.len();
        scan.decoded += 1;
        if scan.unpacked > MOST_UNPACKED || scan.decoded > MOST_DECODED {
            scan.hit(super::rules::files::unread(place.path));
            return;
        }
        let mut reading = Reading::new(&piece.text).bytes;
        let segments = segment::flat(&mut reading, place::DECODED | place::SHELL);
        for hit in scan.run(&reading, &segments) {
            let mut act = hit.act;
            if hit.rule.rule.id == ADDRESS {
                if piece.is_signed && !is_read {
                    continue;
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
        }
    }
}

#[cfg(test)]
mod tests;
