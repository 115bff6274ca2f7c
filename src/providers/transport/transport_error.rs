//! Requests that nobody answered: what stood in the way, and whether it may pass.

use crate::providers::api::ProviderError;
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::retry::FailedAttempt;

/// What a request that came to nothing means.
pub(crate) fn classify_transport_error(error: reqwest::Error, endpoint: &Endpoint) -> FailedAttempt {
    let error = error.without_url();
    let cause = match error.is_connect() && error.is_timeout() {
        // Its innermost reason is a timer's: "deadline has elapsed".
        true => format!("timed out after {:?}", endpoint.connect_timeout()),
        false => endpoint.quote(&root_cause(&error)),
    };
    if error.is_builder() {
        return FailedAttempt::permanent(ProviderError::rejected(format!("the request can't be made: {cause}")));
    }
    let (at, base) = (endpoint.authority(), &endpoint.labels().base_url_source);
    let proxy = endpoint.proxy().filter(|proxy| proxy.is_usable).map(|proxy| proxy.variable);
    if let Some(variable) = proxy.filter(|_| cause.contains("proxy authorization required")) {
        let what = format!("the proxy on the way to {at} wants a user and a password: {cause}");
        let hint = format!("write them into {variable}: http://USER:PASSWORD@HOST:PORT");
        return FailedAttempt::permanent(ProviderError::rejected(what).with_hint(hint));
    }
    let shown = endpoint.display_url();
    if let Some((what, hint)) = permanent_cause(&cause, shown, base) {
        return FailedAttempt::permanent(ProviderError::rejected(what).with_hint(hint));
    }
    let mut failure = FailedAttempt::transient(if error.is_connect() {
        format!("no connection to {shown}: {cause}")
    } else {
        format!("the request to {shown} broke off: {cause}")
    });
    failure.error.hint = Some(match proxy.filter(|_| error.is_connect()) {
        Some(variable) => {
            format!(
                "does the proxy in {variable} work, and let through to {at}? NO_PROXY names hosts to ask without it"
            )
        }
        None if cause.contains("tls handshake eof") => format!("does what listens at {at} speak TLS? check {base}"),
        None if error.is_connect() && endpoint.is_loopback() => {
            format!("is the server running, and is {base} its address?")
        }
        None => format!("check {base} and the network"),
    });
    failure
}

/// What no later try mends, and what to do about it. The words are rustls's and hyper's: their errors say nothing else.
fn permanent_cause(cause: &str, shown: &str, base: &str) -> Option<(String, String)> {
    let has = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    let certificate = |what: &str, hint: String| Some((format!("the certificate of {shown} {what}: {cause}"), hint));
    match () {
        () if has(&["InvalidContentType", "corrupt message"]) => Some((
            format!("what answers at {shown} speaks no TLS: {cause}"),
            format!("write http:// instead of https:// into {base}, where the way to the server is safe"),
        )),
        () if has(&["invalid HTTP version parsed", "invalid HTTP status-code parsed"]) => Some((
            format!("what answers at {shown} speaks no HTTP: {cause}"),
            format!("is {base} right? A server that speaks TLS has an https:// address"),
        )),
        () if has(&["certificate expired", "Expired"]) => {
            certificate("has expired", "have it renewed; or is this machine's clock wrong?".to_owned())
        }
        () if has(&["not valid yet", "NotValidYet"]) => {
            certificate("isn't valid yet", "is this machine's clock wrong?".to_owned())
        }
        () if has(&["not valid for name", "NotValidForName"]) => certificate(
            "is for another name",
            format!("put the name that it is for into {base}; is it the right server?"),
        ),
        () if has(&["CaUsedAsEndEntity"]) => certificate(
            "is a certificate authority's",
            "let the server have one of its own (`basicConstraints=CA:FALSE`); a self-signed one goes into the file that \
             SSL_CERT_FILE names"
                .to_owned(),
        ),
        () if has(&["certificate required", "CertificateRequired"]) => Some((
            format!("{shown} wants a certificate from its clients: {cause}"),
            "legwork has none; put a proxy in between that does".to_owned(),
        )),
        () if has(&["UnknownIssuer", "unknown issuer"]) => certificate(
            "is signed by nobody whom this machine trusts",
            "is it the right server? A private authority's certificate, or a self-signed one, goes into the file that \
             SSL_CERT_FILE names"
                .to_owned(),
        ),
        () if has(&["received fatal alert"]) && !has(&["InternalError"]) => Some((
            format!("{shown} refuses a TLS connection: {cause}"),
            format!("is {base} right? A server may know only old versions of TLS, or have another name"),
        )),
        () if has(&["peer certificate", "PeerCertificate"]) => {
            certificate("can't be trusted", format!("is {base} right, and the server's certificate whole?"))
        }
        () => None,
    }
}

/// The innermost reason of an error, which is the one that says something.
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
