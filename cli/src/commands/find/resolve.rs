//! `vault resolve`: prints, as JSON, the skills, tools and MCP servers that the vault's policy
//! grants to a caller.

use clap::Args;

use crate::{
    context::Context,
    errors::Failure,
    output::Report,
    tasks::policy_file::{CallerQuery, caller_capabilities, own_compiled},
};

/// The arguments of `vault resolve`.
#[derive(Args, Debug)]
#[command(after_help = "\
The output is always JSON: the granted skills, best match first, the tools and MCP servers, the \
reasons, and a key for caching the answer. An unknown caller gets empty lists and exit code 0. \
`vault policy check --explain` prints the same as text.

Examples:
  vault resolve --caller ann@example.com --platform cli --query \"code review\"
  vault resolve --caller U42 --platform slack --channel C042 --query deploy")]
pub struct Arguments {
    #[command(flatten)]
    question: Question,
}

/// Who asks, from where, for what.
#[derive(Args, Debug)]
pub struct Question {
    /// The caller: an e-mail address, a client id or any other id in the policy
    #[arg(long, value_name = "ID")]
    caller: String,
    /// The platform: cli, mcp, slack, …
    #[arg(long, value_name = "NAME")]
    platform: String,
    /// The channel on the platform
    #[arg(long, value_name = "ID")]
    channel: Option<String>,
    /// What the caller wants to do
    #[arg(long, value_name = "TEXT")]
    query: String,
}

/// Resolves a caller's capabilities from the policy and the skills of this vault.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let question = &arguments.question;
    let vault = context.existing_vault()?;
    let policy = own_compiled(context, vault.as_ref())?;
    let answer = caller_capabilities(vault.as_ref(), &policy, question.into())?;
    Ok(Report::bare_data(answer))
}

impl<'a> From<&'a Question> for CallerQuery<'a> {
    fn from(question: &'a Question) -> Self {
        Self {
            caller: &question.caller,
            platform: &question.platform,
            channel: question.channel.as_deref(),
            // A service assigns profiles to its users. Without a service, only the rules of the
            // policy decide.
            profile: None,
            query: &question.query,
        }
    }
}
