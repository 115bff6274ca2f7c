//! Errors of LiteLLM's proxy over every API: each is classified correctly.

use serde_json::json;

use super::{ask_once, dialects, streamed, text_reply};
use crate::providers::ProviderErrorKind;
use crate::providers::test_server::ScriptedResponse;

const BEHIND: &str = "refused the gateway's own key";

#[tokio::test]
async fn errors_of_a_gateway_are_classified() {
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
        (
            "400 Bad Request",
            error(nobodys, "invalid_request_error", "400"),
            ProviderErrorKind::Rejected,
            "the model's name",
        ),
        (
            "400 Bad Request",
            error("No connected db.", "no_db_connection", "400"),
            ProviderErrorKind::Rejected,
            "the key came from",
        ),
        ("401 Unauthorized", error(theirs, "authentication_error", "401"), ProviderErrorKind::Rejected, BEHIND),
        ("500 Internal Server Error", wrapped("AuthenticationError"), ProviderErrorKind::Rejected, BEHIND),
        ("500 Internal Server Error", wrapped("NotFoundError"), ProviderErrorKind::Rejected, "the model's name"),
        (
            "400 Bad Request",
            error("Budget!", "budget_exceeded", "400"),
            ProviderErrorKind::Rejected,
            "reached its budget",
        ),
        ("400 Bad Request", stream, ProviderErrorKind::ContextFull, ""),
    ] {
        for dialect in dialects() {
            let answer = ScriptedResponse::new(status, "content-type: application/json\r\n", &body);
            let (reply, _, requests) = ask_once(&*dialect, vec![answer]).await;
            let fault = reply.unwrap_err();
            let told = fault.hint.unwrap_or_default();
            assert_eq!((fault.kind, requests), (kind, 1), "{status} {body}");
            assert!(told.contains(hint), "{body}: {told}");
        }
    }
}

#[tokio::test]
async fn truncated_json_is_retried() {
    for dialect in dialects() {
        let cut = ScriptedResponse::new(
            "200 OK",
            "content-type: application/json\r\n",
            "{\"id\": \"x\", \"content\": [{\"te",
        );
        let (reply, seen, requests) = ask_once(&*dialect, vec![cut, streamed(&*dialect, &text_reply())]).await;
        assert_eq!((reply.is_ok(), requests), (true, 2));
        assert!(seen.retries.lock().unwrap()[0].reason.contains("incomplete JSON"));
    }
}
