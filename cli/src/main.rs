//! The command `vault`.
fn main() {}
