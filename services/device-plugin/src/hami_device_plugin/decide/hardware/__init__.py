"""
What the plugin concludes from the hardware that it found.

`links` rates how well two devices are connected, `platform` recognises machines whose devices cannot be shared.
May import the other decisions and `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
