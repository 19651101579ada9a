//! `vault completions`: prints a completion script for a shell, and the skill names that the script
//! asks for.

use clap::Args;
use clap_complete::Shell;

use crate::{context::Context, errors::Failure, lookup::installed_names, output::Report};

/// The arguments of `vault completions`.
#[derive(Args, Debug)]
#[command(after_help = "\
The scripts for bash, zsh and fish also complete the names of installed skills.

Examples:
  vault completions bash > ~/.local/share/bash-completion/completions/vault
  vault completions zsh > ~/.zfunc/_vault
  vault completions fish > ~/.config/fish/completions/vault.fish")]
pub struct Arguments {
    /// The shell
    #[arg(required_unless_present = "names")]
    shell: Option<Shell>,
    /// Print the names of installed skills, for the script
    #[arg(long, hide = true)]
    names: bool,
}

/// Wraps clap's bash completion and adds the names of skills where an argument takes a skill.
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

// clap's script does not know which arguments are skills, so the commands are listed here.
const FISH: &str = r#"
complete -c vault -n "__fish_seen_subcommand_from show verify remove enable disable update history rollback which zip" -a "(vault completions --names 2>/dev/null)" -d "skill"
"#;

/// The end of a line in clap's zsh script for an argument without a known kind of value.
const ZSH_UNKNOWN: &str = ":_default' \\";
/// Pairs the start of an argument's help text with the zsh function that completes the argument.
/// The help text identifies the arguments that take a skill.
const ZSH_NAMES: [(&str, &str); 7] = [
    (" -- The skill:", "_vault_skills"),
    (" -- The skills:", "_vault_skills"),
    (" -- The installed skill:", "_vault_skills"),
    (" -- One skill", "_vault_skills"),
    (" -- Skills to ", "_vault_skills"),
    (" -- An installed skill", "_vault_skills_or_files"),
    (" -- A skill'\\''s folder", "_vault_skills_or_files"),
];
/// The line of clap's zsh script that starts the completion. The helper functions are inserted
/// before it.
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

/// Adds the completion of skill names to clap's zsh script.
fn add_zsh_skill_names(script: &str) -> String {
    // The script names no argument, so the help text has to identify those that take a skill.
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

/// Prints the script for the shell, or with `--names` the names of the skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(shell) = arguments.shell else {
        return list_skill_names(context);
    };
    Ok(Report::text(generate_script(
        shell,
        (context.command_line)(),
    )))
}

/// Generates the script for a shell from the definition of the command line.
pub fn generate_script(shell: Shell, mut command: clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "vault", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.push_str(BASH),
        Shell::Fish => script.push_str(FISH),
        Shell::Zsh => script = add_zsh_skill_names(&script),
        _ => {}
    }
    script
}

/// Lists the names of the installed skills, those of linked vaults included. A vault that cannot be
/// read has none.
fn list_skill_names(context: &Context) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let names = vault.as_ref().map(installed_names).transpose();
    // This runs at each press of Tab, where nobody could read an error.
    let names = names.ok().flatten().unwrap_or_default();
    Ok(Report::new(&names, names.join("\n")))
}
