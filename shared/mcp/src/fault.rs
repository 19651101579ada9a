//! Why a call has no result: codes that programs match on, and whether a tool, the protocol or HTTP
//! says so.
//!
//! What a person did wrong with a tool is a result with `isError`, which a model can read and act
//! on. What the protocol itself refuses is a JSON-RPC error. A missing right and a fault of ours
//! are JSON-RPC errors whose HTTP status the transport sets by [`Denied`].

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

/// Why a call has no result.
#[derive(Debug)]
pub enum Fault {
    /// The caller can fix it.
    Caller {
        /// What it is.
        code: ToolError,
        /// In words.
        message: String,
        /// What only this case knows.
        data: JsonObject,
    },
    /// The token lacks a scope.
    Scope {
        /// `read` or `write`.
        scope: &'static str,
        /// Whether the person could consent to it.
        consentable: bool,
    },
    /// Not the caller's fault.
    Ours {
        /// What it is.
        code: ToolError,
        /// What went wrong, for the log alone.
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// The protocol's own error.
    Protocol(ErrorData),
}

impl Fault {
    /// A fault of the caller. The message may quote text of others, a source's answer for example:
    /// an agent reads it with every hidden character as an escape.
    pub fn caller(code: ToolError, message: impl AsRef<str>) -> Self {
        Self::Caller {
            code,
            message: printable(message.as_ref()),
            data: JsonObject::new(),
        }
    }

    /// A fault of ours.
    pub fn ours(code: ToolError, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Ours {
            code,
            cause: Arc::from(cause.into()),
        }
    }

    /// No such skill. The same words whether it is not there or not for this caller.
    pub fn no_skill() -> Self {
        Self::caller(ToolError::NotFound, "there is no such skill")
    }

    /// Arguments that the schema does not have.
    pub fn arguments(message: impl AsRef<str>) -> Self {
        Self::caller(ToolError::InvalidArguments, message)
    }

    /// Something else that the answer says.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Self::Caller { data, .. } = &mut self {
            data.insert(name.to_owned(), value.into());
        }
        self
    }

    /// The fault for what a shelf says. A shelf's own words go to owners alone: they may name what
    /// others must not know of.
    pub fn of_shelf(error: ShelfError, owner: bool) -> Self {
        let caller = |code: ToolError, text: String, plain: &str| {
            Self::caller(code, if owner { text } else { plain.to_owned() })
        };
        match error {
            ShelfError::NotFound(_) => Self::no_skill(),
            ShelfError::SubscriptionLapsed => Self::caller(
                ToolError::SubscriptionLapsed,
                "the subscription of this vault has lapsed",
            ),
            ShelfError::ReleaseAwaited => Self::caller(
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
            // It says how many wait and of whom: of the author's own, or of all.
            ShelfError::DraftsFull(text) => Self::caller(ToolError::DraftsFull, text),
            ShelfError::TooLarge(text) => {
                caller(ToolError::DraftTooLarge, text, "the change is too large")
            }
            ShelfError::Damaged(..) => Self::caller(
                ToolError::ContentDamaged,
                "the stored copy of the skill was modified after signing",
            ),
            ShelfError::LibraryElsewhere => Self::ours(ToolError::LibraryElsewhere, error),
            ShelfError::Busy => Self::ours(ToolError::LibraryBusy, error),
            ShelfError::Unavailable(_) => Self::ours(ToolError::ContentUnavailable, error),
            ShelfError::Store(StoreError::Unavailable(_) | StoreError::Conflict) => {
                Self::ours(ToolError::Unavailable, error)
            }
            // Only a draft is reviewed, and no tool accepts one.
            ShelfError::Store(_) | ShelfError::Failed(_) | ShelfError::NotReviewed(_) => {
                Self::ours(ToolError::Internal, error)
            }
        }
    }

    /// What a tool answers: a result with `isError`, or an error of the protocol.
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
                data.insert("code".to_owned(), code.as_str().into());
                let mut meta = MetaObject::new();
                meta.0.insert(format!("{META}error"), Value::Object(data));
                result.meta = Some(meta);
                Ok(result)
            }
            other => Err(other.into_error(session, action)),
        }
    }

    /// What a method of resources answers.
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
                let (word, chain) = (code.as_str(), error_chain(&*cause));
                tracing::error!(code = word, cause = chain, action, "a call failed");
                session.deny(Denied::Unavailable { code, cause });
                ErrorData::internal_error(code.meaning(), Some(json!({ "code": word })))
            }
        }
    }
}
