//! The coding agents that read skills: how each one is detected and in which folders it reads
//! skills.
//!
//! The list of agents is `data/agents.json`. All facts about the machine (home, variables, project)
//! come in as a [`Machine`], so this module reads no environment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;
use vault_format::name::AgentId;

use crate::disk;

/// Environment variables that move an agent's folder away from its default path. A [`Machine`]
/// holds those that are set.
pub const VARIABLES: [&str; 10] = [
    "AUTOHAND_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "FLATPAK_XDG_CONFIG_HOME",
    "GROK_HOME",
    "HERMES_HOME",
    "SARVAM_HOME",
    "VIBE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// The facts from which agents are detected: the user's home folder, variables and project.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The user's home folder.
    pub home: PathBuf,
    /// Values of the [`VARIABLES`] that are set. A value that is not an absolute path is
    /// ignored.
    pub variables: BTreeMap<String, String>,
    /// The project whose agent folders are used, if any.
    pub project: Option<PathBuf>,
}

/// A coding agent as `data/agents.json` describes it. In its paths `~` is the home folder;
/// `project_dir` and its like are relative to a project.
#[derive(Debug, Deserialize)]
pub struct Agent {
    /// Id in manifests and profiles, such as `claude-code`.
    pub id: AgentId,
    /// Name for people.
    pub display_name: String,
    /// Ids that other tools use for the agent.
    #[serde(default)]
    pub aliases: Vec<String>,
    detect: Vec<DetectionPath>,
    project_dir: String,
    global_dir: Option<String>,
    gh_project_dir: Option<String>,
    gh_user_dir: Option<String>,
    interface_global_dir: Option<String>,
    #[serde(default)]
    other_project_dirs: Vec<String>,
    #[serde(default)]
    other_global_dirs: Vec<String>,
    #[serde(default)]
    global_fallbacks: Vec<String>,
    #[serde(default)]
    project_markers: Vec<String>,
    confidence: Option<String>,
}

/// A path whose existence shows that an agent is installed.
#[derive(Debug, Deserialize)]
struct DetectionPath {
    kind: MarkKind,
    path: String,
    env: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
enum MarkKind {
    Home,
    Project,
    App,
    System,
    Env,
}

#[derive(Deserialize)]
struct AgentList {
    agents: Vec<Agent>,
}

/// A folder from which an agent reads skills, on this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentRoot {
    /// Absolute path.
    pub path: PathBuf,
    /// Whether this is the folder to create if none of the agent's folders exists.
    pub main: bool,
}

/// Returns all known agents, ordered by id.
pub fn known_agents() -> &'static [Agent] {
    static AGENTS: OnceLock<Vec<Agent>> = OnceLock::new();
    AGENTS.get_or_init(|| {
        let list: AgentList = serde_json::from_str(include_str!("../../data/agents.json"))
            .expect("the list is part of the program and read by a test");
        let mut agents = list.agents;
        agents.sort_by(|a, b| a.id.cmp(&b.id));
        agents
    })
}

/// Finds an agent by its id, or by an id that another tool uses for it.
pub fn by_name(name: &str) -> Option<&'static Agent> {
    let mut agents = known_agents().iter();
    // Ids come first: the alias of one agent may be the id of another.
    let by_id = agents.clone().find(|agent| agent.id.as_str() == name);
    by_id.or_else(|| agents.find(|agent| agent.aliases.iter().any(|alias| alias == name)))
}

/// Detects the agents on this machine: those of which a detection path exists. If the machine names
/// a project, an agent also counts if the project has a path that shows its use.
pub fn detect_agents(machine: &Machine) -> Vec<&'static Agent> {
    known_agents()
        .iter()
        .filter(|agent| agent.mark_found(machine).is_some())
        .collect()
}

impl Agent {
    /// Returns the existing path that shows that the agent is installed or used in the project.
    pub fn mark_found(&self, machine: &Machine) -> Option<PathBuf> {
        let at_home = self
            .detect
            .iter()
            .filter_map(|mark| machine.detection_path(mark));
        let in_project = |project: &PathBuf| {
            let marks = self.detect.iter();
            let marks = marks.filter(|mark| mark.kind == MarkKind::Project);
            marks
                .map(|mark| &mark.path)
                .chain(&self.project_markers)
                .map(|path| project.join(path.trim_start_matches("./")))
                .find(|path| disk::is_there(path))
        };
        let mut at_home = at_home.filter(|path| disk::is_there(path));
        at_home
            .next()
            .or_else(|| machine.project.as_ref().and_then(in_project))
    }

    /// Returns the folders of the user from which the agent reads skills, in the order of the list.
    /// They may not exist.
    fn listed_roots(&self, machine: &Machine) -> impl Iterator<Item = PathBuf> {
        let listed = [
            &self.interface_global_dir,
            &self.global_dir,
            &self.gh_user_dir,
        ];
        let listed = listed.into_iter().flatten();
        listed.map(|path| self.expand_path(path, machine))
    }

    /// Returns the user's skill folders to link for this agent: every listed folder that exists,
    /// and the main one, which may be created. Empty for an agent that reads skills of projects
    /// only.
    pub fn global_roots(&self, machine: &Machine) -> Vec<AgentRoot> {
        let paths = unique_paths(self.listed_roots(machine));
        // If the list gives an agent a second folder and that folder exists, it is the main one (as
        // for Codex). Otherwise the main one is the folder that most tools agree on.
        let main = paths
            .first()
            .filter(|path| self.interface_global_dir.is_some() && disk::is_folder(path))
            .cloned()
            .or_else(|| Some(self.expand_path(self.global_dir.as_ref()?, machine)));
        self.choose_roots(paths, main.as_deref())
    }

    /// Returns the agent's skill folders in a project to link, by the same rule as
    /// [`Self::global_roots`].
    pub fn project_roots(&self, project: &Path) -> Vec<AgentRoot> {
        let main = project.join(&self.project_dir);
        let mut paths = vec![main.clone()];
        paths.extend(self.gh_project_dir.iter().map(|path| project.join(path)));
        self.choose_roots(paths, Some(&main))
    }

    fn choose_roots(&self, paths: Vec<PathBuf>, main: Option<&Path>) -> Vec<AgentRoot> {
        // Do not create a folder for an agent that only one tool knows (confidence `low`).
        let sure = self.confidence.as_deref() != Some("low");
        paths
            .into_iter()
            .map(|path| AgentRoot {
                main: main == Some(path.as_path()),
                path,
            })
            .filter(|root| (root.main && sure) || disk::is_folder(&root.path))
            .collect()
    }

    /// Returns every folder from which the agent may read skills, even if only one tool says so.
    /// This is for finding existing skills; nothing is created there.
    pub fn folders_to_scan(&self, machine: &Machine) -> Vec<PathBuf> {
        let others = self.other_global_dirs.iter().chain(&self.global_fallbacks);
        let global = others.map(|path| self.expand_path(path, machine));
        let in_project = machine.project.iter().flat_map(|project| {
            std::iter::once(&self.project_dir)
                .chain(&self.gh_project_dir)
                .chain(&self.other_project_dirs)
                .map(|path| project.join(path))
        });
        unique_paths(self.listed_roots(machine).chain(global).chain(in_project))
    }

    /// Resolves a listed path on this machine: `~` is the home folder, and an agent's variable
    /// relocates the paths below its folder.
    fn expand_path(&self, path: &str, machine: &Machine) -> PathBuf {
        // A variable of the agent itself comes before `XDG_CONFIG_HOME`, which many agents share.
        for mark in &self.detect {
            if let Some(moved) = machine.relocate_path(path, mark) {
                return moved;
            }
        }
        machine
            .relocate_below(path, "~/.config", "XDG_CONFIG_HOME")
            .unwrap_or_else(|| machine.at_home(path))
    }
}

fn unique_paths(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    paths.filter(|path| seen.insert(path.clone())).collect()
}

impl Machine {
    /// Makes a machine with a home folder only.
    pub fn with_home(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            ..Self::default()
        }
    }

    /// Returns the value of a variable if it is an absolute path; a relative one would depend on
    /// the working directory.
    fn absolute_variable(&self, name: &str) -> Option<&Path> {
        self.variables
            .get(name)
            .map(Path::new)
            .filter(|path| path.is_absolute())
    }

    fn at_home(&self, path: &str) -> PathBuf {
        match path.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => PathBuf::from(path),
        }
    }

    /// Returns the path that a detection entry means on this machine; `None` for a path of a
    /// project, or if the variable in it is not set.
    fn detection_path(&self, mark: &DetectionPath) -> Option<PathBuf> {
        match mark.kind {
            MarkKind::Home => Some(
                self.relocate_path(&mark.path, mark)
                    .unwrap_or_else(|| self.at_home(&mark.path)),
            ),
            MarkKind::App | MarkKind::System => Some(PathBuf::from(&mark.path)),
            // Paths of this kind have the form `$NAME/rest`. Forms of other operating systems are
            // ignored.
            MarkKind::Env => {
                let (name, rest) = mark.path.strip_prefix('$')?.split_once('/')?;
                Some(self.absolute_variable(name)?.join(rest))
            }
            // Paths in the project are tried by `Agent::mark_found`.
            MarkKind::Project => None,
        }
    }

    /// Relocates a path below an agent's folder if the variable for that folder is set.
    fn relocate_path(&self, path: &str, mark: &DetectionPath) -> Option<PathBuf> {
        let name = mark.env.as_deref()?;
        let folder = if name == "XDG_CONFIG_HOME" {
            "~/.config"
        } else {
            &mark.path
        };
        self.relocate_below(path, folder, name)
    }

    /// Replaces `folder` at the start of `path` by the value of `variable`; `None` if the path lies
    /// elsewhere or the variable is not set.
    fn relocate_below(&self, path: &str, folder: &str, variable: &str) -> Option<PathBuf> {
        let rest = path.strip_prefix(folder)?;
        let value = self.absolute_variable(variable)?;
        // `~/.config-old` begins with `~/.config` too, so the rest must begin with a slash.
        match rest.strip_prefix('/') {
            Some(rest) => Some(value.join(rest)),
            None => rest.is_empty().then(|| value.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine() -> (tempfile::TempDir, Machine) {
        let home = tempfile::tempdir().unwrap();
        let machine = Machine::with_home(home.path());
        (home, machine)
    }

    fn roots(agent: &str, machine: &Machine) -> Vec<(String, bool)> {
        by_name(agent)
            .unwrap()
            .global_roots(machine)
            .into_iter()
            .map(|root| {
                let path = root.path.strip_prefix(&machine.home).unwrap_or(&root.path);
                (path.display().to_string(), root.main)
            })
            .collect()
    }

    fn set(machine: &mut Machine, variable: &str, value: &str) {
        let variable = variable.to_owned();
        machine.variables.insert(variable, value.to_owned());
    }

    fn ids(machine: &Machine) -> Vec<&'static str> {
        detect_agents(machine)
            .iter()
            .map(|agent| agent.id.as_str())
            .filter(|id| *id != "codex" || !disk::is_there(Path::new("/etc/codex")))
            .collect()
    }

    #[test]
    fn the_list_is_read_whole_and_names_each_agent_once() {
        assert_eq!(known_agents().len(), 91);
        assert!(
            known_agents()
                .windows(2)
                .all(|pair| pair[0].id < pair[1].id)
        );
        assert_eq!(by_name("kimi-cli").unwrap().id.as_str(), "kimi-code-cli");
        assert!(by_name("nobody").is_none());
        for agent in known_agents() {
            for mark in &agent.detect {
                let names = mark.env.iter().map(String::as_str).chain(
                    mark.path
                        .strip_prefix('$')
                        .and_then(|rest| rest.split('/').next()),
                );
                for name in names {
                    assert!(VARIABLES.contains(&name), "{name} of {}", agent.id);
                }
            }
        }
    }

    #[test]
    fn an_agent_is_found_by_what_it_left_and_never_otherwise() {
        let (home, mut machine) = machine();
        assert!(ids(&machine).is_empty());
        fs::create_dir(home.path().join(".claude")).unwrap();
        fs::create_dir_all(home.path().join("elsewhere/codex")).unwrap();
        assert_eq!(ids(&machine), ["claude-code"]);
        let codex = home.path().join("elsewhere/codex");
        set(&mut machine, "CODEX_HOME", codex.to_str().unwrap());
        set(&mut machine, "CLAUDE_CONFIG_DIR", "/nowhere/claude");
        let found = detect_agents(&machine);
        let found: Vec<_> = found.iter().map(|agent| agent.id.as_str()).collect();
        assert_eq!(
            found,
            ["codex"],
            "the variable moves where it is looked for"
        );
        set(&mut machine, "CLAUDE_CONFIG_DIR", "relative");
        let claude = by_name("claude-code").unwrap();
        assert!(claude.mark_found(&machine).is_some());
    }

    #[test]
    fn a_project_shows_the_agents_that_left_a_mark_in_it() {
        let (home, mut machine) = machine();
        let project = home.path().join("work");
        fs::create_dir_all(project.join(".cursor")).unwrap();
        assert!(ids(&machine).is_empty());
        machine.project = Some(project.clone());
        assert_eq!(ids(&machine), ["cursor"]);
        let roots = by_name("cursor").unwrap().project_roots(&project);
        let path = project.join(".agents/skills");
        assert_eq!(roots, [AgentRoot { path, main: true }]);
    }

    #[test]
    fn every_listed_folder_that_is_there_is_linked_and_only_the_main_one_is_made() {
        let (home, mut machine) = machine();
        let main = |path: &str| (path.to_owned(), true);
        let beside = |path: &str| (path.to_owned(), false);
        assert_eq!(roots("claude-code", &machine), [main(".claude/skills")]);
        assert_eq!(roots("codex", &machine), [main(".agents/skills")]);
        fs::create_dir_all(home.path().join(".codex/skills")).unwrap();
        assert_eq!(roots("codex", &machine), [main(".codex/skills")]);
        fs::create_dir_all(home.path().join(".agents/skills")).unwrap();
        let both = [main(".codex/skills"), beside(".agents/skills")];
        assert_eq!(roots("codex", &machine), both);
        assert_eq!(roots("pi", &machine), [main(".agents/skills")]);
        fs::create_dir_all(home.path().join(".pi/agent/skills")).unwrap();
        let both = [main(".agents/skills"), beside(".pi/agent/skills")];
        assert_eq!(roots("pi", &machine), both);
        set(&mut machine, "XDG_CONFIG_HOME", "/conf");
        assert_eq!(roots("opencode", &machine), [main("/conf/opencode/skills")]);
        assert!(roots("eve", &machine).is_empty(), "it reads projects only");
    }

    #[test]
    fn no_folder_is_made_for_an_agent_that_one_tool_alone_names() {
        let (home, machine) = machine();
        let mut all = known_agents().iter();
        let agent = all.find(|agent| agent.confidence.is_some()).unwrap();
        assert!(agent.global_roots(&machine).is_empty());
        let path = agent.global_dir.as_ref().unwrap();
        fs::create_dir_all(home.path().join(path.trim_start_matches("~/"))).unwrap();
        assert_eq!(agent.global_roots(&machine).len(), 1);
    }
}
