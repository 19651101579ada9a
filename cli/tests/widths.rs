//! Prompts, bars and tables in terminals of 60, 80 and 100 columns: no torn word, no bar over a
//! question, no folded row, no line wider than the terminal.

use std::sync::{Arc, Mutex};

use crate::fetching::{INDEX, SiteServer};
use crate::screens::start_sized;
use crate::screens::terminal::{DOWN, ENTER, INTERRUPT, LEFT, Terminal, reads};
use crate::sources::listed;
use crate::support::Home;

const WIDTHS: [usize; 3] = [60, 80, 100];
/// A width at which no table of these tests lacks a column or shortens a cell.
const WIDE: usize = 400;
/// The end of the keys below a list of options.
const KEYS: &str = "type to filter";

/// Asserts that no line is wider than the terminal, and that the screen shows these texts, broken
/// between words at most.
#[track_caller]
fn check(screen: &str, columns: usize, texts: &[&str]) {
    for line in screen.lines() {
        // A command to be copied stays on one line.
        let is_command = line.trim_start().starts_with("vault ");
        assert!(
            is_command || line.chars().count() <= columns,
            "{columns}: {line}\n{screen}"
        );
    }
    for text in texts {
        assert!(reads(screen, text), "{columns}: {text:?}\n{screen}");
    }
}

/// Whether a line shows a bar or a spinner, of vault's style or another.
fn shows_bar(screen: &str) -> bool {
    let is_mark = |c| matches!(c, '\u{2801}'..='\u{28ff}' | '━' | '╸' | '░' | '█');
    screen.contains(is_mark) || screen.contains("Fetching") || screen.contains("0/0")
}

#[test]
fn every_question_of_the_wizard_breaks_between_words() {
    const AGENTS: &str = "Which agents should see the vault's skills?";
    const TAGS: &str = "Only skills with one of these tags, separated by commas (empty: all):";
    const SHARE: &str = "Show each imported skill to agents that did not have it (Codex, Cursor)?";
    const NAME: &str = "notes-for-customers-and-partners";
    for columns in WIDTHS {
        let home = Home::for_screens("wide-");
        for mark in [".claude/skills", ".codex", ".cursor"] {
            std::fs::create_dir_all(home.path(mark)).unwrap();
        }
        home.skill(&format!(".claude/skills/{NAME}"), "Writes release notes.");
        let Some(mut terminal) = start_sized(home.root(), "setup --review --advanced", columns)
        else {
            return;
        };
        let what = format!("What should vault do with {NAME}?");
        for (question, last, keys) in [
            (AGENTS, "Enter: continue]", &[ENTER][..]),
            (
                "Another folder of skills, as agent=/path (empty: none):",
                "",
                &[ENTER],
            ),
            (TAGS, "", &[ENTER]),
            ("Refuse skills that the gate flags?", "(Y/n)", &[ENTER]),
            (
                "Which starter skills do you want?",
                "Enter: continue]",
                &[LEFT, ENTER],
            ),
            (&what, KEYS, &[DOWN, ENTER]),
            (SHARE, "(y/N)", &["y", ENTER]),
            ("What happens when an agent", "to select", &[ENTER]),
            ("Go ahead?", "(Y/n)", &[ENTER]),
        ] {
            terminal.wait_for(question);
            terminal.wait_for(last);
            check(&terminal.shown(), columns, &[question, last]);
            terminal.press(keys);
        }
        let (screen, code) = terminal.finish();
        assert_eq!(code, 0, "{screen}");
        check(&screen, columns, &[AGENTS, TAGS, SHARE, &what]);
    }
}

#[test]
fn a_list_of_skills_has_one_line_for_each() {
    let home = Home::for_screens("pick-");
    for name in ["csv", "slides-of-the-company"] {
        let about = "Makes slides out of notes, one for each heading, with all their pictures.";
        home.skill(&format!("skills/{name}"), about);
    }
    for columns in WIDTHS {
        let Some(mut terminal) = start_sized(home.root(), "add skills", columns) else {
            return;
        };
        terminal.wait_for("Enter: add]");
        let screen = terminal.shown();
        check(
            &screen,
            columns,
            &[
                "[ ] csv",
                "[ ] slides-of-the-company",
                "filter, Enter: add]",
            ],
        );
        let options = screen.lines().filter(|line| line.contains("[ ] "));
        assert!(
            options.clone().count() == 2 && !screen.contains("\n      "),
            "{screen}"
        );
        terminal.press(&[INTERRUPT]);
        terminal.finish();
    }
}

#[test]
fn a_question_removes_the_bar_and_each_bar_has_a_text() {
    let text = |name: &str| {
        format!(
            "---\nname: {name}\ndescription: Reads {name} files of any size and of any age, and \
             tells what is in them without opening a program of somebody else.\n---\nRead.\n"
        )
    };
    let names = ["comma-separated-values", "portable-documents"];
    for columns in WIDTHS {
        let home = Home::for_screens("bars-");
        let (site, gate) = (SiteServer::new(), Arc::new(Mutex::new(())));
        let entries = names.map(|name| listed(name, &text(name)));
        site.index(&entries.join(",")).hold(INDEX, &gate);
        for name in names {
            let path = format!("/{name}/SKILL.md");
            site.text(&path, text(name)).hold(&path, &gate);
        }
        let held = gate.lock().unwrap();
        let Some(mut terminal) = start_sized(home.root(), &format!("add {}", site.base), columns)
        else {
            return;
        };
        terminal.wait_for(&format!("Fetching {}", site.base));
        check(&terminal.shown(), columns, &[]);
        drop(held);
        let question = format!("Which skills of {}?", site.base);
        terminal.wait_for("Enter: add]");
        check(&terminal.shown(), columns, &[&question]);
        assert!(!shows_bar(&terminal.shown()), "{}", terminal.shown());
        let held = gate.lock().unwrap();
        terminal.press(&[" ", DOWN, " "]);
        terminal.wait_for(&format!("[x] {}", names[1]));
        check(&terminal.shown(), columns, &[&question]);
        assert!(!shows_bar(&terminal.shown()), "{}", terminal.shown());
        terminal.press(&[ENTER]);
        terminal.wait_for(&format!("Fetching {}", names[0]));
        check(&terminal.shown(), columns, &[&question, &names.join(", ")]);
        drop(held);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 0, "{screen}");
        assert!(!shows_bar(&screen), "{screen}");

        let held = gate.lock().unwrap();
        let mut terminal = start_sized(home.root(), "outdated", columns).unwrap();
        terminal.wait_for("Checking sources [");
        terminal.wait_for("] 0/2");
        check(&terminal.shown(), columns, &[]);
        drop(held);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 0, "{screen}");
        assert!(!shows_bar(&screen), "{screen}");
    }
}

/// The rows of a command's table with its heading, in a terminal of this width.
fn rows(home: &std::path::Path, command: &str, columns: usize) -> Vec<String> {
    let terminal = start_sized(home, command, columns).unwrap();
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{command}: {screen}");
    if columns < WIDE {
        check(&screen, columns, &[]);
    }
    let rows = screen.lines();
    // The closing line about columns may itself take two lines.
    let rows = rows.take_while(|line| !line.is_empty() && !line.starts_with("Not shown"));
    rows.map(str::to_owned).collect()
}

/// Asserts that the tables of these commands have a line for each row at every width.
fn check_tables(home: &std::path::Path, commands: &[&str]) {
    for command in commands {
        let wide = rows(home, command, WIDE);
        assert!(wide.len() > 1, "{command}: {wide:?}");
        for columns in WIDTHS {
            let narrow = rows(home, command, columns);
            assert_eq!(narrow.len(), wide.len(), "{command}: {narrow:#?}");
            let heading = |rows: &[String]| rows[0].split_whitespace().next().map(str::to_owned);
            assert_eq!(heading(&narrow), heading(&wide), "{command}");
        }
    }
}

#[test]
fn each_row_of_a_table_is_one_line() {
    let home = Home::for_screens("rows-");
    if Terminal::start(home.root(), "true").is_none() {
        return;
    }
    for mark in [".claude", ".codex", ".cursor"] {
        std::fs::create_dir_all(home.path(mark)).unwrap();
    }
    for name in ["csv", "a-skill-with-a-name-that-needs-forty-two-cells"] {
        let about = "Reads tables of any size, and tells what is in each of their columns.";
        home.skill(&format!("skills/{name}"), about);
    }
    home.run(&["add", "skills", "--all"]).ok();
    home.run(&["sync-profiles", "--discover"]).ok();
    check_tables(
        home.root(),
        &[
            "list",
            "agents",
            "sync-profiles",
            "config list --origin",
            "serve --public-url http://127.0.0.1:8080 --database-url postgres://a:b@db/vault --admin-email ann@example.com --print-config",
        ],
    );
}

#[test]
fn each_row_of_a_table_from_the_service_is_one_line() {
    let home = Home::for_screens("demo-");
    let Some(mut demo) = start_sized(home.root(), "demo", 80) else {
        return;
    };
    demo.wait_for("The service's log:");
    let screen = demo.shown();
    // The tour above keeps its commands on one line, as people copy them.
    let (_, invitation) = screen.split_once("The service runs").unwrap();
    check(invitation, 80, &["$ vault devices list"]);
    let owner = screen.split("export HOME=").nth(1).unwrap();
    let owner = std::path::Path::new(owner.split_whitespace().next().unwrap());
    let invite = start_sized(owner, "devices invite --uses 2 --name ci-*", 80).unwrap();
    assert_eq!(invite.finish().1, 0);
    check_tables(
        owner,
        &[
            "devices list",
            "devices codes",
            "users list",
            "clients list",
            "audit-log",
            "publishers list",
        ],
    );
    demo.press(&[INTERRUPT]);
    assert_eq!(demo.finish().1, 0);
}
