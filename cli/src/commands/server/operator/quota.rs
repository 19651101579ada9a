//! `vault operator namespace quota`: shows and changes how much a namespace (a vault that the
//! service hosts) may store, and how many machines, people and drafts it may have. The word `plan`
//! instead of a number means the limit of the namespace's plan, and `none` means no limit.

use clap::Args;
use serde_json::json;
use vault_api::{PlanWord, QuotaChange, QuotaLimit, Vault};
use vault_format::name::Slug;
use vault_service::config::quota;

use super::with_namespace_name;
use crate::{
    errors::Failure,
    output::{BOLD, Report, TICK, format_facts, format_size},
    service::OwnerClient,
};

/// The limits that `vault operator namespace quota` changes.
#[derive(Args, Debug)]
pub(super) struct Limits {
    /// Bytes that it may store: a number such as 5GiB, `none`, or `plan` for what its plan says
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_limit)]
    bytes: Option<QuotaLimit>,
    /// Objects that it may store: a number, `none` or `plan`
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    objects: Option<QuotaLimit>,
    /// Machines that its owners may admit: a number, `none` or `plan`
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    machines: Option<QuotaLimit>,
    /// Members and waiting invitations: a number, `none` or `plan`
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    people: Option<QuotaLimit>,
    /// Drafts about skills that wait: a number, `none` or `plan`
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    drafts: Option<QuotaLimit>,
}

/// Returns the label and text of each quota of a namespace: how much is used, and the limit.
pub(super) fn describe_quota(found: &Vault) -> [(&'static str, String); 5] {
    let (usage, quota) = (&found.usage, &found.quota);
    let of = |used: String, limit: Option<String>| match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => format!("{used}, no limit"),
    };
    let text = |number: u64| number.to_string();
    // The service counts people and drafts only if they are limited.
    let limited = |used: Option<u64>, limit: Option<u64>| match (used, limit) {
        (Some(used), Some(limit)) => format!("{used} of {limit}"),
        (None, Some(limit)) => format!("at most {limit}"),
        (_, None) => "no limit".to_owned(),
    };
    let stored = of(format_size(usage.bytes), quota.bytes.map(format_size));
    let machines = usage
        .machines
        // A vault from an earlier version of the service has no count yet. The service counts its
        // machines when it next admits or revokes one.
        .map_or_else(|| "not counted yet".to_owned(), text);
    [
        ("stored", stored),
        ("objects", of(text(usage.objects), quota.objects.map(text))),
        ("machines", of(machines, quota.machines.map(text))),
        ("people", limited(usage.people, quota.people)),
        ("drafts", limited(usage.drafts, quota.drafts)),
    ]
}

/// Changes the limits that are given and leaves the others. Without any, only shows them.
pub(super) async fn set_quota(
    client: &OwnerClient,
    slug: &Slug,
    limits: &Limits,
) -> Result<Report, Failure> {
    let change = QuotaChange {
        bytes: limits.bytes,
        objects: limits.objects,
        machines: limits.machines,
        people: limits.people,
        drafts: limits.drafts,
    };
    let path = format!("/admin/operator/namespaces/{slug}");
    let is_shown = change == QuotaChange::default();
    let found: Vault = if is_shown {
        client.get(&path).await
    } else {
        client.post(&format!("{path}/quota"), json!(change)).await
    }
    .map_err(|failure| with_namespace_name(failure, slug))?;
    let facts = describe_quota(&found).map(|(label, value)| (label, Some(value)));
    let mut text = format_facts(facts);
    if !is_shown {
        text = format!("{TICK} set the quota of {BOLD}{slug}{BOLD:#}\n{text}");
    }
    if exceeds_quota(&found) {
        text.push_str(
            "\nIt holds more than that. Nothing is taken away; what adds is refused until it holds less.",
        );
    }
    Ok(Report::new(&found, text))
}

/// Returns whether a namespace uses more of anything than its limit allows, as after a limit was
/// lowered.
fn exceeds_quota(found: &Vault) -> bool {
    let (usage, quota) = (&found.usage, &found.quota);
    [
        (Some(usage.bytes), quota.bytes),
        (Some(usage.objects), quota.objects),
        (usage.machines, quota.machines),
        (usage.people, quota.people),
        (usage.drafts, quota.drafts),
    ]
    .into_iter()
    .any(|(used, limit)| matches!((used, limit), (Some(used), Some(limit)) if used > limit))
}

/// Parses a value of `--bytes`: a size such as 5GiB, `none` or `plan`.
fn parse_bytes_limit(text: &str) -> Result<QuotaLimit, String> {
    let wrong =
        || format!("`{text}` is not a size; use a number such as 500MiB or 5GiB, none or plan");
    parse_word(text)
        .or_else(|| quota::parse_bytes(text).map(QuotaLimit::Most))
        .ok_or_else(wrong)
}

/// Parses a limit of objects, machines, people or drafts: a number, `none` or `plan`.
fn parse_limit(text: &str) -> Result<QuotaLimit, String> {
    let wrong = || format!("`{text}` is not a number; use digits, none or plan");
    let number = || {
        text.parse()
            .ok()
            .filter(|number| *number <= quota::MAX_LIMIT)
    };
    parse_word(text)
        .or_else(|| number().map(QuotaLimit::Most))
        .ok_or_else(wrong)
}

/// Parses the words that stand for a limit. On the wire, 0 means no limit.
fn parse_word(text: &str) -> Option<QuotaLimit> {
    match text {
        "none" => Some(QuotaLimit::Most(0)),
        "plan" => Some(QuotaLimit::Plan(PlanWord::Plan)),
        _ => None,
    }
}
