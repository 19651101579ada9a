//! `vault outdated` and `vault update`: what sources have now, and taking it in.
//!
//! Whether a source has something else is told by commit and tree, version or digest, never by time. `outdated` and `update --diff` change
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Origin, Vault,
    add::{self, AddFetched, AddReport, Candidate},
    history,
    known::Known,
    shelf, upstream,
};
use vault_skill::{manifest::Manifest, name::SkillName, provenance::ProvenanceId};
use vault_sources::compare::Round;
use vault_store::{
    clock::{Clock as _, SystemClock},
    fetch::Upstream,
    shelf::DriftState,
};

use super::add::{Texts, admitted_json, admitted_text, refused};
use crate::{
    Context,
    diff::{self, Version},
    error::{Exit, Failure, chain},
    fetching::{self, Fetching},
    lock,
    ui::{BOLD, DIM, GOOD, Report, WARN, Warning, clean, count, paint},
};

/// How many sources are asked at a time.
const AT_ONCE: usize = 4;

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Asks the source of each skill whether it has something else now: another commit in which the skill's folder differs, another
version, another digest. Nothing is changed. Ends with 3 where something is outdated.

Examples:
  vault outdated
  vault outdated code-review --json

Since 0.5.0 (beta).")]
pub struct OutdatedArguments {
    /// Skills to ask for [default: all that were fetched]
    #[arg(value_name = "NAME")]
    names: Vec<SkillName>,
}

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

/// A skill, and where it came from.
struct Asked {
    name: SkillName,
    upstream: Upstream,
}

/// The skills whose source can be asked, and why the others' cannot.
struct Sorted {
    asked: Vec<Asked>,
    unchecked: Vec<(SkillName, String)>,
}

/// Says what is outdated.
pub fn outdated(context: &Context, arguments: &OutdatedArguments) -> Result<Report, Failure> {
    let Some(vault) = super::existing_vault(context)? else {
        return Err(super::no_vault(context));
    };
    let sorted = sort(&vault, &arguments.names)?;
    let states = if sorted.asked.is_empty() {
        Vec::new()
    } else {
        Fetching::online(context)?;
        compare(context, &Fetching::new(context)?, &sorted.asked)?
    };
    let mut lines = Vec::new();
    let (mut drifted, mut up_to_date, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut unchecked: Vec<Value> = sorted
        .unchecked
        .iter()
        .map(|(name, reason)| json!({ "name": name, "reason": reason }))
        .collect();
    for (asked, state) in sorted.asked.iter().zip(states) {
        let name = &asked.name;
        match state {
            DriftState::Drifted { recorded, upstream } => {
                lines.push(format!(
                    "{} {}  {} → {}  {}",
                    paint(WARN, "↑"),
                    paint(BOLD, name),
                    clean(&recorded, 60),
                    clean(&upstream, 60),
                    paint(DIM, clean(asked.upstream.identifier.as_str(), 200))
                ));
                drifted.push(json!({
                    "name": name, "source": asked.upstream.identifier, "recorded": recorded, "upstream": upstream,
                }));
            }
            DriftState::UpToDate => up_to_date.push(json!(name)),
            DriftState::Unchecked(reason) => {
                unchecked.push(json!({ "name": name, "reason": reason }));
            }
            DriftState::Failed(reason) => {
                context.ui.warn(Warning::new(
                    "source_failed",
                    format!("{name} could not be compared: {}", clean(&reason, 400)),
                ));
                errors.push(json!({ "name": name, "reason": reason }));
            }
        }
    }
    lines.push(paint(
        DIM,
        format!(
            "{} outdated, {} up to date, {} unchecked",
            drifted.len(),
            up_to_date.len(),
            unchecked.len() + errors.len()
        ),
    ));
    let exit = match (drifted.is_empty(), errors.is_empty()) {
        (false, _) => Exit::Differences,
        (true, false) => Exit::Network,
        (true, true) => Exit::Done,
    };
    let data = json!({
        "drifted": drifted, "up_to_date": up_to_date, "unchecked": unchecked, "errors": errors,
    });
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}

/// Which of the skills can be asked for; a name that is not there is a failure.
fn sort(vault: &Vault, names: &[SkillName]) -> Result<Sorted, Failure> {
    let listing = shelf::list(vault)?;
    let mut sorted = Sorted {
        asked: Vec::new(),
        unchecked: Vec::new(),
    };
    for name in names {
        let there = listing.skills.iter().any(|skill| skill.name == *name)
            || listing.damaged.iter().any(|(other, ..)| other == name);
        if !there {
            return Err(super::history::not_installed(vault, name)?);
        }
    }
    let wanted = |name: &SkillName| names.is_empty() || names.contains(name);
    for skill in listing.skills {
        if !wanted(&skill.name) {
            continue;
        }
        if skill.origin != Origin::Local {
            if names.is_empty() {
                continue;
            }
            let why = "came with a linked vault; vault cloud pull updates it".to_owned();
            sorted.unchecked.push((skill.name, why));
            continue;
        }
        let identifier: Option<ProvenanceId> = skill.texts.provenance.parse().ok();
        let known = upstream::of_bundle(vault, &skill.bundle)?
            .filter(|known| Some(&known.identifier) == identifier.as_ref());
        let found = match known {
            Some(known) => Some(known),
            None => upstream::of_skill(vault, &skill.name)?,
        };
        match found {
            Some(upstream) => sorted.asked.push(Asked {
                name: skill.name,
                upstream,
            }),
            None => {
                let why = format!(
                    "is from {}: there is nothing to ask",
                    clean(&skill.texts.provenance, 200)
                );
                sorted.unchecked.push((skill.name, why));
            }
        }
    }
    for (name, origin, _) in &listing.damaged {
        if *origin == Origin::Local && wanted(name) {
            sorted.unchecked.push((
                name.clone(),
                "is not what was signed; add it again".to_owned(),
            ));
        }
    }
    Ok(sorted)
}

/// Asks the sources, several at a time; the answers are in the order of the questions.
fn compare(
    context: &Context,
    fetching: &Fetching,
    asked: &[Asked],
) -> Result<Vec<DriftState>, Failure> {
    let bar = context.ui.progress(asked.len() as u64, "Asking");
    let states = context.block_on(async {
        let slots = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let round = Arc::new(Round::default());
        let mut states: Vec<DriftState> = asked
            .iter()
            .map(|_| DriftState::Unchecked("was not asked".to_owned()))
            .collect();
        let mut asking = tokio::task::JoinSet::new();
        for (at, asked) in asked.iter().enumerate() {
            let (fetcher, slots) = (Arc::clone(&fetching.fetcher), Arc::clone(&slots));
            let round = Arc::clone(&round);
            let (upstream, policy) = (asked.upstream.clone(), fetching.policy.clone());
            asking.spawn(async move {
                let _slot = slots.acquire().await;
                (at, fetcher.drift_in(&round, &upstream, &policy).await)
            });
        }
        while let Some(done) = asking.join_next().await {
            let (at, state) = done
                .map_err(|broken| Failure::failed("io", format!("a task broke off: {broken}")))?;
            states[at] = state;
            bar.inc(1);
        }
        Ok(states)
    });
    bar.finish_and_clear();
    states
}

/// Updates what has changed, or shows the difference.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(vault) = super::existing_vault(context)? else {
        return Err(super::no_vault(context));
    };
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
        strict: super::strict(context)?,
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
        super::sync_profiles::refresh(context, &vault);
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
            again.await.map_err(|error| fetching::failure(&error))
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
        let Some(mut lock) = lock::Lock::find(self.context)? else {
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
        let installed = lock::installed_digest(self.vault, &asked.name)?;
        if named.is_none_or(|locked| locked.digest == installed) {
            return Ok(());
        }
        let digest = installed;
        lock.put(lock::of_upstream(
            asked.name.clone(),
            &asked.upstream,
            digest,
            agents,
        ));
        lock.write()
    }

    /// The project's lock follows where it names the skill.
    fn note(&self, report: &AddReport, candidate: &Candidate) -> Result<(), Failure> {
        let Some(mut lock) = lock::Lock::find(self.context)? else {
            return Ok(());
        };
        if lock.skills.iter().any(|locked| locked.name == report.name)
            && let Some(locked) = lock::locked(candidate)
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
        let lines = diff::of(&old, &new);
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
