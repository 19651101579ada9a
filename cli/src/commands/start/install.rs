//! `vault install`: the skills of a project, exactly as its `vault.lock` says.

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault,
    add::{self, AddFetched, AddReport, AddSkill, Candidate},
    known::Known,
};
use vault_skill::hash::Digest;
use vault_sources::{BadSource, Source, git_commit};
use vault_store::{
    clock::{Clock as _, SystemClock},
    fetch::{FetchedSkill, Upstream},
};

use crate::{
    admission::{admitted_json, admitted_text, refused, texts::Texts},
    context::Context,
    errors::{Exit, Failure},
    fetch::{self, Fetching},
    output::{DIM, Report, clean, count, paint},
    profiles,
    project_lock::{self, Lock, Locked},
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

/// Installs the project's skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(mut lock) = Lock::find(context)? else {
        return Err(
            Failure::failed("no_lock", "there is no vault.lock here or above")
                .hint("vault add <source> --lock makes one"),
        );
    };
    let stale: Vec<String> = lock
        .skills
        .iter()
        .filter(|locked| locked.digest.is_none())
        .map(|locked| locked.name.to_string())
        .collect();
    if arguments.frozen && !stale.is_empty() {
        return Err(Failure::new(
            Exit::Differences,
            "lock_stale",
            format!(
                "{} does not settle {}",
                lock.path.display(),
                stale.join(", ")
            ),
        )
        .hint("run vault install without --frozen where the lock may be written, and commit it"));
    }
    let mut install = Install {
        context,
        vault: context.existing_vault()?,
        fetching: None,
        strict: context.strict()?,
        replace: arguments.replace,
    };
    let (mut installed, mut unchanged, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let mut first: Option<Failure> = None;
    let mut settled = false;
    for locked in lock.skills.clone() {
        match install.one(&lock, &locked) {
            Ok(None) => unchanged.push(json!(locked.name)),
            Ok(Some((report, now))) => {
                if report.is_change() {
                    context.ui.line(admitted_text(&report));
                    installed.push(admitted_json(&report));
                } else {
                    unchanged.push(json!(locked.name));
                }
                if let Some(now) = now {
                    lock.put(now);
                    settled = true;
                }
            }
            Err(failure) => {
                let mut shown = failure.clone();
                shown.message = format!("{}: {}", locked.name, failure.message);
                context.ui.note_failure(&shown);
                failed.push(json!({
                    "name": locked.name, "code": failure.code, "message": failure.message, "hint": failure.hint,
                }));
                first.get_or_insert(failure);
            }
        }
    }
    if settled {
        lock.write()?;
        context.ui.note(format!("Settled {}", lock.path.display()));
    }
    if let Some(vault) = &install.vault {
        profiles::refresh(context, vault);
    }
    let text = paint(
        DIM,
        format!(
            "{} installed, {} unchanged",
            count(installed.len() as u64, "skill"),
            unchanged.len()
        ),
    );
    let count_failed = failed.len();
    let data: Value = json!({ "installed": installed, "unchanged": unchanged, "failed": failed });
    match first {
        Some(first) => Err(Failure::new(
            first.exit,
            first.code.clone(),
            format!(
                "{} could not be installed",
                count(count_failed as u64, "skill")
            ),
        )
        .data(data)),
        None => Ok(Report::new(data, text)),
    }
}

struct Install<'a> {
    context: &'a Context,
    vault: Option<Vault>,
    fetching: Option<Fetching>,
    strict: bool,
    replace: bool,
}

impl Install<'_> {
    /// Installs one skill; nothing where it is there with the locked content. With it the entry as it is settled now, where it was not.
    fn one(
        &mut self,
        lock: &Lock,
        locked: &Locked,
    ) -> Result<Option<(AddReport, Option<Locked>)>, Failure> {
        if let (Some(vault), Some(digest)) = (&self.vault, &locked.digest)
            && project_lock::installed_digest(vault, &locked.name)
                .ok()
                .flatten()
                .as_ref()
                == Some(digest)
        {
            return Ok(None);
        }
        let candidate = if locked.source.starts_with("./") {
            self.of_folder(lock, locked)?
        } else {
            self.fetched(locked)?
        };
        let found = project_lock::digest(&candidate);
        if let Some(digest) = &locked.digest {
            check(locked, digest, &found)?;
        }
        if self.vault.is_none() {
            self.vault = Some(self.context.vault_or_new()?);
        }
        let Some(vault) = &self.vault else {
            return Ok(None);
        };
        let shown = locked.name.to_string();
        let texts = Texts::of_fetched(&shown, &[]);
        let mut reports = add::admit(vault, std::slice::from_ref(&candidate))
            .map_err(|error| refused(&shown, &texts, error))?;
        let report = reports
            .pop()
            .ok_or_else(|| Failure::failed("not_added", "nothing was reported"))?;
        let now = locked.digest.is_none().then(|| {
            let settled = project_lock::locked(&candidate).unwrap_or_else(|| Locked {
                digest: Some(found),
                ..locked.clone()
            });
            Locked {
                agents: locked.agents.clone(),
                ..settled
            }
        });
        Ok(Some((report, now)))
    }

    fn of_folder(&self, lock: &Lock, locked: &Locked) -> Result<Box<Candidate>, Failure> {
        if locked.source.split('/').any(|part| part == "..") {
            return Err(Failure::failed(
                "lock_outside",
                format!("{} leads out of the project", clean(&locked.source, 200)),
            ));
        }
        let folder = lock
            .folder()
            .join(&locked.source[2..])
            .display()
            .to_string();
        let request = AddSkill {
            name: Some(locked.name.clone()),
            agents: locked.agents.clone(),
            replace: self.replace,
            strict: self.strict,
            ..AddSkill::from_path(folder.clone())
        };
        add::read_folder_skill(
            &request,
            &mut Known::of(self.vault.as_ref()),
            SystemClock.now(),
        )
        .map(Box::new)
        .map_err(|error| refused(&folder, &Texts::of_folder(&folder), error))
    }

    /// The skill at the revision that is locked, or as its source has it now where none is.
    fn fetched(&mut self, locked: &Locked) -> Result<Box<Candidate>, Failure> {
        let context = self.context;
        Fetching::online(context)?;
        if self.fetching.is_none() {
            self.fetching = Some(Fetching::new(context)?);
        }
        let Some(fetching) = &self.fetching else {
            return Err(Failure::failed("io", "nothing to fetch with"));
        };
        let bar = context.ui.spinner(format!("Fetching {}", locked.name));
        let fetched = context.block_on(async {
            let failed = |error: vault_sources::FetchError| fetch::failure(&error);
            match locked.upstream() {
                Some(upstream) => {
                    let exact = at_revision(&upstream);
                    let mut skill = fetching
                        .fetcher
                        .again(&exact, &fetching.policy)
                        .await
                        .map_err(failed)?;
                    // It goes on following what it followed.
                    skill.upstream.reference.clone_from(&upstream.reference);
                    Ok(skill)
                }
                None => wished(fetching, locked).await,
            }
        });
        bar.finish_and_clear();
        let fetched = fetched?;
        let request = AddFetched {
            name: Some(locked.name.clone()),
            agents: locked.agents.clone(),
            replace: self.replace,
            strict: self.strict,
            ..AddFetched::default()
        };
        let shown = clean(&locked.source, 200);
        let texts = Texts::of_fetched(&shown, &fetched.files);
        let mut known = Known::of(self.vault.as_ref());
        let candidate = add::gate_fetched(fetched, &request, &mut known, SystemClock.now())
            .map_err(|error| refused(&shown, &texts, error))?;
        texts.warn(context, &candidate.package.findings);
        Ok(Box::new(candidate))
    }
}

/// What is only wished for, as its source has it now.
async fn wished(fetching: &Fetching, locked: &Locked) -> Result<FetchedSkill, Failure> {
    // A folder of the project begins with `./` here, so `owner/repository` can only be a repository.
    let mut source = Source::parse(&locked.source, &fetching.options, &|_| false)
        .or_else(BadSource::accept_shorthand)
        .map_err(|bad| fetch::bad_source(&bad))?;
    if let Some(path) = &locked.path {
        source = source
            .with_path(path)
            .map_err(|bad| fetch::bad_source(&bad))?;
    }
    if let Some(reference) = &locked.reference {
        source = source
            .with_reference(reference)
            .map_err(|bad| fetch::bad_source(&bad))?;
    }
    let failed = |error: vault_sources::FetchError| fetch::failure(&error);
    let fetcher = &fetching.fetcher;
    let opened = fetcher
        .open(&source, None, &fetching.policy)
        .await
        .map_err(failed)?;
    let by_name = opened.pick(&[locked.name.to_string()]).ok();
    let found = by_name
        .and_then(|found| found.first().copied())
        .or_else(|| opened.only())
        .ok_or_else(|| {
            fetch::no_such_skill(&source.shown(), &opened.found, locked.name.as_str())
        })?;
    fetcher
        .take(&opened, found, &fetching.policy)
        .await
        .map_err(failed)
}

/// The same source at exactly the revision that is recorded, where it can be asked for.
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

fn check(locked: &Locked, wanted: &Digest, found: &Digest) -> Result<(), Failure> {
    if wanted == found {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Integrity,
        "lock_digest",
        format!("the source has other files than were locked (sha256 {found}, not {wanted})"),
    )
    .hint(format!(
        "nothing was installed; if the change is meant: vault add {} --lock --replace",
        clean(&locked.source, 200)
    )))
}
