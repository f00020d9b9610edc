// Shows all devices, one box a node. Large bars have all that is known; small ones let hundreds of devices stand on a screen.

import { element, fill, reconcile } from "../dom.js";
import { totals } from "../picture.js";
import { deviceLink } from "../route.js";
import { matchesDevice, unknownWord, words } from "../search.js";
import { count, memory, memoryOf, percent, share } from "../units.js";
import { badge, badges, deviceElement } from "./bar.js";

/** So many bars are as wide as the page, below each other. */
const FEW = 8;
/** The most devices that are shown in a size in a window of USUAL_PX, unless a person chooses it; wider ones show more. */
const AT_MOST = { large: 32, medium: 160 };
const USUAL_PX = 1440;
const OWNERS_SHOWN = 12;
const ORDERS = {
    "": (node) => -(2 * Math.min(1, node.sums.unhealthy) + (node.isReady ? 0 : 1)),
    name: () => 0,
    free: (node) => -(node.sums.memoryMib - node.sums.grantedMib),
    granted: (node) => -share(node.sums.grantedMib, node.sums.memoryMib),
    idle: (node) => -(node.sums.grantedMib - node.sums.usedMib),
};
/** The orders of nodes: what the address has, and what a person reads. */
export const ORDER_NAMES = { "": "unhealthy first", name: "by name", free: "most free", granted: "fullest", idle: "most granted, not used" };

/** Show the nodes of *seen* that the search finds, in *parent*. */
export function showDevices(parent, seen, { options }) {
    const wanted = words(options.q ?? "");
    const nodes = found(seen.nodes, wanted, options.sort ?? "");
    const devices = nodes.reduce((all, node) => all + node.devices.length, 0);
    const wider = Math.max(1, innerWidth / USUAL_PX);
    const size = options.size || Object.keys(AT_MOST).find((name) => devices <= AT_MOST[name] * wider) || "small";
    if (!parent.querySelector(".nodes"))
        fill(
            parent,
            element("div", { class: "owners" }),
            element("div", { class: "nodes" }),
            element("div", { class: "nothing" }),
        );
    const grid = parent.querySelector(".nodes");
    grid.dataset.size = size;
    grid.toggleAttribute("data-few", devices <= FEW);
    grid.toggleAttribute("data-alone", devices > FEW && nodes.length === 1);
    showOwners(parent.querySelector(".owners"), seen, options);
    showNothing(parent.querySelector(".nothing"), devices ? "" : nothing(seen, options, wanted));
    const context = JSON.stringify([wanted, seen.owners.all.map((owner) => owner.name)]);
    reconcile(grid, nodes, {
        key: (node) => node.name,
        state: (node) => context + JSON.stringify(node),
        draw: (node) => nodeElement(node, seen.owners, wanted),
    });
    rove(grid);
}

function found(nodes, wanted, order) {
    const kept = nodes
        .map((node) => ({
            ...node,
            sums: totals([node]),
            devices: node.devices.filter((device) => matchesDevice(device, node, wanted)),
        }))
        .filter((node) => node.devices.length);
    const rank = ORDERS[order] ?? ORDERS[""];
    return kept.sort((one, other) => rank(one) - rank(other));
}

function nodeElement(node, owners, wanted) {
    const { grantedMib, memoryMib, unhealthy } = node.sums;
    return element(
        "section",
        { class: ["node", !node.isReady && "is-unready"], "aria-label": `node ${node.name}` },
        element(
            "header",
            {},
            element("h2", {}, element("a", { href: deviceLink(node.name), tabindex: -1 }, node.name)),
            unhealthy ? badge("bad", `${unhealthy} unhealthy`) : null,
            badges(node),
            element(
                "span",
                { class: "node-amount", title: `${memoryOf(grantedMib, memoryMib)} granted` },
                percent(share(grantedMib, memoryMib)),
            ),
        ),
        node.devices.map((device) => deviceElement(device, node, owners, wanted)),
    );
}

/** Keep one device of the grid in the order of the Tab key; arrows move from it. */
function rove(grid) {
    const links = [...grid.querySelectorAll(".device-name")];
    const current =
        links.find((link) => link === document.activeElement) ??
        links.find((link) => link.tabIndex === 0 && link.hasAttribute("tabindex"));
    links.forEach((link) => link.setAttribute("tabindex", link === (current ?? links[0]) ? 0 : -1));
}

function showOwners(parent, seen, options) {
    const { all, kind, field } = seen.owners;
    const largest = [...all].sort((one, other) => other.grantedMib - one.grantedMib).slice(0, OWNERS_SHOWN);
    const items = largest.map((owner) => {
        const search = `${field}:${owner.name}`;
        const isChosen = options.q === search;
        const link = new URLSearchParams({ ...options, q: isChosen ? "" : search });
        return element(
            "a",
            {
                class: ["owner", isChosen && "is-chosen"],
                href: `#/devices?${link}`,
                vars: { "--owner": `var(--owner-${owner.colour})` },
                title: `${count(owner.pods, "Pod")}, ${memory(owner.usedMib)} used of ${memory(owner.grantedMib)} granted`,
            },
            element("span", { class: "swatch" }),
            element("span", { class: "owner-name" }, owner.name),
            element("span", { class: "owner-amount" }, memory(owner.grantedMib)),
        );
    });
    const more = all.length - largest.length;
    const rest = more > 0 ? element("a", { class: "owner", href: "#/pods" }, `and ${count(more, kind)} more`) : null;
    const key = JSON.stringify([all, options.q, options.size, options.sort]);
    if (parent.dataset.shown === key) return;
    parent.dataset.shown = key;
    fill(parent, items, rest);
}

/** Say why there is no device; where the cluster has none at all, also what to do next. */
function showNothing(parent, sentence) {
    if (parent.dataset.shown === sentence) return;
    parent.dataset.shown = sentence;
    fill(parent, sentence, sentence === NO_NODES ? firstSteps() : null);
}

const NO_NODES = "No node of this cluster offers a device. What to do next:";

function firstSteps() {
    const label = element("code", {}, "kubectl label node NODE gpu=on");
    const doctor = element("a", { href: "#/doctor" }, "Doctor");
    const command = element("code", {}, "kubectl hami doctor");
    const selector = element("code", {}, "devicePlugin.nodeSelector");
    return element(
        "ol",
        {},
        element("li", {}, "Label a node that has devices: ", label, ". The device plugin starts there, unless ", selector, " of the chart names another label."),
        element("li", {}, "If no device appears here, ", doctor, " (or ", command, ") says which part is missing, and its fix."),
    );
}

function nothing(seen, options, wanted) {
    if (seen.nodes.length === 0) return NO_NODES;
    return unknownWord(wanted, { arePods: false }) || `No device matches “${options.q}”.`;
}
