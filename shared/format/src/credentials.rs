//! Users and passwords in addresses, which no message may show.

/// Maximum number of addresses in one text that are read one by one.
const MAX_ADDRESSES: usize = 16;

/// Removes users and passwords from an address, so that a message cannot show them. Also from one
/// without `//`, as people paste it, and from one that is part of another. The user of
/// `git@host:path` stays, because it is not a secret.
pub fn without_credentials(text: &str) -> String {
    let (first, mut left) = text.split_once("//").unwrap_or((text, ""));
    let mut shown = hide_in_plain(first);
    if first.len() == text.len() {
        return shown;
    }
    // Every `//` may begin an address.
    for number in 1.. {
        let rest = left.trim_start_matches('/');
        shown.push_str("//");
        shown.push_str(&left[..left.len() - rest.len()]);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // A `/`, `?` or `#` in a password looks like the end of the host. So if the address may
        // have a password, everything up to the last `@` is hidden. The last of `MAX_ADDRESSES`
        // addresses is treated like that too, with all text after it, to bound the work.
        let may_be_long = authority.contains(':') && !is_host_and_port(authority, rest);
        let credentials = if may_be_long || number == MAX_ADDRESSES {
            rest
        } else {
            authority
        };
        let path = match credentials.rfind('@') {
            Some(at) => {
                // The placeholder in a hint of vault is no secret.
                let user = Some(&rest[..at]).filter(|user| *user == "<user>");
                shown.push_str(user.unwrap_or("…"));
                &rest[at..]
            }
            None => {
                shown.push_str(authority);
                &rest[authority.len()..]
            }
        };
        let Some((before, behind)) = path.split_once("//") else {
            shown.push_str(&hide_in_path(path));
            break;
        };
        if number == MAX_ADDRESSES {
            shown.push_str(path);
            break;
        }
        shown.push_str(&hide_in_path(before));
        left = behind;
    }
    shown
}

/// Removes user and password from the path of an address, into which somebody pasted another one. It
/// may begin with the `@` and the host of the address.
fn hide_in_path(path: &str) -> String {
    let end = path.find(['/', '?', '#']).unwrap_or(path.len());
    let (host, path) = path.split_at(end);
    let colon = path.find(':').unwrap_or(path.len());
    let start = path[..colon].rfind('/').map_or(0, |slash| slash + 1);
    match path[colon..].rfind('@') {
        Some(at) => format!("{host}{}…{}", &path[..start], &path[colon + at..]),
        None => format!("{host}{path}"),
    }
}

/// Removes user and password from an address without `//`.
fn hide_in_plain(text: &str) -> String {
    let hidden = |before: &str, rest: &str, at: usize| format!("{before}…{}", &rest[at..]);
    let mut address = text;
    // The prefixes of a source, or a scheme with one slash.
    while let Some((prefix, rest)) = address.split_once(':')
        && SOURCE_PREFIXES.contains(&prefix)
    {
        address = rest;
    }
    let before = &text[..text.len() - address.len()];
    match address.split_once(':') {
        Some((user, rest)) if !user.contains('@') => match rest.rfind('@') {
            Some(at)
                if !is_host_and_port(address.split('/').next().unwrap_or_default(), address) =>
            {
                hidden(before, rest, at)
            }
            _ => text.to_owned(),
        },
        Some((login, rest)) => match rest.rfind('@') {
            // `git@host:path`, unless the user of an address that was pasted behind `git@` is taken
            // for the host.
            Some(at) if !is_scp_path(login, rest, at) => hidden(before, rest, at),
            _ => text.to_owned(),
        },
        // A token in the place of a user, before a host and a path.
        None => match address.split_once('@') {
            Some((user, rest))
                if !user.is_empty()
                    && !user.contains('/')
                    && rest.contains('/')
                    && begins_with_host(rest) =>
            {
                format!("{before}…@{rest}")
            }
            _ => text.to_owned(),
        },
    }
}

/// Tells whether `path` behind `user@host:` is one in which the `@` at `at` belongs to the name of a
/// folder or a version, as in `git@host.example:acme/pdf@v1`.
fn is_scp_path(login: &str, path: &str, at: usize) -> bool {
    let (_, host) = login.rsplit_once('@').unwrap_or(("", login));
    begins_with_host(host)
        && path[..at].contains('/')
        && !path.contains(':')
        && !begins_with_host(&path[at + 1..])
}

/// Removes users and passwords from the addresses with `//` in a message, and from those behind
/// `git@`. A message may quote what a user typed in the wrong place.
pub fn hide_credentials(message: &str) -> String {
    let is_behind_login = |word: &str| {
        let (_, address) = word.split_once('@').unwrap_or_default();
        let (_, path) = address.split_once(':').unwrap_or_default();
        path.contains('@')
    };
    let hide = |word: &str| {
        if word.contains("://") || is_behind_login(word) {
            without_credentials(word)
        } else {
            word.to_owned()
        }
    };
    message
        .split_inclusive(char::is_whitespace)
        .map(hide)
        .collect()
}

/// Tells whether the first part of an address is a host with a port, and no `@` of the address can
/// end a password. A text that may be either, such as `ann:2026/x@example.com`, does not count as one.
fn is_host_and_port(authority: &str, address: &str) -> bool {
    let Some((host, port)) = authority.rsplit_once(':') else {
        return false;
    };
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = address.split('@').collect();
    // Such as `/@acme` and `pdf@1.2`.
    let is_harmless = |(before, after): (&str, &str)| {
        let version = after.strip_prefix('v').unwrap_or(after);
        let is_version = version.starts_with(|first: char| first.is_ascii_digit());
        (before.ends_with('/') || is_version) && !begins_with_host(after)
    };
    let mut pairs = parts.windows(2).map(|pair| (pair[0], pair[1]));
    is_port && begins_with_host(host) && !host.contains('@') && pairs.all(is_harmless)
}

/// Tells whether a text begins with a name or an address that only a host has: a name with a dot,
/// whose last part is not a number, an IP address, or `localhost`.
fn begins_with_host(text: &str) -> bool {
    if text.starts_with('[') {
        return true;
    }
    let host = text.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let has_letter = |label: &str| label.contains(|first: char| first.is_alphabetic());
    let is_name =
        matches!(host.rsplit_once('.'), Some((name, last)) if !name.is_empty() && has_letter(last));
    host == "localhost" || is_name || host.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Words before the first colon of a source that are not names of users.
const SOURCE_PREFIXES: [&str; 11] = [
    "git",
    "github",
    "gitlab",
    "http",
    "https",
    "wellknown",
    "clawhub",
    "registry",
    "vault",
    "local",
    "inline",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_shows_no_password_and_hides_nothing_else() {
        for address in [
            // No password, and an `@` that is part of a path.
            "https://docs.example/@acme",
            "https://docs.example:8443/@acme",
            "https://docs.example:8443/@acme/pdf@1.2.3#x",
            "https://docs.example:8443/pdf@v2/a@3",
            "http://localhost:8000/@acme",
            "http://127.0.0.1:8000/@acme",
            "http://[::1]:8000/@acme",
            "docs.example:8443/@acme",
            "https:docs.example:8443/@acme",
            "https://docs.example:8443/a",
            "git@host.example:acme/pdf@v1",
            "clawhub:@acme/pdf@1.2.3",
            "./@acme",
            "acme/skills@pdf.tools/x",
            "pdf@1.2/x",
            "ann@docs.example",
            "https://docs.example/a//b/@acme",
            "git:https://git.example/a/b.git//packages/@acme/pdf",
            "github:acme/skills/@acme/pdf@v1",
            "wellknown:https://docs.example/pdf",
        ] {
            assert_eq!(without_credentials(address), address);
        }
        for (address, shown) in [
            (
                "https://ann:secret@docs.example/a",
                "https://…@docs.example/a",
            ),
            (
                "https://ann:2026/secret@example.com",
                "https://…@example.com",
            ),
            (
                "https://ann.lee:2026/secret@example.com",
                "https://…@example.com",
            ),
            ("https://ann.lee:2026/@example.com", "https://…@example.com"),
            (
                "https://ann.lee:2026/secret@10.0.0.1/a",
                "https://…@10.0.0.1/a",
            ),
            (
                "https://ann.lee:2026/secret@localhost",
                "https://…@localhost",
            ),
            (
                "https://ann.lee:2026/secret@[::1]:80/a",
                "https://…@[::1]:80/a",
            ),
            ("https://ann.lee:2026/secret@acme", "https://…@acme"),
            ("https://ann:2026/@acme", "https://…@acme"),
            ("https://ann.lee:202601/@acme", "https://…@acme"),
            ("https://ann.lee:s3/@acme", "https://…@acme"),
            ("https://ann:p@docs.example:80/@acme", "https://…@acme"),
            ("ann.lee:2026/secret@example.com/a", "…@example.com/a"),
            ("git:ann:secret@docs.example/a", "git:…@docs.example/a"),
            ("secret@docs.example/a", "…@docs.example/a"),
            // An address behind another one, or behind `git@`.
            ("git@ann:secret@h:x", "…@h:x"),
            ("git@ann:sec/secret@h:x/y.git", "…@h:x/y.git"),
            ("git@ann.lee:sec/secret@h.example/x", "…@h.example/x"),
            ("git@host.example:ann:secret@h.example/x", "…@h.example/x"),
            ("git:git@ann:secret@h//x", "git:…@h//x"),
            (
                "https://a.example/b//ann:secret@c.example/d",
                "https://a.example/b//…@c.example/d",
            ),
            (
                "https://a.example/b//secret@c.example/d//ann:secret@e",
                "https://a.example/b//…@c.example/d//…@e",
            ),
            (
                "https://a.example/b/https://ann:sec//secret@c.example",
                "https://a.example/b/https://…@c.example",
            ),
            (
                "https://a.example/b/ann:secret@c.example/d",
                "https://a.example/b/…@c.example/d",
            ),
            (
                "https://ann@a.example/b/ann:sec/secret@c.example/d",
                "https://…@a.example/b/…@c.example/d",
            ),
            ("https:///ann:secret@c.example/d", "https:///…@c.example/d"),
        ] {
            assert_eq!(without_credentials(address), shown, "{address}");
        }
        // Neither prefixes nor slashes are read by recursion.
        for many in ["git:", "a//", "/", "a:b@/"] {
            assert!(!without_credentials(&many.repeat(100_000)).is_empty());
        }
    }

    #[test]
    fn a_message_shows_no_password_of_an_address_in_it() {
        for (message, shown) in [
            (
                "invalid value 'https://ann:secret@docs.example/a' for '<URL>'\n\nsee --help",
                "invalid value 'https://…@docs.example/a' for '<URL>'\n\nsee --help",
            ),
            (
                "`\u{1b}[33mhttps://secret@docs.example/a\u{1b}[0m` and git:https://a:b@c.example",
                "`\u{1b}[33mhttps://…@docs.example/a\u{1b}[0m` and git:https://…@c.example",
            ),
            (
                "set it to postgres://<user>@<host>/<database> or https://<user>:<key>@docs.example",
                "set it to postgres://<user>@<host>/<database> or https://…@docs.example",
            ),
            (
                "invalid value git@ann:secret@c.example:x, but git@c.example:a/pdf@v1",
                "invalid value …@c.example:x, but git@c.example:a/pdf@v1",
            ),
            (
                "https://docs.example/@acme: pdf@1, ann@docs.example and a:b@c",
                "https://docs.example/@acme: pdf@1, ann@docs.example and a:b@c",
            ),
        ] {
            assert_eq!(hide_credentials(message), shown);
        }
    }
}
