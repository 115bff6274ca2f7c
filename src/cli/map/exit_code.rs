//! The exit code of a map.

/// The exit code if a row has ended badly.
pub(super) const EXIT_FAILED: u8 = 1;
/// The exit code if a limit of the map was reached.
pub(super) const EXIT_LIMIT: u8 = 4;
/// The exit code if the same command can go on with a row later.
pub(super) const EXIT_TEMPORARY: u8 = 75;

/// The exit code of a map whose rows in this shard have these codes.
pub(super) fn exit_code(
    signal: Option<u8>,
    is_limited: bool,
    has_unstarted: bool,
    codes: impl Iterator<Item = u8>,
) -> u8 {
    if let Some(signal) = signal {
        return 128 + signal;
    }
    if is_limited {
        return EXIT_LIMIT;
    }
    let codes: Vec<u8> = codes.collect();
    // A row that can go on by itself takes precedence: the same command makes progress.
    match () {
        () if codes.iter().any(|code| *code == EXIT_TEMPORARY || *code >= 128) => EXIT_TEMPORARY,
        () if codes.contains(&5) => 5,
        () if has_unstarted || codes.iter().any(|code| ![0, EXIT_LIMIT].contains(code)) => EXIT_FAILED,
        () if codes.contains(&EXIT_LIMIT) => EXIT_LIMIT,
        () => 0,
    }
}
