//! Recognises files that look like secrets. Such files of a source become part of a skill only if
//! its owner names them.
//!
//! People work in the folders of their skills, so secrets may lie there, and everyone who gets a
//! skill gets its files. Only files that come from a source are checked; a version that was signed
//! before never changes.

use crate::RawFile;
use crate::finding::{Finding, Level, Rule, Severity};
use vault_format::bundle::File;
use vault_format::text::{printable, quoted};

/// The rule that warns about a file that was left out.
pub const SECRET_LEFT_OUT: Rule = Rule {
    id: "VG-SF-001",
    name: "secret-left-out",
    category: "AST01",
    severity: Severity::Medium,
    why: "Everyone who gets the skill gets its files.",
};

/// The rule that warns about a file that is included because the owner named it.
pub const SECRET_INCLUDED: Rule = Rule {
    id: "VG-SF-002",
    name: "secret-included",
    category: "AST01",
    severity: Severity::Medium,
    why: "Everyone who gets the skill gets its files.",
};

/// Names of private keys as OpenSSH writes them.
const KEY_NAMES: [&str; 6] = [
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
];
/// Endings of files that hold keys, or certificates together with their keys.
const KEY_ENDINGS: [&str; 5] = [".pem", ".key", ".ppk", ".p12", ".pfx"];
/// Last parts of the names of example files, as in `.env.example`.
const EXAMPLES: [&str; 3] = ["example", "sample", "template"];
/// Number of base64 characters behind a header that tell a key from a text about keys.
const KEY_LENGTH: usize = 16;

/// The files of a source, separated from those that look like secrets.
#[derive(Debug, Default)]
pub struct SeparatedFiles {
    /// The files that become part of the skill.
    pub files: Vec<RawFile>,
    /// Paths, sorted, of files that look like secrets and are included because the owner named
    /// them.
    pub included: Vec<String>,
    /// Paths, sorted, of files that look like secrets and were left out.
    pub left_out: Vec<String>,
}

impl SeparatedFiles {
    /// Returns one warning for each file that looks like a secret.
    pub fn findings(&self) -> Vec<Finding> {
        let left_out = self.left_out.iter().map(|path| {
            let message = format!("{} looks like a secret and was left out", quoted(path));
            let hint = format!("if the skill needs it: `--include {}`", printable(path));
            Finding::of(&SECRET_LEFT_OUT, Level::Warning, message)
                .at(path)
                .hint(hint)
        });
        let included = self.included.iter().map(|path| {
            let message = format!(
                "{} looks like a secret, and is part of the skill as asked",
                quoted(path)
            );
            Finding::of(&SECRET_INCLUDED, Level::Warning, message).at(path)
        });
        left_out.chain(included).collect()
    }
}

/// Leaves out the files that look like secrets, unless `include` names them by their path in the
/// skill. A SKILL.md with a private key is left out too, so the skill is then rejected.
pub fn separate_secrets(files: Vec<RawFile>, include: &[String]) -> SeparatedFiles {
    let mut separated = SeparatedFiles::default();
    for file in files {
        if looks_secret(&file.path, &file.bytes) {
            let path = file.path.clone();
            if !is_named(&path, include) {
                separated.left_out.push(path);
                continue;
            }
            separated.included.push(path);
        }
        separated.files.push(file);
    }
    separated.included.sort();
    separated.left_out.sort();
    separated
}

/// Returns one line that names the files which were left out; `None` if there are none.
pub fn left_out_text(paths: &[String]) -> Option<String> {
    const MOST: usize = 8;
    // Keep the text to one line, however many, long or hostile the paths are.
    let mut shown: Vec<String> = paths
        .iter()
        .take(MOST)
        .map(|path| printable(path).chars().take(40).collect())
        .collect();
    let more = paths.len().saturating_sub(MOST);
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    let files = shown.join(", ");
    match paths.len() {
        0 => None,
        1 => Some(format!("without {files}: it looks like a secret")),
        _ => Some(format!("without {files}: they look like secrets")),
    }
}

/// Returns the paths of the files of a skill that look like secrets.
pub fn paths_of(files: &[File]) -> Vec<String> {
    let is_secret = |file: &&File| looks_secret(file.path.as_str(), &file.bytes);
    let secrets = files.iter().filter(is_secret);
    secrets.map(|file| file.path.to_string()).collect()
}

/// Tells whether one of these names is the path of this file, written as `.env` or `./.env`.
pub fn is_named(path: &str, include: &[String]) -> bool {
    let mut names = include.iter();
    names.any(|name| name.trim_start_matches("./") == path)
}

/// Tells whether a file looks like a secret: an environment file that is no example, a file with
/// the name of a key or certificate, or one that contains a private key. Letter case does not
/// matter.
pub fn looks_secret(path: &str, bytes: &[u8]) -> bool {
    // Test each part of the path, because a folder `.env/` also contains secrets.
    path.split('/').any(has_secret_name) || has_private_key(bytes)
}

fn has_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if let Some(rest) = name.strip_prefix(".env") {
        // Only the last part makes it an example: `.env.example.local` holds real values.
        let last = rest.rsplit('.').next().unwrap_or_default();
        return rest.is_empty() || (rest.starts_with('.') && !EXAMPLES.contains(&last));
    }
    KEY_NAMES.contains(&&*name) || KEY_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Tells whether a text contains a private key in the format of PEM or OpenSSH, also inside a
/// string with escapes or in UTF-16. A header without a key, as in documentation, does not count.
fn has_private_key(bytes: &[u8]) -> bool {
    // In UTF-16, every second byte of this format is NUL; without them it is ASCII.
    if bytes.contains(&0) {
        let plain: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
        return has_key_block(&plain);
    }
    has_key_block(bytes)
}

fn has_key_block(bytes: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN ";
    const HEADER: usize = 64;
    let mut rest = bytes;
    while let Some(at) = find_bytes(rest, BEGIN) {
        rest = &rest[at + BEGIN.len()..];
        // No header is longer than this. Without the bound, a file full of `-----BEGIN ` would take
        // quadratic time.
        let line = &rest[..rest.len().min(HEADER)];
        let Some(end) = find_bytes(line, b"-----") else {
            continue;
        };
        if find_bytes(&line[..end], b"PRIVATE KEY").is_some() && begins_key(&rest[end + 5..]) {
            return true;
        }
    }
    false
}

/// Tells whether the text behind a header is a key: spaces, line ends, their escapes and quotation
/// marks, then base64 or a field of an encrypted key.
fn begins_key(text: &[u8]) -> bool {
    let mut text = text;
    while let [b'\\', b'n' | b'r' | b't' | b'\\', rest @ ..]
    | [
        b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'+' | b'>' | b'|' | b'#' | b'\\',
        rest @ ..,
    ] = text
    {
        text = rest;
    }
    let is_base64 = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let length = text.iter().take(KEY_LENGTH).take_while(is_base64).count();
    let fields: [&[u8]; 4] = [b"Proc-Type:", b"Version:", b"Comment:", b"DEK-Info:"];
    length == KEY_LENGTH || fields.iter().any(|field| text.starts_with(field))
}

fn find_bytes(text: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, wanted)
}

#[cfg(test)]
mod tests {
    use vault_format::manifest::Mode;

    use super::*;

    const KEY: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";

    #[test]
    fn names_of_secrets_are_known_in_any_case_and_folder() {
        for path in [
            ".env",
            ".ENV",
            "config/.env",
            ".env.local",
            ".Env.Production",
            ".env.example.local",
            ".env/production",
            "id_rsa",
            "keys/ID_ED25519",
            "server.key",
            "cert.pem",
            "CERT.PEM",
            "ca.pem",
            "login.ppk",
            "store.p12",
        ] {
            assert!(looks_secret(path, b"x"), "{path}");
        }
        for path in [
            ".env.example",
            ".env.sample",
            ".env.template",
            ".env.local.example",
            ".ENV.EXAMPLE",
            ".environment",
            ".envrc",
            "env.md",
            "id_rsa.pub",
            "keys.md",
            "key",
            "monkey.rs",
            "pem.md",
        ] {
            assert!(!looks_secret(path, b"x"), "{path}");
        }
    }

    #[test]
    fn private_keys_are_known_by_their_content() {
        let pem = |kind: &str, middle: &str| {
            format!("-----BEGIN {kind}-----{middle}{KEY}\n-----END {kind}-----\n")
        };
        for text in [
            pem("PRIVATE KEY", "\n"),
            pem("RSA PRIVATE KEY", "\r\n"),
            pem("OPENSSH PRIVATE KEY", "\n"),
            pem("ENCRYPTED PRIVATE KEY", "\n"),
            pem("RSA PRIVATE KEY", "\nProc-Type: 4,ENCRYPTED\n"),
            pem("PGP PRIVATE KEY BLOCK", "\n\n"),
            format!("{{\"private_key\": \"-----BEGIN PRIVATE KEY-----\\n{KEY}\\n\"}}"),
            format!("key = \"-----BEGIN PRIVATE KEY-----\" + \\\n  \"{KEY}\""),
            format!("text -----BEGIN x\n{}", pem("PRIVATE KEY", "\n")),
        ] {
            assert!(looks_secret("notes.txt", text.as_bytes()), "{text}");
            let wide: Vec<u8> = text.bytes().flat_map(|byte| [byte, 0]).collect();
            assert!(looks_secret("notes.txt", &wide), "{text} in UTF-16");
            assert!(looks_secret("SKILL.md", text.as_bytes()), "{text}");
        }
        for text in [
            pem("PUBLIC KEY", "\n"),
            pem("CERTIFICATE", "\n"),
            "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n".to_owned(),
            "Look for `-----BEGIN OPENSSH PRIVATE KEY-----` in the file.".to_owned(),
            "-----BEGIN ".to_owned(),
            "-----BEGIN PRIVATE KEY-----".to_owned(),
        ] {
            assert!(!looks_secret("notes.txt", text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn the_files_that_were_left_out_are_named_in_a_short_line() {
        let paths = |number: usize| -> Vec<String> {
            (0..number).map(|it| format!("{it}/.env\n")).collect()
        };
        assert_eq!(left_out_text(&paths(0)), None);
        let one = left_out_text(&["a/.env".to_owned()]).unwrap();
        assert_eq!(one, "without a/.env: it looks like a secret");
        let many = left_out_text(&paths(100)).unwrap();
        assert!(many.ends_with("92 more: they look like secrets"), "{many}");
        assert!(
            !many.contains('\n') && many.chars().count() <= 500,
            "{many}"
        );
        let long = left_out_text(&vec!["x".repeat(4_000); 9]).unwrap();
        assert!(long.chars().count() <= 500, "{long}");
    }

    #[test]
    fn every_file_is_taken_or_named_as_left_out() {
        let file = |path: &str| RawFile {
            path: path.to_owned(),
            mode: Mode::Plain,
            bytes: b"x".to_vec(),
        };
        let paths = ["SKILL.md", ".env", "a/.env", "a/b.key", "c.md"];
        let include = ["./.env", "a/b.key", "c.md"].map(str::to_owned);
        let separated = separate_secrets(paths.map(file).into(), &include);
        let taken = separated.files.iter().map(|file| file.path.as_str());
        assert_eq!(
            taken.collect::<Vec<_>>(),
            ["SKILL.md", ".env", "a/b.key", "c.md"]
        );
        assert_eq!(separated.included, [".env", "a/b.key"]);
        assert_eq!(separated.left_out, ["a/.env"]);
        let findings = separated.findings();
        let named = findings.iter().map(|found| (found.rule, &*found.path));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [
                ("secret-left-out", "a/.env"),
                ("secret-included", ".env"),
                ("secret-included", "a/b.key"),
            ]
        );
    }
}
