//! Compares installed skills with the current state of their sources.

use std::sync::Arc;

use vault_library::{Origin, Vault, run, shelf, upstream};
use vault_skill::{
    name::{SkillName, SkillRef},
    provenance::ProvenanceId,
};
use vault_store::{fetch::Upstream, shelf::DriftState};

use crate::{context::Context, errors::Failure, fetch::Fetching, lookup, output::clean};

/// An installed skill and its upstream source.
pub struct DriftCheck {
    pub name: SkillName,
    pub upstream: Upstream,
}

/// The skills that can be compared with their source, and the rest with the reason why they cannot.
pub struct DriftTargets {
    pub asked: Vec<DriftCheck>,
    pub unchecked: Vec<(SkillName, String)>,
}

/// Splits skills into comparable and not comparable ones. If `names` is empty, it takes all skills
/// that this vault signed itself. Fails if a name is not installed.
pub fn sort(vault: &Vault, names: &[SkillRef]) -> Result<DriftTargets, Failure> {
    let listing = shelf::list(vault)?;
    let mut sorted = DriftTargets {
        asked: Vec::new(),
        unchecked: Vec::new(),
    };
    let mut wanted = Vec::new();
    for name in names {
        match run::find(vault, name)? {
            Some(found) => wanted.push((found.name, found.origin)),
            None => return Err(lookup::not_own(vault, name)?),
        }
    }
    let wanted = |name: &SkillName, origin: &Origin| {
        let mut wanted = wanted.iter();
        names.is_empty() || wanted.any(|(one, from)| one == name && from == origin)
    };
    for skill in listing.skills {
        if !wanted(&skill.name, &skill.origin) {
            continue;
        }
        // Skills of a linked vault are updated by `vault cloud pull`, not from a source.
        if skill.origin != Origin::Local {
            if names.is_empty() {
                continue;
            }
            let why = "came with a linked vault; vault cloud pull updates it".to_owned();
            sorted.unchecked.push((skill.name, why));
            continue;
        }
        let (name, provenance) = (skill.name, skill.texts.provenance);
        let identifier: Option<ProvenanceId> = provenance.parse().ok();
        // Prefer the upstream recorded for this bundle, if it matches the signed provenance.
        let known = upstream::of_bundle(vault, &skill.bundle)?
            .filter(|known| Some(&known.identifier) == identifier.as_ref());
        let found = match known {
            None => upstream::of_skill(vault, &name)?,
            known => known,
        };
        if let Some(upstream) = found {
            sorted.asked.push(DriftCheck { name, upstream });
        } else {
            let source = clean(&provenance, 200);
            let why = format!("is from {source}: there is nothing to ask");
            sorted.unchecked.push((name, why));
        }
    }
    for (name, origin, _) in &listing.damaged {
        if *origin == Origin::Local && wanted(name, origin) {
            let why = "is not what was signed; add it again".to_owned();
            sorted.unchecked.push((name.clone(), why));
        }
    }
    Ok(sorted)
}

/// Compares the skills with their sources, several at a time. The results are in the order of
/// `asked`.
pub fn compare(
    context: &Context,
    fetching: &Fetching,
    asked: &[DriftCheck],
) -> Result<Vec<DriftState>, Failure> {
    let bar = context.ui.progress(asked.len() as u64, "Asking");
    let upstreams: Vec<Upstream> = asked.iter().map(|asked| asked.upstream.clone()).collect();
    let mut states = vec![DriftState::Unchecked("was not asked".to_owned()); asked.len()];
    let done = context.block_on(async {
        let fetcher = Arc::clone(&fetching.fetcher);
        let compare = fetcher.compare_all(upstreams, &fetching.policy, |at, state| {
            states[at] = state;
            bar.inc(1);
        });
        compare.await;
        Ok(())
    });
    bar.finish_and_clear();
    done.map(|()| states)
}
