//! Sites, registries and archives: what is fetched and checked, and every way in which a server misbehaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha512};
use support::{
    Answer, Repository, SiteServer, fetch, fetcher, open, parse, paths, settings, skill_md,
};
use vault_skill::hash::Digest;
use vault_skill::manifest::Mode;
use vault_skill::policy::Policy;
use vault_sources::compare::Round;
use vault_sources::site::SCHEMA;
use vault_sources::{FetchError, Fetcher, Source, SourcePolicy, Tokens};
use vault_store::clock::TestClock;
use vault_store::fetch::Fetch;
use vault_store::shelf::DriftState;

type File<'a> = (&'a str, u32, &'a [u8]);

fn tar_of(files: &[File<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(*mode);
        // As hostile archives are written: nothing looks at the name.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip_of(files: &[File<'_>]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (path, mode, bytes) in files {
        let options = zip::write::SimpleFileOptions::default().unix_permissions(*mode);
        writer.start_file(*path, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn index(entries: &str) -> String {
    format!(r#"{{"$schema":"{SCHEMA}","skills":[{entries}]}}"#)
}

#[tokio::test]
async fn archives_of_each_form_give_the_same_skill() {
    let document = skill_md("pdf");
    let plain: [File<'_>; 2] = [
        ("SKILL.md", 0o644, document.as_bytes()),
        ("bin/run", 0o755, b"#!/bin/sh\n"),
    ];
    let wrapped: [File<'_>; 4] = [
        ("pdf-1.2/SKILL.md", 0o644, document.as_bytes()),
        ("pdf-1.2/bin/run", 0o755, b"#!/bin/sh\n"),
        ("pdf-1.2/.DS_Store", 0o644, b"x"),
        ("__MACOSX/pdf-1.2/._SKILL.md", 0o644, b"x"),
    ];
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    for (name, bytes) in [
        ("a.zip", zip_of(&plain)),
        ("a.tar", tar_of(&plain)),
        ("a.tar.gz", gzip(&tar_of(&plain))),
        ("b.zip", zip_of(&wrapped)),
        ("b.tgz", gzip(&tar_of(&wrapped))),
    ] {
        site.put(
            &format!("/{name}"),
            Answer::Body("application/octet-stream", bytes.clone()),
        );
        let source = parse(&format!("{}/{name}", site.base));
        let skill = fetch(&fetcher, &source, None).await.unwrap();
        assert_eq!(paths(&skill), ["SKILL.md", "bin/run"], "{name}");
        let run = skill
            .files
            .iter()
            .find(|file| file.path == "bin/run")
            .unwrap();
        assert_eq!(run.mode, Mode::Executable, "{name}");
        assert_eq!(
            skill.upstream.revision,
            Some(format!("sha256:{}", Digest::of(&bytes)))
        );
        assert_eq!(
            fetcher
                .drift(&skill.upstream, &SourcePolicy::default())
                .await,
            DriftState::UpToDate,
            "{name}"
        );
    }
}

#[tokio::test]
async fn hostile_archives_are_refused_while_reading() {
    let document = skill_md("pdf");
    let good: File<'_> = ("SKILL.md", 0o644, document.as_bytes());
    let zeroes = vec![0_u8; 26 << 20];
    let names: Vec<String> = (0..1_001).map(|at| format!("f{at}")).collect();
    let mut many = vec![good];
    many.extend(names.iter().map(|name| (name.as_str(), 0o644, &b""[..])));
    let mut link = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_path("SKILL.md").unwrap();
    header.set_link_name("/etc/passwd").unwrap();
    header.set_size(0);
    header.set_cksum();
    link.append(&header, &b""[..]).unwrap();
    let mut fifo = tar::Builder::new(Vec::new());
    header.set_entry_type(tar::EntryType::Fifo);
    header.set_cksum();
    fifo.append(&header, &b""[..]).unwrap();
    let mut zip_link = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip_link
        .add_symlink(
            "SKILL.md",
            "/etc/passwd",
            zip::write::SimpleFileOptions::default(),
        )
        .unwrap();
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    for (what, bytes) in [
        (
            "bomb.tar.gz",
            gzip(&tar_of(&[good, ("zeroes", 0o644, &zeroes)])),
        ),
        ("bomb.zip", zip_of(&[good, ("zeroes", 0o644, &zeroes)])),
        ("many.zip", zip_of(&many)),
        ("many.tar", tar_of(&many)),
        ("up.tar", tar_of(&[good, ("../../evil", 0o644, b"x")])),
        ("absolute.tar", tar_of(&[good, ("/etc/evil", 0o644, b"x")])),
        ("up.zip", zip_of(&[good, ("a/../../evil", 0o644, b"x")])),
        ("back.zip", zip_of(&[good, ("a\\..\\evil", 0o644, b"x")])),
        ("link.tar", link.into_inner().unwrap()),
        ("fifo.tar", fifo.into_inner().unwrap()),
        ("link.zip", zip_link.finish().unwrap().into_inner()),
        ("cut.zip", zip_of(&[good])[..40].to_vec()),
        ("cut.tar.gz", gzip(&tar_of(&[good]))[..30].to_vec()),
        ("text.zip", b"no archive at all".to_vec()),
        ("empty.zip", zip_of(&[])),
        ("none.zip", zip_of(&[("README.md", 0o644, b"x")])),
    ] {
        site.put(&format!("/{what}"), Answer::Body("application/zip", bytes));
        let refused = fetch(&fetcher, &parse(&format!("{}/{what}", site.base)), None).await;
        assert!(
            matches!(
                &refused,
                Err(FetchError::TooLarge { .. }
                    | FetchError::Content { .. }
                    | FetchError::NotFound(_))
            ),
            "{what}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_pinned_index_is_held_to_its_digests() {
    let site = SiteServer::new();
    let archive = gzip(&tar_of(&[
        ("SKILL.md", 0o644, skill_md("pdf").as_bytes()),
        ("a.md", 0o644, b"a"),
    ]));
    let csv = skill_md("csv");
    let (one, two) = (Digest::of(&archive), Digest::of(csv.as_bytes()));
    let entries = format!(
        r#"{{"name":"pdf","type":"archive","description":"Work with PDF.","url":"pdf.tar.gz","digest":"sha256:{one}","more":1}},
           {{"name":"csv","type":"skill-md","url":"/files/csv/SKILL.md","digest":"sha256:{two}"}},
           {{"name":"lie","type":"archive","url":"pdf.tar.gz","digest":"sha256:{two}"}},
           {{"name":"odd","type":"hologram","url":"x","digest":"sha256:{two}"}},
           {{"name":"bare","type":"skill-md","url":"x"}},
           {{"name":"../up","type":"skill-md","url":"x","digest":"sha256:{two}"}},
           {{"type":"skill-md"}}"#
    );
    site.json("/.well-known/agent-skills/index.json", index(&entries))
        .put(
            "/.well-known/agent-skills/pdf.tar.gz",
            Answer::Body("application/gzip", archive),
        )
        .text("/files/csv/SKILL.md", csv);
    let fetcher = fetcher(&site.base);
    let source = parse(&site.base);
    let opened = open(&fetcher, &source).await.unwrap();
    let names: Vec<_> = opened
        .found
        .iter()
        .map(|found| found.name.as_str())
        .collect();
    assert_eq!(names, ["pdf", "csv", "lie"]);
    assert_eq!(opened.notices.len(), 4, "{:?}", opened.notices);
    assert_eq!(
        opened.found[0].description.as_deref(),
        Some("Work with PDF.")
    );
    let pdf = fetch(&fetcher, &source, Some("pdf")).await.unwrap();
    assert_eq!(paths(&pdf), ["SKILL.md", "a.md"]);
    assert_eq!(pdf.upstream.revision, Some(format!("sha256:{one}")));
    assert!(
        pdf.upstream
            .identifier
            .as_str()
            .starts_with("wellknown:https://127.0.0.1:")
    );
    assert_eq!(
        paths(&fetch(&fetcher, &source, Some("csv")).await.unwrap()),
        ["SKILL.md"]
    );
    let lied = fetch(&fetcher, &source, Some("lie")).await;
    assert!(matches!(lied, Err(FetchError::Digest { .. })), "{lied:?}");
    // One skill of it by name, and what has changed since.
    let named = parse(&format!("wellknown:{}/csv", site.base));
    assert_eq!(open(&fetcher, &named).await.unwrap().found.len(), 1);
    let policy = SourcePolicy::default();
    assert_eq!(
        fetcher.drift(&pdf.upstream, &policy).await,
        DriftState::UpToDate
    );
    // The skills of one site cost one look at its index.
    let csv = fetch(&fetcher, &source, Some("csv")).await.unwrap();
    let (round, before) = (Round::default(), site.asked().len());
    for skill in [&pdf, &csv] {
        assert_eq!(
            fetcher.drift_in(&round, &skill.upstream, &policy).await,
            DriftState::UpToDate
        );
    }
    assert_eq!(site.asked().len(), before + 1);
    // So they do for who asks through the port.
    let port: Arc<dyn Fetch> = Arc::new(support::fetcher(&site.base));
    let (round, before) = (port.round(), site.asked().len());
    for skill in [&pdf, &csv] {
        let state = round.compare(&skill.upstream, None).await;
        assert_eq!(state, DriftState::UpToDate);
    }
    assert_eq!(site.asked().len(), before + 1);
    site.json(
        "/.well-known/agent-skills/index.json",
        index(&entries.replace(&one.to_string(), &two.to_string())),
    );
    assert!(matches!(
        fetcher.drift(&pdf.upstream, &policy).await,
        DriftState::Drifted { .. }
    ));
    site.json(
        "/.well-known/agent-skills/index.json",
        r#"{"$schema":"https://example.com/other","skills":[]}"#,
    );
    assert!(
        matches!(
            open(&fetcher, &source).await,
            Err(FetchError::Content { .. })
        ),
        "a schema that nobody knows"
    );
}

#[tokio::test]
async fn the_older_index_is_taken_with_a_warning_and_never_where_digests_are_asked_for() {
    let site = SiteServer::new();
    site.json(
        "/.well-known/skills/index.json",
        r#"{"skills":[{"name":"pdf","description":"x","files":["SKILL.md","docs/a.md"]},{"name":"up","files":["SKILL.md","../../../etc/x"]},{"name":"none","files":["a.md"]}]}"#,
    )
    .text("/.well-known/skills/pdf/SKILL.md", skill_md("pdf"))
    .text("/.well-known/skills/pdf/docs/a.md", "a")
    .text("/.well-known/skills/up/SKILL.md", skill_md("up"));
    let fetcher = fetcher(&site.base);
    let source = parse(&site.base);
    let opened = open(&fetcher, &source).await.unwrap();
    assert!(
        opened.notices[0].starts_with("unpinned"),
        "{:?}",
        opened.notices
    );
    let skill = fetch(&fetcher, &source, Some("pdf")).await.unwrap();
    assert_eq!(paths(&skill), ["SKILL.md", "docs/a.md"]);
    let policy = SourcePolicy::default();
    assert_eq!(
        fetcher.drift(&skill.upstream, &policy).await,
        DriftState::UpToDate
    );
    site.text("/.well-known/skills/pdf/docs/a.md", "b");
    assert!(matches!(
        fetcher.drift(&skill.upstream, &policy).await,
        DriftState::Drifted { .. }
    ));
    assert!(matches!(
        fetch(&fetcher, &source, Some("up")).await,
        Err(FetchError::Content { .. })
    ));
    let signed = SourcePolicy::new(Some(
        &Policy::from_toml("[sources]\nsigned_only = true\n").unwrap(),
    ));
    let refused = fetcher.open(&source, None, &signed).await;
    assert!(
        matches!(refused, Err(FetchError::Policy { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn redirects_end_and_never_lead_inside() {
    let site = SiteServer::new();
    site.text("/end/SKILL.md", skill_md("end"))
        .put("/one/SKILL.md", Answer::To("/two/SKILL.md".to_owned()))
        .put("/two/SKILL.md", Answer::To("/end/SKILL.md".to_owned()))
        .put("/loop/SKILL.md", Answer::To("/loop/SKILL.md".to_owned()))
        .put("/gone/SKILL.md", Answer::Status(410))
        .put("/secret/SKILL.md", Answer::Status(403))
        .put(
            "/wait/SKILL.md",
            Answer::Raw(
                b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n".to_vec(),
            ),
        )
        .put(
            "/page/SKILL.md",
            Answer::Body("text/html; charset=utf-8", b"<html>".to_vec()),
        );
    for (at, to) in [
        ("private", "https://10.0.0.1/x"),
        ("cloud", "https://169.254.169.254/latest/meta-data"),
        ("six", "https://[fd00::1]/x"),
        ("mapped", "https://[::ffff:10.0.0.1]/x"),
    ] {
        site.put(&format!("/{at}/SKILL.md"), Answer::To(to.to_owned()));
    }
    for (at, to) in [
        ("file", "file:///etc/passwd"),
        ("plain", "http://example.com/x"),
        ("user", "https://a:b@example.com/x"),
    ] {
        site.put(&format!("/{at}/SKILL.md"), Answer::To(to.to_owned()));
    }
    let fetcher = fetcher(&site.base);
    let get = async |at: &str| {
        fetch(
            &fetcher,
            &parse(&format!("{}/{at}/SKILL.md", site.base)),
            None,
        )
        .await
    };
    assert!(get("one").await.is_ok());
    for at in ["private", "cloud", "six", "mapped"] {
        let refused = get(at).await;
        assert!(
            matches!(refused, Err(FetchError::NotPublic(_))),
            "{at}: {refused:?}"
        );
    }
    for at in ["loop", "file", "plain", "user"] {
        let refused = get(at).await;
        assert!(
            matches!(refused, Err(FetchError::Unreachable { .. })),
            "{at}: {refused:?}"
        );
    }
    assert!(matches!(get("gone").await, Err(FetchError::NotFound(_))));
    assert!(matches!(
        get("secret").await,
        Err(FetchError::NotAllowed { .. })
    ));
    assert!(matches!(get("page").await, Err(FetchError::Content { .. })));
    assert!(
        get("wait")
            .await
            .unwrap_err()
            .to_string()
            .contains("asks to wait 7 s")
    );
    // With a list of allowed places another host is asked for like the first one.
    let host = site.base.trim_start_matches("http://").to_owned();
    site.put(
        "/away/SKILL.md",
        Answer::To(site.base.replace("127.0.0.1", "localhost") + "/end/SKILL.md"),
    );
    let listed = SourcePolicy::new(Some(
        &Policy::from_toml(&format!("[sources]\nallow = [\"{host}/*\"]\n")).unwrap(),
    ));
    let source = parse(&format!("{}/away/SKILL.md", site.base));
    let refused = fetcher.open(&source, None, &listed).await;
    assert!(
        matches!(refused, Err(FetchError::Policy { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn bodies_that_do_not_end_are_cut() {
    let site = SiteServer::new();
    site.put("/endless/SKILL.md", Answer::Endless)
        .put("/stalls/SKILL.md", Answer::Stalls)
        .put(
            "/lies/SKILL.md",
            Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nx".to_vec()),
        )
        .put(
            "/packed/SKILL.md",
            Answer::Raw(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec(),
            ),
        )
        .put("/.well-known/agent-skills/index.json", Answer::Endless)
        .put("/endless.zip", Answer::Endless);
    let fetcher = fetcher(&site.base);
    let get = async |at: &str| fetch(&fetcher, &parse(&format!("{}{at}", site.base)), None).await;
    for at in ["/endless/SKILL.md", "/lies/SKILL.md", "/endless.zip", ""] {
        let refused = get(at).await;
        assert!(
            matches!(refused, Err(FetchError::TooLarge { .. })),
            "{at}: {refused:?}"
        );
    }
    let refused = get("/stalls/SKILL.md").await.unwrap_err();
    assert!(
        refused.to_string().contains("it sends less than"),
        "{refused}"
    );
    assert!(matches!(
        get("/packed/SKILL.md").await,
        Err(FetchError::Content { .. })
    ));
}

#[tokio::test]
async fn without_the_test_flag_no_request_reaches_this_machine() {
    let site = SiteServer::new();
    let mut closed = settings(&site.base);
    closed.parse.loopback = false;
    let fetcher = Fetcher::new(
        closed,
        std::sync::Arc::new(vault_store::clock::TestClock::default()),
    );
    let port = site.base.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{port}/SKILL.md").parse().unwrap();
        let refused = open(&fetcher, &Source::SkillMd(url)).await;
        assert!(
            matches!(refused, Err(FetchError::NotPublic(_))),
            "{host}: {refused:?}"
        );
        let url = format!("http://{host}:{port}/SKILL.md").parse().unwrap();
        let refused = open(&fetcher, &Source::SkillMd(url)).await;
        assert!(refused.is_err(), "{host}");
    }
    assert!(site.asked().is_empty(), "{:?}", site.asked());
}

#[tokio::test]
async fn a_registry_gives_an_archive_in_the_version_that_was_asked_for() {
    let site = SiteServer::new();
    let archive = zip_of(&[("SKILL.md", 0o644, skill_md("gif").as_bytes())]);
    site.json("/.well-known/clawhub.json", format!(r#"{{"apiBase":"{}","authBase":"x","minCliVersion":"0.0.5"}}"#, site.base))
        .json("/api/v1/skills/gif", r#"{"skill":{"slug":"gif"},"latestVersion":{"version":"1.1.0"},"owner":{"handle":"OpenClaw"}}"#)
        .json("/api/v1/skills/bad", r#"{"latestVersion":{"version":"1.0.0"},"owner":null,"moderation":{"isMalwareBlocked":true}}"#)
        .json("/api/v1/skills/worse", r#"{"latestVersion":{"version":"1.0.0"}}"#)
        .json("/api/v1/skills/worse/verify", r#"{"ok":false,"decision":"block","reasons":["steals keys"]}"#)
        .put("/api/v1/download?slug=gif&version=1.1.0", Answer::Body("application/zip", archive.clone()))
        .put("/api/v1/download?slug=gif&version=1.0.0", Answer::Body("application/zip", archive))
        .text("/older/skills/pdf/SKILL.md", skill_md("pdf"))
        .text("/older/skills/pdf/2.0/SKILL.md", skill_md("pdf"));
    let fetcher = fetcher(&site.base);
    let policy = SourcePolicy::default();
    let skill = fetch(&fetcher, &parse("clawhub:@openclaw/gif"), None)
        .await
        .unwrap();
    assert_eq!(
        skill.upstream.identifier.as_str(),
        "registry:clawhub/openclaw/gif"
    );
    assert_eq!(skill.upstream.revision.as_deref(), Some("1.1.0"));
    assert_eq!(
        fetcher.drift(&skill.upstream, &policy).await,
        DriftState::UpToDate
    );
    let old = fetch(&fetcher, &parse("clawhub:gif@1.0.0"), None)
        .await
        .unwrap();
    assert_eq!(
        fetcher.drift(&old.upstream, &policy).await,
        DriftState::UpToDate,
        "asked for by version"
    );
    site.json(
        "/api/v1/skills/gif",
        r#"{"latestVersion":{"version":"2.0.0"},"owner":{"handle":"openclaw"}}"#,
    );
    let drifted = DriftState::Drifted {
        recorded: "1.1.0".to_owned(),
        upstream: "2.0.0".to_owned(),
    };
    assert_eq!(fetcher.drift(&skill.upstream, &policy).await, drifted);
    for (text, said) in [
        ("clawhub:@mallory/gif", "published by openclaw"),
        ("clawhub:bad", "malware"),
        ("clawhub:worse", "steals keys"),
        ("clawhub:none", "has no skill none"),
        ("clawhub:gif@9.9.9", "in version 9.9.9"),
    ] {
        let refused = fetch(&fetcher, &parse(text), None).await.unwrap_err();
        assert!(refused.to_string().contains(said), "{text}: {refused}");
    }
    let pdf = fetch(&fetcher, &parse("registry:pdf"), None).await.unwrap();
    assert_eq!(pdf.upstream.identifier.as_str(), "registry:127.0.0.1/pdf");
    assert_eq!(
        fetcher.drift(&pdf.upstream, &policy).await,
        DriftState::UpToDate
    );
    let two = fetch(&fetcher, &parse("registry:pdf@2.0"), None)
        .await
        .unwrap();
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
    let listed = SourcePolicy::new(Some(
        &Policy::from_toml("[sources]\nallow = [\"clawhub:*\", \"github.com/acme/*\"]\n").unwrap(),
    ));
    let refused = fetcher
        .open(&parse("clawhub:gif"), None, &listed)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, FetchError::Policy { place, .. } if place.contains("github.com/evil/skills")),
        "{refused:?}"
    );
    site.json(
        "/api/v1/download",
        r#"{"sourceRef":"public-github","repo":"evil/skills","commit":"main","path":"x"}"#,
    );
    let refused = open(&fetcher, &parse("clawhub:gif")).await;
    assert!(
        matches!(refused, Err(FetchError::Content { .. })),
        "{refused:?}"
    );
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
        &support::options(),
    )
    .unwrap();
    let shown: Vec<(String, String)> = entries
        .iter()
        .map(|entry| {
            let what = match &entry.source {
                Ok(source) => source.shown(),
                Err(bad) => format!("no: {bad}"),
            };
            (entry.name.clone(), what)
        })
        .collect();
    let find = |name: &str| {
        shown
            .iter()
            .find(|(other, _)| other == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(find("pdf"), "github.com/acme/skills/skills/pdf");
    assert_eq!(find("here"), "/project/./skills/here");
    assert_eq!(find("site"), "https://docs.example.com");
    assert!(find("npm").contains("sources of the type npm"));
    assert!(find("evil").starts_with("no: "));
    let csv = entries.iter().find(|entry| entry.name == "csv").unwrap();
    assert!(matches!(&csv.source, Ok(Source::Git(git)) if git.skill.as_deref() == Some("csv")));
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
        vault_sources::locks::read(b"[]", std::path::Path::new("/"), &support::options()).is_err()
    );
}

#[tokio::test]
async fn a_token_goes_to_its_own_host_and_along_no_redirect() {
    let (private, other) = (SiteServer::new(), SiteServer::new());
    private
        .put("/SKILL.md", Answer::Guarded("s3cret", skill_md("pdf")))
        .put(
            "/away/SKILL.md",
            Answer::To(format!("{}/SKILL.md", other.base)),
        );
    other.put("/SKILL.md", Answer::Guarded("s3cret", skill_md("pdf")));
    let source = parse(&format!("{}/SKILL.md", private.base));
    let without = fetch(&fetcher(&private.base), &source, None).await;
    assert!(
        matches!(&without, Err(error @ FetchError::NotAllowed { .. }) if error.hint().unwrap().contains("VAULT_SOURCE_TOKENS")),
        "{without:?}"
    );
    let host = private.base.trim_start_matches("http://");
    let mut settings = settings(&private.base);
    settings.tokens = Tokens::parse(&format!("{host}=s3cret")).unwrap();
    let fetcher = Fetcher::new(settings, Arc::new(TestClock::default()));
    assert_eq!(
        paths(&fetch(&fetcher, &source, None).await.unwrap()),
        ["SKILL.md"]
    );
    for source in [
        format!("{}/SKILL.md", other.base),
        format!("{}/away/SKILL.md", private.base),
    ] {
        let refused = fetch(&fetcher, &parse(&source), None).await;
        assert!(
            matches!(refused, Err(FetchError::NotAllowed { .. })),
            "{source}: {refused:?}"
        );
    }
}

/// A marketplace in a repository, of plugins that are versions of one package.
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

#[tokio::test]
async fn a_plugin_that_is_an_npm_package_is_held_to_its_digest() {
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
    site.put(
        "/tools-1.2.3.tgz",
        Answer::Body("application/octet-stream", package.clone()),
    )
    .put(
        "/empty.tgz",
        Answer::Body("application/octet-stream", empty.clone()),
    );
    describe("latest", "tools-1.2.3.tgz", &named(sha512(&package)));
    describe("1.0.0", "tools-1.2.3.tgz", &named(sha512(b"another")));
    describe("1.0.1", "tools-1.2.3.tgz", "");
    describe("1.0.2", "gone.tgz", &named(sha512(&package)));
    describe("1.0.3", "empty.tgz", &named(sha512(&empty)));
    site.json("/npm/@acme%2Ftools/1.0.4", "<html>");
    let versions = ["1.0.0", "1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.0.5"];
    let repository = market(&versions);
    let fetcher = fetcher(&site.base);
    let policy = SourcePolicy::default();
    let source = parse(&repository.address());
    let plugin = async |name: &str| fetcher.open(&source, Some(name), &policy).await;

    let opened = plugin("tagged").await.unwrap();
    let names: Vec<&str> = opened
        .found
        .iter()
        .map(|found| found.name.as_str())
        .collect();
    assert_eq!(names, ["csv", "pdf"]);
    assert!(
        opened.notices[0].contains("the npm package @acme/tools@1.2.3"),
        "{:?}",
        opened.notices
    );
    let skill = fetcher
        .take(&opened, &opened.found[1], &policy)
        .await
        .unwrap();
    assert_eq!(paths(&skill), ["SKILL.md", "run.sh"]);
    assert!(
        skill
            .upstream
            .identifier
            .as_str()
            .ends_with("/tools-1.2.3.tgz")
    );
    assert_eq!(skill.upstream.path.as_deref(), Some("package/skills/pdf"));
    let one = plugin("one").await.unwrap();
    assert_eq!(one.found.len(), 1);

    for (name, said) in [
        ("1.0.0", "as announced"),
        ("1.0.1", "no SHA-512"),
        ("1.0.2", "gone.tgz is not there"),
        ("1.0.3", "holds no skills"),
        ("1.0.4", "cannot be read"),
        ("1.0.5", "no package @acme/tools@1.0.5"),
    ] {
        let refused = plugin(name).await.unwrap_err().to_string();
        assert!(refused.contains(said), "{name}: {refused}");
    }

    // The registry is asked nothing where the owner does not let it.
    let asked = site.asked().len();
    let listed = SourcePolicy::new(Some(
        &Policy::from_toml("[sources]\nallow = [\"git:file:*\", \"github.com/*\"]\n").unwrap(),
    ));
    let refused = fetcher
        .open(&source, Some("tagged"), &listed)
        .await
        .unwrap_err();
    assert!(matches!(refused, FetchError::Policy { .. }), "{refused:?}");
    assert_eq!(site.asked().len(), asked);
}
