//! `index.db`: the one cache of a vault. Deleting it makes the next commands slower and changes no
//! result.
//!
//! | table | one row for each |
//! |---|---|
//! | `bundles` | verified bundle: columns for plans and listings, its paths, a checksum |
//! | `texts` | verified bundle: what search and a release's index read |
//! | `sketches`, `bands` | bundle: a sketch of its text, and the numbers to look it up by |
//! | `ranking` | at most one: the ranking of all skills as of the last full search |
//!
//! A checksum covers the columns of a bundle and the metadata (size, times, inode, mode) that each
//! of its paths had when the bundle was last verified. A listing treats a bundle as verified while
//! its checksum matches. Whatever is published, run or shown as verified is read and hashed anyway,
//! so a forged row can hide a change from a listing but adds no trust.

mod sketches;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, params};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vault_skill::gate::similar::Sketch;
use vault_skill::hash::Digest;
use vault_skill::index::IndexEntry;
use vault_skill::json;
use vault_skill::keys::PublicKey;
use vault_skill::name::{ActionName, AgentId, SkillName};

pub(crate) use self::sketches::SketchedSkill;
use crate::disk;
use crate::disk::tree::{DirHandle, FileStat};

/// Identifies the file as an index of vault: "vlt1".
const APPLICATION: i32 = 0x766c_7431;
/// Increase it when the tables change, or the ranking of texts.
const VERSION: i32 = 4;
const SCHEMA: &str = "
    CREATE TABLE bundles (
        hash BLOB PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL, signer TEXT NOT NULL,
        size INTEGER NOT NULL, parts TEXT NOT NULL, agents TEXT NOT NULL, paths TEXT NOT NULL,
        checksum BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE texts (hash BLOB PRIMARY KEY, texts BLOB NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE sketches (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL, sketch BLOB NOT NULL);
    CREATE TABLE bands (key INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (key, id)) WITHOUT ROWID;
    CREATE TABLE ranking (
        id INTEGER PRIMARY KEY CHECK (id = 1), fingerprint BLOB NOT NULL, bundles BLOB NOT NULL,
        packed BLOB NOT NULL, checksum BLOB NOT NULL
    );";

/// Cached facts about a verified bundle.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: SkillName,
    pub(crate) version: u64,
    /// The key that signed the manifest.
    pub(crate) signer: PublicKey,
    /// Size of the bundle object, in bytes.
    pub(crate) size: u64,
    /// Objects that hold the parts of large files, with their sizes in bytes.
    pub(crate) parts: Vec<(Digest, u64)>,
    pub(crate) agents: Vec<AgentId>,
    /// Paths relative to the bundle's folder.
    pub(crate) paths: Vec<String>,
}

impl Row {
    /// Covers every column and the metadata of each path; `None` if the metadata of a path is
    /// missing.
    fn checksum(&self, stats: impl Iterator<Item = Option<FileStat>>) -> Option<Digest> {
        let mut bytes = json::to_bytes(self);
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
    pub(crate) texts: Texts,
    /// The metadata of each of the row's paths at the time its bytes were read.
    pub(crate) stats: Vec<FileStat>,
    pub(crate) sketch: Sketch,
}

/// A row as stored. It is valid only while its checksum matches.
#[derive(Debug)]
pub(crate) struct StoredRow {
    row: Row,
    checksum: Digest,
}

impl StoredRow {
    /// The row, if it belongs to a skill of this name, one of these keys signed it, and no file of
    /// the bundle was written to since it was verified. `store` is the folder of bundles.
    pub(crate) fn current(
        &self,
        store: &DirHandle,
        hash: &Digest,
        name: &SkillName,
        signers: &[PublicKey],
    ) -> Option<&Row> {
        if self.row.name != *name || !signers.contains(&self.row.signer) {
            return None;
        }
        let stats = self.row.paths.iter();
        let stats = stats.map(|path| store.stat(format!("{hash}/{path}").as_bytes()));
        (self.row.checksum(stats) == Some(self.checksum)).then_some(&self.row)
    }
}

/// The ranking of all skills for one state of the vault.
#[derive(Clone, Debug)]
pub(crate) struct StoredRanking {
    /// The hashes of the bundles, 32 bytes each, in the order of the ranking.
    pub(crate) bundles: Vec<u8>,
    /// The ranking in the encoding of [`vault_skill::search::Ranking::to_bytes`].
    pub(crate) packed: Vec<u8>,
}

impl StoredRanking {
    fn checksum(&self, fingerprint: &Digest) -> Digest {
        Digest::of(&[fingerprint.as_bytes(), &self.bundles[..], &self.packed].concat())
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

    /// Reads from the index; gives the default value if there is no index or it can't be read.
    fn read<T: Default>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> T {
        let Some(connection) = &self.connection else {
            return T::default();
        };
        read(connection).unwrap_or_else(|cause| {
            self.failed(cause, "the index can't be read");
            T::default()
        })
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

    /// All rows, by bundle.
    pub(crate) fn rows(&self) -> HashMap<Digest, StoredRow> {
        self.read(read_rows)
    }

    /// The target agents of each bundle.
    pub(crate) fn agents(&self) -> HashMap<Digest, Vec<AgentId>> {
        self.read(|connection| {
            let mut statement = connection.prepare("SELECT hash, agents FROM bundles")?;
            let rows = statement.query_map([], |row| Ok((digest(row, 0)?, from_json(row, 1)?)))?;
            rows.collect()
        })
    }

    /// The texts of all bundles. Texts are published, so those whose checksum does not match are
    /// left out.
    pub(crate) fn texts(&self) -> HashMap<Digest, Texts> {
        self.read(|connection| {
            let mut statement = connection.prepare("SELECT hash, texts, checksum FROM texts")?;
            let mut found = statement.query([])?;
            let mut all = HashMap::new();
            while let Some(row) = found.next()? {
                let bytes = row.get_ref(1)?.as_blob()?;
                if Digest::of(bytes) == digest(row, 2)?
                    && let Ok(texts) = json::parse(bytes)
                {
                    all.insert(digest(row, 0)?, texts);
                }
            }
            Ok(all)
        })
    }

    /// The recorded version of a bundle, unverified; 0 if it is unknown.
    pub(crate) fn version(&self, hash: &Digest) -> u64 {
        self.read(|connection| {
            connection
                .prepare("SELECT version FROM bundles WHERE hash = ?1")?
                .query_row([hash.as_bytes()], |row| row.get::<_, i64>(0))
                .optional()
        })
        .map_or(0, i64::cast_unsigned)
    }

    /// Writes verified bundles. A file that changed at or after `settled_before` may be written to
    /// again within the same tick of the file system's clock, and its metadata would not show that.
    /// The row of such a bundle is left out.
    pub(crate) fn note(&mut self, rows: &[NewRow], settled_before: (i64, u64)) {
        self.write(|connection| {
            for new in rows {
                let bytes = json::to_bytes(&new.texts);
                connection
                    .prepare_cached("INSERT OR REPLACE INTO texts VALUES (?1, ?2, ?3)")?
                    .execute(params![
                        new.hash.as_bytes(),
                        bytes,
                        Digest::of(&bytes).as_bytes()
                    ])?;
                sketches::write(connection, &new.hash, new.row.name.as_str(), &new.sketch)?;
                if new.stats.iter().all(|stat| stat.changed < settled_before) {
                    write_row(connection, new)?;
                }
            }
            Ok(())
        });
    }

    /// The ranking of the vault state with this fingerprint.
    pub(crate) fn ranking(&self, fingerprint: &Digest) -> Option<StoredRanking> {
        let noted = self.read(|connection| {
            connection
                .prepare("SELECT bundles, packed, checksum FROM ranking WHERE fingerprint = ?1")?
                .query_row([fingerprint.as_bytes()], |row| {
                    let (bundles, packed) = (row.get(0)?, row.get(1)?);
                    Ok((StoredRanking { bundles, packed }, digest(row, 2)?))
                })
                .optional()
        });
        let (ranking, checksum) = noted?;
        (ranking.checksum(fingerprint) == checksum).then_some(ranking)
    }

    /// Writes the ranking of a vault state; it replaces the previous ranking.
    pub(crate) fn note_ranking(&mut self, fingerprint: &Digest, ranking: &StoredRanking) {
        self.write(|connection| {
            connection
                .prepare("INSERT OR REPLACE INTO ranking VALUES (1, ?1, ?2, ?3, ?4)")?
                .execute(params![
                    fingerprint.as_bytes(),
                    ranking.bundles,
                    ranking.packed,
                    ranking.checksum(fingerprint).as_bytes()
                ])?;
            Ok(())
        });
    }

    /// Removes bundles that no longer exist.
    pub(crate) fn forget(&mut self, hashes: &[Digest]) {
        self.write(|connection| {
            for hash in hashes {
                for table in ["bundles", "texts"] {
                    connection
                        .prepare_cached(&format!("DELETE FROM {table} WHERE hash = ?1"))?
                        .execute([hash.as_bytes()])?;
                }
                sketches::forget(connection, hash)?;
            }
            Ok(())
        });
    }
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
    let dropped: Vec<String> = tables
        .iter()
        .map(|table| format!("DROP TABLE IF EXISTS \"{table}\";"))
        .collect();
    let dropped = dropped.concat();
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

/// Reads all rows. A row that does not parse is left out; its bundle is then verified and written
/// again.
fn read_rows(connection: &Connection) -> rusqlite::Result<HashMap<Digest, StoredRow>> {
    let mut statement = connection.prepare(
        "SELECT hash, name, version, signer, size, parts, agents, paths, checksum FROM bundles",
    )?;
    let mut found = statement.query([])?;
    // Parsing a key checks that it is a point on the curve. Do this once for each key, not for each
    // row.
    let mut signers = HashMap::new();
    let mut rows = HashMap::new();
    while let Some(row) = found.next()? {
        let text: String = row.get(3)?;
        let signer: Option<PublicKey> = *signers
            .entry(text)
            .or_insert_with_key(|text: &String| text.parse().ok());
        let name: Option<SkillName> = row.get_ref(1)?.as_str()?.parse().ok();
        if let (Some(name), Some(signer)) = (name, signer) {
            let stored = StoredRow {
                row: Row {
                    name,
                    version: row.get::<_, i64>(2)?.cast_unsigned(),
                    signer,
                    size: row.get::<_, i64>(4)?.cast_unsigned(),
                    parts: from_json(row, 5)?,
                    agents: from_json(row, 6)?,
                    paths: from_json(row, 7)?,
                },
                checksum: digest(row, 8)?,
            };
            rows.insert(digest(row, 0)?, stored);
        }
    }
    Ok(rows)
}

fn write_row(connection: &Connection, new: &NewRow) -> rusqlite::Result<()> {
    let row = &new.row;
    let Some(checksum) = row.checksum(new.stats.iter().copied().map(Some)) else {
        return Ok(());
    };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO bundles VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            new.hash.as_bytes(),
            row.name.as_str(),
            row.version.cast_signed(),
            row.signer.to_string(),
            row.size.cast_signed(),
            to_json(&row.parts),
            to_json(&row.agents),
            to_json(&row.paths),
            checksum.as_bytes()
        ])?;
    Ok(())
}

fn digest(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Digest> {
    row.get(column).map(Digest::from_bytes)
}

/// Parses a column that holds a list. If it does not parse, it reads as empty, and the row's
/// checksum does not match.
fn from_json<T: DeserializeOwned + Default>(
    row: &rusqlite::Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    Ok(serde_json::from_str(text).unwrap_or_default())
}

fn to_json<T: Serialize>(list: &T) -> String {
    String::from_utf8_lossy(&json::to_bytes(list)).into_owned()
}

#[cfg(test)]
mod tests;
