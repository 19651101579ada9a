//! Background work on drafts: records the end of proposals that have ended without a decision, and
//! lists the objects that pending drafts need.

use vault_store::StoreError;
use vault_store::objects::Class;

use super::find::resolve_states;
use crate::app::App;
use crate::model::draft::{self, State};
use crate::model::kept::ObjectName;
use crate::model::namespace::Namespace;
use crate::model::release::Closure;

/// Records the end of every proposal that has ended without a decision, because it expired or a
/// release overtook it. This frees its place in the counters. Returns how many there were. If a
/// proposal changes in the meantime, the process that changes it handles it.
pub(crate) async fn settle_proposals(
    app: &App,
    namespace: &Namespace,
) -> Result<usize, StoreError> {
    let open = draft::open_drafts(app, &namespace.id).await?;
    let (revisions, drafts): (Vec<_>, Vec<_>) = open
        .into_iter()
        .filter(|seen| seen.value.proposed().is_some())
        .map(|seen| (seen.revision, seen.value))
        .unzip();
    let standing = resolve_states(app, namespace, drafts).await?;
    let mut settled = 0;
    for (revision, draft) in revisions.into_iter().zip(standing) {
        if draft.state == State::Pending {
            continue;
        }
        let writes = draft.ending_writes(&namespace.id, revision, false)?;
        if app.try_commit(writes).await? {
            settled += 1;
        }
    }
    Ok(settled)
}

/// Lists the objects that pending drafts need: the bytes of each, and the objects that a proposal
/// names and the current release does not. Garbage collection must not delete them.
pub(crate) async fn pending_objects(
    app: &App,
    namespace: &Namespace,
) -> Result<Vec<ObjectName>, StoreError> {
    let open = draft::open_drafts(app, &namespace.id).await?;
    let drafts = open.into_iter().map(|seen| seen.value).collect();
    let mut objects = Vec::new();
    for draft in resolve_states(app, namespace, drafts).await? {
        // A proposal that has ended does not need its objects any more, even if its record is not
        // updated yet.
        if draft.state != State::Pending {
            continue;
        }
        objects.push(draft.object_name());
        if let Some(proposed) = draft.proposed() {
            let key = namespace.object_key(Class::Closures, proposed.added);
            let object = app.object(&key).await?.ok_or_else(|| {
                StoreError::unavailable(format!(
                    "the object {key} is missing from the object store"
                ))
            })?;
            objects.extend(Closure::parse(&object.bytes)?.object_names());
            objects.push(ObjectName::new(Class::Closures, proposed.added));
        }
    }
    Ok(objects)
}
