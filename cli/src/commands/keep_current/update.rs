//! `vault update`: admits the current versions of skills from their sources.
//!
//! Sources are compared by commit and tree, version or digest, never by time. `--diff` changes
//! nothing.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Examined, Vault,
    admit::{AdmitReport, Candidate, Neighbours, Options, Source, admit_one, examine, history},
};
use vault_skill::{bundle::File, name::SkillRef};
use vault_store::shelf::DriftState;

use crate::{
    admission::{
        admitted_json, admitted_text,
        outcomes::{Outcome, Outcomes},
        refused,
        texts::Texts,
    },
    context::Context,
    diff::{self, FileVersion},
    drift::{DriftCheck, compare, sort},
    errors::{Exit, Failure, chain},
    fetch::{self, Fetching},
    output::{BOLD, DIM, GOOD, Report, clean, count},
    profiles,
    project_lock::{self, LockEntry},
};

/// The arguments of `vault update`.
#[derive(Args, Debug)]
#[command(after_help = "\
Fetches changed skills from their sources, from the branch or version range that you chose when \
you added them. Each passes the gate and becomes the next version. A skill that was added at a \
full commit id stays at that commit. The project's vault.lock is updated too.

Examples:
  vault update
  vault update code-review
  vault update code-review --diff")]
pub struct Arguments {
    /// Skills to update [default: all that have an update source]
    #[arg(value_name = "NAME")]
    names: Vec<SkillRef>,
    /// Show the changes without making them
    #[arg(long)]
    diff: bool,
}

/// Updates the skills that changed, or shows the differences.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.vault()?;
    let sorted = sort(&vault, &arguments.names)?;
    if let ([], [(name, why), ..]) = (&sorted.asked[..], &sorted.unchecked[..])
        && !arguments.names.is_empty()
    {
        return Err(fail!(SourceUnknown, "{name} {why}"));
    }
    if !sorted.asked.is_empty() {
        context.require_network()?;
    }
    let fetching = Fetching::new(context)?;
    let states = compare(context, &fetching, &sorted.asked)?;
    let mut update = Update {
        context,
        vault: &vault,
        fetching: &fetching,
        strict: context.strict()?,
        has_shown: false,
    };
    let mut outcomes = Outcomes::new(context, "name");
    for (asked, state) in sorted.asked.iter().zip(states) {
        let result = update.update(asked, state, arguments.diff);
        outcomes.push(asked.name.as_str(), result);
    }
    if !arguments.diff {
        profiles::refresh(context, &vault);
    }
    let unchecked = sorted.unchecked.iter();
    let unchecked = unchecked.map(|(name, reason)| json!({ "name": name, "reason": reason }));
    let member = if arguments.diff { "drifted" } else { "updated" };
    let (changed, same) = (outcomes.done.len(), outcomes.unchanged.len());
    let data = json!({
        member: outcomes.done, "up_to_date": outcomes.unchanged, "failed": outcomes.failed,
        "unchecked": unchecked.collect::<Vec<_>>(),
    });
    let data = outcomes.finish("updated", data)?;
    let text = match changed {
        0 => format!("{DIM}{} up to date{DIM:#}", count(same, "skill")),
        _ => String::new(),
    };
    let differs = arguments.diff && changed > 0;
    Ok(Report::new(data, text).exit(if differs {
        Exit::Differences
    } else {
        Exit::Done
    }))
}

struct Update<'a> {
    context: &'a Context,
    vault: &'a Vault,
    fetching: &'a Fetching,
    strict: bool,
    /// Whether a difference was printed. An empty line separates it from the next one.
    has_shown: bool,
}

impl Update<'_> {
    fn update(
        &mut self,
        asked: &DriftCheck,
        state: DriftState,
        only_diff: bool,
    ) -> Result<Outcome, Failure> {
        match state {
            DriftState::UpToDate => {
                if !only_diff {
                    self.complete_lock(asked)?;
                }
                Ok(Outcome::Unchanged)
            }
            DriftState::Drifted { .. } => {
                let (candidate, before) = self.candidate(asked)?;
                if only_diff {
                    Ok(Outcome::Done(self.show(&candidate, &before)))
                } else {
                    self.admit(&candidate)
                }
            }
            DriftState::Unchecked(reason) | DriftState::Failed(reason) => {
                Err(fail!(SourceFailed, "{}", clean(&reason, 400)))
            }
        }
    }

    /// Fetches the current version from the source and runs the gate on it. Returns it with the
    /// installed version.
    fn candidate(&self, asked: &DriftCheck) -> Result<(Candidate, Examined), Failure> {
        let (context, name) = (self.context, &asked.name);
        let before = history::read_installed(self.vault, name)
            .map_err(|error| fail!(SkillDamaged, "{}", chain(&error)))?
            .ok_or_else(|| fail!(SkillNotFound, "{name} is not installed any more"))?;
        let bar = context.ui.spinner(format!("Fetching {name}"));
        let fetched = context.block_on(async {
            let Fetching {
                fetcher, policy, ..
            } = self.fetching;
            let again = fetcher.fetch_recorded(&asked.upstream, policy);
            again.await.map_err(|error| fetch::failure(&error))
        });
        bar.finish_and_clear();
        let source = Source::Fetched(Box::new(fetched?));
        let options = Options {
            name: Some(name.clone()),
            agents: before.manifest.agents.clone(),
            strict: self.strict,
            require_installed: true,
            ..Options::default()
        };
        let shown = clean(asked.upstream.identifier.as_str(), 200);
        let texts = Texts::of_source(&shown, &source);
        let candidate = examine(source, &options, &mut Neighbours::of(self.vault))
            .map_err(|error| refused(&shown, &texts, error))?;
        texts.warn(context, &candidate.package.findings);
        Ok((candidate, before))
    }

    fn admit(&self, candidate: &Candidate) -> Result<Outcome, Failure> {
        let name = candidate.package.name.as_str();
        let report = admit_one(self.vault, candidate)
            .map_err(|error| refused(name, &Texts::of_fetched(name, &[]), error))?;
        let outcome = if report.is_change() {
            self.context.ui.line(admitted_text(&report));
            let mut data = admitted_json(&report);
            data["revision"] = json!(candidate.provenance.revision);
            Outcome::Done(data)
        } else {
            Outcome::Unchanged
        };
        self.note(&report, candidate)?;
        Ok(outcome)
    }

    /// Updates the skill's entry in the project's lock if it does not match the installed version.
    /// This happens if an earlier update was killed before it wrote the lock.
    fn complete_lock(&self, asked: &DriftCheck) -> Result<(), Failure> {
        let Some(mut lock) = project_lock::Lock::find(self.context)? else {
            return Ok(());
        };
        let (name, upstream) = (&asked.name, &asked.upstream);
        let source = upstream.identifier.as_str();
        let is_same = |locked: &&LockEntry| locked.name == *name && locked.source == source;
        let Some(locked) = lock.skills.iter().find(is_same) else {
            return Ok(());
        };
        let installed = project_lock::installed_digest(self.vault, name)?;
        if locked.digest == installed {
            return Ok(());
        }
        let agents = locked.agents.clone();
        lock.put(project_lock::of_upstream(
            name.clone(),
            upstream,
            installed,
            agents,
        ));
        lock.write()
    }

    /// Updates the skill's entry in the project's lock, if the lock has one.
    fn note(&self, report: &AdmitReport, candidate: &Candidate) -> Result<(), Failure> {
        let Some(mut lock) = project_lock::Lock::find(self.context)? else {
            return Ok(());
        };
        if lock.skills.iter().any(|locked| locked.name == report.name)
            && let Some(locked) = project_lock::locked(candidate)
        {
            lock.put(locked);
            lock.write()?;
        }
        Ok(())
    }

    fn show(&mut self, candidate: &Candidate, before: &Examined) -> Value {
        let name = &candidate.package.name;
        let lines = diff::diff_files(&by_path(&before.files), &by_path(&candidate.package.files));
        if std::mem::replace(&mut self.has_shown, true) {
            self.context.ui.line("");
        }
        let version = before.manifest.version;
        self.context.ui.line(format!(
            "{GOOD}↑{GOOD:#} {BOLD}{name}{BOLD:#}  version {version} → {}",
            version + 1
        ));
        let mut plain = Vec::with_capacity(lines.len());
        for line in &lines {
            self.context.ui.line(line);
            plain.push(anstream::adapter::strip_str(line).to_string());
        }
        json!({ "name": name, "revision": candidate.provenance.revision, "diff": plain })
    }
}

fn by_path(files: &[File]) -> BTreeMap<&str, FileVersion<'_>> {
    let mut versions = BTreeMap::new();
    for File { path, mode, bytes } in files {
        versions.insert(path.as_str(), FileVersion { mode: *mode, bytes });
    }
    versions
}
