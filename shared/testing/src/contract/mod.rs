//! The contract that every adapter of the data ports must keep. It consists of clauses (rules);
//! each is a named test.
//!
//! The tests of an adapter call [`objects_contract!`](crate::objects_contract),
//! [`records_contract!`](crate::records_contract) or [`shelf_contract!`](crate::shelf_contract)
//! with an expression that opens a fresh, empty store. The expression returns `None` if the store's
//! server is not on this machine (it prints that itself, and fails if that is not allowed). No
//! single clause can be left out. Each clause has a store of its own, time moves only by its clock,
//! and races run on several threads. An adapter tests races between processes itself: a macro
//! cannot start a process.

pub mod counters;
pub mod objects;
pub mod races;
pub mod records;
pub mod shelf;

use std::any::Any;
use std::sync::Arc;

use crate::TestClock;
use vault_store::StoreError;
use vault_store::objects::Objects;
use vault_store::records::{Commit, Document, Record, RecordKey, Records, When, Write};

/// A fresh, empty object store, and what keeps it alive.
pub struct ObjectsFixture {
    /// The store under test.
    pub objects: Arc<dyn Objects>,
    /// Dropped after the clause: for example a folder or a database.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// A fresh, empty record store, the clock by which its records expire, and what keeps it alive.
pub struct RecordsFixture {
    /// The store under test.
    pub records: Arc<dyn Records>,
    /// The clock that was given to the store.
    pub clock: Arc<TestClock>,
    /// Dropped after the clause: for example a folder or a database.
    pub keep: Box<dyn Any + Send + Sync>,
}

impl RecordsFixture {
    async fn commit(&self, writes: impl Into<Vec<Write>>) -> Commit {
        self.records
            .commit_writes(writes.into())
            .await
            .expect("the store answers")
    }

    /// Commits a `Put` that must succeed, and returns its revision.
    async fn put(&self, write: Write) -> u64 {
        match self.commit([write]).await {
            Commit::Done(revisions) => revisions[0].expect("a put has a revision"),
            failed @ Commit::Failed { .. } => panic!("the put should succeed: {failed:?}"),
        }
    }

    async fn done(&self, writes: impl Into<Vec<Write>>) {
        let commit = self.commit(writes).await;
        assert!(commit.is_done(), "the commit should succeed: {commit:?}");
    }

    /// Commits what must fail. Returns the index of the write that failed and the record that was
    /// found.
    async fn failed(&self, writes: impl Into<Vec<Write>>) -> (usize, Option<Record>) {
        match self.commit(writes).await {
            Commit::Failed { index, found } => (index, found),
            done @ Commit::Done(_) => panic!("the commit should fail: {done:?}"),
        }
    }

    async fn refused(&self, writes: Vec<Write>) {
        let answer = self.records.commit_writes(writes).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }

    async fn get(&self, key: &RecordKey) -> Option<Record> {
        self.records.get_one(key).await.expect("the store answers")
    }

    async fn get_many(&self, keys: &[RecordKey]) -> Vec<Option<Record>> {
        let read = self.records.get_many(keys).await;
        read.expect("the store answers")
    }

    /// Puts a document without a condition.
    async fn set(&self, name: &str, value: &serde_json::Value) {
        let write = Write::put(key(name), document(value), When::Any);
        self.done([write]).await;
    }

    async fn keys(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<String> {
        let listed = self
            .records
            .list_page(partition, prefix, after, limit)
            .await
            .expect("the store answers");
        assert!(
            listed
                .iter()
                .all(|record| record.key.partition == partition)
        );
        listed.into_iter().map(|record| record.key.key).collect()
    }
}

fn key(name: &str) -> RecordKey {
    RecordKey::new("p", name)
}

fn document(value: &serde_json::Value) -> Document {
    Document::from_value(value).expect("a small object")
}

fn number(n: u64) -> Document {
    document(&serde_json::json!({ "n": n }))
}

/// Commits, and repeats that while the store reports conflicts, as a caller of the port must do.
async fn commit_until_decided(records: &dyn Records, writes: &[Write]) -> Commit {
    for _ in 0..100 {
        match records.commit_writes(writes.to_vec()).await {
            Err(StoreError::Conflict) => {}
            answer => return answer.expect("the store answers"),
        }
    }
    panic!("a hundred conflicts in a row");
}

/// Returns a put without a condition, with which clauses prepare records.
fn any(name: &str, n: u64) -> Write {
    Write::put(key(name), number(n), When::Any)
}

/// Returns a put that requires that the record does not exist.
fn absent(name: &str, n: u64) -> Write {
    Write::put(key(name), number(n), When::Absent)
}

/// Makes a named test of each clause for [`Objects`]. `$make` is an expression whose `await`
/// returns an `Option` of a fresh [`ObjectsFixture`]. The calling crate needs tokio.
#[macro_export]
macro_rules! objects_contract {
    ($make:expr) => {
        $crate::contract_tests! { $make, objects:
            bytes_read_back_exactly
            what_was_never_written_is_none
            wrong_bytes_are_refused
            bytes_over_the_limit_are_refused
            a_second_put_finds_the_first
            many_puts_answer_one_by_one
            many_puts_are_refused_together
            missing_keys_are_named_in_the_order_asked
            another_size_counts_as_missing
            missing_answers_for_ten_thousand
            a_list_is_ordered_and_paged
            a_list_knows_sizes
            namespaces_and_classes_do_not_mix
            a_page_has_limits
            deleting_is_idempotent
            many_are_deleted_at_once
            a_deleted_object_can_come_back
            twenty_writers_of_one_object_agree
            readers_see_whole_objects_only
        }
    };
}

/// Makes a named test of each clause for [`Records`]. `$make` is an expression whose `await`
/// returns an `Option` of a fresh [`RecordsFixture`]. The calling crate needs tokio.
#[macro_export]
macro_rules! records_contract {
    ($make:expr) => {
        $crate::contract_tests! { $make, records:
            a_record_reads_back_as_written
            odd_content_reads_back_as_written
            a_record_of_an_earlier_version_is_read_whole_and_replaced
            what_was_never_written_is_absent
            a_put_obeys_its_condition
            a_delete_obeys_its_condition
            a_check_obeys_its_condition
            a_delete_removes_and_may_find_nothing
            one_failed_condition_changes_nothing
            the_first_failed_condition_is_named
            an_empty_commit_is_done
            a_commit_tells_the_revision_of_each_put
            revisions_rise_and_never_repeat
            an_old_revision_never_matches_again
            a_hundred_writes_are_one_commit
            what_breaks_the_rules_of_a_commit_is_refused
            what_breaks_the_rules_of_reading_is_refused
            an_expired_record_is_absent_at_once
            an_expired_record_lets_a_new_one_in
            a_put_sets_the_expiry_anew
            many_records_come_in_the_order_asked
            a_list_is_ordered_by_bytes
            a_list_is_paged
            a_list_keeps_to_its_prefix
            partitions_do_not_mix
            keys_are_compared_byte_by_byte
            a_sweep_removes_only_what_expired
            a_store_gives_a_sign_of_life
        }
        $crate::contract_tests! { $make, counters:
            a_count_starts_at_zero
            a_count_creates_with_the_given_expiry
            a_count_keeps_everything_else
            a_count_starts_an_absent_field_at_zero
            a_count_stays_within_its_bounds
            a_count_refuses_what_is_no_integer
            a_count_starts_anew_in_an_expired_record
            a_count_raises_the_revision
            a_count_and_a_put_are_one_commit
            a_put_can_set_what_a_count_counts
            a_count_keeps_large_numbers_exact
        }
        $crate::contract_tests! { $make, races:
            twenty_writers_of_one_key_have_one_winner
            twenty_writers_at_one_revision_have_one_winner
            sixty_enrolments_leave_twenty_pending
            counters_lose_nothing
            readers_never_see_half_a_commit
            crossing_commits_both_end
            claims_stay_within_their_bound
        }
    };
}

/// Makes a named test of each clause for [`Shelf`](vault_shelf::Shelf). `$make` is an expression
/// whose `await` returns an `Option` of a fresh
/// [`ShelfFixture`](crate::contract::shelf::ShelfFixture). The calling crate needs tokio.
#[macro_export]
macro_rules! shelf_contract {
    ($make:expr) => {
        $crate::contract_tests! { $make, shelf:
            an_empty_shelf_has_no_skills
            skills_are_listed_in_the_order_of_their_names
            a_ranking_has_the_positions_of_the_entries
            an_entry_says_what_was_signed
            a_loaded_skill_proves_itself
            an_unchanged_shelf_hands_out_the_same_snapshot
            a_snapshot_never_changes
            an_older_entry_is_never_something_newer
            a_removed_skill_is_gone
            a_damaged_skill_is_never_content
            a_made_up_entry_loads_nothing
            a_policy_is_what_the_owner_wrote_last
            a_new_skill_is_signed_or_drafted
            equal_files_are_unchanged
            other_files_need_leave_to_replace
            a_fetched_name_is_not_taken_over
            a_check_changes_nothing
            what_the_gate_refuses_changes_nothing
            a_removal_is_done_or_drafted
            nothing_is_fetched
            a_folder_that_is_not_there_changes_nothing
            linked_skills_are_read_and_not_changed
            drift_answers_for_each_skill
            of_many_who_take_one_name_one_is_first
            readers_see_whole_skills_only
        }
    };
}

/// Writes a test for each named clause of a group, for the three contract macros above. A test
/// without a fixture passes.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_tests {
    ($make:expr, $group:ident: $($clause:ident)*) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $clause() {
                if let Some(fixture) = $make.await {
                    $crate::contract::$group::$clause(&fixture).await;
                }
            }
        )*
    };
}

/// Fails and prints the value unless it matches the pattern, like the unstable
/// `std::assert_matches!`.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(, $($context:tt)+)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            ref other => {
                let context = String::new() $(+ &format!($($context)+))?;
                panic!("{other:?} is not {} {context}", stringify!($pattern));
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_clause_is_in_its_macro() {
        let text = include_str!("mod.rs");
        let files = [
            include_str!("objects.rs"),
            include_str!("records.rs"),
            include_str!("counters.rs"),
            include_str!("races.rs"),
            include_str!("shelf.rs"),
        ];
        let clauses = files
            .iter()
            .flat_map(|file| file.lines())
            .filter_map(|line| {
                let name = line.strip_prefix("pub async fn ")?;
                name.split('(').next()
            });
        let mut count = 0;
        for clause in clauses {
            assert!(
                text.lines().any(|line| line.trim() == clause),
                "{clause} is no test"
            );
            count += 1;
        }
        assert_eq!(count, 90);
    }
}
