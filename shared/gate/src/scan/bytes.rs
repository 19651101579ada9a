//! Tells text from binary data, pictures and fonts by the first bytes of a file.

/// Number of bytes at the beginning of a file that are examined to tell text from binary data.
pub(super) const HEAD: usize = 8 << 10;

/// Tells whether bytes are binary: more than a tenth of them are control characters, or more than a
/// third are not UTF-8 (a text in an old encoding has fewer). If there are NUL bytes, which text
/// does not have, more than a tenth of both together is enough.
pub(super) fn is_binary(head: &[u8]) -> bool {
    let is_control = |byte: &&u8| matches!(byte, 0..=8 | 14..=26 | 28..=31);
    let odd = head.iter().filter(is_control).count();
    let broken = String::from_utf8_lossy(head).matches('\u{FFFD}').count();
    odd * 10 > head.len()
        || broken * 3 > head.len()
        || (head.contains(&0) && (odd + broken) * 10 > head.len())
}

/// Tells whether bytes begin like a picture or font, which programs display and never run.
pub(super) fn is_picture_or_font(bytes: &[u8]) -> bool {
    let heads: [&[u8]; 14] = [
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"GIF87a",
        b"GIF89a",
        b"\0\0\x01\0",
        b"II*\0",
        b"MM\0*",
        b"\xd7\xcd\xc6\x9a",
        b"\0\x01\0\0",
        b"OTTO",
        b"ttcf",
        b"wOFF",
        b"wOF2",
        b"8BPS",
    ];
    let at = |place: usize, word: &[u8]| bytes.get(place..place + word.len()) == Some(word);
    heads.iter().any(|head| bytes.starts_with(head))
        || (at(0, b"RIFF") && at(8, b"WEBP"))
        // Any text may begin with these two letters, so the size in the bitmap's header must be the
        // size of the file.
        || (at(0, b"BM")
            && bytes.get(2..6)
                == u32::try_from(bytes.len())
                    .ok()
                    .map(u32::to_le_bytes)
                    .as_ref()
                    .map(<[u8; 4]>::as_slice))
        || at(40, b" EMF")
        || (at(4, b"ftyp") && [b"avif", b"heic", b"mif1"].iter().any(|kind| at(8, *kind)))
}
