//! `GET /`: shows a signed-in person the state of each of their vaults, with the next step. Any
//! other browser gets the page that describes the service.

use askama::Template;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use vault_format::text::error_chain;
use vault_store::StoreError;

use super::provisioning::{self, Progress};
use super::subscriptions::{Remedy, find_remedy, plan_offer};
use crate::accounts::memberships;
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::Account;
use crate::model::namespace::{self, Kind, Namespace};
use crate::model::provisioning::{NextAction, Provisioning, Step, StepName, StepState, next_step};
use crate::model::user::{Role, role_with_article};
use crate::web::browser::{Browser, CONSOLE_PATH, NEW_VAULT_PATH, ReturnTo, SignedIn};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, SignOut, format_day, format_minute};
use crate::web::welcome;

pub(crate) const fn step_text(step: StepName) -> &'static str {
    match step {
        StepName::StarterSkills => "Choose starter skills",
        StepName::PaidAccess => "Confirm the payment",
        StepName::Namespace => "Create the vault",
        StepName::CloudImport => "Save the starter skills as drafts",
        StepName::FirstSync => "Publish the first release",
    }
}

pub(crate) const fn step_state(step: Step) -> &'static str {
    match (step.needed, step.state) {
        (false, _) => "not needed",
        (true, StepState::Done) => "done",
        (true, StepState::Pending) => "pending",
    }
}

struct StepRow {
    text: &'static str,
    state: &'static str,
}

/// What the page says about the payment for a sign-up or a vault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PaymentNotice {
    /// The sign-up or subscription is not paid; the page offers the checkout.
    Due,
    /// A payment arrived but was refused, for example because it was not for the chosen plan.
    Refused,
    /// A payment arrived, but the provider has not reported its price yet.
    PriceAwaited,
    /// The provider is processing a first payment.
    Processing,
    /// A subscription for the plan has an open invoice.
    InvoiceOpen,
    /// A subscription pays another price than those of the plan.
    OtherPrice,
    /// The plan is no longer for sale, but the person may choose another one.
    OffSale,
    /// The plan is no longer for sale, and only the operator can help.
    NoOffer,
}

impl PaymentNotice {
    fn of_remedy(app: &App, sign_up: &Provisioning, remedy: Remedy) -> Self {
        let hosting = &app.config.hosting;
        let is_vault = sign_up.namespace.is_some();
        let is_offered = plan_offer(hosting, sign_up).is_some();
        match remedy {
            Remedy::AwaitPayment => Self::Processing,
            Remedy::AwaitPrice => Self::PriceAwaited,
            Remedy::PayInvoice => Self::InvoiceOpen,
            // Before there is a vault, only the operator sees which price was paid.
            Remedy::ChangePrice if !is_vault => Self::Refused,
            Remedy::ChangePrice if is_offered => Self::OtherPrice,
            Remedy::Subscribe if sign_up.refused_at.is_some() => Self::Refused,
            Remedy::Subscribe if is_offered => Self::Due,
            // A vault keeps its plan. A name that was reserved with a plan does not become a free
            // vault.
            Remedy::Subscribe if !is_vault && hosting.sign_up && !hosting.plans.is_empty() => {
                Self::OffSale
            }
            Remedy::Subscribe | Remedy::ChangePrice => Self::NoOffer,
        }
    }

    /// Whether the page may offer a checkout without the risk that the person pays twice.
    const fn allows_checkout(self) -> bool {
        matches!(self, Self::Due | Self::Refused | Self::OtherPrice)
    }
}

/// What the page shows of a sign-up that has no vault yet.
struct SignUpSummary {
    slug: String,
    /// Random id of the sign-up, which the form for a new name sends.
    reference: String,
    plan: Option<String>,
    steps: Vec<StepRow>,
    /// Address of the checkout page, if the person should pay now.
    checkout: Option<String>,
    payment: PaymentNotice,
    /// Address of the provider's page for invoices, if there is a subscription.
    billing: Option<String>,
    /// End of the reservation of the name, while the sign-up waits for a payment; `None` once it
    /// has ended.
    reserved_until: Option<String>,
    /// Whether another vault has taken the name.
    name_taken: bool,
}

/// What the page shows of a vault that the person is a member of.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a condition of the template"
)]
struct VaultOverview {
    slug: String,
    address: String,
    role: &'static str,
    /// Whether the person is a publisher or an owner.
    publishes: bool,
    /// Description of the current release, if there is one.
    release: Option<String>,
    /// Set-up steps; empty once all are done, and for members who are not owners.
    steps: Vec<StepRow>,
    /// Whether the next step is that the owner publishes the first release.
    sync_next: bool,
    /// Whether the service signs the releases of this vault itself (`vault serve`).
    self_signed: bool,
    /// Number of starter skills that were saved as drafts.
    drafts: usize,
    /// End of the grace period after a failed payment, while it runs.
    grace_ends: Option<String>,
    /// What the page tells an owner about the payment, if the subscription has lapsed.
    lapsed: Option<PaymentNotice>,
    console: String,
    owns: bool,
    /// Address of the provider's page for invoices and cancellation; only for an owner of a paid
    /// vault.
    billing: Option<String>,
    /// Address of the checkout page, if a new subscription helps.
    checkout: Option<String>,
}

#[derive(Template)]
#[template(path = "front.html")]
struct HomePage {
    frame: Frame,
    email: String,
    problem: Option<String>,
    csrf: String,
    sign_up: bool,
    sign_ups: Vec<SignUpSummary>,
    vaults: Vec<VaultOverview>,
    sign_out: SignOut,
}

pub fn home_path(app: &App) -> String {
    format!("{}/", app.config.public_url.prefix())
}

/// `GET /`: shows the home page to a signed-in browser, and the description of the service to any
/// other.
pub async fn show_home(app: &App, headers: &HeaderMap) -> Result<Response, ErrorPage> {
    let browser = Browser::from_headers(app, headers);
    match browser.load_signed_in(app).await? {
        None => Ok(welcome::welcome_page(
            &app.config.public_url,
            StatusCode::OK,
        )),
        Some(signed_in) => render_home(app, (&browser, &signed_in), StatusCode::OK, None).await,
    }
}

/// Renders the home page. First continues every sign-up of the person that was interrupted.
pub async fn render_home(
    app: &App,
    (browser, signed_in): (&Browser, &SignedIn),
    status: StatusCode,
    problem: Option<String>,
) -> Result<Response, ErrorPage> {
    let account = &signed_in.account;
    let mut unfinished_sign_ups = Vec::new();
    for sign_up in provisioning::load_sign_ups(app, &account.id).await? {
        if sign_up.namespace.is_none() {
            let email = account.email.as_str();
            unfinished_sign_ups.extend(summarize_sign_up(app, &sign_up, email).await?);
        }
    }
    let vaults = list_vaults(app, account).await?;
    let return_to = ReturnTo::Account.address(app);
    let page = HomePage {
        frame: Frame::for_service(&app.config.public_url),
        email: account.email.to_string(),
        problem,
        csrf: browser.form_token(app, Purpose::NewVault, NEW_VAULT_PATH),
        sign_up: app.config.hosting.sign_up,
        sign_ups: unfinished_sign_ups,
        vaults,
        sign_out: SignOut {
            csrf: browser.form_token(app, Purpose::Logout, &return_to),
            return_to,
        },
    };
    Ok(layout::render_page(status, &page, None))
}

/// Takes every step of a sign-up that is possible now, and returns its section of the page; `None`
/// if the sign-up has become a vault.
async fn summarize_sign_up(
    app: &App,
    sign_up: &Provisioning,
    email: &str,
) -> Result<Option<SignUpSummary>, ErrorPage> {
    // Only an event of the payment provider can advance a sign-up that waits for its payment, so no
    // step is tried.
    let advanced = match sign_up.next_action() {
        NextAction::Wait => Ok(Some(Progress::AwaitsPayment)),
        _ => provisioning::advance_sign_up(app, &sign_up.reference).await,
    };
    let progress = match advanced {
        Ok(Some(progress)) => progress,
        Ok(None) => return Ok(None),
        Err(error) => {
            // One failing sign-up must not hide the page: its step stays pending, and background
            // work tries again.
            tracing::warn!(
                error = error_chain(&error),
                "a vault that was signed up for is not set up yet"
            );
            Progress::Interrupted
        }
    };
    if progress == Progress::SetUp {
        return Ok(None);
    }
    let awaits = progress == Progress::AwaitsPayment;
    let reserved_until = sign_up.reserved_until();
    let is_reserved = app.clock.now() < reserved_until;
    let mut payment = PaymentNotice::Due;
    if awaits {
        let remedy = find_remedy(app, &app.config.hosting, sign_up).await?;
        payment = PaymentNotice::of_remedy(app, sign_up, remedy);
    }
    let checkout = checkout_address(app, sign_up, email);
    let checkout = checkout.filter(|_| awaits && payment.allows_checkout());
    Ok(Some(SignUpSummary {
        slug: sign_up.slug.to_string(),
        reference: sign_up.reference.to_string(),
        plan: sign_up.plan.clone(),
        steps: shown_steps(&sign_up.steps(false)),
        payment,
        checkout,
        billing: billing_page(app, sign_up),
        reserved_until: is_reserved.then(|| format_minute(reserved_until)),
        name_taken: progress == Progress::NameTaken,
    }))
}

/// Returns the vaults that an account is a member of, last used first.
async fn list_vaults(app: &App, account: &Account) -> Result<Vec<VaultOverview>, StoreError> {
    let members = memberships::load_members(app, account, None).await?;
    let keys = members.iter().map(|member| &member.user.namespace.slug);
    let keys: Vec<_> = keys.map(namespace::namespace_key).collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut roles = Vec::new();
    let mut namespaces = Vec::new();
    // One read for all of them, so that the page does not get slower with each vault.
    let records = app.records.get_many(&keys).await?;
    for (member, record) in members.iter().zip(records) {
        if let Some(namespace) = Versioned::<Namespace>::read(record)? {
            roles.push(member.user.role);
            namespaces.push(namespace.value);
        }
    }
    let sign_ups = provisioning::load_by_namespaces(app, &namespaces).await?;
    let mut vaults = Vec::new();
    for ((namespace, sign_up), role) in namespaces.iter().zip(sign_ups).zip(roles) {
        vaults.push(describe_vault(app, account, (namespace, sign_up), role).await?);
    }
    Ok(vaults)
}

/// Describes a vault as its section of the page.
async fn describe_vault(
    app: &App,
    account: &Account,
    (namespace, sign_up): (&Namespace, Option<Provisioning>),
    member: Role,
) -> Result<VaultOverview, StoreError> {
    let email = account.email.as_str();
    let steps = provisioning::setup_steps(namespace, sign_up.as_ref());
    // Set-up and payment concern only owners; other members see neither.
    let owns = member == Role::Owner;
    let next = next_step(&steps).filter(|_| owns);
    let sign_up = sign_up.filter(|_| owns);
    let now = app.clock.now();
    let lapsed = !namespace.subscription.is_live(now);
    let remedy = match &sign_up {
        Some(sign_up) if lapsed => Some(find_remedy(app, &app.config.hosting, sign_up).await?),
        _ => None,
    };
    let notice = match (remedy, &sign_up) {
        (Some(remedy), Some(sign_up)) => PaymentNotice::of_remedy(app, sign_up, remedy),
        _ => PaymentNotice::InvoiceOpen,
    };
    let checkout = match &sign_up {
        Some(sign_up) if lapsed && notice.allows_checkout() => {
            checkout_address(app, sign_up, email)
        }
        _ => None,
    };
    let release = namespace.current.as_ref().map(|current| {
        let skills = match current.skills {
            1 => "1 skill".to_owned(),
            skills => format!("{skills} skills"),
        };
        let on = format_day(current.published_at);
        format!("Release {} with {skills}, published {on}", current.release)
    });
    let billing = sign_up.as_ref();
    let billing = billing.and_then(|sign_up| billing_page(app, sign_up));
    let prefix = app.config.public_url.prefix();
    Ok(VaultOverview {
        console: format!("{prefix}{CONSOLE_PATH}/{}", namespace.slug),
        owns,
        billing,
        slug: namespace.slug.to_string(),
        address: app
            .config
            .public_url
            .join(&format!("/v/{}", namespace.slug)),
        role: role_with_article(member),
        publishes: member.can_publish(),
        release,
        steps: next.map_or_else(Vec::new, |_| shown_steps(&steps)),
        self_signed: namespace.kind == Kind::SelfSigned,
        sync_next: next == Some(StepName::FirstSync),
        drafts: sign_up.map_or(0, |sign_up| sign_up.starter_skills.len()),
        grace_ends: namespace.subscription.grace_ends_at(now).map(format_minute),
        lapsed: lapsed.then_some(notice),
        checkout,
    })
}

/// Returns the address of the provider's page for invoices and cancellation, if the sign-up has a
/// subscription.
fn billing_page(app: &App, sign_up: &Provisioning) -> Option<String> {
    sign_up.subscription.as_ref()?;
    let page = app.config.hosting.billing.as_ref()?;
    Some(page.to_string())
}

/// Returns the address of the checkout page; `None` when the plan is no longer for sale.
fn checkout_address(app: &App, sign_up: &Provisioning, email: &str) -> Option<String> {
    let plan = app.config.hosting.plan(sign_up.plan.as_deref()?)?;
    Some(plan.checkout(sign_up.reference.as_str(), email))
}

fn shown_steps(steps: &[Step]) -> Vec<StepRow> {
    let rows = steps.iter().map(|step| StepRow {
        text: step_text(step.step),
        state: step_state(*step),
    });
    rows.collect()
}
