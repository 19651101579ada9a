//! Reads two formats of OpenSSH: lists of allowed signers (`ssh-keygen(1)`, ALLOWED SIGNERS) and
//! signatures of files (`PROTOCOL.sshsig`).
//!
//! Only Ed25519 keys and the hash SHA-512 are read, and a signature only in the exact form in which
//! `ssh-keygen -Y sign` writes it: `ssh-keygen -Y verify` skips some bytes of a signature, and a
//! file with other bytes than the signer's is not the signer's file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};
use vault_format::keys::{PublicKey, Signature};

/// The only algorithm of keys and signatures.
const ALGORITHM: &[u8] = b"ssh-ed25519";
/// The hash that `ssh-keygen -Y sign` uses by default.
const HASH: &[u8] = b"sha512";
const MAGIC: &[u8] = b"SSHSIG";
const VERSION: u32 = 1;
const FIRST_LINE: &str = "-----BEGIN SSH SIGNATURE-----";
const LAST_LINE: &str = "-----END SSH SIGNATURE-----";
/// Base64 characters of a full line.
const LINE_CHARACTERS: usize = 70;

/// A person whose signature counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Signer {
    /// The name in the list, usually a mail address.
    pub principal: String,
    pub key: PublicKey,
}

/// A line of a list of signers that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "line {line} must be: a name, namespaces=\"{namespace}\", ssh-ed25519, and the key in base64"
)]
pub struct BadSigners {
    line: usize,
    namespace: String,
}

/// Reads a list of allowed signers. Skips empty lines and comments. Every other line must name one
/// signer, exactly this namespace and an Ed25519 key: `ssh-keygen` knows more options, such as an
/// end of validity, and an option that is skipped here would allow more than the list says.
pub fn parse_signers(text: &str, namespace: &str) -> Result<Vec<Signer>, BadSigners> {
    let mut signers = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let signer = parse_signer(line, namespace).ok_or_else(|| BadSigners {
            line: index + 1,
            namespace: namespace.to_owned(),
        })?;
        signers.push(signer);
    }
    Ok(signers)
}

fn parse_signer(line: &str, namespace: &str) -> Option<Signer> {
    let mut words = line.split_whitespace();
    let principal = words.next()?.to_owned();
    // A comma or an asterisk makes a pattern, which names more than one person.
    if principal.contains([',', '*', '?', '!', '"']) {
        return None;
    }
    if words.next()? != format!("namespaces=\"{namespace}\"") {
        return None;
    }
    if words.next()?.as_bytes() != ALGORITHM {
        return None;
    }
    let blob = STANDARD.decode(words.next()?).ok()?;
    let key = parse_key(&blob)?;
    Some(Signer { principal, key })
}

/// Finds the signer of a message. Returns `None` unless the signature has the exact form of
/// `ssh-keygen -Y sign`, is of one of the signers, and covers this message in this namespace.
pub fn find_signer<'a>(
    signature: &str,
    message: &[u8],
    namespace: &str,
    signers: &'a [Signer],
) -> Option<&'a Signer> {
    let blob = decode_armour(signature)?;
    let (key, signature) = parse_blob(&blob, namespace)?;
    let signer = signers.iter().find(|signer| signer.key == key)?;
    let mut signed = MAGIC.to_vec();
    put_string(&mut signed, namespace.as_bytes());
    put_string(&mut signed, b"");
    put_string(&mut signed, HASH);
    put_string(&mut signed, &Sha512::digest(message));
    key.verify(&signed, &signature).then_some(signer)
}

/// Decodes the text form. Fails unless encoding the bytes again gives the same text.
fn decode_armour(text: &str) -> Option<Vec<u8>> {
    let body = text
        .strip_prefix(FIRST_LINE)?
        .strip_suffix("\n")?
        .strip_suffix(LAST_LINE)?;
    let blob = STANDARD.decode(body.replace('\n', "")).ok()?;
    (encode_armour(&blob) == text).then_some(blob)
}

fn encode_armour(blob: &[u8]) -> String {
    let encoded = STANDARD.encode(blob);
    let mut text = format!("{FIRST_LINE}\n");
    for line in encoded.as_bytes().chunks(LINE_CHARACTERS) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + LAST_LINE + "\n"
}

/// Reads the key and the signature from the binary form.
fn parse_blob(blob: &[u8], namespace: &str) -> Option<(PublicKey, Signature)> {
    let mut rest = blob.strip_prefix(MAGIC)?;
    if take_number(&mut rest)? != VERSION {
        return None;
    }
    let key = parse_key(take_string(&mut rest)?)?;
    if take_string(&mut rest)? != namespace.as_bytes() {
        return None;
    }
    // The member that the format reserves must be empty, and the hash must be SHA-512.
    if !take_string(&mut rest)?.is_empty() || take_string(&mut rest)? != HASH {
        return None;
    }
    let mut inner = take_string(&mut rest)?;
    if take_string(&mut inner)? != ALGORITHM {
        return None;
    }
    let signature: [u8; 64] = take_string(&mut inner)?.try_into().ok()?;
    (inner.is_empty() && rest.is_empty()).then(|| (key, Signature::from_bytes(signature)))
}

fn parse_key(mut blob: &[u8]) -> Option<PublicKey> {
    if take_string(&mut blob)? != ALGORITHM {
        return None;
    }
    let bytes: &[u8; 32] = take_string(&mut blob)?.try_into().ok()?;
    blob.is_empty()
        .then(|| PublicKey::from_bytes(bytes).ok())
        .flatten()
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_be_bytes(*number))
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (string, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(string)
}

fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    // All strings here are constants or hashes.
    let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(string);
}

#[cfg(test)]
pub mod tests;
