//! Compares recorded skills with their sources to detect upstream changes. The comparison uses the
//! commit and tree, the version or the digest, never timestamps. It changes nothing.

use std::sync::Arc;

use vault_shelf::DriftState;
use vault_shelf::fetch::Upstream;

use crate::access::Fetcher;
use crate::error::{FetchError, Result};
use crate::kinds::batch::{Comparison, ComparisonBatch};
use crate::kinds::{kind_of, source_of};
use crate::policy::SourcePolicy;

/// Number of skills that are compared in parallel.
const CONCURRENT: usize = 4;

impl Fetcher {
    /// Compares skills with their sources, several in parallel. Calls `answer` with each result as
    /// it arrives and with the index of its entry in `upstreams`.
    pub async fn compare_all(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
        policy: &SourcePolicy,
        mut answer: impl FnMut(usize, DriftState),
    ) {
        let batch = Arc::new(ComparisonBatch::default());
        let slots = Arc::new(tokio::sync::Semaphore::new(CONCURRENT));
        let mut tasks = tokio::task::JoinSet::new();
        for (index, upstream) in upstreams.into_iter().enumerate() {
            let (fetcher, policy) = (Arc::clone(&self), policy.clone());
            let (batch, slots) = (Arc::clone(&batch), Arc::clone(&slots));
            tasks.spawn(async move {
                let _slot = slots.acquire().await;
                let state = fetcher.compare_one(&batch, &upstream, &policy).await;
                let failed = |error: FetchError| match error {
                    // The source was read and lacks the skill, so a retry does not help. Everything
                    // else that is not found may be there again later.
                    FetchError::NoSkill(reason)
                    | FetchError::NoneOffered {
                        message: reason, ..
                    } => DriftState::Removed(reason),
                    error @ FetchError::Policy { .. } => DriftState::Refused(error.to_string()),
                    error => DriftState::Failed(error.to_string()),
                };
                (index, state.unwrap_or_else(failed))
            });
        }
        // A task that panicked yields no result, and its skill stays unchecked.
        while let Some(done) = tasks.join_next().await {
            if let Ok((at, state)) = done {
                answer(at, state);
            }
        }
    }

    async fn compare_one(
        &self,
        batch: &ComparisonBatch,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> Result<DriftState> {
        // A source that cannot be fetched again is not a failure: there is nothing to compare with.
        let source = match source_of(self, upstream) {
            Ok(source) => source,
            Err(bad) => return Ok(DriftState::Unchecked(bad.to_string())),
        };
        // Without a recorded revision, every state would look like a change.
        let Some(recorded) = &upstream.revision else {
            let reason = "its earlier state is not recorded".to_owned();
            return Ok(DriftState::Unchecked(reason));
        };
        // The policy may have become stricter since the skill was added.
        policy.check_source(&source)?;
        let comparison = Comparison {
            access: self.with_policy(policy).to_source(&source),
            batch,
            upstream,
            recorded,
        };
        kind_of(&source)?.compare_state(&comparison).await
    }
}
