//! Opens the session of a caller with the MCP tools: decides the caller's rights, the shelf, and
//! whether the caller's changes become drafts.

use std::sync::Arc;

use vault_format::draft::Submitter;
use vault_mcp::{Names, Person, Right, Session};
use vault_shelf::Shelf;

use super::drafts::DraftingShelf;
use super::{Releases, Shelves};
use crate::app::App;
use crate::bearer::Caller;
use crate::config::MemberWrites;
use crate::model::audit::Actor;
use crate::model::namespace::Kind;
use crate::model::user::{Role, Scope};

/// Rule for what happens to the changes of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ChangeRule {
    /// The kind of the namespace, the caller's role and the settings decide.
    ByRole,
    /// All changes become drafts, whoever makes them.
    Drafted,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRules {
    /// Spelling of the tools' names: plain or dotted (`VAULT_TOOL_NAMES`).
    pub(crate) names: Names,
    pub(crate) changes: ChangeRule,
}

/// Opens a session of this caller with the shelf of their namespace. The shelf is that of
/// [`App::shelves`] if the server has one, otherwise that of `releases`.
pub(crate) fn open_session(
    app: &App,
    caller: &Caller,
    actor: &Actor,
    releases: &Releases,
    rules: SessionRules,
) -> Session {
    let shelves: &dyn Shelves = match &app.shelves {
        Some(shelves) => &**shelves,
        None => releases,
    };
    let shelf = shelves.shelf(app, &caller.namespace, actor.source);
    let shelf: Arc<dyn Shelf> = if rules.changes == ChangeRule::Drafted || are_drafted(app, caller)
    {
        Arc::new(DraftingShelf {
            inner: shelf,
            app: app.clone(),
            namespace: caller.namespace.clone(),
            source: actor.source,
        })
    } else {
        shelf
    };
    Session::new(shelf, to_person(caller), rules.names)
}

/// Whether changes of this caller become drafts in a namespace whose server signs. A publisher is
/// treated like a member there, because only the server publishes. In a hosted namespace the shelf
/// itself turns all changes into drafts, because releases are signed elsewhere.
fn are_drafted(app: &App, caller: &Caller) -> bool {
    caller.namespace.kind == Kind::SelfSigned
        && caller.role != Role::Owner
        && app.config.member_writes == MemberWrites::Draft
}

/// Converts the caller to the type that the tools and the policy use.
fn to_person(caller: &Caller) -> Person {
    let right = |scope| {
        if caller.scopes.has(scope) {
            Right::Granted
        } else if caller.user_has_scope(scope) {
            Right::Consentable
        } else {
            Right::Never
        }
    };
    let client = caller.consent.client.to_string();
    Person {
        // The policy may name a user by e-mail address, and an app by its client id.
        ids: vec![caller.email.to_string(), client.clone()],
        profile: caller.profile.clone(),
        owner: caller.role == Role::Owner,
        read: right(Scope::Read),
        write: right(Scope::Write),
        submitter: Submitter {
            user_id: caller.user_id.clone(),
            client_id: Some(client),
        },
        local: false,
    }
}
