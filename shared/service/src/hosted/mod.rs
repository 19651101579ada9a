//! The hosted routes under `/v/<slug>/`: every request signed by a device, one write, no redirect, no cache.
//!
//! One entrance takes the path exactly as it was sent; axum's extractors, which decode escapes, are not used. The order of checks is part
//! of the contract: three headers, their form, time, signature, rate, route and method, body, device, namespace, status, subscription, object.
//! An unsigned request learns nothing at all, a signed one from a stranger not even whether a vault exists.

pub mod cache;
mod content;
mod devices;
mod limits;
mod signed;

use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::request::route::{self, Route};
use vault_store::StoreError;
use vault_store::records::{Record, RecordKey};

pub use limits::ReadLimits;
pub use signed::KnownKeys;

use crate::App;
use crate::error::{Code, Refusal, method_not_allowed};
use crate::http::{Seen, client_address, raw_path};
use crate::model::device::{self, DeviceStatus, LastSeen, Standing};
use crate::model::namespace::{self, Served, Status};
use crate::routes::Group;

use signed::Signer;

/// Answers any request whose path begins with `/v/` below the public URL's prefix.
pub(crate) async fn answer(app: &App, only: Option<Group>, request: Request) -> Response {
    let mut seen = Seen::default();
    let mut response = serve(app, only, request, &mut seen)
        .await
        .unwrap_or_else(IntoResponse::into_response);
    response.extensions_mut().insert(seen);
    response
}

async fn serve(
    app: &App,
    only: Option<Group>,
    request: Request,
    seen: &mut Seen,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let path = raw_path(&parts.uri, &parts.extensions);
    let signer = signed::verify(app, &parts.method, path, &parts.headers)?;
    seen.caller = Some(signer.short_id());

    let below = path.strip_prefix(app.config.public_url.prefix());
    let route = below
        .and_then(route::parse)
        .filter(|route| only.is_none_or(|only| only == group(route)));
    if let Some(route) = &route {
        seen.slug = Some(route.slug().to_string());
    }
    match route {
        Some(Route::Devices { slug }) if parts.method == Method::POST => {
            let source = client_address(&app.config, &parts.headers, &parts.extensions);
            limits::enrolment(app, &slug, &signer, source).await?;
            devices::enrol(app, &slug, &signer, &parts.headers, body).await
        }
        Some(Route::Devices { .. }) => Err(method_not_allowed("POST")),
        None => Err(Code::NotFound.into()),
        Some(route) => {
            limits::read(app, &route, &signer)?;
            if parts.method != Method::GET && parts.method != Method::HEAD {
                return Err(method_not_allowed("GET, HEAD"));
            }
            match route {
                Route::DeviceCurrent { slug } => devices::current(app, &slug, &signer).await,
                Route::Catalog { slug } => content::catalog(app, &slug, &signer).await,
                Route::Bundle { slug, hash } => content::bundle(app, &slug, &hash, &signer).await,
                Route::Devices { .. } => Err(method_not_allowed("POST")),
            }
        }
    }
}

/// The group that a path under `/v/` belongs to.
const fn group(route: &Route) -> Group {
    match route {
        Route::Devices { .. } | Route::DeviceCurrent { .. } => Group::Devices,
        Route::Catalog { .. } | Route::Bundle { .. } => Group::Catalog,
    }
}

/// A device and the namespace that knows it, as of one moment.
struct Enrolled {
    device: Standing,
    namespace: Served,
    /// What stood under the key that was asked for besides.
    extra: Option<Record>,
}

impl Enrolled {
    /// Reads device and namespace side by side: the same cost and the same answer whether the one or the other is unknown.
    async fn look_up(
        app: &App,
        slug: &Slug,
        signer: &Signer<'_>,
        extra: Option<RecordKey>,
    ) -> Result<Self, Refusal> {
        let mut keys = vec![device::key(slug, signer.text()), namespace::key(slug)];
        keys.extend(extra);
        let mut records = app.records.get_many(&keys).await?.into_iter();
        let (device, namespace) = (records.next().flatten(), records.next().flatten());
        let unknown = || Refusal::new(Code::DeviceUnknown);
        let (Some(device), Some(namespace)) = (device, namespace) else {
            return Err(unknown());
        };
        let namespace: Served = namespace.read()?;
        let device: Standing = device.read()?;
        if namespace.status == Status::Deleted || device.namespace_id != namespace.id {
            return Err(unknown());
        }
        if namespace.status == Status::Suspended {
            return Err(Code::VaultSuspended.into());
        }
        signer.remember(app);
        Ok(Self {
            device,
            namespace,
            extra: records.next().flatten(),
        })
    }

    /// Remembers that the device was here and which release it now has. `extra` is what stood under
    /// [`device::seen_key`]. A read is answered whether or not this succeeds.
    async fn note_visit(&self, app: &App, slug: &Slug, signer: &Signer<'_>, release: Option<u64>) {
        let noted = async {
            let held = self.extra.as_ref().map(Record::read).transpose()?;
            let now = app.clock.now();
            if let Some(next) = LastSeen::after(held, self.namespace.id, release, now) {
                let write = next.write(slug, signer.text(), now)?;
                // The write has no condition.
                let _ = app.records.commit(vec![write]).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = noted.await {
            tracing::warn!(%error, "a device's visit was not noted");
        }
    }

    /// Refuses a revoked device; a waiting one may read the catalog.
    fn may_read_catalog(&self) -> Result<(), Refusal> {
        match self.device.status {
            DeviceStatus::Pending | DeviceStatus::Active => Ok(()),
            DeviceStatus::Revoked => Err(Code::DeviceRevoked.into()),
        }
    }

    /// Refuses everybody but an admitted device of a namespace that is paid for.
    fn may_read_bundles(&self) -> Result<(), Refusal> {
        match self.device.status {
            DeviceStatus::Pending => return Err(Code::DevicePending.into()),
            DeviceStatus::Revoked => return Err(Code::DeviceRevoked.into()),
            DeviceStatus::Active => {}
        }
        if self.namespace.subscription.is_live() {
            Ok(())
        } else {
            Err(Code::SubscriptionLapsed.into())
        }
    }
}

/// `Repr-Digest` (RFC 9530) of bytes with this hash.
fn repr_digest(digest: &Digest) -> String {
    use base64::Engine as _;
    format!(
        "sha-256=:{}:",
        base64::engine::general_purpose::STANDARD.encode(digest.as_bytes())
    )
}
