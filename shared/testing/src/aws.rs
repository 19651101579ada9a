//! Test support: an emulator of S3 and DynamoDB, with a table and a bucket for each test.
//!
//! [`place`] creates an empty table and bucket on an emulator that all test processes of one build
//! folder share. The first process starts `ministack` on a free port of the loopback address, with
//! an environment of its own. A watchdog stops it and removes its folder some seconds after the
//! last process has ended, even if that was killed: each process holds a file lock, which the
//! kernel releases. `VAULT_TEST_AWS_URL` names another emulator to use instead. The program is
//! expected in `vault-tools/ministack` below the user's cache folder, where `tests/run` installs
//! it. Nothing of a function uses this module.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};

use vault_aws::{PARTITION_KEY, SORT_KEY, Settings, fixed_credentials, sdk_config_with};

use crate::servers::{Absent, IDLE, free_port, random_word, shared_port, watch};

/// The variable with the address of an emulator to use instead of starting one.
const VARIABLE: &str = "VAULT_TEST_AWS_URL";
/// The region of all tables and buckets.
const REGION: &str = "eu-central-1";

/// The script with which the watchdog stops the emulator. [`watch`] describes its arguments.
const STOP: &str = r#"
# An emulator that ended by itself may have left its number to another process.
is_there() { grep -q ministack "/proc/$3/cmdline" 2>/dev/null; }
is_there "$@" && kill "$3"
tries=0
while is_there "$@" && [ "$tries" -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
is_there "$@" && kill -9 "$3"
"#;

/// An empty table and an empty bucket. They are deleted together with the emulator.
#[derive(Clone, Debug)]
pub struct Place {
    /// The names of table and bucket, and the emulator's address.
    pub settings: Settings,
    /// An SDK configuration with credentials that the emulator accepts.
    pub config: SdkConfig,
}

/// Creates an empty table and bucket. Fails if this machine has no emulator. Panics if the one
/// named by `VAULT_TEST_AWS_URL` cannot be used, since a person who sets it wants to test with it.
pub async fn place() -> Result<Place, Absent> {
    let endpoint = tokio::task::spawn_blocking(endpoint)
        .await
        .map_err(Absent::because)??;
    let name = format!("vault-{}", random_word());
    let settings = Settings {
        table: name.clone(),
        bucket: name,
        endpoint: Some(endpoint),
        region: REGION.to_owned(),
    };
    let config = sdk_config_with(&settings, fixed_credentials("test", "test")).await;
    let place = Place { settings, config };
    place.make_table().await?;
    place.make_bucket().await?;
    Ok(place)
}

/// Returns the emulator's address, such as `http://127.0.0.1:40123`. Fails if this machine has
/// none.
#[expect(clippy::disallowed_methods, reason = "the variable of this module")]
pub fn endpoint() -> Result<String, Absent> {
    static SERVER: OnceLock<Result<u16, Absent>> = OnceLock::new();
    static USER: OnceLock<File> = OnceLock::new();
    if let Ok(named) = std::env::var(VARIABLE) {
        return Ok(named);
    }
    let port = SERVER
        .get_or_init(|| shared_port("ministack", &USER, answers, start))
        .clone()?;
    Ok(format!("http://127.0.0.1:{port}"))
}

impl Place {
    async fn make_table(&self) -> Result<(), Absent> {
        let client = aws_sdk_dynamodb::Client::new(&self.config);
        let mut request = client
            .create_table()
            .table_name(&self.settings.table)
            .billing_mode(BillingMode::PayPerRequest);
        for (name, kind) in [(PARTITION_KEY, KeyType::Hash), (SORT_KEY, KeyType::Range)] {
            let attribute = AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S);
            let key = KeySchemaElement::builder()
                .attribute_name(name)
                .key_type(kind);
            request = request
                .attribute_definitions(attribute.build().map_err(Absent::because)?)
                .key_schema(key.build().map_err(Absent::because)?);
        }
        let made = request.send().await;
        made.map(drop).map_err(|error| Absent(format!("{error:?}")))
    }

    async fn make_bucket(&self) -> Result<(), Absent> {
        let config = aws_sdk_s3::config::Builder::from(&self.config).force_path_style(true);
        let place = aws_sdk_s3::types::CreateBucketConfiguration::builder()
            .location_constraint(REGION.into())
            .build();
        let made = aws_sdk_s3::Client::from_conf(config.build())
            .create_bucket()
            .bucket(&self.settings.bucket)
            .create_bucket_configuration(place)
            .send()
            .await;
        made.map(drop).map_err(|error| Absent(format!("{error:?}")))
    }
}

/// Starts the emulator and its watchdog, and waits until it answers.
fn start(base: &Path) -> Result<u16, Absent> {
    let program = program()?;
    // Another program may take the free port before the emulator does.
    for _ in 0..4 {
        let port = free_port()?;
        let log = File::create(base.join("log")).map_err(Absent::because)?;
        let errors = log.try_clone().map_err(Absent::because)?;
        // Pass no variable of this process, so that a setting which a test forgot is noticed.
        let mut command = Command::new(&program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", base)
            .env("TMPDIR", base)
            .env("LC_ALL", "C.UTF-8")
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .current_dir(base)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0);
        let mut emulator = command.spawn().map_err(Absent::because)?;
        // Start the watchdog first: this process may be killed while it waits.
        let watched = watch(base, IDLE, STOP, &emulator.id().to_string());
        if watched.is_ok() && is_ready(&mut emulator, port) {
            return Ok(port);
        }
        let _ = emulator.kill();
        let _ = emulator.wait();
        watched?;
    }
    let log = fs::read_to_string(base.join("log")).unwrap_or_default();
    Err(Absent(format!("ministack does not start: {log}")))
}

/// Waits until the emulator answers. Returns false if it ended, or after a minute.
fn is_ready(emulator: &mut Child, port: u16) -> bool {
    for _ in 0..600 {
        if answers(port) {
            return true;
        }
        if !matches!(emulator.try_wait(), Ok(None)) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

/// Tells whether an emulator of this kind answers on the port.
fn answers(port: u16) -> bool {
    let asked = || -> std::io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let limit = Duration::from_secs(10);
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"GET /_ministack/health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(1 << 16).read_to_string(&mut answer)?;
        Ok(answer)
    };
    asked().is_ok_and(|answer| {
        let status = answer.split(' ').nth(1);
        status == Some("200") && answer.contains("dynamodb")
    })
}

/// Returns the path of the emulator's program. Fails if it is not installed.
#[expect(
    clippy::disallowed_methods,
    reason = "test support looks where tests/run installs"
)]
fn program() -> Result<PathBuf, Absent> {
    let caches = std::env::var_os("XDG_CACHE_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .ok_or_else(|| Absent("HOME is not set".to_owned()))?;
    let program = caches.join("vault-tools/ministack/bin/ministack");
    if program.exists() {
        return Ok(program);
    }
    Err(Absent(format!(
        "ministack is not installed (tests/run does it): {} was not found",
        program.display()
    )))
}
