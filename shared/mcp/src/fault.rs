//! Why a call has no result: codes that programs match on, and whether a tool, the protocol or HTTP says so.
//!
//! What a person did wrong with a tool is a result with `isError`, which a model can read and mend. What the protocol itself refuses is a
//! JSON-RPC error. A missing right and a fault of ours are JSON-RPC errors whose HTTP status the transport sets by [`Denied`].

use std::fmt::Write as _;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, JsonObject, MetaObject};
use serde_json::{Value, json};
use vault_format::text::printable;
use vault_shelf::ShelfError;

use crate::session::{Denied, Session};
use crate::uri::META;

macro_rules! codes {
    ($($variant:ident $code:literal $meaning:literal;)*) => {
        /// The code of a fault.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            const ALL: &[(&'static str, &'static str)] = &[$(($code, $meaning),)*];

            /// Its stable text.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)*
                }
            }
        }
    };
}

codes! {
    InvalidArguments "invalid_arguments" "The arguments do not match the tool's input schema.";
    NotFound "not_found" "There is no such skill, file or folder, or the caller may not see it.";
    SourceUnsupported "source_unsupported" "This vault does not fetch skills from sources of this kind.";
    SourceUnreachable "source_unreachable" "The source did not answer, or answered something unexpected. The arguments are fine: try again later.";
    IdentifierMismatch "identifier_mismatch" "The given identifier is not that of the source.";
    NameTaken "name_taken" "The vault has a skill of this name from another source.";
    SubscriptionLapsed "subscription_lapsed" "The subscription of this vault has lapsed: lists and search still work, content is withheld.";
    ReleaseAwaited "release_awaited" "The current release does not count: a key that signed it was revoked, or an earlier version of vault published it. Content is withheld until the owner signs a new release.";
    ResourceTooLarge "resource_too_large" "The answer would be too large for every transport; the data has its digest and size.";
    DraftsFull "drafts_full" "Too many drafts are waiting for the owner.";
    DraftTooLarge "draft_too_large" "The change is larger than a draft may be.";
    ContentDamaged "content_damaged" "The stored copy of the skill was modified after signing.";
    CallerForbidden "caller_forbidden" "Only an owner may ask for someone else.";
    InsufficientScope "insufficient_scope" "The token, or its user, lacks the required scope.";
    LibraryElsewhere "library_elsewhere" "Another server holds the library of this vault; try again.";
    LibraryBusy "library_busy" "Another process changes the library; try again.";
    ContentUnavailable "content_unavailable" "The content of the skill is missing from the store: a fault of the service.";
    Unavailable "unavailable" "The store does not answer; try again.";
    Internal "internal" "The service made a mistake.";
}

/// The table of codes, for the documentation.
pub fn codes_page() -> String {
    let mut page = String::from("| code | meaning |\n|---|---|\n");
    for (code, meaning) in Code::ALL {
        let _ = writeln!(page, "| `{code}` | {meaning} |");
    }
    page
}

/// Why a call has no result.
#[derive(Debug)]
pub enum Fault {
    /// The caller can mend it.
    Caller {
        /// What it is.
        code: Code,
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
        code: Code,
        /// What went wrong, for the log alone.
        cause: String,
    },
    /// The protocol's own error.
    Protocol(ErrorData),
}

impl Fault {
    /// A fault of the caller. The message may quote text of others, a source's answer for example: an agent reads it
    /// with every hidden character as an escape.
    pub fn caller(code: Code, message: impl AsRef<str>) -> Self {
        Self::Caller {
            code,
            message: printable(message.as_ref()),
            data: JsonObject::new(),
        }
    }

    /// No such skill. The same words whether it is not there or not for this caller.
    pub fn no_skill() -> Self {
        Self::caller(Code::NotFound, "there is no such skill")
    }

    /// Arguments that the schema does not have.
    pub fn arguments(message: impl AsRef<str>) -> Self {
        Self::caller(Code::InvalidArguments, message)
    }

    /// Something else that the answer says.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Self::Caller { data, .. } = &mut self {
            data.insert(name.to_owned(), value.into());
        }
        self
    }

    /// The fault for what a shelf says. A shelf's own words go to owners alone: they may name what others must not know of.
    pub fn of_shelf(error: ShelfError, owner: bool) -> Self {
        let caller = |code: Code, text: String, plain: &str| {
            Self::caller(code, if owner { text } else { plain.to_owned() })
        };
        match error {
            ShelfError::NotFound(_) => Self::no_skill(),
            ShelfError::SubscriptionLapsed => Self::caller(
                Code::SubscriptionLapsed,
                "the subscription of this vault has lapsed",
            ),
            ShelfError::ReleaseAwaited => Self::caller(
                Code::ReleaseAwaited,
                "the current release is no longer valid; the owner has to sign a new one",
            ),
            ShelfError::SourceUnsupported(text) => caller(
                Code::SourceUnsupported,
                text,
                "this vault does not fetch skills from sources of this kind",
            ),
            ShelfError::Source(text) => {
                caller(Code::InvalidArguments, text, "this source has another form")
            }
            ShelfError::Unreachable(text) => caller(
                Code::SourceUnreachable,
                text,
                "the source did not answer; try again later",
            ),
            ShelfError::Identifier(text) => caller(
                Code::IdentifierMismatch,
                text,
                "the identifier is not the one of this source",
            ),
            ShelfError::NameTaken(text) => caller(
                Code::NameTaken,
                text,
                "the vault has a skill of this name from another source",
            ),
            ShelfError::DraftsFull(text) => {
                caller(Code::DraftsFull, text, "too many drafts wait for the owner")
            }
            ShelfError::TooLarge(text) => {
                caller(Code::DraftTooLarge, text, "the change is too large")
            }
            ShelfError::Damaged(..) => Self::caller(
                Code::ContentDamaged,
                "the stored copy of the skill was modified after signing",
            ),
            ShelfError::LibraryElsewhere => Self::Ours {
                code: Code::LibraryElsewhere,
                cause: error.to_string(),
            },
            ShelfError::Busy => Self::Ours {
                code: Code::LibraryBusy,
                cause: error.to_string(),
            },
            ShelfError::Unavailable(_) => Self::Ours {
                code: Code::ContentUnavailable,
                cause: error.to_string(),
            },
            ShelfError::Store(_) => Self::Ours {
                code: Code::Unavailable,
                cause: error.to_string(),
            },
            ShelfError::Failed(_) => Self::Ours {
                code: Code::Internal,
                cause: error.to_string(),
            },
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
                    Code::NotFound => ErrorData::resource_not_found(message, data),
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
                let code = Code::InsufficientScope.as_str();
                ErrorData::new(ErrorCode(-32000), message, Some(json!({ "code": code })))
            }
            Self::Ours { code, cause } => {
                tracing::error!(code = code.as_str(), cause, action, "a call failed");
                session.deny(Denied::Unavailable {
                    code: code.as_str(),
                    cause,
                });
                let message = Code::ALL
                    .iter()
                    .find(|(text, _)| *text == code.as_str())
                    .map_or("", |(_, meaning)| meaning);
                ErrorData::internal_error(message, Some(json!({ "code": code.as_str() })))
            }
        }
    }
}
