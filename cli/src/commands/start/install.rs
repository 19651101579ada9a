//! `vault install`: installs the skills of a project exactly as its `vault.lock` records them.

use clap::Args;
use serde_json::json;
use vault_library::{
    Vault,
    admit::{self, Candidate, Neighbours, Options, admit_one, examine},
};
use vault_skill::hash::Digest;
use vault_sources::{BadSource, Source, git_commit};
use vault_store::{
    clock::{Clock as _, SystemClock},
    fetch::{FetchedSkill, Upstream},
};

use crate::{
    admission::{
        admitted_json, admitted_text,
        outcomes::{Outcome, Outcomes},
        refused,
        texts::Texts,
    },
    context::Context,
    errors::Failure,
    fetch::{self, Fetching},
    output::{DIM, Report, clean, count, join},
    profiles,
    project_lock::{self, Lock, LockEntry},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Installs every skill of the nearest vault.lock at the commit or version that it names, and refuses content that is not the
locked one (exit 6). What is installed with that content already is left alone, without the network. An entry that only
names a source is settled and written into the lock; with --frozen that is a failure (exit 3), and the lock is never written.

Examples:
  vault install
  vault install --frozen

Since 0.5.0 (beta).")]
pub struct Arguments {
    /// Never write the lock: fail where it does not settle everything
    #[arg(long)]
    frozen: bool,
    /// Take the place of skills of the same names that came from other sources
    #[arg(long)]
    replace: bool,
}

/// Installs the skills in the project's lock.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(mut lock) = Lock::find(context)? else {
        return Err(fail!(NoLock, "there is no vault.lock here or above")
            .hint("vault add <source> --lock makes one"));
    };
    let stale = lock.skills.iter().filter(|locked| locked.digest.is_none());
    let stale = join(stale.map(|locked| &locked.name));
    if arguments.frozen && !stale.is_empty() {
        return Err(
            fail!(LockStale, "{} does not settle {stale}", lock.path.display()).hint(
                "run vault install without --frozen where the lock may be written, and commit it",
            ),
        );
    }
    let mut install = Install {
        context,
        vault: context.existing_vault()?,
        fetching: None,
        strict: context.strict()?,
        replace: arguments.replace,
    };
    let mut outcomes = Outcomes::new(context, "name");
    let mut is_changed = false;
    for locked in lock.skills.clone() {
        let result = install.install(&lock, &locked).map(|(outcome, completed)| {
            is_changed |= completed.is_some();
            if let Some(entry) = completed {
                lock.put(entry);
            }
            outcome
        });
        outcomes.push(locked.name.as_str(), result);
    }
    if is_changed {
        lock.write()?;
        context.ui.note(format!("Settled {}", lock.path.display()));
    }
    if let Some(vault) = &install.vault {
        profiles::refresh(context, vault);
    }
    let (done, unchanged) = (outcomes.done.len(), outcomes.unchanged.len());
    let done = count(done, "skill");
    let text = format!("{DIM}{done} installed, {unchanged} unchanged{DIM:#}");
    let data = json!({
        "installed": outcomes.done, "unchanged": outcomes.unchanged, "failed": outcomes.failed,
    });
    Ok(Report::new(outcomes.finish("installed", data)?, text))
}

struct Install<'a> {
    context: &'a Context,
    vault: Option<Vault>,
    fetching: Option<Fetching>,
    strict: bool,
    replace: bool,
}

impl Install<'_> {
    /// Installs one skill, unless the locked content is already installed. If the lock entry had no
    /// digest, also returns the completed entry.
    fn install(
        &mut self,
        lock: &Lock,
        locked: &LockEntry,
    ) -> Result<(Outcome, Option<LockEntry>), Failure> {
        if let (Some(vault), Some(digest)) = (&self.vault, &locked.digest) {
            let installed = project_lock::installed_digest(vault, &locked.name);
            if installed.ok().flatten().as_ref() == Some(digest) {
                return Ok((Outcome::Unchanged, None));
            }
        }
        let candidate = self.candidate(lock, locked)?;
        let found = project_lock::digest(&candidate);
        if let Some(digest) = &locked.digest {
            check(locked, digest, &found)?;
        }
        let vault = match &mut self.vault {
            Some(vault) => vault,
            none => none.insert(self.context.vault_or_new()?),
        };
        let name = locked.name.as_str();
        let report = admit_one(vault, &candidate)
            .map_err(|error| refused(name, &Texts::of_fetched(name, &[]), error))?;
        let completed = locked.digest.is_none().then(|| {
            let entry = project_lock::locked(&candidate).unwrap_or_else(|| LockEntry {
                digest: Some(found),
                ..locked.clone()
            });
            LockEntry {
                agents: locked.agents.clone(),
                ..entry
            }
        });
        if !report.is_change() {
            return Ok((Outcome::Unchanged, completed));
        }
        self.context.ui.line(admitted_text(&report));
        Ok((Outcome::Done(admitted_json(&report)), completed))
    }

    /// Reads or fetches a skill and runs the gate on it.
    fn candidate(&mut self, lock: &Lock, locked: &LockEntry) -> Result<Candidate, Failure> {
        let (shown, source) = match locked.source.strip_prefix("./") {
            Some(inner) => {
                if locked.source.split('/').any(|part| part == "..") {
                    let source = clean(&locked.source, 200);
                    return Err(fail!(LockOutside, "{source} leads out of the project"));
                }
                let folder = lock.folder().join(inner).display().to_string();
                (folder.clone(), admit::Source::Folder(folder))
            }
            None => {
                let fetched = Box::new(self.fetch(locked)?);
                (clean(&locked.source, 200), admit::Source::Fetched(fetched))
            }
        };
        let is_fetched = matches!(source, admit::Source::Fetched(_));
        let texts = Texts::of_source(&shown, &source);
        let options = Options {
            name: Some(locked.name.clone()),
            agents: locked.agents.clone(),
            replace: self.replace,
            strict: self.strict,
            ..Options::default()
        };
        let mut neighbours = Neighbours::new(self.vault.as_ref(), SystemClock.now());
        let candidate = examine(source, &options, &mut neighbours)
            .map_err(|error| refused(&shown, &texts, error))?;
        if is_fetched {
            texts.warn(self.context, &candidate.package.findings);
        }
        Ok(candidate)
    }

    /// Fetches exactly the locked content. If the entry has no digest, fetches what its source has
    /// now.
    fn fetch(&mut self, locked: &LockEntry) -> Result<FetchedSkill, Failure> {
        let context = self.context;
        context.require_network()?;
        let fetching = match &mut self.fetching {
            Some(fetching) => fetching,
            none => none.insert(Fetching::new(context)?),
        };
        let bar = context.ui.spinner(format!("Fetching {}", locked.name));
        let fetched = context.block_on(async {
            let Some(upstream) = locked.upstream() else {
                return fetch_current(fetching, locked).await;
            };
            let exact = at_revision(&upstream);
            let again = fetching.fetcher.fetch_recorded(&exact, &fetching.policy);
            let mut skill = again.await.map_err(|error| fetch::failure(&error))?;
            // Keep the branch or tag of the lock entry in place of the exact revision, so that
            // later updates follow it.
            skill.upstream.reference.clone_from(&upstream.reference);
            Ok(skill)
        });
        bar.finish_and_clear();
        fetched
    }
}

/// Fetches what the source has now, for a lock entry without a digest.
async fn fetch_current(fetching: &Fetching, locked: &LockEntry) -> Result<FetchedSkill, Failure> {
    // In a lock file, folders of the project start with `./`. So `owner/repository` can only be a
    // repository.
    let source = Source::parse(&locked.source, &fetching.options, &|_| false)
        .or_else(BadSource::accept_shorthand)
        .map_err(|bad| fetch::bad_source(&bad))?;
    let source = fetch::refined(source, locked.path.as_deref(), locked.reference.as_deref())?;
    let failed = |error: vault_sources::FetchError| fetch::failure(&error);
    let (fetcher, policy, name) = (&fetching.fetcher, &fetching.policy, locked.name.as_str());
    let opened = fetcher.open(&source, None, policy).await.map_err(failed)?;
    let found = opened.by_name(name).or_else(|| opened.only());
    let missing = || fetch::no_such_skill(&source.shown(), &opened.found, name);
    let found = found.ok_or_else(missing)?;
    fetcher.take(&opened, found, policy).await.map_err(failed)
}

/// Returns the upstream with its recorded revision as the reference, if the source can serve that
/// revision. Git serves commits and a registry serves versions.
fn at_revision(upstream: &Upstream) -> Upstream {
    let exact = upstream.revision.clone().filter(|revision| {
        git_commit(revision)
            || upstream.identifier.as_str().starts_with("registry:")
                && !revision.starts_with("sha256:")
    });
    Upstream {
        reference: exact.or_else(|| upstream.reference.clone()),
        ..upstream.clone()
    }
}

fn check(locked: &LockEntry, wanted: &Digest, found: &Digest) -> Result<(), Failure> {
    if wanted == found {
        return Ok(());
    }
    Err(fail!(
        LockDigest,
        "the source has other files than were locked (sha256 {found}, not {wanted})"
    )
    .hint(format!(
        "nothing was installed; if the change is meant: vault add {} --lock --replace",
        clean(&locked.source, 200)
    )))
}
