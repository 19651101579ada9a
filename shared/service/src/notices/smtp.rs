//! Sends mail through a mail server (SMTP), one short message per connection.
//!
//! The connection uses TLS from the first byte or after STARTTLS (RFC 3207), and plain text only to
//! this machine. The client signs in with AUTH PLAIN (RFC 4954). Addresses and headers are types
//! that cannot contain a line break, so no content of a mail becomes a command or another header.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll, ready};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use lettre::address::{Address, Envelope};
use lettre::message::header::{ContentType, HeaderName, HeaderValue, MIME_VERSION_1_0};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::{Host, Url};

use crate::senders::{Mail, Mailer, SendError};
use vault_api::Email;

/// Maximum time for one mail, from the connection to the last reply.
const WHOLE: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read from a connection that begins without TLS, certificates
/// included.
const MAX_RECEIVED_BYTES: usize = 32 * 1024;

/// Address of the mail server, parsed from `VAULT_SMTP_URL`.
#[derive(Clone)]
pub struct MailServer {
    host: String,
    port: u16,
    encryption: Encryption,
    login: Option<(String, SecretString)>,
}

/// How the connection to the mail server is encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Encryption {
    /// TLS from the first byte, for `smtps:` addresses.
    Implicit,
    /// TLS after the command STARTTLS, for `smtp:` addresses. A server without it gets no mail.
    StartTls,
    /// No encryption, for a server on this machine only.
    None,
}

impl FromStr for MailServer {
    type Err = BadMailSettings;

    fn from_str(text: &str) -> Result<Self, BadMailSettings> {
        let url = Url::parse(text).map_err(|_| BadMailSettings::Server)?;
        // `smtp` is not a scheme that the URL parser treats specially, so it leaves IPv4 addresses
        // as text, and the host is parsed again.
        let host =
            Host::parse(url.host_str().unwrap_or_default()).map_err(|_| BadMailSettings::Server)?;
        let is_local = match &host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(ip) => ip.is_loopback(),
            Host::Ipv6(ip) => ip.is_loopback(),
        };
        let (encryption, port) = match url.scheme() {
            "smtps" => (Encryption::Implicit, 465),
            "smtp" if is_local => (Encryption::None, 25),
            "smtp" => (Encryption::StartTls, 587),
            _ => return Err(BadMailSettings::Server),
        };
        let is_bare = matches!(url.path(), "" | "/");
        if !is_bare || url.query().is_some() || url.fragment().is_some() {
            return Err(BadMailSettings::Server);
        }
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (user, Some(password)) if !user.is_empty() => {
                Some((decode_part(user)?, decode_part(password)?.into()))
            }
            _ => return Err(BadMailSettings::Server),
        };
        let host = match host {
            Host::Ipv6(ip) => ip.to_string(),
            host => host.to_string(),
        };
        Ok(Self {
            host,
            port: url.port().unwrap_or(port),
            encryption,
            login,
        })
    }
}

impl fmt::Debug for MailServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MailServer")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("encryption", &self.encryption)
            .finish_non_exhaustive()
    }
}

/// Decodes the escapes of a part of a URL; rejects NUL, which would end a field of AUTH PLAIN, and
/// line breaks.
fn decode_part(part: &str) -> Result<String, BadMailSettings> {
    let text = percent_decode_str(part).decode_utf8();
    let text = text.map_err(|_| BadMailSettings::Server)?;
    if text.contains(['\0', '\r', '\n']) {
        return Err(BadMailSettings::Server);
    }
    Ok(text.into_owned())
}

/// The operator's settings for mail: `VAULT_SMTP_URL` and `VAULT_MAIL_FROM`.
#[derive(Clone, Debug)]
pub struct MailSettings {
    /// Mail server that takes the mail (`VAULT_SMTP_URL`).
    pub server: MailServer,
    /// Address in the header `From` (`VAULT_MAIL_FROM`).
    pub from: Email,
}

/// Error in the settings for mail, with the variable that is wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadMailSettings {
    /// `VAULT_SMTP_URL` is not the address of a mail server. The message does not repeat the text,
    /// which may contain a password.
    #[error(
        "VAULT_SMTP_URL: write it like smtps://user:password@mail.example or smtp://user:password@mail.example:587"
    )]
    Server,
    /// `VAULT_MAIL_FROM` is not an e-mail address.
    #[error("VAULT_MAIL_FROM: this is not an e-mail address in plain ASCII")]
    From,
    /// There is a server, but `VAULT_MAIL_FROM` is missing.
    #[error("VAULT_MAIL_FROM must be set, too: the address that mail comes from")]
    NoFrom,
}

impl MailSettings {
    /// Parses both settings; `None` if there is no server.
    pub fn read_settings(
        server: Option<&str>,
        from: Option<&str>,
    ) -> Result<Option<Self>, BadMailSettings> {
        let Some(server) = server else {
            return Ok(None);
        };
        let from = from.ok_or(BadMailSettings::NoFrom)?;
        Ok(Some(Self {
            server: server.parse()?,
            from: from.parse().map_err(|_| BadMailSettings::From)?,
        }))
    }
}

/// Client for one mail server, which opens a connection for each mail.
pub struct Smtp {
    server: MailServer,
    from: Email,
    tls: Option<TlsParameters>,
}

impl Smtp {
    /// Creates a client that trusts the certificates of the system. Fails if they cannot be loaded.
    pub fn new(settings: MailSettings) -> Result<Self, SmtpError> {
        let MailSettings { server, from } = settings;
        let tls = match server.encryption {
            Encryption::None => None,
            Encryption::Implicit | Encryption::StartTls => {
                Some(TlsParameters::new(server.host.clone())?)
            }
        };
        Ok(Self { server, from, tls })
    }

    async fn hand_over(&self, mail: &Mail) -> Result<(), SendError> {
        let envelope = Envelope::new(Some(to_address(&self.from)), vec![to_address(&mail.to)]);
        let envelope = envelope.map_err(connection_error)?;
        let message = self
            .build_message(mail)
            .map_err(connection_error)?
            .formatted();
        let mut connection = self.connect().await?;
        if let Some((user, password)) = &self.server.login {
            // Checked before the password is sent; the error tells operators what is missing.
            let server = connection.server_info();
            if !server.supports_auth_mechanism(Mechanism::Plain) {
                return Err(SendError::MailServerLacks("AUTH PLAIN"));
            }
            let login = Credentials::new(user.clone(), password.expose_secret().to_owned());
            connection.auth(&[Mechanism::Plain], &login).await?;
        }
        let reply = connection.send(&envelope, &message).await?;
        if !reply.has_code(250) {
            // This is the reply to an earlier command, because the server sent one reply too many;
            // so it does not confirm the mail.
            return Err(SendError::MailServer(reply.code().into()));
        }
        // The server has accepted the mail; a failed goodbye changes nothing.
        let _ = connection.quit().await;
        Ok(())
    }

    /// Opens a connection with the configured encryption, and exchanges greetings.
    async fn connect(&self) -> Result<AsyncSmtpConnection, SendError> {
        let server = (&*self.server.host, self.server.port);
        let name = ClientId::Domain(self.sender_domain().to_owned());
        let tls = self.tls.clone();
        if self.server.encryption == Encryption::Implicit {
            let opened = AsyncSmtpConnection::connect_tokio1(server, None, &name, tls, None);
            return Ok(opened.await?);
        }
        let stream = PlainStream {
            stream: TcpStream::connect(server).await.map_err(connection_error)?,
            left: MAX_RECEIVED_BYTES,
        };
        let mut connection =
            AsyncSmtpConnection::connect_with_transport(Box::new(stream), &name).await?;
        if let Some(tls) = tls {
            // The connection is not continued in plain text: an attacker in between can suppress
            // the offer of STARTTLS.
            if !connection.can_starttls() {
                return Err(SendError::MailServerLacks("STARTTLS"));
            }
            connection.starttls(tls, &name).await?;
        }
        Ok(connection)
    }

    /// Returns the domain of the sender's address.
    fn sender_domain(&self) -> &str {
        let parts = self.from.as_str().split_once('@');
        parts.map_or("localhost", |(_, host)| host)
    }

    fn build_message(&self, mail: &Mail) -> Result<Message, lettre::error::Error> {
        let seconds = u64::try_from(mail.at.unix()).unwrap_or(0);
        // RFC 3834: stops automatic replies to a notice, for example about vacations.
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        Message::builder()
            .from(Mailbox::new(
                Some("vault".to_owned()),
                to_address(&self.from),
            ))
            .to(Mailbox::new(None, to_address(&mail.to)))
            .subject(mail.subject.as_str())
            .date(UNIX_EPOCH + Duration::from_secs(seconds))
            .message_id(Some(format!("<{}@{}>", mail.id, self.sender_domain())))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .header(MIME_VERSION_1_0)
            .header(ContentType::TEXT_PLAIN)
            .body(mail.text.clone())
    }
}

#[async_trait]
impl Mailer for Smtp {
    async fn send(&self, mail: &Mail) -> Result<(), SendError> {
        timeout(WHOLE, self.hand_over(mail))
            .await
            .unwrap_or(Err(SendError::Timeout))
    }
}

/// Converts an address; its syntax was checked when it was parsed.
fn to_address(email: &Email) -> Address {
    let (user, domain) = email.as_str().split_once('@').unwrap_or_default();
    Address::new_dangerous(user, domain)
}

impl From<SmtpError> for SendError {
    fn from(error: SmtpError) -> Self {
        match error.status() {
            Some(code) => Self::MailServer(code.into()),
            // The cause is left out, because it would quote everything that the server sent.
            None if error.is_response() => connection_error("the reply is not one of SMTP"),
            None => connection_error(error),
        }
    }
}

fn connection_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SendError {
    SendError::Connection(error.into())
}

/// A connection that begins without TLS. It is read byte by byte, so that no plain-text byte of the
/// server is still in a buffer when TLS begins: such a byte would count as if it had come through
/// TLS. The total number of bytes is bounded.
#[derive(Debug)]
struct PlainStream {
    stream: TcpStream,
    left: usize,
}

impl AsyncTokioStream for PlainStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

impl AsyncRead for PlainStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte[..self.left.min(1)]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut byte))?;
        self.left -= byte.filled().len();
        buffer.put_slice(byte.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PlainStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
