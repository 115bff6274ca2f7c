use super::*;

fn written(text: &str) -> String {
    parse(text).map_or_else(|why| format!("error: {why}"), |script| script.to_shell())
}

#[test]
fn words_are_unquoted_and_quoted_again() {
    for (text, expected) in [
        ("cargo test", "'cargo' 'test'"),
        (r#"echo 'a b' "c d" e\ f 'it'\''s'"#, r"'echo' 'a b' 'c d' 'e f' 'it'\''s'"),
        (r#"echo "a\"b\\c\$d\e" "" ''"#, r#"'echo' 'a"b\c$d\e' '' ''"#),
        ("a && b || c; d\ne", "'a' && 'b' || 'c'\n'd'\n'e'"),
        ("a |\n b |& c 2>&1 >/dev/null", "'a' | 'b' |& 'c' 2>&1 >/dev/null"),
        ("a &>/dev/null </dev/null 2>>/dev/null >&2", "'a' &>/dev/null </dev/null 2>>/dev/null >&2"),
        ("! a # a comment; rm\n\n b;", "! 'a'\n'b'"),
        ("a \\\n  b\\\nc", "'a' 'bc'"),
        ("grep \"x$\" a$ HEAD~1 stash@{0} {} a=b #c", "'grep' 'x$' 'a$' 'HEAD~1' 'stash@{0}' '{}' 'a=b'"),
        ("'if' a", "'if' 'a'"),
        ("echo if a#b '*' \\* \"*\"", "'echo' 'if' 'a#b' '*' '*' '*'"),
    ] {
        assert_eq!(written(text), expected, "{text}");
    }
}

#[test]
fn unsupported_syntax_is_refused() {
    for text in [
        "",
        "  # nothing",
        "a $X",
        "a \"$X\"",
        "a ${X}",
        "a $(b)",
        "a `b`",
        "a \"`b`\"",
        "a \"$(b)\"",
        "a $'b'",
        "a $\"b\"",
        "a $((1))",
        "a $1",
        "a > f",
        "a >> f",
        "a 2> f",
        "a < f",
        "a << E\nE",
        "a <<< b",
        "a >| f",
        "a >& f",
        "a &> f",
        "a > /dev/null/x",
        "a 3>&1",
        "a <> f",
        "a <(b)",
        "a >(b)",
        "a >",
        "a 2>&",
        "a >&-",
        "a 12>/dev/null",
        "a &",
        "a & b",
        "(a)",
        "a; (b)",
        "f() { a; }",
        "{ a; }",
        "if a; then b; fi",
        "while a; do b; done",
        "for x in a; do b; done",
        "case a in esac",
        "[[ a ]]",
        "((a))",
        "time a",
        "coproc a",
        "function f { a; }",
        "X=1",
        "X=1 a",
        "X+=1 a",
        "X[0]=1 a",
        "PATH=. a",
        "a *",
        "a ?",
        "a [b]",
        "a {b,c}",
        "a {1..3}",
        "a ~",
        "a ~/b",
        "a x=~/b",
        "a;; b",
        "a &&",
        "a ||",
        "a |",
        "&& a",
        "| a",
        "; a",
        "a && && b",
        "!",
        "! ! a",
        "a | ! b",
        "'a",
        "\"a",
        "a \\",
        "@(a)",
        "2>&1",
    ] {
        assert!(parse(text).is_err(), "{text}: {}", written(text));
    }
    assert!(parse(&"a ".repeat(MAX_COMMAND_BYTES)).unwrap_err().what.contains("more than 16 kB"));
}

#[test]
fn unsupported_syntax_is_shown_where_it_begins() {
    for (text, what, part) in [
        ("a b | c $(d) e", "a command substitution", "$(d) e"),
        ("a && b x$Y", "an expansion (`$`)", "x$Y"),
        ("a >> file 2>&1", "a redirection", ">> file 2>&1"),
        ("a\nb; X=1 c\nd", "an assignment", "X=1 c"),
        ("a & b", "a background job (`&`)", "& b"),
        ("a; for x in y; do z; done", "`for` (only simple commands are supported)", "for x in y; do z; done"),
        ("a |", "a missing command", ""),
    ] {
        let unsupported = parse(text).unwrap_err();
        assert_eq!((unsupported.what.as_str(), unsupported.excerpt.as_str()), (what, part), "{text}");
    }
    let unsupported = parse(&format!("a {}$b", "é".repeat(200))).unwrap_err();
    assert_eq!(unsupported.excerpt, format!("{}…", "é".repeat(60)));
    assert_eq!(unsupported.to_string(), format!("an expansion (`$`) at `{}`", unsupported.excerpt));
}

#[test]
fn long_commands_are_refused() {
    for (text, bound) in [
        ("a ".repeat(1_001), "1000 words"),
        (format!("a {}", "2>&1 ".repeat(1_000)), "1000 words"),
        ("a;".repeat(101), "100 commands"),
        ("a|".repeat(101), "100 commands"),
        ("a\n".repeat(101), "100 commands"),
    ] {
        let unsupported = parse(&text).unwrap_err();
        assert!(unsupported.what.contains(bound), "{unsupported}");
    }
    assert!(parse(&"a ".repeat(1_000)).is_ok() && parse(&"a;".repeat(100)).is_ok());
}
