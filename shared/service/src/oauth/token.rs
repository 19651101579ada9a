//! `POST /oauth/token`: a code or a refresh token for a new pair of tokens.
//!
//! [`TokenRequest::read`] parses, [`load`] reads the records that matter, [`decide`] is pure: it answers, and says what to write
//! under which conditions. When a condition fails somebody else was faster: the caller loads and decides again.
//! What can go wrong with a code or a refresh token is one answer, `invalid_grant`: a stranger learns nothing from it.

use serde::Serialize;
use subtle::ConstantTimeEq as _;
use vault_skill::hash::Digest;
use vault_skill::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, Record, RecordKey, Records, When, Write};

use super::form::Form;
use super::resource;
use crate::model::client::{
    Client, ClientId, Connection, USED_SECONDS, client_key, connection_key,
};
use crate::model::grant::{GRACE_SECONDS, GRANT_SECONDS, Grant, Previous, REFRESH_SECONDS, Why};
use crate::model::token::{
    Code, Family, Secret, SecretKind, Token, TokenKind, USED_CODE_SECONDS, code_key, token_key,
};
use crate::model::user::{Scopes, User};
use crate::model::{Seen, read_all};

/// A well-formed token request.
#[derive(Debug)]
pub struct TokenRequest {
    /// The client that says it asks.
    pub client: ClientId,
    /// The audience, when it is named again.
    resource: Option<String>,
    presented: Presented,
}

#[derive(Debug)]
enum Presented {
    Code {
        hash: Digest,
        verifier: String,
        redirect_uri: Option<String>,
    },
    Refresh {
        hash: Digest,
        scopes: Option<String>,
    },
    /// No code or token of ours; the client is looked up all the same, since one that is unknown has to learn that first.
    Nothing,
}

/// Why there are no tokens: the codes of RFC 6749 section 5.2 and RFC 8707.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// A parameter is absent, repeated or malformed.
    #[error("{0}")]
    InvalidRequest(String),
    /// Nobody registered under this id, or the owner ended its connection.
    #[error("the client is not registered")]
    InvalidClient,
    /// The code or refresh token is unknown, used, expired, revoked, or somebody else's.
    #[error("the code or refresh token is not valid")]
    InvalidGrant,
    /// Neither `authorization_code` nor `refresh_token`.
    #[error("the grant types are authorization_code and refresh_token")]
    UnsupportedGrantType,
    /// More scopes than were consented to, or none that the user still has.
    #[error("the scope is not within what was granted")]
    InvalidScope,
    /// Another audience than the one consented to.
    #[error("the resource is not the one that was granted")]
    InvalidTarget,
}

impl TokenError {
    /// The `error` member of the answer.
    pub const fn code(&self) -> &'static str {
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

/// The answer with tokens, shown once.
#[derive(Serialize)]
pub struct TokenAnswer {
    /// `vat_…`
    pub access_token: String,
    /// Always `Bearer`.
    pub token_type: &'static str,
    /// Seconds.
    pub expires_in: i64,
    /// `vrt_…`
    pub refresh_token: String,
    /// What the access token carries.
    pub scope: String,
}

/// What the records say about a request.
#[derive(Default)]
pub struct Known {
    client: Option<Seen<Client>>,
    code: Option<Seen<Code>>,
    token: Option<Seen<Token>>,
    grant: Option<Seen<Grant>>,
    user: Option<Seen<User>>,
    connection: Option<Seen<Connection>>,
}

impl Known {
    /// Whether the client is registered: only then is its use counted.
    pub fn client_is_known(&self) -> bool {
        self.client.is_some()
    }
}

/// What to answer, and what has to be written for the answer to be true.
pub struct Decision {
    /// The answer.
    pub answer: Result<TokenAnswer, TokenError>,
    /// Conditional writes; may be there for a refusal too, when something has to be ended.
    pub writes: Vec<Write>,
    /// Whether the writes end a family because a used code or refresh token came again.
    pub ended_family: bool,
}

/// What does not change from request to request.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The public URL without a slash at its end.
    pub base: &'a str,
    /// Lifetime of an access token in seconds.
    pub access_seconds: i64,
}

impl TokenRequest {
    /// Reads the form of a request; fails with what a client can mend.
    pub fn read(form: &Form) -> Result<Self, TokenError> {
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
            let verifier = needed("code_verifier")?;
            hash(SecretKind::Code, needed("code")?).map_or(Presented::Nothing, |hash| {
                Presented::Code {
                    hash,
                    verifier: verifier.to_owned(),
                    redirect_uri: form.value("redirect_uri").map(str::to_owned),
                }
            })
        } else {
            hash(SecretKind::Refresh, needed("refresh_token")?).map_or(Presented::Nothing, |hash| {
                Presented::Refresh {
                    hash,
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

fn hash(kind: SecretKind, text: &str) -> Option<Digest> {
    Secret::parse(kind, text).map(|secret| secret.hash())
}

/// Reads what the records say about a request: client and code or token first, then what those name.
pub async fn load(records: &dyn Records, request: &TokenRequest) -> Result<Known, StoreError> {
    let mut known = Known::default();
    let family = match &request.presented {
        Presented::Code { hash, .. } => {
            let (client, code) = two(records, client_key(&request.client), code_key(hash)).await?;
            (known.client, known.code) = (Seen::read(client)?, Seen::read(code)?);
            known.code.as_ref().map(|code| code.value.family.clone())
        }
        Presented::Refresh { hash, .. } => {
            let (client, token) =
                two(records, client_key(&request.client), token_key(hash)).await?;
            (known.client, known.token) = (Seen::read(client)?, Seen::read(token)?);
            known.token.as_ref().map(|token| token.value.family.clone())
        }
        Presented::Nothing => {
            known.client = Seen::read(records.get(&client_key(&request.client)).await?)?;
            None
        }
    };
    if let Some(family) = family {
        let [grant, user, connection, _] = read_all(records, family.keys()).await?;
        known.grant = Seen::read(grant)?;
        known.user = Seen::read(user)?;
        known.connection = Seen::read(connection)?;
    }
    Ok(known)
}

async fn two(
    records: &dyn Records,
    one: RecordKey,
    other: RecordKey,
) -> Result<(Option<Record>, Option<Record>), StoreError> {
    let [one, other] = read_all(records, [one, other]).await?;
    Ok((one, other))
}

/// Decides about a request. Fails only when a record would not be storable.
pub fn decide(
    request: &TokenRequest,
    known: &Known,
    terms: Terms<'_>,
    now: Timestamp,
    random: &dyn Random,
) -> Result<Decision, StoreError> {
    let Some(client) = &known.client else {
        return Ok(Decision::refused(TokenError::InvalidClient));
    };
    let asked = Asked {
        request,
        known,
        client,
        terms,
        now,
    };
    match &request.presented {
        Presented::Code {
            hash,
            verifier,
            redirect_uri,
        } => asked.exchange(hash, verifier, redirect_uri.as_deref(), random),
        Presented::Refresh { hash, scopes } => asked.refresh(hash, scopes.as_deref(), random),
        Presented::Nothing => Ok(Decision::refused(TokenError::InvalidGrant)),
    }
}

impl Decision {
    const fn refused(error: TokenError) -> Self {
        Self {
            answer: Err(error),
            writes: Vec::new(),
            ended_family: false,
        }
    }
}

/// A request with all that is known about it.
struct Asked<'a> {
    request: &'a TokenRequest,
    known: &'a Known,
    client: &'a Seen<Client>,
    terms: Terms<'a>,
    now: Timestamp,
}

impl Asked<'_> {
    fn exchange(
        &self,
        hash: &Digest,
        verifier: &str,
        redirect_uri: Option<&str>,
        random: &dyn Random,
    ) -> Result<Decision, StoreError> {
        let Some(code) = &self.known.code else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        let family = &code.value.family;
        if family.client != self.request.client {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        }
        if code.value.used {
            return self.end_family(Why::CodeReused);
        }
        // A first exchange makes the grant; one that is there already belongs to another code, which cannot be.
        let good = self.now < code.value.expires_at
            && self.known.grant.is_none()
            && redirect_uri.is_none_or(|uri| uri == code.value.redirect_uri)
            && code.value.challenge.answered_by(verifier);
        if !good {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        }
        let scopes = match self.standing(family, code.value.scopes) {
            Ok(scopes) => scopes,
            Err(error) => return Ok(Decision::refused(error)),
        };
        let ends_at = self.now.plus_seconds(GRANT_SECONDS);
        let pair = self.pair(family, code.value.scopes, scopes, ends_at, random)?;
        let grant = Grant {
            family: family.clone(),
            scopes: code.value.scopes,
            created_at: self.now,
            ends_at,
            refresh: pair.refresh,
            access: pair.access,
            previous: None,
            revoked: None,
        };
        let used = Code {
            used: true,
            ..code.value.clone()
        };
        let mut writes = vec![
            Write::put_until(
                code_key(hash),
                Document::of(&used)?,
                When::At(code.revision),
                self.now.plus_seconds(USED_CODE_SECONDS),
            ),
            Write::put_until(grant.key(), Document::of(&grant)?, When::Absent, ends_at),
            self.connect(family)?,
        ];
        writes.extend(pair.writes);
        writes.extend(self.keep_client()?);
        Ok(Decision {
            answer: Ok(pair.answer),
            writes,
            ended_family: false,
        })
    }

    fn refresh(
        &self,
        hash: &Digest,
        scopes: Option<&str>,
        random: &dyn Random,
    ) -> Result<Decision, StoreError> {
        let (Some(token), Some(grant)) = (&self.known.token, &self.known.grant) else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        let family = &grant.value.family;
        let good = token.value.kind == TokenKind::Refresh
            && family.client == self.request.client
            && self.now < token.value.expires_at
            && grant.value.is_alive(self.now);
        if !good {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        }
        let Some(previous) = self.successor(&grant.value, hash) else {
            return self.end_family(Why::RefreshReused);
        };
        let wanted = scopes.map_or(Ok(grant.value.scopes), |text| {
            narrowed(text, grant.value.scopes)
        });
        let scopes = match wanted.and_then(|wanted| self.standing(family, wanted)) {
            Ok(scopes) => scopes,
            Err(error) => return Ok(Decision::refused(error)),
        };
        let pair = self.pair(
            family,
            grant.value.scopes,
            scopes,
            grant.value.ends_at,
            random,
        )?;
        let mut writes = Vec::new();
        if *hash != grant.value.refresh {
            // The answer that carried this pair was lost; nobody but a thief of the line has it.
            writes.push(Write::delete(token_key(&grant.value.access), When::Any));
        }
        let next = Grant {
            refresh: pair.refresh,
            access: pair.access,
            previous: Some(previous),
            ..grant.value.clone()
        };
        writes.push(Write::put_until(
            next.key(),
            Document::of(&next)?,
            When::At(grant.revision),
            next.ends_at,
        ));
        writes.push(self.connect(family)?);
        writes.extend(pair.writes);
        writes.extend(self.keep_client()?);
        Ok(Decision {
            answer: Ok(pair.answer),
            writes,
            ended_family: false,
        })
    }

    /// What the grant's `previous` becomes when `hash` is presented; `None` when `hash` may not be used any more.
    fn successor(&self, grant: &Grant, hash: &Digest) -> Option<Previous> {
        if same(hash, &grant.refresh) {
            return Some(Previous {
                refresh: *hash,
                rotated_at: self.now,
            });
        }
        // Its successor is unused, or `previous` would name that; so the answer may have been lost.
        let previous = grant
            .previous
            .as_ref()
            .filter(|previous| same(hash, &previous.refresh))?;
        (self.now <= previous.rotated_at.plus_seconds(GRACE_SECONDS)).then(|| previous.clone())
    }

    /// The scopes that `family` may be given now, cut to what its user may do today.
    fn standing(&self, family: &Family, wanted: Scopes) -> Result<Scopes, TokenError> {
        if self
            .known
            .connection
            .as_ref()
            .is_some_and(|connection| connection.value.revoked_at.is_some())
        {
            return Err(TokenError::InvalidClient);
        }
        let named = self.request.resource.as_deref();
        if named.is_some_and(|named| {
            resource::canonical(named, self.terms.base).as_ref() != Some(&family.resource)
        }) {
            return Err(TokenError::InvalidTarget);
        }
        let user = self.known.user.as_ref().ok_or(TokenError::InvalidGrant)?;
        let scopes = wanted.and(user.value.scopes);
        if scopes.is_empty() {
            Err(TokenError::InvalidScope)
        } else {
            Ok(scopes)
        }
    }

    fn end_family(&self, why: Why) -> Result<Decision, StoreError> {
        let mut decision = Decision::refused(TokenError::InvalidGrant);
        if let Some(grant) = &self.known.grant
            && grant.value.revoked.is_none()
        {
            decision
                .writes
                .push(grant.value.revocation(grant.revision, why, self.now)?);
            decision.ended_family = true;
        }
        Ok(decision)
    }

    /// The client's connection to the namespace: made by its first token there, and must not be ended while one is given.
    fn connect(&self, family: &Family) -> Result<Write, StoreError> {
        let key = connection_key(&family.namespace.id, &family.client);
        if let Some(connection) = &self.known.connection {
            return Ok(Write::check(key, When::At(connection.revision)));
        }
        let connection = Connection {
            client: family.client.clone(),
            name: self.client.value.name.clone(),
            connected_at: self.now,
            revoked_at: None,
        };
        Ok(Write::put(key, Document::of(&connection)?, When::Absent))
    }

    /// Keeps a registration that is in use; written seldom, so that a refresh does not cost one more write each time.
    fn keep_client(&self) -> Result<Option<Write>, StoreError> {
        let half = self.now.plus_seconds(USED_SECONDS / 2);
        if self
            .client
            .expires_at
            .is_none_or(|expires_at| expires_at > half)
        {
            return Ok(None);
        }
        let document = Document::of(&self.client.value)?;
        let until = self.now.plus_seconds(USED_SECONDS);
        Ok(Some(Write::put_until(
            client_key(&self.client.value.id),
            document,
            When::At(self.client.revision),
            until,
        )))
    }

    fn pair(
        &self,
        family: &Family,
        granted: Scopes,
        scopes: Scopes,
        ends_at: Timestamp,
        random: &dyn Random,
    ) -> Result<Pair, StoreError> {
        let access = Secret::fresh(SecretKind::Access, random);
        let refresh = Secret::fresh(SecretKind::Refresh, random);
        let access_until = self
            .now
            .plus_seconds(self.terms.access_seconds)
            .min(ends_at);
        let refresh_until = self.now.plus_seconds(REFRESH_SECONDS).min(ends_at);
        let write = |kind, scopes, secret: &Secret, expires_at| -> Result<Write, StoreError> {
            let token = Token {
                kind,
                family: family.clone(),
                scopes,
                issued_at: self.now,
                expires_at,
            };
            Ok(Write::put_until(
                token_key(&secret.hash()),
                Document::of(&token)?,
                When::Absent,
                expires_at,
            ))
        };
        Ok(Pair {
            writes: vec![
                write(TokenKind::Access, scopes, &access, access_until)?,
                // A refresh token keeps what was granted, whatever was asked for this time (RFC 6749 section 6).
                write(TokenKind::Refresh, granted, &refresh, refresh_until)?,
            ],
            access: access.hash(),
            refresh: refresh.hash(),
            answer: TokenAnswer {
                access_token: access.text().to_owned(),
                token_type: "Bearer",
                expires_in: access_until.unix() - self.now.unix(),
                refresh_token: refresh.text().to_owned(),
                scope: scopes.to_string(),
            },
        })
    }
}

/// A new access and refresh token.
struct Pair {
    writes: Vec<Write>,
    access: Digest,
    refresh: Digest,
    answer: TokenAnswer,
}

/// The scopes of a `scope` parameter, which may narrow what was granted, never widen it.
fn narrowed(text: &str, granted: Scopes) -> Result<Scopes, TokenError> {
    let wanted = Scopes::known(text);
    if wanted.is_empty() || !wanted.within(granted) {
        return Err(TokenError::InvalidScope);
    }
    Ok(wanted)
}

fn same(one: &Digest, other: &Digest) -> bool {
    one.as_bytes()
        .as_slice()
        .ct_eq(other.as_bytes().as_slice())
        .into()
}
