// Shows one node: each of its devices with a table of its shares.

import { element, sections } from "../dom.js";
import { podKey } from "../picture.js";
import { podLink } from "../route.js";
import { count, isKnown, memory, memoryOf, percent } from "../units.js";
import { badges, deviceElement } from "./bar.js";
import { shareColumns } from "./shares.js";
import { table } from "./table.js";

/** Show the node that *state* names, in *parent*. */
export function showNode(parent, seen, state) {
    const node = seen.nodes.find((one) => one.name === state.node);
    const marked = state.options.device;
    const devices = node?.devices ?? [];
    sections(parent, [
        {
            name: "title",
            of: [state.node, { ...node, devices: devices.length }, node && free(node)],
            draw: () => title(state.node, node),
        },
        ...devices.map((device) => ({
            name: `device ${device.id}`,
            of: [device, device.id === marked, seen.owners.all],
            draw: () => section(device, node, seen.owners, device.id === marked),
        })),
    ]);
}

function title(name, node) {
    const facts = node
        ? `${count(node.devices.length, "device")}, ${free(node)} free`
        : "No such node offers a device now.";
    return element(
        "div",
        {},
        element("h1", {}, name, node ? badges(node) : null),
        element("p", { class: "facts" }, facts),
    );
}

/** Bring the device that *state* marks into sight. Done once, when the page is opened. */
export function revealDevice(parent) {
    parent.querySelector(".is-marked")?.scrollIntoView({ block: "nearest" });
}

function section(device, node, owners, isMarked) {
    return element(
        "section",
        { class: ["device-details", isMarked && "is-marked"], "aria-label": `device ${device.index}` },
        deviceElement(device, node, owners),
        element("p", { class: "facts" }, facts(device)),
        device.shares.length ? table(columns(owners), device.shares) : null,
    );
}

function columns(owners) {
    const owner = [
        { name: "Namespace", cell: (share) => share.namespace },
        {
            name: "Pod",
            cell: (share) =>
                element("a", { href: podLink(share), "data-focus": `${podKey(share)}/${share.container}` }, share.pod),
        },
        { name: "Container", cell: (share) => share.container },
    ];
    return [...owner, ...shareColumns(owners)];
}

function facts(device) {
    const known = [
        device.id,
        device.mode && `mode ${device.mode}`,
        `${memoryOf(device.grantedMemoryMib, device.memoryMib)} granted`,
        isKnown(device.usedMemoryMib) ? `${memory(device.usedMemoryMib)} used` : null,
        `${percent(device.grantedCorePercent)} of the compute granted`,
        isKnown(device.usedCorePercent) ? `${percent(device.usedCorePercent)} busy` : null,
        device.replicas ? `${device.shares.length} of ${count(device.replicas, "share")} taken` : null,
    ];
    return known.filter(Boolean).join(" · ");
}

function free(node) {
    return memory(
        node.devices.reduce((all, device) => all + Math.max(0, device.memoryMib - device.grantedMemoryMib), 0),
    );
}
