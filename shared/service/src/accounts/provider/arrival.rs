//! Chooses the account for a person who came back from the identity provider.
//!
//! The provider names a person by its issuer and a subject, which never change; an e-mail address
//! may. An account is *connected* to a person by a proof with that subject. An account *without a
//! proven owner* has no proof at all: it was invited, or reset, and nobody has signed in since.
//!
//! | The person is | Result |
//! |---|---|
//! | connected to an account | signs in to it, whatever address the provider names now |
//! | unknown, with the verified address of an account without a proven owner | is connected and signs in: the address was invited |
//! | unknown, with the verified address of any other account | must first enter its password |
//! | unknown, with a verified address without an account | gets one if it may sign up |
//! | unknown, without a verified address | is refused |
//!
//! A service lets any verified address sign up, or only those with an invitation ([`SignUpRule`]).

use std::net::IpAddr;

use axum::response::Response;
use vault_format::hash::Digest;
use vault_store::records::{When, Write};

use super::refused::RefusedSignIn;
use super::{connect, find_account};
use crate::accounts::audit;
use crate::accounts::second_factor;
use crate::accounts::session::{CompletedSignIn, SessionStart, new_half_session};
use crate::app::App;
use crate::config::SignUpRule;
use crate::model::Versioned;
use crate::model::account::{self, Account, AccountId, Email, account_key};
use crate::model::membership::invitations_partition;
use crate::model::provider_request::{PendingConnection, ProviderRequest};
use crate::model::session::Credentials;
use crate::model::subject;
use crate::oidc::{Address, Person};
use crate::transaction::Transaction;
use crate::web::browser::{Browser, ReturnTo};
use crate::web::error_page::ErrorPage;
use crate::web::remembered_browser::RememberedBrowser;

/// Audit log action: a first sign-in created an account.
const SIGN_UP: &str = "account.sign-up";
/// Audit log action: a sign-in connected a person to an account without a proven owner.
const CONNECT: &str = "account.connect";

/// A person who came back from the provider, with the browser and the request that sent it there.
pub struct ReturnedPerson<'a> {
    pub app: &'a App,
    pub issuer: &'a str,
    pub sign_up_rule: SignUpRule,
    pub browser: &'a Browser,
    pub returning: &'a RememberedBrowser,
    pub source: Option<IpAddr>,
    pub onward: ReturnTo<'a>,
    pub request: &'a ProviderRequest,
    pub person: &'a Person,
}

impl ReturnedPerson<'_> {
    /// Signs the person in, in the commit of `tx`, by the table of the module.
    pub async fn sign_in(&self, tx: &Transaction<'_>) -> Result<Response, ErrorPage> {
        let subject = subject::subject_digest(self.issuer, &self.person.subject);
        let (connected, when) = find_account(tx, &subject).await?;
        if let Some(connected) = connected {
            let key = account_key(&connected.value.id);
            // The account must be unchanged at the commit: it may be disabled or reset at this
            // moment.
            tx.write(Write::check(key, When::At(connected.revision)));
            return self
                .complete_sign_in(tx, connected.value, audit::SIGN_IN)
                .await;
        }
        // An unverified address proves nothing: it may belong to somebody else.
        let Address::Verified(address) = &self.person.address else {
            return Err(RefusedSignIn::AddressUnverified.into());
        };
        let address: Result<Email, _> = address.parse();
        let address = address.map_err(|_| RefusedSignIn::AddressUnverified)?;
        match account::find_account(tx, &address).await? {
            Some(found) if found.value.proofs.is_empty() => {
                self.connect_first_proof(tx, found, subject, when).await
            }
            Some(found) => self.ask_for_password(tx, found.value, subject).await,
            None => self.create_account(tx, address, subject, when).await,
        }
    }

    /// Connects the person to an account without a proven owner. The verified address is the proof.
    async fn connect_first_proof(
        &self,
        tx: &Transaction<'_>,
        found: Versioned<Account>,
        subject: Digest,
        when: When,
    ) -> Result<Response, ErrorPage> {
        let mut account = found.value;
        tx.write_all(account.connect_provider(self.issuer, subject, tx.now()));
        tx.write(account.update_write(found.revision)?);
        tx.write(subject::connection_write(&subject, &account.id, when)?);
        self.complete_sign_in(tx, account, CONNECT).await
    }

    async fn create_account(
        &self,
        tx: &Transaction<'_>,
        address: Email,
        subject: Digest,
        when: When,
    ) -> Result<Response, ErrorPage> {
        let now = tx.now();
        if self.sign_up_rule == SignUpRule::Invited {
            // An invitation to any vault suffices. The person accepts or declines it after the
            // sign-in.
            let invitations = invitations_partition(&address);
            let invited = tx.records.list_page(&invitations, "", None, 1).await?;
            if invited.is_empty() {
                return Err(RefusedSignIn::NotInvited.into());
            }
        }
        let id = AccountId::fresh(now, &tx.random);
        let mut account = Account::new(id, address, now);
        tx.write_all(account.connect_provider(self.issuer, subject, now));
        tx.write_all(account.creation_writes()?);
        tx.write(subject::connection_write(&subject, &account.id, when)?);
        self.complete_sign_in(tx, account, SIGN_UP).await
    }

    /// Signs the person in to `account`, or asks for the code of its second factor.
    async fn complete_sign_in(
        &self,
        tx: &Transaction<'_>,
        account: Account,
        action: &'static str,
    ) -> Result<Response, ErrorPage> {
        let app = self.app;
        self.refuse_disabled(&account).await?;
        tx.write_all(self.give_back_writes());
        // Unless the provider was told to ask for credentials and states that it did, the session
        // must not count as a fresh sign-in.
        let credentials = match (self.request.fresh, self.person.entered_at) {
            (true, Some(at)) => Credentials::Entered { at },
            (true, None) => Credentials::Unstated { at: tx.now() },
            (false, _) => Credentials::NotEntered,
        };
        // A session with unstated credentials confirms nothing: only a password or a second factor
        // does. The person is led to the page that says so; the page `onward` would only ask for
        // credentials again.
        let unstated = credentials.are_unstated();
        if account.second_factor.is_some() {
            let start = SessionStart::from_credentials(credentials);
            let (half, session) = new_half_session(app, self.browser, &account, start).await?;
            tx.write_all(session);
            let page = second_factor::render_code_page(app, &half, &account, self.onward, None);
            return Ok(page);
        }
        let completed = CompletedSignIn {
            browser: self.browser,
            returning: self.returning,
            source: self.source,
            onward: if unstated {
                ReturnTo::SecondFactor
            } else {
                self.onward
            },
            action,
            second_factor: false,
            credentials,
            notice: self.address_notice(&account),
        };
        Ok(completed.begin_session(tx, app, &account).await?)
    }

    /// Shows the page on which the person enters the password of the existing account, to connect
    /// the sign-in to it.
    async fn ask_for_password(
        &self,
        tx: &Transaction<'_>,
        account: Account,
        subject: Digest,
    ) -> Result<Response, ErrorPage> {
        let app = self.app;
        self.refuse_disabled(&account).await?;
        // The page can only ask for a password. An account that is connected to another person of a
        // provider may have none.
        if account.password_hash().is_none() {
            return Err(RefusedSignIn::Unprovable.into());
        }
        let pending = PendingConnection {
            account: account.id.clone(),
            issuer: self.issuer.to_owned(),
            subject,
        };
        tx.write(pending.creation_write(&self.browser.hash(), tx.now())?);
        tx.write_all(self.give_back_writes());
        Ok(connect::render_page(
            app,
            self.browser,
            self.onward,
            &account,
            None,
        ))
    }

    async fn refuse_disabled(&self, account: &Account) -> Result<(), ErrorPage> {
        if !account.disabled {
            return Ok(());
        }
        let email = account.email.as_str();
        audit::record_refused_sign_in(self.app, email, self.source, "account_disabled").await;
        Err(RefusedSignIn::Disabled.into())
    }

    /// Returns the writes that take back what the request counted against its networks, since it
    /// did not fail.
    fn give_back_writes(&self) -> Vec<Write> {
        let limit = self.app.config.limits.sign_in_failures;
        let windows = self.request.sign_in_windows(limit);
        let windows = windows.iter();
        windows
            .filter_map(|window| window.releasing_write(self.request.at))
            .collect()
    }

    /// Returns a notice if the person's address at the provider is no longer that of the account.
    fn address_notice(&self, account: &Account) -> Option<String> {
        let (Address::Verified(now) | Address::Unverified(now)) = &self.person.address else {
            return None;
        };
        let same = now.parse().is_ok_and(|now: Email| now == account.email);
        // The provider chose this text, so control characters are removed, and it is cut to the
        // maximum length of an address.
        let shown: String = now.chars().filter(|c| !c.is_control()).take(254).collect();
        (!same).then(|| {
            format!(
                "Your address at the identity provider is {shown}. This account keeps {}.",
                account.email
            )
        })
    }
}
