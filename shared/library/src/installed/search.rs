//! Searches the installed skills. Every hit is verified from its bytes.
//!
//! The index caches the ranking of all skills together with the fingerprint of the vault state it
//! was made from, so a search of an unchanged vault reads only its hits. A tampered skill that is
//! not a hit still counts among the ranked texts. An attacker who can write to the index can hide a
//! skill from search, as by removing its link, but can't show anything that was not signed.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_skill::search::Ranking;

use super::fingerprint::Fingerprint;
use super::list::{InstalledSkill, list, read_place};
use super::place::{Place, places_of};
use crate::disk;
use crate::index::{Index, StoredRanking};
use crate::store::Trusted;
use crate::vault::{Vault, VaultError};

/// Size limit of a cached ranking, in bytes; enough for some 200,000 skills.
const MAX_RANKING: usize = 64 << 20;
/// Number of times that everything is listed again because a hit could not be verified: a writer
/// may have changed it meanwhile.
const RESCANS: u32 = 2;

/// A search result.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The skill.
    pub skill: InstalledSkill,
    /// BM25 score, above zero; best first.
    pub score: f64,
}

/// A ranked skill before its bytes are verified: name, bundle, score.
type Ranked = (SkillName, Digest, f64);

/// Ranks the installed skills by how well their texts match the query. Skills without a match and
/// shadowed ones are left out.
pub fn search(vault: &Vault, query: &str, top_k: usize) -> Result<Vec<Hit>, VaultError> {
    if let Some(ranked) = rank_from_index(vault, query, top_k)
        && let Ok(hits) = verify(vault, &ranked)?
    {
        return Ok(hits);
    }
    search_all(vault, query, top_k)
}

/// The best skills by the ranking in the index; `None` if the index has no ranking of the current
/// vault state.
fn rank_from_index(vault: &Vault, query: &str, top_k: usize) -> Option<Vec<Ranked>> {
    let fingerprint = Fingerprint::of(vault)?.digest();
    let stored = Index::open(&vault.paths().index()).ranking(&fingerprint)?;
    let ranking = Ranking::of_query(&stored.packed, query)?;
    if stored.bundles.len() != ranking.len() * 32 {
        return None;
    }
    ranking
        .search(query, top_k)
        .into_iter()
        .map(|hit| {
            let bundle = stored.bundles.get(hit.position * 32..)?.get(..32)?;
            let bundle = Digest::from_bytes(bundle.try_into().ok()?);
            Some((hit.name.parse().ok()?, bundle, hit.score))
        })
        .collect()
}

/// Lists and ranks all skills, and caches the ranking for the next search.
fn search_all(vault: &Vault, query: &str, top_k: usize) -> Result<Vec<Hit>, VaultError> {
    let mut rescans = RESCANS;
    'scan: loop {
        let before = Fingerprint::of(vault);
        let listing = list(vault)?;
        let mut skills = listing.skills;
        skills.retain(|skill| !skill.shadowed);
        // The fingerprint does not cover the bytes of skills, so it would not change if a damaged
        // skill were repaired. Do not cache a ranking without that skill.
        let mut fingerprint = before.filter(|_| listing.damaged.is_empty());
        loop {
            let ranking = Ranking::new(skills.iter().map(InstalledSkill::text));
            let ranked: Vec<Ranked> = ranking
                .search(query, top_k)
                .into_iter()
                .filter_map(|hit| Some((skills.get(hit.position)?, hit.score)))
                .map(|(skill, score)| (skill.name.clone(), skill.bundle, score))
                .collect();
            let bad = match verify(vault, &ranked)? {
                Ok(hits) => {
                    if let Some(fingerprint) = fingerprint {
                        keep(vault, &fingerprint, &skills, &ranking);
                    }
                    return Ok(hits);
                }
                Err(bad) => bad,
            };
            // First assume that a writer changed the skills meanwhile. If they still fail, they are
            // damaged: leave them out.
            if rescans > 0 {
                rescans -= 1;
                continue 'scan;
            }
            skills.retain(|skill| !bad.contains(&skill.name));
            fingerprint = None;
        }
    }
}

/// Caches a ranking, if the vault still has the fingerprint from before the listing and any later
/// change will alter it.
fn keep(vault: &Vault, before: &Fingerprint, skills: &[InstalledSkill], ranking: &Ranking) {
    let settled = vault
        .scratch()
        .and_then(|scratch| disk::settled_before(scratch.path()));
    let digest = before.digest();
    let unchanged = Fingerprint::of(vault).is_some_and(|now| now.digest() == digest);
    let packed = ranking.to_bytes();
    if !unchanged
        || !settled.is_ok_and(|settled| before.is_settled(settled))
        || packed.is_empty()
        || packed.len() > MAX_RANKING
    {
        return;
    }
    let bundles = skills.iter().flat_map(|skill| *skill.bundle.as_bytes());
    let ranking = StoredRanking {
        bundles: bundles.collect(),
        packed,
    };
    Index::open(&vault.paths().index()).note_ranking(&digest, &ranking);
}

/// The ranked skills with texts from verified bytes. If any of them is damaged or no longer
/// installed as this bundle: the names of those.
fn verify(
    vault: &Vault,
    ranked: &[Ranked],
) -> Result<Result<Vec<Hit>, HashSet<SkillName>>, VaultError> {
    let names: Vec<_> = ranked.iter().map(|(name, ..)| name.clone()).collect();
    let groups = places_of(vault, &names)?;
    let mut installed: HashMap<&SkillName, (&Place, &Trusted)> = HashMap::new();
    for group in &groups {
        for place in &group.places {
            // Own skills come first, so a shadowed skill does not replace the one that shadows it.
            installed
                .entry(&place.name)
                .or_insert((place, &group.trusted));
        }
    }
    let verified: Vec<Result<Hit, &SkillName>> = ranked
        .par_iter()
        .map(|(name, bundle, score)| {
            let (place, trusted) = installed.get(name).ok_or(name)?;
            if place.bundle != *bundle {
                return Err(name);
            }
            let read = read_place(vault, place, trusted).map_err(|_| name)?;
            Ok(Hit {
                skill: InstalledSkill::new((*place).clone(), &read.row, read.texts),
                score: *score,
            })
        })
        .collect();
    let bad: HashSet<SkillName> = verified
        .iter()
        .filter_map(|hit| hit.as_ref().err().map(|name| (*name).clone()))
        .collect();
    Ok(if bad.is_empty() {
        Ok(verified.into_iter().flatten().collect())
    } else {
        Err(bad)
    })
}
