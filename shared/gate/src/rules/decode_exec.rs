//! VG-DE: something is decoded and run, so that it cannot be read.

use super::COMMANDS;
use super::hosts::urls;
use crate::finding::Severity;
use crate::rule::place::{CODE, DECODED, FRONT, HIDDEN, PROSE, SHELL};
use crate::rule::{RULE, ScanRule, Scope, Seen};

family!(
    "AST01",
    Severity::Critical,
    "Encoding hides from the reader what the machine will do."
);

pub(super) const RULES: &[ScanRule] = &[
    ScanRule {
        rule: rule("VG-DE-001", "decode-pipe-shell"), // finds 22 malicious skills, sole flag on 0; finds 1 real skill, flags 1
        places: COMMANDS & !DECODED,
        needs: &[&[
            "base64",
            "xxd",
            "openssl",
            "| rev",
            "|rev",
            "tr ",
            "base32",
            "gunzip",
            "gzip",
            "zcat",
            "uudecode",
            "powershell",
            "pwsh",
        ]],
        all: &[concat!(
            r"(?:[|<]\s*base(?:64|32)\s+(?:-d|--decode|-di)\b|base(?:64|32)\s+(?:-d|--decode|-di)\s+[^|\s]|xxd\s+-(?:r\s+-p|p\s+-r|rp|pr)|openssl\s+(?:enc|base64|aes\S*)\b[^|\n]*\s-d\b|\|\s*rev\b|\btr\s+['\x22]?(?:a-z|a-za-z|n-za-m)\S*\s+['\x22]?n-z|uudecode|\b(?:zcat|gunzip\s+-\w*c\w*|gzip\s+-\w*d\w*c\w*)\s+[^|\s])[^|\n]*(?:\|\s*(?:gunzip|gzip -d\S*|zcat|base64 -d|rev|tr|sed|cut)\b[^|\n]*)*\|\s*",
            shell!(),
            r"|(?:\b(?:ba|z|da|k)?sh\s+(?:-\S+\s+)*|\beval\s+|\bsource\s+|\bpython3?\s+-c\s+)[\x22']*\s*(?:<<<\s*[\x22']?)?(?:<\s*\(|\$\(|`)[^\n)`]*(?:base(?:64|32)\s+(?:-d|--decode)|xxd\s+-r)",
            r"|\b(?:powershell|pwsh)\S*\s[^\n]*\s-e(?:nc|ncodedcommand|c)?\s+[a-z0-9+/=]{24,}"
        )],
        command: true,
        message: "decoded text is handed to an interpreter",
        mend: "write the command in plain text",
        bad: &[
            "```bash\necho 'ZWNobyBoZWxsbw==' | base64 -D | bash\n```\n",
            "```bash\nprintf 6563686f | xxd -r -p | sh\n```\n",
            "```bash\neval \"$(echo ZWNobyBoZWxsbw== | base64 -d)\"\n```\n",
            "```powershell\npowershell -NoProfile -enc SQBFAFgAIABhAGIAYwBkAGUAZgBnAGgA\n```\n",
            "Run `zcat data/steps.gz | sh`.\n",
        ],
        good: &[
            "```bash\necho \"$CERT\" | base64 -d > cert.pem\n```\n",
            "```bash\nKEY=$(echo \"$RAW\" | base64 -d)\nzcat log.gz | grep error\n```\n",
            "```bash\ngh api repos/a/b/readme | jq -r .content | base64 -d | head\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DE-003", "exec-decoded"), // finds 1 malicious skill, sole flag on 1; finds 2 real skills, flags 2
        places: CODE | SHELL | PROSE | DECODED | FRONT | HIDDEN,
        needs: &[
            &[
                "exec",
                "eval",
                "system",
                "popen",
                "subprocess",
                "function(",
                "run(",
                "runpy",
                "loads",
            ],
            &[
                "b64decode",
                "atob",
                "fromhex",
                "unhexlify",
                "base64",
                "marshal",
                "zlib.decompress",
                "fromcharcode",
                "rot13",
                "chr(",
                "codecs.decode",
                "bytes([",
            ],
        ],
        all: &[
            r"(?:\bexec|\beval|\bsystem|\bpopen|\bnew function|\bfunction|subprocess\.\w+|\bexecsync|\bspawn|settimeout)\s*\(\s*[^\n;]{0,160}?(?:\bb64decode|\bb32decode|base64\.decode\w*|\batob\s*\(|\bfromhex|\bunhexlify|codecs\.decode|marshal\.loads|zlib\.decompress|\bfromcharcode|buffer\.from\([^)\n]*(?:base64|hex)|\bbase64_decode|\bfrombase64string|bytes\(\[|chr\(\d+\)\s*\+)",
        ],
        message: "decoded text is run as code",
        mend: "write the code in plain text",
        bad: &[
            "@a.py\nimport base64\nexec(base64.b64decode('cHJpbnQoMSk='))\n",
            "@a.js\neval(atob(code))\n",
        ],
        good: &[
            "@a.py\nimport base64\nimage = base64.b64decode(text)\n",
            "@a.js\nconst text = atob(part)\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DE-004", "exec-decoded-later"), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: CODE | SHELL | DECODED | FRONT | HIDDEN,
        needs: &[
            &[
                "b64decode",
                "atob(",
                "fromhex",
                "unhexlify",
                "marshal.loads",
                "zlib.decompress",
                "fromcharcode",
                "base64_decode",
                "'base64')",
                "\"base64\")",
                "rot13",
                "chr(",
                "^",
            ],
            &["exec(", "eval(", "os.system(", "new function(", "execsync("],
        ],
        all: &[
            r"(\w+)\s*(?::\s*\w+\s*)?=\s*[^\n]{0,160}?(?:\bb64decode|\batob\s*\(|\bfromhex|\bunhexlify|marshal\.loads|zlib\.decompress|\bfromcharcode|\bbase64_decode|['\x22]base64['\x22]\s*\)|rot_?13|join\(\s*chr\(|(?:bytes|bytearray|join)\([^\n]*\^)",
        ],
        check: Some(variable_is_run),
        detail: Some(where_it_is_run),
        message: "text is decoded into a variable, and the variable is run",
        mend: "write the code in plain text",
        bad: &[
            "```python\nimport base64\ncode = base64.b64decode(DATA).decode()\nexec(code)\n```\n",
        ],
        good: &[
            "```python\nimport base64\nraw = base64.b64decode(DATA)\nprint(eval_score(raw))\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DE-005", "decoded-command"), // finds 23 malicious skills, sole flag on 0; finds 2 real skills, flags 2
        places: DECODED,
        needs: &[&[
            "curl",
            "wget",
            "/bin/sh",
            "/bin/bash",
            "bash -",
            "sh -c",
            "powershell",
            "python -c",
            "python3 -c",
            "import os",
            "import socket",
            "subprocess",
            "os.system",
            "eval(",
            "exec(",
            "child_process",
            "iex",
            "invoke-",
            "nc -",
            "/dev/tcp",
            "chmod +x",
            "rm -rf",
            "socket.socket",
        ]],
        all: &[
            r"\b(?:curl|wget)\b.*(?:https?:|\s-\w|\$)|/bin/(?:ba|z|da)?sh\b|\b(?:ba)?sh\s+-[ci]\b|\bpowershell\b|\bpython3?\s+-c\b|\bimport\s+(?:os|socket|subprocess|pty)\b|subprocess\.|os\.system|\b(?:eval|exec)\s*\(|child_process|\biex\b|invoke-(?:expression|webrequest)|\bnc\s+-|/dev/tcp/|chmod\s+\+x|\brm\s+-rf",
        ],
        literal: true,
        message: "a command appears only after decoding",
        mend: "write the command in plain text",
        bad: &["```bash\necho 'L2Jpbi9iYXNoIC1jICJlY2hvIGhlbGxvIHdvcmxkIg==' > /tmp/x\n```\n"],
        good: &[
            "```json\n{\"image\": \"aGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXh0IHdpdGhvdXQgY29tbWFuZA==\"}\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-DE-006", "decoded-address"), // finds 25 malicious skills, sole flag on 1; finds 0 real skills, flags 0
        places: DECODED,
        needs: &[&["http://", "https://"]],
        all: &[r"https?://[a-z0-9.-]+\.[a-z]{2,}|https?://(?:\d{1,3}\.){3}\d"],
        // An address alone is data; where the text around decodes it, it is hidden.
        check: Some(real_address),
        literal: true,
        message: "an address appears only after decoding",
        mend: "write the address in plain text",
        bad: &[
            "```python\nendpoint = base64.b64decode('aHR0cHM6Ly9kcm9wLmV4YW1wbGUubmV0L2NvbGxlY3Q=').decode()\n```\n",
            "```python\nPART = 'aHR0cHM6Ly9kcm9wLmV4YW1wbGUubmV0L2NvbGxlY3Q='\nendpoint = base64.b64decode(PART)\n```\n",
            "@a.py\nCONFIG = json.loads(base64.b64decode('eyJhbGciOiJub25lIiwidHlwIjoiY2ZnIiwidG8iOiJodHRwczovL2Nkbi50YWJsZS1raXQuZGV2L2luIn0='))\n",
        ],
        good: &[
            "```yaml\ndata:\n  HOOK: aHR0cHM6Ly9ob29rcy5hY21lLWNsb3VkLmRldi9idWlsZC9yZWFkeQ==\n```\n",
            "```json\n{\"svg\": \"PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciPjwvc3ZnPg==\"}\n```\n",
        ],
        ..RULE
    },
];

/// Namespaces of XML are names, not places.
fn real_address(seen: &Seen<'_>) -> Option<usize> {
    urls(seen.text)
        .find(|url| {
            !matches!(
                url.host.as_str(),
                "www.w3.org"
                    | "schemas.microsoft.com"
                    | "schemas.openxmlformats.org"
                    | "purl.org"
                    | "ns.adobe.com"
            )
        })
        .map(|url| url.start)
}

/// The variable that decoded text is put into is run further down.
fn variable_is_run(seen: &Seen<'_>) -> Option<usize> {
    run_of_decoded(seen).map(|_| seen.first.start)
}

fn where_it_is_run(seen: &Seen<'_>) -> Option<String> {
    run_of_decoded(seen).map(|line| run_as(&line))
}

fn run_of_decoded(seen: &Seen<'_>) -> Option<String> {
    const CALLS: [&str; 7] = [
        "exec(",
        "eval(",
        "os.system(",
        "new function(",
        "execsync(",
        "shell=true",
        "loads(",
    ];
    run_of_variable(seen, &CALLS)
}

/// The second place of a finding about something that is run.
pub(super) fn run_as(line: &str) -> String {
    let shown: String = line.trim().chars().take(60).collect();
    format!("run as {}", vault_format::text::quoted(&shown))
}

/// The line on which one of these calls gets the variable that the first expression assigns to.
pub(super) fn run_of_variable(seen: &Seen<'_>, calls: &[&str]) -> Option<String> {
    let matched = String::from_utf8_lossy(seen.matched()).into_owned();
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let name: String = matched.chars().take_while(|c| is_letter(*c)).collect();
    let after = String::from_utf8_lossy(&seen.text[seen.first.end..]).into_owned();
    // `pattern.exec(text)` searches; it runs nothing.
    let is_method = |at: usize| after[..at].ends_with('.') && !after[at..].starts_with("os.");
    let line_of = |at: usize| {
        let argument: String = after[at..].lines().next()?.chars().take(1024).collect();
        let mut words = argument.split(|c| !is_letter(c));
        words.any(|word| word == name).then_some(argument)
    };
    calls.iter().find_map(|call| {
        let found = after.match_indices(call).map(|(at, _)| at);
        found.filter(|at| !is_method(*at)).find_map(line_of)
    })
}
