//! The codes of faults (reasons why a call has no result), which programs compare.

use std::fmt::Write as _;

// One list defines the enum, its texts and the page of codes, so that none of them lacks a code.
macro_rules! codes {
    ($($variant:ident $code:literal $meaning:literal;)*) => {
        /// The code of a fault, as programs compare it.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum ToolError {
            $(#[doc = $meaning] $variant,)*
        }

        impl ToolError {
            /// All codes with their meanings.
            pub(crate) const ALL: &[(&'static str, &'static str)] = &[$(($code, $meaning),)*];

            /// The code as text, which never changes.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// The meaning of the code, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
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
    DraftsFull "drafts_full" "Too many drafts are waiting already.";
    QuotaExceeded "quota_exceeded" "The quota of the vault has no room for this.";
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
    for (code, meaning) in ToolError::ALL {
        let _ = writeln!(page, "| `{code}` | {meaning} |");
    }
    page
}
