//! `index.db`: a cache of what verification found in each bundle of a vault. Deleting it makes the
//! next commands slower and changes no result.
//!
//! It has one row for each verified bundle. A row ends with a seal: an HMAC over its other columns,
//! with a random key from the trust folder. A row without a valid seal is not read, and its bundle
//! is verified again. So everything that is published or shown to agents from the index was
//! verified, even if another program can write to the file.
//!
//! A row also contains a digest of the metadata (size, times, inode, mode) of each of the bundle's
//! paths, as it was when the bundle was verified. As long as the metadata is the same, a listing
//! treats the bundle as verified.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::json;
use vault_format::keys::PublicKey;
use vault_format::manifest::Manifest;
use vault_format::name::{ActionName, AgentId, SkillName};
use vault_gate::derived;
use vault_gate::document::Frontmatter;

use crate::disk::tree::{self, FileStat};
use crate::disk::{self, HeldPath, Kind};
use crate::store::{self, Trusted};
use crate::vault::Vault;
use crate::vault::seal::SealKey;

/// Number in the file's header that identifies an index of vault: "vlt1".
const APPLICATION: i32 = 0x766c_7431;
/// Version of the table. Increase it when the table or the content of its rows changes; an index of
/// another version is built anew.
const VERSION: i32 = 7;
/// Table of the index. Lists are JSON arrays; `texts` is a JSON object without the agents.
/// `metadata` is empty if a file was changed just before it was read.
const SCHEMA: &str = "
    CREATE TABLE bundles (hash BLOB PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL,
        signer TEXT NOT NULL, size INTEGER NOT NULL, parts TEXT NOT NULL, paths TEXT NOT NULL,
        agents TEXT NOT NULL, texts TEXT NOT NULL, sketch BLOB NOT NULL, metadata BLOB NOT NULL,
        seal BLOB NOT NULL)
        WITHOUT ROWID;";
/// Number of columns that the seal covers, which are all but the seal itself.
const SEALED: usize = 11;

/// The facts about a verified bundle that the index stores.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct IndexRow {
    pub(crate) name: SkillName,
    pub(crate) version: u64,
    /// Key that signed the manifest, as text, because parsing a key costs more than the rest of a
    /// row.
    pub(crate) signer: String,
    /// Size of the bundle object, in bytes.
    pub(crate) size: u64,
    /// Objects that contain the parts of a large bundle, with their sizes in bytes.
    pub(crate) parts: Vec<(Digest, u64)>,
    /// Paths of the bundle's entries, relative to its folder.
    pub(crate) paths: Vec<String>,
    pub(crate) texts: Texts,
    /// The [`vault_gate::similar::Sketch`] of its files, a summary from which similarity is
    /// computed. It only selects the skills that a new skill is compared with.
    pub(crate) sketch: Vec<u8>,
}

/// Returns a digest of the metadata of paths; `None` if the metadata of one of them is missing.
fn digest_metadata(stats: impl Iterator<Item = Option<FileStat>>) -> Option<Digest> {
    let mut bytes = Vec::new();
    for stat in stats {
        stat?.append_to(&mut bytes);
    }
    Some(Digest::of(&bytes))
}

/// Returns the seal over columns, which covers their types and lengths too.
fn compute_seal<'a>(key: &SealKey, columns: impl Iterator<Item = ValueRef<'a>>) -> Hmac<Sha256> {
    let mut seal =
        Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of every length");
    // Type and length come first, so that no two lists of columns give the same bytes.
    let mut add = |kind: u8, bytes: &[u8]| {
        seal.update(&[kind]);
        seal.update(&(bytes.len() as u64).to_le_bytes());
        seal.update(bytes);
    };
    for column in columns {
        match column {
            ValueRef::Null => add(0, &[]),
            ValueRef::Integer(number) => add(1, &number.to_le_bytes()),
            ValueRef::Real(number) => add(2, &number.to_le_bytes()),
            ValueRef::Text(bytes) => add(3, bytes),
            ValueRef::Blob(bytes) => add(4, bytes),
        }
    }
    seal
}

/// The texts of a skill that search reads and that a release's index contains.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Texts {
    /// Description in the frontmatter of SKILL.md.
    pub description: String,
    /// Tags in the frontmatter; empty if there are none.
    pub tags: Vec<String>,
    /// Categories in the frontmatter; empty if there are none.
    pub categories: Vec<String>,
    /// Situations in which to use the skill, from the frontmatter; empty if not stated.
    pub when_to_use: String,
    /// Target agents, from the manifest.
    #[serde(skip)] // a column of its own in the index
    pub agents: Vec<AgentId>,
    /// Names of the actions (programs) that the skill declares.
    pub actions: Vec<ActionName>,
    /// The recorded source identifier; not part of a release's index.
    pub provenance: String,
}

impl Texts {
    /// Returns the texts in a manifest and its frontmatter.
    pub(crate) fn from_manifest(
        manifest: &Manifest,
        frontmatter: Option<&Frontmatter>,
        hash: Digest,
    ) -> Self {
        let entry = derived::index_entry(manifest, frontmatter, hash);
        Self {
            description: entry.description,
            tags: entry.tags,
            categories: entry.categories,
            when_to_use: entry.when_to_use,
            agents: entry.agents,
            actions: entry.actions,
            provenance: manifest.provenance.identifier.to_string(),
        }
    }

    /// Turns the texts into an entry of a release's index.
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

/// A bundle that was verified just now and is to be written to the index.
#[derive(Clone, Debug)]
pub(crate) struct NewIndexRow {
    pub(crate) hash: Digest,
    pub(crate) row: IndexRow,
    /// Metadata of each path in `row`, as it was when the bytes were read.
    pub(crate) stats: Vec<FileStat>,
}

/// A row with a valid seal: what verification found when it last read the bundle.
#[derive(Debug)]
pub(crate) struct StoredRow {
    /// The row as it was written. The bundle may have changed since.
    pub(crate) row: IndexRow,
    /// Digest of the metadata at that time; `None` if a file was changed just before.
    metadata: Option<Digest>,
}

impl StoredRow {
    /// Returns whether the row belongs to a skill of this name, its signer is still accepted, and
    /// its version is not too old. Does not tell whether the skill's files are unchanged.
    pub(crate) fn is_of(&self, hash: &Digest, name: &SkillName, trusted: &Trusted) -> bool {
        // After the row was written, the signer may have been revoked, or the version replaced.
        let signer: Option<PublicKey> = self.row.signer.parse().ok();
        let lowest = trusted.lowest_accepted_version(name).unwrap_or(0);
        self.row.name == *name
            && signer.is_some_and(|key| trusted.accepts_signer(&key, hash))
            && self.row.version >= lowest
    }

    /// Returns the row if [`Self::is_of`] accepts it and no file of the bundle was written to since
    /// it was verified. `store` is the folder of all bundles.
    pub(crate) fn current_row(
        &self,
        store: &HeldPath,
        hash: &Digest,
        name: &SkillName,
        trusted: &Trusted,
    ) -> Option<&IndexRow> {
        if !self.is_of(hash, name, trusted) {
            return None;
        }
        let folder = store::bundle_folder(store, hash);
        let stats = self.row.paths.iter();
        let stats = stats.map(|path| tree::file_stat(&folder.join(path)));
        (self.metadata.is_some() && digest_metadata(stats) == self.metadata).then_some(&self.row)
    }
}

/// The open index. If its file can't be used, it reads as empty and writes do nothing.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    connection: Option<Connection>,
    key: SealKey,
}

impl Index {
    /// Opens the index of a vault, and creates or rebuilds it if necessary. Never fails, because
    /// commands work without an index, only slower. Without a key for the seals, the index stays
    /// empty.
    pub(crate) fn open(vault: &Vault) -> Self {
        let path = vault.paths().index_path();
        match vault.seal_key() {
            Ok(Some(key)) => Self::open_at(&path, key),
            missing => {
                if let Err(cause) = missing {
                    tracing::warn!(%cause, "continuing without an index");
                }
                Self {
                    path,
                    connection: None,
                    key: SealKey::default(),
                }
            }
        }
    }

    fn open_at(path: &Path, key: SealKey) -> Self {
        let connection = match open_database(path) {
            Ok(connection) => Some(connection),
            Err(OpenError::Foreign) => {
                tracing::warn!(path = %path.display(), "the index path names another program's database; continuing without an index");
                None
            }
            Err(OpenError::Damaged) => {
                tracing::warn!(path = %path.display(), "the index is damaged and is rebuilt");
                set_aside(path).then(|| open_database(path).ok()).flatten()
            }
            Err(OpenError::NoFile(path)) => {
                tracing::warn!(path = %path.display(), "this is not a regular file; continuing without an index");
                None
            }
            Err(OpenError::Unusable(cause)) => {
                tracing::warn!(path = %path.display(), %cause, "continuing without an index");
                None
            }
        };
        Self {
            path: path.to_owned(),
            connection,
            key,
        }
    }

    /// Writes to the index in one transaction. A failure is only logged, because it makes later
    /// commands slower and has no other effect.
    fn run_transaction(
        &mut self,
        write: impl FnOnce(&Connection, &SealKey) -> rusqlite::Result<()>,
    ) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let written = connection.transaction().and_then(|transaction| {
            write(&transaction, &self.key)?;
            transaction.commit()
        });
        if let Err(cause) = written {
            self.report_failure(cause, "the index can't be written");
        }
    }

    /// Logs a failure. Moves a damaged file aside, so that the next command creates a new one.
    fn report_failure(&self, cause: rusqlite::Error, what: &str) {
        tracing::warn!(%cause, "{what}");
        if matches!(OpenError::from(cause), OpenError::Damaged) {
            set_aside(&self.path);
        }
    }

    /// Reads all rows, by bundle. Leaves out rows without a valid seal, whose bundles are then
    /// verified and written again.
    pub(crate) fn load_rows(&self) -> HashMap<Digest, StoredRow> {
        let Some(connection) = &self.connection else {
            return HashMap::new();
        };
        read_rows(connection, &self.key).unwrap_or_else(|cause| {
            self.report_failure(cause, "the index can't be read");
            HashMap::new()
        })
    }

    /// Writes verified bundles. If a file was changed at or after `settled_before`, a later write
    /// within the same tick of the file system's clock would not show in its metadata. The row of
    /// such a bundle gets no metadata, so that it is verified again.
    pub(crate) fn insert_rows(&mut self, rows: &[NewIndexRow], settled_before: (i64, u64)) {
        self.run_transaction(|connection, key| {
            let mut insert = connection.prepare_cached(
                "INSERT OR REPLACE INTO bundles
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?;
            for new in rows {
                let settled = new.stats.iter().all(|stat| stat.changed < settled_before);
                let metadata = digest_metadata(new.stats.iter().copied().map(Some));
                let columns = sealed_columns(new, metadata.filter(|_| settled));
                let seal = compute_seal(key, columns.iter().map(ValueRef::from)).finalize();
                let seal = Value::Blob(seal.into_bytes().to_vec());
                insert.execute(params_from_iter(columns.into_iter().chain([seal])))?;
            }
            Ok(())
        });
    }

    /// Removes the rows of bundles that no longer exist.
    pub(crate) fn remove_rows(&mut self, hashes: &[Digest]) {
        self.run_transaction(|connection, _| {
            let mut delete = connection.prepare("DELETE FROM bundles WHERE hash = ?1")?;
            for hash in hashes {
                delete.execute([hash.as_bytes()])?;
            }
            Ok(())
        });
    }
}

/// Returns the columns of a row that the seal covers, in the order of the table.
fn sealed_columns(new: &NewIndexRow, metadata: Option<Digest>) -> [Value; SEALED] {
    let IndexRow {
        name,
        version,
        signer,
        size,
        parts,
        paths,
        texts,
        sketch,
    } = &new.row;
    [
        Value::Blob(new.hash.as_bytes().to_vec()),
        Value::Text(name.to_string()),
        Value::Integer(version.cast_signed()),
        Value::Text(signer.clone()),
        Value::Integer(size.cast_signed()),
        json_text(parts),
        json_text(paths),
        json_text(&texts.agents),
        json_text(texts),
        Value::Blob(sketch.clone()),
        Value::Blob(metadata.map_or_else(Vec::new, |digest| digest.as_bytes().to_vec())),
    ]
}

/// Reads all rows with a valid seal.
fn read_rows(
    connection: &Connection,
    key: &SealKey,
) -> rusqlite::Result<HashMap<Digest, StoredRow>> {
    let mut statement = connection.prepare(
        "SELECT hash, name, version, signer, size, parts, paths, agents, texts, sketch, metadata,
         seal FROM bundles",
    )?;
    let mut stored_rows = statement.query([])?;
    let mut rows = HashMap::new();
    while let Some(stored) = stored_rows.next()? {
        let columns = (0..SEALED).map(|column| stored.get_ref(column));
        let columns = columns.collect::<rusqlite::Result<Vec<_>>>()?;
        let given = stored.get_ref(SEALED)?;
        let given = given.as_blob().unwrap_or_default();
        // Without this check, a program that can write to the vault's folder could forge texts that
        // agents and releases show.
        if compute_seal(key, columns.into_iter())
            .verify_slice(given)
            .is_err()
        {
            continue;
        }
        if let Some(row) = parse_row(stored)? {
            // The seal covers the column, so it is either empty or a whole digest.
            let metadata = stored.get_ref(10)?.as_blob()?.try_into().ok();
            rows.insert(
                Digest::from_bytes(stored.get(0)?),
                StoredRow {
                    row,
                    metadata: metadata.map(Digest::from_bytes),
                },
            );
        }
    }
    Ok(rows)
}

/// Parses a row from its columns; `None` if one of them does not parse.
fn parse_row(stored: &rusqlite::Row<'_>) -> rusqlite::Result<Option<IndexRow>> {
    let Some(texts) = parse_column::<Texts>(stored, 8)? else {
        return Ok(None);
    };
    let name = stored.get_ref(1)?.as_str()?.parse().ok();
    let agents = parse_column(stored, 7)?;
    let (parts, paths) = (parse_column(stored, 5)?, parse_column(stored, 6)?);
    let (Some(name), Some(agents), Some(parts), Some(paths)) = (name, agents, parts, paths) else {
        return Ok(None);
    };
    Ok(Some(IndexRow {
        name,
        version: stored.get::<_, i64>(2)?.cast_unsigned(),
        signer: stored.get(3)?,
        size: stored.get::<_, i64>(4)?.cast_unsigned(),
        parts,
        paths,
        texts: Texts { agents, ..texts },
        sketch: stored.get(9)?,
    }))
}

/// Parses a column that holds JSON; `None` if it does not parse.
fn parse_column<T: DeserializeOwned>(
    stored: &rusqlite::Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    Ok(serde_json::from_str(stored.get_ref(column)?.as_str()?).ok())
}

fn json_text(value: &impl Serialize) -> Value {
    Value::Text(String::from_utf8(json::to_bytes(value)).unwrap_or_default())
}

/// The reason for not opening the index's file.
enum OpenError {
    Damaged,
    Foreign,
    /// A link or something else that is not a regular file is at this path.
    NoFile(PathBuf),
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

/// Fails if SQLite would read or write anything but a regular file. Through a link it would create
/// a file elsewhere, and opening a FIFO would block forever.
fn check_files(path: &Path) -> Result<(), OpenError> {
    for path in [path.to_owned(), journal_path(path)] {
        match disk::kind_at(&path) {
            Ok(None | Some(Kind::File)) => {}
            _ => return Err(OpenError::NoFile(path)),
        }
    }
    Ok(())
}

/// Returns the path of SQLite's rollback journal.
fn journal_path(path: &Path) -> PathBuf {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    journal.into()
}

fn open_database(path: &Path) -> Result<Connection, OpenError> {
    check_files(path)?;
    // SQLite would create the file with the mode of the umask, so that others could read the
    // descriptions of all skills. The journal gets the mode of the file.
    if matches!(disk::kind_at(path), Ok(None)) {
        let _sqlite_says_why = disk::make_private(path);
    }
    // A link may have taken the place of the file since the check. With the flag NOFOLLOW, SQLite
    // rejects every link in the path, so resolve the user's own links above the file first.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(in_real_folder(path), flags)?;
    // Another command may be writing. If that takes longer, this command works without the index.
    connection.busy_timeout(Duration::from_secs(2))?;
    // Use a rollback journal, not WAL, so that a damaged file can be moved aside alone. Do not
    // flush, because the index is rebuilt if a power failure damages it.
    connection.pragma_update(None, "journal_mode", "TRUNCATE")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application == APPLICATION {
        // An earlier version of this program left the mode to the umask.
        for file in [path.to_owned(), journal_path(path)] {
            if matches!(disk::kind_at(&file), Ok(Some(Kind::File))) {
                let _best_effort = disk::make_private(&file);
            }
        }
    }
    if application == APPLICATION && version == VERSION {
        return Ok(connection);
    }
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    // Do not drop the tables of another program's database.
    if application != APPLICATION && !tables.is_empty() {
        return Err(OpenError::Foreign);
    }
    // Everything in an index can be derived again, so drop one of another version.
    let drop = |table: &String| format!("DROP TABLE IF EXISTS \"{table}\";");
    let dropped: String = tables.iter().map(drop).collect();
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {dropped} {SCHEMA}
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
    ))?;
    Ok(connection)
}

/// Returns the path with all symbolic links above the file resolved.
fn in_real_folder(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let named = disk::resolve(folder).ok().zip(path.file_name());
    named.map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

/// Moves a damaged index aside. Does not delete it, because the path may have been given by
/// mistake.
fn set_aside(path: &Path) -> bool {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    // If the journal stayed, SQLite would apply it to the next database of this name.
    disk::rename(path, Path::new(&aside)).is_ok() && disk::remove_file(&journal_path(path)).is_ok()
}

#[cfg(test)]
mod tests;
