use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

/// Runs git without the user's configuration.
fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"];
    let mut command = Command::new("git");
    command.args(identity).args(arguments).current_dir(folder);
    for name in ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"] {
        command.env(name, "/dev/null");
    }
    let output = command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn config<'a>(workspace: &'a Path, out: &'a Path, home: &'a Path) -> ProtectionConfig<'a> {
    ProtectionConfig {
        workspace,
        job_files: &[],
        out,
        home: Some(home),
        git: GitAccess::Commit,
        protect: &[],
        allow_changes: &[],
        write: &[],
        has_commands: true,
        time: None,
    }
}

struct TestRepository {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl TestRepository {
    fn new() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["ws", "home"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        Self { _folder: folder, root }
    }

    /// A repository with a commit.
    fn repository(&self, path: &str) {
        fs::create_dir_all(self.root.join(path)).unwrap();
        git(&self.root.join(path), &["init", "-q", "-b", "main"]);
        git(&self.root.join(path), &["commit", "-q", "--allow-empty", "-m", "start"]);
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.root.join(path).parent().unwrap()).unwrap();
        fs::write(self.root.join(path), text).unwrap();
    }

    fn find(&self) -> ProtectedPaths {
        self.find_with(GitAccess::Commit)
    }

    fn find_with(&self, git: GitAccess) -> ProtectedPaths {
        let root = &self.root;
        let job_files = [root.join("ws/job.yaml"), root.join("ws/prompts/a.md")];
        ProtectedPaths::find(&ProtectionConfig {
            job_files: &job_files,
            git,
            ..config(&root.join("ws"), &root.join("ws/runs"), &root.join("home"))
        })
    }

    /// The paths in the root, relative to it.
    fn names(&self, paths: &[PathBuf]) -> Vec<String> {
        paths
            .iter()
            .filter_map(|path| path.strip_prefix(&self.root).ok())
            .map(|path| path.display().to_string())
            .collect()
    }

    #[track_caller]
    fn has(&self, found: &ProtectedPaths, paths: &[&str]) {
        let names = self.names(&found.paths);
        for path in paths {
            assert!(names.iter().any(|name| name == path), "{path} is not among {names:#?}");
        }
    }
}

#[test]
fn the_job_the_runs_and_a_missing_repository_are_protected() {
    let bench = TestRepository::new();
    let found = bench.find_with(GitAccess::Read);
    let by_default = DEFAULT_PROTECTED.map(|name| format!("ws/{name}"));
    let mut expected: Vec<&str> = by_default.iter().map(String::as_str).collect();
    expected.extend(["ws/.git", "ws/job.yaml", "ws/prompts/a.md", "ws/runs"]);
    expected.sort_unstable();
    let mut names = bench.names(&found.paths);
    names.sort_unstable();
    assert_eq!(names, expected);
    assert!(found.links.is_empty() && found.git_writes.is_empty());
}

#[test]
fn runs_in_a_parent_of_the_workspace_do_not_make_it_read_only() {
    let bench = TestRepository::new();
    for out in ["ws", "."] {
        let (workspace, out) = (bench.root.join("ws"), bench.root.join(out));
        let found = ProtectedPaths::find(&config(&workspace, &out, Path::new("/nonexistent")));
        assert!(!found.paths.contains(&out) && !found.paths.contains(&workspace), "{found:?}");
    }
}

#[test]
fn files_that_make_git_run_code_are_protected_but_not_what_a_commit_writes() {
    let bench = TestRepository::new();
    bench.repository("ws");
    let found = bench.find();
    let of_git: Vec<_> = bench.names(&found.paths).into_iter().filter(|name| name.starts_with("ws/.git/")).collect();
    let names = ["commondir", "config", "config.worktree", "hooks", "info/attributes"];
    assert_eq!(of_git, names.map(|name| format!("ws/.git/{name}")));
    assert!(found.git_writes.is_empty());
}

#[test]
fn a_worktree_with_an_external_repository() {
    let bench = TestRepository::new();
    bench.repository("main");
    fs::remove_dir(bench.root.join("ws")).unwrap();
    git(&bench.root.join("main"), &["worktree", "add", "-q", "../ws"]);
    let found = bench.find();
    bench.has(&found, &["ws/.git", "main/.git/hooks", "main/.git/config", "main/.git/config.worktree"]);
    bench.has(
        &found,
        &["commondir", "gitdir", "config.worktree"]
            .map(|name| format!("main/.git/worktrees/ws/{name}"))
            .each_ref()
            .map(String::as_str),
    );
    let writes = ["logs", "objects", "refs", "worktrees/ws"].map(|name| format!("main/.git/{name}"));
    assert_eq!(bench.names(&found.git_writes), writes);
}

#[test]
fn a_gitfile_to_an_unrelated_repository_opens_nothing() {
    let bench = TestRepository::new();
    bench.repository("other");
    for target in ["../other/.git", "../home"] {
        bench.write("ws/.git", &format!("gitdir: {target}\n"));
        assert!(bench.find().git_writes.is_empty());
    }
}

#[test]
fn submodules_nested_and_bare_repositories() {
    let bench = TestRepository::new();
    bench.repository("ws");
    bench.repository("sub");
    git(&bench.root.join("ws"), &["submodule", "-q", "add", "--name", "x/y", "../sub", "inner/sub"]);
    bench.repository("ws/vendor/other");
    git(&bench.root.join("ws"), &["init", "-q", "--bare", "fixtures/bare"]);
    let found = bench.find();
    bench.has(&found, &["ws/.git/modules/x/y/hooks", "ws/.git/modules/x/y/config", "ws/inner/sub/.git"]);
    bench.has(&found, &["ws/vendor/other/.git/hooks", "ws/vendor/other/.git/commondir", "ws/fixtures/bare/config"]);
}

#[test]
fn a_workspace_that_is_a_submodule_can_commit() {
    let bench = TestRepository::new();
    bench.repository("main");
    bench.repository("sub");
    fs::remove_dir(bench.root.join("ws")).unwrap();
    git(&bench.root.join("main"), &["submodule", "-q", "add", "../sub", "tree"]);
    let found = ProtectedPaths::find(&config(
        &bench.root.join("main/tree"),
        &bench.root.join("out"),
        Path::new("/nonexistent"),
    ));
    bench.has(&found, &["main/tree/.git", "main/.git/modules/tree/config", "main/.git/modules/tree/hooks"]);
    assert!(bench.names(&found.git_writes).contains(&"main/.git/modules/tree".to_owned()), "{found:?}");
}

#[test]
fn hooks_and_configuration_in_the_working_tree_are_protected() {
    let bench = TestRepository::new();
    bench.repository("ws");
    git(&bench.root.join("ws"), &["config", "include.path", "../.gitconfig"]);
    bench.write("ws/.gitconfig", "[core]\n\thooksPath = .husky # ours\n");
    bench.write("home/.gitconfig", "[core] hooksPath = .githooks\n[include] path = ~/more");
    bench.write("home/more", "[core] hooksPath = \"even more\"\n[core] hooksPath = /elsewhere\n[core] hooksPath = .");
    let found = bench.find();
    bench.has(&found, &["ws/.gitconfig", "ws/.husky", "ws/.githooks", "ws/even more"]);
    assert!(found.paths.iter().all(|path| path != Path::new("/elsewhere") && *path != bench.root.join("ws")));
}

#[test]
fn configuration_that_includes_itself_is_read_once() {
    let bench = TestRepository::new();
    bench.repository("ws");
    git(&bench.root.join("ws"), &["config", "include.path", "../a"]);
    bench.write(
        "ws/a",
        &format!("{}[core] hooksPath = deep\n", "[include] path = b\n[include] path = ./b\n".repeat(20)),
    );
    bench.write("ws/b", &"[include] path = a\n[include] path = ../ws/b\n".repeat(20));
    // A chain longer than git follows.
    for number in 0..100 {
        bench.write(&format!("ws/chain/{number}"), &format!("[include] path = {}\n", number + 1));
    }
    bench.write("home/.gitconfig", &format!("[include] path = {}\n", bench.root.join("ws/chain/0").display()));
    let found = bench.find();
    assert!(found.repositories.is_complete);
    bench.has(&found, &["ws/a", "ws/b", "ws/deep", "ws/chain/99"]);
}

#[test]
fn too_much_configuration_makes_the_search_incomplete() {
    let bench = TestRepository::new();
    bench.repository("ws");
    git(&bench.root.join("ws"), &["config", "include.path", "../many"]);
    let many: String = (0..=MAX_CONFIG_PATHS).map(|number| format!("[include] path = {number}\n")).collect();
    bench.write("ws/many", &many);
    let found = bench.find();
    assert!(!found.repositories.is_complete && found.paths.len() < 100);
    bench.write("ws/many", "");
    assert!(bench.find().repositories.is_complete);
    for number in 0..MAX_GIT_CONFIG_BYTES / git::MAX_FILE_BYTES {
        let file = fs::File::create(bench.root.join(format!("ws/{number}"))).unwrap();
        file.set_len(git::MAX_FILE_BYTES).unwrap();
        bench.write(
            "ws/many",
            &(fs::read_to_string(bench.root.join("ws/many")).unwrap() + &format!("[include] path = {number}\n")),
        );
    }
    assert!(!bench.find().repositories.is_complete);
}

#[test]
fn without_time_the_search_is_incomplete() {
    let bench = TestRepository::new();
    bench.repository("ws");
    let (workspace, home) = (bench.root.join("ws"), bench.root.join("home"));
    let wanted = config(&workspace, Path::new("/nonexistent"), &home);
    assert!(!ProtectedPaths::find_within(&wanted, Duration::ZERO).repositories.is_complete);
}

#[test]
fn a_link_and_its_target_are_protected() {
    let bench = TestRepository::new();
    bench.write("ws/real/job.yaml", "");
    symlink("real/job.yaml", bench.root.join("ws/second.yaml")).unwrap();
    symlink("second.yaml", bench.root.join("ws/job.yaml")).unwrap();
    let found = bench.find();
    bench.has(&found, &["ws/real/job.yaml"]);
    assert_eq!(bench.names(&found.links), ["ws/job.yaml", "ws/second.yaml"]);
}

#[test]
fn repositories_of_any_name_are_found_except_in_records() {
    let bench = TestRepository::new();
    for name in
        ["a/.GIT/x", "b.git/HEAD", "b.git/refs/x", "b.git/objects/x", "c/HEAD", "c/commondir", "d/HEAD", "runs/.git/x"]
    {
        bench.write(&format!("ws/{name}"), "");
    }
    let found = Repositories::find(&bench.root.join("ws"), &bench.root.join("ws/runs"), SEARCH_TIME).folders;
    let mut names = bench.names(&found);
    names.sort();
    assert_eq!(names, ["ws/a/.GIT", "ws/b.git", "ws/c"]);
}

#[test]
fn many_files_and_a_link_loop_do_not_delay_the_search() {
    let bench = TestRepository::new();
    bench.repository("ws/near");
    symlink(".", bench.root.join("ws/loop")).unwrap();
    for folder in 0..20 {
        fs::create_dir(bench.root.join(format!("ws/f{folder}"))).unwrap();
    }
    assert!(std::process::Command::new("mkfifo").arg(bench.root.join("ws/f3/.git")).status().unwrap().success());
    let found = bench.find();
    bench.has(&found, &["ws/near/.git/hooks", "ws/f3/.git"]);
}

#[test]
fn git_folders_are_protected_as_a_whole_unless_commands_may_commit() {
    let bench = TestRepository::new();
    bench.repository("ws");
    bench.repository("ws/vendor/other");
    git(&bench.root.join("ws"), &["worktree", "add", "-q", "tree"]);
    let folders = ["ws/.git", "ws/.git/worktrees/tree", "ws/vendor/other/.git"];
    bench.has(&bench.find_with(GitAccess::Read), &folders);
    let found = bench.find();
    assert_eq!(bench.names(&found.allowed_changes.git_folders.iter().cloned().collect::<Vec<_>>()), folders);
    assert!(!bench.names(&found.paths).iter().any(|name| folders.contains(&name.as_str())), "{found:?}");
}

#[test]
fn other_jobs_and_configured_paths_are_protected() {
    let bench = TestRepository::new();
    bench.write("ws/other.yaml", "model: a/b\nparent: { prompt: x, tools: [] }\n");
    bench.write("ws/values.yaml", "replicas: 3\n");
    bench.write("ws/.github/workflows/a.yml", "");
    let job_files = [bench.root.join("ws/job.yaml")];
    let (workspace, out) = (bench.root.join("ws"), bench.root.join("ws/runs"));
    let found = ProtectedPaths::find(&ProtectionConfig {
        job_files: &job_files,
        protect: &["deploy/".to_owned(), "./infra/x".to_owned()],
        allow_changes: &["jobs".to_owned(), ".github/workflows/a.yml".to_owned(), "deploy/notes".to_owned()],
        ..config(&workspace, &out, Path::new("/nonexistent"))
    });
    bench.has(&found, &["ws/other.yaml", "ws/deploy", "ws/infra/x", "ws/.github"]);
    let names = bench.names(&found.paths);
    assert!(!names.iter().any(|name| name == "ws/jobs" || name == "ws/values.yaml"), "{names:?}");
    assert_eq!(
        bench.names(&found.allowed_changes.unprotected),
        ["ws/jobs", "ws/.github/workflows/a.yml", "ws/deploy/notes"]
    );
}

#[test]
fn the_jobs_folder_is_protected_if_it_has_jobs_or_is_missing() {
    let bench = TestRepository::new();
    bench.has(&bench.find(), &["ws/jobs"]);
    bench.write("ws/jobs/cron.rb", "");
    bench.write("ws/jobs/values.yaml", "a: 1\n");
    assert!(!bench.names(&bench.find().paths).contains(&"ws/jobs".to_owned()));
    bench.write("ws/jobs/other.yaml", "model: a/b\nparent: { prompt: x, tools: [] }\n");
    bench.has(&bench.find(), &["ws/jobs"]);
}

#[test]
fn a_slow_search_is_reported_as_incomplete() {
    let bench = TestRepository::new();
    bench.repository("ws/far/away");
    let (workspace, out) = (bench.root.join("ws"), bench.root.join("out"));
    assert!(!Repositories::find(&workspace, &out, Duration::ZERO).is_complete);
    let found = Repositories::find(&workspace, &out, SEARCH_TIME);
    assert!(found.is_complete && bench.names(&found.folders) == ["ws/far/away/.git"], "{found:?}");
}
