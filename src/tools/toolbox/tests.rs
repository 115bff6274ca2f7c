use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;

/// A tool without options.
pub(in crate::tools) fn grant(name: &str) -> ToolGrant {
    ToolGrant { name: name.into(), options: Value::Null }
}

/// A workspace with an agent in it.
pub(in crate::tools) struct ToolHarness {
    pub(in crate::tools) toolbox: Toolbox,
    pub(in crate::tools) folder: TempDir,
    pub(in crate::tools) limits: CallLimits,
}

impl ToolHarness {
    pub(in crate::tools) fn new(tools: &[&str]) -> Self {
        let grants: Vec<_> = tools.iter().map(|name| grant(name)).collect();
        Self::with(&grants, &[])
    }

    pub(in crate::tools) fn with(grants: &[ToolGrant], secrets: &[(String, String)]) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("ws")).unwrap();
        Self::open(grants, secrets, folder, "ws")
    }

    /// With a subfolder of a given folder as the workspace.
    pub(in crate::tools) fn at(tools: &[&str], folder: TempDir, root: &str) -> Self {
        let grants: Vec<_> = tools.iter().map(|name| grant(name)).collect();
        Self::open(&grants, &[], folder, root)
    }

    /// The same workspace at the start of another run.
    pub(in crate::tools) fn reopened(self) -> Self {
        let names: Vec<String> = self.toolbox.specs().into_iter().map(|spec| spec.name).collect();
        Self::at(&names.iter().map(String::as_str).collect::<Vec<_>>(), self.folder, "ws")
    }

    fn open(grants: &[ToolGrant], secrets: &[(String, String)], folder: TempDir, root: &str) -> Self {
        let root = folder.path().join(root);
        let protected = ["job.yaml", "prompts", "runs"].map(|name| root.join(name)).to_vec();
        let workspace = Workspace::open(&root, protected, vec![root.join("runs")]).unwrap();
        let deps = ToolDeps {
            workspace: Arc::new(workspace),
            redactor: Arc::new(Redactor::new(secrets).0),
            environment: Arc::new(Environment::new(&BTreeMap::new(), &[], secrets)),
            sandbox: Arc::new(Sandbox::off()),
            egress: None,
            servers: None,
            files: None,
        };
        let toolbox = Toolbox::new(grants, deps).unwrap();
        let limits = CallLimits {
            deadline: crate::process::RunDeadline::after(Duration::from_secs(60)),
            cancel: CancellationToken::new(),
        };
        Self { toolbox, folder, limits }
    }

    pub(in crate::tools) fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("ws").join(path)
    }

    pub(in crate::tools) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(in crate::tools) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub(in crate::tools) async fn call(&self, tool: &str, input: &str) -> ToolResult {
        let input = RawValue::from_string(input.to_owned()).unwrap().into();
        let call = ToolCall { id: "call-1".into(), tool: tool.into(), input, input_error: None };
        self.toolbox.call(&call, self.limits.clone()).await.result
    }

    pub(in crate::tools) async fn ok(&self, tool: &str, input: &str) -> String {
        let result = self.call(tool, input).await;
        assert!(!result.is_error, "{}", result.text);
        result.text
    }

    pub(in crate::tools) async fn refused(&self, tool: &str, input: &str) -> String {
        let result = self.call(tool, input).await;
        assert!(result.is_error, "{}", result.text);
        result.text
    }
}

struct StubTool(fn() -> Result<String, ToolError>);

impl Tool for StubTool {
    fn name(&self) -> &str {
        "odd"
    }

    fn description(&self) -> String {
        String::new()
    }

    fn input_schema(&self) -> Value {
        json!({})
    }

    fn call<'a>(&'a self, _: &'a RawValue, _: &'a ToolContext<'a>) -> crate::tools::CallFuture<'a> {
        Box::pin(async move { (self.0)().map(Into::into) })
    }
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_available_ones() {
    let harness = ToolHarness::new(&["read_file", "glob"]);
    assert_eq!(
        harness.refused("ReadFile", "{}").await,
        "unknown tool `ReadFile` (did you mean `read_file`?); available tools: read_file, glob"
    );
    assert!(
        harness.refused("bash", r#"{"command": "true"}"#).await.starts_with("unknown tool `bash`; available tools:")
    );
    assert!(ToolHarness::new(&[]).refused("bash", "{}").await.contains("you have no tools"));
}

#[tokio::test]
async fn a_call_with_invalid_json_never_runs() {
    let harness = ToolHarness::new(&["bash"]);
    let input = RawValue::from_string(r#"{"command": "touch made"}"#.into()).unwrap().into();
    let call = ToolCall { id: "x".into(), tool: "bash".into(), input, input_error: Some("cut off".into()) };
    let result = harness.toolbox.call(&call, harness.limits.clone()).await.result;
    assert_eq!((result.is_error, result.text.as_str()), (true, "cut off"));
    assert_eq!(result.call_id, "x");
    assert!(!harness.path("made").exists());
}

#[tokio::test]
async fn a_panicking_tool_gives_an_error_result() {
    let mut harness = ToolHarness::new(&[]);
    harness.toolbox.add(Box::new(StubTool(|| panic!("a planted panic"))));
    assert_eq!(harness.refused("odd", "{}").await, "internal error: `odd` failed on this input");
}

#[tokio::test]
async fn results_are_redacted_before_they_are_truncated() {
    let secrets = [("key".to_owned(), "hunter2-hunter2".to_owned())];
    let mut harness = ToolHarness::with(&[], &secrets);
    harness.toolbox.add(Box::new(StubTool(|| Ok("hunter2-hunter2 ".repeat(10_000)))));
    let text = harness.ok("odd", "{}").await;
    assert!(text.starts_with("[masked:key] [masked:key]") && text.contains("characters left out"));
    assert!(!text.contains("hunter2") && text.chars().count() <= MAX_RESULT_CHARS);
}

#[test]
fn an_added_tool_replaces_one_with_the_same_name() {
    let mut harness = ToolHarness::new(&["task", "glob"]);
    harness.toolbox.add(Box::new(crate::tools::task::Task::new([
        ("explorer".into(), "Reads code".into()),
        ("writer".into(), String::new()),
    ])));
    let specs = harness.toolbox.specs();
    assert_eq!(specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["task", "glob"]);
    assert!(specs[0].description.ends_with("\n- explorer: Reads code\n- writer"));
    assert_eq!(specs[0].input_schema["properties"]["agent"]["enum"], json!(["explorer", "writer"]));
}

#[test]
fn a_grant_of_an_unknown_tool_is_an_error() {
    let workspace = Arc::new(Workspace::open(Path::new("."), Vec::new(), Vec::new()).unwrap());
    let grant = ToolGrant { name: "nope".into(), options: Value::Null };
    let sandbox = Arc::new(Sandbox::off());
    let deps = ToolDeps {
        workspace,
        redactor: Arc::default(),
        environment: Arc::default(),
        sandbox,
        egress: None,
        servers: None,
        files: None,
    };
    let error = Toolbox::new(&[grant], deps).err();
    assert_eq!(error.as_deref(), Some("unknown tool `nope`"));
}

#[test]
fn every_schema_is_a_plain_object_that_validators_accept() {
    let names: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
    for spec in ToolHarness::new(&names).toolbox.specs() {
        assert_eq!(spec.input_schema["type"], "object", "{}", spec.name);
        assert_eq!(spec.input_schema["additionalProperties"], false, "{}", spec.name);
        let text = spec.input_schema.to_string();
        for clutter in ["$schema", "$defs", "$ref", "title", "format", "null", "anyOf", "oneOf"] {
            assert!(!text.contains(&format!("\"{clutter}\"")), "{} holds {clutter}: {text}", spec.name);
        }
        jsonschema::validator_for(&spec.input_schema).unwrap();
        assert!(spec.description.len() > 40, "{}", spec.name);
    }
}

#[test]
fn the_table_and_the_tools_agree() {
    for builtin in TOOLS {
        let tool = (builtin.build)(&Value::Null).unwrap();
        assert_eq!((tool.name(), tool.reads_only()), (builtin.name, builtin.reads_only));
        let decoded = (builtin.parse_options)(None);
        assert!(decoded.findings.is_empty());
        (builtin.build)(&decoded.value.unwrap()).unwrap();
    }
}

#[tokio::test]
async fn the_state_of_earlier_calls_is_restored() {
    let harness = ToolHarness::new(&["todo", "read_file", "edit_file"]);
    harness.write("a.txt", "old\n");
    let call = |tool: &str, input: Value| ToolCall {
        id: "call-1".into(),
        tool: tool.into(),
        input: serde_json::value::to_raw_value(&input).unwrap().into(),
        input_error: None,
    };
    let plan = |text: &str| call("todo", json!({ "items": [{ "text": text, "status": "pending" }] }));
    let read = call("read_file", json!({ "path": "./a.txt" }));
    let CallOutcome { result: shown, file_version: seen, .. } =
        harness.toolbox.call(&read, harness.limits.clone()).await;
    let seen = seen.unwrap();
    assert_eq!(seen.path, "a.txt");
    assert_eq!(seen.sha256, "01d09d19c2139a46aebfb577780d123d7396e97201bc7ead210a2ebff8239dee");
    let CallOutcome { result: planned, file_version: nothing, .. } =
        harness.toolbox.call(&plan("look"), harness.limits.clone()).await;
    assert_eq!(nothing, None, "a call that saw no file");
    let refused = harness.toolbox.call(&plan(" "), harness.limits.clone()).await.result;

    let later = ToolHarness::new(&["todo", "read_file", "edit_file"]);
    later.write("a.txt", "old, changed\n");
    later.toolbox.restore_state(&read, &shown, Some(&seen));
    later.toolbox.restore_state(&plan("look"), &planned, None);
    later.toolbox.restore_state(&plan(" "), &refused, None);
    assert_eq!(later.toolbox.plan(), "[ ] look");
    let edit = r#"{"path": "a.txt", "old_text": "old", "new_text": "new"}"#;
    assert!(later.refused("edit_file", edit).await.contains("read it again"));
    later.write("a.txt", "old\n");
    later.ok("edit_file", edit).await;
}
