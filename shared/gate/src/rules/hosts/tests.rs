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
        is_of("https://get.acme.dev/i.sh", "acme") && is_of("https://get.acme.dev/", "acme.dev")
    );
    assert!(!is_of("https://github.com/other/acme/i.sh", "acme"));
    assert!(
        !is_of("https://other.github.io/acme", "github")
            && !is_of("https://acme.dev.other.io/", "acme")
    );
}

#[test]
fn hosts_are_read_as_programs_that_fetch_read_them() {
    for (text, host, domain) in [
        (
            "https://docs.github.com/x",
            "docs.github.com",
            Some("github.com"),
        ),
        (
            "https://docs.github.com.:443/x",
            "docs.github.com",
            Some("github.com"),
        ),
        (
            "https://github.com:443@evil.dev/x",
            "evil.dev",
            Some("evil.dev"),
        ),
        (
            "https://a@github.com@evil.dev",
            "evil.dev",
            Some("evil.dev"),
        ),
        ("https:/\\evil.dev/x", "evil.dev", Some("evil.dev")),
        ("https:///evil.dev/x", "evil.dev", Some("evil.dev")),
        ("https:/evil.dev/x", "evil.dev", Some("evil.dev")),
        (
            "https://evil.dev\\.github.com/x",
            "evil.dev",
            Some("evil.dev"),
        ),
        (
            "https://evil.dev\\@github.com/x",
            "evil.dev\\@github.com",
            None,
        ),
        ("https://%67ithub.com/x", "github.com", Some("github.com")),
        (
            "https://evil.dev%2f.github.com/x",
            "evil.dev%2f.github.com",
            None,
        ),
        ("https://ｅvil。dev/x", "evil.dev", Some("evil.dev")),
        (
            "https://xn--gthub-n4a.com/",
            "xn--gthub-n4a.com",
            Some("xn--gthub-n4a.com"),
        ),
        ("https://$host.github.com/x", "$host.github.com", None),
        ("https://a.co.uk/x", "a.co.uk", Some("a.co.uk")),
        (
            "https://x.a.github.io/x",
            "x.a.github.io",
            Some("a.github.io"),
        ),
        ("https://github.io/x", "github.io", None),
        ("http://2130706433/x", "127.0.0.1", None),
        ("http://0x7f.1/x", "127.0.0.1", None),
        ("http://017700000001/x", "127.0.0.1", None),
        ("http://[::1]:80/x", "::1", None),
        ("http://[::ffff:127.0.0.1]/x", "127.0.0.1", None),
        (
            "http://u@[2001:4860:4860::8888]/x",
            "2001:4860:4860::8888",
            None,
        ),
    ] {
        let url = urls(text.as_bytes()).next().expect(text);
        assert_eq!(
            (url.host.as_str(), url.host.registrable()),
            (host, domain),
            "{text}"
        );
    }
    let local = |text: &str| is_local(&urls(text.as_bytes()).next().unwrap().host);
    assert!(local("http://2130706433/") && local("http://[::1]/") && !local("http://[2a00::1]/"));
    assert!(!local("http://127.0.0.1.evil.dev/") && !local("http://$x.localhost/"));
    assert_eq!(ipv4("1.2.3.256"), None);
    assert_eq!(ipv4("4294967296"), None);
    assert_eq!(ipv4("1.2.3.4.5"), None);
}

#[test]
fn a_party_is_its_account_and_its_sites_and_no_stranger() {
    let is_of = |url: &str, party: &str| {
        is_of_publisher(&urls(url.as_bytes()).next().unwrap(), &[party.to_owned()])
    };
    for (party, url) in [
        ("tavily-ai", "https://cli.tavily.com/install.sh"),
        ("heygen-com", "https://static.heygen.com/cli/install.sh"),
        ("encoredev", "https://encore.dev/install.sh"),
        ("apollographql", "https://rover.apollo.dev/nix/latest"),
        (
            "snowflake-labs",
            "https://ai.snowflake.com/static/install.sh",
        ),
        ("okx", "https://github.com/okx/agent/blob/main/readme.md"),
        ("okx", "https://okx.github.io/x"),
        (
            "gitlab.com/acme",
            "https://gitlab.com/acme/x/-/raw/main/i.sh",
        ),
        ("acme.dev", "https://get.acme.dev/i.sh"),
        ("docs.acme.co.uk", "https://get.acme.co.uk/i.sh"),
    ] {
        assert!(is_of(url, party), "{party} {url}");
    }
    for (party, url) in [
        ("go", "https://google.com/x"),
        ("evil-github", "https://github.com/x/y"),
        ("github", "https://github.com/x/y"),
        ("aws-ai", "https://aws.com/x"),
        ("aws-ai", "https://aws.amazon.com/x"),
        ("google-labs", "https://google.com/x"),
        ("googleapis", "https://storage.googleapis.com/x/i.sh"),
        ("amazonaws", "https://x.s3.amazonaws.com/i.sh"),
        ("tavily-ai", "https://tavily-ai.vercel.app/i.sh"),
        ("tavily", "https://tavily-ai.com/i.sh"),
        ("tavily", "https://tavilyhq.com/i.sh"),
        ("tavily-ai", "https://cli.tavily.com.evil.dev/i.sh"),
        ("tavily-ai", "https://$x.tavily.com/i.sh"),
        ("okx", "https://github.com/other/okx/blob/main/readme.md"),
        ("okx", "https://gitlab.com/okx/agent"),
        ("gitlab.com/okx", "https://github.com/okx/agent"),
        ("okx", "https://other.github.io/okx"),
        ("co.uk", "https://evil.co.uk/x"),
        ("encoremore", "https://encore.dev/x"),
    ] {
        assert!(!is_of(url, party), "{party} {url}");
    }
    assert!(!is_of_publisher(
        &urls(b"https://a.dev/x").next().unwrap(),
        &[]
    ));
}

#[test]
fn addresses_are_found_and_known() {
    let text = b"curl -s https://user@get.docker.com:443/x?y | sh; see (http://93.184.1.2/a) ftp://a.b/c xs://no.no";
    let found: Vec<_> = urls(text)
        .map(|url| (url.host.to_string(), url.path, url.plain))
        .collect();
    assert_eq!(
        found,
        [
            ("get.docker.com".to_owned(), "/x?y", false),
            ("93.184.1.2".to_owned(), "/a", true),
            ("a.b".to_owned(), "/c", true)
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
