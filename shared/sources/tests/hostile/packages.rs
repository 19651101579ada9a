//! Plugins that are npm packages.

use vault_sources::SourcePolicy;

use super::Table;
use crate::archives::{TAR_END, gzip, sha512, tar_entry, tar_of};
use crate::support::{Answer, Repository, SiteServer, fetcher, parse, skill_md};

const BAD: &str = "source_malformed";
const GONE: &str = "source_not_found";
const DOWN: &str = "source_unreachable";
const INSIDE: &str = "source_not_public";
const LARGE: &str = "source_too_large";
const DIGEST: &str = "source_digest";

/// Name, name and version of the package in the marketplace, and part of the message.
const REFERENCES: &[(&str, &str, &str, &str)] = &[
    ("no name", "", "1.0.0", "is not the name of a package"),
    (
        "parent",
        "../tools",
        "1.0.0",
        "is not the name of a package",
    ),
    (
        "escaped parent",
        "%2e%2e",
        "1.0.0",
        "is not the name of a package",
    ),
    (
        "address",
        "https://evil.example/a",
        "1.0.0",
        "is not the name of a package",
    ),
    (
        "scope of two",
        "@a/b/c",
        "1.0.0",
        "is not the name of a package",
    ),
    (
        "query",
        "tools?x=1",
        "1.0.0",
        "is not the name of a package",
    ),
    (
        "look-alike",
        "t\u{43e}ols",
        "1.0.0",
        "is not the name of a package",
    ),
    (
        "hidden",
        "tools\u{200b}",
        "1.0.0",
        "tools\\u{200b} is not the name",
    ),
    ("range", "tools", "^1.0.0", "a range is not accepted"),
    ("any version", "tools", "*", "a range is not accepted"),
    ("no version", "tools", "", "a range is not accepted"),
    (
        "repository",
        "tools",
        "github:evil/tools",
        "a range is not accepted",
    ),
    (
        "path as version",
        "tools",
        "../../evil",
        "a range is not accepted",
    ),
];

/// Name, description in the registry, code and part of the message. `@sha` is the digest of the
/// good archive, and `@base` the address of the registry.
const DESCRIPTIONS: &[(&str, &str, &str, &str)] = &[
    ("web page", "<html>", BAD, "it is not a JSON object"),
    ("list", "[]", BAD, "it is not a JSON object"),
    (
        "no archive",
        r#"{"name":"tools","version":"1.0.0"}"#,
        BAD,
        "missing field `dist`",
    ),
    (
        "other version",
        r#"{"name":"tools","version":"0.9.0","dist":{"tarball":"@base/good.tgz","integrity":"@sha"}}"#,
        BAD,
        "it describes tools@0.9.0, not tools@1.0.0",
    ),
    (
        "other package",
        r#"{"name":"\u202eevil","version":"1.0.0","dist":{"tarball":"@base/good.tgz","integrity":"@sha"}}"#,
        BAD,
        "it describes \\u{202e}evil@1.0.0, not tools@1.0.0",
    ),
    (
        "two archives",
        r#"{"name":"tools","version":"1.0.0","dist":{"tarball":"a","tarball":"b"}}"#,
        BAD,
        "duplicate field `tarball`",
    ),
    (
        "weak digest",
        r#"{"name":"tools","version":"1.0.0","dist":{"tarball":"@base/good.tgz","integrity":"sha1-AAAA"}}"#,
        BAD,
        "names no SHA-512",
    ),
    (
        "no digest",
        r#"{"name":"tools","version":"1.0.0","dist":{"tarball":"@base/good.tgz"}}"#,
        BAD,
        "names no SHA-512",
    ),
    (
        "empty digest",
        r#"{"name":"tools","version":"1.0.0","dist":{"tarball":"@base/good.tgz","integrity":"sha512-"}}"#,
        DIGEST,
        "not the announced sha512-",
    ),
    (
        "digest of a part",
        r#"{"name":"tools","version":"1.0.0","dist":{"tarball":"@base/cut.tgz","integrity":"@sha"}}"#,
        DIGEST,
        "not the announced sha512-",
    ),
    (
        "digest that turns the text",
        r#"{"name":"tools","version":"1.0.0","dist":{"tarball":"@base/good.tgz","integrity":"sha512-\u202e"}}"#,
        DIGEST,
        "not the announced sha512-\\u{202e}",
    ),
];

/// Name, address of the archive, code and part of the message.
const ADDRESSES: &[(&str, &str, &str, &str)] = &[
    (
        "relative address",
        "good.tgz",
        BAD,
        "its archive has no address",
    ),
    (
        "local file",
        "file:///etc/passwd",
        DOWN,
        "does not use https",
    ),
    (
        "private address",
        "https://10.0.0.1/a.tgz",
        INSIDE,
        "10.0.0.1",
    ),
    (
        "plain address",
        "http://evil.example/a.tgz",
        DOWN,
        "does not use https",
    ),
    (
        "user",
        "https://a:b@evil.example/a.tgz",
        DOWN,
        "a user name or password",
    ),
    (
        "other scheme",
        "git+ssh://git@evil.example/a",
        DOWN,
        "does not use https",
    ),
    (
        "missing archive",
        "@base/none.tgz",
        GONE,
        "there is no http",
    ),
    ("endless archive", "@base/endless", LARGE, "10485760 bytes"),
    ("redirect inside", "@base/inside", INSIDE, "169.254.169.254"),
];

/// Name, archive whose digest is right, code and part of the message.
fn archives() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    let link = [
        &tar_entry(b'2', b"package/skills/a/SKILL.md", 0o777, b"")[..],
        &TAR_END,
    ];
    let up = tar_of(&[("package/../../evil", 0o644, b"x")]);
    let document = skill_md("pdf");
    let dependency = (
        "package/node_modules/a/skills/a/SKILL.md",
        0o644,
        document.as_bytes(),
    );
    vec![
        (
            "no archive",
            b"<html>".to_vec(),
            BAD,
            "neither zip, tar nor",
        ),
        ("link", gzip(&link.concat()), BAD, "it holds no files"),
        (
            "file that leads up",
            gzip(&up),
            BAD,
            "points out of the archive",
        ),
        (
            "dependency",
            gzip(&tar_of(&[dependency])),
            GONE,
            "holds no skills",
        ),
        ("nothing", gzip(&tar_of(&[])), BAD, "it holds no files"),
    ]
}

/// A repository with a marketplace that names one package.
fn market(repository: &Repository, name: &str, version: &str) {
    let source = format!(r#"{{"source":"npm","package":"{name}","version":"{version}"}}"#);
    let plugin = format!(r#"{{"name":"tools","source":{source}}}"#);
    let market = format!(r#"{{"name":"acme","plugins":[{plugin}]}}"#);
    repository.write(".claude-plugin/marketplace.json", market);
    repository.commit();
}

#[tokio::test]
async fn an_npm_package() {
    let (repository, site) = (Repository::new(), SiteServer::new());
    let (fetcher, policy) = (fetcher(&site.base), SourcePolicy::default());
    let good = tar_of(&[(
        "package/skills/pdf/SKILL.md",
        0o644,
        skill_md("pdf").as_bytes(),
    )]);
    let good = gzip(&good);
    let sha = sha512(&good);
    site.body("/cut.tgz", "application/gzip", &good[..good.len() / 2])
        .body("/good.tgz", "application/gzip", good)
        .put("/endless", Answer::Endless)
        .redirect("/inside", "https://169.254.169.254/");
    let source = parse(&repository.address());
    let mut table = Table::default();
    let mut get = async |row: &str, code: &str, part: &str| {
        let opened = fetcher.open_source(&source, Some("tools"), &policy).await;
        table.check(row, opened, code, part);
    };
    for (row, name, version, part) in REFERENCES {
        market(&repository, name, version);
        get(row, BAD, part).await;
    }
    market(&repository, "tools", "1.0.0");
    get("unknown package", GONE, "no package tools@1.0.0").await;
    let describe = |text: &str| {
        let text = text.replace("@base", &site.base).replace("@sha", &sha);
        site.json("/npm/tools/1.0.0", text);
    };
    let version = r#""name":"tools","version":"1.0.0""#;
    for (row, text, code, part) in DESCRIPTIONS {
        describe(text);
        get(row, code, part).await;
    }
    for (row, url, code, part) in ADDRESSES {
        describe(&format!(
            r#"{{{version},"dist":{{"tarball":"{url}","integrity":"@sha"}}}}"#
        ));
        get(row, code, part).await;
    }
    for (row, bytes, code, part) in archives() {
        let dist = format!(
            r#""tarball":"@base/a.tgz","integrity":"{}""#,
            sha512(&bytes)
        );
        describe(&format!(r#"{{{version},"dist":{{{dist}}}}}"#));
        site.body("/a.tgz", "application/gzip", bytes);
        get(row, code, part).await;
    }
    table.finish();
}
