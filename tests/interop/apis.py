"""The three APIs as their official SDKs define them: the types of requests, replies and errors."""

import json

from anthropic.types import Message, RawMessageStreamEvent, message_create_params
from anthropic.types.shared.error_response import ErrorResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk, completion_create_params
from openai.types.responses import Response, ResponseStreamEvent, response_create_params
from openai.types.shared.error_object import ErrorObject
from pydantic import TypeAdapter

import rules
import streams
from strict import Reader

# Allowed keys in addition to those of the SDKs' types, by the name of the type.
#
# Servers other than OpenAI's have their own fields for reasoning (DeepSeek, OpenRouter, LiteLLM) and for signatures of calls
# (Google), which are sent back unchanged. The version of the Messages API in our requests, 2023-06-01, accepts a temperature
# for models before Claude 4.7; the SDK's version, 2026-10-21, has none.
REASONING = ("reasoning", "reasoning_content", "reasoning_details", "thinking_blocks")
BEYOND_REQUESTS = {
    "MessageCreateParamsStreaming": ("temperature",),
    "ChatCompletionAssistantMessageParam": REASONING,
    "ChatCompletionMessageFunctionToolCallParam": ("extra_content",),
}
BEYOND_REPLIES = {
    "ChoiceDelta": (*REASONING, "provider_specific_fields"),
    "ChatCompletionMessage": REASONING,
    # Added to each delta by `include_obfuscation`, which is on by default.
    "ResponseTextDeltaEvent": ("obfuscation",),
}


class Api:
    """One API: its name, the end of its path, and its types."""

    # Whether requests have classes, like replies, instead of typed dictionaries.
    models = False

    def __init__(self, name, path, request, whole, event, error):
        self.name, self.path = name, path
        self.request, self.whole, self.event, self.error = request, whole, event, error
        self.adapters = {id(kind): TypeAdapter(kind) for kind in (whole, event, error)}

    def of_request(self, body, novel=()):
        """The mistakes in a request's JSON. Parts of nonstandard types from a test's server are ignored."""
        body = without(body, novel) if novel else body
        wrong = Reader(models=self.models, more=BEYOND_REQUESTS).problems(body, self.request)
        return wrong or rules.of_request(self.name, body)

    def of_reply(self, value, kind):
        """The mistakes in a reply's JSON, by our reader of the types and by pydantic's strict mode."""
        wrong = Reader(models=True, more=BEYOND_REPLIES).problems(value, kind)
        if not wrong:
            self.adapters[id(kind)].validate_json(json.dumps(value), strict=True)
        return wrong

    def of_whole(self, text):
        return self.of_reply(json.loads(text), self.whole)

    def of_error(self, value):
        if self.name == "anthropic":
            return self.of_reply(value, self.error)
        if not isinstance(value, dict) or list(value) != ["error"]:
            return ["an error is an object with the one key `error`"]
        return self.of_reply(value["error"], self.error)

    def of_stream(self, text):
        """The mistakes in the events of a stream and, if there are none, in their order."""
        wrong, values = [], []
        for name, data in events(text):
            values.append(data if data == "[DONE]" else json.loads(data))
            wrong += [f"event {name or ''}{problem}" for problem in self.of_event(name, values[-1])]
        return wrong or streams.of_stream(self.name, values, self.adapters[id(self.event)].validate_python)

    def of_event(self, name, value):
        if self.name in ("openai-chat", "gemini"):
            if name is not None:
                return [": it has a name"]
            if self.name == "openai-chat" and value == "[DONE]":
                return []
        if not isinstance(value, dict):
            return [f": {str(value)[:60]} isn't an object"]
        if name is not None and value.get("type") != name:
            return [f": it is of type {value.get('type')!r}"]
        if name is None and self.name in ("anthropic", "openai"):
            return [": it has no name"]
        if self.name == "anthropic" and name == "ping":
            return [] if value == {"type": "ping"} else [": a ping has no other fields"]
        if self.name == "anthropic" and name == "error":
            return self.of_error(value)
        if name is None and "error" in value:
            return self.of_error(value)
        return self.of_reply(value, self.event)


APIS = (
    Api("anthropic", "/v1/messages", message_create_params.MessageCreateParams, Message, RawMessageStreamEvent, ErrorResponse),
    Api("openai", "/responses", response_create_params.ResponseCreateParams, Response, ResponseStreamEvent, ErrorObject),
    Api(
        "openai-chat",
        "/chat/completions",
        completion_create_params.CompletionCreateParams,
        ChatCompletion,
        ChatCompletionChunk,
        ErrorObject,
    ),
)


def without(value, novel):
    """The value without the parts of lists that are of these types."""
    if isinstance(value, dict):
        return {key: without(inner, novel) for key, inner in value.items()}
    if isinstance(value, list):
        kept = [inner for inner in value if not (isinstance(inner, dict) and inner.get("type") in novel)]
        return [without(inner, novel) for inner in kept]
    return value


def api_at(path, apis=APIS):
    """The API at this path, or None."""
    path = path.split("?")[0]
    return next((api for api in apis if path.endswith(api.path)), None)


def events(text):
    """The events of a stream with their names, without comments."""
    for block in text.split("\n\n"):
        name, data = None, []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
        if data:
            yield name, "\n".join(data)
