use vault_format::keys::SecretKey;

use super::*;

const NAMESPACE: &str = "vault-release";
/// Written by `ssh-keygen -Y sign -n vault-release` of OpenSSH 9.2 with a throwaway key.
const MESSAGE: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  x\n";
const SIGNERS: &str = "# people\n\nanna@example.com namespaces=\"vault-release\" ssh-ed25519 \
    AAAAC3NzaC1lZDI1NTE5AAAAIOTOr8HbsCMzIZfv3PcryuGpcd3Ok+Evlw8Bg6C/vYEB a comment\n";
const SIGNATURE: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg5M6vwduwIzMhl+/c9yvK4alx3c
6T4S+XDwGDoL+9gQEAAAANdmF1bHQtcmVsZWFzZQAAAAAAAAAGc2hhNTEyAAAAUwAAAAtz
c2gtZWQyNTUxOQAAAEBqlhHkII1JIcKhDVl7MUFaR+Ma3WryE0pwZg7odcLX+ikEvswsma
qT+IGLSwoJWjCyPNHXPn4KQ/X5qbnwHnIJ
-----END SSH SIGNATURE-----
";

/// A list that allows the key of this seed.
pub fn signers_of(seed: u8) -> String {
    let key = SecretKey::from_seed([seed; 32]).public();
    let blob = STANDARD.encode(key_blob(&key));
    format!("anna@example.com namespaces=\"{NAMESPACE}\" ssh-ed25519 {blob}\n")
}

/// A signature as `ssh-keygen -Y sign` makes it.
pub fn sign(seed: u8, message: &[u8]) -> String {
    encode_armour(&Parts::default().sign(seed, message))
}

fn key_blob(key: &PublicKey) -> Vec<u8> {
    let mut blob = Vec::new();
    put_string(&mut blob, ALGORITHM);
    put_string(&mut blob, key.as_bytes());
    blob
}

/// The members of a signature that a signer chooses.
struct Parts {
    version: u32,
    namespace: &'static str,
    reserved: &'static [u8],
    hash: &'static [u8],
    algorithm: &'static [u8],
    after: &'static [u8],
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            version: VERSION,
            namespace: NAMESPACE,
            reserved: b"",
            hash: HASH,
            algorithm: ALGORITHM,
            after: b"",
        }
    }
}

impl Parts {
    /// Signs over these members, so that only the member itself can be the reason to refuse.
    fn sign(&self, seed: u8, message: &[u8]) -> Vec<u8> {
        let secret = SecretKey::from_seed([seed; 32]);
        let mut signed = MAGIC.to_vec();
        put_string(&mut signed, self.namespace.as_bytes());
        put_string(&mut signed, self.reserved);
        put_string(&mut signed, self.hash);
        put_string(&mut signed, &Sha512::digest(message));
        let mut inner = Vec::new();
        put_string(&mut inner, self.algorithm);
        put_string(&mut inner, secret.sign(&signed).as_bytes());
        let mut blob = MAGIC.to_vec();
        blob.extend_from_slice(&self.version.to_be_bytes());
        put_string(&mut blob, &key_blob(&secret.public()));
        put_string(&mut blob, self.namespace.as_bytes());
        put_string(&mut blob, self.reserved);
        put_string(&mut blob, self.hash);
        put_string(&mut blob, &inner);
        blob.extend_from_slice(self.after);
        blob
    }
}

fn accepts(signature: &str, message: &[u8], signers: &str) -> bool {
    let signers = parse_signers(signers, NAMESPACE).unwrap();
    find_signer(signature, message, NAMESPACE, &signers).is_some()
}

#[test]
fn a_signature_of_ssh_keygen_is_accepted() {
    let signers = parse_signers(SIGNERS, NAMESPACE).unwrap();
    let signer = find_signer(SIGNATURE, MESSAGE.as_bytes(), NAMESPACE, &signers).unwrap();
    assert_eq!(signer.principal, "anna@example.com");
    assert!(accepts(&sign(7, b"x"), b"x", &signers_of(7)));
}

#[test]
fn a_change_of_any_byte_is_refused() {
    for index in 0..SIGNATURE.len() {
        for bit in 0..7 {
            let mut changed = SIGNATURE.as_bytes().to_vec();
            changed[index] ^= 1 << bit;
            let changed = String::from_utf8(changed).unwrap();
            assert!(
                !accepts(&changed, MESSAGE.as_bytes(), SIGNERS),
                "byte {index}, bit {bit}"
            );
        }
    }
    for index in 0..MESSAGE.len() {
        let mut changed = MESSAGE.as_bytes().to_vec();
        changed[index] ^= 1;
        assert!(!accepts(SIGNATURE, &changed, SIGNERS), "byte {index}");
    }
    for changed in [
        format!("{SIGNATURE}\n"),
        SIGNATURE.trim_end().to_owned(),
        SIGNATURE.replace('\n', "\r\n"),
        format!(" {SIGNATURE}"),
        SIGNATURE.replace("\nqT", "\n\nqT"),
        String::new(),
    ] {
        assert!(!accepts(&changed, MESSAGE.as_bytes(), SIGNERS), "{changed}");
    }
}

#[test]
fn a_signature_of_another_form_is_refused() {
    let message = b"x";
    let refused = [
        (
            "version",
            Parts {
                version: 0,
                ..Parts::default()
            },
        ),
        (
            "version",
            Parts {
                version: 2,
                ..Parts::default()
            },
        ),
        (
            "namespace",
            Parts {
                namespace: "file",
                ..Parts::default()
            },
        ),
        (
            "namespace",
            Parts {
                namespace: "",
                ..Parts::default()
            },
        ),
        (
            "reserved member",
            Parts {
                reserved: b"x",
                ..Parts::default()
            },
        ),
        (
            "hash",
            Parts {
                hash: b"sha256",
                ..Parts::default()
            },
        ),
        (
            "algorithm",
            Parts {
                algorithm: b"ssh-rsa",
                ..Parts::default()
            },
        ),
        (
            "bytes at the end",
            Parts {
                after: b"x",
                ..Parts::default()
            },
        ),
    ];
    for (part, parts) in refused {
        let text = encode_armour(&parts.sign(7, message));
        assert!(!accepts(&text, message, &signers_of(7)), "{part}");
    }
    // A key that is not in the list.
    assert!(!accepts(&sign(8, message), message, &signers_of(7)));
    let whole = Parts::default().sign(7, message);
    for length in 0..whole.len() {
        let text = encode_armour(&whole[..length]);
        assert!(!accepts(&text, message, &signers_of(7)), "{length} bytes");
    }
}

#[test]
fn a_list_of_signers_is_read_strictly() {
    let key = signers_of(7).split_whitespace().last().unwrap().to_owned();
    let option = format!("namespaces=\"{NAMESPACE}\"");
    for line in [
        "anna@example.com".to_owned(),
        format!("anna@example.com ssh-ed25519 {key}"),
        format!("anna@example.com namespaces=\"file\" ssh-ed25519 {key}"),
        format!("anna@example.com namespaces=\"*\" ssh-ed25519 {key}"),
        format!("anna@example.com {option},valid-before=\"20270101\" ssh-ed25519 {key}"),
        format!("anna@example.com cert-authority ssh-ed25519 {key}"),
        format!("* {option} ssh-ed25519 {key}"),
        format!("a@example.com,b@example.com {option} ssh-ed25519 {key}"),
        format!("anna@example.com {option} ssh-rsa {key}"),
        format!("anna@example.com {option} sk-ssh-ed25519@openssh.com {key}"),
        format!(
            "anna@example.com {option} ssh-ed25519 {}",
            &key[..key.len() - 4]
        ),
        format!("anna@example.com {option} ssh-ed25519"),
    ] {
        let text = format!("# a comment\n{line}\n");
        let error = parse_signers(&text, NAMESPACE).unwrap_err().to_string();
        assert!(error.starts_with("line 2 must be"), "{line}: {error}");
    }
    assert!(
        parse_signers("# nobody yet\n\n", NAMESPACE)
            .unwrap()
            .is_empty()
    );
}
