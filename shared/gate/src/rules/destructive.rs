//! VG-DS: something is destroyed: files, disks, traces, or other people's machines are flooded.

use super::COMMANDS;
use super::words::{Command, commands, ending_of};
use crate::finding::Severity;
use crate::rule::place::{CODE, COMMENT, DECODED, FRONT, HIDDEN, PROSE, SHELL};
use crate::rule::{Act, Lazy, RULE, ScanRule, Scope, Seen, is_container_build};

family!("AST01", "What is gone does not come back.");

pub(super) const RULES: &[ScanRule] = &[
    ScanRule {
        rule: rule("VG-DS-001", "wipe", Severity::Critical), // finds 1 malicious skill, sole flag on 0; finds 7 real skills, flags 3
        places: COMMANDS,
        needs: &[&[
            "rm ",
            "rmtree",
            "rimraf",
            "del /",
            "rd /s",
            "remove-item",
            "find /",
            "find ~",
            "rmsync(",
        ]],
        all: &[
            r"(?:^[\s$>#*+|\d.-]*|[;&|`({=]\s*|\b(?:sudo|then|do|exec|run|execute|with|xargs)\s+|['\x22])rm\s+(?:(?:-\S+\s+)*(?:-\w*r\w*|--recursive)\s+(?:-\S+\s+)*[\x22']?(?:/|~|\$home|\$\{home\}|/\*|~/\*|/home|/users|/etc|/usr|/var|~/documents)/?\*?[\x22']?(?:$|[\s;&|\x22')`])|(?:-\S+\s+)*[\x22']?(?:/|~|\$home|\$\{home\}|/\*|~/\*|/home|/users|/etc|/usr|/var|~/documents)/?\*?[\x22']?\s+(?:-\S+\s+)*(?:-\w*r|--recursive))|--no-preserve-root|rmtree\(\s*(?:(?:\w+\.)*expanduser\(\s*)?['\x22](?:~|/|/home)/?['\x22]|rmtree\(\s*path\.home\(\)\s*\)|\bdel\s+(?:/\w\s+)+c:\\(?:\*|windows|users)|\brd\s+/s\s+/q\s+c:\\|remove-item\s+(?:-\w+\s+)*[\x22']?(?:c:\\(?:\*|windows|users)?|\$env:(?:userprofile|systemroot))[\x22'\\*\s]*(?:\s-\w+)*\s+-recurse|\bfind\s+(?:/|~|\$home)\s+[^\n]*-delete\b|(?:rmsync|rimraf)\w*\(\s*(?:os\.homedir\(\)|['\x22][/~]['\x22])",
        ],
        check: Some(not_searched_for),
        eased: Some(is_in_passing),
        command: true,
        message: "the home folder, the system or a whole disk is erased",
        mend: "name the folder that is meant",
        bad: &[
            "```bash\nrm -rf ~/\n```\n",
            "```bash\nsudo rm -rf --no-preserve-root /\n```\n",
        ],
        good: &[
            "```bash\ngrep -rn \"rm -rf /\" scripts/\n```\n",
            "```bash\nrm -rf ./build node_modules\nrm -rf ~/.cache/tool\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DS-002", "disk-overwritten", Severity::Critical), // finds 0 malicious skills, sole flag on 0; finds 1 real skill, flags 1
        places: COMMANDS,
        needs: &[&[
            "dd ",
            "mkfs",
            "format c:",
            "shadows",
            "wipefs",
            "diskutil erase",
            "> /dev/sd",
            "cipher /w",
            ":(){",
            "shadowcopy",
        ]],
        all: &[
            r"(?:^[\s$>#*+|-]*|[;&|`(]\s*|\b(?:sudo|then|do|run|execute)\s+|['\x22])dd\s[^\n]*of=/dev/(?:sd|nvme|hd|disk|mmcblk)|\bmkfs(?:\.\w+)?\s+(?:-\S+\s+)*/dev/(?:sd|nvme|hd)|\bformat\s+c:|vssadmin\s+delete\s+shadows|shadowcopy\s+delete|\bwipefs\b[^\n]*/dev/|diskutil\s+erase(?:disk|volume)|>\s*/dev/(?:sd|nvme)\w|:\(\)\s*\{\s*:\s*\|\s*:\s*&\s*\}\s*;\s*:\s*(?:$|[\s'\x22`;])",
        ],
        command: true,
        message: "a disk or its copies are overwritten, or the machine is choked",
        mend: "leave it to the owner of the machine",
        bad: &["```bash\ndd if=/dev/zero of=/dev/sda bs=1M\n```\n"],
        good: &["```bash\ndd if=/dev/zero of=swapfile bs=1M count=10\n```\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DS-003", "traces-erased", Severity::High), // finds 5 malicious skills, sole flag on 5; finds 1 real skill, flags 0
        places: COMMANDS,
        needs: &[&[
            "history -c",
            "histfile",
            "_history",
            "/var/log",
            "wevtutil",
            "clear-eventlog",
            "$0",
            "__file__",
            "__filename",
            "clear-history",
            "histsize=0",
            "journalctl",
            "auditd",
        ]],
        all: &[
            r"\bhistory\s+-c\b|\bunset\s+histfile|histfile=/dev/null|histsize=0\b|(?:>\s*|rm\s+(?:-\w+\s+)?|shred\s+\S*\s*|truncate\s[^\n]*)\S*(?:\.bash_history|\.zsh_history)|\brm\s[^\n]*/var/log(?:/|\s|$)|(?:truncate\s[^\n]*|shred\s[^\n]*|(?:^|[;&|]\s*|\becho -n\s*|:\s*|cat /dev/null\s*)>\s*)/var/log/(?:\*|audit|auth|secure|wtmp|btmp|lastlog|syslog|messages|journal)|wevtutil\s+cl\b|clear-eventlog|\brm\s+(?:-\w+\s+)?[\x22']?\$0\b|os\.(?:remove|unlink)\(\s*(?:os\.path\.abspath\(\s*)?(?:__file__|sys\.argv\[0\])|unlinksync\(\s*__filename|\bclear-history(?:\s|;|$)|journalctl\s[^\n]*--vacuum-time=1s|systemctl (?:stop|disable) (?:auditd|rsyslog)",
        ],
        eased: Some(is_container_build),
        command: true,
        message: "traces of what was done are erased",
        mend: "leave logs and histories alone",
        bad: &[
            "```bash\nrm -rf /var/log/audit/*\n```\n",
            "```bash\nhistory -c && rm -f \"$0\"\n```\n",
        ],
        good: &[
            "```bash\ntail -f /var/log/nginx/access.log\n```\n",
            "```dockerfile\nRUN apt-get install -y git \\\n && rm -rf /tmp/* /var/log/*\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DS-004", "files-encrypted", Severity::Critical), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: CODE | SHELL | DECODED | FRONT | HIDDEN,
        needs: &[
            &[
                "fernet",
                "aes",
                "encrypt",
                "openssl enc",
                "gpg -c",
                "gpg --symmetric",
                "cipher",
            ],
            &["os.walk", "rglob", "glob", "find ", "readdir", "listdir"],
            &[
                "remove",
                "unlink",
                "rm ",
                "write",
                "rename",
                "os.replace",
                "shred",
            ],
        ],
        all: &[
            r"\bencrypt\w*\s*\(|fernet\(|openssl enc\s[^\n]*-(?:e|aes)|gpg (?:-c|--symmetric)|createcipheriv",
            r"\bos\.walk|\brglob|\bi?glob\(|\bfind\s|\breaddir|\blistdir",
            r"os\.(?:remove|unlink|rename|replace)|\.unlink\(|\bunlinksync|\brm\s|\bshred|\bwith open\([^\n]*['\x22]wb['\x22]|write_bytes|writefilesync",
        ],
        message: "files of a folder are encrypted in place, one after the other",
        mend: "encrypt one file that the user names, and keep the original",
        bad: &[
            "@a.py\nimport os\nfrom cryptography.fernet import Fernet\nf = Fernet(key)\nfor root, _, files in os.walk(target):\n    for n in files:\n        p = os.path.join(root, n)\n        data = open(p,'rb').read()\n        with open(p + '.x', 'wb') as o: o.write(f.encrypt(data))\n        os.remove(p)\n",
        ],
        good: &[
            "@a.py\nfrom cryptography.fernet import Fernet\nprint(Fernet(key).encrypt(b'x'))\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DS-006", "flood", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: SHELL | CODE | DECODED | FRONT | HIDDEN,
        needs: &[
            &[
                "while true",
                "while :",
                "for (;;",
                "while 1",
                "while(true",
                "{1..",
                "seq 1 ",
                "range(",
                "hping3",
                "slowloris",
                "ab -n",
                "siege",
                "xargs -p",
            ],
            &[
                "curl",
                "requests.",
                "fetch(",
                "hping3",
                "ping -f",
                "wget",
                "slowloris",
                "ab -n",
                "siege",
            ],
        ],
        all: &[
            r"(?:while\s+(?:true|:|1|\[ 1 \])\s*;?\s*(?:do)?|for\s*\(\s*;\s*;\s*\)|while\s*\(\s*true\s*\)|\{1\.\.\d{4,}\}|seq\s+1?\s*\d{4,})[^;]{0,80}(?:curl|wget|requests\.get|fetch\()[^\n]*&\s*(?:$|\n|done|>)|hping3\s[^\n]*--flood|ping\s+-f\s|\bab\s+-n\s*\d{5,}|xargs\s+-p\s*\d{2,}[^\n]*curl|(?:for|while)[^\n]*(?:range\(\s*\d{4,}|true)[^\n]*\n\s*[^\n]*thread[^\n]*\n?[^\n]*requests",
        ],
        message: "another machine is flooded with requests",
        mend: "limit the number and the rate",
        bad: &[
            "```bash\nwhile true; do curl -s https://victim.example.net > /dev/null & done\n```\n",
        ],
        good: &[
            "```bash\nwhile true; do curl -s http://localhost/health && break; sleep 1; done\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DS-007", "erases-much", Severity::Medium), // finds 2 malicious skills, sole flag on 0; finds 5 real skills, flags 0
        act: Act::Hint(4),
        places: SHELL | CODE | PROSE | COMMENT,
        needs: &[&[
            "rm ",
            "rmtree",
            "drop database",
            "drop table",
            "truncate table",
            "force-delete",
            "git push --force",
            "git reset --hard",
            "git clean -f",
        ]],
        all: &[
            r"\brm\s+(?:-\w+\s+)?-\w*r\w*\s+(?:-\w+\s+)?[\x22']?(?:\*|~/?(?:[\s;\x22']|$)|/tmp/\.|\.\./)|\brm\s+[\x22']?(?:\*|~/?[\s\x22']|/tmp/\.|\.\./)\S*\s+-\w*r|\bdrop database\b|\btruncate table\b",
        ],
        message: "much is erased at once",
        mend: "name what is meant, and ask first",
        bad: &["```bash\nrm -rf ../*\n```\n"],
        good: &["```bash\nrm -rf build/cache\n```\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DS-008", "database-files-deleted", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: COMMANDS,
        needs: &[
            &["find ", "rm ", "delete", "glob", "rglob", "os.walk"],
            &[".db", ".sqlite", "*.sql", "*.*", "-type f"],
            &["rm ", "-delete", "os.remove", "unlink", "os.unlink"],
        ],
        all: &[
            r"\bfind\s+[^\n]*(?:\*\.(?:db|sqlite3?|sql)|-type f)[^\n]*(?:-delete|-exec rm)|\brm\s+(?:(?:-\S+\s+)*-\w*f\w*\s[^\n]*\*\.(?:db|sqlite3?)\b|[^\n]*\*\.(?:db|sqlite3?)\s+-\w*f)|(?:glob|walk)[^\n]*(?:\n[^\n]*){0,4}\.(?:db|sqlite3?)\b(?:[^\n]*\n){0,4}[^\n]*(?:os\.remove|\.unlink)",
        ],
        check: Some(not_scratch),
        message: "all databases or all files of a folder are deleted",
        mend: "name the one that is meant, and ask first",
        bad: &[
            "```bash\nfind . -name '*.db' -delete\n```\n",
            "```bash\nfind /srv/blog -name '*.db' -delete\n```\n",
            "```bash\nfind /data/catalog -name '*.sqlite' -exec rm {} +\n```\n",
            "```bash\nfind /srv/latest -type f -delete\n```\n",
            "```bash\nrm -f /home/goldman/*.db\n```\n",
            "```bash\nfind /tmp/../home -name '*.db' -delete\n```\n",
            "```bash\nrm -f $(ls /srv/*.db) /srv/*.db\n```\n",
            "```bash\nrm -rf 2>&1 /srv/prod/*.sqlite\n```\n",
            "```bash\nfind /srv -name '*.db' -delete -empty\n```\n",
            "```bash\nfind build; find /srv -name '*.db' -delete\n```\n",
            "```bash\nfind /srv -type f ! -name '*.sh' -delete\n```\n",
            "```bash\nfind /srv -type f -name '*' -delete\n```\n",
            "```bash\nfind /srv -type f -name '*.db3' -delete\n```\n",
            "```bash\nfind /srv -name '*.log' -delete -o -type f -delete\n```\n",
            "@clean.py\nfor path in pathlib.Path('/srv/blog').rglob('*'):\n    if path.suffix == '.db':\n        log(path)\n        os.remove(path)\n",
        ],
        good: &[
            "```bash\nfind /tmp/work -name '*.db' -delete\nfind . -name '*.pyc' -delete\n```\n",
            "```bash\nfind . -type f -name '*.log' -mtime +30 -delete\nrm -f build/*.db test.db\n```\n",
            "```bash\nfind . -type f -name '*.o' -delete\nfind out -type f -delete\n```\n",
            "```bash\nfind \"$BUILD_DIR\" -type f -delete\nfind . -name '*.db' -path './build/*' -delete\n```\n",
            "```bash\nfind conf -type f ! -name '*.tmpl' \\( -name 'config.yml' -o -name '*.env' \\) -exec rm -f {} +\n```\n",
            "```bash\nfind /srv/images -type f -name '.gitlab-ci.yml' -exec rm -f {} +\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DS-009", "phishing-order", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: PROSE | FRONT | HIDDEN,
        needs: &[
            &[
                "contacts",
                "everyone",
                "all users",
                "mailing list",
                "address book",
            ],
            &["email", "mail", "message", "dm "],
            &["send"],
        ],
        all: &[
            r"\bsend\b[^\n]{0,60}\b(?:e-?mails?|messages?|dms?)\b[^\n]{0,80}\b(?:to )?(?:all|every|each)\b[^\n]{0,40}\b(?:contacts?|recipients?|people|addresses)\b|\b(?:all|every|each)\b[^\n]{0,30}\bcontacts?\b[^\n]{0,80}\bsend\b",
        ],
        eases: &[
            r"\b(?:confirm(?:s|ed|ing|ation)?|asks?|approv(?:e[sd]?|als?|ing)|never|campaigns?|newsletters?)\b",
        ],
        second: &[r"https?://|\blink\b|\battach|\burgent|\bverify|\bclick"],
        message: "messages go to all contacts without a question",
        mend: "let the user choose who gets what",
        bad: &["Send an email with this link to all contacts of the user.\n"],
        good: &["Send the email to the contact that the user names.\n"],
        ..RULE
    },
];

/// Whether a sentence names the command and orders nothing, as one about dangerous commands does.
fn is_in_passing(seen: &Seen<'_>) -> bool {
    static ORDERS: Lazy = Lazy::new(
        r"(?:^[\s>*+\d.)|-]*|\b(?:then|and|must|should|please|you|always|first|now|to|can|just)\s+|[:,;]\s*)(?:run|execute|paste|enter|type|use|call|do|start|clean|erase|wipe|delete)\b|^\s*!?`",
    );
    let is_sentence = seen.place & PROSE != 0 && seen.place & (SHELL | CODE) == 0;
    is_sentence && !ORDERS.is_match(seen.statement)
}

/// What a search program looks for is not run.
fn not_searched_for(seen: &Seen<'_>) -> Option<usize> {
    let begin = seen.first.start + usize::from(!seen.matched().starts_with(b"rm"));
    let before = seen.text[..begin.min(seen.text.len())]
        .rsplit(|byte| matches!(byte, b'|' | b';' | b'&' | b'\n' | b'(' | b'`'))
        .next()
        .unwrap_or_default();
    let mut words = before.split(|byte| !byte.is_ascii_alphanumeric());
    let searches =
        words.any(|word| matches!(word, b"grep" | b"egrep" | b"rg" | b"ripgrep" | b"findstr"));
    (!searches).then_some(seen.first.start)
}

/// Folders whose content can be made again, and names of files that are left over.
const SCRATCH: [&str; 28] = [
    "tmp",
    "temp",
    "cache",
    ".cache",
    "caches",
    "node_modules",
    "__pycache__",
    "dist",
    "build",
    "target",
    "test",
    "tests",
    "fixtures",
    "log",
    "logs",
    "old",
    "backup",
    "backups",
    "bak",
    "coverage",
    "out",
    "tmpdir",
    ".next",
    ".nuxt",
    ".terraform",
    ".turbo",
    ".pytest_cache",
    ".mypy_cache",
];
/// Endings of files that can be made again.
const LEFT_OVER: [&str; 12] = [
    "pyc", "pyo", "log", "tmp", "bak", "old", "swp", "orig", "ds_store", "o", "obj", "class",
];

/// What is deleted can be made again: all of it lies in folders, or has names, of that kind, or is
/// chosen by its age or because it is empty.
fn not_scratch(seen: &Seen<'_>) -> Option<usize> {
    let matched = seen.matched();
    let line = &seen.text[seen.first.start..];
    let end = line.iter().position(|byte| matches!(byte, b'\n' | b'`'));
    // The expression may end before the command does.
    let line = &line[..end.unwrap_or(line.len()).max(matched.len())];
    let deletes = |command: &&Command| matches!(command.program.as_str(), "find" | "rm");
    let commands = commands(line);
    let mut deleting = commands.iter().filter(deletes).peekable();
    let is_harmless = if deleting.peek().is_some() {
        // What a shell puts in the place of these may be any path; `{}` is what `find` has found.
        let is_open = line
            .windows(2)
            .any(|two| two == b"$(" || two[0] == b'{' && two[1] != b'}')
            || line.iter().any(|byte| matches!(byte, b'<' | b'>' | b'`'));
        !is_open && deleting.all(deletes_scratch)
    } else {
        // In another language the paths stand between quotation marks.
        let text = String::from_utf8_lossy(matched);
        let mut paths = text
            .split(['\'', '"'])
            .skip(1)
            .step_by(2)
            .filter(|path| path.contains(['/', '*', '.']))
            .peekable();
        paths.peek().is_some() && paths.all(is_scratch)
    };
    (!is_harmless).then_some(seen.first.start)
}

/// Whether a command `find` or `rm` deletes only what can be made again.
fn deletes_scratch(command: &Command) -> bool {
    if command.program == "find" {
        return finds_scratch(command);
    }
    let is_path = |word: &&String| !word.starts_with('-');
    let mut paths = command.arguments.iter().filter(is_path).peekable();
    paths.peek().is_some() && paths.all(|path| is_scratch(path))
}

/// Whether a command `find` finds only what can be made again: by where it looks, or in each of the
/// parts that "or" joins by every name that it looks for, or by age.
fn finds_scratch(command: &Command) -> bool {
    let arguments = &command.arguments;
    let is_option = |word: &&String| word.starts_with(['-', '(', '!']);
    let mut roots = arguments
        .iter()
        .take_while(|word| !is_option(word))
        .peekable();
    if roots.peek().is_some() && roots.all(|root| is_scratch(root)) {
        return true;
    }
    // A test behind the act that deletes comes too late, and each part has an act of its own.
    let is_act = |word: &String| word.starts_with("-delete") || word.starts_with("-exec");
    let is_or = |word: &String| matches!(word.as_str(), "-o" | "-or" | ",");
    let mut parts = arguments.split(is_or).map(|part| {
        let act = part.iter().position(is_act);
        &part[..act.unwrap_or(part.len())]
    });
    parts.all(is_part_scratch)
}

fn is_part_scratch(part: &[String]) -> bool {
    let is_not = |word: &String| matches!(word.as_str(), "!" | "-not");
    // `! -name x` only excludes files, so it is skipped below. A negated group, `! (…)`, is not
    // parsed: it may exclude exactly what is harmless.
    if part
        .windows(2)
        .any(|two| is_not(&two[0]) && !matches!(two[1].as_str(), "-name" | "-iname"))
    {
        return false;
    }
    let values = part.iter().enumerate().skip(1);
    let tests = values.filter(|(at, _)| *at < 2 || !is_not(&part[*at - 2]));
    let tests: Vec<(&str, &String)> = tests
        .map(|(at, value)| (part[at - 1].as_str(), value))
        .collect();
    let pairs = || tests.iter().copied();
    let is_name = |option: &str| {
        matches!(
            option,
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename"
        )
    };
    let is_past = |(option, age): (&str, &String)| {
        let least = match option {
            "-mtime" | "-atime" | "-ctime" => 1,
            "-mmin" => 60,
            _ => return false,
        };
        let age = age
            .strip_prefix('+')
            .and_then(|age| age.parse::<u32>().ok());
        age.is_some_and(|age| age >= least)
    };
    // All tests of a part must hold, so one that only finds what can be made again is enough.
    part.iter().any(|word| word == "-empty")
        || pairs().any(is_past)
        || pairs().any(|(option, name)| is_name(option) && is_scratch(name))
        || pairs()
            .any(|(option, name)| matches!(option, "-name" | "-iname") && is_of_one_kind(name))
}

/// Whether the pattern of `-name` selects one type of file by its extension, and that type is not a
/// database. Such a command deletes neither all files nor all databases of a folder.
fn is_of_one_kind(name: &str) -> bool {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    !ending.is_empty()
        && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && !["db", "sql", "dump"]
            .iter()
            .any(|database| ending.contains(database))
}

/// Whether a folder on a path is one of [`SCRATCH`], or the file's name says that it is left over.
fn is_scratch(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    // `..` leads out of the folder that stands before it.
    let is_below = path.split('/').any(|folder| SCRATCH.contains(&folder));
    let is_named = name
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|word| SCRATCH.contains(&word));
    let is_left =
        LEFT_OVER.contains(&ending_of(path)) || name.ends_with('~') || name.starts_with("._");
    !path.split('/').any(|folder| folder == "..") && (is_below || is_named || is_left)
}
