//! Compares the entries of a project's `vault.lock` with their sources as they are now.

use std::sync::Arc;

use vault_format::name::SkillRef;
use vault_library::drift::CurrentSource;
use vault_shelf::DriftState;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{clean, nearest_name},
    tasks::{
        drift::DriftCheck,
        fetch::{self, Fetching},
        project_install::{ProjectInstaller, Wanted},
        project_lock::{self, Lock, LockEntry},
    },
};

/// The reason for which an entry without a digest is not compared.
const UNRESOLVED: &str = "not resolved yet; vault install resolves it";

/// Returns the entries of these names, or all if there are no names. Fails if the lock lacks one.
pub fn find_entries(lock: &Lock, names: &[SkillRef]) -> Result<Vec<LockEntry>, Failure> {
    for name in names {
        let known = |locked: &LockEntry| name.vault.is_none() && locked.name == name.name;
        if !lock.skills.iter().any(known) {
            let name = name.to_string();
            let known = lock.skills.iter().map(|locked| locked.name.as_str());
            let near = nearest_name(&name, known).map(|near| format!("did you mean `{near}`?"));
            let shown = clean(&name, 64);
            return Err(fail!(SkillNotFound, "vault.lock names no `{shown}`").hint_if(near));
        }
    }
    let mut entries = lock.skills.clone();
    entries.retain(|locked| names.is_empty() || names.iter().any(|name| name.name == locked.name));
    Ok(entries)
}

/// Compares the entries with their sources. The results are in the order of `entries`.
pub fn compare_entries(
    context: &Context,
    install: &mut ProjectInstaller<'_>,
    entries: &[LockEntry],
) -> Result<Vec<DriftState>, Failure> {
    let mut states = Vec::with_capacity(entries.len());
    let (mut places, mut upstreams) = (Vec::new(), Vec::new());
    for (at, locked) in entries.iter().enumerate() {
        states.push(match locked.upstream() {
            _ if locked.digest.is_none() => DriftState::Unchecked(UNRESOLVED.to_owned()),
            _ if locked.is_folder() => compare_folder(install, locked),
            Some(upstream) => {
                places.push(at);
                upstreams.push(upstream);
                DriftState::Unchecked("without an answer from its source".to_owned())
            }
            None => DriftState::Failed("its source has no valid form".to_owned()),
        });
    }
    if places.is_empty() {
        return Ok(states);
    }
    context.require_network()?;
    // The author of the repository wrote these sources.
    let fetching = Fetching::for_project(context)?;
    let total = places.len() as u64;
    let bar = context.ui.start_bar(total, "Checking sources");
    context.block_on(async {
        let fetcher = Arc::clone(&fetching.fetcher);
        let compare = fetcher.compare_all(upstreams, &fetching.policy, |at, state| {
            // `at` counts only fetched skills, so map it to the position among all.
            states[places[at]] = state;
            bar.advance(1);
        });
        compare.await;
        Ok(())
    })?;
    Ok(states)
}

/// Compares the entry of a folder of the project with its files.
fn compare_folder(install: &mut ProjectInstaller<'_>, locked: &LockEntry) -> DriftState {
    let folder = install.folder().path().join(&locked.source);
    if folder.symlink_metadata().is_err() {
        let source = clean(&locked.source, 200);
        return DriftState::Removed(format!("{source} does not exist"));
    }
    match install.judge_entry(locked, Wanted::Current) {
        Ok(candidate) => {
            let found = project_lock::candidate_digest(&candidate);
            match locked.digest {
                Some(recorded) if recorded != found => DriftState::Drifted {
                    recorded: format!("sha256:{recorded}"),
                    upstream: format!("sha256:{found}"),
                    is_rewritten: false,
                },
                _ => DriftState::UpToDate,
            }
        }
        Err(failure) if failure.code == ErrorCode::GateBlocked => {
            DriftState::Refused(failure.message + "; vault lint shows them")
        }
        Err(failure) => DriftState::Failed(failure.message),
    }
}

/// Describes an entry for the messages about a comparison.
pub fn entry_check(locked: &LockEntry) -> DriftCheck {
    DriftCheck {
        name: locked.name.clone(),
        // The lock has no versions of the vault.
        version: 0,
        source: match locked.upstream() {
            Some(upstream) => CurrentSource::Fetched(Box::new(upstream)),
            None => CurrentSource::Folder(locked.source.clone().into()),
        },
    }
}

/// Fails if the source and the address of an entry disagree: reviewers read the source, but vault
/// fetches the address.
pub fn check_addresses(context: &Context, lock: &Lock) -> Result<(), Failure> {
    lock.check_addresses(&fetch::parse_options(context)?)
}
