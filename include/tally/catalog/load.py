"""Loads a folder of definitions into a Catalogue, or says at which line and how to mend it."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from threading import RLock
from types import ModuleType

from tally.base.errors import DefinitionError, TallyError
from tally.base.settings import settings
from tally.catalog.as_written import AsWritten, importable
from tally.catalog.fingerprint import fingerprint
from tally.catalog.inert import check_inert
from tally.catalog.purity import check_purity
from tally.catalog.spec import Catalogue, Pipeline, Topic

read_from: list[Path] = []
taken: list[Path] = []  # files that the definitions import from folders of the catalogue
State = tuple[str, tuple[str, str], tuple[tuple[str, int, int, int], ...]]
loaded: dict[State, Catalogue] = {}
one_at_a_time = RLock()


def catalogue() -> Catalogue:
    """The catalogue that TALLY_CATALOG names."""
    return load(settings().catalog)


def definitions() -> Catalogue:
    """The same; where it cannot be loaded at all, each of its files is broken for that reason."""
    try:
        return catalogue()
    except TallyError as fault:
        folder = settings().catalog
        names = sorted(file.stem for file in folder.glob("pipelines/[!_]*.py"))
        return Catalogue(path=str(folder), topics={}, pipelines={}, broken=dict.fromkeys(names, fault))


def load(folder: Path | str) -> Catalogue:
    """Every topic and pipeline of a folder; read again only when a file changed. A broken file breaks no other."""
    folder = Path(folder).absolute()
    if not (folder / "topics.py").is_file():
        raise TallyError(
            f"{folder} has no topics.py",
            field="TALLY_CATALOG",
            cure="point it at the folder with topics.py and pipelines/",
        )
    with one_at_a_time:  # its modules are this process's
        state = state_of(folder)
        if state not in loaded:
            loaded.clear()
            fresh = read(folder)
            now = state_of(folder)
            if set(state[2]) <= set(now[2]):  # nothing was changed meanwhile; what was imported may have come to it
                loaded[now] = fresh
            return fresh
        return loaded[state]


def state_of(folder: Path) -> State:
    """All that a catalogue follows from: its files, and of the settings what is part of each version."""
    beside = (file for file in taken if file.is_relative_to(folder) and file.is_file())
    files = {*folder.glob("*.py"), *folder.glob("pipelines/**/*.py"), *beside}
    return (
        str(folder),
        (settings().skew, settings().spark_conf),
        tuple(stamp(file) for file in sorted(files)),
    )


def stamp(file: Path) -> tuple[str, int, int, int]:
    """What changes with any writing of a file: a copy may keep the time of modification, but not that of change."""
    now = file.stat()
    return str(file), now.st_ctime_ns, now.st_mtime_ns, now.st_size


def read(folder: Path) -> Catalogue:
    """Run the definition files with the folder importable, and gather what they bind."""
    try:
        with importable(folder):
            return declared(folder)
    finally:
        mine = modules_of(folder)
        taken[:] = [Path(place(module)) for module in mine.values()]
        send_along(mine)


def declared(folder: Path) -> Catalogue:
    forget(folder)
    check_inert(folder / "topics.py", folder)
    topics = gather_topics(run(folder / "topics.py", "topics"))
    pipelines, broken = dict[str, Pipeline](), dict[str, TallyError]()
    for file in sorted(folder.glob("pipelines/*.py")):
        if not file.name.startswith("_"):
            try:
                check_inert(file, folder)
                pipelines[file.stem] = finished(the_pipeline(file, run(file, f"pipelines.{file.stem}")), folder)
            except TallyError as fault:
                broken[file.stem] = fault
    for pipeline in pipelines.values():
        for topic in pipeline.reads:
            topics.setdefault(topic.name, topic)
    return Catalogue(path=str(folder), topics=topics, pipelines=pipelines, broken=broken)


def finished(pipeline: Pipeline, folder: Path) -> Pipeline:
    """A pipeline whose function is looked through, with its version."""
    check_purity(pipeline, folder)
    return dataclasses.replace(pipeline, version=fingerprint(pipeline, folder))


def place(module: ModuleType) -> str:
    """The file of a module, or the folder of one that has none."""
    return str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "/"))


def modules_of(*folders: Path) -> dict[str, ModuleType]:
    """What is imported from files below some folders; of thousands of modules, so no paths are made of them."""
    below = tuple(f"{folder}{os.sep}" for folder in folders)
    return {name: module for name, module in list(sys.modules.items()) if place(module).startswith(below)}


def send_along(modules: dict[str, ModuleType]) -> None:
    """Have functions of the catalogue's files sent to Spark's workers as they are: nothing there can import them."""
    from pyspark import cloudpickle

    for module in modules.values():
        cloudpickle.register_pickle_by_value(module)


def forget(folder: Path) -> None:
    """Drop what another folder's files left in the module table under the same names."""
    ours = {name for name in sys.modules if name in ("topics", "pipelines") or name.startswith("pipelines.")}
    for name in (ours | set(modules_of(folder, *read_from))) - {"__main__"}:
        del sys.modules[name]
    read_from[:] = [folder]
    package = ModuleType("pipelines")
    package.__path__ = [str(folder / "pipelines")]
    sys.modules["pipelines"] = package


def run(file: Path, name: str) -> ModuleType:
    """Execute one definition file; whatever goes wrong in it is said with its own line."""
    spec = importlib.util.spec_from_file_location(name, file, loader=AsWritten(name, str(file)))
    if spec is None or spec.loader is None:
        raise DefinitionError("cannot be loaded", where=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except TallyError:
        raise
    except SyntaxError as error:
        raise DefinitionError(
            f"{error.msg}", where=f"{error.filename}:{error.lineno}", cure="mend the syntax"
        ) from None
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(file.parent)]
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(file)
        cure = "a definition file must load without doing anything"
        if "SESSION_OR_CONTEXT" in str(error):
            cure = "name types by objects, F.udf(f, StringType()): to read one from text, Spark wants a session"
        if isinstance(error, TypeError | AttributeError):
            cure = "give topic(...) and pipeline(...) what docs/write_a_pipeline.md says"
        raise DefinitionError(f"{type(error).__name__}: {error}", where=where, cure=cure) from None
    return module


def gather_topics(module: ModuleType) -> dict[str, Topic]:
    """The topics that topics.py binds; two of one name are refused."""
    topics: dict[str, Topic] = {}
    for value in vars(module).values():
        if isinstance(value, Topic):
            if topics.get(value.name, value) != value:
                raise DefinitionError(
                    "is declared twice", where=str(module.__file__), field=value.name, cure="remove one"
                )
            topics[value.name] = value
    return topics


def the_pipeline(file: Path, module: ModuleType) -> Pipeline:
    """The one pipeline of a file, named like the file."""
    mine = [v for v in vars(module).values() if isinstance(v, Pipeline) and Path(v.file) == file]
    if len(mine) != 1:
        raise DefinitionError(
            f"the file holds {len(mine)} pipelines", where=str(file), cure="one file, one function under @pipeline(...)"
        )
    if mine[0].name != file.stem:
        raise DefinitionError(
            f"the function is called {mine[0].name!r}", where=mine[0].where, field="name", cure=f"name it {file.stem!r}"
        )
    return mine[0]
