//! Forges that fail, lie, and never end.

use legwork::outputs::Branch;
use legwork::publish::EntryStatus;
use serde_json::json;

use super::engine::{Setup, changed_folder, pull_request};
use crate::support::forge::git::Git;
use crate::support::forge::github::Github;
use crate::support::forge::{Fault, ForgeAnswer, ForgeServer, TOKEN};

const COMMENTS: &str = "POST /repos/o/r/issues/3/comments";

fn github() -> ForgeServer<Github> {
    ForgeServer::start(Github::new(Git::default()))
}

fn text(status: u16, body: &str) -> ForgeAnswer {
    ForgeAnswer { status, headers: Vec::new(), body: body.to_owned() }
}

/// Answers after which nobody knows what happened.
fn unclear_answers() -> Vec<Fault> {
    let bodies =
        ["", "<html><body>Sign in</body></html>", "{\"id\": 12, \"html_u", "null", "[]", "{}", "{\"id\":1e400}"];
    let ids = ["{\"id\":-1}", "{\"id\":99999999999999999999999}", "{\"id\":\"7\"}"];
    let bodies = bodies.iter().chain(&ids).map(|body| Fault::After(text(201, body)));
    let errors = [500, 502, 503, 504, 408].map(|status| Fault::After(text(status, "<html>Unicorn!</html>")));
    let nothing = [500, 503].map(|status| Fault::Instead(text(status, "")));
    bodies.chain(errors).chain(nothing).chain([Fault::Drop, Fault::Refuse]).collect()
}

#[test]
fn after_an_unclear_answer_the_mark_is_looked_up_before_a_retry() {
    for fault in unclear_answers() {
        let server = github();
        server.fail(COMMENTS, 1, fault.clone());
        Setup::new().comment("x").publish_all(&server);
        assert_eq!(server.api().own_comments().len(), 1, "{fault:?}");
        let order: Vec<String> = server.log().iter().map(|request| request.method.clone()).collect();
        assert_eq!(order[..3], ["GET", "POST", "GET"], "{fault:?}");
    }
}

#[test]
fn a_forge_that_stays_unclear_can_be_tried_again() {
    for fault in unclear_answers() {
        let server = github();
        let has_effect = !matches!(fault, Fault::Instead(_) | Fault::Refuse);
        server.fail(COMMENTS, 99, fault.clone()).fail("GET /repos/o/r/issues/3/comments", 99, Fault::Refuse);
        let setup = Setup::new().comment("x");
        let (status, code) = setup.first_status(&server);
        assert!(matches!(status, EntryStatus::Later(_)), "{fault:?}: {status:?}");
        assert_eq!((code, server.api().own_comments().len()), (75, 0), "it didn't look, so it didn't write");
        let server = github();
        server.fail(COMMENTS, 99, fault.clone());
        let (status, code) = setup.first_status(&server);
        match has_effect {
            true => assert!(matches!(status, EntryStatus::Done { .. }), "{fault:?}: {status:?}"),
            false => assert_eq!(code, 75, "{fault:?}: {status:?}"),
        }
        assert!(server.api().own_comments().len() <= 1);
    }
}

#[test]
fn a_short_rate_limit_is_waited_for_and_a_long_one_is_not() {
    let limit = |seconds: &str| {
        let message = "You have exceeded a secondary rate limit";
        Fault::Instead(ForgeAnswer::error(403, message).header("retry-after", seconds))
    };
    let server = github();
    server.fail(COMMENTS, 2, limit("0"));
    Setup::new().comment("x").publish_all(&server);
    for fault in [
        limit("121"),
        limit("99999999999"),
        Fault::Instead(ForgeAnswer::error(429, "slow down").header("retry-after", "3600")),
        Fault::Instead(
            ForgeAnswer::error(403, "API rate limit exceeded")
                .header("x-ratelimit-remaining", "0")
                .header("x-ratelimit-reset", "99999999999"),
        ),
    ] {
        let server = github();
        server.fail(COMMENTS, 1, fault);
        let setup = Setup::new().comment("x");
        let (status, code) = setup.first_status(&server);
        assert!(matches!(&status, EntryStatus::Later(why) if why.contains("rate limit")), "{status:?}");
        assert_eq!(code, 75);
        setup.publish_all(&server);
        assert_eq!(server.api().own_comments().len(), 1);
    }
}

#[test]
fn a_missing_permission_is_named() {
    let forbidden = || Fault::Instead(ForgeAnswer::error(403, "Resource not accessible by integration"));
    let server = github();
    server.fail(COMMENTS, 9, forbidden());
    let (status, code) = Setup::new().comment("x").first_status(&server);
    assert!(matches!(&status, EntryStatus::Forbidden(why) if why.contains("`issues: write`")), "{status:?}");
    assert_eq!(code, 5);
    let server = github();
    server.fail("GET /user", 9, forbidden());
    let mut setup = Setup::new().comment("x");
    setup.login = None;
    let error = setup.publish(&server).unwrap_err();
    assert!(error.to_string().contains("--login NAME") && error.exit_code() == 5, "{error}");
    setup.variables = [("GITHUB_ACTIONS".to_owned(), "true".to_owned())].into();
    server.api().add_comment(3, "github-actions[bot]", "x");
    setup.publish_all(&server);
    let server = github();
    setup.variables = [("GITHUB_TOKEN".to_owned(), "wrong".to_owned())].into();
    let error = setup.publish(&server).unwrap_err();
    assert!(error.to_string().contains("isn't accepted") && error.exit_code() == 5, "{error}");
    assert!(!error.to_string().contains("--login"), "{error}");
    setup.variables.insert("GITHUB_ACTIONS".to_owned(), "true".to_owned());
    let error = setup.publish(&server).unwrap_err();
    assert!(error.to_string().contains("isn't accepted"), "nothing else is asked for: {error}");
    server.fail("GET /user", 99, Fault::Instead(text(500, "")));
    setup.variables = [].into();
    let error = setup.publish(&server).unwrap_err();
    assert_eq!(
        (error.exit_code(), error.hint().as_deref()),
        (75, Some("Nothing was published. Repeat the command later."))
    );
    setup.variables = [("GITHUB_TOKEN".to_owned(), String::new())].into();
    let error = setup.publish(&server).unwrap_err();
    assert_eq!((error.to_string(), error.exit_code()), ("there is no token for GitHub".to_owned(), 5));
}

#[test]
fn what_a_forge_refuses_is_reported_in_its_words() {
    let server = github();
    let answer =
        json!({ "message": "Validation Failed", "errors": [{ "message": "body is\u{202e} too \u{1b}[31mlong" }] });
    server.fail(COMMENTS, 1, Fault::Instead(ForgeAnswer::json(422, &answer)));
    let setup = Setup::new().comment("x");
    let (status, code) = setup.first_status(&server);
    let EntryStatus::Refused(why) = &status else { panic!("{status:?}") };
    assert!(why.contains("422") && why.contains("Validation Failed: body is"), "{why}");
    assert!(!why.contains(['\u{202e}', '\u{1b}']), "{why:?}");
    assert_eq!(code, 1);
    let mut gone = Setup::new().comment("x");
    gone.trigger.number = Some(99);
    let (status, _) = gone.first_status(&server);
    assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("o/r has no #99")), "{status:?}");
}

#[test]
fn a_redirect_never_gets_the_token() {
    let other = github();
    for matches in [COMMENTS, "GET /repos/o/r/issues/3/comments"] {
        for status in [301, 302, 307, 308] {
            let server = github();
            let target = format!("{}/repos/o/r/issues/3/comments", other.url());
            server.fail(matches, 9, Fault::Instead(text(status, "").header("location", &target)));
            let (status, code) = Setup::new().comment("x").first_status(&server);
            assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("another server")), "{status:?}");
            assert_eq!((code, server.api().own_comments().len()), (1, 0));
        }
    }
    assert_eq!(other.log().len(), 0);
    let server = github();
    let moved = text(307, "").header("location", "/repos/o/r/issues/3/comments?moved=1");
    server.fail(COMMENTS, 1, Fault::Instead(moved));
    Setup::new().comment("x").publish_all(&server);
    let server = github();
    let circle = text(307, "").header("location", "/repos/o/r/issues/3/comments");
    server.fail(COMMENTS, 99, Fault::Instead(circle));
    assert_eq!(Setup::new().comment("x").first_status(&server).1, 1);
    assert!(server.log().len() < 10);
}

#[test]
fn the_token_is_never_shown() {
    let server = github();
    server.fail(COMMENTS, 1, Fault::Instead(ForgeAnswer::error(422, &format!("bad header: Bearer {TOKEN}"))));
    let setup = Setup::new().comment("x");
    let (status, _) = setup.first_status(&server);
    assert!(!format!("{status:?}").contains(TOKEN), "{status:?}");
    assert!(!std::fs::read_to_string(&setup.state).unwrap().contains(TOKEN));
}

#[test]
fn lists_end() {
    let server = github();
    let items: Vec<_> = (0..100).map(|id| json!({ "id": id, "body": "x", "user": null })).collect();
    let endless = ForgeAnswer::json(200, &json!(items)).header("link", "<http://x/?page=2>; rel=\"next\"");
    server.fail("GET /repos/o/r/issues/3/comments", usize::MAX, Fault::Instead(endless));
    let (status, code) = Setup::new().comment("x").first_status(&server);
    assert!(matches!(&status, EntryStatus::Refused(why) if why.contains("more than 300 pages")), "{status:?}");
    assert_eq!((code, server.writes().len()), (1, 0));
}

#[test]
fn an_answer_without_end_is_cut_off() {
    let server = github();
    let long = format!("[{}1]", " ".repeat(70 << 20));
    server.fail("GET /repos/o/r/issues/3/comments", 1, Fault::Instead(text(200, &long)));
    Setup::new().comment("x").publish_all(&server);
    assert_eq!(server.api().own_comments().len(), 1);
}

#[test]
fn stale_and_taken_branches_are_refused() {
    let (folder, base, patch) = changed_folder();
    for (matches, status) in
        [("POST /repos/o/r/git/refs", 409), ("POST /repos/o/r/git/refs", 422), ("POST /repos/o/r/pulls", 422)]
    {
        let server = ForgeServer::start(Github::new(Git::of(&folder, "main")));
        server.fail(matches, 99, Fault::Instead(ForgeAnswer::error(status, "Reference update failed")));
        let data = json!({ "title": "t", "body": "b" });
        let setup =
            Setup::new().output("docs", pull_request(false), data).changes(&base, &patch).comment("announces it");
        let report = setup.publish(&server).unwrap();
        assert!(matches!(&report.entries[0].status, EntryStatus::Refused(_)), "{report:?}");
        assert!(matches!(&report.entries[1].status, EntryStatus::Waiting(_)), "{report:?}");
        assert_eq!((report.exit_code(), server.api().own_comments().len()), (1, 0));
    }
}

#[test]
fn a_fork_is_told_of_the_second_workflow() {
    let server = github();
    server.api().add_pull(7, "feature", &"c".repeat(40), "mallory/r");
    server.fail("POST ", 9, Fault::Instead(ForgeAnswer::error(403, "Resource not accessible by integration")));
    let mut setup = Setup::of_pull_request(&"c".repeat(40)).comment("x");
    let (name, sha) = ("feature".to_owned(), "c".repeat(40));
    setup.trigger.head = Some(Branch { name, sha, repository: Some("mallory/r".to_owned()) });
    setup.variables = [("GITHUB_EVENT_NAME".to_owned(), "pull_request".to_owned())].into();
    let (status, code) = setup.first_status(&server);
    assert!(matches!(&status, EntryStatus::Forbidden(why) if why.contains("`workflow_run`")), "{status:?}");
    assert_eq!(code, 5);
}

#[test]
fn twenty_publishers_of_one_record_publish_each_output_once() {
    let server = github();
    let setup = Setup::new().comment("one").comment("two");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| match setup.publish(&server) {
                Ok(report) => assert_eq!(report.exit_code(), 0),
                Err(error) => assert_eq!(error.exit_code(), 75, "{error}"),
            });
        }
    });
    setup.publish_all(&server);
    assert_eq!(server.api().own_comments().len(), 2);
}
