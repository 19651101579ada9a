use super::query::MAX_QUERY_TERMS;
use super::*;
use proptest::prelude::*;

fn text<'a>(name: &'a str, description: &'a str) -> Text<'a> {
    Text {
        name,
        description,
        tags: &[],
        categories: &[],
        when_to_use: "",
    }
}

fn names<'a>(ranking: &'a Ranking, query: &str) -> Vec<&'a str> {
    ranking
        .search(query, 10)
        .iter()
        .map(|hit| hit.name)
        .collect()
}

#[test]
fn the_name_weighs_more_than_the_description() {
    let ranking = Ranking::new([
        text("release-notes", "Writes notes; mentions review once."),
        text("code-review", "Looks at a change."),
        text("weather", "Says whether it rains."),
    ]);
    assert_eq!(names(&ranking, "review"), ["code-review", "release-notes"]);
}

#[test]
fn tags_categories_and_when_to_use_are_searched() {
    let (tags, categories) = (["kubernetes".to_owned()], ["operations".to_owned()]);
    let ranking = Ranking::new([Text {
        name: "roll-out",
        description: "Brings a version up.",
        tags: &tags,
        categories: &categories,
        when_to_use: "Before a maintenance window.",
    }]);
    for query in ["kubernetes", "operations", "window", "ROLL", "version"] {
        assert_eq!(names(&ranking, query), ["roll-out"], "{query}");
    }
}

#[test]
fn more_words_found_is_better_and_rare_words_count_more() {
    let ranking = Ranking::new([
        text("a", "git commit log"),
        text("b", "git"),
        text("c", "git bisect"),
        text("d", "git blame"),
    ]);
    assert_eq!(names(&ranking, "git commit")[0], "a");
    assert_eq!(names(&ranking, "git bisect")[0], "c");
}

#[test]
fn plurals_and_beginnings_match_but_whole_words_come_first() {
    let ranking = Ranking::new([
        text("x", "deploybot of services"),
        text("y", "deploying a service"),
    ]);
    assert_eq!(names(&ranking, "deploy"), ["y", "x"]);
    assert_eq!(names(&ranking, "service").len(), 2);
    assert_eq!(
        names(&ranking, "de"),
        Vec::<&str>::new(),
        "two letters are too few for a beginning"
    );
}

#[test]
fn equal_scores_are_ordered_by_name() {
    let ranking = Ranking::new([
        text("zebra", "same"),
        text("ant", "same"),
        text("mole", "same"),
    ]);
    assert_eq!(names(&ranking, "same"), ["ant", "mole", "zebra"]);
    let two: Vec<_> = ranking
        .search("same", 2)
        .iter()
        .map(|hit| (hit.name, hit.position))
        .collect();
    assert_eq!(two, [("ant", 1), ("mole", 2)]);
}

#[test]
fn scripts_without_spaces_are_found_by_parts() {
    let ranking = Ranking::new([text("a", "代码审查工具"), text("b", "天气预报 weather")]);
    assert_eq!(names(&ranking, "审查"), ["a"]);
    assert_eq!(names(&ranking, "weather预报"), ["b"]);
}

#[test]
fn compatibility_forms_and_case_are_one() {
    let ranking = Ranking::new([text("a", "Ｄｅｐｌｏｙ ÄPFEL")]);
    assert_eq!(names(&ranking, "deploy"), ["a"]);
    assert_eq!(names(&ranking, "äpfel"), ["a"]);
}

#[test]
fn nothing_asked_or_nothing_there_gives_nothing() {
    assert!(Ranking::new([]).search("x", 5).is_empty());
    let ranking = Ranking::new([text("a", "b")]);
    assert!(ranking.search("", 5).is_empty());
    assert!(ranking.search("-- !", 5).is_empty());
    assert!(ranking.search("b", 0).is_empty());
    assert_eq!(ranking.len(), 1);
}

#[test]
fn words_for_the_same_thing_are_found_and_count_less_than_the_word_itself() {
    let ranking = Ranking::new([
        text("pull-request", "Opens a pull request."),
        text("pr-title", "Writes the title of a PR."),
        text("weather", "Says whether it rains."),
    ]);
    assert_eq!(names(&ranking, "PR"), ["pr-title", "pull-request"]);
    assert_eq!(names(&ranking, "pull request")[0], "pull-request");
    assert_eq!(names(&ranking, "pull requests").len(), 2);
}

#[test]
fn a_misspelled_word_finds_the_skill_unless_a_skill_has_it() {
    let database = text("database", "Keeps rows.");
    let ranking = Ranking::new([database]);
    assert_eq!(names(&ranking, "databse"), ["database"]);
    assert_eq!(names(&ranking, "dataabse rows"), ["database"]);
    assert!(names(&ranking, "diabase").is_empty());
    let ranking = Ranking::new([database, text("typo", "Explains what a databse is.")]);
    assert_eq!(names(&ranking, "databse"), ["typo"]);
}

#[test]
fn an_everyday_word_finds_no_longer_ones() {
    let ranking = Ranking::new([text("ownership", "Says who owns a service.")]);
    assert!(names(&ranking, "our own website").is_empty());
    assert_eq!(names(&ranking, "owner"), ["ownership"]);
}

#[test]
fn too_little_of_the_query_is_no_answer() {
    let ranking = Ranking::new([
        text("slow-query", "Finds out why a query is slow."),
        text("a", "b"),
    ]);
    assert!(names(&ranking, "guitar chords for a slow song").is_empty());
    assert_eq!(names(&ranking, "why is this query so slow"), ["slow-query"]);
    // Everyday words in a query do not hide a skill that matches the other words.
    assert_eq!(
        names(
            &ranking,
            "please tell me quickly what makes my query slow today"
        ),
        ["slow-query"]
    );
    let ranked = ranking.rank("guitar chords for a slow song");
    assert_eq!(ranked.first().map(|hit| hit.name), Some("slow-query"));
}

/// A vault of a few skills that share words with each other.
fn small_vault() -> Ranking {
    Ranking::new([
        text(
            "release-notes",
            "Writes release notes from merged pull requests. Do not use for Jira tickets.",
        ),
        text(
            "changelog",
            "Keeps a changelog and release notes up to date.",
        ),
        text(
            "code-review",
            "Reviews a change of code for bugs and style.",
        ),
        text("deploy-web", "Deploys a web application to a server."),
        text("email-drafts", "Drafts emails and replies."),
        text("linux-admin", "Administers Linux servers with systemd."),
        text("meeting-minutes", "Writes the minutes of a meeting."),
        text("slides", "Makes slides for a talk."),
    ])
}

#[test]
fn a_name_that_no_skill_has_does_not_hide_the_answer() {
    let ranking = small_vault();
    let cases = [
        // Wherever it stands, and in each case.
        ("release notes for Contoso", "release-notes"),
        ("Release notes for Contoso", "release-notes"),
        ("RELEASE NOTES FOR CONTOSO", "release-notes"),
        ("Release Notes For Contoso", "release-notes"),
        ("Contoso release notes", "release-notes"),
        ("Contoso's release notes", "release-notes"),
        ("Slides about Blue Whales", "slides"),
        // Names of several words, and several names.
        ("release notes for Acme Corp GmbH", "release-notes"),
        ("release notes for Contoso and Fabrikam", "release-notes"),
        (
            "release notes: Contoso, Fabrikam, Northwind",
            "release-notes",
        ),
        (
            "Please write the release notes for Contoso Fabrikam Northwind Initech",
            "release-notes",
        ),
        ("Draft an email to Ann Smith at Contoso Ltd", "email-drafts"),
        // However it is written.
        ("release notes for iContoso", "release-notes"),
        ("release notes for eBay", "release-notes"),
        ("release notes for acme-frontend", "release-notes"),
        ("release notes for acme/frontend", "release-notes"),
        (
            "release notes for https://github.com/acme/frontend",
            "release-notes",
        ),
        ("release notes for contoso.com", "release-notes"),
        ("release notes for @Contoso/web", "release-notes"),
        ("release notes for v2.3.1", "release-notes"),
        ("release notes for Contoso 4.2.1", "release-notes"),
        ("release notes for PROJ-1234", "release-notes"),
        // In scripts that have no capitals.
        ("release notes for 株式会社コントソ", "release-notes"),
        ("release notes for 微软中国", "release-notes"),
        ("release notes for شركة كونتوسو", "release-notes"),
        ("release notes for חברת קונטוסו", "release-notes"),
        ("release notes for 삼성전자", "release-notes"),
        ("release notes for บริษัทคอนโทโซ", "release-notes"),
    ];
    for (query, answer) in cases {
        assert_eq!(names(&ranking, query).first(), Some(&answer), "{query}");
    }
    // These are not taken for names of the caller's: words without a capital, and words that the
    // thesaurus or an exclusion has.
    for query in [
        "meeting with contoso and fabrikam",
        "meeting about Kubernetes and Terraform",
        "release notes for Jira",
    ] {
        assert_eq!(names(&ranking, query), Vec::<&str>::new(), "{query}");
    }
}

#[test]
fn capitals_alone_do_not_make_nonsense_find_something() {
    let ranking = small_vault();
    for query in [
        "write a Poem about Autumn",
        "review the Restaurant and the Hotel",
        "deploy the Sourdough and the Croissant",
        "my Dog and my Cat have a meeting",
        "please write to Grandma about Christmas and Easter",
        "Grandma and Grandpa",
    ] {
        for query in [query.to_owned(), query.to_lowercase(), query.to_uppercase()] {
            assert_eq!(names(&ranking, &query), Vec::<&str>::new(), "{query}");
        }
    }
    assert!(names(&ranking, "REVIEW RESTAURANT FOOD").is_empty());
}

#[test]
fn a_name_is_not_a_misspelled_word() {
    let ranking = small_vault();
    assert!(names(&ranking, "dinner with Linus").is_empty());
    assert!(!names(&ranking, "meeting with Linus").contains(&"linux-admin"));
    assert_eq!(names(&ranking, "linus server")[0], "linux-admin");
}

#[test]
fn a_long_query_is_answered_by_a_few_of_its_words() {
    let ranking = Ranking::new([text("migrate", "Migrates a Postgres schema.")]);
    let unknown: Vec<String> = (0..40).map(|n| format!("zzz{n}qq")).collect();
    let query = format!("postgres schema migration {}", unknown.join(" "));
    assert_eq!(names(&ranking, &query), ["migrate"]);
    let query = format!("postgres {}", unknown.join(" "));
    assert!(names(&ranking, &query).is_empty());
}

#[test]
fn what_a_description_excludes_is_no_match() {
    let ranking = Ranking::new([
        text(
            "dump-collect",
            "Collects a crash dump. DO NOT USE FOR: reading dumps in WinDbg.",
        ),
        text("dump-read", "Reads a dump with WinDbg."),
    ]);
    assert_eq!(names(&ranking, "crash dump in WinDbg")[0], "dump-read");
    assert!(!names(&ranking, "WinDbg").contains(&"dump-collect"));
    // A word of the purpose counts, although the exclusion repeats it.
    assert_eq!(names(&ranking, "crash dump"), ["dump-collect", "dump-read"]);
}

#[test]
fn a_query_of_everyday_words_only_is_answered_by_them() {
    let ranking = Ranking::new([text("how-to", "What to do."), text("other", "Else.")]);
    assert_eq!(names(&ranking, "how to"), ["how-to"]);
}

#[test]
fn advice_in_a_description_is_no_exclusion() {
    let ranking = Ranking::new([text(
        "strong-passwords",
        "Never use weak passwords again: generates strong passwords and passphrases.",
    )]);
    for query in ["passphrase", "weak passwords", "generate passphrases"] {
        assert_eq!(names(&ranking, query), ["strong-passwords"], "{query}");
    }
}

#[test]
fn words_that_say_nothing_do_not_push_out_the_request() {
    let ranking = Ranking::new([
        text("release-notes", "Writes release notes."),
        text("zh-tests", "编写测试和代码审查。"),
    ]);
    let repeated = "x ".repeat(MAX_QUERY_TERMS) + "release notes";
    assert_eq!(names(&ranking, &repeated), ["release-notes"]);
    let ignored = "the ".repeat(MAX_QUERY_TERMS) + "release notes";
    assert_eq!(names(&ranking, &ignored), ["release-notes"]);
    // In Chinese, each pair of neighbouring characters is a word of the query.
    let request = "我们的团队正在开发一个新的网站项目需要你的帮助因为最近我们遇到了很多很多的问题\
                   所以现在非常着急希望你能够马上为我们的这个网站项目编写测试并且进行代码审查";
    assert_eq!(names(&ranking, request), ["zh-tests"]);
}

#[test]
fn the_turkish_capital_i_is_an_i() {
    let ranking = Ranking::new([text("fatura", "İhracat faturası hazırlar.")]);
    for query in ["ihracat", "Ihracat", "İhracat", "İHRACAT"] {
        assert_eq!(names(&ranking, query), ["fatura"], "{query}");
    }
    assert!(names(&ranking, "I").is_empty());
}

proptest! {
    #[test]
    fn any_query_is_answered_in_order(query in ".{0,200}", texts in proptest::collection::vec("[a-c ]{0,12}", 0..20), top_k in 0_usize..25) {
        let ranking = Ranking::new(texts.iter().map(|description| text("n", description)));
        let hits = ranking.search(&query, top_k);
        prop_assert!(hits.len() <= top_k.min(texts.len()));
        prop_assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
        prop_assert_eq!(&hits, &ranking.search(&query, top_k));
        let all = ranking.search(&query, usize::MAX);
        prop_assert_eq!(&all[..hits.len()], &hits[..], "a shorter answer is the beginning of a longer one");
    }
}
