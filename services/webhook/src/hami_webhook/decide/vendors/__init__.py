"""
The rules of every vendor: one module a vendor that has a way of its own, one line for whoever counts devices only.
"""

from hami_webhook.decide.amounts import bounds_of
from hami_webhook.decide.rules import Rules
from hami_webhook.decide.vendors import amd, ascend, awsneuron, enflame, iluvatar, kunlun, metax, mthreads, nvidia
from hamicommon import vendors as common
from hamicommon.config import DeviceConfig
from hamicommon.vendors import Vendor

__all__ = ["all_rules"]


def all_rules(config: DeviceConfig) -> tuple[Rules, ...]:
    """Return the rules of every vendor of the device config, one entry a chip where a vendor has several."""
    return (
        nvidia.rules(config.nvidia),
        *(ascend.rules(chip) for chip in config.ascend.chips),
        _counted(common.cambricon.vendor(config.cambricon)),
        _counted(common.hygon.vendor(config.hygon)),
        *(iluvatar.rules(chip) for chip in config.iluvatars),
        mthreads.rules(config.mthreads),
        _counted(common.metax.gpu_vendor(config.metax)),
        metax.sgpu_rules(config.metax),
        _counted(common.enflame.gcu_vendor(config.enflame)),
        enflame.drs_rules(config.enflame),
        kunlun.rules(config.kunlun),
        kunlun.xpu_rules(config.kunlun),
        awsneuron.rules(config.awsneuron),
        amd.rules(config.amd),
        _counted(common.vastai.vendor(config.vastai)),
        _counted(common.biren.vendor(config.biren)),
    )


def _counted(vendor: Vendor) -> Rules:
    """Return the rules of a vendor who takes a container as it is."""
    return Rules(vendor, vendor.resource_names[:1], bounds_of(vendor))
