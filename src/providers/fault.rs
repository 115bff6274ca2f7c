//! What an answer that holds no reply means, and what to do about it.
//!
//! Which statuses are worth another try is what the official clients of all the APIs do: 408, 409, 429 and 5xx, unless
//! `x-should-retry` says otherwise; and 425, which asks for one. What isn't the API's answer at all is worth another try
//! where the server has answered well before.

use std::time::Duration;

use reqwest::StatusCode;

use super::foreign::{beside, other_api};
use super::http::{Answer, Endpoint};
use super::rate_governor::Throttle;
use super::retry::{Again, Failure, asked_pause};
use super::{Fault, FaultKind, behind, notice, window};

/// What a server says of an error.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Its type, such as `rate_limit_error`.
    pub(super) kind: Option<String>,
    /// A text for people.
    pub(super) message: Option<String>,
    /// A code for programs.
    pub(super) code: Option<String>,
    /// The HTTP status that it names itself.
    pub(super) status: Option<u16>,
    /// The request that it is about.
    pub(super) request_id: Option<String>,
    /// The pause that it asks for.
    pub(super) pause: Option<Duration>,
}

/// What an error means, where its status alone doesn't say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The conversation doesn't fit the model's window.
    Full,
    /// The account has no money left, or may spend no more; no later try mends that.
    Unpaid,
    /// This one request is more than the account may ever send at once.
    TooMuch,
    /// The account may ask no more today.
    DayIsSpent,
    /// The key is none, whatever the status.
    BadKey,
}

/// How one API speaks of errors.
pub(super) struct Manners {
    /// What an error's JSON says; `None` where it is none.
    pub(super) read: fn(&str) -> Option<Said>,
    /// The HTTP status that stands for an error within a stream.
    pub(super) status: fn(&Said) -> u16,
    /// What it means beyond that status.
    pub(super) meaning: fn(u16, &Said) -> Option<Meaning>,
}

/// A model's name within a sentence.
pub(super) fn quoted(model: &str) -> &str {
    if model.len() <= 200 { model } else { "MODEL" }
}

fn hint(status: u16, meaning: Option<Meaning>, said: &Said, model: &str, endpoint: &Endpoint) -> Option<String> {
    let (shown, names) = (endpoint.shown(), endpoint.names());
    let words = said.message.as_deref().unwrap_or_default();
    let status = if status == 400 && behind::lacks_model(said) { 404 } else { status };
    Some(match (meaning, status) {
        (Some(Meaning::Full), _) => return None,
        _ if behind::is_spent(said) => {
            format!("the gateway lets the key from {} spend no more: have its budget raised", names.key)
        }
        (Some(Meaning::Unpaid), _) | (_, 402) => "see the account's billing page".to_owned(),
        (Some(Meaning::TooMuch), _) => {
            "the account's limit is lower than this one request: use another model or account".to_owned()
        }
        (Some(Meaning::DayIsSpent), _) => {
            "the account's limit for a day is used up: try again tomorrow, or have it raised".to_owned()
        }
        (_, 401 | 403) if behind::has_no_way_in(said) => {
            "it is the gateway that was turned away by what stands behind it: see its configuration for the key that it has"
                .to_owned()
        }
        (_, 401 | 403) | (Some(Meaning::BadKey), _) if !endpoint.has_key() && endpoint.has_credentials() => {
            format!("the user and password in {} were sent, and no key: are they right?", names.base)
        }
        (_, 401) | (Some(Meaning::BadKey), _) if !endpoint.has_key() => format!("no key was sent: {}", names.keyless),
        (_, 401) | (Some(Meaning::BadKey), _) => {
            format!("the key came from {}; is it whole, still valid, and meant for {shown}?", names.key)
        }
        (_, 403) if !endpoint.has_key() => format!("{shown} lets nobody in without a key: {}", names.keyless),
        (_, 403) => format!("the key from {} may not use this model or endpoint", names.key),
        (_, 404) => format!(
            "is `{}` the model's name, and {shown} the right address ({})?{}",
            quoted(model),
            names.base,
            beside(endpoint)
        ),
        (_, 405) => format!("is {shown} the right address ({})?{}", names.base, beside(endpoint)),
        (_, 400) if endpoint.is_plain() && words.to_ascii_lowercase().contains("https") => {
            format!("write https:// instead of http:// into {}", names.base)
        }
        (_, 407) => "what stands in between wants a user and a password: check the proxy variables".to_owned(),
        (_, 511) => "the network wants a login first: open any page in a browser there".to_owned(),
        (_, 400 | 422) => {
            let option = refused_option(words)?;
            format!("leave `{option}` out of the model's mapping, or name another model")
        }
        (_, 429) => "the account's rate limit; try again later, or run fewer agents side by side".to_owned(),
        (_, 500..) => "the API has trouble; try again later".to_owned(),
        _ => return None,
    })
}

/// The option of a job that a server refuses, in the words that it has for it.
fn refused_option(said: &str) -> Option<&'static str> {
    let names = [
        ("temperature", "temperature"),
        ("reasoning_effort", "thinking"),
        ("reasoning.effort", "thinking"),
        ("thinking_budget", "thinking"),
        ("stop", "stop"),
    ];
    // Between quotes it is a parameter's name, and no word of the sentence.
    let is_named = |name: &str| ['\'', '`', '"'].iter().any(|quote| said.contains(&format!("{quote}{name}{quote}")));
    names.into_iter().find_map(|(name, option)| is_named(name).then_some(option))
}

fn failure(manners: &Manners, status: u16, said: &Said, what: String, model: &str, endpoint: &Endpoint) -> Failure {
    let status = behind::status(status, said);
    // Whoever calls it too large takes a shorter one: an API's own bound, a proxy's, an account's for a minute.
    let meaning = (manners.meaning)(status, said).or((status == 413).then_some(Meaning::Full));
    let passing = matches!(status, 408 | 409 | 425 | 429 | 500..) && meaning.is_none();
    let kind = match meaning {
        Some(Meaning::Full) => FaultKind::ContextFull,
        Some(Meaning::DayIsSpent) => FaultKind::Failed,
        None if passing => FaultKind::Failed,
        _ => FaultKind::Rejected,
    };
    let mut fault = Fault::new(kind, what);
    fault.window = said.message.as_deref().filter(|_| kind == FaultKind::ContextFull).and_then(window::named);
    fault.hint = hint(status, meaning, said, model, endpoint);
    Failure { fault, again: if passing { again(status, said.pause) } else { Again::Never } }
}

/// When a request is worth another try that may be answered later.
fn again(status: u16, pause: Option<Duration>) -> Again {
    match (status, pause) {
        (429, _) => Again::Throttled(Throttle { pause, is_for_rate: true }),
        // A server that is down says 503, too, and rarely for how long.
        (529, _) | (503, Some(_)) => Again::Throttled(Throttle { pause, is_for_rate: false }),
        (_, Some(pause)) => Again::After(pause),
        (_, None) => Again::Soon,
    }
}

/// Whether a status means what it says whoever sent it. Any other one that a server's own answer doesn't come with is
/// something in between, such as a login page or a firewall.
fn is_plain_refusal(status: u16) -> bool {
    matches!(status, 400 | 401 | 402 | 407 | 413 | 422 | 511)
}

fn sentence(status: &str, said: &Said, endpoint: &Endpoint) -> String {
    let kind = said.kind.as_ref().or(said.code.as_ref());
    let kind = kind.map(|kind| format!(" ({})", endpoint.quote(kind))).unwrap_or_default();
    let message = said.message.as_ref().map(|message| format!(": {}", endpoint.quote(message))).unwrap_or_default();
    let request = said.request_id.as_ref().map(|id| format!(" [{}]", endpoint.quote(id))).unwrap_or_default();
    format!("{} answered {status}{kind}{message}{request}", endpoint.shown())
}

/// An error within a stream, or in the place of a reply: `how` says where.
pub(super) fn by_event(manners: &Manners, json: &str, how: &str, model: &str, endpoint: &Endpoint) -> Failure {
    let said = (manners.read)(json).unwrap_or_else(|| Said { message: Some(json.to_owned()), ..Said::default() });
    let what = sentence(how, &said, endpoint);
    failure(manners, (manners.status)(&said), &said, what, model, endpoint)
}

/// The server's name of a request.
pub(super) fn request_id<'a>(answer: &'a Answer<'_>) -> Option<&'a str> {
    answer.header("request-id").or_else(|| answer.header("x-request-id"))
}

/// An answer with another status than 200.
pub(super) async fn by_status(manners: &Manners, mut answer: Answer<'_>, model: &str, endpoint: &Endpoint) -> Failure {
    let status = answer.status();
    if status.is_redirection() {
        let (to, new) = match answer.header("location") {
            Some(location) => endpoint.redirected(location),
            None => ("an unnamed place".to_owned(), None),
        };
        let what = format!("{} redirects to {to}", endpoint.shown());
        let base = &endpoint.names().base;
        return Failure::odd(Fault::new(FaultKind::Rejected, what).hint(match new {
            Some(new) if new == endpoint.base() => {
                format!(
                    "that is where it was asked: is {base} right, and is what stands before the server set up well?"
                )
            }
            Some(new) => format!("a key isn't carried along by redirects: put {new} into {base}, if you trust that"),
            None => is_it_right(endpoint),
        }));
    }
    let bytes = answer.body(64 << 10).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&bytes);
    // Some say it as the event that it would have been.
    let read =
        (manners.read)(&body).or_else(|| (manners.read)(body.lines().find_map(|line| line.strip_prefix("data:"))?));
    let is_of_api = read.is_some();
    let mut said = read.unwrap_or_else(|| Said {
        message: match answer.packing() {
            Some(packing) => Some(format!("its text is packed ({packing}), which wasn't asked for")),
            None => (!body.trim().is_empty()).then(|| notice::excerpt(&bytes, &answer.media_type(), endpoint)),
        },
        ..Said::default()
    });
    said.request_id = said.request_id.or_else(|| request_id(&answer).map(str::to_owned));
    let what = sentence(&words(status), &said, endpoint);
    let mut failure = failure(manners, status.as_u16(), &said, what, model, endpoint);
    if !is_of_api {
        failure.fault.hint.get_or_insert_with(|| is_it_right(endpoint));
        if failure.fault.kind == FaultKind::Rejected && !is_plain_refusal(status.as_u16()) {
            failure.again = Again::IfProven;
        }
    }
    match answer.header("x-should-retry") {
        Some("false") => failure.again = Again::Never,
        Some("true") if matches!(failure.again, Again::Never | Again::IfProven) => {
            failure.again = Again::Soon;
            failure.fault.kind = FaultKind::Failed;
        }
        _ => {}
    }
    if let Some(pause) = asked_pause(answer.headers()) {
        failure.again = match failure.again {
            last @ (Again::Never | Again::IfProven) => last,
            Again::Throttled(throttle) => Again::Throttled(Throttle { pause: Some(pause), ..throttle }),
            Again::Soon | Again::After(_) => again(status.as_u16(), Some(pause)),
        };
    }
    failure
}

/// A status 200 without a reply: a login page, another service, a proxy's notice.
pub(super) fn foreign(
    manners: &Manners,
    media_type: &str,
    why: &str,
    body: &[u8],
    model: &str,
    endpoint: &Endpoint,
) -> Failure {
    let text = String::from_utf8_lossy(body);
    if let Some(failure) = other_api(&text, model, endpoint) {
        return failure;
    }
    if let Some(failure) = error_in_place(manners, &text, "200 with an error", model, endpoint) {
        return failure;
    }
    let shown = endpoint.shown();
    let what = if text.trim().is_empty() {
        format!("{shown} answered with nothing, not with a reply")
    } else {
        let media_type = if media_type.is_empty() { "something without a type" } else { media_type };
        let excerpt = endpoint.quote(&notice::excerpt(body, media_type, endpoint));
        format!(
            "{shown} answered with {}, not with a reply ({}): {excerpt}",
            endpoint.quote(media_type),
            endpoint.quote(why)
        )
    };
    Failure::odd(Fault::new(FaultKind::Rejected, what).hint(is_it_right(endpoint)))
}

/// What JSON means that stands in the place of a reply and says that something went wrong, in whatever form.
pub(super) fn error_in_place(
    manners: &Manners,
    json: &str,
    how: &str,
    model: &str,
    endpoint: &Endpoint,
) -> Option<Failure> {
    let said = notice::error(json)?;
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    if value.get("error").is_some_and(|error| error.is_object() || error.is_string()) {
        return Some(by_event(manners, json, how, model, endpoint));
    }
    let what = sentence(how, &said, endpoint);
    // Without a code that says otherwise, the next answer would be the same.
    let mut failure = failure(manners, said.status.unwrap_or(400), &said, what, model, endpoint);
    failure.fault.hint.get_or_insert_with(|| is_it_right(endpoint));
    if said.status.is_none() && failure.again == Again::Never {
        failure.again = Again::IfProven;
    }
    Some(failure)
}

/// An answer with status 200 that is packed, which no request allows.
pub(super) fn packed(packing: &str, endpoint: &Endpoint) -> Failure {
    let what = format!("{} answered in a packed form ({packing}), which wasn't asked for", endpoint.shown());
    let hint = "let the server, or the proxy before it, leave its answers unpacked";
    Failure::odd(Fault::new(FaultKind::Rejected, what).hint(hint))
}

fn is_it_right(endpoint: &Endpoint) -> String {
    let names = endpoint.names();
    format!("is {} the address of {}, and does no login page stand before it?", names.base, names.api)
}

fn words(status: StatusCode) -> String {
    match status.as_u16() {
        // No registered name: some APIs' own for "overloaded".
        529 => "529 Overloaded".to_owned(),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::refused_option;

    #[test]
    fn an_option_is_known_by_its_name_between_quotes() {
        for (said, option) in [
            ("Unsupported value: 'temperature' does not support 0.5 with this model.", Some("temperature")),
            ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", Some("thinking")),
            ("[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"stop\"]}]", Some("stop")),
            ("the temperature in the server room made it stop", None),
        ] {
            assert_eq!(refused_option(said), option, "{said}");
        }
    }
}
