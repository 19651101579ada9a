//! `vault operator account`, `grant` and `revoke`: the accounts of a service and the ways back for
//! their owners.

use std::sync::Arc;

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;
use vault_api::{Account, DeletedAccount, Given, NewAccount};
use vault_service::Ports;
use vault_service::accounts::bootstrap::reset_account;
use vault_sql::Sql;
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::{
    commands::administer::audit_log::{self, Filters},
    context::Context,
    errors::Failure,
    output::{BOLD, Column, HINT, Report, TICK, Table, clean, paint},
    server::database_failure,
    service::{Base, OwnerClient, confirmation::send_confirmed},
};

/// The route of the accounts.
const ACCOUNTS: &str = "/admin/operator/accounts";

/// What to do with accounts.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List all accounts
    List,
    /// Print the link by which a person proves an address and sets a password
    Invite {
        /// The person's e-mail address
        email: String,
    },
    /// Remove the password, second factor and passkeys, sign out, and print a new link
    Reset {
        /// The account's e-mail address
        email: String,
    },
    /// Stop an account: nothing that it signed in works, and it cannot sign in
    Disable {
        /// The account's e-mail address
        email: String,
    },
    /// Let a disabled account sign in again
    Enable {
        /// The account's e-mail address
        email: String,
    },
    /// End every app and browser of an account
    SignOut {
        /// The account's e-mail address
        email: String,
    },
    /// Delete an account and its memberships
    Delete {
        /// The account's e-mail address
        email: String,
    },
}

fn paint_email(account: &Account) -> String {
    paint(BOLD, &account.email)
}

/// Returns the state of an account in a word or two.
const fn account_state(account: &Account) -> &'static str {
    // First, because a disabled account cannot sign in, whatever else is true of it.
    if account.disabled {
        "disabled"
    } else if account.invite_again {
        "invite again"
    } else if account.proven {
        "active"
    } else {
        "invited"
    }
}

/// Runs the action on the service.
pub async fn run(
    context: &Context,
    client: &OwnerClient,
    action: &Action,
) -> Result<Report, Failure> {
    match action {
        Action::List => list_accounts(context, client).await,
        Action::Invite { email } => {
            let account: Account = {
                // The service judges the address, so that its rules are in one place.
                let email = Given::unchecked(email);
                let body = Some(json!(NewAccount { email }));
                // Confirmed where the link gives away an account that was reset, with its vaults.
                send_confirmed(context, client, Method::POST, ACCOUNTS, body).await?
            };
            Ok(with_link(&account, "can set a password with a link"))
        }
        Action::Reset { email } => {
            ask_to_reset(context, email)?;
            let account = change_account(context, client, email, "reset").await?;
            Ok(with_link(
                &account,
                "is signed out everywhere and needs a new password",
            ))
        }
        Action::Disable { email } => {
            let account = change_account(context, client, email, "disable").await?;
            Ok(report_account(
                &account,
                "is disabled and signed out everywhere",
            ))
        }
        Action::Enable { email } => {
            let account = change_account(context, client, email, "enable").await?;
            Ok(report_account(&account, "can sign in again"))
        }
        Action::SignOut { email } => {
            let account = change_account(context, client, email, "sign-out").await?;
            Ok(report_account(&account, "is signed out everywhere"))
        }
        Action::Delete { email } => delete_account(context, client, email).await,
    }
}

/// Grants or revokes the rights of an operator.
pub async fn set_operator(
    context: &Context,
    client: &OwnerClient,
    email: &str,
    operates: bool,
) -> Result<Report, Failure> {
    // Only the grant asks. It gives access to every vault, while a revocation can be undone.
    if operates {
        let question = format!(
            "Let {} manage every vault of this service?",
            clean(email, 254)
        );
        confirm_change(context, &question)?;
    }
    let verb = if operates { "grant" } else { "revoke" };
    let account = change_account(context, client, email, verb).await?;
    let text = if operates {
        "is an operator now"
    } else {
        "is no longer an operator"
    };
    Ok(report_account(&account, text))
}

/// Resets an account in the database itself, on the server's own machine: the way back when no
/// operator can sign in. `base` is the service's public address, for the link.
pub async fn reset_in(
    context: &Context,
    database: &str,
    base: &Base,
    email: &str,
) -> Result<Report, Failure> {
    // The service is not involved, so nothing else judges the address.
    let address = email
        .parse()
        .map_err(|_| fail!(Usage, "`{}` is not an e-mail address", clean(email, 254)))?;
    ask_to_reset(context, email)?;
    let clock = Arc::new(SystemClock);
    let sql = Sql::open_database(database, clock.clone()).await;
    let sql = sql.map_err(|error| database_failure(&error))?;
    let ports = Ports {
        records: sql.records(),
        objects: sql.objects(),
        clock,
        random: Arc::new(SystemRandom),
    };
    let link = reset_account(&ports, &address, base.as_str()).await;
    let link = link
        .map_err(|error| fail!(Database, "the account could not be changed: {error}"))?
        .ok_or_else(|| fail!(AccountNotFound, "no account has the address `{address}`"))?;
    let name = paint(BOLD, clean(address.as_str(), 254));
    let text = format!(
        "{TICK} {name} is signed out everywhere and needs a new password{}",
        format_link(&link)
    );
    Ok(Report::new(
        json!({ "email": address, "invite_url": link }),
        text,
    ))
}

/// Shows the log of the service: the actions of operators, and events of accounts that are in no
/// vault.
pub async fn audit_log(
    context: &Context,
    client: &OwnerClient,
    filters: &Filters,
) -> Result<Report, Failure> {
    // The log identifies accounts by id. One list serves to find the actor and to name the others.
    let accounts: Vec<Account> = client.list(ACCOUNTS).await?;
    let actor = match &filters.actor {
        Some(email) if email.contains('@') => {
            // People type e-mail addresses in any case.
            let has_address =
                |account: &&Account| account.email.as_str().eq_ignore_ascii_case(email);
            let matching = accounts.iter().find(has_address);
            let account = matching.ok_or_else(|| {
                let email = clean(email, 254);
                fail!(AccountNotFound, "no account has the address `{email}`")
            })?;
            Some(account.id.clone())
        }
        actor => actor.clone(),
    };
    let mut entries =
        audit_log::load_entries(client, "/admin/operator/audit", filters, actor).await?;
    let names = accounts.into_iter();
    let names = names
        .map(|account| (account.id, account.email.to_string()))
        .collect();
    audit_log::add_names(&mut entries, &names);
    // All accounts are in the list, so an id without a name belonged to one that was deleted.
    Ok(audit_log::show_entries(
        context,
        &entries,
        "a deleted account",
    ))
}

async fn list_accounts(context: &Context, client: &OwnerClient) -> Result<Report, Failure> {
    let accounts: Vec<Account> = client.list(ACCOUNTS).await?;
    let mut table = Table::new([
        Column::new("e-mail").shrinks_to(24),
        Column::new("state"),
        Column::new("operator").leaves(2),
        Column::new("second factor").leaves(1),
    ]);
    let word = |yes: bool| if yes { "yes" } else { "-" }.to_owned();
    for account in &accounts {
        table.push_row([
            paint_email(account),
            account_state(account).to_owned(),
            word(account.operator),
            word(account.second_factor),
        ]);
    }
    Ok(Report::new(&accounts, context.ui.format_table(&table)))
}

async fn delete_account(
    context: &Context,
    client: &OwnerClient,
    email: &str,
) -> Result<Report, Failure> {
    confirm_change(
        context,
        &format!("Delete the account {}?", clean(email, 254)),
    )?;
    let path = format!("{ACCOUNTS}/{}", in_path(email));
    let deleted: DeletedAccount =
        send_confirmed(context, client, Method::DELETE, &path, None).await?;
    let mut text = format!("{TICK} deleted {}", paint(BOLD, &deleted.email));
    // The service deletes the last owner of a vault too, so the operator has to hear of such
    // vaults.
    for slug in &deleted.without_owner {
        let slug = clean(slug, 63);
        text.push_str(&format!(
            "\n{slug} has no owner now who can sign in and write"
        ));
    }
    Ok(Report::new(&deleted, text))
}

async fn change_account(
    context: &Context,
    client: &OwnerClient,
    email: &str,
    verb: &str,
) -> Result<Account, Failure> {
    let path = format!("{ACCOUNTS}/{}/{verb}", in_path(email));
    send_confirmed(context, client, Method::POST, &path, Some(json!({}))).await
}

/// Escapes an address for a segment of a path.
fn in_path(email: &str) -> String {
    url::form_urlencoded::byte_serialize(email.as_bytes())
        .collect::<String>()
        // Form encoding writes a space as `+`, which a path takes literally. A real `+` is `%2B` by
        // now.
        .replace('+', "%20")
}

fn confirm_change(context: &Context, question: &str) -> Result<(), Failure> {
    context.ui.confirm_or_stop(question)
}

fn ask_to_reset(context: &Context, email: &str) -> Result<(), Failure> {
    let email = clean(email, 254);
    confirm_change(
        context,
        &format!("Remove the password, second factor and passkeys of {email}?"),
    )
}

fn report_account(account: &Account, text: &str) -> Report {
    Report::new(account, format!("{TICK} {} {text}", paint_email(account)))
}

fn with_link(account: &Account, text: &str) -> Report {
    match &account.invite_url {
        Some(link) => {
            let text = format!(
                "{TICK} {} {text}{}",
                paint_email(account),
                format_link(link)
            );
            Report::new(account, text)
        }
        // The service makes a link only for an account that cannot sign in yet.
        None => report_account(account, "has a password already; no link was made"),
    }
}

fn format_link(link: &str) -> String {
    format!(
        "\nSend them this link. Whoever opens it controls the account. It works once, for 72 hours, and is not shown again:\n  {HINT}{}{HINT:#}",
        clean(link, 500)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_segment_of_a_path() {
        assert_eq!(in_path("ann+x@example.com"), "ann%2Bx%40example.com");
        assert_eq!(
            in_path("a/b?c#d@example.com"),
            "a%2Fb%3Fc%23d%40example.com"
        );
    }
}
