//! What a form has done, as the page that it leads back to says it once.

use crate::error::Code;
use crate::oauth::form::Form;

macro_rules! outcomes {
    ($($name:ident $word:literal $text:literal;)*) => {
        /// What a form has done. Only its word stands in an address, so that no link can put a sentence of
        /// its own on a page.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(super) enum Outcome {
            $(#[doc = $text] $name,)*
        }

        impl Outcome {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its word in addresses.
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
        }
    };
}

outcomes! {
    MachineAdmitted "machine-admitted" "The machine is admitted. It can now download the skills of this vault.";
    MachineDenied "machine-denied" "The machine is denied. It cannot read anything.";
    MachinesDenied "machines-denied" "All waiting machines are denied.";
    MachineRevoked "machine-revoked" "The machine’s access is revoked. It keeps the skills that it has already downloaded.";
    MachineForgotten "machine-forgotten" "The machine is forgotten. It may ask for access again.";
    CodeEnded "code-ended" "The enrolment code no longer works. Machines that it admitted stay admitted.";
    CodesRequired "codes-required" "From now on a machine needs an enrolment code to ask for access.";
    CodesOptional "codes-optional" "From now on any machine may ask for access.";
    DraftDeclined "draft-declined" "The draft is declined. Its author reads your reason.";
    DraftAccepted "draft-accepted" "The draft is accepted. The service has signed and published it.";
    AppEnded "app-ended" "The access of the app has ended, for everybody in this vault.";
    PersonInvited "person-invited" "The person is invited. They accept on their account page, within 7 days.";
    RoleChanged "role-changed" "The role is changed.";
    ScopesChanged "scopes-changed" "The rights are changed.";
    ProfileChanged "profile-changed" "The profile is changed.";
    PersonRemoved "person-removed" "The person no longer has access to this vault.";
    PinReset "pin-reset" "The pin is reset. The next release decides which vault this is.";
    VaultDeleted "vault-deleted" "The vault is deleted, and nobody has access to it.";
}

/// The sentence above a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Notice {
    /// A form was carried out.
    Done(&'static str),
    /// A form was refused.
    Refused(&'static str),
}

/// The parameter of an address that names what was done.
pub(super) const DONE: &str = "done";
/// The parameter of an address that names the code of a refusal.
pub(super) const REFUSED: &str = "refused";

impl Notice {
    /// The sentence that a query asks for; `None` for a word that is not in the lists.
    pub(super) fn of(query: &Form) -> Option<Self> {
        if let Some(word) = query.value(REFUSED) {
            let code = Code::ALL.iter().find(|code| code.row().code == word)?;
            return Some(Self::Refused(refusal_text(*code)));
        }
        let word = query.value(DONE)?;
        let outcome = Outcome::ALL.iter().find(|outcome| outcome.word() == word)?;
        Some(Self::Done(outcome.text()))
    }
}

/// What a person reads when a form is refused: how it goes on where that can be said, else the text of
/// the code.
const fn refusal_text(code: Code) -> &'static str {
    match code {
        Code::DeviceState => {
            "Nothing was changed: somebody decided about this machine in the meantime. Its present status is below."
        }
        Code::SubscriptionLapsed => {
            "Nothing was changed: the subscription of this vault has lapsed. Renew it first."
        }
        Code::ConfirmationMismatch => {
            "Nothing was changed: what you typed is not the name of this vault."
        }
        Code::HostnameInvalid => "Nothing was changed: a name has 1 to 64 printable characters.",
        Code::ParameterInvalid => "Nothing was changed: a field has a value that is not accepted.",
        code => code.row().detail,
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
                Some(Notice::Refused(Code::LastOwner.row().detail)),
            ),
        ] {
            assert_eq!(Notice::of(&Form::parse(query)), notice, "{query}");
        }
    }

    #[test]
    fn no_two_outcomes_have_one_word() {
        let words: std::collections::BTreeSet<_> =
            Outcome::ALL.iter().map(|outcome| outcome.word()).collect();
        assert_eq!(words.len(), Outcome::ALL.len());
    }
}
