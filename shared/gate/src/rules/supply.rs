//! VG-SC: what is installed is not what it seems: names close to popular ones, unpinned sources, CI
//! that runs text of others.

use super::words::names_any;
use crate::finding::Severity;
use crate::rule::place::{ANY, CODE, DATA, FRONT, HIDDEN, PROSE, SHELL};
use crate::rule::{Act, RULE, ScanRule, Scope, Seen};

family!("AST02", "A name is taken by whoever registers it first.");

pub(super) const RULES: &[ScanRule] = &[
    ScanRule {
        rule: rule("VG-SC-001", "package-look-alike", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
        places: SHELL | PROSE | CODE | FRONT | HIDDEN,
        needs: &[&[
            "pip install",
            "pip3 install",
            "npm install",
            "npm i ",
            "yarn add",
            "pnpm add",
            "pnpm install",
            "npx ",
            "uv add",
            "uv pip install",
            "bun add",
            "pipx install",
        ]],
        all: &[
            r"\b(?:pip3? install|npm (?:install|i)|yarn add|pnpm (?:add|install)|npx|uv (?:add|pip install)|bun add|pipx install)\s+([^\n;&|`]+)",
        ],
        check: Some(look_alike_package),
        detail: Some(original),
        message: "a package is installed whose name is one letter from a popular one's",
        mend: "check the spelling of the name",
        bad: &[
            "```bash\npip install reqeusts\n```\n",
            "First pip install reqeusts.\n",
            "```bash\nnpm install lodahs\n```\n",
        ],
        good: &[
            "```bash\npip install requests numpy==2.0\nnpm install preact\n```\n",
            "```bash\nnpm install vue # for expres routes\nnpx tool reqeusts\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-SC-002", "foreign-index", Severity::High), // finds 1 malicious skill, sole flag on 0; finds 6 real skills, flags 0
        act: Act::Warn,
        places: SHELL | PROSE | DATA | CODE,
        needs: &[
            &[
                "--index-url",
                "--extra-index-url",
                "-i http",
                "--registry",
                "pip install git+http:",
                "pip install http:",
                "npm install http:",
            ],
            &["http"],
        ],
        all: &[
            r"(?:--(?:extra-)?index-url|--registry|pip3? install -i)[= ]\s*[\x22']?http\S+|(?:pip3?|npm) install (?:git\+)?http://",
        ],
        check: Some(unknown_index),
        message: "packages come from an index that nobody knows",
        mend: "use the public index, or say who runs this one",
        bad: &[
            "```bash\npip install --extra-index-url http://packages.drop.example.net/simple tool\n```\n",
        ],
        good: &[
            "```bash\npip install --index-url https://download.pytorch.org/whl/cpu torch\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-SC-003", "ci-runs-strangers-text", Severity::High), // finds 2 malicious skills, sole flag on 1; finds 3 real skills, flags 3
        scope: Scope::Block,
        places: DATA | SHELL | CODE,
        needs: &[&["github.event."], &["run:", "script", "bash", "echo"]],
        all: &[
            r"\$\{\{\s*github\.event\.(?:issue|comment|pull_request|review|discussion|head_commit)\.?\w*\.?(?:title|body|message|head\.ref|ref|label|email)\s*\}\}",
            r"\brun\s*:|\bscript\s*:",
        ],
        message: "text of strangers is put into a command of the build",
        mend: "hand it over in a variable: `env:` and `\"$TITLE\"`",
        bad: &["```yaml\nsteps:\n  - run: echo \"${{ github.event.issue.title }}\"\n```\n"],
        good: &[
            "```yaml\nsteps:\n  - env:\n      TITLE: ${{ github.event.issue.title }}\n    uses: a/b@v1\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-SC-004", "ci-builds-strangers-code", Severity::High), // finds 2 malicious skills, sole flag on 1; finds 2 real skills, flags 2
        scope: Scope::Block,
        places: DATA | SHELL | CODE,
        needs: &[
            &["pull_request_target"],
            &[
                "checkout",
                "secrets.",
                "github.event.pull_request.head",
                "@main",
                "@master",
            ],
        ],
        all: &[
            r"pull_request_target",
            r"github\.event\.pull_request\.head|secrets\.\w+|uses:\s*\S+@(?:main|master)\b",
        ],
        message: "code of strangers is built with the rights of the repository",
        mend: "use `pull_request`, without secrets",
        bad: &[
            "```yaml\non:\n  pull_request_target:\njobs:\n  a:\n    steps:\n      - uses: actions/checkout@v4\n        with:\n          ref: ${{ github.event.pull_request.head.sha }}\n```\n",
        ],
        good: &[
            "```yaml\non: [pull_request]\njobs:\n  a:\n    steps:\n      - uses: actions/checkout@v4\n```\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-SC-006", "skill-name-look-alike", Severity::High), // finds 1 malicious skill, sole flag on 0; finds 0 real skills, flags 0
        act: Act::Warn,
        places: FRONT,
        needs: &[&["name:"]],
        all: &[r"^name:\s*['\x22]?[a-z0-9][a-z0-9 _-]+"],
        check: Some(look_alike_skill),
        detail: Some(original),
        literal: true,
        message: "the skill's name is one letter from that of a well-known skill",
        mend: "choose a name of its own",
        bad: &["---\nname: frontend-desing\ndescription: x\n---\n"],
        good: &[
            "---\nname: frontend-design\ndescription: x\n---\n",
            "---\nname: pdf-tools\ndescription: x\n---\n",
        ],
        ..RULE
    },
    ScanRule {
        rule: rule("VG-SC-007", "internal-package", Severity::Medium), // finds 2 malicious skills, sole flag on 2; finds 0 real skills, flags 0
        scope: Scope::Section,
        places: ANY,
        needs: &[
            &["internal ", "private ", "company "],
            &[
                "registry",
                "index",
                "repository",
                "package",
                "module",
                "library",
            ],
            &[
                "install", "npx", "import", "pip", "npm", "requires", "depends", "wrap", "load",
                "need",
            ],
        ],
        all: &[
            r"\binstall\w*\b[^\n]{0,60}\bfrom\b[^\n]{0,20}\b(?:internal|private|company) (?:registry|index|repository)|\b(?:wrap\w*|install\w*|requires?|depends|loads?|imports?|needs?)\b[^\n]{0,60}\b(?:internal|private|company) (?:package|module|library)\s+[`'\x22]?@?[a-z]\w*[-/][\w/-]+",
        ],
        check: Some(without_registry),
        message: "a package of an internal registry is named, which anybody may register in the public one",
        mend: "name the registry, and a version with a checksum",
        bad: &["Install team-config-loader from the internal registry before use.\n"],
        good: &["Our docs live in the internal wiki.\n"],
        ..RULE
    },
];

/// Popular packages of two ecosystems, eight letters or more where the shorter ones have honest
/// neighbours.
const PACKAGES: [&str; 86] = [
    "requests",
    "urllib3",
    "setuptools",
    "certifi",
    "charset-normalizer",
    "typing-extensions",
    "cryptography",
    "pyyaml",
    "numpy",
    "pandas",
    "matplotlib",
    "scikit-learn",
    "tensorflow",
    "pillow",
    "beautifulsoup4",
    "selenium",
    "sqlalchemy",
    "fastapi",
    "uvicorn",
    "pydantic",
    "django",
    "werkzeug",
    "paramiko",
    "python-dateutil",
    "python-dotenv",
    "colorama",
    "openpyxl",
    "pytest",
    "pyinstaller",
    "websockets",
    "boto3",
    "botocore",
    "psycopg2",
    "aiohttp",
    "httpx",
    "openai",
    "anthropic",
    "langchain",
    "transformers",
    "playwright",
    "pypdf2",
    "pdfplumber",
    "reportlab",
    "opencv-python",
    "discord.py",
    "telethon",
    "web3",
    "ccxt",
    "scrapy",
    "jsonschema",
    "lodash",
    "express",
    "react-dom",
    "typescript",
    "webpack",
    "commander",
    "chalk",
    "axios",
    "moment",
    "mongoose",
    "nodemon",
    "eslint",
    "prettier",
    "puppeteer",
    "cross-env",
    "dotenv",
    "jsonwebtoken",
    "bcryptjs",
    "body-parser",
    "socket.io",
    "next-auth",
    "tailwindcss",
    "vite",
    "vitest",
    "electron",
    "inquirer",
    "cheerio",
    "underscore",
    "bluebird",
    "discord.js",
    "ethers",
    "firebase",
    "sequelize",
    "passport",
    "node-fetch",
    "create-react-app",
];

/// Well-known skills whose names others borrow.
const SKILLS: [&str; 43] = [
    "algorithmic-art",
    "brand-guidelines",
    "canvas-design",
    "doc-coauthoring",
    "frontend-design",
    "internal-comms",
    "mcp-builder",
    "skill-creator",
    "slack-gif-creator",
    "theme-factory",
    "web-artifacts-builder",
    "webapp-testing",
    "test-driven-development",
    "systematic-debugging",
    "brainstorming",
    "writing-skills",
    "using-superpowers",
    "executing-plans",
    "subagent-driven-development",
    "git-worktrees",
    "code-review",
    "find-skills",
    "agent-browser",
    "react-best-practices",
    "web-design-guidelines",
    "clawhub",
    "clawdhub",
    "clawddocs",
    "github",
    "notion",
    "summarize",
    "weather",
    "coding-agent",
    "nano-banana-pro",
    "whatsapp",
    "telegram",
    "deep-research",
    "auto-updater",
    "claude-api",
    "claude-code-guide",
    "template-skill",
    "content-creator",
    "openai-whisper",
];

fn look_alike_package(seen: &Seen<'_>) -> Option<usize> {
    packages(seen)
        .any(|word| word.len() >= 6 && near(&word, &PACKAGES).is_some())
        .then_some(seen.first.start)
}

/// The names that a command installs: what stands where an argument stands. A runner such as npx
/// takes one, and in prose without code marks only the first word is certain to be a name.
fn packages(seen: &Seen<'_>) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(seen.matched()).into_owned();
    let text = text.split(" #").next().unwrap_or_default().to_owned();
    let marked = seen.text[..seen.first.start].ends_with(b"`");
    let one = text.starts_with("npx") || (seen.place & (SHELL | CODE) == 0 && !marked);
    let is_name = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"@/._-".contains(&byte))
    };
    let words: Vec<String> = text
        .split_whitespace()
        .skip(1)
        .filter(|word| !word.starts_with('-') && !["install", "add", "i", "pip"].contains(word))
        .map(|word| {
            word.trim_matches(['"', '\''])
                .trim_end_matches(['.', ',', ')', ':'])
        })
        .filter_map(|word| word.split(['=', '<', '>', '[', '~']).next())
        .map(|word| match word.split_once('@') {
            Some((name, _)) if !name.is_empty() => name,
            _ => word,
        })
        .take_while(|word| is_name(word))
        .take(if one { 1 } else { usize::MAX })
        .map(ToOwned::to_owned)
        .collect();
    words.into_iter()
}

/// Which package or skill a name is taken for.
fn original(seen: &Seen<'_>) -> Option<String> {
    let known: &[&str] = if seen.matched().starts_with(b"name:") {
        &SKILLS
    } else {
        &PACKAGES
    };
    let mut names: Vec<String> = packages(seen).collect();
    names.extend(skill_name(seen));
    names.iter().find_map(|name| {
        let original = near(name, known)?;
        Some(format!("`{name}` is easily taken for `{original}`"))
    })
}

fn skill_name(seen: &Seen<'_>) -> Option<String> {
    let text = String::from_utf8_lossy(seen.matched()).into_owned();
    let name = text.strip_prefix("name:")?.trim();
    Some(
        name.trim_matches(['"', '\''])
            .trim()
            .replace([' ', '_'], "-"),
    )
}

fn look_alike_skill(seen: &Seen<'_>) -> Option<usize> {
    let name = skill_name(seen)?;
    (name.len() >= 7 && near(&name, &SKILLS).is_some()).then_some(seen.first.start)
}

/// The known name that a word is one letter away from.
fn near<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // The plural and the singular are two honest names.
    let plural =
        |a: &str, b: &str| a.strip_suffix('s') == Some(b) || b.strip_suffix('s') == Some(a);
    let versioned = |a: &str, b: &str| {
        a.len() != b.len()
            && (a.trim_end_matches(|c: char| c.is_ascii_digit())
                == b.trim_end_matches(|c: char| c.is_ascii_digit()))
    };
    if known.contains(&word) {
        return None;
    }
    known.iter().copied().find(|name| {
        name.len() >= 6
            && crate::names::is_one_edit(word, name)
            && !plural(word, name)
            && !versioned(word, name)
    })
}

/// Nothing in the sentence says which registry is meant.
fn without_registry(seen: &Seen<'_>) -> Option<usize> {
    const NAMED: [&str; 6] = [
        "index-url",
        "--index-url",
        "--extra-index-url",
        "--registry",
        ".npmrc",
        "pip.conf",
    ];
    let is_named =
        names_any(seen.statement, &NAMED) || super::hosts::urls(seen.statement).next().is_some();
    (!is_named).then_some(seen.first.start)
}

fn unknown_index(seen: &Seen<'_>) -> Option<usize> {
    const KNOWN: [&str; 14] = [
        "pypi.org",
        "pytorch.org",
        "registry.npmjs.org",
        "npmmirror.com",
        "tsinghua.edu.cn",
        "aliyun.com",
        "github.com",
        "pkg.github.com",
        "nvidia.com",
        "googleapis.com",
        "pkg.dev",
        "taobao.org",
        "test.pypi.org",
        "nvidia.cn",
    ];
    let from = &seen.text[seen.first.start..];
    super::hosts::urls(from)
        .next()
        .filter(|url| {
            !super::hosts::is_local(&url.host) && !KNOWN.iter().any(|host| url.host.is_below(host))
        })
        .map(|_| seen.first.start)
}
