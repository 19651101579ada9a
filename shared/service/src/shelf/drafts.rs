//! What becomes of a change of a hosted namespace: a draft that waits for the owner's machine. Nothing is fetched, run or signed here.
//!
//! The gate runs, so that an author hears at once what the owner's gate will say; it runs there again and decides.

use std::net::IpAddr;

use bytes::Bytes;
use serde_json::json;
use vault_format::draft::{Draft, DraftError, GateHint, Request, Source, Submitter};
use vault_format::hash::Digest;
use vault_format::name::{DraftId, SkillName};
use vault_gate::finding::Finding;
use vault_gate::package::Package;
use vault_gate::{self as gate, GateOptions, RawFile};
use vault_shelf::{Change, Shelf, ShelfError, Submitted};
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::random::ulid_parts;
use vault_store::records::Commit;

use super::blocking::beside;
use crate::app::App;
use crate::model::audit::{self, Actor};
use crate::model::draft::{self, DraftRecord, MAX_PENDING, MAX_PENDING_OF_AUTHOR, Queue};
use crate::model::namespace::Namespace;
use crate::model::read_all;
use crate::retry::retry;
use crate::uploads;

/// Where drafts go, and from whom.
pub(super) struct Drafts<'a> {
    pub(super) app: &'a App,
    pub(super) namespace: &'a Namespace,
    /// What the namespace has now.
    pub(super) shelf: &'a dyn Shelf,
    pub(super) by: &'a Submitter,
    /// The address that the request came from.
    pub(super) source: Option<IpAddr>,
}

/// Hands a change in.
pub(super) async fn submit(drafts: &Drafts<'_>, change: Change) -> Result<Submitted, ShelfError> {
    match change {
        Change::Take {
            files,
            replace,
            check,
        } => take(drafts, files, replace, check).await,
        Change::Folder { .. } => Err(ShelfError::SourceUnsupported(
            "a folder cannot be read here; propose the skill's files instead".to_owned(),
        )),
        Change::Fetch {
            source: from,
            skill,
            agents: _,
        } => install(drafts, from, skill).await,
        Change::Update(name) => {
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
            };
            keep(drafts, request).await
        }
    }
}

/// The bundle of a skill that must be there.
async fn base(shelf: &dyn Shelf, name: &SkillName) -> Result<Digest, ShelfError> {
    let snapshot = shelf.snapshot().await?;
    let entry = snapshot.find(name);
    entry
        .map(|entry| entry.texts.bundle_hash)
        .ok_or_else(|| ShelfError::NotFound(name.clone()))
}

/// A draft to be made.
struct Wanted {
    name: SkillName,
    base: Option<Digest>,
    request: Request,
    flags: Vec<vault_format::manifest::Flag>,
    findings: Vec<Finding>,
}

async fn take(
    drafts: &Drafts<'_>,
    files: Vec<RawFile>,
    replace: bool,
    check: bool,
) -> Result<Submitted, ShelfError> {
    let verdict = beside(move || Ok(gate::check(files, &GateOptions::default()))).await?;
    let Some(package) = verdict.package else {
        return Ok(Submitted::Refused {
            findings: verdict.findings,
        });
    };
    let name = package.name.clone();
    let snapshot = drafts.shelf.snapshot().await?;
    let entry = snapshot.find(&name);
    if let Some(entry) = entry {
        match drafts.shelf.load(entry).await {
            Ok(loaded) if holds(&loaded.bundle.files, &package) => {
                return Ok(Submitted::Unchanged {
                    name,
                    version: entry.version,
                    bundle_hash: entry.texts.bundle_hash,
                });
            }
            // What stands there cannot be compared: whether it is replaced is asked all the same.
            Ok(_)
            | Err(
                ShelfError::SubscriptionLapsed
                | ShelfError::Damaged(..)
                | ShelfError::Unavailable(_)
                | ShelfError::NotFound(_),
            ) => {}
            Err(error) => return Err(error),
        }
        if !replace {
            return Err(ShelfError::NameTaken(format!(
                "there is a skill named `{name}`: it has other content"
            )));
        }
    }
    let wanted = Wanted {
        base: entry.map(|entry| entry.texts.bundle_hash),
        name,
        flags: package.flags,
        findings: verdict.findings,
        request: Request::Propose {
            files: package.files,
        },
    };
    if !check {
        return keep(drafts, wanted).await;
    }
    let (draft, _) = make(
        drafts,
        wanted.request,
        &wanted.name,
        wanted.base,
        wanted.flags,
    )
    .await?;
    room(drafts).await?;
    Ok(Submitted::WouldPass {
        name: draft.name,
        findings: wanted.findings,
    })
}

/// Whether a skill has exactly these files. A draft carries no modes.
fn holds(files: &[vault_format::bundle::File], package: &Package) -> bool {
    files.len() == package.files.len()
        && files
            .iter()
            .zip(&package.files)
            .all(|(held, file)| held.path == file.path && held.bytes == file.bytes)
}

async fn install(
    drafts: &Drafts<'_>,
    from: Source,
    skill: Option<SkillName>,
) -> Result<Submitted, ShelfError> {
    let last = from.identifier.as_str().rsplit(['/', ':']).next();
    let name = skill
        .or_else(|| SkillName::derive(last.unwrap_or_default()))
        .ok_or_else(|| ShelfError::Source("say which skill of this source is meant".to_owned()))?;
    let snapshot = drafts.shelf.snapshot().await?;
    let wanted = Wanted {
        base: snapshot.find(&name).map(|entry| entry.texts.bundle_hash),
        name,
        request: Request::Install { source: from },
        flags: Vec::new(),
        findings: Vec::new(),
    };
    keep(drafts, wanted).await
}

/// Makes the draft and its bytes.
async fn make(
    drafts: &Drafts<'_>,
    request: Request,
    name: &SkillName,
    base: Option<Digest>,
    flags: Vec<vault_format::manifest::Flag>,
) -> Result<(Draft, Vec<u8>), ShelfError> {
    let (app, namespace) = (drafts.app, drafts.namespace);
    let (millis, bits) = ulid_parts(&*app.clock, &*app.random);
    let draft = Draft {
        draft_id: DraftId::from_parts(millis, bits),
        vault_id: namespace.pin.vault().map(|pin| pin.vault_id),
        slug: namespace.slug.clone(),
        name: name.clone(),
        base_bundle_hash: base,
        submitted_at: app.clock.now(),
        submitted_by: drafts.by.clone(),
        request,
        gate: GateHint {
            rules: gate::RULES.to_owned(),
            flags,
        },
    };
    beside(move || match draft.to_bytes() {
        Ok(bytes) => Ok((draft, bytes)),
        Err(error @ (DraftError::TooLarge(_) | DraftError::Files(_))) => {
            Err(ShelfError::TooLarge(error.to_string()))
        }
        Err(error @ DraftError::Text("ref")) => Err(ShelfError::Source(error.to_string())),
        Err(error) => Err(ShelfError::Failed(error.to_string())),
    })
    .await
}

/// Fails where the queue is full already; the commit counts again.
async fn room(drafts: &Drafts<'_>) -> Result<(), ShelfError> {
    let (app, namespace) = (drafts.app, drafts.namespace);
    let keys = [
        draft::queue_key(&namespace.id),
        draft::author_queue_key(&namespace.id, &drafts.by.user_id),
    ];
    let [all, author] = read_all(&*app.records, keys).await?;
    for (index, (queue, most)) in [(all, MAX_PENDING), (author, MAX_PENDING_OF_AUTHOR)]
        .into_iter()
        .enumerate()
    {
        let pending = queue.map_or(Ok(0), |queue| {
            queue.read::<Queue>().map(|queue| queue.pending)
        })?;
        if pending >= most {
            return Err(full(index));
        }
    }
    Ok(())
}

fn full(index: usize) -> ShelfError {
    ShelfError::DraftsFull(if index == 0 {
        format!("{MAX_PENDING} drafts are already waiting for an owner of this vault")
    } else {
        format!("{MAX_PENDING_OF_AUTHOR} of your drafts are already waiting for an owner")
    })
}

/// Stores a draft: the bytes first, then the record, both counters and the audit entry at once.
async fn keep(drafts: &Drafts<'_>, wanted: Wanted) -> Result<Submitted, ShelfError> {
    let (app, namespace) = (drafts.app, drafts.namespace);
    // Before anything is stored: what finds no room leaves no bytes behind.
    room(drafts).await?;
    let (draft, bytes) = make(
        drafts,
        wanted.request,
        &wanted.name,
        wanted.base,
        wanted.flags,
    )
    .await?;
    let record = DraftRecord::new(&draft, &bytes);
    let object = (
        namespace.object(Class::Drafts, record.sha256),
        Bytes::from(bytes),
    );
    uploads::put(app, namespace.id, vec![object]).await?;
    commit(drafts, &record).await?;
    Ok(Submitted::Drafted {
        draft: record.id,
        name: record.name,
        findings: wanted.findings,
    })
}

async fn commit(drafts: &Drafts<'_>, record: &DraftRecord) -> Result<(), ShelfError> {
    let (app, namespace) = (drafts.app, drafts.namespace);
    let actor = Actor {
        user: drafts.by.user_id.clone(),
        client: drafts.by.client_id.clone(),
        source: drafts.source,
    };
    let change = audit::Change {
        target: Some(record.id.to_string()),
        before: record
            .base_bundle_hash
            .map(|base| json!({ "bundle_hash": base })),
        after: Some(json!({ "kind": record.kind, "name": record.name, "sha256": record.sha256 })),
    };
    let entry = app.audit(Some(&namespace.id), &actor, "draft.create", change, "done")?;
    let mut writes = record.creation(&namespace.id)?;
    writes.push(entry);
    retry(&*app.random, async || {
        match app.records.commit(writes.clone()).await {
            Ok(Commit::Done(_)) => Ok(Some(())),
            Ok(Commit::Failed { index, .. }) if index < 2 => Err(full(index)),
            Ok(Commit::Failed { .. }) => Err(ShelfError::Failed(
                "a draft has the id of another".to_owned(),
            )),
            Err(StoreError::Conflict) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}
