//! `GET /healthz`: reports whether the process is up and its database answers, and when background
//! work last succeeded.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use vault_api::{BackgroundHealth, DatabaseHealth, Health, HealthStatus};
use vault_format::text::error_chain;
use vault_format::time::Timestamp;

use crate::app::App;
use crate::http::json_answer;
use crate::model::upkeep::LastRun;
use crate::route::{Auth, Group, Route, mount_route};

/// Time within which the database must answer the ping.
const PING_TIME: Duration = Duration::from_secs(1);
/// Time for which a result of the ping is reused, in seconds: many probes share one ping.
const FRESH_SECONDS: i64 = 1;

/// The last result of the ping. The first request that finds it stale pings the database, and the
/// others wait for that result.
#[derive(Debug, Default)]
struct LastPing(Mutex<Option<Ping>>);

#[derive(Clone, Debug)]
struct Ping {
    at: Timestamp,
    is_good: bool,
    latency_ms: u64,
    last_run: LastRun,
}

impl LastPing {
    async fn fresh_ping(&self, app: &App) -> Ping {
        // Locked during the ping, so that a flood of probes costs the database one query per
        // second.
        let mut last = self.0.lock().await;
        let now = app.clock.now();
        if let Some(ping) = &*last
            && (0..FRESH_SECONDS).contains(&(now.unix() - ping.at.unix()))
        {
            return ping.clone();
        }
        let ping = ping_database(app, now).await;
        *last = Some(ping.clone());
        ping
    }
}

async fn ping_database(app: &App, at: Timestamp) -> Ping {
    let started = Instant::now();
    let pinged = timeout(PING_TIME, app.records.check_health()).await;
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    match &pinged {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(error = error_chain(error), "the database ping failed"),
        Err(_) => tracing::error!("the database did not answer the ping within a second"),
    }
    let is_good = matches!(pinged, Ok(Ok(())));
    // Read only if the database answers: the probe must not wait twice for one that does not.
    let last_run = if is_good {
        read_last_run(app).await
    } else {
        LastRun::default()
    };
    Ping {
        at,
        is_good,
        latency_ms,
        last_run,
    }
}

async fn read_last_run(app: &App) -> LastRun {
    let key = LastRun::key();
    match timeout(PING_TIME, app.get::<LastRun>(&key)).await {
        Ok(Ok(found)) => found.map(|found| found.value).unwrap_or_default(),
        Ok(Err(error)) => {
            tracing::error!(
                error = error_chain(&error),
                "the last run of background work could not be read"
            );
            LastRun::default()
        }
        Err(_) => LastRun::default(),
    }
}

const ROUTE: Route = Route::new(Group::Admin, Auth::Public, "health.show", "GET", "/healthz");

pub(crate) fn routes() -> Vec<&'static Route> {
    vec![&ROUTE]
}

pub(crate) fn router(prefix: &str) -> Router<App> {
    let last = Arc::<LastPing>::default();
    let show = get(|State(app): State<App>| async move { show_health(&app, &last).await });
    mount_route(Router::new(), prefix, &ROUTE, &show)
}

/// Answers 200 if the database answered within a second, otherwise 503 with the same members.
async fn show_health(app: &App, last: &LastPing) -> Response {
    let Ping {
        is_good,
        latency_ms,
        last_run,
        ..
    } = last.fresh_ping(app).await;
    let (code, status) = if is_good {
        (StatusCode::OK, HealthStatus::Ok)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, HealthStatus::Error)
    };
    json_answer(
        code,
        &Health {
            status,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_time: app.boot_time,
            database: DatabaseHealth { status, latency_ms },
            background: BackgroundHealth {
                succeeded_at: last_run.succeeded_at,
                failing_since: last_run.failing_since,
                late: last_run.late,
            },
        },
    )
}
