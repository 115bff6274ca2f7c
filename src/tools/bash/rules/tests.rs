use super::*;

fn rules(patterns: &[&str]) -> Rules {
    Rules::new(&patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn allows(rules: &Rules, command: &str) -> bool {
    rules.check(command, &std::env::temp_dir().canonicalize().unwrap()).is_ok()
}

#[test]
fn a_rule_is_words_and_a_star_is_any_further_ones() {
    let rules = rules(&["cargo test *", "git status", "npm run 'my task'"]);
    for command in [
        "cargo test",
        "cargo test --lib 'a b'",
        "'cargo' \"test\"",
        "git status",
        "npm run \"my task\"",
        "cargo  test;git status",
    ] {
        assert!(allows(&rules, command), "{command}");
    }
    for command in [
        "cargo",
        "cargo build",
        "cargo testing",
        "git status -s",
        "npm run my task",
        "cargo test && rm x",
        "rm x | cargo test",
    ] {
        assert!(!allows(&rules, command), "{command}");
    }
}

#[test]
fn filters_are_free_behind_a_pipe_as_long_as_they_touch_no_file() {
    let rules = rules(&["ls *"]);
    for filter in [
        "head",
        "head -5",
        "head -n 5",
        "head -n-1",
        "tail -n +2",
        "tail -c20",
        "wc -lw",
        "sort -rn",
        "sort -k2,2n -t ,",
        "sort -nk 2",
        "uniq -c",
        "uniq -cf 1",
    ] {
        assert!(allows(&rules, &format!("ls | {filter}")), "{filter}");
        assert!(!allows(&rules, filter), "{filter} alone");
    }
    for filter in [
        "head /etc/passwd",
        "head -n 5 x",
        "tail -f",
        "tail -F x",
        "wc -l x",
        "wc --files0-from=x",
        "sort -o x",
        "sort -ox",
        "sort -ro x",
        "sort --output=x",
        "sort --compress-program=x",
        "sort -T x",
        "sort -",
        "uniq x",
        "uniq - x",
        "head -n",
        "sort -5",
        "cat",
        "xargs rm",
        "tee x",
        "head --",
    ] {
        assert!(!allows(&rules, &format!("ls | {filter}")), "{filter}");
    }
}

#[test]
fn cd_stays_beneath_the_workspace() {
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::os::unix::fs::symlink("/", root.join("out")).unwrap();
    std::os::unix::fs::symlink("a/b", root.join("inner")).unwrap();
    std::os::unix::fs::symlink("a", root.join("deep")).unwrap();
    let rules = rules(&["ls *", "./run *"]);
    let absolute = format!("cd {} && ls", root.join("a").display());
    for command in [
        "cd a && ls",
        "cd a && ls && cd .. && ls",
        "cd a/b && ls && cd ../.. && ./run",
        "cd a && ls | wc -l && cd b && ls",
        "cd ./a/../a && ls",
        "cd new && ls",
        "! cd a || ls",
        "cd inner && cd ..",
        "ls | cd a; ./run",
        "cd a || ./run",
        &absolute,
    ] {
        assert!(rules.check(command, &root).is_ok(), "{command}");
    }
    for command in [
        "cd / && ls",
        "cd .. && ls",
        "cd a/../.. && ls",
        "cd && ls",
        "cd - && ls",
        "cd a b",
        "cd out",
        "cd out/etc",
        "cd a; cd ../..",
        "cd a; cd ..",
        "cd a && cd .. && cd ..",
        "cd a || cd ..",
        "ls && cd a; ls && cd ..",
        "! cd a && cd ..",
        "cd a && ls || ls && cd ..",
        "cd deep/../..",
        "cd deep && cd ../..; ls",
        "cd a; ./run",
        "cd a && ls; ./run",
        "cd ''",
        "cd a && ./run",
    ] {
        assert!(rules.check(command, &root).is_err(), "{command}");
    }
    assert!(rules.check("./run x", &root).is_ok());
}

#[test]
fn a_bad_rule_is_found() {
    for pattern in ["", "*", "a * b", "a*", "a | b", "a; b", "a > x", "X=1 a", "a $B", "! a", "a >/dev/null", "(a)"] {
        assert!(Rules::new(&["ok".to_owned(), pattern.to_owned()]).is_err_and(|(at, _)| at == 1), "{pattern}");
    }
    assert!(allows(&rules(&[r"echo \*"]), "echo '*'"));
    assert!(!allows(&rules(&[]), "true"));
}

#[test]
fn a_link_does_not_lead_a_cd_out_of_the_workspace() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("ws/a/b")).unwrap();
    let root = folder.path().join("ws").canonicalize().unwrap();
    std::os::unix::fs::symlink("a/b", root.join("link")).unwrap();
    let command = rules(&["pwd"]).check("cd link/../.. && pwd", &root).unwrap();
    let ran = std::process::Command::new("bash").args(["-c", &command]).current_dir(&root).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap().trim_end(), root.to_str().unwrap());
}

/// What a rule must never let through, each tried on its own and behind an allowed command.
#[test]
fn evasions_are_denied() {
    let rules = rules(&["echo *", "git diff *", "cargo test *"]);
    for evasion in [
        "rm x",
        "echo a; rm x",
        "echo a\nrm x",
        "echo a\r\nrm x",
        "echo a && rm x",
        "echo a || rm x",
        "echo a | rm x",
        "echo a |& rm x",
        "echo a & rm x",
        "echo a &",
        "echo a &\n",
        "echo $(rm x)",
        "echo `rm x`",
        "echo \"$(rm x)\"",
        "echo \"`rm x`\"",
        "echo \"a\\\\`rm x`\"",
        "echo ${X:-$(rm x)}",
        "echo $((a[$(rm x)]))",
        "echo $[1+1]",
        "echo $HOME",
        "echo \"$HOME\"",
        "echo ${HOME}",
        "echo $'a\\x3brm'",
        "echo $\"a\"",
        "echo $\\\n(rm x)",
        "echo \"$\\\n(rm x)\"",
        "echo <(rm x)",
        "echo >(rm x)",
        "echo a > x",
        "echo a >> x",
        "echo a >| x",
        "echo a >& x",
        "echo a &> x",
        "echo a &>> x",
        "echo a <> x",
        "echo a 2> x",
        "echo a 3> x",
        "echo a 2>/dev/nullx",
        "echo a >/dev/null/../../x",
        "echo a >/dev/tcp/localhost/80",
        "echo a 2>&3",
        "echo a >&-",
        "echo a {fd}> x",
        "echo < x",
        "echo << x\nrm\nx",
        "echo <<< x",
        "X=1 echo a",
        "PATH=. echo a",
        "PATH=.\necho a",
        "a[0]=1 echo a",
        "X+=1 echo a",
        "(echo a)",
        "(rm x)",
        "{ rm x; }",
        "if rm x; then echo a; fi",
        "for a in b; do rm x; done",
        "while rm x; do echo a; done",
        "case a in a) rm x;; esac",
        "echo() { rm x; }; echo a",
        "function echo { rm x; }",
        "[[ -v a ]]",
        "time rm x",
        "! rm x",
        "coproc rm x",
        "exec rm x",
        "eval echo a",
        "command rm x",
        "builtin eval rm x",
        "source x",
        ". x",
        "alias echo=rm",
        "trap 'rm x' EXIT",
        "export PATH=.",
        "set -x",
        "env rm x",
        "./echo a",
        "/tmp/echo a",
        "ECHO a",
        "ech\\o\\ a",
        "'echo a'",
        "echo\u{a0}a",
        "echo\u{2003}a",
        "e*o a",
        "echo *",
        "echo [a]",
        "echo a?",
        "echo ~",
        "echo {a,b}",
        "echo {1..9}",
        "git",
        "git -c core.pager=x diff",
        "git --exec-path=. diff",
        "git diffx",
        "git 'diff x'",
        "cd .. && echo a",
        "cd / && echo a",
        "echo a | sort -o x",
        "echo a | sort --compress-program=x",
        "echo a | tail -f x",
        "echo a | head x",
        "echo a | wc --files0-from=x",
        "echo a | uniq - x",
        "echo a | sort | tee x",
        "sort x",
        "echo 'a",
        "echo \"a",
        "echo a \\",
        "echo a;;",
        "echo a |",
        "echo a &&",
        "echo a | | rm",
        "",
        "  ",
        "# echo",
    ] {
        assert!(!allows(&rules, evasion), "{evasion}");
        assert!(
            evasion.trim().is_empty() || evasion.starts_with('#') || !allows(&rules, &format!("echo a\n{evasion}"))
        );
        assert!(!allows(&rules, &format!("cargo test && {evasion}")), "{evasion}");
    }
}

/// What people and models write every day, under ordinary rules.
#[test]
fn ordinary_commands_are_allowed() {
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("sub/deep")).unwrap();
    let rules = rules(&[
        "cargo test *",
        "cargo clippy *",
        "git diff *",
        "git log *",
        "git status *",
        "git show *",
        "ls *",
        "rg *",
        "npm run build",
        "make -j4",
        "python -m pytest *",
        "./run.sh *",
        "sed -n *",
        "find *",
        "git commit -m *",
        "echo *",
    ]);
    for command in [
        "cargo test",
        "cargo test -- --nocapture",
        "cargo test 2>&1",
        "cargo test 2>&1 | tail -n 20",
        "cargo test 2>&1 | tail -20",
        "cargo test --quiet >/dev/null 2>&1 && echo passed || echo failed",
        "cargo test &>/dev/null; echo done",
        "cargo test 2> /dev/null | wc -l",
        "cargo test </dev/null",
        "cd sub && cargo test",
        "cd sub/deep && git status && cd .. && ls",
        "cd ./sub; cargo test",
        "git diff --stat -- 'a b'",
        "git diff HEAD~1..HEAD -- src/",
        "git diff HEAD^ -- \"a b\" c\\ d",
        "git diff main...feature",
        "git diff HEAD@{1}",
        "git show HEAD:src/lib.rs | head -n 50",
        "git log --oneline -n 20",
        "git log --format='%h %s' | head",
        "git log --pretty=format:\"%h $ %s\"",
        "git log --since=\"2 weeks ago\" | sort | uniq -c | sort -rn | head -5",
        "git status --short;",
        "git status\n",
        "git status # what is new",
        "git status --short \\\n  --branch",
        "git status &&\n  git diff",
        "ls -la",
        "ls -1 | sort -k2,2n -t, | uniq",
        "ls | sort -u | wc -l",
        "rg 'fn \\w+\\(' src",
        "rg \"a|b\" --glob '*.rs'",
        "rg -n \"TODO: it's\" .",
        "rg 'a$' x",
        "rg \"a$\" x",
        "npm run build",
        "make -j4",
        "python -m pytest -k 'a and not b' -q | tail -n +3",
        "./run.sh --all",
        "sed -n '1,20p' src/lib.rs",
        "sed -n 1,20p a=b",
        "find . -name '*.rs' -not -path './target/*'",
        "find . -name \\*.rs",
        "git commit -m 'a: b; c && d > e'",
        "git commit -m \"line one\n\nline two\"",
        "echo '$HOME' \"\\$HOME\" '`x`'",
        "! rg -q TODO src",
    ] {
        let allowed = rules.check(command, &root);
        assert!(allowed.is_ok(), "{command}: {allowed:?}");
    }
}
