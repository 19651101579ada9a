//! `vault devices`: lists the machines that enrolled in the vault, and admits, denies, revokes and
//! forgets them.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{Kind, pick},
    output::{DIM, GOOD, HINT, Report, Table, WARN, clean, count, paint},
    service::{OwnerClient, connection::Connection},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
A machine enrols with `vault link` and prints its fingerprint. Compare it with the one shown here before you admit it.

Examples:
  vault devices list
  vault devices admit dev_mfrggzdfmztwq2lknnwg23tpoa
  vault devices revoke laptop

Since 0.5.0 (beta).")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show every machine, those that wait first
    List,
    /// Let a waiting machine read the skills
    Admit(Which),
    /// Refuse a waiting machine
    Deny(DenyWhich),
    /// Shut out a machine that was admitted
    Revoke(Which),
    /// Remove the record of a machine; its key may enrol afresh
    Forget(Which),
}

#[derive(Args, Debug)]
struct Which {
    /// The machine's id, or its name where only one machine has it
    machine: String,
}

#[derive(Args, Debug)]
struct DenyWhich {
    /// The machine's id, or its name where only one machine has it
    #[arg(required_unless_present = "all_pending")]
    machine: Option<String>,
    /// Refuse every waiting machine
    #[arg(long, conflicts_with = "machine")]
    all_pending: bool,
}

/// A machine as the service lists it for an owner.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
pub struct Device {
    /// The machine's id on the service.
    pub device_id: String,
    /// `pending`, `active` or `revoked`.
    pub status: String,
    /// The name that the machine reports for itself. It is only a label and proves nothing.
    pub hostname: String,
    /// The machine's public key.
    pub public_key: String,
    /// When the machine enrolled.
    #[serde(default)]
    pub enrolled_at: String,
}

impl Device {
    /// The fingerprint that the owner compares: 8 groups of 4 characters.
    pub fn fingerprint(&self) -> String {
        self.public_key
            .parse::<vault_skill::keys::PublicKey>()
            .map_or_else(|_| "unreadable key".to_owned(), |key| key.fingerprint())
    }

    fn as_json(&self) -> Value {
        json!({
            "device_id": self.device_id,
            "status": self.status,
            "hostname": self.hostname,
            "fingerprint": self.fingerprint(),
            "public_key": self.public_key,
            "enrolled_at": self.enrolled_at,
        })
    }
}

/// Lists the machines or changes one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let owner = Owner {
        context,
        client: connection.owner(context)?,
        root: format!("/admin/vaults/{}/devices", connection.slug),
    };
    context.block_on(async {
        match &arguments.action {
            Action::List => Ok(show(&owner.devices().await?)),
            Action::Admit(which) => owner.change(&which.machine, "admit", "admitted").await,
            Action::Deny(DenyWhich { machine, .. }) => match machine {
                Some(machine) => owner.change(machine, "deny", "denied").await,
                None => owner.deny_all().await,
            },
            Action::Revoke(which) => owner.change(&which.machine, "revoke", "revoked").await,
            Action::Forget(which) => owner.change(&which.machine, "forget", "forgotten").await,
        }
    })
}

/// An owner's access to the machines of one vault.
struct Owner<'a> {
    context: &'a Context,
    client: OwnerClient,
    /// The path of the device routes, relative to the service's address.
    root: String,
}

impl Owner<'_> {
    /// Lists every machine, pending ones first.
    async fn devices(&self) -> Result<Vec<Device>, Failure> {
        let mut devices: Vec<Device> = self.client.list(&self.root).await?;
        devices.sort_by_key(|device| {
            let rank = match device.status.as_str() {
                "pending" => 0,
                "active" => 1,
                _ => 2,
            };
            (rank, device.enrolled_at.clone())
        });
        Ok(devices)
    }

    async fn change(&self, machine: &str, verb: &str, done: &str) -> Result<Report, Failure> {
        let devices = self.devices().await?;
        let device = find(&devices, machine)?;
        let name = clean(&device.hostname, 64);
        let fingerprint = device.fingerprint();
        if verb == "admit" && device.status == "pending" && self.context.ui.may_ask() {
            self.context.ui.confirm_or_stop(&format!(
                "Admit \"{name}\" with the fingerprint {fingerprint}?"
            ))?;
        }
        let path = format!("{}/{}/{verb}", self.root, device.device_id);
        let _: Value = self.client.post(&path, json!({})).await?;
        let mut data = device.as_json();
        data["done"] = json!(done);
        let text = format!(
            "{} {done} \"{name}\"  {}",
            paint(GOOD, "✓"),
            paint(HINT, fingerprint)
        );
        Ok(Report::new(data, text))
    }

    async fn deny_all(&self) -> Result<Report, Failure> {
        self.context
            .ui
            .confirm_or_stop("Deny every machine that waits?")?;
        let devices = self.devices().await?;
        let waiting = waiting(&devices);
        let path = format!("{}/deny-pending", self.root);
        let _: Value = self.client.post(&path, json!({})).await?;
        let denied = count(waiting as u64, "machine");
        Ok(Report::new(
            json!({ "denied": waiting }),
            format!("{} denied {denied}", paint(GOOD, "✓")),
        ))
    }
}

fn waiting(devices: &[Device]) -> usize {
    devices
        .iter()
        .filter(|device| device.status == "pending")
        .count()
}

fn show(devices: &[Device]) -> Report {
    if devices.is_empty() {
        return Report::new(json!([]), "No machine has enrolled yet.");
    }
    let mut table = Table::new(&["STATUS", "MACHINE", "FINGERPRINT", "ENROLLED", "ID"]);
    for device in devices {
        table.row([
            paint(style(&device.status), clean(&device.status, 12)),
            format!("\"{}\"", clean(&device.hostname, 64)),
            paint(HINT, device.fingerprint()),
            clean(&device.enrolled_at, 20),
            clean(&device.device_id, 40),
        ]);
    }
    let waiting = waiting(devices);
    let mut text = table.text();
    if waiting > 0 {
        text.push_str(&format!(
            "\n\n{} {}. Compare the fingerprint with the one on the machine, then: vault devices admit <ID>",
            count(waiting as u64, "machine"),
            if waiting == 1 { "waits" } else { "wait" },
        ));
    }
    let data: Vec<Value> = devices.iter().map(Device::as_json).collect();
    Report::new(data, text)
}

fn style(status: &str) -> clap::builder::styling::Style {
    match status {
        "active" => GOOD,
        "pending" => WARN,
        _ => DIM,
    }
}

fn find<'d>(devices: &'d [Device], machine: &str) -> Result<&'d Device, Failure> {
    let kind = Kind {
        noun: "machine",
        missing: ErrorCode::DeviceNotFound,
        ambiguous: ErrorCode::DeviceAmbiguous,
        list: "vault devices list",
    };
    pick(
        &kind,
        devices,
        machine,
        |device| (&device.device_id, Some(&device.hostname)),
        |device| {
            format!(
                "{}  {}  {}",
                device.device_id,
                device.status,
                device.fingerprint()
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str, hostname: &str) -> Device {
        Device {
            device_id: id.into(),
            status: "pending".into(),
            hostname: hostname.into(),
            public_key: String::new(),
            enrolled_at: String::new(),
        }
    }

    #[test]
    fn a_machine_is_found_by_id_or_by_a_name_that_is_its_own() {
        let devices = [
            device("dev_a", "laptop"),
            device("dev_b", "desk"),
            device("dev_c", "desk"),
        ];
        assert_eq!(find(&devices, "dev_b").unwrap().device_id, "dev_b");
        assert_eq!(find(&devices, "laptop").unwrap().device_id, "dev_a");
        assert_eq!(
            find(&devices, "desk").unwrap_err().code,
            ErrorCode::DeviceAmbiguous
        );
        let missed = find(&devices, "laptpo").unwrap_err();
        assert_eq!(missed.code, ErrorCode::DeviceNotFound);
        assert!(missed.hint.as_ref().unwrap().contains("laptop"));
    }
}
