//! A hostile host between the command line and what an owner signed: whatever it answers, the
//! machine keeps what it had.
//!
//! Every attack is served to the built binary. Refused means: the right exit code and word, and not
//! one byte of the machine's home changed; the next honest pull succeeds.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod archives;
mod bundles;
mod catalogs;
mod connect;
mod disk;
mod every_file;
mod fetching;
mod folders;
mod histories;
mod installed;
mod link;
mod lying_host_owner;
mod names;
mod owner;
mod paths;
mod project_verbs;
mod projects;
mod roots;
mod sources;
mod support;
mod transport;
mod withheld;
