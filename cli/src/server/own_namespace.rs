//! The namespace `default` of a server, which contains the releases of the server's own library.
//! The server publishes to it unattended: whatever needs a person's decision fails.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
};

use bytes::Bytes;
use vault_format::{
    catalog::{ProfileEntry, SkillEntry},
    hash::Digest,
    name::SkillName,
};
use vault_library::{
    Vault,
    publish::{
        self as releases, OnDivergence, Owner, PlanError, PlanRequest, PlannedObject,
        PublishOutcome, ReleasePlan, ReleaseRejection, TakeOver, Uploaded,
    },
    shelf,
};
use vault_policy::profile::Profile;
use vault_service::{
    App,
    error::{ErrorCode, Refusal},
    model::{
        audit::Actor,
        namespace::{Namespace, Pinned},
    },
    publish::{self, Precondition},
    uploads::{self, Purpose},
};
use vault_store::{
    StoreError,
    objects::{Class, MAX_ASKED, ObjectKey},
};

/// Maximum size of the objects stored in one transaction, in bytes.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The reason why the server's library was not published.
#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error(transparent)]
    Plan(Box<PlanError>),
    #[error(transparent)]
    Vault(#[from] vault_library::VaultError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0} skills are signed by a key that was revoked: sign them again first")]
    SignAgain(usize),
    #[error("a release needs the signatures of {0} publishers, and a server signs alone")]
    SignaturesNeeded(usize),
    #[error("release {0} is another publisher's, and only a person takes it over")]
    TakeOver(u64),
    #[error("the release was refused: {0:?}")]
    Refused(vault_service::error::ErrorCode),
    #[error("a task ended unexpectedly: {0}")]
    Broken(#[from] tokio::task::JoinError),
}

impl From<PlanError> for PublishError {
    fn from(error: PlanError) -> Self {
        Self::Plan(Box::new(error))
    }
}

impl From<Refusal> for PublishError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.code())
    }
}

/// The namespace in the server's database, together with the library that is published to it.
pub(super) struct OwnNamespace {
    pub(super) app: App,
    pub(super) vault: Vault,
    pub(super) namespace: Namespace,
}

impl OwnNamespace {
    /// Publishes the library as the next release. Returns `None` if nothing changed.
    pub(super) async fn publish_library(&self) -> Result<Option<Box<ReleasePlan>>, PublishError> {
        // A new and empty vault has nothing to publish yet.
        if self.namespace.current.is_none() && shelf::list_installed(&self.vault)?.skills.is_empty()
        {
            return Ok(None);
        }
        let base = self.app.config.public_url.base();
        let request = PlanRequest {
            // The server is the only publisher of this namespace. If its database was restored or
            // recreated, the library takes precedence.
            on_divergence: OnDivergence::Replace,
            ..PlanRequest::new(base, &self.namespace.slug, None)
        };
        match releases::publish_library(&self.vault, &request, self, &mut Unattended).await? {
            PublishOutcome::Unchanged(_) => Ok(None),
            PublishOutcome::Release(plan, _) => Ok(Some(plan)),
            PublishOutcome::Proposed(_, never) => match never {},
        }
    }

    async fn store_objects(&self, objects: Vec<(ObjectKey, Bytes)>) -> Result<(), PublishError> {
        uploads::put_objects(&self.app, &self.namespace, Purpose::Upload, objects)
            .await
            .map_err(Refusal::from)?;
        Ok(())
    }

    fn object_key(&self, object: &PlannedObject) -> ObjectKey {
        self.namespace.object_key(object.class, object.sha256)
    }
}

impl releases::Namespace for OwnNamespace {
    type Error = PublishError;
    type Proposal = Infallible;

    async fn current_catalog_bytes(&self) -> Result<Option<Vec<u8>>, PublishError> {
        let Some(current) = &self.namespace.current else {
            return Ok(None);
        };
        let key = self.namespace.object_key(Class::Catalogs, current.sha256);
        Ok(self.app.objects.read_object(&key).await?.map(Vec::from))
    }

    async fn may_resubmit_signed(&self) -> Result<bool, PublishError> {
        // A server's release needs no other signature, so no other publisher can have withdrawn it.
        Ok(true)
    }

    async fn pin_is_reset(&self) -> Result<bool, PublishError> {
        Ok(self.namespace.pin == Pinned::Nothing)
    }

    async fn upload_objects(
        &self,
        plan: &ReleasePlan,
        _all: bool,
    ) -> Result<Uploaded, PublishError> {
        // The store is this server's own. Objects of the current release are checked too, and
        // stored again if they were lost.
        let objects = &plan.objects;
        let keys = objects
            .iter()
            .map(|object| (self.object_key(object), object.size));
        let mut missing = HashSet::new();
        for some in keys.collect::<Vec<_>>().chunks(MAX_ASKED) {
            missing.extend(uploads::list_missing(&self.app, self.namespace.id, some).await?);
        }
        let mut uploaded = (0, 0);
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        for object in objects {
            let key = self.object_key(object);
            if !missing.contains(&key) {
                continue;
            }
            uploaded = (uploaded.0 + 1, uploaded.1 + object.size);
            let bytes = Bytes::from(plan.read_object(&self.vault, object)?);
            batch_bytes += bytes.len();
            batch.push((key, bytes));
            if batch_bytes >= BATCH_BYTES || batch.len() >= 100 {
                self.store_objects(std::mem::take(&mut batch)).await?;
                batch_bytes = 0;
            }
        }
        if !batch.is_empty() {
            self.store_objects(batch).await?;
        }
        Ok(uploaded)
    }

    async fn put_release(
        &self,
        plan: &ReleasePlan,
    ) -> Result<Option<Infallible>, ReleaseRejection<PublishError>> {
        let follows = plan.follows;
        let follows = follows.map_or(Precondition::NothingYet, Precondition::Current);
        let (catalog, actor) = (Bytes::from(plan.catalog.clone()), Actor::server());
        let slug = &self.namespace.slug;
        match publish::publish_release(&self.app, slug, catalog, follows, &actor).await {
            Ok(_) => Ok(None),
            // The driver then uploads all objects again and repeats the step.
            Err(refusal) if refusal.code() == ErrorCode::ObjectsMissing => {
                Err(ReleaseRejection::ObjectsMissing(refusal.into()))
            }
            Err(refusal) => Err(ReleaseRejection::Other(refusal.into())),
        }
    }
}

/// Answers the questions of a sync while a server publishes by itself: every question that needs a
/// person fails.
struct Unattended;

impl Owner<PublishError> for Unattended {
    /// Fails: the key that signed these skills was revoked, and only a person may decide to sign
    /// them again.
    fn sign_again(&mut self, skills: &[SkillName]) -> Result<(), PublishError> {
        Err(PublishError::SignAgain(skills.len()))
    }

    async fn take_over(&mut self, changes: &TakeOver) -> Result<(), PublishError> {
        Err(PublishError::TakeOver(changes.release))
    }

    async fn fetch_current_profiles(
        &mut self,
        _: &[ProfileEntry],
    ) -> Result<Vec<Profile>, PublishError> {
        // The library replaces every release, so no plan compares with the profiles of one.
        Ok(Vec::new())
    }

    async fn fetch_current_variants(
        &mut self,
        _: &[SkillEntry],
    ) -> Result<HashMap<Digest, Vec<u8>>, PublishError> {
        Ok(HashMap::new())
    }

    fn confirm(&mut self, plan: &ReleasePlan) -> Result<(), PublishError> {
        if plan.needed > 1 {
            return Err(PublishError::SignaturesNeeded(plan.needed));
        }
        Ok(())
    }
}
