"""The book builds offline with warnings as errors, shows pictures for widgets, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlacademy import book

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted(path.stem for path in (ROOT / "lessons").glob("[0-9][0-9]_*.ipynb"))
LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]*)"|<link\b[^>]*\bhref="([^"]*)"')


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    said: list[str] = []
    built = book.build(ROOT, tmp_path_factory.mktemp("book") / "html", progress=said.append)
    assert any("zh_CN" in line for line in said)
    return built


@pytest.mark.notebook
@pytest.mark.xdist_group("book")
def test_every_chapter_has_a_page_with_its_outputs(pages: dict[str, Path]) -> None:
    for chapter in CHAPTERS:
        page = (pages["en"].parent / "lessons" / f"{chapter}.html").read_text(encoding="utf-8")
        assert page.count("cell_output") > 10, chapter
        assert "mla-figure" in page, f"{chapter} shows no picture"
        assert "application/vnd.jupyter.widget" not in page, f"{chapter} has a widget that needs a kernel"
    chinese = pages["zh_CN"].parent / "lessons" / "00_machine_and_course.html"
    assert "机器与课程" in chinese.read_text(encoding="utf-8")


@pytest.mark.notebook
@pytest.mark.xdist_group("book")
def test_pages_load_scripts_styles_and_pictures_from_the_book_alone(pages: dict[str, Path]) -> None:
    for page in pages["en"].parent.rglob("*.html"):
        for match in LOADED.finditer(page.read_text(encoding="utf-8")):
            address = match[1] or match[2]
            assert not address.startswith(("http:", "https:", "//")), f"{page.name} loads {address}"


@pytest.mark.notebook
@pytest.mark.xdist_group("book")
def test_formulas_are_set_by_the_books_own_mathjax(pages: dict[str, Path]) -> None:
    page = (pages["en"].parent / "lessons" / "05_online_softmax.html").read_text(encoding="utf-8")
    script = re.search(r'src="\.\./(_static/mathjax/[^"?]+)', page)
    assert script
    assert (pages["en"].parent / script[1]).is_file()


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(book, "NEEDED", ("sphinx", "no_such_package"))
    with pytest.raises(book.BookError, match=r"building the book needs no_such_package: run `make setup`"):
        book.build(ROOT, tmp_path / "html")


def test_a_warning_stops_the_build_and_is_reported(tmp_path: Path) -> None:
    course = tmp_path / "course"
    for folder in ("book/_static", "book/_templates", "book/zh_CN", "lessons/zh_CN", "exercises"):
        (course / folder).mkdir(parents=True)
    (course / "book" / "conf.py").write_text((ROOT / "book" / "conf.py").read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("book/index.md", "book/zh_CN/index.md"):
        (course / name).write_text("# Title\n\n[dead](nowhere.md)\n", encoding="utf-8")
    for name in ("book.css", "../_templates/language.html"):
        source = ROOT / "book" / "_static" / name
        (course / "book" / "_static" / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(book.BookError, match="Sphinx stopped while building the en book") as raised:
        book.build(course, progress=lambda _: None)
    assert "nowhere.md" in raised.value.log
