"""
The demo keeps its promises, and the README's picture shows what it prints.
"""

import html
import re
import subprocess
import sys
from pathlib import Path

from cluster import ROOT


def promises(picture: Path) -> list[str]:
    """Return the lines of a picture that say a promise held, amounts and times left out."""
    lines = re.findall(r">([^<\n]+)</text>", picture.read_text())
    texts = [html.unescape(line).replace("\N{NO-BREAK SPACE}", " ").strip() for line in lines]
    return [re.sub(r"\d+", "N", text) for text in texts if "promises held" in text or text.startswith("✓")]


def test_demo_holds_every_promise_and_the_picture_shows_them(tmp_path: Path) -> None:
    """It ends by itself with 0, and the committed picture has the same promises in the same order."""
    picture = tmp_path / "demo.svg"

    done = subprocess.run(
        [sys.executable, str(ROOT / "e2e/demo.py"), "--picture", str(picture)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert promises(ROOT / "docs/demo.svg") == promises(picture)
    assert len(promises(picture)) > 10
