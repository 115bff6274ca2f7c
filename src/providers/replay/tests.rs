use std::collections::BTreeMap;

use super::*;
use crate::diagnostic::Source;
use crate::message::{StopReason, Usage, UserMessage};
use crate::providers::ProviderErrorKind;
use crate::providers::{Model, Retry};
use crate::redaction::Redactor;
use crate::running_clock::RunningInstant;

const TOUR: &str = r#"
parent:
  - calls:
      - { tool: glob, input: { pattern: "**/*.toml", deep: [1, 2.5, null] } }
      - tool: todo
    text: I look first.
    usage: { input_tokens: 10, output_tokens: 3 }
  - { text: "", stop: max_tokens }
  - thinking: Hm.
    calls: [{ tool: bash, input: { command: "true" } }]
subagents:
  explorer-1:
    - text: cargo nextest
"#;

struct IgnoringObserver;

impl StreamObserver for IgnoringObserver {
    fn on_retry(&self, _: &Retry) {}
}

fn open(script: &Arc<Script>, agent: &str) -> Box<dyn Conversation> {
    let connect = ConnectContext {
        providers: crate::providers::PROVIDERS,
        env: &|_| None,
        server: None,
        settings: None,
        script: Some(script.clone()),
        user_agent: "",
        redactor: &Redactor::default(),
    };
    let model = Model::new("replay", "tour.script.yaml");
    let setup = ConversationConfig {
        agent: agent.to_owned(),
        model,
        system: "abc".to_owned(),
        tools: Vec::new(),
        caches_for_hour: false,
    };
    (SPEC.connect)(&connect).unwrap().open(setup).unwrap()
}

fn tour() -> Arc<Script> {
    Arc::new(Script::read(&Source::new("tour.script.yaml", TOUR)).unwrap())
}

fn ask(conversation: &mut dyn Conversation, seen: &IgnoringObserver) -> Result<Reply, ProviderError> {
    let ask = ReplyRequest {
        max_tokens: 1,
        tools_allowed: true,
        requires_content: true,
        deadline: RunningInstant::now(),
        has_fallback: false,
    };
    let answer = conversation.ask(ask, seen);
    futures_util::FutureExt::now_or_never(answer).unwrap()
}

#[test]
fn replies_come_in_order_and_end() {
    let script = tour();
    let seen = IgnoringObserver;
    let mut parent = open(&script, "parent");
    let first = ask(&mut *parent, &seen).unwrap();
    assert_eq!(first.text(), "I look first.");
    let calls: Vec<_> = first.tool_calls().map(|call| (&*call.id, &*call.tool, call.input.get())).collect();
    assert_eq!(calls, [("call-1", "glob", r#"{"pattern":"**/*.toml","deep":[1,2.5,null]}"#), ("call-2", "todo", "{}")]);
    assert_eq!(first.stop, StopReason::ToolUse);
    assert_eq!(first.usage, Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() });
    assert_eq!(ask(&mut *parent, &seen).unwrap().stop, StopReason::MaxTokens);
    let third = ask(&mut *parent, &seen).unwrap();
    assert_eq!(third.tool_calls().next().unwrap().id, "call-3");
    let fault = ask(&mut *parent, &seen).unwrap_err();
    assert_eq!(fault.kind, ProviderErrorKind::Differs);
    assert_eq!(fault.message, "tour.script.yaml:3:3 has no reply 4 for the agent parent");
    assert_eq!(fault.hint.unwrap(), "add one to the list `parent`");
    let given = |parent: usize, explorer: usize| {
        move |agent: &str| match agent {
            "parent" => parent,
            "explorer-1" => explorer,
            _ => 0,
        }
    };
    let left = script.unused(given(3, 0));
    assert_eq!(left.len(), 1);
    let UnusedReplies { agent, consumed: asked, total, place } = &left[0];
    assert_eq!((agent.as_str(), *asked, *total, place.as_str()), ("explorer-1", 0, 1, "tour.script.yaml:13:7"));
    let unused = script.unused_replies_error(given(1, 1)).unwrap();
    let expected = "tour.script.yaml:8:5: the run ended after the agent parent used 1 of 3 replies";
    assert_eq!((unused.kind, unused.message.as_str()), (ProviderErrorKind::Differs, expected));
    assert!(script.unused_replies_error(given(0, 0)).unwrap().message.contains("requested a reply; other agents"));
    let fault = ask(&mut *open(&script, "explorer-2"), &seen).unwrap_err();
    assert_eq!(fault.message, "tour.script.yaml has no reply 1 for the agent explorer-2");
    assert_eq!(fault.hint.unwrap(), "add a list `explorer-2` below `subagents`");
    ask(&mut *open(&script, "explorer-1"), &seen).unwrap();
    assert!(script.unused(given(3, 1)).is_empty() && script.unused_replies_error(given(3, 1)).is_none());
}

#[test]
fn a_resumed_conversation_continues_at_the_same_reply() {
    let script = tour();
    let seen = IgnoringObserver;
    let mut before = open(&script, "parent");
    let first = ask(&mut *before, &seen).unwrap();
    let mut after = open(&script, "parent");
    after.push(&Message::User(UserMessage::text("go")));
    after.push(&Message::Assistant(first));
    after.push(&Message::User(UserMessage::text("on")));
    assert_eq!(ask(&mut *after, &seen).unwrap().stop, StopReason::MaxTokens);
    assert!(after.prompt_bytes() > before.prompt_bytes());
}

#[test]
fn a_record_gives_the_recorded_replies() {
    let mut reply = tour().reply("parent", 0).unwrap();
    reply.request_id = Some("req_1".to_owned());
    let list = AgentReplies {
        replies: vec![(reply, "events.jsonl:4".to_owned())],
        place: "the record".to_owned(),
        summaries: BTreeMap::new(),
    };
    let record = BTreeMap::from([("parent".to_owned(), list)]);
    let script = Arc::new(Script {
        name: "the record".to_owned(),
        is_recorded: true,
        agents: record,
        workspace: None,
        servers: BTreeMap::new(),
        answers: BTreeMap::new(),
    });
    let mut parent = open(&script, "parent");
    assert_eq!(ask(&mut *parent, &IgnoringObserver).unwrap().request_id.as_deref(), Some("req_1"));
    let fault = ask(&mut *parent, &IgnoringObserver).unwrap_err();
    assert_eq!(fault.message, "the record has no reply 2 for the agent parent");
    assert_eq!(fault.hint.unwrap(), "the run differs from the recorded one");
}

#[test]
fn mistakes_in_a_script_are_found_with_their_positions() {
    let text = "parent:\n  - {}\n  - calls: [{ tool: glob, input: [1] }, { input: {} }]\n  - txt: x\nsubagents:\n  \
                parent: []\n  a-1: [{ text: x, stop: tired }]\n";
    let found = Script::read(&Source::new("bad.script.yaml", text)).unwrap_err();
    let found: Vec<_> = found.iter().map(|found| (found.span.start(), found.code)).collect();
    let expected = [
        ((2, 5), "empty-reply"),
        ((3, 34), "wrong-type"),
        ((3, 41), "missing-key"),
        ((4, 5), "unknown-key"),
        ((6, 3), "invalid-value"),
        ((7, 26), "unknown-value"),
    ];
    for expected in expected {
        assert!(found.contains(&expected), "{expected:?} in {found:?}");
    }
}
