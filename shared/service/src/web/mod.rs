//! Kit of all browser pages: sessions, form tokens, layout, error pages and CORS.
//!
//! Rule: no page can be framed, cached or run a script, and no form counts unless it is proven to
//! come from a page of ours in the same browser.
//!
//! The room decides nothing about accounts or tokens and knows no protocol: rooms above it fill its
//! layout and convert their failures into its error pages.

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
