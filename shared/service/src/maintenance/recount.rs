//! Corrects the usage of a namespace (the count of its stored objects) during the garbage
//! collection, which lists all objects anyway.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;

use crate::app::App;
use crate::hosting::provisioning;
use crate::model::kept::GRACE_SECONDS;
use crate::model::namespace::{self, Kind, Namespace};
use crate::model::usage::{ListedUsage, Usage};
use crate::notices;
use crate::uploads::correct_usage;

/// Records in the usage that a visit begins to list the objects of a namespace.
pub(super) async fn begin_recount(
    app: &App,
    namespace: &Namespace,
    began_at: Timestamp,
    until: Instant,
) {
    let begin = |usage: &mut Usage| usage.begin_listing(began_at, app.now());
    correct_usage(app, namespace, begin).await;
    let now = Instant::now();
    // The other half is for the objects.
    let until = now + until.saturating_duration_since(now) / 2;
    match notices::correct_machines(app, namespace, until).await {
        // Limits are compared with a number that is stored, and would be counted without an end.
        Ok(false) => return,
        corrected => log_failure(namespace, corrected.map(drop)),
    }
    // The limits of a plan may have changed with a restart.
    log_failure(
        namespace,
        notices::warn_of_changed_limits(app, namespace).await,
    );
}

/// Stores the plan of the sign-up in a namespace that was sold before namespaces had quotas.
/// Returns the namespace with it.
pub(super) async fn adopt_plan(app: &App, namespace: Namespace) -> Namespace {
    if namespace.kind == Kind::SelfSigned || namespace.plan.is_some() {
        return namespace;
    }
    let adopted = find_plan(app, &namespace).await;
    match adopted {
        Ok(adopted) => adopted.unwrap_or(namespace),
        Err(error) => {
            log_failure(&namespace, Err(error));
            namespace
        }
    }
}

/// Finds and stores the plan of the sign-up. Returns the namespace with it, or `None` if there is
/// none.
async fn find_plan(app: &App, namespace: &Namespace) -> Result<Option<Namespace>, StoreError> {
    let sign_ups = provisioning::load_by_namespaces(app, std::slice::from_ref(namespace)).await?;
    let plan = sign_ups.into_iter().flatten().find_map(|it| it.plan);
    let Some(plan) = plan else {
        return Ok(None);
    };
    app.change(async |tx| {
        let found = namespace::find_namespace(&tx, &namespace.slug).await?;
        let Some((mut found, revision)) = found.filter(|(found, _)| found.id == namespace.id)
        else {
            return Ok(None);
        };
        if found.plan.is_none() {
            found.plan = Some(plan.clone());
            tx.write(found.update_write(revision)?);
        }
        Ok(Some(found))
    })
    .await
}

pub(super) async fn end_recount(
    app: &App,
    namespace: &Namespace,
    began_at: Timestamp,
    listed: ListedUsage,
) {
    let is_other = AtomicBool::new(false);
    // With attempts of its own: steady uploads, which change the same record, would else keep the
    // count wrong for another six hours.
    correct_usage(app, namespace, |usage: &mut Usage| {
        let is_corrected = usage.end_listing(began_at, listed);
        is_other.store(!is_corrected, Ordering::Relaxed);
    })
    .await;
    if is_other.into_inner() {
        tracing::warn!(
            namespace = %namespace.id,
            "the usage of a namespace is not corrected, because the beginning of its listing was not \
             recorded, or another listing has begun"
        );
    }
}

/// Logs a failure. The collection continues without a correction: steady uploads, which change the
/// same record, must not stop it.
fn log_failure(namespace: &Namespace, outcome: Result<(), StoreError>) {
    if let Err(error) = outcome {
        tracing::warn!(
            namespace = %namespace.id,
            error = error_chain(&error),
            "the usage of a namespace is not corrected before the next garbage collection"
        );
    }
}

/// Returns a time: uploads from before it that no release names are no longer protected. `None`
/// protects all uploads of the last week. If space is short, only those of the last day are
/// protected.
pub(super) async fn protected_uploads_since(
    app: &App,
    namespace: &Namespace,
) -> Result<Option<Timestamp>, StoreError> {
    let (usage, _) = Usage::find(app, &namespace.id).await?;
    let is_short = usage.is_short(&app.quota_of(namespace));
    Ok(is_short.then(|| app.now().plus_seconds(-GRACE_SECONDS)))
}
