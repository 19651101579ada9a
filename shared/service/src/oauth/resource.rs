//! The audience of a token (RFC 8707): the whole service, or its `/mcp`.

/// Returns the canonical form of a `resource` parameter: `base` or `base/mcp`. Returns `None` for
/// any other resource.
///
/// Ignored are one slash at the end, the case of scheme and host, and the default port of the
/// scheme. Everything else is compared as text, without a lenient URL parser, because the audience
/// decides who accepts the token.
pub fn canonical_resource(asked: &str, base: &str) -> Option<String> {
    let (ours, theirs) = (
        AddressParts::split_address(base)?,
        AddressParts::split_address(asked)?,
    );
    if ours.scheme != theirs.scheme || ours.authority != theirs.authority {
        return None;
    }
    let path = theirs.path.strip_suffix('/').unwrap_or(theirs.path);
    match path.strip_prefix(ours.path)? {
        "" => Some(base.to_owned()),
        "/mcp" => Some(format!("{base}/mcp")),
        _ => None,
    }
}

/// An absolute URL, split into its parts without further interpretation.
struct AddressParts<'t> {
    scheme: String,
    authority: String,
    path: &'t str,
}

impl<'t> AddressParts<'t> {
    fn split_address(text: &'t str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let authority = authority.to_ascii_lowercase();
        let own_port = if scheme == "https" { ":443" } else { ":80" };
        Some(Self {
            authority: authority
                .strip_suffix(own_port)
                .unwrap_or(&authority)
                .to_owned(),
            scheme,
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirement_20_the_audience_is_this_service_or_its_mcp() {
        for (base, asked, found) in [
            (
                "https://v.example",
                "https://v.example",
                Some("https://v.example"),
            ),
            (
                "https://v.example",
                "https://v.example/",
                Some("https://v.example"),
            ),
            (
                "https://v.example",
                "https://v.example/mcp",
                Some("https://v.example/mcp"),
            ),
            (
                "https://v.example",
                "https://v.example/mcp/",
                Some("https://v.example/mcp"),
            ),
            (
                "https://v.example",
                "HTTPS://V.Example/mcp",
                Some("https://v.example/mcp"),
            ),
            (
                "https://v.example",
                "https://v.example:443/mcp",
                Some("https://v.example/mcp"),
            ),
            ("https://v.example", "https://v.example/MCP", None),
            ("https://v.example", "https://v.example/mcp#x", None),
            ("https://v.example", "https://v.example/mcp?x", None),
            ("https://v.example", "https://u@v.example/mcp", None),
            ("https://v.example", "https://other.example/mcp", None),
            ("https://v.example", "http://v.example/mcp", None),
            ("https://v.example", "https://v.example:8443/mcp", None),
            ("https://v.example", "/mcp", None),
            ("https://v.example", "", None),
            ("https://v.example", "https://v.example\\mcp", None),
            ("https://v.example", "https:v.example/mcp", None),
            ("https://v.example", "https:///v.example/mcp", None),
            ("https://v.example", "https://v.example//", None),
            ("https://v.example", "https://v.example/mcp//", None),
            ("https://v.example", "https://v.example/x/../mcp", None),
            ("https://v.example", "https://v.example/%6dcp", None),
            (
                "https://v.example",
                "https://v.example.evil.example/mcp",
                None,
            ),
            (
                "https://v.example",
                "https://v.example@evil.example/mcp",
                None,
            ),
            ("https://v.example", "https://v.example:80/mcp", None),
            ("https://v.example", "https://v.example?/mcp", None),
            ("https://v.example", " https://v.example/mcp", None),
            ("https://v.example", "https://v.exa\tmple/mcp", None),
            ("https://v.example", "https://v.example/admin", None),
            (
                "https://v.example/a",
                "https://v.example/a/mcp",
                Some("https://v.example/a/mcp"),
            ),
            ("https://v.example/a", "https://v.example/mcp", None),
            (
                "http://127.0.0.1:8080",
                "http://127.0.0.1:8080/mcp",
                Some("http://127.0.0.1:8080/mcp"),
            ),
        ] {
            assert_eq!(canonical_resource(asked, base).as_deref(), found, "{asked}");
        }
    }
}
