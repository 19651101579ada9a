//! Tests of the signed and stored formats: vectors, limits, hostile shapes, trust over time,
//! properties.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod device_requests;
mod ed25519;
mod formats;
mod large;
mod make;
mod properties;
mod root_model;
mod root_rules;
mod roots;
mod shapes;
mod support;
mod texts;
mod trust;
