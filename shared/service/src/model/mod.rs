//! What the service keeps in the port `Records`: one module a resource, each opening with its table of partition, key and document.
//!
//! Repositories are plain functions over `&dyn Records`; index records are written in the commit of what they index.

pub mod audit;
pub mod device;
pub mod limits;
pub mod namespace;
pub mod release;
