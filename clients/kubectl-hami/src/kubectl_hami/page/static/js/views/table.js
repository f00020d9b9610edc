// Draws tables: numbers right, headings that sort and say so.

import { element } from "../dom.js";

/**
 * Return a table.
 *
 * columns  each with `name`, `cell(row)`, and optionally `isNumber`, `isLong`, and `sort`, the link that sorts by it
 * rows     of any kind
 * order    the name of the sorted column and whether it falls, to be said to people who cannot see it
 * below    returns a sentence about a row, which has the whole width below it; empty if there is none
 */
export function table(columns, rows, { order = null, rowClass = () => null, below = () => "" } = {}) {
    return element(
        "table",
        {},
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
            rows.map((row) => [
                element(
                    "tr",
                    { class: rowClass(row) },
                    columns.map((column) =>
                        element("td", { class: kind(column), "data-name": column.name }, column.cell(row)),
                    ),
                ),
                below(row)
                    ? element("tr", { class: "below" }, element("td", { colspan: columns.length }, below(row)))
                    : null,
            ]),
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
