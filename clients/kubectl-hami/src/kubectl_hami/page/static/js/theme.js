// Chooses light or dark: as the system says, until a person says otherwise in this browser.

const KEY = "hami-theme";
const NEXT = { "": "dark", dark: "light", light: "" };
const NAMES = { "": "as the system", dark: "dark", light: "light" };

/** Apply the remembered choice, and let *button* change it. */
export function startTheme(button) {
    apply(button, stored());
    button.addEventListener("click", () => {
        const next = NEXT[stored()];
        localStorage.setItem(KEY, next);
        apply(button, next);
    });
}

function apply(button, theme) {
    document.documentElement.dataset.theme = theme;
    button.textContent = { "": "◐", dark: "●", light: "○" }[theme];
    button.setAttribute("aria-label", `colours: ${NAMES[theme]}`);
    button.title = `colours: ${NAMES[theme]}`;
}

function stored() {
    const theme = localStorage.getItem(KEY);
    return theme in NEXT ? theme : "";
}
