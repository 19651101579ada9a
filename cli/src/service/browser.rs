//! Opens a page in the user's browser.

use std::process::{Command, Stdio};

use crate::settings::process::Process;

/// Asks the desktop to open an address. Returns false if there is no desktop.
pub fn open(process: &Process, address: &str) -> bool {
    let opener = if cfg!(target_os = "macos") {
        process.program("open")
    } else if process.variable("DISPLAY").is_some() || process.variable("WAYLAND_DISPLAY").is_some()
    {
        process.program("xdg-open")
    } else {
        None
    };
    let Some(opener) = opener else { return false };
    Command::new(opener)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .is_ok()
}
