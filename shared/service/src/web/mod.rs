//! Shared parts of all browser pages: sessions, form tokens, layout, error pages and CORS.
//!
//! Rule: no page can be shown in a frame, stored by a cache or run a foreign script. No form is
//! accepted unless it provably comes from a page of this service in the same browser.
//!
//! This module decides nothing about accounts or tokens and knows no protocol. The modules above it
//! fill its layout and convert their failures into its error pages.

pub(crate) mod browser;
mod cookie;
pub(crate) mod cors;
pub mod csrf;
pub(crate) mod error_page;
pub mod form;
pub(crate) mod host;
pub(crate) mod layout;
pub(crate) mod remembered_browser;
pub(crate) mod welcome;

pub use layout::STYLE as PAGE_STYLE;
