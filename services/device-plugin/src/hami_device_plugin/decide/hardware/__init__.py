"""
What the plugin concludes from the hardware that it found, or pretends to have found.

`links` rates how well two devices are connected, `platform` recognises machines whose devices cannot be shared, `mock`
reads devices that do not exist.
May import the other decisions and `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
