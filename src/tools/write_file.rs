//! `write_file`: creates or replaces a file.

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{parse, schema};
use super::replace::MAX_FILE;
use super::{Builtin, Memory, Refusal, Scope, Tool, Workspace, off_thread, options};
use crate::mask;

pub(super) const BUILTIN: Builtin = Builtin {
    name: "write_file",
    reads_only: false,
    parent_only: false,
    options: options::none,
    options_schema: || None,
    build: |_| Ok(Box::new(WriteFile)),
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Path of the file, from the workspace.
    #[serde(alias = "file_path")]
    path: String,
    /// The whole text of the file.
    content: String,
}

struct WriteFile;

impl Tool for WriteFile {
    fn name(&self) -> &str {
        "write_file"
    }

    fn description(&self) -> String {
        "Creates a file, or replaces the whole of an existing one. Missing folders are made. To change a part of a file, \
         use edit_file if you have it."
            .into()
    }

    fn input_schema(&self) -> Value {
        schema::<Input>()
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a Scope<'a>) -> BoxFuture<'a, Result<String, Refusal>> {
        Box::pin(async move {
            let input: Input = parse(input)?;
            let (workspace, memory) = (scope.workspace.clone(), scope.memory.clone());
            off_thread(move || write(&input, &workspace, &memory)).await
        })
    }
}

fn write(input: &Input, workspace: &Workspace, memory: &Memory) -> Result<String, Refusal> {
    refuse_masks(&input.content)?;
    if input.content.len() as u64 > MAX_FILE {
        return Err(Refusal(format!("the content is larger than {} MB", MAX_FILE >> 20)));
    }
    let mut target = workspace.target(&input.path)?;
    workspace.locked(&target.path.clone(), || {
        target.write(input.content.as_bytes())?;
        memory.saw(&target.path, input.content.as_bytes());
        let done = if target.exists() { "replaced" } else { "created" };
        let lines = input.content.lines().count();
        Ok(format!("{done} `{}`: {lines} lines, {} bytes", target.path.display(), input.content.len()))
    })
}

/// Refuses text in which a secret is masked: written to a file, the mask would take the secret's place.
pub(super) fn refuse_masks(text: &str) -> Result<(), Refusal> {
    if text.contains(mask::OPENING) {
        return Err(Refusal(format!(
            "the text holds `{}`: a secret is hidden there, and writing it would destroy what is in the file; leave that \
             part out",
            mask::OPENING
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use crate::tools::toolbox::tests::Bench;

    fn input(path: &str, content: &str) -> String {
        serde_json::json!({ "path": path, "content": content }).to_string()
    }

    #[tokio::test]
    async fn files_and_folders_are_made_and_replaced() {
        let bench = Bench::new(&["write_file"]);
        assert_eq!(
            bench.ok("write_file", &input("a/b/c.txt", "x\ny\n")).await,
            "created `a/b/c.txt`: 2 lines, 4 bytes"
        );
        assert_eq!(
            bench.ok("write_file", &input("a/./b/../b/c.txt", "")).await,
            "replaced `a/b/c.txt`: 0 lines, 0 bytes"
        );
        assert_eq!(bench.text("a/b/c.txt"), "");
        assert_eq!(std::fs::read_dir(bench.path("a/b")).unwrap().count(), 1, "nothing temporary is left");
    }

    #[tokio::test]
    async fn a_replaced_file_keeps_its_mode_and_leaves_hard_links_alone() {
        let bench = Bench::new(&["write_file"]);
        bench.write("run.sh", "old");
        std::fs::set_permissions(bench.path("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
        let outside = bench.folder.path().join("outside");
        std::fs::hard_link(bench.path("run.sh"), &outside).unwrap();
        bench.ok("write_file", &input("run.sh", "new")).await;
        assert_eq!(std::fs::metadata(bench.path("run.sh")).unwrap().mode() & 0o777, 0o755);
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "old");
    }

    #[tokio::test]
    async fn a_link_within_is_written_through_and_one_that_leads_out_is_not() {
        let bench = Bench::new(&["write_file"]);
        bench.write("real.txt", "old");
        symlink("real.txt", bench.path("inner")).unwrap();
        std::fs::write(bench.folder.path().join("secret"), "safe").unwrap();
        symlink("../secret", bench.path("outer")).unwrap();
        symlink("../nothing", bench.path("dangling")).unwrap();
        symlink("..", bench.path("up")).unwrap();
        bench.ok("write_file", &input("inner", "new")).await;
        assert_eq!(bench.text("real.txt"), "new");
        assert!(std::fs::symlink_metadata(bench.path("inner")).unwrap().is_symlink());
        for path in ["outer", "dangling", "up/secret", "up/new", "../new", "/tmp/new", "a/../../new", "", ".", "a/.."] {
            bench.refused("write_file", &input(path, "bad")).await;
        }
        assert_eq!(std::fs::read_to_string(bench.folder.path().join("secret")).unwrap(), "safe");
        assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn what_is_protected_stays_under_every_name() {
        let bench = Bench::new(&["write_file", "edit_file"]);
        bench.write("job.yaml", "job");
        bench.write("prompts/a.md", "prompt");
        bench.write(".git/hooks/x", "hook");
        bench.write("sub/dir/x", "");
        symlink("job.yaml", bench.path("alias.yaml")).unwrap();
        symlink(".git/hooks", bench.path("hooks")).unwrap();
        symlink("../prompts", bench.path("sub/p")).unwrap();
        for path in [
            "job.yaml",
            "./sub/../job.yaml",
            "JOB.yaml",
            "alias.yaml",
            "prompts/new.md",
            "sub/p/a.md",
            "Prompts/new.md",
            ".git/hooks/x",
            ".git/config",
            "hooks/new",
            ".GIT/config",
            "sub/.git/hooks/post-commit",
            "runs/j/1/result.json",
            ".git",
        ] {
            let text = bench.refused("write_file", &input(path, "bad")).await;
            assert!(text.contains("read-only to tools") || text.contains("belongs to git"), "{path}: {text}");
        }
        let edit = r#"{"path": "sub/p/a.md", "old_text": "prompt", "new_text": "bad"}"#;
        assert!(bench.refused("edit_file", edit).await.contains("read-only to tools"));
        assert_eq!(bench.text("job.yaml"), "job");
    }

    #[tokio::test]
    async fn a_masked_secret_is_never_written() {
        let bench = Bench::new(&["write_file"]);
        assert!(bench.refused("write_file", &input("a", "key = [masked:TOKEN]")).await.contains("a secret is hidden"));
        assert!(!bench.path("a").exists());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_that_is_swapped_for_a_link_never_leads_out() {
        let bench = Bench::new(&["write_file", "read_file"]);
        let outside = bench.folder.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "the secret").unwrap();
        bench.write("d/secret", "harmless");
        let (d, link) = (bench.path("d"), bench.path("link"));
        symlink(&outside, &link).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &d, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let mut wrote = 0;
                runtime.block_on(async {
                    for _ in 0..300 {
                        wrote += u32::from(!bench.call("write_file", &input("d/new", "x")).await.is_error);
                        let read = bench.call("read_file", r#"{"path": "d/secret"}"#).await;
                        assert!(!read.text.contains("the secret"), "{}", read.text);
                    }
                });
                over.store(true, Ordering::Relaxed);
                assert!(wrote > 0, "the race was never won by the tool");
            });
        });
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    }
}
