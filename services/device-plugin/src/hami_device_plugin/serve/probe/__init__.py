"""
Find out what the Node is, before anything is served.

`driver` opens and closes the driver; while it is silent, `silent_driver` serves what the Node had. `devices` finds the
devices. `findings` finds out how the Node works, by `enforcement` and `driver_cdi`, which describes the driver for CDI
specs. `link_loop` rates the links between devices.
May import `mig` and `kubelet_loop`. Must never answer the kubelet for a device that is healthy, nor write a spec.
"""
