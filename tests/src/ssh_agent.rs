//! OpenSSH's `ssh-agent` in a test home, with a script that answers its questions in place of a
//! person.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::home::Home;
use crate::person::wait_for;

/// A running `ssh-agent`, which is killed when this value is dropped.
pub struct SshAgent {
    child: Child,
    home: PathBuf,
}

impl SshAgent {
    /// Starts an agent whose socket is in this home, so that later commands of the home use it. It
    /// confirms each use of a key until [`Self::person_answers`] changes that.
    pub fn start(home: &Home) -> Self {
        let home_path = home.path().to_owned();
        let asked = home_path.join("asked");
        fs::write(
            &asked,
            format!("#!/bin/sh\nexec {}/answer\n", home_path.display()),
        )
        .expect("a file of the test's own");
        fs::set_permissions(&asked, fs::Permissions::from_mode(0o755)).expect("its mode");
        let mut command = Command::new("ssh-agent");
        home.environment(&mut command);
        let socket = socket(home);
        let child = command
            .args(["-D", "-a"])
            .arg(&socket)
            .env("SSH_ASKPASS", &asked)
            .env("SSH_ASKPASS_REQUIRE", "force")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("OpenSSH's agent");
        wait_for(|| socket.exists().then_some(()));
        let agent = Self {
            child,
            home: home_path,
        };
        agent.person_answers("exit 0");
        agent
    }

    /// Sets the line of shell that answers the agent's questions: `exit 0` confirms, `exit 1`
    /// declines.
    pub fn person_answers(&self, line: &str) {
        let answer = self.home.join("answer");
        fs::write(&answer, format!("#!/bin/sh\n{line}\n")).expect("a file of the test's own");
        fs::set_permissions(&answer, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// Creates a key of this kind, such as `ed25519`, and adds it to the agent with these options
    /// of `ssh-add`. Returns its fingerprint, `SHA256:…`.
    pub fn add_key(&self, name: &str, kind: &str, options: &[&str]) -> String {
        let file = self.home.join(name);
        let path = file.to_str().expect("a path of the test's own");
        self.ssh("ssh-keygen", &["-q", "-t", kind, "-N", "", "-f", path]);
        self.ssh("ssh-add", &[options, &["-q", path]].concat());
        let shown = self.ssh("ssh-keygen", &["-l", "-f", path]);
        let fingerprint = shown.split_whitespace().nth(1).expect("a fingerprint");
        fingerprint.to_owned()
    }

    /// Runs a program of OpenSSH that uses this agent, and returns its standard output. Panics if
    /// it fails.
    pub fn ssh(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("SSH_AUTH_SOCK", self.home.join("agent.sock"))
            .env("SSH_ASKPASS", self.home.join("asked"))
            .env("SSH_ASKPASS_REQUIRE", "force")
            .stdin(Stdio::null())
            .output()
            .expect("a program of OpenSSH");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(self.home.join("agent.sock"));
    }
}

/// Returns the path of the socket on which the agent of a home listens.
pub fn socket(home: &Home) -> PathBuf {
    home.path().join("agent.sock")
}
