//! Reviews of drafts. A draft is a proposed change of one skill, from an agent on this machine or
//! from a member of a service's namespace. This module shows what a draft would change in this
//! vault, and carries it out after a person has accepted it.
//!
//! If a server holds the vault's key and signs it, the draft is compared with the published
//! release, and the server carries it out.

mod checks;
mod local;

use vault_api::Draft;
use vault_format::{
    bundle::{self, File},
    draft::{self, DraftContext, DraftError, Request},
    hash::Digest,
    name::{AgentId, SkillName, Slug},
    provenance::ProvenanceId,
};
use vault_gate::{RawFile, secrets};
use vault_library::{
    Origin, Vault,
    admit::{
        Candidate, Neighbours, Options, Source, admit_one, examine_candidate,
        remove::{RemoveSkills, remove_skills},
    },
    run::{self, RunError},
    shelf::drafts::{LocalDraft, local_slug},
};
use vault_store::clock::{Clock, SystemClock};

use self::checks::{check_base, outdated_or, reject_exceptions};
use self::local::{agents_line, local_digest, local_line, replaced_line};
use crate::{
    context::Context,
    errors::Failure,
    output::{
        BAD, BOLD, DIM, GOOD, WARN, clean, count,
        diff::{FileChange, RenderedDiff, by_path, diff_files, file_changes},
    },
    service::connection::Connection,
    tasks::{
        admission::{admission_failure, require_includes, texts::Texts},
        fetch,
        publishing::{
            Publisher, ServedVault,
            review::{ReviewFlags, write_sides},
        },
    },
};

/// The options with which a person reviews and accepts a draft.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Names of gate rules (`--allow`) whose findings of level `flag` are accepted for exactly
    /// these files.
    pub allow: Vec<String>,
    /// The reason for `allow`, which is signed with the exception.
    pub reason: Option<String>,
    /// Paths of files (`--include`) that become part of the skill although they look like secrets.
    pub include: Vec<String>,
    /// Whether to accept a draft whose skill has changed since the author saw it (`--anyway`).
    pub anyway: bool,
    /// The digest ([`Review::bundle`]) that the user has reviewed elsewhere and accepts without a
    /// question.
    pub bundle: Option<Digest>,
    /// How to show the changes: `--full` prints all lines, and `--out` writes both sides to a
    /// folder.
    pub review: ReviewFlags,
}

/// Reads and reviews the drafts of one namespace, or one draft of this machine.
pub struct Reviewer<'a> {
    context: &'a Context,
    vault: &'a Vault,
    /// The namespace that the drafts must name. Drafts of this machine have a fixed name.
    slug: Slug,
    /// The draft of this machine under review; `None` for drafts of a service.
    local: Option<&'a LocalDraft>,
    /// Reads the published skills; only if the server signs the vault.
    served: Option<ServedVault<'a>>,
}

/// The present state of a skill, without the draft.
pub struct PresentSkill {
    /// Version of the skill in its signed manifest, counted from 1.
    pub version: u64,
    /// Where the skill came from, as its manifest records it.
    pub source: ProvenanceId,
    /// SHA-256 of its bundle, the object with the signed manifest and all files.
    pub bundle: Digest,
    /// The agents that may see the skill; empty means all.
    pub agents: Vec<AgentId>,
    /// Files of the skill, in the order of the manifest.
    pub files: Vec<File>,
}

/// The effect of accepting a draft.
enum Effect {
    /// Adds or replaces the skill with these files, which have passed the gate.
    Admit(Box<Candidate>),
    Remove(SkillName),
    /// Asks the server to carry out the draft. The digest is the present bundle if it is not the
    /// one that the author saw: the server then replaces exactly this bundle.
    Server(Option<Digest>),
    /// Nothing, because the vault already has the result. An earlier run may have ended before it
    /// could report that.
    None,
}

/// A draft with everything that a person needs to decide.
pub struct Review {
    /// The draft under review.
    pub draft: Draft,
    /// The review for people: heading, findings of the gate, and differences.
    pub shown: RenderedDiff,
    /// SHA-256 of exactly what is shown: of the draft's files, or of the draft itself if it removes
    /// a skill. For a draft of this machine, of the files, the agents and both sources together.
    pub bundle: Digest,
    /// Paths of the draft's files that are left out because they look like secrets.
    pub left_out: Vec<String>,
    /// The files that the draft adds, changes or removes, for `--json`.
    pub files: Vec<FileChange>,
    effect: Effect,
    /// SHA-256 of the skill's bundle when the draft was compared with it; `None` if the skill was
    /// not installed. [`Reviewer::carry_out`] fails if it has changed since.
    before: Option<Digest>,
}

impl Review {
    /// Returns whether this vault already has what the draft asks for.
    pub const fn is_taken(&self) -> bool {
        matches!(self.effect, Effect::None)
    }

    /// Returns a text about the files that are left out, if there are any: those that this machine
    /// leaves out of fetched files, or else the service's note about those that it has left out of
    /// the draft.
    pub fn left_out_text(&self) -> Option<String> {
        secrets::left_out_text(&self.left_out).or_else(|| self.draft.reason.clone())
    }

    /// Returns the digest of the bundle that the server will replace, if the draft's author saw
    /// another one. The server refuses to replace any other bundle.
    pub const fn replaced_bundle(&self) -> Option<&Digest> {
        match &self.effect {
            Effect::Server(base) => base.as_ref(),
            Effect::Admit(_) | Effect::Remove(_) | Effect::None => None,
        }
    }
}

impl<'a> Reviewer<'a> {
    /// Creates the reviewer of a namespace's drafts. Asks the service whether it signs the vault
    /// itself.
    pub fn new(
        context: &'a Context,
        vault: &'a Vault,
        connection: &'a Connection,
    ) -> Result<Self, Failure> {
        let publisher = Publisher::new(context, vault, connection)?;
        let served = context.block_on(publisher.into_served())?;
        Ok(Self {
            context,
            vault,
            slug: connection.slug.clone(),
            local: None,
            served,
        })
    }

    /// Creates the reviewer of a draft that an agent made on this machine.
    pub fn local(context: &'a Context, vault: &'a Vault, draft: &'a LocalDraft) -> Self {
        Self {
            context,
            vault,
            slug: local_slug(),
            local: Some(draft),
            served: None,
        }
    }

    /// Returns whether the draft was made on this machine and never sent to a service.
    pub const fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Returns whether the server signs the vault.
    pub const fn is_server(&self) -> bool {
        self.served.is_some()
    }

    /// Returns whether this vault has another version of the skill than the one that the draft's
    /// author saw. Does not read the draft's content.
    pub fn differs_from_base(&self, draft: &Draft) -> Result<bool, Failure> {
        let Some(name) = &draft.name else {
            return Ok(false);
        };
        let installed = self.installed_state(name)?.map(|before| before.bundle);
        Ok(installed != draft.base_bundle_hash)
    }

    /// Returns the paths of the installed skill's files that look like secrets.
    pub fn present_secrets(&self, draft: &Draft) -> Result<Vec<String>, Failure> {
        let Some(name) = &draft.name else {
            return Ok(Vec::new());
        };
        let files = self.installed_state(name)?.map(|before| before.files);
        Ok(secrets::paths_of(&files.unwrap_or_default()))
    }

    /// Runs the gate on a draft and compares it with the installed skill. Fails with exit 5 if the
    /// gate refuses it, and with exit 3 if the skill has changed since its author saw it.
    pub fn review_draft(
        &self,
        draft: &Draft,
        bytes: &[u8],
        choices: &Choices,
    ) -> Result<Review, Failure> {
        let content = self.parse_draft(draft, bytes)?;
        if self.is_server() {
            reject_exceptions(choices)?;
        }
        let before = self.present_skill(&content.name)?;
        let mut shown = RenderedDiff {
            lines: vec![heading_lines(draft, &content, before.as_ref())],
            hidden: 0,
        };
        shown.lines.extend(self.local.and_then(local_line));
        if self.is_local() {
            shown.lines.extend(replaced_line(&content, before.as_ref()));
        }
        let bundle = before.as_ref().map(|before| before.bundle);
        let mut left_out = Vec::new();
        let (effect, files) = match &content.request {
            Request::Remove if before.is_none() => (Effect::None, None),
            Request::Remove => (Effect::Remove(content.name.clone()), None),
            Request::Propose { .. } | Request::Install { .. } => {
                let candidate = self.draft_candidate(draft, &content, choices, &mut shown)?;
                // If the server signs, it decides for which agents.
                if !self.is_server() {
                    shown.lines.extend(agents_line(&candidate, before.as_ref()));
                }
                let place = shown.lines.len();
                left_out.clone_from(&candidate.secrets.left_out);
                let kept = self.is_kept(&candidate);
                let kept =
                    kept.map_err(|error| outdated_or(error, (&content, choices), bundle.as_ref()))?;
                let outcome = effect_of(candidate, (choices, kept), before.as_ref(), &mut shown);
                // Only a version that is added ends the hold; its line stands above the difference.
                if matches!(outcome.0, Effect::Admit(_)) && !self.is_server() {
                    let line = self.hold_end_notice(&content.name)?;
                    shown.lines.splice(place..place, line);
                }
                outcome
            }
        };
        // If the vault already has the result, its state necessarily differs from the draft's base.
        if !matches!(effect, Effect::None) && !choices.anyway {
            check_base(&content, bundle.as_ref())?;
        }
        let file_changes = file_changes(
            &by_path(before.as_ref().map_or(&[], |before| &before.files)),
            &by_path(files.as_deref().unwrap_or_default()),
        );
        let digest = match &files {
            Some(files) => self.reviewed_digest(files, &effect, &content.name, before.as_ref())?,
            // A removal has no files, so the digest of the draft itself identifies it.
            None => Digest::of(bytes),
        };
        shown.lines.push(format!("{DIM}digest {digest}{DIM:#}"));
        let review = Review {
            draft: draft.clone(),
            shown,
            bundle: digest,
            left_out,
            files: file_changes,
            effect: self.signed_effect(effect, &content, bundle),
            before: bundle,
        };
        if let Some(folder) = &choices.review.out {
            let before = before.map_or_else(Vec::new, |before| before.files);
            let name = content.name.as_str();
            let files = files.unwrap_or_default();
            write_sides(
                folder,
                &[("before", name, &before), ("after", name, &files)],
            )?;
        }
        Ok(review)
    }

    /// Returns the digest for `--bundle` of a draft with these files.
    fn reviewed_digest(
        &self,
        files: &[File],
        effect: &Effect,
        name: &SkillName,
        before: Option<&PresentSkill>,
    ) -> Result<Digest, Failure> {
        Ok(match effect {
            // A draft of this machine decides more than its files.
            Effect::Admit(candidate) if self.is_local() => {
                local_digest(files, candidate, before, self.is_held(name)?)
            }
            _ => bundle::files_sha256(files),
        })
    }

    /// Reads and examines the files of a draft, which must be the skill that it is about.
    fn draft_candidate(
        &self,
        draft: &Draft,
        content: &draft::Draft,
        choices: &Choices,
        shown: &mut RenderedDiff,
    ) -> Result<Candidate, Failure> {
        let source = self.draft_source(draft, content)?;
        let candidate = self.examine_files(content, source, choices, shown)?;
        if candidate.package.name == content.name {
            return Ok(candidate);
        }
        // An agent may write another skill into the folder that it has named.
        Err(fail!(
            DraftOutdated,
            "the draft {} is about {}, and its folder has the skill {} now",
            content.draft_id,
            content.name,
            candidate.package.name
        ))
    }

    /// Returns the effect where the server signs: the gate ran here only to inform the reader, and
    /// the server runs its own. Otherwise returns the effect itself.
    fn signed_effect(
        &self,
        effect: Effect,
        content: &draft::Draft,
        bundle: Option<Digest>,
    ) -> Effect {
        match effect {
            Effect::Admit(_) | Effect::Remove(_) if self.is_server() => {
                // Name the present bundle only if it is not the base of the draft. The server then
                // replaces exactly what was reviewed here.
                Effect::Server(bundle.filter(|_| content.check_base(bundle.as_ref()).is_err()))
            }
            effect => effect,
        }
    }

    /// Returns the skill as it is now: in the published release if the server signs the vault, else
    /// in this vault.
    fn present_skill(&self, name: &SkillName) -> Result<Option<PresentSkill>, Failure> {
        let Some(served) = &self.served else {
            return self.installed_state(name);
        };
        let served = self.context.block_on(served.fetch_skill(name))?;
        Ok(served.map(|(bundle, opened)| PresentSkill {
            version: opened.manifest.version,
            source: opened.manifest.provenance.identifier,
            agents: opened.manifest.agents,
            bundle,
            files: opened.files,
        }))
    }

    /// Carries out a reviewed draft, and closes it if it is one of this machine. Returns whether the
    /// vault has changed.
    pub fn carry_out(&self, review: &Review) -> Result<bool, Failure> {
        // Another command may have changed the skill while the question waited for its answer.
        if let Effect::Admit(_) | Effect::Remove(_) = &review.effect
            && let Some(name) = &review.draft.name
            && self.installed_state(name)?.map(|now| now.bundle) != review.before
        {
            return Err(fail!(
                DraftOutdated,
                "{name} has changed since the draft {} was shown",
                review.draft.id
            )
            .hint(format!(
                "vault drafts accept {} shows it again",
                review.draft.id
            )));
        }
        if let Some(local) = self.local {
            return self.accept_local(local, review);
        }
        match &review.effect {
            Effect::None | Effect::Server(_) => Ok(false),
            Effect::Remove(name) => {
                let names = vec![name.to_string()];
                let request = RemoveSkills {
                    names,
                    ..RemoveSkills::default()
                };
                Ok(!remove_skills(self.vault, &request)?.removed.is_empty())
            }
            Effect::Admit(candidate) => {
                let name = candidate.package.name.as_str();
                let candidate = on_base(candidate, review);
                let report = admit_one(self.vault, &candidate).map_err(|error| {
                    admission_failure(name, &Texts::of_fetched(name, &[]), error)
                })?;
                Ok(report.is_change())
            }
        }
    }

    /// Returns the skill of this name that this vault itself signs, if there is one.
    fn installed_state(&self, name: &SkillName) -> Result<Option<PresentSkill>, Failure> {
        match run::inspect_skill(self.vault, name) {
            Ok(skill) if skill.origin == Origin::Local => Ok(Some(PresentSkill {
                version: skill.examined.manifest.version,
                source: skill.examined.manifest.provenance.identifier,
                agents: skill.examined.manifest.agents,
                bundle: skill.bundle,
                files: skill.examined.files,
            })),
            // A skill of a linked vault is not changed by drafts of this one.
            Ok(_) | Err(RunError::UnknownSkill(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn parse_draft(&self, draft: &Draft, bytes: &[u8]) -> Result<draft::Draft, Failure> {
        let parse = |vault_id| {
            let slug = &self.slug;
            draft::Draft::parse(bytes, &DraftContext { slug, vault_id })
        };
        let id = match &self.served {
            Some(served) => served.vault_id(),
            None => Some(self.vault.id()),
        };
        // A draft from before the first release names no vault.
        let parsed = match parse(id) {
            Err(DraftError::VaultId) => parse(None),
            parsed => parsed,
        };
        parsed.map_err(|error| {
            fail!(
                AnswerUnreadable,
                "the draft {} cannot be used: {error}",
                draft.id
            )
            .hint(format!("vault drafts decline {} --reason \"…\"", draft.id))
        })
    }

    /// Returns the files of the draft: those that it contains, or those that the source it names
    /// has now.
    fn draft_source(&self, draft: &Draft, content: &draft::Draft) -> Result<Source, Failure> {
        match &content.request {
            Request::Propose { files } => Ok(Source::Text {
                files: files.iter().cloned().map(RawFile::from).collect(),
                by: draft.submitted_by.user_id.clone(),
            }),
            Request::Install { source } => {
                if let Some(source) = self.local_source(&content.name, &source.identifier)? {
                    return Ok(source);
                }
                // The author of the draft chose the source, so it is fetched without this user's
                // access.
                let fetched = fetch::fetch_named(self.context, source, &content.name)?;
                Ok(Source::Fetched(Box::new(fetched)))
            }
            Request::Remove => Err(fail!(Internal, "a removal has no files")),
        }
    }

    /// Runs the gate on the files of a draft, and adds its findings to `shown`.
    fn examine_files(
        &self,
        content: &draft::Draft,
        source: Source,
        choices: &Choices,
        shown: &mut RenderedDiff,
    ) -> Result<Candidate, Failure> {
        let options = Options {
            name: Some(content.name.clone()),
            strict: self.context.is_strict()?,
            replace: true,
            allow: choices.allow.clone(),
            reason: choices.reason.clone(),
            include: choices.include.clone(),
            // Another member wrote the files, so the skill's actions run with a reduced
            // environment.
            by_others: true,
            ..Options::default()
        };
        let options = self.local_options(options);
        let name = content.name.to_string();
        require_includes(&[&source], &choices.include)?;
        let texts = Texts::of_source(&name, &source);
        // A vault that the server signs has other skills than this machine, so its names are not
        // compared with the local ones.
        let mut neighbours = match &self.served {
            Some(_) => Neighbours::new(None, SystemClock.now()),
            None => Neighbours::for_vault(self.vault),
        };
        let candidate = examine_candidate(source, &options, &mut neighbours)
            .map_err(|error| admission_failure(&name, &texts, error))?;
        let package = &candidate.package;
        let lines = &mut shown.lines;
        lines.extend(
            package
                .findings
                .iter()
                .map(|finding| texts.render_finding(finding)),
        );
        let number = count(package.findings.len() as u64, "finding");
        lines.push(format!("{DIM}the gate has {number}{DIM:#}"));
        Ok(candidate)
    }
}

/// Returns the candidate that may only replace what was reviewed. The base makes the library compare
/// the skill once more under its lock, where no other command can change it.
fn on_base(candidate: &Candidate, review: &Review) -> Candidate {
    let mut candidate = candidate.clone();
    candidate.options.base = Some(review.before.into());
    candidate
}

/// Determines the effect of accepting a draft with files, and returns it with those files. Adds
/// their differences from the present files to `shown`. `kept` tells whether the vault already has
/// the result, if that is known; otherwise paths and bytes are compared.
fn effect_of(
    candidate: Candidate,
    (choices, kept): (&Choices, Option<bool>),
    before: Option<&PresentSkill>,
    shown: &mut RenderedDiff,
) -> (Effect, Option<Vec<File>>) {
    let files = candidate.package.files.clone();
    let none = Vec::new();
    let old = before.map_or(&none, |before| &before.files);
    // A proposal to a service carries no modes, so compare only paths and bytes.
    let is_same = kept.unwrap_or_else(|| {
        let mut pairs = old.iter().zip(&files);
        old.len() == files.len()
            && pairs.all(|(old, new)| old.path == new.path && old.bytes == new.bytes)
    });
    if is_same && before.is_some() {
        let same = format!("{DIM}the vault has exactly these files{DIM:#}");
        shown.lines.push(same);
        return (Effect::None, Some(files));
    }
    let detail = choices.review.detail_level();
    shown.add_difference(diff_files(&by_path(old), &by_path(&files), detail));
    (Effect::Admit(Box::new(candidate)), Some(files))
}

/// Formats the heading of a review: the skill, the kind of change, the author and the source.
fn heading_lines(draft: &Draft, content: &draft::Draft, before: Option<&PresentSkill>) -> String {
    let author = &draft.submitted_by;
    let who = author.display_name();
    let what = match (&content.request, before) {
        (Request::Remove, Some(before)) => {
            format!("{BAD}remove{BAD:#} version {}", before.version)
        }
        (Request::Remove, None) => "remove, which is done already".to_owned(),
        (_, Some(before)) => format!(
            "{WARN}change{WARN:#} version {} → {}",
            before.version,
            before.version + 1
        ),
        (_, None) => format!("{GOOD}new{GOOD:#}"),
    };
    let from = match &content.request {
        Request::Install { source } => {
            let at = source.reference.as_deref();
            let at = at.map_or_else(String::new, |at| format!(" at {}", clean(at, 80)));
            format!("\n  from {}{at}", clean(source.identifier.as_str(), 200))
        }
        Request::Propose { .. } | Request::Remove => String::new(),
    };
    let lacks = draft.reason.as_ref();
    let lacks = lacks.map_or_else(String::new, |lacks| {
        format!(
            "\n  {WARN}!{WARN:#} the draft came in {}",
            clean(lacks, 500)
        )
    });
    format!(
        "{BOLD}{}{BOLD:#}  {what}  {DIM}by {}, {}, draft {}{DIM:#}{from}{lacks}",
        content.name,
        clean(who, 80),
        draft.submitted_at,
        draft.id
    )
}
