//! End-to-end tests of vault.
