"""A tool server on the official SDK that misbehaves on order, over stdio (`stdio`) or HTTP (`http`)."""

import asyncio
import os
import socket
import struct
import sys
import zlib

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from pydantic import BaseModel

server = MCPServer("misbehaving", version="1.0.0")


class Weather(BaseModel):
    """What `weather` returns as data."""

    celsius: float
    sky: str


class Confirmation(BaseModel):
    sure: bool


@server.tool(description=os.environ.get("ECHO_DESCRIPTION", "Returns the text."))
def echo(text: str) -> str:
    return text


@server.tool()
def weather(city: str) -> Weather:
    """The weather of a city, as data."""
    return Weather(celsius=21.5, sky=f"clear over {city}")


@server.tool()
def picture() -> Image:
    """A picture."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", 2, 3, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0\0" * 3)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return Image(data=data, format="png")


@server.tool()
def environment() -> str:
    """The names of the variables that the server sees."""
    return " ".join(sorted(os.environ))


@server.tool()
def flood(megabytes: int) -> str:
    """Returns very much text."""
    return "x" * (megabytes << 20)


@server.tool()
def chatter(lines: int) -> str:
    """Writes to stderr, then returns."""
    for line in range(lines):
        print(f"line {line}", file=sys.stderr)
    return "said"


@server.tool()
def die() -> str:
    """Ends the process in the middle of the call."""
    print("the server gives up", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
async def sleep(seconds: float, context: Context) -> str:
    """Answers late, and reports progress meanwhile."""
    marker = os.environ.get("SLEEP_MARKER")
    if marker:
        with open(marker, "a", encoding="utf-8") as file:
            file.write("called\n")
    for step in range(int(seconds * 10)):
        await context.report_progress(step, seconds * 10)
        await asyncio.sleep(0.1)
    return "slept"


@server.tool()
async def confirm(context: Context) -> str:
    """Asks the user something."""
    answer = await context.elicit("Are you sure?", Confirmation)
    return str(answer)


@server.tool()
def fail() -> str:
    """Raises an exception."""
    raise ValueError("it can't be done")


def serve_http() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    app = server.streamable_http_app(json_response=os.environ.get("JSON_RESPONSE") == "1")
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve_http()
    else:
        server.run("stdio")
