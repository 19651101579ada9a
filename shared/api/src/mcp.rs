//! The envelope of `POST /mcp` (JSON-RPC 2.0); `docs/mcp.md` has the tools.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vault_format::words;

words! {
    /// The version of JSON-RPC.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum JsonRpcVersion {
        /// The only version.
        Two = "2.0",
    }
}

/// A message from a client.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcRequest {
    /// The version.
    pub jsonrpc: JsonRpcVersion,
    /// The id of a request, text or a whole number; a notification has none.
    // The schema names the two types, since `Value` would allow any JSON in the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = ["string", "integer"]))]
    pub id: Option<Value>,
    /// The requested method.
    pub method: String,
    /// The parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<BTreeMap<String, Value>>,
}

/// The answer to a request.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcAnswer {
    /// The version.
    pub jsonrpc: JsonRpcVersion,
    /// The id of the request.
    pub id: Value,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<BTreeMap<String, Value>>,
    /// The failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<JsonRpcFailure>,
}

/// The answer to a message that is rejected before it is read.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcError {
    /// The version.
    pub jsonrpc: JsonRpcVersion,
    /// The id of the request, if one could be read.
    #[serde(default)]
    pub id: Value,
    /// The failure.
    pub error: JsonRpcFailure,
}

/// The failure.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcFailure {
    /// The error number of JSON-RPC.
    pub code: i64,
    /// One sentence for people; may change.
    pub message: String,
    /// Further data; `code` in it is the service's error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}
