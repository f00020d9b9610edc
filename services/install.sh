#!/bin/sh
# Install packages of this repository, and what their lock names, into /opt/hami: the build stage of every image.
#
#   install.sh LOCK PACKAGE...
#
# The same input gives the same bytes: nothing that is installed holds a time or the path of a build.
set -eu
lock=$1
shift

python -m venv /build
/build/bin/pip install --quiet --no-compile --require-hashes --requirement requirements/setuptools.lock
/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels "$@"

python -m venv --without-pip /opt/hami
install() { /build/bin/pip --python /opt/hami/bin/python install --quiet --no-compile "$@"; }
install --require-hashes --only-binary :all: --requirement "$lock"
install --no-deps --no-index /wheels/*.whl

# What only a compiler, a type checker or a developer reads.
site=$(/opt/hami/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf /opt/hami/include /opt/hami/bin/[Aa]ctivate*
find "$site" -depth -type d \( -name include -o -name test -o -name tests \) -exec rm -r {} +
find "$site" -type f \( -name '*.[ah]' -o -name '*.px[di]' -o -name '*.pyi' -o -name '*.pyx' -o -name direct_url.json \) -delete

# An image's root is read-only, so byte code is made here, and Python need never compare it with its source. Not for the
# Kubernetes client's 2600 generated modules: no service loads one, and their byte code would weigh 60 MB.
/opt/hami/bin/python -m compileall -q -f --invalidation-mode unchecked-hash \
    -x '/kubernetes/.*client/(api|models)/[^_]' "$site"
