//! The table of capabilities: a row for each pattern of names, with facts about the matching models.
//!
//! For each fact, the first matching row decides. If no row has the fact, the vendor's default applies. As of November
//! 2026, from:
//! - Anthropic: <https://platform.claude.com/docs/en/build-with-claude/thinking>, `/effort`, `/adaptive-thinking`,
//!   `/extended-thinking`, <https://platform.claude.com/docs/en/about-claude/models/overview> and `/migration-guide`,
//!   and for prefix-bound thinking
//!   <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks>;
//! - OpenAI: <https://developers.openai.com/api/docs/guides/reasoning>, `/guides/deployment-checklist`,
//!   `/guides/latest-model`, the pages below <https://developers.openai.com/api/docs/models>, the parameters in
//!   OpenAI's own client, and error messages: <https://github.com/openai/openai-agents-python/issues/2089> (`minimal`),
//!   <https://github.com/BerriAI/litellm-docs/pull/1173>, <https://github.com/huggingface/smolagents/issues/1893>
//!   (stop), <https://github.com/opencode-ai/opencode/issues/140> (output limits);
//! - Google: <https://ai.google.dev/gemini-api/docs/thinking>, the pages on each new model, and the guides of
//!   <https://docs.cloud.google.com/gemini-enterprise-agent-platform/models>; error messages on output limits as in
//!   <https://github.com/stackblitz-labs/bolt.diy/issues/955>;
//! - images and PDFs: <https://platform.claude.com/docs/en/build-with-claude/vision>, `/pdf-support`,
//!   <https://developers.openai.com/api/docs/guides/images-vision>, `/guides/pdf-files`,
//!   <https://ai.google.dev/gemini-api/docs/image-understanding>, `/media-resolution`, and for results with media
//!   <https://ai.google.dev/gemini-api/docs/function-calling>. A page of a PDF takes its text, at most about 3,000 tokens, and
//!   its image.

use super::capabilities::{Capabilities, ChatTools, TemperatureSupport, ThinkingControl, ThinkingOff, ThinkingSupport};
use super::image_tokens::ImageTokens;
use crate::job::Thinking;

/// The major and minor version: `gpt-5.6-sol` is (5, 6), `claude-opus-4` is (4, 0).
pub(super) type Version = (u32, u32);

/// A model's name in parts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NameParts {
    pub(super) words: Vec<String>,
    pub(super) version: Option<Version>,
    /// Whether the name is a gateway's, which may accept what the model itself refuses.
    pub(super) is_of_gateway: bool,
}

/// A row of the table: a pattern of names, and facts about the matching models.
pub(super) struct Row(Pattern, &'static [Fact]);

/// A fact about a model.
#[derive(Clone, Copy)]
enum Fact {
    Thinking(ThinkingSupport),
    /// The levels, if they aren't those of its thinking.
    Levels(&'static [Thinking]),
    Temperature(TemperatureSupport),
    MaxOutput(Option<u32>),
    RejectsStop,
    Tools(ChatTools),
    SignsCalls,
    PrefixBound,
    Images(Option<ImageTokens>),
    Pdfs(Option<u32>),
    ResultsWithoutMedia,
    /// Its weights are open, so it may run on any server, under other rules.
    OpenWeight,
}

use Fact::{
    Images, Levels, MaxOutput, OpenWeight, Pdfs, PrefixBound, RejectsStop, ResultsWithoutMedia, SignsCalls,
    Temperature, Tools,
};

/// The names that a row matches.
#[derive(Clone, Copy)]
struct Pattern {
    /// At least one of these words.
    any: &'static [&'static str],
    /// All of these words.
    all: &'static [&'static str],
    /// None of these words.
    none: &'static [&'static str],
    versions: Versions,
}

#[derive(Clone, Copy)]
enum Versions {
    /// Any, or none at all.
    Any,
    /// The name has no version: it means the newest model.
    Missing,
    /// From one to another, inclusive.
    Between(Version, Version),
}

/// Matches names with at least one of these words, or any name if the list is empty.
const fn any(words: &'static [&'static str]) -> Pattern {
    Pattern { any: words, all: &[], none: &[], versions: Versions::Any }
}

/// Matches names with all of these words.
const fn all(words: &'static [&'static str]) -> Pattern {
    Pattern { any: &[], all: words, none: &[], versions: Versions::Any }
}

impl Pattern {
    const fn without(self, words: &'static [&'static str]) -> Self {
        Self { none: words, ..self }
    }

    const fn with_any(self, words: &'static [&'static str]) -> Self {
        Self { any: words, ..self }
    }

    const fn unversioned(self) -> Self {
        Self { versions: Versions::Missing, ..self }
    }

    const fn between(self, first: Version, last: Version) -> Self {
        Self { versions: Versions::Between(first, last), ..self }
    }

    const fn from(self, first: Version) -> Self {
        self.between(first, (u32::MAX, u32::MAX))
    }

    const fn up_to(self, last: Version) -> Self {
        self.between((0, 0), last)
    }

    fn matches(&self, name: &NameParts) -> bool {
        let has = |word: &&str| name.words.iter().any(|own| own == word);
        (self.any.is_empty() || self.any.iter().any(has))
            && self.all.iter().all(has)
            && !self.none.iter().any(has)
            && match self.versions {
                Versions::Any => true,
                Versions::Missing => name.version.is_none(),
                Versions::Between(first, last) => name.version.is_some_and(|own| (first..=last).contains(&own)),
            }
    }
}

const TO_HIGH: &[Thinking] = &[Thinking::Low, Thinking::Medium, Thinking::High];
const TO_XHIGH: &[Thinking] = &[Thinking::Low, Thinking::Medium, Thinking::High, Thinking::XHigh];
const TO_MAX: &[Thinking] = &[Thinking::Low, Thinking::Medium, Thinking::High, Thinking::XHigh, Thinking::Max];
const MAX_WITHOUT_XHIGH: &[Thinking] = &[Thinking::Low, Thinking::Medium, Thinking::High, Thinking::Max];

const fn thinking(control: ThinkingControl, levels: &'static [Thinking], off: ThinkingOff) -> Fact {
    Fact::Thinking(ThinkingSupport { control, levels, off, is_on_by_default: false })
}

const fn levels(levels: &'static [Thinking], off: ThinkingOff) -> Fact {
    thinking(ThinkingControl::Level, levels, off)
}

const fn effort(off: ThinkingOff) -> Fact {
    levels(TO_HIGH, off)
}

const fn on_by_default(off: ThinkingOff) -> Fact {
    Fact::Thinking(ThinkingSupport { control: ThinkingControl::Level, levels: TO_HIGH, off, is_on_by_default: true })
}

const fn budget(min: u32, max: u32, off: ThinkingOff) -> Fact {
    thinking(ThinkingControl::Budget { min, max }, TO_HIGH, off)
}

const NO_THINKING: Fact = thinking(ThinkingControl::Unsupported, &[], ThinkingOff::Omit);
const ALWAYS_ON: Fact = effort(ThinkingOff::Impossible);

const FIXED: Fact = Temperature(TemperatureSupport::Fixed);
const FREE: Fact = Temperature(TemperatureSupport::Any);
const IGNORED: Fact = Temperature(TemperatureSupport::Ignored);
const FIXED_WHILE_THINKING: Fact = Temperature(TemperatureSupport::FixedWhileThinking { max: 2.0 });
const CLAUDE_TEMPERATURE: Fact = Temperature(TemperatureSupport::FixedWhileThinking { max: 1.0 });

/// The capabilities of models that no row matches. Newer models, and servers with a vendor's API, support these.
const fn defaults(thinking: Fact, temperature: TemperatureSupport) -> Capabilities {
    let Fact::Thinking(thinking) = thinking else { panic!("defaults need thinking") };
    Capabilities {
        is_known: false,
        thinking: ThinkingSupport { levels: TO_MAX, ..thinking },
        temperature,
        max_output_tokens: None,
        rejects_stop_sequences: false,
        chat_tools: ChatTools::Always,
        signs_calls: false,
        has_prefix_bound_thinking: false,
        image_tokens: None,
        pdf_page_tokens: None,
        takes_media_in_results: true,
    }
}

/// Anthropic's patches, at most so many. Newer models see more.
const fn claude_images(max: u64) -> Fact {
    Images(Some(ImageTokens::Patches { edge: 28, max, percent: 100 }))
}

const fn gpt_tiles(base: u64, tile: u64) -> Fact {
    Images(Some(ImageTokens::ScaledTiles { base, tile }))
}

const fn gpt_patches(max: u64, percent: u64) -> Fact {
    Images(Some(ImageTokens::Patches { edge: 32, max, percent }))
}

const TEXT_ONLY: &[Fact] = &[Images(None), Pdfs(None)];

const MIN_CLAUDE_BUDGET: u32 = 1_024;

/// Servers that imitate the API support the older form of its thinking option.
pub(super) const CLAUDE_DEFAULTS: Capabilities = defaults(
    budget(MIN_CLAUDE_BUDGET, u32::MAX, ThinkingOff::Word("disabled")),
    TemperatureSupport::FixedWhileThinking { max: 2.0 },
);
pub(super) const GPT_DEFAULTS: Capabilities = defaults(effort(ThinkingOff::Word("none")), TemperatureSupport::Any);
pub(super) const GEMINI_DEFAULTS: Capabilities =
    defaults(effort(ThinkingOff::Word("MINIMAL")), TemperatureSupport::Any);

const CLAUDE: &[&str] = &["opus", "sonnet", "haiku", "fable", "mythos"];
const NEVER_OFF: &[&str] = &["fable", "mythos"];

#[rustfmt::skip]
pub(super) const CLAUDE_ROWS: &[Row] = &[
    // Models older than the families, such as `claude-2.1`.
    Row(any(&["claude"]).without(CLAUDE).between((1, 0), (3, u32::MAX)), &[NO_THINKING, CLAUDE_TEMPERATURE, MaxOutput(Some(4_096))]),

    // Levels beyond `high`: <https://platform.claude.com/docs/en/build-with-claude/effort>.
    Row(all(&["mythos", "preview"]), &[Levels(MAX_WITHOUT_XHIGH)]),
    Row(any(CLAUDE).unversioned(), &[Levels(TO_MAX)]),
    Row(any(CLAUDE).between((4, 6), (4, 6)), &[Levels(MAX_WITHOUT_XHIGH)]),
    Row(any(CLAUDE).from((4, 7)), &[Levels(TO_MAX)]),

    Row(any(CLAUDE).unversioned(), &[FIXED, PrefixBound]),
    Row(any(NEVER_OFF).from((5, 1)), &[PrefixBound]),
    Row(any(CLAUDE).from((5, 5)), &[PrefixBound]),

    Row(any(&["sonnet"]).unversioned(), &[effort(ThinkingOff::Word("between_tools"))]),
    Row(any(&["haiku"]).unversioned(), &[effort(ThinkingOff::Word("disabled"))]),
    Row(any(CLAUDE).unversioned(), &[ALWAYS_ON]),
    Row(any(CLAUDE).up_to((3, 6)), &[NO_THINKING]),
    Row(any(NEVER_OFF), &[ALWAYS_ON, FIXED]),
    Row(any(CLAUDE).up_to((4, 5)), &[budget(MIN_CLAUDE_BUDGET, u32::MAX, ThinkingOff::Omit)]),
    Row(any(CLAUDE).up_to((4, u32::MAX)), &[effort(ThinkingOff::Omit)]),
    Row(any(&["opus"]).from((5, 5)), &[ALWAYS_ON]),
    Row(any(&["sonnet"]).from((5, 5)), &[effort(ThinkingOff::Word("between_tools"))]),
    Row(any(CLAUDE), &[effort(ThinkingOff::Word("disabled"))]),

    Row(any(CLAUDE).from((4, 7)), &[FIXED]),
    Row(any(CLAUDE), &[CLAUDE_TEMPERATURE]),

    Row(any(CLAUDE).up_to((3, 4)), &[MaxOutput(Some(4_096))]),
    Row(any(CLAUDE).up_to((3, 6)), &[MaxOutput(Some(8_192))]),
    Row(any(CLAUDE).up_to((3, u32::MAX)), &[MaxOutput(Some(64_000))]),
    Row(any(&["opus"]).up_to((4, 4)), &[MaxOutput(Some(32_000))]),
    Row(any(CLAUDE).up_to((4, 5)), &[MaxOutput(Some(64_000))]),
    Row(any(CLAUDE).without(&["haiku"]).up_to((5, 0)), &[MaxOutput(Some(128_000))]),

    Row(any(CLAUDE).up_to((4, 6)), &[claude_images(1_568), Pdfs(Some(4_600))]),
    Row(any(CLAUDE), &[claude_images(4_784), Pdfs(Some(7_800))]),
];

/// A word that is added to names of the o series, and to names that start with `codex`.
const O_SERIES: &str = "o-series";

#[rustfmt::skip]
pub(super) const GPT_ROWS: &[Row] = &[
    Row(any(&["oss"]), &[OpenWeight, ALWAYS_ON, FREE]),
    Row(all(&["gpt", "search"]), &[FIXED, MaxOutput(None)]),

    // Levels beyond `high`: GPT-5.1-Codex-Max and all later models have `xhigh` (the effort in OpenAI's own client), GPT-5.6
    // and later `max` (<https://developers.openai.com/api/docs/guides/reasoning>, <https://docs.litellm.ai/blog/gpt_6_sol_luna>).
    Row(all(&["gpt", "codex", "max"]).between((5, 1), (5, 1)), &[Levels(TO_XHIGH)]),
    Row(any(&["pro"]).from((5, 2)), &[Levels(&[Thinking::Medium, Thinking::High, Thinking::XHigh])]),
    Row(any(&["gpt"]).without(&["chat", "search"]).between((5, 2), (5, 5)), &[Levels(TO_XHIGH)]),
    Row(any(&["gpt"]).without(&["chat", "search"]).from((5, 6)), &[Levels(TO_MAX)]),

    // Thinking. Up to GPT-5.4, `none` is the default.
    Row(any(&[O_SERIES]), &[ALWAYS_ON, FIXED]),
    Row(any(&["chatgpt"]), &[NO_THINKING]),
    Row(any(&["gpt"]).up_to((4, u32::MAX)), &[NO_THINKING]),
    Row(any(&["chat", "search"]).from((5, 0)), &[NO_THINKING]),
    Row(any(&["pro"]).between((5, 0), (5, 0)), &[levels(&[Thinking::High], ThinkingOff::Impossible), FIXED]),
    Row(any(&["pro"]).from((5, 0)), &[levels(&[Thinking::Medium, Thinking::High], ThinkingOff::Impossible), FIXED]),
    Row(any(&["codex"]).from((5, 0)), &[ALWAYS_ON, FIXED]),
    // From GPT-5.4 on, the Chat Completions API doesn't support tools while a model thinks.
    Row(any(&["astra"]).from((6, 0)), &[ALWAYS_ON, FIXED, Tools(ChatTools::Never)]),
    Row(any(&["sol"]).from((6, 1)), &[ALWAYS_ON, FIXED, Tools(ChatTools::Never)]),
    Row(any(&["gpt"]).between((5, 0), (5, 0)), &[effort(ThinkingOff::Word("minimal")), FIXED]),
    Row(any(&["gpt"]).without(&["chat", "search", "pro", "codex"]).from((5, 4)), &[Tools(ChatTools::WithoutThinking)]),
    Row(any(&["gpt"]).between((5, 1), (5, 4)), &[effort(ThinkingOff::Word("none")), FIXED_WHILE_THINKING]),
    Row(any(&["gpt"]).from((5, 5)), &[on_by_default(ThinkingOff::Word("none")), FIXED_WHILE_THINKING]),

    // Stop sequences, over Chat Completions.
    Row(all(&[O_SERIES, "o3"]).without(&["mini"]), &[RejectsStop]),
    Row(all(&[O_SERIES, "o4"]), &[RejectsStop]),
    Row(any(&["gpt"]).without(&["chat", "search"]).between((5, 0), (5, 4)), &[RejectsStop]),

    Row(all(&[O_SERIES, "o1", "mini"]), &[MaxOutput(Some(65_536))]),
    Row(all(&[O_SERIES, "o1", "preview"]), &[MaxOutput(Some(32_768))]),
    Row(all(&[O_SERIES]).without(&["codex"]), &[MaxOutput(Some(100_000))]),
    Row(all(&["gpt", "4o", "2024", "05", "13"]), &[MaxOutput(Some(4_096))]),
    Row(all(&["gpt", "4o"]), &[MaxOutput(Some(16_384))]),
    Row(all(&["chatgpt", "4o"]), &[MaxOutput(Some(16_384))]),
    Row(any(&["gpt"]).without(&["16k", "instruct"]).between((3, 5), (3, 5)), &[MaxOutput(Some(4_096))]),
    Row(any(&["turbo", "preview"]).between((4, 0), (4, 0)), &[MaxOutput(Some(4_096))]),
    Row(any(&["gpt"]).without(&["32k"]).between((4, 0), (4, 0)), &[MaxOutput(Some(8_192))]),
    Row(any(&["gpt"]).between((4, 1), (4, 1)), &[MaxOutput(Some(32_768))]),
    Row(any(&["chat"]).between((5, 0), (5, 2)), &[MaxOutput(Some(16_384))]),
    Row(any(&["pro"]).between((5, 0), (5, 0)), &[MaxOutput(Some(272_000))]),
    Row(any(&["gpt"]).without(&["chat"]).between((5, 0), (5, 4)), &[MaxOutput(Some(128_000))]),

    // Images and PDFs.
    Row(any(&["oss", "instruct", "audio", "realtime", "transcribe", "tts", "search"]), TEXT_ONLY),
    Row(all(&[O_SERIES, "o1"]).with_any(&["mini", "preview"]), TEXT_ONLY),
    Row(all(&[O_SERIES, "o3", "mini"]), TEXT_ONLY),
    Row(any(&["gpt"]).up_to((3, u32::MAX)), TEXT_ONLY),
    Row(any(&["gpt"]).without(&["4o", "turbo", "vision"]).between((4, 0), (4, 0)), TEXT_ONLY),
    Row(all(&["gpt", "4o", "mini"]), &[gpt_tiles(2_833, 5_667), Pdfs(Some(28_500))]),
    Row(any(&["gpt"]).up_to((4, 0)), &[gpt_tiles(85, 170), Pdfs(Some(4_500))]),
    Row(all(&["gpt", "nano"]), &[gpt_patches(1_536, 246), Pdfs(Some(6_800))]),
    Row(all(&["gpt", "mini"]), &[gpt_patches(1_536, 246), Pdfs(Some(6_800))]),
    Row(any(&["gpt"]).up_to((4, u32::MAX)), &[gpt_tiles(85, 170), Pdfs(Some(4_500))]),
    Row(all(&[O_SERIES, "o4", "mini"]), &[gpt_patches(1_536, 172), Pdfs(Some(5_700))]),
    Row(any(&[O_SERIES]), &[gpt_tiles(75, 150), Pdfs(Some(4_300))]),
    Row(any(&["gpt"]).between((5, 0), (5, 3)), &[gpt_tiles(70, 140), Pdfs(Some(4_200))]),
    Row(any(&["gpt"]).from((5, 4)), &[gpt_patches(10_000, 100), Pdfs(Some(5_500))]),
    Row(any(&["chatgpt"]), &[gpt_tiles(85, 170), Pdfs(Some(4_500))]),
];

const NOT_FOR_TEXT: &[&str] = &["image", "tts", "live", "audio", "embedding"];

#[rustfmt::skip]
pub(super) const GEMINI_ROWS: &[Row] = &[
    // From Gemini 3 on, a call has to be sent back with the signature of its thought.
    Row(any(&["gemini"]).unversioned(), &[SignsCalls]),
    Row(any(&["gemini"]).from((3, 0)), &[SignsCalls]),
    Row(any(&["gemini"]).from((3, 6)), &[IGNORED]),
    Row(any(&["lite"]).between((3, 5), (3, 5)), &[IGNORED]),

    // `MINIMAL` hardly thinks.
    Row(any(NOT_FOR_TEXT), &[effort(ThinkingOff::Word("MINIMAL")), MaxOutput(None)]),
    Row(any(&["gemini"]).up_to((2, 4)), &[NO_THINKING, MaxOutput(Some(8_192))]),
    Row(any(&["pro"]).between((2, 5), (2, 5)), &[budget(128, 32_768, ThinkingOff::Impossible)]),
    Row(any(&["lite"]).between((2, 5), (2, 5)), &[budget(512, 24_576, ThinkingOff::Omit)]),
    Row(any(&["flash"]).between((2, 5), (2, 5)), &[budget(1, 24_576, ThinkingOff::Omit)]),
    Row(any(&["pro"]).between((3, 0), (3, 0)), &[levels(&[Thinking::Low, Thinking::High], ThinkingOff::Impossible)]),
    Row(any(&["pro"]).between((3, 1), (3, 1)), &[ALWAYS_ON]),
    Row(any(&["flash"]).without(&["lite"]).between((3, 7), (3, 8)), &[ALWAYS_ON]),
    Row(any(&["argon"]).between((4, 0), (4, u32::MAX)), &[ALWAYS_ON]),

    Row(any(&["gemini"]).between((2, 5), (2, 5)), &[MaxOutput(Some(65_536))]),
    Row(any(&["gemini"]).between((3, 0), (3, 1)), &[MaxOutput(Some(65_536))]),

    Row(any(&["tts", "audio", "embedding"]), TEXT_ONLY),
    Row(any(&["gemini"]).up_to((2, u32::MAX)), &[Images(Some(ImageTokens::CroppedTiles)), Pdfs(Some(258)), ResultsWithoutMedia]),
    Row(any(&["gemini"]), &[Images(Some(ImageTokens::PerImage(1_120))), Pdfs(Some(560))]),
];

/// Splits a Claude model's name, as written by Anthropic and the clouds: `claude-3-7-sonnet-latest`,
/// `anthropic.claude-opus-4-6-v1:0`.
pub(super) fn split_claude(name: &str) -> NameParts {
    let name = name.to_ascii_lowercase();
    let words: Vec<String> = name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect();
    // Longer numbers are dates.
    let mut numbers = words.iter().filter(|word| word.len() <= 2).filter_map(|word| word.parse::<u32>().ok());
    let version = numbers.next().map(|major| (major, numbers.next().unwrap_or_default()));
    NameParts { version, words, is_of_gateway: false }
}

/// Splits an OpenAI model's name. A fine-tuned model has the parts of its base (`ft:gpt-4.1-mini:...`).
pub(super) fn split_gpt(name: &str) -> NameParts {
    let lower = name.to_ascii_lowercase();
    let base = lower.strip_prefix("ft:").map_or(&*lower, |rest| rest.split(':').next().unwrap_or_default());
    let mut words: Vec<String> = base.rsplit('/').next().unwrap_or_default().split('-').map(str::to_owned).collect();
    let version = match &*words {
        // `gpt-4o` is version 4. `gpt-35-turbo` is Azure's name for 3.5.
        [gpt, version, ..] if gpt == "gpt" => match version.as_str() {
            "35" => Some((3, 5)),
            version => parse_version(version.strip_suffix('o').unwrap_or(version)),
        },
        _ => None,
    };
    let first = words.first().map_or("", String::as_str);
    if first == "codex" || first.strip_prefix('o').is_some_and(|number| number.parse::<u32>().is_ok()) {
        words.push(O_SERIES.to_owned());
    }
    NameParts { words, version, is_of_gateway: name.contains('/') }
}

/// Splits a Gemini model's name: `models/gemini-2.5-flash`.
pub(super) fn split_gemini(name: &str) -> NameParts {
    let name = name.to_ascii_lowercase();
    let words: Vec<String> = name.rsplit('/').next().unwrap_or_default().split('-').map(str::to_owned).collect();
    if words.first().is_none_or(|first| first != "gemini") {
        return NameParts::default();
    }
    let version = words.get(1).and_then(|word| parse_version(word));
    NameParts { words, version, is_of_gateway: false }
}

fn parse_version(word: &str) -> Option<Version> {
    let (major, minor) = word.split_once('.').unwrap_or((word, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Looks up a name in a vendor's rows.
pub(super) fn resolve(rows: &[Row], defaults: Capabilities, parts: &NameParts) -> Capabilities {
    let mut found = defaults;
    let (mut is_open_weight, mut levels) = (false, None);
    // The first row that matches is applied last, so it takes precedence.
    for Row(_, facts) in rows.iter().rev().filter(|Row(pattern, _)| pattern.matches(parts)) {
        // What a model takes says nothing about its options.
        found.is_known |= facts.iter().any(|fact| !matches!(fact, Images(_) | Pdfs(_) | ResultsWithoutMedia));
        for fact in *facts {
            match *fact {
                Fact::Thinking(thinking) => found.thinking = thinking,
                Levels(own) => levels = Some(own),
                Temperature(temperature) => found.temperature = temperature,
                MaxOutput(tokens) => found.max_output_tokens = tokens,
                RejectsStop => found.rejects_stop_sequences = true,
                Tools(tools) => found.chat_tools = tools,
                SignsCalls => found.signs_calls = true,
                PrefixBound => found.has_prefix_bound_thinking = true,
                Images(tokens) => found.image_tokens = tokens,
                Pdfs(tokens) => found.pdf_page_tokens = tokens,
                ResultsWithoutMedia => found.takes_media_in_results = false,
                OpenWeight => is_open_weight = true,
            }
        }
    }
    found.thinking.levels = levels.unwrap_or(found.thinking.levels);
    found.is_known &= !is_open_weight && !parts.is_of_gateway;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claude_names_of_all_generations_are_split() {
        for (name, family, version) in [
            ("claude-3-5-sonnet-20241022", "sonnet", Some((3, 5))),
            ("claude-opus-4-20250514", "opus", Some((4, 0))),
            ("anthropic.claude-opus-4-6-v1:0", "opus", Some((4, 6))),
            ("anthropic/claude-opus-4.7", "opus", Some((4, 7))),
            ("claude-mythos-preview", "mythos", None),
            ("claude-2.1", "claude", Some((2, 1))),
        ] {
            let parts = split_claude(name);
            assert!(parts.words.iter().any(|word| word == family), "{name}");
            assert_eq!(parts.version, version, "{name}");
        }
        assert!(!Capabilities::of("anthropic", "somebody/model-7").is_known);
    }

    #[test]
    fn newer_claude_models_have_prefix_bound_thinking() {
        for name in [
            "claude-fable-5-1",
            "claude-mythos-5-2",
            "claude-opus-5-5",
            "anthropic/claude-sonnet-5.5",
            "us.anthropic.claude-haiku-5-5-v1:0",
            "claude-opus-6",
            "claude-sonnet-latest",
        ] {
            assert!(Capabilities::has_prefix_bound_thinking(name), "{name}");
        }
        for name in
            ["claude-fable-5", "claude-opus-5", "claude-sonnet-4-5-20250929", "claude-2.1", "gpt-6", "my-claude"]
        {
            assert!(!Capabilities::has_prefix_bound_thinking(name), "{name}");
        }
    }

    #[test]
    fn levels_beyond_high_are_known() {
        for (vendor, name, xhigh, max) in [
            ("anthropic", "claude-opus-4-5", false, false),
            ("anthropic", "claude-opus-4-6", false, true),
            ("anthropic", "us.anthropic.claude-sonnet-4-6", false, true),
            ("anthropic", "claude-mythos-preview", false, true),
            ("anthropic", "claude-opus-4-7", true, true),
            ("anthropic", "claude-sonnet-5", true, true),
            ("anthropic", "claude-haiku-5-5", true, true),
            ("anthropic", "claude-fable-5-1", true, true),
            ("anthropic", "claude-opus-latest", true, true),
            ("openai", "o3", false, false),
            ("openai", "gpt-5", false, false),
            ("openai", "gpt-5.1-codex", false, false),
            ("openai", "gpt-5.1-codex-max", true, false),
            ("openai", "gpt-5-pro", false, false),
            ("openai", "gpt-5.2-pro", true, false),
            ("openai", "gpt-5.3-codex", true, false),
            ("openai", "gpt-5.4-mini", true, false),
            ("openai", "gpt-5.6-terra", true, true),
            ("openai", "gpt-6-astra", true, true),
            ("openai", "gpt-6.1-sol", true, true),
            ("google", "gemini-2.5-pro", false, false),
            ("google", "gemini-4-argon", false, false),
            ("openai", "unknown", true, true),
        ] {
            let levels = Capabilities::of(vendor, name).thinking.levels;
            assert_eq!((levels.contains(&Thinking::XHigh), levels.contains(&Thinking::Max)), (xhigh, max), "{name}");
        }
        assert!(Capabilities::of("openai", "gpt-5.3-chat-latest").thinking.levels.is_empty());
    }

    #[test]
    fn output_limits_of_gemini_are_known() {
        for (model, expected) in [
            ("gemini-1.5-pro", Some(8_192)),
            ("models/gemini-2.0-flash", Some(8_192)),
            ("gemini-2.5-flash-lite", Some(65_536)),
            ("gemini-3.1-pro-preview", Some(65_536)),
            ("gemini-2.5-flash-image", None),
            ("gemini-9-neon", None),
            ("gemma-4-31b-it", None),
        ] {
            assert_eq!(Capabilities::of("google", model).max_output_tokens, expected, "{model}");
        }
    }

    #[test]
    fn gemini_models_that_sign_calls_or_ignore_temperature_are_known() {
        for (model, signs, ignores) in [
            ("gemini-2.5-pro", false, false),
            ("gemini-3-flash-preview", true, false),
            ("gemini-3.5-flash", true, false),
            ("gemini-3.5-flash-lite", true, true),
            ("gemini-3.8-flash", true, true),
            ("gemini-4-argon", true, true),
            ("gemini-pro-latest", true, false),
            ("gemma-4-31b-it", false, false),
        ] {
            let found = Capabilities::of("google", model);
            let is_ignored = found.temperature == TemperatureSupport::Ignored;
            assert_eq!((found.signs_calls, is_ignored), (signs, ignores), "{model}");
        }
    }
}
