//! `vault cloud connect`: signs in and stores the address of the service.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_library::Vault;
use vault_skill::name::Slug;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{BOLD, GOOD, HINT, Report, Warning, clean, paint},
    service::{
        Address, Base, OwnerClient,
        connection::Connection,
        sign_in::{SignIn, sign_in},
        tokens::{TokenFile, Tokens},
    },
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
The address is pinned before anything is sent; sign-in uses your browser (OAuth 2.1 with PKCE).

Examples:
  vault cloud connect https://vault.example
  vault cloud connect https://vault.example/v/team
  vault cloud connect https://vault.example --slug team --no-browser

Since 0.5.0 (beta).")]
pub struct Arguments {
    #[arg(help = "The service, or a vault on it: <url> or <url>/v/<slug>")]
    url: Address,
    /// The vault, where the address does not name it
    #[arg(long, value_name = "SLUG")]
    slug: Option<Slug>,
    /// Pin the address only
    #[arg(long)]
    no_sign_in: bool,
    /// Do not open a browser: print the sign-in address and read the answer
    #[arg(long)]
    no_browser: bool,
}

/// A vault that the signed-in account belongs to.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Membership {
    slug: Slug,
    role: String,
    kind: String,
    #[serde(default)]
    release: Option<u64>,
    #[serde(default)]
    subscription: Option<String>,
}

/// Signs in, finds the vault on the service, and stores the connection.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let base = &arguments.url.base;
    let named = match (&arguments.url.slug, &arguments.slug) {
        (Some(in_address), Some(flag)) if in_address != flag => {
            return Err(fail!(
                SlugTwice,
                "the address names the vault {in_address}, --slug names {flag}"
            ));
        }
        (in_address, flag) => in_address.clone().or_else(|| flag.clone()),
    };
    // The connection is stored in the local vault, so create one if there is none.
    let vault = context.vault_or_new()?;
    if arguments.no_sign_in {
        return pin_only(&vault, base, named);
    }
    context.block_on(async {
        let tokens = sign_in(
            context,
            SignIn {
                base,
                namespace: named.as_ref().map(Slug::as_str),
                no_browser: arguments.no_browser,
            },
        )
        .await?;
        let (tokens, membership, others) = find_vault(context, base, named, tokens).await?;
        let file = TokenFile::of(context, base, membership.slug.as_str())?;
        file.write(&tokens, &file.lock()?)?;
        let connection = Connection {
            base: base.clone(),
            slug: membership.slug.clone(),
        };
        connection.save(&vault)?;
        Ok(connected(context, &connection, &membership, &others))
    })
}

fn pin_only(vault: &Vault, base: &Base, named: Option<Slug>) -> Result<Report, Failure> {
    let slug = named.ok_or_else(|| {
        fail!(
            SlugMissing,
            "which vault? Without sign-in nobody can ask the service"
        )
        .hint(format!("vault cloud connect {base}/v/<slug> --no-sign-in"))
    })?;
    let connection = Connection {
        base: base.clone(),
        slug,
    };
    connection.save(vault)?;
    Ok(Report::new(
        json!({ "base": connection.base.as_str(), "slug": connection.slug, "signed_in": false }),
        format!(
            "{} pinned {}",
            paint(GOOD, "✓"),
            paint(HINT, connection.address())
        ),
    ))
}

/// Finds the vault that the token is for. A token grants access to exactly one vault.
async fn find_vault(
    context: &Context,
    base: &Base,
    named: Option<Slug>,
    tokens: Tokens,
) -> Result<(Tokens, Membership, Vec<Membership>), Failure> {
    // The token is fresh, so this client never refreshes it and never writes the file `@new`.
    let file = TokenFile::of(context, base, "@new")?;
    let client = OwnerClient::with(context, base, file, tokens.clone())?;
    let all = client.list::<Membership>("/admin/vaults").await?;
    let list = || {
        all.iter()
            .map(|one| one.slug.to_string())
            .collect::<Vec<_>>()
    };
    let nothing = |message: String| Failure::new(ErrorCode::NoSuchVault, message);
    if all.is_empty() {
        return Err(
            nothing(format!("your account has no vault at {base}")).hint(
                "an operator makes one: vault operator namespace create <slug> --owner <e-mail>",
            ),
        );
    }
    if let Some(slug) = named {
        let found = all.iter().find(|one| one.slug == slug).cloned();
        return found.map(|one| (tokens, one, all.clone())).ok_or_else(|| {
            nothing(format!("your account has no vault `{slug}` at {base}"))
                .hint(format!("it has: {}", list().join(", ")))
        });
    }
    if let [one] = &all[..] {
        return Ok((tokens, one.clone(), Vec::new()));
    }
    // The account has several vaults. The user chose one on the consent page; only requests for
    // that one succeed.
    for one in &all {
        if client
            .get::<Value>(&format!("/admin/vaults/{}", one.slug))
            .await
            .is_ok()
        {
            return Ok((tokens, one.clone(), all.clone()));
        }
    }
    let slug = context.ui.choose("Which vault?", "--slug <slug>", list())?;
    Err(
        nothing(format!("the sign-in was not for the vault `{slug}`"))
            .hint(format!("vault cloud connect {base}/v/{slug}")),
    )
}

fn connected(
    context: &Context,
    connection: &Connection,
    membership: &Membership,
    others: &[Membership],
) -> Report {
    let hosted = membership.kind != "self_signed";
    let owner = membership.role == "role:owner";
    let role = clean(membership.role.trim_start_matches("role:"), 40);
    if !owner {
        context.ui.warn(Warning::new(
            "not_owner",
            format!("your role here is {role}: publishing needs an owner"),
        ));
    }
    let next = match (hosted, owner) {
        (true, true) => "Publish with: vault sync --cloud".to_owned(),
        (true, false) => format!("Machines enrol with: vault link {}", connection.address()),
        (false, _) => format!(
            "The server signs this vault itself: skills are added where it runs. Machines enrol with: vault link {}",
            connection.address()
        ),
    };
    let mut text = format!(
        "{} connected to {}  ({}, {})\n{next}",
        paint(GOOD, "✓"),
        paint(HINT, connection.address()),
        role,
        match membership.release {
            Some(release) if release > 0 => format!("release {release}"),
            _ => "nothing published yet".to_owned(),
        },
    );
    if others.len() > 1 {
        let names: Vec<_> = others
            .iter()
            .filter(|one| one.slug != membership.slug)
            .map(|one| paint(BOLD, &one.slug))
            .collect();
        text.push_str(&format!("\nYour account also has: {}", names.join(", ")));
    }
    Report::new(
        json!({
            "base": connection.base.as_str(),
            "slug": connection.slug,
            "address": connection.address(),
            "role": membership.role,
            "kind": membership.kind,
            "release": membership.release,
            "signed_in": true,
        }),
        text,
    )
}
