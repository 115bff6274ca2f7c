//! Parses rate-limit headers: the remaining amount of each limit, and when it resets.
//!
//! Each API has its own names and time formats. They are rows of one table that is used for all responses, as gateways
//! pass on the headers of the API behind them. The Gemini API has no such headers, only a pause in the body of an
//! error.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderMap;

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Requests.
    Requests,
    /// Tokens of prompt and reply.
    Tokens,
    /// Uncached tokens of the prompt.
    InputTokens,
    /// Tokens of the reply.
    OutputTokens,
}

/// The known limits: what they count, and the names of their headers with `limit`, `remaining` or `reset` for the `*`.
const HEADER_TABLE: [(Unit, &str); 7] = [
    // Anthropic: <https://platform.claude.com/docs/en/api/rate-limits>.
    (Unit::Requests, "anthropic-ratelimit-requests-*"),
    (Unit::Tokens, "anthropic-ratelimit-tokens-*"),
    (Unit::InputTokens, "anthropic-ratelimit-input-tokens-*"),
    (Unit::OutputTokens, "anthropic-ratelimit-output-tokens-*"),
    // OpenAI, and servers that imitate it: <https://developers.openai.com/api/docs/guides/rate-limits>.
    (Unit::Requests, "x-ratelimit-*-requests"),
    (Unit::Tokens, "x-ratelimit-*-tokens"),
    // OpenRouter, and many gateways.
    (Unit::Requests, "x-ratelimit-*"),
];

/// The number of limits in the table.
pub(crate) const LIMIT_COUNT: usize = HEADER_TABLE.len();

/// The state of a limit in the headers of one response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LimitReport {
    /// Its row in the table.
    pub(crate) table_index: usize,
    /// What it counts.
    pub(crate) unit: Unit,
    /// The whole amount, if the server sends it.
    pub(crate) limit: Option<f64>,
    /// How much is left.
    pub(crate) remaining: f64,
    /// How long until it resets: from now, if the server sends a clock time, or from when the server counted the
    /// request.
    pub(crate) reset: Duration,
    /// Whether the server sends a clock time.
    pub(crate) is_clock_time: bool,
}

/// All limits whose remaining amount and reset time are in the headers.
pub(crate) fn parse_limits(headers: &HeaderMap, now: Timestamp) -> Vec<LimitReport> {
    let report = |(table_index, (unit, names)): (usize, (Unit, &str))| {
        let header = |field: &str| header_text(headers, &names.replace('*', field));
        let amount = |field: &str| header(field)?.parse::<u64>().ok().map(|number| number as f64);
        let (reset, is_clock_time) = parse_reset(header("reset")?, now)?;
        let (limit, remaining) = (amount("limit"), amount("remaining")?);
        Some(LimitReport { table_index, unit, limit, remaining, reset, is_clock_time })
    };
    HEADER_TABLE.into_iter().enumerate().filter_map(report).collect()
}

/// A header as text. LiteLLM passes on headers of the API behind it with the prefix `llm_provider-`.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    header(name).or_else(|| header(&format!("llm_provider-{name}")))
}

/// How long until the reset, and whether it is a clock time: `2026-11-23T10:00:00Z`, or seconds or milliseconds since
/// 1970; otherwise `6m0s`, or a number of seconds.
fn parse_reset(text: &str, now: Timestamp) -> Option<(Duration, bool)> {
    const LEAST_EPOCH: f64 = 1e9;
    const LEAST_EPOCH_IN_MS: f64 = 1e12;
    let since_epoch = match text.parse::<f64>() {
        Ok(number) if number >= LEAST_EPOCH_IN_MS => number / 1000.0,
        Ok(number) if number >= LEAST_EPOCH => number,
        Ok(number) => return Some((duration_from_secs(number)?, false)),
        Err(_) => match text.parse::<Timestamp>() {
            Ok(time) => time.as_millisecond() as f64 / 1000.0,
            Err(_) => return Some((parse_duration(text)?, false)),
        },
    };
    let left = since_epoch - now.as_millisecond() as f64 / 1000.0;
    Some((duration_from_secs(left.max(0.0))?, true))
}

/// A duration in seconds; the longest possible one on overflow.
pub(crate) fn duration_from_secs(seconds: f64) -> Option<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        return None;
    }
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Parses a duration in Go's format: `1m2.5s`, `250ms`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = Some(text).filter(|text| !text.is_empty())?;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let number: f64 = rest[..unit].parse().ok()?;
        let end = rest[unit..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |more| unit + more);
        let factor = match &rest[unit..end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum = sum.saturating_add(duration_from_secs(number * factor)?);
        rest = &rest[end..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn read(pairs: &[(&'static str, &'static str)]) -> Vec<(Unit, Option<f64>, f64, u64)> {
        let now: Timestamp = "2026-11-23T10:00:00Z".parse().unwrap();
        let headers = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let seen = |it: &LimitReport| (it.unit, it.limit, it.remaining, it.reset.as_millis() as u64);
        parse_limits(&headers, now).iter().map(seen).collect()
    }

    #[test]
    fn each_dialect_is_parsed_from_its_own_headers() {
        assert_eq!(
            read(&[
                ("anthropic-ratelimit-requests-limit", "50"),
                ("anthropic-ratelimit-requests-remaining", "3"),
                ("anthropic-ratelimit-requests-reset", "2026-11-23T10:00:57Z"),
                ("anthropic-ratelimit-output-tokens-limit", "8000"),
                ("anthropic-ratelimit-output-tokens-remaining", "0"),
                ("anthropic-ratelimit-output-tokens-reset", "2026-11-23T09:59:00Z"),
            ]),
            [(Unit::Requests, Some(50.0), 3.0, 57_000), (Unit::OutputTokens, Some(8000.0), 0.0, 0)]
        );
        let openai = [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0.5s"),
        ];
        let expected = [(Unit::Requests, Some(60.0), 59.0, 1_000), (Unit::Tokens, Some(150_000.0), 149_984.0, 360_500)];
        assert_eq!(read(&openai), expected);
        assert_eq!(
            read(&[
                ("llm_provider-x-ratelimit-remaining-requests", "1"),
                ("llm_provider-x-ratelimit-reset-requests", "20ms"),
            ]),
            [(Unit::Requests, None, 1.0, 20)]
        );
        // 2026-11-23T10:00:30Z.
        assert_eq!(
            read(&[
                ("x-ratelimit-limit", "20"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1795428030000"),
            ]),
            [(Unit::Requests, Some(20.0), 0.0, 30_000)]
        );
    }

    #[test]
    fn invalid_numbers_and_times_are_ignored() {
        for (remaining, reset) in [("-1", "1s"), ("", "1s"), ("1e3", "1s"), ("0", ""), ("0", "soon"), ("0", "NaN")] {
            let headers = [("x-ratelimit-remaining-requests", remaining), ("x-ratelimit-reset-requests", reset)];
            assert!(read(&headers).is_empty(), "{remaining} {reset}");
        }
        assert_eq!(parse_duration("99999999999999999999999h"), Some(Duration::MAX));
        assert_eq!(duration_from_secs(f64::INFINITY), Some(Duration::MAX));
    }
}
