// Shows the answer of a command: not here yet, not to be had, or here.

import { element, sections } from "../dom.js";

/**
 * Show an answer under *title*, in *parent*.
 *
 * answer   null until it is here; its `problem` says why there is none, its `problems` what it lacks
 * made     returns its sections, for `sections` of dom.js
 */
export function showAnswer(parent, title, answer, made) {
    const problems = answer?.problem ? [answer.problem] : (answer?.problems ?? []);
    sections(parent, [
        { name: "title", of: title, draw: () => element("h1", {}, title) },
        answer ? null : { name: "asking", of: [], draw: () => element("p", { class: "nothing" }, "Asking …") },
        ...problems.map((text, place) => ({
            name: `problem ${place}`,
            of: text,
            draw: () => element("p", { class: "problem" }, text),
        })),
        ...(answer && !answer.problem ? made(answer) : []),
    ]);
}
