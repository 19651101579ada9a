//! Fetches from registries, npm packages and the sources in lock files of other tools.

use crate::archives::{gzip, sha512, tar_of, zip_of};
use crate::support::{
    Repository, SiteServer, drift, fetch, fetcher, is_up_to_date, names, parse, paths, policy,
    skill_md,
};
use vault_shelf::DriftState;
use vault_sources::{FetchError, MAX_RESULTS, SourcePolicy};
use vault_testing::assert_matches;

#[tokio::test]
async fn a_registry_gives_an_archive_in_the_version_that_was_asked_for() {
    let site = SiteServer::new();
    let archive = zip_of(&[("SKILL.md", 0o644, skill_md("gif").as_bytes())]);
    site.json("/.well-known/clawhub.json", format!(r#"{{"apiBase":"{}","authBase":"x","minCliVersion":"0.0.5"}}"#, site.base))
        .json("/api/v1/skills/gif", r#"{"skill":{"slug":"gif"},"latestVersion":{"version":"1.1.0"},"owner":{"handle":"OpenClaw"}}"#)
        .body("/api/v1/download?slug=gif&version=1.1.0", "application/zip", archive.clone())
        .body("/api/v1/download?slug=gif&version=1.0.0", "application/zip", archive)
        .text("/older/skills/pdf/SKILL.md", skill_md("pdf"))
        .text("/older/skills/pdf/2.0/SKILL.md", skill_md("pdf"));
    let fetcher = fetcher(&site.base);
    let get = async |text: &str| fetch(&fetcher, &parse(text), None).await;
    let skill = get("clawhub:@openclaw/gif").await.unwrap();
    let identifier = skill.upstream.identifier.as_str();
    assert_eq!(identifier, "registry:clawhub/openclaw/gif");
    // A skill whose own name is no name gets the one that the registry has, not the packer's.
    let packed = zip_of(&[("gif-1.1.0/SKILL.md", 0o644, skill_md("gif").as_bytes())]);
    site.body(
        "/api/v1/download?slug=gif&version=1.1.0",
        "application/zip",
        packed,
    );
    for skill in [&skill, &get("clawhub:gif").await.unwrap()] {
        assert_eq!(skill.folder.as_deref(), Some("gif"));
    }
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
        is_rewritten: false,
    };
    assert_eq!(drift(&fetcher, &skill).await, drifted);
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
    let refused = fetcher
        .open_source(&parse("clawhub:gif"), None, &listed)
        .await;
    let refused = refused.unwrap_err();
    assert_matches!(&refused, FetchError::Policy { place, .. } if place.contains("github.com/evil/skills"));
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
            "root":{{"source":"acme/skills","sourceType":"github","skillPath":"SKILL.md"}},
            "here":{{"source":"./skills/here","sourceType":"local","computedHash":"x"}},
            "below":{{"source":"./up","sourceType":"local","skillPath":"skills/below/SKILL.md"}},
            "site":{{"source":"docs.example.com","sourceUrl":"https://docs.example.com/.well-known/agent-skills/index.json","sourceType":"well-known"}},
            "npm":{{"source":"left-pad","sourceType":"npm"}},
            "evil":{{"source":"--upload-pack=x","sourceType":"git"}}}}}}"#,
        repository.address()
    );
    let entries = vault_sources::locks::parse_lock(
        lock.as_bytes(),
        std::path::Path::new("/project"),
        &crate::support::options(),
    )
    .unwrap();
    let find = |name: &str| {
        let entry = entries.iter().find(|entry| entry.name == name).unwrap();
        match &entry.source {
            Ok(source) => source.display_name(),
            Err(bad) => format!("no: {bad}"),
        }
    };
    assert_eq!(find("pdf"), "github.com/acme/skills/skills/pdf");
    assert_eq!(find("here"), "/project/./skills/here");
    assert_eq!(find("site"), "https://docs.example.com");
    assert!(find("npm").contains("sources of the type npm"));
    assert!(find("evil").starts_with("no: "));
    for (name, skill) in [
        ("pdf", Some("./skills/pdf")),
        ("csv", Some("csv")),
        ("git", Some("./skills/pdf")),
        ("root", Some(".")),
        ("here", Some("here")),
        ("below", Some("./skills/below")),
        ("site", None),
    ] {
        let entry = entries.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(entry.skill.as_deref(), skill, "{name}");
    }
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
        vault_sources::locks::parse_lock(
            b"[]",
            std::path::Path::new("/"),
            &crate::support::options()
        )
        .is_err()
    );
}

/// A repository with a marketplace of three plugins, which are one npm package.
fn market() -> Repository {
    let repository = Repository::new();
    let source = r#""source":{"source":"npm","package":"@acme/tools"}"#;
    let one = r#""strict":false,"skills":["./skills/pdf"]"#;
    let inner = r#""strict":false,"skills":["./skills/csv/inner"]"#;
    repository.write(
        ".claude-plugin/marketplace.json",
        format!(
            r#"{{"plugins":[{{"name":"tagged",{source}}},{{"name":"one",{one},{source}}},{{"name":"inner",{inner},{source}}}]}}"#
        ),
    );
    repository.commit();
    repository
}

/// An npm registry with one version of a package.
fn npm_registry() -> SiteServer {
    let (pdf, csv, inner) = (skill_md("pdf"), skill_md("csv"), skill_md("inner"));
    let package = gzip(&tar_of(&[
        ("package/package.json", 0o644, b"{}"),
        ("package/SKILL.md", 0o644, b"not one of the plugin's"),
        ("package/skills/pdf/SKILL.md", 0o644, pdf.as_bytes()),
        ("package/skills/pdf/run.sh", 0o755, b"#!/bin/sh\n"),
        ("package/skills/csv/SKILL.md", 0o644, csv.as_bytes()),
        ("package/skills/csv/inner/SKILL.md", 0o644, inner.as_bytes()),
        ("package/node_modules/x/SKILL.md", 0o644, b"another's"),
    ]));
    let site = SiteServer::new();
    let (base, digest) = (&site.base, sha512(&package));
    let dist = format!(
        r#"{{"tarball":"{base}/tools-1.2.3.tgz","shasum":"x","integrity":"sha1-AAAA {digest}"}}"#
    );
    site.json(
        "/npm/@acme%2Ftools/latest",
        format!(r#"{{"name":"@acme/tools","version":"1.2.3","dist":{dist}}}"#),
    )
    .body("/tools-1.2.3.tgz", "application/octet-stream", package);
    site
}

#[tokio::test]
async fn a_plugin_may_be_an_npm_package() {
    let site = npm_registry();
    let repository = market();
    let fetcher = fetcher(&site.base);
    let policy = SourcePolicy::default();
    let source = parse(&repository.address());
    let plugin = async |name: &str| fetcher.open_source(&source, Some(name), &policy).await;

    let opened = plugin("tagged").await.unwrap();
    assert_eq!(names(&opened), ["csv", "pdf"]);
    let notice = &opened.notes[0];
    assert!(
        notice.contains("the npm package @acme/tools@1.2.3"),
        "{notice}"
    );
    let skill = fetcher
        .take_skill(&opened, &opened.listing.skills[1], &policy)
        .await;
    let skill = skill.unwrap();
    assert_eq!(paths(&skill), ["SKILL.md", "run.sh"]);
    let identifier = skill.upstream.identifier.as_str();
    assert!(identifier.ends_with("/tools-1.2.3.tgz"));
    assert_eq!(skill.upstream.path.as_deref(), Some("skills/pdf"));
    let one = plugin("one").await.unwrap();
    assert_eq!(one.listing.skills.len(), 1);
    // A folder inside of another skill is found again by its own path.
    let opened = plugin("inner").await.unwrap();
    let inner = &opened.listing.skills[0];
    let inner = fetcher.take_skill(&opened, inner, &policy).await.unwrap();
    let again = fetcher.fetch_recorded(&inner.upstream, &policy).await;
    assert_eq!(again.unwrap().files[0].bytes, inner.files[0].bytes);

    // The registry receives no request if the owner's policy rejects it.
    let asked = site.asked().len();
    let listed = crate::support::policy("[sources]\nallow = [\"git:file:*\", \"github.com/*\"]\n");
    let refused = fetcher.open_source(&source, Some("tagged"), &listed).await;
    assert_matches!(refused, Err(FetchError::Policy { .. }));
    assert_eq!(site.asked().len(), asked);
}

#[tokio::test]
async fn a_search_takes_a_bounded_part_of_what_a_registry_sends() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let search = async |limit| {
        let policy = SourcePolicy::default();
        fetcher.search_registry("read pdf", limit, &policy).await
    };
    let item = |slug: &str| format!(r#"{{"slug":"{slug}","summary":"reads"}}"#);
    let answer = |items: &[String]| format!(r#"{{"results":[{}]}}"#, items.join(","));
    let named = r#"{"slug":"gif","summary":null,"ownerHandle":"openclaw","score":0.5}"#.to_owned();
    let unusable = [
        item("../x"),
        item("-x"),
        item("a b"),
        item("a/b"),
        item("a\\u001b[2J"),
        item(""),
        r#"{"summary":"no name"}"#.to_owned(),
        r#"["pdf"]"#.to_owned(),
        r#"{"slug":"x","ownerHandle":7}"#.to_owned(),
    ];
    let items = [&[item("pdf"), named][..], &unusable].concat();
    site.json("/api/v1/search?q=read+pdf&limit=20", answer(&items));
    let found = search(20).await.unwrap();
    let slugs: Vec<_> = found.results.iter().map(|hit| hit.slug.as_str()).collect();
    assert_eq!(slugs, ["pdf", "gif"]);
    assert_eq!(found.results[1].source(), parse("clawhub:@openclaw/gif"));
    assert_eq!(found.results[0].source(), parse("clawhub:pdf"));
    assert_eq!((found.found, found.unusable), (11, unusable.len()));

    let many: Vec<_> = (0..10_000).map(|at| item(&format!("s{at}"))).collect();
    site.json("/api/v1/search", answer(&many));
    let found = search(usize::MAX).await.unwrap();
    assert_eq!(found.results.len(), MAX_RESULTS);
    assert_eq!((found.found, found.unusable), (10_000, 0));
    site.json("/api/v1/search", answer(&[item(&"x".repeat(1 << 20))]));
    assert_matches!(search(5).await, Err(FetchError::TooLarge { .. }));
    for wrong in ["[]", "{\"results\":7}", "<html>", ""] {
        site.json("/api/v1/search", wrong);
        assert_matches!(search(5).await, Err(FetchError::Content { .. }), "{wrong}");
    }
}

#[tokio::test]
async fn a_search_goes_where_the_policy_allows_and_to_no_private_address() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let closed = policy("[sources]\nallow = [\"github.com/acme/*\"]\n");
    let refused = fetcher.search_registry("pdf", 5, &closed).await;
    assert_matches!(refused, Err(FetchError::Policy { .. }));
    assert_eq!(site.asked(), [""; 0], "the words reach nobody");
    let open = SourcePolicy::default();
    for private in [
        "https://10.0.0.7/x",
        "https://169.254.169.254/",
        "https://[fd00::1]/",
    ] {
        site.redirect("/api/v1/search", private);
        let refused = fetcher.search_registry("pdf", 5, &open).await;
        assert_matches!(refused, Err(FetchError::NotPublic(_)), "{private}");
    }
    // The registry may not send the words to a host that no pattern names.
    let listed = policy("[sources]\nallow = [\"clawhub:pdf\"]\n");
    site.redirect("/api/v1/search", "https://elsewhere.example/");
    let refused = fetcher.search_registry("pdf", 5, &listed).await;
    assert_matches!(refused, Err(FetchError::Policy { .. }));
}
