//! What the table of prices doesn't say of a model's window.

use super::vendor;

/// Windows that the table lacks: the table's provider, its name for the model, and the tokens of prompt and reply, as the
/// models' own pages say (<https://ai.google.dev/gemini-api/docs/models>, November 2026). A model's limit on the prompt
/// stands for its window, for Gemini's replies have a limit of their own.
const WINDOWS: [(&str, &str, u64); 3] = [
    ("google", "gemini-2.5-pro", 1_048_576),
    ("google", "gemini-3-pro-preview", 1_048_576),
    ("google", "gemini-3.1-pro-preview", 1_048_576),
];

/// OpenAI's limits on a prompt that are below the window: how a model's name begins, its window in the table, and the most
/// tokens of a prompt (<https://developers.openai.com/api/docs/models>, November 2026). The rest is kept for the reply,
/// however short it is to be.
const PROMPT_LIMITS: [(&str, u64, u64); 3] =
    [("gpt-5", 400_000, 272_000), ("gpt-5.", 1_000_000, 922_000), ("gpt-6", 1_000_000, 922_000)];

/// The window of a model of which the table has none.
pub(super) fn context_window(list: &str, id: &str) -> Option<u64> {
    WINDOWS.into_iter().find(|(known, name, _)| (*known, *name) == (list, id)).map(|(.., window)| window)
}

/// The most tokens of a prompt, where that is less than the window. `id` is the name in the table.
pub(super) fn prompt_limit(id: &str, window: u64) -> Option<u64> {
    let (_, name) = vendor::identify(id).filter(|(list, _)| *list == "openai")?;
    // Their replies can be longer.
    if name.ends_with("-pro") && window < 1_000_000 {
        return None;
    }
    let fits = |(start, least, _): &(&str, u64, u64)| name.starts_with(start) && window >= *least;
    PROMPT_LIMITS.into_iter().rev().find(fits).map(|(.., most)| most)
}

#[cfg(test)]
mod tests {
    use super::super::{PriceKey, Prices, find_model, table_of};
    use super::*;

    fn listed<'a>(list: &'a str, name: &'a str) -> PriceKey<'a> {
        PriceKey { provider: list, name, price_provider: list, price_model: name }
    }

    #[test]
    fn windows_are_added_only_where_the_table_has_none() {
        for (list, name, window) in WINDOWS {
            let in_table = table_of(list).and_then(|table| find_model(table, list, name));
            assert_eq!(in_table.map(genai_prices::ModelInfo::id), Some(name), "the table has no such model");
            assert_eq!(
                in_table.and_then(genai_prices::ModelInfo::context_window),
                None,
                "{name}: the table has it now"
            );
            assert_eq!(Prices::new().context_window(listed(list, name)), Some(window));
        }
        let by_address = listed("google", "gemini-3.1-pro-preview-customtools");
        assert_eq!(Prices::new().context_window(by_address), Some(1_048_576));
    }

    #[test]
    fn a_prompt_can_have_a_limit_below_the_window() {
        for (name, window, most) in [
            ("gpt-6-sol", 1_050_000, Some(922_000)),
            ("gpt-6.1-terra", 1_050_000, Some(922_000)),
            ("gpt-5.4", 1_050_000, Some(922_000)),
            ("gpt-5.1", 400_000, Some(272_000)),
            ("gpt-5-mini", 400_000, Some(272_000)),
            ("gpt-5-pro", 400_000, None),
            ("gpt-4.1", 1_000_000, None),
        ] {
            let item = listed("openai", name);
            assert_eq!(Prices::new().context_window(item), Some(window), "{name}");
            assert_eq!(Prices::new().prompt_limit(item), most, "{name}");
        }
        assert_eq!(Prices::new().prompt_limit(listed("anthropic", "claude-opus-5-5")), None);
        assert_eq!(prompt_limit("openai/gpt-6-sol", 1_050_000), Some(922_000));
    }
}
