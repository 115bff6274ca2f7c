//! Limits in error messages: a model's context window, and the maximum `max_tokens`.

/// The minimum plausible context window.
const MIN_PLAUSIBLE_WINDOW: u64 = 256;

/// The context window, or the limit on the prompt alone, in an error message.
pub(crate) fn context_window(message: &str) -> Option<u64> {
    // The phrases before the number, in messages of the servers in `api_error::CONTEXT_FULL`.
    const BEFORE: [&str; 28] = [
        "maximum context length is",
        "maximum context length of",
        "maximum prompt length is",
        "maximum model length of",
        "context length of only",
        "reached context length of",
        "context length is",
        "context length is only",
        "context length (",
        "context size is",
        "context size (",
        "context window is",
        "context window of",
        "context limit is",
        "context limit of",
        "n_ctx (",
        "number of tokens allowed (",
        "only supports up to",
        "`max_new_tokens` must be <=",
        "`inputs` must have less than",
        "model token limit:",
        "prompt cannot exceed",
        "input length should be [1,",
        "max input tokens:",
        "the limit for this model is",
        "(prompt and prediction) cannot exceed",
        "the total tokens limit",
        "max tokens of",
    ];
    let message = message.to_ascii_lowercase();
    let after = |words: &str| {
        let at = message.find(words)?;
        parse_tokens(message[at + words.len()..].trim_start())
    };
    let before = |words: &str| {
        let start = message[..message.find(words)?].trim_end();
        parse_tokens(&start[start.rfind(|c: char| !is_digit_or_separator(c)).map_or(0, |at| at + 1)..])
    };
    // Anthropic's second form is a sum. In Mistral's form and Anthropic's first, the phrase follows the number.
    let sum = || parse_tokens(message[message.find("exceed context limit:")?..].split_once('>')?.1.trim_start());
    let found = BEFORE.into_iter().find_map(after).or_else(sum);
    found.or_else(|| before("maximum context length")).or_else(|| before("maximum")).or_else(|| {
        let is_of_prompt = ["prompt token count", "input token count"].iter().any(|words| message.contains(words));
        is_of_prompt.then(|| after("exceeds the limit of"))?
    })
}

/// The maximum for `max_tokens` in an error message about a larger value.
pub(crate) fn reply_limit(message: &str) -> Option<u32> {
    const NAMES: [&str; 6] = [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxoutputtokens",
        "maximum tokens you requested",
        "max tokens must",
    ];
    // The phrases before the number, and whether the bound is exclusive.
    const BEFORE: [(&str, bool); 11] = [
        ("supports at most", false),
        ("model limit of", false),
        ("exceeds the limit of", false),
        ("is [1,", false),
        ("less than or equal to", false),
        ("expected a value <=", false),
        ("must be <=", false),
        ("must be at most", false),
        ("cannot exceed", false),
        ("maximum value of", false),
        ("(inclusive) to", true),
    ];
    let message = message.to_ascii_lowercase();
    if !NAMES.iter().any(|name| message.contains(name)) {
        return None;
    }
    let after = |words: &str| {
        let at = message.find(words)?;
        parse_tokens(message[at + words.len()..].trim_start_matches([' ', '`', '\'', '"']))
    };
    let of_rows = BEFORE.into_iter().find_map(|(words, is_exclusive)| Some(after(words)? - u64::from(is_exclusive)));
    let of_anthropic = || {
        let start = &message[..message.find("which is the maximum allowed number of output tokens")?];
        parse_tokens(start.rsplit_once('>')?.1.trim_start())
    };
    u32::try_from(of_rows.or_else(of_anthropic)?).ok()
}

fn is_digit_or_separator(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, ',' | '_')
}

fn parse_tokens(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !is_digit_or_separator(c)).unwrap_or(text.len());
    let digits: String = text[..end].chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|tokens| *tokens >= MIN_PLAUSIBLE_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::{context_window, reply_limit};

    #[test]
    fn the_max_tokens_limit_is_parsed_from_error_messages() {
        for (message, limit) in [
            (
                "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
                64_000,
            ),
            (
                "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you \
                 provided 100000.",
                16_384,
            ),
            (
                "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 16384, but got 100000 \
                 instead.",
                16_384,
            ),
            ("max_tokens exceeds the limit of 8192", 8_192),
            ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8_192),
            (
                "`max_completion_tokens` must be less than or equal to `8,192`, the maximum value for \
                 `max_completion_tokens` is less than the `context_window` for this model",
                8_192,
            ),
            (
                "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is \
                 from 1 (inclusive) to 65537 (exclusive). Update the value and try again.",
                65_536,
            ),
            (
                "The maximum tokens you requested exceeds the model limit of 8192. Try again with a maximum tokens value \
                 that is lower than 8192.",
                8_192,
            ),
            ("too many tokens: max tokens must be less than or equal to 4096", 4_096),
        ] {
            assert_eq!(reply_limit(message), Some(limit), "{message}");
        }
        for message in [
            "max_tokens is too large",
            "`temperature` supports at most 2000",
            "max_tokens must be <= 99999999999",
            "Unsupported parameter: 'max_tokens' is not supported with this model.",
            "",
        ] {
            assert_eq!(reply_limit(message), None, "{message}");
        }
    }

    #[test]
    fn a_context_window_is_parsed_from_error_messages() {
        for (message, window) in [
            ("prompt is too long: 209000 tokens > 200000 maximum", 200_000),
            (
                "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
                200_000,
            ),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the messages, \
              8000 in the completion).",
                8_192,
            ),
            ("request (4476 tokens) exceeds the available context size (4096 tokens), try increasing it", 4_096),
            ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8_192),
            ("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
            ("This model's maximum prompt length is 131,072 but the request contains 140,000 tokens.", 131_072),
            ("However, the model is loaded with context length of only 7866 tokens, which is not enough.", 7_866),
            ("Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", 7_424),
            ("Reached context length of 4096 tokens with model (arch: qwen2)", 4_096),
            ("The decoder prompt (length 17772) is longer than the maximum model length of 16384.", 16_384),
            ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 4_096),
            ("`inputs` must have less than 4096 tokens. Given: 5000", 4_096),
            (
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                32_768,
            ),
            ("Your request exceeded model token limit: 262144 (requested: 291351)", 262_144),
            ("Range of input length should be [1, 129024]", 129_024),
            ("total number of tokens in the prompt cannot exceed 4081 - received 5000.", 4_081),
            ("the input token count is 1251952 but model only supports up to 1048576.", 1_048_576),
            ("prompt token count of 128005 exceeds the limit of 128000", 128_000),
            ("Prompt has 5000 tokens, but the configured context size is 4096 tokens", 4_096),
            (
                "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only \
                 1024 tokens, resulting in a maximum input length of 1014 tokens.",
                1_024,
            ),
            ("Too many input tokens. Max input tokens: 8192, request input token count: 9279 ", 8_192),
            (
                "too many tokens: size limit exceeded by 168512 tokens. The limit for this model is 132000 tokens.",
                132_000,
            ),
            (
                "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354.",
                2_048,
            ),
            ("the number of input tokens 4098 cannot exceed the total tokens limit 4096 for this model", 4_096),
            ("max tokens of 131072 exceeded", 131_072),
        ] {
            assert_eq!(context_window(message), Some(window), "{message}");
        }
        for message in [
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "the request exceeds the available context size. try increasing the context size or enable context shift",
            "invalid params, context window exceeds limit (2013)",
            "prompt too long; exceeded max context length by 10 tokens",
            "prompt is too long: 9 > 8",
            "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs.",
            "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
            "Malformed input request: expected maxLength: 50000, actual: 52611, please reformat your input and try again.",
            "string too long. Expected a string with maximum length 10485760, but got a string with length 12582912 instead.",
            "prompt is too long: 5001 > 5000",
            "the maximum, 😀 maximum",
            "",
        ] {
            assert_eq!(context_window(message), None, "{message}");
        }
    }
}
