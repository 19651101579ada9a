//! `/console/{slug}`: the state of a vault, what waits for a decision, and what to do next.

use askama::Template;
use axum::response::Response;
use vault_api::DraftCounts;
use vault_format::time::Timestamp;
use vault_store::StoreError;

use super::catalogs::missing_catalog;
use super::content::log_unreadable;
use super::fleet::Fleet;
use super::guard::ConsolePage;
use super::machines::link_command;
use super::page::{PageLayout, show_page};
use super::{Access, Cache};
use crate::admin::vaults::count_drafts;
use crate::app::App;
use crate::model::device::DeviceStatus;
use crate::model::namespace::{Kind, Namespace};
use crate::model::notice::Destinations;
use crate::notices::describe_failure;
use crate::units::format_count;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{format_day, format_minute};

/// Number of days before the expiry of a release from which on the page suggests to sign it again.
const ENDS_SOON_DAYS: i64 = 14;
const DAY: i64 = 24 * 3600;

struct ReleaseStatus {
    number: u64,
    skills: u64,
    published: String,
    expiry: Expiry,
}

/// Time until which machines accept the current release.
enum Expiry {
    At {
        until: String,
        /// Number of midnights (UTC) until then; negative once it is over.
        days_left: i64,
        is_over: bool,
    },
    /// An earlier version of vault published the release.
    Unknown,
    /// The catalog of the release cannot be read.
    Unreadable,
}

impl Expiry {
    fn ending_at(expires_at: Timestamp, now: Timestamp) -> Self {
        // Midnights are counted and not spans of 24 hours, so that "1 day" always means tomorrow.
        let day = |at: Timestamp| at.unix().div_euclid(DAY);
        Self::At {
            until: format_minute(expires_at),
            days_left: day(expires_at) - day(now),
            is_over: expires_at <= now,
        }
    }

    /// Whether the release should be signed again soon.
    const fn is_soon(&self) -> bool {
        match self {
            Self::At { days_left, .. } => *days_left < ENDS_SOON_DAYS,
            Self::Unknown => true,
            Self::Unreadable => false,
        }
    }
}

/// Row of the page: things that wait for a decision, such as "2 machines ask for access".
struct WaitingItem {
    text: String,
    href: String,
}

/// A suggestion of what to do next.
struct NextStep {
    text: &'static str,
    commands: Vec<String>,
}

/// The machines of the vault, which only owners see.
struct FleetSummary {
    admitted: usize,
    /// Number of machines without the current release.
    behind: usize,
    /// Number of machines that were counted, if the vault has more.
    only: Option<usize>,
    href: String,
    behind_href: String,
}

/// A webhook that has failed since it last accepted a notice.
struct FailingWebhook {
    address: String,
    since: String,
    /// Whether the service has stopped sending to the webhook.
    is_off: bool,
    why: String,
}

#[derive(Template)]
#[template(path = "console/overview.html")]
struct OverviewPage {
    shell: PageLayout,
    slug: String,
    /// Events since the previous sign-in.
    notices: Vec<String>,
    lapsed: bool,
    /// Day on which the grace period ends, while it runs.
    grace_ends: Option<String>,
    /// Day on which the pin was reset, for as long as owners are told.
    pin_reset: Option<String>,
    /// Empty for viewers who are not owners.
    webhooks: Vec<FailingWebhook>,
    waiting: Vec<WaitingItem>,
    release: Option<ReleaseStatus>,
    fleet: Option<FleetSummary>,
    steps: Vec<NextStep>,
}

#[derive(Template)]
#[template(path = "console/member.html")]
struct MemberPage {
    shell: PageLayout,
    slug: String,
    mcp: String,
    link_command: String,
}

/// Shows the overview. A member without a further role sees how to use the vault instead.
pub(super) async fn show_overview(page: ConsolePage) -> Result<Response, ErrorPage> {
    let slug = page.namespace.slug.to_string();
    if !page.may_open(Access::Publisher) {
        let template = MemberPage {
            shell: PageLayout::for_page(&page),
            slug,
            mcp: format!("{}/mcp", page.app().config.public_url.base()),
            link_command: link_command(&page),
        };
        return Ok(show_page(&template));
    }
    let (app, namespace) = (page.app(), &page.namespace);
    let now = app.clock.now();
    let drafts = count_drafts(app, namespace).await?;
    let release = shown_release(app, &page.cache, namespace, now).await;
    // Only owners see machines, so they are not read for other people.
    let fleet = if page.may_open(Access::Owner) {
        Some(Fleet::read_machines(app, namespace).await?)
    } else {
        None
    };
    let webhooks = if page.may_open(Access::Owner) {
        failing_webhooks(app, namespace).await?
    } else {
        Vec::new()
    };
    let reset = namespace.shown_reset(now);
    let template = OverviewPage {
        shell: PageLayout::for_page(&page),
        slug,
        notices: page.visitor.signed_in.session.notices.clone(),
        grace_ends: namespace.subscription.grace_ends_at(now).map(format_day),
        lapsed: !namespace.subscription.is_live(now),
        pin_reset: reset.map(|reset| format_day(reset.at)),
        webhooks,
        waiting: list_waiting(&page, &drafts, fleet.as_ref()),
        steps: suggest_steps(&page, release.as_ref(), fleet.as_ref()),
        fleet: fleet.map(|fleet| shown_fleet(&page, &fleet)),
        release,
    };
    Ok(show_page(&template))
}

async fn failing_webhooks(
    app: &App,
    namespace: &Namespace,
) -> Result<Vec<FailingWebhook>, StoreError> {
    let (destinations, _) = Destinations::find(app, &namespace.id).await?;
    let failing = destinations.webhooks.iter().filter_map(|webhook| {
        Some(FailingWebhook {
            address: webhook.address.to_string(),
            since: format_day(webhook.failing_since?),
            is_off: webhook.off_since.is_some(),
            why: describe_failure(&app.config),
        })
    });
    Ok(failing.collect())
}

fn shown_fleet(page: &ConsolePage, fleet: &Fleet) -> FleetSummary {
    let current = page.namespace.current.as_ref();
    let href = page.address("/machines");
    FleetSummary {
        admitted: fleet.count_status(DeviceStatus::Active),
        only: fleet.more.then_some(fleet.machines.len()),
        behind: fleet.count_behind(current.map(|current| current.release)),
        behind_href: format!("{href}?status=behind"),
        href,
    }
}

async fn shown_release(
    app: &App,
    cache: &Cache,
    namespace: &Namespace,
    now: Timestamp,
) -> Option<ReleaseStatus> {
    let current = namespace.current.as_ref()?;
    let expiry = match log_unreadable(expires_at(app, cache, namespace).await) {
        Some(Some(expires_at)) => Expiry::ending_at(expires_at, now),
        Some(None) => Expiry::Unknown,
        None => Expiry::Unreadable,
    };
    Some(ReleaseStatus {
        number: current.release,
        skills: current.skills,
        published: format_minute(current.published_at),
        expiry,
    })
}

/// Returns the expiry of the current release; `None` if an earlier version of vault published it.
async fn expires_at(
    app: &App,
    cache: &Cache,
    namespace: &Namespace,
) -> Result<Option<Timestamp>, StoreError> {
    let Some(current) = namespace.readable_current() else {
        return Ok(None);
    };
    // Cached separately from the catalog, which is large and soon displaced from its cache.
    let key = (namespace.id, current.sha256);
    if let Some(ends) = cache.ends.find(&key) {
        return Ok(Some(ends));
    }
    let (file, payload) = (current.sha256, current.payload_sha256);
    let catalog = cache
        .catalogs
        .get_catalog(app, namespace, file, payload)
        .await?;
    let ends = catalog.ok_or_else(missing_catalog)?.expires_at;
    cache.ends.insert_value(key, ends, size_of::<Timestamp>());
    Ok(Some(ends))
}

/// Lists what waits for a decision: a row with a number for each kind.
fn list_waiting(
    page: &ConsolePage,
    drafts: &DraftCounts,
    fleet: Option<&Fleet>,
) -> Vec<WaitingItem> {
    let machines = fleet.map_or(0, |fleet| fleet.count_status(DeviceStatus::Pending));
    let machines = u64::try_from(machines).unwrap_or(u64::MAX);
    // Machines that were not read may wait as well.
    let least = match fleet {
        Some(fleet) if fleet.more => "At least ",
        _ => "",
    };
    let (machines_href, drafts_href) = (
        page.address("/machines?status=pending"),
        page.href_of("Drafts").unwrap_or_default(),
    );
    let wait = |number, one, many, href: &str| {
        (number > 0).then(|| WaitingItem {
            text: format_count(number, one, many),
            href: href.to_owned(),
        })
    };
    let of_machines = wait(
        machines,
        "machine asks for access",
        "machines ask for access",
        &machines_href,
    );
    [
        of_machines.map(|wait| WaitingItem {
            text: format!("{least}{}", wait.text),
            ..wait
        }),
        wait(
            drafts.pending,
            "draft of a skill",
            "drafts of skills",
            &drafts_href,
        ),
        wait(
            drafts.proposals,
            "proposed release lacks signatures",
            "proposed releases lack signatures",
            &drafts_href,
        ),
        wait(
            drafts.key_requests,
            "person asks to publish with a key",
            "people ask to publish with a key",
            &drafts_href,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Suggests what to do next, with the commands for it.
fn suggest_steps(
    page: &ConsolePage,
    release: Option<&ReleaseStatus>,
    fleet: Option<&Fleet>,
) -> Vec<NextStep> {
    let (base, slug) = (page.app().config.public_url.base(), &page.namespace.slug);
    let hosted = page.namespace.kind == Kind::Hosted;
    let mut steps = Vec::new();
    match release {
        None if hosted => steps.push(NextStep {
            text: "Publish your first release. On the machine that holds your skills, connect it to this vault and publish:",
            commands: vec![
                format!("vault cloud connect {base}/v/{slug}"),
                "vault sync".to_owned(),
            ],
        }),
        Some(release) if hosted && release.expiry.is_soon() => steps.push(NextStep {
            text: "Machines stop accepting a release when it expires. Sign the release again:",
            commands: vec!["vault sync --renew".to_owned()],
        }),
        _ => {}
    }
    // There is no suggestion if the machines are unknown: to a publisher, who may not see them, or
    // because the vault has more than were read.
    let has_machines =
        fleet.is_none_or(|fleet| fleet.more || fleet.count_status(DeviceStatus::Active) > 0);
    if release.is_some() && !has_machines {
        steps.push(NextStep {
            text: "Get the skills onto a machine. On that machine, run:",
            commands: vec![link_command(page)],
        });
    }
    if release.is_some() {
        steps.push(NextStep {
            text: "Connect an AI agent to this MCP server:",
            commands: vec![format!("{base}/mcp")],
        });
    }
    if release.is_some() && hosted {
        steps.push(NextStep {
            text: "To publish changes, run this on the machine that holds your skills:",
            commands: vec!["vault sync".to_owned()],
        });
    }
    steps
}
