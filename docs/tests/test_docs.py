"""Every name, command and link on the pages exists."""

import configparser
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from hami_scheduler.values.reasons import PUBLIC_REASONS
from hamicommon.cli.formats import FORMATS
from hamicommon.vendors import nvidia
from hamicommon.wire import keys
from kubectl_hami.main import parser as client

from . import sources
from .pages import DOCS, PROGRAMS, ROOT, Page, read_page

BY_HAND = (
    *("README", "images", "install", "migrate", "releases", "support", "troubleshooting", "what-holds-a-share"),
    *("use", "platforms", "operate", "compare", "faq"),
)
PAGES = [read_page(DOCS / f"{name}.md") for name in BY_HAND]
"""The pages written by hand for operators. Other pages have their own tests, or are records."""
LINKING = [read_page(path) for folder in (ROOT, DOCS) for path in sorted(folder.glob("*.md"))]
KUBECTL = frozenset(
    {"annotate", "apply", "auth", "create", "delete", "describe", "drain", "exec", "get", "label", "logs", "patch"}
    | {"krew", "port-forward", "rollout", "scale", "uncordon", "version", "wait"}
)
HELM = frozenset({"get", "history", "install", "list", "rollback", "template", "test", "uninstall", "upgrade"})
OBJECT = re.compile(r"(?:deployments?|daemonsets?|services?|lease|mutatingwebhookconfigurations?)(?:/| )(hami-[a-z-]+)")
KEY = re.compile(r"(?:hami\.io|nvidia\.com)/[a-z.-]+")
VALUE = re.compile(r"([a-z][A-Za-z]*(?:\.[A-Za-z-]+)+)(?:=.*)?")
NO_VALUE = (".crt", ".io", ".json", ".key", ".py", ".so", ".yaml")
"""Endings of names that look like values: files and the webhook's name."""
REASON = re.compile(r"(?:[A-Z][a-z]+){2,}")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def spans(page: Page, pattern: re.Pattern[str]) -> list[str]:
    """Return the code spans of *page* that match *pattern* completely."""
    return [span for span in page.spans if pattern.fullmatch(span)]


def page_name(page: Page) -> str:
    """Return a page's name for test ids."""
    return page.path.relative_to(ROOT).as_posix()


def assert_all_known(unknown: list[str]) -> None:
    """Fail and list all *unknown*."""
    assert not unknown, "\n".join(["", *unknown])


each_page = pytest.mark.parametrize("page", PAGES, ids=page_name)


@pytest.mark.parametrize("page", LINKING, ids=page_name)
def test_every_link_leads_somewhere(page: Page) -> None:
    """The file exists, and so does the heading of an anchor."""
    broken = []
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        if not target.exists() or (anchor and anchor not in read_page(target).headings):
            broken.append(link)
    assert_all_known(broken)


@each_page
def test_every_metric_is_exported(page: Page) -> None:
    """Metrics in queries and with label selectors count too."""
    quoted = {found for text in (*page.spans, *page.fences) for found in re.findall(r"\bhami_[a-z_]+[a-z]", text)}
    assert_all_known(sorted(name for name in quoted if not sources.is_metric(name)))


@each_page
def test_every_flag_is_a_services(page: Page) -> None:
    """A flag alone in a code span is a flag of a service or a tool."""
    quoted = [span.split("=")[0] for span in page.spans if re.fullmatch(r"--[a-z][\w-]+(=\S*)?", span)]
    known = sources.texts() | {f"--{text}" for text in sources.texts() if re.fullmatch(r"[a-z][\w-]+", text)}
    assert_all_known([flag for flag in quoted if flag not in known])


@each_page
def test_every_key_and_resource_is_one_of_the_contract(page: Page) -> None:
    """Annotations, labels and resource names exist, also inside jsonpath."""
    quoted = {found for text in (*page.spans, *page.fences) for found in KEY.findall(text.replace("\\.", "."))}
    known = sources.chart_text() + (sources.CHART / "values.yaml").read_text() + "\n".join(sources.texts())
    assert_all_known(sorted(key for key in quoted if key.rstrip("-.") not in known))


def test_each_resource_and_annotation_of_a_pod_is_explained() -> None:
    """`use.md` names those of NVIDIA devices and of every vendor, with the chart's default names."""
    values = yaml.safe_load((sources.CHART / "values.yaml").read_text())
    resources = {name for value, name in values.items() if value.startswith("resource")}
    annotations = {*nvidia.vendor(nvidia.NvidiaConfig()).author_annotations, *keys.AUTHOR_KEYS}
    assert len(resources) == 5
    assert_all_known(sorted((resources | annotations) - set(read_page(DOCS / "use.md").spans)))


def test_each_key_that_is_read_has_a_writer_on_record() -> None:
    """SECURITY.md says who writes each annotation and label of the contract; `use.md` has the wishes of authors."""
    of_nvidia = nvidia.vendor(nvidia.NvidiaConfig())
    in_wire = {text for name, text in vars(keys).items() if name.isupper() and isinstance(text, str) and "/" in text}
    wishes = {*of_nvidia.author_annotations, *keys.AUTHOR_KEYS} - {keys.ENFORCEMENT}
    said = {span.partition("=")[0] for span in read_page(ROOT / "SECURITY.md").spans}

    assert_all_known(sorted((in_wire | set(of_nvidia.annotations) | set(nvidia.PLUGIN_NODE_KEYS)) - wishes - said))


def test_each_thing_that_is_read_has_a_test_of_who_may_write_it() -> None:
    """Each row of SECURITY.md's table links a test or the table of drills, unless it says that nobody enforces it."""
    section = (ROOT / "SECURITY.md").read_text().partition("## Who writes what is read")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    tested = re.compile(r"\]\((e2e/(promises|drills)/[\w/]+\.py|#can-a-program-leave-its-share)\)")

    assert len(rows) > 15
    assert_all_known([row for row in rows if not row.endswith("| nobody |") and not tested.search(row)])


@each_page
def test_every_reason_is_given_by_a_service(page: Page) -> None:
    """Reason codes, Event reasons and alerts exist."""
    known = sources.alerts()
    assert_all_known([reason for reason in spans(page, REASON) if reason not in known and not sources.is_said(reason)])


@each_page
def test_every_variable_is_read(page: Page) -> None:
    """The services or the library read each environment variable."""
    quoted = [span.split("=")[0] for span in page.spans if VARIABLE.fullmatch(span.split("=")[0])]
    known = sources.texts()
    unknown = [name for name in quoted if name not in known and name not in sources.native_text()]
    assert_all_known([name for name in unknown if re.sub(r"_\d+$", "", name) not in sources.native_text()])


@each_page
def test_every_value_is_one_of_the_chart(page: Page) -> None:
    """Values in code spans and after `--set` exist, by our name or HAMi's. Fields begin with `spec.` and so on."""
    quoted = [found[1] for span in page.spans if (found := VALUE.fullmatch(span))]
    for command in page.commands():
        given = [value for flag, value in pairwise(command) if flag.startswith("--set")]
        quoted += [pair.split("=")[0] for value in given for pair in re.split(r",(?![^{]*})", value)]
    foreign = ("spec.", "status.", "metadata.")
    assert_all_known(
        [
            key
            for key in quoted
            if key not in sources.chart_values() and not key.startswith(foreign) and not key.endswith(NO_VALUE)
        ]
    )


@each_page
def test_every_message_is_in_the_code(page: Page) -> None:
    """A code span of several words, unless a command or setting, quotes a message, with … for placeholders."""
    of_others = re.compile(r"\S+:? [=<>] |[\w./-]+: \S+$|/|<|--|\$ ")
    sentences = [
        span
        for span in page.spans
        if " " in span and Path(span.split()[0]).name not in PROGRAMS and not of_others.match(span)
    ]
    assert_all_known([text for text in sentences if not sources.is_said(text) and text not in sources.native_text()])


@each_page
def test_every_log_line_is_in_the_code(page: Page) -> None:
    """The event of each example log line is in the code."""
    events = [event for fence in page.fences for event in re.findall(r'"event":"([^"]+)"', fence)]
    assert_all_known([event for event in events if event not in sources.texts()])


@pytest.mark.parametrize("page", [*PAGES, read_page(DOCS / "kubectl-hami.md")], ids=page_name)
def test_every_command_exists(page: Page) -> None:
    """Subcommands, targets, environments, formats and objects of the chart exist."""
    assert_all_known([problem for command in page.commands() if (problem := wrong_with(command))])


def wrong_with(command: list[str]) -> str | None:
    """Return the part of *command* that does not exist, or None."""
    program, words = command[0], command[1:]
    plain = [word for word in words if not word.startswith("-")]
    if program == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return next((f"make {word}" for word in plain if "=" not in word and word not in targets), None)
    if program == "tox":
        environment = words[words.index("-e") + 1]
        return None if f"testenv:{environment}" in tox_sections() else f"tox -e {environment}"
    if program == "python":
        return wrong_with_python(words)
    if program == "kubectl":
        return wrong_with_kubectl(words)
    if program == "helm" and plain[:1] == ["install"] and plain[1:] and "image.registry=" not in " ".join(plain):
        return "helm install without image.registry, which stops"
    if program == "helm":
        return None if not plain or plain[0] in HELM else f"helm {plain[0]}"
    return None


def wrong_with_python(words: list[str]) -> str | None:
    """Return the part of `python` *words* that does not exist: a script, or a command or format of `hamicommon`."""
    if not words:
        return None
    if words[:2] != ["-m", "hamicommon"]:
        return None if (ROOT / words[0]).exists() else f"python {words[0]}"
    verb, *rest = words[2:]
    if verb not in {"decode", "encode", "formats", "region"}:
        return f"hamicommon {verb}"
    known = {form.name for form in FORMATS}
    return f"hamicommon {verb} {rest[0]}" if verb in {"decode", "encode"} and rest[0] not in known else None


def wrong_with_kubectl(words: list[str]) -> str | None:
    """Return the part of `kubectl` *words* that does not exist: the verb, or an object of the chart."""
    verb = next(iter(without_options(words)), None)
    if verb is None:
        return None
    if verb == "hami":
        return wrong_with_kubectl_hami(words[words.index("hami") + 1 :])
    if verb not in KUBECTL:
        return f"kubectl {verb}"
    named = OBJECT.findall(" ".join(words)) + re.findall(r"component=(hami-[a-z-]+)", " ".join(words))
    return next((name for name in named if not is_of_the_chart(name)), None)


def wrong_with_kubectl_hami(words: list[str]) -> str | None:
    """Return the command line if the client does not take it; a word in capitals stands for any."""
    if not words:
        return None
    try:
        client().parse_args(words)
    except SystemExit as end:
        return f"kubectl hami {' '.join(words)}" if end.code else None
    return None


def without_options(words: list[str]) -> list[str]:
    """Return *words* without flags and the namespace."""
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if not word.startswith("-") and before not in {"-n", "--namespace"}]


def is_of_the_chart(name: str) -> bool:
    """Say whether the release `hami` has an object or a component *name*."""
    text = sources.chart_text()
    component = name.removeprefix("hami-")
    return (
        f"}}}}-{component}" in text or f'"{component}"' in text or name in (sources.CHART / "values.yaml").read_text()
    )


def tox_sections() -> list[str]:
    """Return the sections of tox.ini."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    return parser.sections()


def test_every_way_to_a_certificate_is_described() -> None:
    """The table lists the modes in the schema."""
    schema = json.loads((sources.CHART / "values.schema.json").read_text())
    modes = schema["properties"]["webhook"]["properties"]["tls"]["properties"]["mode"]["enum"]
    section = (DOCS / "install.md").read_text().split("## Certificates")[1].split("\n## ")[0]

    assert sorted(modes) == sorted(re.findall(r"^\| `([a-z-]+)`", section, re.MULTILINE))


def test_oldest_kubernetes_equals_the_charts() -> None:
    """The pages require the same version as the chart."""
    chart = yaml.safe_load((sources.CHART / "Chart.yaml").read_text())
    [oldest] = re.findall(r"^>=(1\.\d+)\.0-0$", chart["kubeVersion"])
    _, _, check = sources.chart_text().partition('define "hami.checkKubernetes"')
    [whole] = re.findall(r'semverCompare "<(1\.\d+)\.0-0"', check.partition("{{- end -}}\n{{- end -}}")[0])

    required = f"| Kubernetes | {whole} or newer; {oldest} for device plugin and monitor alone |"
    assert required in (DOCS / "install.md").read_text()
    assert f"| up to 1.{int(oldest.split('.')[1]) - 1} | no |" in (DOCS / "support.md").read_text()


def test_every_reason_and_alert_is_explained() -> None:
    """Each code of an Event and each alert has a row."""
    cells = re.findall(r"^\| (`[^|]+) \|", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    explained = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}

    assert set() == {reason.value for reason in PUBLIC_REASONS} - explained
    assert set() == sources.alerts() - explained


def test_decoding_as_shown_works() -> None:
    """The example that needs no cluster prints what the page shows."""
    text = "GPU-1,10,24576,100,NVIDIA A10,0,true:"
    command = [sys.executable, "-m", "hamicommon", "decode", "node-devices", "-"]
    shown = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    assert '"memory_mib": 24576' in shown


def test_a_wrong_name_is_noticed(tmp_path: Path) -> None:
    """The checks above can fail, for each kind of name."""
    text = (
        "`hami_nonsense` `--nonsense-flag` `NonsenseReason` `HAMI_NONSENSE` `webhook.nonsense` `says what nobody says`"
    )
    (tmp_path / "page.md").write_text(f"{text}\n`hami.io/nonsense` [link](nowhere.md)\n\n```\nkubectl nonsense\n```\n")
    page = read_page(tmp_path / "page.md")
    checks = (
        test_every_metric_is_exported,
        test_every_flag_is_a_services,
        test_every_reason_is_given_by_a_service,
        test_every_variable_is_read,
        test_every_value_is_one_of_the_chart,
        test_every_message_is_in_the_code,
        test_every_key_and_resource_is_one_of_the_contract,
        test_every_link_leads_somewhere,
        test_every_command_exists,
    )

    for check in checks:
        with pytest.raises(AssertionError):
            check(page)
