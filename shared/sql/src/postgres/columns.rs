//! Turns keys, locks and changes into arrays of columns, so that one statement serves any number of
//! them.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::objects::ObjectKey;
use vault_store::records::{After, Document, Record, RecordKey, Write};

use super::lease::{Failure, Lease};

const UPSERT: &str = "insert into records (partition, key, revision, expires_at, document)
    select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[])
    on conflict (partition, key) do update
    set revision = excluded.revision, expires_at = excluded.expires_at, document = excluded.document";
const DELETE: &str = "delete from records
    using unnest($1::text[], $2::text[]) as gone (partition, key)
    where records.partition = gone.partition and records.key = gone.key";
// If a commit changed the row in the meantime, PostgreSQL checks the outer condition again. A
// record that was just written again therefore stays.

/// The advisory locks of a commit, in rising order: one number for each key. Changes take it
/// exclusively, checks take it shared.
pub(super) struct Locks {
    pub(super) numbers: Vec<i64>,
    pub(super) are_exclusive: Vec<bool>,
}

impl Locks {
    pub(super) fn for_writes(writes: &[Write]) -> Self {
        let mut locks = BTreeMap::new();
        for write in writes {
            let RecordKey { partition, key } = write.key();
            // No key contains NUL, so the joined text belongs to one key only. Two keys with the
            // same number only wait for each other needlessly.
            let digest = Digest::of(format!("{partition}\0{key}").as_bytes());
            let number = digest
                .as_bytes()
                .iter()
                .take(8)
                .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
            let is_exclusive = !matches!(write, Write::Check { .. });
            *locks.entry(number.cast_signed()).or_insert(is_exclusive) |= is_exclusive;
        }
        let (numbers, are_exclusive) = locks.into_iter().unzip();
        Self {
            numbers,
            are_exclusive,
        }
    }
}

/// The keys of a query, as arrays for the server.
pub(super) struct KeyArrays<'a> {
    pub(super) partitions: Vec<&'a str>,
    pub(super) keys: Vec<&'a str>,
}

impl<'a> KeyArrays<'a> {
    pub(super) fn from_keys(keys: impl IntoIterator<Item = &'a RecordKey>) -> Self {
        let (partitions, keys) = keys
            .into_iter()
            .map(|key| (key.partition.as_str(), key.key.as_str()))
            .unzip();
        Self { partitions, keys }
    }

    /// Returns the records of [`RECORDS`] in the order of the keys.
    pub(super) fn records_in_order(
        &self,
        rows: &[Row],
    ) -> Result<Vec<Option<Record>>, tokio_postgres::Error> {
        let mut records = vec![None; self.keys.len()];
        for row in rows {
            let place: i64 = row.try_get(0)?; // counted from 1
            let index = usize::try_from(place - 1).unwrap_or(usize::MAX);
            if let Some(record) = records.get_mut(index) {
                *record = Some(read_record(
                    RecordKey::new(self.partitions[index], self.keys[index]),
                    row,
                )?);
            }
        }
        Ok(records)
    }
}

/// The changes of a commit, as arrays for the server.
#[derive(Default)]
pub(super) struct Changes<'a> {
    pub(super) partitions: Vec<&'a str>,
    pub(super) keys: Vec<&'a str>,
    pub(super) revisions: Vec<i64>,
    pub(super) expiries: Vec<Option<i64>>,
    pub(super) documents: Vec<Document>,
    pub(super) gone_partitions: Vec<&'a str>,
    pub(super) gone_keys: Vec<&'a str>,
}

impl<'a> Changes<'a> {
    pub(super) fn add_change(&mut self, key: &'a RecordKey, after: After, revision: i64) {
        match after {
            After::Same => {}
            After::Nothing => {
                self.gone_partitions.push(&key.partition);
                self.gone_keys.push(&key.key);
            }
            After::Holds {
                document,
                expires_at,
            } => {
                self.partitions.push(&key.partition);
                self.keys.push(&key.key);
                self.revisions.push(revision);
                self.expiries.push(expires_at.map(Timestamp::unix));
                self.documents.push(document);
            }
        }
    }

    /// Writes all changes and ends the transaction.
    pub(super) async fn write_all(&self, lease: &Lease) -> Result<(), Failure> {
        let (upsert, delete) = tokio::try_join!(
            lease.prepare_statement(UPSERT),
            lease.prepare_statement(DELETE)
        )?;
        let documents: Vec<&str> = self.documents.iter().map(Document::as_str).collect();
        let put: [&(dyn ToSql + Sync); 5] = [
            &self.partitions,
            &self.keys,
            &self.revisions,
            &self.expiries,
            &documents,
        ];
        let gone: [&(dyn ToSql + Sync); 2] = [&self.gone_partitions, &self.gone_keys];
        // The statements are sent together. If one fails, the server turns the `commit` that
        // follows into a rollback.
        let written = tokio::try_join!(
            biased;
            async {
                if self.keys.is_empty() { Ok(()) } else { lease.query_prepared(&upsert, &put).await.map(drop) }
            },
            async {
                if self.gone_keys.is_empty() { Ok(()) } else { lease.query_prepared(&delete, &gone).await.map(drop) }
            },
            lease.run_batch("commit"),
        );
        // From here on it is unknown whether the server has reached the commit.
        written.map(drop).map_err(Failure::at_commit)
    }
}

/// The keys of objects, as arrays for the server.
pub(super) struct ObjectKeyArrays<'a> {
    pub(super) namespaces: Vec<&'a str>,
    pub(super) classes: Vec<&'a str>,
    pub(super) digests: Vec<&'a [u8]>,
}

impl<'a> ObjectKeyArrays<'a> {
    pub(super) fn from_keys(keys: impl Iterator<Item = &'a ObjectKey>) -> Self {
        let mut place = Self {
            namespaces: Vec::new(),
            classes: Vec::new(),
            digests: Vec::new(),
        };
        for key in keys {
            let (namespace, class, digest) = key_columns(key);
            place.namespaces.push(namespace);
            place.classes.push(class);
            place.digests.push(digest);
        }
        place
    }
}

pub(super) fn key_columns(key: &ObjectKey) -> (&str, &'static str, &[u8]) {
    (
        key.namespace.as_str(),
        key.class.as_str(),
        key.digest.as_bytes(),
    )
}

/// Reads the record in columns 1 to 3 of a row.
pub(super) fn read_record(key: RecordKey, row: &Row) -> Result<Record, tokio_postgres::Error> {
    Ok(Record {
        key,
        revision: row.try_get::<_, i64>(1)?.cast_unsigned(),
        expires_at: row.try_get::<_, Option<i64>>(2)?.map(Timestamp::from_unix),
        document: Document::from_stored(row.try_get::<_, &str>(3)?),
    })
}
