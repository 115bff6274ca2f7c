//! Attacks on what must stay as it is within the workspace.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::everywhere;
use super::place::{Place, Tier};

/// Each in a run of its own: in landlock's tier the first that changes something ends it.
const ATTACKS: [&str; 17] = [
    "echo 'touch ran' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "echo '[core] fsmonitor = ./x' >> .git/config",
    "git config core.hooksPath hooks",
    "sed -i s/Go/Stop/ job.yaml",
    "rm -f job.yaml",
    "chmod 666 job.yaml",
    "mv .git .git-aside; mkdir -p .git/hooks; echo x > .git/hooks/post-checkout",
    "mv .git/hooks .git/aside; mkdir .git/hooks; echo x > .git/hooks/post-checkout",
    "rm -rf .git/hooks; ln -s ../../outside .git/hooks",
    "mv job.yaml other.yaml; echo 'model: x/y' > job.yaml",
    "echo x > copy; ln -f copy job.yaml; echo y >> copy",
    "echo ../elsewhere > .git/commondir",
    "mkdir -p .git/info; printf '* filter=x\\n' > .git/info/attributes",
    "echo '[core]' > .git/config.worktree",
    "for plan in runs/*/2*/plan.json; do echo x > $plan; done",
    "for job in runs/*/2*/job.yaml; do echo '# x' >> $job; done",
    "for journal in runs/*/2*/events.jsonl; do sed -i s/Go/Stop/ $journal; done; sleep 0.02",
];

/// Every file that must stay, with its mode and content.
fn picture(workspace: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open: Vec<_> =
        [".git/hooks", ".git/config", "job.yaml", ".git/commondir", ".git/info/attributes", ".git/config.worktree"]
            .map(|name| workspace.join(name))
            .into();
    while let Some(path) = open.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        }
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        all.push((path.display().to_string(), metadata.permissions().mode(), content));
    }
    all.sort();
    all
}

#[test]
fn what_is_protected_stays_as_it_is() {
    for (user, tier) in everywhere() {
        let place = Place::new(user).unwrap();
        let before = picture(&place.workspace());
        for attack in ATTACKS {
            let command = format!("PATH=/usr/bin:/bin; {attack}");
            let ended = place.run(tier, &[command]);
            assert_eq!(picture(&place.workspace()), before, "{user:?} in {tier:?}: {attack}\n{}", ended.all());
            let folder = ended.run_folder();
            let (plan, result) = (folder.plan(), folder.result());
            assert!(plan["parent"].is_object(), "{user:?} in {tier:?}: {attack}");
            assert!(!folder.file("job.yaml").contains("# x"), "{user:?} in {tier:?}: {attack}");
            match (tier, result["outcome"].as_str().unwrap()) {
                (Tier::Landlock, "environment_failed") => {
                    let message = result["error"]["message"].as_str().unwrap();
                    assert!(message.contains("protected") || message.contains("journal"), "{message}");
                }
                (Tier::Bubblewrap, "completed" | "environment_failed") => {}
                // The kernel itself denies this one.
                (Tier::Landlock, "completed") if attack.starts_with("chmod") => {}
                (_, other) => panic!("{user:?} in {tier:?}: {attack}: {other}\n{}", ended.all()),
            }
        }
    }
}

#[test]
fn they_succeed_where_nothing_confines_them() {
    let place = Place::new(super::User::Same).unwrap();
    for attack in ATTACKS.iter().filter(|attack| !attack.contains("runs/")) {
        let before = picture(&place.workspace());
        place.run(Tier::Off, &[(*attack).to_owned()]);
        assert_ne!(picture(&place.workspace()), before, "{attack}");
        let workspace = place.workspace();
        let script = "rm -rf .git job.yaml other.yaml copy .git-aside; git init -q .; \
                      printf 'model: anthropic/claude-haiku-4-5\\nparent: { prompt: Go., tools: [bash] }\\n' > job.yaml";
        let again = std::process::Command::new("bash").args(["-c", script]).current_dir(workspace).status();
        assert!(again.unwrap().success());
    }
}

#[test]
fn committing_goes_on_working() {
    for (user, tier) in everywhere() {
        let place = Place::new(user).unwrap();
        let commit = "echo new > src/new.txt && git add src && \
                      git -c user.name=a -c user.email=a@b.example commit -q -m new && git log --oneline | wc -l";
        let outputs = place.outputs(tier, &[commit.to_owned()]);
        assert_eq!(outputs[0].trim(), "2", "{user:?} in {tier:?}");
    }
}
