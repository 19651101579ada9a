//! Everything under `/v/`.

mod bundles;
mod catalog;
mod devices;
mod devices_current;
mod signed;
mod unsigned;
