//! Sites and archives: what is fetched and checked, and how misbehaving servers are handled.

use std::sync::Arc;
use std::time::Duration;

use crate::archives::{CENTRAL, File, gzip, tar_of, zip_of};
use crate::support::{
    Answer, INDEX, SiteServer, code, compare, drift, fetch, fetcher, fetcher_with, is_up_to_date,
    names, open, parse, paths, policy, refusal, settings, skill_md,
};
use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_shelf::DriftState;
use vault_shelf::fetch::{Fetch, Upstream};
use vault_sources::site::SCHEMA;
use vault_sources::{ParseOptions, Source, SourcePolicy, Tokens};
use vault_testing::assert_matches;

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
        site.body(
            &format!("/{name}"),
            "application/octet-stream",
            bytes.clone(),
        );
        let source = parse(&format!("{}/{name}", site.base));
        let skill = fetch(&fetcher, &source, None).await.unwrap();
        assert_eq!(paths(&skill), ["SKILL.md", "bin/run"], "{name}");
        let run = skill.files.iter().find(|file| file.path == "bin/run");
        assert_eq!(run.unwrap().mode, Mode::Executable, "{name}");
        let digest = format!("sha256:{}", Digest::of(&bytes));
        assert_eq!(skill.upstream.revision, Some(digest));
        assert!(is_up_to_date(&fetcher, &skill).await, "{name}");
    }
}

/// Windows PowerShell 5 separates folders with backslashes, and says that the archive is from DOS.
#[tokio::test]
async fn backslashes_separate_folders_in_a_zip_that_was_made_on_dos() {
    let document = skill_md("tables");
    let zip = |other: &str, bytes: &[u8]| {
        let files = [
            ("tables\\SKILL.md", 0o644, document.as_bytes()),
            (other, 0o644, bytes),
        ];
        let mut bytes = zip_of(&files);
        let entries = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(CENTRAL));
        for entry in entries.collect::<Vec<_>>() {
            bytes[entry + 5] = 0;
        }
        bytes
    };
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let backslash = Err("has a backslash in its name");
    for (name, other, bytes, outcome) in [
        (
            "good.zip",
            "tables\\docs\\a.md",
            &b"x"[..],
            Ok(&["SKILL.md", "docs/a.md"][..]),
        ),
        // .NET writes an entry for a folder without files.
        ("folder.zip", "tables\\docs\\", b"", Ok(&["SKILL.md"])),
        (
            "full.zip",
            "tables\\docs\\",
            b"x",
            Err("tables/docs/ is a folder with content"),
        ),
        (
            "out.zip",
            "tables\\..\\..\\evil",
            b"x",
            Err("points out of the archive"),
        ),
        ("mixed.zip", "tables/docs\\a.md", b"x", backslash),
        // With a slash in its name it is a file, which only some tools take for a folder.
        ("mixed-folder.zip", "tables/docs\\", b"", backslash),
    ] {
        site.body(&format!("/{name}"), "application/zip", zip(other, bytes));
        let source = parse(&format!("{}/{name}", site.base));
        let fetched = fetch(&fetcher, &source, None).await;
        match (fetched, outcome) {
            (Ok(skill), Ok(expected)) => assert_eq!(paths(&skill), expected, "{name}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (fetched, _) => panic!("{name}: {fetched:?}"),
        }
    }
}

#[tokio::test]
async fn the_only_skill_left_in_an_archive_does_not_replace_another_one() {
    let (pdf, csv) = (skill_md("pdf"), skill_md("csv"));
    let both = [
        ("pdf/SKILL.md", 0o644, pdf.as_bytes()),
        ("csv/SKILL.md", 0o644, csv.as_bytes()),
    ];
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let put = |files: &[File<'_>]| {
        let body = Answer::Body("application/zip", zip_of(files));
        site.put("/skills.zip", body);
    };
    put(&both);
    let source = parse(&format!("{}/skills.zip", site.base));
    let skill = fetch(&fetcher, &source, Some("pdf")).await.unwrap();
    let policy = SourcePolicy::default();
    let again = async || fetcher.fetch_recorded(&skill.upstream, &policy).await;
    assert!(again().await.is_ok());
    put(&both[1..]);
    assert_eq!(code(again().await), "source_not_found");
}

#[tokio::test]
async fn a_recorded_folder_of_an_archive_is_the_only_one_that_is_taken_again() {
    let (one, other) = (skill_md("one"), skill_md("other"));
    let put_in = |folder: &'static str, text: &str| (folder, text.to_owned());
    let before = put_in("w/skills/one/SKILL.md", &one);
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let put = |files: &[&(&str, String)]| {
        let files = files
            .iter()
            .map(|(path, text)| (*path, 0o644, text.as_bytes()));
        let files: Vec<File<'_>> = files.collect();
        site.put("/w.zip", Answer::Body("application/zip", zip_of(&files)));
    };
    put(&[&before]);
    let source = parse(&format!("{}/w.zip", site.base));
    let skill = fetch(&fetcher, &source, None).await.unwrap();
    assert_eq!(skill.upstream.path.as_deref(), Some("skills/one"));
    let policy = SourcePolicy::default();
    let again = async |path: Option<&str>| {
        let upstream = Upstream {
            path: path.map(str::to_owned),
            ..skill.upstream.clone()
        };
        let again = fetcher.fetch_recorded(&upstream, &policy).await;
        again.map(|skill| String::from_utf8(skill.files[0].bytes.clone()).unwrap())
    };
    let root = put_in("w/SKILL.md", &other);
    put(&[&root, &before]);
    // An older record has the folder with the one around all files, or none.
    for path in ["skills/one", "w/skills/one"] {
        assert_eq!(again(Some(path)).await.unwrap(), one, "{path}");
    }
    assert_eq!(code(again(None).await), "source_not_found");
    // The version around all files changes, and the skill stays.
    put(&[&put_in("w-2/skills/one/SKILL.md", &one)]);
    assert_eq!(again(Some("skills/one")).await.unwrap(), one);
    put(&[&root]);
    assert_eq!(code(again(Some("skills/one")).await), "source_not_found");
}

#[tokio::test]
async fn a_skill_is_gone_only_from_a_source_that_was_read() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let (pdf, csv) = (skill_md("pdf"), skill_md("csv"));
    let put = |path: &'static str, text: &str| {
        let zip = zip_of(&[(path, 0o644, text.as_bytes())]);
        site.put("/w.zip", Answer::Body("application/zip", zip));
    };
    site.index(&entry("pdf", "/pdf.md", &pdf))
        .text("/pdf.md", &pdf);
    put("w/pdf/SKILL.md", &pdf);
    let mut skills = Vec::new();
    for address in [site.base.clone(), format!("{}/w.zip", site.base)] {
        let skill = fetch(&fetcher, &parse(&address), None).await;
        skills.push(skill.unwrap());
    }
    site.index(&entry("csv", "/csv.md", &csv));
    put("w/csv/SKILL.md", &csv);
    for skill in &skills {
        assert_matches!(drift(&fetcher, skill).await, DriftState::Removed(_));
    }
    // A page that is missing for some minutes removes nothing.
    let missing = SiteServer::new();
    for skill in &mut skills {
        let address = skill.upstream.address.as_mut().unwrap();
        *address = address.replace(&site.base, &missing.base);
        let identifier = skill.upstream.identifier.as_str();
        let bare = |base: &str| base.replace("http://", "https://");
        let identifier = identifier.replace(&bare(&site.base), &bare(&missing.base));
        skill.upstream.identifier = identifier.parse().unwrap();
        assert_matches!(drift(&fetcher, skill).await, DriftState::Failed(_));
    }
}

/// A site whose index pins three skills, one of them with a wrong digest, and the entries of that
/// index. The digests are those of the archive of `pdf` and of the text of `csv`.
fn pinned_site() -> (SiteServer, String, [Digest; 2]) {
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
    let at = "/.well-known/agent-skills/pdf.tar.gz";
    site.index(&entries)
        .body(at, "application/gzip", archive)
        .text("/files/csv/SKILL.md", csv);
    (site, entries, [one, two])
}

#[tokio::test]
async fn skills_of_one_site_are_compared_with_one_request() {
    let (site, ..) = pinned_site();
    let (fetcher, source) = (fetcher(&site.base), parse(&site.base));
    let pdf = fetch(&fetcher, &source, Some("pdf")).await.unwrap();
    let csv = fetch(&fetcher, &source, Some("csv")).await.unwrap();
    let before = site.asked().len();
    let up_to_date = [DriftState::UpToDate, DriftState::UpToDate];
    assert_eq!(compare(&fetcher, [&pdf, &csv]).await, up_to_date);
    assert_eq!(site.asked().len(), before + 1);
    // The same applies through the `Fetch` trait.
    let (port, before): (Arc<dyn Fetch>, _) = (fetcher.clone(), site.asked().len());
    let mut states = Vec::new();
    let mut answer = |_: usize, state| states.push(state);
    let both = vec![pdf.upstream, csv.upstream];
    port.compare(both, None, &mut answer).await;
    assert_eq!(states, up_to_date);
    assert_eq!(site.asked().len(), before + 1);
}

/// Puts an index with one skill below a path of a site.
fn put_site_below(site: &SiteServer, path: &str, name: &str) {
    let (schema, document) = (SCHEMA, skill_md(name));
    let digest = Digest::of(document.as_bytes());
    let entry = format!(
        r#"{{"name":"{name}","type":"skill-md","url":"{name}/SKILL.md","digest":"sha256:{digest}"}}"#
    );
    site.json(
        &format!("{path}{INDEX}"),
        format!(r#"{{"$schema":"{schema}","skills":[{entry}]}}"#),
    )
    .text(
        &format!("{path}/.well-known/agent-skills/{name}/SKILL.md"),
        document,
    );
}

#[tokio::test]
async fn an_index_below_a_path_comes_before_the_one_of_the_root() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let listed = async |text: &str| {
        let opened = open(&fetcher, &parse(&format!("{}{text}", site.base))).await;
        opened.map(|opened| names(&opened).join(" "))
    };
    assert_eq!(code(listed("/pages").await), "source_not_found");
    put_site_below(&site, "", "pages");
    assert_eq!(listed("/pages").await.unwrap(), "pages");
    // Servers answer in several ways for what they lack.
    for answer in [
        Answer::Body("text/html", b"<!doctype html>".to_vec()),
        Answer::Status(403),
    ] {
        site.put(&format!("/pages{INDEX}"), answer);
        assert_eq!(listed("/pages").await.unwrap(), "pages");
    }
    // A site that fails does not make the name mean something else.
    site.put(&format!("/pages{INDEX}"), Answer::Status(500));
    assert_eq!(code(listed("/pages").await), "source_unreachable");
    put_site_below(&site, "/pages", "pdf");
    put_site_below(&site, "/a/b", "pdf");
    for (text, skills) in [
        ("", "pages"),
        ("/pages", "pdf"),
        ("/pages/", "pdf"),
        ("/pages/.well-known/agent-skills/index.json", "pdf"),
        ("/pages/.well-known/agent-skills/pdf", "pdf"),
        ("/a/b/.well-known/agent-skills/", "pdf"),
    ] {
        assert_eq!(listed(text).await.unwrap(), skills, "{text}");
    }
    let wellknown = |text: &str| parse(&format!("wellknown:{}{text}", site.base));
    let named = open(&fetcher, &wellknown("/pages")).await.unwrap();
    assert_eq!(names(&named), ["pages"], "a name after the prefix");
    let named = open(&fetcher, &wellknown("/a/b/pdf")).await.unwrap();
    assert_eq!(names(&named), ["pdf"]);
}

#[tokio::test]
async fn a_site_gives_no_other_skill_than_its_index_names() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    for (named, own, is_taken) in [
        ("pdf", "pdf", true),
        ("pdf", "PDF", true),
        ("my_pdf", "my_pdf", true),
        ("pdf", "csv", false),
    ] {
        let document = skill_md(own);
        let digest = Digest::of(document.as_bytes());
        site.index(&format!(
            r#"{{"name":"{named}","type":"skill-md","url":"/pdf/SKILL.md","digest":"sha256:{digest}"}}"#
        ))
        .text("/pdf/SKILL.md", document);
        let got = fetch(&fetcher, &parse(&site.base), Some(named)).await;
        assert_eq!(got.is_ok(), is_taken, "{own}");
        if let Err(refused) = got {
            assert_eq!(refused.word(), "source_malformed");
            assert!(
                refused.to_string().contains("another skill, csv"),
                "{refused}"
            );
        }
    }
}

#[tokio::test]
async fn a_skill_of_a_site_below_a_path_is_recorded_and_found_again() {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    for path in ["", "/one", "/two"] {
        put_site_below(&site, path, "pdf");
    }
    let mut recorded = Vec::new();
    for path in ["", "/one", "/two"] {
        let source = parse(&format!("{}{path}", site.base));
        let skill = fetch(&fetcher, &source, Some("pdf")).await.unwrap();
        assert!(is_up_to_date(&fetcher, &skill).await, "{path}");
        let policy = SourcePolicy::default();
        let again = fetcher.fetch_recorded(&skill.upstream, &policy).await;
        assert_eq!(again.unwrap().upstream, skill.upstream, "{path}");
        recorded.push(
            skill
                .upstream
                .identifier
                .as_str()
                .replace(&site.base[7..], "host"),
        );
    }
    // Two sites of one host never have the same record.
    let below = "https:https://host/one/.well-known/agent-skills/pdf";
    assert_eq!(recorded[..2], ["wellknown:https://host/pdf", below]);
    assert_eq!(recorded[2], below.replace("one", "two"));
    // A name that the record could not hold is refused.
    put_site_below(&site, "/one", "a.zip");
    let bad = fetch(
        &fetcher,
        &parse(&format!("{}/one", site.base)),
        Some("a.zip"),
    )
    .await;
    assert_eq!(code(bad), "source_malformed");
    put_site_below(&site, "/one", "pdf");
    // A policy for one of them covers no other.
    let rule = format!("[sources]\nallow = [\"{}/one/*\"]\n", &site.base[7..]);
    let policy = policy(&rule);
    for (path, allowed) in [("/one", true), ("/two", false), ("", false)] {
        let source = parse(&format!("wellknown:{}{path}/", site.base));
        let is_taken = match fetcher.open_source(&source, None, &policy).await {
            Ok(opened) => {
                let found = &opened.listing.skills[0];
                fetcher.take_skill(&opened, found, &policy).await.is_ok()
            }
            Err(_) => false,
        };
        assert_eq!(is_taken, allowed, "{path}");
    }
}

#[tokio::test]
async fn a_pinned_index_is_held_to_its_digests() {
    let (site, entries, [one, two]) = pinned_site();
    let fetcher = fetcher(&site.base);
    let source = parse(&site.base);
    let opened = open(&fetcher, &source).await.unwrap();
    assert_eq!(names(&opened), ["pdf", "csv", "lie"]);
    let left_out = &opened.listing.left_out;
    assert_eq!(left_out.len(), 4, "{left_out:?}");
    let description = opened.listing.skills[0].description.as_deref();
    assert_eq!(description, Some("Work with PDF."));
    let pdf = fetch(&fetcher, &source, Some("pdf")).await.unwrap();
    assert_eq!(paths(&pdf), ["SKILL.md", "a.md"]);
    assert_eq!(pdf.upstream.revision, Some(format!("sha256:{one}")));
    let identifier = pdf.upstream.identifier.as_str();
    assert!(identifier.starts_with("wellknown:https://127.0.0.1:"));
    let csv = fetch(&fetcher, &source, Some("csv")).await.unwrap();
    assert_eq!(paths(&csv), ["SKILL.md"]);
    let lie = fetch(&fetcher, &source, Some("lie")).await;
    assert_eq!(code(lie), "source_digest");
    // Fetch one skill of the site by name, then detect an upstream change.
    let named = parse(&format!("wellknown:{}/csv", site.base));
    assert_eq!(
        open(&fetcher, &named).await.unwrap().listing.skills.len(),
        1
    );
    assert!(is_up_to_date(&fetcher, &pdf).await);
    site.index(&entries.replace(&one.to_string(), &two.to_string()));
    assert_matches!(drift(&fetcher, &pdf).await, DriftState::Drifted { .. });
    let unknown = r#"{"$schema":"https://example.com/other","skills":[]}"#;
    site.json(INDEX, unknown);
    let unknown = open(&fetcher, &source).await;
    assert_eq!(
        code(unknown),
        "source_malformed",
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
    let notice = &opened.notices[0];
    assert!(notice.starts_with("unpinned"), "{notice}");
    let skill = fetch(&fetcher, &source, Some("pdf")).await.unwrap();
    assert_eq!(paths(&skill), ["SKILL.md", "docs/a.md"]);
    assert!(is_up_to_date(&fetcher, &skill).await);
    site.text("/.well-known/skills/pdf/docs/a.md", "b");
    assert_matches!(drift(&fetcher, &skill).await, DriftState::Drifted { .. });
    let up = fetch(&fetcher, &source, Some("up")).await;
    assert_eq!(code(up), "source_malformed");
    let signed = policy("[sources]\nsigned_only = true\n");
    let refused = fetcher.open_source(&source, None, &signed).await;
    assert_eq!(code(refused), "source_refused");
    // Some sites have an index of the older version at the newer path, with its files beside it.
    site.json(INDEX, r#"{"skills":[{"name":"csv","files":["SKILL.md"]}]}"#)
        .text("/.well-known/agent-skills/csv/SKILL.md", skill_md("csv"));
    let skill = fetch(&fetcher, &source, Some("csv")).await.unwrap();
    assert_eq!(paths(&skill), ["SKILL.md"]);
}

#[tokio::test]
async fn redirects_are_followed_as_far_as_the_policy_allows() {
    let site = SiteServer::new();
    site.text("/end/SKILL.md", skill_md("end"))
        .redirect("/one/SKILL.md", "/two/SKILL.md")
        .redirect("/two/SKILL.md", "/end/SKILL.md");
    let fetcher = fetcher(&site.base);
    let source = parse(&format!("{}/one/SKILL.md", site.base));
    assert!(fetch(&fetcher, &source, None).await.is_ok());
    // If the policy has an `allow` list, it also applies to redirects to other hosts.
    let host = site.base.trim_start_matches("http://").to_owned();
    let elsewhere = site.base.replace("127.0.0.1", "localhost");
    site.redirect("/away/SKILL.md", elsewhere + "/end/SKILL.md");
    let listed = policy(&format!("[sources]\nallow = [\"{host}/*\"]\n"));
    let source = parse(&format!("{}/away/SKILL.md", site.base));
    let refused = fetcher.open_source(&source, None, &listed).await;
    assert_eq!(code(refused), "source_refused");
}

#[tokio::test]
async fn a_body_that_stops_arriving_is_cut() {
    let site = SiteServer::new();
    site.put("/SKILL.md", Answer::Stalls);
    let mut settings = settings(&site.base);
    settings.limits.window = Duration::from_millis(300);
    let source = parse(&format!("{}/SKILL.md", site.base));
    let refused = refusal(&fetcher_with(settings), &source).await;
    let message = refused.to_string();
    assert!(message.contains("it sends less than"), "{message}");
}

#[tokio::test]
async fn without_the_test_flag_no_request_reaches_this_machine() {
    let site = SiteServer::new();
    let mut closed = settings(&site.base);
    closed.parse.loopback = false;
    let fetcher = fetcher_with(closed);
    let port = site.base.rsplit(':').next().unwrap().to_owned();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{port}/SKILL.md").parse().unwrap();
        let refused = open(&fetcher, &Source::SkillMd(url)).await;
        assert_eq!(code(refused), "source_not_public", "{host}");
        let url = format!("http://{host}:{port}/SKILL.md").parse().unwrap();
        let refused = open(&fetcher, &Source::SkillMd(url)).await;
        assert!(refused.is_err(), "{host}");
    }
    assert!(site.asked().is_empty(), "{:?}", site.asked());
}

/// An entry of an index that names this address.
fn entry(name: &str, url: &str, body: &str) -> String {
    let digest = Digest::of(body.as_bytes());
    format!(
        r#"{{"name":"{name}","type":"skill-md","description":"x","url":"{url}","digest":"sha256:{digest}"}}"#
    )
}

#[tokio::test]
async fn the_user_adds_from_a_site_on_this_machine_and_it_leads_nowhere_else() {
    let site = SiteServer::new();
    let document = skill_md("pdf");
    let outside = "https://site.example/SKILL.md";
    site.index(&format!(
        "{},{}",
        entry("pdf", "/pdf/SKILL.md", &document),
        entry("csv", outside, &document)
    ))
    .text("/pdf/SKILL.md", &document)
    .redirect("/https/SKILL.md", outside)
    .redirect("/private/SKILL.md", "http://10.0.0.1/SKILL.md");
    let mut own = settings(&site.base);
    (own.parse.loopback, own.git.loopback) = (false, false);
    own.local_sites = true;
    let fetcher = fetcher_with(own);
    let options = ParseOptions {
        local_sites: true,
        ..ParseOptions::default()
    };
    let parse = |text: &str| Source::parse(text, &options, &|_| false).unwrap();
    for base in [&site.base, &site.base.replace("127.0.0.1", "localhost")] {
        for text in [base.clone(), format!("{base}/pdf/SKILL.md")] {
            let skill = fetch(&fetcher, &parse(&text), Some("pdf")).await.unwrap();
            assert_eq!(paths(&skill), ["SKILL.md"], "{text}");
            assert!(is_up_to_date(&fetcher, &skill).await, "{text}");
        }
        for path in ["https", "private"] {
            let text = format!("{base}/{path}/SKILL.md");
            let refused = refusal(&fetcher, &parse(&text)).await;
            let message = refused.to_string();
            assert!(message.contains("is not on this machine"), "{message}");
        }
        let csv = fetch(&fetcher, &parse(base), Some("csv")).await;
        let message = csv.unwrap_err().to_string();
        assert!(message.contains("is not on this machine"), "{message}");
    }
}

#[test]
fn plain_http_is_for_sites_on_this_machine_that_its_user_named() {
    let user = ParseOptions {
        local_sites: true,
        ..ParseOptions::default()
    };
    for (text, allowed) in [
        ("http://127.0.0.1:8000", true),
        ("http://127.1.2.3/pdf", true),
        ("http://localhost:8000/pdf.zip", true),
        ("http://[::1]:8000/pdf/SKILL.md", true),
        ("wellknown:http://localhost:8000/pdf", true),
        ("http://localhost:8000/me/skills.git", false),
        ("git:http://localhost:8000/me/skills.git", false),
        ("http://site.example", false),
        ("http://localhost.site.example", false),
        ("http://10.0.0.1/SKILL.md", false),
        ("wellknown:http://site.example/pdf", false),
        ("wellknown:ftp://localhost/pdf", false),
        ("file:///srv/skills.git", false),
    ] {
        let parsed = Source::parse(text, &user, &|_| false);
        assert_eq!(parsed.is_ok(), allowed, "{text}: {parsed:?}");
        let elsewhere = Source::parse(text, &ParseOptions::default(), &|_| false);
        assert!(elsewhere.is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_token_goes_to_its_own_host_and_along_no_redirect() {
    let (private, other) = (SiteServer::new(), SiteServer::new());
    private
        .put("/SKILL.md", Answer::Guarded("s3cret", skill_md("pdf")))
        .redirect("/away/SKILL.md", format!("{}/SKILL.md", other.base));
    other.put("/SKILL.md", Answer::Guarded("s3cret", skill_md("pdf")));
    let source = parse(&format!("{}/SKILL.md", private.base));
    let refused = refusal(&fetcher(&private.base), &source).await;
    assert_eq!(refused.word(), "source_not_allowed");
    assert!(refused.hint().unwrap().contains("VAULT_SOURCE_TOKENS"));
    let host = private.base.trim_start_matches("http://");
    let mut settings = settings(&private.base);
    settings.tokens = Tokens::parse(&format!("{host}=s3cret")).unwrap();
    let fetcher = fetcher_with(settings);
    let skill = fetch(&fetcher, &source, None).await.unwrap();
    assert_eq!(paths(&skill), ["SKILL.md"]);
    for source in [
        format!("{}/SKILL.md", other.base),
        format!("{}/away/SKILL.md", private.base),
    ] {
        let refused = refusal(&fetcher, &parse(&source)).await;
        assert_eq!(refused.word(), "source_not_allowed", "{source}");
    }
}
