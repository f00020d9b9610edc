"""
Programs that share a region, and what happens to it.
"""

from drills.memory import MemoryContainer
from drills.promises import HOLDS, NOT_IN_REGION, drill, holds, leaves

SLOTS = "bs=64 seek=29 count=31360"
"""What `dd` needs to write all slots of a region, and nothing else."""
FIRST_PID = "bs=4 seek=464"
"""The same for the pid in the first slot."""


@drill("nested pid namespace", library=HOLDS, driver=HOLDS)
async def test_nested_pid_namespace(container: MemoryContainer) -> None:
    """Its processes lock their slots, so they count although their pids mean nothing outside."""
    nested = "unshare --user --map-root-user --pid --fork"
    assert container.promise == await container.outcome(f"hold {nested} $TAKE 600; $TAKE 600 400 & wait", results=3)


@drill("region edited", library=leaves(NOT_IN_REGION), driver=HOLDS)
async def test_region_edited(container: MemoryContainer) -> None:
    """A process that sets the use of all others to nothing can allocate once more."""
    edit = f"if [ -e $REGION ]; then dd if=/dev/zero of=$REGION {SLOTS} conv=notrunc status=none; fi"
    assert container.promise == await container.outcome(f"hold $TAKE 600; {edit}; exec $TAKE 600 400", results=3)


@drill("region emptied", library=leaves(NOT_IN_REGION), driver=HOLDS)
async def test_region_emptied(container: MemoryContainer) -> None:
    """What is cut off counts as nothing, so the next process can allocate once more."""
    assert container.promise == await container.outcome("hold $TAKE 600; true >$REGION; exec $TAKE 600 400", results=3)


@drill("region removed", library=HOLDS, driver=HOLDS)
async def test_region_removed(container: MemoryContainer) -> None:
    """It is a mount, which cannot be removed or replaced."""
    assert container.promise == await container.outcome(
        "hold $TAKE 600; rm -f $REGION; mv -f $FIRST $REGION; exec $TAKE 600 400", results=3
    )


@drill("slot with the pid of another user's process", library=holds(NOT_IN_REGION), driver=HOLDS)
async def test_slot_with_another_pid(container: MemoryContainer) -> None:
    """The owner still locks its slot, so it counts while the owner lives, whatever becomes of the other."""
    other = "setpriv --reuid=65534 --clear-groups sleep 1000 & other=$!"
    octal = r"printf $(printf '\\%03o\\%03o\\0\\0' $((other % 256)) $((other / 256)))"
    edit = f"if [ -e $REGION ]; then {octal} | dd of=$REGION {FIRST_PID} conv=notrunc status=none; fi"
    assert container.promise == await container.outcome(
        f"{other}; hold $TAKE 600; {edit}; kill $other; wait $other; exec $TAKE 600 400", results=3
    )
