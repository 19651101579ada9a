//! Admitting skills: read, gate, sign, store, switch.
//!
//! [`add_skill`] takes a folder of this machine; [`admit`] takes what passed the gate from anywhere else (a draft, an
//! earlier release). Both end in the same place, the only one where manifests are signed.

use std::path::Path;

use vault_skill::bundle::{self, File};
use vault_skill::finding::Finding;
use vault_skill::gate::similar::Sketch;
use vault_skill::gate::{self, GateOptions, Outcome, RawFile};
use vault_skill::hash::Digest;
use vault_skill::keys::SecretKey;
use vault_skill::manifest::{FileEntry, Gate, Manifest, ManifestError, SignedManifest};
use vault_skill::name::{AgentId, SkillName};
use vault_skill::package::Package;
use vault_skill::provenance::{BadProvenance, Provenance, ProvenanceId};
use vault_skill::time::Timestamp;
use vault_store::fetch::{FetchedSkill, PinError, Upstream};

use crate::files::source::{self, SourceError};
use crate::files::{self, Batch, FileError};
use crate::index::{Index, SketchedSkill};
use crate::installed::place::installed;
use crate::keys::KeyError;
use crate::known::Known;
use crate::remove;
use crate::store::{self, LIMITS, Trusted};
use crate::upstream;
use crate::vault::{Change, Vault, VaultError};

/// What to add.
#[derive(Clone, Debug)]
pub struct AddSkill {
    /// A skill folder, or a file named SKILL.md: then the folder that it stands in.
    pub source: String,
    /// The name in the vault; `None` takes the frontmatter's.
    pub name: Option<SkillName>,
    /// Target agents beside those that the skill declares.
    pub agents: Vec<AgentId>,
    /// The source to record instead of `local:<folder>`, when this folder is a staged copy of something else.
    pub provenance: Option<ProvenanceId>,
    /// Take the place of an installed skill that came from another source.
    pub replace: bool,
    /// Whether security flags block.
    pub strict: bool,
    /// Rules, by name or id, whose flags the owner lets pass for exactly these bytes.
    pub allow: Vec<String>,
    /// Why, in the owner's words; recorded with each exception.
    pub reason: Option<String>,
}

impl AddSkill {
    /// Adds from this path, strictly, under the skill's own name.
    pub fn from_path(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            name: None,
            agents: Vec::new(),
            provenance: None,
            replace: false,
            strict: true,
            allow: Vec::new(),
            reason: None,
        }
    }
}

/// What became of a skill.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// It is new.
    Added,
    /// It replaced this version.
    Updated {
        /// The version before.
        from: u64,
    },
    /// The same files, agents and source are installed already; nothing was signed.
    Unchanged,
}

/// How a skill was admitted.
#[derive(Clone, Debug)]
pub struct AddReport {
    /// Its name in the vault.
    pub name: SkillName,
    /// Its version now.
    pub version: u64,
    /// Its bundle now.
    pub bundle: Digest,
    /// What happened.
    pub admission: Admission,
    /// How the gate ended.
    pub outcome: Outcome,
    /// What the gate said.
    pub findings: Vec<Finding>,
    /// The recorded source.
    pub provenance: ProvenanceId,
    /// Files of the skill.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

impl AddReport {
    /// Whether anything is installed now that was not before.
    pub fn is_change(&self) -> bool {
        self.admission != Admission::Unchanged
    }
}

/// Why a skill was not admitted. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The source is of a kind that this version does not fetch from.
    #[error(
        "{source_text} is not a path on this machine; this version adds from local folders only"
    )]
    SourceUnsupported {
        /// What was given.
        source_text: String,
    },
    /// The folder was not read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The gate blocked it.
    #[error("the gate refused the skill: {}", first(.findings))]
    Blocked {
        /// Everything found, what blocks first.
        findings: Vec<Finding>,
    },
    /// A skill of this name came from another source.
    #[error("{name} is installed from {recorded}; this one is from {given}")]
    NameTaken {
        /// The name.
        name: SkillName,
        /// The recorded source.
        recorded: ProvenanceId,
        /// The new source.
        given: ProvenanceId,
    },
    /// The source does not carry the signature any more that was pinned when the skill was added.
    #[error("{name} is not taken from {place} any more: {cause}")]
    Signer {
        /// The name.
        name: SkillName,
        /// The source.
        place: ProvenanceId,
        /// What became of the signature.
        cause: PinError,
    },
    /// The folder's name makes no source identifier.
    #[error("no source can be recorded for this folder: {0}")]
    Provenance(#[from] BadProvenance),
    /// What the gate let through can't be signed or bundled.
    #[error("the skill can't be signed: {0}")]
    Unsignable(String),
    /// The same name twice in one go.
    #[error("{0} is given twice")]
    Twice(SkillName),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for AddError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<KeyError> for AddError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<ManifestError> for AddError {
    fn from(failed: ManifestError) -> Self {
        Self::Unsignable(failed.to_string())
    }
}

fn first(findings: &[Finding]) -> String {
    findings
        .first()
        .map_or_else(String::new, |finding| finding.message.clone())
}

/// Admits one skill from a local folder. Content that is installed already under this name is "unchanged".
///
/// ```
/// use std::sync::Arc;
/// use vault_library::{AddSkill, Vault, VaultPaths, add::Admission, add_skill};
/// use vault_store::{clock::TestClock, random::SeededRandom};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let skill = folder.path().join("greet");
/// std::fs::create_dir(&skill)?;
/// std::fs::write(skill.join("SKILL.md"), "---\nname: greet\ndescription: Greets whoever asks for it.\n---\nSay hello.\n")?;
/// let paths = VaultPaths::new(folder.path().join("vault"), folder.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(TestClock::default()), Arc::new(SeededRandom::new(1)))?;
///
/// let request = AddSkill::from_path(skill.display().to_string());
/// let report = add_skill(&vault, &request)?;
/// assert_eq!((report.name.as_str(), report.version, report.admission), ("greet", 1, Admission::Added));
/// assert_eq!(add_skill(&vault, &request)?.admission, Admission::Unchanged);
/// # Ok(())
/// # }
/// ```
pub fn add_skill(vault: &Vault, request: &AddSkill) -> Result<AddReport, AddError> {
    let mut known = Known::of(vault);
    let candidate = read_folder_skill(request, &mut known, vault.clock().now())?;
    let mut change = vault.change()?;
    let mut reports = admit_under(vault, &mut change, std::slice::from_ref(&candidate))?;
    reports
        .pop()
        .ok_or_else(|| AddError::Unsignable("no report".to_owned()))
}

/// Admits many skills from local folders, with one flush for every few hundred. Each has an answer of its own: one that
/// is refused keeps no other back. Of two for the same name the later is refused.
pub fn add_skills(vault: &Vault, requests: &[AddSkill]) -> Vec<Result<AddReport, AddError>> {
    let mut answers = Vec::with_capacity(requests.len());
    let mut names = std::collections::BTreeSet::new();
    let mut known = Known::of(vault);
    for requests in requests.chunks(256) {
        let mut candidates = Vec::new();
        let mut slots = Vec::new();
        for request in requests {
            let slot = match read_folder_skill(request, &mut known, vault.clock().now()) {
                Ok(candidate) if !names.insert(candidate.package.name.clone()) => {
                    Err(AddError::Twice(candidate.package.name))
                }
                Ok(candidate) => {
                    candidates.push(candidate);
                    Ok(())
                }
                Err(refused) => Err(refused),
            };
            slots.push(slot);
        }
        let mut done = match vault.change() {
            Ok(mut change) => admit_each(vault, &mut change, candidates).into_iter(),
            Err(failed) => {
                let text = failed.to_string();
                answers.push(Err(failed.into()));
                answers
                    .extend((1..requests.len()).map(|_| Err(AddError::Unsignable(text.clone()))));
                continue;
            }
        };
        answers.extend(slots.into_iter().map(|slot| {
            match slot {
                Ok(()) => done
                    .next()
                    .unwrap_or_else(|| Err(AddError::Unsignable("no report".to_owned()))),
                Err(refused) => Err(refused),
            }
        }));
    }
    answers
}

/// All together, or one by one where one of them stands in the way.
fn admit_each(
    vault: &Vault,
    change: &mut Change<'_>,
    candidates: Vec<Candidate>,
) -> Vec<Result<AddReport, AddError>> {
    if let Ok(reports) = admit_under(vault, change, &candidates) {
        return reports.into_iter().map(Ok).collect();
    }
    candidates
        .into_iter()
        .map(|candidate| {
            admit_under(vault, change, &[candidate]).and_then(|mut reports| {
                reports
                    .pop()
                    .ok_or_else(|| AddError::Unsignable("no report".to_owned()))
            })
        })
        .collect()
}

/// A skill that passed the gate, and what is recorded with it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What the gate let through.
    pub package: Package,
    /// How the gate ended.
    pub outcome: Outcome,
    /// Whether flags would have blocked it.
    pub strict: bool,
    /// Target agents beside those that the skill declares.
    pub agents: Vec<AgentId>,
    /// Where it came from.
    pub provenance: Provenance,
    /// Take the place of an installed skill that came from another source.
    pub replace: bool,
    /// Where it was fetched from, to ask there again; `None` for what was not fetched.
    pub upstream: Option<Upstream>,
}

/// What is wanted of a skill that was fetched.
#[derive(Clone, Debug, Default)]
pub struct AddFetched {
    /// The name in the vault; `None` takes the frontmatter's.
    pub name: Option<SkillName>,
    /// Target agents beside those that the skill declares.
    pub agents: Vec<AgentId>,
    /// The source to record instead of where it was fetched from; it is not asked again then.
    pub provenance: Option<ProvenanceId>,
    /// Take the place of an installed skill that came from another source.
    pub replace: bool,
    /// Whether security flags block.
    pub strict: bool,
    /// Rules, by name or id, whose flags the owner lets pass for exactly these bytes.
    pub allow: Vec<String>,
    /// Why, in the owner's words; recorded with each exception.
    pub reason: Option<String>,
}

/// Gates what was fetched beside what is known, at this time; admits nothing. Fails with the findings where it is blocked.
pub fn gate_fetched(
    fetched: FetchedSkill,
    request: &AddFetched,
    known: &mut Known<'_>,
    now: Timestamp,
) -> Result<Candidate, AddError> {
    let FetchedSkill {
        files,
        folder,
        upstream,
    } = fetched;
    let options = GateOptions {
        strict: request.strict,
        name: request.name.clone(),
        folder: folder.as_deref(),
        allow: request.allow.clone(),
        reason: request.reason.as_deref().unwrap_or(ALLOWED),
        ..GateOptions::default()
    };
    let verdict = known.gate(files, options)?;
    let Some(package) = verdict.package else {
        return Err(AddError::Blocked {
            findings: verdict.findings,
        });
    };
    let provenance = Provenance {
        identifier: request
            .provenance
            .clone()
            .unwrap_or_else(|| upstream.identifier.clone()),
        revision: match request.provenance {
            Some(_) => None,
            None => upstream.revision.clone(),
        },
        fetched_at: now,
    };
    provenance.check()?;
    Ok(Candidate {
        package,
        outcome: verdict.outcome,
        strict: request.strict,
        agents: request.agents.clone(),
        provenance,
        replace: request.replace,
        upstream: request.provenance.is_none().then_some(upstream),
    })
}

/// Gates a skill once more that was signed here before, under this name, with the exceptions of its manifest and as its successor.
pub(crate) fn again(
    name: SkillName,
    files: Vec<File>,
    manifest: Manifest,
    strict: bool,
) -> Result<Candidate, AddError> {
    let options = GateOptions {
        strict,
        name: Some(name),
        waivers: manifest.gate.waivers,
        ..GateOptions::default()
    };
    let verdict = gate::check(files.into_iter().map(RawFile::from).collect(), &options);
    let Some(package) = verdict.package else {
        return Err(AddError::Blocked {
            findings: verdict.findings,
        });
    };
    Ok(Candidate {
        package,
        outcome: verdict.outcome,
        strict,
        agents: manifest.agents,
        provenance: manifest.provenance,
        replace: true,
        upstream: None,
    })
}

/// Admits what passed the gate, all or none.
pub fn admit(vault: &Vault, candidates: &[Candidate]) -> Result<Vec<AddReport>, AddError> {
    let mut change = vault.change()?;
    admit_under(vault, &mut change, candidates)
}

/// What is recorded of an exception for which no reason was given.
const ALLOWED: &str = "allowed by the owner";

/// Runs the gate over a folder without admitting anything.
pub fn check_folder(request: &AddSkill) -> Result<gate::Verdict, AddError> {
    let folder = read_folder(&request.source)?;
    Ok(gate::check(
        folder.files,
        &options(folder.name.as_deref(), request),
    ))
}

fn read_folder(source: &str) -> Result<source::SourceFolder, AddError> {
    match source::read(Path::new(source), LIMITS, &gate::is_ignored) {
        Err(SourceError::Missing(_)) if looks_remote(source) => Err(AddError::SourceUnsupported {
            source_text: source.to_owned(),
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

fn options<'a>(folder: Option<&'a str>, request: &'a AddSkill) -> GateOptions<'a> {
    GateOptions {
        strict: request.strict,
        name: request.name.clone(),
        folder,
        allow: request.allow.clone(),
        reason: request.reason.as_deref().unwrap_or(ALLOWED),
        ..GateOptions::default()
    }
}

/// Reads a folder and gates it; admits nothing.
pub(crate) fn read(vault: &Vault, request: &AddSkill) -> Result<Candidate, AddError> {
    read_folder_skill(request, &mut Known::of(vault), vault.clock().now())
}

/// Reads a folder and gates it beside what is known, at this time; admits nothing. Fails with the findings where it is
/// blocked.
pub fn read_folder_skill(
    request: &AddSkill,
    known: &mut Known<'_>,
    now: Timestamp,
) -> Result<Candidate, AddError> {
    let folder = read_folder(&request.source)?;
    let verdict = known.gate(folder.files, options(folder.name.as_deref(), request))?;
    folder_candidate(request, folder.name.as_deref(), verdict, now)
}

fn folder_candidate(
    request: &AddSkill,
    folder: Option<&str>,
    verdict: gate::Verdict,
    now: Timestamp,
) -> Result<Candidate, AddError> {
    let Some(package) = verdict.package else {
        return Err(AddError::Blocked {
            findings: verdict.findings,
        });
    };
    let identifier = match (&request.provenance, folder) {
        (Some(given), _) => given.clone(),
        // A folder's name may hold what an identifier may not; the skill's own name always fits.
        (None, Some(folder)) => match format!("local:{folder}").parse() {
            Ok(identifier) => identifier,
            Err(_) => format!("local:{}", package.name).parse()?,
        },
        (None, None) => "local:folder".parse()?,
    };
    Ok(Candidate {
        package,
        outcome: verdict.outcome,
        strict: request.strict,
        agents: request.agents.clone(),
        provenance: Provenance {
            identifier,
            revision: None,
            fetched_at: now,
        },
        replace: request.replace,
        upstream: None,
    })
}

/// The report of a skill that is installed with these very files already, whatever its recorded source.
pub(crate) fn unchanged(vault: &Vault, request: &AddSkill) -> Result<AddReport, AddError> {
    let candidate = read(vault, request)?;
    let name = &candidate.package.name;
    match crate::run::load(vault, name) {
        Ok((_, bundle, examined)) if examined.files == candidate.package.files => Ok(report_of(
            &candidate,
            &examined.manifest,
            bundle,
            Admission::Unchanged,
        )),
        // It changed since it was looked at.
        _ => add_skill(vault, request),
    }
}

/// A signed and encoded skill on its way into the store.
struct Signed<'c> {
    candidate: &'c Candidate,
    manifest: Manifest,
    encoded_hash: Digest,
    envelope: SignedManifest,
    from: Option<u64>,
}

enum Step<'c> {
    Unchanged(AddReport),
    Sign(Box<Signed<'c>>),
}

/// The one way in: versions, signatures, store, links. All candidates are admitted, or none.
pub(crate) fn admit_under(
    vault: &Vault,
    change: &mut Change<'_>,
    candidates: &[Candidate],
) -> Result<Vec<AddReport>, AddError> {
    let trusted = vault.trusted()?;
    let key = vault.keys().release()?;
    let now = vault.clock().now();
    let mut steps = Vec::with_capacity(candidates.len());
    let mut buffer = Vec::new();
    for candidate in candidates {
        steps.push(prepare(vault, candidate, &trusted, &key, now, &mut buffer)?);
    }
    for (step, candidate) in steps.iter().zip(candidates) {
        // Before the switch: a record without its bundle is of no effect.
        let bundle = match step {
            Step::Sign(signed) => &signed.encoded_hash,
            Step::Unchanged(report) => &report.bundle,
        };
        if let Some(known) = &candidate.upstream {
            upstream::note(vault, change, bundle, known)?;
        }
    }
    install(vault, change, &steps, &trusted)?;
    Ok(steps.into_iter().map(report).collect())
}

fn prepare<'c>(
    vault: &Vault,
    candidate: &'c Candidate,
    trusted: &Trusted,
    key: &SecretKey,
    now: Timestamp,
    buffer: &mut Vec<u8>,
) -> Result<Step<'c>, AddError> {
    let package = &candidate.package;
    let name = &package.name;
    let mut manifest = manifest(vault, candidate, now);
    let before = installed(vault, name, trusted, buffer)?;
    if let Some(before) = &before
        && let Some(signed) = &before.manifest
    {
        check_pin(vault, candidate, &before.bundle)?;
        // A fetched skill whose files are the same is the same, wherever the repository around it has gone: its record says where.
        let revision_counts = candidate.upstream.is_none();
        if before.intact && same_content(signed, &manifest, revision_counts) {
            let unchanged = report_of(candidate, signed, before.bundle, Admission::Unchanged);
            return Ok(Step::Unchanged(unchanged));
        }
        check_source(candidate, signed)?;
    }
    let from = before.map(|before| match before.manifest {
        Some(manifest) => manifest.version,
        // Its manifest is gone or forged: what the index remembers keeps the count from falling.
        None => Index::open(&vault.paths().index()).version(&before.bundle),
    });
    let retired = remove::retired_version(vault, name)?;
    manifest.version = from.unwrap_or(0).max(retired) + 1;
    let envelope = SignedManifest::sign(&manifest, key)?;
    let encoded = bundle::encode(&envelope, &manifest, &package.files)
        .map_err(|reason| AddError::Unsignable(reason.to_string()))?;
    Ok(Step::Sign(Box::new(Signed {
        candidate,
        manifest,
        encoded_hash: encoded.hash,
        envelope,
        from,
    })))
}

/// What is signed of a candidate, as version 1.
pub(crate) fn manifest(vault: &Vault, candidate: &Candidate, now: Timestamp) -> Manifest {
    let package = &candidate.package;
    let mut agents = package.frontmatter.agents.clone();
    agents.extend(candidate.agents.iter().cloned());
    agents.sort();
    agents.dedup();
    Manifest {
        vault_id: *vault.id(),
        name: package.name.clone(),
        frontmatter_name: package.frontmatter_name.clone(),
        version: 1,
        signed_at: now,
        files: package
            .files
            .iter()
            .map(|file| FileEntry {
                path: file.path.clone(),
                size: file.bytes.len() as u64,
                sha256: Digest::of(&file.bytes),
                mode: file.mode,
            })
            .collect(),
        actions: package.actions.clone(),
        agents,
        rendered_from: None,
        provenance: candidate.provenance.clone(),
        gate: Gate {
            strict: candidate.strict,
            rules: gate::RULES.to_owned(),
            flags: package.flags.clone(),
            waivers: package.waivers.clone(),
        },
    }
}

/// Whether a new manifest would say nothing new: times and versions aside.
fn same_content(before: &Manifest, now: &Manifest, revision_counts: bool) -> bool {
    before.files == now.files
        && before.actions == now.actions
        && before.agents == now.agents
        && before.frontmatter_name == now.frontmatter_name
        && before.provenance.identifier == now.provenance.identifier
        && (!revision_counts || before.provenance.revision == now.provenance.revision)
        && before.rendered_from == now.rendered_from
}

/// A name never changes hands silently, from one folder of this machine to another neither.
fn check_source(candidate: &Candidate, before: &Manifest) -> Result<(), AddError> {
    let (given, recorded) = (
        &candidate.provenance.identifier,
        &before.provenance.identifier,
    );
    if candidate.replace || given == recorded {
        return Ok(());
    }
    Err(AddError::NameTaken {
        name: candidate.package.name.clone(),
        recorded: recorded.clone(),
        given: given.clone(),
    })
}

/// What was signed at its source when it was added is signed by the same key when it comes from there again.
fn check_pin(vault: &Vault, candidate: &Candidate, before: &Digest) -> Result<(), AddError> {
    let Some(now) = candidate.upstream.as_ref().filter(|_| !candidate.replace) else {
        return Ok(());
    };
    match upstream::of_bundle(vault, before)? {
        Some(known) if known.identifier == now.identifier => {
            known.check_pin(now).map_err(|cause| AddError::Signer {
                name: candidate.package.name.clone(),
                place: now.identifier.clone(),
                cause,
            })
        }
        _ => Ok(()),
    }
}

fn install(
    vault: &Vault,
    change: &mut Change<'_>,
    steps: &[Step<'_>],
    trusted: &Trusted,
) -> Result<(), AddError> {
    let signed: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Sign(signed) => Some(&**signed),
            Step::Unchanged(_) => None,
        })
        .collect();
    if signed.is_empty() {
        return Ok(());
    }
    for skill in &signed {
        let link = vault.skills().join(skill.manifest.name.as_str());
        // Not ours to remove: somebody put it there.
        if matches!(files::kind(&link)?, Some(files::Kind::Dir)) {
            return Err(VaultError::Damaged {
                path: link,
                reason: "a folder stands where a link should".to_owned(),
            }
            .into());
        }
    }
    let aside = vault.scratch()?;
    let mut batch = Batch::default();
    for skill in &signed {
        store::stage(
            &mut batch,
            aside.path(),
            &skill.encoded_hash,
            skill.envelope.as_bytes(),
            &skill.candidate.package.files,
        )?;
    }
    batch.flush(aside.path())?;
    let hashes: Vec<_> = signed.iter().map(|skill| skill.encoded_hash).collect();
    store::admit(&vault.store(), aside.path(), &hashes, trusted)?;
    change.switching()?;
    let skills = vault.skills();
    for skill in &signed {
        let link = skills.join(skill.manifest.name.as_str());
        files::switch_link(
            &link,
            &store::link_target(&skill.encoded_hash, 1),
            aside.path(),
        )?;
    }
    files::sync_dir(&skills)?;
    let sketches: Vec<_> = signed.iter().map(|skill| sketched(skill)).collect();
    Index::open(&vault.paths().index()).note_sketches(&sketches);
    Ok(())
}

/// What the next skills are compared with.
fn sketched(skill: &Signed<'_>) -> SketchedSkill {
    let files = &skill.candidate.package.files;
    SketchedSkill {
        hash: skill.encoded_hash,
        name: skill.manifest.name.to_string(),
        sketch: Sketch::of(files.iter().map(|file| file.bytes.as_slice())),
    }
}

fn report(step: Step<'_>) -> AddReport {
    match step {
        Step::Unchanged(report) => report,
        Step::Sign(signed) => {
            let admission = match signed.from {
                Some(from) => Admission::Updated { from },
                None => Admission::Added,
            };
            report_of(
                signed.candidate,
                &signed.manifest,
                signed.encoded_hash,
                admission,
            )
        }
    }
}

fn report_of(
    candidate: &Candidate,
    manifest: &Manifest,
    bundle: Digest,
    admission: Admission,
) -> AddReport {
    AddReport {
        name: manifest.name.clone(),
        version: manifest.version,
        bundle,
        admission,
        outcome: candidate.outcome,
        findings: candidate.package.findings.clone(),
        provenance: manifest.provenance.identifier.clone(),
        files: manifest.files.len(),
        bytes: manifest.files.iter().map(|file| file.size).sum(),
    }
}
