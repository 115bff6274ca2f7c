//! Finds out whether a command starts jobs in the background.

/// What the model reads if a command has left jobs in the background.
pub(super) const NOTE: &str = "(What the command left running in the background was ended with this call. Run a server and what \
                               uses it in one command.)";

/// Whether a command starts a job in the background and doesn't wait for it. Here-documents aren't searched: `&` is text there.
pub(super) fn leaves_jobs(command: &str) -> bool {
    let mut bytes = command.bytes().peekable();
    let (mut before, mut quote, mut is_started) = (b' ', None, false);
    let mut word = Vec::new();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(b'\''), b'\'') | (Some(b'"'), b'"') => quote = None,
            (None | Some(b'"'), b'\\') => drop(bytes.next()),
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'#') if before.is_ascii_whitespace() || before == b';' => {
                while bytes.next_if(|byte| *byte != b'\n').is_some() {}
            }
            (None, b'<') if bytes.peek() == Some(&b'<') => {
                bytes.next();
                if bytes.next_if_eq(&b'<').is_none() {
                    return is_started;
                }
            }
            (None, b'&') if bytes.peek() == Some(&b'&') => drop(bytes.next()),
            (None, b'&') if !matches!(before, b'>' | b'<' | b'|') && bytes.peek() != Some(&b'>') => is_started = true,
            _ => {}
        }
        if quote.is_none() && byte.is_ascii_alphanumeric() {
            word.push(byte);
        } else {
            if word == b"wait" {
                is_started = false;
            }
            word.clear();
        }
        before = byte;
    }
    is_started && word != b"wait"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_operators_start_jobs() {
        for command in
            ["server &", "a & b", "(a &)", "a&b", "nohup x > log 2>&1 &", "a && b &", "wait; a &", "a 'b' & c"]
        {
            assert!(leaves_jobs(command), "{command}");
        }
        for command in [
            "a && b",
            "a 2>&1",
            "a >& file",
            "a &> file",
            "a |& b",
            "echo 'a & b'",
            "echo \"a & b\"",
            "echo a \\& b",
            "a & wait",
            "a & b; wait $!",
            "a # b & c",
            "curl 'http://x/?a=1&b=2'",
            "cat <<E\na & b\nE",
            "",
        ] {
            assert!(!leaves_jobs(command), "{command}");
        }
    }
}
