//! Each kind of output on GitHub.

use legwork::outputs::{Kind, KindName, Subject};
use legwork::publish::EntryStatus;
use serde_json::json;

use super::engine::{Setup, TESTED_KINDS, any_patch, changed_folder, pull_request};
use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::{ForgeServer, LOGIN};

fn github() -> ForgeServer<Github> {
    ForgeServer::start(Github::new(Git::default()))
}

/// Asserts that GitHub accepts all requests.
#[track_caller]
fn assert_valid(server: &ForgeServer<Github>) {
    assert_eq!(server.api().violations, [""; 0]);
}

#[test]
fn a_comment_is_published_once_with_its_mark() {
    let server = github();
    server.api().add_comment(3, "mallory", "Hi\n\n<!-- legwork triage comment-1 20260101-a 0123456789abcdef -->");
    for number in 0..150 {
        server.api().add_comment(3, "alice", &format!("comment {number}"));
    }
    let setup = Setup::new().comment("Thanks!\n\n| a |\n|---|");
    setup.publish_all(&server);
    let comments = server.api().own_comments();
    assert_eq!(comments.len(), 1, "a mark of somebody else isn't believed");
    assert!(comments[0].starts_with("Thanks!\n\n| a |\n|---|\n\n<!-- legwork triage comment-1 20260101-a "));
    let requests = server.log().len();
    setup.publish_all(&server);
    assert_eq!(server.log().len(), requests, "a second process asks for nothing");
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    assert_eq!(server.api().own_comments().len(), 1, "it is found on the second page by its mark");
    assert_valid(&server);
}

#[test]
fn a_comment_that_updates_edits_that_of_an_earlier_run() {
    let server = github();
    let kind = Kind::Comment { update: true, closes: false };
    let mut setup = Setup::new().output("comment", kind.clone(), json!({ "body": "first" }));
    setup.publish_all(&server);
    setup.submission.run = "20260102-b".to_owned();
    setup.submission.file.entries[0].data = json!({ "body": "second" });
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    let comments = server.api().own_comments();
    assert_eq!(comments.len(), 1);
    assert!(comments[0].starts_with("second\n") && comments[0].contains(" 20260102-b "), "{comments:?}");
    let is_twice = server.writes().iter().filter(|line| line.starts_with("PATCH")).count();
    assert_eq!(is_twice, 1);
    assert_valid(&server);
}

#[test]
fn comments_of_a_review_whose_lines_are_gone_move_into_its_text() {
    let server = github();
    let sha = "c".repeat(40);
    server.api().add_pull(7, "feature", &sha, "o/r");
    let comments = json!([
        { "path": "src/a.py", "line": 2, "body": "here" },
        { "path": "src/a.py", "line": 3, "start_line": 2, "side": "RIGHT", "body": "both" },
        { "path": "src/a.py", "line": 90, "body": "gone" },
        { "path": "src/b.py", "line": 1, "body": "other file" },
    ]);
    let kind = Kind::Review { max_comments: 20, request_changes: false };
    let setup = Setup::of_pull_request(&sha).output("review", kind, json!({ "body": "Look:", "comments": comments }));
    setup.publish_all(&server);
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    let reviews = server.api().reviews.clone();
    assert_eq!(reviews.len(), 1);
    assert_eq!((&reviews[0]["event"], &reviews[0]["commit_id"]), (&json!("COMMENT"), &json!(sha)));
    assert_eq!(reviews[0]["comments"].as_array().unwrap().len(), 2);
    assert_eq!(reviews[0]["comments"][1]["start_line"], 2);
    let body = reviews[0]["body"].as_str().unwrap();
    assert!(
        body.starts_with("Look:\n\n`src/a.py`, line 90:\n\ngone\n\n`src/b.py`, line 1:\n\nother file\n\n<!--"),
        "{body}"
    );
    assert_valid(&server);
}

#[test]
fn the_changes_become_a_pull_request_before_a_comment_announces_it() {
    let (folder, base, patch) = changed_folder();
    let server = ForgeServer::start(Github::new(Git::of(&folder, "main")));
    let data = json!({ "title": "Fix two", "body": "It was wrong." });
    let setup = Setup::new().comment("See the pull request.").output("docs", pull_request(false), data);
    let setup = setup.changes(&base, &patch);
    setup.publish_all(&server);
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    let api = server.api();
    let branch = "legwork/triage/20260101-a";
    let git = &api.git;
    assert_eq!(git.text(branch, "src/a.py").as_deref(), Some("one\n2\nthree\n"));
    assert_eq!(git.text(branch, "docs/new/page.md").as_deref(), Some("new\n"));
    assert_eq!(git.text(branch, "docs/old.md"), None);
    let commit = &git.commits[&git.branches[branch]];
    assert_eq!(commit.parents, [base]);
    assert!(commit.message.starts_with("[bot] Fix two\n\nLegwork: triage docs-1 20260101-a "), "{}", commit.message);
    assert_eq!(git.files(&commit.tree)["run.sh"].mode, "100755");
    let own: Vec<_> = api.pulls.values().filter(|pull| pull["user"]["login"] == LOGIN).collect();
    assert_eq!(own.len(), 1);
    assert_eq!(
        (&own[0]["title"], &own[0]["draft"], &own[0]["base"]["ref"]),
        (&json!("[bot] Fix two"), &json!(true), &json!("main"))
    );
    let number = own[0]["number"].as_u64().unwrap();
    assert_eq!(api.issues[&number]["labels"], json!([{ "name": "automation" }]));
    drop(api);
    let writes = server.writes();
    let at = |end: &str| writes.iter().position(|line| line.ends_with(end)).unwrap();
    assert!(at("/pulls") < at("/issues/3/comments"), "{writes:?}");
    assert_valid(&server);
}

#[test]
fn a_pull_request_that_updates_replaces_its_own_commit_only() {
    let (folder, base, patch) = changed_folder();
    let server = ForgeServer::start(Github::new(Git::of(&folder, "main")));
    let data = json!({ "title": "Fix", "body": "One." });
    let mut setup = Setup::new().output("docs", pull_request(true), data).changes(&base, &patch);
    setup.publish_all(&server);
    setup.submission.run = "20260102-b".to_owned();
    setup.submission.file.entries[0].data = json!({ "title": "Fix", "body": "Two." });
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    let branch = "legwork/triage/docs-1";
    let own: Vec<_> = server.api().pulls.values().cloned().collect();
    assert_eq!(own.len(), 1);
    assert!(own[0]["body"].as_str().unwrap().starts_with("Two.\n"));
    // Somebody commits on top of it.
    let head = server.api().git.branches[branch].clone();
    let tree = server.api().git.commits[&head].tree.clone();
    let commit = crate::support::forge::git::Commit { tree, parents: vec![head], message: "mine".to_owned() };
    let mine = server.api().git.add_commit(commit);
    server.api().git.branches.insert(branch.to_owned(), mine.clone());
    setup.submission.run = "20260103-c".to_owned();
    std::fs::remove_file(&setup.state).unwrap();
    let (status, code) = setup.first_status(&server);
    assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("that this output didn't make")), "{status:?}");
    assert_eq!((code, &server.api().git.branches[branch]), (1, &mine));
    assert_valid(&server);
}

#[test]
fn a_push_moves_the_branch_of_the_pull_request_and_nothing_else() {
    let (folder, base, patch) = changed_folder();
    let setup = |kind: Kind| {
        Setup::of_pull_request(&base).output("push", kind, json!({ "message": "Fix it" })).changes(&base, &patch)
    };
    let start = |repository: &str| {
        let server = ForgeServer::start(Github::new(Git::of(&folder, "feature")));
        server.api().add_pull(7, "feature", &base, repository);
        server
    };
    let kind = Kind::Push { patch: any_patch() };
    let server = start("o/r");
    let own = setup(kind.clone());
    own.publish_all(&server);
    assert_eq!(server.api().git.text("feature", "src/a.py").as_deref(), Some("one\n2\nthree\n"));
    let head = server.api().git.branches["feature"].clone();
    // Somebody pushes on top of it, and `published.json` is lost.
    let tree = server.api().git.commits[&head].tree.clone();
    let commit = crate::support::forge::git::Commit { tree, parents: vec![head], message: "later".to_owned() };
    let later = server.api().git.add_commit(commit);
    server.api().git.branches.insert("feature".to_owned(), later.clone());
    std::fs::remove_file(&own.state).unwrap();
    own.publish_all(&server);
    assert_eq!(server.api().git.branches["feature"], later, "it is found below");
    assert_valid(&server);
    let fork = start("mallory/r");
    let (status, _) = setup(kind.clone()).first_status(&fork);
    assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("fork")), "{status:?}");
    assert_eq!(fork.writes(), [""; 0]);
    let moved = start("o/r");
    let tree = moved.api().git.commits[&base].tree.clone();
    let commit = crate::support::forge::git::Commit { tree, parents: vec![base.clone()], message: "other".to_owned() };
    let other = moved.api().git.add_commit(commit);
    moved.api().git.branches.insert("feature".to_owned(), other);
    let (status, code) = setup(kind).first_status(&moved);
    assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("isn't at the commit")), "{status:?}");
    assert_eq!((code, moved.writes()), (1, Vec::new()));
}

#[test]
fn changes_on_another_base_are_refused_with_what_to_do() {
    let (folder, base, patch) = changed_folder();
    let data = json!({ "title": "Fix", "body": "x" });
    let server = ForgeServer::start(Github::new(Git::of(&folder, "main")));
    let refusal = |setup: Setup, what: &str| {
        let (status, code) = setup.comment("See it.").first_status(&server);
        assert!(matches!(&status, EntryStatus::Refused(why) if why.contains(what)), "{status:?}");
        assert_eq!((code, server.writes()), (1, Vec::new()), "and nothing announces it");
    };
    let setup = || Setup::new().output("docs", pull_request(false), data.clone());
    refusal(setup().changes(&"d".repeat(40), &patch), "the forge doesn't have the commit");
    let dirty = patch.replace("-two", "-zwei").replace("index ", "index f");
    refusal(setup().changes(&base, &dirty), "had changes that weren't committed");
    refusal(setup().changes(&base, &patch.replace("+2\n", "+3\n")), "doesn't give the file");
    refusal(setup().changes(&base, "nonsense"), "line 1 of its patch");
    let mut merged = Setup::of_pull_request(&"e".repeat(40)).output("docs", pull_request(false), data.clone());
    merged = merged.changes(&base, &patch);
    server.api().add_pull(7, "feature", &"e".repeat(40), "o/r");
    refusal(merged, "github.event.pull_request.head.sha");
}

#[test]
fn issues_labels_ends_and_checks_are_published_once() {
    let server = github();
    let issue = Kind::Issue {
        title_prefix: "[bot] ".to_owned(),
        labels: vec!["bug".to_owned()],
        choose: vec!["ui".to_owned(), "db".to_owned()],
    };
    let labels = Kind::Labels { add: vec!["bug".to_owned()], remove: vec!["needs-triage".to_owned()] };
    let setup = Setup::new()
        .output("issue", issue, json!({ "title": "Broken", "body": "It is.", "labels": ["ui"] }))
        .output("labels", labels, json!({ "add": ["bug", "needs-triage"], "remove": ["absent"] }))
        .output("close", Kind::Close {}, json!({ "reason": "not_planned" }));
    for _ in 0..2 {
        setup.publish_all(&server);
        std::fs::remove_file(&setup.state).unwrap();
    }
    let writes = server.writes();
    assert_eq!(writes.len(), 3, "what is so already isn't touched: {writes:?}");
    let api = server.api();
    let made: Vec<_> = api.issues.values().filter(|issue| issue["user"]["login"] == LOGIN).collect();
    assert_eq!((made.len(), &made[0]["title"]), (1, &json!("[bot] Broken")));
    assert_eq!(made[0]["labels"], json!([{ "name": "bug" }, { "name": "ui" }]));
    assert_eq!((&api.issues[&3]["state"], &api.issues[&3]["state_reason"]), (&json!("closed"), &json!("not_planned")));
    drop(api);
    let sha = "c".repeat(40);
    server.api().add_pull(7, "feature", &sha, "o/r");
    let check = Kind::Check { check_name: "docs".to_owned() };
    let setup =
        Setup::of_pull_request(&sha).output("check", check, json!({ "conclusion": "neutral", "summary": "Fine." }));
    for _ in 0..2 {
        setup.publish_all(&server);
        std::fs::remove_file(&setup.state).unwrap();
    }
    let api = server.api();
    assert_eq!((api.checks.len(), &api.checks[0]["external_id"]), (1, &json!("20260101-a/check-1")));
    drop(api);
    assert_valid(&server);
}

#[test]
fn a_check_of_an_issue_is_refused() {
    let server = github();
    let data = json!({ "conclusion": "success", "summary": "s" });
    let setup = Setup::new().output("check", Kind::Check { check_name: "docs".to_owned() }, data);
    let (status, code) = setup.first_status(&server);
    let why = "an issue has no commit that a check could be for";
    assert!(matches!(&status, EntryStatus::Refused(found) if found == why), "{status:?}");
    assert_eq!((code, server.writes().len()), (1, 0));
}

#[test]
fn a_command_gets_its_data_and_no_token_and_runs_once() {
    let server = github();
    let command = |repeatable: bool, run: &str| Kind::Command {
        run: run.to_owned(),
        schema: json!({}),
        env: vec!["CHAT_TOKEN".to_owned(), "GITHUB_TOKEN".to_owned()],
        repeatable,
        timeout_ms: 60_000,
    };
    let script = "cat > data; env | sort > env; echo x >> count";
    let mut setup = Setup::new().output("notify", command(false, script), json!({ "data": { "a": [1] } }));
    setup.variables = [("CHAT_TOKEN", "chat"), ("OTHER", "o")].map(|(name, value)| (name.into(), value.into())).into();
    setup.publish_all(&server);
    setup.publish_all(&server);
    let read = |name: &str| std::fs::read_to_string(setup.state.with_file_name(name)).unwrap();
    assert_eq!((&*read("data"), &*read("count")), ("{\"a\":[1]}", "x\n"));
    let env = read("env");
    assert!(env.contains("CHAT_TOKEN=chat\n") && env.contains("LEGWORK_OUTPUT_ID=notify-1\n"), "{env}");
    assert!(!env.contains("GITHUB_TOKEN") && !env.contains("OTHER"), "{env}");
    assert_eq!(server.log().len(), 0, "it needs no forge");
    // It fails: nobody knows what it did.
    let setup = Setup::new().output("notify", command(false, "echo x >> count; exit 3"), json!({ "data": 1 }));
    for what in ["exit code 3", "was started before"] {
        let (status, code) = setup.first_status(&server);
        assert!(matches!(&status, EntryStatus::Refused(why) if why.contains(what)), "{status:?}");
        assert_eq!(code, 1);
    }
    assert_eq!(std::fs::read_to_string(setup.state.with_file_name("count")).unwrap(), "x\n");
    let setup = Setup::new().output("notify", command(true, "echo x >> count; test -e ok"), json!({ "data": 1 }));
    assert_eq!(setup.first_status(&server).1, 1);
    std::fs::write(setup.state.with_file_name("ok"), "").unwrap();
    setup.publish_all(&server);
    assert_eq!(std::fs::read_to_string(setup.state.with_file_name("count")).unwrap(), "x\nx\n");
}

#[test]
fn an_event_without_a_number_finds_the_pull_request_of_its_branch() {
    let server = github();
    let sha = "c".repeat(40);
    server.api().add_pull(7, "feature", &sha, "mallory/r");
    server.api().add_pull(8, "feature", &"d".repeat(40), "mallory/r");
    let mut setup = Setup::of_pull_request(&sha).comment("Hello");
    setup.trigger.subject = Subject::Other;
    setup.trigger.number = None;
    setup.trigger.head.as_mut().unwrap().repository = Some("mallory/r".to_owned());
    setup.publish_all(&server);
    assert_eq!(server.api().comments[0]["issue"], 7);
    setup.trigger.head.as_mut().unwrap().sha = "e".repeat(40);
    std::fs::remove_file(&setup.state).unwrap();
    let (status, _) = setup.first_status(&server);
    assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("--event FILE")), "{status:?}");
}

#[test]
fn every_kind_has_a_test_here() {
    let here = include_str!("kinds.rs");
    for kind in TESTED_KINDS {
        let is_tested = match kind {
            KindName::Comment => here.contains(".comment("),
            KindName::PullRequest => here.contains("pull_request("),
            kind => here.contains(&format!("Kind::{kind:?}")),
        };
        assert!(is_tested, "{kind:?}");
    }
}
