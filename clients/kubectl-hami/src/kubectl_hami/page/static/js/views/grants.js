// Shows what was promised to each container and what it really has, as `kubectl hami grants` does. Broken promises first.

import { element } from "../dom.js";
import { podKey } from "../picture.js";
import { deviceLink, podLink } from "../route.js";
import { matchesPod, unknownWord, words } from "../search.js";
import { count, gib, percent } from "../units.js";
import { showAnswer } from "./answer.js";
import { badge } from "./bar.js";
import { table } from "./table.js";

/** The verdicts, the worst first: how each looks. */
const TONES = { broken: "bad", unknown: "plain", kept: "good" };
const ORDER = Object.keys(TONES);
const SHOWN = 500;

/** Show the comparisons of *answer* that the search finds, in *parent*. */
export function showGrants(parent, seen, state, answer) {
    const wanted = words(state.options.q ?? "");
    showAnswer(parent, "Grants", answer, ({ grants }) => {
        const found = grants.filter(({ share }) => isWanted(seen, share, wanted));
        found.sort((one, other) => ORDER.indexOf(one.verdict) - ORDER.indexOf(other.verdict));
        return [{ name: "grants", of: [state.options, found], draw: () => list(found, state.options.q ?? "") }];
    });
}

function isWanted(seen, share, wanted) {
    const pod = seen.pods.get(podKey(share));
    return wanted.length === 0 || (pod !== undefined && matchesPod(pod, wanted));
}

function list(found, search) {
    const sums = ORDER.map((verdict) => [verdict, found.filter((one) => one.verdict === verdict).length]);
    const sentence = sums
        .filter(([, number]) => number)
        .map(([verdict, number]) => `${number} ${verdict}`)
        .join(", ");
    const none = search
        ? unknownWord(words(search), { arePods: true }) || `No share matches “${search}”.`
        : "No Pod holds a device.";
    const more = found.length - SHOWN;
    return element(
        "section",
        { "aria-label": "grants" },
        element("p", { class: "facts" }, found.length ? `${count(found.length, "share")}: ${sentence}` : none),
        found.length ? table(COLUMNS, found.slice(0, SHOWN)) : null,
        more > 0 ? element("p", { class: "more" }, `and ${count(more, "share")} more; search to see them`) : null,
    );
}

const amount = (name, read) => ({ name: `${name} GiB`, isNumber: true, cell: (one) => gib(read(one)) });

const COLUMNS = [
    { name: "Verdict", cell: ({ verdict }) => badge(TONES[verdict] ?? "plain", verdict) },
    { name: "Namespace", cell: ({ share }) => share.namespace },
    {
        name: "Pod",
        cell: ({ share, device }) =>
            element(
                "a",
                { href: podLink(share), "data-focus": `${podKey(share)}/${share.container}/${device}` },
                share.pod,
            ),
    },
    { name: "Container", cell: ({ share }) => share.container },
    {
        name: "Device",
        cell: ({ node, device, index, share }) =>
            element(
                "a",
                { href: deviceLink(node, device), "data-focus": `device ${device} ${podKey(share)}/${share.container}` },
                `${node}\u00a0${index >= 0 ? index : ""}`,
            ),
    },
    amount("Granted", ({ share }) => share.memoryMib),
    {
        name: "Limit GiB",
        isNumber: true,
        cell: ({ share }) => (share.limitMemoryMib === 0 ? "none" : gib(share.limitMemoryMib)),
    },
    amount("Used", ({ share }) => share.usedMemoryMib),
    amount("Driver", ({ share }) => share.driverMemoryMib),
    { name: "Compute", isNumber: true, cell: ({ share }) => (share.corePercent ? percent(share.corePercent) : "any") },
    { name: "Why", isLong: true, cell: ({ why }) => why },
];
