"""The `tally` command: a verb's module is imported when that verb is used, and no failure is a traceback.

To add a verb, write a function in the module of its family, here include/tally/cli/batch.py, and give it one line in
VERBS:

    def mend(topic: Annotated[str, typer.Argument(help="Whose archive.")], json: Json = False) -> None:
        \"\"\"One sentence: what `tally mend --help` says.\"\"\"
        from tally.sources.mend import mend as run           # heavy imports inside the function
        done = run(...)
        show(done.as_dict(), json, lambda: print_mended(done))

Its arguments are typer's (Annotated[..., typer.Argument/Option]); `Json` and `show` come from tally.cli.output. It
returns None when done, raises `typer.Exit(1)` or AnswerIsNo when the answer is no, and TallyError for wrong use. With
--json, stdout is kept for `show`'s document, and prints go to stderr; what is no line of Tally's own, such as a JVM's
noise, reaches neither (tally.host.foreground). Exit codes: 0 done, 1 no, 2 wrong use, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import typer
from typer.main import get_command

from tally.base.errors import TallyError
from tally.base.safe_text import is_text, quoted
from tally.cli import output
from tally.cli.output import keep_stdout_for_the_document
from tally.host import foreground


class Verb(NamedTuple):
    function: str  # "module:function" below tally.cli
    summary: str  # what `tally --help` says, without importing the module


VERBS: dict[str, Verb] = {
    "check": Verb("check:check", "Load and check every definition; with --setup, this machine."),
    "up": Verb("broker:up", "Start the embedded broker and make the catalogue's topics."),
    "pause": Verb("streams:pause", "Stop a stream until it is resumed; its DAG and its driver go on."),
    "resume": Verb("streams:resume", "Let a paused or stopped stream run again, from where it stopped."),
    "restart": Verb("streams:restart", "Begin a stream anew; a driver that hangs is replaced."),
    "stop": Verb("streams:stop", "Stop a stream, and return once nobody writes its table."),
    "down": Verb("broker:down", "Stop everything that runs for this TALLY_HOME."),
    "produce": Verb("demo:produce", "Produce taxi rides, with disorder and a ground truth, or replay a CSV of them."),
    "stream": Verb("streams:stream", "Run the speed layer in the foreground, without Airflow."),
    "batch": Verb("batch:batch", "Archive what is new, and restate a range of windows."),
    "reconcile": Verb("reconcile:reconcile", "Compare the layers, explain what differs, judge and seal."),
    "audit": Verb("reconcile:audit", "Go over sealed windows again, whatever their age; hold those that fail."),
    "begin": Verb("reconcile:begin", "Show, or say, where a pipeline's numbers begin; older windows are partial."),
    "plan": Verb("batch:plan", "Say what a backfill of a range would do, and whether it can."),
    "backfill": Verb("batch:backfill", "Restate a range of windows, chunk by chunk, and reconcile each."),
    "mend": Verb("batch:mend", "Hold a topic's archive against its manifests, and read from Kafka again what differs."),
    "read": Verb("read:read", "Read a pipeline's rows: sealed ones from the batch, the others from the stream."),
    "status": Verb("status:status", "Say how each pipeline is, and why."),
    "incidents": Verb("status:incidents", "List what went wrong and is not over; exit code 1 while there is any."),
    "doctor": Verb("status:doctor", "Look at everything that one stream needs, and say what is wrong and its cure."),
    "rebuild": Verb("streams:rebuild", "Begin a stream anew from the offsets that Kafka still holds."),
    "demo": Verb("demo:demo", "Show everything at work on one live screen; Ctrl-C stops it all."),
}


def main() -> NoReturn:
    """The console script: run the command line, with the terminal to itself, and exit with its code."""
    foreground.take(_verb(sys.argv[1:]))
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; nothing but Ctrl-C's SystemExit ever leaves here."""
    as_json = "--json" in arguments
    if as_json:
        keep_stdout_for_the_document()
    try:
        _check_text(arguments)
        command = get_command(_app(arguments))
        code = command.main(args=list(arguments) or ["--help"], prog_name="tally", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # So that the flush at exit does not complain too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), foreground.descriptors()[0])
        return 1
    except TallyError as error:
        return output.refused(error, as_json)
    except typer.TyperException as error:
        return output.misused(error, as_json)
    except Exception as error:
        return output.unexpected(error, list(arguments), as_json)


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse bytes that are no UTF-8: no store keeps them, and no name, time or number has them."""
    for argument in arguments:
        if not is_text(argument):
            raise TallyError(f"{quoted(argument)} is not UTF-8 text", cure="write it in UTF-8, or set the locale to it")


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The typer app in which only the verb of this command line is real; the others stand there for --help."""
    app = typer.Typer(add_completion=False, help="One definition, two layers, sealed windows.")
    app.callback()(_no_options)
    used = _verb(arguments)
    for name, verb in VERBS.items():
        if name == used:
            app.command(name)(_load(verb))
        else:
            app.command(name, help=verb.summary)(_stand_in)
    return app


def _verb(arguments: Sequence[str]) -> str:
    """The verb that is asked for; none: ""."""
    used = next((argument for argument in arguments if not argument.startswith("-")), "")
    return used if used in VERBS else ""


def _load(verb: Verb) -> Callable[..., Any]:
    module, _, name = verb.function.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"tally.cli.{module}"), name)
    return function


def _no_options() -> None:
    """One definition, two layers, sealed windows."""


def _stand_in() -> None:
    raise AssertionError("a verb that was not asked for")
