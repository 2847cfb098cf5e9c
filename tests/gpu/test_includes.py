"""Which headers a source reaches."""

from __future__ import annotations

from pathlib import Path

from mlacademy.gpu.includes import reach, without_comments


def names(source: str, folder: Path, **more: object) -> list[str]:
    found = reach(source, folder, headers=more.get("headers", {}), folders=more.get("folders", ()))  # type: ignore[arg-type]
    return [Path(name).name for name in found.texts]


def test_headers_are_followed_transitively_and_in_circles(tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text('#include "b.cuh"\n')
    (tmp_path / "b.cuh").write_text('#include "a.cuh"\n#  include <c.cuh>\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.cuh").write_text("")
    assert sorted(names('#include "a.cuh"', tmp_path, folders=(tmp_path / "sub",))) == ["a.cuh", "b.cuh", "c.cuh"]


def test_quoted_name_is_looked_for_beside_the_file_that_includes_it(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.cuh").write_text(place)
    (tmp_path / "one" / "first.cuh").write_text('#include "x.cuh"\n')
    folders = (tmp_path / "two", tmp_path)
    found = reach('#include "one/first.cuh"', tmp_path, headers={}, folders=folders)
    assert found.texts[str(tmp_path / "one" / "x.cuh")] == "one"
    found = reach("#include <x.cuh>", tmp_path / "one", headers={}, folders=folders)
    assert list(found.texts.values()) == ["two"]


def test_text_given_as_a_header_wins_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.cuh").write_text("file")
    found = reach('#include "x.cuh"', tmp_path, headers={"x.cuh": "text"}, folders=())
    assert found.texts == {"x.cuh": "text"}


def test_branches_not_taken_and_probes_count_and_comments_do_not(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.cuh").write_text("")
    taken = '#if 0\n#include "a.cuh"\n#endif\n#if __has_include("b.cuh")\n#endif\n'
    source = taken + '// #include "c.cuh"\n/*\n#include "d.cuh"\n*/'
    assert sorted(names(source, tmp_path)) == ["a.cuh", "b.cuh"]


def test_name_by_macro_leaves_the_list_open(tmp_path: Path) -> None:
    assert reach('#include "x.cuh"', tmp_path, headers={}, folders=()).closed
    assert not reach("#include NAME", tmp_path, headers={}, folders=()).closed


def test_comment_marks_inside_strings_are_text() -> None:
    assert without_comments('a = "// no"; // yes\nb = \'"\'; /* yes */ c') == 'a = "// no";  \nb = \'"\';   c'
