//! Steps that several commands share: admitting, reviewing, fetching, publishing, and what follows a
//! change of keys. They know the libraries, the service and the screen, and no command.

pub mod admission;
pub mod agent_writes;
pub mod approval;
pub mod audit_accept;
pub mod audit_report;
pub mod draft_review;
pub mod drift;
pub mod exceptions;
pub mod fetch;
pub mod key_changes;
pub mod policy_file;
pub mod profiles;
pub mod project_lock;
pub mod publishing;
pub mod starter;
pub mod subscription;
