//! Where a value goes in a script: from the line that reads it, by names, to a line that sends it.
//!
//! It follows assignments, collections, returned values and parameters by their names alone, within
//! one piece of text. It reads no grammar, so it serves Python, JavaScript, Ruby, PHP and shells
//! alike, and it may miss what no name carries.

use super::words::names as names_word;
use crate::rule::Lazy;
use std::collections::BTreeSet;
use std::ops::Range;

/// Rounds in which names are handed on. Each takes a value through one more step against the order
/// of the lines.
const ROUNDS: usize = 4;

/// What sends data away, in languages other than a shell's.
static SENDS: Lazy = Lazy::new(
    r"requests\.\w+\(|httpx\.\w+\(|\.(?:post|put|patch)\(|\burlopen\(|urllib\.request\.request\(|https?\.(?:request|get)\(|\bfetch\(|\baxios|\.send(?:all|to)?\(|\.sendmail\(|\.send_message\(|\.request\(|net::http|http\.post|file_get_contents\(\s*['\x22]https?:|curl_(?:exec|setopt)|invoke-(?:restmethod|webrequest)|sendbeacon\(|\bxmlhttprequest|['\x22](?:curl|wget|nc|ncat)['\x22\s]|\b(?:curl|wget)\s",
);

/// A name that a line assigns to, with what is declared before it.
static ASSIGNS: Lazy = Lazy::new(
    r"^[\s$@]*(?:(?:const|let|var|my|our|export|local|final|auto|string)\s+)?[$@]?[a-z_]\w*(?:\s*:\s*[\w\[\], |.]+?)?\s*(?:[-+|.]?=|:=|\[[^\]\n]*\]\s*=)(?:[^=~]|$)",
);
/// A collection that a line puts something into.
static COLLECTS: Lazy =
    Lazy::new(r"[a-z_]\w*\.(?:append|extend|push|add|update|insert|set|write|concat)\(");
/// Names that a loop or a block gives to what it takes.
static TAKES: Lazy = Lazy::new(
    r"\bfor\s*\(?\s*(?:const|let|var)?\s*[\[(]?\s*[a-z_]\w*(?:\s*,\s*[a-z_]\w*)*|\bas\s+[a-z_]\w*|\|[a-z_]\w*(?:,\s*[a-z_]\w*)*\|",
);
/// The head of a function.
static DEFINES: Lazy = Lazy::new(
    r"^\s*(?:export\s+|async\s+|pub\s+|static\s+)*(?:def|function|func|fn|sub)\s+[a-z_]\w*|^\s*(?:export\s+)?(?:const|let|var)\s+[a-z_]\w*\s*=\s*(?:async\s*)?(?:function\b|\([^)\n]*\)\s*=>|\w+\s*=>)",
);

/// A line and its names.
struct Line<'a> {
    /// Where it begins in the text.
    start: usize,
    text: &'a [u8],
    names: Vec<&'a [u8]>,
    /// The function that it stands in, by its line.
    function: Option<usize>,
    /// The name and the parameters that it defines, where it is the head of a function.
    head: Vec<&'a [u8]>,
}

/// The call that sends something which stands at one of these places, on the same line or on
/// another one.
pub(crate) fn sender(text: &[u8], sources: &[Range<usize>]) -> Option<Range<usize>> {
    let lines = lines_of(text);
    let mut carriers = BTreeSet::new();
    for source in sources {
        let after = lines.partition_point(|line| line.start <= source.start);
        let Some(line) = after.checked_sub(1).map(|at| &lines[at]) else {
            continue;
        };
        if let Some(call) = line.sends(None) {
            return Some(call);
        }
        line.hand_on(&lines, &mut carriers);
    }
    for _ in 0..ROUNDS {
        let before = carriers.len();
        for line in &lines {
            if line.names.iter().any(|name| carriers.contains(name)) {
                if let Some(call) = line.sends(Some(&carriers)) {
                    return Some(call);
                }
                line.hand_on(&lines, &mut carriers);
            }
        }
        if carriers.len() == before {
            break;
        }
    }
    None
}

/// The lines of a text, each with the function around it: the nearest head above that stands
/// further to the left.
fn lines_of(text: &[u8]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut start = 0;
    for text in text.split(|byte| *byte == b'\n') {
        let depth = indent(text);
        if !text.trim_ascii().is_empty() {
            while open
                .last()
                .is_some_and(|head| indent(lines[*head].text) >= depth)
            {
                open.pop();
            }
        }
        let is_head = DEFINES.find(text).is_some();
        let all = names(text);
        lines.push(Line {
            start,
            text,
            function: open.last().copied(),
            head: if is_head { all.clone() } else { Vec::new() },
            names: all,
        });
        if is_head {
            open.push(lines.len() - 1);
        }
        start += text.len() + 1;
    }
    lines
}

impl<'a> Line<'a> {
    /// The call by which it sends one of these names; without names, the call by which it sends
    /// anything.
    fn sends(&self, carriers: Option<&BTreeSet<&[u8]>>) -> Option<Range<usize>> {
        let call = SENDS.find(self.text)?;
        let mut handed = names(&self.text[call.end.saturating_sub(1)..]).into_iter();
        let is_sent = carriers.is_none_or(|carriers| handed.any(|name| carriers.contains(name)));
        is_sent.then(|| self.start + call.start..self.start + call.end)
    }

    /// Adds the names that have what this line handles.
    fn hand_on(&self, lines: &[Line<'a>], carriers: &mut BTreeSet<&'a [u8]>) {
        if let Some(found) = ASSIGNS.find(self.text) {
            const WORDS: [&[u8]; 9] = [
                b"const", b"let", b"var", b"my", b"our", b"export", b"local", b"final", b"auto",
            ];
            let assigned = names(&self.text[found]);
            let name = assigned.into_iter().find(|name| !WORDS.contains(name));
            carriers.extend(name);
        }
        for expression in [&COLLECTS, &TAKES] {
            if let Some(found) = expression.find(self.text) {
                let takes = names(&self.text[found]);
                let is_word = |name: &&[u8]| !matches!(*name, b"for" | b"as" | b"const" | b"let");
                carriers.extend(takes.into_iter().filter(is_word));
            }
        }
        // What a function returns has its name; an arrow returns what stands behind it.
        if self.text.trim_ascii().starts_with(b"return")
            && let Some(function) = self.function
        {
            carriers.extend(name_of(&lines[function].head));
        }
        if names_word(self.text, "=>") {
            carriers.extend(name_of(&self.head));
        }
        // What is called here gets it as its parameters.
        for line in lines.iter().filter(|line| !line.head.is_empty()) {
            let called = name_of(&line.head);
            if called.is_some_and(|called| self.names.contains(&called)) && self.head.is_empty() {
                carriers.extend(line.head.iter().copied());
            }
        }
    }
}

/// The name of a function: the first word of its head that declares nothing.
fn name_of<'a>(head: &[&'a [u8]]) -> Option<&'a [u8]> {
    const WORDS: [&[u8]; 12] = [
        b"export",
        b"async",
        b"pub",
        b"static",
        b"def",
        b"function",
        b"func",
        b"fn",
        b"sub",
        b"const",
        b"let",
        b"var",
    ];
    head.iter().copied().find(|name| !WORDS.contains(name))
}

fn indent(line: &[u8]) -> usize {
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t');
    line.iter().take_while(is_space).count()
}

/// The names in a text.
fn names(text: &[u8]) -> Vec<&[u8]> {
    let is_edge = |byte: &u8| !(byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_name = |word: &&[u8]| word.first().is_some_and(|byte| !byte.is_ascii_digit());
    text.split(is_edge).filter(is_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `SECRET` is sent.
    fn sent(text: &str) -> bool {
        let at = text.find("secret()").unwrap();
        sender(text.as_bytes(), std::slice::from_ref(&(at..at + 8))).is_some()
    }

    #[test]
    fn a_value_is_followed_to_what_sends_it() {
        for text in [
            "requests.post(url, data=secret())",
            "x = secret()\nrequests.post(url, data=x)",
            "x = secret()\ny = x.strip()\nbody = {'a': y}\nrequests.post(url, json=body)",
            "def load():\n    return secret()\n\ndef report(text):\n    requests.get(url, params={'q': text})\n\nreport(load())",
            "parts = []\nfor p in paths:\n    parts.append(secret())\nrequests.post(url, json=parts)",
            "const jar = secret()\nfetch(target, { method: 'post', body: jar })",
            "const load = () => secret()\nasync function go(x) {\n  fetch(u, {body: x})\n}\ngo(load())",
            "x=$(secret())\ncurl -d \"$x\" https://a.dev",
            "with secret() as f:\n    conn.request('post', '/', f.read())",
            "def main():\n    data = secret()\n    upload(data)\n\ndef upload(blob):\n    s.sendall(blob)",
        ] {
            assert!(sent(text), "{text}");
        }
    }

    #[test]
    fn a_value_that_stays_is_not_followed_further() {
        for text in [
            "env = secret()\nmeta = requests.get(url).json()\nsubprocess.run(cmd, env=env)",
            "print(secret())\nrequests.post(url, json=body)",
            "x = secret()\ny = 1\nrequests.post(url, data=y)",
            "def load():\n    key = secret()\n    print(key)\n\ndef send(body):\n    requests.post(url, json=body)\n",
        ] {
            assert!(!sent(text), "{text}");
        }
        for lazy in [&SENDS, &ASSIGNS, &COLLECTS, &TAKES, &DEFINES] {
            assert!(lazy.compiles());
        }
    }
}
