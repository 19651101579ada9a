//! The service as AWS Lambda functions. Settings come from environment variables, S3 and DynamoDB
//! implement the stores' ports, and each function serves one group of routes.
//!
//! Settings, SDK clients and the router are set up before the first event. Correctness never
//! depends on the memory of a process: a function may be started anew for each event, or stay alive
//! for days between two events.

mod answer;
mod edge;
mod environment;
mod event;
mod function;
pub mod settings;

use std::process::ExitCode;
use std::sync::Arc;

use lambda_http::lambda_runtime::{LambdaEvent, run, service_fn};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::value::RawValue;
use tracing_subscriber::EnvFilter;
use vault_aws::Aws;
use vault_format::text::error_chain;
use vault_service::config::Issuer;
use vault_service::notices::smtp::MailSettings;
use vault_service::oidc::{ProviderHttp, given_secret};
use vault_service::{App, Ports};
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;

pub use answer::{Answer, MAX_EVENT_BYTES};
pub use edge::{BadDigests, Edge, NotFromEdge};
pub use function::{Failed, FirstOwner, Function, Outcome, PasswordSource, Reset, SecretDeletion};
pub use settings::{BadSettings, Password, Settings};
pub use vault_service::route::Group;
pub use vault_service::router::Part;

/// How a function reads and deletes secrets, by the names of their parameters in AWS Systems
/// Manager.
pub struct Parameters {
    /// Creates the source of a secret.
    pub read: fn(&vault_aws::SdkConfig, String) -> PasswordSource,
    /// Creates the deletion of a secret.
    pub delete: fn(&vault_aws::SdkConfig, String) -> SecretDeletion,
}

/// Reads and deletes secrets in AWS Systems Manager.
pub const PARAMETERS: Parameters = Parameters {
    read: parameter_source,
    delete: parameter_deletion,
};

/// Creates the client that talks to an identity provider.
pub type ProviderMaker = fn(&Issuer) -> Arc<dyn ProviderHttp>;

/// What one function consists of: its part of the service, and hooks for code that only some
/// functions link.
pub struct Program {
    /// The part of the service that it serves.
    pub part: Part,
    /// Adds the capabilities that only this function needs, such as sending notices.
    pub complete: fn(App, Option<MailSettings>) -> Result<App, lambda_http::Error>,
    /// [`PARAMETERS`] in functions that create the first owner, sign people in, send mail or
    /// receive payments; `None` keeps the code for secrets out of the others.
    pub parameters: Option<Parameters>,
    /// Creates the client of the identity provider; `None` in functions that sign nobody in.
    pub provider: Option<ProviderMaker>,
}

impl Program {
    /// Creates a function that needs nothing beyond its part of the service.
    pub const fn for_part(part: Part) -> Self {
        Self {
            part,
            complete: |app, _| Ok(app),
            parameters: None,
            provider: None,
        }
    }

    /// Runs the process of the function until it ends. Exits with status 2 if an environment
    /// variable is missing or wrong, and with 1 if the setup fails in another way or the Lambda
    /// service does not answer. One line of the log gives the reason.
    pub fn run_process(self) -> ExitCode {
        run_program(&self)
    }
}

fn run_program(program: &Program) -> ExitCode {
    // If the level is unset or unknown, log at `info`. `Settings::from_variables` rejects an unknown
    // one below, together with the other wrong variables.
    let level = environment::read_variable("VAULT_LOG_LEVEL")
        .filter(|level| settings::LOG_LEVELS.contains(&level.as_str()));
    init_logging(level.as_deref().unwrap_or("info"));
    // `part.group` is `None` only for `vault serve`, which serves all groups, so this default is
    // never used.
    let group = program.part.group().unwrap_or(Group::Devices);
    let settings = match Settings::from_variables(group, &environment::read_variable) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!(%error, "the function cannot start");
            return ExitCode::from(2);
        }
    };
    // A function handles one event at a time, so a second thread would only wait.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(serve_events(program, settings)),
        Err(error) => Err(error.into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the function stopped");
            ExitCode::FAILURE
        }
    }
}

async fn serve_events(program: &Program, settings: Settings) -> Result<(), lambda_http::Error> {
    let sdk = vault_aws::sdk_config(&settings.aws).await;
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let aws = Aws::new(&sdk, &settings.aws, clock.clone(), random.clone());
    let mail = load_mail_settings(program, &sdk, settings.mail.as_ref()).await?;
    let mut config = settings.config;
    if let Some(secrets) = &settings.payment_secrets {
        let secrets = load_secret(program, &sdk, secrets).await?;
        let secrets = secrets.unwrap_or_default();
        config
            .hosting
            .set_payment_secrets(secrets.expose_secret())?;
    }
    let ports = Ports {
        records: aws.records(),
        objects: aws.objects(),
        clock,
        random,
    };
    let app = App::new(ports, config);
    let mut app = (program.complete)(app, mail)?;
    let source = |password| match password {
        Password::Given(password) => Some(given_secret(password)),
        Password::Parameter(name) => Some((program.parameters.as_ref()?.read)(&sdk, name)),
    };
    if let Some(client) = program.provider {
        app = app.with_provider(client, settings.provider_secret.and_then(source));
    }
    let first_owner = settings.first_owner.and_then(|(email, password)| {
        let deletion = match (&password, &program.parameters) {
            (Password::Parameter(name), Some(parameters)) => {
                Some((parameters.delete)(&sdk, name.clone()))
            }
            _ => None,
        };
        let password = source(password)?;
        Some(FirstOwner {
            email,
            password,
            deletion,
        })
    });
    let function = Function::new(app, program.part, first_owner).with_edge(settings.edge);
    let handler = |event: LambdaEvent<Box<RawValue>>| function.handle_text(event.payload);
    run(service_fn(handler)).await
}

/// Returns the mail settings. The address of the mail server is read from its parameter if it is in
/// one.
async fn load_mail_settings(
    program: &Program,
    sdk: &vault_aws::SdkConfig,
    mail: Option<&settings::Mail>,
) -> Result<Option<MailSettings>, lambda_http::Error> {
    let Some(mail) = mail else {
        return Ok(None);
    };
    let Some(server) = load_secret(program, sdk, mail.server_source()).await? else {
        return Ok(None);
    };
    Ok(mail.with_server(server.expose_secret())?)
}

/// Reads a secret that is needed from the start; `None` if this program reads no parameters.
async fn load_secret(
    program: &Program,
    sdk: &vault_aws::SdkConfig,
    secret: &Password,
) -> Result<Option<SecretString>, lambda_http::Error> {
    match (secret, &program.parameters) {
        (Password::Given(secret), _) => Ok(Some(secret.clone())),
        (Password::Parameter(name), Some(parameters)) => {
            Ok(Some((parameters.read)(sdk, name.clone())().await?))
        }
        (Password::Parameter(_), None) => Ok(None),
    }
}

/// Creates the source of a secret in a parameter of AWS Systems Manager. The parameter is read when
/// the source is called.
fn parameter_source(sdk: &vault_aws::SdkConfig, name: String) -> PasswordSource {
    let client = aws_sdk_ssm::Client::new(sdk);
    Box::new(move || Box::pin(read_parameter(client.clone(), name.clone())))
}

/// Creates the deletion of a parameter of AWS Systems Manager. Nothing is deleted until the deletion
/// is called.
fn parameter_deletion(sdk: &vault_aws::SdkConfig, name: String) -> SecretDeletion {
    let client = aws_sdk_ssm::Client::new(sdk);
    Box::new(move || Box::pin(delete_parameter(client.clone(), name.clone())))
}

async fn delete_parameter(
    client: aws_sdk_ssm::Client,
    name: String,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let deleted = client.delete_parameter().name(&name).send().await;
    match deleted.map_err(aws_sdk_ssm::error::SdkError::into_service_error) {
        Ok(_) => Ok(()),
        // Another process or the operator has deleted it already.
        Err(error) if error.is_parameter_not_found() => Ok(()),
        Err(error) => Err(format!(
            "the parameter {name} cannot be deleted: {}",
            error_chain(&error)
        )
        .into()),
    }
}

/// Reads and decrypts a parameter of AWS Systems Manager.
async fn read_parameter(
    client: aws_sdk_ssm::Client,
    name: String,
) -> Result<SecretString, Box<dyn std::error::Error + Send + Sync>> {
    let asked = client
        .get_parameter()
        .name(&name)
        .with_decryption(true)
        .send();
    let answer = asked.await.map_err(|error| {
        format!(
            "the parameter {name} cannot be read: {}",
            error_chain(&error)
        )
    })?;
    let value = answer.parameter.and_then(|parameter| parameter.value);
    Ok(value
        .ok_or_else(|| format!("the parameter {name} has no value"))?
        .into())
}

/// Sets up logging: JSON lines on standard error, as `vault serve` writes them.
fn init_logging(level: &str) {
    // Other crates log warnings only, so that their messages do not drown those of the service.
    let filter = EnvFilter::builder().parse_lossy(format!(
        "warn,rmcp=error,vault_mcp={level},vault_functions={level},vault_service={level},vault_aws={level},vault_store={level}"
    ));
    // This fails only if a logger is installed already. Then keep that one.
    let _ = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
