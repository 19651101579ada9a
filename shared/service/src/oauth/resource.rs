//! The audience of a token (RFC 8707): this service, or its `/mcp`.

use url::Url;

/// The canonical form of a `resource` parameter: `base` or `base/mcp`; `None` when it names anything else.
///
/// A slash at the end and the case of scheme and host do not matter; a fragment or a query does.
pub fn canonical(asked: &str, base: &str) -> Option<String> {
    // The parser drops tabs and turns `\` into `/`; an audience is compared, so only plain text comes in.
    if !asked
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    {
        return None;
    }
    let plain = |text: &str| {
        let url = Url::parse(text).ok()?;
        let alone = url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        alone.then(|| url.as_str().trim_end_matches('/').to_owned())
    };
    let asked = plain(asked.strip_suffix('/').unwrap_or(asked))?;
    [base.to_owned(), format!("{base}/mcp")]
        .into_iter()
        .find(|known| plain(known).as_ref() == Some(&asked))
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
            assert_eq!(canonical(asked, base).as_deref(), found, "{asked}");
        }
    }
}
