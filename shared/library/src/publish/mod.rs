//! Publishing: releases of this library, and the keys that sign them.

pub mod adopt;
pub mod rotate;
