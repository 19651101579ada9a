//! Handing mail over to a mail server: a client of SMTP (RFC 5321) for one short mail at a time.
//!
//! It speaks TLS from the first byte or after STARTTLS (RFC 3207), plainly with this machine alone,
//! and signs in with AUTH PLAIN (RFC 4954). Replies and times are bounded. Addresses and headers
//! are types that hold no line break, so nothing in a mail becomes a command or another header.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::BufReader;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::senders::{Mail, Mailer, SendError};
use vault_api::Email;

/// Longest time for one mail, from the connection to the server's last word.
const WHOLE: Duration = Duration::from_secs(10);
/// Most bytes of one reply.
const MAX_REPLY_BYTES: u64 = 16 * 1024;
/// The longest line of a base64 body (RFC 2045 section 6.8).
const BASE64_LINE: usize = 76;

/// Where mail is handed over: what `VAULT_SMTP_URL` says.
#[derive(Clone)]
pub struct MailServer {
    host: String,
    port: u16,
    encryption: Encryption,
    login: Option<(String, SecretString)>,
}

/// When TLS begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Encryption {
    /// With the connection.
    Implicit,
    /// After STARTTLS.
    StartTls,
    /// Never: the server is on this machine.
    None,
}

/// Why a text is not the address of a mail server. Never repeats the text: it may hold a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "write it like smtps://user:password@mail.example or smtp://user:password@mail.example:587"
)]
pub struct BadMailServer;

impl FromStr for MailServer {
    type Err = BadMailServer;

    fn from_str(text: &str) -> Result<Self, BadMailServer> {
        let url = Url::parse(text).map_err(|_| BadMailServer)?;
        // The scheme is none that the parser knows, so hosts of digits are texts here.
        let host = Host::parse(url.host_str().unwrap_or_default()).map_err(|_| BadMailServer)?;
        let is_local = match &host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(ip) => ip.is_loopback(),
            Host::Ipv6(ip) => ip.is_loopback(),
        };
        let (encryption, port) = match url.scheme() {
            "smtps" => (Encryption::Implicit, 465),
            "smtp" if is_local => (Encryption::None, 25),
            "smtp" => (Encryption::StartTls, 587),
            _ => return Err(BadMailServer),
        };
        let is_bare = matches!(url.path(), "" | "/");
        if !is_bare || url.query().is_some() || url.fragment().is_some() {
            return Err(BadMailServer);
        }
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (user, Some(password)) if !user.is_empty() => {
                Some((decoded(user)?, decoded(password)?.into()))
            }
            _ => return Err(BadMailServer),
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

/// A part of a URL without its escapes; a NUL would end the part of an AUTH PLAIN message.
fn decoded(part: &str) -> Result<String, BadMailServer> {
    let query = part.replace('+', "%2B").replace('&', "%26");
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let (text, rest) = pairs.next().ok_or(BadMailServer)?;
    if !rest.is_empty() || text.contains(['\0', '\r', '\n']) {
        return Err(BadMailServer);
    }
    Ok(text.into_owned())
}

/// What the operator says about mail: `VAULT_SMTP_URL` and `VAULT_MAIL_FROM`.
#[derive(Clone, Debug)]
pub struct MailSettings {
    /// Where mail is handed over.
    pub server: MailServer,
    /// Whom it comes from.
    pub from: Email,
}

/// Why the settings of mail do not count, with the variable that is wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadMailSettings {
    /// The address of the server.
    #[error("VAULT_SMTP_URL: {0}")]
    Server(#[from] BadMailServer),
    /// The sender.
    #[error("VAULT_MAIL_FROM: this is not an e-mail address in plain ASCII")]
    From,
    /// A server without a sender.
    #[error("VAULT_MAIL_FROM must be set, too: the address that mail comes from")]
    NoFrom,
}

impl MailSettings {
    /// Reads both settings. No server: no mail.
    pub fn read(server: Option<&str>, from: Option<&str>) -> Result<Option<Self>, BadMailSettings> {
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

/// Hands mail over to one server.
pub struct Smtp {
    server: MailServer,
    from: Email,
    tls: Option<Arc<ClientConfig>>,
    /// Where tests find the host.
    #[cfg(test)]
    connect_to: Option<&'static str>,
}

impl Smtp {
    /// A client with the certificates of the system. Fails where these cannot be loaded.
    pub fn new(settings: MailSettings) -> Result<Self, rustls::Error> {
        let MailSettings { server, from } = settings;
        let tls = match server.encryption {
            Encryption::None => None,
            Encryption::Implicit | Encryption::StartTls => {
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let builder = ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()?
                    .with_platform_verifier()?;
                Some(Arc::new(builder.with_no_client_auth()))
            }
        };
        Ok(Self {
            server,
            from,
            tls,
            #[cfg(test)]
            connect_to: None,
        })
    }

    async fn hand_over(&self, mail: &Mail) -> Result<(), SendError> {
        let host = &*self.server.host;
        #[cfg(test)]
        let host = self.connect_to.unwrap_or(host);
        let stream = TcpStream::connect((host, self.server.port)).await;
        let mut plain = Connection::new(stream.map_err(lost)?);
        match (self.server.encryption, &self.tls) {
            (Encryption::Implicit, Some(tls)) => {
                let mut secure = plain.secured(tls, &self.server.host).await?;
                secure.expect(220).await?;
                self.converse(&mut secure, mail).await
            }
            (Encryption::StartTls, Some(tls)) => {
                plain.expect(220).await?;
                if !self.greet(&mut plain).await?.offers("STARTTLS") {
                    return Err(SendError::MailServerLacks("STARTTLS"));
                }
                plain.command("STARTTLS", 220).await?;
                let mut secure = plain.secured(tls, &self.server.host).await?;
                self.converse(&mut secure, mail).await
            }
            _ => {
                plain.expect(220).await?;
                self.converse(&mut plain, mail).await
            }
        }
    }

    async fn greet<S: Stream>(&self, connection: &mut Connection<S>) -> Result<Reply, SendError> {
        connection
            .command(&format!("EHLO {}", self.domain()), 250)
            .await
    }

    /// From the greeting to the end, over a connection that is as safe as it gets.
    async fn converse<S: Stream>(
        &self,
        connection: &mut Connection<S>,
        mail: &Mail,
    ) -> Result<(), SendError> {
        let offers = self.greet(connection).await?;
        if let Some((user, password)) = &self.server.login {
            if !offers.offers("AUTH PLAIN") {
                return Err(SendError::MailServerLacks("AUTH PLAIN"));
            }
            let message = format!("\0{user}\0{}", password.expose_secret());
            let line = format!("AUTH PLAIN {}", STANDARD.encode(message));
            connection.command(&line, 235).await?;
        }
        connection
            .command(&format!("MAIL FROM:<{}>", self.from), 250)
            .await?;
        connection
            .command(&format!("RCPT TO:<{}>", mail.to), 250)
            .await?;
        connection.command("DATA", 354).await?;
        connection
            .command(&format!("{}\r\n.", self.data(mail)), 250)
            .await?;
        // The server has the mail; how it says goodbye changes nothing.
        let _ = connection.command("QUIT", 221).await;
        Ok(())
    }

    /// The part of the sender's address behind the `@`.
    fn domain(&self) -> &str {
        self.from
            .as_str()
            .split_once('@')
            .map_or("localhost", |(_, host)| host)
    }

    /// The mail as it is sent, without the line that ends it.
    fn data(&self, mail: &Mail) -> String {
        let seconds = u64::try_from(mail.at.unix()).unwrap_or(0);
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        let text = mail
            .text
            .replace("\r\n", "\n")
            .replace(['\r', '\n'], "\r\n");
        let (encoding, body) = if text.is_ascii() {
            ("7bit", text)
        } else {
            ("base64", in_lines(&STANDARD.encode(text)))
        };
        let whole = format!(
            "From: vault <{}>\r\nTo: <{}>\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{}@{}>\r\n\
             MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Transfer-Encoding: {encoding}\r\nAuto-Submitted: auto-generated\r\n\r\n{body}",
            self.from,
            mail.to,
            mail.subject,
            date.replace("GMT", "+0000"),
            mail.id,
            self.domain(),
        );
        // A line that is a single dot would end the mail (RFC 5321 section 4.5.2).
        whole.replace("\r\n.", "\r\n..")
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

fn in_lines(text: &str) -> String {
    let lines = text.as_bytes().chunks(BASE64_LINE);
    let lines: Vec<_> = lines.map(String::from_utf8_lossy).collect();
    lines.join("\r\n")
}

/// What a connection runs over.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to a mail server.
struct Connection<S>(BufReader<S>);

/// A reply with the expected code.
struct Reply(Vec<String>);

impl Reply {
    /// Whether one line names an extension, and behind it every further word.
    fn offers(&self, wanted: &str) -> bool {
        let mut wanted = wanted.split(' ');
        let extension = wanted.next().unwrap_or_default();
        let further: Vec<_> = wanted.collect();
        self.0.iter().any(|line| {
            let mut words = line.split_ascii_whitespace();
            let named = words
                .next()
                .is_some_and(|word| word.eq_ignore_ascii_case(extension));
            let words: Vec<_> = words.collect();
            let has = |word: &&str| words.iter().any(|found| found.eq_ignore_ascii_case(word));
            named && further.iter().all(has)
        })
    }
}

impl Connection<TcpStream> {
    /// The same connection under TLS. Fails when the server said anything in the clear that was not
    /// read yet: that would count as if it had been said under TLS.
    async fn secured(
        self,
        tls: &Arc<ClientConfig>,
        host: &str,
    ) -> Result<Connection<tokio_rustls::client::TlsStream<TcpStream>>, SendError> {
        if !self.0.buffer().is_empty() {
            return Err(SendError::Connection("the server spoke before TLS".into()));
        }
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| SendError::Connection(error.into()))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let secure = connector.connect(name, self.0.into_inner()).await;
        Ok(Connection::new(secure.map_err(lost)?))
    }
}

impl<S: Stream> Connection<S> {
    fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// Sends one line, and reads the reply to it.
    async fn command(&mut self, line: &str, code: u16) -> Result<Reply, SendError> {
        let line = format!("{line}\r\n");
        self.0.write_all(line.as_bytes()).await.map_err(lost)?;
        self.0.flush().await.map_err(lost)?;
        self.expect(code).await
    }

    /// Reads a reply. Fails unless it has this code.
    async fn expect(&mut self, code: u16) -> Result<Reply, SendError> {
        let mut lines = Vec::new();
        let mut bounded = (&mut self.0).take(MAX_REPLY_BYTES);
        loop {
            let mut line = Vec::new();
            bounded.read_until(b'\n', &mut line).await.map_err(lost)?;
            let line = String::from_utf8_lossy(&line);
            let Some(line) = line.strip_suffix('\n') else {
                return Err(SendError::Connection("the reply was cut off".into()));
            };
            let found = line.get(..3).and_then(|code| code.parse().ok());
            let found: u16 = found.ok_or_else(no_reply)?;
            let is_last = match line.as_bytes().get(3) {
                Some(b'-') => false,
                Some(b' ' | b'\r') | None => true,
                Some(_) => return Err(no_reply()),
            };
            if found != code {
                return Err(SendError::MailServer(found));
            }
            lines.push(line.get(4..).unwrap_or_default().trim_end().to_owned());
            if is_last {
                return Ok(Reply(lines));
            }
        }
    }
}

fn no_reply() -> SendError {
    SendError::Connection("the reply is not one of SMTP".into())
}

fn lost(error: std::io::Error) -> SendError {
    SendError::Connection(error.into())
}

#[cfg(test)]
mod tests;
