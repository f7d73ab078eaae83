"""How long a step will take, where there is no terminal to draw a bar on."""

from sparseoco.cli.console import ProgressLines


def test_lines_say_how_far_a_step_is_and_how_long_it_will_take() -> None:
    now, lines = [0.0], list[str]()
    report = ProgressLines(lines.append, lambda: now[0])
    for seconds in range(0, 1000, 10):
        now[0] = float(seconds)
        report("search", 200 + seconds, 1200)
    assert lines[0] == "search: 19% after 30.0 s, about 16 min 10 s left"  # 30 of the 1,000 that were left
    assert [line.split(",")[0].split(" after ")[1] for line in lines] == [
        "30.0 s",
        "1 min 0 s",
        "2 min 0 s",
        "4 min 0 s",
        "8 min 0 s",
        "16 min 0 s",
    ]
    report("train", 0, 100)
    now[0] += 40
    report("train", 0, 100)
    assert lines[-1] == "train: 0% after 40.0 s, no estimate yet"


def test_there_is_no_estimate_before_there_was_progress_for_a_while() -> None:
    now, lines = [0.0], list[str]()
    report = ProgressLines(lines.append, lambda: now[0])
    for seconds, done in ((0, 0), (38, 0), (39, 1), (61, 2), (130, 4_000), (300, 30_000)):
        now[0] = float(seconds)  # the first 39 seconds compile
        report("search", done, 40_000)
    assert lines == [
        "search: 0% after 38.0 s, no estimate yet",
        "search: 0% after 1 min 1 s, no estimate yet",
        "search: 10% after 2 min 10 s, about 13 min 39 s left",
        "search: 75% after 5 min 0 s, about 1 min 27 s left",
    ]


def test_short_steps_print_nothing() -> None:
    now, lines = [0.0], list[str]()
    report = ProgressLines(lines.append, lambda: now[0])
    for done in range(11):
        now[0] += 2
        report("search", done, 10)
    now[0] += 100
    report("search", 10, 10)
    assert lines == []
