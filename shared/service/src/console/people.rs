//! `/console/{slug}/people`: the members of a vault, the keys that may publish, and the forms that
//! change members.

use askama::Template;
use axum::response::Response;
use vault_format::root::{KeyEntry, KeyFingerprint, RootChain, RootVersion};
use vault_format::text::error_chain;
use vault_store::StoreError;

use super::content::{current_root_chain, to_error_page};
use super::guard::{ConsoleForm, ConsolePage};
use super::names::Names;
use super::outcome::Outcome;
use super::page::{PageLayout, ROWS_SHOWN, show_page};
use crate::accounts::apps_and_sessions::signed_in_browsers;
use crate::admin::call::{Items, Page};
use crate::admin::principal::Principal;
use crate::admin::users::{
    NewMember, change_profile, change_role, find_user, grant_scopes, invite_user, read_users_page,
    removal_act, remove_user, role_act,
};
use crate::error::{ErrorCode, Refusal};
use crate::model::account::Email;
use crate::model::namespace::Kind;
use crate::model::user::{Role, Scope, Scopes, State, User};
use crate::web::browser::ACCOUNT_PATH;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::{format_day, format_minute, role_name};

/// A member, or a person whose invitation is open.
struct PersonRow {
    href: String,
    email: String,
    role: &'static str,
    scopes: &'static str,
    profile: Option<String>,
    /// End of the invitation; `None` for a person who has accepted.
    invited_until: Option<String>,
    seen: Option<String>,
    this: bool,
}

/// A key in the newest root version (the list of the vault's keys).
struct KeyRow {
    name: String,
    fingerprint: String,
    /// Since when the key may sign releases, if it may.
    publishes: Option<RoleStart>,
    /// Since when the key may sign changes of the keys, if it may.
    changes_keys: Option<RoleStart>,
}

/// The root version, and its day, since which a key has a role without a break.
struct RoleStart {
    version: u64,
    at: String,
}

#[derive(Template)]
#[template(path = "console/people.html")]
struct PeoplePage {
    shell: PageLayout,
    rows: Vec<PersonRow>,
    next: Option<String>,
    first: Option<String>,
    keys: Vec<KeyRow>,
    /// Whether the catalog with the keys cannot be read.
    unreadable: bool,
    /// Number of signatures that a release needs, number that a change of the keys needs, and root
    /// version.
    thresholds: Option<(usize, usize, u64)>,
    /// Whether the owner has the signing keys, and not this service.
    hosted: bool,
    here: String,
    may_write: bool,
    csrf: String,
}

/// `GET /console/{slug}/people`: lists the people and the keys.
pub(super) async fn list_people(page: ConsolePage) -> Result<Response, ErrorPage> {
    let home = page.address("/people");
    let after = page.list_cursor().map(str::to_owned);
    let listed = Page {
        limit: ROWS_SHOWN,
        after: after.clone(),
    };
    let Items { items, next } = read_users_page(page.app(), &page.namespace.id, &listed).await?;
    // An owner must be able to remove a person even while the catalog with the keys cannot be read.
    let (chain, unreadable) = match current_root_chain(&page).await {
        Ok(chain) => (chain, false),
        Err(error) => {
            let error = error_chain(&error);
            tracing::warn!(error, "the keys of a vault cannot be shown");
            (None, true)
        }
    };
    let row = |user: &User| PersonRow {
        href: format!("{home}/{}", user.id),
        email: user.email.to_string(),
        role: role_name(user.role),
        scopes: scopes_text(user.scopes),
        profile: user.profile.clone(),
        invited_until: user.invitation_ends_at().map(format_minute),
        seen: user.last_seen_at.map(format_day),
        this: user.id == page.user.id,
    };
    let thresholds = chain.as_ref().map(|chain| {
        let document = chain.document();
        let release = document.release().threshold();
        (release, document.root().threshold(), chain.version())
    });
    let template = PeoplePage {
        shell: PageLayout::for_page(&page),
        rows: items.iter().map(row).collect(),
        next: next.map(|next| with_query(&home, &[("after", &next)])),
        first: after.map(|_| home.clone()),
        keys: chain.as_deref().map(list_keys).unwrap_or_default(),
        unreadable,
        thresholds,
        hosted: page.namespace.kind == Kind::Hosted,
        may_write: page.may_write(),
        here: home,
        csrf: page.form_token(),
    };
    Ok(show_page(&template))
}

const fn scopes_text(scopes: Scopes) -> &'static str {
    match (scopes.has(Scope::Read), scopes.has(Scope::Write)) {
        (true, true) => "reads and writes",
        (true, false) => "reads",
        (false, true) => "writes",
        (false, false) => "nothing",
    }
}

/// Returns the keys in the newest root version, each with the version since which it has had its
/// role without a break.
fn list_keys(chain: &RootChain) -> Vec<KeyRow> {
    let versions = chain.versions();
    let since = |has: &dyn Fn(usize) -> bool| {
        // Counted from the newest version back to the first gap: a key that lost a role and got it
        // again has it since then.
        let first_index = (0..versions.len()).rev().take_while(|at| has(*at)).last()?;
        let document = versions.get(first_index)?.document();
        Some(RoleStart {
            version: document.version(),
            at: format_day(document.issued_at()),
        })
    };
    let document = chain.document();
    let entries = document.keys().iter();
    let key = |entry: &KeyEntry| {
        let key = &entry.public_key;
        let document = |at: usize| versions.get(at).map(RootVersion::document);
        let signs = |at| document(at).is_some_and(|it| it.release().contains(key));
        let changes = |at| document(at).is_some_and(|it| it.root().contains(key));
        KeyRow {
            name: entry.name.as_str().to_owned(),
            fingerprint: KeyFingerprint::publisher(key).to_string(),
            publishes: since(&signs),
            changes_keys: since(&changes),
        }
    };
    entries.map(key).collect()
}

/// `POST /console/{slug}/people`: invites a person.
pub(super) async fn invite_person(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let newcomer = NewMember {
        email: parse_email(form.required_field("email")?)?,
        role: parse_role(form.required_field("role")?)?,
        scopes: parse_scopes(&form),
    };
    let by = Principal::from_user(form.page.as_acting_user(), &form.page.user);
    let invitation = invite_user(&by, &newcomer).await;
    let outcome = form.confirm_outcome(newcomer.act(), invitation);
    Ok(match outcome.await? {
        Ok(_) => form.redirect_back(Outcome::PersonInvited),
        Err(to_confirmation) => to_confirmation,
    })
}

fn parse_email(text: &str) -> Result<Email, Refusal> {
    text.trim()
        .parse()
        .map_err(|_| ErrorCode::EmailInvalid.into())
}

fn parse_role(word: &str) -> Result<Role, ErrorPage> {
    let roles = [Role::Owner, Role::Publisher, Role::Member];
    let mut roles = roles.into_iter();
    let role = roles.find(|role| role_name(*role) == word);
    role.ok_or(ErrorPage::FormMalformed)
}

fn parse_scopes(form: &ConsoleForm) -> Scopes {
    form.form
        .all("scope")
        .filter_map(|word| word.parse::<Scope>().ok())
        .collect()
}

#[derive(Template)]
#[template(path = "console/person.html")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a condition of the template"
)]
struct PersonPage {
    shell: PageLayout,
    list_href: String,
    here: String,
    email: String,
    state: &'static str,
    invited: bool,
    invited_until: Option<String>,
    invited_by: Option<String>,
    /// The app that invited the person; `None` if a person did in the console.
    invited_through: Option<String>,
    role: &'static str,
    reads: bool,
    writes: bool,
    profile: String,
    since: String,
    seen: Option<String>,
    /// Browsers in which the person is signed in; `None` if there are none.
    browsers: Option<BrowserSummary>,
    id: String,
    audit_href: String,
    /// Address of the audit log, filtered to entries about the person.
    about_href: String,
    /// Address of the list of skills as this person sees it; `None` before they accept.
    skills_href: Option<String>,
    account_href: String,
    this: bool,
    /// Whether the page asks to confirm the end of the membership.
    confirms: bool,
    may_write: bool,
    csrf: String,
}

/// The browsers in which a person is signed in: their number, and the time of the newest sign-in.
struct BrowserSummary {
    count: usize,
    since: String,
}

/// Counts the browsers in which a person is signed in; `None` before they accept, and if there are
/// none.
async fn count_browsers(
    page: &ConsolePage,
    user: &User,
) -> Result<Option<BrowserSummary>, StoreError> {
    let Some(account) = user.account() else {
        return Ok(None);
    };
    let found = signed_in_browsers(page.app(), &account).await?;
    Ok(found.map(|(count, since)| BrowserSummary {
        count,
        since: format_minute(since),
    }))
}

/// `GET /console/{slug}/people/{id}`: shows one person, with the forms that change their role,
/// rights and profile.
pub(super) async fn show_person(page: ConsolePage) -> Result<Response, ErrorPage> {
    let by = Principal::from_user(page.as_acting_user(), &page.user);
    let found = find_user(&by, page.param("id")).await;
    let user = found.map_err(to_error_page)?;
    let invited = user.state() == State::Invited;
    let audit = page.address("/audit");
    let mut names = Names::default();
    names
        .add_apps(page.app(), &page.namespace, &user.client)
        .await?;
    let template = PersonPage {
        shell: PageLayout::for_page(&page),
        list_href: page.address("/people"),
        here: page.address(&format!("/people/{}", user.id)),
        email: user.email.to_string(),
        state: if invited { "Invited" } else { "Active" },
        invited,
        invited_until: user.invitation_ends_at().map(format_minute),
        invited_by: user.invited_by.as_ref().map(ToString::to_string),
        invited_through: user.client.as_ref().map(|id| names.app_name(id)),
        role: role_name(user.role),
        reads: user.scopes.has(Scope::Read),
        writes: user.scopes.has(Scope::Write),
        profile: user.profile.clone().unwrap_or_default(),
        since: format_day(user.created_at),
        seen: user.last_seen_at.map(format_minute),
        browsers: count_browsers(&page, &user).await?,
        audit_href: with_query(&audit, &[("actor", &*user.id)]),
        about_href: with_query(&audit, &[("target", &*user.id)]),
        skills_href: (!invited)
            .then(|| with_query(&page.address("/skills"), &[("who", &*user.id)])),
        account_href: page.app().config.public_url.prefix().to_owned() + ACCOUNT_PATH,
        confirms: !invited && page.may_write() && page.query.value("confirm") == Some("remove"),
        this: user.id == page.user.id,
        may_write: page.may_write(),
        csrf: page.form_token(),
        id: user.id,
    };
    Ok(show_page(&template))
}

/// `POST /console/{slug}/people/{id}`: changes the role, rights or profile of a person, or removes
/// them.
pub(super) async fn change_person(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let by = Principal::from_user(form.page.as_acting_user(), &form.page.user);
    let id = form.page.param("id");
    find_user(&by, id).await.map_err(to_error_page)?;
    match form.required_field("change")? {
        "role" => {
            let role = parse_role(form.required_field("role")?)?;
            // A role decides what a person can do at most, so its change needs a confirmation.
            // Scopes and profile only restrict that.
            let change = change_role(&by, id, role).await;
            Ok(
                match form.confirm_outcome(role_act(id, role), change).await? {
                    Ok(_) => form.redirect_back(Outcome::RoleChanged),
                    Err(to_confirmation) => to_confirmation,
                },
            )
        }
        "scopes" => {
            // The form shows all rights, so one that is not ticked is taken away.
            let granted = parse_scopes(&form);
            grant_scopes(&by, id, (granted, Scopes::ALL.without(granted))).await?;
            Ok(form.redirect_back(Outcome::ScopesChanged))
        }
        "profile" => {
            let profile = form.form.value("profile").map(str::trim);
            let profile = profile.filter(|name| !name.is_empty()).map(str::to_owned);
            change_profile(&by, id, profile).await?;
            Ok(form.redirect_back(Outcome::ProfileChanged))
        }
        "remove" => remove_person(&form, &by, id).await,
        _ => Err(ErrorPage::FormMalformed),
    }
}

/// Ends a membership, for which the person must confirm, or withdraws an invitation.
async fn remove_person(
    form: &ConsoleForm,
    by: &Principal<'_>,
    id: &str,
) -> Result<Response, ErrorPage> {
    let removal = remove_user(by, id).await;
    Ok(
        match form.confirm_outcome(removal_act(id), removal).await? {
            Ok(removed) => show_removal(form, &removed),
            Err(to_confirmation) => to_confirmation,
        },
    )
}

/// Redirects after a removal to a page that the person can still open.
pub(super) fn show_removal(form: &ConsoleForm, removed: &User) -> Response {
    if removed.id == form.page.user.id {
        // A person who is no longer a member cannot open a page of the vault.
        form.redirect_to_choice(Outcome::MembershipEnded)
    } else if removed.state() == State::Invited {
        form.redirect_to("/people", Outcome::InvitationWithdrawn)
    } else {
        form.redirect_to("/people", Outcome::PersonRemoved)
    }
}
