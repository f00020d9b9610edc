// Shows the sums of the whole cluster in one line.

import { element, fill } from "../dom.js";
import { count, memory, percent, share } from "../units.js";

/** Show the figures of *seen* in *parent*. */
export function showSummary(parent, seen) {
    const { total } = seen;
    const figures = [
        total.unhealthy
            ? figure(`▲ ${count(total.unhealthy, "device")}`, "unhealthy", "#/devices?q=is%3Aunhealthy", "is-bad")
            : null,
        figure(count(total.devices, "device"), `on ${count(total.nodes, "node")}`, "#/devices"),
        ...(total.devices ? sums(total) : []),
        seen.waiting.length
            ? figure(
                  seen.waiting.length,
                  seen.waiting.length === 1 ? "Pod waits" : "Pods wait",
                  "#/pods?q=is%3Awaiting",
                  "is-warning",
              )
            : null,
    ].filter(Boolean);
    const key = figures.map((one) => one.textContent).join();
    if (parent.dataset.shown === key) return;
    parent.dataset.shown = key;
    fill(parent, figures);
}

function sums(total) {
    return [
        figure(
            percent(share(total.grantedMib, total.memoryMib)),
            `of ${memory(total.memoryMib)} memory granted`,
            "#/devices?sort=granted",
        ),
        figure(percent(share(total.usedMib, total.grantedMib)), "of that used", "#/pods?sort=-used"),
        figure(percent(share(total.grantedCorePercent, total.corePercent)), "of the compute granted", "#/pods?sort=-cores"),
        figure(percent(total.busyPercent), "of the compute busy", "#/pods?sort=-busy"),
        figure(total.free, total.free === 1 ? "device free" : "devices free", "#/devices?q=is%3Afree"),
    ];
}

function figure(value, name, href, tone = "") {
    return element("a", { class: ["figure", tone], href }, element("strong", {}, value), ` ${name}`);
}
