// Shows one node: its use over time, and each of its devices with a table of its shares and its own curves.

import { element, fill, sections } from "../dom.js";
import { podKey } from "../picture.js";
import { podLink } from "../route.js";
import { count, isKnown, memory, memoryOf, percent } from "../units.js";
import { badges, deviceElement } from "./bar.js";
import { curves, origin } from "./chart.js";
import { shareColumns } from "./shares.js";
import { table } from "./table.js";

/** Show the node that *state* names, in *parent*, with the curves in *answer*. */
export function showNode(parent, seen, state, answer) {
    const node = seen.nodes.find((one) => one.name === state.node);
    const marked = state.options.device;
    const devices = node?.devices ?? [];
    sections(parent, [
        {
            name: "title",
            of: [state.node, { ...node, devices: devices.length }, node && free(node)],
            draw: () => title(state.node, node),
        },
        node ? { name: "history", of: use(node, answer)[0], draw: () => history(node, answer) } : null,
        ...devices.map((device) => ({
            name: `device ${device.id}`,
            of: [device, device.id === marked, seen.owners.all],
            draw: () => section(device, node, seen.owners, device.id === marked),
        })),
    ]);
    for (const device of devices) drawCurves(parent, device, answer?.devices?.[device.id]);
}

/** Return how the node's use is known, in words, and its curves if there are any. */
function use(node, answer) {
    if (!answer) return ["", null];
    if (answer.problem) return [answer.problem, null];
    const known = answer.history.times.length > 0;
    return known ? [`Use over time: ${origin(answer.history)}.`, answer.history] : ["No use was measured yet.", null];
}

function history(node, answer) {
    const [words, found] = use(node, answer);
    const sum = (read) => node.devices.reduce((all, device) => all + read(device), 0);
    const granted = {
        mib: sum((device) => device.grantedMemoryMib),
        percent: sum((device) => device.grantedCorePercent) / Math.max(1, node.devices.length),
    };
    const offered = { mib: sum((device) => device.memoryMib), percent: 100 };
    return element(
        "section",
        { "aria-label": "use of the node over time" },
        found ? element("div", { class: "charts" }, curves(found, granted, offered)) : null,
        element("p", { class: answer?.problem ? "problem" : "facts" }, words),
    );
}

/** Draw a device's curves again where they have grown, and leave the rest of its section alone. */
function drawCurves(parent, device, found) {
    const place = parent.querySelector(`[data-curves="${CSS.escape(device.id)}"]`);
    const granted = { mib: device.grantedMemoryMib, percent: device.grantedCorePercent };
    const key = JSON.stringify([found?.times.length, found?.times.at(-1), granted]);
    if (!place || place.dataset.shown === key) return;
    place.dataset.shown = key;
    const offered = { mib: device.memoryMib, percent: 100 };
    fill(place, found?.times.length ? curves(found, granted, offered) : null);
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
        element("div", { class: "charts", "data-curves": device.id }),
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
