//! `vault add`: *admits* skills to the vault: scans their files with the gate, signs those that
//! pass with the vault's key, and stores them.

mod checks;
pub mod dry_run;
mod gather;
pub mod project;
mod report;

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    name::{AgentId, SkillName},
    provenance::ProvenanceId,
    root::KeyFingerprint,
};
use vault_library::{
    Vault,
    admit::{
        AdmitError, AdmitReport, Candidate, Neighbours, admit_candidates, admit_one,
        examine_candidate, history,
    },
};
use vault_sources::{DEFAULT_MAX_SKILLS, MAX_LISTED};
use vault_store::clock::{Clock as _, SystemClock};

use self::checks::{check_items, check_lock_flags, check_rules, name_needs_one};
use self::gather::{GatherResult, Gathered, SkillToAdd};
use self::report::{AddOutcome, AddedSkills, SkillsReport, origin_line};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure, message_chain},
    output::{HINT, Report, clean},
    tasks::{
        admission::{self, admission_failure, require_reason, texts::Texts},
        profiles::{self, ShownLinks},
        project_scope::ProjectScope,
        requirements,
    },
};

/// The arguments of `vault add`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
The gate scans every file. A skill that passes is signed with this vault's key and stored \
unchanged; a skill that the gate refuses changes nothing (exit 5). The first skill creates the \
vault and its keys.

--allow RULE accepts what a rule found in exactly these files. It needs a reason, which is signed \
with it; `vault show` and `vault list -v` show both. To change the reason, add the skill again \
with another one. --end-exception RULE judges the skill without its exception.

--skill, --all and --plugin select among the skills of a source. A name that fits two skills is a \
question, without a terminal exit 2 with both folders. Skills that are not taken are counted, and \
named with -v. One bad skill does not stop the others.

--project adds skills to this project, and nothing of your own changes: they are recorded in \
vault.lock, which you commit, and installed as `vault install` does. The skills that they require \
come along after a question. Without it, no project changes.

Files that look like secrets are left out and named: .env and .env.* (but not .env.example, \
.env.sample and .env.template), private keys, *.key and *.pem. --include FILE takes one, by its \
path in the skill.

A source is one of these: a folder, SKILL.md or archive on this machine; \
github:owner/repository[/path][#ref]; the git or web address of a repository; the https address \
of a SKILL.md or archive; a site with a well-known index; clawhub:<name>; registry:<name>. A word \
without a prefix is a path. docs/sources.md describes all sources.

Examples:
  vault add ./code-review
  vault add ./skills/* --agent claude-code
  vault add github:acme/skills/pdf#v1.2
  vault add git@git.example.com:acme/skills.git --skill pdf --skill csv
  vault add https://docs.example.com --all
  vault add github:acme/plugins --plugin review-tools --all
  vault add --from-lock skills-lock.json
  vault add github:acme/skills/pdf --project
  vault add ./draft --dry-run
  vault add ./deploy --include config/.env
  vault add ./copy --provenance github:acme/skills/code-review")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Arguments {
    /// Skill folders, SKILL.md files, archives, repositories or addresses
    #[arg(required_unless_present = "from_lock", value_name = "SOURCE")]
    sources: Vec<String>,
    /// Add the skill of this name or in this folder; repeatable
    #[arg(long = "skill", value_name = "NAME", conflicts_with = "all")]
    pub(super) skills: Vec<String>,
    /// Add every skill of the source
    #[arg(long)]
    all: bool,
    /// The largest number of skills to add from one source
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_MAX_SKILLS,
        value_parser = max_skills
    )]
    max_skills: usize,
    /// A branch, tag, commit or version of the source
    #[arg(long = "ref", value_name = "REF")]
    pub(super) reference: Option<String>,
    /// A folder in the repository, folder or archive
    #[arg(long, value_name = "PATH")]
    pub(super) path: Option<String>,
    /// A plugin in a marketplace repository
    #[arg(long, value_name = "NAME")]
    pub(super) plugin: Option<String>,
    /// Add the skills in another tool's lock file (skills-lock.json)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sources", "skills", "all", "reference", "path", "plugin", "name"])]
    from_lock: Option<PathBuf>,
    /// The name in the vault [default: the skill's own name]
    #[arg(long, visible_alias = "as", value_name = "NAME")]
    name: Option<SkillName>,
    /// An agent that the skill is for; repeatable
    #[arg(long = "agent", value_name = "AGENT", value_parser = profiles::known_agent_id)]
    agents: Vec<AgentId>,
    /// Record this source instead of the folder, for a staged copy
    #[arg(long, value_name = "SOURCE", conflicts_with = "is_project")]
    provenance: Option<ProvenanceId>,
    /// Replace a skill of the same name from another source
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    scope: ProjectScope,
    // Earlier versions had these two flags. They end with an error that names `--project`.
    #[arg(long, hide = true)]
    lock: bool,
    #[arg(long, hide = true)]
    no_lock: bool,
    /// Accept flags of this rule for exactly these files; repeatable
    #[arg(long = "allow", value_name = "RULE", conflicts_with = "is_project")]
    pub(super) allow: Vec<String>,
    /// The reason, signed with the exception
    #[arg(long, value_name = "TEXT", requires = "allow")]
    pub(super) reason: Option<String>,
    /// End the exception to this rule that the installed version has; repeatable
    #[arg(
        long = "end-exception",
        value_name = "RULE",
        conflicts_with = "is_project"
    )]
    end_exceptions: Vec<String>,
    /// Take this file although it looks like a secret; repeatable
    #[arg(long, value_name = "FILE")]
    include: Vec<String>,
    /// Take a link to a file of the same skill as a copy of that file
    #[arg(long)]
    copy_links: bool,
    /// Show files, findings, environment and context cost without adding anything
    #[arg(long)]
    dry_run: bool,
}

/// Parses the value of `--max-skills`.
fn max_skills(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=MAX_LISTED).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {MAX_LISTED}")),
    }
}

impl Arguments {
    /// Creates the arguments that add these folders to the project in the folder `root`.
    pub fn of_project(sources: Vec<String>, root: PathBuf) -> Self {
        Self {
            scope: ProjectScope::of_root(root),
            ..Self::of_folders(sources)
        }
    }

    /// Creates the arguments that add these folders to the vault.
    pub fn of_folders(sources: Vec<String>) -> Self {
        Self {
            sources,
            max_skills: DEFAULT_MAX_SKILLS,
            ..Self::default()
        }
    }
}

/// The skills that were added, and what agents see of them. Each skill that the sources list is in
/// one of the three lists.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Added {
    #[serde(flatten)]
    skills: AddedSkills,
    #[serde(flatten)]
    agents: Option<ShownLinks>,
}

/// Admits the skills of all sources, and reports the outcome of each.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    run_with(context, arguments, Vec::new())
}

/// Like [`run`], with sources that the caller has rejected already. They are reported with the
/// others.
pub fn run_with(
    context: &Context,
    arguments: &Arguments,
    refused: Vec<(String, Failure)>,
) -> Result<Report, Failure> {
    if arguments.name.is_some() && arguments.sources.len() > 1 {
        return Err(name_needs_one());
    }
    check_lock_flags(arguments)?;
    check_rules(arguments)?;
    // Check the project before anything is fetched.
    let project = arguments.scope.project_or_new(context)?;
    // A dry run signs no exception.
    let reason = if arguments.dry_run {
        arguments.reason.clone()
    } else {
        require_reason(context, &arguments.allow, arguments.reason.as_deref())?
    };
    let arguments = &Arguments {
        reason,
        ..arguments.clone()
    };
    let strict = context.is_strict()?;
    let gathered = gather::gather_items(context, arguments, strict)?;
    let Gathered {
        mut items,
        left_out,
        mut failed_sources,
    } = gathered;
    // Count sources that the caller has rejected like the others, in the totals and for the exit
    // code.
    failed_sources += refused.len();
    let refused = refused.into_iter();
    items.extend(refused.map(|(source, failure)| Err((source.into(), failure))));
    // The failure of the only source is the failure of the command, not "1 of 1 skills".
    if items.len() == 1
        && let Some(Err((place, failure))) = items.pop_if(|item| item.is_err())
    {
        let report = SkillsReport::new(context, left_out, failed_sources);
        return Err(report.of_single(place, failure));
    }
    check_items(arguments, &items)?;
    let single = items.len() == 1;
    if arguments.dry_run || project.is_some() {
        let report = SkillsReport::new(context, left_out, failed_sources);
        let Some(project) = project else {
            return dry_run::check_skills(items, report, None);
        };
        let items = project::items_of_project(&project, items);
        return if arguments.dry_run {
            dry_run::check_skills(items, report, Some(&project))
        } else {
            project::add_skills(context, project, items, report)
        };
    }
    let admitted = admit_items(context, arguments, items, single)?;
    let report = SkillsReport::new(context, left_out, failed_sources);
    report_added(context, report, admitted, single)
}

/// The skills that were admitted or refused.
struct AdmittedItems {
    outcomes: Vec<AddOutcome>,
    /// The failure of a question that was not answered. It ends the command.
    interrupted: Option<Failure>,
    /// The vault, if it has a new skill.
    vault: Option<Vault>,
}

/// Admits skills in batches, until a question is not answered.
fn admit_items(
    context: &Context,
    arguments: &Arguments,
    items: Vec<GatherResult<SkillToAdd>>,
    single: bool,
) -> Result<AdmittedItems, Failure> {
    let existing = context.existing_vault()?;
    let mut adding = SkillAdder {
        context,
        arguments,
        // A vault that only links other vaults has no key to sign with, so it counts as missing
        // until a skill passes the gate.
        vault: match &existing {
            Some(vault) if !vault.only_holds_links()? => Some(vault.clone()),
            _ => None,
        },
        neighbours: Neighbours::new(existing.as_ref(), SystemClock.now()),
        names: BTreeSet::new(),
        admitted: false,
        interrupted: None,
    };
    let mut done = Vec::with_capacity(items.len());
    let mut items = items.into_iter();
    while items.len() > 0 && adding.interrupted.is_none() {
        let batch = items.by_ref().take(BATCH).collect();
        done.extend(adding.admit_batch(batch)?);
    }
    let interrupted = adding.interrupted.take();
    if interrupted.is_some() {
        // Leave out the skill whose question was interrupted: the failure of the command reports
        // that.
        done.retain(|done| {
            single
                || !matches!(&done.result, Err(failure) if failure.code == ErrorCode::Interrupted)
        });
    }
    // If every skill was rejected, change nothing, not even the agents' folders.
    let vault = adding.vault.filter(|_| adding.admitted);
    Ok(AdmittedItems {
        outcomes: done,
        interrupted,
        vault,
    })
}

/// Links the admitted skills for the agents, and reports the outcome of each.
fn report_added(
    context: &Context,
    report: SkillsReport<'_>,
    admitted: AdmittedItems,
    single: bool,
) -> Result<Report, Failure> {
    let mut skills = report.print_outcomes(admitted.outcomes, single);
    // Skills that were admitted before Ctrl-C stay admitted, so the failure lists them for
    // programs.
    if let Some(failure) = admitted.interrupted {
        skills = Err(match skills {
            Ok(skills) => failure.data(skills),
            Err(other) => failure.data(other.json_data()),
        });
    }
    // Refresh even if nothing changed: an earlier run may have been killed after it added a skill
    // and before it linked the skill for agents.
    let agents = admitted
        .vault
        .map(|vault| profiles::show_to_agents(context, &vault));
    // Return a failure only now, after the skills that passed were linked for agents.
    let (skills, mut text) = (skills?, String::new());
    if let Some(agents) = &agents {
        if let Some(next) = &agents.next {
            context.ui.note(next);
        }
        let links = if agents.linked_now {
            agents.links_table(context)
        } else {
            agents.links_line()
        };
        text = links.unwrap_or_default();
    }
    let agents = agents.map(|agents| agents.to_shown());
    Ok(Report::view(Added { skills, agents }, text))
}

/// Number of skills that are held in memory and flushed to disk together.
const BATCH: usize = 256;

struct SkillAdder<'a> {
    context: &'a Context,
    arguments: &'a Arguments,
    /// The vault to sign with. If there is none with keys of its own, `None` until a skill passes
    /// the gate, so that a rejected skill leaves no new vault behind.
    vault: Option<Vault>,
    neighbours: Neighbours<'a>,
    /// The names of the skills that passed the gate.
    names: BTreeSet<SkillName>,
    /// Whether any skill was admitted, including those that were already installed unchanged.
    admitted: bool,
    /// Set if the user interrupted a question. The command then ends with this failure.
    interrupted: Option<Failure>,
}

impl SkillAdder<'_> {
    /// Scans a batch of skills and admits those that pass, with one flush to disk. Returns an
    /// outcome for each, in the same order.
    fn admit_batch(
        &mut self,
        batch: Vec<GatherResult<SkillToAdd>>,
    ) -> Result<Vec<AddOutcome>, Failure> {
        let mut candidates = Vec::new();
        let mut examined = Vec::with_capacity(batch.len());
        for item in batch {
            examined.push(match item {
                Ok(SkillToAdd {
                    place,
                    source,
                    options,
                }) => {
                    let shown = &place.label;
                    let texts = Texts::of_source(shown, &source);
                    let passed = examine_candidate(source, &options, &mut self.neighbours)
                        // Without this check, a skill would replace one of the same name from an
                        // earlier batch, which is installed by now.
                        .and_then(|candidate| self.check_unique_name(candidate))
                        .map_err(|error| admission_failure(shown, &texts, error))
                        .and_then(|candidate| {
                            self.warn_of_unused_flags(&candidate)?;
                            candidates.push(candidate);
                            Ok(())
                        });
                    (place, texts, passed)
                }
                Err((place, failure)) => {
                    let texts = Texts::of_folder(&place.label);
                    (place, texts, Err(failure))
                }
            });
        }
        if self.vault.is_none() && !candidates.is_empty() {
            let vault = self.context.vault_or_new()?;
            announce_vault(self.context, &vault)?;
            // Let the next batch be compared with the skills of this one.
            self.neighbours.attach_vault(&vault);
            self.vault = Some(vault);
        }
        let reports = match &self.vault {
            Some(vault) => admit_candidates(vault, &candidates).map_err(Failure::from),
            None => Ok(Vec::new()),
        };
        let (reports, failed) = match reports {
            Ok(reports) => (reports, fail!(NotAdded, "it was not added")),
            Err(failure) => (Vec::new(), failure),
        };
        // Candidates and reports are in the order of the sources that passed, so each of those
        // takes the next pair.
        let mut admitted = candidates.iter().zip(reports);
        let outcomes = examined.into_iter().map(|(place, texts, passed)| {
            let mut from = None;
            let result = passed.and_then(|()| {
                let (candidate, report) = admitted.next().ok_or_else(|| failed.clone())?;
                let report = match report {
                    Err(taken) if taken.is_other_source() => {
                        self.ask_to_replace(candidate, taken)?
                    }
                    report => report,
                };
                let failed = |error| admission_failure(&place.label, &texts, error);
                let report = report.map_err(failed)?;
                self.admitted = true;
                requirements::note_requirements(self.context, candidate)?;
                from = self.origin_line(candidate)?;
                Ok(report)
            });
            AddOutcome {
                place,
                texts,
                result,
                from,
            }
        });
        Ok(outcomes.collect())
    }

    /// Fails if an earlier skill of this command has the same name.
    fn check_unique_name(&mut self, candidate: Candidate) -> Result<Candidate, AdmitError> {
        let name = &candidate.package.name;
        if self.names.insert(name.clone()) {
            Ok(candidate)
        } else {
            Err(AdmitError::Twice(name.clone()))
        }
    }

    fn warn_of_unused_flags(&self, candidate: &Candidate) -> Result<(), Failure> {
        let name = &candidate.package.name;
        let ends_some = !self.arguments.end_exceptions.is_empty();
        let installed = match self.vault.as_ref().filter(|_| ends_some) {
            Some(vault) => history::read_installed(vault, name)
                .map_err(|error| fail!(SkillDamaged, "{}", message_chain(&error)))?,
            None => None,
        };
        let installed = installed.as_ref().map(|installed| &installed.manifest);
        admission::warn_of_unused_flags(self.context, candidate, installed);
        Ok(())
    }

    /// Asks on a terminal whether a skill may replace the installed one, which has the same name
    /// and another source. If so, admits it. Returns `taken` if the answer is no, without a
    /// terminal, and after an interrupted question.
    fn ask_to_replace(
        &mut self,
        candidate: &Candidate,
        taken: AdmitError,
    ) -> Result<Result<AdmitReport, AdmitError>, Failure> {
        let ui = &self.context.ui;
        // `--yes` does not answer this question: a script has to name `--replace` before a skill
        // from another source takes the place of an installed one.
        let asks = self.interrupted.is_none() && ui.may_ask() && !ui.is_yes();
        let Some(vault) = self.vault.as_ref().filter(|_| asks) else {
            return Ok(Err(taken));
        };
        let question = format!("{taken}. Replace the installed one?");
        match ui.confirm_default(&clean(&question, 600), false) {
            Ok(true) => {
                let mut candidate = candidate.clone();
                candidate.options.replace = true;
                Ok(admit_one(vault, &candidate))
            }
            Ok(false) => Ok(Err(taken)),
            Err(failure) => {
                // Remember the interruption, or the command would ask about the next skill after
                // Ctrl-C.
                self.interrupted = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// Returns a line about the source and signer of a fetched skill; `None` for a local folder.
    fn origin_line(&self, candidate: &Candidate) -> Result<Option<String>, Failure> {
        let Some(vault) = self.vault.as_ref().filter(|_| candidate.upstream.is_some()) else {
            return Ok(None);
        };
        let fingerprint = KeyFingerprint::publisher(&vault.release_key()?);
        let line = origin_line(candidate);
        Ok(Some(format!("{line}, signed by this vault: {fingerprint}")))
    }
}

/// Tells the owner of a new vault its fingerprint, and how to create a recovery key.
fn announce_vault(context: &Context, vault: &Vault) -> Result<(), Failure> {
    let (root, fingerprint) = (
        vault.paths().root.display(),
        vault.require_trust()?.fingerprint(),
    );
    context.ui.note(format!(
        "Created a vault in {root}. Its fingerprint is {HINT}{fingerprint}{HINT:#}"
    ));
    context.ui.note(format!(
        "{HINT}hint:{HINT:#} vault key recovery create <file> creates a recovery key, in case this machine is lost; it changes the fingerprint"
    ));
    Ok(())
}
