//! Changes that cannot be signed here immediately become drafts that wait for an owner or a
//! publisher. Nothing is fetched, run or signed here.
//!
//! The gate checks the files now, so that the author learns immediately what the owner's gate will
//! report; it checks them again before signing, and that result decides.
//!
//! A draft reveals nothing to its author about a skill that is hidden from them: a change that is
//! marked `hidden` is treated, down to the work that it causes, as one of a name that no skill has.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::draft::{Draft, DraftError, GateHint, Request, Source, Submitter};
use vault_format::hash::Digest;
use vault_format::name::{DraftId, SkillName};
use vault_gate::finding::Finding;
use vault_gate::package::Package;
use vault_gate::{self as gate, GateOptions, RawFile, secrets};
use vault_shelf::{
    Change, Drift, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes, drafted_name,
};
use vault_store::StoreError;
use vault_store::random::ulid_parts;

use super::blocking::beside;
use crate::app::App;
use crate::drafts::{Keep, KeepError, Kept, has_room, keep};
use crate::model::audit::Actor;
use crate::model::draft::{Content, DraftRecord, Place, Queue, Subject, author_queue_key};
use crate::model::namespace::Namespace;

/// A shelf that is read like another one, and turns every change into a draft.
pub(crate) struct Drafting {
    pub(crate) inner: Arc<dyn Shelf>,
    pub(crate) app: App,
    pub(crate) namespace: Namespace,
    /// The address that the request came from.
    pub(crate) source: Option<IpAddr>,
}

#[async_trait]
impl Shelf for Drafting {
    fn owner(&self) -> &str {
        self.inner.owner()
    }

    fn writes(&self) -> Writes {
        Writes::Drafted
    }

    async fn snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        self.inner.snapshot().await
    }

    async fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        self.inner.load(entry).await
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        let drafts = Drafts {
            app: &self.app,
            namespace: &self.namespace,
            shelf: &*self.inner,
            by,
            source: self.source,
        };
        submit(&drafts, change).await
    }

    async fn drift(&self, entries: &[&Entry], named: bool) -> Result<Vec<Drift>, ShelfError> {
        self.inner.drift(entries, named).await
    }
}

/// The namespace and the author of new drafts.
pub(super) struct Drafts<'a> {
    pub(super) app: &'a App,
    pub(super) namespace: &'a Namespace,
    /// The shelf with the current skills.
    pub(super) shelf: &'a dyn Shelf,
    pub(super) by: &'a Submitter,
    /// The address that the request came from.
    pub(super) source: Option<IpAddr>,
}

/// Submits a change as a draft.
pub(super) async fn submit(drafts: &Drafts<'_>, change: Change) -> Result<Submitted, ShelfError> {
    match change {
        Change::Take {
            files,
            replace,
            check,
            hidden,
        } => {
            // The gate uses the processor for a long time.
            let (verdict, left_out) = beside(move || {
                // No file that looks like a secret is let in: only the people who decide about the
                // draft could choose that, and they have not seen the files yet.
                let mut separated = secrets::separate(files, &[]);
                let files = std::mem::take(&mut separated.files);
                let mut verdict = gate::check(files, &GateOptions::in_service());
                for finding in separated.findings() {
                    verdict.warn(finding);
                }
                Ok((verdict, secrets::left_out_text(&separated.left_out)))
            })
            .await?;
            let Some(package) = verdict.package else {
                return Ok(Submitted::Refused {
                    findings: verdict.findings,
                });
            };
            let given = Given {
                package,
                findings: verdict.findings,
                left_out,
                replace,
                check,
                hidden,
            };
            take(drafts, given).await
        }
        Change::Folder { .. } => Err(ShelfError::SourceUnsupported(
            "a folder cannot be read here; propose the skill's files instead".to_owned(),
        )),
        Change::Fetch {
            source: from,
            skill,
            agents: _,
            hidden,
        } => install(drafts, from, skill.as_ref(), hidden).await,
        Change::Update(name) => {
            // An update has to be fetched from the skill's source, and nothing is fetched here.
            base(drafts.shelf, &name).await?;
            Err(ShelfError::SourceUnsupported(format!(
                "`{name}` is updated on the owner's machine"
            )))
        }
        Change::Remove(name) => {
            let request = Wanted {
                base: Some(base(drafts.shelf, &name).await?),
                name,
                request: Request::Remove,
                flags: Vec::new(),
                findings: Vec::new(),
                left_out: None,
            };
            keep_draft(drafts, request).await
        }
    }
}

/// Returns the bundle of a skill; fails if there is no such skill.
async fn base(shelf: &dyn Shelf, name: &SkillName) -> Result<Digest, ShelfError> {
    let snapshot = shelf.snapshot().await?;
    let entry = snapshot.find(name);
    entry
        .map(|entry| entry.texts.bundle_hash)
        .ok_or_else(|| ShelfError::NotFound(name.clone()))
}

/// The content of a draft to be created.
struct Wanted {
    name: SkillName,
    base: Option<Digest>,
    request: Request,
    flags: Vec<vault_format::manifest::Flag>,
    findings: Vec<Finding>,
    /// Text that lists the files which were left out because they look like secrets.
    left_out: Option<String>,
}

/// Files that passed the gate.
struct Given {
    package: Package,
    findings: Vec<Finding>,
    left_out: Option<String>,
    replace: bool,
    check: bool,
    hidden: bool,
}

async fn take(drafts: &Drafts<'_>, given: Given) -> Result<Submitted, ShelfError> {
    let name = given.package.name.clone();
    let snapshot = drafts.shelf.snapshot().await?;
    // As if there were no such skill, also if the names collide: any other answer would reveal it.
    let entry = snapshot.find(&name).filter(|_| !given.hidden);
    if let Some(entry) = entry {
        if entry.is_linked() {
            return Err(ShelfError::NameTaken(format!(
                "`{name}` comes from a linked vault, whose releases update it"
            )));
        }
        match drafts.shelf.load(entry).await {
            Ok(loaded) if holds(&loaded.bundle.files, &given.package.files) => {
                return Ok(Submitted::Unchanged {
                    name,
                    version: entry.version,
                    bundle_hash: entry.texts.bundle_hash,
                });
            }
            // The stored skill cannot be compared, or differs: the author still has to ask for its
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
    let wanted = Wanted {
        base: entry.map(|entry| entry.texts.bundle_hash),
        name,
        flags: given.package.flags,
        findings: given.findings,
        left_out: given.left_out,
        request: Request::Propose {
            files: given.package.files,
        },
    };
    // A check builds the draft too: its size and form are found out only then.
    if !given.check {
        return keep_draft(drafts, wanted).await;
    }
    let (draft, _) = make(
        drafts,
        wanted.request,
        &wanted.name,
        wanted.base,
        wanted.flags,
    )
    .await?;
    has_room(drafts.app, drafts.namespace, &drafts.by.user_id).await?;
    Ok(Submitted::WouldPass {
        name: draft.name,
        findings: wanted.findings,
    })
}

/// Whether a skill has exactly these files. File modes are not compared, since a draft has none.
pub(crate) fn holds(
    files: &[vault_format::bundle::File],
    wanted: &[vault_format::bundle::File],
) -> bool {
    files.len() == wanted.len()
        && files
            .iter()
            .zip(wanted)
            .all(|(held, file)| held.path == file.path && held.bytes == file.bytes)
}

async fn install(
    drafts: &Drafts<'_>,
    from: Source,
    skill: Option<&SkillName>,
    hidden: bool,
) -> Result<Submitted, ShelfError> {
    let name = drafted_name(&from, skill)
        .ok_or_else(|| ShelfError::Source("say which skill of this source is meant".to_owned()))?;
    let snapshot = drafts.shelf.snapshot().await?;
    let entry = snapshot.find(&name).filter(|_| !hidden);
    let wanted = Wanted {
        base: entry.map(|entry| entry.texts.bundle_hash),
        name,
        request: Request::Install { source: from },
        flags: Vec::new(),
        findings: Vec::new(),
        left_out: None,
    };
    keep_draft(drafts, wanted).await
}

/// Builds the draft and its bytes.
async fn make(
    drafts: &Drafts<'_>,
    request: Request,
    name: &SkillName,
    base: Option<Digest>,
    flags: Vec<vault_format::manifest::Flag>,
) -> Result<(Draft, Vec<u8>), ShelfError> {
    let (millis, bits) = ulid_parts(&drafts.app.clock, &drafts.app.random);
    let wanted = Wanted {
        name: name.clone(),
        base,
        request,
        flags,
        findings: Vec::new(),
        left_out: None,
    };
    let (app, namespace) = (drafts.app, drafts.namespace);
    let id = DraftId::from_parts(millis, bits);
    to_bytes(draft(app, namespace, drafts.by, id, wanted)).await
}

/// Builds the draft with this id.
fn draft(app: &App, namespace: &Namespace, by: &Submitter, id: DraftId, wanted: Wanted) -> Draft {
    Draft {
        draft_id: id,
        vault_id: namespace.pin.vault().map(|pin| pin.vault_id),
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

/// Stores these files as a draft with this id, in the name of `by`. For skills that come with the
/// service; whether the namespace has a skill of that name already is for its owner to see.
pub(crate) async fn propose(
    app: &App,
    namespace: &Namespace,
    by: &Submitter,
    id: DraftId,
    files: Vec<RawFile>,
) -> Result<(), ShelfError> {
    let verdict = beside(move || Ok(gate::check(files, &GateOptions::in_service()))).await?;
    let package = verdict
        .package
        .ok_or_else(|| ShelfError::Failed("the gate refuses a skill of this service".into()))?;
    let flags = package.flags.len() as u64;
    let wanted = Wanted {
        name: package.name,
        base: None,
        request: Request::Propose {
            files: package.files,
        },
        flags: package.flags,
        findings: Vec::new(),
        left_out: None,
    };
    let (draft, bytes) = to_bytes(draft(app, namespace, by, id, wanted)).await?;
    let record = record(&draft, &bytes, flags);
    let actor = Actor {
        user: by.user_id.clone(),
        ..Actor::default()
    };
    let coming = Keep {
        namespace,
        actor: &actor,
        objects: vec![(record.object().key(namespace.id), Bytes::from(bytes))],
        record,
    };
    keep(app, coming).await?;
    Ok(())
}

/// Encodes the draft.
async fn to_bytes(draft: Draft) -> Result<(Draft, Vec<u8>), ShelfError> {
    beside(move || match draft.to_bytes() {
        Ok(bytes) => Ok((draft, bytes)),
        Err(error @ (DraftError::TooLarge(_) | DraftError::Files(_))) => {
            Err(ShelfError::TooLarge(error.to_string()))
        }
        Err(error @ DraftError::Revision) => Err(ShelfError::Source(error.to_string())),
        Err(error) => Err(ShelfError::Failed(error.to_string())),
    })
    .await
}

/// Stores a draft; the result tells how many drafts of its author wait.
async fn keep_draft(drafts: &Drafts<'_>, wanted: Wanted) -> Result<Submitted, ShelfError> {
    let (app, namespace, by) = (drafts.app, drafts.namespace, drafts.by);
    // Before anything is built and stored, so that a draft over the limit leaves no objects behind.
    has_room(app, namespace, &by.user_id).await?;
    let flags = wanted.flags.len() as u64;
    let (draft, bytes) = make(
        drafts,
        wanted.request,
        &wanted.name,
        wanted.base,
        wanted.flags,
    )
    .await?;
    let mut record = record(&draft, &bytes, flags);
    // The owner who decides would not notice otherwise that files are missing.
    record.reason = wanted.left_out;
    let objects = vec![(record.object().key(namespace.id), Bytes::from(bytes))];
    let actor = Actor {
        user: by.user_id.clone(),
        client: by.client_id.clone(),
        source: drafts.source,
    };
    let coming = Keep {
        namespace,
        actor: &actor,
        record,
        objects,
    };
    let (Kept::New(record) | Kept::Same(record)) = keep(app, coming).await?;
    Ok(Submitted::Drafted {
        draft: record.id,
        name: draft.name,
        findings: wanted.findings,
        waiting: waiting(app, namespace, &by.user_id).await?,
    })
}

/// Builds the record of a draft about a skill.
fn record(draft: &Draft, bytes: &[u8], flags: u64) -> DraftRecord {
    let content = Content {
        name: draft.name.clone(),
        base_bundle_hash: draft.base_bundle_hash,
        flags,
        place: Place::Own,
    };
    let subject = match draft.request {
        Request::Propose { .. } => Subject::Propose(content),
        Request::Install { .. } => Subject::Install(content),
        Request::Remove => Subject::Remove(content),
    };
    let by = draft.submitted_by.clone();
    DraftRecord::new(draft.draft_id, subject, bytes, draft.submitted_at, by)
}

/// Counts the pending drafts of an author about skills.
async fn waiting(app: &App, namespace: &Namespace, author: &str) -> Result<u64, StoreError> {
    let key = author_queue_key(&namespace.id, author);
    let record = app.records.get(&key).await?;
    let queue = record.map_or(Ok(Queue::default()), |record| record.read())?;
    Ok(u64::try_from(queue.own + queue.pending).unwrap_or(0))
}

impl From<KeepError> for ShelfError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Full(full) => Self::DraftsFull(full.to_string()),
            KeepError::OfAnother => Self::Failed(error.to_string()),
            KeepError::Store(error) => error.into(),
        }
    }
}
