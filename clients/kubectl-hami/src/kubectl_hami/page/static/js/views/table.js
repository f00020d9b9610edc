// Draws tables: numbers right, headings that sort and say so.

import { element } from "../dom.js";

/**
 * Return a table.
 *
 * columns  each with `name`, `cell(row)`, and optionally `isNumber`, `isLong`, and `sort`, the link that sorts by it
 * rows     of any kind
 * order    the name of the sorted column and whether it falls, to be said to people who cannot see it
 */
export function table(columns, rows, { caption = "", order = null, rowClass = () => null } = {}) {
    return element(
        "table",
        {},
        caption ? element("caption", {}, caption) : null,
        element(
            "thead",
            {},
            element(
                "tr",
                {},
                columns.map((column) => heading(column, order)),
            ),
        ),
        element(
            "tbody",
            {},
            rows.map((row) =>
                element(
                    "tr",
                    { class: rowClass(row) },
                    columns.map((column) => element("td", { class: kind(column) }, column.cell(row))),
                ),
            ),
        ),
    );
}

function kind(column) {
    return [column.isNumber && "number", column.isLong && "long"];
}

function heading(column, order) {
    const isSorted = order && order.name === column.key;
    const label = column.sort
        ? element(
              "a",
              { href: column.sort, "data-focus": `sort ${column.key}` },
              column.name,
              isSorted ? (order.falls ? " ▾" : " ▴") : "",
          )
        : column.name;
    const sorted = isSorted ? (order.falls ? "descending" : "ascending") : null;
    return element("th", { scope: "col", class: kind(column), "aria-sort": sorted }, label);
}
