// Draws use over time against the grant, as SVG. Knows nothing of Pods.

import { element } from "../dom.js";
import { clock, memory } from "../units.js";

const WIDTH = 720;
const HEIGHT = 180;
const LEFT = 70;
const BOTTOM = 24;
const TOP = 12;
const TICKS = 4;

/** Return a chart of a history: `times` in seconds since 1970, `usedMib` with null for gaps, `grantedMib`. */
export function chart({ times, usedMib, grantedMib }) {
    const known = usedMib.filter((value) => value !== null);
    const highest = Math.max(grantedMib, ...known, 1) * 1.08;
    const from = times[0];
    const length = Math.max(1, times.at(-1) - from);
    const x = (time) => LEFT + ((WIDTH - LEFT - 8) * (time - from)) / length;
    const y = (mib) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - mib / highest);
    const last = known.at(-1);
    const label = `memory in use, ${last === undefined ? "unknown" : memory(last)} at the end, ${memory(grantedMib)} granted`;
    return element(
        "svg",
        { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
        levels(highest).map((mib) => [
            element("line", { class: "rule", x1: LEFT, x2: WIDTH - 8, y1: y(mib), y2: y(mib) }),
            element("text", { class: "tick", x: LEFT - 8, y: y(mib) + 4, "text-anchor": "end" }, memory(mib)),
        ]),
        [0, 0.5, 1].map((part, place) =>
            element(
                "text",
                {
                    class: "tick",
                    x: x(from + part * length),
                    y: HEIGHT - 6,
                    "text-anchor": ["start", "middle", "end"][place],
                },
                clock((from + part * length) * 1000),
            ),
        ),
        element("line", { class: "grant", x1: LEFT, x2: WIDTH - 8, y1: y(grantedMib), y2: y(grantedMib) }),
        element("text", { class: "tick", x: WIDTH - 8, y: y(grantedMib) - 4, "text-anchor": "end" }, "granted"),
        element("path", { class: "use", d: line(times, usedMib, x, y) }),
        known.length === 1
            ? element("circle", {
                  class: "use",
                  cx: x(times[usedMib.findIndex((value) => value !== null)]),
                  cy: y(known[0]),
                  r: 3,
              })
            : null,
    );
}

function line(times, values, x, y) {
    let isDown = false;
    return values
        .map((value, place) => {
            const step =
                value === null ? "" : `${isDown ? "L" : "M"}${x(times[place]).toFixed(1)} ${y(value).toFixed(1)}`;
            isDown = value !== null;
            return step;
        })
        .join("");
}

function levels(highest) {
    const rough = highest / TICKS;
    const size = 2 ** Math.round(Math.log2(rough));
    return Array.from({ length: Math.floor(highest / size) + 1 }, (_, place) => place * size);
}
