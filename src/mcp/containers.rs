//! Commands that start a tool server in a container, which the sandbox doesn't allow.

/// Programs that start containers.
const CONTAINER_PROGRAMS: &[&str] =
    &["buildah", "docker", "docker-compose", "nerdctl", "podman", "podman-compose", "podman-remote"];
/// Programs that start the program that their arguments name.
const STARTERS: &[&str] = &[
    "sudo",
    "doas",
    "env",
    "exec",
    "flatpak-spawn",
    "ionice",
    "lima",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "taskset",
    "time",
    "timeout",
    "unbuffer",
    "xargs",
];
/// Programs that run a script.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh"];

/// What to do about a server in a container, as words after a semicolon.
pub(super) const CONTAINER_HINT: &str =
    "name the program that the image runs, or start the container before the run and write its address as `url`";

/// The program of a command that asks a service outside of the sandbox to start containers, or needs rights that the sandbox
/// takes, also behind programs that start others, and in the script of a shell; and which word names it.
pub fn container_program(words: &[&str]) -> Option<(&'static str, usize)> {
    let name_of = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let is_option = |word: &str| word.starts_with('-') || word.contains('=');
    let known = |name: &str| CONTAINER_PROGRAMS.iter().copied().find(|program| *program == name);
    let mut words = words.iter().enumerate();
    // The word after an option may be its value, as in `sudo -u USER PROGRAM`.
    let mut is_after_option = false;
    while let Some((index, word)) = words.next() {
        let name = name_of(word);
        let may_be_value = std::mem::replace(&mut is_after_option, word.starts_with('-') && !word.contains('='))
            || name.starts_with(|first: char| first.is_ascii_digit());
        if let Some(program) = known(&name) {
            return Some((program, index));
        }
        if SHELLS.contains(&name.as_str()) {
            let (index, script) = words.find(|(_, word)| !is_option(word))?;
            let commands = script.split(['\n', ';', '&', '|', '(', '{']);
            let mut programs = commands.filter_map(|command| {
                command
                    .split_whitespace()
                    .map(name_of)
                    .find(|word| !is_option(word) && !STARTERS.contains(&word.as_str()))
            });
            return programs.find_map(|name| known(&name)).map(|program| (program, index));
        }
        if !STARTERS.contains(&name.as_str()) && !is_option(word) && !may_be_value {
            return None;
        }
    }
    None
}
