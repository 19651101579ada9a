//! `vault completions`: a script for a shell, and the names that it asks for.

use clap::Args;
use clap_complete::Shell;

use crate::{Context, error::Failure, ui::Report};

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
In bash and fish the names of installed skills are completed too.

Examples:
  vault completions bash > ~/.local/share/bash-completion/completions/vault
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

/// Prints the script for the shell.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(shell) = arguments.shell else {
        return names(context);
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::args::command(), "vault", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.push_str(BASH),
        Shell::Fish => script.push_str(FISH),
        _ => {}
    }
    Ok(Report::text(script))
}

/// The names in the vault's folder of skills: one listing, nothing is read or verified.
fn names(context: &Context) -> Result<Report, Failure> {
    let folder = context.paths(&context.settings()?)?.root.join("skills");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.parse::<vault_skill::name::SkillName>().is_ok())
        .collect();
    names.sort_unstable();
    Ok(Report::new(&names, names.join("\n")))
}
