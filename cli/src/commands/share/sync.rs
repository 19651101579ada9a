//! `vault sync --cloud`: this library becomes the namespace's next release.
//!
//! Plan, ask what is missing, upload, put the catalog. Each step can be repeated: an interrupted sync goes on where it stopped,
//! and no release number is ever signed for two catalogs.

use bytes::Bytes;
use clap::Args;
use reqwest::{Method, header};
use serde::Deserialize;
use serde_json::{Value, json};
use vault_library::{
    Vault, adopt, cloud,
    release::{
        self, Difference, Plan, PlanError, PlanRequest, PlannedObject, ReleasePlan, Strangers,
    },
};
use vault_skill::{catalog::SkillEntry, hash::Digest, name::SkillName, time::Timestamp};
use vault_store::objects::Class;

use crate::{
    context::Context,
    errors::{Exit, Failure, chain},
    output::{
        report::{Report, Warning},
        style::{BOLD, DIM, GOOD, HINT, paint},
        text::{changes, count, size},
    },
    service::{Body, OwnerClient, PACK_BYTES, ceiling, connection::Connection, in_flight},
};

/// Hashes that one question asks about.
const ASKED: usize = 5000;
/// Objects over this size travel alone.
const ALONE: u64 = 256 * 1024;

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
A sync signs a new release only when something changed, when the current one expires within 30 days, or with --renew.
When somebody else published meanwhile, it stops with exit 3 and says what differs.

Examples:
  vault sync --cloud
  vault sync --cloud --adopt
  vault sync --cloud --renew --json

Since 0.5.0 (beta).")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Arguments {
    /// Publish to the connected service
    #[arg(long, required = true)]
    cloud: bool,
    /// Take in the skills that somebody else published with this vault's key
    #[arg(long, conflicts_with = "replace")]
    adopt: bool,
    /// Drop what somebody else published: the release is this library
    #[arg(long)]
    replace: bool,
    /// Sign a new release even though nothing changed
    #[arg(long)]
    renew: bool,
    /// Days until the release expires, 1 to 400
    #[arg(long, value_name = "DAYS", default_value_t = release::DEFAULT_DAYS, value_parser = clap::value_parser!(i64).range(1..=400))]
    days: i64,
    /// Another address that will serve this vault: sign for it too before it moves
    #[arg(long, value_name = "URL")]
    also: Vec<crate::service::Address>,
}

/// How to sync; what `cloud rollback` needs of it too.
pub struct How {
    strangers: Strangers,
    renew: bool,
    days: i64,
    also: Vec<String>,
}

impl Default for How {
    fn default() -> Self {
        Self {
            strangers: Strangers::Stop,
            renew: false,
            days: release::DEFAULT_DAYS,
            also: Vec::new(),
        }
    }
}

/// What came of a sync.
pub enum Synced {
    /// Nothing to do.
    Unchanged {
        /// The current release.
        release: u64,
        /// Its skills.
        skills: u64,
        /// When it expires.
        expires_at: Timestamp,
        /// What was taken in from others.
        adopted: Vec<SkillName>,
    },
    /// A new release.
    Published {
        /// What it is.
        plan: Box<ReleasePlan>,
        /// Objects that went up.
        uploaded: usize,
        /// Their bytes.
        bytes: u64,
        /// What was taken in from others.
        adopted: Vec<SkillName>,
    },
}

/// Syncs the library to the connected namespace.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let how = How {
        strangers: match (arguments.adopt, arguments.replace) {
            (true, _) => Strangers::Adopt,
            (_, true) => Strangers::Replace,
            _ => Strangers::Stop,
        },
        renew: arguments.renew,
        days: arguments.days,
        also: arguments
            .also
            .iter()
            .map(|address| address.base.to_string())
            .collect(),
    };
    let connection = Connection::load(context)?;
    let vault = context.vault_or_new()?;
    let client = connection.owner(context)?;
    let synced = context.block_on(sync(context, &vault, &connection, &client, &how))?;
    warn_about_recovery(context, &vault)?;
    Ok(report(&connection, &synced))
}

/// Said at every sync until the file is moved away: on this machine it is lost or stolen together with the key that it replaces.
pub fn warn_about_recovery(context: &Context, vault: &Vault) -> Result<(), Failure> {
    if let Some(path) = vault.keys().recovery_left_here()? {
        context.ui.warn(
            Warning::new(
                "recovery_key_here",
                format!("the recovery key still lies in {}", path.display()),
            )
            .hint("move it to a safe place off this machine"),
        );
    }
    Ok(())
}

/// Plans against the current catalog and publishes; a release that came between is looked at once more.
pub async fn sync(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
    client: &OwnerClient,
    how: &How,
) -> Result<Synced, Failure> {
    let root = format!("/admin/vaults/{}", connection.slug);
    let mut adopted = Vec::new();
    let mut conflicts = 0;
    let mut looked_again = false;
    loop {
        let spinner = context.ui.spinner("planning the release");
        let current = current(vault, connection, client, &root).await?;
        let request = PlanRequest {
            also_served_from: &how.also,
            strangers: how.strangers,
            renew: how.renew,
            days: how.days,
            ..PlanRequest::new(
                connection.base.as_str(),
                &connection.slug,
                current.as_deref(),
            )
        };
        let planned = release::plan(vault, &request);
        spinner.finish_and_clear();
        let planned = match planned {
            // Another process of this vault may have published between the question and the plan.
            Err(PlanError::RolledBack { .. } | PlanError::TwoCatalogs(_)) if !looked_again => {
                looked_again = true;
                continue;
            }
            Err(error @ PlanError::NotOurs(_)) => {
                self_signed(client, &root).await?;
                return Err(not_planned(error, connection));
            }
            planned => planned.map_err(|error| not_planned(error, connection)),
        };
        match planned? {
            Plan::Unchanged(known) => {
                return Ok(Synced::Unchanged {
                    release: known.release,
                    skills: known.skills,
                    expires_at: known.expires_at,
                    adopted,
                });
            }
            Plan::Adopt(entries) => {
                adopted.extend(adopt_entries(context, vault, client, &root, &entries).await?);
            }
            Plan::Publish(plan) => {
                let (uploaded, bytes) = upload(context, vault, client, &root, &plan, false).await?;
                match put_catalog(context, vault, client, &root, &plan).await {
                    Ok(more) => {
                        release::published(vault, &plan)
                            .map_err(|error| not_planned(error, connection))?;
                        return Ok(Synced::Published {
                            plan,
                            uploaded: uploaded + more.0,
                            bytes: bytes + more.1,
                            adopted,
                        });
                    }
                    Err(failure) if failure.code == "release_conflict" && conflicts == 0 => {
                        conflicts += 1;
                        context
                            .ui
                            .note("Another release was published meanwhile; looking again.");
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
}

/// Fails where the server signs this vault itself: its catalog is another library's, and nothing can be pushed.
async fn self_signed(client: &OwnerClient, root: &str) -> Result<(), Failure> {
    let shown: Value = client.get(root).await?;
    if shown["kind"] != "self_signed" {
        return Ok(());
    }
    Err(Failure::failed(
        "namespace_self_signed",
        "this vault signs its releases itself; nothing can be pushed into it",
    )
    .hint("the server signs this vault itself: add skills where the server runs"))
}

/// The current catalog's exact bytes; those that we keep where the service says that they are current.
async fn current(
    vault: &Vault,
    connection: &Connection,
    client: &OwnerClient,
    root: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    let state = cloud::state(vault, connection.base.as_str(), &connection.slug)?;
    if let Some(state) = state
        && let Some(known) = &state.published
        && state.pending.is_none()
        && let Some(bytes) = state.catalog_bytes(vault)?
    {
        let shown: Value = client.get(root).await?;
        let same = shown["release"]["sha256"].as_str() == Some(&known.file_sha256.to_string());
        if same && Digest::of(&bytes) == known.file_sha256 {
            return Ok(Some(bytes));
        }
    }
    let answer = client
        .call(
            Method::GET,
            &format!("{root}/catalog"),
            &[],
            Body::Empty,
            ceiling::OBJECT,
        )
        .await?;
    if answer.status == 404 && answer.code() == "catalog_not_published" {
        return Ok(None);
    }
    Ok(Some(answer.good()?.body))
}

/// Fetches bundles and parts of the vault's own releases and installs them.
async fn adopt_entries(
    context: &Context,
    vault: &Vault,
    client: &OwnerClient,
    root: &str,
    entries: &[SkillEntry],
) -> Result<Vec<SkillName>, Failure> {
    let fetched = fetch_own(context, client, root, entries).await?;
    adopt::adopt(vault, entries, &|hash| fetched.get(hash).cloned()).map_err(Into::into)
}

/// Bundles of the vault's own releases with their parts, unverified.
pub async fn fetch_own(
    context: &Context,
    client: &OwnerClient,
    root: &str,
    entries: &[SkillEntry],
) -> Result<std::collections::HashMap<Digest, Vec<u8>>, Failure> {
    let mut fetched = std::collections::HashMap::new();
    let bar = context.ui.progress(entries.len() as u64, "fetching");
    in_flight(
        entries.to_vec(),
        |entry| {
            let client = client.clone();
            let root = format!("{root}/objects/bundles");
            async move {
                let bytes = object(&client, &root, &entry.bundle_hash).await?;
                let mut all = Vec::new();
                for (hash, _) in adopt::parts(&entry, &bytes)? {
                    all.push((hash, object(&client, &root, &hash).await?));
                }
                all.push((entry.bundle_hash, bytes));
                Ok(all)
            }
        },
        |objects| {
            fetched.extend(objects);
            bar.inc(1);
            Ok(())
        },
    )
    .await?;
    bar.finish_and_clear();
    Ok(fetched)
}

async fn object(client: &OwnerClient, root: &str, hash: &Digest) -> Result<Vec<u8>, Failure> {
    let answer = client
        .call(
            Method::GET,
            &format!("{root}/{hash}"),
            &[],
            Body::Empty,
            ceiling::OBJECT,
        )
        .await?;
    Ok(answer.good()?.body)
}

/// Uploads what the namespace lacks; what the current release names is taken as there, unless `all` are to be asked about.
async fn upload(
    context: &Context,
    vault: &Vault,
    client: &OwnerClient,
    root: &str,
    plan: &ReleasePlan,
    all: bool,
) -> Result<(usize, u64), Failure> {
    let mut uploaded = (0, 0);
    for class in [Class::Bundles, Class::Policies] {
        let asked: Vec<&PlannedObject> = plan
            .objects
            .iter()
            .filter(|object| object.class == class && (all || !object.known))
            .collect();
        let missing = missing(client, root, class, &asked).await?;
        let (objects, bytes) = send(context, vault, client, root, plan, class, &missing).await?;
        uploaded.0 += objects;
        uploaded.1 += bytes;
    }
    Ok(uploaded)
}

async fn missing<'o>(
    client: &OwnerClient,
    root: &str,
    class: Class,
    asked: &[&'o PlannedObject],
) -> Result<Vec<&'o PlannedObject>, Failure> {
    #[derive(Deserialize)]
    struct Missing {
        missing: Vec<Digest>,
    }
    let mut lacking = std::collections::HashSet::new();
    for some in asked.chunks(ASKED) {
        let objects: Vec<Value> = some
            .iter()
            .map(|object| json!({ "sha256": object.sha256, "size": object.size }))
            .collect();
        let body = json!({ "class": class_name(class), "objects": objects });
        let answer: Missing = client
            .post(&format!("{root}/objects/missing"), body)
            .await?;
        lacking.extend(answer.missing);
    }
    Ok(asked
        .iter()
        .filter(|object| lacking.contains(&object.sha256))
        .copied()
        .collect())
}

const fn class_name(class: Class) -> &'static str {
    match class {
        Class::Policies => "policies",
        _ => "bundles",
    }
}

/// Small objects travel in packs, large ones alone, many at once.
async fn send(
    context: &Context,
    vault: &Vault,
    client: &OwnerClient,
    root: &str,
    plan: &ReleasePlan,
    class: Class,
    objects: &[&PlannedObject],
) -> Result<(usize, u64), Failure> {
    let bar = context.ui.progress(objects.len() as u64, "uploading");
    let mut bytes = 0;
    in_flight(
        loads(objects),
        |load| {
            let client = client.clone();
            let path = format!("{root}/objects/{}", class_name(class));
            // Read here, on the one thread that touches the library; at most sixteen loads are in memory.
            let body = pack(vault, plan, &load);
            let alone = match &load[..] {
                [one] if one.size > ALONE => Some(one.sha256),
                _ => None,
            };
            let (number, size) = (
                load.len(),
                load.iter().map(|object| object.size).sum::<u64>(),
            );
            async move {
                let body = Bytes::from(body?);
                let (method, path, kind) = match alone {
                    Some(hash) => (
                        Method::PUT,
                        format!("{path}/{hash}"),
                        "application/octet-stream",
                    ),
                    None => (Method::POST, path, "application/vnd.vault.pack"),
                };
                client
                    .call(method, &path, &[], Body::Bytes(kind, body), ceiling::SMALL)
                    .await?
                    .good()?;
                Ok((number, size))
            }
        },
        |(number, size)| {
            bar.inc(number as u64);
            bytes += size;
            Ok(())
        },
    )
    .await?;
    bar.finish_and_clear();
    Ok((objects.len(), bytes))
}

/// Groups of objects that travel together.
fn loads<'o>(objects: &[&'o PlannedObject]) -> Vec<Vec<&'o PlannedObject>> {
    let mut loads = Vec::new();
    let mut open: Vec<&PlannedObject> = Vec::new();
    let mut held = 0;
    for object in objects {
        if object.size > ALONE {
            loads.push(vec![*object]);
            continue;
        }
        // 64 hex digits, a space, at most seven decimals, a line end.
        let length = object.size + 73;
        if held + length > PACK_BYTES as u64 && !open.is_empty() {
            loads.push(std::mem::take(&mut open));
            held = 0;
        }
        held += length;
        open.push(object);
    }
    if !open.is_empty() {
        loads.push(open);
    }
    loads
}

fn pack(vault: &Vault, plan: &ReleasePlan, load: &[&PlannedObject]) -> Result<Vec<u8>, Failure> {
    let read = |object: &PlannedObject| plan.read(vault, object).map_err(Failure::from);
    if let [one] = load
        && one.size > ALONE
    {
        return read(one);
    }
    let mut packed = Vec::new();
    for object in load {
        let bytes = read(object)?;
        packed.extend_from_slice(format!("{} {}\n", object.sha256, bytes.len()).as_bytes());
        packed.extend_from_slice(&bytes);
    }
    Ok(packed)
}

/// Makes the release current. Where objects are missing after all, they are uploaded and the catalog is put once more.
async fn put_catalog(
    context: &Context,
    vault: &Vault,
    client: &OwnerClient,
    root: &str,
    plan: &ReleasePlan,
) -> Result<(usize, u64), Failure> {
    let condition = match &plan.follows {
        Some(hash) => (header::IF_MATCH, format!("\"{hash}\"")),
        None => (header::IF_NONE_MATCH, "*".to_owned()),
    };
    let mut more = (0, 0);
    for last in [false, true] {
        let body = Body::Bytes(
            "application/octet-stream",
            Bytes::from(plan.catalog.clone()),
        );
        let answer = client
            .call(
                Method::PUT,
                &format!("{root}/catalog"),
                std::slice::from_ref(&condition),
                body,
                ceiling::SMALL,
            )
            .await?;
        match answer.good() {
            Ok(_) => break,
            Err(failure) if failure.code == "objects_missing" && !last => {
                more = upload(context, vault, client, root, plan, true).await?;
            }
            Err(mut failure) => {
                if failure.code == "release_conflict" {
                    failure.exit = Exit::Differences;
                    failure.hint =
                        Some("somebody publishes at the same time: sync again".to_owned());
                }
                return Err(failure);
            }
        }
    }
    Ok(more)
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let message = chain(&error);
        match error {
            PlanError::Vault(error) => error.into(),
            PlanError::Catalog(error) => error.into(),
            PlanError::Diverged(difference) => diverged(&difference, message),
            PlanError::RolledBack { .. } => Self::new(Exit::Integrity, "service_rolled_back", message)
                .hint("nothing was published; if the service was restored on purpose: vault sync --cloud --replace"),
            PlanError::TwoCatalogs(_) => Self::new(Exit::Integrity, "two_catalogs", message)
                .hint("nothing was published; if this library is the right one: vault sync --cloud --replace"),
            PlanError::NotOurs(_) => Self::new(Exit::Integrity, "catalog_not_ours", message)
                .hint("is this the right vault? vault key show prints its id"),
            PlanError::Damaged(skills) => Self::new(Exit::Integrity, "skill_damaged", message)
                .hint("add them again or remove them; nothing was published")
                .details(skills.iter().map(|(name, damage)| format!("{name}: {}", chain(damage)))),
            PlanError::Policy(_) => Self::failed("policy_invalid", message),
            PlanError::Profiles(_) => Self::failed("profiles_invalid", message),
            PlanError::Object(_) => Self::failed("release_too_large", message),
            PlanError::Moved(_) => Self::failed("skill_changed", message).hint("vault sync --cloud"),
        }
    }
}

fn not_planned(error: PlanError, _connection: &Connection) -> Failure {
    error.into()
}

fn diverged(difference: &Difference, message: String) -> Failure {
    let lines = |mark: &str, what: &str, names: &[SkillName]| {
        names
            .iter()
            .map(|name| format!("{mark} {name}  {what}"))
            .collect::<Vec<_>>()
    };
    Failure::new(Exit::Differences, "release_diverged", message)
        .details(lines("+", "only there", &difference.theirs))
        .details(lines("-", "only here", &difference.ours))
        .details(lines("~", "differs", &difference.differing))
        .hint("--adopt takes their skills in, --replace drops them")
        .data(json!({
            "release": difference.release,
            "theirs": difference.theirs,
            "ours": difference.ours,
            "differing": difference.differing,
        }))
}

/// The result for people and programs.
pub fn report(connection: &Connection, synced: &Synced) -> Report {
    match synced {
        Synced::Unchanged {
            release,
            skills,
            expires_at,
            adopted,
        } => {
            let mut lines = vec![format!(
                "{} nothing changed: release {release} with {} is current at {}",
                paint(GOOD, "✓"),
                count(*skills, "skill"),
                paint(HINT, connection.address())
            )];
            lines.extend(adopted_line(adopted));
            Report::new(
                json!({
                    "changed": false, "release": release, "skills": skills, "expires_at": expires_at,
                    "adopted": adopted, "address": connection.address(),
                }),
                lines.join("\n"),
            )
        }
        Synced::Published {
            plan,
            uploaded,
            bytes,
            adopted,
        } => {
            let mut lines = vec![format!(
                "{} published release {} with {} at {}",
                paint(GOOD, "✓"),
                paint(BOLD, plan.release),
                count(plan.skills as u64, "skill"),
                paint(HINT, connection.address())
            )];
            lines.extend(changes(&plan.added, &plan.changed, &plan.removed));
            lines.extend(adopted_line(adopted));
            lines.push(paint(
                DIM,
                format_args!(
                    "  uploaded {}, {}; good until {}",
                    count(*uploaded as u64, "object"),
                    size(*bytes),
                    plan.expires_at
                ),
            ));
            Report::new(
                json!({
                    "changed": true, "release": plan.release, "skills": plan.skills,
                    "added": plan.added, "updated": plan.changed, "removed": plan.removed,
                    "uploaded": uploaded, "bytes": bytes, "expires_at": plan.expires_at,
                    "payload_sha256": plan.payload_sha256, "sha256": plan.file_sha256,
                    "resumed": plan.resumed, "adopted": adopted, "address": connection.address(),
                }),
                lines.join("\n"),
            )
        }
    }
}

fn adopted_line(adopted: &[SkillName]) -> Option<String> {
    (!adopted.is_empty()).then(|| {
        let names: Vec<_> = adopted.iter().map(ToString::to_string).collect();
        format!("  took in {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pack_s_line_never_passes_its_allowance() {
        assert!(format!("{} {}\n", "0".repeat(64), super::ALONE).len() <= 73);
    }
}
