//! `index.db`: the one cache of a vault. Deleting it makes the next commands slower and changes no
//! result.
//!
//! It has one row for each verified bundle. The row's checksum covers its content and the metadata
//! (size, times, inode, mode) that each of the bundle's paths had when the bundle was last verified.
//! A listing treats a bundle as verified while its checksum matches. Whatever is published, run or
//! shown as verified is read and hashed anyway, so a forged row can hide a change from a listing but
//! adds no trust.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vault_skill::hash::Digest;
use vault_skill::index::IndexEntry;
use vault_skill::json;
use vault_skill::keys::PublicKey;
use vault_skill::name::{ActionName, AgentId, SkillName};

use crate::disk;
use crate::disk::tree::{self, FileStat};
use crate::store::{self, Trusted};

/// Identifies the file as an index of vault: "vlt1".
const APPLICATION: i32 = 0x766c_7431;
/// Increase it when the table or the content of its rows changes.
const VERSION: i32 = 6;
/// Lists are JSON arrays; `texts` is a JSON object, without the agents.
const SCHEMA: &str = "
    CREATE TABLE bundles (hash BLOB PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL,
        signer TEXT NOT NULL, size INTEGER NOT NULL, parts TEXT NOT NULL, paths TEXT NOT NULL,
        agents TEXT NOT NULL, texts TEXT NOT NULL, sketch BLOB NOT NULL, checksum BLOB NOT NULL)
        WITHOUT ROWID;";

/// Cached facts about a verified bundle.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: SkillName,
    pub(crate) version: u64,
    /// The key that signed the manifest, as text: parsing one costs more than the rest of a row.
    pub(crate) signer: String,
    /// Size of the bundle object, in bytes.
    pub(crate) size: u64,
    /// Objects that hold the parts of large files, with their sizes in bytes.
    pub(crate) parts: Vec<(Digest, u64)>,
    /// Paths relative to the bundle's folder.
    pub(crate) paths: Vec<String>,
    pub(crate) texts: Texts,
    /// The [`vault_skill::gate::similar::Sketch`] of its files. It only selects the skills that a
    /// new one is compared with.
    #[serde(skip)] // the checksum takes its bytes as they are
    pub(crate) sketch: Vec<u8>,
}

impl Row {
    /// Covers the row and the metadata of each path; `None` if the metadata of a path is missing.
    fn checksum(&self, stats: impl Iterator<Item = Option<FileStat>>) -> Option<Digest> {
        let mut bytes = json::to_bytes(&(self, &self.texts.agents));
        bytes.extend_from_slice(&self.sketch);
        for stat in stats {
            stat?.append_to(&mut bytes);
        }
        Some(Digest::of(&bytes))
    }
}

/// The texts of a skill that search reads and that a release's index contains.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Texts {
    /// From the frontmatter.
    pub description: String,
    /// From the frontmatter.
    pub tags: Vec<String>,
    /// From the frontmatter.
    pub categories: Vec<String>,
    /// From the frontmatter; empty when absent.
    pub when_to_use: String,
    /// Target agents, from the manifest.
    #[serde(skip)] // a column of its own in the index
    pub agents: Vec<AgentId>,
    /// Names of the declared actions.
    pub actions: Vec<ActionName>,
    /// The recorded source identifier; not part of a release's index.
    pub provenance: String,
}

impl Texts {
    /// The entry of a release's index.
    pub(crate) fn into_entry(self, name: SkillName, bundle_hash: Digest) -> IndexEntry {
        IndexEntry {
            name,
            bundle_hash,
            description: self.description,
            tags: self.tags,
            categories: self.categories,
            when_to_use: self.when_to_use,
            agents: self.agents,
            actions: self.actions,
        }
    }
}

/// A bundle that was just verified, to be written to the index.
#[derive(Clone, Debug)]
pub(crate) struct NewRow {
    pub(crate) hash: Digest,
    pub(crate) row: Row,
    /// The metadata of each of the row's paths at the time its bytes were read.
    pub(crate) stats: Vec<FileStat>,
}

/// A row as stored. It counts as verified only while its checksum matches.
#[derive(Debug)]
pub(crate) struct StoredRow {
    /// The row, unverified.
    pub(crate) row: Row,
    checksum: Digest,
}

impl StoredRow {
    /// The row, if it belongs to a skill of this name, its signer counts, and no file of the bundle
    /// was written to since it was verified. `store` is the folder of bundles.
    pub(crate) fn current(
        &self,
        store: &Path,
        hash: &Digest,
        name: &SkillName,
        trusted: &Trusted,
    ) -> Option<&Row> {
        let signer: Option<PublicKey> = self.row.signer.parse().ok();
        if self.row.name != *name || !signer.is_some_and(|key| trusted.counts(&key, hash)) {
            return None;
        }
        let folder = store::folder(store, hash);
        let stats = self.row.paths.iter();
        let stats = stats.map(|path| tree::stat(&folder.join(path)));
        (self.row.checksum(stats) == Some(self.checksum)).then_some(&self.row)
    }
}

/// The index. Without a usable file every table reads as empty, and writes do nothing.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    connection: Option<Connection>,
}

impl Index {
    /// Opens the index; creates or rebuilds it if necessary. Never fails: the index only saves
    /// work.
    pub(crate) fn open(path: &Path) -> Self {
        let connection = match connect(path) {
            Ok(connection) => Some(connection),
            Err(OpenError::Foreign) => {
                tracing::warn!(path = %path.display(), "the index path names another program's database; continuing without an index");
                None
            }
            Err(OpenError::Damaged) => {
                tracing::warn!(path = %path.display(), "the index is damaged and is rebuilt");
                set_aside(path).then(|| connect(path).ok()).flatten()
            }
            Err(OpenError::Unusable(cause)) => {
                tracing::warn!(path = %path.display(), %cause, "continuing without an index");
                None
            }
        };
        Self {
            path: path.to_owned(),
            connection,
        }
    }

    /// Writes in one transaction. A failure is only reported: it makes later commands slower and
    /// has no other effect.
    fn write(&mut self, write: impl FnOnce(&Connection) -> rusqlite::Result<()>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let written = connection.transaction().and_then(|transaction| {
            write(&transaction)?;
            transaction.commit()
        });
        if let Err(cause) = written {
            self.failed(cause, "the index can't be written");
        }
    }

    /// Reports a failure. Moves a damaged file aside, so that the next command creates a new one.
    fn failed(&self, cause: rusqlite::Error, what: &str) {
        tracing::warn!(%cause, "{what}");
        if matches!(OpenError::from(cause), OpenError::Damaged) {
            set_aside(&self.path);
        }
    }

    /// All rows, by bundle. A row that does not parse is left out; its bundle is then verified and
    /// written again.
    pub(crate) fn rows(&self) -> HashMap<Digest, StoredRow> {
        let Some(connection) = &self.connection else {
            return HashMap::new();
        };
        read_rows(connection).unwrap_or_else(|cause| {
            self.failed(cause, "the index can't be read");
            HashMap::new()
        })
    }

    /// Writes verified bundles. A file that changed at or after `settled_before` may be written to
    /// again within the same tick of the file system's clock, and its metadata would not show that.
    /// The row of such a bundle gets no valid checksum.
    pub(crate) fn note(&mut self, rows: &[NewRow], settled_before: (i64, u64)) {
        self.write(|connection| {
            for new in rows {
                let settled = new.stats.iter().all(|stat| stat.changed < settled_before);
                let checksum = new.row.checksum(new.stats.iter().copied().map(Some));
                let checksum = checksum.filter(|_| settled).unwrap_or(Digest::of(b""));
                let Row {
                    name,
                    version,
                    signer,
                    size,
                    parts,
                    paths,
                    texts,
                    sketch,
                } = &new.row;
                connection
                    .prepare_cached(
                        "INSERT OR REPLACE INTO bundles
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                    )?
                    .execute(params![
                        new.hash.as_bytes(),
                        name.as_str(),
                        version.cast_signed(),
                        signer,
                        size.cast_signed(),
                        json_text(parts),
                        json_text(paths),
                        json_text(&texts.agents),
                        json_text(texts),
                        sketch,
                        checksum.as_bytes(),
                    ])?;
            }
            Ok(())
        });
    }

    /// Removes bundles that no longer exist.
    pub(crate) fn forget(&mut self, hashes: &[Digest]) {
        self.write(|connection| {
            let mut delete = connection.prepare("DELETE FROM bundles WHERE hash = ?1")?;
            for hash in hashes {
                delete.execute([hash.as_bytes()])?;
            }
            Ok(())
        });
    }
}

/// All rows; those that do not parse are left out.
fn read_rows(connection: &Connection) -> rusqlite::Result<HashMap<Digest, StoredRow>> {
    let mut statement = connection.prepare(
        "SELECT hash, checksum, name, version, signer, size, parts, paths, agents, texts, sketch
         FROM bundles",
    )?;
    let mut found = statement.query([])?;
    let mut rows = HashMap::new();
    while let Some(stored) = found.next()? {
        if let Some(row) = parse_row(stored)? {
            let checksum = Digest::from_bytes(stored.get(1)?);
            rows.insert(
                Digest::from_bytes(stored.get(0)?),
                StoredRow { row, checksum },
            );
        }
    }
    Ok(rows)
}

/// A row from its columns; `None` if one of them does not parse.
fn parse_row(stored: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Row>> {
    let Some(texts) = parsed::<Texts>(stored, 9)? else {
        return Ok(None);
    };
    let name = stored.get_ref(2)?.as_str()?.parse().ok();
    let agents = parsed(stored, 8)?;
    let (parts, paths) = (parsed(stored, 6)?, parsed(stored, 7)?);
    let (Some(name), Some(agents), Some(parts), Some(paths)) = (name, agents, parts, paths) else {
        return Ok(None);
    };
    Ok(Some(Row {
        name,
        version: stored.get::<_, i64>(3)?.cast_unsigned(),
        signer: stored.get(4)?,
        size: stored.get::<_, i64>(5)?.cast_unsigned(),
        parts,
        paths,
        texts: Texts { agents, ..texts },
        sketch: stored.get(10)?,
    }))
}

/// A column that holds JSON.
fn parsed<T: DeserializeOwned>(
    stored: &rusqlite::Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    Ok(serde_json::from_str(stored.get_ref(column)?.as_str()?).ok())
}

fn json_text(value: &impl Serialize) -> String {
    String::from_utf8(json::to_bytes(value)).unwrap_or_default()
}

enum OpenError {
    Damaged,
    Foreign,
    Unusable(rusqlite::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(cause: rusqlite::Error) -> Self {
        match cause.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged,
            _ => Self::Unusable(cause),
        }
    }
}

fn connect(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(2))?;
    // Use a rollback journal, not WAL, so that a damaged file can be moved aside alone. Nothing is
    // flushed: the index is rebuilt if a power failure damages it.
    connection.pragma_update(None, "journal_mode", "TRUNCATE")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application == APPLICATION && version == VERSION {
        return Ok(connection);
    }
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    if application != APPLICATION && !tables.is_empty() {
        return Err(OpenError::Foreign);
    }
    // Everything in an index of another version can be derived again.
    let drop = |table: &String| format!("DROP TABLE IF EXISTS \"{table}\";");
    let dropped: String = tables.iter().map(drop).collect();
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {dropped} {SCHEMA}
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
    ))?;
    Ok(connection)
}

/// Moves a damaged index aside. It is not deleted, because the path may have been given by mistake.
fn set_aside(path: &Path) -> bool {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    disk::rename(path, Path::new(&aside)).is_ok() && disk::remove_file(Path::new(&journal)).is_ok()
}

#[cfg(test)]
mod tests;
