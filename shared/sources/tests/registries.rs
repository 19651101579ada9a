//! Fetches from registries, npm packages and the sources in lock files of other tools.

use base64::Engine as _;
use sha2::{Digest as _, Sha512};

use crate::archives::{gzip, tar_of, zip_of};
use crate::support::{
    Repository, SiteServer, code, drift, fetch, fetcher, is_up_to_date, names, open, parse, paths,
    policy, skill_md,
};
use vault_shelf::DriftState;
use vault_sources::{FetchError, Source, SourcePolicy};
use vault_testing::assert_matches;

#[tokio::test]
async fn a_registry_gives_an_archive_in_the_version_that_was_asked_for() {
    let site = SiteServer::new();
    let archive = zip_of(&[("SKILL.md", 0o644, skill_md("gif").as_bytes())]);
    site.json("/.well-known/clawhub.json", format!(r#"{{"apiBase":"{}","authBase":"x","minCliVersion":"0.0.5"}}"#, site.base))
        .json("/api/v1/skills/gif", r#"{"skill":{"slug":"gif"},"latestVersion":{"version":"1.1.0"},"owner":{"handle":"OpenClaw"}}"#)
        .json("/api/v1/skills/bad", r#"{"latestVersion":{"version":"1.0.0"},"owner":null,"moderation":{"isMalwareBlocked":true}}"#)
        .json("/api/v1/skills/worse", r#"{"latestVersion":{"version":"1.0.0"}}"#)
        .json("/api/v1/skills/worse/verify", r#"{"ok":false,"decision":"block","reasons":["steals keys"]}"#)
        .body("/api/v1/download?slug=gif&version=1.1.0", "application/zip", archive.clone())
        .body("/api/v1/download?slug=gif&version=1.0.0", "application/zip", archive)
        .text("/older/skills/pdf/SKILL.md", skill_md("pdf"))
        .text("/older/skills/pdf/2.0/SKILL.md", skill_md("pdf"));
    let fetcher = fetcher(&site.base);
    let get = async |text: &str| fetch(&fetcher, &parse(text), None).await;
    let skill = get("clawhub:@openclaw/gif").await.unwrap();
    let identifier = skill.upstream.identifier.as_str();
    assert_eq!(identifier, "registry:clawhub/openclaw/gif");
    assert_eq!(skill.upstream.revision.as_deref(), Some("1.1.0"));
    assert!(is_up_to_date(&fetcher, &skill).await);
    let old = get("clawhub:gif@1.0.0").await.unwrap();
    assert!(is_up_to_date(&fetcher, &old).await, "asked for by version");
    site.json(
        "/api/v1/skills/gif",
        r#"{"latestVersion":{"version":"2.0.0"},"owner":{"handle":"openclaw"}}"#,
    );
    let drifted = DriftState::Drifted {
        recorded: "1.1.0".to_owned(),
        upstream: "2.0.0".to_owned(),
    };
    assert_eq!(drift(&fetcher, &skill).await, drifted);
    for (text, said) in [
        ("clawhub:@mallory/gif", "published by openclaw"),
        ("clawhub:bad", "malware"),
        ("clawhub:worse", "steals keys"),
        ("clawhub:none", "has no skill none"),
        ("clawhub:gif@9.9.9", "in version 9.9.9"),
    ] {
        let refused = get(text).await.unwrap_err();
        assert!(refused.to_string().contains(said), "{text}: {refused}");
    }
    let pdf = get("registry:pdf").await.unwrap();
    assert_eq!(pdf.upstream.identifier.as_str(), "registry:127.0.0.1/pdf");
    assert!(is_up_to_date(&fetcher, &pdf).await);
    let two = get("registry:pdf@2.0").await.unwrap();
    assert_eq!(two.upstream.revision.as_deref(), Some("2.0"));
}

#[tokio::test]
async fn a_registry_that_hands_over_to_a_repository_is_held_to_the_policy_there() {
    let site = SiteServer::new();
    let commit = "0123456789012345678901234567890123456789";
    site.json("/api/v1/skills/gif", r#"{"latestVersion":{"version":"1.0.0"}}"#).json(
        "/api/v1/download",
        format!(r#"{{"sourceRef":"public-github","repo":"evil/skills","commit":"{commit}","path":"skills/gif","contentHash":"x","archiveUrl":"https://x.example/a.zip"}}"#),
    );
    let fetcher = fetcher(&site.base);
    let listed = policy("[sources]\nallow = [\"clawhub:*\", \"github.com/acme/*\"]\n");
    let refused = fetcher.open(&parse("clawhub:gif"), None, &listed).await;
    let refused = refused.unwrap_err();
    assert_matches!(&refused, FetchError::Policy { place, .. } if place.contains("github.com/evil/skills"));
    site.json(
        "/api/v1/download",
        r#"{"sourceRef":"public-github","repo":"evil/skills","commit":"main","path":"x"}"#,
    );
    let malformed = open(&fetcher, &parse("clawhub:gif")).await;
    assert_eq!(code(malformed), "source_malformed");
}

#[tokio::test]
async fn lock_files_of_another_tool_name_their_sources() {
    let repository = Repository::new();
    repository.write("skills/pdf/SKILL.md", skill_md("pdf"));
    repository.commit();
    let lock = format!(
        r#"{{"version":1,"skills":{{
            "pdf":{{"source":"acme/skills","sourceType":"github","skillPath":"skills/pdf/SKILL.md","ref":"v1","computedHash":"x"}},
            "csv":{{"source":"acme/skills","sourceType":"github","computedHash":"x"}},
            "git":{{"source":"x","sourceUrl":"{}","sourceType":"git","skillPath":"skills/pdf"}},
            "here":{{"source":"./skills/here","sourceType":"local","computedHash":"x"}},
            "site":{{"source":"docs.example.com","sourceUrl":"https://docs.example.com/.well-known/agent-skills/index.json","sourceType":"well-known"}},
            "npm":{{"source":"left-pad","sourceType":"npm"}},
            "evil":{{"source":"--upload-pack=x","sourceType":"git"}}}}}}"#,
        repository.address()
    );
    let entries = vault_sources::locks::read(
        lock.as_bytes(),
        std::path::Path::new("/project"),
        &crate::support::options(),
    )
    .unwrap();
    let find = |name: &str| {
        let entry = entries.iter().find(|entry| entry.name == name).unwrap();
        match &entry.source {
            Ok(source) => source.shown(),
            Err(bad) => format!("no: {bad}"),
        }
    };
    assert_eq!(find("pdf"), "github.com/acme/skills/skills/pdf");
    assert_eq!(find("here"), "/project/./skills/here");
    assert_eq!(find("site"), "https://docs.example.com");
    assert!(find("npm").contains("sources of the type npm"));
    assert!(find("evil").starts_with("no: "));
    let csv = entries.iter().find(|entry| entry.name == "csv").unwrap();
    assert_matches!(&csv.source, Ok(Source::Git(git)) if git.skill.as_deref() == Some("csv"));
    let git = entries.iter().find(|entry| entry.name == "git").unwrap();
    let skill = fetch(
        &fetcher("http://127.0.0.1:9"),
        git.source.as_ref().unwrap(),
        None,
    )
    .await
    .unwrap();
    assert_eq!(paths(&skill), ["SKILL.md"]);
    assert!(
        vault_sources::locks::read(b"[]", std::path::Path::new("/"), &crate::support::options())
            .is_err()
    );
}

/// A repository with a marketplace whose plugins are versions of one npm package.
fn market(versions: &[&str]) -> Repository {
    let repository = Repository::new();
    let plugins: Vec<String> = versions
        .iter()
        .map(|version| {
            format!(
                r#"{{"name":"{version}","source":{{"source":"npm","package":"@acme/tools","version":"{version}"}}}}"#
            )
        })
        .chain([
            r#"{"name":"tagged","source":{"source":"npm","package":"@acme/tools"}}"#.to_owned(),
            r#"{"name":"one","strict":false,"skills":["./skills/pdf"],"source":{"source":"npm","package":"@acme/tools"}}"#.to_owned(),
        ])
        .collect();
    repository.write(
        ".claude-plugin/marketplace.json",
        format!(r#"{{"name":"acme","plugins":[{}]}}"#, plugins.join(",")),
    );
    repository.commit();
    repository
}

/// An npm registry with one good version of a package, `latest`, and five that are not as
/// announced.
fn npm_registry() -> SiteServer {
    let (pdf, csv) = (skill_md("pdf"), skill_md("csv"));
    let package = gzip(&tar_of(&[
        ("package/package.json", 0o644, b"{}"),
        ("package/SKILL.md", 0o644, b"not one of the plugin's"),
        ("package/skills/pdf/SKILL.md", 0o644, pdf.as_bytes()),
        ("package/skills/pdf/run.sh", 0o755, b"#!/bin/sh\n"),
        ("package/skills/csv/SKILL.md", 0o644, csv.as_bytes()),
        ("package/node_modules/x/SKILL.md", 0o644, b"another's"),
    ]));
    let empty = gzip(&tar_of(&[("package/package.json", 0o644, b"{}")]));
    let sha512 = |bytes: &[u8]| {
        let digest = base64::engine::general_purpose::STANDARD.encode(Sha512::digest(bytes));
        format!("sha512-{digest}")
    };
    let site = SiteServer::new();
    let describe = |version: &str, archive: &str, integrity: &str| {
        let base = &site.base;
        site.json(
            &format!("/npm/@acme%2Ftools/{version}"),
            format!(
                r#"{{"name":"@acme/tools","version":"1.2.3","dist":{{"tarball":"{base}/{archive}","shasum":"x"{integrity}}}}}"#
            ),
        );
    };
    let named = |digest: String| format!(r#","integrity":"sha1-AAAA {digest}""#);
    site.body(
        "/tools-1.2.3.tgz",
        "application/octet-stream",
        package.clone(),
    )
    .body("/empty.tgz", "application/octet-stream", empty.clone());
    describe("latest", "tools-1.2.3.tgz", &named(sha512(&package)));
    describe("1.0.0", "tools-1.2.3.tgz", &named(sha512(b"another")));
    describe("1.0.1", "tools-1.2.3.tgz", "");
    describe("1.0.2", "gone.tgz", &named(sha512(&package)));
    describe("1.0.3", "empty.tgz", &named(sha512(&empty)));
    site.json("/npm/@acme%2Ftools/1.0.4", "<html>");
    site
}

#[tokio::test]
async fn a_plugin_that_is_an_npm_package_is_held_to_its_digest() {
    let site = npm_registry();
    let versions = ["1.0.0", "1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.0.5"];
    let repository = market(&versions);
    let fetcher = fetcher(&site.base);
    let policy = SourcePolicy::default();
    let source = parse(&repository.address());
    let plugin = async |name: &str| fetcher.open(&source, Some(name), &policy).await;

    let opened = plugin("tagged").await.unwrap();
    assert_eq!(names(&opened), ["csv", "pdf"]);
    let notice = &opened.notices[0];
    assert!(
        notice.contains("the npm package @acme/tools@1.2.3"),
        "{notice}"
    );
    let skill = fetcher.take(&opened, &opened.found[1], &policy).await;
    let skill = skill.unwrap();
    assert_eq!(paths(&skill), ["SKILL.md", "run.sh"]);
    let identifier = skill.upstream.identifier.as_str();
    assert!(identifier.ends_with("/tools-1.2.3.tgz"));
    assert_eq!(skill.upstream.path.as_deref(), Some("package/skills/pdf"));
    let one = plugin("one").await.unwrap();
    assert_eq!(one.found.len(), 1);

    for (name, said) in [
        ("1.0.0", "not the announced"),
        ("1.0.1", "no SHA-512"),
        ("1.0.2", "gone.tgz"),
        ("1.0.3", "holds no skills"),
        ("1.0.4", "cannot be read"),
        ("1.0.5", "no package @acme/tools@1.0.5"),
    ] {
        let refused = plugin(name).await.unwrap_err().to_string();
        assert!(refused.contains(said), "{name}: {refused}");
    }

    // The registry receives no request if the owner's policy rejects it.
    let asked = site.asked().len();
    let listed = crate::support::policy("[sources]\nallow = [\"git:file:*\", \"github.com/*\"]\n");
    let refused = fetcher.open(&source, Some("tagged"), &listed).await;
    assert_matches!(refused, Err(FetchError::Policy { .. }));
    assert_eq!(site.asked().len(), asked);
}
