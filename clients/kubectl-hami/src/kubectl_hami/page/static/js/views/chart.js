// Draws use over time against the grant, as SVG. Knows nothing of Pods and devices.

import { element } from "../dom.js";
import { clock, memory, percent } from "../units.js";

const WIDTH = 540;
const HEIGHT = 180;
const LEFT = 72;
const RIGHT = WIDTH - 8;
const BOTTOM = 24;
const TOP = 24;
const LEVELS = 4;

/**
 * Return the curves of memory and compute.
 *
 * history   as the server has it
 * granted   the lines to compare with; 0 is none
 * offered   the least height of the charts
 */
export function curves({ times, usedMib, usedPercent }, granted, offered = { mib: 0, percent: 0 }) {
    return [
        chart({ times, values: usedMib, limit: granted.mib, top: offered.mib, name: "memory", write: memory }),
        chart({ times, values: usedPercent, limit: granted.percent, top: offered.percent, name: "compute", write: percent }),
    ];
}

/** Return where curves come from, and from when to when. */
export function origin({ times, source }) {
    return `${source}, from ${clock(times[0] * 1000)} to ${clock(times.at(-1) * 1000)}`;
}

/**
 * Return a chart.
 *
 * times    in seconds since 1970
 * values   one for each time, null where unknown
 * limit    what was granted; 0 is no limit
 * top      what is there to use; the chart is at least as high
 * name     of what is used
 * write    returns a value as a person reads it
 */
function chart({ times, values, limit, top, name, write }) {
    const known = values.filter((value) => value !== null);
    const highest = 1.08 * Math.max(limit, top, ...known, 1);
    const [from, to] = [times[0], Math.max(times.at(-1), times[0] + 1)];
    const x = (time) => LEFT + ((RIGHT - LEFT) * (time - from)) / (to - from);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / highest);
    return element(
        "svg",
        {
            class: "chart",
            viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
            role: "img",
            "aria-label": inWords(name, known, limit, write),
        },
        element("text", { class: "tick", x: 8, y: 15 }, name),
        levels(highest).map((value) => level(value, y(value), write)),
        [from, (from + to) / 2, to].map((time, place) => moment(time, x(time), ["start", "middle", "end"][place])),
        limit > 0 ? grant(y(limit)) : null,
        element("path", { class: "use", d: line(times, values, x, y) }),
        dots(times, values, x, y),
    );
}

function inWords(name, known, limit, write) {
    const last = known.length ? write(known.at(-1)) : "unknown";
    return `${name}, ${last} at the end, ${limit > 0 ? `${write(limit)} granted` : "no limit"}`;
}

function level(value, height, write) {
    return [
        element("line", { class: "rule", x1: LEFT, x2: RIGHT, y1: height, y2: height }),
        element("text", { class: "tick", x: LEFT - 8, y: height + 4, "text-anchor": "end" }, write(value)),
    ];
}

function moment(time, place, anchor) {
    return element("text", { class: "tick", x: place, y: HEIGHT - 6, "text-anchor": anchor }, clock(time * 1000));
}

function grant(height) {
    return [
        element("line", { class: "grant", x1: LEFT, x2: RIGHT, y1: height, y2: height }),
        element("text", { class: "tick", x: RIGHT, y: height - 4, "text-anchor": "end" }, "granted"),
    ];
}

function line(times, values, x, y) {
    return values
        .map((value, place) => {
            if (value === null) return "";
            const isDown = place > 0 && values[place - 1] !== null;
            return `${isDown ? "L" : "M"}${x(times[place]).toFixed(1)} ${y(value).toFixed(1)}`;
        })
        .join("");
}

/** A value without a neighbour is no line. */
function dots(times, values, x, y) {
    return values.map((value, place) => {
        const isAlone = value !== null && (values[place - 1] ?? null) === null && (values[place + 1] ?? null) === null;
        return isAlone ? element("circle", { class: "use", cx: x(times[place]), cy: y(value), r: 3 }) : null;
    });
}

/** Return the values with a rule: 1, 2 or 5 times a power of ten apart below 1000, powers of two above. */
function levels(highest) {
    const rough = highest / LEVELS;
    const ten = 10 ** Math.floor(Math.log10(rough));
    const round = [1, 2, 5, 10].map((times) => times * ten).find((size) => size >= rough);
    const size = highest < 1000 ? round : 2 ** Math.round(Math.log2(rough));
    return Array.from({ length: Math.floor(highest / size) + 1 }, (_, place) => place * size);
}
