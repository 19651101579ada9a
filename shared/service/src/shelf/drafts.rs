//! Turns changes that cannot be signed here at once into drafts, which wait for an owner or a
//! publisher. Nothing is fetched, run or signed here.
//!
//! The gate (the security scanner) checks the files now, so that the author learns at once what it
//! will report to the owner. It checks them again before they are signed, and only that result
//! decides.
//!
//! The answer to a draft reveals nothing about a skill that is hidden from its author: a change
//! that is marked `hidden` is treated, down to the work that it causes, as if no skill had this
//! name.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::draft::{Draft, DraftError, GateHint, Request, Source, Submitter};
use vault_format::hash::Digest;
use vault_format::name::{DraftId, SkillName};
use vault_format::time::Timestamp;
use vault_gate::finding::Finding;
use vault_gate::package::Package;
use vault_gate::{self as gate, GateOptions, RawFile, secrets};
use vault_shelf::{
    Change, Drift, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes, drafted_name,
};
use vault_store::StoreError;
use vault_store::random::ulid_parts;

use super::blocking::run_blocking;
use crate::app::App;
use crate::drafts::{IncomingDraft, KeepError, KeepOutcome, check_room, store_draft};
use crate::model::audit::Actor;
use crate::model::draft::{Content, DraftRecord, Queue, QueueShare, Subject, author_queue_key};
use crate::model::namespace::Namespace;
use crate::spending::run_gate;

/// A shelf that reads through another one, and turns every change into a draft.
pub(crate) struct DraftingShelf {
    /// The shelf that is read.
    pub(crate) inner: Arc<dyn Shelf>,
    pub(crate) app: App,
    pub(crate) namespace: Namespace,
    /// IP address of the client, for the audit log.
    pub(crate) source: Option<IpAddr>,
}

#[async_trait]
impl Shelf for DraftingShelf {
    fn owner_name(&self) -> &str {
        self.inner.owner_name()
    }

    fn write_mode(&self) -> Writes {
        Writes::Drafted
    }

    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        self.inner.take_snapshot().await
    }

    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        self.inner.load_skill(entry).await
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        let drafts = DraftTarget {
            app: &self.app,
            namespace: &self.namespace,
            shelf: &*self.inner,
            by,
            source: self.source,
        };
        submit_as_draft(&drafts, change).await
    }

    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError> {
        self.inner.drift(entries, named).await
    }
}

pub(super) struct DraftTarget<'a> {
    pub(super) app: &'a App,
    pub(super) namespace: &'a Namespace,
    /// The shelf with the current skills.
    pub(super) shelf: &'a dyn Shelf,
    pub(super) by: &'a Submitter,
    /// IP address of the client, for the audit log.
    pub(super) source: Option<IpAddr>,
}

pub(super) async fn submit_as_draft(
    drafts: &DraftTarget<'_>,
    change: Change,
) -> Result<Submitted, ShelfError> {
    match change {
        Change::Take {
            files,
            replace,
            check,
            hidden,
        } => {
            let (verdict, left_out) = run_gate(drafts.app, &drafts.namespace.id, move || {
                // Files that look like secrets are left out. Only the people who decide about the
                // draft could allow them, and they have not seen the files yet.
                let mut separated = secrets::separate_secrets(files, &[]);
                let files = std::mem::take(&mut separated.files);
                let mut verdict = gate::check(files, &GateOptions::in_service());
                for finding in separated.findings() {
                    verdict.add_warning(finding);
                }
                (verdict, secrets::left_out_text(&separated.left_out))
            })
            .await?;
            let Some(package) = verdict.package else {
                return Ok(Submitted::Refused {
                    findings: verdict.findings,
                });
            };
            let checked_files = CheckedFiles {
                package,
                findings: verdict.findings,
                left_out,
                replace,
                check,
                hidden,
            };
            propose_checked(drafts, checked_files).await
        }
        Change::Folder { .. } => Err(ShelfError::SourceUnsupported(
            "a folder cannot be read here; propose the skill's files instead".to_owned(),
        )),
        Change::Fetch {
            source: from,
            skill,
            agents: _,
            hidden,
        } => propose_install(drafts, from, skill.as_ref(), hidden).await,
        Change::Update(name) => {
            // An update is fetched from the source of the skill, and nothing is fetched here.
            require_base(drafts.shelf, &name).await?;
            Err(ShelfError::SourceUnsupported(format!(
                "`{name}` is updated on the owner's machine"
            )))
        }
        Change::Remove(name) => {
            let request = DraftContent {
                base: Some(require_base(drafts.shelf, &name).await?),
                name,
                request: Request::Remove,
                flags: Vec::new(),
                findings: Vec::new(),
                left_out: None,
            };
            store_as_draft(drafts, request).await
        }
    }
}

/// Returns the hash of the bundle that a skill has now, as the base of a draft. Fails if there is
/// no such skill.
async fn require_base(shelf: &dyn Shelf, name: &SkillName) -> Result<Digest, ShelfError> {
    let snapshot = shelf.take_snapshot().await?;
    let entry = snapshot.find(name);
    entry
        .map(|entry| entry.texts.bundle_hash)
        .ok_or_else(|| ShelfError::NotFound(name.clone()))
}

struct DraftContent {
    name: SkillName,
    /// `None` for a skill that does not exist yet.
    base: Option<Digest>,
    request: Request,
    flags: Vec<vault_format::manifest::Flag>,
    findings: Vec<Finding>,
    /// Text that lists the files that were left out because they look like secrets.
    left_out: Option<String>,
}

/// Files that passed the gate.
struct CheckedFiles {
    package: Package,
    findings: Vec<Finding>,
    left_out: Option<String>,
    replace: bool,
    check: bool,
    hidden: bool,
}

async fn propose_checked(
    drafts: &DraftTarget<'_>,
    given: CheckedFiles,
) -> Result<Submitted, ShelfError> {
    let name = given.package.name.clone();
    let snapshot = drafts.shelf.take_snapshot().await?;
    // A hidden skill is treated as absent even if the names collide: any other answer would reveal
    // it.
    let entry = snapshot.find(&name).filter(|_| !given.hidden);
    if let Some(entry) = entry {
        if entry.is_linked() {
            return Err(ShelfError::NameTaken(format!(
                "`{name}` comes from a linked vault, whose releases update it"
            )));
        }
        match drafts.shelf.load_skill(entry).await {
            Ok(loaded) if has_same_files(&loaded.bundle.files, &given.package.files) => {
                return Ok(Submitted::Unchanged {
                    name,
                    version: entry.version,
                    bundle_hash: entry.texts.bundle_hash,
                });
            }
            // The stored skill differs or cannot be compared, so the author must ask for its
            // replacement.
            Ok(_)
            | Err(
                ShelfError::SubscriptionLapsed
                | ShelfError::Damaged(..)
                | ShelfError::Unavailable(_)
                | ShelfError::NotFound(_),
            ) => {}
            Err(error) => return Err(error),
        }
        if !given.replace {
            return Err(ShelfError::NameTaken(format!(
                "there is a skill named `{name}`: it has other content"
            )));
        }
    }
    let draft_content = DraftContent {
        base: entry.map(|entry| entry.texts.bundle_hash),
        name,
        flags: given.package.flags,
        findings: given.findings,
        left_out: given.left_out,
        request: Request::Propose {
            files: given.package.files,
        },
    };
    // A mere check also builds the draft, because only that reveals whether its size and form are
    // valid.
    if !given.check {
        return store_as_draft(drafts, draft_content).await;
    }
    let encoded = build_draft(
        drafts,
        draft_content.request,
        &draft_content.name,
        draft_content.base,
        draft_content.flags,
    )
    .await?;
    check_room(drafts.app, drafts.namespace, &drafts.by.user_id).await?;
    Ok(Submitted::WouldPass {
        name: encoded.draft.name,
        findings: draft_content.findings,
    })
}

/// Whether two lists of files have the same paths and contents. Modes are not compared, because
/// drafts have none.
pub(crate) fn has_same_files(
    files: &[vault_format::bundle::File],
    wanted: &[vault_format::bundle::File],
) -> bool {
    files.len() == wanted.len()
        && files
            .iter()
            .zip(wanted)
            .all(|(held, file)| held.path == file.path && held.bytes == file.bytes)
}

async fn propose_install(
    drafts: &DraftTarget<'_>,
    from: Source,
    skill: Option<&SkillName>,
    hidden: bool,
) -> Result<Submitted, ShelfError> {
    let name = drafted_name(&from, skill)
        .ok_or_else(|| ShelfError::Source("say which skill of this source is meant".to_owned()))?;
    let snapshot = drafts.shelf.take_snapshot().await?;
    let entry = snapshot.find(&name).filter(|_| !hidden);
    let draft_content = DraftContent {
        base: entry.map(|entry| entry.texts.bundle_hash),
        name,
        request: Request::Install { source: from },
        flags: Vec::new(),
        findings: Vec::new(),
        left_out: None,
    };
    store_as_draft(drafts, draft_content).await
}

/// Builds a draft with a fresh id, and encodes it.
async fn build_draft(
    drafts: &DraftTarget<'_>,
    request: Request,
    name: &SkillName,
    base: Option<Digest>,
    flags: Vec<vault_format::manifest::Flag>,
) -> Result<EncodedDraft, ShelfError> {
    let (millis, bits) = ulid_parts(&drafts.app.clock, &drafts.app.random);
    let draft_content = DraftContent {
        name: name.clone(),
        base,
        request,
        flags,
        findings: Vec::new(),
        left_out: None,
    };
    let (app, namespace) = (drafts.app, drafts.namespace);
    let id = DraftId::from_parts(millis, bits);
    to_bytes(new_draft(app, namespace, drafts.by, id, draft_content)).await
}

fn new_draft(
    app: &App,
    namespace: &Namespace,
    by: &Submitter,
    id: DraftId,
    wanted: DraftContent,
) -> Draft {
    Draft {
        draft_id: id,
        vault_id: namespace.pin.vault_pin().map(|pin| pin.vault_id),
        slug: namespace.slug.clone(),
        name: wanted.name,
        base_bundle_hash: wanted.base,
        submitted_at: app.clock.now(),
        submitted_by: by.clone(),
        request: wanted.request,
        gate: GateHint {
            rules: gate::RULES.to_owned(),
            flags: wanted.flags,
        },
    }
}

/// Stores files as a draft with this id, submitted by `by`. For skills that come with the service.
/// It does not matter whether the namespace already has a skill of that name: the owner decides.
pub(crate) async fn propose_files(
    app: &App,
    namespace: &Namespace,
    by: &Submitter,
    id: DraftId,
    files: Vec<RawFile>,
) -> Result<(), ShelfError> {
    let check = move || (gate::check(files, &GateOptions::in_service()), ());
    let (verdict, ()) = run_gate(app, &namespace.id, check).await?;
    let package = verdict
        .package
        .ok_or_else(|| ShelfError::Failed("the gate refuses a skill of this service".into()))?;
    let flags = package.flags.len() as u64;
    let draft_content = DraftContent {
        name: package.name,
        base: None,
        request: Request::Propose {
            files: package.files,
        },
        flags: package.flags,
        findings: Vec::new(),
        left_out: None,
    };
    let draft = to_bytes(new_draft(app, namespace, by, id, draft_content)).await?;
    let record = to_record(&draft, flags);
    let bytes = draft.bytes;
    let actor = Actor {
        user: by.user_id.clone(),
        ..Actor::default()
    };
    let coming = IncomingDraft {
        namespace,
        actor: &actor,
        objects: vec![(record.object_name().key(namespace.id), Bytes::from(bytes))],
        record,
    };
    store_draft(app, coming).await?;
    Ok(())
}

struct EncodedDraft {
    draft: Draft,
    bytes: Vec<u8>,
    /// Digest of what the draft asks for, by which equal requests are found; see
    /// [`Content::request`].
    request: Digest,
}

/// Encodes a draft, and computes the digest of its request.
fn encode_draft(mut draft: Draft) -> Result<EncodedDraft, DraftError> {
    let bytes = draft.to_bytes()?;
    // The draft is encoded again without the members in which equal requests differ. They are taken
    // out and put back, because a copy of the draft would copy all its files.
    let id = std::mem::replace(&mut draft.draft_id, DraftId::from_parts(0, 0));
    let at = std::mem::replace(&mut draft.submitted_at, Timestamp::from_unix(0));
    let client = draft.submitted_by.client_id.take();
    let request = Digest::of(&draft.to_bytes()?);
    (draft.draft_id, draft.submitted_at) = (id, at);
    draft.submitted_by.client_id = client;
    Ok(EncodedDraft {
        draft,
        bytes,
        request,
    })
}

async fn to_bytes(draft: Draft) -> Result<EncodedDraft, ShelfError> {
    run_blocking(move || match encode_draft(draft) {
        Ok(encoded) => Ok(encoded),
        Err(error @ (DraftError::TooLarge(_) | DraftError::Files(_))) => {
            Err(ShelfError::TooLarge(error.to_string()))
        }
        Err(error @ DraftError::Revision) => Err(ShelfError::Source(error.to_string())),
        Err(error) => Err(ShelfError::Failed(error.to_string())),
    })
    .await
}

/// Stores a draft. The result includes how many drafts of its author wait.
async fn store_as_draft(
    drafts: &DraftTarget<'_>,
    wanted: DraftContent,
) -> Result<Submitted, ShelfError> {
    let (app, namespace, by) = (drafts.app, drafts.namespace, drafts.by);
    let flags = wanted.flags.len() as u64;
    let encoded = build_draft(
        drafts,
        wanted.request,
        &wanted.name,
        wanted.base,
        wanted.flags,
    )
    .await?;
    let mut record = to_record(&encoded, flags);
    // Otherwise the owner who decides would not notice that files are missing.
    record.reason = wanted.left_out;
    let object = (
        record.object_name().key(namespace.id),
        Bytes::from(encoded.bytes),
    );
    let actor = Actor {
        user: by.user_id.clone(),
        client: by.client_id.clone(),
        source: drafts.source,
    };
    let coming = IncomingDraft {
        namespace,
        actor: &actor,
        record,
        objects: vec![object],
    };
    let (KeepOutcome::New(record) | KeepOutcome::Same(record)) = store_draft(app, coming).await?;
    Ok(Submitted::Drafted {
        draft: record.id,
        name: encoded.draft.name,
        findings: wanted.findings,
        waiting: count_waiting(app, namespace, &by.user_id).await?,
    })
}

fn to_record(encoded: &EncodedDraft, flags: u64) -> DraftRecord {
    let (draft, bytes) = (&encoded.draft, &encoded.bytes);
    let content = Content {
        name: draft.name.clone(),
        base_bundle_hash: draft.base_bundle_hash,
        flags,
        place: QueueShare::Own,
        request: Some(encoded.request),
    };
    let subject = match draft.request {
        Request::Propose { .. } => Subject::Propose(content),
        Request::Install { .. } => Subject::Install(content),
        Request::Remove => Subject::Remove(content),
    };
    let by = draft.submitted_by.clone();
    DraftRecord::new(draft.draft_id, subject, bytes, draft.submitted_at, by)
}

/// Returns how many drafts of an author about skills are pending.
async fn count_waiting(app: &App, namespace: &Namespace, author: &str) -> Result<u64, StoreError> {
    let key = author_queue_key(&namespace.id, author);
    let record = app.records.get_one(&key).await?;
    let queue = record.map_or(Ok(Queue::default()), |record| record.read())?;
    Ok(u64::try_from(queue.own + queue.pending).unwrap_or(0))
}

impl From<KeepError> for ShelfError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Full(full) => Self::DraftsFull(full.to_string()),
            KeepError::Storage(full) => Self::StorageFull(full.to_string()),
            KeepError::Places(full) => Self::DraftsFull(full.to_string()),
            KeepError::OfAnother => Self::Failed(error.to_string()),
            KeepError::Store(error) => error.into(),
        }
    }
}
