"""Decodes a frame of Kafka's protocol to JSON."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
import sys

import click

from felice.cli.faults import Fault
from felice.cli.output import show_json
from felice.protocol.api import API, Api
from felice.protocol.codec import decode
from felice.protocol.frames import decode_request_header
from felice.protocol.primitives import MalformedMessage


def parse_bytes(text: str) -> bytes:
    """Decodes bytes written as hexadecimal digits (spaces, colons and 0x allowed) or as base64."""
    digits = re.sub(r"0x|[\s:]", "", text)
    try:
        return bytes.fromhex(digits)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Fault("the frame is neither hexadecimal digits nor base64") from None


def strip_size(frame: bytes) -> bytes:
    """The frame without its size prefix. A frame whose first four bytes are not its size is returned as it is."""
    if len(frame) >= 4 and int.from_bytes(frame[:4], "big") == len(frame) - 4:
        return frame[4:]
    return frame


def decode_request(frame: bytes) -> dict[str, object]:
    """The header and the body of a request frame."""
    header, body = decode_request_header(memoryview(frame))
    api = API.by_key.get(header.api_key)
    if api is None:
        raise Fault(
            f"no API has key {header.api_key}; expected a request (decode a response with --response KEY:VERSION)"
        )
    _check_version(api, header.api_version)
    message = decode(api.request, memoryview(frame)[body:], header.api_version)
    return {"header": header._asdict(), "api": api.name, "message": as_data(message)}


def decode_response(frame: bytes, api_key: int, version: int) -> dict[str, object]:
    """The header and the body of a response frame, whose API key and version the caller must know."""
    api = API.by_key.get(api_key)
    if api is None:
        raise Fault(
            f"no API has key {api_key}; --response needs the KEY:VERSION of the request, such as 3:12"
        )
    _check_version(api, version)
    # The header is the correlation id; flexible versions add an empty set of tagged fields.
    header_size = 4 + (1 if api.response_header_version(version) >= 1 else 0)
    message = decode(api.response, memoryview(frame)[header_size:], version)
    return {
        "header": {"correlation_id": int.from_bytes(frame[:4], "big")},
        "api": api.name,
        "message": as_data(message),
    }


def _check_version(api: Api, version: int) -> None:
    if version not in api.versions:
        raise Fault(f"{api.name} has the versions {api.versions}, got version {version}")


def as_data(value: object) -> object:
    """A message as dictionaries, lists and plain values for JSON."""
    if dataclasses.is_dataclass(value):
        return {field.name: as_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list):
        return [as_data(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value


@click.command()
@click.argument("frame", required=False)
@click.option(
    "--response", "api", metavar="KEY:VERSION", help="The frame is a response to this API and version."
)
def decode_frame(frame: str | None, api: str | None) -> None:
    """Print a request or response of the protocol as JSON; reads standard input if no frame is given.

    \b
    felice decode-frame 00000016001200030000000100026d6500027800023100
    felice decode-frame --response 18:0 0000000100000000000000
    """
    content = strip_size(parse_bytes(frame if frame is not None else sys.stdin.read()))
    try:
        if api is None:
            show_json(decode_request(content))
            return
        found = re.fullmatch(r"(\d+):(\d+)", api)
        if not found:
            raise Fault(f"--response needs KEY:VERSION such as 3:12, got {api!r}")
        show_json(decode_response(content, int(found[1]), int(found[2])))
    except MalformedMessage as error:
        raise Fault(str(error)) from None
