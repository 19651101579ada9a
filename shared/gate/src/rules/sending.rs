//! What a statement sends, and whose it is: checks of the rules about data that leaves.

use super::hosts::{self, urls};
use super::words::{is_letter, names, names_any, parts_of_name};
use crate::rule::{Lazy, Seen};

/// The statement sends something, and not to this machine alone.
pub(super) fn sends(seen: &Seen<'_>) -> Option<usize> {
    const TOOLS: [&str; 20] = [
        "curl*",
        "wget -*",
        "nc",
        "ncat*",
        "netcat*",
        "scp*",
        "rsync*",
        "requests.post",
        "requests.put",
        "*fetch(",
        "*mail",
        "aws s3*",
        "gsutil*",
        "rclone*",
        "gist*",
        "ssh ",
        "socat*",
        "http ",
        "https ",
        "xh ",
    ];
    static DATA: Lazy = Lazy::new(
        r"\s-\w{0,6}[dft](?:[\s@\x22'=]|$)|--data|--form|--upload|--post|-x post|\b(?:nc|ncat|netcat|scp|rsync|ssh|socat|mail|https?|xh)\s|openssl|requests\.p|fetch\(|aws s3|gsutil|rclone|gist|\?",
    );
    let text = seen.text;
    let tool = names_any(text, &TOOLS) || names(text, "openssl*");
    let data = DATA.is_match(text);
    let mut hosts_named = urls(text).peekable();
    let outside =
        hosts_named.peek().is_none() || hosts_named.any(|url| !hosts::is_local(&url.host));
    (tool && data && outside).then_some(seen.first.start)
}

/// As [`sends`], of more than the public half of a key, which anybody may have.
pub(super) fn sends_secret(seen: &Seen<'_>) -> Option<usize> {
    static STORE: Lazy = Lazy::new(store!());
    let is_edge = |byte: &u8| byte.is_ascii_whitespace() || b"'\"`)".contains(byte);
    let line = &seen.text[line_of(seen.text, seen.first.end.saturating_sub(1))];
    let mut words = seen.matched().split(is_edge).chain(line.split(is_edge));
    let public: [&[u8]; 4] = [b".pub", b"authorized_keys", b"known_hosts", b".ssh"];
    let is_secret =
        |word: &[u8]| !public.iter().any(|end| word.ends_with(end)) && STORE.is_match(word);
    words.any(is_secret).then(|| sends(seen)).flatten()
}

/// As [`sends`], and what is sent stands in the address or the body.
pub(super) fn sends_outside(seen: &Seen<'_>) -> Option<usize> {
    const UPLOADS: [&str; 11] = [
        "*-d ", "--data*", "*-f ", "?", "-x post", "*-d@", "--form*", "*-t ", "send*", "*upload*",
        "*post*",
    ];
    const STANDING: [&str; 7] = ["|", "after", "curl", "always", "before", "*start*", "on "];
    let after = &seen.text[seen.first.start..seen.text.len().min(seen.first.end + 60)];
    let inner = after.split(|byte| *byte == b')').next().unwrap_or_default();
    if is_public_half(inner) {
        return None;
    }
    let mut any = false;
    let mut outside = false;
    for url in urls(seen.text) {
        any = true;
        outside |= !hosts::is_local(&url.host);
    }
    if any && !outside {
        return None;
    }
    // What is piped to another machine needs no option; a substitution before the command, or in a
    // file's name, is not sent.
    let piped_to: [&[u8]; 6] = [b"ssh", b"nc", b"ncat", b"socat", b"mail", b"sendmail"];
    let is_piped = piped_to.iter().any(|tool| seen.matched().ends_with(tool));
    let curl = seen
        .text
        .windows(4)
        .position(|window| window == b"curl" || window == b"wget")
        .unwrap_or(0);
    let is_sent = seen.first.start > curl || names_any(seen.matched(), &STANDING);
    (is_piped || (is_sent && names_any(seen.text, &UPLOADS))).then_some(seen.first.start)
}

/// Whether this reads the public half of a key and nothing else: a file whose name ends in `.pub`,
/// or a value whose name says "public".
fn is_public_half(read: &[u8]) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_whitespace() || b"'\"`$({[,<".contains(byte);
    let last = |word: &[u8]| -> Vec<u8> {
        word.rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
            .to_vec()
    };
    // The program, and an option, read nothing by themselves.
    let mut names = read
        .split(is_edge)
        .filter(|word| word.iter().any(|byte| is_letter(*byte)) && !word.starts_with(b"-"))
        .skip(1)
        .peekable();
    names.peek().is_some()
        && names.all(|word| {
            let name = last(word);
            name.ends_with(b".pub") || parts_of_name(&name).any(|part| part == b"public")
        })
}

/// One fact about the machine, in a request that has an honest use: the name of the user or the
/// host in a report.
pub(super) fn is_one_fact(seen: &Seen<'_>) -> bool {
    const FACTS: [&str; 9] = [
        "whoami", "hostname", "$(id", "ifconfig", "ip addr*", "$user*", "$(cat", "$(ls", "$(ps",
    ];
    const MUCH: [&str; 3] = ["*history", "$(find", "$(tar"];
    let many = FACTS
        .iter()
        .filter(|fact| names(seen.statement, fact))
        .count()
        > 1;
    !many && !names_any(seen.statement, &MUCH)
}

/// A line that gives the environment a value.
static SETS: Lazy = Lazy::new(r"^\s*(?:process\.env\.\w+|(?:os\.)?environ\[[^\]\n]*\])\s*=[^=]");

/// Two secrets whose names begin with different words.
pub(super) fn secrets_of_two_services(seen: &Seen<'_>) -> Option<usize> {
    let mut owners = std::collections::BTreeSet::new();
    // A secret in a header, or handed to a client, is used where it belongs.
    let lines = seen.text.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| {
        let is_set = |line: &[u8]| SETS.is_match(line);
        let is_used = |line| {
            names_any(
                line,
                &["authorization", "bearer", "*client(", "api_key=", "headers"],
            )
        };
        !is_used(line) && !is_set(line)
    });
    for word in
        lines.flat_map(|line| line.split(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_')))
    {
        let secret = parts_of_name(word).any(is_secret_part) || word == b"database_url";
        if secret && word.contains(&b'_') && word.len() <= 40 {
            let name = word.split(|byte| *byte == b'_').next().unwrap_or_default();
            if OWNERS.iter().any(|(owner, _)| owner.as_bytes() == name) {
                owners.insert(name);
            }
        }
    }
    (owners.len() >= 2).then_some(seen.first.start)
}

/// Whether a part of a variable's name says that it holds a secret.
fn is_secret_part(part: &[u8]) -> bool {
    let words: [&[u8]; 4] = [b"secret", b"token", b"password", b"key"];
    words
        .iter()
        .any(|word| part.starts_with(word) || part.ends_with(word))
}

/// Services whose secrets have names of their own, and the domains that they registered.
const OWNERS: [(&str, &[&str]); 30] = [
    (
        "aws",
        &["amazonaws.com", "amazonaws.com.cn", "amazon.com", "aws.dev"],
    ),
    ("github", &["github.com", "githubcopilot.com", "ghcr.io"]),
    ("gh", &["github.com", "githubcopilot.com", "ghcr.io"]),
    ("gitlab", &["gitlab.com"]),
    ("openai", &["openai.com", "azure.com"]),
    ("anthropic", &["anthropic.com", "claude.ai", "claude.com"]),
    ("stripe", &["stripe.com"]),
    ("slack", &["slack.com"]),
    (
        "datadog",
        &["datadoghq.com", "datadoghq.eu", "ddog-gov.com"],
    ),
    ("dd", &["datadoghq.com", "datadoghq.eu", "ddog-gov.com"]),
    ("sendgrid", &["sendgrid.com"]),
    ("twilio", &["twilio.com"]),
    ("docker", &["docker.com", "docker.io"]),
    ("npm", &["npmjs.org", "npmjs.com"]),
    ("pypi", &["pypi.org"]),
    ("azure", AZURE),
    ("gcp", GOOGLE),
    ("google", GOOGLE),
    ("gemini", GOOGLE),
    ("heroku", &["heroku.com"]),
    ("cloudflare", &["cloudflare.com"]),
    ("digitalocean", &["digitalocean.com"]),
    ("ssh", &[]),
    ("database", &[]),
    ("db", &[]),
    ("jwt", &[]),
    ("mongodb", &["mongodb.com", "mongodb-api.com"]),
    ("postgres", &[]),
    ("mysql", &[]),
    ("redis", &["redis.com", "redis.io", "upstash.io"]),
];
const AZURE: &[&str] = &[
    "azure.com",
    "azure.net",
    "microsoft.com",
    "microsoftonline.com",
    "visualstudio.com",
];
const GOOGLE: &[&str] = &["google.com", "googleapis.com", "youtube.com"];

/// The secret's first word names a service that the address does not belong to, and the secret is
/// sent as data: it stands in the statement that sends, or in a variable that one does, and not in
/// a header.
pub(super) fn foreign_secret(seen: &Seen<'_>) -> Option<usize> {
    // These are open to everybody as places for files, and take secrets of their own users.
    const INTERFACES: [&str; 5] = [
        "api.github.com",
        "ghcr.io",
        "github.com",
        "gitlab.com",
        "registry.npmjs.org",
    ];
    let (name, owner) = secret_and_owner(seen.matched())?;
    let (_, hosts_of) = OWNERS.iter().find(|(word, _)| *word == owner)?;
    let own = line_of(seen.text, seen.first.start);
    let sender = if SENDS_DATA.is_match(&seen.text[own.clone()]) {
        if is_in_header(&seen.text[own.start..seen.first.start]) {
            return None;
        }
        own
    } else {
        sender_of(seen.text, own, name)?
    };
    // A script often names its address further up.
    let mut of_sender = urls(&seen.text[sender]).peekable();
    let is_own = |host: &hosts::Host<'_>| {
        let is_interface = || {
            INTERFACES.contains(&host.as_str())
                && hosts_of.iter().any(|domain| host.is_below(domain))
        };
        host.is_of(hosts_of) || is_interface()
    };
    let is_foreign = |url: hosts::Url<'_>| !hosts::is_local(&url.host) && !is_own(&url.host);
    let foreign = match of_sender.peek() {
        // One more address in the statement excuses nothing.
        Some(_) => of_sender.any(is_foreign),
        None => urls(seen.text).all(is_foreign),
    };
    foreign.then_some(seen.first.start)
}

/// A command or a call that sends a body or a query.
static SENDS_DATA: Lazy = Lazy::new(
    r"\b(?:curl|wget)\b[^\n]*(?:\s-\w*[df][\s\x22'@{]|--data|--form|--post-|[?&]\w+=)|(?:requests|httpx|\baxios)\.(?:post|put|patch|get)\(|\bfetch\(|\burlopen\(",
);
/// The beginning of a header, or of what signs in, up to where a value stands.
static HEADER: Lazy = Lazy::new(
    r"(?:\s-h\s*|--header[ =]\s*|\s-u\s*|--user[ =]\s*)(?:\x22[^\x22]*|'[^']*|[^\s\x22']*)$|(?:headers|auth)['\x22]?\s*[:=]\s*[^\n)]*$|\b(?:authorization|api-key)['\x22]?\s*(?:[:\],]|=\s)[^\n,)}]*$|\bbearer\s[^\n,)}]*$",
);

fn is_in_header(before: &[u8]) -> bool {
    // A quotation inside of one in a shell does not end it.
    let plain: Vec<u8> = before
        .iter()
        .copied()
        .filter(|byte| *byte != b'\\')
        .collect();
    HEADER.is_match(&plain)
}

/// The name of a secret, and its first word, from where it is read: `$AWS_KEY`,
/// `os.environ["AWS_KEY"]`.
fn secret_and_owner(matched: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(matched).ok()?;
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let name = text.rsplit(|letter| !is_letter(letter)).next()?;
    Some((name, name.split('_').next()?))
}

fn line_of(text: &[u8], at: usize) -> std::ops::Range<usize> {
    let is_end = |byte: &u8| *byte == b'\n';
    let start = text[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = text[at..].iter().position(is_end);
    start..end.map_or(text.len(), |end| at + end)
}

/// The line that sends the variable which a line assigns this secret to.
fn sender_of(
    text: &[u8],
    own: std::ops::Range<usize>,
    secret: &str,
) -> Option<std::ops::Range<usize>> {
    let line = std::str::from_utf8(&text[own.clone()]).ok()?;
    let (before, _) = line.split_once('=')?;
    let name = before.split_whitespace().next_back()?.trim_end_matches(':');
    if name.is_empty() || before.contains(secret) || before.contains(['(', '"', '\'']) {
        return None;
    }
    let is_edge = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
    let mut start = own.end + 1;
    while start < text.len() {
        let line = line_of(text, start);
        let words = std::str::from_utf8(&text[line.clone()]).unwrap_or_default();
        let at = words.split(is_edge).find(|word| *word == name);
        if let Some(at) = at.and_then(|_| words.find(name))
            && SENDS_DATA.is_match(&text[line.clone()])
            && !is_in_header(&text[line.start..line.start + at])
        {
            return Some(line);
        }
        start = line.end + 1;
    }
    None
}
