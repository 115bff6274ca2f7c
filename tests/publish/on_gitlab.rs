//! Outputs on GitLab.

use legwork::outputs::{Forge, Kind};
use legwork::publish::EntryStatus;
use serde_json::json;

use super::engine::{Setup, any_patch, changed_folder, pull_request};
use crate::support::forge::git::Git;
use crate::support::forge::gitlab::Gitlab;
use crate::support::forge::{Api, Death, ForgeRequest, ForgeServer, LOGIN};
use crate::support::sample;

fn on_gitlab(mut setup: Setup) -> Setup {
    setup.trigger.forge = Forge::Gitlab;
    setup.trigger.repository = "g/r".to_owned();
    setup.trigger.server = "https://gitlab.example".to_owned();
    if let Some(head) = &mut setup.trigger.head {
        head.repository = Some("g/r".to_owned());
    }
    setup
}

fn everything(base: &str, patch: &str) -> Setup {
    let labels = Kind::Labels { add: vec!["bug".to_owned()], remove: vec![] };
    let issue = Kind::Issue { title_prefix: String::new(), labels: vec!["bug".to_owned()], choose: Vec::new() };
    let review = Kind::Review { max_comments: 5, request_changes: false };
    let lines = json!([
        { "path": "src/a.py", "line": 2, "body": "new" },
        { "path": "src/a.py", "line": 3, "body": "context" },
        { "path": "src/a.py", "line": 99, "body": "gone" },
    ]);
    on_gitlab(Setup::of_pull_request(base))
        .comment("one")
        .output("docs", pull_request(false), json!({ "title": "Fix", "body": "x" }))
        .output("review", review, json!({ "body": "r", "comments": lines }))
        .output("issue", issue, json!({ "title": "t", "body": "b" }))
        .output("labels", labels, json!({ "add": ["bug"] }))
        .output(
            "check",
            Kind::Check { check_name: "docs".to_owned() },
            json!({ "conclusion": "neutral", "summary": "s\nt" }),
        )
        .changes(base, patch)
}

fn forge(git: Git, base: &str) -> ForgeServer<Gitlab> {
    let server = ForgeServer::start(Gitlab::new(git));
    server.api().add_merge_request(7, "feature", base);
    server
}

fn content(server: &ForgeServer<Gitlab>) -> String {
    let api = server.api();
    let strip = |value: &serde_json::Value| {
        let mut value = value.clone();
        for key in ["iid", "web_url", "id"] {
            value.as_object_mut().unwrap().remove(key);
        }
        value.to_string()
    };
    let issues: Vec<String> = api.issues.values().map(strip).collect();
    let notes: Vec<String> = api.notes.iter().map(strip).collect();
    let statuses: Vec<String> = api.statuses.iter().map(strip).collect();
    format!("{issues:#?}\n{notes:#?}\n{statuses:#?}\n{:#?}", api.git.branches)
}

#[test]
fn every_kind_is_published_on_gitlab() {
    let (folder, base, patch) = changed_folder();
    let server = forge(Git::of(&folder, "main"), &base);
    let setup = everything(&base, &patch);
    setup.publish_all(&server);
    let writes = server.writes().len();
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    assert_eq!(server.writes().len(), writes, "all is found again");
    assert_eq!(server.api().violations, [""; 0]);
    let api = server.api();
    let branch = "legwork/triage/20260101-a";
    assert_eq!(api.git.text(branch, "src/a.py").as_deref(), Some("one\n2\nthree\n"));
    assert_eq!(api.git.text(branch, "docs/old.md"), None);
    let commit = &api.git.commits[&api.git.branches[branch]];
    assert_eq!(api.git.files(&commit.tree)["run.sh"].mode, "100755");
    let request =
        api.issues.values().find(|it| it["author"]["username"] == LOGIN && !it["source_branch"].is_null()).unwrap();
    assert_eq!((&request["title"], &request["target_branch"]), (&json!("Draft: [bot] Fix"), &json!("feature")));
    assert_eq!(request["labels"], json!(["automation"]));
    assert_eq!(
        (&api.statuses[0]["status"], &api.statuses[0]["description"]),
        (&json!("success"), &json!("neutral: s"))
    );
    let places: Vec<_> =
        api.notes.iter().filter(|note| !note["position"].is_null()).map(|note| &note["position"]).collect();
    assert_eq!(places.len(), 2);
    assert_eq!((&places[0]["new_line"], &places[0]["old_line"]), (&json!(2), &json!(null)));
    assert_eq!((&places[1]["new_line"], &places[1]["old_line"]), (&json!(3), &json!(2)));
    let review = api.own_notes().into_iter().find(|note| note.starts_with("r\n\n`src/a.py`, line 99:\n\ngone\n\n<!--"));
    assert!(review.is_some(), "{:#?}", api.own_notes());
}

#[test]
fn a_publisher_that_is_cut_off_at_any_request_publishes_each_output_once() {
    let (folder, base, patch) = changed_folder();
    let clean = forge(Git::of(&folder, "main"), &base);
    everything(&base, &patch).publish_all(&clean);
    let (expected, requests) = (content(&clean), clean.log().len());
    assert!((20..300).contains(&requests), "{requests} requests");
    for after in [false, true] {
        for request in sample(0..requests, requests.div_ceil(2)) {
            let server = forge(Git::of(&folder, "main"), &base);
            let setup = everything(&base, &patch);
            server.die(Death { request, after, signal: None });
            let _ = setup.publish(&server);
            server.revive();
            setup.publish_all(&server);
            assert_eq!(content(&server), expected, "cut off at request {request}, after its effect: {after}");
            assert_eq!(server.api().violations, [""; 0]);
        }
    }
}

#[test]
fn a_push_and_an_issue_are_published_on_gitlab() {
    let (folder, base, patch) = changed_folder();
    let server = forge(Git::of(&folder, "feature"), &base);
    let kind = Kind::Push { patch: any_patch() };
    let setup = on_gitlab(Setup::of_pull_request(&base)).output("push", kind, json!({ "message": "m" }));
    let setup = setup.changes(&base, &patch);
    setup.publish_all(&server);
    std::fs::remove_file(&setup.state).unwrap();
    setup.publish_all(&server);
    let head = server.api().git.branches["feature"].clone();
    assert_eq!(server.api().git.commits[&head].parents, [base]);
    let setup = on_gitlab(Setup::new()).comment("on the issue").output(
        "close",
        Kind::Close {},
        json!({ "reason": "completed" }),
    );
    setup.publish_all(&server);
    let api = server.api();
    assert_eq!(api.violations, [""; 0]);
    assert_eq!(api.issues[&("issues".to_owned(), 3)]["state"], "closed");
    assert_eq!(api.notes[0]["kind"], "issues", "the numbers of issues and merge requests are different");
}

#[test]
fn a_merge_request_that_is_updated_stays_a_draft_or_ready() {
    let (folder, base, patch) = changed_folder();
    let server = forge(Git::of(&folder, "main"), &base);
    let data = json!({ "title": "Fix", "body": "One." });
    let mut setup = on_gitlab(Setup::new()).output("docs", pull_request(true), data).changes(&base, &patch);
    let title = |server: &ForgeServer<Gitlab>| {
        let api = server.api();
        let own = api.issues.values().find(|it| it["author"]["username"] == LOGIN).unwrap();
        own["title"].as_str().unwrap().to_owned()
    };
    for (run, expected) in [("1", "Draft: [bot] Fix"), ("2", "Draft: [bot] Fix"), ("3", "[bot] Fix")] {
        setup.submission.run = format!("2026010{run}-a");
        let _ = std::fs::remove_file(&setup.state);
        if run == "3" {
            // Somebody marks it as ready.
            let mut api = server.api();
            let own = api.issues.values_mut().find(|it| it["author"]["username"] == LOGIN).unwrap();
            (own["title"], own["draft"]) = (json!("[bot] Fix"), json!(false));
        }
        setup.publish_all(&server);
        assert_eq!(title(&server), expected, "{run}");
    }
    assert_eq!(server.api().violations, [""; 0]);
}

#[test]
fn a_label_with_a_comma_is_refused_on_gitlab() {
    let (folder, base, patch) = changed_folder();
    let server = forge(Git::of(&folder, "main"), &base);
    let labels = || vec!["a,b".to_owned()];
    let issue = Kind::Issue { title_prefix: String::new(), labels: labels(), choose: Vec::new() };
    let added = Kind::Labels { add: labels(), remove: Vec::new() };
    let mut change = pull_request(false);
    if let Kind::PullRequest { labels: of_it, .. } = &mut change {
        *of_it = labels();
    }
    let text = json!({ "title": "t", "body": "b" });
    for setup in [
        on_gitlab(Setup::of_pull_request(&base)).output("issue", issue, text.clone()),
        on_gitlab(Setup::of_pull_request(&base)).output("labels", added, json!({ "add": ["a,b"] })),
        on_gitlab(Setup::new()).output("docs", change, text).changes(&base, &patch),
    ] {
        let (status, code) = setup.first_status(&server);
        assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("`a,b` has a comma")), "{status:?}");
        assert_eq!(code, 1);
    }
    assert!(server.api().issues.values().all(|it| it["author"]["username"] != LOGIN));
}

#[test]
fn a_job_token_is_refused_with_the_token_that_is_needed() {
    let server = forge(Git::default(), "");
    let mut setup = on_gitlab(Setup::new()).comment("x");
    let variables = [("GITLAB_TOKEN", ""), ("CI_JOB_TOKEN", "secret-job-token")];
    setup.variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let error = setup.publish(&server).unwrap_err();
    assert!(error.to_string().contains("CI_JOB_TOKEN can't write notes"), "{error}");
    assert!(error.hint().unwrap().contains("GITLAB_TOKEN") && error.exit_code() == 5);
    assert_eq!(server.log().len(), 0);
}

#[test]
fn a_comment_with_the_mark_of_another_user_is_not_believed() {
    let server = forge(Git::default(), "");
    let setup = on_gitlab(Setup::new()).comment("x");
    setup.publish_all(&server);
    for note in &mut server.api().notes {
        note["author"]["username"] = json!("mallory");
    }
    std::fs::remove_file(&setup.state).unwrap();
    let (status, _) = setup.first_status(&server);
    assert!(matches!(status, EntryStatus::Done { .. }));
    assert_eq!(server.api().own_notes().len(), 1);
    assert_eq!(server.api().violations, [""; 0]);
}

#[test]
fn the_description_of_the_api_refuses_what_gitlab_refuses() {
    let mut api = Gitlab::new(Git::default());
    let mut violations = |method: &str, path: &str, query: &[(&str, &str)], body: serde_json::Value| {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = ForgeRequest { method: method.to_owned(), path: path.to_owned(), query, body, has_token: true };
        api.answer(&request);
        std::mem::take(&mut api.violations)
    };
    let notes = "/projects/g%2Fr/issues/3/notes";
    assert_eq!(violations("POST", notes, &[], json!({ "body": "x" })), [""; 0]);
    assert_eq!(violations("POST", notes, &[], json!({ "text": "x" })).len(), 2, "`body` is missing, `text` is unknown");
    assert_eq!(violations("GET", notes, &[("per_page", "500")], json!(null)).len(), 1);
    assert_eq!(violations("PATCH", notes, &[], json!({ "body": "x" })).len(), 1, "no such operation");
    let commit = |action| json!({ "branch": "b", "commit_message": "m", "actions": [action] });
    let commits = "/projects/g%2Fr/repository/commits";
    let chmod = json!({ "action": "chmod", "file_path": "run.sh", "mode": "100755" });
    assert!(!violations("POST", commits, &[], commit(chmod)).is_empty());
}
