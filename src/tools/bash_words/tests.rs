use super::*;

fn written(text: &str) -> String {
    read(text).map_or_else(|why| format!("error: {why}"), |script| script.write())
}

#[test]
fn words_are_unquoted_and_written_anew() {
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
fn what_cannot_be_judged_is_refused() {
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
        assert!(read(text).is_err(), "{text}: {}", written(text));
    }
    assert!(read(&"a ".repeat(MAX_COMMAND)).unwrap_err().contains("more than 16 kB"));
}

#[test]
fn ten_kilobytes_are_read_in_less_than_a_millisecond_each_whatever_they_hold() {
    let start = std::time::Instant::now();
    for part in ["a ", "'", "(", "\\\n", "a|", "a;", "\"a\" ", "if ", "{", "$", "2>&1 ", "! ", "[", "a&&", "<<", "é"] {
        let _ = read(&part.repeat(10_000 / part.len()));
    }
    // A debug build on a busy machine is allowed a hundred times as much.
    assert!(start.elapsed().as_millis() < 16 * 100);
}

/// A shell's whole parser reads the same words from whatever is accepted here.
#[test]
fn a_whole_parser_agrees() {
    use brush_parser::ast;
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
    ];
    let mut seed = 42_u64;
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut text = String::from("a ");
        for _ in 0..8 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[usize::try_from(seed >> 33).unwrap() % pieces.len()]);
        }
        let Ok(script) = read(&text) else { continue };
        accepted += 1;
        let ours: Vec<usize> = script.pipelines.iter().map(|pipeline| pipeline.commands.len()).collect();
        let options = brush_parser::ParserOptions::default();
        let program = brush_parser::Parser::new(std::io::Cursor::new(text.as_bytes()), &options).parse_program();
        let Ok(program) = program else { panic!("{text:?} is no shell, but was read as {:?}", script.write()) };
        let mut theirs = Vec::new();
        for ast::CompoundListItem(list, _) in program.complete_commands.into_iter().flat_map(|list| list.0) {
            theirs.push(list.first.seq.len());
            theirs.extend(list.additional.iter().map(|next| match next {
                ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => pipeline.seq.len(),
            }));
        }
        assert_eq!(ours, theirs, "{text:?} was read as {:?}", script.write());
    }
    assert!(accepted > 500, "{accepted}");
}
