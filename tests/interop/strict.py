"""Validates JSON against the types of an official SDK, as strictly as possible.

The SDKs are lenient at run time: a request is sent unchanged, and unknown fields of a reply are kept. Here an unknown key, a
missing key and a value of another type are mistakes.
"""

import base64
import collections.abc
import datetime
import enum
import functools
import types
import typing

import pydantic
import typing_extensions
from typing_extensions import Annotated, Literal, NotRequired, Required, is_typeddict

ALIASES = tuple({typing_extensions.TypeAliasType, getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType)})
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
LISTS = (list, collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection)
MAPPINGS = (dict, collections.abc.Mapping)
PLAIN = {str: (str,), bool: (bool,), int: (int,), float: (float, int)}
# The keys whose values distinguish types.
TAGS = ("type", "role", "object")
REPLY = " is a type of replies"


class Members:
    """A type with keys: the allowed keys, the required keys, and the values that distinguish it."""

    def __init__(self, kind):
        self.name = kind.__name__
        self.is_reply = not is_typeddict(kind)
        if self.is_reply:
            fields = {field.alias or name: field for name, field in kind.model_fields.items()}
            self.known = {name: field.annotation for name, field in fields.items()}
            self.required = {name for name, field in fields.items() if field.is_required()}
            self.is_open = False
        else:
            self.known = typing_extensions.get_type_hints(kind, include_extras=True)
            self.required = {name for name, hint in self.known.items() if typing.get_origin(hint) is Required}
            self.is_open = getattr(kind, "__pydantic_config__", {}).get("extra") == "allow"
        tags = {name: literals(self.known[name]) for name in TAGS if name in self.known}
        self.tags = {name: words for name, words in tags.items() if words}

    def is_meant(self, value):
        return bool(self.tags) and all(value.get(name) in words for name, words in self.tags.items())


def plain(kind):
    """The type without annotations."""
    while True:
        if isinstance(kind, ALIASES):
            kind = kind.__value__
        elif typing.get_origin(kind) in (Annotated, Required, NotRequired):
            kind = typing.get_args(kind)[0]
        else:
            return kind


def literals(kind):
    kind = plain(kind)
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def has_keys(kind):
    return is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, pydantic.BaseModel))


@functools.cache
def read(kind):
    """The kind of a type and its details."""
    kind = plain(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (typing.Any, object):
        return "any", None
    if kind in (None, type(None)):
        return "null", None
    if origin is Literal:
        return "literal", arguments
    if origin in UNIONS:
        return "union", arguments
    if has_keys(kind):
        return "members", Members(kind)
    if origin in LISTS or kind in LISTS:
        return "list", arguments[0] if arguments else object
    if origin in MAPPINGS or kind in MAPPINGS:
        return "mapping", arguments[1] if arguments else object
    if kind in PLAIN:
        return "plain", PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "literal", tuple(one.value for one in kind)
    if kind is bytes:
        return "base64", None
    if kind is datetime.datetime:
        return "plain", (str,)
    raise TypeError(f"unknown type {kind!r}")


class Reader:
    """Validates values against types.

    `models`: whether the types are those of replies (classes) or of requests (typed dictionaries). The types of requests also
    name some of the classes, for programs that send parts of a reply back; these don't apply to JSON.
    `more`: additional keys of a type, by its name.
    """

    def __init__(self, models, more=None):
        self.models = models
        self.more = more or {}

    def problems(self, value, kind, path=""):
        """The mistakes in the value, one sentence each, with their position."""
        form, inner = read(kind)
        match form:
            case "any":
                return []
            case "null":
                return [] if value is None else [f"{path}: {short(value)} instead of null"]
            case "literal":
                if any(word == value and type(word) is type(value) for word in inner):
                    return []
                return [f"{path}: {short(value)} isn't one of {', '.join(map(repr, inner))}"]
            case "union":
                return self.best_of(value, inner, path)
            case "members":
                return self.members(value, inner, path)
            case "list":
                if not isinstance(value, list):
                    return [f"{path}: {short(value)} instead of a list"]
                return [wrong for at, one in enumerate(value) for wrong in self.problems(one, inner, f"{path}[{at}]")]
            case "mapping":
                if not isinstance(value, dict):
                    return [f"{path}: {short(value)} instead of an object"]
                return [wrong for key, one in value.items() for wrong in self.problems(one, inner, f"{path}.{key}")]
            case "base64":
                return [] if is_base64(value) else [f"{path}: {short(value)} instead of base64"]
            case "plain":
                return [] if type(value) in inner else [f"{path}: {short(value)} instead of {inner[0].__name__}"]

    def members(self, value, kind, path):
        if kind.is_reply and not self.models:
            return [f"{path}: {kind.name}{REPLY}"]
        if not isinstance(value, dict):
            return [f"{path}: {short(value)} instead of {kind.name}"]
        beyond = self.more.get(kind.name, ())
        wrong = [f"{path}.{name}: missing in {kind.name}" for name in sorted(kind.required - value.keys())]
        for name, one in value.items():
            if name in kind.known:
                wrong += self.problems(one, kind.known[name], f"{path}.{name}")
            elif not kind.is_open and name not in beyond:
                wrong.append(f"{path}.{name}: not a key of {kind.name}")
        return wrong

    def best_of(self, value, kinds, path):
        """One member of a union must fit. If none does, the mistakes of the intended one are returned."""
        tried = []
        for kind in candidates(value, kinds):
            wrong = self.problems(value, kind, path)
            if not wrong:
                return []
            tried.append((not is_meant(value, kind), REPLY in wrong[0], len(wrong), wrong))
        return min(tried, key=lambda one: one[:3])[3]


def is_meant(value, kind):
    """Whether a value is of this type, by its distinguishing values or by its keys."""
    form, inner = read(kind)
    if form == "members":
        return isinstance(value, dict) and inner.is_meant(value)
    if form == "union":
        return any(is_meant(value, one) for one in inner)
    return form == "list" and isinstance(value, list)


def is_base64(value):
    """Whether a value is bytes as protobuf's JSON has them: base64, or its form for URLs."""
    if not isinstance(value, str):
        return False
    try:
        return base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True) is not None
    except ValueError:
        return False


def is_tagged(kind):
    form, inner = read(kind)
    return (form == "members" and bool(inner.tags)) or (form == "union" and all(map(is_tagged, inner)))


def candidates(value, kinds):
    """The types that can be intended: those whose distinguishing values match, and those without any; otherwise all."""
    if not isinstance(value, dict):
        return kinds
    meant = [kind for kind in kinds if is_meant(value, kind)]
    return meant + [kind for kind in kinds if kind not in meant and not is_tagged(kind)] if meant else kinds


def short(value):
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:60] + "..."
