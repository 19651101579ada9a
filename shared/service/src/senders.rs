//! The ports through which notices leave the service: requests to webhooks, and mail.
//!
//! What a request to a webhook must never do is in `notices::webhook`; how mail is handed over is
//! in `notices::smtp`.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use vault_format::time::Timestamp;

use crate::model::webhook::WebhookAddress;
use vault_api::Email;

/// What sends notices.
#[derive(Clone)]
pub struct Senders {
    /// Sends requests to webhooks.
    pub webhooks: Arc<dyn Webhooks>,
    /// Sends mail, where the operator configured it.
    pub mailer: Option<Arc<dyn Mailer>>,
}

/// Sends requests to webhooks.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Sends one request. Succeeds when the endpoint answers with 2xx, in at most ten seconds.
    async fn post(&self, message: &WebhookMessage) -> Result<(), SendError>;
}

/// Sends mail.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Hands one mail over to a mail server. Succeeds when that server has taken it.
    async fn send(&self, mail: &Mail) -> Result<(), SendError>;
}

/// A signed request to a webhook.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebhookMessage {
    /// Where it goes.
    pub address: WebhookAddress,
    /// The header `webhook-id`: the same for every attempt, so that an endpoint drops repetitions.
    pub id: String,
    /// The header `webhook-timestamp`: when this attempt was made.
    pub at: Timestamp,
    /// The header `webhook-signature`.
    pub signature: String,
    /// The body, JSON.
    pub body: String,
}

/// A mail of plain text to one person.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mail {
    /// Who gets it.
    pub to: Email,
    /// The subject.
    pub subject: HeaderText,
    /// The text; lines end with `\n`.
    pub text: String,
    /// The part of the header `Message-ID` before the `@`: the same for every attempt.
    pub id: HeaderText,
    /// When it was written.
    pub at: Timestamp,
}

/// Text that cannot end a header or begin another one: printable ASCII, at most 200 bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeaderText(String);

impl HeaderText {
    /// The text with `?` for every character that a header cannot hold, cut after 200 bytes.
    pub fn cleaned(text: &str) -> Self {
        let plain = |c: char| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        };
        Self(text.chars().map(plain).take(200).collect())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Why a notice did not arrive. Owners see these sentences in the list of webhooks, so they name
/// nothing of the service's own network.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The SSRF guard rejects an address of the host.
    #[error("the host has an address that is not public")]
    NotPublic,
    /// No answer within the limit.
    #[error("no answer in time")]
    Timeout,
    /// No connection, no TLS, or the connection was lost.
    #[error("no connection")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another status than 2xx. Redirects are not followed.
    #[error("the endpoint answered with status {0}")]
    Status(u16),
    /// The mail server did not take the mail.
    #[error("the mail server answered with code {0}")]
    MailServer(u16),
    /// The mail server offers no encryption, or no way to sign in that this service knows.
    #[error("the mail server does not offer {0}")]
    MailServerLacks(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_holds_one_line_of_printable_ascii() {
        for (text, held) in [
            ("vault team: a machine waits", "vault team: a machine waits"),
            ("a\r\nBcc: eve@example.org", "a??Bcc: eve@example.org"),
            ("a\0b\u{85}c\u{2028}d", "a?b?c?d"),
            ("B\u{fc}ro", "B?ro"),
        ] {
            assert_eq!(HeaderText::cleaned(text).as_str(), held);
        }
        assert_eq!(HeaderText::cleaned(&"a".repeat(300)).as_str().len(), 200);
    }
}
