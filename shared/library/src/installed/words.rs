//! `index.db.words`: the ranking of the last search that looked at everything, so that the next one looks at its hits only.
//!
//! ```text
//! magic, SHA-256 of what follows, evidence (32 bytes), u32 skills, the bundle of each (32 bytes), the packed ranking
//! ```
//! It counts while [`Evidence`] is what it was: no change was made through the library, and no link was put or taken by hand. The bytes of
//! skills are no part of that, so the file only says where to look: what a search gives is read and verified from the store, and where that
//! fails everything is looked at. A skill that was tampered with and is no hit still counts among the words; whoever can write this file
//! can hide a skill from a search, as by removing its link, and shows nothing that was not signed.
//!
//! Without the file, or with a damaged or foreign one, or where it can't be written, searches take longer and are no different.

use std::path::PathBuf;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_skill::search::Ranking;

use super::list::Listed;
use crate::disk;
use crate::installed::place::Evidence;
use crate::vault::Vault;

/// Changes with the format and with how texts are ranked.
const MAGIC: &[u8; 8] = b"vltwrd1\n";
const HEAD: usize = MAGIC.len() + 32;
/// The largest file that is written or read: some 200,000 skills.
const MAX_FILE: usize = 64 << 20;

/// The best skills for a query, best first, with their scores; `None` where everything has to be looked at. Nothing of it is verified.
pub(crate) fn search(
    vault: &Vault,
    query: &str,
    top_k: usize,
) -> Option<Vec<(SkillName, Digest, f64)>> {
    let bytes = disk::read(&path(vault), MAX_FILE as u64).ok()??;
    let (head, body) = bytes.split_at_checked(HEAD)?;
    let (magic, seal) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return None;
    }
    let (evidence, rest) = body.split_at_checked(32)?;
    if evidence != Evidence::of(vault)?.digest().as_bytes() || Digest::of(body).as_bytes() != seal {
        return None;
    }
    let (count, rest) = rest.split_at_checked(4)?;
    let count = usize::try_from(u32::from_le_bytes(count.try_into().ok()?)).ok()?;
    let (bundles, ranking) = rest.split_at_checked(count.checked_mul(32)?)?;
    let ranking = Ranking::of_query(ranking, query)?;
    if ranking.len() != count {
        return None;
    }
    let hits = ranking.search(query, top_k);
    hits.into_iter()
        .map(|hit| {
            let bundle = bundles.get(hit.position * 32..)?.get(..32)?;
            let bundle = Digest::from_bytes(bundle.try_into().ok()?);
            Some((hit.name.parse().ok()?, bundle, hit.score))
        })
        .collect()
}

/// Keeps a ranking of everything that is installed, where it still is what it was when `before` was taken. Failing to costs the next
/// search some work and nothing else.
pub(crate) fn write(vault: &Vault, before: &Evidence, skills: &[Listed], ranking: &Ranking) {
    if let Err(cause) = try_write(vault, before, skills, ranking) {
        tracing::debug!(%cause, "the words of the skills can't be kept");
    }
}

fn try_write(
    vault: &Vault,
    before: &Evidence,
    skills: &[Listed],
    ranking: &Ranking,
) -> Result<(), disk::FileError> {
    let scratch = vault.scratch()?;
    let settled = disk::settled_before(scratch.path())?;
    let digest = before.digest();
    let still = Evidence::of(vault).is_some_and(|now| now.digest() == digest);
    let packed = ranking.to_bytes();
    let size = HEAD + 36 + skills.len() * 32 + packed.len();
    let Ok(count) = u32::try_from(skills.len()) else {
        return Ok(());
    };
    if !still || !before.is_settled(settled) || packed.is_empty() || size > MAX_FILE {
        return Ok(());
    }
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; 32]);
    bytes.extend_from_slice(digest.as_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    for skill in skills {
        bytes.extend_from_slice(skill.bundle.as_bytes());
    }
    bytes.extend_from_slice(&packed);
    let seal = Digest::of(&bytes[HEAD..]);
    bytes[MAGIC.len()..HEAD].copy_from_slice(seal.as_bytes());
    disk::replace_sealed(&path(vault), &bytes, &vault.beside_the_index(&scratch))
}

fn path(vault: &Vault) -> PathBuf {
    vault.paths().index_with(".words")
}
