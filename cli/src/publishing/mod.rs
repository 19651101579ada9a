//! Publishes this library as the next release of the connected namespace.
//!
//! A sync plans the release, asks which objects are missing, uploads them and then puts the
//! catalog. Every step can be repeated, so an interrupted sync continues where it stopped. No
//! release number is ever signed for two catalogs.

pub mod everywhere;
mod propose;
mod report;
pub mod review;
mod served;
mod take_over;
mod upload;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;
use vault_api::Draft;
use vault_format::{
    catalog::{SkillEntry, Stored},
    hash::Digest,
    name::SkillName,
};
use vault_library::{
    Vault, adopt,
    publish::{
        self, OnDivergence, Plan, PlanError, PlanRequest, ReleasePlan, state::AcknowledgedRelease,
    },
};
use vault_policy::profile::Profile;
use vault_service::error::ErrorCode as ServiceCode;

use self::review::ReleaseReview;
use self::take_over::TakenOver;
pub use self::{report::report, served::ServedVault};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, codes::service_hint},
    key_changes,
    output::count,
    service::{OwnerClient, connection::Connection, in_flight},
};

/// The number of newest releases that are shown after a recovery.
const MAX_SHOWN_RELEASES: usize = 50;

/// A release as the service lists it.
#[derive(Deserialize)]
struct ListedRelease {
    release: u64,
    root_version: u64,
}

/// Options of a sync.
pub struct SyncOptions {
    /// What to do if another machine published with this vault's key.
    pub on_divergence: OnDivergence,
    /// Whether to sign a new release even if nothing changed.
    pub renew: bool,
    /// Days until the release expires.
    pub days: i64,
    /// Other addresses that serve this vault.
    pub also: Vec<String>,
    /// The last release before a theft, from the status of any device.
    pub last_good: Option<Stored>,
    /// A release number that a device may have seen and the new release must exceed.
    pub above_release: Option<u64>,
    /// How the change of another publisher is reviewed before it is taken over.
    pub review: ReleaseReview,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            on_divergence: OnDivergence::Stop,
            renew: false,
            days: publish::DEFAULT_DAYS,
            also: Vec::new(),
            last_good: None,
            above_release: None,
            review: ReleaseReview::default(),
        }
    }
}

impl SyncOptions {
    /// The command that takes over a reviewed release without a question, but for its payload.
    fn answered_by(&self) -> String {
        let mut command = "vault sync".to_owned();
        if self.on_divergence == OnDivergence::Adopt {
            command.push_str(" --adopt");
        }
        if let Some(good) = self.last_good {
            let _ = write!(
                command,
                " --last-good {}:{}",
                good.release, good.payload_sha256
            );
        }
        command + " --payload"
    }
}

/// The outcome of a sync.
pub enum SyncOutcome {
    /// Nothing changed, and the current release stays.
    Unchanged {
        /// The current release.
        current: AcknowledgedRelease,
        /// What was taken over from other publishers.
        taken: TakenOver,
    },
    /// A new release was published.
    Published {
        /// The published release.
        plan: Box<ReleasePlan>,
        /// Number of uploaded objects.
        uploaded: usize,
        /// Size of the uploaded objects, in bytes.
        bytes: u64,
        /// What was taken over from other publishers.
        taken: TakenOver,
    },
    /// A new release waits for the signatures of other publishers.
    Proposed {
        /// The proposed release.
        plan: Box<ReleasePlan>,
        /// The proposal at the service.
        draft: Box<Draft>,
        /// What was taken over from other publishers.
        taken: TakenOver,
    },
}

impl SyncOutcome {
    /// The release that is current, or proposed, after a sync.
    pub fn release(&self) -> u64 {
        match self {
            Self::Unchanged { current, .. } => current.release,
            Self::Published { plan, .. } | Self::Proposed { plan, .. } => plan.release,
        }
    }
}

/// Publishes a library to a namespace through the owner's client.
pub struct Publisher<'a> {
    context: &'a Context,
    vault: &'a Vault,
    connection: &'a Connection,
    client: OwnerClient,
    /// The path of the namespace below the service's address.
    root: String,
    /// The versions that the service named for skills which an earlier release removed.
    reached: RefCell<BTreeMap<SkillName, u64>>,
}

impl<'a> Publisher<'a> {
    /// Creates the publisher of this library. Fails with exit 4 if the owner is not signed in.
    pub fn new(
        context: &'a Context,
        vault: &'a Vault,
        connection: &'a Connection,
    ) -> Result<Self, Failure> {
        Ok(Self {
            context,
            vault,
            connection,
            client: connection.owner(context)?,
            root: format!("/admin/vaults/{}", connection.slug),
            reached: RefCell::default(),
        })
    }

    /// The library.
    pub const fn vault(&self) -> &Vault {
        self.vault
    }

    /// Publishes this library as the next release. A release above a given number is followed by
    /// one more: a device that holds another payload under the number before takes only that one.
    pub async fn sync(&self, options: &SyncOptions) -> Result<SyncOutcome, Failure> {
        let mut outcome = self.sync_once(options).await?;
        if let (Some(_), SyncOutcome::Published { plan: first, .. }) =
            (options.above_release, &outcome)
        {
            let again = SyncOptions {
                renew: true,
                days: options.days,
                also: options.also.clone(),
                ..SyncOptions::default()
            };
            let mut second = self.sync_once(&again).await?;
            if let SyncOutcome::Published { plan, .. } = &mut second {
                // What differs from before both.
                plan.added.clone_from(&first.added);
                plan.changed.clone_from(&first.changed);
                plan.removed.clone_from(&first.removed);
            }
            outcome = second;
        }
        Ok(outcome)
    }

    /// Plans against the current catalog and publishes. If another release is published in the
    /// meantime, it plans once more.
    async fn sync_once(&self, options: &SyncOptions) -> Result<SyncOutcome, Failure> {
        let mut taken = TakenOver::default();
        let mut profiles = None;
        let (mut may_plan_again, mut may_publish_again) = (true, true);
        let mut reached = 0;
        let (mut sign_again, mut pin_is_reset) = (false, false);
        loop {
            match self
                .plan(options, sign_again, pin_is_reset, profiles.as_deref())
                .await?
            {
                Ok(Plan::Unchanged(current)) => {
                    return Ok(SyncOutcome::Unchanged { current, taken });
                }
                Ok(Plan::TakeOver(changes)) => {
                    taken.add(self.take_over(&changes, options).await?);
                }
                Ok(Plan::FetchProfiles(entries)) => {
                    profiles = Some(self.fetch_profiles(&entries).await?);
                }
                Ok(Plan::SignAgain(skills)) => {
                    self.ask_to_sign_again(&skills)?;
                    sign_again = true;
                }
                Ok(Plan::Propose(plan)) => match self.propose(&plan).await {
                    Ok((_, _, draft)) => {
                        self.warn_of_rivals(&draft).await?;
                        let draft = Box::new(draft);
                        return Ok(SyncOutcome::Proposed { plan, draft, taken });
                    }
                    Err(refused)
                        if refused.code == ServiceCode::SkillRolledBack
                            && self.reached.borrow().len() > reached =>
                    {
                        reached = self.reached.borrow().len();
                    }
                    Err(failure) => return Err(failure),
                },
                Ok(Plan::Publish(plan)) if self.declines_removals(options, &plan)? => {
                    return Err(fail!(NotConfirmed, "nothing was published"));
                }
                Ok(Plan::Publish(plan)) => match self.publish(&plan).await {
                    Ok((uploaded, bytes)) => {
                        return Ok(SyncOutcome::Published {
                            plan,
                            uploaded,
                            bytes,
                            taken,
                        });
                    }
                    Err(conflict)
                        if conflict.code == ErrorCode::ReleaseConflict && may_publish_again =>
                    {
                        may_publish_again = false;
                        profiles = None;
                        let ui = &self.context.ui;
                        ui.note("Another release was published meanwhile; checking again.");
                    }
                    Err(refused)
                        if refused.code == ServiceCode::SkillRolledBack
                            && self.reached.borrow().len() > reached =>
                    {
                        reached = self.reached.borrow().len();
                    }
                    Err(failure) => return Err(failure),
                },
                // Another process of this vault may have published after the catalog was read.
                Err(PlanError::RolledBack { .. } | PlanError::TwoCatalogs(_)) if may_plan_again => {
                    may_plan_again = false;
                }
                Err(error) if error.is_another_vaults() && !pin_is_reset => {
                    let shown = self.shown().await?;
                    // A service that says nothing about its pin has not forgotten it.
                    if shown.get("pin") != Some(&Value::Null) {
                        return Err(error.into());
                    }
                    // An owner has reset the pin, so that this vault takes the place of that one.
                    pin_is_reset = true;
                }
                Err(error) => {
                    if matches!(error, PlanError::NotOurs(_)) {
                        self.shown().await?;
                    }
                    return Err(error.into());
                }
            }
        }
    }

    /// Asks a person at a terminal about the skills that `--replace` removes on every machine, since
    /// only the service's release has them. Returns whether the answer is no.
    fn declines_removals(
        &self,
        options: &SyncOptions,
        plan: &ReleasePlan,
    ) -> Result<bool, Failure> {
        let ui = &self.context.ui;
        let is_asked = options.on_divergence == OnDivergence::Replace && ui.may_ask();
        if !is_asked || plan.removed.is_empty() || options.last_good.is_some() {
            return Ok(false);
        }
        let names = plan.removed.iter().map(|name| format!("  - {name}"));
        ui.note(names.collect::<Vec<_>>().join("\n"));
        let number = count(plan.removed.len() as u64, "skill");
        let text = format!("Publish a release that removes {number} on every machine?");
        Ok(!ui.confirm(&text)?)
    }

    /// Names the skills that a revoked key had signed, and asks. Nothing is signed unseen.
    fn ask_to_sign_again(&self, skills: &[SkillName]) -> Result<(), Failure> {
        let ui = &self.context.ui;
        let names: Vec<_> = skills.iter().map(|name| format!("  {name}")).collect();
        ui.note(format!(
            "The key that signed these skills was revoked, so they are not trusted:\n{}",
            names.join("\n")
        ));
        let skills = count(skills.len() as u64, "skill");
        ui.confirm_or_stop(&format!(
            "Scan {skills} again and sign with this machine's key?"
        ))
    }

    async fn plan(
        &self,
        options: &SyncOptions,
        sign_again: bool,
        pin_is_reset: bool,
        current_profiles: Option<&[Profile]>,
    ) -> Result<Result<Plan, PlanError>, Failure> {
        let spinner = self.context.ui.spinner("planning the release");
        let current = self.current_catalog().await?;
        let resume = self.may_resume().await?;
        let Connection { base, slug } = self.connection;
        let reached = self.reached.borrow().clone();
        let request = PlanRequest {
            resume,
            reached: Some(&reached),
            also_served_from: &options.also,
            on_divergence: options.on_divergence,
            renew: options.renew,
            days: options.days,
            sign_again,
            pin_is_reset,
            last_good: options.last_good,
            above_release: options.above_release,
            current_profiles,
            ..PlanRequest::new(base.as_str(), slug, current.as_deref())
        };
        let changes = match publish::take_roots(self.vault, &request) {
            Ok(changes) => changes,
            Err(error) => return Ok(Err(error)),
        };
        let planned = publish::plan(self.vault, &request);
        spinner.finish_and_clear();
        if let Some(changes) = changes {
            key_changes::warn(self.context, slug.as_str(), &changes);
        }
        Ok(planned)
    }

    /// Takes key changes that the service shows, and says who was added, removed or revoked.
    pub async fn look_at_keys(&self) -> Result<(), Failure> {
        let current = self.current_catalog().await?;
        let Connection { base, slug } = self.connection;
        let request = PlanRequest::new(base.as_str(), slug, current.as_deref());
        if let Some(changes) = publish::take_roots(self.vault, &request)? {
            key_changes::warn(self.context, slug.as_str(), &changes);
        }
        Ok(())
    }

    /// The release of another publisher that the service shows and that this machine has not taken
    /// over.
    pub async fn unseen_release(&self) -> Result<Option<u64>, Failure> {
        let current = self.current_catalog().await?;
        let Connection { base, slug } = self.connection;
        let request = PlanRequest::new(base.as_str(), slug, current.as_deref());
        Ok(publish::unseen_release(self.vault, &request)?)
    }

    /// Publishes the vault's keys with the current release as it is, so that devices learn at once
    /// who was revoked. Returns false if there is no release yet or it carries them already. If
    /// another release is published in the meantime, it tries once more.
    pub async fn push_roots(&self) -> Result<bool, Failure> {
        match self.push_roots_once().await {
            Err(conflict) if conflict.code == ServiceCode::ReleaseConflict => {
                self.push_roots_once().await
            }
            pushed => pushed,
        }
    }

    async fn push_roots_once(&self) -> Result<bool, Failure> {
        let Some(current) = self.current_catalog().await? else {
            return Ok(false);
        };
        let Some(longer) = publish::with_roots(self.vault, &current)? else {
            return Ok(false);
        };
        self.put(&longer, Some(&Digest::of(&current)))
            .await?
            .good()?;
        Ok(true)
    }

    /// Warns if the service forgot which vault it had pinned.
    pub async fn warn_of_pin_reset(&self) -> Result<(), Failure> {
        let shown: Value = self.client.get(&self.root).await?;
        key_changes::warn_of_pin_reset(self.context, &self.connection.address(), &shown);
        Ok(())
    }

    /// Fetches how the namespace stands, where its catalog is not ours. Fails if the server itself
    /// signs this vault: its catalog then belongs to the server's own library, and a client cannot
    /// publish to it.
    async fn shown(&self) -> Result<Value, Failure> {
        let shown: Value = self.client.get(&self.root).await?;
        if shown["kind"] != "self_signed" {
            return Ok(shown);
        }
        let message =
            "the server signs this vault's releases itself, so this machine cannot publish to it";
        Err(fail!(NamespaceSelfSigned, "{message}")
            .hint_if(service_hint(ServiceCode::NamespaceSelfSigned)))
    }

    /// Returns the exact bytes of the current catalog, or `None` before the first release. Uses the
    /// local copy if the service reports the same digest.
    pub async fn current_catalog(&self) -> Result<Option<Vec<u8>>, Failure> {
        let base = self.connection.base.as_str();
        if let Some(state) = publish::state::read(self.vault, base, &self.connection.slug)?
            && let Some(known) = &state.published
            && state.pending.is_none()
            && let Some(bytes) = state.catalog_bytes(self.vault)?
        {
            let shown: Value = self.client.get(&self.root).await?;
            // Downloading the catalog is unnecessary if the service still has the one published
            // here.
            let same = shown["release"]["sha256"].as_str() == Some(&known.file_sha256.to_string());
            if same && Digest::of(&bytes) == known.file_sha256 {
                return Ok(Some(bytes));
            }
        }
        let answer = self.client.read(&format!("{}/catalog", self.root)).await?;
        if answer.is_refusal(ServiceCode::CatalogNotPublished) {
            return Ok(None);
        }
        Ok(Some(answer.good()?.body))
    }

    /// Fetches the exact bytes of an earlier release's catalog, unverified.
    pub async fn earlier_catalog(&self, release: u64) -> Result<Vec<u8>, Failure> {
        let path = format!("{}/releases/{release}/catalog", self.root);
        let answer = self.client.read(&path).await?;
        if answer.is_refusal(ServiceCode::NotFound) {
            let hint =
                "vault status --cloud shows the current one; old releases are not kept forever";
            return Err(fail!(
                ReleaseNotFound,
                "the service no longer has release {release}"
            )
            .hint(hint));
        }
        Ok(answer.good()?.body)
    }

    /// Fetches the catalogs of the newest releases that the service lists, unverified, with the
    /// release number that it gives for each. `wanted` is included even if it is older.
    pub async fn shown_catalogs(
        &self,
        wanted: Option<u64>,
    ) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
        let mut listed: Vec<ListedRelease> =
            self.client.list(&format!("{}/releases", self.root)).await?;
        let older = listed.len().saturating_sub(MAX_SHOWN_RELEASES);
        let newest = listed.split_off(older);
        listed.retain(|one| Some(one.release) == wanted);
        listed.extend(newest);
        let mut catalogs = Vec::new();
        in_flight(
            listed,
            |one| {
                let client = self.client.clone();
                let ListedRelease {
                    release,
                    root_version,
                } = one;
                let path = format!(
                    "{}/releases/{release}/catalog?root_version={root_version}",
                    self.root
                );
                async move {
                    let answer = client.read(&path).await?;
                    // The service does not keep old catalogs for ever.
                    if answer.is_refusal(ServiceCode::NotFound) {
                        return Ok(None);
                    }
                    Ok(Some((release, answer.good()?.body)))
                }
            },
            |fetched| {
                catalogs.extend(fetched);
                Ok(())
            },
        )
        .await?;
        catalogs.sort_by_key(|(release, _)| *release);
        Ok(catalogs)
    }

    /// Fetches bundles of the vault's own releases and their parts, unverified.
    pub async fn fetch_own(
        &self,
        entries: &[SkillEntry],
    ) -> Result<HashMap<Digest, Vec<u8>>, Failure> {
        let mut fetched = HashMap::new();
        let bar = self.context.ui.progress(entries.len() as u64, "fetching");
        in_flight(
            entries.to_vec(),
            |entry| {
                let client = self.client.clone();
                let root = format!("{}/objects/bundles", self.root);
                async move {
                    let bytes = object(&client, &root, &entry.bundle_hash).await?;
                    let mut all = Vec::new();
                    for (hash, _) in adopt::parts(&entry, &bytes)? {
                        all.push((hash, object(&client, &root, &hash).await?));
                    }
                    all.push((entry.bundle_hash, bytes));
                    Ok(all)
                }
            },
            |objects| {
                fetched.extend(objects);
                bar.inc(1);
                Ok(())
            },
        )
        .await?;
        bar.finish_and_clear();
        Ok(fetched)
    }
}

async fn object(client: &OwnerClient, root: &str, hash: &Digest) -> Result<Vec<u8>, Failure> {
    Ok(client.read(&format!("{root}/{hash}")).await?.good()?.body)
}
