//! The routes below `/v/<slug>/`, by which machines enrol and fetch releases. A device signs every
//! request, and its signature is verified before anything is looked up.
//!
//! Rule: the path is used exactly as it was sent. axum's extractors decode escapes, and a decoded
//! path is not the signed one, so they are not used. The order of the checks is part of the
//! contract: three headers, their form, time, signature, rate, route and method, body, device,
//! namespace, status, subscription, object.
//!
//! The routes never redirect, and their answers are never cached. An unsigned request learns
//! nothing. A signed request of an unknown device does not learn whether a vault exists, unless it
//! enrols there.

mod content;
mod enrolled;
mod enrolment;
mod limits;
mod signed;

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use vault_format::request::route::{self, Route as Path};

use crate::app::App;
use crate::error::{ErrorCode, Refusal, method_not_allowed};
use crate::http::{LogFields, client_address, raw_path};
use crate::model::limits::release_counts;
use crate::route::{Auth, Group, Route};

use content::BundleSetCache;
use limits::ReadLimits;
use signed::{KeyCache, Signer};

const ENROL: Route = device_route("device.enrol", "POST", "/v/{slug}/devices", Group::Devices);
const CURRENT: Route = device_route(
    "device.current",
    "GET",
    "/v/{slug}/devices/current",
    Group::Devices,
);
const CATALOG: Route = device_route(
    "catalog.read",
    "GET",
    "/v/{slug}/catalog.json",
    Group::Catalog,
);
const BUNDLE: Route = device_route(
    "bundle.read",
    "GET",
    "/v/{slug}/bundles/{bundle_hash}.json",
    Group::Catalog,
);

const fn device_route(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    group: Group,
) -> Route {
    Route::new(group, Auth::Device, name, method, path)
}

/// Returns the routes of the groups `devices` and `catalog`.
pub(crate) fn routes() -> Vec<&'static Route> {
    vec![&ENROL, &CURRENT, &CATALOG, &BUNDLE]
}

/// Handler of all device routes, with its caches and counts.
pub(crate) struct DeviceRoutes {
    app: App,
    /// The only group that this process serves; routes of the other one answer 404. `None` serves
    /// both.
    only: Option<Group>,
    keys: KeyCache,
    reads: ReadLimits,
    sets: BundleSetCache,
}

impl DeviceRoutes {
    /// Creates the handler of one group, or of both.
    pub(crate) fn new(app: App, only: Option<Group>) -> Self {
        Self {
            app,
            only,
            keys: KeyCache::new(),
            reads: ReadLimits::default(),
            sets: BundleSetCache::new(),
        }
    }

    /// Answers any request whose path begins with `/v/` below the public URL's prefix.
    pub(crate) async fn answer_request(&self, request: Request) -> Response {
        let mut fields = LogFields::default();
        let mut response = self
            .serve_request(request, &mut fields)
            .await
            .unwrap_or_else(IntoResponse::into_response);
        // Also set on refusals: the log names the device whose request was rejected.
        response.extensions_mut().insert(fields);
        response
    }

    async fn serve_request(
        &self,
        request: Request,
        fields: &mut LogFields,
    ) -> Result<Response, Refusal> {
        let app = &self.app;
        let (parts, body) = request.into_parts();
        let path = raw_path(&parts.uri, &parts.extensions);
        let now = app.clock.now();
        // Verified before the path is parsed: an unsigned request gets the same 401 at any path.
        let signer = signed::verify_request(&self.keys, now, &parts.method, path, &parts.headers)?;
        fields.caller = Some(signer.short_id());

        let below = path.strip_prefix(app.config.public_url.prefix());
        let path = below
            .and_then(route::parse_route)
            .ok_or(ErrorCode::NotFound)?;
        let verified = VerifiedRequest {
            path: &path,
            method: &parts.method,
            signer: &signer,
            source: client_address(&app.config, &parts.headers, &parts.extensions),
        };
        match &path {
            Path::Devices { slug } => {
                self.check_request(&ENROL, &verified, fields).await?;
                let source = verified.source;
                let counted = limits::count_enrolment(app, slug, &signer, source).await?;
                let enrolled =
                    enrolment::enrol_device(app, &verified, &parts.headers, body).await?;
                if enrolled.by_code {
                    // The owner gave codes to these machines, of which two hundred may share one
                    // address, so they do not use up the limit of the address.
                    release_counts(app, &counted, now).await;
                }
                Ok(enrolled.answer)
            }
            Path::DeviceCurrent { slug } => {
                let is_repeated = self.check_request(&CURRENT, &verified, fields).await?;
                let signer = signer.with_repeated(is_repeated);
                enrolment::show_device(app, slug, &signer).await
            }
            Path::Catalog { slug } => {
                let is_repeated = self.check_request(&CATALOG, &verified, fields).await?;
                let signer = signer.with_repeated(is_repeated);
                content::read_catalog(app, slug, &signer).await
            }
            Path::Bundle { slug, hash } => {
                let is_repeated = self.check_request(&BUNDLE, &verified, fields).await?;
                let signer = signer.with_repeated(is_repeated);
                content::read_bundle(app, &self.sets, slug, hash, &signer).await
            }
        }
    }

    /// Checks that this process serves the route, within the rate of the device, with a correct
    /// method. Returns whether the request is a copy of one that was counted before. Fails with
    /// 404, 429 and 405, in this order.
    async fn check_request(
        &self,
        row: &Route,
        asked: &VerifiedRequest<'_>,
        fields: &mut LogFields,
    ) -> Result<bool, Refusal> {
        if self.only.is_some_and(|only| only != row.group) {
            return Err(ErrorCode::NotFound.into());
        }
        fields.slug = Some(asked.path.slug().to_string());
        // Enrolments are counted by their handler, by network, because a caller can create keys
        // without cost.
        if row.method == "POST" {
            return match *asked.method {
                Method::POST => Ok(false),
                _ => Err(method_not_allowed("POST")),
            };
        }
        let is_repeated = limits::count_read(&self.app, &self.reads, asked).await?;
        match *asked.method {
            Method::GET | Method::HEAD => Ok(is_repeated),
            _ => Err(method_not_allowed("GET, HEAD")),
        }
    }
}

/// A request with a verified device signature.
struct VerifiedRequest<'a> {
    path: &'a Path,
    method: &'a Method,
    signer: &'a Signer<'a>,
    /// IP address of the client; `None` if it is unknown.
    source: Option<IpAddr>,
}
