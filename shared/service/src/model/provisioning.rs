//! Sign-up for a hosted vault: five steps, each pending or done, from the choice of a name to the
//! first release. The functions here only compute the next state of a [`Provisioning`].
//!
//! | partition | key | document |
//! |---|---|---|
//! | `provisioning/<reference>` | `provisioning` | [`Provisioning`]; 7 days while it is unpaid |
//! | `provisioning-open` | `<reference>` | index: those on which the service has something to do |
//! | `acct/<account_id>` | `sign-up/<reference>` | index: the sign-ups of an account |
//! | `acct/<account_id>` | `sign-up-slot/<n>` | [`Link`], one of three unpaid sign-ups of an account; 24 hours |
//! | `reserved/<slug>` | `reservation` | [`Link`], who may take the name; 24 hours |
//! | `ns/<slug>` | `provisioning` | [`Link`], from an allocated namespace to its sign-up |
//!
//! The reference of a sign-up is random, and only the person and the payment provider know it.
//! Payments contain the reference and not the vault's name: otherwise anybody could pay for a name
//! and then withdraw the payment.

use serde::{Deserialize, Serialize};
use vault_format::name::{SkillName, Slug};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account::{AccountId, account_partition};
use super::namespace::NamespaceRef;
use super::payment::SubscriptionId;
pub use super::reference::Reference;
pub use vault_api::{ProvisioningStep as Step, ProvisioningStepName as StepName, StepState};

/// Time for which a name is reserved for a sign-up, in seconds: 24 hours.
pub const RESERVATION_SECONDS: i64 = 24 * 3600;
/// Lifetime of an unpaid sign-up, in days. A checkout page may be open for a day, and the payment
/// provider repeats its events for three.
pub const UNPAID_DAYS: i64 = 7;
/// Maximum number of unpaid sign-ups of one account; where vaults are free, of its vaults.
pub const MAX_UNPAID: usize = 3;
/// Maximum number of further subscriptions of one sign-up ([`Provisioning::standby`]).
pub const MAX_STANDBY: usize = 8;
/// Partition of the sign-ups that the service has to work on.
pub const OPEN: &str = "provisioning-open";
/// Prefix of the keys of an account's sign-ups in its partition.
pub const SIGN_UPS: &str = "sign-up/";

/// A record that refers to a sign-up.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Link {
    /// Reference of the sign-up.
    pub reference: Reference,
}

/// State of the payment for a sign-up.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SignUpPayment {
    /// Vaults were free when the person signed up.
    Free,
    /// No payment has been confirmed.
    Awaited,
    /// A payment was confirmed. This remains when a later one fails.
    Confirmed,
}

/// A sign-up: the person's choices and its progress.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Provisioning {
    /// Random name of the sign-up.
    pub reference: Reference,
    /// Account that will own the vault.
    pub account: AccountId,
    /// Name that the vault is to have.
    pub slug: Slug,
    /// Name of the chosen plan; `None` where vaults are free.
    pub plan: Option<String>,
    /// Starter skills that the person chose.
    pub starter_skills: Vec<SkillName>,
    /// Whether a payment for the vault is needed and was confirmed.
    #[serde(rename = "paid_access")]
    pub payment: SignUpPayment,
    /// Subscription that pays for the vault.
    pub subscription: Option<SubscriptionId>,
    /// Further subscriptions for the same sign-up. One of them takes over when `subscription` ends.
    /// At most [`MAX_STANDBY`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standby: Vec<SubscriptionId>,
    /// The vault, once its namespace is created.
    pub namespace: Option<NamespaceRef>,
    /// Whether the starter skills were saved as drafts in the vault.
    pub imported: bool,
    /// Time of the sign-up.
    pub created_at: Timestamp,
    /// Time of the first payment that was not accepted, such as one for another plan, since a
    /// payment was last accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Timestamp>,
}

/// An event in the course of a sign-up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProvisioningEvent {
    /// The sign-up has these subscriptions now: the one that pays, and the further ones.
    Bound(Option<SubscriptionId>, Vec<SubscriptionId>),
    /// A payment of the subscription was confirmed.
    Paid,
    /// A payment arrived at this time that was not accepted.
    Refused(Timestamp),
    /// The person chose another name.
    Renamed(Slug),
    /// The namespace was created, so the vault can get no other name.
    Allocated(NamespaceRef),
    /// The starter skills were saved as drafts.
    Imported,
}

/// Error: an event is not possible in the present state of a sign-up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OutOfOrder {
    /// The namespace cannot be created before a payment is confirmed.
    #[error("access has not been paid for")]
    Unpaid,
    /// The starter skills cannot be saved before the namespace exists.
    #[error("the namespace has not been allocated")]
    Unallocated,
    /// The namespace exists, so the vault can get no other name.
    #[error("the namespace has been allocated already")]
    Allocated,
}

/// Next action of the service for a sign-up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextAction {
    /// The service waits for a payment.
    Wait,
    /// The service creates the namespace.
    Allocate,
    /// The service saves the starter skills as drafts.
    Import,
    /// Nothing; the remaining steps are the owner's.
    Nothing,
}

impl Provisioning {
    /// Returns the sign-up after an event, or `None` if the event changes nothing, for example
    /// because it is repeated. Fails if another event has to happen first.
    pub fn after_event(&self, happened: ProvisioningEvent) -> Result<Option<Self>, OutOfOrder> {
        let mut after = self.clone();
        match happened {
            ProvisioningEvent::Bound(subscription, standby) => {
                (after.subscription, after.standby) = (subscription, standby);
            }
            ProvisioningEvent::Paid => {
                after.refused_at = None;
                if self.payment == SignUpPayment::Awaited {
                    after.payment = SignUpPayment::Confirmed;
                }
            }
            ProvisioningEvent::Refused(at) => after.refused_at = self.refused_at.or(Some(at)),
            ProvisioningEvent::Renamed(_) if self.namespace.is_some() => {
                return Err(OutOfOrder::Allocated);
            }
            ProvisioningEvent::Renamed(slug) if slug != self.slug => {
                after.slug = slug;
            }
            ProvisioningEvent::Renamed(_) => {}
            ProvisioningEvent::Allocated(_) if self.payment == SignUpPayment::Awaited => {
                return Err(OutOfOrder::Unpaid);
            }
            // The first process to do so has created it, and its namespace stays.
            ProvisioningEvent::Allocated(namespace) => {
                after.namespace = self.namespace.clone().or(Some(namespace));
            }
            ProvisioningEvent::Imported if self.namespace.is_none() => {
                return Err(OutOfOrder::Unallocated);
            }
            ProvisioningEvent::Imported => after.imported = true,
        }
        // Events and steps are repeated; a repetition must write nothing.
        Ok((after != *self).then_some(after))
    }

    /// Returns what the service itself has to do next; the steps of the owner are not among it.
    pub fn next_action(&self) -> NextAction {
        match (self.payment, &self.namespace, self.imported) {
            (SignUpPayment::Awaited, None, _) => NextAction::Wait,
            (_, None, _) => NextAction::Allocate,
            (_, Some(_), false) => NextAction::Import,
            (_, Some(_), true) => NextAction::Nothing,
        }
    }

    /// Returns the time until which the vault's name is reserved while nothing is paid.
    pub fn reserved_until(&self) -> Timestamp {
        self.created_at.plus_seconds(RESERVATION_SECONDS)
    }

    /// Whether its record is kept for good, because a payment was confirmed or the vault exists.
    pub fn is_kept(&self) -> bool {
        self.payment == SignUpPayment::Confirmed || self.namespace.is_some()
    }

    /// Returns the five set-up steps, each pending or done. `synced` tells whether the vault has a
    /// release.
    pub fn steps(&self, synced: bool) -> [Step; 5] {
        let is_done = [
            // The choices are made when the record is created.
            true,
            self.payment != SignUpPayment::Awaited,
            self.namespace.is_some(),
            self.imported,
            synced,
        ];
        steps_from(is_done)
    }

    /// Returns the write that stores the sign-up, under the condition `when`.
    pub fn to_write(&self, when: When) -> Result<Write, StoreError> {
        let (key, document) = (
            provisioning_key(&self.reference),
            Document::from_value(self)?,
        );
        Ok(if self.is_kept() {
            Write::put(key, document, when)
        } else {
            let until = self.created_at.plus_days(UNPAID_DAYS);
            Write::put_until(key, document, when, until)
        })
    }

    /// Returns the content of a [`Link`] to the sign-up.
    pub fn link_document(&self) -> Result<Document, StoreError> {
        Document::from_value(&Link {
            reference: self.reference.clone(),
        })
    }
}

/// Returns the steps of a namespace that an operator created without a sign-up: nothing was chosen,
/// paid for or imported there, so these steps count as done and as not needed.
pub fn steps_by_operator(synced: bool) -> [Step; 5] {
    let mut steps = steps_from([true, true, true, true, synced]);
    for step in &mut steps {
        step.needed = matches!(step.step, StepName::Namespace | StepName::FirstSync);
    }
    steps
}

fn steps_from(is_done: [bool; 5]) -> [Step; 5] {
    std::array::from_fn(|place| Step {
        step: StepName::ALL[place],
        state: if is_done[place] {
            StepState::Done
        } else {
            StepState::Pending
        },
        needed: true,
    })
}

/// Returns the first step that is not done; `None` if all are.
pub fn next_step(steps: &[Step]) -> Option<StepName> {
    let mut steps = steps.iter();
    steps
        .find(|step| step.state == StepState::Pending)
        .map(|step| step.step)
}

/// Returns the key of the [`Provisioning`] with this reference.
pub fn provisioning_key(reference: &Reference) -> RecordKey {
    RecordKey::new(format!("provisioning/{reference}"), "provisioning")
}

/// Returns the key of a sign-up in the index of open ones.
pub fn open_key(reference: &Reference) -> RecordKey {
    RecordKey::new(OPEN, reference.as_str())
}

/// Returns the key of a sign-up in the list of its account.
pub fn sign_up_key(account: &AccountId, reference: &Reference) -> RecordKey {
    RecordKey::new(account_partition(account), format!("{SIGN_UPS}{reference}"))
}

/// Returns the keys of the slots for an account's unpaid sign-ups; each unpaid sign-up takes one.
pub fn slot_keys(account: &AccountId) -> [RecordKey; MAX_UNPAID] {
    // A fixed number of slots, each written only if it is absent: concurrent sign-ups cannot exceed
    // the number.
    std::array::from_fn(|n| RecordKey::new(account_partition(account), format!("sign-up-slot/{n}")))
}

/// Returns the key of the [`Link`] that reserves a name for a sign-up.
pub fn reservation_key(slug: &Slug) -> RecordKey {
    RecordKey::new(format!("reserved/{slug}"), "reservation")
}

/// Returns the key of the [`Link`] from a namespace to its sign-up.
pub fn link_key(slug: &Slug) -> RecordKey {
    RecordKey::new(format!("ns/{slug}"), "provisioning")
}

#[cfg(test)]
mod tests {
    use vault_format::name::NamespaceId;
    use vault_testing::SeededRandom;

    use super::*;

    fn sign_up(payment: SignUpPayment) -> Provisioning {
        let (now, random) = (Timestamp::from_unix(0), SeededRandom::new(1));
        Provisioning {
            reference: Reference::fresh(&random),
            account: AccountId::fresh(now, &random),
            slug: "acme".parse().unwrap(),
            plan: Some("team".to_owned()),
            starter_skills: Vec::new(),
            payment,
            subscription: None,
            standby: Vec::new(),
            namespace: None,
            imported: false,
            created_at: now,
            refused_at: None,
        }
    }

    fn namespace(n: u64) -> NamespaceRef {
        NamespaceRef {
            slug: "acme".parse().unwrap(),
            id: NamespaceId::from_parts(n, 1),
        }
    }

    fn states(sign_up: &Provisioning, synced: bool) -> String {
        let steps = sign_up.steps(synced);
        let letter = |step: &Step| match step.state {
            StepState::Done => 'd',
            StepState::Pending => 'p',
        };
        steps.iter().map(letter).collect()
    }

    #[test]
    fn a_reference_is_128_random_bits() {
        let random = SeededRandom::new(1);
        let (one, other) = (Reference::fresh(&random), Reference::fresh(&random));
        assert_ne!(one, other);
        assert_eq!(Reference::parse(one.as_str()), Some(one));
        for bad in [
            "",
            "acme",
            &"A".repeat(32),
            &"0".repeat(31),
            &"0".repeat(33),
        ] {
            assert_eq!(Reference::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_step_is_pending_or_done_in_the_order_of_the_interface() {
        let mut at = sign_up(SignUpPayment::Awaited);
        assert_eq!(
            (states(&at, false).as_str(), at.next_action()),
            ("dpppp", NextAction::Wait)
        );
        at = at.after_event(ProvisioningEvent::Paid).unwrap().unwrap();
        assert_eq!(
            (states(&at, false).as_str(), at.next_action()),
            ("ddppp", NextAction::Allocate)
        );
        at = at
            .after_event(ProvisioningEvent::Allocated(namespace(1)))
            .unwrap()
            .unwrap();
        assert_eq!(
            (states(&at, false).as_str(), at.next_action()),
            ("dddpp", NextAction::Import)
        );
        // The owner may publish before the drafts are saved.
        assert_eq!(states(&at, true), "dddpd");
        assert_eq!(next_step(&at.steps(true)), Some(StepName::CloudImport));
        at = at
            .after_event(ProvisioningEvent::Imported)
            .unwrap()
            .unwrap();
        assert_eq!(
            (states(&at, false).as_str(), at.next_action()),
            ("ddddp", NextAction::Nothing)
        );
        assert_eq!(next_step(&at.steps(false)), Some(StepName::FirstSync));
        assert_eq!(next_step(&at.steps(true)), None);
        assert_eq!(states(&sign_up(SignUpPayment::Free), false), "ddppp");
        assert_eq!(
            sign_up(SignUpPayment::Free).next_action(),
            NextAction::Allocate
        );
    }

    /// Returns all orders of these events, each occurring up to `most` times.
    fn orders(left: &[ProvisioningEvent], most: usize) -> Vec<Vec<ProvisioningEvent>> {
        if most == 0 {
            return vec![Vec::new()];
        }
        let mut all = vec![Vec::new()];
        for first in left {
            for mut rest in orders(left, most - 1) {
                rest.insert(0, first.clone());
                all.push(rest);
            }
        }
        all
    }

    #[test]
    fn no_order_and_no_repetition_does_a_step_twice_or_too_early() {
        let things = [
            ProvisioningEvent::Bound(SubscriptionId::parse("sub_1"), Vec::new()),
            ProvisioningEvent::Paid,
            ProvisioningEvent::Refused(Timestamp::from_unix(1)),
            ProvisioningEvent::Allocated(namespace(1)),
            ProvisioningEvent::Allocated(namespace(2)),
            ProvisioningEvent::Imported,
        ];
        for order in orders(&things, 5) {
            let mut at = sign_up(SignUpPayment::Awaited);
            for happened in &order {
                let before = at.clone();
                match at.after_event(happened.clone()) {
                    Ok(Some(after)) => {
                        assert_eq!(after.after_event(happened.clone()), Ok(None), "{order:?}");
                        at = after;
                    }
                    Ok(None) => {}
                    Err(OutOfOrder::Unpaid) => {
                        assert_eq!(at.payment, SignUpPayment::Awaited, "{order:?}");
                    }
                    Err(OutOfOrder::Unallocated) => assert_eq!(at.namespace, None, "{order:?}"),
                    Err(OutOfOrder::Allocated) => unreachable!("nothing is renamed"),
                }
                // No step that is done becomes undone, and the first namespace stays.
                assert!(before.namespace.is_none() || before.namespace == at.namespace);
                assert!(!before.imported || at.imported);
                assert!(at.namespace.is_none() || at.payment == SignUpPayment::Confirmed);
                assert!(!at.imported || at.namespace.is_some());
            }
        }
    }

    #[test]
    fn a_name_changes_until_the_namespace_is_allocated() {
        let other: Slug = "other".parse().unwrap();
        let renamed = sign_up(SignUpPayment::Confirmed);
        let renamed = renamed
            .after_event(ProvisioningEvent::Renamed(other.clone()))
            .unwrap()
            .unwrap();
        assert_eq!(renamed.slug, other);
        let allocated = renamed
            .after_event(ProvisioningEvent::Allocated(namespace(1)))
            .unwrap()
            .unwrap();
        let late = allocated.after_event(ProvisioningEvent::Renamed(other));
        assert_eq!(late, Err(OutOfOrder::Allocated));
    }
}
