//! The HTTP client for services: response limits, timeouts and error conversion.
//!
//! Services are not trusted. The client follows no redirects and accepts no content encoding. Every
//! body has a size limit that is enforced while it is read, and peers that send too slowly are
//! disconnected. The content of responses is unverified; callers verify the signatures of catalogs
//! and bundles.

mod base;
pub mod browser;
pub mod confirmation;
pub mod connection;
mod device;
pub mod drafts;
mod owner;
mod patience;
pub mod sessions;
pub mod sign_in;
pub mod step_up;
pub mod tokens;
pub mod users;

use std::time::SystemTime;

use reqwest::{
    Method, RequestBuilder,
    header::{
        ACCEPT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE,
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use vault_http::{Client, HttpError, Limits, Options, Reach};
use vault_service::error::ErrorCode as ServiceCode;
use vault_sources::CERTIFICATE_HINT;
use vault_store::clock::{Clock as _, SystemClock};

pub use self::{
    base::{Address, Base, path_segment},
    device::DeviceClient,
    owner::{Body, OwnerClient, PACK_BYTES},
};
use crate::{
    context::Context,
    errors::{Exit, Failure, FailureCode, MissingScope, codes, message_chain},
    output::{clean, format_size},
};

/// Size limits of response bodies, in bytes.
pub mod ceiling {
    /// A catalog or an object.
    pub const OBJECT: u64 = 4 * 1024 * 1024;
    /// The state of this machine at the service (`devices/current`).
    pub const DEVICE: u64 = 4 * 1024;
    /// An error, a metadata document or a token response.
    pub const SMALL: u64 = 64 * 1024;
    /// A list for an owner. 10,000 missing hashes take 670 KB.
    pub const LIST: u64 = 2 * 1024 * 1024;
}

/// An HTTP client that sends requests to one service only.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client,
    /// The `reqwest` client inside `client`, with which requests are built.
    inner: reqwest::Client,
    host: String,
}

/// A response of the service whose body was read completely.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body, within the size limit of the request.
    pub body: Vec<u8>,
    /// The sign-in that sent the request; `None` for a request without a token.
    asked_by: Option<AskedBy>,
}

/// The sign-in that sent a request, for hints in failures.
#[derive(Clone, Debug)]
struct AskedBy {
    /// The service at which the user is signed in.
    base: Base,
    /// The name of the token file ([`tokens::TokenFile::name`]).
    sign_in: String,
    /// The command that signs in again.
    command: String,
}

impl Http {
    /// Creates a client for this service. Fails with `--offline`, or if no TLS roots can be loaded.
    pub fn new(context: &Context, base: &Base) -> Result<Self, Failure> {
        context.require_network()?;
        let reach = if base.is_loopback() {
            Reach::Loopback {
                localhost: base.localhost_name().map(str::to_owned),
                // Plain HTTP needs no certificates, which a minimal machine may not have.
                plain: base.is_plain(),
            }
        } else {
            Reach::Any
        };
        let client = Client::new(Options {
            limits: Limits::default(),
            reach,
            https_only: !base.is_plain(),
            reuse: true,
            roots: &[],
        });
        let host = base.to_string();
        // Create the inner client now, so that missing certificates fail before any request.
        let inner = client
            .reqwest_client()
            .map_err(|error| request_failure(&host, &error))?;
        Ok(Self {
            inner: inner.clone(),
            client,
            host,
        })
    }

    /// Starts a request to a full address.
    pub fn request(&self, method: Method, address: &str) -> RequestBuilder {
        self.inner
            .request(method, address)
            // The size limits apply to the bytes on the wire, so the body must not be compressed.
            .header(ACCEPT_ENCODING, "identity")
    }

    /// Sends a form and reads a small response.
    async fn post_form(&self, address: &str, fields: &[(&str, &str)]) -> Result<Answer, Failure> {
        let request = self
            .request(Method::POST, address)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(encode_form(fields));
        self.send(request, ceiling::SMALL).await
    }

    /// Sends a request and reads the response; HTTP errors are returned as responses. Fails on a
    /// redirect, a content encoding, a body over `ceiling` or a slow peer.
    pub async fn send(&self, request: RequestBuilder, ceiling: u64) -> Result<Answer, Failure> {
        let failed = |error| request_failure(&self.host, &error);
        let response = self.client.send_request(request).await.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        if (300..400).contains(&status) {
            let host = &self.host;
            return Err(fail!(
                RedirectRefused,
                "{host} answered with a redirect ({status})"
            )
            .hint("use the service's own address; vault never follows redirects"));
        }
        // The body of an error is a problem document, which is small.
        let is_good = (200..300).contains(&status);
        let ceiling = if is_good { ceiling } else { ceiling::SMALL };
        let body = match response.read_body(ceiling).await {
            // The body is longer than any problem document, so only the status is used.
            Err(HttpError::TooLarge(_)) if !is_good => Vec::new(),
            body => body.map_err(failed)?,
        };
        Ok(Answer {
            status,
            headers,
            body,
            asked_by: None,
        })
    }
}

/// Encodes name and value pairs as `application/x-www-form-urlencoded`, for a body or a query.
pub fn encode_form(pairs: &[(&str, &str)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(pairs).finish()
}

/// Converts the error of a request that got no complete response.
fn request_failure(host: &str, error: &HttpError) -> Failure {
    match error {
        HttpError::Setup(cause) => {
            let cause = message_chain(cause.as_ref());
            fail!(
                TlsUnavailable,
                "cannot prepare a secure connection: {cause}"
            )
            .hint("install the system's certificates (package ca-certificates)")
        }
        HttpError::Timeout(_) => fail!(Timeout, "{host} did not answer in time"),
        HttpError::TooSlow(_) => fail!(TooSlow, "{host} sends less than 1 KiB a second"),
        HttpError::TooLarge(most) => {
            fail!(TooLarge, "{host} sent more than {}", format_size(*most))
        }
        HttpError::Encoded => {
            fail!(
                EncodingRefused,
                "{host} sent a compressed body that was not requested"
            )
        }
        HttpError::Certificate(_) => fail!(
            Unreachable,
            "{host} cannot be reached: {}",
            error_reason(error)
        )
        .hint(CERTIFICATE_HINT),
        HttpError::Connect(_) | HttpError::NotPublic => fail!(
            Unreachable,
            "{host} cannot be reached: {}",
            error_reason(error)
        )
        .hint("check that the service is running and that the address is right"),
        HttpError::Lost(_) => fail!(
            BrokenOff,
            "lost connection to {host}: {}",
            error_reason(error)
        )
        .hint("try again"),
    }
}

/// Returns the system's error text without the error number.
fn error_reason(error: &HttpError) -> String {
    let reason = error.system_message();
    clean(reason.split(" (os error").next().unwrap_or(&reason), 200)
}

/// Maximum number of tasks, each with one request, that [`in_flight`] runs at a time.
const IN_FLIGHT: usize = 16;

/// Runs `start` for every item, with at most sixteen tasks at a time, and calls `finished` for each
/// result in the order of completion. The first failure aborts the other tasks.
pub async fn in_flight<I, T, W>(
    items: I,
    start: impl Fn(I::Item) -> W,
    mut finished: impl FnMut(T) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    I: IntoIterator,
    T: Send + 'static,
    W: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let mut items = items.into_iter();
    // Dropping the set aborts the tasks that are still running.
    let mut running = tokio::task::JoinSet::new();
    loop {
        while running.len() < IN_FLIGHT
            && let Some(item) = items.next()
        {
            running.spawn(start(item));
        }
        match running.join_next().await {
            Some(Ok(outcome)) => finished(outcome?)?,
            Some(Err(error)) => {
                return Err(fail!(Internal, "a request failed unexpectedly: {error}"));
            }
            None => return Ok(()),
        }
    }
}

/// Converts a service's message to the form of this program's messages: no capital at the start and
/// no full stop.
fn to_sentence(text: &str) -> String {
    let text = text.trim_end().trim_end_matches('.');
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        // Keep the capitals of an abbreviation.
        (Some(first), second) if !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// The body of a refused request: a problem document (RFC 9457) with the service's error code.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    code: String,
    detail: String,
    title: String,
    request_id: String,
    confirmation: Option<vault_api::Confirmation>,
}

impl Answer {
    /// Returns whether the status is 2xx.
    pub const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the seconds of `Retry-After` if the service is busy (status 429 or 503). Returns
    /// `None` for every other response.
    fn retry_after(&self) -> Option<u64> {
        let is_busy = matches!(self.status, 429 | 503);
        self.header(RETRY_AFTER).filter(|_| is_busy)?.parse().ok()
    }

    /// Returns the problem of an error response. Its code is `http_<status>` if the body has none.
    fn parse_problem(&self) -> Problem {
        let mut problem: Problem = serde_json::from_slice(&self.body).unwrap_or_default();
        let code = problem.code.as_bytes();
        // The code becomes part of this program's output, so accept only the usual form.
        let is_letter = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
        if !(1..=64).contains(&code.len()) || !code.iter().all(is_letter) {
            problem.code = format!("http_{}", self.status);
        }
        problem
    }

    /// Returns whether the service rejected the request with this code.
    pub fn is_refusal(&self, code: ServiceCode) -> bool {
        self.status == code.row().status.as_u16() && self.parse_problem().code == code.row().code
    }

    /// Returns the confirmation that a person must give before the service executes the request, if
    /// the service refused it for this reason.
    fn wanted_confirmation(&self) -> Option<vault_api::Confirmation> {
        let wanted = self.is_refusal(ServiceCode::ConfirmationNeeded);
        wanted.then(|| self.parse_problem().confirmation).flatten()
    }

    /// Returns this response if its status is 2xx, else the failure that it describes.
    pub fn require_good(self) -> Result<Self, Failure> {
        if self.is_success() {
            Ok(self)
        } else {
            Err(self.to_failure())
        }
    }

    /// Parses the body of a successful response as JSON. Fails with exit 7 if it is not the
    /// expected JSON.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let answer = self.require_good()?;
        serde_json::from_slice(&answer.body).map_err(|error| {
            let kind = answer.header(CONTENT_TYPE).unwrap_or_default();
            if kind.starts_with("text/html") {
                fail!(
                    AnswerUnreadable,
                    "the answer is a web page and not from a vault service"
                )
            } else {
                let error = clean(&error.to_string(), 300);
                fail!(
                    AnswerUnreadable,
                    "the service answered with something unexpected: {error}"
                )
            }
            .hint("check that this is the address of a vault service")
        })
    }

    /// Converts an error response: exit code by status, the service's code and message, and a hint
    /// for known cases.
    pub fn to_failure(&self) -> Failure {
        let problem = self.parse_problem();
        let exit = match self.status {
            401 | 403 => Exit::NotAllowed,
            402 => Exit::Lapsed,
            408 | 429 | 500..=599 => Exit::Network,
            _ => Exit::Failed,
        };
        let hint = self.failure_hint(&problem);
        let message = match [&problem.detail, &problem.title]
            .into_iter()
            .find(|t| !t.is_empty())
        {
            Some(text) => to_sentence(&clean(text, 300)),
            None => format!("the service answered {}", self.status),
        };
        let code = FailureCode::Remote {
            word: problem.code,
            status: self.status,
            exit,
        };
        Failure::new(code, message)
            .hint_if(hint)
            .missing_scope(self.missing_scope())
    }

    /// Returns the scopes that the sign-in lacks and that the user can grant on a consent page. The
    /// service names them in a challenge (RFC 6750); without a challenge, no consent would help.
    fn missing_scope(&self) -> Option<MissingScope> {
        let AskedBy { base, sign_in, .. } = self.asked_by.as_ref()?;
        if !self.is_refusal(ServiceCode::InsufficientScope) {
            return None;
        }
        let challenge = self.header(WWW_AUTHENTICATE)?;
        let scopes = challenge.split(" scope=\"").nth(1)?.split('"').next()?;
        // The text becomes part of an address and of a message, so accept only words.
        let is_word = |b: u8| b.is_ascii_lowercase() || b == b' ';
        let is_sound = (1..=64).contains(&scopes.len()) && scopes.bytes().all(is_word);
        is_sound.then(|| MissingScope {
            base: base.to_string(),
            sign_in: sign_in.clone(),
            scopes: scopes.to_owned(),
        })
    }

    fn failure_hint(&self, problem: &Problem) -> Option<String> {
        let code = codes::service_code(&problem.code);
        // Only this machine knows by how much the two clocks differ.
        if code == Some(ServiceCode::TimestampOutOfRange) {
            return Some(self.clock_hint());
        }
        // A person who is signed in may be the one who pays. A machine is not.
        if code == Some(ServiceCode::SubscriptionLapsed)
            && let Some(AskedBy { base, .. }) = &self.asked_by
        {
            let page = base.address_of("/");
            return Some(format!(
                "installed skills keep working; the owner renews the subscription at {page}"
            ));
        }
        if let Some(hint) = code.and_then(codes::service_hint) {
            return Some(self.with_address(hint));
        }
        Some(match self.status {
            429 | 503 => match self.header(RETRY_AFTER) {
                // The header may also hold a date, or any other text of an untrusted service.
                Some(seconds) if seconds.bytes().all(|b| b.is_ascii_digit()) => {
                    format!("try again in {seconds} s")
                }
                _ => "try again in a moment".to_owned(),
            },
            500..=599 if !problem.request_id.is_empty() => {
                let id = clean(&problem.request_id, 64);
                format!("the service's log has more under {id}")
            }
            500..=599 => "try again in a moment, or ask the operator of the service".to_owned(),
            // Vault services always send a code. A response without one comes from other software.
            400..=499 if problem.code.starts_with("http_") => {
                "check that this is the address of a vault service".to_owned()
            }
            _ => return None,
        })
    }

    /// Fills the address of the service into the placeholders of a hint, so that its commands work
    /// as printed.
    fn with_address(&self, hint: &str) -> String {
        let Some(AskedBy { base, command, .. }) = &self.asked_by else {
            return hint.to_owned();
        };
        hint.replace("vault cloud connect <url>/v/<slug>", command)
            .replace("vault cloud connect <url>", command)
            .replace("<url>/account", &base.address_of("/account"))
    }

    /// Describes how far this machine's clock is off, by the service's `Date` header.
    fn clock_hint(&self) -> String {
        let Some(date) = self
            .header(DATE)
            .and_then(|text| httpdate::parse_http_date(text).ok())
            .and_then(|date| date.duration_since(SystemTime::UNIX_EPOCH).ok())
        else {
            return "set this machine's clock".to_owned();
        };
        let off = SystemClock.now().unix() - date.as_secs().cast_signed();
        let direction = if off > 0 { "ahead" } else { "behind" };
        format!(
            "this machine's clock is {} s {direction}: set it",
            off.unsigned_abs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
            asked_by: None,
        }
    }

    #[test]
    fn the_command_of_a_hint_works_as_printed() {
        let base: Base = "https://vault.example".parse().unwrap();
        let sign_in = "vault cloud connect https://vault.example/v/team".to_owned();
        for code in ["insufficient_scope", "second_factor_required"] {
            let mut answer = answer(403, &format!(r#"{{"code":"{code}"}}"#));
            answer.asked_by = Some(AskedBy {
                base: base.clone(),
                sign_in: "team".to_owned(),
                command: sign_in.clone(),
            });
            let hint = answer.to_failure().hint.unwrap();
            assert!(hint.contains(&sign_in) && !hint.contains("<url>"), "{hint}");
        }
    }

    #[test]
    fn only_a_challenge_of_the_service_says_that_a_consent_helps() {
        let base: Base = "https://vault.example".parse().unwrap();
        let scopes_of = |body: &str, challenge: &str, signed_in: bool| {
            let mut refused = answer(403, body);
            if !challenge.is_empty() {
                let challenge = challenge.parse().unwrap();
                refused.headers.insert(WWW_AUTHENTICATE, challenge);
            }
            refused.asked_by = signed_in.then(|| AskedBy {
                base: base.clone(),
                sign_in: "team".to_owned(),
                command: String::new(),
            });
            let wanted = refused.to_failure().wanted_scope().cloned();
            wanted.map(|missing| missing.scopes)
        };
        let lacks = r#"{"code":"insufficient_scope"}"#;
        let challenge = r#"Bearer error="insufficient_scope", scope="read write""#;
        let wanted = Some("read write".to_owned());
        assert_eq!(scopes_of(lacks, challenge, true), wanted);
        for (body, challenge, signed_in) in [
            (lacks, "", true),
            (lacks, challenge, false),
            (r#"{"code":"owner_required"}"#, challenge, true),
            (lacks, r#"Bearer scope="read\u{1b}""#, true),
            (lacks, r#"Bearer scope="""#, true),
        ] {
            assert_eq!(
                scopes_of(body, challenge, signed_in),
                None,
                "{body} {challenge}"
            );
        }
    }

    #[test]
    fn a_refusal_becomes_its_exit_code_and_word() {
        for (status, body, exit, code) in [
            (401, r#"{"code":"device_unknown"}"#, Exit::NotAllowed, ""),
            (403, r#"{"code":"device_pending"}"#, Exit::NotAllowed, ""),
            (402, r#"{"code":"subscription_lapsed"}"#, Exit::Lapsed, ""),
            (404, "<html>", Exit::Failed, "http_404"),
            (503, "", Exit::Network, "http_503"),
            (429, "{}", Exit::Network, "http_429"),
            (404, r#"{"code":"\u001b[31m"}"#, Exit::Failed, "http_404"),
            (500, r#"{"code":1}"#, Exit::Network, "http_500"),
        ] {
            let failure = answer(status, body).to_failure();
            assert_eq!(failure.exit(), exit, "{status} {body}");
            match code {
                "" => assert!(
                    body.contains(&format!("\"{}\"", failure.code.word())),
                    "{body}"
                ),
                _ => assert_eq!(failure.code.word(), code, "{status} {body}"),
            }
            assert!(!failure.message.is_empty());
        }
    }

    #[test]
    fn what_a_service_says_cannot_paint_the_terminal() {
        let failure = answer(400, r#"{"code":"bad","detail":"\u001b[2Jgone"}"#).to_failure();
        assert_eq!(failure.message, "\\u{1b}[2Jgone");
    }

    #[test]
    fn a_service_speaks_as_the_commands_do() {
        for (said, shown) in [
            ("There is no such vault.", "there is no such vault"),
            ("OK is no JSON.", "OK is no JSON"),
            ("A parameter is wrong", "a parameter is wrong"),
            ("", ""),
            ("...", ""),
        ] {
            assert_eq!(to_sentence(said), shown);
        }
    }
}
