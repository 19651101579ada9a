//! Everything under `/v/`.

mod app_codes;
mod bundles;
mod catalog;
mod codes;
mod devices;
mod devices_current;
mod queue;
mod signed;
mod unsigned;
