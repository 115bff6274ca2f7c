"""Holds JSON against the types of an official SDK, as strictly as they can be read.

The SDKs are generous at run time: a request goes out as it is, and of a reply every unknown field is kept. Here a key that a
type doesn't name is a mistake, and so are a missing one and a value of another kind.
"""

import collections.abc
import typing

import pydantic
import typing_extensions
from typing_extensions import Annotated, Literal, NotRequired, Required, is_typeddict

HINTS = {}
LISTS = (list, collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection)
REPLY = " is a type of replies"
MAPPINGS = (dict, collections.abc.Mapping)


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
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if isinstance(kind, (typing.TypeAliasType if hasattr(typing, "TypeAliasType") else (), typing_extensions.TypeAliasType)):
            return self.problems(value, kind.__value__, path)
        if origin in (Annotated, Required, NotRequired):
            return self.problems(value, arguments[0], path)
        if kind in (typing.Any, object):
            return []
        if kind in (None, type(None)):
            return [] if value is None else [f"{path}: {short(value)} instead of null"]
        if origin is Literal:
            same = [word for word in arguments if word == value and type(word) is type(value)]
            return [] if same else [f"{path}: {short(value)} is none of {', '.join(map(repr, arguments))}"]
        if is_union(origin):
            return self.best_of(value, arguments, path)
        if is_typeddict(kind):
            return self.dictionary(value, kind, path)
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
            if not self.models:
                return [f"{path}: {kind.__name__}{REPLY}"]
            return self.model(value, kind, path)
        if origin in LISTS or kind in LISTS:
            if not isinstance(value, list):
                return [f"{path}: {short(value)} instead of a list"]
            inner = arguments[0] if arguments else object
            return [wrong for at, one in enumerate(value) for wrong in self.problems(one, inner, f"{path}[{at}]")]
        if origin in MAPPINGS or kind in MAPPINGS:
            if not isinstance(value, dict):
                return [f"{path}: {short(value)} instead of an object"]
            inner = arguments[1] if arguments else object
            return [wrong for key, one in value.items() for wrong in self.problems(one, inner, f"{path}.{key}")]
        if kind in (str, bool, int):
            return [] if type(value) is kind else [f"{path}: {short(value)} instead of {kind.__name__}"]
        if kind is float:
            return [] if type(value) in (int, float) else [f"{path}: {short(value)} instead of a number"]
        raise TypeError(f"{path}: nobody here knows the type {kind!r}")

    def best_of(self, value, kinds, path):
        """Of a union, one has to fit; where none does, the one that is meant tells."""
        all_of_them = []
        for kind in kinds:
            wrong = self.problems(value, kind, path)
            if not wrong:
                return []
            all_of_them.append((not self.is_meant(value, kind), REPLY in wrong[0], len(wrong), wrong))
        return min(all_of_them, key=lambda one: one[:3])[3]

    def is_meant(self, value, kind):
        """Whether the words that tell types apart (`type`, `role`, `object`) are this type's."""
        if not isinstance(value, dict):
            origin = typing.get_origin(kind)
            return isinstance(value, list) and (origin in LISTS or kind in LISTS)
        tags = {name: hint for name, hint in self.fields(kind).items() if name in ("type", "role", "object")}
        return bool(tags) and all(name in value and not self.problems(value[name], hint) for name, hint in tags.items())

    def fields(self, kind):
        while typing.get_origin(kind) is Annotated:
            kind = typing.get_args(kind)[0]
        if is_typeddict(kind):
            return hints(kind)
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
            return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        return {}

    def dictionary(self, value, kind, path):
        known = hints(kind)
        required = {name for name, hint in known.items() if typing.get_origin(hint) is Required}
        is_open = getattr(kind, "__pydantic_config__", {}).get("extra") == "allow"
        return self.members(value, kind, known, required, is_open, path)

    def model(self, value, kind, path):
        required = {field.alias or name for name, field in kind.model_fields.items() if field.is_required()}
        return self.members(value, kind, self.fields(kind), required, False, path)

    def members(self, value, kind, known, required, is_open, path):
        if not isinstance(value, dict):
            return [f"{path}: {short(value)} instead of {kind.__name__}"]
        beyond = self.more.get(kind.__name__, ())
        wrong = [f"{path}.{name}: missing in {kind.__name__}" for name in sorted(required - set(value))]
        for name, one in value.items():
            if name in known:
                wrong += self.problems(one, known[name], f"{path}.{name}")
            elif not is_open and name not in beyond:
                wrong.append(f"{path}.{name}: not a key of {kind.__name__}")
        return wrong


def hints(kind):
    """The keys of a typed dictionary with their types, `Required` included."""
    if kind not in HINTS:
        HINTS[kind] = typing_extensions.get_type_hints(kind, include_extras=True)
    return HINTS[kind]


def is_union(origin):
    import types

    return origin is typing.Union or origin is getattr(types, "UnionType", ())


def short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
