//! Sends requests to a forge. Its answers are hostile: bounded in size, number and time, and never followed to another host.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LINK, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;
use super::forge::Visit;
use crate::providers::client_builder;
use crate::redaction::Redactor;
use crate::text::sanitize;
use crate::text::truncate::ellipsize;

/// How the message about a token that isn't one begins.
pub(super) const NOT_ACCEPTED: &str = "the token isn't accepted";
/// The longest answer, in bytes: a page of a hundred comments of the greatest length.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// How much of an error's text is shown, in characters.
const MAX_MESSAGE_CHARS: usize = 300;
/// The most pages of a list.
const MAX_PAGES: usize = 300;
/// How many items a page has.
pub(super) const PER_PAGE: usize = 100;
/// How often a request that only reads is sent.
const MAX_READS: u32 = 4;
/// The most redirects on the same server.
const MAX_REDIRECTS: usize = 3;
/// How long this process waits for rate limits in all.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// How long to wait where a rate limit doesn't say.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);
/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Tells the user something while this process waits.
pub type Notify = Box<dyn FnMut(&str)>;

/// How requests are spaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pacing {
    /// The time between two requests that create content.
    pub(super) pause: Duration,
    /// How long to wait before a request is repeated; each time twice as long.
    pub(super) retry_base: Duration,
}

/// What a request does, for pacing and repeating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It creates or changes content that people see.
    Content,
    /// It creates a git object, which nobody sees.
    GitObject,
}

/// A token with the header that it is sent in.
pub(super) struct Token {
    /// The header's name.
    pub(super) header: &'static str,
    /// What is before the token.
    pub(super) scheme: &'static str,
    /// The token.
    pub(super) secret: String,
}

/// A connection to a forge's API.
pub(super) struct HttpClient {
    runtime: tokio::runtime::Runtime,
    client: Client,
    base: Url,
    headers: HeaderMap,
    redactor: Redactor,
    pacing: Pacing,
    last_content: Cell<Option<Instant>>,
    waited: Cell<Duration>,
    /// What the user is told while this process waits.
    notify: RefCell<Notify>,
}

/// A successful answer.
#[derive(Debug)]
pub(super) struct Answer {
    body: Vec<u8>,
    /// Whether there is another page; `None` if the answer doesn't say.
    has_next: Option<bool>,
}

impl Answer {
    /// The content.
    ///
    /// # Errors
    /// It isn't what it should be. Nobody knows then what the request did.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let what = if self.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<') {
                "an HTML page instead of JSON"
            } else if self.body.trim_ascii().is_empty() {
                "nothing"
            } else if error.is_eof() {
                "JSON that is cut off"
            } else {
                "something that isn't the JSON of its API"
            };
            Failure::Unclear(format!("the forge answered with {what}"))
        })
    }
}

impl HttpClient {
    /// A connection to the API at this address. Nothing is sent yet.
    ///
    /// # Errors
    /// The address or the token can't be used, or there are no certificates.
    pub(super) fn new(
        runtime: tokio::runtime::Runtime,
        base: &str,
        token: &Token,
        more_headers: &[(&'static str, &'static str)],
        pacing: Pacing,
        notify: Notify,
    ) -> Result<Self, String> {
        let base = Url::parse(base).map_err(|error| format!("the address of the API can't be used: {error}"))?;
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("{}{}", token.scheme, token.secret));
        let mut value = value.map_err(|_| "the token has a character that no token has".to_owned())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(token.header), value);
        for (name, value) in more_headers {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let builder = client_builder(&base, concat!("legwork/", env!("CARGO_PKG_VERSION")));
        let client = builder.connect_timeout(CONNECT_TIMEOUT).build().map_err(|_| {
            "the HTTP client can't be created: check the system's certificates, SSL_CERT_FILE and the proxy variables"
                .to_owned()
        })?;
        let (redactor, _) = Redactor::new(&[]);
        redactor.add("token", &token.secret);
        let (last_content, waited) = (Cell::new(None), Cell::new(Duration::ZERO));
        let notify = RefCell::new(notify);
        Ok(Self { runtime, client, base, headers, redactor, pacing, last_content, waited, notify })
    }

    /// Reads something, several times if the answer isn't clear.
    ///
    /// # Errors
    /// As [`Failure`] says.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, Failure> {
        self.repeat(|| self.exchange(&Method::GET, path, query, None)?.read())
    }

    /// Reads the items of a list to its end, page by page, until `visit` returns false.
    ///
    /// # Errors
    /// As [`Failure`] says; also if the list has no end.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        visit: Visit<'_, T>,
    ) -> Result<(), Failure> {
        let per_page = PER_PAGE.to_string();
        for page in 1..=MAX_PAGES {
            let number = page.to_string();
            let query = [query, &[("per_page", &per_page), ("page", &number)]].concat();
            let (items, has_next): (Vec<T>, _) = self.repeat(|| {
                let answer = self.exchange(&Method::GET, path, &query, None)?;
                Ok((answer.read()?, answer.has_next))
            })?;
            let has_next = !items.is_empty() && has_next.unwrap_or(items.len() >= PER_PAGE);
            for item in items {
                if !visit(item) {
                    return Ok(());
                }
            }
            if !has_next {
                return Ok(());
            }
        }
        Err(Failure::Refused(format!("the list at {path} has more than {MAX_PAGES} pages")))
    }

    /// Sends a request that has an effect, once. A request that a rate limit refused has none, and is sent again.
    ///
    /// # Errors
    /// As [`Failure`] says.
    pub(super) fn send<T: DeserializeOwned>(
        &self,
        effect: Effect,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        if effect == Effect::Content {
            let next = self.last_content.get().map(|last| last + self.pacing.pause);
            self.sleep(next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now())));
        }
        let body = (!body.is_null()).then_some(body);
        let sent = self.exchange(method, path, &[], body);
        if effect == Effect::Content {
            self.last_content.set(Some(Instant::now()));
        }
        sent?.read()
    }

    /// Waits before something is tried again, each time twice as long.
    pub(super) fn back_off(&self, attempt: u32) {
        self.sleep(self.pacing.retry_base.saturating_mul(1 << attempt.min(6)));
    }

    fn repeat<T>(&self, mut request: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let mut attempt = 0;
        loop {
            match request() {
                Err(Failure::Unclear(_)) if attempt + 1 < MAX_READS => {
                    self.back_off(attempt);
                    attempt += 1;
                }
                answer => return answer,
            }
        }
    }

    fn sleep(&self, time: Duration) {
        if !time.is_zero() {
            std::thread::sleep(time);
        }
    }

    /// Sends a request, again after each rate limit.
    fn exchange(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        loop {
            match self.runtime.block_on(self.exchange_once(method, path, query, body)) {
                Err(Refusal::RateLimit(wait)) => {
                    let total = self.waited.get() + wait;
                    if total > MAX_WAIT {
                        let seconds = wait.as_secs();
                        return Err(Failure::Later(format!("the forge's rate limit asks to wait {seconds} s")));
                    }
                    self.waited.set(total);
                    (self.notify.borrow_mut())(&format!("waiting {} s for the forge's rate limit", wait.as_secs()));
                    self.sleep(wait);
                }
                Err(Refusal::Failure(failure)) => return Err(failure),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    async fn exchange_once(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Refusal> {
        let mut url = self.url(path, query)?;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.client.request(method.clone(), url.clone()).headers(self.headers.clone());
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body.to_string());
            }
            let unclear = |error: reqwest::Error| Failure::Unclear(self.describe(error));
            let response = request.timeout(REQUEST_TIMEOUT).send().await.map_err(unclear)?;
            let status = response.status();
            if !status.is_redirection() {
                return self.judge(status, response).await;
            }
            url = self.redirected(&url, response.headers())?;
        }
        Err(Failure::Refused("the forge redirects again and again".to_owned()).into())
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, Failure> {
        let text = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        let mut url = Url::parse(&text).map_err(|_| Failure::Refused(format!("{path} is no address")))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// Where a redirect leads, if that is on the same server: the token goes nowhere else.
    fn redirected(&self, from: &Url, headers: &HeaderMap) -> Result<Url, Failure> {
        let target = headers.get(LOCATION).and_then(|value| from.join(value.to_str().ok()?).ok());
        let Some(target) = target else {
            return Err(Failure::Refused("the forge redirects to nowhere".to_owned()));
        };
        if target.origin() == self.base.origin() {
            return Ok(target);
        }
        let host = self.clean(target.host_str().unwrap_or("?"));
        Err(Failure::Refused(format!("the forge redirects to another server ({host}), which doesn't get the token")))
    }

    async fn judge(&self, status: StatusCode, mut response: reqwest::Response) -> Result<Answer, Refusal> {
        let headers = response.headers().clone();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(_) if !status.is_success() => break,
                Err(error) => return Err(Failure::Unclear(self.describe(error)).into()),
            }
            if body.len() > MAX_ANSWER_BYTES {
                return Err(
                    Failure::Unclear(format!("the forge answered with more than {MAX_ANSWER_BYTES} bytes")).into()
                );
            }
        }
        if status.is_success() {
            // An answer without content.
            let body = if status == StatusCode::NO_CONTENT { b"null".to_vec() } else { body };
            return Ok(Answer { body, has_next: has_next(&headers) });
        }
        let message = self.error_message(status, &body);
        Err(match status {
            StatusCode::UNAUTHORIZED => Failure::Forbidden(format!("{NOT_ACCEPTED} ({message})")).into(),
            StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => match rate_limit(status, &headers, &message) {
                Some(wait) => Refusal::RateLimit(wait),
                None => Failure::Forbidden(message).into(),
            },
            StatusCode::NOT_FOUND | StatusCode::GONE => Failure::Missing(message).into(),
            StatusCode::REQUEST_TIMEOUT => Failure::Unclear(message).into(),
            _ if status.is_server_error() => Failure::Unclear(message).into(),
            _ => Failure::Refused(message).into(),
        })
    }

    /// What an error says, in one harmless line.
    fn error_message(&self, status: StatusCode, body: &[u8]) -> String {
        let value: Option<Value> = serde_json::from_slice(body).ok();
        let text = value.as_ref().and_then(|value| {
            let text =
                |value: &Value| value.as_str().map(str::to_owned).or(value.is_object().then(|| value.to_string()));
            let message = value.get("message").or_else(|| value.get("error"));
            let main = message.and_then(|message| text(message).or_else(|| Some(message.to_string())))?;
            let first = value.pointer("/errors/0");
            let detail = first.and_then(|error| text(error.get("message").unwrap_or(error)));
            Some(detail.map_or(main.clone(), |detail| format!("{main}: {detail}")))
        });
        let text = text.filter(|text| !text.is_empty());
        self.clean(
            &text.map_or_else(|| format!("status {status}"), |text| format!("status {}: {text}", status.as_u16())),
        )
    }

    /// A text of the forge in one harmless, short line without the token.
    fn clean(&self, text: &str) -> String {
        let text = self.redactor.redact(text);
        ellipsize(&sanitize::line(&text), MAX_MESSAGE_CHARS)
    }

    fn describe(&self, error: reqwest::Error) -> String {
        if error.is_timeout() {
            return format!("the forge didn't answer within {} s", REQUEST_TIMEOUT.as_secs());
        }
        // The error itself has the address.
        let error = error.without_url();
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let cause = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
        self.clean(&format!("the connection to the forge failed: {cause}"))
    }
}

/// Why a request had no answer.
enum Refusal {
    RateLimit(Duration),
    Failure(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Whether the header of an answer names another page. GitHub's lists have it, if there is more than one page.
fn has_next(headers: &HeaderMap) -> Option<bool> {
    let link = headers.get(LINK)?.to_str().ok()?;
    Some(link.contains("rel=\"next\""))
}

/// How long to wait if a rate limit refused the request.
fn rate_limit(status: StatusCode, headers: &HeaderMap, message: &str) -> Option<Duration> {
    let number = |name: &str| -> Option<u64> { headers.get(name)?.to_str().ok()?.trim().parse().ok() };
    if let Some(seconds) = headers.get(RETRY_AFTER).and_then(|_| number("retry-after")) {
        return Some(Duration::from_secs(seconds));
    }
    let is_used_up = number("x-ratelimit-remaining") == Some(0) || number("ratelimit-remaining") == Some(0);
    if let Some(reset) = number("x-ratelimit-reset").or_else(|| number("ratelimit-reset")).filter(|_| is_used_up) {
        let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        return Some(Duration::from_secs(reset.saturating_sub(now).max(1)));
    }
    // GitHub's secondary limits say it in words only.
    let is_limit = status == StatusCode::TOO_MANY_REQUESTS || message.to_ascii_lowercase().contains("rate limit");
    is_limit.then_some(DEFAULT_WAIT)
}

/// Part of a path: everything but unreserved characters is encoded.
pub(super) fn encode(segment: &str) -> String {
    let mut text = String::new();
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && segment.len() > 2) {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

/// A path whose parts are encoded, with the slashes between them.
pub(super) fn encode_path(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_stays_one() {
        assert_eq!(encode("a/b c.d"), "a%2Fb%20c.d");
        assert_eq!(encode(".."), "%2E%2E");
        assert_eq!(encode_path("heads/legwork/x?y"), "heads/legwork/x%3Fy");
    }

    #[test]
    fn a_limit_says_how_long_to_wait() {
        let headers = |list: &[(&'static str, &'static str)]| {
            list.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
        };
        let wait = |list: &[(&'static str, &'static str)], message: &str| {
            rate_limit(StatusCode::FORBIDDEN, &headers(list), message).map(|wait| wait.as_secs())
        };
        assert_eq!(wait(&[("retry-after", "7")], ""), Some(7));
        assert_eq!(wait(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "0")], ""), Some(1));
        assert_eq!(wait(&[("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "0")], ""), None);
        assert_eq!(wait(&[], "You have exceeded a secondary rate limit"), Some(60));
        assert_eq!(wait(&[], "Resource not accessible by integration"), None);
        assert_eq!(wait(&[("retry-after", "99999999999999999999999")], ""), None);
    }
}
