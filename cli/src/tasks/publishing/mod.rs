//! Publishes this library (the vault's store of skills on this machine) as the next release of the
//! connected namespace, which is the vault's place on a service.
//!
//! The library drives a sync ([`publish::publish_library`]) through two traits. This module
//! implements them: one sends the requests to the service, the other asks the owner.

mod driver;
pub mod everywhere;
mod propose;
mod report;
pub mod review;
mod served;
mod take_over;
mod upload;

use std::collections::HashMap;
use std::fmt::Write as _;

use vault_api::{Draft, Kind, Release, VaultHead};
use vault_format::{
    catalog::{ReleaseRef, SkillEntry},
    hash::Digest,
};
use vault_library::{
    Vault, adopt,
    publish::{self, OnDivergence, PlanRequest, PublishOutcome},
};
use vault_service::error::ErrorCode as ServiceCode;

use self::driver::InteractiveOwner;
use self::review::ReleaseReview;
use self::take_over::TakenOver;
pub use self::{
    report::{SyncReport, sync_report},
    served::ServedVault,
};

use crate::{
    context::Context,
    errors::{Failure, codes::service_hint},
    service::{OwnerClient, connection::Connection, in_flight},
    tasks::key_changes,
};

/// Maximum number of releases, the newest ones, that [`Publisher::shown_catalogs`] fetches.
const MAX_SHOWN_RELEASES: usize = 50;

/// The options of `vault sync`, and of other commands that publish a release.
pub struct SyncOptions {
    /// What to do if the service has a release that this machine does not know: stop, take it over,
    /// or replace it.
    pub on_divergence: OnDivergence,
    /// Whether to sign a new release even if nothing changed.
    pub renew: bool,
    /// Validity of the release, in days.
    pub days: i64,
    /// Other addresses that may serve this vault's releases. They are part of the signed catalog.
    pub also: Vec<String>,
    /// The last release before the theft of a key, as any device shows it (`--last-good`). Later
    /// releases are suspect.
    pub last_good: Option<ReleaseRef>,
    /// A release number that the new release must exceed, because a device may have seen it.
    pub above_release: Option<u64>,
    /// The review of another publisher's change before it is taken over.
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
    /// Returns the command that takes over a reviewed release without a question. It ends with
    /// `--payload`, and the caller adds the digest.
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

/// What a sync did: the release, and the changes that it took over.
pub struct SyncOutcome {
    /// What became of the release: nothing changed, published, or proposed to other publishers.
    pub published: PublishOutcome<Draft>,
    /// The changes taken over from other publishers.
    pub taken: TakenOver,
}

impl SyncOutcome {
    /// Returns the number of the release that is current, or proposed, after a sync.
    pub fn release(&self) -> u64 {
        match &self.published {
            PublishOutcome::Unchanged(current) => current.release,
            PublishOutcome::Release(plan, _) | PublishOutcome::Proposed(plan, _) => plan.release,
        }
    }

    /// Returns whether the release waits for the signatures of other publishers.
    pub const fn is_proposed(&self) -> bool {
        matches!(self.published, PublishOutcome::Proposed(..))
    }
}

/// Publishes this machine's library to one namespace through the owner's client.
pub struct Publisher<'a> {
    context: &'a Context,
    vault: &'a Vault,
    connection: &'a Connection,
    client: OwnerClient,
    /// The path of the namespace's routes below the service's address: `/admin/vaults/<slug>`.
    root: String,
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
            client: connection.owner_client(context)?,
            root: format!("/admin/vaults/{}", connection.slug),
        })
    }

    pub const fn vault(&self) -> &Vault {
        self.vault
    }

    /// Publishes this library as the next release. With `above_release`, publishes a second one
    /// directly after it: a device that already has another payload under the first number accepts
    /// only the next number.
    pub async fn sync_release(&self, options: &SyncOptions) -> Result<SyncOutcome, Failure> {
        let mut outcome = self.sync_once(options).await?;
        if let (Some(_), PublishOutcome::Release(first, _)) =
            (options.above_release, &outcome.published)
        {
            let again = SyncOptions {
                renew: true,
                days: options.days,
                also: options.also.clone(),
                ..SyncOptions::default()
            };
            let mut second = self.sync_once(&again).await?;
            if let PublishOutcome::Release(plan, _) = &mut second.published {
                // The report covers both releases together.
                plan.added.clone_from(&first.added);
                plan.changed.clone_from(&first.changed);
                plan.removed.clone_from(&first.removed);
            }
            outcome = second;
        }
        Ok(outcome)
    }

    async fn sync_once(&self, options: &SyncOptions) -> Result<SyncOutcome, Failure> {
        let Connection { base, slug } = self.connection;
        let request = PlanRequest {
            also_served_from: &options.also,
            on_divergence: options.on_divergence,
            renew: options.renew,
            days: options.days,
            last_good: options.last_good,
            above_release: options.above_release,
            ..PlanRequest::new(base.as_str(), slug, None)
        };
        let mut owner = InteractiveOwner {
            publisher: self,
            options,
            taken: TakenOver::default(),
            may_retry: true,
        };
        let published = publish::publish_library(self.vault, &request, self, &mut owner).await?;
        // Somebody else may have proposed other content under the same number in the meantime.
        if let PublishOutcome::Proposed(_, draft) = &published {
            self.warn_of_rivals(draft).await?;
        }
        let taken = owner.taken;
        Ok(SyncOutcome { published, taken })
    }

    /// Applies newer root versions that the service shows, and warns which keys were added, removed
    /// or revoked. Returns the bytes of the current catalog.
    pub async fn apply_shown_keys(&self) -> Result<Option<Vec<u8>>, Failure> {
        let current = self.current_catalog().await?;
        let Connection { base, slug } = self.connection;
        let request = PlanRequest::new(base.as_str(), slug, current.as_deref());
        if let Some(changes) = publish::take_roots(self.vault, &request)? {
            key_changes::warn_of_changes(self.context, slug.as_str(), &changes);
        }
        Ok(current)
    }

    /// Returns the number of the service's current release if it is another publisher's and this
    /// machine has not taken it over.
    pub async fn unseen_release(&self) -> Result<Option<u64>, Failure> {
        let current = self.current_catalog().await?;
        let Connection { base, slug } = self.connection;
        let request = PlanRequest::new(base.as_str(), slug, current.as_deref());
        Ok(publish::unseen_release(self.vault, &request)?)
    }

    /// Adds the vault's new root versions to the current release, so that devices learn of a
    /// revocation at once. Returns false if there is no release yet or it has them already. If
    /// another release is published in the meantime, tries once more.
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
        let Some(longer) = publish::append_missing_roots(self.vault, &current)? else {
            return Ok(false);
        };
        // Only keys are added, so the release must still be the one that was read.
        self.put_catalog(&longer, Some(&Digest::of(&current)))
            .await?
            .require_good()?;
        Ok(true)
    }

    /// Warns if the service's pin of the vault was reset.
    pub async fn warn_of_pin_reset(&self) -> Result<(), Failure> {
        let head: VaultHead = self.client.get(&self.root).await?;
        key_changes::warn_of_pin_reset(self.context, &self.connection.address(), &head);
        Ok(())
    }

    /// Fetches the state of the namespace. Fails if the server itself signs this vault: its catalog
    /// then belongs to the server's own library, and a client cannot publish to it.
    async fn fetch_head(&self) -> Result<VaultHead, Failure> {
        let shown: VaultHead = self.client.get(&self.root).await?;
        if shown.kind != Some(Kind::SelfSigned) {
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
        // A publication that was interrupted may have reached the service, so the local copy only
        // serves if none is pending.
        if let Some(state) = publish::state::read_state(self.vault, base, &self.connection.slug)?
            && let Some(known) = &state.published
            && state.pending.is_none()
            && let Some(bytes) = state.catalog_bytes(self.vault)?
        {
            let head: VaultHead = self.client.get(&self.root).await?;
            // Downloading the catalog is unnecessary if the service still has the one published
            // here.
            let same = head.catalog_sha256() == Some(known.file_sha256);
            // The local copy may be damaged, so check it as well.
            if same && Digest::of(&bytes) == known.file_sha256 {
                return Ok(Some(bytes));
            }
        }
        let answer = self.client.read(&format!("{}/catalog", self.root)).await?;
        if answer.is_refusal(ServiceCode::CatalogNotPublished) {
            return Ok(None);
        }
        Ok(Some(answer.require_good()?.body))
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
        Ok(answer.require_good()?.body)
    }

    /// Fetches the catalogs of the newest releases that the service lists, at most
    /// [`MAX_SHOWN_RELEASES`]. The release `wanted` is included even if it is older. Catalogs and
    /// release numbers are unverified.
    pub async fn shown_catalogs(
        &self,
        wanted: Option<u64>,
    ) -> Result<Vec<(u64, Vec<u8>)>, Failure> {
        let mut listed: Vec<Release> = self.client.list(&format!("{}/releases", self.root)).await?;
        let older = listed.len().saturating_sub(MAX_SHOWN_RELEASES);
        let newest = listed.split_off(older);
        listed.retain(|one| Some(one.release) == wanted);
        listed.extend(newest);
        let mut catalogs = Vec::new();
        in_flight(
            listed,
            |one| {
                let client = self.client.clone();
                let Release {
                    release,
                    root_version,
                    ..
                } = one;
                // A release may be stored once more with newer keys, so ask for the one that was
                // listed.
                let path = format!(
                    "{}/releases/{release}/catalog?root_version={root_version}",
                    self.root
                );
                async move {
                    let answer = client.read(&path).await?;
                    // The service does not keep old catalogs forever.
                    if answer.is_refusal(ServiceCode::NotFound) {
                        return Ok(None);
                    }
                    Ok(Some((release, answer.require_good()?.body)))
                }
            },
            |fetched| {
                catalogs.extend(fetched);
                Ok(())
            },
        )
        .await?;
        // The requests end in any order, so sort by release.
        catalogs.sort_by_key(|(release, _)| *release);
        Ok(catalogs)
    }

    /// Fetches the bundles of these skills from the namespace, with the parts into which large
    /// bundles are split. Returns the objects by their SHA-256, unverified.
    pub async fn fetch_own(
        &self,
        entries: &[SkillEntry],
    ) -> Result<HashMap<Digest, Vec<u8>>, Failure> {
        let mut fetched = HashMap::new();
        let bar = self.context.ui.start_bar(entries.len() as u64, "Fetching");
        in_flight(
            entries.to_vec(),
            |entry| {
                let client = self.client.clone();
                let root = format!("{}/objects/bundles", self.root);
                async move {
                    let bytes = fetch_object(&client, &root, &entry.bundle_hash).await?;
                    let mut all = Vec::new();
                    // Only the bundle lists its parts, so they can be fetched only after it.
                    for (hash, _) in adopt::parts(&entry, &bytes)? {
                        all.push((hash, fetch_object(&client, &root, &hash).await?));
                    }
                    all.push((entry.bundle_hash, bytes));
                    Ok(all)
                }
            },
            |objects| {
                fetched.extend(objects);
                bar.advance(1);
                Ok(())
            },
        )
        .await?;
        Ok(fetched)
    }
}

async fn fetch_object(client: &OwnerClient, root: &str, hash: &Digest) -> Result<Vec<u8>, Failure> {
    Ok(client
        .read(&format!("{root}/{hash}"))
        .await?
        .require_good()?
        .body)
}
