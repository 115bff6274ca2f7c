//! Rules that allow as much as `bash` without rules does: programs that run what they are given, and programs that send
//! it away.

use super::rules::words;

/// How a program comes to run, or to send, anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It runs the program that its words or its standard input hold, unless a file of its own is named.
    Interpreter,
    /// Its first word says what it does, and some of these run others.
    Group,
    /// It runs the command that its words are, behind its own options.
    Wrapper,
    /// One of its options or words runs a command, or sends a file away: any further words are too many.
    Any,
}

/// The programs, each with the words that have to follow for it to be so.
const PROGRAMS: &[(&str, Way)] = &[
    // Shells and languages.
    ("sh", Way::Interpreter),
    ("bash", Way::Interpreter),
    ("dash", Way::Interpreter),
    ("ash", Way::Interpreter),
    ("zsh", Way::Interpreter),
    ("ksh", Way::Interpreter),
    ("mksh", Way::Interpreter),
    ("fish", Way::Interpreter),
    ("csh", Way::Interpreter),
    ("tcsh", Way::Interpreter),
    ("pwsh", Way::Interpreter),
    ("nu", Way::Interpreter),
    ("python", Way::Interpreter),
    ("pypy", Way::Interpreter),
    ("ipython", Way::Interpreter),
    ("perl", Way::Interpreter),
    ("ruby", Way::Interpreter),
    ("irb", Way::Interpreter),
    ("node", Way::Interpreter),
    ("nodejs", Way::Interpreter),
    ("deno", Way::Interpreter),
    ("bun", Way::Interpreter),
    ("tsx", Way::Interpreter),
    ("ts-node", Way::Interpreter),
    ("php", Way::Interpreter),
    ("lua", Way::Interpreter),
    ("luajit", Way::Interpreter),
    ("tclsh", Way::Interpreter),
    ("expect", Way::Interpreter),
    ("awk", Way::Interpreter),
    ("gawk", Way::Interpreter),
    ("mawk", Way::Interpreter),
    ("nawk", Way::Interpreter),
    ("elixir", Way::Interpreter),
    ("julia", Way::Interpreter),
    ("R", Way::Interpreter),
    ("Rscript", Way::Interpreter),
    ("ghci", Way::Interpreter),
    ("groovy", Way::Interpreter),
    ("jshell", Way::Interpreter),
    ("osascript", Way::Interpreter),
    ("source", Way::Interpreter),
    (".", Way::Interpreter),
    ("eval", Way::Wrapper),
    // Programs that run others.
    ("env", Way::Wrapper),
    ("command", Way::Wrapper),
    ("exec", Way::Wrapper),
    ("builtin", Way::Wrapper),
    ("nohup", Way::Wrapper),
    ("timeout", Way::Wrapper),
    ("nice", Way::Wrapper),
    ("ionice", Way::Wrapper),
    ("chrt", Way::Wrapper),
    ("taskset", Way::Wrapper),
    ("setsid", Way::Wrapper),
    ("stdbuf", Way::Wrapper),
    ("time", Way::Wrapper),
    ("sudo", Way::Wrapper),
    ("doas", Way::Wrapper),
    ("su", Way::Any),
    ("runuser", Way::Any),
    ("setpriv", Way::Wrapper),
    ("unshare", Way::Wrapper),
    ("nsenter", Way::Wrapper),
    ("chroot", Way::Any),
    ("flock", Way::Any),
    ("strace", Way::Any),
    ("ltrace", Way::Any),
    ("gdb", Way::Any),
    ("script", Way::Any),
    ("watch", Way::Any),
    ("entr", Way::Any),
    ("parallel", Way::Any),
    ("xargs", Way::Wrapper),
    ("busybox", Way::Wrapper),
    ("toybox", Way::Wrapper),
    ("find", Way::Any),
    ("fd", Way::Any),
    ("make", Way::Any),
    ("gmake", Way::Any),
    ("just", Way::Any),
    ("ninja", Way::Any),
    ("tar", Way::Any),
    ("zip", Way::Any),
    ("sed", Way::Any),
    ("ed", Way::Any),
    ("ex", Way::Any),
    ("vi", Way::Any),
    ("vim", Way::Any),
    ("nvim", Way::Any),
    ("emacs", Way::Any),
    ("less", Way::Any),
    ("man", Way::Any),
    ("sqlite3", Way::Any),
    ("psql", Way::Any),
    ("mysql", Way::Any),
    ("npx", Way::Any),
    ("bunx", Way::Any),
    ("pnpx", Way::Any),
    ("uvx", Way::Any),
    // Only without, or with these, further words.
    ("bun run", Way::Interpreter),
    ("bun x", Way::Any),
    ("bun exec", Way::Any),
    ("deno run", Way::Interpreter),
    ("deno eval", Way::Any),
    ("uv", Way::Group),
    ("uv run", Way::Wrapper),
    ("npm", Way::Group),
    ("npm exec", Way::Any),
    ("npm x", Way::Any),
    ("pnpm", Way::Group),
    ("pnpm exec", Way::Any),
    ("pnpm dlx", Way::Any),
    ("yarn", Way::Group),
    ("yarn exec", Way::Any),
    ("yarn dlx", Way::Any),
    ("pipx", Way::Group),
    ("pipx run", Way::Any),
    ("pip", Way::Group),
    ("pip install", Way::Any),
    ("poetry", Way::Group),
    ("poetry run", Way::Wrapper),
    ("bundle", Way::Group),
    ("bundle exec", Way::Wrapper),
    ("go", Way::Group),
    ("go run", Way::Interpreter),
    ("cargo", Way::Group),
    ("docker", Way::Group),
    ("docker run", Way::Any),
    ("docker exec", Way::Any),
    ("podman", Way::Group),
    ("podman run", Way::Any),
    ("podman exec", Way::Any),
    ("kubectl", Way::Group),
    ("kubectl exec", Way::Any),
    ("kubectl run", Way::Any),
    ("git", Way::Group),
    ("git bisect", Way::Any),
    ("git clone", Way::Any),
    ("git config", Way::Any),
    ("git difftool", Way::Any),
    ("git fetch", Way::Any),
    ("git filter-branch", Way::Any),
    ("git grep", Way::Any),
    ("git ls-remote", Way::Any),
    ("git mergetool", Way::Any),
    ("git pull", Way::Any),
    ("git push", Way::Any),
    ("git rebase", Way::Any),
    ("git submodule", Way::Any),
    // Programs that send what they are given.
    ("curl", Way::Any),
    ("wget", Way::Any),
    ("http", Way::Any),
    ("https", Way::Any),
    ("nc", Way::Any),
    ("ncat", Way::Any),
    ("netcat", Way::Any),
    ("socat", Way::Any),
    ("openssl", Way::Any),
    ("ssh", Way::Any),
    ("scp", Way::Any),
    ("sftp", Way::Any),
    ("ftp", Way::Any),
    ("rsync", Way::Any),
    ("rclone", Way::Any),
    ("telnet", Way::Any),
    ("gh", Way::Group),
    ("gh api", Way::Any),
    ("gh gist", Way::Any),
    ("aws", Way::Group),
    ("gcloud", Way::Group),
    ("az", Way::Group),
];

/// Options of programs with subcommands whose value is the next word.
const WITH_VALUE: &[&str] = &[
    "-C",
    "-H",
    "-c",
    "-n",
    "--context",
    "--cwd",
    "--dir",
    "--directory",
    "--git-dir",
    "--host",
    "--namespace",
    "--prefix",
    "--project",
    "--work-tree",
];

/// Options after which a program only says something about itself.
const HARMLESS: &[&str] = &["--version", "-V", "-v", "--help", "-h"];

/// Whether a rule of `allow` lets a command do whatever it likes, or send whatever it can read.
pub(crate) fn is_free(rule: &str) -> bool {
    words(rule).is_some_and(|(words, open)| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        runs_anything(&words, open)
    })
}

/// Whether these words, with any further ones where they are `open`, run anything.
fn runs_anything(words: &[&str], open: bool) -> bool {
    let Some((program, rest)) = words.split_first() else { return open };
    let name = base_name(program);
    let of = |name: &str| PROGRAMS.iter().find(|(known, _)| *known == name).map(|(_, way)| *way);
    // What its first word does, it does behind options, too.
    let rest = if of(name) == Some(Way::Group) { behind_options(rest) } else { rest };
    let with_next = rest.first().map(|next| format!("{name} {next}"));
    let (way, rest) = match with_next.as_deref().and_then(of) {
        Some(way) => (way, &rest[1..]),
        None => match of(name) {
            Some(way) => (way, rest),
            None => return false,
        },
    };
    let is_option = |word: &&str| word.starts_with(['-', '+']) || word.contains('=');
    match way {
        Way::Any => open,
        Way::Group => open && rest.iter().all(is_option),
        // With nothing but options it reads its program from what comes next, or from its standard input.
        Way::Interpreter => {
            let reads_input = rest.len() + 1 == words.len() && !rest.iter().any(|word| HARMLESS.contains(word));
            (open || reads_input) && rest.iter().all(is_option)
        }
        Way::Wrapper => {
            // What it appends to the words comes from its standard input.
            let open = open || name == "xargs";
            let is_known = |word: &str| of(base_name(word)).is_some();
            let is_own = |at: usize| {
                let is_value = at > 0 && rest[at - 1].starts_with('-');
                is_value || is_option(&rest[at]) || rest[at].starts_with(|letter: char| letter.is_ascii_digit())
            };
            match rest.iter().position(|word| is_known(word)) {
                Some(at) => runs_anything(&rest[at..], open),
                None => open && (0..rest.len()).all(is_own),
            }
        }
    }
}

/// The words behind a program's own options, such as those of `git -C DIR log`.
fn behind_options<'a, 'b>(mut words: &'a [&'b str]) -> &'a [&'b str] {
    while let [option, rest @ ..] = words {
        words = match rest {
            _ if !option.starts_with(['-', '+']) => return words,
            [_, rest @ ..] if WITH_VALUE.contains(option) => rest,
            _ => rest,
        };
    }
    words
}

/// `python3` for `/usr/bin/python3.12`, without its version: `python`.
fn base_name(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or(program);
    let bare = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-'));
    // `7z` and `.` keep what they are.
    if bare.is_empty() || name == "sqlite3" { name } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_what_it_is_given_is_free() {
        for rule in [
            "sh -c *",
            "sh *",
            "/bin/sh -c *",
            "bash *",
            "bash",
            "bash -lc *",
            "env *",
            "env A=b *",
            "env python3 -c *",
            "python3 *",
            "python3.12 -c *",
            "python -",
            "perl -ne *",
            "node -e *",
            "ruby *",
            "awk *",
            "xargs *",
            "xargs sh",
            "xargs -n 1 sh -c",
            "find . *",
            "timeout 10 *",
            "timeout -s KILL 10 sh -c *",
            "sudo -u root *",
            "nohup *",
            "make test *",
            "npx *",
            "ssh host *",
            "git *",
            "git -c *",
            "git -C sub *",
            "git -C sub push *",
            "git --no-pager --git-dir .git *",
            "npm --prefix web exec *",
            "git push *",
            "tar *",
            "sed -n *",
            "curl *",
            "uv run *",
            "deno run *",
            "go run *",
            "npm *",
            "gh api *",
            "'sh' \"-c\" *",
        ] {
            assert!(is_free(rule), "{rule}");
        }
    }

    #[test]
    fn a_fixed_command_is_not() {
        for rule in [
            "git diff *",
            "git status",
            "cargo test *",
            "npm test *",
            "npm run build",
            "python3 scripts/check.py *",
            "python3 -m pytest *",
            "python3 --version",
            "bash scripts/test.sh *",
            "make test",
            "make",
            "find . -name x",
            "curl https://example.com/a",
            "env A=b cargo test *",
            "timeout 10 cargo test *",
            "xargs rm",
            "ls *",
            "rg *",
            "gh pr view *",
            "go test *",
            "awk '{ print $1 }' *",
            "sh -c 'echo hi'",
            "rm # *",
            "",
        ] {
            assert!(!is_free(rule), "{rule}");
        }
    }

    #[test]
    fn no_program_stands_here_twice() {
        for (at, (name, _)) in PROGRAMS.iter().enumerate() {
            assert!(!PROGRAMS[..at].iter().any(|(other, _)| other == name), "{name}");
        }
    }
}
