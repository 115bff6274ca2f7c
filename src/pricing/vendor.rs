//! Whose model a name means, at servers that have models of many makers.

/// The provider of the table that makes the model, and the model's name there: gateways and clouds write other words before
/// it (`anthropic/claude-sonnet-4-5`, `us.anthropic.claude-sonnet-4-5-20250929-v1:0`), and routes of LiteLLM's are
/// paths. `None` where the name doesn't tell.
pub fn identify(name: &str) -> Option<(&'static str, &str)> {
    let last = name.rsplit('/').next().unwrap_or_default();
    let own = last.rsplit_once("anthropic.").map_or(last, |(_, own)| own);
    let is_o = |name: &str| name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let list = match own {
        _ if own.starts_with("claude-") => "anthropic",
        _ if own.starts_with("gemini-") => "google",
        _ if own.starts_with("gpt-") || own.starts_with("chatgpt-") || is_o(own) => "openai",
        _ => return None,
    };
    Some((list, own))
}

#[cfg(test)]
mod tests {
    use super::identify;

    #[test]
    fn a_name_tells_its_maker_whatever_stands_before_it() {
        for (name, expected) in [
            ("claude-sonnet-4-5", Some(("anthropic", "claude-sonnet-4-5"))),
            ("anthropic/claude-opus-4.5", Some(("anthropic", "claude-opus-4.5"))),
            ("bedrock/us.anthropic.claude-haiku-4-5-v1:0", Some(("anthropic", "claude-haiku-4-5-v1:0"))),
            ("vertex/google/gemini-2.5-pro", Some(("google", "gemini-2.5-pro"))),
            ("openai/o4-mini", Some(("openai", "o4-mini"))),
            ("gpt-5.1", Some(("openai", "gpt-5.1"))),
            ("olmo-2", None),
            ("my-claude", None),
            ("", None),
        ] {
            assert_eq!(identify(name), expected, "{name}");
        }
    }
}
