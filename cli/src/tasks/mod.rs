//! Steps that several commands share: admitting skills to the vault, reviewing drafts and releases,
//! fetching, publishing, and the messages after a change of keys. They use the libraries, the
//! service clients and the terminal, but no code of a command.

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
pub mod program_files;
pub mod project_drift;
pub mod project_install;
pub mod project_lock;
pub mod project_scope;
pub mod project_state;
pub mod publishing;
pub mod requirements;
pub mod starter;
pub mod subscription;
