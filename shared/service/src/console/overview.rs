//! `/console/{slug}`: how a vault stands, what waits, and what to do next.

use askama::Template;
use axum::response::Response;
use vault_format::time::Timestamp;
use vault_store::StoreError;

use super::catalogs::missing;
use super::fleet::Fleet;
use super::guard::ConsolePage;
use super::machines::link_command;
use super::page::{Shell, show as show_page};
use super::{Access, Cache};
use crate::admin::vaults::Drafts;
use crate::app::App;
use crate::model::device::DeviceStatus;
use crate::model::namespace::{Kind, Namespace};
use crate::oauth::pages::{day, minute};
use crate::oauth::stop::Stop;

/// A release that ends in fewer days than this is worth a new one.
const ENDS_SOON_DAYS: i64 = 14;
/// Seconds of a day.
const DAY: i64 = 24 * 3600;

/// The current release as the page shows it.
struct ShownRelease {
    number: u64,
    skills: u64,
    published: String,
    /// Until when machines take it, and how many whole days are left; `None` where an earlier version of
    /// vault published it.
    good_until: Option<(String, i64)>,
}

/// Something that waits for a decision.
struct Waiting {
    text: String,
    /// Where the decision is made.
    href: Option<String>,
    command: Option<&'static str>,
}

/// What to do next.
struct Step {
    text: &'static str,
    commands: Vec<String>,
}

/// How the machines of the vault stand, for owners.
struct ShownFleet {
    admitted: usize,
    behind: usize,
    href: String,
    behind_href: String,
}

#[derive(Template)]
#[template(path = "console/overview.html")]
struct OverviewPage {
    shell: Shell,
    slug: String,
    /// What happened since the sign-in before.
    notices: Vec<String>,
    lapsed: bool,
    /// The day on which the grace period ends, while it runs.
    grace_ends: Option<String>,
    /// The day on which the pin was reset, while owners are shown it.
    pin_reset: Option<String>,
    waiting: Vec<Waiting>,
    release: Option<ShownRelease>,
    fleet: Option<ShownFleet>,
    steps: Vec<Step>,
}

#[derive(Template)]
#[template(path = "console/member.html")]
struct MemberPage {
    shell: Shell,
    slug: String,
    mcp: String,
    link_command: String,
}

/// The overview; for members, how they use the vault.
pub(super) async fn show(page: ConsolePage) -> Result<Response, Stop> {
    let slug = page.namespace.slug.to_string();
    if !page.may(Access::Publisher) {
        let shown = MemberPage {
            shell: Shell::of(&page),
            slug,
            mcp: format!("{}/mcp", page.app().config.public_url.base()),
            link_command: link_command(&page),
        };
        return Ok(show_page(&shown));
    }
    let (app, namespace) = (page.app(), &page.namespace);
    let now = app.clock.now();
    let drafts = Drafts::count(app, namespace).await?;
    let release = shown_release(app, &page.memory, namespace, now).await?;
    let fleet = if page.may(Access::Owner) {
        Some(Fleet::read(app, namespace).await?)
    } else {
        None
    };
    let reset = namespace.shown_reset(now);
    let shown = OverviewPage {
        shell: Shell::of(&page),
        slug,
        notices: page.visitor.signed_in.session.notices.clone(),
        grace_ends: namespace.subscription.grace_ends_at(now).map(day),
        lapsed: !namespace.subscription.is_live(now),
        pin_reset: reset.map(|reset| day(reset.at)),
        waiting: waiting(&page, &drafts, fleet.as_ref()),
        steps: steps(&page, release.as_ref(), fleet.as_ref()),
        fleet: fleet.map(|fleet| shown_fleet(&page, &fleet)),
        release,
    };
    Ok(show_page(&shown))
}

fn shown_fleet(page: &ConsolePage, fleet: &Fleet) -> ShownFleet {
    let current = page.namespace.current.as_ref();
    let href = page.address("/machines");
    ShownFleet {
        admitted: fleet.count(DeviceStatus::Active),
        behind: fleet.behind(current.map(|current| current.release)),
        behind_href: format!("{href}?status=behind"),
        href,
    }
}

async fn shown_release(
    app: &App,
    memory: &Cache,
    namespace: &Namespace,
    now: Timestamp,
) -> Result<Option<ShownRelease>, StoreError> {
    let Some(current) = &namespace.current else {
        return Ok(None);
    };
    let good_until = match namespace.readable_current() {
        None => None,
        Some(current) => {
            let key = (namespace.id, current.sha256);
            let ends = match memory.ends.find(&key) {
                Some(ends) => ends,
                None => {
                    let (file, payload) = (current.sha256, current.payload_sha256);
                    let catalog = memory.catalogs.list(app, namespace, file, payload).await?;
                    let ends = catalog.ok_or_else(missing)?.expires_at;
                    memory.ends.insert(key, ends, size_of::<Timestamp>());
                    ends
                }
            };
            let left = (ends.unix() - now.unix()).max(0) / DAY;
            Some((minute(ends), left))
        }
    };
    Ok(Some(ShownRelease {
        number: current.release,
        skills: current.skills,
        published: minute(current.published_at),
        good_until,
    }))
}

/// A number of things in words.
fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}

fn waiting(page: &ConsolePage, drafts: &Drafts, fleet: Option<&Fleet>) -> Vec<Waiting> {
    let machines = fleet.map_or(0, |fleet| fleet.count(DeviceStatus::Pending));
    let machines = u64::try_from(machines).unwrap_or(u64::MAX);
    let list = Some("vault drafts list");
    let wait = |number, one, many, href, command| {
        (number > 0).then(|| Waiting {
            text: count(number, one, many),
            href,
            command,
        })
    };
    let machines_href = page.address("/machines?status=pending");
    [
        wait(
            machines,
            "machine asks for access",
            "machines ask for access",
            Some(machines_href),
            None,
        ),
        wait(
            drafts.pending,
            "draft of a skill",
            "drafts of skills",
            page.href_of("Drafts"),
            list,
        ),
        wait(
            drafts.proposals,
            "proposed release lacks signatures",
            "proposed releases lack signatures",
            page.href_of("Drafts"),
            list,
        ),
        wait(
            drafts.key_requests,
            "person asks to publish with a key",
            "people ask to publish with a key",
            page.href_of("Drafts"),
            list,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn steps(page: &ConsolePage, release: Option<&ShownRelease>, fleet: Option<&Fleet>) -> Vec<Step> {
    let (base, slug) = (page.app().config.public_url.base(), &page.namespace.slug);
    let hosted = page.namespace.kind == Kind::Hosted;
    let mut steps = Vec::new();
    match release {
        None if hosted => steps.push(Step {
            text: "Publish your first release. On the machine that holds your skills, connect it to this vault and publish:",
            commands: vec![
                format!("vault cloud connect {base}/v/{slug}"),
                "vault sync".to_owned(),
            ],
        }),
        Some(release) if hosted => {
            let ends_soon = release
                .good_until
                .as_ref()
                .is_none_or(|(_, left)| *left < ENDS_SOON_DAYS);
            if ends_soon {
                steps.push(Step {
                    text: "Machines stop taking a release at its end. Sign the release again:",
                    commands: vec!["vault sync --renew".to_owned()],
                });
            }
        }
        _ => {}
    }
    let has_machines = fleet.is_none_or(|fleet| fleet.count(DeviceStatus::Active) > 0);
    if release.is_some() && !has_machines {
        steps.push(Step {
            text: "Get the skills onto a machine. On that machine, run:",
            commands: vec![link_command(page)],
        });
    }
    if release.is_some() {
        steps.push(Step {
            text: "Connect an AI agent to this MCP server:",
            commands: vec![format!("{base}/mcp")],
        });
    }
    if release.is_some() && hosted {
        steps.push(Step {
            text: "To publish changes, run this on the machine that holds your skills:",
            commands: vec!["vault sync".to_owned()],
        });
    }
    steps
}
