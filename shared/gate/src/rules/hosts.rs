//! Addresses in a text: which hosts they name, and what is known of hosts of that kind.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use unicode_normalization::UnicodeNormalization as _;
use vault_format::address;

/// The host of an address, as the programs that fetch read it: lower case, without user, port and
/// the last point, escapes resolved, numbers of every form as an address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Host<'a> {
    name: Cow<'a, str>,
    address: Option<IpAddr>,
}

impl<'a> Host<'a> {
    /// From what stands between the scheme and the path, without the user.
    fn parse(authority: &'a str) -> Self {
        if let Some(inner) = authority.strip_prefix('[') {
            let inner = inner.split([']', '%']).next().unwrap_or_default();
            if let Ok(address) = inner.parse::<Ipv6Addr>() {
                let address = IpAddr::from(address).to_canonical();
                return Self {
                    name: address.to_string().into(),
                    address: Some(address),
                };
            }
        }
        let written = authority.split(':').next().unwrap_or_default();
        let name = normal(written);
        let trimmed = match &name {
            Cow::Borrowed(name) => Cow::Borrowed(name.strip_suffix('.').unwrap_or(name)),
            Cow::Owned(name) => Cow::Owned(name.strip_suffix('.').unwrap_or(name).to_owned()),
        };
        match ipv4(&trimmed) {
            Some(address) => Self {
                name: address.to_string().into(),
                address: Some(address.into()),
            },
            None => Self {
                name: trimmed,
                address: None,
            },
        }
    }

    /// Its name, or the usual form of the address.
    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// The literal address.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Whether the name says where it leads: no variable or other character that a name cannot have
    /// stands in it.
    pub(crate) fn is_sure(&self) -> bool {
        is_sure(&self.name)
    }

    /// The domain that one party registered: the label before the public suffix and the suffix
    /// (`acme.co.uk`, `acme.github.io`).
    pub(crate) fn registrable(&self) -> Option<&str> {
        (self.address.is_none() && self.is_sure()).then(|| psl::domain_str(&self.name))?
    }

    /// The label that its owner chose, where the suffix is one of a registry and not of a company
    /// whose customers are below it.
    pub(crate) fn owner_label(&self) -> Option<(&str, &str)> {
        let domain = self.registrable()?;
        let suffix = psl::suffix(domain.as_bytes())?;
        if !suffix.is_known() || suffix.typ() != Some(psl::Type::Icann) {
            return None;
        }
        domain.split_once('.')
    }

    /// Whether the host is `domain` itself or a subdomain of it.
    pub(crate) fn is_below(&self, domain: &str) -> bool {
        is_below(&self.name, domain)
    }

    /// Whether the owner of one of these registered domains answers there: neither a customer of
    /// theirs nor whoever has an account.
    pub(crate) fn is_of(&self, domains: &[&str]) -> bool {
        // Some registered domains are on the list of suffixes themselves: googleapis.com.
        domains.iter().any(|domain| self.is_below(domain)) && !self.is_open()
    }

    /// Whether anybody with an account can put files there.
    pub(crate) fn is_open(&self) -> bool {
        OPEN.iter().any(|domain| self.is_below(domain))
            || is_paste(self)
            || is_collector(self)
            || is_free_hosting(self)
    }
}

impl AsRef<str> for Host<'_> {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Display for Host<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl PartialEq<str> for Host<'_> {
    fn eq(&self, other: &str) -> bool {
        self.name == other
    }
}

fn is_sure(name: &str) -> bool {
    let is_part =
        |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':');
    !name.contains("..") && name.chars().all(is_part)
}

/// A name as resolvers get it: escapes resolved, compatible letters and points mapped. A name with
/// escapes for what no name can hold stays as it is, and is then not sure.
fn normal(written: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii() && byte != b'%' && !byte.is_ascii_uppercase();
    if written.bytes().all(is_plain) {
        return Cow::Borrowed(written);
    }
    let bytes = written.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = written.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    let Ok(decoded) = String::from_utf8(decoded) else {
        return Cow::Borrowed(written);
    };
    let is_ignored = |letter: &char| {
        matches!(
            letter,
            '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}'
        )
    };
    let mapped: String = decoded
        .nfkc()
        .filter(|letter| !is_ignored(letter))
        .map(|letter| if letter == '。' { '.' } else { letter })
        .flat_map(char::to_lowercase)
        .collect();
    if is_sure(&mapped) {
        Cow::Owned(mapped)
    } else {
        Cow::Borrowed(written)
    }
}

/// An address of four bytes in each form that resolvers take: `127.1`, `0x7f000001`, `017700000001`,
/// `2130706433`.
fn ipv4(name: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| {
        let (digits, radix) = match part.strip_prefix("0x") {
            Some("") => return Some(0),
            Some(hex) => (hex, 16),
            None if part.len() > 1 && part.starts_with('0') => (&part[1..], 8),
            None => (part, 10),
        };
        (!digits.starts_with('+')).then(|| u64::from_str_radix(digits, radix).ok())?
    };
    let parts: Vec<u64> = name.split('.').take(5).map(number).collect::<Option<_>>()?;
    let (last, before) = parts.split_last()?;
    let bits = 8 * 4_usize.checked_sub(before.len()).filter(|left| *left > 0)?;
    if before.iter().any(|part| *part > 255) || *last >> bits != 0 {
        return None;
    }
    let high = before.iter().fold(0, |high, part| (high << 8) | part);
    u32::try_from((high << bits) | last)
        .ok()
        .map(Ipv4Addr::from)
}

/// An address in a text.
pub(crate) struct Url<'a> {
    /// Where it begins.
    pub start: usize,
    /// Who answers.
    pub host: Host<'a>,
    /// What follows the host.
    pub path: &'a str,
    /// Whether the address is plain HTTP.
    pub plain: bool,
}

impl<'a> Url<'a> {
    /// What stands behind the scheme and its slashes; an `@` behind a backslash is read in two
    /// ways, so that the host is then not sure.
    fn of(start: usize, whole: &'a str, plain: bool) -> Self {
        let mut cut = whole.find(['/', '?', '#', '\\']).unwrap_or(whole.len());
        if whole[cut..].starts_with('\\') {
            let end = whole.find(['/', '?', '#']).unwrap_or(whole.len());
            if whole[cut..end].contains('@') {
                cut = end;
            }
        }
        let authority = &whole[..cut];
        let host = if authority.contains('\\') {
            authority
        } else {
            authority.rsplit('@').next().unwrap_or_default()
        };
        Self {
            start,
            host: Host::parse(host),
            path: &whole[cut..],
            plain,
        }
    }

    /// An address without a scheme, which programs that fetch take for plain HTTP.
    pub(super) fn bare(word: &'a str) -> Self {
        Self::of(0, word, true)
    }

    /// Whether programs that fetch read the path as it is written: they resolve `..`, also where it
    /// is escaped.
    pub(super) fn is_literal(&self) -> bool {
        let path = self.path.split(['?', '#']).next().unwrap_or_default();
        !path.contains("..") && !path.contains("%2e") && !path.contains('\\')
    }

    /// The owner of a file on a host where many have accounts.
    pub(super) fn account(&self) -> Option<&'a str> {
        self.path.split('/').nth(1).filter(|_| self.is_literal())
    }
}

/// The addresses of a lower-case text. One slash or backslash behind the scheme is enough for
/// programs that fetch, and three are not too many.
pub(crate) fn urls(text: &[u8]) -> impl Iterator<Item = Url<'_>> {
    let is_slash = |byte: &&u8| matches!(byte, b'/' | b'\\');
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &text[from..];
            let at = from + rest.iter().position(|byte| *byte == b':')?;
            from = at + 1;
            let scheme = text[..at]
                .iter()
                .rev()
                .take(16)
                .take_while(|byte| byte.is_ascii_alphabetic())
                .count();
            let word = &text[at - scheme..at];
            let slashes = text[from..].iter().take_while(is_slash).count();
            let is_web = word.ends_with(b"http")
                || word.ends_with(b"https")
                || word.ends_with(b"ftp")
                || matches!(word, b"ws" | b"wss");
            if !is_web || slashes == 0 {
                continue;
            }
            from += slashes;
            let part = &text[from..from + length_of(&text[from..])];
            let whole = match std::str::from_utf8(part) {
                Ok(whole) => whole,
                Err(error) => std::str::from_utf8(&part[..error.valid_up_to()]).unwrap_or_default(),
            };
            let url = Url::of(
                at - scheme,
                whole,
                !word.ends_with(b"https") && word != b"wss",
            );
            if !url.host.as_str().is_empty() {
                return Some(url);
            }
        }
    })
}

/// The addresses of a lower-case command, those without a scheme among them: a name with a point
/// in it, or an address of four numbers, which a path may follow.
pub(crate) fn named(command: &[u8]) -> impl Iterator<Item = Url<'_>> {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`()|;,<>&".contains(byte);
    let words = command.split(is_end);
    let bare = words.filter_map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        let url = Url::bare(word);
        let is_named = !word.starts_with(['-', '/', '.', '~']) && !word.contains("://");
        // `creds.json` is the name of a file.
        let has_top = || {
            psl::suffix(url.host.as_str().as_bytes()).is_some_and(|suffix| suffix.is_known())
                && url.host.registrable().is_some()
        };
        (is_named && (url.host.address().is_some() && word.contains('.') || has_top()))
            .then_some(url)
    });
    urls(command).chain(bare)
}

/// Where an address ends; the brackets of a literal address belong to it.
fn length_of(text: &[u8]) -> usize {
    let mut is_open = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'[' if at == 0 || text[at - 1] == b'@' => is_open = true,
            b']' if is_open => is_open = false,
            b'"' | b'\'' | b'`' | b')' | b'>' | b'<' | b']' | b'}' | b'|' | b',' | b';' => {
                return at;
            }
            _ if byte.is_ascii_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

/// Whether a name ends with the labels of a domain; it need not be sure.
fn ends_with(host: &str, domain: &str) -> bool {
    host == domain
        || host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.'))
}

/// Whether a host is that domain or below it. A host with a variable in it may be any.
pub(crate) fn is_below(host: impl AsRef<str>, domain: &str) -> bool {
    ends_with(host.as_ref(), domain) && is_sure(host.as_ref())
}

/// Whether a host is reserved by RFC 2606: what is written with it is an example.
pub(crate) fn is_documentation(host: impl AsRef<str>) -> bool {
    [
        "example.com",
        "example.net",
        "example.org",
        "example",
        "test",
        "invalid",
        "localhost",
    ]
    .iter()
    .any(|domain| is_below(&host, domain))
}

/// Hosts where anybody has an account, and the account says whose a file is; the first is the one
/// that a party without a host is of.
const CODE_HOSTS: [(&str, &[&str]); 4] = [
    (
        "github.com",
        &[
            "github.com",
            "www.github.com",
            "raw.githubusercontent.com",
            "gist.githubusercontent.com",
        ],
    ),
    ("gitlab.com", &["gitlab.com", "www.gitlab.com"]),
    ("codeberg.org", &["codeberg.org"]),
    ("bitbucket.org", &["bitbucket.org"]),
];
/// Domains below which people and companies put files that are not their owner's.
const OPEN: [&str; 42] = [
    "github.com",
    "githubusercontent.com",
    "gitlab.com",
    "codeberg.org",
    "bitbucket.org",
    "sourceforge.net",
    "huggingface.co",
    "hf.co",
    "drive.google.com",
    "docs.google.com",
    "sites.google.com",
    "script.google.com",
    "groups.google.com",
    "storage.googleapis.com",
    "firebasestorage.googleapis.com",
    "storage.cloud.google.com",
    "googleusercontent.com",
    "s3.amazonaws.com",
    "windows.net",
    "dropbox.com",
    "dropboxusercontent.com",
    "mediafire.com",
    "mega.nz",
    "live.com",
    "1drv.ms",
    "sharepoint.com",
    "discordapp.com",
    "discordapp.net",
    "cdn.discordapp.com",
    "jsdelivr.net",
    "unpkg.com",
    "npmjs.com",
    "npmjs.org",
    "notion.site",
    "medium.com",
    "substack.com",
    "telegra.ph",
    "t.me",
    "bit.ly",
    "tinyurl.com",
    "gitbook.io",
    "archive.org",
];

fn code_host(host: &str) -> Option<&'static str> {
    let (owner, _) = CODE_HOSTS.iter().find(|(_, hosts)| hosts.contains(&host))?;
    Some(owner)
}

/// The owner or the host that a source names: `github:acme/skills/x`,
/// `git:https://host/owner/repository`, `git@host:owner/x`. An owner on another host than GitHub is
/// named with it: `gitlab.com/acme`.
pub(crate) fn publisher(source: &str) -> Option<String> {
    let source = source.to_ascii_lowercase();
    let account = |host: &str, owner: &str| match (host, owner) {
        (_, "") => None,
        ("github.com", owner) => Some(owner.to_owned()),
        (host, owner) => Some(format!("{host}/{owner}")),
    };
    for (scheme, host) in [("github:", "github.com"), ("gitlab:", "gitlab.com")] {
        if let Some(path) = source.strip_prefix(scheme) {
            return account(host, path.split('/').next().unwrap_or_default());
        }
    }
    let rest = match source.split_once("://") {
        Some((_, rest)) => rest.to_owned(),
        None => source
            .rsplit_once('@')
            .map_or(source.as_str(), |(_, rest)| rest)
            .trim_start_matches("wellknown:")
            .replacen(':', "/", 1),
    };
    let url = Url::bare(&rest);
    let host = url.host.as_str();
    if let Some(code_host) = code_host(host) {
        return account(code_host, url.account().unwrap_or_default());
    }
    (host.contains('.') && url.host.is_sure() && !url.host.is_open() && !is_local(host))
        .then(|| host.to_owned())
}

/// What owners of accounts add to their name because the plain one was taken.
const AFFIXES: [&str; 17] = [
    "graphql", "official", "labs", "lab", "team", "tech", "apps", "app", "com", "dev", "inc",
    "org", "hq", "io", "ai", "js", "co",
];
/// Labels shorter than this are names of too many parties to match with something added.
const LEAST_LABEL: usize = 5;
/// Names that strangers decorate: the account must have exactly this name.
const FAMOUS: [&str; 18] = [
    "amazon",
    "anthropic",
    "apple",
    "claude",
    "cloudflare",
    "docker",
    "facebook",
    "github",
    "gitlab",
    "google",
    "huggingface",
    "microsoft",
    "mozilla",
    "nvidia",
    "openai",
    "oracle",
    "python",
    "stripe",
];

/// Whether the account of a code host and the registrant of a domain (its label, its suffix) are one
/// party by their names: equal but for hyphens, or the account has the suffix or one of a few words
/// behind the label (`encoredev` and `encore.dev`, `tavily-ai` and `tavily.com`). Nothing is taken
/// off or put on the label of the domain, which anybody could register.
fn is_same_party(owner: &str, label: &str, suffix: &str) -> bool {
    let plain = |name: &str| name.replace(['-', '_', '.'], "");
    let (owner, label) = (plain(owner), plain(label));
    if owner == label {
        return true;
    }
    let Some(added) = owner.strip_prefix(&label) else {
        return false;
    };
    label.len() >= LEAST_LABEL
        && !FAMOUS.contains(&label.as_str())
        && (added == plain(suffix) || AFFIXES.contains(&added))
}

/// Whether an address belongs to one of these owners and hosts: the account of the same code host
/// and its pages, or a host of the same registered domain, or of one whose name is the owner's.
pub(crate) fn is_of_publisher(url: &Url<'_>, publisher: &[String]) -> bool {
    let host = &url.host;
    let is_of = |party: &String| {
        let account = match party.split_once('/') {
            Some(account) => account,
            None if party.contains('.') => {
                let party = Host::parse(party);
                return !host.is_open()
                    && host.registrable().is_some()
                    && host.registrable() == party.registrable();
            }
            None => ("github.com", party.as_str()),
        };
        let (of, owner) = account;
        if let Some(code_host) = code_host(host.as_str()) {
            return code_host == of && url.account() == Some(owner);
        }
        let pages = match of {
            "github.com" => "github.io",
            "gitlab.com" => "gitlab.io",
            "codeberg.org" => "codeberg.page",
            _ => "bitbucket.io",
        };
        if host.is_below(pages) {
            return host.as_str() == format!("{owner}.{pages}");
        }
        !host.is_open()
            && host
                .owner_label()
                .is_some_and(|(label, suffix)| is_same_party(owner, label, suffix))
    };
    publisher.iter().any(is_of)
}

/// Whether this machine or a private network is meant.
pub(crate) fn is_local(host: impl AsRef<str>) -> bool {
    ["localhost", "local", "internal"]
        .iter()
        .any(|name| is_below(&host, name))
        || octets(&host).is_some_and(|octets| !is_public(octets))
        || (host.as_ref().parse::<Ipv6Addr>()).is_ok_and(|v6| !address::is_public(v6.into()))
}

/// Whether a literal address of the public network is meant.
pub(crate) fn is_public_address(host: &Host<'_>) -> bool {
    match host.address() {
        Some(IpAddr::V4(v4)) => is_public(v4.octets()),
        Some(v6) => address::is_public(v6),
        None => false,
    }
}

/// The four numbers of a literal address.
pub(crate) fn octets(host: impl AsRef<str>) -> Option<[u8; 4]> {
    let address: Ipv4Addr = host.as_ref().parse().ok()?;
    Some(address.octets())
}

/// Whether an address is one of the public network, and not one of the resolvers that stand in many
/// examples.
pub(crate) fn is_public(octets: [u8; 4]) -> bool {
    let is_example = matches!(octets, [1, 1, 1, 1] | [1, 2, 3, 4] | [8, 8, 8 | 4, 8 | 4]);
    !is_example && address::is_public(octets.into())
}

const PASTES: [&str; 22] = [
    "pastebin.com",
    "paste.ee",
    "rentry.co",
    "rentry.org",
    "glot.io",
    "hastebin.com",
    "ghostbin.com",
    "termbin.com",
    "ix.io",
    "dpaste.com",
    "dpaste.org",
    "controlc.com",
    "justpaste.it",
    "paste.rs",
    "paste.sh",
    "privatebin.net",
    "pastes.io",
    "sprunge.us",
    "pastie.org",
    "codeshare.io",
    "ideone.com",
    "textbin.net",
];

/// Whether anybody can put a text there without an account of weight.
pub(crate) fn is_paste(host: impl AsRef<str>) -> bool {
    PASTES.iter().any(|domain| ends_with(host.as_ref(), domain))
}

const COLLECTORS: [&str; 18] = [
    "webhook.site",
    "requestbin.com",
    "requestbin.net",
    "pipedream.net",
    "ngrok.io",
    "ngrok-free.app",
    "ngrok.app",
    "oast.fun",
    "oast.pro",
    "oast.live",
    "interact.sh",
    "burpcollaborator.net",
    "beeceptor.com",
    "requestcatcher.com",
    "trycloudflare.com",
    "serveo.net",
    "loca.lt",
    "hookbin.com",
];

/// Whether requests are collected there for whoever asked, without a name.
pub(crate) fn is_collector(host: impl AsRef<str>) -> bool {
    COLLECTORS
        .iter()
        .any(|domain| ends_with(host.as_ref(), domain))
}

/// Whether an address is a mailbox of a chat that is written into the text: its owner reads
/// whatever arrives there.
pub(crate) fn is_mailbox(url: &Url<'_>) -> bool {
    let is_number = |part: &str| part.starts_with(|letter: char| letter.is_ascii_digit());
    let path = url.path.split(['?', '#']).next().unwrap_or_default();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    if url.host.is_below("discord.com") || url.host.is_below("discordapp.com") {
        return parts.any(|part| part == "webhooks") && parts.next().is_some_and(is_number);
    }
    let first = parts.next().unwrap_or_default();
    match url.host.as_str() {
        "api.telegram.org" => first.strip_prefix("bot").is_some_and(is_number),
        "hooks.slack.com" => {
            first == "services" && parts.next().is_some_and(|part| part.starts_with('t'))
        }
        _ => false,
    }
}

const FREE: [&str; 18] = [
    "vercel.app",
    "netlify.app",
    "github.io",
    "pages.dev",
    "workers.dev",
    "web.app",
    "firebaseapp.com",
    "onrender.com",
    "replit.app",
    "repl.co",
    "surge.sh",
    "r2.dev",
    "glitch.me",
    "herokuapp.com",
    "railway.app",
    "fly.dev",
    "blogspot.com",
    "weebly.com",
];

/// Whether pages there are free for anybody.
pub(crate) fn is_free_hosting(host: impl AsRef<str>) -> bool {
    FREE.iter().any(|domain| ends_with(host.as_ref(), domain))
}

#[cfg(test)]
mod tests;
