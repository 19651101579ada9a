//! `vault operator`: manages the namespaces and accounts of a service. A *namespace* is a vault
//! that the service hosts, under a name in its addresses (`/v/<slug>`). An *operator* is an account
//! with rights over the whole service; every command here signs in as one, except `account reset
//! --database`, which changes the database without the service.

mod accounts;
mod payments;
mod quota;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use vault_api::{
    CreatedNamespace, Given, MAX_ACTS, Namespace, NewNamespace, ServiceSignOut, Vault,
};
use vault_format::name::Slug;
use vault_service::error::ErrorCode as ServiceCode;

use crate::{
    commands::administer::audit_log::Filters,
    context::Context,
    errors::{ErrorCode, Failure},
    output::{BOLD, Column, HINT, Report, TICK, Table, clean, format_facts, paint},
    service::{
        Address, Base, OwnerClient,
        confirmation::send_confirmed,
        connection::Connection,
        sign_in::{SignIn, sign_in},
        tokens::{TokenFile, Tokens},
    },
};

/// The name under which an operator's tokens are stored. The tokens for a vault are stored under
/// its slug; a slug cannot contain `@`, so the two never meet.
const OPERATOR: &str = "@operator";

/// The arguments of `vault operator`.
#[derive(Args, Debug)]
#[command(after_help = "\
The service is the one named by --url, or the one that this vault is connected to. The first call \
opens the sign-in page.

Examples:
  vault operator namespace create team --owner ann@example.com
  vault operator account invite ann@example.com
  vault operator account reset ann@example.com --database data/vault.db \\
      --url https://vault.example
  vault operator audit-log --since 7d
  vault operator payments
  vault operator --url https://vault.example namespace list")]
pub struct Arguments {
    /// The service's address
    #[arg(long, value_name = "URL", global = true)]
    url: Option<Address>,
    /// Print the sign-in address and read the answer instead of opening a browser
    #[arg(long, global = true)]
    no_browser: bool,
    /// Change the database itself, on the server's own machine: a SQLite file or postgres://…
    /// (only for `account reset`)
    #[arg(long, value_name = "URL", global = true)]
    database: Option<String>,
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Create and manage namespaces
    Namespace(NamespaceArguments),
    /// Invite, reset, disable and delete accounts
    Account(AccountArguments),
    /// Make accounts operators
    Grant {
        /// The accounts' e-mail addresses
        #[arg(required = true, num_args = 1..=MAX_ACTS, value_name = "EMAIL")]
        emails: Vec<String>,
    },
    /// Take the rights of an operator from accounts
    Revoke {
        /// The accounts' e-mail addresses
        #[arg(required = true, num_args = 1..=MAX_ACTS, value_name = "EMAIL")]
        emails: Vec<String>,
    },
    /// End every token and session of the service
    SignOutAll,
    /// Show the audit log of the service, not of one vault
    AuditLog(Filters),
    /// List payments of the last 90 days that went wrong: for another plan, for no vault, or twice
    Payments,
}

#[derive(Args, Debug)]
struct AccountArguments {
    #[command(subcommand)]
    action: accounts::Action,
}

#[derive(Args, Debug)]
struct NamespaceArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a hosted namespace and its owner
    Create {
        /// The name in addresses: lower-case letters, digits and single hyphens
        slug: Slug,
        /// The owner's e-mail address
        #[arg(long, value_name = "E-MAIL")]
        owner: String,
    },
    /// List all namespaces
    List,
    /// Show one namespace
    Show {
        /// The name of the namespace
        slug: Slug,
    },
    /// Suspend a namespace: its people and machines are refused until it is resumed
    Suspend {
        /// The name of the namespace
        slug: Slug,
    },
    /// Resume a suspended namespace
    Resume {
        /// The name of the namespace
        slug: Slug,
    },
    /// Refuse downloads (402), as when it is not paid for; the catalog is still served
    Lapse {
        /// The name of the namespace
        slug: Slug,
    },
    /// End a lapse: the namespace counts as paid for
    Renew {
        /// The name of the namespace
        slug: Slug,
    },
    /// Show or change how much a namespace may hold
    Quota {
        /// The name of the namespace
        slug: Slug,
        #[command(flatten)]
        limits: quota::Limits,
    },
    /// End every token for a namespace: its people and apps sign in again
    SignOut {
        /// The name of the namespace
        slug: Slug,
    },
}

/// Runs an operator's action on the service of `--url`, or of the vault's connection. Signs in as
/// operator if no stored sign-in is valid, and once more if the service asks for a newer one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let base = match &arguments.url {
        Some(address) => address.base.clone(),
        None => {
            Connection::find(context)?
                .ok_or_else(|| {
                    fail!(
                        NoService,
                        "no service is named, and this vault is not connected to one"
                    )
                    .hint("vault operator --url <url> …")
                })?
                .base
        }
    };
    // Before any sign-in: this is the way back when no operator can sign in.
    if let Some(database) = &arguments.database {
        // clap cannot tie a global option to one subcommand.
        let Subject::Account(AccountArguments {
            action: accounts::Action::Reset { emails },
        }) = &arguments.subject
        else {
            return Err(fail!(Usage, "--database is only for `account reset`"));
        };
        let [email] = emails.as_slice() else {
            return Err(fail!(Usage, "with --database, reset one account at a time"));
        };
        return context.block_on(accounts::reset_in(context, database, &base, email));
    }
    let (subject, no_browser) = (&arguments.subject, arguments.no_browser);
    context.block_on(async {
        let client = connect_operator(context, &base, no_browser).await?;
        match run_action(context, &client, subject).await {
            // The stored sign-in is valid, but this route asks for a newer one or a second factor.
            Err(failure) if wants_sign_in(&failure) => {
                let client = sign_in_anew(context, &base, no_browser).await?;
                run_action(context, &client, subject).await
            }
            done => done,
        }
    })
}

/// Returns whether the service refused the action because of the sign-in: it is too old for an
/// operator's action, or lacks the second factor that the service requires by now. A new sign-in
/// may help then.
fn wants_sign_in(failure: &Failure) -> bool {
    [
        ServiceCode::SecondFactorRequired,
        ServiceCode::OperatorElevationRequired,
    ]
    .into_iter()
    .any(|code| failure.code == code)
}

/// Sends the action to the service, signed in as `client`, and reports its answer.
async fn run_action(
    context: &Context,
    client: &OwnerClient,
    subject: &Subject,
) -> Result<Report, Failure> {
    let action = match subject {
        Subject::Namespace(NamespaceArguments { action }) => action,
        Subject::Account(AccountArguments { action }) => {
            return accounts::run(context, client, action).await;
        }
        Subject::Grant { emails } => {
            return accounts::set_operators(context, client, emails, true).await;
        }
        Subject::Revoke { emails } => {
            return accounts::set_operators(context, client, emails, false).await;
        }
        Subject::SignOutAll => return sign_out_all(context, client).await,
        Subject::AuditLog(filters) => return accounts::audit_log(context, client, filters).await,
        Subject::Payments => return payments::list_payments(client).await,
    };
    match action {
        Action::Create { slug, owner } => create_namespace(context, client, slug, owner).await,
        Action::List => list_namespaces(context, client).await,
        Action::Show { slug } => show_namespace(client, slug).await,
        Action::Suspend { slug } => change_namespace(client, slug, "suspend", "suspended").await,
        Action::Resume { slug } => change_namespace(client, slug, "resume", "resumed").await,
        Action::Lapse { slug } => change_namespace(client, slug, "lapse", "lapsed").await,
        Action::Renew { slug } => change_namespace(client, slug, "renew", "renewed").await,
        Action::Quota { slug, limits } => quota::set_quota(client, slug, limits).await,
        Action::SignOut { slug } => {
            change_namespace(client, slug, "sign-out", "signed everyone out of the vault").await
        }
    }
}

/// Returns a client that is signed in as operator: with the stored tokens if the service still
/// accepts them, else after a sign-in in the browser.
async fn connect_operator(
    context: &Context,
    base: &Base,
    no_browser: bool,
) -> Result<OwnerClient, Failure> {
    let file = TokenFile::for_service(context, base, OPERATOR)?;
    // Operators get no refresh token: when the access token expires, they sign in again.
    if file.read()?.as_ref().is_some_and(Tokens::is_operator) {
        let client = OwnerClient::open(context, base, OPERATOR)?;
        // The stored tokens may have been revoked. Try them now, so that no command asks a question
        // whose answer it cannot carry out.
        match client.get::<Value>("/admin/vaults").await {
            Err(failure) if failure.code == ErrorCode::SignedOut => {}
            Err(failure) => return Err(failure),
            Ok(_) => return Ok(client),
        }
    }
    sign_in_anew(context, base, no_browser).await
}

/// Signs in as operator in the browser, and stores the tokens, so that commands of the next minutes
/// need no sign-in.
async fn sign_in_anew(
    context: &Context,
    base: &Base,
    no_browser: bool,
) -> Result<OwnerClient, Failure> {
    let file = TokenFile::for_service(context, base, OPERATOR)?;
    let tokens = sign_in(
        context,
        SignIn {
            base,
            namespace: None,
            purpose: Some("operator"),
            operator: true,
            wider: None,
            no_browser,
        },
    )
    .await?;
    // The file is locked while it is written, because another command may sign in at the same time.
    file.write(&tokens, &file.lock()?)?;
    OwnerClient::with_tokens(context, base, file, tokens)
}

async fn create_namespace(
    context: &Context,
    client: &OwnerClient,
    slug: &Slug,
    owner: &str,
) -> Result<Report, Failure> {
    let namespace = json!(NewNamespace {
        slug: slug.clone().into(),
        owner: Given::unchecked(owner),
    });
    let path = "/admin/operator/namespaces";
    // If the owner's account was reset, the link in the answer gives its holder that account and
    // its vaults. The service then requires that the operator confirms this request.
    let created: CreatedNamespace =
        send_confirmed(context, client, Method::POST, path, Some(namespace)).await?;
    let (made, owner) = (&created.slug, &created.owner);
    let address = client.base().address_of(&format!("/v/{made}"));
    let mut text = format!(
        "{TICK} created the namespace {BOLD}{made}{BOLD:#} for {owner}\n  {HINT}{address}{HINT:#}"
    );
    if let Some(invite) = &created.invite_url {
        text.push_str(&format!(
            "\nSend this invitation to the owner. It works once, within 72 hours, and is not shown again:\n  {}",
            paint(HINT, clean(invite, 500))
        ));
    }
    text.push_str(&format!(
        "\nThe owner then runs: vault cloud connect {address}"
    ));
    Ok(Report::new(&created, text))
}

async fn list_namespaces(context: &Context, client: &OwnerClient) -> Result<Report, Failure> {
    let items: Vec<Namespace> = client.list("/admin/operator/namespaces").await?;
    if items.is_empty() {
        return Ok(Report::new(json!([]), "There is no namespace yet."));
    }
    let mut table = Table::new([
        Column::new("slug").shrinks_to(16),
        Column::new("kind").leaves(1),
        Column::new("status"),
        Column::new("release").leaves(2),
        Column::new("owner").shrinks_to(16),
    ]);
    for item in &items {
        table.push_row([
            item.slug.to_string(),
            item.kind.to_string(),
            item.status.to_string(),
            item.release
                .map_or_else(|| "-".to_owned(), |release| release.to_string()),
            // An e-mail address has at most 254 characters.
            clean(&item.owner, 254),
        ]);
    }
    Ok(Report::new(&items, context.ui.format_table(&table)))
}

async fn show_namespace(client: &OwnerClient, slug: &Slug) -> Result<Report, Failure> {
    let namespace: Vault = client
        .get(&format!("/admin/operator/namespaces/{slug}"))
        .await
        .map_err(|failure| with_namespace_name(failure, slug))?;
    Ok(Report::new(&namespace, describe_namespace(&namespace)))
}

/// Formats the facts about a namespace (status, owner, release, usage, subscription), one on each
/// line.
fn describe_namespace(found: &Vault) -> String {
    let release = found.release.as_ref().map_or_else(
        || "none yet".to_owned(),
        |current| format!("{}, published {}", current.release, current.published_at),
    );
    let fingerprint = found.current_pin().and_then(|pin| pin.fingerprint);
    format_facts(
        [
            ("namespace", found.slug.to_string()),
            ("status", found.status.to_string()),
            ("kind", found.kind.to_string()),
            ("owner", clean(&found.owner, 254)),
            ("created", found.created_at.to_string()),
            ("release", release),
            ("skills", found.counts.skills.to_string()),
            ("machines waiting", found.counts.devices_pending.to_string()),
            (
                "fingerprint",
                fingerprint.map_or_else(|| "-".to_owned(), |text| text.to_string()),
            ),
        ]
        .into_iter()
        .chain(quota::describe_quota(found))
        .chain([("subscription", found.subscription.to_string())])
        .map(|(label, value)| (label, Some(value))),
    )
}

/// Sends the action `verb` (a word of the route, such as `suspend`) for the namespace. `done` is
/// the same action in the words of the report, such as "suspended".
async fn change_namespace(
    client: &OwnerClient,
    slug: &Slug,
    verb: &str,
    done: &str,
) -> Result<Report, Failure> {
    let answer: Value = client
        .post(
            &format!("/admin/operator/namespaces/{slug}/{verb}"),
            json!({}),
        )
        .await
        .map_err(|failure| with_namespace_name(failure, slug))?;
    let text = format!("{TICK} {done} {BOLD}{slug}{BOLD:#}");
    Ok(Report::new(&answer, text))
}

async fn sign_out_all(context: &Context, client: &OwnerClient) -> Result<Report, Failure> {
    let question = "End every token and session of this service, yours included?";
    context.ui.confirm_or_stop(question)?;
    // The service requires this word, so that a stray request ends no session.
    let confirm = "everybody".to_owned();
    let body = json!(ServiceSignOut { confirm });
    let done: Value = client.post("/admin/operator/sign-out", body).await?;
    let text = format!("{TICK} everyone is signed out of the service");
    Ok(Report::new(&done, text))
}

/// Replaces the service's "not found" with a failure that names the namespace. Other failures are
/// returned unchanged.
fn with_namespace_name(failure: Failure, slug: &Slug) -> Failure {
    // Other failures already say what is wrong.
    if failure.code != ServiceCode::NotFound {
        return failure;
    }
    let message = format!("no namespace in service is called `{slug}`");
    fail!(VaultNotFound, "{message}").hint("vault operator namespace list shows them all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_described_in_words_and_not_as_json() {
        let shown = |more: Value| {
            let mut found = json!({
                "slug": "acme", "namespace_id": "01M81JMZ000000000000000001", "status": "active",
                "kind": "hosted", "owner": "ann@example.com", "created_at": "2026-11-21T02:00:10Z",
                "release": null, "pin": null, "subscription": "none", "quota": { "bytes": null },
                "counts": { "skills": 0, "releases": 0, "devices_pending": 2 },
            });
            let more = more.as_object().unwrap().clone();
            found.as_object_mut().unwrap().extend(more);
            describe_namespace(&serde_json::from_value(found).unwrap())
        };
        let empty = shown(json!({}));
        for (label, value) in [
            ("owner", "ann@example.com"),
            ("release", "none yet"),
            ("machines waiting", "2"),
            ("fingerprint", "-"),
            ("stored", "0 B, no limit"),
        ] {
            let line = empty.lines().find(|line| line.contains(label));
            assert!(line.is_some_and(|line| line.ends_with(value)), "{empty}");
        }
        let (digest, id) = ("0".repeat(64), format!("vlt_{}", "a".repeat(26)));
        let fingerprint = format!("vlt:7d7r{}/1", "-7d7r".repeat(7));
        let published = shown(json!({
            "release": {
                "release": 3, "published_at": "2026-11-21T02:00:10Z", "size": 2237,
                "sha256": digest, "payload_sha256": digest,
            },
            "pin": {
                "vault_id": id, "fingerprint": fingerprint, "root_version": 1,
                "root_sha256": digest,
            },
            "quota": { "bytes": 2048, "objects": 100 },
            "usage": { "bytes": 1024, "objects": 7, "unnamed_bytes": 0, "unnamed_objects": 0 },
        }));
        for text in [
            "3, published 2026-11-21",
            &fingerprint,
            "of 2.0 KiB",
            "7 of 100",
        ] {
            assert!(published.contains(text), "{published}");
        }
        assert!(!published.contains('{'), "{published}");
    }
}
