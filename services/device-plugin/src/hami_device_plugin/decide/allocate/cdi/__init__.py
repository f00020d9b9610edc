"""
CDI specs: what a container gets from the Node's driver and from this plugin.

`edits` joins changes of a container, `driver` reads the generator's description of the driver, `spec` writes our specs.
May import `allocation`. Must never read a file or run a program.
"""
