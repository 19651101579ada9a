//! The SDK configuration that the clients of both stores share. TLS is rustls with ring.

use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_sdk_dynamodb::config::{Credentials, StalledStreamProtectionConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::Settings;

/// Loads the configuration for `settings`, with the credentials that the SDK finds (in a function:
/// its variables). Call it once, before the first request, because it reads the system's root
/// certificates.
pub async fn sdk_config(settings: &Settings) -> SdkConfig {
    config_loader(settings).load().await
}

/// Loads a configuration like [`sdk_config`], with these credentials.
pub async fn sdk_config_with(settings: &Settings, credentials: Credentials) -> SdkConfig {
    config_loader(settings)
        .credentials_provider(credentials)
        .load()
        .await
}

fn config_loader(settings: &Settings) -> ConfigLoader {
    // The SDK's own HTTPS client would link aws-lc, a second crypto library with a C build.
    let https = Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let loader = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(settings.region.clone()))
        .http_client(https)
        // The SDK's own check for stalled bodies is not needed: the module `s3` gives up a body
        // after `RetryLimits::attempt_timeout`.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    match &settings.endpoint {
        Some(endpoint) => loader.endpoint_url(endpoint),
        None => loader,
    }
}
