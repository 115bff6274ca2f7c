//! The profile of a command: what macOS lets it do, in the language that `sandbox-exec` reads.
//!
//! Apple documents the program in sandbox-exec(1), but not the language. Only constructs are used that published profiles use
//! (those of Chromium, Bazel, Nix and other agents). Of the rules with a filter that name the same operation, the last one that
//! matches decides, so exceptions follow what they are exceptions from. A rule for all operations of a group (`file-write*`)
//! doesn't override one that names a single operation (`file-write-unlink`), so the rules about moving name it everywhere.
//!
//! A path is never a part of the text: it is the value of a parameter, so nothing in it can change the rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::home;
use super::super::policy::SandboxPolicy;
use crate::egress::NetworkAccess;

/// The rules that all commands share.
const BASE: &str = include_str!("base.sbpl");
/// The rules for `network: open`.
const OPEN_NETWORK: &str = include_str!("open_network.sbpl");
/// Home folders, temporary files, sockets of services, other disks and devices.
const HIDDEN: [&str; 7] = [
    "/Users",
    "/private/tmp",
    "/private/var/folders",
    "/private/var/root",
    "/private/var/run",
    "/private/var/tmp",
    "/Volumes",
];
/// Where all of these are mounted, too.
const DATA_VOLUME: &str = "/System/Volumes/Data";
/// Devices that commands may use: they hold no data.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];
/// The files that a process has open, and the names of three of them.
const OPEN_FILES: [&str; 4] = ["/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];
/// How many files next to a writable one are made read-only one by one. The check after each command finds changes of the
/// others.
const MAX_READ_ONLY_SIBLINGS: usize = 500;
/// The most bytes of a profile and its parameters. The system limits all arguments and variables of a program to 1 MiB.
const MAX_BYTES: usize = 256 << 10;

/// The paths that the rules of a profile are about. All are absolute and canonical.
#[derive(Debug, Default)]
pub(super) struct ProfilePaths {
    /// Folders that can't be read.
    pub(super) hidden: Vec<PathBuf>,
    /// What can be read in them: toolchains and the folders of `PATH`.
    pub(super) toolchains: Vec<PathBuf>,
    /// What can't be read in those.
    pub(super) credentials: Vec<PathBuf>,
    /// What can be read in any case.
    pub(super) readable: Vec<PathBuf>,
    /// What can be changed.
    pub(super) writable: Vec<PathBuf>,
    /// What can't be changed in that.
    pub(super) protected: Vec<PathBuf>,
}

impl ProfilePaths {
    /// The paths for the commands of a run. `scratch` are the folders that replace the home folder and `/tmp`, in one folder in
    /// the one for temporary files.
    pub(super) fn new(policy: &SandboxPolicy, scratch: [PathBuf; 2], read_only: bool) -> Self {
        let canonical = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let user_home = policy.home.as_ref().map(canonical).filter(|home| home.parent().is_some());
        // The folder for temporary files may be another one than usual.
        let temporary = scratch[0].ancestors().nth(2).filter(|folder| folder.parent().is_some()).map(Path::to_owned);
        let hidden: Vec<PathBuf> = HIDDEN.iter().map(PathBuf::from).chain(temporary).chain(user_home.clone()).collect();
        let (mut toolchains, mut credentials) = (Vec::new(), Vec::new());
        for (path, secrets) in user_home.iter().flat_map(|home| home::toolchains(home)) {
            toolchains.push(canonical(&path));
            credentials.extend(secrets.iter().map(canonical));
        }
        // An entry of `PATH` must not show all home folders or all temporary files.
        let is_narrow = |path: &PathBuf| !hidden.iter().any(|hidden| hidden.starts_with(path));
        toolchains.extend(policy.path_dirs.iter().map(canonical).filter(|path| path.is_dir() && is_narrow(path)));
        let roots: Vec<PathBuf> = policy.writable_roots().map(canonical).collect();
        let mut protected = policy.protected_links.clone();
        for path in &policy.protected {
            add_protected(path, policy, &mut protected);
        }
        let readable = policy.readable.iter().map(canonical).chain(roots.iter().cloned()).chain(scratch.clone());
        let readable = readable.collect();
        let writable = scratch.into_iter().chain(roots.into_iter().filter(|_| !read_only)).collect();
        Self { hidden, toolchains, credentials, readable, writable, protected }
    }
}

/// Adds a path. If the job allows changes of something in it, everything else in it is added instead.
fn add_protected(path: &Path, policy: &SandboxPolicy, protected: &mut Vec<PathBuf>) {
    if !policy.allowed_changes.allows_below(path) {
        protected.push(path.to_owned());
        return;
    }
    let may_change = |path: &Path| policy.allowed_changes.unprotected.iter().any(|allowed| path.starts_with(allowed));
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(MAX_READ_ONLY_SIBLINGS) {
        if !may_change(&entry.path()) {
            add_protected(&entry.path(), policy, protected);
        }
    }
}

/// A profile, and the values of its parameters.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) text: String,
    parameters: BTreeMap<PathBuf, String>,
}

impl Profile {
    /// Writes the rules.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn new(paths: &ProfilePaths, network: NetworkAccess) -> Result<Self, String> {
        let mut profile = Self { text: BASE.to_owned(), parameters: BTreeMap::new() };
        // Elsewhere, nothing can be changed anyway.
        let changeable = paths.protected.iter().filter(|path| is_within(path, &paths.writable)).cloned();
        let protected = outermost(changeable.collect());
        let in_data_volume: Vec<PathBuf> = paths.hidden.iter().map(|path| under_data_volume(path)).collect();
        let devices: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
        let open_files: Vec<PathBuf> = OPEN_FILES.iter().map(PathBuf::from).collect();

        profile.section("What is hidden, and exceptions.");
        profile.rule("deny file-read*", &["subpath"], &[&paths.hidden[..], &in_data_volume].concat());
        profile.rule("deny file-read*", &["subpath"], &[PathBuf::from("/dev")]);
        profile.rule("allow file-read* file-ioctl", &["literal"], &devices);
        profile.rule("allow file-read*", &["subpath"], &open_files);
        profile.rule("allow file-read*", &["subpath"], &paths.toolchains);
        profile.rule("deny file-read*", &["subpath"], &paths.credentials);
        profile.rule("allow file-read*", &["subpath"], &paths.readable);
        profile.section("Programs look at the folders above the one that they are in. That doesn't list them.");
        let shown = [&paths.toolchains[..], &paths.readable, &[PathBuf::from("/dev/null")]].concat();
        profile.rule("allow file-read-metadata", &["literal"], &ancestors(&shown));

        profile.section("What can be changed, and exceptions.");
        // `file-link` is checked at the existing name: without a filter, a file that is only readable could get a writable one.
        profile.rule("allow file-write* file-write-unlink file-link", &["subpath"], &paths.writable);
        profile.rule("deny file-write-setugid", &["subpath"], &paths.writable);
        profile.rule("allow file-write-data", &["literal"], &devices);
        profile.rule("allow file-write-data", &["subpath"], &open_files);
        profile.rule("deny file-write* file-write-unlink file-link", &["literal", "subpath"], &protected);
        // A folder that is moved takes its protected files to another path.
        let above = ancestors(&protected).into_iter().filter(|path| is_within(path, &paths.writable));
        let unmovable: Vec<PathBuf> = paths.writable.iter().cloned().chain(above).collect();
        profile.rule("deny file-write-unlink", &["literal"], &outermost_first(unmovable));

        profile.text.push_str(match network {
            NetworkAccess::None | NetworkAccess::Hosts => "\n(deny network*)\n",
            NetworkAccess::Open => OPEN_NETWORK,
        });
        match profile.bytes() > MAX_BYTES {
            true => Err(format!(
                "there are too many protected paths ({}): with them, the profile is longer than {} KiB",
                protected.len(),
                MAX_BYTES >> 10
            )),
            false => Ok(profile),
        }
    }

    /// The parameters, each with its value.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.parameters.iter().map(|(path, name)| (name.as_str(), path.as_path()))
    }

    fn section(&mut self, comment: &str) {
        self.text.push_str(&format!("\n; {comment}\n"));
    }

    /// Adds a rule about paths. Without any path it would be about all of them, so it is left out.
    fn rule(&mut self, rule: &str, filters: &[&str], paths: &[PathBuf]) {
        let paths: Vec<&PathBuf> = paths.iter().filter(|path| path.is_absolute()).collect();
        if paths.is_empty() {
            return;
        }
        self.text.push_str(&format!("({rule}"));
        for path in paths {
            let next = format!("P{}", self.parameters.len());
            let name = self.parameters.entry(path.clone()).or_insert(next);
            for filter in filters {
                self.text.push_str(&format!("\n  ({filter} (param \"{name}\"))"));
            }
        }
        self.text.push_str(")\n");
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.parameters().map(|(name, path)| name.len() + path.as_os_str().len() + 16).sum::<usize>()
    }
}

/// A path as it is seen where the volume with the changeable files is mounted.
fn under_data_volume(path: &Path) -> PathBuf {
    Path::new(DATA_VOLUME).join(path.strip_prefix("/").unwrap_or(path))
}

/// The paths that aren't in another one.
fn outermost(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in outermost_first(paths) {
        // Everything in a path follows it at once.
        if !found.last().is_some_and(|above| path.starts_with(above)) {
            found.push(path);
        }
    }
    found
}

fn outermost_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup();
    paths
}

/// The folders above these paths, without `/`.
fn ancestors(paths: &[PathBuf]) -> Vec<PathBuf> {
    let above = paths.iter().flat_map(|path| path.ancestors().skip(1)).filter(|path| path.parent().is_some());
    outermost_first(above.map(Path::to_owned).collect())
}

fn is_within(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::sandbox::allowed_changes::AllowedChanges;
    use crate::sandbox::{GuardedFiles, ObjectStages};

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    /// The rules without comments, each on one line, with the paths in place of the parameters.
    fn rules(profile: &Profile) -> Vec<String> {
        let mut text: String =
            profile.text.lines().filter(|line| !line.starts_with(';')).collect::<Vec<_>>().join("\n");
        for (name, path) in profile.parameters() {
            text = text.replace(&format!("(param \"{name}\")"), &format!("{}", path.display()));
        }
        let text = text.replace("\n ", "");
        text.lines().filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect()
    }

    fn sample() -> ProfilePaths {
        ProfilePaths {
            hidden: paths(&["/Users", "/private/tmp"]),
            toolchains: paths(&["/Users/ada/.cargo"]),
            credentials: paths(&["/Users/ada/.cargo/credentials"]),
            readable: paths(&["/Users/ada/code", "/private/tmp/run/home"]),
            writable: paths(&["/private/tmp/run/home", "/Users/ada/code"]),
            protected: paths(&[
                "/Users/ada/code/.git",
                "/Users/ada/code/.git/hooks",
                "/Users/ada/code/a/b/c",
                "/etc/x",
            ]),
        }
    }

    fn position(rules: &[String], rule: &str) -> usize {
        rules.iter().position(|found| found == rule).unwrap_or_else(|| panic!("{rule} in {rules:#?}"))
    }

    #[test]
    fn each_exception_follows_what_it_is_an_exception_from() {
        let rules = rules(&Profile::new(&sample(), NetworkAccess::None).unwrap());
        assert_eq!(rules[..2], ["(version 1)", "(deny default)"]);
        let order = [
            "(allow file-read*)",
            "(deny file-read* (subpath /Users) (subpath /private/tmp) (subpath /System/Volumes/Data/Users) (subpath \
             /System/Volumes/Data/private/tmp))",
            "(allow file-read* (subpath /Users/ada/.cargo))",
            "(deny file-read* (subpath /Users/ada/.cargo/credentials))",
            "(allow file-read* (subpath /Users/ada/code) (subpath /private/tmp/run/home))",
            "(allow file-read-metadata (literal /Users) (literal /Users/ada) (literal /dev) (literal /private) (literal \
             /private/tmp) (literal /private/tmp/run))",
            "(allow file-write* file-write-unlink file-link (subpath /private/tmp/run/home) (subpath /Users/ada/code))",
            "(deny file-write-setugid (subpath /private/tmp/run/home) (subpath /Users/ada/code))",
            "(deny file-write* file-write-unlink file-link (literal /Users/ada/code/.git) (subpath /Users/ada/code/.git) (literal \
             /Users/ada/code/a/b/c) (subpath /Users/ada/code/a/b/c))",
            "(deny file-write-unlink (literal /Users/ada/code) (literal /Users/ada/code/a) (literal /Users/ada/code/a/b) \
             (literal /private/tmp/run/home))",
            "(deny network*)",
        ];
        let found: Vec<usize> = order.iter().map(|rule| position(&rules, rule)).collect();
        assert!(found.is_sorted(), "{rules:#?}");
    }

    #[test]
    fn nothing_but_named_paths_and_devices_can_be_changed() {
        let profile = Profile::new(&sample(), NetworkAccess::None).unwrap();
        let writes: Vec<String> =
            rules(&profile).into_iter().filter(|rule| rule.starts_with("(allow file-w")).collect();
        assert_eq!(
            writes,
            [
                "(allow file-write* file-write-unlink file-link (subpath /private/tmp/run/home) (subpath /Users/ada/code))",
                "(allow file-write-data (literal /dev/null) (literal /dev/zero) (literal /dev/random) (literal /dev/urandom))",
                "(allow file-write-data (subpath /dev/fd) (subpath /dev/stdin) (subpath /dev/stdout) (subpath /dev/stderr))",
            ]
        );
        let none = Profile::new(&ProfilePaths::default(), NetworkAccess::None).unwrap();
        assert!(
            !rules(&none).iter().any(|rule| rule.starts_with("(allow file-write*") || rule.ends_with("link)")),
            "{none:?}"
        );
    }

    #[test]
    fn only_an_open_network_allows_sockets_and_the_services_behind_them() {
        let text = |network| Profile::new(&sample(), network).unwrap().text;
        let (none, open) = (text(NetworkAccess::None), text(NetworkAccess::Open));
        for word in ["allow network", "system-socket", "SystemConfiguration", "trustd", "mDNSResponder"] {
            assert!(!none.contains(word) && open.contains(word), "{word}");
        }
        // The keychain, and services that start programs outside of the sandbox.
        for word in
            ["SecurityServer", "securityd", "launchservicesd", "coreservices", "cfprefsd", "(allow mach-lookup)"]
        {
            assert!(!none.contains(word) && !open.contains(word), "{word}");
        }
    }

    #[test]
    fn a_path_can_not_change_the_rules() {
        let hostile = [
            b"/Users/ada/code/\"))(allow default)(deny file-write* (subpath \"/x".as_slice(),
            b"/Users/ada/code/a\n(allow network*)\n; b",
            b"/Users/ada/code/#| |# \\ ' $HOME `x` \x1b[2J \xe2\x80\xae \xff P0=/ -D",
        ];
        let hostile: Vec<PathBuf> = hostile.iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
        let plain = paths(&["/Users/ada/code/1", "/Users/ada/code/2", "/Users/ada/code/3"]);
        let with = |protected: &[PathBuf]| {
            let profile =
                Profile::new(&ProfilePaths { protected: protected.to_vec(), ..sample() }, NetworkAccess::None).unwrap();
            let values = profile.parameters().map(|(_, path)| path.to_owned()).collect::<Vec<_>>();
            (profile.text, values)
        };
        let ((text, values), (expected, _)) = (with(&hostile), with(&plain));
        // The first one contains more folders, which can't be moved.
        let without_moves = |text: &str| text.split("(deny file-write-unlink").next().unwrap().to_owned();
        assert_eq!(without_moves(&text), without_moves(&expected));
        assert!(hostile.iter().all(|path| values.contains(path)), "{values:?}");
        for word in ["allow default", "allow network", "HOME", "\u{1b}"] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn parentheses_and_quotes_are_balanced() {
        for network in [NetworkAccess::None, NetworkAccess::Open] {
            let text = Profile::new(&sample(), network).unwrap().text;
            let code: String = text.lines().filter(|line| !line.starts_with(';')).collect();
            let (mut depth, mut quotes) = (0_i32, 0);
            for char in code.chars() {
                match char {
                    '"' => quotes += 1,
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                assert!(depth >= 0, "{text}");
            }
            assert_eq!((depth, quotes % 2), (0, 0), "{text}");
        }
    }

    #[test]
    fn each_path_is_one_parameter() {
        let profile = Profile::new(&sample(), NetworkAccess::None).unwrap();
        let mut names: Vec<&str> = profile.parameters().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| profile.text.contains(&format!("(param \"{name}\")"))));
    }

    #[test]
    fn a_profile_that_is_too_long_is_refused() {
        let protected = (0..5_000).map(|number| PathBuf::from(format!("/Users/ada/code/{number}/.git"))).collect();
        let error = Profile::new(&ProfilePaths { protected, ..sample() }, NetworkAccess::None).unwrap_err();
        assert!(error.contains("too many protected paths (5000)"), "{error}");
    }

    fn policy(workspace: &Path, home: &Path) -> SandboxPolicy {
        SandboxPolicy {
            workspace: workspace.to_owned(),
            protected: vec![workspace.join(".github"), workspace.join("job.yaml")],
            protected_links: vec![workspace.join("link")],
            allowed_changes: AllowedChanges::default(),
            network: NetworkAccess::None,
            readable: Vec::new(),
            writable: Vec::new(),
            hidden_files: vec![],
            home: Some(home.to_owned()),
            path_dirs: vec![home.to_owned(), home.join("bin"), PathBuf::from("/")],
            object_stages: ObjectStages::default(),
            guarded_files: GuardedFiles::default(),
        }
    }

    #[test]
    fn the_policy_becomes_paths() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (workspace, user_home) = (root.join("work"), root.join("user"));
        for path in ["work/.github/workflows", "user/bin", "user/.cargo/bin"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        for path in ["work/.github/other.yml", "user/.cargo/credentials.toml"] {
            std::fs::write(root.join(path), "token").unwrap();
        }
        let scratch = [root.join("run/home"), root.join("run/tmp")];
        let mut policy = policy(&workspace, &user_home);
        let found = ProfilePaths::new(&policy, scratch.clone(), false);
        assert!(found.hidden.contains(&user_home) && found.hidden.contains(&PathBuf::from("/Users")));
        assert_eq!(found.toolchains, [user_home.join(".cargo"), user_home.join("bin")]);
        assert_eq!(found.credentials, [user_home.join(".cargo/credentials.toml")]);
        assert_eq!(found.readable, [&workspace, &scratch[0], &scratch[1]].map(Clone::clone));
        assert_eq!(found.writable, [&scratch[0], &scratch[1], &workspace].map(Clone::clone));
        assert_eq!(found.protected, ["link", ".github", "job.yaml"].map(|name| workspace.join(name)));
        assert_eq!(ProfilePaths::new(&policy, scratch.clone(), true).writable, scratch);
        policy.allowed_changes.unprotected = vec![workspace.join(".github/workflows")];
        let found = ProfilePaths::new(&policy, scratch, false);
        assert_eq!(found.protected, ["link", ".github/other.yml", "job.yaml"].map(|name| workspace.join(name)));
    }
}
