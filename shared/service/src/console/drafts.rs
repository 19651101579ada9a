//! `/console/{slug}/drafts`: lists the drafts (requests of people and apps to change the vault),
//! shows one with everything that a person needs for a decision, and declines or accepts it.

use std::collections::BTreeSet;

use askama::Template;
use axum::response::Response;
use vault_format::bundle::files_sha256;
use vault_format::catalog::SignedCatalog;
use vault_format::draft::Request;
use vault_format::hash::Digest;
use vault_format::name::{DraftId, SkillName};
use vault_format::root::KeyFingerprint;
use vault_gate::finding::{Finding, Level};
use vault_gate::{GateOptions, RawFile};
use vault_store::StoreError;

use super::changes::{Comparison, compare_releases};
use super::content::{
    FindingRow, NamedKey, current_skill, log_unreadable, named_key, open_shelf, readable_chain,
    to_error_page, unavailable_text,
};
use super::difference::{self, DIFFERENCE_BYTES, Difference, HtmlBudget, LineKind, printable_line};
use super::draft_commands::{accept_command, exception_command};
use super::guard::{ConsoleForm, ConsolePage};
use super::names::Names;
use super::outcome::Outcome;
use super::page::{PageLayout, ROWS_SHOWN, show_page};
use crate::admin::call::{Items, Page};
use crate::admin::drafts::{
    DraftFilter, ReviewedContent, admit_draft, decline_draft, find_visible, listed_drafts,
    read_draft,
};
use crate::admin::principal::Principal;
use crate::error::ErrorCode;
use crate::model::draft::{Content, DraftRecord, Kind, MAX_REASON_CHARS, State, Subject};
use crate::model::namespace::Kind as NamespaceKind;
use crate::model::proposal::Proposed;
use crate::model::user::Role;
use crate::spending::run_gate;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_minute;

/// Maximum number of findings on a page.
const FINDINGS_SHOWN: usize = 40;

/// A link that filters the list by a state, such as the drafts that were declined.
struct StateLink {
    title: &'static str,
    href: String,
    current: bool,
}

struct DraftRow {
    href: String,
    title: String,
    kind: &'static str,
    by: String,
    at: String,
    state: &'static str,
    /// CSS class of the state's mark.
    mark: &'static str,
}

#[derive(Template)]
#[template(path = "console/drafts.html")]
struct DraftsPage {
    shell: PageLayout,
    states: Vec<StateLink>,
    rows: Vec<DraftRow>,
    empty: &'static str,
    next: Option<String>,
    /// Address of the first page, if this is a later one.
    first: Option<String>,
}

/// `GET /console/{slug}/drafts`: lists the drafts that wait, or those in the state `?state=`.
pub(super) async fn list_drafts(page: ConsolePage) -> Result<Response, ErrorPage> {
    let by = Principal::from_user(page.as_acting_user(), &page.user);
    let word = page.query.value("state").unwrap_or("pending");
    let state = match word {
        "all" => None,
        word => Some(word.parse::<State>().map_err(|_| ErrorPage::NotFound)?),
    };
    // Parsed here, because the store would report a malformed key as an error of the service.
    let after: Option<DraftId> = page
        .query
        .value("after")
        .map(str::parse)
        .transpose()
        .map_err(|_| ErrorCode::ParameterInvalid.into())
        .map_err(ErrorPage::Refused)?;
    let after = after.map(|after| after.to_string());
    let home = page.address("/drafts");
    let listed = Page {
        limit: ROWS_SHOWN,
        after: after.clone(),
    };
    let Items { items, next } =
        listed_drafts(&by, DraftFilter { state, kind: None }, &listed).await?;
    let authors = items.iter().map(|draft| &*draft.submitted_by.user_id);
    let names = Names::read_users(page.app(), &page.namespace, authors).await?;
    let row = |draft: &DraftRecord| DraftRow {
        href: format!("{home}/{}", draft.id),
        title: draft_title(draft),
        kind: kind_text(draft.kind()),
        by: names.display_name(&draft.submitted_by.user_id),
        at: format_minute(draft.submitted_at),
        state: state_text(draft.state),
        mark: state_mark(draft.state),
    };
    let link = |word: &str, title| StateLink {
        title,
        href: with_query(&home, &[("state", word)]),
        current: page.query.value("state").unwrap_or("pending") == word,
    };
    let template = DraftsPage {
        shell: PageLayout::for_page(&page),
        states: vec![
            link("pending", "Waiting"),
            link("accepted", "Accepted"),
            link("declined", "Declined"),
            link("withdrawn", "Withdrawn"),
            link("outdated", "Outdated"),
            link("all", "All"),
        ],
        rows: items.iter().map(row).collect(),
        empty: match state {
            Some(State::Pending) => {
                "Nothing waits. When a member or an app proposes a change of a skill, it appears here."
            }
            Some(_) => "There is no draft in this state.",
            None => "There is no draft.",
        },
        next: next.map(|next| with_query(&home, &[("state", word), ("after", &next)])),
        first: after.map(|_| with_query(&home, &[("state", word)])),
    };
    Ok(show_page(&template))
}

/// Returns what a draft is about, in a few words.
fn draft_title(draft: &DraftRecord) -> String {
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

/// What a draft asks for, with what a person needs to judge it.
enum DraftRequest {
    /// Files that are to become a skill, or replace one.
    Files(Box<DraftFiles>),
    /// A skill to fetch from its source. A person does that with the command line; the service
    /// fetches nothing.
    Source {
        identifier: String,
        reference: Option<String>,
    },
    /// The skill that the draft names is to be removed.
    Removal,
    /// A key whose owner wants to publish with it.
    Key { name: String, fingerprint: String },
    /// A proposed release that still lacks signatures.
    Release {
        signers: Vec<NamedKey>,
        needed: Option<usize>,
        payload: String,
        changes: ProposedChanges,
    },
    /// The draft is recorded, but its content is no longer stored.
    Gone,
}

/// What a page shows of the changes of a proposed release.
enum ProposedChanges {
    /// The differences between the current release and the proposed one.
    Compared(Comparison),
    /// The release was published meanwhile; its own page shows the changes.
    Published,
    /// The proposal cannot be compared, because the current release cannot be read.
    CurrentUnreadable,
    /// The proposal itself cannot be read.
    Unreadable,
}

/// The files of a draft, checked and compared with the skill as it is.
struct DraftFiles {
    is_new: bool,
    /// Whether the security check blocks the files.
    blocked: bool,
    /// Rules of the security flags, if nothing but flags blocks the files; empty otherwise.
    flags: BTreeSet<&'static str>,
    findings: Vec<FindingRow>,
    /// Number of findings that the page leaves out.
    more_findings: usize,
    difference: Difference,
    /// Digest of the files, by which the form accepts exactly these.
    reviewed: Option<Digest>,
    /// Message if the files cannot be compared with the skill as it is.
    not_compared: Option<&'static str>,
}

impl DraftRequest {
    /// Returns the digest of the content that the page shows in full. A server that signs for this
    /// vault accepts exactly this content. `None` if a person must review it elsewhere.
    fn reviewed_digest(&self, draft: &DraftRecord) -> Option<Digest> {
        match self {
            // A person cannot have read a difference that is cut, so it must not be accepted here.
            Self::Files(files) if !files.difference.cut && !files.difference.unread => {
                files.reviewed
            }
            Self::Removal => Some(draft.sha256),
            _ => None,
        }
    }

    /// Whether the draft can still be accepted, by a person with the right to do so.
    const fn is_acceptable(&self) -> bool {
        match self {
            Self::Files(files) => !files.blocked,
            Self::Release { changes, .. } => matches!(changes, ProposedChanges::Compared(_)),
            Self::Gone => false,
            Self::Source { .. } | Self::Removal | Self::Key { .. } => true,
        }
    }
}

/// State of the skill that a waiting draft is about, compared with its state when the author made
/// the draft (the base).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SkillState {
    /// The skill is unchanged, or its state is unknown (`None`).
    Same(Option<Digest>),
    /// The skill has another bundle by now.
    Changed(Digest),
    Removed,
}

impl SkillState {
    /// Compares the present skill with the base of a draft of this content.
    async fn compare_base(page: &ConsolePage, content: &Content) -> Self {
        // An unreadable release does not block the draft, because accepting it compares the base
        // again.
        let Ok(snapshot) = open_shelf(page).take_snapshot().await else {
            return Self::Same(None);
        };
        let current = snapshot.find(&content.name);
        let current = current.map(|entry| entry.texts.bundle_hash);
        match current {
            current if current == content.base_bundle_hash => Self::Same(current),
            Some(current) => Self::Changed(current),
            None => Self::Removed,
        }
    }

    /// Returns the bundle of the skill as it is now, if it is known.
    const fn current_bundle(self) -> Option<Digest> {
        match self {
            Self::Same(bundle) => bundle,
            Self::Changed(bundle) => Some(bundle),
            Self::Removed => None,
        }
    }
}

#[derive(Template)]
#[template(path = "console/draft.html")]
struct DraftPage {
    shell: PageLayout,
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
    asked: DraftRequest,
    /// Whether the draft waits for a decision.
    pending: bool,
    /// State of the skill, while the draft waits.
    base: SkillState,
    /// Command line that accepts the draft.
    command: Option<String>,
    /// Sentences about what the command does.
    command_text: &'static str,
    /// Command line that accepts the draft in spite of security flags.
    exception: Option<String>,
    /// Digest of the content, if the person may let the server accept it from this page.
    accepts: Option<Digest>,
    /// Whether the person may decline the draft.
    declines: bool,
    here: String,
    max_reason: usize,
    csrf: String,
}

/// `GET /console/{slug}/drafts/{id}`: shows one draft, and what the person may do with it.
pub(super) async fn show_draft(page: ConsolePage) -> Result<Response, ErrorPage> {
    let by = Principal::from_user(page.as_acting_user(), &page.user);
    let found = find_visible(&by, page.param("id")).await;
    let draft = found.map_err(to_error_page)?.record;
    let author = &*draft.submitted_by.user_id;
    let names = Names::read_users(page.app(), &page.namespace, [author]).await?;
    let pending = draft.state == State::Pending;
    // Read before the files: if the skill changes in between, the form sends an outdated base, and
    // the server refuses to replace the skill.
    let base = match draft.content() {
        Some(content) if pending => SkillState::compare_base(&page, content).await,
        _ => SkillState::Same(None),
    };
    let here = page.address(&format!("/drafts/{}", draft.id));
    let request = read_request(&page, &by, &draft, &here).await?;
    let waits = pending && page.may_write();
    // A key request decides who may publish, so only owners decide about it.
    let decides = page.user.role == Role::Owner || draft.kind() != Kind::KeyRequest;
    let served = page.namespace.kind == NamespaceKind::SelfSigned;
    let can_admit = served && draft.content().is_some() && page.user.role == Role::Owner;
    // For a removed skill, the service accepts only a removal, as already done.
    let is_admissible = base != SkillState::Removed || draft.kind() == Kind::Remove;
    let is_acceptable = request.is_acceptable();
    let accepts = waits && can_admit && is_acceptable && is_admissible;
    let accepts = request.reviewed_digest(&draft).filter(|_| accepts);
    // A draft that this page does not show in full is reviewed and accepted on the command line.
    let by_command = !served || (can_admit && is_admissible && accepts.is_none());
    let (command, command_text) = accept_command(&draft, served);
    let exception = match &request {
        // A server that signs a vault itself allows no exceptions to its security check.
        DraftRequest::Files(files) if waits && !served => exception_command(&command, &files.flags),
        _ => None,
    };
    let template = DraftPage {
        shell: PageLayout::for_page(&page),
        list_href: page.address("/drafts"),
        title: draft_title(&draft),
        kind: kind_text(draft.kind()),
        by: names.display_name(&draft.submitted_by.user_id),
        client: draft.submitted_by.client_id.clone(),
        at: format_minute(draft.submitted_at),
        state: state_text(draft.state),
        mark: state_mark(draft.state),
        changed_at: (!pending).then(|| format_minute(draft.changed_at)),
        ends: draft
            .proposed()
            .map(|proposed| format_minute(proposed.ends_at)),
        reason: draft.reason.as_deref().map(printable_line),
        release: draft
            .release
            .map(|number| (number, page.address(&format!("/releases/{number}")))),
        command: (waits && decides && by_command && is_acceptable).then_some(command),
        command_text,
        exception,
        accepts,
        declines: waits && decides,
        here,
        max_reason: MAX_REASON_CHARS,
        csrf: page.form_token(),
        id: draft.id.to_string(),
        pending,
        base,
        asked: request,
    };
    Ok(show_page(&template))
}

async fn read_request(
    page: &ConsolePage,
    by: &Principal<'_>,
    draft: &DraftRecord,
    here: &str,
) -> Result<DraftRequest, ErrorPage> {
    let name = match &draft.subject {
        Subject::KeyRequest(key) => {
            return Ok(DraftRequest::Key {
                name: key.name.as_str().to_owned(),
                fingerprint: KeyFingerprint::publisher(&key.public_key).to_string(),
            });
        }
        Subject::Release(_) => return read_proposed_release(page, draft, here).await,
        // The content of a removal is only needed to accept it, so an ended one is shown without
        // it.
        Subject::Remove(_) if draft.state != State::Pending => return Ok(DraftRequest::Removal),
        Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
            content.name.clone()
        }
    };
    // The content of an ended draft may have been deleted, which is not an error.
    let key = draft.object_name().key(page.namespace.id);
    if page.app().object(&key).await?.is_none() {
        return Ok(DraftRequest::Gone);
    }
    let content = read_draft(by, draft).await?;
    match content.request.clone() {
        Request::Install { source } => Ok(DraftRequest::Source {
            identifier: printable_line(&source.identifier.to_string()),
            reference: source.reference.as_deref().map(printable_line),
        }),
        Request::Remove => Ok(DraftRequest::Removal),
        Request::Propose { files } => {
            let files = check_proposed_files(page, &name, files).await?;
            Ok(DraftRequest::Files(Box::new(files)))
        }
    }
}

/// Runs the security check on the files of a draft, and compares them with the skill as it is.
async fn check_proposed_files(
    page: &ConsolePage,
    name: &SkillName,
    files: Vec<vault_format::bundle::File>,
) -> Result<DraftFiles, StoreError> {
    let shelf = open_shelf(page);
    let (before, not_compared) = match current_skill(&*shelf, name).await {
        Ok(found) => (found, None),
        Err(error) => (None, Some(unavailable_text(error)?)),
    };
    let is_new = before.is_none() && not_compared.is_none();
    let present_files = before.map_or_else(Vec::new, |loaded| loaded.bundle.files.clone());
    let is_compared = not_compared.is_none();
    let judged = run_gate(page.app(), &page.namespace.id, move || {
        let raw = files.iter().cloned().map(RawFile::from).collect();
        let options = GateOptions {
            before: &present_files,
            ..GateOptions::in_service()
        };
        let verdict = vault_gate::check(raw, &options);
        // A draft has no file modes, so the modes of the present skill are ignored: otherwise each
        // executable file would look changed.
        let plain = |file: &vault_format::bundle::File| vault_format::bundle::File {
            mode: vault_format::manifest::Mode::Plain,
            ..file.clone()
        };
        let plain_files: Vec<_> = present_files.iter().map(plain).collect();
        let compared_files = if is_compared { &*plain_files } else { &[] };
        let difference = difference::compare_files(
            compared_files,
            &files,
            &mut HtmlBudget::new(DIFFERENCE_BYTES),
        );
        (verdict, difference)
    });
    let (verdict, difference) = judged.await?;
    let blocking = || {
        verdict
            .findings
            .iter()
            .filter(|it| it.level > Level::Warning)
    };
    // An exception is bound to the bytes of one file, so a finding about the whole skill allows
    // none.
    let is_flag = |it: &Finding| it.level == Level::Flag && !it.path.is_empty();
    let flags = if blocking().all(is_flag) {
        blocking().map(|finding| finding.rule).collect()
    } else {
        BTreeSet::new()
    };
    let more_findings = verdict.findings.len().saturating_sub(FINDINGS_SHOWN);
    let findings = verdict.findings.iter().take(FINDINGS_SHOWN);
    Ok(DraftFiles {
        is_new,
        blocked: verdict.package.is_none(),
        reviewed: verdict
            .package
            .as_ref()
            .map(|package| files_sha256(&package.files)),
        flags,
        findings: findings.map(FindingRow::from_finding).collect(),
        more_findings,
        difference,
        not_compared,
    })
}

async fn read_proposed_release(
    page: &ConsolePage,
    draft: &DraftRecord,
    here: &str,
) -> Result<DraftRequest, ErrorPage> {
    let Some(proposed) = draft.proposed() else {
        return Ok(DraftRequest::Gone);
    };
    let (chain, _) = readable_chain(page).await;
    let chain = chain.as_deref();
    let signers = proposed.signers.iter();
    let signers =
        signers.map(|key| named_key(&page.namespace, chain, &KeyFingerprint::publisher(key)));
    Ok(DraftRequest::Release {
        signers: signers.collect(),
        needed: chain.map(|chain| chain.document().release().threshold()),
        payload: proposed.payload_sha256.to_string(),
        changes: proposed_changes(page, draft, proposed, here).await?,
    })
}

/// Compares a proposed release with the current one.
async fn proposed_changes(
    page: &ConsolePage,
    draft: &DraftRecord,
    proposed: &Proposed,
    here: &str,
) -> Result<ProposedChanges, ErrorPage> {
    if draft.release.is_some() {
        return Ok(ProposedChanges::Published);
    }
    let key = draft.object_name().key(page.namespace.id);
    let object = page.app().object(&key).await?;
    let catalog = object.and_then(|object| {
        let file = SignedCatalog::parse(&object.bytes).ok()?;
        file.read_counted(&proposed.payload_sha256).ok()
    });
    let Some(catalog) = catalog else {
        return Ok(ProposedChanges::Unreadable);
    };
    let catalogs = &page.cache.catalogs;
    let current = catalogs.current_catalog(page.app(), &page.namespace).await;
    let Some(current) = log_unreadable(current) else {
        return Ok(ProposedChanges::CurrentUnreadable);
    };
    let differences = compare_releases(page, current.as_deref(), &catalog, here).await?;
    Ok(ProposedChanges::Compared(differences))
}

/// Handles the form that declines a draft, or makes the server accept it.
pub(super) async fn decide_draft(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let (by, id) = (
        Principal::from_user(form.page.as_acting_user(), &form.page.user),
        form.page.param("id"),
    );
    // An unknown draft has no page that could show a notice, so it gets a 404.
    find_visible(&by, id).await.map_err(to_error_page)?;
    match form.required_field("change")? {
        "decline" => {
            let reason = form.required_field("reason")?.trim().to_owned();
            decline_draft(&by, id, reason).await?;
            Ok(form.redirect_back(Outcome::DraftDeclined))
        }
        "accept" => {
            let base = form.form.value("base").map(str::parse).transpose();
            let base: Option<Digest> = base.map_err(|_| ErrorPage::FormMalformed)?;
            let content = form.required_field("reviewed")?.parse();
            let content = content.map_err(|_| ErrorPage::FormMalformed)?;
            // The server accepts exactly what the page showed, and refuses if the files or the base
            // have changed since.
            admit_draft(&by, id, ReviewedContent { content, base }).await?;
            Ok(form.redirect_back(Outcome::DraftAccepted))
        }
        _ => Err(ErrorPage::FormMalformed),
    }
}
