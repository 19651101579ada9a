//! `vault devices`: lists the machines that enrolled in the vault, and admits, denies, revokes and
//! forgets them.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_service::model::device::DeviceStatus;
use vault_skill::{keys::PublicKey, root::KeyFingerprint};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{Kind, pick},
    output::{DIM, GOOD, HINT, Report, TICK, Table, WARN, clean, count, paint},
    service::{OwnerClient, connection::Connection},
};

/// The arguments of `vault devices`.
#[derive(Args, Debug)]
#[command(after_help = "\
A machine enrols with `vault link`, which prints the machine's fingerprint. Compare it with the \
fingerprint shown here before you admit the machine.

Examples:
  vault devices list
  vault devices admit dev_mfrggzdfmztwq2lknnwg23tpoa
  vault devices revoke laptop")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all machines, pending ones first
    List,
    /// Admit a pending machine: it may read the skills
    Admit(Which),
    /// Deny a pending machine
    Deny(DenyWhich),
    /// Revoke the access of an admitted machine
    Revoke(Which),
    /// Delete the record of a machine; its key may enrol again
    Forget(Which),
}

#[derive(Args, Debug)]
struct Which {
    /// The machine's id, or its name if only one machine has that name
    machine: String,
}

#[derive(Args, Debug)]
struct DenyWhich {
    /// The machine's id, or its name if only one machine has that name
    #[arg(required_unless_present = "all_pending")]
    machine: Option<String>,
    /// Deny every pending machine
    #[arg(long, conflicts_with = "machine")]
    all_pending: bool,
}

/// A machine as the service lists it for an owner.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
pub struct Device {
    /// The machine's id on the service.
    pub device_id: String,
    /// What the machine may do.
    pub status: DeviceStatus,
    /// The name that the machine reports for itself. It is only a label and proves nothing.
    pub hostname: String,
    /// The machine's public key.
    pub public_key: String,
    /// When the machine enrolled.
    #[serde(default)]
    pub enrolled_at: String,
}

impl Device {
    /// The fingerprint that the owner compares: `dev:` and 8 groups of 4 characters.
    pub fn fingerprint(&self) -> String {
        self.public_key.parse::<PublicKey>().map_or_else(
            |_| "unreadable key".to_owned(),
            |key| KeyFingerprint::device(&key).to_string(),
        )
    }

    fn as_json(&self) -> Value {
        let mut data = json!(self);
        data["fingerprint"] = json!(self.fingerprint());
        data
    }
}

/// Lists the machines or changes one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner(context)?;
    let root = format!("/admin/vaults/{}/devices", connection.slug);
    context.block_on(async {
        let (machine, verb, done) = match &arguments.action {
            Action::List => return Ok(show(&list(&client, &root).await?)),
            Action::Deny(DenyWhich { machine: None, .. }) => {
                return deny_all(context, &client, &root).await;
            }
            Action::Deny(DenyWhich {
                machine: Some(machine),
                ..
            }) => (machine, "deny", "denied"),
            Action::Admit(which) => (&which.machine, "admit", "admitted"),
            Action::Revoke(which) => (&which.machine, "revoke", "revoked"),
            Action::Forget(which) => (&which.machine, "forget", "forgotten"),
        };
        let devices = list(&client, &root).await?;
        let device = find(&devices, machine)?;
        let (name, fingerprint) = (clean(&device.hostname, 64), device.fingerprint());
        if verb == "admit" && device.status == DeviceStatus::Pending && context.ui.may_ask() {
            let question = format!("Admit \"{name}\" with the fingerprint {fingerprint}?");
            context.ui.confirm_or_stop(&question)?;
        }
        let path = format!("{root}/{}/{verb}", device.device_id);
        let _: Value = client.post(&path, json!({})).await?;
        let mut data = device.as_json();
        data["done"] = json!(done);
        let text = format!("{TICK} {done} \"{name}\"  {HINT}{fingerprint}{HINT:#}");
        Ok(Report::new(data, text))
    })
}

/// Lists every machine, pending ones first.
async fn list(client: &OwnerClient, root: &str) -> Result<Vec<Device>, Failure> {
    let mut devices: Vec<Device> = client.list(root).await?;
    devices.sort_by_key(|device| (device.status as u8, device.enrolled_at.clone()));
    Ok(devices)
}

async fn deny_all(context: &Context, client: &OwnerClient, root: &str) -> Result<Report, Failure> {
    context
        .ui
        .confirm_or_stop("Deny every machine that waits?")?;
    let waiting = waiting(&list(client, root).await?);
    let _: Value = client
        .post(&format!("{root}/deny-pending"), json!({}))
        .await?;
    let text = format!("{TICK} denied {}", count(waiting, "machine"));
    Ok(Report::new(json!({ "denied": waiting }), text))
}

fn waiting(devices: &[Device]) -> usize {
    let pending = |device: &&Device| device.status == DeviceStatus::Pending;
    devices.iter().filter(pending).count()
}

fn show(devices: &[Device]) -> Report {
    if devices.is_empty() {
        return Report::new(json!([]), "No machine has enrolled yet.");
    }
    let mut table = Table::new(&["STATUS", "MACHINE", "FINGERPRINT", "ENROLLED", "ID"]);
    for device in devices {
        let style = match device.status {
            DeviceStatus::Pending => WARN,
            DeviceStatus::Active => GOOD,
            DeviceStatus::Revoked => DIM,
        };
        table.row([
            paint(style, device.status.as_str()),
            format!("\"{}\"", clean(&device.hostname, 64)),
            paint(HINT, device.fingerprint()),
            clean(&device.enrolled_at, 20),
            clean(&device.device_id, 40),
        ]);
    }
    let mut text = table.text();
    if let waiting @ 1.. = waiting(devices) {
        text.push_str(&format!(
            "\n\n{}. Compare the fingerprint with the one on the machine, then: vault devices admit <ID>",
            machines_wait(waiting as u64)
        ));
    }
    Report::new(
        devices.iter().map(Device::as_json).collect::<Vec<_>>(),
        text,
    )
}

/// Says how many machines wait for the owner.
pub fn machines_wait(waiting: u64) -> String {
    let verb = if waiting == 1 { "waits" } else { "wait" };
    format!("{} {verb}", count(waiting, "machine"))
}

fn find<'d>(devices: &'d [Device], machine: &str) -> Result<&'d Device, Failure> {
    let kind = Kind {
        noun: "machine",
        missing: ErrorCode::DeviceNotFound,
        ambiguous: ErrorCode::DeviceAmbiguous,
        list: "vault devices list",
    };
    let id_and_name = |device: &'d Device| (&*device.device_id, Some(&*device.hostname));
    pick(&kind, devices, machine, id_and_name, |device| {
        let (id, status) = (&device.device_id, device.status.as_str());
        format!("{id}  {status}  {}", device.fingerprint())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str, hostname: &str) -> Device {
        Device {
            device_id: id.into(),
            status: DeviceStatus::Pending,
            hostname: hostname.into(),
            public_key: String::new(),
            enrolled_at: String::new(),
        }
    }

    #[test]
    fn a_machine_is_found_by_id_or_by_a_name_that_is_its_own() {
        let machines = [("dev_a", "laptop"), ("dev_b", "desk"), ("dev_c", "desk")];
        let devices = machines.map(|(id, hostname)| device(id, hostname));
        assert_eq!(find(&devices, "dev_b").unwrap().device_id, "dev_b");
        assert_eq!(find(&devices, "laptop").unwrap().device_id, "dev_a");
        let both = find(&devices, "desk").unwrap_err();
        assert_eq!(both.code, ErrorCode::DeviceAmbiguous);
        let missed = find(&devices, "laptpo").unwrap_err();
        assert_eq!(missed.code, ErrorCode::DeviceNotFound);
        assert!(missed.hint.as_ref().unwrap().contains("laptop"));
    }
}
