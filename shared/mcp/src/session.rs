//! The caller of a request, with rights and shelf (store of skills): one session for each HTTP
//! request, or one for a whole connection over standard input and output.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use vault_format::draft::Submitter;
use vault_shelf::Shelf;

use crate::code::ToolError;

/// Whether a caller has one of two rights: to read, or to write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Right {
    /// The caller has the right.
    Granted,
    /// The token does not allow it, but the person could extend the token by consent.
    Consentable,
    /// The caller does not have the right, and consent does not change that.
    Never,
}

/// The one of a tool's two names that the list of tools shows. A call accepts both.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Names {
    /// With underscores, such as `skill_list`.
    #[default]
    Plain,
    /// With dots, such as `skill.list`.
    Dotted,
}

/// The caller of a tool or resource, with the rights that the policy and the token give.
#[derive(Clone, Debug)]
pub struct Person {
    /// The ids by which the policy may name the person: the e-mail, then the client's id. The first
    /// that the policy names decides.
    pub ids: Vec<String>,
    /// The profile of the policy to which an owner bound the person; `None` for none.
    pub profile: Option<String>,
    /// Whether the person owns the vault. No policy filters what an owner sees.
    pub owner: bool,
    /// Whether the person may read skills.
    pub read: Right,
    /// Whether the person may submit changes.
    pub write: Right,
    /// Name of the person in drafts and the audit log.
    pub submitter: Submitter,
    /// Whether the person works on the machine that holds the library. Such a person may name a
    /// folder by its path.
    pub local: bool,
}

impl Person {
    /// Creates the owner at the machine that holds the library, who may read, write and name local
    /// folders.
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

/// The reason why HTTP must answer with another status than 200.
#[derive(Clone, Debug)]
pub enum Denied {
    /// 403: the token lacks a scope.
    Scope {
        /// `read` or `write`.
        scope: &'static str,
        /// The tool or method that was called.
        action: String,
        /// Whether the person could grant the scope on the consent page. Only then a challenge is
        /// useful.
        consentable: bool,
    },
    /// 503: a fault of the service, or another server holds the library.
    Unavailable {
        /// Machine-readable code of the fault.
        code: ToolError,
        /// The cause, for the log.
        cause: Arc<dyn Error + Send + Sync>,
    },
}

/// The context of a request. Over HTTP, the transport puts it into the request's extensions; a
/// request without one is rejected.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    shelf: Arc<dyn Shelf>,
    person: Person,
    names: Names,
    denied: OnceLock<Denied>,
}

impl Session {
    /// Creates a session in which `person` reads from `shelf` and submits changes to it. The list
    /// of tools shows the kind `names`.
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

    /// The caller, whose rights each tool checks before it reads its arguments.
    pub fn person(&self) -> &Person {
        &self.0.person
    }

    /// Which of a tool's two names the list of tools shows.
    pub fn names(&self) -> Names {
        self.0.names
    }

    /// Returns why HTTP itself must reject the request, or `None`. The transport turns it into a
    /// status.
    pub fn denied(&self) -> Option<&Denied> {
        self.0.denied.get()
    }

    pub(crate) fn deny(&self, denied: Denied) {
        // Keep the first reason. Over HTTP, where it matters, a session serves one request.
        let _ = self.0.denied.set(denied);
    }
}
