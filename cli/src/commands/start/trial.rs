//! `vault try`: lets one agent use a skill while the command runs. Nothing is signed or added, and
//! nothing stays: not in the vault, the trust folder or the agent's folder. A trial whose command
//! is killed ends with the next command of vault.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use vault_format::name::AgentId;
use vault_gate::report::Audited;
use vault_library::agents::{self, Agent, Machine, Trial};

use super::add;
use crate::{
    context::Context,
    errors::Failure,
    output::{GOOD, Report, clean, paint, shell_path},
    tasks::{
        audit_report::audited_skill,
        profiles::{agent_name, find_machine, known_agent_id},
    },
};

/// The arguments of `vault try`.
#[derive(Args, Debug)]
#[command(after_help = "\
Fetches a skill, judges it by the gate and shows what it found. If the gate accepts the skill, one \
agent gets a link to it, until you press Ctrl-C or the command is ended by SIGTERM or a closed \
terminal. Then nothing of it is left. If the command is killed, the next command of vault removes \
the link and the files.

The agent reads the skill like any other: the gate is no guarantee, and vault does not isolate what \
an agent runs. A skill that the gate refuses is not linked, unless --allow names each rule that \
refused it, with a reason. An entry of the agent's folder that has the name of the skill is never \
replaced.

Examples:
  vault try github:acme/skills/pdf
  vault try https://docs.example.com --skill pdf --agent claude-code
  vault try ./code-review")]
pub struct Arguments {
    /// A skill folder, SKILL.md file, archive, repository or address, as for `vault add`
    #[arg(value_name = "SOURCE")]
    source: String,
    /// The skill of this name or in this folder
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// The agent that gets the skill [default: the only one on this machine]
    #[arg(long, value_name = "AGENT", value_parser = known_agent_id)]
    agent: Option<AgentId>,
    /// A branch, tag, commit or version of the source
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// A folder in the repository, folder or archive
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// A plugin in a marketplace repository
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
    /// Accept flags of this rule for exactly these files; repeatable
    #[arg(long = "allow", value_name = "RULE")]
    allow: Vec<String>,
    /// The reason for --allow
    #[arg(long, value_name = "TEXT", requires = "allow")]
    reason: Option<String>,
}

/// A skill that an agent could use while the command ran.
#[derive(Debug, JsonSchema, Serialize)]
pub struct TriedSkill {
    #[serde(flatten)]
    audit: Audited,
    /// The source, as it was named.
    source: String,
    /// The exact commit, version or digest that was fetched; null if the source has none.
    revision: Option<String>,
    /// The vault that signed exactly these files, by the fingerprint of its first root version; null
    /// if none did.
    signer: Option<String>,
    /// The agent that got the skill.
    agent: AgentId,
    /// The link that is removed now.
    link: PathBuf,
}

/// Judges a skill, links it for one agent, and removes it again when the command is stopped.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let machine = find_machine(context, None)?;
    let agent = choose_agent(context, &machine, arguments.agent.as_ref())?;
    let root = skills_folder(agent, &machine)?;
    let examined = add::dry_run::examine_single(context, &arguments.as_addition())?;
    for line in examined.lines {
        context.ui.print_line(line);
    }
    let candidate = examined.candidate;
    let package = &candidate.package;
    let upstream = candidate.upstream.as_ref();
    let signer = upstream
        .and_then(|upstream| upstream.signer)
        .map(|signer| signer.to_string());
    context.ui.print_line(match &signer {
        Some(signer) => format!("  signed by {signer}"),
        None => "  not signed at its source".to_owned(),
    });
    let config = context.config_folder()?;
    let link = context.block_on(async {
        // Before the link is made: from here on, a signal ends the trial and not the process.
        let mut stop = StopSignals::new()?;
        let trial = Trial::start(&config, &root, &package.name, &package.files)?;
        let link = root.join(package.name.as_str());
        let shown = clean(&context.process.short_path(&link), 200);
        let agent = agent_name(&agent.id);
        // The user or the calling program waits for this line.
        context.ui.must_see(format!(
            "{} {agent} can use it now: {shown}\nPress Ctrl-C to end the trial.",
            paint(GOOD, "✓")
        ));
        stop.next().await;
        trial.end()?;
        Ok(link)
    })?;
    let text = format!(
        "\nThe trial has ended, and nothing of it is left. To keep the skill: {}",
        arguments.add_command()
    );
    let tried = TriedSkill {
        audit: audited_skill(
            &examined.source,
            candidate.outcome,
            Some(package),
            &package.findings,
        ),
        source: examined.source,
        revision: candidate.provenance.revision.clone(),
        signer,
        agent: agent.id.clone(),
        link,
    };
    Ok(Report::view(tried, text))
}

impl Arguments {
    /// Returns the arguments of `vault add` for the same skill.
    fn as_addition(&self) -> add::Arguments {
        let mut addition = add::Arguments::of_folders(vec![self.source.clone()]);
        addition.skills = self.skill.clone().into_iter().collect();
        addition.reference.clone_from(&self.reference);
        addition.path.clone_from(&self.path);
        addition.plugin.clone_from(&self.plugin);
        addition.allow.clone_from(&self.allow);
        addition.reason.clone_from(&self.reason);
        addition
    }

    /// Returns the command that adds the skill as it was tried, with every flag that selected it.
    fn add_command(&self) -> String {
        let flags = [
            ("--skill", self.skill.iter()),
            ("--ref", self.reference.iter()),
            ("--path", self.path.iter()),
            ("--plugin", self.plugin.iter()),
        ];
        let quote = |text: &String| shell_path(clean(text, 2048));
        let mut command = format!("vault add {}", quote(&self.source));
        for (flag, values) in flags {
            for value in values {
                command.push_str(&format!(" {flag} {}", quote(value)));
            }
        }
        for rule in &self.allow {
            command.push_str(&format!(" --allow {}", quote(rule)));
        }
        if let Some(reason) = &self.reason {
            command.push_str(&format!(" --reason {}", quote(reason)));
        }
        command
    }
}

/// Returns the named agent, or else the only one on this machine. Asks if there are several.
fn choose_agent(
    context: &Context,
    machine: &Machine,
    wanted: Option<&AgentId>,
) -> Result<&'static Agent, Failure> {
    let unknown = || fail!(AgentUnknown, "no agent has this name").hint("vault agents lists them");
    if let Some(id) = wanted {
        return agents::by_name(id.as_str()).ok_or_else(unknown);
    }
    match agents::detect_agents(machine)[..] {
        [only] => Ok(only),
        [] => Err(fail!(AgentNotFound, "no agent was found on this machine")
            .hint("name one: --agent <id>; vault agents --all lists them")),
        ref several => {
            let ids = several.iter().map(|agent| agent.id.to_string()).collect();
            let question = "Which agent should get the skill?";
            let id = context.ui.choose_one(question, "--agent <id>", ids)?;
            agents::by_name(&id).ok_or_else(unknown)
        }
    }
}

/// Returns the folder from which an agent reads the user's skills: one that exists, or else the one
/// to create.
fn skills_folder(agent: &Agent, machine: &Machine) -> Result<PathBuf, Failure> {
    let roots = agent.global_roots(machine);
    let existing = roots.iter().find(|root| root.path.is_dir());
    let root = existing.or_else(|| roots.iter().find(|root| root.main));
    root.map(|root| root.path.clone()).ok_or_else(|| {
        let name = &agent.display_name;
        fail!(AgentUnsupported, "{name} reads skills of projects only")
            .hint("name another agent: --agent <id>")
    })
}

/// The signals that end a trial: Ctrl-C, SIGTERM, and the end of the terminal.
struct StopSignals([Signal; 3]);

impl StopSignals {
    fn new() -> Result<Self, Failure> {
        let handler =
            |kind| signal(kind).map_err(|error| fail!(Io, "cannot wait for the end: {error}"));
        Ok(Self([
            handler(SignalKind::interrupt())?,
            handler(SignalKind::terminate())?,
            handler(SignalKind::hangup())?,
        ]))
    }

    async fn next(&mut self) {
        let [interrupted, terminated, hung_up] = &mut self.0;
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
            _ = hung_up.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_keeps_a_skill_selects_the_one_that_was_tried() {
        let some = |text: &str| Some(text.to_owned());
        let tried = Arguments {
            source: "https://docs.example/skills.git".to_owned(),
            skill: some("csv"),
            agent: None,
            reference: some("v1.0.0"),
            path: some("two words"),
            plugin: some("review"),
            allow: vec!["download-pipe-shell".to_owned()],
            reason: some("read it"),
        };
        assert_eq!(
            tried.add_command(),
            "vault add https://docs.example/skills.git --skill csv --ref v1.0.0 \
             --path 'two words' --plugin review --allow download-pipe-shell --reason 'read it'"
        );
    }
}
