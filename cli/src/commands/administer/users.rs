//! `vault users`: lists and invites the members of the vault that this machine is connected to, and
//! changes their roles, scopes and profiles. A *scope* (read or write) limits what a member may do;
//! a *profile* names rules of the vault's policy that decide which skills the member sees. Some
//! changes must be confirmed in the browser; several of one command are confirmed together.

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use vault_api::{
    Given, MAX_ACTS, MembershipState, NewUser, RoleChange, ScopeChange, User, VaultAct, VaultActs,
};
use vault_policy::Policy;

use crate::{
    context::Context,
    errors::Failure,
    output::{
        BOLD, Column, HINT, Report, TICK, Table, Warning, clean, format_day, nearest_name, paint,
    },
    service::{
        OwnerClient,
        confirmation::{change_each, confirm_together, send_confirmed},
        connection::Connection,
        sign_in::ready_client,
        users::{USERS, find_user, find_users},
    },
    tasks::policy_file,
};

/// The arguments of `vault users`.
#[derive(Args, Debug)]
#[command(after_help = "\
An owner sees and changes everything. A member sees what the policy grants, and may propose \
changes with the scope `write`. Changes take effect at once, also for people who are signed in. \
The service mails no invitation: tell the person to accept at its /account page.

Examples:
  vault users list
  vault users invite ann@example.com
  vault users invite bob@example.com --role owner --scopes read,write
  vault users scopes ann@example.com --grant write
  vault users profile ann@example.com reviewers
  vault users remove ann@example.com bob@example.com")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List everyone in the vault
    List,
    /// Invite people
    Invite {
        /// The people's e-mail addresses
        #[arg(required = true, num_args = 1..=MAX_ACTS, value_name = "EMAIL")]
        emails: Vec<String>,
        /// The role
        #[arg(long, value_enum, default_value = "member")]
        role: Role,
        /// The scopes to grant
        #[arg(
            long,
            value_enum,
            value_name = "SCOPES",
            value_delimiter = ',',
            default_value = "read"
        )]
        scopes: Vec<Scope>,
    },
    /// Change the role of users
    Role {
        /// The users' e-mail addresses or ids
        #[arg(required = true, num_args = 1..=MAX_ACTS, value_name = "USER")]
        users: Vec<String>,
        /// The role
        #[arg(value_enum)]
        role: Role,
    },
    /// Grant or revoke scopes
    Scopes {
        /// The user's e-mail address or id
        user: String,
        /// Scopes to grant
        #[arg(
            long,
            value_enum,
            value_name = "SCOPES",
            value_delimiter = ',',
            required_unless_present = "revoke"
        )]
        grant: Vec<Scope>,
        /// Scopes to revoke
        #[arg(long, value_enum, value_name = "SCOPES", value_delimiter = ',')]
        revoke: Vec<Scope>,
    },
    /// Assign a policy profile to a user
    Profile {
        /// The user's e-mail address or id
        user: String,
        /// The name of the profile
        #[arg(required_unless_present = "none")]
        profile: Option<String>,
        /// Remove the profile: the rules of the policy decide
        #[arg(long, conflicts_with = "profile")]
        none: bool,
    },
    /// Remove users from the vault
    Remove {
        /// The users' e-mail addresses or ids
        #[arg(required = true, num_args = 1..=MAX_ACTS, value_name = "USER")]
        users: Vec<String>,
    },
}

impl Action {
    /// Whether the command asks a question or sends the user to a page, which must not be followed
    /// by a failed sign-in.
    const fn needs_ready_sign_in(&self) -> bool {
        match self {
            // An owner can do everything, so inviting one is like a change of roles.
            Self::Invite { role, .. } => matches!(role, Role::Owner),
            Self::Role { .. } | Self::Remove { .. } => true,
            Self::List | Self::Scopes { .. } | Self::Profile { .. } => false,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Role {
    Owner,
    Publisher,
    Member,
}

impl Role {
    // The command line has its own enum, because clap derives the words of `--role` from it, and in
    // the API an owner is `role:owner`.
    const fn of_wire(self) -> vault_api::Role {
        match self {
            Self::Owner => vault_api::Role::Owner,
            Self::Publisher => vault_api::Role::Publisher,
            Self::Member => vault_api::Role::Member,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scope {
    Read,
    Write,
}

fn to_given_scopes(scopes: &[Scope]) -> Vec<Given<vault_api::Scope>> {
    let of_wire = |scope: &Scope| match scope {
        Scope::Read => vault_api::Scope::Read,
        Scope::Write => vault_api::Scope::Write,
    };
    scopes.iter().map(|scope| of_wire(scope).into()).collect()
}

fn role_word(user: &User) -> &'static str {
    user.role.as_str().trim_start_matches("role:")
}

fn scope_words(user: &User) -> String {
    if user.scopes.is_empty() {
        "-".to_owned()
    } else {
        user.scopes.to_string()
    }
}

fn profile_name(user: &User) -> String {
    user.profile
        .as_ref()
        .map_or_else(|| "-".to_owned(), |profile| clean(profile, 64))
}

fn paint_email(user: &User) -> String {
    paint(BOLD, &user.email)
}

/// Lists the users, or sends a change of one or several to the service.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    context.block_on(async {
        // These actions ask a question or open a page. They sign in first, so that no answer is
        // lost because a sign-in fails.
        let client = if arguments.action.needs_ready_sign_in() {
            ready_client(context, &connection).await?
        } else {
            connection.owner_client(context)?
        };
        match &arguments.action {
            Action::List => Ok(show_users(context, &client.list(USERS).await?)),
            Action::Invite {
                emails,
                role,
                scopes,
            } => invite_users(context, &client, emails, *role, scopes).await,
            Action::Role { users, role } => change_roles(context, &client, users, *role).await,
            Action::Scopes {
                user,
                grant,
                revoke,
            } => {
                let body = json!(ScopeChange {
                    grant: to_given_scopes(grant),
                    revoke: to_given_scopes(revoke),
                });
                let user = change_user(&client, user, ("scopes", body)).await?;
                let text = format!(
                    "{} has the scopes: {}",
                    paint_email(&user),
                    scope_words(&user)
                );
                Ok(report_user(&user, &text))
            }
            Action::Profile { user, profile, .. } => {
                let body = json!({ "profile": profile });
                if let Some(profile) = profile {
                    // An unknown profile is only a warning, because it may be added to the policy
                    // later.
                    warn_of_unknown_profile(context, profile);
                }
                let user = change_user(&client, user, ("profile", body)).await?;
                let text = match &user.profile {
                    Some(profile) => {
                        format!(
                            "{} has the profile {}",
                            paint_email(&user),
                            clean(profile, 64)
                        )
                    }
                    None => format!("{} is bound to no profile", paint_email(&user)),
                };
                Ok(report_user(&user, &text))
            }
            Action::Remove { users } => remove_users(context, &client, users).await,
        }
    })
}

/// Warns if the policy file on this machine has no such profile, or if there is no policy: the
/// profile grants nothing until it is written there.
fn warn_of_unknown_profile(context: &Context, profile: &str) {
    // There is no warning about a policy that cannot be read: the commands that use it report that.
    if let Ok(policy) = policy_file::written_policy(context)
        && let Some(warning) = unknown_profile(policy.as_ref(), profile)
    {
        context.ui.warn(warning);
    }
}

fn unknown_profile(policy: Option<&Policy>, profile: &str) -> Option<Warning> {
    // The names are needed twice, and an iterator can be used only once. So this is a closure.
    let names = || {
        let profiles = policy.and_then(|policy| policy.profiles.as_ref());
        profiles
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
    };
    if names().any(|name| name == profile) {
        return None;
    }
    let profile_text = clean(profile, 64);
    if policy.is_none() {
        let message = format!(
            "there is no policy.toml on this machine: without one, `{profile_text}` grants nothing"
        );
        let hint = "write the profile into policy.toml in the vault's folder, then: vault sync";
        return Some(Warning::new("profile_unknown", message).hint(hint));
    }
    let message =
        format!("policy.toml has no profile `{profile_text}`: it grants nothing until it does");
    let hint = match nearest_name(profile, names()) {
        Some(near) => format!("did you mean `{}`?", clean(near, 64)),
        None => "name a profile of policy.toml, or give --none".to_owned(),
    };
    Some(Warning {
        hint: Some(hint),
        ..Warning::new("profile_unknown", message)
    })
}

fn show_users(context: &Context, users: &[User]) -> Report {
    let mut table = Table::new([
        Column::new("e-mail").shrinks_to(20),
        Column::new("state"),
        Column::new("role"),
        Column::new("scopes").leaves(4),
        Column::new("profile").shrinks_to(8).leaves(3),
        Column::new("last seen").leaves(2),
        Column::new("id").leaves(1),
    ]);
    for user in users {
        table.push_row([
            paint_email(user),
            user.state.to_string(),
            role_word(user).to_owned(),
            scope_words(user),
            profile_name(user),
            user.last_seen_at
                .map_or_else(|| "never".to_owned(), |seen| format_day(&seen.to_string())),
            clean(&user.id, 40),
        ]);
    }
    Report::new(users, context.ui.format_table(&table))
}

async fn invite_users(
    context: &Context,
    client: &OwnerClient,
    emails: &[String],
    role: Role,
    scopes: &[Scope],
) -> Result<Report, Failure> {
    if matches!(role, Role::Owner) {
        let act = |email: &String| VaultAct::InviteOwner {
            email: Given::unchecked(email),
            scopes: Some(to_given_scopes(scopes)),
        };
        confirm_acts(context, client, emails.iter().map(act).collect()).await?;
    } else if emails.len() > 1 {
        let users: Vec<User> = client.list(USERS).await?;
        // Inviting somebody again with another role changes the role of the first invitation, which
        // must be confirmed.
        let changes_role = |email: &&String| {
            let invited = users
                .iter()
                .filter(|user| user.state == MembershipState::Invited);
            let mut invited = invited.filter(|user| user.role != role.of_wire());
            invited.any(|user| user.email.as_str().eq_ignore_ascii_case(email))
        };
        let act = |email: &String| VaultAct::ChangeInvitation {
            email: Given::unchecked(email),
            role: role.of_wire().into(),
            scopes: Some(to_given_scopes(scopes)),
        };
        let changed = emails.iter().filter(changes_role);
        confirm_acts(context, client, changed.map(act).collect()).await?;
    }
    change_each(context, emails, async |email| {
        let body = json!(NewUser {
            // The service judges the address, so that its rules are in one place.
            email: Given::unchecked(email),
            role: Some(role.of_wire().into()),
            scopes: Some(to_given_scopes(scopes)),
        });
        let user: User = send_confirmed(context, client, Method::POST, USERS, Some(body)).await?;
        let page = paint(HINT, client.base().address_of("/account"));
        let (address, base) = (&user.email, client.base());
        let text = format!(
            "{TICK} invited {} as {}\nThey sign in and accept within 7 days at {page}\nWithout an \
             account they need a link from an operator: vault operator account invite {address} \
             --url {base}",
            paint_email(&user),
            with_article(role_word(&user))
        );
        Ok((user, text))
    })
    .await
}

/// Opens one page on which the user confirms several acts together. A single act needs no call:
/// [`send_confirmed`] confirms it when its request is sent.
async fn confirm_acts(
    context: &Context,
    client: &OwnerClient,
    acts: Vec<VaultAct>,
) -> Result<(), Failure> {
    if acts.len() < 2 {
        return Ok(());
    }
    let body = json!(VaultActs { acts });
    confirm_together(context, client, "/admin/confirmations", body).await
}

async fn change_roles(
    context: &Context,
    client: &OwnerClient,
    users: &[String],
    role: Role,
) -> Result<Report, Failure> {
    let users = find_users(client, users).await?;
    let act = |user: &User| VaultAct::ChangeRole {
        user: user.id.clone(),
        role: role.of_wire().into(),
    };
    confirm_acts(context, client, users.iter().map(act).collect()).await?;
    change_each(context, &users, async |user| {
        let path = format!("{USERS}/{}/role", user.id);
        let role = role.of_wire().into();
        let body = Some(json!(RoleChange { role }));
        let user: User = send_confirmed(context, client, Method::PUT, &path, body).await?;
        let text = format!(
            "{TICK} {} is {} now",
            paint_email(&user),
            with_article(role_word(&user))
        );
        Ok((user, text))
    })
    .await
}

/// Changes one property of a user, who is named by e-mail address or id. `what` is the last word of
/// the route (`scopes` or `profile`), and `body` the new value.
async fn change_user(
    client: &OwnerClient,
    user: &str,
    (what, body): (&str, Value),
) -> Result<User, Failure> {
    // The routes take only ids, but people type e-mail addresses.
    let user = find_user(client, user).await?;
    let path = format!("{USERS}/{}/{what}", user.id);
    let method = if what == "scopes" {
        Method::POST
    } else {
        Method::PUT
    };
    client.send(method, &path, Some(body)).await
}

async fn remove_users(
    context: &Context,
    client: &OwnerClient,
    users: &[String],
) -> Result<Report, Failure> {
    let users = find_users(client, users).await?;
    // The question shows e-mail addresses even if the user typed ids, so that a wrong id is
    // noticed.
    if let [user] = users.as_slice() {
        let question = match user.state {
            MembershipState::Invited => format!("Withdraw the invitation of {}?", user.email),
            MembershipState::Active => format!("Remove {} from this vault?", user.email),
        };
        context.ui.confirm_or_stop(&question)?;
    } else {
        let question = format!("Remove these {} users from this vault?", users.len());
        let emails: Vec<_> = users.iter().map(|user| user.email.to_string()).collect();
        context.ui.confirm_step(&question, &emails)?;
    }
    let act = |user: &User| VaultAct::RemoveUser {
        user: user.id.clone(),
    };
    // Withdrawing an invitation needs no confirmation.
    let active = users
        .iter()
        .filter(|user| user.state == MembershipState::Active);
    confirm_acts(context, client, active.map(act).collect()).await?;
    change_each(context, &users, async |user| {
        let path = format!("{USERS}/{}", user.id);
        let removed: User = send_confirmed(context, client, Method::DELETE, &path, None).await?;
        let text = match user.state {
            MembershipState::Invited => format!(
                "{TICK} withdrew the invitation of {}",
                paint_email(&removed)
            ),
            MembershipState::Active => format!("{TICK} removed {}", paint_email(&removed)),
        };
        Ok((removed, text))
    })
    .await
}

fn report_user(user: &User, text: &str) -> Report {
    Report::new(user, format!("{TICK} {text}"))
}

fn with_article(role: &str) -> String {
    if role == "owner" {
        "an owner".to_owned()
    } else {
        format!("a {role}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_the_policy_lacks_is_warned_of() {
        let policy = "[profiles.reviewers]\ngroups = []\n";
        let policy = Policy::from_toml(policy).unwrap();
        assert!(unknown_profile(Some(&policy), "reviewers").is_none());
        for (profile, hint) in [
            ("reviewer", "did you mean `reviewers`?"),
            ("nosuch", "name a profile of policy.toml, or give --none"),
        ] {
            let warning = unknown_profile(Some(&policy), profile).unwrap();
            assert_eq!(warning.hint.as_deref(), Some(hint), "{profile}");
        }
        let without_policy = unknown_profile(None, "reviewers").unwrap();
        assert!(without_policy.message.contains("no policy.toml"));
    }
}
