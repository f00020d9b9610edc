// The columns that every table of shares has: granted, used, compute.

import { element } from "../dom.js";
import { gib, isKnown, memory, percent } from "../units.js";
import { badge, useBar } from "./bar.js";

/** Return the columns for rows that are shares. */
export function shareColumns(owners) {
    return [
        { name: "Granted GiB", isNumber: true, cell: (share) => gib(share.memoryMib) },
        { name: "Used GiB", isNumber: true, cell: (share) => gib(share.usedMemoryMib) },
        {
            name: "Used",
            cell: (share) => useBar({ ...share, grantedMib: share.memoryMib, usedMib: share.usedMemoryMib }, owners),
        },
        { name: "Compute", isNumber: true, cell: (share) => (share.corePercent ? percent(share.corePercent) : "any") },
        { name: "Busy", isNumber: true, cell: (share) => percent(share.usedCorePercent) },
        {
            name: "",
            cell: (share) => [
                share.isThrottled ? badge("warning", "throttled") : null,
                otherLimit(share),
                share.claim ? badge("plain", `ResourceClaim ${share.claim}`) : null,
            ],
        },
    ];
}

/** A container whose real limit is not its grant needs somebody's attention; `kubectl hami grants` says more. */
function otherLimit({ limitMemoryMib: limit, memoryMib: granted }) {
    if (!isKnown(limit) || limit === granted) return null;
    return badge("bad", limit === 0 ? "no limit" : `limit ${memory(limit)}`);
}
