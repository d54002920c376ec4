"""The errors of the REST API: status, error code and message, as Confluent's registry answers them.

Clients decide by the error code, and some by the message, so both are Confluent's where it has them.
"""

from __future__ import annotations


class RegistryError(Exception):
    """A request that the registry refuses, or cannot carry out now.

    `status` is the status of HTTP, `code` the number in the body; `str(error)` is the message.
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def not_found() -> RegistryError:
    """404: a path parameter that cannot name anything, such as an id that is not a number."""
    return RegistryError(404, 404, "HTTP 404 Not Found")


def bad_request(message: str) -> RegistryError:
    """400: the body is not the JSON that the resource expects."""
    return RegistryError(400, 400, message)


def unprocessable(message: str) -> RegistryError:
    """422: a field or an option that the registry does not accept."""
    return RegistryError(422, 422, message)


def forbidden(message: str) -> RegistryError:
    """403: the rules do not allow this user the operation."""
    return RegistryError(403, 40301, message)


def subject_not_found(subject: str) -> RegistryError:
    """40401."""
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """40402."""
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(named: int | str | None = None) -> RegistryError:
    """40403; `named` is the id or guid."""
    return RegistryError(404, 40403, "Schema not found" if named is None else f"Schema {named} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    """40404."""
    return RegistryError(
        404, 40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    """40405."""
    return RegistryError(
        404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: str) -> RegistryError:
    """40406."""
    return RegistryError(
        404,
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """40407."""
    return RegistryError(
        404,
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted",
    )


def config_not_found(subject: str) -> RegistryError:
    """40408."""
    return RegistryError(
        404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def mode_not_found(subject: str) -> RegistryError:
    """40409."""
    return RegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def context_not_found(context: str) -> RegistryError:
    """404; Confluent's registry has no code of its own for it."""
    return RegistryError(404, 404, f"Context '{context}' not found.")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    """409."""
    return RegistryError(
        409,
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{', '.join(reasons)}]",
    )


def invalid_schema(message: str) -> RegistryError:
    """42201."""
    return RegistryError(422, 42201, message)


def invalid_version(text: str) -> RegistryError:
    """42202."""
    return RegistryError(
        422,
        42202,
        f"The specified version '{text}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> RegistryError:
    """42203."""
    return RegistryError(
        422,
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    """42204."""
    return RegistryError(
        422, 42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT."
    )


def not_permitted(message: str) -> RegistryError:
    """42205."""
    return RegistryError(422, 42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    """42206."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(422, 42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    """42208."""
    return RegistryError(422, 42208, f"The specified subject '{subject}' is not a valid subject.")


def too_large(message: str) -> RegistryError:
    """42209."""
    return RegistryError(422, 42209, message)


def invalid_rules(message: str) -> RegistryError:
    """42210."""
    return RegistryError(422, 42210, message)


def context_not_empty(context: str) -> RegistryError:
    """42211."""
    return RegistryError(422, 42211, f"The specified context '{context}' is not empty.")


def store_failed(message: str) -> RegistryError:
    """50001: the topic cannot be read or written."""
    return RegistryError(500, 50001, message)


def timed_out(message: str) -> RegistryError:
    """50002: the topic did not take a write in time."""
    return RegistryError(500, 50002, message)


def forwarding_failed(message: str) -> RegistryError:
    """50003: the leader could not be reached, or did not answer in time."""
    return RegistryError(500, 50003, message)


def unknown_leader(message: str) -> RegistryError:
    """50004: no registry of the group is its leader now."""
    return RegistryError(500, 50004, message)
