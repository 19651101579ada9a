//! Converts errors of shelves and tools to the refusals of this service's HTTP routes.

use vault_mcp::{Fault, ToolError};
use vault_shelf::ShelfError;

use crate::error::{ErrorCode, Refusal};

/// Converts the error of a shelf. The text may name hidden skills, so only owners may get it.
pub(crate) fn shelf_refusal(error: ShelfError) -> Refusal {
    match error {
        // A tool tells its agent that the copy is damaged. For a route this is a fault of the
        // service, and only the log has the cause.
        ShelfError::Damaged(..) => Refusal::new(ErrorCode::Internal).cause(error),
        ShelfError::Store(error) => error.into(),
        ShelfError::NotReviewed(text) => {
            Refusal::new(ErrorCode::DraftChanged).detail(to_sentence(&text))
        }
        // The source is no parameter of this request (as it would be in a tool call), so the error
        // must not be about a parameter.
        ShelfError::Source(text) => {
            Refusal::new(ErrorCode::SourceRefused).detail(to_sentence(&text))
        }
        error => tool_refusal(Fault::from_shelf(error, true)),
    }
}

pub(crate) fn tool_refusal(fault: Fault) -> Refusal {
    match fault {
        Fault::Caller { code, message, .. } => {
            let code = match code {
                ToolError::NotFound => ErrorCode::SkillNotFound,
                ToolError::NameTaken => ErrorCode::NameTaken,
                ToolError::SourceUnsupported
                | ToolError::SourceUnreachable
                | ToolError::IdentifierMismatch => ErrorCode::SourceRefused,
                ToolError::SubscriptionLapsed => ErrorCode::SubscriptionLapsed,
                ToolError::DraftsFull => ErrorCode::DraftQueueFull,
                ToolError::QuotaExceeded => ErrorCode::QuotaExceeded,
                ToolError::DraftTooLarge => ErrorCode::DraftTooLarge,
                ToolError::ReleaseAwaited => ErrorCode::ReleaseAwaited,
                _ => ErrorCode::ParameterInvalid,
            };
            Refusal::new(code).detail(to_sentence(&message))
        }
        Fault::Scope { .. } => ErrorCode::InsufficientScope.into(),
        Fault::Ours { code, cause } => {
            let code = match code {
                ToolError::LibraryElsewhere => ErrorCode::LibraryElsewhere,
                ToolError::LibraryBusy => ErrorCode::LibraryBusy,
                ToolError::Unavailable | ToolError::ContentUnavailable => ErrorCode::Unavailable,
                _ => ErrorCode::Internal,
            };
            Refusal::new(code).caused_by(cause)
        }
        Fault::Protocol(error) => Refusal::new(ErrorCode::Internal).cause(error),
    }
}

/// Turns a message into a sentence: a capital letter at the start, a full stop at the end.
pub(crate) fn to_sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    let text: String = first.into_iter().chain(letters).collect();
    format!("{}.", text.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use vault_store::StoreError;

    use super::*;

    #[test]
    fn failures_of_a_shelf_keep_their_cause_and_are_not_the_caller_s() {
        let skill = || "pdf-forms".parse().unwrap();
        for (error, code) in [
            (
                ShelfError::Damaged(skill(), "bad hash".into()),
                ErrorCode::Internal,
            ),
            (ShelfError::Failed("/var/lib".into()), ErrorCode::Internal),
            (ShelfError::Unavailable(skill()), ErrorCode::Unavailable),
            (
                ShelfError::Store(StoreError::Corrupt("bad hash".into())),
                ErrorCode::Internal,
            ),
            (
                ShelfError::Store(StoreError::unavailable("down")),
                ErrorCode::Unavailable,
            ),
        ] {
            let refusal = shelf_refusal(error);
            assert_eq!(refusal.code(), code, "{refusal:?}");
            assert!(refusal.source().is_some(), "{refusal:?}");
        }
    }

    #[test]
    fn words_of_a_shelf_become_a_sentence() {
        let refusal = shelf_refusal(ShelfError::Source("no skill in this source".into()));
        assert_eq!(refusal.code(), ErrorCode::SourceRefused);
        assert_eq!(refusal.to_string(), "No skill in this source.");
    }
}
