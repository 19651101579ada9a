//! `/console/{slug}/skills/{name}`: one skill with its files, security findings, signer and
//! history. The text of a skill is shown as plain text and never rendered.

use std::cmp::Reverse;
use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use vault_format::bundle::File;
use vault_format::name::{AgentId, SkillName};
use vault_format::root::KeyFingerprint;
use vault_format::text::printable;
use vault_gate::finding::Finding;
use vault_gate::{GateOptions, RawFile, check};
use vault_shelf::{Entry, Loaded, ShelfError};

use super::agents::AgentForms;
use super::content::{FindingRow, open_shelf, unavailable_text};
use super::guard::ConsolePage;
use super::history::History;
use super::page::{PageLayout, Pager, show_page};
use super::skills::excerpt;
use crate::accounts::session::redirect_to;
use crate::spending::run_gate;
use crate::units::format_size;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::{format_day, format_minute};

/// Maximum size of a file's text on the page, in bytes of HTML.
const MAX_TEXT_BYTES: usize = 40 << 10;
/// Maximum number of findings on the page.
const MAX_FINDINGS: usize = 50;
/// Maximum length of one text from the skill's frontmatter, in characters.
const MAX_CHARS: usize = 2000;
/// The file that is shown if none is chosen.
const SKILL_MD: &str = "SKILL.md";

struct FileRow {
    path: String,
    href: String,
    size: String,
    is_executable: bool,
}

struct ChangeRow {
    release: u64,
    day: String,
    what: String,
}

/// The content of the skill, apart from what the release's index says about it.
struct SkillContent {
    signed_at: String,
    /// Name of the key that signed the skill, if a root version of the vault names it.
    signer: Option<String>,
    fingerprint: String,
    /// Rules that the owner waived for exactly these files, each with the reason.
    waivers: Vec<(String, String)>,
    files: Vec<FileRow>,
    pager: Pager,
    /// Path and text of the shown file; no text if it is binary.
    shown: String,
    text: Option<String>,
    is_cut: bool,
    findings: Vec<FindingRow>,
    more_findings: usize,
}

#[derive(Template)]
#[template(path = "console/skill.html")]
struct SkillPage {
    shell: PageLayout,
    list_href: String,
    name: String,
    description: String,
    when_to_use: String,
    tags: String,
    agents: String,
    version: u64,
    bundle: String,
    problem: Option<&'static str>,
    content: Option<SkillContent>,
    agent_forms: Option<AgentForms>,
    changes: Vec<ChangeRow>,
    since: Option<u64>,
    /// The oldest release that was compared, if there are older ones.
    older_than: Option<u64>,
}

/// `GET /console/{slug}/skills/{name}`: shows the page, with the file `?file=`.
pub(super) async fn show_skill(page: ConsolePage) -> Result<Response, ErrorPage> {
    let name: SkillName = page
        .param("name")
        .parse()
        .map_err(|_| ErrorPage::NotFound)?;
    let shelf = open_shelf(&page);
    let snapshot = match shelf.take_snapshot().await {
        Ok(snapshot) => snapshot,
        // The list of skills explains why nothing of the release is shown.
        Err(ShelfError::ReleaseAwaited) => {
            let list = page.address("/skills");
            return Ok(redirect_to(StatusCode::SEE_OTHER, &list));
        }
        Err(error) => {
            return Err(
                unavailable_text(error).map_or_else(ErrorPage::from, |_| ErrorPage::NotFound)
            );
        }
    };
    let entry = snapshot.find(&name).ok_or(ErrorPage::NotFound)?;
    let (content, problem) = match shelf.load_skill(entry).await {
        Ok(loaded) => (Some(skill_content(&page, &loaded).await?), None),
        Err(ShelfError::Damaged(..)) => (
            None,
            Some("The stored copy of this skill is damaged. Publish it again with: vault sync"),
        ),
        Err(error) => (None, Some(unavailable_text(error)?)),
    };
    let history = History::read_history(page.app(), &page.cache, &page.namespace, &name).await?;
    let template = SkillPage {
        shell: PageLayout::for_page(&page),
        list_href: page.address("/skills"),
        problem,
        content,
        agent_forms: Some(AgentForms::read_forms(&page, entry).await?),
        since: history.since,
        older_than: history.since.filter(|since| *since > 1),
        changes: change_rows(history),
        ..page_with_texts(&page, entry)
    };
    Ok(show_page(&template))
}

/// Returns the page with the texts from the release's index, and empty otherwise.
fn page_with_texts(page: &ConsolePage, entry: &Entry) -> SkillPage {
    let texts = &entry.texts;
    let agents: Vec<_> = texts.agents.iter().map(AgentId::as_str).collect();
    SkillPage {
        shell: PageLayout::for_page(page),
        list_href: String::new(),
        name: entry.name().to_string(),
        description: excerpt(&texts.description, MAX_CHARS),
        when_to_use: excerpt(&texts.when_to_use, MAX_CHARS),
        tags: printable(&texts.tags.join(", ")),
        agents: agents.join(", "),
        version: entry.version,
        bundle: texts.bundle_hash.to_string(),
        problem: None,
        content: None,
        agent_forms: None,
        changes: Vec::new(),
        since: None,
        older_than: None,
    }
}

fn change_rows(history: History) -> Vec<ChangeRow> {
    let changes = history.changes.into_iter().map(|change| ChangeRow {
        release: change.release,
        day: format_day(change.published_at),
        what: match change.version {
            Some(version) => format!("version {version}"),
            None => "removed".to_owned(),
        },
    });
    changes.collect()
}

async fn skill_content(
    page: &ConsolePage,
    loaded: &Arc<Loaded>,
) -> Result<SkillContent, ErrorPage> {
    let (app, cache, namespace) = (page.app(), &page.cache, &page.namespace);
    let (bundle, manifest) = (&loaded.bundle, &loaded.bundle.manifest);
    let chain = cache.catalogs.key_chain(app, namespace).await?;
    let signer = chain.and_then(|chain| {
        // The newest root version that names the key: it may have been renamed or removed since.
        let versions = chain.versions().iter().rev();
        let mut names =
            versions.filter_map(|version| version.document().name_of(&loaded.public_key));
        names.next().map(|name| printable(name.as_str()))
    });
    let here = page.address(&format!("/skills/{}", manifest.name));
    let chosen_path = page.query.value("file").unwrap_or(SKILL_MD);
    // Looked up in the bundle, so the parameter cannot reach any other file.
    let file = bundle
        .files
        .iter()
        .find(|file| file.path.as_str() == chosen_path)
        .ok_or(ErrorPage::NotFound)?;
    let pager = Pager::from_query(page, "files", bundle.files.len(), |number| {
        with_query(
            &here,
            &[("file", chosen_path), ("page", &number.to_string())],
        )
    });
    let files = bundle.files.iter().map(|file| file_row(file, &here));
    let (text, is_cut) = match shown_text(&file.bytes) {
        Some((text, is_cut)) => (Some(text), is_cut),
        None => (None, false),
    };
    let findings = read_findings(page, loaded).await?;
    let waivers = manifest.gate.waivers.iter();
    Ok(SkillContent {
        signed_at: format_minute(manifest.signed_at),
        signer,
        fingerprint: KeyFingerprint::publisher(&loaded.public_key).to_string(),
        waivers: waivers
            .map(|waiver| (printable(&waiver.rule), printable(&waiver.reason)))
            .collect(),
        files: pager.take_rows(files.collect()),
        pager,
        shown: printable(file.path.as_str()),
        text,
        is_cut,
        more_findings: findings.len().saturating_sub(MAX_FINDINGS),
        findings: findings
            .iter()
            .take(MAX_FINDINGS)
            .map(FindingRow::from_finding)
            .collect(),
    })
}

fn file_row(file: &File, here: &str) -> FileRow {
    let path = file.path.as_str();
    FileRow {
        href: with_query(here, &[("file", path)]),
        path: printable(path),
        size: format_size(file.bytes.len() as u64),
        is_executable: file.mode.bits() & 0o111 != 0,
    }
}

/// Returns the beginning of a text, with invisible characters as escapes, and whether something is
/// left out; `None` for bytes that are not text.
fn shown_text(bytes: &[u8]) -> Option<(String, bool)> {
    let text = std::str::from_utf8(bytes).ok()?;
    // Binary data can be valid UTF-8, but text has no NUL.
    if text.contains('\0') {
        return None;
    }
    let mut escaped = String::new();
    let mut room = MAX_TEXT_BYTES;
    for character in text.chars() {
        let is_layout = matches!(character, '\n' | '\t');
        let written = match character {
            '\r' => continue,
            _ if is_layout => character.to_string(),
            _ => printable(character.encode_utf8(&mut [0; 4])),
        };
        // HTML escapes of these characters take up to six bytes.
        let cost = if "<>&\"'".contains(character) {
            6
        } else {
            written.len()
        };
        let Some(left) = room.checked_sub(cost) else {
            return Some((escaped, true));
        };
        room = left;
        escaped.push_str(&written);
    }
    Some((escaped, false))
}

/// Returns the findings of the security check about the files, most severe first. They are cached
/// by the hash of the bundle.
async fn read_findings(
    page: &ConsolePage,
    loaded: &Arc<Loaded>,
) -> Result<Arc<Vec<Finding>>, ErrorPage> {
    let cache = &page.cache;
    if let Some(findings) = cache.findings.find(&loaded.bundle_hash) {
        return Ok(findings);
    }
    let skill = Arc::clone(loaded);
    let checking = run_gate(page.app(), &page.namespace.id, move || {
        let files = skill.bundle.files.iter().cloned().map(RawFile::from);
        let options = GateOptions {
            name: Some(skill.bundle.manifest.name.clone()),
            ..GateOptions::in_service()
        };
        (check(files.collect(), &options), ())
    });
    let (mut verdict, ()) = checking.await?;
    let findings = &mut verdict.findings;
    findings.sort_by_key(|finding| Reverse(finding.severity));
    let findings = Arc::new(verdict.findings);
    // An estimate: 512 bytes for everything in a finding except its message.
    let texts = findings.iter().map(|finding| finding.message.len() + 512);
    let size = texts.sum::<usize>() + 64;
    cache
        .findings
        .insert_value(loaded.bundle_hash, Arc::clone(&findings), size);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_with_its_hidden_characters_and_cut_where_the_page_would_grow() {
        for (bytes, shown) in [
            (&b"plain\n\ttext\r\n"[..], Some("plain\n\ttext\n")),
            ("a\u{202e}b".as_bytes(), Some("a\\u{202e}b")),
            (
                "a\u{200b}b\u{1b}[2J".as_bytes(),
                Some("a\\u{200b}b\\u{1b}[2J"),
            ),
            (b"<script>", Some("<script>")),
            (b"\xff\xfe", None),
            (b"a\0b", None),
            (b"", Some("")),
        ] {
            let text = shown_text(bytes);
            assert_eq!(text.as_ref().map(|(text, _)| text.as_str()), shown);
            assert!(text.is_none_or(|(_, is_cut)| !is_cut));
        }
        let (text, is_cut) = shown_text("<".repeat(MAX_TEXT_BYTES).as_bytes()).unwrap();
        assert!(is_cut);
        assert_eq!(text.len(), MAX_TEXT_BYTES / 6);
    }
}
