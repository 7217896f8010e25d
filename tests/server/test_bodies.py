import pytest

from gateway.protocol.errors import BadRequest
from gateway.server.bodies import MAX_BODY_BYTES, json_object, session_body, start_body


@pytest.mark.parametrize("raw", [b"{", b"[]", b"null", b"3", b'"x"', b"[" * 100_000, b"\xff\xfe", b"", b"   "])
def test_a_body_that_is_no_object_is_refused(raw):
    with pytest.raises(BadRequest):
        json_object(raw)


def test_no_body_may_stand_for_an_empty_one():
    assert json_object(b"", empty=True) == {}


def test_a_body_too_large_is_refused_before_it_is_parsed():
    with pytest.raises(BadRequest) as refused:
        json_object(b"x" * (MAX_BODY_BYTES + 1))
    assert refused.value.reason == "too_large"


@pytest.mark.parametrize(
    "name", ["../../etc", "..%2f..%2fetc", "/etc/passwd", "py\0", "a b", "n" * 10_000, 7, {}, ["x"], "", ".", "..", "a/b", "ü", True]
)
def test_a_kernel_name_with_tricks_is_refused(name):
    with pytest.raises(BadRequest) as refused:
        start_body({"name": name}, ())
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("name", ["python3", "elastic-python", "ir", "Julia-1.11", "a_b", None])
def test_an_ordinary_kernel_name_passes(name):
    assert start_body({"name": name}, ()).name == name


@pytest.mark.parametrize("path", ["../../../etc", "a/../b", "..", "a\\..\\b", "x\0y", 7, [], "p" * 5000, "\udcff"])
def test_a_path_can_not_leave_the_root(path):
    with pytest.raises(BadRequest):
        start_body({"path": path}, ())


@pytest.mark.parametrize("path", ["", "a/b.ipynb", "/a", "año/日本 👩‍🔬.ipynb", "..a/b..", None])
def test_an_ordinary_path_passes(path):
    assert start_body({"path": path}, ()).path == path


@pytest.mark.parametrize("kernel_id", ["../x", "abc", 7, "x" * 500, "a-b-c-d-e/..", "é-b-c-d-e"])
def test_a_kernel_id_that_is_none_is_refused(kernel_id):
    with pytest.raises(BadRequest):
        start_body({"kernel_id": kernel_id}, ())


def test_every_text_of_a_kernel_variable_passes_unchanged():
    values = [
        "yes",
        "0123",
        "a: b # c",
        "'\"`\\",
        "line1\nline2\n",
        "\ttab",
        "日本 👩‍🔬",
        "{{ 7*7 }} ${HOME} $(id) %s",
        "",
        " pad ",
        "z" * 20_000,
    ]
    env = {f"KERNEL_QA_{i}": value for i, value in enumerate(values)}
    assert start_body({"env": env}, ()).env == env


@pytest.mark.parametrize("value", [1, None, True, 1.5, [], {}, "a\0b", "\ud800", "x" * 200_000])
def test_a_variable_that_can_not_be_one_is_refused_by_name(value):
    with pytest.raises(BadRequest, match="KERNEL_A"):
        start_body({"env": {"KERNEL_A": value}}, ())


def test_only_kernel_variables_and_allowed_ones_come_in():
    body = start_body({"env": {"KERNEL_A": "1", "PATH": "/evil", "OK": "2", "NOT_TEXT": 3}}, {"OK"})
    assert body.env == {"KERNEL_A": "1", "OK": "2"}
    assert body.ignored == ("PATH", "NOT_TEXT")


@pytest.mark.parametrize("name", ["KERNEL_ A", "KERNEL_=", "KERNEL_\n", "KERNEL_" + "A" * 500])
def test_a_name_that_no_variable_can_have_is_refused(name):
    with pytest.raises(BadRequest):
        start_body({"env": {name: "x"}}, ())


@pytest.mark.parametrize("env", [[], "x", 3])
def test_an_environment_that_is_no_object_is_refused(env):
    with pytest.raises(BadRequest, match="env"):
        start_body({"env": env}, ())


@pytest.mark.parametrize(
    ("name", "value"), [("KERNEL_GPUS", "two"), ("KERNEL_GPUS", "-1"), ("KERNEL_LAUNCH_TIMEOUT", "soon"), ("KERNEL_LAUNCH_TIMEOUT", "0")]
)
def test_a_wish_that_is_no_number_is_refused_by_name(name, value):
    with pytest.raises(BadRequest, match=name):
        start_body({"env": {name: value}}, ())


def test_a_kernel_id_may_come_in_the_environment_as_enterprise_gateway_has_it():
    kernel_id = "11111111-2222-3333-4444-555555555555"
    assert start_body({"env": {"KERNEL_ID": kernel_id}}, ()).kernel_id == kernel_id


def test_a_session_takes_its_kernel_apart_from_itself():
    body = session_body({"path": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}, "env": {"KERNEL_A": "1"}}, ())
    assert (body.path, body.type, body.kernel.name, body.kernel.env) == ("a.ipynb", "notebook", "python3", {"KERNEL_A": "1"})


def test_a_session_of_an_old_client_names_its_notebook():
    body = session_body({"notebook": {"path": "a.ipynb"}, "kernel": {"name": "python3"}}, ())
    assert (body.path, body.type) == ("a.ipynb", "notebook")


@pytest.mark.parametrize("body", [{"kernel": []}, {"kernel": "x"}, {"name": 3}, {"type": {}}, {"path": "../x"}])
def test_a_session_that_makes_no_sense_is_refused(body):
    with pytest.raises(BadRequest):
        session_body(body, ())
