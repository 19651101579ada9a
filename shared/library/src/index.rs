//! `index.db`: what makes a look at an unchanged vault cheap. It can be rebuilt at any time, and is when it is damaged.
//!
//! For each bundle one row: what the release plan needs, the paths below its folder, and a seal, the SHA-256 of the row
//! and of what a look at each path said (size, times, inode, mode) when the bundle was last verified. A skill whose
//! seal holds is taken as verified; everything that is published, run or shown as verified is read and hashed anyway,
//! so a forged row can hide a change from a listing but puts no byte anywhere.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use vault_skill::gate::similar::Sketch;
use vault_skill::hash::Digest;
use vault_skill::json;
use vault_skill::keys::PublicKey;
use vault_skill::name::{ActionName, AgentId, SkillName};

use crate::disk;
use crate::disk::tree::{Facts, Looker};

/// Marks the file as ours: "vlt1".
const APPLICATION: i32 = 0x766c_7431;
const VERSION: i32 = 3;
/// The line of a row's text that names the target agents; those after it are paths.
const AGENTS_LINE: usize = 5;

/// What is known of a verified bundle.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: SkillName,
    pub(crate) version: u64,
    /// Who signed the manifest.
    pub(crate) signer: PublicKey,
    /// Bytes of the bundle object.
    pub(crate) size: u64,
    /// Objects for the parts of large files, with their sizes.
    pub(crate) parts: Vec<(Digest, u64)>,
    pub(crate) agents: Vec<AgentId>,
    paths: Vec<String>,
}

/// What search reads of a skill, and what a release's index says of it.
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

/// A bundle to be noted.
#[derive(Clone, Debug)]
pub(crate) struct NewRow {
    pub(crate) hash: Digest,
    pub(crate) row: Row,
    pub(crate) texts: Texts,
    pub(crate) facts: Vec<Facts>,
    pub(crate) sketch: Sketch,
}

/// What the text of a bundle is like. Without proof: it decides what is compared, never what is believed.
#[derive(Clone, Debug)]
pub(crate) struct Sketched {
    pub(crate) hash: Digest,
    pub(crate) name: String,
    pub(crate) sketch: Sketch,
}

impl Row {
    pub(crate) fn new(
        name: SkillName,
        version: u64,
        signer: PublicKey,
        (size, parts): (u64, Vec<(Digest, u64)>),
        agents: Vec<AgentId>,
        paths: Vec<String>,
    ) -> Self {
        Self {
            name,
            version,
            signer,
            size,
            parts,
            agents,
            paths,
        }
    }

    /// One line each; nothing in them holds a line feed.
    fn to_text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!(
            "{}\n{}\n{}\n{}\n",
            self.name, self.version, self.signer, self.size
        );
        for (hash, size) in &self.parts {
            let _infallible = write!(text, "{hash} {size} ");
        }
        text.push('\n');
        for agent in &self.agents {
            let _infallible = write!(text, "{agent} ");
        }
        for path in &self.paths {
            text.push('\n');
            text.push_str(path);
        }
        text
    }
}

/// A row as stored: parsed only as far as it is needed.
#[derive(Debug)]
pub(crate) struct StoredRow {
    text: String,
    seal: [u8; 32],
}

impl StoredRow {
    /// Whether a look at every path says what it said when the bundle was verified. `buffers` are reused.
    pub(crate) fn holds(&self, looker: &Looker, hash: &str, buffers: &mut Buffers) -> bool {
        buffers.seal.clear();
        buffers.seal.extend_from_slice(self.text.as_bytes());
        for path in self.text.split('\n').skip(AGENTS_LINE + 1) {
            buffers.path.clear();
            buffers.path.extend_from_slice(hash.as_bytes());
            buffers.path.push(b'/');
            buffers.path.extend_from_slice(path.as_bytes());
            let Some(facts) = looker.look(&buffers.path) else {
                return false;
            };
            facts.append_to(&mut buffers.seal);
        }
        Digest::of(&buffers.seal).as_bytes() == &self.seal
    }

    /// The row, `None` when it is not one of ours.
    pub(crate) fn parse(&self) -> Option<Row> {
        let mut lines = self.text.split('\n');
        let name = lines.next()?.parse().ok()?;
        let version = lines.next()?.parse().ok()?;
        let signer = lines.next()?;
        let size = lines.next()?.parse().ok()?;
        let mut words = lines.next()?.split_terminator(' ');
        let mut parts = Vec::new();
        while let Some(hash) = words.next() {
            parts.push((hash.parse().ok()?, words.next()?.parse().ok()?));
        }
        let agents = lines
            .next()?
            .split_terminator(' ')
            .map(|agent| agent.parse().ok())
            .collect::<Option<_>>()?;
        Some(Row {
            name,
            version,
            signer: signer.parse().ok()?,
            size,
            parts,
            agents,
            paths: lines.map(str::to_owned).collect(),
        })
    }

    /// The text of the signer's key, without the cost of checking that it is a point.
    pub(crate) fn signer(&self) -> &str {
        self.text.split('\n').nth(2).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.text.split('\n').next().unwrap_or_default()
    }
}

/// Scratch space for [`StoredRow::holds`].
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    seal: Vec<u8>,
    path: Vec<u8>,
}

/// The index. Without a usable file it answers "nothing known" and notes nothing.
#[derive(Debug)]
pub(crate) struct Index {
    connection: Option<Connection>,
}

impl Index {
    /// Opens the index, making or rebuilding it where needed. Never fails: the index only saves work.
    pub(crate) fn open(path: &Path) -> Self {
        let connection = match connect(path) {
            Ok(connection) => Some(connection),
            Err(Trouble::Foreign) => {
                tracing::warn!(path = %path.display(), "the index path names another program's database; going without an index");
                None
            }
            Err(Trouble::Damaged) => {
                tracing::warn!(path = %path.display(), "the index is damaged and is rebuilt");
                set_aside(path).then(|| connect(path).ok()).flatten()
            }
            Err(Trouble::Unusable(cause)) => {
                tracing::warn!(path = %path.display(), %cause, "going without an index");
                None
            }
        };
        Self { connection }
    }

    /// What is read from the index; nothing where there is none, or where it can't be read.
    fn read<T: Default>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> T {
        let Some(connection) = &self.connection else {
            return T::default();
        };
        read(connection).unwrap_or_else(|cause| {
            tracing::warn!(%cause, "the index can't be read");
            T::default()
        })
    }

    /// All rows by bundle.
    pub(crate) fn rows(&self) -> HashMap<Digest, StoredRow> {
        self.read(read_rows)
    }

    /// The target agents of each bundle.
    pub(crate) fn agents(&self) -> HashMap<Digest, Vec<AgentId>> {
        self.read(read_agents)
    }

    /// The texts of these bundles, as far as they are known.
    pub(crate) fn texts(&self) -> HashMap<Digest, Texts> {
        self.read(read_texts)
    }

    /// Notes verified bundles. Those written to a moment ago are left out: a later write within the same tick of the
    /// file system's clock would not show.
    pub(crate) fn note(&mut self, rows: &[NewRow], settled_before: (i64, u64)) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Err(cause) = write_rows(connection, rows, settled_before) {
            tracing::warn!(%cause, "the index can't be written");
        }
    }

    /// The noted skills that this one may be like: few, however many there are.
    pub(crate) fn sketches_near(&self, sketch: &Sketch) -> Vec<Sketched> {
        self.read(|connection| read_near(connection, sketch))
    }

    /// What the noted skills are like, of those that have enough text, in the order in which they were noted.
    pub(crate) fn sketches(&self) -> Vec<Sketched> {
        self.read(read_sketches)
    }

    /// Notes what skills are like that were just admitted.
    pub(crate) fn note_sketches(&mut self, all: &[Sketched]) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let noted = connection.transaction().and_then(|transaction| {
            for new in all {
                write_sketch(&transaction, &new.hash, &new.name, &new.sketch)?;
            }
            transaction.commit()
        });
        if let Err(cause) = noted {
            tracing::warn!(%cause, "the index can't be written");
        }
    }

    /// The version of a bundle as noted, without proof; 0 when it is not known.
    pub(crate) fn version(&self, hash: &Digest) -> u64 {
        self.connection
            .as_ref()
            .and_then(|connection| {
                connection
                    .query_row(
                        "SELECT row FROM bundles WHERE hash = ?1",
                        [hash.as_bytes()],
                        |row| row.get::<_, String>(0),
                    )
                    .ok()
            })
            .and_then(|text| text.split('\n').nth(1)?.parse().ok())
            .unwrap_or(0)
    }

    /// Forgets bundles that are gone.
    pub(crate) fn forget(&mut self, hashes: &[Digest]) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let forgotten = connection.transaction().and_then(|transaction| {
            for hash in hashes {
                transaction.execute("DELETE FROM bundles WHERE hash = ?1", [hash.as_bytes()])?;
                transaction.execute("DELETE FROM texts WHERE hash = ?1", [hash.as_bytes()])?;
                forget_sketch(&transaction, hash)?;
            }
            transaction.commit()
        });
        if let Err(cause) = forgotten {
            tracing::warn!(%cause, "the index can't be written");
        }
    }
}

enum Trouble {
    Damaged,
    Foreign,
    Unusable(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(cause: rusqlite::Error) -> Self {
        match cause.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged,
            _ => Self::Unusable(cause),
        }
    }
}

fn connect(path: &Path) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(2))?;
    // A rollback journal, not WAL: a damaged file can then be put aside without a second file that belongs to it.
    // Nothing is flushed: after a power cut the seals fail and the index is rebuilt.
    connection.pragma_update(None, "journal_mode", "TRUNCATE")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application == APPLICATION && version == VERSION {
        return Ok(connection);
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION && tables > 0 {
        return Err(Trouble::Foreign);
    }
    // An index of another version holds nothing that can't be made again.
    connection.execute_batch(
        "BEGIN IMMEDIATE;
         DROP TABLE IF EXISTS bundles; DROP TABLE IF EXISTS texts; DROP TABLE IF EXISTS sketches;
         DROP TABLE IF EXISTS bands;
         CREATE TABLE bundles (hash BLOB PRIMARY KEY, row TEXT NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
         CREATE TABLE texts (hash BLOB PRIMARY KEY, texts BLOB NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
         CREATE TABLE sketches (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL, sketch BLOB NOT NULL);
         CREATE TABLE bands (key INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (key, id)) WITHOUT ROWID;
         PRAGMA application_id = 1986819121;
         PRAGMA user_version = 3;
         COMMIT;",
    )?;
    Ok(connection)
}

/// Moves a damaged index out of the way; it is not deleted, since the path may have been given by mistake.
fn set_aside(path: &Path) -> bool {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    disk::rename(path, Path::new(&aside)).is_ok() && disk::remove_file(Path::new(&journal)).is_ok()
}

fn read_rows(connection: &Connection) -> rusqlite::Result<HashMap<Digest, StoredRow>> {
    let mut statement = connection.prepare("SELECT hash, row, seal FROM bundles")?;
    let mut found = statement.query([])?;
    let mut rows = HashMap::new();
    while let Some(row) = found.next()? {
        let stored = StoredRow {
            text: row.get(1)?,
            seal: row.get(2)?,
        };
        rows.insert(Digest::from_bytes(row.get(0)?), stored);
    }
    Ok(rows)
}

fn read_agents(connection: &Connection) -> rusqlite::Result<HashMap<Digest, Vec<AgentId>>> {
    let mut statement = connection.prepare("SELECT hash, row FROM bundles")?;
    let mut found = statement.query([])?;
    let mut all = HashMap::new();
    while let Some(row) = found.next()? {
        let line = row.get_ref(1)?.as_str()?.split('\n').nth(AGENTS_LINE);
        let agents = line.unwrap_or_default().split_terminator(' ');
        let agents = agents.filter_map(|agent| agent.parse().ok()).collect();
        all.insert(Digest::from_bytes(row.get(0)?), agents);
    }
    Ok(all)
}

fn read_texts(connection: &Connection) -> rusqlite::Result<HashMap<Digest, Texts>> {
    let mut statement = connection.prepare("SELECT hash, texts, seal FROM texts")?;
    let mut found = statement.query([])?;
    let mut all = HashMap::new();
    while let Some(row) = found.next()? {
        let hash = Digest::from_bytes(row.get(0)?);
        let bytes = row.get_ref(1)?.as_blob()?;
        let seal: [u8; 32] = row.get(2)?;
        // These texts are published: a damaged page must not get in.
        if Digest::of(bytes).as_bytes() == &seal
            && let Ok(texts) = json::parse(bytes)
        {
            all.insert(hash, texts);
        }
    }
    Ok(all)
}

fn read_sketches(connection: &Connection) -> rusqlite::Result<Vec<Sketched>> {
    let mut statement =
        connection.prepare("SELECT hash, name, sketch FROM sketches ORDER BY id")?;
    let all = statement.query_map([], sketched)?;
    all.collect()
}

/// Bundles with a key of their sketch in common, the latest ones first where there are many, each once.
fn read_near(connection: &Connection, sketch: &Sketch) -> rusqlite::Result<Vec<Sketched>> {
    const KEPT: u32 = 32;
    // Of one moment, and the file is locked once instead of for each key.
    let moment = connection.unchecked_transaction()?;
    let mut statement = moment.prepare(
        "SELECT hash, name, sketch FROM bands JOIN sketches USING (id) WHERE key = ?1 ORDER BY id DESC LIMIT ?2",
    )?;
    let mut found = HashMap::new();
    for key in sketch.keys() {
        for near in statement.query_map(params![key.cast_signed(), KEPT], sketched)? {
            let near = near?;
            found.insert(near.hash, near);
        }
    }
    Ok(found.into_values().collect())
}

fn sketched(row: &rusqlite::Row<'_>) -> rusqlite::Result<Sketched> {
    Ok(Sketched {
        hash: Digest::from_bytes(row.get(0)?),
        name: row.get(1)?,
        sketch: Sketch::from_bytes(row.get_ref(2)?.as_blob()?),
    })
}

/// Too little text is noted by nothing at all. A bundle says the same for ever, so what is noted stays.
fn write_sketch(
    connection: &Connection,
    hash: &Digest,
    name: &str,
    sketch: &Sketch,
) -> rusqlite::Result<()> {
    if !sketch.is_comparable() {
        return Ok(());
    }
    let added = connection
        .prepare_cached("INSERT OR IGNORE INTO sketches (hash, name, sketch) VALUES (?1, ?2, ?3)")?
        .execute(params![hash.as_bytes(), name, sketch.to_bytes()])?;
    if added == 1 {
        let id = connection.last_insert_rowid();
        let mut bands =
            connection.prepare_cached("INSERT OR IGNORE INTO bands (key, id) VALUES (?1, ?2)")?;
        for key in sketch.keys() {
            bands.execute(params![key.cast_signed(), id])?;
        }
    }
    Ok(())
}

fn forget_sketch(connection: &Connection, hash: &Digest) -> rusqlite::Result<()> {
    let noted = connection
        .prepare_cached("SELECT id, sketch FROM sketches WHERE hash = ?1")?
        .query_row([hash.as_bytes()], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                Sketch::from_bytes(row.get_ref(1)?.as_blob()?),
            ))
        })
        .optional()?;
    if let Some((id, sketch)) = noted {
        let mut bands =
            connection.prepare_cached("DELETE FROM bands WHERE key = ?1 AND id = ?2")?;
        for key in sketch.keys() {
            bands.execute(params![key.cast_signed(), id])?;
        }
        connection.execute("DELETE FROM sketches WHERE id = ?1", [id])?;
    }
    Ok(())
}

fn write_rows(
    connection: &mut Connection,
    rows: &[NewRow],
    settled_before: (i64, u64),
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut bundles = transaction
            .prepare("INSERT OR REPLACE INTO bundles (hash, row, seal) VALUES (?1, ?2, ?3)")?;
        let mut texts = transaction
            .prepare("INSERT OR REPLACE INTO texts (hash, texts, seal) VALUES (?1, ?2, ?3)")?;
        for new in rows {
            let bytes = json::to_bytes(&new.texts);
            texts.execute(params![
                new.hash.as_bytes(),
                bytes,
                Digest::of(&bytes).as_bytes()
            ])?;
            write_sketch(&transaction, &new.hash, new.row.name.as_str(), &new.sketch)?;
            if new
                .facts
                .iter()
                .any(|facts| facts.changed >= settled_before)
            {
                continue;
            }
            let text = new.row.to_text();
            let mut sealed = text.clone().into_bytes();
            for facts in &new.facts {
                facts.append_to(&mut sealed);
            }
            bundles.execute(params![
                new.hash.as_bytes(),
                text,
                Digest::of(&sealed).as_bytes()
            ])?;
        }
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use vault_skill::keys::SecretKey;

    use super::*;

    fn new_row(folder: &Path) -> NewRow {
        let hash = Digest::of(b"bundle");
        let root = folder.join(hash.to_string());
        std::fs::create_dir_all(root.join("files")).unwrap();
        std::fs::write(root.join("manifest.json"), "{}").unwrap();
        std::fs::write(root.join("files/SKILL.md"), "text").unwrap();
        let looker = Looker::new(folder).unwrap();
        let paths: Vec<_> = ["manifest.json", "files", "files/SKILL.md"]
            .map(str::to_owned)
            .into();
        let facts = paths
            .iter()
            .map(|path| looker.look(format!("{hash}/{path}").as_bytes()).unwrap())
            .collect();
        NewRow {
            hash,
            row: Row::new(
                "a-skill".parse().unwrap(),
                3,
                SecretKey::from_seed([1; 32]).public(),
                (99, vec![(Digest::of(b"part"), 7)]),
                vec!["codex".parse().unwrap()],
                paths,
            ),
            texts: Texts {
                description: "one\nline".to_owned(),
                ..Texts::default()
            },
            facts,
            sketch: sketch(b"word"),
        }
    }

    /// Of a text that can be compared.
    fn sketch(word: &[u8]) -> Sketch {
        let words: Vec<Vec<u8>> = (0..300)
            .map(|number: u32| [word, number.to_string().as_bytes()].concat())
            .collect();
        Sketch::of([words.join(&b' ').as_slice()])
    }

    #[test]
    fn sketches_come_back_until_their_bundles_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.db");
        let new = new_row(folder.path());
        let other = |word: &[u8], sketch| Sketched {
            hash: Digest::of(word),
            name: String::from_utf8_lossy(word).into_owned(),
            sketch,
        };
        let mut index = Index::open(&path);
        index.note(std::slice::from_ref(&new), LATE);
        index.note_sketches(&[
            other(b"other", sketch(b"other")),
            other(b"short", Sketch::of([&b"two words"[..]])),
        ]);
        let mut found = Index::open(&path).sketches();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<_> = found.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["a-skill", "other"], "two words are like nothing");
        assert_eq!((found[0].hash, &found[0].sketch), (new.hash, &new.sketch));
        // Noted twice, it is there once; a look-up finds it and not the other one.
        Index::open(&path).note(std::slice::from_ref(&new), LATE);
        let near = Index::open(&path).sketches_near(&new.sketch);
        assert_eq!(near.len(), 1);
        assert_eq!((near[0].hash, near[0].name.as_str()), (new.hash, "a-skill"));
        assert!(
            Index::open(&path)
                .sketches_near(&sketch(b"unknown"))
                .is_empty()
        );

        Index::open(&path).forget(&[new.hash, Digest::of(b"other")]);
        let index = Index::open(&path);
        assert!(index.sketches().is_empty() && index.sketches_near(&new.sketch).is_empty());
        let bands = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let connection = index.connection.unwrap();
        let left = connection.query_row("SELECT count(*) FROM bands", [], bands);
        assert_eq!(left, Ok(0));
    }

    const LATE: (i64, u64) = (i64::MAX, 0);

    #[test]
    fn a_row_comes_back_and_holds_until_something_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.db");
        let new = new_row(folder.path());
        Index::open(&path).note(std::slice::from_ref(&new), LATE);
        let index = Index::open(&path);
        let rows = index.rows();
        let stored = &rows[&new.hash];
        let row = stored.parse().unwrap();
        assert_eq!(format!("{row:?}"), format!("{:?}", new.row));
        assert_eq!(stored.signer(), new.row.signer.to_string());
        assert_eq!(index.texts()[&new.hash], new.texts);

        let looker = Looker::new(folder.path()).unwrap();
        let hash = new.hash.to_string();
        assert!(stored.holds(&looker, &hash, &mut Buffers::default()));
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(folder.path().join(&hash).join("files/SKILL.md"), "test").unwrap();
        assert!(!stored.holds(&looker, &hash, &mut Buffers::default()));
    }

    #[test]
    fn what_was_written_a_moment_ago_is_not_taken_as_settled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.db");
        let new = new_row(folder.path());
        let now = new.facts[0].changed;
        let mut index = Index::open(&path);
        index.note(std::slice::from_ref(&new), now);
        assert!(index.rows().is_empty());
        assert_eq!(index.texts().len(), 1);
    }

    #[test]
    fn a_damaged_index_is_put_aside_and_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.db");
        let new = new_row(folder.path());
        for damage in [&b"not a database, but long enough to be taken for one ........................................................."[..], b"SQLite format 3\0garbage"] {
            std::fs::write(&path, damage.repeat(50)).unwrap();
            let mut index = Index::open(&path);
            assert!(index.rows().is_empty());
            index.note(std::slice::from_ref(&new), LATE);
            assert_eq!(Index::open(&path).rows().len(), 1);
            assert!(folder.path().join("index.db.damaged").exists());
        }
    }

    #[test]
    fn another_programs_database_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.db");
        let other = Connection::open(&path).unwrap();
        other
            .execute_batch("CREATE TABLE bundles (x); INSERT INTO bundles VALUES (1)")
            .unwrap();
        let mut index = Index::open(&path);
        index.note(&[new_row(folder.path())], LATE);
        assert!(index.rows().is_empty());
        let left: i64 = other
            .query_row("SELECT count(*) FROM bundles", [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 1);
    }

    #[test]
    fn a_row_whose_text_was_changed_does_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.db");
        let new = new_row(folder.path());
        let mut index = Index::open(&path);
        index.note(std::slice::from_ref(&new), LATE);
        let connection = Connection::open(&path).unwrap();
        connection
            .execute("UPDATE bundles SET row = replace(row, '3', '4')", [])
            .unwrap();
        let rows = index.rows();
        let looker = Looker::new(folder.path()).unwrap();
        assert!(!rows[&new.hash].holds(&looker, &new.hash.to_string(), &mut Buffers::default()));
    }
}
