"""
Command lines in the syntax of Go programs.
"""

import argparse
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.runtime.program import flags, hami_flags, settings


def as_words(value: object) -> str:
    """Return a test's id."""
    return " ".join(value) if isinstance(value, list) else str(value)


def a_parser() -> flags.FlagParser:
    """Return a parser with one flag of each kind."""
    parser = settings.parser_of(settings.ServiceConfig, "svc", "1.2.3", "Does things.")
    parser.add_argument("--http_bind", default="127.0.0.1:8080", help="address")
    parser.add_argument("--timeout", type=flags.duration, default=300.0, help="time")
    flags.bool_flag(parser, "--leader-elect", False, "elect")
    flags.bool_flag(parser, "--force", True, "force")
    flags.ignored_flag(parser, "--kube-qps", "no limit here")
    flags.ignored_flag(parser, "--profiling", "no profiler here", is_bool=True)
    return parser


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--http_bind=:80"], "http_bind", ":80"),
        (["--http_bind", ":80"], "http_bind", ":80"),
        (["--http_bind=:80", "--http_bind=:81"], "http_bind", ":81"),
        (["--http_bind="], "http_bind", ""),
        (["--leader-elect"], "leader_elect", True),
        (["--leader-elect=true"], "leader_elect", True),
        (["--leader-elect=T", "--leader-elect=0"], "leader_elect", False),
        (["--force=false"], "force", False),
        (["-v=4"], "verbosity", 4),
        (["-v", "4"], "verbosity", 4),
        (["--v=4"], "verbosity", 4),
        (["--timeout=28s"], "timeout", 28.0),
        (["--kube-qps=5", "--profiling", "--kubeconfig=/a"], "kubeconfig", "/a"),
        ([], "leader_elect", False),
    ],
    ids=as_words,
)
def test_flags_are_read_as_pflag_reads_them(arguments: list[str], name: str, value: object) -> None:
    """Arguments written for HAMi's programs mean the same here."""
    assert value == getattr(a_parser().parse_args(arguments), name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http-bind=:80"], "unknown flag: --http-bind; did you mean --http_bind?"),
        (["--http=:80"], "unknown flag: --http"),
        (["--leader-elect", "false"], "unexpected argument 'false': flags are written --flag=value"),
        (["--leader-elect=maybe"], "--leader-elect: 'maybe' is not a boolean"),
        (["--leader-elect=yes"], "--leader-elect: 'yes' is not a boolean"),
        (["--timeout=28"], "--timeout: '28' is not a duration such as 300ms, 28s or 1h30m"),
        (["-v=x"], "-v/--v: 'x' is not a whole number"),
        (["--http_bind"], "--http_bind: expected one argument"),
    ],
    ids=as_words,
)
def test_an_error_names_its_flag(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was written wrong, and what would be right."""
    with pytest.raises(SystemExit) as left:
        a_parser().parse_args(arguments)

    assert 2 == left.value.code
    shown = capsys.readouterr().err
    assert message in shown
    assert 1 == shown.count("\n")


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_the_version_is_printed_both_ways(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As a flag, and as the sub-command of HAMi's programs."""
    with pytest.raises(SystemExit) as left:
        a_parser().parse_args(arguments)

    assert 0 == left.value.code
    assert "svc 1.2.3\n" == capsys.readouterr().out


def test_help_says_which_flags_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The help lists flags without effect."""
    with pytest.raises(SystemExit):
        a_parser().parse_args(["--help"])

    _, _, ignored = capsys.readouterr().out.partition("accepted without effect:")
    assert ["--kube-qps", "VALUE", "no", "limit", "here"] == ignored.split()[:5]


def test_help_says_defaults_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A boolean in Go's spelling, and nothing where nothing is the default."""
    with pytest.raises(SystemExit):
        a_parser().parse_args(["--help"])

    shown = " ".join(capsys.readouterr().out.split())
    assert "elect (default: false)" in shown
    assert "the service account -v" in shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), (".5s", 0.5), ("100ms", 0.1), ("-2s", -2), ("+2s", 2)],
)
def test_go_durations_are_seconds(text: str, seconds: float) -> None:
    """All the units and their sums."""
    assert seconds == pytest.approx(flags.duration(text))


def test_durations_have_a_least() -> None:
    """A wait can be 0, a span cannot."""
    assert (0, 2) == (flags.wait("0"), flags.wait("2s"))
    assert 2 == flags.span("2s")
    with pytest.raises(argparse.ArgumentTypeError, match="'-1s' is negative; write 0 or more"):
        flags.wait("-1s")
    with pytest.raises(argparse.ArgumentTypeError, match="'0s' is not longer than 0"):
        flags.span("0s")


def test_every_flag_of_klog_is_accepted() -> None:
    """Those that klog.InitFlags of v2.140 defines; `-v` has an effect."""
    of_klog = {
        *("add_dir_header", "alsologtostderr", "alsologtostderrthreshold", "legacy_stderr_threshold_behavior"),
        *("log_backtrace_at", "log_dir", "log_file", "log_file_max_size", "logtostderr", "one_output"),
        *("skip_headers", "skip_log_headers", "stderrthreshold", "vmodule"),
    }
    parser = settings.parser_of(settings.ServiceConfig, "svc", "1.2.3", "Does things.")
    hami_flags.accept_klog_flags(parser)

    assert {f"--{name}" for name in of_klog} == set(hami_flags.KLOG_FLAGS)
    arguments = ["--legacy_stderr_threshold_behavior=false", "--legacy_stderr_threshold_behavior"]
    assert 2 == len(parser.without_effect(parser.parse_args([*arguments, "--alsologtostderrthreshold=INFO"])))


@pytest.mark.parametrize("text", ["2562048h", "9" * 400 + "s", "-9999999999999h"])
def test_longer_duration_than_go_has_is_refused(text: str) -> None:
    """Go counts nanoseconds in 64 bits, and Python's timedelta ends, too."""
    with pytest.raises(argparse.ArgumentTypeError, match="is longer than the longest duration, 2562047h"):
        flags.duration(text)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5d", "1m5", "--1s", "."])
def test_what_is_no_go_duration_is_refused(text: str) -> None:
    """A bare number has no unit, so it is a mistake."""
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        flags.duration(text)


@pytest.mark.property
@given(st.text())
def test_any_text_is_a_duration_or_an_argument_error(text: str) -> None:
    """No text makes the parser fail in another way."""
    with suppress(argparse.ArgumentTypeError):
        assert isinstance(flags.duration(text), float)


def test_flags_without_effect_are_told_with_their_reason_where_they_are_given() -> None:
    """So that a service can say so in one line each."""
    parser = a_parser()

    assert () == parser.without_effect(parser.parse_args(["--force"]))
    assert ("--kube-qps: no limit here", "--profiling: no profiler here") == parser.without_effect(
        parser.parse_args(["--profiling", "--kube-qps=5"])
    )
