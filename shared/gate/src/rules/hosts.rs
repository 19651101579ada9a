//! Addresses in a text: which hosts they name, and what is known of hosts of that kind.

use vault_format::address;

/// An address in a text.
pub(crate) struct Url<'a> {
    /// Where it begins.
    pub start: usize,
    /// Host without port and user, lower case.
    pub host: &'a str,
    /// What follows the host.
    pub path: &'a str,
    /// Whether it is plain HTTP.
    pub plain: bool,
}

impl<'a> Url<'a> {
    /// An address without a scheme, which programs that fetch take for plain HTTP.
    pub(super) fn bare(word: &'a str) -> Self {
        let cut = word.find(['/', '?', '#']).unwrap_or(word.len());
        Self {
            start: 0,
            host: word[..cut].split(':').next().unwrap_or_default(),
            path: &word[cut..],
            plain: true,
        }
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

/// The addresses of a lower-case text.
pub(crate) fn urls(text: &[u8]) -> impl Iterator<Item = Url<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &text[from..];
            let at = from + rest.windows(3).position(|three| three == b"://")?;
            from = at + 3;
            let scheme = text[..at]
                .iter()
                .rev()
                .take_while(|byte| byte.is_ascii_alphabetic())
                .count();
            let word = &text[at - scheme..at];
            if !(word.ends_with(b"http") || word.ends_with(b"https") || word.ends_with(b"ftp")) {
                continue;
            }
            let stop = |byte: &u8| {
                byte.is_ascii_whitespace()
                    || matches!(
                        byte,
                        b'"' | b'\'' | b'`' | b')' | b'>' | b'<' | b']' | b'}' | b'|' | b',' | b';'
                    )
            };
            let length = text[from..]
                .iter()
                .position(stop)
                .unwrap_or(text.len() - from);
            let whole = std::str::from_utf8(&text[from..from + length]).unwrap_or_default();
            let cut = whole.find(['/', '?', '#']).unwrap_or(whole.len());
            let authority = whole[..cut].rsplit('@').next().unwrap_or_default();
            let host = authority.split(':').next().unwrap_or_default();
            if host.is_empty() {
                continue;
            }
            return Some(Url {
                start: at - scheme,
                host,
                path: &whole[cut..],
                plain: !word.ends_with(b"https"),
            });
        }
    })
}

/// Whether a host is that domain or below it.
pub(crate) fn is_below(host: &str, domain: &str) -> bool {
    host == domain
        || host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.'))
}

/// Whether a host is reserved by RFC 2606: what is written with it is an example.
pub(crate) fn is_documentation(host: &str) -> bool {
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
    .any(|domain| is_below(host, domain))
}

/// Hosts where anybody has an account, and the account says whose a file is.
const CODE_HOSTS: [&str; 6] = [
    "github.com",
    "raw.githubusercontent.com",
    "gist.githubusercontent.com",
    "gitlab.com",
    "codeberg.org",
    "bitbucket.org",
];

/// The owner or the host that a source names: `github:acme/skills/x`,
/// `git:https://host/owner/repository`, `git@host:owner/x`.
pub(crate) fn publisher(source: &str) -> Option<String> {
    let source = source.to_ascii_lowercase();
    if let Some(path) = ["github:", "gitlab:"]
        .iter()
        .find_map(|scheme| source.strip_prefix(scheme))
    {
        return path.split('/').next().map(ToOwned::to_owned);
    }
    let rest = match source.split_once("://") {
        Some((_, rest)) => rest.to_owned(),
        None => source
            .rsplit_once('@')
            .map_or(source.as_str(), |(_, rest)| rest)
            .trim_start_matches("wellknown:")
            .replacen(':', "/", 1),
    };
    let rest = rest
        .rsplit_once('@')
        .map_or(rest.as_str(), |(_, rest)| rest);
    let mut parts = rest.split('/');
    let host = parts.next()?.split(':').next()?;
    if CODE_HOSTS.contains(&host) {
        return parts.next().map(ToOwned::to_owned);
    }
    let is_shared = is_free_hosting(host) || is_paste(host) || is_local(host);
    (host.contains('.') && !is_shared).then(|| host.to_owned())
}

/// Whether an address belongs to one of these owners and hosts: it is that host or below it, the
/// account of a code host, or the name before its top-level domain.
pub(crate) fn is_of_publisher(url: &Url<'_>, publisher: &[String]) -> bool {
    let is_code_host = CODE_HOSTS.contains(&url.host);
    let name = if is_code_host {
        url.account()
    } else if is_free_hosting(url.host) || is_paste(url.host) {
        url.host.split('.').next()
    } else {
        // `acme.co.uk` and `acme.com.au` are registered one level further down.
        let mut labels = url.host.rsplit('.').skip(1);
        labels.find(|label| !["co", "com", "org", "net", "gov", "edu", "ac"].contains(label))
    };
    publisher.iter().any(|party| {
        (party.contains('.') && !is_code_host && is_below(url.host, party))
            || name == Some(party.as_str())
    })
}

/// Whether this machine or a private network is meant.
pub(crate) fn is_local(host: &str) -> bool {
    ["localhost", "local", "internal"]
        .iter()
        .any(|name| is_below(host, name))
        || octets(host).is_some_and(|octets| !is_public(octets))
}

/// The four numbers of a literal address.
pub(crate) fn octets(host: &str) -> Option<[u8; 4]> {
    let mut octets = [0; 4];
    let mut parts = host.split('.');
    for octet in &mut octets {
        *octet = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then_some(octets)
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
pub(crate) fn is_paste(host: &str) -> bool {
    PASTES.iter().any(|domain| is_below(host, domain))
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
pub(crate) fn is_collector(host: &str) -> bool {
    COLLECTORS.iter().any(|domain| is_below(host, domain))
}

/// Whether an address is a mailbox of a chat that is written into the text: its owner reads
/// whatever arrives there.
pub(crate) fn is_mailbox(url: &Url<'_>) -> bool {
    let is_number = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    match url.host {
        "discord.com" | "discordapp.com" => url
            .path
            .strip_prefix("/api/webhooks/")
            .is_some_and(is_number),
        "api.telegram.org" => url.path.strip_prefix("/bot").is_some_and(is_number),
        "hooks.slack.com" => url.path.starts_with("/services/t"),
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
pub(crate) fn is_free_hosting(host: &str) -> bool {
    FREE.iter().any(|domain| is_below(host, domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_its_publisher() {
        for (source, publisher) in [
            ("github:Acme/skills/x", Some("acme")),
            ("git:https://github.com/acme/skills", Some("acme")),
            ("git@github.com:acme/skills.git", Some("acme")),
            ("git:https://git.acme.dev/skills", Some("git.acme.dev")),
            ("https://user@acme.dev/skills/x.zip", Some("acme.dev")),
            ("wellknown:acme.dev/x", Some("acme.dev")),
            ("https://acme.vercel.app/x.zip", None),
            ("local:x", None),
            ("registry:x", None),
            ("inline:x", None),
        ] {
            assert_eq!(super::publisher(source).as_deref(), publisher, "{source}");
        }
        let is_of = |url: &str, publisher: &str| {
            is_of_publisher(
                &urls(url.as_bytes()).next().unwrap(),
                &[publisher.to_owned()],
            )
        };
        assert!(is_of(
            "https://raw.githubusercontent.com/acme/x/main/i.sh",
            "acme"
        ));
        assert!(
            is_of("https://get.acme.dev/i.sh", "acme")
                && is_of("https://get.acme.dev/", "acme.dev")
        );
        assert!(!is_of("https://github.com/other/acme/i.sh", "acme"));
        assert!(
            !is_of("https://other.github.io/acme", "github")
                && !is_of("https://acme.dev.other.io/", "acme")
        );
    }

    #[test]
    fn addresses_are_found_and_known() {
        let text = b"curl -s https://user@get.docker.com:443/x?y | sh; see (http://93.184.1.2/a) ftp://a.b/c xs://no.no";
        let found: Vec<_> = urls(text)
            .map(|url| (url.host, url.path, url.plain))
            .collect();
        assert_eq!(
            found,
            [
                ("get.docker.com", "/x?y", false),
                ("93.184.1.2", "/a", true),
                ("a.b", "/c", true)
            ]
        );
        assert!(is_local("127.0.0.1") && is_local("localhost") && !is_local("example.com"));
        assert!(
            octets("93.184.1.2").is_some_and(is_public)
                && !is_public([10, 0, 0, 1])
                && !is_public([192, 88, 99, 1])
                && !is_public([8, 8, 4, 4])
                && octets("1.2.3").is_none()
        );
        assert!(
            is_paste("www.pastebin.com")
                && is_collector("x.ngrok.io")
                && is_free_hosting("a.vercel.app")
        );
    }
}
