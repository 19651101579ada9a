//! Background work: what has to happen without anybody asking for it. Expired records are removed,
//! vaults that people signed up for are set up, deleted vaults are emptied, objects that nothing
//! names are collected, and notices are sent.
//!
//! All of it is made of bounded steps that can be repeated, broken off and run twice at once: what
//! is right does not hang on when or how often it runs. `vault serve` runs it as a task, on AWS a
//! schedule invokes the function `admin`.

mod collect;
mod ending;
mod remove;

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, timeout};
use vault_format::text::error_chain;
use vault_store::StoreError;

use crate::app::App;
use crate::hosting::provisioning;
use crate::notices;

/// How often the work is done.
pub const EVERY: Duration = Duration::from_mins(5);
/// How often notices are sent by a process that runs all the time.
pub const NOTICES_EVERY: Duration = Duration::from_mins(1);
/// How long one pass over the notices begins attempts there.
const NOTICES_STEP: Duration = Duration::from_secs(30);
/// How long one step may take; a run has one step a kind of work.
pub const STEP: Duration = Duration::from_secs(10);
/// Most expired records that are removed at once.
const SWEEP_AT_ONCE: usize = 500;

/// What one run did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Report {
    /// Expired records that were removed.
    pub expired: usize,
    /// Objects that were marked, since nothing names them.
    pub marked: usize,
    /// Marks that were taken away, since something names the object again or it is gone.
    pub unmarked: usize,
    /// Objects that were deleted.
    pub deleted: usize,
    /// Namespaces that were looked at to their end.
    pub namespaces: usize,
    /// Vaults that people signed up for and that were set up.
    pub provisioned: usize,
    /// Namespaces that were left alone, since what they name could not be read.
    pub skipped: usize,
    /// Notices that arrived.
    pub sent: usize,
    /// Attempts to send a notice that failed.
    pub unsent: usize,
    /// Records of deleted vaults that were removed.
    pub removed_records: usize,
    /// Deleted vaults of which nothing is left but their names.
    pub removed_vaults: usize,
}

/// Does one step of each kind of work, in at most [`STEP`] each. Fails when the store does not
/// answer; the next run goes on from there.
pub async fn run(app: &App) -> Result<Report, StoreError> {
    let mut report = Report::default();
    // Notices wait for others, so they are sent meanwhile: an attempt that is begun at the end of
    // its step takes up to 10 s more.
    let own_work = async {
        let swept = sweep(app, &mut report, Instant::now() + STEP).await;
        let provisioned = provisioning::resume(app, Instant::now() + STEP).await;
        report.provisioned = *provisioned.as_ref().unwrap_or(&0);
        let removed = remove::step(app, &mut report, Instant::now() + STEP).await;
        let collected = collect::step(app, &mut report, Instant::now() + STEP).await;
        swept.and(provisioned).and(removed).and(collected)
    };
    let (done, delivered) = tokio::join!(own_work, notices::deliver(app, Instant::now() + STEP));
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
            sent = report.sent,
            unsent = report.unsent,
            removed_records = report.removed_records,
            removed_vaults = report.removed_vaults,
            "background work"
        );
    }
    done.and(delivered).map(|_| report)
}

/// Runs the work every five minutes, first after one minute, and sends notices every minute, until
/// `stop` ends. A step that is running then is ended where it waits: it can be repeated from any
/// point.
pub async fn every(app: App, stop: impl Future<Output = ()>) {
    let working = async {
        // A server that is started again and again must not begin with work each time.
        tokio::time::sleep(EVERY / 5).await;
        loop {
            if let Err(error) = run(&app).await {
                tracing::warn!(error = error_chain(&error), "background work stopped early");
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    let sending = async {
        loop {
            tokio::time::sleep(NOTICES_EVERY).await;
            if let Err(error) = notices::deliver(&app, Instant::now() + NOTICES_STEP).await {
                tracing::warn!(error = error_chain(&error), "sending notices stopped early");
            }
        }
    };
    tokio::select! {
        () = stop => {}
        () = working => {}
        () = sending => {}
    }
}

/// Removes expired records: they read as absent already, this only gives their room back.
async fn sweep(app: &App, report: &mut Report, until: Instant) -> Result<(), StoreError> {
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let Ok(swept) = timeout(left, app.records.sweep(SWEEP_AT_ONCE)).await else {
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
