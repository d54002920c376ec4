"""The errors that a compacted topic has beside those of every client."""

from __future__ import annotations

from felice.client.error import KafkaException


class Fenced(KafkaException):
    """Another writer has taken the fence over, or the coordinator ended the transaction at its time limit.

    No record of this write is in the topic, and none will be. Every later write fails until `take_over` is called.
    """


class OutcomeUnknown(KafkaException):
    """It is unknown whether the records of this write are in the topic: all of them are, or none.

    With a fence, `take_over` and then `wait_end` show which; until then, every later write fails. Without a fence, the
    records may still appear while the broker works on the request.
    """


class FollowingStopped(KafkaException):
    """The topic is no longer followed: `on_record` or a conversion raised, or the topic was deleted or replaced.

    `__cause__` is the exception that `on_record` raised.
    """


class UnfitTopic(KafkaException):
    """The topic exists, and cannot be a mapping: several partitions, or a cleanup policy other than `compact`."""
