//! Errors of the stores, by the party at fault.

use std::borrow::Cow;

/// The error of a store. "Not found" and "condition does not hold" are answers, not errors.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store does not answer, or cannot tell whether it carried out the operation. Repeating
    /// may help.
    #[error("the store does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Too many requests of the same namespace wait already. Nothing was changed, and requests of
    /// other namespaces are served. The caller should retry after a pause.
    #[error("too many requests of this namespace are waiting")]
    Busy,
    /// Other writers interfered until the store gave up. Nothing was changed. Repeating may help.
    #[error("the write conflicted with other writers too often")]
    Conflict,
    /// The caller broke a rule of the port: a limit, or bytes that do not match their hash. Nothing
    /// was changed, and repeating does not help.
    #[error("rejected by the store: {0}")]
    Invalid(Cow<'static, str>),
    /// The stored data differs from the data that was written.
    #[error("the store holds damaged data: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Creates the error for a store that does not answer because of `source`.
    pub fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }

    /// Creates the error for a caller that broke the rule named by `reason`.
    pub fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(reason.into())
    }
}
