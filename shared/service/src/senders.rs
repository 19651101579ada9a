//! The ports through which notices leave the service: requests to webhooks, and mail.
//!
//! The restrictions of a request to a webhook are in `notices::webhook`; handing mail over is in
//! `notices::smtp`.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use vault_format::time::Timestamp;

use crate::model::webhook::WebhookAddress;
use vault_api::Email;

/// The senders of notices that a process has.
#[derive(Clone)]
pub struct Senders {
    /// The sender of notices to webhooks; always present, unlike mail.
    pub webhooks: Arc<dyn Webhooks>,
    /// The sender of mail; `None` if the operator has configured no mail server.
    pub mailer: Option<Arc<dyn Mailer>>,
}

/// Port that sends requests to webhooks.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Sends one request. Succeeds if the endpoint answers with 2xx within ten seconds.
    async fn post(&self, message: &WebhookMessage) -> Result<(), SendError>;
}

/// Port that sends mail.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Hands one mail over to a mail server. Succeeds if the server has accepted it.
    async fn send(&self, mail: &Mail) -> Result<(), SendError>;
}

/// A signed request to a webhook, with the headers of the Standard Webhooks specification.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebhookMessage {
    /// Address of the endpoint. The sender checks it again when it connects.
    pub address: WebhookAddress,
    /// Header `webhook-id`: the same for every attempt, so that an endpoint can drop repetitions.
    pub id: String,
    /// Header `webhook-timestamp`: the time of this attempt.
    pub at: Timestamp,
    /// Header `webhook-signature`: proves that this service sent the body.
    pub signature: String,
    /// JSON body; the signature covers exactly these bytes.
    pub body: String,
}

/// A plain-text mail to one person.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mail {
    /// The only recipient.
    pub to: Email,
    /// Subject line.
    pub subject: HeaderText,
    /// Body, in plain text; lines end with `\n`.
    pub text: String,
    /// Part of the header `Message-ID` before the `@`: the same for every attempt.
    pub id: HeaderText,
    /// Time at which the mail was written, for the header `Date`.
    pub at: Timestamp,
}

/// Text for a mail header that cannot add another header: printable ASCII, at most 200 bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeaderText(String);

impl HeaderText {
    /// Creates header text: replaces every character that a header cannot contain by `?`, and cuts
    /// the text after 200 bytes.
    pub fn from_text(text: &str) -> Self {
        // Replaced and not removed, so that the reader sees that something was there.
        let plain = |c: char| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        };
        Self(text.chars().map(plain).take(200).collect())
    }

    /// Returns the text for the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Reason why a notice did not arrive. Owners see these sentences in the list of webhooks, so they
/// reveal nothing of the service's own network.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The SSRF guard rejects an address of the host.
    #[error("the host has an address that is not public")]
    NotPublic,
    /// The port of the address is not one of `VAULT_WEBHOOK_PORTS`.
    #[error("the port is not one of VAULT_WEBHOOK_PORTS")]
    Port,
    /// No answer within the time limit.
    #[error("no answer in time")]
    Timeout,
    /// No connection, no TLS, or a lost connection.
    #[error("no connection")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A status other than 2xx. Redirects are not followed.
    #[error("the endpoint answered with status {0}")]
    Status(u16),
    /// The mail server rejected the mail with this reply code.
    #[error("the mail server answered with code {0}")]
    MailServer(u16),
    /// The mail server offers no encryption, or no authentication that this service supports.
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
            assert_eq!(HeaderText::from_text(text).as_str(), held);
        }
        assert_eq!(HeaderText::from_text(&"a".repeat(300)).as_str().len(), 200);
    }
}
