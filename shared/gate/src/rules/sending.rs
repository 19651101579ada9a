//! What a statement sends, and whose it is: checks of the rules about data that leaves.

use super::hosts::{self, urls};
use crate::rule::{Seen, has};

/// The statement sends something, and not to this machine alone.
pub(super) fn sends(seen: &Seen<'_>) -> Option<usize> {
    let text = seen.text;
    let tool = [
        "curl",
        "wget --post",
        "wget -",
        "nc ",
        "ncat",
        "netcat",
        "scp",
        "rsync",
        "requests.post",
        "requests.put",
        "fetch(",
        "mail ",
        "aws s3",
        "gsutil",
        "rclone",
        "gist",
    ]
    .iter()
    .any(|word| has(text, word));
    let data = [
        "-d ",
        "-d@",
        "--data",
        "-f ",
        "--form",
        "-t ",
        "--upload",
        "--post",
        "nc ",
        "ncat",
        "netcat",
        "scp",
        "rsync",
        "requests.p",
        "fetch(",
        "mail ",
        "aws s3",
        "gsutil",
        "rclone",
        "gist",
        "?",
        "-x post",
        "-d\"",
        "-f\"",
        "-f'",
        "-d'",
    ]
    .iter()
    .any(|word| has(text, word));
    let mut hosts_named = urls(text).peekable();
    let outside = hosts_named.peek().is_none() || hosts_named.any(|url| !hosts::is_local(url.host));
    (tool && data && outside).then_some(seen.first.start)
}

/// As [`sends`], and what is sent stands in the address or the body.
pub(super) fn sends_outside(seen: &Seen<'_>) -> Option<usize> {
    let after = &seen.text[seen.first.start..seen.text.len().min(seen.first.end + 60)];
    let inner = after.split(|byte| *byte == b')').next().unwrap_or_default();
    if has(inner, "public") || has(inner, ".pub") {
        return None; // the public half of a key
    }
    let mut any = false;
    let mut outside = false;
    for url in urls(seen.text) {
        any = true;
        outside |= !hosts::is_local(url.host);
    }
    if any && !outside {
        return None;
    }
    // A substitution before the command, or in a file's name, is not sent.
    let curl = seen
        .text
        .windows(4)
        .position(|window| window == b"curl" || window == b"wget")
        .unwrap_or(0);
    let upload = [
        "-d ", "--data", "-f ", "?", "-x post", "-d@", "--form", "-t ", "send", "upload", "post",
    ];
    let standing = ["|", "after", "curl", "always", "before", "start", "on "];
    let is_sent = seen.first.start > curl || standing.iter().any(|word| has(seen.matched(), word));
    (is_sent && upload.iter().any(|word| has(seen.text, word))).then_some(seen.first.start)
}

/// Two secrets whose names begin with different words.
pub(super) fn secrets_of_two_services(seen: &Seen<'_>) -> Option<usize> {
    let mut owners = std::collections::BTreeSet::new();
    // A secret in a header, or handed to a client, is used where it belongs.
    let lines = seen.text.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| {
        !["authorization", "bearer", "client(", "api_key=", "headers"]
            .iter()
            .any(|use_of| has(line, use_of))
    });
    for word in
        lines.flat_map(|line| line.split(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_')))
    {
        let secret = [
            b"secret".as_slice(),
            b"token",
            b"_key",
            b"password",
            b"database_url",
        ]
        .iter()
        .any(|part| has(word, part));
        if secret && word.contains(&b'_') && word.len() <= 40 {
            let name = word.split(|byte| *byte == b'_').next().unwrap_or_default();
            if OWNERS.iter().any(|(owner, _)| owner.as_bytes() == name) {
                owners.insert(name);
            }
        }
    }
    (owners.len() >= 2).then_some(seen.first.start)
}

/// Services whose secrets have names of their own, and the words that their hosts hold.
const OWNERS: [(&str, &[&str]); 30] = [
    ("aws", &["amazonaws", "aws"]),
    ("github", &["github", "ghcr"]),
    ("gh", &["github"]),
    ("gitlab", &["gitlab"]),
    ("openai", &["openai", "azure"]),
    ("anthropic", &["anthropic", "claude"]),
    ("stripe", &["stripe"]),
    ("slack", &["slack"]),
    ("datadog", &["datadog"]),
    ("dd", &["datadog"]),
    ("sendgrid", &["sendgrid"]),
    ("twilio", &["twilio"]),
    ("docker", &["docker"]),
    ("npm", &["npm"]),
    ("pypi", &["pypi"]),
    ("azure", &["azure", "microsoft", "windows"]),
    ("gcp", &["google"]),
    ("google", &["google", "gemini", "youtube"]),
    ("gemini", &["google", "gemini"]),
    ("heroku", &["heroku"]),
    ("cloudflare", &["cloudflare"]),
    ("digitalocean", &["digitalocean"]),
    ("ssh", &[]),
    ("database", &[]),
    ("db", &[]),
    ("jwt", &[]),
    ("mongodb", &["mongodb"]),
    ("postgres", &[]),
    ("mysql", &[]),
    ("redis", &["redis", "upstash"]),
];

/// The secret's first word names a service that the address does not belong to, and the secret is data, not a header.
pub(super) fn foreign_secret(seen: &Seen<'_>) -> Option<usize> {
    let name = seen.matched();
    let name = &name[name
        .iter()
        .position(|byte| matches!(byte, b'$' | b'\'' | b'"' | b'.'))?
        + 1..];
    let name: Vec<u8> = name
        .iter()
        .copied()
        .skip_while(|byte| !byte.is_ascii_alphabetic())
        .collect();
    let text = std::str::from_utf8(&name).ok()?;
    let text = text
        .strip_prefix("env.")
        .or_else(|| text.strip_prefix("get(\""))
        .or_else(|| text.strip_prefix("get('"))
        .unwrap_or(text);
    let first = text
        .trim_start_matches("environ")
        .trim_start_matches(|c: char| !c.is_ascii_alphabetic())
        .split('_')
        .next()?;
    let (_, hosts_of) = OWNERS.iter().find(|(owner, _)| *owner == first)?;
    // In a header of its own statement a secret signs in; elsewhere it is what is sent.
    if [
        "authorization",
        "-h ",
        "headers",
        "--header",
        "-u ",
        "auth=",
        "api-key",
    ]
    .iter()
    .any(|word| has(seen.statement, word))
    {
        return None;
    }
    let body = has(seen.text, "-d ")
        || has(seen.text, "--data")
        || has(seen.text, "json=")
        || has(seen.text, "data=")
        || has(seen.text, "body:")
        || has(seen.text, "-f ")
        || has(seen.text, ".post(")
        || has(seen.text, "?");
    let foreign = urls(seen.text).all(|url| {
        !hosts::is_local(url.host) && hosts_of.iter().all(|word| !url.host.contains(word))
    });
    (body && foreign).then_some(seen.first.start)
}
