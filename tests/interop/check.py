"""Validates the request and reply bodies of the tests against the types of the official SDKs.

    check.py FOLDER

The tests write the bodies to the folder that LEGWORK_TEST_BODIES names. Every request of our clients, and every reply of the
test servers that isn't declared as nonstandard, must fit its type: no unknown key, no missing key, no value of another type.
Mistakes are printed with their position, and the exit code is 1. The same happens if there are too few bodies of an API.
"""

import collections
import copy
import importlib.metadata
import json
import pathlib
import sys

from apis import APIS, api_at
from genai import GEMINI

SDKS = ("anthropic", "openai", "google-genai")
APIS = (*APIS, GEMINI)
# About two thirds of the bodies of the whole suite for each API. Fewer would mean that some are no longer written.
LEAST = {
    "anthropic": {"request": 900, "stream": 500, "whole": 5, "error": 60},
    "openai": {"request": 100, "stream": 60, "whole": 4, "error": 10},
    "openai-chat": {"request": 100, "stream": 60, "whole": 4, "error": 10},
    "gemini": {"request": 100, "stream": 60, "whole": 4, "error": 10},
}
# Unit tests and whole-binary tests have different servers that write bodies.
LEAST_OF_HALF = {"unit tests": 90, "whole-binary tests": 1000}
MOST_SHOWN = 40


def bodies(folder):
    for place in sorted(folder.iterdir()):
        if place.name.startswith("."):
            continue
        head, _, body = place.read_bytes().partition(b"\n")
        yield place.name, json.loads(head), body.decode()


def as_messages(path, what, text):
    """A request or reply of Claude on Vertex AI as the SDK has it, before it moves the model into the address."""
    base, _, model = path.rpartition("/publishers/anthropic/models/")
    if not base or not model.endswith(":streamRawPredict"):
        return path, text
    if what == "request":
        body = json.loads(text)
        if body.pop("anthropic_version", None) == "vertex-2023-10-16" and "model" not in body:
            text = json.dumps({"model": model.removesuffix(":streamRawPredict"), **body})
    return "/v1/messages", text


def problems(api, what, text, novel):
    try:
        match what:
            case "request":
                return api.of_request(json.loads(text), novel)
            case "whole":
                return api.of_whole(text)
            case "stream":
                return api.of_stream(text)
            case "error":
                return api.of_error(json.loads(text))
    except Exception as error:  # One odd body must not prevent the check of the others.
        return [f": {type(error).__name__}: {error}"]
    return [f": unknown kind of body {what!r}"]


def is_free(holder, key):
    """Whether the value has keys of the caller: a JSON Schema, a tool's input."""
    theirs = ("input_schema", "parameters", "metadata", "reasoning_details", "thinking_blocks", "extra_content")
    theirs += ("parametersJsonSchema", "args", "response")
    return key in theirs or (key == "input" and holder.get("type") == "tool_use")


def breakable(value):
    """All JSON objects in a request whose keys the API defines."""
    if isinstance(value, dict):
        yield value
        for key, inner in value.items():
            if not is_free(value, key):
                yield from breakable(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from breakable(inner)


def unseen(api, text):
    """Breaks a valid request at each of its objects in turn, and returns the mistakes that weren't found."""
    missed = []
    good = json.loads(text)
    for at, _ in enumerate(breakable(good)):
        bad = copy.deepcopy(good)
        list(breakable(bad))[at]["unknown_key"] = 1
        if not api.of_request(bad):
            missed.append(f"an unknown key in object {at} wasn't seen: {text[:200]}")
    for key in {"model", "messages", "input", "contents"} & good.keys():
        if not api.of_request({**good, key: 7}):
            missed.append(f"{key} = 7 wasn't seen")
    return missed


def main(folder):
    counts, halves, elsewhere = collections.Counter(), collections.Counter(), collections.Counter()
    wrong, longest = collections.defaultdict(list), {}
    for name, head, text in bodies(folder):
        what = head["what"]
        path, text = as_messages(head["path"], what, text)
        api = api_at(path, APIS)
        if api is None:
            elsewhere[head["path"].split("?")[0]] += 1
            if what == "request":
                wrong[f"a request at {head['path']}, where no API is"].append((name, head["test"]))
            continue
        counts[api.name, what] += 1
        for problem in problems(api, what, text, head.get("novel", [])):
            wrong[f"{api.name} {what} {problem}"].append((name, head["test"]))
        if what == "request":
            halves["whole-binary tests" if head["crate"] == "all" else "unit tests"] += 1
        if what == "request" and len(text) < 20_000 and len(text) > len(longest.get(api, "")):
            longest[api] = text
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in SDKS))
    failed = False
    for api in APIS:
        seen = {what: counts[api.name, what] for what in LEAST[api.name]}
        print(f"{api.name}: " + ", ".join(f"{count} of kind {what}" for what, count in seen.items()))
        for what, least in LEAST[api.name].items():
            if seen[what] < least:
                failed = True
                print(f"  only {seen[what]} of kind {what}, where {least} are the least: did the tests run?")
        for missed in unseen(api, longest[api]) if api in longest else []:
            failed = True
            print(f"  the check itself is blind: {missed}")
    for half, least in LEAST_OF_HALF.items():
        print(f"requests of the {half}: {halves[half]}")
        if halves[half] < least:
            failed = True
            print(f"  that is fewer than {least}: does its server still keep them?")
    for path, count in elsewhere.most_common():
        print(f"said where no API is: {count} at {path}")
    for problem, places in list(wrong.items())[:MOST_SHOWN]:
        tests = sorted({test for _, test in places})
        print(f"\n{problem}\n  {len(places)} times, first in {places[0][0]}; tests: {', '.join(tests[:5])}")
    if len(wrong) > MOST_SHOWN:
        print(f"\nand {len(wrong) - MOST_SHOWN} more")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1])))
