//! Users and passwords in addresses, which no message may show.

/// Removes user and password from an address, so that a message cannot show them. Also from one
/// without `//`, as people paste it. The user of `git@host:path` stays, because it is not a secret.
pub fn without_credentials(text: &str) -> String {
    let hidden = |before: &str, rest: &str, at: usize| format!("{before}…{}", &rest[at..]);
    if let Some((scheme, rest)) = text.split_once("//") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // A `/`, `?` or `#` in a password seems to end the host. So with a password, or with what
        // may be one, everything up to the last `@` is hidden.
        let credentials = if authority.contains(':') && !is_host_and_port(authority, rest) {
            rest
        } else {
            authority
        };
        return match credentials.rfind('@') {
            Some(at) => hidden(&format!("{scheme}//"), rest, at),
            None => text.to_owned(),
        };
    }
    match text.split_once(':') {
        // The prefix of a source, or a scheme with one slash.
        Some((prefix, rest)) if SOURCE_PREFIXES.contains(&prefix) => {
            format!("{prefix}:{}", without_credentials(rest))
        }
        Some((user, rest)) if !user.contains('@') => match rest.rfind('@') {
            Some(at) if !is_host_and_port(text.split('/').next().unwrap_or_default(), text) => {
                hidden("", rest, at)
            }
            _ => text.to_owned(),
        },
        Some(_) => text.to_owned(),
        // A token in the place of a user, before a host and a path.
        None => match text.split_once('@') {
            Some((user, rest))
                if !user.is_empty()
                    && !user.contains('/')
                    && rest.contains('/')
                    && begins_with_host(rest) =>
            {
                format!("…@{rest}")
            }
            _ => text.to_owned(),
        },
    }
}

/// Removes users and passwords from the addresses with `//` in a message, which may quote what a
/// user typed in the wrong place.
pub fn hide_credentials(message: &str) -> String {
    let hide = |word: &str| {
        if word.contains("://") {
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
        ] {
            assert_eq!(without_credentials(address), shown, "{address}");
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
                "https://docs.example/@acme: pdf@1, ann@docs.example and a:b@c",
                "https://docs.example/@acme: pdf@1, ann@docs.example and a:b@c",
            ),
        ] {
            assert_eq!(hide_credentials(message), shown);
        }
    }
}
