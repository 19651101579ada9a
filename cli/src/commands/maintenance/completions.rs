//! `vault completions`: a script for a shell, and the names that it asks for.

use clap::Args;
use clap_complete::Shell;

use crate::{context::Context, errors::Failure, output::Report};

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
In bash, zsh and fish the names of installed skills are completed too.

Examples:
  vault completions bash > ~/.local/share/bash-completion/completions/vault
  vault completions zsh > ~/.zfunc/_vault
  vault completions fish > ~/.config/fish/completions/vault.fish

Since 0.5.0 (stable).")]
pub struct Arguments {
    /// The shell
    #[arg(required_unless_present = "names")]
    shell: Option<Shell>,
    /// Print the names of installed skills, for the script
    #[arg(long, hide = true)]
    names: bool,
}

/// Completes names of skills where clap's script would complete files.
const BASH: &str = r#"
_vault_skills() {
    _vault "$@"
    local word="${COMP_WORDS[COMP_CWORD]}" names
    case "${COMP_WORDS[1]}:${COMP_CWORD}:${word}" in
    *:*:-*) return ;;
    show:*|verify:*|remove:*|enable:*|disable:*|update:*|history:*|rollback:*) ;;
    skill:3:*) ;;
    export:3:*) [ "${COMP_WORDS[2]}" = zip ] || return ;;
    *) return ;;
    esac
    names=$(vault completions --names 2>/dev/null) || return
    COMPREPLY+=($(compgen -W "$names" -- "$word"))
}
complete -F _vault_skills -o bashdefault -o default vault
"#;

const FISH: &str = r#"
complete -c vault -n "__fish_seen_subcommand_from show verify remove enable disable update history rollback which zip" -a "(vault completions --names 2>/dev/null)" -d "skill"
"#;

/// What clap's script completes an argument with that it knows nothing about.
const ZSH_UNKNOWN: &str = ":_default' \\";
/// How the help of such an argument begins where it takes a skill, and what completes it then.
const ZSH_NAMES: [(&str, &str); 7] = [
    (" -- The skill:", "_vault_skills"),
    (" -- The skills:", "_vault_skills"),
    (" -- The installed skill:", "_vault_skills"),
    (" -- One skill", "_vault_skills"),
    (" -- Skills to ", "_vault_skills"),
    (" -- An installed skill", "_vault_skills_or_files"),
    (" -- A skill'\\''s folder", "_vault_skills_or_files"),
];
/// Where clap's script begins to run.
pub const ZSH_RUNS: &str = "if [ \"$funcstack[1]\" = \"_vault\" ]; then";
const ZSH: &str = r#"(( $+functions[_vault_skills] )) ||
_vault_skills() {
    local -a names
    names=(${(f)"$(vault completions --names 2>/dev/null)"})
    _describe -t skills skill names
}

(( $+functions[_vault_skills_or_files] )) ||
_vault_skills_or_files() {
    _alternative 'skills:skill:_vault_skills' 'files:file:_files'
}

"#;

/// Clap's script for zsh with the names of skills.
fn zsh(script: &str) -> String {
    let line = |line: &str| {
        let known = ZSH_NAMES.iter().find(|(help, _)| line.contains(help));
        match (known, line.strip_suffix(ZSH_UNKNOWN)) {
            (Some((_, names)), Some(argument)) => format!("{argument}:{names}' \\\n"),
            _ => format!("{line}\n"),
        }
    };
    let script: String = script.lines().map(line).collect();
    script.replacen(ZSH_RUNS, &format!("{ZSH}{ZSH_RUNS}"), 1)
}

/// Prints the script for the shell.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(shell) = arguments.shell else {
        return names(context);
    };
    Ok(Report::text(script(shell, (context.command_line)())))
}

/// The script for the shell that completes this command line.
pub fn script(shell: Shell, mut command: clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "vault", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.push_str(BASH),
        Shell::Fish => script.push_str(FISH),
        Shell::Zsh => script = zsh(&script),
        _ => {}
    }
    script
}

/// The names in the vault's folder of skills: one listing, nothing is read or verified.
fn names(context: &Context) -> Result<Report, Failure> {
    let folder = context.paths()?.root.join("skills");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.parse::<vault_skill::name::SkillName>().is_ok())
        .collect();
    names.sort_unstable();
    Ok(Report::new(&names, names.join("\n")))
}
