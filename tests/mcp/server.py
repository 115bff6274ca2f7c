#!/usr/bin/env python3
# A tool server for the tests. It misbehaves on order: it dies, asks for input, and answers twice.
import json, os, sys
def send(m): print(json.dumps(m), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    k, i = m.get("method"), m.get("id")
    if k == "initialize":
        send({"jsonrpc":"2.0","id":i,"result":{"protocolVersion":m["params"]["protocolVersion"],"capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}})
    elif k == "tools/list":
        d = os.environ.get("DESCRIPTION","Says it again.")
        send({"jsonrpc":"2.0","id":i,"result":{"tools":[{"name":n,"description":d,"inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}} for n in ("echo","die","ask","env")]}})
    elif k == "tools/call":
        n, a = m["params"]["name"], m["params"].get("arguments",{})
        if n == "die": sys.stderr.write("\x1b[31mboom\n"); sys.exit(3)
        if n == "ask":
            send({"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{"message":"secret?","requestedSchema":{"type":"object","properties":{}}}})
            sys.stdin.readline()
        t = " ".join(sorted(os.environ)) if n == "env" else a.get("text","")
        send({"jsonrpc":"2.0","id":i,"result":{"content":[{"type":"text","text":t}]}})
        send({"jsonrpc":"2.0","id":i,"result":{"content":[{"type":"text","text":"twice"}]}})
    elif i is not None and k:
        send({"jsonrpc":"2.0","id":i,"error":{"code":-32601,"message":"no"}})
