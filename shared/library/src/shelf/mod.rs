//! Listing and searching what is installed; [`LibraryShelf`] is the library as tools read and change it.

mod library;

pub use library::LibraryShelf;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_skill::search::{Ranking, Text};

use crate::index::{Index, Texts};
use crate::scan::{self, Origin};
use crate::store::Damage;
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
    unread: Vec<scan::Place>,
}

/// Lists what is installed, own and linked.
pub fn list(vault: &Vault) -> Result<Listing, VaultError> {
    for _ in 1..scan::TRIES {
        let listing = list_once(vault)?;
        // A writer may have switched between the scan and the reading of a text: then what was scanned is gone.
        if scan::still_linked(vault, &listing.unread)? {
            return Ok(listing);
        }
    }
    list_once(vault)
}

fn list_once(vault: &Vault) -> Result<Listing, VaultError> {
    let seen = scan::scan(vault)?;
    let known = Index::open(&vault.paths().index()).texts();
    let mut listing = Listing::default();
    let mut taken = std::collections::HashSet::new();
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
            None => match scan::read_texts(vault, &place, &mut buffer) {
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

/// A search result.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The skill.
    pub skill: Listed,
    /// BM25 score, above zero; best first.
    pub score: f64,
}

/// Ranks what is installed by how well its texts match; skills that match nothing are left out, as are shadowed ones.
pub fn search(vault: &Vault, query: &str, top_k: usize) -> Result<Vec<Hit>, VaultError> {
    let mut skills = list(vault)?.skills;
    skills.retain(|skill| !skill.shadowed);
    let ranking = Ranking::new(skills.iter().map(|skill| Text {
        name: skill.name.as_str(),
        description: &skill.texts.description,
        tags: &skill.texts.tags,
        categories: &skill.texts.categories,
        when_to_use: &skill.texts.when_to_use,
    }));
    Ok(ranking
        .search(query, top_k)
        .into_iter()
        .filter_map(|hit| {
            skills.get(hit.position).map(|skill| Hit {
                skill: skill.clone(),
                score: hit.score,
            })
        })
        .collect())
}
