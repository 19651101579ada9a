//! Whether sources have something else now than what is recorded of skills: by commit and tree, version or digest, never by time.
//! Comparing changes nothing.

use std::sync::Arc;

use vault_store::fetch::Upstream;
use vault_store::shelf::DriftState;

use crate::access::Fetcher;
use crate::error::{FetchError, Result};
use crate::kinds::round::{Comparison, Round};
use crate::kinds::{kind_of, source_of};
use crate::policy::SourcePolicy;

/// How many sources are asked at a time.
const CONCURRENT: usize = 4;

impl Fetcher {
    /// Compares skills with their sources, several at a time. `answer` gets each result as it comes, with the index of its question.
    pub async fn compare_all(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
        policy: &SourcePolicy,
        mut answer: impl FnMut(usize, DriftState),
    ) {
        let round = Arc::new(Round::default());
        let slots = Arc::new(tokio::sync::Semaphore::new(CONCURRENT));
        let mut asking = tokio::task::JoinSet::new();
        for (at, upstream) in upstreams.into_iter().enumerate() {
            let (fetcher, policy) = (Arc::clone(&self), policy.clone());
            let (round, slots) = (Arc::clone(&round), Arc::clone(&slots));
            asking.spawn(async move {
                let _slot = slots.acquire().await;
                let state = fetcher.compare_one(&round, &upstream, &policy).await;
                let failed = |error: FetchError| DriftState::Failed(error.to_string());
                (at, state.unwrap_or_else(failed))
            });
        }
        // A task that panicked has no answer, which leaves its skill unchecked.
        while let Some(done) = asking.join_next().await {
            if let Ok((at, state)) = done {
                answer(at, state);
            }
        }
    }

    async fn compare_one(
        &self,
        round: &Round,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> Result<DriftState> {
        let source = match source_of(self, upstream) {
            Ok(source) => source,
            Err(bad) => return Ok(DriftState::Unchecked(bad.to_string())),
        };
        let Some(recorded) = &upstream.revision else {
            let reason = "nothing is recorded of what it was".to_owned();
            return Ok(DriftState::Unchecked(reason));
        };
        policy.check(&source)?;
        let comparison = Comparison {
            access: self.under(policy),
            round,
            upstream,
            recorded,
        };
        kind_of(&source, None)?.compare(&comparison).await
    }
}
