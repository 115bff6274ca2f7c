"""The Gemini API in the types of Google's client. They are loaded without the client itself, whose import needs fourteen
more packages."""

import importlib
import importlib.util
import sys
import types as modules
import typing

import pydantic

from apis import Api


def load():
    folders = importlib.util.find_spec("google").submodule_search_locations
    package = modules.ModuleType("google.genai")
    package.__path__ = [f"{folder}/genai" for folder in folders]
    sys.modules["google.genai"] = package
    return importlib.import_module("google.genai.types")



types = load()


class GenerateContentRequest(pydantic.BaseModel):
    """A request's body. The client builds it from typed parts and has no type for the whole."""

    contents: list[types.Content]
    systemInstruction: typing.Optional[types.Content] = None
    tools: typing.Optional[list[types.Tool]] = None
    toolConfig: typing.Optional[types.ToolConfig] = None
    generationConfig: typing.Optional[types.GenerationConfig] = None
    serviceTier: typing.Optional[types.ServiceTier] = None


class Status(pydantic.BaseModel):
    """The fields of an error that the client reads. The SDK has no type for errors."""

    code: int
    message: str
    status: str
    details: typing.Optional[list[dict[str, typing.Any]]] = None


class Gemini(Api):
    models = True


REPLY = types.GenerateContentResponse
GEMINI = Gemini("gemini", ":streamGenerateContent", GenerateContentRequest, REPLY, REPLY, Status)
