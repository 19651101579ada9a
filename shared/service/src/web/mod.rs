//! The web kit of all pages: sessions of browsers, form tokens, layout, error pages, CORS.
//!
//! It knows no page and no protocol: rooms above it fill its layout and convert their failures into
//! its error pages.

pub(crate) mod browser;
mod cookie;
pub(crate) mod cors;
pub mod csrf;
pub(crate) mod error_page;
pub mod form;
pub(crate) mod layout;
pub(crate) mod remembered_browser;
pub(crate) mod welcome;

pub use layout::STYLE as PAGE_STYLE;
