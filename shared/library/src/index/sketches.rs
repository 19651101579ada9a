//! Finds skills with similar text: a sketch of each text, and bands to look up similar sketches.
//!
//! Sketches only select the skills that a new one is compared with. No trust depends on them.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension as _, params};
use vault_skill::gate::similar::Sketch;
use vault_skill::hash::Digest;

use super::{Index, digest};

/// Limit on the sketches that are compared for one band.
const COMPARED: u32 = 32;

/// A skill with the sketch of its text.
#[derive(Clone, Debug)]
pub(crate) struct SketchedSkill {
    pub(crate) hash: Digest,
    pub(crate) name: String,
    pub(crate) sketch: Sketch,
}

impl Index {
    /// The bundles that have a sketch. Empty if there is no index.
    pub(crate) fn sketched(&self) -> HashSet<Digest> {
        self.read(|connection| {
            let mut statement = connection.prepare("SELECT hash FROM sketches")?;
            let rows = statement.query_map([], |row| digest(row, 0))?;
            rows.collect()
        })
    }

    /// The recorded skills that share a band with this sketch; at most the latest 32 for each band.
    pub(crate) fn sketches_near(&self, sketch: &Sketch) -> Vec<SketchedSkill> {
        self.read(|connection| {
            // One transaction: the file is locked once instead of once for each key.
            let transaction = connection.unchecked_transaction()?;
            let mut statement = transaction.prepare(
                "SELECT hash, name, sketch FROM bands JOIN sketches USING (id)
                 WHERE key = ?1 ORDER BY id DESC LIMIT ?2",
            )?;
            let mut found = HashMap::new();
            for key in sketch.keys() {
                let near = statement.query_map(params![key.cast_signed(), COMPARED], |row| {
                    Ok(SketchedSkill {
                        hash: digest(row, 0)?,
                        name: row.get(1)?,
                        sketch: Sketch::from_bytes(row.get_ref(2)?.as_blob()?),
                    })
                })?;
                for near in near {
                    let near = near?;
                    found.insert(near.hash, near);
                }
            }
            Ok(found.into_values().collect())
        })
    }

    /// Records the sketches of skills that were just admitted.
    pub(crate) fn note_sketches(&mut self, all: &[SketchedSkill]) {
        self.write(|connection| {
            all.iter()
                .try_for_each(|new| write(connection, &new.hash, &new.name, &new.sketch))
        });
    }
}

/// Records a sketch, even one of a text that is too short to compare. The bytes of a bundle never
/// change, so an existing sketch stays.
pub(super) fn write(
    connection: &Connection,
    hash: &Digest,
    name: &str,
    sketch: &Sketch,
) -> rusqlite::Result<()> {
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

pub(super) fn forget(connection: &Connection, hash: &Digest) -> rusqlite::Result<()> {
    let noted = connection
        .prepare_cached("SELECT id, sketch FROM sketches WHERE hash = ?1")?
        .query_row([hash.as_bytes()], |row| {
            let sketch = Sketch::from_bytes(row.get_ref(1)?.as_blob()?);
            Ok((row.get::<_, i64>(0)?, sketch))
        })
        .optional()?;
    if let Some((id, sketch)) = noted {
        let mut bands =
            connection.prepare_cached("DELETE FROM bands WHERE key = ?1 AND id = ?2")?;
        for key in sketch.keys() {
            bands.execute(params![key.cast_signed(), id])?;
        }
        connection
            .prepare_cached("DELETE FROM sketches WHERE id = ?1")?
            .execute([id])?;
    }
    Ok(())
}
