"""A loopback server that speaks three APIs in the types of their official SDKs, with a model that delegates.

    server.py

It prints its port, and ends when its stdin ends. Each request is validated against the SDK's type; an invalid one is answered
with status 400 and reported on stderr. Each reply is built from the SDK's classes. The first request of each prompt is
answered with a transient error.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from apis import api_at
from replies import SIGNATURE, stream

THOUGHT = "Where to look? Äh — 😀"


def conversation(api, body):
    """The first prompt, the answers to calls so far, and the thinking that was sent back."""
    if api.name == "anthropic":
        blocks = [
            {"type": "text", "text": message["content"]} if isinstance(message["content"], str) else block
            for message in body["messages"]
            for block in ([None] if isinstance(message["content"], str) else message["content"])
        ]
        prompt = next(block["text"] for block in blocks if block["type"] == "text")
        answers = [block["content"] for block in blocks if block["type"] == "tool_result"]
        thoughts = [(block["thinking"], block["signature"]) for block in blocks if block["type"] == "thinking"]
    elif api.name == "openai-chat":
        prompt = next(message["content"] for message in body["messages"] if message["role"] == "user")
        answers = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        thoughts = None
    else:
        items = body["input"]
        prompt = next(item["content"][0]["text"] for item in items if item.get("role") == "user")
        answers = [item["output"] for item in items if item["type"] == "function_call_output"]
        thoughts = [
            (item["summary"][0]["text"], item["encrypted_content"]) for item in items if item["type"] == "reasoning"
        ]
    return prompt, answers, thoughts


def reply(prompt, answers):
    """The model's reply: the parent looks, delegates to two at once and reports; a subagent reads its file."""
    asked = len(answers)
    match prompt.split():
        case ["Explore", name] if asked == 0:
            return [("text", f"I read {name}."), ("call", f"call_{name}", "read_file", {"path": f"notes/{name}.txt"})]
        case ["Explore", name]:
            return [("text", f"{name} says {answers[-1].split()[-1]}")]
        case _ if asked == 0:
            look = ("call", "call_glob", "glob", {"pattern": "notes/*.txt"})
            read = ("call", "call_missing", "read_file", {"path": "missing.txt"})
            return [("thought", THOUGHT), ("text", "I look."), look, read]
        case _ if asked == 2:
            task = {"agent": "explorer", "description": "a note"}
            return [("call", f"call_{name}", "task", {**task, "prompt": f"Explore {name}"}) for name in ("a", "b")]
        case _:
            return [("text", "Heard: " + "; ".join(answer.split("\n")[0] for answer in answers[-2:]))]


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    greeted = set()
    count = 0

    def do_POST(self):
        text = self.rfile.read(int(self.headers["content-length"]))
        api = api_at(self.path)
        if api is None:
            self.say(404, {"error": {"message": f"nothing is at {self.path}", "type": "not_found", "code": None}})
            return
        body = json.loads(text)
        wrong = api.of_request(body)
        if not wrong and body.get("stream") is not True:
            wrong = ["only streams are made here"]
        prompt, answers, thoughts = ("", [], None) if wrong else conversation(api, body)
        if thoughts and thoughts != [(THOUGHT, SIGNATURE)]:
            wrong = [f"thoughts came back as {thoughts}"]
        if thoughts == [] and answers and not prompt.startswith("Explore"):
            wrong = ["the thoughts didn't come back"]
        if wrong:
            print(f"{api.name}: {'; '.join(wrong)}", file=sys.stderr, flush=True)
            self.error(api, 400, "invalid_request_error", "; ".join(wrong))
            return
        with self.lock:
            first = (api.name, prompt) not in self.greeted
            self.greeted.add((api.name, prompt))
            Answers.count += 1
            number = Answers.count
        if first:
            kind = "rate_limit_error" if api.name == "anthropic" else "rate_limit_exceeded"
            self.error(api, 429, kind, "Slow down.", {"retry-after-ms": "1"})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for name, data in stream(api, reply(prompt, answers), body["model"], number):
            event = (f"event: {name}\n" if name else "") + f"data: {data}\n\n"
            self.chunk(event.encode())
        self.chunk(b"")

    def error(self, api, status, kind, message, headers=None):
        """An error in the API's own type."""
        error = {"type": kind, "message": message}
        if api.name == "anthropic":
            body = {"type": "error", "error": error, "request_id": "req_1"}
        else:
            body = {"error": {**error, "param": None, "code": None}}
        assert not (mistakes := api.of_error(body)), mistakes
        self.say(status, body, headers)

    def say(self, status, body, headers=None):
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_):
        """Logs no successful requests."""


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
