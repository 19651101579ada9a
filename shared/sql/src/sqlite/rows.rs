//! The queries of the SQLite store. The reading connections run them, and so does the writer inside
//! its transaction.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::objects::{Class, ObjectKey};
use vault_store::records::{Document, Record, RecordKey};

use crate::bounds::KeyRange;

/// Returns the records under these keys that are alive at `now`, all of one moment.
pub fn read_records(
    connection: &Connection,
    keys: &[RecordKey],
    now: Timestamp,
) -> rusqlite::Result<Vec<Option<Record>>> {
    match keys {
        [key] => return Ok(vec![read_record(connection, key, now)?]),
        [_, _] => return read_in_one_statement(connection, SELECT_TWO, keys, now),
        [_, _, _] => return read_in_one_statement(connection, SELECT_THREE, keys, now),
        [_, _, _, _, _] => return read_in_one_statement(connection, SELECT_FIVE, keys, now),
        _ => {}
    }
    // One transaction is one snapshot. It only reads, so a rollback loses nothing.
    connection.prepare_cached("begin")?.execute(())?;
    let read = keys
        .iter()
        .map(|key| read_record(connection, key, now))
        .collect();
    connection.prepare_cached("rollback")?.execute(())?;
    read
}

macro_rules! select_record {
    ($slot:literal, $partition:literal, $key:literal) => {
        concat!(
            "select ",
            $slot,
            ", revision, expires_at, document from records where partition = ?",
            $partition,
            " and key = ?",
            $key,
            " and (expires_at is null or expires_at > ?1)"
        )
    };
}

/// The statements that read two or three records, as a request of a device needs. One statement
/// costs half as much as a transaction around several.
const SELECT_TWO: &str = concat!(
    select_record!(0, 2, 3),
    " union all ",
    select_record!(1, 4, 5)
);
const SELECT_THREE: &str = concat!(
    select_record!(0, 2, 3),
    " union all ",
    select_record!(1, 4, 5),
    " union all ",
    select_record!(2, 6, 7)
);

/// The statement that reads the five records that belong to an access token.
const SELECT_FIVE: &str = concat!(
    select_record!(0, 2, 3),
    " union all ",
    select_record!(1, 4, 5),
    " union all ",
    select_record!(2, 6, 7),
    " union all ",
    select_record!(3, 8, 9),
    " union all ",
    select_record!(4, 10, 11)
);

/// Reads records like [`read_records`], but with one statement, which sees one moment too.
fn read_in_one_statement(
    connection: &Connection,
    statement: &str,
    keys: &[RecordKey],
    now: Timestamp,
) -> rusqlite::Result<Vec<Option<Record>>> {
    let mut statement = connection.prepare_cached(statement)?;
    statement.raw_bind_parameter(1, now.unix())?;
    for (position, key) in keys.iter().enumerate() {
        statement.raw_bind_parameter(2 + 2 * position, &key.partition)?;
        statement.raw_bind_parameter(3 + 2 * position, &key.key)?;
    }
    // Absent records yield no row, so each row carries the position of its key.
    let mut records: Vec<Option<Record>> = keys.iter().map(|_| None).collect();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let slot = usize::from(row.get::<_, u8>(0)?);
        records[slot] = Some(Record {
            key: keys[slot].clone(),
            revision: revision_column(row, 1)?,
            expires_at: expiry_column(row, 2)?,
            document: document_column(row, 3)?,
        });
    }
    Ok(records)
}

/// Returns the record under this key if it is alive at `now`.
pub fn read_record(
    connection: &Connection,
    key: &RecordKey,
    now: Timestamp,
) -> rusqlite::Result<Option<Record>> {
    let mut statement = connection.prepare_cached(
        "select revision, expires_at, document from records
         where partition = ?1 and key = ?2 and (expires_at is null or expires_at > ?3)",
    )?;
    let found = statement.query_row(params![key.partition, key.key, now.unix()], |row| {
        Ok(Record {
            key: key.clone(),
            revision: revision_column(row, 0)?,
            expires_at: expiry_column(row, 1)?,
            document: document_column(row, 2)?,
        })
    });
    found.optional()
}

/// Returns a page of the records of a partition that are alive at `now`.
pub fn list_records(
    connection: &Connection,
    partition: &str,
    bounds: &KeyRange,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(
        "select key, revision, expires_at, document from records
         where partition = ?1 and key >= ?2 and key < ?3 and key is not ?4
           and (expires_at is null or expires_at > ?5)
         order by key limit ?6",
    )?;
    let values = params![
        partition,
        bounds.start,
        bounds.end,
        bounds.exclude,
        now.unix(),
        to_integer(limit)
    ];
    let listed = statement.query_map(values, |row| {
        Ok(Record {
            key: RecordKey::new(partition, row.get::<_, String>(0)?),
            revision: revision_column(row, 1)?,
            expires_at: expiry_column(row, 2)?,
            document: document_column(row, 3)?,
        })
    });
    listed?.collect()
}

pub fn read_object(connection: &Connection, key: &ObjectKey) -> rusqlite::Result<Option<Bytes>> {
    let mut statement = connection.prepare_cached(
        "select bytes from objects where namespace = ?1 and class = ?2 and digest = ?3",
    )?;
    let place = params![
        key.namespace.as_str(),
        key.class.as_str(),
        key.digest.as_bytes()
    ];
    statement
        .query_row(place, |row| Ok(Bytes::from(row.get::<_, Vec<u8>>(0)?)))
        .optional()
}

/// Returns the keys that do not exist with the given size.
pub fn find_missing(
    connection: &Connection,
    wanted: &[(ObjectKey, u64)],
) -> rusqlite::Result<Vec<ObjectKey>> {
    let mut statement = connection.prepare_cached(
        "select size from objects where namespace = ?1 and class = ?2 and digest = ?3",
    )?;
    // One transaction is one snapshot, and it takes the read lock once instead of once per key.
    connection.prepare_cached("begin")?.execute(())?;
    let missing = wanted.iter().filter_map(|(key, size)| {
        let place = params![
            key.namespace.as_str(),
            key.class.as_str(),
            key.digest.as_bytes()
        ];
        match statement
            .query_row(place, |row| row.get::<_, i64>(0))
            .optional()
        {
            Ok(held) if held.map(i64::cast_unsigned) == Some(*size) => None,
            Ok(_) => Some(Ok(*key)),
            Err(error) => Some(Err(error)),
        }
    });
    let missing = missing.collect();
    connection.prepare_cached("rollback")?.execute(())?;
    missing
}

/// Returns a page of one class of objects.
pub fn list_objects(
    connection: &Connection,
    namespace: &NamespaceId,
    class: Class,
    after: Option<&Digest>,
    limit: usize,
) -> rusqlite::Result<Vec<(Digest, u64)>> {
    let mut statement = connection.prepare_cached(
        "select digest, size from objects where namespace = ?1 and class = ?2 and digest > ?3
         order by digest limit ?4",
    )?;
    // The empty byte string sorts before every digest.
    let after: &[u8] = after.map_or(&[], |digest| digest.as_bytes());
    let values = params![namespace.as_str(), class.as_str(), after, to_integer(limit)];
    let listed = statement.query_map(values, |row| {
        Ok((
            Digest::from_bytes(row.get(0)?),
            row.get::<_, i64>(1)?.cast_unsigned(),
        ))
    });
    listed?.collect()
}

/// Checks that the file can be read.
pub fn check_readable(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .prepare_cached("select last from revision")?
        .query_row((), |_| Ok(()))
}

pub fn to_integer(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn revision_column(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

fn expiry_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_unix))
}

fn document_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Document> {
    Ok(Document::from_stored(row.get_ref(column)?.as_str()?))
}
