//! Checks that `docs/json.md`, which describes the member `data` of `--json` for each command, is
//! what the types of the commands' results generate.

use std::{collections::BTreeMap, fmt::Write as _};

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};
use vault_gate::report::json::AuditView;
use vault_library::{
    Capabilities,
    export::{SiteReport, ZipReport},
};
use vault_testing::schema::{kind, line, type_words};

use crate::{
    cli,
    commands::{
        agent, find, keep_current,
        maintenance::{self, config::Setting},
        server, share, start,
        trust::{self, audit_repo::RepositoryAudit},
        write,
    },
    errors::codes,
    output::SingleOrList,
    tasks::{
        approval::Approvals,
        profiles::{AgentProfile, ProfileSync},
        project_state::ProjectSkills,
    },
};

/// Returns the schema of a type. The generator collects the schemas of the types that it refers to.
type Describe = fn(&mut SchemaGenerator) -> Value;

fn view<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let mut schema = generator.root_schema_for::<T>().to_value();
    if let Some(members) = schema.as_object_mut() {
        members.remove("$defs");
    }
    schema
}

/// The result type of each command. An entry may name options or a subcommand, if they change the
/// result.
const VIEWS: &[(&str, Describe)] = &[
    ("add", view::<start::add::Added>),
    ("add --project", view::<start::add::project::AddedToProject>),
    (
        "add --dry-run",
        view::<Vec<start::add::dry_run::CheckedSource>>,
    ),
    ("approve", view::<Approvals>),
    ("disable", view::<agent::switch::SkillVisibility>),
    ("enable", view::<agent::switch::SkillVisibility>),
    ("find", view::<find::discover::Discovery>),
    ("fmt", view::<write::fmt::FixedFiles>),
    ("help COMMAND", view::<String>),
    ("help errors", view::<Vec<codes::CodeRow>>),
    ("history", view::<keep_current::history::History>),
    ("import", view::<start::add::Added>),
    ("install", view::<start::install::Installation>),
    ("mcp install", view::<Vec<server::mcp::install::FileChange>>),
    (
        "mcp uninstall",
        view::<Vec<server::mcp::install::FileChange>>,
    ),
    ("new", view::<write::new::NewSkill>),
    (
        "update --project",
        view::<keep_current::update::project::UpdatedProject>,
    ),
    ("verify --project", view::<ProjectSkills>),
    (
        "doctor --project",
        view::<maintenance::doctor::project::ProjectHealth>,
    ),
    ("outdated", view::<keep_current::outdated::SourceComparison>),
    ("policy check", view::<trust::policy::PolicyCheck>),
    ("release list", view::<Vec<share::release::WaitingRelease>>),
    ("release show", view::<share::release::ProposedChange>),
    ("release sign", view::<share::release::ProposedChange>),
    ("remove", view::<start::remove::Removal>),
    (
        "remove --project",
        view::<start::remove::project::RemovedFromProject>,
    ),
    (
        "serve --print-config",
        view::<server::serve::ServerSettings>,
    ),
    ("try", view::<start::trial::TriedSkill>),
    ("update", view::<keep_current::update::UpdatedSkills>),
    ("audit", view::<AuditView<'_>>),
    ("audit-repo", view::<RepositoryAudit<'_>>),
    ("config list", view::<Vec<Setting>>),
    ("export well-known", view::<SiteReport>),
    ("export zip", view::<ZipReport>),
    ("lint", view::<AuditView<'_>>),
    ("list", view::<find::list::InstalledSkills>),
    ("list --project", view::<ProjectSkills>),
    ("resolve", view::<Capabilities>),
    ("search", view::<Vec<find::skill::FoundSkill>>),
    ("skill list", view::<Vec<find::skill::ListedSkill>>),
    ("skill search", view::<Vec<find::skill::FoundSkill>>),
    ("skill which", view::<find::skill::Scripts>),
    (
        "skill which NAME ACTION",
        view::<find::skill::LocatedAction>,
    ),
    ("agents", view::<Vec<agent::agents::ShownAgent>>),
    ("profiles", view::<Vec<AgentProfile>>),
    ("cloud connect", view::<share::cloud::connect::Connected>),
    (
        "cloud pull",
        view::<SingleOrList<share::cloud::pull::PulledLink>>,
    ),
    ("cloud pull --every", view::<share::cloud::every::PullTimer>),
    ("cloud reset-pin", view::<share::cloud::reset_pin::PinReset>),
    ("key create", view::<trust::key::create::CreatedKey>),
    ("key heal", view::<trust::key::ChangedKeys>),
    (
        "key recovery check",
        view::<trust::key::recovery::RecoveryFile>,
    ),
    (
        "key recovery check --renew",
        view::<trust::key::ChangedKeys>,
    ),
    ("key recovery create", view::<trust::key::ChangedKeys>),
    ("key recovery use", view::<trust::key::ChangedKeys>),
    ("key rotate", view::<trust::key::ChangedKeys>),
    ("key show", view::<trust::key::show::ShownKeys>),
    ("publishers add", view::<trust::key::ChangedKeys>),
    ("publishers remove", view::<trust::key::ChangedKeys>),
    (
        "publishers request",
        view::<trust::publishers::request::RequestedKey>,
    ),
    ("publishers threshold", view::<trust::key::ChangedKeys>),
    ("link", view::<share::link::Linked>),
    ("link prefer", view::<share::link::Preferred>),
    ("status", view::<share::status::Status>),
    ("sync-profiles", view::<ProfileSync>),
    ("unlink", view::<share::unlink::Unlinked>),
    ("backup", view::<trust::backup::Backup>),
    (
        "cloud rollback",
        view::<share::cloud::rollback::ReleaseRollback>,
    ),
    ("demo", view::<start::demo::Demonstration>),
    ("doctor", view::<maintenance::doctor::Health<'_>>),
    (
        "publishers list",
        view::<trust::publishers::list::Publishers>,
    ),
    ("restore", view::<trust::restore::RestoredVault>),
    ("setup", view::<start::setup::Setup>),
    ("show NAME", view::<find::show::InstalledSkill>),
    ("show PATH", view::<find::show::SkillFolder<'_>>),
    ("rollback", view::<keep_current::rollback::SkillRollback>),
    ("sync", view::<share::sync::Sync>),
    ("transform add", view::<agent::transform::AddedTransform>),
    (
        "transform list",
        view::<Vec<agent::transform::TransformFile>>,
    ),
    (
        "transform remove",
        view::<agent::transform::RemovedTransform>,
    ),
    ("verify", view::<trust::verify::Verification>),
    ("verify NAME", view::<trust::verify::IntactSkill>),
    ("verify PATH", view::<trust::verify::VerifiedExport>),
    ("version", view::<maintenance::version::Program>),
    ("version --licenses", view::<maintenance::version::Licenses>),
];

/// Commands that print the same text with and without `--json`.
const TEXT: &[&str] = &["completions", "man"];

/// Commands that print no data, except for some of their options and subcommands.
const SILENT: &[&str] = &["mcp", "serve"];

/// Commands whose data is an answer of the service, which docs/api.md describes.
const ANSWERS: &[&str] = &[
    "audit-log",
    "clients",
    "devices",
    "drafts",
    "notices",
    "operator",
    "users",
];

/// Adds the members of a schema and of its alternatives to `members`, each with its description.
fn add_members(schema: &Value, defs: &Map<String, Value>, members: &mut BTreeMap<String, String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or(name);
        return add_members(&defs[name], defs, members);
    }
    let properties = schema["properties"].as_object();
    // A variant of an enum with one member has its description on the variant.
    let is_variant = properties.is_some_and(|members| members.len() == 1);
    let of_variant = schema["description"].as_str().filter(|_| is_variant);
    for (name, member) in properties.into_iter().flatten() {
        let doc = member["description"].as_str().or(of_variant);
        let doc = doc.unwrap_or_default();
        assert!(
            !doc.is_empty(),
            "the member {name} is not described: {schema}"
        );
        let row = format!("| `{name}` | {} | {} |\n", type_words(member), line(doc));
        members.entry(name.clone()).or_insert(row);
    }
    for part in ["anyOf", "oneOf", "allOf"] {
        for option in schema[part].as_array().into_iter().flatten() {
            add_members(option, defs, members);
        }
    }
}

fn table(schema: &Value, defs: &Map<String, Value>) -> String {
    let mut members = BTreeMap::new();
    add_members(schema, defs, &mut members);
    if members.is_empty() {
        return kind(schema);
    }
    let rows: String = members.into_values().collect();
    format!("| member | type | meaning |\n|---|---|---|\n{rows}")
}

fn page() -> String {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut views: Vec<_> = VIEWS
        .iter()
        .map(|(words, describe)| (words, describe(&mut generator)))
        .collect();
    views.sort_by_key(|(words, _)| *words);
    let defs = generator.take_definitions(true);
    let mut page = String::from(
        "# What --json prints\n\n\
         Written from the types that the commands return; a test keeps this page equal to them. \
         With `--json` a command prints one object on standard output: `schema` (1), `ok`, `data`, \
         `warnings` and `error`. This page describes `data`. Later versions may add members; \
         a program should ignore those that it does not know. [errors.md](errors.md) lists the codes.\n\n",
    );
    let commands = |words: &[&str]| {
        let words = words.iter().map(|word| format!("`vault {word}`"));
        words.collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(
        page,
        "{} print answers of the service, which [api.md](api.md) describes. {} print text. {} serve \
         until they are stopped, and print no data.",
        commands(ANSWERS),
        commands(TEXT),
        commands(SILENT)
    );
    for (words, schema) in views {
        let doc = schema["description"].as_str().unwrap_or_default();
        let (schema, list) = match &schema["type"] {
            Value::String(kind) if kind == "array" => (&schema["items"], "A list. Each entry:\n\n"),
            _ => (&schema, ""),
        };
        let doc = doc.replace('\n', " ");
        let break_after = if doc.is_empty() { "" } else { "\n\n" };
        let table = table(schema, &defs);
        let _ = write!(
            page,
            "\n## vault {words}\n\n{doc}{break_after}{list}{table}"
        );
    }
    page.push_str("\n# Types\n");
    for (name, schema) in &defs {
        let doc = schema["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ");
        let _ = write!(page, "\n### {name}\n\n{doc}\n\n{}", table(schema, &defs));
    }
    page
}

#[test]
fn written_pages_have_the_json_of_each_command() {
    vault_testing::page::assert_current("docs/json.md", &page());
}

#[test]
fn each_command_is_described() {
    for command in cli::full_command().get_subcommands() {
        let name = command.get_name();
        let is_named = |words: &&str| words.split(' ').next() == Some(name);
        let views = VIEWS.iter().map(|(words, _)| *words);
        let mut all = views
            .chain(TEXT.iter().copied())
            .chain(SILENT.iter().copied())
            .chain(ANSWERS.iter().copied());
        assert!(
            all.any(|words| is_named(&words)),
            "add vault {name} to VIEWS, or to ANSWERS, in cli/src/json_page_tests.rs"
        );
    }
}
