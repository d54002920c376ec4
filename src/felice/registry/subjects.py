"""Names of subjects and contexts: `subject`, or `:.context:subject` outside the default context.

Keeps true:  a subject has one name in the state: `:.:orders` is `orders`. Ids belong to a context.
Source:      Confluent's qualified subjects. The name of the default context is `.`, that of every other begins with it.
"""

from __future__ import annotations

from felice.registry.errors import invalid_subject

DEFAULT_CONTEXT = "."
WILDCARD = ":*:"
"""As a prefix: the subjects of all contexts."""

GLOBAL_CONTEXT = ":.__GLOBAL:"
"""The name whose configuration and mode are those of all contexts that have none of their own."""

_GLOBAL_SUBJECT = "__GLOBAL"


def split(name: str) -> tuple[str, str]:
    """The context and the subject of a qualified name. Either may be empty text after `:.context:`."""
    if not name.startswith(":."):
        return DEFAULT_CONTEXT, name
    context, _, subject = name[1:].partition(":")
    return context, subject


def joined(context: str, subject: str) -> str:
    """The name of a subject of a context; of an empty subject: the name of the context's own settings."""
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


def normalized(name: str) -> str:
    """The name under which the state knows this subject."""
    return joined(*split(name))


def context_of(name: str) -> str:
    """The context of a qualified name."""
    return split(name)[0]


def within(parent: str, name: str) -> str:
    """The qualified name of a subject that a schema of `parent` refers to: without a context of its own it is in that
    of the parent."""
    if name.startswith(":."):
        return normalized(name)
    return joined(context_of(parent), name)


def context_name(text: str) -> str:
    """A context's name as a path gives it: `ctx`, `.ctx`, `:.ctx:`.

    Raises `RegistryError` (42208) for a name with a colon inside or with control characters.
    """
    name = text.removeprefix(":").removesuffix(":")
    if not name.startswith("."):
        name = "." + name
    if ":" in name or _has_control(name):
        raise invalid_subject(text)
    return name


def check(name: str) -> None:
    """Raises `RegistryError` (42208) for a name under which nothing may be registered or configured."""
    if _has_control(name) or split(name)[1] == _GLOBAL_SUBJECT:
        raise invalid_subject(name)


def _has_control(text: str) -> bool:
    return any(ch < " " or "\x7f" <= ch <= "\x9f" or "\ud800" <= ch <= "\udfff" for ch in text)
