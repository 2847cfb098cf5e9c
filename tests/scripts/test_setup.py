"""`make setup` before anything is installed: what it says when something is missing, and who runs first."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from clone import copy_tracked

NEEDED = ("pyproject.toml", "CMakeLists.txt", "Makefile", "requirements/", "scripts/", "kernels/", "src/")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone in which nothing was set up."""
    return copy_tracked(tmp_path / "clone", only=lambda path: path.startswith(NEEDED))


@pytest.fixture
def programs(tmp_path: Path) -> Callable[..., str]:
    """Make a PATH that holds only what is named: real programs, or scripts given by keyword."""

    def make(*real: str, **scripts: str) -> str:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        python = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        for name in real:
            (folder / name).symlink_to(python if name == "python3" else shutil.which(name) or f"/usr/bin/{name}")
        for name, text in scripts.items():
            (folder / name).write_text(f"#!{shutil.which('sh')}\n{text}\n")
            (folder / name).chmod(0o755)
        return str(folder)

    return make


def setup(clone: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(shutil.which("sh")), "scripts/setup.sh", *arguments]
    environment = {"PATH": path, "HOME": str(clone)}
    return subprocess.run(
        command, cwd=clone, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def refused(run: subprocess.CompletedProcess[str]) -> str:
    """The one sentence on standard error of a run that was refused, without a traceback."""
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    (sentence,) = run.stderr.strip().splitlines()
    assert sentence.startswith("make setup: ")
    return sentence


def test_no_python_is_one_sentence(clone: Path, programs: Callable[..., str]) -> None:
    assert "needs Python 3.11 or newer; found none" in refused(setup(clone, programs("dirname")))


def test_an_old_python_is_named_with_its_version(clone: Path, programs: Callable[..., str]) -> None:
    run = setup(clone, programs("dirname", python3="echo 3.9.18"))
    assert "needs Python 3.11 or newer; found python3 (3.9.18)." in refused(run)


def test_a_newer_python_is_preferred_to_an_old_one(clone: Path, programs: Callable[..., str]) -> None:
    path = programs(
        "dirname", python3="echo 3.9.18", **{"python3.12": 'case $1 in -c) echo 3.12.1;; *) echo "ran $1";; esac'}
    )
    assert setup(clone, path).stdout == "ran scripts/setup_environment.py\n"


def test_a_python_that_can_make_environments_is_preferred(clone: Path, programs: Callable[..., str]) -> None:
    bare = 'case $2 in *ensurepip*) exit 1;; pass*) echo 3.12.1;; *) echo "bare";; esac'
    whole = 'case $1 in -c) echo 3.11.4;; *) echo "whole";; esac'
    path = programs("dirname", **{"python3.12": bare, "python3.11": whole})
    assert setup(clone, path).stdout == "whole\n"


def test_the_script_itself_refuses_an_old_python() -> None:
    text = Path(__file__).parents[2].joinpath("scripts", "setup_environment.py").read_text(encoding="utf-8")
    ahead = text[: text.index("import argparse")]
    assert "sys.version_info < (3, 11)" in ahead
    assert "from __future__" not in ahead, "Python 3.6 would stop at it with a SyntaxError"


def test_no_compiler_is_one_sentence(clone: Path, programs: Callable[..., str]) -> None:
    sentence = refused(setup(clone, programs("dirname", "python3", "git")))
    assert "There is no C++ compiler, and MLAcademy builds a native module" in sentence


def test_a_compiler_without_cxx20_is_named(clone: Path, programs: Callable[..., str]) -> None:
    old = '[ "$1" = --version ] && echo "c++ (Old) 4.8" && exit 0; exit 1'
    sentence = refused(setup(clone, programs("dirname", "python3", "git", **{"c++": old})))
    assert "(c++ (Old) 4.8) does not take C++20" in sentence


def test_no_git_is_one_sentence(clone: Path, programs: Callable[..., str]) -> None:
    path = programs("dirname", "python3", **{"c++": 'echo "c++ (New) 14"'})
    assert "git is missing" in refused(setup(clone, path))


def test_a_second_setup_waits_for_the_first(clone: Path, programs: Callable[..., str]) -> None:
    path = programs("dirname", "python3", **{"c++": 'echo "c++ (New) 14"'})
    (clone / "build").mkdir()
    with (clone / "build" / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [str(shutil.which("sh")), "scripts/setup.sh"]
        child = subprocess.Popen(
            command, cwd=clone, env={"PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        watchdog = threading.Timer(60, child.kill)
        watchdog.start()
        assert child.stdout is not None
        assert child.stdout.readline() == "Another setup of this clone is running; waiting for it.\n"
        assert child.poll() is None
    _, error = child.communicate()
    watchdog.cancel()
    assert "git is missing" in error, "it went on once the lock was free"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, repository: Path) -> ModuleType:
    """scripts/setup_environment.py as a module, with the machine's answers ready to be replaced."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("setup_environment", repository / "scripts" / "setup_environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_failing_command_tells_its_error_and_the_log(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "LOG", tmp_path / "setup.log")
    steps = script.Steps(3)
    with (
        pytest.raises(script.SetupError, match=r"failed\. ERROR: No space left\. The whole log: .*setup\.log"),
        steps.step("Trying"),
    ):
        steps.run("sh", "-c", "echo Collecting torch; echo ERROR: No space left.; exit 2")
    assert "Collecting torch" in script.LOG.read_text()
    shown = capsys.readouterr().out
    assert shown.startswith("[1/3] Trying")
    assert "failed after" in shown


def test_a_missing_venv_module_names_the_package(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(script.SetupError, match=rf"its venv module is missing .*apt-get install python{version}-venv"):
        script.check_prerequisites("cpu")


def test_missing_headers_name_the_package(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.machine, "python_headers", lambda: False)
    with pytest.raises(script.SetupError, match=r"C headers .* are missing .*-dev"):
        script.check_prerequisites("cpu")


def test_too_little_disk_space_is_told_in_gigabytes(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "VENV", tmp_path / "none")
    monkeypatch.setattr(script.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 10**12, 10**9))
    with pytest.raises(script.SetupError, match=r"takes 3\.0 GB and .* has 1\.0 GB free"):
        script.check_prerequisites("cpu")


@pytest.mark.parametrize(
    ("asked", "former", "answer", "chosen"),
    [
        ("cpu", None, None, "cpu"),
        ("default", "cpu", None, "default"),
        (None, "cpu", None, "cpu"),
        (None, None, "", "cpu"),
        (None, None, "n", "default"),
        (None, None, "y", "cpu"),
    ],
)
def test_the_build_of_torch_is_as_asked_as_installed_or_as_answered(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, asked: Any, former: Any, answer: str | None, chosen: str
) -> None:
    monkeypatch.setattr(script.sys, "platform", "linux")
    monkeypatch.setattr(script.machine, "gpus", lambda: ())
    monkeypatch.setattr(script.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(script.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert script.choose_torch(asked, former) == chosen


def test_off_a_terminal_pip_chooses_and_the_way_to_choose_is_told(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script.sys, "platform", "linux")
    monkeypatch.setattr(script.machine, "gpus", lambda: ())
    monkeypatch.setattr(script.sys.stdin, "isatty", lambda: False, raising=False)
    assert script.choose_torch(None, None) == "default"
    assert "make setup TORCH=cpu" in capsys.readouterr().out


def test_with_a_gpu_nothing_is_asked(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.sys, "platform", "linux")
    monkeypatch.setattr(script.machine, "gpus", lambda: ("a GPU",))
    assert script.choose_torch(None, None) == "default"


def test_keys_follow_what_they_stand_for(script: ModuleType, monkeypatch: pytest.MonkeyPatch, clone: Path) -> None:
    monkeypatch.setattr(script, "ROOT", clone)
    monkeypatch.setattr(script, "CONSTRAINTS", clone / "requirements" / "constraints.txt")
    packages, native = script.packages_key(), script.native_key()
    source = next((clone / "kernels").rglob("*.cpp"))
    source.write_text(source.read_text() + "// more\n")
    assert (script.packages_key(), script.native_key() != native) == (packages, True)
    native = script.native_key()
    module = clone / "src" / "mlacademy" / "config.py"
    module.write_text("# edited\n")
    assert script.native_key() == native, "edits of Python files are live"
    module.rename(module.with_name("other.py"))
    assert script.native_key() != native
    (clone / "requirements" / "constraints.txt").write_text("torch==9.9\n")
    assert script.packages_key() != packages
    assert script._constrained("torch") == "9.9"
    with pytest.raises(script.SetupError, match="does not pin rich"):
        script._constrained("rich")


def test_a_stamp_counts_only_for_the_environment_it_was_written_in(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    os.symlink(sys.executable, venv / "bin" / "python")
    monkeypatch.setattr(script, "VENV", venv)
    monkeypatch.setattr(script, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(script, "STAMP", venv / "stamp.json")
    assert script.read_stamp() == {}
    noted = {"root": str(script.ROOT), "packages": "p", "native": "n", "torch": "cpu", "distributions": []}
    script.STAMP.write_text(script.json.dumps(noted))
    monkeypatch.setattr(script, "_works", lambda statement: True)
    assert script.read_stamp() == noted
    monkeypatch.setattr(script, "_works", lambda statement: statement == "pass")
    assert script.read_stamp()["native"] == "", "the module does not load: build it again"
    monkeypatch.setattr(script, "_works", lambda statement: False)
    assert script.read_stamp() == {}, "the interpreter is gone"
    monkeypatch.setattr(script, "_works", lambda statement: True)
    script.STAMP.write_text(script.json.dumps(noted | {"distributions": ["numpy-2.dist-info"]}))
    assert script.read_stamp()["packages"] == "", "a package is gone"
    script.STAMP.write_text(script.json.dumps(noted | {"root": "/elsewhere"}))
    assert script.read_stamp() == {}, "the clone was moved"
    script.STAMP.write_text("{")
    assert script.read_stamp() == {}, "it was written half"


def test_without_a_connection_the_index_is_asked_about(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "LOG", tmp_path / "setup.log")
    said = "echo 'ERROR: Could not find a version that satisfies the requirement torch (from versions: none)'; exit 1"
    with pytest.raises(script.SetupError, match=r"Is there a connection to the package index\? .* Run it again"):
        script.Steps(1).run("sh", "-c", said)


@pytest.mark.parametrize(
    ("torch", "platform", "own_index"), [("cpu", "linux", True), ("default", "linux", False), ("cpu", "darwin", False)]
)
def test_torch_comes_first_at_its_pinned_version_from_the_chosen_index(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, torch: str, platform: str, own_index: bool
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(script.sys, "platform", platform)
    monkeypatch.setattr(script.Steps, "run", lambda self, *command: commands.append(command))
    script.install_packages(script.Steps(2), torch)
    first, second = commands
    assert first[-1] == f"torch=={script._constrained('torch')}"
    assert (script.CPU_TORCH_INDEX in first) == own_index
    assert script.CPU_TORCH_INDEX not in second
    assert all("-c" in command and str(script.CONSTRAINTS) in command for command in commands)
    assert any(word.startswith("jupyterlab") for word in second)


def test_a_complete_environment_is_left_alone_and_a_changed_source_builds_only(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[tuple[str, ...]] = []
    noted = {"packages": script.packages_key(), "native": script.native_key(), "torch": "cpu"}
    monkeypatch.setattr(sys, "argv", ["setup_environment.py"])
    monkeypatch.setattr(script, "BUILD", tmp_path)
    monkeypatch.setattr(script, "LOG", tmp_path / "setup.log")
    monkeypatch.setattr(script, "STAMP", tmp_path / "stamp.json")
    monkeypatch.setattr(script, "read_stamp", lambda: dict(noted))
    monkeypatch.setattr(script, "_usable", lambda: True)
    monkeypatch.setattr(script.Steps, "run", lambda self, *command: commands.append(command))
    assert script.main() == 0
    assert commands == []
    assert "up to date" in capsys.readouterr().out
    noted["native"] = ""
    assert script.main() == 0
    assert commands[0][-2:] == ("-e", str(script.ROOT))
    assert not any("torch" in word for command in commands for word in command)
    assert script.json.loads(script.STAMP.read_text())["native"] == script.native_key()
    monkeypatch.setattr(sys, "argv", ["setup_environment.py", "--torch", "default"])
    noted["native"] = script.native_key()
    commands.clear()
    assert script.main() == 0
    assert "--clear" in commands[0], "another build of torch needs an empty environment"


class Builds:
    """In place of ``Steps``: refuses the commands that ``refuse`` names, and keeps all of them."""

    def __init__(self, script: ModuleType, refuse: Callable[[tuple[str, ...]], bool]) -> None:
        self.script, self.refuse, self.commands = script, refuse, list[tuple[str, ...]]()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        yield

    def run(self, *command: str) -> None:
        self.commands.append(command)
        if self.refuse(command):
            raise self.script.SetupError("it does not compile: exec.cpp:7: error: no")


def _without_emulator(command: tuple[str, ...]) -> bool:
    return "-Ccmake.define.MLACADEMY_EMULATOR=OFF" in command


@pytest.mark.parametrize("earlier", [False, True])
def test_an_emulator_that_does_not_build_leaves_the_course_usable(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    earlier: bool,
) -> None:
    monkeypatch.setattr(script, "BUILD", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    if earlier:
        (tmp_path / "cp311-x").mkdir()
    builds = Builds(script, lambda command: not _without_emulator(command))
    script.build_native(builds)
    assert [_without_emulator(command) for command in builds.commands] == [False] * (1 + earlier) + [True]
    said = capsys.readouterr().out
    assert "built without the emulator, which chapters 00 to 06 do not use" in said
    assert "exec.cpp:7: error: no" in said


@pytest.mark.parametrize("earlier", [False, True])
def test_an_emulator_that_does_not_build_fails_in_ci(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, earlier: bool
) -> None:
    monkeypatch.setattr(script, "BUILD", tmp_path)
    monkeypatch.setenv("CI", "true")
    if earlier:
        (tmp_path / "cp311-x").mkdir()
    with pytest.raises(script.SetupError, match="does not compile"):
        script.build_native(Builds(script, lambda command: True))


def test_a_compilers_refusal_is_told_by_its_first_error(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "LOG", tmp_path / "log")
    said = 'echo "a.cpp:3:1: error: expected;"; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do echo note; done'
    with pytest.raises(script.SetupError, match=r"a\.cpp:3:1: error: expected;.*The whole log: [^ ]*log\.$"):
        script.Steps(1).run("sh", "-c", f"{said}; echo ERROR: Could not build wheels; exit 1")
