//! What a namespace uses of the service: requests of its callers are counted here once the caller is
//! known to belong to it, and so is the work that they cause.

use std::sync::Arc;

use axum::http::HeaderMap;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_gate::{SERVICE_WORK, Verdict};
use vault_store::StoreError;

use crate::app::App;
use crate::budget::charge::{Charge, ChargedRecords};
use crate::budget::{Budget, Budgets, FullLimit, LimitState, Rank, RequestLimits, add_headers};
use crate::error::Refusal;
use crate::model::audit::audit_partition;
use crate::model::namespace::{Kind, Namespace, ServedNamespace};

/// A counted request.
pub(crate) struct Spending {
    /// The app for the rest of the request: its commits and checks are charged to the namespace.
    pub(crate) app: App,
    states: Vec<LimitState>,
}

impl Spending {
    /// Returns the spending of a request that belongs to no namespace, as one of an operator.
    pub(crate) fn of_nobody(app: &App) -> Self {
        Self {
            app: app.clone(),
            states: Vec::new(),
        }
    }

    /// Counts a request in `namespace` of a caller of this rank, who is counted alone too: `caller`
    /// is the consent of an app, or the id of a user in the console. Fails if a limit is used up.
    pub(crate) fn count_request(
        app: &App,
        namespace: &Namespace,
        caller: &str,
        rank: Rank,
    ) -> Result<Self, FullLimit> {
        let now = app.clock.now();
        let limit = |budget| rank.share_of(budget_limit(app, namespace.kind, budget));
        let limits = RequestLimits {
            per_grant: app.config.limits.requests_per_grant.into(),
            per_namespace: limit(Budget::Requests),
        };
        let states = app
            .budgets
            .count_request(namespace.id, caller, &limits, now)?;
        let log = audit_partition(Some(&namespace.id));
        let charge = Arc::new(Charge::new(namespace.id, log, limit, now));
        let mut app = app.clone();
        if charge.counts_commits() {
            let inner = Arc::clone(&app.ports.records);
            app.ports.records = Arc::new(ChargedRecords::new(inner, Arc::clone(&charge)));
        }
        app.charge = Some(charge);
        Ok(Self { app, states })
    }

    /// Returns the refusal of the request, if a budget had no room for a part of it.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.app.charge.as_ref().and_then(|charge| charge.refusal())
    }

    /// Adds to an answer what is left of the limits of requests.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        add_headers(headers, &self.states);
    }
}

/// Returns the limit of a budget for a namespace of this kind; 0: no limit. The vault that a server
/// signs itself has none: it belongs to the operator of that server.
fn budget_limit(app: &App, kind: Kind, budget: Budget) -> u64 {
    match kind {
        Kind::Hosted => budget.limit(&app.config.limits),
        Kind::SelfSigned => 0,
    }
}

/// Counts a read of a machine that the owner of `namespace` admitted; fails with 429.
pub(crate) fn count_machine_read(app: &App, namespace: &ServedNamespace) -> Result<(), Refusal> {
    let budget = Budget::MachineReads;
    let limit = budget_limit(app, namespace.kind, budget);
    app.budgets
        .count_one(namespace.id, budget, limit, app.clock.now())
}

/// Counts a part of an export in the namespace of the request; fails with 429.
pub(crate) fn count_export(app: &App) -> Result<(), Refusal> {
    let Some(charge) = &app.charge else {
        return Ok(());
    };
    let budget = Budget::Exports;
    let (id, limit) = (charge.namespace(), charge.limit(budget));
    app.budgets.count_one(id, budget, limit, app.clock.now())
}

/// Runs a check of the gate for `namespace`, on a thread for blocking work because it uses the
/// processor for a long time. Waits for a place first, and counts the work for the namespace of the
/// request. Fails with an error of the store if the budget has no room; the guard then answers 429.
pub(crate) async fn run_gate<T: Send + 'static>(
    app: &App,
    namespace: &NamespaceId,
    check: impl FnOnce() -> (Verdict, T) + Send + 'static,
) -> Result<(Verdict, T), StoreError> {
    // Before the reservation: what waits must not hold work that others could do.
    let place = app.enter_scan(namespace).await?;
    let now = app.clock.now();
    // Work of the service itself, as for the skills of a new vault, is charged to nobody.
    let charged = app.charge.clone();
    let limit = charged
        .as_ref()
        .map_or(0, |charge| charge.limit(Budget::GateWork));
    let reserved = match &charged {
        None => 0,
        Some(charge) => app
            .budgets
            .reserve_gate_work(charge.namespace(), SERVICE_WORK, limit, now)
            .map_err(|refusal| charge.refuse(refusal))?,
    };
    let reservation = charged.map(|charge| Reservation {
        budgets: Arc::clone(&app.budgets),
        namespace: charge.namespace(),
        reserved,
        work: 0,
        reserved_at: now,
    });
    let checking = tokio::task::spawn_blocking(move || {
        let _place = place;
        let mut reservation = reservation;
        let (verdict, more) = check();
        if let Some(reservation) = &mut reservation {
            reservation.work = verdict.work;
        }
        (verdict, more)
    });
    checking
        .await
        .map_err(|ended| StoreError::unavailable(format!("a task ended: {ended}")))
}

/// Gate work that is reserved for one check. Dropping it counts the work that was done and frees the
/// rest. The check owns it: it goes on when its request is given up, and it may panic.
struct Reservation {
    budgets: Arc<Budgets>,
    namespace: NamespaceId,
    reserved: u64,
    work: u64,
    reserved_at: Timestamp,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Self {
            namespace,
            reserved,
            work,
            reserved_at,
            ..
        } = *self;
        self.budgets
            .settle_gate_work(namespace, reserved, work, reserved_at);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use axum::body::Body;
    use vault_gate::GateOptions;
    use vault_store::fair::Lane;
    use vault_testing::TestClock;

    use super::*;
    use crate::bodies::SharedRoom;
    use crate::config::Config;
    use crate::ports::Ports;

    fn namespace(n: u128) -> NamespaceId {
        NamespaceId::from_parts(1_795_219_200_000, n)
    }

    /// Returns the app of a request of this namespace, whose large body has arrived.
    async fn app_with_body(app: &App, namespace: NamespaceId) -> App {
        let body = Body::from(vec![b'x'; 100_000]);
        let received = app.bodies.read(Lane::Namespace(namespace), body, 100_000);
        let room = SharedRoom::default();
        room.hold(received.await.unwrap().into_parts().1);
        let mut app = app.clone();
        app.body_room = Some(room);
        app
    }

    /// Each tenant has as many requests as it may have places, and all wait for scans.
    #[tokio::test]
    async fn what_waits_for_a_scan_holds_no_place_for_a_body() {
        let clock = Arc::new(TestClock::default());
        let config = Config::new("https://vault.example".parse().unwrap());
        let app = App::new(Ports::in_memory(clock), config);
        let mut scans = Vec::new();
        for tenant in 1..=8 {
            let id = namespace(tenant);
            let place = app.enter_scan(&id);
            scans.extend(tokio::time::timeout(std::time::Duration::ZERO, place).await);
        }
        let mut waiting = Vec::new();
        for tenant in [1, 1, 1, 2, 2, 2, 3, 3] {
            let app = app_with_body(&app, namespace(tenant)).await;
            waiting.push(Box::pin(async move {
                let check = || {
                    (
                        vault_gate::check(Vec::new(), &GateOptions::in_service()),
                        (),
                    )
                };
                run_gate(&app, &namespace(tenant), check).await.map(drop)
            }));
        }
        for request in &mut waiting {
            let is_waiting = std::future::poll_fn(|context| {
                Poll::Ready(request.as_mut().poll(context).is_pending())
            });
            assert!(is_waiting.await);
        }
        // All places are free, so an upload of another tenant takes one at once.
        let mut places = Vec::new();
        for tenant in [4, 4, 4, 5, 5, 5, 6, 6] {
            let lane = Lane::Namespace(namespace(tenant));
            places.push(app.bodies.take_place(lane).await);
        }
        drop(scans);
        assert!(waiting.remove(0).await.is_ok());
    }
}
