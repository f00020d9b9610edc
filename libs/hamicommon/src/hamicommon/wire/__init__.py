"""
Pure codecs of what the services write to each other: one module a format.

A decoder takes any text or bytes and returns a value or raises `DecodeError`; it tells historic forms apart by
content. An encoder writes the newest form, or the one a `WireVersion` names. Nothing here logs, reads clocks or
touches files.
"""
