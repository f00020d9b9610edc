"""
The formats that the services write to each other: one module for each, with `decode_x` and `encode_x`. `quantity` and
`resource_quota` are Kubernetes' own.

A decoder takes any text or bytes, and returns a value or raises `DecodeError`. It recognises the forms of older
versions by their content. An encoder writes the newest form, or that of a `WireVersion`. A module here may import
`model`, `go` and `limits`. It must never import a vendor or a configuration, log, read a clock or open a file.
"""
