//! `vault devices`: lists the machines that enrolled in the vault to install its skills, and
//! admits, denies, revokes and forgets them.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use vault_api::{DeniedMachines, Device, DeviceStatus, Items, ListedDevice};
use vault_format::root::KeyFingerprint;
use vault_service::error::ErrorCode as ServiceCode;

use super::enrolment::{self, EnrolmentModeArgument, Invite};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{EntryWords, pick_entry},
    output::{Column, DIM, GOOD, HINT, Report, TICK, Table, WARN, clean, count, format_day, paint},
    service::{OwnerClient, confirmation::send_confirmed, connection::Connection},
};

/// The arguments of `vault devices`.
#[derive(Args, Debug)]
#[command(after_help = "\
A machine enrols with `vault link`, which prints the machine's fingerprint. Name the machine by \
that fingerprint, so that only that machine is admitted: its name is its own choice. LAST SEEN is \
the day (UTC) of its last request, and RELEASE is the newest release that it fetched.

Examples:
  vault devices list
  vault devices admit ut4a-k3fz-7mqd-x2pl
  vault devices revoke laptop
  vault devices deny --all-pending
  vault devices deny --network 203.0.113.0/24
  vault devices invite --uses 200 --expires 7d
  vault devices invite --name 'ci-*'
  vault devices enrolment codes")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all machines, pending ones first, those of one network together
    List,
    /// Admit a pending machine: it may read the skills
    Admit(Which),
    /// Deny a pending machine
    Deny(DenyWhich),
    /// The same as `deny --all-pending`
    #[command(hide = true)]
    DenyPending,
    /// Revoke the access of an admitted machine
    Revoke(Which),
    /// Delete the record of a machine; its key may enrol again
    Forget(Which),
    /// Make a code with which machines are admitted when they enrol
    Invite(Invite),
    /// List the enrolment codes that are still valid
    Codes,
    /// End an enrolment code
    EndCode {
        /// The code's id, as `vault devices codes` lists it
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Say whether machines need a code to enrol
    Enrolment {
        /// Who may enrol
        mode: EnrolmentModeArgument,
    },
}

const WHICH: &str = "The machine's fingerprint or id, the beginning of either, or its name";

#[derive(Args, Debug)]
struct Which {
    #[arg(help = WHICH)]
    machine: String,
}

#[derive(Args, Debug)]
struct DenyWhich {
    #[arg(help = WHICH, required_unless_present_any = ["all_pending", "network"])]
    machine: Option<String>,
    /// Deny every pending machine
    #[arg(long, conflicts_with = "machine")]
    all_pending: bool,
    /// Deny every pending machine of a network, as `vault devices list` names it
    #[arg(long, value_name = "NETWORK", conflicts_with_all = ["machine", "all_pending"])]
    network: Option<String>,
}

/// Lists the machines or their enrolment codes, or changes the state of one or several.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner_client(context)?;
    let root = format!("/admin/vaults/{}/devices", connection.slug);
    context.block_on(async {
        let (machine, verb, done) = match &arguments.action {
            Action::List => {
                let devices = list_devices(&client, &root).await?;
                return Ok(devices_report(context, &devices));
            }
            Action::Invite(asked) => {
                return enrolment::create_code(context, &client, &connection, asked).await;
            }
            Action::Codes => return enrolment::list_codes(context, &client, &connection).await,
            Action::EndCode { id } => return enrolment::end_code(&client, &connection, id).await,
            Action::Enrolment { mode } => {
                return enrolment::set_enrolment_mode(&client, &connection, *mode).await;
            }
            Action::DenyPending => return deny_pending(context, &client, &root, None).await,
            Action::Deny(DenyWhich {
                machine: None,
                network,
                ..
            }) => return deny_pending(context, &client, &root, network.as_deref()).await,
            Action::Deny(DenyWhich {
                machine: Some(machine),
                ..
            }) => (machine, "deny", "denied"),
            Action::Admit(which) => (&which.machine, "admit", "admitted"),
            Action::Revoke(which) => (&which.machine, "revoke", "revoked"),
            Action::Forget(which) => (&which.machine, "forget", "forgotten"),
        };
        // The service knows machines by id only, but people name one by its fingerprint or name.
        let devices = list_devices(&client, &root).await?;
        let chosen = find_listed_device(&devices, machine)?;
        let device = &chosen.device;
        // A machine chooses its own name, so it may contain control characters.
        let (name, fingerprint) = (
            clean(&device.display_name(), 64),
            device.fingerprint.to_string(),
        );
        // A user who types the whole fingerprint has compared it. Any machine can take any name, so
        // a script that admits one by its name must pass `--yes`.
        let compared = normalize_fingerprint(machine) == normalize_fingerprint(&fingerprint);
        // Only admitting a new machine grants access, so only that needs the comparison.
        let is_new = verb == "admit" && device.status == DeviceStatus::Pending;
        if is_new && !compared && (context.ui.may_ask() || device.hostname == *machine) {
            let question = format!("Does \"{name}\" show the fingerprint {fingerprint}? Admit it?");
            context.ui.confirm_or_stop(&question)?;
        }
        let path = format!("{root}/{}/{verb}", device.device_id);
        // After many admissions, the service requires a confirmation in the browser.
        let decided: Result<Value, Failure> =
            send_confirmed(context, &client, Method::POST, &path, Some(json!({}))).await;
        decided.map_err(|failure| name_machine_state(failure, device, verb))?;
        let mut data = json!(chosen);
        data["done"] = json!(done);
        let done = match verb {
            "forget" => "deleted the record of",
            _ => done,
        };
        let text = format!("{TICK} {done} \"{name}\"  {HINT}{fingerprint}{HINT:#}");
        Ok(Report::new(data, text))
    })
}

/// Replaces the service's failure about the state of a machine by one that names the state and the
/// command that fits it. Returns other failures unchanged.
fn name_machine_state(mut failure: Failure, device: &Device, verb: &str) -> Failure {
    if failure.code != ServiceCode::DeviceState {
        return failure;
    }
    let (name, id) = (
        clean(&device.display_name(), 64),
        clean(&device.device_id, 40),
    );
    let (is, next) = match (device.status, verb) {
        (DeviceStatus::Pending, "revoke") => (
            "is pending and was never admitted",
            format!("deny it with: vault devices deny {id}"),
        ),
        (DeviceStatus::Active, "deny") => (
            "is admitted already",
            format!("end its access with: vault devices revoke {id}"),
        ),
        (DeviceStatus::Pending, _) => (
            "is pending",
            format!("deny it first: vault devices deny {id}"),
        ),
        (DeviceStatus::Active, _) => (
            "is admitted",
            format!("end its access first: vault devices revoke {id}"),
        ),
        (DeviceStatus::Revoked, _) => (
            "was denied or revoked",
            format!("vault devices forget {id}; then it can enrol again with vault link"),
        ),
    };
    failure.message = format!("\"{name}\" {is}");
    failure.hint(next)
}

/// Lists every machine, pending ones first.
async fn list_devices(client: &OwnerClient, root: &str) -> Result<Vec<ListedDevice>, Failure> {
    let mut devices: Vec<ListedDevice> = client.list(root).await?;
    for ListedDevice { device, .. } in &mut devices {
        // Compute the fingerprint from the public key, because the service could show a wrong one
        // to the owner who compares it.
        device.fingerprint = KeyFingerprint::device(&device.public_key);
    }
    // `DeviceStatus` is declared in the order of the list: pending, active, revoked.
    // Only a pending machine has a network.
    devices.sort_by_cached_key(|listed| {
        let device = &listed.device;
        (
            device.status as u8,
            listed.network.clone(),
            device.enrolled_at,
        )
    });
    Ok(devices)
}

/// Denies all pending machines, or those of one network. Machines that enrol while the user reads
/// the question are not denied.
async fn deny_pending(
    context: &Context,
    client: &OwnerClient,
    root: &str,
    network: Option<&str>,
) -> Result<Report, Failure> {
    let listed = list_devices(client, root).await?;
    let pending = listed
        .iter()
        .filter(|listed| listed.device.status == DeviceStatus::Pending);
    let chosen = pending
        .filter(|listed| network.is_none_or(|network| listed.network.as_deref() == Some(network)));
    let ids: Vec<_> = chosen
        .map(|listed| listed.device.device_id.clone())
        .collect();
    if let Some(network) = network.filter(|_| ids.is_empty()) {
        return Err(unknown_network(network, &listed));
    }
    let of_network = network.map_or_else(String::new, |it| format!(" from {}", clean(it, 64)));
    if ids.is_empty() {
        let text = format!("No machine{of_network} is waiting for approval.");
        return Ok(Report::new(json!({ "denied": 0 }), text));
    }
    let question = format!("Deny {}{of_network}?", count(ids.len(), "pending machine"));
    context.ui.confirm_or_stop(&question)?;
    let asked = DeniedMachines {
        network: None,
        devices: Some(ids),
    };
    let answer: Items<Device> = client
        .post(&format!("{root}/deny-pending"), json!(asked))
        .await?;
    let denied = answer.items.len();
    let text = format!("{TICK} denied {}{of_network}", count(denied, "machine"));
    Ok(Report::new(json!({ "denied": denied }), text))
}

/// Creates the failure for a network from which no machine is pending. Its hint lists the networks
/// of the pending machines.
fn unknown_network(network: &str, listed: &[ListedDevice]) -> Failure {
    let message = format!(
        "no machine from {} is waiting for approval",
        clean(network, 64)
    );
    let networks = count_networks(listed);
    let names: Vec<_> = networks.keys().map(|name| clean(name, 64)).collect();
    let hint = if names.is_empty() {
        "no machine is waiting at all".to_owned()
    } else {
        format!("machines are waiting from: {}", names.join(", "))
    };
    Failure::new(ErrorCode::DeviceNotFound, message).hint(hint)
}

/// Counts the pending machines by the network that they enrolled from, which only a pending machine
/// has.
fn count_networks(devices: &[ListedDevice]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for network in devices
        .iter()
        .filter_map(|listed| listed.network.as_deref())
    {
        *counts.entry(network).or_insert(0) += 1;
    }
    counts
}

fn count_pending(devices: &[ListedDevice]) -> usize {
    let pending = |listed: &&ListedDevice| listed.device.status == DeviceStatus::Pending;
    devices.iter().filter(pending).count()
}

fn devices_report(context: &Context, devices: &[ListedDevice]) -> Report {
    if devices.is_empty() {
        return Report::new(json!([]), "No machine has enrolled yet.");
    }
    let mut table = Table::new([
        Column::new("status"),
        Column::new("machine").shrinks_to(10),
        Column::new("fingerprint").shrinks_last_to(19),
        Column::new("last seen").leaves(3),
        Column::new("release").leaves(2),
        Column::new("enrolled").leaves(1),
    ]);
    for listed in devices {
        table.push_row(device_row(listed));
    }
    let mut text = context.ui.format_table(&table);
    text.push_str(&format_networks(devices));
    if let waiting @ 1.. = count_pending(devices) {
        text.push_str(&format!(
            "\n\n{}. Read the fingerprint on the machine itself, then: vault devices admit <FINGERPRINT>",
            count_waiting_machines(waiting as u64)
        ));
    }
    Report::new(devices, text)
}

/// Formats the number of pending machines of each network, if there are several networks.
fn format_networks(devices: &[ListedDevice]) -> String {
    let mut text = String::new();
    let networks = count_networks(devices);
    if networks.len() > 1 {
        // The pending machines stand first in the table, those of one network together.
        text.push_str("\n\nPending machines by network:");
        for (network, waiting) in networks {
            let network = clean(network, 64);
            text.push_str(&format!(
                "\n  {network}: {waiting}  {HINT}vault devices deny --network {network}{HINT:#}"
            ));
        }
    }
    text
}

fn device_row(listed: &ListedDevice) -> [String; 6] {
    let device = &listed.device;
    let style = match device.status {
        DeviceStatus::Pending => WARN,
        DeviceStatus::Active => GOOD,
        DeviceStatus::Revoked => DIM,
    };
    [
        paint(style, device.status.as_str()),
        format!("\"{}\"", clean(&device.display_name(), 64)),
        paint(HINT, device.fingerprint),
        listed
            .last_seen
            .as_ref()
            .map_or_else(|| "-".to_owned(), |day| clean(day, 10)),
        listed
            .release
            .map_or_else(|| "-".to_owned(), |release| release.to_string()),
        format_day(&device.enrolled_at.to_string()),
    ]
}

/// Formats the number of machines that wait for the owner, as a clause.
pub fn count_waiting_machines(waiting: u64) -> String {
    let verb = if waiting == 1 { "is" } else { "are" };
    format!("{} {verb} waiting for approval", count(waiting, "machine"))
}

/// Returns a fingerprint without its prefix `dev:` and its hyphens, in lower case.
fn normalize_fingerprint(fingerprint: &str) -> String {
    // People copy a fingerprint in groups or without hyphens, and in capitals.
    let text = fingerprint.trim().to_ascii_lowercase();
    text.strip_prefix("dev:").unwrap_or(&text).replace('-', "")
}

/// Finds a machine by its whole id or fingerprint, else by the beginning of either, else by its
/// name. Fails if several match. A machine chooses its own name, so a name never takes precedence
/// over a fingerprint.
fn find_listed_device<'d>(
    devices: &'d [ListedDevice],
    machine: &str,
) -> Result<&'d ListedDevice, Failure> {
    const LEAST: usize = 4;
    let key = normalize_fingerprint(machine);
    let key_of = |device: &Device| normalize_fingerprint(&device.fingerprint.to_string());
    let is_whole = |listed: &&ListedDevice| {
        listed.device.device_id == machine || key_of(&listed.device) == key
    };
    if let Some(listed) = devices.iter().find(is_whole) {
        return Ok(listed);
    }
    let begins = |ListedDevice { device, .. }: &ListedDevice| {
        let id = device.device_id.strip_prefix("dev_").unwrap_or_default();
        let typed = machine.strip_prefix("dev_").unwrap_or(machine);
        (typed.len() >= LEAST && id.starts_with(typed))
            || (key.len() >= LEAST && key_of(device).starts_with(&key))
    };
    let begun: Vec<&ListedDevice> = devices.iter().filter(|listed| begins(listed)).collect();
    // If the name of another machine is exactly the typed text, the user could mean either, so the
    // beginning does not decide.
    if let [listed] = begun[..]
        && devices.iter().all(|other| {
            other.device.hostname != machine || other.device.device_id == listed.device.device_id
        })
    {
        return Ok(listed);
    }
    if !begun.is_empty() {
        let shown = clean(machine, 64);
        let failure = fail!(DeviceAmbiguous, "`{shown}` can mean several machines");
        let named = devices
            .iter()
            .filter(|listed| begins(listed) || listed.device.hostname == machine);
        return Err(failure
            .hint("give the whole fingerprint")
            .details(named.map(device_line)));
    }
    // No id or fingerprint begins like this, so only names are left.
    let kind = EntryWords {
        noun: "machine",
        missing: ErrorCode::DeviceNotFound,
        ambiguous: ErrorCode::DeviceAmbiguous,
        list: "vault devices list",
    };
    let id_and_name = |ListedDevice { device, .. }: &'d ListedDevice| {
        (&*device.device_id, Some(&*device.hostname))
    };
    pick_entry(&kind, devices, machine, id_and_name, device_line)
}

fn device_line(listed: &ListedDevice) -> String {
    let device = &listed.device;
    let (status, fingerprint) = (device.status, device.fingerprint);
    format!("{}  {status}  {fingerprint}", clean(&device.device_id, 40))
}

#[cfg(test)]
mod tests {
    use vault_format::{keys::SecretKey, time::Timestamp};

    use super::*;
    use crate::errors::{Exit, FailureCode};

    fn device(id: &str, seed: u8, hostname: &str) -> ListedDevice {
        let public_key = SecretKey::from_seed([seed; 32]).public();
        let device = Device {
            device_id: id.into(),
            status: DeviceStatus::Pending,
            hostname: hostname.into(),
            public_key,
            fingerprint: KeyFingerprint::device(&public_key),
            enrolled_at: Timestamp::default(),
            decided_at: None,
            client_id: None,
            forgotten: false,
        };
        ListedDevice {
            device,
            last_seen: None,
            release: None,
            network: None,
        }
    }

    #[test]
    fn several_networks_are_listed_with_the_command_that_empties_each() {
        let from = |seed: u8, network: &str| ListedDevice {
            network: Some(network.to_owned()),
            ..device(&format!("dev_{seed}"), seed, "vm")
        };
        let one = [from(1, "192.0.2.0/24"), from(2, "192.0.2.0/24")];
        assert!(!format_networks(&one).contains("by network"));
        let two = [
            from(1, "192.0.2.0/24"),
            from(2, "2001:db8:1::/48"),
            from(3, "192.0.2.0/24"),
        ];
        let text = format_networks(&two);
        for line in [
            "192.0.2.0/24: 2",
            "vault devices deny --network 192.0.2.0/24",
            "2001:db8:1::/48: 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_machine_is_found_by_its_fingerprint_and_by_the_beginning_of_it() {
        let first = device("dev_aaaa1", 1, "laptop");
        let fingerprint = first.device.fingerprint.to_string();
        let groups = fingerprint.trim_start_matches("dev:").to_owned();
        // This machine took the beginning of the other's fingerprint as its name.
        let second = device("dev_bbbb1", 2, &groups[..9]);
        let devices = [first, second, device("dev_aaaa2", 3, &groups)];
        for typed in [
            fingerprint.as_str(),
            &groups,
            &groups.replace('-', ""),
            &groups.to_uppercase(),
            &groups[..14],
            "dev_aaaa1",
        ] {
            let found = find_listed_device(&devices, typed).unwrap();
            assert_eq!(found.device.device_id, "dev_aaaa1", "{typed}");
        }
        assert_eq!(
            find_listed_device(&devices, "dev_bbbb")
                .unwrap()
                .device
                .device_id,
            "dev_bbbb1"
        );
        for typed in ["dev_aaaa", &groups[..9]] {
            let failure = find_listed_device(&devices, typed).unwrap_err();
            assert_eq!(failure.code, ErrorCode::DeviceAmbiguous, "{typed}");
        }
        let short = find_listed_device(&devices, &groups[..3]).unwrap_err();
        assert_eq!(short.code, ErrorCode::DeviceNotFound);
    }

    #[test]
    fn a_machine_without_a_name_is_called_by_its_fingerprint() {
        let machine = device("dev_a", 1, "");
        let fingerprint = machine.device.fingerprint.to_string();
        assert_eq!(machine.device.display_name(), fingerprint);
        assert!(device_row(&machine)[1] == format!("\"{fingerprint}\""));
    }

    #[test]
    fn a_machine_in_another_state_is_named_with_the_command_that_fits() {
        let refused = |status, verb| {
            let device = Device {
                status,
                ..device("dev_a", 1, "vm").device
            };
            let code = FailureCode::Remote {
                word: "device_state".to_owned(),
                status: 409,
                exit: Exit::Failed,
            };
            let failure = name_machine_state(Failure::new(code, "wrong state"), &device, verb);
            format!("{}; {}", failure.message, failure.hint.unwrap())
        };
        assert_eq!(
            refused(DeviceStatus::Pending, "revoke"),
            "\"vm\" is pending and was never admitted; deny it with: vault devices deny dev_a"
        );
        assert_eq!(
            refused(DeviceStatus::Active, "deny"),
            "\"vm\" is admitted already; end its access with: vault devices revoke dev_a"
        );
        assert_eq!(
            refused(DeviceStatus::Revoked, "admit"),
            "\"vm\" was denied or revoked; vault devices forget dev_a; then it can enrol again with vault link"
        );
    }

    /// A mistyped network must fail, not report that no machine was denied.
    #[test]
    fn a_network_without_waiting_machines_is_an_error_that_names_networks_with_some() {
        let mut waiting = device("dev_a", 1, "laptop");
        let failure = unknown_network("198.51.100.0/24", std::slice::from_ref(&waiting));
        assert_eq!(failure.code, ErrorCode::DeviceNotFound);
        assert_eq!(
            failure.hint.as_deref(),
            Some("no machine is waiting at all")
        );
        waiting.network = Some("203.0.113.0/24".to_owned());
        let failure = unknown_network("198.51.100.0/24", &[waiting]);
        let hint = "machines are waiting from: 203.0.113.0/24";
        assert_eq!(failure.hint.as_deref(), Some(hint));
    }

    #[test]
    fn a_machine_is_found_by_id_or_by_a_name_that_is_its_own() {
        let machines = [
            ("dev_a", 1, "laptop"),
            ("dev_b", 2, "desk"),
            ("dev_c", 3, "desk"),
        ];
        let devices = machines.map(|(id, seed, hostname)| device(id, seed, hostname));
        assert_eq!(
            find_listed_device(&devices, "dev_b")
                .unwrap()
                .device
                .device_id,
            "dev_b"
        );
        assert_eq!(
            find_listed_device(&devices, "laptop")
                .unwrap()
                .device
                .device_id,
            "dev_a"
        );
        let both = find_listed_device(&devices, "desk").unwrap_err();
        assert_eq!(both.code, ErrorCode::DeviceAmbiguous);
        let missed = find_listed_device(&devices, "laptpo").unwrap_err();
        assert_eq!(missed.code, ErrorCode::DeviceNotFound);
        assert!(missed.hint.as_ref().unwrap().contains("laptop"));
    }
}
