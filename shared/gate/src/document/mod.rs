//! SKILL.md: the split into frontmatter and text, and the fields that vault reads.
//!
//! The bytes are kept exactly as received, because the signature covers them; this module never
//! changes them. Reading tolerates a byte order mark and CRLF, and is strict in everything else.

mod frontmatter;
mod mend;
mod transform;
mod yaml;

pub use frontmatter::{Action, Capabilities, Frontmatter, Secret, is_reserved_variable};
pub use mend::{Change, RepairedDocument, repair_document};
pub use transform::{
    DEFAULT_PRIORITY, MAX_TRANSFORM_BYTES, Transform, TransformError, in_order, render_variant,
};
pub use vault_format::manifest::{MAX_ARGS, SKILL_MD};

use crate::finding::{Finding, Level};
use vault_format::manifest::MAX_SKILL_MD_BYTES;
use vault_format::name::SkillName;
use vault_format::text::Position;
use yaml::{Node, Value, YamlError};

/// Largest frontmatter, in bytes between its two `---` lines.
pub const MAX_FRONTMATTER_BYTES: usize = 64 * 1024;
/// Longest description, in characters.
pub const MAX_DESCRIPTION_CHARS: usize = 4096;
/// Longest frontmatter name, in characters; the longest seen in 4,418 public skills has 62.
pub const MAX_NAME_CHARS: usize = 256;
const BYTE_ORDER_MARK: &str = "\u{FEFF}";

/// A SKILL.md that was read: its exact bytes and the fields found in them.
#[derive(Clone, Debug)]
pub struct Document {
    text: String,
    body: usize,
    frontmatter: Frontmatter,
    places: Places,
    hidden: Vec<(Position, char)>,
    findings: Vec<Finding>,
}

/// Positions of the fields to which later rules refer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub name: Position,
    pub description: Position,
}

/// The error for a SKILL.md that cannot be admitted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .findings.first().map(ToString::to_string).unwrap_or_default())]
pub struct DocumentError {
    word: &'static str,
    findings: Vec<Finding>,
    actions: Vec<(String, Action)>,
}

impl DocumentError {
    /// Returns the class of the first error, for programs: `skill_frontmatter`, `skill_name`,
    /// `skill_description` or `skill_bin`.
    pub const fn error_class(&self) -> &'static str {
        self.word
    }

    /// Returns every finding, errors first; never empty.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the declared actions that could be read, with their names as written, even if a name
    /// is not valid.
    pub(crate) fn actions(&self) -> &[(String, Action)] {
        &self.actions
    }

    /// Returns the findings by value.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}

impl Document {
    /// Reads a SKILL.md; fails when it is too large, is not text, has no readable frontmatter,
    /// lacks a name or a description, or declares actions wrongly.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        Self::read_document(bytes, None)
    }

    /// Reads a SKILL.md like [`Document::parse`], but uses the given name (of the folder, from the
    /// owner or from the signed manifest) if the frontmatter has none, and warns. A skill that only
    /// this tolerant reading accepts is admitted too.
    pub fn parse_known(bytes: &[u8], name: &SkillName) -> Result<Self, DocumentError> {
        Self::read_document(bytes, Some(name))
    }

    fn read_document(bytes: &[u8], known: Option<&SkillName>) -> Result<Self, DocumentError> {
        let text = decode_document(bytes)?;
        let parts = split_frontmatter(text)?;
        let (root, mended) = read_yaml(parts.yaml)?;
        // `decode_document` has rejected raw NUL bytes, so a NUL here was written as an escape in a
        // quoted value.
        if let Some(position) = root.first_nul() {
            let message = "the frontmatter holds the character U+0000";
            return Err(unreadable_document(
                "skill-md-encoding",
                message,
                Some(in_file(position)),
                "remove it",
            ));
        }
        let mut outcome = frontmatter::read_fields(&root, known)?;
        outcome.findings.splice(0..0, mended);
        let mut hidden = Vec::new();
        yaml::collect_hidden(&root, &mut hidden);
        for (position, _) in &mut hidden {
            *position = in_file(*position);
        }
        Ok(Self {
            text: text.to_owned(),
            body: parts.body,
            frontmatter: outcome.frontmatter,
            places: outcome.places,
            hidden,
            findings: outcome.findings,
        })
    }

    /// Returns the exact bytes of the file, as they were read.
    pub fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Returns the fields of the frontmatter.
    pub const fn frontmatter(&self) -> &Frontmatter {
        &self.frontmatter
    }

    /// Returns the text after the frontmatter, line ends as they are.
    pub fn body(&self) -> &str {
        &self.text[self.body..]
    }

    /// Returns the warnings about the document, in the order of the text.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub(crate) const fn places(&self) -> Places {
        self.places
    }

    /// For each text of the frontmatter that holds invisible characters, returns its position and
    /// the first of them.
    pub(crate) fn hidden_characters(&self) -> &[(Position, char)] {
        &self.hidden
    }

    /// Splits the document into its fields and warnings.
    pub(crate) fn into_parts(self) -> (Frontmatter, Vec<Finding>) {
        (self.frontmatter, self.findings)
    }
}

/// Returns the frontmatter as JSON with every key that the author wrote, or `None` if it cannot be
/// read or is not a map.
pub fn frontmatter_json(bytes: &[u8]) -> Option<serde_json::Map<String, serde_json::Value>> {
    let parts = split_frontmatter(decode_document(bytes).ok()?).ok()?;
    match read_yaml(parts.yaml).ok()?.0.to_json() {
        serde_json::Value::Object(members) => Some(members),
        _ => None,
    }
}

/// Returns the positions of the outermost lists and maps in flow style (`[a, b]`, `{a: b}`), in the
/// order of the text.
pub fn flow_style(bytes: &[u8]) -> Vec<Position> {
    let parts = decode_document(bytes)
        .ok()
        .and_then(|text| split_frontmatter(text).ok());
    let Some((parts, (top, _))) = parts.and_then(|parts| {
        let read = read_yaml(parts.yaml).ok()?;
        Some((parts, read))
    }) else {
        return Vec::new();
    };
    // The tree keeps no styles, so the text at the place of a node tells its style.
    let character = |at: Position| {
        let line = parts.yaml.lines().nth(at.line.checked_sub(1)? as usize)?;
        line.chars().nth(at.column.checked_sub(1)? as usize)
    };
    let mut places = Vec::new();
    let mut open = vec![&top];
    while let Some(node) = open.pop() {
        let inner: Vec<&Node> = match &node.value {
            Value::List(items) => items.iter().collect(),
            Value::Map(members) => members.iter().map(|member| &member.node).collect(),
            _ => continue,
        };
        if matches!(character(node.at), Some('[' | '{')) {
            places.push(in_file(node.at));
        } else {
            open.extend(inner);
        }
    }
    places.sort_unstable_by_key(|at| (at.line, at.column));
    places
}

/// The frontmatter's text, and the offset in the file at which the body begins.
struct Parts<'a> {
    yaml: &'a str,
    body: usize,
}

fn decode_document(bytes: &[u8]) -> Result<&str, DocumentError> {
    // Check the size first, so that all readers below work on bounded input.
    if bytes.len() as u64 > MAX_SKILL_MD_BYTES {
        let message = format!(
            "SKILL.md has {} bytes; {MAX_SKILL_MD_BYTES} are allowed",
            bytes.len()
        );
        return Err(unreadable_document(
            "skill-md-size",
            message,
            None,
            "move long texts into files beside it",
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        // The text is valid up to this offset by definition, so the default is never used.
        let valid = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let at = Position::of_offset(valid, valid.len());
        unreadable_document(
            "skill-md-encoding",
            "SKILL.md is not UTF-8 text",
            Some(at),
            "save it as UTF-8",
        )
    })?;
    if let Some(offset) = text.find('\0') {
        let at = Position::of_offset(text, offset);
        return Err(unreadable_document(
            "skill-md-encoding",
            "SKILL.md holds the character U+0000",
            Some(at),
            "remove it",
        ));
    }
    Ok(text)
}

fn split_frontmatter(text: &str) -> Result<Parts<'_>, DocumentError> {
    // Skip the byte order mark, which editors on Windows write: with it, the first line would not
    // be `---`.
    let start = if text.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len()
    } else {
        0
    };
    let mut lines = text[start..].split_inclusive('\n');
    let opening = lines.next().unwrap_or_default();
    if !is_delimiter(opening) {
        return Err(no_frontmatter(&text[start..]));
    }
    let yaml_start = start + opening.len();
    let mut yaml_end = yaml_start;
    for line in lines {
        if is_delimiter(line) {
            let yaml = &text[yaml_start..yaml_end];
            if yaml.len() > MAX_FRONTMATTER_BYTES {
                let message = format!(
                    "the frontmatter has {} bytes; {MAX_FRONTMATTER_BYTES} are allowed",
                    yaml.len()
                );
                return Err(unreadable_document(
                    "frontmatter-size",
                    message,
                    Some(Position::new(2, 1)),
                    "shorten it",
                ));
            }
            return Ok(Parts {
                yaml,
                body: yaml_end + line.len(),
            });
        }
        yaml_end += line.len();
    }
    let message = "the frontmatter that begins on this line is not closed";
    let hint = "put a line of three hyphens (`---`) after the last field";
    Err(unreadable_document(
        "frontmatter-unclosed",
        message,
        Some(Position::new(1, 1)),
        hint,
    ))
}

fn no_frontmatter(text: &str) -> DocumentError {
    let hint =
        "begin the file with a line `---`, then `name:` and `description:`, then a line `---`";
    // Empty lines before the frontmatter are common and hard to see, so they get a message of their
    // own.
    let late = text
        .lines()
        .position(|line| !line.trim().is_empty())
        .filter(|line| *line > 0);
    if let Some(line) = late.filter(|line| text.lines().nth(*line).is_some_and(is_delimiter)) {
        let at = Position::new(u32::try_from(line + 1).unwrap_or(u32::MAX), 1);
        let message = "the frontmatter must begin on the first line of the file";
        return unreadable_document(
            "frontmatter-missing",
            message,
            Some(at),
            "remove the empty lines before it",
        );
    }
    unreadable_document(
        "frontmatter-missing",
        "SKILL.md has no frontmatter",
        Some(Position::new(1, 1)),
        hint,
    )
}

fn is_delimiter(line: &str) -> bool {
    line.trim_end() == "---"
}

/// Converts a position in the frontmatter's text to one in the file, in which line 1 is the opening
/// `---`.
pub(crate) const fn in_file(position: Position) -> Position {
    Position::new(position.line.saturating_add(1), position.column)
}

/// A text of the frontmatter as a reader of YAML gets it.
pub(crate) struct FrontmatterText {
    /// The key of the value, or of the list that it is in.
    pub key: String,
    pub value: String,
    /// The line of the file at which it begins, from 1.
    pub line: u32,
}

/// Returns the texts of the frontmatter in their order; none if it cannot be read, or if each of its
/// lines is a key with a value that stands there as it is.
pub(crate) fn frontmatter_texts(text: &str) -> Vec<FrontmatterText> {
    let Ok(parts) = split_frontmatter(text) else {
        return Vec::new();
    };
    let is_plain = |line: &str| {
        let key = line.split_once(':').map_or("", |(key, _)| key);
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        !key.is_empty() && key.chars().all(is_letter) && !line.contains(['\\', '&', '<'])
    };
    let mut texts = Vec::new();
    if !parts.yaml.lines().all(is_plain)
        && let Ok((root, _)) = read_yaml(parts.yaml)
    {
        collect_texts(&root, "", &mut texts);
    }
    texts
}

fn collect_texts(node: &yaml::Node, key: &str, texts: &mut Vec<FrontmatterText>) {
    match &node.value {
        yaml::Value::Text(value) => texts.push(FrontmatterText {
            key: key.to_owned(),
            value: value.clone(),
            line: in_file(node.at).line,
        }),
        yaml::Value::List(items) => items
            .iter()
            .for_each(|item| collect_texts(item, key, texts)),
        yaml::Value::Map(members) => members
            .iter()
            .for_each(|member| collect_texts(&member.node, &member.key, texts)),
        yaml::Value::Null | yaml::Value::Bool(_) | yaml::Value::Number(_) => {}
    }
}

/// Maximum number of values in one frontmatter that are quoted in order to read it.
const MOST_MENDED: usize = 8;

/// Reads the frontmatter. If that fails because a plain value holds `: `, or because a value
/// consists of several groups in brackets, reads it with that value in quotes and warns: agents
/// also read it so. No other fault is tolerated, and the bytes of the file stay as they are.
fn read_yaml(yaml: &str) -> Result<(yaml::Node, Vec<Finding>), DocumentError> {
    let first = match yaml::parse_yaml(yaml) {
        Ok(root) => return Ok((root, Vec::new())),
        Err(error) => error,
    };
    let mut text = yaml.to_owned();
    let mut warnings = Vec::new();
    let mut error = first;
    // The parser reports one fault at a time, so each round quotes one value and parses again. The
    // bound keeps the cost of a hostile frontmatter small.
    for _ in 0..MOST_MENDED {
        let quoted = quoted_value(&text, &error).or_else(|| quoted_groups(&text, &error));
        let Some((quoted, warning)) = quoted else {
            break;
        };
        text = quoted;
        warnings.push(warning);
        error = match yaml::parse_yaml(&text) {
            Ok(root) => return Ok((root, warnings)),
            Err(error) => error,
        };
    }
    Err(yaml_error(&text, &error))
}

/// Returns the frontmatter with the failing value in quotes, if it is a plain value of one line at
/// top level.
fn quoted_value(yaml: &str, error: &YamlError) -> Option<(String, Finding)> {
    let finding = unquoted_colon(yaml, error)?;
    let at = usize::try_from(error.at?.line).ok()?.checked_sub(1)?;
    let mut lines: Vec<String> = yaml.lines().map(str::to_owned).collect();
    let line = lines.get(at)?;
    let key = plain_value_key(line)?;
    let value = line.get(key.len() + 1..)?.trim();
    let next = lines.get(at + 1);
    let goes_on = next.is_some_and(|next| next.starts_with([' ', '\t']) && !next.trim().is_empty());
    // Such values could be meant in several ways, so quoting them would be a guess.
    if goes_on
        || value.contains(" #")
        || value.starts_with(['&', '*', '!', '%', '@', '`', '#', '?', '-'])
    {
        return None;
    }
    // Use single quotes, in which YAML knows no escapes, so that a backslash of the value stays
    // one.
    let quoted = format!("{key}: '{}'", value.replace('\'', "''"));
    let message = format!(
        "the value of `{key}` holds `: ` without quotes; it was read as if it were quoted, but agents that read YAML strictly do not see this skill"
    );
    lines[at] = quoted;
    let mut text = lines.join("\n");
    text.push('\n');
    let mut warning = Finding::new("frontmatter-colon", Level::Warning, message)
        .at(SKILL_MD)
        .hint(finding.hint.clone());
    if let Some(position) = finding.position() {
        warning = warning.on(position);
    }
    Some((text, warning))
}

/// Returns the frontmatter with quotes around a value of several groups in brackets, such as
/// `argument-hint: [file] [words]`. YAML ends such a value after the first group.
fn quoted_groups(yaml: &str, error: &YamlError) -> Option<(String, Finding)> {
    let failed_at = usize::try_from(error.at?.line).ok()?;
    let mut lines: Vec<String> = yaml.lines().map(str::to_owned).collect();
    // The parser may notice the second group only at the start of the next line.
    let at = (failed_at.saturating_sub(2)..failed_at).rev().find(|at| {
        lines
            .get(*at)
            .is_some_and(|line| groups_key(line).is_some())
    })?;
    let (key, value) = lines[at].split_once(':')?;
    let value = value.trim();
    let message = format!(
        "the value of `{key}` is several groups in brackets without quotes; it was read as if it were quoted, but agents that read YAML strictly do not see this skill"
    );
    let column = u32::try_from(key.len() + 3).ok()?;
    let position = Position::new(u32::try_from(at + 1).ok()?, column);
    let warning = Finding::new("frontmatter-colon", Level::Warning, message)
        .at(SKILL_MD)
        .on(in_file(position))
        .hint(format!("put the whole value of `{key}` in double quotes"));
    lines[at] = format!("{key}: '{}'", value.replace('\'', "''"));
    let mut text = lines.join("\n");
    text.push('\n');
    Some((text, warning))
}

/// Returns the key of an unindented line `key: [a] [b]`.
fn groups_key(line: &str) -> Option<&str> {
    let (key, value) = line.split_once(':')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let mut rest = value.strip_prefix(' ')?.trim();
    let mut groups = 0;
    while let Some(inner) = rest.strip_prefix('[') {
        let (group, after) = inner.split_once(']')?;
        // Nested brackets and quotes could be meant in several ways.
        if group.contains(['[', '"', '\'', '#']) {
            return None;
        }
        groups += 1;
        rest = after.trim_start();
    }
    (groups > 1 && rest.is_empty() && !key.is_empty() && key.chars().all(is_word)).then_some(key)
}

fn yaml_error(yaml: &str, error: &YamlError) -> DocumentError {
    if let Some(finding) = unquoted_colon(yaml, error) {
        return DocumentError {
            word: "skill_frontmatter",
            findings: vec![finding],
            actions: Vec::new(),
        };
    }
    let hint = "check the indentation, and put values that hold special characters in quotes";
    let message = format!("the frontmatter is not valid YAML: {}", error.message);
    unreadable_document("frontmatter-yaml", message, error.at.map(in_file), hint)
}

/// Returns the finding about the most common mistake, `description: Use when: ...`, which YAML
/// reads as a key inside a value. Returns `None` for other errors.
fn unquoted_colon(yaml: &str, error: &YamlError) -> Option<Finding> {
    let at = error.at?;
    // The parser's error has no code, so recognise it by its text. A test fails if that text
    // changes.
    if !error.message.starts_with("mapping values are not allowed") {
        return None;
    }
    let lines: Vec<&str> = yaml.lines().collect();
    let line = usize::try_from(at.line).ok()?.checked_sub(1)?;
    let key = lines
        .get(..=line)?
        .iter()
        .rev()
        .find_map(|line| plain_value_key(line))?;
    let message =
        format!("the value of `{key}` holds `: ` without quotes, which YAML reads as another key");
    let hint = format!(
        "put the whole value of `{key}` in double quotes, or write it below `{key}: >-`, indented"
    );
    Some(
        Finding::new("frontmatter-colon", Level::Error, message)
            .at(SKILL_MD)
            .on(in_file(at))
            .hint(hint),
    )
}

/// Returns the key of an unindented line `key: value` whose value does not begin with a quote, a
/// bracket or a block sign.
fn plain_value_key(line: &str) -> Option<&str> {
    let (key, value) = line.split_once(':')?;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let plain = value.starts_with(' ')
        && !value
            .trim_start()
            .starts_with(['"', '\'', '[', '{', '|', '>']);
    (plain && !key.is_empty() && key.chars().all(word)).then_some(key)
}

fn unreadable_document(
    rule: &'static str,
    message: impl AsRef<str>,
    at: Option<Position>,
    hint: &str,
) -> DocumentError {
    let mut finding = Finding::new(rule, Level::Error, message)
        .at(SKILL_MD)
        .hint(hint);
    if let Some(at) = at {
        finding = finding.on(at);
    }
    DocumentError {
        word: "skill_frontmatter",
        findings: vec![finding],
        actions: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
