"""How Sphinx builds the site; `make docs` calls it by way of scripts/docs_site.py."""

import re
from typing import Any

import antiphon

project = "Antiphon"
author = "The Antiphon authors"
copyright = author
version = release = antiphon.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Antiphon"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

myst_heading_anchors = 3
default_role = "literal"  # docstrings write `names` as Markdown does
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 100
nitpicky = False

PARAMETER = re.compile(r"^(\w+(?:, \w+)*): ")


def as_restructured_text(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Show a docstring's parameters, `name: what it is`, as a list, and indented examples as code."""
    made: list[str] = []
    in_list = in_code = False
    for line in lines:
        parameter = PARAMETER.match(line)
        indented = line.startswith("    ")
        if parameter:
            if not in_list:
                made.append("")
            made.append(f"* **{parameter[1]}**: {line[parameter.end() :]}")
        elif indented and in_list:
            made.append(f"  {line.strip()}")
        elif indented and not in_code:
            made.extend(["::", "", line])
        else:
            made.append(line)
        in_list = bool(parameter) or (in_list and indented)
        in_code = (indented and not in_list) or (in_code and not line)
    lines[:] = made


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_restructured_text)
