//! `/console/{slug}/drafts`: what people and apps ask for, one draft with everything that a person
//! needs to decide, and declining it.

use askama::Template;
use axum::response::Response;
use vault_format::catalog::SignedCatalog;
use vault_format::draft::{Draft, Request};
use vault_format::name::SkillName;
use vault_format::root::KeyFingerprint;
use vault_gate::finding::{Finding, Level};
use vault_gate::{GateOptions, RawFile};
use vault_store::StoreError;

use super::changes::{ShownChanges, shown_changes};
use super::content::{
    NamedKey, current_chain, current_skill, named_key, or_not_found, shelf, unavailable,
};
use super::difference::{self, Difference, LineKind, Room, shown};
use super::guard::{ConsoleForm, ConsolePage};
use super::names::Names;
use super::outcome::Outcome;
use super::page::{ROWS_SHOWN, Shell, show as show_page};
use crate::admin::call::{Items, Page};
use crate::admin::drafts::{Wanted, admit_draft, decline_draft, find, listed_drafts, read_draft};
use crate::admin::principal::Principal;
use crate::model::draft::{DraftRecord, Kind, MAX_REASON_CHARS, State, Subject};
use crate::model::namespace::Kind as NamespaceKind;
use crate::model::user::Role;
use crate::oauth::form::with_query;
use crate::oauth::pages::minute;
use crate::oauth::stop::Stop;

/// How many bytes of differences a page shows.
const DIFFERENCE_BYTES: usize = 56 * 1024;
/// Most findings on a page.
const FINDINGS_SHOWN: usize = 40;

/// A state that can be chosen.
struct StateLink {
    title: &'static str,
    href: String,
    current: bool,
}

struct Row {
    href: String,
    title: String,
    kind: &'static str,
    by: String,
    at: String,
    state: &'static str,
    /// The class of the state's mark.
    mark: &'static str,
}

#[derive(Template)]
#[template(path = "console/drafts.html")]
struct DraftsPage {
    shell: Shell,
    states: Vec<StateLink>,
    rows: Vec<Row>,
    empty: &'static str,
    /// The address of the next page.
    next: Option<String>,
    /// The address of the first page, where this is a later one.
    first: Option<String>,
}

/// The list of drafts: those that wait, or those of `?state=`.
pub(super) async fn list(page: ConsolePage) -> Result<Response, Stop> {
    let by = Principal::of(page.acting(), &page.user);
    let word = page.query.value("state").unwrap_or("pending");
    let state = match word {
        "all" => None,
        word => {
            let mut states = State::ALL.into_iter();
            Some(
                states
                    .find(|state| state.as_str() == word)
                    .ok_or(Stop::NotFound)?,
            )
        }
    };
    let after = page.query.value("after").map(str::to_owned);
    let home = page.address("/drafts");
    let listed = Page {
        limit: ROWS_SHOWN,
        after: after.clone(),
    };
    let Items { items, next } = listed_drafts(&by, Wanted { state, kind: None }, &listed).await?;
    let authors = items.iter().map(|draft| &*draft.submitted_by.user_id);
    let names = Names::read(page.app(), &page.namespace, authors).await?;
    let row = |draft: &DraftRecord| Row {
        href: format!("{home}/{}", draft.id),
        title: title(draft),
        kind: kind_text(draft.kind()),
        by: names.of(&draft.submitted_by.user_id),
        at: minute(draft.submitted_at),
        state: state_text(draft.state),
        mark: state_mark(draft.state),
    };
    let link = |word: &str, title| StateLink {
        title,
        href: with_query(&home, &[("state", word)]),
        current: page.query.value("state").unwrap_or("pending") == word,
    };
    let shown = DraftsPage {
        shell: Shell::of(&page),
        states: vec![
            link("pending", "Waiting"),
            link("accepted", "Accepted"),
            link("declined", "Declined"),
            link("withdrawn", "Withdrawn"),
            link("outdated", "Outdated"),
        ],
        rows: items.iter().map(row).collect(),
        empty: if state == Some(State::Pending) {
            "Nothing waits. When a member or an app proposes a change of a skill, it appears here."
        } else {
            "There is no draft in this state."
        },
        next: next.map(|next| with_query(&home, &[("state", word), ("after", &next)])),
        first: after.map(|_| with_query(&home, &[("state", word)])),
    };
    Ok(show_page(&shown))
}

/// What a draft is about, in a few words.
fn title(draft: &DraftRecord) -> String {
    match &draft.subject {
        Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
            content.name.to_string()
        }
        Subject::KeyRequest(key) => key.name.as_str().to_owned(),
        Subject::Release(proposed) => format!("Release {}", proposed.number),
    }
}

const fn kind_text(kind: Kind) -> &'static str {
    match kind {
        Kind::Propose => "New content",
        Kind::Install => "Install from a source",
        Kind::Remove => "Remove",
        Kind::KeyRequest => "Request to publish",
        Kind::Release => "Proposed release",
    }
}

const fn state_text(state: State) -> &'static str {
    match state {
        State::Pending => "Waiting",
        State::Accepted => "Accepted",
        State::Declined => "Declined",
        State::Withdrawn => "Withdrawn",
        State::Outdated => "Outdated",
    }
}

const fn state_mark(state: State) -> &'static str {
    match state {
        State::Pending => "wait",
        State::Accepted => "good",
        State::Declined | State::Withdrawn | State::Outdated => "",
    }
}

/// A finding of the gate.
struct ShownFinding {
    level: &'static str,
    mark: &'static str,
    place: String,
    message: String,
    why: &'static str,
}

/// What is asked for, with what a person needs to judge it.
enum Asked {
    /// Files are taken in.
    Files(Box<AskedFiles>),
    /// A skill is fetched.
    Source {
        identifier: String,
        reference: Option<String>,
    },
    /// A skill is removed.
    Removal,
    /// A key becomes a publisher's.
    Key { name: String, fingerprint: String },
    /// A release gets the signatures that it lacks.
    Release {
        signers: Vec<NamedKey>,
        needed: Option<usize>,
        payload: String,
        changes: Option<Box<ShownChanges>>,
    },
    /// The bytes are no longer kept.
    Gone,
}

/// Files that are taken in.
struct AskedFiles {
    is_new: bool,
    /// Whether the gate of this service refuses them.
    blocked: bool,
    findings: Vec<ShownFinding>,
    /// How many findings are left out.
    more_findings: usize,
    difference: Difference,
    /// Why they are not compared with the skill as it is.
    not_compared: Option<&'static str>,
    /// Whether the skill has changed since the author saw it.
    moved: bool,
}

#[derive(Template)]
#[template(path = "console/draft.html")]
struct DraftPage {
    shell: Shell,
    list_href: String,
    title: String,
    id: String,
    kind: &'static str,
    by: String,
    client: Option<String>,
    at: String,
    state: &'static str,
    mark: &'static str,
    changed_at: Option<String>,
    ends: Option<String>,
    reason: Option<String>,
    release: Option<(u64, String)>,
    asked: Asked,
    /// The command that accepts.
    command: Option<String>,
    /// What the command does.
    command_text: &'static str,
    /// Whether the person may make the server accept it.
    accepts: bool,
    /// Whether the person may decline it.
    declines: bool,
    /// Where the forms lead.
    here: String,
    max_reason: usize,
    csrf: String,
}

/// One draft.
pub(super) async fn show(page: ConsolePage) -> Result<Response, Stop> {
    let by = Principal::of(page.acting(), &page.user);
    let found = find(&by, page.param("id")).await;
    let draft = found.map_err(or_not_found)?.record;
    let author = &*draft.submitted_by.user_id;
    let names = Names::read(page.app(), &page.namespace, [author]).await?;
    let asked = asked(&page, &by, &draft).await?;
    let here = page.address(&format!("/drafts/{}", draft.id));
    let waits = draft.state == State::Pending && page.may_write();
    let decides = page.user.role == Role::Owner || draft.kind() != Kind::KeyRequest;
    let served = page.namespace.kind == NamespaceKind::SelfSigned;
    let can_admit = served && draft.content().is_some() && page.user.role == Role::Owner;
    let (command, command_text) = command(&draft);
    let shown = DraftPage {
        shell: Shell::of(&page),
        list_href: page.address("/drafts"),
        title: title(&draft),
        kind: kind_text(draft.kind()),
        by: names.of(&draft.submitted_by.user_id),
        client: draft.submitted_by.client_id.clone(),
        at: minute(draft.submitted_at),
        state: state_text(draft.state),
        mark: state_mark(draft.state),
        changed_at: (draft.state != State::Pending).then(|| minute(draft.changed_at)),
        ends: draft.proposed().map(|proposed| minute(proposed.ends_at)),
        reason: draft.reason.as_deref().map(shown),
        release: draft
            .release
            .map(|number| (number, page.address(&format!("/releases/{number}")))),
        command: (waits && decides && !served).then_some(command),
        command_text,
        accepts: waits && can_admit,
        declines: waits && decides,
        here,
        max_reason: MAX_REASON_CHARS,
        csrf: page.form_token(),
        id: draft.id.to_string(),
        asked,
    };
    Ok(show_page(&shown))
}

/// The command by which a person with the key accepts a draft, and what it does.
fn command(draft: &DraftRecord) -> (String, &'static str) {
    let id = &draft.id;
    match draft.kind() {
        Kind::Release => (
            format!("vault release sign {id}"),
            "Run this on a machine that has a publisher’s key. It shows every difference and asks before it signs.",
        ),
        Kind::KeyRequest => (
            format!("vault publishers add {id}"),
            "Run this on the machine that has the key which may change the vault’s keys. First compare the fingerprint with the person, by phone for example.",
        ),
        Kind::Propose | Kind::Install | Kind::Remove => (
            format!("vault drafts accept {id}"),
            "Run this on a machine that has a publisher’s key. It shows the findings and differences again, asks, signs and publishes.",
        ),
    }
}

async fn asked(page: &ConsolePage, by: &Principal<'_>, draft: &DraftRecord) -> Result<Asked, Stop> {
    let name = match &draft.subject {
        Subject::KeyRequest(key) => {
            return Ok(Asked::Key {
                name: key.name.as_str().to_owned(),
                fingerprint: KeyFingerprint::publisher(&key.public_key).to_string(),
            });
        }
        Subject::Release(_) => return Ok(asked_release(page, draft).await?),
        Subject::Remove(_) => return Ok(Asked::Removal),
        Subject::Propose(content) | Subject::Install(content) => content.name.clone(),
    };
    let key = draft.object().key(page.namespace.id);
    if page.app().object(&key).await?.is_none() {
        return Ok(Asked::Gone);
    }
    let content = read_draft(by, draft).await?;
    match content.request.clone() {
        Request::Install { source } => Ok(Asked::Source {
            identifier: shown(&source.identifier.to_string()),
            reference: source.reference.as_deref().map(shown),
        }),
        Request::Remove => Ok(Asked::Removal),
        Request::Propose { files } => {
            let files = asked_files(page, &content, &name, files).await?;
            Ok(Asked::Files(Box::new(files)))
        }
    }
}

async fn asked_files(
    page: &ConsolePage,
    draft: &Draft,
    name: &SkillName,
    files: Vec<vault_format::bundle::File>,
) -> Result<AskedFiles, StoreError> {
    let shelf = shelf(page);
    let (before, not_compared) = match current_skill(&*shelf, name).await {
        Ok(found) => (found, None),
        Err(error) => (None, Some(unavailable(error)?)),
    };
    let is_new = before.is_none() && not_compared.is_none();
    let current = before.as_ref().map(|loaded| loaded.bundle_hash);
    let moved = not_compared.is_none() && draft.check_base(current.as_ref()).is_err();
    let held = before.map_or_else(Vec::new, |loaded| loaded.bundle.files.clone());
    let is_compared = not_compared.is_none();
    let judged = tokio::task::spawn_blocking(move || {
        let raw = files.iter().cloned().map(RawFile::from).collect();
        let options = GateOptions {
            before: &held,
            ..GateOptions::default()
        };
        let verdict = vault_gate::check(raw, &options);
        // A draft carries no modes: what it replaces is compared as plain files.
        let plain = |file: &vault_format::bundle::File| vault_format::bundle::File {
            mode: vault_format::manifest::Mode::Plain,
            ..file.clone()
        };
        let held: Vec<_> = held.iter().map(plain).collect();
        let held = if is_compared { &*held } else { &[] };
        let difference = difference::files(held, &files, &mut Room::new(DIFFERENCE_BYTES));
        (verdict, difference)
    });
    let (verdict, difference) = judged
        .await
        .map_err(|broken| StoreError::unavailable(format!("a task ended: {broken}")))?;
    let more_findings = verdict.findings.len().saturating_sub(FINDINGS_SHOWN);
    let findings = verdict.findings.iter().take(FINDINGS_SHOWN);
    Ok(AskedFiles {
        is_new,
        blocked: verdict.package.is_none(),
        findings: findings.map(shown_finding).collect(),
        more_findings,
        difference,
        not_compared,
        moved,
    })
}

fn shown_finding(finding: &Finding) -> ShownFinding {
    let (level, mark) = match finding.level {
        Level::Error => ("Error", "stop"),
        Level::Flag => ("Security flag", "stop"),
        Level::Warning => ("Warning", "wait"),
        Level::Note => ("Note", ""),
    };
    let place = match (finding.path.as_str(), finding.line) {
        ("", _) => String::new(),
        (path, Some(line)) => format!("{}, line {line}", shown(path)),
        (path, None) => shown(path),
    };
    ShownFinding {
        level,
        mark,
        place,
        message: shown(&finding.message),
        why: finding.why,
    }
}

async fn asked_release(page: &ConsolePage, draft: &DraftRecord) -> Result<Asked, StoreError> {
    let Some(proposed) = draft.proposed() else {
        return Ok(Asked::Gone);
    };
    let chain = current_chain(page).await?;
    let chain = chain.as_deref();
    let signers = proposed.signers.iter();
    let signers = signers.map(|key| named_key(chain, &KeyFingerprint::publisher(key)));
    let key = draft.object().key(page.namespace.id);
    let object = page.app().object(&key).await?;
    let catalog = object.and_then(|object| {
        let file = SignedCatalog::parse(&object.bytes).ok()?;
        file.read_counted(&proposed.payload_sha256).ok()
    });
    let changes = match catalog {
        Some(catalog) => {
            let catalogs = &page.memory.catalogs;
            let before = catalogs.current(page.app(), &page.namespace).await?;
            Some(Box::new(
                shown_changes(page, before.as_deref(), &catalog).await?,
            ))
        }
        None => None,
    };
    Ok(Asked::Release {
        signers: signers.collect(),
        needed: chain.map(|chain| chain.document().release().threshold()),
        payload: proposed.payload_sha256.to_string(),
        changes,
    })
}

/// The form that declines a draft, or makes the server accept it.
pub(super) async fn change(form: ConsoleForm) -> Result<Response, Stop> {
    let (by, id) = (
        Principal::of(form.page.acting(), &form.page.user),
        form.page.param("id"),
    );
    find(&by, id).await.map_err(or_not_found)?;
    match form.field("change")? {
        "decline" => {
            let reason = form.field("reason")?.trim().to_owned();
            decline_draft(&by, id, reason).await?;
            Ok(form.back(Outcome::DraftDeclined))
        }
        "accept" => {
            admit_draft(&by, id, None).await?;
            Ok(form.back(Outcome::DraftAccepted))
        }
        _ => Err(Stop::FormMalformed),
    }
}
