//! The caller of a request with their rights and shelf: one for each HTTP request, or one for a
//! whole connection over standard input and output.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use vault_format::draft::Submitter;
use vault_shelf::Shelf;

use crate::code::ToolError;

/// Whether a caller may do something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Right {
    /// The caller may do it.
    Granted,
    /// The token does not allow it; the person could consent to it.
    Consentable,
    /// The caller may not do it, and consent does not change that.
    Never,
}

/// The spelling of tool names in lists. A call accepts both.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Names {
    /// `skill_list`
    #[default]
    Plain,
    /// `skill.list`
    Dotted,
}

/// The person or client behind a call.
#[derive(Clone, Debug)]
pub struct Person {
    /// Their ids in the policy: the e-mail, then the client's id. The first that the policy names
    /// counts.
    pub ids: Vec<String>,
    /// The profile of the policy that they are bound to.
    pub profile: Option<String>,
    /// Whether they own the vault. An owner sees everything.
    pub owner: bool,
    /// The right to read.
    pub read: Right,
    /// The right to change something.
    pub write: Right,
    /// Their identity in a draft and in the audit log.
    pub submitter: Submitter,
    /// Whether they work on the machine that holds the library, so that a folder's path means the
    /// same to both.
    pub local: bool,
}

impl Person {
    /// Creates the owner at their own machine.
    pub fn local_owner() -> Self {
        Self {
            // The policy does not filter an owner, so this id is only a label.
            ids: vec!["local".to_owned()],
            profile: None,
            owner: true,
            read: Right::Granted,
            write: Right::Granted,
            submitter: Submitter {
                user_id: "local".to_owned(),
                client_id: None,
            },
            local: true,
        }
    }
}

/// A refusal for which HTTP must answer another status than 200.
#[derive(Clone, Debug)]
pub enum Denied {
    /// 403: the token lacks a scope.
    Scope {
        /// `read` or `write`.
        scope: &'static str,
        /// The tool or method.
        action: String,
        /// Whether the person could consent to it. Only then a challenge is useful.
        consentable: bool,
    },
    /// 503: a fault of the service, or another server holds the library.
    Unavailable {
        /// The code.
        code: ToolError,
        /// The cause, for the log.
        cause: Arc<dyn Error + Send + Sync>,
    },
}

/// The context of a request. Over HTTP it is put into the request's extensions; a request without
/// one is not answered.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    shelf: Arc<dyn Shelf>,
    person: Person,
    names: Names,
    denied: OnceLock<Denied>,
}

impl Session {
    /// Creates a session of this person with this shelf.
    pub fn new(shelf: Arc<dyn Shelf>, person: Person, names: Names) -> Self {
        Self(Arc::new(Inner {
            shelf,
            person,
            names,
            denied: OnceLock::new(),
        }))
    }

    /// The shelf that skills are read from and changes are submitted to.
    pub fn shelf(&self) -> &dyn Shelf {
        &*self.0.shelf
    }

    /// The caller.
    pub fn person(&self) -> &Person {
        &self.0.person
    }

    /// The spelling of names in its list of tools.
    pub fn names(&self) -> Names {
        self.0.names
    }

    /// The reason why HTTP itself must refuse the request. The transport turns it into a status.
    pub fn denied(&self) -> Option<&Denied> {
        self.0.denied.get()
    }

    pub(crate) fn deny(&self, denied: Denied) {
        // The first refusal counts. Over HTTP, where it matters, a session serves one request.
        let _ = self.0.denied.set(denied);
    }
}
