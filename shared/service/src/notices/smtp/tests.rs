use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::transport::smtp::client::{Certificate, CertificateStore};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use vault_format::time::Timestamp;

use super::*;
use crate::senders::HeaderText;

const AUTHORITY: &[u8] = include_bytes!("../../../tests/certificates/authority.pem");
const APP: &[u8] = include_bytes!("../../../tests/certificates/app.pem");
const UNTRUSTED: &[u8] = include_bytes!("../../../tests/certificates/untrusted.pem");

/// Behaviour of a mail server in these tests.
#[derive(Clone, Copy)]
struct Script {
    /// Greeting after the connection.
    greeting: &'static str,
    /// Answer to EHLO, before TLS and under it.
    offers: &'static str,
    /// Answer to RCPT.
    recipient: &'static str,
    /// Plain text that it sends right after its answer to STARTTLS.
    injected: &'static str,
    /// Certificate and private key, as PEM.
    certificate: &'static [u8],
}

const GOOD: Script = Script {
    greeting: "220 mail.example ESMTP\r\n",
    offers: "250-mail.example\r\n250-STARTTLS\r\n250-AUTH LOGIN PLAIN\r\n250 8BITMIME\r\n",
    recipient: "250 ok\r\n",
    injected: "",
    certificate: APP,
};

/// Lines that the server has received; `<tls>` where TLS begins.
type Heard = Arc<Mutex<Vec<String>>>;

/// Starts a server for one connection. Returns its port, and the lines that it receives.
async fn server(script: Script, implicit: bool) -> (u16, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Heard::default();
    let notes = Arc::clone(&heard);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        if implicit {
            secured(stream, script, &notes, true).await;
            return;
        }
        let mut stream = BufReader::new(stream);
        stream.write_all(script.greeting.as_bytes()).await.unwrap();
        if converse(&mut stream, script, &notes).await {
            let answer = format!("220 go on\r\n{}", script.injected);
            stream.write_all(answer.as_bytes()).await.unwrap();
            secured(stream.into_inner(), script, &notes, false).await;
        }
    });
    (port, heard)
}

async fn secured(stream: TcpStream, script: Script, notes: &Heard, greets: bool) {
    let chain = CertificateDer::pem_slice_iter(script.certificate)
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(script.certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let Ok(stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await else {
        return;
    };
    notes.lock().unwrap().push("<tls>".to_owned());
    let mut stream = BufReader::new(stream);
    if greets {
        stream.write_all(script.greeting.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }
    converse(&mut stream, script, notes).await;
}

/// Answers commands; returns true when the client asks for TLS.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    script: Script,
    notes: &Heard,
) -> bool {
    let mut in_data = false;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return false;
        }
        let line = line
            .strip_suffix("\r\n")
            .expect("lines end with CRLF")
            .to_owned();
        notes.lock().unwrap().push(line.clone());
        let answer = match line.split([' ', ':']).next().unwrap() {
            "." if in_data => {
                in_data = false;
                "250 queued\r\n"
            }
            _ if in_data => continue,
            "EHLO" => script.offers,
            "STARTTLS" => return true,
            "AUTH" => "235 welcome\r\n",
            "RCPT" => script.recipient,
            "DATA" => {
                in_data = true;
                "354 go on\r\n"
            }
            "QUIT" => "221 bye\r\n",
            _ => "250 ok\r\n",
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }
}

/// Creates a client for a server on loopback with this encryption, which trusts the test authority.
fn client(encryption: Encryption, port: u16) -> Smtp {
    let authority = Certificate::from_pem(AUTHORITY).unwrap();
    let tls = TlsParameters::builder("app.example".to_owned())
        .certificate_store(CertificateStore::None)
        .add_root_certificate(authority);
    Smtp {
        server: MailServer {
            host: "127.0.0.1".to_owned(),
            port,
            encryption,
            login: Some(("vault".to_owned(), "secret".into())),
        },
        from: "vault@vault.example".parse().unwrap(),
        tls: (encryption != Encryption::None).then(|| tls.build().unwrap()),
    }
}

fn mail(text: &str) -> Mail {
    Mail {
        to: "ann@example.org".parse().unwrap(),
        subject: HeaderText::from_text("[vault] team: a test"),
        text: text.to_owned(),
        id: HeaderText::from_text("msg_1"),
        at: Timestamp::from_unix(1_795_219_200),
    }
}

async fn send(
    script: Script,
    encryption: Encryption,
    text: &str,
) -> (Result<(), SendError>, String) {
    let (port, heard) = server(script, encryption == Encryption::Implicit).await;
    let sent = client(encryption, port).send(&mail(text)).await;
    let heard = heard.lock().unwrap().join("\n");
    (sent, heard)
}

/// `\0vault\0secret`.
const AUTH: &str = "AUTH PLAIN AHZhdWx0AHNlY3JldA==";

#[tokio::test]
async fn a_mail_is_handed_over_under_tls() {
    let mail = "MAIL FROM:<vault@vault.example>\nRCPT TO:<ann@example.org>\nDATA\n\
        From: vault <vault@vault.example>\nTo: ann@example.org\nSubject: [vault] team: a test\n\
        Date: Sat, 21 Nov 2026 00:00:00 +0000\nMessage-ID: <msg_1@vault.example>\n\
        Auto-Submitted: auto-generated\nMIME-Version: 1.0\n\
        Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 7bit\n\nHello\n.";
    let ehlo = "EHLO vault.example";
    let (sent, heard) = send(GOOD, Encryption::StartTls, "Hello").await;
    sent.unwrap();
    let begin = format!("{ehlo}\nSTARTTLS\n<tls>\n{ehlo}\n{AUTH}\n{mail}");
    assert!(heard.starts_with(&begin), "{heard}");
    let (sent, heard) = send(GOOD, Encryption::Implicit, "Hello").await;
    sent.unwrap();
    let begin = format!("<tls>\n{ehlo}\n{AUTH}\n{mail}");
    assert!(heard.starts_with(&begin), "{heard}");
}

#[tokio::test]
async fn no_line_of_a_mail_ends_it_or_becomes_a_command() {
    let text = "one\n.\nRCPT TO:<eve@example.org>\r\n..\nlast\n";
    let (sent, heard) = send(GOOD, Encryption::Implicit, text).await;
    sent.unwrap();
    assert!(
        heard.contains("\n\none\n..\nRCPT TO:<eve@example.org>\n...\nlast\n\n."),
        "{heard}"
    );
    let (sent, heard) = send(GOOD, Encryption::Implicit, "B\u{fc}ro\n.\n").await;
    sent.unwrap();
    let encoded = STANDARD.encode("B\u{fc}ro\r\n.\r\n");
    let encoding = "Content-Transfer-Encoding: base64\n";
    let end = format!("{encoding}\n{encoded}\n.\nQUIT");
    assert!(heard.ends_with(&end), "{heard}");
}

#[tokio::test]
async fn a_server_without_tls_or_with_another_certificate_learns_no_password() {
    let plain = Script {
        offers: "250-mail.example\r\n250 AUTH PLAIN\r\n",
        ..GOOD
    };
    let stranger = Script {
        certificate: UNTRUSTED,
        ..GOOD
    };
    let injecting = Script {
        injected: "250-mail.example\r\n250 AUTH PLAIN\r\n",
        ..GOOD
    };
    for (script, wanted) in [
        (plain, "the mail server does not offer STARTTLS"),
        (stranger, "no connection"),
        (injecting, "no connection"),
    ] {
        let (sent, heard) = send(script, Encryption::StartTls, "Hello").await;
        assert_eq!(sent.unwrap_err().to_string(), wanted);
        assert!(
            !heard.contains("AUTH") && !heard.contains("MAIL"),
            "{heard}"
        );
    }
    let no_login = Script {
        offers: "250-mail.example\r\n250 AUTH LOGIN\r\n",
        ..GOOD
    };
    let (sent, heard) = send(no_login, Encryption::Implicit, "Hello").await;
    let lacks = sent.unwrap_err().to_string();
    assert_eq!(lacks, "the mail server does not offer AUTH PLAIN");
    assert!(!heard.contains("MAIL"), "{heard}");
}

#[tokio::test]
async fn replies_are_read_with_bounds() {
    let line = format!("250-{}\r\n", "x".repeat(900));
    let endless: &'static str = line.repeat(500).leak();
    for (greeting, wanted) in [
        ("554 no\r\n", "the mail server answered with code 554"),
        ("hello\r\n", "no connection"),
        ("220", "no connection"),
        ("\u{fc}\u{fc}\r\n", "no connection"),
    ] {
        // The server closes the connection after each text, so some replies are incomplete.
        let port = server_that_says(greeting).await;
        let sent = client(Encryption::None, port).send(&mail("Hello")).await;
        assert_eq!(sent.unwrap_err().to_string(), wanted, "{greeting:?}");
    }
    let script = Script {
        offers: endless,
        ..GOOD
    };
    for encryption in [Encryption::Implicit, Encryption::StartTls, Encryption::None] {
        let (sent, _) = send(script, encryption, "Hello").await;
        assert_eq!(sent.unwrap_err().to_string(), "no connection");
    }
    let refused = Script {
        recipient: "550 no such person\r\n",
        ..GOOD
    };
    let (sent, heard) = send(refused, Encryption::Implicit, "Hello").await;
    assert!(matches!(sent, Err(SendError::MailServer(550))), "{sent:?}");
    assert!(!heard.contains("DATA"), "{heard}");
}

#[tokio::test]
async fn a_reply_to_something_else_does_not_take_the_mail() {
    // The server sends one reply too many, so its reply to DATA is read as the reply to the mail.
    let shifted = Script {
        recipient: "250 ok\r\n250 ok\r\n",
        ..GOOD
    };
    let (sent, _) = send(shifted, Encryption::StartTls, "Hello").await;
    assert!(matches!(sent, Err(SendError::MailServer(354))), "{sent:?}");
}

/// Starts a server that sends one text and closes the connection; returns its port.
async fn server_that_says(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
    });
    port
}

#[test]
fn the_address_of_a_mail_server_decides_on_encryption() {
    use Encryption::{Implicit, StartTls};
    for (text, host, port, encryption, login) in [
        (
            "smtps://ann:se%20cret@mail.example",
            "mail.example",
            465,
            Implicit,
            Some(("ann", "se cret")),
        ),
        ("smtp://mail.example", "mail.example", 587, StartTls, None),
        (
            "smtp://a%40b:c+d%26e@mail.example:2525/",
            "mail.example",
            2525,
            StartTls,
            Some(("a@b", "c+d&e")),
        ),
        (
            "smtp://127.0.0.1:1025",
            "127.0.0.1",
            1025,
            Encryption::None,
            None,
        ),
        ("smtp://localhost", "localhost", 25, Encryption::None, None),
        ("smtp://[::1]", "::1", 25, Encryption::None, None),
        ("smtp://10.0.0.1", "10.0.0.1", 587, StartTls, None),
    ] {
        let server: MailServer = text.parse().unwrap_or_else(|bad| panic!("{text}: {bad}"));
        assert_eq!(
            (&*server.host, server.port, server.encryption),
            (host, port, encryption)
        );
        let found = server.login.as_ref();
        let found = found.map(|(user, password)| (&**user, password.expose_secret()));
        assert_eq!(found, login, "{text}");
        assert!(!format!("{server:?}").contains("cret"));
    }
    for text in [
        "",
        "mail.example",
        "http://mail.example",
        "smtp:mail.example",
        "smtp://",
        "smtp://ann@mail.example",
        "smtp://:secret@mail.example",
        "smtp://ann:a%00b@mail.example",
        "smtp://mail.example/path",
        "smtp://mail.example?tls=no",
    ] {
        assert!(text.parse::<MailServer>().is_err(), "{text}");
    }
}
