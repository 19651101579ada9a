//! Paths of files inside a skill.
//!
//! A [`FilePath`] is safe to create below a directory on every supported system: a bad path is
//! rejected, never corrected. Paths that a file system could take for the same file are found by
//! [`check_paths`] over the whole set.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use icu_casemap::CaseMapper;
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::text::{is_device_name, is_unprintable, text_form};

/// The path of a file in a skill: segments joined by `/`, 1 to 255 bytes, NFC.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FilePath(Box<str>);

/// The reason why a text is not a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadPath {
    /// The path is empty or over 255 bytes, has over 16 segments, or a segment over 100 bytes.
    #[error("path must have 1 to 255 bytes in at most 16 segments of at most 100 bytes")]
    Length,
    /// A segment is empty, `.` or `..`; a slash at either end also makes an empty segment.
    #[error("path must not have an empty, `.` or `..` segment or a slash at its ends")]
    Segment,
    /// A character that some system forbids, or that cannot be seen.
    #[error("path must not contain {}", display_character(*.0))]
    Character(char),
    /// Not in Unicode normalization form C.
    #[error("path must be in Unicode form NFC")]
    NotNfc,
    /// A segment ends in a dot or a space, which Windows drops.
    #[error("path segment must not end in a dot or a space")]
    Ending,
    /// A segment is the name of a Windows device, such as `con`.
    #[error("path segment must not be a Windows device name")]
    Device,
    /// A segment is, on some file system, the folder of a git repository. Git runs commands that
    /// such a folder configures.
    #[error("path segment must not be .git or its short name git~1, in upper or lower case")]
    Git,
    /// The path begins with `.vault`, which is reserved for vault's own files.
    #[error("path must not begin with .vault")]
    Reserved,
}

/// Two paths of one skill that cannot both exist everywhere.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PathClash {
    /// Two paths are equal as files or directories once case and Unicode form are ignored.
    #[error("{0:?} and {1:?} are the same name where letter case does not count")]
    Same(String, String),
    /// One is a file and at the same time the directory of another.
    #[error("{0:?} is both a file and a directory")]
    Parent(String),
}

impl FilePath {
    /// The path as text, with `/` between segments.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory that holds the file, or `None` at the top of the skill.
    pub fn directory(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(directory, _)| directory)
    }

    /// Tells whether this file lies somewhere below the directory.
    pub fn is_below(&self, directory: &str) -> bool {
        self.0
            .strip_prefix(directory)
            .is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for FilePath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, BadPath> {
        check_path(text).map(|()| Self(text.into()))
    }
}

fn check_path(text: &str) -> Result<(), BadPath> {
    // Check the bounds first, so that the checks below run over short texts only.
    if !(1..=255).contains(&text.len()) || text.split('/').count() > 16 {
        return Err(BadPath::Length);
    }
    // Some file systems drop characters that cannot be seen, and what is left may be another path.
    let refused = |c: &char| {
        is_unprintable(*c) || matches!(c, '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|')
    };
    if let Some(refused) = text.chars().find(refused) {
        return Err(BadPath::Character(refused));
    }
    // macOS normalises names: two forms of one name would be one file there and two elsewhere.
    if !text.is_ascii() && !is_nfc(text) {
        return Err(BadPath::NotNfc);
    }
    text.split('/').try_for_each(check_segment)?;
    // Compare without regard to case: on a file system that ignores case, `.Vault` is the same
    // name.
    if text
        .as_bytes()
        .get(..6)
        .is_some_and(|head| head.eq_ignore_ascii_case(b".vault"))
    {
        return Err(BadPath::Reserved);
    }
    Ok(())
}

fn check_segment(segment: &str) -> Result<(), BadPath> {
    match segment {
        "" | "." | ".." => Err(BadPath::Segment),
        _ if segment.len() > 100 => Err(BadPath::Length),
        // Windows drops a dot or a space at the end, so `a.` and `a` would be one file.
        _ if segment.ends_with(['.', ' ']) => Err(BadPath::Ending),
        _ if is_device_name(segment) => Err(BadPath::Device),
        _ if matches!(&*fold_name(segment), ".git" | "git~1") => Err(BadPath::Git),
        _ => Ok(()),
    }
}

/// Formats a rejected character for a message. Most of them are invisible, so their code is shown.
fn display_character(c: char) -> String {
    if c.is_ascii_graphic() {
        format!("`{c}`")
    } else {
        format!("U+{:04X}", u32::from(c))
    }
}

/// Checks that the paths can exist side by side: unique under NFC and full case folding,
/// directories included, and none the parent of another. Fails with the first pair that clashes.
pub fn check_paths<'a>(paths: impl IntoIterator<Item = &'a FilePath>) -> Result<(), PathClash> {
    let mut seen: HashMap<Cow<'a, str>, (&'a str, Kind)> = HashMap::new();
    for path in paths {
        let whole = path.as_str();
        let directories = whole
            .match_indices('/')
            .map(|(end, _)| (&whole[..end], Kind::Directory));
        for (name, kind) in directories.chain([(whole, Kind::File)]) {
            // Directories are compared like files: `Bin/x` and `bin/y` are two directories on Linux
            // and one on macOS.
            match seen.get(&fold_name(name)) {
                None => {
                    seen.insert(fold_name(name), (name, kind));
                }
                Some((other, _)) if *other != name => {
                    return Err(PathClash::Same((*other).to_owned(), name.to_owned()));
                }
                // The same directory of several files.
                Some((_, Kind::Directory)) if kind == Kind::Directory => {}
                Some((_, other)) if *other != kind => {
                    return Err(PathClash::Parent(name.to_owned()));
                }
                Some(_) => return Err(PathClash::Same(name.to_owned(), name.to_owned())),
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Directory,
    File,
}

/// Folds a name so that two names which some file system takes for the same one become equal: NFC,
/// full case folding, and NFC again, since folding can leave it.
pub fn fold_name(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            text.to_ascii_lowercase().into()
        } else {
            text.into()
        };
    }
    let composed: String = text.nfc().collect();
    CaseMapper::new()
        .fold_string(&composed)
        .nfc()
        .collect::<String>()
        .into()
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for FilePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

text_form!(FilePath, BadPath, "a path inside a skill");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn good_paths() {
        let deep = ["d"; 16].join("/");
        let long = format!("{}/{}/{}", "a".repeat(100), "b".repeat(100), "c".repeat(53));
        for good in [
            "SKILL.md",
            "bin/check.sh",
            ".hidden",
            "a b/c",
            "docs/übersicht.md",
            "日本/語",
            "v.vault",
            "...a",
            "com0",
            ".gitignore",
            ".github/x",
            "git~2",
            "a b😀.md",
            &deep,
            &long,
        ] {
            assert_eq!(good.parse::<FilePath>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn bad_paths() {
        let deep = ["d"; 17].join("/");
        let long = format!("{}/{}/{}", "a".repeat(100), "b".repeat(100), "c".repeat(54));
        let segment = "a".repeat(101);
        for (bad, reason) in [
            ("", BadPath::Length),
            (deep.as_str(), BadPath::Length),
            (long.as_str(), BadPath::Length),
            (segment.as_str(), BadPath::Length),
            ("/etc/x", BadPath::Segment),
            ("a/", BadPath::Segment),
            ("a//b", BadPath::Segment),
            ("..", BadPath::Segment),
            ("../x", BadPath::Segment),
            ("a/../b", BadPath::Segment),
            ("./a", BadPath::Segment),
            ("u\u{308}", BadPath::NotNfc),
            ("a.", BadPath::Ending),
            ("a /b", BadPath::Ending),
            ("con", BadPath::Device),
            ("a/NUL.txt", BadPath::Device),
            (".vault", BadPath::Reserved),
            (".vaultx/y", BadPath::Reserved),
            (".VAULT/y", BadPath::Reserved),
            ("COM¹", BadPath::Device),
            ("CONIN$/x", BadPath::Device),
            (".git/config", BadPath::Git),
            ("a/.git", BadPath::Git),
            (".GIT/config", BadPath::Git),
            (".gIt/hooks/pre-commit", BadPath::Git),
            ("GIT~1/config", BadPath::Git),
        ] {
            assert_eq!(bad.parse::<FilePath>(), Err(reason), "{bad:?}");
        }
        for c in
            "\\:*?\"<>|\0\u{1b}\u{7f}\u{85}\u{2028}\u{202e}\u{2066}\u{200b}\u{feff}\u{200e}\u{61c}\
                  \u{2060}\u{206a}\u{ad}\u{34f}\u{fe0f}\u{115f}\u{3164}\u{e0041}\u{a0}"
                .chars()
        {
            let bad = format!("a{c}b.md");
            assert_eq!(
                bad.parse::<FilePath>(),
                Err(BadPath::Character(c)),
                "{bad:?}"
            );
        }
        // A file system that drops invisible characters reads this path as `.git/config`.
        assert!(".g\u{200c}it/config".parse::<FilePath>().is_err());
    }

    #[test]
    fn messages_name_the_character() {
        for (c, message) in [
            (':', "path must not contain `:`"),
            ('\u{e0041}', "path must not contain U+E0041"),
        ] {
            assert_eq!(BadPath::Character(c).to_string(), message);
        }
    }

    fn paths(texts: &[&str]) -> Vec<FilePath> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn clashing_paths() {
        for clash in [
            ["a", "A"].as_slice(),
            &["a", "a"],
            &["Bin/x", "bin/y"],
            &["straße", "STRASSE"],
            &["ß", "ẞ"],
            &["ΐ", "ΐ"], // equal only under full folding
            &["data", "data/x"],
            &["data/x", "DATA"],
            &["é/x", "É/y"],
        ] {
            assert!(check_paths(&paths(clash)).is_err(), "{clash:?}");
            assert!(
                check_paths(paths(clash).iter().rev()).is_err(),
                "{clash:?} reversed"
            );
        }
        for fine in [
            ["a", "b"].as_slice(),
            &["bin/x", "bin/y"],
            &["a/b", "b/a", "ab"],
            &["é", "e"],
        ] {
            assert_eq!(check_paths(&paths(fine)), Ok(()), "{fine:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_keeps_its_text(text in "[a-zA-Z./ \\\\ü\u{308}\u{0}:ß-]{0,40}|.{0,300}") {
            if let Ok(path) = text.parse::<FilePath>() {
                prop_assert_eq!(path.as_str(), &text);
                prop_assert!(!text.starts_with('/') && !text.split('/').any(|segment| segment == ".."));
                prop_assert_eq!(check_paths([&path]), Ok(()));
                prop_assert!(check_paths([&path, &path]).is_err());
            }
        }

        #[test]
        fn folding_twice_is_folding_once(text in ".{0,30}") {
            let once = fold_name(&text).into_owned();
            prop_assert_eq!(fold_name(&once).into_owned(), once);
        }
    }
}
