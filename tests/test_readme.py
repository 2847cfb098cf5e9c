"""What the README and its translation name exists: commands, targets, files and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from clone import ROOT

from mlacademy import cli

PAGES = [page for page in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md") if (ROOT / page).exists()]
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)

SHELVES = "lessons|exercises|solutions|book|kernels|src|tests|benchmarks|docs|scripts|requirements"
PATH = re.compile(rf"`((?:{SHELVES})/[\w./-]*)`")


def code_of(page: str) -> str:
    """Everything a page shows as code, one piece a line."""
    return "\n".join(CODE.findall((ROOT / page).read_text(encoding="utf-8")))


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_named_exists(page: str) -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", code_of(page)))
    assert named <= targets()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_named_exists_with_its_options(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(r"(?<!from )\bmlacademy ([a-z]+)([^`\n#]*)", code_of(page))
    assert {name for name, _ in lines} <= cli.COMMANDS.keys()
    for name, rest in lines:
        shown = cli.parser_of(name).format_help()
        assert all(option in shown for option in re.findall(r"--[a-z-]+", rest.split(" -- ")[0])), (name, rest)


@pytest.mark.parametrize("page", PAGES)
def test_every_local_link_and_picture_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"\s]+)\"", text)
    local = [link.split("#")[0] for link in links if not re.match(r"[a-z]+:", link)]
    missing = [link for link in local if link and not (ROOT / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_every_path_shown_as_code_exists(page: str) -> None:
    shown = PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    placeholder = re.compile(r"NN|XX|\.\.\.|…")
    student = not (ROOT / "solutions").is_dir()
    absent = [path for path in shown if not placeholder.search(path) and not (ROOT / path).exists()]
    assert not [path for path in absent if not (student and path.startswith("solutions"))]


def test_readme_names_the_two_commands_and_every_other() -> None:
    code = code_of("README.md")
    assert "make lab" in code
    assert "make test" in code
    assert {name for name in cli.COMMANDS if f"mlacademy {name}" not in code} == set()


def test_the_translation_names_the_same_commands() -> None:
    def commands(page: str) -> set[str]:
        return set(re.findall(r"\b(?:make|mlacademy) [a-z]+", code_of(page)))

    assert commands("README.zh-CN.md") == commands("README.md")


def test_pages_name_no_path_of_one_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/(?:home|root|Users|work/main|tmp)/", Path(ROOT, page).read_text(encoding="utf-8"))
