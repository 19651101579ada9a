//! `vault operator account`, `grant`, `revoke` and `audit-log`: lists the accounts of a service,
//! invites and resets them, and makes them operators. An account that was *reset* has no password,
//! second factor or passkey any more; its owner gets back in with a link. Several accounts of one
//! command are confirmed together in the browser.

use std::sync::Arc;

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;
use vault_api::{Account, DeletedAccount, Given, MAX_ACTS, NewAccount, OperatorAct, OperatorActs};
use vault_service::Ports;
use vault_service::accounts::bootstrap::{AccountReset, reset_account};
use vault_sql::Sql;
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::{
    commands::administer::audit_log::{self, Filters},
    context::Context,
    errors::Failure,
    output::{BOLD, Column, HINT, Report, TICK, Table, clean, paint},
    server::database_failure,
    service::{
        Base, OwnerClient,
        confirmation::{change_each, confirm_together, send_confirmed},
        path_segment,
    },
};

/// The route of the service that lists and changes accounts.
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
        /// The accounts' e-mail addresses
        #[arg(required = true, num_args = 1..=MAX_ACTS, value_name = "EMAIL")]
        emails: Vec<String>,
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
        /// The accounts' e-mail addresses
        #[arg(required = true, num_args = 1..=MAX_ACTS, value_name = "EMAIL")]
        emails: Vec<String>,
    },
}

fn paint_email(account: &Account) -> String {
    paint(BOLD, &account.email)
}

/// Returns the state of an account as the table shows it: active, invited, disabled and so on.
const fn account_state(account: &Account) -> &'static str {
    // An account that is being deleted or disabled cannot sign in, so these states come before the
    // others.
    if account.deletion_begun {
        "being deleted"
    } else if account.disabled {
        "disabled"
    } else if account.invite_again {
        "invite again"
    } else if account.proven {
        "active"
    } else {
        "invited"
    }
}

/// Sends the action on accounts to the service, signed in as `client`, and reports the outcome.
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
                // For an account that was reset, the link gives its holder the account and its
                // vaults. The service then requires that the operator confirms this request.
                send_confirmed(context, client, Method::POST, ACCOUNTS, body).await?
            };
            let text = describe_link(&account, "can set a password with a link");
            Ok(Report::new(&account, text))
        }
        Action::Reset { emails } => reset_accounts(context, client, emails).await,
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
        Action::Delete { emails } => delete_accounts(context, client, emails).await,
    }
}

/// Makes the accounts operators, after a question, or takes that right from them (`operates` is
/// false).
pub async fn set_operators(
    context: &Context,
    client: &OwnerClient,
    emails: &[String],
    operates: bool,
) -> Result<Report, Failure> {
    // Only the grant asks. It gives access to every vault, while a revocation can be undone.
    if operates {
        ask_about(context, emails, |whom| {
            format!("Let {whom} manage every vault of this service?")
        })?;
    }
    let act = |email: &String| {
        let email = Given::unchecked(email);
        if operates {
            OperatorAct::GrantOperator { email }
        } else {
            OperatorAct::RevokeOperator { email }
        }
    };
    confirm_acts(context, client, emails.iter().map(act).collect()).await?;
    let (verb, text) = if operates {
        ("grant", "is an operator now")
    } else {
        ("revoke", "is no longer an operator")
    };
    change_each(context, emails, async |email| {
        let account = change_account(context, client, email, verb).await?;
        let text = format!("{TICK} {} {text}", paint_email(&account));
        Ok((account, text))
    })
    .await
}

/// Opens one page on which the operator confirms several acts together. A single act needs no call:
/// [`send_confirmed`] confirms it when its request is sent.
async fn confirm_acts(
    context: &Context,
    client: &OwnerClient,
    acts: Vec<OperatorAct>,
) -> Result<(), Failure> {
    if acts.len() < 2 {
        return Ok(());
    }
    let body = json!(OperatorActs { acts });
    confirm_together(context, client, "/admin/operator/confirmations", body).await
}

/// Asks whether to go on, once for all accounts; several are listed first. `question` makes the
/// question from the words for the accounts. Fails if the answer is no.
fn ask_about(
    context: &Context,
    emails: &[String],
    question: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    if let [email] = emails {
        return context.ui.confirm_or_stop(&question(&clean(email, 254)));
    }
    let accounts: Vec<_> = emails.iter().map(|email| clean(email, 254)).collect();
    let whom = format!("these {} accounts", emails.len());
    context.ui.confirm_step(&question(&whom), &accounts)
}

async fn reset_accounts(
    context: &Context,
    client: &OwnerClient,
    emails: &[String],
) -> Result<Report, Failure> {
    ask_to_reset(context, emails)?;
    let act = |email: &String| OperatorAct::ResetAccount {
        email: Given::unchecked(email),
    };
    confirm_acts(context, client, emails.iter().map(act).collect()).await?;
    change_each(context, emails, async |email| {
        let account = change_account(context, client, email, "reset").await?;
        let text = describe_link(
            &account,
            "is signed out everywhere and needs a new password",
        );
        Ok((account, text))
    })
    .await
}

/// Resets an account directly in the server's database, without the service. Use it on the server's
/// machine when no operator can sign in. `base` is the service's public address, with which the
/// link in the report begins.
pub async fn reset_in(
    context: &Context,
    database: &str,
    base: &Base,
    email: &str,
) -> Result<Report, Failure> {
    // No service checks the address here, so it is checked now.
    let address = email
        .parse()
        .map_err(|_| fail!(Usage, "`{}` is not an e-mail address", clean(email, 254)))?;
    ask_to_reset(context, &[email.to_owned()])?;
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
    let link =
        link.map_err(|error| fail!(Database, "the account could not be changed: {error}"))?;
    let link = match link {
        AccountReset::Link(link) => link,
        AccountReset::NotFound => {
            return Err(fail!(
                AccountNotFound,
                "no account has the address `{address}`"
            ));
        }
        AccountReset::DeletionBegun => {
            let failure = fail!(
                Usage,
                "the deletion of `{address}` has begun, so a link would lead nowhere"
            );
            return Err(failure.hint("an operator enables the account, which cancels the deletion: vault operator account enable"));
        }
    };
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

/// Shows the audit log of the service: the actions of operators, and events of accounts that belong
/// to no vault.
pub async fn audit_log(
    context: &Context,
    client: &OwnerClient,
    filters: &Filters,
) -> Result<Report, Failure> {
    // The log identifies accounts by id. The list of accounts serves to find the id of `--actor`
    // and the addresses of all ids.
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
    // The list has all accounts, so an id that is not in it belonged to an account that was
    // deleted.
    Ok(audit_log::show_entries(
        context,
        filters,
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
    let mut text = context.ui.format_table(&table);
    let begun = accounts.iter().filter(|account| account.deletion_begun);
    for account in begun {
        let email = clean(account.email.as_str(), 254);
        text.push_str(&format!(
            "\n\nThe deletion of {email} is not done. Go on: {HINT}vault operator account delete {email}{HINT:#}. \
             Cancel it: {HINT}vault operator account enable {email}{HINT:#}"
        ));
    }
    Ok(Report::new(&accounts, text))
}

async fn delete_accounts(
    context: &Context,
    client: &OwnerClient,
    emails: &[String],
) -> Result<Report, Failure> {
    let question = |whom: &str| match emails {
        [_] => format!("Delete the account {whom}?"),
        _ => format!("Delete {whom}?"),
    };
    ask_about(context, emails, question)?;
    let act = |email: &String| OperatorAct::DeleteAccount {
        email: Given::unchecked(email),
    };
    confirm_acts(context, client, emails.iter().map(act).collect()).await?;
    change_each(context, emails, async |email| {
        delete_account(context, client, email).await
    })
    .await
}

async fn delete_account(
    context: &Context,
    client: &OwnerClient,
    email: &str,
) -> Result<(DeletedAccount, String), Failure> {
    let path = format!("{ACCOUNTS}/{}", path_segment(email));
    let deleted: DeletedAccount =
        send_confirmed(context, client, Method::DELETE, &path, None).await?;
    let mut text = format!("{TICK} deleted {}", paint(BOLD, &deleted.email));
    // The service deletes an account even if it is the last owner of a vault. Report such vaults to
    // the operator.
    for slug in &deleted.without_owner {
        let slug = clean(slug, 63);
        text.push_str(&format!(
            "\n{slug} has no owner now who can sign in and write"
        ));
    }
    Ok((deleted, text))
}

/// Sends the action `verb` (a word of the route, such as `disable`) for one account, and returns
/// the account after it.
async fn change_account(
    context: &Context,
    client: &OwnerClient,
    email: &str,
    verb: &str,
) -> Result<Account, Failure> {
    let path = format!("{ACCOUNTS}/{}/{verb}", path_segment(email));
    send_confirmed(context, client, Method::POST, &path, Some(json!({}))).await
}

fn ask_to_reset(context: &Context, emails: &[String]) -> Result<(), Failure> {
    ask_about(context, emails, |whom| {
        format!("Remove the password, second factor and passkeys of {whom}?")
    })
}

fn report_account(account: &Account, text: &str) -> Report {
    Report::new(account, format!("{TICK} {} {text}", paint_email(account)))
}

/// Formats `text`, which says what happened to an account, with the account's new link. Without a
/// link, says that the account has a password already.
fn describe_link(account: &Account, text: &str) -> String {
    let email = paint_email(account);
    match &account.invite_url {
        Some(link) => format!("{TICK} {email} {text}{}", format_link(link)),
        // The service makes a link only for an account that cannot sign in yet.
        None => format!("{TICK} {email} has a password already; no link was made"),
    }
}

fn format_link(link: &str) -> String {
    format!(
        "\nSend them this link. Whoever opens it controls the account. It works once, for 72 hours, and is not shown again:\n  {HINT}{}{HINT:#}",
        clean(link, 500)
    )
}
