//! Lists that are answered page by page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One page of a list. Send `next` as the parameter `after` to get the following page.
// One definition for each type of item, named after it.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "{T}List")]
pub struct Items<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}
