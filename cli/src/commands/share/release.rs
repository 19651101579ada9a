//! `vault release`: reviews and signs releases that other publishers propose.
//!
//! The proposed bytes are judged as a device judges a release, but for the number of signatures.
//! The gate runs on every new bundle, and a person sees every difference before this machine signs.

use std::collections::HashMap;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use vault_format::{catalog::SkillEntry, hash::Digest};
use vault_library::{
    adopt,
    publish::{CheckedSkill, Proposal, SignedProposal},
};

use super::drafts::{find, title};
use crate::{
    context::Context,
    diff::{by_path, diff_files, diff_texts},
    errors::Failure,
    key_changes,
    output::{
        BAD, BOLD, DIM, GOOD, HINT, Report, TICK, Table, WARN, clean, count, day, finding, join,
        paint,
    },
    publishing::Publisher,
    service::{
        connection::Connection,
        drafts::{Draft, DraftClient, DraftKind},
    },
};

/// The arguments of `vault release`.
#[derive(Args, Debug)]
#[command(after_help = "\
Where a vault's releases need several publishers (`vault publishers threshold`), `vault sync` \
proposes a release. Another publisher signs it on another machine: `sign` verifies the exact \
bytes, scans every new skill, shows all differences and asks. Who completes the signatures also \
publishes the release.

Examples:
  vault release list
  vault release show 01kd5w3e
  vault release sign 01kd5w3e")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the releases that wait for signatures
    List,
    /// Show what a proposed release would change
    Show(Which),
    /// Show a proposed release, ask, and sign it
    Sign(Which),
}

#[derive(Args, Debug)]
struct Which {
    /// The proposal's id, or the beginning of it
    #[arg(value_name = "ID")]
    id: String,
}

/// Lists, shows or signs.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner(context)?;
    let drafts = DraftClient::new(&client, &connection);
    match &arguments.action {
        Action::List => list(context, &connection, &drafts),
        Action::Show(which) => {
            let draft = find_release(context, &drafts, &which.id)?;
            let vault = context.vault()?;
            let publisher = Publisher::new(context, &vault, &connection)?;
            let read = context.block_on(Reading::read(&publisher, &drafts, &draft))?;
            let lines = lines(&read);
            Ok(Report::new(data(&draft, &read), lines.join("\n")))
        }
        Action::Sign(which) => {
            let draft = find_release(context, &drafts, &which.id)?;
            let vault = context.vault()?;
            let publisher = Publisher::new(context, &vault, &connection)?;
            sign(context, &publisher, &drafts, &draft)
        }
    }
}

fn find_release(context: &Context, drafts: &DraftClient<'_>, id: &str) -> Result<Draft, Failure> {
    let draft = find(context, drafts, id)?;
    if draft.kind == DraftKind::Release {
        return Ok(draft);
    }
    Err(fail!(Usage, "the draft {} is not a release", draft.id)
        .hint(format!("vault drafts show {}", draft.id)))
}

fn list(
    context: &Context,
    connection: &Connection,
    drafts: &DraftClient<'_>,
) -> Result<Report, Failure> {
    let mut waiting = context.block_on(drafts.list(false))?;
    waiting.retain(|draft| draft.kind == DraftKind::Release);
    if waiting.is_empty() {
        return Ok(Report::new(json!([]), "No release waits for signatures."));
    }
    let vault = context.vault()?;
    // A proposal may be made under newer keys, which need other signatures.
    context.block_on(Publisher::new(context, &vault, connection)?.look_at_keys())?;
    let trust = vault.require_trust()?;
    let needed = trust.chain().document().release().threshold();
    let mut table = Table::new(&["ID", "RELEASE", "BY", "SINCE", "SIGNATURES", "ENDS"]);
    for draft in &waiting {
        let author = &draft.submitted_by;
        let proposal = draft.proposal.as_ref();
        let signatures = proposal.map_or(0, |proposal| proposal.signers.len());
        table.row([
            draft.id.to_string(),
            proposal.map_or_else(String::new, |proposal| proposal.release.to_string()),
            clean(author.email.as_deref().unwrap_or(&author.user_id), 64),
            day(&draft.submitted_at.to_string()),
            format!("{signatures} of {needed}"),
            draft
                .expires_at
                .map_or_else(String::new, |end| day(&end.to_string())),
        ]);
    }
    Ok(Report::new(json!(waiting), table.text()))
}

/// A proposal with everything that it names.
struct Reading {
    current: Option<Vec<u8>>,
    proposal: Proposal,
    checked: Vec<CheckedSkill>,
    /// The former and the new policy as text, if they differ.
    policy: Option<(String, String)>,
}

impl Reading {
    async fn read(
        publisher: &Publisher<'_>,
        drafts: &DraftClient<'_>,
        draft: &Draft,
    ) -> Result<Self, Failure> {
        let bytes = drafts.bytes(draft).await?;
        let (proposal, current) = publisher.judge_proposal(&bytes).await?;
        let (mut skills, profiles) = proposal.to_fetch();
        let former = proposal.changes.changed.iter().map(|(old, _)| old.clone());
        skills.extend(former);
        let mut fetched = publisher.fetch_own(&skills).await?;
        let hashes: Vec<_> = profiles.iter().map(|profile| profile.bundle_hash).collect();
        fetched.extend(publisher.fetch_objects("bundles", &hashes).await?);
        let variants = proposal.variants(&|hash| fetched.get(hash).cloned())?;
        fetched.extend(publisher.fetch_own(&variants).await?);
        let policy = policy_texts(publisher, &proposal, &mut fetched).await?;
        let checked = proposal.check(publisher.vault(), &|hash| fetched.get(hash).cloned())?;
        Ok(Self {
            current,
            proposal,
            checked,
            policy,
        })
    }
}

async fn policy_texts(
    publisher: &Publisher<'_>,
    proposal: &Proposal,
    fetched: &mut HashMap<Digest, Vec<u8>>,
) -> Result<Option<(String, String)>, Failure> {
    let Some((before, after)) = proposal.changes.policy else {
        return Ok(None);
    };
    let hashes: Vec<_> = before
        .iter()
        .chain(&after)
        .map(|entry| entry.sha256)
        .collect();
    fetched.extend(publisher.fetch_objects("policies", &hashes).await?);
    let text = |entry: Option<vault_format::catalog::PolicyEntry>| {
        entry.map_or(Ok(String::new()), |entry| {
            adopt::policy_text(&entry, &|hash| fetched.get(hash).cloned())
        })
    };
    Ok(Some((text(before)?, text(after)?)))
}

/// Everything that a person compares before signing.
fn lines(read: &Reading) -> Vec<String> {
    let (proposal, changes) = (&read.proposal, &read.proposal.changes);
    let catalog = &proposal.catalog;
    let from = changes.from.map_or_else(
        || "the first release".to_owned(),
        |from| format!("after release {from}"),
    );
    let signers = join(proposal.signers.iter().map(key_changes::name));
    let mut lines = vec![
        format!("{BOLD}release {}{BOLD:#}  {from}", catalog.release),
        format!(
            "  signed by {signers}: {} of {}",
            proposal.signers.len(),
            proposal.needed
        ),
        format!("  payload {}", proposal.payload_sha256),
    ];
    let until = match changes.expires_at.0 {
        Some(before) => format!("{before} → {}", changes.expires_at.1),
        None => changes.expires_at.1.to_string(),
    };
    lines.push(format!("  valid until {until}"));
    if let Some(roots) = &proposal.roots {
        lines.push(format!(
            "  {WARN}keys{WARN:#}  version {} → {}: {}",
            roots.from,
            roots.to,
            key_changes::text(roots)
        ));
    }
    let addresses = changes.audience.iter().map(|it| clean(it, 200));
    lines.extend(addresses.map(|it| format!("  {WARN}served from{WARN:#}  {it}")));
    let entry = |mark: String, entry: &SkillEntry| {
        format!(
            "{mark} {BOLD}{}{BOLD:#}  version {}",
            entry.name, entry.version
        )
    };
    lines.extend(changes.added.iter().map(|it| entry(paint(GOOD, "+"), it)));
    let changed = changes.changed.iter();
    lines.extend(changed.map(|(old, new)| {
        let (mark, name) = (paint(WARN, "~"), &new.name);
        format!(
            "{mark} {BOLD}{name}{BOLD:#}  version {} → {}",
            old.version, new.version
        )
    }));
    lines.extend(changes.removed.iter().map(|it| entry(paint(BAD, "-"), it)));
    lines.extend(changes.withdrawn.iter().map(|it| {
        let reason = clean(&it.reason, 200);
        format!("{BAD}withdrawn{BAD:#} {}  {reason}", it.name)
    }));
    lines.extend(changes.profiles.iter().map(|it| {
        format!(
            "{WARN}profile{WARN:#} {} ({})",
            clean(&it.name, 64),
            it.agent
        )
    }));
    let lost = changes.lost_profiles.iter().map(|name| clean(name, 64));
    lines.extend(lost.map(|name| format!("{BAD}profile{BAD:#} {name} removed")));
    for skill in &read.checked {
        lines.extend(skill_lines(skill));
    }
    if let Some((before, after)) = &read.policy {
        lines.push(paint(BOLD, "changed policy"));
        lines.extend(diff_texts(before.as_bytes(), after.as_bytes()));
    }
    lines
}

fn skill_lines(skill: &CheckedSkill) -> Vec<String> {
    let rendered = skill.rendered_for.as_ref();
    let rendered = rendered.map_or_else(String::new, |agent| {
        format!(", rendered for {}", clean(agent, 64))
    });
    let number = count(skill.findings.len() as u64, "finding");
    let mut lines = vec![format!(
        "\n{BOLD}{}{BOLD:#}{rendered}  {DIM}the gate has {number}{DIM:#}",
        skill.name
    )];
    let findings = skill.findings.iter();
    lines.extend(findings.map(|it| finding::line(it.path.as_str(), it)));
    lines.extend(diff_files(&by_path(&skill.before), &by_path(&skill.files)));
    lines
}

fn data(draft: &Draft, read: &Reading) -> Value {
    let (proposal, changes) = (&read.proposal, &read.proposal.changes);
    let names = |entries: &[SkillEntry]| -> Vec<String> {
        entries.iter().map(|entry| entry.name.to_string()).collect()
    };
    let changed = changes.changed.iter().map(|(_, new)| new.name.to_string());
    json!({
        "id": draft.id, "release": proposal.catalog.release, "after": changes.from,
        "payload_sha256": proposal.payload_sha256, "signers": proposal.signers,
        "signatures_needed": proposal.needed, "signed_here": proposal.signed_here,
        "added": names(&changes.added), "updated": changed.collect::<Vec<_>>(),
        "removed": names(&changes.removed), "policy": changes.policy.is_some(),
        "profiles": changes.profiles, "lost_profiles": changes.lost_profiles,
        "withdrawn": changes.withdrawn, "audience": changes.audience, "roots": proposal.roots,
        "expires_at": changes.expires_at.1,
        "findings": read.checked.iter().map(|skill| json!({
            "skill": skill.name, "rendered_for": skill.rendered_for, "findings": skill.findings,
        })).collect::<Vec<_>>(),
    })
}

fn sign(
    context: &Context,
    publisher: &Publisher<'_>,
    drafts: &DraftClient<'_>,
    draft: &Draft,
) -> Result<Report, Failure> {
    let read = context.block_on(Reading::read(publisher, drafts, draft))?;
    for line in lines(&read) {
        context.ui.must_see(line);
    }
    let mut data = data(draft, &read);
    let release = read.proposal.catalog.release;
    let payload = read.proposal.payload_sha256;
    context.ui.confirm_step(
        &format!("Sign release {release}?"),
        &[
            format!("This machine signs no other content as release {release}"),
            format!("The payload is {payload}: ask its author whether this is it"),
        ],
    )?;
    let signed = read
        .proposal
        .sign(publisher.vault(), read.current.as_deref())?;
    let needed = data["signatures_needed"].clone();
    let text = context.block_on(hand_in(publisher, draft, &signed, &needed))?;
    data["signatures"] = json!(signed.signatures);
    data["published"] = json!(signed.is_complete);
    Ok(Report::new(data, text))
}

/// Publishes a complete release, or hands it in for the next publisher.
async fn hand_in(
    publisher: &Publisher<'_>,
    draft: &Draft,
    signed: &SignedProposal,
    needed: &Value,
) -> Result<String, Failure> {
    let (release, has) = (signed.release, signed.signatures);
    if signed.is_complete {
        publisher.put_complete(signed).await?;
        return Ok(format!(
            "{TICK} signed and published release {release}\n\
             Take its changes over into this vault with: {HINT}vault sync{HINT:#}"
        ));
    }
    let next = publisher.post_proposal(&signed.bytes).await?;
    Ok(format!(
        "{TICK} signed release {release}: it has {has} of {needed} signatures\n\
         The next publisher signs {}; {} is no longer needed",
        title(&next),
        draft.id
    ))
}
