//! Codes that admit machines: `/admin/vaults/{slug}/enrolment` and `…/enrolment-codes`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_format::words;

words! {
    /// The way in which machines enrol in a vault.
    #[derive(Default, JsonSchema)]
    #[schemars(inline)]
    pub enum EnrolmentMode {
        /// Any machine may ask, and the owner decides.
        #[default]
        Open = "open",
        /// Only machines with a code.
        Codes = "codes",
    }
}

/// A change of the way in which machines enrol.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentSetting {
    /// Way in which machines enrol from now on.
    pub enrolment: EnrolmentMode,
}

/// The limits of a new enrolment code.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewEnrolmentCode {
    /// Number of machines that it admits; 1 if absent.
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// Seconds for which it is valid, from a minute to 90 days; a day if absent.
    #[schemars(range(min = 60, max = 7_776_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<i64>,
    /// Required name of the machines, in which `*` stands for any characters; any name if absent.
    #[schemars(length(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An enrolment code, as owners see it.
// No `Debug`: whoever reads the code in a log could admit a machine.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct EnrolmentCode {
    /// Id of the code, `enc_…`, which does not reveal the code.
    pub id: String,
    /// The code itself, `vec_…`. Only the answer that creates it contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Maximum number of machines that the code admits.
    pub uses: u32,
    /// Number of machines that the code has admitted so far.
    pub used: u32,
    /// Required name of the machines, in which `*` stands for any characters; null for any name.
    pub name: Option<String>,
    /// The id of the user who made it.
    pub created_by: String,
    /// The id of the app that made it. Absent if it was made in the console.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time from which the code admits no machine.
    pub expires_at: Timestamp,
}
