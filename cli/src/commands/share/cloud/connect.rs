//! `vault cloud connect`: signs in at a service, and records the vault there to which this vault is
//! published.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use vault_api::{Kind, Role, VaultHead, VaultSummary};
use vault_format::{name::Slug, root::VaultId};
use vault_library::Vault;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, HINT, Report, TICK, join, paint},
    service::{
        Address, Base, OwnerClient,
        connection::Connection,
        sign_in::{SignIn, sign_in},
        tokens::{TokenFile, Tokens},
    },
    tasks::key_changes,
};

/// The arguments of `vault cloud connect`.
#[derive(Args, Debug)]
#[command(after_help = "\
Pins the address before it sends anything. You sign in with your browser (OAuth 2.1 with PKCE).

Examples:
  vault cloud connect https://vault.example
  vault cloud connect https://vault.example/v/team
  vault cloud connect https://vault.example --slug team --no-browser")]
pub struct Arguments {
    #[arg(help = "The service, or a vault on it: <url> or <url>/v/<slug>")]
    url: Address,
    /// The vault, if the address does not name it
    #[arg(long, value_name = "SLUG")]
    slug: Option<Slug>,
    /// Record the address without checking it: do not sign in
    #[arg(long)]
    no_sign_in: bool,
    /// Print the sign-in address and read the answer instead of opening a browser
    #[arg(long)]
    no_browser: bool,
}

/// The output of `vault cloud connect`: the vault at the service to which `vault sync` publishes.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Connected {
    #[serde(flatten)]
    connection: Connection,
    /// Whether this machine has signed in.
    signed_in: bool,
    #[serde(flatten)]
    membership: Option<ShownMembership>,
}

/// The account's access to the vault at the service.
#[derive(Debug, JsonSchema, Serialize)]
struct ShownMembership {
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    /// Role of the account in the vault.
    role: Role,
    /// Who signs the releases of the vault.
    kind: Kind,
    /// Number of the current release; null before the first one.
    release: Option<u64>,
}

/// Returns whether the vault of this machine, with the id `own`, is the one that is published at
/// the service, or may become it. If not, this machine should not create keys, because it may later
/// get a key of the published vault.
fn publishes_with(membership: &VaultSummary, own: &VaultId) -> bool {
    let is_other = membership.vault_id.is_some_and(|vault| vault != *own);
    membership.role != Role::Member && !is_other
}

/// Describes the rights of the account and the next steps, one per line. `can_recover` means that
/// the vault has a recovery key elsewhere.
fn next_steps(
    membership: &VaultSummary,
    address: &str,
    own: &VaultId,
    can_recover: bool,
) -> String {
    let is_other = membership.vault_id.is_some_and(|vault| vault != *own);
    let may = match (membership.role, membership.kind) {
        (Role::Owner, Kind::SelfSigned) => "You manage people, machines, apps and drafts.",
        (Role::Owner, _) => "You may publish, and manage people, machines, apps and drafts.",
        (Role::Publisher, Kind::SelfSigned) => "You decide on the drafts of skills.",
        (Role::Publisher, _) => "You may publish, and decide on the drafts of skills.",
        (Role::Member, _) => {
            "You may use the skills that the policy grants you. What you or your agents change \
             waits as a draft for an owner: vault drafts list"
        }
    };
    let next = match (membership.kind, membership.role) {
        (Kind::SelfSigned, _) => format!(
            "The server signs this vault itself: add skills on the server. Link machines with: vault link {address}"
        ),
        (_, Role::Member) => format!("Link machines with: vault link {address}"),
        // Its keys are on other machines, so this one cannot sign for it.
        _ if is_other => format!(
            "Other machines publish this vault. To publish from this one as well:\n  \
             vault link {address} --expect-key <fingerprint>\n  \
             vault publishers request {address}"
        ),
        (_, Role::Owner) if !can_recover => {
            "First create a recovery key, for example on a USB stick: vault key recovery create <file>\n\
             Publish with: vault sync"
                .to_owned()
        }
        _ => "Publish with: vault sync".to_owned(),
    };
    format!("{may}\n{next}")
}

/// Describes what a sign-in without the scope `write` cannot do, and how to get one with it.
fn read_only_steps(membership: &VaultSummary, address: &str) -> String {
    let more = match membership.role {
        Role::Owner | Role::Publisher => "publish or manage the vault",
        Role::Member => "propose changes",
    };
    format!(
        "This sign-in may only read. To {more}, sign in again and leave “Write” ticked:\n  \
         vault cloud connect {address}\n\
         Link machines with: vault link {address}"
    )
}

/// Signs in, finds the vault on the service, and stores the connection.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let base = &arguments.url.base;
    // Do not choose between two different slugs: the wrong one would connect to a vault that the
    // user did not mean.
    if let (Some(in_address), Some(flag)) = (&arguments.url.slug, &arguments.slug)
        && in_address != flag
    {
        return Err(fail!(
            SlugTwice,
            "the address names the vault {in_address}, --slug names {flag}"
        ));
    }
    let named = arguments.url.slug.as_ref().or(arguments.slug.as_ref());
    if arguments.no_sign_in {
        return connect_without_sign_in(&context.vault_or_new()?, base, named);
    }
    // The connection is stored in the local vault, so create one if there is none.
    let mut vault = context.vault_for_links()?;
    context.block_on(async {
        let namespace = named.map(Slug::as_str);
        let sign_in_request = SignIn {
            base,
            namespace,
            purpose: namespace,
            operator: false,
            wider: None,
            no_browser: arguments.no_browser,
        };
        let tokens = sign_in(context, sign_in_request).await?;
        let (membership, others) = find_vault(context, base, named, &tokens).await?;
        // If the user named no vault, only the sign-in shows which one it is. The name of the token
        // file depends on it.
        let file = TokenFile::for_service(context, base, membership.slug.as_str())?;
        file.write(&tokens, &file.lock()?)?;
        let connection = Connection {
            base: base.clone(),
            slug: membership.slug.clone(),
        };
        // `vault_for_links` makes no keys, and an account that publishes needs some.
        if publishes_with(&membership, vault.id()) {
            vault = context.vault_or_new()?;
        }
        connection.save(&vault)?;
        // After a reset of the service's pin, any vault may be published here, so every owner is
        // warned.
        if membership.role == Role::Owner {
            let client = connection.owner_client(context)?;
            let path = format!("/admin/vaults/{}", connection.slug);
            // Ignore a failure: the sign-in is valid without this.
            if let Ok(shown) = client.get::<VaultHead>(&path).await {
                key_changes::warn_of_pin_reset(context, &connection.address(), &shown);
            }
        }
        let can_recover = !key_changes::all_root_keys_here(&vault).unwrap_or(false);
        let address = connection.address();
        let next = if tokens.may_write() {
            next_steps(&membership, &address, vault.id(), can_recover)
        } else {
            read_only_steps(&membership, &address)
        };
        Ok(connected_report(&connection, &membership, &others, &next))
    })
}

fn connect_without_sign_in(
    vault: &Vault,
    base: &Base,
    named: Option<&Slug>,
) -> Result<Report, Failure> {
    let slug = named.cloned().ok_or_else(|| {
        fail!(
            SlugMissing,
            "the address does not name a vault, and without a sign-in the service cannot be asked"
        )
        .hint(format!("vault cloud connect {base}/v/<slug> --no-sign-in"))
    })?;
    let connection = Connection {
        base: base.clone(),
        slug,
    };
    connection.save(vault)?;
    let text = format!(
        "{TICK} recorded {HINT}{0}{HINT:#} without checking it: you are not signed in\n\
         Sign in with: vault cloud connect {0}",
        connection.address()
    );
    let connected = Connected {
        connection,
        signed_in: false,
        membership: None,
    };
    Ok(Report::view(connected, text))
}

/// Finds the vault that the tokens are for, and returns it with the other vaults of the account.
/// Tokens grant access to exactly one vault.
async fn find_vault(
    context: &Context,
    base: &Base,
    named: Option<&Slug>,
    tokens: &Tokens,
) -> Result<(VaultSummary, Vec<VaultSummary>), Failure> {
    // The tokens are new, so this client never refreshes them and never writes the file `@new`.
    let file = TokenFile::for_service(context, base, "@new")?;
    let client = OwnerClient::with_tokens(context, base, file, tokens.clone())?;
    let mut memberships = client.list::<VaultSummary>("/admin/vaults").await?;
    let slugs: Vec<String> = memberships
        .iter()
        .map(|vault| vault.slug.to_string())
        .collect();
    let mut chosen_index = None;
    match (&memberships[..], named) {
        ([], _) => {
            return Err(fail!(NoSuchVault, "your account has no vault at {base}").hint(
                "an operator creates one: vault operator namespace create <slug> --owner <e-mail>",
            ));
        }
        (_, Some(slug)) => chosen_index = memberships.iter().position(|vault| vault.slug == *slug),
        ([_], None) => chosen_index = Some(0),
        // The account has several vaults, and the user chose one on the consent page. Try them:
        // only requests for the chosen one succeed.
        (several, None) => {
            for (at, vault) in several.iter().enumerate() {
                let path = format!("/admin/vaults/{}", vault.slug);
                if client.get::<Value>(&path).await.is_ok() {
                    chosen_index = Some(at);
                    break;
                }
            }
        }
    }
    match (chosen_index, named) {
        (Some(at), _) => Ok((memberships.remove(at), memberships)),
        (None, Some(slug)) => Err(fail!(
            NoSuchVault,
            "your account has no vault `{slug}` at {base}"
        )
        .hint(format!("it has: {}", join(slugs)))),
        (None, None) => {
            // The tokens are valid for none of the vaults. Ask which one was meant, to name it in
            // the hint.
            let slug = context
                .ui
                .choose_one("Which vault?", "--slug <slug>", slugs)?;
            Err(
                fail!(NoSuchVault, "the sign-in was not for the vault `{slug}`")
                    .hint(format!("vault cloud connect {base}/v/{slug}")),
            )
        }
    }
}

fn connected_report(
    connection: &Connection,
    membership: &VaultSummary,
    others: &[VaultSummary],
    next: &str,
) -> Report {
    let address = connection.address();
    // The service writes a role as `role:owner`; show only the word.
    let role = membership.role.as_str().trim_start_matches("role:");
    let release = match membership.release {
        Some(release) if release > 0 => format!("release {release}"),
        _ => "nothing published yet".to_owned(),
    };
    let mut text =
        format!("{TICK} connected to {HINT}{address}{HINT:#}  ({role}, {release})\n{next}");
    if !others.is_empty() {
        let names = join(others.iter().map(|other| paint(BOLD, &other.slug)));
        text.push_str(&format!("\nYour account also has: {names}"));
    }
    let membership = ShownMembership {
        address,
        role: membership.role,
        kind: membership.kind,
        release: membership.release,
    };
    let connected = Connected {
        connection: connection.clone(),
        signed_in: true,
        membership: Some(membership),
    };
    Report::view(connected, text)
}
