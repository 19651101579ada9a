//! The content of notices: JSON for webhooks, plain text for mail.
//!
//! Names that a machine or the holder of a key chose are defused: they lose all characters from
//! which programs make links or mentions.

use serde_json::{Value, json};
use vault_format::catalog::RootChanges;
use vault_format::name::Slug;
use vault_format::time::Timestamp;

use crate::config::quota::QuotaKind;
use crate::model::notice::{Event, Machine};
use crate::senders::{HeaderText, Mail};
use crate::units::format_size;
use vault_api::Email;

/// A notice as it is sent, with its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice<'a> {
    /// Id, `msg_…`; the same for every recipient and attempt.
    pub(super) id: &'a str,
    /// Event that the notice is about.
    pub(super) event: &'a Event,
    /// Time of the event, not of the attempt.
    pub(super) at: Timestamp,
}

/// Maximum number of characters of a name that is not the vault's own.
const MAX_FOREIGN_CHARS: usize = 32;

/// Returns a name that a machine or the holder of a key chose, in a form that a notice may contain:
/// cut, on one line, and without the characters from which mail and chat programs make a link or a
/// mention. Otherwise an attacker could send owners a link that seems to come from the service.
pub(super) fn defuse_text(text: &str) -> String {
    let is_harmless = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '(' | ')');
    let defused = text.chars().map(|c| if is_harmless(&c) { c } else { '_' });
    let cut: String = defused.take(MAX_FOREIGN_CHARS).collect();
    if text.chars().count() > MAX_FOREIGN_CHARS {
        format!("{cut}...")
    } else {
        cut
    }
}

/// Returns a line for each difference between two lists of keys. The holder of a key chose its name
/// and may be the attacker whom the notice is about. So the name is defused, and quoted because it
/// may look like a part of the line.
pub(crate) fn describe_key_changes(changes: &RootChanges) -> Vec<String> {
    let quote = |name: &mut String| *name = format!("\"{}\"", defuse_text(name));
    let mut changes = changes.clone();
    let RootChanges {
        added,
        removed,
        revoked,
        roles,
        renamed,
        ..
    } = &mut changes;
    for (before, _) in renamed.iter_mut() {
        quote(before);
    }
    let lists = added.iter_mut().chain(removed).chain(revoked);
    let others = roles.iter_mut().map(|change| &mut change.key);
    let renamed = renamed.iter_mut().map(|(_, key)| key);
    // A key without a fingerprint is in neither list, and is shown by its id instead of a name.
    for key in lists.chain(others).chain(renamed) {
        if key.fingerprint.is_some() {
            quote(&mut key.name);
        }
    }
    let lines = changes.describe_lines().into_iter();
    lines.map(|line| line.text).collect()
}

/// Returns the event with the names of machines defused. Names of keys are defused when the event
/// is created, see [`describe_key_changes`].
fn defuse_event(event: &Event) -> Event {
    let mut event = event.clone();
    if let Event::MachineWaiting { machines, .. } = &mut event {
        for machine in machines {
            machine.name = defuse_text(&machine.name);
        }
    }
    event
}

/// Returns the JSON body of a request to a webhook, with `type`, `timestamp` and `data`; the slug
/// of the vault is added to `data`.
pub(super) fn webhook_body(slug: &Slug, event: &Event, at: Timestamp) -> String {
    let mut body = json!(defuse_event(event));
    body["timestamp"] = json!(at);
    // Serde omits `data` for a unit variant. There is none today; if one is added, its `data` must
    // still have the vault, which receivers find at the same place in all events.
    if !body["data"].is_object() {
        body["data"] = json!({});
    }
    if let Value::Object(data) = &mut body["data"] {
        data.insert("vault".to_owned(), json!(slug));
    }
    body.to_string()
}

/// Composes the mail to one owner; `base` is the address of this service.
pub(super) fn owner_mail(to: Email, slug: &Slug, base: &str, notice: Notice<'_>) -> Mail {
    let (what, text) = describe_event(slug, &defuse_event(notice.event));
    let end = format!(
        "--\nYou get this mail because you are an owner of the vault {slug} at {base}.\n\
         An owner can switch these mails off for all owners: vault notices mail off\n"
    );
    Mail {
        to,
        subject: HeaderText::from_text(&format!("[vault] {slug}: {what}")),
        text: format!("{text}\n{end}"),
        id: HeaderText::from_text(notice.id),
        at: notice.at,
    }
}

/// Describes the event twice: in a few words for the subject, and in sentences with the next step
/// for the text.
fn describe_event(slug: &Slug, event: &Event) -> (String, String) {
    match event {
        Event::MachineWaiting { waiting, machines } => {
            describe_waiting_machines(slug, *waiting, machines)
        }
        Event::DraftWaiting { draft, kind, skill } => {
            let about = match (kind.as_str(), skill) {
                ("propose", Some(skill)) => format!("a change of the skill {skill}"),
                ("install", Some(skill)) => format!("the skill {skill} from its source"),
                ("remove", Some(skill)) => format!("the removal of the skill {skill}"),
                ("key_request", _) => "permission to publish with a key".to_owned(),
                ("release", _) => "a release that lacks signatures".to_owned(),
                _ => "a change".to_owned(),
            };
            let text = format!(
                "In the vault {slug}, a draft is waiting for a decision. It proposes {about}.\n\n\
                 Read it, then accept or decline it:\n\n\
                 \x20   vault drafts show {draft}\n"
            );
            ("a draft is waiting".to_owned(), text)
        }
        Event::ReleaseEnds { release, ends_at } => {
            let text = format!(
                "Release {release} of the vault {slug} ends at {ends_at}. After that, machines\n\
                 install and update nothing from it; installed skills keep working.\n\n\
                 Publish a new release before then:\n\n    vault sync --cloud\n"
            );
            (format!("release {release} ends soon"), text)
        }
        Event::KeyReplaced {
            root_version,
            fingerprint,
            changes,
        } => {
            let changes = changes.join("\n    ");
            let text = format!(
                "The keys of the vault {slug} have changed. Its root document is now version\n\
                 {root_version}, and its fingerprint is {fingerprint}.\n\n\
                 \x20   {changes}\n\n\
                 If none of the vault's owners did this, somebody else holds a key of the vault.\n\
                 See what was done and by whom, then recover the vault:\n\n\
                 \x20   vault audit-log\n    vault key recovery use --help\n"
            );
            ("the keys have changed".to_owned(), text)
        }
        Event::PaymentFailed { served_until } => {
            let until = match served_until {
                Some(until) => format!("Machines get skills until {until}, and not after that."),
                None => "Machines get no skills until it is paid.".to_owned(),
            };
            let text = format!(
                "A payment for the vault {slug} failed. {until}\n\n\
                 See what is due, and where to pay:\n\n    vault status\n"
            );
            ("a payment failed".to_owned(), text)
        }
        Event::QuotaNear { quota, used, limit } => (
            "80 % of the quota is used".to_owned(),
            describe_quota(slug, *quota, *used, *limit),
        ),
        Event::Test {} => (
            "a test".to_owned(),
            format!("An owner of the vault {slug} tests these notices.\n"),
        ),
    }
}

fn describe_waiting_machines(
    slug: &Slug,
    waiting: usize,
    machines: &[Machine],
) -> (String, String) {
    let (what, is) = match waiting {
        1 => ("a machine".to_owned(), "is"),
        many => (format!("{many} machines"), "are"),
    };
    let mut text = format!("In the vault {slug}, {what} {is} waiting for approval:\n\n");
    // The name is quoted, since the machine chose it and it may look like a part of the
    // text.
    for machine in machines {
        text.push_str(&format!(
            "    \"{}\"  {}\n",
            machine.name, machine.fingerprint
        ));
    }
    if waiting > machines.len() {
        text.push_str(&format!("    and {} more\n", waiting - machines.len()));
    }
    text.push_str(
        "\nA machine chooses its own name, so compare the fingerprint with the one that\n\
         the machine itself shows. Then admit the machine:\n\n\
         \x20   vault devices admit <FINGERPRINT>\n\n\
         If you do not know a machine, deny it:\n\n\
         \x20   vault devices deny <FINGERPRINT>\n",
    );
    (format!("{what} {is} waiting for approval"), text)
}

/// Describes how much of a limit of its quota a vault uses, with the next step.
fn describe_quota(slug: &Slug, quota: QuotaKind, used: u64, limit: u64) -> String {
    let storage = "uploads of skills and drafts are refused. Remove skills that nobody needs\n\
                   and publish; what no release names any more is deleted after 30 days.";
    let (amounts, refused) = match quota {
        QuotaKind::Bytes => (
            format!("{} of at most {}", format_size(used), format_size(limit)),
            storage,
        ),
        QuotaKind::Objects => (format!("{used} objects of at most {limit}"), storage),
        QuotaKind::Machines => (
            format!("{used} machines of at most {limit}"),
            "no further machine can be admitted. Revoke those that nobody uses.",
        ),
        QuotaKind::People => (
            format!("{used} people of at most {limit}, with those who are invited"),
            "nobody can be invited. Remove people who no longer need the vault.",
        ),
        QuotaKind::Drafts => (
            format!("{used} waiting drafts of at most {limit}"),
            "further drafts are refused. Decide on those that wait.",
        ),
    };
    format!(
        "The vault {slug} has reached 80 % of its quota. It has:\n\n    {amounts}\n\n\
         When that is full, {refused}\n\
         The operator of the service can raise the quota. See what is used:\n\n\
         \x20   vault status\n"
    )
}

#[cfg(test)]
mod tests {
    use vault_format::catalog::{NamedKey, RoleChange};
    use vault_format::keys::SecretKey;
    use vault_format::root::KeyFingerprint;

    use super::*;

    const AT: Timestamp = Timestamp::from_unix(1_795_219_200);

    fn slug() -> Slug {
        "team".parse().unwrap()
    }

    fn notice(event: &Event) -> Notice<'_> {
        Notice {
            id: "msg_1",
            event,
            at: AT,
        }
    }

    fn machines(waiting: usize) -> Event {
        Event::MachineWaiting {
            waiting,
            machines: vec![Machine {
                name: "laptop".to_owned(),
                fingerprint: "dev:aaaa-bbbb".to_owned(),
            }],
        }
    }

    #[test]
    fn a_body_says_type_time_and_vault() {
        assert_eq!(
            serde_json::from_str::<Value>(&webhook_body(&slug(), &machines(1), AT)).unwrap(),
            json!({
                "type": "machine_waiting",
                "timestamp": "2026-11-21T00:00:00Z",
                "data": {
                    "vault": "team",
                    "waiting": 1,
                    "machines": [{ "name": "laptop", "fingerprint": "dev:aaaa-bbbb" }],
                },
            })
        );
        assert_eq!(
            serde_json::from_str::<Value>(&webhook_body(&slug(), &Event::Test {}, AT)).unwrap(),
            json!({ "type": "test", "timestamp": "2026-11-21T00:00:00Z", "data": { "vault": "team" } })
        );
    }

    #[test]
    fn each_kind_of_quota_has_its_numbers_and_its_next_step() {
        let mail = |quota, used, limit| {
            let event = Event::QuotaNear { quota, used, limit };
            let to = "ann@example.org".parse().unwrap();
            owner_mail(to, &slug(), "https://vault.example", notice(&event)).text
        };
        for (quota, numbers, step) in [
            (
                QuotaKind::Bytes,
                "900 bytes of at most 1000 bytes",
                "Remove skills",
            ),
            (
                QuotaKind::Objects,
                "900 objects of at most 1000",
                "Remove skills",
            ),
            (
                QuotaKind::Machines,
                "900 machines of at most 1000",
                "Revoke",
            ),
            (
                QuotaKind::People,
                "900 people of at most 1000",
                "Remove people",
            ),
            (
                QuotaKind::Drafts,
                "900 waiting drafts of at most 1000",
                "Decide",
            ),
        ] {
            let text = mail(quota, 900, 1000);
            assert!(text.contains(&format!("    {numbers}")), "{text}");
            assert!(text.contains(step), "{text}");
        }
    }

    #[test]
    fn what_a_stranger_chose_is_short_quoted_and_no_link() {
        for (name, shown) in [
            ("laptop", "laptop"),
            ("anns-mbp.local", "anns-mbp_local"),
            (
                "https://evil.example/login?a=b",
                "https___evil_example_login_a_b",
            ),
            ("www.evil.example\n\nClick", "www_evil_example__Click"),
            ("@channel <b>", "_channel _b_"),
            (&"x".repeat(64), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."),
        ] {
            let mut event = machines(1);
            if let Event::MachineWaiting { machines, .. } = &mut event {
                machines[0].name = name.to_owned();
            }
            let body: Value = serde_json::from_str(&webhook_body(&slug(), &event, AT)).unwrap();
            assert_eq!(body["data"]["machines"][0]["name"], shown);
            let to = "ann@example.org".parse().unwrap();
            let mail = owner_mail(to, &slug(), "https://vault.example", notice(&event));
            let quoted = format!("    \"{shown}\"  dev:aaaa-bbbb\n");
            assert!(mail.text.contains(&quoted), "{}", mail.text);
            assert!(!mail.subject.as_str().contains(shown));
        }
    }

    #[test]
    fn a_name_of_a_key_is_short_quoted_and_no_link() {
        let key = |name: &str, fingerprint| NamedKey {
            name: name.to_owned(),
            fingerprint,
        };
        let fingerprint = Some(KeyFingerprint::publisher(
            &SecretKey::from_seed([7; 32]).public(),
        ));
        let link = || key("see https://evil.example/login", fingerprint);
        let changes = RootChanges {
            added: vec![link()],
            removed: vec![key(&"x".repeat(64), fingerprint)],
            revoked: vec![key("pub:aaaa-bbbb", None)],
            roles: vec![RoleChange {
                key: link(),
                role: "root",
                gained: true,
            }],
            renamed: vec![("www.evil.example".to_owned(), link())],
            ..RootChanges::none_at(2)
        };
        let lines = describe_key_changes(&changes);
        let shown = "\"see https___evil_example_login\"";
        for (line, start) in lines.iter().zip([
            format!("key added: {shown} (pub:"),
            format!("key removed: \"{}...\" (pub:", "x".repeat(32)),
            "key revoked: pub:aaaa-bbbb".to_owned(),
            format!("key {shown} (pub:"),
            format!("key renamed: \"www_evil_example\" → {shown} (pub:"),
        ]) {
            assert!(line.starts_with(&start), "{line}");
        }
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn a_mail_says_what_happened_and_how_to_answer_it() {
        let draft = Event::DraftWaiting {
            draft: "drf_1".to_owned(),
            kind: "propose".to_owned(),
            skill: Some("pdf".to_owned()),
        };
        for (event, subject, command) in [
            (
                machines(1),
                "[vault] team: a machine is waiting for approval",
                "vault devices admit",
            ),
            (
                machines(3),
                "[vault] team: 3 machines are waiting for approval",
                "and 2 more",
            ),
            (
                draft,
                "[vault] team: a draft is waiting",
                "vault drafts show drf_1",
            ),
        ] {
            let to = "ann@example.org".parse().unwrap();
            let base = "https://vault.example";
            let mail = owner_mail(to, &slug(), base, notice(&event));
            assert_eq!(mail.subject.as_str(), subject);
            assert!(mail.text.contains(command), "{}", mail.text);
            assert!(
                mail.text.contains("vault notices mail off"),
                "{}",
                mail.text
            );
            assert!(mail.text.contains(base), "{}", mail.text);
            assert!(mail.text.is_ascii(), "{}", mail.text);
        }
    }
}
