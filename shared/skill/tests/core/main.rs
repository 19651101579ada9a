//! Tests of the signed and stored formats against vectors, large values, hostile shapes and properties.

mod device_requests;
mod formats;
mod support;
