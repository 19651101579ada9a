//! The first version of vault that has an operation (a command, a route or a tool), and whether the
//! operation may still change. Each operation states it once; help, `OpenAPI` and the tools'
//! `_meta` are generated from there.

use std::fmt;

crate::words! {
    /// Tells whether later versions may change an operation.
    pub enum Stability {
        /// The operation stays as it is until the next major version.
        Stable = "stable",
        /// A minor version may change the operation.
        Beta = "beta",
    }
}

/// The first version of vault that has an operation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Since(&'static str);

impl Since {
    /// The version in which an operation is new unless it states an earlier one.
    pub const NEW: Self = Self("0.5.0");

    /// Marks an operation that an earlier version had.
    pub const fn version(version: &'static str) -> Self {
        Self(version)
    }

    /// The version as text, such as `0.2.1`.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the stability: an operation that an earlier version had no longer changes.
    pub fn stability(self) -> Stability {
        if self == Self::NEW {
            Stability::Beta
        } else {
            Stability::Stable
        }
    }
}

impl fmt::Display for Since {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_version_had_is_stable() {
        assert_eq!(Since::NEW.stability(), Stability::Beta);
        assert_eq!(Since::version("0.2.1").stability(), Stability::Stable);
    }
}
