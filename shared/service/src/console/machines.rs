//! `/console/{slug}/machines`: lists the machines of a vault, waiting ones first.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::Response;
use vault_api::DeniedMachines;

use super::fleet::{Fleet, HeldRelease, Machine};
use super::guard::{ConsoleForm, ConsolePage};
use super::names::Names;
use super::outcome::{Outcome, Unchanged};
use super::page::{PageLayout, Pager, show_page};
use crate::admin::devices::deny_pending;
use crate::model::device::DeviceStatus;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_day;

/// Value of the parameter `confirm` that asks to confirm the denial of waiting machines.
const DENY_PENDING: &str = "deny-pending";

/// Which machines the list shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MachineFilter {
    All,
    Status(DeviceStatus),
    Behind,
}

impl MachineFilter {
    /// The filters, with their words in the address and their names on the page.
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::All, "", "All machines"),
        (Self::Status(DeviceStatus::Pending), "pending", "Waiting"),
        (Self::Status(DeviceStatus::Active), "active", "Admitted"),
        (
            Self::Behind,
            "behind",
            "Admitted, without the current release",
        ),
        (
            Self::Status(DeviceStatus::Revoked),
            "revoked",
            "Denied or revoked",
        ),
    ];

    fn from_word(word: Option<&str>) -> Self {
        let word = word.unwrap_or_default();
        let entry = Self::ALL.iter().find(|(_, known, _)| *known == word);
        entry.map_or(Self::All, |(filter, _, _)| *filter)
    }

    fn matches_machine(self, machine: &Machine, current: Option<u64>) -> bool {
        match self {
            Self::All => true,
            Self::Status(status) => machine.device.status == status,
            Self::Behind => matches!(
                machine.held_release(current),
                HeldRelease::Never | HeldRelease::Behind(_)
            ),
        }
    }
}

/// Whether a machine has this text in its name, its id, or its fingerprint (with or without
/// hyphens).
fn matches_search(machine: &Machine, search: &str) -> bool {
    let search = search.to_lowercase();
    let bare = |text: &str| text.replace('-', "");
    let fingerprint = machine.fingerprint().to_string();
    machine.device.hostname.to_lowercase().contains(&search)
        || bare(&fingerprint).contains(&bare(&search))
        || machine.device.device_id.contains(&search)
}

/// Option of a selection field whose options are the same for every request.
pub(super) struct StaticOption {
    pub(super) word: &'static str,
    pub(super) title: &'static str,
    pub(super) chosen: bool,
}

/// A network from which machines wait for admission, with the link that denies them together.
struct WaitingNetwork {
    name: String,
    /// Address of the page that asks to confirm the denial of these machines.
    deny_href: String,
    count: usize,
}

/// The machines whose denial the page asks the person to confirm.
struct Denial {
    /// Network of the machines; `None` if the denial is for all waiting machines.
    network: Option<String>,
    /// Names of the machines, for the person to check.
    names: Vec<String>,
    /// Ids of the machines, separated by blanks, for the form.
    ids: String,
}

struct MachineRow {
    href: String,
    name: String,
    fingerprint: String,
    status: DeviceStatus,
    enrolled: String,
    /// Network from which the machine enrolled, while it waits.
    network: Option<String>,
    last_seen: String,
    held: String,
    behind: bool,
    decided_by: Option<String>,
}

#[derive(Template)]
#[template(path = "console/machines.html")]
struct MachinesPage {
    shell: PageLayout,
    csrf: String,
    /// Path of this page without parameters, to which its forms and filters add theirs.
    here: String,
    codes_href: String,
    waiting: usize,
    /// Networks of the waiting machines, if there are several.
    networks: Vec<WaitingNetwork>,
    /// The denial that the page asks to confirm.
    denial: Option<Denial>,
    may_write: bool,
    filters: Vec<StaticOption>,
    search: String,
    is_filtered: bool,
    rows: Vec<MachineRow>,
    pager: Pager,
    /// Whether there are more machines than the page reads.
    more: bool,
    link_command: String,
}

pub(super) async fn show_machines(page: ConsolePage) -> Result<Response, ErrorPage> {
    let (app, namespace) = (page.app(), &page.namespace);
    let current = namespace.current.as_ref().map(|current| current.release);
    let fleet = Fleet::read_machines(app, namespace).await?;
    let waiting = fleet.count_status(DeviceStatus::Pending);
    let denial = to_denial(&page, &fleet);
    let networks = waiting_networks(&page, &fleet);
    let word = page.query.value("status").unwrap_or_default();
    let search = page.query.value("search").unwrap_or_default().trim();
    let filter = MachineFilter::from_word(Some(word));
    let is_filtered = filter != MachineFilter::All || !search.is_empty();
    let passing = fleet.machines.into_iter();
    let passing: Vec<_> = passing
        .filter(|one| {
            filter.matches_machine(one, current)
                && (search.is_empty() || matches_search(one, search))
        })
        .collect();
    let here = page.address("/machines");
    let pager = Pager::from_query(&page, "machines", passing.len(), |number| {
        let number = number.to_string();
        // Links keep the filters, so that a search can be paged through.
        let parameters = [("status", word), ("search", search), ("page", &number)];
        let given = parameters
            .into_iter()
            .filter(|(_, value)| !value.is_empty());
        with_query(&here, &given.collect::<Vec<_>>())
    });
    let page_machines = pager.take_rows(passing);
    // Names are only read for the rows of this page.
    let deciders = page_machines
        .iter()
        .filter_map(|one| one.device.decided_by.as_deref());
    let names = Names::read_users(app, namespace, deciders).await?;
    let rows = page_machines
        .iter()
        .map(|one| to_row(one, &here, current, &names));
    let filters = MachineFilter::ALL
        .iter()
        .map(|(choice, word, title)| StaticOption {
            word,
            title,
            chosen: *choice == filter,
        });
    let template = MachinesPage {
        shell: PageLayout::for_page(&page),
        csrf: page.form_token(),
        codes_href: page.address("/machines/codes"),
        waiting,
        networks,
        denial,
        may_write: page.may_write(),
        filters: filters.collect(),
        search: search.to_owned(),
        is_filtered,
        rows: rows.collect(),
        pager,
        more: fleet.more,
        link_command: link_command(&page),
        here,
    };
    Ok(show_page(&template))
}

/// Counts the waiting machines of each network. Returns nothing if all are from one network.
fn waiting_networks(page: &ConsolePage, fleet: &Fleet) -> Vec<WaitingNetwork> {
    let mut counts = BTreeMap::new();
    let waiting = fleet.machines.iter();
    for network in waiting.filter_map(|machine| machine.device.waiting_network()) {
        *counts.entry(network).or_insert(0) += 1;
    }
    if counts.len() < 2 {
        return Vec::new();
    }
    let here = page.address("/machines");
    let networks = counts.into_iter().map(|(name, count)| WaitingNetwork {
        name: name.to_owned(),
        deny_href: with_query(&here, &[("confirm", DENY_PENDING), ("network", name)]),
        count,
    });
    networks.collect()
}

/// Returns the denial that the address of the page asks for; `None` if no such machine waits any
/// more, for example after an outdated link.
fn to_denial(page: &ConsolePage, fleet: &Fleet) -> Option<Denial> {
    if page.query.value("confirm") != Some(DENY_PENDING) {
        return None;
    }
    let network = page.query.value("network");
    let devices = fleet.machines.iter().map(|machine| &machine.device);
    let devices = devices.filter(|device| {
        let waits_in = device.waiting_network();
        waits_in.is_some() && (network.is_none() || waits_in == network)
    });
    let (names, ids): (Vec<_>, Vec<_>) = devices
        .map(|device| (device.name(), device.device_id.as_str()))
        .unzip();
    (!ids.is_empty()).then(|| Denial {
        network: network.map(str::to_owned),
        ids: ids.join(" "),
        names,
    })
}

/// Returns the command line by which a machine asks for admission.
pub(super) fn link_command(page: &ConsolePage) -> String {
    let base = page.app().config.public_url.base();
    format!("vault link {base}/v/{}", page.namespace.slug)
}

fn to_row(machine: &Machine, here: &str, current: Option<u64>, names: &Names) -> MachineRow {
    let (device, held) = (&machine.device, machine.held_release(current));
    MachineRow {
        href: format!("{here}/{}", device.device_id),
        name: device.name(),
        fingerprint: machine.fingerprint().to_string(),
        status: device.status,
        enrolled: format_day(device.enrolled_at),
        network: device.waiting_network().map(str::to_owned),
        last_seen: last_seen(machine),
        held: held_text(held),
        behind: matches!(held, HeldRelease::Never | HeldRelease::Behind(_)),
        decided_by: decided_by(machine, names),
    }
}

/// Returns the day of the machine's last call as pages write days: `1 Dec 2026`.
pub(super) fn last_seen(machine: &Machine) -> String {
    let visit = machine.visit.as_ref();
    // Visits are recorded by day, without a time.
    let last_day = visit.and_then(|visit| format!("{}T00:00:00Z", visit.day).parse().ok());
    last_day.map_or_else(|| "never".to_owned(), format_day)
}

pub(super) fn held_text(held: HeldRelease) -> String {
    match held {
        HeldRelease::Nothing => "–".to_owned(),
        HeldRelease::Current => "current".to_owned(),
        HeldRelease::Never => "none yet".to_owned(),
        HeldRelease::Behind(release) => format!("release {release}"),
    }
}

/// Returns the name of the person or enrolment code that decided about a machine; `None` before a
/// decision, and if an earlier version of vault did not record it.
pub(super) fn decided_by(machine: &Machine, names: &Names) -> Option<String> {
    machine
        .device
        .decided_by
        .as_deref()
        .map(|id| names.display_name(id))
}

/// `POST /console/{slug}/machines`: denies the machines that the page showed, as far as they still
/// wait.
pub(super) async fn deny_shown_machines(form: ConsoleForm) -> Result<Response, ErrorPage> {
    // A machine that enrolled after the page was shown must not be denied unseen, and must not keep
    // the person from denying the others.
    let ids = form.required_field("machines")?.split(' ');
    let asked = DeniedMachines {
        network: None,
        devices: Some(ids.map(str::to_owned).collect()),
    };
    let denied = deny_pending(form.page.as_acting_user(), &asked).await?;
    if denied.is_empty() {
        return Ok(form.redirect_refused(Unchanged::NoneWaits));
    }
    Ok(form.redirect_back(Outcome::MachinesDenied))
}

#[cfg(test)]
mod tests {
    use vault_format::keys::SecretKey;
    use vault_format::time::Timestamp;

    use super::*;
    use crate::model::device::{Device, LastSeen};

    /// A machine that had these releases at its calls.
    fn machine(status: DeviceStatus, visits: &[Option<u64>]) -> Machine {
        let (slug, home) = ("acme".parse().unwrap(), "01M81JMZ000000000000000001");
        let home = home.parse().unwrap();
        let key = SecretKey::from_seed([7; 32]).public();
        let now = Timestamp::from_unix(1_795_219_200);
        let mut device = Device::new(&slug, home, key, "Ada’s Laptop".to_owned(), now);
        device.status = status;
        let visits = visits.iter();
        let visit = visits.fold(None, |held, release| {
            LastSeen::after_visit(held, home, *release, now)
        });
        Machine { device, visit }
    }

    #[test]
    fn only_admitted_machines_lag_behind() {
        use DeviceStatus::{Active, Pending, Revoked};
        for (status, visit, current, held) in [
            (Active, &[Some(4)][..], Some(4), HeldRelease::Current),
            (Active, &[Some(3)], Some(4), HeldRelease::Behind(3)),
            (Active, &[None], Some(4), HeldRelease::Never),
            (Active, &[], Some(4), HeldRelease::Never),
            (Active, &[], None, HeldRelease::Nothing),
            (Pending, &[Some(3)], Some(4), HeldRelease::Nothing),
            (Revoked, &[Some(3)], Some(4), HeldRelease::Nothing),
        ] {
            let machine = machine(status, visit);
            assert_eq!(
                machine.held_release(current),
                held,
                "{status} {visit:?} {current:?}"
            );
            let behind = matches!(held, HeldRelease::Never | HeldRelease::Behind(_));
            assert_eq!(
                MachineFilter::Behind.matches_machine(&machine, current),
                behind
            );
        }
    }

    #[test]
    fn a_machine_is_found_by_name_fingerprint_and_id() {
        let machine = machine(DeviceStatus::Active, &[]);
        let print = machine.fingerprint().to_string();
        let bare = print.replace('-', "");
        for (search, found) in [
            ("ada", true),
            ("LAPTOP", true),
            (print.as_str(), true),
            (&print[4..13], true),
            (&bare[6..16], true),
            (&bare.to_uppercase(), true),
            (machine.device.device_id.as_str(), true),
            ("bob", false),
            ("dev:zzzz", false),
        ] {
            assert_eq!(matches_search(&machine, search), found, "{search}");
        }
    }
}
