//! The scanner. It reads every file in several ways ("readings": as it stands, normalised,
//! decoded), finds the words of all rules in one pass over each reading, and runs the rules over
//! the structure of the text.
//!
//! Time is linear: each reading is at most as long as the file, words are found in one pass, an
//! expression is tried only where its words occur, on a statement, block or section of bounded
//! size, and expressions run in linear time. The work is counted in bytes, so that a test can
//! compare inputs without a clock.

mod bytes;
mod code;
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
mod signature;
mod spans;
mod text;
mod total;
mod unbroken;
mod words;

use crate::finding::{Finding, Level, View};
use crate::rule::{Act, Lazy, ScanRule, Scope, place};
use crate::rules::files;
pub(crate) use crate::rules::files::is_stopped;
use engine::RuleHit;
use segment::{Kind, Segments, Span};
use std::collections::{HashMap, HashSet};
use text::{Lines, NormalizedText, Source};
use total::Hit;
use vault_format::bundle::File;

/// Id of the rule about decoded addresses.
const ADDRESS: &str = "VG-DE-006";
/// Points of that rule for an address that nothing in the file decodes.
const ADDRESS_ALONE: u32 = 4;
/// Maximum number of places at which the name of an encoded text stands, that are searched for a
/// decoder.
const MOST_NAMED: usize = 16;
/// Maximum number of bytes to which the containers and encoded texts of a skill may expand. What
/// lies beyond is reported as unread.
const MOST_UNPACKED: usize = 8 << 20;
/// Maximum number of encoded texts of a skill that are scanned. Further ones are reported as
/// unread.
const MOST_DECODED: usize = 4096;
/// Maximum number of places at which a file names another file, that are searched for a command
/// that reads it.
const MOST_MENTIONED: usize = 64;
/// Maximum number of bytes that are searched for commands that read a signature or decode a text.
const MOST_SEARCHED: usize = 64 << 20;
/// Maximum number of characters of the matched words that a message quotes.
const MOST_QUOTED: usize = 60;

/// Pairs of a path and a number that distinguishes places in that file.
type Places = HashSet<(String, usize)>;

/// The hits of a scan so far, and the work done to find them.
#[derive(Default)]
pub(crate) struct Scan {
    hits: Vec<Hit>,
    /// The amount of work so far: the number of bytes given to the word search and to expressions.
    pub work: u64,
    /// Number of bytes to which containers and encoded texts of the skill have expanded so far.
    unpacked: usize,
    /// Number of encoded texts that were read so far.
    decoded: usize,
    /// Number of bytes searched so far for commands that read a signature or decode a text.
    searched: usize,
    /// Publishers from whom the skill comes (owners of repositories and hosts), lower case.
    publisher: Vec<String>,
    /// Amount of work after which the scan stops; `None` for no bound.
    max_work: Option<u64>,
    /// The places that are listed so far, for each rule, act and reading.
    places: HashMap<(&'static str, Act, View), Places>,
}

/// Amount of work of computing the position of a hit: characters are counted in the stretch before
/// the hit and in the one before its line.
const PLACING_WORK: u64 = 2 * text::STRETCH as u64;

impl Scan {
    /// Tells whether a hit at this place is listed: each rule has a bounded number of places for
    /// each act and reading, and a place counts once. Call it before the position of the hit is
    /// computed, so that a flood of hits costs little.
    fn is_listed(&mut self, hit: &RuleHit, view: View, path: String, place: usize) -> bool {
        let listed = self
            .places
            .entry((hit.rule.rule.id, hit.act, view))
            .or_default();
        // Count some work for the look-up. It is cheap, but a scan with millions of hits must reach
        // its bound.
        self.work += 16;
        listed.len() < total::MOST_LISTED && listed.insert((path, place))
    }

    /// Tells whether the bound of work is reached.
    fn is_spent(&self) -> bool {
        self.max_work.is_some_and(|most| self.work > most)
    }

    fn push_hit(&mut self, (rule, act, finding): (&'static ScanRule, Act, Finding)) {
        self.hits.push(Hit { rule, act, finding });
    }

    fn run_on(&mut self, bytes: &[u8], segments: &Segments) -> Vec<RuleHit> {
        let text = engine::ScannedText {
            bytes,
            segments,
            publisher: &self.publisher,
            max_work: self.max_work,
        };
        engine::run_rules(text, &mut self.work)
    }

    /// Returns the findings. With `with_hints`, hints that do not add up to a warning become notes;
    /// otherwise they are dropped.
    pub(crate) fn into_findings(self, with_hints: bool) -> Vec<Finding> {
        total::sum_findings(self.hits, with_hints)
    }

    /// Starts the scan of a skill from these publishers. It stops after the amount of work `most`.
    pub(crate) fn of_publisher(publisher: &[String], most: Option<u64>) -> Self {
        Self {
            publisher: publisher.to_vec(),
            max_work: most,
            ..Self::default()
        }
    }
}

/// Scans every file of a skill from these publishers. Stops after the amount of work `most`, and
/// flags the file at which it stopped.
pub(crate) fn scan_files(files: &[File], publisher: &[String], most: Option<u64>) -> Scan {
    let mut scan = Scan::of_publisher(publisher, most);
    for file in files {
        let path = file.path.as_str();
        // Flag the file at which the bound was reached, and skip all others.
        if scan.is_spent() {
            scan.push_hit(files::stopped(path));
            return scan;
        }
        let searched = scan.searched;
        let is_signature =
            signature::is_signature(&file.bytes) && !is_read(path, files, &mut scan.searched);
        scan.work += (scan.searched - searched) as u64;
        scan_file(path, &file.bytes, is_signature, &mut scan);
    }
    code::scan_code(files, &mut scan);
    // The last file may have used up the bound after the check above.
    if let Some(last) = files.last().filter(|_| scan.is_spent()) {
        scan.push_hit(files::stopped(last.path.as_str()));
    }
    scan
}

/// Tells whether a command or a script of the skill reads this file, whose content then is data and
/// not a signature. After [`MOST_SEARCHED`] bytes, which a skill with few signatures never needs,
/// every file is treated as read.
fn is_read(path: &str, files: &[File], searched: &mut usize) -> bool {
    static READS: Lazy = Lazy::new(
        r"\b(?:cat|base64|jq|open|read\w*|source|bash|sh|python[\d.]*|node|perl|ruby|eval|xxd|awk|sed|grep|tr|cut|load\w*|require|import|decode)\b",
    );
    // Search for the bare name: a script may have changed into the file's folder.
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
        // If the name occurs more often than is examined, one of the other places may read the
        // file.
        name.find_iter(&file.bytes)
            .enumerate()
            .any(|(count, found)| {
                if count >= MOST_MENTIONED {
                    return true;
                }
                let line = &file.bytes[line_around(&file.bytes, found.range())];
                *searched += line.len();
                READS.is_match(&line.to_ascii_lowercase())
            })
    })
}

/// Scans the bytes of one file under this path. With `is_signature`, addresses in its decoded texts
/// are not reported.
pub(crate) fn scan_file(path: &str, bytes: &[u8], is_signature: bool, scan: &mut Scan) {
    for found in files::check(path, bytes) {
        scan.push_hit(found);
    }
    let left = MOST_UNPACKED.saturating_sub(scan.unpacked);
    let is_container = if let Some(contained) = contain::open_container(path, bytes, left) {
        scan.unpacked += contained.unpacked;
        scan.work += contained.unpacked as u64;
        if contained.is_beyond {
            scan.push_hit(files::beyond(path));
        }
        // An encrypted part is unread too; the flag about it says more than the warning.
        if contained.is_locked {
            scan.push_hit(files::locked(path));
        } else if contained.is_cut {
            scan.push_hit(files::unread(path));
        }
        for part in &contained.parts {
            if let Some(found) = files::program_inside(path, &part.name, &part.bytes) {
                scan.push_hit(found);
            }
            scan_text(path, Some(&part.name), &part.bytes, is_signature, scan);
        }
        true
    } else {
        false
    };
    // Scan the container's own bytes as well: one file can be an archive for one program and a
    // script for another.
    let is_text = scan_text(path, None, bytes, is_signature, scan);
    // Containers, programs and compiled code have a finding of their own already.
    let is_named =
        is_container || crate::files::is_native(bytes) || files::is_compiled(path, bytes);
    if !is_text && !is_named && contain::is_unread(bytes) {
        scan.push_hit(files::no_text(path));
    }
}

/// Scans the bytes of a file, or of a part of it, if they are text. Returns whether they are text.
fn scan_text(
    path: &str,
    part: Option<&str>,
    bytes: &[u8],
    is_signature: bool,
    scan: &mut Scan,
) -> bool {
    let is_script = Kind::is_script(part.unwrap_or(path), bytes);
    let Some(source) = Source::read_text(bytes, is_script) else {
        return false;
    };
    let lines = Lines::of(&source.raw);
    let place = FilePlace {
        path,
        part,
        raw: &source.raw,
        lines: &lines,
    };
    let kind = Kind::of(part.unwrap_or(path), &source.raw);
    // The text is read four times: for the table of lines, the reading, its segments and the
    // decoders.
    scan.work += 4 * source.raw.len() as u64;
    let mut reading = NormalizedText::new(&source.raw);
    let segments = segment::split_text(&mut reading.bytes, kind);
    let text = files::Text {
        is_cut: source.cut,
        read_in_pieces: read_in_pieces(&source.raw, &segments),
        is_damaged: source.damaged,
        // Only a shell skips NUL bytes; other languages stop at them or keep them in a string.
        has_nul: source.nul && kind == Kind::Shell,
    };
    for found in files::reading(path, text) {
        scan.push_hit(found);
    }
    if !source.raw.is_ascii() {
        scan.work += source.raw.len() as u64;
        for (rule, act, offset, what) in crate::rules::unicode::check(&source.raw) {
            let hit = RuleHit {
                rule,
                act,
                span: Span::default(),
                at: 0,
                length: 0,
                detail: None,
                other: None,
            };
            place.push_at(scan, &hit, offset, View::Raw, &what);
        }
    }
    // Records which rule matched in which statement as it stands, so that `scan_joined` does not
    // report the same match again; and what each match weighs, for the text as it is shown.
    let mut seen = HashSet::new();
    let mut weights = HashMap::new();
    for mut hit in scan.run_on(&reading.bytes, &segments) {
        let offset = reading.raw_offset(hit.at);
        if let Some(other) = hit.other.take() {
            hit.detail =
                Some(place.describe_second_place(reading.raw_offset(other.start), other.len()));
        }
        let text = &reading.bytes[hit.at.min(hit.span.end)..hit.span.end];
        seen.insert((hit.rule.rule.id, hit.span.start));
        let weight = weights.entry((hit.rule.rule.id, offset)).or_insert(u8::MAX);
        *weight = hit.act.rank().min(*weight);
        place.push_text(scan, &hit, offset, text);
    }
    if matches!(kind, Kind::Markdown | Kind::Plain) {
        scan_shown(scan, &place, weights);
    }
    scan_joined(&reading, &segments, scan, &place, &seen);
    scan_decoded(&source.raw, is_signature, scan, &place);
    true
}

/// Scans a Markdown text again as it is shown, without comments and escapes, and the values of its
/// frontmatter. Reports what the scans before did not see, or weighed less; `weights` has the weight
/// of each rule's match at each offset of the raw text.
fn scan_shown(
    scan: &mut Scan,
    place: &FilePlace<'_>,
    mut weights: HashMap<(&'static str, usize), u8>,
) {
    scan.work += 2 * place.raw.len() as u64;
    let texts = unbroken::read_unbroken(place.raw);
    let texts = texts.into_iter().map(|text| (text, false));
    let values = unbroken::read_values(place.raw).map(|text| (text, true));
    for (mut reading, is_values) in texts.chain(values) {
        scan.work += 2 * reading.bytes.len() as u64;
        let segments = if is_values {
            segment::split_values(&mut reading.bytes)
        } else {
            segment::split_text(&mut reading.bytes, Kind::Markdown)
        };
        for hit in scan.run_on(&reading.bytes, &segments) {
            let offset = reading.raw_offset(hit.at);
            let weight = weights.entry((hit.rule.rule.id, offset)).or_insert(u8::MAX);
            if hit.act.rank() < *weight {
                *weight = hit.act.rank();
                let text = &reading.bytes[hit.at.min(hit.span.end)..hit.span.end];
                place.push_text(scan, &hit, offset, text);
            }
        }
    }
}

/// Tells whether a line, or a command with the lines that continue it, was read in pieces. A
/// paragraph of many lines does not count: lists of words and transcripts are that long, and its
/// pieces overlap by more than people write between words that belong together.
fn read_in_pieces(raw: &str, segments: &Segments) -> bool {
    let is_long =
        |line: &str| line.len() > spans::MAX_STATEMENT && line.trim().contains(char::is_whitespace);
    segments.has_long_line && (segments.has_long_command || raw.lines().any(is_long))
}

/// A file, or a part of one, for which hits are added with their positions.
struct FilePlace<'a> {
    path: &'a str,
    /// Name of the part, if the file is a container; `None` for the file itself.
    part: Option<&'a str>,
    raw: &'a str,
    lines: &'a Lines,
}

impl FilePlace<'_> {
    /// Adds a hit in the normalised reading. If both readings agree there, the finding shows the
    /// raw text.
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
            self.push_at(scan, hit, offset, View::Raw, head_of(here));
        } else {
            let shown = String::from_utf8_lossy(shown);
            self.push_at(scan, hit, offset, View::Normalised, &shown);
        }
    }

    /// Describes the second of two places: its text and its line.
    fn describe_second_place(&self, offset: usize, length: usize) -> String {
        let text = self.raw.get(offset..).unwrap_or_default();
        let shown: String = text.chars().take(length.min(MOST_QUOTED)).collect();
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = vault_format::text::quoted(&shown);
        match self.part {
            Some(_) => format!("beside {shown}"),
            None => format!(
                "beside {shown} on line {}",
                self.lines.position_at(self.raw, offset).line
            ),
        }
    }

    /// Adds a hit at an offset of the raw text. `text` is the text from the match to the end of its
    /// line.
    fn push_at(&self, scan: &mut Scan, hit: &RuleHit, offset: usize, view: View, text: &str) {
        // In a file, each line is one place. In a part of a container, lines mean nothing to a
        // reader, so each offset is one place.
        let (path, place) = match self.part {
            None => (self.path.to_owned(), self.lines.line_at(offset)),
            // No path of a skill holds NUL, so no file's name can collide with that of a part.
            Some(part) => (format!("{}\0{part}", self.path), offset),
        };
        if !scan.is_listed(hit, view, path, place) {
            return;
        }
        scan.work += PLACING_WORK;
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
            .hint(hit.rule.advice());
        // A position inside a part is meaningless in the container file.
        if self.part.is_none() {
            finding = finding.on(self.lines.position_at(self.raw, offset));
        }
        scan.hits.push(Hit {
            rule: hit.rule,
            act: hit.act,
            finding,
        });
    }
}

/// Returns the beginning of a text, up to the end of its line or as far as messages quote it.
fn head_of(text: &str) -> &str {
    // A character has up to four bytes.
    let mut end = text.len().min(4 * crate::finding::MAX_EXCERPT_CHARS);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].lines().next().unwrap_or_default()
}

fn first_line(text: &[u8]) -> &[u8] {
    let text = &text[..text.len().min(160)];
    text.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// Scans each statement of code again without its seams (joints between string literals: `'cu' +
/// 'rl'` becomes `curl`). Reports only blocking findings that the first scan did not see.
fn scan_joined(
    reading: &NormalizedText,
    segments: &Segments,
    scan: &mut Scan,
    place: &FilePlace<'_>,
    seen: &HashSet<(&str, usize)>,
) {
    for span in segments
        .statements
        .iter()
        // Skip prose: the quotation marks in its sentences would look like seams.
        .filter(|span| span.place & (place::CODE | place::SHELL) != 0)
    {
        let text = &reading.bytes[span.start..span.end];
        scan.work += text.len() as u64;
        let Some(mut whole) = seams::remove_seams(text, span.place, &mut scan.work) else {
            continue;
        };
        let segments = segment::split_lines(&mut whole, span.place);
        for hit in scan.run_on(&whole, &segments) {
            if hit.act == Act::Block
                && !seen.contains(&(hit.rule.rule.id, span.start))
                && hit.rule.scope == Scope::Statement
            {
                let shown = String::from_utf8_lossy(first_line(&whole[hit.at..])).into_owned();
                // Report the beginning of the statement: offsets after a removed seam no longer fit
                // the file.
                place.push_at(
                    scan,
                    &hit,
                    reading.raw_offset(span.start),
                    View::Joined,
                    &shown,
                );
            }
        }
    }
}

/// Calls and commands that decode a text. They count on the line of that text or of its name.
static DECODES: Lazy = Lazy::new(
    r"\b(?:b64|b32|urlsafe_b64|standard_b64)decode|\bbase(?:64|32)\s+(?:-d|--decode)|\batob\b|\bfromhex|\bunhexlify|\bdecod|['\x22](?:base64|hex)['\x22]|\bxxd\b|\bfrombase64|\bfrom_base64|\bbase64_decode|\bfromcharcode|\bchr\b|bytes\(",
);
/// A name to which a text is assigned, directly before the text.
static NAMED: Lazy = Lazy::new(r"[a-z_]\w*['\x22]?\s*(?::\s*\w+\s*)?[:=]\s*[bru]?['\x22\[(]*$");
/// Number of bytes of a line, before and after a file's name, that are searched for a command that
/// reads it.
const LONGEST_LINE: usize = 2 << 10;

/// Decodes what can be decoded, and scans each decoded piece as a text of its own.
fn scan_decoded(raw: &str, is_signature: bool, scan: &mut Scan, place: &FilePlace<'_>) {
    scan.work += raw.len() as u64;
    for piece in decode::decode_pieces(raw) {
        scan.unpacked += piece.text.len();
        scan.decoded += 1;
        scan.work += 4 * piece.text.len() as u64;
        if scan.is_spent() {
            return;
        }
        if scan.unpacked > MOST_UNPACKED || scan.decoded > MOST_DECODED {
            scan.push_hit(files::beyond(place.path));
            return;
        }
        let mut reading = NormalizedText::new(&piece.text).bytes;
        let segments = segment::split_lines(&mut reading, place::DECODED | place::SHELL);
        // Compute this once for a piece, not for each address in it.
        let mut is_used = None;
        for hit in scan.run_on(&reading, &segments) {
            let mut act = hit.act;
            if hit.rule.rule.id == ADDRESS {
                if is_signature {
                    continue;
                }
                let is_used =
                    is_used.get_or_insert_with(|| is_decoded(raw.as_bytes(), &piece, scan));
                if !*is_used {
                    // An encoded address that nothing decodes is mostly data, such as a test value.
                    act = Act::Hint(ADDRESS_ALONE);
                }
            }
            let shown = head_of(piece.text.get(hit.at..).unwrap_or(&piece.text));
            let hit = RuleHit { act, ..hit };
            place.push_at(scan, &hit, piece.origin, View::Decoded, shown);
        }
    }
}

/// Tells whether something decodes this piece: on its own line, or on a line that names the
/// variable to which it is assigned. Escapes need no decoder, because the language itself reads
/// them.
fn is_decoded(raw: &[u8], piece: &decode::Piece, scan: &mut Scan) -> bool {
    if raw[piece.origin] == b'\\' {
        return true;
    }
    let own = line_around(raw, piece.origin..piece.origin + piece.length);
    let decodes = |line: std::ops::Range<usize>| DECODES.is_match(&raw[line].to_ascii_lowercase());
    scan.work += own.len() as u64;
    if decodes(own.clone()) {
        return true;
    }
    let before = raw[own.start..piece.origin].to_ascii_lowercase();
    scan.work += before.len() as u64;
    let Some(name) = NAMED.find(&before) else {
        return false;
    };
    scan.searched += raw.len();
    // Beyond the bound, give the stricter answer. Otherwise, a long file could hide a decoder.
    if scan.searched > MOST_SEARCHED {
        return true;
    }
    scan.work += raw.len() as u64;
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let length = before[name.start..].iter().take_while(is_letter).count();
    let name = &raw[own.start + name.start..own.start + name.start + length];
    let others = raw.windows(length).enumerate();
    let others = others.filter(|(at, word)| *word == name && !own.contains(at));
    // If the name is at more places than are examined, one of the others may decode the text.
    others
        .enumerate()
        .any(|(count, (at, _))| count >= MOST_NAMED || decodes(line_around(raw, at..at + length)))
}

/// Returns the range of the line around this range, at most [`LONGEST_LINE`] bytes before and after
/// it.
fn line_around(text: &[u8], place: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let is_end = |byte: &u8| *byte == b'\n';
    // A minified file is one line. Without the bound, each mention would cost reading the whole
    // file.
    let first = place.start.saturating_sub(LONGEST_LINE);
    let last = text.len().min(place.end + LONGEST_LINE);
    let before = &text[first..place.start];
    let after = &text[place.end.min(last)..last];
    let from = before.iter().rposition(is_end).map_or(0, |at| at + 1);
    let to = after.iter().position(is_end).unwrap_or(after.len());
    first + from..place.end.min(last) + to
}

#[cfg(test)]
mod tests;
