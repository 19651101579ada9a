//! PostgreSQL: one server for several services.
//!
//! A commit first takes advisory locks for its keys, always in the same order, so that commits of
//! the same keys queue and never deadlock. This covers absent keys too, for which there is no row
//! to lock. Under the locks, the commit reads what the keys hold, decides like every other adapter,
//! writes, and ends its transaction: two round trips in total. Reads take no lock. Each read is one
//! statement, which sees one snapshot, so a commit becomes visible as a whole. Commits and uploads
//! of different namespaces take turns ([`vault_store::gate`]).

mod columns;
mod connect;
mod lease;
mod migrations;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::fair::{Lane, LaneBound};
use vault_store::gate::{FairGate, GateSize};
use vault_store::objects::{self, Class, ObjectKey, Objects, Stored};
use vault_store::random::{SystemRandom, random_bytes};
use vault_store::records::{self, Commit, Record, RecordKey, Records, Write};

use self::columns::{Changes, KeyArrays, Locks, ObjectKeyArrays, key_columns, read_record};
use self::lease::{Connections, Failure, Lease};
use crate::bounds::KeyRange;
use crate::{CHUNK, Options, SqlError, find_count_at_bound, split_by_work};

/// How long a commit is repeated while other writers interfere.
const CONFLICT: Duration = Duration::from_secs(2);
/// Number of commits and uploads that one service runs at once. The other connections of its pool
/// stay free for reads.
const MAX_CONCURRENT_WRITES: usize = connect::CONNECTIONS / 2;
/// Number of commits and uploads of one namespace that may wait.
const WAITING: usize = 2048;

const RECORDS: &str = "select asked.place, held.revision, held.expires_at, held.document
    from unnest($1::text[], $2::text[]) with ordinality as asked (partition, key, place)
    join records held on held.partition = asked.partition and held.key = asked.key
    where held.expires_at is null or held.expires_at > $3";
const PAGE: &str = "select key, revision, expires_at, document from records
    where partition = $1 and key >= $2 and key < $3 and key is distinct from $4
      and (expires_at is null or expires_at > $5)
    order by key limit $6";
// The server takes the locks row by row, in the order of the array. The array is sorted, so that
// two commits never wait for each other in a circle.
const LOCKS: &str = "select case when own then pg_advisory_xact_lock(lock) else pg_advisory_xact_lock_shared(lock) end
    from unnest($1::bigint[], $2::boolean[]) as wanted (lock, own)";
const REVISIONS: &str = "select nextval('vault_revision') from generate_series(1, $1::int)";
const SWEEP: &str = "delete from records where (partition, key) in
    (select partition, key from records where expires_at is not null and expires_at <= $1 limit $2)
    and expires_at <= $1 returning 1";
const OBJECT: &str =
    "select bytes from objects where namespace = $1 and class = $2 and digest = $3";
const PUT: &str = "insert into objects (namespace, class, digest, size, bytes)
    select namespace, class, digest, octet_length(bytes), bytes
    from unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[]) as put (namespace, class, digest, bytes)
    on conflict do nothing returning namespace, class, digest";
const FIND_OBJECTS: &str = "select asked.place
    from unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[]) with ordinality
      as asked (namespace, class, digest, size, place)
    join objects held on held.namespace = asked.namespace and held.class = asked.class
      and held.digest = asked.digest and held.size = asked.size";
const OBJECTS: &str = "select digest, size from objects
    where namespace = $1 and class = $2 and digest > $3 order by digest limit $4";
const DELETE_OBJECTS: &str = "delete from objects
    using unnest($1::text[], $2::text[], $3::bytea[]) as gone (namespace, class, digest)
    where objects.namespace = gone.namespace and objects.class = gone.class
      and objects.digest = gone.digest";

/// Both data ports on one PostgreSQL database.
pub struct Postgres {
    clock: Arc<dyn Clock>,
    connections: Connections,
    writes: Arc<FairGate>,
}

impl Postgres {
    /// Connects and migrates the database.
    pub async fn connect(
        url: &str,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, SqlError> {
        let connections = connect::create_pool(url, options.patience)?;
        migrations::run_migrations(&connections).await?;
        Ok(Self {
            clock,
            connections,
            writes: FairGate::new(GateSize {
                places: MAX_CONCURRENT_WRITES,
                places_of_lane: MAX_CONCURRENT_WRITES / 2,
                waiting: LaneBound::of_requests(WAITING),
                patience: options.patience,
            }),
        })
    }

    /// Makes one attempt at a commit: under locks, in a transaction of its own.
    async fn attempt_commit(
        &self,
        lease: &Lease,
        writes: &[Write],
        now: Timestamp,
    ) -> Result<Commit, Failure> {
        let locks = Locks::for_writes(writes);
        let key_arrays = KeyArrays::from_keys(
            writes
                .iter()
                .filter(|write| !write.is_blind())
                .map(Write::key),
        );
        let revision_count = i32::try_from(writes.len()).unwrap_or(i32::MAX);
        let statements = tokio::try_join!(
            lease.prepare_statement(LOCKS),
            lease.prepare_statement(RECORDS),
            lease.prepare_statement(REVISIONS)
        )?;
        let lock_values: [&(dyn ToSql + Sync); 2] = [&locks.numbers, &locks.are_exclusive];
        let record_values: [&(dyn ToSql + Sync); 3] =
            [&key_arrays.partitions, &key_arrays.keys, &now.unix()];
        let revision_values: [&(dyn ToSql + Sync); 1] = [&revision_count];
        // The statements are sent together and run in this order. The record query sees everything
        // that was committed before the locks were granted. A revision that is drawn under a key's
        // lock is above every earlier revision of that key.
        let ((), _, rows, revisions) = tokio::try_join!(
            biased;
            lease.run_batch(connect::BEGIN),
            lease.query_prepared(&statements.0, &lock_values),
            lease.query_prepared(&statements.1, &record_values),
            lease.query_prepared(&statements.2, &revision_values),
        )?;
        let held = key_arrays.records_in_order(&rows)?;
        let mut held = held.into_iter();
        let mut changes = Changes::default();
        let mut done = Vec::with_capacity(writes.len());
        for (index, (write, revision)) in writes.iter().zip(&revisions).enumerate() {
            let held = if write.is_blind() {
                None
            } else {
                held.next().flatten()
            };
            let Some(after) = write.applied_to(held.as_ref()) else {
                // End the transaction now, so that the locks are released and the connection can
                // return to the pool.
                lease.run_batch("rollback").await?;
                return Ok(Commit::Failed { index, found: held });
            };
            let revision: i64 = revision.try_get(0)?;
            let is_put = matches!(write, Write::Put { .. });
            // Report the revision of a `Put` only, as every adapter does: DynamoDB cannot return
            // that of a counter.
            done.push(is_put.then_some(revision.cast_unsigned()));
            changes.add_change(write.key(), after, revision);
        }
        changes.write_all(lease).await?;
        Ok(Commit::Done(done))
    }

    async fn put_some(
        &self,
        objects: &[&(ObjectKey, Bytes)],
    ) -> Result<HashSet<ObjectKey>, StoreError> {
        let key_arrays = ObjectKeyArrays::from_keys(objects.iter().map(|(key, _)| key));
        let contents: Vec<&[u8]> = objects.iter().map(|(_, bytes)| &bytes[..]).collect();
        let values: [&(dyn ToSql + Sync); 4] = [
            &key_arrays.namespaces,
            &key_arrays.classes,
            &key_arrays.digests,
            &contents,
        ];
        // Only a chunk of one large object is above the bound.
        let bytes: usize = contents.iter().map(|content| content.len()).sum();
        let rows = if bytes > CHUNK.bytes {
            self.connections.query_and_close(PUT, &values).await?
        } else {
            self.connections.query_once(PUT, &values).await?
        };
        let new: Result<HashSet<(String, String, Vec<u8>)>, tokio_postgres::Error> = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
            .collect();
        let new = new.map_err(read_error)?;
        let is_new = |key: &ObjectKey| {
            let text = (
                key.namespace.to_string(),
                key.class.to_string(),
                key.digest.as_bytes().to_vec(),
            );
            new.contains(&text)
        };
        Ok(objects.iter().map(|(key, _)| *key).filter(is_new).collect())
    }
}

#[async_trait]
impl Objects for Postgres {
    async fn read_object(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        let (namespace, class, digest) = key_columns(key);
        let rows = self
            .connections
            .query_once(OBJECT, &[&namespace, &class, &digest])
            .await?;
        let bytes = rows
            .first()
            .map(|row| row.try_get::<_, Vec<u8>>(0))
            .transpose()
            .map_err(read_error)?;
        Ok(bytes.map(Bytes::from))
    }

    async fn put_object(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError> {
        let stored = self.put_many(vec![(*key, bytes)]).await?;
        Ok(stored.first().copied().unwrap_or(Stored::Present))
    }

    async fn put_many(&self, objects: Vec<(ObjectKey, Bytes)>) -> Result<Vec<Stored>, StoreError> {
        objects::check_put_many(&objects)?;
        // Insert in the order of the keys, so that two calls with the same objects cannot deadlock.
        let mut sorted: Vec<&(ObjectKey, Bytes)> = objects.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        sorted.dedup_by_key(|(key, _)| *key);
        let mut new = HashSet::new();
        for chunk in split_by_work(sorted, |(_, bytes)| bytes.len()) {
            let Some((key, _)) = chunk.first() else {
                continue;
            };
            let pass = self.writes.enter(Lane::Namespace(key.namespace)).await?;
            new.extend(self.put_some(&chunk).await?);
            // Give the place back after each chunk, so that requests of other namespaces come in
            // between.
            drop(pass);
        }
        // An object that occurs twice is new only once.
        let stored = |key| {
            if new.remove(key) {
                Stored::New
            } else {
                Stored::Present
            }
        };
        Ok(objects.iter().map(|(key, _)| key).map(stored).collect())
    }

    async fn find_missing(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<Vec<ObjectKey>, StoreError> {
        objects::check_missing(wanted)?;
        let key_arrays = ObjectKeyArrays::from_keys(wanted.iter().map(|(key, _)| key));
        // A size that does not fit an `i64` becomes -1, which no object has.
        let sizes: Vec<i64> = wanted
            .iter()
            .map(|(_, size)| i64::try_from(*size).unwrap_or(-1))
            .collect();
        let rows = self
            .connections
            .query_once(
                FIND_OBJECTS,
                &[
                    &key_arrays.namespaces,
                    &key_arrays.classes,
                    &key_arrays.digests,
                    &sizes,
                ],
            )
            .await?;
        let held: Result<HashSet<i64>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        let held = held.map_err(read_error)?;
        let missing = (1..).zip(wanted).filter(|(place, _)| !held.contains(place));
        Ok(missing.map(|(_, (key, _))| *key).collect())
    }

    async fn list_objects(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError> {
        objects::check_list(limit)?;
        // The empty byte string sorts before every digest.
        let after: &[u8] = after.map_or(&[], |digest| digest.as_bytes());
        let rows = self
            .connections
            .query_once(
                OBJECTS,
                &[
                    &namespace.as_str(),
                    &class.as_str(),
                    &after,
                    &to_bigint(limit),
                ],
            )
            .await?;
        let listed = rows.iter().map(|row| {
            let digest: &[u8] = row.try_get(0).map_err(read_error)?;
            let digest = digest
                .try_into()
                .map_err(|_| StoreError::Corrupt("a digest of odd length".to_owned()))?;
            let size: i64 = row.try_get(1).map_err(read_error)?;
            Ok((Digest::from_bytes(digest), size.cast_unsigned()))
        });
        listed.collect()
    }

    async fn delete_object(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.delete_many(&[*key]).await
    }

    async fn delete_many(&self, keys: &[ObjectKey]) -> Result<(), StoreError> {
        // In the order of the keys, as uploads insert them.
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        for keys in sorted.chunks(CHUNK.rows) {
            let arrays = ObjectKeyArrays::from_keys(keys.iter());
            // Only background work deletes objects.
            let pass = self.writes.enter(Lane::Upkeep).await?;
            self.connections
                .query_once(
                    DELETE_OBJECTS,
                    &[&arrays.namespaces, &arrays.classes, &arrays.digests],
                )
                .await?;
            drop(pass);
        }
        Ok(())
    }
}

#[async_trait]
impl Records for Postgres {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        records::check_get_many(keys)?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        let key_arrays = KeyArrays::from_keys(keys);
        let rows = self
            .connections
            .query_once(
                RECORDS,
                &[&key_arrays.partitions, &key_arrays.keys, &now.unix()],
            )
            .await?;
        key_arrays.records_in_order(&rows).map_err(read_error)
    }

    async fn list_page(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        records::check_list(partition, prefix, after, limit)?;
        let bounds = KeyRange::for_prefix(prefix, after);
        let now = self.clock.now().unix();
        let rows = self
            .connections
            .query_once(
                PAGE,
                &[
                    &partition,
                    &bounds.start,
                    &bounds.end,
                    &bounds.exclude,
                    &now,
                    &to_bigint(limit),
                ],
            )
            .await?;
        let listed = rows.iter().map(|row| {
            let key: String = row.try_get(0)?;
            read_record(RecordKey::new(partition, key), row)
        });
        listed.collect::<Result<_, _>>().map_err(read_error)
    }

    async fn commit_writes(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        records::check_commit(&writes)?;
        if writes.is_empty() {
            return Ok(Commit::Done(Vec::new()));
        }
        if let Some(failed) = find_count_at_bound(self, &writes).await? {
            return Ok(failed);
        }
        let until = Instant::now() + CONFLICT;
        let mut max_wait_ms = 10;
        let mut fresh = false;
        let lane = Lane::for_writes(&writes);
        loop {
            let pass = self.writes.enter(lane.clone()).await?;
            let lease = self.connections.lease_connection(fresh).await?;
            let failure = match lease
                .run_bounded(self.attempt_commit(&lease, &writes, self.clock.now()))
                .await
            {
                Ok(commit) => {
                    lease.give_back();
                    return Ok(commit);
                }
                Err(failure) => failure,
            };
            // The state of the transaction is unknown. Closing the connection makes the server roll
            // it back. Others write during the wait.
            drop((lease, pass));
            // A retry on another connection needs no wait. A conflict needs a random one, or the
            // same writers collide again.
            if failure.is_dead() && !fresh {
                fresh = true;
            } else if failure.is_conflict() {
                let wait = Duration::from_millis(
                    u64::from(u16::from_be_bytes(random_bytes(&SystemRandom))) % max_wait_ms,
                );
                if Instant::now() + wait >= until {
                    return Err(StoreError::Conflict);
                }
                tokio::time::sleep(wait).await;
                max_wait_ms = (max_wait_ms * 2).min(640);
            } else {
                return Err(failure.into());
            }
        }
    }

    async fn sweep_expired(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.clock.now().unix();
        let mut swept = 0;
        while swept < limit {
            let rows = (limit - swept).min(CHUNK.rows);
            let pass = self.writes.enter(Lane::Upkeep).await?;
            let gone = self
                .connections
                .query_once(SWEEP, &[&now, &to_bigint(rows)])
                .await?;
            drop(pass);
            swept += gone.len();
            if gone.len() < rows {
                break;
            }
        }
        Ok(swept)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        self.connections.query_once("select 1", &[]).await.map(drop)
    }
}

fn to_bigint(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn read_error(error: tokio_postgres::Error) -> StoreError {
    StoreError::from(Failure::from(error))
}

#[cfg(test)]
mod tests {
    use vault_store::clock::SystemClock;
    use vault_testing::{postgres, servers::or_say_why};

    use super::*;

    fn object(size: usize) -> (ObjectKey, Bytes) {
        let bytes = Bytes::from(vec![b'x'; size]);
        let namespace = NamespaceId::from_parts(1_795_219_200_000, 1);
        (
            ObjectKey::for_bytes(namespace, Class::Bundles, &bytes),
            bytes,
        )
    }

    /// A pack gives its place to a waiting request of another namespace after each chunk.
    #[tokio::test]
    async fn a_write_waits_for_at_most_one_chunk_of_another_namespace() {
        let Some(database) = or_say_why(postgres::database()) else {
            return;
        };
        let store = Postgres::connect(&database.url(), Arc::new(SystemClock), Options::default())
            .await
            .expect("a new database opens");
        let namespace = |n| NamespaceId::from_parts(1_795_219_200_000, n);
        let enter = |n| store.writes.enter(Lane::Namespace(namespace(n)));
        let mut others = Vec::new();
        for n in 0..MAX_CONCURRENT_WRITES {
            others.push(enter(n as u128).await.expect("a place is free"));
        }
        let (busy, quiet) = (namespace(100), 101);
        let pack = (0..250).map(|n| {
            let bytes = Bytes::from(n.to_string());
            (ObjectKey::for_bytes(busy, Class::Bundles, &bytes), bytes)
        });
        let at_turn = async {
            let pass = enter(quiet).await.expect("its turn comes");
            let listed = store.list_objects(&busy, Class::Bundles, None, 1000).await;
            drop(pass);
            listed.expect("the objects are listed").len()
        };
        let free_place = async { drop(others.pop()) };
        // Polled in this order: both wait before the only place becomes free.
        let (stored, before, ()) =
            tokio::join!(biased; store.put_many(pack.collect()), at_turn, free_place);
        assert_eq!(stored.expect("the pack is stored").len(), 250);
        assert_eq!(before, CHUNK.rows);
    }

    #[tokio::test]
    async fn a_connection_that_sent_a_large_object_is_closed() {
        let Some(database) = or_say_why(postgres::database()) else {
            return;
        };
        let store = Postgres::connect(&database.url(), Arc::new(SystemClock), Options::default())
            .await
            .expect("a new database opens");
        let (key, bytes) = object(CHUNK.bytes);
        store.put_object(&key, bytes).await.expect("it is stored");
        assert_eq!(store.connections.idle_count(), 1);
        let (key, bytes) = object(CHUNK.bytes + 1);
        store
            .put_object(&key, bytes.clone())
            .await
            .expect("it is stored");
        assert_eq!(store.connections.idle_count(), 0);
        let stored = store.read_object(&key).await.expect("it is read");
        assert_eq!(stored, Some(bytes));
    }
}
