"""Random stories: whatever users, supervisors and brokers do, and however late, the book stays sound and nobody waits in vain."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.leases.events import GpuLost, GpuSeen, NodeDrained, Park, Tick
from gateway.leases.levels import Levels
from gateway.leases.policy import Policy
from gateway.protocol.model import GPU_IN_USE, Gpu, Phase, Rung

from .world import Kernel, World

MOVING = (Phase.RESUMING, Phase.PARKING)
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0, 60.0, 300.0])
RUNGS = st.sampled_from([Rung.ANYWHERE, Rung.ANYWHERE, Rung.SAME_GPU, Rung.EXCLUSIVE])
USERS = st.sampled_from(["ana", "bo"])
COUNTS = st.sampled_from([0, 1, 1, 1, 1, 2, 2, 3, 9])
SITES = st.builds(
    Policy,
    idle_timeout=st.sampled_from([None, 0.0, 5.0, 120.0]),
    min_hold=st.sampled_from([0.0, 5.0]),
    max_hold=st.sampled_from([None, 0.0, 30.0]),
    queue_timeout=st.sampled_from([None, None, 0.0, 100.0]),
    reclaim=st.sampled_from([True, True, True, False]),
    gpus_per_user=st.sampled_from([None, None, 1, 2, 4]),
    reserve_after=st.sampled_from([None, 0.0, 20.0]),
    park_backoff=st.just(10.0),
)
SAID = st.fixed_dictionaries(
    {},
    optional={
        "idle_timeout": st.sampled_from([None, 0.0, 5.0]),
        "min_hold": st.sampled_from([0.0, 5.0]),
        "max_hold": st.sampled_from([None, 0.0, 30.0]),
        "queue_timeout": st.sampled_from([None, 0.0, 100.0]),
        "reclaim": st.booleans(),
        "gpus_per_user": st.sampled_from([None, 0, 1, 2]),
        "gpus_per_kernel": st.sampled_from([None, 0, 1, 2]),
        "priority": st.integers(-1, 1),
        "quiet": st.booleans(),
    },
)
WEIGHED = st.builds(lambda said, weight: {**said, **weight}, SAID, st.sampled_from([{}, {"weight": 0.0}, {"weight": 3.0}]))
SPECS = st.sampled_from(["python", "torch"])
LAYERS = st.fixed_dictionaries(
    {
        "flavor": st.dictionaries(st.sampled_from(["gpu", "big"]), SAID, max_size=2),
        "kernelspec": st.dictionaries(st.just("torch"), SAID, max_size=1),
        "group": st.dictionaries(st.sampled_from(["all", "some"]), WEIGHED, max_size=2),
        "user": st.dictionaries(st.just("ana"), WEIGHED, max_size=1),
    }
)
POLICIES = st.one_of(
    SITES.map(Levels), st.builds(Levels, SITES, LAYERS, st.just({"some": ["ana"], "all": ["ana", "bo"]}))
)  # fmt: skip


class Stories(RuleBasedStateMachine):
    """Orders and states travel one by one, when a rule says so; meanwhile anything happens."""

    @initialize(
        policy=POLICIES, rungs=st.lists(RUNGS, min_size=1, max_size=4), nodes=st.integers(1, 2),
        kernels=st.lists(st.tuples(USERS, COUNTS, RUNGS, st.booleans(), SPECS), max_size=4), mixed=st.booleans(),
    )  # fmt: skip
    def begin(
        self, policy: Levels, rungs: list[Rung], nodes: int, kernels: list[tuple[str, int, Rung, bool, str]], mixed: bool
    ) -> None:  # fmt: skip
        """``kernels`` were there before the story: single steps reach a parked state too rarely."""
        self.world = World(gpus=0, auto=False, policy=policy)
        self.nodes = [f"node{i}" for i in range(nodes)]
        self.rungs = {f"{node}-{i}": rung for node in self.nodes for i, rung in enumerate(rungs)}
        self.n, self.mixed = 0, mixed
        for uuid in self.rungs:
            self.world.tell(GpuSeen(self.gpu(uuid)))
        for user, count, rung, released, spec in kernels:
            self.a_kernel_is_born(user, count, self.n, spec)
            kernel = self.world.kernels[f"k{self.n}"]
            if count:
                self.world.run(kernel.kernel_id)
                self.world.settle()
            if released and kernel.running:
                kernel.release_asked += 1
                kernel.running = 0
                self.world.says(kernel)
                self.world.settle()
            self.world.becomes(kernel.kernel_id, rung)

    def gpu(self, uuid: str) -> Gpu:
        node, number = uuid.split("-")
        return Gpu(uuid, node, flavor=("gpu", "big")[int(number if self.mixed else node[-1]) % 2], rung=self.rungs[uuid])

    def pick(self, i: int, which=lambda kernel: True) -> Kernel | None:
        kernels = [kernel for kernel in self.world.kernels.values() if which(kernel)]
        return kernels[i % len(kernels)] if kernels else None

    # users

    @precondition(lambda self: len(self.world.kernels) < 7)
    @rule(user=USERS, count=COUNTS, node=st.integers(0, 1), spec=SPECS)
    def a_kernel_is_born(self, user: str, count: int, node: int, spec: str) -> None:
        self.n += 1
        self.world.kernel(f"k{self.n}", user, count, self.nodes[node % len(self.nodes)], spec)

    @rule(i=st.integers(0, 6))
    def a_cell_arrives(self, i: int) -> None:
        if kernel := self.pick(i, lambda kernel: kernel.count):
            self.world.run(kernel.kernel_id)

    @rule(i=st.integers(0, 6), again=st.booleans())
    def the_cells_end(self, i: int, again: bool) -> None:
        if kernel := self.pick(i, lambda kernel: kernel.running):
            kernel.running = 0
            if again:
                self.world.says(kernel)
                kernel.cell()
            self.world.says(kernel)

    @rule(i=st.integers(0, 6))
    def the_held_cells_are_interrupted(self, i: int) -> None:
        if kernel := self.pick(i, lambda kernel: kernel.held):
            self.world.cancel(kernel.kernel_id)

    @rule(i=st.integers(0, 6))
    def release_is_asked(self, i: int) -> None:
        if kernel := self.pick(i):
            kernel.release_asked += 1
            self.world.says(kernel)

    @rule(i=st.integers(0, 6), seconds=st.sampled_from([0.0, 7.0, 1000.0]))
    def hold_is_asked(self, i: int, seconds: float) -> None:
        if kernel := self.pick(i):
            kernel.hold = seconds
            self.world.says(kernel)

    # supervisors

    @rule(i=st.integers(0, 6))
    def an_order_arrives(self, i: int) -> None:
        if kernel := self.pick(i, lambda kernel: kernel.inbox):
            order = kernel.inbox[0]
            was_running = kernel.running
            kernel.obey()
            assert not (isinstance(order, Park) and was_running and kernel.rest is Phase.PARKING)
            self.world.says(kernel)

    @rule(i=st.integers(0, 6), newest=st.booleans())
    def a_state_arrives(self, i: int, newest: bool) -> None:
        if kernel := self.pick(i, lambda kernel: kernel.outbox):
            self.world.hear(kernel, newest)

    @rule(cells=st.booleans())
    def all_states_arrive_in_one_moment(self, cells: bool) -> None:
        for kernel in self.world.kernels.values() if cells else ():
            if kernel.count:
                kernel.cell()
                self.world.says(kernel)
        self.world.hear_all()

    @rule(i=st.integers(0, 6), failure=st.sampled_from(["", "", "", "does_not_fit", "fatal", GPU_IN_USE]))
    def the_device_is_done(self, i: int, failure: str) -> None:
        if kernel := self.pick(i, lambda kernel: kernel.rest in MOVING):
            kernel.complete(failure)
            self.world.says(kernel)

    @rule(i=st.integers(0, 6), rung=RUNGS)
    def what_a_state_allows_changes(self, i: int, rung: Rung) -> None:
        if kernel := self.pick(i, lambda kernel: kernel.gpus or kernel.home):
            self.world.becomes(kernel.kernel_id, rung)

    @rule(i=st.integers(0, 6), cell=st.booleans())
    def a_kernel_restarts(self, i: int, cell: bool) -> None:
        if kernel := self.pick(i):
            kernel.restart()
            if cell and kernel.count:
                kernel.cell()
            self.world.says(kernel)

    @rule(i=st.integers(0, 6))
    def a_kernel_dies(self, i: int) -> None:
        if kernel := self.pick(i):
            self.world.die(kernel.kernel_id)

    # the site

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(policy=POLICIES)
    def the_policy_is_changed(self, policy: Levels) -> None:
        self.world.carry(self.world.book.set_policy(policy, self.world.now))

    @rule(node=st.integers(0, 1), on=st.booleans())
    def a_node_is_drained_or_not(self, node: int, on: bool) -> None:
        self.world.tell(NodeDrained(self.nodes[node % len(self.nodes)], on))

    @rule()
    def the_broker_is_killed(self) -> None:
        self.world.reborn()

    @rule(i=st.integers(0, 6))
    def everything_arrives_and_works(self, i: int) -> None:
        self.world.settle()

    @rule(i=st.integers(0, 7), returns=st.booleans())
    def a_gpu_comes_or_goes(self, i: int, returns: bool) -> None:
        uuid = list(self.rungs)[i % len(self.rungs)]
        if uuid in self.world.book.devices.lost or uuid not in self.world.book.gpus:
            self.world.tell(GpuSeen(self.gpu(uuid)))
        else:
            self.world.tell(GpuLost(uuid, returns))

    # what always holds

    @invariant()
    def the_book_is_sound(self) -> None:
        if not hasattr(self, "world"):
            return
        book, world = self.world.book, self.world
        book.validate()
        at = book.deadline(world.now)
        assert at is None or at > world.now
        again = book.handle(Tick(), world.now)
        assert not again, f"a second look at the same moment changes nothing, but: {again}"
        assert not any(record.contested for record in book.kernels.values()), "nobody was ever granted what another held"

    @invariant()
    def no_gpu_lies_idle_that_a_waiter_could_have(self) -> None:
        if not hasattr(self, "world") or self.world.book.levels.limited:
            return
        book = self.world.book
        for node in self.nodes:
            line = [record for record in book.queue() if record.node == node]
            if all(record.count == 1 for record in line):
                for record in line:
                    assert all(pool.isdisjoint(book.devices.free(node)) for pool in book.devices.pools(record))

    @invariant()
    def no_gpu_has_two_holders_in_truth(self) -> None:
        if not hasattr(self, "world"):
            return
        holders: dict[str, str] = {}
        for kernel in self.world.kernels.values():
            for uuid in kernel.gpus:
                assert uuid not in holders, f"{uuid} is used by {holders[uuid]} and {kernel.kernel_id}"
                holders[uuid] = kernel.kernel_id
            assert len(kernel.gpus) in (0, kernel.count)

    @invariant()
    def spans_are_open_for_what_is_held_and_executed_and_for_nothing_else(self) -> None:
        if not hasattr(self, "world"):
            return
        meter, kernels = self.world.book.meter, self.world.book.kernels
        open_ = {(span.kernel_id, span.kind): span.uuids for span in meter.open()}
        held = {(name, "held"): record.gpus for name, record in kernels.items() if record.gpus}
        runs = {(name, "executed"): record.gpus for name, record in kernels.items() if record.gpus and record.executing}
        assert {key: uuids for key, uuids in open_.items() if key[1] != "reserved"} == {**held, **runs}
        for span in meter.take():
            assert span.end is None or span.begin <= span.end <= self.world.now

    def teardown(self) -> None:
        """When everyone stops executing and everything works, each waiter is served, or told why not, as time passes."""
        if not hasattr(self, "world"):
            return
        world, book = self.world, self.world.book
        for kernel in world.kernels.values():
            kernel.hold = 0.0
            world.says(kernel)
        for uuid in self.rungs:
            world.tell(GpuSeen(self.gpu(uuid)))
        world.carry(book.set_policy(lenient(book.levels), world.now))
        world.tell(*(NodeDrained(node, False) for node in self.nodes))
        waiting = {kernel.kernel_id for kernel in world.kernels.values() if kernel.held}
        for _ in range(60):
            world.settle()
            for kernel in world.kernels.values():
                if kernel.running:
                    kernel.running = 0
                    world.says(kernel)
            world.settle()
            for kernel_id in [k for k, record in book.kernels.items() if record.phase is Phase.HOLDING and record.fixed]:
                world.die(kernel_id)  # it, or its GPU, is exclusive: only its end frees it
            waiting &= {kernel.kernel_id for kernel in world.kernels.values() if kernel.held}
            if not waiting:
                break
            world.advance(20.0)
        assert not waiting, f"{waiting} wait in vain: {book.queue()}"
        book.validate()


def lenient(levels: Levels) -> Levels:
    """Nothing makes anybody wait for ever but quotas, which their user's own kernels fill, and priorities and weights."""
    layers = {
        level: {
            name: {
                setting: value
                for setting, value in said.items()
                if setting in ("gpus_per_user", "gpus_per_kernel", "priority", "weight", "min_hold")
            }
            for name, said in named.items()
        }
        for level, named in levels._layers.items()
    }
    members: dict[str, list[str]] = {}
    for user, groups in levels._groups.items():
        for group in groups:
            members.setdefault(group, []).append(user)
    return Levels(Policy(min_hold=levels.site.min_hold, gpus_per_user=levels.site.gpus_per_user), layers, members)


Stories.TestCase.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestStories = Stories.TestCase
