//! What legwork itself starts, and what it obeys: nothing that a run, or a checkout, could have written.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::models::user_servers::server_config;
use crate::support::journal::with_checksums;
use crate::support::program::Program;
use crate::support::sample;
use crate::support::server::{Answer, Checks, Request, Server};
use crate::support::terminal::Terminal;
use crate::support::test_folder::TestFolder;

const OWN_JOB: &str = "
model: replay/script.yaml
parent: { prompt: Go., tools: [bash, read_file, write_file, edit_file, task] }
subagents:
  w: { description: Writes., tools: [bash, read_file, write_file], workspace: own }
";

/// The file that a planted program makes. No command can: it is outside of the workspace.
fn canary(folder: &TestFolder) -> PathBuf {
    folder.home().join("canary")
}

#[track_caller]
fn assert_nothing_ran(folder: &TestFolder, why: &str) {
    assert!(!canary(folder).exists(), "{why}: {}", fs::read_to_string(canary(folder)).unwrap_or_default());
}

/// A program that reports that it ran, and does what the real one does.
fn trap(folder: &TestFolder, name: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    format!("#!/bin/sh\necho \"$0 $*\" >> {}\nPATH={path} exec {name} \"$@\"\n", canary(folder).display())
}

fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A folder with links to all programs of the machine but bubblewrap.
fn path_without_bubblewrap(folder: &TestFolder) -> String {
    let programs = folder.home().join("programs");
    if !programs.exists() {
        fs::create_dir_all(&programs).unwrap();
        for from in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
            for entry in fs::read_dir(from).into_iter().flatten().flatten().filter(|entry| entry.file_name() != "bwrap")
            {
                let _ = symlink(entry.path(), programs.join(entry.file_name()));
            }
        }
    }
    programs.display().to_string()
}

/// The parent runs a command, then a subagent runs another one in a workspace of its own.
fn script(first: &str, own: &str) -> String {
    let call = |tool: &str, input: Value| json!({ "calls": [{ "tool": tool, "input": input }] });
    let bash = |command: &str| call("bash", json!({ "command": command }));
    let task = call("task", json!({ "agent": "w", "description": "d", "prompt": "p" }));
    json!({
        "parent": [bash(first), task, { "text": "done" }],
        "subagents": { "w-1": [bash(own), { "text": "sub" }] },
    })
    .to_string()
}

fn own_workspace(first: &str, own: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.write("job.yaml", OWN_JOB).write("script.yaml", script(first, own)).write(".gitignore", "runs/\n");
    folder.write("a", "1\n");
    folder
}

#[test]
fn a_repository_that_a_command_makes_is_not_obeyed() {
    for without_bubblewrap in [false, true] {
        let folder = own_workspace("true", "echo 2 > a");
        folder.commit_all();
        let commit = folder.git(&["rev-parse", "HEAD"]).trim().to_owned();
        folder.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},sub")]);
        folder.git(&["commit", "--quiet", "--message=sub"]);
        fs::create_dir(folder.at("sub")).unwrap();
        let canary = canary(&folder);
        let canary = canary.display();
        let plant = format!(
            "cd sub; git init -q .; cp -r ../.git/objects .git/; echo {commit} > .git/HEAD; git read-tree {commit}; git \
             checkout-index -a; echo '* filter=x' > .gitattributes; git config filter.x.clean 'id > {canary}; cat'; git \
             config core.fsmonitor 'id > {canary}'; touch -d 2001-01-01 a"
        );
        folder.write("script.yaml", script(&plant, "echo 2 > a"));
        let mut run = folder.legwork(&["run", "job.yaml"]);
        if without_bubblewrap {
            run = run.env("PATH", path_without_bubblewrap(&folder));
        }
        run.run();
        assert_nothing_ran(&folder, "a planted repository in place of a submodule");
    }
}

#[test]
fn a_filter_in_the_workspace_does_not_run() {
    let change_filter = json!({ "path": "tools/clean.sh", "old_text": "cat", "new_text": "id > CANARY; cat" });
    let with_tools = [
        json!({ "tool": "read_file", "input": { "path": "tools/clean.sh" } }),
        json!({ "tool": "edit_file", "input": change_filter }),
        json!({ "tool": "write_file", "input": { "path": "a.nb", "content": "2\n", "overwrite": true } }),
    ];
    let task = json!({ "tool": "task", "input": { "agent": "w", "description": "d", "prompt": "p" } });
    for kind in ["clean", "process", "smudge"] {
        let folder = own_workspace("true", "true");
        folder.write(".gitattributes", "*.nb filter=strip\n").write("a.nb", "1\n");
        write_program(&folder.at("tools/clean.sh"), "#!/bin/sh\ncat\n");
        folder.commit_all();
        folder.git(&["config", &format!("filter.strip.{kind}"), "./tools/clean.sh"]);
        let parent = json!([{ "calls": with_tools }, { "calls": [task] }, { "text": "done" }]);
        let script = json!({ "parent": parent, "subagents": { "w-1": [{ "text": "sub" }] } }).to_string();
        folder.write("script.yaml", script.replace("CANARY", &canary(&folder).display().to_string()));
        folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
        assert_nothing_ran(&folder, kind);
    }
}

/// Where a checkout can put a program so that the user's `PATH` finds it.
fn planted_paths(folder: &TestFolder, name: &str) -> Vec<String> {
    write_program(&folder.at(format!(".venv/bin/{name}")), &trap(folder, name));
    // A folder outside with a link to a program in the workspace, and a link to the folder itself.
    let outside = folder.home().join(format!("bin-{name}"));
    fs::create_dir_all(&outside).unwrap();
    symlink(folder.at(format!(".venv/bin/{name}")), outside.join(name)).unwrap();
    let linked = folder.home().join(format!("linked-{name}"));
    symlink(folder.at(".venv/bin"), &linked).unwrap();
    // A script of the user whose interpreter is in the workspace.
    write_program(&folder.at(".venv/bin/interpreter"), &trap(folder, "/bin/sh"));
    let script = folder.home().join(format!("script-{name}"));
    write_program(&script.join(name), &format!("#!{}\nexec {name}\n", folder.at(".venv/bin/interpreter").display()));
    let venv = folder.at(".venv/bin").display().to_string();
    let [outside, linked, script] = [outside, linked, script].map(|path| path.display().to_string());
    vec![venv, ".venv/bin".to_owned(), outside, linked, script]
}

#[test]
fn a_program_from_a_folder_that_commands_can_write_to_is_never_started() {
    let folder = own_workspace("true", "echo 2 > a");
    folder.commit_all();
    let path = std::env::var("PATH").unwrap();
    let mut paths = planted_paths(&folder, "git");
    planted_paths(&folder, "xdg-open");
    planted_paths(&folder, "less");
    write_program(&folder.at("git"), &trap(&folder, "git"));
    paths.extend([String::new(), ".".to_owned(), folder.path().display().to_string()]);
    folder.write("rows.csv", "id,item\na,1\n");
    folder.write(
        "map.yaml",
        "model: replay/rows.yaml\ninputs: { item: { type: string } }\nparent: { prompt: 'x {{ inputs.item }}', tools: [bash] }\n",
    );
    let reply = json!([{ "calls": [{ "tool": "bash", "input": { "command": "echo 3 >> b" } }] }, { "text": "Done." }]);
    folder.write("rows.yaml", json!({ "parent": reply }).to_string()).write("b", "1\n");
    folder.write(
        "context.yaml",
        "model: replay/rows.yaml\ncontext: [{ path: a, ref: main }]\nparent: { prompt: x, tools: [bash] }\n",
    );
    folder.commit_all();
    for planted in sample(&paths, 3) {
        let with_path = |program: Program| program.env("PATH", format!("{planted}:{path}"));
        let legwork = |arguments: &[&str]| with_path(folder.legwork(arguments)).run();
        for arguments in [
            &["run", "job.yaml"][..],
            &["run", "context.yaml"],
            &["validate", "context.yaml"],
            &["map", "map.yaml", "--rows", "rows.csv", "--id", "id", "--name", "m", "--isolate", "worktree"],
            &["apply", "--check", "m"],
            &["apply", "m"],
            &["doctor", "--offline"],
            &["show", "latest", "--open"],
            &["emit", "github", "map.yaml", "--rows", "rows.csv", "--id", "id", "--shards", "2"],
        ] {
            legwork(arguments);
            assert_nothing_ran(&folder, &format!("{planted:?} {arguments:?}"));
        }
        folder.git(&["checkout", "--quiet", "--", "a", "b"]);
        fs::remove_dir_all(folder.at("runs")).unwrap();
    }
    // Without the planted folder first, everything works.
    let ended = folder.legwork(&["run", "job.yaml"]).env("PATH", format!("{}:{path}", paths[0])).run();
    ended.assert_code(0);
    assert_eq!(folder.read("a"), "2\n", "a worktree was made and merged");
}

#[test]
fn a_pager_from_the_workspace_is_not_started() {
    let folder = TestFolder::new();
    folder.write("script.yaml", json!({ "parent": [{ "text": "All seen." }] }).to_string());
    folder.write("job.yaml", "model: replay/script.yaml\nparent: { prompt: Go., tools: [] }\n");
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    let path = std::env::var("PATH").unwrap();
    let planted = planted_paths(&folder, "less");
    write_program(&folder.at("page.sh"), &trap(&folder, "cat"));
    let absolute = folder.at("page.sh").display().to_string();
    for first in &planted {
        for pager in ["less", "./page.sh", "sh page.sh", &absolute, ""] {
            let program = folder.legwork(&["show"]).env("PATH", format!("{first}:{path}"));
            let program = if pager.is_empty() { program } else { program.env("PAGER", pager) };
            // It waits for no key, wherever less is.
            let program = program.env("LESS", "-FX").env("LESSOPEN", format!("|{absolute} %s"));
            let (_, lines) = Terminal::start(program, 100, 200).wait();
            assert!(lines.iter().any(|line| line.contains("All seen.")), "{first} {pager}: {lines:?}");
            assert_nothing_ran(&folder, &format!("{first} {pager}"));
        }
    }
}

#[test]
fn what_a_repository_configures_does_not_run() {
    let folder = TestFolder::new();
    let job = "model: replay/script.yaml\ninputs: { item: { type: string } }\nparent: { prompt: 'x {{ inputs.item }}', \
               tools: [bash] }\n";
    folder.write("job.yaml", job).write("rows.csv", "id,item\na,1\n").write(".gitignore", "runs/\n");
    folder.write("a.txt", "1\n2\n3\n4\n5\n").write("sub/b.txt", "1\n").write("run", "");
    let reply = json!([{ "calls": [{ "tool": "bash", "input": { "command": "sed -i s/5/five/ a.txt" } }] }, { "text": "Done." }]);
    folder.write("script.yaml", json!({ "parent": reply }).to_string());
    folder.commit_all();
    write_program(&folder.at("run"), &format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", canary(&folder).display()));
    write_program(&folder.at("hooks/post-checkout"), &trap(&folder, "true"));
    for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit"] {
        write_program(&folder.at("hooks").join(hook), &trap(&folder, "true"));
        write_program(&folder.at(".git/hooks").join(hook), &trap(&folder, "true"));
    }
    let program = folder.at("run").display().to_string();
    let alias = format!("!{program}");
    let remote = format!("ext::{program}");
    for (key, value) in [
        ("core.hooksPath", "hooks"),
        ("core.fsmonitor", &program),
        ("core.pager", &program),
        ("core.editor", &program),
        ("core.sshCommand", &program),
        ("core.askPass", &program),
        ("core.gitProxy", &program),
        ("core.alternateRefsCommand", &program),
        ("credential.helper", &program),
        ("gpg.program", &program),
        ("commit.gpgSign", "true"),
        ("diff.external", &program),
        ("diff.x.textconv", &program),
        ("diff.x.command", &program),
        ("merge.x.driver", &program),
        ("filter.x.clean", &program),
        ("filter.x.smudge", &program),
        ("filter.x.required", "true"),
        ("filter.y.process", &program),
        ("interactive.diffFilter", &program),
        ("uploadpack.packObjectsHook", &program),
        ("hook.x.command", &program),
        ("hook.x.event", "post-checkout"),
        ("remote.origin.url", &remote),
        ("remote.origin.promisor", "true"),
        ("remote.origin.vcs", "x"),
        ("alias.add", &alias),
        ("alias.status", &alias),
        ("alias.read-tree", &alias),
        ("alias.check-ignore", &alias),
        ("submodule.recurse", "true"),
        ("include.path", "../included"),
    ] {
        folder.git(&["config", key, value]);
    }
    folder.write("included", format!("[filter \"z\"]\n\tclean = {program}\n\tsmudge = {program}\n"));
    folder.write(".gitattributes", "a.txt filter=x diff=x merge=x\n*.b filter=y\nsub/* filter=z\n");
    folder.write(".git/info/attributes", "a.txt filter=x\n");
    fs::write(folder.home().join(".gitconfig"), format!("[filter \"w\"]\n\tclean = {program}\n")).unwrap();
    let _ = fs::remove_file(canary(&folder));
    let variables = [
        "GIT_EXTERNAL_DIFF",
        "GIT_SSH_COMMAND",
        "GIT_PAGER",
        "GIT_EDITOR",
        "GIT_SEQUENCE_EDITOR",
        "GIT_ASKPASS",
        "GIT_PROXY_COMMAND",
        "GIT_SSH",
    ];
    let with_variables = |arguments: &[&str]| {
        let start = folder.legwork(arguments);
        let start = variables.iter().fold(start, |start, name| start.env(name, &program));
        start
            .env("GIT_EXEC_PATH", folder.at("hooks"))
            .env("GIT_DIR", folder.at("nowhere"))
            .env("GIT_TEMPLATE_DIR", folder.at("hooks"))
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "core.fsmonitor")
            .env("GIT_CONFIG_VALUE_0", &program)
            .env("GIT_CONFIG_PARAMETERS", format!("'core.fsmonitor'='{program}'"))
            .env("GIT_TRACE2_EVENT", canary(&folder))
            .env("GIT_TRACE", canary(&folder))
    };
    let map = ["map", "job.yaml", "--rows", "rows.csv", "--id", "id", "--name", "m", "--isolate", "worktree"];
    with_variables(&map).run().assert_code(0);
    assert_nothing_ran(&folder, "map");
    let patch = fs::read_to_string(folder.at("runs/job/m/rows/a/changes.patch")).unwrap();
    assert!(patch.contains("-5\n+five\n") && patch.matches("diff --git").count() == 1, "{patch}");
    with_variables(&["apply", "m", "--check", "--allow-dirty"]).run().assert_code(0);
    with_variables(&["apply", "m", "--allow-dirty"]).run().assert_code(0).assert_stdout_contains("1 applied");
    with_variables(&["apply", "m"]).run();
    assert_nothing_ran(&folder, "apply");
    assert_eq!(folder.read("a.txt"), "1\n2\n3\n4\nfive\n");
    // The control: they run if git is called without precautions.
    let _ = std::process::Command::new("git").args(["status"]).current_dir(folder.path()).output().unwrap();
    assert!(canary(&folder).exists());
}

/// As with Git LFS: large and small files, some of them changed, none of which the filter may touch.
#[test]
fn filtered_files_are_in_worktrees_as_they_are_and_unchanged_ones_are_no_change() {
    let folder = TestFolder::new();
    let job = "model: replay/script.yaml\ninputs: { item: { type: string } }\nparent: { prompt: 'x {{ inputs.item }}', \
               tools: [bash] }\n";
    folder.write("job.yaml", job).write("rows.csv", "id,item\na,1\n").write(".gitignore", "runs/\n");
    folder.write(".gitattributes", "*.bin filter=big\n*.txt text eol=crlf\n");
    folder.write("small.bin", "small\nb\n").write("edited.bin", "1\n2\n3\n").write("other.txt", "1\r\n2\r\n");
    folder.write("large.bin", "x".repeat(3 << 20));
    folder.commit_all();
    folder.git(&["config", "filter.big.clean", "sha256sum"]);
    folder.git(&["config", "filter.big.smudge", "false"]);
    folder.git(&["config", "filter.big.required", "true"]);
    std::thread::sleep(Duration::from_millis(20));
    folder.git(&["add", "--renormalize", "."]);
    folder.git(&["commit", "--quiet", "--message=pointers"]);
    // The index is younger than the files.
    folder.git(&["update-index", "--refresh"]);
    assert_eq!(folder.git(&["show", "HEAD:large.bin"]).len(), 68);
    folder.write("edited.bin", "1\n2\nuncommitted\n");
    let command =
        "cat small.bin edited.bin; wc -c < large.bin; git status --porcelain; sed -i s/1/one/ edited.bin other.txt";
    let reply = json!([{ "calls": [{ "tool": "bash", "input": { "command": command } }] }, { "text": "Done." }]);
    folder.write("script.yaml", json!({ "parent": reply }).to_string());
    let map = ["map", "job.yaml", "--rows", "rows.csv", "--id", "id", "--name", "m", "--isolate", "worktree"];
    folder.legwork(&map).run().assert_code(0);
    let record = folder.at("runs/job/m/rows/a");
    let events = fs::read_to_string(record.join("events.jsonl")).unwrap();
    let seen = r"small\nb\n1\n2\nuncommitted\n3145728\n";
    assert!(events.contains(seen), "{events}");
    assert!(
        !events.contains("M large.bin") && !events.contains("M small.bin"),
        "unchanged files are no change: {events}"
    );
    let patch = fs::read_to_string(record.join("changes.patch")).unwrap();
    assert!(patch.contains("+one\n") && patch.matches("diff --git").count() == 2, "{patch}");
    folder.legwork(&["apply", "m", "--allow-dirty"]).run().assert_code(0).assert_stdout_contains("1 applied");
    assert_eq!(folder.read("edited.bin"), "one\n2\nuncommitted\n");
    assert_eq!(folder.read("other.txt"), "one\r\n2\r\n");
    let large = folder.git(&["ls-tree", "-r", "HEAD", "large.bin"]);
    assert!(large.contains("large.bin"));
}

#[test]
fn what_a_key_command_starts_by_name_is_outside_of_the_workspace() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: p/m\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n");
    let server = Server::with(Checks::None, |request: &Request| {
        let key = request.header("x-api-key").unwrap_or_default().to_owned();
        Answer::text(if key == "key-0123456789abcdef" { "right" } else { "wrong" })
    });
    let tools = folder.home().join("tools");
    write_program(&tools.join("helper"), "#!/bin/sh\necho key-0123456789abcdef\n");
    // As gcloud starts python.
    let check = "case \"$PYTHONPATH$BASH_ENV$VIRTUAL_ENV$NODE_OPTIONS\" in *work*) exit 3;; esac";
    write_program(&tools.join("issue-key"), &format!("#!/bin/sh\n{check}\nexec helper\n"));
    write_program(&folder.at(".venv/bin/helper"), &trap(&folder, "helper"));
    let config = folder.home().join(".config/legwork");
    fs::create_dir_all(&config).unwrap();
    let text = server_config("anthropic", &server.url(), "key_command = [\"issue-key\"]").replace("local", "p");
    fs::write(config.join("providers.toml"), text).unwrap();
    let path = std::env::var("PATH").unwrap();
    let venv = folder.at(".venv/bin");
    for first in [venv.display().to_string(), ".venv/bin".to_owned(), String::new()] {
        let ended = folder
            .legwork(&["run", "job.yaml"])
            .env("PATH", format!("{first}:{}:{path}", tools.display()))
            .env("PYTHONPATH", folder.path())
            .env("VIRTUAL_ENV", folder.at(".venv"))
            .env("NODE_OPTIONS", format!("--require={}", folder.at("x.js").display()))
            .env("BASH_ENV", folder.at("x.sh"))
            .run();
        ended.assert_code(0).assert_stdout_contains("right");
        assert_nothing_ran(&folder, &first);
    }
}

#[test]
fn a_key_command_whose_child_holds_its_output_is_not_waited_for() {
    let server = Server::with(Checks::None, |_: &Request| Answer::text("ok"));
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: p/m\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n");
    let tool = folder.home().join("getkey");
    write_program(&tool, "#!/bin/sh\nsleep 1000 &\necho short-lived-key-1-abcdef\n");
    let config = folder.home().join(".config/legwork");
    fs::create_dir_all(&config).unwrap();
    let settings = format!("key_command = [\"{}\"]", tool.display());
    let text = server_config("anthropic", &server.url(), &settings).replace("local", "p");
    fs::write(config.join("providers.toml"), text).unwrap();
    let start = Instant::now();
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
}

#[test]
fn a_providers_file_of_the_checkout_is_refused() {
    let folder = TestFolder::new();
    folder.write("job.yaml", "model: p/m\nparent: { prompt: Go., tools: [] }\nlimits: { tokens: 100000 }\n");
    let server = Server::with(Checks::None, |_: &Request| Answer::text("ok"));
    write_program(&folder.home().join("issue-key"), &trap(&folder, "true"));
    let settings = format!("key_command = [\"{}\"]", folder.home().join("issue-key").display());
    let text = server_config("anthropic", &server.url(), &settings).replace("local", "p");
    folder.write("conf/legwork/providers.toml", &text).write("home/.config/legwork/providers.toml", &text);
    folder.write("sub/x", "");
    folder.commit_all();
    let linked = folder.home().join("linked");
    symlink(folder.at("conf"), &linked).unwrap();
    let elsewhere = folder.home().join("elsewhere");
    fs::create_dir_all(elsewhere.join("legwork")).unwrap();
    fs::write(elsewhere.join("legwork/providers.toml"), &text).unwrap();
    let run = |arguments: &[&str]| folder.legwork(&["run"]).arg(folder.at("job.yaml")).args(arguments);
    let refused = |program: Program| {
        program.run().assert_code(2).assert_stderr_contains("isn't used").assert_stderr_contains("XDG_CONFIG_HOME");
        assert_nothing_ran(&folder, "providers.toml");
    };
    refused(run(&[]).env("XDG_CONFIG_HOME", folder.at("conf")));
    refused(run(&[]).env("HOME", folder.at("home")));
    refused(run(&[]).env("XDG_CONFIG_HOME", &linked));
    // The file is in the repository, but not in the workspace, or in a folder that commands may write to.
    refused(run(&[]).in_folder("sub").env("XDG_CONFIG_HOME", folder.at("conf")));
    let elsewhere = elsewhere.display().to_string();
    refused(run(&["--allow-write", &elsewhere]).env("XDG_CONFIG_HOME", &elsewhere));
    let ended = folder.legwork(&["doctor"]).env("XDG_CONFIG_HOME", folder.at("conf")).run();
    ended.assert_code(5).assert_stdout_contains("isn't used");
    assert_nothing_ran(&folder, "doctor");
    // It is the key command that runs.
    run(&[]).env("XDG_CONFIG_HOME", &elsewhere).run();
    assert!(canary(&folder).exists());
}

/// A record of this run with another plan.
fn forge(record: &Path, changes: &[(&str, &str)]) {
    for name in ["events.jsonl", "plan.json"] {
        let path = record.join(name);
        let mut text = fs::read_to_string(&path).unwrap();
        for (from, to) in changes {
            text = text.replace(from, to).replace(&from.replace(':', ": "), &to.replace(':', ": "));
        }
        fs::write(&path, if name == "plan.json" { text } else { with_checksums(&text) }).unwrap();
    }
}

#[test]
fn the_tools_of_a_record_from_elsewhere_do_not_run_unless_it_is_trusted() {
    let folder = TestFolder::new();
    folder.allow_forged_records();
    let command = "echo got $DEPLOY_TOKEN >> out";
    let reply = json!([{ "calls": [{ "tool": "bash", "input": { "command": command } }] }, { "text": "Done." }]);
    folder.write("script.yaml", json!({ "parent": reply }).to_string());
    folder.write("job.yaml", "model: replay/script.yaml\nparent: { prompt: Go., tools: [bash] }\nenv: [OTHER]\n");
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    fs::remove_file(folder.at("out")).unwrap();
    let replay = |more: &[&str]| {
        folder.legwork(&[&["replay", "latest", "--tools"], more].concat()).env("DEPLOY_TOKEN", "a-deploy-token").run()
    };
    replay(&[]).assert_code(0);
    assert_eq!(folder.read("out"), "got\n");
    let record = folder.at("runs/job/latest").canonicalize().unwrap();
    forge(&record, &[("\"env\":[\"OTHER\"]", "\"env\":[\"DEPLOY_TOKEN\"]")]);
    fs::remove_file(folder.at("out")).unwrap();
    let refused = replay(&[]);
    refused.assert_code(2).assert_stderr_contains("another machine or with another key");
    refused.assert_stderr_contains("variables for commands: DEPLOY_TOKEN").assert_stderr_contains("--trust-record");
    assert!(!folder.exists("out"));
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
    replay(&["--trust-record"]);
    assert!(folder.exists("out"));
    // What its report would show in the browser could be anything.
    folder.legwork(&["show", "latest", "--open"]).run().assert_code(2).assert_stderr_contains("--trust-record");
}

#[test]
fn a_record_from_elsewhere_does_not_say_what_is_protected() {
    let folder = TestFolder::new();
    folder.allow_forged_records();
    let reply = json!([
        { "calls": [{ "tool": "write_file", "input": { "path": "deploy2/x", "content": "evil\n" } }] }, { "text": "Done." }
    ]);
    folder.write("script.yaml", json!({ "parent": reply }).to_string());
    let job = "model: replay/script.yaml\nparent: { prompt: Go., tools: [write_file] }\nprotect: [deploy/]\n";
    folder.write("job.yaml", job).write(".gitignore", "runs/\n");
    folder.commit_all();
    folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
    fs::remove_dir_all(folder.at("deploy2")).unwrap();
    let record = folder.at("runs/job/latest").canonicalize().unwrap();
    fs::remove_file(record.join("changes.patch")).unwrap();
    forge(&record, &[("deploy2", "deploy")]);
    let apply = |more: &[&str]| folder.legwork(&[&["apply", "latest"], more].concat()).run();
    // The record is ours, and says what is protected.
    apply(&[]).assert_code(1).assert_stdout_contains("deploy/x: it is protected");
    forge(&record, &[("\"protect\":[\"deploy/\"]", "\"protect\":[]")]);
    for check in [&[][..], &["--check"]] {
        apply(check).assert_code(1).assert_stdout_contains("refused").assert_stdout_contains("--trust-record");
        assert!(!folder.exists("deploy"));
    }
    apply(&["--trust-record"]).assert_code(0);
    assert_eq!(folder.read("deploy/x"), "evil\n");
}

#[test]
fn protected_names_are_protected_in_every_spelling() {
    for path in [
        ".GitHub/workflows/x",
        ".GITHUB/x",
        ".git\u{200d}hub/x",
        ".github./x",
        "GITHUB~1/x",
        ".VSCode/tasks.json",
        ".EnvRC",
        "Jobs/x.yaml",
        "DE\u{301}PLOY/x",
        "JOB.yaml",
    ] {
        let folder = TestFolder::new();
        folder.allow_forged_records();
        let write = |path: &str| {
            let call = json!({ "tool": "write_file", "input": { "path": path, "content": "evil\n", "overwrite": true }, "mistaken": true });
            json!({ "parent": [{ "calls": [call] }, { "text": "Done." }] }).to_string()
        };
        let job = "model: replay/script.yaml\nparent: { prompt: Go., tools: [write_file] }\nprotect: [d\u{e9}ploy/]\n";
        folder.write("script.yaml", write(path)).write("job.yaml", job).write(".gitignore", "runs/\n");
        folder.commit_all();
        folder.legwork(&["run", "job.yaml"]).run();
        assert!(!folder.exists(path), "write_file: {path}");
        // A command could have made it on a file system that tells the names apart.
        let call = json!({ "tool": "write_file", "input": { "path": "plain", "content": "evil\n" } });
        folder.write("script.yaml", json!({ "parent": [{ "calls": [call] }, { "text": "Done." }] }).to_string());
        folder.legwork(&["run", "job.yaml"]).run().assert_code(0);
        fs::remove_file(folder.at("plain")).unwrap();
        let record = folder.at("runs/job/latest").canonicalize().unwrap();
        let _ = fs::remove_file(record.join("changes.patch"));
        let journal = record.join("events.jsonl");
        let text = fs::read_to_string(&journal).unwrap();
        // Paths that aren't ASCII are quoted in patches.
        let quoted: String = path
            .bytes()
            .map(|byte| if byte.is_ascii() { char::from(byte).to_string() } else { format!("\\\\{byte:03o}") })
            .collect();
        let text = match path.is_ascii() {
            true => text
                .replace("a/plain b/plain", &format!("a/{path} b/{path}"))
                .replace("+++ b/plain", &format!("+++ b/{path}")),
            false => text
                .replace("a/plain b/plain", &format!("\\\"a/{quoted}\\\" \\\"b/{quoted}\\\""))
                .replace("+++ b/plain", &format!("+++ \\\"b/{quoted}\\\"")),
        };
        let text = text.replace("\"path\":\"plain\",\"change\"", &format!("\"path\":\"{path}\",\"change\""));
        fs::write(&journal, with_checksums(&text)).unwrap();
        let ended = folder.legwork(&["apply", "latest"]).run();
        ended.assert_code(1);
        assert!(ended.stdout.contains("it is protected"), "{path}: {}", ended.stdout);
        assert!(!folder.exists(path), "apply: {path}");
    }
}
