//! Admission: the only way in which skills are checked, signed and installed.

pub mod add;
pub mod check;
mod compare;
pub mod history;
pub mod propose;
pub mod remove;
pub mod update;
pub mod variants;
