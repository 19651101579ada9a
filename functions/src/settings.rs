//! The settings of a function. They are read from environment variables and checked before the
//! first event.

use std::fmt;
use std::str::FromStr;

use secrecy::SecretString;
use vault_service::config::hosting::{Hosting, PAYMENT_SECRETS};
use vault_service::config::{CLIENT_SECRET, Config, SignIn, tool_names};
use vault_service::model::account::Email;
use vault_service::notices::smtp::{BadMailSettings, MailSettings};
use vault_service::route::Group;

use crate::edge::Edge;

/// Minimum length of the first owner's password, in characters.
const PASSWORD_CHARACTERS: usize = 24;

/// Variables that configure how people sign in, except the client secret.
const SIGN_IN: [&str; 5] = [
    "VAULT_SIGN_IN",
    "VAULT_OIDC_ISSUER",
    "VAULT_OIDC_CLIENT_ID",
    "VAULT_OIDC_NAME",
    "VAULT_SIGN_UP",
];

/// The values that `VAULT_LOG_LEVEL` may have.
pub const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// All settings that a function needs to start.
#[derive(Debug)]
pub struct Settings {
    /// The service's own settings.
    pub config: Config,
    /// The table, bucket and region, and the address of an emulator if one is used.
    pub aws: vault_aws::Settings,
    /// E-mail address and password of the first owner, whom the function creates while there is no
    /// owner. Set only for the groups that can create one.
    pub first_owner: Option<(String, Password)>,
    /// The secret that authenticates the service to its identity provider. Set only for the group
    /// that signs people in.
    pub provider_secret: Option<Password>,
    /// Settings of outgoing mail. Set only for the group that sends notices.
    pub mail: Option<Mail>,
    /// The secrets with which payment events are signed, separated by commas. Set only for the
    /// group that receives them.
    pub payment_secrets: Option<Password>,
    /// Checks that requests come through the content delivery network; `None` if the deployment has
    /// none.
    pub edge: Option<Edge>,
}

/// Settings of outgoing mail. The address of the mail server may still have to be read from its
/// parameter.
#[derive(Debug)]
pub struct Mail {
    server: Password,
    from: Option<String>,
}

impl Mail {
    /// Returns the source of the server's address.
    pub const fn server_source(&self) -> &Password {
        &self.server
    }

    /// Returns the settings with this server address. Fails if the address or the sender is
    /// invalid.
    pub fn with_server(&self, server: &str) -> Result<Option<MailSettings>, BadMailSettings> {
        MailSettings::read_settings(Some(server), self.from.as_deref())
    }
}

/// Where a secret is found: the first owner's password, the identity provider's secret, the mail
/// server's address, or the signing secrets of payment events.
#[derive(Debug)]
pub enum Password {
    /// The secret itself, from a variable. For emulators only.
    Given(SecretString),
    /// The name of a parameter in AWS Systems Manager. It is read on demand, the first owner's
    /// password only while there is no owner.
    Parameter(String),
}

/// The error that lists all environment variables that are missing or wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct BadSettings {
    missing: Vec<&'static str>,
    wrong: Vec<String>,
}

impl fmt::Display for BadSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.missing.is_empty() {
            write!(out, "{} must be set", self.missing.join(", "))?;
        }
        if !self.missing.is_empty() && !self.wrong.is_empty() {
            out.write_str("; ")?;
        }
        out.write_str(&self.wrong.join("; "))
    }
}

/// Reads variables and collects all problems, so that one failed start reports all of them.
struct Reading<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    bad: BadSettings,
}

impl Reading<'_> {
    fn read_text(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    fn require_text(&mut self, name: &'static str) -> String {
        // An unset variable reads as empty text, so that the checks after it still run. Such
        // settings are never used, because `bad` is not empty.
        self.read_text(name).unwrap_or_else(|| {
            self.bad.missing.push(name);
            String::new()
        })
    }

    fn report_wrong(&mut self, name: &str, why: impl fmt::Display) {
        self.bad.wrong.push(format!("{name}: {why}"));
    }

    fn parse_number<T: FromStr>(&mut self, name: &str) -> Option<T> {
        let text = self.read_text(name)?;
        let number = text.parse().ok();
        if number.is_none() {
            self.report_wrong(name, format!("`{text}` is not a valid number"));
        }
        number
    }
}

impl Settings {
    /// Reads the variables of a function of this group. Fails with all missing and wrong variables.
    pub fn from_variables(
        group: Group,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, BadSettings> {
        let mut reading = Reading {
            variable,
            bad: BadSettings {
                missing: Vec::new(),
                wrong: Vec::new(),
            },
        };
        let aws = vault_aws::Settings {
            table: reading.require_text("VAULT_TABLE"),
            bucket: reading.require_text("VAULT_BUCKET"),
            region: read_region(&mut reading),
            endpoint: read_endpoint(&mut reading),
        };
        let config = read_config(&mut reading);
        if let Some(level) = reading.read_text("VAULT_LOG_LEVEL")
            && !LOG_LEVELS.contains(&level.as_str())
        {
            let why = format!("`{level}` is not one of {}", LOG_LEVELS.join(", "));
            reading.report_wrong("VAULT_LOG_LEVEL", why);
        }
        let first_owner = matches!(group, Group::OAuth | Group::Admin)
            .then(|| first_owner(&mut reading))
            .flatten();
        let provider_secret = provider_secret(&reading).filter(|_| group == Group::OAuth);
        let mail = (group == Group::Admin)
            .then(|| read_mail(&mut reading))
            .flatten();
        // These secrets authenticate payments, so no other function gets them. The name of their
        // parameter tells all functions that plans can be bought.
        let payment_secrets = payment_secrets(&reading).filter(|_| group == Group::Admin);
        let edge = read_edge(&mut reading);
        let bad = reading.bad;
        match config {
            Some(config) if bad.missing.is_empty() && bad.wrong.is_empty() => Ok(Self {
                config,
                aws,
                first_owner,
                provider_secret,
                mail,
                payment_secrets,
                edge,
            }),
            _ => Err(bad),
        }
    }
}

/// Reads and checks the region. It becomes a part of host names of AWS, so a wrong text would
/// otherwise fail only with the first event.
fn read_region(reading: &mut Reading<'_>) -> String {
    let region = reading.require_text("AWS_REGION");
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !region.bytes().all(plain) {
        reading.report_wrong("AWS_REGION", format!("`{region}` is not a region"));
    }
    region
}

/// Reads the address of an emulator, if one is set.
fn read_endpoint(reading: &mut Reading<'_>) -> Option<String> {
    // The SDK reads `AWS_ENDPOINT_URL` by itself, so it is checked like our own variable.
    let names = ["VAULT_AWS_ENDPOINT", "AWS_ENDPOINT_URL"];
    let (name, endpoint) = names
        .into_iter()
        .find_map(|name| Some((name, reading.read_text(name)?)))?;
    let is_address = url::Url::parse(&endpoint)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_address {
        reading.report_wrong(
            name,
            format!("`{endpoint}` is not an http or https address"),
        );
    }
    Some(endpoint)
}

fn read_config(reading: &mut Reading<'_>) -> Option<Config> {
    let url = reading.require_text("VAULT_PUBLIC_URL");
    let mut config = match url.parse() {
        Ok(url) => Config::new(url),
        // An empty text was reported as missing already.
        Err(_) if url.is_empty() => return None,
        Err(error) => {
            reading.report_wrong("VAULT_PUBLIC_URL", error);
            return None;
        }
    };
    if let Some(seconds) = reading.parse_number("VAULT_TOKEN_TTL")
        && let Err(why) = config.set_token_ttl(seconds)
    {
        reading.report_wrong("VAULT_TOKEN_TTL", why);
    }
    match reading
        .read_text("VAULT_TOOL_NAMES")
        .as_deref()
        .map(tool_names)
    {
        None => {}
        Some(Ok(names)) => config.tool_names = names,
        Some(Err(why)) => reading.report_wrong("VAULT_TOOL_NAMES", why),
    }
    match reading
        .read_text("VAULT_SECOND_FACTOR")
        .map(|text| text.parse())
    {
        None => {}
        Some(Ok(rule)) => config.second_factor = rule,
        Some(Err(why)) => reading.report_wrong("VAULT_SECOND_FACTOR", why),
    }
    let has_secret = provider_secret(reading).is_some();
    let variables = SIGN_IN.map(|name| (name, reading.read_text(name)));
    let variable = |name: &str| {
        let variable_entry = variables.iter().find(|(held, _)| *held == name);
        variable_entry.and_then(|(_, text)| text.as_deref())
    };
    match SignIn::from_variables(&variable, has_secret) {
        Ok(sign_in) => config.sign_in = sign_in,
        Err(bad) => reading.report_wrong(bad.name, bad.problem),
    }
    let has_secrets = payment_secrets(reading).is_some();
    match Hosting::from_variables_without_secrets(|name| reading.read_text(name), has_secrets) {
        Ok(hosting) => config.hosting = hosting,
        Err((name, why)) => reading.report_wrong(name, why),
    }
    if let Some(ports) = reading.read_text("VAULT_WEBHOOK_PORTS")
        && let Err(why) = config.set_webhook_ports(ports.split(',').map(str::trim))
    {
        reading.report_wrong("VAULT_WEBHOOK_PORTS", why);
    }
    let origins = reading
        .read_text("VAULT_ALLOWED_ORIGINS")
        .unwrap_or_default();
    for origin in origins.split(',').map(str::trim).filter(|o| !o.is_empty()) {
        if let Err(why) = config.allow_origin(origin) {
            reading.report_wrong("VAULT_ALLOWED_ORIGINS", why);
        }
    }
    let hosts = reading.read_text("VAULT_ALLOWED_HOSTS").unwrap_or_default();
    for host in hosts.split(',').map(str::trim).filter(|h| !h.is_empty()) {
        if let Err(why) = config.allow_host(host) {
            reading.report_wrong("VAULT_ALLOWED_HOSTS", why);
        }
    }
    for (name, limit) in config.limits.by_variable() {
        if let Some(number) = reading.parse_number(name) {
            *limit = number;
        }
    }
    let limits = &mut config.limits;
    // These two limits count reads in the memory of one process, which has no effect if many
    // processes serve the same devices. The gateway throttles reads instead.
    (limits.catalog_per_device, limits.bundles_per_device) = (0, 0);
    Some(config)
}

/// Returns the secret for the identity provider: the name of a parameter, or else a value for
/// emulators.
fn provider_secret(reading: &Reading<'_>) -> Option<Password> {
    let name = reading.read_text("VAULT_OIDC_CLIENT_SECRET_PARAMETER");
    let given = || {
        reading
            .read_text(CLIENT_SECRET)
            .map(|text| Password::Given(text.into()))
    };
    name.map(Password::Parameter).or_else(given)
}

/// Returns the signing secrets of payment events: the name of a parameter, or else a value for
/// emulators.
fn payment_secrets(reading: &Reading<'_>) -> Option<Password> {
    let name = reading.read_text("VAULT_PAYMENT_SECRETS_PARAMETER");
    let given = || {
        reading
            .read_text(PAYMENT_SECRETS)
            .map(|text| Password::Given(text.into()))
    };
    name.map(Password::Parameter).or_else(given)
}

/// Reads the digests of the secrets that the content delivery network sends.
fn read_edge(reading: &mut Reading<'_>) -> Option<Edge> {
    let text = reading.read_text("VAULT_ORIGIN_DIGESTS")?;
    let edge = Edge::parse(&text);
    if let Err(why) = &edge {
        reading.report_wrong("VAULT_ORIGIN_DIGESTS", why);
    }
    edge.ok()
}

fn read_mail(reading: &mut Reading<'_>) -> Option<Mail> {
    let from = reading.read_text("VAULT_MAIL_FROM");
    if let Some(name) = reading.read_text("VAULT_SMTP_URL_PARAMETER") {
        let server = Password::Parameter(name);
        return Some(Mail { server, from });
    }
    let server = reading.read_text("VAULT_SMTP_URL")?;
    if let Err(error) = MailSettings::read_settings(Some(&server), from.as_deref()) {
        // The error's text already names the variable, so do not add its name.
        reading.bad.wrong.push(error.to_string());
    }
    let server = Password::Given(server.into());
    Some(Mail { server, from })
}

fn first_owner(reading: &mut Reading<'_>) -> Option<(String, Password)> {
    let email = reading.read_text("VAULT_ADMIN_EMAIL")?;
    if email.parse::<Email>().is_err() {
        reading.report_wrong(
            "VAULT_ADMIN_EMAIL",
            "this is no e-mail address in plain ASCII",
        );
    }
    if let Some(name) = reading.read_text("VAULT_ADMIN_PASSWORD_PARAMETER") {
        return Some((email, Password::Parameter(name)));
    }
    let Some(password) = reading.read_text("VAULT_ADMIN_PASSWORD") else {
        // Report the parameter as missing: a password in a variable is only for emulators.
        reading.bad.missing.push("VAULT_ADMIN_PASSWORD_PARAMETER");
        return None;
    };
    if password.chars().count() < PASSWORD_CHARACTERS {
        let why = format!("must have at least {PASSWORD_CHARACTERS} characters");
        reading.report_wrong("VAULT_ADMIN_PASSWORD", why);
    }
    Some((email, Password::Given(password.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[(&str, &str)] = &[
        ("VAULT_TABLE", "vault"),
        ("VAULT_BUCKET", "vault-objects"),
        ("AWS_REGION", "eu-central-1"),
        ("VAULT_PUBLIC_URL", "https://vault.example"),
    ];

    fn read(group: Group, more: &[(&str, &str)]) -> Result<Settings, String> {
        let all = [more, GOOD].concat();
        let variable = move |name: &str| {
            let found = all.iter().find(|(held, _)| *held == name);
            found
                .map(|(_, text)| (*text).to_owned())
                .filter(|text| !text.is_empty())
        };
        Settings::from_variables(group, &variable).map_err(|bad| bad.to_string())
    }

    #[test]
    fn what_is_missing_is_named_all_at_once() {
        let told = Settings::from_variables(Group::Catalog, &|_| None).unwrap_err();
        assert_eq!(
            told.to_string(),
            "VAULT_TABLE, VAULT_BUCKET, AWS_REGION, VAULT_PUBLIC_URL must be set"
        );
        let told = read(
            Group::Admin,
            &[("VAULT_TABLE", ""), ("VAULT_TOKEN_TTL", "5")],
        );
        assert_eq!(
            told.unwrap_err(),
            "VAULT_TABLE must be set; VAULT_TOKEN_TTL: must be 60 to 86400 seconds"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, text) in [
            ("VAULT_PUBLIC_URL", "http://vault.example"),
            ("VAULT_TOKEN_TTL", "ten"),
            ("VAULT_LIMIT_TOKEN", "-1"),
            ("VAULT_ALLOWED_ORIGINS", "https://a.example/"),
            ("VAULT_ALLOWED_HOSTS", "https://a.example"),
            ("VAULT_WEBHOOK_PORTS", "443,ssh"),
            ("VAULT_ADMIN_EMAIL", "ann"),
            ("VAULT_SIGN_IN", "ldap"),
            ("VAULT_OIDC_CLIENT_SECRET", "half a provider"),
            ("VAULT_PAYMENT_SECRETS", "too-short"),
            ("VAULT_ORIGIN_DIGESTS", "the secret itself"),
        ] {
            let told = read(Group::OAuth, &[(name, text)]).unwrap_err();
            assert!(told.contains(name) && !told.is_empty(), "{told}");
        }
        let owner = [("VAULT_ADMIN_EMAIL", "ann@example.com")];
        let told = read(Group::OAuth, &owner).unwrap_err();
        assert_eq!(told, "VAULT_ADMIN_PASSWORD_PARAMETER must be set");
        let short = [owner[0], ("VAULT_ADMIN_PASSWORD", "short-secret")];
        let told = read(Group::OAuth, &short).unwrap_err();
        assert!(!told.contains("short-secret"), "{told}");
    }

    #[test]
    fn the_secret_of_the_provider_is_for_the_function_that_signs_people_in() {
        let provider = [
            ("VAULT_OIDC_ISSUER", "https://id.example"),
            ("VAULT_OIDC_CLIENT_ID", "vault"),
            ("VAULT_OIDC_CLIENT_SECRET_PARAMETER", "/vault/provider"),
        ];
        for (group, asks) in [(Group::OAuth, true), (Group::Admin, false)] {
            let settings = read(group, &provider).unwrap();
            assert!(settings.config.sign_in.provider().is_some());
            assert_eq!(settings.provider_secret.is_some(), asks, "{group:?}");
        }
        let told = read(Group::OAuth, &provider[..1]).unwrap_err();
        assert!(told.starts_with("VAULT_OIDC_CLIENT_ID: "), "{told}");
    }

    #[test]
    fn payment_secrets_are_for_the_function_that_receives_payments() {
        let plans = ("VAULT_PLANS", "team=https://buy.example plink_1");
        let named = ("VAULT_PAYMENT_SECRETS_PARAMETER", "/vault/payment");
        let given = ("VAULT_PAYMENT_SECRETS", "whsec_0123456789abcdef");
        for source in [named, given] {
            for group in [
                Group::OAuth,
                Group::Mcp,
                Group::Admin,
                Group::Devices,
                Group::Catalog,
            ] {
                let settings = read(group, &[plans, source]).unwrap();
                // Every function knows that plans are sold.
                assert!(settings.config.hosting.sign_up);
                assert!(settings.config.hosting.payment_secrets.is_empty());
                let has_secrets = settings.payment_secrets.is_some();
                assert_eq!(has_secrets, group == Group::Admin, "{group:?}");
            }
        }
        let told = read(Group::OAuth, &[plans]).unwrap_err();
        assert!(told.starts_with("VAULT_PAYMENT_SECRETS: "), "{told}");
    }

    #[test]
    fn mail_is_for_the_group_that_sends_notices() {
        let given = [
            ("VAULT_SMTP_URL", "smtps://ann:se-cret@mail.example"),
            ("VAULT_MAIL_FROM", "vault@vault.example"),
        ];
        assert!(read(Group::Devices, &given).unwrap().mail.is_none());
        assert!(read(Group::Admin, &[]).unwrap().mail.is_none());
        let mail = read(Group::Admin, &given).unwrap().mail.unwrap();
        assert!(matches!(mail.server_source(), Password::Given(_)));
        assert!(!format!("{mail:?}").contains("se-cret"));
        let named = [("VAULT_SMTP_URL_PARAMETER", "/vault/smtp"), given[1]];
        let mail = read(Group::Admin, &named).unwrap().mail.unwrap();
        assert!(mail.with_server("smtps://mail.example").unwrap().is_some());
        assert!(mail.with_server("mail.example").is_err());
        for (wrong, told) in [
            (&given[..1], "VAULT_MAIL_FROM must be set"),
            (&[given[0], ("VAULT_MAIL_FROM", "ann")], "VAULT_MAIL_FROM: "),
            (
                &[("VAULT_SMTP_URL", "ann:se-cret"), given[1]],
                "VAULT_SMTP_URL: ",
            ),
        ] {
            let found = read(Group::Admin, wrong).unwrap_err();
            assert!(
                found.starts_with(told) && !found.contains("se-cret"),
                "{found}"
            );
        }
    }

    #[test]
    fn a_group_asks_for_no_more_than_it_needs() {
        let owner = [
            ("VAULT_ADMIN_EMAIL", "ann@example.com"),
            ("VAULT_ADMIN_PASSWORD_PARAMETER", "/vault/admin"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:4566"),
        ];
        for (group, asks) in [
            (Group::OAuth, true),
            (Group::Admin, true),
            (Group::Devices, false),
            (Group::Catalog, false),
            (Group::Mcp, false),
        ] {
            let settings = read(group, &owner).unwrap();
            assert_eq!(settings.first_owner.is_some(), asks, "{group:?}");
            assert_eq!(
                settings.aws.endpoint.as_deref(),
                Some("http://127.0.0.1:4566")
            );
            let limits = settings.config.limits;
            assert_eq!(
                (limits.catalog_per_device, limits.bundles_per_device),
                (0, 0)
            );
        }
    }
}
