"""
Release a part: `make release PART=scheduler VERSION=0.2.0`. docs/releases.md says what comes before and after.
"""

import argparse

from bootstrap import ROOT, fail, to_the_end
from publish.parts import PARTS
from publish.release import ReleaseError, release


def main() -> None:
    parser = argparse.ArgumentParser(prog="release", description="Release a part of this checkout, in git only.")
    parser.add_argument("part", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("version", metavar="VERSION", help="such as 0.2.0")
    options = parser.parse_args()
    try:
        made = release(options.part, options.version, ROOT)
    except ReleaseError as error:
        fail(str(error))
    print(f"released {made.tag} at {made.commit[:12]}: {made.part.changelog}")
    print("next: git push --follow-tags, and push the image as docs/releases.md says")


if __name__ == "__main__":
    to_the_end(main)
