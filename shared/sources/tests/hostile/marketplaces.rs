//! Plugins of a marketplace, which is a repository.

use vault_sources::SourcePolicy;

use super::Table;
use crate::support::{Repository, fetcher_with, parse, plain_settings, skill_md};

const BAD: &str = "source_malformed";
const GONE: &str = "source_not_found";

/// Whole marketplaces. Name, text, code and part of the message.
const MARKETS: &[(&str, &str, &str, &str)] = &[
    ("web page", "<html>", BAD, "it is not a JSON object"),
    ("list", "[]", BAD, "it is not a JSON object"),
    ("cut", r#"{"plugins":["#, BAD, "EOF while parsing"),
    (
        "no plugins",
        r#"{"name":"acme"}"#,
        GONE,
        "has no plugin tools",
    ),
    (
        "plugins in an object",
        r#"{"plugins":{"tools":"."}}"#,
        BAD,
        "invalid type",
    ),
    (
        "plugins twice",
        r#"{"plugins":[],"plugins":[{"name":"tools","source":"."}]}"#,
        BAD,
        "duplicate field `plugins`",
    ),
    (
        "root that leads up",
        r#"{"metadata":{"pluginRoot":"../.."},"plugins":[{"name":"tools","source":"x"}]}"#,
        BAD,
        "a plugin's path points out of the repository",
    ),
    (
        "root that is not a text",
        r#"{"metadata":{"pluginRoot":{}},"plugins":[]}"#,
        BAD,
        "invalid type",
    ),
    (
        "two plugins of one name",
        r#"{"plugins":[{"name":"tools","source":"./a"},{"name":"tools","source":"./skills"}]}"#,
        BAD,
        "it lists the plugin tools twice",
    ),
    (
        "name that turns the text",
        r#"{"plugins":[{"name":"\u202esloot\u001b[2J","source":"."}]}"#,
        GONE,
        "it has: \\u{202e}sloot\\u{1b}[2J",
    ),
];

/// Plugins. Name, source of the plugin, code and part of the message.
const SOURCES: &[(&str, &str, &str, &str)] = &[
    ("parent", r#""../x""#, BAD, "points out of the repository"),
    (
        "parent inside",
        r#""./a/../../x""#,
        BAD,
        "points out of the repository",
    ),
    ("absolute", r#""/etc""#, BAD, "points out of the repository"),
    (
        "missing folder",
        r#""./none""#,
        GONE,
        "the plugin tools holds no skills",
    ),
    (
        "folder of git",
        r#""./.git""#,
        GONE,
        "the plugin tools holds no skills",
    ),
    ("number", "1", BAD, "did not match any variant"),
    ("list", r#"["./"]"#, BAD, "did not match any variant"),
    (
        "two kinds",
        r#"{"source":"github","source":"url","repo":"a/b"}"#,
        BAD,
        "did not match any variant",
    ),
    (
        "unknown kind",
        r#"{"source":"\u202ehg","url":"https://x.example/a"}"#,
        BAD,
        "a plugin's source \\u{202e}hg is not known",
    ),
    (
        "local path as address",
        r#"{"source":"url","url":"/etc"}"#,
        BAD,
        "is not known",
    ),
    (
        "local file",
        r#"{"source":"url","url":"file:///etc"}"#,
        BAD,
        "file: addresses are not supported",
    ),
    (
        "helper program",
        r#"{"source":"url","url":"ext::sh -c x@y"}"#,
        BAD,
        "helper program of git",
    ),
    (
        "option",
        r#"{"source":"url","url":"--upload-pack=x@y"}"#,
        BAD,
        "git cannot fetch this address",
    ),
    (
        "option of SSH",
        r#"{"source":"url","url":"-oProxyCommand=x@host:a/b"}"#,
        BAD,
        "git cannot fetch this address",
    ),
    (
        "host that is an option",
        r#"{"source":"url","url":"ssh://-oProxyCommand=x/a/b"}"#,
        BAD,
        "its user or host has characters",
    ),
    (
        "plain",
        r#"{"source":"url","url":"http://x.example/a/b.git"}"#,
        BAD,
        "http: addresses are not supported",
    ),
    (
        "protocol of git",
        r#"{"source":"url","url":"git://x.example/a/b.git"}"#,
        BAD,
        "git: addresses are not supported",
    ),
    (
        "user",
        r#"{"source":"url","url":"https://a:secret@x.example/a.git"}"#,
        BAD,
        "https://…@x.example",
    ),
    (
        "owner that leads up",
        r#"{"source":"github","repo":"../b"}"#,
        BAD,
        ".. is not the name of an owner",
    ),
    (
        "other host as owner",
        r#"{"source":"github","repo":"https://x.example/a"}"#,
        BAD,
        "is not the name of an owner",
    ),
    (
        "folder that leads up",
        r#"{"source":"git-subdir","repo":"a/b","path":"../../etc"}"#,
        BAD,
        "a part of its path is empty",
    ),
    (
        "short commit",
        r#"{"source":"github","repo":"a/b","sha":"0123456"}"#,
        BAD,
        "a plugin's sha is not a full commit id",
    ),
    (
        "commit that is an option",
        r#"{"source":"github","repo":"a/b","sha":"--upload-pack=x"}"#,
        BAD,
        "a plugin's sha is not a full commit id",
    ),
    (
        "reference that is an option",
        r#"{"source":"github","repo":"a/b","ref":"--upload-pack=x"}"#,
        BAD,
        "it is not a branch, tag, commit or version",
    ),
    (
        "range of commits",
        r#"{"source":"github","repo":"a/b","ref":"a..b"}"#,
        BAD,
        "it is not a branch, tag, commit or version",
    ),
    (
        "two references",
        r#"{"source":"github","repo":"a/b#main","ref":"v1"}"#,
        BAD,
        "the source names main already",
    ),
    (
        "package without a name",
        r#"{"source":"npm"}"#,
        BAD,
        "is not the name of a package",
    ),
];

/// The skills that an entry lists. Name, list, code and part of the message.
const SKILLS: &[(&str, &str, &str, &str)] = &[
    (
        "skill that leads up",
        r#"["../../x"]"#,
        BAD,
        "a skill's path points out",
    ),
    (
        "absolute skill",
        r#""/etc""#,
        BAD,
        "a skill's path points out",
    ),
    (
        "missing skill",
        r#"["./none"]"#,
        GONE,
        "the plugin tools holds no skills",
    ),
    ("no skills", "[]", GONE, "the plugin tools holds no skills"),
    (
        "skill that is a link",
        r#"["./link"]"#,
        GONE,
        "the plugin tools holds no skills",
    ),
];

#[tokio::test]
async fn a_plugin_of_a_marketplace() {
    let repository = Repository::new();
    repository.write("skills/pdf/SKILL.md", skill_md("pdf"));
    std::os::unix::fs::symlink("skills/pdf", repository.path().join("link")).unwrap();
    // A marketplace must not name what only tests may fetch.
    let mut settings = plain_settings();
    settings.parse.loopback = false;
    let (fetcher, policy) = (fetcher_with(settings), SourcePolicy::default());
    let source = parse(&repository.address());
    let mut table = Table::default();
    let mut get = async |row: &str, text: &str, code: &str, part: &str| {
        repository.write(".claude-plugin/marketplace.json", text);
        repository.commit();
        let opened = fetcher.open_source(&source, Some("tools"), &policy).await;
        table.check(row, opened, code, part);
    };
    for (row, text, code, part) in MARKETS {
        get(row, text, code, part).await;
    }
    for (row, source, code, part) in SOURCES {
        let text = format!(r#"{{"plugins":[{{"name":"tools","source":{source}}}]}}"#);
        get(row, &text, code, part).await;
    }
    for (row, skills, code, part) in SKILLS {
        let plugin = format!(r#""name":"tools","source":"./","strict":false,"skills":{skills}"#);
        get(row, &format!(r#"{{"plugins":[{{{plugin}}}]}}"#), code, part).await;
    }
    let folders = vec![r#""./skills/pdf""#; 1_001].join(",");
    let plugin = format!(r#""name":"tools","source":"./","skills":[{folders}]"#);
    let many = format!(r#"{{"plugins":[{{{plugin}}}]}}"#);
    let limit = "exceeds 1000 folders in a plugin";
    get("1,001 folders", &many, "source_too_large", limit).await;
    let plugin = r#"{"name":"x","source":"."},"#.repeat(20_000);
    let many = format!(r#"{{"plugins":[{}]}}"#, plugin.trim_end_matches(','));
    get(
        "20,000 plugins",
        &many,
        GONE,
        "has no plugin tools; it has: x, x",
    )
    .await;
    let large = format!(r#"{{"plugins":[],"a":"{}"}}"#, "x".repeat(2 << 20));
    get("large", &large, "source_too_large", "exceeds 1048576 bytes").await;
    let deep = format!(
        r#"{{"plugins":[{{"name":"tools","source":{}"#,
        "[".repeat(200)
    );
    get("nested", &deep, BAD, "recursion limit exceeded").await;
    table.finish();
}
