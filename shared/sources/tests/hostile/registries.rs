//! Skills of registries: ClawHub's protocol, and the older one.

use super::Table;
use crate::archives::zip_of;
use crate::support::{Answer, SiteServer, fetch, fetcher, fetcher_with, parse, settings, skill_md};

const BAD: &str = "source_malformed";
const GONE: &str = "source_not_found";
const DOWN: &str = "source_unreachable";
const REFUSED: &str = "source_refused";
const INSIDE: &str = "source_not_public";
const LARGE: &str = "source_too_large";

/// The paths of a registry that speaks ClawHub's protocol, for the skill `gif`.
const START: &str = "/.well-known/clawhub.json";
const SKILL: &str = "/api/v1/skills/gif";
const SCAN: &str = "/api/v1/skills/gif/verify";
const DOWNLOAD: &str = "/api/v1/download";

/// Name, path, what the registry answers there in JSON, code and part of the message.
const ANSWERS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "start: web page",
        START,
        "<html>",
        BAD,
        "it is not a JSON object",
    ),
    (
        "start: list",
        START,
        r#"["https://10.0.0.1"]"#,
        BAD,
        "not a JSON object",
    ),
    (
        "start: number",
        START,
        r#"{"apiBase":1e400}"#,
        BAD,
        "number out of range",
    ),
    (
        "start: words",
        START,
        r#"{"apiBase":"x y"}"#,
        BAD,
        "apiBase is not an address",
    ),
    (
        "start: data",
        START,
        r#"{"apiBase":"data:,x"}"#,
        BAD,
        "not a base address",
    ),
    (
        "start: file",
        START,
        r#"{"apiBase":"file:///etc"}"#,
        DOWN,
        "not use https",
    ),
    (
        "start: plain",
        START,
        r#"{"apiBase":"http://x.example"}"#,
        DOWN,
        "not use https",
    ),
    (
        "start: private",
        START,
        r#"{"apiBase":"https://10.0.0.1"}"#,
        INSIDE,
        "10.0.0.1",
    ),
    (
        "start: user",
        START,
        r#"{"apiBase":"https://a:b@x.example"}"#,
        DOWN,
        "a user name",
    ),
    (
        "start: two bases",
        START,
        r#"{"apiBase":"https://a.example","apiBase":"https://10.0.0.1"}"#,
        BAD,
        "duplicate field `apiBase`",
    ),
    (
        "malware",
        SKILL,
        r#"{"latestVersion":{"version":"1"},"owner":{"handle":"acme"},"moderation":{"isMalwareBlocked":true}}"#,
        REFUSED,
        "marks it as malware",
    ),
    (
        "malware in words",
        SKILL,
        r#"{"latestVersion":{"version":"1"},"owner":{"handle":"acme"},"moderation":{"isMalwareBlocked":"yes"}}"#,
        BAD,
        "invalid type",
    ),
    (
        "other owner",
        SKILL,
        r#"{"latestVersion":{"version":"1"},"owner":{"handle":"\u001b[2J\u202e"}}"#,
        GONE,
        "is published by \\u{1b}[2J\\u{202e}, not by acme",
    ),
    (
        "look-alike owner",
        SKILL,
        r#"{"latestVersion":{"version":"1"},"owner":{"handle":"\u0430cme"}}"#,
        GONE,
        "not by acme",
    ),
    (
        "no owner",
        SKILL,
        r#"{"latestVersion":{"version":"1"},"owner":null}"#,
        GONE,
        "the registry names no publisher of clawhub:gif, so it is not known to be acme's",
    ),
    (
        "owner twice",
        SKILL,
        r#"{"owner":{"handle":"mallory"},"owner":{"handle":"acme"}}"#,
        BAD,
        "duplicate field `owner`",
    ),
    (
        "no version",
        SKILL,
        r#"{"owner":{"handle":"acme"}}"#,
        BAD,
        "no published version",
    ),
    (
        "version with a line break",
        SKILL,
        r#"{"latestVersion":{"version":"1\n2"},"owner":{"handle":"acme"}}"#,
        BAD,
        "no published version",
    ),
    (
        "version that turns the text",
        SKILL,
        r#"{"latestVersion":{"version":"\u202e1"},"owner":{"handle":"acme"}}"#,
        BAD,
        "no published version",
    ),
    (
        "empty version",
        SKILL,
        r#"{"latestVersion":{"version":""},"owner":{"handle":"acme"}}"#,
        BAD,
        "no published version",
    ),
    (
        "scan: no",
        SCAN,
        r#"{"ok":false,"reasons":["steals keys"]}"#,
        REFUSED,
        "steals keys",
    ),
    (
        "scan: no, in hidden words",
        SCAN,
        r#"{"ok":false,"reasons":["\u202e",{"a":"\u001b"}]}"#,
        REFUSED,
        "refuses it: \\u{202e}; {\"a\":\"\\u001b\"}",
    ),
    ("scan: words", SCAN, r#"{"ok":"yes"}"#, BAD, "invalid type"),
    (
        "scan: two verdicts",
        SCAN,
        r#"{"ok":false,"ok":true}"#,
        BAD,
        "duplicate field `ok`",
    ),
    (
        "scan: web page",
        SCAN,
        "<html>",
        BAD,
        "it is not a JSON object",
    ),
    (
        "hand-off: nothing",
        DOWNLOAD,
        "{}",
        BAD,
        "missing field `repo`",
    ),
    (
        "hand-off: archive",
        DOWNLOAD,
        "PK\x03\x04",
        BAD,
        "it is not a JSON object",
    ),
    (
        "hand-off: branch",
        DOWNLOAD,
        r#"{"repo":"acme/skills","commit":"main"}"#,
        BAD,
        "without a full commit id",
    ),
    (
        "hand-off: short commit",
        DOWNLOAD,
        r#"{"repo":"acme/skills","commit":"0123456"}"#,
        BAD,
        "without a full commit id",
    ),
    (
        "hand-off: option",
        DOWNLOAD,
        r#"{"repo":"acme/skills","commit":"--upload-pack=x"}"#,
        BAD,
        "without a full commit id",
    ),
];

/// Name, repository and path of a hand-off, and part of the message.
const HAND_OFFS: &[(&str, &str, &str, &str)] = &[
    (
        "hand-off: parent",
        "../skills",
        "pdf",
        ".. is not the name of an owner",
    ),
    (
        "hand-off: helper",
        "ext::sh -c x/y",
        "pdf",
        "helper program of git",
    ),
    (
        "hand-off: option as owner",
        "-x/skills",
        "pdf",
        "-x is not the name of an owner",
    ),
    (
        "hand-off: other host",
        "https://evil.example/a/b",
        "x",
        "is not the name of an owner",
    ),
    ("hand-off: file", "file:///etc/x", "x", "a part of its path"),
    (
        "hand-off: one word",
        "skills",
        "pdf",
        "no other kind of source",
    ),
    (
        "hand-off: path up",
        "acme/skills",
        "../../etc",
        "a part of its path",
    ),
    (
        "hand-off: path option",
        "acme/skills",
        "--output=x",
        "a part of its path",
    ),
    (
        "hand-off: path with a backslash",
        "acme/skills",
        "main\\\\pdf",
        "a part of its path",
    ),
    (
        "hand-off: two paths",
        "acme/skills/a",
        "b",
        "names a path already",
    ),
];

/// Name, path, answer, code and part of the message.
fn odd_answers() -> Vec<(
    &'static str,
    &'static str,
    Answer,
    &'static str,
    &'static str,
)> {
    let zip = |path, bytes| Answer::Body("application/zip", zip_of(&[(path, 0o644, bytes)]));
    let long = format!(
        r#"{{"latestVersion":{{"version":"{}"}},"owner":{{"handle":"acme"}}}}"#,
        "1".repeat(101)
    );
    let deep = format!(r#"{{"ok":false,"reasons":[{}"#, "[".repeat(200));
    let page = Answer::Body("text/html", b"<html>".to_vec());
    let inside = Answer::To("https://169.254.169.254/".to_owned());
    let json = |text: String| Answer::Body("application/json", text.into_bytes());
    vec![
        (
            "start: redirect inside",
            START,
            inside.clone(),
            INSIDE,
            "169.254",
        ),
        (
            "start: failure",
            START,
            Answer::Status(500),
            DOWN,
            "HTTP 500",
        ),
        (
            "no skill",
            SKILL,
            Answer::Status(404),
            GONE,
            "has no skill gif",
        ),
        (
            "long version",
            SKILL,
            json(long),
            BAD,
            "no published version",
        ),
        (
            "endless skill",
            SKILL,
            Answer::Endless,
            LARGE,
            "1048576 bytes",
        ),
        (
            "scan: nested",
            SCAN,
            json(deep),
            BAD,
            "recursion limit exceeded",
        ),
        ("scan: failure", SCAN, Answer::Status(503), DOWN, "HTTP 503"),
        (
            "no version",
            DOWNLOAD,
            Answer::Status(404),
            GONE,
            "gif in version 1.0.0",
        ),
        ("web page", DOWNLOAD, page, BAD, "neither zip, tar nor"),
        ("redirect inside", DOWNLOAD, inside, INSIDE, "169.254"),
        (
            "endless archive",
            DOWNLOAD,
            Answer::Endless,
            LARGE,
            "10485760 bytes",
        ),
        (
            "file that leads up",
            DOWNLOAD,
            zip("../x", b"x"),
            BAD,
            "points out",
        ),
        (
            "no SKILL.md",
            DOWNLOAD,
            zip("a.md", b"x"),
            GONE,
            "holds no SKILL.md",
        ),
    ]
}

/// Puts a good skill `gif` of `acme` into a registry.
fn publish(site: &SiteServer) {
    let archive = zip_of(&[("SKILL.md", 0o644, skill_md("gif").as_bytes())]);
    let skill = r#"{"latestVersion":{"version":"1.0.0"},"owner":{"handle":"Acme"}}"#;
    site.json(SKILL, skill)
        .body(DOWNLOAD, "application/zip", archive)
        .put(START, Answer::Status(404))
        .put(SCAN, Answer::Status(404));
}

#[tokio::test]
async fn a_skill_of_clawhub() {
    let site = SiteServer::new();
    let (fetcher, source) = (fetcher(&site.base), parse("clawhub:@acme/gif"));
    let mut table = Table::default();
    let mut get = async |row: &str, path: &str, answer: Answer, code: &str, part: &str| {
        publish(&site);
        assert!(fetch(&fetcher, &source, None).await.is_ok());
        site.put(path, answer);
        table.check(row, fetch(&fetcher, &source, None).await, code, part);
    };
    let json = |text: &str| Answer::Body("application/json", text.as_bytes().to_vec());
    for (row, path, text, code, part) in ANSWERS {
        get(row, path, json(text), code, part).await;
    }
    let commit = "0123456789012345678901234567890123456789";
    for (row, repository, path, part) in HAND_OFFS {
        let text = format!(r#"{{"repo":"{repository}","commit":"{commit}","path":"{path}"}}"#);
        get(row, DOWNLOAD, json(&text), BAD, part).await;
    }
    for (row, path, answer, code, part) in odd_answers() {
        get(row, path, answer, code, part).await;
    }
    table.finish();
}

/// Name, head and body of the answer, code and part of the message.
const DOCUMENTS: &[(&str, &str, &str, &str)] = &[
    ("missing", "404 No\r\n\r\n", GONE, "there is no http"),
    ("gone", "410 No\r\n\r\n", GONE, "there is no http"),
    (
        "private skill",
        "401 No\r\n\r\n",
        "source_not_allowed",
        "HTTP 401",
    ),
    (
        "forbidden",
        "403 No\r\n\r\n",
        "source_not_allowed",
        "HTTP 403",
    ),
    ("part", "206 Part\r\n\r\n---", DOWN, "HTTP 206"),
    ("failure", "502 No\r\n\r\n", DOWN, "HTTP 502"),
    (
        "slow",
        "429 No\r\nRetry-After: \u{202e}\r\n\r\n",
        DOWN,
        "HTTP 429",
    ),
    (
        "login page",
        "200 OK\r\nContent-Type: text/html\r\n\r\n<html>",
        BAD,
        "it is a web page, not a SKILL.md",
    ),
    (
        "packed",
        "200 OK\r\nContent-Encoding: gzip\r\n\r\nx",
        BAD,
        "its body is encoded",
    ),
    (
        "announced size",
        "200 OK\r\nContent-Length: 262145\r\n\r\nx",
        LARGE,
        "262144 bytes",
    ),
    (
        "cut",
        "200 OK\r\nContent-Length: 100\r\n\r\n---\nname",
        DOWN,
        "end of file before",
    ),
    (
        "private address",
        "302 Found\r\nLocation: https://192.168.0.1/\r\n\r\n",
        INSIDE,
        "192.168.0.1",
    ),
    (
        "address of the network",
        "307 Found\r\nLocation: https://[fe80::1]/\r\n\r\n",
        INSIDE,
        "fe80::1",
    ),
    (
        "local file",
        "301 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
        DOWN,
        "does not use https",
    ),
    (
        "plain",
        "308 Found\r\nLocation: http://x.example/\r\n\r\n",
        DOWN,
        "does not use https",
    ),
    (
        "user",
        "302 Found\r\nLocation: https://a@x.example/\r\n\r\n",
        DOWN,
        "a user name or password",
    ),
    (
        "nowhere",
        "302 Found\r\n\r\n",
        DOWN,
        "redirects without an address",
    ),
    (
        "itself",
        "302 Found\r\nLocation: SKILL.md\r\n\r\n",
        DOWN,
        "redirects more than 5 times",
    ),
    ("no HTTP", "\u{0}", DOWN, "invalid HTTP"),
];

#[tokio::test]
async fn a_skill_of_an_older_registry() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let mut table = Table::default();
    for (at, (row, head, code, part)) in DOCUMENTS.iter().enumerate() {
        let path = format!("/older/skills/pdf/{at}/SKILL.md");
        site.raw(&path, format!("HTTP/1.1 {head}").as_bytes());
        let source = parse(&format!("registry:pdf@{at}"));
        table.check(row, fetch(&fetcher, &source, None).await, code, part);
    }
    site.put("/older/skills/pdf/SKILL.md", Answer::Endless);
    let pdf = parse("registry:pdf");
    table.check(
        "endless",
        fetch(&fetcher, &pdf, None).await,
        LARGE,
        "262144 bytes",
    );
    for (row, base, code, part) in [
        (
            "no registry",
            None,
            "source_unsupported",
            "no registry is set",
        ),
        (
            "private base",
            Some("https://10.0.0.1/"),
            INSIDE,
            "10.0.0.1",
        ),
        (
            "base in a file",
            Some("file:///srv/skills"),
            DOWN,
            "does not use https",
        ),
        (
            "base without a path",
            Some("data:,x"),
            BAD,
            "not a base address",
        ),
    ] {
        let mut settings = settings(&site.base);
        settings.registry = base.map(|base| base.parse().unwrap());
        table.check(
            row,
            fetch(&fetcher_with(settings), &pdf, None).await,
            code,
            part,
        );
    }
    table.finish();
}
