//! The sources that `vault add` accepts, and those that it rejects before any request.

use vault_sources::{BadSource, GitSource, ParseOptions, Source};
use vault_testing::assert_matches;

fn parse(text: &str) -> Result<Source, BadSource> {
    Source::parse(text, &ParseOptions::default(), &|path| {
        ["here", "odd/one", "./x", "../x", "~/x"].contains(&path)
    })
    .or_else(BadSource::accept_shorthand)
}

fn git(text: &str) -> GitSource {
    match parse(text) {
        Ok(Source::Git(git)) => git,
        other => panic!("{text}: {other:?}"),
    }
}

/// Columns: text, address, identifier, path and reference. `-` means none.
const REPOSITORIES: &str = "\
acme/skills https://github.com/acme/skills.git github:acme/skills - -
acme/skills/a/pdf#v1.2 https://github.com/acme/skills.git github:acme/skills a/pdf v1.2
github:acme/skills/pdf https://github.com/acme/skills.git github:acme/skills pdf -
https://github.com/acme/skills https://github.com/acme/skills.git github:acme/skills - -
https://github.com/acme/skills.git#main https://github.com/acme/skills.git github:acme/skills - main
git@github.com:acme/skills.git git@github.com:acme/skills.git github:acme/skills - -
git@git.example.com:acme/skills.git#feature/x git@git.example.com:acme/skills.git git:ssh://git.example.com/acme/skills.git - feature/x
ssh://git@git.example.com:2222/acme/skills ssh://git@git.example.com:2222/acme/skills git:ssh://git.example.com:2222/acme/skills - -
https://git.example.com/acme/skills.git https://git.example.com/acme/skills.git git:https://git.example.com/acme/skills.git - -
git:https://git.example.com/acme/skills.git//a/pdf https://git.example.com/acme/skills.git git:https://git.example.com/acme/skills.git a/pdf -
git+https://git.example.com/acme https://git.example.com/acme git:https://git.example.com/acme - -
gitlab:acme/skills https://gitlab.com/acme/skills.git gitlab:acme/skills - -";

#[test]
fn every_form_of_a_repository_leads_to_the_same_place() {
    for row in REPOSITORIES.lines() {
        let cells: Vec<&str> = row.split(' ').collect();
        let git = git(cells[0]);
        let found = [
            git.address.as_str(),
            git.identifier.as_str(),
            git.path.as_deref().unwrap_or("-"),
            git.reference.as_deref().unwrap_or("-"),
        ];
        assert_eq!(found, cells[1..], "{row}");
    }
}

/// Columns: text, place and tail.
const PAGES: &str = "\
https://github.com/acme/skills/tree/feature/x/pdf github.com/acme/skills feature/x/pdf
https://github.com/acme/skills/blob/main/pdf/SKILL.md github.com/acme/skills main/pdf
https://raw.githubusercontent.com/acme/skills/main/pdf/SKILL.md github.com/acme/skills main/pdf
https://raw.githubusercontent.com/acme/skills/refs/heads/main/pdf/SKILL.md github.com/acme/skills main/pdf
https://gitlab.com/acme/skills/-/tree/main/pdf gitlab.com/acme/skills main/pdf
https://git.example.com/g/sub/repo/-/blob/v1/pdf/SKILL.md git.example.com/g/sub/repo v1/pdf";

#[test]
fn web_addresses_keep_what_may_be_a_branch_with_a_slash() {
    for row in PAGES.lines() {
        let cells: Vec<&str> = row.split(' ').collect();
        let git = git(cells[0]);
        assert_eq!([git.place, git.tail.join("/")], cells[1..], "{row}");
    }
}

#[test]
fn other_forms_are_told_apart() {
    let parsed = |text| parse(text).unwrap();
    assert_matches!(parsed("./x"), Source::Local(_));
    assert_matches!(parsed("../x"), Source::Local(_));
    assert_matches!(parsed("~/x"), Source::Local(_));
    assert_matches!(parsed("here"), Source::Local(_), "what exists comes first");
    assert_matches!(
        parsed("odd/one"),
        Source::Local(_),
        "what exists comes first"
    );
    assert_matches!(parsed("https://example.com/a/SKILL.md"), Source::SkillMd(_));
    for archive in [
        "https://example.com/pdf.tar.gz",
        "https://example.com/a/b/pdf.ZIP",
        "https://x.example/p.tgz?x=1",
        "https://registry.example/@acme/tools/-/tools-1.2.3.tgz",
    ] {
        assert_matches!(parsed(archive), Source::Archive(_), "{archive}");
    }
    for refused in [
        "https://registry.example/@/p.tgz",
        "https://registry.example/@a@b/p.tgz",
        "https://registry.example/@../p.tgz",
        "https://registry.example/@acme/tools",
    ] {
        assert!(
            Source::parse(refused, &ParseOptions::default(), &|_| false).is_err(),
            "{refused}"
        );
    }
    for (text, wanted) in [
        ("https://docs.example.com", ("/", None)),
        ("https://docs.example.com/", ("/", None)),
        ("https://docs.example.com/pdf", ("/", Some("pdf"))),
        ("wellknown:https://docs.example.com/pdf", ("/", Some("pdf"))),
        ("wellknown:https://docs.example.com/pdf/", ("/pdf/", None)),
        (
            "wellknown:https://docs.example.com/a/b/pdf",
            ("/a/b/", Some("pdf")),
        ),
        (
            "https://docs.example.com/a/.well-known/agent-skills/index.json",
            ("/a/", None),
        ),
        (
            "https://docs.example.com/a/b/.well-known/agent-skills/pdf",
            ("/a/b/", Some("pdf")),
        ),
        ("https://docs.example.com/.well-known/skills/", ("/", None)),
    ] {
        match parsed(text) {
            Source::WellKnown {
                site,
                skill,
                or_site,
            } => {
                let path = site.as_str().strip_prefix("https://docs.example.com");
                assert_eq!((path.unwrap(), skill.as_deref()), wanted, "{text}");
                // Only a short address leaves open what it means.
                assert_eq!(or_site, text == "https://docs.example.com/pdf", "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn registries_and_vaults_have_prefixes() {
    let parsed = |text| parse(text).unwrap();
    let some = |cell: &str| (cell != "-").then(|| cell.to_owned());
    // Columns: text, owner, name and version.
    let table = "\
clawhub:@openclaw/gifgrep@1.2.3 openclaw gifgrep 1.2.3
registry:clawhub/openclaw/gifgrep openclaw gifgrep -
clawhub:gifgrep@2.0.0 - gifgrep 2.0.0
clawhub:gifgrep#1.0.0 - gifgrep 1.0.0";
    for row in table.lines() {
        let cells: Vec<&str> = row.split(' ').collect();
        let wanted = Source::ClawHub {
            owner: some(cells[1]),
            slug: cells[2].to_owned(),
            version: some(cells[3]),
        };
        assert_eq!(parsed(cells[0]), wanted, "{row}");
    }
    assert_matches!(parsed("registry:pdf@1.0"), Source::Registry { .. });
    assert_matches!(parsed("vault:acme/pdf"), Source::Vault { .. });
    let at = git("acme/skills@pdf");
    assert_eq!(
        (at.skill.as_deref(), at.reference),
        (Some("pdf"), None),
        "a skill, not a tag"
    );
}

#[test]
fn what_has_no_prefix_is_a_path_or_an_error() {
    for (text, registry) in [
        ("nope", Some("clawhub:nope")),
        ("gifgrep@2.0.0", Some("clawhub:gifgrep@2.0.0")),
        ("@openclaw/gifgrep", Some("clawhub:@openclaw/gifgrep")),
        ("nope.zip", None),
        ("two words", None),
        ("./nope", None),
        ("/nope", None),
        ("~/nope", None),
    ] {
        let missing = BadSource::Missing {
            text: text.to_owned(),
            registry: registry.map(str::to_owned),
        };
        assert_eq!(parse(text), Err(missing), "{text}");
    }
    let elsewhere = ParseOptions {
        default_host: "git.example.com".to_owned(),
        ..ParseOptions::default()
    };
    for (text, options, wanted) in [
        ("acme/skills", ParseOptions::default(), "github:acme/skills"),
        (
            "acme/skills/a/pdf#v1",
            ParseOptions::default(),
            "github:acme/skills/a/pdf#v1",
        ),
        (
            "acme/skills@pdf",
            ParseOptions::default(),
            "github:acme/skills@pdf",
        ),
        (
            "acme/skills/pdf#v1",
            elsewhere,
            "git:https://git.example.com/acme/skills.git//pdf#v1",
        ),
    ] {
        match Source::parse(text, &options, &|_| false) {
            Err(BadSource::Shorthand {
                written,
                repository,
                ..
            }) => {
                assert_eq!(written, wanted, "{text}");
                let prefixed = Source::parse(&written, &options, &|_| false);
                assert_eq!(prefixed, Ok(Source::Git(*repository)), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// Text of a source, and part of the message.
const TRICKS: &[(&str, &str)] = &[
    ("", "it is empty or longer"),
    ("-x", "it begins with `-`"),
    ("--upload-pack=touch /tmp/x", "it begins with `-`"),
    ("-oProxyCommand=x:repo", "it begins with `-`"),
    ("ext::sh -c touch% /tmp/x", "helper program of git"),
    ("git:ext::sh -c x", "helper program of git"),
    ("fd::17/foo", "helper program of git"),
    ("git::https://example.com/a/b", "helper program of git"),
    ("file:///etc", "`file:` addresses are not supported"),
    ("file:/etc/x", "`file:` addresses are not supported"),
    ("git:file:///etc", "file: addresses are not supported"),
    ("git://example.com/a/b", "`git://` is not encrypted"),
    ("http://example.com/SKILL.md", "`http://` is not encrypted"),
    (
        "ftp://example.com/a.zip",
        "ftp:// addresses are not supported",
    ),
    ("javascript:alert(1)", "unknown prefix `javascript:`"),
    ("acme/../../etc", "`..` leads out of its start"),
    ("acme/skills/../../x", "`..` leads out of its start"),
    ("github:acme/skills/..", "`..` leads out of its start"),
    (
        "https://github.com/acme/skills/tree/main/%2e%2e/x",
        "escaped dots, slashes or NUL",
    ),
    (
        "https://example.com/a%2f..%2fSKILL.md",
        "escaped dots, slashes or NUL",
    ),
    (
        "https://example.com/a%5cSKILL.md",
        "escaped dots, slashes or NUL",
    ),
    (
        "https://example.com/a%00/SKILL.md",
        "escaped dots, slashes or NUL",
    ),
    ("github:acme/skills/a%2f..%2fb", "a part of its path"),
    ("github:acme/skills/%2e%2e/b", "a part of its path"),
    ("github:acme/skills/a%5cb", "a part of its path"),
    ("github:acme/skills/a%0ab", "a part of its path"),
    ("github:acme/skills/%2dx", "a part of its path"),
    (
        "git:https://git.example.com/a/b.git//x%00",
        "a part of its path",
    ),
    (
        "https://user:secret@example.com/a/b.git",
        "a user name or password",
    ),
    (
        "https://user@example.com/SKILL.md",
        "a user name or password",
    ),
    (
        "https://github.com@evil.example/acme/skills",
        "a user name or password",
    ),
    (
        "ssh://git:secret@example.com/a/b",
        "a user name or password",
    ),
    (
        "ssh://-oProxyCommand=x/a/b",
        "characters that are not allowed",
    ),
    ("-oProxyCommand=x@host:a/b", "it begins with `-`"),
    (
        "git@-oProxyCommand=x:a/b",
        "characters that are not allowed",
    ),
    ("git@host:--upload-pack=x/y", "a part of its path"),
    ("git@ho st:a/b", "git cannot fetch this address"),
    ("acme/-skills", "-skills is not the name of an owner"),
    ("acme/skills/-x", "a part of its path"),
    ("acme/skills#--upload-pack=x", "not a branch, tag, commit"),
    ("acme/skills#../x", "not a branch, tag, commit"),
    ("acme/skills#a..b", "not a branch, tag, commit"),
    ("acme/skills#a b", "not a branch, tag, commit"),
    ("acme/skills#", "not a branch, tag, commit"),
    ("acme/skills#x.lock", "not a branch, tag, commit"),
    ("acme/skills#@{-1}", "not a branch, tag, commit"),
    ("acme/skills\u{202e}", "control or invisible characters"),
    ("acme/sk\nills", "control or invisible characters"),
    ("acme/skills\0", "control or invisible characters"),
    ("a/b\\c", "b\\c is not the name of an owner"),
    (
        "mcp+https://example.com/mcp",
        "an MCP server cannot be added yet",
    ),
    ("local:pdf", "`local:` is what is recorded of a folder"),
    ("npm:left-pad", "unknown prefix `npm:`"),
    ("clawhub:../x", "no other kind of source"),
    ("clawhub:a@../1", "no other kind of source"),
    ("clawhub:a@1@2", "no other kind of source"),
    ("clawhub:@a/b/c", "`[@owner/]name[@version]`"),
    ("registry:a%2f..", "no other kind of source"),
    ("registry:a?version=1", "no other kind of source"),
    ("registry:https://evil.example/a", "no other kind of source"),
    ("wellknown:http://example.com/pdf", "sites must use https"),
    (
        "wellknown:https://example.com/a@b/pdf",
        "a part of its path",
    ),
    ("@a/b/c", "no such file or folder"),
    ("two words", "no such file or folder"),
];

#[test]
fn tricks_are_refused_before_any_program_or_network_sees_them() {
    let long = "a/".repeat(1_100);
    let long = (long.as_str(), "it is empty or longer than 2,048 bytes");
    for (text, part) in TRICKS.iter().chain([&long]) {
        let message = parse(text).map_err(|bad| bad.to_string());
        let is_expected = matches!(&message, Err(message) if message.contains(part));
        assert!(is_expected, "{text:?}: {message:?}");
    }
}

#[test]
fn a_refusal_never_prints_a_password() {
    for text in [
        "https://ann:secret@git.example.com/a/b.git",
        "https://secret@example.com/SKILL.md",
        "ssh://git:secret@example.com/a/b",
        "ftp://ann:sec@secret@example.com/a",
    ] {
        let bad = Source::parse(text, &ParseOptions::default(), &|_| false).unwrap_err();
        assert!(!bad.to_string().contains("secret"), "{bad}");
    }
    // Whatever stands in the place of an address.
    for text in [
        "https://ann:p@ss/secret@example.com/a",
        "https://ann@b.example:s3/secret@example.com/a",
        "ann:secret@example.com/a/b",
        "https:/ann:secret@example.com/a",
        "//ann:secret@example.com/a",
        "git:ann:secret@example.com/a",
        "git@ann:secret@example.com:a/b",
        "git:https://example.com/a.git//ann:secret@example.com",
        "https://example.com/a//https://ann:secret@example.com/b",
    ] {
        let bad = Source::parse(text, &ParseOptions::default(), &|_| false).unwrap_err();
        assert!(!bad.to_string().contains("secret"), "{bad}");
    }
    // A password that ends the host, and addresses without one.
    for (text, shown) in [
        (
            "https://ann:2026/secret@example.com/a",
            "https://…@example.com/a ",
        ),
        (
            "https://ann:s3?secret@example.com/a",
            "https://…@example.com/a ",
        ),
        (
            "https://ann:s3%00/secret@example.com",
            "https://…@example.com ",
        ),
        (
            "http://docs.example/@acme/pdf.zip",
            "http://docs.example/@acme/pdf.zip ",
        ),
    ] {
        let bad = Source::parse(text, &ParseOptions::default(), &|_| false);
        let bad = bad.expect_err(text).to_string();
        assert!(bad.starts_with(shown) && !bad.contains("secret"), "{bad}");
    }
}

#[test]
fn references_and_paths_come_once() {
    let source = || parse("acme/skills").unwrap();
    assert!(source().with_reference("v1").is_ok());
    assert!(
        source()
            .with_reference("v1")
            .unwrap()
            .with_reference("v2")
            .is_err()
    );
    assert!(source().with_path("a/pdf/").is_ok());
    assert!(source().with_path("../a").is_err());
    assert!(source().with_path("a").unwrap().with_path("b").is_err());
    assert!(
        parse("https://docs.example.com")
            .unwrap()
            .with_reference("v1")
            .is_err()
    );
}

#[test]
fn a_folder_of_any_name_is_recorded_so_that_it_is_found_again() {
    for (folder, recorded) in [
        ("pdf", "pdf"),
        ("sp ace/a", "sp%20ace/a"),
        (" edge ", "%20edge%20"),
        ("@acme/pdf", "%40acme/pdf"),
        ("a:b?c#d@e", "a%3Ab%3Fc%23d%40e"),
        ("nb\u{a0}sp", "nb%C2%A0sp"),
        ("100%", "100%"),
        ("x%20y", "x%2520y"),
        ("x%2fy", "x%252fy"),
        ("café", "café"),
    ] {
        for repository in [
            git("github:acme/skills"),
            git("git:https://git.example.com/acme/skills.git"),
            git("git@git.example.com:acme/skills.git"),
        ] {
            let text = repository.identifier_of(folder);
            let identifier = text.parse().expect(&text);
            assert!(text.ends_with(&format!("/{recorded}")), "{text}");
            let options = ParseOptions::default();
            let source = Source::of_identifier(&identifier, None, &options);
            let Ok(Source::Git(source)) = source else {
                panic!("{text}: {source:?}");
            };
            assert_eq!(source.path.as_deref(), Some(folder), "{text}");
            assert_eq!(source.identifier, repository.identifier);
        }
        let page = "https://github.com/acme/skills/tree/main/packages/@acme/sp%20ace%23";
        assert_eq!(git(page).tail, ["main", "packages", "@acme", "sp ace#"]);
        let inside = parse("acme/skills").unwrap().with_path(folder).unwrap();
        assert!(matches!(inside, Source::Git(git) if git.path.as_deref() == Some(folder)));
    }
}

#[test]
fn what_a_manifest_records_is_read_back() {
    for (identifier, shown) in [
        ("github:acme/skills/pdf", "github.com/acme/skills/pdf"),
        (
            "git:https://git.example.com/acme/skills.git//a/pdf",
            "git.example.com/acme/skills/a/pdf",
        ),
        (
            "wellknown:https://docs.example.com/pdf",
            "https://docs.example.com",
        ),
        (
            "https:https://docs.example.com/a/b/.well-known/agent-skills/pdf",
            "https://docs.example.com/a/b",
        ),
        ("registry:clawhub/openclaw/gifgrep", "clawhub:gifgrep"),
        (
            "https:https://example.com/a/SKILL.md",
            "https://example.com/a/SKILL.md",
        ),
        (
            "https:https://example.com/a.zip",
            "https://example.com/a.zip",
        ),
    ] {
        let id = identifier.parse().expect(identifier);
        let source = Source::of_identifier(&id, None, &ParseOptions::default()).expect(identifier);
        assert_eq!(source.display_name(), shown);
    }
    for identifier in [
        "local:pdf",
        "inline:usr_1",
        "vault:https://x.example/v/acme/pdf",
    ] {
        let id = identifier.parse().expect(identifier);
        assert!(
            Source::of_identifier(&id, None, &ParseOptions::default()).is_err(),
            "{identifier}"
        );
    }
}
