use super::*;

fn rules(patterns: &[&str]) -> CommandRules {
    CommandRules::new(&patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn allows(rules: &CommandRules, command: &str) -> bool {
    rules.check(command, &std::env::temp_dir().canonicalize().unwrap()).is_ok()
}

#[test]
fn a_final_star_allows_any_further_words() {
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
fn filters_without_files_need_no_rule_after_a_pipe() {
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
        "cat",
        "cat -n",
        "nl -ba -w 3",
        "cut -d: -f1,3-",
        "cut -c 1-80",
        "tr a-z A-Z",
        "tr -d '\\r'",
        "tr -s ' ' '\\n'",
        "tr - _",
        "grep error",
        "grep -in 'a b'",
        "grep -3 x",
        "grep -A2 -B 2 x",
        "grep -m1 -e -f",
        "grep -v -e a -e b",
        "grep -oP '\\d+'",
        "jq",
        "jq .",
        "jq -r '.items[] | select(.name == \"x\") | .environment'",
        "jq -nR '[inputs]'",
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
        "cat x",
        "cat -",
        "cat -n x",
        "cat --",
        "nl x",
        "nl -ba x",
        "cut -f1 x",
        "cut -d: x -f1",
        "cut --files0-from=x",
        "cut -d",
        "tr a b c",
        "tr -x a b",
        "grep a x",
        "grep a -",
        "grep -r a",
        "grep -R a",
        "grep -ir a",
        "grep -f x",
        "grep -fx",
        "grep -nf x",
        "grep -vfx a",
        "grep a -f x",
        "grep -e a x",
        "grep x -e a",
        "grep -ea x",
        "grep --file=x",
        "grep --include=x a",
        "grep -d recurse a",
        "grep -- a x",
        "grep -D read a",
        "jq . x",
        "jq -f x",
        "jq -rf x",
        "jq -L x .",
        "jq -Lx .",
        "jq --slurpfile a x .",
        "jq --rawfile a x .",
        "jq --from-file x",
        "jq --argfile a x .",
        "jq --args . x",
        "jq env",
        "jq -n '$ENV.HOME'",
        "jq '\"\\(env.HOME)\"'",
        "jq -n '$__loc__, env|keys'",
        "jq 'include \"x\"; .'",
        "jq -n 'import \"x\" as $x {search:\"./\"}; $x'",
        "jq -n '\"x\"|modulemeta'",
        "jq input_filename",
        "jq -i .",
        "sed p",
        "awk 1",
        "xargs rm",
        "tee x",
        "head --",
    ] {
        assert!(!allows(&rules, &format!("ls | {filter}")), "{filter}");
    }
}

#[test]
fn cd_stays_within_the_workspace() {
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
fn invalid_rules_are_reported() {
    for pattern in ["", "*", "a * b", "a*", "a | b", "a; b", "a > x", "X=1 a", "a $B", "! a", "a >/dev/null", "(a)"] {
        assert!(CommandRules::new(&["ok".to_owned(), pattern.to_owned()]).is_err(), "{pattern}");
    }
    assert!(allows(&rules(&[r"echo \*"]), "echo '*'"));
    assert!(!allows(&rules(&[]), "true"));
}

#[test]
fn cd_through_a_link_cannot_leave_the_workspace() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("ws/a/b")).unwrap();
    let root = folder.path().join("ws").canonicalize().unwrap();
    std::os::unix::fs::symlink("a/b", root.join("link")).unwrap();
    let command = rules(&["pwd"]).check("cd link/../.. && pwd", &root).unwrap();
    let ran = std::process::Command::new("bash").args(["-c", &command]).current_dir(&root).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap().trim_end(), root.to_str().unwrap());
}

/// The same list through the real binary: `tests/tools/bash_rules.rs`.
#[test]
fn bypasses_are_denied_except_those_of_the_program_itself() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bash_rules/corpus.yaml");
    let corpus: serde_yaml::Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let words = |value: &serde_yaml::Value| value.as_str().unwrap().to_owned();
    let allow: Vec<String> = corpus["allow"].as_sequence().unwrap().iter().map(words).collect();
    let rules = CommandRules::new(&allow).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("sub/deep")).unwrap();
    std::os::unix::fs::symlink("/usr", root.join("out")).unwrap();
    let ways = corpus["bypasses"].as_sequence().unwrap();
    assert!(ways.len() > 250);
    for way in ways {
        let command = words(&way["command"]).replace("WORK", root.to_str().unwrap()).replace("OUT", "/usr");
        let judged = rules.check(&command, &root);
        assert_eq!(judged.is_ok(), way["verdict"] == "contained", "{command}: {judged:?}");
        for head in ["echo b\n", "cargo test && ", "cat a | head -n 2; "] {
            let judged = rules.check(&format!("{head}{command}"), &root);
            assert_eq!(judged.is_ok(), way["verdict"] == "contained", "{head}{command}: {judged:?}");
        }
    }
}

/// Everyday commands of people and models, under ordinary rules.
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

#[test]
fn builtins_that_set_variables_are_denied_whatever_the_rules_allow() {
    let rules = rules(&["printf *", "wait *", "command *", "exec *", "test *", "ls *"]);
    for command in [
        "printf '%s\\n' PATH",
        "printf -- '%s' -v",
        "printf '%%n' PATH",
        "printf '100%% new'",
        "printf '%(%F)T n'",
        "printf 'a\\x25n' PATH",
        "wait",
        "wait -n",
        "command ls",
        "command -v ls",
        "exec ls",
        "test -n x",
    ] {
        assert!(allows(&rules, command), "{command}");
    }
    for command in [
        "printf 'x%n' PATH; ls",
        "printf -- 'x%n' PATH",
        "printf '%%%n' PATH",
        "printf '%5n' PATH",
        "printf '%-08.*ln' 3 PATH",
        "printf '%s%n' a PATH",
        "printf -vPATH x",
        "wait -n -p PATH",
        "wait -np PATH",
        "command printf %n PATH",
        "command -p printf -v PATH .",
        "command cd bin",
        "command command printf %n PATH",
        "exec read PATH",
        "command eval x",
        "command builtin printf %n PATH",
    ] {
        assert!(!allows(&rules, command), "{command}");
    }
}

#[test]
fn no_rule_can_allow_a_builtin_that_changes_the_shell() {
    for rule in
        ["read *", "mapfile *", "export *", "declare -x *", "let *", "getopts *", "eval *", ". *", "command read *"]
    {
        let why = CommandRules::new(&[rule.to_owned()]).unwrap_err();
        assert!(why.contains("can't be allowed by a rule"), "{rule}: {why}");
    }
}

#[test]
fn a_rule_contains_only_words() {
    for rule in [
        "rm # *",
        "rm # x",
        "  # x",
        "rm; *",
        "rm ;",
        "rm 2>&1 *",
        "rm >/dev/null *",
        "rm\n*",
        "rm \\\n *",
        "r\\\nm *",
        "rm\n-f *",
        "'' *",
        "\"\" x",
        "# *",
        "#",
        "A=b *",
        "! rm *",
        "rm && *",
        "rm & *",
        "rm | *",
    ] {
        assert!(CommandRules::new(&[rule.to_owned()]).is_err(), "{rule:?}");
    }
    for rule in
        ["git log --grep '# x' *", "git log \"a;b\" *", "x '' *", "git diff *\n", " git diff * ", "a#b *", "x \\# *"]
    {
        assert!(CommandRules::new(&[rule.to_owned()]).is_ok(), "{rule:?}");
    }
    assert_eq!(rule_words("git  diff *"), Some((vec!["git".to_owned(), "diff".to_owned()], true)));
}
