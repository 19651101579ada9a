//! Who calls, with which rights, and what they are served from: one request's own, or a whole
//! connection's on standard input and output.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use vault_format::draft::Submitter;
use vault_shelf::Shelf;

use crate::code::ToolError;

/// Whether a caller may do something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Right {
    /// Yes.
    Granted,
    /// Not with this token; the person could consent to it.
    Consentable,
    /// No, and no consent can change it.
    Never,
}

/// Which spelling of the names with a dot a list of tools shows; a call takes both.
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
    /// What the policy knows them by, the first that it names counts: the e-mail, then the client's
    /// id.
    pub ids: Vec<String>,
    /// The profile of the policy that they are bound to.
    pub profile: Option<String>,
    /// Whether they own the vault: an owner sees everything.
    pub owner: bool,
    /// Whether they may read.
    pub read: Right,
    /// Whether they may change something.
    pub write: Right,
    /// Who they are in a draft and in the audit log.
    pub submitter: Submitter,
    /// Whether they work on the machine that holds the library, so that a folder's path means the
    /// same to both.
    pub local: bool,
}

impl Person {
    /// The owner at their own machine.
    pub fn local() -> Self {
        Self {
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

/// What HTTP must say in place of 200.
#[derive(Clone, Debug)]
pub enum Denied {
    /// 403: the token lacks a scope.
    Scope {
        /// `read` or `write`.
        scope: &'static str,
        /// The tool or method.
        action: String,
        /// Whether the person could consent to it: only then a challenge is worth anything.
        consentable: bool,
    },
    /// 503: our fault, or another server's turn.
    Unavailable {
        /// The code.
        code: ToolError,
        /// What went wrong, for the log.
        cause: Arc<dyn Error + Send + Sync>,
    },
}

/// What a request works with. Over HTTP it is put into the request's extensions; a request without
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
    /// A session of this person with this shelf.
    pub fn new(shelf: Arc<dyn Shelf>, person: Person, names: Names) -> Self {
        Self(Arc::new(Inner {
            shelf,
            person,
            names,
            denied: OnceLock::new(),
        }))
    }

    /// Where skills are read from and changes handed to.
    pub fn shelf(&self) -> &dyn Shelf {
        &*self.0.shelf
    }

    /// Who calls.
    pub fn person(&self) -> &Person {
        &self.0.person
    }

    /// Which names its list of tools shows.
    pub fn names(&self) -> Names {
        self.0.names
    }

    /// Why HTTP itself must refuse what a tool was asked for: the transport makes the status of it.
    pub fn denied(&self) -> Option<&Denied> {
        self.0.denied.get()
    }

    pub(crate) fn deny(&self, denied: Denied) {
        let _ = self.0.denied.set(denied);
    }
}
