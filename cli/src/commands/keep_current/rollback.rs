//! `vault rollback`: restores a stored version of a skill.

use clap::Args;
use vault_library::admit::history::{self, RollbackError};
use vault_skill::name::{SkillName, SkillRef};

use crate::{
    admission::{admitted_json, admitted_text, refused, texts::Texts},
    context::Context,
    errors::{ErrorCode, Failure, chain},
    lookup,
    output::Report,
    profiles, project_lock,
};

/// The arguments of `vault rollback`.
#[derive(Args, Debug)]
#[command(after_help = "\
The earlier files pass the gate again and are signed as the next version, so version numbers \
never go down. A second rollback undoes the first. A project's vault.lock does not change: `vault \
install` restores what it lists.

Examples:
  vault rollback code-review
  vault rollback code-review --to 2")]
pub struct Arguments {
    /// The skill
    name: SkillRef,
    /// The version to go back to [default: the newest earlier one whose files differ]
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
}

/// Restores the version.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.vault()?;
    let name = &lookup::own(&vault, &arguments.name)?;
    let strict = context.strict()?;
    let report = match history::roll_back(&vault, name, arguments.to, strict) {
        Ok(report) => report,
        Err(RollbackError::NotInstalled(_)) => return Err(lookup::not_own(&vault, name)?),
        Err(error) => return Err(failure(name, error)),
    };
    profiles::refresh(context, &vault);
    if let Ok(Some(lock)) = project_lock::Lock::find(context)
        && lock.skills.iter().any(|locked| locked.name == *name)
    {
        context.ui.note(format!(
            "{} names {name} as it was; vault install would bring that back",
            lock.path.display()
        ));
    }
    Ok(Report::new(admitted_json(&report), admitted_text(&report)))
}

fn failure(name: &SkillName, error: RollbackError) -> Failure {
    let message = chain(&error);
    let shows = format!("vault history {name} shows what is stored");
    match error {
        RollbackError::NotInstalled(_) => fail!(SkillNotFound, "{message}"),
        RollbackError::NothingEarlier(_) | RollbackError::NoSuchVersion { .. } => {
            fail!(VersionNotStored, "{message}").hint(shows)
        }
        RollbackError::Damaged { damage, .. } => {
            let code = if damage.is_tampering() {
                ErrorCode::SkillDamaged
            } else {
                ErrorCode::SkillUnreadable
            };
            Failure::new(code, message).hint(shows)
        }
        RollbackError::Admit(error) => {
            let texts = Texts::of_fetched(name.as_str(), &[]);
            refused(name.as_str(), &texts, error)
        }
        RollbackError::Vault(error) => error.into(),
    }
}
