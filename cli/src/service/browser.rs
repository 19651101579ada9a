//! Opens a page of the service in the user's browser, or prints its address.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{
    context::Context,
    output::{HINT, clean, paint},
    process::Process,
};

/// A page that the user must visit before a command can continue, with the words of the two
/// possible messages.
pub struct Page<'a> {
    pub address: &'a str,
    /// The beginning of the message if a browser was opened, such as `Sign in with` (… your
    /// browser).
    pub opened: &'a str,
    /// The verb of the message if the user must open the page, such as `sign in` (Open this address
    /// and …).
    pub verb: &'a str,
}

/// Opens a page in the browser, unless `stay_here` is set, and prints its address. Returns whether
/// a browser was opened.
pub fn show_page(context: &Context, page: &Page<'_>, stay_here: bool) -> bool {
    let ui = &context.ui;
    let opened = !stay_here && open_page(&context.process, page.address);
    let address_line = format!("\n\n  {}\n", paint(HINT, clean(page.address, 2000)));
    // `note` prints nothing with `--json`. The user may still need the address if the browser did
    // not show the page, so `must_see` prints it in that case.
    if opened && !ui.is_json() {
        ui.note(format!(
            "{} your browser. If it does not open, use this address:{address_line}",
            page.opened
        ));
    } else {
        ui.must_see(format!(
            "Open this address in a browser and {}:{address_line}",
            page.verb
        ));
    }
    opened
}

/// Starts the desktop's program that opens addresses. Returns false if there is none.
fn open_page(process: &Process, address: &str) -> bool {
    let Some(opener) = find_opener(process) else {
        return false;
    };
    Command::new(opener)
        // The address comes from the service. As an argument, it never passes through a shell.
        .arg(address)
        .stdin(Stdio::null())
        // Messages of the browser must not mix with the output of the command.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .is_ok()
}

/// Returns the program that opens an address on this desktop.
fn find_opener(process: &Process) -> Option<PathBuf> {
    let has = |name| process.variable(name).is_some();
    if cfg!(target_os = "macos") {
        process.find_program("open")
    } else if has("DISPLAY") || has("WAYLAND_DISPLAY") {
        process.find_program("xdg-open")
    } else {
        None
    }
}

#[cfg(all(test, not(target_os = "macos")))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_page_is_opened_on_a_desktop_only() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("xdg-open");
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let path = ("PATH", folder.path().to_str().unwrap());
        for (variables, found) in [
            (&[path][..], false),
            (&[path, ("DISPLAY", ":7")], true),
            (&[path, ("WAYLAND_DISPLAY", "wayland-0")], true),
            (&[("PATH", "/nowhere"), ("DISPLAY", ":7")], false),
        ] {
            let opener = find_opener(&Process::with(variables));
            assert_eq!(opener, found.then(|| program.clone()), "{variables:?}");
        }
    }
}
