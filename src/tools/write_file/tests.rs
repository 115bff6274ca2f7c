use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::tools::toolbox::tests::ToolHarness;

fn input(path: &str, content: &str) -> String {
    serde_json::json!({ "path": path, "content": content, "overwrite": true }).to_string()
}

#[tokio::test]
async fn files_and_folders_are_created_and_replaced() {
    let harness = ToolHarness::new(&["write_file"]);
    assert_eq!(harness.ok("write_file", &input("a/b/c.txt", "x\ny\n")).await, "created `a/b/c.txt`: 2 lines, 4 bytes");
    assert_eq!(
        harness.ok("write_file", &input("a/./b/../b/c.txt", "")).await,
        "replaced `a/b/c.txt`: 0 lines, 0 bytes"
    );
    assert_eq!(harness.text("a/b/c.txt"), "");
    assert_eq!(std::fs::read_dir(harness.path("a/b")).unwrap().count(), 1, "nothing temporary is left");
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_and_leaves_hard_links_alone() {
    let harness = ToolHarness::new(&["write_file"]);
    harness.write("run.sh", "old");
    std::fs::set_permissions(harness.path("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    let outside = harness.folder.path().join("outside");
    std::fs::hard_link(harness.path("run.sh"), &outside).unwrap();
    harness.ok("write_file", &input("run.sh", "new")).await;
    assert_eq!(std::fs::metadata(harness.path("run.sh")).unwrap().mode() & 0o777, 0o755);
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "old");
}

#[tokio::test]
async fn a_replaced_file_keeps_its_line_endings_and_its_encoding() {
    let harness = ToolHarness::new(&["write_file", "read_file", "edit_file"]);
    let utf16 = |text: &str, to_bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(to_bytes).collect()
    };
    for (name, before, content, after, says) in [
        ("crlf", b"one\r\ntwo\r\n".to_vec(), "1\n2\n3", b"1\r\n2\r\n3".to_vec(), "; its CRLF line endings were kept"),
        ("own", b"one\r\n".to_vec(), "1\r\n2\n", b"1\r\n2\n".to_vec(), ""),
        ("mixed", b"one\r\ntwo\n".to_vec(), "1\n2\n", b"1\n2\n".to_vec(), "; it had mixed line endings"),
        ("lf", b"one\ntwo\r".to_vec(), "1\n", b"1\n".to_vec(), ""),
        ("mark", "\u{feff}é\n".into(), "ä\n", "\u{feff}ä\n".into(), "; its UTF-8 byte order mark was kept"),
        (
            "both",
            "\u{feff}é\r\n".into(),
            "\u{feff}ä\n",
            "\u{feff}ä\r\n".into(),
            "; its UTF-8 byte order mark was kept; its CRLF",
        ),
        (
            "le",
            utf16("é\r\n", u16::to_le_bytes),
            "ä😀\n",
            utf16("ä😀\r\n", u16::to_le_bytes),
            "; its encoding UTF-16 was kept; its CRLF",
        ),
        ("be", utf16("é\n", u16::to_be_bytes), "ä\n", utf16("ä\n", u16::to_be_bytes), "; its encoding UTF-16 was kept"),
        ("empty", Vec::new(), "1\n", b"1\n".to_vec(), ""),
    ] {
        harness.write(name, &before);
        let text = harness.ok("write_file", &input(name, content)).await;
        assert_eq!(std::fs::read(harness.path(name)).unwrap(), after, "{name}");
        let bytes = format!(", {} bytes{says}", after.len());
        assert!(text.contains(&bytes) && (!says.is_empty() || text.ends_with(&bytes)), "{name}: {text}");
        // What the tool wrote is what the agent has seen.
        harness.ok("write_file", &serde_json::json!({ "path": name, "content": "x\n" }).to_string()).await;
    }
}

#[tokio::test]
async fn links_are_followed_within_the_workspace_only() {
    let harness = ToolHarness::new(&["write_file"]);
    harness.write("real.txt", "old");
    symlink("real.txt", harness.path("inner")).unwrap();
    std::fs::write(harness.folder.path().join("secret"), "safe").unwrap();
    symlink("../secret", harness.path("outer")).unwrap();
    symlink("../nothing", harness.path("dangling")).unwrap();
    symlink("..", harness.path("up")).unwrap();
    harness.ok("write_file", &input("inner", "new")).await;
    assert_eq!(harness.text("real.txt"), "new");
    assert!(std::fs::symlink_metadata(harness.path("inner")).unwrap().is_symlink());
    for path in ["outer", "dangling", "up/secret", "up/new", "../new", "/tmp/new", "a/../../new", "", ".", "a/.."] {
        harness.refused("write_file", &input(path, "bad")).await;
    }
    assert_eq!(std::fs::read_to_string(harness.folder.path().join("secret")).unwrap(), "safe");
    assert_eq!(std::fs::read_dir(harness.folder.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn protected_files_are_refused_under_every_name() {
    let harness = ToolHarness::new(&["write_file", "edit_file"]);
    harness.write("job.yaml", "job");
    harness.write("prompts/a.md", "prompt");
    harness.write(".git/hooks/x", "hook");
    harness.write("sub/dir/x", "");
    symlink("job.yaml", harness.path("alias.yaml")).unwrap();
    symlink(".git/hooks", harness.path("hooks")).unwrap();
    symlink("../prompts", harness.path("sub/p")).unwrap();
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
        let text = harness.refused("write_file", &input(path, "bad")).await;
        assert!(text.contains("read-only for tools") || text.contains("belongs to git"), "{path}: {text}");
    }
    let edit = r#"{"path": "sub/p/a.md", "old_text": "prompt", "new_text": "bad"}"#;
    assert!(harness.refused("edit_file", edit).await.contains("read-only for tools"));
    assert_eq!(harness.text("job.yaml"), "job");
}

#[tokio::test]
async fn a_masked_secret_is_never_written() {
    let harness = ToolHarness::new(&["write_file"]);
    assert!(
        harness
            .refused("write_file", &input("a", "key = [masked:TOKEN]"))
            .await
            .contains("placeholder of a masked secret")
    );
    assert!(!harness.path("a").exists());
}

#[tokio::test]
async fn files_that_become_protected_later_are_refused_under_every_name() {
    let harness = ToolHarness::new(&["write_file", "edit_file"]);
    // Neither existed at the start.
    harness.write("job.yaml", "job");
    harness.write("prompts/deep/a.md", "prompt");
    std::fs::hard_link(harness.path("job.yaml"), harness.path("hard.yaml")).unwrap();
    for path in ["hard.yaml", "prompts/deep/a.md", "prompts/b/c.md", "pROMPTS/x"] {
        harness.refused("write_file", &input(path, "bad")).await;
    }
    harness.refused("edit_file", r#"{"path": "hard.yaml", "old_text": "job", "new_text": "bad"}"#).await;
}

#[tokio::test]
async fn a_file_with_the_inode_of_a_replaced_protected_file_can_be_written() {
    let harness = ToolHarness::new(&["edit_file"]);
    harness.write("job.yaml", "job");
    let harness = harness.reopened();
    // An editor replaces the job, and the file system reuses the inode.
    std::fs::rename(harness.path("job.yaml"), harness.path("notes")).unwrap();
    harness.write("job.yaml", "new job");
    harness.ok("edit_file", r#"{"path": "notes", "old_text": "job", "new_text": "text"}"#).await;
    assert_eq!(harness.text("notes"), "text");
    harness.refused("edit_file", r#"{"path": "job.yaml", "old_text": "job", "new_text": "bad"}"#).await;
}

#[tokio::test]
async fn names_that_a_file_system_treats_as_git_are_refused() {
    let harness = ToolHarness::new(&["write_file"]);
    for name in [
        ".git",
        ".GIT",
        ".Git",
        ".git.",
        ".git ",
        ".git. .",
        ".git::$INDEX_ALLOCATION",
        "git~1",
        "GIT~1",
        ".g\u{200c}it",
        ".git\u{200d}",
        "\u{feff}.git",
    ] {
        for path in [format!("{name}/hooks/pre-commit"), format!("sub/{name}/config"), name.to_owned()] {
            let text = harness.refused("write_file", &input(&path, "bad")).await;
            assert!(text.contains("belongs to git"), "{path:?}: {text}");
        }
    }
    for path in [".gitignore", ".github/x", "git", "git~2", ".gitx", "a.git", "x/.gitmodules", ".git-x/a"] {
        harness.ok("write_file", &input(path, "fine")).await;
    }
}

#[tokio::test]
async fn no_git_folder_can_be_created_file_by_file() {
    let harness = ToolHarness::new(&["write_file"]);
    // In every order, the last part is refused.
    for (folder, order) in [
        ("a", ["HEAD", "objects/x", "refs/x"]),
        ("b/c", ["refs/x", "HEAD", "objects/x"]),
        ("d", ["objects/x", "refs/x", "HEAD"]),
        ("e", ["objects", "refs", "head"]),
    ] {
        for path in &order[..2] {
            harness.ok("write_file", &input(&format!("{folder}/{path}"), "ref: refs/heads/x")).await;
        }
        let text = harness.refused("write_file", &input(&format!("{folder}/{}", order[2]), "x")).await;
        assert!(text.contains("belongs to git"), "{text}");
    }
    harness.ok("write_file", &input("f/commondir", "../a")).await;
    harness.refused("write_file", &input("f/HEAD", "ref: refs/heads/x")).await;
    for part in ["HEAD", "objects/x", "refs/x"] {
        harness.write(&format!("bare.git/{part}"), "ref: refs/heads/x");
    }
    for path in ["bare.git/config", "bare.git/hooks/post-update", "bare.git/description", "bare.git/new/x"] {
        assert!(harness.refused("write_file", &input(path, "x")).await.contains("belongs to git"), "{path}");
    }
}

#[tokio::test]
async fn a_read_only_file_is_refused_even_as_root() {
    let harness = ToolHarness::new(&["write_file", "edit_file"]);
    harness.write("generated.rs", "old");
    std::fs::set_permissions(harness.path("generated.rs"), PermissionsExt::from_mode(0o444)).unwrap();
    assert!(harness.refused("write_file", &input("generated.rs", "new")).await.contains("is read-only"));
    let edit = r#"{"path": "generated.rs", "old_text": "old", "new_text": "new"}"#;
    assert!(harness.refused("edit_file", edit).await.contains("is read-only"));
    assert_eq!(harness.text("generated.rs"), "old");
}

#[tokio::test]
async fn a_moved_or_deleted_workspace_is_not_used() {
    let harness = ToolHarness::new(&["write_file", "read_file", "glob", "grep"]);
    harness.write("a", "first");
    let moved = harness.folder.path().join("moved");
    std::fs::rename(harness.path(""), &moved).unwrap();
    std::fs::create_dir(harness.path("")).unwrap();
    harness.write("a", "second");
    let calls = [
        ("write_file", input("new", "x")),
        ("read_file", r#"{"path": "a"}"#.into()),
        ("grep", r#"{"pattern": "first|second"}"#.into()),
        ("glob", r#"{"pattern": "*"}"#.into()),
    ];
    for (tool, call) in &calls {
        assert!(harness.refused(tool, call).await.contains("was replaced by another folder"));
    }
    for folder in [&moved, &harness.path("")] {
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    }
    std::fs::remove_dir_all(harness.path("")).unwrap();
    for (tool, call) in &calls {
        assert!(harness.refused(tool, call).await.contains("no longer exists"));
    }
    std::fs::rename(&moved, harness.path("")).unwrap();
    assert!(harness.ok("read_file", r#"{"path": "a"}"#).await.contains("first"), "it is back");
}

#[tokio::test]
async fn a_root_behind_a_link_can_be_named_either_way() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    let harness = ToolHarness::at(&["write_file"], folder, "link");
    for root in ["link", "real"] {
        let path = harness.folder.path().canonicalize().unwrap().join(root).join(root);
        let path = if root == "link" { harness.folder.path().join("link/link") } else { path };
        harness.ok("write_file", &input(path.to_str().unwrap(), "x")).await;
        assert!(harness.folder.path().join("real").join(root).exists());
    }
}

#[tokio::test]
async fn odd_paths_are_refused_with_a_readable_reason() {
    let harness = ToolHarness::new(&["write_file", "read_file", "glob", "grep"]);
    harness.write("file", "x");
    for path in ["a/", "a/.", "file/x", "\0", &"n".repeat(256), &"d/".repeat(300), &"x".repeat(5000), "/", "//etc/x"] {
        for (tool, call) in [
            ("write_file", input(path, "x")),
            ("read_file", serde_json::json!({ "path": path }).to_string()),
            ("grep", serde_json::json!({ "path": path, "pattern": "x" }).to_string()),
            ("glob", serde_json::json!({ "path": path, "pattern": "*" }).to_string()),
        ] {
            let text = harness.refused(tool, &call).await;
            assert!(!text.contains("os error") && !text.contains("broke"), "{tool} {path}: {text}");
        }
    }
    assert_eq!(std::fs::read_dir(harness.path("")).unwrap().count(), 1);
}

#[tokio::test]
async fn names_that_are_not_utf8_are_listed() {
    use std::os::unix::ffi::OsStrExt;
    let harness = ToolHarness::new(&["write_file", "glob", "grep"]);
    let strange = std::ffi::OsStr::from_bytes(b"caf\xe9");
    if std::fs::create_dir(harness.path("").join(strange)).is_err() {
        eprintln!("skipped: this file system wants names that are text");
        return;
    }
    std::fs::write(harness.path("").join(strange).join("f"), "needle\n").unwrap();
    assert_eq!(harness.ok("grep", r#"{"pattern": "needle"}"#).await, "caf\u{fffd}/f:1:needle");
    assert_eq!(harness.ok("glob", r#"{"pattern": "**/f"}"#).await, "caf\u{fffd}/f");
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_has_no_name_until_it_is_complete() {
    use rustix::fs::{CWD, Mode, OFlags, openat};

    let harness = ToolHarness::new(&["write_file"]);
    let (root, over) = (harness.path(""), AtomicBool::new(false));
    if openat(CWD, &root, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR).is_err() {
        eprintln!("skipped: this file system has no files without names");
        return;
    }
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                for entry in std::fs::read_dir(&root).unwrap().flatten() {
                    assert_eq!(entry.metadata().unwrap().len(), 3 << 20, "{:?}", entry.file_name());
                    seen.insert(entry.file_name());
                }
            }
            seen
        });
        let written = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let content = "1".repeat(3 << 20);
            for number in 0..20 {
                runtime.block_on(harness.ok("write_file", &input(&format!("new-{number}"), &content)));
            }
        });
        let written = written.join();
        over.store(true, Ordering::Relaxed);
        let seen = watch.join().unwrap();
        written.unwrap();
        assert!(seen.iter().all(|name| name.to_string_lossy().starts_with("new-")), "{seen:?}");
    });
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 20);
}

#[test]
fn readers_only_see_complete_files() {
    let harness = ToolHarness::new(&["write_file"]);
    let (one, other) = ("1".repeat(3 << 20), "2".repeat(3 << 20));
    harness.write("f", &one);
    let (root, over) = (harness.path(""), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                let text = std::fs::read_to_string(root.join("f")).unwrap();
                assert!(text == one || text == other, "a part of a file was seen");
                looks += 1;
            }
            looks
        });
        let writer = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            for number in 0..20 {
                let content = if number % 2 == 0 { &other } else { &one };
                runtime.block_on(harness.ok("write_file", &input("f", content)));
            }
        });
        let written = writer.join();
        over.store(true, Ordering::Relaxed);
        assert!(watch.join().unwrap() > 0);
        written.unwrap();
    });
    assert_eq!(std::fs::read_dir(harness.path("")).unwrap().count(), 1);
}

#[tokio::test]
async fn only_a_file_that_was_read_and_is_unchanged_is_replaced() {
    let harness = ToolHarness::new(&["write_file", "read_file", "edit_file"]);
    harness.write("f", "one\n");
    let write = |content: &str, more: &str| format!(r#"{{"path": "./f", "content": "{content}"{more}}}"#);
    let text = harness.refused("write_file", &write("two", "")).await;
    assert!(text.starts_with("`f` exists, and you haven't read it; read it first"), "{text}");
    harness.refused("write_file", &write("two", r#", "overwrite": false"#)).await;
    assert_eq!(harness.text("f"), "one\n");
    harness.ok("read_file", r#"{"path": "f"}"#).await;
    harness.ok("write_file", &write("two", "")).await;
    // What the agent wrote itself, it knows.
    harness.ok("write_file", &write("three", "")).await;
    harness.ok("edit_file", r#"{"path": "f", "old_text": "three", "new_text": "four"}"#).await;
    harness.ok("write_file", &write("five", "")).await;
    harness.write("f", "changed by another\n");
    for more in ["", r#", "overwrite": true"#] {
        let text = harness.refused("write_file", &write("six", more)).await;
        assert_eq!(text, "`f` has changed since you read it; read it again");
    }
    assert_eq!(harness.text("f"), "changed by another\n");
    harness.write("g", b"\xff\0");
    harness.ok("write_file", r#"{"path": "g", "content": "x", "overwrite": "true"}"#).await;
    // A file that is gone can be created again.
    std::fs::remove_file(harness.path("f")).unwrap();
    harness.ok("write_file", &write("seven", "")).await;
}
