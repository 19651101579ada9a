//! What is installed, own skills and linked ones, with the cheapest look that still notices every write.
//!
//! A skill whose seal in the index holds costs one look for each of its files; any other is read, verified and noted
//! again. The work is spread over the machine's cores.

use std::collections::HashSet;
use std::path::Path;

use vault_skill::document::Document;
use vault_skill::gate::similar::Sketch;
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use super::place::{Group, Origin, Place, places, still_linked};
use crate::disk;
use crate::disk::tree::Looker;
use crate::index::{Buffers, Index, NewRow, Row, StoredRow, Texts};
use crate::parallel::in_parallel;
use crate::store::{self, Damage, Examined, Trusted, Want};
use crate::vault::{Vault, VaultError};

/// An installed skill.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What it is installed as.
    pub name: SkillName,
    /// Own or linked.
    pub origin: Origin,
    /// Its signed version.
    pub version: u64,
    /// Its bundle.
    pub bundle: Digest,
    /// Bytes of its bundle.
    pub size: u64,
    /// What its frontmatter and manifest say.
    pub texts: Texts,
    /// An own skill of the same name stands before it.
    pub shadowed: bool,
}

/// What is installed, and what is installed but not as it was signed: that is never listed among the skills.
#[derive(Debug, Default)]
pub struct Listing {
    /// Good skills: own ones first, in name order within each origin.
    pub skills: Vec<Listed>,
    /// Damaged ones with the reason.
    pub damaged: Vec<(SkillName, Origin, Damage)>,
    /// Those among the damaged that the scan found good and whose text could not be read afterwards.
    unread: Vec<Place>,
}

/// Lists what is installed, own and linked.
pub fn list(vault: &Vault) -> Result<Listing, VaultError> {
    for _ in 1..TRIES {
        let listing = list_once(vault)?;
        // A writer may have switched between the scan and the reading of a text: then what was scanned is gone.
        if still_linked(vault, &listing.unread)? {
            return Ok(listing);
        }
    }
    list_once(vault)
}

fn list_once(vault: &Vault) -> Result<Listing, VaultError> {
    let seen = scan(vault)?;
    let known = Index::open(&vault.paths().index()).texts();
    let mut listing = Listing::default();
    let mut taken = HashSet::new();
    let mut buffer = Vec::new();
    for seen in seen {
        let place = seen.place;
        let row = match seen.state {
            Ok(row) => row,
            Err(damage) => {
                listing.damaged.push((place.name, place.origin, damage));
                continue;
            }
        };
        let texts = match seen.texts.or_else(|| known.get(&place.bundle).cloned()) {
            Some(texts) => texts,
            // Its text is damaged in the index: read it again.
            None => match read_texts(vault, &place, &mut buffer) {
                Ok(texts) => texts,
                Err(damage) => {
                    listing.unread.push(place.clone());
                    listing.damaged.push((place.name, place.origin, damage));
                    continue;
                }
            },
        };
        listing.skills.push(Listed {
            shadowed: !taken.insert(place.name.clone()),
            name: place.name,
            origin: place.origin,
            version: row.version,
            bundle: place.bundle,
            size: row.size,
            texts,
        });
    }
    Ok(listing)
}

/// What a look at one installed skill found.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) place: Place,
    pub(crate) state: Result<Row, Damage>,
    /// Where it was read just now.
    pub(crate) texts: Option<Texts>,
}

/// How often a reader starts anew. Each time a writer made a whole switch meanwhile, so this ends by itself; the bound is
/// for safety.
pub(crate) const TRIES: u32 = 100;

/// Looks at everything installed. Damaged skills are in the result; only a vault that can't be listed is an error.
pub(crate) fn scan(vault: &Vault) -> Result<Vec<Seen>, VaultError> {
    let mut index = Index::open(&vault.paths().index());
    let rows = index.rows();
    let mut tries = TRIES;
    loop {
        let (seen, fresh) = scan_once(vault, &rows)?;
        note(vault, &mut index, &fresh);
        let damaged: Vec<_> = seen
            .iter()
            .filter(|seen| seen.state.is_err())
            .map(|seen| seen.place.clone())
            .collect();
        tries -= 1;
        // A writer may have switched between our reading of a link and of the store: then the link is another now.
        if tries == 0 || still_linked(vault, &damaged)? {
            return Ok(seen);
        }
    }
}

fn scan_once(vault: &Vault, rows: &Rows) -> Result<(Vec<Seen>, Vec<NewRow>), VaultError> {
    let places = places(vault)?;
    let store = vault.store();
    let mut seen = Vec::new();
    let mut fresh = Vec::new();
    for group in places.groups {
        let (found, new) = look_at(&store, &group, rows);
        seen.extend(found);
        fresh.extend(new);
    }
    Ok((seen, fresh))
}

/// Reads and verifies one installed skill from its bytes, whatever the index says.
pub(crate) fn read_place(
    vault: &Vault,
    place: &Place,
    trusted: &Trusted,
    buffer: &mut Vec<u8>,
) -> Result<NewRow, Damage> {
    let name = Some(&place.signed_name);
    let store = vault.store();
    let examined = store::examine(&store, &place.bundle, name, trusted, Want::Bytes, buffer)?;
    new_row(&place.bundle, examined, trusted)
}

/// The texts of one skill, read and verified afresh.
pub(crate) fn read_texts(
    vault: &Vault,
    place: &Place,
    buffer: &mut Vec<u8>,
) -> Result<Texts, Damage> {
    let group = places(vault)
        .ok()
        .and_then(|places| {
            places
                .groups
                .into_iter()
                .find(|group| group.places.contains(place))
        })
        .ok_or_else(|| Damage::Missing(place.name.to_string()))?;
    let examined = store::examine(
        &vault.store(),
        &place.bundle,
        Some(&place.signed_name),
        &group.trusted,
        Want::Bytes,
        buffer,
    )?;
    Ok(texts(&examined))
}

/// Notes what was verified just now; failing to costs the next scan some work and nothing else.
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

type Rows = std::collections::HashMap<Digest, StoredRow>;

fn look_at(store: &Path, group: &Group, rows: &Rows) -> (Vec<Seen>, Vec<NewRow>) {
    let parts = in_parallel(&group.places, |places| {
        let looker = Looker::new(store).ok();
        let signers: Vec<String> = group.trusted.keys.iter().map(ToString::to_string).collect();
        let mut eye = Eye {
            store,
            trusted: &group.trusted,
            looker,
            signers,
            buffers: Buffers::default(),
            bytes: Vec::new(),
            fresh: Vec::new(),
        };
        let seen: Vec<_> = places.iter().map(|place| eye.look(place, rows)).collect();
        (seen, eye.fresh)
    });
    let mut all = (Vec::with_capacity(group.places.len()), Vec::new());
    for (seen, fresh) in parts {
        all.0.extend(seen);
        all.1.extend(fresh);
    }
    all
}

struct Eye<'a> {
    store: &'a Path,
    trusted: &'a Trusted,
    looker: Option<Looker>,
    signers: Vec<String>,
    buffers: Buffers,
    bytes: Vec<u8>,
    fresh: Vec<NewRow>,
}

impl Eye<'_> {
    fn look(&mut self, place: &Place, rows: &Rows) -> Seen {
        let (state, texts) = match self.known(place, rows) {
            Some(row) => (Ok(row), None),
            None => match self.read(place) {
                Ok((row, texts)) => (Ok(row), Some(texts)),
                Err(damage) => (Err(damage), None),
            },
        };
        Seen {
            place: place.clone(),
            state,
            texts,
        }
    }

    fn known(&mut self, place: &Place, rows: &Rows) -> Option<Row> {
        let stored = rows.get(&place.bundle)?;
        let looker = self.looker.as_ref()?;
        let believed = stored.name() == place.signed_name.as_str()
            && self.signers.iter().any(|key| key == stored.signer());
        if believed && stored.holds(looker, &place.bundle.to_string(), &mut self.buffers) {
            stored.parse()
        } else {
            None
        }
    }

    fn read(&mut self, place: &Place) -> Result<(Row, Texts), Damage> {
        let examined = store::examine_many(
            self.looker.as_ref(),
            self.store,
            &place.bundle,
            Some(&place.signed_name),
            self.trusted,
            Want::Bytes,
            &mut self.bytes,
        )?;
        let new = new_row(&place.bundle, examined, self.trusted)?;
        let read = (new.row.clone(), new.texts.clone());
        self.fresh.push(new);
        Ok(read)
    }
}

/// What the index notes of a skill that was just verified, its bytes kept.
pub(crate) fn new_row(
    hash: &Digest,
    examined: Examined,
    trusted: &Trusted,
) -> Result<NewRow, Damage> {
    let encoded = store::encode(hash, &examined)?;
    let signer = examined
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
        row: Row::new(
            manifest.name,
            manifest.version,
            signer,
            (encoded.bytes.len() as u64, parts),
            manifest.agents,
            examined.looks.paths,
        ),
        texts,
        facts: examined.looks.facts,
        sketch,
    })
}

/// What search reads; a skill whose frontmatter an older version let in is found by its name alone.
fn texts(examined: &Examined) -> Texts {
    let manifest = &examined.manifest;
    let document = examined
        .files
        .iter()
        .find(|file| file.path.as_str() == "SKILL.md")
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
