"""The documented rules of the APIs for requests beyond their types: the order of messages, exactly one answer for each call
at its place, ranges of numbers. Other servers reject requests that break them."""

import json
import re

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def of_request(api, body):
    """The mistakes in a request whose types are correct."""
    return list(RULES[api](body))


def answers(place, calls, answered):
    """Checks that a message's calls are each answered once."""
    if sorted(calls) != sorted(answered):
        yield f"{place}: the calls {calls} get the answers {answered}"


def numbers(body, limit, least, hottest):
    if not isinstance(body.get(limit), int) or body[limit] < least:
        yield f".{limit}: {body.get(limit)} instead of {least} at least"
    heat = body.get("temperature", 0)
    if type(heat) not in (int, float) or not 0 <= heat <= hottest:
        yield f".temperature: {heat} instead of 0 to {hottest}"


def common(body, names):
    if not body.get("model"):
        yield ".model: it is missing"
    if body.get("stream") is not True:
        yield ".stream: our clients stream"
    if len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
        yield f".tools: the names {names}"
    if names == [] and ("tools" in body or "tool_choice" in body):
        yield ".tools: none, but a list of them or a choice"


def messages(body):
    yield from common(body, [tool["name"] for tool in body.get("tools", [])])
    yield from numbers(body, "max_tokens", 1, 1)
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled" and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        yield f".thinking: {thinking['budget_tokens']} of {body['max_tokens']} tokens"
    if json.dumps(body).count('"cache_control": {') > 4:
        yield "more than four cache marks"
    open_calls, known = [], set()
    for at, message in enumerate(body["messages"]):
        place, blocks = f".messages[{at}]", message["content"]
        if message["role"] != ("user", "assistant")[at % 2]:
            yield f"{place}: {message['role']!r} isn't whose turn it is"
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield f"{place}: it is empty, or a text in it is"
        kinds = [block["type"] == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            yield f"{place}: an answer comes after something else"
        yield from answers(place, open_calls, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"])
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(open_calls)) < len(open_calls) or known & set(open_calls):
            yield f"{place}: an id of a call that another has: {open_calls}"
        known |= set(open_calls)
    # A paused reply is sent back as the last message.
    if not body["messages"] or open_calls:
        yield f".messages: none, or calls without answers at the end: {open_calls}"


def chat(body):
    yield from common(body, [tool["function"]["name"] for tool in body.get("tools", [])])
    # Newer servers have another name for it. A request uses one of the two.
    given = [name for name in ("max_tokens", "max_completion_tokens") if name in body]
    if len(given) != 1:
        yield f".: {given or 'nothing'} says how long the reply may be"
    yield from numbers(body, given[0] if given else "max_tokens", 1, 2)
    if len(body.get("stop", [])) > 4:
        yield ".stop: more than four"
    open_calls, answered = [], []
    for at, message in enumerate(body["messages"]):
        place, role = f".messages[{at}]", message["role"]
        if role == "system" and at > 0:
            yield f"{place}: a system prompt that isn't first"
        if role == "tool":
            answered.append(message["tool_call_id"])
            continue
        yield from answers(place, open_calls, answered)
        calls = message.get("tool_calls", [])
        open_calls, answered = [call["id"] for call in calls], []
        for call in calls:
            if not isinstance(loaded(call["function"]["arguments"]), dict):
                yield f"{place}: arguments that aren't a JSON object: {call['function']['arguments'][:60]}"
        if not calls and not message.get("content"):
            yield f"{place}: it says nothing"
        for name in ("reasoning", "reasoning_content"):
            if not isinstance(message.get(name, ""), str):
                yield f"{place}.{name}: no text"
    yield from answers("the end", open_calls, answered)
    if next((one["role"] for one in body["messages"] if one["role"] != "system"), None) != "user":
        yield ".messages: the user has the first word"
    if not body["messages"] or body["messages"][-1]["role"] not in ("user", "tool"):
        yield ".messages: the user or a tool has the last word"


def responses(body):
    yield from common(body, [tool["name"] for tool in body.get("tools", [])])
    yield from numbers(body, "max_output_tokens", 16, 2)
    items = body.get("input")
    if not isinstance(items, list) or not items:
        yield ".input: no list of items"
        return
    calls, answered = [], []
    if items[0].get("role") != "user":
        yield ".input: the user has the first word"
    for at, item in enumerate(items):
        place, kind = f".input[{at}]", item.get("type", "message")
        if kind == "function_call":
            calls.append(item["call_id"])
            if not isinstance(loaded(item["arguments"]), dict):
                yield f"{place}: arguments that aren't a JSON object: {item['arguments'][:60]}"
        if kind == "function_call_output":
            answered.append(item.get("call_id"))
            if answered[-1] not in calls:
                yield f"{place}: an answer to no call: {answered[-1]}"
        if kind == "message" and item["role"] == "user" and not item["content"]:
            yield f"{place}: it says nothing"
        if kind == "message" and item["role"] != "user" and "input_text" in json.dumps(item["content"]):
            yield f"{place}: words of the user's from {item['role']!r}"
        if kind == "reasoning" and (at + 1 == len(items) or items[at + 1].get("role") == "user"):
            yield f"{place}: a thought that leads to nothing"
        if kind == "reasoning" and not item.get("encrypted_content"):
            yield f"{place}: a reasoning item that isn't stored"
    yield from answers("the end", calls, answered)
    if items[-1].get("type") != "function_call_output" and items[-1].get("role") != "user":
        yield ".input: the user or a tool has the last word"


def gemini(body):
    tools = [one["name"] for tool in body.get("tools", []) for one in tool["functionDeclarations"]]
    yield from common({**body, "model": "in the path", "stream": True}, tools)
    yield from numbers(body.get("generationConfig", {}), "maxOutputTokens", 1, 2)
    contents = body.get("contents") or []
    open_calls = []
    for at, content in enumerate(contents):
        place, parts = f".contents[{at}]", content.get("parts") or []
        # Answers to calls are separate from the user's text.
        if content.get("role") not in (("user",) if at == 0 else ("user", "model")):
            yield f"{place}: {content.get('role')!r} isn't whose turn it is"
        if not parts or not all(parts):
            yield f"{place}: it is empty, or a part of it is"
        of = lambda kind: [part[kind] for part in parts if kind in part]
        both = lambda ones: [(one.get("name", ""), one.get("id", "")) for one in ones]
        if of({"user": "functionCall"}.get(content.get("role"), "functionResponse")):
            yield f"{place}: {content.get('role')!r} says what isn't its to say"
        yield from answers(place, open_calls, both(of("functionResponse")))
        open_calls = both(of("functionCall"))
    if not contents or contents[-1].get("role") != "user":
        yield ".contents: the user has the last word"


RULES = {"anthropic": messages, "openai-chat": chat, "openai": responses, "gemini": gemini}


def loaded(text):
    try:
        return json.loads(text)
    except ValueError:
        return None
