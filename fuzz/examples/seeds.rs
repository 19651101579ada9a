//! Writes the first inputs of every fuzz target to `fuzz/corpus`: the test vectors, and what is signed inside of them.
//! Without them a target would spend its time on finding out what JSON is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use vault_fuzz::secret;
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::request::sign;
use vault_format::time::Timestamp;

fn main() -> io::Result<()> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let vectors = project.join("tests/vectors/formats");
    for path in files(&vectors)? {
        let bytes = fs::read(&path)?;
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let target = match name.split(['-', '.']).next() {
            Some("catalog") => "catalog",
            Some("bundle" | "manifest") => "bundle",
            _ => continue,
        };
        write(target, &bytes)?;
        // The targets sign their input themselves: give them what is worth signing.
        if let Ok(envelope) = Envelope::parse(&bytes) {
            write(target, envelope.payload())?;
        }
    }
    for path in files(&project.join("tests/vectors/roots"))? {
        let bytes = fs::read(&path)?;
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.starts_with("chain-") {
            write("root", &[br#"{"roots":"#.as_slice(), &bytes, b"}"].concat())?;
        } else if name.starts_with("root-")
            && let Ok(envelope) = Envelope::parse(&bytes)
        {
            write("root", envelope.payload())?;
        } else if name.starts_with("catalog-") {
            write("catalog", &bytes)?;
        }
    }
    for path in files(&vectors.join("skill-md"))? {
        write("frontmatter", &fs::read(path)?)?;
    }
    let hash = Digest::of(b"");
    for route in [
        "devices",
        "devices/current",
        "catalog.json",
        &format!("bundles/{hash}.json"),
    ] {
        let path = format!("/v/acme/{route}");
        let headers = sign(
            &secret("laptop"),
            "GET",
            &path,
            Timestamp::from_unix(1_760_000_000),
        );
        let request = [
            &headers.device,
            &headers.timestamp,
            &headers.signature,
            "GET",
            &path,
        ]
        .join("\n");
        write("device_headers", request.as_bytes())?;
        write("path", path.as_bytes())?;
    }
    for lines in [
        "SKILL.md\nbin/check.sh\ndocs/übersicht.md",
        "github:acme/skills/code-review\ngit:ssh://git.example/x.git//y",
        "https:https://a.example/x\nvault:http://127.0.0.1:1/v/acme/x",
    ] {
        write("path", lines.as_bytes())?;
    }
    Ok(())
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths: io::Result<Vec<PathBuf>> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    Ok(paths?.into_iter().filter(|path| path.is_file()).collect())
}

fn write(target: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(Digest::of(bytes).to_string()), bytes)
}
