"""`felice`: finds the command and imports only what it needs.

A command's module is imported when the command is called, because the imports of all commands would delay the start
of a broker.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import NoReturn

import click

from felice import __version__
from felice.cli.command_group import CommandGroup
from felice.cli.faults import describe_fault

COMMANDS = {
    "start": "Start one or more brokers with an embedded metadata store.",
    "broker": "Start a broker from a server.properties file.",
    "registry": "Start a schema registry, with the REST API of Confluent's.",
    "connect": "Start workers of Connect, and create, watch and change connectors.",
    "mirror": "Mirror topics and groups between clusters.",
    "topics": "List, create, describe, alter and delete topics.",
    "produce": "Send lines of standard input to a topic.",
    "consume": "Print the records of a topic.",
    "groups": "List and describe consumer groups, and reset their offsets.",
    "transactions": "List and describe transactions; find hanging ones and end them.",
    "configs": "Show and change the configuration of topics and brokers.",
    "acls": "List, add and remove access rules.",
    "offsets": "Show the offsets of partitions, and delete records before an offset.",
    "log-dirs": "Show brokers' log directories, and move replicas between them.",
    "cluster": "Show brokers, the controller, and partitions that are offline or lack replicas.",
    "metrics": "Show the metrics of brokers, and print the Grafana dashboard.",
    "quotas": "Show and change the quotas of users, client ids and addresses.",
    "reassign": "Move partitions to other brokers.",
    "elect-leaders": "Return leadership to preferred replicas, or give it to any live replica.",
    "features": "Show and change the finalized feature levels of the cluster.",
    "perf": "Measure the throughput and latency of writing and reading a topic.",
    "advise": "Say how many partitions a topic needs for a throughput.",
    "dump-log": "Print and check the files of a partition.",
    "metadata": "Show, export and repair the metadata journal of a broker without ZooKeeper.",
    "import": "Make a directory of Felice from those of a stopped Apache Kafka node.",
    "export": "Make a directory of Apache Kafka from those of a stopped broker.",
    "scram": "Set, list and delete the SCRAM users of a cluster, without a running broker.",
    "tokens": "Create, list, renew and delete delegation tokens.",
    "users": "Add, list and delete the users of an HTTP server, in a file.",
    "decode-frame": "Print a request or response of the protocol.",
    "run": "Run stream applications, or the queries of a file of SQL, on Spark.",
    "streams": "List, describe, stop, reset and rescale stream applications.",
    "sql-server": "Start a server for SQL, with the REST API of ksqlDB.",
    "sql": "Work with a server for SQL; test a file of queries.",
    "zookeeper": "Start ZooKeeper on this machine for development; inspect any ensemble.",
    "completion": "Print a script for bash, zsh or fish that completes commands and options.",
    "demo": "Run a year of flights through topics and Spark, and check the result.",
}
"""The commands with their lines of help. `felice.cli` has a module of the name of each, unless `_HOMES` has another."""
_HOMES = {"broker": "felice.cli.start", "mirror": "felice.cli.connect_worker", "demo": "felice.demo.command"}
_HOMES |= dict.fromkeys(("import", "export"), "felice.cli.migration")


class LazyGroup(CommandGroup):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, without importing them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command."""
        if cmd_name not in COMMANDS:
            return None
        attribute = cmd_name.replace("-", "_") + "_" * iskeyword(cmd_name)
        module = importlib.import_module(_HOMES.get(cmd_name, f"felice.cli.{attribute}"))
        command: click.Command = getattr(module, attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands for `felice --help`."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="felice")
def felice() -> None:
    """Apache Kafka in Python: a broker for unmodified Kafka clients, a Python client, and topics as Spark tables.

    \b
    felice start                                     a broker on 127.0.0.1:9092
    felice topics create flights --partitions 3      a topic
    echo hello | felice produce flights              a record
    felice consume flights --from-beginning          its records
    """


def run(
    command: Callable[..., object], arguments: Sequence[str] | None = None, *, usage_code: int = 2
) -> int:
    """Runs a click command and returns its exit code. A `Fault` becomes one line on standard error."""
    stdout = sys.stdout
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _check_encoding(words)
        code = command(args=words, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as error:
        error.show()
        return usage_code
    except click.Abort:
        return 130
    except SystemExit:
        # The reader of the output has closed it, as `head` does. That is not a failure, but click treats it as one and
        # replaces the stream.
        if sys.stdout is stdout:
            raise
        return 0
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            return 130  # Python 3.11 raises a RuntimeError in its place if it comes while a class is made
        line = describe_fault(error)
        if line is None:
            raise
        # Some messages of Kafka's tools begin with "Error" themselves.
        click.echo(line if line.startswith("Error") else f"error: {line}", err=True)
        return 1


def _check_encoding(words: Sequence[str]) -> None:
    """Refuses arguments that are not UTF-8. Python decodes their bytes to lone surrogates, which cannot be sent."""
    for word in words:
        if any("\udc80" <= character <= "\udcff" for character in word):
            shown = word.encode(errors="surrogateescape").decode(errors="backslashreplace")
            raise click.UsageError(f"an argument is not text in UTF-8: {shown}")


def run_process(command: Callable[..., object], *, usage_code: int = 2) -> NoReturn:
    """Runs a command as the whole process. SIGTERM ends it in the same way as Ctrl-C.

    Otherwise a consumer would not leave its group, and the other members would wait for its session to time out.
    """
    # The handler of SIGINT cannot be reused: a process that a script starts in the background has none.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from felice.cli.standard_streams import open_missing

        open_missing()
    sys.exit(run(command, usage_code=usage_code))


def main() -> None:
    """The entry point of the program `felice`."""
    run_process(felice)


if __name__ == "__main__":
    main()
