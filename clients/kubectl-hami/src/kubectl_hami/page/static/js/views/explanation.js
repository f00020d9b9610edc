// Draws the scheduler's report about a Pod: the verdict, what would have to change, and why each node rejects it.

import { element } from "../dom.js";
import { count } from "../units.js";

const OPEN_AT_MOST = 8;
const NODES_SHOWN = 200;

/** Return a report as an element. */
export function explanation(report) {
    return element(
        "section",
        { "aria-label": "explanation", class: "explanation" },
        element("h2", {}, "Explanation"),
        element("p", { class: "verdict" }, report.summary),
        report.changes.length ? changes(report.changes) : null,
        reasons(report.nodes.filter((node) => !node.fits)),
        [...others(report), ...report.notes].map((note) => element("p", { class: "note" }, note)),
    );
}

/** Return the words on its gang, of a queue and of kube-scheduler, and what only that judges. */
function others({ gang, queue, kubeScheduler: words, notJudged = [] }) {
    return [
        ...(gang ? [gang] : []),
        ...(queue ? [queue] : []),
        ...(words ? [`kube-scheduler says: ${words}`] : []),
        ...(notJudged.length ? [`not judged here, and the Pod uses it: ${notJudged.join(", ")}`] : []),
    ];
}

function changes(found) {
    const items = found.map(({ what, node }) =>
        element("li", {}, what, node ? element("small", {}, `, on ${node}`) : null),
    );
    return element("div", { class: "changes" }, element("h3", {}, "It would fit"), element("ul", {}, items));
}

function reasons(nodes) {
    if (!nodes.length) return null;
    const items = nodes
        .slice(0, NODES_SHOWN)
        .map((node) => element("li", {}, element("strong", {}, node.name), ` ${node.why}`));
    const more = nodes.length - items.length;
    return element(
        "details",
        { open: nodes.length <= OPEN_AT_MOST },
        element("summary", {}, `Why ${count(nodes.length, "node")} ${nodes.length === 1 ? "rejects" : "reject"} it`),
        element(
            "ul",
            { class: "reasons" },
            items,
            more > 0 ? element("li", {}, `and ${count(more, "node")} more`) : null,
        ),
    );
}
