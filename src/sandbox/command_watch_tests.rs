use super::allowed_changes::AllowedChanges;
use super::*;
use crate::egress::NetworkAccess;

/// A sandbox that confines nothing and guards `job.yaml`, which is in the workspace.
fn guarding(workspace: &Path) -> Sandbox {
    std::fs::create_dir_all(workspace.join("runs/1")).unwrap();
    std::fs::write(workspace.join("job.yaml"), "model: a/b\n").unwrap();
    let policy = SandboxPolicy {
        workspace: workspace.to_owned(),
        protected: vec![workspace.join("job.yaml")],
        protected_links: vec![],
        allowed_changes: AllowedChanges::default(),
        network: NetworkAccess::None,
        readable: vec![],
        writable: vec![],
        hidden_files: vec![],
        home: None,
        path_dirs: vec![],
        object_stages: ObjectStages::default(),
        guarded_files: GuardedFiles::default(),
    };
    let (out, record) = (workspace.join("runs"), workspace.join("runs/1"));
    let restorer = restorer::Restorer::new(Tier::Landlock, None);
    let watch = TamperWatch::new(&policy, Tier::Landlock, &out, &record, None, restorer).unwrap();
    Sandbox { tamper_watch: Some(watch), ..Sandbox::off() }
}

#[test]
fn a_command_that_never_started_is_not_counted_as_running() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let sandbox = guarding(&root);
    drop(sandbox.watch_command().unwrap());
    std::fs::write(root.join("job.yaml"), "changed by its author\n").unwrap();
    assert_eq!(sandbox.watch_command().unwrap().finish(), Ok(None), "no command was running");
}

#[test]
fn what_a_command_without_a_known_end_changed_is_reported_for_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let sandbox = guarding(&root);
    let watch = sandbox.watch_command().unwrap();
    std::fs::write(root.join("job.yaml"), "changed by the command\n").unwrap();
    drop(watch);
    assert_eq!(std::fs::read_to_string(root.join("job.yaml")).unwrap(), "model: a/b\n");
    let error = sandbox.watch_command().unwrap().finish().unwrap_err();
    assert_eq!(error.changed, [root.join("job.yaml")]);
}
