//! `vault cloud pull`: makes the installed set of a linked vault equal to what its owner signed.
//!
//! Everything is fetched and verified before one step switches to the new set. If the pull is
//! rejected or killed, or the disk is full, the installed set stays as it was.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Vault,
    subscribe::{self, AcceptedCatalog, Link, PullReport, SelectedSkill, Selection, StagedBundles},
};
use vault_skill::{
    hash::Digest,
    name::{AgentId, SkillName},
};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, GOOD, HINT, Report, WARN, Warning, changes, clean, count, paint, size},
    service::{DeviceClient, in_flight},
    subscription::{check_not_rolled_back, device_client, warn_about_catalog},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
What is selected becomes what is installed: a pull without flags installs everything again.

Examples:
  vault cloud pull
  vault cloud pull --agent claude-code
  vault cloud pull --skill code-review --as team-review
  vault cloud pull --from team --tag git

Since 0.5.0 (beta).")]
pub struct Arguments {
    /// One linked vault, by its slug or link id [default: all of them]
    #[arg(long, value_name = "LINK")]
    from: Option<String>,
    /// What the vault publishes for this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentId>,
    /// Skills with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// This skill; may be given several times
    #[arg(long = "skill", value_name = "NAME")]
    skills: Vec<SkillName>,
    /// Install the one skill of --skill under another name
    #[arg(long = "as", value_name = "NAME", requires = "skills")]
    install_as: Option<SkillName>,
    /// Pin only a key with this fingerprint, where none is pinned yet
    #[arg(long, value_name = "FINGERPRINT")]
    expect_key: Option<String>,
}

impl Arguments {
    fn selection(&self) -> Selection {
        Selection {
            agent: self.agent.clone(),
            tag: self.tag.clone(),
            skills: self.skills.clone(),
            install_as: self.install_as.clone(),
        }
    }

    const fn selects(&self) -> bool {
        self.agent.is_some() || self.tag.is_some() || !self.skills.is_empty()
    }
}

/// The outcome for one linked vault.
enum PullOutcome {
    NoRelease,
    Done {
        report: PullReport,
        fetched: usize,
        bytes: u64,
        pinned: Option<String>,
    },
}

/// Pulls from one linked vault, or from each of them.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    // A machine without a vault has no links. Do not create a vault only to find that out.
    let vault = context.existing_vault()?.ok_or_else(not_linked)?;
    let chosen = which_links(&vault, arguments)?;
    let mut data = Vec::new();
    let mut lines = Vec::new();
    for link in &chosen {
        let address = format!("{}/v/{}", link.pin().base, link.pin().slug);
        let pulled = context.block_on(pull(context, &vault, link, arguments))?;
        data.push(as_json(link, &address, &pulled));
        lines.push(as_text(context, &address, &pulled));
    }
    let data = match <[Value; 1]>::try_from(data) {
        Ok([one]) => one,
        Err(several) => json!(several),
    };
    Ok(Report::new(data, lines.join("\n")))
}

fn not_linked() -> Failure {
    fail!(NotLinked, "this machine is not linked to a vault").hint("vault link <url>/v/<slug>")
}

fn which_links(vault: &Vault, arguments: &Arguments) -> Result<Vec<Link>, Failure> {
    let all = subscribe::all(vault)?;
    if all.is_empty() {
        return Err(not_linked());
    }
    let ids = || {
        all.iter()
            .map(|link| link.id().to_string())
            .collect::<Vec<_>>()
    };
    if let Some(from) = &arguments.from {
        let found: Vec<Link> = all
            .iter()
            .filter(|link| link.id().as_str() == from || link.pin().slug.as_str() == from)
            .cloned()
            .collect();
        return match found.len() {
            1 => Ok(found),
            0 => Err(fail!(
                NotLinked,
                "this machine is not linked to `{}`",
                clean(from, 80)
            )
            .hint(format!("it is linked to: {}", ids().join(", ")))),
            _ => Err(fail!(
                LinkAmbiguous,
                "several linked vaults are called `{}`",
                clean(from, 80)
            )
            .hint(format!("name one by its id: {}", ids().join(", ")))),
        };
    }
    if all.len() > 1 && (arguments.selects() || arguments.expect_key.is_some()) {
        return Err(fail!(
            LinkAmbiguous,
            "this machine is linked to several vaults: which one is meant?"
        )
        .hint(format!("--from {}", ids().join(" or --from "))));
    }
    Ok(all)
}

async fn pull(
    context: &Context,
    vault: &Vault,
    link: &Link,
    arguments: &Arguments,
) -> Result<PullOutcome, Failure> {
    let client = Arc::new(device_client(context, vault, link)?);
    let state = client.current().await?;
    if state.status == "revoked" {
        return Err(fail!(
            DeviceRevoked,
            "this machine was shut out of {}/v/{}",
            link.pin().base,
            link.pin().slug
        )
        .hint("installed skills stay; the owner can forget the machine, then link again"));
    }
    let Some(bytes) =
        catalog_bytes(&client, link, state.catalog.as_ref().map(|now| now.sha256)).await?
    else {
        check_not_rolled_back(link)?;
        return Ok(PullOutcome::NoRelease);
    };
    let offer = link.accept(vault, &bytes, arguments.expect_key.as_deref(), false)?;
    warn_about_catalog(context, &offer);
    let pinned = offer
        .is_first()
        .then(|| offer.accepted().catalog.public_key.fingerprint());
    if state.status == "pending" {
        // Pin the key from the first catalog on, even if the owner has not admitted this machine
        // yet.
        subscribe::pin_only(vault, &offer)?;
        return Err(not_admitted(vault, link, &state.device_id));
    }
    let selection = arguments.selection();
    let objects = fetch_objects(&client, &offer, &selection).await?;
    let chosen = offer.choose(&selection, &|hash| objects.get(hash).cloned())?;
    let missing = offer.missing(vault, &chosen);
    let (staged, bytes) = fetch(context, vault, &client, &offer, &missing).await?;
    let report = subscribe::install(vault, &offer, &selection, &chosen, staged)?;
    Ok(PullOutcome::Done {
        report,
        fetched: missing.len(),
        bytes,
        pinned,
    })
}

fn not_admitted(vault: &Vault, link: &Link, device_id: &str) -> Failure {
    let fingerprint = link
        .device_key(vault)
        .map_or_else(|_| String::new(), |key| key.public().fingerprint());
    fail!(
        DevicePending,
        "the owner has not admitted this machine yet ({fingerprint})"
    )
    .hint(format!(
        "the owner admits it with: vault devices admit {}",
        clean(device_id, 40)
    ))
}

/// Returns the current catalog. Uses the stored bytes if they have the digest that the service
/// reports as current, else fetches the catalog. `None` if there is no catalog yet.
async fn catalog_bytes(
    client: &DeviceClient,
    link: &Link,
    current: Option<Digest>,
) -> Result<Option<Vec<u8>>, Failure> {
    if let (Some(current), Some(stored)) = (current, link.catalog_bytes()?)
        && Digest::of(&stored) == current
    {
        return Ok(Some(stored));
    }
    client.catalog().await
}

async fn fetch_objects(
    client: &Arc<DeviceClient>,
    offer: &AcceptedCatalog,
    selection: &Selection,
) -> Result<HashMap<Digest, Vec<u8>>, Failure> {
    let mut objects = HashMap::new();
    in_flight(
        offer.objects_for(selection),
        |object| {
            let client = Arc::clone(client);
            async move {
                let bytes = client.bundle(&object.bundle_hash, object.size).await?;
                Ok((object.bundle_hash, bytes))
            }
        },
        |(hash, bytes)| {
            objects.insert(hash, bytes);
            Ok(())
        },
    )
    .await?;
    Ok(objects)
}

async fn fetch(
    context: &Context,
    vault: &Vault,
    client: &Arc<DeviceClient>,
    offer: &AcceptedCatalog,
    missing: &[SelectedSkill],
) -> Result<(StagedBundles, u64), Failure> {
    let mut staged = StagedBundles::new(vault)?;
    let mut total = 0_u64;
    let bar = context.ui.progress(missing.len() as u64, "fetching");
    in_flight(
        missing.to_vec(),
        |skill| {
            let client = Arc::clone(client);
            async move {
                let bytes = client.bundle(&skill.bundle_hash, skill.size).await?;
                let mut parts = HashMap::new();
                for (hash, size) in StagedBundles::parts(&skill, &bytes)? {
                    if let Entry::Vacant(part) = parts.entry(hash) {
                        part.insert(client.bundle(&hash, size).await?);
                    }
                }
                Ok((skill, bytes, parts))
            }
        },
        |(skill, bytes, parts)| {
            total += bytes.len() as u64 + parts.values().map(|part| part.len() as u64).sum::<u64>();
            staged.add(offer, &skill, &bytes, &|hash| parts.get(hash).cloned())?;
            bar.inc(1);
            bar.set_message(skill.name.to_string());
            Ok(())
        },
    )
    .await?;
    bar.finish_and_clear();
    Ok((staged, total))
}

fn as_json(link: &Link, address: &str, pulled: &PullOutcome) -> Value {
    match pulled {
        PullOutcome::NoRelease => json!({
            "address": address, "link": link.id().as_str(), "release": null,
        }),
        PullOutcome::Done {
            report,
            fetched,
            bytes,
            pinned,
        } => json!({
            "address": address,
            "link": link.id().as_str(),
            "release": report.release,
            "installed": report.installed,
            "updated": report.updated,
            "removed": report.removed,
            "unchanged": report.unchanged,
            "withdrawn": report.withdrawn.iter().map(|(name, reason)| json!({"name": name, "reason": reason})).collect::<Vec<_>>(),
            "shadowed": report.shadowed,
            "kept": report.kept,
            "fetched": fetched,
            "bytes": bytes,
            "pinned_fingerprint": pinned,
        }),
    }
}

fn as_text(context: &Context, address: &str, pulled: &PullOutcome) -> String {
    let PullOutcome::Done {
        report,
        fetched,
        bytes,
        pinned,
    } = pulled
    else {
        return format!("{} has not published anything yet.", paint(HINT, address));
    };
    for name in &report.shadowed {
        context.ui.warn(
            Warning::new(
                "shadowed",
                format!("your own skill `{name}` stands before the linked one of that name"),
            )
            .hint(format!("vault cloud pull --skill {name} --as <other-name>")),
        );
    }
    for name in &report.kept {
        context.ui.warn(
            Warning::new(
                "withdrawn_kept",
                format!("the owner withdrew `{name}`, but your own skill of these bytes stays"),
            )
            .hint(format!("vault remove {name}")),
        );
    }
    let mut lines = vec![format!(
        "{} release {} of {}: {}",
        paint(GOOD, "✓"),
        report.release,
        paint(HINT, address),
        summary(report)
    )];
    if let Some(fingerprint) = pinned {
        lines.push(format!(
            "  pinned the vault's key  {}",
            paint(BOLD, fingerprint)
        ));
    }
    lines.extend(changes(&report.installed, &report.updated, &report.removed));
    for (name, reason) in &report.withdrawn {
        lines.push(format!(
            "  {} {name} was withdrawn: {}",
            paint(WARN, "!"),
            clean(reason, 200)
        ));
    }
    if *fetched > 0 {
        lines.push(paint(
            DIM,
            format_args!(
                "  fetched and verified {}, {}",
                count(*fetched as u64, "bundle"),
                size(*bytes)
            ),
        ));
    }
    lines.join("\n")
}

fn summary(report: &PullReport) -> String {
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
        parts.join(", ")
    }
}
