//! The partitions that a piece of work reads and writes in a [`Memory`](super::Memory).

use std::cell::RefCell;
use std::collections::BTreeSet;

use vault_store::records::{When, Write};

tokio::task_local! {
    static TOUCHED: RefCell<Touched>;
}

/// Kinds of partitions that a piece of work touched: the text up to the first slash, and `*` for
/// what follows.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Those that it read, or had checked in a commit.
    pub read: BTreeSet<String>,
    /// Those that it tried to write.
    pub written: BTreeSet<String>,
}

impl Touched {
    /// Does the work, and returns what it touched. Tasks that the work spawns are not seen.
    pub async fn observe<F: Future>(work: F) -> (F::Output, Self) {
        let observed = async {
            let output = work.await;
            (output, TOUCHED.with(RefCell::take))
        };
        // Boxed, so that the futures of the tests around it stay small.
        Box::pin(TOUCHED.scope(RefCell::default(), observed)).await
    }
}

/// Notes that these partitions are read, if the work is observed.
pub(super) fn note_reads<'a>(partitions: impl IntoIterator<Item = &'a str>) {
    let _ = TOUCHED.try_with(|touched| {
        let kinds = partitions.into_iter().map(kind_of_partition);
        touched.borrow_mut().read.extend(kinds);
    });
}

/// Notes the partitions of a commit, if the work is observed.
pub(super) fn note_writes(writes: &[Write]) {
    let _ = TOUCHED.try_with(|touched| {
        let mut touched = touched.borrow_mut();
        for write in writes {
            let kind = kind_of_partition(&write.key().partition);
            match write {
                // Not sent to any store.
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
