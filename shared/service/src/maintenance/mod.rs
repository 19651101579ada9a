//! Background work that no request triggers: it removes expired records, sets up vaults that people
//! signed up for, removes the content of deleted vaults, deletes objects that nothing refers to
//! (garbage collection), and sends notices.
//!
//! Rule: all of it consists of bounded steps that can be repeated, interrupted, and run twice at
//! once, so correctness never depends on when or how often it runs. It never answers a request.
//! Outside of deleted vaults it never deletes an object that a root reaches; roots are records that
//! protect objects, such as the current release. `vault serve` runs it as a task; on AWS a schedule
//! invokes the function `admin`.

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

/// Interval between the runs of all background work.
pub const RUN_INTERVAL: Duration = Duration::from_mins(5);
/// Interval at which a process that runs all the time sends notices and writes counts of refusals.
pub const NOTICES_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum time within which such a sending of notices starts attempts.
const NOTICES_STEP: Duration = Duration::from_secs(30);
/// Time limit of one step. A run has one step for each kind of work.
pub const STEP_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of expired records that one call of the store removes, which is one commit.
const SWEEP_AT_ONCE: usize = 100;

/// Results of one run, for the log.
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
    /// Namespaces whose visit by the garbage collection has ended.
    pub namespaces: usize,
    /// Vaults that were set up for people who signed up.
    pub provisioned: usize,
    /// Namespaces that were skipped because something in them could not be read.
    pub skipped: usize,
    /// Namespaces whose visit has lasted for another three days without an end.
    pub late: usize,
    /// Deliveries of notices that arrived.
    pub sent: usize,
    /// Attempts to send a notice that failed.
    pub unsent: usize,
    /// Records of deleted vaults that were removed.
    pub removed_records: usize,
    /// Deleted vaults that are removed completely, except for their names.
    pub removed_vaults: usize,
}

/// Runs one step of each kind of work, each for at most [`STEP_LIMIT`]. Fails when the store does not
/// answer; the next run continues from there.
pub async fn run_once(app: &App) -> Result<Report, StoreError> {
    run_within(app, STEP_LIMIT).await
}

/// Runs like [`run_once`] with another time limit for each step. However short it is, the garbage
/// collection makes some progress.
pub async fn run_within(app: &App, limit: Duration) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let mut is_late = None;
    let until = || Instant::now() + limit;
    // Sending mostly waits for other servers, so it runs concurrently. An attempt that begins at
    // the end of the step takes up to 10 s more.
    let own_work = async {
        let swept = remove_expired(app, &mut report, until()).await;
        let provisioned = provisioning::resume_sign_ups(app, until()).await;
        report.provisioned = *provisioned.as_ref().unwrap_or(&0);
        let removed = remove::removal_step(app, &mut report, until()).await;
        let collected = visits::collect_step(app, &mut report, until()).await;
        let collected = collected.map(|late| is_late = late);
        // Results are combined after all four have run: a failure of one must not stop the others.
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
    let traced = record_run(app, &outcome, is_late).await;
    outcome.and_then(|report| traced.map(|()| report))
}

/// Records the outcome of a run for the operator, with a log line for alarms if it failed.
async fn record_run(
    app: &App,
    outcome: &Result<Report, StoreError>,
    is_late: Option<bool>,
) -> Result<(), StoreError> {
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
    LastRun::record(app, failure.is_some(), is_late).await
}

/// Runs the work every five minutes, first after one minute, and sends notices every minute, until
/// `stop` completes. A step that is running then is cancelled at its next wait, which is safe: it
/// can be repeated from any point.
pub async fn run_periodically(app: App, stop: impl Future<Output = ()>) {
    let working = async {
        // Not immediately: a server that restarts in a loop would begin with this work each time.
        tokio::time::sleep(RUN_INTERVAL / 5).await;
        loop {
            // `run_once` has logged and recorded a failure.
            let _ = run_once(&app).await;
            tokio::time::sleep(RUN_INTERVAL).await;
        }
    };
    // Counts of refusals are written to the log when their minute is over.
    let counting = async {
        loop {
            tokio::time::sleep(NOTICES_INTERVAL).await;
            write_refusals(&app, false).await;
        }
    };
    // A separate loop, so that a long run does not delay notices.
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

/// Writes counts of refusals from memory to the audit log. A count that cannot be written is lost,
/// but its entry is already in the log.
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
        // A cancelled call loses nothing: the records that it has removed stay removed.
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
