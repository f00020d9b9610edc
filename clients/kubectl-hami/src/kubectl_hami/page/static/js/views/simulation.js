// Asks what the Pods of a pasted manifest would get, as `kubectl hami simulate` does, and shows the scheduler's answer.

import { element, sections } from "../dom.js";
import { ask } from "../feed.js";
import { deviceLink } from "../route.js";
import { memory, percent } from "../units.js";
import { badge } from "./bar.js";
import { explanation } from "./explanation.js";
import { table } from "./table.js";

const MANIFEST_CHARACTERS = 250_000;

/** What was typed and answered. It outlasts a look at another view, and no reload. */
const typed = { manifest: "", namespace: "", nodes: "" };
let answer = { reports: null, problem: "", isAsking: false, number: 0 };

/** Show the form and the last answer in *parent*. */
export function showSimulation(parent) {
    const { reports, problem, isAsking, number } = answer;
    sections(parent, [
        { name: "form", of: [], draw: () => form(() => send(parent)) },
        isAsking ? { name: "asking", of: [], draw: () => element("p", { class: "nothing" }, "Asking the scheduler …") } : null,
        problem ? { name: "problem", of: problem, draw: () => element("p", { class: "problem" }, problem) } : null,
        ...(reports ?? []).map((report, place) => ({
            name: `report ${number} ${place}`,
            of: report,
            draw: () => reportElement(report),
        })),
    ]);
}

function send(parent) {
    const number = answer.number + 1;
    const query = new URLSearchParams({ namespace: typed.namespace.trim() });
    typed.nodes.split("\n").forEach((line) => line.trim() && query.append("node", line.trim()));
    const show = (found) => {
        if (answer.number > number) return;
        answer = { reports: null, problem: "", isAsking: false, number, ...found };
        if (parent.dataset.view === "simulate") showSimulation(parent);
    };
    show({ isAsking: true });
    ask(`api/simulate?${query}`, typed.manifest).then(show, (error) => show({ problem: error.message }));
}

function form(submit) {
    const field = (name, tag, properties) =>
        element(tag, {
            name,
            ...properties,
            "data-focus": `simulate ${name}`,
            on: { input: (event) => (typed[name] = event.target.value) },
        });
    const manifest = field("manifest", "textarea", {
        rows: 16,
        required: true,
        maxlength: MANIFEST_CHARACTERS,
        spellcheck: "false",
        placeholder: "apiVersion: v1\nkind: Pod\n…",
    });
    const namespace = field("namespace", "input", { placeholder: "that of the context" });
    const nodes = field("nodes", "textarea", { rows: 2, spellcheck: "false", placeholder: "2x8 NVIDIA-L40S:49140" });
    for (const one of [manifest, namespace, nodes]) one.value = typed[one.name];
    const sent = (event) => {
        event.preventDefault();
        submit();
    };
    return element(
        "form",
        { class: "simulate", "aria-label": "simulate", on: { submit: sent } },
        element("h1", {}, "Simulate"),
        element("p", { class: "facts" }, "Which Node and devices new Pods would get now. Nothing is created."),
        element("label", {}, "Manifest of Pods, or of objects that create them", manifest),
        element("label", {}, "Namespace, where the manifest names none", namespace),
        element("label", {}, "Nodes to imagine, one a line: NODESxDEVICES MODEL:MIB", nodes),
        element("button", {}, "Simulate"),
    );
}

function reportElement(report) {
    const gets = report.gets ?? [];
    const places = report.places ?? [];
    return element(
        "section",
        { "aria-label": `simulation of ${report.pod}` },
        element("h2", {}, badge(report.isWell ? "good" : "bad", report.isWell ? "fits" : report.verdict), " ", report.headline),
        places.length ? table(PLACES, places) : null,
        gets.length ? table(GETS, gets.map((given) => ({ ...given, node: report.node }))) : null,
        (report.added ?? []).map((added) => element("p", { class: "note" }, `added: ${added}`)),
        explanation(report),
    );
}

const PLACES = [
    { name: "Node", cell: ({ node }) => element("a", { href: deviceLink(node) }, node) },
    { name: "Pods", isNumber: true, cell: (place) => place.count },
];
const GETS = [
    { name: "Container", cell: ({ container }) => container },
    {
        name: "Device",
        cell: ({ node, device, index }) =>
            element("a", { href: deviceLink(node ?? "", device) }, `${node ?? ""} ${index ?? ""}`),
    },
    { name: "Model", cell: ({ model, migProfile }) => [model, migProfile].filter(Boolean).join(" ") },
    { name: "Memory", isNumber: true, cell: ({ memoryMib }) => memory(memoryMib) },
    { name: "Compute", isNumber: true, cell: ({ corePercent }) => (corePercent ? percent(corePercent) : "any") },
];
