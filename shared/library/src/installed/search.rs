//! Searching what is installed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_skill::search::{Ranking, Text};

use super::list::{Listed, list, read_place};
use super::place::{Evidence, Place, places_of};
use super::words;
use crate::parallel::in_parallel;
use crate::store::Trusted;
use crate::vault::{Vault, VaultError};

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
    let mut first: HashMap<SkillName, (Place, Arc<Trusted>)> = HashMap::new();
    for group in places_of(vault, &names)? {
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
            let row = read_place(vault, place, trusted, &mut buffer);
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
