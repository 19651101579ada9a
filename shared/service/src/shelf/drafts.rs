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

use super::ReleaseShelf;
use super::release::beside;
use crate::App;
use crate::model::audit::{self, Actor};
use crate::model::draft::{self, DraftRecord, MAX_PENDING, MAX_PENDING_OF_AUTHOR, Queue};
use crate::model::namespace::Namespace;
use crate::model::read_all;
use crate::retry::Retry;
use crate::uploads;

/// Hands a change in.
pub(super) async fn submit(
    shelf: &ReleaseShelf,
    by: &Submitter,
    source: Option<IpAddr>,
    change: Change,
) -> Result<Submitted, ShelfError> {
    match change {
        Change::Take {
            files,
            replace,
            check,
        } => take(shelf, by, source, files, replace, check).await,
        Change::Folder { .. } => Err(ShelfError::SourceUnsupported(
            "a folder cannot be read here; propose the skill's files instead".to_owned(),
        )),
        Change::Fetch {
            source: from,
            skill,
            agents: _,
        } => install(shelf, by, source, from, skill).await,
        Change::Update(name) => {
            base(shelf, &name).await?;
            Err(ShelfError::SourceUnsupported(format!(
                "`{name}` is updated on the owner's machine"
            )))
        }
        Change::Remove(name) => {
            let request = Wanted {
                base: Some(base(shelf, &name).await?),
                name,
                request: Request::Remove,
                flags: Vec::new(),
                findings: Vec::new(),
            };
            keep(shelf, by, source, request).await
        }
    }
}

/// The bundle of a skill that must be there.
async fn base(shelf: &ReleaseShelf, name: &SkillName) -> Result<Digest, ShelfError> {
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
    shelf: &ReleaseShelf,
    by: &Submitter,
    source: Option<IpAddr>,
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
    let snapshot = shelf.snapshot().await?;
    let entry = snapshot.find(&name);
    if let Some(entry) = entry {
        match shelf.load(entry).await {
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
        return keep(shelf, by, source, wanted).await;
    }
    let (draft, _) = make(
        shelf,
        by,
        wanted.request,
        &wanted.name,
        wanted.base,
        wanted.flags,
    )
    .await?;
    room(shelf, by).await?;
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
    shelf: &ReleaseShelf,
    by: &Submitter,
    source: Option<IpAddr>,
    from: Source,
    skill: Option<SkillName>,
) -> Result<Submitted, ShelfError> {
    let last = from.identifier.as_str().rsplit(['/', ':']).next();
    let name = skill
        .or_else(|| SkillName::derive(last.unwrap_or_default()))
        .ok_or_else(|| ShelfError::Source("say which skill of this source is meant".to_owned()))?;
    let snapshot = shelf.snapshot().await?;
    let wanted = Wanted {
        base: snapshot.find(&name).map(|entry| entry.texts.bundle_hash),
        name,
        request: Request::Install { source: from },
        flags: Vec::new(),
        findings: Vec::new(),
    };
    keep(shelf, by, source, wanted).await
}

/// Makes the draft and its bytes.
async fn make(
    shelf: &ReleaseShelf,
    by: &Submitter,
    request: Request,
    name: &SkillName,
    base: Option<Digest>,
    flags: Vec<vault_format::manifest::Flag>,
) -> Result<(Draft, Vec<u8>), ShelfError> {
    let (app, namespace) = shelf.parts();
    let (millis, bits) = ulid_parts(&*app.clock, &*app.random);
    let draft = Draft {
        draft_id: DraftId::from_parts(millis, bits),
        vault_id: namespace.pin.vault().map(|pin| pin.vault_id),
        slug: namespace.slug.clone(),
        name: name.clone(),
        base_bundle_hash: base,
        submitted_at: app.clock.now(),
        submitted_by: by.clone(),
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
async fn room(shelf: &ReleaseShelf, by: &Submitter) -> Result<(), ShelfError> {
    let (app, namespace) = shelf.parts();
    let keys = [
        draft::queue_key(&namespace.id),
        draft::author_queue_key(&namespace.id, &by.user_id),
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
async fn keep(
    shelf: &ReleaseShelf,
    by: &Submitter,
    source: Option<IpAddr>,
    wanted: Wanted,
) -> Result<Submitted, ShelfError> {
    let (app, namespace) = shelf.parts();
    // Before anything is stored: what finds no room leaves no bytes behind.
    room(shelf, by).await?;
    let (draft, bytes) = make(
        shelf,
        by,
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
    commit(app, namespace, &record, by, source).await?;
    Ok(Submitted::Drafted {
        draft: record.id,
        name: record.name,
        findings: wanted.findings,
    })
}

async fn commit(
    app: &App,
    namespace: &Namespace,
    record: &DraftRecord,
    by: &Submitter,
    source: Option<IpAddr>,
) -> Result<(), ShelfError> {
    let actor = Actor {
        user: by.user_id.clone(),
        client: by.client_id.clone(),
        source,
    };
    let change = audit::Change {
        target: Some(record.id.to_string()),
        before: record
            .base_bundle_hash
            .map(|base| json!({ "bundle_hash": base })),
        after: Some(json!({ "kind": record.kind, "name": record.name, "sha256": record.sha256 })),
    };
    let entry = audit::entry(
        Some(&namespace.id),
        &actor,
        "draft.create",
        change,
        "done",
        &*app.clock,
        &*app.random,
    )?;
    let mut writes = record.creation(&namespace.id)?;
    writes.push(entry);
    let mut retry = Retry::default();
    loop {
        match app.records.commit(writes.clone()).await {
            Ok(Commit::Done(_)) => return Ok(()),
            Ok(Commit::Failed { index, .. }) if index < 2 => return Err(full(index)),
            Ok(Commit::Failed { .. }) => {
                return Err(ShelfError::Failed(
                    "a draft has the id of another".to_owned(),
                ));
            }
            Err(StoreError::Conflict) if retry.again(&*app.random).await => {}
            Err(error) => return Err(error.into()),
        }
    }
}
