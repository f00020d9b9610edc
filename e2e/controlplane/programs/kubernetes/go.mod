// Only names the module: what it requires depends on the minor, `go build -modfile=versions/1.34.mod`.
// Those files are written by `python -m controlplane.programs.modules`.
module hami.io/e2e/kubernetes

go 1.24.0
