//! `vault serve`: the arguments; the server itself stands in [`crate::serve`].

use clap::Args;

use crate::{
    Context,
    error::{Exit, Failure},
    serve::{self, Options},
    settings::Settings,
    ui::Report,
};

/// Since 0.2.1 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Settings come from flags, then the environment (VAULT_PUBLIC_URL, VAULT_ADMIN_EMAIL, VAULT_ADMIN_PASSWORD,
VAULT_DATABASE_URL, VAULT_PORT, VAULT_BIND, VAULT_TRUSTED_PROXIES, VAULT_ALLOWED_ORIGINS, VAULT_TOKEN_TTL,
VAULT_LIMIT_…), then the file of --config, where the same names stand in lower case without VAULT_.
The password has no flag: the command line of a process can be read by others.

Examples:
  VAULT_ADMIN_EMAIL=ann@example.com VAULT_ADMIN_PASSWORD=… vault serve --public-url http://127.0.0.1:8080
  vault serve --config /etc/vault.toml
  VAULT_DATABASE_URL=postgres://vault@db/vault vault serve --public-url https://vault.example

Since 0.2.1 (stable).")]
pub struct Arguments {
    /// The address that others see: https, or http on this machine
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// The port to listen on [default: 8080]
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// The address to listen on [default: 127.0.0.1, or all when the public URL is not on this machine]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,
    /// A SQLite file or postgres://… [default: ./data/vault.db]
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// The first owner's e-mail address
    #[arg(long, value_name = "E-MAIL")]
    admin_email: Option<String>,
    /// What to log: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    // A server takes settings from a file only where it was told to: the user's own file is for the other commands.
    let mut settings = Settings::load(&context.process, context.global.config.as_deref())?;
    for (flag, name, value) in [
        ("--public-url", "VAULT_PUBLIC_URL", &arguments.public_url),
        ("--port", "VAULT_PORT", &arguments.port),
        ("--bind", "VAULT_BIND", &arguments.bind),
        (
            "--database-url",
            "VAULT_DATABASE_URL",
            &arguments.database_url,
        ),
        ("--admin-email", "VAULT_ADMIN_EMAIL", &arguments.admin_email),
        ("--log-level", "VAULT_LOG_LEVEL", &arguments.log_level),
    ] {
        settings.flag(flag, name, value.clone())?;
    }
    let options = Options::from_settings(context, &settings)?;
    let _written = serve::log_to_stderr(settings.text("VAULT_LOG_LEVEL").unwrap_or("info"))?;
    for (written, meant) in Settings::likely_slips(&context.process) {
        tracing::warn!(variable = %written, did_you_mean = meant, "a variable that is no setting");
    }
    serve::run(options)?;
    Ok(Report::silent(Exit::Done))
}
