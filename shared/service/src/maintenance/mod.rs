//! Background work that no request triggers: it removes expired records, sets up vaults that people
//! signed up for, empties deleted vaults, collects objects that no root reaches, and sends notices.
//!
//! Rule: all of it consists of bounded steps that can be repeated, interrupted, and run twice at
//! once, so correctness never depends on when or how often it runs. It never answers a request, and
//! outside of deleted vaults it never deletes an object that a root reaches. `vault serve` runs it
//! as a task; on AWS a schedule invokes the function `admin`.

mod collect;
mod ending;
mod recount;
mod remove;
mod roots;
mod sweep;
mod visits;

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, timeout};
use vault_format::text::error_chain;
use vault_store::StoreError;

use crate::app::App;
use crate::hosting::provisioning;
use crate::model::upkeep::LastRun;
use crate::notices;

/// Interval between two runs.
pub const RUN_INTERVAL: Duration = Duration::from_mins(5);
/// Interval at which a process that runs all the time sends notices.
pub const NOTICES_INTERVAL: Duration = Duration::from_mins(1);
/// Time within which one pass over the notices begins attempts there.
const NOTICES_STEP: Duration = Duration::from_secs(30);
/// Time limit of one step. A run has one step for each kind of work.
pub const STEP_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of expired records that one call of the store removes, which is one commit there.
const SWEEP_AT_ONCE: usize = 100;

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Report {
    /// Expired records that were removed.
    pub expired: usize,
    /// Objects that were marked because no root reaches them.
    pub marked: usize,
    /// Marks that were removed because a root reaches the object again, or because it is gone.
    pub unmarked: usize,
    /// Objects that were deleted.
    pub deleted: usize,
    /// Namespaces that were visited to their end.
    pub namespaces: usize,
    /// Vaults that were set up for people who signed up.
    pub provisioned: usize,
    /// Namespaces that were skipped because something in them could not be read.
    pub skipped: usize,
    /// Namespaces whose collection has not ended for another three days.
    pub late: usize,
    /// Notices that arrived.
    pub sent: usize,
    /// Attempts to send a notice that failed.
    pub unsent: usize,
    /// Records of deleted vaults that were removed.
    pub removed_records: usize,
    /// Deleted vaults of which nothing is left but their names.
    pub removed_vaults: usize,
}

/// Runs one step of each kind of work, each for at most [`STEP_LIMIT`]. Fails when the store does not
/// answer; the next run continues from there.
pub async fn run_once(app: &App) -> Result<Report, StoreError> {
    run_within(app, STEP_LIMIT).await
}

/// Runs like [`run_once`] with another time limit of each step. However short it is, the garbage
/// collection gets further.
pub async fn run_within(app: &App, limit: Duration) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let until = || Instant::now() + limit;
    // Sending mostly waits for other servers, so it happens beside the rest. An attempt that begins
    // at the end of its step takes up to 10 s more.
    let own_work = async {
        let swept = remove_expired(app, &mut report, until()).await;
        let provisioned = provisioning::resume_sign_ups(app, until()).await;
        report.provisioned = *provisioned.as_ref().unwrap_or(&0);
        let removed = remove::removal_step(app, &mut report, until()).await;
        let collected = visits::collect_step(app, &mut report, until()).await;
        // Only after all four have run: one that fails must not keep the others from their turn.
        swept.and(provisioned).and(removed).and(collected)
    };
    let (done, delivered) = tokio::join!(own_work, notices::deliver_due(app, until()));
    if let Ok(delivered) = &delivered {
        (report.sent, report.unsent) = (delivered.arrived, delivered.failed);
    }
    if report == Report::default() {
        tracing::debug!("background work: nothing to do");
    } else {
        tracing::info!(
            expired = report.expired,
            marked = report.marked,
            unmarked = report.unmarked,
            deleted = report.deleted,
            provisioned = report.provisioned,
            namespaces = report.namespaces,
            skipped = report.skipped,
            late = report.late,
            sent = report.sent,
            unsent = report.unsent,
            removed_records = report.removed_records,
            removed_vaults = report.removed_vaults,
            "background work"
        );
    }
    let outcome = done.and(delivered).map(|_| report);
    let traced = leave_trace(app, &outcome).await;
    outcome.and_then(|report| traced.map(|()| report))
}

/// Records for the operator how a run has ended, with a log line for alarms if it failed.
async fn leave_trace(app: &App, outcome: &Result<Report, StoreError>) -> Result<(), StoreError> {
    let failure = match outcome {
        Ok(report) if report.skipped == 0 => None,
        Ok(report) => Some(format!(
            "{} namespaces or parts were skipped",
            report.skipped
        )),
        Err(error) => Some(error_chain(error)),
    };
    if let Some(error) = &failure {
        // Alarms look for this text (infra/alarms.tf).
        tracing::error!(error, "background work failed");
    }
    LastRun::record(app, failure.is_some()).await
}

/// Runs the work every five minutes, first after one minute, and sends notices every minute, until
/// `stop` ends. A step that is running then is cancelled where it waits: it can be repeated from
/// any point.
pub async fn run_periodically(app: App, stop: impl Future<Output = ()>) {
    let working = async {
        // Not at once: a server that restarts in a loop would begin with work each time.
        tokio::time::sleep(RUN_INTERVAL / 5).await;
        loop {
            // A failure has left its trace.
            let _ = run_once(&app).await;
            tokio::time::sleep(RUN_INTERVAL).await;
        }
    };
    // The counts of refusals reach the log when their minute is over.
    let counting = async {
        loop {
            tokio::time::sleep(NOTICES_INTERVAL).await;
            write_refusals(&app, false).await;
        }
    };
    // A loop of its own, so that a run that takes long does not delay notices.
    let sending = async {
        loop {
            tokio::time::sleep(NOTICES_INTERVAL).await;
            if let Err(error) = notices::deliver_due(&app, Instant::now() + NOTICES_STEP).await {
                tracing::warn!(error = error_chain(&error), "sending notices stopped early");
            }
        }
    };
    tokio::select! {
        () = stop => {}
        () = working => {}
        () = sending => {}
        () = counting => {}
    }
    write_refusals(&app, true).await;
}

/// Writes the counts of refusals into the log. What cannot be written is lost, but for the entry
/// itself.
async fn write_refusals(app: &App, is_ending: bool) {
    let written = app.refusals.write_counts(app, is_ending);
    if let Ok(Err(error)) = timeout(STEP_LIMIT, written).await {
        tracing::warn!(
            error = error_chain(&error),
            "counts of refusals were not written to the log"
        );
    }
}

/// Removes expired records. They read as absent already, so this only frees their space.
async fn remove_expired(app: &App, report: &mut Report, until: Instant) -> Result<(), StoreError> {
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        // A call that is cancelled loses nothing: whatever it has removed stays removed.
        let Ok(swept) = timeout(left, app.records.sweep_expired(SWEEP_AT_ONCE)).await else {
            break;
        };
        let swept = swept?;
        report.expired += swept;
        if swept < SWEEP_AT_ONCE {
            break;
        }
    }
    Ok(())
}
