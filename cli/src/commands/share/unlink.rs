//! `vault unlink`: removes a linked vault, its installed skills and this machine's key for it from
//! this machine.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    name::{SkillName, Slug},
    root::KeyFingerprint,
};
use vault_library::{
    Vault,
    subscribe::{self, Link, LinkId},
};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, HINT, Report, TICK, count, join},
    tasks::{
        profiles,
        subscription::{find_link, link_address, not_linked},
    },
};

/// The arguments of `vault unlink`.
#[derive(Args, Debug)]
#[command(after_help = "\
Removes the skills that the link installed, also from the agents' folders, and this machine's key \
for the vault. Your own skills and those of other linked vaults stay. It asks first. Nothing is sent \
to the service, which lists this machine until the vault's owner removes it there.

Examples:
  vault unlink
  vault unlink team
  vault unlink https://vault.example/v/team --yes")]
pub struct Arguments {
    /// The linked vault: its local name, slug, address or link id [default: the only one]
    #[arg(value_name = "LINK")]
    link: Option<String>,
}

/// The output of `vault unlink`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Unlinked {
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    /// Id of the link on this machine: the slug and ten hex digits.
    link: LinkId,
    /// Local name that the vault had.
    name: Slug,
    /// Skills that were uninstalled, because they came from the vault.
    removed: Vec<SkillName>,
    /// The agents' folders that showed these skills.
    #[serde(rename = "unlinked")]
    folders: Vec<UnlinkedFolder>,
    /// The fingerprint of this machine's key for the vault; null if the key was missing.
    device_fingerprint: Option<KeyFingerprint>,
    /// Whether agents that are running show the change only after a restart.
    restart_required: bool,
}

/// A folder of agents from which skills were removed.
#[derive(Debug, JsonSchema, Serialize)]
pub struct UnlinkedFolder {
    /// The folder of one or more agents.
    path: PathBuf,
    /// The names that the skills had there.
    names: Vec<SkillName>,
}

impl UnlinkedFolder {
    /// Converts the folders that the library reports after a removal.
    pub fn from_removal(unlinked: Vec<(PathBuf, Vec<SkillName>)>) -> Vec<Self> {
        let unlinked = unlinked.into_iter();
        unlinked.map(|(path, names)| Self { path, names }).collect()
    }
}

/// Lists the effects, asks, and removes the link.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?.ok_or_else(not_linked)?;
    let link = match &arguments.link {
        Some(asked) => find_link(&vault, asked)?,
        None => only_link(&vault)?,
    };
    let (address, name) = (link_address(&link), link.pin().name.clone());
    // If the key file is missing, there is no fingerprint to show, but the link can still be
    // removed.
    let machine = link.device_key(&vault).ok();
    let machine = machine.map(|key| KeyFingerprint::device(&key.public()));
    context.ui.confirm_step(
        &format!("Unlink {name}?"),
        &removal_effects(&link, &address, machine.as_ref()),
    )?;
    // Another process may have removed the link while the question was open.
    let removed = subscribe::unlink_vault(&vault, link.id())?.unwrap_or_default();
    let synced = profiles::refresh_links(context, &vault);
    // Running agents have already loaded the removed skills.
    let restart =
        !removed.unlinked.is_empty() || synced.is_some_and(|synced| synced.restart_required);
    let skills = match removed.skills.len() {
        0 => String::new(),
        number => format!(" and removed {}", count(number, "skill")),
    };
    let mut text = format!("{TICK} unlinked {BOLD}{name}{BOLD:#}{skills}");
    if restart {
        text = format!("{text}\n{}", profiles::RESTART);
    }
    if let Some(machine) = &machine {
        text = format!(
            "{text}\n{DIM}The service still lists this machine. The vault's owner ends its access with:{DIM:#} \
             {HINT}vault devices revoke {machine}{HINT:#}\n{DIM}If it was revoked already, the owner removes it from the list with:{DIM:#} \
             {HINT}vault devices forget {machine}{HINT:#}"
        );
    }
    let unlinked = Unlinked {
        address,
        link: link.id().clone(),
        name,
        removed: removed.skills,
        folders: UnlinkedFolder::from_removal(removed.unlinked),
        device_fingerprint: machine,
        restart_required: restart,
    };
    Ok(Report::view(unlinked, text))
}

/// Returns the only link. Fails if there are several or none.
fn only_link(vault: &Vault) -> Result<Link, Failure> {
    let mut links = subscribe::list_links(vault)?;
    match links.len() {
        0 | 1 => links.pop().ok_or_else(not_linked),
        _ => {
            let names = join(links.iter().map(|link| &link.pin().name));
            let question = "this machine is linked to several vaults: which one do you mean?";
            Err(fail!(LinkAmbiguous, "{question}").hint(format!("vault unlink <name>: {names}")))
        }
    }
}

/// Describes the effects of the removal, one per line.
fn removal_effects(link: &Link, address: &str, machine: Option<&KeyFingerprint>) -> Vec<String> {
    let skills = link.installed_names();
    let removes = match skills.len() {
        0 => "It has installed no skills".to_owned(),
        number => format!("Remove {}: {}", count(number, "skill"), join(&skills)),
    };
    let fingerprint = machine.map_or_else(String::new, |machine| format!(" ({machine})"));
    vec![
        removes,
        format!("Delete this machine's key{fingerprint} for {address}"),
        "The service keeps listing this machine until the vault's owner removes it".to_owned(),
    ]
}
