"""A collector of the official packages: decodes what it gets with OpenTelemetry's protobuf, and compares the attributes with the
names that OpenTelemetry's packages for Python have. Prints its port, then a JSON line for each request."""

import importlib.metadata
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def official_names():
    """All names that begin with `gen_ai.` in the sources of the packages."""
    names = set()
    for package in ["opentelemetry-semantic-conventions", "opentelemetry-util-genai"]:
        for path in importlib.metadata.files(package) or []:
            if path.suffix == ".py":
                source = path.locate().read_text(encoding="utf-8")
                names.update(re.findall(r'"(gen_ai\.[a-z_.]+[a-z])"', source))
    return names


NAMES = official_names()


def value(any_value):
    kind = any_value.WhichOneof("value")
    content = getattr(any_value, kind)
    return [value(item) for item in content.values] if kind == "array_value" else content


def described(span):
    attributes = {item.key: value(item.value) for item in span.attributes}
    assert len(attributes) == len(span.attributes), f"an attribute is repeated: {span}"
    assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
    return {
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "trace": span.trace_id.hex(),
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "is_error": span.status.code == Status.STATUS_CODE_ERROR,
        "attributes": attributes,
        "events": [event.name for event in span.events],
        "unknown": sorted(name for name in attributes if name.startswith("gen_ai.") and name not in NAMES),
    }


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            request = ExportTraceServiceRequest.FromString(body)
            spans = [
                described(span)
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            print(json.dumps(spans), flush=True)
            status = 200
        except Exception as error:
            print(json.dumps({"error": repr(error)}), flush=True)
            status = 400
        reply = ExportTraceServiceResponse().SerializeToString()
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


assert len(NAMES) > 40, f"only {len(NAMES)} official names were found"
server = HTTPServer(("127.0.0.1", 0), Collector)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
# Ends with the test.
sys.stdin.read()
