import pytest
from traitlets import Float, Int
from traitlets.config import Config, Configurable

from gateway.protocol.errors import SettingError
from gateway.server.strict import check, check_values
from gateway.settings import ElasticGateway
from gateway.settings import Leases as RealLeases


class Leases(Configurable):
    idle_timeout = Float(1.0).tag(config=True)
    min_hold = Float(1.0).tag(config=True)
    inner = Int(1)


class Server(Configurable):
    port = Int(8888).tag(config=True)


def ask(config, typed=None):
    return check(Config(config), [Leases, Server], [Leases], Config(typed or {}))


def test_settings_that_exist_pass():
    assert ask({"Leases": {"idle_timeout": 3}, "Server": {"port": 1}}) == []


def test_a_misspelled_setting_is_refused_with_the_nearest():
    with pytest.raises(SettingError, match=r"Leases\.idle_timout\. Did you mean Leases\.idle_timeout\?"):
        ask({"Leases": {"idle_timout": 3}})


def test_a_setting_that_is_not_for_people_is_refused():
    with pytest.raises(SettingError):
        ask({"Leases": {"inner": 3}})


def test_a_misspelled_section_is_refused_with_the_nearest():
    with pytest.raises(SettingError, match="Did you mean Leases"):
        ask({"Lease": {"idle_timeout": 3}})


def test_a_section_of_another_program_in_a_file_is_left_alone():
    assert ask({"LabApp": {"anything": 1}}) == []


def test_a_section_that_nobody_has_is_refused_on_the_command_line():
    with pytest.raises(SettingError, match="--help-all"):
        ask({"LabApp": {"anything": 1}}, {"LabApp": {"anything": 1}})


def test_a_stock_setting_that_is_unknown_is_a_warning_in_a_file_and_an_error_when_typed():
    assert len(ask({"Server": {"prot": 1}})) == 1
    with pytest.raises(SettingError, match=r"Server\.port"):
        ask({"Server": {"prot": 1}}, {"Server": {"prot": 1}})


def test_a_value_that_can_not_be_is_refused_with_those_that_can_and_where_it_stands():
    files = {
        "/a.py": "c.ElasticGateway.backend = 'x'",
        "/b.json": '{"ElasticGateway": {"backend": "locl"}}',
        "/c.py": "c.Leases.max_hold = 3",
    }
    config = Config({"ElasticGateway": {"backend": "locl"}})
    with pytest.raises(SettingError) as refused:
        check_values(config, [RealLeases, ElasticGateway], Config(), files)
    assert str(refused.value) == "ElasticGateway.backend can't be 'locl': it must be 'local' or 'kubernetes'. It is set in /b.json."
    with pytest.raises(SettingError, match=r"It is set on the command line\.$"):
        check_values(config, [RealLeases, ElasticGateway], config, files)
    check_values(Config({"ElasticGateway": {"backend": "local"}, "Leases": {"max_hold": None}}), [RealLeases, ElasticGateway], Config(), {})
