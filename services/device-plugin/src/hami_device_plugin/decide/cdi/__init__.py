"""
CDI specs: what a container gets from the node's driver and from this plugin.

`edits` joins changes of a container, `driver` reads the generator's description of the driver, `spec` writes our specs,
`strategy` decides which way a Node goes. May import the other decisions; must never read a file or run a program.
"""
