//! Names of the console's forms in the audit log. A refused form is logged with the action and
//! target that the change would have, no matter whether a person used the console or a program used
//! `/admin`.

use crate::path_params::PathParams;
use crate::web::form::Form;

/// Audit log action that a form requests, and what it is about.
pub(super) struct FormAction {
    pub(super) action: &'static str,
    pub(super) target: Option<String>,
}

impl FormAction {
    /// Returns the action of a form that was sent to the route `row`. An unknown form has the name
    /// of its route as action.
    pub(super) fn from_form(row: &'static str, form: &Form, params: &PathParams) -> Self {
        let about = |name: &str| form.value(name).map(str::to_owned);
        let target = match row {
            "console-codes.change" => about("code"),
            "console-apps.end" => about("client"),
            _ => params.find_param("id").map(str::to_owned),
        };
        Self {
            action: find_action(row, form.value("change").unwrap_or_default()).unwrap_or(row),
            // The text of the field is unchecked; a valid target is never longer than this.
            target: target.filter(|target| target.len() <= 128),
        }
    }
}

/// Actions of forms: name of the route, word in the field `change` (empty if the form has no such
/// field), and action. The action is the name of the route of `/admin`, or of the account's pages,
/// that makes the same change.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("console-machines.deny-pending", "", "device.deny-pending"),
    ("console-machines.change", "admit", "device.admit"),
    ("console-machines.change", "deny", "device.deny"),
    ("console-machines.change", "revoke", "device.revoke"),
    ("console-machines.change", "forget", "device.forget"),
    ("console-codes.change", "create", "enrolment.invite"),
    ("console-codes.change", "end", "enrolment.end"),
    ("console-codes.change", "require", "enrolment.set"),
    ("console-codes.change", "open", "enrolment.set"),
    ("console-drafts.change", "accept", "draft.accept"),
    ("console-drafts.change", "decline", "draft.decline"),
    ("console-people.invite", "", "user.create"),
    ("console-people.change", "role", "user.role"),
    ("console-people.change", "scopes", "user.scopes"),
    ("console-people.change", "profile", "user.profile"),
    ("console-people.change", "remove", "user.remove"),
    ("console-apps.end", "", "client.revoke"),
    ("console-namespace.change", "reset-pin", "pin.reset"),
    ("console-namespace.change", "delete", "vault.delete"),
    ("console-confirmation.decide", "", "confirmation.decide"),
];

/// Returns the audit log action of a form: `row` is its route, `change` the word in that field.
fn find_action(row: &str, change: &str) -> Option<&'static str> {
    let mut of_row = ACTIONS.iter().filter(|(its_row, ..)| *its_row == row);
    // An empty word stands for a form without this field.
    let entry = of_row.find(|(_, word, _)| word.is_empty() || *word == change)?;
    Some(entry.2)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_form_has_the_action_of_the_row_that_does_the_same() {
        let posts = super::super::routes().into_iter();
        let posts = posts.filter(|route| route.method == "POST");
        let forms: BTreeSet<&str> = posts.map(|route| route.name).collect();
        let listed: BTreeSet<&str> = ACTIONS.iter().map(|(row, ..)| *row).collect();
        assert_eq!(forms, listed);
        let admin = crate::admin::routes().into_iter();
        // The act of an app is confirmed on a page of the account; there is no such route of
        // `/admin`.
        let known = admin.chain(crate::oauth_routes::routes());
        let known: BTreeSet<&str> = known.map(|it| it.name).collect();
        for (row, word, action) in ACTIONS {
            assert!(known.contains(action), "{row} {word}: {action}");
        }
    }
}
