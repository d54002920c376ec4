"""Changes of ACLs that clients ask for. The broker that receives the request carries them out.

Keeps true: C1 the rules of a resource change by compare-and-set of their node; after a version conflict the change is
            made again on the newer rules. The node of a resource without rules is deleted.
            The image of this broker shows a change when the call returns; other brokers watch the store.
How:        each change also writes a notification node, as Kafka does for its own brokers and tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from felice.controller.notifications import write_with_notification
from felice.controller.writing import FOLLOW_TIMEOUT_S, LOST_RACE, answering
from felice.metadata import Create, Delete, MetadataStore, SetData, layout
from felice.metadata.store import Operation
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from felice.security.acl import Acl, AclBinding, AclFilter, ResourcePattern

_MAX_ATTEMPTS = 20

Rules = tuple[Acl, ...]
Outcomes = dict[ResourcePattern, ApiError | None]
"""The error of each resource whose rules were to be changed."""


class AclChanges:
    """Creates and deletes ACLs in the metadata store."""

    def __init__(self, store: MetadataStore, watcher: Watcher) -> None:
        self._store = store
        self._watcher = watcher

    async def create(self, bindings: Iterable[AclBinding]) -> Outcomes:
        """Adds rules. A rule that exists stays as it is."""
        wanted: dict[ResourcePattern, dict[Acl, None]] = {}
        for binding in bindings:
            wanted.setdefault(binding.resource, {})[binding.acl] = None
        return await self._edit_each(wanted, lambda rules, new: tuple(dict.fromkeys((*rules, *new))))

    async def delete(self, rules: Mapping[ResourcePattern, Iterable[Acl]]) -> Outcomes:
        """Removes rules. It is no error if one does not exist any more."""
        wanted = {resource: dict.fromkeys(some) for resource, some in rules.items()}
        return await self._edit_each(
            wanted, lambda known, gone: tuple(acl for acl in known if acl not in gone)
        )

    def selected(self, wanted: AclFilter) -> dict[ResourcePattern, Rules]:
        """The rules that a filter selects."""
        return wanted.selected(self._watcher.image.acls)

    async def _edit_each(
        self,
        changes: Mapping[ResourcePattern, Mapping[Acl, None]],
        edit: Callable[[Rules, Mapping[Acl, None]], Rules],
    ) -> Outcomes:
        outcomes: Outcomes = {}
        for resource, some in changes.items():
            try:
                await self._edit(resource, lambda rules, some=some: edit(rules, some))  # type: ignore[misc]
                outcomes[resource] = None
            except ApiError as error:
                outcomes[resource] = error
        written = [resource for resource, error in outcomes.items() if error is None]
        await self._wait_shown({resource: changes[resource] for resource in written}, edit)
        return outcomes

    async def _wait_shown(
        self,
        changes: Mapping[ResourcePattern, Mapping[Acl, None]],
        edit: Callable[[Rules, Mapping[Acl, None]], Rules],
    ) -> None:
        """Waits until the image shows rules that the changes would not change any more."""

        def is_shown(resource: ResourcePattern) -> bool:
            rules = self._watcher.image.acls.get(resource, ())
            return edit(rules, changes[resource]) == rules

        await self._watcher.wait_until(lambda _: all(map(is_shown, changes)), FOLLOW_TIMEOUT_S)

    @answering
    async def _edit(self, resource: ResourcePattern, edit: Callable[[Rules], Rules]) -> None:
        path = layout.acls_path(resource)
        for _ in range(_MAX_ATTEMPTS):
            node = await self._store.exists(path)
            rules = _decoded(node.data) if node else ()
            changed = edit(rules)
            if changed == rules:
                return
            write: Operation
            if node is None:
                write = Create(path, layout.encode_acls(changed))
            elif changed:
                write = SetData(path, layout.encode_acls(changed), node.version)
            else:
                write = Delete(path, node.version)
            if await self._write(resource, write):
                return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the ACLs of {resource} kept changing")

    async def _write(self, resource: ResourcePattern, write: Operation) -> bool:
        """Returns False after a version conflict, or if the parent nodes had to be created first."""
        prefix = layout.acl_change_prefix(resource)
        try:
            await write_with_notification(self._store, write, prefix, layout.encode_acl_change(resource))
        except LOST_RACE:
            return False
        return True


def _decoded(data: bytes) -> Rules:
    try:
        return layout.decode_acls(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the ACLs in the metadata store cannot be read: {error!r}"
        ) from error
