"""A share group's limits, as the window of a partition uses them. The defaults are Kafka's."""

from __future__ import annotations

from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseDelay:
    """How long a released record waits for its next delivery: twice as long after each further delivery."""

    first_ms: int
    max_ms: int

    def after(self, deliveries: int) -> int:
        """The delay in milliseconds after so many deliveries."""
        doublings = min(deliveries - 1, self.max_ms.bit_length())
        return min(self.first_ms << doublings, self.max_ms)


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """See Kafka's group configurations `share.*`. Kafka has neither delays nor, before 4.4, dead letters."""

    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    lock_duration_ms: int = 30_000
    may_renew: bool = True
    release_delay: ReleaseDelay | None = None
    has_dead_letters: bool = False

    @property
    def isolation_count(self) -> int:
        """From this number of deliveries on, records are delivered in smaller numbers, to isolate a bad one."""
        return max(2, -(-self.delivery_count_limit // 2))

    def isolated(self, deliveries: int, batch_size: int) -> int:
        """How many records that were delivered so often may come together, from a batch of `batch_size`."""
        limit = self.delivery_count_limit
        if limit > 2 and deliveries >= limit - 1:
            return 1
        return max(1, batch_size >> (deliveries - self.isolation_count + 1))
