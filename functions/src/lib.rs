//! The service as AWS Lambda functions: settings from variables, S3 and DynamoDB behind the ports,
//! one group of routes each.
//!
//! Everything is made before the first event is asked for. Nothing that is right or wrong hangs on
//! what a process remembers: a function may be started anew for each event, or live for days
//! between two.

mod answer;
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
pub use function::{Failed, FirstOwner, Function, Outcome, PasswordSource, Reset};
pub use settings::{BadSettings, Password, Settings};
pub use vault_service::route::Group;
pub use vault_service::router::Part;

/// Makes a source of the first owner's password from the name of a parameter.
pub type Parameters = fn(&vault_aws::SdkConfig, String) -> PasswordSource;

/// Makes the client of an identity provider.
pub type ProviderMaker = fn(&Issuer) -> Arc<dyn ProviderHttp>;

/// What one function is made of: its part of the service, and what no other function carries the
/// code of.
pub struct Program {
    /// What it answers.
    pub part: Part,
    /// Adds to the app what only this function needs.
    pub complete: fn(App, Option<MailSettings>) -> Result<App, lambda_http::Error>,
    /// [`parameter_source`] where the first owner may be made, people sign in or mail leaves.
    pub parameters: Option<Parameters>,
    /// Makes the client of the identity provider, where people sign in.
    pub provider: Option<ProviderMaker>,
}

impl Program {
    /// A function that needs nothing but its part.
    pub const fn of(part: Part) -> Self {
        Self {
            part,
            complete: |app, _| Ok(app),
            parameters: None,
            provider: None,
        }
    }

    /// The process of the function, from its variables to its end. It ends with 2 when a variable
    /// is missing or wrong, and with 1 when the Lambda service does not answer; one line of the log
    /// says why.
    pub fn main(self) -> ExitCode {
        main(&self)
    }
}

fn main(program: &Program) -> ExitCode {
    // Another one is told like every wrong variable: by one line, in the log's form.
    let level = environment::variable("VAULT_LOG_LEVEL")
        .filter(|level| settings::LOG_LEVELS.contains(&level.as_str()));
    log(level.as_deref().unwrap_or("info"));
    // A function is always one group; everything at once is what `vault serve` is for.
    let group = program.part.group().unwrap_or(Group::Devices);
    let settings = match Settings::read(group, &environment::variable) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!(%error, "the function cannot start");
            return ExitCode::from(2);
        }
    };
    // One event at a time: a second thread would only wait.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(serve(program, settings)),
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

async fn serve(program: &Program, settings: Settings) -> Result<(), lambda_http::Error> {
    let sdk = vault_aws::sdk_config(&settings.aws).await;
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let aws = Aws::new(&sdk, &settings.aws, clock.clone(), random.clone());
    let mail = mail(program, &sdk, settings.mail.as_ref()).await?;
    let ports = Ports {
        records: aws.records(),
        objects: aws.objects(),
        clock,
        random,
    };
    let app = App::new(ports, settings.config);
    let mut app = (program.complete)(app, mail)?;
    let source = |password| match password {
        Password::Given(password) => Some(given_secret(password)),
        Password::Parameter(name) => Some(program.parameters?(&sdk, name)),
    };
    if let Some(client) = program.provider {
        app = app.with_provider(client, settings.provider_secret.and_then(source));
    }
    let first_owner = settings.first_owner.and_then(|(email, password)| {
        let password = source(password)?;
        Some(FirstOwner { email, password })
    });
    let function = Function::new(app, program.part, first_owner);
    let handler = |event: LambdaEvent<Box<RawValue>>| function.handle_text(event.payload);
    run(service_fn(handler)).await
}

/// The settings of mail, with the server's address from where it stands.
async fn mail(
    program: &Program,
    sdk: &vault_aws::SdkConfig,
    mail: Option<&settings::Mail>,
) -> Result<Option<MailSettings>, lambda_http::Error> {
    let Some(mail) = mail else {
        return Ok(None);
    };
    let server = match (mail.server(), program.parameters) {
        (Password::Given(server), _) => server.clone(),
        (Password::Parameter(name), Some(source)) => source(sdk, name.clone())().await?,
        (Password::Parameter(_), None) => return Ok(None),
    };
    Ok(mail.with_server(server.expose_secret())?)
}

/// A password that stands in a parameter of the Systems Manager and is read when it is asked for.
pub fn parameter_source(sdk: &vault_aws::SdkConfig, name: String) -> PasswordSource {
    let client = aws_sdk_ssm::Client::new(sdk);
    Box::new(move || Box::pin(parameter(client.clone(), name.clone())))
}

/// A parameter of the Systems Manager, decrypted.
async fn parameter(
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

/// JSON lines on standard error, as `vault serve` writes them.
fn log(level: &str) {
    let filter = EnvFilter::builder().parse_lossy(format!(
        "warn,rmcp=error,vault_mcp={level},vault_functions={level},vault_service={level},vault_aws={level},vault_store={level}"
    ));
    let _ = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
