//! Signs with a key that the user's SSH agent holds (draft-ietf-sshm-ssh-agent).
//!
//! An agent signs any bytes with plain Ed25519, as the signatures of vault need it. Only
//! `ssh-ed25519` keys work: a security key (`sk-ssh-ed25519@openssh.com`) signs another structure.
//! Two messages of the protocol are used: the list of keys, and a signature.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use vault_format::hash::Digest;
use vault_format::keys::{PublicKey, Signature, Signer, SignerError};

/// Time limit for each read and write of an exchange with the agent, except for the wait for a
/// signature.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Time after which the user is told that the agent has not signed yet.
const QUIET_TIME: Duration = Duration::from_secs(10);
/// Time limit for a signature. It is long, because an agent may ask its user each time (`ssh-add
/// -c`).
const SIGN_TIME: Duration = Duration::from_mins(2);
/// Size limit of an answer, in bytes, the same as in OpenSSH.
const MAX_ANSWER: usize = 256 * 1024;

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// The only algorithm with which a vault's keys sign.
pub const ALGORITHM: &str = "ssh-ed25519";

/// Error of reaching an SSH agent, or of signing with one of its keys.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// `SSH_AUTH_SOCK` is not set.
    #[error("no SSH agent is running: SSH_AUTH_SOCK is not set")]
    NotRunning,
    /// The socket can't be connected to, or the connection failed.
    #[error("the SSH agent at {} cannot be reached: {cause}", path.display())]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the connection.
        cause: io::Error,
    },
    /// The agent accepted a request and sent no answer in time.
    #[error("the SSH agent at {} has not answered for {} s{}", path.display(), waited.as_secs(), describe_key(key.as_deref()))]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        /// Time that this process waited.
        waited: Duration,
        /// Fingerprint of the key, for a request to sign.
        key: Option<String>,
    },
    /// The agent sent an answer that the protocol does not allow.
    #[error("the SSH agent sent an answer that cannot be read")]
    Malformed,
    /// The agent does not list the key with this fingerprint. A locked agent lists no keys.
    #[error("the SSH agent does not hold the key {0}, or it is locked")]
    KeyMissing(String),
    /// The agent holds the key, but keys of its kind can't sign for a vault.
    #[error("the key {fingerprint} is of the kind {algorithm}; a vault needs {ALGORITHM}")]
    Unusable {
        /// Fingerprint of the key.
        fingerprint: String,
        /// Algorithm of the key, as SSH names it.
        algorithm: String,
    },
    /// The agent holds the key with this fingerprint but does not sign with it, for example because
    /// the user declined.
    #[error("the SSH agent refused to sign with the key {0}")]
    Refused(String),
}

fn describe_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| {
        format!("; it was asked to sign with the key {key}")
    })
}

/// The time limits for an answer.
struct AnswerTimeouts<'a> {
    /// Time to wait before the user is told that the agent is slow.
    quiet: Duration,
    /// Further time to wait, with the function that tells the user first; `None` gives up after the
    /// first wait.
    further: Option<(Duration, &'a dyn Fn())>,
}

impl AnswerTimeouts<'_> {
    /// Limits for a request that the user need not confirm.
    const SHORT: Self = Self {
        quiet: ANSWER_TIME,
        further: None,
    };

    fn total_time(&self) -> Duration {
        self.quiet + self.further.map_or(Duration::ZERO, |(rest, _)| rest)
    }
}

/// A key that an agent holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentIdentity {
    /// `SHA256:` and the base64 of the key's hash, as `ssh-add -l` prints it.
    pub fingerprint: String,
    /// Algorithm as SSH names it, such as `ssh-ed25519`.
    pub algorithm: String,
    /// Comment that its owner gave it.
    pub comment: String,
    /// The public key; `None` unless its algorithm is `ssh-ed25519` and the key is valid.
    pub key: Option<PublicKey>,
}

/// Lists the keys of the agent at a socket.
pub fn list_identities(socket: Option<&Path>) -> Result<Vec<AgentIdentity>, AgentError> {
    let answer = send_request(
        socket,
        &[REQUEST_IDENTITIES],
        IDENTITIES_ANSWER,
        &AnswerTimeouts::SHORT,
    )?;
    let answer = answer.ok_or(AgentError::Malformed)?;
    let mut rest = &*answer;
    let count = take_number(&mut rest).ok_or(AgentError::Malformed)?;
    let mut identities = Vec::new();
    // The count is the agent's claim, so no memory is reserved for it. If it is too high, the bytes
    // run out and parsing fails.
    for _ in 0..count {
        let blob = take_string(&mut rest).ok_or(AgentError::Malformed)?;
        let comment = take_string(&mut rest).ok_or(AgentError::Malformed)?;
        identities.push(parse_identity(blob, comment).ok_or(AgentError::Malformed)?);
    }
    Ok(identities)
}

/// Finds the agent's key with this fingerprint (`SHA256:…`). Fails if the agent does not hold it,
/// or if a vault can't use a key of its kind.
pub fn find_agent_key(socket: Option<&Path>, fingerprint: &str) -> Result<PublicKey, AgentError> {
    let mut identities = list_identities(socket)?.into_iter();
    let identity = identities.find(|held| held.fingerprint == fingerprint);
    let found = identity.ok_or_else(|| AgentError::KeyMissing(fingerprint.to_owned()))?;
    found.key.ok_or(AgentError::Unusable {
        fingerprint: found.fingerprint,
        algorithm: found.algorithm,
    })
}

/// Parses a key of the list. Keys of any algorithm are listed, so that the user learns why one
/// can't be used.
fn parse_identity(mut blob: &[u8], comment: &[u8]) -> Option<AgentIdentity> {
    let fingerprint = fingerprint_of(blob);
    let algorithm = take_string(&mut blob)?;
    let point = take_string(&mut blob).and_then(|point| point.try_into().ok());
    let is_plain = algorithm == ALGORITHM.as_bytes();
    Some(AgentIdentity {
        fingerprint,
        key: point
            // A security key (`sk-ssh-ed25519@openssh.com`) holds a point in the same place, but
            // signs another structure.
            .filter(|_| is_plain)
            .and_then(|point| PublicKey::from_bytes(point).ok()),
        algorithm: String::from_utf8_lossy(algorithm).into_owned(),
        comment: String::from_utf8_lossy(comment).into_owned(),
    })
}

/// Returns the fingerprint of a key, as `ssh-add -l` prints it.
pub fn fingerprint(key: &PublicKey) -> String {
    fingerprint_of(&key_blob(key))
}

fn fingerprint_of(blob: &[u8]) -> String {
    let digest = STANDARD_NO_PAD.encode(Digest::of(blob).as_bytes());
    format!("SHA256:{digest}")
}

/// Tells the user that the agent has not signed yet. Gets the path of the agent's socket, the
/// fingerprint of the key, and the time since the request.
pub(super) type OnSlow = dyn Fn(&Path, &str, Duration) + Send + Sync;

/// Signs with one key of an SSH agent.
pub struct AgentSigner {
    socket: Option<PathBuf>,
    key: PublicKey,
    on_slow: Arc<OnSlow>,
    quiet: Duration,
}

impl AgentSigner {
    /// Creates a signer for this key. Does not contact the agent.
    pub(super) fn new(socket: Option<PathBuf>, key: PublicKey, on_slow: Arc<OnSlow>) -> Self {
        Self {
            socket,
            key,
            on_slow,
            quiet: QUIET_TIME,
        }
    }

    /// Signs a test message, so that a key that can't sign is detected before it is used.
    pub(super) fn prove_signing(&self) -> Result<(), AgentError> {
        let message = b"vault: proof that this agent signs";
        let signature = self.request_signature(message)?;
        if self.key.verify(message, &signature) {
            Ok(())
        } else {
            Err(AgentError::Malformed)
        }
    }

    fn request_signature(&self, message: &[u8]) -> Result<Signature, AgentError> {
        let mut request = vec![SIGN_REQUEST];
        put_string(&mut request, &key_blob(&self.key));
        put_string(&mut request, message);
        request.extend_from_slice(&0_u32.to_be_bytes()); // no flags: they choose the hash of RSA
        let socket = self.socket.as_deref();
        let report_slow = || {
            if let Some(socket) = socket {
                let key = fingerprint(&self.key);
                (self.on_slow)(socket, &key, self.quiet);
            }
        };
        let patience = AnswerTimeouts {
            quiet: self.quiet,
            further: Some((SIGN_TIME.saturating_sub(self.quiet), &report_slow)),
        };
        let answer = send_request(socket, &request, SIGN_RESPONSE, &patience);
        let answer = answer.map_err(|error| match error {
            AgentError::Silent { path, waited, .. } => {
                let key = Some(fingerprint(&self.key));
                AgentError::Silent { path, waited, key }
            }
            other => other,
        })?;
        let Some(answer) = answer else {
            return Err(self.explain_refusal()?);
        };
        let signature = take_string(&mut &*answer).and_then(|mut signature| {
            let algorithm = take_string(&mut signature)?;
            let bytes = take_string(&mut signature)?.try_into().ok()?;
            (algorithm == ALGORITHM.as_bytes()).then(|| Signature::from_bytes(bytes))
        });
        signature.ok_or(AgentError::Malformed)
    }

    /// Returns why the agent rejected a request to sign: it lacks the key, or it refused.
    fn explain_refusal(&self) -> Result<AgentError, AgentError> {
        let identities = list_identities(self.socket.as_deref())?;
        let is_held = identities.iter().any(|held| held.key == Some(self.key));
        let fingerprint = fingerprint(&self.key);
        Ok(if is_held {
            AgentError::Refused(fingerprint)
        } else {
            AgentError::KeyMissing(fingerprint)
        })
    }
}

impl Signer for AgentSigner {
    fn public_key(&self) -> PublicKey {
        self.key
    }

    fn sign_message(&self, message: &[u8]) -> Result<Signature, SignerError> {
        self.request_signature(message).map_err(SignerError::new)
    }
}

/// Sends one request. Returns the body of an answer of the expected kind, or `None` if the agent
/// reports a failure.
fn send_request(
    socket: Option<&Path>,
    request: &[u8],
    wanted: u8,
    patience: &AnswerTimeouts<'_>,
) -> Result<Option<Vec<u8>>, AgentError> {
    let path = socket.ok_or(AgentError::NotRunning)?;
    let exchanged =
        UnixStream::connect(path).and_then(|stream| exchange_frames(stream, request, patience));
    let answer = exchanged.map_err(|cause| match cause.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => AgentError::Malformed,
        _ if is_timeout(&cause) => AgentError::Silent {
            path: path.to_owned(),
            waited: patience.total_time(),
            key: None,
        },
        _ => AgentError::Unreachable {
            path: path.to_owned(),
            cause,
        },
    })?;
    Ok(match answer.split_first() {
        Some((kind, body)) if *kind == wanted => Some(body.to_vec()),
        // An agent may reject a request with several message numbers, so every other number counts
        // as a failure.
        _ => None,
    })
}

/// Returns whether a read or write timed out: a socket reports that as either of two kinds.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Sends a request and reads the answer, both with their length in front.
fn exchange_frames(
    mut stream: UnixStream,
    request: &[u8],
    patience: &AnswerTimeouts<'_>,
) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    stream.set_read_timeout(Some(patience.quiet))?;
    let mut framed = Vec::with_capacity(request.len() + 4);
    // The protocol frames a message like a string: four bytes of length, then the bytes.
    put_string(&mut framed, request);
    stream.write_all(&framed)?;
    let mut length = [0; 4];
    // Read the first byte alone. If this read times out, no byte is lost, and it can be repeated.
    match (stream.read_exact(&mut length[..1]), patience.further) {
        (Err(error), Some((rest, waits))) if is_timeout(&error) => {
            waits();
            stream.set_read_timeout(Some(rest))?;
            stream.read_exact(&mut length[..1])?;
        }
        (begun, _) => begun?,
    }
    stream.read_exact(&mut length[1..])?;
    let length = u32::from_be_bytes(length) as usize;
    // The length is the agent's claim. Without a limit it could make this process allocate 4 GiB.
    if length > MAX_ANSWER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Encodes a public key as SSH does: the name of the algorithm, then the 32 bytes of the key.
fn key_blob(key: &PublicKey) -> Vec<u8> {
    let mut blob = Vec::with_capacity(51);
    put_string(&mut blob, ALGORITHM.as_bytes());
    put_string(&mut blob, key.as_bytes());
    blob
}

/// Appends a `string` (RFC 4251 section 5): its length in four bytes, then its bytes.
fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_be_bytes(*number))
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_number(rest)? as usize;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use std::sync::mpsc;

    use vault_format::keys::SecretKey;

    use super::*;

    /// An agent that gives each of these answers once, and the message that it was asked to sign.
    fn agent(
        answers: Vec<Vec<u8>>,
    ) -> (tempfile::TempDir, PathBuf, std::thread::JoinHandle<Vec<u8>>) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let agent = std::thread::spawn(move || {
            let mut last = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut length = [0; 4];
                stream.read_exact(&mut length).unwrap();
                last = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut last).unwrap();
                stream.write_all(&answer).unwrap();
            }
            last
        });
        (home, path, agent)
    }

    fn signer(socket: Option<PathBuf>, key: PublicKey) -> AgentSigner {
        AgentSigner::new(socket, key, Arc::new(|_, _, _| ()))
    }

    fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut framed = Vec::new();
        put_string(&mut framed, &[&[kind], body].concat());
        framed
    }

    fn listing(keys: &[(&[u8], &str)]) -> Vec<u8> {
        let mut body = u32::try_from(keys.len()).unwrap().to_be_bytes().to_vec();
        for (blob, comment) in keys {
            put_string(&mut body, blob);
            put_string(&mut body, comment.as_bytes());
        }
        framed(IDENTITIES_ANSWER, &body)
    }

    fn signed(algorithm: &str, signature: &[u8]) -> Vec<u8> {
        let (mut inner, mut body) = (Vec::new(), Vec::new());
        put_string(&mut inner, algorithm.as_bytes());
        put_string(&mut inner, signature);
        put_string(&mut body, &inner);
        framed(SIGN_RESPONSE, &body)
    }

    #[test]
    fn the_keys_of_an_agent_are_listed_and_only_plain_ed25519_is_usable() {
        let key = SecretKey::from_seed([1; 32]).public();
        let mut security_key = Vec::new();
        put_string(&mut security_key, b"sk-ssh-ed25519@openssh.com");
        put_string(&mut security_key, key.as_bytes());
        let mut point = Vec::new();
        put_string(&mut point, ALGORITHM.as_bytes());
        put_string(&mut point, &[0xff; 32]);
        let keys: [(&[u8], _); 3] = [
            (&key_blob(&key), "mine"),
            (&security_key, "stick"),
            (&point, ""),
        ];
        let (_home, path, _agent) = agent(vec![listing(&keys)]);
        let found = list_identities(Some(&path)).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|held| (&*held.algorithm, &*held.comment, held.key))
            .collect();
        assert_eq!(
            shown,
            [
                (ALGORITHM, "mine", Some(key)),
                ("sk-ssh-ed25519@openssh.com", "stick", None),
                (ALGORITHM, "", None),
            ]
        );
        assert_eq!(found[0].fingerprint, fingerprint(&key));
    }

    #[test]
    fn a_signature_of_an_agent_is_over_the_exact_message() {
        let secret = SecretKey::from_seed([1; 32]);
        let signature = secret.sign(b"the message");
        let (_home, path, agent) = agent(vec![signed(ALGORITHM, signature.as_bytes())]);
        let signer = signer(Some(path), secret.public());
        assert_eq!(signer.request_signature(b"the message").unwrap(), signature);
        let mut asked = vec![SIGN_REQUEST];
        put_string(&mut asked, &key_blob(&secret.public()));
        put_string(&mut asked, b"the message");
        asked.extend_from_slice(&[0; 4]);
        assert_eq!(agent.join().unwrap(), asked);
    }

    #[test]
    fn what_an_agent_does_not_do_is_named() {
        let secret = SecretKey::from_seed([1; 32]);
        let key = secret.public();
        let failure = || framed(5, b"");
        let blob = key_blob(&key);
        let cut = &signed(ALGORITHM, &[0; 64])[..20];
        for (answers, wanted) in [
            (
                vec![failure(), listing(&[])],
                "does not hold the key SHA256:",
            ),
            (vec![failure(), listing(&[(&blob, "")])], "refused to sign"),
            (vec![signed(ALGORITHM, &[0; 63])], "cannot be read"),
            (vec![signed("ssh-rsa", &[0; 64])], "cannot be read"),
            (vec![cut.to_vec()], "cannot be read"),
            (vec![u32::MAX.to_be_bytes().to_vec()], "cannot be read"),
        ] {
            let (_home, path, _agent) = agent(answers);
            let error = signer(Some(path), key).request_signature(b"x").unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
        let gone = signer(Some("/nonexistent/agent".into()), key).request_signature(b"x");
        assert!(matches!(gone, Err(AgentError::Unreachable { .. })));
        let none = signer(None, key).request_signature(b"x");
        assert!(matches!(none, Err(AgentError::NotRunning)));
    }

    /// The agent in this test answers only after the user was told to wait, like an agent that asks
    /// for a confirmation.
    #[test]
    fn an_agent_that_takes_long_is_named_and_waited_for() {
        let secret = SecretKey::from_seed([1; 32]);
        let signature = secret.sign(b"the message");
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let (told, hears) = mpsc::channel();
        let answer = signed(ALGORITHM, signature.as_bytes());
        let agent = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let heard = hears.recv().unwrap();
            stream.write_all(&answer).unwrap();
            heard
        });
        let on_slow = move |socket: &Path, key: &str, _| {
            told.send((socket.to_owned(), key.to_owned())).unwrap();
        };
        let signer = AgentSigner {
            quiet: Duration::from_millis(1),
            ..AgentSigner::new(Some(path.clone()), secret.public(), Arc::new(on_slow))
        };
        assert_eq!(signer.request_signature(b"the message").unwrap(), signature);
        let key = fingerprint(&secret.public());
        assert_eq!(agent.join().unwrap(), (path, key));
    }

    #[test]
    fn an_agent_that_never_answers_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("agent");
        let _listener = UnixListener::bind(&path).unwrap();
        let patience = AnswerTimeouts {
            quiet: Duration::from_millis(1),
            further: Some((Duration::from_millis(1), &|| ())),
        };
        let silent = send_request(
            Some(&path),
            &[REQUEST_IDENTITIES],
            IDENTITIES_ANSWER,
            &patience,
        );
        let text = silent.unwrap_err().to_string();
        let wanted = format!("the SSH agent at {} has not answered", path.display());
        assert!(text.starts_with(&wanted), "{text}");
    }
}
