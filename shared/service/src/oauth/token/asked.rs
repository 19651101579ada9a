//! Decisions about a code and about a refresh token.
//!
//! A family is the set of all tokens that come from one consent. A code or a refresh token that is
//! presented a second time may have been stolen, so it ends its whole family.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use subtle::ConstantTimeEq as _;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::random_bytes;
use vault_store::records::{Document, When, Write};

use super::pair::{PairSecrets, TokenPair};
use super::{Decision, RequestRecords, TokenError, TokenRequest, TokenTerms};
use crate::model::audit::{Actor, Change};
use crate::model::client::{Client, Connection, USED_SECONDS, client_key, connection_key};
use crate::model::grant::{
    GRANT_SECONDS, Grant, OPERATOR_SECONDS, Previous, REFRESH_SECONDS, RevocationReason,
};
use crate::model::refusals::{NamedBy, RefusedRequest};
use crate::model::token::{
    AuthorizationCode, CODE_SECONDS, Family, Reach, Secret, Token, TokenKind, USED_CODE_SECONDS,
    code_key, token_key,
};
use crate::model::user::Scopes;
use crate::model::{Versioned, fresh_id};
use crate::oauth::resource;
use crate::ports::Ports;

/// Audit log action: a request for tokens was refused.
const GRANT_ACTION: &str = "token.grant";

/// A token request with everything that the decision about it needs.
pub(super) struct LoadedRequest<'a> {
    pub(super) request: &'a TokenRequest,
    pub(super) records: &'a RequestRecords,
    pub(super) client: &'a Versioned<Client>,
    pub(super) terms: TokenTerms<'a>,
    pub(super) source: Option<IpAddr>,
    pub(super) now: Timestamp,
    pub(super) ports: &'a Ports,
}

impl LoadedRequest<'_> {
    /// Exchanges a code for the first pair of tokens of a family.
    pub(super) fn exchange_code(
        &self,
        hash: &Digest,
        verifier: &str,
        redirect_uri: Option<&str>,
    ) -> Result<Decision, StoreError> {
        let Some(code) = &self.records.code else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        let family = &code.value.family;
        if family.client != self.client.value.id {
            return Ok(self.refuse_known(
                TokenError::InvalidGrant,
                family,
                "code_of_another_client",
            ));
        }
        // Another exchange may have committed between the two reads; then only the grant shows that
        // the code was used.
        if code.value.used || self.records.standing.grant.is_some() {
            return self.end_family(family, RevocationReason::CodeReused);
        }
        if let Some(problem) = self.code_problem(&code.value, verifier, redirect_uri) {
            return Ok(self.refuse_known(TokenError::InvalidGrant, family, problem));
        }
        let family = &self.narrow_family(family);
        let scopes = match self.check_scopes(family, code.value.scopes) {
            Ok(scopes) => scopes,
            Err(error) => return Ok(self.refuse_known(error, family, "no_standing")),
        };
        let consented_at = code.value.expires_at.plus_seconds(-CODE_SECONDS);
        let Some((family, connected)) = self.connect_client(family, consented_at)? else {
            return Ok(self.refuse_known(TokenError::InvalidClient, family, "connection_ended"));
        };
        let family = &family;
        let lifetime = if family.is_operator() {
            OPERATOR_SECONDS
        } else {
            GRANT_SECONDS
        };
        let ends_at = self.now.plus_seconds(lifetime);
        let secrets = PairSecrets::fresh(&self.ports.random);
        let pair = self.issue_pair(&secrets, family, (code.value.scopes, scopes), ends_at)?;
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
        let used = AuthorizationCode {
            used: true,
            ..code.value.clone()
        };
        // Stored for another day, so that a second use is recognised and ends the family.
        let used = Write::put_until(
            code_key(hash),
            Document::from_value(&used)?,
            When::At(code.revision),
            self.now.plus_seconds(USED_CODE_SECONDS),
        );
        let conditions = [used].into_iter().chain(connected);
        self.grant_pair(pair, &grant, When::Absent, conditions)
    }

    /// Returns what is wrong with an unused code for this request, as a word for the audit log.
    fn code_problem(
        &self,
        code: &AuthorizationCode,
        verifier: &str,
        redirect_uri: Option<&str>,
    ) -> Option<&'static str> {
        if self.now >= code.expires_at {
            Some("code_expired")
        } else if redirect_uri.is_some_and(|uri| uri != code.redirect_uri) {
            Some("redirect_uri_differs")
        } else if !code.challenge.answered_by(verifier) {
            Some("verifier_wrong")
        } else {
            None
        }
    }

    /// Exchanges a refresh token for the next pair of tokens.
    pub(super) fn refresh_tokens(
        &self,
        secret: &Secret,
        scopes: Option<&str>,
    ) -> Result<Decision, StoreError> {
        let hash = &secret.hash();
        let (Some(token), Some(grant)) = (&self.records.token, &self.records.standing.grant) else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        let family = &grant.value.family;
        if family.client != self.client.value.id {
            return Ok(self.refuse_known(
                TokenError::InvalidGrant,
                family,
                "token_of_another_client",
            ));
        }
        let is_valid = token.value.kind == TokenKind::Refresh
            && self.now < token.value.expires_at
            && grant.value.is_alive(self.now);
        if !is_valid {
            // The token expired, or its end was recorded before: a client that keeps asking must
            // not fill the log.
            return Ok(Decision::refused(TokenError::InvalidGrant));
        }
        let repeated = self.find_repeated_rotation(&grant.value, hash);
        // The token is neither the newest one nor a repetition in time, so it was stolen or
        // replayed.
        if repeated.is_none() && !is_same_digest(hash, &grant.value.refresh) {
            return self.end_family(family, RevocationReason::RefreshReused);
        }
        let Some(connected) = self.connection_check(family) else {
            // The entry about the owner's action records the end: an app that keeps asking must not
            // fill the log.
            return Ok(Decision::refused(TokenError::InvalidClient));
        };
        let wanted_scopes = scopes.map_or(Ok(grant.value.scopes), |text| {
            narrow_scopes(text, grant.value.scopes)
        });
        let scopes = match wanted_scopes.and_then(|requested| self.check_scopes(family, requested))
        {
            Ok(scopes) => scopes,
            Err(error) => return Ok(Decision::refused(error)),
        };
        if let Some(previous) = repeated {
            return Ok(self.repeat_answer(secret, previous, grant, connected));
        }
        // The next pair is derived from the presented token and a stored salt, so that a lost
        // answer can be given again.
        let salt = URL_SAFE_NO_PAD.encode(random_bytes::<16>(&self.ports.random));
        let secrets = PairSecrets::derive_from(secret, &salt);
        let ends_at = grant.value.ends_at;
        let pair = self.issue_pair(&secrets, family, (grant.value.scopes, scopes), ends_at)?;
        let next = Grant {
            refresh: pair.refresh,
            access: pair.access,
            previous: Some(Previous {
                refresh: *hash,
                rotated_at: self.now,
                salt,
                scopes,
                used: Some(false),
            }),
            ..grant.value.clone()
        };
        self.grant_pair(pair, &next, When::At(grant.revision), [connected])
    }

    /// Creates the tokens of `family`, valid from now on. The access token has `scopes`, a subset of
    /// the `granted` ones. No token outlives `ends_at`.
    fn issue_pair(
        &self,
        secrets: &PairSecrets,
        family: &Family,
        (granted, scopes): (Scopes, Scopes),
        ends_at: Timestamp,
    ) -> Result<TokenPair, StoreError> {
        let (now, PairSecrets { access, refresh }) = (self.now, secrets);
        let access_until = now.plus_seconds(self.terms.access_seconds).min(ends_at);
        let refresh_until = now.plus_seconds(REFRESH_SECONDS).min(ends_at);
        let write = |kind, scopes, secret: &Secret, expires_at| -> Result<Write, StoreError> {
            let token = Token {
                kind,
                family: family.clone(),
                scopes,
                issued_at: now,
                expires_at,
            };
            Ok(Write::put_until(
                token_key(&secret.hash()),
                Document::from_value(&token)?,
                When::Absent,
                expires_at,
            ))
        };
        let mut writes = vec![write(TokenKind::Access, scopes, access, access_until)?];
        if !family.is_operator() {
            // A refresh token keeps the granted scopes, whatever was asked for this time (RFC 6749
            // section 6).
            writes.push(write(TokenKind::Refresh, granted, refresh, refresh_until)?);
        }
        Ok(TokenPair {
            writes,
            access: access.hash(),
            refresh: refresh.hash(),
            answer: secrets.to_answer(
                access_until.unix() - now.unix(),
                scopes,
                family.is_operator(),
            ),
        })
    }

    /// Answers with `pair`, and stores it with `grant`. `conditions` are further writes, which fail
    /// the commit if the tokens may no longer be issued.
    fn grant_pair(
        &self,
        pair: TokenPair,
        grant: &Grant,
        when: When,
        conditions: impl IntoIterator<Item = Write>,
    ) -> Result<Decision, StoreError> {
        let document = Document::from_value(grant)?;
        let mut writes = vec![
            Write::put_until(grant.key(), document, when, grant.ends_at),
            grant.listing_write(self.client.value.name.as_deref())?,
        ];
        writes.extend(conditions);
        writes.extend(pair.writes);
        writes.extend(self.prolong_client()?);
        Ok(Decision {
            answer: Ok(pair.answer),
            writes,
            refused: None,
            grant: Some(grant.family.grant.clone()),
            ended_family: false,
        })
    }

    /// Returns the rotation that the refresh token with this hash began, if its answer may still be
    /// given again.
    fn find_repeated_rotation<'g>(&self, grant: &'g Grant, hash: &Digest) -> Option<&'g Previous> {
        // Neither token of the answer was used: the use of its refresh token replaces `previous`,
        // and the use of its access token is recorded there. So the answer may have been lost.
        let previous = grant.previous.as_ref();
        let previous = previous.filter(|previous| is_same_digest(hash, &previous.refresh))?;
        previous.is_repeatable(self.now).then_some(previous)
    }

    /// Gives the answer of a rotation again: the same pair, so that two simultaneous refreshes both
    /// get valid tokens.
    fn repeat_answer(
        &self,
        secret: &Secret,
        previous: &Previous,
        grant: &Versioned<Grant>,
        connected: Write,
    ) -> Decision {
        let secrets = PairSecrets::derive_from(secret, &previous.salt);
        if !is_same_digest(&secrets.refresh.hash(), &grant.value.refresh) {
            // An earlier version of vault issued a random pair, which cannot be derived again.
            return Decision::refused(TokenError::InvalidGrant);
        }
        let access_until = previous.rotated_at.plus_seconds(self.terms.access_seconds);
        let access_until = access_until.min(grant.value.ends_at);
        Decision {
            answer: Ok(secrets.to_answer(
                // The access token may have expired meanwhile.
                (access_until.unix() - self.now.unix()).max(0),
                previous.scopes,
                false,
            )),
            writes: vec![
                // Changes nothing, but fails the commit if the grant is ended or rotated at this
                // moment.
                Write::check(grant.value.key(), When::At(grant.revision)),
                connected,
            ],
            refused: None,
            grant: Some(grant.value.family.grant.clone()),
            ended_family: false,
        }
    }

    /// Returns the family of a code, narrowed to the resource that the exchange names: a consent
    /// for the whole service may be used for `/mcp` only (RFC 8707 section 2.2).
    fn narrow_family(&self, family: &Family) -> Family {
        let named = self.request.resource.as_deref();
        let named = named.and_then(|named| resource::canonical_resource(named, self.terms.base));
        let mut family = family.clone();
        // Operator tokens are for the whole service only.
        let may = family.resource == self.terms.base && !family.is_operator();
        if let Some(resource) = named.filter(|_| may) {
            family.resource = resource;
        }
        family
    }

    /// Returns the scopes that the tokens of `family` may have now: those in `wanted` that the user
    /// still has.
    fn check_scopes(&self, family: &Family, requested: Scopes) -> Result<Scopes, TokenError> {
        let named = self.request.resource.as_deref();
        if named.is_some_and(|named| {
            resource::canonical_resource(named, self.terms.base).as_ref() != Some(&family.resource)
        }) {
            return Err(TokenError::InvalidTarget);
        }
        let rights = self.records.standing.present_rights(family);
        let scopes = requested.and(rights.ok_or(TokenError::InvalidGrant)?);
        if scopes.is_empty() && !family.is_operator() {
            Err(TokenError::InvalidScope)
        } else {
            Ok(scopes)
        }
    }

    /// Refuses a known code or token, with an audit entry for the log of the namespace that it is
    /// for.
    fn refuse_known(&self, error: TokenError, family: &Family, reason: &str) -> Decision {
        Decision {
            refused: Some(self.to_refused(&error, family, reason)),
            ..Decision::refused(error)
        }
    }

    fn to_refused(&self, error: &TokenError, family: &Family, reason: &str) -> RefusedRequest {
        let actor = Actor {
            user: family.actor().to_owned(),
            client: Some(self.client.value.id.to_string()),
            source: self.source,
        };
        let change = Change::about(&family.grant).with_after(json!({ "reason": reason }));
        RefusedRequest {
            namespace: family.namespace_id().copied(),
            actor,
            action: GRANT_ACTION.to_owned(),
            change,
            named_by: NamedBy::Service,
            outcome: error.error_code().to_owned(),
        }
    }

    fn end_family(&self, family: &Family, why: RevocationReason) -> Result<Decision, StoreError> {
        let Some(grant) = &self.records.standing.grant else {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        };
        // The family has ended before: repeating the replay must not add an entry each time.
        if grant.value.revoked.is_some() {
            return Ok(Decision::refused(TokenError::InvalidGrant));
        }
        let reason = match why {
            RevocationReason::CodeReused => "code_reused",
            RevocationReason::RefreshReused => "refresh_reused",
            RevocationReason::Asked => "asked",
        };
        let error = TokenError::InvalidGrant;
        // The audit entry is part of the commit that ends the family.
        let entry = self.to_refused(&error, family, reason);
        let entry = entry.entry_write(self.ports)?;
        let mut decision = Decision::refused(error);
        decision.writes.push(entry);
        let end = grant
            .value
            .revocation_writes(grant.revision, why, self.now)?;
        decision.writes.extend(end);
        decision.ended_family = true;
        Ok(decision)
    }

    /// Returns the family with the connection that its first token belongs to, and the write that
    /// creates or checks this connection. Returns `None` if the owner ended the connection after
    /// the consent. An operator's family has no connection.
    ///
    /// A consent after that end connects the client again. Earlier tokens stay invalid, because
    /// they name the former connection.
    fn connect_client(
        &self,
        family: &Family,
        consented_at: Timestamp,
    ) -> Result<Option<(Family, Option<Write>)>, StoreError> {
        let mut family = family.clone();
        let client = &self.client.value;
        let Reach::Namespace {
            namespace,
            connection,
            ..
        } = &mut family.reach
        else {
            return Ok(Some((family, None)));
        };
        let key = connection_key(&namespace.id, &client.id);
        let connection_record = self.records.standing.connection.as_ref();
        let ended_before_at = connection_record.and_then(|record| record.value.last_ended_at());
        // A consent from before the end must not restore the connection.
        if ended_before_at.is_some_and(|ended| consented_at <= ended) {
            return Ok(None);
        }
        let when = connection_record.map_or(When::Absent, |record| When::At(record.revision));
        if let Some(connection_record) =
            connection_record.filter(|record| record.value.revoked_at.is_none())
        {
            connection.clone_from(&connection_record.value.id);
            return Ok(Some((family, Some(Write::check(key, when)))));
        }
        let fresh = Connection {
            id: fresh_id("con_", self.now, &self.ports.random),
            client: client.id.clone(),
            name: client.name.clone(),
            document: client
                .document
                .as_ref()
                .map(|document| document.url.clone()),
            connected_at: self.now,
            revoked_at: None,
            ended_before_at,
        };
        connection.clone_from(&fresh.id);
        let write = Write::put(key, Document::from_value(&fresh)?, when);
        Ok(Some((family, Some(write))))
    }

    /// Returns the write that fails the commit if the connection of the family is ended meanwhile;
    /// `None` if it has ended. An operator's tokens have no connection and are never refreshed.
    fn connection_check(&self, family: &Family) -> Option<Write> {
        let standing = &self.records.standing;
        let record = standing.connection.as_ref();
        let record = record.filter(|_| standing.is_connected(family))?;
        let key = connection_key(family.namespace_id()?, &family.client);
        Some(Write::check(key, When::At(record.revision)))
    }

    /// Returns the writes that prolong the registration of a client in use. They are made only in
    /// the second half of its life, so that not every refresh costs another write.
    fn prolong_client(&self) -> Result<Vec<Write>, StoreError> {
        let half = self.now.plus_seconds(USED_SECONDS / 2);
        let expires_at = self.client.expires_at;
        if expires_at.is_none_or(|expires_at| expires_at > half) {
            return Ok(Vec::new());
        }
        // After its first use, it no longer counts among the unused registrations of its network.
        let used = self.client.value.used_writes();
        let client = Client {
            unused_of: None,
            ..self.client.value.clone()
        };
        let kept = Write::put_until(
            client_key(&client.id),
            Document::from_value(&client)?,
            When::At(self.client.revision),
            self.now.plus_seconds(USED_SECONDS),
        );
        Ok([kept].into_iter().chain(used).collect())
    }
}

/// Narrows the granted scopes to those of a `scope` parameter. Fails if it names none, or more than
/// were granted.
fn narrow_scopes(text: &str, granted: Scopes) -> Result<Scopes, TokenError> {
    let requested = Scopes::parse_known(text);
    if requested.is_empty() || !requested.is_subset_of(granted) {
        return Err(TokenError::InvalidScope);
    }
    Ok(requested)
}

fn is_same_digest(one: &Digest, other: &Digest) -> bool {
    // Compared in constant time, so that response times reveal nothing about a stored hash.
    one.as_bytes()
        .as_slice()
        .ct_eq(other.as_bytes().as_slice())
        .into()
}
