// Shows all Pods in a table that can be sorted and searched.

import { element, sections } from "../dom.js";
import { deviceLink, format, podLink } from "../route.js";
import { matchesPod, unknownWord, words } from "../search.js";
import { count, gib, percent, share } from "../units.js";
import { badge, useBar } from "./bar.js";
import { table } from "./table.js";

const SHOWN = 500;
const NAMES = new Intl.Collator("en", { numeric: true });
const READ = {
    namespace: (pod) => pod.namespace,
    pod: (pod) => pod.pod,
    owner: (pod) => pod.owner,
    phase: (pod) => phase(pod),
    age: (pod) => -(Date.parse(pod.since) || Infinity),
    node: (pod) => pod.node ?? "",
    devices: (pod) => pod.devices.length,
    granted: (pod) => pod.grantedMib,
    used: (pod) => pod.usedMib ?? -1,
    part: (pod) => share(pod.usedMib ?? 0, pod.grantedMib),
    cores: (pod) => pod.corePercent,
    busy: (pod) => pod.busyPercent ?? -1,
};

/** Show the Pods of *seen* that the search finds, in *parent*. */
export function showPods(parent, seen, state) {
    const { options } = state;
    const wanted = words(options.q ?? "");
    const pods = [...seen.pods.values()].filter((pod) => matchesPod(pod, wanted));
    const order = orderOf(options.sort);
    pods.sort((one, other) => compare(one, other, order));
    const rows = pods.slice(0, SHOWN);
    sections(parent, [
        {
            name: "pods",
            of: [state, seen.owners.all, rows],
            draw: () => list(pods, rows, seen.owners, state, order),
        },
    ]);
}

function list(pods, rows, owners, state, order) {
    const { q } = state.options;
    const more = pods.length - rows.length;
    const none = q
        ? unknownWord(words(q), { arePods: true }) || `No Pod matches “${q}”.`
        : [
              "No Pod holds or waits for a device. One asks by a limit such as ",
              element("code", {}, "nvidia.com/gpu: 1"),
              "; ",
              element("a", { href: "#/simulate" }, "Simulate"),
              " says what it would get.",
          ];
    return element(
        "section",
        {},
        element("h1", {}, count(pods.length, "Pod")),
        rows.length ? table(columns(owners, state, order), rows, { order, below: (pod) => pod.cause }) : element("p", { class: "nothing" }, none),
        more > 0 ? element("p", { class: "more" }, `and ${count(more, "Pod")} more; search to see them`) : null,
    );
}

function columns(owners, state, order) {
    const column = (key, name, cell, isNumber = false) => ({
        key,
        name,
        cell,
        isNumber,
        sort: sortLink(state, key, order),
    });
    return [
        column("namespace", "Namespace", (pod) => pod.namespace),
        column("pod", "Pod", (pod) =>
            element("a", { href: podLink(pod), "data-focus": `${pod.namespace}/${pod.pod}` }, pod.pod),
        ),
        column("owner", "Owner", (pod) => pod.owner),
        column("phase", "Phase", (pod) => badge(pod.cause || pod.isWaiting ? "warning" : "plain", phase(pod))),
        column("age", "Age", (pod) => pod.age, true),
        column("node", "Node", (pod) => (pod.isWaiting ? "" : element("a", { href: deviceLink(pod.node) }, pod.node))),
        column("devices", "Devices", (pod) => (pod.isWaiting ? "" : pod.devices.length), true),
        column("granted", "Granted GiB", (pod) => (pod.isWaiting ? "" : gib(pod.grantedMib)), true),
        column("used", "Used GiB", (pod) => (pod.isWaiting ? "" : gib(pod.usedMib)), true),
        column("part", "Used", (pod) => (pod.isWaiting ? "" : useBar(pod, owners))),
        column(
            "cores",
            "Compute",
            (pod) => (pod.corePercent ? percent(pod.corePercent) : pod.isWaiting ? "" : "any"),
            true,
        ),
        column("busy", "Busy", (pod) => (pod.isWaiting ? "" : percent(pod.busyPercent)), true),
    ];
}

/** Return the phase of a Pod in a word; one without a Node waits. */
export function phase(pod) {
    return pod.isWaiting ? "waits" : pod.phase;
}

function orderOf(sort = "") {
    const falls = sort.startsWith("-");
    const name = falls ? sort.slice(1) : sort;
    return READ[name] ? { name, falls } : { name: "namespace", falls: false };
}

function compare(one, other, { name, falls }) {
    const [left, right] = [READ[name](one), READ[name](other)];
    const order = typeof left === "string" ? NAMES.compare(left, right) : left - right;
    return (falls ? -order : order) || NAMES.compare(`${one.namespace}/${one.pod}`, `${other.namespace}/${other.pod}`);
}

function sortLink(state, key, order) {
    const falls = order.name === key ? !order.falls : !["namespace", "pod", "owner", "phase", "node"].includes(key);
    return format({ ...state, options: { ...state.options, sort: falls ? `-${key}` : key } });
}
