//! What a form asks for, as the log names it: a refusal then stands under the same action and
//! target as what is done, whether a person used the console or a program `/admin`.

use crate::oauth::form::Form;
use crate::path_params::PathParams;

/// The action that a form asks for, and what it is about.
pub(super) struct FormAction {
    pub(super) action: &'static str,
    pub(super) target: Option<String>,
}

impl FormAction {
    /// What a form of the row `row` asks for; the row itself where it is none of the known.
    pub(super) fn of(row: &'static str, form: &Form, params: &PathParams) -> Self {
        let about = |name: &str| form.value(name).map(str::to_owned);
        let target = match row {
            "console-codes.change" => about("code"),
            "console-apps.end" => about("client"),
            _ => params.find("id").map(str::to_owned),
        };
        Self {
            action: action(row, form.value("change").unwrap_or_default()).unwrap_or(row),
            // A field may have any text, and the log keeps what names something.
            target: target.filter(|target| target.len() <= 128),
        }
    }
}

/// The action in the log of a form of this row with this word in its field `change`.
fn action(row: &str, change: &str) -> Option<&'static str> {
    let action = match (row, change) {
        ("console-machines.deny-pending", _) => "device.deny-pending",
        ("console-machines.change", "admit") => "device.admit",
        ("console-machines.change", "deny") => "device.deny",
        ("console-machines.change", "revoke") => "device.revoke",
        ("console-machines.change", "forget") => "device.forget",
        ("console-codes.change", "create") => "enrolment.invite",
        ("console-codes.change", "end") => "enrolment.end",
        ("console-codes.change", "require" | "open") => "enrolment.set",
        ("console-drafts.change", "accept") => "draft.accept",
        ("console-drafts.change", "decline") => "draft.decline",
        ("console-people.invite", _) => "user.create",
        ("console-people.change", "role") => "user.role",
        ("console-people.change", "scopes") => "user.scopes",
        ("console-people.change", "profile") => "user.profile",
        ("console-people.change", "remove") => "user.remove",
        ("console-apps.end", _) => "client.revoke",
        ("console-namespace.change", "reset-pin") => "pin.reset",
        ("console-namespace.change", "delete") => "vault.delete",
        _ => return None,
    };
    Some(action)
}
