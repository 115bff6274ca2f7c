use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::outputs::trigger::Branch;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn variables(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn of_text(text: &[u8], list: &[(&str, &str)]) -> Result<Trigger, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("event.json");
    fs::write(&file, text).unwrap();
    let variables = variables(list);
    let query = TriggerQuery { event: Some(&file), forge: None, number: None, variables: &variables };
    query.trigger().map(Option::unwrap).map_err(|error| error.to_string())
}

fn of_event(event: &Value) -> Trigger {
    of_text(event.to_string().as_bytes(), &[]).unwrap()
}

fn repository() -> Value {
    json!({ "full_name": "o/r", "html_url": "https://github.com/o/r" })
}

fn pull(head_repository: &Value) -> Value {
    json!({
        "number": 7,
        "head": { "ref": "feature", "sha": A, "repo": head_repository },
        "base": { "ref": "main", "sha": B, "repo": { "full_name": "o/r" } },
    })
}

#[test]
fn a_trigger_is_written_as_an_event_that_is_read_as_the_same() {
    let own = json!({ "full_name": "o/r" });
    let events = [
        json!({ "repository": repository(), "issue": { "number": 3 } }),
        json!({ "repository": repository(), "issue": { "number": 3, "pull_request": {} } }),
        json!({ "repository": repository(), "pull_request": pull(&own) }),
        json!({ "repository": repository(), "pull_request": pull(&Value::Null) }),
        json!({ "repository": repository(), "ref": "refs/heads/main", "after": A }),
        json!({ "repository": repository(), "schedule": "0 1 * * *" }),
        json!({ "object_kind": "issue", "project": { "path_with_namespace": "g/s/r" }, "object_attributes": { "iid": 4 } }),
        json!({
            "object_kind": "merge_request", "project": { "path_with_namespace": "g/s/r" },
            "object_attributes": {
                "iid": 4, "source_branch": "f", "source": { "path_with_namespace": "x/r" }, "last_commit": { "id": A },
            },
        }),
        json!({ "object_kind": "push", "project": { "path_with_namespace": "g/r" }, "ref": "refs/heads/main", "after": A }),
        json!({ "object_kind": "pipeline", "project": { "path_with_namespace": "g/r" } }),
    ];
    for event in events {
        let trigger = of_event(&event);
        assert_eq!(of_event(&trigger.to_event()), trigger, "{event}");
    }
}

#[test]
fn events_of_github_name_their_subject() {
    let event = |name: &str, value: &Value| of_event(&json!({ "repository": repository(), name: value }));
    let found = event("issue", &json!({ "number": 3 }));
    assert_eq!((found.subject, found.number, &*found.server), (Subject::Issue, Some(3), "https://github.com"));
    let found = event("issue", &json!({ "number": 3, "pull_request": { "url": "x" } }));
    assert_eq!((found.subject, found.number, found.head), (Subject::PullRequest, Some(3), None));
    let found = event("pull_request", &pull(&json!({ "full_name": "o/r" })));
    assert_eq!((found.subject, found.number, found.is_fork()), (Subject::PullRequest, Some(7), false));
    assert!(event("pull_request", &pull(&json!({ "full_name": "mallory/r" }))).is_fork());
    assert!(event("pull_request", &pull(&Value::Null)).is_fork(), "a deleted fork is one, too");
    let found = event("schedule", &json!("0 0 * * *"));
    assert_eq!((found.subject, found.number), (Subject::Other, None));
    let push = json!({ "repository": repository(), "ref": "refs/heads/a/b", "after": A });
    let branch = Branch { name: "a/b".to_owned(), sha: A.to_owned(), repository: Some("o/r".to_owned()) };
    assert_eq!(of_event(&push).head, Some(branch));
    let deleted = json!({ "repository": repository(), "ref": "refs/heads/a", "after": "0".repeat(40) });
    assert_eq!(of_event(&deleted).head, None);
}

#[test]
fn a_workflow_run_names_its_one_pull_request() {
    let run = |pulls: &[Value]| {
        let head = json!({ "full_name": "mallory/r" });
        let run = json!({ "head_branch": "x", "head_sha": A, "head_repository": head, "pull_requests": pulls });
        of_event(&json!({ "repository": repository(), "workflow_run": run }))
    };
    let short = |number: u64, base: &str| {
        let repo = |name: &str| json!({ "id": 1, "name": "r", "url": format!("https://api.github.com/repos/{name}") });
        json!({ "number": number, "head": { "ref": "x", "sha": A, "repo": repo("o/r") }, "base": { "ref": "m", "sha": B, "repo": repo(base) } })
    };
    let found = run(&[short(7, "o/r"), short(8, "fork/r")]);
    assert_eq!((found.subject, found.number, found.is_fork()), (Subject::PullRequest, Some(7), false));
    assert_eq!(run(&[short(7, "o/r"), short(8, "o/r")]).number, None, "which one isn't known");
    let fork = run(&[]);
    assert!(fork.number.is_none() && fork.is_fork());
}

#[test]
fn a_given_number_replaces_that_of_the_event() {
    let set = [("GITHUB_REPOSITORY", "o/r")];
    let query = TriggerQuery { event: None, forge: None, number: Some(12), variables: &variables(&set) };
    let found = query.trigger().unwrap().unwrap();
    assert_eq!((found.number, found.subject), (Some(12), Subject::PullRequest));
}

#[test]
fn what_is_not_an_event_is_refused_with_its_place() {
    for (text, why) in [
        (&b""[..], "it is empty"),
        (b"<html>", "isn't a JSON object"),
        (b"[1]", "isn't a JSON object"),
        (b"{\"a\":", "is cut off at line 1, column 5"),
        (b"{}", "has no `repository`"),
        (b"{\"issue\":{\"number\":3}}", "has no `repository`"),
        (b"{\"repository\":{\"full_name\":\"o/r\"},\n\"issue\":{\"number\":\"3\"}}", "at line 2, column"),
        (b"{\"repository\":{\"full_name\":\"o/r\"},\"issue\":{\"number\":0}}", "0 isn't the number"),
        (b"{\"repository\":{\"full_name\":\"o/r\"},\"issue\":{\"number\":1e99}}", "another type"),
        (b"{\"repository\":{\"full_name\":\"o/../r\"}}", "isn't OWNER/NAME"),
        (b"{\"repository\":{\"full_name\":\"o/r\"},\"pull_request\":{\"number\":1,\"head\":{\"ref\":\"a b\",\"sha\":\"x\"}}}", "head branch"),
        (b"{\"object_kind\":\"issue\"}", "has no `project`"),
    ] {
        let error = of_text(text, &[("GITHUB_REPOSITORY", "o/r")]).unwrap_err();
        assert!(error.contains(why), "{}: {error}", String::from_utf8_lossy(text));
    }
    let nested = [vec![b'['; 200_000], vec![b']'; 200_000]].concat();
    let nested = [b"{\"repository\":".as_slice(), &nested, b"}"].concat();
    assert!(of_text(&nested, &[]).is_err(), "deep nesting is an error");
    let long = vec![b' '; usize::try_from(MAX_EVENT_BYTES).unwrap() + 1];
    assert!(of_text(&long, &[]).unwrap_err().contains("larger than 25 MB"));
    let variables = BTreeMap::new();
    let query = |event| TriggerQuery { event, forge: None, number: None, variables: &variables };
    assert!(query(None).trigger().unwrap().is_none());
    let error = query(Some(Path::new("/"))).trigger().unwrap_err();
    assert!(error.to_string().contains("can't be read"), "{error}");
}

#[test]
fn a_pipe_or_a_folder_in_the_place_of_an_event_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let none = BTreeMap::new();
    for (path, why) in [(pipe.as_path(), "can't be read: it isn't a regular file"), (folder.path(), "is a directory")] {
        let query = TriggerQuery { event: Some(path), forge: None, number: None, variables: &none };
        let error = query.trigger().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(query.event_text().is_err());
    }
}

#[test]
fn the_variables_of_gitlab_name_the_merge_request() {
    let set = [
        ("CI_PROJECT_PATH", "g/sub/r"),
        ("CI_SERVER_URL", "https://gitlab.example/"),
        ("CI_COMMIT_SHA", B),
        ("CI_COMMIT_BRANCH", "main"),
    ];
    let of = |list: &[(&str, &str)]| {
        let variables = variables(list);
        TriggerQuery { event: None, forge: None, number: None, variables: &variables }.trigger()
    };
    let found = of(&set).unwrap().unwrap();
    assert_eq!((&*found.repository, &*found.server), ("g/sub/r", "https://gitlab.example"));
    assert_eq!(found.head.as_ref().map(|head| &*head.name), Some("main"));
    let request = [
        ("CI_MERGE_REQUEST_IID", "4"),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "x"),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", A),
        ("CI_MERGE_REQUEST_SOURCE_PROJECT_PATH", "mallory/r"),
    ];
    let found = of(&[&set[..], &request].concat()).unwrap().unwrap();
    assert_eq!((found.subject, found.number, found.is_fork()), (Subject::PullRequest, Some(4), true));
    assert_eq!(found.head.unwrap().sha, A);
    let error = of(&[&set[..], &[("CI_MERGE_REQUEST_IID", "4x")]].concat()).unwrap_err();
    assert_eq!(error.to_string(), "CI_MERGE_REQUEST_IID is `4x`, which isn't the number of a merge request");
    let both = [&set[..], &[("GITHUB_REPOSITORY", "o/r")]].concat();
    assert!(matches!(of(&both), Err(TriggerError::BothForges)));
    let chosen = variables(&both);
    let query = TriggerQuery { event: None, forge: Some(Forge::Github), number: None, variables: &chosen };
    assert_eq!(query.trigger().unwrap().unwrap().repository, "o/r");
}

#[test]
fn webhooks_of_gitlab_name_their_subject() {
    let project = json!({ "path_with_namespace": "g/r" });
    let hook = json!({ "object_kind": "issue", "project": project, "object_attributes": { "iid": 9 } });
    assert_eq!((of_event(&hook).subject, of_event(&hook).number), (Subject::Issue, Some(9)));
    let request = json!({ "iid": 4, "source_branch": "x", "last_commit": { "id": A }, "source": project });
    let hook = json!({ "object_kind": "note", "project": project, "object_attributes": {}, "merge_request": request });
    let found = of_event(&hook);
    assert_eq!((found.subject, found.number, found.is_fork()), (Subject::PullRequest, Some(4), false));
}
