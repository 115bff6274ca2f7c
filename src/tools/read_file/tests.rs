use super::*;
use crate::tools::toolbox::tests::ToolHarness;

#[tokio::test]
async fn lines_come_numbered_and_in_parts() {
    let bench = ToolHarness::new(&["read_file"]);
    bench.write("a.txt", "one\ntwo\nthree\nfour");
    assert_eq!(
        bench.ok("read_file", r#"{"path": "a.txt"}"#).await,
        "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour"
    );
    assert_eq!(
        bench.ok("read_file", r#"{"path": "./a.txt", "offset": "2", "limit": 2}"#).await,
        "     2\ttwo\n     3\tthree\n(1 more lines; go on with offset 4)"
    );
    let past = bench.refused("read_file", r#"{"path": "a.txt", "offset": 9}"#).await;
    assert_eq!(past, "`a.txt` has only 4 lines; line 9 is past its end");
    assert!(bench.ok("read_file", r#"{"path": "a.txt", "offset": 0, "limit": 1}"#).await.starts_with("     1\tone"));
}

#[tokio::test]
async fn what_is_special_about_a_file_is_said() {
    let bench = ToolHarness::new(&["read_file"]);
    bench.write("empty", "");
    bench.write("crlf", "a\r\nb\r\n");
    bench.write("mixed", "a\r\nb\nc\r\n");
    bench.write("one", "a\r\nb");
    bench.write("long", format!("{}\nend\n", "x".repeat(100_000)));
    bench.write("binary", [0x7f, b'E', 0, 1]);
    bench.write("latin", b"caf\xe9\n");
    assert_eq!(bench.ok("read_file", r#"{"path": "empty"}"#).await, "`empty` is empty");
    assert_eq!(bench.ok("read_file", r#"{"path": "crlf"}"#).await, "     1\ta\n     2\tb\n(lines end in CRLF)");
    let mixed = "mixed line endings: some lines end in CRLF, others in LF";
    assert_eq!(
        bench.ok("read_file", r#"{"path": "mixed"}"#).await,
        format!("     1\ta\n     2\tb\n     3\tc\n({mixed})")
    );
    let part = bench.ok("read_file", r#"{"path": "mixed", "limit": 1}"#).await;
    assert!(part.contains(mixed), "of the whole file, not of what is shown: {part}");
    assert_eq!(bench.ok("read_file", r#"{"path": "one"}"#).await, "     1\ta\n     2\tb\n(lines end in CRLF)");
    let long = bench.ok("read_file", r#"{"path": "long"}"#).await;
    assert!(long.len() < 3000 && long.contains("[... cut; the line has 100000 bytes]\n     2\tend"), "{long}");
    assert_eq!(bench.refused("read_file", r#"{"path": "binary"}"#).await, "`binary` is a binary file of 4 bytes");
    assert_eq!(bench.ok("read_file", r#"{"path": "latin"}"#).await, "     1\tcaf\u{fffd}");
}

#[tokio::test]
async fn a_cut_shows_no_part_of_a_secret() {
    let bench = ToolHarness::with(
        &["read_file", "grep", "edit_file"].map(crate::tools::toolbox::tests::grant),
        &[("token".into(), "s3cr3t-t0ken".into())],
    );
    for before in 1980..2001 {
        bench.write("f", format!("{}s3cr3t-t0ken{}", "ä".repeat(before), "z".repeat(9000)));
        let text = bench.ok("read_file", r#"{"path": "f"}"#).await;
        assert!(!text.contains("s3") && text.contains("z[... cut") == (before < 1986), "{before}: {text}");
    }
    for before in 80..140 {
        bench.write("f", format!("{}s3cr3t-t0ken{}needle{}", "a".repeat(300), "b".repeat(before), "z".repeat(9000)));
        let text = bench.ok("grep", r#"{"pattern": "needle"}"#).await;
        assert!(!text.contains("t0k") && !text.contains("3t") && text.contains("needle"), "{before}: {text}");
    }
    bench.write("g", format!("{}s3cr3t-t0ken\nend\n", "a".repeat(495)));
    let text = bench.ok("edit_file", r#"{"path": "g", "old_text": "end", "new_text": "x"}"#).await;
    assert!(!text.contains("s3"), "{text}");
}

#[tokio::test]
async fn a_long_file_says_where_to_go_on() {
    let bench = ToolHarness::new(&["read_file"]);
    bench.write("big", (1..=100_000).map(|line| format!("this is line {line}\n")).collect::<String>());
    let text = bench.ok("read_file", r#"{"path": "big", "limit": 99999}"#).await;
    assert!(text.chars().count() <= MAX_RESULT_CHARS && !text.contains("left out"));
    let (shown, rest) = text.rsplit_once("\n(").unwrap();
    let last: u64 = shown.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert_eq!(rest, format!("{} more lines; go on with offset {})", 100_000 - last, last + 1));
    let next = bench.ok("read_file", &format!(r#"{{"path": "big", "offset": {}}}"#, last + 1)).await;
    assert!(next.starts_with(&format!("{:>6}\tthis is line {}\n", last + 1, last + 1)));
    assert_eq!(next.lines().count(), 2001.min(next.lines().count()));
}

#[tokio::test]
async fn what_is_no_file_is_refused_without_waiting() {
    let bench = ToolHarness::new(&["read_file"]);
    bench.write("src/lib.rs", "");
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.path("pipe"), rustix::fs::Mode::RWXU).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", bench.path("link")).unwrap();
    for (path, why) in [
        ("src", "is a folder"),
        ("pipe", "not a regular file"),
        ("link", "leads out of the workspace"),
        ("../x", "leads out of the workspace"),
        ("/etc/passwd", "leads out of the workspace"),
        ("src/../../x", "leads out of the workspace"),
        ("src/lib.sr", "does not exist; did you mean `src/lib.rs`?"),
        ("scr/lib.rs", "does not exist; did you mean `src`?"),
        ("~/.bashrc", "`~/.bashrc` does not exist"),
        ("src/lib.rs/x", "a file, not a folder"),
        ("", "is a folder"),
    ] {
        let text = bench.refused("read_file", &format!(r#"{{"path": "{path}"}}"#)).await;
        assert!(text.contains(why), "{path}: {text}");
    }
    let absolute = bench.path("src/lib.rs");
    assert!(bench.ok("read_file", &format!(r#"{{"path": {absolute:?}}}"#)).await.contains("is empty"));
}

#[tokio::test]
async fn a_file_of_any_size_costs_little() {
    let bench = ToolHarness::new(&["read_file"]);
    // Nothing but NULs; then text at the start, and one line without an end.
    bench.write("zeros", "");
    bench.write("line", "x".repeat(SNIFFED_BYTES));
    bench.write("lines", "line\n".repeat(SNIFFED_BYTES));
    for name in ["zeros", "line", "lines"] {
        std::fs::File::options().append(true).open(bench.path(name)).unwrap().set_len(10 << 30).unwrap();
    }
    let zeros = bench.refused("read_file", r#"{"path": "zeros"}"#).await;
    assert_eq!(zeros, format!("`zeros` is a binary file of {} bytes", 10_u64 << 30));
    let lines = bench.ok("read_file", r#"{"path": "lines", "limit": 2}"#).await;
    assert!(
        lines.ends_with("     2\tline\n(the file goes on (it is too long to be read whole); go on with offset 3)"),
        "{lines}"
    );
    let line = bench.ok("read_file", r#"{"path": "line"}"#).await;
    assert!(line.len() < 3000 && line.contains("(the file goes on ("), "{line}");
    let far = bench.refused("read_file", r#"{"path": "lines", "offset": 99999}"#).await;
    assert!(far.contains("line 99999 wasn't reached"), "{far}");
}

#[tokio::test]
async fn a_cancelled_call_ends_within_a_line() {
    let bench = ToolHarness::new(&["read_file"]);
    bench.write("line", "x".repeat(SNIFFED_BYTES));
    std::fs::File::options().append(true).open(bench.path("line")).unwrap().set_len(10 << 30).unwrap();
    bench.limits.cancel.cancel();
    let text = bench.call("read_file", r#"{"path": "line"}"#).await.text;
    assert!(text.contains("cancelled"), "{text}");
}

#[tokio::test]
async fn an_image_is_left_out_with_a_note() {
    let bench = ToolHarness::new(&["read_file"]);
    let images: [(&str, &[u8], &str); 4] = [
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG, 16 bytes"),
        ("b.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0", "JPEG, 11 bytes"),
        ("c", b"GIF89a\x01\0\x01\0", "GIF, 10 bytes"),
        ("d.webp", b"RIFF\x1a\0\0\0WEBPVP8L", "WebP, 16 bytes"),
    ];
    for (name, bytes, kind) in images {
        bench.write(name, bytes);
        let said = bench.ok("read_file", &format!(r#"{{"path": "{name}"}}"#)).await;
        assert_eq!(said, format!("[`{name}` is an image ({kind}), and results hold text only: it is left out]"));
    }
    bench.write("text.txt", b"GIF89a and BM are words, too\n");
    assert!(bench.ok("read_file", r#"{"path": "text.txt"}"#).await.contains("are words"));
}
