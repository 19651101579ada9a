//! Counts what a namespace uses of the service, for its budgets: each request, once its caller is
//! known to belong to the namespace, and the work that the request causes.

use std::sync::Arc;

use axum::http::HeaderMap;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_gate::{SERVICE_WORK, Verdict};
use vault_store::StoreError;
use vault_store::gate::Pass;

use crate::app::App;
use crate::budget::charge::{Charge, ChargedRecords};
use crate::budget::{Budget, Budgets, FullLimit, LimitState, Rank, RequestLimits, add_headers};
use crate::error::Refusal;
use crate::model::audit::audit_partition;
use crate::model::namespace::{Kind, Namespace, ServedNamespace};

/// A request that was counted for its namespace.
pub(crate) struct Spending {
    /// The app for the rest of the request. Its commits and its scans are charged to the namespace,
    /// so handlers must use it and not the app of the process.
    pub(crate) app: App,
    states: Vec<LimitState>,
}

impl Spending {
    /// Returns the spending of a request that is charged to no namespace, such as one of an
    /// operator.
    pub(crate) fn uncharged(app: &App) -> Self {
        Self {
            app: app.clone(),
            states: Vec::new(),
        }
    }

    /// Counts a request in `namespace`, and for its caller alone too: `caller` is the id of the
    /// app's consent, or of the user in the console. `rank` decides which share of the budgets the
    /// caller may use. Fails if a limit is used up.
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

    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.app.charge.as_ref().and_then(|charge| charge.refusal())
    }

    /// Adds the headers that tell how much is left of the limits of requests.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        add_headers(headers, &self.states);
    }
}

/// Returns the limit of a budget for a namespace of this kind; 0 means no limit. The vault that a
/// server signs itself has no limits: it belongs to the operator of that server.
fn budget_limit(app: &App, kind: Kind, budget: Budget) -> u64 {
    match kind {
        Kind::Hosted => budget.limit(&app.config.limits),
        Kind::SelfSigned => 0,
    }
}

/// Counts a read by an admitted machine of `namespace`; fails with 429 if the budget is used up.
pub(crate) fn count_machine_read(app: &App, namespace: &ServedNamespace) -> Result<(), Refusal> {
    let budget = Budget::MachineReads;
    let limit = budget_limit(app, namespace.kind, budget);
    app.budgets
        .count_one(namespace.id, budget, limit, app.clock.now())
}

/// Counts a part of an export in the namespace of the request; fails with 429 if the budget is used
/// up.
pub(crate) fn count_export(app: &App) -> Result<(), Refusal> {
    let Some(charge) = &app.charge else {
        return Ok(());
    };
    let budget = Budget::Exports;
    let (id, limit) = (charge.namespace(), charge.limit(budget));
    app.budgets.count_one(id, budget, limit, app.clock.now())
}

/// Runs a check of the gate, the security scanner, for `namespace`. The check runs on a thread for
/// blocking work because it uses the processor for a long time. Fails like [`CheckPlace::enter`],
/// and if the large body of the request gets no place after the scan.
pub(crate) async fn run_gate<T: Send + 'static>(
    app: &App,
    namespace: &NamespaceId,
    check: impl FnOnce() -> (Verdict, T) + Send + 'static,
) -> Result<(Verdict, T), StoreError> {
    let place = CheckPlace::enter(app, namespace, SERVICE_WORK).await?;
    let (checked, _) = place
        .run(move || {
            let (verdict, more) = check();
            let work = verdict.work;
            ((verdict, more), work)
        })
        .await?;
    app.wait_to_store().await?;
    Ok(checked)
}

/// A place for checks that use the processor for a long time, with gate work that is reserved for
/// them.
pub(crate) struct CheckPlace {
    // Freed with the place, also when a check panics.
    _pass: Pass,
    reservation: Option<Reservation>,
}

impl CheckPlace {
    /// Waits for a place, and reserves `most` bytes of work for the namespace of the request. A
    /// large body gives up its own place before the wait ([`App::enter_scan`]). Fails with an error
    /// of the store if the budget has no room; the guard then answers 429.
    pub(crate) async fn enter(
        app: &App,
        namespace: &NamespaceId,
        most: u64,
    ) -> Result<Self, StoreError> {
        // Before the reservation: a check that waits must not hold work that others could do.
        let pass = app.enter_scan(namespace).await?;
        let now = app.clock.now();
        // Work of the service itself, such as scanning the starter skills of a new vault, is
        // charged to no budget.
        let Some(charge) = &app.charge else {
            return Ok(Self {
                _pass: pass,
                reservation: None,
            });
        };
        let limit = charge.limit(Budget::GateWork);
        let reserved = app
            .budgets
            .reserve_gate_work(charge.namespace(), most, limit, now)
            .map_err(|refusal| charge.refuse(refusal))?;
        let reservation = Reservation {
            budgets: Arc::clone(&app.budgets),
            namespace: charge.namespace(),
            reserved,
            work: 0,
            reserved_at: now,
        };
        Ok(Self {
            _pass: pass,
            reservation: Some(reservation),
        })
    }

    /// Runs a check on a thread for blocking work, and counts the work that it returns beside its
    /// result. Returns the place, for the next check of the request. The thread owns it meanwhile,
    /// because the check goes on when its request is given up.
    pub(crate) async fn run<T: Send + 'static>(
        mut self,
        check: impl FnOnce() -> (T, u64) + Send + 'static,
    ) -> Result<(T, Self), StoreError> {
        let checking = tokio::task::spawn_blocking(move || {
            let (checked, work) = check();
            if let Some(reservation) = &mut self.reservation {
                reservation.work = reservation.work.saturating_add(work);
            }
            (checked, self)
        });
        checking
            .await
            .map_err(|ended| StoreError::unavailable(format!("a task ended: {ended}")))
    }
}

/// Gate work that is reserved for the checks of one place. Dropping it counts the work that was done
/// and frees the rest, also after a panic.
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
    use crate::bodies::SharedBodyMemory;
    use crate::config::Config;
    use crate::ports::Ports;

    fn namespace(n: u128) -> NamespaceId {
        NamespaceId::from_parts(1_795_219_200_000, n)
    }

    /// Returns the app of a request of this namespace, whose large body has arrived.
    async fn app_with_body(app: &App, namespace: NamespaceId) -> App {
        app_with_body_of(app, namespace, 100_000).await
    }

    async fn app_with_body_of(app: &App, namespace: NamespaceId, bytes: usize) -> App {
        let body = Body::from(vec![b'x'; bytes]);
        let received = app.bodies.read(Lane::Namespace(namespace), body, bytes);
        let room = SharedBodyMemory::default();
        room.hold(received.await.unwrap().into_parts().1);
        let mut app = app.clone();
        app.body_memory = Some(room);
        app
    }

    /// Each tenant has as many requests as places are permitted to it, and all wait for scans.
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
                let checked = run_gate(&app, &namespace(tenant), check_nothing).await;
                checked.map(drop)
            }));
        }
        for request in &mut waiting {
            let is_waiting = std::future::poll_fn(|context| {
                Poll::Ready(request.as_mut().poll(context).is_pending())
            });
            assert!(is_waiting.await);
        }
        // All places are free, so an upload of another tenant takes one at once.
        let places = take_all_places(&app).await;
        drop((scans, places));
        assert!(waiting.remove(0).await.is_ok());
    }

    /// A tenant that scans without a pause takes at most as many places as it leaves to the others.
    #[tokio::test]
    async fn half_of_the_scans_are_for_one_namespace() {
        let clock = Arc::new(TestClock::default());
        let config = Config::new("https://vault.example".parse().unwrap());
        let app = App::new(Ports::in_memory(clock), config);
        let take_all = async |tenant: u128| {
            let (id, mut places) = (namespace(tenant), Vec::new());
            while let Ok(place) =
                tokio::time::timeout(std::time::Duration::ZERO, app.enter_scan(&id)).await
            {
                places.push(place.unwrap());
            }
            places
        };
        let (first, second) = (take_all(1).await, take_all(2).await);
        assert!(!first.is_empty());
        assert_eq!(first.len(), second.len());
    }

    /// Takes all places for large bodies, for other tenants.
    async fn take_all_places(app: &App) -> Vec<Pass> {
        let mut places = Vec::new();
        for tenant in [14, 14, 14, 15, 15, 15, 16, 16] {
            let lane = Lane::Namespace(namespace(tenant));
            places.push(app.bodies.take_place(lane).await);
        }
        places
    }

    /// Takes all places for bodies that were scanned.
    async fn take_scanned_places(app: &App) -> Vec<Pass> {
        let mut places = Vec::new();
        for tenant in [14, 14, 15, 15] {
            let lane = Lane::Namespace(namespace(tenant));
            places.push(app.bodies.take_scanned_place(lane).await);
        }
        places
    }

    fn check_nothing() -> (Verdict, ()) {
        let verdict = vault_gate::check(Vec::new(), &GateOptions::in_service());
        (verdict, ())
    }

    /// The store may be slow. Meanwhile a scanned body has a place, or waits for one.
    #[tokio::test]
    async fn what_was_scanned_has_a_place_until_it_is_answered() {
        let clock = Arc::new(TestClock::default());
        let config = Config::new("https://vault.example".parse().unwrap());
        let app = App::new(Ports::in_memory(clock), config);
        let request = app_with_body(&app, namespace(1)).await;
        let scanned = Arc::new(tokio::sync::Notify::new());
        let (done, scanning) = (Arc::clone(&scanned), request.clone());
        // The scan ends only after all places for scanned bodies are taken.
        let (end_scan, may_end) = std::sync::mpsc::channel::<()>();
        let check = move || {
            done.notify_one();
            may_end.recv().expect("the test ends the scan");
            check_nothing()
        };
        let id = namespace(1);
        let mut checking =
            tokio::spawn(async move { run_gate(&scanning, &id, check).await.map(drop) });
        scanned.notified().await;
        let mut places = take_scanned_places(&app).await;
        end_scan.send(()).expect("the scan waits");
        // It ends on its own thread, at an unknown time.
        while app.bodies.waiting_scanned_bytes() == 0 && !checking.is_finished() {
            tokio::task::yield_now().await;
        }
        assert_eq!(app.bodies.waiting_scanned_bytes(), 100_000);
        places.pop();
        assert!((&mut checking).await.unwrap().is_ok());
        // All places for scanned bodies are taken again, one of them by this request, which now
        // stores its body.
        let lane = Lane::Namespace(namespace(3));
        let mut other = Box::pin(app.bodies.take_scanned_place(lane));
        let poll = std::future::poll_fn(|context| Poll::Ready(other.as_mut().poll(context)));
        assert!(poll.await.is_pending());
        drop(request);
        drop(other.await);
    }

    /// The bytes of scanned bodies that wait to be stored are bounded, for each tenant and for all
    /// together.
    #[tokio::test]
    async fn scanned_bodies_that_wait_for_a_place_have_a_bound() {
        let clock = Arc::new(TestClock::default());
        let config = Config::new("https://vault.example".parse().unwrap());
        let app = App::new(Ports::in_memory(clock), config);
        let mut requests = Vec::new();
        for tenant in [1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5] {
            let request = app_with_body_of(&app, namespace(tenant), 1024 * 1024).await;
            drop(request.enter_scan(&namespace(tenant)).await.unwrap());
            requests.push(Box::pin(async move { request.wait_to_store().await }));
        }
        let _places = take_scanned_places(&app).await;
        let mut answers = Vec::new();
        for request in &mut requests {
            let poll = std::future::poll_fn(|context| Poll::Ready(request.as_mut().poll(context)));
            answers.push(poll.await);
        }
        // The fifth request of the first tenant is refused, because its other four have 4 MiB. The
        // last request takes the place of another one in the queue.
        let refused: Vec<_> = (0..answers.len())
            .filter(|n| answers[*n].is_ready())
            .collect();
        assert_eq!(refused, [4]);
        assert_eq!(app.bodies.waiting_scanned_bytes(), 16 * 1024 * 1024);
    }
}
