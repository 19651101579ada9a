//! Compares installed skills with their sources as they are now: fetched skills with the place they
//! were fetched from, others with their folder on this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use vault_library::{
    Origin, Vault,
    admit::history,
    folders::{self, FolderState},
    run, shelf, upstream,
};
use vault_skill::{
    name::{SkillName, SkillRef},
    provenance::{Kind, ProvenanceId},
};
use vault_sources::source::is_archive;
use vault_store::{fetch::Upstream, shelf::DriftState};

use crate::{
    context::Context,
    errors::Failure,
    fetch::Fetching,
    lookup,
    output::{Warning, clean, count, join},
};

/// Where the current content of a skill is found.
pub enum Place {
    /// It is fetched.
    Fetched(Box<Upstream>),
    /// It is in this folder, as an absolute path.
    Folder(PathBuf),
}

impl Place {
    /// The source in messages and in `--json`.
    pub fn shown(&self) -> String {
        match self {
            Self::Fetched(upstream) => clean(upstream.identifier.as_str(), 200),
            Self::Folder(path) => clean(&path.display().to_string(), 300),
        }
    }
}

/// An installed skill and its source.
pub struct DriftCheck {
    pub name: SkillName,
    pub version: u64,
    pub place: Place,
}

/// The skills that can be compared with their source, and the rest with the reason why they cannot.
pub struct DriftTargets {
    pub asked: Vec<DriftCheck>,
    pub unchecked: Vec<(SkillName, String)>,
}

impl DriftTargets {
    /// Whether a comparison needs the network.
    pub fn needs_network(&self) -> bool {
        let mut places = self.asked.iter().map(|asked| &asked.place);
        places.any(|place| matches!(place, Place::Fetched(_)))
    }
}

/// The reason for a skill that `vault rollback` holds.
pub const HELD: &str = "held by vault rollback; vault update <name> takes the newest version";

/// Splits skills into comparable and not comparable ones. If `names` is empty, it takes all skills
/// that this vault signed itself, and counts those that a rollback holds as not comparable. Fails if
/// a name is not installed.
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
    let held = history::held(vault)?;
    let recorded = folders::recorded(vault)?.into_iter();
    let recorded: BTreeMap<SkillName, PathBuf> =
        recorded.map(|folder| (folder.name, folder.path)).collect();
    for skill in listing.skills {
        if !wanted(&skill.name, &skill.origin) {
            continue;
        }
        // Skills of a linked vault are updated by `vault cloud pull`, not from a source.
        if skill.origin != Origin::Local {
            if names.is_empty() {
                continue;
            }
            let why = "comes from a linked vault, which vault cloud pull updates".to_owned();
            sorted.unchecked.push((skill.name, why));
            continue;
        }
        let (name, provenance) = (skill.name, skill.texts.provenance);
        if names.is_empty() && held.contains(&name) {
            sorted.unchecked.push((name, HELD.to_owned()));
            continue;
        }
        let identifier: Option<ProvenanceId> = provenance.parse().ok();
        // Prefer the upstream recorded for this bundle, if it matches the signed provenance.
        let known = upstream::of_bundle(vault, &skill.bundle)?
            .filter(|known| Some(&known.identifier) == identifier.as_ref());
        let found = match known {
            None => upstream::of_skill(vault, &name)?,
            known => known,
        };
        let kind = identifier.as_ref().map(ProvenanceId::kind);
        let fetched = found.filter(|found| is_fetched(found.identifier.kind()));
        let place = match (fetched, recorded.get(&name)) {
            (Some(upstream), _) => Place::Fetched(Box::new(upstream)),
            (None, Some(folder)) => Place::Folder(folder.clone()),
            (None, None) => {
                let why = no_source(kind, &provenance).to_owned();
                sorted.unchecked.push((name, why));
                continue;
            }
        };
        sorted.asked.push(DriftCheck {
            name,
            version: skill.version,
            place,
        });
    }
    for (name, origin, _) in &listing.damaged {
        if *origin == Origin::Local && wanted(name, origin) {
            let why = "differs from what was signed; add it again".to_owned();
            sorted.unchecked.push((name.clone(), why));
        }
    }
    Ok(sorted)
}

/// Whether skills of this kind of source can be fetched again.
const fn is_fetched(kind: Kind) -> bool {
    !matches!(kind, Kind::Local | Kind::Inline | Kind::Vault)
}

/// Why a skill has no source to compare it with.
fn no_source(kind: Option<Kind>, provenance: &str) -> &'static str {
    match kind {
        Some(Kind::Local) if is_archive(provenance) => "added from an archive",
        Some(Kind::Local) => "added from a folder that this machine has no record of",
        Some(Kind::Inline) => "submitted as text",
        Some(Kind::Vault) => "taken over from another vault",
        Some(_) | None => "without a recorded source",
    }
}

/// Compares the skills with their sources, several at a time. The results are in the order of
/// `asked`. `fetching` may be `None` if no skill is fetched.
pub fn compare(
    context: &Context,
    vault: &Vault,
    fetching: Option<&Fetching>,
    asked: &[DriftCheck],
) -> Result<Vec<DriftState>, Failure> {
    let mut states = compare_folders(vault, asked)?;
    let Some(fetching) = fetching else {
        return Ok(states);
    };
    let fetched = asked
        .iter()
        .enumerate()
        .filter_map(|(at, asked)| match &asked.place {
            Place::Fetched(upstream) => Some((at, (**upstream).clone())),
            Place::Folder(_) => None,
        });
    let (places, upstreams): (Vec<usize>, Vec<Upstream>) = fetched.unzip();
    let bar = context.ui.progress(places.len() as u64, "Checking sources");
    let done = context.block_on(async {
        let fetcher = Arc::clone(&fetching.fetcher);
        let compare = fetcher.compare_all(upstreams, &fetching.policy, |at, state| {
            states[places[at]] = state;
            bar.inc(1);
        });
        compare.await;
        Ok(())
    });
    bar.finish_and_clear();
    done.map(|()| states)
}

/// The states of the skills from folders; the others have not been checked yet.
fn compare_folders(vault: &Vault, asked: &[DriftCheck]) -> Result<Vec<DriftState>, Failure> {
    let is_folder = |asked: &DriftCheck| matches!(asked.place, Place::Folder(_));
    let compared = if asked.iter().any(is_folder) {
        folders::compare_all(vault)?
    } else {
        Vec::new()
    };
    let states: BTreeMap<SkillName, FolderState> = compared
        .into_iter()
        .map(|(folder, state)| (folder.name, state))
        .collect();
    let unchecked = |why: &str| DriftState::Unchecked(why.to_owned());
    let of_folder = |asked: &DriftCheck| match states.get(&asked.name) {
        Some(FolderState::Same) => DriftState::UpToDate,
        Some(FolderState::Changed) => DriftState::Drifted {
            recorded: format!("version {}", asked.version),
            upstream: "changed files".to_owned(),
        },
        Some(FolderState::Missing) => unchecked("its folder is gone"),
        Some(FolderState::Unreadable(reason)) => {
            DriftState::Unchecked(format!("its folder cannot be read: {reason}"))
        }
        None => unchecked("removed meanwhile"),
    };
    let states = asked.iter().map(|asked| match asked.place {
        Place::Folder(_) => of_folder(asked),
        Place::Fetched(_) => unchecked("without an answer from its source"),
    });
    Ok(states.collect())
}

/// Warns of folders with other files than the skills that were added from them: a release has the
/// skills as they were added.
pub fn warn_of_changed_folders(context: &Context, vault: &Vault) -> Result<(), Failure> {
    let held = history::held(vault)?;
    let changed: Vec<SkillName> = folders::compare_all(vault)?
        .into_iter()
        .filter(|(folder, state)| *state == FolderState::Changed && !held.contains(&folder.name))
        .map(|(folder, _)| folder.name)
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    let (number, names) = (changed.len() as u64, join(&changed));
    let text = match number {
        1 => format!(
            "the folder of {names} changed after it was added; the release has the earlier files"
        ),
        _ => format!(
            "the folders of {} changed after they were added; the release has the earlier files: {names}",
            count(number, "skill")
        ),
    };
    let update = changed.iter().map(SkillName::as_str).collect::<Vec<_>>();
    let hint = format!("vault update {}, then sync again", update.join(" "));
    context
        .ui
        .warn(Warning::new("source_changed", text).hint(hint));
    Ok(())
}
