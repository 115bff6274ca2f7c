"""Checks of a whole stream: the order of its events, and that the official SDKs' readers accept it."""

from anthropic.lib.streaming._messages import accumulate_event
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai import omit

# The readers copy their state at each event.
LONGEST = 300

DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}


def of_stream(api, values, event):
    """The mistakes in a stream whose events fit their types. `event` builds an object from an event's JSON. A stream can
    be cut anywhere, and an error can be its last event."""
    kinds = [kind_of(value) for value in values]
    if "error" in kinds[:-1]:
        return ["something comes after an error"]
    values = values[:-1] if kinds and kinds[-1] == "error" else values
    wrong = list(ORDER[api](values))
    if not wrong and len(values) <= LONGEST and api in READERS:
        try:
            READERS[api]([event(value) for value in values if isinstance(value, dict) and value.get("type") != "ping"])
        except Exception as error:  # Whatever they raise, except for the input that a model writes into a call.
            if "tool parameter JSON" not in str(error):
                wrong.append(f"the SDK's own reader stumbles: {type(error).__name__}: {error}")
    return wrong


def kind_of(value):
    if not isinstance(value, dict):
        return value
    return "error" if "error" in value and value.get("type") in (None, "error") else value.get("type")


def messages(values):
    values = [value for value in values if value["type"] != "ping"]
    blocks, is_open, ending = [], False, []
    for at, value in enumerate(values):
        kind, place = value["type"], f"event {at} ({value['type']})"
        if (kind == "message_start") != (at == 0):
            yield f"{place}: a message starts once, first"
        if ending and (kind, ending[-1]) != ("message_stop", "message_delta"):
            yield f"{place}: comes after {ending[-1]}"
        if kind == "content_block_start":
            if is_open or value["index"] != len(blocks):
                yield f"{place}: block {value['index']} after {len(blocks)}, of which the last is open: {is_open}"
            blocks.append(value["content_block"]["type"])
            is_open = True
        if kind in ("content_block_delta", "content_block_stop"):
            if not is_open or value["index"] != len(blocks) - 1:
                yield f"{place}: block {value['index']} isn't open"
                return
        if kind == "content_block_delta":
            delta = value["delta"]
            if DELTAS.get(delta["type"], blocks[-1]) != blocks[-1]:
                yield f"{place}: {delta['type']} in a block of type {blocks[-1]}"
        if kind == "content_block_stop":
            is_open = False
        if kind in ("message_delta", "message_stop"):
            if is_open or (kind == "message_stop" and not ending):
                yield f"{place}: a block is open, or nothing told how it ended"
            ending.append(kind)


def chat(values):
    calls, ended = 0, None
    for at, value in enumerate(values):
        place = f"event {at}"
        if ended == "[DONE]":
            yield f"{place}: comes after [DONE]"
        if value == "[DONE]":
            ended = value
            continue
        if value["id"] != values[0]["id"]:
            yield f"{place}: another id"
        for choice in value["choices"]:
            if ended is not None:
                yield f"{place}: comes after the finish reason"
            for call in choice["delta"].get("tool_calls") or []:
                function = call.get("function") or {}
                if call["index"] == calls:
                    calls += 1
                    if not call.get("id") or not function.get("name") or call.get("type") != "function":
                        yield f"{place}: a call begins without id, name or type"
                elif call["index"] != calls - 1 or call.get("id") or function.get("name"):
                    yield f"{place}: call {call['index']} of {calls} goes on"
            ended = choice.get("finish_reason") or ended


def responses(values):
    items, texts, ended = [], {}, False
    for at, value in enumerate(values):
        kind, place = value["type"], f"event {at} ({value['type']})"
        if value["sequence_number"] != at:
            yield f"{place}: has the number {value['sequence_number']}"
        if (kind == "response.created") != (at == 0) or ended:
            yield f"{place}: isn't the first, or comes after the end"
        if kind == "response.output_item.added":
            if value["output_index"] != len(items) or (items and not items[-1][1]):
                yield f"{place}: item {value['output_index']} after {len(items)}, or the one before isn't done"
            items.append([value["item"], False])
        elif "output_index" in value:
            if not items or value["output_index"] != len(items) - 1 or items[-1][1]:
                yield f"{place}: item {value['output_index']} isn't open"
                return
            item = value.get("item") or items[-1][0]
            if item["type"] != items[-1][0]["type"] or value.get("item_id", item.get("id")) != items[-1][0].get("id"):
                yield f"{place}: it is of another item"
            part = (kind.rsplit(".", 1)[0], value["output_index"], value.get("content_index"), value.get("summary_index"))
            if kind.endswith(".delta"):
                texts[part] = texts.get(part, "") + value["delta"]
            whole = value.get("text", value.get("arguments"))
            if kind.endswith(".done") and isinstance(whole, str) and texts.get(part, "") != whole:
                yield f"{place}: {whole[:60]!r}, where the pieces were {texts.get(part, '')[:60]!r}"
            if kind == "response.output_item.done":
                items[-1] = [item, True]
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            ended = True
            if value["response"]["status"] != kind.removeprefix("response."):
                yield f"{place}: its status is {value['response']['status']!r}"
            if value["response"]["output"] != [item for item, _ in items] or not all(done for _, done in items):
                yield f"{place}: its output isn't what came before"


def gemini(values):
    ended = None
    for at, value in enumerate(values):
        candidates = value.get("candidates") or []
        if ended and any(part for one in candidates for part in (one.get("content") or {}).get("parts") or []):
            yield f"event {at}: comes after {ended}"
        ended = next((one["finishReason"] for one in candidates if one.get("finishReason")), ended)


def read_message(events):
    message, pieces = None, {}
    for event in events:
        message = accumulate_event(event=event, current_snapshot=message, json_bufs=pieces)


def read_completion(events):
    state = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(event)


def read_response(events):
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(event)


ORDER = {"anthropic": messages, "openai-chat": chat, "openai": responses, "gemini": gemini}
READERS = {"anthropic": read_message, "openai-chat": read_completion, "openai": read_response}

