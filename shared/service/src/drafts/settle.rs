//! What background work does with drafts: it writes down what has ended by itself, and says which
//! objects wait with those that have not.

use vault_store::StoreError;
use vault_store::objects::Class;

use super::find::standing;
use crate::app::App;
use crate::model::draft::{self, State};
use crate::model::kept::ObjectName;
use crate::model::namespace::Namespace;
use crate::model::release::Closure;

/// Writes down the outcome of every proposal that has ended by itself, so that its record and its
/// place end too. Answers how many there were. One that changes meanwhile is left to whoever
/// changes it.
pub(crate) async fn settle(app: &App, namespace: &Namespace) -> Result<usize, StoreError> {
    let open = draft::open(app, &namespace.id).await?;
    let (revisions, drafts): (Vec<_>, Vec<_>) = open
        .into_iter()
        .filter(|seen| seen.value.proposed().is_some())
        .map(|seen| (seen.revision, seen.value))
        .unzip();
    let standing = standing(app, namespace, drafts).await?;
    let mut settled = 0;
    for (revision, draft) in revisions.into_iter().zip(standing) {
        if draft.state == State::Pending {
            continue;
        }
        let writes = draft.end(&namespace.id, revision, false)?;
        if app.try_commit(writes).await? {
            settled += 1;
        }
    }
    Ok(settled)
}

/// The objects that drafts wait with: the bytes of each, and what a proposal names beyond the
/// release that it follows, which keeps the rest.
pub(crate) async fn pending_objects(
    app: &App,
    namespace: &Namespace,
) -> Result<Vec<ObjectName>, StoreError> {
    let open = draft::open(app, &namespace.id).await?;
    let drafts = open.into_iter().map(|seen| seen.value).collect();
    let mut objects = Vec::new();
    for draft in standing(app, namespace, drafts).await? {
        if draft.state != State::Pending {
            continue;
        }
        objects.push(draft.object());
        if let Some(proposed) = draft.proposed() {
            let key = namespace.object(Class::Closures, proposed.added);
            let object = app.object(&key).await?.ok_or_else(|| {
                StoreError::unavailable(format!(
                    "the object {key} is missing from the object store"
                ))
            })?;
            objects.extend(Closure::parse(&object.bytes)?.objects());
            objects.push(ObjectName::new(Class::Closures, proposed.added));
        }
    }
    Ok(objects)
}
