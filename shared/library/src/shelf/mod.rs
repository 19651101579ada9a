//! Listing and searching what is installed; [`LibraryShelf`] is the library as tools read and change it.

mod library;

pub use library::LibraryShelf;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_skill::search::{Ranking, Text};

use crate::index::{Index, Texts};
use crate::parallel::in_parallel;
use crate::scan::{self, Evidence, Origin};
use crate::store::{Damage, Trusted};
use crate::vault::{Vault, VaultError};
use crate::words;

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

/// Ranks what is installed by how well its texts match; skills that match nothing are left out, as are shadowed ones. What is given was
/// verified from its bytes for this answer; which skills those are, an index on disk says where nothing changed since it was written.
pub fn search(vault: &Vault, query: &str, top_k: usize) -> Result<Vec<Hit>, VaultError> {
    if let Some(found) = words::search(vault, query, top_k)
        && let Ok(hits) = verified(vault, &found)?
    {
        return Ok(hits);
    }
    search_all(vault, query, top_k)
}

/// The same by a look at every skill; leaves an index for the next search behind.
fn search_all(vault: &Vault, query: &str, top_k: usize) -> Result<Vec<Hit>, VaultError> {
    let mut rescans = 2;
    'scan: loop {
        let before = Evidence::of(vault);
        let listing = list(vault)?;
        let mut skills = listing.skills;
        skills.retain(|skill| !skill.shadowed);
        let mut writable = before.filter(|_| listing.damaged.is_empty());
        loop {
            let ranking = Ranking::new(skills.iter().map(|skill| Text {
                name: skill.name.as_str(),
                description: &skill.texts.description,
                tags: &skill.texts.tags,
                categories: &skill.texts.categories,
                when_to_use: &skill.texts.when_to_use,
            }));
            let found: Vec<_> = ranking
                .search(query, top_k)
                .into_iter()
                .filter_map(|hit| skills.get(hit.position).map(|skill| (skill, hit.score)))
                .map(|(skill, score)| (skill.name.clone(), skill.bundle, score))
                .collect();
            let bad = match verified(vault, &found)? {
                Ok(hits) => {
                    if let Some(evidence) = writable.take() {
                        words::write(vault, &evidence, &skills, &ranking);
                    }
                    return Ok(hits);
                }
                Err(bad) => bad,
            };
            if rescans > 0 {
                // A writer may have switched meanwhile.
                rescans -= 1;
                continue 'scan;
            }
            skills.retain(|skill| !bad.contains(&skill.name));
            writable = None;
        }
    }
}

/// The found skills as their bytes say; the names of those that are not installed as this bundle, or not as they were signed.
fn verified(
    vault: &Vault,
    found: &[(SkillName, Digest, f64)],
) -> Result<Result<Vec<Hit>, HashSet<SkillName>>, VaultError> {
    let names: Vec<_> = found.iter().map(|(name, ..)| name.clone()).collect();
    let mut first: HashMap<SkillName, (scan::Place, Arc<Trusted>)> = HashMap::new();
    for group in scan::places_of(vault, &names)? {
        let trusted = Arc::new(group.trusted);
        for place in group.places {
            let with = Arc::clone(&trusted);
            first.entry(place.name.clone()).or_insert((place, with));
        }
    }
    let read = in_parallel(found, |found| {
        let mut buffer = Vec::new();
        let read = |(name, bundle, score): &(SkillName, Digest, f64)| {
            let known = first.get(name).filter(|(place, _)| place.bundle == *bundle);
            let (place, trusted) = known.ok_or_else(|| name.clone())?;
            let row = scan::read_place(vault, place, trusted, &mut buffer);
            let row = row.map_err(|_| name.clone())?;
            Ok(Hit {
                skill: Listed {
                    name: name.clone(),
                    origin: place.origin.clone(),
                    version: row.row.version,
                    bundle: *bundle,
                    size: row.row.size,
                    texts: row.texts,
                    shadowed: false,
                },
                score: *score,
            })
        };
        found.iter().map(read).collect::<Vec<_>>()
    });
    let (mut hits, mut bad) = (Vec::with_capacity(found.len()), HashSet::new());
    for one in read.into_iter().flatten() {
        match one {
            Ok(hit) => hits.push(hit),
            Err(name) => {
                bad.insert(name);
            }
        }
    }
    Ok(if bad.is_empty() { Ok(hits) } else { Err(bad) })
}
