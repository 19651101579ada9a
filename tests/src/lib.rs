//! What the end-to-end tests share: the built binary, homes, running servers, a browser that signs
//! in, a hostile host, snapshots of folders, kill sweeps, terminals. Tests touch the product only
//! as a user, a host or an attacker could.

pub mod app;
pub mod browser;
pub mod fetched;
pub mod home;
pub mod host;
pub mod person;
pub mod place;
pub mod relay;
pub mod server;
pub mod signed;
pub mod skills;
pub mod ssh_agent;
pub mod sweep;
pub mod team;
pub mod terminal;
pub mod tree;
