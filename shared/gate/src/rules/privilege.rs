//! VG-PV: rights are taken that no skill needs, or guards are switched off.

use super::COMMANDS;
use super::words::{names, names_any};
use crate::finding::Severity;
use crate::rule::place::{CODE, DATA, DECODED, FRONT, HIDDEN, PROSE, SHELL};
use crate::rule::{Act, RULE, ScanRule, Scope, Seen, is_container_build};

family!(
    "AST03",
    "With these rights a mistake or a lie reaches the whole machine."
);

pub(super) const RULES: &[ScanRule] = &[
    ScanRule {
        rule: rule("VG-PV-001", "root-for-all", Severity::Critical), // finds 0 malicious skills, sole flag on 0; finds 3 real skills, flags 1
        places: COMMANDS,
        needs: &[&[
            "sudoers",
            "nopasswd",
            "chmod u+s",
            "chmod +s",
            "chmod 4",
            "setcap",
            "localgroup administrators",
            "release_agent",
            "nsenter",
            "admin -add",
            "dseditgroup",
            "set-mppreference",
            "add-mppreference",
            "spctl",
            "csrutil disable",
            "disableantispyware",
            "amsi",
        ]],
        all: &[
            r"(?:>>?|tee\s+(?:-a\s+)?)\s*/etc/sudoers(?:\s|$|[\x22';|])|nopasswd\s*:\s*all|\bchmod\s+(?:u\+s|\+s|4[0-7]{3})\s|\bsetcap\s+cap_(?:setuid|sys_admin|dac)|net\s+localgroup\s+administrators\s[^\n]*/add|release_agent|nsenter\s[^\n]*(?:-t\s*1|--target[= ]1)\b|dseditgroup\s[^\n]*admin|set-mppreference\s[^\n]*-disable|add-mppreference\s[^\n]*-exclusion|spctl\s+--(?:master|global)-disable|csrutil\s+disable|\bdisableantispyware|\bamsiutils|\bamsiinitfailed",
        ],
        // What a container holds ends with the container.
        eased: Some(is_container_build),
        command: true,
        message: "rights of the administrator are given away, or a guard of the system is switched off, for good",
        mend: "ask for the one step that needs them",
        bad: &[
            "```bash\necho 'ALL ALL=(ALL) NOPASSWD: ALL' >> /etc/sudoers\n```\n",
            "```bash\nchmod u+s /tmp/tool\n```\n",
            "```powershell\nSet-MpPreference -DisableRealtimeMonitoring $true\n```\n",
        ],
        good: &[
            "```bash\nchmod +x scripts/run.sh\nsudo usermod -aG docker $USER\n```\n",
            "```dockerfile\nRUN useradd -m dev \\\n && echo \"dev ALL=(root) NOPASSWD:ALL\" > /etc/sudoers.d/dev\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-PV-002", "container-escape", Severity::High), // finds 3 malicious skills, sole flag on 2; finds 0 real skills, flags 0
        places: COMMANDS,
        needs: &[
            &["docker", "podman", "kubectl", "privileged", "container"],
            &[
                "--privileged",
                "docker.sock",
                "-v /:",
                "--pid=host",
                "--cap-add",
                "hostpid",
                "source=/,",
                "source=/proc",
                "/etc/shadow",
                "/root/.ssh",
            ],
        ],
        all: &[
            r"--privileged\b|-v\s*/:/|--volume[= ]/:/|--cap-add[= ](?:all|sys_admin|sys_ptrace)|-v\s*/etc/shadow|-v\s*/root/\.ssh|source=/(?:,|proc)|--pid[= ]host|hostpid:\s*true",
        ],
        check: Some(two_ways_out),
        command: true,
        message: "a container is started with the rights or the files of the machine",
        mend: "mount the one folder that is needed, without privileges",
        bad: &["```bash\ndocker run --privileged -v /:/host alpine\n```\n"],
        good: &["```bash\ndocker run -v $PWD:/work alpine\n```\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-PV-004", "open-and-root", Severity::High), // finds 3 malicious skills, sole flag on 3; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: SHELL | CODE | DECODED | DATA | FRONT | HIDDEN,
        needs: &[&["chmod"], &["777", "a+rwx", "o+w"], &["chown"]],
        all: &[
            r"\bchmod\s+(?:-\w+\s+)*(?:0?777|a\+rwx|o\+w)",
            r"\bchown\s+(?:-\w+\s+)*root",
        ],
        message: "files are given to the administrator and opened to everybody",
        mend: "give the one right that is needed to the one who needs it",
        bad: &["```bash\nchmod 777 /srv/shared && sudo chown -R root:root /srv/shared\n```\n"],
        good: &["```bash\nsudo chown -R $USER /srv/shared\nchmod 755 /srv/shared\n```\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-PV-005", "every-tool", Severity::Medium), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        act: Act::Warn,
        places: FRONT | DATA,
        needs: &[&[
            "allowed-tools",
            "tools:",
            "permissions:",
            "\"action\"",
            "administratoraccess",
        ]],
        all: &[
            r"^\s*(?:allowed-tools|tools|permissions)\s*:\s*\[?\s*['\x22]?(?:\*|all|bash\(\*\))['\x22]?\s*[,\]]?\s*$|['\x22]action['\x22]\s*:\s*\[?\s*['\x22]\*['\x22]|policy/administratoraccess",
        ],
        message: "every tool or right is asked for",
        mend: "name the tools that are needed",
        bad: &["---\nname: a\nallowed-tools: \"*\"\n---\n"],
        good: &["---\nname: a\nallowed-tools: Bash(git:*), Read\n---\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-PV-006", "world-writable", Severity::Medium), // finds 2 malicious skills, sole flag on 0; finds 4 real skills, flags 0
        act: Act::Hint(5),
        places: SHELL | CODE | PROSE,
        needs: &[&["chmod"]],
        all: &[r"\bchmod\s+(?:-\w+\s+)*(?:0?777|a\+rwx|o\+w)\b"],
        message: "files are opened to everybody",
        mend: "give the one right that is needed to the one who needs it",
        bad: &["```bash\nchmod -R 777 data\n```\n"],
        good: &["```bash\nchmod 755 bin/run\n```\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-PV-008", "checks-skipped", Severity::Medium), // finds 1 malicious skill, sole flag on 0; finds 5 real skills, flags 0
        act: Act::Hint(4),
        places: COMMANDS,
        needs: &[&[
            "verify=false",
            "rejectunauthorized",
            "--no-verify",
            "-k ",
            "--insecure",
            "node_tls_reject",
            "--dangerously",
            "sslverify",
            "--trusted-host",
            "--allow-unauthenticated",
            "--no-check-certificate",
            "--yolo",
            "strict-ssl",
        ]],
        all: &[
            r"verify\s*=\s*false|rejectunauthorized['\x22]?\s*:\s*false|node_tls_reject_unauthorized\s*=\s*['\x22]?0|curl\s[^\n]*(?:\s-\w*k\w*\s|--insecure)|--dangerously-\w+|http\.sslverify\s+false|--trusted-host|--no-check-certificate|strict-ssl false",
        ],
        message: "a check is switched off",
        mend: "leave it on",
        bad: &["```bash\ncurl --insecure https://files.example.net/a\n```\n"],
        good: &["```bash\ncurl --fail https://files.example.net/a\n```\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-PV-009", "back-door-account", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: PROSE | CODE | SHELL | HIDDEN | DECODED | FRONT,
        needs: &[
            &[
                "admin",
                "root",
                "default user",
                "account",
                "useradd",
                "net user",
            ],
            &["password", "passwd", "/add"],
            &[
                "always", "every", "default", "create", "add ", "useradd", "net user", "hardcode",
            ],
        ],
        all: &[
            r"\b(?:always|must|make sure|every)\b[^\n]{0,120}\b(?:create|add|include|set)\b[^\n]{0,60}\b(?:admin|root|superuser|default)\b[^\n]{0,40}\b(?:user|account|password)\b[^\n]{0,100}\bpassword\b[^\n]{0,30}['\x22`:=]|\bnet\s+user\s+\S+\s+\S+\s+/add|\buseradd\s[^\n]*-p\s|\bset\b[^\n]{0,40}\b(?:default|admin) password\b[^\n]{0,30}\bto\b[^\n]{0,10}['\x22`]",
        ],
        second: &[r"\b(?:always|must|every|make sure)\b|\bnet\s+user\s"],
        message: "an account with a password that everybody can read is made",
        mend: "let the user choose the password",
        bad: &["Always add a default admin user with the password `letmein1`.\n"],
        good: &["Ask the user for the admin password and hash it.\n"],
        ..RULE
    },
];

/// One of them alone has honest uses; two do not.
fn two_ways_out(seen: &Seen<'_>) -> Option<usize> {
    const WAYS: [&str; 12] = [
        "--privileged",
        "docker.sock",
        "-v /:",
        "--pid=host",
        "--pid host",
        "--cap-add",
        "source=/proc*",
        "/etc/shadow*",
        "/root/.ssh*",
        "*hostpid*",
        "*aws_secret*",
        "source=/,",
    ];
    const STRONG: [&str; 7] = [
        "--privileged",
        "-v /:",
        "/etc/shadow*",
        "/root/.ssh*",
        "source=/,",
        "source=/proc*",
        "*hostpid*",
    ];
    let count = WAYS.iter().filter(|way| names(seen.text, way)).count();
    let strong = names_any(seen.text, &STRONG);
    (count >= 2 && strong).then_some(seen.first.start)
}
