//! Attacks on git commands that the user runs in the workspace after the job, and git features that commands can use.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use super::attack_fixture::{AttackFixture, SECRET, Tier, User};
use super::users_and_tiers;
use crate::support::{in_parallel, sample};

/// Each attack plants something in a git folder that takes effect when git next runs there. `GIT` is the folder.
const ATTACKS: [&str; 23] = [
    "ln -sf ROOT/home/token GIT/COMMIT_EDITMSG; echo ATTACK > GIT/SQUASH_MSG",
    "ln -sf ROOT/home/token GIT/COMMIT_EDITMSG",
    "mkdir -p GIT/logs; ln -sf ROOT/home/token GIT/logs/HEAD",
    "ln -sf ROOT/home/token GIT/FETCH_HEAD",
    "mkdir GIT/rebase-merge; echo 'exec touch ran' > GIT/rebase-merge/git-rebase-todo",
    "rm -f GIT/ORIG_HEAD; mkfifo GIT/ORIG_HEAD",
    "ln -f src/main.txt GIT/COMMIT_EDITMSG",
    "mkdir -p GIT/objects/info; echo ROOT/outside > GIT/objects/info/alternates",
    "mkdir -p GIT/objects/pack; ln -s ROOT/outside GIT/objects/pack/more",
    "mkdir -p GIT/objects/ff; ln -s ROOT/home/token GIT/objects/ff/ff",
    "mkdir -p GIT/refs/heads; echo 'ref: config' > GIT/refs/heads/x",
    "mkdir -p GIT/refs/heads; ln -s ROOT/outside GIT/refs/heads/more",
    "mkdir -p GIT/worktrees/x; echo ../.. > GIT/worktrees/x/commondir",
    "mkdir -p GIT/modules/x; printf '[core]\\n\\tfsmonitor = x\\n' > GIT/modules/x/config",
    "echo x > GIT/packed-refs",
    "rm -f GIT/HEAD",
    "echo 'ref: config' > GIT/ORIG_HEAD",
    "rm -f GIT/index; ln -s /dev/null GIT/index",
    "printf '[core]\\n\\tfsmonitor = x\\n' > GIT/config.worktree",
    "mkdir -p GIT/hooks; echo x > GIT/hooks/post-checkout; chmod +x GIT/hooks/post-checkout",
    "rm -rf GIT/refs; ln -s ROOT/outside GIT/refs",
    "mkdir -p .xit/hooks; echo x > .xit/hooks/post-checkout; git add -f .xit; rm -rf .xit; sed -i s/[.]xit/.git/ GIT/index",
    "mkdir -p GIT/info; echo '* filter=x' > GIT/info/attributes",
];

/// Changes that `git: commit` allows and `git: read` doesn't.
const ALLOWED_WRITES: [&str; 5] = [
    "git add new.txt",
    "git -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m x",
    "git tag mark",
    "git checkout -q -b other",
    "echo x > .git/description",
];

/// A git folder without its objects: each path with its mode, and its content or target.
fn git_folder_state(git: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open = vec![git.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let is_object = path.strip_prefix(git).is_ok_and(|path| path.starts_with("objects"));
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        }
        let content = match metadata.is_file() {
            true if !is_object => std::fs::read(&path).unwrap(),
            _ if metadata.is_symlink() => std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            _ => Vec::new(),
        };
        let is_kept = !is_object || !(metadata.is_file() || metadata.is_dir());
        if is_kept {
            all.push((path, metadata.permissions().mode(), content));
        }
    }
    all.sort();
    all
}

fn git_fixture(user: User, access: &str) -> AttackFixture {
    let place = AttackFixture::new(user).unwrap();
    place.edit_job("network: none", &format!("network: none\ngit: {access}"));
    place.write("new.txt", "new\n");
    place
}

/// A run with one command that attacks a git folder. The folder must be unchanged afterwards.
fn attack(place: &AttackFixture, tier: Tier, attack: &str, git: &str, before: &[(PathBuf, u32, Vec<u8>)]) -> String {
    let root = place.root().display().to_string();
    let command = format!("PATH=/usr/bin:/bin; {}", attack.replace("GIT", git).replace("ROOT", &root));
    let ended = place.run(tier, &[command]);
    assert_eq!(git_folder_state(&place.workspace().join(git)), before, "{tier:?}: {attack}\n{}", ended.full_output());
    let result = ended.run_folder().result();
    let outcome = result["outcome"].as_str().unwrap().to_owned();
    match outcome.as_str() {
        "environment_failed" => {
            let message = result["error"]["message"].as_str().unwrap();
            assert!(message.contains("protected") && message.contains("`git: "), "{attack}: {message}");
        }
        // Bubblewrap prevents it, or all of it was undone and the model was told.
        "completed" => {
            let told =
                super::attack_fixture::outputs(&ended.run_folder().events()).any(|text| text.contains("legwork undid"));
            assert!(told || tier == Tier::Bubblewrap, "{attack}: nothing was seen\n{}", ended.full_output());
        }
        other => panic!("{tier:?}: {attack}: {other}\n{}", ended.full_output()),
    }
    outcome
}

#[test]
fn nothing_is_planted_for_the_next_git_command() {
    for (user, tier) in users_and_tiers() {
        for access in ["read", "commit"] {
            let place = git_fixture(user, access);
            let before = git_folder_state(&place.workspace().join(".git"));
            for planted in sample(ATTACKS, ATTACKS.len().div_ceil(3)) {
                attack(&place, tier, planted, ".git", &before);
            }
            // The user's commands afterwards work as before.
            place.git(&["commit", "--allow-empty", "-m", "later"]);
            assert_eq!(std::fs::read_to_string(place.root().join("home/token")).unwrap(), format!("{SECRET}\n"));
            let status = place.git(&["status"]);
            assert!(status.contains("new.txt") && !place.workspace().join("ran").exists(), "{status}");
        }
    }
}

#[test]
fn git_folders_are_read_only_by_default_and_reading_works() {
    for (user, tier) in users_and_tiers() {
        let place = git_fixture(user, "read");
        place.edit_job("git: read\n", "");
        let before = git_folder_state(&place.workspace().join(".git"));
        for write in ALLOWED_WRITES {
            let outcome = attack(&place, tier, write, ".git", &before);
            assert_eq!(outcome, "completed", "{user:?} in {tier:?}: {write}");
        }
        // The index is stale, so git would refresh it.
        let commands = [
            "touch src/main.txt job.yaml; git status --porcelain",
            "touch src/main.txt; echo more >> new.txt; git diff --stat; git log --oneline | wc -l",
            "sleep 0.02; touch src/main.txt; git describe --always --dirty; git update-index -q --refresh; git status -s src",
            "touch src/main.txt; echo y >> src/main.txt; git diff | tail -n 1; git show --stat | tail -n 1",
        ];
        let outputs = place.outputs(tier, &commands.map(str::to_owned));
        assert!(outputs[0].contains("?? new.txt"), "{user:?} in {tier:?}: {outputs:?}");
        assert_eq!(outputs[1].trim(), "1", "{user:?} in {tier:?}: {outputs:?}");
        assert!(outputs[3].starts_with("+y"), "{user:?} in {tier:?}: {outputs:?}");
        assert_eq!(git_folder_state(&place.workspace().join(".git")), before);
        if tier == Tier::Bubblewrap {
            let events = place.run(tier, &["git add new.txt".to_owned()]).run_folder().events();
            let output = super::attack_fixture::outputs(&events).next().unwrap();
            assert!(output.contains("Read-only file system") && output.contains("`git: read`"), "{output}");
        }
    }
}

#[test]
fn commits_branches_tags_and_merges_work_with_git_commit() {
    for (user, tier) in users_and_tiers() {
        let place = git_fixture(user, "commit");
        let git = "git -c user.name=a -c user.email=a@b.example";
        let commands = [
            format!("git add new.txt && {git} commit -q -m new && git log --oneline | wc -l"),
            format!("git checkout -q -b feature/x && echo f > f && git add f && {git} commit -q -m f && echo done"),
            format!(
                "git checkout -q - && echo m > m && git add m && {git} commit -q -m m && {git} merge -q -m both feature/x && echo done"
            ),
            format!(
                "{git} commit -q --amend -m again && git tag v1 && {git} tag -a -m two v2 && git branch -d feature/x"
            ),
            "git status --porcelain -- f m new.txt; git fsck 2>&1 | grep -v dangling; git log --oneline v2 | wc -l"
                .to_owned(),
        ];
        let outputs = place.outputs(tier, &commands);
        assert_eq!(outputs[0].trim(), "2", "{user:?} in {tier:?}: {outputs:?}");
        assert_eq!((outputs[1].trim(), outputs[2].trim()), ("done", "done"), "{user:?} in {tier:?}: {outputs:?}");
        assert_eq!(outputs[4].trim(), "5", "{user:?} in {tier:?}: {outputs:?}");
    }
}

#[test]
fn git_init_works_and_the_new_repository_runs_no_programs() {
    let git = "git -c user.name=a -c user.email=a@b.example";
    for (user, tier) in users_and_tiers() {
        let place = git_fixture(user, "commit");
        let remove = || std::fs::remove_dir_all(place.workspace().join(".git"));
        remove().unwrap();
        let commands = [
            format!("git init -q && git add src && {git} commit -q -m start && git log --oneline | wc -l"),
            format!("git add new.txt && {git} commit -q -m more && git log --oneline | wc -l"),
        ];
        let outputs = place.outputs(tier, &commands);
        assert_eq!((outputs[0].trim(), outputs[1].trim()), ("1", "2"), "{user:?} in {tier:?}: {outputs:?}");
        for planted in [
            "git init -q; git config core.fsmonitor ./x",
            "git init -q; git config alias.st '!x'",
            "git init -q; echo x > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
            "git init -q; ln -s ../../home/token .git/COMMIT_EDITMSG",
            "git init -q; echo 'ref: config' > .git/refs/heads/main",
            "git init -q; mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
            "mkdir elsewhere; git init -q elsewhere; mv elsewhere/.git .real; echo 'gitdir: .real' > .git",
        ] {
            remove().unwrap();
            let ended = place.run(tier, &[format!("PATH=/usr/bin:/bin; {planted}")]);
            assert_eq!(
                ended.run_folder().result()["outcome"],
                "environment_failed",
                "{planted}\n{}",
                ended.full_output()
            );
            assert!(!place.workspace().join(".git").exists(), "{user:?} in {tier:?}: {planted}");
            std::fs::create_dir(place.workspace().join(".git")).unwrap();
        }
        // Without `git: commit`, every change is rejected.
        remove().unwrap();
        place.edit_job("git: commit", "git: read");
        let ended = place.run(tier, &["PATH=/usr/bin:/bin; git init -q".to_owned()]);
        assert_eq!(ended.run_folder().result()["outcome"], "environment_failed", "{}", ended.full_output());
        assert!(!place.workspace().join(".git").exists());
    }
}

#[test]
fn worktrees_submodules_and_nested_repositories_are_git_folders_too() {
    const PLANTED: [&str; 2] = [
        "ln -sf ROOT/home/token GIT/COMMIT_EDITMSG",
        "printf '[core]\\n\\tfsmonitor = x\\n' >> GIT/config; mkdir GIT/rebase-merge; echo x > GIT/rebase-merge/todo",
    ];
    for (user, tier) in users_and_tiers() {
        for access in ["read", "commit"] {
            let place = git_fixture(user, access);
            let workspace = place.workspace();
            place.git(&["init", "-q", "vendor/nested"]);
            place.git(&["-C", "vendor/nested", "commit", "-q", "--allow-empty", "-m", "nested"]);
            place.git(&["init", "-q", "--bare", "fixtures/bare"]);
            place.git(&["worktree", "add", "-q", "tree"]);
            place.git(&["submodule", "add", "-q", "./vendor/nested", "sub"]);
            let folders = ["vendor/nested/.git", "fixtures/bare", ".git/worktrees/tree", ".git/modules/sub"];
            for git in sample(folders, 2) {
                let before = git_folder_state(&workspace.join(git));
                for planted in PLANTED {
                    attack(&place, tier, planted, git, &before);
                }
            }
            if access == "commit" {
                let commit = "git -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m x && echo done";
                let commands = ["vendor/nested", "tree", "sub"].map(|folder| format!("cd {folder} && {commit}"));
                for output in place.outputs(tier, &commands) {
                    assert_eq!(output.trim(), "done", "{user:?} in {tier:?}");
                }
            }
        }
    }
}

/// In a repository with several working trees, a relative hooks folder is in the root of each.
#[test]
fn no_hook_is_planted_in_another_working_tree() {
    for (user, tier) in users_and_tiers() {
        let place = git_fixture(user, "commit");
        let workspace = place.workspace();
        place.git(&["worktree", "add", "-q", "tree"]);
        place.git(&["init", "-q", "vendor/nested"]);
        place.git(&["-C", "vendor/nested", "commit", "-q", "--allow-empty", "-m", "nested"]);
        place.git(&["submodule", "add", "-q", "./vendor/nested", "sub"]);
        place.git(&["config", "core.hooksPath", ".tree-hooks"]);
        place.git(&["-C", "sub", "config", "core.hooksPath", ".sub-hooks"]);
        std::fs::write(place.root().join("home/.gitconfig"), "[core]\n\thooksPath = .user-hooks\n").unwrap();
        let folders =
            [".tree-hooks", "tree/.tree-hooks", "sub/.sub-hooks", "sub/.user-hooks", "vendor/nested/.user-hooks"];
        for folder in folders {
            let plant = format!("PATH=/usr/bin:/bin; mkdir -p {folder}; echo x > {folder}/post-checkout");
            let result = place.run(tier, &[plant]).run_folder().result();
            assert_eq!(result["outcome"], "environment_failed", "{user:?} in {tier:?}: {folder}: {result}");
            assert!(!workspace.join(folder).exists(), "{user:?} in {tier:?}: {folder}");
        }
    }
}

const AUTHOR: &str = "-c user.name=a -c user.email=a@b.example";

/// A repository with loose and packed objects, two branches that conflict, tags, a remote-tracking branch, a stash, and
/// uncommitted work in `src/main.txt`.
fn busy_repository(user: User, access: &str) -> AttackFixture {
    let place = git_fixture(user, access);
    let write = |text: &str| place.write("src/main.txt", text);
    place.write(".gitignore", "/runs/\n/legwork\n/probe\n").write(".github/workflows/ci.yml", "good\n");
    place.git(&["add", "."]);
    for text in ["one", "two"] {
        write(text);
        place.git(&["commit", "-qam", text]);
    }
    place.git(&["gc", "-q"]);
    place.git(&["branch", "feature", "HEAD~1"]);
    place.git(&["checkout", "-q", "feature"]);
    write("feature");
    place.git(&["commit", "-qam", "feature"]);
    place.git(&["checkout", "-q", "-"]);
    place.git(&["tag", "-a", "-m", "tag", "v1"]);
    place.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    write("of the user");
    place.git(&["stash"]);
    write("three");
    place.git(&["commit", "-qam", "three"]);
    write("not committed");
    place
}

/// The names of all objects, and the references with their values.
fn objects_and_references(place: &AttackFixture) -> (Vec<String>, Vec<String>) {
    let lines = |arguments: &[&str]| place.git(arguments).lines().map(str::to_owned).collect::<Vec<_>>();
    let objects = lines(&["cat-file", "--batch-all-objects", "--batch-check"]);
    (objects, lines(&["for-each-ref", "--format=%(refname) %(objectname)"]))
}

/// Nothing may be missing or damaged, and nothing of legwork may be left.
fn assert_intact(place: &AttackFixture, before: &[String], what: &str) {
    let fsck = place.git(&["fsck", "--full", "--no-dangling"]);
    assert!(!["error", "missing", "broken", "fatal"].iter().any(|word| fsck.contains(word)), "{what}: {fsck}");
    let (now, _) = objects_and_references(place);
    let lost: Vec<_> = before.iter().filter(|object| !now.contains(object)).collect();
    assert!(lost.is_empty(), "{what}: {lost:?}");
    let content = place.git(&["show", "HEAD:.github/workflows/ci.yml"]);
    assert_eq!(content, "good\n", "{what}");
    for name in std::fs::read_dir(place.workspace().join(".git/objects")).unwrap().flatten() {
        assert!(!name.file_name().to_string_lossy().contains("legwork"), "{what}: {name:?}");
    }
}

fn run_one(place: &AttackFixture, tier: Tier, command: &str) -> (String, String) {
    let ended = place.run(tier, &[format!("PATH=/usr/local/bin:/usr/bin:/bin; {command}")]);
    let result = ended.run_folder().result();
    let output = super::attack_fixture::outputs(&ended.run_folder().events()).collect::<String>();
    (result["outcome"].as_str().unwrap_or_default().to_owned(), format!("{output}\n{}", ended.stderr))
}

/// Commands that people use every day. They succeed or are refused, the run continues, and whatever is undone is undone together.
#[test]
fn ordinary_git_commands_lose_nothing_and_end_no_run() {
    // Each with whether it may change references with `git: commit`.
    let commands = [
        ("git pack-refs --all", false),
        ("git gc -q --prune=now", false),
        ("git reflog expire --expire=now --all; git repack -adq; git prune --expire=now; git prune-packed", false),
        ("git add -A", false),
        ("git stash", true),
        ("git stash drop; git stash clear", false),
        ("git tag -a -m x v2", true),
        ("git notes add -m x", true),
        ("git stash -q; git revert --no-edit HEAD; git cherry-pick feature~1", true),
        ("git stash -q; git merge feature", true),
        ("git stash -q; git checkout -q feature; git rebase HEAD~1 --force-rebase", true),
        // Stops at a conflict.
        ("git commit -qam x; git rebase feature", false),
        ("git rebase --autostash feature", true),
        ("git worktree add -q tree feature", false),
        ("git update-ref refs/remotes/origin/main HEAD~2; git branch more", false),
        ("git replace HEAD HEAD~1", false),
        ("git bisect start; git bisect bad", false),
        ("rm -rf .git/objects", false),
        ("git commit -qam x; rm -rf .git/objects/??", false),
    ];
    let author = AUTHOR.replace("-c user.name=", "GIT_AUTHOR_NAME=").replace(" -c user.email=", " GIT_AUTHOR_EMAIL=");
    let author = format!("export {author} {}", author.replace("AUTHOR", "COMMITTER"));
    in_parallel(users_tiers_and_access(), |(user, tier, access)| {
        for (command, changes_references) in sample(commands, 5) {
            let place = busy_repository(user, access);
            let what = format!("{user:?} in {tier:?}, {access}: {command}");
            let (objects, references) = objects_and_references(&place);
            let (outcome, output) = run_one(&place, tier, &format!("{author}; {command}"));
            assert_eq!(outcome, "completed", "{what}: {output}");
            assert_intact(&place, &objects, &what);
            let (_, now) = objects_and_references(&place);
            let others = |lines: &[String]| -> Vec<String> {
                lines.iter().filter(|line| !line.starts_with("refs/stash")).cloned().collect()
            };
            if access == "read" {
                // In landlock's tier, a stash is kept because its work isn't in the file any more.
                assert_eq!(others(&now), others(&references), "{what}: {output}");
                assert!(tier == Tier::Landlock || now == references, "{what}: {output}");
            } else if !changes_references {
                assert_eq!(now, references, "{what}: {output}");
            }
            let stashes = place.git(&["stash", "list", "-p", "-m"]);
            let reachable = place.git(&["log", "-p", "-g", "HEAD"]) + &stashes;
            let file = std::fs::read_to_string(place.workspace().join("src/main.txt")).unwrap_or_default();
            assert!((file + &reachable).contains("not committed"), "{what}: {output}");
            assert!(stashes.contains("of the user"), "{what}: {output}");
        }
    });
}

fn users_tiers_and_access() -> impl Iterator<Item = (User, Tier, &'static str)> {
    users_and_tiers().flat_map(|(user, tier)| ["commit", "read"].map(|access| (user, tier, access)))
}

/// The index of a pack with one object, which claims that the object is another one.
fn lying_index(mut index: Vec<u8>, claimed: &str) -> Vec<u8> {
    let id: Vec<u8> = (0..40).step_by(2).map(|at| u8::from_str_radix(&claimed[at..at + 2], 16).unwrap()).collect();
    for first in 0..256 {
        let count = u32::from(first >= usize::from(id[0]));
        index[8 + first * 4..12 + first * 4].copy_from_slice(&count.to_be_bytes());
    }
    index[8 + 1024..8 + 1024 + 20].copy_from_slice(&id);
    let end = index.len() - 20;
    let checksum = Sha1::digest(&index[..end]);
    index[end..].copy_from_slice(&checksum);
    index
}

/// What a command puts in the place of an object would be in the files of the user's next checkout.
#[test]
fn existing_objects_do_not_change() {
    let find = "blob=$(git rev-parse HEAD:.github/workflows/ci.yml); file=.git/objects/${blob:0:2}/${blob:2}; \
                mkdir -p $TMPDIR/o; evil=$(echo evil | GIT_OBJECT_DIRECTORY=$TMPDIR/o git hash-object --stdin -w); \
                evil=$TMPDIR/o/${evil:0:2}/${evil:2}";
    let attacks = [
        "chmod u+w $file; cp $evil new; cat new > $file",
        "cp $evil $file.new; mv -f $file.new $file",
        "rm -f $file; cp $evil $file",
        "ln $file other; chmod 666 other; cat $evil > other; rm -f other",
        "find .git/objects -type f -exec chmod 666 {} +; find .git/objects -type f -exec truncate -s 0 {} +",
        "find .git/objects -type f -exec rm -f {} +",
        "chmod -R 777 .git/objects; rm -rf .git/objects/*",
        "mv .git/objects aside; mkdir .git/objects; cp -r aside/. .git/objects; cp -f $evil $file; mv aside/tmp_objdir* aside/other",
        "mkdir -p .git/objects/existing; rm -rf .git/objects/existing/*; cp $evil .git/objects/existing/${blob:0:2}/${blob:2}",
        "D=.git/objects/$(ls .git/objects | grep legwork | head -1); chmod -R u+w $D; rm -rf $D; rm -f $file; cp $evil $file",
        // Git looks into packs first.
        "cp planted.pack .git/objects/pack/pack-planted.pack; cp planted.idx .git/objects/pack/pack-planted.idx",
        // An object that doesn't exist yet: a later fetch would take it for the real one.
        "id=$(printf 'later\\n' | git hash-object --stdin); mkdir -p .git/objects/${id:0:2}; cp $evil .git/objects/${id:0:2}/${id:2}",
    ];
    let later = "e974158c2b867531a738941c09dbb50427e7dc6d";
    in_parallel(users_tiers_and_access(), |(user, tier, access)| {
        let place = busy_repository(user, access);
        let shell = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", script]).current_dir(place.workspace()).env("GIT_CONFIG_GLOBAL", "/dev/null");
            shell.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
            let ended = shell.output().unwrap();
            assert!(ended.status.success(), "{script}: {ended:?}");
        };
        // Loose, so that each has a file.
        shell("mv .git/objects/pack ../packs; mkdir .git/objects/pack; cat ../packs/*.pack | git unpack-objects -q");
        shell(
            "mkdir ../o; evil=$(echo evil | GIT_OBJECT_DIRECTORY=../o git hash-object --stdin -w); \
             echo $evil | GIT_OBJECT_DIRECTORY=../o git pack-objects -q planted; mv planted-*.pack planted.pack; \
             mv planted-*.idx planted.idx; rm -f planted-*",
        );
        let blob = place.git(&["rev-parse", "HEAD:.github/workflows/ci.yml"]);
        let index = place.workspace().join("planted.idx");
        let lying = lying_index(std::fs::read(&index).unwrap(), blob.trim());
        std::fs::remove_file(&index).unwrap();
        std::fs::write(&index, lying).unwrap();
        let (objects, references) = objects_and_references(&place);
        for attack in sample(attacks, 4) {
            let what = format!("{user:?} in {tier:?}, {access}: {attack}");
            let (_, output) = run_one(&place, tier, &format!("{find}; {attack}"));
            assert_intact(&place, &objects, &format!("{what}: {output}"));
            assert_eq!(objects_and_references(&place).1, references, "{what}: {output}");
            assert!(!place.git(&["cat-file", "-p", later]).contains("evil"), "{what}: {output}");
        }
    });
}
