"""References to values that are kept elsewhere, as `${env:NAME}`, `${file:/path:key}` and `${directory:/path:name}`.

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/etc/felice

Keeps true: a reference to a declared provider is replaced by its value or refused, and no reference becomes a secret
            itself. (Kafka keeps a reference that it cannot resolve as the text of a password.) A reference to a
            provider that is not declared stays a text, as in Kafka, if the option is no secret. Values are not searched
            for references. An error never contains a value that a reference was replaced by.
Pure: a `Sources` reads the environment and the files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from felice.config.broker_options import PROVIDER_PREFIX, PROVIDERS
from felice.config.option import ConfigError, Kind, Option, parse_list
from felice.config.properties import parse_properties
from felice.dataclass import dataclass

_PACKAGE = "org.apache.kafka.common.config.provider."
# ${provider:key} or ${provider:path:key}, as Kafka's ConfigTransformer finds them.
_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")


class Sources(Protocol):
    """Where the values are."""

    def variable(self, name: str) -> str | None:
        """A variable of the environment."""

    def text_of(self, path: Path) -> str:
        """The text of a file. Raises OSError, or ValueError if it is not UTF-8."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory at `path`."""


class Unresolved(Exception):
    """The reason why a reference has no value."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Properties whose references were replaced, and the texts with references by name."""

    properties: dict[str, str]
    references: dict[str, str]


def has_reference(text: str) -> bool:
    """Whether a text contains a reference to any provider."""
    return _REFERENCE.search(text) is not None


def resolve(
    properties: Mapping[str, str], sources: Sources | None, is_secret: Callable[[str], bool]
) -> Resolved:
    """Replaces the references in all properties. Raises `ConfigError`."""
    providers = _providers(properties, sources)
    found, references = dict(properties), dict[str, str]()
    for name, text in properties.items():
        if "${" in text and not name.startswith(PROVIDERS):
            found[name] = _replaced(name, text, providers, is_secret(name))
            if found[name] != text:
                references[name] = text
    return Resolved(found, references)


def without_values(error: ConfigError, resolved: Resolved) -> ConfigError:
    """The error of a wrong value, with the reference in place of the value to which it refers."""
    text, value = resolved.references.get(error.name), resolved.properties.get(error.name)
    if text is None or value is None:
        return error
    is_told = value.strip() in error.reason or str(error.value) in error.reason
    return ConfigError(error.name, text, "its value cannot be used" if is_told else error.reason)


def without_providers(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without those that declare providers."""
    return {
        name: text
        for name, text in properties.items()
        if name != PROVIDERS and not name.startswith(PROVIDER_PREFIX)
    }


def _replaced(name: str, text: str, providers: Mapping[str, _Provider], is_secret: bool) -> str:
    def value_of(reference: re.Match[str]) -> str:
        provider = providers.get(reference[1])
        if provider is not None:
            try:
                return provider(reference[2] or "", reference[3])
            except Unresolved as error:
                raise ConfigError(name, reference[0], str(error)) from None
        if is_secret:
            raise ConfigError(name, reference[0], f"{PROVIDERS} declares no provider {reference[1]}")
        return reference[0]

    return _REFERENCE.sub(value_of, text)


# Returns the value of a path and a key; raises `Unresolved`.
_Provider = Callable[[str, str], str]


def _providers(properties: Mapping[str, str], sources: Sources | None) -> dict[str, _Provider]:
    names = parse_list(Option(PROVIDERS, Kind.LIST, (), ""), properties.get(PROVIDERS, "").strip())
    if not names:
        return {}
    if sources is None:
        raise ConfigError(PROVIDERS, ",".join(names), "references cannot be resolved here")
    return {name: _provider(f"{PROVIDER_PREFIX}{name}.", properties, sources) for name in names}


def _provider(prefix: str, properties: Mapping[str, str], sources: Sources) -> _Provider:
    key = f"{prefix}class"
    class_name = properties.get(key, "").strip()
    make = _MAKERS.get(class_name.removeprefix(_PACKAGE)) if class_name.startswith(_PACKAGE) else None
    if make is None:
        known = ", ".join(_MAKERS)
        raise ConfigError(key, class_name, f"Felice has the providers {known} of {_PACKAGE.rstrip('.')}")
    parameters = f"{prefix}param."
    return make(
        {
            name.removeprefix(parameters): text.strip()
            for name, text in properties.items()
            if name.startswith(parameters)
        },
        parameters,
        sources,
    )


def _only(parameters: Mapping[str, str], known: str, prefix: str) -> str | None:
    """The value of the one parameter that a provider has. A slip in its name must not leave out a limit."""
    for name, text in parameters.items():
        if name != known:
            raise ConfigError(prefix + name, text, f"the provider has only the parameter {known}")
    return parameters.get(known)


def _variables(parameters: Mapping[str, str], prefix: str, sources: Sources) -> _Provider:
    pattern = _only(parameters, "allowlist.pattern", prefix)
    try:
        allowed = re.compile(".*" if pattern is None else pattern)
    except re.error as error:
        raise ConfigError(f"{prefix}allowlist.pattern", pattern, f"no regular expression: {error}") from None

    def value_of(path: str, key: str) -> str:
        if path:
            raise Unresolved("a variable of the environment has no path")
        if allowed.fullmatch(key) is None:
            raise Unresolved(f"{prefix}allowlist.pattern does not allow it")
        value = sources.variable(key)
        if value is None:
            raise Unresolved(f"the environment has no variable {key}")
        return value

    return value_of


def _allowed_paths(parameters: Mapping[str, str], prefix: str, sources: Sources) -> Callable[[str], Path]:
    """Returns the function that checks a path."""
    name = "allowed.paths"
    text = _only(parameters, name, prefix)
    paths = None if text is None else [Path(item.strip()) for item in text.split(",") if item.strip()]
    for path in paths or ():
        if not path.is_absolute() or not sources.exists(path):
            reason = "it does not exist" if path.is_absolute() else "it is not absolute"
            raise ConfigError(f"{prefix}{name}", path, reason)

    def checked(path: str) -> Path:
        if not path:
            raise Unresolved("it names no path, as in ${provider:/path:key}")
        plain = Path(posixpath.normpath(path))
        if paths is not None and not any(plain.is_relative_to(allowed) for allowed in paths):
            raise Unresolved(f"{prefix}{name} does not allow it")
        return plain

    return checked


def _read(path: Path, sources: Sources) -> str:
    try:
        return sources.text_of(path)
    except OSError as error:
        raise Unresolved(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise Unresolved(f"{path} is not text in UTF-8") from None


def _files(parameters: Mapping[str, str], prefix: str, sources: Sources) -> _Provider:
    checked = _allowed_paths(parameters, prefix, sources)

    def value_of(path: str, key: str) -> str:
        file = checked(path)
        try:
            value = parse_properties(_read(file, sources)).get(key)
        except ValueError:
            raise Unresolved(f"{file} is not a file of properties") from None
        if value is None:
            raise Unresolved(f"{file} has no {key}")
        return value

    return value_of


def _directories(parameters: Mapping[str, str], prefix: str, sources: Sources) -> _Provider:
    checked = _allowed_paths(parameters, prefix, sources)

    def value_of(path: str, key: str) -> str:
        directory = checked(path)
        if key in ("", ".", "..") or "/" in key:
            raise Unresolved(f"{key} is not the name of a file in {directory}")
        return _read(directory / key, sources)

    return value_of


_MAKERS: Mapping[str, Callable[[Mapping[str, str], str, Sources], _Provider]] = {
    "EnvVarConfigProvider": _variables,
    "FileConfigProvider": _files,
    "DirectoryConfigProvider": _directories,
}
