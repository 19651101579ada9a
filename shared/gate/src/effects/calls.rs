//! What functions of Python, JavaScript and PowerShell do with what they are given, by their names.

/// What a call does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    /// It returns the content of the file that it is given the name of.
    Reads,
    /// It writes its second argument to the file that the first one names.
    WritesSecond,
    /// It writes its arguments to the file that the value before the point names.
    WritesThere,
    /// It writes its first argument to the file that the second one names.
    WritesFirst,
    /// It copies the first file to the second one.
    CopiesFile,
    /// It sends its arguments.
    Sends,
    /// It sends its arguments if the value before the point is a connection; otherwise it may write
    /// them.
    SendsThere,
    /// It sends the files that its arguments name.
    SendsFile,
    /// It starts a process.
    Starts,
    /// It writes what it fetches to the file that its second argument names.
    Downloads,
    /// It runs its arguments as code.
    Runs,
    /// It runs the file that its arguments name.
    RunsFile,
    /// It prints its arguments.
    Prints,
    /// It returns nothing of its arguments.
    Drops,
    /// It returns a part of its arguments.
    Narrows,
    /// It loads a file of the skill.
    Imports,
    /// It returns its arguments in some form.
    Passes,
}

/// Names of calls, without what stands before the last point, in lower case.
const NAMES: [(Effect, &str); 15] = [
    (
        Effect::Downloads,
        " urlretrieve downloadfile downloadfiletaskasync ",
    ),
    (
        Effect::RunsFile,
        " run_path startfile start-process saps exec_module ",
    ),
    (
        Effect::Reads,
        " open read_text read_bytes readfile readfilesync createreadstream file_get_contents readalltext readallbytes readalllines fopen get-content gc readtextfile readtextfilesync loadtxt streamreader ",
    ),
    (
        Effect::WritesSecond,
        " writefile writefilesync appendfile appendfilesync file_put_contents writealltext writeallbytes writetextfile writetextfilesync outputfile outputfilesync ",
    ),
    (Effect::WritesThere, " write_text write_bytes writelines "),
    (
        Effect::CopiesFile,
        " copy2 copyfile copyfilesync copytree copy-item move-item cpsync renamesync linksync symlinksync ",
    ),
    (
        Effect::Sends,
        " fetch urlopen axios got ky needle sendbeacon sendmail send_message sendall sendto uploadstring uploadstringtaskasync uploaddata uploadvalues postasync putasync sendasync postasjsonasync invoke-restmethod invoke-webrequest irm iwr send-mailmessage gethostbyname resolve-dnsname put_object storbinary send_raw_email goto chat_postmessage files_upload files_upload_v2 create_gist create_issue append_row append_rows upload_fileobj upload_from_string upload_from_file upload_blob putfo capture_message capture_exception send_document ",
    ),
    (
        Effect::SendsThere,
        " post put patch get request send write writeline writelineasync writeasync end emit delete head upload resolve resolve4 resolvetxt lookup connect ",
    ),
    (
        Effect::SendsFile,
        " uploadfile uploadfiletaskasync upload_file upload_from_filename fput fput_object start-bitstransfer ",
    ),
    (
        Effect::Starts,
        " system popen check_output check_call getoutput getstatusoutput execsync spawn spawnsync execfile execfilesync execa execasync shell_exec passthru create_subprocess_exec create_subprocess_shell execl execle execlp execlpe execv execve execvp execvpe spawnl spawnlp spawnv spawnvp posix_spawn ",
    ),
    (
        Effect::Runs,
        " eval invoke-expression iex runinnewcontext runinthiscontext runincontext ",
    ),
    (Effect::Prints, " print write-output write-host echo puts "),
    (
        Effect::Drops,
        " len exists isfile isdir is_file is_dir existssync stat statsync isinstance typeof test-path unlink unlinksync remove rmtree mkdir makedirs mkdirsync chmod sha256 sha1 md5 createhash digest hexdigest computehash sign sign_message createsign createhmac has int bool access accesssync hasattr startswith endswith includes get-filehash getsize ",
    ),
    (
        Effect::Narrows,
        " split splitlines match matchall search findall group partition fromkeys convertfrom-json select-string pop find getenv ",
    ),
    (Effect::Imports, " require import "),
];

/// Modules and objects whose calls go to other machines.
const NETWORK: &str = " requests httpx axios got aiohttp http https http2 net tls urllib urllib2 urllib3 superagent needle ky undici dgram dns smtplib ftplib boto3 paramiko socket request jquery websockets websocket nodemailer ";
/// Calls that return a connection, besides those of [`NETWORK`] with the names in [`CONNECTS`].
const CONNECTIONS: &str = " websocket xmlhttprequest tcpclient webclient httpclient clientsession asyncclient udpclient createconnection create_connection createtransport httpconnection httpsconnection poolmanager smtp smtp_ssl ftp ftp_tls smtpclient ";
const CONNECTS: &str =
    " session client socket connect createsocket resource createclient sshclient create ";

pub(super) fn is_in(list: &str, name: &str) -> bool {
    !name.is_empty()
        && list
            .match_indices(name)
            .any(|(at, _)| list[..at].ends_with(' ') && list[at + name.len()..].starts_with(' '))
}

/// Returns what a call does. `path` is its name with what stands before it, `a.b.c`, in lower case.
pub(super) fn effect_of(path: &str, is_python: bool) -> Effect {
    let last = path.rsplit('.').next().unwrap_or(path);
    let base = path.split('.').next().unwrap_or_default();
    match (base, last) {
        ("jwt" | "jose", "encode") | ("hmac", "new") => return Effect::Drops,
        ("os", "link" | "symlink" | "rename" | "renames" | "replace") => {
            return Effect::CopiesFile;
        }
        ("shutil", "copy" | "move") => return Effect::CopiesFile,
        ("json" | "pickle" | "yaml" | "marshal", "dump") => return Effect::WritesFirst,
        ("subprocess", "run" | "call" | "popen") | ("bun", "$") | ("deno", "command") => {
            return Effect::Starts;
        }
        (_, "exec") if is_python && path == "exec" => return Effect::Runs,
        ("scriptblock", "create") => return Effect::Runs,
        ("streamreader", "new") => return Effect::Reads,
        (_, "create") if path.ends_with("gists.create") || path.ends_with("files().create") => {
            return Effect::Sends;
        }
        ("child_process" | "cp" | "exec" | "require()", "exec") if !is_python => {
            return Effect::Starts;
        }
        ("console", "log" | "info") | ("process" | "sys", "write") => return Effect::Prints,
        _ => {}
    }
    if last == "function" && !is_python {
        return Effect::Runs;
    }
    let found = NAMES.iter().find(|(_, names)| is_in(names, last));
    found.map_or(Effect::Passes, |(effect, _)| *effect)
}

/// Whether a call of this name returns a connection to another machine.
pub(super) fn connects(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    is_in(CONNECTIONS, last)
        || is_in(CONNECTS, last) && is_network(path)
        || matches!(path, "http.request" | "https.request" | "http2.request")
}

/// Whether what stands before the point is a module of the network.
pub(super) fn is_network(path: &str) -> bool {
    let base = path.split('.').next().unwrap_or_default();
    path.contains('.') && is_in(NETWORK, base)
}

/// Whether a path is a module or an object whose members do something.
pub(super) fn is_module(path: &str) -> bool {
    is_in(NETWORK, path)
        || is_in(
            " os os.environ sys sys.argv sys.stdin subprocess asyncio importlib fs fs.promises child_process process process.env process.argv process.stdin shutil urllib.request http.client ",
            path,
        )
}

/// Whether a call answers with what another machine sends.
pub(super) fn fetches(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    is_in(
        " fetch urlopen axios got ky downloadstring downloaddata invoke-restmethod invoke-webrequest irm iwr getstringasync getbytearrayasync urlretrieve downloadfile ",
        last,
    ) || is_network(path)
        && !path.starts_with("request.")
        && is_in(" get post request urlopen ", last)
}

/// Whether a name stands for the header of a request, or what signs one.
pub(super) fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("header")
        || matches!(
            name.as_str(),
            "auth" | "authorization" | "cookies" | "cookie" | "cert" | "bearer"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_names() {
        for (path, effect) in [
            ("open", Effect::Reads),
            ("fs.readfilesync", Effect::Reads),
            ("requests.post", Effect::SendsThere),
            ("urllib.request.urlopen", Effect::Sends),
            ("re.exec", Effect::Passes),
            ("exec", Effect::Runs),
            ("os.path.exists", Effect::Drops),
            ("base64.b64encode", Effect::Passes),
            ("subprocess.run", Effect::Starts),
        ] {
            assert_eq!(effect_of(path, true), effect, "{path}");
        }
        assert_eq!(effect_of("child_process.exec", false), Effect::Starts);
        assert!(connects("requests.session") && connects("net.connect") && !connects("db.connect"));
    }
}
