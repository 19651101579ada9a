//! The roots of a namespace: what its current release, its pending drafts, and its uploads and former
//! releases of late name. A namespace may have any number of uploads, so reading them goes on in the
//! next run where it stopped.

use tokio::time::Instant;
use vault_store::StoreError;
use vault_store::objects::Class;

use super::recount;
use crate::app::App;
use crate::drafts;
use crate::model::kept::{self, ObjectName};
use crate::model::namespace::{self, Namespace};
use crate::model::release::Closure;
use crate::model::upkeep::RootWalk;
use crate::publish;

/// Pages of temporary roots that a run reads however little time is left, so that every run gets
/// further.
const MIN_ROOT_PAGES: usize = 20;

/// Removes from the unreached objects those that a root reaches. Returns false when time runs out
/// before all roots are read; the walk has the position then.
pub(super) async fn read_roots(
    app: &App,
    namespace: &Namespace,
    walk: &mut RootWalk,
    until: Instant,
) -> Result<bool, StoreError> {
    // Read again, since a release may have become current after the visit began, or since the run
    // before.
    let reread = namespace::find_namespace(app, &namespace.slug).await?;
    let unchanged = reread.filter(|(found, _)| found.id == namespace.id);
    let namespace = unchanged.as_ref().map_or(namespace, |(found, _)| found);
    if let Some(current) = &namespace.current {
        let closure: Closure = publish::current_closure(app, namespace.id, current).await?;
        let own = [
            ObjectName::new(Class::Catalogs, current.sha256),
            ObjectName::new(Class::Closures, current.closure),
        ];
        for name in closure.object_names().chain(own) {
            walk.not_current.remove(&name);
            walk.unreached.remove(&name);
        }
    }
    // Judged by the same state of the namespace as the release above: a proposal that is published
    // meanwhile still counts as waiting, so its objects are kept.
    // Only listed objects are kept, so that memory does not grow with what a namespace names.
    let unreached = &mut walk.unreached;
    let mut reach = |names: &mut dyn Iterator<Item = ObjectName>| {
        for name in names {
            unreached.remove(&name);
        }
        unreached.is_empty()
    };
    let pending = drafts::pending_objects(app, namespace).await?;
    if reach(&mut pending.into_iter()) {
        return Ok(true);
    }
    // Read after the current release: where that is replaced in between, the same commit wrote what
    // its successor dropped into these records. Their keys are in the order of time, so what is
    // written while a walk waits is behind its position. A process whose clock is slow may write a
    // key before it; that object gets a mark at most, which the next visit removes.
    let uploaded_since = recount::oldest_upload(app, namespace).await?;
    let mut pages = 0;
    while let Some(roots) =
        kept::roots_page(app, &namespace.id, walk.after.clone(), uploaded_since).await?
    {
        if reach(&mut roots.names.into_iter()) {
            break;
        }
        walk.after = Some(roots.last);
        pages += 1;
        if pages >= MIN_ROOT_PAGES && Instant::now() >= until {
            return Ok(false);
        }
    }
    Ok(true)
}
