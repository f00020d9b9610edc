"""
How Go's standard library reads and writes text: JSON, numbers, times and separated strings.

HAMi is written in Go, so what Go accepts and refuses is part of every format. A module here may import `errors` and
`limits`, and must never know a format.
"""
