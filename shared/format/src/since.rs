//! The first version with an operation, and its stability. A command, a route or a tool states it
//! once; help, `OpenAPI` and the tools' `_meta` are generated from there.

use std::fmt;

crate::words! {
    /// Whether later versions may change an operation.
    pub enum Stability {
        /// It stays as it is until the next major version.
        Stable = "stable",
        /// A minor version may change it.
        Beta = "beta",
    }
}

/// The first version of vault with an operation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Since(&'static str);

impl Since {
    /// The version of every operation that is not known to be older.
    pub const NEW: Self = Self("0.5.0");

    /// Creates the mark of an operation that an earlier version had.
    pub const fn version(version: &'static str) -> Self {
        Self(version)
    }

    /// The version, such as `0.2.1`.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the stability: operations of earlier versions no longer change.
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
