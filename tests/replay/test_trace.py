"""Reading a recorded trace: what a line means, and what is said of one that means nothing."""

import pytest

from gateway.protocol.errors import ElasticError
from gateway.replay.trace import Cell, read_csv

HEADING = "session,start,duration,GPUs,memory\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str | bytes):
        file = tmp_path / "trace.csv"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_csv(file)

    return read


def test_recorded_moments_become_gaps_after_the_cell_before(read):
    [session] = read(HEADING + "a,100,60,2,1000\na,300,10,0,0\n")
    assert session.cells == (Cell(0.0, 60.0, 2, 1000), Cell(140.0, 10.0, 0, 0))
    assert (session.name, session.user, session.start, session.gpus) == ("a", "a", 0.0, 2)


def test_a_cell_sent_while_another_runs_follows_at_once(read):
    [session] = read(HEADING + "a,0,60,1,0\na,30,60,1,0\na,150,1,1,0\n")
    assert [cell.gap for cell in session.cells] == [0.0, 0.0, 30.0]


def test_lines_may_come_in_any_order_and_sessions_begin_where_the_first_cell_does(read):
    first, second = read(HEADING + "b,70,1,1,0\na,60,1,1,0\na,10,1,1,0\n")
    assert (first.name, first.start, second.name, second.start) == ("a", 0.0, "b", 60.0)
    assert [cell.gap for cell in first.cells] == [0.0, 49.0]


def test_columns_may_come_in_any_order_and_others_are_passed_over(read):
    [session] = read("gpus,note,start,user,session,duration\n1,x,5,ana,s,7\n")
    assert session.user == "ana" and session.cells == (Cell(0.0, 7.0, 1, 0),)


def test_without_a_heading_the_columns_are_those_of_the_contract(read):
    [session] = read("s,5,7,1,9\n\n")
    assert session.cells == (Cell(0.0, 7.0, 1, 9),)


def test_moments_may_be_written_as_dates(read):
    [session] = read(HEADING + "a,2026-01-01T00:00:00Z,1,1,\na,2026-01-01T00:00:11,1,1,\n")
    assert [cell.gap for cell in session.cells] == [0.0, 10.0]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("b,1,x,1,0", "duration is 'x'"),
        ("b,1,-1,1,0", "duration is '-1'"),
        ("b,1,nan,1,0", "duration is 'nan'"),
        ("b,1", "duration is ''"),
        ("b,soon,1,1,0", "start is 'soon'"),
        ("b,inf,1,1,0", "start is 'inf'"),
        ("b,1,1,1.5,0", "gpus is 1.5"),
        ("b,1,1,1,lots", "memory is 'lots'"),
        (",1,1,1,0", "session is empty"),
        ('"b,1', "unexpected end of data"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_cause(read, line, cause):
    with pytest.raises(ElasticError, match=r"trace\.csv, line 4: ") as caught:
        read(HEADING + "a,0,1,1,0\n\n" + line + "\n")
    assert cause in str(caught.value)


def test_a_heading_that_lacks_a_column_is_told_which(read):
    with pytest.raises(ElasticError, match="line 1: the heading has no duration and no gpus"):
        read("session,start\na,1\n")


@pytest.mark.parametrize(("content", "cause"), [("", "no cell"), (HEADING, "no cell"), (b"\xff\xfe\x00", "no text")])
def test_a_file_without_cells_is_told_what_it_should_hold(read, content, cause):
    with pytest.raises(ElasticError, match=cause):
        read(content)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ElasticError, match="can't be read: No such file"):
        read_csv(tmp_path / "none.csv")
