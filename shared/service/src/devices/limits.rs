//! Rate limits: enrolment per namespace and source, reads per device.
//!
//! Enrolments are counted in the store, for all processes together, since unauthenticated callers
//! can make them. Reads are counted in this process's memory: a count in the store would cost more
//! than the read. Behind a gateway that throttles they are switched off.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use vault_format::name::Slug;
use vault_format::request::route::Route;
use vault_format::time::Timestamp;

use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::device;
use crate::model::limits::{Source, Window, count_or_refuse};

/// The length of every window of this module, in seconds.
const MINUTE: i64 = 60;

/// Counts an enrolment of a key that is not enrolled yet, per slug and source and per source.
/// Returns the counted windows; fails with 429 and `Retry-After`.
pub(super) async fn count_enrolment(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
    source: Option<IpAddr>,
) -> Result<Vec<Window<'static>>, Refusal> {
    let limits = &app.config.limits;
    if limits.enrol_per_slug == 0 && limits.enrol_per_source == 0 {
        return Ok(Vec::new());
    }
    // A known key gets its state again and creates nothing, so it needs no limit.
    let device_key = device::device_key(slug, signer.key_text());
    if app.records.get_one(&device_key).await?.is_some() {
        return Ok(Vec::new());
    }
    let source = Source::of(source);
    // The first window bounds a flood at one vault. The second also bounds a source that probes one
    // name after another.
    let windows = vec![
        Window {
            name: "enrol-slug",
            who: format!("{slug}/{source}"),
            limit: limits.enrol_per_slug,
            seconds: MINUTE,
        },
        Window {
            name: "enrol-source",
            who: source.to_string(),
            limit: limits.enrol_per_source,
            seconds: MINUTE,
        },
    ];
    count_or_refuse(app, &windows, app.clock.now()).await?;
    Ok(windows)
}

/// Counts a read of a device; fails with 429 and `Retry-After`.
pub(super) fn count_read(
    app: &App,
    reads: &ReadLimits,
    route: &Route,
    signer: &Signer<'_>,
) -> Result<(), Refusal> {
    let limits = &app.config.limits;
    let (class, limit) = match route {
        Route::Bundle { .. } => (1, limits.bundles_per_device),
        _ => (0, limits.catalog_per_device),
    };
    reads.count_request(signer.key().as_bytes(), class, limit, app.clock.now())
}

/// Reads in the running minute, by key and class of route.
#[derive(Debug, Default)]
pub(super) struct ReadLimits(Mutex<MinuteCounts>);

#[derive(Debug, Default)]
struct MinuteCounts {
    start: i64,
    counts: HashMap<([u8; 32], u8), u32>,
}

/// Maximum number of keys that are counted in one minute. Beyond it the counts begin anew: a limit
/// per key does not help against an attacker with that many.
const MAX_KEYS: usize = 65_536;

impl ReadLimits {
    fn count_request(
        &self,
        key: &[u8; 32],
        class: u8,
        limit: u32,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if limit == 0 {
            return Ok(());
        }
        // Windows begin with the minutes of the clock, so one start serves all keys.
        let start = now.unix() - now.unix().rem_euclid(MINUTE);
        // A panic cannot leave counts that are unusable, so a poisoned lock is used on.
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if minute.start != start || minute.counts.len() >= MAX_KEYS {
            minute.start = start;
            minute.counts.clear();
        }
        let count = minute.counts.entry((*key, class)).or_default();
        if *count >= limit {
            let left = u64::try_from(start + MINUTE - now.unix()).unwrap_or(1);
            return Err(Refusal::new(ErrorCode::RateLimited).retry_after(left));
        }
        *count += 1;
        Ok(())
    }
}
