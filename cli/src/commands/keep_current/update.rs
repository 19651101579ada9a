//! `vault update`: takes in what sources have now.
//!
//! Whether a source has something else is told by commit and tree, version or digest, never by time. `--diff` changes nothing.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault,
    add::{self, AddFetched, AddReport, Candidate},
    history,
    known::Known,
};
use vault_skill::{manifest::Manifest, name::SkillName};
use vault_store::{
    clock::{Clock as _, SystemClock},
    shelf::DriftState,
};

use crate::{
    admission::{admitted_json, admitted_text, refused, texts::Texts},
    context::Context,
    diff::{self, Version},
    drift::{Asked, compare, sort},
    errors::{Exit, Failure, chain},
    fetch::{self, Fetching},
    output::{BOLD, DIM, GOOD, Report, clean, count, paint},
    profiles, project_lock,
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Fetches what has changed from where it came, at the branch or version line that was asked for then, and admits it through
the gate as the next version. A skill that was added at a full commit stays there. The project's vault.lock is kept in step.

Examples:
  vault update
  vault update code-review
  vault update code-review --diff

Since 0.5.0 (beta).")]
pub struct Arguments {
    /// Skills to update [default: all that were fetched]
    #[arg(value_name = "NAME")]
    names: Vec<SkillName>,
    /// Show what would change, and change nothing
    #[arg(long)]
    diff: bool,
}

/// Updates what has changed, or shows the difference.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.vault()?;
    let sorted = sort(&vault, &arguments.names)?;
    if let ([], [(name, why), ..], false) = (
        &sorted.asked[..],
        &sorted.unchecked[..],
        arguments.names.is_empty(),
    ) {
        return Err(Failure::failed("source_unknown", format!("{name} {why}")));
    }
    if !sorted.asked.is_empty() {
        Fetching::online(context)?;
    }
    let fetching = Fetching::new(context)?;
    let states = compare(context, &fetching, &sorted.asked)?;
    let mut update = Update {
        context,
        vault: &vault,
        fetching: &fetching,
        strict: context.strict()?,
        changed: Vec::new(),
        up_to_date: Vec::new(),
        failed: Vec::new(),
        first: None,
        lines: 0,
    };
    for (asked, state) in sorted.asked.iter().zip(states) {
        update.one(asked, state, arguments.diff);
    }
    if !arguments.diff {
        profiles::refresh(context, &vault);
    }
    let unchecked: Vec<Value> = sorted
        .unchecked
        .iter()
        .map(|(name, reason)| json!({ "name": name, "reason": reason }))
        .collect();
    let member = if arguments.diff { "drifted" } else { "updated" };
    let (changed, failed) = (update.changed.len(), update.failed.len());
    let data = json!({
        member: update.changed, "up_to_date": update.up_to_date, "unchecked": unchecked, "failed": update.failed,
    });
    if let Some(first) = update.first {
        return Err(Failure::new(
            first.exit,
            first.code.clone(),
            format!("{} could not be updated", count(failed as u64, "skill")),
        )
        .data(data));
    }
    let exit = if arguments.diff && changed > 0 {
        Exit::Differences
    } else {
        Exit::Done
    };
    let text = if changed == 0 {
        paint(
            DIM,
            format!(
                "{} up to date",
                count(update.up_to_date.len() as u64, "skill")
            ),
        )
    } else {
        String::new()
    };
    Ok(Report::new(data, text).exit(exit))
}

struct Update<'a> {
    context: &'a Context,
    vault: &'a Vault,
    fetching: &'a Fetching,
    strict: bool,
    changed: Vec<Value>,
    up_to_date: Vec<Value>,
    failed: Vec<Value>,
    first: Option<Failure>,
    lines: usize,
}

impl Update<'_> {
    fn one(&mut self, asked: &Asked, state: DriftState, only_diff: bool) {
        let name = &asked.name;
        let done = match state {
            DriftState::UpToDate => {
                self.up_to_date.push(json!(name));
                if only_diff {
                    Ok(())
                } else {
                    self.settle(asked)
                }
            }
            DriftState::Drifted { .. } => self.fetched(asked).and_then(|(candidate, manifest)| {
                if only_diff {
                    self.show(name, &candidate, &manifest)
                } else {
                    self.admit(&candidate)
                }
            }),
            DriftState::Unchecked(reason) | DriftState::Failed(reason) => Err(Failure::new(
                Exit::Network,
                "source_failed",
                clean(&reason, 400),
            )),
        };
        if let Err(failure) = done {
            let mut shown = failure.clone();
            shown.message = format!("{name}: {}", failure.message);
            self.context.ui.note_failure(&shown);
            self.failed.push(json!({
                "name": name, "code": failure.code, "message": failure.message, "hint": failure.hint,
            }));
            self.first.get_or_insert(failure);
        }
    }

    /// What the source has now, through the gate.
    fn fetched(&self, asked: &Asked) -> Result<(Box<Candidate>, Manifest), Failure> {
        let (context, name) = (self.context, &asked.name);
        let before = history::installed(self.vault, name)
            .map_err(|error| Failure::new(Exit::Integrity, "skill_damaged", chain(&error)))?
            .ok_or_else(|| {
                Failure::failed(
                    "skill_not_found",
                    format!("{name} is not installed any more"),
                )
            })?;
        let bar = context.ui.spinner(format!("Fetching {name}"));
        let fetched = context.block_on(async {
            let again = self
                .fetching
                .fetcher
                .again(&asked.upstream, &self.fetching.policy);
            again.await.map_err(|error| fetch::failure(&error))
        });
        bar.finish_and_clear();
        let fetched = fetched?;
        let request = AddFetched {
            name: Some(name.clone()),
            agents: before.manifest.agents.clone(),
            strict: self.strict,
            ..AddFetched::default()
        };
        let shown = clean(asked.upstream.identifier.as_str(), 200);
        let texts = Texts::of_fetched(&shown, &fetched.files);
        let mut known = Known::of(self.vault);
        let candidate = add::gate_fetched(fetched, &request, &mut known, SystemClock.now())
            .map_err(|error| refused(&shown, &texts, error))?;
        texts.warn(context, &candidate.package.findings);
        Ok((Box::new(candidate), before.manifest))
    }

    fn admit(&mut self, candidate: &Candidate) -> Result<(), Failure> {
        let name = candidate.package.name.clone();
        let texts = Texts::of_fetched(name.as_str(), &[]);
        let mut reports = add::admit(self.vault, std::slice::from_ref(candidate))
            .map_err(|error| refused(name.as_str(), &texts, error))?;
        let report = reports
            .pop()
            .ok_or_else(|| Failure::failed("not_added", "nothing was reported"))?;
        if report.is_change() {
            self.context.ui.line(admitted_text(&report));
            let mut data = admitted_json(&report);
            data["revision"] = json!(candidate.provenance.revision);
            self.changed.push(data);
        } else {
            self.up_to_date.push(json!(name));
        }
        self.note(&report, candidate)
    }

    /// An update that was killed before its last step left the project's lock behind: it follows now.
    fn settle(&self, asked: &Asked) -> Result<(), Failure> {
        let Some(mut lock) = project_lock::Lock::find(self.context)? else {
            return Ok(());
        };
        let source = asked.upstream.identifier.as_str();
        let named = lock
            .skills
            .iter()
            .find(|locked| locked.name == asked.name && locked.source == source);
        let Some(agents) = named.map(|locked| locked.agents.clone()) else {
            return Ok(());
        };
        let installed = project_lock::installed_digest(self.vault, &asked.name)?;
        if named.is_none_or(|locked| locked.digest == installed) {
            return Ok(());
        }
        let digest = installed;
        lock.put(project_lock::of_upstream(
            asked.name.clone(),
            &asked.upstream,
            digest,
            agents,
        ));
        lock.write()
    }

    /// The project's lock follows where it names the skill.
    fn note(&self, report: &AddReport, candidate: &Candidate) -> Result<(), Failure> {
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

    fn show(
        &mut self,
        name: &SkillName,
        candidate: &Candidate,
        before: &Manifest,
    ) -> Result<(), Failure> {
        let installed = history::installed(self.vault, name)
            .map_err(|error| Failure::new(Exit::Integrity, "skill_damaged", chain(&error)))?;
        let old_files = installed
            .map(|installed| installed.files)
            .unwrap_or_default();
        let old: BTreeMap<&str, Version<'_>> = old_files
            .iter()
            .map(|file| {
                (
                    file.path.as_str(),
                    Version {
                        mode: file.mode,
                        bytes: &file.bytes,
                    },
                )
            })
            .collect();
        let new: BTreeMap<&str, Version<'_>> = candidate
            .package
            .files
            .iter()
            .map(|file| {
                (
                    file.path.as_str(),
                    Version {
                        mode: file.mode,
                        bytes: &file.bytes,
                    },
                )
            })
            .collect();
        let lines = diff::diff_files(&old, &new);
        if self.lines > 0 {
            self.context.ui.line("");
        }
        self.lines += lines.len() + 1;
        self.context.ui.line(format!(
            "{} {}  version {} → {}",
            paint(GOOD, "↑"),
            paint(BOLD, name),
            before.version,
            before.version + 1
        ));
        for line in &lines {
            self.context.ui.line(line);
        }
        let plain: Vec<String> = lines
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        self.changed.push(json!({
            "name": name, "revision": candidate.provenance.revision, "diff": plain,
        }));
        Ok(())
    }
}
