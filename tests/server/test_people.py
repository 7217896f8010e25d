"""The users file: who somebody is by their token, and that nothing of a token or its hash is ever told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.protocol.errors import SettingError
from gateway.server.people import People, hashed, read_people

ANA, BO, OPS = "ana-token", "bo-token", "ops-token"
FILE = f"""
ana: {{token: "{hashed(ANA)}", groups: [students]}}
bo: {{token: ["{hashed(BO)}", "{hashed("bo-next")}"]}}
ops: {{token: "{hashed(OPS)}", admin: true}}
lab: {{token: "{hashed("lab")}", front_end: true}}
"""


def test_a_token_tells_who_its_holder_is():
    people = read_people(FILE)
    ana, ops, lab = people[hashed(ANA)], people[hashed(OPS)], people[hashed("lab")]
    assert (ana.username, ana.groups, ana.admin, ana.front_end) == ("ana", ("students",), False, False)
    assert (ops.admin, lab.front_end) == (True, True)
    assert people[hashed("bo-next")] is people[hashed(BO)]
    assert hashed("guess") not in people


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ana: secret", r"the entry of 'ana' may have token"),
        ("ana: {token: secret}", r"the token of 'ana' must be the hash"),
        ("ana: {}", r"the token of 'ana' must be the hash"),
        ("ana: {token: []}", r"the token of 'ana' must be the hash"),
        (f"ana: {{token: '{hashed(ANA)}', admin: yes please}}", r"admin of 'ana' must be true or false"),
        (f"ana: {{token: '{hashed(ANA)}', groups: all}}", r"groups of 'ana' must be a list"),
        (f"ana: {{token: '{hashed(ANA)}', root: true}}", r"'ana' may have .*: no 'root'"),
        (f"ana: {{token: '{hashed(ANA)}'}}\nbo: {{token: '{hashed(ANA)}'}}", r"'ana' and 'bo' have the same token"),
        ("- ana", r"a users file has names"),
        ("ana: [", r"line \d: this is no YAML"),
    ],
)
def test_an_entry_that_can_not_hold_is_refused_by_name_and_without_its_token(text: str, words: str):
    with pytest.raises(SettingError, match=words) as refused:
        read_people(text)
    assert "secret" not in str(refused.value) and hashed(ANA) not in str(refused.value)


def test_a_changed_file_counts_at_the_next_request_and_a_bad_one_leaves_everybody_in(tmp_path: Path):
    file, told = tmp_path / "users.yaml", []
    file.write_text(FILE)
    people = People(str(file), told.append)
    assert people.by_token(ANA).username == "ana"
    file.write_text("nonsense")
    assert people.by_token(ANA).username == "ana"
    file.write_text(f"cy: {{token: '{hashed('cy')}', groups: [staff]}}")
    assert people.by_token(ANA) is None
    assert people.by_token("cy").username == "cy"
    assert told == [{"cy": ("staff",)}]


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path):
    with pytest.raises(SettingError, match="No such file"):
        People(str(tmp_path / "none"))


def test_the_command_line_makes_a_token_and_a_line_that_fits(capsys: pytest.CaptureFixture[str]):
    assert main(["token", "ana", "--group", "students", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert read_people(json.dumps({"ana": made["entry"]}))[hashed(made["token"])].groups == ("students",)
    assert main(["token", "on", "--admin"]) == 0
    out = capsys.readouterr().out
    line, token = out.splitlines()[-1], out.splitlines()[1].strip()
    assert read_people(line)[hashed(token)].username == "on"
