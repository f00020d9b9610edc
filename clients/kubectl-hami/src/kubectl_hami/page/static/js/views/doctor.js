// Shows the checks of `kubectl hami doctor`, the worst first, each with its fix.

import { element } from "../dom.js";
import { count } from "../units.js";
import { showAnswer } from "./answer.js";
import { badge } from "./bar.js";

/** The verdicts, the worst first: how each looks. */
const TONES = { bad: "bad", doubtful: "warning", unknown: "plain", good: "good" };
const ORDER = Object.keys(TONES);

/** Show the checks of *answer* in *parent*. */
export function showDoctor(parent, seen, state, answer) {
    showAnswer(parent, "Doctor", answer, ({ checks }) => {
        const sorted = [...checks].sort((one, other) => ORDER.indexOf(one.health) - ORDER.indexOf(other.health));
        return [
            { name: "sums", of: checks.map((check) => check.health), draw: () => sums(checks) },
            ...sorted.map((check) => ({ name: `check ${check.name}`, of: check, draw: () => checkElement(check) })),
        ];
    });
}

function sums(checks) {
    const found = ORDER.map((health) => [health, checks.filter((check) => check.health === health).length]);
    const words = found.filter(([, number]) => number).map(([health, number]) => `${number} ${health}`);
    return element("p", { class: "facts" }, `${count(checks.length, "check")}: ${words.join(", ")}`);
}

function checkElement({ name, health, found, fix }) {
    return element(
        "section",
        { class: ["check", `is-${health}`], "aria-label": `check ${name}` },
        element("h2", {}, badge(TONES[health] ?? "plain", health), " ", name),
        element("p", {}, found),
        fix ? element("p", { class: "fix" }, element("strong", {}, "Fix: "), fix) : null,
    );
}
