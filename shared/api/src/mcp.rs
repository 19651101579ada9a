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
        /// JSON-RPC 2.0, the only version that the service speaks.
        Two = "2.0",
    }
}

/// A message from a client.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcRequest {
    /// Version of JSON-RPC, always `2.0`.
    pub jsonrpc: JsonRpcVersion,
    /// The id of a request, text or a whole number; a notification has none.
    // The schema names the two types, since `Value` would allow any JSON in the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = ["string", "integer"]))]
    pub id: Option<Value>,
    /// Name of the method, such as `tools/call`.
    pub method: String,
    /// Parameters of the method by name, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<BTreeMap<String, Value>>,
}

/// The answer to a request.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcAnswer {
    /// Version of JSON-RPC, always `2.0`.
    pub jsonrpc: JsonRpcVersion,
    /// The id of the request that this answers.
    pub id: Value,
    /// Result of the method; absent if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<BTreeMap<String, Value>>,
    /// Why the method failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<JsonRpcFailure>,
}

/// The answer to a message that is rejected before it is read.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcError {
    /// Version of JSON-RPC, always `2.0`.
    pub jsonrpc: JsonRpcVersion,
    /// The id of the request, if one could be read.
    #[serde(default)]
    pub id: Value,
    /// Why the message was rejected.
    pub error: JsonRpcFailure,
}

/// Why a message was rejected, or a method failed.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct JsonRpcFailure {
    /// Error number of JSON-RPC, such as -32602 for wrong parameters.
    pub code: i64,
    /// One sentence for people; may change.
    pub message: String,
    /// Further data; `code` in it is the service's error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}
