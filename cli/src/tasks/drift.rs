//! Compares installed skills with their sources as they are now: fetched skills with the
//! repository, archive or registry that they were fetched from, others with the folder on this
//! machine from which they were added.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{SkillName, SkillRef};
use vault_library::{
    Origin, Vault,
    admit::history,
    drift::{ComparedSkill, CurrentSource, NotCompared, RecordedSources, folder_drift},
    folders::{self, FolderState},
    run, shelf,
};
use vault_shelf::{DriftState, fetch::Upstream};
use vault_sources::{git_commit, short_commit};

use crate::{
    context::Context,
    errors::Failure,
    lookup,
    output::{clean, count, join},
    tasks::fetch::Fetching,
};

/// Formats the source of a skill for messages and `--json`.
pub fn source_name(source: &CurrentSource) -> String {
    match source {
        CurrentSource::Fetched(upstream) => clean(upstream.identifier.as_str(), 200),
        CurrentSource::Folder(path) => clean(&path.display().to_string(), 300),
    }
}

/// Formats a commit, version or digest for people: the first characters of a long one.
pub fn shown_revision(revision: &str) -> String {
    match revision.strip_prefix("sha256:") {
        Some(digest) => format!("sha256:{}", short_commit(digest)),
        None if git_commit(revision) => short_commit(revision).to_owned(),
        None => clean(revision, 60),
    }
}

/// An installed skill, and the source to compare it with.
pub struct DriftCheck {
    pub name: SkillName,
    pub version: u64,
    pub source: CurrentSource,
}

/// A skill that was not compared with its source.
#[derive(Debug, JsonSchema, Serialize)]
pub struct UncheckedSkill {
    /// Installed name.
    pub name: SkillName,
    /// The reason, in one sentence without a full stop.
    pub reason: String,
}

/// Installed skills, split into those that can be compared with their source and those that cannot.
pub struct DriftTargets {
    pub asked: Vec<DriftCheck>,
    pub unchecked: Vec<UncheckedSkill>,
}

impl DriftTargets {
    /// Creates the fetcher for the sources. Returns `None` if every source is a local folder. Fails
    /// if the network is needed and turned off.
    pub fn fetching(&self, context: &Context) -> Result<Option<Fetching>, Failure> {
        let mut sources = self.asked.iter().map(|asked| &asked.source);
        if !sources.any(|source| matches!(source, CurrentSource::Fetched(_))) {
            return Ok(None);
        }
        context.require_network()?;
        Fetching::new(context).map(Some)
    }

    fn leave_out(&mut self, name: SkillName, reason: String) {
        self.unchecked.push(UncheckedSkill { name, reason });
    }
}

/// The reason of an [`UncheckedSkill`] that `vault rollback` holds at an earlier version.
pub const HELD: &str = "held by vault rollback; vault update <name> takes the newest version";

/// The reason of an [`UncheckedSkill`] whose files are not the ones that were signed.
pub const MODIFIED: &str = "modified after it was signed, so it was not compared; vault verify <name> shows its files, vault add signs them again";

/// Splits skills into comparable and not comparable ones. If `names` is empty, takes all skills
/// that this vault signed itself; those that a rollback holds are then not comparable. Fails if a
/// named skill is not installed.
pub fn sort_targets(vault: &Vault, names: &[SkillRef]) -> Result<DriftTargets, Failure> {
    let listing = shelf::list_installed(vault)?;
    let mut sorted = DriftTargets {
        asked: Vec::new(),
        unchecked: Vec::new(),
    };
    let mut wanted = Vec::new();
    // Find a misspelt name before the first request.
    for name in names {
        match run::find_skill(vault, name)? {
            Some(found) => wanted.push((found.name, found.origin)),
            None => return Err(lookup::not_own(vault, name)?),
        }
    }
    let wanted = |name: &SkillName, origin: &Origin| {
        let mut wanted = wanted.iter();
        names.is_empty() || wanted.any(|(one, from)| one == name && from == origin)
    };
    let is_named = !names.is_empty();
    let sources = RecordedSources::read(vault)?;
    for skill in listing.skills {
        if !wanted(&skill.name, &skill.origin) {
            continue;
        }
        // Skills of a linked vault are updated by `vault cloud pull`, not from a source.
        if skill.origin != Origin::Local {
            // Without names, the question is only about the vault's own skills.
            if is_named {
                sorted.leave_out(skill.name, not_compared_reason(NotCompared::Linked));
            }
            continue;
        }
        let own = ComparedSkill {
            name: &skill.name,
            bundle: &skill.bundle,
            provenance: &skill.texts.provenance,
        };
        // A skill that a rollback holds is compared only if the user named it.
        match sources.current_source(own, is_named)? {
            Ok(source) => sorted.asked.push(DriftCheck {
                name: skill.name,
                version: skill.version,
                source,
            }),
            Err(why) => sorted.leave_out(skill.name, not_compared_reason(why)),
        }
    }
    // Damaged skills are not in the listing, but must not pass as unchanged.
    for (name, origin, _) in &listing.damaged {
        if *origin == Origin::Local && wanted(name, origin) {
            sorted.leave_out(name.clone(), MODIFIED.to_owned());
        }
    }
    Ok(sorted)
}

/// Formats the reason for which a skill is not compared, with the command that changes that.
fn not_compared_reason(why: NotCompared) -> String {
    match why {
        NotCompared::Held => HELD.to_owned(),
        NotCompared::Linked => {
            "comes from a linked vault, which vault cloud pull updates".to_owned()
        }
        NotCompared::UnknownFolder => {
            "no folder is recorded for it; vault add <folder> --replace records one".to_owned()
        }
        why => why.to_string(),
    }
}

/// Compares the skills with their sources, several at a time. The results are in the order of
/// `asked`. Without `fetching`, skills with a remote source count as unchecked.
pub fn compare_sources(
    context: &Context,
    vault: &Vault,
    fetching: Option<&Fetching>,
    asked: &[DriftCheck],
) -> Result<Vec<DriftState>, Failure> {
    // Fetched skills count as unchecked until their result arrives.
    let mut states = compare_folders(vault, asked)?;
    let Some(fetching) = fetching else {
        return Ok(states);
    };
    let fetched = asked
        .iter()
        .enumerate()
        .filter_map(|(at, asked)| match &asked.source {
            CurrentSource::Fetched(upstream) => Some((at, (**upstream).clone())),
            CurrentSource::Folder(_) => None,
        });
    let (places, upstreams): (Vec<usize>, Vec<Upstream>) = fetched.unzip();
    let bar = context
        .ui
        .start_bar(places.len() as u64, "Checking sources");
    let done = context.block_on(async {
        let fetcher = Arc::clone(&fetching.fetcher);
        let compare = fetcher.compare_all(upstreams, &fetching.policy, |at, state| {
            // `at` counts only fetched skills, so map it to the position among all.
            states[places[at]] = state;
            bar.advance(1);
        });
        compare.await;
        Ok(())
    });
    done.map(|()| states)
}

/// Returns a state for each skill: the real one for a local folder, and "unchecked" as a
/// placeholder for a remote source.
fn compare_folders(vault: &Vault, asked: &[DriftCheck]) -> Result<Vec<DriftState>, Failure> {
    let is_folder = |asked: &DriftCheck| matches!(asked.source, CurrentSource::Folder(_));
    // Comparing folders hashes their files, so do it only if a skill needs it.
    let compared = if asked.iter().any(is_folder) {
        folders::compare_all(vault)?
    } else {
        Vec::new()
    };
    let states: BTreeMap<SkillName, FolderState> = compared
        .into_iter()
        .map(|(folder, state)| (folder.name, state))
        .collect();
    let states = asked.iter().map(|asked| match asked.source {
        CurrentSource::Folder(_) => folder_drift(states.get(&asked.name), asked.version),
        CurrentSource::Fetched(_) => {
            DriftState::Unchecked("without an answer from its source".to_owned())
        }
    });
    Ok(states.collect())
}

/// Warns that the history of a skill's source was rewritten, so that the new version does not
/// continue the recorded one. `is_installed` says that the command installs the new version.
pub fn warn_of_rewritten(context: &Context, name: &SkillName, recorded: &str, is_installed: bool) {
    let recorded = clean(recorded, 60);
    let text = format!("the history of the source of {name} was rewritten: it lacks {recorded}");
    let hint = if is_installed {
        format!("vault rollback {name} goes back to the version before")
    } else {
        format!("read the whole difference: vault update {name} --diff")
    };
    context.ui.warn_with("history_rewritten", text, hint);
}

/// Warns before a release of folders whose files differ from the skills that were added from them:
/// the release contains the skills as they were added.
pub fn warn_of_changed_folders(context: &Context, vault: &Vault) -> Result<(), Failure> {
    let held = history::list_held(vault)?;
    let changed: Vec<SkillName> = folders::compare_all(vault)?
        .into_iter()
        // A skill that a rollback holds differs from its folder on purpose.
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
    context.ui.warn_with("source_changed", text, hint);
    Ok(())
}
