"""Holds JSON against the types of an official SDK, as strictly as they can be read.

The SDKs are generous at run time: a request goes out as it is, and of a reply every unknown field is kept. Here a key that a
type doesn't name is a mistake, and so are a missing one and a value of another kind.
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
# The keys whose words tell types apart.
TAGS = ("type", "role", "object")
REPLY = " is a type of replies"


class Members:
    """A type with keys: which there are, which there must be, and the words that tell it apart."""

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
    """The type without what only says something of it."""
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
    """What a type is: a word, and what belongs to it."""
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
    raise TypeError(f"nobody here knows the type {kind!r}")


class Reader:
    """Holds values against types.

    `models`: whether the types are those of replies (classes) or of requests (typed dictionaries). Requests' types name
    some of the classes, too, for programs that hand a reply's parts back; JSON isn't one of these.
    `more`: keys that a type may have beyond its own, by the type's name.
    """

    def __init__(self, models, more=None):
        self.models = models
        self.more = more or {}

    def problems(self, value, kind, path=""):
        """What is wrong with the value, one sentence each, with its place."""
        form, inner = read(kind)
        match form:
            case "any":
                return []
            case "null":
                return [] if value is None else [f"{path}: {short(value)} instead of null"]
            case "literal":
                if any(word == value and type(word) is type(value) for word in inner):
                    return []
                return [f"{path}: {short(value)} is none of {', '.join(map(repr, inner))}"]
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
        """Of a union, one has to fit; where none does, the one that is meant tells."""
        tried = []
        for kind in candidates(value, kinds):
            wrong = self.problems(value, kind, path)
            if not wrong:
                return []
            tried.append((not is_meant(value, kind), REPLY in wrong[0], len(wrong), wrong))
        return min(tried, key=lambda one: one[:3])[3]


def is_meant(value, kind):
    """Whether a value is of that kind by its words, or by its form where it has none."""
    form, inner = read(kind)
    if form == "members":
        return isinstance(value, dict) and inner.is_meant(value)
    if form == "union":
        return any(is_meant(value, one) for one in inner)
    return form == "list" and isinstance(value, list)


def is_base64(value):
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except ValueError:
        return False


def is_tagged(kind):
    form, inner = read(kind)
    return (form == "members" and bool(inner.tags)) or (form == "union" and all(map(is_tagged, inner)))


def candidates(value, kinds):
    """Those that may be meant: the ones whose words are the value's, and those that have none; else all."""
    if not isinstance(value, dict):
        return kinds
    meant = [kind for kind in kinds if is_meant(value, kind)]
    return meant + [kind for kind in kinds if kind not in meant and not is_tagged(kind)] if meant else kinds


def short(value):
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:60] + "..."
