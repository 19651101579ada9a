//! What can go wrong between a caller and a store, said by whose fault it was.

use std::borrow::Cow;

/// Why a store gave no answer. "Not found" and "condition does not hold" are answers, not errors.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store does not answer, or could not say whether it did what was asked. Repeating may
    /// help.
    #[error("the store does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Other writers kept interfering until the store gave up; nothing was changed. Repeating may
    /// help.
    #[error("the write conflicted with other writers too often")]
    Conflict,
    /// The caller asked for something no store may do (a limit passed, bytes that are not their
    /// hash). Nothing was changed; repeating does not help.
    #[error("rejected by the store: {0}")]
    Invalid(Cow<'static, str>),
    /// What the store holds is not what was once written there.
    #[error("the store holds damaged data: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// The store does not answer, because of `source`.
    pub fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }

    /// The caller broke the rule named by `reason`.
    pub fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(reason.into())
    }
}
