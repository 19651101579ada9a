//! A SKILL.md at an address. The rows hold for every request to a site, an archive or a registry.

use super::Table;
use crate::support::{Answer, SiteServer, fetch, fetcher, parse};

const DOWN: &str = "source_unreachable";
const BAD: &str = "source_malformed";
const INSIDE: &str = "source_not_public";
const LARGE: &str = "source_too_large";

/// Name, address that the site redirects to, code and part of the message.
const REDIRECTS: &[(&str, &str, &str, &str)] = &[
    ("private", "https://10.0.0.1/x", INSIDE, "10.0.0.1/x points"),
    ("private B", "https://172.16.0.1/x", INSIDE, "not public"),
    ("private C", "https://192.168.1.1/x", INSIDE, "not public"),
    (
        "cloud credentials",
        "https://169.254.169.254/latest/meta-data",
        INSIDE,
        "not public",
    ),
    ("this host", "https://0.0.0.0/x", INSIDE, "not public"),
    (
        "provider's network",
        "https://100.64.0.1/x",
        INSIDE,
        "not public",
    ),
    ("group", "https://224.0.0.1/x", INSIDE, "not public"),
    (
        "all hosts",
        "https://255.255.255.255/x",
        INSIDE,
        "not public",
    ),
    ("one number", "https://167772161/x", INSIDE, "10.0.0.1/x"),
    ("hexadecimal", "https://0x0a.0.0.1/x", INSIDE, "10.0.0.1/x"),
    ("octal", "https://012.0.0.1/x", INSIDE, "10.0.0.1/x"),
    ("two parts", "https://10.1/x", INSIDE, "10.0.0.1/x"),
    (
        "wide digits",
        "https://\u{ff11}\u{ff10}.0.0.1/x",
        DOWN,
        "redirects without an address",
    ),
    ("local network", "https://[fd00::1]/x", INSIDE, "not public"),
    ("link", "https://[fe80::1]/x", INSIDE, "not public"),
    ("unspecified", "https://[::]/x", INSIDE, "not public"),
    (
        "mapped",
        "https://[::ffff:10.0.0.1]/x",
        INSIDE,
        "not public",
    ),
    (
        "translated",
        "https://[64:ff9b::a00:1]/x",
        INSIDE,
        "not public",
    ),
    ("6to4", "https://[2002:a00:1::1]/x", INSIDE, "not public"),
    ("Teredo", "https://[2001::a00:1]/x", INSIDE, "not public"),
    ("file", "file:///etc/passwd", DOWN, "does not use https"),
    ("plain", "http://example.com/x", DOWN, "does not use https"),
    (
        "plain and private",
        "http://10.0.0.1/x",
        DOWN,
        "does not use https",
    ),
    ("ftp", "ftp://example.com/x", DOWN, "does not use https"),
    (
        "gopher",
        "gopher://127.0.0.1:6379/_x",
        DOWN,
        "does not use https",
    ),
    ("data", "data:text/plain,x", DOWN, "does not use https"),
    ("script", "javascript:alert(1)", DOWN, "does not use https"),
    (
        "user",
        "https://a:b@example.com/x",
        DOWN,
        "a user name or password",
    ),
    (
        "user alone",
        "https://token@example.com/x",
        DOWN,
        "a user name or",
    ),
    (
        "half a host",
        "https://[::1",
        DOWN,
        "redirects without an address",
    ),
    ("no host", "https://", DOWN, "redirects without an address"),
    (
        "port",
        "https://example.com:99999/x",
        DOWN,
        "without an address",
    ),
    (
        "itself",
        "/loop/SKILL.md",
        DOWN,
        "redirects more than 5 times",
    ),
];

/// Name, head of the answer, code and part of the message.
const ANSWERS: &[(&str, &str, &str, &str)] = &[
    (
        "no place",
        "302 Found\r\n\r\n",
        DOWN,
        "redirects without an address",
    ),
    (
        "unauthorized",
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
    (
        "missing",
        "404 No\r\n\r\n",
        "source_not_found",
        "there is no http",
    ),
    (
        "gone",
        "410 No\r\n\r\n",
        "source_not_found",
        "there is no http",
    ),
    ("part", "206 Part\r\n\r\nx", DOWN, "answers HTTP 206"),
    ("no content", "204 None\r\n\r\n", DOWN, "answers HTTP 204"),
    ("not modified", "304 Same\r\n\r\n", DOWN, "answers HTTP 304"),
    (
        "proxy",
        "305 Proxy\r\nLocation: /x\r\n\r\n",
        DOWN,
        "HTTP 305",
    ),
    ("teapot", "418 No\r\n\r\n", DOWN, "answers HTTP 418"),
    ("failure", "500 No\r\n\r\n", DOWN, "answers HTTP 500"),
    (
        "no status of HTTP",
        "999 No\r\n\r\n",
        DOWN,
        "answers HTTP 999",
    ),
    (
        "too many requests",
        "429 Slow\r\nRetry-After: 7\r\n\r\n",
        DOWN,
        "asks to wait 7 s",
    ),
    (
        "waiting time in words",
        "503 Slow\r\nRetry-After: for ever and a day\r\n\r\n",
        DOWN,
        "asks to wait",
    ),
    (
        "web page",
        "200 OK\r\nContent-Type: TEXT/HTML; charset=utf-8\r\n\r\n<html>",
        BAD,
        "it is a web page, not a SKILL.md",
    ),
    (
        "packed body",
        "200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
        BAD,
        "its body is encoded",
    ),
    (
        "body packed twice",
        "200 OK\r\nContent-Encoding: identity, br\r\n\r\nx",
        BAD,
        "its body is encoded",
    ),
    (
        "announced size",
        "200 OK\r\nContent-Length: 99999999\r\n\r\nx",
        LARGE,
        "exceeds 262144 bytes",
    ),
    (
        "cut body",
        "200 OK\r\nContent-Length: 1000\r\n\r\n---\nname: pdf",
        DOWN,
        "end of file before message length reached",
    ),
    (
        "cut piece",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n---\nname: pdf",
        DOWN,
        "end of file before message length reached",
    ),
    (
        "size of a piece",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
        DOWN,
        "chunk size",
    ),
    (
        "two sizes",
        "200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        DOWN,
        "content-length",
    ),
    (
        "negative size",
        "200 OK\r\nContent-Length: -1\r\n\r\nx",
        DOWN,
        "content-length",
    ),
    (
        "size of 128 bits",
        "200 OK\r\nContent-Length: 340282366920938463463374607431768211455\r\n\r\nx",
        DOWN,
        "content-length",
    ),
    (
        "NUL in a header",
        "200 OK\r\nX: a\0b\r\n\r\nx",
        DOWN,
        "invalid HTTP header",
    ),
    ("no HTTP", "two words", DOWN, "invalid HTTP status"),
];

#[tokio::test]
async fn a_skill_md_by_address() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let many = "X: y\r\n".repeat(200);
    let long = format!("X: {}\r\n", "y".repeat(1 << 20));
    let (many, long) = (
        format!("200 OK\r\n{many}\r\n"),
        format!("200 OK\r\n{long}\r\n"),
    );
    let heads = [
        (
            "many headers",
            many.as_str(),
            DOWN,
            "message head is too large",
        ),
        (
            "long header",
            long.as_str(),
            DOWN,
            "message head is too large",
        ),
    ];
    let redirects = REDIRECTS.iter().map(|(row, to, code, part)| {
        let head = format!("302 Found\r\nLocation: {to}\r\n\r\n");
        (*row, head, *code, *part)
    });
    let answers = ANSWERS.iter().chain(&heads);
    let answers = answers.map(|(row, head, code, part)| (*row, (*head).to_owned(), *code, *part));
    let mut table = Table::default();
    let mut get = async |path: &str, row, code, part| {
        let source = parse(&format!("{}{path}", site.base));
        table.check(row, fetch(&fetcher, &source, None).await, code, part);
    };
    site.redirect("/loop/SKILL.md", "/loop/SKILL.md");
    for (at, (row, head, code, part)) in redirects.chain(answers).enumerate() {
        let path = format!("/{at}/SKILL.md");
        site.raw(&path, format!("HTTP/1.1 {head}").as_bytes());
        get(&path, row, code, part).await;
    }
    site.put("/endless/SKILL.md", Answer::Endless);
    get("/endless/SKILL.md", "endless body", LARGE, "262144 bytes").await;
    site.raw("/none/SKILL.md", b"");
    get("/none/SKILL.md", "no answer", DOWN, "connection closed").await;
    site.raw("/ssh/SKILL.md", b"SSH-2.0-OpenSSH_9.9\r\n");
    get("/ssh/SKILL.md", "another protocol", DOWN, "invalid HTTP").await;
    table.finish();
}
