//! Reads the roots of a namespace, which protect objects from the garbage collection: the current
//! release, pending drafts, and the temporary roots (uploads of the last days and former releases
//! of the last month). There may be any number of uploads, so one run may read a part of them and
//! the next run continue.

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

/// Number of pages of temporary roots that a run reads at least, however little time is left, so
/// that every run makes progress.
const MIN_ROOT_PAGES: usize = 20;

/// Removes the objects that a root reaches from `walk.unreached`. Returns false when time runs out
/// before all roots are read; `walk` then has the position.
pub(super) async fn read_roots(
    app: &App,
    namespace: &Namespace,
    walk: &mut RootWalk,
    until: Instant,
) -> Result<bool, StoreError> {
    // Read again, since another release may have become current after the visit or this run began.
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
    // Derived from the same state of the namespace as the release above: a proposal that is
    // published meanwhile still counts as pending, so its objects stay. Only listed objects are
    // held in memory, so that memory does not grow with the number of objects that a namespace
    // refers to.
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
    // Read after the current release: if another release becomes current in between, its commit
    // writes the objects that it drops into these records. Their keys sort by time, so new records
    // come after the position of a waiting walk. A process whose clock is slow may write a key
    // before it. Its objects then get a mark at most, which the next visit removes.
    let uploaded_since = recount::protected_uploads_since(app, namespace).await?;
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
