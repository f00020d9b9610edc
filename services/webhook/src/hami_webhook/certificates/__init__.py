"""
The certificate that the webhook makes if none is given.

`pki` reads, makes and verifies certificates, `renewal` decides what the Secret should hold, `certificate_loop` keeps
the Secret, the published bundle and the server in step.
May import `hamicommon`. Must never import another room.
"""
