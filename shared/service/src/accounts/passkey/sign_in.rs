//! Sign-in with a passkey: the page that asks the authenticator, and the check of its answer.
//!
//! | step | who | which passkey |
//! |---|---|---|
//! | `sign-in` | any browser | the authenticator offers those that it has for this service |
//! | `second-factor` | a browser whose first proof was accepted | those of that account |
//!
//! The page after a refused answer does not reveal whether a passkey or its account exists.

use std::net::IpAddr;

use askama::Template;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use vault_store::StoreError;
use webauthn_rs::prelude::{
    Passkey as Credential, PublicKeyCredential, Uuid, Webauthn, WebauthnError,
};

use super::challenge::{store_challenge, take_challenge};
use super::relying_party::{internal_error, passkeys_off, relying_party, signs_in_with_passkeys};
use crate::accounts::audit;
use crate::accounts::session::CompletedSignIn;
use crate::accounts::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::model::account::{Account, AccountId, account_key};
use crate::model::limits::{NetworkLimit, Networks, Window, count_or_refuse};
use crate::model::passkey::{PasskeyEntry, passkey_id, passkey_key};
use crate::model::passkey_challenge::{AssertionState, Challenge, ChallengePurpose};
use crate::model::redirect::RedirectUri;
use crate::model::session::Credentials;
use crate::transaction::Transaction;
use crate::web::browser::{PostedForm, ReturnTo, SignedIn, read_posted_form};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, PASSKEY_SCRIPT};

/// Audit log action: an account signed in with a passkey, alone or in place of a code.
const SIGN_IN: &str = "account.sign-in-by-passkey";
/// Window in which the challenges without a successful answer are counted for each network, in
/// seconds: 15 minutes.
const WINDOW_SECONDS: i64 = 15 * 60;
/// Message when an answer is refused, whatever the reason.
const NOT_ACCEPTED: &str = "This passkey was not accepted. Try again, or sign in another way.";
/// Message when the browser's answer has no stored challenge any more.
const TOO_LATE: &str = "The passkey came too late, or was sent before. Try again.";

/// Step of a sign-in for which a passkey is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// The passkey signs in alone.
    SignIn,
    /// The passkey takes the place of the code of a second factor.
    SecondFactor,
}

impl Step {
    fn parse(word: Option<&str>) -> Option<Self> {
        [Self::SignIn, Self::SecondFactor]
            .into_iter()
            .find(|step| word == Some(step.challenge().as_str()))
    }

    const fn challenge(self) -> ChallengePurpose {
        match self {
            Self::SignIn => ChallengePurpose::SignIn,
            Self::SecondFactor => ChallengePurpose::SecondFactor,
        }
    }

    const fn form(self) -> Purpose {
        match self {
            Self::SignIn => Purpose::Login,
            Self::SecondFactor => Purpose::SecondFactor,
        }
    }
}

/// Page whose script asks the browser for a passkey.
#[derive(Template)]
#[template(path = "passkey.html")]
struct PasskeyPage {
    frame: Frame,
    csrf: String,
    return_to: String,
    step: &'static str,
    /// Argument of `navigator.credentials.get`, as JSON.
    options: String,
    problem: Option<&'static str>,
    /// Whether the person may enter a code instead.
    asks_for_code: bool,
    /// Whether the form for a code stands below the request for a passkey, which then has the
    /// focus.
    beside_passkey: bool,
    script: &'static str,
}

/// A request for a challenge or an answer to one, from a browser that may take this step.
struct Ceremony<'a> {
    app: &'a App,
    posted: &'a PostedForm,
    onward: ReturnTo<'a>,
    step: Step,
    /// The half session and its account, in the step `second-factor`: the first proof was accepted.
    half: Option<SignedIn>,
    /// Verifier of passkeys for this service.
    party: Webauthn,
    /// Redirect URI of the client that waits for the sign-in. The page's content security policy
    /// must allow it, because the redirects after this page may end there.
    answer_to: Option<RedirectUri>,
}

impl<'a> Ceremony<'a> {
    /// Checks a form. Returns the sign-in page as the inner `Err` to a browser that may not take
    /// the step. `answer_to` finds the redirect URI of the client that made an authorize request.
    async fn from_form(
        app: &'a App,
        posted: &'a PostedForm,
        answer_to: impl AsyncFnOnce(&str, Option<IpAddr>) -> Option<RedirectUri>,
    ) -> Result<Result<Self, Response>, ErrorPage> {
        let PostedForm { form, browser, .. } = posted;
        let onward = ReturnTo::from_form(app, form)?;
        let step = Step::parse(form.value("step")).ok_or(ErrorPage::FormMalformed)?;
        browser.check_form(app, form, step.form(), onward.form_subject())?;
        let party = relying_party(&app.config.public_url).ok_or_else(passkeys_off)?;
        let half = match step {
            Step::SignIn if !signs_in_with_passkeys(app) => return Err(passkeys_off()),
            Step::SignIn => None,
            Step::SecondFactor => {
                let half = browser.load_half_signed_in(app).await?;
                let Some(half) = half.filter(|half| !half.account.passkeys.is_empty()) else {
                    let prompt = SignInPrompt::default();
                    return Ok(Err(render_sign_in_page(app, browser, onward, prompt)));
                };
                Some(half)
            }
        };
        let answer_to = match onward {
            ReturnTo::Authorize(query) => answer_to(query, posted.source).await,
            _ => None,
        };
        Ok(Ok(Self {
            app,
            posted,
            onward,
            step,
            half,
            party,
            answer_to,
        }))
    }

    /// Returns the windows in which the challenges of a client's networks are counted; a successful
    /// sign-in takes its count back. Nothing is counted for an account, because a passkey cannot be
    /// guessed.
    fn windows(&self, networks: &Networks) -> Vec<Window<'static>> {
        let limit = NetworkLimit {
            name: "sign-in-passkey",
            about: None,
            limit: self.app.config.limits.sign_in_failures,
            seconds: WINDOW_SECONDS,
        };
        limit.windows(networks)
    }

    /// Stores a fresh challenge and renders the page that asks for its answer.
    async fn show_page(
        &self,
        problem: Option<(StatusCode, &'static str)>,
    ) -> Result<Response, ErrorPage> {
        let (app, browser) = (self.app, &self.posted.browser);
        let networks = Networks::of(self.posted.source);
        count_or_refuse(app, &self.windows(&networks), app.clock.now()).await?;
        let begun = self.party.start_discoverable_authentication();
        let (mut request, authentication) = begun.map_err(internal_error)?;
        // webauthn-rs adds an extension for sign-in by autofill. This page needs none, and a
        // browser that does not know an extension may refuse the call.
        request.public_key.extensions = None;
        if let Some(half) = &self.half {
            // This call is made only for the list of the account's passkeys; its challenge is not
            // used.
            let held = half.account.passkeys.as_slice().iter();
            let held: Vec<Credential> = held.map(|passkey| passkey.credential().clone()).collect();
            let asked = self.party.start_passkey_authentication(&held);
            let (asked, _) = asked.map_err(internal_error)?;
            request.public_key.allow_credentials = asked.public_key.allow_credentials;
        }
        let state = AssertionState {
            networks,
            authentication,
        };
        store_challenge(app, browser, self.step.challenge(), state).await?;
        let page = PasskeyPage {
            frame: Frame::for_service(&app.config.public_url),
            csrf: browser.form_token(app, self.step.form(), self.onward.form_subject()),
            return_to: self.onward.address(app),
            step: self.step.challenge().as_str(),
            options: serde_json::to_string(&request.public_key).map_err(internal_error)?,
            problem: problem.map(|(_, problem)| problem),
            asks_for_code: self.step == Step::SecondFactor,
            beside_passkey: true,
            script: PASSKEY_SCRIPT,
        };
        let status = problem.map_or(StatusCode::OK, |(status, _)| status);
        let answer_to = self.answer_to.as_ref();
        Ok(layout::render_passkey_page(status, &page, answer_to))
    }
}

/// A refused answer, as the audit log needs it.
enum RefusedPasskey {
    /// No account has the passkey, or the text is no answer of an authenticator. Nothing is
    /// recorded.
    Unknown,
    /// The answer is for this account: its first proof was accepted, or the index names it for the
    /// passkey.
    OfAccount {
        /// E-mail address of the account, in whose logs the refusal is recorded.
        email: String,
        /// Outcome for the audit entry, such as `passkey_refused`.
        outcome: &'static str,
    },
}

impl Ceremony<'_> {
    /// Returns the account that an answer is for: the one whose first proof was accepted, or the
    /// one that the index names for the passkey. `begin_session` checks that the account has the
    /// passkey.
    async fn find_account(
        &self,
        answer: &PublicKeyCredential,
    ) -> Result<Option<AccountId>, StoreError> {
        if let Some(half) = &self.half {
            return Ok(Some(half.account.id.clone()));
        }
        let key = passkey_key(&passkey_id(answer.get_credential_id()));
        let entry = self.app.get::<PasskeyEntry>(&key).await?;
        Ok(entry.map(|entry| entry.value.account))
    }

    /// Checks an answer against the account as it is now, and begins the session in the commit of
    /// `tx`.
    async fn begin_session(
        &self,
        tx: &Transaction<'_>,
        (id, answer): (&AccountId, &PublicKeyCredential),
        challenge: &Challenge<AssertionState>,
    ) -> Result<Result<Response, RefusedPasskey>, StoreError> {
        let (app, now) = (self.app, tx.now());
        let Some(stored) = tx.get::<Account>(&account_key(id)).await? else {
            return Ok(Err(RefusedPasskey::Unknown));
        };
        let mut account = stored.value;
        let email = account.email.to_string();
        let refuse = |outcome| Ok(Err(RefusedPasskey::OfAccount { email, outcome }));
        if !account.can_sign_in() {
            return refuse("account_disabled");
        }
        // The account may have been reset since the first proof was accepted.
        let half = self.half.as_ref();
        if half.is_some_and(|half| !half.session.matches_present_account(&account)) {
            return refuse("passkey_refused");
        }
        let credential_id = passkey_id(answer.get_credential_id());
        let user = answer.get_user_unique_id().map(Uuid::from_slice);
        let passkey = match user {
            Some(Ok(user)) => account.passkeys.find_mut(&credential_id, Some(user)),
            // An authenticator may leave out the user if it was asked for a passkey of a given
            // list. The account is known here.
            None if half.is_some() => account.passkeys.find_mut(&credential_id, None),
            _ => None,
        };
        let Some(passkey) = passkey else {
            return refuse("passkey_refused");
        };
        if is_cross_origin(answer) {
            return refuse("passkey_refused");
        }
        let authentication = challenge.state.authentication.clone();
        let checked = self.party.finish_discoverable_authentication_v2(
            answer,
            authentication,
            passkey.credential(),
        );
        let result = match checked {
            Ok(result) if result.user_verified() => result,
            // The signature counter went back: somebody may have copied the authenticator's key.
            Err(WebauthnError::CredentialPossibleCompromise) => return refuse("passkey_counter"),
            _ => return refuse("passkey_refused"),
        };
        passkey.record_use(&result, now);
        tx.write(account.update_write(stored.revision)?);
        let windows = self.windows(&challenge.state.networks);
        let begun_at = challenge.begun_at();
        let releasing_write = windows.iter();
        tx.write_all(releasing_write.filter_map(|window| window.releasing_write(begun_at)));
        let completed = CompletedSignIn {
            browser: &self.posted.browser,
            returning: &self.posted.returning,
            source: self.posted.source,
            onward: self.onward,
            action: SIGN_IN,
            // The authenticator verified its user, so one use counts as two factors.
            second_factor: true,
            credentials: Credentials::Entered { at: now },
            notice: None,
        };
        completed.begin_session(tx, app, &account).await.map(Ok)
    }
}

/// Whether the browser reports that the asking page stood in a frame of another origin (WebAuthn
/// level 3, section 7.2, steps 13 and 14). webauthn-rs checks this only when a passkey is created.
fn is_cross_origin(answer: &PublicKeyCredential) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ClientData {
        #[serde(default)]
        cross_origin: bool,
        #[serde(default)]
        top_origin: Option<serde::de::IgnoredAny>,
    }
    let client_data = serde_json::from_slice::<ClientData>(&answer.response.client_data_json);
    // Unreadable client data counts as cross-origin.
    client_data.map_or(true, |data| data.cross_origin || data.top_origin.is_some())
}

/// `POST /oauth/passkey`: shows the page that asks the browser for a passkey. `answer_to` returns
/// the redirect URI of the client that sent an authorize request, given its query.
pub async fn ask_for_passkey(
    app: &App,
    request: Request,
    answer_to: impl AsyncFnOnce(&str, Option<IpAddr>) -> Option<RedirectUri>,
) -> Result<Response, ErrorPage> {
    let posted = read_posted_form(app, request).await?;
    match Ceremony::from_form(app, &posted, answer_to).await? {
        Ok(ceremony) => ceremony.show_page(None).await,
        Err(page) => Ok(page),
    }
}

/// `POST /oauth/passkey/answer`: checks the answer of an authenticator and begins a session.
pub async fn sign_in_with_passkey(
    app: &App,
    request: Request,
    answer_to: impl AsyncFnOnce(&str, Option<IpAddr>) -> Option<RedirectUri>,
) -> Result<Response, ErrorPage> {
    let posted = read_posted_form(app, request).await?;
    let ceremony = match Ceremony::from_form(app, &posted, answer_to).await? {
        Ok(ceremony) => ceremony,
        Err(page) => return Ok(page),
    };
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let purpose = ceremony.step.challenge();
    let challenge = take_challenge::<AssertionState>(app, &posted.browser, purpose).await?;
    let Some(challenge) = challenge else {
        return ceremony.show_page(Some((unprocessable, TOO_LATE))).await;
    };
    let answer = posted.form.value("credential").unwrap_or_default();
    let refused = match serde_json::from_str::<PublicKeyCredential>(answer) {
        Err(_) => RefusedPasskey::Unknown,
        Ok(answer) => match ceremony.find_account(&answer).await? {
            None => RefusedPasskey::Unknown,
            Some(id) => {
                let begin = async |tx| {
                    let proof = (&id, &answer);
                    ceremony.begin_session(&tx, proof, &challenge).await
                };
                match app.change(begin).await? {
                    Ok(response) => return Ok(response),
                    Err(refused) => refused,
                }
            }
        },
    };
    if let RefusedPasskey::OfAccount { email, outcome } = refused {
        audit::record_refused_sign_in(app, &email, posted.source, outcome).await;
    }
    let problem = (unprocessable, NOT_ACCEPTED);
    ceremony.show_page(Some(problem)).await
}
