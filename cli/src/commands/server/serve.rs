//! `vault serve`: reads the server's settings from flags, environment and settings file, and starts
//! the server, or prints the settings (`--print-config`). [`crate::server`] is the server itself.

use std::path::PathBuf;

use clap::Args;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{Column, DIM, Report, Table, clean, paint},
    server::{self, Options, read_port},
    settings::{Origin, SERVED_LIBRARY, SettingRow, Settings},
};

/// The arguments of `vault serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Settings come from flags, then from environment variables (VAULT_PUBLIC_URL, VAULT_ADMIN_EMAIL, \
VAULT_ADMIN_PASSWORD, VAULT_DATABASE_URL, VAULT_PORT, VAULT_BIND, VAULT_TRUSTED_PROXIES, \
VAULT_ALLOWED_HOSTS, VAULT_ALLOWED_ORIGINS, VAULT_TOKEN_TTL, VAULT_SECOND_FACTOR, VAULT_SIGN_IN, VAULT_SIGN_UP, VAULT_OIDC_…, \
VAULT_SIGN_UP_VAULTS, VAULT_PLANS, VAULT_PAYMENT_…, VAULT_BILLING_URL, VAULT_SMTP_URL, VAULT_MAIL_FROM, \
VAULT_MEMBER_WRITES, VAULT_TOOL_NAMES, VAULT_WEBHOOK_PORTS, VAULT_LIMIT_…), then from the file \
given with --config, where each name is in lower case and without VAULT_. There is no flag for \
the password, because other users can read the command line of a process.

The vault `default` serves the library of --library, --vault or VAULT_STORAGE_PATH. If none of \
them is set, it serves a new library beside the database, never ~/.vault.

Examples:
  vault serve --public-url http://127.0.0.1:8080
  vault serve --config /etc/vault.toml
  vault serve --config /etc/vault.toml --print-config
  vault serve --config /etc/vault.toml --library /srv/vault/library
  vault serve --config /etc/vault.toml --recovery /media/stick/vault.recovery

On the first start, set VAULT_ADMIN_EMAIL and VAULT_ADMIN_PASSWORD.")]
pub struct Arguments {
    /// The public address: https, or http on this machine
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// The port to listen on [default: 8080]
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// The address to listen on [default: 127.0.0.1, or all addresses if the public URL names
    /// another host]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,
    /// A SQLite file or postgres://… [default: ./data/vault.db]
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// The first owner's e-mail address
    #[arg(long, value_name = "E-MAIL")]
    admin_email: Option<String>,
    /// Browser origins that may call /mcp, separated by commas [default: none]
    #[arg(long, value_name = "ORIGINS")]
    allowed_origins: Option<String>,
    /// Addresses and ranges whose X-Forwarded-For is trusted, separated by commas [default: none]
    #[arg(long, value_name = "RANGES")]
    trusted_proxies: Option<String>,
    /// The lifetime of an access token [default: 900]
    #[arg(long, value_name = "SECONDS")]
    token_ttl: Option<String>,
    #[arg(
        help = "The form of tool names: plain (skill_list) or dotted (skill.list) [default: plain]",
        long,
        value_name = "SPELLING"
    )]
    tool_names: Option<String>,
    /// Whether security findings block a skill: true or false [default: true]
    #[arg(long, value_name = "BOOLEAN")]
    security_strict: Option<String>,
    #[arg(
        help = "The library of the vault `default` [default: VAULT_STORAGE_PATH, else `library` beside the database]",
        long,
        value_name = "PATH",
        conflicts_with = "vault"
    )]
    library: Option<PathBuf>,
    /// On the first start: create the server's vault with a recovery key and write the key to this
    /// file
    #[arg(long, value_name = "FILE")]
    recovery: Option<PathBuf>,
    /// The log level: debug, info, warn or error
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Print every setting with its value and origin, secrets masked, and exit
    #[arg(long)]
    print_config: bool,
}

/// The output of `vault serve --print-config`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ServerSettings {
    /// Every setting with its value and what set it.
    settings: Vec<SettingRow>,
}

/// Runs the server until SIGTERM or SIGINT, or prints its settings. Without `--json`, a failure is
/// written to the log instead of being printed as an error of a command.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let settings = read_settings(context, arguments);
    if arguments.print_config {
        let settings = settings?;
        let options = Options::from_settings(context, &settings, arguments.library.as_deref());
        return print_config(context, &settings, options);
    }
    // The log begins before the settings are checked, so that a start that they prevent is logged
    // too.
    let level = settings.as_ref().ok();
    let level = level.and_then(|settings| settings.text("VAULT_LOG_LEVEL"));
    let _flush_log = server::log_to_stderr(level.unwrap_or("info"));
    match settings.and_then(|settings| serve(context, arguments, &settings)) {
        Err(failure) if !context.global.json => {
            let (code, hint) = (failure.code.word(), failure.hint.as_deref());
            tracing::error!(code, hint, "{}", failure.message);
            Ok(Report::silent(failure.exit()))
        }
        ended => ended.map(|()| Report::silent(Exit::Done)),
    }
}

fn serve(context: &Context, arguments: &Arguments, settings: &Settings) -> Result<(), Failure> {
    let options = Options {
        recovery: arguments.recovery.clone(),
        ..Options::from_settings(context, settings, arguments.library.as_deref())?
    };
    for (variable, did_you_mean) in Settings::unknown_variables(&context.process) {
        tracing::warn!(%variable, did_you_mean, "unknown variable: it has no effect");
    }
    server::run_server(options)
}

/// Returns the server's settings. A flag overrides the environment variable, and the variable
/// overrides the file of `--config`.
fn read_settings(context: &Context, arguments: &Arguments) -> Result<Settings, Failure> {
    // The server reads a settings file only if `--config` names it. The file in the user's
    // configuration folder is for the other commands.
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
        (
            "--allowed-origins",
            "VAULT_ALLOWED_ORIGINS",
            &arguments.allowed_origins,
        ),
        (
            "--trusted-proxies",
            "VAULT_TRUSTED_PROXIES",
            &arguments.trusted_proxies,
        ),
        ("--token-ttl", "VAULT_TOKEN_TTL", &arguments.token_ttl),
        ("--tool-names", "VAULT_TOOL_NAMES", &arguments.tool_names),
        (
            "--security-strict",
            "VAULT_SECURITY_STRICT",
            &arguments.security_strict,
        ),
        ("--log-level", "VAULT_LOG_LEVEL", &arguments.log_level),
    ] {
        settings.set_flag(flag, name, value.clone())?;
    }
    Ok(settings)
}

/// Prints every setting with its value and its origin. Fails afterwards if the settings would
/// prevent a start (`options` is an error).
fn print_config(
    context: &Context,
    settings: &Settings,
    options: Result<Options, Failure>,
) -> Result<Report, Failure> {
    let mut rows = settings.setting_rows();
    // Several variables can set the port (`VAULT_PORT`, `PORT`). Show the one that is used.
    let row = rows.iter_mut().find(|row| row.name == "VAULT_PORT");
    if let (Some(row), Ok((port, origin))) = (row, read_port(settings)) {
        row.value = Some(port.to_string());
        row.source = origin;
    }
    let row = rows.iter_mut().find(|row| row.name == "VAULT_STORAGE_PATH");
    match (&options, row) {
        (Ok(options), Some(row)) if options.library_from.starts_with("--") => {
            row.value = Some(options.paths.root.display().to_string());
            options.library_from.clone_into(&mut row.source);
        }
        // For the other commands this setting defaults to `~/.vault`. A server never serves that
        // unless it is told to, so its own default is shown.
        (_, Some(row)) if row.source == Origin::Default.to_string() => {
            row.value = Some(SERVED_LIBRARY.to_owned());
        }
        _ => {}
    }
    let mut table = Table::new([
        Column::new("setting"),
        Column::new("value").shrinks_to(12),
        Column::new("from").shrinks_to(12),
    ]);
    for row in &rows {
        let value = match &row.value {
            Some(value) => clean(value, 200),
            None => paint(DIM, "not set"),
        };
        table.push_row([row.name.to_owned(), value, clean(&row.source, 200)]);
    }
    let text = context.ui.format_table(&table);
    let report = Report::view(ServerSettings { settings: rows }, text);
    let Err(failure) = options else {
        return Ok(report);
    };
    // The table is printed even if a setting is invalid, because it shows where the invalid value
    // comes from.
    if !context.global.json {
        context.ui.print_report(&report);
    }
    Err(failure.data(report.data))
}
