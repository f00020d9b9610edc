// Shows who held and used how many device-hours, as `kubectl hami usage` does.

import { element } from "../dom.js";
import { format } from "../route.js";
import { isKnown, percent, share } from "../units.js";
import { showAnswer } from "./answer.js";
import { table } from "./table.js";

const TABLES = ["namespaces", "pods", "models"];
const SHOWN = 500;

/** Show the device-hours of *answer* in *parent*. */
export function showUsage(parent, seen, state, answer) {
    showAnswer(parent, "Usage", answer, ({ usage, spans }) => [
        { name: "choices", of: [state, spans], draw: () => choices(state, spans) },
        { name: "usage", of: [state.of, usage], draw: () => list(state.of, usage) },
    ]);
}

function choices(state, spans) {
    const since = state.options.since ?? "";
    const link = (text, options, of, isChosen) =>
        element(
            "a",
            {
                class: ["owner", isChosen && "is-chosen"],
                href: format({ view: "usage", of, options }),
                "aria-current": isChosen ? "true" : null,
                "data-focus": `choice ${text}`,
            },
            text,
        );
    return element(
        "div",
        { class: "owners" },
        TABLES.map((of) => link(of, { since }, of, of === state.of)),
        ["", ...spans].map((span) =>
            link(span ? `last ${span}` : "since counting began", { since: span }, state.of, span === since),
        ),
    );
}

function list(of, usage) {
    const rows = usage.slice(0, SHOWN);
    const more = usage.length - rows.length;
    return element(
        "section",
        { "aria-label": `usage of ${of}` },
        rows.length
            ? table(of === "models" ? OF_MODELS : of === "pods" ? OF_PODS : OF_NAMESPACES, rows)
            : element("p", { class: "nothing" }, "No device time was counted."),
        more > 0 ? element("p", { class: "more" }, `and ${more} more`) : null,
        element("p", { class: "facts" }, "In hours of one whole device. Held is what was granted, used is what kernels ran."),
    );
}

const hours = (name, field) => ({
    name,
    isNumber: true,
    cell: (row) => (isKnown(row[field]) ? `${row[field].toFixed(2)}\u00a0h` : "–"),
});
const part = (name, field, whole) => ({
    name,
    isNumber: true,
    cell: (row) => percent(isKnown(row[field]) && row[whole] ? share(row[field], row[whole]) : null),
});
const text = (name, field) => ({ name, cell: (row) => row[field] });

const USED = [hours("Held", "heldHours"), hours("Used", "usedHours"), part("Used part", "usedHours", "heldHours")];
const OF_NAMESPACES = [text("Namespace", "namespace"), text("Model", "model"), ...USED];
const OF_PODS = [text("Namespace", "namespace"), text("Pod", "pod"), text("Model", "model"), ...USED];
const OF_MODELS = [
    text("Model", "model"),
    hours("Offered", "offeredHours"),
    hours("Held", "heldHours"),
    hours("Idle", "idleHours"),
    part("Held part", "heldHours", "offeredHours"),
    hours("Used", "usedHours"),
];
