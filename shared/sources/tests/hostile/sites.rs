//! Sites with an index under `/.well-known/`.

use super::Table;
use crate::archives::{gzip, tar_of};
use crate::support::{Answer, INDEX, SiteServer, fetch, fetcher, parse, skill_md};
use vault_format::hash::Digest;
use vault_sources::site::SCHEMA;

const BAD: &str = "source_malformed";
const NONE: &str = "source_not_found";
const DOWN: &str = "source_unreachable";
const SIGNER: &str = "source_signer";
const NAME: &str = "it is not the name of a skill";

/// Name, text, code and part of the message.
type Row = (&'static str, &'static str, &'static str, &'static str);

/// Whole indexes. `@entry` is a good entry, and `@schema` the schema.
const INDEXES: &[Row] = &[
    (
        "web page",
        "<!doctype html>",
        BAD,
        "it is not a JSON object",
    ),
    (
        "list",
        r#"["@schema",[@entry]]"#,
        BAD,
        "it is not a JSON object",
    ),
    (
        "two byte order marks",
        "\u{feff}\u{feff}{}",
        BAD,
        "it is not a JSON object",
    ),
    (
        "cut",
        r#"{"$schema":"@schema","skills":["#,
        BAD,
        "EOF while",
    ),
    ("more behind it", r#"{"skills":[]} {}"#, BAD, "trailing"),
    (
        "not UTF-8",
        "{\"skills\":[],\"$schema\":\"\\ud800\"}",
        BAD,
        "cannot be read",
    ),
    (
        "unknown schema",
        r#"{"$schema":"https://example.com/\u202e","skills":[@entry]}"#,
        BAD,
        "the schema https://example.com/\\u{202e}, which is not known",
    ),
    (
        "later schema",
        r#"{"$schema":"https://schemas.agentskills.io/discovery/0.3.0/schema.json","skills":[@entry]}"#,
        BAD,
        "which is not known",
    ),
    (
        "schema twice",
        r#"{"$schema":"@schema","$schema":"@schema","skills":[@entry]}"#,
        BAD,
        "duplicate field `$schema`",
    ),
    (
        "schema in a number",
        r#"{"$schema":2,"skills":[@entry]}"#,
        BAD,
        "invalid type",
    ),
    (
        "skills in an object",
        r#"{"$schema":"@schema","skills":{"pdf":@entry}}"#,
        BAD,
        "invalid type",
    ),
    (
        "no skills",
        r#"{"$schema":"@schema"}"#,
        NONE,
        "its index is empty",
    ),
    (
        "two skills of one name",
        r#"{"$schema":"@schema","skills":[@entry,@entry]}"#,
        NONE,
        "pdf: the index lists it twice",
    ),
    (
        "entries of the older index under the schema of the newer",
        r#"{"$schema":"@schema","skills":[{"name":"pdf","files":["SKILL.md"]}]}"#,
        NONE,
        "it has no address",
    ),
    (
        "entries of the newer index without the schema",
        r#"{"skills":[@entry]}"#,
        NONE,
        "it lists no files",
    ),
];

/// Entries. `@good` are the type, address and digest of a good skill, `@digest` a wrong digest.
const ENTRIES: &[Row] = &[
    ("a list", r#"["pdf"]"#, NONE, "it is not a JSON object"),
    ("no name", "{@good}", NONE, "missing field `name`"),
    (
        "two names",
        r#"{"name":"pdf","name":"csv",@good}"#,
        NONE,
        "duplicate field `name`",
    ),
    (
        "two digests",
        r#"{"name":"pdf",@good,"digest":"sha256:@digest"}"#,
        NONE,
        "duplicate field `digest`",
    ),
    (
        "name that leads up",
        r#"{"name":"../up",@good}"#,
        NONE,
        NAME,
    ),
    ("name of the parent", r#"{"name":"..",@good}"#, NONE, NAME),
    (
        "name with an escape",
        r#"{"name":"%2e%2e",@good}"#,
        NONE,
        NAME,
    ),
    ("absolute name", r#"{"name":"/etc",@good}"#, NONE, NAME),
    (
        "name with a backslash",
        r#"{"name":"a\\b",@good}"#,
        NONE,
        NAME,
    ),
    ("name like an option", r#"{"name":"-rf",@good}"#, NONE, NAME),
    ("name with NUL", r#"{"name":"a\u0000",@good}"#, NONE, NAME),
    (
        "name that turns the text",
        r#"{"name":"\u202efdp",@good}"#,
        NONE,
        NAME,
    ),
    (
        "name with a line break",
        r#"{"name":"a\nb",@good}"#,
        NONE,
        NAME,
    ),
    (
        "name with a host",
        r#"{"name":"a@evil.example",@good}"#,
        NONE,
        NAME,
    ),
    ("name with a query", r#"{"name":"a?b#c",@good}"#, NONE, NAME),
    ("empty name", r#"{"name":"",@good}"#, NONE, NAME),
    (
        "unknown type",
        r#"{"name":"pdf","type":"hologram","url":"x","digest":"sha256:@digest"}"#,
        NONE,
        "its type hologram is not known",
    ),
    (
        "no type",
        r#"{"name":"pdf","url":"x","digest":"sha256:@digest"}"#,
        NONE,
        "its type nothing is not known",
    ),
    (
        "no digest",
        r#"{"name":"pdf","type":"skill-md","url":"x"}"#,
        NONE,
        "no digest of the form",
    ),
    (
        "weak digest",
        r#"{"name":"pdf","type":"skill-md","url":"x","digest":"md5:d41d8cd98f00b204e9800998ecf8427e"}"#,
        NONE,
        "no digest of the form",
    ),
    (
        "short digest",
        r#"{"name":"pdf","type":"skill-md","url":"x","digest":"sha256:00"}"#,
        NONE,
        "no digest of the form",
    ),
    (
        "huge number",
        r#"{"name":"pdf",@good,"_meta":{"dev.vault/signed":1e999}}"#,
        NONE,
        "number out of range",
    ),
    (
        "key that is no key",
        r#"{"name":"pdf",@good,"_meta":{"dev.vault/signed":{"manifest":"m","public_key":"x"}}}"#,
        NONE,
        "entry 1: ",
    ),
];

/// The type, address and digest of an artifact, and what its download ends in. `@good` is the
/// digest of the skill, `@archive` that of an archive without a SKILL.md at its root.
const ARTIFACTS: &[Row] = &[
    (
        "wrong digest",
        "skill-md /pdf/SKILL.md @digest",
        "source_digest",
        "not the announced",
    ),
    ("missing", "skill-md /none @good", NONE, "there is no http"),
    (
        "private",
        "skill-md https://10.0.0.1/x @good",
        "source_not_public",
        "10.0.0.1",
    ),
    (
        "other scheme",
        "skill-md file:///etc/passwd @good",
        DOWN,
        "does not use https",
    ),
    (
        "plain",
        "archive http://site.example/a.zip @good",
        DOWN,
        "does not use https",
    ),
    (
        "user",
        "skill-md https://a:b@site.example/ @good",
        DOWN,
        "a user name or",
    ),
    (
        "no address",
        "archive https://[::1 @good",
        BAD,
        "invalid IPv6 address",
    ),
    (
        "script",
        "skill-md javascript:alert(1) @good",
        DOWN,
        "does not use https",
    ),
    (
        "no archive",
        "archive /pdf/SKILL.md @good",
        BAD,
        "neither zip, tar nor",
    ),
    (
        "skill in a folder",
        "archive /pdf.tar.gz @archive",
        BAD,
        "has no SKILL.md at its root",
    ),
    (
        "redirect inside",
        "skill-md /inside @good",
        "source_not_public",
        "192.168.0.1",
    ),
    (
        "endless",
        "archive /endless @good",
        "source_too_large",
        "10485760 bytes",
    ),
];

/// Signed manifests. Name, answer at its address, code and part of the message.
const MANIFESTS: &[Row] = &[
    (
        "web page",
        "<!doctype html>",
        SIGNER,
        "does not begin with an object",
    ),
    ("empty", "{}", SIGNER, "it carries no keys of its vault"),
    (
        "no roots",
        r#"{"roots":[]}"#,
        SIGNER,
        "signature of this skill is not valid",
    ),
    ("other roots", r#"{"roots":[{}]}"#, SIGNER, "missing field"),
    ("nested", "@deep", SIGNER, "nested deeper than 32"),
];

/// Lists of files in the older index, without digests.
const FILES: &[Row] = &[
    (
        "parent",
        r#"["SKILL.md","../../../etc/x"]"#,
        BAD,
        "is not the path of a skill's file",
    ),
    (
        "absolute",
        r#"["SKILL.md","/etc/x"]"#,
        BAD,
        "is not the path of a skill's file",
    ),
    (
        "backslash",
        r#"["SKILL.md","..\\x"]"#,
        BAD,
        "is not the path of a skill's file",
    ),
    (
        "escape",
        r#"["SKILL.md","%2e%2e/x"]"#,
        BAD,
        "is not the path of a skill's file",
    ),
    (
        "query",
        r#"["SKILL.md","a?b"]"#,
        BAD,
        "is not the path of a skill's file",
    ),
    (
        "NUL",
        r#"["SKILL.md","a\u0000"]"#,
        BAD,
        "is not the path of a skill's file",
    ),
    (
        "line break",
        r#"["SKILL.md","..\n/x"]"#,
        BAD,
        "is not the path of a skill's file",
    ),
    ("missing file", r#"["SKILL.md","none.md"]"#, NONE, "none.md"),
    (
        "web page for a file",
        r#"["SKILL.md","page.md"]"#,
        BAD,
        "it is a web page",
    ),
    (
        "twice",
        r#"["SKILL.md","SKILL.md"]"#,
        NONE,
        "it lists SKILL.md twice",
    ),
    ("no skill", r#"["a.md"]"#, NONE, "it lists no SKILL.md"),
    ("text", r#""SKILL.md""#, NONE, "invalid type"),
    (
        "link",
        r#"["https://10.0.0.1/SKILL.md"]"#,
        NONE,
        "it lists no SKILL.md",
    ),
];

/// A site with a good skill, and the digests of the skill and of an archive.
fn site() -> (SiteServer, Digest, Digest) {
    let (site, document) = (SiteServer::new(), skill_md("pdf"));
    let archive = gzip(&tar_of(&[("pdf/SKILL.md", 0o644, document.as_bytes())]));
    let digests = (Digest::of(document.as_bytes()), Digest::of(&archive));
    site.body("/pdf.tar.gz", "application/gzip", archive)
        .text("/pdf/SKILL.md", document.clone())
        .text("/.well-known/agent-skills/pdf/SKILL.md", document)
        .body(
            "/.well-known/agent-skills/pdf/page.md",
            "text/html",
            "<html>",
        )
        .redirect("/inside", "https://192.168.0.1/")
        .put("/endless", Answer::Endless);
    (site, digests.0, digests.1)
}

/// Answers in place of an index. Name, answer, code and part of the message.
fn answers() -> [(&'static str, Answer, &'static str, &'static str); 4] {
    [
        (
            "endless index",
            Answer::Endless,
            "source_too_large",
            "4194304",
        ),
        ("failing index", Answer::Status(500), DOWN, "HTTP 500"),
        (
            "no index",
            Answer::Status(404),
            NONE,
            "lists no skills: neither",
        ),
        (
            "index inside",
            Answer::To("https://[fd00::1]/".to_owned()),
            "source_not_public",
            "fd00::1",
        ),
    ]
}

#[tokio::test]
async fn a_site() {
    let (site, good, archive) = site();
    let fetcher = fetcher(&site.base);
    let mut table = Table::default();
    let mut get = async |index: String, (row, _, code, part): Row| {
        site.json(INDEX, index);
        let outcome = fetch(&fetcher, &parse(&site.base), None).await;
        table.check(row, outcome, code, part);
    };
    let wrong = Digest::of(b"another");
    let artifact = |kind: &str, url: &str, digest: &str| {
        format!(r#""type":"{kind}","url":"{url}","digest":"sha256:{digest}""#)
    };
    let pdf = artifact("skill-md", "/pdf/SKILL.md", &good.to_string());
    let index = |entry: &str| format!(r#"{{"$schema":"{SCHEMA}","skills":[{entry}]}}"#);
    for row in INDEXES {
        let entry = format!(r#"{{"name":"pdf",{pdf}}}"#);
        get(
            row.1.replace("@entry", &entry).replace("@schema", SCHEMA),
            *row,
        )
        .await;
    }
    for row in ENTRIES {
        let entry = row.1.replace("@good", &pdf);
        get(index(&entry.replace("@digest", &wrong.to_string())), *row).await;
    }
    for row in ARTIFACTS {
        let text = row.1.replace("@good", &good.to_string());
        let text = text.replace("@archive", &archive.to_string());
        let text = text.replace("@digest", &wrong.to_string());
        let cells: Vec<&str> = text.split(' ').collect();
        let artifact = artifact(cells[0], cells[1], cells[2]);
        get(index(&format!(r#"{{"name":"pdf",{artifact}}}"#)), *row).await;
    }
    let signed = |manifest: &str| {
        let key = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let signed = format!(r#"{{"manifest":"{manifest}","public_key":"{key}"}}"#);
        index(&format!(
            r#"{{"name":"pdf",{pdf},"_meta":{{"dev.vault/signed":{signed}}}}}"#
        ))
    };
    for row in MANIFESTS {
        site.json(
            "/manifest",
            row.1
                .replace("@deep", &format!("{{\"a\":{}", "[".repeat(40))),
        );
        get(signed("/manifest"), *row).await;
    }
    get(
        signed("/none"),
        ("no manifest", "", SIGNER, "it does not exist"),
    )
    .await;
    let inside = ("manifest inside", "", "source_not_public", "10.0.0.1");
    get(signed("https://10.0.0.1/m"), inside).await;
    for row in FILES {
        get(
            format!(r#"{{"skills":[{{"name":"pdf","files":{}}}]}}"#, row.1),
            *row,
        )
        .await;
    }
    for (row, answer, code, part) in answers() {
        site.put(INDEX, answer);
        let outcome = fetch(&fetcher, &parse(&site.base), None).await;
        table.check(row, outcome, code, part);
    }
    table.finish();
}
