//! Errors of LiteLLM's proxy, as it sends them, over every API: each named as what it is.

use serde_json::json;

use super::{asked, dialects, hello, streamed};
use crate::providers::FaultKind;
use crate::providers::scripted::Answer;

const BEHIND: &str = "it is the gateway that was turned away by what stands behind it";

#[tokio::test]
async fn errors_of_a_gateway_are_named_as_what_they_are() {
    let error = |message: &str, kind: &str, code: &str| {
        json!({ "error": { "message": message, "type": kind, "param": null, "code": code } }).to_string()
    };
    let wrapped = |class: &str| {
        let message = format!(
            "litellm.APIConnectionError: APIConnectionError: OpenAIException - Error calling litellm.acompletion for \
             generate_content: litellm.{class}: OpenAIException - no\n\nLiteLLM: model group 'm' failed with the error above."
        );
        error(&message, "internal_server_error", "500")
    };
    let nobodys = "litellm.BadRequestError: You passed in model=m. There are no healthy deployments for this model";
    let theirs = "litellm.AuthenticationError: AnthropicException - b'{\"type\":\"error\"}'";
    let stream = format!("data: {}\n\ndata: [DONE]\n\n", error("Window exceeded", "context_length_exceeded", "400"));
    for (status, body, kind, hint) in [
        ("400 Bad Request", error(nobodys, "invalid_request_error", "400"), FaultKind::Rejected, "the model's name"),
        (
            "400 Bad Request",
            error("No connected db.", "no_db_connection", "400"),
            FaultKind::Rejected,
            "the key came from",
        ),
        ("401 Unauthorized", error(theirs, "authentication_error", "401"), FaultKind::Rejected, BEHIND),
        ("500 Internal Server Error", wrapped("AuthenticationError"), FaultKind::Rejected, BEHIND),
        ("500 Internal Server Error", wrapped("NotFoundError"), FaultKind::Rejected, "the model's name"),
        ("400 Bad Request", error("Budget!", "budget_exceeded", "400"), FaultKind::Rejected, "have its budget raised"),
        ("400 Bad Request", stream, FaultKind::ContextFull, ""),
    ] {
        for dialect in dialects() {
            let answer = Answer::new(status, "content-type: application/json\r\n", &body);
            let (reply, _, requests) = asked(&*dialect, vec![answer]).await;
            let fault = reply.unwrap_err();
            let told = fault.hint.unwrap_or_default();
            assert_eq!((fault.kind, requests), (kind, 1), "{status} {body}");
            assert!(told.contains(hint), "{body}: {told}");
        }
    }
}

#[tokio::test]
async fn json_that_breaks_off_is_asked_for_again() {
    for dialect in dialects() {
        let cut = Answer::new("200 OK", "content-type: application/json\r\n", "{\"id\": \"x\", \"content\": [{\"te");
        let (reply, seen, requests) = asked(&*dialect, vec![cut, streamed(&*dialect, &hello())]).await;
        assert_eq!((reply.is_ok(), requests), (true, 2));
        assert!(seen.retries.lock().unwrap()[0].why.contains("breaks off before its end"));
    }
}
