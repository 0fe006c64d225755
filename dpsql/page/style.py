"""The style sheet of the report (report.css): narrow and wide screens, light and dark, paper."""

from importlib.resources import files

CSS = files("dpsql.page").joinpath("report.css").read_text(encoding="utf-8")
