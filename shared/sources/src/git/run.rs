//! Runs git: arguments, environment, limits and termination.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::GitSettings;
use crate::error::{FetchError, GitFault, Result, escape_untrusted};

/// Maximum size of the objects that a fetch downloads, in bytes.
const MAX_REPOSITORY_BYTES: u64 = 512 << 20;
/// Maximum size of git's error output that is kept, in bytes.
const MAX_ERROR_OUTPUT_BYTES: usize = 16 << 10;
/// Maximum number of lines of git's error output that a message shows.
const MAX_ERROR_OUTPUT_LINES: usize = 4;
/// Interval between two measurements of a fetch's size.
const SIZE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Runs git commands that contact one remote, or work in one local repository.
pub(super) struct Git<'a> {
    pub(super) settings: &'a GitSettings,
    pub(super) place: &'a str,
    pub(super) folder: Option<&'a Path>,
}

/// The input and the limits of one git command.
pub(super) struct Run {
    pub(super) input: Vec<u8>,
    pub(super) max_output: usize,
    pub(super) time: Duration,
}

impl Run {
    /// Creates a run without input. The command may write at most `most` bytes to standard output
    /// and run for `time`.
    pub(super) const fn new(most: usize, time: Duration) -> Self {
        Self {
            input: Vec::new(),
            max_output: most,
            time,
        }
    }
}

/// Kills a process group when dropped. Clear the field once the process has ended, since the system
/// may reuse its id.
struct Group(Option<rustix::process::Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// The configuration of every command: neither code of a repository nor a hook of the user runs,
/// and git never prompts.
const CONFIGURATION: [&str; 11] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.askPass=",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "credential.interactive=false",
    "advice.detachedHead=false",
    "protocol.version=2",
];

/// Environment variables that would point git to another repository or make it start other
/// programs.
const REMOVED_VARIABLES: [&str; 12] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_TEMPLATE_DIR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "GIT_SSH",
    "GIT_PROTOCOL_FROM_USER",
];

impl Git<'_> {
    fn build_command(&self, arguments: &[impl AsRef<str>]) -> Command {
        let mut command = Command::new(&self.settings.program);
        // Settings on the command line take precedence over all of git's configuration files.
        for setting in CONFIGURATION {
            command.args(["-c", setting]);
        }
        if let Some(folder) = self.folder {
            let mut git_dir = OsString::from("--git-dir=");
            git_dir.push(folder);
            command.arg(git_dir);
        }
        command.args(arguments.iter().map(AsRef::as_ref));
        for variable in REMOVED_VARIABLES {
            command.env_remove(variable);
        }
        if !self.settings.own_credentials {
            command
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_SYSTEM", "/dev/null")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                // git's HTTP library reads `.netrc` from the home folder.
                .env("HOME", "/nonexistent")
                .env("XDG_CONFIG_HOME", "/nonexistent")
                .env_remove("GIT_CONFIG_COUNT")
                .env_remove("GIT_CONFIG_PARAMETERS")
                .env_remove("SSH_AUTH_SOCK");
        }
        // Transports such as `ext::` run a command of their address, so name the allowed ones.
        let transports = if self.settings.loopback {
            "https:ssh:http:file"
        } else {
            "https:ssh"
        };
        let ssh = self.settings.ssh_command.as_deref().unwrap_or("ssh");
        // SSH must fail instead of asking for a password or asking whether to trust a host key.
        let ssh = format!("{ssh} -oBatchMode=yes -oConnectTimeout=15");
        command
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("GCM_INTERACTIVE", "never")
            .env("GIT_ALLOW_PROTOCOL", transports)
            .env("GIT_SSH_COMMAND", ssh)
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_LFS_SKIP_SMUDGE", "1")
            // Faults are recognised by their English messages.
            .env("LC_ALL", "C")
            // The current folder may be in a repository, whose configuration git would read.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own makes it possible to kill git together with its child processes.
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// Runs git and returns its standard output. Fails if git fails, exceeds its time limit or
    /// writes too much. In the last two cases, the whole process group is killed.
    pub(super) async fn run_command(
        &self,
        arguments: &[impl AsRef<str>],
        run: &Run,
    ) -> Result<Vec<u8>> {
        let work = self.run_to_end(arguments, run);
        match tokio::time::timeout(run.time, work).await {
            Ok(done) => done,
            Err(_) => Err(FetchError::unreachable_error(
                self.place,
                format!("git did not end within {} s", run.time.as_secs_f32()),
            )),
        }
    }

    /// Like [`Git::run_command`], but also fails if the folder of this repository exceeds the size
    /// limit of a repository.
    pub(super) async fn run_watched(
        &self,
        arguments: &[impl AsRef<str>],
        run: &Run,
    ) -> Result<Vec<u8>> {
        // git has no limit for the size of a fetch, so measure the folder while it runs.
        let watch = async {
            loop {
                tokio::time::sleep(SIZE_CHECK_INTERVAL).await;
                let is_over = |folder| size_of(folder, 6) > MAX_REPOSITORY_BYTES;
                if self.folder.is_some_and(is_over) {
                    return;
                }
            }
        };
        tokio::select! {
            done = self.run_command(arguments, run) => done,
            () = watch => Err(FetchError::too_large(
                self.place,
                MAX_REPOSITORY_BYTES,
                "bytes of one commit",
            )),
        }
    }

    async fn run_to_end(&self, arguments: &[impl AsRef<str>], run: &Run) -> Result<Vec<u8>> {
        let mut child = self.build_command(arguments).spawn().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                FetchError::Unsupported {
                    message: "git is not installed, and repositories are fetched with it"
                        .to_owned(),
                    hint: "install git, or add a downloaded folder".to_owned(),
                }
            } else {
                FetchError::local_error("starting git", &error)
            }
        })?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        // From here on, dropping this future kills git together with its children.
        let mut group = Group(pid.and_then(rustix::process::Pid::from_raw));
        let failed = |error: std::io::Error| FetchError::local_error("running git", &error);
        let (out, said) = exchange_data(&mut child, run).await;
        let out = out.map_err(failed)?;
        if out.len() > run.max_output {
            return Err(FetchError::too_large(
                self.place,
                run.max_output as u64,
                "bytes in a listing",
            ));
        }
        let status = child.wait().await.map_err(failed)?;
        // The process has ended and the system may reuse its id, so do not kill the group on drop.
        group.0 = None;
        if status.success() {
            return Ok(out);
        }
        Err(self.classify_failure(
            &String::from_utf8_lossy(&said.map_err(failed)?),
            status.code(),
        ))
    }

    /// Converts git's exit code and error output into an error, without the passwords in the
    /// output.
    fn classify_failure(&self, said: &str, code: Option<i32>) -> FetchError {
        if code == Some(2) && said.trim().is_empty() {
            // `ls-remote --exit-code` exits with status 2 if no reference matches.
            return FetchError::NotFound(format!(
                "{} has no commits, or no such branch or tag",
                self.place
            ));
        }
        // git quotes the address of a proxy that it cannot use, with its password.
        let shown = self.settings.hidden.hide(said);
        let lines = shown.lines().map(str::trim).filter(|line| !line.is_empty());
        // The message may contain an address from git's own settings, which vault does not know.
        let lines = lines.map(hide_credentials);
        let lines: Vec<String> = lines
            .take(MAX_ERROR_OUTPUT_LINES)
            .map(|line| escape_untrusted(&line))
            .collect();
        FetchError::Git {
            place: self.place.to_owned(),
            fault: GitFault::from_output(said),
            said: lines.join("\n"),
        }
    }
}

/// Writes a process's input and reads both of its outputs, standard output up to one byte beyond
/// its limit. If the limit is exceeded, reading stops. The process may then block forever, and the
/// caller must kill it.
async fn exchange_data(child: &mut Child, run: &Run) -> (io::Result<Vec<u8>>, io::Result<Vec<u8>>) {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // Ignore the error: a process that does not read its input reports the cause on exit.
            let _ = stdin.write_all(&run.input).await;
        }
    };
    let read = async {
        let mut out = Vec::new();
        if let Some(stdout) = stdout {
            let mut stdout = stdout.take(run.max_output as u64 + 1);
            stdout.read_to_end(&mut out).await?;
        }
        Ok(out)
    };
    let listen = async {
        let mut said = Vec::new();
        if let Some(mut stderr) = stderr {
            let mut start = (&mut stderr).take(MAX_ERROR_OUTPUT_BYTES as u64);
            start.read_to_end(&mut said).await?;
            // Discard the rest, so that the process does not block on a full pipe.
            tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
        }
        Ok(said)
    };
    let ((), outputs) = tokio::join!(write, async {
        tokio::pin!(listen);
        tokio::pin!(read);
        let out = tokio::select! {
            out = &mut read => out,
            said = &mut listen => return (read.await, said),
        };
        match out {
            Ok(out) if out.len() > run.max_output => (Ok(out), Ok(Vec::new())),
            out => (out, listen.await),
        }
    });
    outputs
}

/// Replaces user names and passwords in the addresses of a line by `***`.
fn hide_credentials(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line;
    while let Some((before, address)) = rest.split_once("://") {
        // A password may contain a slash, which makes the address invalid, so look at the whole
        // word.
        let end = address.find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"'));
        let (word, after) = address.split_at(end.unwrap_or(address.len()));
        let place = word.rsplit_once('@').filter(|(user, _)| {
            // A user of SSH, such as `git`, is no secret. Over HTTP it may be a token.
            let is_ssh = before.ends_with("ssh");
            !is_ssh || user.contains([':', '/', '@'])
        });
        let place = place.map(|(_, place)| place);
        let mark = if place.is_some() { "***@" } else { "" };
        shown.push_str(&[before, "://", mark, place.unwrap_or(word)].concat());
        rest = after;
    }
    shown + rest
}

/// Returns the total size of the files below a folder, in bytes, down to `depth` levels of folders.
/// Skips entries that cannot be read.
fn size_of(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(facts) if facts.is_dir() && depth > 0 => size_of(&entry.path(), depth - 1),
            Ok(facts) => facts.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::HiddenTexts;

    #[test]
    fn passwords_of_the_proxies_that_are_set_are_hidden_whatever_they_look_like() {
        for address in [
            "ann:s3/cret@127.0.0.1:9",
            "http://ann:s3/c\"ret@127.0.0.1:9",
            "http://ann:s3 c'ret@127.0.0.1:9",
        ] {
            let hidden = HiddenTexts::of_proxies(std::iter::once(address));
            let said = format!("fatal: Invalid proxy URL '{address}': only SOCKS proxies");
            let shown = hidden.hide(&said);
            assert!(!shown.contains("s3") && !shown.contains("ret@"), "{shown}");
            assert!(shown.contains("***@127.0.0.1:9'"), "{shown}");
            assert!(!format!("{hidden:?}").contains("s3"));
        }
    }

    #[test]
    fn a_user_name_of_a_proxy_is_hidden_in_addresses_only() {
        let addresses = [
            "http://a@proxy.example",
            "b:@proxy.example",
            "@proxy.example",
        ];
        let hidden = HiddenTexts::of_proxies(addresses.into_iter());
        for (said, shown) in [
            (
                "fatal: bad proxy 'a@proxy.example'",
                "fatal: bad proxy '***@proxy.example'",
            ),
            (
                "fatal: b: bad proxy http://b:@proxy.example",
                "fatal: b: bad proxy http://***@proxy.example",
            ),
        ] {
            assert_eq!(hidden.hide(said), shown);
        }
    }

    #[test]
    fn passwords_in_messages_of_git_are_hidden() {
        for (line, shown) in [
            (
                "fatal: unable to access 'https://a.example/b.git/': Unsupported proxy syntax in 'http://u:s3/cr@t@p:x': bad",
                "fatal: unable to access 'https://a.example/b.git/': Unsupported proxy syntax in 'http://***@p:x': bad",
            ),
            (
                "fatal: http://u:secret@p.example:3128 gave 407, see https://a.example",
                "fatal: http://***@p.example:3128 gave 407, see https://a.example",
            ),
            (
                "fatal: unable to access 'https://token@a.example/b.git/': bad",
                "fatal: unable to access 'https://***@a.example/b.git/': bad",
            ),
            (
                "fatal: Could not read from ssh://git@a.example:22/b.git",
                "fatal: Could not read from ssh://git@a.example:22/b.git",
            ),
            (
                "fatal: Could not read from ssh://ann:s3cret@a.example/b.git",
                "fatal: Could not read from ssh://***@a.example/b.git",
            ),
            (
                "git@a.example: Permission denied",
                "git@a.example: Permission denied",
            ),
        ] {
            assert_eq!(hide_credentials(line), shown);
        }
    }
}
