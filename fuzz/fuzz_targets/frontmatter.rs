//! SKILL.md as strangers write it: any bytes are read or refused, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_gate::document::Document;

fuzz_target!(|data: &[u8]| {
    let _ = Document::parse(data);
});
