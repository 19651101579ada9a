//! `vault link`: links this machine to a vault on a service, to install its skills. *Enrolling*
//! registers this machine's key there. *Pinning* stores the vault's fingerprint, so that the
//! service cannot show another vault later.

use clap::{Args, Subcommand, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use vault_api::CurrentDevice;
use vault_format::{
    name::{SkillName, SkillRef, Slug},
    root::{KeyFingerprint, VaultFingerprint},
};
use vault_library::{
    Vault,
    subscribe::{self, AcceptOptions, AcceptedCatalog, Link, LinkId, LinkSettings, PullGate},
};
use vault_service::{error::ErrorCode as ServiceCode, model::device::DeviceStatus};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, FailureCode, codes::service_code},
    output::{BOLD, DIM, HINT, Report, TICK, clean},
    service::{Address, connection::Connection},
    tasks::{
        profiles,
        subscription::{
            accept_catalog, check_not_rolled_back, device_client, device_client_with, link_address,
            status_text,
        },
    },
};

/// The arguments of `vault link`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without an address, this command links the vault that this machine is connected to. Give the \
owner this machine's fingerprint. Compare the vault's fingerprint with the one that `vault key \
show` prints for the owner, or pass it with --expect-key.

Examples:
  vault link https://vault.example/v/team
  vault link https://vault.example/v/team --expect-key vlt:2abc-…/2
  vault link https://vault.example/v/team --repin --expect-key vlt:2abc-…/2
  vault link https://vault.example/v/team --code vec_…
  vault link https://vault.example/v/team --as-vault work --gate refuse
  vault link prefer team/code-review")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[arg(help = "The vault: <url>/v/<slug>")]
    address: Option<Address>,
    /// Pin only the vault with this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    expect_key: Option<VaultFingerprint>,
    /// Pin the vault that is served now, even if another one is pinned
    #[arg(long)]
    repin: bool,
    /// The name of this machine in the owner's list [default: its host name]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// The enrolment code that the owner made with `vault devices invite`. A machine that waits
    /// gets a new key with it
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// The local name of the vault, as in NAME/SKILL [default: its slug]
    #[arg(long, value_name = "NAME")]
    as_vault: Option<Slug>,
    /// How to check pulled skills: not at all, warn about those that the gate refuses, or refuse
    /// to install them [default: warn]
    #[arg(long, value_name = "MODE")]
    gate: Option<Gate>,
    /// Continue although the owner's releases contradict those of earlier pulls
    #[arg(long)]
    accept_fork: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Choose which vault's skill gets a name that several vaults use
    #[command(after_help = "\
When two vaults publish a skill of the same name, the one that installed it first keeps the name. \
The other skill is called <vault>/<skill>, and no agent sees it until you prefer it.

Examples:
  vault link prefer team/code-review")]
    Prefer {
        /// The skill, as VAULT/NAME
        #[arg(value_name = "SKILL")]
        skill: SkillRef,
    },
}

/// What a pull does with a skill that the gate refuses.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gate {
    Off,
    Warn,
    Refuse,
}

impl From<Gate> for PullGate {
    fn from(gate: Gate) -> Self {
        match gate {
            Gate::Off => Self::Off,
            Gate::Warn => Self::Warn,
            Gate::Refuse => Self::Refuse,
        }
    }
}

/// Links a vault: enrols the machine, reads the vault's catalog (the signed list of its skills and
/// keys), and pins the vault.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Some(Action::Prefer { skill }) = &arguments.action {
        return prefer_skill(context, skill);
    }
    let connection = target_connection(context, arguments.address.as_ref())?;
    let expected = arguments.expect_key;
    if arguments.repin && expected.is_none() {
        confirm_unknown_vault(context)?;
    }
    let vault = context.vault_for_links()?;
    let id = LinkId::from_address(connection.base.as_str(), &connection.slug);
    // `link_vault` also returns an existing link, so find out before.
    let is_new = subscribe::find_link_by_id(&vault, &id)?.is_none();
    let link = subscribe::link_vault(&vault, connection.base.as_str(), &connection.slug)?;
    let link = apply_settings(&vault, link, is_new, arguments)?;
    // Store the expected fingerprint before anything is sent, so that a later pull without the flag
    // cannot pin another vault.
    if let Some(expected) = expected.filter(|_| !arguments.repin) {
        subscribe::expect_fingerprint(&vault, &id, &expected)?;
    }
    let hostname = machine_label(context, arguments);
    let enrolled = context.block_on(enrol_machine(
        context,
        &vault,
        link,
        &hostname,
        arguments.code.as_deref(),
    ));
    // Remove a new link if no service can have recorded the enrolment, so that a mistyped address
    // leaves nothing behind. Otherwise keep it: the service may know its key.
    if is_new && enrolled.as_ref().is_err_and(was_not_recorded) {
        subscribe::unlink_vault(&vault, &id)?;
    }
    // Return a failure only now, after the useless link has been removed.
    let Enrolled {
        link,
        state,
        catalog,
        waiting_key,
    } = enrolled?;
    let machine = KeyFingerprint::device(&link.device_key(&vault)?.public()).to_string();
    if state.status == DeviceStatus::Revoked {
        return Err(machine_revoked_failure(&machine, &connection.address()));
    }
    // With `--repin` a change is expected, so a missing catalog is not reported as a rollback.
    if catalog.is_none() && !arguments.repin {
        check_not_rolled_back(&link)?;
    }
    let options = AcceptOptions {
        expected,
        repin: arguments.repin,
        accept_fork: arguments.accept_fork,
        ..AcceptOptions::default()
    };
    let catalog = catalog
        .map(|bytes| accept_catalog(context, &vault, &link, &bytes, &options))
        .transpose()
        .map_err(|failure| {
            explain_unexpected_vault(failure, &state, &machine, &connection.address())
        })?;
    // Pin at once, so that the service cannot show another vault at the first pull.
    if let Some(catalog) = &catalog {
        subscribe::pin_only(&vault, catalog)?;
    }
    if let Some(waiting) = waiting_key {
        note_waiting_key(context, &waiting);
    }
    Ok(link_report(
        &connection,
        &link,
        &state,
        &machine,
        catalog.as_ref(),
    ))
}

/// Asks before a new pin without a fingerprint, which trusts any vault that the service shows now.
fn confirm_unknown_vault(context: &Context) -> Result<(), Failure> {
    context.ui.confirm_step(
        "Trust whatever vault the service shows now, without comparing a fingerprint?",
        &[
            "If the service or the network is dishonest, it decides which skills run here"
                .to_owned(),
        ],
    )
}

fn machine_revoked_failure(machine: &str, address: &str) -> Failure {
    fail!(
        DeviceRevoked,
        "access for this machine ({machine}) was revoked at {address}"
    )
    .hint("its owner can remove it (vault devices forget), then link again")
}

/// Notes that the former key of this machine still waits for the owner's decision.
fn note_waiting_key(context: &Context, key: &KeyFingerprint) {
    context.ui.note(format!(
        "The earlier request of this machine ({key}) still waits. Its owner can deny it: vault \
         devices deny {key}"
    ));
}

/// Returns the name under which the owner will see this machine, at most 64 characters.
fn machine_label(context: &Context, arguments: &Arguments) -> String {
    let hostname = arguments
        .hostname
        .clone()
        .or_else(|| context.process.host_name());
    let hostname = hostname.unwrap_or_else(|| "unnamed machine".to_owned());
    // The service accepts labels of at most 64 characters; host names can be longer.
    hostname.chars().take(64).collect()
}

/// Stores the options of a link: the local name of the vault and what pulls do with skills that the
/// gate refuses. If that fails, for example because the name is taken, removes a new link again.
fn apply_settings(
    vault: &Vault,
    link: Link,
    is_new: bool,
    arguments: &Arguments,
) -> Result<Link, Failure> {
    let settings = LinkSettings {
        name: arguments.as_vault.clone(),
        gate: arguments.gate.map(PullGate::from),
    };
    if settings.name.is_none() && settings.gate.is_none() {
        return Ok(link);
    }
    let settled = subscribe::configure_link(vault, link.id(), &settings);
    // The user did not ask for a link under the default name, so leave none behind.
    if is_new && settled.is_err() {
        subscribe::unlink_vault(vault, link.id())?;
    }
    Ok(settled?)
}

/// A skill that a bare name means from now on.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Preferred {
    /// The bare name.
    name: SkillName,
    /// The skill that it means: `<vault>/<name>`.
    skill: String,
    /// Whether it meant another skill before.
    changed: bool,
    /// Whether running agents must be restarted.
    restart_required: bool,
}

/// Makes a bare skill name mean the skill of one vault, and updates the agents' folders.
fn prefer_skill(context: &Context, skill: &SkillRef) -> Result<Report, Failure> {
    if skill.vault.is_none() {
        return Err(fail!(Usage, "`{skill}` does not say which vault is meant")
            .hint(format!("vault link prefer <vault>/{skill}")));
    }
    let vault = context.open_vault()?;
    let changed = subscribe::prefer_skill(&vault, skill)?.is_some();
    let synced = profiles::refresh_links(context, &vault);
    let name = &skill.name;
    let text = if changed {
        format!("{TICK} {BOLD}{name}{BOLD:#} means {BOLD}{skill}{BOLD:#} from now on")
    } else {
        format!("{DIM}={DIM:#} {BOLD}{name}{BOLD:#} means {BOLD}{skill}{BOLD:#} already")
    };
    let preferred = Preferred {
        name: name.clone(),
        skill: skill.to_string(),
        changed,
        restart_required: synced.is_some_and(|synced| synced.restart_required),
    };
    Ok(Report::view(preferred, text))
}

/// The result of enrolling this machine.
struct Enrolled {
    /// The link. Its device key is the enrolled one.
    link: Link,
    state: CurrentDevice,
    /// The catalog's bytes, unverified; `None` before the first release and for a revoked machine.
    catalog: Option<Vec<u8>>,
    /// The former key of this machine, if an enrolment code led to a new one. The service still
    /// lists the former key as pending.
    waiting_key: Option<KeyFingerprint>,
}

/// Enrols this machine and reads the catalog, unless the machine is revoked. If the machine is
/// already pending and has a code, it enrols again with a new key, because a code does not admit a
/// key that is pending.
async fn enrol_machine(
    context: &Context,
    vault: &Vault,
    link: Link,
    hostname: &str,
    code: Option<&str>,
) -> Result<Enrolled, Failure> {
    let mut link = link;
    let mut client = device_client(context, vault, &link)?;
    let mut state = client.enrol(hostname, code).await?;
    let mut waiting_key = None;
    if let Some(code) = code
        && state.status == DeviceStatus::Pending
    {
        waiting_key = Some(KeyFingerprint::device(&link.device_key(vault)?.public()));
        (link, state) = replace_key(context, vault, &link, hostname, code).await?;
        client = device_client(context, vault, &link)?;
    }
    // A revoked machine may not read the catalog. A request would fail and hide the status.
    let catalog = match state.status {
        DeviceStatus::Revoked => None,
        DeviceStatus::Pending | DeviceStatus::Active => client.fetch_catalog().await?,
    };
    Ok(Enrolled {
        link,
        state,
        catalog,
        waiting_key,
    })
}

/// Enrols a new key with a code, and replaces the link's key by it once the service has admitted
/// it.
async fn replace_key(
    context: &Context,
    vault: &Vault,
    link: &Link,
    hostname: &str,
    code: &str,
) -> Result<(Link, CurrentDevice), Failure> {
    let key = subscribe::prepare_device_key(vault, link.id())?;
    let client = device_client_with(context, link, key.clone())?;
    let enrolled = client.enrol(hostname, Some(code)).await;
    let is_useless = match &enrolled {
        Ok(state) => state.status != DeviceStatus::Active,
        Err(failure) => was_not_recorded(failure),
    };
    // Keep the key if the answer was lost: the service may have admitted it, and the next try sends
    // it again.
    if is_useless {
        subscribe::discard_device_key(vault, link.id())?;
    }
    let state = enrolled?;
    if is_useless {
        let address = link_address(link);
        return Err(fail!(
            AnswerUnreadable,
            "{address} took the code and did not admit this machine"
        )
        .hint("the link and its key are as before; give the command again"));
    }
    let link = subscribe::replace_device_key(vault, link.id(), &key)?;
    Ok((link, state))
}

/// Returns whether a failed enrolment was certainly not recorded by any service.
fn was_not_recorded(failure: &Failure) -> bool {
    match &failure.code {
        FailureCode::Own(code) => matches!(
            code,
            ErrorCode::Unreachable | ErrorCode::TlsUnavailable | ErrorCode::RedirectRefused
        ),
        // These refusals come before the service records the machine.
        FailureCode::Remote { word, status, .. } => match service_code(word) {
            Some(
                ServiceCode::EnrolmentNeedsCode
                | ServiceCode::EnrolmentCodeInvalid
                | ServiceCode::QuotaFull,
            ) => true,
            code => *status == 404 && code.is_none_or(|code| code == ServiceCode::VaultNotFound),
        },
    }
}

/// Adds a hint and the state of the machine to the failure that another vault was expected. The
/// machine is enrolled at this point, because only enrolled machines may read a catalog.
fn explain_unexpected_vault(
    failure: Failure,
    state: &CurrentDevice,
    machine: &str,
    address: &str,
) -> Failure {
    if failure.code != ErrorCode::VaultChanged {
        return failure;
    }
    let status = state.status;
    failure
        .hint(format!(
            "nothing was pinned; ask the owner for the fingerprint (vault key show), then: vault \
             link {address} --expect-key <fingerprint>. This machine ({machine}) is enrolled as \
             {}; vault unlink {address} ends that here",
            status.as_str()
        ))
        .data(json!({
            "device_id": clean(&state.device_id, 40), "status": status, "device_fingerprint": machine,
        }))
}

fn target_connection(context: &Context, address: Option<&Address>) -> Result<Connection, Failure> {
    let Some(Address { base, slug }) = address.cloned() else {
        return Connection::find(context)?.ok_or_else(|| {
            fail!(
                NotConnected,
                "which vault? This machine is not connected to one"
            )
            .hint("vault link <url>/v/<slug>")
        });
    };
    match slug {
        Some(slug) => Ok(Connection { base, slug }),
        None => Err(fail!(SlugMissing, "the address does not name a vault")
            .hint(format!("vault link {base}/v/<slug>"))),
    }
}

/// The output of `vault link`: the vault that this machine may pull from.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Linked {
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    /// Id of the link on this machine: the slug and ten hex digits.
    link: LinkId,
    /// Id under which the service lists this machine for the vault's owner.
    device_id: String,
    /// The owner's decision about this machine: `pending` or `active`.
    status: &'static str,
    /// The fingerprint of this machine's key.
    device_fingerprint: String,
    /// The fingerprint of the vault; null if it has published nothing yet.
    vault_fingerprint: Option<VaultFingerprint>,
    /// Number of the release that the service shows this machine; null if it shows none.
    release: Option<u64>,
    /// Whether the vault is pinned.
    pinned: bool,
    /// Local name of the vault, as in `<vault>/<skill>`.
    name: Slug,
    /// What a pull does with skills that the gate refuses.
    gate: PullGate,
}

fn link_report(
    connection: &Connection,
    link: &Link,
    state: &CurrentDevice,
    machine: &str,
    catalog: Option<&AcceptedCatalog>,
) -> Report {
    let key = catalog.map(AcceptedCatalog::fingerprint);
    let release = catalog.map(|catalog| catalog.catalog().release);
    let address = connection.address();
    let pinned = match (&key, release) {
        (Some(key), Some(release)) => {
            // Say "pinned now" only for the first pin. An earlier pin was only confirmed.
            let is_first = catalog.is_some_and(AcceptedCatalog::is_first);
            let now = if is_first { ", pinned now" } else { "" };
            format!("{BOLD}{key}{BOLD:#}  release {release}{now}")
        }
        _ => "enrolled, no catalog yet: the first pull shows and pins it".to_owned(),
    };
    let next = match state.status {
        DeviceStatus::Active => "Install with: vault cloud pull".to_owned(),
        DeviceStatus::Pending | DeviceStatus::Revoked => format!(
            "Read the fingerprint to the owner, who admits this machine with:\n  \
             vault devices admit {machine}\nThen install with: vault cloud pull"
        ),
    };
    let name = &link.pin().name;
    let called = if name == &connection.slug {
        String::new()
    } else {
        format!("  {DIM}called here {DIM:#}  {BOLD}{name}{BOLD:#}\n")
    };
    let text = format!(
        "{TICK} linked {HINT}{address}{HINT:#}\n{called}  \
         {DIM}this machine{DIM:#}  {BOLD}{machine}{BOLD:#}  {}\n  \
         {DIM}the vault   {DIM:#}  {pinned}\n{next}",
        status_text(Some(state.status))
    );
    let linked = Linked {
        address,
        link: link.id().clone(),
        device_id: state.device_id.clone(),
        status: state.status.as_str(),
        device_fingerprint: machine.to_owned(),
        vault_fingerprint: key,
        release,
        pinned: catalog.is_some(),
        name: name.clone(),
        gate: link.pin().gate,
    };
    Report::view(linked, text)
}
