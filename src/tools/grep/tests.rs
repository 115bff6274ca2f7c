use serde_json::{Value, json};

use super::MAX_LINE_BYTES;
use crate::tools::toolbox::tests::ToolHarness;

fn harness() -> ToolHarness {
    let harness = ToolHarness::new(&["grep"]);
    harness.write("src/a.rs", "fn one() {}\nfn two() {}\r\n");
    harness.write("src/b.md", "fn in words\n");
    harness.write("target/c.rs", "fn built() {}\n");
    harness.write("runs/d.rs", "fn recorded() {}\n");
    harness.write(".git/e.rs", "fn git() {}\n");
    harness.write(".github/f.yml", "fn: x\n");
    harness.write("bin", b"fn \0\n");
    harness.write(".gitignore", "target/\n");
    harness
}

async fn grep(harness: &ToolHarness, input: Value) -> String {
    harness.ok("grep", &input.to_string()).await
}

#[tokio::test]
async fn lines_files_and_counts() {
    let harness = harness();
    let pattern = r"fn \w+";
    assert_eq!(
        grep(&harness, json!({ "pattern": pattern })).await,
        "src/a.rs:1:fn one() {}\nsrc/a.rs:2:fn two() {}\nsrc/b.md:1:fn in words"
    );
    assert_eq!(grep(&harness, json!({ "pattern": pattern, "output": "files" })).await, "src/a.rs\nsrc/b.md");
    assert_eq!(grep(&harness, json!({ "pattern": pattern, "output": "counts" })).await, "src/a.rs:2\nsrc/b.md:1");
    assert_eq!(grep(&harness, json!({ "pattern": r"\{\}$", "glob": "*.rs", "output": "counts" })).await, "src/a.rs:2");
    assert_eq!(grep(&harness, json!({ "pattern": "(?i)^FN IN", "glob": "!*.rs" })).await, "src/b.md:1:fn in words");
    assert_eq!(grep(&harness, json!({ "pattern": "two", "path": "src/a.rs" })).await, "src/a.rs:2:fn two() {}");
    assert_eq!(grep(&harness, json!({ "pattern": "built", "path": "target" })).await, "target/c.rs:1:fn built() {}");
    assert_eq!(grep(&harness, json!({ "pattern": "fn", "path": ".github" })).await, ".github/f.yml:1:fn: x");
    assert!(grep(&harness, json!({ "pattern": "nowhere" })).await.starts_with("no matches in "));
}

#[tokio::test]
async fn unsearchable_paths_are_refused() {
    let harness = harness();
    let text = harness.refused("grep", r#"{"pattern": "a("}"#).await;
    assert!(text.contains("unclosed group"), "{text}");
    let text = harness.refused("grep", r#"{"pattern": "a\\nb"}"#).await;
    assert!(text.contains("within single lines"), "{text}");
    for path in ["..", "/etc", "missing", ".git", "runs"] {
        harness.refused("grep", &json!({ "pattern": "x", "path": path }).to_string()).await;
    }
    harness.refused("grep", r#"{"pattern": "x", "glob": "a{b"}"#).await;
    assert!(std::process::Command::new("mkfifo").arg(harness.path("pipe")).status().unwrap().success());
    let text = harness.refused("grep", r#"{"pattern": "x", "path": "pipe"}"#).await;
    assert!(text.contains("`pipe` is not a regular file"), "{text}");
    harness.refused("grep", r#"{"pattern": "x", "output": "everything"}"#).await;
}

#[tokio::test]
async fn files_with_overlong_lines_are_reported() {
    let harness = ToolHarness::new(&["grep"]);
    harness.write("a", "needle\n");
    let huge = std::fs::File::create(harness.path("b")).unwrap();
    huge.set_len(MAX_LINE_BYTES as u64 * 2).unwrap();
    let mut huge = std::io::BufWriter::new(huge);
    (0..=MAX_LINE_BYTES >> 16).for_each(|_| std::io::Write::write_all(&mut huge, &[b'x'; 1 << 16]).unwrap());
    drop(huge);
    let text = grep(&harness, json!({ "pattern": "needle" })).await;
    assert_eq!(text, "a:1:needle\n(1 file not searched completely: unreadable, or with a line longer than 16 MB)");
}

#[tokio::test]
async fn long_lines_and_many_lines_are_bounded() {
    let harness = ToolHarness::new(&["grep"]);
    harness.write("min.js", format!("{}needle{}", "ä".repeat(50_000), "b".repeat(50_000)));
    harness.write("many", "needle\n".repeat(5000));
    let text = grep(&harness, json!({ "pattern": "needle", "path": "min.js" })).await;
    assert!(text.contains("äneedleb") && text.chars().count() < 450, "{text}");
    let text = grep(&harness, json!({ "pattern": "needle", "path": "many" })).await;
    assert_eq!(text.lines().count(), 1001);
    assert!(text.ends_with("(more matches not shown; use a narrower pattern, path or glob)"));
    assert_eq!(grep(&harness, json!({ "pattern": "needle", "output": "counts" })).await, "many:5000\nmin.js:1");
}

#[tokio::test]
async fn special_files_as_ignore_files_do_not_block() {
    let harness = ToolHarness::new(&["grep", "glob"]);
    for folder in ["a", "b", "c", "d"] {
        harness.write(&format!("{folder}/f"), "needle\n");
    }
    assert!(std::process::Command::new("mkfifo").arg(harness.path("a/.gitignore")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", harness.path("b/.ignore")).unwrap();
    let huge = std::fs::File::create(harness.path("c/.gitignore")).unwrap();
    huge.set_len(10 << 30).unwrap();
    std::fs::create_dir(harness.path("d/.gitignore")).unwrap();
    let limit = std::time::Duration::from_secs(20);
    let found = tokio::time::timeout(limit, grep(&harness, json!({ "pattern": "needle", "output": "files" })));
    assert_eq!(found.await.expect("the search ends"), "a/f\nb/f\nc/f\nd/f");
    let listed = tokio::time::timeout(limit, harness.ok("glob", r#"{"pattern": "*/f"}"#)).await;
    assert_eq!(listed.expect("the search ends").lines().count(), 4);
}

#[tokio::test]
async fn ignore_files_apply_within_their_repository() {
    let harness = ToolHarness::new(&["grep"]);
    for name in ["a.log", "keep.log", "sub/b.log", "sub/c.txt", "other/d.log", "other/e.tmp", "x/build/f"] {
        harness.write(name, "needle\n");
    }
    harness.write(".gitignore", "\u{feff}*.log\n!keep.log\n/x/build/\nbroken[\n");
    harness.write("sub/.ignore", "!b.log\nc.txt\n");
    // Rules from outside don't apply in a nested repository, except for .ignore.
    write_repository(&harness.path("other"));
    harness.write("other/.git/info/exclude", "*.tmp\n");
    let files = json!({ "pattern": "needle", "output": "files" });
    assert_eq!(grep(&harness, files).await, "keep.log\nother/d.log\nsub/b.log");
    let below = json!({ "pattern": "needle", "output": "files", "path": "sub" });
    assert_eq!(grep(&harness, below).await, "sub/b.log", "rules from above the path hold");
    let named = json!({ "pattern": "needle", "output": "files", "path": "x/build" });
    assert_eq!(grep(&harness, named).await, "x/build/f");
}

#[tokio::test]
async fn rules_above_the_workspace_apply_only_within_its_repository() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("repo/ws")).unwrap();
    std::fs::write(folder.path().join(".gitignore"), "*\n").unwrap();
    std::fs::write(folder.path().join("repo/.gitignore"), "/ws/a\n").unwrap();
    for name in ["a", "b"] {
        std::fs::write(folder.path().join("repo/ws").join(name), "needle\n").unwrap();
    }
    let harness = ToolHarness::at(&["grep"], folder, "repo/ws");
    let files = || json!({ "pattern": "needle", "output": "files" });
    assert_eq!(grep(&harness, files()).await, "a\nb", "ignore files above a workspace without git don't apply");
    // Other programs leave empty folders of this name, which aren't repositories to git.
    std::fs::create_dir_all(harness.folder.path().join("repo/.git/info")).unwrap();
    assert_eq!(grep(&harness, files()).await, "a\nb");
    std::fs::create_dir(harness.folder.path().join("repo/ws/.git")).unwrap();
    write_repository(&harness.folder.path().join("repo"));
    assert_eq!(grep(&harness, files()).await, "b", "the empty one in the workspace doesn't end the search");
}

/// Writes what makes a folder a repository to git.
fn write_repository(folder: &std::path::Path) {
    for entry in ["objects", "refs"] {
        std::fs::create_dir_all(folder.join(".git").join(entry)).unwrap();
    }
    std::fs::write(folder.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
}

#[tokio::test]
async fn a_very_deep_folder_and_loops_of_links_are_walked_with_few_descriptors() {
    let harness = ToolHarness::new(&["grep", "glob"]);
    let deep = vec!["d"; 100].join("/");
    harness.write(&format!("{deep}/f"), "needle\n");
    for (at, target) in [("loop", "."), ("d/up", ".."), ("d/d/self", "self")] {
        std::os::unix::fs::symlink(target, harness.path(at)).unwrap();
    }
    assert_eq!(grep(&harness, json!({ "pattern": "needle", "output": "files" })).await, format!("{deep}/f"));
    assert_eq!(harness.ok("glob", r#"{"pattern": "**/f"}"#).await, format!("{deep}/f"));
    // Deeper than any path may be.
    let mut folder = std::fs::File::open(harness.path(&deep)).unwrap();
    for _ in 0..400 {
        rustix::fs::mkdirat(&folder, "e", rustix::fs::Mode::RWXU).unwrap();
        folder =
            rustix::fs::openat(&folder, "e", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap().into();
    }
    assert_eq!(grep(&harness, json!({ "pattern": "needle", "output": "files" })).await, format!("{deep}/f"));
}

#[tokio::test]
async fn a_cancelled_search_ends_within_a_file() {
    let harness = ToolHarness::new(&["grep"]);
    harness.write("f", "no match\n".repeat(1 << 20));
    harness.limits.cancel.cancel();
    let text = harness.call("grep", r#"{"pattern": "needle"}"#).await.text;
    assert!(text.contains("cancelled"), "{text}");
}

#[tokio::test]
async fn lines_around_matches_are_shown_in_groups() {
    let harness = ToolHarness::new(&["grep"]);
    harness.write("a.txt", "1\n2\nhit\n4\n5\n6\n7\nhit\n9\n");
    harness.write("b.txt", "x\nHIT\n");
    let text = harness.ok("grep", r#"{"pattern": "hit", "context": 1}"#).await;
    assert_eq!(text, "a.txt-2-2\na.txt:3:hit\na.txt-4-4\n--\na.txt-7-7\na.txt:8:hit\na.txt-9-9");
    let text = harness.ok("grep", r#"{"pattern": "hit", "ignore_case": "true", "context": "1", "glob": "b*"}"#).await;
    assert_eq!(text, "b.txt-1-x\nb.txt:2:HIT");
    let text = harness.ok("grep", r#"{"pattern": "hit", "-i": true, "-n": true, "-A": 1, "-B": 0}"#).await;
    assert_eq!(text, "a.txt:3:hit\na.txt-4-4\n--\na.txt:8:hit\na.txt-9-9\n--\nb.txt:2:HIT");
    let text = harness.ok("grep", r#"{"pattern": "hit", "-C": 3, "output_mode": "count", "multiline": false}"#).await;
    assert_eq!(text, "a.txt:2");
    let text = harness.ok("grep", r#"{"pattern": "t|x", "-i": true, "head_limit": 1}"#).await;
    assert!(text.starts_with("a.txt:3:hit\n(more matches not shown"), "{text}");
    let text = harness.ok("grep", r#"{"pattern": "hit", "context": 1000000}"#).await;
    assert_eq!(text.lines().count(), 9);
    harness.refused("grep", r#"{"pattern": "hit", "context": -1}"#).await;
}
