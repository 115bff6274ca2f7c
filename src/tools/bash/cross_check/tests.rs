use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

/// Pseudorandom texts of pieces that matter to a shell, the same in every run.
fn texts(count: usize) -> impl Iterator<Item = String> {
    let pieces = [
        "a",
        " ",
        "'",
        "\"",
        "\\",
        "$",
        "|",
        "&",
        ";",
        "\n",
        ">",
        "<",
        "/dev/null",
        "2",
        "1",
        "#",
        "!",
        "{",
        "}",
        "=",
        "~",
        "if",
        "b c",
        "*",
        "(",
        ")",
        ",",
        "\\\n",
        "\t",
        "é",
        "\u{a0}",
        "\r",
        "@",
        "[",
        "]",
        "^",
        "%",
        "-",
        ":",
    ];
    let mut seed = 42_u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap()
    };
    (0..count).map(move |_| {
        let tail: String = (0..next() % 10).map(|_| pieces[next() % pieces.len()]).collect();
        format!("a {tail}")
    })
}

#[test]
fn both_parsers_agree_on_what_the_strict_one_accepts() {
    let accepted: Vec<String> = texts(20_000).filter(|text| parse(text).is_ok()).collect();
    let differ: Vec<&String> = accepted.iter().filter(|text| parse_and_cross_check(text).is_err()).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert!(accepted.len() > 2_000, "{}", accepted.len());
}

/// Bash itself finds the same words in the original command as in the canonical one.
#[test]
fn bash_reads_the_canonical_command_the_same() {
    let given: Vec<(String, String)> = texts(8_000)
        .filter_map(|text| parse_and_cross_check(&text).ok().map(|script| (text, script.to_shell())))
        .collect();
    assert!(given.len() > 800, "{}", given.len());
    // No program is found, so this function is called for all of them, and prints its arguments.
    let run = r#"
        PATH=/nowhere
        command_not_found_handle() { printf '<%q>' "$@"; echo; printf err >&2; [ "$1" = a ]; }
        for text; do echo "--"; eval "$text"; echo "= $?"; done
    "#;
    let outputs = |texts: Vec<&String>| {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", run, "bash"]).args(texts).env("LC_ALL", "C.UTF-8");
        let output = bash.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        output.split("--\n").skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut said, mut differ) = (0, Vec::new());
    for chunk in given.chunks(400) {
        let before = outputs(chunk.iter().map(|(text, _)| text).collect());
        let after = outputs(chunk.iter().map(|(_, written)| written).collect());
        assert_eq!((before.len(), after.len()), (chunk.len(), chunk.len()));
        for ((before, after), (text, written)) in before.iter().zip(&after).zip(chunk) {
            said += usize::from(before.contains('<'));
            if before != after {
                differ.push(format!("{text:?} was written {written:?}: {before:?} and {after:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
    assert!(said > 400, "{said}");
}

/// Ten kilobytes of many kinds of input.
fn long() -> Vec<(&'static str, String)> {
    let line = r#"cargo test --lib "a b" 'c d' -- --nocapture && git diff --stat -- src/lib.rs | head -n 20; "#;
    let message = format!("git commit -m 'x' -m \"{}\"", "It's a line of a long message.\n".repeat(320));
    let files: String = (0..400).map(|at| format!(" 'src/folder/file-{at:04}'")).collect();
    let repeated = |part: &str| part.repeat(10_000 / part.len());
    let mut all = vec![
        ("a long message", message),
        ("many files", format!("git add{files}")),
        ("the most words", format!("a{}", " abcdefghi".repeat(999))),
        ("the most commands", format!("{}a{}", "a b 'c d' && ".repeat(90), " ".repeat(8_800))),
        ("many commands", line.repeat(30)),
        ("too many commands", repeated(line)),
    ];
    let parts = [
        "(",
        "$(",
        "$((",
        "{ ",
        "if ",
        "`",
        "${a:-",
        "[[ ( ",
        "<<a ",
        "case a in ",
        "! ",
        "@(",
        "'",
        "\"",
        "\\\n",
        "a|",
        "a&&",
        "a;",
        "\"a\" ",
        "$",
        "2>&1 ",
        "[",
        "<(",
        "a=(",
        "\u{e9}",
        "{a,",
        "\"$(",
        "((",
        "time ",
        "coproc ",
        "f() ",
    ];
    all.extend(parts.map(|part| (part, repeated(part))));
    all
}

#[test]
fn ten_kilobytes_of_any_input_take_little_time_and_stack() {
    // The stack size of a thread of the runtime.
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let measured = small.spawn(|| {
        long().into_iter().for_each(|(name, text)| {
            let start = processor_time();
            let _ = parse_and_cross_check(&text);
            let _ = parse_and_cross_check(&format!("a {text}"));
            // A debug build is allowed a few hundred times as much as a release build takes.
            let taken = processor_time() - start;
            assert!(taken < Duration::from_millis(500), "{name}: {taken:?}");
        });
    });
    measured.unwrap().join().unwrap();
}

/// The CPU time of this thread; always zero if the system doesn't report it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// `cargo test --release --lib bash::cross_check -- --ignored --nocapture`
#[test]
#[ignore = "prints times, which only a release build has"]
fn times_of_ten_kilobytes() {
    for (name, text) in long() {
        let once = || {
            let start = Instant::now();
            let accepted = parse_and_cross_check(&text).map(|script| script.to_shell()).is_ok();
            (start.elapsed(), accepted)
        };
        let mut times: Vec<_> = (0..101).map(|_| once()).collect();
        times.sort();
        println!(
            "{:>6} bytes, {:<18} {:>9.1?}  {}",
            text.len(),
            name.trim(),
            times[50].0,
            if times[50].1 { "read" } else { "refused" }
        );
    }
}
