//! The server of `vault serve` and of `demo`: turns settings into a running service.
//!
//! A server has a *library*: a vault of its own, whose skills it signs and publishes as the
//! namespace `default`. One process handles requests on two threads. It logs JSON lines to standard
//! error and writes nothing to standard output.

mod first_vault;
mod own_namespace;
mod publisher;
mod shelf;

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::{net::TcpListener, sync::watch};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;
use vault_library::{VaultPaths, keys::Passphrases};
use vault_service::Ports;
use vault_service::{
    App,
    accounts::bootstrap::{self, BootstrapError, FirstStart},
    config::{BadPublicUrl, CLIENT_SECRET, Config, SignIn, hosting::Hosting},
    model::{account::Email, namespace::Kind},
    notices::smtp::MailSettings,
    oidc::{ProviderClient, given_secret},
    outbound::Outbound,
};
use vault_shelf::fetch::Fetch;
use vault_sql::{Sql, SqlError};
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::{
    context::Context,
    errors::{Failure, message_chain},
    output::clean,
    passphrases::KeyPassphrases,
    settings::{Origin, Settings, layers::expand_home},
    tasks::fetch,
};

/// Minimum length of the first owner's password, in characters.
const ADMIN_PASSWORD_CHARACTERS: usize = 24;
/// The database if `VAULT_DATABASE_URL` is not set: a SQLite file, relative to the current folder.
const DEFAULT_DATABASE: &str = "./data/vault.db";

/// The validated options of a server, for [`Server::start`].
pub struct Options {
    /// The settings of the service itself: public address, limits, sign-in.
    pub config: Config,
    /// The IP address and port on which the server listens.
    pub address: SocketAddr,
    /// The setting that determined the port, for the log.
    pub port_origin: String,
    /// The database: the path of a SQLite file, or a `postgres://` address.
    pub database: String,
    /// Paths of the library of the namespace `default` and of its keys.
    pub paths: VaultPaths,
    /// The flag or setting that chose the library, for the log.
    pub library_from: &'static str,
    /// The value of `VAULT_DB_PATH` if no file can be there. The server ignores it and logs a
    /// warning.
    pub unusable_index: Option<PathBuf>,
    /// The source of the passphrases of the library's keys.
    pub passphrases: Arc<dyn Passphrases>,
    /// The e-mail address of the first owner. Required if there is no owner yet.
    pub admin_email: Option<String>,
    /// The password of the first owner. Required if there is no owner yet.
    pub admin_password: Option<SecretString>,
    /// The OAuth client secret with which this service authenticates at its identity provider.
    pub provider_secret: Option<SecretString>,
    /// The file for the recovery key of a new library. With `None`, the library's own key may
    /// change the list of its keys.
    pub recovery: Option<PathBuf>,
    /// The settings of outgoing mail. With `None`, notices go to webhooks only.
    pub mail: Option<MailSettings>,
    /// Fetches skills for the MCP tools. With `None`, tools cannot add skills from remote sources.
    pub fetch: Option<Arc<dyn Fetch>>,
}

impl Options {
    /// Reads the settings of a server, and the flag `--library`. Fails with exit 2 and lists all
    /// missing settings at once. Writes nothing.
    pub fn from_settings(
        context: &Context,
        settings: &Settings,
        library: Option<&Path>,
    ) -> Result<Self, Failure> {
        if settings.text("VAULT_MODE") == Some("local") {
            return Err(fail!(
                ModeLocal,
                "VAULT_MODE is local, and serve is the remote mode"
            )
            .hint("unset VAULT_MODE, or set it to remote"));
        }
        let database = settings
            .text("VAULT_DATABASE_URL")
            .unwrap_or(DEFAULT_DATABASE);
        check_first_start(settings, database)?;
        let email = settings.text("VAULT_ADMIN_EMAIL");
        let password = settings.text("VAULT_ADMIN_PASSWORD");
        let config = read_config(settings)?;
        let (server, from) = (
            settings.text("VAULT_SMTP_URL"),
            settings.text("VAULT_MAIL_FROM"),
        );
        let mail = MailSettings::read_settings(server, from);
        let mail = mail.map_err(|error| fail!(SettingInvalid, "{error}"))?;
        let (port, port_origin) = read_port(settings)?;
        let loopback = config.public_url.is_loopback();
        let bind: IpAddr = match settings.text("VAULT_BIND") {
            Some(text) => text.parse().map_err(|_| {
                fail!(
                    SettingInvalid,
                    "VAULT_BIND must be an address, not `{text}`"
                )
            })?,
            // Only this machine can use a loopback URL, so do not listen on other interfaces.
            None if loopback => Ipv4Addr::LOCALHOST.into(),
            None => Ipv4Addr::UNSPECIFIED.into(),
        };
        let (library, library_from) = library_folder(context, settings, library, database);
        let mut paths = context.paths_at(&library, settings)?;
        // `start` reports it, when the log is set up.
        let unusable_index = paths.drop_unusable_index();
        Ok(Self {
            config,
            address: SocketAddr::new(bind, port),
            port_origin,
            database: database.to_owned(),
            paths,
            library_from,
            unusable_index,
            passphrases: passphrases_from_file(context, settings),
            admin_email: email.map(str::to_owned),
            admin_password: password.map(|text| text.to_owned().into()),
            provider_secret: settings
                .text(CLIENT_SECRET)
                .map(|text| text.to_owned().into()),
            recovery: None,
            mail,
            fetch: Some(fetch::for_remote_callers(context)?),
        })
    }
}

/// Checks the settings that a first start needs, before anything is created.
fn check_first_start(settings: &Settings, database: &str) -> Result<(), Failure> {
    // The first owner is created only once, and an existing database may already contain one.
    let first = is_new_file(database);
    let mut missing = vec!["VAULT_PUBLIC_URL"];
    if first {
        missing.extend(["VAULT_ADMIN_EMAIL", "VAULT_ADMIN_PASSWORD"]);
    }
    missing.retain(|name| settings.text(name).is_none());
    if !missing.is_empty() {
        let failure = missing_settings(&missing.join(", "));
        // The default database is relative to the current folder. Started in the wrong folder, the
        // server would silently create a second, empty service.
        return Err(match database_file(database) {
            Some(file) if first && settings.text("VAULT_PUBLIC_URL").is_some() => failure.hint(format!(
                "there is no database at {}. For a first start, give these settings, as vault serve --help shows. To open an existing service, start in its folder or name its database in VAULT_DATABASE_URL",
                clean(&file.display().to_string(), 300)
            )),
            _ => failure,
        });
    }
    let password = settings.text("VAULT_ADMIN_PASSWORD");
    // Reject a short password before anything is created. If the database exists, the check
    // waits until it is known whether an owner is still needed.
    if first && password.is_some_and(is_short) {
        return Err(short_password());
    }
    let email = settings.text("VAULT_ADMIN_EMAIL");
    if first && let Some(Err(bad)) = email.map(str::parse::<Email>) {
        return Err(invalid_setting("VAULT_ADMIN_EMAIL", &bad.to_string()));
    }
    Ok(())
}

/// Returns the folder of the library, and the flag or setting that chose it. The default lies
/// beside the database: the user's own vault is used only if it is named, because everyone who
/// signs in could read it.
fn library_folder(
    context: &Context,
    settings: &Settings,
    flag: Option<&Path>,
    database: &str,
) -> (PathBuf, &'static str) {
    if let Some(folder) = flag {
        return (folder.to_owned(), "--library");
    }
    if let Some(folder) = context.named_vault(settings) {
        let from = match context.global.vault {
            Some(_) => "--vault",
            None => "VAULT_STORAGE_PATH",
        };
        return (folder, from);
    }
    let file = match database_file(database) {
        Some(file) => file.to_owned(),
        None => PathBuf::from(DEFAULT_DATABASE),
    };
    (file.with_file_name("library"), "default")
}

/// Creates the source of the passphrases of a server's keys. It reads only the file that
/// `VAULT_KEY_PASSPHRASE_FILE` names, because a server has nobody to ask.
fn passphrases_from_file(context: &Context, settings: &Settings) -> Arc<dyn Passphrases> {
    let file = settings.text("VAULT_KEY_PASSPHRASE_FILE");
    let file = file.map(|path| expand_home(&context.process, path));
    Arc::new(KeyPassphrases::new(file, None))
}

/// Returns the file of a SQLite database, or `None` for a database on the network.
fn database_file(database: &str) -> Option<&Path> {
    let path = database.strip_prefix("sqlite:").unwrap_or(database);
    (!path.contains("://")).then(|| Path::new(path))
}

fn is_new_file(database: &str) -> bool {
    database_file(database).is_some_and(|file| !file.exists())
}

fn invalid_setting(name: &str, why: &str) -> Failure {
    fail!(SettingInvalid, "{name}: {why}").hint("vault serve --help shows how")
}

fn missing_settings(names: &str) -> Failure {
    fail!(SettingMissing, "{names} must be set").hint("vault serve --help shows how")
}

/// Converts the error of opening a database: a wrong setting (exit 2), or a database that does not
/// answer.
pub(crate) fn database_failure(error: &SqlError) -> Failure {
    match error {
        SqlError::Address(_) | SqlError::ServerAddress(_) | SqlError::Certificates(_) => fail!(
            SettingInvalid,
            "VAULT_DATABASE_URL: {}",
            message_chain(error)
        )
        .hint("set it to the path of a SQLite file, or to postgres://<user>@<host>/<database>"),
        SqlError::NewerSchema { .. } => fail!(Database, "{error}"),
        SqlError::Open(_) => fail!(Database, "{}", message_chain(error))
            .hint("check VAULT_DATABASE_URL, and that the database is there and running"),
    }
}

fn is_short(password: &str) -> bool {
    password.chars().count() < ADMIN_PASSWORD_CHARACTERS
}

fn short_password() -> Failure {
    let least = ADMIN_PASSWORD_CHARACTERS;
    fail!(
        AdminPasswordShort,
        "VAULT_ADMIN_PASSWORD must have at least {least} characters"
    )
    .hint("openssl rand -base64 24 makes one")
}

fn read_config(settings: &Settings) -> Result<Config, Failure> {
    let url: Result<_, BadPublicUrl> = settings
        .text("VAULT_PUBLIC_URL")
        .unwrap_or_default()
        .parse();
    let mut config =
        Config::new(url.map_err(|bad| invalid_setting("VAULT_PUBLIC_URL", &bad.to_string()))?);
    if let Some(seconds) = settings.number("VAULT_TOKEN_TTL")? {
        let set = config.set_token_ttl(seconds);
        set.map_err(|why| invalid_setting("VAULT_TOKEN_TTL", &why.to_string()))?;
    }
    config.tool_names = tool_names(settings);
    if let Some(rule) = settings.text("VAULT_SECOND_FACTOR") {
        config.second_factor = rule
            .parse()
            .map_err(|error| fail!(SettingInvalid, "VAULT_SECOND_FACTOR: {error}"))?;
    }
    if let Some(rule) = settings.text("VAULT_MEMBER_WRITES") {
        config.member_writes = rule
            .parse()
            .map_err(|error| fail!(SettingInvalid, "VAULT_MEMBER_WRITES: {error}"))?;
    }
    let has_secret = settings.text(CLIENT_SECRET).is_some();
    config.sign_in = SignIn::from_variables(&|name| settings.text(name), has_secret)
        .map_err(|bad| invalid_setting(bad.name, &bad.problem.to_string()))?;
    let hosting = Hosting::from_variables(|name| settings.text(name).map(str::to_owned));
    config.hosting = hosting.map_err(|(name, why)| invalid_setting(name, &why.to_string()))?;
    for range in settings.list("VAULT_TRUSTED_PROXIES") {
        // Accept a single address as a range of one.
        let parsed = range
            .parse()
            .or_else(|_| range.parse::<IpAddr>().map(ipnet::IpNet::from));
        let wrong = || format!("`{range}` is not a range of addresses");
        let parsed = parsed.map_err(|_| invalid_setting("VAULT_TRUSTED_PROXIES", &wrong()))?;
        config.trusted_proxies.push(parsed);
    }
    let ports = settings.list("VAULT_WEBHOOK_PORTS");
    if !ports.is_empty() {
        let set = config.set_webhook_ports(ports.iter().map(AsRef::as_ref));
        set.map_err(|why| invalid_setting("VAULT_WEBHOOK_PORTS", &why.to_string()))?;
    }
    for origin in settings.list("VAULT_ALLOWED_ORIGINS") {
        let allowed = config.allow_origin(&origin);
        allowed.map_err(|why| invalid_setting("VAULT_ALLOWED_ORIGINS", &why.to_string()))?;
    }
    for host in settings.list("VAULT_ALLOWED_HOSTS") {
        let allowed = config.allow_host(&host);
        allowed.map_err(|why| invalid_setting("VAULT_ALLOWED_HOSTS", &why.to_string()))?;
    }
    for (name, limit) in config.limits.by_variable() {
        if let Some(number) = settings.number(name)? {
            *limit = number;
        }
    }
    Ok(config)
}

/// Returns how tool lists spell dotted tool names. Loading the settings has already rejected other
/// values.
pub fn tool_names(settings: &Settings) -> vault_mcp::Names {
    let names = settings.text("VAULT_TOOL_NAMES");
    names
        .and_then(|names| vault_service::config::tool_names(names).ok())
        .unwrap_or_default()
}

/// Returns the port and its origin: `VAULT_PORT`, else `PORT`, which platforms set, else the older
/// `VAULT_HTTP_PORT`.
pub fn read_port(settings: &Settings) -> Result<(u16, String), Failure> {
    for name in ["VAULT_PORT", "PORT", "VAULT_HTTP_PORT"] {
        if let (Some(port), Some((_, origin))) =
            (settings.number(name)?, settings.with_origin(name))
        {
            return Ok((port, origin.to_string()));
        }
    }
    Ok((8080, Origin::Default.to_string()))
}

/// Maximum number of buffered log lines. If the buffer is full, requests wait; no line is dropped.
const LOG_LINES: usize = 4096;

/// Logs to standard error from a separate thread, one JSON object per line. Dropping the returned
/// guard flushes the buffer.
pub fn log_to_stderr(level: &str) -> WorkerGuard {
    // The thread flushes when its queue is empty, so the buffer saves system calls without delaying
    // lines.
    let stderr = std::io::BufWriter::new(std::io::stderr());
    let (log, guard) = NonBlockingBuilder::default()
        .lossy(false)
        .buffered_lines_limit(LOG_LINES)
        .thread_name("log")
        .finish(stderr);
    log_to(log, level);
    guard
}

/// Sends the log of this process to `writer`. Only the first call has an effect.
pub fn log_to<W>(writer: W, level: &str)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // `rmcp::service` logs an error for each client that disconnects before its answer.
    let filter = tracing_subscriber::EnvFilter::builder()
        .parse_lossy(format!("warn,rmcp=error,rmcp::service=off,vault={level},vault_mcp={level},vault_service={level},vault_sql={level},vault_library={level},vault_store={level}"));
    let _ = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(writer)
        .try_init();
}

/// Serves until SIGTERM or SIGINT, then lets running requests finish.
pub fn run_server(options: Options) -> Result<(), Failure> {
    new_runtime()?.block_on(async {
        let (stop, stopping) = watch::channel(false);
        // Install the handlers before the start, so that an early signal stops the server as well.
        let mut terminate = listen_for(tokio::signal::unix::SignalKind::terminate())?;
        let mut interrupt = listen_for(tokio::signal::unix::SignalKind::interrupt())?;
        tokio::spawn(async move {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "stopping");
            stop.send_replace(true);
        });
        let server = Server::start(options).await?;
        server.serve(stopping).await;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Creates a runtime with two worker threads. They suffice, because requests are short, and
/// password hashes and queries run on other threads.
pub fn new_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| fail!(Io, "cannot start the event loop: {error}"))
}

fn listen_for(
    kind: tokio::signal::unix::SignalKind,
) -> Result<tokio::signal::unix::Signal, Failure> {
    tokio::signal::unix::signal(kind)
        .map_err(|error| fail!(Io, "signals cannot be handled: {error}"))
}

/// A server with an open listening socket.
pub struct Server {
    listener: TcpListener,
    app: App,
    publisher: publisher::Publisher,
}

impl Server {
    /// Starts to listen, opens the database, creates the first owner and publishes the library.
    pub async fn start(options: Options) -> Result<Self, Failure> {
        if let Some(path) = &options.unusable_index {
            tracing::warn!(path = %path.display(), "VAULT_DB_PATH is not used: no file can be there");
        }
        if let Some(file) = &options.recovery {
            first_vault::check_absent(&options.paths, file)?;
        }
        // Bind before anything is written, so that a server that cannot start leaves nothing
        // behind. A connection waits in the listener's queue until it can be served.
        let address = options.address;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            fail!(AddressInUse, "cannot listen on {address}: {error}").hint(match error.kind() {
                ErrorKind::AddrNotAvailable => "this machine does not have that address: check VAULT_BIND",
                ErrorKind::PermissionDenied => {
                    "ports below 1024 need more rights: choose another with --port, and put a reverse proxy in front"
                }
                _ => "choose another port with --port",
            })
        })?;
        let address = listener.local_addr().unwrap_or(address);
        let clock = Arc::new(SystemClock);
        // Several servers can share a Postgres database, but not a SQLite file.
        let shared = options.database.starts_with("postgres");
        let sql = Sql::open_database(&options.database, clock.clone()).await;
        let sql = sql.map_err(|error| database_failure(&error))?;
        let ports = Ports {
            records: sql.records(),
            objects: sql.objects(),
            clock,
            random: Arc::new(SystemRandom),
        };
        let senders =
            vault_service::notices::create_senders(&options.config.public_url, options.mail);
        let senders = senders.map_err(|error| {
            fail!(
                SettingInvalid,
                "VAULT_SMTP_URL: the certificates of this system cannot be loaded: {error}"
            )
        })?;
        let app = App::new(ports, options.config)
            .with_documents(Arc::new(Outbound::new()))
            .with_provider(
                |issuer| Arc::new(ProviderClient::new(issuer)),
                options.provider_secret.clone().map(given_secret),
            )
            .with_senders(senders);
        // The owner comes first, because creating it also allocates the namespace of the library.
        let email = options.admin_email.as_deref();
        set_up_first_owner(&app, email, options.admin_password.as_ref()).await?;
        if let Some(file) = &options.recovery {
            let base = app.config.public_url.base();
            let address = format!("{base}/v/{}", bootstrap::FIRST_NAMESPACE);
            first_vault::create_vault(&options.paths, options.passphrases.clone(), file, address)?;
        }
        let library = options.paths.root.display().to_string();
        let mut publisher =
            publisher::Publisher::open_library(&app, options.paths, options.passphrases, shared)?
                .with_fetch(options.fetch);
        let app = app.with_shelves(publisher.shelves());
        // Publish before the first request is served, so that devices do not see an older state
        // than the library's.
        publisher.publish_changes().await;
        tracing::info!(
            %address,
            port_from = %options.port_origin,
            library,
            library_from = options.library_from,
            public_url = %app.config.public_url,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
        Ok(Self {
            listener,
            app,
            publisher,
        })
    }

    /// Returns the state of the request handlers. The copy shares the stores with the server.
    pub fn app(&self) -> App {
        self.app.clone()
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let publishing = tokio::spawn(self.publisher.watch_library(stop.clone()));
        let mut stop_work = stop.clone();
        let working = tokio::spawn(vault_service::maintenance::run_periodically(
            self.app.clone(),
            async move {
                let _ = stop_work.wait_for(|stop| *stop).await;
            },
        ));
        vault_service::serve::serve(self.listener, self.app, async move {
            // A dropped sender also means stop.
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await;
        // Wait for the publisher: at its end it releases its lease, so that another server can
        // publish.
        let _ = publishing.await;
        let _ = working.await;
    }
}

async fn set_up_first_owner(
    app: &App,
    email: Option<&str>,
    password: Option<&SecretString>,
) -> Result<(), Failure> {
    match bootstrap::ensure_first_owner(app, Some(Kind::SelfSigned), email, password).await {
        Ok(FirstStart::Created(owner)) => {
            tracing::info!(%owner, "created the first account");
            Ok(())
        }
        Ok(FirstStart::AlreadyThere(owner)) => {
            if email.is_some() || password.is_some() {
                tracing::info!(%owner, "an account exists already: VAULT_ADMIN_EMAIL and VAULT_ADMIN_PASSWORD have no effect");
            }
            Ok(())
        }
        Err(BootstrapError::Missing) => {
            Err(missing_settings("VAULT_ADMIN_EMAIL, VAULT_ADMIN_PASSWORD"))
        }
        Err(BootstrapError::Password(_))
            if password.is_some_and(|password| is_short(password.expose_secret())) =>
        {
            Err(short_password())
        }
        Err(error @ (BootstrapError::Email(_) | BootstrapError::Password(_))) => {
            Err(fail!(SettingInvalid, "{}", message_chain(&error)))
        }
        Err(error) => Err(fail!(Database, "{}", message_chain(&error))),
    }
}
