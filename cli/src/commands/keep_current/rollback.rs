//! `vault rollback`: installs the files of a stored earlier version of a skill again, as a new
//! version, and *holds* it: updates leave the skill alone until `vault update` names it.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{SkillName, SkillRef};
use vault_library::{
    AdmitReport,
    admit::history::{self, RollbackError, RolledBack},
};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, message_chain},
    lookup,
    output::{BOLD, DIM, Report, TICK, paint},
    tasks::{
        admission::{admission_failure, texts::Texts},
        profiles,
    },
};

/// The arguments of `vault rollback`.
#[derive(Args, Debug)]
#[command(after_help = "\
The earlier files pass the gate again and are signed as the next version, because version numbers \
never decrease. The skill stays there: `vault update` leaves it out until you name it. A second \
rollback undoes the first.

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

/// A skill that was rolled back.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SkillRollback {
    #[serde(flatten)]
    skill: AdmitReport,
    /// The version whose files are installed again.
    rolled_back_to: u64,
    /// Whether the skill stays there until `vault update` names it: always true.
    held: bool,
}

/// Restores the version of `--to`, or the newest earlier one whose files differ, and updates the
/// agents' links.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    let name = &lookup::find_own(&vault, &arguments.name)?;
    let strict = context.is_strict()?;
    let RolledBack { to, report } = match history::roll_back(&vault, name, arguments.to, strict) {
        Ok(report) => report,
        // `not_own` suggests similar names, which the library does not.
        Err(RollbackError::NotInstalled(_)) => return Err(lookup::not_own(&vault, name)?),
        Err(error) => return Err(rollback_failure(name, error)),
    };
    profiles::refresh_links(context, &vault);
    let (name, version) = (paint(BOLD, &report.name), report.version);
    // The installed files may equal those of that version already. Then nothing is signed, and only
    // the hold is new.
    let now = if report.is_change() {
        format!("rolled back {name} to version {to} (now version {version}, held)")
    } else {
        format!("held {name} at version {version}, which has the files of version {to}")
    };
    let lines = [
        format!("{TICK} {now}"),
        paint(
            DIM,
            format!(
                "  vault update {} takes the newest version again",
                report.name
            ),
        ),
    ];
    let rollback = SkillRollback {
        skill: report,
        rolled_back_to: to,
        held: true,
    };
    Ok(Report::view(rollback, lines.join("\n")))
}

fn rollback_failure(name: &SkillName, error: RollbackError) -> Failure {
    let message = message_chain(&error);
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
            admission_failure(name.as_str(), &texts, error)
        }
        RollbackError::Vault(error) => error.into(),
    }
}
