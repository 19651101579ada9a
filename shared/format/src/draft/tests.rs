use super::*;
use proptest::prelude::*;

fn slug() -> Slug {
    "acme".parse().unwrap()
}

fn parse(bytes: &[u8]) -> Result<Draft, DraftError> {
    Draft::parse(
        bytes,
        &DraftContext {
            slug: &slug(),
            vault_id: None,
        },
    )
}

fn file(path: &str, bytes: &[u8]) -> File {
    File {
        path: path.parse().unwrap(),
        mode: Mode::Plain,
        bytes: bytes.to_vec(),
    }
}

fn draft(request: Request) -> Draft {
    Draft {
        draft_id: DraftId::from_parts(1, 2),
        vault_id: None,
        slug: slug(),
        name: "notes".parse().unwrap(),
        base_bundle_hash: None,
        submitted_at: Timestamp::from_unix(1_700_000_000),
        submitted_by: Submitter {
            user_id: "usr_01".to_owned(),
            client_id: None,
        },
        request,
        gate: GateHint {
            rules: "structure/1".to_owned(),
            flags: Vec::new(),
        },
    }
}

fn proposal(files: Vec<File>) -> Draft {
    draft(Request::Propose { files })
}

#[test]
fn each_kind_comes_back() {
    let source = Source {
        identifier: "github:acme/skills".parse().unwrap(),
        reference: None,
    };
    for draft in [
        proposal(vec![
            file("SKILL.md", b"text"),
            file("data.bin", b"\0\xff"),
            file("empty", b""),
        ]),
        draft(Request::Install { source }),
        draft(Request::Remove),
    ] {
        assert_eq!(parse(&draft.to_bytes().unwrap()).unwrap(), draft);
    }
    let unsorted = proposal(vec![file("b", b""), file("SKILL.md", b"")]);
    assert!(unsorted.to_bytes().is_ok(), "the writer sorts");
}

#[test]
fn a_writer_cannot_make_what_a_reader_refuses() {
    let word = |draft: Draft| draft.to_bytes().unwrap_err().error_code();
    assert_eq!(word(proposal(vec![file("a", b"")])), "draft_files");
    assert_eq!(
        word(proposal(vec![file("SKILL.md", b""), file("skill.md", b"")])),
        "draft_path"
    );
    assert_eq!(
        word(proposal(vec![file("SKILL.md", &vec![b'x'; MAX_BYTES])])),
        "draft_schema"
    );
    let many = (0..=MAX_FILES)
        .map(|n| file(&format!("f{n}"), b""))
        .chain([file("SKILL.md", b"")]);
    assert_eq!(word(proposal(many.collect())), "draft_files");
    let nobody = Submitter {
        user_id: String::new(),
        client_id: None,
    };
    assert_eq!(
        word(Draft {
            submitted_by: nobody,
            ..draft(Request::Remove)
        }),
        "draft_schema"
    );
}

#[test]
fn refused_texts() {
    let good = String::from_utf8(
        proposal(vec![file("SKILL.md", b"x"), file("b", b"\0")])
            .to_bytes()
            .unwrap(),
    )
    .unwrap();
    let cases = [
        (r#""content":"AA==""#, r#""content":"AA=""#, "draft_files"),
        (r#""content":"AA==""#, r#""content":"AB==""#, "draft_files"),
        (
            r#""encoding":"base64","content":"AA==""#,
            r#""encoding":"base64","content":"eA==""#,
            "draft_files",
        ),
        (
            r#""encoding":"base64","content":"AA==""#,
            r#""encoding":"utf-8","content":"\u0000""#,
            "draft_files",
        ),
        (
            r#""encoding":"base64""#,
            r#""encoding":"parts""#,
            "draft_schema",
        ),
        (r#""path":"b""#, r#""path":"A""#, "draft_files"),
        (r#""path":"b""#, r#""path":"SKILL.md/b""#, "draft_path"),
        (r#""path":"b""#, r#""path":"../b""#, "draft_path"),
        (r#""name":"notes""#, r#""name":"Notes""#, "draft_name"),
        (r#""slug":"acme""#, r#""slug":"other""#, "draft_slug"),
        (
            r#""vault_id":null"#,
            r#""vault_id":"vlt_42lxzqowomyghk6kpyjb2x6ywz""#,
            "draft_vault_id",
        ),
        (r#""vault_id":null,"#, "", "draft_schema"),
        (r#""kind":"propose""#, r#""kind":"remove""#, "draft_schema"),
        (
            r#""client_id":null"#,
            r#""client_id":"a\u202eb""#,
            "draft_schema",
        ),
        (r#""gate":{"#, r#""source":null,"gate":{"#, "draft_schema"),
    ];
    for (from, to, word) in cases {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from}");
        assert_eq!(
            parse(text.as_bytes()).expect_err(to).error_code(),
            word,
            "{to}"
        );
    }
}

#[test]
fn a_draft_fits_the_bundle_that_its_author_saw() {
    let seen = Digest::of(b"seen");
    let on = |base_bundle_hash| Draft {
        base_bundle_hash,
        ..draft(Request::Remove)
    };
    assert!(on(None).check_base(None).is_ok());
    assert!(on(Some(seen)).check_base(Some(&seen)).is_ok());
    assert_eq!(
        on(None).check_base(Some(&seen)).unwrap_err().error_code(),
        "draft_base"
    );
    assert_eq!(
        on(Some(seen)).check_base(None).unwrap_err().error_code(),
        "draft_base"
    );
}

proptest! {
    #[test]
    fn any_bytes_survive_in_a_file(bytes: Vec<u8>, text in ".{0,50}", stamp in 0_i64..4_000_000_000) {
        let mut draft = proposal(vec![file("SKILL.md", text.as_bytes()), file("x", &bytes)]);
        draft.submitted_at = Timestamp::from_unix(stamp);
        prop_assert_eq!(parse(&draft.to_bytes().unwrap()).unwrap(), draft);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        prop_assert!(parse(&bytes).is_err());
    }
}
