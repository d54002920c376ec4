"""`felice connect`: workers of Connect, and what one asks of them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import click

from felice.cli.command_group import CommandGroup
from felice.cli.connect_worker import distributed, read_connector, standalone
from felice.cli.faults import Fault
from felice.cli.options import json_option, key_values
from felice.cli.output import show, show_fields, show_json

F = TypeVar("F", bound=Callable[..., object])

DEFAULT_URL = "http://127.0.0.1:8083"
_TIMEOUT_S = 100.0
_FOLLOW_S = 1.0
_LINE_CHARACTERS = 100


@click.group(cls=CommandGroup)
def connect() -> None:
    """Start workers of Connect, and create, watch and change connectors.

    \b
    felice connect standalone worker.properties
    felice connect create orders.json
    felice connect status
    """


connect.add_command(standalone)
connect.add_command(distributed)

_url_option = click.option(
    "--url",
    default=DEFAULT_URL,
    envvar="FELICE_CONNECT_URL",
    show_default=True,
    help="Address of a worker; any worker of a group will do. With a log in: http://user:password@host:8083.",
)
_name = click.argument("name")


def _options(*adds: Callable[[F], F]) -> Callable[[F], F]:
    return lambda command: functools.reduce(lambda wrapped, add: add(wrapped), reversed(adds), command)


class _Worker:
    """A worker that is asked."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        try:
            address = urlsplit(self._url)
            is_right = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        except ValueError:  # a port that is no number, half an address in brackets
            is_right = False
        if not is_right:
            raise Fault(f"--url: expected an address such as {DEFAULT_URL}")
        self._name = urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2]))
        """The address without user and password, for errors."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of the answer. Raises `Fault` with the worker's own text."""
        import httpx2

        try:
            answer = httpx2.request(method, self._url + path, json=body, timeout=_TIMEOUT_S, trust_env=False)
        except httpx2.HTTPError as error:
            raise Fault(
                f"no worker of Connect answers at {self._name}: {error or type(error).__name__}. "
                "Is one running, and does --url name it?"
            ) from None
        try:
            found = answer.json() if answer.content else None
        except ValueError:
            raise Fault(f"{self._name} is no worker of Connect: it does not answer with JSON") from None
        if answer.status_code >= 400:
            message = found.get("message") if isinstance(found, dict) else None
            raise Fault(str(message or f"the worker answered {answer.status_code}"))
        return found

    def of(self, name: str, path: str = "") -> str:
        """The path of a connector."""
        return f"/connectors/{quote(name, safe='')}{path}"


@connect.command()
@_options(_url_option, json_option)
@click.option("--all", "shows_all", is_flag=True, help="Also converters, transformations and predicates.")
def plugins(url: str, as_json: bool, shows_all: bool) -> None:
    """List the connectors that a worker has.

    \b
    felice connect plugins
    felice connect plugins --all --json
    """
    only = "false" if shows_all else "true"
    show(_Worker(url).ask("GET", f"/connector-plugins?connectorsOnly={only}"), as_json)


@connect.command(name="list")
@_options(_url_option, json_option)
def list_connectors(url: str, as_json: bool) -> None:
    """List connectors with their states.

    \b
    felice connect list
    """
    found = _Worker(url).ask("GET", "/connectors?expand=status&expand=info")
    rows = [_row(name, one) for name, one in sorted(found.items())]
    show(rows, as_json, empty="There are no connectors. Create one: felice connect create FILE")


def _row(name: str, found: Mapping[str, Any]) -> dict[str, object]:
    status, info = found.get("status", {}), found.get("info", {})
    tasks = status.get("tasks", [])
    return {
        "name": name,
        "type": info.get("type"),
        "class": str(info.get("config", {}).get("connector.class", "")).rpartition(".")[2],
        "state": status.get("connector", {}).get("state"),
        "tasks": len(tasks),
        "failed": sum(task["state"] == "FAILED" for task in tasks),
    }


@connect.command()
@_options(_url_option, json_option)
@click.argument("name", required=False)
def status(url: str, as_json: bool, name: str | None) -> None:
    """Show the states of a connector and its tasks, or of all, with records per second, lag and errors.

    \b
    felice connect status orders
    felice connect status --json
    """
    worker = _Worker(url)
    if name is None:
        found = [one["status"] for one in worker.ask("GET", "/connectors?expand=status").values()]
    else:
        found = [worker.ask("GET", worker.of(name, "/status"))]
    for one in found:
        for task in one["tasks"]:
            task["progress"] = _progress(worker, one["name"], task["id"])
    if as_json:
        show_json(found if name is None else found[0])
        return
    rows = []
    for one in sorted(found, key=lambda status: str(status["name"])):
        rows.append(_state_row(one["name"], None, one["connector"]))
        rows += [_state_row(one["name"], task["id"], task) for task in one["tasks"]]
    show(rows, as_json, empty="There are no connectors.")


def _progress(worker: _Worker, name: str, task: int) -> dict[str, Any] | None:
    """What a task tells of its work; None from a worker of Kafka, which does not know it."""
    try:
        found: dict[str, Any] = worker.ask("GET", worker.of(name, f"/tasks/{task}/progress"))
    except Fault:
        return None
    return found


def _state_row(name: str, task: int | None, found: Mapping[str, Any]) -> dict[str, object]:
    progress = found.get("progress") or {}
    error = progress.get("last_error") or {}
    lines = str(found.get("trace") or error.get("text") or "").strip().splitlines()
    place = error.get("record")
    text = f"{place}: {lines[-1]}" if lines and place else "".join(lines[-1:])
    return {
        "connector": name,
        "task": "" if task is None else str(task),
        "state": found["state"],
        "worker": found["worker_id"],
        "records/s": progress.get("records_per_second"),
        "records": progress.get("records"),
        "lag": progress.get("lag"),
        "failed": progress.get("failed_records"),
        "error": text[:_LINE_CHARACTERS],
    }


@connect.command()
@_options(_url_option, json_option, _name)
@click.option("--task", type=click.IntRange(0), help="The number of the task; else all tasks.")
@click.option("--follow", is_flag=True, help="Wait for more lines, until Ctrl-C.")
def logs(url: str, as_json: bool, name: str, task: int | None, follow: bool) -> None:
    """Print the last log lines of a connector's tasks, wherever they run.

    \b
    felice connect logs orders
    felice connect logs orders --task 0 --follow
    """
    worker = _Worker(url)
    tasks = [one["id"] for one in worker.ask("GET", worker.of(name, "/status"))["tasks"]]
    if task is not None and task not in tasks:
        raise Fault(f"connector {name} has no task {task}")
    seen = dict.fromkeys(tasks if task is None else [task], 0)
    while True:
        for number, after in seen.items():
            found = worker.ask("GET", worker.of(name, f"/tasks/{number}/logs?after={after}"))["lines"]
            for one in found:
                seen[number] = one["number"]
                line = {"task": number, "line": one["line"]}
                if as_json:
                    show_json(line)
                else:
                    click.echo(one["line"] if len(seen) == 1 else f"[{number}] {one['line']}")
        if not follow:
            return
        time.sleep(_FOLLOW_S)


@connect.command()
@_options(_url_option, _name)
@click.option("--task", type=click.IntRange(0), help="The number of the task; else the connector itself.")
def trace(url: str, name: str, task: int | None) -> None:
    """Print the whole trace of a failed connector or task.

    \b
    felice connect trace orders --task 0
    """
    worker = _Worker(url)
    if task is None:
        found = worker.ask("GET", worker.of(name, "/status"))["connector"]
    else:
        found = worker.ask("GET", worker.of(name, f"/tasks/{task}/status"))
    if "trace" not in found:
        raise Fault(f"it has not failed: its state is {found['state']}")
    click.echo(found["trace"].rstrip())


@connect.command()
@_options(_url_option, json_option)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="The connector's name, if the file has none.")
@click.option("--replace", is_flag=True, help="Replace the configuration if the connector exists.")
def create(url: str, as_json: bool, file: Path, name: str | None, replace: bool) -> None:
    """Create a connector from a file of properties or JSON.

    \b
    felice connect create orders.json
    felice connect create orders.properties --name orders --replace
    """
    config, state = read_connector(file)
    name = name or config.get("name")
    if not name:
        raise Fault(f"{file} names no connector; add --name")
    config["name"] = name
    worker = _Worker(url)
    if replace:
        made = worker.ask("PUT", worker.of(name, "/config"), config)
    else:
        body: dict[str, object] = {"name": name, "config": config}
        made = worker.ask("POST", "/connectors", body if state is None else {**body, "initial_state": state})
    if as_json:
        show_json(made)
    else:
        click.echo(f"Connector {name} was created." if not replace else f"Connector {name} is configured.")


@connect.command()
@_options(_url_option, json_option)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def validate(url: str, as_json: bool, file: Path) -> None:
    """Check a configuration, and show all that is wrong with it. Exits with 1 if something is.

    \b
    felice connect validate orders.json
    """
    config, _ = read_connector(file)
    plugin = config.get("connector.class", "")
    if not plugin:
        raise Fault(f"{file} has no connector.class")
    found = _Worker(url).ask("PUT", f"/connector-plugins/{quote(plugin, safe='')}/config/validate", config)
    if as_json:
        show_json(found)
    else:
        wrong = [
            {"option": one["value"]["name"], "error": error}
            for one in found["configs"]
            for error in one["value"]["errors"]
        ]
        show(wrong, as_json, empty="The configuration is right.")
    if found["error_count"]:
        raise SystemExit(1)


@connect.command()
@_options(_url_option, json_option, _name)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An option to change.")
@click.option("--remove", "removed", multiple=True, metavar="KEY", help="An option to remove.")
def config(url: str, as_json: bool, name: str, settings: tuple[str, ...], removed: tuple[str, ...]) -> None:
    """Show the configuration of a connector, or change options of it.

    \b
    felice connect config orders
    felice connect config orders --set tasks.max=4 --remove transforms
    """
    worker = _Worker(url)
    if settings or removed:
        changes = {**key_values(settings), **dict.fromkeys(removed)}
        found = worker.ask("PATCH", worker.of(name, "/config"), changes)["config"]
    else:
        found = worker.ask("GET", worker.of(name, "/config"))
    if as_json:
        show_json(found)
    else:
        show_fields(found)


def _change(method: str, path: str, done: str, text: str) -> Callable[[str, str], None]:
    def change(url: str, name: str) -> None:
        worker = _Worker(url)
        worker.ask(method, worker.of(name, path))
        click.echo(f"Connector {name} {done}.")

    change.__doc__ = text
    return change


for _word, _method, _path, _done, _text in (
    ("pause", "PUT", "/pause", "will pause", "Pause a connector: its tasks keep what they hold, and wait."),
    ("resume", "PUT", "/resume", "will go on", "Let a paused or stopped connector go on."),
    (
        "stop",
        "PUT",
        "/stop",
        "will stop",
        "Stop a connector: its tasks end; its configuration and offsets stay.",
    ),
    ("delete", "DELETE", "", "was deleted", "Delete a connector. Its offsets stay."),
):
    connect.command(name=_word)(
        _options(_url_option, _name)(
            _change(_method, _path, _done, f"{_text}\n\n\b\nfelice connect {_word} orders\n")
        )
    )


@connect.command()
@_options(_url_option, _name)
@click.option("--task", type=click.IntRange(0), help="Only the task with this number.")
@click.option("--with-tasks", is_flag=True, help="The connector and all of its tasks.")
@click.option("--only-failed", is_flag=True, help="Only what has failed.")
def restart(url: str, name: str, task: int | None, with_tasks: bool, only_failed: bool) -> None:
    """Start a connector or its tasks again.

    \b
    felice connect restart orders --with-tasks --only-failed
    felice connect restart orders --task 0
    """
    worker = _Worker(url)
    if task is not None:
        if with_tasks or only_failed:
            raise Fault("--task names one task; leave --with-tasks and --only-failed out")
        worker.ask("POST", worker.of(name, f"/tasks/{task}/restart"))
        click.echo(f"Task {task} of connector {name} starts again.")
        return
    flags = f"?includeTasks={str(with_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
    worker.ask("POST", worker.of(name, "/restart" + flags))
    click.echo(f"Connector {name} starts again.")


@connect.command()
@_options(_url_option, json_option, _name)
@click.option("--reset", is_flag=True, help="Forget all offsets of a stopped connector.")
def offsets(url: str, as_json: bool, name: str, reset: bool) -> None:
    """Show the offsets of a connector, or reset them.

    \b
    felice connect offsets orders
    felice connect offsets orders --reset
    """
    worker = _Worker(url)
    if reset:
        click.echo(worker.ask("DELETE", worker.of(name, "/offsets"))["message"])
        return
    found = worker.ask("GET", worker.of(name, "/offsets"))["offsets"]
    show(found, as_json, empty=f"Connector {name} has committed no offsets.")


@connect.command()
@_options(_url_option, json_option, _name)
@click.option("--reset", is_flag=True, help="Forget them.")
def topics(url: str, as_json: bool, name: str, reset: bool) -> None:
    """List the topics that a connector has used.

    \b
    felice connect topics orders
    """
    worker = _Worker(url)
    if reset:
        worker.ask("PUT", worker.of(name, "/topics/reset"))
        return
    found = worker.ask("GET", worker.of(name, "/topics"))[name]["topics"]
    show([{"topic": topic} for topic in found], as_json, empty=f"Connector {name} has used no topics.")
