"""
Follow what happens to the devices and the driver of the Node.

`driver` opens and closes the driver, `card_loop` reads how each device is, `link_loop` rates the links between them.
`driver_part` describes the driver for CDI specs, `enforcement` finds out who limits memory.
May import `mig`. Must never answer the kubelet, nor write a spec.
"""
