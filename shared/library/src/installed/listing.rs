//! Lists the installed skills, own and linked. A listing reads little, but notices every change of
//! a file.
//!
//! The index holds the file metadata (size, times, inode) of each verified skill. If the metadata
//! is still the same, the listing costs one `stat` for each file. Any other skill is read, verified
//! and written to the index. The work is spread over all cores.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use vault_format::hash::Digest;
use vault_format::name::{SkillName, Slug};
use vault_gate::document::Document;
use vault_gate::similar::Sketch;
use vault_policy::search::Text;

use super::installations::{Installation, Origin, Places, list_skill_places, still_linked};
use super::link_id::LinkId;
use crate::disk::{self, HeldPath};
use crate::index::{Index, IndexRow, NewIndexRow, StoredRow, Texts};
use crate::store::{self, Damage, Trusted};
use crate::vault::{Vault, VaultError};

/// Limit on how often a listing starts over. It does so only if a writer completed a change while
/// it ran, so the limit is a safeguard.
const TRIES: u32 = 100;

/// An installed skill, as the index describes it.
#[derive(Clone, Debug)]
pub struct InstalledSkill {
    /// The name it is installed under.
    pub name: SkillName,
    /// Origin: an own skill, or the link it is installed through.
    pub origin: Origin,
    /// Version in the signed manifest.
    pub version: u64,
    /// SHA-256 of the bundle.
    pub bundle: Digest,
    /// Size of the bundle object, in bytes.
    pub size: u64,
    /// Texts from its frontmatter and manifest.
    pub texts: Texts,
    /// Whether the bare name, without a vault, means another skill of the same name.
    pub shadowed: bool,
    /// The name that always means this skill: `<vault>/<name>`, or `local/<name>` for an own skill.
    pub qualified: String,
    /// Name of its vault on this machine; `None` for an own skill.
    pub vault: Option<Slug>,
}

impl InstalledSkill {
    pub(crate) fn new(place: Installation, row: IndexRow) -> Self {
        Self {
            qualified: place.qualified_name(),
            shadowed: !place.bare,
            vault: place.vault,
            name: place.name,
            origin: place.origin,
            version: row.version,
            bundle: place.bundle,
            size: row.size,
            texts: row.texts,
        }
    }

    /// Returns the text that search ranks.
    pub(crate) fn search_text(&self) -> Text<'_> {
        Text {
            name: self.name.as_str(),
            description: &self.texts.description,
            tags: &self.texts.tags,
            categories: &self.texts.categories,
            when_to_use: &self.texts.when_to_use,
        }
    }
}

/// The installed skills. A skill that differs from what was signed is listed only as damaged.
#[derive(Debug, Default)]
pub struct Listing {
    /// Intact skills: own ones first, by name within each origin.
    pub skills: Vec<InstalledSkill>,
    /// Damaged skills with the reason.
    pub damaged: Vec<(SkillName, Origin, Damage)>,
}

impl Listing {
    /// Returns the skills that are not used until the next release of their vault, because the key
    /// that signed them is revoked. They are grouped by linked vault; own skills are under `None`.
    pub fn withheld_skills(&self) -> BTreeMap<Option<&LinkId>, Vec<&SkillName>> {
        let mut withheld = BTreeMap::<_, Vec<_>>::new();
        for (name, origin, damage) in &self.damaged {
            let link = match origin {
                Origin::Linked(link) => Some(link),
                Origin::Local => None,
                Origin::Project(_) => continue,
            };
            if damage.is_withheld() {
                withheld.entry(link).or_default().push(name);
            }
        }
        withheld
    }
}

/// Lists the installed skills, own and linked, without a lock. A skill that fails verification is
/// listed as damaged and is no error.
pub fn list_installed(vault: &Vault) -> Result<Listing, VaultError> {
    let mut listing = Listing::default();
    for ScannedSkill { place, state } in scan_installed(vault)? {
        match state {
            Ok(row) => listing.skills.push(InstalledSkill::new(place, row)),
            Err(damage) => listing.damaged.push((place.name, place.origin, damage)),
        }
    }
    Ok(listing)
}

/// An installed skill with its row of the index, or the damage that verification found.
#[derive(Debug)]
pub(crate) struct ScannedSkill {
    pub(crate) place: Installation,
    pub(crate) state: Result<IndexRow, Damage>,
}

/// Scans all installed skills, including damaged ones. Fails only if the vault can't be listed.
pub(crate) fn scan_installed(vault: &Vault) -> Result<Vec<ScannedSkill>, VaultError> {
    let mut index = Index::open(vault);
    let (rows, store) = (index.load_rows(), vault.store_folder());
    let mut tries = TRIES;
    loop {
        let (mut scanned, mut fresh) = (Vec::new(), Vec::new());
        let places = list_skill_places(vault)?;
        for group in places.groups {
            let read: Vec<_> = group
                .places
                .into_par_iter()
                .map(|place| scan_place(&store, place, &group.trusted, &rows))
                .collect();
            for (skill, new) in read {
                scanned.push(skill);
                fresh.extend(new);
            }
        }
        // Write the rows before a retry, so that the next round reads only what changed.
        write_rows(vault, &mut index, &fresh);
        let damaged: Vec<_> = scanned
            .iter()
            .filter(|skill| skill.state.is_err())
            .map(|skill| skill.place.clone())
            .collect();
        tries -= 1;
        // A writer may have switched a link after it was listed and before its bundle was read.
        // Then the skill is not damaged, so start over.
        if tries == 0 || still_linked(vault, &damaged)? {
            scanned.extend(places.gone.into_iter().map(|place| ScannedSkill {
                state: Err(place.unlinked_damage()),
                place,
            }));
            return Ok(scanned);
        }
    }
}

/// Returns the rows of the index, without checking that the skills' files are unchanged. Installed
/// skills that the index lacks are verified and added first.
pub(crate) fn indexed_rows(vault: &Vault, places: &Places) -> HashMap<Digest, StoredRow> {
    let mut index = Index::open(vault);
    let (rows, store) = (index.load_rows(), vault.store_folder());
    let mut fresh = Vec::new();
    for group in &places.groups {
        let missing = group.places.par_iter();
        let missing = missing.filter(|place| !rows.contains_key(&place.bundle));
        // A damaged skill has no row.
        fresh
            .par_extend(missing.filter_map(|place| read_place(&store, place, &group.trusted).ok()));
    }
    if fresh.is_empty() {
        return rows;
    }
    write_rows(vault, &mut index, &fresh);
    index.load_rows()
}

/// Scans one skill. Also returns its new row for the index, if it had to be read.
fn scan_place(
    store: &HeldPath,
    place: Installation,
    trusted: &Trusted,
    rows: &HashMap<Digest, StoredRow>,
) -> (ScannedSkill, Option<NewIndexRow>) {
    let current = rows
        .get(&place.bundle)
        .and_then(|row| row.current_row(store, &place.bundle, &place.signed_name, trusted));
    let (state, new) = match current {
        Some(row) => (Ok(row.clone()), None),
        None => match read_place(store, &place, trusted) {
            Ok(new) => (Ok(new.row.clone()), Some(new)),
            Err(damage) => (Err(damage), None),
        },
    };
    (ScannedSkill { place, state }, new)
}

/// Writes newly verified skills to the index. A failure makes the next scan slower and has no other
/// effect.
fn write_rows(vault: &Vault, index: &mut Index, fresh: &[NewIndexRow]) {
    if fresh.is_empty() {
        return;
    }
    if let Ok(settled) = vault
        .new_scratch()
        .and_then(|scratch| disk::settled_time(scratch.path()))
    {
        index.insert_rows(fresh, settled);
    }
}

/// Reads and verifies one installed skill from its bytes, without the index.
pub(crate) fn read_place(
    store: &HeldPath,
    place: &Installation,
    trusted: &Trusted,
) -> Result<NewIndexRow, Damage> {
    // The bundle is encoded as well, because the index answers with its size and parts.
    let name = Some(&place.signed_name);
    let (examined, encoded) = store::examine_and_encode(store, &place.bundle, name, trusted)?;
    let parts = encoded.parts.iter();
    let row = IndexRow {
        signer: examined.signer.to_string(),
        size: encoded.bytes.len() as u64,
        parts: parts
            .map(|part| (part.hash, part.bytes.len() as u64))
            .collect(),
        texts: Texts::from_manifest(
            &examined.manifest,
            examined
                .parse_document()
                .as_ref()
                .map(Document::frontmatter),
            place.bundle,
        ),
        sketch: Sketch::of(examined.files.iter().map(|file| file.bytes.as_slice())).to_bytes(),
        name: examined.manifest.name,
        version: examined.manifest.version,
        paths: examined.paths,
    };
    Ok(NewIndexRow {
        hash: place.bundle,
        row,
        stats: examined.stats,
    })
}
