//! The sources from which skills are admitted (a local folder, a fetched skill, submitted text, or
//! an earlier version), and the step from a source to a candidate: reading it, running the gate,
//! and describing it for the manifest.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::bundle::{self, File};
use vault_format::hash::Digest;
use vault_format::manifest::{Manifest, RenderedFrom, SignedManifest, Waiver};
use vault_format::name::{AgentId, SkillName};
use vault_format::provenance::{Provenance, ProvenanceId};
use vault_format::time::Timestamp;
use vault_gate::derived;
use vault_gate::links;
use vault_gate::package::Package;
use vault_gate::secrets::{self, SeparatedFiles};
use vault_gate::{self as gate, GateOptions, Outcome, RawFile};
use vault_shelf::fetch::{FetchedSkill, Upstream};

use super::{AdmitError, Neighbours, local};
use crate::disk;
use crate::disk::source::{self, SourceError};
use crate::installed::project_skills::ProjectFolder;
use crate::store::LIMITS;
use crate::vault::own_skills::LocalSource;

/// The origin of a skill's files.
#[derive(Clone, Debug)]
pub enum Source {
    /// The path of a local folder, or of its SKILL.md.
    Folder(String),
    /// A folder that a search of a folder of this machine found. Symbolic links between the two are
    /// rejected, because the searched folder may be a clone of a repository that contains them.
    FolderBelow {
        /// The folder that was searched.
        top: PathBuf,
        /// The path of the skill below it, with `/`; empty for the searched folder itself.
        below: String,
        /// SHA-256 of the SKILL.md at the time of the search; `None` if it could not be read. The
        /// user chose the skill by what it said, so another SKILL.md is an error.
        document: Option<Digest>,
    },
    /// A folder of a project, by its path below the project. Symbolic links on the way to it are
    /// rejected, because a repository may contain them.
    InProject {
        /// Folder of the project.
        project: ProjectFolder,
        /// Path of the skill below the project, with `/`.
        path: String,
    },
    /// A folder that was put into the vault's folder by hand, by its path below that folder.
    /// Symbolic links on the way to it are rejected.
    InVault {
        /// Path of the vault's folder.
        vault: PathBuf,
        /// Path of the skill below it, with `/`.
        path: String,
    },
    /// A skill that a [`vault_shelf::fetch::Fetch`] fetched, with its source.
    Fetched(Box<FetchedSkill>),
    /// Files that a user or client submitted; recorded as `inline:<by>`.
    Text {
        /// The files, unchecked.
        files: Vec<RawFile>,
        /// Id of the user or client that submitted the files.
        by: String,
    },
    /// A skill that was signed before.
    Earlier(Box<Earlier>),
}

impl Source {
    /// Makes a source from the path of a local folder.
    pub fn folder(path: &Path) -> Self {
        Self::Folder(path.to_string_lossy().into_owned())
    }

    /// Returns the path of the folder or SKILL.md that the caller named or found by a search.
    pub fn folder_path(&self) -> Option<PathBuf> {
        match self {
            Self::Folder(path) => Some(path.into()),
            // Joining an empty path would add a slash.
            Self::FolderBelow { top, below, .. } if below.is_empty() => Some(top.clone()),
            Self::FolderBelow { top, below, .. } => Some(top.join(below)),
            _ => None,
        }
    }
}

/// A skill that was signed before, by this vault or another one: verified files with their
/// manifest.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// The name it is installed under.
    pub(crate) name: SkillName,
    pub(crate) manifest: Manifest,
    pub(crate) files: Vec<File>,
    /// Source from which the skill was fetched, as recorded for its bundle; `None` without a
    /// record.
    pub(crate) upstream: Option<Upstream>,
    /// Whether the exceptions and the strictness in its manifest were set on this machine.
    pub(crate) keeps_exceptions: bool,
    pub(crate) purpose: Purpose,
}

/// The reason for admitting a skill that was signed before. It decides the signature and the
/// version.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// To become the next version, unless the installed one has the same content.
    NextVersion {
        /// Whether another person wrote it. Has no effect if the installed version has the same
        /// files: then the recorded author stays.
        by_others: bool,
    },
    /// To be signed again with the same content, as the next version.
    SignAgain,
    /// To be installed with the signature and version of the publisher who signed it.
    Adopt(SignedManifest),
    /// To be signed as a variant for one agent: with files that a transform of the owner changed,
    /// and with the version of the skill that they come from.
    Variant(RenderedFrom),
}

/// The owner's choices for the admission of one skill.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct Options {
    /// The name in the vault; `None` means the name in the frontmatter.
    pub name: Option<SkillName>,
    /// Target agents in addition to those that the skill declares.
    pub agents: Vec<AgentId>,
    /// The source to record in place of the real one, if the files are a staged copy of something
    /// else. The real source is then not recorded, so it can't be checked for updates.
    pub provenance: Option<ProvenanceId>,
    /// The absolute path of the local archive that the files come from; `None` for a local folder,
    /// whose path is part of the [`Source`].
    pub archive: Option<PathBuf>,
    /// Keep the skill at the admitted version until an update names it.
    pub hold: bool,
    /// Replace an installed skill even if it came from another source.
    pub replace: bool,
    /// Whether security findings block the skill.
    pub strict: bool,
    /// Whether each weak hint is reported as a note. Otherwise hints are reported only where
    /// several of them add up to a warning.
    pub hints: bool,
    /// Limit on the work of the gate's scan, in bytes read; `None` means no limit. See
    /// [`gate::SERVICE_WORK`].
    pub most_work: Option<u64>,
    /// Rules, by name or id, whose findings the owner accepts for exactly these bytes.
    pub allow: Vec<String>,
    /// The owner's reason, recorded with each exception.
    pub reason: Option<String>,
    /// Rules, by name or id, for which the exceptions of the installed version no longer apply.
    pub end_exceptions: Vec<String>,
    /// Paths in the skill of files that look like secrets and are included anyway. Other such files
    /// are left out. Skills that were signed before keep all their files.
    pub include: Vec<String>,
    /// Whether symbolic links of a local folder are taken as copies of the files that they lead to.
    pub copy_links: bool,
    /// Whether another person wrote the files, such as a member whose draft is accepted. Actions of
    /// such a skill do not get the whole environment.
    pub by_others: bool,
    /// SHA-256 ([`bundle::files_sha256`]) over the files that were reviewed. Any other files are
    /// rejected.
    pub reviewed: Option<Digest>,
    /// The state under the name that a person compared the files with. The admission fails if
    /// something else is installed by then.
    pub base: Option<Base>,
    /// Keep the installed skill if it has the same files, even if its recorded source differs.
    pub skip_if_same_files: bool,
    /// Reject a name that a skill of a linked vault has.
    pub reject_linked_name: bool,
    /// Reject a skill of whose name no skill is installed, as for an update.
    pub require_installed: bool,
}

/// The state under a name, as a person saw it before they decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Base {
    /// No own skill.
    Absent,
    /// An own skill with this bundle.
    Bundle(Digest),
}

impl From<Option<Digest>> for Base {
    fn from(bundle: Option<Digest>) -> Self {
        bundle.map_or(Self::Absent, Self::Bundle)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            agents: Vec::new(),
            provenance: None,
            archive: None,
            hold: false,
            replace: false,
            strict: true,
            hints: false,
            most_work: None,
            allow: Vec::new(),
            reason: None,
            end_exceptions: Vec::new(),
            include: Vec::new(),
            copy_links: false,
            by_others: false,
            reviewed: None,
            base: None,
            skip_if_same_files: false,
            reject_linked_name: false,
            require_installed: false,
        }
    }
}

impl Options {
    /// Returns options that keep the agents, strictness and exceptions of an earlier manifest and
    /// add nothing to them.
    pub(crate) fn as_recorded() -> Self {
        Self {
            strict: false,
            ..Self::default()
        }
    }
}

/// A skill that passed the gate, with everything that its manifest and the records will say.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Files of the skill, and what the gate read from them.
    pub package: Package,
    /// The gate's outcome: accepted, with or without warnings.
    pub outcome: Outcome,
    /// Source, revision and time, as they are signed in the manifest.
    pub provenance: Provenance,
    /// The source to fetch updates from; `None` if the skill was not fetched.
    pub upstream: Option<Upstream>,
    /// The folder or archive of this machine that the files come from. `None` if the owner named
    /// another source for them.
    pub local: Option<PathBuf>,
    /// The owner's choices, with what an earlier manifest adds to them.
    pub options: Options,
    /// The files of the source that look like secrets.
    pub secrets: Secrets,
    /// Symbolic links of the source that were replaced by copies of their targets, as paths in the
    /// skill.
    pub copied_links: Vec<String>,
    /// Whether it was submitted as text. Text has no file modes, and it may replace only text and
    /// skills from local folders.
    pub(super) is_text: bool,
    /// The manifest that was signed before, and why it is admitted again; `None` for new files.
    pub(super) earlier: Option<(Manifest, Purpose)>,
}

/// The files of a source that look like secrets, by their paths in the skill.
#[derive(Clone, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Secrets {
    /// Files that look like secrets and are part of the skill, because the owner named them.
    pub included: Vec<String>,
    /// Files that look like secrets and were left out.
    pub left_out: Vec<String>,
}

/// Returns the entries of `include` that match no file in these sources that looks like a secret. A
/// source that can't be read counts as empty; admission reports the error.
pub fn unknown_includes<'n>(sources: &[&Source], include: &'n [String]) -> Vec<&'n str> {
    let mut secrets_found = Vec::new();
    for source in sources {
        let files = match source {
            Source::Folder(path) => {
                // A link counts as no file here, whether it is replaced by a copy or not.
                let folder = source::read_with_links(Path::new(path), LIMITS, &gate::is_ignored);
                folder
                    .map(|(folder, _)| folder.files)
                    .map_err(AdmitError::from)
            }
            Source::FolderBelow { top, below, .. } => local::read_below(top, below, true)
                .map(|(folder, _)| folder.files)
                .map_err(AdmitError::from),
            Source::Fetched(skill) => Ok(skill.files.clone()),
            Source::Text { files, .. } => Ok(files.clone()),
            Source::InProject { .. } | Source::InVault { .. } | Source::Earlier(_) => {
                Ok(Vec::new())
            }
        };
        // Separate without `include`, so that every file that looks like a secret is in the list.
        secrets_found.extend(secrets::separate_secrets(files.unwrap_or_default(), &[]).left_out);
    }
    let is_unknown = |name: &&String| {
        let named = std::slice::from_ref(*name);
        !secrets_found
            .iter()
            .any(|path| secrets::is_named(path, named))
    };
    let unknown = include.iter().filter(is_unknown);
    unknown.map(String::as_str).collect()
}

impl Candidate {
    /// Returns the agents that the skill will be signed for, in order; none means all.
    pub fn agents(&self) -> Vec<AgentId> {
        let mut agents = self.package.frontmatter.agents.clone();
        agents.extend(self.options.agents.iter().cloned());
        // Sort: another order of the same agents must not make a new version.
        agents.sort();
        agents.dedup();
        agents
    }

    /// Returns the record of the folder or archive on this machine that the candidate comes from.
    /// `None` for other sources, and for a path that is not UTF-8, which can't be recorded.
    pub(super) fn local_source(&self) -> Option<LocalSource> {
        Some(LocalSource {
            identifier: self.provenance.identifier.clone(),
            path: self.local.as_ref()?.to_str()?.to_owned(),
            copied_links: self.copied_links.clone(),
        })
    }
}

/// Reads a source and runs the gate; changes nothing. Fails with the findings if the gate blocks
/// the skill.
pub fn examine_candidate(
    source: Source,
    options: &Options,
    neighbours: &mut Neighbours<'_>,
) -> Result<Candidate, AdmitError> {
    let is_text = matches!(source, Source::Text { .. });
    let mut input = GateInput::read_source(source, options.clone(), neighbours.now())?;
    let gated = input.pass_gate(neighbours)?;
    let GateInput {
        mut options,
        provenance,
        upstream,
        local,
        copied_links,
        earlier,
        ..
    } = input;
    if let Some(reviewed) = options.reviewed {
        // Hash the files as the gate parsed them, because exactly these are signed.
        let found = bundle::files_sha256(&gated.package.files);
        if found != reviewed {
            return Err(AdmitError::NotReviewed { reviewed, found });
        }
    }
    // An adopted skill keeps a signature that this machine did not make, so its manifest must not
    // declare anything that its files do not.
    if let Some((manifest, Purpose::Adopt(_))) = &earlier {
        derived::compare_with_files(manifest, &gated.package.files)?;
    }
    let provenance = match provenance {
        Some(provenance) => provenance,
        // A folder's name may contain characters that an identifier may not. The skill's own name
        // always fits.
        None => Provenance {
            identifier: format!("local:{}", gated.package.name).parse()?,
            revision: None,
            fetched_at: neighbours.now(),
        },
    };
    provenance.check_revision()?;
    // Earlier content was accepted for this vault already, so its source may differ from that of
    // the installed version.
    options.replace |= earlier.is_some();
    // The recorded source of text is its submitter. The same files from another submitter are no
    // new version.
    options.skip_if_same_files |= is_text;
    let candidate = Candidate {
        package: gated.package,
        outcome: gated.outcome,
        provenance,
        upstream,
        local,
        options,
        secrets: gated.secrets,
        copied_links,
        is_text,
        earlier,
    };
    // Profiles use this id for agents that nothing names. What was signed with it stays usable.
    if candidate.earlier.is_none() && candidate.agents().iter().any(AgentId::is_any) {
        return Err(AdmitError::AnyAgent(candidate.package.name));
    }
    Ok(candidate)
}

/// The files that the gate passed, with its outcome.
struct GatedFiles {
    package: Package,
    outcome: Outcome,
    secrets: Secrets,
}

/// The input of the gate and of the manifest, in the same form for every source.
struct GateInput {
    files: Vec<RawFile>,
    folder: Option<String>,
    waivers: Vec<Waiver>,
    /// Exceptions of the plain skill, if the input is a variant of it. They apply to the variant
    /// too.
    inherited: Vec<Waiver>,
    options: Options,
    provenance: Option<Provenance>,
    upstream: Option<Upstream>,
    local: Option<PathBuf>,
    copied_links: Vec<String>,
    earlier: Option<(Manifest, Purpose)>,
}

impl GateInput {
    fn read_source(source: Source, options: Options, now: Timestamp) -> Result<Self, AdmitError> {
        let recorded = |identifier, revision| Provenance {
            identifier,
            revision,
            fetched_at: now,
        };
        let given = options.provenance.clone();
        let mut input = Self {
            files: Vec::new(),
            folder: None,
            waivers: Vec::new(),
            inherited: Vec::new(),
            options,
            provenance: given.map(|identifier| recorded(identifier, None)),
            upstream: None,
            local: None,
            copied_links: Vec::new(),
            earlier: None,
        };
        match source {
            Source::Folder(path) => {
                let (folder, copied_links) = local::read_folder(&path, input.options.copy_links)?;
                input.copied_links = copied_links;
                // If another source is given, the path is that of a staged copy, which is not
                // recorded.
                input.local = input.provenance.is_none().then(|| folder.path.clone());
                input.read_local(folder, now);
            }
            Source::FolderBelow {
                top,
                below,
                document,
            } => {
                let (folder, links) = local::read_below(&top, &below, input.options.copy_links)?;
                local::check_document(&folder, document)?;
                let (folder, copied_links) = source::replace_links_by_copies((folder, links))?;
                input.copied_links = copied_links;
                input.local = input.provenance.is_none().then(|| folder.path.clone());
                input.read_local(folder, now);
            }
            Source::InVault { vault, path } => {
                let top = disk::resolve(&vault).map_err(SourceError::from)?;
                let below = Path::new(&path);
                let folder = source::read_beneath(&top, below, LIMITS, &gate::is_ignored)?;
                input.read_local(folder, now);
            }
            Source::InProject { project, path } => {
                let path = path.strip_suffix("/SKILL.md").unwrap_or(&path);
                let (top, below) = (project.path(), Path::new(path));
                let folder = source::read_beneath(top, below, LIMITS, &gate::is_ignored)?;
                input.read_local(folder, now);
            }
            Source::Fetched(skill) => {
                input.files = skill.files;
                input.folder = skill.folder;
                input.copied_links.clone_from(&skill.upstream.copied_links);
                // A source that the owner named replaces the real one in all records, so updates
                // never fetch from the real one.
                if input.provenance.is_none() {
                    let upstream = skill.upstream;
                    let revision = upstream.revision.clone();
                    input.provenance = Some(recorded(upstream.identifier.clone(), revision));
                    input.upstream = Some(upstream);
                    input.local = input.options.archive.take();
                }
            }
            Source::Text { files, by } => {
                input.files = files;
                input.provenance = Some(recorded(format!("inline:{by}").parse()?, None));
            }
            Source::Earlier(earlier) => input.read_earlier(*earlier),
        }
        Ok(input)
    }

    /// Leaves out the files that look like secrets, and runs the gate on the others. Fails with the
    /// findings if the gate blocks the skill.
    fn pass_gate(&mut self, neighbours: &mut Neighbours<'_>) -> Result<GatedFiles, AdmitError> {
        let files = std::mem::take(&mut self.files);
        // Keep all files of a skill that was signed before: its author decided about them then.
        let separated = if self.earlier.is_some() {
            SeparatedFiles {
                files,
                ..SeparatedFiles::default()
            }
        } else {
            secrets::separate_secrets(files, &self.options.include)
        };
        // The gate does not see the files that are left out, so their warnings are added to its
        // verdict.
        let mut findings = separated.findings();
        findings.extend(links::copied_findings(&self.copied_links));
        let is_from_source = self.upstream.is_some() || self.local.is_some();
        let SeparatedFiles {
            files,
            included,
            left_out,
        } = separated;
        let provenance = self.provenance.as_ref();
        let gate_options = GateOptions {
            strict: self.options.strict,
            name: self.options.name.clone(),
            folder: self.folder.as_deref(),
            allow: self.options.allow.clone(),
            reason: self.options.reason.as_deref(),
            waivers: std::mem::take(&mut self.waivers),
            inherited: std::mem::take(&mut self.inherited),
            ended: self.options.end_exceptions.clone(),
            publisher: provenance
                .and_then(|provenance| gate::publisher_of_source(provenance.identifier.as_str()))
                .into_iter()
                .collect(),
            hints: self.options.hints,
            before: &[],
            most_work: self.options.most_work,
        };
        let mut verdict = neighbours.run_gate(files, gate_options)?;
        if let Some(package) = verdict.package.as_ref().filter(|_| is_from_source) {
            findings.extend(neighbours.renamed_finding(package)?);
        }
        for finding in findings {
            verdict.add_warning(finding);
        }
        match verdict.package {
            Some(package) => Ok(GatedFiles {
                package,
                outcome: verdict.outcome,
                secrets: Secrets { included, left_out },
            }),
            None => Err(AdmitError::Blocked {
                findings: verdict.findings,
            }),
        }
    }

    /// Takes the files of a local folder and records it as the source `local:<folder's name>`,
    /// unless the owner gave another source. If the name does not fit into an identifier, the
    /// source stays empty, and the skill's own name is recorded later.
    fn read_local(&mut self, folder: source::SourceFolder, now: Timestamp) {
        if self.provenance.is_none() {
            let name = folder.name.as_deref().unwrap_or("folder");
            let identifier = format!("local:{name}").parse().ok();
            self.provenance = identifier.map(|identifier| Provenance {
                identifier,
                revision: None,
                fetched_at: now,
            });
        }
        self.files = folder.files;
        self.folder = folder.name;
    }

    /// Takes a skill that was signed before. The strictness and the exceptions in its manifest
    /// apply only if this machine set them; options can only add to them.
    fn read_earlier(&mut self, earlier: Earlier) {
        // The manifest of another publisher may record any exception it likes, so its exceptions
        // are not applied.
        let manifest = earlier.manifest;
        let options = &mut self.options;
        options.name = Some(earlier.name);
        options.agents.clone_from(&manifest.agents);
        if earlier.keeps_exceptions {
            options.strict |= manifest.gate.strict;
            self.waivers.clone_from(&manifest.gate.waivers);
        }
        if let Purpose::Variant(_) = earlier.purpose {
            // Exceptions of the plain skill also apply to its variants: the owner wrote the
            // transforms.
            self.inherited.clone_from(&manifest.gate.waivers);
        }
        self.files = earlier.files.into_iter().map(RawFile::from).collect();
        self.provenance = Some(manifest.provenance.clone());
        self.upstream = earlier.upstream;
        self.earlier = Some((manifest, earlier.purpose));
    }
}
