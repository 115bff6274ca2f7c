"""Replies of the three APIs, built from the types of their official SDKs.

A reply is a list of parts: `("thought", text)`, `("text", text)` and `("call", id, tool, input)`. It becomes the events of a
stream, each as (name, JSON).
"""

import json

from anthropic import types as anthropic
from anthropic.types.message_delta_usage import MessageDeltaUsage
from anthropic.types.raw_message_delta_event import Delta
from openai.types import chat, completion_usage, responses
from openai.types.chat import chat_completion_chunk as chunk
from openai.types.responses import response_reasoning_item, response_usage

SIGNATURE = "c2lnbmVkIGJ5IHRoZSBzZXJ2ZXI="
# The usage of every reply: uncached tokens of the prompt, read from the cache, written to it, and tokens of the reply.
FRESH, READ, WRITTEN, OUTPUT = 20, 30, 10, 9
PROMPT = FRESH + READ + WRITTEN


def halves(text):
    return text[: len(text) // 2], text[len(text) // 2 :]


def messages(parts, model, number):
    usage = {"input_tokens": FRESH, "cache_read_input_tokens": READ, "cache_creation_input_tokens": WRITTEN}
    calls = any(part[0] == "call" for part in parts)
    start = anthropic.Message(
        id=f"msg_{number}",
        type="message",
        role="assistant",
        model=model,
        content=[],
        stop_reason=None,
        stop_sequence=None,
        usage=anthropic.Usage(output_tokens=1, **usage),
    )
    yield anthropic.RawMessageStartEvent(type="message_start", message=start)
    for index, part in enumerate(parts):
        match part:
            case ("thought", text):
                block = anthropic.ThinkingBlock(type="thinking", thinking="", signature="")
                deltas = [anthropic.ThinkingDelta(type="thinking_delta", thinking=piece) for piece in halves(text)]
                deltas.append(anthropic.SignatureDelta(type="signature_delta", signature=SIGNATURE))
            case ("text", text):
                block = anthropic.TextBlock(type="text", text="")
                deltas = [anthropic.TextDelta(type="text_delta", text=piece) for piece in halves(text)]
            case ("call", call_id, tool, value):
                block = anthropic.ToolUseBlock(type="tool_use", id=call_id, name=tool, input={})
                pieces = ["", *halves(json.dumps(value))]
                deltas = [anthropic.InputJSONDelta(type="input_json_delta", partial_json=piece) for piece in pieces]
        yield anthropic.RawContentBlockStartEvent(type="content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield anthropic.RawContentBlockDeltaEvent(type="content_block_delta", index=index, delta=delta)
        yield anthropic.RawContentBlockStopEvent(type="content_block_stop", index=index)
    yield anthropic.RawMessageDeltaEvent(
        type="message_delta",
        delta=Delta(stop_reason="tool_use" if calls else "end_turn"),
        usage=MessageDeltaUsage(output_tokens=OUTPUT, **usage),
    )
    yield anthropic.RawMessageStopEvent(type="message_stop")


def completions(parts, model, number):
    usage = completion_usage.CompletionUsage(
        prompt_tokens=PROMPT,
        completion_tokens=OUTPUT,
        total_tokens=PROMPT + OUTPUT,
        prompt_tokens_details=completion_usage.PromptTokensDetails(cached_tokens=READ, cache_write_tokens=WRITTEN),
    )

    def event(delta=None, finish=None, used=None):
        choices = [] if delta is None else [chunk.Choice(index=0, delta=delta, finish_reason=finish)]
        kind = {"object": "chat.completion.chunk", "created": 1_700_000_000, "model": model}
        return chat.ChatCompletionChunk(id=f"chatcmpl-{number}", choices=choices, usage=used, **kind)

    yield event(chunk.ChoiceDelta(role="assistant", content=""))
    calls = 0
    for part in parts:
        match part:
            case ("text", text):
                for piece in halves(text):
                    yield event(chunk.ChoiceDelta(content=piece))
            case ("call", call_id, tool, value):
                started = chunk.ChoiceDeltaToolCallFunction(name=tool, arguments="")
                started = chunk.ChoiceDeltaToolCall(index=calls, id=call_id, type="function", function=started)
                yield event(chunk.ChoiceDelta(tool_calls=[started]))
                for piece in halves(json.dumps(value)):
                    more = chunk.ChoiceDeltaToolCallFunction(arguments=piece)
                    more = chunk.ChoiceDeltaToolCall(index=calls, function=more)
                    yield event(chunk.ChoiceDelta(tool_calls=[more]))
                calls += 1
    yield event(chunk.ChoiceDelta(), "tool_calls" if calls else "stop")
    yield event(used=usage)


def items_and_events(parts, number):
    """The items of a response, each with its events, without sequence numbers."""
    for index, part in enumerate(parts):
        place = {"output_index": index, "item_id": f"item_{number}_{index}"}
        match part:
            case ("thought", text):
                summary = [response_reasoning_item.Summary(type="summary_text", text=text)]
                kind = {"id": place["item_id"], "type": "reasoning"}
                done = responses.ResponseReasoningItem(summary=summary, encrypted_content=SIGNATURE, **kind)
                started = responses.ResponseReasoningItem(summary=[], **kind)
                deltas = [
                    (responses.ResponseReasoningSummaryTextDeltaEvent, {"delta": piece, "summary_index": 0})
                    for piece in halves(text)
                ]
            case ("text", text):
                content = [responses.ResponseOutputText(type="output_text", text=text, annotations=[])]
                kind = {"id": place["item_id"], "type": "message", "role": "assistant"}
                done = responses.ResponseOutputMessage(status="completed", content=content, **kind)
                started = responses.ResponseOutputMessage(status="in_progress", content=[], **kind)
                deltas = [
                    (responses.ResponseTextDeltaEvent, {"delta": piece, "content_index": 0, "logprobs": []})
                    for piece in halves(text)
                ]
                deltas.append((responses.ResponseTextDoneEvent, {"text": text, "content_index": 0, "logprobs": []}))
            case ("call", call_id, tool, value):
                arguments = json.dumps(value)
                kind = {"id": place["item_id"], "type": "function_call", "call_id": call_id, "name": tool}
                done = responses.ResponseFunctionToolCall(arguments=arguments, status="completed", **kind)
                started = responses.ResponseFunctionToolCall(arguments="", status="in_progress", **kind)
                deltas = [
                    (responses.ResponseFunctionCallArgumentsDeltaEvent, {"delta": piece}) for piece in halves(arguments)
                ]
                deltas.append((responses.ResponseFunctionCallArgumentsDoneEvent, {"arguments": arguments}))
        made = [(responses.ResponseOutputItemAddedEvent, {"item": started, "output_index": index})]
        made += [(kind, {**fields, **place}) for kind, fields in deltas]
        made.append((responses.ResponseOutputItemDoneEvent, {"item": done, "output_index": index}))
        yield done, made


def response_events(parts, model, number):
    made = list(items_and_events(parts, number))

    def response(status, items, usage=None):
        always = {"object": "response", "created_at": 1_700_000_000.0, "parallel_tool_calls": True, "tool_choice": "auto"}
        kind = {"id": f"resp_{number}", "model": model, "status": status, "output": items, "tools": [], "usage": usage}
        return responses.Response(**always, **kind)

    usage = response_usage.ResponseUsage(
        input_tokens=PROMPT,
        input_tokens_details=response_usage.InputTokensDetails(cached_tokens=READ, cache_write_tokens=WRITTEN),
        output_tokens=OUTPUT,
        output_tokens_details=response_usage.OutputTokensDetails(reasoning_tokens=0),
        total_tokens=PROMPT + OUTPUT,
    )
    started = {"response": response("in_progress", [])}
    all_of_them = [(responses.ResponseCreatedEvent, started), (responses.ResponseInProgressEvent, started)]
    for _, events in made:
        all_of_them += events
    ended = response("completed", [item for item, _ in made], usage)
    all_of_them.append((responses.ResponseCompletedEvent, {"response": ended}))
    for at, (kind, fields) in enumerate(all_of_them):
        yield kind(type=kind.model_fields["type"].annotation.__args__[0], sequence_number=at, **fields)


MADE_BY = {"anthropic": messages, "openai-chat": completions, "openai": response_events}


def stream(api, parts, model, number):
    """The events of a reply over this API, as (name, JSON), serialized by the SDK."""
    for event in MADE_BY[api.name](parts, model, number):
        text = event.to_json(indent=None)
        wrong = api.of_reply(json.loads(text), api.event)
        assert not wrong, wrong
        yield (None if api.name == "openai-chat" else event.type), text
    if api.name == "openai-chat":
        yield None, "[DONE]"
