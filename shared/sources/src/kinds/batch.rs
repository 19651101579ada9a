//! Compares recorded revisions of skills with the current ones, in batches. Several skills may come
//! from one source, so the comparisons of a batch share the results of requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use vault_shelf::DriftState;
use vault_shelf::fetch::Upstream;

use super::fetch_recorded;
use super::index::Site;
use crate::access::{Access, short_commit};
use crate::error::{Result, escape_untrusted};
use crate::git::{Checkout, History, Resolved};

/// The results of requests that the comparisons of one batch share, by repository or site.
#[derive(Debug, Default)]
pub(crate) struct ComparisonBatch {
    pub(crate) commits: Answers<Resolved>,
    pub(crate) trees: Answers<Arc<Checkout>>,
    pub(crate) histories: Answers<Arc<History>>,
    pub(crate) sites: Answers<Arc<Site>>,
}

/// Shared results by key. A second caller with the same key waits for the pending result.
type Answers<T> = Mutex<HashMap<String, Arc<OnceCell<Result<T>>>>>;

/// Returns the result for a key. Only the first caller runs `ask`; a failure is shared like a
/// success.
pub(crate) async fn share_result<T: Clone>(
    answers: &Answers<T>,
    question: String,
    ask: impl Future<Output = Result<T>>,
) -> Result<T> {
    let answer = {
        // Hold the lock only to find the cell, not during the request.
        let mut cells = answers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(cells.entry(question).or_default())
    };
    answer.get_or_init(|| ask).await.clone()
}

/// The comparison of one skill with its source.
pub(crate) struct Comparison<'a> {
    pub(crate) access: Access<'a>,
    pub(crate) batch: &'a ComparisonBatch,
    pub(crate) upstream: &'a Upstream,
    /// The recorded commit, version or digest.
    pub(crate) recorded: &'a str,
}

impl Comparison<'_> {
    /// Compares the recorded revision with the current one of the source.
    pub(crate) fn compare_revision(&self, now: &str) -> DriftState {
        if self.recorded == now {
            return DriftState::UpToDate;
        }
        // Show a version in full, but only the first 12 characters of a digest.
        let cut = |text: &str| match text.strip_prefix("sha256:") {
            Some(digest) => format!("sha256:{}", short_commit(digest)),
            None => escape_untrusted(text),
        };
        DriftState::Drifted {
            recorded: cut(self.recorded),
            upstream: cut(now),
            is_rewritten: false,
        }
    }

    /// Fetches the skill again and compares its revision.
    pub(crate) async fn by_fetching(&self) -> Result<DriftState> {
        let now = fetch_recorded(self.access, self.upstream).await?;
        let revision = now.upstream.revision.unwrap_or_default();
        Ok(self.compare_revision(&revision))
    }
}
