//! `vault release`: reviews and signs releases that other publishers propose.
//!
//! A proposed release is verified by the same rules as on a device that installs it, except for the
//! number of signatures. The gate (scanner) runs on every new bundle (the object with a skill's
//! files), and a person sees every difference before this machine signs.

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use vault_api::{Draft, DraftKind};
use vault_format::{keys::PublicKey, name::DraftId};
use vault_library::{
    adopt::Exceptions,
    publish::{Proposal, ReleaseRejection, SignedProposal},
    trust::{NamedKey, VaultTrust},
};

use super::drafts::{draft_title, find_pending_draft};
use crate::{
    context::Context,
    errors::Failure,
    output::{
        BOLD, Column, HINT, Report, TICK, Table, WARN, clean, diff::RenderedDiff, either,
        format_day, format_key, join, paint,
    },
    service::{connection::Connection, drafts::DraftClient},
    tasks::publishing::{
        Publisher,
        review::{Question, ReleaseDifference, ReleaseReview, ReviewFlags},
    },
};

/// The arguments of `vault release`.
#[derive(Args, Debug)]
#[command(after_help = "\
Where a vault's releases need several publishers (`vault publishers threshold`), `vault sync` \
proposes a release. Another publisher signs it on another machine: `sign` verifies the exact \
bytes, scans every new skill, shows all differences from the release that this machine knows, and \
asks; --yes is no answer. Who completes the signatures also publishes the release.

Examples:
  vault release list
  vault release show 01kd5w3e --out ./review
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
    Show(Show),
    /// Show a proposed release, ask, and sign it
    Sign(Sign),
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    review: ReviewFlags,
}

#[derive(Args, Debug)]
struct Sign {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    review: ReleaseReview,
}

#[derive(Args, Debug)]
struct Which {
    /// The proposal's id, or the beginning of it
    #[arg(value_name = "ID")]
    id: String,
}

/// A release that waits for signatures.
#[derive(Debug, JsonSchema, Serialize)]
pub struct WaitingRelease {
    #[serde(flatten)]
    draft: Draft,
    /// The keys that have signed it, as the service says.
    signed_by: Vec<Signer>,
}

/// A proposed release, and what it changes.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ProposedChange {
    /// The id of the proposal.
    id: DraftId,
    #[serde(flatten)]
    difference: ReleaseDifference,
    #[serde(flatten)]
    proposal: Proposal,
    /// The number of its signatures now; only of `vault release sign`.
    #[serde(skip_serializing_if = "Option::is_none")]
    signatures: Option<usize>,
    /// Whether it was published now; only of `vault release sign`.
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<bool>,
}

/// Lists the proposed releases, or shows or signs one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner_client(context)?;
    let drafts = DraftClient::new(&client, &connection);
    match &arguments.action {
        Action::List => list_proposals(context, &connection, &drafts),
        Action::Show(show) => {
            let draft = find_release(context, &drafts, &show.which.id)?;
            let vault = context.open_vault()?;
            let publisher = Publisher::new(context, &vault, &connection)?;
            // Exceptions are a decision of the signer, so a release is shown without any.
            let exceptions = Exceptions {
                strict: context.is_strict()?,
                allow: Vec::new(),
                reason: None,
            };
            let read = ReviewedProposal::fetch_and_review(
                &publisher,
                &drafts,
                &draft,
                &exceptions,
                &show.review,
            );
            let read = context.block_on(read)?;
            Ok(Report::view(read.change, read.shown.lines.join("\n")))
        }
        Action::Sign(how) => {
            let draft = find_release(context, &drafts, &how.which.id)?;
            let vault = context.open_vault()?;
            let publisher = Publisher::new(context, &vault, &connection)?;
            sign_proposal(context, &publisher, &drafts, &draft, how)
        }
    }
}

fn find_release(context: &Context, drafts: &DraftClient<'_>, id: &str) -> Result<Draft, Failure> {
    let draft = find_pending_draft(context, drafts, id)?;
    if draft.kind == DraftKind::Release {
        return Ok(draft);
    }
    Err(fail!(Usage, "the draft {} is not a release", draft.id)
        .hint(format!("vault drafts show {}", draft.id)))
}

fn list_proposals(
    context: &Context,
    connection: &Connection,
    drafts: &DraftClient<'_>,
) -> Result<Report, Failure> {
    let mut waiting = context.block_on(drafts.list(false))?;
    waiting.retain(|draft| draft.kind == DraftKind::Release);
    // Without proposals, neither the vault nor newer keys are needed.
    if waiting.is_empty() {
        let none: Vec<WaitingRelease> = Vec::new();
        return Ok(Report::view(none, "No release waits for signatures."));
    }
    let vault = context.open_vault()?;
    // Read newer keys first: under them, other signatures may be required.
    context.block_on(Publisher::new(context, &vault, connection)?.apply_shown_keys())?;
    let trust = vault.require_trust()?;
    let needed = trust.chain().document().release().threshold();
    let mut table = Table::new([
        Column::new("id"),
        Column::new("release"),
        Column::new("by").shrinks_to(8).leaves(3),
        Column::new("since").leaves(1),
        Column::new("signatures").shrinks_to(12),
        Column::new("ends").leaves(2),
    ]);
    let mut releases = Vec::new();
    for draft in waiting {
        let author = &draft.submitted_by;
        let proposal = draft.proposal.as_ref();
        let signers = proposal.map_or(&[][..], |proposal| &proposal.signers);
        let signers = signers.iter().map(|key| Signer::for_key(&trust, key));
        let signers: Vec<_> = signers.collect();
        let names = join(signers.iter().map(Signer::text));
        // A signature of a revoked key does not count towards the threshold.
        let counted = signers.iter().filter(|signer| !signer.revoked).count();
        table.push_row([
            draft.id.to_string(),
            proposal.map_or_else(String::new, |proposal| proposal.release.to_string()),
            clean(author.display_name(), 64),
            format_day(&draft.submitted_at.to_string()),
            format!("{counted} of {needed}: {names}"),
            draft
                .expires_at
                .map_or_else(String::new, |end| format_day(&end.to_string())),
        ]);
        releases.push(WaitingRelease {
            draft,
            signed_by: signers,
        });
    }
    Ok(Report::view(releases, context.ui.format_table(&table)))
}

/// A key that has signed a proposed release, as the service says.
#[derive(Debug, JsonSchema, Serialize)]
struct Signer {
    #[serde(flatten)]
    key: NamedKey,
    /// Whether the key was revoked, so that its signatures no longer count.
    revoked: bool,
}

impl Signer {
    fn for_key(trust: &VaultTrust, key: &PublicKey) -> Self {
        Self {
            key: NamedKey::from_chain(trust.chain(), key),
            revoked: trust.roots().is_revoked(key),
        }
    }

    fn text(&self) -> String {
        let name = clean(&self.key.name, 64);
        if self.revoked {
            return paint(WARN, format!("{name} (revoked)"));
        }
        name
    }
}

/// A proposal, verified and compared with the current release.
struct ReviewedProposal {
    /// The bytes of the service's current catalog; `None` before the first release.
    current: Option<Vec<u8>>,
    shown: RenderedDiff,
    change: ProposedChange,
}

impl ReviewedProposal {
    async fn fetch_and_review(
        publisher: &Publisher<'_>,
        drafts: &DraftClient<'_>,
        draft: &Draft,
        exceptions: &Exceptions,
        flags: &ReviewFlags,
    ) -> Result<Self, Failure> {
        let bytes = drafts.fetch_bytes(draft).await?;
        // Verify the proposal before its content: this step applies newer keys, which decide which
        // signatures count.
        let (proposal, current) = publisher.judge_proposal(&bytes).await?;
        let review = publisher
            .review_release(&proposal.change, exceptions, flags)
            .await?;
        let mut review_text = RenderedDiff {
            lines: heading_lines(&proposal),
            hidden: 0,
        };
        review_text.add_difference(review.shown);
        Ok(Self {
            current,
            shown: review_text,
            change: ProposedChange {
                id: draft.id,
                difference: review.difference,
                proposal,
                signatures: None,
                published: None,
            },
        })
    }
}

/// Formats the heading of a review: the release, its signatures and the SHA-256 of its payload.
fn heading_lines(proposal: &Proposal) -> Vec<String> {
    vec![
        format!("{BOLD}release {}{BOLD:#}", proposal.change.catalog.release),
        format!("  {}", signatures_text(proposal)),
        format!("  payload {}", proposal.payload_sha256),
    ]
}

/// Formats the number of signatures and the names of the signers.
fn signatures_text(proposal: &Proposal) -> String {
    let (has, needed) = (proposal.signers.len(), proposal.needed);
    let signers = join(proposal.signers.iter().map(format_key));
    let here = either(proposal.signed_here, ", this machine among them", "");
    format!("{has} of {needed} signatures: {signers}{here}")
}

fn sign_proposal(
    context: &Context,
    publisher: &Publisher<'_>,
    drafts: &DraftClient<'_>,
    draft: &Draft,
    how: &Sign,
) -> Result<Report, Failure> {
    let exceptions = how.review.exceptions(context)?;
    let read = ReviewedProposal::fetch_and_review(
        publisher,
        drafts,
        draft,
        &exceptions,
        &how.review.flags,
    );
    let ReviewedProposal {
        current,
        shown,
        mut change,
    } = context.block_on(read)?;
    let proposal = change.proposal.clone();
    let release = proposal.change.catalog.release;
    // A second signature of the same key would not count.
    if proposal.signed_here {
        let text = format!(
            "This machine has signed release {release} already: {}.\n\
             Another publisher signs {}, on another machine.",
            signatures_text(&proposal),
            draft_title(draft)
        );
        change.signatures = Some(proposal.signers.len());
        change.published = Some(false);
        return Ok(Report::view(change, text));
    }
    let payload = proposal.payload_sha256;
    let text = format!("Sign release {release}?");
    let question = Question {
        text: &text,
        effects: &[
            format!("This machine signs no other content as release {release}"),
            format!("The payload is {payload}: ask its author whether this is it"),
        ],
        hash: &payload,
        flag: "--payload",
    };
    // `--yes` does not answer this: a script would sign whatever another publisher proposes.
    context.ui.confirm_review(
        &shown,
        &question,
        how.review.payload.as_ref(),
        &how.review.flags,
    )?;
    let needed = proposal.needed;
    // `sign` first records the payload, so that this machine never signs another one with the same
    // release number.
    let signed = proposal.sign(publisher.vault(), current.as_deref())?;
    let text = context.block_on(submit_signed(publisher, draft, &signed, needed))?;
    change.signatures = Some(signed.signatures);
    change.published = Some(signed.is_complete);
    Ok(Report::view(change, text))
}

/// Publishes a release whose signatures are complete; otherwise submits it as a proposal for the
/// next publisher.
async fn submit_signed(
    publisher: &Publisher<'_>,
    draft: &Draft,
    signed: &SignedProposal,
    needed: usize,
) -> Result<String, Failure> {
    let (release, has) = (signed.release, signed.signatures);
    // The last signer publishes, so the author of the proposal need not be online.
    if signed.is_complete {
        publisher.put_complete(signed).await?;
        return Ok(format!(
            "{TICK} signed and published release {release}\n\
             Take its changes over into this vault with: {HINT}vault sync{HINT:#}"
        ));
    }
    let next = publisher.post_proposal(&signed.bytes).await;
    let next = next.map_err(ReleaseRejection::into_error)?;
    Ok(format!(
        "{TICK} signed release {release}: it has {has} of {needed} signatures\n\
         The next publisher signs {}; {} is no longer needed",
        draft_title(&next),
        draft.id
    ))
}
