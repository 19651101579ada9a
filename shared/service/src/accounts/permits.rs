//! Permits for dangerous acts: asks the person, records the decision, and uses up a permit in the
//! commit of its act.
//!
//! An *act* is a change that the person must confirm each time, such as the deletion of a vault. A
//! *permit* holds the acts of one request. Its states are asked, confirmed or declined; it ends ten
//! minutes after the request for it, and five minutes after its confirmation. Each act of a
//! confirmed permit can be used once.
//!
//! Rule: no token and no session suffices for such an act, however fresh its credentials are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::json;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::MAX_PAGE;

use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::Versioned;
use crate::model::account::AccountId;
use crate::model::audit::{Actor, Change};
use crate::model::client::ClientId;
use crate::model::device::find_device;
use crate::model::namespace::NamespaceRef;
use crate::model::permit::{
    ASKED_SECONDS, Act, LoadedPermits, MAX_PERMITS, Permit, PermitState, Permits, PermittedAct,
    permits_partition,
};
use crate::model::user::{User, user_key};
use crate::transaction::Transaction;
use crate::web::browser::CONFIRM_PATH;

/// The party that asks to perform an act: an app, or the person in the console.
#[derive(Clone, Copy, Debug)]
pub struct PermitRequester<'a> {
    /// Account for which the act is requested. Only the person who is signed in to it can confirm.
    pub account: &'a AccountId,
    /// The app that asks; `None` if the console does.
    pub client: Option<&'a ClientId>,
    /// Party that the audit log names as the one that requested the act.
    pub actor: &'a Actor,
    /// The vault that the act changes; `None` for acts of an operator.
    pub namespace: Option<&'a NamespaceRef>,
    /// Id of a permit that the person confirms in this very request (a form of the console). The
    /// commit of the act then also records the decision.
    pub confirms: Option<&'a str>,
}

/// An act of a permit that is now used up.
struct SpentAct {
    /// Id of the permit, for the audit log.
    id: String,
    /// Description of the act, as the person confirmed it.
    sentence: String,
    ends_at: Timestamp,
}

impl PermitRequester<'_> {
    fn namespace_id(&self) -> Option<&NamespaceId> {
        self.namespace.map(|namespace| &namespace.id)
    }

    /// Uses up the confirmed permit for `act` in the commit of the transaction, and returns the
    /// time at which the permit ends. Fails with `ConfirmationNeeded` unless a permit fits in all
    /// of these: account, app, vault, act and its values.
    pub async fn spend(&self, tx: &Transaction<'_>, act: &Act) -> Result<Timestamp, Refusal> {
        let mut loaded = LoadedPermits::load(tx, self.account, self.client).await?;
        let SpentAct {
            id,
            sentence,
            ends_at,
        } = self.take(tx, &mut loaded, act)?;
        // The write requires the revision that was read: of two requests that use the permit at
        // once, one fails.
        tx.write(loaded.into_write()?);
        let change = Change::about(&id).with_after(json!({ "act": sentence }));
        tx.audit(self.namespace_id(), self.actor, "confirmation.use", change)?;
        Ok(ends_at)
    }

    /// Marks the act as used in a confirmed permit.
    fn take(
        &self,
        tx: &Transaction<'_>,
        loaded: &mut LoadedPermits,
        act: &Act,
    ) -> Result<SpentAct, Refusal> {
        let permits = &mut loaded.permits;
        let is_confirmed_now = |permit: &Permit| {
            permit.state == PermitState::Asked && self.confirms == Some(permit.id.as_str())
        };
        if let Some(permit) = permits.iter_mut().find(|permit| is_confirmed_now(permit)) {
            *permit = permit.clone().decided(true, tx.now());
            audit_decision(tx, permit, self.client, self.actor)?;
        }
        let mut confirmed = permits
            .iter_mut()
            .filter(|permit| permit.state == PermitState::Confirmed);
        let found = confirmed.find_map(|permit| {
            let (id, ends_at) = (permit.id.clone(), permit.ends_at);
            let permitted = permit.find_unused(self.namespace, act)?;
            permitted.used = true;
            let sentence = permitted.sentence.clone();
            Some(SpentAct {
                id,
                sentence,
                ends_at,
            })
        });
        let spent = found.ok_or(ErrorCode::ConfirmationNeeded)?;
        // A permit whose acts are all used would only count against the maximum number of permits.
        permits.retain(|permit| permit.acts.iter().any(|act| !act.used));
        Ok(spent)
    }

    /// Asks the person to confirm the acts of one request, and returns the permit. If an equal
    /// permit already waits or is confirmed, it is returned; one that waits gets the full time
    /// again. Fails with `ConfirmationDeclined` if the person has just declined one of the acts,
    /// and with `RateLimited` if there are too many permits.
    pub async fn ask(&self, app: &App, acts: &[Act]) -> Result<Permit, Refusal> {
        let permitted = self.describe_acts(app, acts).await?;
        app.change(async |tx| {
            let mut loaded = LoadedPermits::load(&tx, self.account, self.client).await?;
            let mut with_acts = loaded
                .permits
                .iter_mut()
                .filter(|permit| self.has_acts(permit, acts));
            if let Some(permit) = with_acts.find(|permit| permit.state != PermitState::Declined) {
                let ends_at = tx.now().plus_seconds(ASKED_SECONDS);
                // The person gets the full time again. A confirmed permit keeps its end.
                if permit.state == PermitState::Asked && permit.ends_at < ends_at {
                    permit.ends_at = ends_at;
                    let permit = permit.clone();
                    tx.write(loaded.into_write()?);
                    return Ok(permit);
                }
                return Ok(permit.clone());
            }
            self.check_may_ask(&loaded.permits, acts, tx.now().unix())?;
            let (acts, namespace) = (permitted.clone(), self.namespace.cloned());
            let permit = Permit::ask_for(acts, namespace, self.actor, &tx);
            loaded.permits.push(permit.clone());
            tx.write(loaded.into_write()?);
            let sentences = json!({ "acts": permit.sentences() });
            let change = Change::about(&permit.id).with_after(sentences);
            tx.audit(self.namespace_id(), self.actor, "confirmation.ask", change)?;
            Ok(permit)
        })
        .await
    }

    /// Describes the acts with the present e-mail addresses of their users and names of their
    /// machines.
    async fn describe_acts(
        &self,
        app: &App,
        acts: &[Act],
    ) -> Result<Vec<PermittedAct>, StoreError> {
        let mut permitted = Vec::new();
        let slug = self
            .namespace
            .map_or("", |namespace| namespace.slug.as_str());
        for (act, user) in acts.iter().zip(self.load_users(app, acts).await?) {
            let machine = name_machine(app, self.namespace, act).await?;
            let target = match &user {
                Some(user) => user.email.as_str(),
                None => machine.as_deref().or(act.user_id()).unwrap_or_default(),
            };
            permitted.push(PermittedAct {
                act: act.clone(),
                sentence: act.describe(slug, target),
                used: false,
            });
        }
        Ok(permitted)
    }

    /// Loads the users whom the acts are about, in one read. The result has one element for each
    /// act: `None` if the act is about no user.
    async fn load_users(&self, app: &App, acts: &[Act]) -> Result<Vec<Option<User>>, StoreError> {
        let Some(home) = self.namespace else {
            return Ok(vec![None; acts.len()]);
        };
        let key_of = |act: &Act| act.user_id().map(|id| user_key(&home.id, id));
        // Two acts may be about the same user, and one read must not contain a key twice.
        let keys: BTreeSet<_> = acts.iter().filter_map(key_of).collect();
        let keys: Vec<_> = keys.into_iter().collect();
        let records = if keys.is_empty() {
            Vec::new()
        } else {
            app.records.get_many(&keys).await?
        };
        let mut users = BTreeMap::new();
        for (key, record) in keys.into_iter().zip(records) {
            let user = Versioned::<User>::read(record)?;
            users.insert(key, user.map(|found| found.value));
        }
        let of_act = |act| key_of(act).and_then(|key| users.get(&key).cloned().flatten());
        Ok(acts.iter().map(of_act).collect())
    }

    /// Whether a permit is for exactly these acts, of which none has been used.
    fn has_acts(&self, permit: &Permit, acts: &[Act]) -> bool {
        permit.namespace.as_ref() == self.namespace
            && permit.acts.len() == acts.len()
            && permit
                .acts
                .iter()
                .zip(acts)
                .all(|(permitted, act)| !permitted.used && permitted.act == *act)
    }

    /// Fails if the person has just declined one of the acts, or if there are too many permits.
    fn check_may_ask(&self, permits: &[Permit], acts: &[Act], now: i64) -> Result<(), Refusal> {
        let declined = permits.iter().filter(|permit| {
            permit.state == PermitState::Declined && permit.namespace.as_ref() == self.namespace
        });
        let mut declined_acts = declined.flat_map(|permit| &permit.acts);
        // An app must not repeat a question until the person gives in. In the console, it is the
        // person who asks.
        if self.client.is_some() && declined_acts.any(|permitted| acts.contains(&permitted.act)) {
            return Err(ErrorCode::ConfirmationDeclined.into());
        }
        if permits.len() < MAX_PERMITS {
            return Ok(());
        }
        let first_end = permits.iter().map(|permit| permit.ends_at.unix()).min();
        let wait = first_end.map_or(1, |end| (end - now).max(1));
        Err(Refusal::new(ErrorCode::RateLimited)
            .retry_after(wait.unsigned_abs())
            .detail(
                "This app has 20 confirmations that have not ended. Decline those on their pages that are not needed, or try again when the first of them ends.",
            ))
    }
}

/// Returns the name and fingerprint of the machine that an act is about, or its id if it was
/// removed; `None` for an act about no machine.
pub async fn name_machine(
    app: &App,
    home: Option<&NamespaceRef>,
    act: &Act,
) -> Result<Option<String>, StoreError> {
    let (Some(home), Some(id)) = (home, act.machine_id()) else {
        return Ok(None);
    };
    let found = find_device(app, home, id).await?;
    let name = found.map(|found| found.device.name_and_fingerprint());
    Ok(Some(name.unwrap_or_else(|| id.to_owned())))
}

/// Converts a permit to its form in the API, with the address of the page that decides about it.
pub fn to_api_confirmation(app: &App, permit: &Permit) -> vault_api::Confirmation {
    let base = app.config.public_url.base();
    vault_api::Confirmation {
        id: permit.id.clone(),
        url: format!("{base}{CONFIRM_PATH}{}", permit.id),
        state: permit.state,
        expires_at: permit.ends_at,
    }
}

/// A permit, with the app that asked for it.
pub struct FoundPermit {
    /// The permit, which has not ended.
    pub permit: Permit,
    /// The app that asked; `None` if the console did.
    pub client: Option<ClientId>,
}

/// Finds the permit of an account with this id; `None` if it has ended or belongs to another
/// account.
pub async fn find_permit(
    app: &App,
    account: &AccountId,
    id: &str,
) -> Result<Option<FoundPermit>, StoreError> {
    let (partition, now) = (permits_partition(account), app.now());
    // There is one record for each app with permits, and they end soon, so one page has them all.
    let listed = app
        .records
        .list_page(&partition, "", None, MAX_PAGE)
        .await?;
    for record in &listed {
        let permits: Permits = record.read()?;
        let mut permits = permits.permits.into_iter();
        if let Some(permit) = permits.find(|permit| permit.id == id && now < permit.ends_at) {
            // The record's key is the client's id. Any other key is that of the console.
            let client = record.key.key.parse().ok();
            return Ok(Some(FoundPermit { permit, client }));
        }
    }
    Ok(None)
}

/// Records the person's decision about a permit that waits. Returns the permit; `None` if it has
/// ended or was decided before.
pub async fn decide(
    app: &App,
    account: &AccountId,
    found: &FoundPermit,
    confirmed: bool,
    source: Option<IpAddr>,
) -> Result<Option<Permit>, StoreError> {
    let actor = Actor {
        user: found.permit.actor.clone(),
        client: None,
        source,
    };
    app.change(async |tx| {
        let mut loaded = LoadedPermits::load(&tx, account, found.client.as_ref()).await?;
        let mut permits = loaded.permits.iter_mut();
        let waiting = permits
            .find(|permit| permit.id == found.permit.id && permit.state == PermitState::Asked);
        let Some(permit) = waiting else {
            return Ok(None);
        };
        *permit = permit.clone().decided(confirmed, tx.now());
        let permit = permit.clone();
        tx.write(loaded.into_write()?);
        audit_decision(&tx, &permit, found.client.as_ref(), &actor)?;
        Ok(Some(permit))
    })
    .await
}

/// Adds the audit record of the person's decision to the commit that stores it.
fn audit_decision(
    tx: &Transaction<'_>,
    permit: &Permit,
    client: Option<&ClientId>,
    actor: &Actor,
) -> Result<(), StoreError> {
    let acts = permit.sentences();
    let change = Change::about(&permit.id).with_after(json!({ "acts": acts, "client": client }));
    let action = match permit.state {
        PermitState::Declined => "confirmation.decline",
        PermitState::Asked | PermitState::Confirmed => "confirmation.confirm",
    };
    let log = permit.namespace.as_ref().map(|namespace| &namespace.id);
    tx.audit(log, actor, action, change)
}
