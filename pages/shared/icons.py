"""Streamlit's icon font, cut to the icons that its own scripts name: it holds four thousand, and is the largest file of a first page."""

import io
import re
from functools import cache
from pathlib import Path

import streamlit

MEDIA = Path(streamlit.__file__).parent / "static" / "static" / "media"
NAMED = re.compile(r"""(?:["'`]|:material/)([a-z0-9_]+)(?=["'`:])""")


@cache
def font() -> Path:
    """Return the icon font's file."""
    return next(MEDIA.glob("MaterialSymbols-*.woff2"))


@cache
def named() -> frozenset[str]:
    """Return every word in quotes, or after ``:material/``, in Streamlit's scripts: the icons among them are all that it can ask for itself."""
    return frozenset(name for script in (MEDIA.parent / "js").glob("*.js") for name in NAMED.findall(script.read_text()))


def cut(path: Path) -> bytes:
    """Return the font with the ligatures of named icons alone. An icon is a ligature of the letters of its name."""
    from fontTools import subset

    options = subset.Options(flavor="woff2", layout_features=["*"], layout_closure=False)
    whole = subset.load_font(str(path), options)
    letters = {glyph: chr(code) for code, glyph in whole.getBestCmap().items()}
    kept = set()
    for lookup in whole["GSUB"].table.LookupList.Lookup:
        for table in lookup.SubTable:
            for first, icons in getattr(table, "ExtSubTable", table).ligatures.items():
                for icon in icons:
                    parts = [first, *icon.Component]
                    if "".join(letters.get(part, " ") for part in parts) in named():
                        kept.update(parts, [icon.LigGlyph])
    subsetter = subset.Subsetter(options)
    subsetter.populate(glyphs=kept)
    subsetter.subset(whole)
    written = io.BytesIO()
    subset.save_font(whole, written, options)
    return written.getvalue()
