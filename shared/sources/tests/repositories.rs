//! Repositories through the system's git: what is fetched and recorded, and what must never happen.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    Repository, code, compare, drift, fetch, fetcher_with, is_up_to_date, names, open, parse,
    paths, plain_fetcher, plain_settings, policy, refusal, skill_md, write_executable,
};
use vault_format::draft;
use vault_format::manifest::Mode;
use vault_format::provenance::ProvenanceId;
use vault_shelf::DriftState;
use vault_shelf::fetch::{Fetch, FetchedSkill};
use vault_sources::{FetchError, Source, SourcePolicy};
use vault_testing::assert_matches;

fn source(repository: &Repository) -> Source {
    parse(&repository.address())
}

/// Fetches the skill `pdf`.
async fn pdf(repository: &Repository) -> Result<FetchedSkill, FetchError> {
    fetch(&plain_fetcher(), &source(repository), Some("pdf")).await
}

fn with_two() -> Repository {
    let repository = Repository::new();
    repository
        .write("README.md", "read me")
        .write("skills/pdf/SKILL.md", skill_md("pdf"))
        .write("skills/pdf/data.bin", [0_u8, 159, 146, 150])
        .write("skills/pdf/.DS_Store", "x")
        .write("skills/csv/SKILL.md", skill_md("csv"));
    let run = repository.path().join("skills/pdf/bin/run.sh");
    write_executable(&run, "#!/bin/sh\necho hi\n");
    repository.commit();
    repository
}

#[tokio::test]
async fn a_skill_comes_with_its_siblings_modes_and_exact_bytes() {
    let repository = with_two();
    let commit = repository.git(&["rev-parse", "HEAD"]);
    let tree = repository.git(&["rev-parse", "HEAD:skills/pdf"]);
    let fetcher = plain_fetcher();
    let opened = open(&fetcher, &source(&repository)).await.unwrap();
    assert_eq!(names(&opened), ["csv", "pdf"]);
    assert!(opened.listing.default_skill().is_none(), "several");
    let skill = fetch(&fetcher, &source(&repository), Some("pdf")).await;
    let skill = skill.unwrap();
    assert_eq!(paths(&skill), ["SKILL.md", "bin/run.sh", "data.bin"]);
    for file in &skill.files {
        let wanted = std::fs::read(repository.path().join("skills/pdf").join(&file.path)).unwrap();
        assert_eq!(file.bytes, wanted, "{}", file.path);
        let executable = file.path == "bin/run.sh";
        assert_eq!(file.mode == Mode::Executable, executable, "{}", file.path);
    }
    assert_eq!(skill.upstream.revision.as_deref(), Some(commit.as_str()));
    assert_eq!(skill.upstream.tree.as_deref(), Some(tree.as_str()));
    assert_eq!(skill.upstream.path.as_deref(), Some("skills/pdf"));
    let one = source(&repository).with_path("skills/csv").unwrap();
    let one = fetch(&fetcher, &one, None).await.unwrap();
    assert_eq!(paths(&one), ["SKILL.md"]);
}

#[tokio::test]
async fn a_branch_with_a_slash_is_the_longest_that_exists() {
    let repository = with_two();
    repository.git(&["checkout", "--quiet", "-b", "feature"]);
    repository.git(&["checkout", "--quiet", "main"]);
    repository.git(&["branch", "--quiet", "-D", "feature"]);
    repository.git(&["checkout", "--quiet", "-b", "feature/x"]);
    repository.write("skills/pdf/new.md", "new");
    let commit = repository.commit();
    let fetcher = plain_fetcher();
    let Source::Git(mut git) = source(&repository) else {
        panic!("a repository");
    };
    git.tail = "feature/x/skills/pdf"
        .split('/')
        .map(str::to_owned)
        .collect();
    let skill = fetch(&fetcher, &Source::Git(git), None).await.unwrap();
    assert_eq!(skill.upstream.reference.as_deref(), Some("feature/x"));
    assert_eq!(skill.upstream.revision, Some(commit));
    assert_eq!(
        paths(&skill),
        ["SKILL.md", "bin/run.sh", "data.bin", "new.md"]
    );
}

#[tokio::test]
async fn tags_branches_and_commits_are_found_and_others_are_said() {
    let repository = with_two();
    let first = repository.git(&["rev-parse", "HEAD"]);
    repository.git(&["tag", "light"]);
    repository.git(&["tag", "--annotate", "--message", "x", "heavy"]);
    repository.write("skills/csv/more.md", "more");
    let second = repository.commit();
    let fetcher = plain_fetcher();
    for (reference, wanted) in [
        ("light", &first),
        ("heavy", &first),
        ("main", &second),
        (first.as_str(), &first),
        ("refs/heads/main", &second),
    ] {
        let source = source(&repository).with_reference(reference).unwrap();
        let skill = fetch(&fetcher, &source, Some("csv")).await.unwrap();
        let revision = skill.upstream.revision.unwrap();
        assert_eq!(&revision, wanted, "{reference}");
    }
    let missing = parse("file:///nowhere/at/all");
    let refused = open(&fetcher, &missing).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "localhost/nowhere/at/all: there is no repository at this address"
    );
    assert!(
        refused
            .git_messages()
            .any(|line| line.starts_with("fatal: "))
    );
}

#[tokio::test]
async fn a_skill_that_is_refused_does_not_keep_out_the_others() {
    let repository = with_two();
    symlink("/etc/passwd", repository.path().join("skills/pdf/link")).unwrap();
    repository.write("skills/pdf/huge.bin", vec![7; (4 << 20) + 2]);
    repository.commit();
    assert_eq!(code(pdf(&repository).await), "source_malformed");
    let csv = fetch(&plain_fetcher(), &source(&repository), Some("csv")).await;
    assert!(csv.is_ok());
}

#[tokio::test]
async fn nothing_of_a_repository_runs() {
    let repository = with_two();
    let mark = repository.path().join("mark");
    let touch = format!("touch {}", mark.display());
    repository
        .write(".gitattributes", "* filter=evil\n* diff=evil\n")
        .write("skills/pdf/.gitattributes", "* filter=evil\n")
        .write(".gitmodules", format!("[submodule \"x\"]\n\tpath = skills/x\n\turl = ext::sh -c {touch}\n\tupdate = !{touch}\n"));
    repository.commit();
    let hooks = "post-checkout post-merge pre-auto-gc reference-transaction fsmonitor";
    for hook in hooks.split(' ') {
        let path = repository.path().join(".git/hooks").join(hook);
        write_executable(&path, &format!("#!/bin/sh\n{touch}\n"));
    }
    pdf(&repository).await.unwrap();
    assert!(!mark.exists());
}

#[tokio::test]
async fn a_git_that_hangs_is_ended_with_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let (program, pids) = (folder.path().join("git"), folder.path().join("pids"));
    let shown = pids.display();
    let script = format!("#!/bin/sh\nsleep 600 &\necho $! $$ > {shown}\nwait\n");
    write_executable(&program, &script);
    let mut settings = plain_settings();
    settings.git.program = program;
    settings.git.list_time = Duration::from_secs(10);
    let fetcher = fetcher_with(settings);
    let source = parse("https://git.example.com/acme/skills.git");
    let refused = refusal(&fetcher, &source).await.to_string();
    assert!(refused.contains("did not end within"), "{refused}");
    let started = std::fs::read_to_string(pids).unwrap();
    for pid in started.split_whitespace() {
        // A killed process may remain as a zombie until its parent reaps it.
        let is_gone = || {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
                let state = stat.rsplit(')').next().unwrap_or_default();
                state.trim().starts_with(['Z', 'X'])
            })
        };
        let mut tries = 500;
        while !is_gone() && tries > 0 {
            tries -= 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let gone = is_gone();
        assert!(gone, "{pid} of {started}");
    }
}

#[tokio::test]
async fn without_git_the_way_out_is_said() {
    let mut settings = plain_settings();
    settings.git.program = "/nowhere/git".into();
    let fetcher = fetcher_with(settings);
    let refused = refusal(&fetcher, &parse("github:acme/skills")).await;
    assert!(refused.hint().unwrap().contains("install git"));
    assert_matches!(refused, FetchError::Unsupported { .. });
}

#[tokio::test]
async fn drift_is_told_by_commit_and_tree() {
    let repository = with_two();
    let fetcher = plain_fetcher();
    let skill = fetch(&fetcher, &source(&repository), Some("pdf")).await;
    let skill = skill.unwrap();
    assert!(is_up_to_date(&fetcher, &skill).await);
    repository.write("skills/csv/other.md", "elsewhere in the repository");
    repository.commit();
    assert!(
        is_up_to_date(&fetcher, &skill).await,
        "its own folder is the same"
    );
    repository.write("skills/pdf/extra.md", "new");
    let commit = repository.commit();
    match drift(&fetcher, &skill).await {
        DriftState::Drifted { upstream, .. } => assert_eq!(upstream, &commit[..12]),
        other => panic!("{other:?}"),
    }
    let policy = SourcePolicy::default();
    let again = fetcher.fetch_recorded(&skill.upstream, &policy).await;
    let again = again.unwrap();
    assert_eq!(
        paths(&again),
        ["SKILL.md", "bin/run.sh", "data.bin", "extra.md"]
    );
    assert!(is_up_to_date(&fetcher, &again).await);
    repository.git(&["rm", "-r", "--quiet", "skills/pdf"]);
    repository.commit();
    assert_matches!(drift(&fetcher, &again).await, DriftState::Removed(_));
    // A skill pinned to a commit never drifts.
    let pinned = source(&repository).with_reference(&commit).unwrap();
    let pinned = fetch(&fetcher, &pinned, Some("pdf")).await.unwrap();
    assert!(is_up_to_date(&fetcher, &pinned).await);
}

#[tokio::test]
async fn a_history_without_the_recorded_commit_is_rewritten() {
    let repository = with_two();
    let fetcher = plain_fetcher();
    let skill = fetch(&fetcher, &source(&repository), Some("pdf")).await;
    let skill = skill.unwrap();
    repository.write("skills/pdf/extra.md", "new");
    repository.commit();
    // A merge of a branch that began before the recorded commit rewrites nothing.
    repository.git(&["checkout", "--quiet", "--orphan", "other"]);
    repository.write("skills/pdf/other.md", "other");
    repository.commit();
    repository.git(&["checkout", "--quiet", "main"]);
    let merge = [
        "merge",
        "--quiet",
        "--no-edit",
        "--allow-unrelated-histories",
        "-X",
        "ours",
        "other",
    ];
    repository.git(&merge);
    let is_rewritten = async || match drift(&fetcher, &skill).await {
        DriftState::Drifted { is_rewritten, .. } => is_rewritten,
        other => panic!("{other:?}"),
    };
    assert!(!is_rewritten().await);
    // The branch is moved to commits that do not follow the recorded one.
    repository.git(&["checkout", "--quiet", "other"]);
    repository.git(&["branch", "--quiet", "--force", "main", "other"]);
    repository.git(&["checkout", "--quiet", "main"]);
    assert!(is_rewritten().await);
}

/// Adds so many commits to a branch with one skill, which follow the given one or none.
fn import_commits(repository: &Repository, count: usize, from: &str) {
    let document = skill_md("pdf");
    let mut stream = Vec::new();
    for at in 0..count {
        let from = if at == 0 { from } else { "" };
        let text = format!("{at} of {count}");
        write!(
            stream,
            "commit refs/heads/main\ncommitter Ann <ann@example.com> 1790000000 +0000\n\
             data 1\nx\n{from}M 100644 inline skills/pdf/SKILL.md\ndata {}\n{document}\n\
             M 100644 inline skills/pdf/n\ndata {}\n{text}\n",
            document.len(),
            text.len(),
        )
        .unwrap();
    }
    let mut import = Command::new("git");
    import.args(["fast-import", "--quiet", "--force"]);
    import.current_dir(repository.path()).stdin(Stdio::piped());
    let mut import = import.spawn().unwrap();
    import.stdin.take().unwrap().write_all(&stream).unwrap();
    assert!(import.wait().unwrap().success());
}

#[tokio::test]
async fn a_long_history_without_the_recorded_commit_is_rewritten_too() {
    let repository = Repository::new();
    import_commits(&repository, 2_001, "");
    let fetcher = plain_fetcher();
    let skill = fetch(&fetcher, &source(&repository), None).await.unwrap();
    let is_rewritten = async || match drift(&fetcher, &skill).await {
        DriftState::Drifted { is_rewritten, .. } => is_rewritten,
        other => panic!("{other:?}"),
    };
    import_commits(&repository, 2_002, "from refs/heads/main^0\n");
    assert!(!is_rewritten().await, "many commits have followed");
    import_commits(&repository, 2_003, "");
    assert!(is_rewritten().await);
}

#[tokio::test]
async fn skills_of_one_repository_are_compared_with_one_request() {
    let repository = with_two();
    let (folder, mut skills) = (tempfile::tempdir().unwrap(), Vec::new());
    for name in ["pdf", "csv"] {
        let skill = fetch(&plain_fetcher(), &source(&repository), Some(name)).await;
        skills.push(skill.unwrap());
    }
    repository.write("skills/csv/more.md", "more");
    repository.commit();
    let (program, calls) = (folder.path().join("git"), folder.path().join("calls"));
    let shown = calls.display();
    let script = format!("#!/bin/sh\necho \"$@\" >> {shown}\nexec git \"$@\"\n");
    write_executable(&program, &script);
    let mut counted = plain_settings();
    counted.git.program = program;
    let fetcher = fetcher_with(counted);
    let states = compare(&fetcher, &skills).await;
    assert_eq!(states[0], DriftState::UpToDate);
    assert_matches!(states[1], DriftState::Drifted { .. }, "{states:?}");
    let calls = std::fs::read_to_string(calls).unwrap();
    assert_eq!(calls.matches(" ls-remote ").count(), 1, "{calls}");
    // One for the trees, and one for the commits behind the skill that has changed.
    assert_eq!(calls.matches(" fetch ").count(), 2, "{calls}");
}

/// A link may be of any size in a commit. git does not even fetch one beyond the size of a file.
#[tokio::test]
async fn a_link_whose_text_cannot_be_read_is_a_fault_of_its_skill_alone() {
    let repository = with_two();
    let add_link = |path: &str, size: usize| {
        repository.write(".git/target", vec![b'a'; size]);
        let id = repository.git(&["hash-object", "-w", "--no-filters", ".git/target"]);
        let entry = format!("120000,{id},{path}");
        repository.git(&["update-index", "--add", "--cacheinfo", &entry]);
    };
    add_link("skills/csv/missing", (4 << 20) + 2);
    // Together they are longer than all links that are read.
    for size in 0..5 {
        add_link(&format!("skills/csv/long{size}"), (4 << 20) - size);
    }
    repository.git(&["commit", "--quiet", "--message", "Links."]);
    let fetcher = plain_fetcher();
    let mut opened = open(&fetcher, &source(&repository)).await.unwrap();
    assert_eq!(names(&opened), ["csv", "pdf"]);
    assert!(pdf(&repository).await.is_ok());
    let policy = SourcePolicy::default();
    for copy_links in [false, true] {
        opened.copy_links = copy_links;
        let found = opened.listing.find_skill("csv").unwrap();
        let refused = fetcher.take_skill(&opened, found, &policy).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.word(), "source_malformed");
        let message = refused.to_string();
        assert!(
            message.contains("skills/csv/") && message.contains("symbolic link"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_repository_that_moves_between_check_and_fetch_gives_one_commit_or_none() {
    // An opened source reads from the fetched commit, even if the branch moves in the meantime.
    let repository = with_two();
    let before = repository.git(&["rev-parse", "HEAD"]);
    let fetcher = plain_fetcher();
    let policy = SourcePolicy::default();
    let opened = open(&fetcher, &source(&repository)).await.unwrap();
    repository.write("skills/pdf/SKILL.md", skill_md("moved"));
    repository.commit();
    let found = opened.listing.find_skill("pdf").unwrap();
    let skill = fetcher.take_skill(&opened, found, &policy).await.unwrap();
    assert_eq!(skill.upstream.revision, Some(before));
    let document = skill.files.iter().find(|file| file.path == "SKILL.md");
    assert_eq!(document.unwrap().bytes, skill_md("pdf").into_bytes());
}

#[tokio::test]
async fn the_policy_is_asked_before_git_and_again_for_the_folder() {
    let repository = with_two();
    let mut never = plain_settings();
    never.git.program = "/nowhere/git".into();
    let never = fetcher_with(never);
    let others = policy("[sources]\nallow = [\"github.com/other/*\"]\n");
    let refused = never
        .open_source(&parse("github:acme/skills"), None, &others)
        .await;
    assert_eq!(
        code(refused),
        "source_refused",
        "git was not even looked for"
    );
    let source = source(&repository);
    let Source::Git(git) = &source else {
        panic!("{source:?}");
    };
    let place = &git.place;
    let narrow = policy(&format!("[sources]\nallow = [\"{place}/skills/pdf\"]\n"));
    let fetcher = plain_fetcher();
    let opened = fetcher.open_source(&source, None, &narrow).await.unwrap();
    let [pdf, csv] = ["pdf", "csv"].map(|name| opened.listing.find_skill(name).unwrap());
    assert!(fetcher.take_skill(&opened, pdf, &narrow).await.is_ok());
    let refused = fetcher.take_skill(&opened, csv, &narrow).await;
    assert_eq!(code(refused), "source_refused");
    let aged = policy("[sources]\nminimum_age_days = 36500\n");
    let refused = fetcher.open_source(&source, None, &aged).await;
    assert_eq!(code(refused), "source_refused");
}

/// What a person of a service writes as the source of a skill, in every spelling of an address
/// inside: none is asked, and git is not started.
#[tokio::test]
async fn no_spelling_of_an_inside_address_is_reached_from_elsewhere() {
    let mut guarded = plain_settings();
    (
        guarded.guarded,
        guarded.parse.loopback,
        guarded.git.loopback,
    ) = (true, false, false);
    guarded.git.program = "/nowhere/git".into();
    let fetcher = fetcher_with(guarded);
    // No identifiers at all.
    for text in [
        "git:127.0.0.1/x",
        "git:127.0.0.1:1/o/x",
        "git:localhost/o/x",
        "git:169.254.169.254/o/x",
        "git:[::ffff:127.0.0.1]/o/x",
        "git:file:///etc",
        "git:ext::sh",
        "git:--upload-pack=x",
        "wellknown:127.0.0.1",
        "https:127.0.0.1/x",
    ] {
        assert!(text.parse::<ProvenanceId>().is_err(), "{text}");
    }
    for text in [
        "git:https://127.0.0.1/x",
        "git:https://localhost/o/x",
        "git:https://169.254.169.254/o/x",
        "git:https://[::ffff:127.0.0.1]/o/x",
        "wellknown:https://127.0.0.1/pdf",
        "https:https://127.0.0.1/x/SKILL.md",
        "https:https://[::1]/x/SKILL.md",
        "https:https://0x7f.1/x/SKILL.md",
        "https:https://127.1/x.zip",
        "https:https://2130706433/x.zip",
    ] {
        let source = draft::Source {
            identifier: text.parse().unwrap(),
            reference: None,
        };
        let refused = Fetch::fetch(&*fetcher, &source, None, None).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("is not public"), "{text}: {message}");
    }
    let ssh = draft::Source {
        identifier: "git:ssh://127.0.0.1/o/x".parse().unwrap(),
        reference: None,
    };
    let refused = Fetch::fetch(&*fetcher, &ssh, None, None).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("SSH"), "{message}");
}

#[tokio::test]
async fn a_marketplace_names_the_skills_of_its_plugins() {
    let repository = with_two();
    let other = Repository::new();
    other.write("skills/far/SKILL.md", skill_md("far"));
    let far = other.commit();
    other.write("skills/far/new.md", "later");
    other.commit();
    repository.write("plugins/tools/skills/lint/SKILL.md", skill_md("lint")).write(
        ".claude-plugin/marketplace.json",
        format!(
            r#"{{"name":"acme","owner":{{"name":"Acme"}},"metadata":{{"pluginRoot":"./plugins"}},"plugins":[
                {{"name":"tools","source":"./tools"}},
                {{"name":"far","source":{{"source":"url","url":"{}","ref":"main","sha":"{far}"}}}}]}}"#,
            other.address()
        ),
    );
    repository.commit();
    let fetcher = plain_fetcher();
    let policy = SourcePolicy::default();
    let source = source(&repository);
    let plugin = async |name| fetcher.open_source(&source, Some(name), &policy).await;
    assert_eq!(names(&plugin("tools").await.unwrap()), ["lint"]);
    let opened = plugin("far").await.unwrap();
    assert_eq!(names(&opened), ["far"]);
    let skill = fetcher
        .take_skill(&opened, &opened.listing.skills[0], &policy)
        .await;
    let revision = skill.unwrap().upstream.revision;
    assert_eq!(revision, Some(far), "the commit that the marketplace fixes");
}

#[tokio::test]
async fn a_range_chooses_the_highest_released_tag() {
    let repository = with_two();
    for tag in [
        "v1.2.0",
        "v1.10.0",
        "1.9.0",
        "v2.0.0",
        "v1.11.0-rc1",
        "v1.99",
        "main-v1.50.0",
    ] {
        repository.git(&["tag", "--annotate", "--message", "x", tag]);
    }
    repository.git(&["branch", "v1.98.0"]);
    let (fetcher, source) = (plain_fetcher(), source(&repository));
    let any = SourcePolicy::default();
    let find = async |range: &str, policy: &SourcePolicy| {
        let range = range.parse().unwrap();
        fetcher.find_version(&source, &range, policy).await
    };
    let found = find("^1.2", &any).await.unwrap();
    assert_eq!(found.as_deref(), Some("v1.10.0"));
    let found = find(">=1.9 <1.10", &any).await.unwrap();
    assert_eq!(found.as_deref(), Some("1.9.0"));
    assert_matches!(find("^3", &any).await, Err(FetchError::NotFound(_)));
    let none = policy("[sources]\nallow = [\"github.com/acme/**\"]\n");
    assert_matches!(find("^1.2", &none).await, Err(FetchError::Policy { .. }));
}
