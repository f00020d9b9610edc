#!/bin/sh
# Make a Python base fit for a read-only root, the last stage of every image: without its installer and its headers, and
# with a standard library that is compiled. The same base gives the same bytes. An image says which version and commit it
# is, so a build without these arguments stops.
set -eu
: "${VERSION:?is empty: give --build-arg VERSION, REVISION and CREATED as docs/images.md does}"
: "${REVISION:?is empty: give --build-arg VERSION, REVISION and CREATED as docs/images.md does}"
: "${CREATED:?is empty: give --build-arg VERSION, REVISION and CREATED as docs/images.md does}"
library=$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
rm -rf "$library/ensurepip" "$library/site-packages" /usr/local/bin/pip* /usr/local/include
find "$library" -name __pycache__ -exec rm -r {} +
python -m compileall -q -f --invalidation-mode unchecked-hash "$library"
