#!/usr/bin/env python3
"""A tool server with one fault, over stdio or HTTP, in the older protocol: odd.py MODE [json|sse]

Over HTTP, it prints its port first, and answers with JSON or with events.
"""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE = sys.argv[1]
KIND = sys.argv[2] if len(sys.argv) > 2 else "stdio"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
SCHEMAS = {
    "no-properties": {"type": "object"},
    "no-type": {"properties": {"text": {"type": "string"}}},
    "empty-schema": {},
    "clear-schema": {"type": "OBJECT", "description": None, "required": ["text", "text"], "properties": {
        "text": {"type": "str", "title": 5, "required": True}, "n": {"type": "any"}, "l": {"type": "array", "items": [{"type": "string"}]},
        "e": {"type": "dict", "properties": []}, "p": {"type": "string", "pattern": "[z-a"}}},
    "odd-keys": {"type": "object", "required": ["$filter"], "properties": {
        "$filter": {"type": "string"}, "a b": {"type": "object", "properties": {"c/d": {"type": "array"}}}, "x" * 70: {"type": "object"}}},
    "only-reference": {"$ref": "#/$defs/all", "$defs": {"all": {"type": "object", "properties": {"text": {"type": "string"}}}}},
}


def tool(name="echo", schema=TEXT, **more):
    return {"name": name, "description": "Says it again.", "inputSchema": schema, **more}


def tools(cursor):
    match MODE:
        case "pages":
            number = int(cursor or 0)
            return {"tools": [tool(f"t{number}" if number else "echo")], **({"nextCursor": str(number + 1)} if number < 2 else {})}
        case "stuck-cursor":
            return {"tools": [tool()], "nextCursor": "same"}
        case "empty-cursor":
            return {"tools": [tool()], "nextCursor": ""}
        case "endless":
            return {"tools": [], "nextCursor": str(int(cursor or 0) + 1)}
        case "names":
            names = ["echo", "calendar.read", "calendar_read", "user/update", "with space", "x" * 80, "日本"]
            return {"tools": [tool(name) for name in names]}
        case "odd-tools":
            return {"tools": [tool(title=None, annotations=5, icons="x", outputSchema=7), {"name": 5}, "x", None], "ttlMs": -1}
        case "huge-schema":
            return {"tools": [tool(schema={"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(50_000)}})]}
        case "huge-list":
            return {"tools": [tool(f"t{n}", description="x" * 20_000) for n in range(5_000)]}
    return {"tools": [tool(schema=SCHEMAS.get(MODE, TEXT))]}


RESULTS = {
    "no-content": {},
    "null-content": {"content": None},
    "text-content": {"content": "PLAIN"},
    "unknown-content": {"content": [{"type": "text", "text": "KNOWN"}, {"type": "video", "data": "x"}]},
    "old-result": {"toolResult": "KNOWN"},
    "not-a-number": {"content": [{"type": "text", "text": "KNOWN"}], "structuredContent": {"x": float("nan")}},
    "progress": {"content": [{"type": "text", "text": "".join(f"\r{n} of 500" for n in range(501)) + "\r\nready"}]},
}


def call(arguments, identity):
    """The text of the answer, as bytes."""
    if MODE == "bad-utf8":
        return b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"caf\xe9 KNOWN"}]}}' % identity
    if MODE == "surrogate":
        return b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"x \\ud83d KNOWN"}]}}' % identity
    if MODE == "control":
        return b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"KNOWN\x1b[31m\x01"}]}}' % identity
    if MODE == "lost-id":
        return b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: KNOWN"}}'
    if MODE == "deep":
        return b'{"jsonrpc":"2.0","id":%s,"result":{"structuredContent":%s%s}}' % (identity, b"[" * 50_000, b"]" * 50_000)
    if MODE == "other-ids":
        other = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"WRONG"}]}}\n'
        return b"".join(other % number for number in (99, 7, 12345)) + answer(identity, {"content": [{"type": "text", "text": "KNOWN"}]})
    if MODE == "scratch":
        home, temporary = os.environ["HOME"], os.environ.get("TMPDIR", "/tmp")
        for folder in (home, temporary):
            with open(os.path.join(folder, "written"), "a") as file:
                file.write("x")
        return answer(identity, {"content": [{"type": "text", "text": f"KNOWN links={os.stat(home).st_nlink > 0}"}]})
    if MODE == "variables":
        return answer(identity, {"content": [{"type": "text", "text": f"KNOWN {os.environ.get('LOG_LEVEL')} {os.environ.get('MY_TOKEN')}"}]})
    text = {"content": [{"type": "text", "text": "KNOWN " + json.dumps(arguments, sort_keys=True)}]}
    return answer(identity, RESULTS.get(MODE, text))


def answer(identity, result):
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (identity, json.dumps(result).encode())


def reply(message):
    """The answer to a message; nothing for a notification."""
    if "id" not in message:
        return None
    identity, params = json.dumps(message["id"]).encode(), message.get("params") or {}
    if MODE == "late":
        return late(message["method"], params, identity)
    match message["method"]:
        case "initialize":
            info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
            if MODE == "no-version":
                del info["serverInfo"]["version"]
            return answer(identity, info)
        case "tools/list":
            return answer(identity, tools(params.get("cursor")))
        case "tools/call":
            return call(params.get("arguments"), identity)
    return b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}' % identity


def late(method, params, identity):
    """The newest protocol, with a first answer after 11 s. The older one is refused."""
    whole = {"resultType": "complete"}
    kept = {**whole, "ttlMs": 0, "cacheScope": "private"}
    match method:
        case "server/discover":
            time.sleep(11)
            server = {"io.modelcontextprotocol/serverInfo": {"name": "late", "version": "1"}}
            return answer(identity, {**kept, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": server})
        case "tools/list":
            return answer(identity, {**kept, **tools(None)})
        case "tools/call":
            return answer(identity, {**whole, "content": [{"type": "text", "text": "KNOWN"}]})
    return b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"this connection speaks 2026-07-28"}}' % identity


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.send_response(405)
        self.end_headers()

    def do_POST(self):
        body = reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(202 if body is None else 200)
        if body is not None:
            kind = "text/event-stream" if KIND == "sse" else "application/json"
            body = b"".join(b"data: " + line + b"\n\n" for line in body.split(b"\n")) if KIND == "sse" else body.split(b"\n")[-1]
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body or b"")


if KIND != "stdio":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()

output = sys.stdout.buffer
if MODE == "pretty":
    # Lines that are no messages, and no answer.
    print('{\n  "jsonrpc": "2.0",\n', flush=True)
    time.sleep(600)
if MODE == "notes":
    note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"' + b"x" * 1000 + b'"}}\n'
    while True:
        output.write(note)
        output.flush()
for line in sys.stdin:
    body = reply(json.loads(line))
    if body is None:
        continue
    if MODE == "closes-within" and b"KNOWN" in body:
        output.write(body[:20])
        output.flush()
        os._exit(0)
    for part in [bytes([byte]) for byte in body + b"\n"] if MODE == "bytes" else [body + b"\n"]:
        output.write(part)
        output.flush()
