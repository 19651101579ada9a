//! Results of forms, as notices that the next page shows once. An address contains only a word that
//! selects the notice, never its text.

use crate::error::ErrorCode;
use crate::web::form::Form;

macro_rules! sentences {
    ($(#[$doc:meta])* $list:ident { $($name:ident $word:literal $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(super) enum $list {
            $(#[doc = $text] $name,)*
        }

        impl $list {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the word that selects this sentence in addresses.
            pub(super) const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            fn find(word: &str) -> Option<Self> {
                let mut all = Self::ALL.iter();
                all.find(|known| known.word() == word).copied()
            }
        }
    };
}

sentences! {
    /// Result of a form. An address contains only its word, so that no link can put its own
    /// sentence on a page.
    Outcome {
        MachineAdmitted "machine-admitted" "The machine is admitted. It can now download the skills of this vault.";
        MachineDenied "machine-denied" "The machine is denied. It cannot read anything.";
        MachinesDenied "machines-denied" "The machines are denied. They cannot read anything from this vault.";
        MachineRevoked "machine-revoked" "The machine’s access is revoked. It keeps the skills that it has already downloaded.";
        MachineForgotten "machine-forgotten" "The machine is forgotten. It may ask for access again.";
        CodeEnded "code-ended" "The enrolment code no longer works. Machines that it admitted stay admitted.";
        CodesRequired "codes-required" "From now on a machine needs an enrolment code to ask for access.";
        CodesOptional "codes-optional" "From now on any machine may ask for access.";
        DraftDeclined "draft-declined" "The draft is declined. Its author reads your reason.";
        DraftAccepted "draft-accepted" "The draft is accepted. The service has signed and published it.";
        AppEnded "app-ended" "The access of the app has ended, for everybody in this vault.";
        MadeEnded "made-ended" "What was ticked has ended.";
        PersonInvited "person-invited" "The person is invited. They accept on their account page, within 7 days.";
        InvitationWithdrawn "invitation-withdrawn" "The invitation is withdrawn.";
        RoleChanged "role-changed" "The role is changed.";
        ScopesChanged "scopes-changed" "The rights are changed.";
        ProfileChanged "profile-changed" "The profile is changed.";
        PersonRemoved "person-removed" "The person no longer has access to this vault.";
        MembershipEnded "membership-ended" "Your membership has ended. You no longer have access to that vault.";
        PinReset "pin-reset" "The pin is reset. The next release decides which vault this is.";
        VaultDeleted "vault-deleted" "The vault is deleted. No one can open it any more.";
    }
}

sentences! {
    /// Reason why a form of an outdated page has done nothing.
    Unchanged {
        NoneWaits "none-waits" "Nothing was changed: none of these machines waits any more. Look at the list again.";
        AppEnded "app-already-ended" "The access of this app has already ended.";
        CodeEnded "code-already-ended" "This code has already ended.";
        Declined "declined" "Nothing was changed: you declined.";
        CodeMade "code-already-made" "Nothing was changed: this form has already made a code, which is shown only once. If you did not copy it, end it in the list and make another one.";
    }
}

/// Notice at the top of a page, about the form that was sent before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Notice {
    /// A form was carried out, with this result.
    Done(&'static str),
    /// A form was refused or changed nothing, for this reason.
    Refused(&'static str),
}

/// Query parameter with the word of an [`Outcome`].
pub(super) const DONE: &str = "done";
/// Query parameter with the word of an [`Unchanged`], or an error code.
pub(super) const REFUSED: &str = "refused";

impl Notice {
    /// Returns the notice that a query selects; `None` for a word that is not in the lists.
    pub(super) fn of(query: &Form) -> Option<Self> {
        if let Some(word) = query.value(REFUSED) {
            if let Some(why) = Unchanged::find(word) {
                return Some(Self::Refused(why.text()));
            }
            let code = ErrorCode::ALL.iter().find(|code| code.row().code == word)?;
            return Some(Self::Refused(refusal_text(*code)));
        }
        let outcome = Outcome::find(query.value(DONE)?)?;
        Some(Self::Done(outcome.text()))
    }
}

/// Returns the sentence for a refused form, with what to do next.
const fn refusal_text(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InsufficientScope => {
            "Nothing was changed: you do not have the right to write in this vault. Ask an owner for it."
        }
        ErrorCode::OwnerRequired => {
            "Nothing was changed: only an owner with the right to write may do this. Ask an owner."
        }
        ErrorCode::PublisherRequired => {
            "Nothing was changed: only an owner or a publisher may do this. Ask an owner."
        }
        ErrorCode::ConfirmationNeeded => {
            "Nothing was changed: the confirmation has ended. Submit the form again."
        }
        ErrorCode::RateLimited => {
            "Nothing was changed: too many confirmations wait. Wait ten minutes, then submit the form again."
        }
        ErrorCode::DeviceState => {
            "Nothing was changed: somebody decided about this machine in the meantime. Its present status is below."
        }
        ErrorCode::SubscriptionLapsed => {
            "Nothing was changed: the subscription of this vault has lapsed. Renew it first."
        }
        ErrorCode::ConfirmationMismatch => {
            "Nothing was changed: what you typed is not the name of this vault."
        }
        ErrorCode::HostnameInvalid => {
            "Nothing was changed: a name has 1 to 64 printable characters."
        }
        ErrorCode::ParameterInvalid => {
            "Nothing was changed: a field has a value that is not accepted."
        }
        ErrorCode::EmailInvalid => {
            "Nothing was changed: this is not an e-mail address. Check it for typing mistakes."
        }
        ErrorCode::UserExists => {
            "Nothing was changed: a person with this e-mail address is already a member. Find them in the list."
        }
        ErrorCode::LastOwner => {
            "Nothing was changed: a vault needs an owner with the right to write. Make another person an owner first."
        }
        ErrorCode::ProfileInvalid => {
            "Nothing was changed: the name of a profile has 1 to 64 printable characters."
        }
        ErrorCode::NamespaceSelfSigned => {
            "Nothing was changed: the service signs this vault itself, so it can only be removed by the operator of the service."
        }
        _ => draft_refusal_text(code),
    }
}

/// Returns the sentence for a refused form about a draft, or about a code that no form meets.
const fn draft_refusal_text(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::DraftState => {
            "Nothing was changed: the draft has ended, or is being accepted. Its present state is below."
        }
        ErrorCode::DraftBase => {
            "Nothing was changed: the skill has changed since the draft was made. Decline the draft, and ask its author to make it anew."
        }
        ErrorCode::SkillBlocked => {
            "Nothing was changed: the security check does not let this skill pass. Its findings are below."
        }
        ErrorCode::SkillUnchanged => {
            "Nothing was changed: the vault already has the skill with exactly these files. Decline the draft."
        }
        ErrorCode::SkillNotFound => {
            "Nothing was changed: the vault no longer has this skill. Decline the draft."
        }
        ErrorCode::NameTaken => {
            "Nothing was changed: the vault has a skill of this name from another source. Decline the draft, or remove that skill first."
        }
        ErrorCode::SourceRefused => {
            "Nothing was changed: the skill cannot be fetched from its source. Check the source, then try again."
        }
        ErrorCode::DraftTooLarge => {
            "Nothing was changed: the skill is larger than a skill may be. Decline the draft."
        }
        ErrorCode::DraftQueueFull => {
            "Nothing was changed: too many drafts are waiting. Decide about some of them first."
        }
        ErrorCode::ReleaseAwaited => {
            "Nothing was changed: the current release is no longer valid, because a key that signed it was revoked. Publish a new release first."
        }
        // Forms of the console are not refused with other codes, but a link may contain any.
        _ => {
            "Nothing was changed: the service has refused the form. Reload the page and try again."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_only_sentences_of_the_lists() {
        for (query, notice) in [
            ("", None),
            ("done=", None),
            ("done=hello", None),
            ("refused=hello", None),
            (
                "done=codes-optional",
                Some(Notice::Done(Outcome::CodesOptional.text())),
            ),
            (
                "refused=last_owner",
                Some(Notice::Refused(refusal_text(ErrorCode::LastOwner))),
            ),
            (
                "refused=code-already-ended",
                Some(Notice::Refused("This code has already ended.")),
            ),
        ] {
            assert_eq!(Notice::of(&Form::parse(query)), notice, "{query}");
        }
    }

    /// The codes with which a form of the console can be refused.
    const CODES_OF_FORMS: [ErrorCode; 25] = [
        ErrorCode::InsufficientScope,
        ErrorCode::OwnerRequired,
        ErrorCode::PublisherRequired,
        ErrorCode::ConfirmationNeeded,
        ErrorCode::RateLimited,
        ErrorCode::DeviceState,
        ErrorCode::SubscriptionLapsed,
        ErrorCode::ConfirmationMismatch,
        ErrorCode::HostnameInvalid,
        ErrorCode::ParameterInvalid,
        ErrorCode::EmailInvalid,
        ErrorCode::UserExists,
        ErrorCode::LastOwner,
        ErrorCode::ProfileInvalid,
        ErrorCode::NamespaceSelfSigned,
        ErrorCode::DraftState,
        ErrorCode::DraftBase,
        ErrorCode::SkillBlocked,
        ErrorCode::SkillUnchanged,
        ErrorCode::SkillNotFound,
        ErrorCode::NameTaken,
        ErrorCode::SourceRefused,
        ErrorCode::DraftTooLarge,
        ErrorCode::DraftQueueFull,
        ErrorCode::ReleaseAwaited,
    ];

    #[test]
    fn each_refusal_of_a_form_says_what_to_do() {
        let any = refusal_text(ErrorCode::Internal);
        let mut texts = std::collections::BTreeSet::new();
        for code in CODES_OF_FORMS {
            let text = refusal_text(code);
            assert!(text.starts_with("Nothing was changed: "), "{code:?}");
            assert!(
                text != any && texts.insert(text),
                "{code:?} has no sentence of its own"
            );
        }
    }

    #[test]
    fn no_two_outcomes_have_one_word() {
        let words: std::collections::BTreeSet<_> =
            Outcome::ALL.iter().map(|outcome| outcome.word()).collect();
        assert_eq!(words.len(), Outcome::ALL.len());
        let is_code = |why: &&Unchanged| {
            ErrorCode::ALL
                .iter()
                .any(|code| code.row().code == why.word())
        };
        assert_eq!(Unchanged::ALL.iter().find(is_code), None);
    }
}
