//! Searches the installed skills. Every hit is verified from its bytes, so that an attacker who can
//! write to the index can't present anything unsigned.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;
use vault_format::name::SkillName;
use vault_policy::search::Ranking;

use super::installations::{Installation, list_skill_places};
use super::listing::{InstalledSkill, list_installed, read_place};
use crate::store::Trusted;
use crate::vault::{Vault, VaultError};

/// Number of times that the search starts over because a hit could not be verified, which a writer
/// that changed the skill in between would explain.
const RESCANS: u32 = 20;

/// An installed skill that matches the query.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The skill, with texts from verified bytes.
    pub skill: InstalledSkill,
    /// BM25 score, above zero. Hits are sorted by it, the best first.
    pub score: f64,
}

/// Ranks the installed skills by how well their texts match the query, and returns the best
/// `top_k`. Skills without a match are left out, and so are shadowed ones, whose bare name means
/// another skill.
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
            // First assume that a writer changed the skills in between. If they still fail after
            // all retries, they are damaged: leave them out.
            Err(_) if rescans > 0 => rescans -= 1,
            Err(failed) => damaged.extend(failed),
        }
    }
}

/// Returns the ranked skills with texts from verified bytes. If some of them are damaged or no
/// longer installed with the ranked bundle, returns their names instead.
fn verify_hits(
    vault: &Vault,
    ranked: &[(&InstalledSkill, f64)],
) -> Result<Result<Vec<Hit>, Vec<SkillName>>, VaultError> {
    let (groups, store) = (list_skill_places(vault)?.groups, vault.store_folder());
    let mut installed: HashMap<&SkillName, (&Installation, &Trusted)> = HashMap::new();
    for group in &groups {
        for place in group.places.iter().filter(|place| place.bare) {
            installed.insert(&place.name, (place, &group.trusted));
        }
    }
    let read = |skill: &InstalledSkill, score| {
        let (place, trusted) = installed.get(&skill.name)?;
        let read = read_place(&store, place, trusted).ok()?;
        // The score belongs to the listed bundle, so a skill that was replaced in between must be
        // ranked again.
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
