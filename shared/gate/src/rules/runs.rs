//! Whether a line of a script runs a file.

use crate::rule::Seen;

/// Returns the name of the file to which a command writes what it fetches, as the command states
/// it.
pub(super) fn fetched_file_name(seen: &Seen<'_>) -> Option<String> {
    let matched = String::from_utf8_lossy(seen.matched()).into_owned();
    let mut words = matched.rsplit([' ', '"', '\'', '=', '>']);
    let last = words.next()?;
    // An option behind the address keeps the name that the file has there.
    let name = if last.starts_with('-') {
        words.find(|word| word.contains("://"))?
    } else {
        last
    };
    let name = name.trim_matches(['"', '\'', ',']).to_owned();
    let base = base_of(&name);
    (!base.is_empty() && base != "null" && !base.starts_with('-')).then_some(name)
}

/// The last part of a path or an address.
pub(super) fn base_of(path: &str) -> &str {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// What separates the words of a command.
pub(super) fn is_edge(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '"' | '\'' | '`' | '(' | ')' | '<')
}

/// What stands between the command that fetches a file and the part of a line that runs it, and
/// that part.
pub(super) fn run_of_file(seen: &Seen<'_>) -> Option<(String, String)> {
    let name = fetched_file_name(seen)?;
    let after = String::from_utf8_lossy(&seen.text[seen.first.end..]);
    let ends = |letter: char| matches!(letter, '\n' | ';' | '&' | '|' | '`');
    let mut parts = after.split_inclusive(ends);
    // What is left of the command that fetches runs nothing.
    let mut previous = parts.next()?;
    let mut from = previous.len();
    let mut opened = None;
    let base = base_of(&name);
    for part in parts {
        // Neither part of a pipe names the file: most lines end here.
        let is_piped = previous.ends_with('|') && previous.contains(base);
        if !is_piped && !part.contains(base) {
            from += part.len();
            previous = part;
            continue;
        }
        let piped = previous.ends_with('|').then_some(previous);
        let line = part.trim_end_matches(ends);
        if runs(line, &name, piped) || starts_as_process(line, &name) {
            return Some((after[..from].to_owned(), line.to_owned()));
        }
        if opened.is_none() && is_opened(line, &name) {
            opened = Some((after[..from].to_owned(), line.to_owned()));
        }
        from += part.len();
        previous = part;
    }
    opened
}

/// Whether a command makes the file of this name executable.
pub(super) fn is_opened(line: &str, name: &str) -> bool {
    if !line.contains("chmod") {
        return false;
    }
    let mut words = line.split(is_edge).filter(|word| !word.is_empty());
    let is_mode = |word: &str| word.contains("+x") || (word.len() <= 4 && word.contains('7'));
    words.any(|word| word == "chmod")
        && words.clone().any(is_mode)
        && words.any(|word| word == name || base_of(word) == base_of(name))
}

/// Whether a program runs the file that it is given.
fn is_interpreter(program: &str) -> bool {
    matches!(
        program,
        "bash"
            | "sh"
            | "zsh"
            | "dash"
            | "ksh"
            | "fish"
            | "python"
            | "python3"
            | "node"
            | "deno"
            | "bun"
            | "perl"
            | "ruby"
            | "php"
            | "pwsh"
            | "powershell"
            | "source"
            | "."
            | "open"
            | "start"
            | "start-process"
            | "osascript"
    )
}

/// Whether a word starts the program that stands behind it.
fn is_starter(word: &str) -> bool {
    matches!(
        word,
        "sudo" | "doas" | "nohup" | "exec" | "env" | "time" | "setsid" | "command" | "$" | ">"
    )
}

/// Whether a command runs the file of this name; `piped`: the command whose output it reads.
fn runs(line: &str, name: &str, piped: Option<&str>) -> bool {
    let base = base_of(name);
    let bare = |word: &str| word.trim_matches(['{', '}', ',', '.', ':']).to_owned();
    let is_it = |word: &str| {
        let word = word.trim_end_matches([',', ':', '.']);
        word == name || base_of(word) == base || (name.starts_with('$') && bare(word) == bare(name))
    };
    let mut words = line
        .split(is_edge)
        .filter(|word| !word.is_empty())
        .peekable();
    // `sudo -u me`, `env A=1`: what starts the program, with options and their values.
    let mut is_started = false;
    while let Some(word) = words.peek() {
        let is_option = is_started && (word.starts_with('-') || word.contains('='));
        if !is_starter(word) && !is_option {
            break;
        }
        is_started = true;
        let takes_value = word.starts_with('-') && word.len() == 2;
        words.next();
        if takes_value && words.clone().nth(1).is_some() {
            words.next();
        }
    }
    let Some(program) = words.next() else {
        return false;
    };
    let mut arguments = words.skip_while(|word| word.starts_with(['-', '+']));
    // An argument of what stands between quotes in front is not a program.
    let is_first = !line.trim_start().starts_with("' ");
    let is_path = is_first && (program.contains(['/', '\\']) || program.starts_with('$'));
    // What is fetched to be read has an ending of its own.
    let ending = base.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_data = [
        "json", "yaml", "yml", "csv", "txt", "md", "onnx", "gz", "zip", "tar", "html", "pdf",
    ];
    if is_it(program) && is_path && !is_data.contains(&ending) {
        return true;
    }
    if is_interpreter(program) {
        let reads = piped.is_some_and(|command| {
            let mut words = command.trim_end_matches('|').split(is_edge);
            words.any(|word| !word.is_empty() && is_it(word))
        });
        return arguments.next().map_or(reads, is_it);
    }
    program == "eval" && arguments.any(is_it)
}

/// Whether a line of a script hands this file to what starts a process.
fn starts_as_process(line: &str, name: &str) -> bool {
    const STARTS: [&str; 13] = [
        "subprocess.run",
        "subprocess.popen",
        "subprocess.call",
        "os.system",
        "execsync",
        "spawn",
        "startfile",
        "check_call",
        "check_output",
        "\"bash\",",
        "\"sh\",",
        "'bash',",
        "'sh',",
    ];
    if name.len() <= 2 {
        return false;
    }
    let Some(at) = line.find(name) else {
        return false;
    };
    let call = line[..at].trim_end_matches(['"', '\'', '[', '(', ' ', 'f']);
    STARTS.iter().any(|start| call.ends_with(start))
}
