//! `GET /healthz`: is the process up, and does its database answer.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio::time::{Instant, timeout};
use vault_skill::time::Timestamp;

use crate::App;
use crate::http::json_answer;

/// How long the database may take to answer the ping.
const PING_TIME: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Health {
    status: &'static str,
    version: &'static str,
    boot_time: Timestamp,
    database: Database,
}

#[derive(Serialize)]
struct Database {
    status: &'static str,
    latency_ms: u64,
}

/// 200 while the database answers within a second, else 503 with the same members.
pub async fn show(State(app): State<App>) -> Response {
    let started = Instant::now();
    let pinged = timeout(PING_TIME, app.records.ping()).await;
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (code, status) = match pinged {
        Ok(Ok(())) => (StatusCode::OK, "ok"),
        Ok(Err(error)) => {
            tracing::error!(error = %error, "the database ping failed");
            (StatusCode::SERVICE_UNAVAILABLE, "error")
        }
        Err(_) => {
            tracing::error!("the database did not answer the ping within a second");
            (StatusCode::SERVICE_UNAVAILABLE, "error")
        }
    };
    json_answer(
        code,
        &Health {
            status,
            version: env!("CARGO_PKG_VERSION"),
            boot_time: app.boot_time,
            database: Database { status, latency_ms },
        },
    )
}
