//! Drafts that agents made on this machine. They differ from drafts of a service in the origin of
//! their files (a folder, a source, or the recorded source of an installed skill) and in options
//! that the agent chose.

use std::path::Path;

use serde_json::json;
use vault_format::{
    bundle::{self, File},
    draft::{self, Request},
    hash::Digest,
    name::{AgentId, SkillName},
    provenance::ProvenanceId,
};
use vault_gate::{SERVICE_WORK, secrets};
use vault_library::{
    admit::{Candidate, Options, Source, history, preview_admission},
    folders, run,
    shelf::drafts::{self, AcceptError, AcceptedDraft, DraftOrigin, LocalDraft},
    upstream,
};

use super::{Effect, PresentSkill, Review, Reviewer, on_base};
use crate::{
    errors::Failure,
    output::{WARN, clean, join},
    tasks::{
        admission::{admission_failure, texts::Texts},
        fetch,
    },
};

impl Reviewer<'_> {
    /// Carries out a draft of this machine and closes it.
    pub(super) fn accept_local(
        &self,
        local: &LocalDraft,
        review: &Review,
    ) -> Result<bool, Failure> {
        let name = local.draft.name.as_str();
        let candidate;
        let accepted = match (&review.effect, review.before) {
            (Effect::Admit(files), _) => {
                candidate = on_base(files, review);
                AcceptedDraft::Admit(&candidate)
            }
            (Effect::Remove(_), Some(bundle)) => AcceptedDraft::Remove(bundle),
            (Effect::Remove(_) | Effect::None | Effect::Server(_), held) => {
                AcceptedDraft::Close(held)
            }
        };
        drafts::accept_draft(self.vault, local, &accepted).map_err(|error| match error {
            AcceptError::Decided(_) => fail!(DraftNotFound, "{error}"),
            AcceptError::Refused(error) => {
                admission_failure(name, &Texts::of_fetched(name, &[]), error)
            }
        })
    }

    /// Returns the line which says that a draft ends the hold of a skill; `None` if the skill is
    /// not held at an earlier version after a rollback.
    pub(super) fn hold_end_notice(&self, name: &SkillName) -> Result<Option<String>, Failure> {
        let ends = "it ends the hold: the skill was rolled back, and `vault update` left it alone";
        Ok(self
            .is_held(name)?
            .then(|| format!("  {WARN}!{WARN:#} {ends}")))
    }

    /// Returns whether the skill is held at an earlier version after a rollback.
    pub(super) fn is_held(&self, name: &SkillName) -> Result<bool, Failure> {
        Ok(history::is_held(self.vault, name)?)
    }

    /// Returns whether the vault already has what a draft of this machine asks for; `None` for
    /// drafts of a service. Fails if the vault would reject the draft, so that the user is not
    /// asked in vain.
    pub(super) fn is_kept(&self, candidate: &Candidate) -> Result<Option<bool>, Failure> {
        if !self.is_local() {
            return Ok(None);
        }
        let name = candidate.package.name.as_str();
        let kept = preview_admission(self.vault, candidate)
            .map_err(|error| admission_failure(name, &Texts::of_fetched(name, &[]), error))?;
        Ok(Some(kept.is_some()))
    }

    /// Returns the source of a draft of this machine that installs from a folder or updates a skill
    /// from its recorded source; `None` for every other draft.
    pub(super) fn local_source(
        &self,
        name: &SkillName,
        shown: &ProvenanceId,
    ) -> Result<Option<Source>, Failure> {
        match self.local.map(|local| &local.origin) {
            Some(DraftOrigin::Folder(path)) => Ok(Some(Source::folder(Path::new(path)))),
            Some(DraftOrigin::Update) => {
                let folders = folders::recorded_folders(self.vault)?;
                if let Some(recorded) = folders.into_iter().find(|folder| folder.name == *name) {
                    return Ok(Some(Source::folder(&recorded.path)));
                }
                let upstream = upstream::of_skill(self.vault, name)?.ok_or_else(|| {
                    fail!(DraftOutdated, "{name} is no longer installed from a source")
                })?;
                // The review names the source of the draft, and must not fetch another one.
                if upstream.identifier != *shown {
                    return Err(fail!(
                        DraftOutdated,
                        "{name} comes from {} by now",
                        clean(upstream.identifier.as_str(), 200)
                    ));
                }
                // The recorded upstream also has the expected signer and digests, which the fetcher
                // checks.
                let fetched = fetch::fetch_upstream(self.context, &upstream, name)?;
                Ok(Some(Source::Fetched(Box::new(fetched))))
            }
            Some(DraftOrigin::Draft | DraftOrigin::Source) | None => Ok(None),
        }
    }

    /// Returns the recorded source of the installed skill if the draft claims that its folder is a
    /// copy of that source.
    fn recorded_source(&self, draft: &draft::Draft) -> Option<ProvenanceId> {
        let Request::Install { source } = &draft.request else {
            return None;
        };
        let installed = self.installed_state(&draft.name).ok().flatten()?;
        let is_copy = !source.identifier.as_str().starts_with("local:");
        (is_copy && installed.source == source.identifier).then_some(installed.source)
    }

    /// Adds what the agent chose for its draft (agents, folder, replacement) to the options for the
    /// gate. Returns the options for a draft of a service unchanged.
    pub(super) fn local_options(&self, options: Options) -> Options {
        let Some(local) = self.local else {
            return options;
        };
        let mut options = Options {
            agents: local.agents.clone(),
            replace: local.replace,
            reject_linked_name: true,
            // A folder or source may have grown since the draft was made, so bound the work of the
            // scan.
            most_work: Some(SERVICE_WORK),
            require_installed: local.origin == DraftOrigin::Update,
            ..options
        };
        if let DraftOrigin::Folder(_) = &local.origin {
            // The skill's name is read from the folder again. If it has changed, the draft is
            // outdated.
            options.name = None;
            options.provenance = self.recorded_source(&local.draft);
        }
        // An update keeps the installed skill's agents, and the files like secrets that the owner
        // included.
        if let (DraftOrigin::Update, Ok(skill)) = (
            &local.origin,
            run::inspect_skill(self.vault, &local.draft.name),
        ) {
            let examined = skill.examined;
            options.agents = examined.manifest.agents;
            options.include.extend(secrets::paths_of(&examined.files));
        }
        options
    }
}

/// Returns the digest of everything that accepting a draft of this machine decides: the files, the
/// agents that the skill is for, the version that it replaces, and whether it ends a hold.
pub(super) fn local_digest(
    files: &[File],
    candidate: &Candidate,
    before: Option<&PresentSkill>,
    is_held: bool,
) -> Digest {
    let replaced = before.map(|before| (&before.source, before.bundle.to_string()));
    let decided = json!({
        "files": bundle::files_sha256(files),
        "agents": candidate.agents(),
        "source": candidate.provenance.identifier,
        "replaces": replaced,
        "ends_hold": is_held,
    });
    Digest::of(decided.to_string().as_bytes())
}

/// Formats the folder and the agents that the agent chose for the draft, if any.
pub(super) fn local_line(local: &LocalDraft) -> Option<String> {
    let folder = match &local.origin {
        DraftOrigin::Folder(path) => Some(format!("  in the folder {}", clean(path, 400))),
        DraftOrigin::Draft | DraftOrigin::Source | DraftOrigin::Update => None,
    };
    let agents = (!local.agents.is_empty()).then(|| {
        let names = join(local.agents.iter().map(AgentId::as_str));
        format!("  only for {names}, and the agents that it names")
    });
    let lines: Vec<String> = folder.into_iter().chain(agents).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Formats a warning with the source of the installed skill, if the draft has another one.
pub(super) fn replaced_line(
    content: &draft::Draft,
    before: Option<&PresentSkill>,
) -> Option<String> {
    let before = before?;
    let is_same = match &content.request {
        Request::Install { source } => source.identifier == before.source,
        // A skill that agents wrote as text (source `inline:…`) may be replaced by another such
        // text without a warning.
        Request::Propose { .. } => before.source.as_str().starts_with("inline:"),
        Request::Remove => true,
    };
    let source = clean(before.source.as_str(), 200);
    (!is_same).then(|| format!("  {WARN}!{WARN:#} it replaces the skill from {source}"))
}

/// Formats a warning with the skill's agents before and after the draft, if they differ.
pub(super) fn agents_line(candidate: &Candidate, before: Option<&PresentSkill>) -> Option<String> {
    let listed = |agents: &[AgentId]| match agents {
        [] => "all agents".to_owned(),
        agents => join(agents.iter().map(AgentId::as_str)),
    };
    let (old, new) = (&before?.agents, candidate.agents());
    let (shown_old, shown_new) = (listed(old), listed(&new));
    (*old != new)
        .then(|| format!("  {WARN}!{WARN:#} it was for {shown_old}, and will be for {shown_new}"))
}
