//! `POST /oauth/token`: a code or a refresh token for a new pair of tokens.
//!
//! [`TokenRequest::read`] parses, [`load`] reads the records that matter, [`decide`] is pure: it answers, and says what to write
//! under which conditions. When a condition fails somebody else was faster: the caller loads and decides again.
//! What can go wrong with a code or a refresh token is one answer, `invalid_grant`: a stranger learns nothing from it.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::json;
use subtle::ConstantTimeEq as _;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::random::{Random, bytes};
use vault_store::records::{Document, Record, RecordKey, Records, When, Write};

use super::form::Form;
use super::resource;
use crate::documents::ClientName;
use crate::model::account::{Account, Epochs, ServiceEpoch, service_epoch_key};
use crate::model::audit::{self, Actor, Change};
use crate::model::client::{Client, Connection, USED_SECONDS, client_key, connection_key};
use crate::model::grant::{
    GRACE_SECONDS, GRANT_SECONDS, Grant, OPERATOR_SECONDS, Previous, REFRESH_SECONDS, Why,
};
use crate::model::membership::State;
use crate::model::namespace::{self, Namespace, Status};
use crate::model::token::{
    CODE_SECONDS, Code, Family, Secret, SecretKind, Token, TokenKind, USED_CODE_SECONDS, code_key,
    token_key,
};
use crate::model::user::{Scopes, User};
use crate::model::{Seen, fresh_id, read_all};

/// The name of the endpoint in the audit log.
const ACTION: &str = "token.grant";

/// A well-formed token request.
#[derive(Debug)]
pub struct TokenRequest {
    /// The client that says it asks.
    pub client: ClientName,
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
        secret: Secret,
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
    #[error("unsupported grant_type: use authorization_code or refresh_token")]
    UnsupportedGrantType,
    /// More scopes than were consented to, or none that the user still has.
    #[error("scope exceeds what was granted")]
    InvalidScope,
    /// Another audience than the one consented to.
    #[error("resource differs from the one that was granted")]
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
    /// `vrt_…`; an operator's token cannot be refreshed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
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
    account: Option<Seen<Account>>,
    home: Option<Seen<Namespace>>,
    service: Option<ServiceEpoch>,
}

impl Known {
    /// Whether the client that asks is known: only then is its use counted.
    pub fn client_is_known(&self, request: &TokenRequest) -> bool {
        self.client(request).is_some()
    }

    fn client(&self, request: &TokenRequest) -> Option<&Seen<Client>> {
        let client = self.client.as_ref();
        client.filter(|client| request.client.names(&client.value))
    }
}

/// What to answer, and what has to be written for the answer to be true.
pub struct Decision {
    /// The answer.
    pub answer: Result<TokenAnswer, TokenError>,
    /// Conditional writes; may be there for a refusal too, when something has to be ended.
    pub writes: Vec<Write>,
    /// The grant that tokens are given of, which may give so many a minute.
    pub grant: Option<String>,
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
            let code = Secret::parse(SecretKind::Code, needed("code")?);
            code.map_or(Presented::Nothing, |code| Presented::Code {
                hash: code.hash(),
                verifier: verifier.to_owned(),
                redirect_uri: form.value("redirect_uri").map(str::to_owned),
            })
        } else {
            let secret = Secret::parse(SecretKind::Refresh, needed("refresh_token")?);
            secret.map_or(Presented::Nothing, |secret| Presented::Refresh {
                secret,
                scopes: form.value("scope").map(str::to_owned),
            })
        };
        Ok(Self {
            client,
            resource: form.value("resource").map(str::to_owned),
            presented,
        })
    }
}

/// Reads what the records say about a request: client and code or token first, then what those name.
pub async fn load(records: &dyn Records, request: &TokenRequest) -> Result<Known, StoreError> {
    let mut known = Known::default();
    let client = client_key(&request.client.id());
    let family = match &request.presented {
        Presented::Code { hash, .. } => {
            let (client, code) = two(records, client, code_key(hash)).await?;
            (known.client, known.code) = (Seen::read(client)?, Seen::read(code)?);
            known.code.as_ref().map(|code| code.value.family.clone())
        }
        Presented::Refresh { secret, .. } => {
            let (client, token) = two(records, client, token_key(&secret.hash())).await?;
            (known.client, known.token) = (Seen::read(client)?, Seen::read(token)?);
            known.token.as_ref().map(|token| token.value.family.clone())
        }
        Presented::Nothing => {
            known.client = Seen::read(records.get(&client).await?)?;
            None
        }
    };
    if let Some(family) = family {
        let [grant, user, connection, account] = family.keys();
        let home = namespace::key(&family.namespace.slug);
        let keys = [grant, user, connection, account, home, service_epoch_key()];
        let [grant, user, connection, account, home, service] = read_all(records, keys).await?;
        known.service = Seen::<ServiceEpoch>::read(service)?.map(|service| service.value);
        known.grant = Seen::read(grant)?;
        known.user = Seen::read(user)?;
        known.connection = Seen::read(connection)?;
        known.account = Seen::read(account)?;
        let home = Seen::<Namespace>::read(home)?;
        known.home = home.filter(|home| home.value.id == family.namespace.id);
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

/// Decides about a request from `source`. Fails only when a record would not be storable.
///
/// A refusal of a code or token that is somebody's comes with the entry in the log of its namespace; of what is nobody's, with nothing.
pub fn decide(
    request: &TokenRequest,
    known: &Known,
    terms: Terms<'_>,
    source: Option<IpAddr>,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<Decision, StoreError> {
    let Some(client) = known.client(request) else {
        return Ok(Decision::refused(TokenError::InvalidClient));
    };
    let asked = Asked {
        request,
        known,
        client,
        terms,
        source,
        now: clock.now(),
        clock,
        random,
    };
    match &request.presented {
        Presented::Code {
            hash,
            verifier,
            redirect_uri,
        } => asked.exchange(hash, verifier, redirect_uri.as_deref()),
        Presented::Refresh { secret, scopes } => asked.refresh(secret, scopes.as_deref()),
        Presented::Nothing => Ok(Decision::refused(TokenError::InvalidGrant)),
    }
}

impl Decision {
    const fn refused(error: TokenError) -> Self {
        Self {
            answer: Err(error),
            writes: Vec::new(),
            grant: None,
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
    source: Option<IpAddr>,
    now: Timestamp,
    clock: &'a dyn Clock,
    random: &'a dyn Random,
}

impl Asked<'_> {
    fn exchange(
        &self,
        hash: &Digest,
        verifier: &str,
        redirect_uri: Option<&str>,
    ) -> Result<Decision, StoreError> {
        let Some(code) = &self.known.code else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        let family = &code.value.family;
        if family.client != self.client.value.id {
            return self.refused(TokenError::InvalidGrant, family, "code_of_another_client");
        }
        // The grant of a code exists only once the code was used. It can be seen there before the code itself is seen as used, when another
        // exchange came between the two readings.
        if code.value.used || self.known.grant.is_some() {
            return self.end_family(family, Why::CodeReused);
        }
        let problem = if self.now >= code.value.expires_at {
            Some("code_expired")
        } else if redirect_uri.is_some_and(|uri| uri != code.value.redirect_uri) {
            Some("redirect_uri_differs")
        } else if !code.value.challenge.answered_by(verifier) {
            Some("verifier_wrong")
        } else {
            None
        };
        if let Some(problem) = problem {
            return self.refused(TokenError::InvalidGrant, family, problem);
        }
        let family = &self.narrowed(family);
        let scopes = match self.standing(family, code.value.scopes) {
            Ok(scopes) => scopes,
            Err(error) => return self.refused(error, family, "no_standing"),
        };
        let consented_at = code.value.expires_at.plus_seconds(-CODE_SECONDS);
        let Some((connection, connected)) = self.connect(family, consented_at)? else {
            return self.refused(TokenError::InvalidClient, family, "connection_ended");
        };
        let family = &Family {
            connection,
            ..family.clone()
        };
        let lifetime = if family.operator {
            OPERATOR_SECONDS
        } else {
            GRANT_SECONDS
        };
        let ends_at = self.now.plus_seconds(lifetime);
        let secrets = Secrets::fresh(self.random);
        let pair = self.pair(&secrets, family, code.value.scopes, scopes, ends_at)?;
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
            grant.listed(self.client.value.name.as_deref())?,
            connected,
        ];
        writes.extend(pair.writes);
        writes.extend(self.keep_client()?);
        Ok(Decision {
            answer: Ok(pair.answer),
            writes,
            grant: Some(family.grant.clone()),
            ended_family: false,
        })
    }

    fn refresh(&self, secret: &Secret, scopes: Option<&str>) -> Result<Decision, StoreError> {
        let hash = &secret.hash();
        let (Some(token), Some(grant)) = (&self.known.token, &self.known.grant) else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        let family = &grant.value.family;
        if family.client != self.client.value.id {
            return self.refused(TokenError::InvalidGrant, family, "token_of_another_client");
        }
        let good = token.value.kind == TokenKind::Refresh
            && self.now < token.value.expires_at
            && grant.value.is_alive(self.now);
        if !good {
            // Over, or ended and noted then: a client that keeps asking must not fill the log.
            return Ok(Decision::refused(TokenError::InvalidGrant));
        }
        let repeated = self.repeated(&grant.value, hash);
        if repeated.is_none() && !same(hash, &grant.value.refresh) {
            return self.end_family(family, Why::RefreshReused);
        }
        let Some(connected) = self.connected(family) else {
            return self.refused(TokenError::InvalidClient, family, "connection_ended");
        };
        let wanted = scopes.map_or(Ok(grant.value.scopes), |text| {
            narrowed(text, grant.value.scopes)
        });
        let scopes = match wanted.and_then(|wanted| self.standing(family, wanted)) {
            Ok(scopes) => scopes,
            Err(error) => return Ok(Decision::refused(error)),
        };
        if let Some(previous) = repeated {
            return Ok(self.repeat(secret, previous, grant, connected));
        }
        let salt = URL_SAFE_NO_PAD.encode(bytes::<16>(self.random));
        let secrets = Secrets::following(secret, &salt);
        let pair = self.pair(
            &secrets,
            family,
            grant.value.scopes,
            scopes,
            grant.value.ends_at,
        )?;
        let next = Grant {
            refresh: pair.refresh,
            access: pair.access,
            previous: Some(Previous {
                refresh: *hash,
                rotated_at: self.now,
                salt,
                scopes,
            }),
            ..grant.value.clone()
        };
        let mut writes = vec![
            Write::put_until(
                next.key(),
                Document::of(&next)?,
                When::At(grant.revision),
                next.ends_at,
            ),
            next.listed(self.client.value.name.as_deref())?,
            connected,
        ];
        writes.extend(pair.writes);
        writes.extend(self.keep_client()?);
        Ok(Decision {
            answer: Ok(pair.answer),
            writes,
            grant: Some(family.grant.clone()),
            ended_family: false,
        })
    }

    /// The rotation that `hash` began, while its answer may be asked for again.
    fn repeated<'g>(&self, grant: &'g Grant, hash: &Digest) -> Option<&'g Previous> {
        // Its successor is unused, or `previous` would name that; so the answer may have been lost.
        let previous = grant.previous.as_ref();
        let previous = previous.filter(|previous| same(hash, &previous.refresh))?;
        (self.now <= previous.rotated_at.plus_seconds(GRACE_SECONDS)).then_some(previous)
    }

    /// The answer of a rotation once more: the same pair, so that two refreshes at the same time both hold what is good.
    fn repeat(
        &self,
        secret: &Secret,
        previous: &Previous,
        grant: &Seen<Grant>,
        connected: Write,
    ) -> Decision {
        let secrets = Secrets::following(secret, &previous.salt);
        if !same(&secrets.refresh.hash(), &grant.value.refresh) {
            // An earlier version of vault gave a random pair, which nobody can give again.
            return Decision::refused(TokenError::InvalidGrant);
        }
        let access_until = previous.rotated_at.plus_seconds(self.terms.access_seconds);
        let access_until = access_until.min(grant.value.ends_at);
        Decision {
            answer: Ok(secrets.answer(
                access_until.unix() - self.now.unix(),
                previous.scopes,
                false,
            )),
            writes: vec![
                Write::check(grant.value.key(), When::At(grant.revision)),
                connected,
            ],
            grant: Some(grant.value.family.grant.clone()),
            ended_family: false,
        }
    }

    /// The family of a code, for the resource that the exchange names: one of the service as a whole may be narrowed (RFC 8707 section 2.2).
    fn narrowed(&self, family: &Family) -> Family {
        let named = self.request.resource.as_deref();
        let named = named.and_then(|named| resource::canonical(named, self.terms.base));
        let mut family = family.clone();
        if let Some(resource) = named.filter(|_| family.resource == self.terms.base) {
            family.resource = resource;
        }
        family
    }

    /// The scopes that `family` may be given now, cut to what its user may do today.
    fn standing(&self, family: &Family, wanted: Scopes) -> Result<Scopes, TokenError> {
        let named = self.request.resource.as_deref();
        if named.is_some_and(|named| {
            resource::canonical(named, self.terms.base).as_ref() != Some(&family.resource)
        }) {
            return Err(TokenError::InvalidTarget);
        }
        let (Some(account), Some(home), Some(user)) =
            (&self.known.account, &self.known.home, &self.known.user)
        else {
            return Err(TokenError::InvalidGrant);
        };
        let present = Epochs::now(&account.value, &home.value, self.known.service);
        let stands = !account.value.disabled
            && home.value.status != Status::Deleted
            && user.value.state() == State::Active
            && family.epochs == present;
        if !stands {
            return Err(TokenError::InvalidGrant);
        }
        let scopes = wanted.and(user.value.scopes);
        if scopes.is_empty() {
            Err(TokenError::InvalidScope)
        } else {
            Ok(scopes)
        }
    }

    /// A refusal that somebody's code or token met: it is noted in the log of the namespace that it would have opened.
    fn refused(
        &self,
        error: TokenError,
        family: &Family,
        reason: &str,
    ) -> Result<Decision, StoreError> {
        let actor = Actor {
            user: family.user.clone(),
            client: Some(self.client.value.id.to_string()),
            source: self.source,
        };
        let change = Change {
            target: Some(family.grant.clone()),
            before: None,
            after: Some(json!({ "reason": reason })),
        };
        let (namespace, code) = (Some(&family.namespace.id), error.code());
        let (clock, random) = (self.clock, self.random);
        let entry = audit::entry(namespace, &actor, ACTION, change, code, clock, random)?;
        let mut decision = Decision::refused(error);
        decision.writes.push(entry);
        Ok(decision)
    }

    fn end_family(&self, family: &Family, why: Why) -> Result<Decision, StoreError> {
        let Some(grant) = &self.known.grant else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        if grant.value.revoked.is_some() {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        }
        let reason = match why {
            Why::CodeReused => "code_reused",
            Why::RefreshReused => "refresh_reused",
            Why::Asked => "asked",
        };
        let mut decision = self.refused(TokenError::InvalidGrant, family, reason)?;
        let end = grant.value.revocation(grant.revision, why, self.now)?;
        decision.writes.push(end);
        decision.ended_family = true;
        Ok(decision)
    }

    /// The connection that a first token belongs to, made or checked by the write; `None` when the owner ended it.
    ///
    /// A person who consents later than the end connects the client again. What it held before stays dead, since it names the former
    /// connection.
    fn connect(
        &self,
        family: &Family,
        consented_at: Timestamp,
    ) -> Result<Option<(String, Write)>, StoreError> {
        let key = connection_key(&family.namespace.id, &family.client);
        let client = &self.client.value;
        let held = self.known.connection.as_ref();
        let ended_before_at = held.and_then(|held| held.value.last_ended_at());
        if ended_before_at.is_some_and(|ended| consented_at <= ended) {
            return Ok(None);
        }
        let when = held.map_or(When::Absent, |held| When::At(held.revision));
        if let Some(held) = held.filter(|held| held.value.revoked_at.is_none()) {
            return Ok(Some((held.value.id.clone(), Write::check(key, when))));
        }
        let connection = Connection {
            id: fresh_id("con_", self.now, self.random),
            client: family.client.clone(),
            name: client.name.clone(),
            document: client.document.as_ref().map(|held| held.url.clone()),
            connected_at: self.now,
            revoked_at: None,
            ended_before_at,
        };
        let write = Write::put(key, Document::of(&connection)?, when);
        Ok(Some((connection.id, write)))
    }

    /// The check that the family's connection still stands while a token is given; `None` when it was ended.
    fn connected(&self, family: &Family) -> Option<Write> {
        let held = self.known.connection.as_ref()?;
        let stands = held.value.revoked_at.is_none() && held.value.id == family.connection;
        let key = connection_key(&family.namespace.id, &family.client);
        stands.then(|| Write::check(key, When::At(held.revision)))
    }

    /// Keeps a registration that is in use; written seldom, so that a refresh does not cost one more write each time.
    fn keep_client(&self) -> Result<Vec<Write>, StoreError> {
        let half = self.now.plus_seconds(USED_SECONDS / 2);
        let expires_at = self.client.expires_at;
        if expires_at.is_none_or(|expires_at| expires_at > half) {
            return Ok(Vec::new());
        }
        let place = self.client.value.unused.as_ref();
        let place = place.map(|place| Write::delete(place.key(), When::Any));
        let client = Client {
            unused: None,
            ..self.client.value.clone()
        };
        let kept = Write::put_until(
            client_key(&client.id),
            Document::of(&client)?,
            When::At(self.client.revision),
            self.now.plus_seconds(USED_SECONDS),
        );
        Ok([kept].into_iter().chain(place).collect())
    }

    fn pair(
        &self,
        secrets: &Secrets,
        family: &Family,
        granted: Scopes,
        scopes: Scopes,
        ends_at: Timestamp,
    ) -> Result<Pair, StoreError> {
        let Secrets { access, refresh } = &secrets;
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
        let mut writes = vec![write(TokenKind::Access, scopes, access, access_until)?];
        if !family.operator {
            // A refresh token keeps what was granted, whatever was asked for this time (RFC 6749 section 6).
            writes.push(write(TokenKind::Refresh, granted, refresh, refresh_until)?);
        }
        Ok(Pair {
            writes,
            access: access.hash(),
            refresh: refresh.hash(),
            answer: secrets.answer(
                access_until.unix() - self.now.unix(),
                scopes,
                family.operator,
            ),
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

/// The secrets of an access and a refresh token.
struct Secrets {
    access: Secret,
    refresh: Secret,
}

impl Secrets {
    fn fresh(random: &dyn Random) -> Self {
        Self {
            access: Secret::fresh(SecretKind::Access, random),
            refresh: Secret::fresh(SecretKind::Refresh, random),
        }
    }

    /// Those that replace a refresh token.
    fn following(presented: &Secret, salt: &str) -> Self {
        Self {
            access: Secret::derived(SecretKind::Access, presented, salt),
            refresh: Secret::derived(SecretKind::Refresh, presented, salt),
        }
    }

    fn answer(&self, expires_in: i64, scopes: Scopes, operator: bool) -> TokenAnswer {
        let operator_word = if operator { " operator" } else { "" };
        TokenAnswer {
            access_token: self.access.text().to_owned(),
            token_type: "Bearer",
            expires_in,
            refresh_token: (!operator).then(|| self.refresh.text().to_owned()),
            scope: format!("{scopes}{operator_word}"),
        }
    }
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
