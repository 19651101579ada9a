//! Searches the installed skills. Every hit is verified from its bytes, so that an attacker who can
//! write to the index can't present anything unsigned.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;
use vault_format::name::SkillName;
use vault_policy::search::Ranking;

use super::list::{InstalledSkill, list_installed, read_place};
use super::place::{Place, list_places};
use crate::store::Trusted;
use crate::vault::{Vault, VaultError};

/// Number of times that everything is listed again because a hit could not be verified. A writer
/// may have changed the hit, and several writers may follow one another.
const RESCANS: u32 = 20;

/// A search result.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The skill.
    pub skill: InstalledSkill,
    /// BM25 score, above zero; best first.
    pub score: f64,
}

/// Ranks the installed skills by how well their texts match the query. Skills without a match and
/// shadowed ones are left out.
pub fn search_installed(vault: &Vault, query: &str, top_k: usize) -> Result<Vec<Hit>, VaultError> {
    let mut rescans = RESCANS;
    let mut damaged = HashSet::new();
    loop {
        let mut skills = list_installed(vault)?.skills;
        // A shadowed skill is left out because the caller would load another one by its bare name.
        skills.retain(|skill| !skill.shadowed && !damaged.contains(&skill.name));
        let ranking = Ranking::new(skills.iter().map(InstalledSkill::search_text));
        let ranked = ranking.search(query, top_k).into_iter();
        let ranked: Vec<_> = ranked
            .filter_map(|hit| Some((skills.get(hit.position)?, hit.score)))
            .collect();
        match verify_hits(vault, &ranked)? {
            Ok(hits) => return Ok(hits),
            // First assume that a writer changed the skills meanwhile. If they still fail, they are
            // damaged: leave them out.
            Err(_) if rescans > 0 => rescans -= 1,
            Err(failed) => damaged.extend(failed),
        }
    }
}

/// Returns the ranked skills with texts from verified bytes, or else the names of those that are
/// damaged or no longer installed as the ranked bundle.
fn verify_hits(
    vault: &Vault,
    ranked: &[(&InstalledSkill, f64)],
) -> Result<Result<Vec<Hit>, Vec<SkillName>>, VaultError> {
    let (groups, store) = (list_places(vault)?.groups, vault.store_folder());
    let mut installed: HashMap<&SkillName, (&Place, &Trusted)> = HashMap::new();
    for group in &groups {
        for place in group.places.iter().filter(|place| place.bare) {
            installed.insert(&place.name, (place, &group.trusted));
        }
    }
    let read = |skill: &InstalledSkill, score| {
        let (place, trusted) = installed.get(&skill.name)?;
        let read = read_place(&store, place, trusted).ok()?;
        // The score belongs to the listed bundle, so a skill that was replaced meanwhile is ranked
        // again.
        (place.bundle == skill.bundle).then(|| Hit {
            skill: InstalledSkill::new((*place).clone(), read.row),
            score,
        })
    };
    let verified: Vec<Result<Hit, SkillName>> = ranked
        .par_iter()
        .map(|(skill, score)| read(skill, *score).ok_or_else(|| skill.name.clone()))
        .collect();
    let (hits, failed): (Vec<_>, Vec<_>) = verified.into_iter().partition(Result::is_ok);
    Ok(if failed.is_empty() {
        Ok(hits.into_iter().flatten().collect())
    } else {
        Err(failed.into_iter().filter_map(Result::err).collect())
    })
}
