import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analytics import ParticipationReport, windowed_counts
from analytics.report import ReportError

matrices = st.tuples(st.integers(1, 12), st.integers(1, 5)).flatmap(
    lambda s: arrays(np.uint8, s, elements=st.integers(0, 1))
)


@given(matrices, st.integers(1, 15))
def test_windowed_counts_cover_every_round_once(participation, window):
    report = windowed_counts(participation, window)
    covered = np.zeros_like(participation, dtype=int)
    for client, start, stop, count in zip(
        report.client, report.start, report.stop, report.count, strict=True
    ):
        assert count == participation[start:stop, client].sum()
        assert stop - start <= window
        covered[start:stop, client] += 1
    assert (covered == 1).all()


@pytest.mark.parametrize("noise_sd", [0.0, 0.5])
def test_csv_round_trip(tmp_path, noise_sd):
    rows = [("b", 0, 4, 2.0), ("a", 0, 4, None), ("b", 4, 6, 1 + noise_sd), ("a", 4, 6, 0.0)]
    report = ParticipationReport.from_rows(rows, noise_sd=noise_sd)
    report.write_csv(tmp_path / "counts.csv")
    again = ParticipationReport.read_csv(tmp_path / "counts.csv", noise_sd=noise_sd)
    assert list(again.clients) == ["b", "a"]
    for name in ("client", "start", "stop", "count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(report, name))


def test_the_law_of_errors_survives_the_file(tmp_path):
    rows, law = [("b", 0, 4, 2.0), ("a", 0, 4, 3.0)], np.array([True, False])
    report = ParticipationReport.from_rows(rows, noise_sd=1.5, laplace=law)
    report.write_csv(tmp_path / "counts.csv")
    assert (tmp_path / "counts.csv").read_text().splitlines()[1] == "b,0,4,2,1.5,laplace"
    np.testing.assert_array_equal(ParticipationReport.read_csv(tmp_path / "counts.csv").is_laplace, law)


def test_an_unknown_law_is_refused_by_its_line(tmp_path):
    file = tmp_path / "counts.csv"
    file.write_text("client,start,stop,count,sd,law\na,0,4,2,1.5,cauchy\n")
    with pytest.raises(ReportError, match="line 2: law is 'cauchy', expected normal or laplace"):
        ParticipationReport.read_csv(file)


def test_a_laplace_error_needs_a_deviation():
    with pytest.raises(ReportError, match="above 0"):
        ParticipationReport.from_rows([(0, 0, 4, 2.0)], laplace=True)


def test_numbers_as_ids_stay_numbers(tmp_path):
    windowed_counts(np.eye(11, dtype=int), 5).write_csv(tmp_path / "counts.csv")
    assert list(ParticipationReport.read_csv(tmp_path / "counts.csv").clients) == list(range(11))


def test_numbers_too_large_for_numpy_stay_what_they_are(tmp_path):
    """Flower's node ids are random 64-bit numbers, some of which fit into no signed one."""
    ids = ["4873129873129873121", "12873129873129873127", "12873129873129873126", "7", "1" * 25]
    file = tmp_path / "counts.csv"
    file.write_text("client,start,stop,count\n" + "".join(f"{i},0,5,1\n" for i in ids))
    assert ParticipationReport.read_csv(file).clients.tolist() == ids


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ((0, 4, 4, 0), "must stop after it starts"),
        ((0, -1, 4, 0), "before round 0"),
        ((0, 0, 4, 5), "more participations than rounds"),
        ((0, 0, 4, -1), "cannot be negative"),
        ((0, 0, 4, 1.5), "whole number"),
        ((0, 0, 4, np.inf), "finite"),
    ],
)
def test_impossible_rows_are_named(row, problem):
    with pytest.raises(ReportError, match=f"client 0.*{problem}"):
        ParticipationReport.from_rows([row])


@pytest.mark.parametrize("count", [1e300, -1e300, 1005.5])
def test_a_count_that_its_error_cannot_explain_is_named(count):
    with pytest.raises(
        ReportError, match=r"client 0.*more than 1000 standard deviations from any possible count"
    ):
        ParticipationReport.from_rows([(0, 0, 4, count)], noise_sd=1)


def test_noisy_counts_may_lie_outside_their_window():
    assert ParticipationReport.from_rows([(0, 0, 4, -1.5), (0, 4, 8, 9.0)], noise_sd=1).noise_sd == 1


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a,b\n", "line 1"),
        ("client,start,stop,count\n1,0,4\n", "line 2"),
        ("client,start,stop,count\n1,0,4,2\n1,x,8,2\n", "line 3"),
    ],
)
def test_malformed_files_are_named_by_line(tmp_path, text, where):
    (tmp_path / "counts.csv").write_text(text)
    with pytest.raises(ReportError, match=f"counts.csv, {where}"):
        ParticipationReport.read_csv(tmp_path / "counts.csv")


@pytest.mark.parametrize(("participation", "window"), [(np.zeros(4), 2), (np.zeros((4, 2)), 0)])
def test_windowed_counts_refuse_nonsense(participation, window):
    with pytest.raises(ReportError):
        windowed_counts(participation, window)


def test_a_count_that_is_given_twice_is_named(tmp_path):
    file = tmp_path / "counts.csv"
    file.write_text("client,start,stop,count\na,0,4,2\na,4,8,1\nb,0,4,2\na,0,4,2\n")
    with pytest.raises(ReportError, match=r"line 5: .*an earlier line has a count for these rounds"):
        ParticipationReport.read_csv(file)
