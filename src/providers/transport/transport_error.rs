//! Classifies requests without a response: the cause, and whether a retry can help.

use crate::providers::api::ProviderError;
use crate::providers::base_url::is_loopback_url as is_loopback;
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::retry::FailedAttempt;

/// The failure for an error of the HTTP library.
pub(crate) fn classify_transport_error(error: reqwest::Error, endpoint: &Endpoint) -> FailedAttempt {
    let error = error.without_url();
    let cause = match error.is_connect() && error.is_timeout() {
        // The root cause would be a timer's "deadline has elapsed".
        true => format!("timed out after {:?}", endpoint.timeouts.connect),
        false => endpoint.quote(&root_cause(&error)),
    };
    if error.is_builder() {
        return FailedAttempt::permanent(ProviderError::rejected(format!("the request can't be made: {cause}")));
    }
    let (at, base) = (endpoint.authority(), &endpoint.labels.base_url_source);
    let proxy = endpoint.proxy.as_ref().filter(|proxy| proxy.is_usable).map(|proxy| proxy.variable);
    if let Some(variable) = proxy.filter(|_| cause.contains("proxy authorization required")) {
        let what = format!("the proxy for {at} requires a user and a password: {cause}");
        let hint = format!("set {variable} to http://USER:PASSWORD@HOST:PORT");
        return FailedAttempt::permanent(ProviderError::rejected(what).with_hint(hint));
    }
    let shown = &endpoint.display_url;
    if let Some((what, hint)) = permanent_cause(&cause, shown, base) {
        return FailedAttempt::permanent(ProviderError::rejected(what).with_hint(hint));
    }
    let mut failure = FailedAttempt::transient(if error.is_connect() {
        format!("can't connect to {shown}: {cause}")
    } else {
        format!("the request to {shown} failed: {cause}")
    });
    failure.error.hint = Some(match proxy.filter(|_| error.is_connect()) {
        Some(variable) => {
            format!(
                "does the proxy in {variable} work, and does it allow connections to {at}? NO_PROXY excludes hosts from it"
            )
        }
        None if cause.contains("tls handshake eof") => format!("does the server at {at} speak TLS? check {base}"),
        None if error.is_connect() && is_loopback(&endpoint.url) => {
            format!("is the server running, and is {base} its address?")
        }
        None => format!("check {base} and the network"),
    });
    failure
}

/// A permanent failure and its hint. The phrases are those of rustls and hyper, whose error types aren't specific
/// enough.
fn permanent_cause(cause: &str, shown: &str, base: &str) -> Option<(String, String)> {
    let has = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    let certificate = |what: &str, hint: String| Some((format!("the certificate of {shown} {what}: {cause}"), hint));
    match () {
        () if has(&["InvalidContentType", "corrupt message"]) => Some((
            format!("the server at {shown} doesn't speak TLS: {cause}"),
            format!("write http:// instead of https:// into {base}, if the network to the server is trusted"),
        )),
        () if has(&["invalid HTTP version parsed", "invalid HTTP status-code parsed"]) => Some((
            format!("the server at {shown} doesn't speak HTTP: {cause}"),
            format!("is {base} right? A server that speaks TLS has an https:// address"),
        )),
        () if has(&["certificate expired", "Expired"]) => {
            certificate("has expired", "have it renewed, or check this machine's clock".to_owned())
        }
        () if has(&["not valid yet", "NotValidYet"]) => {
            certificate("isn't valid yet", "check this machine's clock".to_owned())
        }
        () if has(&["not valid for name", "NotValidForName"]) => certificate(
            "is for another name",
            format!("use the name in the certificate for {base}, if it is the right server"),
        ),
        () if has(&["CaUsedAsEndEntity"]) => certificate(
            "is that of a certificate authority",
            "give the server a certificate of its own (`basicConstraints=CA:FALSE`), and put a self-signed one into the file \
             that SSL_CERT_FILE names"
                .to_owned(),
        ),
        () if has(&["UnknownIssuer", "unknown issuer"]) => certificate(
            "is signed by an unknown authority",
            "is it the right server? put the certificate of a private authority, or a self-signed one, into the file that \
             SSL_CERT_FILE names"
                .to_owned(),
        ),
        () if has(&["CertificateRequired"]) => Some((
            format!("the server at {shown} asks for a client certificate: {cause}"),
            "name its PEM files in providers.toml: `client_cert` and `client_key`".to_owned(),
        )),
        () if has(&["received fatal alert"]) && !has(&["InternalError"]) => Some((
            format!("{shown} refuses a TLS connection: {cause}"),
            format!("is {base} right? the server may support only old versions of TLS, or have another name"),
        )),
        () if has(&["peer certificate", "PeerCertificate"]) => {
            certificate("can't be trusted", format!("is {base} right, and is the server's certificate complete?"))
        }
        () => None,
    }
}

/// The root cause of an error, which is the most specific one.
pub(crate) fn root_cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
