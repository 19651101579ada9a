//! Lists the installed skills, own and linked. A listing is cheap, but detects every write.
//!
//! If the checksum of a skill in the index still matches, the listing costs one `stat` for each of
//! its files. Any other skill is read, verified and written to the index. The work is spread over
//! all cores.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rayon::prelude::*;
use vault_skill::document::{Document, SKILL_MD};
use vault_skill::gate::similar::Sketch;
use vault_skill::hash::Digest;
use vault_skill::keys::PublicKey;
use vault_skill::name::SkillName;
use vault_skill::search::Text;

use super::place::{CHUNK, Group, Origin, Place, places, still_linked};
use crate::disk;
use crate::index::{Index, NewRow, Row, StoredRow, Texts};
use crate::store::{self, Damage, Examined, Reader, Trusted, Want};
use crate::vault::{Vault, VaultError};

/// Limit on retries of a read. Each retry means that a writer completed a change meanwhile, so
/// retries end by themselves; the limit is a safeguard.
const TRIES: u32 = 100;

/// An installed skill.
#[derive(Clone, Debug)]
pub struct InstalledSkill {
    /// The name it is installed under.
    pub name: SkillName,
    /// Own or linked.
    pub origin: Origin,
    /// The signed version.
    pub version: u64,
    /// Hash of the bundle.
    pub bundle: Digest,
    /// Size of the bundle object, in bytes.
    pub size: u64,
    /// Texts from its frontmatter and manifest.
    pub texts: Texts,
    /// An earlier skill in the listing has the same name and takes precedence; own skills come
    /// first.
    pub shadowed: bool,
}

impl InstalledSkill {
    pub(crate) fn new(place: Place, row: &Row, texts: Texts) -> Self {
        Self {
            name: place.name,
            origin: place.origin,
            version: row.version,
            bundle: place.bundle,
            size: row.size,
            texts,
            shadowed: false,
        }
    }

    /// The text that search ranks.
    pub(crate) fn text(&self) -> Text<'_> {
        Text {
            name: self.name.as_str(),
            description: &self.texts.description,
            tags: &self.texts.tags,
            categories: &self.texts.categories,
            when_to_use: &self.texts.when_to_use,
        }
    }
}

/// The installed skills. A skill that differs from what was signed is never among `skills`.
#[derive(Debug, Default)]
pub struct Listing {
    /// Intact skills: own ones first, by name within each origin.
    pub skills: Vec<InstalledSkill>,
    /// Damaged skills with the reason.
    pub damaged: Vec<(SkillName, Origin, Damage)>,
    /// Those among the damaged that passed the scan, but whose texts could not be read afterwards.
    unread: Vec<Place>,
}

/// Lists the installed skills, own and linked.
pub fn list(vault: &Vault) -> Result<Listing, VaultError> {
    for _ in 1..TRIES {
        let listing = list_once(vault)?;
        // If a writer switched a link between the scan and the reading of texts, the scanned bundle
        // may be gone: retry.
        if still_linked(vault, &listing.unread)? {
            return Ok(listing);
        }
    }
    list_once(vault)
}

fn list_once(vault: &Vault) -> Result<Listing, VaultError> {
    let scanned = scan(vault)?;
    let mut noted = Index::open(&vault.paths().index()).texts();
    let mut listing = Listing::default();
    let mut taken = HashSet::new();
    for ScannedSkill {
        place,
        state,
        texts,
    } in scanned
    {
        let row = match state {
            Ok(row) => row,
            Err(damage) => {
                listing.damaged.push((place.name, place.origin, damage));
                continue;
            }
        };
        let texts = match texts.or_else(|| noted.remove(&place.bundle)) {
            Some(texts) => texts,
            // The texts are missing or damaged in the index: read them again.
            None => match read_texts(vault, &place) {
                Ok(texts) => texts,
                Err(damage) => {
                    listing.unread.push(place.clone());
                    listing.damaged.push((place.name, place.origin, damage));
                    continue;
                }
            },
        };
        listing.skills.push(InstalledSkill {
            shadowed: !taken.insert(place.name.clone()),
            ..InstalledSkill::new(place, &row, texts)
        });
    }
    Ok(listing)
}

/// The scan result of one installed skill.
#[derive(Debug)]
pub(crate) struct ScannedSkill {
    pub(crate) place: Place,
    pub(crate) state: Result<Row, Damage>,
    /// The texts, if the skill was just read; otherwise they are in the index.
    pub(crate) texts: Option<Texts>,
}

/// Scans all installed skills. The result includes damaged ones; only a vault that can't be listed
/// is an error.
pub(crate) fn scan(vault: &Vault) -> Result<Vec<ScannedSkill>, VaultError> {
    let mut index = Index::open(&vault.paths().index());
    let rows = index.rows();
    let mut tries = TRIES;
    loop {
        let store = vault.store();
        let (mut scanned, mut fresh) = (Vec::new(), Vec::new());
        for group in places(vault)?.groups {
            let (skills, new) = scan_group(&store, &group, &rows);
            scanned.extend(skills);
            fresh.extend(new);
        }
        note(vault, &mut index, &fresh);
        let damaged: Vec<_> = scanned
            .iter()
            .filter(|skill| skill.state.is_err())
            .map(|skill| skill.place.clone())
            .collect();
        tries -= 1;
        // A writer may have switched a link after it was listed and before its bundle was read:
        // retry.
        if tries == 0 || still_linked(vault, &damaged)? {
            return Ok(scanned);
        }
    }
}

fn scan_group(
    store: &Path,
    group: &Group,
    rows: &HashMap<Digest, StoredRow>,
) -> (Vec<ScannedSkill>, Vec<NewRow>) {
    let parts: Vec<_> = group
        .places
        .par_chunks(CHUNK)
        .map(|places| {
            let mut reader = Reader::new(store);
            let mut fresh = Vec::new();
            let scanned: Vec<_> = places
                .iter()
                .map(|place| scan_place(&mut reader, place, &group.trusted, rows, &mut fresh))
                .collect();
            (scanned, fresh)
        })
        .collect();
    let (scanned, fresh): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    (
        scanned.into_iter().flatten().collect(),
        fresh.into_iter().flatten().collect(),
    )
}

fn scan_place(
    reader: &mut Reader<'_>,
    place: &Place,
    trusted: &Trusted,
    rows: &HashMap<Digest, StoredRow>,
    fresh: &mut Vec<NewRow>,
) -> ScannedSkill {
    let noted = rows.get(&place.bundle).zip(reader.handle());
    let current = noted.and_then(|(row, store)| {
        row.current(store, &place.bundle, &place.signed_name, &trusted.keys)
    });
    let (state, texts) = match current {
        Some(row) => (Ok(row.clone()), None),
        None => match read_with(reader, place, trusted) {
            Ok(new) => {
                let read = (Ok(new.row.clone()), Some(new.texts.clone()));
                fresh.push(new);
                read
            }
            Err(damage) => (Err(damage), None),
        },
    };
    ScannedSkill {
        place: place.clone(),
        state,
        texts,
    }
}

fn read_with(reader: &mut Reader<'_>, place: &Place, trusted: &Trusted) -> Result<NewRow, Damage> {
    let examined = reader.examine(
        &place.bundle,
        Some(&place.signed_name),
        trusted,
        Want::Bytes,
    )?;
    new_row(&place.bundle, examined, trusted)
}

/// Reads and verifies one installed skill from its bytes, without the index.
pub(crate) fn read_place(
    vault: &Vault,
    place: &Place,
    trusted: &Trusted,
) -> Result<NewRow, Damage> {
    read_with(&mut Reader::new(&vault.store()), place, trusted)
}

/// Reads and verifies one skill; returns its texts.
pub(crate) fn read_texts(vault: &Vault, place: &Place) -> Result<Texts, Damage> {
    let groups = places(vault).map(|places| places.groups);
    let groups = groups.unwrap_or_default();
    let group = groups.iter().find(|group| group.places.contains(place));
    let group = group.ok_or_else(|| Damage::Missing(place.name.to_string()))?;
    read_place(vault, place, &group.trusted).map(|new| new.texts)
}

/// Writes newly verified skills to the index. A failure makes the next scan slower and has no other
/// effect.
pub(crate) fn note(vault: &Vault, index: &mut Index, fresh: &[NewRow]) {
    if fresh.is_empty() {
        return;
    }
    if let Ok(settled) = vault
        .scratch()
        .and_then(|scratch| disk::settled_before(scratch.path()))
    {
        index.note(fresh, settled);
    }
}

/// Adds the missing sketches of installed skills to the index, for example after the index was
/// deleted or for skills of a linked vault. Damaged skills are left out.
pub(crate) fn complete_sketches(vault: &Vault, index: &mut Index, groups: &[Group]) {
    let noted = index.sketched();
    for group in groups {
        let missing: Vec<&Place> = group
            .places
            .iter()
            .filter(|place| !noted.contains(&place.bundle))
            .collect();
        let read: Vec<_> = missing
            .par_chunks(CHUNK)
            .flat_map_iter(|places| {
                let store = vault.store();
                let mut reader = Reader::new(&store);
                let read = |place: &&Place| read_with(&mut reader, place, &group.trusted).ok();
                places.iter().filter_map(read).collect::<Vec<_>>()
            })
            .collect();
        note(vault, index, &read);
    }
}

/// The index row of a skill that was just verified with [`Want::Bytes`].
pub(crate) fn new_row(
    hash: &Digest,
    examined: Examined,
    trusted: &Trusted,
) -> Result<NewRow, Damage> {
    let encoded = store::encode(hash, &examined)?;
    let signer: PublicKey = examined
        .signed
        .signer(&trusted.keys)
        .copied()
        .ok_or_else(|| Damage::Missing("a signature".to_owned()))?;
    let texts = texts(&examined);
    let sketch = Sketch::of(examined.files.iter().map(|file| file.bytes.as_slice()));
    let manifest = examined.manifest;
    let parts = encoded
        .parts
        .iter()
        .map(|part| (part.hash, part.bytes.len() as u64))
        .collect();
    Ok(NewRow {
        hash: *hash,
        row: Row {
            name: manifest.name,
            version: manifest.version,
            signer,
            size: encoded.bytes.len() as u64,
            parts,
            agents: manifest.agents,
            paths: examined.paths,
        },
        texts,
        stats: examined.stats,
        sketch,
    })
}

/// The texts that search reads. If an older version admitted frontmatter that no longer parses,
/// only the skill's name can be searched.
fn texts(examined: &Examined) -> Texts {
    let manifest = &examined.manifest;
    let document = examined
        .files
        .iter()
        .find(|file| file.path.as_str() == SKILL_MD)
        .and_then(|file| Document::parse_known(&file.bytes, &manifest.name).ok());
    let mut texts = Texts {
        agents: manifest.agents.clone(),
        actions: manifest.actions.keys().cloned().collect(),
        provenance: manifest.provenance.identifier.to_string(),
        ..Texts::default()
    };
    if let Some(document) = document {
        let frontmatter = document.frontmatter();
        texts.description.clone_from(&frontmatter.description);
        texts.tags.clone_from(&frontmatter.tags);
        texts.categories.clone_from(&frontmatter.categories);
        texts.when_to_use = frontmatter.when_to_use.clone().unwrap_or_default();
    }
    texts
}
