//! `POST /oauth/token`: exchanges a code or a refresh token for a new pair of access and refresh
//! token.
//!
//! [`TokenRequest::from_form`] parses the request, [`load_records`] loads the records that it
//! depends on, and [`decide_token`] is pure: it returns the answer, and the conditional writes that
//! make it true. If a condition fails, another request was faster, and the caller loads and decides
//! again. Every fault of a code or refresh token gets the same answer, `invalid_grant`, so that an
//! attacker learns nothing from it.

mod asked;
mod pair;

use std::net::IpAddr;

use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{Record, RecordKey, Write};

use crate::documents::ClientName;
use crate::model::Versioned;
use crate::model::client::{Client, client_key};
use crate::model::refusals::RefusedRequest;
use crate::model::standing::{self, Standing};
use crate::model::token::{AuthorizationCode, Secret, SecretKind, Token, code_key, token_key};
use crate::ports::Ports;
use crate::web::form::Form;

use asked::LoadedRequest;

/// A well-formed token request.
#[derive(Debug)]
pub struct TokenRequest {
    /// Client that the request claims to come from; it is not authenticated.
    pub client: ClientName,
    /// Audience (`resource`), if the request names it.
    resource: Option<String>,
    presented: PresentedSecret,
}

#[derive(Debug)]
/// The code or refresh token that a request presents.
enum PresentedSecret {
    Code {
        hash: Digest,
        verifier: String,
        redirect_uri: Option<String>,
    },
    Refresh {
        secret: Secret,
        scopes: Option<String>,
    },
    /// The text is no code or token of this service. The client is looked up all the same, because
    /// an unknown client must be reported first.
    Nothing,
}

/// Error of a token request, with the codes of RFC 6749 section 5.2 and RFC 8707.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// A parameter is absent, repeated or malformed.
    #[error("{0}")]
    InvalidRequest(String),
    /// No client is registered under this id, or the owner ended its connection.
    #[error("the client is not registered")]
    InvalidClient,
    /// The code or refresh token is unknown, used, expired, revoked, or another client's.
    #[error("the code or refresh token is not valid")]
    InvalidGrant,
    /// The grant type is neither `authorization_code` nor `refresh_token`.
    #[error("unsupported grant_type: use authorization_code or refresh_token")]
    UnsupportedGrantType,
    /// The request asks for more scopes than were granted, or for none that the user still has.
    #[error("scope exceeds what was granted")]
    InvalidScope,
    /// The request asks for another audience than the granted one.
    #[error("resource differs from the one that was granted")]
    InvalidTarget,
}

impl TokenError {
    /// Returns the `error` member of the answer.
    pub const fn error_code(&self) -> &'static str {
        match self {
            Self::InvalidRequest(_) => "invalid_request",
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::InvalidScope => "invalid_scope",
            Self::InvalidTarget => "invalid_target",
        }
    }
}

pub use vault_api::Tokens as TokenAnswer;

/// The records that the answer to a request depends on.
#[derive(Default)]
pub struct RequestRecords {
    client: Option<Versioned<Client>>,
    code: Option<Versioned<AuthorizationCode>>,
    token: Option<Versioned<Token>>,
    standing: Standing,
}

impl RequestRecords {
    /// Whether the client that the request names exists. Failures of unknown clients are counted by
    /// network only.
    pub fn client_is_known(&self, request: &TokenRequest) -> bool {
        self.matching_client(request).is_some()
    }

    fn matching_client(&self, request: &TokenRequest) -> Option<&Versioned<Client>> {
        let client = self.client.as_ref();
        client.filter(|client| request.client.is_name_of(&client.value))
    }
}

/// The answer to a request, with the writes that make it true.
pub struct Decision {
    /// The tokens, or the error for the client.
    pub answer: Result<TokenAnswer, TokenError>,
    /// Conditional writes. A refusal has some too if it ends a family.
    pub writes: Vec<Write>,
    /// Refusal to record in the audit log, if the code or token is known.
    pub refused: Option<RefusedRequest>,
    /// Id of the grant that issues tokens, for the limit of token pairs a minute.
    pub grant: Option<String>,
    /// Whether the writes end a family because a used code or refresh token was presented again.
    pub ended_family: bool,
}

/// Settings of the service that the answer depends on.
#[derive(Clone, Copy)]
pub struct TokenTerms<'a> {
    /// The public URL without a slash at its end.
    pub base: &'a str,
    /// Lifetime of an access token in seconds.
    pub access_seconds: i64,
}

impl TokenRequest {
    /// Parses the form of a request. Fails with an error that the client can fix.
    pub fn from_form(form: &Form) -> Result<Self, TokenError> {
        form.check()
            .map_err(|bad| TokenError::InvalidRequest(bad.to_string()))?;
        let needed = |name: &str| {
            form.value(name)
                .ok_or_else(|| TokenError::InvalidRequest(format!("{name} is required")))
        };
        let grant_type = needed("grant_type")?;
        if !matches!(grant_type, "authorization_code" | "refresh_token") {
            return Err(TokenError::UnsupportedGrantType);
        }
        let client = needed("client_id")?
            .parse()
            .map_err(|_| TokenError::InvalidClient)?;
        let presented = if grant_type == "authorization_code" {
            // Required before the code is parsed, so that a missing parameter is reported as such.
            let verifier = needed("code_verifier")?;
            let code = Secret::parse(SecretKind::Code, needed("code")?);
            code.map_or(PresentedSecret::Nothing, |code| PresentedSecret::Code {
                hash: code.hash(),
                verifier: verifier.to_owned(),
                redirect_uri: form.value("redirect_uri").map(str::to_owned),
            })
        } else {
            let secret = Secret::parse(SecretKind::Refresh, needed("refresh_token")?);
            secret.map_or(PresentedSecret::Nothing, |secret| {
                PresentedSecret::Refresh {
                    secret,
                    scopes: form.value("scope").map(str::to_owned),
                }
            })
        };
        Ok(Self {
            client,
            resource: form.value("resource").map(str::to_owned),
            presented,
        })
    }
}

/// Loads the records of a request: first the client and the code or token, then the records that
/// its family depends on.
pub async fn load_records(
    ports: &Ports,
    request: &TokenRequest,
) -> Result<RequestRecords, StoreError> {
    let mut records = RequestRecords::default();
    let client = client_key(&request.client.id());
    let family = match &request.presented {
        PresentedSecret::Code { hash, .. } => {
            let (client, code) = read_both(ports, client, code_key(hash)).await?;
            (records.client, records.code) = (Versioned::read(client)?, Versioned::read(code)?);
            records.code.as_ref().map(|code| code.value.family.clone())
        }
        PresentedSecret::Refresh { secret, .. } => {
            let (client, token) = read_both(ports, client, token_key(&secret.hash())).await?;
            (records.client, records.token) = (Versioned::read(client)?, Versioned::read(token)?);
            records
                .token
                .as_ref()
                .map(|token| token.value.family.clone())
        }
        PresentedSecret::Nothing => {
            records.client = ports.get(&client).await?;
            None
        }
    };
    if let Some(family) = family {
        records.standing = standing::load_standing(ports, &family).await?;
    }
    Ok(records)
}

async fn read_both(
    ports: &Ports,
    one: RecordKey,
    other: RecordKey,
) -> Result<(Option<Record>, Option<Record>), StoreError> {
    let [one, other] = ports.get_all([one, other]).await?;
    Ok((one, other))
}

/// Decides about a request from the client address `source`. Fails only if a record cannot be
/// serialized.
///
/// The refusal of a known code or token comes with an audit entry for the log of its namespace; the
/// refusal of an unknown one has no entry.
pub fn decide_token(
    ports: &Ports,
    request: &TokenRequest,
    records: &RequestRecords,
    terms: TokenTerms<'_>,
    source: Option<IpAddr>,
) -> Result<Decision, StoreError> {
    let Some(client) = records.matching_client(request) else {
        return Ok(Decision::refused(TokenError::InvalidClient));
    };
    let asked = LoadedRequest {
        request,
        records,
        client,
        terms,
        source,
        now: ports.now(),
        ports,
    };
    match &request.presented {
        PresentedSecret::Code {
            hash,
            verifier,
            redirect_uri,
        } => asked.exchange_code(hash, verifier, redirect_uri.as_deref()),
        PresentedSecret::Refresh { secret, scopes } => {
            asked.refresh_tokens(secret, scopes.as_deref())
        }
        PresentedSecret::Nothing => Ok(Decision::refused(TokenError::InvalidGrant)),
    }
}

impl Decision {
    const fn refused(error: TokenError) -> Self {
        Self {
            answer: Err(error),
            writes: Vec::new(),
            refused: None,
            grant: None,
            ended_family: false,
        }
    }
}
