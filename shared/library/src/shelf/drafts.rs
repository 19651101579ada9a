//! Changes by tools that wait for the owner's review, if the owner wants to review them.
//!
//! A draft lies in the vault's part of the trust folder and changes nothing. The gate judges it
//! when it is submitted, so that its author learns at once what is wrong, and again before anything
//! is signed; only the second result decides. Files that a tool sends are stored in the draft. A
//! folder or another source is read again when the owner reviews the draft, so that exactly what is
//! shown is signed.

use serde::{Deserialize, Serialize};
use vault_format::draft::{Draft, DraftContext, DraftError, GateHint, Request, Source, Submitter};
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::name::{AgentId, DraftId, SkillName, Slug};
use vault_gate as gate;
use vault_shelf::{Change, ShelfError, Submitted};
use vault_store::random::ulid_parts;

use super::PreparedChange;
use super::changes::{addition_options, bounded_options, examine_folder};
use crate::admit::propose::{ProposeSkill, proposal_options};
use crate::admit::remove::{RemoveSkills, remove_under};
use crate::admit::update::{not_own_skill_error, update_options};
use crate::admit::{
    self, AdmitError, AdmitReport, Candidate, Neighbours, Options, admit_all_under,
    examine_candidate, preview_admission,
};
use crate::installed::installations::read_own_skill;
use crate::vault::folder::PrivateFolder;
use crate::vault::{Vault, VaultError};

/// Limit on the number of drafts that wait in a vault.
pub const MAX_DRAFTS: usize = 20;
/// Limit on the size of all waiting drafts of a vault together, in bytes.
pub const MAX_BYTES: usize = 8 << 20;
/// Name that drafts on this machine give to the vault. Drafts at a service contain the vault's
/// slug.
const OWNER: &str = "local";
const FOLDER: &str = "drafts";

/// The origin of a draft's files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DraftOrigin {
    /// The draft itself contains the files. A removal has this origin too, without files.
    Draft,
    /// A folder of this machine, by its absolute path.
    Folder(String),
    /// The source that the draft names, which is fetched again for the review.
    Source,
    /// The recorded source of the installed skill, which is fetched again for the review.
    Update,
}

/// A draft that waits on this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalDraft {
    /// The request, with its author. Its `slug` is always `local`.
    pub draft: Draft,
    /// Exact bytes of `draft`.
    pub bytes: Vec<u8>,
    /// Place from which the review reads the files.
    pub origin: DraftOrigin,
    /// Agents that the skill is for, in addition to those that it declares.
    pub agents: Vec<AgentId>,
    /// Whether the draft may replace a skill that was submitted or added from a local folder.
    pub replace: bool,
}

#[derive(Deserialize, Serialize)]
struct Record {
    origin: OriginWord,
    /// Path of the folder; only for the origin `folder`.
    folder: Option<String>,
    agents: Vec<AgentId>,
    replace: bool,
    draft: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum OriginWord {
    Draft,
    Folder,
    Source,
    Update,
}

impl Record {
    fn new(judged: JudgedChange, draft: String) -> Self {
        let (origin, folder) = match judged.origin {
            DraftOrigin::Draft => (OriginWord::Draft, None),
            DraftOrigin::Folder(path) => (OriginWord::Folder, Some(path)),
            DraftOrigin::Source => (OriginWord::Source, None),
            DraftOrigin::Update => (OriginWord::Update, None),
        };
        Self {
            origin,
            folder,
            agents: judged.agents,
            replace: judged.replace,
            draft,
        }
    }

    fn origin(&self) -> Option<DraftOrigin> {
        match (&self.origin, &self.folder) {
            (OriginWord::Draft, None) => Some(DraftOrigin::Draft),
            (OriginWord::Folder, Some(path)) => Some(DraftOrigin::Folder(path.clone())),
            (OriginWord::Source, None) => Some(DraftOrigin::Source),
            (OriginWord::Update, None) => Some(DraftOrigin::Update),
            _ => None,
        }
    }
}

/// A change that the gate has judged, so that it can become a draft.
struct JudgedChange {
    name: SkillName,
    request: Request,
    origin: DraftOrigin,
    agents: Vec<AgentId>,
    replace: bool,
    flags: Vec<vault_format::manifest::Flag>,
    findings: Vec<gate::finding::Finding>,
}

/// Returns the slug in every draft of this machine.
pub fn local_slug() -> Slug {
    OWNER.parse().expect("a constant slug")
}

/// The drafts that wait in a vault.
#[derive(Debug, Default)]
pub struct WaitingDrafts {
    /// Drafts that can be read, oldest first.
    pub drafts: Vec<LocalDraft>,
    /// Drafts that can't be read, or that are for another vault. They do not hide the others.
    pub damaged: Vec<(DraftId, VaultError)>,
}

/// Reads the waiting drafts of a vault. One that can't be read is returned as damaged and is no
/// error.
pub fn read_drafts(vault: &Vault) -> Result<WaitingDrafts, VaultError> {
    let folder = vault.trust_folder().child(FOLDER);
    let mut waiting = WaitingDrafts::default();
    for name in folder.file_names()? {
        // A file with another name is temporary: another process is writing or removing a draft.
        let Ok(id) = name.parse::<DraftId>() else {
            continue;
        };
        match read_draft(vault, &folder, &name) {
            Ok(draft) => waiting.drafts.extend(draft),
            Err(error) => waiting.damaged.push((id, error)),
        }
    }
    Ok(waiting)
}

/// Reads a draft; `None` if it was removed in between.
fn read_draft(
    vault: &Vault,
    folder: &PrivateFolder,
    name: &str,
) -> Result<Option<LocalDraft>, VaultError> {
    let Some(record) = folder.read_record::<Record>(name)? else {
        return Ok(None);
    };
    let damaged = |reason: String| VaultError::Damaged {
        path: folder.path_of(name),
        reason,
    };
    let origin = record.origin();
    let origin = origin.ok_or_else(|| damaged("it has no origin".to_owned()))?;
    let bytes = record.draft.into_bytes();
    let slug = local_slug();
    let context = DraftContext {
        slug: &slug,
        vault_id: Some(vault.id()),
    };
    let draft = Draft::parse(&bytes, &context).map_err(|error| damaged(error.to_string()))?;
    if draft.draft_id.as_str() != name {
        return Err(damaged("it is another draft than its name says".to_owned()));
    }
    Ok(Some(LocalDraft {
        draft,
        bytes,
        origin,
        agents: record.agents,
        replace: record.replace,
    }))
}

/// Removes a draft that was accepted or declined. Returns whether it was there.
pub fn remove_draft(vault: &Vault, id: &DraftId) -> Result<bool, VaultError> {
    let _change = vault.begin_change()?;
    let folder = vault.trust_folder().child(FOLDER);
    Ok(folder.remove_file(id.as_str())?)
}

/// The decision of a person who accepts a draft, as it was shown.
#[derive(Debug)]
pub enum AcceptedDraft<'a> {
    /// Admit these files, which the gate has judged.
    Admit(&'a Candidate),
    /// Remove the skill, while it is this bundle.
    Remove(Digest),
    /// Only close the draft, while the vault has what it asks for: this bundle of the skill, or no
    /// such skill after a removal.
    Close(Option<Digest>),
}

/// A reason why a draft was not accepted. The vault and the draft are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Another command has accepted or removed the draft since it was read.
    #[error("the draft {0} is decided already")]
    Decided(DraftId),
    /// The gate blocks the files, or the vault rejects them for another reason.
    #[error(transparent)]
    Refused(#[from] AdmitError),
}

impl From<VaultError> for AcceptError {
    fn from(failed: VaultError) -> Self {
        Self::Refused(failed.into())
    }
}

/// Carries out a draft and removes it, under one lock: a draft that is declined or withdrawn at the
/// same time is either carried out or not. Returns whether the vault has changed. If the process is
/// killed in between, the draft stays, and its next review shows that the vault already has what it
/// asks for.
pub fn accept_draft(
    vault: &Vault,
    shown: &LocalDraft,
    accepted: &AcceptedDraft<'_>,
) -> Result<bool, AcceptError> {
    let mut change = vault.begin_change()?;
    let folder = vault.trust_folder().child(FOLDER);
    let (id, name) = (shown.draft.draft_id, &shown.draft.name);
    let waiting = read_draft(vault, &folder, id.as_str())?;
    if waiting.as_ref() != Some(shown) {
        return Err(AcceptError::Decided(id));
    }
    let changed = match accepted {
        AcceptedDraft::Admit(candidate) => {
            let candidates = std::slice::from_ref(*candidate);
            let reports = admit_all_under(vault, &mut change, candidates)?;
            reports.iter().any(AdmitReport::is_change)
        }
        AcceptedDraft::Remove(bundle) => {
            if current_bundle(vault, name)? != Some(*bundle) {
                return Err(AdmitError::BaseChanged(name.clone()).into());
            }
            let request = RemoveSkills {
                names: vec![name.to_string()],
                ..RemoveSkills::default()
            };
            let removed = remove_under(vault, &mut change, &request)?;
            !removed.removed.is_empty()
        }
        AcceptedDraft::Close(held) => {
            if current_bundle(vault, name)? != *held {
                return Err(AdmitError::BaseChanged(name.clone()).into());
            }
            false
        }
    };
    folder.remove_file(id.as_str()).map_err(VaultError::from)?;
    Ok(changed)
}

/// Judges a prepared change and keeps it as a draft. Keeps none if the vault has the same content
/// already, or if the gate blocks the change; the answer says so.
pub(super) fn submit_draft(
    vault: &Vault,
    by: &Submitter,
    prepared: PreparedChange,
) -> Result<Submitted, ShelfError> {
    let is_check = matches!(prepared.change, Change::Take { check: true, .. });
    let judged = match judge_change(vault, by, prepared)? {
        Ok(judged) => judged,
        Err(answer) => return Ok(answer),
    };
    if is_check {
        return Ok(Submitted::WouldPass {
            name: judged.name,
            findings: judged.findings,
        });
    }
    keep_draft(vault, by, judged)
}

/// A change whose files the gate has examined, with what a draft of it records.
struct ExaminedChange {
    candidate: Result<Candidate, AdmitError>,
    origin: DraftOrigin,
    agents: Vec<AgentId>,
    replace: bool,
    /// Source that the caller named; `None` for other changes.
    given: Option<Source>,
}

/// Returns the judged change, or the final answer if there is nothing for the owner to decide.
fn judge_change(
    vault: &Vault,
    by: &Submitter,
    prepared: PreparedChange,
) -> Result<Result<JudgedChange, Submitted>, ShelfError> {
    if let Change::Remove(name) = prepared.change {
        return judge_removal(vault, name).map(Ok);
    }
    let examined = examine_change(vault, by, prepared)?;
    let candidate = match examined.candidate {
        Ok(candidate) => candidate,
        Err(AdmitError::Blocked { findings }) => {
            return Ok(Err(Submitted::Refused { findings }));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(report) = preview_admission(vault, &candidate)? {
        return Ok(Err(Submitted::Unchanged {
            name: report.name,
            version: report.version,
            bundle_hash: report.bundle,
        }));
    }
    let request = request_of(&candidate, &examined.origin, examined.given);
    Ok(Ok(JudgedChange {
        name: candidate.package.name,
        request,
        origin: examined.origin,
        agents: examined.agents,
        replace: examined.replace,
        flags: candidate.package.flags,
        findings: candidate.package.findings,
    }))
}

/// Runs the gate on the files of a change.
fn examine_change(
    vault: &Vault,
    by: &Submitter,
    prepared: PreparedChange,
) -> Result<ExaminedChange, ShelfError> {
    let PreparedChange { change, source, .. } = prepared;
    let examine = |source, options: &Options| {
        examine_candidate(source, options, &mut Neighbours::for_vault(vault))
    };
    let missing = || ShelfError::Failed("this source was not fetched before".to_owned());
    let new = |candidate, origin| ExaminedChange {
        candidate,
        origin,
        agents: Vec::new(),
        replace: false,
        given: None,
    };
    match change {
        Change::Take {
            files,
            replace,
            check,
            ..
        } => {
            let proposal = ProposeSkill {
                files,
                by: by.user_id.clone(),
                replace,
                check,
                reviewed: None,
            };
            let options = proposal_options(&proposal);
            let source = admit::Source::Text {
                files: proposal.files,
                by: proposal.by,
            };
            let examined = new(examine(source, &options), DraftOrigin::Draft);
            Ok(ExaminedChange {
                replace,
                ..examined
            })
        }
        Change::Folder {
            path,
            skill,
            identifier,
            agents,
        } => {
            let path = absolute_path(&path)?;
            let options = addition_options(agents.clone());
            let named = (path.as_str(), skill.as_ref());
            let candidate = examine_folder(vault, named, &identifier, &options)?;
            let examined = new(candidate, DraftOrigin::Folder(path));
            Ok(ExaminedChange { agents, ..examined })
        }
        Change::Fetch {
            source: given,
            agents,
            ..
        } => {
            let candidate = examine(
                source.ok_or_else(missing)?,
                &addition_options(agents.clone()),
            );
            Ok(ExaminedChange {
                agents,
                given: Some(given),
                ..new(candidate, DraftOrigin::Source)
            })
        }
        Change::Update(name) => {
            let options = update_options(vault, &name, bounded_options())?;
            let candidate = examine(source.ok_or_else(missing)?, &options);
            Ok(new(candidate, DraftOrigin::Update))
        }
        Change::Remove(_) => Err(ShelfError::Failed("a removal has no files".to_owned())),
    }
}

/// Returns the absolute path of a folder. The owner reviews the draft in another working directory,
/// where a relative path would lead elsewhere.
fn absolute_path(path: &str) -> Result<String, ShelfError> {
    let absolute = std::path::absolute(path).ok();
    let text = absolute.and_then(|path| path.into_os_string().into_string().ok());
    text.ok_or_else(|| ShelfError::Source("the folder has no absolute path".to_owned()))
}

fn judge_removal(vault: &Vault, name: SkillName) -> Result<JudgedChange, ShelfError> {
    if read_own_skill(vault, &name, &vault.trusted()?)?.is_none() {
        return Err(not_own_skill_error(vault, &name)?.into());
    }
    Ok(JudgedChange {
        name,
        request: Request::Remove,
        origin: DraftOrigin::Draft,
        agents: Vec::new(),
        replace: false,
        flags: Vec::new(),
        findings: Vec::new(),
    })
}

/// Returns what the draft asks for.
fn request_of(candidate: &Candidate, origin: &DraftOrigin, given: Option<Source>) -> Request {
    match (origin, given) {
        (DraftOrigin::Draft, _) => Request::Propose {
            files: candidate.package.files.clone(),
        },
        (_, Some(source)) => Request::Install { source },
        (_, None) => Request::Install {
            source: Source {
                identifier: candidate.provenance.identifier.clone(),
                reference: None,
            },
        },
    }
}

/// Stores a draft, unless the same one waits already.
fn keep_draft(
    vault: &Vault,
    by: &Submitter,
    judged: JudgedChange,
) -> Result<Submitted, ShelfError> {
    // Take the lock, so that several sessions together keep the limits, and the base is the skill
    // that is installed now.
    let _change = vault.begin_change()?;
    let WaitingDrafts { drafts, damaged } = read_drafts(vault)?;
    // A draft that can't be read counts as well.
    let number = drafts.len() + damaged.len();
    let base = current_bundle(vault, &judged.name)?;
    let (millis, bits) = ulid_parts(vault.clock(), vault.random());
    let draft = Draft {
        draft_id: DraftId::from_parts(millis, bits),
        vault_id: Some(*vault.id()),
        slug: local_slug(),
        name: judged.name.clone(),
        base_bundle_hash: base,
        submitted_at: vault.clock().now(),
        submitted_by: by.clone(),
        request: judged.request.clone(),
        gate: GateHint {
            rules: gate::RULES.to_owned(),
            flags: judged.flags.clone(),
        },
    };
    let is_same = |other: &&LocalDraft| {
        let held = &other.draft;
        (&held.name, &held.base_bundle_hash, &held.request)
            == (&draft.name, &draft.base_bundle_hash, &draft.request)
            && other.origin == judged.origin
            && other.agents == judged.agents
    };
    if let Some(same) = drafts.iter().find(is_same) {
        return Ok(drafted_answer(&same.draft, judged.findings, number));
    }
    if number >= MAX_DRAFTS {
        return Err(drafts_full_error(&format!(
            "{MAX_DRAFTS} drafts wait already"
        )));
    }
    let bytes = draft.to_bytes().map_err(|error| match error {
        DraftError::TooLarge(_) => ShelfError::TooLarge(error.to_string()),
        error => ShelfError::Source(error.to_string()),
    })?;
    let held: usize = drafts.iter().map(|draft| draft.bytes.len()).sum();
    if held + bytes.len() > MAX_BYTES {
        let limit = MAX_BYTES >> 20;
        return Err(drafts_full_error(&format!(
            "the drafts that wait would exceed {limit} MiB"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| ShelfError::Failed(error.to_string()))?;
    let findings = judged.findings.clone();
    let record = Record::new(judged, text);
    let folder = vault.trust_folder().child(FOLDER);
    let name = draft.draft_id.as_str();
    let is_new = folder
        .create_file(name, &json::to_bytes(&record))
        .map_err(VaultError::from)?;
    if !is_new {
        return Err(ShelfError::Failed(format!(
            "there is a draft {name} already"
        )));
    }
    Ok(drafted_answer(&draft, findings, number + 1))
}

fn drafts_full_error(reason: &str) -> ShelfError {
    ShelfError::DraftsFull(format!(
        "{reason}; the owner accepts or declines some first (`vault drafts list`)"
    ))
}

fn drafted_answer(
    draft: &Draft,
    findings: Vec<gate::finding::Finding>,
    waiting: usize,
) -> Submitted {
    Submitted::Drafted {
        draft: draft.draft_id,
        name: draft.name.clone(),
        findings,
        waiting: waiting as u64,
    }
}

fn current_bundle(vault: &Vault, name: &SkillName) -> Result<Option<Digest>, VaultError> {
    let own_skill = read_own_skill(vault, name, &vault.trusted()?)?;
    Ok(own_skill.map(|found| found.bundle))
}
