"""Sphinx configuration of the book. `mlacademy book` assembles the sources and runs it once a language."""

import os

language = os.environ.get("BOOK_LANGUAGE", "en")
CHINESE = language == "zh_CN"

project = "MLAcademy"
author = "The MLAcademy authors"
copyright = "2026, The MLAcademy authors"
html_title = "MLAcademy · 中文" if CHINESE else "MLAcademy"

extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design", "sphinx-mathjax-offline"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = True

nb_execution_mode = "cache"
nb_execution_cache_path = os.environ.get("BOOK_CACHE", "")
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_excludepatterns = ["exercises/*/*"]
nb_ipywidgets_js = {}
nb_merge_streams = True

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_search_language = "zh" if CHINESE else "en"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "use_download_button": False,
    "article_header_start": ["toggle-primary-sidebar", "language.html"],
    "navbar_persistent": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
templates_path = ["_templates"]
html_context = {
    "default_mode": "auto",
    "other_language": "English" if CHINESE else "简体中文",
    "other_root": "../index.html" if CHINESE else "zh_CN/index.html",
}
