#!/bin/sh
# Build the programs that go.mod names, for a processor, against glibc 2.17: build.sh ARCH FOLDER SHARE
#
# SHARE gets go-modules.txt, a line for each module in the programs, and its licences in licences/MODULE.
#
# Runs in the image's build stage, with Go and Zig in /build. Zig's linker does not know the option by which NVIDIA's Go
# packages leave the functions of NVML open. A header that makes them weak has the same effect, if symbols are bound when
# they are first called.
set -eu
arch=$1 output=$2 share=$3
mkdir -p "$share"
cd "$(dirname "$0")"
case $arch in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; *) echo "no toolkit for '$arch'" >&2; exit 1 ;; esac
export PATH=/build/bin:$PATH CGO_ENABLED=1 GOOS=linux GOARCH="$arch" GOTOOLCHAIN=local GOENV=/run/secrets/go.env
export SSL_CERT_FILE=/run/secrets/ca-certificates.crt
[ -s "$SSL_CERT_FILE" ] || SSL_CERT_FILE=$(python -c "from pip._vendor import certifi; print(certifi.where())")

module=github.com/NVIDIA/nvidia-container-toolkit
go mod download
version=$(go list -m -f '{{.Version}}' $module)
sources=$(go list -m -f '{{.Dir}}' $module github.com/NVIDIA/go-nvml)
find $sources -name '*.h' -exec cat {} + | grep -Eo '\<(nvml|nvSandboxUtils|cu)[A-Z][A-Za-z0-9_]* *\(' | tr -d ' (' | sort -u |
    sed 's/^/#pragma weak /' > /tmp/weak.h

cat > /tmp/zig-cc <<END
#!/bin/sh
for argument; do
    shift
    case \$argument in -Wl,--unresolved-symbols=*) continue ;; esac
    set -- "\$@" "\$argument"
done
exec python -m ziglang cc -target $machine-linux-gnu.2.17 "\$@"
END
chmod +x /tmp/zig-cc

CC=/tmp/zig-cc CGO_CFLAGS="-O2 -w -include /tmp/weak.h" go build -buildmode=pie -trimpath -buildvcs=false \
    -ldflags="-s -w -extldflags=-Wl,-z,lazy -X $module/internal/info.version=${version#v}" -o "$output/" tool

go list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' tool | sort -u |
    while read -r path version folder; do
        echo "$path $version" >> "$share/go-modules.txt"
        find "$folder" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'notice*' -o -iname 'copying*' \) \
            -exec install -D -m 644 -t "$share/licences/$path" {} +
    done
# The package of Go has no copy of Go's licence. Modules of the same authors have the same.
echo "stdlib $(go env GOVERSION | sed s/^go//)" >> "$share/go-modules.txt"
install -D -m 644 -t "$share/licences/stdlib" "$share/licences/golang.org/x/sys/LICENSE"
