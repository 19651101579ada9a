//! `vault cloud pull`: installs the current release of each linked vault: all of its skills or a
//! selection.
//!
//! Everything is fetched and verified first; then one step replaces the set of installed skills. If
//! the pull is rejected or killed, or the disk is full, the installed set stays as it was. Only
//! skills that the owner has *withdrawn* are removed earlier.

use std::{cell::Cell, sync::Arc, time::Duration};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    hash::Digest,
    name::{AgentId, SkillName},
    root::{KeyFingerprint, VaultFingerprint},
};
use vault_library::{
    Vault, agents,
    subscribe::{
        self, AcceptOptions, LastPull, Link, LinkId, PullError, PullReport, Selection, TakenName,
        WithdrawnSkill,
    },
};
use vault_service::error::ErrorCode as ServiceCode;
use vault_service::model::device::DeviceStatus;
use vault_store::clock::{Clock as _, SystemClock};

use super::{
    every::{self, PullSchedule},
    fetch::{catalog_bytes, fetch_bundles, fetch_objects},
    pending,
    time_limit::limit_time,
};
use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure},
    output::{
        BOLD, DIM, HINT, Report, SingleOrList, TICK, WARN, Warning, change_lines, clean, count,
        format_flagged, format_size, join,
    },
    tasks::{
        profiles::{self, AgentLinks, ShownLinks, agent_id},
        subscription::{
            accept_catalog, check_not_rolled_back, device_client, find_link, link_address,
            not_linked, selection_text, warn_of_end,
        },
    },
};

/// The arguments of `vault cloud pull`.
#[derive(Args, Debug)]
#[command(after_help = "\
A pull verifies everything that the vault publishes and installs all of it, or the part that you \
select. It remembers the selection for later pulls; --all ends it. It asks before a new selection \
removes installed skills.

Examples:
  vault cloud pull
  vault cloud pull --agent claude-code
  vault cloud pull --skill code-review --as team-review
  vault cloud pull --from team --tag git
  vault cloud pull --all
  vault cloud pull --every 1h
  vault cloud pull --pending")]
pub struct Arguments {
    /// One linked vault: its local name, slug, address or link id [default: all]
    #[arg(long, value_name = "LINK")]
    from: Option<String>,
    /// Only skills that the vault publishes for this agent
    #[arg(long, value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
    /// Only skills with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only this skill; repeatable
    #[arg(long = "skill", value_name = "NAME")]
    skills: Vec<SkillName>,
    /// Install the skill of --skill under another name
    #[arg(long = "as", value_name = "NAME", requires = "skills")]
    install_as: Option<SkillName>,
    /// All skills: end an earlier selection
    #[arg(long, conflicts_with_all = ["agent", "tag", "skills"])]
    all: bool,
    /// Go through the drafts that wait for this vault's owner instead: each is shown and asked
    /// about
    #[arg(long, conflicts_with_all = ["from", "agent", "tag", "skills", "all"])]
    pending: bool,
    /// If no vault is pinned yet, pin only the one with this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    expect_key: Option<VaultFingerprint>,
    /// Continue although the owner's releases contradict those of earlier pulls
    #[arg(long)]
    accept_fork: bool,
    /// Pull at this interval from now on (5m to 7d, such as 1h), or `off` to end that
    #[arg(
        long,
        value_name = "INTERVAL",
        value_parser = every::parse_interval,
        conflicts_with_all = ["from", "agent", "tag", "skills", "install_as", "all", "expect_key", "accept_fork"]
    )]
    every: Option<PullSchedule>,
}

impl Arguments {
    /// Returns the selection that the options give; `None` means that the selection of the last
    /// pull stays in force.
    fn selection(&self) -> Option<Selection> {
        let given = Selection {
            agent: self.agent.clone(),
            tag: self.tag.clone(),
            skills: self.skills.clone(),
            install_as: self.install_as.clone(),
        };
        (self.all || !given.is_all()).then_some(given)
    }
}

/// Time limit for the pull from one linked vault.
const MAX_TIME: Duration = Duration::from_hours(1);

/// The pull from one linked vault.
#[derive(Debug, JsonSchema, Serialize)]
pub struct PulledLink {
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    /// Id of the link on this machine: the slug and ten hex digits.
    link: LinkId,
    #[serde(flatten)]
    changes: Changes,
    #[serde(flatten)]
    agents: ShownLinks,
}

/// The result of a pull from one linked vault.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
enum Changes {
    Pulled(Box<Pulled>),
    NothingPublished {
        /// Null: the vault has no release yet.
        release: (),
    },
}

/// The changes from one linked vault.
#[derive(Debug, JsonSchema, Serialize)]
struct Pulled {
    #[serde(flatten)]
    report: PullReport,
    /// Whether the subscription of the vault has lapsed, so that the service withholds bundles.
    #[serde(skip)]
    lapsed: bool,
    /// The skills that are selected, now or by an earlier pull; null if all are.
    selection: Option<Selection>,
    /// Whether nothing that the vault publishes fits the selection.
    #[serde(skip)]
    selects_nothing: bool,
    /// Number of downloaded bundles. Installed ones that are intact are not downloaded again.
    fetched: usize,
    /// Total size of the downloaded bundles, in bytes.
    bytes: u64,
    /// The vault's fingerprint, if this pull pinned the vault.
    pinned_fingerprint: Option<VaultFingerprint>,
}

/// Pulls from one linked vault, or from each of them.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    // The timer can be removed without opening the vault, which may be gone already.
    if arguments.every == Some(PullSchedule::Off) {
        return every::remove_timer(context);
    }
    if arguments.pending {
        return pending::run(context);
    }
    // A machine without a vault has no links. Do not create a vault only to find that out.
    let vault = context.existing_vault()?.ok_or_else(not_linked)?;
    if let Some(PullSchedule::Seconds(seconds)) = arguments.every {
        return every::set_timer(context, &vault, seconds);
    }
    let (mut pulls, mut lines) = (Vec::new(), Vec::new());
    let (mut unlinked, mut lapsed) = (false, false);
    let links = select_links(&vault, arguments)?;
    let withdrew = Cell::new(false);
    // The first failure ends the loop. It is returned only after the agents' links are updated.
    let pulled: Result<(), Failure> = links.iter().try_for_each(|link| {
        let pull = pull_link(context, &vault, link, arguments, &withdrew);
        let pulled = context.block_on(limit_time(MAX_TIME, pull));
        record_pull(&vault, link, &pulled)?;
        match pulled? {
            Some(pulled) => {
                // Read the link again, because the pull has changed its pin.
                if let Some(link) = subscribe::find_link_by_id(&vault, link.id())?
                    && let Some(catalog) = link.catalog(&vault)?
                {
                    warn_of_end(context, &link_address(&link), catalog.expires_at, false);
                }
                unlinked |= !pulled.report.unlinked.is_empty();
                lapsed |= pulled.lapsed;
                lines.push(pulled.warn_and_describe(context, link));
                pulls.push((link, Changes::Pulled(Box::new(pulled))));
            }
            None => {
                let address = link_address(link);
                lines.push(format!(
                    "{HINT}{address}{HINT:#} has not published anything yet."
                ));
                pulls.push((link, Changes::NothingPublished { release: () }));
            }
        }
        Ok(())
    });
    // Update the agents' folders even if a pull failed: an earlier one may have installed skills,
    // and copies of withdrawn skills must disappear.
    let mut agents = if pulls.is_empty() && !withdrew.get() {
        AgentLinks::default()
    } else {
        profiles::show_to_agents(context, &vault)
    };
    agents.unlinked = unlinked;
    pulled?;
    let pulls = pulls.into_iter().map(|(link, changes)| PulledLink {
        address: link_address(link),
        link: link.id().clone(),
        changes,
        agents: agents.to_shown(),
    });
    let pulls = SingleOrList::from_results(pulls);
    lines.extend(agents.links_table(context));
    lines.extend(agents.next);
    // A lapsed subscription only sets the exit code; the changes are reported as usual.
    let exit = if lapsed { Exit::Lapsed } else { Exit::Done };
    Ok(Report::view(pulls, lines.join("\n")).with_exit(exit))
}

fn select_links(vault: &Vault, arguments: &Arguments) -> Result<Vec<Link>, Failure> {
    if let Some(from) = &arguments.from {
        return Ok(vec![find_link(vault, from)?]);
    }
    let links = subscribe::list_links(vault)?;
    if links.is_empty() {
        return Err(not_linked());
    }
    // These flags apply to one vault, so with several links the user must name one.
    let selects = arguments.agent.is_some()
        || arguments.tag.is_some()
        || !arguments.skills.is_empty()
        || arguments.expect_key.is_some()
        || arguments.accept_fork;
    if links.len() > 1 && selects {
        let names: Vec<_> = links.iter().map(|link| link.pin().name.as_str()).collect();
        let question = "this machine is linked to several vaults: which one do you mean?";
        return Err(fail!(LinkAmbiguous, "{question}")
            .hint(format!("--from {}", names.join(" or --from "))));
    }
    Ok(links)
}

/// Records the result of a pull for `vault status`, because nobody reads the output of a pull that
/// a timer started.
fn record_pull(
    vault: &Vault,
    link: &Link,
    pulled: &Result<Option<Pulled>, Failure>,
) -> Result<(), Failure> {
    let release = match pulled {
        Ok(Some(pulled)) => Some(pulled.report.release),
        _ => None,
    };
    let error = match pulled {
        Err(failure) => Some(PullError {
            code: failure.code.word().to_owned(),
            message: failure.message.clone(),
        }),
        Ok(Some(pulled)) if pulled.lapsed => Some(PullError {
            code: lapsed_code().to_owned(),
            message: lapsed_text(link),
        }),
        Ok(_) => None,
    };
    let last = LastPull {
        at: SystemClock.now(),
        release,
        error,
    };
    Ok(subscribe::note_pull(vault, link, &last)?)
}

/// Pulls the current release of a linked vault. Returns `None` if the vault has no release yet.
/// Sets `withdrew` as soon as withdrawn skills were removed, even if the pull fails later.
async fn pull_link(
    context: &Context,
    vault: &Vault,
    link: &Link,
    arguments: &Arguments,
    withdrew: &Cell<bool>,
) -> Result<Option<Pulled>, Failure> {
    let client = Arc::new(device_client(context, vault, link)?);
    let state = client.fetch_current().await?;
    // A revocation removes nothing on this machine, so the hint says how to remove the skills.
    if state.status == DeviceStatus::Revoked {
        return Err(access_revoked(link));
    }
    let current = state.catalog.iter().flatten().next().map(|now| now.sha256);
    let Some(bytes) = catalog_bytes(vault, &client, link, current).await? else {
        // A service that shows no release, although this machine has accepted one, has rolled back.
        // That is an error too.
        check_not_rolled_back(link)?;
        return Ok(None);
    };
    let options = AcceptOptions {
        expected: arguments.expect_key,
        accept_fork: arguments.accept_fork,
        lenient: !context.is_strict()?,
        ..AcceptOptions::default()
    };
    let catalog = accept_catalog(context, vault, link, &bytes, &options)?;
    if state.status == DeviceStatus::Pending {
        // Pin the vault from the first catalog on, even if the owner has not admitted this machine
        // yet.
        let pinned = subscribe::pin_only(vault, &catalog)?;
        withdrew.set(withdrew.get() || !pinned.withdrawn.is_empty());
        return Err(not_admitted(vault, link)?);
    }
    let given = arguments.selection();
    // Without flags the stored selection stays in force, so that a pull by a timer does not undo
    // it.
    let selection = given.clone().unwrap_or_else(|| link.selection());
    let withdrawn = subscribe::withdraw_first(vault, &catalog)?;
    withdrew.set(withdrew.get() || withdrawn.is_some());
    warn_of_withdrawn(context, withdrawn.as_ref());
    let objects = fetch_objects(vault, &client, &catalog, &selection).await?;
    let object = |hash: &Digest| objects.get(hash).cloned();
    // Only a new selection must name existing skills. A stored one may name a skill that the owner
    // has withdrawn since, which must not stop every later pull.
    if given.is_some() {
        let is_known = |agent: &AgentId| agents::by_name(agent.as_str()).is_some();
        catalog.check_selection(&selection, &is_known, &object)?;
    }
    let chosen = catalog.resolve_selection(&selection, &object)?;
    if given.is_some_and(|given| given != link.selection()) {
        confirm_removal(context, &catalog.left_out(link, &chosen))?;
    }
    // A bundle that is installed and verifies is not fetched again.
    let missing = catalog.missing_bundles(vault, &chosen);
    let (staged, bytes) = fetch_bundles(context, vault, &client, &catalog, &missing).await?;
    let mut report = subscribe::install_selection(vault, &catalog, &selection, &chosen, staged)?;
    if let Some(first) = withdrawn {
        report.add_withdrawn(first);
    }
    Ok(Some(Pulled {
        report,
        // The service refuses bundles while the subscription has lapsed. This pull succeeded,
        // because no bundle was missing; the next release will need some.
        lapsed: state.lapsed,
        // An empty vault is no reason to warn about the selection.
        selects_nothing: chosen.skills.is_empty() && !catalog.catalog().skills.is_empty(),
        selection: Some(selection).filter(|selection| !selection.is_all()),
        fetched: missing.len(),
        bytes,
        pinned_fingerprint: catalog.is_first().then(|| catalog.fingerprint()),
    }))
}

/// Returns the error for a machine whose access was revoked.
fn access_revoked(link: &Link) -> Failure {
    let address = link_address(link);
    fail!(
        DeviceRevoked,
        "access for this machine was revoked at {address}"
    )
    .hint(format!(
        "installed skills stay; vault unlink {} removes them",
        link.pin().name
    ))
}

/// Returns the error for a machine that waits for its admission.
fn not_admitted(vault: &Vault, link: &Link) -> Result<Failure, Failure> {
    let fingerprint = KeyFingerprint::device(&link.device_key(vault)?.public());
    let message = format!("the owner has not admitted this machine yet ({fingerprint})");
    let hint = format!("the owner admits it with: vault devices admit {fingerprint}");
    Ok(Failure::new(ErrorCode::DevicePending, message).hint(hint))
}

/// Warns of each withdrawn skill with the owner's reason. Called before the rest of the pull,
/// because a pull that fails later reports nothing.
fn warn_of_withdrawn(context: &Context, withdrawn: Option<&PullReport>) {
    for WithdrawnSkill { name, reason } in withdrawn.iter().flat_map(|first| &first.withdrawn) {
        let text = format!(
            "{name} was withdrawn by its owner and is removed: {}",
            clean(reason, 200)
        );
        context.ui.warn(Warning::new("withdrawn", text));
    }
}

/// Returns the error code of a lapsed subscription. It is the one with which the service refuses
/// bundles.
fn lapsed_code() -> &'static str {
    ServiceCode::SubscriptionLapsed.row().code
}

fn lapsed_text(link: &Link) -> String {
    let address = link_address(link);
    format!(
        "the subscription of {address} has lapsed; everything is installed, but nothing new arrives"
    )
}

/// Asks before a new selection removes installed skills.
fn confirm_removal(context: &Context, left_out: &[SkillName]) -> Result<(), Failure> {
    if left_out.is_empty() {
        return Ok(());
    }
    let skills = count(left_out.len(), "skill");
    // The names are listed, because a number alone does not show which skills would go.
    let effects: Vec<_> = left_out.iter().map(|name| format!("- {name}")).collect();
    let question = format!("Remove {skills} that this selection leaves out?");
    context.ui.confirm_step(&question, &effects)
}

impl Pulled {
    /// Warns of skills that no agent sees or that the gate refuses, and returns the description of
    /// the pull.
    fn warn_and_describe(&self, context: &Context, link: &Link) -> String {
        let selection = self.selection.as_ref().map(selection_text);
        self.warn(context, link, selection.as_deref());
        self.describe(link, selection.as_deref())
    }

    fn warn(&self, context: &Context, link: &Link, selection: Option<&str>) {
        let report = &self.report;
        let vault = &link.pin().name;
        for TakenName { name, by } in &report.taken {
            let (whose, hint) = match by {
                None => (
                    "your own skill".to_owned(),
                    format!("vault cloud pull --from {vault} --skill {name} --as <other-name>"),
                ),
                Some(other) => (
                    format!("{other}/{name}"),
                    format!("vault link prefer {vault}/{name}"),
                ),
            };
            let text = format!(
                "`{name}` means {whose}, so this one is `{vault}/{name}` and shown to no agent"
            );
            context.ui.warn_with("shadowed", text, hint);
        }
        for name in &report.kept {
            let text = format!(
                "the owner withdrew `{name}`, but your vault or another linked one has the same bytes"
            );
            let hint = format!("vault remove {name}, or pull the other vault");
            context.ui.warn_with("withdrawn_kept", text, hint);
        }
        for flagged in &report.flagged {
            let text = format!("the gate refuses {}", format_flagged(flagged));
            let hint = format!(
                "vault audit {vault}/{} says where; vault link {} --gate refuse keeps such skills out",
                flagged.name,
                link_address(link)
            );
            context.ui.warn_with("gate_blocked", text, hint);
        }
        if self.lapsed {
            let hint = "installed skills keep working; the owner must renew the subscription";
            context.ui.warn_with(lapsed_code(), lapsed_text(link), hint);
        }
        if self.selects_nothing {
            let selection = selection.unwrap_or_default();
            let text = format!("no skill of {vault} fits the selection {selection}");
            let hint = format!("vault cloud pull --from {vault} --all");
            context.ui.warn_with("selection_empty", text, hint);
        }
    }

    fn describe(&self, link: &Link, selection: Option<&str>) -> String {
        let report = &self.report;
        let vault = &link.pin().name;
        let (release, summary) = (report.release, summary_text(report));
        let address = link_address(link);
        let mut lines = vec![format!(
            "{TICK} release {release} of {HINT}{address}{HINT:#}: {summary}"
        )];
        if let Some(fingerprint) = &self.pinned_fingerprint {
            lines.push(format!("  pinned the vault  {BOLD}{fingerprint}{BOLD:#}"));
        }
        if let Some(selection) = selection {
            lines.push(format!(
                "  selected  {selection}  {DIM}(end with: vault cloud pull --from {vault} --all){DIM:#}"
            ));
        }
        lines.extend(change_lines(
            &report.installed,
            &report.updated,
            &report.removed,
        ));
        lines.extend(
            report
                .withdrawn
                .iter()
                .map(|WithdrawnSkill { name, reason }| {
                    let reason = clean(reason, 200);
                    format!("  {WARN}!{WARN:#} {name} was withdrawn: {reason}")
                }),
        );
        if self.fetched > 0 {
            let (bundles, bytes) = (count(self.fetched, "bundle"), format_size(self.bytes));
            lines.push(format!(
                "{DIM}  fetched and verified {bundles}, {bytes}{DIM:#}"
            ));
        }
        lines.join("\n")
    }
}

fn summary_text(report: &PullReport) -> String {
    let parts: Vec<String> = [
        (report.installed.len(), "installed"),
        (report.updated.len(), "updated"),
        (report.removed.len(), "removed"),
        (report.unchanged, "unchanged"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, what)| format!("{number} {what}"))
    .collect();
    if parts.is_empty() {
        "no skills".to_owned()
    } else {
        join(parts)
    }
}
