//! Tests of the library as a caller uses it, in one program: each more would be linked by itself.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod admission;
mod agent_profiles;
mod capabilities;
mod doctor;
mod drafts;
mod export;
mod folders;
mod held;
mod known;
mod linked;
mod linked_agents;
mod linked_names;
mod lying_host_owner;
mod own_skills;
mod profiles;
mod publishers;
mod recovery;
mod releases;
mod roots;
mod search;
mod setup;
mod shelf;
mod shelf_contract;
mod support;
mod tampering;
mod using_skills;
mod wording;
