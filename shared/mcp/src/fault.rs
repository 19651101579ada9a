//! The reasons why a call has no result, with codes for programs, and the layer that reports each:
//! the tool, the protocol or HTTP.
//!
//! A mistake in the use of a tool is a result with `isError`, which a model can read and act on. A
//! request that the protocol rejects is a JSON-RPC error. A missing right and a fault of the
//! service are JSON-RPC errors whose HTTP status the transport sets by [`Denied`].

use std::error::Error;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, JsonObject, MetaObject};
use serde_json::{Value, json};
use vault_format::text::{error_chain, printable};
use vault_shelf::ShelfError;
use vault_store::StoreError;

pub use crate::code::ToolError;
use crate::session::{Denied, Session};
use crate::uri::META;

/// The reason why a call has no result. The variant decides which layer reports it.
#[derive(Debug)]
pub enum Fault {
    /// The caller made a mistake and can fix it.
    Caller {
        /// Code by which programs tell faults apart.
        code: ToolError,
        /// Message for the model or person that called.
        message: String,
        /// Further members of the answer.
        data: JsonObject,
    },
    /// The token lacks a scope.
    Scope {
        /// `read` or `write`.
        scope: &'static str,
        /// Whether the person could grant the scope on the consent page.
        consentable: bool,
    },
    /// The service failed, and the caller cannot fix that.
    Ours {
        /// Code by which programs tell faults apart.
        code: ToolError,
        /// The cause, for the log only.
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// The protocol rejects the request.
    Protocol(ErrorData),
}

impl Fault {
    /// Creates a fault of the caller. The message may quote foreign text, such as a source's
    /// answer, so hidden characters in it are escaped.
    pub fn by_caller(code: ToolError, message: impl AsRef<str>) -> Self {
        Self::Caller {
            code,
            message: printable(message.as_ref()),
            data: JsonObject::new(),
        }
    }

    /// Creates a fault of the service. Only the log gets `cause`.
    pub fn by_service(code: ToolError, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Ours {
            code,
            cause: Arc::from(cause.into()),
        }
    }

    /// Creates the fault for a missing skill. The message is the same for a skill that exists but
    /// that the caller may not see.
    pub fn no_skill() -> Self {
        Self::by_caller(ToolError::NotFound, "there is no such skill")
    }

    /// Creates the caller's fault with the code `invalid_arguments`. The message names the
    /// argument.
    pub fn bad_arguments(message: impl AsRef<str>) -> Self {
        Self::by_caller(ToolError::InvalidArguments, message)
    }

    /// Adds a member to the error's data. It has no effect on other faults than the caller's.
    #[must_use]
    pub fn with_member(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Self::Caller { data, .. } = &mut self {
            data.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Converts an error of a shelf (the store of skills). Only owners get the shelf's own message:
    /// it may name skills that other callers must not know of.
    pub fn from_shelf(error: ShelfError, owner: bool) -> Self {
        let caller = |code: ToolError, text: String, plain: &str| {
            Self::by_caller(code, if owner { text } else { plain.to_owned() })
        };
        match error {
            ShelfError::NotFound(_) => Self::no_skill(),
            ShelfError::SubscriptionLapsed => Self::by_caller(
                ToolError::SubscriptionLapsed,
                "the subscription of this vault has lapsed",
            ),
            ShelfError::ReleaseAwaited => Self::by_caller(
                ToolError::ReleaseAwaited,
                "the current release is no longer valid; the owner has to sign a new one",
            ),
            ShelfError::SourceUnsupported(text) => caller(
                ToolError::SourceUnsupported,
                text,
                "this vault does not fetch skills from sources of this kind",
            ),
            ShelfError::Source(text) => caller(
                ToolError::InvalidArguments,
                text,
                "this source has another form",
            ),
            ShelfError::Unreachable(text) => caller(
                ToolError::SourceUnreachable,
                text,
                "the source did not answer; try again later",
            ),
            ShelfError::Identifier(text) => caller(
                ToolError::IdentifierMismatch,
                text,
                "the identifier is not the one of this source",
            ),
            ShelfError::NameTaken(text) => caller(
                ToolError::NameTaken,
                text,
                "the vault has a skill of this name from another source",
            ),
            // Every caller gets this text: it states only how many drafts wait, of the author or of
            // all.
            ShelfError::DraftsFull(text) => Self::by_caller(ToolError::DraftsFull, text),
            // Every caller gets this text too: it states only numbers of the vault as a whole.
            ShelfError::StorageFull(text) => Self::by_caller(ToolError::QuotaExceeded, text),
            ShelfError::TooLarge(text) => {
                caller(ToolError::DraftTooLarge, text, "the change is too large")
            }
            ShelfError::Damaged(..) => Self::by_caller(
                ToolError::ContentDamaged,
                "the stored copy of the skill was modified after signing",
            ),
            // These faults are not the caller's. HTTP answers 503, and the client tries again.
            ShelfError::LibraryElsewhere => Self::by_service(ToolError::LibraryElsewhere, error),
            ShelfError::Busy => Self::by_service(ToolError::LibraryBusy, error),
            ShelfError::Unavailable(_) => Self::by_service(ToolError::ContentUnavailable, error),
            ShelfError::Store(
                StoreError::Unavailable(_) | StoreError::Conflict | StoreError::Busy,
            ) => Self::by_service(ToolError::Unavailable, error),
            // `NotReviewed` is about accepting drafts, which no tool does.
            ShelfError::Store(_) | ShelfError::Failed(_) | ShelfError::NotReviewed(_) => {
                Self::by_service(ToolError::Internal, error)
            }
        }
    }

    /// Converts a fault of the caller to a result with `isError`, and any other fault to an error
    /// of the protocol as [`Fault::into_error`] does.
    pub(crate) fn into_tool_result(
        self,
        session: &Session,
        action: &str,
    ) -> Result<CallToolResult, ErrorData> {
        match self {
            Self::Caller {
                code,
                message,
                mut data,
            } => {
                let mut result = CallToolResult::error(vec![ContentBlock::text(format!(
                    "{}: {message}",
                    code.as_str()
                ))]);
                // Put the members into `_meta`: the structured content has to match the tool's
                // output schema.
                data.insert("code".to_owned(), code.as_str().into());
                let mut meta = MetaObject::new();
                meta.0.insert(format!("{META}error"), Value::Object(data));
                result.meta = Some(meta);
                Ok(result)
            }
            other => Err(other.into_error(session, action)),
        }
    }

    /// Converts the fault to a JSON-RPC error. A missing scope and a fault of the service are also
    /// noted in `session`, so that HTTP answers with their status; `action` is the tool or method.
    pub(crate) fn into_error(self, session: &Session, action: &str) -> ErrorData {
        match self {
            Self::Protocol(error) => error,
            Self::Caller {
                code,
                message,
                mut data,
            } => {
                data.insert("code".to_owned(), code.as_str().into());
                let data = Some(Value::Object(data));
                match code {
                    ToolError::NotFound => ErrorData::resource_not_found(message, data),
                    _ => ErrorData::invalid_params(message, data),
                }
            }
            Self::Scope { scope, consentable } => {
                // The transport answers 403, with a challenge if the person could consent.
                session.deny(Denied::Scope {
                    scope,
                    action: action.to_owned(),
                    consentable,
                });
                let message = if consentable {
                    format!("this needs the scope `{scope}`, which the access token lacks")
                } else {
                    format!("this needs the scope `{scope}`, which an owner has not granted")
                };
                let code = ToolError::InsufficientScope.as_str();
                ErrorData::new(ErrorCode(-32000), message, Some(json!({ "code": code })))
            }
            Self::Ours { code, cause } => {
                // The cause goes to the log only: it may contain addresses and names of the
                // operator's systems.
                let (word, chain) = (code.as_str(), error_chain(&*cause));
                tracing::error!(code = word, cause = chain, action, "a call failed");
                session.deny(Denied::Unavailable { code, cause });
                ErrorData::internal_error(code.meaning(), Some(json!({ "code": word })))
            }
        }
    }
}
