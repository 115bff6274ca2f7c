//! Tools of other programs, and their rules.

use super::key_aliases::fold_key;
use crate::tools::TOOLS;
use crate::yaml::{self, Node};

/// The tools, each with tools of other programs: those that are certainly the same, and those that may be.
const TOOL_ALIASES: &[(&str, &[&str], &[&str])] = &[
    (
        "bash",
        &["shell"],
        &[
            "execute",
            "run_command",
            "terminal",
            "run_shell_command",
            "execute_command",
            "run_terminal_cmd",
            "run_terminal_command",
            "run_in_terminal",
            "local_shell",
            "shell_command",
            "shell_tool",
            "exec",
            "exec_command",
            "execute_bash",
            "execute_shell",
            "run_bash",
            "run_shell",
            "bash_tool",
            "bash_command",
            "powershell",
            "python",
            "code_interpreter",
            "execute_code",
            "execute_ipython_cell",
            "execute_bash_cmd",
            "container.exec",
            "unified_exec",
            "run_commands",
            "batch",
            "git",
        ],
    ),
    (
        "edit_file",
        &["edit", "multiedit", "str_replace", "file_edit"],
        &[
            "notebookedit",
            "str_replace_based_edit_tool",
            "str_replace_editor",
            "apply_patch",
            "apply_diff",
            "patch",
            "replace",
            "search_replace",
            "replace_in_file",
            "replace_string_in_file",
            "edit_block",
            "text_editor",
            "insert_edit_into_file",
            "update_file",
            "fs_write",
            "file_editor",
            "insert",
            "undo_edit",
            "reapply",
            "insert_content",
            "search_and_replace",
            "multi_replace_string_in_file",
            "edit_notebook",
        ],
    ),
    (
        "glob",
        &[],
        &[
            "find",
            "ls",
            "list_files",
            "list",
            "list_directory",
            "list_dir",
            "find_files",
            "file_search",
            "glob_file_search",
            "directory_tree",
            "tree",
        ],
    ),
    (
        "grep",
        &["rg", "ripgrep"],
        &[
            "search",
            "search_files",
            "search_file_content",
            "grep_search",
            "codebase_search",
            "search_text",
            "search_code",
            "search_files_content",
            "grep_files",
        ],
    ),
    (
        "read_file",
        &["read", "view"],
        &[
            "cat",
            "view_file",
            "open_file",
            "open",
            "get_file",
            "fs_read",
            "read_many_files",
            "read_text_file",
            "read_multiple_files",
            "notebookread",
        ],
    ),
    (
        "task",
        &[],
        &[
            "agent",
            "subagent",
            "subagents",
            "delegate",
            "delegate_task",
            "dispatch_agent",
            "spawn_agent",
            "run_agent",
            "run_subagent",
            "transfer_task",
            "handoff",
            "new_task",
            "task_create",
            "call_agent",
            "delegate_to_agent",
            "transfer_to_agent",
            "subagent__execute_task",
            "dynamic_task__create_task",
            "use_subagents",
            "multi_agent",
            "generalist",
        ],
    ),
    (
        "todo",
        &["todo_write", "todowrite"],
        &[
            "todo_read",
            "update_plan",
            "manage_todo_list",
            "update_todos",
            "write_todos",
            "plan",
            "create_plan",
            "task_tracker",
            "task_update",
            "tracker_create_task",
            "todos",
            "update_todo",
            "update_todo_list",
            "todo__todo_write",
            "tracker_update_task",
            "tracker_list_tasks",
        ],
    ),
    ("write_file", &["create_file", "write"], &["write_to_file", "create", "save_file", "new_file"]),
];

/// The tool that a name in another program refers to, and whether the match is certain.
pub(super) fn tool_for_alias(name: &str) -> Option<(&'static str, bool)> {
    let folded = fold_key(name);
    let is_named = |names: &[&str]| names.iter().any(|alias| fold_key(alias) == folded);
    let alias = TOOL_ALIASES.iter().find_map(|(here, certain, uncertain)| {
        let is_certain = is_named(certain);
        (is_certain || is_named(uncertain)).then_some((*here, is_certain))
    });
    let lower = name.to_lowercase();
    alias.or_else(|| TOOLS.iter().find(|tool| tool.name == lower).map(|tool| (tool.name, true)))
}

/// Splits `Name(rule)`.
pub(super) fn split_rule(written: &str) -> (&str, Option<&str>) {
    match written.split_once('(') {
        Some((name, rule)) => {
            let rule = rule.trim_end();
            (name.trim_end(), Some(rule.strip_suffix(')').unwrap_or(rule).trim()))
        }
        None => (written, None),
    }
}

/// Converts another program's rules for commands, such as `git diff:*`, to an entry of an allowlist, if possible. Without
/// rules, or with one that allows everything, it is `bash` alone.
pub(super) fn bash_entry(rules: &[&str]) -> Option<String> {
    if rules.iter().all(|rule| matches!(*rule, "" | "*" | ":*")) {
        return Some("bash".to_owned());
    }
    // A JSON string is a string in double quotes in YAML, too.
    let rules = rules.iter().map(|rule| serde_json::Value::from(rule.replace(":*", " *")).to_string());
    let rules: Vec<String> = rules.collect();
    let options = format!("{{ allow: [{}] }}", rules.join(", "));
    let source = crate::diagnostic::Source::new("entry", options.as_str());
    let node = yaml::read::<Node>(&source).into_result().ok()?;
    let bash = TOOLS.iter().find(|tool| tool.starts_commands)?;
    (bash.parse_options)(Some(&node)).into_result().ok()?;
    Some(format!("bash: {options}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_converted() {
        for (rules, entry) in [
            (&["git diff:*"][..], Some("bash: { allow: [\"git diff *\"] }")),
            (&["git status", "npm run test:*"], Some("bash: { allow: [\"git status\", \"npm run test *\"] }")),
            (&["*"], Some("bash")),
            (&[""], Some("bash")),
            (&["npm run test*"], None),
            (&["echo $HOME"], None),
            (&["a && b"], None),
        ] {
            assert_eq!(bash_entry(rules).as_deref(), entry, "{rules:?}");
        }
    }

    #[test]
    fn aliases_refer_to_existing_tools() {
        for (here, ..) in TOOL_ALIASES {
            assert!(TOOLS.iter().any(|tool| tool.name == *here), "{here}");
        }
        assert_eq!(tool_for_alias("Read"), Some(("read_file", true)));
        assert_eq!(tool_for_alias("Grep"), Some(("grep", true)));
        assert_eq!(tool_for_alias("LS"), Some(("glob", false)));
        assert_eq!(tool_for_alias("Bash"), Some(("bash", true)));
    }
}
