//! `vault completions`: prints a completion script for a shell. The scripts for bash, zsh and fish
//! run `vault completions --names` to complete names of installed skills; clap, which generates the
//! rest, knows only commands and options.

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

/// Added to clap's bash script: calls clap's completion, and adds skill names where an argument is
/// a skill.
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

// Added to clap's fish script. It lists the commands that take a skill, because clap's script does
// not know which arguments are skills.
const FISH: &str = r#"
complete -c vault -n "__fish_seen_subcommand_from show verify remove enable disable update history rollback which zip" -a "(vault completions --names 2>/dev/null)" -d "skill"
"#;

/// The end of a line in clap's zsh script for an argument that has no list of values and no hint of
/// its kind.
const ZSH_UNKNOWN: &str = ":_default' \\";
/// Pairs the start of an argument's help text, as it stands in clap's zsh script, with the zsh
/// function that completes the argument. Only the help text tells which arguments are skills, so a
/// changed text needs a change here.
const ZSH_NAMES: [(&str, &str); 7] = [
    (" -- The skill:", "_vault_skills"),
    (" -- The skills:", "_vault_skills"),
    (" -- The installed skill:", "_vault_skills"),
    (" -- One skill", "_vault_skills"),
    (" -- Skills to ", "_vault_skills"),
    (" -- An installed skill", "_vault_skills_or_files"),
    (" -- A skill'\\''s folder", "_vault_skills_or_files"),
];
/// The line of clap's zsh script that starts the completion. [`ZSH`], with the helper functions, is
/// inserted before it.
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

/// Adds the completion of skill names to clap's zsh script: the helper functions, and their names
/// in the lines of arguments that take a skill.
fn add_zsh_skill_names(script: &str) -> String {
    // The script does not name the arguments. Those that take a skill are recognised by their help
    // text.
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

/// Prints the completion script for the shell, or with `--names` the names of the installed skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(shell) = arguments.shell else {
        return list_skill_names(context);
    };
    Ok(Report::text(generate_script(
        shell,
        (context.command_line)(),
    )))
}

/// Generates the completion script for a shell from `command`, the definition of vault's command
/// line.
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

/// Prints the names of the installed skills, also of those from linked vaults (vaults of other
/// people that this one follows). Prints nothing if the vault cannot be read.
fn list_skill_names(context: &Context) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let names = vault.as_ref().map(installed_names).transpose();
    // The shell runs this at each press of Tab, where an error would only disturb the line being
    // typed.
    let names = names.ok().flatten().unwrap_or_default();
    Ok(Report::new(&names, names.join("\n")))
}
