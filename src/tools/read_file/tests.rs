use super::*;
use crate::tools::toolbox::tests::ToolHarness;

#[tokio::test]
async fn lines_are_numbered_and_returned_in_parts() {
    let harness = ToolHarness::new(&["read_file"]);
    harness.write("a.txt", "one\ntwo\nthree\nfour");
    assert_eq!(
        harness.ok("read_file", r#"{"path": "a.txt"}"#).await,
        "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour"
    );
    assert_eq!(
        harness.ok("read_file", r#"{"path": "./a.txt", "offset": "2", "limit": 2}"#).await,
        "     2\ttwo\n     3\tthree\n(1 more lines; continue with offset 4)"
    );
    let past = harness.refused("read_file", r#"{"path": "a.txt", "offset": 9}"#).await;
    assert_eq!(past, "`a.txt` has only 4 lines; line 9 does not exist");
    assert!(harness.ok("read_file", r#"{"path": "a.txt", "offset": 0, "limit": 1}"#).await.starts_with("     1\tone"));
}

#[tokio::test]
async fn peculiarities_of_a_file_are_reported() {
    let harness = ToolHarness::new(&["read_file"]);
    harness.write("empty", "");
    harness.write("crlf", "a\r\nb\r\n");
    harness.write("mixed", "a\r\nb\nc\r\n");
    harness.write("one", "a\r\nb");
    harness.write("long", format!("{}\nend\n", "x".repeat(100_000)));
    harness.write("binary", [0x7f, b'E', 0, 1]);
    harness.write("latin", b"caf\xe9\n");
    assert_eq!(harness.ok("read_file", r#"{"path": "empty"}"#).await, "`empty` is empty");
    assert_eq!(harness.ok("read_file", r#"{"path": "crlf"}"#).await, "     1\ta\n     2\tb\n(CRLF line endings)");
    let mixed = "mixed line endings: CRLF and LF";
    assert_eq!(
        harness.ok("read_file", r#"{"path": "mixed"}"#).await,
        format!("     1\ta\n     2\tb\n     3\tc\n({mixed})")
    );
    let part = harness.ok("read_file", r#"{"path": "mixed", "limit": 1}"#).await;
    assert!(part.contains(mixed), "of the whole file, not of what is shown: {part}");
    assert_eq!(harness.ok("read_file", r#"{"path": "one"}"#).await, "     1\ta\n     2\tb\n(CRLF line endings)");
    let long = harness.ok("read_file", r#"{"path": "long"}"#).await;
    assert!(long.len() < 3000 && long.contains("[... truncated; the line has 100000 bytes]\n     2\tend"), "{long}");
    assert_eq!(harness.refused("read_file", r#"{"path": "binary"}"#).await, "`binary` is a binary file of 4 bytes");
    assert_eq!(harness.ok("read_file", r#"{"path": "latin"}"#).await, "     1\tcaf\u{fffd}");
}

#[tokio::test]
async fn truncation_shows_no_part_of_a_secret() {
    let harness = ToolHarness::with(
        &["read_file", "grep", "edit_file"].map(crate::tools::toolbox::tests::grant),
        &[("token".into(), "s3cr3t-t0ken".into())],
    );
    for before in 1980..2001 {
        harness.write("f", format!("{}s3cr3t-t0ken{}", "ä".repeat(before), "z".repeat(9000)));
        let text = harness.ok("read_file", r#"{"path": "f"}"#).await;
        assert!(!text.contains("s3") && text.contains("z[... truncated") == (before < 1986), "{before}: {text}");
    }
    for before in 80..140 {
        harness.write("f", format!("{}s3cr3t-t0ken{}needle{}", "a".repeat(300), "b".repeat(before), "z".repeat(9000)));
        let text = harness.ok("grep", r#"{"pattern": "needle"}"#).await;
        assert!(!text.contains("t0k") && !text.contains("3t") && text.contains("needle"), "{before}: {text}");
    }
    harness.write("g", format!("{}s3cr3t-t0ken\nend\n", "a".repeat(495)));
    let text = harness.ok("edit_file", r#"{"path": "g", "old_text": "end", "new_text": "x"}"#).await;
    assert!(!text.contains("s3"), "{text}");
}

#[tokio::test]
async fn a_long_file_says_where_to_continue() {
    let harness = ToolHarness::new(&["read_file"]);
    harness.write("big", (1..=100_000).map(|line| format!("this is line {line}\n")).collect::<String>());
    let text = harness.ok("read_file", r#"{"path": "big", "limit": 99999}"#).await;
    assert!(text.chars().count() <= MAX_RESULT_CHARS && !text.contains("left out"));
    let (shown, rest) = text.rsplit_once("\n(").unwrap();
    let last: u64 = shown.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert_eq!(rest, format!("{} more lines; continue with offset {})", 100_000 - last, last + 1));
    let next = harness.ok("read_file", &format!(r#"{{"path": "big", "offset": {}}}"#, last + 1)).await;
    assert!(next.starts_with(&format!("{:>6}\tthis is line {}\n", last + 1, last + 1)));
    assert_eq!(next.lines().count(), 2001.min(next.lines().count()));
}

#[tokio::test]
async fn anything_but_files_is_refused_without_blocking() {
    let harness = ToolHarness::new(&["read_file"]);
    harness.write("src/lib.rs", "");
    assert!(std::process::Command::new("mkfifo").arg(harness.path("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("/etc/hostname", harness.path("link")).unwrap();
    for (path, why) in [
        ("src", "is a folder"),
        ("pipe", "not a regular file"),
        ("link", "is outside the workspace"),
        ("../x", "is outside the workspace"),
        ("/etc/passwd", "is outside the workspace"),
        ("src/../../x", "is outside the workspace"),
        ("src/lib.sr", "does not exist; did you mean `src/lib.rs`?"),
        ("scr/lib.rs", "does not exist; did you mean `src`?"),
        ("~/.bashrc", "`~/.bashrc` does not exist"),
        ("src/lib.rs/x", "a file, not a folder"),
        ("", "is a folder"),
    ] {
        let text = harness.refused("read_file", &format!(r#"{{"path": "{path}"}}"#)).await;
        assert!(text.contains(why), "{path}: {text}");
    }
    let absolute = harness.path("src/lib.rs");
    assert!(harness.ok("read_file", &format!(r#"{{"path": {absolute:?}}}"#)).await.contains("is empty"));
}

#[tokio::test]
async fn a_file_of_any_size_costs_little() {
    let harness = ToolHarness::new(&["read_file"]);
    // Nothing but NULs; then text at the start, and one line without an end.
    harness.write("zeros", "");
    harness.write("line", "x".repeat(SNIFFED_BYTES));
    harness.write("lines", "line\n".repeat(SNIFFED_BYTES));
    for name in ["zeros", "line", "lines"] {
        std::fs::File::options().append(true).open(harness.path(name)).unwrap().set_len(10 << 30).unwrap();
    }
    let zeros = harness.refused("read_file", r#"{"path": "zeros"}"#).await;
    assert_eq!(zeros, format!("`zeros` is a binary file of {} bytes", 10_u64 << 30));
    let lines = harness.ok("read_file", r#"{"path": "lines", "limit": 2}"#).await;
    assert!(
        lines.ends_with(
            "     2\tline\n(the file continues (it is too long to read completely); continue with offset 3)"
        ),
        "{lines}"
    );
    let line = harness.ok("read_file", r#"{"path": "line"}"#).await;
    assert!(line.len() < 3000 && line.contains("(the file continues ("), "{line}");
    let far = harness.refused("read_file", r#"{"path": "lines", "offset": 99999}"#).await;
    assert!(far.contains("line 99999 was not reached"), "{far}");
}

#[tokio::test]
async fn a_cancelled_call_ends_within_a_line() {
    let harness = ToolHarness::new(&["read_file"]);
    harness.write("line", "x".repeat(SNIFFED_BYTES));
    std::fs::File::options().append(true).open(harness.path("line")).unwrap().set_len(10 << 30).unwrap();
    harness.limits.cancel.cancel();
    let text = harness.call("read_file", r#"{"path": "line"}"#).await.text;
    assert!(text.contains("cancelled"), "{text}");
}

#[tokio::test]
async fn an_image_is_left_out_with_a_note() {
    let harness = ToolHarness::new(&["read_file"]);
    let images: [(&str, &[u8], &str); 4] = [
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG, 16 bytes"),
        ("b.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0", "JPEG, 11 bytes"),
        ("c", b"GIF89a\x01\0\x01\0", "GIF, 10 bytes"),
        ("d.webp", b"RIFF\x1a\0\0\0WEBPVP8L", "WebP, 16 bytes"),
    ];
    for (name, bytes, kind) in images {
        harness.write(name, bytes);
        let said = harness.ok("read_file", &format!(r#"{{"path": "{name}"}}"#)).await;
        assert_eq!(said, format!("[`{name}` is an image ({kind}); only text can be returned]"));
    }
    harness.write("text.txt", b"GIF89a and BM are words, too\n");
    assert!(harness.ok("read_file", r#"{"path": "text.txt"}"#).await.contains("are words"));
}

#[tokio::test]
async fn a_model_that_takes_images_gets_them() {
    let mut harness = ToolHarness::new(&["read_file"]);
    harness.toolbox.set_media(crate::attachment::MediaSupport { images: true, ..Default::default() });
    let image = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0sum.\0\0\0\0IENDsum.";
    let pdf = "%PDF-1.7\nwords\n%%EOF\n";
    harness.write("notes.txt", image);
    harness.write("cut.png", &image[..40]);
    harness.write("a.pdf", pdf);
    let shown = harness.call("read_file", r#"{"path": "notes.txt"}"#).await;
    assert_eq!(shown.text, "[`notes.txt`: PNG image, 2 x 3 pixels, 45 bytes]");
    assert_eq!((shown.is_error, shown.attachments.len()), (false, 1));
    assert_eq!(shown.attachments[0].data, image.as_slice());
    // The model wants text, or doesn't take it.
    let part = harness.call("read_file", r#"{"path": "notes.txt", "limit": 5}"#).await;
    assert_eq!(part.text, "[`notes.txt` is an image (PNG, 45 bytes); only text can be returned]");
    let text = harness.call("read_file", r#"{"path": "a.pdf"}"#).await;
    assert_eq!(text.text, "     1\t%PDF-1.7\n     2\twords\n     3\t%%EOF");
    assert!(part.attachments.is_empty() && text.attachments.is_empty());
    let cut = harness.refused("read_file", r#"{"path": "cut.png"}"#).await;
    assert_eq!(cut, "`cut.png` is a PNG image that is cut off or damaged");
}
