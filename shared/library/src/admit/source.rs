//! What can be admitted: a folder, what was fetched, text that a caller wrote, or an earlier version.

use std::path::Path;

use vault_skill::bundle::File;
use vault_skill::gate::{self, GateOptions, Outcome, RawFile};
use vault_skill::manifest::{Manifest, RenderedFrom, SignedManifest, Waiver};
use vault_skill::name::{AgentId, SkillName};
use vault_skill::package::Package;
use vault_skill::provenance::{Provenance, ProvenanceId};
use vault_store::fetch::{FetchedSkill, Upstream};

use super::{AdmitError, Neighbours};
use crate::disk::source::{self, SourceError};
use crate::store::LIMITS;

/// The reason that is recorded with an exception when the owner gives none.
const ALLOWED: &str = "allowed by the owner";

/// Where the files of a skill come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A folder of this machine, or a file named SKILL.md: then the folder that it stands in.
    Folder(String),
    /// What a fetcher brought.
    Fetched(Box<FetchedSkill>),
    /// Files that a user or client handed in; recorded as `inline:<by>`.
    Text {
        /// The files, unchecked.
        files: Vec<RawFile>,
        /// The id of the user or client.
        by: String,
    },
    /// A skill that this vault signed before.
    Earlier(Box<Earlier>),
}

impl Source {
    /// A folder of this machine.
    pub fn folder(path: &Path) -> Self {
        Self::Folder(path.to_string_lossy().into_owned())
    }
}

/// A skill that this vault signed before: verified files with their manifest.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// The name that it is installed under.
    pub(crate) name: SkillName,
    pub(crate) manifest: Manifest,
    pub(crate) files: Vec<File>,
    /// The record of its source, where there is one.
    pub(crate) upstream: Option<Upstream>,
    pub(crate) purpose: Purpose,
}

/// What an earlier skill is admitted for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// It becomes the next version, unless the installed one has the same content.
    NextVersion,
    /// It is signed again as the next version, with the same content.
    SignAgain,
    /// It is installed under the signature that it has.
    Adopt(SignedManifest),
    /// Its files were rendered for one agent: signed beside the plain skill, under the same version.
    Variant(RenderedFrom),
}

/// The owner's wishes for one skill.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct Options {
    /// The name in the vault; `None` takes the frontmatter's.
    pub name: Option<SkillName>,
    /// Target agents beside those that the skill declares.
    pub agents: Vec<AgentId>,
    /// The source to record in place of the real one, which is not asked again then: for a staged copy of something
    /// else.
    pub provenance: Option<ProvenanceId>,
    /// Take the place of an installed skill that came from another source.
    pub replace: bool,
    /// Whether security flags block.
    pub strict: bool,
    /// Rules, by name or id, whose flags the owner lets pass for exactly these bytes.
    pub allow: Vec<String>,
    /// Why, in the owner's words; recorded with each exception.
    pub reason: Option<String>,
    /// Leave an installed skill with the same files as it is, whatever source it is recorded with.
    pub keep_equal: bool,
    /// Refuse the name of a linked skill.
    pub spare_linked: bool,
    /// Refuse a skill that is not installed.
    pub only_update: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            agents: Vec::new(),
            provenance: None,
            replace: false,
            strict: true,
            allow: Vec::new(),
            reason: None,
            keep_equal: false,
            spare_linked: false,
            only_update: false,
        }
    }
}

impl Options {
    /// Adds nothing to what an earlier manifest records.
    pub(crate) fn as_recorded() -> Self {
        Self {
            strict: false,
            ..Self::default()
        }
    }
}

/// A skill that passed the gate, and what is recorded with it.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a wish of its own, as in `Options`"
)]
pub struct Candidate {
    /// The files, as the gate read them.
    pub package: Package,
    /// The gate's outcome.
    pub outcome: Outcome,
    /// Target agents beside those that the skill declares.
    pub agents: Vec<AgentId>,
    /// Where it came from.
    pub provenance: Provenance,
    /// Where it was fetched from, to ask there again; `None` for what was not fetched.
    pub upstream: Option<Upstream>,
    pub(super) strict: bool,
    pub(super) replace: bool,
    pub(super) keep_equal: bool,
    pub(super) spare_linked: bool,
    pub(super) only_update: bool,
    /// Somebody handed it in as text: file modes are unknown, and only skills from texts and folders give way.
    pub(super) is_text: bool,
    /// The earlier manifest and what it is admitted for.
    pub(super) earlier: Option<(Manifest, Purpose)>,
}

/// Reads a source and gates it beside what is known; changes nothing. Fails with the findings where it is blocked.
pub fn examine(
    source: Source,
    options: &Options,
    neighbours: &mut Neighbours<'_>,
) -> Result<Candidate, AdmitError> {
    let is_text = matches!(source, Source::Text { .. });
    let read = Input::read(source, options, neighbours)?;
    let gate_options = GateOptions {
        strict: read.strict,
        name: read.name.clone(),
        folder: read.folder.as_deref(),
        allow: read.allow,
        reason: options.reason.as_deref().unwrap_or(ALLOWED),
        waivers: read.waivers,
        before: &[],
    };
    let verdict = neighbours.gate(read.files, gate_options)?;
    let Some(package) = verdict.package else {
        return Err(AdmitError::Blocked {
            findings: verdict.findings,
        });
    };
    let provenance = match read.provenance {
        Some(provenance) => provenance,
        // A folder's name may hold what an identifier may not; the skill's own name always fits.
        None => Provenance {
            identifier: format!("local:{}", package.name).parse()?,
            revision: None,
            fetched_at: neighbours.now(),
        },
    };
    provenance.check()?;
    Ok(Candidate {
        package,
        outcome: verdict.outcome,
        agents: read.agents,
        provenance,
        upstream: read.upstream,
        strict: read.strict,
        replace: options.replace || read.earlier.is_some(),
        keep_equal: options.keep_equal || is_text,
        spare_linked: options.spare_linked,
        only_update: options.only_update,
        is_text,
        earlier: read.earlier,
    })
}

/// What the gate is asked about, whatever source it came from.
struct Input {
    files: Vec<RawFile>,
    name: Option<SkillName>,
    folder: Option<String>,
    strict: bool,
    allow: Vec<String>,
    waivers: Vec<Waiver>,
    agents: Vec<AgentId>,
    provenance: Option<Provenance>,
    upstream: Option<Upstream>,
    earlier: Option<(Manifest, Purpose)>,
}

impl Input {
    fn read(
        source: Source,
        options: &Options,
        neighbours: &Neighbours<'_>,
    ) -> Result<Self, AdmitError> {
        let recorded = |identifier, revision| Provenance {
            identifier,
            revision,
            fetched_at: neighbours.now(),
        };
        let mut input = Self {
            files: Vec::new(),
            name: options.name.clone(),
            folder: None,
            strict: options.strict,
            allow: options.allow.clone(),
            waivers: Vec::new(),
            agents: options.agents.clone(),
            provenance: options
                .provenance
                .clone()
                .map(|identifier| recorded(identifier, None)),
            upstream: None,
            earlier: None,
        };
        match source {
            Source::Folder(path) => {
                let folder = read_folder(&path)?;
                if input.provenance.is_none() {
                    let name = folder.name.as_deref().unwrap_or("folder");
                    let identifier = format!("local:{name}").parse().ok();
                    input.provenance = identifier.map(|identifier| recorded(identifier, None));
                }
                input.files = folder.files;
                input.folder = folder.name;
            }
            Source::Fetched(skill) => {
                input.files = skill.files;
                input.folder = skill.folder;
                if input.provenance.is_none() {
                    let upstream = skill.upstream;
                    let (identifier, revision) =
                        (upstream.identifier.clone(), upstream.revision.clone());
                    input.provenance = Some(recorded(identifier, revision));
                    input.upstream = Some(upstream);
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

    /// The recorded strictness and signed exceptions hold; the settings of today can only add to them.
    fn read_earlier(&mut self, earlier: Earlier) {
        let manifest = earlier.manifest;
        self.files = earlier.files.into_iter().map(RawFile::from).collect();
        self.name = Some(earlier.name);
        self.strict |= manifest.gate.strict;
        self.waivers.clone_from(&manifest.gate.waivers);
        if let Purpose::Variant(_) = earlier.purpose {
            // What the owner let pass in the plain skill passes in its variants; a transform is the owner's own text.
            let rules = manifest.gate.waivers.iter();
            self.allow.extend(rules.map(|waiver| waiver.rule.clone()));
        }
        self.agents.clone_from(&manifest.agents);
        self.provenance = Some(manifest.provenance.clone());
        self.upstream = earlier.upstream;
        self.earlier = Some((manifest, earlier.purpose));
    }
}

fn read_folder(path: &str) -> Result<source::SourceFolder, AdmitError> {
    match source::read(Path::new(path), LIMITS, &gate::is_ignored) {
        Err(SourceError::Missing(_)) if looks_remote(path) => Err(AdmitError::SourceUnsupported {
            source_text: path.to_owned(),
        }),
        other => Ok(other?),
    }
}

/// Nothing on this machine has the name, and it reads like an address, a registry entry or `owner/repository`.
fn looks_remote(source: &str) -> bool {
    if source.starts_with(['.', '/', '~']) {
        return false;
    }
    source.contains(':') || source.starts_with('@') || source.split('/').count() == 2
}
