//! An authenticator in software (WebAuthn level 3): makes passkeys with P-256 keys and attestation
//! `none`, and signs with them. A [`Forgery`] says what it does wrong.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::common::Reply;

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 4;
const BACKUP_ELIGIBLE: u8 = 8;
const BACKED_UP: u8 = 16;
const ATTESTED: u8 = 64;

/// What an answer claims. The default is what an honest browser and authenticator say.
#[derive(Clone, Default)]
pub struct Forgery {
    pub origin: Option<&'static str>,
    pub rp_id: Option<&'static str>,
    pub challenge: Option<String>,
    /// `type` in the client data.
    pub kind: Option<&'static str>,
    /// Whether the page is in a frame of another origin.
    pub cross_origin: Option<bool>,
    pub unverified: bool,
    pub absent: bool,
    pub backed_up: bool,
    pub counter: Option<u32>,
    pub user: Option<Vec<u8>>,
    /// Id that is given in place of the credential's own.
    pub id: Option<Vec<u8>>,
    /// Whether the client data is changed after it was signed.
    pub tampered: Option<bool>,
}

/// A passkey in the authenticator.
pub struct Held {
    pub id: Vec<u8>,
    pub user: Vec<u8>,
    pub counter: u32,
    key: EcdsaKeyPair,
}

/// An authenticator beside a browser at `origin`.
pub struct Authenticator {
    origin: String,
    rp_id: String,
    pub held: Vec<Held>,
}

/// The options of the browser's call in a page that asks for a passkey.
pub fn options(page: &Reply) -> Value {
    let text = page.body.split("data-options=\"").nth(1);
    let text = text.unwrap_or_else(|| panic!("no options in {}", page.body));
    let text = text.split('"').next().unwrap();
    let text = text.replace("&#34;", "\"").replace("&#38;", "&");
    serde_json::from_str(&text).unwrap()
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap()
}

impl Authenticator {
    /// An empty one.
    pub fn new(origin: &str) -> Self {
        let host = origin.split("://").nth(1).unwrap();
        Self {
            origin: origin.to_owned(),
            rp_id: host.split(':').next().unwrap().to_owned(),
            held: Vec::new(),
        }
    }

    fn client_data(&self, options: &Value, kind: &str, forgery: &Forgery) -> Vec<u8> {
        let challenge = options["challenge"].as_str().unwrap().to_owned();
        let data = json!({
            "type": forgery.kind.unwrap_or(kind),
            "challenge": forgery.challenge.clone().unwrap_or(challenge),
            "origin": forgery.origin.unwrap_or(&self.origin),
            "crossOrigin": forgery.cross_origin.unwrap_or_default(),
        });
        data.to_string().into_bytes()
    }

    fn authenticator_data(&self, flags: u8, counter: u32, forgery: &Forgery) -> Vec<u8> {
        let mut data = sha256(forgery.rp_id.unwrap_or(&self.rp_id).as_bytes());
        let mut flags = flags | BACKUP_ELIGIBLE;
        if !forgery.absent {
            flags |= USER_PRESENT;
        }
        if !forgery.unverified {
            flags |= USER_VERIFIED;
        }
        if forgery.backed_up {
            flags |= BACKED_UP;
        }
        data.push(flags);
        data.extend(forgery.counter.unwrap_or(counter).to_be_bytes());
        data
    }

    /// Makes a passkey, as `navigator.credentials.create` does; the answer for the form.
    pub fn make(&mut self, options: &Value, forgery: &Forgery) -> String {
        let random = SystemRandom::new();
        let signing = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).unwrap();
        let mut id = vec![0; 32];
        random.fill(&mut id).unwrap();
        let id = forgery.id.clone().unwrap_or(id);
        let mut data = self.authenticator_data(ATTESTED, 0, forgery);
        // The model of the authenticator, which it does not tell.
        data.extend([0; 16]);
        data.extend(u16::try_from(id.len()).unwrap().to_be_bytes());
        data.extend(&id);
        // A COSE key: kty EC2, alg ES256, crv P-256, x, y.
        let point = key.public_key().as_ref()[1..].to_vec();
        data.extend([0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32]);
        data.extend(&point[..32]);
        data.extend([0x22, 0x58, 32]);
        data.extend(&point[32..]);
        // {"fmt": "none", "attStmt": {}, "authData": …} in CBOR.
        let mut object = vec![0xa3, 0x63];
        object.extend(b"fmt\x64none\x67attStmt\xa0\x68authData\x58");
        object.push(u8::try_from(data.len()).unwrap());
        object.extend(&data);
        let client_data = self.client_data(options, "webauthn.create", forgery);
        self.held.push(Held {
            id: id.clone(),
            user: decode(&options["user"]["id"]),
            counter: 0,
            key,
        });
        json!({
            "id": encode(&id),
            "rawId": encode(&id),
            "type": "public-key",
            "response": {
                "clientDataJSON": encode(&client_data),
                "attestationObject": encode(&object),
            },
        })
        .to_string()
    }

    /// Signs with the newest passkey, as `navigator.credentials.get` does; the answer for the form.
    pub fn sign(&mut self, options: &Value, forgery: &Forgery) -> String {
        let client_data = self.client_data(options, "webauthn.get", forgery);
        let held = self.held.last_mut().unwrap();
        held.counter += 1;
        let (id, user, counter) = (held.id.clone(), held.user.clone(), held.counter);
        let data = self.authenticator_data(0, counter, forgery);
        let signed = [data.clone(), sha256(&client_data)].concat();
        let key = &self.held.last().unwrap().key;
        let signature = key.sign(&SystemRandom::new(), &signed).unwrap();
        let mut client_data = String::from_utf8(client_data).unwrap();
        if forgery.tampered == Some(true) {
            client_data.push(' ');
        }
        let id = forgery.id.clone().unwrap_or(id);
        json!({
            "id": encode(&id),
            "rawId": encode(&id),
            "type": "public-key",
            "response": {
                "clientDataJSON": encode(client_data.as_bytes()),
                "authenticatorData": encode(&data),
                "signature": encode(signature.as_ref()),
                "userHandle": encode(forgery.user.as_deref().unwrap_or(&user)),
            },
        })
        .to_string()
    }
}
