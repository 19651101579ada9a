//! Base64, as tolerantly as decoders read it.

/// Decodes the standard and the URL alphabet. Fewer than eight bits at the end are dropped.
pub(crate) fn decode_base64(run: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(run.len() * 3 / 4);
    // Check neither alphabet, padding nor length, because decoders differ in what they accept. If
    // the bytes are not base64, the result is not readable text and is dropped later.
    let (mut bits, mut count) = (0_u32, 0);
    for byte in run {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xFF) as u8);
        }
    }
    out
}
