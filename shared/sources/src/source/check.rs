//! Checks the parts of a source, and rejects what must never reach git, SSH or the file system.

use vault_format::credentials::without_credentials;
use vault_format::name::is_deceptive;
use vault_format::provenance::unescape_folder;
use vault_format::text::printable;

use super::{BadSource, FORMS};

/// Decodes percent escapes in a path segment. Returns the segment unchanged if the result is not
/// UTF-8.
pub(super) fn decode_segment(segment: &str) -> String {
    match percent_encoding::percent_decode_str(segment).decode_utf8() {
        Ok(decoded) => decoded.into_owned(),
        Err(_) => segment.to_owned(),
    }
}

/// Checks a path inside of a source. Returns it without leading and trailing slashes.
pub fn check_path(path: &str) -> Result<&str, BadSource> {
    let path = path.trim_matches('/');
    check_folders(path, path.split('/'))?;
    Ok(path)
}

/// Decodes the escapes in a folder of a repository, as [`escape_folder`] writes them and browsers
/// show them. Fails for what leads out of the repository, and for what separates parts of an address
/// and is not escaped, but for the `@` before the scope of packages.
pub(super) fn decode_folder<'a>(
    text: &str,
    segments: impl Iterator<Item = &'a str> + Clone,
) -> Result<String, BadSource> {
    let without_scope = |segment: &'a str| segment.strip_prefix('@').unwrap_or(segment);
    check_segments(text, segments.clone().map(without_scope))?;
    let decode = |segment: &str| unescape_folder(segment).unwrap_or_else(|| segment.to_owned());
    let segments: Vec<String> = segments.map(decode).collect();
    check_folders(text, segments.iter().map(String::as_str))?;
    Ok(segments.join("/"))
}

/// Checks the segments of a path inside of a source. They never reach the command line of another
/// program and are compared as they are, so they may contain what separates parts of an address.
pub(super) fn check_folders<'a>(
    text: &str,
    mut segments: impl Iterator<Item = &'a str>,
) -> Result<(), BadSource> {
    let fine = segments.all(|segment| {
        !matches!(segment, "" | "." | "..")
            && !segment.starts_with('-')
            && !segment.contains(['\\', '/'])
            && !segment.chars().any(is_deceptive)
    });
    require_valid(
        fine,
        text,
        "a part of its path is empty, `.`, `..`, begins with `-`, or holds a backslash or an invisible character",
    )
}

/// Checks the segments of the path of an address.
pub(super) fn check_segments<'a>(
    text: &str,
    mut segments: impl Iterator<Item = &'a str>,
) -> Result<(), BadSource> {
    // A leading `-` could be read as an option, and the other characters separate parts of an
    // address.
    let fine = segments.all(|segment| {
        !matches!(segment, "" | "." | "..")
            && !segment.starts_with('-')
            && !segment.contains(['\\', ':', '?', '#', '@'])
            && !segment.chars().any(|c| is_deceptive(c) || c == '\0')
    });
    require_valid(
        fine,
        text,
        "a part of its path is empty, `.`, `..`, begins with `-`, or holds one of \\ : ? # @",
    )
}

fn require_valid(fine: bool, text: &str, reason: &str) -> Result<(), BadSource> {
    if fine {
        Ok(())
    } else {
        Err(BadSource::new(text, reason))
    }
}

/// Checks the name of an owner or repository on a code host.
pub(super) fn check_repository_part(text: &str, part: &str) -> Result<(), BadSource> {
    let fine = (1..=100).contains(&part.len())
        && !part.starts_with(['-', '.'])
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let reason = format!(
        "{} is not the name of an owner or repository",
        printable(&without_credentials(part))
    );
    require_valid(fine, text, &reason).map_err(|bad| bad.with_hint(format!("a source is {FORMS}")))
}

/// Checks a user or host name. Both become part of an SSH command line.
pub(super) fn check_ssh_word(text: &str, word: &str) -> Result<(), BadSource> {
    // ssh would read such a word as an option, and `-oProxyCommand=…` runs a program.
    let fine = !word.starts_with('-')
        && word.chars().all(|c| {
            c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '[' | ']' | ':')
        });
    require_valid(
        fine,
        text,
        "its user or host has characters that are not allowed",
    )
}

/// Checks a branch, tag, commit or version against git's rules for reference names.
pub(crate) fn check_reference(text: &str) -> Result<(), BadSource> {
    // Beside git's rules, this rejects expressions such as `a..b`, `a~1` or `a@{1}`, which name
    // other commits.
    let fine = (1..=255).contains(&text.len())
        && !text.starts_with(['-', '/', '.'])
        && !text.ends_with(['/', '.'])
        && !text.contains("..")
        && !text.contains("//")
        && !text.contains("@{")
        && !text.contains(|c: char| c.is_whitespace() || is_deceptive(c) || "~^:?*[\\".contains(c))
        && !text
            .split('/')
            .any(|part| part.starts_with('.') || part.strip_suffix(".lock").is_some());
    require_valid(fine, text, "it is not a branch, tag, commit or version")
}
