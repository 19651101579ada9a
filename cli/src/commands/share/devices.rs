//! `vault devices`: the owner's view of the machines that want in.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    lookup::not_listed,
    output::{
        report::Report,
        style::{DIM, GOOD, HINT, WARN, paint},
        table::Table,
        text::{clean, count},
    },
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
    /// Its id.
    pub device_id: String,
    /// `pending`, `active` or `revoked`.
    pub status: String,
    /// What the machine calls itself; a label, nothing more.
    pub hostname: String,
    /// Its key.
    pub public_key: String,
    /// When it enrolled.
    #[serde(default)]
    pub enrolled_at: String,
}

impl Device {
    /// What the owner compares: 8 groups of 4 characters.
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

/// Lists machines or changes one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner(context)?;
    let root = format!("/admin/vaults/{}/devices", connection.slug);
    context.block_on(async {
        match &arguments.action {
            Action::List => Ok(show(&all(&client, &root).await?)),
            Action::Admit(which) => {
                change(context, &client, &root, &which.machine, "admit", "admitted").await
            }
            Action::Deny(DenyWhich {
                machine: Some(machine),
                ..
            }) => change(context, &client, &root, machine, "deny", "denied").await,
            Action::Deny(_) => deny_all(context, &client, &root).await,
            Action::Revoke(which) => {
                change(context, &client, &root, &which.machine, "revoke", "revoked").await
            }
            Action::Forget(which) => {
                change(
                    context,
                    &client,
                    &root,
                    &which.machine,
                    "forget",
                    "forgotten",
                )
                .await
            }
        }
    })
}

async fn all(client: &OwnerClient, root: &str) -> Result<Vec<Device>, Failure> {
    let mut devices: Vec<Device> = client.list(root).await?;
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
    let waiting = devices
        .iter()
        .filter(|device| device.status == "pending")
        .count();
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

async fn change(
    context: &Context,
    client: &OwnerClient,
    root: &str,
    machine: &str,
    verb: &str,
    done: &str,
) -> Result<Report, Failure> {
    let devices = all(client, root).await?;
    let device = find(&devices, machine)?;
    if verb == "admit" && device.status == "pending" && context.ui.may_ask() {
        let question = format!(
            "Admit \"{}\" with the fingerprint {}?",
            clean(&device.hostname, 64),
            device.fingerprint()
        );
        if !context.ui.confirm(&question)? {
            return Err(Failure::failed("not_confirmed", "nothing was changed"));
        }
    }
    let _: Value = client
        .post(&format!("{root}/{}/{verb}", device.device_id), json!({}))
        .await?;
    let mut data = device.as_json();
    data["done"] = json!(done);
    Ok(Report::new(
        data,
        format!(
            "{} {done} \"{}\"  {}",
            paint(GOOD, "✓"),
            clean(&device.hostname, 64),
            paint(HINT, device.fingerprint())
        ),
    ))
}

fn find<'d>(devices: &'d [Device], machine: &str) -> Result<&'d Device, Failure> {
    if let Some(device) = devices.iter().find(|device| device.device_id == machine) {
        return Ok(device);
    }
    let named: Vec<&Device> = devices
        .iter()
        .filter(|device| device.hostname == machine)
        .collect();
    match named[..] {
        [device] => Ok(device),
        [] => {
            let names = devices
                .iter()
                .flat_map(|device| [device.hostname.as_str(), device.device_id.as_str()]);
            let failure = Failure::failed(
                "device_not_found",
                format!("no machine is called `{}`", clean(machine, 64)),
            );
            Err(not_listed(failure, machine, names, "vault devices list"))
        }
        _ => Err(Failure::new(
            Exit::Usage,
            "device_ambiguous",
            format!(
                "{} machines are called `{}`",
                named.len(),
                clean(machine, 64)
            ),
        )
        .hint("name one by its id")
        .details(named.iter().map(|device| {
            format!(
                "{}  {}  {}",
                device.device_id,
                device.status,
                device.fingerprint()
            )
        }))),
    }
}

async fn deny_all(context: &Context, client: &OwnerClient, root: &str) -> Result<Report, Failure> {
    if !context.ui.confirm("Deny every machine that waits?")? {
        return Err(Failure::failed("not_confirmed", "nothing was changed"));
    }
    let before = all(client, root).await?;
    let waiting = before
        .iter()
        .filter(|device| device.status == "pending")
        .count();
    let _: Value = client
        .post(&format!("{root}/deny-pending"), json!({}))
        .await?;
    Ok(Report::new(
        json!({ "denied": waiting }),
        format!(
            "{} denied {}",
            paint(GOOD, "✓"),
            count(waiting as u64, "machine")
        ),
    ))
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
        assert_eq!(find(&devices, "desk").unwrap_err().code, "device_ambiguous");
        let missed = find(&devices, "laptpo").unwrap_err();
        assert_eq!(missed.code, "device_not_found");
        assert!(missed.hint.as_ref().unwrap().contains("laptop"));
    }
}
