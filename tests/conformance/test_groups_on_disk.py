"""Kafka's own tool reads the files that groups leave on disk."""

from __future__ import annotations

import re

from conformance.group_calls import commit, find_coordinator, stable_member
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.java import require_java, run_tool

GROUP = "on-disk"


def test_kafka_decodes_our_offsets_topic() -> None:
    require_java()
    with Target({"offsets.topic.num.partitions": "1"}) as own:
        topic = create_topic(own, unique_name("t"))
        with own.wire() as wire:
            find_coordinator(wire, GROUP)
            commit(wire, topic, 41, group_id="simple", metadata="note", leader_epoch=2)
            member = stable_member(wire, GROUP, instance_id="i1", assignment=b"mine")
            member.commit(topic, 42)
            member.leave()
        own.stop()
        dump = dump_offsets_topic(own)
    assert f'"type":"1","data":{{"group":"{GROUP}","topic":"{topic}","partition":0}}' in dump
    assert '"version":"4","data":{"offset":42,"leaderEpoch":-1,"metadata":""' in dump
    topic_id = re.search(r'"offset":42,.*"topicId":"([^"]+)"', dump)
    assert topic_id is not None
    assert topic_id[1] != "A" * 22
    assert '"offset":41,"leaderEpoch":2,"metadata":"note"' in dump
    assert f'"type":"2","data":{{"group":"{GROUP}"}}' in dump
    assert '"protocolType":"consumer","generation":1,"protocol":"range"' in dump
    assert '"groupInstanceId":"i1","clientId":"wire","clientHost":"/127.0.0.1"' in dump
    assert '"generation":2,"protocol":null,"leader":null' in dump


def dump_offsets_topic(target: Target) -> str:
    segment = target.log_dir / "__consumer_offsets-0" / f"{0:020}.log"
    arguments = ["--offsets-decoder", "--deep-iteration", "--files", str(segment)]
    return run_tool("org.apache.kafka.tools.DumpLogSegments", *arguments).stdout
