//! `vault cloud pull --every`: sets up or removes a timer of the user's session that runs `vault
//! cloud pull` at an interval.
//!
//! On Linux it is a systemd user timer, on macOS a launchd agent. Both delay each pull by up to a
//! tenth of the interval, so that many machines do not ask a service at the same moment.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use schemars::JsonSchema;
use serde::Serialize;
use vault_library::Vault;
use vault_store::random::{Random as _, SystemRandom};

use crate::{
    context::Context,
    errors::Failure,
    output::{DIM, Report, TICK, clean, paint},
};

/// The shortest interval, in seconds. The longest one is below.
const SHORTEST: u64 = 5 * 60;
const LONGEST: u64 = 7 * 86_400;
/// The name of the systemd service and timer that pull (`vault-pull.timer`).
const UNIT: &str = "vault-pull";
/// The label of the launchd agent that pulls on macOS.
const LABEL: &str = "dev.vault.pull";

/// The timer of the user's session that runs `vault cloud pull`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct PullTimer {
    /// Seconds between two pulls; null if there is no timer.
    every_seconds: Option<u64>,
    /// Paths of the files that define the timer for systemd or launchd; empty if there is none.
    files: Vec<PathBuf>,
}

/// How often the timer pulls: the parsed value of `--every`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PullSchedule {
    /// At this interval, in seconds.
    Seconds(u64),
    /// Never: the timer is removed.
    Off,
}

/// Parses an interval: `30m`, `1h`, `1d` or `off`.
pub fn parse_interval(text: &str) -> Result<PullSchedule, String> {
    let form = || "write an interval from 5m to 7d, such as 30m, 1h or 1d, or off".to_owned();
    if text == "off" {
        return Ok(PullSchedule::Off);
    }
    let unit = match text.chars().last() {
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => return Err(form()),
    };
    // Each unit is one byte, so the cut is at the boundary of a character.
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| form())?;
    match number.checked_mul(unit) {
        Some(seconds) if (SHORTEST..=LONGEST).contains(&seconds) => {
            Ok(PullSchedule::Seconds(seconds))
        }
        _ => Err(form()),
    }
}

/// The program of the operating system that runs the timer: systemd on Linux, launchd on macOS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ServiceManager {
    Systemd,
    Launchd,
}

/// What makes systemd or launchd run `vault cloud pull` at an interval: the path and content of
/// each file to write, and the commands that start and stop the timer.
#[derive(Debug, Eq, PartialEq)]
struct Timer {
    files: Vec<(PathBuf, String)>,
    start: Vec<Vec<String>>,
    stop: Vec<Vec<String>>,
}

/// What a timer depends on: the machine's service manager, the paths, and the interval.
struct TimerSettings<'a> {
    service: ServiceManager,
    home: &'a Path,
    /// `XDG_CONFIG_HOME`, if it is set.
    config: Option<&'a Path>,
    program: &'a Path,
    vault: &'a Path,
    seconds: u64,
    /// Random seconds below a tenth of the interval. Added to the interval for launchd, which has
    /// no random delays.
    jitter: u64,
    user: u32,
}

/// Builds the files and commands of a timer. Fails if a path contains control characters or is not
/// UTF-8.
fn build_timer(settings: &TimerSettings<'_>) -> Result<Timer, String> {
    // A line break in a path would begin a new setting of the unit, such as another command.
    let text = |path: &Path| match path.to_str() {
        Some(text) if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => Err(format!(
            "{} cannot be used in a timer",
            clean(&path.display().to_string(), 300)
        )),
    };
    let program = text(settings.program)?;
    let vault = text(settings.vault)?;
    let config = settings.config.map(text).transpose()?;
    // A timer has no terminal, so `--no-input` makes questions fail instead of waiting.
    let line = [
        &program,
        "--vault",
        &vault,
        "--no-input",
        "--quiet",
        "cloud",
        "pull",
    ];
    Ok(match settings.service {
        ServiceManager::Systemd => systemd_timer(settings, &line, config.as_deref()),
        ServiceManager::Launchd => launchd_timer(settings, &line, config.as_deref()),
    })
}

fn to_owned_words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

fn systemd_timer(settings: &TimerSettings<'_>, line: &[&str], config: Option<&str>) -> Timer {
    let default = settings.home.join(".config");
    let folder = settings.config.unwrap_or(&default).join("systemd/user");
    // systemd interprets backslashes inside quotes, and `%` as the start of a specifier.
    let quoted = |word: &str| {
        let word = word.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{}\"", word.replace('%', "%%"))
    };
    // A `$` begins a variable in a command, and in no other line.
    let command: Vec<String> = line
        .iter()
        .map(|word| quoted(word).replace('$', "$$"))
        .collect();
    // The timer does not see the variables of this shell. This one determines where the keys are.
    let environment = config.map_or_else(String::new, |config| {
        let setting = quoted(&format!("XDG_CONFIG_HOME={config}"));
        format!("Environment={setting}\n")
    });
    let service = format!(
        "[Unit]\nDescription=Pull the linked vaults\n\n[Service]\nType=oneshot\n{environment}ExecStart={}\n",
        command.join(" ")
    );
    let (every, delay) = (settings.seconds, settings.seconds / 10);
    let timer = format!(
        "[Unit]\nDescription=Pull the linked vaults regularly\n\n[Timer]\nOnStartupSec=2min\nOnUnitActiveSec={every}s\nRandomizedDelaySec={delay}s\n\n[Install]\nWantedBy=timers.target\n"
    );
    let unit = format!("{UNIT}.timer");
    let run = |arguments: &[&str]| to_owned_words(&[&["systemctl", "--user"], arguments].concat());
    Timer {
        files: vec![
            (folder.join(format!("{UNIT}.service")), service),
            (folder.join(&unit), timer),
        ],
        start: vec![
            run(&["daemon-reload"]),
            run(&["enable", &unit]),
            // A running timer keeps its earlier interval until it is restarted.
            run(&["restart", &unit]),
        ],
        stop: vec![run(&["disable", "--now", &unit])],
    }
}

fn launchd_timer(settings: &TimerSettings<'_>, line: &[&str], config: Option<&str>) -> Timer {
    let escaped = |text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        format!("<string>{}</string>", text.replace('>', "&gt;"))
    };
    let arguments_xml: Vec<String> = line.iter().map(|word| escaped(word)).collect();
    let command = format!("    {}\n", arguments_xml.join("\n    "));
    let environment = config.map_or_else(String::new, |config| {
        let config = escaped(config);
        format!(
            "  <key>EnvironmentVariables</key>\n  <dict>\n    <key>XDG_CONFIG_HOME</key>\n    {config}\n  </dict>\n"
        )
    });
    // launchd has no random delay, so each machine gets a slightly different interval.
    let every = settings.seconds + settings.jitter;
    let plist = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n  <key>Label</key>\n  <string>{LABEL}</string>\n  <key>ProgramArguments</key>\n  <array>\n{command}  </array>\n{environment}  <key>StartInterval</key>\n  <integer>{every}</integer>\n</dict>\n</plist>\n"
    );
    let path = settings
        .home
        .join(format!("Library/LaunchAgents/{LABEL}.plist"));
    let domain = format!("gui/{}", settings.user);
    let stop = to_owned_words(&["launchctl", "bootout", &format!("{domain}/{LABEL}")]);
    let start = to_owned_words(&["launchctl", "bootstrap", &domain, &path.to_string_lossy()]);
    Timer {
        files: vec![(path, plist)],
        start: vec![start],
        stop: vec![stop],
    }
}

/// Writes the files of the timer and starts it. It pulls into this vault.
pub fn set_timer(context: &Context, vault: &Vault, seconds: u64) -> Result<Report, Failure> {
    // The service manager starts the program in another folder, where a relative path fails.
    let root = std::path::absolute(&vault.paths().root)
        .map_err(|error| Failure::io("resolving", &vault.paths().root, &error))?;
    start_timer(&timer_for_vault(context, &root, seconds)?, seconds)
}

/// Stops and removes the timer. Needs no vault, whose folder may be gone.
pub fn remove_timer(context: &Context) -> Result<Report, Failure> {
    // Only the paths of the files and the stop commands are used, which do not depend on the vault
    // and the interval. So any values serve here.
    stop_timer(&timer_for_vault(context, Path::new("/"), LONGEST)?)
}

fn timer_for_vault(context: &Context, root: &Path, seconds: u64) -> Result<Timer, Failure> {
    let home = context.process.home().ok_or_else(|| {
        fail!(TimerNotChanged, "this process has no home folder").hint("set HOME")
    })?;
    // The timer names this very program, because it need not be in the session's PATH.
    let program =
        std::env::current_exe().map_err(|error| Failure::io("finding", "vault", &error))?;
    let mut random = [0; 8];
    SystemRandom.fill_random(&mut random);
    let settings = TimerSettings {
        service: if cfg!(target_os = "macos") {
            ServiceManager::Launchd
        } else {
            ServiceManager::Systemd
        },
        home,
        config: context.process.variable("XDG_CONFIG_HOME").map(Path::new),
        program: &program,
        vault: root,
        seconds,
        // The shortest interval is 5 minutes, so this never divides by 0.
        jitter: u64::from_le_bytes(random) % (seconds / 10),
        // launchd names a session by the user's numeric id. The user owns the home folder.
        user: std::fs::metadata(home).map_or(0, |home| home.uid()),
    };
    build_timer(&settings).map_err(|reason| fail!(TimerNotChanged, "{reason}"))
}

fn start_timer(timer: &Timer, seconds: u64) -> Result<Report, Failure> {
    // Write the files before the commands, because the service manager reads them.
    for (path, text) in &timer.files {
        let folder = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(path, text))
            .map_err(|error| Failure::io("writing", path, &error))?;
    }
    // launchd (one file) replaces a loaded agent only after it was removed. This fails the first
    // time, when none is loaded. systemd (two files) does not need it.
    if timer.files.len() == 1 {
        let _not_loaded = timer
            .stop
            .iter()
            .try_for_each(|command| run_command(command));
    }
    if let Err(failure) = timer
        .start
        .iter()
        .try_for_each(|command| run_command(command))
    {
        // Without the timer running, the files would suggest that this machine pulls.
        remove_timer_files(timer)?;
        return Err(failure);
    }
    let files: Vec<PathBuf> = timer.files.iter().map(|(path, _)| path.clone()).collect();
    let mut lines = vec![format!(
        "{TICK} this machine pulls every {}, while you are logged in",
        format_interval(seconds)
    )];
    let file_lines = files.iter().map(|path| format!("  {}", path.display()));
    lines.extend(file_lines.map(|path| paint(DIM, path)));
    lines.push(paint(
        DIM,
        "  vault status shows the last pull; --every off ends this",
    ));
    let every_seconds = Some(seconds);
    let timer = PullTimer {
        every_seconds,
        files,
    };
    Ok(Report::view(timer, lines.join("\n")))
}

fn stop_timer(timer: &Timer) -> Result<Report, Failure> {
    let present = timer.files.iter().any(|(path, _)| path.exists());
    if present {
        // Remove the files even if the stop command fails, for example because the timer does not
        // run.
        let stopped = timer
            .stop
            .iter()
            .try_for_each(|command| run_command(command));
        remove_timer_files(timer)?;
        stopped?;
    }
    let text = if present {
        format!("{TICK} this machine pulls only when you ask it to")
    } else {
        "no timer is set".to_owned()
    };
    let timer = PullTimer {
        every_seconds: None,
        files: Vec::new(),
    };
    Ok(Report::view(timer, text))
}

fn remove_timer_files(timer: &Timer) -> Result<(), Failure> {
    for (path, _) in &timer.files {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::io("removing", path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs a command of the service manager, and fails with what it writes to standard error.
fn run_command(command: &[String]) -> Result<(), Failure> {
    let command_line = command.join(" ");
    let [program, arguments @ ..] = command else {
        return Ok(());
    };
    let output = Command::new(program)
        .args(arguments)
        // A service manager that asks for a password must fail here instead of waiting.
        .stdin(Stdio::null())
        .output();
    let reason = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(fail!(
        TimerNotChanged,
        "`{}` failed: {}",
        clean(&command_line, 300),
        clean(&reason, 300)
    )
    .hint(
        "log in to this machine as yourself, or let cron run: vault cloud pull --no-input --quiet",
    ))
}

/// Formats an interval in its largest whole unit: `day`, `2 hours`, `30 minutes`.
fn format_interval(seconds: u64) -> String {
    let (number, unit) = match seconds {
        days if days % 86_400 == 0 => (days / 86_400, "day"),
        hours if hours % 3_600 == 0 => (hours / 3_600, "hour"),
        other => (other / 60, "minute"),
    };
    if number == 1 {
        unit.to_owned()
    } else {
        format!("{number} {unit}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings<'a>(
        service: ServiceManager,
        vault: &'a Path,
        config: Option<&'a Path>,
    ) -> TimerSettings<'a> {
        TimerSettings {
            service,
            home: Path::new("/home/ann"),
            config,
            program: Path::new("/usr/bin/vault"),
            vault,
            seconds: 3_600,
            jitter: 17,
            user: 501,
        }
    }

    #[test]
    fn intervals_have_a_unit_and_bounds() {
        for (text, wanted) in [
            ("5m", PullSchedule::Seconds(300)),
            ("1h", PullSchedule::Seconds(3_600)),
            ("7d", PullSchedule::Seconds(604_800)),
            ("off", PullSchedule::Off),
        ] {
            assert_eq!(parse_interval(text), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "4m",
            "8d",
            "h",
            "-1h",
            "1",
            "1w",
            "1.5h",
            "99999999999999999999d",
            "1é",
        ] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_systemd_timer_names_program_and_vault_and_spreads_the_load() {
        let vault = Path::new("/home/ann/my \"50%\" $vault");
        let config = Path::new("/cfg");
        let timer = build_timer(&settings(ServiceManager::Systemd, vault, Some(config))).unwrap();
        let [(service_path, service), (timer_path, text)] = &timer.files[..] else {
            panic!("{:?}", timer.files);
        };
        assert_eq!(
            service_path,
            Path::new("/cfg/systemd/user/vault-pull.service")
        );
        assert_eq!(timer_path, Path::new("/cfg/systemd/user/vault-pull.timer"));
        let command = "ExecStart=\"/usr/bin/vault\" \"--vault\" \"/home/ann/my \\\"50%%\\\" $$vault\" \"--no-input\" \"--quiet\" \"cloud\" \"pull\"\n";
        assert!(service.contains(command), "{service}");
        assert!(
            service.contains("Environment=\"XDG_CONFIG_HOME=/cfg\"\n"),
            "{service}"
        );
        assert!(
            text.contains("OnUnitActiveSec=3600s\nRandomizedDelaySec=360s\n"),
            "{text}"
        );
        assert_eq!(timer.start[0], ["systemctl", "--user", "daemon-reload"]);
        let plain = super::build_timer(&settings(ServiceManager::Systemd, vault, None)).unwrap();
        assert!(
            plain.files[0]
                .0
                .starts_with("/home/ann/.config/systemd/user")
        );
        assert!(!plain.files[0].1.contains("Environment"));
    }

    #[test]
    fn a_launchd_agent_names_program_and_vault_and_has_an_interval_of_its_own() {
        let vault = Path::new("/Users/a<b>&c");
        let timer = build_timer(&settings(ServiceManager::Launchd, vault, None)).unwrap();
        let [(path, text)] = &timer.files[..] else {
            panic!("{:?}", timer.files);
        };
        assert!(path.ends_with("Library/LaunchAgents/dev.vault.pull.plist"));
        assert!(
            text.contains("<string>/Users/a&lt;b&gt;&amp;c</string>"),
            "{text}"
        );
        assert!(text.contains("<integer>3617</integer>"), "{text}");
        assert_eq!(
            timer.stop,
            [["launchctl", "bootout", "gui/501/dev.vault.pull"]]
        );
    }

    #[test]
    fn a_path_with_a_line_break_is_rejected() {
        for service in [ServiceManager::Systemd, ServiceManager::Launchd] {
            assert!(
                build_timer(&settings(service, Path::new("/a\nExecStart=/bin/sh"), None)).is_err()
            );
        }
    }

    #[test]
    fn intervals_are_worded_in_their_largest_unit() {
        for (seconds, text) in [
            (300, "5 minutes"),
            (3_600, "hour"),
            (86_400, "day"),
            (5_400, "90 minutes"),
        ] {
            assert_eq!(format_interval(seconds), text);
        }
    }
}
