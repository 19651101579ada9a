//! Records which partitions a piece of work reads and writes in a [`Memory`](super::Memory).

use std::cell::RefCell;
use std::collections::BTreeSet;

use vault_store::records::{When, Write};

tokio::task_local! {
    static TOUCHED: RefCell<Touched>;
}

/// The kinds of partitions that a piece of work touched. A kind is the name up to the first slash,
/// with `*` for the text that follows.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Partitions that it read, or checked in a commit.
    pub read: BTreeSet<String>,
    /// Partitions that it tried to write.
    pub written: BTreeSet<String>,
}

impl Touched {
    /// Runs the work and returns what it touched. Tasks that the work spawns are not observed.
    pub async fn observe<F: Future>(work: F) -> (F::Output, Self) {
        let observed = async {
            let output = work.await;
            (output, TOUCHED.with(RefCell::take))
        };
        // Boxed, so that the futures of the tests around it stay small.
        Box::pin(TOUCHED.scope(RefCell::default(), observed)).await
    }
}

/// Records that these partitions are read, if the work is observed.
pub(super) fn note_reads<'a>(partitions: impl IntoIterator<Item = &'a str>) {
    let _ = TOUCHED.try_with(|touched| {
        let kinds = partitions.into_iter().map(kind_of_partition);
        touched.borrow_mut().read.extend(kinds);
    });
}

/// Records the partitions of a commit, if the work is observed.
pub(super) fn note_writes(writes: &[Write]) {
    let _ = TOUCHED.try_with(|touched| {
        let mut touched = touched.borrow_mut();
        for write in writes {
            let kind = kind_of_partition(&write.key().partition);
            match write {
                // A check without a condition is sent to no store.
                Write::Check {
                    when: When::Any, ..
                } => {}
                Write::Check { .. } => drop(touched.read.insert(kind)),
                Write::Put { .. } | Write::Delete { .. } | Write::Count { .. } => {
                    touched.written.insert(kind);
                }
            }
        }
    });
}

fn kind_of_partition(partition: &str) -> String {
    match partition.split_once('/') {
        Some((first, _)) => format!("{first}/*"),
        None => partition.to_owned(),
    }
}
