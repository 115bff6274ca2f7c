//! Whatever happens in the middle: each output is there once.

use std::sync::mpsc::channel;
use std::time::Duration;

use legwork::outputs::Kind;
use serde_json::json;

use super::engine::{Setup, any_patch, changed_folder, pull_request};
use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::{Death, ForgeServer, LOGIN};
use crate::support::sample;

/// The most requests of one publication.
const MAX_REQUESTS: usize = 200;

/// A run with every kind of output that has an effect on GitHub.
fn everything(base: &str, patch: &str) -> Setup {
    let labels = Kind::Labels { add: vec!["bug".to_owned()], remove: vec!["needs-triage".to_owned()] };
    let issue = Kind::Issue { title_prefix: String::new(), labels: vec!["bug".to_owned()], choose: Vec::new() };
    let review = Kind::Review { max_comments: 5, request_changes: true };
    let lines =
        json!([{ "path": "src/a.py", "line": 2, "body": "here" }, { "path": "gone", "line": 1, "body": "gone" }]);
    Setup::of_pull_request(base)
        .comment("one")
        .comment("two")
        .output("sticky", Kind::Comment { update: true, closes: false }, json!({ "body": "sticky" }))
        .output("docs", pull_request(false), json!({ "title": "Fix", "body": "x" }))
        .output("review", review, json!({ "body": "r", "comments": lines }))
        .output("issue", issue, json!({ "title": "t", "body": "b" }))
        .output("labels", labels, json!({ "add": ["bug"], "remove": ["needs-triage"] }))
        .output(
            "check",
            Kind::Check { check_name: "docs".to_owned() },
            json!({ "conclusion": "success", "summary": "s" }),
        )
        .output("close", Kind::Close {}, json!({ "reason": "completed" }))
        .changes(base, patch)
}

fn forge(git: Git, base: &str) -> ForgeServer<Github> {
    let server = ForgeServer::start(Github::new(git));
    server.api().add_pull(7, "main", base, "o/r");
    server.api().add_issue(7, &["needs-triage"]);
    server
}

/// What is on the forge, without ids and addresses.
fn content(server: &ForgeServer<Github>) -> String {
    let api = server.api();
    let pulls: Vec<_> = api.pulls.values().map(|pull| [&pull["title"], &pull["body"], &pull["head"]]).collect();
    let labels: Vec<_> =
        api.issues.values().map(|issue| [&issue["title"], &issue["state"], &issue["labels"]]).collect();
    let own_issues = api.issues.values().filter(|issue| issue["user"]["login"] == LOGIN).count();
    let reviews: Vec<_> = api.reviews.iter().map(|review| [&review["body"], &review["comments"]]).collect();
    let checks: Vec<_> = api.checks.iter().map(|check| &check["external_id"]).collect();
    let comments = api.own_comments();
    format!("{comments:#?}\n{reviews:#?}\n{pulls:#?}\n{labels:#?}\n{own_issues}\n{checks:#?}\n{:#?}", api.git.branches)
}

#[test]
fn a_publisher_that_is_cut_off_at_any_request_publishes_each_output_once() {
    let (folder, base, patch) = changed_folder();
    let clean = forge(Git::of(&folder, "main"), &base);
    everything(&base, &patch).publish_all(&clean);
    let (expected, requests) = (content(&clean), clean.log().len());
    assert!((20..MAX_REQUESTS).contains(&requests), "{requests} requests");
    for after in [false, true] {
        for request in sample(0..requests, requests.div_ceil(2)) {
            let server = forge(Git::of(&folder, "main"), &base);
            let setup = everything(&base, &patch);
            server.die(Death { request, after, signal: None });
            let ended = setup.publish(&server);
            assert!(ended.is_err() || ended.is_ok_and(|report| report.exit_code() == 75), "request {request}");
            server.revive();
            setup.publish_all(&server);
            assert_eq!(content(&server), expected, "cut off at request {request}, after its effect: {after}");
            assert_eq!(server.api().violations, [""; 0]);
        }
    }
}

#[test]
fn without_its_file_a_publisher_finds_all_by_the_marks() {
    let (folder, base, patch) = changed_folder();
    let server = forge(Git::of(&folder, "main"), &base);
    let setup = everything(&base, &patch);
    setup.publish_all(&server);
    let (before, writes) = (content(&server), server.writes().len());
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    assert_eq!(content(&server), before);
    assert_eq!(server.writes().len() - writes, 0, "nothing is written again: {:?}", &server.writes()[writes..]);
}

#[test]
fn a_push_that_is_cut_off_moves_the_branch_once() {
    let (folder, base, patch) = changed_folder();
    let setup = || {
        let kind = Kind::Push { patch: any_patch() };
        Setup::of_pull_request(&base).output("push", kind, json!({ "message": "m" })).changes(&base, &patch)
    };
    for request in 0.. {
        for after in [false, true] {
            let server = forge(Git::of(&folder, "main"), &base);
            let mut setup = setup();
            setup.trigger.head.as_mut().unwrap().name = "main".to_owned();
            server.die(Death { request, after, signal: None });
            let is_through = setup.publish(&server).is_ok_and(|report| report.exit_code() == 0);
            server.revive();
            setup.publish_all(&server);
            let api = server.api();
            assert_eq!(api.git.commits[&api.git.branches["main"]].parents, [base.as_str()], "request {request}");
            if is_through {
                assert!(request > 5);
                return;
            }
        }
        assert!(request < MAX_REQUESTS);
    }
}

#[test]
fn a_thread_that_waits_for_a_dead_forge_is_told() {
    let server = forge(Git::default(), "");
    let (signal, signalled) = channel();
    server.die(Death { request: 0, after: true, signal: Some(signal) });
    let setup = Setup::new().comment("x");
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| setup.publish(&server).map(|report| report.exit_code()));
        signalled.recv_timeout(Duration::from_secs(60)).unwrap();
        server.revive();
        assert_eq!(publishing.join().unwrap().unwrap(), 0, "it looks again");
    });
    assert_eq!(server.api().own_comments().len(), 1);
}
